# SPDX-License-Identifier: Apache-2.0
"""torch.ops.fa_tune: the operators that a compiled graph holds, and that PyTorch differentiates.

    attention(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False, window=None, softcap=0,
              sinks=None, cu_seqlens_q=None, cu_seqlens_k=None, max_seqlen_q=None, max_seqlen_k=None,
              score=None, mask=None, seqused_k=None, block_table=None, buffers=None, buffer_tensors=None) -> o
    attention_lse(…) -> (o, lse)
    attention_out(…, *, out, want_lse=False) -> lse, written only when it is wanted
    attention_backward(d_o, q, k, v, o, lse, causal=False, *, …, d_lse=None, buffers=None, buffer_tensors=None, wanted=None)
        -> (dq, dk, dv, d_sinks, those of the buffers `wanted`, "slope bias", in their order)

Tensors are of four dimensions; with cu_seqlens_q, sequences behind one another, of three: (total, heads, head_dim). With
seqused_k k and v are a cache, with block_table one in pages: (pages, page, heads_kv, head_dim). What score and mask read
besides is named in one string, the tensors and behind them the numbers: buffers="slope doc a=0.5", buffer_tensors=[slope, doc].
They are defined without torch.library.custom_op, which costs a call 8 to 11 µs. Eager code without gradients is better
served by fa_tune.attention(), which does not go through PyTorch's dispatcher.
"""
import math

import torch

from . import _core, _errors, _policy

_OPTIONS = ("bool causal=False, *, float? scale=None, str layout='bhsd', bool top_left=False, int[]? window=None, "
            "float softcap=0.0, Tensor? sinks=None, Tensor? cu_seqlens_q=None, Tensor? cu_seqlens_k=None, "
            "SymInt? max_seqlen_q=None, SymInt? max_seqlen_k=None, str? score=None, str? mask=None")
_ARGUMENTS = ("Tensor q, Tensor k, Tensor v, " + _OPTIONS + ", Tensor? seqused_k=None, Tensor? block_table=None, "
              "str? buffers=None, Tensor[]? buffer_tensors=None")
SCHEMAS = {
    "attention": "(%s) -> Tensor" % _ARGUMENTS,
    "attention_lse": "(%s) -> (Tensor, Tensor)" % _ARGUMENTS,
    "attention_out": "(%s, Tensor(a!) out, bool want_lse=False) -> Tensor" % _ARGUMENTS,
    "attention_backward": "(Tensor d_o, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, %s, Tensor? d_lse=None, str? buffers=None, "
                          "Tensor[]? buffer_tensors=None, str? wanted=None) -> (Tensor, Tensor, Tensor, Tensor, Tensor[])" % _OPTIONS,
}
_library = None


def _mask(causal, top_left):
    return "top-left" if causal and top_left else causal


def _buffers(names, tensors):
    """The dict of fa_tune.attention() that an operator's `buffers` and `buffer_tensors` are."""
    names, held = [name.partition("=") for name in names.split()], iter(tensors or ())
    return {name: next(held) if not is_number else float(text) if "." in text or "n" in text or "e" in text else int(text)
            for name, is_number, text in names}


def _words(causal=False, *, scale=None, layout="bhsd", top_left=False, window=None, softcap=0.0, buffers=None,
           buffer_tensors=None, **others):
    """The options of an operator as _core.attention() calls them."""
    words = {"causal": _mask(causal, top_left), "scale": scale, "layout": layout}
    if window is not None:
        words["window"] = tuple(window)
    if softcap:
        words["softcap"] = softcap
    if buffers:
        words["buffers"] = _buffers(buffers, buffer_tensors)
    words.update((name, value) for name, value in others.items() if value is not None)   # sinks, lengths
    return words


