#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of fa_tune.attention on a real GPU, from the installed wheel: right ones, and PyTorch's own ways to them.
tests/gpu.sh runs it, all or the tests that are named; "ways" names all but the random problems. Prints one line for each test,
and the sum.

FA_TEST_SEED and FA_TEST_PROBLEMS repeat or extend the random problems, and FA_TEST_FAMILY has them all served by that kernel
family, without the others. Fewer than 20 are a short run, for slow tools: large problems are left out."""
import contextlib
import itertools
import json
import math
import os
import pathlib
import random
import shutil
import sys
import tempfile
import unittest.mock
import warnings

os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(prefix="fa-tune-training-"), "store.db")  # mode 0700
os.environ.setdefault("FA_TUNE_SYSTEM", "")
FAMILY = os.environ.get("FA_TEST_FAMILY")
if FAMILY:
    own, templates = (os.path.join(os.path.dirname(path), "kernel_templates") for path in (os.environ["FA_TUNE_STORE"], os.path.dirname(os.path.abspath(__file__))))
    shutil.copytree(os.environ.get("FA_TUNE_TEMPLATES", templates), own)
    for path in pathlib.Path(own, "attn_bwd").glob("attn_bwd_*.json"):   # of one that is missing the built-in one would serve
        path.write_text(path.read_text().replace('"supports": [', '"supports": [' + '{"require": "SM == 0", "why": "another family is proved"}, ' * (path.stem != FAMILY)))
    os.environ["FA_TUNE_TEMPLATES"] = own

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
import torch.utils.checkpoint  # noqa: E402

import fa_tune  # noqa: E402
import tap  # noqa: E402
from fa_tune import _torch_ops  # noqa: E402

PROBLEMS = int(os.environ.get("FA_TEST_PROBLEMS", "60"))
SEED = int(os.environ.get("FA_TEST_SEED", "0"), 0) or random.randrange(1 << 30)
SHAPES = [(1, 1), (7, 130), (128, 128), (129, 129), (200, 333), (333, 200), (257, 64), (512, 512)]


class Case:
    """A random problem: its tensors, some of them strided, and its options. Of the kind of another one it has the source of that
    one's kernels, of which there are cubins then, its heads, and lengths of its own."""

    def __init__(self, dice, kind=None):
        if kind is None:
            self.draw_kind(dice)
        else:
            vars(self).update(vars(kind))
        self.batch = dice.choice([1, 2, 3])
        self.seq_q, self.seq_k = dice.choice(SHAPES[:4] if PROBLEMS < 20 else SHAPES)
        if self.varlen:
            rows = [0, 1, 7, 64, 129] if PROBLEMS < 20 else [0, 0, 1, 7, 64, 129, 200, 333]
            self.lengths = [(dice.choice(rows), dice.choice(rows)) for _ in range(dice.choice([0, 1, 4, 9]))]
            self.lengths.insert(dice.randint(0, len(self.lengths)), (33, 140))   # gradients of nothing are no test
            self.batch, self.seq_q, self.seq_k = 1, *(sum(pair[i] for pair in self.lengths) for i in (0, 1))
        self.seed = dice.randrange(1 << 30)

    def draw_kind(self, dice):
        self.dtype = dice.choice([torch.float16, torch.bfloat16])
        self.heads_kv, group = dice.choice([(1, 1), (2, 1), (1, 4), (2, 3)])
        self.heads = self.heads_kv * group
        self.dim, self.dim_v = dice.choice([(64, 64), (64, 64), (128, 128), (96, 96), (80, 80), (192, 128), (256, 256), (72, 72)])
        self.options = {"causal": dice.choice([False, True, "top-left"]), "layout": dice.choice(["bhsd", "bshd"])}
        if dice.random() < 0.25:
            self.options["window"] = dice.choice([(5, 0), (70, 31), (-1, 9), (40, -1)])
        if dice.random() < 0.25:
            self.options["softcap"] = 20.0
        if dice.random() < 0.25:
            self.options["scale"] = 0.2
        self.has_sinks, self.gap = dice.random() < 0.25, dice.choice([0, 0, 8, 1])
        self.varlen, self.deterministic, self.of_lse = dice.random() < 0.3, dice.random() < 0.4, dice.random() < 0.4
        if self.varlen:
            self.options |= {"layout": "bshd", "causal": bool(self.options["causal"])}   # attention_varlen has one anchor

    def is_of(self, family):
        """Whether the family computes its gradients; None: any does."""
        aligned = self.gap != 1 or max(self.batch, self.heads, self.seq_q, self.seq_k) == 1   # a stride of one element is none
        hopper = torch.cuda.get_device_capability()[0] == 9 and aligned
        wide = max(self.dim, self.dim_v) > 128
        if family == "attn_bwd_short_sm90a":
            tiles = max(self.heads // self.heads_kv * -(-self.seq_q // 64), -(-self.seq_k // 64)) + 1
            return hopper and not (wide or self.varlen or self.has_sinks or "softcap" in self.options and self.dim > 96) and tiles <= (13 if max(self.dim, self.dim_v) <= 64 else 6)
        if family == "attn_bwd_ring_sm90a":
            return hopper and not (wide or self.has_sinks or "softcap" in self.options and self.dim > 96) and max(self.seq_q, self.seq_k) <= 2000 and self.batch * self.heads * max(self.seq_q, 128) * max(self.seq_k, 128) <= 1 << 24
        return family in (None, "attn_bwd_sm80" if not hopper else "attn_bwd_wide_sm90a" if wide else "attn_bwd_sm90a")

    def __repr__(self):
        return repr({name: value for name, value in vars(self).items()})

    def tensor(self, generator, heads, rows, columns):
        shape = (self.batch, rows, heads, columns + self.gap) if self.options["layout"] == "bshd" else (self.batch, heads, rows, columns + self.gap)
        return torch.randn(shape, device="cuda", dtype=self.dtype, generator=generator)[..., :columns]

    def tensors(self):
        """q, k, v, d_o, the gradient of the LSE or None, and the sinks or None."""
        generator = torch.Generator("cuda").manual_seed(self.seed)
        made = [self.tensor(generator, *shape) for shape in (
            (self.heads, self.seq_q, self.dim), (self.heads_kv, self.seq_k, self.dim), (self.heads_kv, self.seq_k, self.dim_v), (self.heads, self.seq_q, self.dim_v))]
        sinks = torch.randn(self.heads, device="cuda", generator=generator) if self.has_sinks else None
        d_lse = torch.randn(self.batch, self.heads, self.seq_q, device="cuda", generator=generator) if self.of_lse else None
        return [*made, d_lse], sinks


class Stored(torch.autograd.Function):
    """A quotient whose gradient is made of its stored value, as every fused backward makes it."""

    @staticmethod
    def forward(ctx, weighted, total, stored):
        ctx.save_for_backward(total, stored)
        return weighted / total

    @staticmethod
    def backward(ctx, d_o):
        total, stored = ctx.saved_tensors
        return d_o / total, -(d_o * stored).sum(-1, keepdim=True) / total, None


def plain(q, k, v, sinks, causal=False, layout="bhsd", window=None, softcap=0.0, scale=None, stored=None):
    """Attention by its definition, in the tensors' own type, and its LSE; a row that sees nothing is 0. `stored`: its gradients use
    this O."""
    if layout == "bshd":
        q, k, v, stored = (x if x is None else x.transpose(1, 2) for x in (q, k, v, stored))
        o, lse = plain(q, k, v, sinks, causal, "bhsd", window, softcap, scale, stored)
        return o.transpose(1, 2), lse
    group = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(group, 1) for x in (k, v))
    scores = q @ k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if softcap:
        scores = torch.tanh(scores / softcap) * softcap
    rows, columns = q.shape[2], k.shape[2]
    ahead = torch.arange(columns, device=q.device)[None, :] - torch.arange(rows, device=q.device)[:, None]
    ahead = ahead - (0 if causal == "top-left" else columns - rows)
    left, right = window or (-1, -1)
    seen = torch.ones_like(ahead, dtype=torch.bool)
    for hidden in ([ahead > 0] if causal else []) + ([ahead < -left] if left >= 0 else []) + ([ahead > right] if right >= 0 else []):
        seen &= ~hidden
    scores = scores.masked_fill(~seen, -1e4 if q.dtype == torch.float16 else -1e30)
    top = scores.amax(-1, keepdim=True).detach()
    if sinks is not None:
        top = torch.maximum(top, sinks.to(top.dtype)[None, :, None, None].detach())
    weights = torch.exp(scores - top) * seen
    total = weights.sum(-1, keepdim=True)
    if sinks is not None:
        total = total + torch.exp(sinks.to(top.dtype)[None, :, None, None] - top)
    total = total.clamp(min=1e-30)
    return (weights / total) @ v if stored is None else Stored.apply(weights @ v, total, stored), (top + total.log())[..., 0]


