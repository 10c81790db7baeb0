# SPDX-License-Identifier: Apache-2.0
"""Many queries as serving engines ask for them: varlen, pages, windows, sinks, softcap, beside our own dense kernel.

Every form of a row is tuned by the library, some of its rows are checked once more against PyTorch in fp32, and all are timed in turn with the
dense kernel and PyTorch's peers. bf16, causal, microseconds. Where FA_PEERS has FlashAttention-3 as vLLM ships it (vllm_fa3.py), each form has
it beside it, the faster of vLLM's two ways to call it, and its outputs are looked at, too.

    FA_TUNE_LIBRARY=build/libfa_tune.so python3 tests/bench/prefill_serving.py
"""
import argparse
import math

import torch

import fatune
import vllm_fa3
from attn_vs_torch import Clock, in_time, keep, sdpa
from decode_vs_torch import paged

MIXED = [8192, 64, 3511, 181, 1024, 512, 2200, 4096, 97, 300, 1500, 700, 6000, 128, 2600, 420, 850, 393]   # 32,768 in all
EQUAL = [4096] * 8
SHORT = [5 + i * 73 % 196 for i in range(200)]   # 5 to 200
MANY = [30 + i * 977 % 1471 for i in range(64)]   # 30 to 1,500
WINDOW = 1024
# name: lengths, heads (of queries, of keys), head dim, and forms with the fields that each asks for.
ROWS = {
    "equal": dict(lengths=EQUAL, heads=(32, 8), dim=128, forms={
        "varlen": dict(varlen=1), "lengths": dict(used=1), "page 64": dict(used=1, page=64), "page 16": dict(used=1, page=16),
        "window, page 64": dict(used=1, page=64, window=1), "window, page 16": dict(used=1, page=16, window=1)}),
    "mixed": dict(lengths=MIXED, heads=(32, 8), dim=128, forms={
        "varlen": dict(varlen=1), "page 64": dict(varlen=1, page=64), "page 16": dict(varlen=1, page=16),
        "window, page 64": dict(varlen=1, page=64, window=1), "window, page 16": dict(varlen=1, page=16, window=1)}),
    "many": dict(lengths=MANY, heads=(32, 8), dim=128, forms={"varlen": dict(varlen=1), "page 64": dict(varlen=1, page=64)}),
    "short": dict(lengths=SHORT, heads=(32, 8), dim=128, forms={"varlen": dict(varlen=1), "page 64": dict(varlen=1, page=64)}),
    "long, D 128": dict(lengths=[8192] * 2, heads=(16, 16), dim=128, forms={
        "lengths": dict(used=1), "lengths, sinks": dict(used=1, sinks=1), "window": dict(window=1), "sinks": dict(sinks=1),
        "softcap": dict(softcap=1), "softcap, page 64": dict(varlen=1, page=64, softcap=1),
        "softcap, window": dict(varlen=1, page=64, softcap=1, window=1)}),
    "long, D 64": dict(lengths=[8192] * 2, heads=(32, 32), dim=64, forms={
        "lengths": dict(used=1), "lengths, sinks": dict(used=1, sinks=1), "window": dict(window=1), "sinks": dict(sinks=1),
        "softcap": dict(softcap=1)}),
    "long, D 256": dict(lengths=[8192] * 2, heads=(16, 8), dim=256, forms={
        "lengths": dict(used=1), "window": dict(window=1), "softcap": dict(softcap=1), "softcap, page 64": dict(varlen=1, page=64, softcap=1),
        "softcap, window": dict(varlen=1, page=64, softcap=1, window=1)}),
}
CAP = 30.0