def options_of(causal=False, scale=None, layout="bhsd", window=None, softcap=None, **others):
    """The inverse: options of fa_tune.attention() as those of an operator."""
    if not isinstance(causal, str):
        causal = True if causal else False  # pylint: disable=simplifiable-if-expression  # bool() leaves a compiler's symbol one
    top_left = causal == "top-left"
    if (held := others.pop("buffers", None)):
        tensors = {name: value for name, value in held.items() if isinstance(value, torch.Tensor)}
        numbers = ["%s=%r" % (name, value) for name, value in held.items() if name not in tensors]
        others.update(buffers=" ".join([*tensors, *numbers]), buffer_tensors=list(tensors.values()))
    return {"causal": top_left or causal is True or causal == "bottom-right", "scale": scale, "layout": layout or "bhsd",
            "top_left": top_left, "window": None if window is None else list(window), "softcap": softcap or 0.0, **others}


def _attention(q, k, v, *args, **options):
    return _core.attention(q, k, v, **_words(*args, **options))


def _attention_lse(q, k, v, *args, **options):
    return _core.attention(q, k, v, return_lse=True, **_words(*args, **options))


def _attention_out(q, k, v, *args, out, want_lse=False, **options):
    told = _core.attention(q, k, v, out=out, return_lse=want_lse, **_words(*args, **options))
    return told[1] if want_lse else q.new_empty(0, dtype=torch.float32)


# ---- what a compiler's tracer learns: shapes, types and strides ----------------------------------
def _check(q, k, v, layout, cu_seqlens_q, block_table=None, seqused_k=None):
    dims = 4 if cu_seqlens_q is None else 3
    dims_k = dims if seqused_k is None and block_table is None else 4
    torch._check(q.dim() == dims and k.dim() == dims_k and v.dim() == dims_k,
                 lambda: "fa_tune.attention takes tensors of %d dimensions%s, not %dD, %dD and %dD" % (
                     dims, "" if cu_seqlens_q is None else " with cu_seqlens_q", q.dim(), k.dim(), v.dim()))
    torch._check(layout in ("bhsd", "bshd"), lambda: "layout is bhsd or bshd, not %r" % (layout,))
    torch._check(q.dtype == k.dtype == v.dtype and q.dtype in (torch.float16, torch.bfloat16),
                 lambda: "fa_tune.attention takes float16 or bfloat16, all three the same")


def _fake_o(q, k, v, layout, cu_seqlens_q, **cache):
    _check(q, k, v, layout, cu_seqlens_q, **cache)
    return q.new_empty((*q.shape[:-1], v.shape[-1]))  # contiguous, as _core allocates it


def _fake_lse(q, layout, cu_seqlens_q):
    if cu_seqlens_q is not None:
        return q.new_empty((q.shape[1], q.shape[0]), dtype=torch.float32)
    heads, seq = (q.shape[1], q.shape[2]) if layout == "bhsd" else (q.shape[2], q.shape[1])
    return q.new_empty((q.shape[0], heads, seq), dtype=torch.float32)


def _attention_fake(q, k, v, causal=False, *, layout="bhsd", cu_seqlens_q=None, seqused_k=None, block_table=None, **_):
    return _fake_o(q, k, v, layout, cu_seqlens_q, seqused_k=seqused_k, block_table=block_table)


def _attention_lse_fake(q, k, v, causal=False, *, layout="bhsd", cu_seqlens_q=None, **more):
    return _attention_fake(q, k, v, layout=layout, cu_seqlens_q=cu_seqlens_q, **more), _fake_lse(q, layout, cu_seqlens_q)


def _attention_out_fake(q, k, v, causal=False, *, layout="bhsd", cu_seqlens_q=None, out, want_lse=False, seqused_k=None,
                        block_table=None, **_):
    _check(q, k, v, layout, cu_seqlens_q, block_table, seqused_k)
    return _fake_lse(q, layout, cu_seqlens_q) if want_lse else q.new_empty(0, dtype=torch.float32)


def _gradient_like(x):
    """Dense, in the order of x's strides, as PyTorch's own gradients are: what made x from a projection undoes it
    without a copy."""
    made = torch.empty_like(x)
    return made if made.stride(-1) == 1 else torch.empty_like(x, memory_format=torch.contiguous_format)


