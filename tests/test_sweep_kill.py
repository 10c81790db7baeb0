#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A sweep killed three times at random moments in real processes ends with the winners of one that
ran through: tests/bench/sweep_kill.py, here on the fake driver."""
import json
import os
import subprocess
import sys

import tap
from place import EIGHT, FA_TUNE, L4, SOURCE, Place

FOUR = {**EIGHT, "BLOCK_N": [64]}
# One config is the fastest by more than the fake clock's noise.
SCRIPT = L4 + "time * 60\ntime BLOCK_M=64;BLOCK_N=64;STAGES=2; 40\n"


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


tap.main()
