# SPDX-License-Identifier: Apache-2.0
"""Kernels of one's own: a kernel specification as a Python call (docs/your-own-kernel.md)."""
from __future__ import annotations

import inspect
import json
import math
import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from . import _cases, _core, _kernel_ops
from ._errors import ArgumentError, Error, NotSupported, did_you_mean, shown
from ._functions import check_search
from ._objects import Answer
from ._problem import Problem
from ._types import Effort, Progress


WRITTEN = ("out", "partial", "scratch")  # ways of arguments that the kernel is given nothing in


class _Argument(dict):
    """What a specification says of one argument, but for its name."""

    tensor: Any = None  # its array, where one is given
    whole = False  # whether its shape is the array's


class _Size(dict):
    """What a specification says of one size."""


def array(type: Any, *shape: int | str, range: Sequence[int | str] | None = None, align: int | None = None,
          symbol: str | None = None, parameter: bool = False) -> Any:
    """A tensor that the kernel reads: its type ("f32", "f8e4m3", "c64", a dtype of PyTorch, NumPy or ml_dtypes) and its shape,
    numbers and expressions. Or an array, of which the type is taken, and the shape where none is said: kernels are proved and timed with its numbers.

    range   of integers: the values that proofs draw, as in range=(0, "n"), the second excluded
    align   bytes that its address is a multiple of (16)
    symbol  a __constant__ variable of the source that it is copied to before each launch: the kernel does not take it as a
            parameter, unless parameter=True says that it does so, too
    """
    return _tensor("in", type, shape, range, align, symbol, parameter or None)


def out(type: Any, *shape: int | str, align: int | None = None, symbol: str | None = None) -> Any:
    """A tensor that the kernel writes whole; as array(). symbol: a __device__ variable of the source that has it after a launch."""
    return _tensor("out", type, shape, None, align, symbol)


def inout(type: Any, *shape: int | str, align: int | None = None, symbol: str | None = None) -> Any:
    """A tensor that the kernel reads and changes: proofs and timings give it anew before every launch. As array()."""
    return _tensor("inout", type, shape, None, align, symbol)


def partial(type: Any, *shape: int | str, align: int | None = None, symbol: str | None = None) -> Any:
    """A tensor of partial results, of which a config may write a part, as blocks of a reduction do: proofs give it as zeros
    and compare the sum of its elements. Callers pass it, as zeros. As array()."""
    return _tensor("partial", type, shape, None, align, symbol)


def scratch(type: Any, *shape: int | str) -> Any:
    """A tensor that launches of a call share, of sizes and tunables: the library has it, and callers do not pass it. Nothing is
    known of its content before the first launch. As array()."""
    return _tensor("scratch", type, shape, None, None)


def scalar(type: Any, value: float | str) -> Any:
    """A number that the kernel takes: callers pass it, and proofs use `value`; or an expression of the sizes, which they do not."""
    return _Argument(type=_cases.type_of(type), value=value)


def struct(**fields: Any) -> Any:
    """A struct that the kernel takes by value: its fields in their order, each as args has arguments. Callers pass the fields one by
    one. A record of NumPy's (a scalar of an aligned dtype with names) is one, too, of its numbers."""
    return _Argument(fields=fields)


def fixed(value: int) -> Any:
    """A size that proofs keep as it is, because the kernel is right for no other."""
    return _Size(default=value, fixed=True)


def _tensor(way, type_, shape, range_, align, symbol=None, parameter=None):
    if range_ is not None and (isinstance(range_, str) or not isinstance(range_, Sequence) or len(range_) != 2):
        raise ArgumentError("range is a pair, such as (0, \"n\"), not %s" % shown(range_))
    array = type_ if _cases.is_tensor(type_) else None
    whole = array is not None and not shape
    if array is not None:
        type_, shape = array.dtype, shape or tuple(array.shape)
    given = {"type": _cases.type_of(type_), "shape": [_index(size) for size in shape], "is": way, "align": align,
             "range": None if range_ is None else [str(end) for end in range_], "symbol": symbol, "parameter": parameter}
    argument = _Argument({name: value for name, value in given.items() if value is not None})
    argument.tensor, argument.whole = array, whole
    return argument


def _index(size):
    if not isinstance(size, str) and not hasattr(size, "__index__"):
        raise ArgumentError("a shape has whole numbers and expressions, such as \"n + 1\", not %s" % shown(size))
    return size if isinstance(size, str) else operator.index(size)


