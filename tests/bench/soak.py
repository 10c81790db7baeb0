#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A long run of everything at once over one store, on the fake driver, with processes killed throughout.

    python3 tests/bench/soak.py BUILD [--minutes 60] [--seed N] [--pause-ms 100]

Two daemons serve one store: "lasting" runs from end to end, "mortal" is killed (SIGKILL) every half minute
and started again. Clients ask both for stored and for new problems, start tunes and leave them, read
lists, metrics and cubins, send what is no request, and hang up. Commands tune new problems, half of them
killed in mid-tune, and others show, report, export and verify the store.

What was told as stored (an answer, an exit status 0) is written down and must be there ever after, with a
cubin whose bytes have its hash. Prints a row a minute (memory, descriptors and threads of the lasting daemon,
and counts) and a sum; exit status 1 when something was lost, answered wrongly, or damaged.
"""
import argparse
import collections
import hashlib
import http.client
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
FAST = "time BLOCK_M=128 40\ntime BLOCK_M=64 60\n"
HOSTILE = [b"", b"{", b"[" * 5000, b"\0" * 64, b'{"problem":{}}', b'{"problem":{"head_dim":7}}',
           b'{"problem":{"head_dim":64,"batch":1,"heads_q":1,"seq_q":-1}}', b'"' * 999,
           b'{"problem":{"head_dim":64,"batch":1,"heads_q":1,"seq_q":64},"gpu":"none such"}']


def fit(build):
    """What the tests' own modules read."""
    root = os.path.dirname(os.path.dirname(FOLDER))
    build = os.path.abspath(build)
    os.environ.update(FA_TEST_SOURCE=root, FA_TEST_BUILD=build,
                      FA_TEST_TEMPLATES=os.path.join(root, "kernel_templates", "attn_fwd"),
                      FA_TEST_FAKE_CUDA=os.path.join(build, "tests", "fake", "libcuda.so.1"),
                      FA_TUNE_WORKER=os.path.join(build, "fa-tune-worker"))
    sys.path.insert(0, os.path.join(root, "tests"))


