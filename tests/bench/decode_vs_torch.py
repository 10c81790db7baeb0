# SPDX-License-Identifier: Apache-2.0
"""Decoding: ours beside PyTorch SDPA's cuDNN and FA2 back ends, thirteen problems of serving engines in one run.

Every row is tuned by the library in each of its forms (lengths known to the host; lengths on the device; shuffled pages of 64 and of 16 keys),
checked once more against PyTorch, and timed in turn with the peers as attn_vs_torch.py does, in microseconds. Where FA_PEERS has
FlashAttention-3 as vLLM ships it (vllm_fa3.py), it is timed in those forms, too, the faster of vLLM's two ways to call it. "best/ours" is the
fastest peer's time with lengths known to the host over ours; behind it our time in that form over those in the other ones.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/decode_vs_torch.py
"""
import argparse
import math

import torch
import torch.nn.functional as F

import fatune
import vllm_fa3
from attn_vs_torch import Clock, geomean, in_time, keep, sdpa

ROWS = [(1, 32, 8, 1, 4096), (8, 32, 8, 1, 4096), (32, 32, 8, 1, 8192), (128, 32, 8, 1, 2048), (1, 32, 8, 1, 131072), (16, 64, 8, 1, 16384),
        (8, 32, 32, 1, 4096), (64, 16, 1, 1, 8192), (8, 32, 8, 4, 8192), (3, 28, 4, 1, 5000), (48, 64, 8, 1, 1500), (256, 32, 8, 1, 700),
        (5, 40, 8, 1, 30000)]   # batch, query heads, key heads, queries, keys
FORMS = {"fixed": {}, "lengths": {"lengths_k": 2}, "page 64": {"lengths_k": 2, "page": 64}, "page 16": {"lengths_k": 2, "page": 16},
         "invariant": {"batch_invariant": 1}, "fp8": {"kv_dtype": 1}}


