#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of a service: what it answers is the answer; whatever else it does ends in one note and the local way. The service is a
stub that answers as a test says; test_serve_life.py has the real one."""
import hashlib
import json
import os
import signal
import socket
import socketserver
import sqlite3
import subprocess
import tempfile
import threading

import tap
from place import BUILD, DEADLINE, Place
from serve import wait_for

L4 = "device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n"
WRONG = L4 + "fault * wrong\n"  # every kernel computes nonsense: a proof would tell
EXAMPLE = ["--seq", "128", "--batch", "1", "--heads", "2", "--causal"]  # of tune_and_launch.c


# ---- a service -------------------------------------------------------------------------------
def reply(status, body=b"", **headers):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = ["HTTP/1.1 %d X" % status, "Content-Length: %d" % len(body)] + ["%s: %s" % header for header in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def failure(status, code, message):
    return reply(status, {"error": {"code": code, "message": message}})


class Handler(socketserver.StreamRequestHandler):
    """One request, whose answer ends with the connection: pieces of bytes."""
    def handle(self):
        try:
            self.path = self.rfile.readline().decode().split(" ")[1]
            self.headers = dict(line.decode().strip().lower().split(": ", 1) for line in iter(self.rfile.readline, b"\r\n"))
            self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
            self.server.requests.append(self)
            answer = self.server.answers(self)
            for piece in [answer] if isinstance(answer, bytes) else answer:
                self.wfile.write(piece)
        except OSError:
            pass  # the client has hung up


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads, request_queue_size = True, 64


class Stub:
    """with Stub(answers) as stub: answers(request) are the bytes to send, or pieces of them."""
    def __init__(self, answers, tcp=False):
        self.folder = tempfile.TemporaryDirectory(prefix="fts-")  # a Unix socket's path is short
        self.path = os.path.join(self.folder.name, "s")
        Server.address_family = socket.AF_INET if tcp else socket.AF_UNIX
        self.server = Server(("127.0.0.1", 0) if tcp else self.path, Handler)
        self.address = "http://127.0.0.1:%d" % self.server.server_address[1] if tcp else "unix:" + self.path
        self.server.answers, self.server.requests = answers, []
        self.requests = self.server.requests

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()


class Served:
    """A store with one winner, and what a good service says of it."""
    def __init__(self):
        with Place(script=L4) as place:
            place.take_cubins()
            self.answer = place.json(*EXAMPLE, "--quiet")["answer"]
            self.store = tap.read(place.store, "rb")
            with sqlite3.connect(place.store) as store:
                self.cubin, = store.execute("SELECT bytes FROM cubin WHERE key = ?", (self.answer["cubin_key"],)).fetchone()
        self.tag = '"%s"' % hashlib.sha256(self.cubin).hexdigest()

    def answers(self, request, **changes):
        """The good service, but for these fields of its answer."""
        if request.path == "/v1/kernel":
            return reply(200, {"answer": dict(self.answer, **changes), "cubin": None})
        if request.path == "/v1/cubins/" + self.answer["cubin_key"]:
            return reply(200, self.cubin, ETag=self.tag)
        return failure(404, "FA_ENOTFOUND", "there is nothing here")


served = Served()


def local_winner(place):
    """The place's own store has the winner: the local way is short."""
    tap.write(os.open(place.store, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), served.store)


def one_note(text, part):
    note, = [line for line in text.splitlines() if line.startswith("note: ")]
    tap.has(note, "cannot be used: ")
    tap.has(note, part)


