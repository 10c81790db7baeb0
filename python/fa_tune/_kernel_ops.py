# SPDX-License-Identifier: Apache-2.0
"""Tuned kernels as operators of PyTorch: torch.ops.NAMESPACE.NAME, which a compiled graph holds."""
import keyword
import re

from ._errors import ArgumentError

_known = {}  # "my::conv" -> its schema and the list that has its kernel


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
            takes.append("%s %s" % ("int" if dtype.startswith("int") else "float", name))
        else:
            takes.append("Tensor%s %s" % ("(a%d!)" % len(takes) if way == "inout" else "", name))
    if not any(word.startswith("Tensor") for word in takes):
        raise ArgumentError("torch_op: the kernel reads no tensor, and so nothing says on which device it works")
    return "(%s) -> %s" % (", ".join(takes), "Tensor" if gives == 1 else "(%s)" % ", ".join(["Tensor"] * gives))


def define(name, kernel):
    """Makes the operator, or gives one that is there another kernel of the same arguments."""
    schema = schema_of(kernel.arguments)
    if name not in _known:
        _known[name] = schema, [kernel]
        try:
            _register(name, schema, _known[name][1])
        except Exception:
            del _known[name]
            raise
    elif _known[name][0] != schema:
        raise ArgumentError("torch_op: %s is there already and takes %s: give another name" % (name, _known[name][0]))
    else:
        _known[name][1][0] = kernel


def _register(name, schema, holds):
    import torch

    from . import _torch_ops

    def given(arguments, values):
        named = [one for one in arguments if one[3] != "out"]
        return dict(zip((one[0] for one in named), values)), named

    def run(*values):
        words, _ = given(holds[0].arguments, values)
        return holds[0](**words)

    def fake(*values):
        arguments = holds[0].arguments
        words, named = given(arguments, values)
        for one, dtype, shape, _ in named:
            if shape is not None:
                _check(torch, one, words[one], dtype, shape)
        like = next(x for x in values if isinstance(x, torch.Tensor))
        made = [like.new_empty(shape, dtype=_dtype(torch, dtype)) for _, dtype, shape, way in arguments if way == "out"]
        return made[0] if len(made) == 1 else tuple(made) or None

    namespace, _, short = name.partition("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    _torch_ops.define(library, namespace, short, schema, run, fake, lambda operator: _torch_ops.refused(
        operator, "%s has no backward pass: call it under torch.no_grad(), or pass x.detach()" % name))
    holds.append(library)  # which ends what it registered when it ends


def _dtype(torch, dtype):
    return getattr(torch, {"fp": "float", "bf": "bfloat"}.get(dtype[:2], dtype[:2]) + dtype[2:])


def _check(torch, name, x, dtype, shape):
    torch._check(tuple(x.shape) == shape and x.dtype == _dtype(torch, dtype),
                 lambda: "%s is %s of shape %s, and the kernel was tuned for %s of shape %s"
                 % (name, x.dtype, tuple(x.shape), dtype, shape))
