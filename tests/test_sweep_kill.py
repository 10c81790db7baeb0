#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sweep killed three times at random moments in real processes ends with the winners of one that
ran through: tests/bench/sweep_kill.py, here on the fake driver."""
import json
import os
import subprocess
import sys

import tap
from place import FA_TUNE, SOURCE, Place

sys.path.insert(0, os.path.join(SOURCE, "tests/bench"))
import sweep_kill

FOUR = {"BLOCK_M": [64, 128], "BLOCK_N": [64], "STAGES": [1, 2], "WARPS": [4], "Q_IN_REGS": [0],
        "MIN_BLOCKS": [2]}
# One config is the fastest by more than the fake clock's noise.
SCRIPT = "device name=NVIDIA_L4 sm=89 sms=58\ntime * 60\ntime BLOCK_M=64;BLOCK_N=64;STAGES=2; 40\n"


def a_sweep_killed_three_times_ends_with_the_same_winners():
    with Place(space=FOUR, script=SCRIPT) as place:
        done = subprocess.run(
            [sys.executable, os.path.join(SOURCE, "tests/bench/sweep_kill.py"), FA_TUNE,
             os.path.join(place.folder, "sweeps"), "--seq", "64,96,128,192", "--dtype", "fp16",
             "--head-dim", "64", "--tokens", "384", "--hidden", "64"],
            env=place.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
            check=False, timeout=500)
        assert done.stdout, done.stderr
        told = json.loads(done.stdout.splitlines()[-1])
        print("# random %d: killed after %s items" % (told["random"], told["after_items"]))
        tap.equal((told["problems"], told["kills"], told["same"], told["tried_twice"]), (8, 3, 8, 0))
        for row in told["rows"]:
            tap.has(row["killed"], "BLOCK_M=64 BLOCK_N=64 STAGES=2")
        tap.equal((done.returncode, done.stderr), (0, ""))


def config(value, low, high, raced=True):
    return {"config": {"family": "f", "tunables": {"M": value}}, "low_us": low, "high_us": high,
            "median_us": (low + high) / 2, "raced": raced}


def another_winner_is_a_tie_only_where_a_race_says_so():
    def judge(ours, other, rows_of_ours, rows_of_other):
        return sweep_kill.verdict(ours, other, lambda: rows_of_ours, lambda: rows_of_other)
    one, two = config(1, 10, 10), config(2, 20, 21)
    tap.equal(judge(one, config(1, 90, 91), {}, {}), ("same", 0))
    tap.equal(judge(one, two, {}, {}), ("DIFFERENT", None))
    tap.equal(judge(one, two, {"f M=2": config(2, 9.9, 10.15)}, {})[0], "tie")
    tap.equal(judge(one, two, {"f M=2": config(2, 10, 12)}, {})[0], "DIFFERENT")  # 10 % behind
    tap.equal(judge(one, two, {"f M=2": config(2, 10, 12, False)}, {}), ("DIFFERENT", None))
    tap.equal(judge(one, two, {"f M=2": config(2, 11, 13)}, {})[0], "DIFFERENT")
    tap.equal(round(judge(one, two, {"f M=2": config(2, 11, 13)}, {})[1]), 20)
    tap.equal(judge(one, two, {}, {"f M=1": config(1, 20, 21.1)})[0], "tie")


tap.main()
