#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the daemon lets nobody do: send too much or too slowly, ask without the token, take every
connection."""
import contextlib
import http.client
import json
import os
import re
import socket
import time

import tap
from place import DEADLINE, Place
from serve import FAST, L4, Serve, TWO, a_place, ask, wait_for

NONE = "no_device\n"
TOKEN = "a-token-of-thirty-two-bytes-0123"


def is_closed(client):
    """Reads until the daemon closes; what came."""
    came = b""
    try:
        while True:
            block = client.recv(65536)
            if not block:
                return came
            came += block
    except ConnectionResetError:
        return came


def still_well(daemon):
    tap.equal(daemon.get("/healthz", raw=True)[0], 200)
    tap.equal(daemon.post("/v1/kernel", ask(gpu="L4", effort="cached"))[0], 404)


def a_body_that_is_too_large_is_refused_and_not_kept():
    with Place(script=NONE) as place, Serve(place, "--max-body", "4096") as daemon:
        connection = daemon.connect()
        status, document = daemon.post("/v1/kernel", b"x" * 4096, connection=connection)
        tap.equal(status, 400)
        status, document = daemon.post("/v1/kernel", b"x" * 4097, connection=connection)
        tap.equal((status, document["error"]["code"]), (413, "FA_EINVAL"))
        tap.equal(daemon.get("/healthz", connection=connection, raw=True)[0], 200)
        tap.equal(daemon.request("GET", "/v1/jobs", b"body", connection=connection)[0], 413)
        # One that is announced as huge is not waited for.
        with daemon.raw_socket() as client:
            client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n")
            tap.has(is_closed(client), b" 413 ")
        # One that is not announced is cut off.
        with daemon.raw_socket() as client:
            client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            try:
                for _ in range(64):
                    client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            except (BrokenPipeError, ConnectionResetError):
                pass
            is_closed(client)
        still_well(daemon)


def bodies_in_memory_are_bounded_all_together():
    body = json.dumps({"items": [ask(gpu="L4")]}).encode()
    body += b" " * ((2 << 20) - len(body))
    head = b"POST /v1/sweeps HTTP/1.1\r\nHost: x\r\n"
    length = b"Content-Length: %d\r\n\r\n" % len(body)
    with Place(script=NONE) as place, \
            Serve(place, "--max-bodies", "8", "--max-sweep-body", str(2 << 20)) as daemon:
        before = daemon.memory_kb()
        with contextlib.ExitStack() as stack:
            refused = 0
            for _ in range(20):  # all but the last byte
                client = stack.enter_context(daemon.raw_socket())
                try:
                    client.sendall(head + length + body[:-1])
                except (BrokenPipeError, ConnectionResetError):
                    refused += 1
            wait_for(lambda: daemon.metric("body_bytes") >= 6 << 20, "as many as there may be")
            assert daemon.metric("body_bytes") <= 8 << 20
            assert daemon.memory_kb() - before < 24 << 10, (before, daemon.memory_kb())
            # The next client is told to come back, whether it says how much follows or not.
            for how, rest in ((length, b""), (b"Transfer-Encoding: chunked\r\n\r\n",
                                              b"%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n")):
                with daemon.raw_socket() as client:
                    client.sendall(head + how + rest)
                    client.settimeout(DEADLINE)
                    came = client.recv(4096)
                    tap.has(came, b" 503 ")
                    tap.has(came, b"Retry-After")
            still_well(daemon)
        wait_for(lambda: daemon.metric("body_bytes") == 0, "room")
        tap.equal(daemon.post("/v1/sweeps", body)[0], 202)


def a_large_sweep_does_not_hold_others_up_and_too_many_items_are_refused():
    with Place(script=NONE) as place, Serve(place) as daemon:
        items = [ask(seq=i + 1, gpu="L4") for i in range(10001)]
        status, document = daemon.post("/v1/sweeps", {"items": items})
        tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))
        still_well(daemon)


def slow_heads_bodies_and_readers_are_cut_off_in_total_time():
    with Place(script=NONE) as place, \
            Serve(place, "--head-timeout", "1", "--body-timeout", "1", "--idle-timeout", "1",
                  "--send-timeout", "1") as daemon:
        head = b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n"
        for before in (b"", head, head + b"\r\n"):
            with daemon.raw_socket() as client:
                client.sendall(before)
                # A byte now and then, for ever: inactivity alone never shows.
                end = time.monotonic() + DEADLINE
                client.settimeout(0.05)
                gone = False
                while not gone and time.monotonic() < end:
                    try:
                        client.sendall(b"x")
                        gone = client.recv(4096) == b""
                    except TimeoutError:
                        continue
                    except (BrokenPipeError, ConnectionResetError):
                        gone = True
                assert gone, "it may go on for ever after %r" % before
        assert daemon.metric("connections_timed_out_total") >= 3
        # A kept connection that asks nothing.
        with daemon.raw_socket() as client:
            client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            tap.has(is_closed(client), b" 200 ")
        # One that never reads what it asks for.
        with daemon.raw_socket() as client:
            cut = daemon.metric("connections_timed_out_total")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(0.2)
            try:
                for _ in range(500):
                    client.sendall(b"GET /v1/gpus HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
            except (TimeoutError, BrokenPipeError, ConnectionResetError):
                pass
            wait_for(lambda: daemon.metric("connections_timed_out_total") > cut, "the cut")
        still_well(daemon)


def idle_connections_make_room_and_busy_ones_are_told_to_come_back():
    with Place(script=NONE) as place, Serve(place, "--max-connections", "20") as daemon:
        idle = [daemon.raw_socket() for _ in range(60)]
        still_well(daemon)
        assert daemon.metric("connections_evicted_total") >= 40
        wait_for(lambda: daemon.metric("connections") <= 20, "the last one that makes room")  # the question is a connection, too
        for client in idle:
            client.close()
    hang = "device name=NVIDIA_L4 sm=89 sms=58\nfault family hang\n"
    with Place(script=hang) as place, \
            Serve(place, "--max-connections", "5", "--trial-timeout", "300") as daemon:
        body = json.dumps(ask()).encode()
        post = b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        waiting = []

        def refused():
            """Or one more that waits for the tune."""
            client = daemon.raw_socket()
            waiting.append(client)
            try:
                client.sendall(post + body)
                client.settimeout(0.2)
                return b" 503 " in client.recv(4096)
            except BrokenPipeError:  # it was told before it asked
                return b" 503 " in client.recv(4096)
            except TimeoutError:
                return False
        wait_for(refused, "a refusal")
        for client in waiting:
            client.close()  # whoever hangs up while it waits is noticed

        def has_room():
            try:
                return daemon.metric("connections") == 1
            except (OSError, http.client.HTTPException, AssertionError):  # it is told to come back
                return False
        wait_for(has_room, "room")
        for job in daemon.get("/v1/jobs")[1]["jobs"]:
            daemon.delete("/v1/jobs/" + job["id"])


def few_descriptors_leave_room_for_those_who_ask_and_for_workers():
    with Place(space=TWO, script=NONE) as place, \
            Serve(place, prefix=("prlimit", "--nofile=64:64")) as daemon:
        tap.has(daemon.log(), "fewer connections than asked for")
        idle = [daemon.raw_socket() for _ in range(200)]
        still_well(daemon)
        tap.equal(daemon.post("/v1/kernel", ask(gpu="L4"))[0], 200)
        for client in idle:
            client.close()


def without_descriptors_to_start_with_it_says_so_and_is_not_aborted():
    with Place(script=NONE) as place:
        daemon = Serve(place, prefix=("prlimit", "--nofile=12:12"), wait=False)
        daemon.start()
        tap.equal(daemon.process.wait(DEADLINE), 1)
        tap.has(daemon.log(), "ulimit -n")
        os.rmdir(daemon.folder)


def tcp_is_asked_for_and_needs_the_token():
    with Place(script=NONE) as place:
        with Serve(place, *with_a_token(place)) as daemon:
            port = tcp_port(daemon)

            def over_tcp(path, value=None, body=None):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
                headers = {} if value is None else {"Authorization": value}
                return daemon.request("POST" if body else "GET", path, body, headers=headers,
                                      connection=connection, raw=True)[0]
            for wrong in (None, "", "Bearer", "Bearer ", "Bearer " + TOKEN[:-1], "Bearer " + TOKEN + "x",
                          "Bearer " + TOKEN.upper(), "Basic " + TOKEN, TOKEN, "Bearer " + "x" * 4000):
                for path, body in (("/v1/jobs", None), ("/metrics", None), ("/nothing", None),
                                   ("/v1/kernel", ask(gpu="L4", effort="cached"))):
                    tap.equal(over_tcp(path, wrong, body), 401)
            tap.equal(over_tcp("/healthz"), 200)
            tap.equal(over_tcp("/readyz"), 200)
            tap.equal(over_tcp("/openapi.json"), 200)
            for scheme in ("Bearer ", "bearer ", "BEARER  "):
                tap.equal(over_tcp("/v1/jobs", scheme + TOKEN), 200)
            for tokens in ((TOKEN, "x" * len(TOKEN)), ("x" * len(TOKEN), TOKEN), (TOKEN, TOKEN)):
                with socket.create_connection(("127.0.0.1", port), DEADLINE) as client:
                    client.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: x\r\n" + b"".join(
                        b"Authorization: Bearer %s\r\n" % token.encode() for token in tokens) + b"\r\n")
                    tap.has(client.recv(65536), b"HTTP/1.1 400 ")  # whoever stands before it may have read the other
            tap.equal(over_tcp("/v1/kernel", "Bearer " + TOKEN, ask(gpu="L4", effort="cached")), 404)
            tap.equal(over_tcp("/nothing", "Bearer " + TOKEN), 404)
            tap.equal(daemon.metric("unauthorized_total"), 40)
            tap.lacks(daemon.log(), TOKEN)


def with_a_token(place):
    token = os.path.join(place.folder, "token")
    with open(os.open(token, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(TOKEN + "\n")
    return "--tcp", "0", "--token-file", token


def tcp_port(daemon):
    return int(re.search(r"on=tcp:127\.0\.0\.1:(\d+)", daemon.log()).group(1))


def tcp_without_a_token_locks_nobody_out():
    """A hundred at a time that never end what they began, in each way that the open paths leave."""
    begun = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    pipelined = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 400
    with Place(script=NONE) as place, \
            Serve(place, "--max-connections", "40", *with_a_token(place)) as daemon:
        port = tcp_port(daemon)
        for said in (b"", begun, begun + b"Content-Length: 100\r\n\r\n",
                     begun + b"Transfer-Encoding: chunked\r\n\r\n", pipelined):
            crowd = []
            for _ in range(100):
                client = socket.create_connection(("127.0.0.1", port), DEADLINE)
                client.setblocking(False)
                try:
                    client.send(said)
                except BlockingIOError:
                    pass
                crowd.append(client)
            wait_for(lambda: daemon.metric("connections") <= 12, "the end of most of the crowd")
            still_well(daemon)  # on the Unix socket
            far = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE)
            tap.equal(daemon.get("/v1/jobs", connection=far,
                                 headers={"Authorization": "Bearer " + TOKEN})[0], 200)
            far.close()
            for client in crowd:
                client.close()


def tcp_with_the_token_leaves_room_on_the_unix_socket():
    body = json.dumps(ask()).encode()
    begun = (b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + TOKEN.encode() +
             b"\r\nContent-Length: %d\r\n\r\n{" % len(body))
    with Place(script=NONE) as place, \
            Serve(place, "--max-connections", "16", *with_a_token(place)) as daemon:
        crowd = []
        for _ in range(40):
            client = socket.create_connection(("127.0.0.1", tcp_port(daemon)), DEADLINE)
            try:
                client.sendall(begun)
            except (BrokenPipeError, ConnectionResetError):
                pass
            crowd.append(client)
            still_well(daemon)
        assert daemon.metric("connections_refused_total") > 0
        for client in crowd:
            client.close()


def a_client_that_closes_its_sending_side_is_answered_and_one_that_leaves_is_cut_off():
    body = json.dumps(ask()).encode()
    request = (b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + TOKEN.encode() +
               b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with a_place(L4 + FAST) as place, Serve(place, *with_a_token(place), slow_s=2) as daemon:
        far = ("127.0.0.1", tcp_port(daemon))
        with daemon.raw_socket() as near, socket.create_connection(far, DEADLINE) as remote:
            for client in (near, remote):
                client.sendall(request)
                client.shutdown(socket.SHUT_WR)
            with daemon.raw_socket() as leaves:
                leaves.sendall(request)
                wait_for(lambda: daemon.metric("connections") == 4, "three who wait")
            wait_for(lambda: daemon.metric("connections") == 3, "the end of the client that has left")
            for client in (near, remote):
                tap.equal(is_closed(client)[:13], b"HTTP/1.1 200 ")


@contextlib.contextmanager
def crowd_of_another_user(port, size):
    """Has connected, and asks nothing, until the end."""
    told, tell = os.pipe()
    end, until = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(until)
        try:
            os.setgroups([])
            os.setuid(65534)
            held = [socket.create_connection(("127.0.0.1", port), DEADLINE) for _ in range(size)]
            os.write(tell, b"%d" % len(held))
            os.read(end, 1)
        finally:
            os._exit(0)
    os.close(tell)
    os.close(end)
    try:
        tap.equal(os.read(told, 16), b"%d" % size)
        yield
    finally:
        os.close(until)
        os.close(told)
        os.waitpid(child, 0)


def a_crowd_at_the_pages_port_pushes_out_its_own_and_not_who_signs_in():
    if os.geteuid() != 0:
        raise tap.Skip("cannot become another user here")
    with Place(script=NONE) as place, Serve(place, "--max-connections", "40") as daemon:
        url = daemon.post("/v1/links", b"")[1]["url"]
        port, secret = re.fullmatch(r"http://127\.0\.0\.1:(\d+)/#(\w+)", url).groups()
        browser = http.client.HTTPConnection("127.0.0.1", int(port), timeout=DEADLINE)
        browser.connect()
        sock = browser.sock
        for method, path in (("GET", "/"), ("POST", "/v1/session"), ("GET", "/v1/jobs")):
            with crowd_of_another_user(int(port), 100):
                wait_for(lambda: daemon.metric("connections") <= 12, "the end of most of the crowd")
                status, answer, _ = daemon.request(method, path, headers={"Authorization": "Bearer " + secret},
                                                   connection=browser, raw=True)
                tap.equal((path, status), (path, 200))
                if path == "/v1/session":
                    secret = json.loads(answer)["session"]
                still_well(daemon)  # on the Unix socket
        assert browser.sock is sock, "it had to connect again"
        browser.close()


def a_body_where_none_belongs_is_refused_before_it_comes():
    with Place(script=NONE) as place, Serve(place) as daemon:
        for path in (b"/healthz", b"/readyz", b"/openapi.json"):
            for how in (b"Content-Length: 100", b"Transfer-Encoding: chunked"):
                with daemon.raw_socket() as client:
                    client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + how + b"\r\n\r\n")
                    tap.has(is_closed(client), b" 413 ")
        still_well(daemon)


def a_token_that_is_missing_short_or_open_to_others_is_refused_at_the_start():
    with Place(script=NONE) as place:
        token = os.path.join(place.folder, "token")
        for text, mode, flags, word in (
                (TOKEN, 0o600, ["--tcp", "0"], "--token-file"),
                (TOKEN, 0o600, ["--tcp", "0.0.0.0:99999"], "at most 65535"),
                (TOKEN, 0o644, ["--tcp", "0", "--token-file", token], "chmod 600"),
                (TOKEN, 0o600, ["--tcp", "0", "--token-file", "none"], "--token-file none: there is no such file"),
                (TOKEN[:16] + " " + TOKEN[16:], 0o600, ["--tcp", "0", "--token-file", token],
                 "cannot send"),
                (TOKEN + "\0" + TOKEN, 0o600, ["--tcp", "0", "--token-file", token], "cannot send"),
                ("short", 0o600, ["--tcp", "0", "--token-file", token], "bytes"),
                (TOKEN, 0o600, ["--tcp", "host:port", "--token-file", token], "HOST:PORT"),
                (TOKEN, 0o600, ["--max-jobs", "x"], '--max-jobs "x": use a whole number from 1 to'),
                (TOKEN, 0o600, ["--log-format", "xml"], '--log-format "xml" is not known: use logfmt or json'),
                (TOKEN, 0o600, ["--max-jobs"], "needs a value"),
                (TOKEN, 0o600, ["--sockets", "x"], "no option --sockets")):
            with open(token, "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(token, mode)
            daemon = Serve(place, *flags, wait=False)
            with daemon:
                assert daemon.process.wait(DEADLINE) in (1, 2)
                tap.has(daemon.log(), word)
                daemon.process = None


tap.main([
    a_body_that_is_too_large_is_refused_and_not_kept,
    bodies_in_memory_are_bounded_all_together,
    a_large_sweep_does_not_hold_others_up_and_too_many_items_are_refused,
    slow_heads_bodies_and_readers_are_cut_off_in_total_time,
    idle_connections_make_room_and_busy_ones_are_told_to_come_back,
    few_descriptors_leave_room_for_those_who_ask_and_for_workers,
    without_descriptors_to_start_with_it_says_so_and_is_not_aborted,
    tcp_is_asked_for_and_needs_the_token,
    tcp_without_a_token_locks_nobody_out,
    tcp_with_the_token_leaves_room_on_the_unix_socket,
    a_client_that_closes_its_sending_side_is_answered_and_one_that_leaves_is_cut_off,
    a_crowd_at_the_pages_port_pushes_out_its_own_and_not_who_signs_in,
    a_body_where_none_belongs_is_refused_before_it_comes,
    a_token_that_is_missing_short_or_open_to_others_is_refused_at_the_start,
])