class NotLoaded(NotSupported, AttributeError):
    """What a kernel for a GPU elsewhere lacks; hasattr() says so."""


class TunedKernel:
    """A kernel that tune_kernel() has tuned: kernel(*arguments) launches its winner on the arguments' stream.

    problem   the sizes that it was tuned for; kernel.at(n=…) is the kernel of other sizes, tuned where it is not
    answer    fa_tune.Answer: its config, its time, how it is known
    configs   all that were tried, each with what is known of it
    operation   its name for fa_tune.Problem, fa_tune.tune() and others
    """

    __slots__ = ("answer", "operation", "problem", "_loaded", "_how")
    answer: Answer

    def __init__(self, operation: str, problem: Problem, how: Mapping[str, Any]) -> None:
        from . import _engine
        self.operation, self.problem, self._how, self._loaded = operation, problem, how, None
        if how["gpu"] is None:
            self._loaded = _core.best_kernel(self._asked, effort=how["effort"], device=_engine.ordinal(how["device"]),
                                             progress=_engine.reporter(how["progress"]), **how["search"])
            self.answer = self._loaded.answer
        else:
            self.answer = Answer(_engine.tune(self._asked, how["gpu"], how["device"], how["effort"], False, False,
                                              how["progress"], **how["search"]))

    @property
    def _asked(self):
        return {**self.problem.as_dict(), "operation": self.operation}

    @property
    def _kernel(self):
        if self._loaded is None:
            raise NotLoaded("this kernel was made for gpu=%r and is not loaded: leave gpu= out to tune it for the device here, "
                             "and to call it" % self._how["gpu"])
        return self._loaded

    def __call__(self, *arguments: Any, stream: Any = None, **named: Any) -> Any:
        """Launches the kernel: tensors (DLPack) and numbers in its order or by name; an output that is left out is made."""
        return self._kernel(*arguments, stream=stream, **named) if stream is not None else self._kernel(*arguments, **named)

    def at(self, **sizes: int) -> TunedKernel:
        """The kernel of other sizes; those that are left out stay."""
        def of(operation):
            return TunedKernel(operation, Problem(**{**self.problem.as_dict(), **sizes, "operation": operation}), self._how)
        try:
            return of(self.operation)
        except _cases.AnswerChanged:
            return of(self._how["load"]())

    def save(self, path: str | os.PathLike) -> None:
        """Writes the winner, its cubin and what was measured beside it to a bundle, as `fa-tune export` does, signed with this
        user's key (PATH.minisig beside it): tune_kernel(…, bundle=path) finds it on other machines that trust the key."""
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentError("path is the path of the bundle's file, such as \"axpy.bundle\", not %s" % shown(path))
        _core.export(self._kernel, path)

    @property
    def arguments(self) -> list[tuple[str, str, tuple[int, ...] | None, str]]:
        """What it is called with: names, types, shapes (None: a number), and whether it is "in", "out" or "inout"."""
        return self._kernel.arguments

    @property
    def configs(self) -> list[dict[str, Any]]:
        """Every config and where it ended, as a trial of docs/json.md: registers, spill_bytes, smem_bytes, static_smem_bytes,
        blocks_per_sm, times. Best first; "rank" is None where no time, or none of the model's, tells a config from others."""
        from . import _engine
        rows = _core.configs(self._asked, _engine.gpu_name(self._how["gpu"]), _engine.ordinal(self._how["device"]))
        tied = self.answer.ties + 1 if self.answer.origin == "predicted" and self.answer.ties else 0
        for row in rows:
            told = row["median_us"] or row["predicted_us"]
            row["rank"] = row["rank"] if told and row["rank"] > tied else None
        return rows

    def __repr__(self) -> str:
        return "TunedKernel: " + repr(self.answer)


