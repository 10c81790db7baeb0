# SPDX-License-Identifier: Apache-2.0
"""Our clock for Triton: @triton.autotune(…, do_bench=fa_tune.caches.bench)."""
from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

LEAST, MOST = 15, 200  # samples
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
    end = time.monotonic() + SECONDS
    while len(times) < MOST and not (len(times) >= LEAST and (time.monotonic() > end or _is_known(times))):
        pairs = []
        for _ in range(LEAST):
            begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            _flush[device].zero_()
            begun.record()
            call()
            ended.record()
            pairs.append((begun, ended))
        torch.cuda.synchronize()
        times += [begun.elapsed_time(ended) for begun, ended in pairs]
    ranked = sorted(times)
    return [ranked[min(int(q * len(ranked)), len(ranked) - 1)] for q in quantiles]


def _is_known(times: list[float]) -> bool:
    """Whether the 95 % interval of the median, by its order statistics, is narrow enough."""
    ranked, count = sorted(times), len(times)
    reach = int(0.98 * count ** 0.5) + 1
    middle = count // 2
    low, high = ranked[max(middle - reach, 0)], ranked[min(middle + reach, count - 1)]
    return high - low <= 2 * PRECISION * ranked[middle]
