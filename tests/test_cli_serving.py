#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What serving engines ask for, as the command line says it: options that set several fields, models, refusals."""
import json
import os
import subprocess
import sys

import tap
from place import L4, ONE, SOURCE, Place


def told_of(model, *words, status=0):
    """What fa_tune.model says of a model."""
    done = subprocess.run([sys.executable, "-B", "-m", "fa_tune.model", model, *words], cwd=os.path.join(SOURCE, "python"), capture_output=True, check=False, encoding="utf-8")
    tap.equal((model, done.returncode), (model, status))
    return done.stdout if status == 0 else done.stderr


def plans(place, model, *words, status=1):
    """The problems of a sweep of its plan. A T4 has no bf16: nothing is tuned."""
    path = os.path.join(place.folder, "plan.jsonl")
    tap.write(path, told_of(model, *words))
    training = [word for word in words if word == "--training"]
    done = place.run("sweep", "--gpu", "T4", "--plan", path, *training, "--trials", "1", "--json", status=status)
    return [item["problem"] for item in json.loads(done.stdout)["items"]]


def bad_shorthands_get_their_sentence_and_status_2():
    with Place(space=ONE) as place:
        for arguments, part in [
                *((["--window", text], "--window: \"%s\" is not LEFT[,RIGHT]" % text) for text in ("1,2,3", "1,", "", "x", "-2")),
                (["--mean-k", "9"], "mean_k is 9, which needs lengths_k"), (["--varlen", "--mean-q", "65"], "mean_q is 65: use at most seq_q, which is 64"),
                (["--varlen", "--causal", "top-left"], "varlen does not go with causal=top-left"), (["--page", "70000"], "65536"),
                (["--score", "score + t[h]", "--buffers", "t:f32[:]*"], "asks for gradients"),
                (["--dropout", "--buffers", "t:f32"], "--dropout: does not go with --buffers"), (["--buffers", "dropout:f32"], "dropout takes two buffers"), (["--buffers", "t:f32 dropout_seed:i64[:]"], "dropout takes two buffers")]:
            tap.has(place.run("tune", "--gpu", "L4", "--seq", "64", *arguments, status=2).stderr, part)
        for arguments in (["--seq", "64", "--decode"], ["--decode", "--seq", "64"]):
            tap.has(place.run("sweep", *arguments, status=2).stderr, "--decode: does not go with --seq")


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


def a_family_of_ones_own_takes_a_window():
    with Place(space=ONE) as place:
        folder = place.env["FA_TUNE_TEMPLATES"]
        manifest = {"operation": "attn_fwd", "kernel": "attn_fwd", "sm": {"min": 75, "max": 75},
                    "takes": ["window", "window_left", "window_right"], "tune": {"BLOCK_M": [64]},
                    "default": {"BLOCK_M": 64}, "block": 32, "grid": "WINDOW_LEFT + 1"}
        tap.write(os.path.join(folder, "tiny.json"), json.dumps(manifest))
        tap.write(os.path.join(folder, "tiny.cu"), '#include "attn_serving_params.h"\n'
                                                   'extern "C" __global__ void attn_fwd(const __grid_constant__ fa_attn_serving_params p) {\n'
                                                   '    static_assert(WINDOW == 1 && SINKS == 0 && !PAGED, "macros");\n'
                                                   '    *(int *)p.dense.o = p.window_left;\n}\n')
        told = place.run("tune", "--gpu", "T4", "--seq", "64", "--window", "100,-1").stdout
        tap.has(told, "window · left 100 · right -1")


def a_model_brings_its_layers_with_prefill_and_decode_or_the_lengths_that_are_given():
    with Place(space=ONE, script=L4) as place:
        told = plans(place, "gpt-oss-20b")
        tap.equal(len(told), 2 * (2 + 2 * 3))
        assert all((p["heads_q"], p["heads_kv"], p["head_dim"], p["dtype"], p["sinks"]) ==
                   (64, 8, 64, "bf16", True) for p in told)
        tap.equal({(p["seq_q"] == 1, p.get("page"), p.get("lengths_k"), p["causal"]) for p in told},
                  {(True, 64, "seqused", "none"), (False, None, None, "bottom-right")})
        tap.equal(sorted({p.get("window_left", -1) for p in told}), [-1, 127])
        told = plans(place, "mistral-7b-v0.1", "seq_q=1", "seq_k=512,1024", "batch=2")
        tap.equal([(p["seq_q"], p["seq_k"], p["batch"], p["window_left"]) for p in told], [(1, 512, 2, 4095), (1, 1024, 2, 4095)])