def gradients(attend, made, sinks, dtype=None):
    """O, and what a loss of O, and of the LSE where it has a gradient, makes of its inputs."""
    leaves = [x.detach().to(dtype or x.dtype).requires_grad_() for x in made[:3]]
    leaves += [] if sinks is None else [sinks.detach().to(dtype or sinks.dtype).requires_grad_()]
    o, lse = attend(*leaves[:3], leaves[3] if sinks is not None else None)
    if made[4] is None:
        return o, torch.autograd.grad(o, leaves, made[3].to(o.dtype))
    return o, torch.autograd.grad((o, lse), leaves, (made[3].to(o.dtype), made[4].to(lse.dtype)))


def plain_of(case, q, k, v, sinks, stored=None):
    """The case by definition; of sequences behind one another (varlen) each for itself."""
    if not case.varlen:
        return plain(q, k, v, sinks, **case.options, stored=stored)
    parts, at_q, at_k, one = [], 0, 0, q.new_zeros(case.heads) if sinks is None else sinks.to(q.dtype)
    for rows, keys in case.lengths:
        own = q[:, at_q:at_q + rows], k[:, at_k:at_k + keys], v[:, at_k:at_k + keys]
        part = None if stored is None else stored[:, at_q:at_q + rows]
        parts.append(plain(*own, sinks, **case.options, stored=part) if rows and keys else
                     (q.new_zeros(1, rows, case.heads, case.dim_v), one[None, :, None].expand(1, case.heads, rows)))
        at_q, at_k = at_q + rows, at_k + keys
    return torch.cat([o for o, _ in parts], 1), torch.cat([lse for _, lse in parts], 2)


