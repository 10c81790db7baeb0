# SPDX-License-Identifier: Apache-2.0
"""Calls of a program that fail (tests/failing_calls.c): where it calls from, and which one is to fail.

    told = Told(folder)
    ... run with told.env("fa-tune", "memory") ...
    for point in points(told.calls()):
        ... run with told.env("fa-tune", "memory", point) ...
"""
import collections
import os
import struct

import tap

LIBRARY = os.environ["FA_TEST_FAILING_CALLS"]
HEAD, PLACE, PLACES = struct.Struct("=II"), struct.Struct("=QIIII"), 1 << 15

# The calls from a place: the first and the last of them among all calls, and how many they are.
Calls = collections.namedtuple("Calls", "place first last count")


class Point(collections.namedtuple("Point", "place at after", defaults=(0,))):
    """The at-th call from a place, written PLACE:AT, not counting the first `after` calls from wherever. place 0:
    from any."""

    def __str__(self):
        return "%016x:%d" % self[:2]

    @staticmethod
    def of(text):
        place, _, at = text.partition(":")
        return Point(int(place, 16), int(at))


class Told:
    """The file in which a program tells what it called, or that a call has failed."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "told")

    def env(self, program, kind, point=None, on=False, stack=False):
        """What a run's environment has beside the rest. point None: no call fails."""
        with open(self.path, "wb") as file:
            file.truncate(HEAD.size + PLACES * PLACE.size)
        env = {"LD_PRELOAD": LIBRARY, "FAIL_IN": program, "FAIL_KIND": kind, "FAIL_TOLD": self.path,
               "FAIL_AT": "0", "FAIL_ON": str(int(on)), "FAIL_STACK": str(int(stack))}
        if point is not None:
            env.update(FAIL_PLACE="%x" % point.place, FAIL_AT=str(point.at), FAIL_AFTER=str(point.after))
        return env

    def has_failed(self):
        with open(self.path, "rb") as file:
            return HEAD.unpack(file.read(HEAD.size))[0] != 0

    def calls(self):
        """Of every place, in the order in which they are come to."""
        rows = PLACE.iter_unpack(tap.read(self.path, "rb")[HEAD.size:])
        found = [Calls(place, first, last, count) for place, first, last, count, _ in rows if place]
        assert len(found) < PLACES, "the table of places is full"
        return sorted(found, key=lambda calls: calls.first)


def first_of(calls):
    """Threads make other calls sooner or later than they did; so far off they are not."""
    return Point(calls.place, 1, max(0, calls.first * 3 // 4 - 500))


def points(calls):
    """The first call from each place, and then the last from each that is called from more than once."""
    return [first_of(each) for each in calls] + [Point(each.place, each.count) for each in calls if each.count > 1]


def in_order(calls):
    """The same points in the order in which they are come to."""
    order = {Point(each.place, each.count): each.last for each in calls if each.count > 1}
    order.update((first_of(each), each.first) for each in calls)
    return sorted(order, key=order.get)


def sample(calls, count):
    """About so many of the points, in the order in which they are come to."""
    ordered = in_order(calls)
    return ordered[::max(1, len(ordered) // count)]


def with_progress(points, every=500):
    """The points; of a walk that takes long it is said how far it is."""
    for done, point in enumerate(points, 1):
        yield point
        if done % every == 0:
            print("# %d of %d" % (done, len(points)), flush=True)
