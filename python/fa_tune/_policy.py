# SPDX-License-Identifier: Apache-2.0
"""What a call may spend when no kernel for its problem is loaded in this process yet.

_core.attention() does by itself what effort says. It comes here for on_miss="sdpa" and "nearest" only, never on a
hit, and not while a stream is captured into a CUDA graph: that it refuses by itself.
"""
from __future__ import annotations

import json
import os
import time
import warnings

from typing import Any, get_args

from . import _core
from ._errors import ArgumentError, DtypeError, Error, NotSupported, NotTuned, ShapeError, check_text, one_of, shown, suggesting
from ._types import EFFORTS, Effort, OnMiss

NO_KERNEL = -21  # FA_ENOKERNEL: every config failed
ASK_AGAIN_S = 5.0  # how long "there is none" is believed, so that a miss costs a look-up once


class policy:  # noqa: N801, called as a function
    """What a call does when no kernel for its problem is loaded in this process yet.

    fa_tune.policy(effort="cached", on_miss="sdpa")       # from here on, for the whole process
    with fa_tune.policy(effort="predict"): ...            # until the block ends

    effort    "cached": take a stored winner, or miss (a few milliseconds)
              "predict": else prove the model's choice (about a second)
              "measure": else prove and time, once: what is ready, where a winner was predicted
                  (under a second), or the whole space (seconds). The default: right for a script, wrong for a server
              "patient": time it again with more repeats, even when a winner is stored
    on_miss   when the effort found no kernel: "raise" fa_tune.NotTuned (the default), or "sdpa":
              compute this call with PyTorch's scaled_dot_product_attention.
              "nearest", for servers: before any effort, take the nearest kernel in lengths and batch
              that is loaded in this process and right for the problem, so that no call waits for
              the store, a proof or a tune. If there is none, the effort is made, then NotTuned raised
    same_bits "default": only kernels are taken whose outputs are bit for bit those of the default config, at their very
              lengths (fa_tune.tune); "": any, the default. A change lets go of what is loaded
    record    path of a file that gets a line, once, for each problem that another problem's kernel or
              none answered: a plan for `fa-tune sweep --plan`. "": no file, the default

    The policy is the process's: all threads have the same. Arguments that are left out stay as they
    were. fa_tune.ArgumentError for a word that is not in the lists above.

    While a stream is captured into a CUDA graph, "nearest" takes a loaded kernel as always, and any
    other miss raises fa_tune.CaptureError: tune and load beforehand (fa_tune.warm_up, or one call of
    the same problem).
    """

    effort: Effort
    on_miss: OnMiss
    record: str
    same_bits: str

    @suggesting
    def __init__(self, effort: Effort | None = None, on_miss: OnMiss | None = None,
                 record: str | os.PathLike[str] | None = None, same_bits: str | None = None) -> None:
        for name, value, words in (("effort", effort, EFFORTS), ("on_miss", on_miss, get_args(OnMiss))):
            if value is not None:
                one_of(name, value, words)
        if not isinstance(record, (str, os.PathLike, type(None))):
            raise ArgumentError("record is the path of a file, \"\" for none, or None, not %s" % shown(record))
        check_text("same_bits", same_bits)
        self._before = current
        self.effort = effort or (current.effort if current else "measure")
        self.on_miss = on_miss or (current.on_miss if current else "raise")
        self.record = (current.record if current else "") if record is None else os.fspath(record)
        self.same_bits = (current.same_bits if current else "") if same_bits is None else same_bits
        self._apply()

    def _apply(self) -> None:
        global current
        _core.set_policy(self.effort, missed if self.on_miss != "raise" or self.record else None, self.same_bits)
        current = self
        _missing.clear()

    def __enter__(self) -> policy:
        return self

    def __exit__(self, *_: Any) -> None:
        self._before._apply()

    def __repr__(self) -> str:
        more = "".join(", %s=%r" % (name, getattr(self, name)) for name in ("record", "same_bits") if getattr(self, name))
        return "fa_tune.policy(effort=%r, on_miss=%r%s)" % (self.effort, self.on_miss, more)


