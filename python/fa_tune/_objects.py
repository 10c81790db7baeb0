# SPDX-License-Identifier: Apache-2.0
"""What fa_tune answers, as objects: winners, kernels, sweeps, reports and the doctor's findings.

Times are in microseconds, as float; None is what is not known.
"""
from __future__ import annotations

import datetime
import itertools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

from . import _core
from ._errors import ArgumentError, Error
from ._problem import Problem, problems_of, restored, shown


def counted(number, word):
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def _time(told):
    """A trial's time in words; ~ before what a model says."""
    if told.get("median_us") is not None:
        return _number(told["median_us"], " µs")
    if told.get("predicted_us") is None:
        return "?"
    return "~" + _number(told["predicted_us"], " µs")


def _number(value, unit=""):
    if value is None:
        return "?"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return "%.*f%s" % (digits, value, unit)


class Answer:
    """A winner for a problem on a GPU, and how it is known.

    problem       fa_tune.Problem that was asked for; from_problem: the one that was tuned for it
    gpu           name of the GPU that it is for
    origin        "measured", "measured-same-silicon", "imported", "nearest", "transferred",
                  "predicted" or "unranked" (no model has a time), in this order of trust; `why` says it in a sentence
    family, tunables   the kernel's template and its parameters
    median_us     median time, measured, with low_us and high_us, its 95% confidence interval
    predicted_us  what the cost model says
    tflops        at median_us
    told          everything else, by the names of `fa-tune --json`
    """

    __slots__ = ("problem", "told")
    problem: Problem
    told: dict[str, Any]
    origin: str
    why: str
    median_us: float | None
    low_us: float | None
    high_us: float | None
    predicted_us: float | None
    tflops: float | None
    from_store: bool

    def __init__(self, told: dict[str, Any]):
        self.told = told
        self.problem = restored(told["problem"])

    def __getattr__(self, name):
        if name not in Answer.__slots__ and name in self.told:
            return self.told[name]
        raise AttributeError("an answer has no %r" % name)

    def __getitem__(self, name):
        return self.told[name]

    def __dir__(self):
        return [*super().__dir__(), *self.told]

    @property
    def gpu(self) -> str:
        return self.told["gpu"]["name"]

    @property
    def from_problem(self) -> Problem:
        return restored(self.told["from_problem"])

    @property
    def family(self) -> str:
        return self.told["config"]["family"]

    @property
    def tunables(self) -> dict[str, float | str]:
        return dict(self.told["config"]["tunables"])

    @property
    def kernel(self) -> str:
        """The kernel in words: family and parameters."""
        return " ".join([self.family, *("%s=%s" % one for one in self.tunables.items())])

    @property
    def time(self) -> str:
        """The time in words; ~ before what a model says."""
        if self.median_us is None or self.low_us is None or self.high_us is None:
            return _time(self.told)
        half = max(self.high_us - self.median_us, self.median_us - self.low_us)
        return "%s ± %s" % (_number(self.median_us, " µs"), _number(half))

    def __repr__(self):
        speed = ", %.0f TFLOP/s" % self.tflops if self.tflops else ""
        return "Answer: %s on %s\n  %s%s\n  %s: %s" % (
            self.problem, self.gpu, self.time, speed, self.origin, self.kernel)

    def __reduce__(self):
        return Answer, (self.told,)


class Winners(tuple[Answer, ...]):
    """Stored winners, newest first: a tuple of fa_tune.Answer that prints as a table."""

    def __repr__(self):
        rows = [(repr(one.problem)[8:-1], one.gpu, one.time, one.origin, one.kernel) for one in self]
        return "\n".join([counted(len(self), "winner"), *_table(rows)])


