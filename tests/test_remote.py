#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients of a service: what it answers is the answer; whatever else it does
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

import tap
from place import BUILD, DEADLINE, Place
from serve import wait_for

L4 = "device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n"
WRONG = L4 + "fault * wrong\n"  # every kernel computes nonsense: a proof would tell
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
        """One request, whose answer ends with the connection."""
        data = b""
        try:
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
            request.body = data
            self.requests.append(request)
            answer = self.answers(request)
            if answer is None:
                return
            for at in range(0, len(answer), self.piece or len(answer)):
                connection.sendall(answer[at:at + (self.piece or len(answer))])
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


def a_slow_reply_comes_whole():
    served = Served.get()
    with Place(script=L4) as place, Stub(served.answers, piece=64) as stub:
        place.env["FA_TUNE_SERVER"] = stub.path
        done = launch(place)
        tap.equal(done.stderr, "")
        tap.has(done.stdout, "from the service at " + stub.address)
        tap.equal((len(stub.requests), stub.connections), (2, 2))


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
        (changed(answer__gpu=gpu), "another GPU"),
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
        (kernel(reply(200)), "JSON"),
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
    for status in (500, 502, 503):
        count = []

        def answers(request):
            count.append(request.path)
            if len(count) == 1:
                return reply(status, {"error": {"code": "FA_EBUSY", "message": "too much to do"}})
            return served.answers(request)
        with Place(script=L4) as place, Stub(answers) as stub:
            place.env["FA_TUNE_SERVER"] = stub.address
            done = launch(place)
            tap.equal(done.stderr, "")
            tap.has(done.stdout, "from the service")


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


def a_token_file_that_others_can_write_is_refused():
    with Place(script=L4) as place:
        token = os.path.join(place.folder, "token")
        place.env["FA_TUNE_SERVER"] = "http://127.0.0.1:1"
        place.env["FA_TUNE_TOKEN_FILE"] = token
        for content, mode, why in [("t", 0o666, "others can write"), ("two words", 0o600, "one word"),
                                   ("", 0o600, "one word of 1 to 255"), ("x" * 300, 0o600, "one word of 1 to 255"),
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


def an_address_that_is_not_understood_is_told():
    with Place(script=L4) as place:
        for address in ("ftp://here:1", "http://", "http://here", "http://here:0", "http://here:99999",
                        "http://user@here:80", "http://here:80/path", "unix:relative", "here",
                        "unix:/" + "x" * 200, "https://here:443", "http://here:80x", "http://[::1:80",
                        "http://here:-1", "http://he re:80", "http://here\r\nX: y:80"):
            tap.has(place.run(*EXAMPLE, "--server", address, status=2).stderr, "server \"")
        local_winner(place)
        tap.has(place.run(*EXAMPLE, "--server", "http://[::1]:1").stderr, "cannot be used")
        # A store that is named is meant; so is a server on the command line.
        place.env["FA_TUNE_SERVER"] = "unix:/nobody"
        tap.equal(place.run(*EXAMPLE, "--quiet", "--store", place.store).stderr, "")


def verbs_that_ask_no_server_say_so():
    with Place() as place:
        for arguments in (["explain", "--gpu", "L4", *EXAMPLE], ["report"], ["export"], ["import", "f"],
                          ["gpus"], ["keygen"]):
            tap.has(place.run(*arguments, "--server", "/s", status=2).stderr, "--server")
        for arguments in (["sweep", "--seq", "128"], ["show"],
                          ["--gpu", "L4", *EXAMPLE, "--templates", "t"]):
            tap.has(place.run(*arguments, "--server", "/s", status=2).stderr, "--server")
        told = place.run(*EXAMPLE, "--gpu", "L4", "--server", "/s", "--memory", "1G", status=2).stderr
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


# ---- streams ---------------------------------------------------------------------------------
def a_tune_at_the_server_is_waited_for_to_its_end():
    """By its events, whose data a client of the library passes over."""
    served = Served.get()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    told = b"event: progress\ndata: {}\n\n:\n\n"
    done = b"event: done\ndata: " + json.dumps(served.document()).encode() + b"\n\n"
    failed = b'event: failed\ndata: {"error": {"code": "FA_ENOKERNEL", "message": "none is right"}}\n\n'
    for stream, why in ((told + done, None), (done, None), (told * 3000 + done, None), (told + failed, "none is right"),
                        (told, "before the tune's end"), (done[:-9], "before the tune's end"), (b"", "before the tune's end")):
        def answers(request):
            return head + stream if request.path == "/v1/kernel" else served.answers(request)
        with Place(script=L4) as place, Stub(answers) as stub:
            local_winner(place)
            done_here = place.run(*EXAMPLE, "--server", stub.address, status=1 if why == "none is right" else 0)
            if why is None:
                tap.equal(done_here.stderr, "")
                tap.has(done_here.stdout, " by " + stub.address)
                tap.equal(stub.requests[0].headers["accept"], "text/event-stream")
            elif why == "none is right":
                tap.has(done_here.stderr, why)
                tap.equal(len(stub.requests), 1)
            else:
                one_note(done_here.stderr, why)


tap.main([
    a_slow_reply_comes_whole,
    a_tune_at_the_server_is_waited_for_to_its_end,
    a_kernel_of_the_server_is_loaded_and_launched_and_not_kept_here,
    what_a_server_may_not_say_is_noted_and_done_without,
    a_server_that_stumbles_once_is_asked_once_more,
    what_was_measured_elsewhere_or_before_is_proved_here_first,
    a_token_file_that_others_can_write_is_refused,
    a_socket_of_another_user_is_not_spoken_to,
    a_failure_that_the_server_answers_is_the_answer,
    a_server_that_does_not_understand_or_means_another_gpu_is_done_without,
    an_address_that_is_not_understood_is_told,
    verbs_that_ask_no_server_say_so,
    doctor_says_whether_the_server_answers,
])