def _attention_backward_fake(d_o, q, k, v, o, lse, causal=False, *, layout="bhsd", sinks=None, cu_seqlens_q=None, buffers=None,
                             buffer_tensors=None, wanted=None, **_):
    _check(q, k, v, layout, cu_seqlens_q)
    held = _buffers(buffers or "", buffer_tensors)
    return (_gradient_like(q), _gradient_like(k), _gradient_like(v), q.new_empty(0 if sinks is None else sinks.shape, dtype=torch.float32),
            [q.new_empty(held[name].shape, dtype=torch.float32) for name in (wanted or "").split()])


# ---- gradients -----------------------------------------------------------------------------------
def gradients(d_o, q, k, v, o, lse, d_lse, words, wanted=()):
    """(dq, dk, dv, d_sinks or None, a list of those of the buffers `wanted` by name, in their order) by our kernel, of the arguments of fa_tune.attention(); with on_miss="sdpa" PyTorch
    computes what there is no kernel for, unless the loss depends on the LSE, of which its kernel takes no gradient."""
    try:
        return _core.attention_backward(d_o, o, lse, d_lse, torch.are_deterministic_algorithms_enabled(), wanted, q, k, v, **words)
    except _errors.Error as error:
        if d_lse is not None or _policy.current.on_miss != "sdpa" or not _policy.is_a_miss(error):
            raise
        return (*_policy.gradients_by_sdpa(d_o, q, k, v, o, lse, error, **words), None, [])


def _attention_backward(d_o, q, k, v, o, lse, *args, d_lse=None, wanted=None, **options):
    q, k, v, o = (x if x.stride(-1) == 1 else x.contiguous() for x in (q, k, v, o))
    names = (wanted or "").split()
    *made, d_sinks, those = gradients(d_o, q, k, v, o, lse, d_lse, _words(*args, **options), tuple(sorted(names)))
    those = dict(zip(sorted(names), those))
    return (*made, q.new_empty(0, dtype=torch.float32) if d_sinks is None else d_sinks, [those[name] for name in names])


def _with_held(words, sinks, starts_q, starts_k, names, held):
    """The options with those that are tensors: `held` are the buffers `names`."""
    if names:
        words = {**words, "buffers": {**words["buffers"], **dict(zip(names, held))}}
    return words if sinks is None and starts_q is None else {"sinks": sinks, "cu_seqlens_q": starts_q, "cu_seqlens_k": starts_k, **words}


def _without_held(words):
    """The inverse: options without the tensors among the buffers; what _Attention takes of those besides."""
    held = {name: x for name, x in sorted((words.get("buffers") or {}).items()) if isinstance(x, torch.Tensor)}
    if not held:
        return words, ()
    if sum(math.prod(x.shape) for x in held.values() if x.requires_grad) > ELEMENTS_MAX:
        raise _errors.NotSupported("gradients of buffers have up to %d elements in all: call detach() on one" % ELEMENTS_MAX)
    return {**words, "buffers": {name: x for name, x in words["buffers"].items() if name not in held}}, (tuple(held), *held.values())


def wants_gradient(*values):
    return torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in values)


