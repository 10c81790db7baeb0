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

from . import _core, _errors, _policy
from ._problem import Problem

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


def _gradient_like(x):
    """Dense, in the order of x's strides, as PyTorch's own gradients are: what made x from a projection undoes it
    without a copy."""
    made = torch.empty_like(x)
    return made if made.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def _gradients_like(q, k, v, sinks):
    """As q, k, v and the sinks are shaped; without sinks an empty one."""
    return (_gradient_like(q), _gradient_like(k), _gradient_like(v),
            q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32))


def _attention_backward_fake(d_o, q, k, v, o, lse, causal=False, *, layout="bhsd", sinks=None, **_):
    _check(q, k, v, layout)
    return _gradients_like(q, k, v, sinks)


# ---- gradients -----------------------------------------------------------------------------------
@functools.lru_cache(maxsize=4096)
def _backward_kernel(session, device, effort, shapes, dtype, causal, window, softcap, sinks, deterministic, sequences, unaligned):
    """The loaded kernel of attn_bwd; session and effort are keys of the cache alone."""
    if torch.cuda.is_current_stream_capturing():
        raise _errors.CaptureError("no kernel of attention's backward for this problem is loaded yet, and none can be "
                                   "while a CUDA graph is captured: call backward() once with these shapes before")
    (batch, heads_q, seq_q, head_dim), (heads_kv, seq_k, head_dim_v) = shapes
    fields = {"window": True, "window_left": window[0], "window_right": window[1]} if window else {}
    return _policy.kernel_of(Problem(operation="attn_bwd", dtype=dtype, causal=causal, batch=sequences or batch, heads_q=heads_q,
                                     heads_kv=heads_kv, seq_q=seq_q, seq_k=seq_k, head_dim=head_dim,
                                     head_dim_v=head_dim_v, softcap=softcap, sinks=sinks, deterministic=deterministic,
                                     varlen=sequences is not None, unaligned=unaligned, **fields).as_dict(), device)


def _in_rows(x):
    """x, or a copy, as kernels take it: the elements of a row lie side by side. A sum's gradient repeats one."""
    repeats = not any(step and size > 1 for size, step in zip(x.shape[:3], x.stride()))
    return x.contiguous() if repeats or x.stride(3) != 1 else x


def gradients(d_o, q, k, v, o, lse, sinks=None, causal=False, scale=None, layout="bhsd", window=None, softcap=None, starts=None):
    """(dq, dk, dv, d_sinks) by our kernel, of the arguments of fa_tune.attention(). starts: cu_seqlens_q and cu_seqlens_k of
    sequences that lie behind one another in one batch."""
    made = _gradients_like(q, k, v, sinks)
    if q.numel() == 0 or k.numel() == 0:
        return tuple(x.zero_() for x in made)
    dq, dk, dv, d_sinks = made
    d_o = _in_rows(d_o)
    q, k, v, o = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v, o))
    if layout == "bshd":
        q, k, v, o, d_o, dq, dk, dv = (x.transpose(1, 2) for x in (q, k, v, o, d_o, dq, dk, dv))
    window = tuple(window) if window is not None and tuple(window) != (-1, -1) else None
    of = (_core.session(), q.device.index, _policy.current.effort, (q.shape, (k.shape[1], k.shape[2], v.shape[3])), q.dtype,
          causal, window, bool(softcap), sinks is not None, torch.are_deterministic_algorithms_enabled(),
          None if starts is None else starts[0].shape[0] - 1)
    scale = 1 / math.sqrt(q.shape[3]) if scale is None else scale
    for unaligned in (False, True):
        try:
            _backward_kernel(*of, unaligned)(q, k, v, o, lse, sinks, d_o, dq, dk, dv,
                                             None if sinks is None else d_sinks, *(starts or (None, None)), scale,
                                             softcap or 0.0)
            return made
        except _errors.Error as error:
            if unaligned or error.code != NOT_ALIGNED:
                raise


NOT_ALIGNED = -22  # FA_EALIGN


def _gradients_or_sdpa(d_o, q, k, v, o, lse, sinks=None, **words):
    """The same; with on_miss="sdpa" PyTorch computes what there is no kernel for."""
    try:
        return gradients(d_o, q, k, v, o, lse, sinks, **words)
    except _errors.Error as error:
        if _policy.current.on_miss != "sdpa" or not _policy.is_a_miss(error) or sinks is not None:
            raise
        return (*_policy.gradients_by_sdpa(d_o, q, k, v, o, lse, error, **words), q.new_empty(0, dtype=torch.float32))


def _attention_backward(d_o, q, k, v, o, lse, *args, sinks=None, **options):
    return _gradients_or_sdpa(d_o, q, k, v, o, lse, sinks, **_words(*args, **options))


def _wants_gradient(*values):
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