def tune_kernel(source: str | os.PathLike[str], *, args: Mapping[str, Any] | None = None,
                tune: Mapping[str, Sequence[float | bool | str]] | None = None, block: Any = None, grid: Any = None,
                cooperative: bool | None = None, kernel: str | None = None, name: str | None = None, sizes: Mapping[str, Any] | None = None,
                restrictions: Sequence[str] | None = None, defines: Mapping[str, str | int] | None = None,
                default: Mapping[str, float | bool | str] | None = None, shared_memory: str | int | Mapping[str, Any] | None = None,
                answer: Any = None, rtol: float | None = None, atol: float | None = None,
                flops: str | None = None, bytes: str | None = None, work: Mapping[str, str] | None = None,
                launches: Sequence[Mapping[str, Any]] | None = None,
                include: Sequence[str] | None = None, options: Sequence[str] | None = None, device: int | None = None,
                effort: Effort = "measure", progress: Progress = None,
                strategy: str | None = None, evaluations: int | None = None, seconds: float | None = None, memory: int | None = None,
                bundle: str | os.PathLike[str] | None = None, torch_op: str | None = None, gpu: str | None = None,
                **at: int) -> TunedKernel:
    """Tunes a CUDA kernel of one's own as it stands, and returns it ready to be called.

    add = fa_tune.tune_kernel(
        "add.cu",                                          # a file, or CUDA C++ itself
        args=dict(c=fa_tune.out("f32", "n"), a=fa_tune.array("f32", "n"), b=fa_tune.array("f32", "n"), n=1 << 20),
        tune=dict(THREADS=[64, 128, 256, 512]),            # each is a macro of the kernel
        block="THREADS", grid="ceil_div(n, THREADS)", answer="add_naive")
    add(c, a, b)

    args      the kernel's arguments in its order: array(), out(), inout(), partial(), scalar(), a float (of the parameter's type), or a number,
              fixed() or {"default", "multiple", "max"}, which is a size and an int that callers do not pass; or an array, of
              which type, shape and numbers are taken
    tune      the tunables: the macros that the kernel reads, and their values
    block, grid   one to three expressions of sizes and tunables
    cooperative   True: all blocks are resident at once, for a kernel that waits for its whole grid (grid.sync())
    kernel    the __global__ function, where the source has several
    sizes     sizes that the kernel is not passed
    restrictions   expressions that a config must hold to
    defines   further macros, expressions of sizes and tunables; problems that differ in such a size are other kernels
    default   the config that others are compared with; the first that holds to the restrictions where none is given
    answer    what is right. A function, which is called once for each case of the proof with NumPy's arrays and numbers by the
              names that it takes, and returns the output, or several in their order or by name. Another kernel of the
              source, or {"kernel", "block", "grid", "shared_memory", "arguments"}, with the default config's tunables. An array, or
              several, for inputs that are arrays. None: the configs must agree with one another, and the winner is not proved
    rtol, atol   how far outputs may be from the answer (1e-5 of fp32 and four steps of f16, also of the output's largest element)
    flops, bytes, work   what a launch does, for reports; and for a model of it (docs/your-own-kernel.md)
    launches  one to five of {"kernel", "block", "cooperative", "grid", "shared_memory", "work"} in place of these arguments, in
              the order in which they run; "arguments" of one names those that its kernel takes, and "when" leaves it out
    include   folders of files that the source includes, from the source's own on
    options   of NVRTC, as in ("-std=c++20", "-use_fast_math")
    strategy, evaluations, seconds   how the space is searched, and when that ends; the default tries all of 20,000 configs
    memory    bytes of GPU memory that tensors and workspaces may take; None: half of what is free when the tune begins
    bundle    a file of TunedKernel.save(): its winner is taken into the store, so that it needs no tune here
    torch_op  "my::conv": the kernel is torch.ops.my.conv, too, which runs under torch.compile: it takes what the kernel reads
              and numbers, in the kernel's order, and returns what it writes alone; of these sizes, without a backward pass
    gpu       a GPU's type that need not be here ("A100"): everything is compiled for it, and nothing is run. What is returned has
              .answer and .configs, with registers, spills and blocks per SM, and cannot be called. Without `work` no model has
              a time, and the answer, the default config, is "unranked"
    device, effort, progress   as in fa_tune.tune()
    name      the operation's; None: the kernel's, or the file's
    at        sizes other than those of `args`, for this call

    A file NAME.cu whose head has the specification needs no other argument: tune_kernel("conv2d.cu", w=4096). Without `args`, an
    argument that is a key of specifications takes the place of the head's: answer=function. With `args` the head is left aside.
    Raises fa_tune.Error with a sentence, or what the answer's function raises. Needs a GPU unless `gpu` names one.
    """
    if not isinstance(source, (str, os.PathLike)) or not _is_text(os.fspath(source)):
        raise ArgumentError("source is the path of a file, or CUDA C++ itself, not %s" % shown(source)
                            if source != "" else "source is empty: pass the path of a file, or CUDA C++ itself")
    for word, value, like in (("tune", tune, '{"THREADS": [64, 128]}'), ("sizes", sizes, '{"n": 4096}')):
        if value is not None and not isinstance(value, Mapping):
            raise ArgumentError("%s is a dict, such as %s, not %s" % (word, like, shown(value)))
    path = os.fspath(source)
    check_search(strategy, {"evaluations": evaluations, "seconds": seconds, "memory": memory})
    if not isinstance(bundle, (str, os.PathLike, type(None))):
        raise ArgumentError("bundle is the path of a file that TunedKernel.save() has written, not %s" % shown(bundle))
    if torch_op is not None:
        _kernel_ops.check(torch_op)
        if gpu is not None:
            raise ArgumentError("torch_op registers a kernel that can be called, and one for gpu=%r cannot: leave one of the two "
                                "out" % gpu)
    how = {"device": device, "gpu": gpu, "effort": effort, "progress": progress, "bundle": bundle, "torch_op": torch_op,
           "search": {"strategy": strategy, "evaluations": evaluations or 0, "seconds": seconds or 0,
                      "memory": memory or 0}}
    is_text = "__global__" in path
    given = {
        "name": name, "kernel": kernel, "sizes": sizes,
        "tune": tune and {tunable: _list(values) for tunable, values in tune.items()}, "block": block,
        "cooperative": cooperative, "grid": grid, "restrictions": _list(restrictions), "defines": defines, "default": default,
        "shared_memory": shared_memory, "answer": answer,
        "rtol": rtol, "atol": atol, "flops": flops, "bytes": bytes, "work": work, "launches": launches,
        "include": _list(include), "options": _list(options)}
    given = {key: value for key, value in given.items() if value is not None}
    for key, value in given.items():
        if key != "answer" and not _is_plain(value):
            raise ArgumentError("%s, not %s" % (_LIKE.get(key, '%s: an expression, as in "ceil_div(n, BLOCK)"' % key), shown(value)))
    if args is None and not given and not is_text:
        return _made(_core.load_specification(path, None, None), at, how)
    if not isinstance(args, (Mapping, type(None))):
        raise ArgumentError("args is a dict of the kernel's arguments by their names, not %s" % shown(args))
    if not is_text:
        source = _read(path)
    if args is None:
        specification, tensors = {**_head("the source" if is_text else path, source), **given}, {}
        if not is_text and path.endswith(".json"):
            source = _read(os.path.join(os.path.dirname(path), str(specification.get("source"))))
    else:
        listed = _Listed(args, sizes or {}, source, kernel, answer)
        specification, tensors = {"tune": {}, **given, "arguments": listed.arguments, "sizes": listed.sizes}, listed.tensors
    data = _data(specification, tensors, answer)
    # A file's folder is where files are looked for that it includes; a text's, if it has "include", is the current one.
    text_name = str(specification.get("name") or _bare(str(specification.get("kernel", "kernel"))))
    where = text_name if is_text and "include" not in specification else os.path.abspath(text_name + ".cu" if is_text else path)

    def load():
        if data.answer is not None:
            specification["answer"] = {"given": data.words()}
        try:
            text = json.dumps(specification, default=_number)
        except TypeError as error:
            raise ArgumentError("a kernel specification: %s" % error) from None
        operation = _core.load_specification(where, text, source)
        if data.tensors or data.answer is not None:
            _cases.give(operation, data)
        return operation
    how["load"] = load
    operation = load()
    try:
        return _made(operation, at, how)
    except Error as error:
        if data.drawn and "case 0 " not in str(error) and data.what_was_drawn() not in str(error):
            raise type(error)("%s; %s" % (error, data.what_was_drawn())) from error
        raise
    finally:
        _cases.take_back(operation, data)


