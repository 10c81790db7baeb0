# SPDX-License-Identifier: Apache-2.0
"""Ours beside PyTorch SDPA's FA2 and cuDNN back ends, one run, one process, one context.

Every row is tuned by the library (proved before it is timed), checked once more against PyTorch
here, and then timed launch by launch in turn with its peers, the L2 flushed before each: all see
the same clocks, which a power-limited card lowers for the faster kernel when each runs alone. The
median counts. 16,384 tokens in all, hidden size 2,048; --set small takes a few short problems
instead. "need" is the best published peer over cuDNN on an H200 (cuDNN 9.19, FlashAttention-3,
CUDA 13.0), which ours over cuDNN is held against; "share" is of the card's own 8192-cubed matrix
product, timed here. Prints a table; JSON lines go to --out.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/attn_vs_torch.py
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import fatune

PEERS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
SEQ = [512, 1024, 2048, 4096, 8192, 16384]
NEED = {(64, False): [1.00, 1.00, 1.14, 1.11, 1.12, 1.14],
        (64, True): [1.00, 1.00, 1.16, 1.20, 1.27, 1.18],
        (128, False): [1.10, 1.16, 1.15, 1.17, 1.16, 1.12],
        (128, True): [1.04, 1.22, 1.29, 1.34, 1.30, 1.32],
        (256, False): [1.08, 1.18, 1.19, 1.19, 1.19, 1.14],
        (256, True): [1.07, 1.16, 1.23, 1.30, 1.31, 1.23]}
SMALL = [(1, 1, 512, 64), (4, 8, 512, 64), (32, 8, 512, 64), (1, 32, 512, 128), (2, 16, 1000, 128)]


class Clock:
    """Times calls launch by launch, in turn."""

    def __init__(self):
        self.flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")

    def __call__(self, calls, budget_ms):
        for call in calls.values():
            call()
        probe = self.rounds(calls, 3)
        total = sum(statistics.median(times) for times in probe.values())
        count = max(9, min(60, int(budget_ms / max(total, 1e-3))))
        return {name: statistics.median(times) for name, times in self.rounds(calls, count).items()}

    def rounds(self, calls, count):
        events = {name: [] for name in calls}
        for _ in range(count):
            for name, call in calls.items():
                pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.flush.zero_()
                pair[0].record()
                call()
                pair[1].record()
                events[name].append(pair)
        torch.cuda.synchronize()
        return {name: [a.elapsed_time(b) for a, b in pairs] for name, pairs in events.items()}


def matrix_product_tflops(clock):
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n ** 3 / clock({"mm": lambda: torch.mm(a, b)}, 60)["mm"] / 1e9


def run_row(tuner, clock, dtype, causal, shape, budget_ms):
    batch, heads, seq, head_dim = shape
    torch_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    q, k, v = (torch.randn(batch, heads, seq, head_dim, device="cuda", dtype=torch_dtype)
               for _ in range(3))
    o = torch.full_like(q, float("nan"))
    begin = time.perf_counter()
    kernel = tuner.kernel(fatune.problem(dtype, "top-left" if causal else "none", head_dim, batch,
                                         heads, seq=seq))
    tune_s = time.perf_counter() - begin
    answer = tuner.answer(kernel)
    ours = tuner.launcher(kernel, q, k, v, o, torch.cuda.current_stream().cuda_stream)
    ours()
    calls = {"ours": ours}
    for name, backend in PEERS.items():
        def peer(backend=backend):
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        calls[name] = peer
    error = (o.float() - calls["fa2"]().float()).abs().max().item()
    limit = 0.004 if dtype == "fp16" else 0.03
    if not error <= limit:
        raise SystemExit(f"wrong result: {error} beside FA2 in {dtype} D={head_dim} S={seq}")
    ms = clock(calls, budget_ms)
    flops = 4 * batch * heads * seq * seq * head_dim / (2 if causal else 1)
    return dict(dtype=dtype, D=head_dim, causal=causal, S=seq, B=batch, H=heads, tune_s=tune_s,
                error=error, config=answer.trial.config.text(), measured=answer.measured,
                default_us=answer.default_us, predicted_us=answer.trial.predicted_us,
                **{f"{n}_us": t * 1e3 for n, t in ms.items()},
                **{f"{n}_tflops": flops / t / 1e9 for n, t in ms.items()},
                vs_fa2=ms["fa2"] / ms["ours"], vs_cudnn=ms["cudnn"] / ms["ours"])


def rows_of(options):
    """(dtype, causal, (batch, heads, seq, head_dim), need or None)"""
    for dtype in options.dtype:
        if options.set == "small":
            for shape in SMALL:
                for causal in (False, True):
                    yield dtype, causal, shape, None
            continue
        for head_dim in options.head_dim:
            for causal in (False, True):
                for seq in options.seq:
                    need = NEED.get((head_dim, causal), [0] * 6)[SEQ.index(seq)] if seq in SEQ else 0
                    shape = 16384 // seq, 2048 // head_dim, seq, head_dim
                    yield dtype, causal, shape, need or None


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", choices=["table", "small"], default="table")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--dtype", nargs="+", default=["fp16", "bf16"])
    parser.add_argument("--seq", type=int, nargs="+", default=SEQ)
    parser.add_argument("--budget", type=float, default=60, help="milliseconds of timing a row")
    parser.add_argument("--out", help="JSON lines are appended to this file")
    options = parser.parse_args()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    tuner, clock, rows = fatune.Tuner(), Clock(), []
    ceiling = matrix_product_tflops(clock)
    print(f"matrix product 8192^3 bf16: {ceiling:.0f} TFLOP/s")
    print("dtype  D   causal  B  H      S   FA2  cuDNN  ours (us)        share  vs FA2  vs cuDNN  need"
          "  tune s  config")
    for dtype, causal, shape, need in rows_of(options):
        row = run_row(tuner, clock, dtype, causal, shape, options.budget)
        row.update(need=need, ceiling_tflops=ceiling)
        rows.append(row)
        print(f"{dtype}  {row['D']:3d}  {'yes' if causal else 'no ':3s}  {row['B']:3d} {row['H']:2d}  "
              f"{row['S']:5d}  {row['fa2_tflops']:4.0f}  {row['cudnn_tflops']:4.0f}  "
              f"{row['ours_tflops']:4.0f} ({row['ours_us']:7.1f})  {row['ours_tflops'] / ceiling:5.2f}"
              f"   {row['vs_fa2']:5.3f}    {row['vs_cudnn']:5.3f}  {need or 0:4.2f}   "
              f"{row['tune_s']:5.2f}  {row['config']}", flush=True)
    if options.out:
        with open(options.out, "a") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    needed = [row["need"] for row in rows if row["need"]]
    print(f"rows {len(rows)}  vs FA2 geomean {geomean([r['vs_fa2'] for r in rows]):.3f} worst "
          f"{min(r['vs_fa2'] for r in rows):.3f}  vs cuDNN geomean "
          f"{geomean([r['vs_cudnn'] for r in rows]):.3f} worst {min(r['vs_cudnn'] for r in rows):.3f} "
          f"below 1.0: {sum(r['vs_cudnn'] < 1 for r in rows)}"
          + (f"; need geomean {geomean(needed):.3f}, rows below need: "
             f"{sum(r['need'] is not None and r['vs_cudnn'] < r['need'] for r in rows)}" if needed else "")
          + "; wrong: 0")
    tuner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