class Forgotten(Winners):
    """The winners that fa_tune.forget() has forgotten, or would: fa_tune.Winners, and how much went with them.

    trials     configs that were on record for these problems, and for those without a winner
    cubins     compiled kernels that nothing else refers to
    bytes      of all that; freed: by how much the store's file became smaller
    elsewhere  how many of the winners a system bundle or the fleet has, too: the next lookup finds that
    unread     how many problems go beside these winners that cannot be read here: of an operation whose templates
               are gone, or of another version
    dry_run    whether all of it is still there
    """

    trials: int
    cubins: int
    bytes: int
    freed: int
    elsewhere: int
    unread: int
    dry_run: bool

    def __new__(cls, told):
        self = super().__new__(cls, (Answer(one["answer"]) for one in told["problems"] if one["answer"]))
        for name in ("trials", "cubins", "bytes", "freed", "elsewhere"):
            setattr(self, name, told["forgotten"][name])
        self.unread = sum(one["unread"] for one in told["problems"])
        self.dry_run = told["dry_run"]
        return self

    def __repr__(self):
        unread = ", and %s that cannot be read here" % counted(self.unread, "problem") if self.unread else ""
        return "\n".join(["%s %s and %s, %d bytes%s" % (
            "would forget" if self.dry_run else "forgot", counted(self.trials, "trial"),
            counted(self.cubins, "cubin"), self.bytes, unread), super().__repr__()])


class SweepItem:
    """One problem of a sweep: problem, gpu (name, or None), state ("pending", "running", "done" or
    "failed"), reason (why it failed), answer (fa_tune.Answer or None)."""

    __slots__ = ("problem", "gpu", "state", "reason", "answer")
    problem: Problem
    gpu: str | None
    state: str
    reason: str
    answer: Answer | None

    def __init__(self, problem, gpu=None):
        self.problem, self.gpu = problem, gpu
        self.state, self.reason, self.answer = "pending", "", None

    def _take(self, event):
        """What an event, or the store, says of it."""
        self.state, self.reason = event["item"]["state"], event["item"]["reason"]
        if event["answer"] is not None:
            self.answer = Answer(event["answer"])
            self.gpu = self.answer.gpu

    def __repr__(self):
        return "%r on %s: %s" % (self.problem, self.gpu,
                                 self.answer.time if self.answer else self.reason or self.state)


class Sweep(tuple[SweepItem, ...]):
    """A sweep's items (fa_tune.SweepItem). `state` is "done", "budget-spent" or "stopped"; `spent`
    and `left` are dicts with seconds, trials and cost."""

    state: str
    spent: dict[str, Any]
    left: dict[str, Any] | None

    def __new__(cls, items, told):
        self = super().__new__(cls, items)
        self.state, self.spent, self.left = told["state"], told["spent"], told.get("left")
        return self

    def __reduce__(self):
        return Sweep, (tuple(self), {"state": self.state, "spent": self.spent, "left": self.left})

    def answers(self) -> Winners:
        """The answers of the items that have one."""
        return Winners(one.answer for one in self if one.answer is not None)

    def __repr__(self):
        rows = [(repr(one.problem)[8:-1], one.gpu or "", one.state,
                 one.answer.time if one.answer else one.reason) for one in self]
        return "\n".join(["sweep of %s, %s after %.1f s" % (
            counted(len(self), "problem"), self.state, self.spent["seconds"]), *_table(rows)])


class Report:
    """What the store knows of every problem: `document`, as docs/json.md describes it."""

    document: dict[str, Any]

    def __init__(self, document, options):
        self.document, self._options = document, options

    @property
    def problems(self) -> list[dict[str, Any]]:
        """The document's list of problems, each a dict."""
        return self.document["problems"]

    def save(self, path: str | os.PathLike) -> None:
        """Writes it as a page (.html), Markdown (.md), CSV (.csv) or JSON (.json)."""
        from . import _child
        _child.run("report", "--out", os.fspath(path), *self._options)

    def __repr__(self):
        rows = []
        for one in self.problems:
            winner = one.get("winner") or {}
            rows.append((one.get("words", ""), one.get("gpu", {}).get("name", ""),
                         one.get("known_how", ""), _time(winner) if winner else ""))
        return "\n".join(["report of %s, store %s" % (counted(len(rows), "problem"), self.document["store"]),
                          *_table(rows)])


