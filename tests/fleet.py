# SPDX-License-Identifier: Apache-2.0
"""A fleet for end-to-end tests: hosts, each a Place with a local store and maybe a fake GPU, that share
one store."""
import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import threading
import time

import postgres
import tap
from place import DEADLINE, TINY, Place

TWO = {"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0],
       "MIN_BLOCKS": [2]}
SLOW = "fault BLOCK_N=64; hang\n"  # until it is let go: Host.hanging(), Host.let_go()
FOR_EVER = ["--trial-timeout", "3600"]


class Host(Place):
    """gpu: the number of its board, or None: no GPU."""

    def __init__(self, location, gpu=None, script="", space=TWO):
        device = "device name=NVIDIA_L4 sm=89 sms=58 board=%d\n" % (gpu or 0)
        super().__init__(space=space)
        self.log = os.path.join(self.folder, "log")
        if gpu is not None:
            self.use_fake_driver(device + script + "log %s\n" % self.log)
        self.env["FA_TUNE_STORE"] = location
        self.env["FA_TUNE_LOCAL_STORE"] = self.store

    def ask(self, seq, *arguments, status=0):
        return self.json("--seq", str(seq), *TINY, *arguments, status=status)

    def enqueue(self, *lengths, gpu="L4"):
        return self.json("sweep", "--enqueue", "--gpu", gpu, "--seq",
                         ",".join(str(seq) for seq in lengths), *TINY)["sweep"]

    def queue(self):
        """The one sweep in the queue."""
        sweeps = self.json("queue")["sweeps"]
        assert len(sweeps) == 1, sweeps
        return sweeps[0]

    def begin(self, *arguments):
        """Started, for `finish` and `line_with`."""
        return self.start(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8")

    def worker(self, *arguments):
        return self.begin("worker", *arguments)

    def hanging_now(self):
        """The processes that have launched what hangs."""
        if not os.path.exists(self.log):
            return set()
        with open(self.log, encoding="utf-8") as file:
            return {int(line[len("pid="):].split()[0]) for line in file
                    if " launch " in line and "BLOCK_N=64;" in line}

    def hanging(self, process):
        """Waits until a tune is in the middle of it: nothing happens any more by itself."""
        until(lambda: self.hanging_now() or process.poll() is not None, "what hangs")
        tap.equal(process.poll(), None)

    def let_go(self, process):
        """Ends what hangs until the tune has given it up, and whatever comes after; returns at once."""
        def kill_all():
            killed = set()
            while process.poll() is None:
                for pid in self.hanging_now() - killed:
                    killed.add(pid)
                    os.kill(pid, signal.SIGKILL)
                time.sleep(0.02)
        threading.Thread(target=kill_all, daemon=True).start()


def finish(process, status=0):
    out, err = process.communicate(timeout=DEADLINE)
    assert process.returncode == status, (process.returncode, out, err)
    return out, err


def line_with(process, text):
    """Reads what a process says until a line has this text."""
    lines = []
    watch = threading.Timer(DEADLINE, process.kill)
    watch.start()
    try:
        for line in process.stderr:
            lines.append(line)
            if text in line:
                return line
    finally:
        watch.cancel()
    raise AssertionError("%r was never said, but: %s" % (text, "".join(lines)))


def until(condition, what):
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "never came: " + what
        time.sleep(0.05)


def kill(process):
    process.kill()
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


# ---- what is shared ------------------------------------------------------------------------------
class InFile:
    """A store in a file that the hosts of a test share."""

    def __init__(self):
        self.place = Place(space=None)
        self.file = self.location = self.shown = os.path.join(self.place.folder, "fleet.db")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.place.__exit__()

    def ask(self, query):
        with sqlite3.connect(self.file, timeout=DEADLINE) as store:
            return str(store.execute(query).fetchone()[0])


server = []  # the one of this process


class OnServer:
    """The same in a schema of a real PostgreSQL server."""

    def __init__(self):
        if not server:
            server.append(postgres.Server())
        self.server = server[0]
        self.location = self.server.url()
        self.schema = "test_%d" % self.server.schemas
        self.shown = "postgresql://%s@/%s" % (postgres.USER, postgres.DATABASE)
        self.gone = self.location.replace("fa-tune-pg-", "no-such-")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    @contextlib.contextmanager
    def down(self):
        self.server.crash()
        yield
        self.server.start()

    def session(self, *arguments):
        """A psql that says what it is told on its input."""
        return subprocess.Popen(
            [os.path.join(postgres.find_bin(), "psql"), "-X", "-q", "-A", "-t", "-h",
             self.server.host, "-U", postgres.USER, "-d", postgres.DATABASE, *arguments],
            env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8", "PGPASSWORD": postgres.PASSWORD,
                 "PGOPTIONS": "-csearch_path=" + self.schema},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            encoding="utf-8")

    def ask(self, query):
        psql = self.session("-c", query)
        out, err = psql.communicate()
        assert psql.returncode == 0, err
        return out.strip()


