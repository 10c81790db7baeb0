#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps from outside: grids, plans, budgets, baselines, what is printed, and how a sweep goes on."""
import json
import os
import signal
import subprocess
import time

import tap
from place import Place

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"
FAST = "time BLOCK_M=128 40\ntime BLOCK_M=64 60\n"
TINY = ["--batch", "1", "--heads", "1"]
FOUR = ["sweep", "--seq", "64,128", "--causal", "both", *TINY]
TWO = {"BLOCK_M": [64, 128], "BLOCK_N": [64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0],
       "MIN_BLOCKS": [2]}


def plans(place, *options):
    """The problems of a grid, as --status would look for them: cheap, nothing is tuned."""
    done = place.run("sweep", *options, "--trials", "1", "--json")
    return [item["problem"] for item in json.loads(done.stdout)["items"]]


def every_bad_grid_gets_its_sentence_and_status_2():
    table = [
        ([], ["say what to sweep", "--seq 512:16384:x2"]),
        (["--head-dim", "64"], ["say what to sweep"]),
        (["--seq", "512:1024"], ["FIRST:LAST:xFACTOR"]),
        (["--seq", "1024:512:x2"], ["FIRST:LAST"]),
        (["--seq", "512:1024:x1"], ["FIRST:LAST"]),
        (["--seq", "512:1024:+0"], ["FIRST:LAST"]),
        (["--seq", "512:1024:*2"], ["FIRST:LAST"]),
        (["--seq", "0:1024:x2"], ["FIRST:LAST"]),
        (["--seq", "512:1024:x2:x2"], ["FIRST:LAST"]),
        (["--seq", "1:2000000000:+1"], ["more than 256 values"]),
        (["--seq", "512,,1024"], ["missing beside a comma"]),
        (["--seq", "512,"], ["missing beside a comma"]),
        (["--seq", "-5"], ["whole numbers"]),
        (["--seq", "9" * 5000], ["no value is as long"]),
        (["--seq", "99999999999"], ["whole numbers"]),
        (["--seq", "\x1b[31m"], ["whole numbers", "\\x1b[31m"]),
        (["--seq", "64", "--head-dim", "12"], ["multiple of 8"]),
        (["--seq", "64", "--head-dim", "64:512:x2"], ["largest is 256"]),
        (["--seq", "64", "--dtype", "fp8"], ["fp16, bf16"]),
        (["--seq", "64", "--causal", "maybe"], ["both"]),
        (["--seq", "64", "--causal"], ["--causal needs a value"]),
        (["--seq", "64", "--heads", "8", "--heads-kv", "3"], ["does not divide"]),
        (["--seq", "96", "--tokens", "1000"], ["not a multiple of --seq 96"]),
        (["--seq", "64", "--hidden", "100"], ["--hidden 100"]),
        (["--seq", "64", "--tokens", "64", "--batch", "1"], ["exclude one another"]),
        (["--seq", "64", "--hidden", "64", "--heads", "1"], ["exclude one another"]),
        (["--seq", "64", "--gpu", "L4,L44"], ["L44"]),
        (["--seq", "64", "--gpu", "V100"], ["V100", "sm_70"]),
        (["--seq", "64", "--gpu", "L4", "--device", "0"], ["exclude one another"]),
        (["--seq", "64", "--effort", "cached"], ["tunes nothing"]),
        (["--seq", "1:200:+1", "--batch", "1:100:+1"], ["more than 10000 problems"]),
        (["--seq", "64", "--time", "30"], ["with its unit"]),
        (["--seq", "64", "--time", "0s"], ["with its unit"]),
        (["--seq", "64", "--time", "m"], ["with its unit"]),
        (["--seq", "64", "--time", "nanm"], ["with its unit"]),
        (["--seq", "64", "--trials", "0"], ["--trials"]),
        (["--seq", "64", "--cost", "0.5"], ["needs --price"]),
        (["--seq", "64", "--cost", "0", "--price", "1"], ["above 0"]),
        (["--seq", "64", "--cost", "1e3", "--price", "1"], ["above 0"]),
        (["--seq", "64", "--price", "inf"], ["above 0"]),
        (["--plan", "/nowhere/plan"], ["/nowhere/plan", "cannot be read"]),
        (["--plan", "/", ], ["no regular file"]),
        (["--plan", "x", "--seq", "64"], ["--plan brings its own"]),
        (["--list", "--status"], ["exclude one another"]),
        (["--list", "--seq", "64"], ["takes no grid"]),
        (["--status", "--restart", "--seq", "64"], ["--restart runs a sweep"]),
        (["--seq-q", "64"], ["`fa-tune sweep` does not take --seq-q"]),
        (["--seq", "64", "more"], ['"more"', "options only"]),
    ]
    with Place(space=TWO) as place:
        for arguments, parts in table:
            done = place.run("sweep", *arguments, status=2)
            tap.equal((arguments, done.stdout), (arguments, ""))
            tap.lacks(done.stderr, "\x1b")
            for part in parts:
                tap.has(done.stderr, part)
        assert not os.path.exists(place.store), "a grid that is refused opens no store"


