#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of a service: what it answers is the answer, and its job is followed to the end; whatever else it does
ends in one note and the local way. The service is a stub that answers as a test says; test_serve_client.py has the
real one."""
import hashlib
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time

import tap
from place import BUILD, DEADLINE, Place
from serve import wait_for

L4 = "device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n"
WRONG = L4 + "fault * wrong\n"  # every kernel computes nonsense: a proof would tell
JOB = "0123456789abcdef"
EXAMPLE = ["--seq", "128", "--batch", "1", "--heads", "2", "--causal"]  # of tune_and_launch.c


# ---- a service -------------------------------------------------------------------------------
class Request:
    def __init__(self, connection, head, body):
        first, *rest = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = first.split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in
                        (line.partition(":") for line in rest)}
        self.body = body
        self.send = connection.sendall

    def json(self):
        return json.loads(self.body)


def reply(status, body=b"", **headers):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    lines = ["HTTP/1.1 %d X" % status, "Content-Length: %d" % len(body)]
    lines += ["%s: %s" % (name.replace("_", "-"), value) for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def failure(status, code, message, **more):
    return reply(status, dict({"error": {"code": code, "message": message}}, **more))


def event(name, data):
    return ("event: %s\ndata: %s\n\n" % (name, json.dumps(data))).encode()


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Stub:
    """A service that answers as it is told to, well or not: what a client has to cope with.

        with Stub(answers) as stub:      # answers(request) -> bytes to send, or None to hang up
            place.env["FA_TUNE_SERVER"] = stub.address

    A request has method, path, body (bytes), headers (lower-case names) and send(bytes), for answers that come in
    pieces. piece: how many bytes of an answer are sent at a time; 0: all of them."""

    def __init__(self, answers, tcp=False, piece=0):
        self.answers, self.tcp, self.piece = answers, tcp, piece
        self.requests = []
        self.connections = 0
        self.folder = None

    def __enter__(self):
        if self.tcp:
            self.listener = socket.create_server(("127.0.0.1", 0))
            self.address = "http://127.0.0.1:%d" % self.listener.getsockname()[1]
        else:
            self.folder = tempfile.mkdtemp(prefix="fts-")  # a Unix socket's path is short
            self.path = os.path.join(self.folder, "s")
            self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self.listener.bind(self.path)
            self.listener.listen(64)
            self.address = "unix:" + self.path
        self.open = True
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.open = False
        self.listener.shutdown(socket.SHUT_RDWR)  # wakes accept()
        self.listener.close()
        self.thread.join()
        if self.folder is not None:
            shutil.rmtree(self.folder)

    def accept(self):
        while self.open:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        data = b""
        try:
            while True:
                while b"\r\n\r\n" not in data:
                    more = connection.recv(65536)
                    if not more:
                        return
                    data += more
                head, _, data = data.partition(b"\r\n\r\n")
                request = Request(connection, head, b"")
                size = int(request.headers.get("content-length", "0"))
                while len(data) < size:
                    data += connection.recv(65536)
                request.body, data = data[:size], data[size:]
                self.requests.append(request)
                answer = self.answers(request)
                if answer is None:
                    return
                for at in range(0, len(answer), self.piece or len(answer)):
                    connection.sendall(answer[at:at + (self.piece or len(answer))])
                if b"\r\nConnection: close\r\n" in answer:
                    return
        except OSError:
            pass  # the client has hung up
        finally:
            connection.close()


class Served:
    """A store with one winner, made once, and what a good service says of it."""
    made = None

    def __init__(self):
        with Place(script=L4) as place:
            place.take_cubins()
            document = place.json(*EXAMPLE, "--quiet")
            with open(place.store, "rb") as file:
                self.store = file.read()
            answer = document["answer"]
            with sqlite3.connect(place.store) as store:
                self.cubin, = store.execute("SELECT bytes FROM cubin WHERE key = ?",
                                            (answer["cubin_key"],)).fetchone()
        self.answer = answer
        self.where = {"key": answer["cubin_key"], "size": len(self.cubin),
                      "sha256": hashlib.sha256(self.cubin).hexdigest()}

    @classmethod
    def get(cls):
        cls.made = cls.made or cls()
        return cls.made

    def document(self, **changes):
        document = json.loads(json.dumps({"answer": self.answer, "cubin": self.where}))
        for name, value in changes.items():
            part, _, field = name.partition("__")
            if field:
                document[part][field] = value
            else:
                document[part] = value
        return document

    def answers(self, request, **changes):
        """The good service."""
        if request.path == "/v1/kernel":
            return reply(200, self.document(**changes))
        if request.path == "/v1/cubins/" + self.where["key"]:
            return reply(200, self.cubin, ETag='"%s"' % self.where["sha256"])
        if request.path.startswith("/v1/winners"):
            return reply(200, {"winners": [self.answer]})
        return failure(404, "FA_ENOTFOUND", "there is nothing here")


def local_winner(place):
    """The place's own store has the winner: the local way is short."""
    with open(os.open(place.store, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(Served.get().store)


def one_note(text, part):
    notes = [line for line in text.splitlines() if line.startswith("note: ")]
    assert len(notes) == 1, text
    tap.has(notes[0], "cannot be used: ")
    tap.has(notes[0], part)


def launch(place, status=0):
    done = subprocess.run([os.path.join(BUILD, "examples", "tune_and_launch")], env=place.env,
                          cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=DEADLINE)
    tap.equal((done.returncode, done.stderr if status == 0 and done.returncode else ""), (status, ""))
    return done


# ---- kernels ---------------------------------------------------------------------------------
def a_kernel_of_the_server_is_loaded_and_launched_and_not_kept_here():
    served = Served.get()
    with Place(script=L4) as place, Stub(served.answers) as stub:
        place.env["FA_TUNE_SERVER"] = stub.address
        place.env["http_proxy"] = place.env["ALL_PROXY"] = "http://127.0.0.1:1"
        done = launch(place)
        tap.equal(done.stderr, "")
        tap.has(done.stdout, "from the service at " + stub.address)
        tap.has(done.stdout, "origin measured,")
        tap.equal([request.path for request in stub.requests],
                  ["/v1/kernel", "/v1/cubins/" + served.where["key"]])
        asked = stub.requests[0].json()
        tap.equal((asked["effort"], asked["gpu"], asked["problem"]["causal"]),
                  ("cached", "L4", "bottom-right"))
        assert asked["uuid"], "the device was not named"
        place.env["FA_TUNE_SERVER"] = ""
        tap.equal(place.json("show")["winners"], [])


def a_slow_reply_comes_whole_over_a_connection_that_is_kept():
    served = Served.get()
    with Place(script=L4) as place, Stub(served.answers, piece=64) as stub:
        place.env["FA_TUNE_SERVER"] = stub.path
        done = launch(place)
        tap.equal(done.stderr, "")
        tap.has(done.stdout, "from the service at " + stub.address)
        tap.equal((len(stub.requests), stub.connections), (2, 1))


def what_a_server_may_not_say_is_noted_and_done_without():
    served = Served.get()
    gpu = dict(served.answer["gpu"], sm_count=57)
    other = dict(served.answer["problem"], seq_q=256)
    flipped = bytes([served.cubin[0]]) + bytes([served.cubin[1] ^ 1]) + served.cubin[2:]

    def instead(path, data):
        def answers(request):
            if path not in request.path:
                return served.answers(request)
            return data(request) if callable(data) else data
        return answers

    def cubin(data):
        return instead("/v1/cubins/", data)

    def kernel(data):
        return instead("/v1/kernel", data)

    def changed(**changes):
        return lambda request: served.answers(request, **changes)

    def endless(head):
        def answers(request):
            request.send(head)
            while True:
                request.send(b"x" * 65536)
        return answers

    good = json.dumps(served.document()).encode()
    for answers, why in [
        (changed(cubin__sha256="0" * 64), "do not match its SHA-256"),
        (cubin(reply(200, flipped)), "do not match its SHA-256"),
        (cubin(reply(200, served.cubin + b"x")), "sends more than"),
        (cubin(reply(200, served.cubin[:-1])), "do not match its SHA-256"),
        (cubin(endless(b"HTTP/1.1 200 OK\r\n\r\n")), None),
        (changed(cubin__key="f" * 64), "cubin: it is not the answer's"),
        (changed(cubin__sha256="x"), "cubin: "),
        (changed(cubin=None), "has no cubin"),
        (changed(answer__gpu=gpu), "other silicon"),
        (changed(answer__problem=other), "another problem"),
        (changed(answer__threads=4096), "cannot be launched"),
        (changed(answer__grid=[0, 1, 1]), "cannot be launched"),
        (changed(answer__smem_bytes=1 << 30), "cannot be launched"),
        # A server of another version, or with other templates, means other kernels by the same names.
        (changed(answer__threads=64), "do not launch attn_fwd_sm80 so"),
        (changed(answer__grid=[1, 1, 1]), "do not launch attn_fwd_sm80 so"),
        (changed(answer__smem_bytes=0), "do not launch attn_fwd_sm80 so"),
        (changed(answer__entry="no_such_kernel"), "do not launch attn_fwd_sm80 so"),
        (changed(answer__origin="believed"), "there is no origin"),
        (kernel(reply(200, good.replace(b'"median_us": ', b'"median_us": NaN, "x": ', 1))), "JSON"),
        (kernel(reply(200, b"[" * 100000)), "nested deeper"),
        (kernel(reply(200, b"\xff\xfe\x00 not JSON")), "reply: "),
        (kernel(reply(200, good[:-40])), "JSON"),
        (kernel(reply(200)), "there is no text"),
        (kernel(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                % (len(good) + 1, good)), None),
        (kernel(b"SSH-2.0-OpenSSH_9.2\r\nConnection: close\r\n\r\n"), None),
        (kernel(endless(b"HTTP/1.1 200 OK\r\n\r\n")), "sends more than"),
        (kernel(endless(b"HTTP/1.1 200 OK\r\nX: ")), None),
        (kernel(reply(302, b"", Location="http://127.0.0.1:1/")), "status 302"),
        (kernel(reply(200, b"x", Content_Encoding="gzip")), "JSON"),
        (kernel(failure(401, "FA_EUNTRUSTED", "send a token")), "send a token"),
        (kernel(failure(500, "FA_EIO", "a disk failed")), "a disk failed"),
        (kernel(None), None),
    ]:
        with Place(script=L4) as place, Stub(answers) as stub:
            local_winner(place)
            place.env["FA_TUNE_SERVER"] = stub.address
            done = launch(place)
            one_note(done.stderr, why or "")
            tap.has(done.stdout, "found in the store")
            tap.lacks(done.stdout, "from the service")


def a_server_that_stumbles_once_is_asked_once_more():
    served = Served.get()
    for status, wait in ((500, 0), (502, 0), (503, 1)):  # so many seconds later
        count, began = [], time.monotonic()

        def answers(request):
            count.append(request.path)
            if len(count) == 1:
                return reply(status, {"error": {"code": "FA_EBUSY", "message": "too much to do"}}, Retry_After=wait)
            return served.answers(request)
        with Place(script=L4) as place, Stub(answers) as stub:
            place.env["FA_TUNE_SERVER"] = stub.address
            done = launch(place)
            tap.equal(done.stderr, "")
            tap.has(done.stdout, "from the service")
            assert time.monotonic() - began >= wait


def what_was_measured_elsewhere_or_before_is_proved_here_first():
    served = Served.get()
    driver = served.answer["driver_version"]
    for tcp, with_token, changes, trusted in [
        (False, False, {}, True),
        (True, True, {}, False),  # a token does not tell who has taken the port
        (True, False, {}, False),
        (False, False, {"answer__driver_version": driver - 10}, False),
        (False, False, {"answer__origin": "imported"}, False),
        (False, False, {"answer__nvrtc": "another"}, False),  # nor is its key what we would make
        (False, False, {"answer__gpu": dict(served.answer["gpu"], uuid="another")}, True),
    ]:
        for script in (L4, WRONG):
            with Place(script=script) as place, \
                    Stub(lambda request: served.answers(request, **changes), tcp=tcp) as stub:
                local_winner(place)
                place.env["FA_TUNE_SERVER"] = stub.address
                if with_token:
                    token = os.path.join(place.folder, "token")
                    with open(token, "w", encoding="utf-8") as file:
                        file.write("a-token-of-some-length\n")
                    os.chmod(token, 0o600)
                    place.env["FA_TUNE_TOKEN_FILE"] = token
                done = launch(place, status=0 if script == L4 else 1)
                if with_token:
                    tap.equal(stub.requests[0].headers["authorization"],
                              "Bearer a-token-of-some-length")
                if script == WRONG and not trusted:
                    one_note(done.stderr, "did not pass its proof here")
                    tap.lacks(done.stdout, "from the service")
                else:
                    tap.equal(done.stderr, "")
                    tap.has(done.stdout, "from the service")
                if "answer__gpu" in changes:
                    tap.has(done.stdout, "origin measured-same-silicon,")


def without_libcurl_a_note_says_what_to_install():
    with Place(script=L4) as place, Stub(Served.get().answers) as stub:
        local_winner(place)
        for name in ("libcurl.so.4", "libcurl-gnutls.so.4"):  # found first, and no library
            with open(os.path.join(place.folder, name), "wb"):
                pass
        place.env["LD_LIBRARY_PATH"] = place.folder
        place.env["FA_TUNE_SERVER"] = stub.address
        done = launch(place)
        one_note(done.stderr, "install Debian's libcurl4")
        tap.has(done.stdout, "found in the store")
        tap.equal(stub.requests, [])


def a_token_file_that_others_can_write_is_refused():
    with Place(script=L4) as place:
        token = os.path.join(place.folder, "token")
        place.env["FA_TUNE_SERVER"] = "http://127.0.0.1:1"
        place.env["FA_TUNE_TOKEN_FILE"] = token
        for content, mode, why in [("t", 0o666, "others can write"), ("two words", 0o600, "one word"),
                                   ("", 0o600, "1 to 255"), ("x" * 300, 0o600, "1 to 255"),
                                   ("t\x01", 0o600, "one word")]:
            with open(token, "w", encoding="utf-8") as file:
                file.write(content)
            os.chmod(token, mode)
            done = subprocess.run([os.path.join(BUILD, "fa-tune"), "show"], env=place.env,
                                  capture_output=True, encoding="utf-8", check=False)
            assert done.returncode != 0
            tap.has(done.stderr, why)
            os.remove(token)
        tap.has(place.run("show", status=1).stderr, "cannot be read")


def a_socket_of_another_user_is_not_spoken_to():
    if os.geteuid() != 0:
        raise tap.Skip("needs root, to be another user")
    folder = tempfile.mkdtemp(prefix="fts-")
    os.chmod(folder, 0o777)
    path, got = os.path.join(folder, "s"), os.path.join(folder, "got")
    child = os.fork()
    if child == 0:
        try:
            os.setuid(65534)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            listener.listen(4)
            while True:
                connection, _ = listener.accept()
                data = connection.recv(65536)
                with open(got, "ab") as file:
                    file.write(data)
                connection.close()
        finally:
            os._exit(0)
    try:
        wait_for(lambda: os.path.exists(path), "a socket")
        with Place(script=L4) as place:
            local_winner(place)
            place.env["FA_TUNE_SERVER"] = path
            one_note(launch(place).stderr, "another user's")
        assert not os.path.exists(got) or os.path.getsize(got) == 0, "something was said to it"
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        shutil.rmtree(folder)


# ---- the command line ------------------------------------------------------------------------
def a_failure_that_the_server_answers_is_the_answer():
    for status, code, effort in [(404, "FA_ENOTFOUND", "cached"), (422, "FA_ENOKERNEL", "measure")]:
        with Place(script=L4) as place, \
                Stub(lambda request: failure(status, code, "so says the server")) as stub:
            local_winner(place)
            done = place.run(*EXAMPLE, "--effort", effort, "--server", stub.address, status=1)
            tap.has(done.stderr, "so says the server")
            tap.lacks(done.stderr, "note:")
            tap.equal(done.stdout, "")


def a_server_that_does_not_understand_or_means_another_gpu_is_done_without():
    served = Served.get()
    other = dict(served.answer["gpu"], name="H100 SXM", sm=90, sm_count=132)
    for answers, why in [
        (lambda request: failure(400, "FA_EINVAL", "ask: there is no key"), "there is no key"),
        (lambda request: failure(500, "FA_EMANIFEST", "its templates"), "its templates"),
        (lambda request: served.answers(request, answer__gpu=other), "another GPU"),
    ]:
        with Place(script=L4) as place, Stub(answers) as stub:
            local_winner(place)
            for gpu in ([], ["--gpu", "L4"]):
                done = place.run(*EXAMPLE, *gpu, "--server", stub.address)
                one_note(done.stderr, why)
                tap.has(done.stdout, "found in ~/store.db")


def winners_are_listed_by_the_server_or_by_the_store():
    served = Served.get()
    with Place(script=L4) as place:
        local_winner(place)
        with Stub(served.answers) as stub:
            told = place.json("show", "--server", stub.address)
            tap.equal((len(told["winners"]), told["server"]), (1, stub.address))
            tap.equal(told["winners"][0]["answer"]["cubin_key"], served.where["key"])
            tap.has(place.run("show", "--server", stub.path).stdout, "1 winner in unix:")
        bad = dict(served.answer, threads="many")
        with Stub(lambda request: reply(200, {"winners": [served.answer, bad]})) as stub:
            done = place.run("show", "--server", stub.address)
            one_note(done.stderr, "threads")
            tap.has(done.stdout, "2 winners in ~/store.db")
        done = place.run("show", "--server", "unix:" + os.path.join(place.folder, "nobody"))
        one_note(done.stderr, "No such file")
        # A store that is named is meant; so is a server on the command line.
        place.env["FA_TUNE_SERVER"] = "unix:/nobody"
        tap.equal(place.run("show", "--store", place.store).stderr, "")


def an_address_that_is_not_understood_is_told():
    with Place(script=L4) as place:
        for address in ("ftp://here:1", "http://", "http://here", "http://here:0", "http://here:99999",
                        "http://user@here:80", "http://here:80/path", "unix:relative", "here",
                        "unix:/" + "x" * 200, "https://here:443", "http://here:80x", "http://[::1:80",
                        "http://here:-1", "http://he re:80", "http://here\r\nX: y:80"):
            tap.has(place.run("show", "--server", address, status=2).stderr, "server \"")
        tap.has(place.run("show", "--server", "http://[::1]:1").stderr, "cannot be used")


def verbs_that_ask_no_server_say_so():
    with Place() as place:
        for arguments in (["explain", "--gpu", "L4", *EXAMPLE], ["report"], ["export"], ["import", "f"],
                          ["gpus"], ["keygen"]):
            tap.has(place.run(*arguments, "--server", "/s", status=2).stderr, "--server")
        for arguments in (["sweep", "--list"], ["sweep", "--status"],
                          ["show", "--why", "--gpu", "L4", *EXAMPLE], ["show", "x.fab"],
                          ["--gpu", "L4", *EXAMPLE, "--templates", "t"]):
            tap.has(place.run(*arguments, "--server", "/s", status=2).stderr, "--server")
        for asked in EXAMPLE, ["sweep", "--seq", "128"]:
            told = place.run(*asked, "--gpu", "L4", "--server", "/s", "--memory", "1G", status=2).stderr
            tap.has(told, "\"memory\" bounds tunes on this machine, and a service tunes in its place")


def doctor_says_whether_the_server_answers():
    with Place() as place:
        with Stub(lambda request: reply(200, b"ready\n")) as stub:
            checks = place.json("doctor", "--server", stub.address)["checks"]
            tap.equal([check["level"] for check in checks if check["name"] == "server"], ["ok"])
        for answers, why in [(lambda request: failure(503, "FA_EBUSY", "starting"), "status 503"),
                             (lambda request: reply(200) if request.path == "/readyz" else
                              failure(401, "FA_EUNTRUSTED", "a token"), "another token")]:
            with Stub(answers) as stub:
                checks = place.json("doctor", "--server", stub.address)["checks"]
            check, = [check for check in checks if check["name"] == "server"]
            tap.equal(check["level"], "warn")
            tap.has(check["text"], why)
        checks = place.json("doctor")["checks"]
        tap.equal([check for check in checks if check["name"] == "server"], [])


# ---- jobs ------------------------------------------------------------------------------------
def progress(measured):
    counts = dict.fromkeys(("space", "in_budget", "compiled", "clean", "proved", "measured", "failed",
                            "resumed", "compile_workers", "reused"), 8)
    return dict(counts, kind="progress", stage="tune", measured=measured, elapsed_s=0.5, left_s=None,
                trial=None, best=None, default_us=None)


def follows(streams, **kernel):
    """A service whose tune becomes a job; streams: what each request for its events gets."""
    served, left = Served.get(), list(streams)

    def answers(request):
        if request.path == "/v1/kernel":
            return failure(504, "FA_ETIMEOUT", "it takes a while", **(kernel or {"job": JOB}))
        if request.path == "/v1/sweeps":
            return reply(202, {"job": JOB})
        if request.path.endswith("/events"):
            stream = left.pop(0) if left else None
            return None if stream is None else STREAM + stream
        if request.method == "DELETE":
            return reply(200, {"id": JOB})
        return served.answers(request)
    return answers


def a_tune_at_the_server_is_followed_to_its_end():
    served = Served.get()
    done = event("done", served.document())
    for streams in (
        [event("progress", progress(1)) + done],
        [b": still there\n\n" + done.replace(b"\n", b"\r\n")],
        [event("progress", progress(1)), event("progress", progress(2)) + done],  # it was restarted
        [None, done],
        [event("of another kind", 1) + b"id: 7\nretry\n\n" + done],
        # A value of two lines, carriage returns alone, and an event without data.
        [done.replace(b'", "', b'",\ndata: "', 1).replace(b"\n", b"\r") + b"event: none\n\n"],
    ):
        for size in (0, 1):
            with Place(script=L4) as place, Stub(follows(streams), piece=size) as stub:
                told = place.json(*EXAMPLE, "--server", stub.address)
                tap.equal(told["answer"]["cubin_key"], served.where["key"])
                tap.equal(told["server"], stub.address)
                tap.equal(len(told["ranking"]), 1)


def a_job_that_ends_badly_ends_the_tune():
    for name, error, status in [("failed", "FA_ENOKERNEL", 1), ("canceled", "FA_ECANCELED", 1)]:
        stream = event(name, {"error": {"code": error, "message": "no kernel survived there"}})
        with Place(script=L4) as place, Stub(follows([stream])) as stub:
            done = place.run(*EXAMPLE, "--server", stub.address, status=status)
            tap.has(done.stderr, "canceled" if name == "canceled" else "no kernel survived there")
            tap.lacks(done.stderr, "note:")


def a_sweep_that_somebody_cancels_at_the_server_has_failed():
    stream = event("canceled", {"error": {"code": "FA_ECANCELED", "message": "canceled"}})
    with Place(script=L4) as place, Stub(follows([stream])) as stub:
        done = place.run("sweep", *EXAMPLE[:-1], "--server", stub.address, status=1)
        tap.has(done.stderr, "fa-tune: the job was canceled at the server")
        tap.has(done.stderr, "stopped; the same command continues")
        tap.equal(done.stdout, "")


def a_job_that_cannot_be_followed_is_done_here():
    served = Served.get()
    huge, many = b"data: " + b"x" * (1 << 19), b"data: many lines\n" * (1 << 16)
    wrong = [event("progress", {"kind": "progress"})], [event("done", {"answer": 1})], [huge], [many], \
        [b"data: \0\n\n"], [event("failed", {})], [event("failed", {"error": {
            "code": "FA_EIO", "message": "a disk failed"}})], [], \
        [event("done", served.document(answer__gpu={}))]
    for streams in wrong:
        with Place(script=L4) as place, Stub(follows(streams)) as stub:
            local_winner(place)
            done = place.run(*EXAMPLE, "--server", stub.address)
            one_note(done.stderr, "")
            tap.has(done.stdout, "found in ~/store.db")
    for job in ("../../healthz", "", "x" * 65, "a b", 7):
        with Place(script=L4) as place, Stub(follows([], job=job)) as stub:
            local_winner(place)
            one_note(place.run(*EXAMPLE, "--server", stub.address).stderr, "job")
            assert all(request.path in ("/v1/gpus", "/v1/kernel") for request in stub.requests)


tap.main([
    a_kernel_of_the_server_is_loaded_and_launched_and_not_kept_here,
    a_slow_reply_comes_whole_over_a_connection_that_is_kept,
    what_a_server_may_not_say_is_noted_and_done_without,
    a_server_that_stumbles_once_is_asked_once_more,
    what_was_measured_elsewhere_or_before_is_proved_here_first,
    without_libcurl_a_note_says_what_to_install,
    a_token_file_that_others_can_write_is_refused,
    a_socket_of_another_user_is_not_spoken_to,
    a_failure_that_the_server_answers_is_the_answer,
    a_server_that_does_not_understand_or_means_another_gpu_is_done_without,
    winners_are_listed_by_the_server_or_by_the_store,
    an_address_that_is_not_understood_is_told,
    verbs_that_ask_no_server_say_so,
    doctor_says_whether_the_server_answers,
    a_tune_at_the_server_is_followed_to_its_end,
    a_job_that_ends_badly_ends_the_tune,
    a_sweep_that_somebody_cancels_at_the_server_has_failed,
    a_job_that_cannot_be_followed_is_done_here,
])
