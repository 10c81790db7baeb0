#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention's backward pass through PyTorch's autograd: fa_tune's beside FlashAttention-2's, cuDNN's and FlashAttention-4's.

Each row: medians of 45, launch by launch in turn, with the L2 cache flushed, and after the timing our gradients against the peers',
whole. Needs the installed wheel and PyTorch on a GPU. FA_PEERS names a folder with the package flash-attn-4 and what it needs. What refuses
a row has no time in it. "matmul" is torch.mm of 8192 x 8192 in bf16 after the row, in TFLOP/s; "attained" is ours, which counts the five
products of the gradients.

    python3 tests/bench/training_vs_torch.py [--layer | --varlen | --deterministic | --host] [--head-dims 64,128,192/128,256] [--out FILE]
"""
import argparse
import contextlib
import json
import math
import os
import site
import statistics
import tempfile
import time
import warnings

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-bench-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

import attn_vs_torch  # noqa: E402
import fa_tune  # noqa: E402

if os.environ.get("FA_PEERS"):
    site.addsitedir(os.environ["FA_PEERS"])  # its .pth files count
    warnings.filterwarnings("ignore", message="Argument aux_data")
try:
    import flash_attn.cute as flash_attention_4  # noqa: E402
except ImportError:
    flash_attention_4 = None


def rows_of(dims, varlen):
    """Batch, heads, sequence, head dimension, that of V, causal: 16,384 tokens of about 2,048 elements each, or SEQUENCES."""
    sizes = [(len(SEQUENCES), sum(SEQUENCES))] if varlen else [(16384 // seq, seq) for seq in (1024, 4096, 16384)]
    return [(batch, max(1, 2048 // dim), seq, dim, dim_v, causal) for dim, dim_v in dims for causal in (False, True) for batch, seq in sizes]


SDPA = {"pytorch-fa2": "fa2", "pytorch-cudnn": "cudnn"}
PEERS = [*SDPA, "flash-attention-4"]
SEQUENCES = [8192, 64, 3511, 181, 1024, 512, 2200, 4096, 97, 300, 1500, 700, 6000, 128, 2600, 420, 850, 393]  # 32,768 in all


def sdpa(back_end, **how):
    """The function of q, k and v that is SDPA by one back end alone."""
    return lambda *tensors: attn_vs_torch.sdpa(back_end, *tensors, **how)()


def ways_of(causal):
    """The functions of q, k and v [batch, heads, seq, head_dim], by name, each with whether it takes [batch, seq, heads, head_dim]."""
    ways = {"fa_tune": (lambda *tensors: fa_tune.attention(*tensors, causal=causal), False)}
    ways.update((name, (sdpa(back_end, is_causal=causal), False)) for name, back_end in SDPA.items())
    if flash_attention_4:
        ways["flash-attention-4"] = (lambda *tensors: first(flash_attention_4.flash_attn_func(*tensors, causal=causal)), True)
    return ways


def varlen_ways_of(causal, sequences=SEQUENCES):
    """The same for sequences behind one another, tensors [tokens, heads, head_dim]."""
    bounds, longest = torch.tensor([sum(sequences[:i]) for i in range(len(sequences) + 1)], device="cuda", dtype=torch.int32), max(sequences)
    lengths = dict(cu_seqlens_q=bounds, cu_seqlens_k=bounds, max_seqlen_q=longest, max_seqlen_k=longest)
    ways = {"fa_tune": (lambda *tensors: fa_tune.attention_varlen(*tensors, **lengths, causal=causal), False),
            "pytorch-fa2": (lambda *tensors: first(torch.ops.aten._flash_attention_forward(
                *tensors, bounds, bounds, longest, longest, 0.0, causal, False)), False)}
    if flash_attention_4:
        ways["flash-attention-4"] = (lambda *tensors: first(flash_attention_4.flash_attn_varlen_func(*tensors, **lengths, causal=causal)), False)
    return ways


def in_fixed_order(call):
    """The call with torch.use_deterministic_algorithms(True); PyTorch's filling of new tensors, which it turns on, is off."""
    torch.utils.deterministic.fill_uninitialized_memory = False

    def run():
        torch.use_deterministic_algorithms(True)
        try:
            return call()
        finally:
            torch.use_deterministic_algorithms(False)
    return run


