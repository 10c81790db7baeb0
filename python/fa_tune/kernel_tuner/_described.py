# SPDX-License-Identifier: Apache-2.0
"""A call of Kernel Tuner's as a specification of fa_tune.tune_kernel()."""
from __future__ import annotations

import inspect
import itertools
import math
import operator
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _kernels
from .._cases import is_tensor
from .._errors import ArgumentError, NotSupported, shown
from . import _device
from ._trace import LONGEST, MOST_RUNS, Traced, expression, of_function, of_text, whole
from .util import CompilationFailedConfig, InvalidConfig, RuntimeFailedConfig

SIDES = ("block_size_x", "block_size_y", "block_size_z")
UNCOMPARED = 1e29  # an absolute tolerance that only NaN exceeds
MOST_TEXT = 1 << 20  # bytes of a source (tuner/spec.c)
MOST_REQUIRED = 16  # restrictions (tuner/family.h)
MOST_THREADS = 1024  # of a block

# What became of a config that has no time; of a status that is not here it was not tried, or is outside of the space.
FAILED = {"compile-failed": CompilationFailedConfig, "compile-timeout": CompilationFailedConfig, "spills": CompilationFailedConfig,
          "cubin": CompilationFailedConfig, "budget": InvalidConfig, "registers": InvalidConfig,
          **dict.fromkeys(("wrong", "other-bits", "timeout", "load-failed", "launch-failed", "crashed", "out-of-memory"), RuntimeFailedConfig)}


def is_array(value: Any) -> bool:
    return is_tensor(value) and len(value.shape) > 0


