#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An operation that only a folder describes: L1 norm of tests/operations goes everywhere that attention
goes, through --templates alone. Under the fake driver, which runs its kernels' arithmetic on the CPU.

Two families compete: l1_norm_rows has one launch, l1_norm_split two and a workspace between them."""
import json
import os
import random
import shutil

import tap
from place import L4, SOURCE, Place, read_manifest, tunables, write_manifest

SLOW = os.environ.get("FA_TEST_SLOW") == "1"
# A call of l1_norm_split takes both its launches' times.
TIMES = "time WARPS= 50\ntime WARPS=2; 30\ntime PARTS=8; 40\ntime PARTS=2; 20\n"
ROWS = ["--operation", "l1_norm", "--rows", "64", "--columns", "256"]
PROBLEM = {"operation": "l1_norm", "dtype": "fp16", "rows": 64, "columns": 256}


def a_place(script=L4 + TIMES):
    place = Place(space=None, script=script)
    place.env["FA_TUNE_TEMPLATES"] = os.path.join(SOURCE, "tests", "operations")
    return place


def edit(path, change):
    """Changes the document in a file of JSON."""
    document = json.loads(tap.read(path))
    change(document)
    tap.write(path, json.dumps(document))


def own_copy(place):
    """Gives the place a folder of templates of its own, to be changed."""
    folder = os.path.join(place.folder, "operations")
    shutil.copytree(place.env["FA_TUNE_TEMPLATES"], folder)
    place.env["FA_TUNE_TEMPLATES"] = folder
    return os.path.join(folder, "l1_norm")


def append(text, *path):
    tap.write(os.path.join(*path), text, "a")


def a_tune_proves_and_times_every_config_of_both_families():
    with a_place() as place:
        told = place.json(*ROWS, "--top", "100")
        answer, funnel = told["answer"], told["funnel"]
        tap.equal({name: answer["problem"][name] for name in PROBLEM}, PROBLEM)
        tap.equal((answer["origin"], tunables(answer)), ("measured", "WARPS=2"))
        tap.equal([funnel[name] for name in ("space", "proved", "measured", "failed")], [8, 8, 8, 0])
        assert 29 < answer["median_us"] < 32, answer
        assert answer["max_error"] <= answer["tolerance"], answer
        split = {tunables(row): row["median_us"] for row in told["ranking"] if row["config"]["family"] == "l1_norm_split"}
        assert 39 < split["THREADS=64;PARTS=2"] < 42 and 79 < split["THREADS=64;PARTS=8"] < 83, split
        text = place.run(*ROWS).stdout
        tap.has(text, "L1 norm · fp16 · R 64 · C 256 · on NVIDIA L4")
        tap.has(place.run("show").stdout, "L1 norm · fp16 · R 64 · C 256")


def a_wrong_kernel_and_one_that_writes_behind_its_workspace_fail_their_proof():
    with a_place(L4 + TIMES + "fault WARPS=2; wrong\nfault WARPS=4; nan\nfault WARPS=8; unwritten\nfault PARTS=2; overrun\n") as place:
        place.run(*ROWS)
        told = place.json("explain", *ROWS)
        ended = {tunables(row): (row["status"], row["reason"]) for row in told["configs"]}
        tap.equal(sorted(key for key, (status, _) in ended.items() if status != "wrong"), ["THREADS=256;PARTS=8", "THREADS=64;PARTS=8", "WARPS=1"])
        tap.has(ended["WARPS=2"][1], "element 0 of y is")
        tap.has(ended["WARPS=4"][1], "is nan")
        tap.has(ended["WARPS=8"][1], "of y is nan")
        tap.has(ended["THREADS=64;PARTS=2"][1], "past the end of its workspace")


def a_kernel_whose_shared_memory_grows_with_a_length_is_proved_on_cases_that_fit():
    with a_place(L4 + TIMES + "fault PARTS=2; wrong\n") as place:
        edit(os.path.join(own_copy(place), "l1_norm_split.json"), lambda told: told["launches"][0].update(shared_memory={"rows": "1500 * ROWS"}))
        for bits in [], ["--same-bits", "default"]:
            place.run(*ROWS, *bits, "--seed", "5")
            ended = {(tunables(row)[-7:], row["status"]) for row in place.json("explain", *ROWS, *bits)["configs"]}
            tap.equal(ended, {("PARTS=2", "wrong"), ("PARTS=8", "measured"), *(("WARPS=%d" % n, "measured") for n in (1, 2, 4, 8))})


def a_kernel_that_writes_in_front_of_its_workspace_fails_its_proof():
    with a_place(L4 + "fault PARTS=2; underrun\n") as place:
        place.run(*ROWS)
        reasons = {tunables(row): row["reason"] for row in place.json("explain", *ROWS)["configs"]}
        tap.has(reasons["THREADS=64;PARTS=2"], "in front of its workspace of")
        tap.equal(reasons["THREADS=64;PARTS=8"], "")


def a_kernel_that_writes_to_its_input_fails_and_spoils_no_other_proof():
    with a_place(L4 + TIMES + "fault WARPS=2; spoil\nfault PARTS=8; spoil\n") as place:
        place.run(*ROWS)
        told = place.json("explain", *ROWS)
        ended = {tunables(row): (row["status"], row["reason"]) for row in told["configs"]}
        tap.equal({key for key, (status, _) in ended.items() if status == "wrong"}, {"WARPS=2", "THREADS=64;PARTS=8", "THREADS=256;PARTS=8"})
        tap.has(ended["WARPS=2"][1], "it wrote to its input x")


def a_kernel_that_writes_to_what_the_reference_made_fails_and_spoils_no_other_proof():
    """O of attention backward, by one bit."""
    command = ["--operation", "attn_bwd", "--seq", "40", "--batch", "1", "--heads", "1", "--causal", "--exact"]
    with Place(script=L4 + "fault STAGES=2; spoil\n") as place:
        place.one_backward_config(STAGES=[1, 2])
        place.run(*command)
        ended = {row["config"]["tunables"]["STAGES"]: (row["status"], row["reason"]) for row in place.json("explain", *command)["configs"]}
        tap.equal(ended[2][0], "wrong")
        tap.has(ended[2][1], "it wrote to its input o")
        tap.equal(ended[1], ("measured", ""))


def the_gradient_of_the_lse_is_for_families_that_take_it():
    """Of two, the one that says so is proved with it, on problems of the operation's own."""
    command = ["--operation", "attn_bwd", "--seq", "40", "--batch", "1", "--heads", "2", "--causal", "--exact"]
    with Place(script=L4 + "fault STAGES=2; wrong\n") as place:
        place.one_backward_config(STAGES=[1, 2])
        for options in ([], ["--d-lse"]):
            place.run(*command, *options)
            ended = {row["config"]["tunables"]["STAGES"]: row["status"] for row in place.json("explain", *command, *options)["configs"]}
            tap.equal(ended, {1: "measured", 2: "wrong"})
        folder = place.env["FA_TUNE_TEMPLATES"]
        write_manifest(folder, {**read_manifest("attn_bwd_sm80", folder), "takes": ["score", "mask", "buffers", "d_buffers"]})
        tap.has(place.run(*command, "--d-lse", status=1).stderr, "attn_bwd_sm80 does not take d_lse = true")


