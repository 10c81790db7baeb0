#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of attention on the fake driver, which computes attn_bwd's launches, against their definition in double precision;
and what the operators of torch.ops.fa_tune tell a compiler. As much of PyTorch as they use is a stand-in, so that a change
of PyTorch's interfaces is not seen: tests/gpu_training.py has the real one."""
import contextlib
import importlib
import json
import math
import os
import types
from unittest import mock

import tap
from attention_case import DIM, Inputs, captured, close, dropout, logged, place, producer, refused
from place import SOURCE
from producer import Exchanged
from serving_case import Ragged, floats, ints
import fa_tune

place.one_backward_config()


# ---- as much of PyTorch as is used -----------------------------------------------------------------
class Device(tuple):
    index = 0


class Tensor(Exchanged):
    __module__ = "torch"
    requires_grad, grad_mode = False, True
    spare = []   # what is allocated next

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.copied, self.device = 0, Device(self.device)

    def view(self, shape, strides):
        return Tensor(shape, dtype=self.dtype, memory=self.memory, strides=strides)

    def stride(self, i):
        return self.strides[i]

    def dim(self):
        return len(self.shape)

    def get_device(self):
        return 0

    def elements(self):
        """The numbers, in the order of the dimensions."""
        flat, places = self.flat(), [0]
        for size, step in zip(self.shape, self.strides):
            places = [at + i * step for at in places for i in range(size)]
        return [flat[at] for at in places]

    def flat(self):
        last = sum((size - 1) * step for size, step in zip(self.shape, self.strides))
        return Exchanged((last + 1,), memory=self.memory, dtype=self.dtype).read()

    def contiguous(self):
        self.copied += 1
        return Tensor(self.shape, self.elements(), dtype=self.dtype)

    def sum(self, dims):
        made = Tensor((self.shape[1],), dtype=self.dtype)
        made.summed = dims
        return made

    def zero_(self):
        if math.prod(self.shape):
            self.write([0.0] * math.prod(self.shape))
        return self

    def to(self, dtype):
        return Tensor(self.shape, self.elements(), dtype=dtype)

    def new_empty(self, shape, dtype=None):
        return Tensor((shape,) if isinstance(shape, int) else shape, dtype=dtype or self.dtype)


def below(function, *args):
    """Called as autograd calls it: no gradients are recorded."""
    with mock.patch.object(Tensor, "grad_mode", False):
        return function(*args)


class Applied:
    """autograd.Function's own base; the last call's class and context are kept."""

    @classmethod
    def apply(cls, *args):
        ctx, Applied.marked = types.SimpleNamespace(), []
        ctx.needs_input_grad = tuple(getattr(x, "requires_grad", False) for x in args)
        ctx.save_for_backward = lambda *saved: setattr(ctx, "saved_tensors", saved)
        ctx.mark_non_differentiable = Applied.marked.append
        ctx.set_materialize_grads = lambda _: None
        Applied.last = cls, ctx
        return below(cls.forward, ctx, *args)


class Function(Applied):
    pass


FORWARD_AD = types.SimpleNamespace(_current_level=-1)


def stand_in():
    torch = types.ModuleType("torch")

    def check(holds, say):
        if not holds:
            raise RuntimeError(say())
    torch.Tensor, torch.contiguous_format, torch._check = Tensor, "contiguous", check
    torch.float16, torch.bfloat16, torch.float32, torch.int64 = (producer.FLOAT, 16), (producer.BFLOAT, 16), (producer.FLOAT, 32), (producer.INT, 64)
    torch.is_grad_enabled = lambda: Tensor.grad_mode
    torch.are_deterministic_algorithms_enabled = lambda: torch.deterministic
    torch.deterministic = torch.autocasts = False
    torch.is_autocast_enabled, torch.get_autocast_gpu_dtype = lambda: torch.autocasts, lambda: torch.float16
    torch.empty = lambda shape, dtype, **_: Tensor(shape, dtype=dtype)
    torch.zeros_like = lambda x: Tensor(x.shape, [0.0] * math.prod(x.shape), dtype=x.dtype)
    torch.empty_like = lambda x, memory_format=None: Tensor(
        x.shape, dtype=x.dtype, strides=x.strides if memory_format is None and 0 not in x.strides else None)
    torch.autograd = types.SimpleNamespace(Function=Function, forward_ad=FORWARD_AD)
    torch.ops = types.SimpleNamespace(fa_tune=types.SimpleNamespace())
    torch.cuda = types.SimpleNamespace(get_device_capability=lambda device: (8, 0))
    quick = types.SimpleNamespace(_empty_strided_cuda=lambda size, stride, dtype: Tensor.spare.pop() if Tensor.spare else Tensor(
        size, dtype=dtype, strides=stride))
    torch._C = types.SimpleNamespace(_are_functorch_transforms_active=lambda: False, _len_torch_dispatch_stack=lambda: 0,
                                     _is_fwd_grad_enabled=lambda: Tensor.grad_mode,   # off in a Function's forward(), too
                                     _dynamo=types.SimpleNamespace(guards=quick))
    return torch