class Described:
    """words: what tune_kernel() is told; tune: all tunables of the call, of which words["tune"] has those that matter."""

    def __init__(self, kernel_name: str, kernel_source: Any, problem_size: Any, arguments: Any, tune_params: Mapping[str, Any],
                 grid_div: Sequence[Any], restrictions: Any, lang: Any, smem_args: Any, cmem_args: Any, compiler_options: Any,
                 defines: Any, block_size_names: Any, device: int) -> None:
        self._call = (kernel_name, kernel_source, problem_size, arguments, grid_div, lang, smem_args, cmem_args, compiler_options,
                      defines, block_size_names, device)
        self.tune = {name: [value.item() if hasattr(value, "item") else value for value in values] for name, values in tune_params.items()}
        self.arguments, self.constants = list(arguments), dict(cmem_args or {})
        # With `defines` the tunables are no macros of the source: they have names that it does not have.
        self.names = {name: name if defines is None else "kernel_tuner_" + name for name in self.tune}
        blocks = _block_names(block_size_names, self.tune)
        source, path = self._source(kernel_source, lang, kernel_name)
        source, self.defines = self._defined(source, defines, problem_size, grid_div, blocks)
        words: dict[str, Any] = {
            "kernel": self._named(kernel_name), "device": device, "defines": self.defines or None,
            "block": [self.names.get(name, "1" if i else "256") for i, name in enumerate(blocks)],
            "grid": [self._said("grid_div_" + "xyz"[i], _side(problem_size, grid_div[i], blocks[i], i)) for i in range(3)],
            "restrictions": self._restricted(restrictions) or None, "shared_memory": self._shared(smem_args)}
        self.held.append(lambda config: math.prod(config.get(name, 1 if i else 256) for i, name in enumerate(blocks)) <= MOST_THREADS)
        words.update(_options(compiler_options))
        if re.search(r"^\s*#\s*include\b", source, re.M):
            words["include"] = [*words.get("include", []), os.path.dirname(os.path.abspath(path)) if path else os.getcwd()]
        read = source + repr([words, self.names] if words.get("include") else words)
        self.left = {name: values[0] for name, values in self.tune.items() if not re.search(r"\b%s\b" % self.names[name], read)}
        for name, value in self.left.items():
            if len(self.tune[name]) > 1:
                warnings.warn("%s: neither the kernel nor its launch reads it: it stays at %s" % (name, shown(value)), stacklevel=4)
        words["tune"] = {self.names[name]: values for name, values in self.tune.items() if name not in self.left}
        if not words["tune"]:  # a specification has one
            words["tune"], words["block"][0] = {"kernel_tuner_config": [1]}, words["block"][0] + " * kernel_tuner_config"
        self.source, self.words = source, words

    def alone(self, config: Mapping[str, Any]) -> Described:
        """The same of one config."""
        name, source, size, arguments, *rest = self._call
        return Described(name, source, size, arguments, {key: [value] for key, value in config.items()}, rest[0], None, *rest[1:])

    def _said(self, what: str, function: Any, condition: bool = False) -> str:
        return expression(what, function, self.tune, self.names, condition)

    def _named(self, text: str) -> str:
        return re.sub(r"\w+", lambda found: self.names.get(found[0], found[0]), text)

    # ---- the source ---------------------------------------------------------------------------------------------------
    def _source(self, given: Any, lang: Any, kernel: str) -> tuple[str, str | None]:
        if isinstance(given, (list, tuple)):  # the others are files that the first includes
            given = given[0]
        path = None
        if callable(given):
            text = self._generated(given)
        else:
            text = os.fspath(given)
            if not re.search(r"[(){};\\]|__global__ ", text):
                path, text = text, _kernels._read(text)
        if (lang or ("CUDA" if "__global__" in text else "OpenCL" if "__kernel" in text else "C")).upper() not in (
                "CUDA", "CUPY", "PYCUDA", "NVCUDA"):
            raise NotSupported("fa_tune.kernel_tuner tunes CUDA kernels alone, and %s is in %s" % (
                kernel, lang or "a language without __global__"))
        return text, path

    def _generated(self, generate: Any) -> str:
        """One source of all that a generator makes: each behind an #if of the tunables that it depends on."""
        made: dict[tuple[Any, ...], str] = {}
        when: dict[str, dict[str, None]] = {}
        size = 0
        for values in itertools.product(*self.tune.values()):
            made[values] = text = generate(dict(zip(self.tune, values)))
            size += 0 if text in when else len(text)
            when.setdefault(text, {})
            if len(made) > MOST_RUNS or size > MOST_TEXT:
                raise NotSupported("kernel_source: its sources for all configs have more than %d bytes, or are more than %d: pass one source "
                                   "that reads the tunables as macros" % (MOST_TEXT, MOST_RUNS))
        first = next(iter(made))
        matter = [i for i in range(len(first)) if any(text != made[(*values[:i], first[i], *values[i + 1:])] for values, text in made.items())]
        for values, text in made.items():
            when[text][" && ".join("%s == %s" % (name, self._number(name, values[i])) for i, name in enumerate(self.tune) if i in matter)] = None
        return made[first] if len(when) == 1 else "".join("#%s %s\n%s\n" % ("elif" if i else "if", " || ".join(conditions), text)
                                                          for i, (text, conditions) in enumerate(when.items())) + "#endif\n"

    def _number(self, name: str, value: Any) -> Any:
        """A value as the preprocessor compares it."""
        if isinstance(value, (str, float)):
            raise NotSupported("kernel_source: a function is called for each config, and the preprocessor cannot tell the values of %s "
                               "apart, such as %s: pass one source that reads the tunables as macros" % (name, shown(value)))
        return int(value)

    def _defined(self, source: str, defines: Any, problem_size: Any, grid_div: Sequence[Any], blocks: Sequence[str]
                 ) -> tuple[str, dict[str, Any]]:
        """What the source finds defined beside the tunables."""
        if defines is None:
            sides = {"grid_size_" + "xyz"[i]: _side(problem_size, grid_div[i], blocks[i], i) for i in range(3)}
            expressions = {name: side for name, side in sides.items() if re.search(r"\b%s\b" % name, source)}
            texts: dict[str, Any] = {name: 1 if i else 256 for i, name in enumerate(blocks) if name not in self.tune}
            texts = {name: value for name, value in {**texts, "kernel_tuner": 1}.items() if re.search(r"\b%s\b" % name, source)}
        else:
            expressions = {name: of_function(value) for name, value in defines.items() if callable(value)}
            texts = {name: self._named(str(value)).replace("\n", "\\\n") for name, value in defines.items() if name not in expressions}
        head = "".join("#define %s %s\n" % one for one in texts.items())
        return head + "#line 1\n" * bool(head) + source, {
            name: self._said("defines: " + name, value) for name, value in expressions.items()}

    # ---- the launch ---------------------------------------------------------------------------------------------------
    def _restricted(self, given: Any) -> list[str]:
        said: list[str] = []
        self.held = []  # the same as functions
        for one in [] if given is None else given if isinstance(given, (list, tuple)) else [given]:
            function = of_text(one) if isinstance(one, str) else _of_names(one)
            self.held.append(function)
            text = self._said("restrictions: " + (one if isinstance(one, str) else shown(one)), function, condition=True)
            if len(said) < MOST_REQUIRED:
                said.append(text)
            else:
                at = min(range(MOST_REQUIRED), key=lambda i: len(said[i]))
                said[at] = "(%s and %s)" % (said[at], text)
        if any(len(text) > LONGEST for text in said):
            raise NotSupported("restrictions: %d are more than a specification holds" % len(given))
        return [text for text in said if text != "1"]

    def _shared(self, given: Any) -> str | None:
        unknown = set(given or {}) - {"size"}
        if unknown:
            raise NotSupported("smem_args: %s is none of its words, which are \"size\"" % ", ".join(map(repr, unknown)))
        if not given:
            return None
        size = given["size"]
        return self._said("smem_args", of_function(size) if callable(size) else of_text(size) if isinstance(size, str) else lambda _: size)

    # ---- arguments ----------------------------------------------------------------------------------------------------
    def answers(self, answer: Any) -> dict[str, Any] | None:
        """Arrays by our arguments' names."""
        if answer is None:
            return None
        if len(answer) != len(self.arguments):
            raise ArgumentError("answer has %d elements, and there are %d arguments" % (len(answer), len(self.arguments)))
        given = {}
        for i, (right, argument) in enumerate(zip(answer, self.arguments)):
            if right is None or not is_array(argument):
                continue
            if not is_array(right) or math.prod(right.shape) != math.prod(argument.shape):
                raise ArgumentError("answer: element %d is no array of the %d elements of argument %d: what compares otherwise is "
                                    "verify=" % (i, math.prod(argument.shape), i))
            given["arg%d" % i] = _device.shaped(_device.dense(right), argument.shape)
        return given or None

    def _args(self, answer: Mapping[str, Any] | None) -> dict[str, Any]:
        args: dict[str, Any] = {}
        for i, given in enumerate(self.arguments):
            name = "arg%d" % i
            if not is_tensor(given):
                raise ArgumentError("argument %d is an array or a number with a type, such as numpy.int32(%s), not %s" % (i, given, shown(given)))
            if not is_array(given):
                args[name] = _kernels.scalar(given.dtype, given.item())
            elif (name in answer) if answer is not None else self._may_write(i):
                args[name] = _kernels.inout(_device.dense(given))
            else:
                args[name] = _kernels.array(_device.dense(given))
        for name, given in self.constants.items():
            args["cmem_" + name] = _kernels.array(_device.dense(given) if is_array(given) else _device.shaped(given, (1,)), symbol=name)
        return args

    def _may_write(self, place: int) -> bool:
        try:
            return _kernels._way(self.source, self.words["kernel"], None, place, len(self.arguments), "arg%d" % place) != "in"
        except ArgumentError:  # the source does not say
            return True

    # ---- tuned --------------------------------------------------------------------------------------------------------
    def tuned(self, answer: Mapping[str, Any] | None, atol: float | None, **more: Any) -> Any:
        tolerance = {"rtol": 1e-5, "atol": atol} if answer else {"rtol": 0, "atol": UNCOMPARED}
        return _kernels.tune_kernel(self.source, args=self._args(answer), answer=answer, **self.words, **tolerance, **more)

    def launched(self, tuned: Any, wanted: Sequence[bool] | None = None, copied: bool = False) -> list[Any]:
        """The arguments on the host behind one launch; of arrays that are not wanted None. copied: those on the GPU, too, stay as they are."""
        here = [_device.there(value, copied) if is_array(value) else value for value in self.arguments]
        constants = [_device.there(value if is_array(value) else _device.shaped(value, (1,)), False) for value in self.constants.values()]
        tuned(*(value if is_array(value) else value.item() for value in here), *constants)
        return [None if wanted is not None and not wanted[i] else _device.back(value, self.arguments[i]) if is_array(value) else value
                for i, value in enumerate(here)]

    def of_row(self, row: Mapping[str, Any]) -> dict[str, Any] | None:
        """A config as Kernel Tuner's results have it; None: it was not tried."""
        if row["status"] != "measured" and row["status"] not in FAILED:
            return None
        had = row["config"]["tunables"]
        result: dict[str, Any] = {name: self.left[name] if name in self.left else had[self.names[name]] for name in self.tune}
        if row["status"] == "measured":
            result["time"] = row["median_us"] / 1000
        else:
            result.update(__error__=FAILED[row["status"]](), reason=row["reason"])
        return {**result, "compile_time": row["compile_ms"] or 0, "verification_time": 0, "benchmark_time": result.get("time", 0),
                "strategy_time": 0, "framework_time": 0}

    def key(self, result: Mapping[str, Any]) -> str:
        return ",".join(str(result[name]) for name in self.tune)

    def place(self, result: Mapping[str, Any]) -> tuple[int, ...]:
        return tuple(values.index(result[name]) for name, values in self.tune.items())

    def has(self, result: Mapping[str, Any]) -> bool:
        """Whether it is of a config of this space."""
        config = {name: result.get(name) for name in self.tune}
        return all(config[name] in values for name, values in self.tune.items()) and all(held(config) for held in self.held)

    def all_of(self, results: Sequence[Mapping[str, Any]]) -> bool:
        """Whether these are all configs that hold to the restrictions, as far as that is soon known."""
        values = [self.tune[name] if name not in self.left else self.tune[name][:1] for name in self.tune]
        if math.prod(map(len, values)) > MOST_RUNS:
            return False
        had = {self.key(one) for one in results}
        configs = (dict(zip(self.tune, config)) for config in itertools.product(*values))
        return all(self.key(config) in had for config in configs if all(held(config) for held in self.held))


