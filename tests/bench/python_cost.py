#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Host time of one call of fa_tune.attention from PyTorch, beside PyTorch's own SDPA, as a table.

    python3 tests/bench/python_cost.py [--rounds 40] [--calls 200]

A small problem, so that the GPU keeps up: what is timed is the host until each call returns. Calls are timed in
rounds, every way in turn; the table has the median of the rounds, and the fastest.
"""
import argparse
import statistics
import time

import torch
import torch.nn.functional as functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import fa_tune

SHAPE = (1, 1, 128, 64)
SDPA_BACKENDS = (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION))


def ways():
    """(name, function that makes one call)"""
    q, k, v = (torch.randn(SHAPE, device="cuda", dtype=torch.float16) for _ in range(3))
    out, lse = torch.empty_like(q), torch.empty(SHAPE[:3], device="cuda")
    bound = fa_tune.kernel(batch=1, heads_q=1, seq_q=128, seq_k=128, head_dim=64)
    yield "fa_tune.attention(q, k, v, out=out)", lambda: fa_tune.attention(q, k, v, out=out)
    yield "fa_tune.attention(q, k, v)", lambda: fa_tune.attention(q, k, v)
    yield "… causal=True, out=out", lambda: fa_tune.attention(q, k, v, causal=True, out=out)
    yield "… return_lse=True, out=(out, lse)", lambda: fa_tune.attention(q, k, v, return_lse=True, out=(out, lse))
    yield "kernel(q, k, v, out=out)", lambda: bound(q, k, v, out=out)
    yield "kernel(q, k, v)", lambda: bound(q, k, v)
    yield "torch.empty_like(q)", lambda: torch.empty_like(q)
    quick = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)  # by which a call makes its output
    if quick is not None:
        size, stride = tuple(q.shape), q.stride()
        yield "_empty_strided_cuda(size, stride, …)", lambda: quick(size, stride, q.dtype)
    yield "attention_decode(…, out=out), pages", decode()
    yield "attention_varlen(…, out=out)", varlen()
    for name, backend in SDPA_BACKENDS:
        yield "SDPA, %s" % name, with_backend(backend, q, k, v)


def decode():
    """One query over a paged cache, as an engine calls it for each layer."""
    q = torch.randn(1, 1, 8, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (torch.randn(16, 64, 2, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    how = dict(cache_seqlens=torch.tensor([500], device="cuda", dtype=torch.int32), max_seqlen_k=1024,
               block_table=torch.arange(16, device="cuda", dtype=torch.int32)[None], out=torch.empty_like(q))
    return lambda: fa_tune.attention_decode(q, k, v, **how)


def varlen():
    """Two sequences behind one another, as an engine calls it for each layer."""
    q, k, v = (torch.randn(256, heads, 64, device="cuda", dtype=torch.bfloat16) for heads in (4, 2, 2))
    starts = torch.tensor([0, 100, 256], device="cuda", dtype=torch.int32)
    how = dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=156, max_seqlen_k=156, causal=True, out=torch.empty_like(q))
    return lambda: fa_tune.attention_varlen(q, k, v, **how)


def with_backend(backend, q, k, v):
    """The choice of a back end is not timed: it is made around each round."""
    def call():
        return functional.scaled_dot_product_attention(q, k, v)
    call.around = lambda: sdpa_kernel(backend)
    return call


def time_us(call, calls):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begin) / calls * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    with torch.inference_mode():
        rows = [(name, call, []) for name, call in ways()]
        for number in range(options.rounds + 3):
            for _, call, times in rows:
                around = getattr(call, "around", torch.inference_mode)
                with around():
                    us = time_us(call, options.calls)
                if number >= 3:  # the first warm up
                    times.append(us)
    print("host time of one call, fp16 %s, PyTorch %s, %s" % ("x".join(map(str, SHAPE)), torch.__version__, torch.cuda.get_device_name()))
    print("%-36s %8s %8s" % ("call", "median", "fastest"))
    for name, _, times in rows:
        print("%-36s %5.2f us %5.2f us" % (name, statistics.median(times), min(times)))


if __name__ == "__main__":
    main()
