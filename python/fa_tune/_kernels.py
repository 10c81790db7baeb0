# SPDX-License-Identifier: Apache-2.0
"""Kernels of one's own: a kernel specification as a Python call (docs/your-own-kernel.md)."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from . import _core
from ._errors import ArgumentError
from ._objects import Answer
from ._problem import Problem, shown


class _Argument(dict):
    """What a specification says of one argument, but for its name."""


class _Size(dict):
    """What a specification says of one size."""


def array(type: Any, *shape: int | str, range: Sequence[int | str] | None = None, align: int | None = None) -> Any:
    """A tensor that the kernel reads: its type ("f32", a dtype of PyTorch or NumPy) and its shape, numbers and expressions.

    range   of integers: the values that proofs draw, as in range=(0, "n"), the second excluded
    align   bytes that its address is a multiple of (16)
    """
    return _tensor("in", type, shape, range, align)


def out(type: Any, *shape: int | str, align: int | None = None) -> Any:
    """A tensor that the kernel writes whole; as array()."""
    return _tensor("out", type, shape, None, align)


def inout(type: Any, *shape: int | str, align: int | None = None) -> Any:
    """A tensor that the kernel reads and changes: proofs and timings give it anew before every launch. As array()."""
    return _tensor("inout", type, shape, None, align)


def scalar(type: Any, value: float | str) -> Any:
    """A number that the kernel takes: callers pass it, and proofs use `value`; or an expression of the sizes, which they do not."""
    return _Argument(type=_type(type), value=value)


def fixed(value: int) -> Any:
    """A size that proofs keep as it is, because the kernel is right for no other."""
    return _Size(default=value, fixed=True)


def _tensor(way, type_, shape, range_, align):
    given = {"type": _type(type_), "shape": list(shape), "is": way, "align": align,
             "range": None if range_ is None else [str(end) for end in range_]}
    return _Argument({name: value for name, value in given.items() if value is not None})


def _type(given):
    """A type's short name: of "f32", "fp32", torch.float32, numpy.float32."""
    text = given if isinstance(given, str) else getattr(given, "__name__", str(given))
    found = re.fullmatch(r"(?:torch\.)?(bfloat|bf|uint|int|float|fp|f|i|u)(8|16|32|64)", text)
    if text in ("torch.half", "half"):
        return "f16"
    if found is None:
        raise ArgumentError("an argument's type is one such as \"f32\", \"bf16\", \"i64\", or a dtype, not %s" % shown(given))
    letters, bits = found.groups()
    return {"bfloat": "bf", "uint": "u", "int": "i", "float": "f", "fp": "f"}.get(letters, letters) + bits


class TunedKernel:
    """A kernel that tune_kernel() has tuned: kernel(*arguments) launches its winner on the arguments' stream.

    problem   the sizes that it was tuned for; kernel.at(n=…) is the kernel of other sizes, tuned where it is not
    answer    fa_tune.Answer: its config, its time, how it is known
    operation   its name for fa_tune.Problem, fa_tune.tune() and others
    """

    __slots__ = ("operation", "problem", "_kernel", "_device", "_effort", "_progress")

    def __init__(self, operation, problem, device, effort, progress):
        from . import _engine
        self.operation, self.problem = operation, problem
        self._device, self._effort, self._progress = device, effort, progress
        asked = {**problem.as_dict(), "operation": operation}
        self._kernel = _core.best_kernel(asked, effort=effort, device=_engine.ordinal(device),
                                         progress=_engine.reporter(progress))

    def __call__(self, *arguments: Any, stream: Any = None, **named: Any) -> Any:
        """Launches the kernel: tensors (DLPack) and numbers in its order or by name; an output that is left out is made."""
        return self._kernel(*arguments, stream=stream, **named) if stream is not None else self._kernel(*arguments, **named)

    def at(self, **sizes: int) -> TunedKernel:
        """The kernel of other sizes; those that are left out stay."""
        fields = {**self.problem.as_dict(), **sizes, "operation": self.operation}
        return TunedKernel(self.operation, Problem(**fields), self._device, self._effort, self._progress)

    @property
    def answer(self) -> Answer:
        return self._kernel.answer

    def __repr__(self):
        return "TunedKernel: " + repr(self.answer)