def ours_of(case, q, k, v, sinks):
    """The case by fa_tune, and its LSE."""
    more = {} if sinks is None else {"sinks": sinks}
    if not case.varlen:
        return fa_tune.attention(q, k, v, return_lse=True, **case.options, **more)
    starts = [torch.tensor([0, *itertools.accumulate(pair[i] for pair in case.lengths)], dtype=torch.int32, device="cuda") for i in (0, 1)]
    longest = [max(pair[i] for pair in case.lengths) for i in (0, 1)]
    options = {{"scale": "softmax_scale", "window": "window_size"}.get(name, name): value for name, value in case.options.items() if name != "layout"}
    o, lse = fa_tune.attention_varlen(q[0], k[0], v[0], cu_seqlens_q=starts[0], cu_seqlens_k=starts[1], max_seqlen_q=longest[0], max_seqlen_k=longest[1], return_softmax_lse=True, **options, **more)
    return o[None], lse[None]


@contextlib.contextmanager
def deterministic(wanted):
    torch.use_deterministic_algorithms(wanted)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def by_definition(case):
    """In a run for one family O and the LSE come from attention's definition: other kernels take longer to compile than its own."""
    def attend(q, k, v, return_lse, sinks=None, **_):
        o, lse = plain_of(case, *(x.double().reshape(case.batch, *x.shape[-3:]) for x in (q, k, v)), sinks)
        o, lse = o.to(q.dtype).contiguous(), lse.masked_fill(lse < -1e29, -math.inf).float()
        return (o[0], lse[0]) if case.varlen else (o, lse)
    core = unittest.mock.Mock(wraps=_torch_ops._core, attention=attend)
    return unittest.mock.patch.object(_torch_ops, "_core", core) if FAMILY else contextlib.nullcontext()