class Row:
    """The tensors of a row, [tokens, heads, dim], and what is called on them."""

    def __init__(self, lengths, heads, dim):
        self.lengths, self.heads, self.dim = lengths, heads, dim
        total = sum(lengths)
        shape = [(total, heads[0], dim), (total, heads[1], dim), (total, heads[1], dim)]
        self.q, self.k, self.v = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in shape)
        self.sinks = torch.randn(heads[0], device="cuda", dtype=torch.bfloat16).float()   # as vLLM's FlashAttention-3 takes them
        bounds = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
        self.bounds = bounds
        self.cu = torch.tensor(bounds, device="cuda", dtype=torch.int32)
        self.used = torch.tensor(lengths, device="cuda", dtype=torch.int32)

    def pages(self, page):
        """Keys, values and the table of shuffled pages."""
        columns = -(-max(self.lengths) // page)
        used = [-(-n // page) for n in self.lengths]
        order = torch.randperm(sum(used), device="cuda").to(torch.int32)
        table = torch.zeros(len(self.lengths), columns, device="cuda", dtype=torch.int32)
        padded = torch.zeros(2, 1, self.heads[1], sum(used) * page, self.dim, device="cuda", dtype=torch.bfloat16)
        at = 0
        for b, count in enumerate(used):
            table[b, :count] = order[at:at + count]
            for i, x in enumerate((self.k, self.v)):
                rows = x[self.bounds[b]:self.bounds[b + 1]]
                padded[i, 0, :, at * page:at * page + len(rows)] = rows.transpose(0, 1)
            at += count
        return paged(padded[0], page, order), paged(padded[1], page, order), table

    def ours(self, tuner, o, cache, varlen=0, used=0, page=0, window=0, sinks=0, softcap=0):
        """A call without arguments that launches our kernel, and its config; cache: keys, values and the table of pages or None."""
        batch, longest, total = len(self.lengths), max(self.lengths), sum(self.lengths)
        mean = total // batch if varlen and min(self.lengths) < longest else 0
        problem = fatune.problem("bf16", "bottom-right", self.dim, batch, *self.heads, longest)
        problem.layout = 1
        problem.varlen, problem.page, problem.window, problem.sinks, problem.softcap = varlen, page, window, sinks, softcap
        problem.lengths_k = 2 if used or page else 1 if varlen else 0
        problem.mean_q = problem.mean_k = mean
        problem.window_left = WINDOW - 1 if window else 0
        k, v, table = cache
        args = fatune.Args(size=fatune.c.sizeof(fatune.Args), q=self.q.data_ptr(), k=k.data_ptr(), v=v.data_ptr(),
                           o=o.data_ptr(), cu_seqlens_q=self.cu.data_ptr(), cu_seqlens_k=self.cu.data_ptr(),
                           seqused_k=self.used.data_ptr(), sinks=self.sinks.data_ptr(), softcap=CAP, total_q=total, total_k=total)
        if page:
            args.block_table, args.block_table_stride, args.num_pages = table.data_ptr(), table.stride(0), len(k)
            for name, x in (("k", k), ("v", v)):   # of a page, a head and a row
                setattr(args, name + "_stride", (fatune.c.c_int64 * 3)(x.stride(0), x.stride(2), x.stride(1)))
        kernel = tuner.kernel(problem)
        call = tuner.caller(kernel, args, torch.cuda.current_stream().cuda_stream, (k, v, table))
        return call, tuner.answer(kernel).trial.config.text()

    def fa3(self, o, cache, used=0, page=0, window=0, sinks=0, softcap=0, **_):
        k, v, table = cache
        if used and not page:
            k, v = (x.view(len(self.lengths), self.lengths[0], *x.shape[1:]) for x in (k, v))
        lengths = dict(seqused_k=self.used, block_table=table) if used or page else dict(cu_seqlens_k=self.cu)
        return vllm_fa3.calls(self.q, k, v, o, self.cu, max(self.lengths), max(self.lengths), True, **lengths,
                              window=WINDOW if window else None, softcap=CAP if softcap else 0.0,
                              sinks=self.sinks.bfloat16() if sinks else None)

    def check(self, o, name, window=0, sinks=0, softcap=0, **_):
        """Some queries of the first and the last sequence against fp32."""
        for b in (0, len(self.lengths) - 1):
            first, length = self.bounds[b], self.lengths[b]
            for head in (0, self.heads[0] - 1):
                rows = torch.tensor(sorted({0, 1, length // 2, length - 2, length - 1}), device="cuda")
                of = head // (self.heads[0] // self.heads[1])
                q = self.q[first + rows, head].float()
                k, v = (x[first:first + length, of].float() for x in (self.k, self.v))
                scores = q @ k.T / math.sqrt(self.dim)
                if softcap:
                    scores = CAP * torch.tanh(scores / CAP)
                keys = torch.arange(length, device="cuda")[None]
                hidden = keys > rows[:, None]
                if window:
                    hidden |= keys < rows[:, None] - (WINDOW - 1)
                scores = scores.masked_fill(hidden, -math.inf)
                if sinks:
                    scores = torch.cat([scores, self.sinks[head].expand(len(rows), 1)], 1)
                right = scores.softmax(1)[:, :length] @ v
                error = (o[first + rows, head].float() - right).abs().max().item()
                if not error <= 0.02:
                    raise SystemExit(f"wrong result: {error} in {name}, sequence {b}, head {head}")

    def fa2(self):
        longest = max(self.lengths)
        return lambda: torch.ops.aten._flash_attention_forward(self.q, self.k, self.v, self.cu, self.cu, longest, longest, 0.0, True, False)

    def cudnn(self):
        """Of sequences that are equally long."""
        q, k, v = (x.view(len(self.lengths), self.lengths[0], *x.shape[1:]).transpose(1, 2) for x in (self.q, self.k, self.v))
        return sdpa("cudnn", q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def share_of_window(length):
    """Of the scores of a causal mask, those within the window."""
    return (length * WINDOW - WINDOW * (WINDOW - 1) / 2) / (length * (length + 1) / 2)


def run_row(tuner, clock, name, row, forms, budget_ms):
    tensors = Row(row["lengths"], row["heads"], row["dim"])
    same = len(set(row["lengths"])) == 1
    calls, configs = {**({"cudnn": tensors.cudnn()} if same else {}), "fa2": tensors.fa2()}, {}
    asked = {form: fields for form, fields in row["forms"].items() if forms is None or form in forms}
    for form, fields in {**({"dense": {}} if same else {}), **asked}.items():
        cache = tensors.pages(fields["page"]) if fields.get("page") else (tensors.k, tensors.v, None)
        o = torch.full_like(tensors.q, math.nan)
        calls[form], configs[form] = tensors.ours(tuner, o, cache, **fields)
        calls[form]()
        tensors.check(o, f"{name}, {form}", **fields)
        for way, call in tensors.fa3(torch.empty_like(tensors.q), cache, **fields).items():
            calls[vllm_fa3.NAME, way, form] = call
            tensors.check(call(), f"{name}, {form}, {way}", **fields)
    us = {form: t * 1e3 for form, t in clock.in_turn(calls, budget_ms).items()}
    fa3 = vllm_fa3.faster(us)
    return dict(row=name, us=us, fa3=fa3, configs=configs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--forms", nargs="+", choices=sorted({form for row in ROWS.values() for form in row["forms"]}))
    parser.add_argument("--budget-ms", type=float, default=100)
    parser.add_argument("--seconds", type=float, default=math.inf, help="no further row is begun after so many")
    parser.add_argument("--out")
    options = parser.parse_args()
    clock, tuner = Clock(ahead=400_000), fatune.Tuner()
    for name in in_time(options.rows, options.seconds):
        result = run_row(tuner, clock, name, ROWS[name], options.forms, options.budget_ms)
        us = result["us"]
        for form, t in us.items():
            said = f"{name:12s} {form:14s} {t:8.1f} us"
            if "dense" in us and form != "dense":
                said += f"  dense/this {us['dense'] / t:6.3f}"
            if form == "window":
                said += f"  of its share {t / (us['dense'] * share_of_window(ROWS[name]['lengths'][0])):6.3f}"
            if form in result["fa3"]:
                said += f"  FA3/this {result['fa3'][form] / t:6.3f}"
            print(said + "  " + result["configs"].get(form, ""), flush=True)
        keep(result, options.out)
        torch.cuda.empty_cache()
    tuner.close()


if __name__ == "__main__":
    main()
