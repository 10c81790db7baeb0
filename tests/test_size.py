#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The house stays small: lines of C in each room, files, lines of tests, and functions of the public headers. A budget is only ever lowered."""
import ast
import os
import re
import subprocess

import tap
from rooms import ROOT

# Lines at most. A change that makes a room smaller lowers its number; what a feature adds, something else gives back.
BUDGET = {
    "include": 1344,
    "src/base": 5260,
    "src/gpu": 3279,
    "src/code": 881,
    "src/snippet": 883,
    "db": 4945,
    "tuner": 11317,
    "src/worker": 1020,
    "src/bundle": 1227,
    "src/engine": 6577,
    "src/sources": 1109,
    "src/sweeps": 1986,
    "src/cli": 4352,
    "src/daemon": 1976,
    "src/report": 667,
    "C": 46823,
    "C files": 138,
    "tests": 51683,
    "public functions": 69,
}
MERGED = {"src/snippet", "src/sources"}  # these took other rooms in: their budgets count from then on
SLACK = 0.03  # of a budget: more than that below it, and the budget is lowered


def files(room):
    for folder, below, names in os.walk(os.path.join(ROOT, room)):
        below[:] = [name for name in below if name != "__pycache__"]
        yield from (os.path.join(folder, name) for name in names)


def lines(path):
    return tap.read(path, "rb").count(b"\n")


def sizes():
    rooms = {room: [path for path in files(room) if path.endswith((".c", ".h", ".def"))] for room in BUDGET if os.path.isdir(os.path.join(ROOT, room))}
    del rooms["tests"]
    found = {room: sum(map(lines, paths)) for room, paths in rooms.items()}
    found["C"] = sum(found.values())
    found["C files"] = sum(map(len, rooms.values()))
    found["tests"] = sum(map(lines, files("tests")))
    found["public functions"] = sum(len(re.findall(r"^FA_API\b", open(path, encoding="utf-8").read(), re.M)) for path in rooms["include"])
    return found


def each_room_keeps_within_its_budget():
    found = sizes()
    tap.equal(set(found), set(BUDGET))
    tap.equal({room: (count, BUDGET[room]) for room, count in found.items() if count > BUDGET[room]}, {})


def a_budget_follows_what_it_bounds():
    tap.equal({room: (count, BUDGET[room]) for room, count in sizes().items() if count < BUDGET[room] * (1 - SLACK) - 10}, {})


def no_budget_was_ever_lower():
    """By the history, as far as this copy has it: a source distribution has none."""
    def git(*arguments):
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=False)
        return done.stdout if done.returncode == 0 else ""

    name, same = "tests/test_size.py", True
    for commit in git("log", "--format=%H", "--", name).split():
        table = re.search(r"^BUDGET = (\{.*?^\})", git("show", commit + ":" + name), re.M | re.S)
        then = ast.literal_eval(table.group(1)) if table else {}
        same = same and then.keys() == BUDGET.keys()
        tap.equal({room: (BUDGET[room], then[room]) for room in BUDGET if BUDGET[room] > then.get(room, BUDGET[room]) and (same or room not in MERGED)}, {})


tap.main()
