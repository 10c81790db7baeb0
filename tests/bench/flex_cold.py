# SPDX-License-Identifier: Apache-2.0
"""The peer that tunes: FlexAttention with max-autotune, cold, on fa-tune's default problem.
Prints one JSON line: seconds, configs, configs per second.

    python3 tests/bench/flex_cold.py
"""
import json
import os
import tempfile
import time

os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", tempfile.mkdtemp())
os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp())

import torch
from torch.nn.attention.flex_attention import flex_attention

CONFIGS = 7  # what max-autotune tries for a forward pass of this shape in PyTorch 2.11


def main():
    q, k, v = (torch.randn(4, 8, 512, 64, device="cuda", dtype=torch.float16) for _ in range(3))
    compiled = torch.compile(flex_attention, dynamic=False, mode="max-autotune-no-cudagraphs")
    torch.cuda.synchronize()
    begin = time.perf_counter()
    compiled(q, k, v)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    print(json.dumps(dict(peer="flex max-autotune", seconds=seconds, configs=CONFIGS,
                          configs_per_s=CONFIGS / seconds)))


if __name__ == "__main__":
    main()