@contextlib.contextmanager
def PyTorch():
    """The stand-in is PyTorch, and fa_tune._torch_ops is made for it; as: both."""
    torch = stand_in()
    with tap.modules({"torch": torch, "fa_tune._torch_ops": ..., "fa_tune._dynamo": ...}):
        ops = importlib.import_module("fa_tune._torch_ops")
        ops._library = "registered"
        Tensor.grad_mode = True
        try:
            yield torch, ops
        finally:
            Tensor.requires_grad = False


def tensors_of(*given):
    return [Tensor(t.shape, memory=t.memory) for t in given]


def backward(*given):
    """The gradients of the last call that was recorded, of those of its outputs."""
    function, ctx = Applied.last
    return below(function.backward, ctx, *given)


# ---- the definition --------------------------------------------------------------------------------
class Definition:
    """Sums of the gradients of some heads and sequences, in double precision."""

    def __init__(self, sees=lambda row, key: True, softcap=0.0, sinks=None, scale=DIM ** -0.5, bend=None, kept=lambda head, row, key: 1.0):
        """bend: of a score, a row and a key to what softmax takes, and its derivative by the score."""
        self.sees, self.softcap, self.sinks, self.scale, self.bend, self.kept = sees, softcap, sinks, scale, bend, kept
        self.d_sinks, self.d_scores = [0.0] * len(sinks or ()), {}   # of bent scores, by head, row and key

    def head(self, q, k, v, d_o, head, dk, dv, d_lse=None):
        """dQ of rows of one head; adds to dk and dv, of its keys."""
        dq = []
        for i, (row, gradient) in enumerate(zip(q, d_o)):
            raw = [self.scale * sum(a * b for a, b in zip(row, key)) for key in k]
            scores = [self.softcap * math.tanh(s / self.softcap) if self.softcap else s for s in raw]
            bent = [1.0] * len(k)
            if self.bend:
                scores, bent = zip(*(self.bend(s, i, j) for j, s in enumerate(scores)))
            seen = [j for j in range(len(k)) if self.sees(i, j)]
            weights = {j: math.exp(scores[j]) for j in seen}
            total = sum(weights.values()) + (math.exp(self.sinks[head]) if self.sinks else 0.0)
            kept = {j: self.kept(head, i, j) for j in seen}
            slopes = {j: kept[j] * sum(a * b for a, b in zip(gradient, v[j])) for j in seen}
            delta = sum(weights[j] / total * slopes[j] for j in seen) - (d_lse[i] if d_lse and total else 0)
            dq.append([0.0] * DIM)
            for j in seen:
                weight = weights[j] / total
                self.d_scores[head, i, j] = weight * (slopes[j] - delta)
                slope = weight * (slopes[j] - delta) * self.scale
                slope *= 1 - (scores[j] / self.softcap) ** 2 if self.softcap else bent[j]
                for d in range(DIM):
                    dq[i][d] += slope * k[j][d]
                    dk[j][d] += slope * row[d]
                    dv[j][d] += weight * kept[j] * gradient[d]
            if self.sinks:
                self.d_sinks[head] -= math.exp(self.sinks[head]) / total * delta
        return dq


def rows_of(flat, count):
    return [flat[i * DIM:(i + 1) * DIM] for i in range(count)]


