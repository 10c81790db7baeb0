# SPDX-License-Identifier: Apache-2.0
"""What decides the result of a caller's function, as a hash: winners that it proved are kept by it.

Objects count by their content: code with defaults, closure, globals and the functions that it calls; containers, arrays and
instances by what they would be pickled as. Where content cannot be had surely (files, locks, generators, eval), the fingerprint
is one that no other call has, so that nothing that was proved before is found by it.
"""
from __future__ import annotations

import builtins
import ctypes
import dis
import functools
import hashlib
import os
import secrets
import sys
import sysconfig
import types
from collections.abc import Iterator
from typing import Any

from ._errors import TensorError
from ._progress import note

# Modules whose functions and classes are known by their names.
KNOWN = frozenset(sys.stdlib_module_names) | {"numpy", "scipy", "torch", "cupy", "jax", "ml_dtypes", "fa_tune"}
# Names that lead to something which no object holds.
OUTSIDE = {"open", "input", "eval", "exec", "globals", "__import__", "import_module", "getenv", "load", "loadtxt", "genfromtxt", "fromfile",
           "memmap", "read_text", "read_bytes", "subprocess", "popen", "urlopen"}
PLAIN = (bool, int, float, complex, str, type(None), type(...), type(NotImplemented))
CODE = ("co_code", "co_consts", "co_names", "co_varnames", "co_freevars", "co_cellvars", "co_argcount", "co_posonlyargcount",
        "co_kwonlyargcount", "co_flags", "co_exceptiontable")
OF_NO_MATTER = {"__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__", "_abc_impl"}
UNSURE = "unsure-"


class _Unsure(Exception):
    """Something has no content that can be hashed."""


@functools.lru_cache(None)
def _is_shadowed(file: str) -> bool:
    return not os.path.realpath(file).startswith(tuple(os.path.realpath(sysconfig.get_path(one)) for one in ("stdlib", "platstdlib")))


def _is_known(module: Any) -> bool:
    """Whether it is one of those, and not the caller's own of a name that the standard library has, too."""
    name = module.partition(".")[0] if isinstance(module, str) else ""
    file = getattr(sys.modules.get(name), "__file__", None) if name in sys.stdlib_module_names else None
    return name in KNOWN and not (file and _is_shadowed(file))


def _module_of(value: Any) -> Any:
    """Where it was made, whatever functools.wraps() says of it."""
    if isinstance(value, types.FunctionType):
        return value.__globals__.get("__name__")
    return getattr(value, "__module__", None) or type(value).__module__


def _known_name(value: Any) -> tuple[str, str] | None:
    """Module and name of what a known module has under its own name."""
    module = _module_of(value)
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not _is_known(module) or not isinstance(name, str):
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name) if found is value else None


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _used(function: types.FunctionType) -> Iterator[Any]:
    """The values of names that a function and those within it do not make themselves."""
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or ()))
    for name, cell in closure.items():
        try:
            closure[name] = cell.cell_contents
        except ValueError:  # nothing yet
            closure[name] = None
    for name, value in closure.items():
        if not isinstance(value, types.ModuleType):
            yield name
            yield value
    for code in _codes(function.__code__):
        if OUTSIDE.intersection(code.co_names):
            raise _Unsure(OUTSIDE.intersection(code.co_names).pop() + "()")
        steps = [step for step in dis.get_instructions(code) if step.opname != "EXTENDED_ARG"]
        for at, step in enumerate(steps):
            if step.opname == "IMPORT_NAME" and not _is_known(step.argval):
                raise _Unsure("import " + step.argval)
            scope = {"LOAD_GLOBAL": function.__globals__, "LOAD_NAME": function.__globals__, "LOAD_DEREF": closure}.get(step.opname)
            if scope is not None and step.argval in scope:
                yield from _reached(scope[step.argval], steps[at + 1:])
            elif scope is function.__globals__ and not hasattr(builtins, step.argval):
                yield "undefined"


def _reached(value: Any, steps: list[dis.Instruction]) -> Iterator[Any]:
    """Of a module, what is taken from it."""
    for step in steps:
        if not isinstance(value, types.ModuleType):
            break
        if step.opname not in ("LOAD_ATTR", "LOAD_METHOD") or not hasattr(value, step.argval):
            if not _is_known(value.__name__):
                raise _Unsure("the module " + value.__name__)
            return
        known, value = _is_known(value.__name__), getattr(value, step.argval)
        if known and callable(value) and _is_known(_module_of(value)):
            bound = getattr(value, "__self__", None)
            if hasattr(bound, "getstate") or hasattr(bound, "get_state"):
                raise _Unsure(step.argval + "()")  # of one generator of random numbers for all
            return
    yield value