def check(case):
    made, sinks = case.tensors()

    with deterministic(case.deterministic), by_definition(case):
        o, ours = gradients(lambda *x: ours_of(case, *x), made, sinks)
        if case.deterministic:
            again = gradients(lambda *x: ours_of(case, *x), made, sinks)[1]
            assert all(map(torch.equal, ours, again)), "other bits in a second run; %r" % case
    _, exact = gradients(lambda *x: plain_of(case, *x), made, sinks, torch.float64)
    _, theirs = gradients(lambda q, k, v, s: plain_of(case, q.float(), k.float(), v.float(), s, o.detach().float()), made, sinks)
    for name, mine, wanted, rounded in zip(("dq", "dk", "dv", "d_sinks"), ours, exact, theirs):
        largest = float(wanted.abs().max()) if wanted.numel() else 0.0
        eps = 2.0 ** -10 if case.dtype == torch.float16 else 2.0 ** -7
        allowed = 2 * float((rounded.double() - wanted).abs().max() if wanted.numel() else 0) + 2 * eps * largest + 1e-4
        error = float((mine.double() - wanted).abs().max()) if wanted.numel() else 0.0
        assert error <= allowed, "%s: error %.3g, allowed %.3g, largest %.3g; %r" % (name, error, allowed, largest, case)


# ---- tests ---------------------------------------------------------------------------------------
def random_problems_have_the_gradients_of_float64():
    print("seed %#x" % SEED, flush=True)
    dice, of_a_kind = random.Random(SEED), 4 if FAMILY is None else 6
    for number in range(PROBLEMS):
        kind = None if number % of_a_kind == 0 else case
        case = Case(dice, kind)
        while not case.is_of(FAMILY):
            case = Case(dice, kind)
        with fa_tune.policy(on_miss="raise" if FAMILY in (None, "attn_bwd_short_sm90a") else "nearest"):   # a family's config is tuned once, a second or more each
            check(case)
    if FAMILY is not None:
        used = {answer.family for answer in fa_tune.winners(operation="attn_bwd")}
        assert used == {FAMILY}, "%s computed gradients" % used
        for answer in fa_tune.winners(operation="attn_bwd"):
            print("config: " + json.dumps({"family": answer.family, "tunables": answer.tunables, "smem_bytes": answer.smem_bytes}))
    return "%d of %d problems proved" % (PROBLEMS, PROBLEMS)


def one(seq=256, dim=64, dtype=torch.bfloat16):
    return [torch.randn(2, 4, seq, dim, device="cuda", dtype=dtype).requires_grad_() for _ in range(3)]


def gradients_of_a_call_are_the_same_through_every_way():
    leaves = one()

    def step(q, k, v):
        return fa_tune.attention(q, k, v, causal=True)

    def of(function, *options, **named):
        return torch.autograd.grad(function(*leaves, *options, **named).float().square().sum(), leaves)
    wanted = of(step)
    ways = {"the operator": of(torch.ops.fa_tune.attention, True),
            "torch.compile": of(torch.compile(step, fullgraph=True)),
            "checkpoint": of(lambda q, k, v: torch.utils.checkpoint.checkpoint(step, q, k, v, use_reentrant=False))}
    for name, got in ways.items():
        for mine, right in zip(got, wanted):
            assert torch.equal(mine, right), name
    with torch.no_grad():
        assert not step(*leaves).requires_grad
    for _ in range(2):  # accumulated
        step(*leaves).float().square().sum().backward()
    assert torch.allclose(leaves[0].grad.float(), 2 * wanted[0].float(), rtol=2e-2, atol=1e-3)
    torch.library.opcheck(torch.ops.fa_tune.attention_lse.default, [x.detach() for x in leaves])
    return ", ".join(ways)


def a_loss_of_the_lse_has_the_same_gradients_through_every_way():
    """Beside those of the merged halves of the keys, as ring attention has them: they are those of all keys at once."""
    leaves = one()

    def loss(o, lse):
        return o.float().square().sum() + (lse.square() + lse).sum()

    def step(q, k, v):
        return loss(*fa_tune.attention(q, k, v, causal=True, return_lse=True))

    def merged(q, k, v):
        (o_1, lse_1), (o_2, lse_2) = (fa_tune.attention(q, k[:, :, i::2], v[:, :, i::2], return_lse=True) for i in (0, 1))
        lse = torch.logaddexp(lse_1, lse_2)
        o = o_1.float() * (lse_1 - lse).exp()[..., None] + o_2.float() * (lse_2 - lse).exp()[..., None]
        return loss(o, lse)
    wanted = torch.autograd.grad(step(*leaves), leaves)
    ways = {"the operator": lambda *x: loss(*torch.ops.fa_tune.attention_lse(*x, True)), "torch.compile": torch.compile(step, fullgraph=True),
            "checkpoint": lambda *x: torch.utils.checkpoint.checkpoint(step, *x, use_reentrant=False)}
    for name, way in ways.items():
        for mine, right in zip(torch.autograd.grad(way(*leaves), leaves), wanted):
            assert torch.allclose(mine.float(), right.float(), rtol=2e-2, atol=1e-2 * float(right.abs().max())), name
    exact = [x.detach().double().requires_grad_() for x in leaves]
    for attend, causal in ((step, True), (merged, False)):
        right = torch.autograd.grad(loss(*plain(*exact, None, causal)), exact)
        for mine, of_exact in zip(torch.autograd.grad(attend(*leaves), leaves), right):
            assert float((mine.double() - of_exact).abs().max()) <= 2e-2 * float(of_exact.abs().max()), (attend, causal)
    return ", ".join(ways) + ", merged halves"


