# SPDX-License-Identifier: Apache-2.0
"""Our clock for Triton: @triton.autotune(…, do_bench=fa_tune.caches.bench)."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

BATCH, MOST = 15, 200  # samples
PRECISION = 0.0025  # of the median: half of its 95 % interval
SECONDS = 0.5

_flush: dict[int, Any] = {}  # twice the L2 of a device


def bench(call: Callable[[], Any], quantiles: Sequence[float] = (0.5, 0.2, 0.8)) -> list[float]:
    """Quantiles of the call's time on the current device in milliseconds, by events, with the L2 flushed before each call and
    outside of the timed region. Calls are timed until the median is known to a quarter of a percent, or for half a second."""
    import torch
    device = torch.cuda.current_device()
    if device not in _flush:
        l2 = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or 64 << 20
        _flush[device] = torch.empty(2 * l2, dtype=torch.uint8, device=device)
    call()  # it compiles
    torch.cuda.synchronize()
    times: list[float] = []
    known, end = False, time.monotonic() + SECONDS
    while not known and len(times) < MOST and (not times or time.monotonic() < end):
        pairs = []
        for _ in range(BATCH):
            begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            _flush[device].zero_()
            begun.record()
            call()
            ended.record()
            pairs.append((begun, ended))
        torch.cuda.synchronize()
        times = sorted(times + [begun.elapsed_time(ended) for begun, ended in pairs])
        middle, reach = len(times) // 2, int(0.98 * len(times) ** 0.5) + 1  # of the median's 95 % interval, by ranks
        known = times[middle + reach] - times[middle - reach] <= 2 * PRECISION * times[middle]
    return [times[min(int(q * len(times)), len(times) - 1)] for q in quantiles]
