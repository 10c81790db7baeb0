#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's requests: every endpoint, what each answers and to whom, and that the description is true."""
import contextlib
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess

import openapi
import tap
from place import DEADLINE, FA_TUNE, Place
from serve import FA_TUNE_SERVE, FAST, L4, Serve, TOKEN, TWO, a_place, ask, token_file, wait_for

NONE = "no_device\n"


def a_kernel_is_tuned_once_and_then_answered_from_memory_with_its_cubin():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        status, first = daemon.post("/v1/kernel", ask())
        tap.equal((status, first["answer"]["origin"], first["answer"]["from_store"]), (200, "measured", False))
        tap.equal(first["answer"]["config"]["tunables"]["BLOCK_M"], 128)
        status, second = daemon.post("/v1/kernel", ask())
        tap.equal((status, second["answer"]["from_store"]), (200, True))
        hits = daemon.metric("cache_hits_total")
        tap.equal(daemon.post("/v1/kernel", ask()), (200, second))
        tap.equal(daemon.metric("cache_hits_total"), hits + 1)
        status, data, headers = daemon.get("/v1/cubins/" + first["answer"]["cubin_key"], raw=True)
        tap.equal((status, headers["ETag"]), (200, '"%s"' % hashlib.sha256(data).hexdigest()))
        tap.equal(daemon.metric("tunes_total"), 1)
        # The command line finds what the daemon stored, and what it forgets is not given for long.
        tap.equal(len(place.json("show")["winners"]), 1)
        cached = ask(gpu="L4", effort="cached")
        tap.equal(daemon.post("/v1/kernel", cached)[0], 200)
        place.run("rm", "--gpu", "L4")
        wait_for(lambda: daemon.post("/v1/kernel", cached)[0] == 404, "that it is gone")
        tap.equal(daemon.get("/v1/winners")[1]["winners"], [])


def a_winner_that_another_process_stores_is_given_within_seconds():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        first = daemon.post("/v1/kernel", ask())[1]["answer"]
        place.use_fake_driver(L4 + "time BLOCK_M=64 20\ntime BLOCK_M=128 90\n")
        place.run("--seq", "128", "--batch", "1", "--heads", "1", "--again")
        wait_for(lambda: daemon.post("/v1/kernel", ask())[1]["answer"]["config"]["tunables"]["BLOCK_M"] == 64, "the other process's winner")
        # What is tuned anew here is given at once.
        place.use_fake_driver(L4 + FAST)
        tap.equal(daemon.post("/v1/kernel", ask(effort="patient", again=True))[1]["answer"]["config"], first["config"])
        tap.equal(daemon.post("/v1/kernel", ask())[1]["answer"]["config"], first["config"])


def a_host_without_a_gpu_compiles_for_any():
    with Place(space=TWO, script=NONE) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask(gpu="L4", effort="cached"))[1]["error"]["code"], "FA_ENOTFOUND")
        status, document = daemon.post("/v1/kernel", ask(gpu="A10"))
        tap.equal((status, document["answer"]["origin"], document["answer"]["gpu"]["name"]), (200, "predicted", "A10"))
        status, data, _ = daemon.get("/v1/cubins/" + document["answer"]["cubin_key"], raw=True)
        tap.equal((status, data[:4]), (200, b"\x7fELF"))
        status, document = daemon.post("/v1/kernel", ask())
        tap.equal((status, document["error"]["code"]), (422, "FA_ENODEVICE"))
        status, document = daemon.post("/v1/kernel", ask(gpu="L5"))
        tap.equal(status, 404)
        tap.has(document["error"]["message"], "L5")
        # A client's own GPU, which is not here, is measured where it is; what is predicted for its type it may have.
        status, document = daemon.post("/v1/kernel", ask(gpu="L4", uuid="GPU-of-the-client"))
        tap.equal((status, document["error"]["code"]), (422, "FA_ENODEVICE"))
        tap.has(document["error"]["message"], "this service has no L4")
        tap.equal(daemon.get("/v1/jobs"), (200, {"devices": [], "jobs": []}))


