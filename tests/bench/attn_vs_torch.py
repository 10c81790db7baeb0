# SPDX-License-Identifier: Apache-2.0
"""Ours beside PyTorch SDPA's FA2 and cuDNN back ends, one run, one process, one context.

Every row is tuned by the library (proved before it is timed), checked once more against PyTorch
here, and then timed as the peers are: triton.testing.do_bench, median, L2 flushed, the back ends
in turn. 16,384 tokens in all, hidden size 2,048. Prints a table; JSON lines go to --out.

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
import triton
from torch.nn.attention import SDPBackend, sdpa_kernel

import fatune

PEERS = {"fa2": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}


def time_ms(call, rep):
    return triton.testing.do_bench(call, warmup=15, rep=rep, return_mode="median")


def run_row(tuner, dtype, head_dim, causal, seq, rep):
    torch_dtype = {"fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    batch, heads = 16384 // seq, 2048 // head_dim
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
    rounds = {name: [] for name in calls}
    for _ in range(3):
        for name, call in calls.items():
            rounds[name].append(time_ms(call, rep))
    ms = {name: statistics.median(times) for name, times in rounds.items()}
    flops = 4 * batch * heads * seq * seq * head_dim / (2 if causal else 1)
    return dict(dtype=dtype, D=head_dim, causal=causal, S=seq, tune_s=tune_s, error=error,
                config=answer.trial.config.text(), measured=answer.measured,
                default_us=answer.default_us, predicted_us=answer.trial.predicted_us,
                **{f"{n}_us": t * 1e3 for n, t in ms.items()},
                **{f"{n}_tflops": flops / t / 1e9 for n, t in ms.items()},
                vs_fa2=ms["fa2"] / ms["ours"], vs_cudnn=ms["cudnn"] / ms["ours"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--head-dim", type=int, nargs="+", default=[64, 128])
    parser.add_argument("--dtype", nargs="+", default=["fp16", "bf16"])
    parser.add_argument("--seq", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192, 16384])
    parser.add_argument("--rep", type=int, default=30, help="milliseconds for each timing")
    parser.add_argument("--out")
    options = parser.parse_args()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    tuner, rows = fatune.Tuner(), []
    print("dtype  D   causal     S   FA2  cuDNN  ours  vs FA2  vs cuDNN  tune s  config")
    for dtype in options.dtype:
        for head_dim in options.head_dim:
            for causal in (False, True):
                for seq in options.seq:
                    row = run_row(tuner, dtype, head_dim, causal, seq, options.rep)
                    rows.append(row)
                    print(f"{dtype}  {head_dim:3d}  {'yes' if causal else 'no ':3s}  {seq:6d}  "
                          f"{row['fa2_tflops']:4.0f}  {row['cudnn_tflops']:4.0f}  "
                          f"{row['ours_tflops']:4.0f}   {row['vs_fa2']:5.3f}    "
                          f"{row['vs_cudnn']:5.3f}   {row['tune_s']:5.2f}  {row['config']}",
                          flush=True)
    if options.out:
        with open(options.out, "w") as out:
            out.writelines(json.dumps(row) + "\n" for row in rows)
    geomean = math.exp(statistics.fmean(math.log(row["vs_fa2"]) for row in rows))
    worst = min(rows, key=lambda row: row["vs_fa2"])
    below = sum(row["vs_fa2"] < 1 for row in rows)
    print(f"rows {len(rows)}  geomean vs FA2 {geomean:.3f}  worst {worst['vs_fa2']:.3f}  "
          f"below 1.0: {below}  wrong: 0")
    tuner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