def _made(operation, at, how):
    for word in set(at).difference(_core.fields_of(operation)):
        if meant := did_you_mean(word, inspect.signature(tune_kernel).parameters):
            raise ArgumentError("there is no argument %r%s" % (word, meant))
    if how["bundle"] is not None:
        _core.import_bundle(how["bundle"])
    tuned = TunedKernel(operation, Problem(operation=operation, **at), how)
    if how["torch_op"] is not None:
        _kernel_ops.define(how["torch_op"], tuned)
    return tuned


def _is_text(source):
    """Whether the library can be passed it: a surrogate alone or a NUL is in no path and in no source."""
    return isinstance(source, str) and source != "" and not re.search("[\0\ud800-\udfff]", source)


def _list(values):
    """Of a range, a tuple or an array; what is no list is told by whoever reads the specification."""
    return list(values) if hasattr(values, "__iter__") and not isinstance(values, (str, Mapping)) else values


def _number(value):
    """NumPy's numbers, and what else is one."""
    return value.item() if hasattr(value, "item") else operator.index(value)


_LIKE = {"restrictions": 'restrictions are texts, as in "BLOCK <= 256"', "tune": 'tune has lists of values, as in {"BLOCK": [64, 128]}',
         "defines": 'defines are expressions by their names, as in {"WIDTH": "n"}', "include": "include is a list of folders",
         "options": 'options are texts, as in "-use_fast_math"', "kernel": "kernel is a name", "name": "name is a text"}