def is_a_miss(error: Error) -> bool:
    """Whether an error says that there is no kernel for a problem, and nothing worse."""
    return isinstance(error, (NotTuned, NotSupported)) or error.code == NO_KERNEL


def is_not_covered(error: Error) -> bool:
    """Whether PyTorch is to compute a call of its own interface that failed here."""
    return is_a_miss(error) or isinstance(error, (ArgumentError, DtypeError, ShapeError))


def kernel_of(problem: dict[str, Any], device: int) -> _core.Kernel:
    """The loaded kernel of a problem by what the policy allows. That there is none is believed for a while where
    PyTorch computes the call in its place."""
    key = json.dumps(problem), device
    near = _near(problem, device)
    if near is not None:
        return near
    error, until = _missing.get(key, (None, 0))
    if error is not None and time.monotonic() < until:
        raise error.with_traceback(None)
    try:
        return _core.best_kernel(problem, effort=current.effort, device=device)
    except Error as missing:
        if is_a_miss(missing) and current.on_miss == "sdpa":
            _missing[key] = missing.with_traceback(None), time.monotonic() + ASK_AGAIN_S
        raise


def _near(problem: dict[str, Any], device: int) -> _core.Kernel | None:
    """Of the loaded kernels the nearest that is right, where the policy takes that."""
    try:
        return _core.near_kernel(problem, device) if current.on_miss == "nearest" else None
    except NotTuned:
        return None


def missed(problem: dict[str, Any], device: int, words: dict[str, Any], captured: bool) -> Any:
    """Called by _core.attention() for a problem without a loaded kernel: returns the kernel, or what
    the call is to return in its place, or None where a graph is captured, so that nothing may be loaded for it."""
    try:
        kernel = _near(problem, device) if captured else kernel_of(problem, device)
    except Error as error:
        if not is_a_miss(error):
            raise
        _record(problem)
        if current.on_miss != "sdpa":
            raise
        return computed_by_sdpa(words, error)
    if kernel is not None and kernel.origin == "nearest":
        _record(problem)
    return kernel


def _record(problem: dict[str, Any]) -> None:
    """Adds a problem to the policy's file, unless it is there. A file that cannot be written costs no call."""
    line, path, torn = json.dumps(problem) + "\n", current.record, False  # another thread may set a policy meanwhile
    if not path:
        return
    try:
        if path not in _recorded:
            _recorded[path] = set()
            if os.path.exists(path):
                with open(path, encoding="utf-8", errors="replace") as file:
                    _recorded[path].update(file)
                torn = any(not known.endswith("\n") for known in _recorded[path])
        if line in _recorded[path]:
            return
        _recorded[path].add(line)
        with open(path, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write("\n" * torn + line)
    except OSError as error:
        warn_once("record", "what fa_tune has no kernel of its own for is not recorded: %s" % error)


current: policy = None  # type: ignore[assignment]  # until the first policy below
# A problem's text and device -> (the error, until when it is believed).
_missing: dict[tuple[str, int], tuple[Error | None, float]] = {}
_recorded: dict[str, set[str]] = {}  # a file -> its lines
policy()


_warned: set[tuple[Any, ...] | str] = set()


def warn_once(kind: tuple[Any, ...] | str, sentence: str) -> None:
    """A warning that a process gives once of each kind."""
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(sentence, RuntimeWarning, stacklevel=4)


def computed_by_sdpa(words: dict[str, Any], error: Error) -> Any:
    """The call by PyTorch's own attention; the error where its tensors are not PyTorch's."""
    from . import _sdpa_fallback
    result = _sdpa_fallback.attention(**words, error=error)  # type: ignore[no-untyped-call]
    warn_once("miss", "PyTorch's scaled_dot_product_attention computes what fa_tune has no kernel for, "
              "now and later: %s" % error)
    return result


def gradients_by_sdpa(*tensors: Any, **words: Any) -> Any:
    """The gradients of such a call, by PyTorch's flash kernel; the error where that does not take it."""
    from . import _sdpa_fallback
    made = _sdpa_fallback.gradients(*tensors, **words)  # type: ignore[no-untyped-call]
    warn_once("miss of backward", "PyTorch's flash attention computes gradients that fa_tune has no kernel for, now and "
              "later: %s" % tensors[-1])
    return made
