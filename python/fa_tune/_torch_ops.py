# SPDX-License-Identifier: Apache-2.0
"""torch.ops.fa_tune: the operators that a compiled graph holds, and that PyTorch differentiates.

    attention(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False, window=None, softcap=0,
              sinks=None) -> o
    attention_lse(…) -> (o, lse)
    attention_out(…, *, out, want_lse=False) -> lse, written only when it is wanted
    attention_backward(d_o, q, k, v, o, lse, causal=False, *, …) -> (dq, dk, dv, d_sinks)

They are defined without torch.library.custom_op, which costs a call 8 to 11 µs. Eager code without gradients is better
served by fa_tune.attention(), which does not go through PyTorch's dispatcher.
"""
import functools
import math

import torch

from . import _core, _errors

_OPTIONS = ("bool causal=False, *, float? scale=None, str layout='bhsd', bool top_left=False, int[]? window=None, "
            "float softcap=0.0, Tensor? sinks=None")
_ARGUMENTS = "Tensor q, Tensor k, Tensor v, " + _OPTIONS
SCHEMAS = {
    "attention": "(%s) -> Tensor" % _ARGUMENTS,
    "attention_lse": "(%s) -> (Tensor, Tensor)" % _ARGUMENTS,
    "attention_out": "(%s, Tensor(a!) out, bool want_lse=False) -> Tensor" % _ARGUMENTS,
    "attention_backward": "(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, %s) "
                          "-> (Tensor, Tensor, Tensor, Tensor)" % _OPTIONS,
}
_library = None


def _mask(causal, top_left):
    return "top-left" if causal and top_left else causal


def _words(causal=False, *, scale=None, layout="bhsd", top_left=False, window=None, softcap=0.0, sinks=None):
    """The options of an operator as _core.attention() calls them."""
    words = {"causal": _mask(causal, top_left), "scale": scale, "layout": layout}
    if window is not None:
        words["window"] = tuple(window)
    if softcap:
        words["softcap"] = softcap
    if sinks is not None:
        words["sinks"] = sinks
    return words


def options_of(causal=False, scale=None, layout="bhsd", window=None, softcap=None, sinks=None):
    """The inverse: options of fa_tune.attention() as those of an operator."""
    top_left = causal == "top-left"
    return {"causal": top_left or causal is True or causal == "bottom-right", "scale": scale, "layout": layout or "bhsd",
            "top_left": top_left, "window": None if window is None else list(window), "softcap": softcap or 0.0,
            "sinks": sinks}


def _attention(q, k, v, *args, **options):
    return _core.attention(q, k, v, **_words(*args, **options))


def _attention_lse(q, k, v, *args, **options):
    return _core.attention(q, k, v, return_lse=True, **_words(*args, **options))


def _attention_out(q, k, v, *args, out, want_lse=False, **options):
    told = _core.attention(q, k, v, out=out, return_lse=want_lse, **_words(*args, **options))
    return told[1] if want_lse else q.new_empty(0, dtype=torch.float32)


# ---- what a compiler's tracer learns: shapes, types and strides ----------------------------------
def _check(q, k, v, layout):
    torch._check(q.dim() == 4 and k.dim() == 4 and v.dim() == 4,
                 lambda: "fa_tune.attention takes four-dimensional tensors, not %dD, %dD and %dD"
                 % (q.dim(), k.dim(), v.dim()))
    torch._check(layout in ("bhsd", "bshd"), lambda: "layout is bhsd or bshd, not %r" % (layout,))
    torch._check(q.dtype == k.dtype == v.dtype and q.dtype in (torch.float16, torch.bfloat16),
                 lambda: "fa_tune.attention takes float16 or bfloat16, all three the same")


def _fake_o(q, k, v, layout):
    _check(q, k, v, layout)
    return q.new_empty((*q.shape[:3], v.shape[3]))  # contiguous, as _core allocates it


def _fake_lse(q, layout):
    heads, seq = (q.shape[1], q.shape[2]) if layout == "bhsd" else (q.shape[2], q.shape[1])
    return q.new_empty((q.shape[0], heads, seq), dtype=torch.float32)


def _attention_fake(q, k, v, causal=False, *, layout="bhsd", **_):
    return _fake_o(q, k, v, layout)


def _attention_lse_fake(q, k, v, causal=False, *, layout="bhsd", **_):
    return _fake_o(q, k, v, layout), _fake_lse(q, layout)


def _attention_out_fake(q, k, v, causal=False, *, layout="bhsd", out, want_lse=False, **_):
    _check(q, k, v, layout)
    return _fake_lse(q, layout) if want_lse else q.new_empty(0, dtype=torch.float32)


def _gradients_like(q, k, v, sinks):
    """Contiguous, as q, k, v and the sinks are shaped; without sinks an empty one."""
    return (*(x.new_empty(x.shape) for x in (q, k, v)),
            q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32))


def _attention_backward_fake(d_o, q, k, v, o, lse, causal=False, *, layout="bhsd", sinks=None, **_):
    _check(q, k, v, layout)
    return _gradients_like(q, k, v, sinks)


