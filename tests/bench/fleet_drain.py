#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers drain the queue of a fleet while one of them is killed every second.

Starts a PostgreSQL server of its own (Debian's package), queues --problems problems, and keeps --workers
workers at it, each a host of its own with a local store and a GPU of the fake driver. Every --every
seconds one of them is killed with SIGKILL or, one time in --stopped, stopped for longer than its lease
and let go on: what it then publishes comes too late. Prints a table, and the result as JSON in its last
line. Exit status 1 unless every problem has exactly one winner, measured, and every result that a worker
was told came too late is counted.

    python3 tests/bench/fleet_drain.py build                              # 2,000 problems, 8 workers
    python3 tests/bench/fleet_drain.py build --problems 40 --workers 3
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SPACE = {"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0],
         "MIN_BLOCKS": [2]}


def shapes(count):
    """So many problems that cost next to nothing: pairs of lengths that are buckets of their own."""
    points = list(range(8, 16)) + [eighth << octave for octave in range(1, 6)
                                   for eighth in range(8, 16)]
    pairs = [(q, k) for q in points for k in points]
    assert count <= len(pairs), "at most %d problems" % len(pairs)
    return pairs[:count]


class Host:
    def __init__(self, folder, number, base, how):
        self.number = number
        self.folder = os.path.join(folder, "host-%d" % number)
        os.mkdir(self.folder)
        script = os.path.join(self.folder, "script")
        with open(script, "w", encoding="utf-8") as file:
            file.write("device name=NVIDIA_L4 sm=89 sms=58 board=%d\n" % (number % 200))
        self.env = dict(base, HOME=self.folder, FAKE_CUDA_SCRIPT=script,
                        FA_TUNE_LOCAL_STORE=os.path.join(self.folder, "store.db"))
        self.command = how
        self.process = None
        self.said = None
        self.stopped_until = None
        self.refused = 0
        self.failures = []

    def start(self):
        self.said = tempfile.TemporaryFile("w+", dir=self.folder, encoding="utf-8")
        self.process = subprocess.Popen(self.command, env=self.env, stdin=subprocess.DEVNULL,
                                        stdout=self.said, stderr=subprocess.STDOUT)

    def ended(self):
        """Takes the account of one that has ended; True: it has."""
        if self.process.poll() is None:
            return False
        self.said.seek(0)
        text = self.said.read()
        self.said.close()
        self.refused += text.count("came too late")
        if self.process.returncode not in (0, -signal.SIGKILL):
            self.failures.append(text[-500:])
        return True


def queue_of(fa_tune, env):
    done = subprocess.run([fa_tune, "queue", "--json"], env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                          check=False)
    if done.returncode != 0:
        sys.exit("fa-tune queue: " + done.stderr)
    sweeps = json.loads(done.stdout)["sweeps"]
    names = ("items", "done", "failed", "running", "refused")
    return dict({name: sum(sweep[name] for sweep in sweeps) for name in names},
                open=any(sweep["state"] == "running" for sweep in sweeps))


def enqueue(fa_tune, env, folder, problems):
    plan = os.path.join(folder, "plan.jsonl")
    with open(plan, "w", encoding="utf-8") as file:
        for seq_q, seq_k in problems:
            file.write(json.dumps({"gpu": "L4", "seq_q": seq_q, "seq_k": seq_k, "heads_q": 1,
                                   "batch": 1}) + "\n")
    done = subprocess.run([fa_tune, "sweep", "--enqueue", "--plan", plan], env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode != 0:
        sys.exit("fa-tune sweep --enqueue: " + done.stderr)


def disturb(hosts, chance, options, account):
    """Kills a worker, or stops one for longer than its lease."""
    running = [host for host in hosts if host.process.poll() is None and not host.stopped_until]
    if not running:
        return
    host = chance.choice(running)
    if options.stopped > 0 and chance.randrange(options.stopped) == 0:
        host.process.send_signal(signal.SIGSTOP)
        host.stopped_until = time.monotonic() + options.lease * 3
        account["stopped"] += 1
    else:
        host.process.kill()
        account["killed"] += 1


def drain(hosts, chance, options, account, queue):
    """Until nothing is left in the queue."""
    next_kill = time.monotonic() + options.every
    next_look = 0.0
    end = time.monotonic() + options.limit
    told = {"open": True}
    while told["open"]:
        now = time.monotonic()
        if now > end:
            sys.exit("not drained after %d s: %r" % (options.limit, told))
        for host in hosts:
            if host.stopped_until is not None and now >= host.stopped_until:
                host.process.send_signal(signal.SIGCONT)
                host.stopped_until = None
            if host.ended():
                host.start()
        if now >= next_kill and account["killed"] + account["stopped"] < options.kills:
            disturb(hosts, chance, options, account)
            next_kill = now + options.every
        if now >= next_look:
            told = queue()
            next_look = time.monotonic() + 1
            if sys.stderr.isatty():
                print("\r%(done)d/%(items)d done, %(running)d held, %(refused)d refused " % told,
                      end="", file=sys.stderr)
        time.sleep(0.02)
    if sys.stderr.isatty():
        print(file=sys.stderr)


def finish(hosts):
    for host in hosts:
        if host.stopped_until is not None:
            host.process.send_signal(signal.SIGCONT)
    for host in hosts:
        host.process.terminate()
    for host in hosts:
        host.process.wait()
        host.ended()


def run(options, folder, server):
    sys.path.insert(0, os.path.join(HERE, ".."))
    from place import Place
    with Place(space=SPACE) as place:
        fa_tune = os.path.join(options.build, "fa-tune")
        env = dict(place.env, FA_TUNE_STORE=server.url(), FA_TUNE_LEASE=str(options.lease),
                   FA_TUNE_LIBCUDA=os.environ["FA_TEST_FAKE_CUDA"])
        asking = dict(env, FA_TUNE_LOCAL_STORE=os.path.join(folder, "asking.db"), HOME=folder)
        problems = shapes(options.problems)
        enqueue(fa_tune, asking, folder, problems)
        hosts = [Host(folder, n, env, [fa_tune, "worker", "--jobs", "1", "--idle-exit", "1h"])
                 for n in range(options.workers)]
        account = {"killed": 0, "stopped": 0}
        chance = random.Random(options.random)
        begin = time.monotonic()
        for host in hosts:
            host.start()
        try:
            drain(hosts, chance, options, account, lambda: queue_of(fa_tune, asking))
            took = time.monotonic() - begin
            finish(hosts)
        finally:
            for host in hosts:
                if host.process is not None and host.process.poll() is None:
                    host.process.kill()
                    host.process.wait()
        told = queue_of(fa_tune, asking)
        shown = subprocess.run([fa_tune, "show", "--json"], env=asking, stdout=subprocess.PIPE,
                               encoding="utf-8", check=True)
        return dict(account, random=options.random, problems=len(problems), seconds=round(took, 1),
                    done=told["done"], failed=told["failed"], refused_counted=told["refused"],
                    refused_told=sum(host.refused for host in hosts),
                    failures=[text for host in hosts for text in host.failures],
                    winners=json.loads(shown.stdout)["winners"])


def judge(told):
    """What is not as it should be."""
    wrong = list(told["failures"])
    winners = told.pop("winners")
    asked = set(shapes(told["problems"]))
    have = [(w["problem"]["seq_q"], w["problem"]["seq_k"]) for w in winners]
    told["winners"] = len(have)
    told["distinct"] = len(set(have) & asked)
    if told["done"] != told["problems"] or told["failed"] != 0:
        wrong.append("%(done)d of %(problems)d problems are done, %(failed)d failed" % told)
    if told["winners"] != told["problems"] or told["distinct"] != told["problems"]:
        wrong.append("%(winners)d winners of %(distinct)d problems" % told)
    unmeasured = sum(w["answer"]["origin"] != "measured" for w in winners)
    if unmeasured > 0:
        wrong.append("%d winners are not measured" % unmeasured)
    # A worker that is killed between the refusal and its line has told nobody.
    if told["refused_counted"] < told["refused_told"]:
        wrong.append("%(refused_told)d results came too late, %(refused_counted)d are counted" % told)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--problems", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between two kills (1)")
    parser.add_argument("--kills", type=int, default=1 << 30,
                        help="after so many the workers are left alone (no limit): a machine too slow to end "
                             "any problem between two kills gives each up after its attempts")
    parser.add_argument("--stopped", type=int, default=8,
                        help="one of so many is stopped instead of killed (8; 0: none)")
    parser.add_argument("--lease", type=int, default=3, help="seconds (3)")
    parser.add_argument("--random", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--limit", type=int, default=3600, help="seconds until it is given up")
    options = parser.parse_args()
    options.build = os.path.abspath(options.build)
    source = os.path.dirname(os.path.dirname(HERE))
    os.environ.setdefault("FA_TEST_SOURCE", source)
    os.environ.setdefault("FA_TEST_BUILD", options.build)
    os.environ.setdefault("FA_TEST_TEMPLATES", os.path.join(source, "kernel_templates", "attn_fwd"))
    os.environ.setdefault("FA_TEST_FAKE_CUDA",
                          os.path.join(options.build, "tests/fake/libcuda.so.1"))
    sys.path.insert(0, os.path.dirname(HERE))
    import postgres
    folder = tempfile.mkdtemp(prefix="fleet-drain-", dir=os.path.join(options.build, "tests"))
    try:
        with postgres.Server() as server:
            told = run(options, folder, server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    wrong = judge(told)
    for name in ("problems", "done", "winners", "killed", "stopped", "refused_counted",
                 "refused_told", "seconds", "random"):
        print("%-16s %s" % (name, told[name]))
    for sentence in wrong:
        print("fleet_drain: " + sentence, file=sys.stderr)
    print(json.dumps(told))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