def graphed_callables_and_streams():
    class Layer(torch.nn.Module):
        def forward(self, q, k, v):
            return fa_tune.attention(q, k, v, causal=True)
    leaves = one()
    d_o = torch.randn_like(leaves[0])
    wanted = torch.autograd.grad(Layer()(*leaves), leaves, d_o)
    graphed = torch.cuda.make_graphed_callables(Layer(), tuple(x.detach().clone().requires_grad_() for x in leaves))
    for _ in range(3):
        for mine, right in zip(torch.autograd.grad(graphed(*leaves), leaves, d_o), wanted):
            assert torch.equal(mine, right)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for mine, right in zip(torch.autograd.grad(Layer()(*leaves), leaves, d_o), wanted):
            assert torch.equal(mine, right)
    return "make_graphed_callables, a second stream"


def deterministic_gradients_have_the_same_bits():
    leaves = one(seq=1000, dim=128)
    d_o = torch.randn_like(leaves[0])
    with deterministic(True):
        first = torch.autograd.grad(fa_tune.attention(*leaves), leaves, d_o)
        for _ in range(50):
            for mine, right in zip(torch.autograd.grad(fa_tune.attention(*leaves), leaves, d_o), first):
                assert torch.equal(mine, right)
    return "51 runs"


def compiled_and_checkpointed(step):
    return (torch.compile(step, fullgraph=True),
            lambda *leaves: torch.utils.checkpoint.checkpoint(step, *leaves, use_reentrant=False))


def gradients_of_sequences_behind_one_another_are_those_of_each_alone():
    dice = random.Random(SEED)
    for number in range(8):
        lengths = [(dice.choice([0, 1, 7, 64, 130, 300]), dice.choice([0, 1, 50, 64, 200])) for _ in range(dice.choice([1, 3, 6]))]
        lengths.append((65, 129))
        heads, heads_kv, dim = dice.choice([(2, 2, 64), (4, 1, 128), (6, 2, 80)])
        causal, dtype = dice.choice([False, True]), dice.choice([torch.float16, torch.bfloat16])
        total_q, total_k = (sum(pair[i] for pair in lengths) for i in (0, 1))
        q, d_o = (torch.randn(total_q, heads, dim, device="cuda", dtype=dtype) for _ in range(2))
        k, v = (torch.randn(total_k, heads_kv, dim, device="cuda", dtype=dtype) for _ in range(2))
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        starts = [torch.tensor([sum(pair[i] for pair in lengths[:n]) for n in range(len(lengths) + 1)], dtype=torch.int32, device="cuda")
                  for i in (0, 1)]
        most = [max(pair[i] for pair in lengths) for i in (0, 1)]

        def step(q, k, v, causal=causal, starts=starts, most=most):
            return fa_tune.attention_varlen(q, k, v, causal=causal, cu_seqlens_q=starts[0], cu_seqlens_k=starts[1],
                                            max_seqlen_q=most[0], max_seqlen_k=most[1])
        made = torch.autograd.grad(step(*leaves), leaves, d_o)
        for function in compiled_and_checkpointed(step) if number == 0 else ():
            for mine, right in zip(torch.autograd.grad(function(*leaves), leaves, d_o), made):
                assert torch.allclose(mine.float(), right.float(), rtol=2e-2, atol=1e-2 * float(right.abs().max()))  # dQ sums in any order
        if number == 0:
            wide = [x.detach().float().requires_grad_() for x in leaves]
            with torch.autocast("cuda", dtype):
                assert step(*wide).dtype == dtype
                cast = torch.autograd.grad(step(*wide), wide, d_o)
            assert all(x.dtype == torch.float32 and torch.allclose(x, y.float(), rtol=2e-2, atol=1e-2 * float(y.abs().max()))
                       for x, y in zip(cast, made))
        at_q = at_k = 0
        for rows, keys in lengths:
            parts = [x.detach().double().requires_grad_() for x in (q[at_q:at_q + rows], k[at_k:at_k + keys], v[at_k:at_k + keys])]
            if rows and keys:
                wanted = torch.autograd.grad(plain(*(x[None] for x in parts), None, causal, "bshd")[0][0], parts,
                                             d_o[at_q:at_q + rows].double())
            else:
                wanted = [torch.zeros_like(x) for x in parts]
            for got, right in zip((made[0][at_q:at_q + rows], made[1][at_k:at_k + keys], made[2][at_k:at_k + keys]), wanted):
                if right.numel():
                    error, largest = float((got.double() - right).abs().max()), float(right.abs().max())
                    assert error <= (2.0 ** -8 if dtype == torch.float16 else 2.0 ** -5) * largest + 1e-3, (lengths, error, largest)
            at_q, at_k = at_q + rows, at_k + keys
    return "8 batches; under torch.compile, in a checkpoint, autocast"


