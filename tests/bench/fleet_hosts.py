#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Many processes that start at once on one PostgreSQL server, which is restarted while they work and some of which are killed.

Starts a server of its own (Debian's package, fsync off). Each process is a host of its own, with an L4 of the fake driver: it opens a session
on that store, tunes its key unless somebody has, and then asks for the stored answer --asks times, on average every --every seconds (p50 and
p99 are of these). In the rows "killed" a tenth of them is killed (SIGKILL) and started again, in the rows "restarted" the server is, in the
middle: "pushed" winners were kept in local files meanwhile, and "missed" asks could not be answered from these. Prints a table, what one process
asks of the server, through a proxy that counts, and the rows as JSON in the last line. Exit status 1 where a key was lost, a process
failed, or a key was tuned twice though server and processes lived.

    python3 tests/bench/fleet_hosts.py build                                # 200 processes on 1 and on 50 keys
    python3 tests/bench/fleet_hosts.py build --processes 20 --keys 5
"""
import argparse
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SPACE = {"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}


def lengths(count):
    """So many pairs of lengths that are buckets of their own."""
    points = list(range(8, 16)) + [eighth << octave for octave in range(1, 6) for eighth in range(8, 16)]
    return [(q, k) for q in points for k in points][:count]


# ---- one process -----------------------------------------------------------------------------------
def ask(key, effort):
    import fa_tune._core
    return fa_tune._core.tune({"head_dim": 64, "batch": 1, "heads_q": 1, "seq_q": key[0], "seq_k": key[1]}, effort=effort, progress=False)


def live(key, options, out, go, begin):
    said = {"tunes": 0, "times": [], "missed": 0, "failed": ""}
    time.sleep(max(0.0, begin - time.monotonic()))
    try:
        said["tunes"] = int(not ask(key, "measure")["from_store"])
        said["start"] = time.monotonic() - begin
        open(out + ".first", "w", encoding="utf-8").close()
        while not os.path.exists(go):
            time.sleep(0.1)
        for _ in range(options.asks):
            time.sleep(random.uniform(0, 2 * options.every))
            before = time.perf_counter()
            try:
                ask(key, "cached")
            except Exception:  # tuned by another, and this process's server is gone
                said["missed"] += 1
            said["times"].append(1000 * (time.perf_counter() - before))
    except Exception as error:  # its sentence is in the result
        said["failed"] = str(error)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(said, file)


class Hosts:
    def __init__(self, env, folder, options):
        self.env, self.folder, self.options = env, folder, options
        self.alive = {}  # pid -> the host's number and key
        self.out = []

    def start(self, number, key, begin):
        out = os.path.join(self.folder, "said-%d" % len(self.out))
        self.out.append(out)
        pid = os.fork()
        if pid == 0:
            script = os.path.join(self.folder, "script-%d" % number)
            with open(script, "w", encoding="utf-8") as file:
                file.write("device name=NVIDIA_L4 sm=89 sms=58 board=%d\n" % number)
            with open(os.path.join(self.folder, "log-%d" % number), "ab") as log:
                os.dup2(log.fileno(), 2)
            os.environ.update(self.env, FA_TUNE_LOCAL_STORE=self.file(number), FAKE_CUDA_SCRIPT=script)
            random.seed(number)
            live(key, self.options, out, os.path.join(self.folder, "go"), begin)
            os._exit(0)
        self.alive[pid] = (number, key, out)

    def file(self, number):
        return os.path.join(self.folder, "host-%d.db" % number)

    def kill_some(self, chance):
        for pid in chance.sample(sorted(self.alive), max(1, len(self.alive) // 10)):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            number, key, _ = self.alive.pop(pid)
            self.start(number, key, time.monotonic())

    def wait_for_the_first_answers(self):
        """What is asked later is timed while nobody tunes."""
        while not all(os.path.exists(out) or os.path.exists(out + ".first") for _, _, out in self.alive.values()):
            time.sleep(0.1)
        open(os.path.join(self.folder, "go"), "w", encoding="utf-8").close()


# ---- a row -----------------------------------------------------------------------------------------
def push(env, hosts, processes):
    pushed = 0
    for number in range(processes):
        if os.path.exists(hosts.file(number)):
            done = subprocess.run([os.path.join(os.environ["FA_TEST_BUILD"], "fa-tune"), "push", "--json"],
                                  env=dict(env, FA_TUNE_LOCAL_STORE=hosts.file(number)), stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, encoding="utf-8", check=True)
            pushed += json.loads(done.stdout)["added"]
    return pushed


def row(server, env, keys, what, options, chance):
    url = server.url()
    env = dict(env, FA_TUNE_STORE=url)
    folder = tempfile.mkdtemp(prefix="fleet-hosts-", dir=os.path.join(os.environ["FA_TEST_BUILD"], "tests"))
    try:
        hosts = Hosts(env, folder, options)
        begin = time.monotonic() + 0.5
        for number in range(options.processes):
            hosts.start(number, lengths(keys)[number % keys], begin)
        time.sleep(max(0.0, begin + options.middle - time.monotonic()))
        if what == "killed":
            hosts.kill_some(chance)
        if what == "restarted":
            server.crash()
            server.start()
        hosts.wait_for_the_first_answers()
        for pid in hosts.alive:
            os.waitpid(pid, 0)
        said = [json.load(open(out, encoding="utf-8")) for out in hosts.out if os.path.exists(out)]
        pushed = push(env, hosts, options.processes)
        shown = json.loads(subprocess.run([os.path.join(os.environ["FA_TEST_BUILD"], "fa-tune"), "show", "--json"],
                                          env=env, stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    times = sorted(ms for one in said for ms in one["times"])
    failed = [one["failed"] for one in said if one["failed"]]
    for sentence in sorted(set(failed)):
        print("fleet_hosts: " + sentence, file=sys.stderr)
    return {"processes": options.processes, "keys": keys, "what": what, "tunes": sum(one["tunes"] for one in said),
            "pushed": pushed, "lost": keys - len(shown["winners"]), "failed": len(failed), "missed": sum(one["missed"] for one in said),
            "start_s": round(max([one.get("start", 0) for one in said]), 2),
            "p50_ms": round(times[len(times) // 2], 2), "p99_ms": round(times[len(times) * 99 // 100], 2)}


# ---- what one process asks ---------------------------------------------------------------------------
class Proxy:
    """Between a process and the server's socket: counts what each of both says."""

    def __init__(self, host):
        self.there = os.path.join(host, ".s.PGSQL.5432")
        self.folder = tempfile.mkdtemp(prefix="fleet-proxy-", dir="/tmp")
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(os.path.join(self.folder, ".s.PGSQL.5432"))
        self.listener.listen()
        self.count = [0, 0]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.there)
            for i, (a, b) in enumerate(((client, server), (server, client))):
                threading.Thread(target=self.copy, args=(i, a, b), daemon=True).start()

    def copy(self, i, a, b):
        try:
            while data := a.recv(1 << 16):
                self.count[i] += len(data)
                b.sendall(data)
        except OSError:  # the other side is gone
            pass
        b.close()

    def taken(self):
        time.sleep(0.1)
        taken, self.count = self.count, [0, 0]
        return {"sent": taken[0], "received": taken[1]}


