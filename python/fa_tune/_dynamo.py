# SPDX-License-Identifier: Apache-2.0
"""fa_tune.attention() inside torch.compile: the graph gets the operators of torch.ops.fa_tune.

Eager calls go to the C function as ever; only the compiler's tracer takes the function below for it.
"""
import torch

from . import _core, _torch_ops


def attention(q, k, v, *, causal=False, scale=None, layout="bhsd", out=None, return_lse=False,
              stream=None, window=None, softcap=None, sinks=None, **more):
    if stream is not None or more or isinstance(out, tuple):
        raise NotImplementedError("under torch.compile fa_tune.attention takes q, k, v, causal, scale, layout, window, "
                                  "softcap, sinks, out (one tensor) and return_lse")
    ops = torch.ops.fa_tune
    options = _torch_ops.options_of(causal, scale, layout, window, softcap, sinks)
    if out is not None:
        lse = ops.attention_out(q, k, v, out=out, want_lse=return_lse, **options)
        return (out, lse) if return_lse else out
    return ops.attention_lse(q, k, v, **options) if return_lse else ops.attention(q, k, v, **options)


def register():
    _torch_ops.register()
    if hasattr(torch.compiler, "substitute_in_graph"):  # since PyTorch 2.5
        torch.compiler.substitute_in_graph(_core.attention, skip_signature_check=True)(attention)
