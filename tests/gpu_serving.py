#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention as serving engines call it, through fa_launch on a real GPU, beside PyTorch in fp32: one tune for each
problem, then a graph that is captured once and replayed on other lengths, tables and pages; and sequences that must have
the same bits in every batch. tests/gpu.sh serving runs it.

Everything that no sequence owns holds NaN."""
import ctypes as c
import random
import sys

import torch

import fatune

CASES = {
    "decode, lengths on the device, pages of 64, sinks":
        dict(batch=8, heads=(32, 8), dim=128, seq=(1, 4096), lengths=2, page=64, sinks=True),
    "decode, pages of 16, window and softcap":
        dict(batch=5, heads=(16, 2), dim=64, seq=(1, 3000), lengths=2, page=16, window=(512, 0), softcap=20.0),
    "four queries, causal, pages of 32, fp8 keys and values":
        dict(batch=3, heads=(8, 8), dim=128, seq=(4, 2000), lengths=2, page=32, fp8=True, causal=True),
    "varlen, causal":
        dict(batch=6, heads=(8, 2), dim=128, seq=(300, 300), lengths=1, causal=True),
    "batch-invariant decode":
        dict(batch=4, heads=(8, 2), dim=128, seq=(1, 5000), lengths=2, page=64, invariant=True),
    "decode, heads of 512, pages of 16":
        dict(batch=5, heads=(16, 2), dim=512, seq=(1, 3000), lengths=2, page=16),
    "varlen, causal, heads of 512, window":
        dict(batch=4, heads=(8, 2), dim=512, seq=(200, 200), lengths=1, causal=True, window=(100, 0)),
}
SAME_BITS = {
    "decode, pages of 64": dict(heads=(8, 2), dim=128, seq=(1, 5000), page=64),
    "decode, heads of 512": dict(heads=(16, 2), dim=512, seq=(1, 2500), page=16),
    "16 queries, causal, pages of 8": dict(heads=(8, 2), dim=64, seq=(16, 1500), page=8, causal=True),
}
# Numbers of sequences, as each batch has them; the last may hold longer ones than the others.
BATCHES = [[0], [1], [2], [3], [0, 1, 2, 3], [3, 1, 0, 2], [5, 2, 0, 4], [1, 6, 2, 3]]
NAN = float("nan")


def problem_of(case):
    problem = fatune.problem("bf16", "bottom-right" if case.get("causal") else "none", case["dim"], case["batch"],
                             case["heads"][0], case["heads"][1], *case["seq"])
    problem.layout = 1
    problem.varlen = case["lengths"] == 1
    problem.lengths_k, problem.page = case["lengths"], case.get("page", 0)
    if "window" in case:
        problem.window, (problem.window_left, problem.window_right) = 1, case["window"]
    problem.softcap, problem.sinks = "softcap" in case, case.get("sinks", False)
    problem.kv_dtype, problem.batch_invariant = case.get("fp8", False), case.get("invariant", False)
    problem.want_lse = 1
    return problem


class Tensors:
    """The buffers of one case; draw() fills them with other sequences."""

    def __init__(self, case):
        self.case = case
        batch, (heads, heads_kv), dim, (seq_q, seq_k) = (case[key] for key in ("batch", "heads", "dim", "seq"))
        self.page = case.get("page", 0)
        self.stored = torch.float8_e4m3fn if case.get("fp8") else torch.bfloat16
        self.total = batch * seq_q
        rows = (batch, seq_q) if case["lengths"] == 2 else (self.total,)
        self.q, self.o = (torch.empty(*rows, heads, dim, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        self.lse = torch.empty((batch, heads, seq_q) if case["lengths"] == 2 else (heads, self.total), device="cuda")
        self.columns = -(-seq_k // self.page) if self.page else 0
        self.pool = batch * self.columns + 5
        kv = (self.pool, self.page) if self.page else (batch * seq_k,)
        self.k, self.v = (torch.empty(*kv, heads_kv, dim, device="cuda", dtype=self.stored) for _ in range(2))
        self.used = torch.zeros(batch, dtype=torch.int32, device="cuda")
        self.cu = torch.zeros(batch + 1, dtype=torch.int32, device="cuda")
        self.table = torch.zeros(batch, max(self.columns, 1), dtype=torch.int32, device="cuda")
        self.sinks = torch.empty(heads, device="cuda")
        self.scales = torch.tensor([0.5, 2.0], device="cuda")

    def draw(self, seed):
        chance, case = random.Random(seed), self.case
        torch.manual_seed(seed)
        longest = case["seq"][1]
        self.lengths = [longest] + [chance.choice([0, 1, chance.randint(0, longest)]) for _ in range(case["batch"] - 1)]
        chance.shuffle(self.lengths)
        self.q.normal_()
        self.sinks.normal_()
        self.place([[self.random_keys(length) for _ in "kv"] for length in self.lengths], chance)

    def random_keys(self, length):
        return torch.randn(length, *self.k.shape[-2:], device="cuda").to(self.stored)

    def place(self, sequences, chance):
        """Lays out these keys and values, in pages at random where there are pages."""
        self.lengths = [len(k) for k, _ in sequences]
        self.lse.fill_(7)
        self.o.fill_(7)
        for tensor in (self.k, self.v):
            tensor.copy_(torch.full((1,), NAN, device="cuda"))
        self.used.copy_(torch.tensor(self.lengths))
        self.cu.copy_(torch.tensor([sum(self.lengths[:i]) for i in range(len(self.lengths) + 1)]))
        pages = chance.sample(range(self.pool), self.pool)
        table = torch.full_like(self.table, -1)
        self.rows = []                                  # of each sequence's keys in k and v, heads and all
        for b, length in enumerate(self.lengths):
            if self.page:
                own = [pages.pop() for _ in range(-(-length // self.page))]
                table[b, :len(own)] = torch.tensor(own, dtype=torch.int32)
                at = [own[j // self.page] * self.page + j % self.page for j in range(length)]
            else:
                at = range(sum(self.lengths[:b]), sum(self.lengths[:b + 1]))
            self.rows.append(torch.tensor(list(at), dtype=torch.long, device="cuda"))
            for tensor, fresh in zip((self.k, self.v), sequences[b]):
                tensor.flatten(0, -3).view(torch.uint8 if self.stored.itemsize == 1 else torch.int16)[self.rows[b]] = \
                    fresh.view(torch.uint8 if self.stored.itemsize == 1 else torch.int16)
        self.table.copy_(table)

    def arguments(self):
        case, whole = self.case, c.sizeof(fatune.Args)
        args = fatune.Args(size=whole, q=self.q.data_ptr(), k=self.k.data_ptr(), v=self.v.data_ptr(),
                           o=self.o.data_ptr(), lse=self.lse.data_ptr())
        if case["lengths"] == 1:
            args.cu_seqlens_q = args.cu_seqlens_k = self.cu.data_ptr()
            args.total_q = args.total_k = self.total
        else:
            args.seqused_k = self.used.data_ptr()
        if self.page:
            args.block_table, args.num_pages = self.table.data_ptr(), self.pool
        if case.get("sinks"):
            args.sinks = self.sinks.data_ptr()
        if case.get("fp8"):
            args.k_scale, args.v_scale = self.scales[:1].data_ptr(), self.scales[1:].data_ptr()
        args.softcap = case.get("softcap", 0.0)
        return args

    def expected(self, b):
        """O [queries, heads, dim] and LSE [heads, queries] of a sequence, in fp32."""
        case, length = self.case, self.lengths[b]
        q = (self.q[b] if case["lengths"] == 2 else self.q[self.cu[b]:self.cu[b + 1]]).float()
        k, v = (tensor.flatten(0, -3)[self.rows[b]].float() if self.stored.itemsize > 1 else
                tensor.flatten(0, -3).view(torch.uint8)[self.rows[b]].view(self.stored).float()
                for tensor in (self.k, self.v))
        if case.get("fp8"):
            k, v = k * self.scales[0], v * self.scales[1]
        group = case["heads"][0] // case["heads"][1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / case["dim"] ** 0.5
        if "softcap" in case:
            scores = case["softcap"] * torch.tanh(scores / case["softcap"])
        stands = torch.arange(len(q), device="cuda")[:, None] + length - len(q)
        key = torch.arange(length, device="cuda")[None]
        if case.get("causal"):
            scores = scores.masked_fill(key > stands, -torch.inf)
        if "window" in case:
            left, right = case["window"]
            scores = scores.masked_fill((key < stands - left) | (key > stands + right), -torch.inf)
        if case.get("sinks"):
            scores = torch.cat([scores, self.sinks[:, None, None].expand(-1, len(q), 1)], 2)
            v = torch.cat([v, torch.zeros_like(self.q.view(-1, *self.q.shape[-2:])[:1]).float()])
        lse = torch.logsumexp(scores, 2)
        weights = torch.where(lse.isinf()[..., None], 0.0, torch.exp(scores - lse[..., None]))
        return torch.einsum("hqk,khd->qhd", weights, v), lse

    def error(self):
        """The worst of O over all sequences relative to bf16's rounding of its largest values, and of LSE."""
        worst, worst_lse = 0.0, 0.0
        for b in range(self.case["batch"]):
            o, lse = self.expected(b)
            dense = self.case["lengths"] == 2
            own = self.o[b] if dense else self.o[self.cu[b]:self.cu[b + 1]]
            own_lse = self.lse[b] if dense else self.lse[:, self.cu[b]:self.cu[b + 1]]
            if o.numel() == 0:
                continue
            difference = (own.float() - o).abs().max() / (0.5 + o.abs().max()) * 2 ** 7
            differs = torch.where(own_lse == lse, 0.0, (own_lse - lse).abs()).max()
            worst = max(worst, difference.item()) if difference.isfinite() else NAN
            worst_lse = max(worst_lse, differs.item()) if differs.isfinite() else NAN
        return worst, worst_lse


