# SPDX-License-Identifier: Apache-2.0
"""Problems as Python objects: what is to be computed, without the numbers in the tensors.

The library's own table of fields gives their names, defaults and limits (fa_problem.h); _types.py repeats the names
for type checkers.
"""
from __future__ import annotations

import json
import operator
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, Union, overload

from . import _core, _errors
from ._errors import ArgumentError, did_you_mean, one_of, refuse_feature, shown
from ._types import KvDtype, Layout, LengthsK, Mask, ProblemFields

if TYPE_CHECKING:
    from typing_extensions import Unpack

ALSO = {"seq": ("seq_q", "seq_k"), "heads": ("heads_q",)}
MEANT = {"decode": ": one query each is seq_q=1, with the keys as seq_k."}
ARGUMENTS = ("gpu", "device", "effort", "again", "exact", "progress", "strategy", "evaluations", "seconds", "memory", "same_bits", "seconds_each",
             "trials")  # of tune() and sweep()
ELEMENTS = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16", "float32": "fp32"}
MASKS = {True: "bottom-right", False: "none"}
_ATTENTION = _core.fields_of(None)


def fields() -> list[str]:
    """The names of the fields that problems have."""
    return list(_ATTENTION)


def names(has: Iterable[str]) -> list[str]:
    """Of these fields, and those that stand for one or two of them."""
    return [*has, *(also for also, parts in ALSO.items() if also not in has and parts[0] in has)]


def _word(name: str, value: Any) -> Any:
    """A choice as the library spells it: of torch.float16, numpy.float16, "float16"; of True."""
    if name == "dtype":
        text = getattr(value, "__name__", str(value)).rpartition(".")[2]
        return ELEMENTS.get(text, text)
    if name == "causal" and value in (True, False):
        return MASKS[bool(value)]
    return value


def flag(name: str, value: Any, more: str = "") -> bool:
    """True or False, and nothing that is merely taken for one of them."""
    if not isinstance(value, bool):
        raise ArgumentError("%s is True or False, not %s%s" % (name, shown(value), more))
    return value


def _value(name: str, value: Any, values: Any, most: int) -> Any:
    """The value of one field, of which `values` are possible (_core.fields_of)."""
    if isinstance(values, list):
        word = value if isinstance(value, str) and value in values else _word(name, value)
        if word not in values:
            one_of(name, value, [*values, *(MASKS if name == "causal" else ())])
        return word
    if values is str:
        if not isinstance(value, str):
            form = 'a list of types, such as "slope:f32[:] a:f32"' if name == "buffers" else 'an expression, such as "k <= q or k < 100"'
            raise ArgumentError("%s is %s, not %s" % (name, form, shown(value)))
        return value
    if values is bool:
        return flag(name, value, ": how far it reaches is window_left and window_right" if name == "window" else "")
    low, high = values
    try:
        number = operator.index(value)  # also of NumPy's integers, and of a size of PyTorch
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise ArgumentError("%s is a whole number, not %s" % (name, shown(value)))
    if not low <= number <= max(high, most):  # what the library can read it judges itself, in better words
        raise ArgumentError("%s is %s: give %s to %s" % (name, *("{:,}".format(one) for one in (number, low, high))))
    return number


def named(given: dict[str, Any]) -> dict[str, Any]:
    """Keywords as fields of their operation and values that each may have; seq says seq_q and seq_k, unless it is a field."""
    operation = given.get("operation")
    if not isinstance(operation, (str, type(None))):
        raise ArgumentError("operation is a name, such as \"attn_fwd\", not %s" % shown(operation))
    has = _ATTENTION if operation is None else _core.fields_of(operation)
    own = {} if operation is None else {"operation": operation}
    for name, parts in ALSO.items():
        if name in given and name not in has and given.keys() >= set(parts):
            raise ArgumentError("%s is given beside %s: leave one of them out" % (name, " and ".join(parts)))
    for name, value in sorted(given.items(), key=lambda item: item[0] not in ALSO):
        if name == "operation":
            continue
        for field in (name,) if name in has else ALSO.get(name, (name,)):
            if field not in has:
                if operation in (None, "attn_fwd", "attn_bwd"):
                    refuse_feature(name, has)
                raise ArgumentError("a problem%s has no field %r%s It has %s%s" % (
                    " of " + operation.partition("@")[0] if operation else "", name,
                    MEANT.get(name) or (name in ARGUMENTS and ": fa_tune.tune() or sweep() takes it.") or
                    did_you_mean(name, names(has)) or ".", ", ".join(names(has)),
                    "" if operation else "; operation=\"NAME\" gives it the fields of another operation"))
            own[field] = _value(name, value, has[field][0], 10**15 - 1 if operation else 2**31 - 1)
    return own


