#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Matrix products of language models: fa_tune's beside cuBLAS, through torch.nn.functional.linear.

Each row: both in turn, three rounds of medians of 15 with the L2 cache flushed, and after the timing the whole of C, which was NaN
before, against cuBLAS. Needs the installed wheel and PyTorch on a GPU.

    python3 tests/bench/gemm_vs_torch.py [--dtype fp16] [--out FILE]"""
import argparse
import json
import math
import os
import tempfile
import time

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-bench-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402

import fa_tune  # noqa: E402
from training_vs_torch import median_us  # noqa: E402

# Tokens; then the columns of the output and of the input of Llama-3-8B's layers: q, k and v, o, gate and up, down.
ROWS = [(m, n, k) for m in (16, 512, 4096) for n, k in ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))]


def measure(m, n, k, dtype, cache):
    a, b = (torch.randn(rows, k, device="cuda", dtype=dtype) for rows in (m, n))
    c = torch.full((m, n), float("nan"), device="cuda", dtype=dtype)
    begin = time.monotonic()
    kernel = fa_tune.kernel(operation="gemm", dtype="bf16" if dtype == torch.bfloat16 else "fp16", m=m, n=n, k=k)
    cold = time.monotonic() - begin
    ways = {"fa_tune": lambda: kernel(a, b, c), "cublas": lambda: torch.nn.functional.linear(a, b)}
    rounds = [{name: median_us(way, cache) for name, way in ways.items()} for _ in range(3)]
    right = ways["cublas"]()
    error, largest = float((c.float() - right.float()).abs().max()), float(right.abs().max())
    assert error <= 2 ** -7 * largest, "C differs by %g of %g" % (error, largest)
    return {"m": m, "n": n, "k": k, "dtype": str(dtype).rpartition(".")[2], "cold_s": round(cold, 1), "family": kernel.answer.family,
            "tunables": kernel.answer.tunables,
            **{name: round(sorted(one[name] for one in rounds)[1], 1) for name in ways}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtype", choices=["bf16", "fp16"], default="bf16")
    parser.add_argument("--out", help="also write the rows as JSON lines")
    options = parser.parse_args()
    cache = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    print("| M, N, K | fa_tune us | cuBLAS | cuBLAS / fa_tune | TFLOP/s | cold s |")
    for m, n, k in ROWS:
        row = measure(m, n, k, torch.bfloat16 if options.dtype == "bf16" else torch.float16, cache)
        rows.append(row)
        print("| %d, %d, %d | %.1f | %.1f | %.3f | %.0f | %.1f |" % (m, n, k, row["fa_tune"], row["cublas"], row["cublas"] / row["fa_tune"],
                                                                   2e-6 * m * n * k / row["fa_tune"], row["cold_s"]), flush=True)
    print("geometric mean, cuBLAS / fa_tune: %.3f" % math.exp(sum(math.log(row["cublas"] / row["fa_tune"]) for row in rows) / len(rows)))
    if options.out:
        with open(options.out, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
