# SPDX-License-Identifier: Apache-2.0
"""Tuned kernels as operators of PyTorch: torch.ops.NAMESPACE.NAME, which a compiled graph holds."""
import keyword
import re

from ._errors import ArgumentError

_known = {}  # "my::conv" -> its _Operator


class _Operator:
    def __init__(self, schema, kernel):
        self.schema, self.kernel, self.library = schema, kernel, None

    def named(self, values):
        """What the operator was passed, by the kernel's names."""
        return dict(zip((name for name, _, _, way in self.kernel.arguments if way != "out"), values))


def check(name):
    """Before anything is tuned for it."""
    if not isinstance(name, str) or re.fullmatch(r"[A-Za-z_]\w*::[A-Za-z_]\w*", name) is None:
        raise ArgumentError("torch_op is \"namespace::name\", such as \"my::conv\", not %r" % (name,))
    try:
        import torch  # noqa: F401
    except ImportError:
        raise ArgumentError("torch_op: PyTorch is not installed here, so there is no torch.ops.%s"
                            % name.replace("::", ".")) from None


def schema_of(arguments):
    """Tensors that are read and numbers in the kernel's order; tensors that are written alone are returned."""
    takes, gives = [], 0
    for name, dtype, shape, way in arguments:
        name += "_" * keyword.iskeyword(name)  # schemas have none of them
        if way == "out":
            gives += 1
        elif shape is None:
            takes.append("%s %s" % ("float" if dtype.startswith("fp") else "int", name))
        else:
            takes.append("Tensor%s %s" % ("(a%d!)" % len(takes) if way == "inout" else "", name))
    if not any(word.startswith("Tensor") for word in takes):
        raise ArgumentError("torch_op: the kernel reads no tensor, and so nothing says on which device it works")
    return "(%s) -> %s" % (", ".join(takes), "Tensor" if gives == 1 else "(%s)" % ", ".join(["Tensor"] * gives))


def define(name, kernel):
    """Makes the operator, or gives one that is there another kernel of the same arguments."""
    schema = schema_of(kernel.arguments)
    known = _known.get(name)
    if known is None:
        made = _Operator(schema, kernel)
        made.library = _register(name, made)  # what it registered ends with it
        _known[name] = made
    elif known.schema != schema:
        raise ArgumentError("torch_op: %s is there already and takes %s: give another name" % (name, known.schema))
    else:
        known.kernel = kernel


def _register(name, made):
    import torch

    from . import _torch_ops

    def run(*values):
        return made.kernel(**made.named(values))

    def fake(*values):
        words, outputs = made.named(values), []
        like = next(x for x in values if isinstance(x, torch.Tensor))
        for one, dtype, shape, way in made.kernel.arguments:
            if way == "out":
                outputs.append(like.new_empty(shape, dtype=_dtype(torch, dtype)))
            elif shape is not None:
                _check(torch, one, words[one], dtype, shape)
        return outputs[0] if len(outputs) == 1 else tuple(outputs) or None

    namespace, _, short = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    _torch_ops.define(library, namespace, short, made.schema, run, fake, lambda operator: _torch_ops.refused(
        operator, "%s has no backward pass: call it under torch.no_grad(), or pass x.detach()" % name))
    return library


def _dtype(torch, dtype):
    dtype = {"fp8_e4m3": "fp8_e4m3fn"}.get(dtype, dtype)
    return getattr(torch, {"fp": "float", "bf": "bfloat"}.get(dtype[:2], dtype[:2]) + dtype[2:])


def _check(torch, name, x, dtype, shape):
    torch._check(tuple(x.shape) == shape and x.dtype == _dtype(torch, dtype),
                 lambda: "%s is %s of shape %s, and the kernel was tuned for %s of shape %s"
                 % (name, x.dtype, tuple(x.shape), dtype, shape))
