# SPDX-License-Identifier: Apache-2.0
"""Progress of tunes on a terminal, and the library's notes."""
from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._objects import SweepItem


def note(sentence: str) -> None:
    """A note of the library ("store … was corrupt and set aside")."""
    logging.getLogger("fa_tune").warning("%s", sentence)


class _Line:
    """One line on stderr, drawn over and erased at the end."""

    def __init__(self) -> None:
        self.drawn = False

    def __call__(self, event: dict[str, Any]) -> None:
        words = ["fa_tune: waiting for another process" if event["stage"] == "wait" else
                 "fa_tune: %d of %d configs" % (max(event["measured"], event["clean"]) + event["failed"],
                                                event["in_budget"])]
        if event["best_us"] > 0:
            words.append("best %s%.1f us" % ("" if event["best_is_measured"] else "~", event["best_us"]))
        sys.stderr.write("\r\033[K" + ", ".join(words))
        sys.stderr.flush()
        self.drawn = True

    def close(self) -> None:
        if self.drawn:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def on_terminal() -> _Line | None:
    """What draws progress where stderr is a terminal, else None."""
    return _Line() if sys.stderr is not None and sys.stderr.isatty() else None


class _Sweep:
    """A line on stderr for each item that ends."""

    def __init__(self) -> None:
        self.known = 0

    def __call__(self, event: dict[str, Any], item: SweepItem) -> None:
        sweep = event["sweep"]
        if event["event"] == "known":
            self.known += 1
        if event["event"] != "ends":
            return
        if self.known:
            sys.stderr.write("fa_tune: %d of %d problems were done before\n" % (self.known, sweep["items"]))
            self.known = 0
        sys.stderr.write("fa_tune: [%d/%d] %s\n" % (sweep["done"] + sweep["failed"], sweep["items"], item))
        sys.stderr.flush()


def sweep_on_stderr() -> _Sweep | None:
    """What is called with each event and its item, or None where there is no stderr."""
    return _Sweep() if sys.stderr is not None else None