# ---- what holds whatever the store is --------------------------------------------------------------
def what_a_host_has_measured_all_of_its_kind_have(make):
    with make() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        made = one.ask(64)["answer"]
        tap.equal((made["origin"], made["from_store"]), ("measured", False))
        found = two.ask(64, "--effort", "cached")["answer"]
        tap.equal((found["origin"], found["from_store"]), ("measured-same-silicon", True))
        tap.equal((found["config"], found["cubin_key"]), (made["config"], made["cubin_key"]))


def a_key_asked_for_on_four_hosts_at_once_is_tuned_once(make):
    with make() as fleet:
        hosts = [Host(fleet.location, gpu=board) for board in range(4)]
        try:
            asking = [host.begin("--seq", "64", *TINY, "--json") for host in hosts]
            told = [json.loads(finish(process)[0])["answer"] for process in asking]
            tap.equal(sorted(answer["from_store"] for answer in told), [False, True, True, True])
            tap.equal(len({answer["cubin_key"] for answer in told}), 1)
            tap.equal(fleet.ask("SELECT count(*) FROM winner"), "1")
        finally:
            for host in hosts:
                host.__exit__()


def those_without_a_gpu_compile_for_those_with_one(make):
    with make() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        tap.equal(two.enqueue(64, 128)["items"], 2)
        out, err = finish(two.worker("--idle-exit", "0.2s"))
        tap.has(out, "0 measured, 2 compiled")
        tap.has(err, "L4: compiled")
        queue = one.queue()
        tap.equal((queue["done"], queue["compiled"], queue["pending"]), (0, 2, 2))
        before = queue["spent"]
        # Before anybody has measured, there is a guess to be had.
        tap.equal(one.json("show")["winners"][0]["answer"]["origin"], "predicted")
        out, err = finish(one.worker("--idle-exit", "0.2s"))
        tap.has(out, "2 measured, 0 compiled")
        queue = one.queue()
        tap.equal((queue["state"], queue["done"]), ("done", 2))
        # Two configs of two problems, whose source is the same: nothing was compiled anew.
        tap.equal((before["cubins_compiled"], queue["spent"]["cubins_compiled"]), (2, 2))
        tap.equal(fleet.ask("SELECT count(*) FROM winner WHERE origin = 'measured'"), "2")
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "2")


def what_a_killed_worker_had_goes_to_another(make):
    with make() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, \
            Host(fleet.location, gpu=2) as two:
        one.enqueue(64)
        victim = one.worker(*FOR_EVER)
        one.hanging(victim)
        held = two.queue()["held"]
        tap.equal([(h["stage"], h["attempts"]) for h in held], [("measure", 1)])
        tap.has(two.run("queue").stdout, " measures ")
        kill(victim)
        out, _ = finish(two.worker("--once"))
        tap.has(out, "1 measured")
        queue = two.queue()
        tap.equal((queue["state"], queue["done"], queue["held"]), ("done", 1, []))
        tap.equal(fleet.ask("SELECT attempts FROM sweep_item"), "2")
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "1")


def a_worker_told_to_stop_hands_its_problem_back(make):
    with make() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, \
            Host(fleet.location, gpu=2) as two:
        one.enqueue(64)
        worker = one.worker(*FOR_EVER)
        one.hanging(worker)
        worker.send_signal(signal.SIGTERM)
        out, err = finish(worker)
        tap.has(out, "1 handed back")
        queue = two.queue()
        tap.equal((queue["pending"], queue["running"]), (1, 0))
        finish(two.worker("--once"))
        tap.equal(two.queue()["done"], 1)


def a_sweep_and_a_worker_share_its_items(make):
    with make() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, \
            Host(fleet.location, gpu=2) as two:
        sweep = one.begin("sweep", "--gpu", "L4", "--seq", "64,128", *TINY, *FOR_EVER, "--json")
        one.hanging(sweep)
        tap.has(finish(two.worker("--once"))[0], "1 measured")
        one.let_go(sweep)
        told = json.loads(finish(sweep)[0])
        tap.equal([item["state"] for item in told["items"]], ["done", "done"])
        tap.equal(len([item for item in told["items"] if item["answer"] is not None]), 2)
        tap.equal(fleet.ask("SELECT count(*) FROM sweep_item WHERE attempts = 1"), "2")


def what_is_removed_is_removed_for_all(make):
    with make() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        one.ask(64)
        tap.has(two.run("rm", "--seq", "64").stdout, "forgot 1 winner, 2 trials")
        tap.equal(one.json("show")["winners"], [])


EVERYWHERE = [
    what_a_host_has_measured_all_of_its_kind_have,
    a_key_asked_for_on_four_hosts_at_once_is_tuned_once,
    those_without_a_gpu_compile_for_those_with_one,
    what_a_killed_worker_had_goes_to_another,
    a_worker_told_to_stop_hands_its_problem_back,
    a_sweep_and_a_worker_share_its_items,
    what_is_removed_is_removed_for_all,
]


def tests(make):
    """The tests of EVERYWHERE, each on a store of its own."""
    def on(test):
        def run():
            test(make)
        run.__name__ = test.__name__
        return run
    return [on(test) for test in EVERYWHERE]
