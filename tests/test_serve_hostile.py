#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that lie, leave or pile up. One daemon meets them all; after each it answers others and holds no more descriptors than
before, and crowds that come again and again cost no more memory."""
import contextlib
import json
import os
import resource
import socket

import tap
from place import Place
from serve import Serve, ask, wait_for

HANG = "device name=NVIDIA_L4 sm=89 sms=58\nfault family hang\n"
HEAD = b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\n"
ASK = json.dumps(ask(gpu="L4", effort="cached")).encode()
IDLE = 2000
LEAK_KB = 1 << 10  # of a crowd of 2,400; the least that a connection has is 2.6 KB
ROUNDS = 24  # until the allocator has found places for all of them
daemon = None


def descriptors():
    return len(os.listdir("/proc/%d/fd" % daemon.process.pid))


def memory_kb():
    """None with a sanitizer, which keeps what was freed for a while."""
    text = tap.read("/proc/%d/maps" % daemon.process.pid)
    return None if "libasan" in text or "libtsan" in text else daemon.memory_kb()


def well():
    """Others are answered, nothing is left, and no request was taken for two."""
    tap.equal(daemon.get("/healthz", raw=True)[1], b"ok\n")
    tap.equal(daemon.post("/v1/kernel", ASK)[0], 404)
    wait_for(lambda: daemon.metric("connections") == 1, "the end of every other connection")
    wait_for(lambda: descriptors() <= daemon.descriptors, "the descriptors of before")
    tap.equal(daemon.process.poll(), None)


def said_back(text, end=True):
    """Everything that the daemon answers to this, until it closes."""
    came = b""
    with daemon.raw_socket() as client:
        try:
            client.sendall(text)
            if end:
                client.shutdown(socket.SHUT_WR)
            while True:
                block = client.recv(65536)
                if not block:
                    return came
                came += block
        except (BrokenPipeError, ConnectionResetError):
            return came


def statuses(came):
    """Of every answer in it; bodies hold none of our marks."""
    return [int(part[:3]) for part in came.split(b"HTTP/1.1 ")[1:]]


def a_request_is_never_taken_for_two():
    inner = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"  # would be answered with 404
    length = b"%d" % len(inner)
    for head in (b"Host: x\r\nContent-Length: " + length + b"\r\n",
                 b"hOST: y\r\n",
                 b"Authorization: Bearer a\r\nauthorization: Bearer b\r\n",
                 b"Content-Length: 0\r\nContent-Length: " + length + b"\r\n",
                 b"Content-Length: " + length + b"\r\nContent-Length: 0\r\n",
                 b"Content-Length: 0, " + length + b"\r\n",
                 b"Content-Length: +" + length + b"\r\n",
                 b"Content-Length: 0x10\r\n",
                 b"Content-Length : " + length + b"\r\n",
                 b"Transfer-Encoding: identity, chunked\r\n",
                 b"Transfer-Encoding: chunked, chunked\r\n",
                 b"Transfer-Encoding:\x0bchunked\r\n",
                 b"Transfer-Encoding: xchunked\r\n",
                 b"Content-Length: " + length + b"\r\nTransfer-Encoding: chunked\r\n"):
        for body in (inner, b"0\r\n\r\n" + inner):
            came = said_back(HEAD + head + b"\r\n" + body)
            # One answer, then the end: what follows a head that two readers may read in two ways is
            # not looked at.
            assert len(statuses(came)) <= 1 or 404 not in statuses(came)[1:], (head, came)
            tap.lacks(came, b"HTTP/1.1 2")
    well()


def bytes_that_http_forbids_are_refused():
    """libmicrohttpd takes them, where a proxy before it may read another request."""
    end = b"\r\n\r\n"
    for head in (b"GET /v1/jobs\0/../../x HTTP/1.1\r\nHost: a", b"GET /v1/winners?limit=3\0x HTTP/1.1\r\nHost: a",
                 b"GE\0T /v1/jobs HTTP/1.1\r\nHost: a", b"GET /v1/jobs HTTP/1.1\0\r\nHost: a", b"GET /v1/jo\rbs HTTP/1.1\r\nHost: a",
                 b"GET /v1/jobs\x01 HTTP/1.1\r\nHost: a", b"GET\t/v1/jobs HTTP/1.1\r\nHost: a", b"GET  /v1/jobs HTTP/1.1\r\nHost: a",
                 b"GET /v1/jobs HTTP/1.1\nHost: a", b"GET /v1/jobs HTTP/1.1\r\nHost: a\nX: y", b"GET /v1/jobs HTTP/1.1\r\nHost: a\rX: y",
                 b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: b\r\n c", b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: b\r\n\tc\r\nY: z",
                 b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: b\0c", b"GET /v1/jobs HTTP/1.1\r\nX: b\0c\r\nHost: a",
                 b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX\0: b", b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: \x01",
                 b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX: b\rc", b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\nX : b",
                 b"GET /v1/jobs HTTP/1.1\r\nHost : a", b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\n: b", b"GET /v1/jobs HTTP/1.1"):
        came = said_back(head + end)
        tap.equal((head, statuses(came)[:1]), (head, [400]))
    for head in (b"GET /v1/jobs HTTP/1.1\nHost: a\n\n", b"GET /v1/jobs HTTP/1.1\r\nHost: a\r\n\n", b"GET /v1/jobs HTTP/1.1\r\nHost: a\n\r\n"):
        tap.equal((head, statuses(said_back(head))[:1]), (head, [400]))
    # What it allows is taken.
    for head in (b"GET /v1/jobs HTTP/1.1\r\nHost:a", b"GET /v1/%6aobs HTTP/1.1\r\nHost: \t a  \r\nX:\r\nY: ", b"GET /v1/jobs HTTP/1.0",
                 b"\r\nGET /v1/winners HTTP/1.1\r\nHost: a\r\nCookie: a=b; c=d"):
        tap.equal((head, statuses(said_back(head + end))), (head, [200]))
    tap.equal(statuses(said_back(b"GET /v1/jobs%00x HTTP/1.1\r\nHost: a" + end)), [404])
    for head, status in ((b"Content-Length: -1\r\n", 400), (b"Content-Length: 5x\r\n", 400),
                         (b"Content-Length: 99999999999999999999999\r\n", 413), (b"Cookie: " + b"a=b;" * 6000 + b"\r\n", 431)):
        came = said_back(HEAD + head + b"\r\n" + ASK)
        tap.equal((head[:30], statuses(came)[:1]), (head[:30], [status]))
    well()


def chunks_that_lie_are_cut_off():
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
    for body in (b"ffffffffffffffffffff\r\n", b"-1\r\n\r\n", b"3\r\nabcdef\r\n0\r\n\r\n",
                 b"zz\r\n",
                 b"1\r\nx\r\n" * 20000 + b"0\r\n\r\n", b"0\r\n" + b"T: x\r\n" * 50000 + b"\r\n"):
        tap.lacks(said_back(head + body), b"HTTP/1.1 2")
    # An honest one is read.
    came = said_back(head + b"%x\r\n" % len(ASK) + ASK + b"\r\n0\r\n\r\n")
    tap.equal(statuses(came), [404])
    well()


def a_connection_that_cannot_go_on_holds_nobody_up_and_ends():
    """libmicrohttpd goes round and round with a chunk's head that its buffer does not hold."""
    with Serve(daemon.place, "--idle-timeout", "2") as other:
        for body in (b"5;" + b"x" * 100000, b"5\r\nabc"):
            with other.raw_socket() as client:
                client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + body)
                client.shutdown(socket.SHUT_WR)
                for _ in range(100):
                    tap.equal(other.get("/healthz", raw=True)[1], b"ok\n")
                with contextlib.suppress(ConnectionResetError):
                    tap.equal(client.recv(100), b"")
        wait_for(lambda: other.metric("connections") == 1, "their end")


