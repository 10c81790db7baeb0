# SPDX-License-Identifier: Apache-2.0
"""Launches the stored winners of a few rows, for a profiler to watch: each row twice, nothing else
of ours on the device.

    FA_TUNE_LIBRARY=build/libfa_tune.so ncu --kernel-name attn_fwd python3 tests/bench/profile_rows.py \\
        128:causal:1024 256:plain:2048
"""
import sys

import torch

import fatune


def main():
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    tuner = fatune.Tuner()
    for row in sys.argv[1:]:
        head_dim, kind, seq = row.split(":")
        head_dim, seq = int(head_dim), int(seq)
        batch, heads = 16384 // seq, 2048 // head_dim
        q, k, v = (torch.randn(batch, heads, seq, head_dim, device="cuda", dtype=torch.float16)
                   for _ in range(3))
        o = torch.empty_like(q)
        kernel = tuner.kernel(fatune.problem("fp16", "top-left" if kind == "causal" else "none",
                                             head_dim, batch, heads, seq=seq), effort="cached")
        launch = tuner.launcher(kernel, q, k, v, o, torch.cuda.current_stream().cuda_stream)
        for _ in range(2):
            launch()
        torch.cuda.synchronize()
    tuner.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