class _Attention(torch.autograd.Function):
    """attention, or with `lse` attention_lse, below autograd, and its gradients. `words` are the options of fa_tune.attention()
    that are no tensors; `held` are the tensors among the buffers, `names` theirs, in alphabetical order. Eager calls that nothing but autograd looks at skip PyTorch's dispatcher, which is half of the time
    on the host."""

    @staticmethod
    def forward(ctx, q, k, v, sinks, starts_q, starts_k, words, lse, eager, names=(), *held):
        ctx.words, ctx.eager, ctx.names = words, eager, names
        words = _with_held(words, sinks, starts_q, starts_k, names, held)
        if eager:
            o, told = _core.attention(q, k, v, return_lse=True, **words)
        else:
            with torch._C._AutoDispatchBelowAutograd():
                o, told = torch.ops.fa_tune.attention_lse(q, k, v, **options_of(**words))
        ctx.save_for_backward(q, k, v, o, told, sinks, starts_q, starts_k, *held)
        if not lse:
            return o
        ctx.set_materialize_grads(False)
        return o, told

    @staticmethod
    def backward(ctx, d_o, d_lse=None):
        if d_o is None and d_lse is None:
            return (None,) * len(ctx.needs_input_grad)
        q, k, v, o, lse, sinks, starts_q, starts_k, *held = ctx.saved_tensors
        if d_o is None:
            d_o = torch.zeros_like(o)
        words = _with_held(ctx.words, sinks, starts_q, starts_k, ctx.names, held)
        wanted = tuple(name for name, wants in zip(ctx.names, ctx.needs_input_grad[10:]) if wants)
        if ctx.eager and not torch.is_grad_enabled() and _is_unobserved():
            d_q, d_k, d_v, d_sinks, those = gradients(d_o, q, k, v, o, lse, d_lse, words, wanted)
        else:
            more = {"wanted": " ".join(wanted)} if wanted else {}
            d_q, d_k, d_v, d_sinks, those = torch.ops.fa_tune.attention_backward(d_o, q, k, v, o, lse, d_lse=d_lse, **options_of(**words), **more)
        made = dict(zip(wanted, those))
        d_held = [made[name].to(x.dtype) if name in made else None for name, x in zip(ctx.names, held)]
        return (d_q, d_k, d_v, None if sinks is None else d_sinks, *(None,) * (len(ctx.needs_input_grad) - 4 - len(held)), *d_held)

    @staticmethod
    def jvp(ctx, *_):
        raise _errors.NotSupported("fa_tune.attention has no forward mode (torch.autograd.forward_ad): use torch.autograd.grad")


# Of a class with backward() alone this is what PyTorch's own apply() ends with, after it has asked for vjp().
if hasattr(_Attention, "_backward_cls"):
    _Attention._backward_cls.apply = _Attention.backward
# What Function.apply() comes to where no transform of functorch (vmap, jvp) is under way; those it refuses or handles.
_apply_plainly = super(torch.autograd.Function, _Attention).apply
_is_transformed = torch._C._are_functorch_transforms_active


def _is_unobserved():
    """No TorchDispatchMode is on: nobody traces or counts operators."""
    return torch._C._len_torch_dispatch_stack() == 0


HEAD_DIM_MAX = 256  # of gradients: attn_bwd's, in its operation.json
ELEMENTS_MAX = 1 << 24  # of buffers' gradients, as in _core
MAJOR_MIN = 8       # of compute capabilities: the least of attn_bwd's families
_majors = {-1: MAJOR_MIN}  # of each device by its index; of tensors that are on no GPU the call itself speaks


def _lacks_gradients(q, v):
    """What the call has that no kernel computes gradients for, in words; or None."""
    if q.shape[-1] > HEAD_DIM_MAX or v.shape[-1] > HEAD_DIM_MAX:
        return "for head dims up to %d, not for %d" % (HEAD_DIM_MAX, max(q.shape[-1], v.shape[-1]))
    index = q.get_device()
    major = _majors.get(index)
    if major is None:
        major = _majors[index] = torch.cuda.get_device_capability(index)[0]
    return "on GPUs from Ampere (sm_80) on, not on this one" if major < MAJOR_MIN else None


def _without_gradients(lacks, q, k, v, **words):
    """A call whose gradients have no kernel, by PyTorch where the policy has it so; else it is refused before anything is
    computed."""
    error = _errors.NotSupported(
        "fa_tune.attention has gradients %s: use scaled_dot_product_attention, which fa_tune.policy(on_miss=\"sdpa\") does "
        "by itself, or call it under torch.no_grad()" % lacks)
    if _policy.current.on_miss != "sdpa":
        raise error
    return _policy.computed_by_sdpa({"q": q, "k": k, "v": v, **words}, error)


def _recorded(lse, q, k, v, *args, sinks=None, cu_seqlens_q=None, cu_seqlens_k=None, **options):
    words = _words(*args, **options)
    if not OPTIONS.issuperset(words):
        _refuse(None, words)
    lacks = _lacks_gradients(q, v)
    if lacks is not None:
        return _without_gradients(lacks, q, k, v, return_lse=lse, sinks=sinks, cu_seqlens_q=cu_seqlens_q, **words)
    words, held = _without_held(words)
    return _Attention.apply(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, words, lse, False, *held)