class _Attention(torch.autograd.Function):
    """attention_lse below autograd, and its gradients. `words` are the options of fa_tune.attention(). Tensors that
    nothing but autograd looks at skip PyTorch's dispatcher, which is half of the time on the host."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, words, eager):
        if eager:
            o, lse = _core.attention(q, k, v, sinks=sinks, return_lse=True, **words)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                o, lse = torch.ops.fa_tune.attention_lse(q, k, v, **options_of(sinks=sinks, **words))
        ctx.save_for_backward(q, k, v, sinks, o, lse)
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.words, ctx.eager = words, eager
        return o, lse

    @staticmethod
    def backward(ctx, d_o, _):
        q, k, v, sinks, o, lse = ctx.saved_tensors
        if d_o is None:
            return (None,) * 6
        if ctx.eager and not torch.is_grad_enabled() and _is_unobserved():
            made = _gradients_or_sdpa(d_o, q, k, v, o, lse, sinks, **ctx.words)
        else:
            made = torch.ops.fa_tune.attention_backward(d_o, q, k, v, o, lse, **options_of(sinks=sinks, **ctx.words))
        return (*made[:3], None if sinks is None else made[3], None, None)


class _Varlen(torch.autograd.Function):
    """attention_varlen and its gradients, of eager code. `lengths` are the arguments that tell where sequences begin."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, lengths, words):
        o, lse = _core.attention(q, k, v, sinks=sinks, return_lse=True, **lengths, **words)
        ctx.save_for_backward(q, k, v, sinks, o, lse, lengths["cu_seqlens_q"], lengths["cu_seqlens_k"])
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)
        ctx.words = words
        return o, lse

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, d_o, _):
        *tensors, sinks, o, lse, starts_q, starts_k = ctx.saved_tensors
        if d_o is None:
            return (None,) * 6
        made = gradients(*(x.unsqueeze(0) for x in (d_o, *tensors, o, lse)), sinks, layout="bshd", starts=(starts_q, starts_k),
                         **ctx.words)
        return (*(x.squeeze(0) for x in made[:3]), None if sinks is None else made[3], None, None)


def _is_unobserved():
    """No TorchDispatchMode is on: nobody traces or counts operators."""
    return torch._C._len_torch_dispatch_stack() == 0


def _recorded(q, k, v, *args, sinks=None, **options):
    return _Attention.apply(q, k, v, sinks, _words(*args, **options), False)


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


def refused(operator, sentence):
    """The operator's kernel for autograd where there is no gradient, and silence would be a trap."""
    def forward(*args, **named):
        if _wants_gradient(*args, *named.values()):
            raise _errors.NotSupported(sentence)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **named)
    return forward


def _autograd_of(name):
    operator = getattr(torch.ops.fa_tune, name).default
    return {"attention": _attention_autograd, "attention_lse": _attention_lse_autograd}.get(name) or refused(
        operator, "fa_tune.attention with out= has no backward: leave out= out" if name == "attention_out" else
        "fa_tune.attention cannot be differentiated twice")


LENGTHS = ("cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k")


def recorded(words):
    """fa_tune.attention() or attention_varlen() of PyTorch's tensors of which a gradient is recorded; `words` are all its arguments."""
    register()
    words = {name: value for name, value in words.items() if value is not None}
    q, k, v, out, lse = (words.pop(name, None) for name in ("q", "k", "v", "out", "return_lse"))
    lengths = {name: words.pop(name) for name in LENGTHS if name in words} if {"cu_seqlens_q", "cu_seqlens_k"} <= set(words) else {}
    other = set(words) - {"causal", "scale", "layout", "window", "softcap", "sinks"}
    if out is not None or other:
        raise _errors.NotSupported("fa_tune.attention has no backward pass for a call with %s: leave it out, or call it "
                                   "under torch.no_grad()" % ("out=" if out is not None else ", ".join(sorted(other))))
    if lengths:
        words.pop("layout", None)   # rows have heads within them
        o, told = _Varlen.apply(q, k, v, words.pop("sinks", None), lengths, words)
    else:
        o, told = _Attention.apply(q, k, v, words.pop("sinks", None), words, _is_unobserved())
    return (o, told) if lse else o


# ---- autocast --------------------------------------------------------------------------------------
def _cast(tensors):
    """As torch.autocast has scaled_dot_product_attention cast its inputs."""
    return [x.to(torch.get_autocast_gpu_dtype()) for x in tensors]


def autocast(words):
    """fa_tune.attention() of tensors that are of no type of ours; None: autocast casts nothing."""
    tensors = [words[name] for name in "qkv"]
    if not torch.is_autocast_enabled() or not all(x.dtype in AUTOCAST for x in tensors):
        return None
    cast = _cast(tensors)
    return None if all(x is y for x, y in zip(cast, tensors)) else _core.attention(*cast, **{
        name: value for name, value in words.items() if name not in ("q", "k", "v")})


AUTOCAST = (torch.float32, torch.float16, torch.bfloat16)


def _autocast_of(name):
    def cast(q, k, v, *args, **options):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):
            return getattr(torch.ops.fa_tune, name)(*_cast((q, k, v)), *args, **options)
    return cast


def define(library, namespace, name, schema, run, fake, autograd):
    """An operator: what it does, what a compiler's tracer learns, and what makes its kernel for autograd of it."""
    tags = [tag for tag in (getattr(torch.Tag, name, None) for name in
                            ("pt2_compliant_tag", "needs_fixed_stride_order")) if tag is not None]
    register_fake = getattr(torch.library, "register_fake", None) or torch.library.impl_abstract
    library.define(name + schema, tags=tags)
    library.impl(name, run, "CompositeExplicitAutograd")
    library.impl(name, autograd(getattr(getattr(torch.ops, namespace), name).default), "Autograd")
    register_fake("%s::%s" % (namespace, name), fake, lib=library)


def register():
    """Defines the operators, once."""
    global _library
    if _library is not None:
        return
    library = torch.library.Library("fa_tune", "DEF")
    for name, schema in SCHEMAS.items():
        define(library, "fa_tune", name, schema, globals()["_" + name], globals()["_%s_fake" % name],
               lambda _, name=name: _autograd_of(name))
        if name in ("attention", "attention_lse"):
            library.impl(name, _autocast_of(name), "AutocastCUDA")
    _library = library
