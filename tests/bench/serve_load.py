#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon carries, without a GPU: clients on the same machine, over its Unix socket.

    python3 tests/bench/serve_load.py FOLDER

FOLDER is a build. Prints from exec to the first answer of /readyz, answers a second and latencies of 64 kept connections, and the same while a
whole space is compiled; exit status 1 when one misses its goal. Needs NVRTC; run it on an idle machine.
"""
import http.client
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
    return json.dumps({"problem": {"head_dim": 64, "batch": 1, "heads_q": 1, "seq_q": seq}, "gpu": "L4", **more}).encode()


class Daemon:
    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.socket = os.path.join(folder, "s")
        self.env = dict(os.environ, FA_TUNE_STORE=os.path.join(folder, "store.db"), FA_TUNE_SYSTEM="",
                        FA_TUNE_LIBCUDA="/nowhere/libcuda.so.1", FA_TUNE_WORKER=os.path.join(build, "fa-tune-worker"))

    def __enter__(self):
        begin = time.perf_counter()
        self.process = subprocess.Popen([os.path.join(self.build, "fa-tune-serve"), "--socket", self.socket],
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

    def request(self, method, path, body=None):
        """(status, bytes) on a connection of its own."""
        connection = http.client.HTTPConnection("localhost", timeout=PATIENCE_S)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with connection.sock:
            connection.sock.connect(self.socket)
            connection.request(method, path, body)
            response = connection.getresponse()
            return response.status, response.read()

    def load(self, body, requests, clients=CLIENTS):
        before = self.cpu_s()
        done = subprocess.run([os.path.join(self.build, "tests", "bench_serve"), self.socket, str(clients), str(requests)],
                              input=body, stdout=subprocess.PIPE, check=True, timeout=PATIENCE_S)
        result = json.loads(done.stdout)
        assert result["other"] == 0, result
        return dict(result, cpu_us=(self.cpu_s() - before) / requests * 1e6)

    def cpu_s(self):
        with open("/proc/%d/stat" % self.process.pid, encoding="utf-8") as file:
            return sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def is_tuning(daemon):
    return any(job["started"] for job in json.loads(daemon.request("GET", "/v1/jobs")[1])["jobs"])


def rate(result):
    return "%6.0f /s  p50 %5.0f us  p99 %5.0f us  max %6.0f us, %.2f us of the processor" % (
        result["per_second"], result["p50_us"], result["p99_us"], result["max_us"], result["cpu_us"])


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
        row("cached", rate(alone), alone["per_second"] >= 100000 and alone["p99_us"] < 2000)
        waiting = threading.Thread(target=daemon.request, args=("POST", "/v1/kernel", ask(4096, effort="patient")))
        waiting.start()
        while not is_tuning(daemon):
            time.sleep(0.01)
        beside = daemon.load(body, 100000)
        state = "running" if is_tuning(daemon) else "over"
        lost = 1 - beside["per_second"] / alone["per_second"]
        row("while tuning", "%s  %.0f %% less (the tune is %s)" % (rate(beside), lost * 100, state),
            lost < 0.2 and beside["p99_us"] < 2000 and state == "running")
        waiting.join()
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