# ---- gradients -----------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)
def _backward_kernel(session, device, effort, shapes, dtype, causal, window, softcap, sinks, deterministic, unaligned):
    """The loaded kernel of attn_bwd; session and effort are keys of the cache alone."""
    from . import _engine
    from ._problem import Problem
    if torch.cuda.is_current_stream_capturing():
        raise _errors.CaptureError("no kernel of attention's backward for this problem is loaded yet, and none can be "
                                   "while a CUDA graph is captured: call backward() once with these shapes before")
    (batch, heads_q, seq_q, head_dim), (heads_kv, seq_k, head_dim_v) = shapes
    fields = {"window": True, "window_left": window[0], "window_right": window[1]} if window else {}
    return _engine.kernel(Problem(operation="attn_bwd", dtype=dtype, causal=causal, batch=batch, heads_q=heads_q,
                                  heads_kv=heads_kv, seq_q=seq_q, seq_k=seq_k, head_dim=head_dim,
                                  head_dim_v=head_dim_v, softcap=softcap, sinks=sinks, deterministic=deterministic,
                                  unaligned=unaligned, **fields), device, None, None)


def _attention_backward(d_o, q, k, v, o, lse, causal=False, *, scale=None, layout="bhsd", top_left=False, window=None,
                        softcap=0.0, sinks=None):
    gradients = _gradients_like(q, k, v, sinks)
    if gradients[0].numel() + gradients[1].numel() == 0:
        return (*gradients[:3], gradients[3].zero_())
    tensors = [x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, o, d_o)]
    tensors += gradients[:3]
    if layout == "bshd":
        tensors = [x.transpose(1, 2) for x in tensors]
    q, k, v, o, d_o, dq, dk, dv = tensors
    window = tuple(window) if window is not None and tuple(window) != (-1, -1) else None
    of = [_core.session(), q.device.index, _effort(), (tuple(q.shape), (k.shape[1], k.shape[2], v.shape[3])), q.dtype,
          _mask(causal, top_left), window, bool(softcap), sinks is not None,
          torch.are_deterministic_algorithms_enabled()]
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    for unaligned in (False, True):
        try:
            _backward_kernel(*of, unaligned)(q, k, v, o, lse, sinks, d_o, dq, dk, dv,
                                             None if sinks is None else gradients[3], scale, softcap)
            return gradients
        except _errors.Error as error:
            if unaligned or error.code != NOT_ALIGNED:
                raise


NOT_ALIGNED = -22  # FA_EALIGN


def _effort():
    from ._policy import current
    return current.effort


def _wants_gradient(*values):
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


class _Attention(torch.autograd.Function):
    """attention_lse below autograd, and its gradients."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, options):
        with torch._C._AutoDispatchBelowAutograd():
            o, lse = torch.ops.fa_tune.attention_lse(q, k, v, sinks=sinks, **options)
        ctx.save_for_backward(q, k, v, sinks, o, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.options = options
        return o, lse

    @staticmethod
    def backward(ctx, d_o, _):
        q, k, v, sinks, o, lse = ctx.saved_tensors
        if d_o is None:
            return (None,) * 5
        dq, dk, dv, d_sinks = torch.ops.fa_tune.attention_backward(d_o, q, k, v, o, lse, sinks=sinks, **ctx.options)
        return dq, dk, dv, None if sinks is None else d_sinks, None


def _recorded(q, k, v, causal=False, *, sinks=None, **options):
    return _Attention.apply(q, k, v, sinks, {"causal": causal, **options})


def _attention_autograd(q, k, v, *args, sinks=None, **options):
    if _wants_gradient(q, k, v, sinks):
        return _recorded(q, k, v, *args, sinks=sinks, **options)[0]
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.fa_tune.attention(q, k, v, *args, sinks=sinks, **options)


def _attention_lse_autograd(q, k, v, *args, sinks=None, **options):
    if _wants_gradient(q, k, v, sinks):
        return _recorded(q, k, v, *args, sinks=sinks, **options)
    with torch._C._AutoDispatchBelowAutograd():
        return torch.ops.fa_tune.attention_lse(q, k, v, *args, sinks=sinks, **options)


def _refused(operator, sentence):
    """The operator's kernel for autograd where there is no gradient, and silence would be a trap."""
    def forward(*args, **named):
        if _wants_gradient(*args, *named.values()):
            raise _errors.NotSupported(sentence)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **named)
    return forward


def _autograd_of(name):
    operator = getattr(torch.ops.fa_tune, name).default
    return {"attention": _attention_autograd, "attention_lse": _attention_lse_autograd}.get(name) or _refused(
        operator, "fa_tune.attention with out= has no backward: leave out= out" if name == "attention_out" else
        "fa_tune.attention cannot be differentiated twice")


def recorded(words):
    """fa_tune.attention() of PyTorch's tensors of which a gradient is recorded; `words` are all its arguments."""
    register()
    words = {name: value for name, value in words.items() if value is not None}
    q, k, v, out, lse = (words.pop(name, None) for name in ("q", "k", "v", "out", "return_lse"))
    other = set(words) - {"causal", "scale", "layout", "window", "softcap", "sinks"}
    if out is not None or other:
        raise _errors.NotSupported("fa_tune.attention has no backward pass for a call with %s: leave it out, or call it "
                                   "under torch.no_grad()" % ("out=" if out is not None else ", ".join(sorted(other))))
    o, told = torch.ops.fa_tune.attention_lse(q, k, v, **options_of(**words))
    return (o, told) if lse else o


def register():
    """Defines the operators, once."""
    global _library
    if _library is not None:
        return
    tags = [tag for tag in (getattr(torch.Tag, name, None) for name in
                            ("pt2_compliant_tag", "needs_fixed_stride_order")) if tag is not None]
    register_fake = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract
    library = torch.library.Library("fa_tune", "DEF")
    for name, schema in SCHEMAS.items():
        library.define(name + schema, tags=tags)
        library.impl(name, globals()["_" + name], "CompositeExplicitAutograd")
        library.impl(name, _autograd_of(name), "Autograd")
        register_fake("fa_tune::" + name, globals()["_%s_fake" % name], lib=library)
    _library = library