def _is_plain(value):
    """Texts, numbers, and lists and dicts of them."""
    if isinstance(value, (Mapping, list, tuple)):
        return all(map(_is_plain, value.values() if isinstance(value, Mapping) else value))
    if isinstance(value, (str, float, type(None))):
        return True
    try:
        _number(value)
    except (TypeError, ValueError):
        return False
    return not getattr(value, "shape", ())


class _Listed:
    """The arguments as a specification lists them, the sizes with those among them, and the arrays of inputs."""

    def __init__(self, args, sizes, source, kernel, answer):
        self.arguments, self.sizes, self.tensors = [], dict(sizes), {}
        bare = [name for name, given in args.items() if _cases.is_tensor(given) and tuple(given.shape)]
        taken = [name for name, given in args.items()
                 if not (isinstance(given, _Argument) and "symbol" in given and "parameter" not in given)]
        for name, given in args.items():
            if name in bare:
                way = _way(source, kernel, answer, taken.index(name), len(taken), name)
                given = _tensor(way, given, (), None, None)
            if fields := _fields(name, given):
                given = {"fields": [{"name": field, **self._of(field, value)} for field, value in fields.items()]}
            self.arguments.append({"name": name, **(given if fields else self._of(name, given))})
        whole = [tuple(args[name].shape if name in bare else args[name].tensor.shape) for name in args
                 if name in bare or getattr(args[name], "whole", False)]
        if whole:  # they have the shape that they have, whatever the sizes are
            shapes = " ".join(str(size) for one in _leaves(self.arguments) for size in (*one.get("shape", ()), *one.get("range", ())))
            sides = {side for shape in whole for side in shape}
            for name, value in self.sizes.items():
                if not isinstance(value, Mapping) and (not re.search(r"\b%s\b" % re.escape(name), shapes) or
                                                       sides & {value, value + 1}):  # as many rows have one more beginning
                    self.sizes[name] = fixed(value)
            if not self.sizes:  # and a problem has one
                self.sizes["elements"] = fixed(max(math.prod(shape) for shape in whole))

    def _of(self, name, given):
        """What the specification says of one."""
        if isinstance(given, _Argument):
            if given.tensor is not None and given["is"] not in WRITTEN:
                self.tensors[name] = given.tensor
            return given
        if isinstance(given, bool):
            return {"type": "bool", "value": int(given)}
        if isinstance(given, float):
            return {"value": given}
        if not isinstance(given, Mapping) and not hasattr(given, "__index__") and not _cases.is_tensor(given):
            raise ArgumentError("args: %s is array(), out(), inout(), scalar(), struct(), fixed(), a number or an array, not %s"
                                % (name, shown(given)))
        if not _cases.is_tensor(given):
            self.sizes[name] = given
            return {}
        type_ = _cases.type_of(given.dtype)  # a number of NumPy's
        if type_[0] in "iu":
            self.sizes[name] = operator.index(given)
            return {"type": type_}
        return {"type": type_, "value": int(given.item()) if type_ == "bool" else given.item()}