def dense(case, d_o, d_lse=None, **how):
    """dQ, dK, dV as flat lists of (batch, heads, rows, DIM), and the definition."""
    batch, heads, heads_kv, rows, keys = case.sizes
    of = Definition(**how)
    q, d_o = (rows_of(flat, batch * heads * rows) for flat in (case.numbers[0], d_o))
    k, v = (rows_of(flat, batch * heads_kv * keys) for flat in case.numbers[1:])
    dq, (dk, dv) = [], ([[0.0] * DIM for _ in k] for _ in "kv")
    for b in range(batch):
        for h in range(heads):
            at, kv = (b * heads + h) * rows, (b * heads_kv + h * heads_kv // heads) * keys
            dq += of.head(q[at:at + rows], k[kv:kv + keys], v[kv:kv + keys], d_o[at:at + rows], h, dk[kv:kv + keys], dv[kv:kv + keys],
                          d_lse and d_lse[at:at + rows])
    return [sum(part, []) for part in (dq, dk, dv)], of


def check(made, right, most=2e-2):
    for name, got, wanted in zip("qkv", made, right):
        close(got.elements(), wanted, most, "d" + name)


# ---- tests -----------------------------------------------------------------------------------------
def gradients_are_those_of_the_definition():
    with PyTorch():
        case = Inputs(batch=2, heads=4, heads_kv=2, rows=6, keys=9)
        q, k, v = tensors_of(*case.tensors)
        q.requires_grad = True
        d_o = Tensor(q.shape, fresh := Inputs(2, 4, 2, 6, 9).numbers[0])
        out = fa_tune.attention(q, k, v, causal=True)
        right, _ = dense(case, fresh, sees=lambda row, key: key <= row + 3)
        launches = len(logged("launch attn_bwd"))
        made = backward(d_o)
        tap.equal(made[3:], (None,) * 6)
        check(made, right)
        tap.equal(len(logged("launch attn_bwd")) - launches > 3, True)   # it was proved first
        launches = len(logged("launch attn_bwd"))
        once = backward(d_o)
        tap.equal(len(logged("launch attn_bwd")) - launches, 3)
        tap.equal([x.elements() for x in once[:3]], [x.elements() for x in made[:3]])
        # The order of strides is that of the input; rows that a sum's gradient repeats are copied once.
        turned = q.view((2, 4, 6, DIM), (6 * 4 * DIM, DIM, 4 * DIM, 1))
        ctx = Applied.last[1]
        ctx.saved_tensors = (turned, *ctx.saved_tensors[1:])
        tap.equal(backward(d_o)[0].strides, turned.strides)
        ctx.saved_tensors = (q, *ctx.saved_tensors[1:])
        repeated = Tensor(q.shape, strides=(0, 0, 0, 1), memory=d_o.memory)
        summed, _ = dense(case, fresh[:DIM] * (2 * 4 * 6), sees=lambda row, key: key <= row + 3)
        check(backward(repeated), summed)
        tap.equal(repeated.copied, 1)
        out, _ = fa_tune.attention(q, k, v, causal=True, return_lse=True)
        tap.equal(out.shape, q.shape)
        tap.equal(backward(None, None), (None,) * 9)


def a_loss_may_depend_on_the_lse():
    """With O's gradient or alone, of rows without keys (whose own is NaN), with sinks, of sequences; an expanded one is copied once."""
    with PyTorch() as (torch, _):
        torch.deterministic = True
        case, float32 = Inputs(batch=1, heads=4, heads_kv=2, rows=9, keys=6), (producer.FLOAT, 32)
        q, k, v = tensors_of(*case.tensors)
        q.requires_grad = True
        gradient, d_lse = Inputs(1, 4, 2, 9, 6).numbers[0], [(i % 7 - 3) / 2 for i in range(36)]
        d_o = Tensor(q.shape, gradient)
        sees = lambda row, key: key <= row - 3
        of_rows = Tensor((1, 4, 9), [math.nan if i % 9 < 3 else x for i, x in enumerate(d_lse)], dtype=float32)
        fa_tune.attention(q, k, v, causal=True, return_lse=True)
        check(backward(d_o, of_rows), dense(case, gradient, d_lse, sees=sees)[0])
        check(backward(None, of_rows), dense(case, [0.0] * len(gradient), d_lse, sees=sees)[0])
        check(backward(d_o, None), dense(case, gradient, sees=sees)[0])
        one = Tensor((1, 4, 9), [1.0], dtype=float32, strides=(0, 0, 0))
        check(backward(d_o, one), dense(case, gradient, [1.0] * 36, sees=sees)[0])
        tap.equal(one.copied, 1)
        tap.equal(sorted(hasattr(answer.problem, "d_lse") for answer in fa_tune.winners(operation="attn_bwd")
                         if answer.problem["seq_q"] == 9), [False, True])
        sinks = floats(4, values=[0.5, -1.0, 2.0, 0.0])
        given = Tensor((4,), memory=sinks.memory, dtype=sinks.dtype)
        fa_tune.attention(q, k, v, causal=True, sinks=given, return_lse=True)
        made = backward(d_o, Tensor((1, 4, 9), d_lse, dtype=float32))
        right, of = dense(case, gradient, d_lse, sees=sees, sinks=[0.5, -1.0, 2.0, 0.0])
        check(made, right)
        close(made[3].read(), of.d_sinks, 2e-2)
        none = Tensor((1, 2, 0, DIM))
        fa_tune.attention(q, none, none, sinks=given, return_lse=True)
        tap.equal(backward(d_o, Tensor((1, 4, 9), d_lse, dtype=float32))[3].summed, (0, 2))   # the sink is the LSE
        ragged = Ragged([5, 0, 3], [9, 4, 3])
        *rows, cu_q, cu_k = ragged.tensors()
        q, k, v = tensors_of(*rows)
        q.requires_grad = True
        fa_tune.attention_varlen(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=5, max_seqlen_k=9, return_softmax_lse=True)
        gradient, d_lse = ragged.q, [(i % 5 - 2) / 2 for i in range(8 * ragged.HEADS)]
        made, of = backward(Tensor(q.shape, gradient), Tensor((ragged.HEADS, 8), d_lse, dtype=float32)), Definition()
        for b, (queries, keys) in enumerate(zip(ragged.queries, ragged.keys)):
            first_q, first_k = ragged.starts[0][b], ragged.starts[1][b]
            for head in range(ragged.HEADS):
                q_rows = rows_of(ragged.by_heads(ragged.q, ragged.HEADS, first_q, queries), ragged.HEADS * queries)[head * queries:(head + 1) * queries]
                k_rows, v_rows = (rows_of(ragged.by_heads(flat, ragged.HEADS_KV, first_k, keys), ragged.HEADS_KV * keys)
                                  [head // 2 * keys:(head // 2 + 1) * keys] for flat in (ragged.k, ragged.v))
                dq = of.head(q_rows, k_rows, v_rows, q_rows, head, *([[0.0] * DIM for _ in range(keys)] for _ in "kv"),
                             d_lse[head * 8 + first_q:head * 8 + first_q + queries])
                close([0.0] + [made[0].read()[((first_q + i) * ragged.HEADS + head) * DIM + d] for i in range(queries) for d in range(DIM)],
                      [0.0] + sum(dq, []), 2e-2)


def scores_and_masks_of_a_user_have_theirs():
    """The score by its derivative; a mask that fields say is those, and an empty one of backward's own."""
    with PyTorch():
        case = Inputs(batch=1, heads=2, heads_kv=1, rows=5, keys=7)
        q, k, v = tensors_of(*case.tensors)
        q.requires_grad = True
        gradient = Inputs(1, 2, 1, 5, 7).numbers[0]

        def bend(score, row, key):
            return 2 * math.tanh(score / 2) - 0.25 * abs(row + 2 - key), 1 - math.tanh(score / 2) ** 2
        fa_tune.attention(q, k, v, score="2 * tanh(score / 2) - 0.25 * abs(q - k)", mask="k <= q or k < 4")
        made = backward(Tensor(q.shape, gradient))
        check(made, dense(case, gradient, sees=lambda row, key: key <= row + 2 or key < 4, bend=bend)[0])
        fa_tune.attention(q, k, v, mask="k <= q")
        check(backward(Tensor(q.shape, gradient)), dense(case, gradient, sees=lambda row, key: key <= row + 2)[0])
        tap.equal(sorted((answer.problem["causal"], getattr(answer.problem, "mask", "")) for answer in fa_tune.winners(operation="attn_bwd")
                         if answer.problem["seq_q"] == 5), [("bottom-right", ""), ("none", "k <= q or k < 4")])


def what_a_score_reads_has_its_own():
    """Of a buffer that needs one, in its type; of the others none, and none where there are no keys."""
    with PyTorch():
        case = Inputs(batch=1, heads=2, heads_kv=1, rows=5, keys=7)
        q, k, v = tensors_of(*case.tensors)
        slopes, biases, float32 = [0.25, -0.5], [0.5, -1.0, 0.25, 0.0, 1.5, -0.75], (producer.FLOAT, 32)
        slope, bias, doc = Tensor((2,), slopes, dtype=float32), Tensor((6,), biases), Tensor((1, 7), [0, 0, 0, 1, 1, 1, 1], dtype=(producer.INT, 32))
        slope.requires_grad = bias.requires_grad = True
        gradient, words = Inputs(1, 2, 1, 5, 7).numbers[0], {"score": "score + slope[h] * (k - q) + a * bias[k]", "mask": "doc[b][q] == doc[b][k] or k < 2"}
        sees = lambda row, key: (row + 2 > 2) == (key > 2) or key < 2
        fa_tune.attention(q, k, v, **words, buffers={"slope": slope, "bias": bias, "doc": doc, "a": 2.0})
        made = backward(Tensor(q.shape, gradient))
        heads = [dense(case, gradient, sees=sees, bend=lambda s, i, j, h=h: (s + slopes[h] * (j - i - 2) + 2 * biases[min(j, 5)], 1.0)) for h in range(2)]
        close(made[0].elements(), heads[0][0][0][:5 * DIM] + heads[1][0][0][5 * DIM:], 2e-2)
        ds = {at: x for h in range(2) for at, x in heads[h][1].d_scores.items() if at[0] == h}
        *none, d_bias, d_doc, d_slope = made[3:]
        tap.equal((none, d_doc, d_bias.dtype, d_slope.dtype), ([None] * 7, None, bias.dtype, float32))
        close(d_slope.read(), [sum(x * (j - i - 2) for (h, i, j), x in ds.items() if h == one) for one in range(2)], 2e-2)
        close(d_bias.elements(), [sum(2 * x for (_, _, j), x in ds.items() if min(j, 5) == one) for one in range(6)], 2e-2)
        bias.requires_grad = False
        fa_tune.attention(q, k, v, **words, buffers={"slope": slope, "bias": bias, "doc": doc, "a": 2.0})
        again = backward(Tensor(q.shape, gradient))
        tap.equal((again[-3:-1], again[-1].read()), ((None, None), d_slope.read()))
        none = Tensor((1, 1, 0, DIM))
        fa_tune.attention(q, none, none, **words, buffers={"slope": slope, "bias": bias, "doc": doc, "a": 2.0})
        tap.equal(list(backward(Tensor(q.shape, gradient))[-1].read()), [0.0, 0.0])
    refused(fa_tune.NotSupported, "a kernel with buffers is called by", q, by=fa_tune.kernel(fa_tune.winners(operation="attn_bwd")[0].problem))


def dropout_draws_the_same_bits_in_both_passes():
    with PyTorch():
        case, seed, gradient = Inputs(1, 2, 1, 21, 37), (0x123456789abcdef0, 77), Inputs(1, 2, 1, 21, 37).numbers[0]
        q, k, v = tensors_of(*case.tensors)
        q.requires_grad = True
        fa_tune.attention(q, k, v, dropout_p=0.3, dropout_seed=Tensor((2,), seed, dtype=(producer.INT, 64)))
        check(backward(Tensor(q.shape, gradient)), dense(case, gradient, kept=lambda *place: dropout(0.3, seed, *place))[0])
        for size, bits in ((2, 32), (3, 64)):
            refused(fa_tune.ArgumentError, "dropout_seed is int64 of one dimension", q, k, v, dropout_p=0.3, dropout_seed=Tensor((size,), (1, 2, 3)[:size], dtype=(producer.INT, bits)))
    for words, part in (({"dropout_p": 1}, "up to less than 1, not 1"), ({"dropout_p": 0.5, "buffers": {"dropout": 0.5}}, "and dropout_p is given"), ({"dropout_p": 0.5, "dropout_seed": 3}, "dropout_seed is an array"), ({"buffers": {"dropout": ints(1), "dropout_seed": ints(1)}}, "dropout takes two buffers")):
        refused(fa_tune.ArgumentError, part, *case.tensors, **words)


def sinks_and_softcaps_and_other_layouts_have_theirs():
    """In their deterministic kernel, which the test before this one had compiled."""
    with PyTorch() as (torch, _):
        torch.deterministic = True
        case = Inputs(batch=1, heads=2, heads_kv=1, rows=5, keys=7)
        swapped = [Tensor((1, rows, heads, DIM), [flat[(h * rows + i) * DIM + d] for i in range(rows) for h in range(heads) for d in range(DIM)])
                   for flat, heads, rows in zip(case.numbers, (2, 1, 1), (5, 7, 7))]
        sinks, gradient = [0.5, -1.0], Inputs(1, 2, 1, 5, 7).numbers[0]
        d_o = Tensor((1, 2, 5, DIM), gradient)
        given = floats(2, values=sinks)
        swapped[0].requires_grad = True
        fa_tune.attention(*swapped, layout="bshd", window=(2, 1), softcap=3.0, sinks=Tensor((2,), memory=given.memory, dtype=given.dtype))
        made = backward(Tensor((1, 5, 2, DIM), d_o.view((1, 5, 2, DIM), (0, DIM, 5 * DIM, 1)).elements()))
        right, of = dense(case, gradient, sees=lambda row, key: row + 2 - 2 <= key <= row + 2 + 1, softcap=3.0, sinks=sinks)
        tap.equal(made[0].shape, (1, 5, 2, DIM))
        check([x.view((1, heads, rows, DIM), (0, DIM, heads * DIM, 1)) for x, heads, rows in zip(made, (2, 1, 1), (5, 7, 7))], right)
        close(made[3].read(), of.d_sinks, 2e-2)


def sequences_behind_one_another_have_theirs():
    case = Ragged([5, 0, 3], [9, 4, 3])
    with PyTorch() as (torch, _):
        *rows, cu_q, cu_k = case.tensors()
        q, k, v = tensors_of(*rows)
        how = dict(cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, max_seqlen_q=5, max_seqlen_k=9)
        q.requires_grad = True
        cache = [Tensor((3, 9, case.HEADS_KV, DIM)) for _ in range(2)]
        refused(fa_tune.NotSupported, "no backward pass for a call with seqused_k", q, *cache, cu_seqlens_q=cu_q, max_seqlen_q=5, seqused_k=ints(3))
        refused(fa_tune.NotSupported, "call torch.use_deterministic_algorithms(True)", q, k, v, deterministic=True,
                by=fa_tune.attention_varlen, **how)
        torch.deterministic = True
        fa_tune.attention_varlen(q, k, v, causal=True, deterministic=True, **how)
        torch.deterministic = False
        out = fa_tune.attention_varlen(q, k, v, causal=True, deterministic=False, **how)
        close(out.read(), case.expected(True)[0])
        gradient = Ragged(case.queries, case.keys).q
        made = backward(Tensor(q.shape, gradient))
        tap.equal([x.shape for x in made[:3]] + list(made[3:]), [q.shape, k.shape, v.shape] + [None] * 6)
        for b, (queries, keys) in enumerate(zip(case.queries, case.keys)):
            first_q, first_k = case.starts[0][b], case.starts[1][b]
            of = Definition(sees=lambda row, key, shift=keys - queries: key <= row + shift)
            for h in range(case.HEADS_KV):
                dk, dv = ([[0.0] * DIM for _ in range(keys)] for _ in "kv")
                k_rows, v_rows = (rows_of(case.by_heads(flat, case.HEADS_KV, first_k, keys), case.HEADS_KV * keys)[h * keys:(h + 1) * keys]
                                  for flat in (case.k, case.v))
                for head in (2 * h, 2 * h + 1):
                    q_rows, d_rows = (rows_of(case.by_heads(flat, case.HEADS, first_q, queries), case.HEADS * queries)
                                      [head * queries:(head + 1) * queries] for flat in (case.q, gradient))
                    dq = of.head(q_rows, k_rows, v_rows, d_rows, head, dk, dv)
                    tap.equal(len(dq), queries)
                    close([0.0] + [made[0].read()[((first_q + i) * case.HEADS + head) * DIM + d] for i in range(queries) for d in range(DIM)],
                          [0.0] + sum(dq, []), 2e-2)
                for got, wanted in zip(made[1:3], (dk, dv)):
                    close([got.read()[((first_k + j) * case.HEADS_KV + h) * DIM + d] for j in range(keys) for d in range(DIM)], sum(wanted, []), 2e-2)
        wide = [x.to(torch.float32) for x in (q, k, v)]
        refused(fa_tune.DtypeError, "pass float16 or bfloat16", *wide, **how)
        torch.autocasts, Tensor.grad_mode = True, False
        close(fa_tune.attention_varlen(*wide, causal=True, **how).read(), case.expected(True)[0])


def heads_that_are_too_wide_for_gradients_are_refused_before_anything_is_computed():
    sizes = json.loads(tap.read(os.path.join(SOURCE, "kernel_templates", "attn_bwd", "operation.json")))["sizes"]
    most = {name: size.get("max") for name, size in sizes.items()}
    with PyTorch() as (_, ops):
        tap.equal((most["head_dim"], most["head_dim_v"]), (ops.HEAD_DIM_MAX,) * 2)
        wide, narrow = Tensor((1, 2, 3, 264)), Tensor((1, 2, 3, DIM))
        wide.requires_grad = True
        said, launches = "gradients for head dims up to 256, not for 264: use scaled_dot_product_attention", len(logged("launch "))
        for by in (fa_tune.attention, lambda *args: ops._attention_autograd(*args, layout="bhsd")):
            for tensors in ([wide] * 3, (narrow, narrow, wide)):
                refused(fa_tune.NotSupported, said, *tensors, by=by)
        with fa_tune.policy(on_miss="sdpa"):
            pytorch = importlib.import_module("fa_tune._sdpa_fallback")
            with mock.patch.object(pytorch, "attention", lambda *_, **words: words):
                words = fa_tune.attention(wide, wide, wide, causal=True, layout="bshd")
            tap.equal((words["q"] is wide, words["causal"], words["layout"], words["sinks"]), (True, True, "bshd", None))
            tap.has(str(words["error"]), said)
        tap.equal(len(logged("launch ")), launches)


def on_a_gpu_that_computes_no_gradients_they_are_refused_before_anything_is_computed():
    folder = os.path.join(SOURCE, "kernel_templates", "attn_bwd")
    least = []
    for name in os.listdir(folder):
        manifest = json.loads(tap.read(os.path.join(folder, name))) if name.endswith(".json") else {}
        least += [manifest["sm"]["min"]] if "sm" in manifest else []
    with PyTorch() as (torch, ops):
        tap.equal(min(least), 10 * ops.MAJOR_MIN)
        torch.cuda.get_device_capability = lambda device: (7, 5)
        x, launches = Tensor((1, 2, 3, DIM)), len(logged("launch "))
        x.requires_grad = True
        for by in (fa_tune.attention, lambda *args: ops._attention_autograd(*args, layout="bhsd")):
            refused(fa_tune.NotSupported, "gradients on GPUs from Ampere (sm_80) on, not on this one: use scaled_dot_product_attention",
                    x, x, x, by=by)
        tap.equal(len(logged("launch ")), launches)


def nothing_has_gradients_of_zero_and_while_a_graph_is_captured_nothing_is_loaded():
    with PyTorch() as (torch, _):
        q, k, v = Tensor((2, 2, 3, DIM)), Tensor((2, 2, 0, DIM)), Tensor((2, 2, 0, DIM))
        q.requires_grad = True
        fa_tune.attention(q, k, v)
        made = backward(Tensor(q.shape))
        tap.equal((set(made[0].read()), made[1].shape), ({0.0}, k.shape))
        case, given = Inputs(batch=1, heads=1, heads_kv=1, rows=3, keys=3), floats(1, values=[0.5])
        q, k, v = tensors_of(*case.tensors)
        q.requires_grad = torch.deterministic = True
        fa_tune.attention(q, k, v, window=(2, 1), softcap=3.0, sinks=Tensor((1,), memory=given.memory, dtype=given.dtype))
        d_o, Tensor.spare = Tensor(q.shape), [Tensor((1,), dtype=given.dtype)] + [Tensor(q.shape) for _ in range(3)]
        with captured():
            refused(fa_tune.CaptureError, "no kernel of attention's backward for this problem is loaded yet, and none can be while a CUDA graph",
                    d_o, by=backward)
        backward(d_o)
        tap.equal(fa_tune.winners(operation="attn_bwd")[0].problem["deterministic"], True)


def what_does_not_fit_is_refused_by_name():
    call = fa_tune._core.attention_backward
    case = Inputs(rows=5)
    q, k, v = tensors_of(*case.tensors)
    lse = Tensor((1, 2, 5), dtype=(producer.FLOAT, 32))
    refused(fa_tune.ShapeError, "lse has the shape (1, 2, 4) and needs (1, 2, 5)", q, q, lse.view((1, 2, 4), (10, 5, 1)), None, False, (), q, k, v, by=call)
    refused(fa_tune.ShapeError, "lse is not contiguous in its rows", q, q, lse.view((1, 2, 5), (10, 1, 2)), None, False, (), q, k, v, by=call)
    refused(fa_tune.ShapeError, "the gradient of the LSE has the shape (1, 2, 4)", q, q, lse, lse.view((1, 2, 4), (10, 5, 1)), False, (), q, k, v, by=call)
    refused(fa_tune.DtypeError, "the gradient of the LSE is float16 and needs float32", q, q, lse, Tensor((1, 2, 5)), False, (), q, k, v, by=call)
    refused(fa_tune.ShapeError, "the gradient of the output has the shape", k, q, lse, None, False, (), q, k, v, by=call)
    refused(fa_tune.DtypeError, "o is float32 and needs float16", q, q.to((producer.FLOAT, 32)), lse, None, False, (), q, k, v, by=call)
    refused(fa_tune.NotSupported, "with batch_invariant", q, q, lse, None, False, (), q, k, v, batch_invariant=True, by=call)
    refused(TypeError, "9 arguments by position, not 3", q, k, v, by=call)


def a_transform_of_torch_func_is_named():
    class Wrapped(Tensor):
        __dlpack_c_exchange_api__ = None

        def __dlpack__(self, **_):
            raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")
    q, k, v = Inputs().tensors
    with PyTorch() as (torch, _):
        torch._C._are_functorch_transforms_active = lambda: True
        refused(fa_tune.NotSupported, "k is under a transform of torch.func, and fa_tune has no rule for it (vmap, jvp, grad)",
                q, Wrapped(k.shape), v)


def forward_mode_is_left_to_autograd_and_refused_where_there_is_none():
    case = Inputs(rows=5)
    with PyTorch():
        FORWARD_AD._current_level = 0
        q, k, v = tensors_of(*case.tensors)
        o = fa_tune.attention(q, k, v)
        cls, ctx = Applied.last
        tap.equal(o.shape, q.shape)
        for call, part in ((lambda: cls.jvp(ctx, q), "use torch.autograd.grad"),
                           (lambda: fa_tune.attention_decode(k, k, v), "attention_decode has no forward mode: call it outside of torch.autograd")):
            tap.refused(fa_tune.NotSupported, part, call)
        FORWARD_AD._current_level = -1
        Applied.last = None
        fa_tune.attention(q, k, v)
        tap.equal(Applied.last, None)


def a_compiler_is_told_shapes_and_the_operators_take_the_names_of_attention_varlen():
    with PyTorch() as (torch, ops):
        q, k = Tensor((12, 4, DIM)), Tensor((20, 2, DIM))
        v = Tensor((20, 2, 32))
        o, lse = ops._attention_lse_fake(q, k, v, True, layout="bshd", cu_seqlens_q=ints(3), cu_seqlens_k=ints(3))
        tap.equal((o.shape, lse.shape, lse.dtype), ((12, 4, 32), (4, 12), torch.float32))
        made = ops._attention_backward_fake(o, q, k, v, o, lse, True, layout="bshd", cu_seqlens_q=ints(3))
        tap.equal([x.shape for x in made[:4]], [q.shape, k.shape, v.shape, (0,)])
        tap.refused(RuntimeError, "takes tensors of 4 dimensions, not 3D, 3D and 3D", lambda: ops._attention_fake(q, k, v))
        dynamo, asked = importlib.import_module("fa_tune._dynamo"), []
        torch.ops.fa_tune.attention = lambda *tensors, **options: asked.append(options)
        lengths = dict(cu_seqlens_q=ints(3), cu_seqlens_k=ints(3), max_seqlen_q=7, max_seqlen_k=9)
        dynamo.attention_varlen(q, k, v, causal=True, window_size=(5, 0), softmax_scale=0.5, s_aux=None, dropout_p=0.0, num_splits=2,
                                cp_world_size=1, **lengths)
        tap.equal(asked[0], {"causal": True, "scale": 0.5, "layout": "bshd", "top_left": False, "window": [5, 0], "softcap": 0.0,
                             "sinks": None, **lengths})
        tap.equal(ops._words(**asked[0]), {"causal": True, "scale": 0.5, "layout": "bshd", "window": (5, 0), **lengths})
        dynamo.attention_varlen(q, k, v, deterministic=True, **lengths)   # of which no gradient is recorded
        q.requires_grad = True
        refused(fa_tune.NotSupported, "call torch.use_deterministic_algorithms(True)", q, k, v, deterministic=True,
                by=dynamo.attention_varlen, **lengths)

        class Symbol:  # as a comparison of shapes is under torch.compile(dynamic=True)
            def __bool__(self):
                return True

        class Zeros(Tensor):
            def __eq__(self, other):
                raise RuntimeError("Boolean value of Tensor with more than one value is ambiguous")
        paged = dict(lengths, cu_seqlens_k=None, seqused_k=ints(2), block_table=ints(2, 5))
        dynamo.attention_varlen(q, k, v, **paged)
        tap.equal({name: asked[-1][name] for name in paged}, paged)
        pages = Tensor((9, 16, 2, DIM))
        tap.equal(ops._attention_fake(q, pages, pages, layout="bshd", **paged).shape, (12, 4, DIM))
        torch.ops.fa_tune.attention_out = lambda *tensors, **options: asked.append(options)
        dynamo.attention(q, k, v, causal=Symbol(), out=q, seqused_k=paged["seqused_k"])
        tap.equal((asked[-1]["causal"], asked[-1]["seqused_k"]), (True, paged["seqused_k"]))
        tap.equal("seqused_k" in asked[0], False)
        tap.refused(fa_tune.NotSupported, "no backward pass for a call with seqused_k", lambda: ops._recorded(False, q, k, v, seqused_k=paged["seqused_k"]))
        for more in ({"q_descale": Zeros((2,))}, {"cu_seqlens_k": None}):
            tap.refused(NotImplementedError, "attention_varlen takes q, k, v, cu_seqlens_q", lambda: dynamo.attention_varlen(q, k, v, **{**lengths, **more}))


if __name__ == "__main__":
    tap.main()