class HasProblem(Protocol):
    """An answer, a kernel, an item of a sweep."""

    @property
    def problem(self) -> Problem: ...


ProblemLike: TypeAlias = Union["Problem", Mapping[str, Any], HasProblem]


class Problem:
    """One attention problem, as `fa-tune` tunes it.

    fa_tune.Problem(seq=512, head_dim=64, dtype="bf16", batch=4, heads=8, causal=True)

    seq          sequence length of queries and keys; seq_q and seq_k say them apart
    heads        query heads; heads_kv: key and value heads, a divisor of heads (as many)
    batch        batch size (4)
    head_dim     elements per head, a multiple of 8 up to 576 (64)
    dtype        "fp16" or "bf16", or the dtype of PyTorch or NumPy ("fp16")
    causal       True or "bottom-right": query i sees keys j <= i + seq_k - seq_q; "top-left":
                 j <= i, as in PyTorch's SDPA; False (default): all keys
    layout       "bhsd" or "bshd": the order of dimensions while measuring ("bhsd")
    lse          True: also write the log-sum-exp (False)
    unaligned    True: pointers or strides need not be multiples of 16 bytes (False)
    window, page, score and others: docs/serving.md, "Fields of the problem"
    operation    the name of another operation, whose fields are then given by their own names

    Fields are attributes, seq and heads too where they say it all, and those of another operation are read as problem["rows"].
    Raises fa_tune.ArgumentError for fields that do not exist or have no such value, and other classes of
    fa_tune.Error for those that do not fit together.
    """

    __slots__ = ("_fields", "_key")
    operation: str
    dtype: str
    causal: Mask
    layout: Layout
    head_dim: int
    head_dim_v: int
    v_in_k: bool
    batch: int
    heads: int
    heads_q: int
    heads_kv: int
    seq: int
    seq_q: int
    seq_k: int
    lse: bool
    unaligned: bool
    varlen: bool
    lengths_k: LengthsK
    page: int
    window: bool
    window_left: int
    window_right: int
    softcap: bool
    sinks: bool
    kv_dtype: KvDtype
    q_dtype: KvDtype
    batch_invariant: bool
    mean_q: int
    mean_k: int
    score: str
    mask: str
    buffers: str
    _fields: dict[str, Any]
    _key: str

    @overload
    def __init__(self, **fields: Unpack[ProblemFields]) -> None: ...
    @overload
    def __init__(self, *, operation: str, **fields: Any) -> None: ...
    def __init__(self, **fields: Any) -> None:
        own = named(fields)
        if "seq_q" not in own and "operation" not in own:
            raise ArgumentError("a problem needs its sequence length: seq=512, or seq_q and seq_k")
        try:
            self._fields = _core.problem(own)
        except _errors.Error as error:
            if "heads" in fields:  # the name that the caller knows
                error.args = (str(error).replace("heads_q", "heads"),)
            raise
        self._key = json.dumps(self._fields)

    @classmethod
    def of(cls, given: ProblemLike) -> Problem:
        """A Problem of one: itself, a mapping of fields, or an answer's."""
        if isinstance(given, Problem):
            return given
        found = getattr(given, "problem", given)
        if isinstance(found, Problem):
            return found
        if isinstance(found, Mapping) and all(isinstance(name, str) for name in found):
            return cls(**found)
        raise ArgumentError("a problem is a fa_tune.Problem, a mapping of its fields such as dict(seq=512), or an "
                            "answer, not %s" % shown(given))

    def _field(self, name: str) -> Any:
        if name in Problem.__slots__:  # being restored
            raise AttributeError(name)
        if name in self._fields:
            return self._fields[name]
        if len(also := {self._fields.get(field) for field in ALSO.get(name, ())} - {None}) == 1:
            return also.pop()
        if name in _ATTENTION and self._fields["operation"] == "attn_fwd":  # off: JSON leaves it out
            return _ATTENTION[name][1]
        raise AttributeError("a problem has no field %r%s It has %s" % (
            name, did_you_mean(name, names(self._fields)) or ".", ", ".join(names(self._fields))))

    if not TYPE_CHECKING:  # a checker knows the fields from the list above
        __getattr__ = _field

    def __reduce__(self) -> tuple[Any, ...]:
        return restored, (self._fields,)

    def __getitem__(self, name: str) -> Any:
        try:
            return self._field(name)
        except AttributeError as error:
            raise KeyError(str(error)) from None

    def as_dict(self) -> dict[str, Any]:
        """Every field by its name, as JSON has them."""
        return dict(self._fields)

    def as_json(self) -> str:
        """The same as one line of JSON, which `fa-tune sweep --plan` takes too."""
        return self._key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})

    def __repr__(self) -> str:
        shown_fields, fields = {}, self._fields
        usual = _core.problem({"seq_q": 1})
        if fields.get("operation") != usual["operation"]:  # a winner of an operation of somebody's own
            return "Problem(%s)" % ", ".join("%s=%r" % item for item in fields.items())
        for name, value in fields.items():
            if value != usual.get(name) or name in ("dtype", "head_dim", "batch"):
                shown_fields[name] = value
        for name in ("seq_q", "seq_k", "heads_q"):
            shown_fields.pop(name, None)
        if shown_fields.pop("heads_kv", fields["heads_kv"]) != fields["heads_q"]:
            shown_fields["heads_kv"] = fields["heads_kv"]
        first = {"heads": fields["heads_q"]}
        first.update({"seq": fields["seq_q"]} if fields["seq_q"] == fields["seq_k"] else
                     {"seq_q": fields["seq_q"], "seq_k": fields["seq_k"]})
        return "Problem(%s)" % ", ".join("%s=%r" % item for item in {**shown_fields, **first}.items())


