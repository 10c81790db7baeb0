#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""As test_walks.py, for the daemon: an allocation or I/O call of its process fails, once or with all after it. It
answers rightly or says that it is in trouble, hangs nobody, is not ended by it, and, when one call has failed,
answers everything rightly from then on.

    test_walk_serve.py KIND ON            all points
    test_walk_serve.py KIND ON POINT...   these, with the call's stack
"""
import http.client
import json
import os
import signal
import sys

import failing
import tap
from place import SMALL, Place
from serve import Serve, TWO, ask, wait_for
from test_walks import SLOW, is_sanitized, stored

POINTS = 7  # that are tried where not all are
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


def one_round(daemon, right, wrongs, must):
    """Every request once. What is answered well must be `right`, or becomes it; must: all are answered well."""
    for name, method, path, body, take in REQUESTS:
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


def what_is_wrong(place, kind, point, on, right, stack=False):
    """Sentences, and whether the call was reached."""
    wrongs = []
    daemon, told = start(place, kind, point, on, stack)
    try:
        if has_come(daemon):
            # What is asked of a daemon that still starts would not come to the call.
            is_ready(daemon, told.has_failed)
            one_round(daemon, right, wrongs, point is None)
            if not on and told.has_failed() and is_ready(daemon):
                one_round(daemon, right, wrongs, True)
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


def walk(kind, on, chosen=(), stack=False):
    if is_sanitized():
        raise tap.Skip("the sanitizer has an allocator of its own")
    with Place(space=TWO, script="no_device\n") as place:
        place.take_cubins(TWO)
        place.run("tune", "--gpu", "L4", *SMALL, "--seq", "64", "--quiet")
        right, bad, reached = {}, [], 0
        for _ in range(2):  # the second finds the new problem stored
            wrongs, _ = what_is_wrong(place, kind, None, False, right)
            tap.equal(wrongs, [])
        before = stored(place)
        calls = failing.Told(place.folder).calls()
        points = failing.points(calls)
        if not chosen:
            chosen = points if SLOW else failing.in_order(calls)[:FIRST] + failing.sample(calls, POINTS)
        for point in chosen:
            wrongs, failed = what_is_wrong(place, kind, point, on, right, stack)
            reached += failed
            if not before <= stored(place):
                wrongs.append("winners were lost")
            if any(".corrupt-" in name for name in os.listdir(place.folder)):
                wrongs.append("the store was set aside")
            for wrong in wrongs:
                print("# %s %d %s: %s" % (kind, on, point, wrong), flush=True)
            bad += [str(point)] * bool(wrongs)
        print("# %s, %s: %d of %d points of %d places, %d reached, %d wrong" % (
            kind, "lasting" if on else "once", len(chosen), len(points), len(calls), reached, len(bad)), flush=True)
        assert reached > 0 and not bad, bad[:20]


def an_allocation_that_fails_once_costs_one_answer():
    walk("memory", False)


def allocations_that_fail_for_good_end_no_daemon_by_a_signal():
    walk("memory", True)


def a_call_of_io_that_fails_once_costs_one_answer():
    walk("io", False)


def calls_of_io_that_fail_for_good_end_no_daemon_by_a_signal():
    walk("io", True)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        SLOW = True
        walk(sys.argv[1], sys.argv[2] == "1", [failing.Point.of(text) for text in sys.argv[3:]], len(sys.argv) > 3)
    else:
        tap.main([
            an_allocation_that_fails_once_costs_one_answer,
            allocations_that_fail_for_good_end_no_daemon_by_a_signal,
            a_call_of_io_that_fails_once_costs_one_answer,
            calls_of_io_that_fail_for_good_end_no_daemon_by_a_signal,
        ])
