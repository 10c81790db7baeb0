# SPDX-License-Identifier: Apache-2.0
"""A real daemon in a place of its own, and clients of it. Every response and event that they get is
checked against the description that the daemon serves.

    with Place(script=L4) as place, Serve(place) as daemon:
        status, answer = daemon.post("/v1/kernel", ask())
"""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time

import openapi
import tap
from place import BUILD, DEADLINE, FAST, L4, TWO, Place

FA_TUNE_SERVE = os.path.join(BUILD, "fa-tune-serve")

TOKEN = "0123456789abcdef-of-the-test"
# One of the two configs hangs until its trial's time is up; the default, which comes first, does not.
HANGS = L4 + "time BLOCK_M=64 40\nfault BLOCK_M=128; hang\n"
LONG = ("--trial-timeout", "300")


def a_place(script):
    """Its cubins are compiled already."""
    place = Place(space=TWO, script=script)
    place.take_cubins(TWO)
    return place


def ask(seq=128, **more):
    """What is asked for, smallest first: of the problem, or beside it."""
    problem = {"head_dim": 64, "batch": 1, "heads_q": 1, "seq_q": seq}
    for name in list(more):
        if name in ("causal", "dtype", "batch", "heads_q", "head_dim", "seq_k"):
            problem[name] = more.pop(name)
    return dict({"problem": problem}, **more)


def token_file(place, text=TOKEN, mode=0o600):
    path = os.path.join(place.folder, "token")
    tap.write(path, text)
    os.chmod(path, mode)
    return path


def wait_for(condition, what):
    """Asks until it is so; a loaded machine may take its time."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("it never came: " + what)


class Unix(http.client.HTTPConnection):
    """A kept connection over a Unix socket."""

    def __init__(self, path, timeout=DEADLINE):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Events:
    """The events of a tune as they come: (name, data)."""

    def __init__(self, connection, body):
        self.connection = connection
        connection.request("POST", "/v1/kernel", json.dumps(body), {"Accept": "text/event-stream"})
        self.response = connection.getresponse()
        assert self.response.status == 200, (self.response.status, self.response.read())

    def __iter__(self):
        name, data = None, None
        for line in self.response:
            line = line.decode("utf-8").rstrip("\n")
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                data = json.loads(line[6:])
            elif line == "" and name is not None:
                openapi.check_event(name, data)
                yield name, data
                name, data = None, None

    def close(self):
        self.response.close()
        self.connection.close()


class Serve:
    """Use as a context manager, within its place: the daemon is stopped at its end, and has to stop
    well. kill() and start() end it and start it again. slow_s: how long its workers take to start,
    so that a tune lasts no less."""

    def __init__(self, place, *flags, env=None, prefix=(), slow_s=0):
        self.place, self.flags, self.prefix = place, list(flags), list(prefix)
        self.env = dict(place.env, **(env or {}))
        self.env.setdefault("FA_TUNE_WORKER", os.path.join(BUILD, "fa-tune-worker"))
        if slow_s > 0:
            script = os.path.join(place.folder, "slow-worker")
            tap.write(script, "#!/bin/sh\nsleep %s\nexec %s \"$@\"\n" %
                              (slow_s, self.env["FA_TUNE_WORKER"]))
            os.chmod(script, 0o700)
            self.env["FA_TUNE_WORKER"] = script
        # A Unix socket's path is short.
        self.folder = tempfile.mkdtemp(prefix="fts-")
        self.socket = os.path.join(self.folder, "s")
        self.log_path = os.path.join(place.folder, "serve-%s.log" % os.path.basename(self.folder))
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, failed, *_):
        try:
            if self.process is not None and self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)
                status = self.process.wait(DEADLINE)
                assert failed or status == 0, "it stopped with %d:\n%s" % (status, self.log())
        finally:
            if self.process is not None and self.process.poll() is None:
                self.process.kill()
                self.process.wait()
            if failed:
                print("# the daemon's log ends:\n# " + self.log()[-4000:].replace("\n", "\n# "))
            for name in os.listdir(self.folder):
                os.unlink(os.path.join(self.folder, name))
            os.rmdir(self.folder)

    def start(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*self.prefix, FA_TUNE_SERVE, "--socket", self.socket, *self.flags], env=self.env,
                cwd="/", stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def is_ready():
            assert self.process.poll() is None, "it ended with %s:\n%s" % (self.process.returncode,
                                                                           self.log())
            try:
                return self.get("/readyz", raw=True)[0] == 200
            except (OSError, http.client.HTTPException):
                return False
        wait_for(is_ready, "a daemon that is ready")

    def stop(self, how=signal.SIGTERM):
        """Tells it to stop and returns its exit status."""
        self.process.send_signal(how)
        return self.process.wait(DEADLINE)

    def kill(self):
        self.stop(signal.SIGKILL)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    # ---- clients ----
    def connect(self, timeout=DEADLINE):
        return Unix(self.socket, timeout)

    def request(self, method, path, body=None, headers=None, connection=None, raw=False):
        """(status, document); with raw: (status, bytes, headers)."""
        own = connection is None
        connection = connection or self.connect()
        try:
            if body is not None and not isinstance(body, (bytes, str)):
                body = json.dumps(body)
            connection.request(method, path, body, headers or {})
            response = connection.getresponse()
            data = response.read()
            openapi.check_response(method, path, response.status, dict(response.getheaders()), data)
            if raw:
                return response.status, data, dict(response.getheaders())
            return response.status, json.loads(data) if data else None
        finally:
            if own:
                connection.close()

    def get(self, path, **how):
        return self.request("GET", path, **how)

    def post(self, path, body, **how):
        return self.request("POST", path, body, **how)

    def raw_socket(self):
        connection = self.connect()
        connection.connect()
        return connection.sock

    def jobs(self):
        return self.get("/v1/jobs")[1]["jobs"]

    def events(self, body):
        return Events(self.connect(), body)

    def tcp(self):
        return "127.0.0.1", int(re.search(r"on=tcp:127\.0\.0\.1:(\d+)", self.log()).group(1))

    def begins(self, body):
        """A connection that waits for this tune, which is under way."""
        before = len(self.jobs())
        connection = self.connect()
        connection.request("POST", "/v1/kernel", json.dumps(body))
        wait_for(lambda: len(self.jobs()) > before and all(job["started"] for job in self.jobs()), "a tune that runs")
        return connection

    def memory_kb(self):
        with open("/proc/%d/status" % self.process.pid, encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))

    def metric(self, name):
        for line in self.get("/metrics", raw=True)[1].decode().splitlines():
            if line.startswith("fa_tune_serve_%s " % name):
                return float(line.split()[1])
        raise AssertionError("there is no metric " + name)
