#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention beside other libraries' kernels in one process: memory that they wrote and that our calls get next changes nothing.

From the installed wheel on a real GPU; tests/gpu.sh neighbours runs it. Between any two calls PyTorch's scalars, reductions
and copies, cuDNN's attention and, where it can be imported, FlashAttention-3's allocate small blocks, write them and let
them go. Each output is poisoned before the call and looked at whole, gradients too, and nothing is allocated between the call and the
next one. The last lines are a table and the sum.
"""
import argparse
import ctypes as c
import os
import random
import sys
import tempfile
import threading
import time

FOLDER = tempfile.mkdtemp(prefix="fa-tune-neighbours-")  # mode 0700
os.environ["FA_TUNE_STORE"] = os.path.join(FOLDER, "store.db")
os.environ.setdefault("FA_TUNE_SYSTEM", "")

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

import fa_tune  # noqa: E402
import gpu_calls  # noqa: E402

try:
    from vllm_flash_attn.flash_attn_interface import flash_attn_varlen_func as fa3  # as vLLM ships it
except ImportError:
    fa3 = None

NAN = float("nan")
DRIVER = c.CDLL("libcuda.so.1")
parser = argparse.ArgumentParser()
parser.add_argument("--problems", type=int, default=300)
parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
parser.add_argument("--seconds", type=float, default=1e9, help="no further random problem is begun after so many")
options = parser.parse_args()


def lengths_tensor(lengths):
    return torch.tensor(lengths, device="cuda", dtype=torch.int32)


def starts(lengths):
    return lengths_tensor([sum(lengths[:i]) for i in range(len(lengths) + 1)])


class Case:
    """One call: call(out) writes `out`, of which `right` is the whole in fp32."""

    def __init__(self, name, seed, q_lengths, k_lengths, heads=(8, 2), dim=64, dtype=torch.bfloat16, page=0, causal=True,
                 window=None, sinks=False, softcap=0.0, how="varlen", unaligned=False):
        torch.manual_seed(seed)
        chance = random.Random(seed)
        self.name, self.heads, self.dim, self.causal = name, heads, dim, causal
        self.window, self.softcap, self.q_lengths, self.k_lengths, self.how = window, softcap, q_lengths, k_lengths, how
        total_q = sum(q_lengths)
        self.q = self.made((total_q, heads[0], dim), dtype, unaligned)
        self.sinks = torch.randn(heads[0], device="cuda") if sinks else None
        self.keys = [[self.made((n, heads[1], dim), dtype, False) for n in k_lengths] for _ in "kv"]
        self.page, self.table = page, None
        if page:
            used = [-(-n // page) for n in k_lengths]
            order = list(range(sum(used) + 3))
            chance.shuffle(order)
            pools = [torch.full((len(order), page, heads[1], dim), NAN, device="cuda", dtype=dtype) for _ in "kv"]
            table = torch.full((len(k_lengths), max(used + [1])), -1, dtype=torch.int32)
            for b, n in enumerate(k_lengths):
                for j in range(used[b]):
                    table[b, j] = at = order.pop()
                    for pool, keys in zip(pools, self.keys):
                        rows = keys[b][j * page:(j + 1) * page]
                        pool[at, :len(rows)] = rows
            self.k, self.v = pools
            self.table = table.cuda()
        else:
            self.k, self.v = (torch.cat(keys) for keys in self.keys)
            if unaligned:
                self.k, self.v = (self.shifted(x) for x in (self.k, self.v))
        self.used, self.cu_q, self.cu_k = lengths_tensor(k_lengths), starts(q_lengths), starts(k_lengths)
        if how == "dense":  # all lengths are one
            self.q, self.k, self.v = (x.view(len(q_lengths), -1, *x.shape[1:]) for x in (self.q, self.k, self.v))
        if how == "decode":
            self.q = self.q.view(len(q_lengths), q_lengths[0], heads[0], dim)
        self.right = self.expected()
        self.out = torch.empty_like(self.q)

    def made(self, shape, dtype, unaligned):
        x = torch.randn(shape, device="cuda", dtype=dtype)
        return self.shifted(x) if unaligned else x

    @staticmethod
    def shifted(x):
        """The same values at an odd address."""
        flat = torch.empty(x.numel() + 1, device="cuda", dtype=x.dtype)
        flat[1:] = x.flatten()
        return flat[1:].view(x.shape)

    def call(self, out, **more):
        words = dict(causal=self.causal, out=out, softcap=self.softcap, **more)
        if self.sinks is not None:
            words["s_aux"] = self.sinks
        if self.how == "dense":
            words.pop("s_aux", None)
            return fa_tune.attention(self.q, self.k, self.v, layout="bshd", window=self.window,
                                     sinks=self.sinks, **words)
        words["window_size"] = self.window
        if self.how == "decode":
            cache = [x if self.page else x.view(len(self.k_lengths), -1, *x.shape[1:]) for x in (self.k, self.v)]
            return fa_tune.attention_decode(self.q, *cache, cache_seqlens=self.used, block_table=self.table,
                                            max_seqlen_k=max(self.k_lengths), **words)
        lengths = dict(seqused_k=self.used, block_table=self.table) if self.page else dict(cu_seqlens_k=self.cu_k)
        return fa_tune.attention_varlen(self.q, self.k, self.v, max_seqlen_q=max(self.q_lengths), cu_seqlens_q=self.cu_q,
                                        max_seqlen_k=max(self.k_lengths), **lengths, **words)

    def expected(self):
        case = {"causal": self.causal, "window": self.window, "softcap": self.softcap, **dict.fromkeys(("scale", "score", "mask", "dropout"))}
        right, at = [], 0
        for b, (n, k, v) in enumerate(zip(self.q_lengths, *self.keys)):
            q = self.q.reshape(-1, *self.q.shape[-2:])[at:at + n]
            right.append(gpu_calls.attend(case, b, *(x.float().transpose(0, 1) for x in (q, k, v)), self.sinks, {}, None)[0].transpose(0, 1))
            at += n
        return torch.cat(right).view(self.q.shape)

    def wrong_rows(self, out):
        """Rows whose values are not right; NaN is not."""
        bound = 2 ** -7 * (0.5 + self.right.abs().max())
        good = ((out.float() - self.right).abs() <= bound).all(-1)
        return int((~good).sum())


class Gradients:
    """A forward and a backward pass, called as a Case is: `out` takes dQ, dK and dV, one behind the other. The memory that the
    backward pass gets for them was poisoned."""

    def __init__(self, name, seed, q_lengths, k_lengths, heads=(8, 2), dim=64, dtype=torch.bfloat16, dense=False):
        torch.manual_seed(seed)
        self.name, self.dense, self.lengths = name, dense, (q_lengths, k_lengths)
        shapes = ((sum(q_lengths), heads[0]), (sum(k_lengths), heads[1]), (sum(k_lengths), heads[1]), (sum(q_lengths), heads[0]))
        made = [torch.randn(*shape, dim, device="cuda", dtype=dtype) for shape in shapes]
        self.right = [x.float() for x in self.expected(*made)]
        if dense:  # all lengths are one
            made = [x.view(len(q_lengths), -1, *x.shape[1:]) for x in made]
        self.leaves, self.d_o = [x.requires_grad_() for x in made[:3]], made[3]
        self.starts = starts(q_lengths), starts(k_lengths)
        self.out = torch.empty(sum(x.numel() for x in made[:3]), device="cuda", dtype=dtype)

    def expected(self, *made):
        """By PyTorch's own formula, each sequence for itself."""
        each, at = [], [0, 0]
        for nq, nk in zip(*self.lengths):
            q, k, v, d_o = (x[first:first + n].float().transpose(0, 1)[None] for x, first, n in zip(
                made, (at[0], at[1], at[1], at[0]), (nq, nk, nk, nq)))
            at = [at[0] + nq, at[1] + nk]
            seen = torch.ones(nq, nk, device="cuda", dtype=torch.bool).tril(nk - nq)
            with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
                leaves = [x.requires_grad_() for x in (q, k, v)]
                o = F.scaled_dot_product_attention(*leaves, attn_mask=seen, enable_gqa=True)
                each.append([x[0].transpose(0, 1) for x in torch.autograd.grad(o, leaves, d_o)])
        return [torch.cat(parts) for parts in zip(*each)]

    def call(self, out, stream=None):
        if stream is not None:
            with torch.cuda.stream(torch.cuda.ExternalStream(stream)):
                return self.call(out)
        with torch.enable_grad():
            if self.dense:
                o = fa_tune.attention(*self.leaves, causal=True, layout="bshd")
            else:
                most = {"max_seqlen_q": max(self.lengths[0]), "max_seqlen_k": max(self.lengths[1])}
                o = fa_tune.attention_varlen(*self.leaves, causal=True, cu_seqlens_q=self.starts[0], cu_seqlens_k=self.starts[1], **most)
        poison = [torch.full_like(x, NAN) for x in self.leaves]
        del poison
        made = torch.autograd.grad(o, self.leaves, self.d_o)
        return torch.cat([x.flatten() for x in made], out=out)

    def wrong_rows(self, out):
        """Rows of the gradients that are not right; NaN is not."""
        wrong, at = 0, 0
        for right in self.right:
            got = out[at:at + right.numel()].view(right.shape)
            at += right.numel()
            wrong += int((~((got.float() - right).abs() <= 0.02 * right.abs().max() + 1e-3).all(-1)).sum())
        return wrong