def _recording(lse):
    """The kernel for autograd of attention, or with `lse` of attention_lse."""
    def forward(q, k, v, *args, sinks=None, **options):
        if wants_gradient(q, k, v, sinks, *(options.get("buffer_tensors") or ())):
            return _recorded(lse, q, k, v, *args, sinks=sinks, **options)
        with torch._C._AutoDispatchBelowAutograd():
            operator = torch.ops.fa_tune.attention_lse if lse else torch.ops.fa_tune.attention
            return operator(q, k, v, *args, sinks=sinks, **options)
    return forward


_attention_autograd, _attention_lse_autograd = _recording(False), _recording(True)


def refused(operator, sentence):
    """The operator's kernel for autograd where there is no gradient, and silence would be a trap."""
    def forward(*args, **named):
        if wants_gradient(*args, *named.values(), *(named.get("buffer_tensors") or ())):
            raise _errors.NotSupported(sentence)
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **named)
    return forward


def _autograd_of(name):
    operator = getattr(torch.ops.fa_tune, name).default
    return {"attention": _attention_autograd, "attention_lse": _attention_lse_autograd}.get(name) or refused(
        operator, "fa_tune.attention with out= has no backward: leave out= out" if name == "attention_out" else
        "fa_tune.attention cannot be differentiated twice")


OPTIONS = {"causal", "scale", "layout", "window", "softcap", "max_seqlen_q", "max_seqlen_k", "score", "mask", "buffers"}


def recorded(q, k, v, out=None, return_lse=False, sinks=None, cu_seqlens_q=None, cu_seqlens_k=None, deterministic=False, **words):
    """fa_tune.attention() or attention_varlen() of PyTorch's tensors of which a gradient is recorded."""
    if deterministic:
        check_deterministic()
    if _library is None:
        register()
    if out is not None or not OPTIONS.issuperset(words) or (cu_seqlens_q is None) != (cu_seqlens_k is None):
        _refuse(out, words)
    lacks = _lacks_gradients(q, v)
    if lacks is not None:
        return _without_gradients(lacks, q, k, v, return_lse=return_lse, sinks=sinks, cu_seqlens_q=cu_seqlens_q, **words)
    apply = _Attention.apply if _is_transformed() else _apply_plainly
    words, held = _without_held(words)
    return apply(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, words, bool(return_lse), _is_unobserved(), *held)


def check_deterministic():
    """For attention_varlen(deterministic=True): gradients follow PyTorch's own setting alone."""
    if not torch.are_deterministic_algorithms_enabled():
        raise _errors.NotSupported("deterministic=True is not taken by itself: call torch.use_deterministic_algorithms(True), and "
                                   "gradients have the same bits in every run")


def _refuse(out, words):
    other = sorted(set(words) - OPTIONS)
    raise _errors.NotSupported("fa_tune.attention has no backward pass for a call with %s: leave it out, or call it under "
                               "torch.no_grad()" % ("out=" if out is not None else ", ".join(other) or
                                                    "cu_seqlens_q without cu_seqlens_k"))


# ---- autocast --------------------------------------------------------------------------------------
def _cast(tensors):
    """As torch.autocast has scaled_dot_product_attention cast its inputs."""
    return [x.to(torch.get_autocast_gpu_dtype()) for x in tensors]


def autocast(words):
    """fa_tune.attention() of tensors that are of no type of ours; None: autocast casts nothing."""
    tensors = [words[name] for name in "qkv"]
    if not torch.is_autocast_enabled() or not all(x.dtype in AUTOCAST for x in tensors):
        return None
    if words.get("deterministic") and wants_gradient(*tensors):
        check_deterministic()
    cast = _cast(tensors)
    return None if all(x is y for x, y in zip(cast, tensors)) else _core.attention(*cast, **{
        name: value for name, value in words.items() if name not in ("q", "k", "v", "deterministic")})


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