def a_seed_of_sixteen_digits_makes_the_same_cases_in_the_worker():
    """The tune works out a case's grid and workspace, the worker makes its tensors."""
    with a_place(L4 + "fault PARTS=2; overrun\n") as place:
        place.run(*ROWS, "--seed", "8187504576055151")
        reasons = {tunables(row): row["reason"] for row in place.json("explain", *ROWS)["configs"]}
        tap.equal(reasons["THREADS=64;PARTS=2"], "it wrote past the end of its workspace of 520 bytes")


def for_a_gpu_that_is_not_here_it_is_compiled_and_unranked_for_want_of_a_model():
    """Configs that nothing tells apart are no winner and have no time; the default stands for them."""
    command = ["--gpu", "L40S", *ROWS]
    with a_place() as place:
        told = place.json(*command)
        tap.equal((told["answer"]["origin"], tunables(told["answer"])), ("unranked", "WARPS=4"))
        tap.equal({(row["rank"], row["predicted_us"]) for row in told["ranking"]}, {(None, None)})
        assert all(row["registers"] > 0 and row["blocks_per_sm"] > 0 for row in told["ranking"]), told
        text = place.run(*command).stdout
        tap.has(text, "unranked: no model tells these kernels apart.")
        assert "winner" not in text and "predicted" not in text and "µs" not in text, text
        header = next(line for line in text.splitlines() if "family" in line)
        tap.equal(header.split()[-5:], ["B", "regs", "spill", "B", "blocks/SM"])
        tap.has(place.run("show").stdout, "unranked")
        problem, = place.json("report")["problems"]
        tap.equal((problem["known_how"], problem["winner"]["median_us"], problem["winner"]["predicted_us"]), ("unranked", None, None))
        tap.equal([record["answer"]["origin"] for record in place.records("r.jsonl")], ["unranked"])
        tap.has(place.run("explain", *command).stdout, "unranked, without a model: 8 passed")
        tap.has(place.run("show", "--why", *command).stdout, "the default config, unranked without a model")
        # Where the GPU is, effort predict proves the default, and a tune times all of them.
        told = place.json(*ROWS, "--effort", "predict")
        tap.equal((told["answer"]["origin"], told["funnel"]["proved"], tunables(told["answer"])), ("unranked", 1, "WARPS=4"))
        tap.equal(place.json(*ROWS)["answer"]["origin"], "measured")
        tap.equal([one["known_how"] for one in place.json("report")["problems"]], ["unranked", "measured"])


