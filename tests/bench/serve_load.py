#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon carries, without a GPU: clients on the same machine, over its Unix socket.

    python3 tests/bench/serve_load.py FOLDER

FOLDER is a build: it has fa-tune-serve, fa-tune-worker and tests/bench_serve. Prints a row for each
figure; exit status 1 when one misses its goal. Needs NVRTC; run it on an idle machine.

    cached        answers a second and latencies of 64 kept connections
    while tuning  the same while a whole space is compiled, and the part that is lost
    cold          1,000 clients ask for one key that nobody has tuned: tunes made
    memory        resident memory before and after a million requests
    start         from exec to the first answer of /readyz
"""
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

CLIENTS = 64
PATIENCE_S = 300


def ask(seq, **more):
    return json.dumps({"problem": {"head_dim": 64, "batch": 1, "heads_q": 1, "seq_q": seq},
                       "gpu": "L4", **more}).encode()


class Daemon:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.socket = os.path.join(folder, "s")
        self.env = dict(os.environ, FA_TUNE_STORE=os.path.join(folder, "store.db"),
                        FA_TUNE_SYSTEM="", FA_TUNE_LIBCUDA="/nowhere/libcuda.so.1",
                        FA_TUNE_WORKER=os.path.join(build, "fa-tune-worker"))

    def __enter__(self):
        begin = time.perf_counter()
        self.process = subprocess.Popen(
            [os.path.join(self.build, "fa-tune-serve"), "--socket", self.socket],
            env=self.env, cwd=self.folder, stderr=subprocess.DEVNULL)
        while True:
            try:
                if self.request("GET", "/readyz")[0] == 200:
                    break
            except OSError:
                pass
            assert self.process.poll() is None, "the daemon ended"
            time.sleep(0.0005)
        self.start_ms = (time.perf_counter() - begin) * 1e3
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)

    def request(self, method, path, body=b""):
        """(status, bytes) on a connection of its own."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(PATIENCE_S)
            client.connect(self.socket)
            client.sendall(b"%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                           b"Content-Length: %d\r\n\r\n" % (method.encode(), path.encode(), len(body)) + body)
            came = b""
            while True:
                block = client.recv(1 << 16)
                if not block:
                    break
                came += block
        head, _, text = came.partition(b"\r\n\r\n")
        return int(head.split()[1]), text

    def metric(self, name):
        for line in self.request("GET", "/metrics")[1].decode().splitlines():
            if line.startswith("fa_tune_serve_%s " % name):
                return float(line.split()[1])
        raise KeyError(name)

    def load(self, body, requests, clients=CLIENTS):
        done = subprocess.run([os.path.join(self.build, "tests", "bench_serve"), self.socket,
                               str(clients), str(requests)], input=body, stdout=subprocess.PIPE,
                              check=True, timeout=PATIENCE_S)
        result = json.loads(done.stdout)
        assert result["other"] == 0, result
        return result

    def memory_kb(self):
        with open("/proc/%d/status" % self.process.pid, encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def jobs(daemon):
    return [job for job in json.loads(daemon.request("GET", "/v1/jobs")[1])["jobs"] if job["started"]]


def rate(result):
    return "%6.0f /s  p50 %5.0f us  p99 %5.0f us  max %6.0f us" % (
        result["per_second"], result["p50_us"], result["p99_us"], result["max_us"])


def cold(daemon, clients):
    """Clients of one new key at once; (answers that were made and not found, clients that were answered)."""
    good, made = [], []
    barrier = threading.Barrier(clients)

    def one():
        barrier.wait()
        status, text = daemon.request("POST", "/v1/kernel", ask(2048, effort="predict"))
        good.append(status == 200)
        made.append(status == 200 and not json.loads(text)["answer"]["from_store"])
    threads = [threading.Thread(target=one) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(made), sum(good)


def main():
    build = os.path.abspath(sys.argv[1])
    missed = []

    def row(name, text, met):
        print("%-13s %s%s" % (name, text, "" if met else "   MISSED"), flush=True)
        if not met:
            missed.append(name)
    with tempfile.TemporaryDirectory(prefix="fts-") as folder, Daemon(build, folder) as daemon:
        row("start", "%.0f ms to ready" % daemon.start_ms, daemon.start_ms < 50)
        body = ask(128, effort="predict")
        assert daemon.request("POST", "/v1/kernel", body)[0] == 200
        alone = daemon.load(body, 200000)
        row("cached", rate(alone), alone["per_second"] >= 20000 and alone["p99_us"] < 2000)
        waiting = threading.Thread(target=daemon.request, args=("POST", "/v1/kernel", ask(4096, effort="patient")))
        waiting.start()
        while not jobs(daemon):
            time.sleep(0.01)
        beside = daemon.load(body, 100000)
        state = "running" if jobs(daemon) else "over"
        lost = 1 - beside["per_second"] / alone["per_second"]
        row("while tuning", "%s  %.0f %% less (the tune is %s)" % (rate(beside), lost * 100, state),
            lost < 0.2 and beside["p99_us"] < 2000 and state == "running")
        waiting.join()
        tunes, answered = cold(daemon, 1000)
        row("cold", "%d tune for 1,000 clients, %d answered" % (tunes, answered),
            tunes == 1 and answered == 1000)
        before = daemon.memory_kb()
        daemon.load(body, 1000000)
        after = daemon.memory_kb()
        row("memory", "%d kB, after 1,000,000 requests %d kB" % (before, after),
            after - before < 1024)
    with tempfile.TemporaryDirectory(prefix="fts-") as folder, Daemon(build, folder) as daemon:
        row("start again", "%.0f ms to ready" % daemon.start_ms, daemon.start_ms < 50)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
