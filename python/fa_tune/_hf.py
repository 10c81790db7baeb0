# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: model = AutoModel….from_pretrained(…, attn_implementation="fa_tune").

Masks are made as for "sdpa", which leaves them out where the causal rule says all; a call that still
has one, and whatever else we do not cover, goes to transformers' own sdpa_attention_forward.
"""
import torch
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from . import _core, _errors, _sdpa_fallback
from ._policy import is_not_covered, warn_once

NAME = "fa_tune"


def _reason_against(tensors, attention_mask, dropout, more):
    if attention_mask is not None:
        return "a mask is given (padding, a static cache or a sliding window)"
    if dropout:
        return "fa_tune has no dropout"
    if more.get("position_bias") is not None:
        return "fa_tune has no additive bias"
    if more.get("output_attentions"):
        return "attention weights are asked for"
    return None if tensors[0].is_cuda else "the tensors are not on CUDA"


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None,
                      is_causal=None, **more):
    """q (batch, heads_q, seq_q, head_dim), k and v (batch, heads_kv, seq_k, head_dim); returns the
    output as (batch, seq_q, heads_q, head_dim), and None for the weights."""
    kind = reason = _reason_against((query, key, value), attention_mask, dropout, more)
    if reason is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        causal = bool(causal) and query.shape[2] > 1
        k, v = key, value
        if causal and k.shape[2] > query.shape[2]:  # an empty static cache is longer than the prompt
            k, v = k[:, :, :query.shape[2]], v[:, :, :query.shape[2]]
        extras = {} if more.get("softcap") is None else {"softcap": more["softcap"]}
        if more.get("s_aux") is not None:
            extras["sinks"] = more["s_aux"].float()
        trains = torch.is_grad_enabled() and any(x.requires_grad for x in (query, k, v, *extras.values())
                                                 if isinstance(x, torch.Tensor))
        try:
            if trains:  # in the order of the output that is saved, of which no copy is to be saved beside it
                return _core.attention(*(x.transpose(1, 2) for x in (query, k, v)), causal=causal, scale=scaling,
                                       layout="bshd", **extras), None
            out = query.new_empty((query.shape[0], query.shape[2], query.shape[1], v.shape[3]))
            _core.attention(query, k, v, causal=causal, scale=scaling, out=out.transpose(1, 2), **extras)
            return out, None
        except _errors.Error as error:
            if not is_not_covered(error):
                raise
            kind, reason = type(error), str(error)
    if more.get("s_aux") is not None:
        raise _errors.NotSupported("attention sinks, which SDPA does not know, and %s" % reason)
    warn_once(("transformers", kind), "transformers' sdpa_attention_forward computes a call, and others "
              "of its kind: %s" % reason)
    with _sdpa_fallback.pytorch_own():
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout,
                                      scaling=scaling, is_causal=is_causal, **more)


def register():
    """Makes attn_implementation="fa_tune" known to transformers."""
    from transformers import AttentionInterface
    AttentionInterface.register(NAME, attention_forward)
    try:
        from transformers import AttentionMaskInterface
        from transformers.masking_utils import sdpa_mask
    except ImportError:  # before transformers 4.53 masks followed the model
        return
    AttentionMaskInterface.register(NAME, sdpa_mask)