def a_manifest_that_says_what_its_launches_do_is_ranked():
    """What computes less is faster; configs that the model does not tell apart have no rank."""
    command = ["--gpu", "L40S", "--operation", "l1_norm", "--rows", "4096", "--columns", "256"]
    with a_place() as place:
        folder = own_copy(place)
        rows, split = (os.path.join(folder, name + ".json") for name in ("l1_norm_rows", "l1_norm_split"))
        edit(rows, lambda told: told.update(work={"bytes": "4*ROWS*COLUMNS", "operations": "ROWS*COLUMNS*4000/WARPS"}))
        told = place.json(*command)
        us = {tunables(row): row["predicted_us"] for row in told["ranking"]}
        assert us["WARPS=8"] < us["WARPS=4"] < us["WARPS=2"] < us["WARPS=1"] < 1000, us
        assert 14 < us["WARPS=8"] < 15, us   # 524 million operations, 128 a clock on each of 142 SMs at 2,520 MHz, and a launch
        tap.equal((told["answer"]["origin"], told["answer"]["rank"], tunables(told["answer"])), ("predicted", 1, "WARPS=8"))
        tap.equal([row["rank"] for row in told["ranking"]][:2], [1, 2])
        tap.has(place.run(*command).stdout, "winner #1, predicted.")
        edit(rows, lambda told: told.update(work={"steps": "ROWS", "bytes": "4*COLUMNS"}))
        told = place.json(*command)
        tap.equal((told["answer"]["origin"], told["answer"]["rank"], tunables(told["answer"])), ("predicted", None, "WARPS=4"))
        ranks = {row["config"]["family"]: row["rank"] for row in told["ranking"]}
        tap.equal(ranks["l1_norm_rows"], None)
        tap.has(place.run(*command).stdout, "winner, predicted; ties: 3.")
        edit(split, lambda told: told["launches"][0].update(work={"byte": "ROWS"}))
        tap.has(place.run(*command, status=2).stderr, 'launches[0]: work: the key "byte" is unknown: did you mean "bytes"?')


