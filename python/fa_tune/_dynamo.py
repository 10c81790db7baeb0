# SPDX-License-Identifier: Apache-2.0
"""fa_tune.attention() and attention_varlen() inside torch.compile: the graph gets the operators of torch.ops.fa_tune.

Eager calls go to the C functions as ever; only the compiler's tracer takes the functions below for them.
"""
import torch

from . import _core, _mods, _torch_ops


def _traced(q, k, v, out, return_lse, options):
    ops = torch.ops.fa_tune
    if out is not None:
        lse = ops.attention_out(q, k, v, out=out, want_lse=return_lse, **options)
        return (out, lse) if return_lse else out
    return ops.attention_lse(q, k, v, **options) if return_lse else ops.attention(q, k, v, **options)


def _given(**tensors):
    return {name: tensors[name] for name in tensors if tensors[name] is not None}


def _held(buffers, dropout_p, dropout_seed, q):
    return _mods.dropped(buffers, dropout_p, dropout_seed, q) if dropout_p else buffers


def attention(q, k, v, *, causal=False, scale=None, layout="bhsd", out=None, return_lse=False,
              stream=None, window=None, softcap=None, sinks=None, seqused_k=None, score=None, mask=None,
              buffers=None, dropout_p=0.0, dropout_seed=None, **more):
    if stream is not None or more or isinstance(out, tuple) or callable(score) or callable(mask):
        raise NotImplementedError("under torch.compile fa_tune.attention takes q, k, v, causal, scale, layout, window, "
                                  "softcap, sinks, seqused_k, texts as score and mask, buffers, dropout_p, dropout_seed, out (one tensor) and return_lse")
    options = _torch_ops.options_of(causal, scale, layout, window, softcap, sinks=sinks,
                                    **_given(seqused_k=seqused_k, score=score, mask=mask, buffers=_held(buffers, dropout_p, dropout_seed, q)))
    return _traced(q, k, v, out, return_lse, options)


def attention_varlen(q, k, v, *, cu_seqlens_q, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None, softmax_scale=None,
                     causal=False, window_size=None, softcap=None, out=None, return_softmax_lse=False, s_aux=None, sinks=None,
                     num_splits=None, scheduler_metadata=None, fa_version=None, deterministic=None, stream=None,
                     seqused_k=None, block_table=None, score=None, mask=None, buffers=None, dropout_p=0.0, dropout_seed=None, **more):
    refused = stream is not None or isinstance(out, tuple) or callable(score) or callable(mask) or (cu_seqlens_k is None and seqused_k is None)
    for name in more:
        value = more[name]
        refused = refused or isinstance(value, torch.Tensor) or not (
            value is None or value == 0 or (name == "cp_world_size" and value == 1))
    if refused:
        raise NotImplementedError("under torch.compile fa_tune.attention_varlen takes q, k, v, cu_seqlens_q, cu_seqlens_k, "
                                  "seqused_k, block_table, max_seqlen_q, max_seqlen_k, softmax_scale, causal, window_size, "
                                  "softcap, sinks, texts as score and mask, buffers, dropout_p, dropout_seed, out (one tensor) and return_softmax_lse")
    sinks = s_aux if sinks is None else sinks
    if deterministic and _torch_ops.wants_gradient(q, k, v, sinks):
        _torch_ops.check_deterministic()
    options = _torch_ops.options_of(
        causal, softmax_scale, "bshd", window_size, softcap, sinks=sinks, cu_seqlens_q=cu_seqlens_q,
        cu_seqlens_k=cu_seqlens_k, max_seqlen_q=max_seqlen_q, max_seqlen_k=max_seqlen_k,
        **_given(seqused_k=seqused_k, block_table=block_table, score=score, mask=mask, buffers=_held(buffers, dropout_p, dropout_seed, q)))
    return _traced(q, k, v, out, return_softmax_lse, options)


def register():
    _torch_ops.register()
    if hasattr(torch.compiler, "substitute_in_graph"):  # since PyTorch 2.5
        for theirs, ours in ((_core.attention, attention), (_core.attention_varlen, attention_varlen)):
            torch.compiler.substitute_in_graph(theirs, skip_signature_check=True)(ours)