def a_grid_is_the_product_of_its_lists():
    with Place(space=TWO, script=L4) as place:
        told = plans(place, "--seq", "64:256:x2,96", "--seq-k", "512", "--batch", "1:3:+1",
                     "--heads", "8,4", "--heads-kv", "2,4", "--causal", "both,top-left",
                     "--dtype", "bf16", "--layout", "bshd", "--lse")
        tap.equal(len(told), 4 * 3 * 2 * 2 * 3)
        assert all(p["seq_k"] == 512 and p["dtype"] == "bf16" and p["layout"] == "bshd" and
                   p["lse"] for p in told)
        tap.equal({p["seq_q"] for p in told}, {64, 96, 128, 256})
        tap.equal({(p["heads_q"], p["heads_kv"]) for p in told}, {(8, 2), (8, 4), (4, 2), (4, 4)})
        tap.equal(sorted({p["causal"] for p in told}), ["bottom-right", "none", "top-left"])
        # Problems that render the same source stand next to one another.
        tap.equal([p["causal"] for p in told], sorted((p["causal"] for p in told),
                                                      key=["none", "bottom-right", "top-left"].index))
        told = plans(place, "--seq", "64:256:x2", "--tokens", "512", "--hidden", "256",
                     "--head-dim", "64,128")
        tap.equal([(p["head_dim"], p["heads_q"], p["seq_q"], p["batch"]) for p in told],
                  [(64, 4, 64, 8), (64, 4, 128, 4), (64, 4, 256, 2),
                   (128, 2, 64, 8), (128, 2, 128, 4), (128, 2, 256, 2)])


def bad_plans_are_refused_by_line():
    good = '{"seq_q":64,"batch":1,"heads_q":1}\n'
    table = [
        ("{", ["line 2", "not valid JSON"]),
        ("[]", ["line 2", "no JSON object"]),
        ("{}", ["line 2", '"seq_q" is missing']),
        ('{"seq_q":-1}', ["line 2", "must be 0 to"]),
        ('{"seq_q":64.5}', ["line 2", "whole number"]),
        ('{"seq_q":64,"head_dim":7}', ["line 2", "multiple of 8"]),
        ('{"seq_q":64,"head_dmi":64}', ["line 2", "head_dmi"]),
        ('{"seq_q":64,"gpu":"L44"}', ["line 2", "L44"]),
        ('{"seq_q":64,"gpu":4}', ["line 2", "must be a string"]),
        ('{"problem":7}', ["line 2", "no JSON object"]),
        ('{"problem":{"seq_q":64,"gpu":"L4"}}', ["line 2", '"gpu"']),
        ('{"seq_q":64,"operation":"gemm"}', ["line 2", "gemm"]),
        ('{"seq_q":64,"seq_q":65}', ["line 2", "stands twice"]),
        ('{"seq_q":64,"heads_q":8,"heads_kv":3}', ["line 2", "heads_kv"]),
        ("[" * 5000, ["line 2", "deeper"]),
        ('"' + "x" * 20000 + '"', ["line 2", "longer than"]),
        ('{"\x1b[31m":1}', ["line 2"]),
    ]
    with Place(space=TWO) as place:
        path = os.path.join(place.folder, "plan")
        for line, parts in table:
            with open(path, "w", encoding="utf-8") as file:
                file.write(good + line + "\n")
            done = place.run("sweep", "--plan", path, status=2)
            tap.lacks(done.stderr, "\x1b")
            for part in parts + [path]:
                tap.has(done.stderr, part)
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n \n")
        tap.has(place.run("sweep", "--plan", path, status=2).stderr, "holds no problem")