def devices_are_told_and_asked_for_by_uuid_ordinal_and_name():
    two = "device name=NVIDIA_L4 sm=89 sms=58\ndevice name=NVIDIA_A10 sm=86 sms=72 bus=384\n"
    with Place(space=TWO, script=two) as place, Serve(place) as daemon:
        devices = daemon.get("/v1/jobs")[1]["devices"]
        tap.equal([(d["name"], d["ordinal"], d["present"]) for d in devices], [("NVIDIA L4", 0, True), ("NVIDIA A10", 1, True)])
        for asked in ({"uuid": devices[1]["uuid"]}, {"ordinal": 1}, {"gpu": "A10"}, {"uuid": "of-no-device", "gpu": "A10"}):
            status, document = daemon.post("/v1/kernel", ask(**asked))
            tap.equal((status, document["answer"]["gpu"]["uuid"], document["answer"]["origin"]), (200, devices[1]["uuid"], "measured"))
        status, document = daemon.post("/v1/kernel", ask(uuid="of-no-device"))
        tap.equal((status, document["error"]["code"]), (422, "FA_ENODEVICE"))
        tap.equal(daemon.post("/v1/kernel", ask(ordinal=2))[0], 400)


def bad_requests_are_told_what_is_wrong():
    with Place(script=NONE) as place, Serve(place) as daemon:
        for body, word in ((b"", "JSON"), (b"{", "JSON"), (b"[]", "ask"), ({}, "problem"),
                           (ask(head_dim=7, gpu="L4"), "head_dim"), (ask(effort="best"), "effort"), (ask(strategy="guess", gpu="L4"), "guess"),
                           (ask(gpu=7), "gpu"), (ask(gpo="L4"), "gpo"), (ask(timeout_ms=-1), "timeout_ms"), (b"\xff\xfe", ""),
                           ({"problem": {"head_dim": 64, "batch": 4, "heads_q": 8}}, "seq_q"),
                           (json.dumps(ask()).replace('"seq_q"', '"seq_q":1,"seq_q"').encode(), "seq_q"),
                           (dict(ask(), problem=dict(ask()["problem"], operation="conv")), "conv"), (ask(heads_q="8"), "heads_q"),
                           (dict(ask(), problem=dict(ask()["problem"], attn_bias=True)), "attn_bias"),
                           (ask(ordinal=1.5), "ordinal"), (ask(gpu="L\u009b4"), "control"), (ask(gpu="L\a4"), "control")):
            status, document = daemon.post("/v1/kernel", body)
            tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))
            tap.has(document["error"]["message"], word)
        bodies = [b'{"problem":' * 1000 + b"1" + b"}" * 1000, b"[" * 16000, os.urandom(4096), bytes(range(256)), b"\0" * 100, b"{}",
                  b'{"problem":{"head_dim":64,"batch":1,"heads_q":1,"seq_q":128},"gpu":"L4\0no"}', json.dumps(ask()).encode() + b"\0",
                  b'{"a":1,' * 2000, b'{"problem":{},"problem":{}}', b'"' + b"\\" * 9999, json.dumps(ask(gpu="x" * 5000)).encode(),
                  {"items": []}, {"items": [{}]}, {"items": [ask()], "effort": "cached"}]
        for path in ("/v1/kernel", "/v1/sweeps"):
            for body in bodies:
                status, document = daemon.post(path, body)
                tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))


def sources_of_clients_are_refused_with_one_sentence():
    with Place(script=NONE) as place, Serve(place) as daemon:
        sent = {"name": "axpy", "specification": {"kernel": "axpy"}, "source": "__global__ void axpy() {}"}
        for path, status in (("/v1/families", 404), ("/v1/kernel", 400), ("/v1/sweeps", 400)):
            tap.equal((path, daemon.post(path, sent)[0]), (path, status))
        status, refused = daemon.post("/v1/kernel", {"problem": {"operation": "axpy@abc0", "n": 64}, "gpu": "L4"})
        tap.equal((status, refused["error"]["code"]), (400, "FA_EINVAL"))
        tap.has(refused["error"]["message"], 'operation "axpy@abc0" is not known')