def first(told):
    return told[0] if isinstance(told, tuple) else told


def one_us(function, cache):
    """Time on the GPU of a call: L2 flushed, and a sleep in front that hides the host's part of the launches."""
    cache.zero_()
    torch.cuda._sleep(2_000_000)  # clocks: a millisecond
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    function()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3


def in_turn(ways, cache, count=45):
    """Each way's median time, of rounds (of a second; 9 to `count`) of one launch each, in another order: what was launched before decides the clock."""
    def one_round():
        return {name: one_us(ways[name], cache) for name in (list(ways)[i] for i in torch.randperm(len(ways)))}
    warm = [one_round() for _ in range(3)][-1]
    rounds = [one_round() for _ in range(max(9, min(count, int(1e6 / sum(warm.values())))))]
    return {name: statistics.median(one[name] for one in rounds) for name in ways}


def matmul_tflops(cache, n=8192):
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2e-6 * n ** 3 / in_turn({"mm": lambda: torch.mm(a, b)}, cache, 15)["mm"]


def attained_tflops(batch, heads, seq, dim, dim_v, causal, us):
    return 2e-6 * batch * heads * seq * seq * (3 * dim + 2 * dim_v) * (0.5 if causal else 1) / us


def finish(rows, peers, path):
    """Prints how far the peers are behind, and keeps the rows as JSON lines where a path is given."""
    for peer in peers:
        with_it = [row for row in rows if peer in row]
        if with_it:
            print("geometric mean, %s / fa_tune: %.3f" % (peer, attn_vs_torch.geomean(row[peer] / row["fa_tune"] for row in with_it)))
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)


def passes_of(attend, leaves, d_o, layer):
    """A function that computes the gradients once, with the forward pass in front where layer."""
    if layer:
        return lambda: torch.autograd.grad(attend(*leaves), leaves, d_o)
    with fa_tune.policy(effort="predict"):  # this pass is not timed
        o = attend(*leaves)
    return lambda: torch.autograd.grad(o, leaves, d_o, retain_graph=True)


def measure(ways, shapes, layer, cache):
    """Times ways on fresh tensors of these shapes (q, k, v); returns microseconds by name, and cold_s of our first call."""
    leaves = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for shape in shapes]
    d_o = torch.randn((*shapes[0][:-1], shapes[2][-1]), device="cuda", dtype=torch.bfloat16)
    calls = {"fa_tune": passes_of(ways["fa_tune"][0], leaves, d_o, layer)}
    torch.cuda.synchronize()
    begin = time.monotonic()
    calls["fa_tune"]()
    torch.cuda.synchronize()
    cold = time.monotonic() - begin
    for name, (attend, turns) in list(ways.items())[1:]:
        own = [tensor.detach().transpose(1, 2).contiguous() if turns else tensor.detach() for tensor in (*leaves, d_o)]
        try:
            call = passes_of(attend, [tensor.requires_grad_() for tensor in own[:3]], own[3], layer)
            if name == "deterministic":
                call = in_fixed_order(call)
            call()
            calls[name] = call
        except Exception as refused:  # each peer has kinds of its own
            print("%s refuses this row: %s" % (name, (str(refused).splitlines() or [type(refused).__name__])[0]))
    times, like_us = in_turn(calls, cache), []
    for name in list(calls)[1:]:
        rights = [right.transpose(1, 2) if ways[name][1] else right for right in calls[name]()]
        errors = [float((mine.float() - right.float()).abs().max() / right.abs().max()) for mine, right in zip(calls["fa_tune"](), rights)]
        if all(error <= 2 ** -6 for error in errors):
            like_us.append(name)
        else:
            assert like_us, "gradients differ from %s's by %g of the largest" % (name, max(errors))
            print("%s differs from %s and fa_tune by %g of the largest gradient: it is left out" % (name, " and ".join(like_us), max(errors)))
            del times[name]
    return {"cold_s": round(cold, 1), **{name: round(us, 1) for name, us in times.items()}}


def host_us(functions, rounds=14, count=150):
    """Medians, in turn: what a host does beside, and its clock, is then every function's alike."""
    told = [[] for _ in functions]
    for _ in range(rounds):
        for (around, function), times in zip(functions, told):
            with around():
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(count):
                    function()
                times.append((time.perf_counter() - begin) / count * 1e6)
    return [statistics.median(times[3:]) for times in told]