def close_to_float64(attend, of, d_o=None, causal=False):
    """Gradients by attend(), near those of attention's definition."""
    d_o = torch.randn_like(of[0]) if d_o is None else d_o
    mine = torch.autograd.grad(attend(*of), of, d_o)
    exact = [x.detach().double().requires_grad_() for x in of]
    right = torch.autograd.grad(plain(*exact, None, causal)[0], exact, d_o.double())
    for name, x, y in zip("qkv", mine, right):
        error, largest = float((x - y).abs().max()), float(y.abs().max())
        assert error <= 0.02 * largest + 1e-3, "d%s: %g of %g" % (name, error, largest)
    return mine


def gradients_of_sums_and_of_nothing():
    def plainly(q, k, v):
        return fa_tune.attention(q, k, v)
    leaves = one()
    for shape in ((2, 4, 1, 64), (1, 1, 1, 64), (1, 4, 256, 1)):  # as sums over some dimensions have them
        close_to_float64(plainly, leaves, torch.randn(shape, device="cuda", dtype=torch.bfloat16).expand(2, 4, 256, 64))
    of_one = [x.detach()[:1, :1].clone().requires_grad_() for x in leaves]
    close_to_float64(plainly, of_one, torch.randn(1, 1, 1, 64, device="cuda", dtype=torch.bfloat16).expand(1, 1, 256, 64))
    fa_tune.attention(*leaves).sum().backward()
    turned = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in leaves]
    for x, gradient in zip(turned, close_to_float64(plainly, turned)):
        assert gradient.stride() == x.stride(), gradient.stride()
    for batch, rows, keys in ((0, 64, 64), (2, 0, 64), (2, 64, 0)):
        q, k, v = (torch.randn(batch, 4, n, 64, device="cuda", dtype=torch.bfloat16).requires_grad_() for n in (rows, keys, keys))
        for gradient in torch.autograd.grad(fa_tune.attention(q, k, v).sum(), (q, k, v)):
            assert not gradient.any()
    return "expanded gradients, strides, nothing"


def autocast_casts_as_for_sdpa():
    leaves = [x.detach().float().requires_grad_() for x in one()]
    leaves[2] = leaves[2].detach().bfloat16().requires_grad_()
    for kind in (torch.bfloat16, torch.float16):
        with torch.autocast("cuda", kind):
            o = fa_tune.attention(*leaves)
            assert o.dtype == kind
            got = torch.autograd.grad(o.float().square().sum(), leaves)
            compiled = torch.autograd.grad(torch.compile(fa_tune.attention, fullgraph=True)(*leaves).float().square().sum(), leaves)
        right = torch.autograd.grad(fa_tune.attention(*(x.to(kind) for x in leaves)).float().square().sum(), leaves)
        for x, y, z in zip(got, right, compiled):
            for other in (y, z):  # sums of dQ come in any order
                assert torch.allclose(x.float(), other.float(), rtol=2e-2, atol=1e-2 * float(x.abs().max())), kind
    try:
        fa_tune.attention(*leaves)
    except fa_tune.DtypeError:
        return "to bf16 and fp16, eager and compiled"
    raise AssertionError("autocast was off")