class Soak:
    def __init__(self, place, lasting, mortal, options):
        self.place, self.daemons = place, (lasting, mortal)
        self.lasting, self.mortal = lasting, mortal
        self.pause = options.pause_ms / 1e3
        self.random = random.Random(options.seed)
        self.end = time.monotonic() + options.minutes * 60
        self.lock = threading.Lock()
        self.counts, self.wrongs, self.stored = collections.Counter(), [], {}
        self.mortal_up = threading.Event()
        self.mortal_up.set()

    def over(self):
        return time.monotonic() >= self.end

    def count(self, what, number=1):
        with self.lock:
            self.counts[what] += number

    def wrong(self, text):
        with self.lock:
            self.wrongs.append(text)
        print("WRONG " + text[:600], flush=True)

    def keep(self, batch, heads, seq):
        with self.lock:
            self.stored[batch, heads, seq] = time.time()

    def new_problem(self):
        """Lengths are points of their buckets, so that each is a winner of its own."""
        return (self.random.randint(1, 64), self.random.randint(1, 16),
                self.random.choice((16, 32, 48, 64, 96, 128)))

    def old_problem(self):
        with self.lock:
            return self.random.choice(list(self.stored)) if self.stored else None

    # ---- clients ----
    def kernel(self, daemon, problem, effort):
        batch, heads, seq = problem
        status, answer = daemon.post("/v1/kernel", {
            "problem": {"head_dim": 64, "batch": batch, "heads_q": heads, "seq_q": seq}, "effort": effort,
            "timeout_ms": 60000})
        self.count("answers %d" % status)
        return status, answer

    def ask_stored(self, daemon):
        problem = self.old_problem()
        if problem is None:
            return
        status, answer = self.kernel(daemon, problem, "cached")
        if status == 503:
            return
        if status != 200 or answer["answer"]["origin"] != "measured":
            return self.wrong("a stored winner of %r is answered with %d: %r" % (problem, status, answer))
        if self.random.random() < 0.2:
            key = answer["answer"]["cubin_key"]
            status, data, headers = daemon.get("/v1/cubins/" + key, raw=True)
            if status != 200 or headers["ETag"] != '"%s"' % hashlib.sha256(data).hexdigest():
                self.wrong("cubin %s: status %d" % (key, status))

    def ask_new(self, daemon):
        problem = self.new_problem()
        status, answer = self.kernel(daemon, problem, "measure")
        if status == 200 and answer["answer"]["origin"] == "measured":
            self.keep(*problem)
        elif status not in (200, 202, 503, 504):
            self.wrong("a new problem %r is answered with %d: %r" % (problem, status, answer))

    def leave_tune(self, daemon):
        """Asks for a tune and, soon, leaves."""
        batch, heads, seq = self.new_problem()
        connection = daemon.connect()
        connection.request("POST", "/v1/kernel", json.dumps(
            {"problem": {"head_dim": 64, "batch": batch, "heads_q": heads, "seq_q": seq}}))
        time.sleep(self.random.random())
        connection.close()
        self.count("left")

    def read(self, daemon):
        path = self.random.choice(("/v1/winners", "/v1/jobs", "/metrics", "/healthz", "/v1/sweeps", "/nothing"))
        status = daemon.get(path, raw=True)[0]
        self.count("reads")
        if status != (404 if path == "/nothing" else 200) and status != 503:
            self.wrong("%s is answered with %d" % (path, status))

    def send_nonsense(self, daemon):
        path = self.random.choice(("/v1/kernel", "/v1/sweeps"))
        status, answer = daemon.post(path, self.random.choice(HOSTILE))
        self.count("hostile bodies")
        if status not in (400, 404, 422, 503):
            self.wrong("nonsense is answered with %d: %r" % (status, answer))

    def hang_up(self, daemon):
        with daemon.raw_socket() as client:
            client.sendall(b"POST /v1/kernel HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n{"[
                :self.random.randint(1, 70)])
        self.count("hung up")

    def client(self, acts):
        while not self.over():
            daemon, starts = self.random.choice(self.daemons), self.mortal.starts
            if daemon is self.mortal and not self.mortal_up.wait(1):
                continue
            try:
                self.random.choice(acts)(daemon)
                self.count("requests")
            except (OSError, http.client.HTTPException) as error:
                if daemon is self.mortal and (not self.mortal_up.is_set() or starts != self.mortal.starts):
                    self.count("cut off by a kill")
                else:
                    self.wrong("no answer: %r" % error)
            except Exception as error:  # an answer that its description does not allow, too
                self.wrong("%r" % error)
            time.sleep(self.pause * 2 * self.random.random())

    # ---- commands ----
    def tune(self):
        batch, heads, seq = self.new_problem()
        command = ("tune", "--batch", str(batch), "--heads", str(heads), "--seq", str(seq), "--quiet")
        with open(os.devnull, "wb") as null:
            process = self.place.start(*command, stdin=null, stdout=null, stderr=subprocess.PIPE)
        if self.random.random() < 0.5:
            time.sleep(self.random.random() * 0.8)
            process.kill()
        error = process.communicate()[1]
        if process.returncode == 0:
            self.keep(batch, heads, seq)
            self.count("tunes")
        elif process.returncode == -signal.SIGKILL:
            self.count("tunes killed")
        else:
            self.wrong("tune ended with %d: %s" % (process.returncode, error))

    def look(self):
        """Everything that was told as stored is shown; what is exported is whole."""
        with self.lock:
            known = set(self.stored)
        shown = set()
        for winner in self.place.json("show")["winners"]:
            problem = winner["problem"]
            if winner["answer"]["origin"] == "measured":
                shown.add((problem["batch"], problem["heads_q"], problem["seq_q"]))
        if known - shown:
            self.wrong("%d stored winners are not shown: %r" % (len(known - shown), sorted(known - shown)[:5]))
        self.place.json("report")
        out = os.path.join(self.place.folder, "all.fab")
        self.place.run("export", "--unsigned", "--out", out, "--quiet")
        bundle = self.place.json("show", out)
        if len(bundle["winners"]) < len(known):
            self.wrong("a bundle of %d winners, of %d" % (len(bundle["winners"]), len(known)))
        os.unlink(out)
        self.count("looks")

    def commands(self, act, rest_s):
        while not self.over():
            try:
                act()
            except Exception as error:
                self.wrong("%s: %r" % (act.__name__, error))
            time.sleep(rest_s * 2 * self.random.random())

    def kill(self):
        while not self.over():
            time.sleep(30 * (0.5 + self.random.random()))
            self.mortal_up.clear()
            self.mortal.kill()
            time.sleep(self.random.random())
            try:
                self.mortal.start()
            except AssertionError as error:
                return self.wrong("it does not start again: %s" % error)
            self.count("daemons killed")
            self.mortal_up.set()
        return None

    # ---- figures ----
    def sample(self):
        process = "/proc/%d/" % self.lasting.process.pid
        with open(process + "status", encoding="utf-8") as file:
            status = dict(line.split(":", 1) for line in file)
        return {"kB": int(status["VmRSS"].split()[0]), "threads": int(status["Threads"]),
                "descriptors": len(os.listdir(process + "fd"))}

    def run(self):
        begin, samples = time.monotonic(), []
        quick = [self.ask_stored] * 12 + [self.read] * 6 + [self.send_nonsense, self.hang_up] * 2
        threads = [threading.Thread(target=self.client, args=(acts,)) for acts in (
            quick, quick, quick + [self.ask_new] * 4 + [self.leave_tune] * 2)]
        threads += [threading.Thread(target=self.commands, args=how) for how in (
            (self.tune, 8), (self.look, 20))]
        threads += [threading.Thread(target=self.kill)]
        for thread in threads:
            thread.start()
        while not self.over():
            time.sleep(max(0, min(60, self.end - time.monotonic())))
            samples.append(self.sample())
            print("%5.1f min  %s  winners %d  requests %d  wrong %d" % (
                (time.monotonic() - begin) / 60, json.dumps(samples[-1]), len(self.stored),
                self.counts["requests"], len(self.wrongs)), flush=True)
        for thread in threads:
            thread.join()
        self.look()
        return samples


def check_store(soak):
    with sqlite3.connect("file:%s?mode=ro" % soak.place.store, uri=True) as database:
        found = database.execute("PRAGMA integrity_check").fetchall()
    if found != [("ok",)]:
        soak.wrong("integrity_check: %r" % found[:3])
    for name in os.listdir(soak.place.folder):
        if ".corrupt-" in name:
            soak.wrong("the store was set aside: " + name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "little"))
    parser.add_argument("--pause-ms", type=float, default=100, help="of a client, between requests")
    options = parser.parse_args()
    fit(options.build)
    from serve import L4, Serve, a_place
    print("seed %d, %g minutes" % (options.seed, options.minutes), flush=True)
    with a_place(L4 + FAST) as place:
        with Serve(place) as lasting, Serve(place) as mortal:
            soak = Soak(place, lasting, mortal, options)
            samples = soak.run()
        check_store(soak)
    print(json.dumps({"seed": options.seed, "minutes": options.minutes, "winners": len(soak.stored),
                      "counts": dict(sorted(soak.counts.items())), "wrong": len(soak.wrongs),
                      "first": samples[0], "middle": samples[len(samples) // 2], "last": samples[-1]}, indent=1))
    sys.exit(1 if soak.wrongs else 0)


if __name__ == "__main__":
    main()