def restored(fields: dict[str, Any]) -> Problem:
    """A Problem of every field, as the library wrote them."""
    problem = Problem.__new__(Problem)
    problem._fields, problem._key = fields, json.dumps(fields)
    return problem


def problems_of(given: Iterable[ProblemLike]) -> list[Problem]:
    """The problems of an argument that takes several."""
    if isinstance(given, (Mapping, str, bytes)) or not isinstance(given, Iterable):
        raise ArgumentError("problems are a list, such as [fa_tune.Problem(seq=512)], or a recording, not %s" % shown(given))
    return [Problem.of(problem) for problem in given]


def ceiling(length: int) -> int:
    """The next length that is tuned, eight in an octave: a longest length may be said to be longer than it is, and so
    an engine meets few problems."""
    step = 1 << max(length.bit_length() - 4, 0)
    return -(-length // step) * step


def planned(given: Any) -> Problem:
    """The problem of a line of a plan, which may be in \"problem\" and name a GPU."""
    if isinstance(given, dict):
        given = given.get("problem", given)
    if isinstance(given, dict):
        given.pop("gpu", None)
    return Problem.of(given)


def problems_of_file(path: str | os.PathLike[str], wrong: list[Exception] | None = None) -> list[Problem]:
    """The problems of a file that a recording has saved, or of any plan of `fa-tune sweep`: one a line. A line that is
    none raises, or where `wrong` is given is left out and its error added there."""
    problems = []
    try:
        opened = open(os.fspath(path), encoding="utf-8", errors="surrogateescape")  # pylint: disable=consider-using-with
    except OSError as error:
        kind = _errors.MissingFileError if isinstance(error, FileNotFoundError) else _errors.FileError
        raise kind(error.errno, error.strerror, os.fspath(path)) from None
    except ValueError as error:  # a null byte
        raise ArgumentError("%s is no path: %s" % (shown(path), error)) from None
    with opened as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                problems.append(planned(json.loads(line)))
            except (ValueError, _errors.Error) as error:
                said = _errors.Error("%s, line %d is no problem: %s" % (os.fspath(path), number, error))
                if wrong is None:
                    raise said from error
                wrong.append(said)
    return problems
