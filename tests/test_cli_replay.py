#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""replay: searches of recorded spaces; export --t4: our store's trials as one. On the fake driver."""
import json
import os
import re

import tap
from place import Place
from report_store import tuned

ENTRIES = {"%d,%d" % (x, y): {"x": x, "y": y, "time": 1 + (x - 7) ** 2 + (y - 3) ** 2} for x in range(16) for y in range(16)}
CACHE = {"kernel_name": "hill", "device_name": "a GPU", "tune_params_keys": ["x", "y"], "cache": ENTRIES}
NAMES = ["auto", "exhaustive", "random", "greedy", "annealing", "evolution", "surrogate"]


def put(place, name, text):
    with open(os.path.join(place.folder, name), "w", encoding="utf-8") as file:
        file.write(text)


def every_strategy_is_compared_and_the_same_seed_gives_the_same_table():
    with Place() as place:
        put(place, "hill.json", json.dumps(CACHE))
        all_of = ("replay", "hill.json", "--strategy", "all", "--evaluations", "40", "--repeats", "5")
        told = place.json(*all_of)
        tap.equal([one["strategy"] for one in told["strategies"]], NAMES)
        tap.equal((told["space"]["points"], told["space"]["parameters"], told["space"]["device"]), (256, 2, "a GPU"))
        shares = {one["strategy"]: one["median"] for one in told["strategies"]}
        assert shares["surrogate"] == shares["auto"] == 1 and all(0 < share <= 1 for share in shares.values()), shares
        tap.equal(place.json(*all_of), told)
        text = place.run(*all_of).stdout
        tap.has(text, "hill on a GPU: 256 configs of 2 parameters")
        tap.equal([line.split()[0] for line in text.splitlines()[2:-1]], NAMES)
        whole = place.json("replay", "hill.json", "--evaluations", "256", "--batch", "8")["strategies"][0]
        tap.equal((whole["chosen"], whole["median"], whole["tenth_percentile"], whole["evaluations"]), ("exhaustive", 1, 1, 256))


def what_cannot_be_replayed_is_said_in_one_sentence():
    with Place() as place:
        put(place, "hill.json", json.dumps(CACHE))
        put(place, "other.json", '{"a": 1}')
        put(place, "torn.json", json.dumps(CACHE)[:500])
        put(place, "deep.json", "[" * 1000)
        for arguments, says in ((("other.json",), "neither a cache file"), (("torn.json",), "torn.json"),
                                (("deep.json",), "nested deeper"), (("none.json",), "none.json"), ((".",), "it is a folder"),
                                (("hill.json", "--strategy", "guess"), 'no strategy "guess"')):
            done = place.run("replay", *arguments, status=2)
            tap.has(done.stderr, says)
            tap.equal((len(done.stderr.splitlines()), done.stdout), (1, ""))


def trials_of_a_problem_travel_as_t4_and_are_replayed():
    with tuned(problems=((128,), (512, "--causal"))) as place:
        done = place.run("export", "--t4", "t4.json", status=2)
        tap.has(done.stderr, "2 problems agree")
        tap.equal(os.path.exists(os.path.join(place.folder, "t4.json")), False)
        tap.has(place.run("export", "--t4", "t4.json", "--seq", "9999", status=1).stderr, "no trials of such a problem")
        tap.has(place.run("export", "--t4", "t4.json", "--out", "a.fab", status=2).stderr, "--t4 writes a file of its own")
        told = place.json("export", "--t4", "t4.json", "--causal")["t4"]
        with open(os.path.join(place.folder, "t4.json"), encoding="utf-8") as file:
            document = json.load(file)
        tap.equal((document["schema_version"], len(document["results"])), ("1.0.0", told["trials"]))
        for result in document["results"]:
            tap.equal(set(result) - {"timestamp"}, {"configuration", "times", "invalidity", "correctness", "measurements", "objectives"})
            tap.equal(set(result["times"]), {"compilation", "benchmark", "framework", "search_algorithm", "validation", "runtimes"})
        best = min(result["measurements"][0]["value"] for result in document["results"] if result["measurements"])
        winner, = [one for one in place.json("show")["winners"] if one["problem"]["seq_q"] == 512]
        median = float(re.search('"median_us": ([0-9.]+)', json.dumps(winner))[1]) / 1000
        assert 0 < best <= median * 1.001, (best, winner)
        replayed = place.json("replay", "t4.json")
        tap.equal((replayed["space"]["points"], replayed["strategies"][0]["median"]), (told["trials"], 1))


tap.main([
    every_strategy_is_compared_and_the_same_seed_gives_the_same_table,
    what_cannot_be_replayed_is_said_in_one_sentence,
    trials_of_a_problem_travel_as_t4_and_are_replayed,
])
