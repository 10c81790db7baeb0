# SPDX-License-Identifier: Apache-2.0
"""Ours beside PyTorch SDPA's FA2 and cuDNN back ends, and FlashAttention-3 where FA_PEERS has it (vllm_fa3.py).

Every row is tuned by the library, checked once more against PyTorch, and timed with the L2 flushed, the median taken: "in turn", all in each
round in an order drawn anew, so that all see the clocks that a power-limited card lowers for the faster kernel; and "alone", one after
another. 16,384 tokens in all, hidden size 2,048; --set small takes a few short problems. "best" is ours over the fastest peer. "share" is
of a matrix product of 8192 cubed in bf16, timed here. Prints a table; JSON lines go to --out.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/attn_vs_torch.py
"""
import argparse
import json
import math
import random
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import fatune
import vllm_fa3

BACKENDS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
PEERS = [*BACKENDS, *([vllm_fa3.NAME] if vllm_fa3.flash_attn_varlen_func else [])]
SEQ = [512, 1024, 2048, 4096, 8192, 16384]
SMALL = [(1, 1, 32, 64), (1, 1, 128, 64), (1, 1, 512, 64), (1, 12, 197, 64), (4, 8, 512, 64), (32, 8, 512, 64), (1, 32, 512, 128), (2, 16, 1000, 128)]


class Clock:
    """Times calls by a protocol: the median of as many launches as fit `budget_ms`. The GPU sleeps for `ahead` clocks before each
    launch, so that a short one does not wait for the host."""

    def __init__(self, ahead=0):
        self.flush, self.ahead = torch.empty(256 << 20, dtype=torch.int8, device="cuda"), ahead

    def in_turn(self, calls, budget_ms):
        total = sum(statistics.median(times) for times in self.rounds(calls, 3).values())
        return self.medians(calls, budget_ms / max(total, 1e-3))

    def alone(self, calls, budget_ms):
        return {name: t for name, call in calls.items() for t in self.in_turn({name: call}, budget_ms).values()}

    def medians(self, calls, count):
        times = self.rounds(calls, max(9, min(60, int(count))))
        return {name: statistics.median(of_one) for name, of_one in times.items()}

    def rounds(self, calls, count):
        events, order = {name: [] for name in calls}, list(calls)
        for _ in range(count):
            random.shuffle(order)
            for name in order:
                pair = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                self.flush.zero_()
                if self.ahead:
                    torch.cuda._sleep(self.ahead)
                pair[0].record()
                calls[name]()
                pair[1].record()
                events[name].append(pair)
        torch.cuda.synchronize()
        return {name: [a.elapsed_time(b) for a, b in pairs] for name, pairs in events.items()}


def sdpa(backend, *tensors, **how):
    """A call of PyTorch's SDPA by one back end alone."""
    def call():
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(*tensors, **how)
    return call


def run_row(tuner, clock, dtype, causal, shape, budget_ms):
    batch, heads, seq, head_dim = shape
    torch_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    q, k, v = (torch.randn(batch, heads, seq, head_dim, device="cuda", dtype=torch_dtype) for _ in range(3))
    o = torch.full_like(q, float("nan"))
    begin = time.perf_counter()
    # As many queries as keys: PyTorch's mask, which is anchored top-left, is this one, of which sweeps have winners.
    kernel = tuner.kernel(fatune.problem(dtype, "bottom-right" if causal else "none", head_dim, batch, heads, seq=seq))
    tune_s = time.perf_counter() - begin
    answer = tuner.answer(kernel)
    ours = tuner.launcher(kernel, q, k, v, o, torch.cuda.current_stream().cuda_stream)
    ours()
    calls = {"ours": ours, **{name: sdpa(name, q, k, v, is_causal=causal) for name in BACKENDS}}
    rows, bounds = [t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)], torch.arange(0, batch * seq + 1, seq, device="cuda", dtype=torch.int32)
    calls.update(vllm_fa3.calls(*rows, torch.empty_like(rows[0]), bounds, seq, seq, causal, cu_seqlens_k=bounds))
    error = (o.float() - calls["fa2"]().float()).abs().max().item()
    limit = 0.004 if dtype == "fp16" else 0.03
    if not error <= limit:
        raise SystemExit(f"wrong result: {error} beside FA2 in {dtype} D={head_dim} S={seq}")
    ms, alone = clock.in_turn(calls, budget_ms), clock.alone(calls, budget_ms)
    flops = 4 * batch * heads * seq * seq * head_dim / (2 if causal else 1)
    return dict(dtype=dtype, D=head_dim, causal=causal, S=seq, B=batch, H=heads, tune_s=tune_s, error=error, config=answer.trial.config.text(),
                measured=answer.measured, default_us=answer.default_us, predicted_us=answer.trial.predicted_us,
                **{f"{n}_us": t * 1e3 for n, t in ms.items()},
                **{f"{n}_alone_us": t * 1e3 for n, t in alone.items()},
                **{f"{n}_tflops": flops / t / 1e9 for n, t in ms.items()},
                **{f"vs_{n}": ms[n] / ms["ours"] for n in PEERS},
                **{f"alone_vs_{n}": alone[n] / alone["ours"] for n in PEERS},
                vs_best=min(ms[n] for n in PEERS) / ms["ours"],
                alone_vs_best=min(alone[n] for n in PEERS) / alone["ours"])