def tune_kernel(source: str | os.PathLike, *, args: Mapping[str, Any] | None = None,
                tune: Mapping[str, Sequence[int | bool]] | None = None, block: Any = None, grid: Any = None,
                kernel: str | None = None, name: str | None = None, sizes: Mapping[str, Any] | None = None,
                restrictions: Sequence[str] = (), defines: Mapping[str, str | int] | None = None,
                default: Mapping[str, int | bool] | None = None, shared_memory: str | int | Mapping | None = None,
                answer: str | Mapping[str, Any] | None = None, rtol: float | None = None, atol: float | None = None,
                flops: str | None = None, bytes: str | None = None, work: Mapping[str, str] | None = None, device: int | None = None,
                effort: str = "measure", progress: Callable[[dict], Any] | bool | None = None,
                **at: int) -> TunedKernel:
    """Tunes a CUDA kernel of one's own as it stands, and returns it ready to be called.

    add = fa_tune.tune_kernel(
        "add.cu",                                          # a file, or CUDA C++ itself
        args=dict(c=fa_tune.out("f32", "n"), a=fa_tune.array("f32", "n"), b=fa_tune.array("f32", "n"), n=1 << 20),
        tune=dict(THREADS=[64, 128, 256, 512]),            # each is a macro of the kernel
        block="THREADS", grid="ceil_div(n, THREADS)", answer="add_naive")
    add(c, a, b)

    args      the kernel's arguments in its order: array(), out(), inout(), scalar(), a float (fp32), or a number or fixed(),
              which is a size and an int that callers do not pass
    tune      the tunables: the macros that the kernel reads, and their values
    block, grid   one to three expressions of sizes and tunables
    kernel    the __global__ function, where the source has several
    sizes     sizes that the kernel is not passed
    restrictions   expressions that a config must hold to
    defines   further macros, expressions of sizes and tunables; problems that differ in such a size are other kernels
    default   the config that others are compared with; the first that holds to the restrictions where none is given
    answer    another kernel of the source, or {"kernel", "block", "grid"}, that computes what is right with the same arguments;
              None: the configs must agree with one another, and the winner is not proved
    rtol, atol   how far outputs may be from the answer (1e-5 of fp32, also of the output's largest element)
    flops, bytes, work   what a launch does, for reports; and for a model of it (docs/operations.md)
    at        sizes other than those of `args`, for this call

    A file NAME.cu whose head has the specification needs no other argument: tune_kernel("conv2d.cu", w=4096).
    Raises fa_tune.Error with a sentence. Needs a GPU; `fa-tune NAME.cu --gpu L4` does not.
    """
    path = os.fspath(source)
    is_text = "__global__" in path
    if args is None:
        operation = _core.load_specification(path, None, None)
        return TunedKernel(operation, Problem(operation=operation, **at), device, effort, progress)
    where = name or (kernel or "kernel" if is_text else os.path.basename(path).partition(".")[0])
    if not is_text:
        with open(path, encoding="utf-8") as file:
            source = file.read()
    arguments, all_sizes = _arguments(args, dict(sizes or {}))
    specification = {
        "name": name, "kernel": kernel, "arguments": arguments, "sizes": all_sizes, "tune": tune or {}, "block": block,
        "grid": grid, "restrictions": list(restrictions), "defines": defines, "default": default,
        "shared_memory": shared_memory, "answer": answer, "rtol": rtol, "atol": atol, "flops": flops, "bytes": bytes, "work": work}
    try:
        text = json.dumps({key: value for key, value in specification.items() if value is not None}, default=_number)
    except TypeError as error:
        raise ArgumentError("a kernel specification: %s" % error) from None
    operation = _core.load_specification(where, text, source)
    return TunedKernel(operation, Problem(operation=operation, **at), device, effort, progress)


def _number(value):
    """NumPy's integers, and what else is one."""
    return value.__index__()


def _arguments(args, sizes):
    """The list of arguments, and the sizes with those among them."""
    arguments = []
    for name, given in args.items():
        if isinstance(given, _Argument):
            arguments.append({"name": name, **given})
        elif isinstance(given, float):
            arguments.append({"name": name, "type": "f32", "value": given})
        elif isinstance(given, _Size) or hasattr(given, "__index__"):
            arguments.append({"name": name})
            sizes[name] = given
        else:
            raise ArgumentError("args: %s is array(), out(), inout(), scalar(), fixed() or a number, not %s" % (name, shown(given)))
    return arguments, sizes
