# SPDX-License-Identifier: Apache-2.0
"""fa_tune.attention()'s call computed by PyTorch's scaled_dot_product_attention."""
import sys
import threading

_own = threading.local()  # .depth > 0: this thread is in PyTorch's own attention on purpose


def is_wanted():
    """Whether this thread asked for PyTorch's own kernel: the drop-in must stand aside."""
    return getattr(_own, "depth", 0) > 0


class pytorch_own:  # noqa: N801
    """A context in which this thread's SDPA is PyTorch's own, whatever is active."""

    def __enter__(self):
        _own.depth = getattr(_own, "depth", 0) + 1

    def __exit__(self, *_):
        _own.depth -= 1


def attention(q, k, v, causal=False, scale=None, layout="bhsd", out=None, return_lse=False, *,
              error, **more):
    """The same result as fa_tune.attention(), of PyTorch tensors on their current stream; raises
    `error` for others, and where there is more to the call than SDPA can do."""
    torch = sys.modules.get("torch")
    if torch is None or not all(isinstance(x, torch.Tensor) for x in (q, k, v)) or any(
            value is not None for value in more.values()):
        raise error
    if layout == "bshd":
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    sq, sk = q.shape[2], k.shape[2]
    anchor = causal if isinstance(causal, str) else "bottom-right" if causal else "none"
    mask = None
    if anchor == "bottom-right" and sq != sk:
        mask = torch.ones(sq, sk, dtype=torch.bool, device=q.device).tril(sk - sq)
    with pytorch_own():
        if return_lse:
            o, lse = _with_lse(torch, q, k, v, anchor, mask, scale)
        else:
            o = torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=anchor != "none" and mask is None, scale=scale,
                enable_gqa=q.shape[1] != k.shape[1])
    o = o.transpose(1, 2) if layout == "bshd" else o
    o_to, lse_to = out if isinstance(out, tuple) else (out, None)
    o = o.contiguous() if o_to is None else o_to.copy_(o)
    if not return_lse:
        return o
    return o, lse if lse_to is None else lse_to.copy_(lse)


def _with_lse(torch, q, k, v, anchor, mask, scale):
    """PyTorch hands out no log-sum-exp from SDPA: its flash kernel does, without a gradient, where that takes the call;
    else plain products, in single precision. (Rows that see nothing have another log-sum-exp there.)"""
    sq, sk = q.shape[2], k.shape[2]
    recorded = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    if not recorded and (sq == sk or anchor == "none" or (anchor == "bottom-right" and sq < sk)):
        try:
            o, lse = torch.ops.aten._flash_attention_forward(
                *(x.transpose(1, 2) for x in (q, k, v)), None, None, sq, sk, 0.0, anchor != "none", False, scale=scale)[:2]
            return o.transpose(1, 2), lse
        except (AttributeError, RuntimeError):  # this GPU, this head_dim, this build of PyTorch
            pass
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = q.float() @ k.float().transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    if anchor != "none":
        seen = mask if mask is not None else torch.ones(
            q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        scores = scores.masked_fill(~seen, float("-inf"))
    lse = scores.logsumexp(-1)
    weights = torch.exp(scores - lse.masked_fill(lse == float("-inf"), 0)[..., None])
    return (weights @ v.float()).to(q.dtype), lse


def gradients(d_o, q, k, v, o, lse, error, causal=False, scale=None, layout="bhsd", **more):
    """(dq, dk, dv) from what forward left, without autograd, which is off below it; raises `error` for more than the
    kernel can do. It has heads behind the sequence and anchors a causal mask bottom-right."""
    torch = sys.modules["torch"]
    tensors = [d_o, q, k, v, o] if layout == "bshd" else [x.transpose(1, 2) for x in (d_o, q, k, v, o)]
    sq, sk = tensors[1].shape[1], tensors[2].shape[1]
    if any(isinstance(x, torch.Tensor) or x for x in more.values()) or (causal and sq > sk) or (causal == "top-left" and sq != sk):
        raise error
    unread = torch.zeros(2, dtype=torch.uint64, device=q.device)  # dropout's seed
    try:
        made = torch.ops.aten._flash_attention_backward(
            *(x if x.stride(3) == 1 else x.contiguous() for x in tensors), lse, None, None, sq, sk, 0.0,
            bool(causal) and causal != "none", unread, unread[0], scale=scale)
    except (AttributeError, RuntimeError) as refusal:  # this GPU, this head_dim, this build of PyTorch; or no memory is left
        raise error from refusal
    return tuple(x if layout == "bshd" else x.transpose(1, 2) for x in made)
