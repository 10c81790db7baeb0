# SPDX-License-Identifier: Apache-2.0
"""What fa_tune answers, as objects: winners, kernels, sweeps, reports and the doctor's findings.

Times are in microseconds, as float; None is what is not known.
"""
from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, overload

from . import _core
from ._errors import ArgumentError, did_you_mean, shown
from ._problem import Problem, restored
from ._tables import Table, counted, html_table, kernel_of, number, record, time_of, times

Origin = Literal["measured", "measured-same-silicon", "imported", "nearest", "transferred", "predicted", "unranked"]


class Answer:
    """A winner for a problem on a GPU, and how it is known.

    problem       fa_tune.Problem that was asked for; from_problem: the one that was tuned for it
    gpu           name of the GPU that it is for
    origin        "measured", "measured-same-silicon", "imported", "nearest", "transferred",
                  "predicted" or "unranked" (no model has a time), in this order of trust; `why` says it in a sentence
    family, tunables   the kernel's template and its parameters
    median_us     median time, measured, with low_us and high_us, its 95% confidence interval; those of from_problem
                  where origin is "nearest"
    predicted_us  what the cost model says
    tflops        at median_us
    shortlist_only     whether only a few configs were measured

    docs/json.md has the other fields, which are attributes too; as_dict() has them all.
    """

    __slots__ = ("problem", "_fields")
    problem: Problem
    origin: Origin
    why: str
    from_store: bool
    from_system: bool
    from_gpu: str | None
    status: str
    reason: str
    threads: int
    smem_bytes: int
    static_smem_bytes: int
    registers: int
    spill_bytes: int
    blocks_per_sm: int
    grid: list[int]
    compile_ms: float | None
    predicted_us: float | None
    median_us: float | None
    low_us: float | None
    high_us: float | None
    sample_count: int | None
    raced: bool
    max_error: float | None
    tolerance: float | None
    entry: str
    cubin_key: str
    nvrtc: str
    driver_version: int | None
    unix_time: int
    default_us: float | None
    speedup_over_default: float | None
    tflops: float | None
    tune_s: float | None
    funnel: dict[str, int]
    ties: int
    shortlist_only: bool
    _fields: dict[str, Any]

    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields
        self.problem = restored(fields["problem"])

    if not TYPE_CHECKING:  # a checker knows the fields from the list above
        def __getattr__(self, name):
            if name in Answer.__slots__:  # being restored
                raise AttributeError(name)
            if name in self._fields:
                return self._fields[name]
            raise AttributeError("an answer has no field %r%s" % (name, did_you_mean(name, self._fields)))

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._fields})

    def as_dict(self) -> dict[str, Any]:
        """Every field by its name, as JSON has them (docs/json.md)."""
        return dict(self._fields)

    @property
    def gpu(self) -> str:
        return str(self._fields["gpu"]["name"])

    @property
    def from_problem(self) -> Problem:
        return restored(self._fields["from_problem"])

    @property
    def same_bits(self) -> str | None:
        return self._fields.get("same_bits")

    @property
    def family(self) -> str:
        return str(self._fields["config"]["family"])

    @property
    def tunables(self) -> dict[str, int | float | str]:
        return dict(self._fields["config"]["tunables"])

    @property
    def kernel(self) -> str:
        """The kernel in words: family and parameters."""
        return kernel_of(self._fields["config"])

    @property
    def time(self) -> str:
        """The time in words; ~ before what a model says, and before another length's."""
        if self.origin == "nearest" or self.median_us is None or self.low_us is None or self.high_us is None:
            return time_of(self._fields)
        half = max(self.high_us - self.median_us, self.median_us - self.low_us)
        median = number(self.median_us, " µs")
        return "%s ± %s" % (median, number(half)) if half > 0 else median  # a single launch has none

    def _how(self) -> str:
        return self.origin + (", same bits as %s" % self.same_bits if self.same_bits else "")

    def _lines(self) -> list[tuple[str, str]]:
        speed = ", %s%s TFLOP/s" % ("~" * (self.origin == "nearest"), number(self.tflops)) if self.tflops else ""
        lines = [("problem", repr(self.problem)[8:-1]), ("GPU", self.gpu), ("time", self.time + speed),
                 (self._how(), self.kernel), ("why", self.why)]
        return [line for line in lines if line[1]]

    def __repr__(self) -> str:
        return "<%s on %s, %s: %s for %s>" % (self.time, self.gpu, self._how(), self.kernel, self.problem)

    def __str__(self) -> str:
        return "\n".join("%-9s %s" % line for line in self._lines())

    def _repr_html_(self) -> str:
        return html_table("Answer", (), self._lines())

    def _record(self) -> dict[str, Any]:
        return record(self.problem.as_dict(), self.gpu, origin=self.origin, **times(self._fields), tflops=self.tflops,
                      speedup_over_default=self.speedup_over_default)

    def __reduce__(self) -> tuple[Any, ...]:
        return Answer, (self._fields,)