def on_host(tensor, name):
    """The elements of a tensor, one behind another, as bytes."""
    if hasattr(tensor, "data_ptr"):  # of PyTorch; NumPy, which it would hand them through, has no bfloat16
        tensor = tensor.detach().cpu()
        if tensor.is_complex():  # which may be conjugated later
            tensor = tensor.resolve_conj()
        tensor = tensor.contiguous()
        return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())
    try:
        if hasattr(tensor, "get"):  # of CuPy
            tensor = tensor.get()
        return tensor.tobytes() if hasattr(tensor, "tobytes") else memoryview(tensor).tobytes()
    except TypeError as error:
        raise TensorError("the elements of %s cannot be read (%s): pass an array of NumPy, CuPy or PyTorch, or describe it "
                          "with fa_tune.array(\"f32\", …)" % (name, error)) from error


class _Content:
    def __init__(self) -> None:
        self.known: dict[int, tuple[bytes, Any]] = {}  # with the object, whose id is then no other's
        self.under_way: list[int] = []

    def of(self, value: Any) -> bytes:
        if type(value) in PLAIN:
            return self.joined(type(value).__name__, repr(value).encode())
        if id(value) in self.under_way:
            return self.joined("the one around it", b"%d" % (len(self.under_way) - self.under_way.index(id(value))))
        if id(value) not in self.known:
            self.under_way.append(id(value))
            told = self.joined(type(value).__qualname__, *self.parts(value))
            self.under_way.pop()
            self.known[id(value)] = told, value
        return self.known[id(value)][0]

    @staticmethod
    def joined(tag: str, *parts: bytes) -> bytes:
        hashed = hashlib.sha256(tag.encode())
        for part in parts:
            hashed.update(b"%d:" % len(part))
            hashed.update(part)
        return hashed.digest()

    def each(self, *values: Any) -> list[bytes]:
        return list(map(self.of, values))

    def parts(self, value: Any) -> list[bytes]:
        if type(value) in (bytes, bytearray):
            return [bytes(value)]
        if type(value) in (tuple, list):
            return [repr(value).encode()] if all(type(one) in PLAIN for one in value) else self.each(*value)
        if type(value) in (set, frozenset):  # whose order is another in each process
            return sorted(self.each(*value))
        if type(value) in (dict, types.MappingProxyType):
            return self.each(*value, *value.values())
        if isinstance(value, types.CodeType):
            return self.each(*(getattr(value, name, None) for name in CODE))
        named = _known_name(value)
        if named is not None:
            if named[1] in OUTSIDE:
                raise _Unsure(named[1] + "()")
            return self.each(*named)
        if isinstance(value, types.FunctionType):
            return self.each(value.__code__, value.__defaults__, value.__kwdefaults__, vars(value), *_used(value))
        if isinstance(value, (staticmethod, classmethod)):
            return self.each(value.__func__)
        if isinstance(value, property):
            return self.each(value.fget, value.fset, value.fdel)
        if isinstance(value, types.ModuleType):
            if _is_known(value.__name__):
                return self.each(value.__name__)
            raise _Unsure("the module " + value.__name__)
        if isinstance(value, type):
            return self.each(type(value), *value.__bases__, {
                name: member for name, member in vars(value).items() if name not in OF_NO_MATTER})
        if hasattr(value, "data_ptr"):
            return [*self.each(type(value), str(value.dtype), tuple(value.shape)), on_host(value, "a tensor")]
        return self.pickled(value)

    def pickled(self, value: Any) -> list[bytes]:
        for name in ("__reduce_ex__", "__reduce__", "__getstate__"):  # of the caller's own, which may leave something out
            where = next((one for one in type(value).__mro__ if name in vars(one)), object)
            if not _is_known(where.__module__) and not _is_known(getattr(vars(where)[name], "__module__", None)):
                raise _Unsure(type(value).__qualname__ + "." + name)
        own = getattr(value, "__dict__", None)  # first: functools.partial makes it when it is asked
        told = value.__reduce_ex__(4)
        if isinstance(told, str):
            if not hasattr(value, "__wrapped__"):  # as functools.cache() has
                raise _Unsure(told)
            return self.each(type(value), value.__wrapped__)
        made, arguments, state, items, pairs = (*told, None, None, None)[:5]
        return self.each(made, arguments, state, list(items or ()), list(pairs or ()), own)


def fingerprint(value: Any) -> str:
    """A text that another value, or an edited function, does not have."""
    within = value.func if isinstance(value, functools.partial) else value
    name = getattr(within, "__qualname__", type(within).__qualname__)
    try:
        told = _Content().of(value).hex()[:16]
    except Exception as error:  # pylint: disable=broad-except  # whatever a caller's object makes of the question
        note("what %s returns may depend on more than can be compared (%s): it is asked, and the kernel tuned, anew in each process"
             % (name, error))
        told = UNSURE + secrets.token_hex(8)
    return "%s:%s" % (name, told)


def is_sure(text: str) -> bool:
    """Whether the same value has the same fingerprint again."""
    return UNSURE not in text