def traffic(server, env):
    import postgres
    url = server.url()
    proxy = Proxy(server.host)
    schema = url.rsplit("%3D", 1)[1]
    program = ("import sys, json; sys.path[:0] = %r; from fleet_hosts import ask\n"
               "for line in sys.stdin: ask(*json.loads(line)); print('ok', flush=True)" % [HERE, os.path.join(os.environ["FA_TEST_BUILD"], "python")])
    counted = {}
    for first in ("a tune of 2 configs, with the start", "the start and a stored answer"):
        process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   encoding="utf-8", env={**os.environ, **env, "FA_TUNE_STORE": postgres.address(proxy.folder, schema),
                                                              "FA_TUNE_LOCAL_STORE": os.path.join(proxy.folder, "store.db")})
        for what in (first, "a stored answer"):
            process.stdin.write(json.dumps([[64, 64], "measure"]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ok\n"
            counted[what] = proxy.taken()
        process.communicate()
        proxy.taken()
    shutil.rmtree(proxy.folder)
    return counted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--processes", type=int, default=200)
    parser.add_argument("--keys", type=int, default=50)
    parser.add_argument("--asks", type=int, default=20)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two asks of a process (1)")
    parser.add_argument("--middle", type=float, default=1.5, help="seconds from the start to what happens in the middle (1.5)")
    options = parser.parse_args()
    source = os.path.dirname(os.path.dirname(HERE))
    build = os.path.abspath(options.build)
    for name, value in (("SOURCE", source), ("BUILD", build), ("CONNECTIONS", str(options.processes + 20)),
                        ("TEMPLATES", os.path.join(source, "kernel_templates", "attn_fwd")),
                        ("FAKE_CUDA", os.path.join(build, "tests/fake/libcuda.so.1"))):
        os.environ["FA_TEST_" + name] = value if name == "CONNECTIONS" else os.environ.get("FA_TEST_" + name, value)
    sys.path[:0] = [os.path.join(build, "python"), os.path.dirname(HERE)]
    import postgres
    import fa_tune._core  # once, for all that are forked
    from place import Place
    rows = []
    chance = random.Random(1)
    with postgres.Server() as server, Place(space=SPACE) as place:
        place.use_fake_driver("device name=NVIDIA_L4 sm=89 sms=58\n")
        env = dict(place.env, FA_TUNE_WORKER=os.path.join(build, "fa-tune-worker"))
        print("%9s %5s  %-10s %6s %7s %5s %7s %7s %8s %7s %7s" % ("processes", "keys", "meanwhile", "tunes", "pushed", "lost",
                                                              "failed", "missed", "start s", "p50 ms", "p99 ms"))
        for keys in (1, options.keys):
            for what in ("", "killed", "restarted"):
                told = row(server, env, keys, what, options, chance)
                rows.append(told)
                print("%(processes)9d %(keys)5d  %(what)-10s %(tunes)6d %(pushed)7d %(lost)5d %(failed)7d %(missed)7d %(start_s)8.2f "
                      "%(p50_ms)7.2f %(p99_ms)7.2f" % told, flush=True)
        for what, count in traffic(server, env).items():
            print("%s: %d bytes sent, %d received" % (what, count["sent"], count["received"]))
    print(json.dumps(rows))
    wrong = [told for told in rows if told["lost"] or told["failed"] or (told["tunes"] != told["keys"] and not told["what"])]
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
