#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A queue is drained while its workers are killed and stopped: tests/bench/fleet_drain.py, in small."""
import json
import os
import subprocess
import sys

import postgres
import tap
from place import BUILD, SOURCE


def every_problem_ends_with_one_winner_however_often_workers_are_killed():
    try:
        postgres.find_bin()
    except postgres.Missing as missing:
        raise tap.Skip(missing)
    done = subprocess.run(
        [sys.executable, os.path.join(SOURCE, "tests/bench/fleet_drain.py"), BUILD, "--problems",
         "12", "--workers", "3", "--every", "0.8", "--stopped", "4", "--lease", "1", "--kills",
         "20", "--limit", "500"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
        check=False, timeout=560)
    assert done.stdout, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    print("# random %(random)d: %(killed)d killed, %(stopped)d stopped, %(refused_counted)d refused"
          % told)
    tap.equal((told["done"], told["failed"], told["winners"], told["distinct"]), (12, 0, 12, 12))
    assert told["killed"] + told["stopped"] > 0, told
    tap.equal((done.returncode, done.stderr), (0, ""))


tap.main([
    every_problem_ends_with_one_winner_however_often_workers_are_killed,
])