def health_readiness_and_metrics():
    with Place(script=L4) as place, Serve(place) as daemon:
        tap.equal(daemon.get("/healthz", raw=True)[1], b"ok\n")
        tap.equal(daemon.request("HEAD", "/healthz", raw=True)[:2], (200, b""))
        tap.equal(daemon.get("/readyz", raw=True)[1], b"ready\n")
        data, headers = daemon.get("/metrics", raw=True)[1:]
        tap.has(headers["Content-Type"], "text/plain; version=0.0.4")
        names = re.findall(r"^(fa_tune_serve_\w+) \d+$", data.decode(), re.M)
        tap.equal((len(names), len(set(names)), data.count(b"# TYPE")), (10, 10, 10))
        connection = daemon.connect()
        for _ in range(50):  # over one connection
            tap.equal(daemon.get("/healthz", connection=connection, raw=True)[0], 200)
        connection.close()
        wait_for(lambda: daemon.metric("connections") == 1, "its end")


# ---- who may ask ------------------------------------------------------------------------------
def tcp_needs_the_token_and_the_unix_socket_does_not():
    with Place(script=NONE) as place, Serve(place, "--tcp", "0", "--token-file", token_file(place, TOKEN + "\n"), "--max-connections", "20") as daemon:
        def over_tcp(method, path, body=None, **headers):
            return daemon.request(method, path, body, headers, http.client.HTTPConnection(*daemon.tcp(), timeout=DEADLINE), raw=True)[0]
        good = {"Authorization": "Bearer " + TOKEN}
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            tap.equal(over_tcp("GET", path), 200)
        for headers in ({}, {"Authorization": "Bearer " + TOKEN[:-1]}, {"Authorization": "Bearer " + TOKEN + "x"}, {"Authorization": "Bearer"},
                        {"Authorization": "Basic " + TOKEN}, {"Authorization": TOKEN}, {"Cookie": "token=" + TOKEN}):
            for method, path in (("POST", "/v1/kernel"), ("GET", "/v1/jobs"), ("GET", "/v1/report"), ("GET", "/metrics"), ("GET", "/nothing"),
                                 ("GET", "/v1/jobs?token=" + TOKEN)):
                tap.equal((path, over_tcp(method, path, b"" if method == "POST" else None, **headers)), (path, 401))
        tap.equal(over_tcp("GET", "/v1/jobs", **good), 200)
        tap.equal(over_tcp("POST", "/v1/kernel", json.dumps(ask(gpu="L4", effort="cached")), **good), 404)
        tap.equal(daemon.get("/v1/jobs")[0], 200)
        # Without the token no body is waited for.
        with socket.create_connection(daemon.tcp(), DEADLINE) as client:
            client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            tap.has(client.recv(4096), b" 401 ")
        tap.lacks(daemon.log(), TOKEN)
        # However many come over TCP, they take no connection of the Unix socket's.
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection(daemon.tcp(), DEADLINE))
            tap.equal(daemon.get("/healthz", raw=True)[0], 200)
        wait_for(lambda: daemon.metric("connections") == 1, "their end")


def what_cannot_be_served_is_refused_at_the_start():
    with Place(script=NONE) as place:
        def refused(status, word, *flags):
            done = subprocess.run([FA_TUNE_SERVE, *flags], env=place.env, check=False, capture_output=True, text=True, timeout=DEADLINE)
            tap.equal((flags, done.returncode), (flags, status))
            tap.has(done.stderr, word)
        refused(2, "--token-file", "--socket", "", "--tcp", "0")
        for text, mode, word in ((TOKEN, 0o644, "chmod 600"), ("short", 0o600, "16 to 512"), ("x" * 600, 0o600, "16 to 512"), ("", 0o600, "16 to 512"),
                                 ("with a space in it", 0o600, "16 to 512 printable"), ("with a NUL\0in the text", 0o600, "16 to 512 printable")):
            refused(2, word, "--socket", "", "--tcp", "0", "--token-file", token_file(place, text, mode))
        for where in ("x", "a:b", "1:99999", ":1", "[]:1", "1:"):
            refused(2, "use HOST:PORT", "--socket", "", "--tcp", where, "--token-file", token_file(place))
        there, nowhere = os.path.join(place.folder, "s"), os.path.join(place.folder, "no", "it")
        refused(2, "longer than", "--socket", "/" + "x" * 120)
        refused(2, "is its folder there", "--socket", nowhere)
        refused(2, "does not exist; make it", "--socket", there, "--store", nowhere)
        refused(2, "is not a folder", "--socket", there, "--templates", nowhere)
        refused(2, "cannot start", "--socket", there, "--store", "/dev/null/store.db")
        refused(2, "--max-tunes: \"0\" is not a whole number (1 to 65536)", "--max-tunes", "0")
        refused(2, "--wait: \"1y\" is not a time", "--wait=1y")
        refused(2, "did you mean --socket?", "--sockets")
        refused(2, "did you mean --socket?", "--socke", there)
        refused(2, "nothing.cu: there is no such file", "nothing.cu")
        refused(2, "nothing.cu: there is no such file", "--", "nothing.cu")
        assert not os.path.exists(there)