def paths_and_methods_lead_nowhere_but_to_what_there_is():
    for path in (b"/../../etc/passwd", b"/v1/cubins/../../healthz", b"/v1/cubins/%2e%2e%2f%2e%2e", b"/v1", b"/v1/kernel/", b"//v1/kernel",
                 b"/v1/kernel%00", b"/v1/cubins/" + b"0" * 64 + b"%00.db", b"/v1/cubins/" + b"G" * 64, b"/v1/cubins/" + b"A" * 64,
                 b"/v1/cubins/" + b"0" * 63, b"/v1/cubins/" + b"0" * 64, b"/v1/cubins/" + b"0" * 5000, b"/v1/cubins/" + b"0" * 64 + b"/",
                 b"/v1/cubins/", b"//healthz", b"/healthz/", b"/healthz%00", b"/v1/jobs/" + b"a" * 32, b"/v1/jobs/../winners", b"/v1/jobs/%zz",
                 b"/%c0%ae%c0%ae/", b"http://elsewhere/healthz/x", b"/" + b"%41" * 3000, b"*", b"/v1/kernel", b"/v1/winners?limit=3"):
        came = said_back(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert all(400 <= status < 500 for status in statuses(came)), (path, came[:200])
        tap.lacks(came, b"root:")
    for method in (b"PUT", b"PATCH", b"OPTIONS", b"TRACE", b"CONNECT", b"DELETE", b"get", b"X" * 200):
        came = said_back(method + b" /v1/kernel HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert all(status in (400, 404, 501) for status in statuses(came)), (method, came)
    well()


# ---- what one client can take -------------------------------------------------------------------
def a_body_that_is_too_large_is_refused_and_not_kept():
    for body, status in ((b"x" * 16384, 400), (b"x" * 16385, 413), (b"x" * 1000000, 413)):
        tap.equal((len(body), daemon.post("/v1/kernel", body)[0]), (len(body), status))
    before = daemon.memory_kb()
    with daemon.raw_socket() as client, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # chunks without an end
        client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        for _ in range(1000):
            client.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
    assert daemon.memory_kb() - before < 20 << 10
    status, refused = daemon.post("/v1/sweeps", {"items": [ask(gpu="L4")] * 10001})
    tap.equal(status, 400)
    tap.has(refused["error"]["message"], "10000")
    well()


def silent_connections_end_and_those_that_wait_for_a_tune_do_not():
    with Serve(daemon.place, "--idle-timeout", "1", "--trial-timeout", "600") as other:
        waiting = other.begins(ask())
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(other.raw_socket()) for _ in range(3)]
            clients[1].sendall(b"GET /hea")
            clients[2].sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
            for client in clients:
                while client.recv(4096):  # a body that does not come may be answered with 408
                    pass
        tap.equal(len(other.jobs()), 1)
        waiting.close()
        wait_for(lambda: other.jobs() == [], "its end")


def a_client_that_closes_its_sending_side_is_answered():
    body = json.dumps(ask(gpu="A10", effort="predict")).encode()
    tap.equal(statuses(said_back(HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)), [200])
    well()


def one_more():
    try:
        return daemon.raw_socket()
    except BlockingIOError:  # a loaded machine is slow to accept
        return None


def two_thousand_idle_connections_leave_room_and_nothing_behind():
    with contextlib.ExitStack() as stack:
        for i in range(IDLE):
            client = stack.enter_context(wait_for(one_more, "room in the queue of new connections"))
            if i % 3 == 1:
                client.sendall(b"GET /hea")  # half a head
            elif i % 3 == 2:
                client.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")  # half a body
        wait_for(lambda: daemon.metric("connections") > IDLE, "them all")
        tap.equal(daemon.get("/healthz", raw=True)[1], b"ok\n")
    well()


def clients_that_vanish_are_forgotten():
    body = json.dumps(ask()).encode()
    with contextlib.ExitStack() as stack:
        for i in range(200):
            client = stack.enter_context(daemon.raw_socket())
            client.sendall(HEAD + (b"Accept: text/event-stream\r\n" if i % 2 else b"") + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wait_for(lambda: len(daemon.jobs()) == 200, "all who wait")
        tap.equal(daemon.get("/healthz", raw=True)[1], b"ok\n")
    wait_for(lambda: daemon.jobs() == [], "the end of their tunes")
    well()


def crowds_that_come_again_cost_no_memory():
    if memory_kb() is None:
        raise tap.Skip("a sanitizer keeps what was freed")
    grown = []
    while not grown or (grown[-1] >= LEAK_KB and len(grown) < ROUNDS):
        before = memory_kb()
        two_thousand_idle_connections_leave_room_and_nothing_behind()
        clients_that_vanish_are_forgotten()
        grown.append(memory_kb() - before)
    print("# kB more than before:", grown)
    assert grown[-1] < LEAK_KB, "it grows with each: %r kB" % grown


def main():
    global daemon
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < IDLE + 200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, IDLE + 1000), hard))
    with Place(script=HANG) as place:
        place.take_cubins()
        with Serve(place, "--trial-timeout", "600", "--max-connections", str(IDLE + 500), "--idle-timeout", "30") as daemon:
            # What it opens for its first tune stays open, and what its threads keep.
            daemon.begins(ask(seq=96)).close()
            wait_for(lambda: daemon.jobs() == [], "its end")
            for path in ("/", "/v1/report", "/v1/sweeps"):
                tap.equal(daemon.get(path, raw=True)[0], 200)
            daemon.descriptors = descriptors() + 60  # of the client that asks, and of stores that further threads open
            tap.main()


main()
