#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Problems that nobody listed: draws them from a seed as people have them, and races ours against every peer that is there.

Each row: medians of 45 launches (9 at least, where they take more than a second) in turn, with the L2 cache flushed and the host's part hidden; after the timing the whole of the
outputs, which were NaN before, against a peer's. Needs the installed wheel and PyTorch on a GPU. FA_PEERS: training_vs_torch.py's. Decoding and packed
sequences are timed by decode_vs_torch.py and prefill_serving.py, which want FA_TUNE_LIBRARY and vLLM's FlashAttention-3 in FA_PEERS.
Several seeds and operations take turns, so that tables that the time cuts short are equally long, and what one row compiled serves the others.

    python3 tests/bench/drawn_shapes.py 1,2,3 forward,backward,gemm,rms_norm,decode,packed,packed_backward [COUNT] [--from N] [--seconds S] [--out FILE]"""
import argparse
import functools
import itertools
import math
import random
import time

import decode_vs_torch
import fatune
import operation_vs_torch
import prefill_serving
import training_vs_torch as training
import vllm_fa3
from attn_vs_torch import Clock, geomean, in_time
from training_vs_torch import fa_tune, torch  # with a store of their own

# Heads and KV heads of published models; [n, k] of their layers.
HEADS = [(32, 8), (28, 4), (16, 2), (24, 24), (12, 12), (64, 8), (40, 8), (32, 32), (16, 16), (8, 8), (14, 2), (48, 8), (8, 1), (20, 20), (96, 8)]
LAYERS = [(4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (5120, 13824), (3584, 18944), (18944, 3584), (11008, 4096), (8192, 8192),
          (28672, 8192), (8192, 28672), (2560, 10240), (1536, 1536), (1536, 8960), (1024, 7168), (7168, 2048), (5120, 5120), (2048, 1408), (768, 3072)]


def between(dice, low, high):
    """An integer whose logarithm is uniform."""
    return int(math.exp(dice.uniform(math.log(low), math.log(high + 1))))


def draw_attention(dice, most):
    heads, heads_kv = dice.choice(HEADS)
    dim, seq = dice.choice([40, 64, 64, 72, 80, 96, 112, 128, 128, 128, 192, 256]), between(dice, 100, most)
    seq = max(128, seq // 128 * 128) if dice.random() < 0.3 else seq
    room = int(3e8 / (seq * heads * dim))   # elements of a tensor
    batch = min(between(dice, 1, 32), max(1, room), max(1, int(6e13 / (seq * seq * heads * dim))))
    return {"batch": batch, "heads": heads, "heads_kv": heads_kv, "seq": seq, "dim": dim, "causal": dice.random() < 0.6}


def draw_gemm(dice):
    n, k = dice.choice(LAYERS) if dice.random() < 0.7 else (8 * between(dice, 16, 2048), 8 * between(dice, 16, 2048))
    return {"m": between(dice, 1, 20000), "n": n, "k": k}


def draw_rms_norm(dice):
    return {"rows": between(dice, 1, 65536), "columns": dice.choice([128, 768, 1024, 2048, 2880, 3584, 4096, 5120, 7168, 8192, 16384]),
            "residual": dice.random() < 0.5}


def draw_decode(dice):
    (heads, heads_kv), keys = dice.choice(HEADS), between(dice, 200, 131072)
    batch = min(between(dice, 1, 256), max(1, int(8e9 / (512 * keys * heads_kv))))
    return {"batch": batch, "heads": heads, "heads_kv": heads_kv, "queries": dice.choice([1, 1, 1, 2, 4, 8]), "keys": keys,
            "form": dice.choice(["fixed", "page 64", "page 16"])}


def draw_lengths(dice, most):
    """Of sequences of so many tokens in all at most."""
    lengths = [between(dice, 16, 8192) for _ in range(between(dice, 1, 64))]
    while sum(lengths) > most:
        lengths.pop()
    return lengths


def draw_packed(dice):
    lengths = draw_lengths(dice, 65536)
    page = dice.choice([0, 64, 16])
    return {"lengths": lengths, "heads": dice.choice(HEADS), "dim": dice.choice([64, 128, 128, 256]),
            "form": {"varlen": 1, **({"page": page} if page else {}), **({"window": 1} if dice.random() < 0.4 else {})}}


def draw_packed_backward(dice):
    return {"lengths": draw_lengths(dice, 32768), "heads": dice.choice(HEADS), "dim": dice.choice([64, 128, 128, 256]), "causal": dice.random() < 0.7}


def attention_ways(heads, heads_kv, causal):
    ways = training.ways_of(causal)
    ways.update((name, (training.sdpa(back_end, is_causal=causal, enable_gqa=heads != heads_kv), False)) for name, back_end in training.SDPA.items())
    return ways


def forward(problem, cache):
    batch, heads, heads_kv, seq, dim, causal = problem.values()
    q, k, v = (torch.randn(batch, count, seq, dim, device="cuda", dtype=torch.bfloat16) for count in (heads, heads_kv, heads_kv))
    o = torch.full_like(q, math.nan)
    begin = time.monotonic()
    fa_tune.attention(q, k, v, causal=causal, out=o)
    torch.cuda.synchronize()
    cold = time.monotonic() - begin
    calls = {"fa_tune": lambda: fa_tune.attention(q, k, v, causal=causal, out=o)}
    peers = {name: (functools.partial(attend, *(x.transpose(1, 2).contiguous() if turns else x for x in (q, k, v))), turns)
             for name, (attend, turns) in list(attention_ways(heads, heads_kv, causal).items())[1:]}
    flat, bounds = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)], torch.arange(0, batch * seq + 1, seq, device="cuda", dtype=torch.int32)
    peers.update((name, (call, False)) for name, call in vllm_fa3.calls(*flat, torch.empty_like(flat[0]), bounds, seq, seq, causal, cu_seqlens_k=bounds).items())
    right = None
    for name, (call, turns) in peers.items():
        try:
            told = call()
            right, calls[name] = right if name == vllm_fa3.NAME else told.transpose(1, 2) if turns else told, call
        except Exception as refused:  # each peer has kinds of its own
            print("%s refuses this row: %s" % (name, type(refused).__name__))
    times = training.in_turn(calls, cache)
    assert right is None or float((o.float() - right.float()).abs().max()) <= 0.03, "o differs from a peer's"
    return {"cold_s": cold, **times}


def backward(problem, cache):
    batch, heads, heads_kv, seq, dim, causal = problem.values()
    return training.measure(attention_ways(heads, heads_kv, causal), [(batch, count, seq, dim) for count in (heads, heads_kv, heads_kv)], False, cache)


def packed_backward(problem, cache):
    lengths, (heads, heads_kv), dim, causal = problem.values()
    return training.measure(training.varlen_ways_of(causal, lengths), [(sum(lengths), count, dim) for count in (heads, heads_kv, heads_kv)], False, cache)


def decode(problem, _):
    *shape, form = problem.values()
    row = decode_vs_torch.run_row(tuner(), Clock(ahead=400_000), tuple(shape), [form], 60)
    us, config = row["us"], row["configs"][form]
    peer = {"fa3": row["fa3 " + form] * us[form]} if "fa3 " + form in row else {"torch": row["best"]} if form == "fixed" else {}
    return {"cold_s": math.nan, "fa_tune": us[form], **peer, "family": config}


def packed(problem, _):
    row = {**problem, "forms": {"form": problem["form"]}}
    result = prefill_serving.run_row(tuner(), Clock(ahead=400_000), "drawn", row, ["form"], 60)
    peer = {"fa3": result["fa3"]["form"]} if result["fa3"] else {} if len(problem["form"]) > 1 else {"pytorch-fa2": result["us"]["fa2"]}
    return {"cold_s": math.nan, "fa_tune": result["us"]["form"], **peer, "family": result["configs"]["form"]}


@functools.cache
def tuner():
    return fatune.Tuner()


def operation(name):
    return lambda problem, cache: operation_vs_torch.measure(name, problem, torch.bfloat16, cache)


OPERATIONS = {"forward": (lambda dice: draw_attention(dice, 32768), forward), "backward": (lambda dice: draw_attention(dice, 16384), backward),
              "gemm": (draw_gemm, operation("gemm")), "rms_norm": (draw_rms_norm, operation("rms_norm")),
              "decode": (draw_decode, decode), "packed": (draw_packed, packed), "packed_backward": (draw_packed_backward, packed_backward)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("seeds", type=lambda text: [int(one) for one in text.split(",")], help="one or several, as 1,2,3")
    parser.add_argument("operations", type=lambda text: text.split(","), help="one or several of " + ",".join(OPERATIONS))
    parser.add_argument("count", type=int, nargs="?", default=40)
    parser.add_argument("--from", dest="first", type=int, default=0, help="how many of a seed's problems are left out, as measured before")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further row is begun after so many")
    parser.add_argument("--out", help="also write the rows as JSON lines")
    options = parser.parse_args()
    if unknown := set(options.operations) - OPERATIONS.keys():
        parser.error("there is no operation " + ", ".join(sorted(unknown)))
    tables, rows, cache = {}, [], torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    for table in itertools.product(options.operations, options.seeds):
        draw, dice = OPERATIONS[table[0]][0], random.Random("%d %s" % table[::-1])
        tables[table] = [draw(dice) for _ in range(options.first + options.count)][options.first:]
    print("%s\n| operation, seed: problem | fa_tune us | fastest peer us | / fa_tune | cold s |" % torch.cuda.get_device_name())
    for kind, seed, problem in in_time([(*table, problem) for problems in zip(*tables.values()) for table, problem in zip(tables, problems)], options.seconds):
        row = {"operation": kind, "seed": seed, **problem, **OPERATIONS[kind][1](problem, cache)}
        peers = {name: row[name] for name in ("pytorch-fa2", "pytorch-cudnn", "flash-attention-4", "fa3", "cublas", "torch", "torch.compile") if name in row}
        if not peers:
            print("| %s, %s: %s | %.1f | no peer takes it" % (kind, seed, problem, row["fa_tune"]), flush=True)
            continue
        name = min(peers, key=peers.get)
        rows.append({**row, "fastest": peers[name]})
        training.finish(rows, [], options.out)  # a table that is cut short keeps its rows
        print("| %s, %s: %s | %.1f | %s %.1f | %.3f | %.1f | %s" % (
            kind, seed, " ".join("%s=%s" % item for item in problem.items()), row["fa_tune"], name, peers[name], peers[name] / row["fa_tune"],
            row["cold_s"], " ".join(map(str, [row.get("family", ""), *row.get("tunables", {}).items()]))), flush=True)
        torch.cuda.empty_cache()
    for kind, of in itertools.groupby(sorted(rows, key=lambda row: row["operation"]), lambda row: row["operation"]):
        ratios = sorted(row["fastest"] / row["fa_tune"] for row in of)
        print("%s: %d problems, geometric mean %.3f, worst %.3f, below 1.00: %d, below 0.95: %d" % (
            kind, len(ratios), geomean(ratios), ratios[0], sum(r < 1 for r in ratios), sum(r < 0.95 for r in ratios)))


if __name__ == "__main__":
    main()