def a_plan_is_a_grid_of_its_lines_and_a_baseline_file_is_one_too():
    with Place(space=TWO, script=L4) as place:
        path = os.path.join(place.folder, "plan")
        problem = '"problem":{"seq_q":64,"heads_q":2,"batch":1,"head_dim":64}'
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"seq_q":64,"batch":1,"heads_q":1}\n\n'
                       '{"gpu":"NVIDIA L4","peer":"a","median_us":1,%s}\n'
                       '{"gpu":"L4","peer":"b","median_us":2,%s}\n' % (problem, problem))
        told = place.json("sweep", "--plan", path)
        tap.equal([(i["problem"]["heads_q"], i["problem"]["seq_k"], i["asked_gpu"], i["state"])
                   for i in told["items"]], [(1, 64, "", "done"), (2, 64, "L4", "done")])
        tap.has(place.run("sweep", "--list").stdout, "--plan " + path)


def a_sweep_tells_each_problem_and_shares_cubins_between_them():
    with Place(script=L4 + FAST) as place:
        done = place.run(*FOUR)
        lines = done.stderr.splitlines()
        tap.equal([line.split("]")[0] for line in lines], ["[1/4", "[2/4", "[3/4", "[4/4"])
        for line in lines:
            tap.has(line, "40.0 µs, 1.50× default")
        tap.equal(["8 cubins reused" in line for line in lines], [False, True, False, True])
        rows = done.stdout.splitlines()
        tap.equal([row.split()[0] for row in rows[:5]], ["problem", "fp16", "fp16", "fp16", "fp16"])
        for row in rows[1:5]:
            tap.has(row, "measured  attn_fwd_sm80 BLOCK_M=128")
            tap.has(row, "1.50×")
        tap.has(rows[5], "4 of 4 done")
        tap.has(rows[5], "32 trials, 16 cubins compiled, 16 reused")

        again = place.run(*FOUR)
        tap.equal((again.stdout, again.stderr), (done.stdout, "4 of 4 problems were done before\n"))
        told = place.json(*FOUR)
        tap.equal((told["sweep"]["state"], told["sweep"]["done"], told["sweep"]["failed"]),
                  ("done", 4, 0))
        tap.equal([(i["state"], i["reason"], i["attempts"], i["answer"]["origin"])
                   for i in told["items"]], [("done", "", 1, "measured")] * 4)
        tap.equal(told["sweep"]["budget"], {"seconds": None, "trials": None, "cost": None,
                                            "price": None})
        assert 0 < told["sweep"]["spent"]["seconds"] < 200
        tap.has(place.run("sweep", "--list").stdout, "4/4")
        tap.has(place.run("sweep", "--status").stdout, "done: 4 of 4 done, 0 failed, 0 left")
        tap.equal(place.json(*FOUR, "--status")["sweep"]["done"], 4)
        place.run("sweep", "--seq", "77", "--status", status=1)


