# SPDX-License-Identifier: Apache-2.0
"""How objects of several rows show themselves: as one line, as aligned text, in a notebook, and as a table of pandas."""
from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped, unused-ignore]

LIMIT = 30  # rows that are shown


def counted(number: int, word: str) -> str:
    return "%d %s%s" % (number, word, "" if number == 1 else "s")


def number(value: float | None, unit: str = "") -> str:
    if value is None:
        return "?"
    digits = 0 if value >= 1000 else 1 if value >= 10 else 2
    return "%.*f%s" % (digits, value, unit)


def time_of(trial: Mapping[str, Any]) -> str:
    """A trial's time in words; ~ before what a model says, and before another length's."""
    if trial.get("median_us") is not None:
        return "~" * (trial.get("origin") == "nearest") + number(trial["median_us"], " µs")
    if trial.get("predicted_us") is None:
        return "not timed"
    return "~" + number(trial["predicted_us"], " µs")


def kernel_of(config: Mapping[str, Any]) -> str:
    """A config in words: family and parameters."""
    return " ".join([config["family"], *("%s=%s" % one for one in config["tunables"].items())])


def record(problem: Mapping[str, Any], gpu: str | None, **columns: Any) -> dict[str, Any]:
    """One row for pandas."""
    return {**problem, "gpu": gpu, **columns}


def times(trial: Mapping[str, Any]) -> dict[str, Any]:
    """The columns about a trial, None where it does not say; of no trial all of them are None."""
    columns = {name: trial.get(name) for name in ("median_us", "low_us", "high_us", "predicted_us")}
    return {"kernel": kernel_of(trial["config"]) if trial else None, **columns}


def html_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        return "<tr>%s</tr>" % "".join("<%s style=\"text-align:left\">%s</%s>" % (tag, html.escape(cell), tag)
                                       for cell in cells)
    more = "<p>and %d more</p>" % (len(rows) - LIMIT) if len(rows) > LIMIT else ""
    head = "<thead>%s</thead>" % line("th", header) if header else ""
    return "<p>%s</p><table>%s<tbody>%s</tbody></table>%s" % (
        html.escape(title), head, "".join(line("td", row) for row in rows[:LIMIT]), more)


class Table:
    """An object of rows: repr() is its title, str() the title and aligned rows."""

    _header: Sequence[str] = ()

    def _title(self) -> str:
        raise NotImplementedError

    def _rows(self) -> list[tuple[str, ...]]:
        raise NotImplementedError

    def _records(self) -> list[dict[str, Any]]:
        raise NotImplementedError

    def __repr__(self) -> str:
        return "<%s>" % self._title()

    def __str__(self) -> str:
        rows = self._rows()
        widths = [max(map(len, column)) for column in zip(*rows[:LIMIT])]
        lines = ["  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
                 for row in rows[:LIMIT]]
        return "\n".join([self._title(), *lines, *["  and %d more" % (len(rows) - LIMIT)] * (len(rows) > LIMIT)])

    def _repr_html_(self) -> str:
        return html_table(self._title(), self._header, self._rows())

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas.DataFrame: of problems a row each with the fields, the GPU, the kernel and the times."""
        try:
            import pandas
        except ImportError:
            raise ImportError("to_pandas() needs pandas: pip install pandas") from None
        return pandas.DataFrame(self._records())
