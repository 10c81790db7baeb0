#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's requests: every endpoint, what each answers, and that the description is true."""
import hashlib
import json
import os

import openapi
import tap
from place import Place
from serve import FAST, L4, Serve, TWO, ask, wait_for


def a_kernel_is_tuned_once_and_then_answered_from_memory_with_its_cubin():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        status, first = daemon.post("/v1/kernel", ask())
        tap.equal((status, first["answer"]["origin"], first["answer"]["from_store"]),
                  (200, "measured", False))
        tap.equal(first["answer"]["config"]["tunables"]["BLOCK_M"], 128)
        status, second = daemon.post("/v1/kernel", ask())
        tap.equal((status, second["answer"]["from_store"]), (200, True))
        hits = daemon.metric("cache_hits_total")
        tap.equal(daemon.post("/v1/kernel", ask()), (200, second))
        tap.equal(daemon.metric("cache_hits_total"), hits + 1)
        cubin = first["cubin"]
        for _ in range(2):  # from the store, from memory
            status, data, headers = daemon.get("/v1/cubins/" + cubin["key"], raw=True)
            tap.equal((status, len(data), hashlib.sha256(data).hexdigest()),
                      (200, cubin["size"], cubin["sha256"]))
            tap.equal(headers["ETag"], '"%s"' % cubin["sha256"])
            tap.has(headers["Cache-Control"], "immutable")
        status, data, _ = daemon.get("/v1/cubins/" + cubin["key"], raw=True,
                                     headers={"If-None-Match": headers["ETag"]})
        tap.equal((status, data), (304, b""))
        tap.equal(daemon.metric("tunes_total"), 1)
        # The command line finds what the daemon stored.
        tap.equal(len(place.json("show")["winners"]), 1)


def what_is_cached_alone_is_404_when_nothing_is_stored():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        status, document = daemon.post("/v1/kernel", ask(gpu="L4", effort="cached"))
        tap.equal((status, document["error"]["code"]), (404, "FA_ENOTFOUND"))
        tap.equal(daemon.metric("tunes_total"), 0)
        status, document = daemon.get("/v1/cubins/" + 64 * "0")
        tap.equal(status, 404)
        tap.equal(daemon.get("/v1/cubins/not-a-key")[0], 404)


def a_host_without_a_gpu_compiles_for_any():
    with Place(space=TWO, script="no_device\n") as place, Serve(place) as daemon:
        status, document = daemon.post("/v1/kernel", ask(gpu="A10"))
        tap.equal((status, document["answer"]["origin"], document["answer"]["gpu"]["name"]),
                  (200, "predicted", "A10"))
        status, data, _ = daemon.get("/v1/cubins/" + document["cubin"]["key"], raw=True)
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
        tap.equal([(d["name"], d["ordinal"], d["present"]) for d in devices],
                  [("NVIDIA L4", 0, True), ("NVIDIA A10", 1, True)])
        for asked in ({"uuid": devices[1]["uuid"]}, {"ordinal": 1}, {"gpu": "A10"},
                      {"uuid": "of-no-device", "gpu": "A10"}):
            status, document = daemon.post("/v1/kernel", ask(**asked))
            tap.equal((status, document["answer"]["gpu"]["uuid"], document["answer"]["origin"]),
                      (200, devices[1]["uuid"], "measured"))
        status, document = daemon.post("/v1/kernel", ask(uuid="of-no-device"))
        tap.equal((status, document["error"]["code"]), (422, "FA_ENODEVICE"))
        tap.equal(daemon.post("/v1/kernel", ask(ordinal=2))[0], 400)


def winners_are_listed_newest_first():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        tap.equal(daemon.get("/v1/winners"), (200, {"winners": []}))
        for seq, gpu in ((64, "L4"), (128, "A10"), (256, "L4")):
            tap.equal(daemon.post("/v1/kernel", ask(seq=seq, gpu=gpu))[0], 200)
        winners = daemon.get("/v1/winners")[1]["winners"]
        tap.equal(sorted(w["problem"]["seq_q"] for w in winners), [64, 128, 256])
        tap.equal(len(daemon.get("/v1/winners?limit=1")[1]["winners"]), 1)
        tap.equal(len(daemon.get("/v1/winners?limit=10000")[1]["winners"]), 3)
        for bad, word in (("winners?limit=0", "1 to 10000"), ("winners?limit=-1", "1 to 10000"), ("winners?limit=x", "1 to 10000"),
                          ("winners?limit=10001", "1 to 10000"), ("winners?gpu=L4", "only a limit"), ("winners?limit=1&limit=2", "only a limit"),
                          ("jobs?state=done", "takes nothing"), ("report?gpu=L4", "takes nothing")):
            status, refused = daemon.get("/v1/" + bad)
            tap.equal((bad, status), (bad, 400))
            tap.has(refused["error"]["message"], word)