def a_trial_budget_stops_between_trials_and_a_larger_one_goes_on():
    with Place(script=L4 + FAST) as place:
        told = place.json(*FOUR, "--trials", "11")
        tap.equal((told["sweep"]["state"], told["sweep"]["spent"]["trials"]), ("budget-spent", 11))
        tap.equal([i["state"] for i in told["items"]], ["done", "pending", "pending", "pending"])
        tap.equal(told["sweep"]["left"], {"items": 3, "seconds": None, "trials": 0, "cost": None})
        spent = place.run(*FOUR, "--trials", "11")
        tap.has(spent.stdout, "the budget is spent; 3 problems are left: the same command with a "
                              "larger budget goes on")
        tap.has(place.run("sweep", "--status").stdout, "budget-spent: 1 of 4 done")
        # The three trials of the second problem are on record: 5 are left of it. Its race is free.
        told = place.json(*FOUR, "--trials", "16")
        tap.equal((told["sweep"]["spent"]["trials"], told["sweep"]["done"]), (16, 2))
        told = place.json(*FOUR)
        tap.equal((told["sweep"]["state"], told["sweep"]["spent"]["trials"]), ("done", 32))


def a_time_budget_holds_for_all_runs_together():
    with Place(script=L4 + FAST) as place:
        told = place.json(*FOUR, "--time", "0.1s")
        tap.equal(told["sweep"]["state"], "budget-spent")
        assert told["sweep"]["spent"]["seconds"] >= 0.1, told["sweep"]
        attempts = [i["attempts"] for i in told["items"]]
        told = place.json(*FOUR, "--time", "0.1s")
        tap.equal([i["attempts"] for i in told["items"]], attempts)
        tap.equal(told["sweep"]["left"]["seconds"], 0)
        told = place.json(*FOUR, "--time", "1h")
        tap.equal((told["sweep"]["state"], told["sweep"]["done"]), ("done", 4))


def money_is_counted_for_a_gpu_that_is_held_and_for_no_other():
    with Place(script=L4 + FAST) as place:
        told = place.json(*FOUR, "--cost", "0.10", "--price", "36000")
        tap.equal(told["sweep"]["state"], "budget-spent")
        spent = told["sweep"]["spent"]
        assert spent["cost"] >= 0.10 and abs(spent["cost"] - spent["seconds"] * 10) < 1e-6, spent
        tap.has(place.run("sweep", "--status").stdout, "of 0.10 in money")
        told = place.json("sweep", "--seq", "64", *TINY, "--gpu", "A10", "--cost", "0.01",
                          "--price", "1000000000")
        tap.equal((told["sweep"]["state"], told["sweep"]["spent"]["cost"]), ("done", 0))
        tap.equal(told["items"][0]["answer"]["origin"], "predicted")


def a_problem_that_fails_is_told_and_tried_again_by_the_next_run():
    with Place(script=L4 + FAST + "fault DTYPE=bf16 wrong\nfault family wrong\n") as place:
        done = place.run("sweep", "--seq", "64,128", *TINY, status=1)
        tap.has(done.stdout, "failed")
        tap.has(done.stdout, "none of 8 configs survived")
        tap.has(done.stdout, "0 of 2 done, 2 failed (the same command tries them again)")
        tap.has(done.stderr, "2 of 2 problems failed")
        tap.has(place.run("sweep", "--status").stdout, "failed: fp16")
        told = place.json("sweep", "--seq", "64,128", *TINY, status=1)
        tap.equal([(i["state"], i["attempts"], i["answer"]) for i in told["items"]],
                  [("failed", 2, None)] * 2)
        place.use_fake_driver(L4 + FAST)
        told = place.json("sweep", "--seq", "64,128", *TINY, "--effort", "patient")
        tap.equal([i["state"] for i in told["items"]], ["done", "done"])


def no_device_stops_the_sweep_at_once():
    with Place(script="no_device\n") as place:
        done = place.run(*FOUR, status=1)
        tap.equal(done.stdout, "")
        tap.has(done.stderr, "--gpu L4")
        told = place.json("sweep", "--list")["sweeps"]
        tap.equal([(s["state"], s["done"], s["failed"]) for s in told], [("stopped", 0, 0)])


