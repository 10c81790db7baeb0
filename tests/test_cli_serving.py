#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What serving engines ask for, as the command line says it: options that set several fields, models, refusals."""
import json
import os

import tap
from place import Place

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"
ONE = {"BLOCK_M": [64], "BLOCK_N": [64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}


def plans(place, *options):
    done = place.run("sweep", *options, "--trials", "1", "--json", status=1)
    return [item["problem"] for item in json.loads(done.stdout)["items"]]


def bad_shorthands_get_their_sentence_and_status_2():
    with Place(space=ONE) as place:
        for arguments, part in [
                (["--window", "1,2,3"], "use LEFT[,RIGHT]"), (["--window", "1,"], "use LEFT[,RIGHT]"),
                (["--window", ""], "--window \"\": use LEFT[,RIGHT]"), (["--window="], "use LEFT[,RIGHT]"),
                (["--window", "x"], "--window \"x\": use LEFT[,RIGHT]"), (["--window", "-2"], "use LEFT[,RIGHT]"),
                (["--decode=1"], "takes no value"), (["--mean-k", "9"], "--mean-k needs --lengths-k"), (["--mean-q", "9"], "--mean-q needs --varlen"),
                (["--varlen", "--mean-q", "65"], "--mean-q 65: use at most --seq-q, which is 64"),
                (["--lengths-k", "seqused", "--mean-k", "65"], "--mean-k 65: use at most --seq-k, which is 64"),
                (["--varlen", "--causal", "top-left"], "--varlen does not go with --causal top-left"),
                (["--page", "70000"], "65536"), (["--kv-dtype", "fp4"], "same or fp8")]:
            tap.has(place.run("tune", "--gpu", "L4", "--seq", "64", *arguments, status=2).stderr, part)
        for arguments in (["--seq", "64", "--decode"], ["--decode", "--seq", "64"]):
            tap.has(place.run("sweep", *arguments, status=2).stderr, "--decode and --seq both set the sequence length: leave one")
        tap.has(place.run("sweep", "--model", "lama-3-8b", status=2).stderr, "did you mean llama-3-8b?")
        tap.has(place.run("sweep", "--model", "llama-3-8b", "--plan", "x", status=2).stderr, "exclude one another")


def an_option_of_one_field_goes_before_a_shorthand_whichever_stands_first():
    with Place(space=ONE) as place:
        for ours, other, field, value in ((["--lengths-k", "seqused"], ["--varlen"], "lengths_k", "seqused"),
                                          (["--seq-q", "5"], ["--decode"], "seq_q", 5)):
            for arguments in (ours + other, other + ours):
                told = place.json("explain", "--gpu", "L4", "--seq-k", "64", *(["--seq-q", "64"] if field != "seq_q" else []), *arguments)
                tap.equal((arguments, told["problem"][field]), (arguments, value))
        tap.equal(place.json("explain", "--gpu", "L4", "--seq", "64", "--decode")["problem"]["seq_q"], 1)


def a_family_that_does_not_take_what_is_asked_says_so_by_name():
    with Place(space=ONE) as place:
        told = place.run("tune", "--gpu", "T4", "--decode", "--seq", "512", "--sinks", status=1).stderr
        tap.has(told, "attn_fwd_sm75 does not take sinks = true")


def a_family_of_ones_own_takes_a_window_and_the_command_that_is_told_has_it():
    with Place(space=ONE) as place:
        folder = place.env["FA_TUNE_TEMPLATES"]
        manifest = {"name": "tiny", "operation": "attn_fwd", "entry": "attn_fwd", "sm": {"min": 75, "max": 75},
                    "takes": ["window", "window_left", "window_right"], "tunables": {"BLOCK_M": [64]},
                    "default": {"BLOCK_M": 64}, "threads": 32, "grid": ["WINDOW_LEFT + 1", 1, 1], "shared_memory": {}}
        with open(os.path.join(folder, "tiny.json"), "w", encoding="utf-8") as file:
            json.dump(manifest, file)
        with open(os.path.join(folder, "tiny.cu"), "w", encoding="utf-8") as file:
            file.write('#include "attn_serving_params.h"\n'
                       'extern "C" __global__ void attn_fwd(const __grid_constant__ fa_attn_serving_params p) {\n'
                       '    static_assert(WINDOW == 1 && SINKS == 0 && !PAGED, "macros");\n'
                       '    *(int *)p.dense.o = p.window_left;\n}\n')
        told = place.run("tune", "--gpu", "T4", "--seq", "64", "--window", "100,-1").stdout
        tap.has(told, "window · left 100 · right -1")
        tap.has(told, " --window 100,-1")


def a_model_brings_its_layers_with_prefill_and_decode_or_the_lengths_that_are_given():
    with Place(space=ONE, script=L4) as place:
        told = plans(place, "--gpu", "T4", "--model", "gpt-oss-20b")
        tap.equal(len(told), 2 * (2 + 2 * 3))
        assert all((p["heads_q"], p["heads_kv"], p["head_dim"], p["dtype"], p["sinks"]) ==
                   (64, 8, 64, "bf16", True) for p in told)
        tap.equal({(p["seq_q"] == 1, p.get("page"), p.get("lengths_k"), p["causal"]) for p in told},
                  {(True, 64, "seqused", "none"), (False, None, None, "bottom-right")})
        tap.equal(sorted({p.get("window_left", -1) for p in told}), [-1, 127])
        told = plans(place, "--gpu", "T4", "--model", "mistral-7b-v0.1", "--decode", "--seq-k", "512,1024",
                     "--batch", "2")
        tap.equal([(p["seq_q"], p["seq_k"], p["batch"], p["window_left"]) for p in told],
                  [(1, 512, 2, 4095), (1, 1024, 2, 4095)])


def a_model_that_is_trained_brings_each_layer_with_its_gradients():
    with Place(space=ONE, script=L4) as place:
        told = plans(place, "--gpu", "T4", "--model", "mistral-7b-v0.1", "--training")
        forward, backward = told[::2], told[1::2]
        tap.equal([(p["seq_q"], p["batch"], p["lse"], p["causal"]) for p in forward],
                  [(length, 16384 // length, True, "bottom-right") for length in (2048, 4096, 8192)])
        for one, other in zip(forward, backward):
            tap.equal((other["operation"], other["head_dim_v"], other["window_left"]), ("attn_bwd", 128, 4095))
            tap.equal([other[name] for name in ("dtype", "heads_q", "heads_kv", "seq_q", "batch", "causal")],
                      [one[name] for name in ("dtype", "heads_q", "heads_kv", "seq_q", "batch", "causal")])
        told = plans(place, "--gpu", "T4", "--model", "gpt-oss-20b", "--training", "--seq", "512", "--batch", "3")
        tap.equal([(p["operation"], p["seq_k"], p["batch"], p["sinks"]) for p in told],
                  [(operation, 512, 3, True) for operation in ("attn_fwd", "attn_bwd")] * 2)
        for options, part in ((["--page", "64"], 'attention backward has no field "page"'),
                              (["--varlen"], '"varlen" means another thing to attention backward'),
                              (["--operation", "gemm", "--m", "64"], "matrix product has no gradients that are an operation"),
                              (["--plan", "x"], "leave --training out")):
            seq = [] if "--m" in options or "--plan" in options else ["--seq", "64"]
            tap.has(place.run("sweep", *seq, *options, "--training", status=2).stderr, part)


def decoding_is_predicted_to_go_to_the_family_that_splits_keys():
    with Place(space=None) as place:
        told = json.loads(place.run("tune", "--gpu", "L4", "--decode", "--seq-k", "8192", "--heads", "32", "--heads-kv",
                                    "8", "--head-dim", "128", "--effort", "predict", "--time", "0.001s", "--jobs", "1",
                                    "--json").stdout)  # the first of the ranking alone is compiled
        tap.equal((told["answer"]["origin"], told["answer"]["config"]["family"]),
                  ("predicted", "attn_fwd_splitkv_sm80"))


tap.main([
    an_option_of_one_field_goes_before_a_shorthand_whichever_stands_first,
    bad_shorthands_get_their_sentence_and_status_2,
    a_family_that_does_not_take_what_is_asked_says_so_by_name,
    a_family_of_ones_own_takes_a_window_and_the_command_that_is_told_has_it,
    a_model_brings_its_layers_with_prefill_and_decode_or_the_lengths_that_are_given,
    a_model_that_is_trained_brings_each_layer_with_its_gradients,
    decoding_is_predicted_to_go_to_the_family_that_splits_keys,
])