def bad_requests_are_told_what_is_wrong():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        for body, word in ((b"", "JSON"), (b"{", "JSON"), (b"[]", "ask"), ({}, "problem"),
                           (ask(head_dim=7, gpu="L4"), "head_dim"), (ask(effort="best"), "effort"),
                           (ask(gpu=7), "gpu"), (ask(gpo="L4"), "gpo"), (ask(family=64 * "a"), "family"),
                           (ask(timeout_ms=-1), "timeout_ms"), (b"\xff\xfe", ""),
                           ({"problem": {"head_dim": 64, "batch": 4, "heads_q": 8}}, "seq_q"),
                           (dict(ask(), problem=dict(ask()["problem"], seq=1)), "seq"),
                           (json.dumps(ask()).replace('"seq_q"', '"seq_q":1,"seq_q"').encode(), "seq_q"),
                           (dict(ask(), problem=dict(ask()["problem"], operation="conv")), "conv"),
                           (ask(heads_q="8"), "heads_q"), (dict(ask(), problem=dict(ask()["problem"], attn_bias=True)), "attn_bias is not covered: PyTorch's SDPA"), (ask(ordinal=1.5), "ordinal"),
                           (ask(gpu="L\u009b4"), "control"), (ask(gpu="L\a4"), "control")):
            status, document = daemon.post("/v1/kernel", body)
            tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))
            tap.has(document["error"]["message"], word)
        deep = b'{"problem":' * 1000 + b"1" + b"}" * 1000
        bodies = [deep, b"[" * 16000, b'{"problem":' + b"[" * 5000 + b"]" * 5000 + b"}",
                  os.urandom(4096), bytes(range(256)), b"\0" * 100,
                  b'{"problem":{"head_dim":64,"batch":1,"heads_q":1,"seq_q":128},"gpu":"L4\0no"}',
                  b'{"problem":{"seq_q":1e999}}',
                  b'{"problem":{"seq_q":NaN}}', json.dumps(ask()).encode() + b"\0",
                  b'{"a":1,' * 2000, b'{"problem":{},"problem":{}}', b'"' + b"\\" * 9999,
                  json.dumps(ask(gpu="x" * 5000)).encode(), '{"gpu":"\ud800"}'.encode("utf-8", "replace"),
                  b'{"problem":{"head_dim":64,"batch":1,"heads_q":1,"seq_q":-1}}',
                  b'{"problem":{"head_dim":64,"batch":2147483648,"heads_q":1,"seq_q":1}}']
        for path in ("/v1/kernel", "/v1/sweeps"):
            for body in bodies + [b"{}", {"items": []}, {"items": [{}]}, {"items": [ask()], "effort": "cached"}]:
                status, document = daemon.post(path, body)
                tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))


def paths_and_methods_that_are_not_there():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        status, data, headers = daemon.get("/v1/kernel", raw=True)
        tap.equal((status, headers["Allow"]), (405, "POST"))
        status, data, headers = daemon.request("PUT", "/v1/sweeps", b"", raw=True)
        tap.equal((status, headers["Allow"]), (405, "GET, HEAD, POST"))
        tap.equal(json.loads(data)["error"]["code"], "FA_EINVAL")
        tap.equal(daemon.request("HEAD", "/healthz", raw=True)[:2], (200, b""))
        for path in ("/v1/jobs/" + 32 * "0", "/v1/jobs/..%2f..", "/v1/cubins", "/v1/tunes"):
            tap.equal(daemon.get(path)[0], 404)


def sources_of_clients_are_refused_with_one_sentence():
    with Place(script="no_device\n") as place, Serve(place) as daemon:
        sent = {"name": "axpy", "specification": {"kernel": "axpy"}, "source": "__global__ void axpy() {}"}
        for body in (sent, b"", b"x" * 70000):
            status, refused = daemon.post("/v1/families", body)
            tap.equal((status, refused["error"]["code"]), (404, "FA_ENOTFOUND"))
            tap.equal(refused["error"]["message"], "this service compiles no client's source: name its file where the service is started, "
                      "as in fa-tune serve FILE.cu")
        status, refused = daemon.post("/v1/kernel", {"problem": {"operation": "axpy@abc0", "n": 64}, "gpu": "L4"})
        tap.equal((status, refused["error"]["code"]), (400, "FA_EINVAL"))
        tap.has(refused["error"]["message"], 'operation "axpy@abc0" is not known')


def health_readiness_and_metrics():
    with Place(script=L4) as place, Serve(place) as daemon:
        tap.equal(daemon.get("/healthz", raw=True)[1], b"ok\n")
        tap.equal(daemon.get("/readyz", raw=True)[1], b"ready\n")
        status, data, headers = daemon.get("/metrics", raw=True)
        tap.has(headers["Content-Type"], "text/plain; version=0.0.4")
        names = set()
        for line in data.decode().splitlines():
            if line.startswith("# TYPE "):
                names.add(line.split()[2])
            elif not line.startswith("#"):
                name, value = line.split()
                assert name in names, line
                float(value)
        tap.equal(len(names), 10)
        assert daemon.metric("requests_total") >= 3
        assert daemon.metric("resident_bytes") > 1 << 20


