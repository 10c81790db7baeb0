# SPDX-License-Identifier: Apache-2.0
"""The functions that answer with the objects of _objects.py."""
from __future__ import annotations

import datetime
import inspect
import itertools
import json
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, get_args, overload

from . import _core, _engine
from ._errors import ArgumentError, Error, check_text, did_you_mean, one_of, refuse_feature, shown
from ._objects import Answer, Check, Doctor, Forgotten, Report, Sweep, SweepItem, Winners
from ._problem import ARGUMENTS, MEANT, Problem, ProblemLike, flag, named, names, problems_of
from ._problem import fields as all_fields
from ._tables import counted
from ._types import Effort, GridFields, ProblemFields, Progress, SweepEffort

if TYPE_CHECKING:
    from typing_extensions import Unpack


def _check_arguments(function: Callable[..., Any], given: Iterable[str]) -> None:
    """Refuses what is no field of attention, unless it is like one, where it is no argument of the function."""
    if "operation" in given:
        return
    fields, own = names(all_fields()), list(inspect.signature(function).parameters)[:-1]
    for name in set(given).difference(fields, MEANT):
        if name in ARGUMENTS:
            raise ArgumentError("there is no argument %r here: fa_tune.%s() takes it" % (
                name, "tune" if name in inspect.signature(tune).parameters else "sweep"))
        refuse_feature(name, all_fields())
        meant = did_you_mean(name, own)
        if meant or not did_you_mean(name, fields):
            raise ArgumentError("there is no argument %r%s" % (
                name, meant or ". fa_tune.%s() has %s, and fields: %s; operation=\"NAME\" gives it those of another operation" % (
                    function.__name__, ", ".join(own), ", ".join(fields))))


def check_search(strategy: str | None, numbers: dict[str, float | None]) -> None:
    """numbers: limits by their arguments' names, above 0; None: none."""
    if strategy is not None and not isinstance(strategy, str):
        raise ArgumentError("strategy is a name, not %s" % shown(strategy))
    for name, value in numbers.items():
        whole = name in ("trials", "evaluations", "memory")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int if whole else (int, float))
                                  or not math.isfinite(value)):
            raise ArgumentError("%s is a %snumber, not %s" % (name, "whole " if whole else "", shown(value)))
        if value is not None and value <= 0:
            raise ArgumentError("%s is %s: give a %snumber above 0, or None for no limit" % (name, value, "whole " if whole else ""))


def _problem(function: Callable[..., Any], problem: ProblemLike | None, fields: dict[str, Any]) -> Problem:
    _check_arguments(function, fields)
    if problem is None:
        return Problem(**fields)
    if fields:
        raise ArgumentError("give a problem or its fields, not both: %s" % ", ".join(fields))
    return Problem.of(problem)


@overload
def tune(problem: ProblemLike | None = None, *, gpu: str | None = None, device: int | None = None,
         effort: Effort = "measure", again: bool = False, exact: bool = False, progress: Progress = None,
         strategy: str | None = None, evaluations: int | None = None, seconds: float | None = None, memory: int | None = None,
         same_bits: str | None = None, **fields: Unpack[ProblemFields]) -> Answer: ...
@overload
def tune(*, operation: str, gpu: str | None = None, device: int | None = None, effort: Effort = "measure",
         again: bool = False, exact: bool = False, progress: Progress = None,
         strategy: str | None = None, evaluations: int | None = None, seconds: float | None = None, memory: int | None = None,
         same_bits: str | None = None, **fields: Any) -> Answer: ...