def what_was_predicted_is_measured_once_the_gpu_is_here_and_restart_forgets():
    grid = ["sweep", "--gpu", "L4,A10", "--seq", "64", *TINY]
    with Place(space=TWO, script="no_device\n") as place:
        told = place.json(*grid)
        tap.equal([(i["asked_gpu"], i["answer"]["origin"]) for i in told["items"]],
                  [("L4", "predicted"), ("A10", "predicted")])
        tap.has(place.run(*grid).stdout, "A10")
        place.use_fake_driver(L4)
        told = place.json(*grid)
        tap.equal([(i["attempts"], i["answer"]["origin"]) for i in told["items"]],
                  [(2, "measured"), (1, "predicted")])
        told = place.json(*grid, "--restart")
        tap.equal([(i["attempts"], i["answer"]["from_store"], i["spent"]["trials"])
                   for i in told["items"]], [(1, True, 0)] * 2)


def again_is_a_sweep_of_its_own_that_tunes_what_is_stored():
    with Place(space=TWO, script=L4) as place:
        grid = ["sweep", "--seq", "64", *TINY]
        place.run(*grid)
        told = place.json(*grid, "--again")
        tap.equal((told["items"][0]["attempts"], told["items"][0]["answer"]["from_store"]), (1, False))
        tap.equal(len(place.json("sweep", "--list")["sweeps"]), 2)


def baseline(seq, peer, us, **more):
    return json.dumps({"gpu": "L4", "peer": peer, "median_us": us, "problem": {
        "dtype": "fp16", "causal": "none", "head_dim": 64, "batch": 1, "heads_q": 1,
        "heads_kv": 1, "seq_q": seq, "seq_k": seq}, **more}) + "\n"


def baselines_stand_beside_winners_and_what_is_far_behind_is_flagged():
    with Place(space=TWO, script=L4 + FAST) as place:
        path = os.path.join(place.folder, "peers.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(baseline(64, "pytorch-fa2", 80.0) + baseline(64, "pytorch-cudnn", 60.0) +
                       baseline(128, "pytorch-cudnn", 12.0) + baseline(4096, "pytorch-fa2", 1.0))
        grid = ["sweep", "--seq", "64,128,256", *TINY]
        done = place.run(*grid, "--baseline", path)
        tap.has(done.stderr, "4 baselines taken")
        rows = done.stdout.splitlines()
        tap.has(rows[0], "vs best baseline")
        tap.has(rows[1], "1.50× pytorch-cudnn       measured")
        tap.has(rows[2], "0.30× pytorch-cudnn SLOW  measured")
        tap.lacks(rows[3], "pytorch")
        tap.has(rows[4], "SLOW fp16")
        tap.has(rows[4], "0.30× the speed of pytorch-cudnn, which takes 12.0 µs")
        tap.has(rows[5], "profile")
        tap.has(rows[6], "1 of 2 at or ahead")
        tap.lacks(done.stdout, "\x1b")
        told = place.json(*grid) # they stay in the store
        ours = [i["baseline"] for i in told["items"]]
        tap.equal([(b["peer"], round(b["speed_ratio"], 1), b["slow"]) for b in ours[:2]],
                  [("pytorch-cudnn", 1.5, False), ("pytorch-cudnn", 0.3, True)])
        tap.equal(ours[2], None)

        with open(path, "a", encoding="utf-8") as file:
            file.write(baseline(512, "new", 5.0) + '{"peer":1}\n')
        done = place.run(*grid, "--baseline", path, status=2)
        tap.has(done.stderr, "line 6: ")
        tap.equal(place.json(*grid)["items"][2]["baseline"], None)


