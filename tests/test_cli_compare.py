#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa-tune compare: when a pipeline fails, when it passes, and what cannot be compared; and the example
that makes baselines."""
import copy
import json
import os
import subprocess
import sys

import tap
from place import SOURCE, Place

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"
TINY = ["--batch", "1", "--heads", "1"]
TWO = {"BLOCK_M": [64, 128], "BLOCK_N": [64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0],
       "MIN_BLOCKS": [2]}


def times(us):
    return L4 + "time BLOCK_M=64 90\ntime BLOCK_M=128 %g\n" % us


def save(place, name, document):
    path = os.path.join(place.folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(document if isinstance(document, str) else json.dumps(document))
    return path


made = {}  # by the first test that needs them: name of a file -> its bytes


def make_stores():
    with Place(space=TWO) as place:
        for name, us in (("old", 40), ("new", 44)):
            store = os.path.join(place.folder, name)
            place.use_fake_driver(times(us))
            swept = place.run("sweep", "--seq", "64,128", *TINY, "--store", store, "--json").stdout
            shown = place.run("show", "--store", store, "--json").stdout
            made[name + ".sweep"], made[name + ".show"] = swept.encode(), shown.encode()
            with open(store, "rb") as file:
                made[name] = file.read()


def stores_of_a_sweep_and_of_a_slower_one(place):
    """Paths of stores and exports of S 64 and 128, tuned at 40 µs and at 44 µs."""
    if not made:
        make_stores()
    for name, content in made.items():
        with open(os.path.join(place.folder, name), "wb") as file:
            file.write(content)
        os.chmod(os.path.join(place.folder, name), 0o600)
    return {name: os.path.join(place.folder, name) for name in made}


def a_winner_slower_than_the_margin_fails_and_one_within_it_passes():
    with Place(space=TWO) as place:
        paths = stores_of_a_sweep_and_of_a_slower_one(place)
        for old in ("old", "old.sweep", "old.show"):
            for new in ("new", "new.sweep", "new.show"):
                done = place.run("compare", paths[old], paths[new], status=1)
                tap.has(done.stdout, "SLOWER  fp16 · B 1 · H 1 · S 64 · D 64   NVIDIA L4  40.0 µs  4")
                tap.has(done.stdout, "2 slower by more than 5% with confidence, 0 faster, 0 the same, "
                                     "0 not comparable")
        old, new = paths["old"], paths["new.show"]
        for margin in ("12", "12%", "10.9"):
            tap.has(place.run("compare", old, new, "--margin", margin).stdout, "2 the same")
        place.run("compare", old, new, "--margin", "8", status=1)
        tap.has(place.run("compare", new, old).stdout, "0 slower by more than 5% with confidence, 2 faster")
        tap.has(place.run("compare", old, old).stdout, "2 the same")
        told = place.json("compare", old, new, status=1)
        tap.equal(told["counts"], {"same": 0, "faster": 0, "slower": 2, "not-comparable": 0})
        row = told["problems"][0]
        assert 1.05 < row["ratio_low"] < row["ratio"] < row["ratio_high"] < 1.2, row
        tap.equal((row["verdict"], row["old"]["origin"], row["reason"]), ("slower", "measured", ""))


def a_wide_interval_is_no_confidence():
    with Place(space=TWO) as place:
        paths = stores_of_a_sweep_and_of_a_slower_one(place)
        with open(paths["new.show"], encoding="utf-8") as file:
            document = json.load(file)
        for winner in document["winners"]:
            winner["answer"]["low_us"] = 40.1
        new = save(place, "wide.json", document)
        tap.has(place.run("compare", paths["old"], new).stdout, "2 the same")


def what_cannot_be_compared_is_listed_with_its_reason():
    with Place(space=TWO) as place:
        paths = stores_of_a_sweep_and_of_a_slower_one(place)
        with open(paths["old.show"], encoding="utf-8") as file:
            document = json.load(file)
        first, second = document["winners"]
        predicted, silicon = copy.deepcopy(first), copy.deepcopy(second)
        predicted["answer"]["origin"] = "predicted"
        silicon["gpu"]["sm_count"] = 20
        more = copy.deepcopy(first)
        more["problem"]["seq_q"] = 99
        blind = copy.deepcopy(second)
        blind["answer"]["high_us"] = None
        new = save(place, "a.json", {"winners": [predicted, silicon, more]})
        told = place.json("compare", paths["old"], new, status=1)
        tap.equal(sorted(row["reason"] for row in told["problems"]),
                  ["another silicon", "another silicon", "only in NEW", "predicted in NEW"])
        done = place.run("compare", paths["old"], new, status=1)
        tap.has(done.stderr, "nothing could be compared")
        # What others measured, for other lengths or on other GPUs is no measurement of this problem.
        for one, other, reason in (("imported", "measured", "imported in OLD"),
                                   ("measured", "nearest", "nearest in NEW"),
                                   ("transferred", "transferred", "transferred in both"),
                                   ("imported", "predicted", "imported in OLD, predicted in NEW")):
            sides = []
            for name, origin in (("one.json", one), ("other.json", other)):
                winner = copy.deepcopy(first)
                winner["answer"]["origin"] = origin
                sides.append(save(place, name, {"winners": [winner]}))
            told = place.json("compare", *sides, status=1)
            tap.equal([row["reason"] for row in told["problems"]], [reason])
        board = copy.deepcopy(first)
        board["answer"]["origin"] = "measured-same-silicon"
        new = save(place, "board.json", {"winners": [board]})
        tap.has(place.run("compare", paths["old"], new).stdout, "1 the same, 1 not comparable")
        new = save(place, "b.json", {"winners": [blind, first]})
        done = place.run("compare", paths["old"], new)
        tap.has(done.stdout, "an interval is missing")
        tap.has(done.stdout, "1 the same, 1 not comparable")


def an_unfit_side_is_refused_with_status_2_and_nothing_is_made():
    with Place(space=TWO) as place:
        paths = stores_of_a_sweep_and_of_a_slower_one(place)
        with open(paths["old.show"], encoding="utf-8") as file:
            good = json.load(file)

        def changed(change):
            document = copy.deepcopy(good)
            change(document["winners"][1])
            return document
        table = [
            ("", "it is empty"), ("{", "not valid JSON"), ("{}", "neither a store nor the output of"), ("text", "neither a store"),
            ('{"winners":7}', "neither a store"), ("{\"a\":" * 100, "deeper"),
            ('{"winners":[7]}', "winner 1"), ("SQLite format 2\x01", "neither a store"),
            (changed(lambda w: w.pop("problem")), "winner 2"),
            (changed(lambda w: w.pop("gpu")), "winner 2"),
            (changed(lambda w: w.update(answer=None)), '"answer" is missing'),
            (changed(lambda w: w["answer"].update(median_us="fast")), "must be a number"),
            (changed(lambda w: w["answer"].update(median_us=-1)), "above 0"),
            (changed(lambda w: w["answer"].update(low_us=1e9)), "does not hold"),
            (changed(lambda w: w["answer"].update(origin="rumour")), "origin"),
            (changed(lambda w: w["problem"].update(head_dim=7)), "head_dim"),
        ]
        for document, part in table:
            bad = save(place, "bad.json", document)
            for sides in ((bad, paths["new"]), (paths["new"], bad)):
                done = place.run("compare", *sides, status=2)
                tap.equal(done.stdout, "")
                tap.has(done.stderr, part)
                tap.has(done.stderr, bad)
        missing = os.path.join(place.folder, "missing.db")
        tap.has(place.run("compare", missing, paths["new"], status=2).stderr, "missing.db: there is no such file")
        assert not os.path.exists(missing)
        tap.has(place.run("compare", place.folder, paths["new"], status=2).stderr, "it is a folder")
        for arguments, part in ((["compare"], "needs OLD"), (["compare", "a"], "needs NEW"),
                                (["compare", "a", "b", "c"], '"c"'),
                                (["compare", "a", "b", "--margin", "-1"], "--margin"),
                                (["compare", "a", "b", "--margin", "5%%"], "--margin")):
            tap.has(place.run(*arguments, status=2).stderr, part)


def the_lines_of_the_example_are_taken_in_and_stand_beside_a_sweep():
    grid = ["--seq", "64,128", "--causal", "both", "--batch", "1", "--heads", "2"]
    example = os.path.join(SOURCE, "examples/baseline_torch.py")
    with Place(space=TWO, script=times(40)) as place:
        def lines(*options):
            done = subprocess.run([sys.executable, example, "--dry-run", "--gpu-name", "NVIDIA L4",
                                   *options], stdout=subprocess.PIPE, encoding="utf-8", check=True)
            return done.stdout
        text = lines(*grid)
        path = save(place, "dry.jsonl", text)
        tap.has(place.run("sweep", "--baseline", path, status=2).stderr, "line 1: its time is made up")
        measured = [json.loads(line) for line in text.splitlines()]
        for line in measured:  # as a run on a GPU writes them
            del line["dry_run"]
        path = save(place, "torch.jsonl", "".join(json.dumps(line) + "\n" for line in measured))
        tap.has(place.run("sweep", "--baseline", path).stderr, "12 baselines taken")
        told = place.json("sweep", *grid)
        tap.equal([item["baseline"]["peer"] for item in told["items"]], ["pytorch-fa2"] * 4)
        assert all(item["baseline"]["low_us"] < item["baseline"]["median_us"]
                   for item in told["items"])
        again = [json.loads(line)["problem"] for line in lines("--plan", path).splitlines()]
        tap.equal(again, [json.loads(line)["problem"] for line in text.splitlines()])


tap.main([
    a_winner_slower_than_the_margin_fails_and_one_within_it_passes,
    a_wide_interval_is_no_confidence,
    what_cannot_be_compared_is_listed_with_its_reason,
    an_unfit_side_is_refused_with_status_2_and_nothing_is_made,
    the_lines_of_the_example_are_taken_in_and_stand_beside_a_sweep,
])