# ---- neighbours ----------------------------------------------------------------------------------
class Neighbours:
    """What other libraries do between our calls: small blocks that are allocated, written and let go."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.x = torch.randn(64, 512, device="cuda")
        self.qkv = [torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        self.packed = [torch.randn(256, heads, 64, device="cuda", dtype=torch.bfloat16) for heads in (4, 2, 2)]
        self.cu = lengths_tensor([0, 100, 256])
        self.actions = [self.scalar, self.number, self.bits, self.copy, self.cudnn, self.reduction]
        self.actions += [self.flash3] if fa3 is not None else []

    def scalar(self):
        self.x.abs().max()

    def number(self):
        torch.full((1,), self.chance.choice([0, 1, 5000, -1, 0x5e1fc0de, 1 << 30]), dtype=torch.int32, device="cuda")

    def bits(self):
        """1 to 8 bytes at some place of a block as small as counters are, the rest as it was found."""
        width, size = self.chance.choice([1, 2, 4, 8]), self.chance.choice([8, 256, 512, 2048, 65536, 1 << 20])
        block = torch.empty(size, dtype=torch.uint8, device="cuda")
        at = self.chance.randrange(0, size, width) if self.chance.random() < 0.5 else 0
        block[at:at + width].fill_(self.chance.randrange(256))

    def copy(self):
        torch.tensor([self.chance.random()], device="cuda").clone()

    def reduction(self):
        self.x.sum(1).argmax()

    def cudnn(self):
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            F.scaled_dot_product_attention(*self.qkv, is_causal=True)

    def flash3(self):
        q, k, v = self.packed
        fa3(q, k, v, max_seqlen_q=156, cu_seqlens_q=self.cu, max_seqlen_k=156, cu_seqlens_k=self.cu, causal=True, fa_version=3)

    def act(self):
        for _ in range(self.chance.randint(1, 3)):
            self.chance.choice(self.actions)()


# ---- cases ----------------------------------------------------------------------------------------
def standing_cases():
    """Every family that a GPU of this kind is offered, as its name in the table says."""
    many = [700, 33, 1, 257, 512, 64]
    return [
        Case("dense", 1, [384] * 3, [384] * 3, how="dense"),
        Case("dense, unaligned", 2, [200] * 2, [200] * 2, how="dense", unaligned=True),
        Case("varlen", 3, many, many, heads=(8, 2), dim=128),
        Case("varlen, window", 4, many, many, window=(63, 0)),
        Case("varlen, softcap and sinks", 5, many, many, softcap=20.0, sinks=True),
        Case("varlen, unaligned", 6, many, many, unaligned=True),
        Case("pages of 64", 7, many, [n + 40 for n in many], page=64),
        Case("pages of 24", 8, many, [n + 40 for n in many], page=24),
        Case("decode", 9, [1] * 4, [8192] * 4, heads=(32, 8), dim=128, how="decode"),
        Case("decode, pages of 16", 10, [1] * 5, [3000, 1, 517, 4096, 1024], heads=(16, 2), dim=64, page=16, how="decode"),
        Case("decode, few queries", 11, [4] * 3, [2048] * 3, heads=(16, 4), dim=128, how="decode"),
    ]


def random_kind(chance):
    """What a kernel is compiled for: some kinds serve all random problems."""
    kind = chance.choice(["varlen", "paged", "decode"])
    page = chance.choice([16, 64, 24]) if kind == "paged" else chance.choice([0, 16, 64]) if kind == "decode" else 0
    return dict(kind=kind, page=page, dim=chance.choice([64, 64, 128, 96, 32]), window=chance.random() < 0.3,
                dtype=chance.choice([torch.float16, torch.bfloat16]), sinks=chance.random() < 0.2,
                softcap=20.0 if chance.random() < 0.2 else 0.0)


def random_case(number, chance, kinds):
    batch, is_of = chance.randint(1, 6), chance.choice(kinds)
    kv, kind, page = chance.choice([1, 2, 4]), is_of["kind"], is_of["page"]
    heads = (kv * chance.choice([1, 2, 4, 8]), kv)
    longest = chance.choice([90, 400, 1100])
    if kind == "decode":
        q = [chance.choice([1, 1, 1, 2, 4])] * batch
        longest = chance.choice([700, 3000, 9000])
        k = [longest] * batch if page == 0 else [longest] + [chance.randint(max(q), longest) for _ in range(batch - 1)]
    else:
        q = [chance.randint(1, longest) for _ in range(batch)]
        k = [n + chance.choice([0, 0, chance.randint(0, 300)]) for n in q]
    return Case("%d %s" % (number, kind), options.seed + number, q, k, heads=heads, dim=is_of["dim"], page=page,
                dtype=is_of["dtype"], window=(chance.choice([0, 100, 1000]), 0) if is_of["window"] else None,
                sinks=is_of["sinks"], softcap=is_of["softcap"], how="decode" if kind == "decode" else "varlen")


# ---- tests ----------------------------------------------------------------------------------------
def eager(cases, near, rounds=40):
    """Poisoned, called and looked at; neighbours act between the last call and the next."""
    failures = []
    for case in cases:
        case.call(case.out)
    for turn in range(rounds):
        for case in near.chance.sample(cases, len(cases)):
            case.out.fill_(NAN)
            case.call(case.out)
            near.act()
            case.out.fill_(NAN)
            case.call(case.out)
            wrong = case.wrong_rows(case.out)
            if wrong:
                failures.append("%s: %d rows in turn %d" % (case.name, wrong, turn))
    return failures, 2 * rounds * len(cases)


def reproductions(near, times=100):
    """Outputs that stayed unwritten when a counter lay in recycled memory."""
    failures, lengths = [], [4096] * 4
    case = Case("four sequences of 4,096", 21, lengths, lengths, heads=(32, 8), dim=128)
    longer = Case("windows at 8 x 4,096", 22, [4096] * 8, [4096] * 8, heads=(16, 4), dim=128, window=(1023, 0))
    decode = Case("decode of 4 x 8,192", 23, [1] * 4, [8192] * 4, heads=(32, 8), dim=128, how="decode")

    def scalar(case):
        case.out.abs().max()

    def number(_):
        torch.full((1,), 5000, dtype=torch.int32, device="cuda")

    def half(_):
        block = torch.empty(512, dtype=torch.uint8, device="cuda")
        block[:2].view(torch.int16).fill_(0x4040)

    def flash3(_):
        if fa3 is not None:
            near.flash3()
    for case in (case, longer, decode):
        for action in (scalar, number, half, flash3):
            worst = 0
            for _ in range(times // (4 if case is longer else 1)):
                case.call(case.out)
                action(case)
                case.out.fill_(NAN)
                case.call(case.out)
                worst = max(worst, case.wrong_rows(case.out))
            if worst:
                failures.append("%s after %s: %d rows" % (case.name, action.__name__, worst))
    return failures, 2 * 3 * 4 * times


def two_streams(cases, near, rounds=60):
    """Calls that may overlap: on the current stream of two threads, and with stream=."""
    failures, calls = [], 0
    for named in (False, True):
        outs = [[torch.empty_like(case.out) for _ in range(2)] for case in cases]
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        for turn in range(rounds):
            order = near.chance.sample(range(len(cases)), len(cases))
            for pair in outs:
                for out in pair:
                    out.fill_(NAN)
            torch.cuda.synchronize()

            def work(which, order=order, outs=outs, streams=streams, named=named):
                for i in order if which == 0 else order[::-1]:
                    if named:
                        cases[i].call(outs[i][which], stream=streams[which].cuda_stream)
                    else:
                        with torch.cuda.stream(streams[which]):
                            cases[i].call(outs[i][which])
            if turn % 2:
                threads = [threading.Thread(target=work, args=(which,)) for which in range(2)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            else:
                work(0)
                work(1)
            torch.cuda.synchronize()
            for case, pair in zip(cases, outs):
                for which, out in enumerate(pair):
                    wrong = case.wrong_rows(out)
                    calls += 1
                    if wrong:
                        failures.append("%s on stream %d%s: %d rows in turn %d" % (
                            case.name, which, " by stream=" if named else "", wrong, turn))
            near.act()
    return failures, calls


def graphs(cases, near, rounds=60):
    """Graphs that share one pool, replayed in any order, with eager calls on another stream beside each."""
    failures, pool, recorded = [], torch.cuda.graph_pool_handle(), []
    for case in cases:
        case.call(case.out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            case.call(case.out)
            case.call(case.out)
        recorded.append(graph)
    side, beside = torch.cuda.Stream(), [torch.empty_like(case.out) for case in cases]
    calls = 0
    for turn in range(rounds):
        for i in near.chance.sample(range(len(cases)), len(cases)):
            other = near.chance.randrange(len(cases))
            cases[i].out.fill_(NAN)
            beside[other].fill_(NAN)
            torch.cuda.synchronize()
            recorded[i].replay()
            with torch.cuda.stream(side):
                cases[other].call(beside[other])
            torch.cuda.synchronize()
            calls += 2
            for case, out, how in ((cases[i], cases[i].out, "replayed"), (cases[other], beside[other], "beside a replay")):
                wrong = case.wrong_rows(out)
                if wrong:
                    failures.append("%s %s: %d rows in turn %d" % (case.name, how, wrong, turn))
            near.act()
    for _ in range(20):  # a graph that is destroyed leaves what it had to the next
        graph = torch.cuda.CUDAGraph()
        case = near.chance.choice(cases)
        with torch.cuda.graph(graph):
            case.call(case.out)
        case.out.fill_(NAN)
        graph.replay()
        calls += 1
        wrong = case.wrong_rows(case.out)
        if wrong:
            failures.append("%s in a graph of its own: %d rows" % (case.name, wrong))
        del graph
    return failures, calls


# ---- streams and executables that the driver makes -------------------------------------------------
def driver(name, *arguments):
    """A call of the CUDA driver; numbers are handles."""
    result = getattr(DRIVER, name)(*[c.c_void_p(x) if isinstance(x, int) else x for x in arguments])
    assert result == 0, "%s gave %d" % (name, result)


def gone_streams(cases, near, count=2000):
    """A stream for each call, destroyed while the call may still run."""
    outs = [[torch.empty_like(case.out) for _ in range(8)] for case in cases]
    failures, calls = [], 0
    for case in cases:
        case.call(case.out)
    torch.cuda.synchronize()
    free = []
    while calls < count:
        for case, mine in zip(cases, outs):
            for out in mine:
                out.fill_(NAN)
        torch.cuda.synchronize()
        for turn in range(8):
            for case, mine in zip(cases, outs):
                stream = c.c_void_p()
                driver("cuStreamCreate", c.byref(stream), c.c_uint(1))
                case.call(mine[turn], stream=stream.value)
                driver("cuStreamDestroy_v2", stream)
                calls += 1
        torch.cuda.synchronize()
        free.append(torch.cuda.mem_get_info()[0])
        failures += ["%s on a stream that is gone: %d rows" % (case.name, wrong) for case, mine in zip(cases, outs)
                     for wrong in map(case.wrong_rows, mine) if wrong]
        near.act()
    half = len(free) // 2
    if free[half] - free[-1] > 64 << 20:  # our neighbours' blocks come and go
        failures.append("%d MiB less are free than after half of the streams" % (free[half] - free[-1] >> 20))
    return failures, calls


class Recorded:
    """A graph of 20 calls that write one output, and its executables."""

    def __init__(self, case, executables):
        self.case, self.out, self.executables = case, torch.empty_like(case.out), []
        self.graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(self.graph):
            for _ in range(20):
                case.call(self.out)
        for _ in range(executables):
            made = c.c_void_p()
            driver("cuGraphInstantiateWithFlags", c.byref(made), self.graph.raw_cuda_graph(), c.c_ulonglong(0))
            self.executables.append(made.value)

    def close(self):
        for executable in self.executables:
            driver("cuGraphExecDestroy", executable)
        self.graph.reset()


def at_once(executables, streams):
    """Begins them together, once the host has launched all. Returns whether they ran at the same time."""
    hold, gate, marks = torch.cuda.Stream(), torch.cuda.Event(), []
    torch.cuda.synchronize()
    with torch.cuda.stream(hold):
        torch.cuda._sleep(2_000_000)  # pylint: disable=protected-access
        gate.record()
    for executable, stream in zip(executables, streams):
        marks.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])
        stream.wait_event(gate)
        marks[-1][0].record(stream)
        driver("cuGraphLaunch", executable, stream.cuda_stream)
        marks[-1][1].record(stream)
    torch.cuda.synchronize()
    (begin, end), (other_begin, other_end) = marks
    return begin.elapsed_time(other_end) > 0 and other_begin.elapsed_time(end) > 0


def executables_at_once(near, rounds=200):
    """Graphs of their own at once, and executables of one graph in turn, are right. Executables of one graph at once are the
    caller's race, told here and not judged; what they leave in the graph's counters reaches no later graph."""
    cases = [Case("decode", 41, [1], [8192], heads=(8, 2), dim=128, how="decode"),
             Case("decode, pages of 16", 42, [1, 1], [3000, 517], heads=(16, 2), dim=64, page=16, how="decode"),
             Case("varlen", 43, [33, 64, 1], [33, 64, 1], heads=(8, 2), dim=128),
             Case("pages of 64", 44, [70, 1], [300, 41], page=64)]
    failures, calls, streams = [], 0, [torch.cuda.Stream(), torch.cuda.Stream()]
    for case in cases:
        case.call(case.out)
        torch.cuda.synchronize()
        one, other = Recorded(case, 2), Recorded(case, 1)
        met, raced, after = 0, 0, 0

        def wrong_in(*recorded, case=case):
            wrong = sum(case.wrong_rows(each.out) for each in recorded)
            for each in recorded:
                each.out.fill_(NAN)
            return wrong

        for turn in range(rounds):
            wrong_in(one, other)
            met += at_once([one.executables[0], other.executables[0]], streams)
            wrong = wrong_in(one, other)
            if wrong:
                failures.append("%s, two graphs at once: %d rows in turn %d" % (case.name, wrong, turn))
            for executable in one.executables:
                driver("cuGraphLaunch", executable, streams[0].cuda_stream)
            torch.cuda.synchronize()
            wrong = wrong_in(one)
            if wrong:
                failures.append("%s, two executables in turn: %d rows in turn %d" % (case.name, wrong, turn))
            calls += 4
            if turn % 8 == 7:
                near.act()
        if met < rounds // 2:
            failures.append("%s: two graphs ran at once in %d of %d turns only" % (case.name, met, rounds))
        for turn in range(rounds):
            at_once(one.executables, streams)
            raced += wrong_in(one) > 0
            driver("cuGraphLaunch", one.executables[0], streams[0].cuda_stream)
            torch.cuda.synchronize()
            after += wrong_in(one) > 0
        print("   %s: two graphs ran at once in %d of %d turns; two executables of one graph at once: wrong in %d turns, and a replay alone "
              "after it in %d" % (case.name, met, rounds, raced, after), flush=True)
        one.close()
        for _ in range(20):  # in the memory that it had
            again = Recorded(case, 1)
            wrong_in(again)
            driver("cuGraphLaunch", again.executables[0], streams[0].cuda_stream)
            torch.cuda.synchronize()
            wrong = wrong_in(again)
            calls += 1
            if wrong:
                failures.append("%s, a graph after one whose executables ran at once: %d rows" % (case.name, wrong))
            again.close()
        other.close()
    return failures, calls


def gradients(near):
    """All of the above of backward passes: by Hopper's family where it is here, and by the one for every GPU."""
    many = [700, 33, 1, 257, 512, 64]
    cases = [Gradients("gradients", 31, [384] * 3, [384] * 3, dense=True),
             Gradients("gradients, heads of 128", 32, [320] * 2, [320] * 2, heads=(4, 4), dim=128, dense=True),
             Gradients("gradients, heads of 192", 33, [200] * 2, [200] * 2, dim=192, dense=True),
             Gradients("gradients, varlen", 34, many, many)]
    told = [test(cases, near, rounds=20) for test in (eager, two_streams, graphs)]
    return [failure for failures, _ in told for failure in failures], sum(calls for _, calls in told)


