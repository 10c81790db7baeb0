#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The operators of torch.ops.fa_tune in PyTorch itself, where it is installed; no GPU is needed: what kernels compute is computed by
its definition, in double precision. tests/test_python_gradients.py has the kernels, and a stand-in for PyTorch."""
import concurrent.futures
import math
import os
import sys

import tap

sys.path.insert(0, os.path.join(os.environ["FA_TEST_BUILD"], "python"))
from fa_tune import _core  # noqa: E402

try:
    import torch
    import torch.utils.checkpoint
    from fa_tune import _dynamo, _torch_ops
except (ImportError, OSError):
    torch = None

BESIDE = concurrent.futures.ThreadPoolExecutor(1)   # a thread that no autograd has its hand on


def definition(q, k, v, sinks=None, causal=False, scale=None, **_):
    """(o, lse) of dense tensors [batch, heads, rows, dim]."""
    scores = q @ k.transpose(2, 3) * (scale or q.shape[3] ** -0.5)
    if causal:
        scores = scores.masked_fill(torch.ones(scores.shape[2:], dtype=torch.bool).triu(1 + k.shape[2] - q.shape[2]), -math.inf)
    lse = scores.logsumexp(-1) if sinks is None else torch.logaddexp(scores.logsumexp(-1), sinks[None, :, None])
    return torch.exp(scores - lse[..., None]) @ v, lse


ASKED = []   # of each backward: whether it had the LSE's gradient


def forward(q, k, v, return_lse=False, **words):
    with torch.no_grad():
        o, lse = definition(*(x.double() for x in (q, k, v)), **words)
    return (o.to(q.dtype), lse.float()) if return_lse else o.to(q.dtype)


def backward(d_o, _o, _lse, d_lse, _deterministic, _wanted, q, k, v, sinks=None, **words):
    ASKED.append(d_lse is not None)
    leaves = [x.detach().double().requires_grad_() for x in (q, k, v, *(() if sinks is None else (sinks,)))]
    o, lse = definition(*leaves[:3], sinks=leaves[3] if sinks is not None else None, **words)
    made = torch.autograd.grad((o, lse), leaves, (d_o.double(), torch.zeros_like(lse) if d_lse is None else d_lse.double()))
    return (*(x.to(y.dtype).contiguous() for x, y in zip(made, (q, k, v))), None if sinks is None else made[3].float(), [])


def attention(q, k, v, **words):
    if torch.compiler.is_compiling():
        return _dynamo.attention(q, k, v, **words)
    if _torch_ops.wants_gradient(q, k, v, words.get("sinks")):
        return _torch_ops.recorded(q, k, v, **words)
    return _core.attention(q, k, v, **words)


def a_loss_of_o_of_the_lse_or_of_both_is_differentiated_in_every_way():
    """By autograd, the operator, torch.compile and in checkpoints; the kernel takes the LSE's gradient where a loss depends on it."""
    if torch is None:
        raise tap.Skip("PyTorch is not installed")
    torch.manual_seed(1)
    leaves = [torch.randn(2, 4, rows, 16, dtype=torch.bfloat16, requires_grad=True) for rows in (9, 12, 12)]
    sinks = torch.randn(4, requires_grad=True)
    losses = {"o": lambda o, lse: (o.float() ** 2).sum(), "lse": lambda o, lse: (lse ** 2 + lse).sum(),
              "both": lambda o, lse: (o.float() * lse[..., None]).sum()}
    _core.attention = lambda *args, **words: BESIDE.submit(forward, *args, **words).result()
    _core.attention_backward = lambda *args, **words: BESIDE.submit(backward, *args, **words).result()
    _torch_ops.register()
    for name, loss in losses.items():
        for more in ({}, {"sinks": sinks}):
            of = [*leaves, *more.values()]
            exact = [x.detach().double().requires_grad_() for x in of]
            wanted = torch.autograd.grad(loss(*definition(*exact, causal=True)), exact, materialize_grads=True)

            def step(*x, loss=loss, more=more):
                return loss(*attention(*x[:3], causal=True, return_lse=True, **dict(zip(more, x[3:]))))
            ways = {"autograd": step, "torch.compile": torch.compile(step, fullgraph=True, backend="aot_eager"),
                    "the operator": lambda *x, loss=loss, more=more: loss(*torch.ops.fa_tune.attention_lse(
                        *x[:3], True, **dict(zip(more, x[3:])))),
                    "checkpoint": lambda *x, step=step: torch.utils.checkpoint.checkpoint(step, *x, use_reentrant=False)}
            for way, function in ways.items():
                ASKED.clear()
                for got, right in zip(torch.autograd.grad(function(*of), of), wanted):
                    assert float((got.double() - right).abs().max()) <= 2e-2 * float(right.abs().max()), (name, way)
                tap.equal((name, way, ASKED), (name, way, [name != "o"]))
    o, lse = (x.detach() for x in attention(*leaves, causal=True, return_lse=True))
    told = [x.detach() for x in leaves]
    tap.refused(NotImplementedError, "out= has no backward", lambda: torch.ops.fa_tune.attention_out(*told, buffers="s", buffer_tensors=[sinks], out=o))
    torch.library.opcheck(torch.ops.fa_tune.attention_lse.default, told)
    for d_lse in (None, torch.ones_like(lse)):
        torch.library.opcheck(torch.ops.fa_tune.attention_backward.default, (o, *told, o, lse, True), {"d_lse": d_lse})


tap.main()
