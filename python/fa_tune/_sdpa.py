# SPDX-License-Identifier: Apache-2.0
"""F.scaled_dot_product_attention on our kernels, by PyTorch's registry of flash-attention back ends.

What is replaced are the CUDA kernels of aten::_scaled_dot_product_flash_attention and of its backward, so that
autograd stays PyTorch's own and keeps what it always kept. A call that we do not cover goes on to
aten::_flash_attention_forward or _backward, which are not replaced: it is computed as if nobody had registered
anything. The two need not have the same author: output and log-sum-exp are all that one hands to the other.
"""
import contextlib
import functools
import inspect
import warnings

import torch
import torch.nn.attention

from . import _core, _errors, _sdpa_fallback, _torch_ops
from ._policy import is_not_covered, warn_once

NAME = "fa_tune"
ELEMENTS = (torch.float16, torch.bfloat16)


def _reason_against(tensors, dropout_p, return_debug_mask):
    """Why a call is left to PyTorch; None: we take it. In the order of what is cheap to ask."""
    if _sdpa_fallback.is_wanted():
        return ""
    if dropout_p != 0.0:
        return "dropout draws PyTorch's bits there, which its backward, too, must draw: fa_tune.attention has dropout_p"
    if return_debug_mask:
        return "fa_tune gives no debug mask"
    if tensors[0].dtype not in ELEMENTS:
        return "fa_tune takes float16 and bfloat16 only"
    return None


def _warn(kind, reason, what=""):
    if reason:
        warn_once(("sdpa" + what, kind), "PyTorch's own kernel computes %sa call of "
                  "scaled_dot_product_attention, and others of its kind: %s" % (what, reason))


def _forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """aten::_scaled_dot_product_flash_attention on CUDA: (batch, heads, seq, head_dim) tensors."""
    kind = reason = _reason_against((query, key, value), dropout_p, return_debug_mask)
    if reason is None:
        q, k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
        out = torch.empty_like(query)
        try:
            with torch.no_grad():  # which is recorded above, by PyTorch
                _, lse = _core.attention(q, k, v, causal=is_causal, scale=scale, out=out, return_lse=True)
        except _errors.Error as error:
            if not is_not_covered(error):
                raise
            kind, reason = type(error), str(error)
        else:
            return (out, lse, None, None, query.shape[2], key.shape[2], *_unread(query.device, query.dtype))
    _warn(kind, reason)
    return _pytorch_own(query, key, value, dropout_p, is_causal, return_debug_mask, scale)


def _backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p, is_causal,
              philox_seed, philox_offset, *, scale=None):
    """aten::_scaled_dot_product_flash_attention_backward on CUDA."""
    kind = reason = _reason_against((query, key, value), dropout_p, False)
    if reason is None:
        try:
            with torch.no_grad():
                q, k, v, o = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value, out))
                return _torch_ops.gradients(grad_out, q, k, v, o, logsumexp, None, {"causal": is_causal, "scale": scale})[:3]
        except _errors.Error as error:
            if not is_not_covered(error):
                raise
            kind, reason = type(error), str(error)
    _warn(kind, reason, "the gradients of ")
    made = torch.ops.aten._flash_attention_backward(
        *(x.transpose(1, 2) for x in (grad_out, query, key, value, out)), logsumexp, cum_seq_q, cum_seq_k, max_q, max_k,
        dropout_p, is_causal, philox_seed, philox_offset, scale=scale)
    return tuple(x.transpose(1, 2) for x in made)


@functools.cache
def _unread(device, dtype):
    """Dropout's seed and offset and the debug mask, which nobody reads without dropout: made once, as
    three allocations cost a call more than the rest of it."""
    with torch.inference_mode(False):
        return (torch.zeros(2, dtype=torch.uint64, device=device), torch.zeros((), dtype=torch.uint64, device=device),
                torch.empty(0, dtype=dtype, device=device))


def _pytorch_own(query, key, value, dropout_p, is_causal, return_debug_mask, scale):
    """What PyTorch's kernel of the operator does: its flash attention on (batch, seq, heads, dim)."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    out, lse, seed, offset, mask = torch.ops.aten._flash_attention_forward(
        q, k, v, None, None, q.shape[1], k.shape[1], dropout_p, is_causal, return_debug_mask,
        scale=scale)
    return (out.transpose(1, 2), lse, None, None, q.shape[1], k.shape[1], seed, offset, mask)


class _Handle:
    """What PyTorch's registry holds while the implementation is active."""

    def __init__(self):
        self._library = torch.library.Library("aten", "IMPL", "CUDA")
        known = inspect.signature(self._library.impl).parameters
        how = {"allow_override": True} if "allow_override" in known else {}
        with warnings.catch_warnings():  # that a kernel is replaced is what was asked for
            warnings.filterwarnings("ignore", message="(?s).*previously registered kernel")
            self._library.impl("_scaled_dot_product_flash_attention", _forward, "CUDA", **how)
            self._library.impl("_scaled_dot_product_flash_attention_backward", _backward, "CUDA", **how)

    def remove(self):
        """Gives the operators back their own kernels."""
        library, self._library = self._library, None
        if library is not None:
            library._destroy()


def register():
    """Makes torch.nn.attention.activate_flash_attention_impl("fa_tune") possible where it exists."""
    registry = torch.nn.attention
    if hasattr(registry, "register_flash_attention_impl"):
        registry.register_flash_attention_impl(NAME, register_fn=_Handle)


@contextlib.contextmanager
def scope():
    """fa_tune.sdpa()."""
    attention = torch.nn.attention
    before, handle = None, None
    if hasattr(attention, "activate_flash_attention_impl"):
        before = attention.current_flash_attention_impl()
        attention.activate_flash_attention_impl(NAME)
    else:
        handle = _Handle()
    try:
        with _flash_first():
            yield
    finally:
        if handle is not None:
            handle.remove()
        else:
            attention.restore_flash_attention_impl()
            if before is not None:
                attention.activate_flash_attention_impl(before)


def _flash_first():
    """SDPA prefers its flash back end to cuDNN's, and may still take the others."""
    attention, names = torch.nn.attention, torch.nn.attention.SDPBackend
    order = [names.FLASH_ATTENTION, names.EFFICIENT_ATTENTION, names.MATH]
    if hasattr(names, "CUDNN_ATTENTION"):
        order.insert(1, names.CUDNN_ATTENTION)
    if "set_priority" in inspect.signature(attention.sdpa_kernel).parameters:
        return attention.sdpa_kernel(order, set_priority=True)
    return attention.sdpa_kernel([names.FLASH_ATTENTION, names.EFFICIENT_ATTENTION, names.MATH])
