#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""As test_walks.py, for the daemon: an allocation or I/O call of its process fails, once or with all after it. It
answers rightly or says that it is in trouble, hangs nobody, is not ended by it, and, when one call has failed,
answers everything rightly from then on.

    test_walk_serve.py NAME KIND ON            all points of a walk
    test_walk_serve.py NAME KIND ON POINT...   these, with the call's stack
"""
import http.client
import json
import os
import signal
import sys

import failing
import tap
from place import SMALL, Place, is_sanitized
from serve import Serve, TWO, ask, wait_for
from test_walks import SLOW, stored, verdicts

POINTS = {"answers": 7, "tunes": 3}  # that are tried where not all are
FIRST = 3  # of a process, which are tried always: its loop begins with them
PATIENCE_S = 60  # of a client
STORED = ask(gpu="L4", seq=64, effort="cached")
NEW = ask(gpu="L4", seq=256, effort="predict")


def told(answer):
    """What a kernel's answer says that may not change."""
    return {"config": answer["answer"]["config"], "origin": answer["answer"]["origin"],
            "sha256": answer["cubin"] and answer["cubin"]["sha256"]}


REQUESTS = (
    ("stored", "POST", "/v1/kernel", STORED, told),
    ("winners", "GET", "/v1/winners", None, lambda answer: any(
        winner["problem"]["seq_q"] == 64 for winner in answer["winners"])),
    ("report", "GET", "/v1/report", None, lambda answer: any(
        problem["problem"]["seq_q"] == 64 for problem in answer["problems"])),
    ("queue", "GET", "/v1/queue", None, lambda answer: answer),
    ("link", "POST", "/v1/links", b"", lambda answer: len(answer["url"].partition("#")[2])),
    ("gpus", "GET", "/v1/gpus", None, lambda answer: len(answer["types"])),
    ("new", "POST", "/v1/kernel", NEW, told),
    ("jobs", "GET", "/v1/jobs", None, lambda answer: True),
    ("nonsense", "POST", "/v1/kernel", b"{", None),
)
WALKS = {  # what is asked of a daemon that has stored all of it; and what is to be tuned first
    "answers": REQUESTS,
    "tunes": [request for request in REQUESTS if request[0] in ("new", "stored")],
}


def one_round(daemon, requests, right, wrongs, must):
    """Every request once. What is answered well must be `right`, or becomes it; must: all are answered well."""
    for name, method, path, body, take in requests:
        connection = daemon.connect(PATIENCE_S)
        try:
            status, answer = daemon.request(method, path, body, connection=connection)
        except (OSError, http.client.HTTPException) as error:
            if must or isinstance(error, TimeoutError):
                wrongs.append("%s: no answer: %r" % (name, error))
            continue
        except Exception as error:  # it is not as the daemon's description says
            wrongs.append("%s: %r" % (name, error))
            continue
        finally:
            connection.close()
        if take is None:
            good = status == 400 or (status >= 500 and not must)
        elif status in (200, 201):
            good = take(answer) == right.setdefault(name, take(answer))
        else:
            good = status >= 500 and not must
        if not good:
            wrongs.append("%s: %d %s" % (name, status, json.dumps(answer)[:300]))


def start(place, kind, point, on, stack):
    told = failing.Told(place.folder)
    daemon = Serve(place, env=told.env("fa-tune-serve", kind, point, on, stack), wait=False)
    daemon.start()
    return daemon, told


def has_come(daemon):
    """Whether it listens; False: it has ended."""
    def is_there():
        if daemon.process.poll() is not None:
            return "ended"
        try:
            daemon.request("GET", "/healthz", connection=daemon.connect(PATIENCE_S), raw=True)
            return "there"
        except TimeoutError:
            return "hangs"
        except (OSError, http.client.HTTPException):
            return "there" if os.path.exists(daemon.socket) else None
    return wait_for(is_there, "a daemon") == "there"


def is_ready(daemon, failed=lambda: False):
    """Waits until it is, or until `failed` is so; False: it has ended."""
    def looks():
        if daemon.process.poll() is not None:
            return "ended"
        try:
            if daemon.get("/readyz", raw=True)[0] == 200:
                return "ready"
        except (OSError, http.client.HTTPException):
            pass
        return "failed" if failed() else None
    return wait_for(looks, "a daemon that is ready") != "ended"


def what_is_wrong(place, requests, kind, point, on, right, stack=False):
    """Sentences, and whether the call was reached."""
    wrongs = []
    daemon, told = start(place, kind, point, on, stack)
    try:
        if has_come(daemon):
            # What is asked of a daemon that still starts would not come to the call.
            is_ready(daemon, told.has_failed)
            one_round(daemon, requests, right, wrongs, point is None)
            if not on and told.has_failed() and is_ready(daemon):
                one_round(daemon, requests, right, wrongs, True)
            status = daemon.stop() if daemon.process.poll() is None else daemon.process.returncode
        else:
            status = daemon.process.wait(PATIENCE_S)
        # -15: it was told to stop before it listened for that.
        if status not in (0, 1, -signal.SIGTERM) and not (status == 99 and "fake_cuda: " in daemon.log()):
            wrongs.append("it ended with %d" % status)
        if status == 1 and len(daemon.log()) < 20:
            wrongs.append("it ended without a word")
    finally:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
            wrongs.append("it had to be killed")
        if wrongs or stack:
            print("#   " + daemon.log()[-5000 if stack else -700:].replace("\n", "\n#   "))
        for name in os.listdir(daemon.folder):
            os.unlink(os.path.join(daemon.folder, name))
        os.rmdir(daemon.folder)
    return wrongs, told.has_failed()