def tune(problem: ProblemLike | None = None, *, gpu: str | None = None, device: int | None = None,
         effort: Effort = "measure", again: bool = False, exact: bool = False, progress: Progress = None,
         strategy: str | None = None, evaluations: int | None = None, seconds: float | None = None, memory: int | None = None,
         same_bits: str | None = None, **fields: Any) -> Answer:
    """The winner for a problem, from the store or tuned now.

    fa_tune.tune(seq=512, head_dim=64, dtype="bf16", causal=True)
    fa_tune.tune(problem, gpu="L4")          # a GPU that is not here: compiled for it and predicted

    problem   fa_tune.Problem, mapping or answer; or its fields as keywords
    gpu       name of a GPU type (`fa-tune gpus`); None: the device
    device    CUDA ordinal; None: PyTorch's current device, else 0
    effort    as in fa_tune.policy(), except that "measure" times the whole space even if some kernels are ready
    again     tune although a winner is stored
    exact     tune exactly these lengths, not their bucket
    strategy, evaluations, seconds   how the space is searched, and when that ends; None: the whole space
              where it has at most 20,000 configs
    memory    bytes of GPU memory that tensors and workspaces may take; None: half of what is free when the tune begins
    same_bits "default": only configs compete whose outputs are bit for bit those of the default config, at exactly these
              lengths, on the GPU itself; None: as fa_tune.policy() says
    progress  None: a live line on stderr where that is a terminal; False: none; or a function, which
              is called with a dict several times a second

    Returns a fa_tune.Answer. Raises fa_tune.Error and its classes: ArgumentError, NotTuned, NotSupported,
    DeviceError. Ctrl-C raises KeyboardInterrupt; what was measured is kept for the next run.
    """
    check_search(strategy, {"evaluations": evaluations, "seconds": seconds, "memory": memory})
    flag("again", again)
    flag("exact", exact)
    check_text("same_bits", same_bits)
    if again and effort == "cached":
        raise ArgumentError("again=True tunes, and effort=\"cached\" only looks up: leave one of them out")
    return Answer(_engine.tune(_problem(tune, problem, fields).as_dict(), gpu, device, effort, again, exact, progress,
                               strategy=strategy, evaluations=evaluations or 0, seconds=seconds or 0, memory=memory or 0,
                               same_bits=same_bits or ""))


@overload
def best_kernel(problem: ProblemLike | None = None, *, device: int | None = None, effort: Effort | None = None,
                progress: Progress = None, **fields: Unpack[ProblemFields]) -> _core.Kernel: ...
@overload
def best_kernel(*, operation: str, device: int | None = None, effort: Effort | None = None,
                progress: Progress = None, **fields: Any) -> _core.Kernel: ...
def best_kernel(problem: ProblemLike | None = None, *, device: int | None = None, effort: Effort | None = None,
                progress: Progress = None, **fields: Any) -> _core.Kernel:
    """The best kernel of a problem, loaded and ready: a callable bound to it.

    fa_s512 = fa_tune.kernel(seq=512, head_dim=64, batch=4, heads=8)
    o = fa_s512(q, k, v)                # also out=, scale=, return_lse=

    Shapes and types are checked against the problem once for each call, and no table is searched:
    the tightest loop. Tensors have the problem's shapes, in its layout: q (batch, heads_q, seq_q,
    head_dim), k and v (batch, heads_kv, seq_k, head_dim) for "bhsd".

    effort    as in fa_tune.policy(), whose effort is the default
    device, progress   as in tune()

    `answer` is the kernel's fa_tune.Answer. Raises as tune() does.
    """
    return _engine.kernel(_problem(best_kernel, problem, fields), device, effort, progress)


kernel = best_kernel


def sweep(problems: Iterable[ProblemLike] | None = None, *, gpu: str | Iterable[str] | None = None,
          effort: SweepEffort | None = None, again: bool = False, seconds: float | None = None,
          trials: int | None = None,
          strategy: str | None = None, evaluations: int | None = None, seconds_each: float | None = None,
          progress: Progress = None, **grid: Unpack[GridFields]) -> Sweep:
    """Tunes many problems as one job, which continues where it was stopped.

    fa_tune.sweep(seq=[512, 1024, 2048], head_dim=[64, 128], causal=[False, True], seconds=1800)
    fa_tune.sweep(recording, gpu=["L4", "H100"])

    problems  an iterable of problems, or a recording; or a grid: fields of a problem, each a value
              or a sequence of values; every combination is tuned
    gpu       a GPU type's name or a list of them; None: the device here
    seconds, trials   budgets for all runs of this sweep together
    effort, again, strategy, evaluations   as in tune(), for each problem; seconds_each is tune()'s seconds
    progress  called with a dict for each event (a sweep's in docs/json.md); None: a line on stderr for each item that ends;
              False: nothing

    Returns a fa_tune.Sweep. Ctrl-C raises KeyboardInterrupt, and the same call continues.
    Raises fa_tune.Error.
    """
    from ._progress import sweep_on_stderr
    if problems is None:
        _check_arguments(sweep, grid)
        many = {name: value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
                for name, value in grid.items()}
        problems = [Problem(**dict(zip(many, values))) for values in itertools.product(*many.values())]
    elif grid:
        raise ArgumentError("give problems or a grid, not both: %s" % ", ".join(grid))
    problems = problems_of(problems)
    if not problems:
        raise ArgumentError("there is nothing to sweep: the list of problems, or one of the grid, is empty")
    if effort is not None:
        one_of("effort", effort, get_args(SweepEffort))
    budget = {"seconds": seconds, "trials": trials}
    search = {"strategy": strategy, "evaluations": evaluations, "seconds_each": seconds_each}
    check_search(strategy, {**budget, "evaluations": evaluations, "seconds_each": seconds_each})
    items = [SweepItem(problem, name) for problem in problems for name in _gpu_names(gpu)]
    ask = {"items": [{"problem": one.problem.as_dict(), "gpu": one.gpu or ""} for one in items],
           "plan": "%s from Python" % counted(len(problems), "problem"), "again": flag("again", again),
           "effort": effort or "measure", "budget": {name: value for name, value in budget.items() if value is not None},
           **{name: value for name, value in search.items() if value is not None}}
    line = sweep_on_stderr() if _engine.reporter(progress) is None else None

    def on_event(event: dict[str, Any]) -> None:
        item = items[event["index"]]
        item._take(event)
        if line is not None:
            line(event, item)
        elif callable(progress):
            progress(event)

    return Sweep(items, _core.sweep(json.dumps(ask), on_event, lambda event: items[event["index"]]._take(event)))


