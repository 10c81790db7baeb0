# SPDX-License-Identifier: Apache-2.0
"""Directories of templates beside each other: for every row each directory's own winner, and cuDNN, in turn.

What a change of a template gains or costs: each row is tuned once for every directory, then all winners and PyTorch's cuDNN are timed as by
attn_vs_torch.py. "-" is what is built in; a library (*.so) stands for what is built into that one, so that two builds may be compared.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/templates_in_turn.py OLD - --rows 128:causal:8192 64:plain:512
"""
import argparse
import os

import torch

import fatune
from attn_vs_torch import Clock, geomean, sdpa

ROWS = [f"{dim}:{mask}:{seq}" for dim in (64, 128, 256) for mask in ("plain", "causal") for seq in (512, 1024, 2048, 4096, 8192, 16384)]


def open_tuner(directory):
    if directory.endswith(".so"):
        os.environ.pop("FA_TUNE_TEMPLATES", None)
        store = os.environ.get("FA_TUNE_STORE")
        os.environ["FA_TUNE_STORE"] = os.path.abspath(directory).replace("/", "-").join([(store or "/tmp/builds") + "-", ".db"])
        try:
            return fatune.Tuner(os.path.abspath(directory))
        finally:
            os.environ["FA_TUNE_STORE"] = store or ""
    if directory == "-":
        os.environ.pop("FA_TUNE_TEMPLATES", None)
    else:
        os.environ["FA_TUNE_TEMPLATES"] = directory
    return fatune.Tuner()


def open_tuners(directories):
    """A tuner for each; without directories the one that FA_TUNE_TEMPLATES says, as ""."""
    return {name: open_tuner(name) for name in directories} if directories else {"": fatune.Tuner()}


def run_row(tuners, clock, row, dtype, budget_ms):
    dim, mask, seq = row.split(":")
    dim, seq, causal = int(dim), int(seq), mask == "causal"
    batch, heads = max(16384 // seq, 1), 2048 // dim
    q, k, v = (torch.randn(batch, heads, seq, dim, device="cuda", dtype={"fp16": torch.float16, "bf16": torch.bfloat16}[dtype])
               for _ in range(3))
    calls, configs = {"cudnn": sdpa("cudnn", q, k, v, is_causal=causal)}, {}
    right = calls["cudnn"]().float()
    for name, tuner in tuners.items():
        o = torch.full_like(q, float("nan"))
        kernel = tuner.kernel(fatune.problem(dtype, "bottom-right" if causal else "none", dim, batch, heads, seq=seq))
        configs[name] = tuner.answer(kernel).trial.config.text()
        calls[name] = tuner.launcher(kernel, q, k, v, o, torch.cuda.current_stream().cuda_stream)
        calls[name]()
        error = (o.float() - right).abs().max().item()
        if not error <= (0.004 if dtype == "fp16" else 0.03):
            raise SystemExit(f"wrong result: {error} beside cuDNN in {row} of {name}")
    return clock.in_turn(calls, budget_ms), configs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directories", nargs="+")
    parser.add_argument("--rows", nargs="+", default=ROWS, metavar="D:plain|causal:S")
    parser.add_argument("--dtype", default="fp16", choices=["fp16", "bf16"])
    parser.add_argument("--budget-ms", type=float, default=60)
    options = parser.parse_args()
    tuners = open_tuners(options.directories)
    clock, first, ratios = Clock(), options.directories[0], {name: [] for name in tuners}
    for row in options.rows:
        ms, configs = run_row(tuners, clock, row, options.dtype, options.budget_ms)
        for name in tuners:
            ratios[name].append(ms[first] / ms[name])
        print(f"{row:16s} cudnn {ms['cudnn'] * 1e3:8.1f} us  " + "  ".join(
            f"{name}: {ms['cudnn'] / ms[name]:5.3f} of cuDNN, {ratios[name][-1]:5.3f} of {first} ({configs[name].split(' ', 1)[1]})"
            for name in tuners), flush=True)
        torch.cuda.empty_cache()
    for name, of_one in ratios.items():
        print(f"{name}: geometric mean {geomean(of_one):.4f} of {first}, worst {min(of_one):.3f}")
    for tuner in tuners.values():
        tuner.close()


if __name__ == "__main__":
    main()
