#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a sweep is asked: grids and plans, good and bad."""
import json
import os

import tap
from place import Place

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"
TINY = ["--batch", "1", "--heads", "1"]
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
        (["--seq", "512:1024"], ["add a factor or a step, as in :x2", ":x2"]),
        (["--seq", "1024:512:x2"], ["goes down", "write 512:1024:x2"]),
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
        (["--seq", "64", "--head-dim", "12"], ['--head-dim "12": use a multiple of 8 from 8']),
        (["--seq", "64", "--head-dim", "64:1024:x2"], ['--head-dim "1024": head dims above 512 (MLA, absorbed) are not covered']),
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
        (["--seq", "64", "--time", "30x"], ["as in 90s, 30m, 2h or 3d"]),
        (["--seq", "64", "--time", "0s"], ["as in 90s"]),
        (["--seq", "64", "--time", "m"], ["as in 90s"]),
        (["--seq", "64", "--time", "nanm"], ["as in 90s"]),
        (["--seq", "64", "--trials", "0"], ["--trials"]),
        (["--seq", "64", "--cost", "0.5"], ["needs --price"]),
        (["--seq", "64", "--cost", "0", "--price", "1"], ["above 0"]),
        (["--seq", "64", "--cost", "1e3", "--price", "1"], ["above 0"]),
        (["--seq", "64", "--price", "inf"], ["above 0"]),
        (["--plan", "/nowhere/plan"], ["/nowhere/plan: there is no such file"]),
        (["--plan", "/", ], ["it is a folder"]),
        (["--plan", "x", "--seq", "64"], ["--plan brings its own"]),
        (["--list", "--status"], ["exclude one another"]),
        (["--list", "--seq", "64"], ["takes no grid"]),
        (["--status", "--restart", "--seq", "64"], ["--restart runs a sweep"]),
        (["--seq-q", "64"], ["`fa-tune sweep` does not take --seq-q"]),
        (["--seq", "64", "more"], ['"more"', "nothing more but options"]),
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
        place.one_backward_config()  # of what other tests compile, too
        backward = ["--operation", "attn_bwd", *TINY, "--causal", "bottom-right", "--head-dim", "64,128", "--seq"]
        for more, values in ((["64"], [64, 128]), (["128", "--head-dim-v", "64"], [64, 64])):  # the first of each is tuned
            tap.equal([p["head_dim_v"] for p in plans(place, *backward, *more)], values)


def bad_plans_are_refused_by_line():
    good = '{"seq_q":64,"batch":1,"heads_q":1}\n'
    table = [
        ("{", ["line 2", "not valid JSON"]),
        ("[]", ["line 2", "no JSON object"]),
        ("{}", ["line 2", 'needs "seq_q", which is missing']),
        ('{"seq_q":-1}', ["line 2", "must be 0 to"]),
        ('{"seq_q":64.5}', ["line 2", "whole number"]),
        ('{"seq_q":64,"head_dim":7}', ["line 2", "multiple of 8"]),
        ('{"seq_q":64,"head_dmi":64}', ["line 2", "head_dmi"]),
        ('{"seq_q":64,"gpu":"L44"}', ["line 2", "L44"]),
        ('{"seq_q":64,"gpu":4}', ["line 2", "must be a string"]),
        ('{"problem":7}', ["line 2", "no JSON object"]),
        ('{"problem":{"seq_q":64,"gpu":"L4"}}', ["line 2", '"gpu"']),
        ('{"seq_q":64,"operation":"conv"}', ["line 2", "conv"]),
        ('{"seq_q":64,"seq_q":65}', ["line 2", "appears twice"]),
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


tap.main([
    every_bad_grid_gets_its_sentence_and_status_2,
    a_grid_is_the_product_of_its_lists,
    bad_plans_are_refused_by_line,
    a_plan_is_a_grid_of_its_lines_and_a_baseline_file_is_one_too,
])
