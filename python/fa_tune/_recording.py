# SPDX-License-Identifier: Apache-2.0
"""Collecting the problems that a model meets, so that they can be tuned beforehand or elsewhere."""
from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from . import _core
from ._objects import Answer
from ._problem import Problem, ProblemLike, problems_of, problems_of_file
from ._tables import Table, counted
from ._types import Effort
from ._warm_up import warm_up

_open: list[recording] = []  # recordings under way: every one gets every problem
_lock = threading.Lock()


class recording(Table):  # noqa: N801, called as a function
    """Collects every problem that fa_tune.attention() meets, each once with its number of calls.

    with fa_tune.recording() as met:
        model.generate(...)
    met.save("problems.jsonl")                       # for fa-tune sweep --plan problems.jsonl
    fa_tune.recording.load("problems.jsonl").warm_up()

    It is a sequence of fa_tune.Problem in the order in which they were met; `calls` gives how often,
    by problem. Calls are made as ever, and cost some microseconds more while it is open. Calls of all
    threads are recorded; those inside a replayed CUDA graph or a bound kernel are not.
    """

    calls: dict[Problem, int]
    _header = ("problem", "calls")

    def __init__(self, problems: Iterable[ProblemLike] = ()) -> None:
        self.calls = {}
        for problem in problems_of(problems):
            self.calls.setdefault(problem, 0)
        self._met: dict[str, int] = {}  # a problem's JSON -> how often; made problems of when somebody looks

    def __enter__(self) -> recording:
        with _lock:
            _open.append(self)
            _core.set_recorder(_observe)
        return self

    def __exit__(self, *_: Any) -> None:
        with _lock:
            _open.remove(self)
            if not _open:
                _core.set_recorder(None)
        self._settle()

    def _settle(self) -> None:
        with _lock:
            met, self._met = self._met, {}
        for text, count in met.items():
            problem = Problem(**json.loads(text))
            self.calls[problem] = self.calls.get(problem, 0) + count

    def problems(self) -> list[Problem]:
        """The problems, as a list."""
        self._settle()
        return list(self.calls)

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems())

    def __len__(self) -> int:
        return len(self.problems())

    def __getitem__(self, index: int) -> Problem:
        return self.problems()[index]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes them as JSON lines, one problem a line, which `fa-tune sweep --plan` takes too.
        The file appears whole or not at all, and replaces no store and no key."""
        lines = (problem.as_json() + "\n" for problem in self)
        _core.write_file(os.fspath(path), "".join(lines).encode())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> recording:
        """A recording from a file that save() wrote, or any plan of `fa-tune sweep`."""
        return cls(problems_of_file(path))

    def warm_up(self, *, effort: Effort | None = None, device: int | None = None,
                progress: bool | None = None) -> list[Answer]:
        """fa_tune.warm_up() of these problems."""
        return warm_up(self, effort=effort, device=device, progress=progress)

    def _title(self) -> str:
        return "recording of " + counted(len(self), "problem")

    def _rows(self) -> list[tuple[str, ...]]:
        return [(repr(problem)[8:-1], counted(self.calls[problem], "call")) for problem in self]

    def _records(self) -> list[dict[str, Any]]:
        return [{**problem.as_dict(), "calls": self.calls[problem]} for problem in self]


def _observe(problem: dict[str, Any], device: int) -> None:
    """Called by _core.attention() while a recording is open."""
    text = json.dumps(problem)
    with _lock:
        for one in _open:
            one._met[text] = one._met.get(text, 0) + 1
