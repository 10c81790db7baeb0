# SPDX-License-Identifier: Apache-2.0
"""What scripts take from Kernel Tuner's util: the best of results, results as text, the marks of configs that failed."""
from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from .. import _core
from .._errors import ArgumentError

# Objectives of which more is better.
_MORE = {"fitness", "GFLOP/s", "TFLOP/s", "GB/s", "TB/s", "GFLOPS/W", "TFLOPS/W", "GFLOP/J", "TFLOP/J"}
_LESS = {"time", "energy", "cost", "loss"}


class ErrorConfig(str):
    """Why a config has no time: its class; as text and in JSON the name of that."""

    def __new__(cls) -> ErrorConfig:
        return super().__new__(cls, cls.__name__)


class InvalidConfig(ErrorConfig):
    """It does not fit the GPU."""


class CompilationFailedConfig(ErrorConfig):
    """It does not compile, or spills."""


class RuntimeFailedConfig(ErrorConfig):
    """It was wrong, or did not run to its end."""


def error_of(text: Any) -> ErrorConfig | None:
    """The mark that a file has as text."""
    found = [one for one in (ErrorConfig, InvalidConfig, CompilationFailedConfig, RuntimeFailedConfig) if text == one.__name__]
    return found[0]() if found and isinstance(text, str) else None


class NpEncoder(json.JSONEncoder):
    """NumPy's numbers and arrays as JSON."""

    def default(self, o: Any) -> Any:
        if hasattr(o, "tolist"):
            return o.tolist()
        return super().default(o)


def write_json(path: Any, told: Mapping[str, Any], indent: str | None = None) -> None:
    """The file is there whole, or as it was."""
    _core.write_file(os.fspath(path), json.dumps(told, cls=NpEncoder, indent=indent).encode())


def get_objective_defaults(objective: Any, objective_higher_is_better: bool | None) -> tuple[str, bool]:
    objective = "time" if objective is None else objective
    if not isinstance(objective, str):
        raise ArgumentError("objective is the name of one of the results' values, not %r" % (objective,))
    if objective_higher_is_better is None and objective not in _MORE | _LESS:
        raise ArgumentError("objective_higher_is_better: whether more of %r is better is not known: pass True or False" % objective)
    return objective, objective in _MORE if objective_higher_is_better is None else objective_higher_is_better


def get_best_config(results: Iterable[dict[str, Any]], objective: str, objective_higher_is_better: bool = False) -> dict[str, Any]:
    good = [one for one in results if "__error__" not in one and isinstance(one.get(objective), (int, float)) and not math.isnan(one[objective])]
    if not good:
        raise ArgumentError("no config has a value of the objective %r" % objective)
    return (max if objective_higher_is_better else min)(good, key=lambda one: one[objective])


def get_config_string(params: Mapping[str, Any], keys: Iterable[str] | None = None, units: Mapping[str, str] | None = None) -> str:
    wanted = set(keys or params)
    return ", ".join("%s=%s%s" % (name, "%.3f" % value if isinstance(value, float) else value, (units or {}).get(name, ""))
                     for name, value in params.items() if name in wanted)


def replace_param_occurrences(string: str, params: Mapping[str, Any]) -> str:
    """The text with values in the place of the names."""
    return re.sub(r"[a-zA-Z0-9_]+", lambda found: str(params.get(found[0], found[0])), string)


def process_metrics(params: dict[str, Any], metrics: Mapping[str, Any] | None) -> dict[str, Any]:
    """Adds what the metrics make of a result, in their order: each may read those before it."""
    if metrics is not None and not isinstance(metrics, Mapping):
        raise ArgumentError("metrics is a dict of texts and functions, not %r" % (metrics,))
    for name, metric in (metrics or {}).items():
        if not callable(metric) and not isinstance(metric, str):
            raise ArgumentError("metrics: %s is a text or a function of a result, not %r" % (name, metric))
        params[name] = metric(params) if callable(metric) else eval(replace_param_occurrences(metric, params))  # pylint: disable=eval-used  # the caller's own text
    return params