def _block_names(given: Any, tune: Mapping[str, Any]) -> list[str]:
    if given is not None and (not isinstance(given, list) or len(given) > 3 or not all(isinstance(name, str) for name in given)):
        raise ArgumentError("block_size_names is a list of at most three names, not %s" % shown(given))
    if given is None:  # in other letters, too
        given = [next((name for name in tune if name.lower() == side), side) for side in SIDES]
    return [*given, *SIDES[len(given):]]


def _of_names(function: Any) -> Any:
    """A restriction that is a function: of a dict, of tunables by their names, or with a list of those."""
    if isinstance(function, tuple) and callable(function[0]):
        called = of_function(function[0])
        return lambda tunables: called(*(tunables[name] for name in function[1]))
    if not callable(function) or hasattr(function, "preProcess"):  # a constraint of python-constraint
        raise NotSupported("restrictions: texts and functions are taken, and not %s" % shown(function))
    takes = list(inspect.signature(function).parameters)
    called = of_function(function)
    return lambda tunables: called(tunables) if len(takes) == 1 and takes[0] not in tunables else called(
        **{name: tunables[name] for name in (takes if set(takes) <= set(tunables) else tunables)})


def _side(problem_size: Any, divisors: Any, block: str, axis: int) -> Any:
    """A function of tunables: how many blocks the grid has along an axis."""
    def value(given: Any, tunables: Mapping[str, Any]) -> Any:
        if callable(given):
            return of_function(given)(tunables)
        if isinstance(given, str):
            return whole(of_text(given)(tunables))
        return given if isinstance(given, Traced) else operator.index(given)

    def side(tunables: Mapping[str, Any]) -> Any:
        sizes = of_function(problem_size)(tunables) if callable(problem_size) else problem_size
        sizes = list(sizes) if isinstance(sizes, (tuple, list)) or is_array(sizes) else [sizes]
        size = value(sizes[axis], tunables) if axis < len(sizes) else 1
        by: Any = 1
        if divisors is None:
            by = tunables.get(block, 1)
        else:
            for one in divisors if isinstance(divisors, (list, tuple)) else [divisors]:
                by = by * value(one, tunables)
        return -(-size // by) if isinstance(size, int) and isinstance(by, int) else math.ceil(size / by)
    return side


def _options(given: Any) -> dict[str, Any]:
    """Compiler options: folders of headers by themselves, and without those that fa-tune decides."""
    options: list[str] = []
    include: list[str] = []
    words = iter(given or [])
    for word in words:
        if word.startswith("-I") or word.startswith("--include-path="):
            include.append(os.path.abspath(word.partition("=")[2] if word[1] == "-" else word[2:] or next(words, "")))
        elif re.match(r"--?(arch|gencode|gpu-architecture|O\d?$)", word):
            warnings.warn("compiler_options: %s is left out: fa-tune compiles for the GPU, optimized" % word, stacklevel=5)
        else:
            options.append(word)
    return {name: value for name, value in (("options", options), ("include", include)) if value}