def the_names_of_models_are_taken_as_people_write_them():
    with Place(space=ONE, script=L4) as place:
        def heads(name):
            told = plans(place, name, "seq_q=64", "batch=1", "dtype=bf16")
            return {(p["heads_q"], p["heads_kv"], p["head_dim"], p.get("window_left")) for p in told}
        for name, expected in (
                ("llama-3.1-8b", {(32, 8, 128, None)}), ("meta-llama/Llama-3.1-8B-Instruct", {(32, 8, 128, None)}), ("llama3.1:8b", {(32, 8, 128, None)}),
                ("Meta-Llama-3-8B", {(32, 8, 128, None)}), ("Llama 3.3 70B", {(64, 8, 128, None)}), ("Llama-2-7b-chat-hf", {(32, 32, 128, None)}),
                ("google/gemma-2-9b-it", {(16, 8, 256, None), (16, 8, 256, 4095)}), ("Qwen/Qwen2.5-Coder-7B-Instruct", {(28, 4, 128, None)}),
                ("Mistral-7B-Instruct-v0.3", {(32, 8, 128, None)}), ("mistralai/Mistral-Nemo-Instruct-2407", {(32, 8, 128, None)}),
                ("openai/whisper-large-v3", {(20, 20, 64, None)}), ("GPT2", {(12, 12, 64, None)})):
            tap.equal((name, heads(name)), (name, expected))
        told = plans(place, "whisper-large-v3", "dtype=bf16")
        tap.equal({(p["seq_q"], p["seq_k"], p["causal"]) for p in told}, {(1500, 1500, "none"), (1, 1500, "none"), (1, 448, "none")})
        told = plans(place, "deepseek-ai/DeepSeek-V3-0324", "batch=1")
        tap.equal({tuple(p.get(name) for name in ("heads_kv", "head_dim", "head_dim_v", "v_in_k")) for p in told},
                  {(128, 192, 128, None), (1, 576, 512, True)})
        tap.has(told_of("--help"), "MODEL is a name, however it is written")
        for name, part in (("lama-3-8b", "did you mean llama-3-8b?"), ("phi-3", "did you mean phi-3-"),
                           ("mistral-7b", "did you mean mistral-7b-v0.1?"), ("xyzzy", "nor a config.json"),
                           ("deepseek-ai/DeepSeek-V3.2", "its sparse attention is not covered"), ("llama-4-scout", "chunks")):
            tap.has(told_of(name, status=1), part)
        tap.has(told_of("llama-3-8b", "hedas_q=4", status=1), "llama-3-8b: a problem has no field 'hedas_q': did you mean 'heads_q'?")


def every_model_of_the_table_has_layers_or_says_why_not():
    models = json.loads(tap.read(os.path.join(SOURCE, "python", "fa_tune", "models.json")))["models"]
    for name, layers in models.items():
        layers = models[layers] if isinstance(layers, str) else layers
        assert "not_covered" in layers or all(int(one["heads_q"]) % int(one["heads_kv"]) == 0 == int(one["head_dim"]) % 8 for one in layers), name
    bare = [name.replace(".", "").replace("-", "") for name in models]
    tap.equal(len(set(bare)), len(bare))  # by which they are told apart


def config_of(config, place):
    """Its file."""
    path = os.path.join(place.folder, "config.json")
    tap.write(path, config if isinstance(config, str) else json.dumps(config))
    return path