def _gpu_names(gpu: str | Iterable[str] | None) -> list[str | None]:
    """The names that are swept; None: the device here."""
    if gpu is None:
        return [None]
    names = gpu.split(",") if isinstance(gpu, str) else list(gpu) if isinstance(gpu, Iterable) else [gpu]
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError("gpu is the name of a GPU's type, such as \"L4\", a list of names, or None, not %s" % shown(gpu))
    if not all(name.strip() for name in names):
        raise ArgumentError("gpu is %s, where a name is missing: give \"L4,H100\"" % shown(gpu))
    return list(dict.fromkeys(map(_engine.gpu_name, names)))


# ---- what is stored ------------------------------------------------------------------------------
class _Filter:
    """Which stored problems are asked for: by the GPU and by fields, attention's or those of the operation given."""

    def __init__(self, function: Callable[..., Any], gpu: str | None, fields: dict[str, Any]) -> None:
        _check_arguments(function, fields)
        _engine.check_gpu(gpu)
        given = {name: value for name, value in fields.items() if value is not None}
        self.asked_gpu, self.gpu = gpu, None if gpu is None else _spelled(gpu)
        self.is_empty = gpu is None and not given
        # An operation alone may be one whose templates are gone, so that its fields are not known.
        self.fields = given if set(given) == {"operation"} else named(given)
        self.operation = self.fields.pop("operation", "attn_fwd" if self.fields else None)
        if not isinstance(self.operation, (str, type(None))):
            raise ArgumentError("operation is a name, such as \"attn_fwd\", not %s" % shown(self.operation))
        self.presets = {name: preset for name, (_, preset) in _core.fields_of(self.operation).items()} if self.fields else {}

    def keeps_stored(self, problem: dict[str, Any], gpu: str) -> bool:
        """Of a problem that cannot be read, nothing but the operation and the GPU is known."""
        return (self.gpu in (None, _spelled(gpu)) and not self.fields and
                self.operation in (None, problem.get("operation")))

    def keeps(self, problem: dict[str, Any], gpu: str) -> bool:
        return (self.gpu in (None, _spelled(gpu)) and self.operation in (None, problem["operation"]) and
                all(problem.get(name, self.presets[name]) == value for name, value in self.fields.items()))

    def check_names(self) -> None:
        """When nothing was found: a name that nobody knows is a mistake, not an empty choice."""
        if self.asked_gpu is not None:
            _core.gpu(self.asked_gpu)
        if self.operation is not None:
            _core.fields_of(self.operation)


def _spelled(gpu: str) -> str:
    """A GPU's name as the catalogue has it, where it is in there."""
    try:
        return _core.gpu(gpu)[0]
    except Error:
        return gpu.lower()


@overload
def report(path: str | os.PathLike[str] | None = None, *, gpu: str | None = None,
           **fields: Unpack[ProblemFields]) -> Report: ...
@overload
def report(path: str | os.PathLike[str] | None = None, *, operation: str, gpu: str | None = None,
           **fields: Any) -> Report: ...
def report(path: str | os.PathLike[str] | None = None, *, gpu: str | None = None, **fields: Any) -> Report:
    """What the store knows: every problem, its winner, its rivals, its baselines.

    fa_tune.report("report.html")                     # one page that needs no network
    fa_tune.report(head_dim=64).problems

    path    written where given, as its ending says: .html or .json
    gpu, fields   keep the problems that match

    Returns a fa_tune.Report. Needs no GPU and changes nothing.
    """
    which = _Filter(report, gpu, fields)
    if path is not None:
        Report._format_of(path)
    made = Report(which.keeps)
    if not made.problems:
        which.check_names()
    if path is not None:
        made.save(path)
    return made


