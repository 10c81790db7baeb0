# SPDX-License-Identifier: Apache-2.0
"""Tuning and loading kernels before they are needed."""
from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator

from . import _engine, _policy
from ._errors import one_of, suggesting
from ._objects import Answer
from ._problem import Problem, ProblemLike, problems_of, problems_of_file
from ._types import EFFORTS, Effort


@suggesting
def warm_up(problems: Iterable[ProblemLike] | str | os.PathLike[str], *, effort: Effort | None = None,
            device: int | None = None, progress: bool | None = None) -> list[Answer]:
    """Tunes what is not tuned yet and loads every kernel, so that calls of these problems hit.

    fa_tune.warm_up([dict(seq=512, head_dim=64, batch=4, heads=8), fa_tune.Problem(seq=1024)])

    problems  an iterable of fa_tune.Problem, mappings of its fields or answers; a recording; or the
              path of one that was saved
    effort    as in fa_tune.policy(), whose effort is the default
    device    CUDA ordinal; None: PyTorch's current device where PyTorch runs, else 0
    progress  True, False, or None: a bar on stderr where that is a terminal (tqdm's where tqdm can
              be imported)

    Returns a list with the fa_tune.Answer of each problem, in their order. The first problem without
    a kernel raises its error (fa_tune.NotTuned and others), whose sentence names it; those before it
    stay loaded. Ctrl-C stops it; what was tuned is kept.
    """
    if isinstance(problems, (str, os.PathLike)):
        problems = problems_of_file(problems)
    problems = problems_of(problems)
    effort = effort or _policy.current.effort
    one_of("effort", effort, EFFORTS)
    answers = []
    with _bar(len(problems), progress) as step:
        for problem in problems:
            step(None, problem)
            answers.append(_engine.kernel(problem, device, effort, False).answer)
            step(answers[-1], problem)
    return answers


@contextlib.contextmanager
def _bar(count: int, wanted: bool | None) -> Iterator[Callable[[Answer | None, Problem], None]]:
    """A function that is called before each problem, with None, and after it, with its answer."""
    if wanted is None:
        wanted = sys.stderr is not None and sys.stderr.isatty()
    if not wanted:
        yield lambda answer, problem: None
        return
    try:
        from tqdm import tqdm  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        yield _line(count)
        return
    with tqdm(total=count, desc="fa_tune.warm_up", unit="kernel", file=sys.stderr) as bar:
        def step(answer: Answer | None, problem: Problem) -> None:
            bar.set_postfix_str(repr(problem))
            bar.update(answer is not None)
        yield step


def _line(count: int) -> Callable[[Answer | None, Problem], None]:
    done = 0

    def step(answer: Answer | None, problem: Problem) -> None:
        nonlocal done
        done += answer is not None
        if answer is not None:
            sys.stderr.write("fa_tune.warm_up: %d of %d, %r: %s\n" % (done, count, problem, answer.kernel))
    return step
