# SPDX-License-Identifier: Apache-2.0
"""_core's functions on the objects of this package."""
from __future__ import annotations

import functools
import operator
import re
import sys
from collections.abc import Callable
from typing import Any

from . import _core
from ._errors import ArgumentError, one_of, shown
from ._problem import Problem
from ._progress import note
from ._types import EFFORTS, Effort, Progress


def current_device() -> int:
    """PyTorch's current device where PyTorch has started CUDA, else 0."""
    torch = sys.modules.get("torch")
    return int(torch.cuda.current_device()) if torch is not None and torch.cuda.is_initialized() else 0


def ordinal(device: int | None) -> int:
    if device is None:
        return current_device()
    try:
        number = operator.index(device)
    except TypeError:
        number = -1
    if not 0 <= number < 1 << 31:
        raise ArgumentError("device is a CUDA ordinal from 0 on, or None for the current device, not %s" % shown(device))
    return number


def reporter(given: Progress) -> Callable[[dict[str, Any]], Any] | bool | None:
    if given is None or isinstance(given, bool) or callable(given):
        return None if given is True else given
    raise ArgumentError("progress is a function, None for a line on a terminal, or False, not %s" % shown(given))


def kernel(problem: Problem, device: int | None, effort: Effort | None, progress: Progress) -> _core.Kernel:
    """The loaded kernel (_core.Kernel) of a problem, tuned where the effort allows."""
    from . import _policy
    effort = effort or _policy.current.effort
    one_of("effort", effort, EFFORTS)
    return _core.best_kernel(problem.as_dict(), effort=effort, device=ordinal(device), progress=reporter(progress))


def gpu_name(gpu: str | None) -> str | None:
    """The catalogue's name of a GPU's type."""
    check_gpu(gpu)
    return None if gpu is None else _known_gpu(gpu)


def check_gpu(gpu: Any) -> None:
    """Raises where it can be no name."""
    if gpu is not None and not (isinstance(gpu, str) and gpu.isprintable()):
        raise ArgumentError("gpu is the name of a GPU's type, such as \"L4\", or None, not %s" % shown(gpu))


@functools.cache
def _known_gpu(asked: str) -> str:
    """The catalogue's name; notes once which type is meant, where several have the name in theirs."""
    def plain(name: str) -> str:
        return re.sub("[^a-z0-9]", "", name.lower())
    name = _core.gpu(asked)[0]
    others = [other for other in _core.gpu_types() if other != name and plain(asked) in plain(other)]
    if others and plain(asked) != plain(name):
        note("%s is taken for %s; %s %s" % (asked, name, "the other is" if len(others) == 1 else "others are", ", ".join(others)))
    return name


def tune(problem: dict[str, Any], gpu: str | None, device: int | None, effort: Effort, again: bool, exact: bool,
         progress: Progress, **search: Any) -> dict[str, Any]:
    """The answer's dict. search: strategy, evaluations, seconds, memory and same_bits, as the library takes them."""
    one_of("effort", effort, EFFORTS)
    if gpu is not None and device is not None:
        raise ArgumentError("gpu names a type that need not be here, and device a device that is: leave one of them out")
    return _core.tune(problem, gpu=gpu_name(gpu), effort=effort, again=again, exact=exact, device=ordinal(device),
                      progress=reporter(progress), **search)