def the_config_of_a_model_is_read_as_transformers_writes_it():
    plain = {"hidden_size": 4096, "num_attention_heads": 32}
    window = dict(plain, head_dim=64, num_key_value_heads=8, sliding_window=128)
    with Place(space=ONE, script=L4) as place:
        for config, expected in (
                (plain, {(32, 32, 128, "bf16", None, None, None)}),
                (dict(plain, num_key_value_heads=8, dtype=None, torch_dtype="float16", sliding_window=None, relative_attention_num_buckets=None), {(32, 8, 128, "fp16", None, None, None)}),
                (window, {(32, 8, 64, "bf16", 127, None, None)}),
                (dict(window, use_sliding_window=False), {(32, 8, 64, "bf16", None, None, None)}),
                (dict(window, max_position_embeddings=128), {(32, 8, 64, "bf16", None, None, None)}),
                (dict(window, model_type="gpt_oss"), {(32, 8, 64, "bf16", 127, None, True), (32, 8, 64, "bf16", None, None, True)}),
                (dict(window, layer_types=["sliding_attention", "full_attention"]), {(32, 8, 64, "bf16", 127, None, None), (32, 8, 64, "bf16", None, None, None)}),
                ({"text_config": dict(window, model_type="gemma2", attn_logit_softcapping=50.0)},
                 {(32, 8, 64, "bf16", 127, True, None), (32, 8, 64, "bf16", None, True, None)}),
                ({"n_head": 12, "n_embd": 768}, {(12, 12, 64, "bf16", None, None, None)}),
                (dict(plain, multi_query=True), {(32, 1, 128, "bf16", None, None, None)})):
            told = plans(place, config_of(config, place), "seq_q=64", status=int("torch_dtype" not in config))
            tap.equal({tuple(p.get(field) for field in ("heads_q", "heads_kv", "head_dim", "dtype", "window_left", "softcap", "sinks"))
                       for p in told}, expected)
        latent = dict(plain, num_attention_heads=128, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
        tap.equal(plans(place, config_of(latent, place)), plans(place, "deepseek-v3"))
        for config, part in ((dict(latent, index_topk=2048), "sparse attention"), (dict(plain, model_type="bloom"), "ALiBi, which PyTorch's SDPA"),
                             (dict(plain, relative_attention_num_buckets=32), "a relative bias"),
                             (dict(plain, layer_types=["chunked_attention"]), "masks of chunks"), ({}, "describes no attention"), ([], "no JSON object"),
                             ('{"num_attention_heads": ', "config.json: Expecting value")):
            tap.has(told_of(config_of(config, place), status=1), part)
        tap.equal(told_of(os.path.dirname(config_of(plain, place))), told_of(config_of(plain, place)))  # its folder
        for config, part in ((dict(plain, head_dim=584), "head dims above 576 are not covered"), (dict(plain, head_dim=100), "(pad the tensors)"),
                             (dict(plain, num_key_value_heads=5), "heads_kv is 5: it must divide heads_q")):
            path = os.path.join(place.folder, "plan.jsonl")
            tap.write(path, told_of(config_of(config, place)))
            tap.has(place.run("sweep", "--plan", path, status=2).stderr, part)


def a_model_that_is_trained_brings_each_layer_with_its_gradients():
    with Place(space=ONE, script=L4) as place:
        told = plans(place, "mistral-7b-v0.1", "--training")
        forward, backward = told[::2], told[1::2]
        tap.equal([(p["seq_q"], p["batch"], p["lse"], p["causal"]) for p in forward],
                  [(length, 16384 // length, True, "bottom-right") for length in (2048, 4096, 8192)])
        for one, other in zip(forward, backward):
            tap.equal((other["operation"], other["head_dim_v"], other["window_left"]), ("attn_bwd", 128, 4095))
            tap.equal([other[name] for name in ("dtype", "heads_q", "heads_kv", "seq_q", "batch", "causal")],
                      [one[name] for name in ("dtype", "heads_q", "heads_kv", "seq_q", "batch", "causal")])
        told = plans(place, "gpt-oss-20b", "--training", "seq_q=512", "batch=3")
        tap.equal([(p["operation"], p["seq_k"], p["batch"], p["sinks"]) for p in told],
                  [(operation, 512, 3, True) for operation in ("attn_fwd", "attn_bwd")] * 2)
        for options, part in ((["--page", "64"], 'attention backward has no field "page"'),
                              (["--varlen"], '"varlen" means another thing to attention backward'),
                              (["--operation", "gemm", "--m", "64"], "matrix product has no gradients that are an operation")):
            seq = [] if "--m" in options else ["--seq", "64"]
            tap.has(place.run("sweep", *seq, *options, "--training", status=2).stderr, part)


def decoding_is_predicted_to_go_to_the_family_that_splits_keys():
    with Place(space=None) as place:
        told = json.loads(place.run("tune", "--gpu", "L4", "--decode", "--seq-k", "8192", "--heads", "32", "--heads-kv",
                                    "8", "--head-dim", "128", "--effort", "predict", "--time", "0.001s", "--jobs", "1",
                                    "--json").stdout)  # the first of the ranking alone is compiled
        tap.equal((told["answer"]["origin"], told["answer"]["config"]["family"]), ("predicted", "attn_fwd_splitkv_sm80"))


tap.main()