def launcher(tuner, kernel, tensors):
    """What launches the kernel on these tensors."""
    args = tensors.arguments()
    workspace = torch.empty(max(tuner.lib.fa_kernel_workspace(kernel), 1) + 256, dtype=torch.uint8, device="cuda")
    args.workspace = (workspace.data_ptr() + 255) // 256 * 256
    args.workspace_bytes = workspace.numel() - 256 + 1

    def launch(_keeps=workspace):
        tuner.check(tuner.lib.fa_launch(kernel, c.byref(args), c.c_void_p(torch.cuda.current_stream().cuda_stream),
                                        c.byref(tuner.diag)))
    return launch


def replayed(tuner, kernel, tensors):
    """Captured once; then other sequences in the same buffers."""
    launch, errors = launcher(tuner, kernel, tensors), []
    tensors.draw(1)
    launch()
    torch.cuda.synchronize()
    errors.append(tensors.error())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch()
    for seed in range(2, 6):
        tensors.draw(seed)
        graph.replay()
        torch.cuda.synchronize()
        errors.append(tensors.error())
    return errors


def bits_that_differ(tuner, case, effort):
    """The sequences whose O or LSE has other bits in some batch than in the first that they are in."""
    chance, first, differ = random.Random(1), {}, set()
    torch.manual_seed(1)
    longest, whole = case["seq"][1], dict(case, batch=1, lengths=2, invariant=True)
    one = Tensors(whole)
    lengths = [longest, longest // 2 + 1, 1030, case["seq"][0], longest - 1, 0, longest // 3]
    contents = [(torch.randn_like(one.q[0]), [one.random_keys(length) for _ in "kv"]) for length in lengths]
    for number, batch in enumerate(BATCHES):
        seq = (case["seq"][0], longest if number + 1 < len(BATCHES) else 2 * longest)
        tensors = Tensors(dict(whole, batch=len(batch), seq=seq))
        tensors.place([contents[i][1] for i in batch], chance)
        tensors.q.copy_(torch.stack([contents[i][0] for i in batch]))
        launcher(tuner, tuner.kernel(problem_of(tensors.case), effort), tensors)()
        torch.cuda.synchronize()
        for at, i in enumerate(batch):
            found = tensors.o[at].view(torch.int16), tensors.lse[at].view(torch.int32)
            kept = first.setdefault(i, [bits.clone() for bits in found])
            if not all(map(torch.equal, kept, found)):
                differ.add(i)
    return differ


def main():
    effort = sys.argv[1] if len(sys.argv) > 1 else "predict"
    tuner, failed = fatune.Tuner(), 0
    tuner.lib.fa_kernel_workspace.restype = c.c_size_t
    torch.zeros(1, device="cuda")
    for number, (name, case) in enumerate(CASES.items(), 1):
        try:
            kernel = tuner.kernel(problem_of(case), effort)
            errors = replayed(tuner, kernel, Tensors(case))
            good = all(o <= 1 and lse <= 2 ** -8 for o, lse in errors)
            told = "%s: O %s of its bound, LSE %.1e" % (tuner.answer(kernel).trial.config.family.decode(),
                                                       " ".join("%.2f" % o for o, _ in errors),
                                                       max(lse for _, lse in errors))
        except fatune.FaError as error:
            good, told = False, str(error)
        failed += not good
        print("%sok %d - %s # %s" % ("" if good else "not ", number, name, told), flush=True)
    for number, (name, case) in enumerate(SAME_BITS.items(), len(CASES) + 1):
        try:
            differ = bits_that_differ(tuner, case, effort)
            good, told = not differ, "%d batches; sequences that differ: %s" % (len(BATCHES), sorted(differ) or "none")
        except fatune.FaError as error:
            good, told = False, str(error)
        failed += not good
        print("%sok %d - the same bits in any batch: %s # %s" % ("" if good else "not ", number, name, told), flush=True)
    print("1..%d" % (len(CASES) + len(SAME_BITS)))
    tuner.close()
    return 1 if failed else 0


sys.exit(main())