def rows_of(options):
    """(dtype, causal, (batch, heads, seq, head_dim))"""
    for dtype in options.dtype:
        if options.set == "small":
            for shape in SMALL:
                for causal in (False, True):
                    yield dtype, causal, shape
            continue
        for head_dim in options.head_dim:
            for causal in (False, True):
                for seq in options.seq:
                    yield dtype, causal, (16384 // seq, 2048 // head_dim, seq, head_dim)


def in_time(rows, seconds):
    """The rows, as long as no more than so many seconds have gone; the first one in any case."""
    begin = time.monotonic()
    for index, row in enumerate(rows):
        if index and time.monotonic() - begin > seconds:
            print(f"after {seconds:.0f} s the other rows are left out")
            break
        yield row


def keep(row, path):
    """Appends the row to the file of JSON lines, if one is asked for."""
    if path:
        with open(path, "a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")


def geomean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--set", choices=["table", "small"], default="table")
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--dtype", nargs="+", default=["fp16", "bf16"])
    parser.add_argument("--seq", type=int, nargs="+", default=SEQ)
    parser.add_argument("--budget", type=float, default=60, help="milliseconds of timing a row")
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further row is begun after so many")
    parser.add_argument("--out", help="JSON lines are appended to this file, row by row")
    options = parser.parse_args()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    tuner, clock, rows = fatune.Tuner(), Clock(), []
    a, b = (torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    ceiling = 2 * 8192 ** 3 / clock.in_turn({"mm": lambda: torch.mm(a, b)}, 60)["mm"] / 1e9
    print(f"matrix product 8192^3 bf16: {ceiling:.0f} TFLOP/s")
    print("dtype  D   causal  B  H      S " + "".join(f"{n:>6}" for n in PEERS) + "  ours (us)        share"
          + "".join(f"  vs {n:<5}" for n in PEERS) + "  best   alone  tune s  config")
    for dtype, causal, shape in in_time(rows_of(options), options.seconds):
        row = run_row(tuner, clock, dtype, causal, shape, options.budget)
        row.update(ceiling_tflops=ceiling)
        rows.append(row)
        print(f"{dtype}  {row['D']:3d}  {'yes' if causal else 'no ':3s}  {row['B']:3d} {row['H']:2d}  {row['S']:5d} "
              + "".join(f"{row[n + '_tflops']:6.0f}" for n in PEERS)
              + f"  {row['ours_tflops']:4.0f} ({row['ours_us']:7.1f})  {row['ours_tflops'] / ceiling:5.2f} "
              + "".join(f"  {row['vs_' + n]:8.3f}" for n in PEERS)
              + f"  {row['vs_best']:5.3f}  {row['alone_vs_best']:5.3f}   {row['tune_s']:5.2f}  {row['config']}", flush=True)
        keep(row, options.out)
    for protocol, prefix in (("in turn", ""), ("alone", "alone_")):
        parts = []
        for name in [*PEERS, "best"]:
            ratios = [row[f"{prefix}vs_{name}"] for row in rows]
            parts.append(f"vs {name} geomean {geomean(ratios):.3f} worst {min(ratios):.3f} below 1.0: {sum(ratio < 1 for ratio in ratios)}")
        print(f"rows {len(rows)} {protocol}: " + "; ".join(parts))
    print("wrong: 0")
    tuner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
