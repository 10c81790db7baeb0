# SPDX-License-Identifier: Apache-2.0
"""How stable the tuner's choice is: the same tune several times on one card, nothing of it stored but the cubins,
then all different winners launch by launch in turn. Prints how often each won and how far it is behind the best in
that common race.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/stable_choice.py [--times 10] SEQ HEAD_DIM CAUSAL …
"""
import argparse
import collections
import os
import shutil
import tempfile

import torch

import attn_vs_torch
import fatune


def tuned(store, problem):
    """A tuner on that store, and the problem's kernel from it."""
    os.environ["FA_TUNE_STORE"] = store
    tuner = fatune.Tuner()
    return tuner, tuner.kernel(problem)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", nargs="+", help="SEQ:HEAD_DIM:CAUSAL, as in 4096:128:top-left")
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    clock = attn_vs_torch.Clock()
    torch.zeros(1, device="cuda")
    for text in options.problem:
        seq, head_dim, causal = text.split(":")
        seq, head_dim = int(seq), int(head_dim)
        batch, heads = 16384 // seq, 2048 // head_dim
        q, k, v = (torch.randn(batch, heads, seq, head_dim, device="cuda", dtype=torch.float16) for _ in range(3))
        o, won, calls, tuners = torch.empty_like(q), collections.Counter(), {}, []
        with tempfile.TemporaryDirectory() as place:
            cubins = os.path.join(place, "cubins.db")   # of another problem with the same sources
            tuned(cubins, fatune.problem("fp16", causal, head_dim, 1, 1, seq=seq))[0].close()
            for time in range(options.times):
                store = os.path.join(place, f"{time}.db")
                shutil.copy(cubins, store)
                tuner, kernel = tuned(store, fatune.problem("fp16", causal, head_dim, batch, heads, seq=seq))
                tuners.append(tuner)
                config = tuner.answer(kernel).trial.config.text()
                won[config] += 1
                calls.setdefault(config, tuner.launcher(kernel, q, k, v, o, torch.cuda.current_stream().cuda_stream))
        times = clock.in_turn(calls, 200)
        best = min(times.values())
        print(f"{text}: {len(won)} different winners of {options.times}; the worst is "
              f"{max(times.values()) / best - 1:.2%} behind the best")
        for config, count in won.most_common():
            print(f"  {count:2d} x {config}: {times[config] * 1e3:.1f} us")


if __name__ == "__main__":
    main()