def attention_compiles_within_its_budget_on_every_generation():
    """The default config and one at random, of dense attention or of what serving engines ask for, on a drawn type of each generation; with
    `./dev test --slow` both, on every type."""
    seed = random.randrange(1 << 30)
    dice, chips = random.Random(seed), {}
    print("# seed %d" % seed)
    with Place(space=None) as place:
        place.env.pop("FA_TUNE_NVRTC", None)  # other sources each time: nothing is kept of them
        for gpu in place.json("gpus")["gpus"]:
            if not gpu.get("refused"):
                chips.setdefault(gpu["sm"] // 10, []).append(gpu)
        tap.equal(sorted(chips), [7, 8, 9, 10, 11, 12])
        for gpu in sum(chips.values(), []) if SLOW else map(dice.choice, chips.values()):
            dense = ["--head-dim", dice.choice(("32", "64", "96", "128", "192", "256")), "--seq", "1024", *dice.choice(([], ["--causal"]))]
            serving = ["--head-dim", dice.choice(("64", "128", "512")), "--seq-q", dice.choice(("1", "16", "200")), "--seq-k", "4096", "--page", "16",
                       "--lengths-k", "seqused", *dice.choice(([], ["--kv-dtype", "fp8"], ["--softcap"], ["--sinks"], ["--window", "1023,0"]))]
            for options in [dense] if gpu["sm"] < 80 else [dense, serving] if SLOW else [dice.choice((dense, serving))]:
                funnel = place.json("--gpu", gpu["name"], *options, "--strategy", "random", "--evaluations", "2")["funnel"]
                assert funnel["in_budget"] == funnel["compiled"] and funnel["clean"] == 2, (gpu["name"], options, funnel)  # one that spills costs nothing


def attention_backward_for_a_gpu_that_is_not_here_is_predicted():
    """Times of the right size; what the model does not tell apart has no rank; shared memory is that of the main launch."""
    with Place() as place:
        place.one_backward_config(BLOCK_M=[32, 64], STAGES=[1, 2])
        told = place.json("--operation", "attn_bwd", "--gpu", "L4", "--seq", "512", "--causal")
        answer, rows = told["answer"], told["ranking"]
        tap.equal(answer["origin"], "predicted")
        assert 50 < rows[-1]["predicted_us"] < 400, rows[-1]
        within = sum(row["predicted_us"] <= 1.05 * min(row["predicted_us"] for row in rows) for row in rows)
        tap.equal(sum(row["rank"] is None for row in rows), within if within > 1 else 0)
        for row in rows:
            t = row["config"]["tunables"]
            tap.equal(row["smem_bytes"], 2 * (t["BLOCK_N"] * 128 + t["STAGES"] * t["BLOCK_M"] * 128 + 2 * t["BLOCK_M"] * t["BLOCK_N"]))
        longer = place.json("--operation", "attn_bwd", "--gpu", "L4", "--seq", "2048", "--head-dim", "64", "--causal")
        assert 3 < longer["ranking"][0]["predicted_us"] / rows[0]["predicted_us"] < 10


def attention_backward_for_hopper_compiles_as_it_was_meant():
    """Configs of attn_bwd_sm90a and attn_bwd_wide_sm90a within their budget, with the compiler at hand: no spills, no waits that the assembler puts
    between products, the shared memory that the manifest says. Of a problem with everything for each the default config, which takes
    3 s to compile; with `./dev test --slow` every config of seven problems. What they do not take is left to attn_bwd_sm80."""
    command = ["--operation", "attn_bwd", "--gpu", "H200", "--exact", "--seq", "384", "--dtype", "bf16"]
    problems = [["--head-dim", "128", "--head-dim-v", "64", "--causal", "--varlen", "--softcap", "--window", "100,20", "--sinks", "--deterministic", "--d-lse"],
                ["--head-dim", "192", "--head-dim-v", "128", "--softcap", "--window", "100,20", "--sinks", "--varlen", "--d-lse"]]
    more = [["--head-dim", "128", "--softcap", "--window", "100,20", "--sinks", "--deterministic"],
            ["--head-dim", "64", "--causal"],
            ["--head-dim", "128", "--causal", "--varlen"],
            ["--head-dim", "64", "--softcap", "--window", "100,20", "--deterministic", "--varlen"],
            ["--head-dim", "256", "--causal"]]
    with Place(space=None) as place:
        for options in problems + more if SLOW else [[*options, "--evaluations", "1"] for options in problems]:
            funnel = place.json(*command, *options)["funnel"]
            assert funnel["in_budget"] == funnel["compiled"] == funnel["clean"] > 0, (options, funnel)
        for options, *families in ((["--head-dim", "96"], "attn_bwd_sm90a", "attn_bwd_ring_sm90a"), (["--head-dim", "64"], "attn_bwd_sm90a", "attn_bwd_ring_sm90a", "attn_bwd_short_sm90a"), (["--head-dim", "96", "--varlen", "--sinks"], "attn_bwd_sm90a"),
                                (["--head-dim", "136"], "attn_bwd_wide_sm90a"), (["--head-dim", "128", "--head-dim-v", "136"], "attn_bwd_wide_sm90a"),
                                (["--head-dim", "256", "--batch", "16", "--heads", "64", "--seq", "1048576"], "attn_bwd_wide_sm90a"),   # numbers are large
                                (["--head-dim", "136", "--unaligned"], "attn_bwd_sm80"), (["--head-dim", "64", "--unaligned"], "attn_bwd_sm80")):
            tap.equal({row["config"]["family"] for row in place.json("explain", *command, *options)["configs"]}, set(families))
        tap.has(place.run("explain", *command, "--varlen", "--seq", "20", "--batch", "2000000000", status=1).stderr, "no kernel family serves")


def short_gradients_are_launched_alike_within_a_bucket():
    with Place(space=None) as place:
        launches = [{(row["config"]["family"], str(row["config"]["tunables"])): (row["status"], row["smem_bytes"])
                     for row in place.json("explain", "--operation", "attn_bwd", "--gpu", "H200", "--exact", "--causal", "--seq-q", q, "--seq-k", k)["configs"] if row["config"]["family"] in ("attn_bwd_short_sm90a", "attn_bwd_ring_sm90a")}
                    for q, k in (("124", "124"), ("128", "128"), ("135", "125"))]   # all of the bucket of 128
        assert launches[0] and launches[1:] == launches[:2], launches


def rms_norm_is_predicted_and_compiles_as_it_was_meant():
    """Every config within its budget, with the compiler at hand, on the first and the last architecture: no spills. Times are those of memory.
    Of the first architecture, and of the widest rows, which compile longest, two configs, with `./dev test --slow` all."""
    few = [] if SLOW else ["--evaluations", "2"]
    with Place(space=None) as place:
        wide = ["--rows", "300", "--columns", "65536", *few]
        for gpu, problems in (("T4", [["--rows", "4096", "--columns", "128", *few], wide]),
                              ("H200", [["--rows", "4096", "--residual"], wide,
                                        ["--rows", "2", "--columns", "30001", "--unaligned", "--residual", "--dtype", "bf16", *few]])):
            for options in problems:
                told = place.json("--operation", "rms_norm", "--gpu", gpu, *options)
                funnel = told["funnel"]
                assert funnel["in_budget"] == funnel["compiled"] == funnel["clean"] > 0, (gpu, options, funnel)
                tap.equal(told["answer"]["origin"], "predicted")
            assert all(len(row["config"]["tunables"]) == 2 for row in told["ranking"])
        told = place.json("--operation", "rms_norm", "--gpu", "H200", "--rows", "4096", "--residual")
        # 128 MiB at 4.8 TB/s are 28 us, and a launch.
        assert 28 < told["answer"]["predicted_us"] < 36, told["answer"]
        tap.has(place.run("--operation", "rms_norm", "--gpu", "L4", "--rows", "64", "--columns", "1001", status=1).stderr,
                "columns must be a multiple of 8, unless the problem is unaligned")


def without_a_reference_that_compiles_nothing_is_tuned_where_the_gpu_is_not_either():
    for gpu in ([], ["--gpu", "L40S"]):
        with a_place() as place:
            reference = os.path.join(own_copy(place), "l1_norm_reference.cu")
            append("static_assert(oops, \"\");\n", reference)
            told = place.run(*gpu, *ROWS, status=1)
            tap.has(told.stderr, "the reference kernel: l1_norm_reference.cu(20): error: identifier \"oops\"")
            tap.equal(told.stdout, "")
            os.remove(reference)
            tap.has(place.run(*gpu, *ROWS, status=2).stderr, "its reference l1_norm_reference.cu is not there")
            tap.equal(place.json("show")["winners"], [])


def a_family_that_never_compiles_tells_its_error_once_where_another_lives():
    with a_place() as place:
        folder = own_copy(place)
        append("int broken(\n", folder, "l1_norm_rows.cu")
        for command in (ROWS, ["--gpu", "L40S", *ROWS]):
            done = place.run(*command)
            tap.equal(done.stderr.count("note: family l1_norm_rows: "), 1)
            tap.has(done.stderr, "l1_norm_rows.cu(")
            tap.has(done.stderr, "error: ")
            tap.lacks(done.stderr, "family l1_norm_split: ")
    with a_place() as place:
        edit(os.path.join(own_copy(place), "l1_norm_rows.json"), lambda told: told.update(kernel="rows"))
        tap.equal(place.run(*ROWS).stderr.count("note: family l1_norm_rows: "), 1)
    with a_place() as place:
        tap.lacks(place.run(*ROWS).stderr, "family")


def a_source_that_never_compiles_is_compiled_a_few_times_and_its_error_printed_at_once():
    with a_place() as place:
        folder = own_copy(place)
        os.remove(os.path.join(folder, "l1_norm_split.json"))
        append("static_assert(oops, \"\");\n", folder, "l1_norm_rows.cu")
        edit(os.path.join(folder, "l1_norm_rows.json"), lambda told: told["tune"].update(UNROLL=list(range(1, 21))) or told["default"].update(UNROLL=7))
        command = ["--gpu", "L40S", *ROWS]
        stderr = place.run(*command, status=1).stderr
        error = "l1_norm_rows.cu(28): error: identifier \"oops\""
        tap.equal((stderr.count(error), stderr.index(error) < stderr.index("survived; the first: ")), (2, True))
        tap.equal(stderr.count("says where each ended"), 1)
        ended = place.json("explain", *command)
        # A config that another worker is compiling when the tune ends stays to be tried.
        tap.equal(ended["counts"]["compile-failed"] + ended["counts"]["pending"], 80)
        assert ended["counts"]["pending"] < 16, ended["counts"]
        left_out = [row for row in ended["configs"] if row["reason"].startswith("not compiled, as ")]
        assert 30 < len(left_out) < 73, len(left_out)
        # Effort patient tries them all, and one family's fault is not another's.
        place.run(*command, "--effort", "patient", status=1)
        tap.equal([row for row in place.json("explain", *command)["configs"] if row["reason"].startswith("not compiled, as ")], [])
        shutil.copy(os.path.join(SOURCE, "tests", "operations", "l1_norm", "l1_norm_split.json"), folder)
        tap.equal(place.json(*command)["answer"]["config"]["family"], "l1_norm_split")


def a_sweep_fills_its_grid_and_a_report_tells_it():
    with a_place() as place:
        text = place.run("sweep", "--operation", "l1_norm", "--rows", "64,128", "--columns", "256").stdout
        tap.has(text, "2 of 2 done")
        tap.has(text, "fp16 · R 128 · C 256")
        told = {problem["words"]: problem for problem in place.json("report")["problems"]}
        tap.equal({words: (one["flops"], one["least_bytes"]) for words, one in told.items()},
                  {"fp16 · R 64 · C 256": (4 * 64 * 256, 66048), "fp16 · R 128 · C 256": (4 * 128 * 256, 131584)})
        tap.has(place.run("report").stdout, "l1_norm_rows")


def one_more_row_in_its_table_is_a_field_everywhere():
    row = {"min": 1, "max": 64, "default": 1, "key": "g",
           "macro": "GROUPS", "option": "--groups", "words": "rows normed together", "label": "G"}
    with a_place() as place:
        folder = own_copy(place)
        edit(os.path.join(folder, "operation.json"), lambda told: told["sizes"].update(groups=row))
        edit(os.path.join(folder, "l1_norm_split.json"), lambda told: told.setdefault("supports", []).append({"require": "GROUPS == 1", "why": "it norms one row at a time"}))
        # Options, what they take, and the help.
        tap.has(" ".join(place.run("tune", "--help", "--operation", "l1_norm").stdout.split()), "--groups N rows normed together (1)")
        tap.has(place.run(*ROWS, "--groups", "65", status=2).stderr, '--groups: "65" is not a whole number (1 to 64)')
        # JSON, manifests and words.
        told = place.json(*ROWS, "--groups", "4")
        tap.equal(told["answer"]["problem"]["groups"], 4)
        tap.equal({row["config"]["family"] for row in told["ranking"]}, {"l1_norm_rows"})
        tap.has(place.run("show").stdout, "L1 norm · fp16 · R 64 · G 4 · C 256")
        # The key: a winner for 4 groups is none for 2.
        tap.equal(place.json(*ROWS, "--groups", "4", "--effort", "cached")["answer"]["from_store"], True)
        place.run(*ROWS, "--groups", "2", "--effort", "cached", status=1)
        # Grids, columns and filters.
        tap.has(place.run("sweep", "--operation", "l1_norm", "--rows", "64", "--columns", "256", "--groups", "2,4").stdout, "2 of 2 done")
        report = place.json("report", "--operation", "l1_norm", "--groups", "2")
        tap.equal([problem["words"] for problem in report["problems"]], ["fp16 · R 64 · G 2 · C 256"])


def arrays_and_buffers_beyond_what_a_kernel_is_passed_are_refused():
    row = {"default": "", "feature": True, "key": "bf", "macro": "BUFFERS", "shapes_source": True, "option": "--buffers", "words": "tensors"}
    with a_place() as place:
        folder = own_copy(place)
        edit(os.path.join(folder, "operation.json"), lambda told: (told["sizes"].update(buffers=row), told["arguments"].extend(
            {"name": "x%d" % i, "type": "dtype", "shape": ["ROWS"]} for i in range(26))))
        for family in ("rows", "split"):
            edit(os.path.join(folder, "l1_norm_%s.json" % family), lambda told: told.update(takes=["buffers"]))
        for gpu, status in (([], 2), (["--gpu", "L40S"], 1)):
            tap.has(place.run(*gpu, *ROWS, "--buffers", "A:f32 B:f32 C:f32 D:f32 E:f32 F:f32 G:f32 H:f32", status=status).stderr, "at most 32 arrays and buffers can be")


def without_its_folder_the_operation_is_not_known_and_the_store_stays_whole():
    with a_place() as place:
        place.run(*ROWS)
        folder = place.env.pop("FA_TUNE_TEMPLATES")
        tap.has(place.run(*ROWS, status=2).stderr, 'operation "l1_norm" is not known')
        place.env["FA_TUNE_TEMPLATES"] = folder
        tap.equal(place.json(*ROWS, "--effort", "cached")["answer"]["origin"], "measured")


tap.main()
