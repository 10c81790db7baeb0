#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a sweep is asked: grids and plans, good and bad."""
import json
import os

import tap
from place import L4, TINY, TWO, Place


def plans(place, *options):
    """The problems of a grid, which one trial ends."""
    done = place.run("sweep", *options, "--trials", "1", "--json")
    return [item["problem"] for item in json.loads(done.stdout)["items"]]


def every_bad_grid_gets_its_sentence_and_status_2():
    table = [
        ([], "--seq LIST or --plan FILE is missing, as in fa-tune sweep --seq 512:16384:x2"),
        *((["--seq", text], '--seq: "%s" is not a range (FIRST:LAST:xFACTOR as 512:16384:x2, FIRST:LAST:+STEP' % text)
          for text in ("512:1024", "1024:512:x2", "512:1024:+0", "512:1024:x2:x2")),
        (["--seq", "1:2000000000:+1"], "more than 256 values"),
        *((["--seq", text], "is not a list of values between commas") for text in ("512,,1024", "512,", "9" * 5000)),
        *((["--seq", text], "is not a whole number (1 to 2147483647) or a range such as") for text in ("-5", "99999999999", "\x1b[31m")),
        (["--seq", "64", "--head-dim", "12"], '--head-dim: "12" is not a multiple of 8 (8 to 576'),
        (["--seq", "64", "--head-dim", "64:1024:x2"], "head dims above 576 are not covered"),
        (["--seq", "64", "--dtype", "fp8"], '--dtype: "fp8" is not fp16 or bf16'),
        (["--seq", "64", "--causal"], "--causal: its value is missing (none,bottom-right,top-left,both)"),
        (["--seq", "64", "--heads", "8", "--heads-kv", "3"], "heads_kv is 3: it must divide heads_q, which is 8"),
        (["--seq", "96", "--tokens", "1000"], "not a multiple of --seq 96"),
        (["--seq", "64", "--tokens", "64", "--batch", "1"], "--tokens: does not go with --batch"),
        (["--seq", "64", "--gpu", "L4,L44"], "L44"),
        (["--seq", "64", "--effort", "cached"], '--effort: "cached" is not predict, measure or patient'),
        (["--seq", "1:200:+1", "--batch", "1:100:+1"], "more than 10000 problems"),
        *((["--seq", "64", "--time", text], "is not a time (90s, 30m, 2h, 3d; at most a year)") for text in ("30x", "0s", "m", "nanm")),
        (["--plan", "/nowhere/plan"], "/nowhere/plan: there is no such file"),
        (["--plan", "/"], "it is a folder"),
        (["--plan", "x", "--seq", "64"], "--plan: does not go with options of a grid"),
    ]
    with Place(space=TWO) as place:
        for arguments, part in table:
            done = place.run("sweep", *arguments, status=2)
            tap.equal((arguments, done.stdout), (arguments, ""))
            tap.lacks(done.stderr, "\x1b")
            tap.has(done.stderr, part)
        assert not os.path.exists(place.store), "a grid that is refused opens no store"


def a_grid_is_the_product_of_its_lists():
    with Place(space=TWO, script=L4) as place:
        told = plans(place, "--seq", "64:256:x2,96", "--seq-k", "512", "--batch", "1:3:+1",
                     "--heads", "8,4", "--heads-kv", "2,4", "--causal", "both,top-left",
                     "--dtype", "bf16", "--layout", "bshd", "--lse")
        tap.equal(len(told), 4 * 3 * 2 * 2 * 3)
        assert all(p["seq_k"] == 512 and p["dtype"] == "bf16" and p["layout"] == "bshd" and p["lse"] for p in told)
        tap.equal({p["seq_q"] for p in told}, {64, 96, 128, 256})
        tap.equal({(p["heads_q"], p["heads_kv"]) for p in told}, {(8, 2), (8, 4), (4, 2), (4, 4)})
        tap.equal(sorted({p["causal"] for p in told}), ["bottom-right", "none", "top-left"])
        # Problems that render the same source stand next to one another.
        tap.equal([p["causal"] for p in told], sorted((p["causal"] for p in told), key=["none", "bottom-right", "top-left"].index))
        told = plans(place, "--seq", "64:256:x2", "--tokens", "512", "--hidden", "256", "--head-dim", "64,128")
        tap.equal([(p["head_dim"], p["heads_q"], p["seq_q"], p["batch"]) for p in told],
                  [(64, 4, 64, 8), (64, 4, 128, 4), (64, 4, 256, 2), (128, 2, 64, 8), (128, 2, 128, 4), (128, 2, 256, 2)])
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
        ('{"seq_q":-1}', ["line 2", "use 0 to"]),
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
            tap.write(path, good + line + "\n")
            done = place.run("sweep", "--plan", path, status=2)
            tap.lacks(done.stderr, "\x1b")
            for part in parts + [path]:
                tap.has(done.stderr, part)
        tap.write(path, "\n \n")
        tap.has(place.run("sweep", "--plan", path, status=2).stderr, "holds no problem")


def a_plan_is_a_grid_of_its_lines_and_a_baseline_file_is_one_too():
    with Place(space=TWO, script=L4) as place:
        path = os.path.join(place.folder, "plan")
        problem = '"problem":{"seq_q":64,"heads_q":2,"batch":1,"head_dim":64}'
        tap.write(path, '{"seq_q":64,"batch":1,"heads_q":1}\n\n'
                        '{"gpu":"NVIDIA L4","peer":"a","median_us":1,%s}\n'
                        '{"gpu":"L4","peer":"b","median_us":2,%s}\n' % (problem, problem))
        told = place.json("sweep", "--plan", path)
        tap.equal([(i["problem"]["heads_q"], i["problem"]["seq_k"], i["asked_gpu"], i["state"])
                   for i in told["items"]], [(1, 64, "", "done"), (2, 64, "L4", "done")])
        tap.has(place.run("queue").stdout, "--plan " + path)


tap.main()
