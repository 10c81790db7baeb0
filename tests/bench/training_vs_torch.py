#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention's backward pass through PyTorch's autograd: fa_tune's beside SDPA's FlashAttention-2 and cuDNN.

Each row: the back ends in turn, three rounds of medians of 15 with the L2 cache flushed, and after the timing the gradients
of ours against cuDNN's, whole. Needs the installed wheel and PyTorch on a GPU.

A back end that refuses a row has no time in it.

    python3 tests/bench/training_vs_torch.py [--host] [--head-dims 64,128,192/128,256] [--out FILE]"""
import argparse
import json
import math
import os
import tempfile
import time

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-bench-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import fa_tune  # noqa: E402



def rows_of(dims):
    """Batch, heads, sequence, head dimension, that of V, causal: 16,384 tokens of about 2,048 elements each."""
    return [(16384 // seq, max(1, 2048 // dim), seq, dim, dim_v, causal) for dim, dim_v in dims for causal in (False, True)
            for seq in (1024, 4096, 16384)]


PEERS = {"pytorch-fa2": SDPBackend.FLASH_ATTENTION, "pytorch-cudnn": SDPBackend.CUDNN_ATTENTION}


def median_us(function, cache, count=15):
    """Median time on the GPU: L2 flushed, and a sleep in front that hides the host's part of the launches."""
    times = []
    for _ in range(count + 3):
        cache.zero_()
        torch.cuda._sleep(1_000_000)  # clocks: half a millisecond
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times[3:])[count // 2]


def in_turn(ways, cache):
    """The middle of three medians of each way, by its name: the ways in turn, three rounds."""
    rounds = [{name: median_us(way, cache) for name, way in ways.items()} for _ in range(3)]
    return {name: sorted(one[name] for one in rounds)[1] for name in ways}


def finish(rows, peers, path):
    """Prints how far the peers are behind, and keeps the rows as JSON lines where a path is given."""
    for peer in peers:
        with_it = [row for row in rows if peer in row]
        if with_it:
            mean = math.exp(sum(math.log(row[peer] / row["fa_tune"]) for row in with_it) / len(with_it))
            print("geometric mean, %s / fa_tune: %.3f" % (peer, mean))
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def measure(batch, heads, seq, dim, dim_v, causal, cache):
    leaves = [torch.randn(batch, heads, seq, columns, device="cuda", dtype=torch.bfloat16).requires_grad_() for columns in (dim, dim, dim_v)]
    d_o = torch.randn_like(leaves[2])

    def backward_of(o):
        return lambda: torch.autograd.grad(o, leaves, d_o, retain_graph=True)
    begin = time.monotonic()
    ways = {"fa_tune": backward_of(fa_tune.attention(*leaves, causal=causal))}
    ways["fa_tune"]()
    cold = time.monotonic() - begin
    for name, back_end in PEERS.items():
        with sdpa_kernel(back_end):
            try:
                way = backward_of(F.scaled_dot_product_attention(*leaves, is_causal=causal))
                way()
                ways[name] = way
            except RuntimeError as refused:
                print("%s refuses D %d: %s" % (name, dim, str(refused).splitlines()[0]))
    times = in_turn(ways, cache)
    for mine, right in zip(ways["fa_tune"](), ways[list(ways)[-1]]()):
        error, largest = float((mine.float() - right.float()).abs().max()), float(right.abs().max())
        assert error <= 2 ** -6 * largest, "gradients differ by %g of %g" % (error, largest)
    return {"batch": batch, "heads": heads, "seq": seq, "dim": dim, "causal": causal, "cold_s": round(cold, 1),
            **({"dim_v": dim_v} if dim_v != dim else {}), **{name: round(us, 1) for name, us in times.items()}}


def host_us(function, count=200):
    for _ in range(30):
        function()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        function()
    told = (time.perf_counter() - begin) / count * 1e6
    torch.cuda.synchronize()
    return told


def cost_on_the_host():
    """Of a forward and backward pass on the calling thread, kernels too small to be waited for."""
    torch.autograd.set_multithreading_enabled(False)
    leaves = [torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    d_o = torch.randn_like(leaves[0])
    for name, attend in (("fa_tune", fa_tune.attention), ("SDPA", F.scaled_dot_product_attention)):
        print("%s: %.0f us forward, %.0f us forward and backward" % (
            name, host_us(lambda: attend(*leaves)), host_us(lambda: torch.autograd.grad(attend(*leaves), leaves, d_o))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", action="store_true", help="what a call costs the host, alone")
    parser.add_argument("--head-dims", default="64,128", help="head dimensions, with that of V behind a stroke where it differs (64,128)")
    parser.add_argument("--out", help="also write the rows as JSON lines")
    options = parser.parse_args()
    if options.host:
        cost_on_the_host()
        return
    cache = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    rows = []
    print("| B, H, S, D | fa_tune us | FA2 | cuDNN | FA2 / fa_tune | cuDNN / fa_tune | cold s |")
    dims = [tuple(map(int, (dim + "/" + dim).split("/")[:2])) for dim in options.head_dims.split(",")]
    for row in rows_of(dims):
        rows.append(measure(*row, cache))
        ours, fa2, cudnn = (rows[-1].get(name, math.nan) for name in ("fa_tune", *PEERS))
        print("| %d, %d, %d, %s%s | %.0f | %.0f | %.0f | %.3f | %.3f | %.1f |" % (
            *row[:3], row[3] if row[3] == row[4] else "%d/%d" % row[3:5], " causal" if row[5] else "",
            ours, fa2, cudnn, fa2 / ours, cudnn / ours, rows[-1]["cold_s"]), flush=True)
    finish(rows, PEERS, options.out)


if __name__ == "__main__":
    main()