class Recorded:
    """A place of its own, and what the daemon calls there of a kind."""

    def __init__(self, kind):
        self.place, self.kind, self.right = Place(space=TWO, script="no_device\n"), kind, {}
        self.place.take_cubins(TWO)
        self.place.run("tune", "--gpu", "L4", *SMALL[2:], "--seq", "64", "--quiet")
        with open(self.place.store, "rb") as file:
            self.before = file.read()
        tuning = self.look("tunes")
        answering = self.look("answers")
        with open(self.place.store, "rb") as file:
            self.after = file.read()
        self.verdicts = verdicts(self.place)
        known = {each.place for each in answering}
        self.calls = {"answers": answering, "tunes": [each for each in tuning if each.place not in known]}

    def look(self, name):
        wrongs, _ = what_is_wrong(self.place, WALKS[name], self.kind, None, False, self.right)
        tap.equal(wrongs, [])
        return failing.Told(self.place.folder).calls()

    def reset(self, name):
        with open(self.place.store, "r+b") as file:
            file.write(self.before if name == "tunes" else self.after)
            file.truncate()


recorded = {}  # by kind: one serves both ways in which calls fail


def what_is_wrong_at(record, name, point, on, stack):
    """As what_is_wrong(), and of what is stored afterwards."""
    record.reset(name)
    before = stored(record.place)
    wrongs, failed = what_is_wrong(record.place, WALKS[name], record.kind, point, on, record.right, stack)
    if not before <= stored(record.place):
        wrongs.append("winners were lost")
    if any(".corrupt-" in file for file in os.listdir(record.place.folder)):
        wrongs.append("the store was set aside")
    if not verdicts(record.place) <= record.verdicts:
        wrongs.append("a config ended otherwise: %s" % (verdicts(record.place) - record.verdicts))
    return wrongs, failed


def walk(name, kind, on, chosen=(), stack=False):
    if is_sanitized():
        raise tap.Skip("the sanitizer has an allocator of its own")
    if kind not in recorded:
        recorded[kind] = Recorded(kind)
    calls, bad, reached = recorded[kind].calls[name], [], 0
    points = failing.points(calls)
    if not chosen:
        chosen = points if SLOW else failing.in_order(calls)[:FIRST] + failing.sample(calls, POINTS[name])
    for point in failing.with_progress(chosen):
        wrongs, failed = what_is_wrong_at(recorded[kind], name, point, on, stack)
        reached += failed
        for wrong in wrongs:
            print("# %s %s %d %s: %s" % (name, kind, on, point, wrong), flush=True)
        bad += [str(point)] * bool(wrongs)
    print("# %s, %s, %s: %d of %d points of %d places, %d reached, %d wrong" % (
        name, kind, "lasting" if on else "once", len(chosen), len(points), len(calls), reached, len(bad)), flush=True)
    assert reached > 0 and not bad, bad[:20]


def an_allocation_that_fails_once_costs_one_answer():
    walk("answers", "memory", False)


def allocations_that_fail_for_good_end_no_daemon_by_a_signal():
    walk("answers", "memory", True)


def a_call_of_io_that_fails_once_costs_one_answer():
    walk("answers", "io", False)


def calls_of_io_that_fail_for_good_end_no_daemon_by_a_signal():
    walk("answers", "io", True)


def an_allocation_that_fails_once_in_a_tune_costs_that_tune():
    walk("tunes", "memory", False)


def allocations_that_fail_for_good_in_a_tune_end_no_daemon_by_a_signal():
    walk("tunes", "memory", True)


def a_call_of_io_that_fails_once_in_a_tune_costs_that_tune():
    walk("tunes", "io", False)


def calls_of_io_that_fail_for_good_in_a_tune_end_no_daemon_by_a_signal():
    walk("tunes", "io", True)


def want_of_memory_for_an_address_is_not_the_askers_fault():
    if is_sanitized():
        raise tap.Skip("the sanitizer will not be the second library")
    with Place(space=TWO, script="no_device\n") as place:
        told = failing.Told(place.folder)
        with Serve(place, env=told.env("fa-tune-serve", "names", failing.Point(0, 1))) as daemon:
            status, answer = daemon.post("/v1/links", b"")
            tap.equal((status, answer["error"]["code"]), (503, "FA_ENOMEM"))
            tap.equal(daemon.post("/v1/links", b"")[0], 201)


if __name__ == "__main__":
    try:
        if len(sys.argv) > 3:
            SLOW = True
            walk(sys.argv[1], sys.argv[2], sys.argv[3] == "1", [failing.Point.of(text) for text in sys.argv[4:]],
                 len(sys.argv) > 4)
        else:
            tap.main([
                an_allocation_that_fails_once_costs_one_answer,
                allocations_that_fail_for_good_end_no_daemon_by_a_signal,
                an_allocation_that_fails_once_in_a_tune_costs_that_tune,
                allocations_that_fail_for_good_in_a_tune_end_no_daemon_by_a_signal,
                a_call_of_io_that_fails_once_costs_one_answer,
                calls_of_io_that_fail_for_good_end_no_daemon_by_a_signal,
                a_call_of_io_that_fails_once_in_a_tune_costs_that_tune,
                calls_of_io_that_fail_for_good_in_a_tune_end_no_daemon_by_a_signal,
                want_of_memory_for_an_address_is_not_the_askers_fault,
            ])
    finally:
        for record in recorded.values():
            record.place.__exit__()