class Winners(Table, tuple[Answer, ...]):
    """Stored winners, newest first: a tuple of fa_tune.Answer that prints as a table."""

    _header = ("problem", "GPU", "time", "origin", "kernel")

    def _title(self) -> str:
        return counted(len(self), "winner")

    def _rows(self) -> list[tuple[str, ...]]:
        return [(repr(one.problem)[8:-1], one.gpu, one.time, one._how(), one.kernel) for one in self]

    def _records(self) -> list[dict[str, Any]]:
        return [one._record() for one in self]


class Forgotten(Winners):
    """The winners that fa_tune.forget() has forgotten, or would: fa_tune.Winners, and how much went with them.

    trials     configs that were on record for these problems, and for those without a winner
    cubins     compiled kernels that nothing else refers to
    bytes      of all that
    unread     how many problems go beside these winners that cannot be read here: of an operation whose templates
               are gone, or of another version
    dry_run    whether all of it is still there
    """

    trials: int
    cubins: int
    bytes: int
    unread: int
    dry_run: bool

    def __new__(cls, winners: Iterable[Answer], *, unread: int, dry_run: bool, **counts: int) -> Forgotten:
        self = super().__new__(cls, winners)
        self.unread, self.dry_run = unread, dry_run
        for name in ("trials", "cubins", "bytes"):
            setattr(self, name, counts[name])
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        counts = {name: getattr(self, name) for name in Forgotten.__annotations__}
        return functools.partial(Forgotten, **counts), (tuple(self),)

    def _title(self) -> str:
        unread = ", and %s that cannot be read here" % counted(self.unread, "problem") if self.unread else ""
        return "%s %s: %s and %s, %d bytes%s" % (
            "would forget" if self.dry_run else "forgot", counted(len(self), "winner"), counted(self.trials, "trial"),
            counted(self.cubins, "cubin"), self.bytes, unread)


class SweepItem:
    """One problem of a sweep: problem, gpu (name, or None), state ("pending", "running", "done" or
    "failed"), reason (why it failed), answer (fa_tune.Answer or None)."""

    __slots__ = ("problem", "gpu", "state", "reason", "answer")
    problem: Problem
    gpu: str | None
    state: Literal["pending", "running", "done", "failed"]
    reason: str
    answer: Answer | None

    def __init__(self, problem: Problem, gpu: str | None = None) -> None:
        self.problem, self.gpu = problem, gpu
        self.state, self.reason, self.answer = "pending", "", None

    def _take(self, event: dict[str, Any]) -> None:
        """What an event, or the store, says of it."""
        self.state, self.reason = event["item"]["state"], event["item"]["reason"]
        if event["answer"] is not None:
            self.answer = Answer(event["answer"])
            self.gpu = self.answer.gpu

    def __repr__(self) -> str:
        return "%r on %s: %s" % (self.problem, self.gpu,
                                 self.answer.time if self.answer else self.reason or self.state)


class Sweep(Table, tuple[SweepItem, ...]):
    """A sweep's items (fa_tune.SweepItem). `state` is "done", "budget-spent" or "stopped"; `spent`
    and `budget` are dicts with seconds and trials."""

    state: Literal["done", "budget-spent", "stopped"]
    spent: dict[str, Any]
    budget: dict[str, Any]
    _header = ("problem", "GPU", "state", "time")

    def __new__(cls, items: Iterable[SweepItem], document: dict[str, Any]) -> Sweep:
        self = super().__new__(cls, items)
        self.state, self.spent, self.budget = document["state"], document["spent"], document["budget"]
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Sweep, (tuple(self), {"state": self.state, "spent": self.spent, "budget": self.budget})

    def answers(self) -> Winners:
        """The answers of the items that have one."""
        return Winners(one.answer for one in self if one.answer is not None)

    def _title(self) -> str:
        return "sweep of %s, %s after %.1f s" % (counted(len(self), "problem"), self.state, self.spent["seconds"])

    def _rows(self) -> list[tuple[str, ...]]:
        return [(repr(one.problem)[8:-1], one.gpu or "", one.state,
                 one.answer.time if one.answer else one.reason) for one in self]

    def _records(self) -> list[dict[str, Any]]:
        return [{**(one.answer._record() if one.answer else record(one.problem.as_dict(), one.gpu)),
                 "state": one.state, "reason": one.reason} for one in self]


class Report(Table):
    """What the store knows of every problem: `document`, as docs/json.md describes it."""

    _FORMATS = {".html": "html", ".htm": "html", ".json": "json"}

    document: dict[str, Any]
    _header = ("problem", "GPU", "origin", "time")

    def __init__(self, keep: Callable[[dict[str, Any], str], bool]) -> None:
        self._keep, self._path = keep, ""
        self.document = json.loads(_core.report("json", keep))

    @property
    def problems(self) -> list[dict[str, Any]]:
        """The document's list of problems, each a dict."""
        found: list[dict[str, Any]] = self.document["problems"]
        return found

    @classmethod
    def _format_of(cls, path: str | os.PathLike[str]) -> str:
        if not isinstance(path, (str, os.PathLike)):
            raise ArgumentError("path is the path of the report's file, such as \"report.html\", not %s" % shown(path))
        ending = os.path.splitext(os.fspath(path))[1]
        if ending not in cls._FORMATS:
            raise ArgumentError("%s: its ending names no format: use .html or .json" % os.fspath(path))
        return cls._FORMATS[ending]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as a page (.html) or as JSON (.json). The file appears whole or not at all."""
        _core.write_file(os.fspath(path), _core.report(self._format_of(path), self._keep))
        self._path = os.fspath(path)

    def _title(self) -> str:
        written = " in " + self._path if self._path else ""
        return "report of %s%s, store %s" % (counted(len(self.problems), "problem"), written, self.document["store"])

    def _rows(self) -> list[tuple[str, ...]]:
        return [(one["words"], one["gpu"]["name"], one["known_how"], time_of(one["winner"]) if one["winner"] else "")
                for one in self.problems]

    def _records(self) -> list[dict[str, Any]]:
        def over(value: float | None, one: dict[str, Any], unit: float, names: tuple[str, ...]) -> float | None:
            us = next((one["winner"][name] for name in names if one["winner"] and one["winner"][name]), None)
            return value / us * unit if value and us else None

        return [record(one["problem"], one["gpu"]["name"], origin=one["known_how"], **times(one["winner"] or {}),
                       tflops=over(one["flops"], one, 1e-6, ("median_us", "predicted_us")),
                       speedup_over_default=over(one["default_us"], one, 1, ("median_us",))) for one in self.problems]


class Check:
    """One finding of the doctor: level ("ok", "warn" or "fail"), name, text, advice ("" when ok)."""

    __slots__ = ("level", "name", "text", "advice")

    def __init__(self, level: Literal["ok", "warn", "fail"], name: str, text: str, advice: str) -> None:
        self.level, self.name, self.text, self.advice = level, name, text, advice

    def __repr__(self) -> str:
        return "%-4s  %s: %s%s" % (self.level, self.name, self.text, " -> " + self.advice if self.advice else "")


class Doctor(Table, tuple[Check, ...]):
    """The doctor's findings (fa_tune.Check). True when none of them failed."""

    _header = ("", "check", "found", "advice")

    def __bool__(self) -> bool:
        return all(one.level != "fail" for one in self)

    @overload
    def __getitem__(self, which: SupportsIndex | str) -> Check: ...
    @overload
    def __getitem__(self, which: slice) -> tuple[Check, ...]: ...
    def __getitem__(self, which: SupportsIndex | slice | str) -> Check | tuple[Check, ...]:
        """By place, or by a check's name: doctor()["nvrtc"]."""
        if not isinstance(which, str):
            return super().__getitem__(which)
        for one in self:
            if one.name == which:
                return one
        raise KeyError("no check %r: there are %s" % (which, ", ".join(one.name for one in self)))

    def _title(self) -> str:
        return "doctor: " + ", ".join("%d %s" % (sum(one.level == level for one in self), level)
                                      for level in ("ok", "warn", "fail"))

    def _rows(self) -> list[tuple[str, ...]]:
        return [(one.level, one.name, one.text, one.advice) for one in self]

    def _records(self) -> list[dict[str, Any]]:
        return [dict(zip(("level", "name", "text", "advice"), row)) for row in self._rows()]

    def __str__(self) -> str:
        return "\n".join("%-4s  %s: %s%s" % (*row[:3], "\n      -> " + row[3] if row[3] else "") for row in self._rows())