class Check:
    """One finding of the doctor: level ("ok", "warn" or "fail"), name, text, advice ("" when ok)."""

    __slots__ = ("level", "name", "text", "advice")

    def __init__(self, level: str, name: str, text: str, advice: str):
        self.level, self.name, self.text, self.advice = level, name, text, advice

    def __repr__(self):
        advice = "\n      -> " + self.advice if self.advice else ""
        return "%-4s  %s: %s%s" % (self.level, self.name, self.text, advice)


class Doctor(tuple[Check, ...]):
    """The doctor's findings (fa_tune.Check). True when none of them failed."""

    def __bool__(self):
        return all(one.level != "fail" for one in self)

    def __getitem__(self, which):
        """By place, or by a check's name: doctor()["nvrtc"]."""
        if not isinstance(which, str):
            return super().__getitem__(which)
        for one in self:
            if one.name == which:
                return one
        raise KeyError(which)

    def __repr__(self):
        return "\n".join(repr(one) for one in self)


def _table(rows, limit=30):
    """Rows of texts as aligned lines, the first `limit` of them."""
    shown = rows[:limit]
    widths = [max(map(len, column)) for column in zip(*shown)]
    lines = ["  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
             for row in shown]
    return lines + ["  and %d more" % (len(rows) - limit)] * (len(rows) > limit)


# ---- functions -----------------------------------------------------------------------------------
def _problem(problem, fields):
    if problem is None:
        return Problem(**fields)
    if fields:
        raise TypeError("give a problem or its fields, not both: %s" % ", ".join(fields))
    return Problem.of(problem)


def tune(problem: Problem | Any = None, *, gpu: str | None = None, device: int | None = None,
         effort: str = "measure", again: bool = False, exact: bool = False,
         progress: Callable[[dict], Any] | bool | None = None, strategy: str | None = None,
         evaluations: int = 0, seconds: float = 0, **fields: Any) -> Answer:
    """The winner for a problem, from the store or tuned now.

    fa_tune.tune(seq=512, head_dim=64, dtype="bf16", causal=True)
    fa_tune.tune(problem, gpu="L4")          # a GPU that is not here: compiled for it and predicted

    problem   fa_tune.Problem, mapping or answer; or its fields as keywords
    gpu       name of a GPU type (`fa-tune gpus`); None: the device
    device    CUDA ordinal; None: PyTorch's current device, else 0
    effort    as in fa_tune.policy(); "measure" tunes the whole space here
    again     tune although a winner is stored
    exact     these very lengths, not the bucket that stands for them
    strategy, evaluations, seconds   how the space is searched, and when that ends, as the options of `fa-tune tune --help`;
              0: the default, which is the whole space where it has at most 20,000 configs
    progress  None: a live line on stderr where that is a terminal; False: none; or a function, which
              is called with a dict some times a second

    Returns a fa_tune.Answer. Raises fa_tune.Error and its classes: NotTuned, NotSupported,
    DeviceError. Ctrl-C raises KeyboardInterrupt; what was measured is kept for the next run.
    """
    from . import _engine
    return Answer(_engine.tune(_problem(problem, fields), gpu, device, effort, again, exact, progress,
                               strategy=strategy, evaluations=evaluations, seconds=seconds))


def best_kernel(problem: Problem | Any = None, *, device: int | None = None, effort: str | None = None,
                progress: Callable[[dict], Any] | bool | None = None, **fields: Any) -> _core.Kernel:
    """The best kernel of a problem, loaded and ready: a callable bound to it.

    fa_s512 = fa_tune.kernel(seq=512, head_dim=64, batch=4, heads=8)
    o = fa_s512(q, k, v)                # also out=, scale=, return_lse=

    Shapes and types are checked against the problem once for each call, and no table is searched:
    the tightest loop. Tensors have the problem's shapes, in its layout: q (batch, heads_q, seq_q,
    head_dim), k and v (batch, heads_kv, seq_k, head_dim) for "bhsd".

    effort    as in fa_tune.policy(), whose effort it has by default

    `answer` is the kernel's fa_tune.Answer. Raises as tune() does.
    """
    from . import _engine
    return _engine.kernel(_problem(problem, fields), device, effort, progress)