def random_problems(near):
    chance, failures, begin, number = random.Random(options.seed), [], time.monotonic(), 0
    kinds = [random_kind(chance) for _ in range(30)]
    while number < options.problems and time.monotonic() - begin < options.seconds:
        case = random_case(number, chance, kinds)
        for _ in range(3):
            near.act()
            case.out.fill_(NAN)
            case.call(case.out)
            wrong = case.wrong_rows(case.out)
            if wrong:
                failures.append("%s: %d rows" % (case.name, wrong))
        number += 1
    if number < options.problems:
        print("only %d of %d random problems: out of time" % (number, options.problems))
    return failures, number


def main():
    near, failed, table = Neighbours(options.seed), 0, []
    with fa_tune.policy(effort="predict"), torch.no_grad():
        cases = standing_cases()
        for name, test in (("reproductions", lambda: reproductions(near)), ("eager", lambda: eager(cases, near)),
                           ("two streams", lambda: two_streams(cases, near)), ("graphs", lambda: graphs(cases, near)),
                           ("streams that are gone", lambda: gone_streams(cases, near)),
                           ("executables at once", lambda: executables_at_once(near)),
                           ("gradients", lambda: gradients(near)), ("random problems", lambda: random_problems(near))):
            begin = time.monotonic()
            failures, calls = test()
            failed += bool(failures)
            for failure in failures[:8]:
                print("   " + failure)
            table.append("%s neighbours, %s: %d calls or problems, %d wrong (%.1f s)" % (
                "not ok" if failures else "ok", name, calls, len(failures), time.monotonic() - begin))
            print(table[-1], flush=True)
    print("== table")
    print("\n".join(table))
    print("FlashAttention-3 beside: %s; seed %d" % ("yes" if fa3 is not None else "no", options.seed))
    print("%d passed, %d failed" % (len(table) - failed, failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
