# SPDX-License-Identifier: Apache-2.0
"""Problems as Python objects: what is to be computed, without the numbers in the tensors.

The library's own table of fields gives their names, defaults and limits (fa_problem.h), so a field
that joins the operation is known here without a change.
"""
from __future__ import annotations

import json
import math
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core, _errors

ALSO = {"seq": ("seq_q", "seq_k"), "heads": ("heads_q",)}
ELEMENTS = {"float16": "fp16", "half": "fp16", "bfloat16": "bf16"}
MASKS = {True: "bottom-right", False: "none", None: "none"}


def fields() -> list[str]:
    """The names of the fields that problems have."""
    return list(_core.fields)


def _value(name, value):
    if name == "dtype":
        text = str(value).rpartition(".")[2]  # torch.float16, numpy's float16, "fp16"
        return ELEMENTS.get(text, text)
    if name == "causal" and not isinstance(value, str):
        return MASKS[bool(value)]
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    try:
        return operator.index(value)  # NumPy's integers, a size of PyTorch
    except TypeError:
        raise _errors.ArgumentError("%s is a number, a word or a bool, not %s" % (name, shown(value))) from None


def shown(value):
    """A value in a sentence."""
    text = repr(value)
    return text if len(text) <= 60 else "a " + type(value).__name__


def named(fields, own=()):
    """Keywords as the operation's own fields and values: seq says seq_q and seq_k, unless it is one of its `own` fields."""
    given = {}
    for name, value in sorted(fields.items(), key=lambda item: item[0] not in ALSO):
        for field in (name,) if name in own else ALSO.get(name, (name,)):
            given[field] = _value(field, value)
    return given


class Problem:
    """One attention problem, as `fa-tune` tunes it.

    fa_tune.Problem(seq=512, head_dim=64, dtype="bf16", batch=4, heads=8, causal=True)

    seq          sequence length of queries and keys; seq_q and seq_k say them apart
    heads        query heads; heads_kv: key and value heads, a divisor of heads (as many)
    batch        batch size (4)
    head_dim     elements per head, a multiple of 8 up to 512 (64)
    dtype        "fp16" or "bf16", or the dtype of PyTorch or NumPy ("fp16")
    causal       True or "bottom-right": query i sees keys j <= i + seq_k - seq_q; "top-left":
                 j <= i, as in PyTorch's SDPA; False (default): all keys
    layout       "bhsd" or "bshd": the order of dimensions while measuring ("bhsd")
    lse          with the log-sum-exp written (False)
    unaligned    for pointers or strides that are not multiples of 16 bytes (False)

    Raises fa_tune.Error, with a sentence, for fields that do not exist or do not fit together.
    """

    __slots__ = ("_fields", "_key")

    def __init__(self, **fields: Any):
        self._fields = _core.problem(named(fields))
        self._key = json.dumps(self._fields)

    @classmethod
    def of(cls, given):
        """A Problem of one: itself, a mapping of fields, or an answer's."""
        if isinstance(given, cls):
            return given
        found = getattr(given, "problem", given)
        if isinstance(found, cls):
            return found
        if isinstance(found, Mapping) and all(isinstance(name, str) for name in found):
            return cls(**found)
        raise _errors.ArgumentError("a problem is a fa_tune.Problem, a mapping of its fields such as dict(seq=512), or an "
                                    "answer, not %s" % shown(given))

    def __getattr__(self, name: str) -> Any:
        if name in Problem.__slots__:  # being restored
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            raise AttributeError("a problem has no field %r: it has %s"
                                 % (name, ", ".join(self._fields))) from None

    def __reduce__(self):
        return restored, (self._fields,)

    def __getitem__(self, name):
        return self._fields[name]

    def as_dict(self) -> dict[str, Any]:
        """Every field by its name, as JSON has them."""
        return dict(self._fields)

    def as_json(self) -> str:
        """The same as one line of JSON, which `fa-tune sweep --plan` takes too."""
        return self._key

    def __eq__(self, other):
        return isinstance(other, Problem) and self._key == other._key

    def __hash__(self):
        return hash(self._key)

    def __dir__(self):
        return [*super().__dir__(), *self._fields]

    def __repr__(self):
        told, fields = {}, self._fields
        usual = _core.problem({"seq_q": 1})
        if fields.get("operation") != usual["operation"]:  # a winner of an operation of somebody's own
            return "Problem(%s)" % ", ".join("%s=%r" % item for item in fields.items())
        for name, value in fields.items():
            if value != usual.get(name) or name in ("dtype", "head_dim", "batch"):
                told[name] = value
        told.pop("seq_q", None), told.pop("seq_k", None), told.pop("heads_q", None)
        if told.pop("heads_kv", fields["heads_kv"]) != fields["heads_q"]:
            told["heads_kv"] = fields["heads_kv"]
        first = {"heads": fields["heads_q"]}
        first.update({"seq": fields["seq_q"]} if fields["seq_q"] == fields["seq_k"] else
                     {"seq_q": fields["seq_q"], "seq_k": fields["seq_k"]})
        return "Problem(%s)" % ", ".join("%s=%r" % item for item in {**told, **first}.items())


def restored(fields):
    """A Problem of every field, as the library wrote them."""
    problem = Problem.__new__(Problem)
    problem._fields, problem._key = fields, json.dumps(fields)
    return problem


def problems_of(given: Iterable[Problem | Any]) -> list[Problem]:
    """The problems of an argument that takes several."""
    if isinstance(given, (Mapping, str, bytes)) or not isinstance(given, Iterable):
        raise _errors.ArgumentError("problems are a list, such as [fa_tune.Problem(seq=512)], or a recording, not %s"
                                    % shown(given))
    return [Problem.of(problem) for problem in given]


def problems_of_file(path: str | os.PathLike) -> list[Problem]:
    """The problems of a file that a recording has saved, or of any plan of `fa-tune sweep`: one a line."""
    problems = []
    with open(os.fspath(path), encoding="utf-8", errors="surrogateescape") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                given = json.loads(line)
                if isinstance(given, dict):
                    given = given.get("problem", given)
                if isinstance(given, dict):
                    given.pop("gpu", None)
                problems.append(Problem.of(given))
            except (ValueError, _errors.Error) as error:
                raise _errors.Error("%s, line %d is no problem: %s" % (path, number, error)) from error
    return problems