def _fields(name, given):
    """Of a struct; None: it is none."""
    if isinstance(given, _Argument):
        return given.get("fields")
    if isinstance(given, bytes):
        if len(given) % 4 or not 4 <= len(given) <= 48:
            raise ArgumentError("args: %s has %d bytes: a struct of bytes has 4 to 48, in steps of 4" % (name, len(given)))
        words = [int.from_bytes(given[at:at + 4], "little") for at in range(0, len(given), 4)]
        return {"%s_%d" % (name, at): scalar("u32", str(word)) for at, word in enumerate(words)}
    dtype = getattr(given, "dtype", None)
    if not getattr(dtype, "names", None) or getattr(given, "shape", ()):
        return None
    if not dtype.isalignedstruct:
        raise ArgumentError("args: %s is a record whose fields do not lie as in C: make its dtype with align=True" % name)
    values = {field: given[field] for field in dtype.names}
    if any(getattr(value, "shape", ()) for value in values.values()):
        raise ArgumentError("args: %s is a record with an array in it: give each of its numbers a field, or all as bytes" % name)
    return {field: scalar(value.dtype, float(value)) if isinstance(value, float) and hasattr(value, "dtype") else value
            for field, value in values.items()}  # NumPy's doubles are Python's floats, too


def _leaves(arguments):
    """Arguments, and the fields of structs in their place."""
    return [leaf for one in arguments for leaf in one.get("fields", [one])]


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError("%s: %s" % (path, getattr(error, "strerror", None) or error)) from None


def _head(where, source):
    """The specification in the head of a source, or that the text is."""
    found = re.match(r"\s*(?:(?://[^\n]*(?:\n\s*|\Z))*/\*[*\s]*fa-tune(?:(?!\*/)[^{])*)?(\{.*?)(?:\*/|\s*\Z)", source, re.S)
    if found is None:
        raise ArgumentError("%s: there is no specification: pass args=, the kernel's arguments, or let the source begin with a "
                            "comment, /* fa-tune { … } */" % where)
    try:
        return dict(json.loads("\n" * source.count("\n", 0, found.start(1)) + found[1]))
    except ValueError as error:
        raise ArgumentError("%s: the specification is no JSON: %s" % (where, error)) from None


def _data(specification, tensors, answer):
    """What proofs are given; its answer is None where the specification says what is right."""
    given = None if answer is None or isinstance(answer, str) or _is_kernel(answer) else answer
    if given is None and not tensors:  # whoever reads the specification says what is wrong with it
        return _cases.Data({}, None, [], [], {})
    try:
        leaves = _leaves(specification["arguments"])
        ways = {one["name"]: one.get("is", "in" if "shape" in one else "") for one in leaves}
        sizes = {name: value["default"] if isinstance(value, Mapping) else value
                 for name, value in specification.get("sizes", {}).items()}
    except (AttributeError, KeyError, TypeError):
        raise ArgumentError("a kernel specification: \"arguments\" is a list of objects with a \"name\", and \"sizes\" an object of "
                            "numbers or {\"default\": …}") from None
    names = [name for name in ways if ways[name] not in WRITTEN]
    inputs = [name for name in ways if ways[name] in ("in", "inout")]
    ranged = [one["name"] for one in leaves if "range" in one]
    return _cases.Data(tensors, given, inputs, [*names, *(name for name in sizes if name not in names)], sizes, ranged)


def _is_kernel(answer):
    return isinstance(answer, Mapping) and "kernel" in answer and isinstance(answer["kernel"], str)


def _way(source, kernel, answer, place, count, name):
    """Whether the kernel only reads an array that nothing is said of: it takes a pointer to const."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.S)
    taken = {found[1]: _split(found[2]) for found in re.finditer(
        r"__global__\b[^;{]*?\b(\w+)\s*\(((?:[^()]|\([^()]*\))*)\)\s*[;{]", code)}
    answers = answer["kernel"] if _is_kernel(answer) else answer
    meant = [parameters for each, parameters in taken.items()
             if (each != answers if kernel is None else each == _bare(kernel))]
    if len(meant) == 1 and len(meant[0]) == count and "*" in meant[0][place]:
        return "in" if re.search(r"\bconst\b[^*]*\*", meant[0][place]) else "inout"
    raise ArgumentError("args: the source does not say whether the kernel writes %s: pass fa_tune.array(%s), fa_tune.out(%s) "
                        "or fa_tune.inout(%s)" % (name, name, name, name))


def _bare(kernel):
    """A kernel's name without the arguments of a template, and without its namespace."""
    return kernel.partition("<")[0].rpartition(":")[2]


def _split(parameters):
    """At the commas that are in no bracket."""
    parts, depth = [""], 0
    for letter in parameters:
        depth += (letter in "(<[") - (letter in ")>]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts
