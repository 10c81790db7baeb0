# SPDX-License-Identifier: Apache-2.0
"""Texts and functions over a dict of tunables, as Kernel Tuner takes them, in the words of a specification's expressions.

They are run with placeholders for the tunables, which write down what is computed: once for each way that their comparisons
can end. So they mean what Python makes of them, `/` and `%` included. What cannot be followed, as int() in a function, is
run with all values of the tunables that it reads, and becomes a list of its results.
"""
from __future__ import annotations

import ast
import itertools
import math
import operator
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .._errors import ArgumentError, NotSupported

LONGEST = 1023  # letters of an expression (src/base/expr.h)
MOST_RUNS = 20_000  # of a function that cannot be followed


class _Fork(BaseException):
    """A comparison whose outcome is not decided; no `except Exception` of a traced function stops it."""


class Traced:
    """An expression instead of a number. A true division is kept as two expressions, for ceil() and int()."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, path: _Path, over: str, under: str | None = None) -> None:
        self.path, self.over, self.under = path, over, under

    def __str__(self) -> str:
        return self.over if self.under is None else "(1.0 * %s / %s)" % (self.over, self.under)

    def __bool__(self) -> bool:
        return self.path.decide(str(self))

    def _divided(self, form: str) -> Traced:
        """The division of whole numbers that the form has."""
        if "." in self.over + (self.under or ""):
            raise TypeError("whether a placeholder is a whole number is not known")
        return self if self.under is None else Traced(self.path, form % (self.over, self.under))

    def __ceil__(self) -> Traced:
        return self._divided("ceil_div(%s, %s)")

    def __floor__(self) -> Traced:
        return self._divided("(%s // %s)")

    ceil, floor = __ceil__, __floor__  # for NumPy

    def __mul__(self, other: Any) -> Any:
        return Traced(self.path, _product(self.over, _over(other)) or "1", _product(self.under, _under(other)))

    def __truediv__(self, other: Any) -> Any:
        return Traced(self.path, _product(self.over, _under(other)) or "1", _product(self.under, _over(other)))

    def __rtruediv__(self, other: Any) -> Any:
        return Traced(self.path, _product(_over(other), self.under) or "1", self.over)

    def __mod__(self, other: Any) -> Any:
        signed = self.path.negative or "-" in str(self) + str(other)  # the remainder of expressions has the sign of what is divided, as in C
        text = "(%s %% %s)" % (self, _text(other))
        return Traced(self.path, "((%s + %s) %% %s)" % (text, _text(other), _text(other)) if signed else text)

    def __rmod__(self, other: Any) -> Any:
        return Traced(self.path, _text(other)) % self

    def __neg__(self) -> Any:
        return Traced(self.path, "(-%s)" % self)

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return Traced(self.path, "(~%s)" % self)

    def __abs__(self) -> Any:
        return Traced(self.path, "abs(%s)" % self)

    __rmul__ = __mul__


def _writing(sign: str, reflected: bool) -> Callable[[Traced, Any], Traced]:
    def compute(self: Traced, other: Any) -> Traced:
        sides = (_text(other), str(self)) if reflected else (str(self), _text(other))
        return Traced(self.path, "(%s %s %s)" % (sides[0], sign, sides[1]))
    return compute


for _name, _sign in {"add": "+", "sub": "-", "floordiv": "//", "pow": "**", "lshift": "<<", "rshift": ">>", "and": "&", "or": "|"}.items():
    setattr(Traced, "__%s__" % _name, _writing(_sign, False))
    setattr(Traced, "__r%s__" % _name, _writing(_sign, True))
for _name, _sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
    setattr(Traced, "__%s__" % _name, _writing(_sign, False))


def _text(value: Any) -> str:
    if isinstance(value, (Traced, str)):
        return repr(value) if isinstance(value, str) else str(value)
    value = value.item() if hasattr(value, "item") else value
    if isinstance(value, bool):
        return str(int(value))
    return repr(value) if isinstance(value, float) and math.isfinite(value) else str(operator.index(value))


def _over(value: Any) -> str:
    return value.over if isinstance(value, Traced) else _text(value)


def _under(value: Any) -> str | None:
    return value.under if isinstance(value, Traced) else None


def _product(*factors: str | None) -> str | None:
    texts = [factor for factor in factors if factor not in (None, "1")]
    return "(%s)" % " * ".join(map(str, texts)) if len(texts) > 1 else texts[0] if texts else None


class _Path:
    """One run: what its first comparisons came to. negative: a tunable may be less than 0."""

    def __init__(self, taken: tuple[bool, ...], negative: bool) -> None:
        self.taken = taken
        self.negative = negative
        self.known: dict[str, bool] = {}

    def decide(self, text: str) -> bool:
        if text not in self.known:
            if len(self.known) == len(self.taken):
                raise _Fork(text)
            self.known[text] = self.taken[len(self.known)]
        return self.known[text]


def whole(*value: Any) -> Any:
    """int(), of placeholders, too."""
    if isinstance(value[0], Traced) and (value[0].path.negative or "-" in str(value[0])):
        raise TypeError("the sign of a placeholder is not known")
    return math.floor(value[0]) if isinstance(value[0], Traced) else int(*value)


def of_function(function: Any) -> Any:
    """A function of the caller's whose own int() takes placeholders, where it is given some."""
    if not isinstance(function, types.FunctionType):
        return function
    traced = types.FunctionType(function.__code__, {**function.__globals__, "int": whole}, function.__name__, function.__defaults__,
                                function.__closure__)

    def call(*args: Any, **words: Any) -> Any:
        values = [*words.values(), *args, *(args[0].values() if args and isinstance(args[0], Mapping) else ())]
        return (traced if any(isinstance(value, Traced) for value in values) else function)(*args, **words)
    return call


def of_text(text: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function that Python's expression is."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
        code = compile(tree, "<%s>" % text, "eval")
    except (SyntaxError, ValueError) as error:
        raise ArgumentError("%s: is no expression of Python's: %s" % (text, error)) from None

    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    def evaluate(tunables: Mapping[str, Any]) -> Any:
        known = {"int": whole, "ceil": math.ceil, "floor": math.floor, "math": math, **{name: tunables[name] for name in names if name in tunables}}
        try:
            return eval(code, known)  # pylint: disable=eval-used  # the caller's own text, as Kernel Tuner runs it
        except NameError as error:
            raise ArgumentError("%s: %s: the tunables are %s" % (text, error, ", ".join(tunables))) from None
    return evaluate


def expression(what: str, function: Callable[[Mapping[str, Any]], Any], tune: Mapping[str, Sequence[Any]],
               names: Mapping[str, str], condition: bool = False) -> str:
    """What the function computes of a dict of tunables. names: of the tunables in the specification; condition: it is one."""
    negative = any(isinstance(value, (int, float)) and value < 0 for values in tune.values() for value in values)
    try:
        text = _followed(function, names, condition, (), [MOST_RUNS], negative)
    except Exception:  # pylint: disable=broad-except  # of placeholders; what it raises of numbers is raised below
        text = _listed(what, function, tune, names, condition)
    if len(text) > LONGEST:
        raise NotSupported("%s: a specification would need an expression of %d letters for it, and %d are the most: say less in one, "
                           "as a text or a function of fewer tunables" % (what, len(text), LONGEST))
    return text


def _followed(function: Callable[..., Any], names: Mapping[str, str], condition: bool, taken: tuple[bool, ...], left: list[int],
              negative: bool) -> str:
    left[0] -= 1
    if left[0] < 0 or len(taken) > 40:
        raise RecursionError("too many comparisons")
    path = _Path(taken, negative)
    try:
        value = function({name: Traced(path, own) for name, own in names.items()})
        return _text(bool(value) if condition else value)
    except _Fork as fork:
        asked = str(fork)
    yes, no = (_followed(function, names, condition, (*taken, outcome), left, negative) for outcome in (True, False))
    if yes == no:
        return yes
    if condition and no == "0":
        return asked if yes == "1" else "(%s and %s)" % (asked, yes)
    if condition and yes == "1":
        return "(%s or %s)" % (asked, no)
    if condition and (yes, no) == ("0", "1"):
        return "(not %s)" % asked
    return "(%s if %s else %s)" % (yes, asked, no)


class _Read(dict[str, Any]):
    """Tunables, and which of them were read."""

    def __init__(self, values: Mapping[str, Any], read: list[str]) -> None:
        super().__init__(values)
        self.read = read

    def __getitem__(self, name: str) -> Any:
        if name in self and name not in self.read:
            self.read.append(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        return self[name] if name in self else default


def _listed(what: str, function: Callable[..., Any], tune: Mapping[str, Sequence[Any]], names: Mapping[str, str], condition: bool) -> str:
    read: list[str] = []
    used: list[str] = []
    while True:
        results: dict[tuple[Any, ...], str] = {}
        for values in itertools.product(*(tune[name] for name in used)):
            if len(results) == MOST_RUNS:
                raise NotSupported("%s: a function of too many tunables (%s), which cannot be followed: write it as a text" % (
                    what, ", ".join(used)))
            given = {name: one[0] for name, one in tune.items()} | dict(zip(used, values))
            value = function(_Read(given, read))
            results[values] = _text(bool(value) if condition else value)
        if read == used:
            return _tree(results, [names[name] for name in used])
        used = list(read)


def _tree(results: dict[tuple[Any, ...], str], names: list[str]) -> str:
    if not names:
        return results[()]
    parts: dict[Any, dict[tuple[Any, ...], str]] = {}
    for values, result in results.items():
        parts.setdefault(values[0], {})[values[1:]] = result
    branches = {value: _tree(part, names[1:]) for value, part in parts.items()}
    text = usual = Counter(branches.values()).most_common(1)[0][0]
    for other in (each for each in dict.fromkeys(branches.values()) if each != usual):
        of = [_text(value) for value in branches if branches[value] == other]
        text = "(%s if %s else %s)" % (other, " or ".join("%s == %s" % (names[0], value) for value in of), text)
    return text