def launch(place, server, status=0):
    done = subprocess.run([os.path.join(BUILD, "examples", "tune_and_launch")], env=dict(place.env, FA_TUNE_SERVER=server),
                          cwd=place.folder, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", check=False, timeout=DEADLINE)
    tap.equal((done.returncode, done.stderr if status == 0 and done.returncode else ""), (status, ""))
    return done


# ---- kernels ---------------------------------------------------------------------------------
def a_kernel_of_the_server_is_loaded_and_launched_and_not_kept_here():
    def in_pieces(request):
        whole = served.answers(request)
        return (whole[at:at + 64] for at in range(0, len(whole), 64))
    for answers in (served.answers, in_pieces):
        with Place(script=L4) as place, Stub(answers) as stub:
            place.env["http_proxy"] = place.env["ALL_PROXY"] = "http://127.0.0.1:1"
            done = launch(place, stub.path)
            tap.equal(done.stderr, "")
            tap.has(done.stdout, "from the service at " + stub.address)
            tap.has(done.stdout, "origin measured,")
            tap.equal([request.path for request in stub.requests], ["/v1/kernel", "/v1/cubins/" + served.answer["cubin_key"]])
            asked = json.loads(stub.requests[0].body)
            tap.equal((asked["effort"], asked["gpu"], asked["problem"]["causal"], bool(asked["uuid"])), ("cached", "L4", "bottom-right", True))
            tap.equal(place.json("show")["winners"], [])


def what_a_server_may_not_say_is_noted_and_done_without():
    def instead(path, data):
        return lambda request: data if path in request.path else served.answers(request)

    def changed(**changes):
        return lambda request: served.answers(request, **changes)

    def endless(head):
        yield head
        while True:
            yield b"x" * 65536

    def cubin(data):
        return instead("/v1/cubins/", data)

    def kernel(data):
        return instead("/v1/kernel", data)

    good = json.dumps({"answer": served.answer}).encode()
    stream = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    for answers, why in [
        (cubin(reply(200, served.cubin[:1] + b"?" + served.cubin[2:], ETag=served.tag)), "do not match its SHA-256"),
        (cubin(reply(200, served.cubin[:-1], ETag=served.tag)), "do not match its SHA-256"),
        (cubin(reply(200, served.cubin)), "do not match its SHA-256"),
        (cubin(endless(b"HTTP/1.1 200 OK\r\n\r\n")), "sends more than"),
        (cubin(failure(404, "FA_ENOTFOUND", "there is no such cubin")), "there is no such cubin"),
        (changed(cubin_key=""), "no cubin's key"), (changed(cubin_key="../" + 61 * "x"), "64 hexadecimal digits"),
        (changed(gpu=dict(served.answer["gpu"], sm_count=57)), "another GPU"),
        (changed(gpu=dict(served.answer["gpu"], name="H100 SXM", sm=90, sm_count=132)), "another GPU"),
        (changed(problem=dict(served.answer["problem"], seq_q=256)), "another problem"),
        # A server of another version, or with other templates, means other kernels by the same names.
        *((changed(**{name: value}), "do not launch attn_fwd_sm80 so") for name, value in
          (("threads", 4096), ("threads", 64), ("grid", [0, 1, 1]), ("grid", [1, 1, 1]), ("smem_bytes", 1 << 30), ("smem_bytes", 0),
           ("entry", "no_such_kernel"))),
        (changed(origin="believed"), "there is no origin"), (changed(threads=-1), "threads"),
        (kernel(reply(200, good.replace(b'"median_us": ', b'"median_us": NaN, "x": ', 1))), "JSON"),
        (kernel(reply(200, b"[" * 100000)), "nested deeper"), (kernel(reply(200, b"\xff\xfe\x00 not JSON")), "reply: "),
        (kernel(reply(200, good[:-40])), "JSON"), (kernel(reply(200)), "JSON"), (kernel(reply(200, {})), "\"answer\" must be"),
        (kernel(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), "no HTTP"), (kernel(b""), "closed the connection"),
        (kernel(endless(b"HTTP/1.1 200 OK\r\n\r\n")), "sends more than"), (kernel(endless(b"HTTP/1.1 200 OK\r\nX: ")), "sends more than"),
        (kernel(reply(302, b"", Location="http://127.0.0.1:1/")), "status 302"),
        (kernel(failure(401, "FA_EUNTRUSTED", "send a token")), "send a token"),
        (kernel(failure(400, "FA_EINVAL", "ask: there is no key")), "there is no key"),
        (kernel(failure(503, "FA_EBUSY", "too many tunes")), "too many tunes"),
        *((kernel(stream + events), "before the tune's end") for events in (b"", b"event: progress\ndata: {}\n\n", b"event: done\ndata: {\"an")),
    ]:
        with Place(script=L4) as place, Stub(answers) as stub:
            local_winner(place)
            done = launch(place, stub.address)
            one_note(done.stderr, why)
            tap.has(done.stdout, "found in the store")


def what_was_measured_elsewhere_or_before_is_proved_here_first():
    for tcp, with_token, changes, trusted in [
        (False, False, {}, True),
        (True, True, {}, False),  # a token does not tell who has taken the port
        (True, False, {}, False),
        (False, False, {"driver_version": served.answer["driver_version"] - 10}, False),
        (False, False, {"origin": "imported"}, False),
        (False, False, {"nvrtc": "another"}, False),  # nor is its key what we would make
        (False, False, {"gpu": dict(served.answer["gpu"], uuid="another")}, True),
    ]:
        for script in (L4, WRONG):
            with Place(script=script) as place, Stub(lambda request: served.answers(request, **changes), tcp=tcp) as stub:
                local_winner(place)
                if with_token:
                    place.env["FA_TUNE_TOKEN_FILE"] = a_token(place, "a-token-of-some-length\n")
                done = launch(place, stub.address, status=0 if script == L4 else 1)
                tap.equal(stub.requests[0].headers.get("authorization"), "bearer a-token-of-some-length" if with_token else None)
                if script == WRONG and not trusted:
                    one_note(done.stderr, "did not pass its proof here")
                    tap.lacks(done.stdout, "from the service")
                else:
                    tap.equal(done.stderr, "")
                    tap.has(done.stdout, "from the service")
                if "gpu" in changes:
                    tap.has(done.stdout, "origin measured-same-silicon,")


def a_token(place, content, mode=0o600):
    path = os.path.join(place.folder, "token")
    tap.write(path, content)
    os.chmod(path, mode)
    return path


# ---- who is asked, and what an answer is -------------------------------------------------------
def an_address_or_a_token_that_is_not_understood_is_told():
    with Place(script=L4) as place:
        for address in ("ftp://here:1", "http://", "http://here", "http://here:0", "http://here:99999", "http://user@here:80", "http://here:80/path",
                        "unix:relative", "here", "unix:/" + "x" * 200, "https://here:443", "http://here:80x", "http://[::1:80", "http://" + "x" * 400,
                        "http://here:-1", "http://he re:80", "http://here\r\nX: y:80"):
            tap.has(place.run(*EXAMPLE, "--server", address, status=2).stderr, "server \"")
        for content, mode, why in [("t", 0o666, "others can write"), ("two words", 0o600, "one word"), ("", 0o600, "one word of 1 to 255"),
                                   ("x" * 300, 0o600, "one word of 1 to 255"), ("t\x01", 0o600, "one word")]:
            env = dict(place.env, FA_TUNE_SERVER="http://127.0.0.1:1", FA_TUNE_TOKEN_FILE=a_token(place, content, mode))
            done = subprocess.run([os.path.join(BUILD, "fa-tune"), "show"], env=env, capture_output=True, encoding="utf-8", check=False)
            assert done.returncode != 0
            tap.has(done.stderr, why)
        local_winner(place)
        tap.has(place.run(*EXAMPLE, "--server", "http://[::1]:1").stderr, "cannot be used")
        # A store or templates that are named are meant; so is a server on the command line.
        place.env["FA_TUNE_SERVER"] = "unix:/nobody"
        one_note(place.run(*EXAMPLE).stderr, "the server unix:/nobody")
        one_note(place.run(*EXAMPLE, "--server", "/somebody").stderr, "the server unix:/somebody")
        for meant in (["--store", place.store], ["--templates", place.env["FA_TUNE_TEMPLATES"]]):
            tap.equal(place.run(*EXAMPLE, *meant).stderr, "")
        for arguments in (["report"], ["sweep", "--seq", "128"], ["show"], [*EXAMPLE, "--templates", "t"]):
            tap.has(place.run(*arguments, "--server", "/s", status=2).stderr, "--server")
        tap.has(place.run(*EXAMPLE, "--gpu", "L4", "--server", "/s", "--memory", "1G", status=2).stderr, "\"memory\" bounds tunes on this machine")


def a_socket_of_another_user_is_not_spoken_to():
    if os.geteuid() != 0:
        raise tap.Skip("needs root, to be another user")
    with tempfile.TemporaryDirectory(prefix="fts-") as folder:
        os.chmod(folder, 0o777)
        path, got = os.path.join(folder, "s"), os.path.join(folder, "got")
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            listener.listen(4)
            while True:
                with listener.accept()[0] as connection, open(got, "ab") as file:
                    file.write(connection.recv(65536))
        try:
            wait_for(lambda: os.path.exists(path), "a socket")
            with Place(script=L4) as place:
                local_winner(place)
                one_note(launch(place, path).stderr, "another user's")
            assert not os.path.exists(got) or os.path.getsize(got) == 0, "something was said to it"
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def the_last_event_or_a_failure_is_the_answer():
    """Of a tune whose events a client of the library passes over, however many they are."""
    told = b"event: progress\ndata: {}\n\n:\n\n"
    done = b"event: done\ndata: " + json.dumps({"answer": served.answer}).encode() + b"\n\n"
    failed = b'event: failed\ndata: {"error": {"code": "FA_ENOKERNEL", "message": "so says the server"}}\n\n'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    for answer, good in ((head + told + done, True), (head + done, True), (head + told * 10000 + done, True), (head + told + failed, False),
                         (failure(404, "FA_ENOTFOUND", "so says the server"), False), (failure(422, "FA_ENOKERNEL", "so says the server"), False)):
        with Place(script=L4) as place, Stub(lambda request: answer if request.path == "/v1/kernel" else served.answers(request)) as stub:
            local_winner(place)
            run = place.run(*EXAMPLE, "--server", stub.address, status=0 if good else 1)
            tap.has(run.stdout if good else run.stderr, " in " + stub.address if good else "so says the server")
            tap.lacks(run.stderr, "note:")
            tap.equal([request.headers["accept"] for request in stub.requests], ["text/event-stream;progress=no"])


def doctor_says_whether_the_server_answers():
    with Place() as place:
        for answer, level, word in ((reply(200, b"{}"), "ok", "is ready"), (failure(503, "FA_EBUSY", "starting"), "warn", "status 503"),
                                    (failure(401, "FA_EUNTRUSTED", "a token"), "warn", "another token")):
            with Stub(lambda request: answer) as stub:
                check, = [check for check in place.json("doctor", "--server", stub.address)["checks"] if check["name"] == "server"]
            tap.equal(check["level"], level)
            tap.has(check["text"], word)
        tap.equal([check for check in place.json("doctor")["checks"] if check["name"] == "server"], [])


tap.main()
