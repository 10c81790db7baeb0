#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records carry what a report needs: from a store that has measured to lines of text, from those to another
store and its report, with one command each way."""
import json
import os
import re
import subprocess

import tap
from place import DEADLINE, EIGHT, FA_TUNE, SMALL, SOURCE, Place
from report_store import L4, add_baselines, baseline, change, tuned

FOUR = dict(EIGHT, STAGES=[1])
state = {}


def lines():
    """The records of a store with two measured winners and two baselines, line by line."""
    if not state:
        with tuned(FOUR, problems=((128,), (256, "--causal"))) as place:
            add_baselines(place, [baseline(128, "pytorch-fa2", 82.0, low_us=81.0, high_us=83.0),
                                  baseline(128, "fa3", 45.0, source="a test"),
                                  baseline(512, "fa3", 9.0), baseline(128, "fa3", 9.0, gpu="A100")])
            told = place.run("export", "--records", "records.jsonl").stdout
            tap.has(told, "2 winners, 2 measured and 0 untimed; 2 baselines; 2 from the store")
            with open(os.path.join(place.folder, "records.jsonl"), encoding="utf-8") as file:
                state["lines"] = file.read().splitlines()
            state["report"] = place.json("report")
    return list(state["lines"])


def write(place, text_lines):
    with open(os.path.join(place.folder, "records.jsonl"), "w", encoding="utf-8") as file:
        file.write("\n".join(text_lines) + "\n")


def a_measured_line_has_its_trials_and_the_problems_baselines_follow():
    head, first, second, *baselines = [json.loads(line) for line in lines()]
    tap.equal(head["fa_tune_records"], 3)
    trials = first["evidence"]["trials"]
    tap.equal(len(trials), first["evidence"]["measured"])
    best = trials[0]
    for member in ("config", "median_us", "low_us", "high_us", "max_error", "tolerance", "raced"):
        tap.equal(best[member], first[member])
    tap.equal((best["config"]["family"], best["raced"]), ("attn_fwd_sm80", True))
    assert len(best["samples_us"]) > 20, best
    tap.equal([name for name in ("host", "uuid") if name in best["environment"]], [])
    tap.equal([name for name in ("gpu", "uuid", "imported") if name in first["evidence"]], [])
    assert min(trial["median_us"] for trial in second["evidence"]["trials"]) > 0
    tap.equal([(line["peer"], line["median_us"]) for line in baselines],
              [("fa3", 45), ("pytorch-fa2", 82)])


def what_is_imported_is_drawn_as_where_it_was_measured():
    with Place(space=FOUR, script=L4) as place:
        write(place, lines())
        told = place.run("import", "records.jsonl").stdout
        tap.has(told, "2 winners, 2 measured and 0 untimed; 2 baselines")
        tap.has(told, "2 added, 0 replaced")
        tap.has(told, "each winner is proved before it is launched")
        report = place.json("report")
        for there, here in zip(state["report"]["problems"], report["problems"]):
            tap.equal((here["known_how"], here["configs_tried"]),
                      ("imported", there["configs_tried"]))
            tap.equal(*(sorted((one["peer"], one["median_us"], one["source"])
                               for one in side["baselines"]) for side in (here, there)))
            tap.equal(here["default_us"], round(there["default_us"], 3))
            for a, b in zip(there["configs"], here["configs"]):
                tap.equal((b["config"], b["raced"], b["winner"], b["default"]),
                          (a["config"], a["raced"], a["winner"], a["default"]))
                assert abs(a["median_us"] - b["median_us"]) < 1e-3, (a, b)
                tap.equal(len(b["samples_us"]), len(a["samples_us"]))
        environment, = report["problems"][0]["environments"]
        tap.equal([one["registers"] for one in report["problems"][0]["configs"] if one["default"]], [None])  # not known here
        tap.equal((environment["gpu"], environment.get("uuid"), environment["driver"], environment["trials"]),
                  ("NVIDIA L4", None, 13000, 4))  # not which one
        place.run("export", "--records", "again.jsonl")
        with open(os.path.join(place.folder, "again.jsonl"), encoding="utf-8") as file:
            again = file.read().splitlines()
        unproved = [line.replace('"driver_version":13000,', '') for line in lines()]
        tap.equal(again, unproved)


CLOCKS = {"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 41, "throttle": "power cap", "power_limit_w": 700,
          "driver": "580.159.04"}


def what_was_measured_under_which_driver_and_clocks_travels_with_every_peer():
    peers = [baseline(128, peer, us, source="PyTorch 2.11, CUDA 13.0, driver 580.159.04", matmul_tflops=756.0)
             for peer, us in (("pytorch-cudnn", 60.0), ("pytorch-fa2", 82.0), ("FlashAttention-3", 50.0))]

    def exported(place):
        place.run("export", "--records", "out.jsonl")
        with open(os.path.join(place.folder, "out.jsonl"), encoding="utf-8") as file:
            return list(map(json.loads, file))

    with tuned(FOUR) as place, Place(space=FOUR, script=L4) as other:
        change(place, ("UPDATE trial SET clocks = ?", (json.dumps(CLOCKS),)))
        add_baselines(place, peers)
        _, winner, *others = exported(place)
        trial = winner["evidence"]["trials"][0]
        tap.equal((trial["clocks"], trial["environment"]["driver"], winner["driver_version"]), (CLOCKS, 13000, 13000))
        tap.equal([line["peer"] for line in others], ["FlashAttention-3", "pytorch-cudnn", "pytorch-fa2"])
        other.run("import", os.path.join(place.folder, "out.jsonl"))
        problem, = other.json("report")["problems"]
        tap.equal((problem["configs"][0]["clocks"], problem["known_how"]), (CLOCKS, "imported"))
        tap.equal(sorted(peer["peer"] for peer in problem["baselines"]), ["FlashAttention-3", "pytorch-cudnn", "pytorch-fa2"])
        _, again, *same = exported(other)  # what was imported says where it was measured, and that it is not proved here
        tap.equal((again["evidence"], again.get("driver_version"), same), (winner["evidence"], None, others))


def explain_tells_what_an_imported_winner_brought_until_it_is_tuned_here():
    with Place(space=FOUR, script=L4) as place:
        pending = place.json("explain", *SMALL)
        tap.equal((pending["imported"], pending["counts"].get("measured", 0)), (False, 0))
        write(place, lines())
        place.run("import", "records.jsonl")
        document = place.json("explain", *SMALL)
        measured = next(json.loads(line) for line in lines() if '"trials"' in line)["evidence"]["trials"]
        tap.equal((document["imported"], document["counts"]["measured"]), (True, len(measured)))
        times = [config["median_us"] for config in document["configs"] if config["status"] == "measured"]
        tap.equal(times, [trial["median_us"] for trial in measured])
        text = place.run("explain", *SMALL).stdout
        tap.has(text, "where their winner was imported from: none was tried here")
        tap.lacks(text, "were not tried yet")
        place.run(*SMALL, "--again", "--effort", "patient")
        document = place.json("explain", *SMALL)
        tap.equal((document["imported"], document["counts"]["measured"]), (False, len(measured)))


def a_filter_keeps_records_before_anything_is_compiled_and_a_bundle_is_taken_whole():
    with Place(space=FOUR, script=L4) as place:
        write(place, lines())
        told = place.json("import", "records.jsonl", "--gpu", "l4", "--causal")
        tap.equal([told[name] for name in ("added", "dry_run")], [1, False])
        tap.equal((told["records"]["winners"], told["records"]["baselines"]), (1, 0))
        refused = place.run("import", "records.jsonl", "--gpu", "A100", status=1).stderr
        tap.has(refused, "none of the 2 records of records.jsonl matches the filters")
        place.run("export", "--unsigned", "--out", "l4.fab")
        for some in (["--gpu", "L4"], ["--causal"], ["--operation", "attn_fwd"]):
            refused = place.run("import", "l4.fab", "--allow-unsigned", *some, status=2).stderr
            tap.has(refused, "a bundle is imported whole")
        tap.has(place.run("import", "records.jsonl", "--gpu", "L5", status=2).stderr, "L5")


def a_dry_run_takes_neither_winners_nor_baselines():
    with Place(space=FOUR, script=L4) as place:
        write(place, lines())
        tap.has(place.run("import", "records.jsonl", "--dry-run").stdout, "it would be: 2 added")
        tap.equal(place.json("report")["problems"], [])
        place.run("--gpu", "L4", *SMALL, "--effort", "predict", "--quiet")
        tap.equal(place.json("report")["problems"][0]["baselines"], [])


def changed(number, **members):
    made = lines()
    made[number] = json.dumps({**json.loads(made[number]), **members})
    return made


def lines_that_cannot_be_are_refused_with_their_number_and_nothing_is_taken():
    head, first = [json.loads(line) for line in lines()[:2]]
    evidence, trial = first["evidence"], first["evidence"]["trials"][0]
    tunables = trial["config"]["tunables"]

    def trials(made):
        return changed(1, evidence={**evidence, "trials": made})

    def member(**members):
        return trials([{**trial, **members}])

    def config(family=trial["config"]["family"], **values):
        return member(config={"family": family, "tunables": {**tunables, **values}})
    table = [
        (changed(0, made="xx"), '"made" must be a day'),
        (changed(1, gpu="L5"), "line 2"), (changed(1, gpu="V100"), "sm_70"),
        (changed(1, problem={**first["problem"], "seq_q": -128}), "line 2"), (changed(1, problem=5), "line 2"),
        (changed(1, problem={**first["problem"], "seq": 128}), 'no key "seq"'),
        (changed(1, origin="measures"), "line 2"), (changed(1, low_us=None), "line 2"),
        ([lines()[0], lines()[1].replace('"low_us":', '"low_us":NaN,"x":')], "not valid JSON"),
        (changed(1, evidence=[1]), '"evidence" must be an object'), (changed(1, median_us=-1), "line 2"),
        (changed(1, config={**first["config"], "tunables": {"A B": 1}}), "not a tunable's name"),
        (trials({}), '"trials" must be an array of at most 128'), (trials([trial] * 129), "line 2"),
        (trials(["x"]), "line 2"), (trials([{}]), "line 2"), (config(family="no family"), "line 2"),
        (config(**{"A%d" % i: 1 for i in range(40)}), "line 2"),
        ([lines()[0], lines()[1].replace('"trials":[{"config":{', '"trials":[{"config":{"tunables":{"A":1,"A":1},')], "line 2"),
        (config(BLOCK_M=None), "line 2"), (config(BLOCK_M="a;b"), "line 2"),
        (member(samples_us=[1.0] * 200), "line 2"), (member(samples_us=[-1]), "line 2"), (member(samples_us=5), "line 2"),
        (member(median_us=0), "line 2"), (member(median_us=1e300), "line 2"), (member(predicted_us=-1), "line 2"),
        (member(low_us=trial["median_us"] + 1), "line 2"), (member(raced=2), "line 2"),
        (changed(3, median_us=0), "line 4"), (changed(3, peer="a b"), "line 4"),
        (changed(3, dry_run=True), "made up"), (changed(3, problem={}), "line 4"),
    ]
    with Place(space=FOUR, script=L4) as place:
        for made, sentence in table:
            write(place, made)
            for verb in (["import"], ["export", "--unsigned", "--out", "x.fab", "--from-records"]):
                done = place.run(*verb, "records.jsonl", status=1)  # as of a bundle that is no bundle
                tap.equal(done.stdout, "")
                tap.has(done.stderr, sentence)
        for text, sentence in (("", "is empty"), ("\n", "line 1"), ('{"other": 1}\n', "line 1")):
            with open(os.path.join(place.folder, "records.jsonl"), "w", encoding="utf-8") as file:
                file.write(text)
            tap.has(place.run("export", "--unsigned", "--out", "x.fab", "--from-records", "records.jsonl",
                              status=1).stderr, sentence)
        for version in (1, 2, 4):
            write(place, changed(0, fa_tune_records=version))
            told = place.run("import", "records.jsonl", status=1).stderr
            tap.has(told, "records of version %d" % version)
            tap.has(told, "made them")
        tap.equal(place.json("show")["winners"], [])


def the_demo_is_drawn_from_records_alone():
    with Place(space=FOUR) as place:
        write(place, lines())
        page = os.path.join(place.folder, "demo.html")
        env = dict(place.env, FA_TUNE_RECORDS=os.path.join(place.folder, "records.jsonl"))
        demo = os.path.join(SOURCE, "examples", "demo_report.sh")

        def draw(*arguments):
            return subprocess.run([demo, page, *arguments], env=dict(env, PATH="/usr/bin:/bin"), cwd=place.folder,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False,
                                  timeout=DEADLINE)
        done = draw("none")
        tap.equal((done.returncode, done.stderr), (1, "there is no none: make it with ./dev build, then %s %s build/fa-tune\n"
                                                  % (demo, page)))
        tap.equal(draw().stderr, done.stderr.replace("none", "fa-tune on the path"))
        done = draw(FA_TUNE, "L4")
        tap.equal((done.returncode, done.stderr), (0, ""))
        tap.has(done.stdout, "2 problems, ")
        with open(page, encoding="utf-8") as file:
            drawn = json.loads(re.search('id="document">(.*?)</script>', file.read(), re.S)[1])
        first, second = drawn["problems"]
        tap.equal([one["peer"] for one in first["baselines"]], ["fa3", "pytorch-fa2"])
        assert len(first["configs"]) > 2 and len(second["configs"][0]["samples_us"]) > 20, drawn
        tap.equal(drawn["store"], "~/records-L4.db")


def the_shipped_measurements_say_driver_and_clocks_and_have_every_peers_time():
    with open(os.path.join(SOURCE, "system", "records.jsonl"), encoding="utf-8") as file:
        records = [json.loads(line) for line in file][1:]

    def problem_of(line):
        return line["gpu"], json.dumps(line["problem"], sort_keys=True)

    peers = {}
    for line in records:
        if "peer" in line:
            peers.setdefault(problem_of(line), set()).add(line["peer"])
    measured = [line for line in records if line.get("origin") == "measured"]
    forward = {problem_of(line) for line in measured if line["problem"]["operation"] == "attn_fwd"}
    assert forward, "no measured attention forward in the records"
    tap.equal([found for found in map(peers.get, forward) if found != {"FlashAttention-3", "pytorch-cudnn", "pytorch-fa2"}], [])
    for line in measured:
        sampled = [trial for trial in line["evidence"]["trials"] if "samples_us" in trial]
        assert line["driver_version"] and all(trial["environment"]["driver"] for trial in sampled), line["problem"]
        assert any({"driver", "sm_mhz"} <= trial.get("clocks", {}).keys() for trial in sampled), line["problem"]


tap.main([
    a_measured_line_has_its_trials_and_the_problems_baselines_follow,
    what_is_imported_is_drawn_as_where_it_was_measured,
    what_was_measured_under_which_driver_and_clocks_travels_with_every_peer,
    explain_tells_what_an_imported_winner_brought_until_it_is_tuned_here,
    a_filter_keeps_records_before_anything_is_compiled_and_a_bundle_is_taken_whole,
    a_dry_run_takes_neither_winners_nor_baselines,
    lines_that_cannot_be_are_refused_with_their_number_and_nothing_is_taken,
    the_demo_is_drawn_from_records_alone,
    the_shipped_measurements_say_driver_and_clocks_and_have_every_peers_time,
])