@overload
def winners(*, gpu: str | None = None, **fields: Unpack[ProblemFields]) -> Winners: ...
@overload
def winners(*, operation: str, gpu: str | None = None, **fields: Any) -> Winners: ...
def winners(*, gpu: str | None = None, **fields: Any) -> Winners:
    """Stored winners, newest first, as fa_tune.Winners, a tuple of fa_tune.Answer.

    gpu, fields   keep the winners that match: fa_tune.winners(gpu="H200", head_dim=128)

    Needs no GPU and changes nothing.
    """
    which = _Filter(winners, gpu, fields)
    found = Winners(one for one in map(Answer, _core.winners()) if which.keeps(one["problem"], one.gpu))
    if not found:
        which.check_names()
    return found


AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def _moment(older_than: str | datetime.timedelta | None) -> float | None:
    """Seconds since 1970 of an age or of a date's beginning."""
    if older_than is None:
        return None
    moment, now = None, time.time()
    age = AGE.fullmatch(older_than) if isinstance(older_than, str) else None
    if isinstance(older_than, datetime.timedelta):
        moment = now - older_than.total_seconds()
    elif age is not None:
        moment = now - float(age[1]) * SECONDS[age[2]]
    elif isinstance(older_than, str):
        try:
            moment = datetime.datetime.strptime(older_than, "%Y-%m-%d").timestamp()
        except ValueError:
            pass
    if moment is None or moment > now:
        raise ArgumentError("older_than is an age with its unit, such as \"30d\", \"12h\" or \"90m\", a date that has been, "
                            "such as \"2026-01-31\", or a timedelta, not %s" % shown(older_than))
    return moment


@overload
def forget(*, gpu: str | None = None, older_than: str | datetime.timedelta | None = None,
           everything: bool = False, dry_run: bool = False, **fields: Unpack[ProblemFields]) -> Forgotten: ...
@overload
def forget(*, operation: str, gpu: str | None = None, older_than: str | datetime.timedelta | None = None,
           dry_run: bool = False, **fields: Any) -> Forgotten: ...
def forget(*, gpu: str | None = None, older_than: str | datetime.timedelta | None = None,
           everything: bool = False, dry_run: bool = False, **fields: Any) -> Forgotten:
    """Forgets stored winners, and all that tuning stored with them: then it is as if they had never been tuned.

    fa_tune.forget(gpu="L4", head_dim=128, dry_run=True)     # what would be deleted
    fa_tune.forget(older_than="30d")

    gpu, fields   those that agree, as of fa_tune.winners
    older_than    those of which nothing is newer: an age ("30d", "12h"), a date ("2026-01-31") or a timedelta
    everything    all; nothing else may be given with it
    dry_run       only lists what would be deleted

    Returns a fa_tune.Forgotten. Changes the store alone, a server's for all hosts: a system bundle may have the winner,
    too. Kernels that are loaded in this process stay until fa_tune.close().
    """
    which, before = _Filter(forget, gpu, fields), _moment(older_than)
    for name, value in (("everything", everything), ("dry_run", dry_run)):
        flag(name, value)
    if (not which.is_empty or before is not None) == everything:
        raise ArgumentError("everything=True forgets all: leave it out, or the arguments that choose" if everything else
                            "say what to forget: gpu=, fields of a problem, older_than= or everything=True; "
                            "dry_run=True lists what would be deleted")

    def goes(study: dict[str, Any]) -> bool:
        keeps = which.keeps_stored if study["unread"] else which.keeps
        return keeps(study["problem"], study["gpu"]) and (before is None or study["unix_time"] < before)

    gone, counts = _core.forget(None if everything else goes, dry_run)
    if not gone:
        which.check_names()
    gone.sort(key=lambda study: (-study["unix_time"], study["gpu"]))
    return Forgotten((Answer(one["answer"]) for one in gone if one["answer"]), dry_run=dry_run,
                     unread=sum(one["unread"] for one in gone), **counts)


def doctor() -> Doctor:
    """Looks at driver, NVRTC, GPU, store and worker, as `fa-tune doctor` does.

    Returns fa_tune.Doctor, a tuple of fa_tune.Check that is true when nothing failed.
    """
    return Doctor(Check(*one) for one in _core.doctor())
