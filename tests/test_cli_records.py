#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records carry what a report needs: from a store that has measured to lines of text, from those to another
store and its report, with one command each way."""
import json
import os
import subprocess
import sys

import tap
from place import DEADLINE, EIGHT, SMALL, SOURCE, Place
from report_store import L4, add_baselines, baseline, change, tuned

FOUR = dict(EIGHT, STAGES=[1])
state = {}


def lines():
    """The records of a store with two measured winners, and two baselines, line by line."""
    if not state:
        with tuned(FOUR, problems=((128,), (256, "--causal"))) as place:
            baselines = [baseline(128, "fa3", 45.0, source="a test"), baseline(128, "pytorch-fa2", 82.0, low_us=81.0, high_us=83.0)]
            add_baselines(place, baselines)
            state["lines"] = [json.dumps(line) for line in place.records("records.jsonl") + baselines]
            state["report"] = place.json("report")
    return list(state["lines"])


def bytes_of(place, name):
    return tap.read(os.path.join(place.folder, name), "rb")


def write(place, text_lines):
    tap.write(os.path.join(place.folder, "records.jsonl"), "\n".join(text_lines) + "\n")


def a_document_of_show_is_taken_as_its_lines_are():
    with tuned(FOUR) as place, Place(space=FOUR, script=L4) as other:
        tap.write(os.path.join(other.folder, "document"), place.run("show", "--json").stdout)
        tap.has(other.run("import", "document").stdout, "1 added")
        there, here = (one.json("show")["winners"][0]["answer"] for one in (place, other))
        own = ("gpu", "origin", "driver_version", "compile_ms", "tune_s", "why")
        tap.equal({**here, **dict.fromkeys(own)}, {**there, **dict.fromkeys(own)})
        tap.equal((there["gpu"]["name"], here["gpu"]["name"]), ("NVIDIA L4", "L4"))
        tap.equal((there["origin"], here["origin"]), ("measured", "imported"))
        write(other, [json.dumps(json.loads(line)["answer"]) for line in lines()[:1]])  # half of a record
        tap.has(other.run("import", "records.jsonl", status=1).stderr, "records.jsonl, line 1: ")


def what_is_imported_is_drawn_as_where_it_was_measured():
    with Place(space=FOUR, script=L4) as place:
        write(place, lines())
        told = place.run("import", "records.jsonl").stdout
        tap.has(told, "2 winners, 2 baselines")
        tap.has(told, "2 added, 0 replaced")
        tap.has(told, "each winner is proved before it is launched")
        report = place.json("report")
        for there, here in zip(state["report"]["problems"], report["problems"]):
            tap.equal((here["known_how"], here["configs_tried"]), ("imported", there["configs_tried"]))
            tap.equal(*(sorted((one["peer"], one["median_us"], one["source"])
                               for one in side["baselines"]) for side in (here, there)))
            tap.equal((here["default_us"], here["evidence"], here["compile_ms"]), (there["default_us"], there["evidence"], None))
            for a, b in zip(there["configs"], here["configs"]):
                tap.equal((b["config"], b["raced"], b["winner"], b["default"]), (a["config"], a["raced"], a["winner"], a["default"]))
                assert abs(a["median_us"] - b["median_us"]) < 1e-3, (a, b)
                tap.equal(len(b["samples_us"]), len(a["samples_us"]))
        environment, = report["problems"][0]["environments"]
        tap.equal([one["registers"] for one in report["problems"][0]["configs"] if one["default"]], [None])  # not known here
        tap.equal((environment["gpu"], environment.get("uuid"), environment["driver"], environment["trials"]),
                  ("NVIDIA L4", None, 13000, 4))  # not which one
        for there, here in zip(lines(), place.records("again.jsonl")):
            tap.equal((here["trials"], here["answer"]["driver_version"]), (json.loads(there)["trials"], None))


CLOCKS = {"sm_mhz": 1980, "memory_mhz": 3201, "temperature_c": 41, "throttle": "power cap", "power_limit_w": 700, "driver": "580.159.04"}


def what_was_measured_under_which_driver_and_clocks_travels_with_every_peer():
    peers = [baseline(128, peer, us, source="PyTorch 2.11, CUDA 13.0, driver 580.159.04", matmul_tflops=756.0)
             for peer, us in (("pytorch-cudnn", 60.0), ("pytorch-fa2", 82.0), ("FlashAttention-3", 50.0))]

    with tuned(FOUR) as place, Place(space=FOUR, script=L4) as other:
        change(place, ("UPDATE trial SET clocks = ?", (json.dumps(CLOCKS),)))
        winner, = place.records("out.jsonl")
        trial = winner["trials"][0]
        tap.equal((trial["clocks"], trial["environment"]["driver"], winner["answer"]["driver_version"]), (CLOCKS, 13000, 13000))
        write(other, [json.dumps(line) for line in [winner] + peers])
        other.run("import", "records.jsonl")
        problem, = other.json("report")["problems"]
        tap.equal((problem["configs"][0]["clocks"], problem["known_how"]), (CLOCKS, "imported"))
        tap.equal(sorted(peer["peer"] for peer in problem["baselines"]), ["FlashAttention-3", "pytorch-cudnn", "pytorch-fa2"])
        again, = other.records("again.jsonl")  # what was imported says where it was measured, and that it is not proved here
        tap.equal((again["trials"], again["answer"]["driver_version"]), (winner["trials"], None))


def a_measured_line_stays_measured_while_its_kernel_is_the_same():
    with Place(space=FOUR, script=L4) as place:
        def bundled(line):
            write(place, [json.dumps(line)])
            place.run("export", "--from-records", "records.jsonl", "--unsigned", "--out", "all.fab")
            winner, = place.json("show", "all.fab")["winners"]
            return winner, bytes_of(place, "all.fab")
        line = json.loads(lines()[0])
        winner, compiled = bundled(line)
        tap.equal(winner["trials"], line["trials"])
        for name in ("origin", "median_us", "high_us", "driver_version", "unix_time", "cubin_key", "funnel", "default_us"):
            tap.equal((name, winner["answer"][name]), (name, line["answer"][name]))
        place.run("import", "records.jsonl")
        tap.equal(bundled(line)[1], compiled)  # with the store's cubin
        line["answer"]["undated"] = True
        tap.equal(bundled(line)[0]["answer"]["undated"], True)
        line["answer"]["cubin_key"] = "0" * 64  # of a kernel of other templates
        winner, _ = bundled(line)
        tap.equal((winner["answer"]["origin"], winner["answer"]["driver_version"], "trials" in winner), ("predicted", None, False))
        tap.equal((winner["answer"]["median_us"], winner["answer"]["config"]), (None, line["answer"]["config"]))
        line["answer"]["config"]["tunables"]["BLOCK_M"] = 77
        write(place, [json.dumps(line), lines()[1], lines()[1]])  # as of a store that is older than its templates
        tap.has(place.run("import", "records.jsonl", "--dry-run").stdout, "2 left out: they no longer compile cleanly, or repeat")


def explain_lists_what_an_imported_winner_brought_until_it_is_tuned_here():
    with Place(space=FOUR, script=L4) as place:
        pending = place.json("explain", *SMALL)
        tap.equal(pending["counts"].get("measured", 0), 0)
        write(place, lines())
        place.run("import", "records.jsonl")
        document = place.json("explain", *SMALL)
        measured = json.loads(lines()[0])["trials"]
        tap.equal([round(config["median_us"], 3) for config in document["configs"][:4]], [trial["median_us"] for trial in measured])
        tap.equal(document["counts"]["measured"], len(measured))
        place.run(*SMALL, "--again", "--effort", "patient")
        document = place.json("explain", *SMALL)
        tap.equal(document["counts"]["measured"], len(measured))


def a_filter_keeps_records_before_anything_is_compiled_and_a_bundle_is_taken_whole():
    with Place(space=FOUR, script=L4) as place:
        write(place, lines())
        told = place.json("import", "records.jsonl", "--gpu", "l4", "--causal")
        tap.equal([told[name] for name in ("added", "dry_run")], [1, False])
        tap.equal((told["bundle"]["winners"], told["bundle"]["baselines"]), (1, 0))
        refused = place.run("import", "records.jsonl", "--gpu", "A100", status=1).stderr
        tap.has(refused, "records.jsonl holds no winner that is asked for")
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
    first = json.loads(lines()[0])
    trial = first["trials"][0]
    tunables = trial["config"]["tunables"]

    def answer(**members):
        return changed(0, answer={**first["answer"], **members})

    def trials(made):
        return changed(0, trials=made)

    def member(**members):
        return trials([{**trial, **members}])

    def config(family=trial["config"]["family"], **values):
        return member(config={"family": family, "tunables": {**tunables, **values}})
    table = [
        (changed(0, gpu={"name": "L5"}), "line 1"), (changed(0, gpu={"name": "V100"}), "sm_70"), (changed(0, gpu="L4"), "line 1"),
        (changed(0, gpu={**first["gpu"], "sm_count": 59}), "no GPU of the catalogue is NVIDIA L4: sm_89 x59"),
        (changed(0, problem={**first["problem"], "seq_q": -128}), "line 1"), (changed(0, problem=5), "line 1"),
        (changed(0, problem={**first["problem"], "seq": 128}), 'the key "seq" is unknown'), (changed(0, answer=[1]), "line 1"),
        (answer(origin="measures"), "line 1"), (answer(origin="nearest"), "no winner is stored as"), (answer(low_us=None), "line 1"),
        ([lines()[0].replace('"low_us":', '"low_us":NaN,"x":')], "not valid JSON"),
        (answer(funnel=[1]), "line 1"), (answer(funnel={"space": -1}), "line 1"), (answer(median_us=-1), "line 1"),
        (answer(unix_time=None), "line 1"), (answer(driver_version=1e300), "line 1"), (answer(cubin_key="0" * 65), "line 1"),
        (answer(config={**first["answer"]["config"], "tunables": {"A B": 1}}), "not a tunable's name"),
        (trials({}), '"trials" must be an array of at most 128'), (trials([trial] * 129), "line 1"),
        (trials(["x"]), "line 1"), (trials([{}]), "line 1"), (config(family="no family"), "line 1"),
        (config(**{"A%d" % i: 1 for i in range(40)}), "line 1"),
        ([lines()[0].replace('"trials": [{"config": {', '"trials": [{"config": {"tunables": {"A":1,"A":1},')], "line 1"),
        (config(BLOCK_M=None), "line 1"), (config(BLOCK_M="a;b"), "line 1"),
        (member(samples_us=[1.0] * 200), "line 1"), (member(samples_us=[-1]), "line 1"), (member(samples_us=5), "line 1"),
        (member(median_us=0), "line 1"), (member(median_us=1e300), "line 1"), (member(predicted_us=-1), "line 1"),
        (member(low_us=trial["median_us"] + 1), "line 1"), (member(raced=2), "line 1"),
        (changed(2, median_us=0), "line 3"), (changed(2, peer="a b"), "line 3"),
        (changed(2, dry_run=True), "made up"), (changed(2, problem={}), "line 3"),
        (['{"fa_tune_records": 3, "made": "2026-11-28"}', *lines()], "of an earlier form: import them with the fa-tune that made them"),
        ([lines()[0], "", "x"], "line 3"), (['{"other": 1}'], "line 1"), (['{"winners": [{}]}'], "records.jsonl, line 1: "),
    ]
    with Place(space=FOUR, script=L4) as place:
        for made, sentence in table:
            write(place, made)
            for verb in (["import"], ["export", "--unsigned", "--out", "x.fab", "--from-records"]):
                done = place.run(*verb, "records.jsonl", status=1)  # as of a bundle that is no bundle
                tap.equal(done.stdout, "")
                tap.has(done.stderr, sentence)
        write(place, lines()[2:])
        tap.has(place.run("export", "--unsigned", "--out", "x.fab", "--from-records", "records.jsonl", status=1).stderr, "holds no winner")
        tap.equal(place.json("show")["winners"], [])


def the_shipped_records_are_all_there_and_can_be_read():
    records = [json.loads(line) for line in tap.read(os.path.join(SOURCE, "system", "records.jsonl")).splitlines()]

    def problem_of(line):
        return line["gpu"] if "peer" in line else line["gpu"]["name"], json.dumps(line["problem"], sort_keys=True)

    peers = {}
    for line in records:
        if "peer" in line:
            peers.setdefault(problem_of(line), set()).add(line["peer"])
    winners = [line for line in records if "answer" in line]
    assert len(winners) >= 1710 and len(records) - len(winners) >= 288, (len(winners), len(records))
    tap.equal(len(set(map(problem_of, winners))), len(winners))
    measured = [line for line in winners if line["answer"]["origin"] == "measured"]
    assert len(measured) >= 126, len(measured)
    forward = {problem_of(line) for line in measured if line["problem"]["operation"] == "attn_fwd"}
    tap.equal([found for found in map(peers.get, forward) if found != {"FlashAttention-3", "pytorch-cudnn", "pytorch-fa2"}], [])
    for line in measured:
        sampled = [trial for trial in line["trials"] if "samples_us" in trial]
        assert line["answer"]["driver_version"] and all(trial["environment"]["driver"] for trial in sampled), line["problem"]
        assert any({"driver", "sm_mhz"} <= trial.get("clocks", {}).keys() for trial in sampled), line["problem"]
    with Place(space=None) as place:  # every line is read before the filters leave none
        tap.has(place.run("import", os.path.join(SOURCE, "system", "records.jsonl"), "--seq", "77", status=1).stderr,
                "holds no winner that is asked for")


def records_of_several_files_are_merged_by_the_better_origin():
    with tuned(FOUR) as place:
        def merged(*names):
            done = subprocess.run([sys.executable, os.path.join(SOURCE, "system", "merge.py"), *names], cwd=place.folder,
                                  stdout=subprocess.PIPE, encoding="utf-8", check=True, timeout=DEADLINE)
            return [json.loads(line) for line in done.stdout.splitlines()]
        measured, = place.records("measured.jsonl")
        predicted = {**measured, "answer": {**measured["answer"], "origin": "predicted", "unix_time": measured["answer"]["unix_time"] + 9}}
        tap.write(os.path.join(place.folder, "predicted.json"), json.dumps({"winners": [predicted], "store": "a document"}))
        rows = [baseline(128, "fa3", us, unix_time=7) for us in (45.0, 44.0)]
        tap.write(os.path.join(place.folder, "rows.jsonl"), "".join((json.dumps(row) + "\n" for row in rows)))
        tap.write(os.path.join(place.folder, "gpus"), place.run("gpus", "--json").stdout)
        winner, peer = merged("gpus", "predicted.json", "measured.jsonl", "predicted.json", "rows.jsonl")
        tap.equal((winner["answer"]["origin"], winner["trials"], winner["gpu"]), ("measured", measured["trials"], {"name": "L4"}))
        tap.equal(peer, rows[1])
        tap.write(os.path.join(place.folder, "merged.jsonl"), "".join((json.dumps(line) + "\n" for line in (winner, peer))))
        tap.equal(merged("merged.jsonl"), [winner, peer])
        with Place(space=FOUR, script=L4) as other:
            tap.has(other.run("import", os.path.join(place.folder, "merged.jsonl")).stdout, "1 winner, 1 baseline")


tap.main()
