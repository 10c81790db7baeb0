#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a sweep may spend."""
import json
import re

import tap
from place import FAST, FOUR, L4, TINY, Place


def a_trial_budget_stops_between_trials_and_a_larger_one_goes_on():
    with Place(script=L4 + FAST) as place:
        told = place.json(*FOUR, "--trials", "11")
        tap.equal((told["sweep"]["state"], told["sweep"]["spent"]["trials"]), ("budget-spent", 11))
        tap.equal([i["state"] for i in told["items"]], ["done", "pending", "pending", "pending"])
        tap.equal((told["sweep"]["budget"], told["sweep"]["done"]), ({"seconds": None, "trials": 11}, 1))
        spent = place.run(*FOUR, "--trials", "11")
        tap.has(spent.stdout, "3 left; ")
        tap.has(spent.stdout, "the budget is spent: the same command with a larger one goes on")
        assert re.search(r"budget-spent +1/4 ", place.run("queue").stdout)
        # The three trials of the second problem are on record: 5 are left of it. Its race is free.
        told = place.json(*FOUR, "--trials", "16")
        tap.equal((told["sweep"]["spent"]["trials"], told["sweep"]["done"]), (16, 2))
        told = place.json(*FOUR)
        tap.equal((told["sweep"]["state"], told["sweep"]["spent"]["trials"]), ("done", 32))


def a_tune_that_passes_its_budget_of_gpu_memory_says_what_it_needs():
    big = ["--seq", "4096", "--heads", "8", "--batch", "4"]
    with Place(script="device name=NVIDIA_L4 sm=89 sms=58 memory=2G\n" + FAST) as place:
        for memory, budget in (("1M", "1 MiB, as asked"), ("0.1g", "102 MiB, as asked")):
            refused = place.run(*big, "--memory", memory, status=1)
            assert re.search(r"needs \d+ MiB of GPU memory and its budget is %s: raise \"memory\"" % budget, refused.stderr), refused.stderr
        big[-1] = "64"
        refused = place.run(*big, status=1)
        assert re.search(r"budget is 1024 MiB, half of the 2048 MiB that are free", refused.stderr), refused.stderr
        refused = place.run(*big[:-1], "256", "--memory", "9G", status=1)
        tap.has(refused.stderr, "its budget is 2048 MiB, all that is free: free some, or tune a smaller batch")
        for wrong in ("8", "G", "-1G", "0G", "nanG", "1e9", "9000T", ""):
            refused = place.run("--seq", "64", *TINY, "--memory=" + wrong, status=2)
            tap.has(refused.stderr, "--memory: \"%s\" is not a size (8G, 512M)" % wrong)
        told = place.json("--seq", "64", *TINY, "--memory", "1.5G")
        tap.equal(told["answer"]["origin"], "measured")
        told = place.json(*FOUR, "--memory", "1M", status=1)  # the small one has its winner
        tap.equal([item["state"] for item in told["items"]], ["done", "failed", "failed", "failed"])
        tap.has(json.dumps(told["items"][3]), "its budget is 1 MiB, as asked")


def a_time_budget_holds_for_all_runs_together():
    with Place(script=L4 + FAST) as place:
        told = place.json(*FOUR, "--time", "0.1s")
        tap.equal(told["sweep"]["state"], "budget-spent")
        assert told["sweep"]["spent"]["seconds"] >= 0.1, told["sweep"]
        attempts = [i["attempts"] for i in told["items"]]
        told = place.json(*FOUR, "--time", "0.1s")
        tap.equal([i["attempts"] for i in told["items"]], attempts)
        told = place.json(*FOUR, "--time", "1h")
        tap.equal((told["sweep"]["state"], told["sweep"]["done"]), ("done", 4))
        tap.has(place.run("sweep", "--seq", "96", *TINY, "--time", "0.01s").stdout, " of 0.01 s")


tap.main()