@contextlib.contextmanager
def a_page(place, folder, *flags):
    """`fa-tune serve --page` with these flags: the address that it prints."""
    process = subprocess.Popen([FA_TUNE, "serve", "--socket", os.path.join(folder, "p"), "--page", *flags], env=place.env,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().strip()
        yield url
    finally:
        process.terminate()
        log = process.communicate(timeout=DEADLINE)[1]
    tap.lacks(log, url.partition("#")[2])


def its_page_has_an_address_with_a_token_which_is_never_logged():
    def status_of(url, path, token):
        connection = http.client.HTTPConnection(url[7:].partition("/")[0], timeout=DEADLINE)
        connection.request("GET", path, headers={"Authorization": "Bearer " + token} if token else {})
        return connection.getresponse().status
    with Place(script=NONE) as place, Serve(place) as daemon:
        with a_page(place, daemon.folder) as url:
            assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#[0-9a-f]{64}", url), url
            token = url.partition("#")[2]
            tap.equal([status_of(url, "/", None), status_of(url, "/v1/jobs", None), status_of(url, "/v1/jobs", token), status_of(url, "/v1/jobs", token[:-1])],
                      [200, 401, 200, 401])
        with a_page(place, daemon.folder) as other:  # another token each time
            assert other.partition("#")[2] != token
        with a_page(place, daemon.folder, "--tcp", "0", "--token-file", token_file(place)) as url:
            tap.equal((url.partition("#")[2], status_of(url, "/v1/winners", TOKEN)), (TOKEN, 200))


def the_page_is_the_report_with_no_script_and_no_style_but_its_own_and_stands_in_no_frame():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        data, headers = daemon.get("/", raw=True)[1:]
        for name, value in (("Content-Security-Policy", "frame-ancestors 'none'"), ("X-Content-Type-Options", "nosniff"), ("Referrer-Policy", "no-referrer"),
                            ("Cross-Origin-Opener-Policy", "same-origin"), ("Cross-Origin-Resource-Policy", "same-origin"), ("Cache-Control", "no-store")):
            tap.equal((name, headers.get(name)), (name, value))
        policy, = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', data.decode())
        rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
        tap.equal((rules["default-src"], rules["connect-src"]), ("'none'", "'self'"))
        for kind in ("script-src", "style-src"):
            assert re.fullmatch(r"'sha256-[\w+/]{43}='", rules[kind]), rules
        document = daemon.get("/v1/report")[1]
        tap.equal(len(document["problems"]), 1)
        file = place.run("report").stdout
        told = json.loads(re.search(r'id="document">(.*?)</script>', file, re.DOTALL)[1])
        told["unix_time"] = document["unix_time"] = 0
        tap.equal(document, told)
        tap.has(file, "connect-src 'none'")
        tap.lacks(file, "/v1/jobs")


# ---- the description --------------------------------------------------------------------------
def every_endpoint_of_the_description_was_asked_and_answered_well():
    with Place(script=L4) as place, Serve(place, env={"FA_TUNE_STORE": os.path.join(place.folder, "shared.db")}) as daemon:
        tap.equal(daemon.get("/openapi.json")[1], openapi.DOCUMENT)
        status, entered = daemon.post("/v1/sweeps", {"items": [ask(gpu="A10")], "effort": "predict", "plan": "mine"})
        tap.equal((status, entered["sweep"]["items"]), (202, 1))
        tap.equal([(sweep["plan"], sweep["pending"]) for sweep in daemon.get("/v1/sweeps")[1]["sweeps"]], [("mine", 1)])
    for path, item in openapi.DOCUMENT["paths"].items():
        for method in item:
            if method != "parameters":
                good = [s for m, p, s in openapi.seen if (m, p) == (method, path) and s < 300]
                assert good, "%s %s was never answered well" % (method, path)


tap.main()