def one_connection_serves_many_requests():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        connection = daemon.connect()
        for _ in range(3):
            tap.equal(daemon.get("/healthz", connection=connection, raw=True)[0], 200)
            tap.equal(daemon.post("/v1/kernel", ask(), connection=connection)[0], 200)
            tap.equal(daemon.post("/v1/kernel", b"{", connection=connection)[0], 400)
        tap.equal(daemon.metric("connections"), 2)  # that one, and the one that asks for this number
        connection.close()


def a_winner_that_another_process_stores_is_given_within_seconds():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        asked = ask(gpu="L4", effort="cached")
        tap.equal(daemon.post("/v1/kernel", asked)[0], 404)
        place.run("--seq", "128", "--batch", "1", "--heads", "1", "--quiet")
        first = daemon.post("/v1/kernel", asked)[1]["answer"]["unix_time"]
        for _ in range(50):
            tap.equal(daemon.post("/v1/kernel", asked)[0], 200)  # it is in memory
        place.use_fake_driver(L4 + "time BLOCK_M=64 20\ntime BLOCK_M=128 90\n")
        place.run("--seq", "128", "--batch", "1", "--heads", "1", "--quiet", "--effort", "patient")

        def is_new():
            answer = daemon.post("/v1/kernel", asked)[1]["answer"]
            return answer["config"]["tunables"]["BLOCK_M"] == 64 and answer["unix_time"] >= first
        wait_for(is_new, "the other process's winner")


def a_winner_that_another_process_forgets_is_not_given_for_long():
    with Place(space=TWO, script=L4 + FAST) as place, Serve(place) as daemon:
        tap.equal(daemon.post("/v1/kernel", ask())[0], 200)
        cached = ask(gpu="L4", effort="cached")
        for _ in range(50):
            tap.equal(daemon.post("/v1/kernel", cached)[0], 200)  # it is in memory
        place.run("rm", "--gpu", "L4")
        wait_for(lambda: daemon.post("/v1/kernel", cached)[0] == 404, "that it is gone")
        tap.equal(daemon.get("/v1/winners")[1]["winners"], [])
        status, again = daemon.post("/v1/kernel", ask())
        tap.equal((status, again["answer"]["from_store"]), (200, False))


def every_endpoint_of_the_description_was_asked_and_answered_well():
    with Place(script=L4) as place, Serve(place, env={"FA_TUNE_STORE": os.path.join(place.folder, "shared.db")}) as daemon:
        tap.equal(daemon.get("/openapi.json")[1], openapi.DOCUMENT)
        for path in ("/", "/v1/report"):
            tap.equal(daemon.get(path, raw=True)[0], 200)
        status, entered = daemon.post("/v1/sweeps", {"items": [ask(gpu="A10")], "effort": "predict", "plan": "mine"})
        tap.equal((status, entered["sweep"]["items"]), (202, 1))
        tap.equal([(sweep["plan"], sweep["pending"]) for sweep in daemon.get("/v1/sweeps")[1]["sweeps"]], [("mine", 1)])
    for path, item in openapi.DOCUMENT["paths"].items():
        for method in item:
            if method != "parameters":
                good = [s for m, p, s in openapi.seen if (m, p) == (method, path) and s < 300]
                assert good, "%s %s was never answered well" % (method, path)


def a_mismatch_with_the_description_is_found():
    schema = {"$ref": "#/components/schemas/Error"}
    openapi.check({"error": {"code": "FA_EINVAL", "message": "x"}}, schema)
    for bad in ({}, {"error": {"code": "EINVAL", "message": "x"}}, {"error": "x"},
                {"error": {"code": "FA_EINVAL", "message": ""}},
                {"error": {"code": "FA_EINVAL", "message": "x"}, "more": 1}):
        try:
            openapi.check(bad, schema)
        except openapi.Mismatch:
            continue
        raise AssertionError("it passed: %r" % bad)


tap.main([
    a_kernel_is_tuned_once_and_then_answered_from_memory_with_its_cubin,
    what_is_cached_alone_is_404_when_nothing_is_stored,
    a_host_without_a_gpu_compiles_for_any,
    devices_are_told_and_asked_for_by_uuid_ordinal_and_name,
    winners_are_listed_newest_first,
    sources_of_clients_are_refused_with_one_sentence,
    bad_requests_are_told_what_is_wrong,
    paths_and_methods_that_are_not_there,
    health_readiness_and_metrics,
    one_connection_serves_many_requests,
    a_winner_that_another_process_stores_is_given_within_seconds,
    a_winner_that_another_process_forgets_is_not_given_for_long,
    every_endpoint_of_the_description_was_asked_and_answered_well,
    a_mismatch_with_the_description_is_found,
])