kernel = best_kernel


def sweep(problems: Iterable[Problem | Any] | None = None, *, gpu: str | Iterable[str] | None = None,
          effort: str | None = None, again: bool = False, seconds: float | None = None,
          trials: int | None = None, cost: float | None = None, price: float | None = None,
          progress: Callable[[dict], Any] | bool | None = None, **grid: Any) -> Sweep:
    """Tunes many problems as one job, which goes on where it was stopped.

    fa_tune.sweep(seq=[512, 1024, 2048], head_dim=[64, 128], causal=[False, True], seconds=1800)
    fa_tune.sweep(recording, gpu=["L4", "H100"])

    problems  an iterable of problems, or a recording; or a grid: fields of a problem, each a value
              or a list of them, of which every combination is tuned
    gpu       a GPU type's name or a list of them; None: the device here
    seconds, trials, cost   budgets for all runs of this sweep together; cost needs price, which is
              money for an hour of the GPU
    effort, again   as in tune()
    progress  called with a dict for each event (a sweep's in docs/json.md); None: a line on stderr for each item that ends;
              False: nothing

    Returns a fa_tune.Sweep. Ctrl-C raises KeyboardInterrupt, and the same call goes on from there.
    Raises fa_tune.Error.
    """
    from ._progress import sweep_on_stderr
    many = {name: value if isinstance(value, (list, tuple, range)) else [value]
            for name, value in grid.items()}
    if problems is None:
        problems = [Problem(**dict(zip(many, values))) for values in itertools.product(*many.values())]
    elif grid:
        raise TypeError("give problems or a grid, not both: %s" % ", ".join(grid))
    problems = problems_of(problems)
    if not problems:
        raise ArgumentError("there is nothing to sweep: the list of problems, or one of the grid, is empty")
    budget = {"seconds": seconds, "trials": trials, "cost": cost, "price": price}
    for name, value in budget.items():
        whole = name == "trials"
        if value is not None and (isinstance(value, bool) or not isinstance(value, int if whole else (int, float))):
            raise ArgumentError("%s is a %snumber, not %s" % (name, "whole " if whole else "", shown(value)))
    items = [SweepItem(problem, name) for problem in problems for name in _gpu_names(gpu)]
    ask = {"items": [{"problem": one.problem.as_dict(), "gpu": one.gpu or ""} for one in items],
           "plan": "%s from Python" % counted(len(problems), "problem"), "again": bool(again),
           "effort": effort or "measure", "budget": {name: value for name, value in budget.items() if value is not None}}
    line = sweep_on_stderr() if progress in (None, True) else None

    def on_event(event):
        item = items[event["index"]]
        item._take(event)
        if line is not None:
            line(event, item)
        elif callable(progress):
            progress(event)

    return Sweep(items, _core.sweep(json.dumps(ask), on_event, lambda event: items[event["index"]]._take(event)))


def _gpu_names(gpu):
    """The names that are swept; None: the device here."""
    if gpu is None or isinstance(gpu, str):
        return [_core.gpu_name(name) for name in gpu.split(",")] if gpu else [None]
    names = list(gpu) if isinstance(gpu, Iterable) else [gpu]
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError("gpu is the name of a GPU's type, such as \"L4\", a list of names, or None, not %s" % shown(gpu))
    return list(dict.fromkeys(map(_core.gpu_name, names)))


def report(path: str | os.PathLike | None = None, *, gpu: str | None = None, **fields: Any) -> Report:
    """What the store knows: every problem, its winner, its rivals, its baselines.

    fa_tune.report("report.html")                     # one page that needs no network
    fa_tune.report(head_dim=64).problems

    path    written where given, as its ending says: .html, .md, .csv or .json
    gpu, fields   keep those problems that agree

    Returns a fa_tune.Report. Needs no GPU and changes nothing.
    """
    from . import _child
    options = _child.options_of({"gpu": gpu, **_filter(fields)})
    told = Report(_child.run_json("report", *options), options)
    if path is not None:
        told.save(path)
    return told