def paged(keys, page, order):
    """[B, H, S, D] -> [pages, page, H, D], page i of the list at place order[i]; a sequence's last page ends in zeros."""
    keys = F.pad(keys, (0, 0, 0, -keys.shape[2] % page))
    batch, heads, seq, dim = keys.shape
    pool = torch.empty(batch * seq // page, page, heads, dim, device=keys.device, dtype=keys.dtype)
    pool[order.long()] = keys.view(batch, heads, seq // page, page, dim).permute(0, 2, 3, 1, 4).reshape(pool.shape)
    return pool


def shuffled(batch, keys, page):
    """A table of pages for sequences of so many keys."""
    columns = -(-keys // page)
    return torch.randperm(batch * columns, device="cuda").to(torch.int32).view(batch, columns)


def fa3(name, q, k, v):
    """FlashAttention-3's calls in a form that it has, which return [batch, heads, queries, dim]."""
    batch, heads_kv, seq_k, dim = k.shape
    form, seq_q = FORMS[name], q.shape[2]
    if not set(form) <= {"lengths_k", "page"}:
        return {}
    rows, table = [x.transpose(1, 2).contiguous() for x in (k, v)], None
    if "page" in form:
        table = shuffled(batch, seq_k, form["page"])
        rows = [paged(x, form["page"], table.view(-1)) for x in (k, v)]
    starts = [torch.arange(batch + 1, device="cuda", dtype=torch.int32) * n for n in (seq_q, seq_k)]
    lengths = dict(seqused_k=torch.full((batch,), seq_k, device="cuda", dtype=torch.int32), block_table=table)
    if name == "fixed":
        lengths, rows = dict(cu_seqlens_k=starts[1]), [x.view(-1, heads_kv, dim) for x in rows]
    queries = q.transpose(1, 2).reshape(-1, q.shape[1], dim)
    calls = vllm_fa3.calls(queries, *rows, torch.full_like(queries, math.nan), starts[0], seq_q, seq_k, seq_q > 1, **lengths)
    return {way: lambda call=call: call().view(batch, seq_q, -1, dim).transpose(1, 2) for way, call in calls.items()}


def arguments(form, q, k, v, o):
    """fa_attn_args, and what must live as long."""
    args = fatune.Args(size=fatune.c.sizeof(fatune.Args), q=q.data_ptr(), o=o.data_ptr())
    batch, seq_k, keep = q.shape[0], k.shape[2], []
    if "lengths_k" in form:
        lengths = torch.full((batch,), seq_k, device="cuda", dtype=torch.int32)
        args.seqused_k = lengths.data_ptr()
        keep.append(lengths)
    if "page" in form:
        table = shuffled(batch, seq_k, form["page"])
        k, v = (paged(x, form["page"], table.view(-1)) for x in (k, v))
        args.block_table, args.block_table_stride, args.num_pages = table.data_ptr(), table.stride(0), table.numel()
        keep.append(table)
        for name, x in (("k", k), ("v", v)):   # of a page, a head and a row
            setattr(args, name + "_stride", (fatune.c.c_int64 * 3)(x.stride(0), x.stride(2), x.stride(1)))
    if "kv_dtype" in form:
        k, v, one = k.to(torch.float8_e4m3fn), v.to(torch.float8_e4m3fn), torch.ones(1, device="cuda")
        args.k_scale = args.v_scale = one.data_ptr()
        keep.append(one)
    args.k, args.v = k.data_ptr(), v.data_ptr()
    return args, [*keep, k, v]


def ours(tuner, name, shape, q, k, v, o):
    """A call without arguments that launches our kernel, and its answer."""
    batch, heads, heads_kv, seq_q, seq_k = shape
    problem = fatune.problem("bf16", "bottom-right" if seq_q > 1 else "none", q.shape[3], batch, heads, heads_kv, seq=seq_q, seq_k=seq_k)
    for field, value in FORMS[name].items():
        setattr(problem, field, value)
    kernel = tuner.kernel(problem)
    args, keep = arguments(FORMS[name], q, k, v, o)
    return tuner.caller(kernel, args, torch.cuda.current_stream().cuda_stream, keep), tuner.answer(kernel)


def peers(shape, q, k, v):
    seq_q, seq_k = shape[3:]
    mask = None
    if seq_q > 1:
        late = torch.arange(seq_k, device="cuda")[None] > torch.arange(seq_q, device="cuda")[:, None] + seq_k - seq_q
        mask = torch.zeros(seq_q, seq_k, device="cuda", dtype=q.dtype).masked_fill(late, float("-inf"))
    names = ["cudnn", "fa2"] if mask is None else ["cudnn"]
    return {name: sdpa(name, q, k, v, attn_mask=mask, enable_gqa=q.shape[1] != k.shape[1]) for name in names}


def run_row(tuner, clock, shape, forms, budget_ms):
    batch, heads, heads_kv, seq_q, seq_k = shape
    q = torch.randn(batch, heads, seq_q, 128, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(batch, heads_kv, seq_k, 128, device="cuda", dtype=torch.bfloat16)
    v, o = torch.randn_like(k), torch.empty_like(q)
    calls, configs = peers(shape, q, k, v), {}
    right = calls["cudnn"]().float()
    for name in forms:
        calls[name], answer = ours(tuner, name, shape, q, k, v, o)
        configs[name] = answer.trial.config.text()
        o.fill_(float("nan"))
        calls[name]()
        error = (o.float() - right).abs().max().item()
        if not error <= (0.1 if name == "fp8" else 0.02):
            raise SystemExit(f"wrong result: {error} beside cuDNN in {shape}, {name}")
        for way, call in fa3(name, q, k, v).items():
            calls[vllm_fa3.NAME, way, name] = call
            error = (call().float() - right).abs().max().item()
            if not error <= 0.02:
                raise SystemExit(f"wrong result: {error} beside cuDNN in {shape}, {name}, {way}")
    us = {name: t * 1e3 for name, t in clock.in_turn(calls, budget_ms).items()}
    own, lead = vllm_fa3.faster(us), forms[0]
    if lead in own:
        us["fa3"] = own[lead]
    best = min(us[name] for name in ("cudnn", "fa2", "fa3") if name in us)
    return dict(shape=shape, best=best, configs=configs, us=us, ours=best / us[lead],
                **{f"{lead}/{name}": us[lead] / us[name] for name in forms[1:]},
                **{f"fa3 {name}": own[name] / us[name] for name in forms if name in own})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--rows", type=int, nargs="+", default=range(len(ROWS)))
    parser.add_argument("--budget-ms", type=float, default=60)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further row is begun after so many")
    parser.add_argument("--out")
    options = parser.parse_args()
    forms = ["fixed", *(name for name in options.forms if name != "fixed")]
    tuner, clock, rows = fatune.Tuner(), Clock(ahead=400_000), []
    print(f"{'B Hq Hk Sq Sk':22s} {'cuDNN':>7s} {'FA2':>7s} {'FA3':>7s} {'ours':>7s} {'best/ours':>9s} "
          + " ".join(f"{name:>9s}" for name in forms[1:]))
    for index in in_time(options.rows, options.seconds):
        row = run_row(tuner, clock, ROWS[index], forms, options.budget_ms)
        rows.append(row)
        us = row["us"]
        print(f"{' '.join(map(str, row['shape'])):22s} {us['cudnn']:7.1f} {us.get('fa2', math.nan):7.1f} "
              f"{us.get('fa3', math.nan):7.1f} {us['fixed']:7.1f} {row['ours']:9.3f} "
              + " ".join(f"{row['fixed/' + name]:9.3f}" for name in forms[1:]) + f"  {row['configs']['fixed']}", flush=True)
        keep(row, options.out)
        torch.cuda.empty_cache()
    print("geometric mean" + " " * 42 + f"{geomean(row['ours'] for row in rows):9.3f} "
          + " ".join(f"{geomean(row['fixed/' + name] for row in rows):9.3f}" for name in forms[1:]))
    for name in forms:
        ratios = [row["fa3 " + name] for row in rows if "fa3 " + name in row]
        if ratios:
            print(f"FlashAttention-3's {name} over ours: {geomean(ratios):.3f}, {min(ratios):.3f} to {max(ratios):.3f}")
    tuner.close()


if __name__ == "__main__":
    main()