def what_is_not_tuned_is_trained_by_sdpa_where_that_is_wanted():
    leaves = one(seq=320)
    with fa_tune.policy(effort="cached", on_miss="sdpa"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close_to_float64(lambda q, k, v: fa_tune.attention(q, k, v, causal=True), leaves, causal=True)
        close_to_float64(torch.compile(lambda q, k, v: fa_tune.attention(q, k, v), fullgraph=True), leaves)
    with fa_tune.policy(effort="cached"):
        try:
            fa_tune.attention(*leaves)
        except fa_tune.NotTuned:
            return "eager and compiled"
    raise AssertionError("there was a kernel")


def sdpa_trains_within_the_drop_in():
    calls, passes, by_ours = [0], [0], _torch_ops.gradients

    def counted(*tensors, **words):
        passes[0] += 1
        return by_ours(*tensors, **words)
    _torch_ops.gradients = counted

    def within(*of, **options):
        with fa_tune.sdpa(), fa_tune.recording() as met:
            o = F.scaled_dot_product_attention(*of, **options)
        calls[0] += len(met)
        return o
    for grouped in (False, True):
        q, k, v = one()
        if grouped:
            k, v = (x.detach()[:, :2].clone().requires_grad_() for x in (k, v))
        turned = q.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_()
        for leaves in ((q, k, v), (turned, k, v)):
            before, d_o = passes[0], torch.randn_like(leaves[0])
            wanted = torch.autograd.grad(F.scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=grouped), leaves, d_o)
            with warnings.catch_warnings(), fa_tune.sdpa():
                warnings.filterwarnings("error", message=".*PyTorch's own")
                for function in (within, torch.compile(lambda q, k, v: F.scaled_dot_product_attention(
                        q, k, v, is_causal=True, enable_gqa=grouped), fullgraph=True)):
                    options = {"is_causal": True, "enable_gqa": grouped} if function is within else {}
                    made = torch.autograd.grad(function(*leaves, **options), leaves, d_o)
                    for x, y in zip(made, wanted):
                        assert float((x - y).abs().max()) <= 0.02 * float(y.abs().max()) + 1e-5
                        assert x.stride() == y.stride(), (x.stride(), y.stride())
            assert passes[0] == before + 2, "gradients were PyTorch's own"
    assert calls[0] == 4, calls
    with warnings.catch_warnings(record=True) as told, fa_tune.sdpa():
        warnings.simplefilter("always")
        for _ in range(2):
            o = F.scaled_dot_product_attention(q, k, v, dropout_p=0.5, enable_gqa=True)
            assert all(torch.isfinite(x).all() for x in torch.autograd.grad(o, (q, k, v), d_o))
    said = [str(each.message) for each in told if "PyTorch's own" in str(each.message)]
    assert len(said) <= 2 and any("the gradients of a call" in each for each in said), said
    return "plain, grouped, compiled; dropout stays PyTorch's"


def memory_kept_for_backward_is_that_of_sdpa():
    leaves, kept = one(seq=4096), []
    for attend in (fa_tune.attention, F.scaled_dot_product_attention):
        attend(*leaves)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        o = attend(*leaves)
        kept.append(torch.cuda.memory_allocated() - before)
        del o
    assert kept[0] <= kept[1], kept
    return "%d bytes, by SDPA %d" % tuple(kept)


WAYS = [gradients_of_a_call_are_the_same_through_every_way, a_loss_of_the_lse_has_the_same_gradients_through_every_way,
        graphed_callables_and_streams, deterministic_gradients_have_the_same_bits,
        gradients_of_sequences_behind_one_another_are_those_of_each_alone, gradients_of_sums_and_of_nothing,
        autocast_casts_as_for_sdpa, what_is_not_tuned_is_trained_by_sdpa_where_that_is_wanted, sdpa_trains_within_the_drop_in, memory_kept_for_backward_is_that_of_sdpa]
TESTS = [random_problems_have_the_gradients_of_float64, *WAYS]


def main():
    assert math.isfinite(torch.zeros(1, device="cuda").item())
    fa_tune.policy(effort="predict")
    tap.main([test for test in TESTS if len(sys.argv) < 2 or test.__name__ in sys.argv or "ways" in sys.argv and test in WAYS])


if __name__ == "__main__":
    main()
