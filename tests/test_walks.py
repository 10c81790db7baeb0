#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An allocation, or an I/O call, of a whole command fails: once, or that one and all after it
(tests/failing_calls.c). It is the first or the last call from each place of the command that allocates or does
I/O. Each run ends with the right answer, or with a sentence and exit status 1; never by a signal; and the store
keeps what it had.

A sample of the places is tried; all of them with `./dev test --slow` (FA_TEST_SLOW=1).

    test_walks.py NAME                one walk, whole
    test_walks.py NAME KIND ON        one way of it, whole
    test_walks.py NAME KIND ON POINT  one point of it, with the call's stack
"""
import contextlib
import difflib
import errno
import hashlib
import itertools
import os
import pprint
import shutil
import sqlite3
import subprocess
import sys

import failing
import tap
from place import BUILD, DEADLINE, FA_TUNE, Place, is_sanitized
from serve import FAST, L4, TWO

SLOW = os.environ.get("FA_TEST_SLOW") == "1"
POINTS = {"tune": 3, "compile_worker": 3, "measure_worker": 2}  # that are tried where not all are
WAYS = (("memory", False), ("memory", True), ("io", False), ("io", True))
MANY = 4  # of the others, which take milliseconds
EVERY_PLACE = {("compile_worker", "memory", True)}  # always: one of fifty is enough to blame a config for want of memory
PROBLEM = ("--seq", "128", "--batch", "1", "--heads", "1")
COMPUTED = (*PROBLEM, "--seq", "32", "--head-dim", "32")  # what the fake driver computes takes a fifth of the time


class Walk:
    """A command in a place of its own. command(place) gives its arguments; answer(place, done) what it
    answered, which has to be the same in each run that ends with 0; reset(place) comes before each run.
    reads: it changes nothing in the store, not a byte. role: the calls of its workers of that role fail, in the
    place of its own. beyond: the name of a quicker walk of the same program; what it calls from the same place, with
    the same stack, is left to it."""

    def __init__(self, command, answer=None, reset=None, prepare=None, script=None, reads=True, program="fa-tune",
                 path=FA_TUNE, role=None, beyond=None):
        self.command, self.script, self.reads, self.role = command, script, reads, role
        self.answer = answer or (lambda place, done: done.stdout)
        self.reset = reset or (lambda place: None)
        self.prepare = prepare or (lambda place: None)
        self.program, self.path, self.beyond = program, path, beyond
        self.no_driver = 77 if path != FA_TUNE else None

    def place(self):
        place = Place(space=TWO, script=self.script)
        place.env["FA_TUNE_WORKER"] = os.path.join(BUILD, "fa-tune-worker")
        place.told = failing.Told(place.folder)
        place.calls = {}  # of a kind
        place.verdicts = set()
        store_two(place)
        self.prepare(place)
        make_old(place)
        return place

    def run(self, place, kind, point=None, on=False, stack=False):
        env = dict(place.env, **place.told.env(self.program, kind, point, on, stack))
        if self.role is not None:
            self.wrap_worker(place, env)
        return subprocess.run([self.path, *self.command(place)], env=env, cwd=place.folder,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", errors="replace", check=False, timeout=DEADLINE)

    def wrap_worker(self, place, env):
        """Compile workers get no environment, so a script sets it."""
        lines = ["export %s=%s" % (name, env.pop(name)) for name in sorted(env) if
                 name.startswith("FAIL_") or name == "LD_PRELOAD"]
        env["FA_TUNE_WORKER"] = os.path.join(place.folder, "worker")
        tap.write(env["FA_TUNE_WORKER"], "#!/bin/sh\nif [ $1 = %s ]; then\n%s\nfi\nexec %s \"$@\"\n" % (
                                  self.role, "\n".join(lines), os.path.join(BUILD, "fa-tune-worker")))
        os.chmod(env["FA_TUNE_WORKER"], 0o700)

    def look(self, place, kind):
        """What the command calls when nothing fails, and the right answer."""
        if kind not in place.calls:
            self.reset(place)
            done = self.run(place, kind)
            assert done.returncode == 0, done.stderr
            place.verdicts |= verdicts(place)
            place.calls[kind] = self.left_of(place.told.calls(), kind), self.answer(place, done)
        return place.calls[kind]

    def left_of(self, calls, kind):
        """Those that are walked here."""
        if self.beyond is None:
            return calls
        with closed_after_failure(self.beyond) as place:
            others = WALKS[self.beyond].look(place, kind)[0]
        known = {each.place for each in others}
        return [each for each in calls if each.place not in known]


two = []  # Place.take_store()


def store_two(place):
    """Two predicted winners: tuned once for all walks."""
    def predict():
        place.take_cubins(TWO)
        for seq in ("64", "256"):  # with the first of them, the store's file is marked as one
            place.run("tune", "--gpu", "L4", *PROBLEM, "--seq", seq, "--quiet")
        make_old(place)
    place.take_store(two, predict)


def make_old(place):
    """When a winner was made is then the same text for hours."""
    with sqlite3.connect(place.store) as database:
        database.execute("UPDATE winner SET unix_time = 1700000000")
    database.close()


def stored(place):
    """What must not be lost: the winners, with the hash of each one's cubin."""
    with sqlite3.connect(place.store) as database:
        tap.equal(database.execute("PRAGMA integrity_check").fetchall(), [("ok",)])
        rows = database.execute("SELECT scope.key, cubin.key, cubin.hash FROM winner "
                                "JOIN cubin ON cubin.key = winner.cubin_key JOIN scope ON scope.id = scope_id").fetchall()
    database.close()
    return set(rows)


