#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What one client can take: bodies, connections, time; and who may ask over TCP."""
import contextlib
import http.client
import json
import os
import re
import socket
import subprocess

import tap
from place import DEADLINE, Place
from serve import FA_TUNE_SERVE, HANGS, LONG, Serve, a_place, ask, wait_for

NONE = "no_device\n"
TOKEN = "0123456789abcdef-of-the-test"


def a_body_that_is_too_large_is_refused_and_not_kept():
    with Place(script=NONE) as place, Serve(place) as daemon:
        for body, status in ((b"x" * 16384, 400), (b"x" * 16385, 413), (b"x" * 1000000, 413)):
            tap.equal((len(body), daemon.post("/v1/kernel", body)[0]), (len(body), status))
        before = daemon.memory_kb()
        with daemon.raw_socket() as client:  # chunks without an end
            client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                for _ in range(1000):
                    client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        assert daemon.memory_kb() - before < 20 << 10
        too_many = {"items": [ask(gpu="L4")] * 10001}
        status, refused = daemon.post("/v1/sweeps", too_many)
        tap.equal(status, 400)
        tap.has(refused["error"]["message"], "10000")


def silent_connections_end_and_those_that_wait_for_a_tune_do_not():
    with a_place(HANGS) as place, Serve(place, "--idle-timeout", "1", *LONG) as daemon:
        waiting = daemon.begins(ask())
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(daemon.raw_socket()) for _ in range(3)]
            clients[1].sendall(b"GET /hea")
            clients[2].sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            for client in clients:
                while client.recv(4096):  # a body that does not come may be answered with 408
                    pass
        tap.equal(len(daemon.jobs()), 1)
        waiting.close()
        wait_for(lambda: daemon.jobs() == [], "its end")


def connections_are_bounded_and_tcp_takes_none_of_the_unix_socket():
    with Place(script=NONE) as place, a_token(place) as file, \
            Serve(place, "--max-connections", "20", "--tcp", "0", "--token-file", file) as daemon:
        with contextlib.ExitStack() as stack:
            for _ in range(40):
                stack.enter_context(socket.create_connection(("127.0.0.1", tcp_port(daemon)), DEADLINE))
            tap.equal(daemon.get("/healthz", raw=True)[0], 200)
        wait_for(lambda: daemon.metric("connections") == 1, "their end")


@contextlib.contextmanager
def a_token(place):
    path = os.path.join(place.folder, "token")
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w", encoding="ascii") as file:
        file.write(TOKEN + "\n")
    yield path


def tcp_port(daemon):
    return int(re.search(r"on=tcp:127\.0\.0\.1:(\d+)", daemon.log()).group(1))


def tcp_needs_the_token_and_the_unix_socket_does_not():
    with Place(script=NONE) as place, a_token(place) as file, Serve(place, "--tcp", "0", "--token-file", file) as daemon:
        def over_tcp(method, path, body=None, **headers):
            connection = http.client.HTTPConnection("127.0.0.1", tcp_port(daemon), timeout=DEADLINE)
            return daemon.request(method, path, body, headers, connection, raw=True)[0]
        good = {"Authorization": "Bearer " + TOKEN}
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            tap.equal(over_tcp("GET", path), 200)
        for headers in ({}, {"Authorization": "Bearer " + TOKEN[:-1]}, {"Authorization": "Bearer " + TOKEN + "x"},
                        {"Authorization": "Bearer"}, {"Authorization": "Basic " + TOKEN}, {"Authorization": TOKEN},
                        {"Cookie": "token=" + TOKEN}):
            for method, path in (("POST", "/v1/kernel"), ("GET", "/v1/jobs"), ("GET", "/v1/report"), ("GET", "/metrics"), ("GET", "/nothing")):
                tap.equal((path, over_tcp(method, path, b"" if method == "POST" else None, **headers)), (path, 401))
        tap.equal(over_tcp("GET", "/v1/jobs", **good), 200)
        tap.equal(over_tcp("GET", "/v1/jobs?token=" + TOKEN), 401)
        tap.equal(over_tcp("POST", "/v1/kernel", json.dumps(ask(gpu="L4", effort="cached")), **good), 404)
        tap.equal(daemon.get("/v1/jobs")[0], 200)
        # Without the token no body is waited for.
        with socket.create_connection(("127.0.0.1", tcp_port(daemon)), DEADLINE) as client:
            client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
            tap.has(client.recv(4096), b" 401 ")
        tap.lacks(daemon.log(), TOKEN)


def a_token_that_is_missing_short_or_open_to_others_is_refused_at_the_start():
    with Place(script=NONE) as place:
        path = os.path.join(place.folder, "token")
        for text, mode, word in ((None, 0, "--token-file"), (TOKEN, 0o644, "chmod 600"), ("short", 0o600, "16 to 512"),
                                 ("x" * 600, 0o600, "16 to 512"), ("with a space in it", 0o600, "without spaces"), ("", 0o600, "16 to 512"),
                                 ("with a NUL\0in the text", 0o600, "without spaces")):
            flags = ["--tcp", "0"]
            if text is not None:
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                os.chmod(path, mode)
                flags += ["--token-file", path]
            done = subprocess.run([FA_TUNE_SERVE, "--socket", "", *flags], env=place.env, check=False, capture_output=True,
                                  text=True, timeout=DEADLINE)
            tap.equal((text, done.returncode), (text, 2))
            tap.has(done.stderr, word)
        for where in ("x", "a:b", "1:99999", ":1", "[]:1", "1:"):
            done = subprocess.run([FA_TUNE_SERVE, "--tcp", where], env=place.env, check=False, capture_output=True, text=True,
                                  timeout=DEADLINE)
            tap.equal((where, done.returncode), (where, 2))
            tap.has(done.stderr, "use HOST:PORT")


def a_client_that_closes_its_sending_side_is_answered():
    with Place(script=NONE) as place, Serve(place) as daemon, daemon.raw_socket() as client:
        body = json.dumps(ask(gpu="A10", effort="predict")).encode()
        client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        client.shutdown(socket.SHUT_WR)
        tap.has(client.recv(4096), b" 200 ")


tap.main([
    a_body_that_is_too_large_is_refused_and_not_kept,
    silent_connections_end_and_those_that_wait_for_a_tune_do_not,
    connections_are_bounded_and_tcp_takes_none_of_the_unix_socket,
    tcp_needs_the_token_and_the_unix_socket_does_not,
    a_token_that_is_missing_short_or_open_to_others_is_refused_at_the_start,
    a_client_that_closes_its_sending_side_is_answered,
])
