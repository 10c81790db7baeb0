#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention as serving engines call it, on a real GPU, beside float64: one tune for each problem, then graphs that are captured once and replayed on other
lengths, tables and pages; and sequences that must have the same bits in every batch. tests/gpu.sh serving runs it.

Everything that no sequence owns holds NaN."""
import random
import sys

import torch

import fa_tune
import gpu_calls

DECODE, PACKED = {"form": "decode", "rows": 1}, {"form": "packed", "causal": True}
CASES = {
    "decode, lengths on the device, pages of 64, sinks": dict(DECODE, batch=8, heads=32, kv=8, keys=4096, page=64, sinks=True),
    "decode, pages of 16, window and softcap": dict(DECODE, batch=5, heads=16, kv=2, dim=64, keys=3000, page=16, window=(512, 0), softcap=20.0),
    "four queries, causal, pages of 32, fp8 keys and values": dict(DECODE, rows=4, batch=3, heads=8, kv=8, keys=2000, page=32, fp8="k, v", causal=True),
    "varlen, causal": dict(PACKED, batch=6, heads=8, kv=2, rows=300, keys=300),
    "decode, heads of 512, pages of 16": dict(DECODE, batch=5, heads=16, kv=2, dim=512, keys=3000, page=16),
    "varlen, causal, heads of 512, window": dict(PACKED, batch=4, heads=8, kv=2, dim=512, rows=200, keys=200, window=(100, 0)),
}
SAME_BITS = {  # heads, heads of keys, head dim, queries, keys, page, causal
    "decode, pages of 64": (8, 2, 128, 1, 5000, 64, False),
    "decode, heads of 512": (16, 2, 512, 1, 2500, 16, False),
    "16 queries, causal, pages of 8": (8, 2, 64, 16, 1500, 8, True),
}
# Numbers of sequences, as each batch has them; the last may hold longer ones than the others.
BATCHES = [[0], [1], [2], [3], [0, 1, 2, 3], [3, 1, 0, 2], [5, 2, 0, 4], [1, 6, 2, 3]]


def replayed(case):
    """Four graphs, each replayed on other sequences in the same buffers."""
    chance, generator = random.Random(1), torch.Generator("cuda").manual_seed(1)
    case = {**dict.fromkeys(gpu_calls.draw(chance)), "type": torch.bfloat16, "dim": 128, "texts": {}, "trains": False, "lse": True, "graph": True, **case}
    case["dim_v"] = case["dim"]
    return "O %s of what is allowed" % " ".join("%.2f" % gpu_calls.judge(case, chance, generator) for _ in range(4))


def bits_are_those_of_any_batch(case):
    (heads, kv, dim, rows, longest, page, causal), chance, first, differ = case, random.Random(1), {}, set()
    torch.manual_seed(1)
    lengths = [longest, longest // 2 + 1, 1030, rows, longest - 1, 0, longest // 3]
    contents = [[torch.randn(n, h, dim, device="cuda").bfloat16() for n, h in ((rows, heads), (length, kv), (length, kv))] for length in lengths]
    for number, batch in enumerate(BATCHES):
        most = longest if number + 1 < len(BATCHES) else 2 * longest
        columns = -(-most // page)
        pool = torch.full((2, len(batch) * columns + 5, page, kv, dim), float("nan"), device="cuda", dtype=torch.bfloat16)
        order, table = chance.sample(range(pool.shape[1]), pool.shape[1]), torch.full((len(batch), columns), -1)
        for at, i in enumerate(batch):
            own = torch.tensor([order.pop() for _ in range(-(-lengths[i] // page))], dtype=torch.long)
            table[at, :len(own)] = own
            places = (own[:, None] * page + torch.arange(page)).flatten()[:lengths[i]].cuda()
            for to, of in zip(pool, contents[i][1:]):
                to.flatten(0, 1)[places] = of
        found = fa_tune.attention(torch.stack([contents[i][0] for i in batch]), *pool, layout="bshd", causal=causal, batch_invariant=True, return_lse=True, max_seqlen_k=most,
                                  seqused_k=torch.tensor([lengths[i] for i in batch], device="cuda", dtype=torch.int32), block_table=table.int().cuda())
        for at, i in enumerate(batch):
            bits = [x[at].view(kind) for x, kind in zip(found, (torch.int16, torch.int32))]
            if not all(map(torch.equal, first.setdefault(i, bits), bits)):
                differ.add(i)
    assert not differ, "in %d batches these sequences differ: %s" % (len(BATCHES), sorted(differ))
    return "%d batches" % len(BATCHES)


def main():
    fa_tune.policy(effort=sys.argv[1] if len(sys.argv) > 1 else "predict")
    tests, failed = [(name, replayed, case) for name, case in CASES.items()] + [("the same bits in any batch: " + name, bits_are_those_of_any_batch, case) for name, case in SAME_BITS.items()], 0
    for number, (name, test, case) in enumerate(tests, 1):
        try:
            good, told = True, test(case)
        except (AssertionError, fa_tune.Error) as error:
            good, told = False, str(error)
        failed += not good
        print("%sok %d - %s # %s" % ("" if good else "not ", number, name, told), flush=True)
    print("1..%d" % len(tests))
    return 1 if failed else 0


sys.exit(main())