def verdicts(place):
    """Where each config ended, as the next tune will take it for known."""
    with sqlite3.connect(place.store) as database:
        rows = database.execute("SELECT scope.key, config_key, status FROM trial JOIN scope ON scope.id = scope_id").fetchall()
    database.close()
    return set(rows)


def bytes_of(path):
    return hashlib.sha256(tap.read(path, "rb")).hexdigest()


def difference(right, wrong):
    sides = [answer.splitlines() if isinstance(answer, str) else pprint.pformat(answer, width=200).splitlines()
             for answer in (right, wrong)]
    return "".join(line + "\n" for line in difflib.unified_diff(*sides, n=0, lineterm=""))


def what_is_wrong(walk, place, kind, point, on, answer, before):
    """A sentence, or None; and whether the call was reached."""
    walk.reset(place)
    content = bytes_of(place.store) if walk.reads else None
    done = walk.run(place, kind, point, on)
    failed = place.told.has_failed()
    if done.returncode == 0:
        if walk.answer(place, done) != answer:
            return "exit status 0 and another answer:\n" + difference(answer, walk.answer(place, done)) + \
                done.stderr, failed
    elif done.returncode == 99 and "fake_cuda: " in done.stderr or done.returncode == walk.no_driver:
        pass  # the fake driver gives up like this, and the example where the driver cannot be loaded
    elif done.returncode != 1:
        return "exit status %d\n%s" % (done.returncode, done.stderr), failed
    elif not any(len(line) > 10 and (walk.path != FA_TUNE or line.startswith("fa-tune: "))
                 for line in done.stderr.splitlines()):
        return "no sentence: %r" % done.stderr, failed
    if walk.reads and bytes_of(place.store) != content:
        return "the store was changed", failed
    if any(".corrupt-" in name for name in os.listdir(place.folder)):
        return "the store was set aside", failed
    if not walk.reads and before - stored(place):
        return "winners were lost", failed
    if not walk.reads and not verdicts(place) <= place.verdicts:
        known, again = verdicts(place) - place.verdicts, walk.run(place, "none")
        if again.returncode != 0 or walk.answer(place, again) != answer:
            return "the next run takes a config's end for known: %s\n%s%s" % (known, done.stderr, again.stderr), failed
    return None, failed


places = {}  # of the walks, by name: one serves all that fails in it


@contextlib.contextmanager
def closed_after_failure(name):
    """The walk's place; a failure leaves it in a state that the next shall not find."""
    if name not in places:
        places[name] = WALKS[name].place()
    try:
        yield places[name]
    except BaseException:
        places.pop(name).__exit__()
        raise


def walk_over(name, kind, on, all_points=SLOW):
    if is_sanitized():
        raise tap.Skip("the sanitizer has an allocator of its own")
    walk = WALKS[name]
    wrongs = []
    with closed_after_failure(name) as place:
        walk.reset(place)
        before = stored(place)
        calls, answer = walk.look(place, kind)
        points = failing.points(calls)
        chosen = points if all_points else failing.sample(calls, POINTS.get(name, MANY))
        if not all_points and (name, kind, on) in EVERY_PLACE:
            chosen = points[:len(calls)]
        reached = 0
        for point in failing.with_progress(chosen):
            wrong, failed = what_is_wrong(walk, place, kind, point, on, answer, before)
            reached += failed
            if wrong:
                wrongs.append(str(point))
                print("# %s %s %d %s: %s" % (name, kind, on, point, wrong[:1200].replace("\n", "\n#   ")), flush=True)
        walk.reset(place)
        tap.equal(stored(place), before)
    print("# %s, %s, %s: %d of %d points of %d places, %d reached, %d wrong" % (
        name, kind, "lasting" if on else "once", len(chosen), len(points), len(calls), reached, len(wrongs)), flush=True)
    assert reached > 0 and not wrongs, wrongs[:20]


# ---- the commands ----
def bundle_of(place):
    return os.path.join(place.folder, "all.fab")


def export(place):
    return ["export", "--unsigned", "--out", bundle_of(place)]