def the_flag_is_red_on_a_terminal():
    import pty
    with Place(space=TWO, script=L4 + FAST) as place:
        path = os.path.join(place.folder, "peers.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(baseline(64, "peer", 4.0))
        place.run("sweep", "--seq", "64", *TINY, "--baseline", path)
        for extra, red in (({"TERM": "xterm"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False),
                           ({"TERM": "dumb"}, False)):
            place.env.pop("NO_COLOR", None)
            place.env.update(extra)
            parent, child = pty.openpty()
            process = place.start("sweep", "--seq", "64", *TINY, stdin=subprocess.DEVNULL,
                                  stdout=child, stderr=subprocess.DEVNULL)
            os.close(child)
            text = b""
            while True:
                try:
                    block = os.read(parent, 65536)
                except OSError:
                    break
                if not block:
                    break
                text += block
            os.close(parent)
            tap.equal(process.wait(60), 0)
            tap.equal((extra, b"\x1b[1;31mSLOW\x1b[0m fp16" in text), (extra, red))
            tap.equal((extra, b"\x1b" in text), (extra, red))


def something_is_told_while_a_problem_takes_long():
    hang = L4 + "fault BLOCK_M=64; hang\n"
    with Place(space=TWO, script=hang) as place:
        done = place.run("sweep", "--seq", "64", *TINY, "--trial-timeout", "7", "--price", "2")
        lines = done.stderr.splitlines()
        assert len(lines) >= 2, lines
        tap.has(lines[0], "0/1")
        tap.has(lines[0], "in money")
        tap.has(lines[0], "now fp16 · B 1 · H 1 · S 64 · D 64")
        tap.equal(place.run("sweep", "--seq", "64", *TINY, "--quiet").stderr, "")


def ctrl_c_keeps_everything():
    with Place(script=L4 + FAST) as place:
        process = place.start(*FOUR, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8")
        assert process.stderr.readline().startswith("[1/4]")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        tap.equal((process.returncode, out), (130, ""))
        tap.has(err, "problems are done, the same command goes on from there")
        told = place.json("sweep", "--list")["sweeps"]
        tap.equal(told[0]["state"], "stopped")
        assert 1 <= told[0]["done"] < 4, told
        tap.equal(place.json(*FOUR)["sweep"]["spent"]["trials"], 32)


def two_processes_do_not_run_one_sweep():
    with Place(space=TWO, script=L4 + "fault BLOCK_M=64; hang\n") as place:
        grid = ["sweep", "--seq", "64", *TINY]
        first = place.start(*grid, "--trial-timeout", "60", stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for _ in range(600):
                listed = place.json("sweep", "--list")["sweeps"]
                if listed and listed[0]["state"] == "running":
                    break
                time.sleep(0.1)
            tap.has(place.run(*grid, status=1).stderr, "another process runs this sweep")
        finally:
            first.kill()
            first.wait()
        tap.equal(place.json("sweep", "--list")["sweeps"][0]["state"], "stopped")


tap.main([
    every_bad_grid_gets_its_sentence_and_status_2,
    a_grid_is_the_product_of_its_lists,
    bad_plans_are_refused_by_line,
    a_plan_is_a_grid_of_its_lines_and_a_baseline_file_is_one_too,
    a_sweep_tells_each_problem_and_shares_cubins_between_them,
    a_trial_budget_stops_between_trials_and_a_larger_one_goes_on,
    a_time_budget_holds_for_all_runs_together,
    money_is_counted_for_a_gpu_that_is_held_and_for_no_other,
    a_problem_that_fails_is_told_and_tried_again_by_the_next_run,
    no_device_stops_the_sweep_at_once,
    what_was_predicted_is_measured_once_the_gpu_is_here_and_restart_forgets,
    again_is_a_sweep_of_its_own_that_tunes_what_is_stored,
    baselines_stand_beside_winners_and_what_is_far_behind_is_flagged,
    the_flag_is_red_on_a_terminal,
    something_is_told_while_a_problem_takes_long,
    ctrl_c_keeps_everything,
    two_processes_do_not_run_one_sweep,
])