def _filter(fields):
    """Fields to filter by, by their own names: attention's, or those of the operation that is given."""
    from ._problem import named
    operation = fields.pop("operation", None)
    if not isinstance(operation, (str, type(None))):
        raise ArgumentError("operation is a name, such as \"attn_fwd\", not %s" % shown(operation))
    has = _core.fields if operation is None or not fields else _core.fields_of(operation)
    wanted = named(fields, has)
    unknown = [name for name in wanted if name not in has]
    if unknown:
        raise ArgumentError("a problem%s has no field %s: it has %s%s" % (
            " of " + operation if operation else "", ", ".join(unknown), ", ".join(has),
            "" if operation else "; give operation=\"NAME\" for the fields of another operation"))
    return wanted if operation is None else {"operation": operation, **wanted}


def winners(*, gpu: str | None = None, **fields: Any) -> Winners:
    """Stored winners, newest first, as fa_tune.Winners, a tuple of fa_tune.Answer.

    gpu, fields   keep those that agree: fa_tune.winners(gpu="H200", head_dim=128)

    Needs no GPU and changes nothing.
    """
    wanted = _filter(fields)
    wanted_gpu = None if gpu is None else _spelled(gpu)
    found = Winners(one for one in map(Answer, _core.winners()) if wanted_gpu in (None, _spelled(one.gpu)) and
                    all(_agrees(one.problem.as_dict(), *one_wanted) for one_wanted in wanted.items()))
    if not found and gpu is not None:
        _core.gpu_name(gpu)  # a name that nobody knows is a mistake
    return found


def forget(*, gpu: str | None = None, older_than: str | datetime.timedelta | None = None, stale: bool = False,
           everything: bool = False, dry_run: bool = False, **fields: Any) -> Forgotten:
    """Forgets stored winners, and all that tuning stored with them: then it is as if they had never been tuned.

    fa_tune.forget(gpu="L4", head_dim=128, dry_run=True)     # what would go
    fa_tune.forget(older_than="30d")

    gpu, fields   those that agree, as of fa_tune.winners
    older_than    those of which nothing is newer: an age ("30d", "12h"), a date ("2026-01-31") or a timedelta
    stale         those that no template that is present makes any more (`fa-tune rm --help` says it exactly)
    everything    all; nothing else may be given with it
    dry_run       only tells what would go

    Returns a fa_tune.Forgotten. Changes the local store alone: a system bundle or the fleet may have the winner,
    too. Kernels that are loaded in this process stay until fa_tune.close().
    """
    from . import _child
    wanted = _filter(fields)
    off = [name for name, value in wanted.items() if value is False]
    if off:  # no option says so, and more than that would go
        raise ArgumentError("forget() takes no %s=False: problems are chosen by what they have" % off[0])
    if isinstance(older_than, datetime.timedelta):
        older_than = "%ds" % older_than.total_seconds()
    chosen = _child.options_of({"gpu": gpu, "older_than": older_than, "stale": stale, **wanted})
    if bool(chosen) == bool(everything):
        raise ArgumentError("everything=True forgets all: leave it out, or the arguments that choose" if everything else
                            "say what to forget: gpu=, fields of a problem, older_than=, stale=True or everything=True; "
                            "dry_run=True tells what would go")
    return Forgotten(_child.run_json("rm", *chosen, *_child.options_of({"all": everything, "dry_run": dry_run})))


def _spelled(gpu):
    """A GPU's name as the catalogue has it, where it is in there."""
    try:
        return _core.gpu_name(gpu)
    except Error:
        return gpu.lower()


def _agrees(fields, name, value):
    """Whether a problem has the value; a field that it does not tell is off."""
    return fields[name] == value if name in fields else not value


def doctor() -> Doctor:
    """Looks at driver, NVRTC, GPU, store and worker, as `fa-tune doctor` does.

    Returns fa_tune.Doctor, a tuple of fa_tune.Check that is true when nothing failed.
    """
    return Doctor(Check(*one) for one in _core.doctor())