def new_problem(place):
    """The store as it was before the command, in the same file."""
    saved = os.path.join(place.folder, "before")
    if not os.path.exists(saved):
        shutil.copyfile(place.store, saved)
    with open(saved, "rb") as file, open(place.store, "r+b") as store:
        store.write(file.read())
        store.truncate()


def without_cubins(place):
    new_problem(place)
    with sqlite3.connect(place.store) as database:
        database.execute("DELETE FROM cubin WHERE entry != ''")
    database.close()


def configs(place, done):
    """A tune's answer: what it printed but times, and where each config ended."""
    explained = place.json("explain", *(COMPUTED if "FAKE_CUDA_SCRIPT" in place.env else (*PROBLEM, "--gpu", "L4")))
    return sorted((row["status"], row["reason"]) for row in explained["configs"]), \
        [line.split()[:9] for line in done.stdout.splitlines() if "attn_fwd_sm80" in line]


def make_bundle(place):
    place.run(*export(place))
    with sqlite3.connect(place.store) as database:
        database.execute("DELETE FROM winner WHERE scope_id IN "
                         "(SELECT id FROM scope WHERE problem LIKE '%\"seq_q\":64,%')")
    database.close()


def shown(place, done):
    return done.stdout, place.run("show").stdout


WALKS = {
    "import": Walk(lambda place: ["import", bundle_of(place), "--allow-unsigned", "--quiet"], shown, new_problem,
                   make_bundle, reads=False),
    "predict": Walk(lambda place: ["tune", "--gpu", "L4", *PROBLEM, "--quiet"], configs, new_problem, reads=False),
    "tune": Walk(lambda place: ["tune", *COMPUTED, "--quiet"], configs, new_problem, script=L4 + FAST, reads=False,
                 beyond="predict"),
    "compile_worker": Walk(lambda place: ["tune", "--gpu", "L4", *PROBLEM, "--quiet", "--jobs", "1"], configs,
                           without_cubins, reads=False, role="compile", program="fa-tune-worker"),
    "measure_worker": Walk(lambda place: ["tune", *COMPUTED, "--quiet"], configs, new_problem, script=L4 + FAST,
                           reads=False, role="measure", program="fa-tune-worker"),
    "lookup": Walk(lambda place: [], lambda place, done: done.stdout.splitlines()[:2], script=L4 + FAST + "init_once\n",
                   prepare=lambda place: subprocess.run(
                       [os.path.join(BUILD, "examples", "tune_and_launch")], env=place.env, check=True,
                       stdout=subprocess.DEVNULL, timeout=DEADLINE),
                   program="tune_and_launch", path=os.path.join(BUILD, "examples", "tune_and_launch")),
}


def one_point(name, kind, on, point):
    walk = WALKS[name]
    with walk.place() as place:
        walk.reset(place)
        done = walk.run(place, kind, failing.Point.of(point), on == "1", stack=True)
        print(done.returncode, done.stdout[-1500:], done.stderr[-6000:])


def where_no_file_can_be_locked_it_is_said_so():
    """SQLite would have it that another process holds the lock."""
    if is_sanitized():
        raise tap.Skip("the sanitizer will not be the second library")
    with WALKS["predict"].place() as place:
        done = WALKS["predict"].run(place, "locks", failing.Point(0, 1), on=True)
        tap.equal(done.returncode, 1)
        assert "lock" in done.stderr and "other process" not in done.stderr, done.stderr
        done = WALKS["predict"].run(place, "locks", failing.Point(0, 1))
        tap.equal(done.returncode, 0)


def a_shared_folder_that_goes_stale_or_is_busy_fails_as_any_other():
    if is_sanitized():
        raise tap.Skip("the sanitizer will not be the second library")
    for name, why in itertools.product(("predict", "import", "lookup"), (errno.ESTALE, errno.EBUSY)):
        with closed_after_failure(name) as place:
            place.env["FAIL_ERRNO"] = str(why)
            try:
                for on in False, True:
                    walk_over(name, "io", on)
            finally:
                del place.env["FAIL_ERRNO"]


def test_of(name, kind, on):
    def test():
        walk_over(name, kind, on)
    test.__name__ = "%s_with_%s_that_fails_%s" % (name, kind, "for_good" if on else "once")
    return test


if __name__ == "__main__":
    try:
        if len(sys.argv) > 4:
            one_point(*sys.argv[1:])
        elif len(sys.argv) > 1:
            for kind, on in [(sys.argv[2], sys.argv[3] == "1")] if len(sys.argv) > 3 else WAYS:
                walk_over(sys.argv[1], kind, on, all_points=True)
        else:
            tap.main(tap.cases() + [test_of(name, kind, on) for name in WALKS for kind, on in WAYS])
    finally:
        for place in places.values():
            place.__exit__()