def cost_on_the_host():
    """Of a forward and backward pass on the calling thread, kernels too small to be waited for, and what is in it of PyTorch."""
    torch.autograd.set_multithreading_enabled(False)
    leaves = [torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(3)]
    d_o = torch.randn_like(leaves[0])

    class Allocates(torch.autograd.Function):
        """What PyTorch itself takes for a function of three tensors: it allocates what the passes return, and launches nothing."""

        @staticmethod
        def forward(ctx, q, k, v):
            o, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=torch.float32)
            ctx.save_for_backward(q, k, v, o, lse)
            return o

        @staticmethod
        def backward(ctx, d_o):
            return tuple(torch.empty_like(x) for x in ctx.saved_tensors[:3])
    plain, sdpa = contextlib.nullcontext, F.scaled_dot_product_attention
    ways = {"fa_tune": (plain, fa_tune.attention), "SDPA": (plain, sdpa), "within fa_tune.sdpa()": (fa_tune.sdpa, sdpa),
            "a function that only allocates": (plain, Allocates.apply)}
    told = host_us([(around, call) for around, attend in ways.values() for call in (
        lambda attend=attend: attend(*leaves), lambda attend=attend: torch.autograd.grad(attend(*leaves), leaves, d_o))])
    for name, forward, both in zip(ways, told[::2], told[1::2]):
        print("%s: %.0f us forward, %.0f us forward and backward" % (name, forward, both))
    print("four launches, as fa_tune's two passes have: %.0f us" % host_us([(plain, lambda: [torch.cuda._sleep(0) for _ in range(4)])])[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layer", action="store_true", help="the forward pass too")
    parser.add_argument("--varlen", action="store_true", help="18 sequences of 64 to 8,192 tokens behind one another")
    parser.add_argument("--deterministic", action="store_true", help="fa_tune beside itself with the same bits in every run")
    parser.add_argument("--host", action="store_true", help="what a call costs the host, alone")
    parser.add_argument("--head-dims", default="64,128", help="head dimensions, with that of V behind a stroke where it differs (64,128)")
    parser.add_argument("--out", help="also write the rows as JSON lines")
    options = parser.parse_args()
    if options.host:
        return cost_on_the_host()
    cache = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    dims = [tuple(map(int, (dim + "/" + dim).split("/")[:2])) for dim in options.head_dims.split(",")]
    rows, names = [], ["deterministic"] if options.deterministic else PEERS
    print("| B, H, S, D | fa_tune us | %s | %s | cold s | attained | matmul |" % (" | ".join(names), " | ".join(name + " / fa_tune" for name in names)))
    for batch, heads, seq, dim, dim_v, causal in rows_of(dims, options.varlen):
        ways = (varlen_ways_of if options.varlen else ways_of)(causal)
        if options.deterministic and not options.varlen:
            ways = dict.fromkeys(["fa_tune", "deterministic"], ways["fa_tune"])
        times = measure(ways, [(*((seq, heads) if options.varlen else (batch, heads, seq)), columns) for columns in (dim, dim, dim_v)], options.layer, cache)
        rows.append({"batch": batch, "heads": heads, "seq": seq, "dim": dim, "causal": causal, **({"dim_v": dim_v} if dim_v != dim else {}),
                     **({"layer": True} if options.layer else {}), **({"varlen": True} if options.varlen else {}), **times})
        if not options.layer and not options.varlen:
            rows[-1]["attained_tflops"] = round(attained_tflops(batch, heads, seq, dim, dim_v, causal, times["fa_tune"]), 1)
        rows[-1]["matmul_tflops"] = round(matmul_tflops(cache), 1)
        peers = [times.get(name, math.nan) for name in names]
        print("| %d, %d, %d, %s%s | %.0f | %s | %s | %.1f | %s | %.0f |" % (
            batch, heads, seq, dim if dim == dim_v else "%d/%d" % (dim, dim_v), " causal" if causal else "", times["fa_tune"],
            " | ".join("%.0f" % us for us in peers), " | ".join("%.3f" % (us / times["fa_tune"]) for us in peers), times["cold_s"],
            rows[-1].get("attained_tflops", "–"), rows[-1]["matmul_tflops"]), flush=True)
    finish(rows, names, options.out)


if __name__ == "__main__":
    main()
