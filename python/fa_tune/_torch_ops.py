# SPDX-License-Identifier: Apache-2.0
"""torch.ops.fa_tune: the operators that a compiled graph holds.

    attention(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False) -> o
    attention_lse(…) -> (o, lse)
    attention_out(…, *, out, want_lse=False) -> lse, written only when it is wanted

They are defined without torch.library.custom_op, which costs a call 8 to 11 µs. Eager code is better
served by fa_tune.attention(), which does not go through PyTorch's dispatcher.
"""
import torch

from . import _core, _errors

_ARGUMENTS = ("Tensor q, Tensor k, Tensor v, bool causal=False, *, float? scale=None, "
              "str layout='bhsd', bool top_left=False")
SCHEMAS = {
    "attention": "(%s) -> Tensor" % _ARGUMENTS,
    "attention_lse": "(%s) -> (Tensor, Tensor)" % _ARGUMENTS,
    "attention_out": "(%s, Tensor(a!) out, bool want_lse=False) -> Tensor" % _ARGUMENTS,
}
_library = None


def _mask(causal, top_left):
    return "top-left" if causal and top_left else causal


def _attention(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False):
    return _core.attention(q, k, v, causal=_mask(causal, top_left), scale=scale, layout=layout)


def _attention_lse(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False):
    return _core.attention(q, k, v, causal=_mask(causal, top_left), scale=scale, layout=layout,
                           return_lse=True)


def _attention_out(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False, out,
                   want_lse=False):
    told = _core.attention(q, k, v, causal=_mask(causal, top_left), scale=scale, layout=layout,
                           out=out, return_lse=want_lse)
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


def _attention_fake(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False):
    return _fake_o(q, k, v, layout)


def _attention_lse_fake(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False):
    return _fake_o(q, k, v, layout), _fake_lse(q, layout)


def _attention_out_fake(q, k, v, causal=False, *, scale=None, layout="bhsd", top_left=False, out,
                        want_lse=False):
    _check(q, k, v, layout)
    return _fake_lse(q, layout) if want_lse else q.new_empty(0, dtype=torch.float32)


# ---- gradients -----------------------------------------------------------------------------------
def _without_gradient(operator):
    """The operator's kernel for autograd: there is no backward yet, and silence would be a trap."""
    def forward(*args, **named):
        tensors = [x for x in (*args, *named.values()) if isinstance(x, torch.Tensor)]
        if torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
            raise _errors.NotSupported(
                "fa_tune.attention has no backward yet: call it under torch.no_grad() or "
                "torch.inference_mode(), or detach() its inputs; train with PyTorch's "
                "scaled_dot_product_attention")
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **named)
    return forward


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
        library.impl(name, _without_gradient(getattr(torch.ops.fa_tune, name).default), "Autograd")
        register_fake("fa_tune::" + name, globals()["_%s_fake" % name], lib=library)
    _library = library
