# SPDX-License-Identifier: Apache-2.0
"""store_results(): the file of Kernel Tuner's best configs, by GPU and problem size."""
from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from .._errors import ArgumentError
from .util import get_objective_defaults, write_json


def store_results(results_filename: Any, kernel_name: str, kernel_string: Any, tune_params: Mapping[str, Any], problem_size: Any,
                  results: Sequence[Mapping[str, Any]], env: Mapping[str, Any], top: float = 3, objective: str | None = None,
                  objective_higher_is_better: bool | None = None) -> None:
    """Writes the configs within `top` percent of the best, in the place of those that the file has of this GPU and size."""
    objective, higher = get_objective_defaults(objective, objective_higher_is_better)
    timed = [one for one in results if objective in one]
    if not timed:
        raise ArgumentError("results: no config has a value of the objective %r" % objective)
    best = (max if higher else min)(one[objective] for one in timed)
    good = [one for one in timed if (one[objective] > best * (1 - top / 100) if higher else one[objective] < best * (1 + top / 100))]
    told: dict[str, Any] = {"version_number": "1.0", "kernel_name": kernel_name, "objective": objective,
                            "objective_higher_is_better": higher, "tunable_parameters": list(tune_params), "data": []}
    if isinstance(kernel_string, str) and kernel_string:
        told["kernel_string"] = _text(kernel_string)
    if os.path.exists(results_filename):
        told = _results_in(results_filename)
        for name, mine in (("kernel_name", kernel_name), ("objective", objective)):
            if told.get(name) != mine:
                raise ArgumentError("%s has results of another %s, %s" % (results_filename, name, told.get(name)))
        if not set(tune_params) <= set(told["tunable_parameters"]):
            raise ArgumentError("%s has results of other tunables, %s" % (results_filename, ", ".join(told["tunable_parameters"])))
    size = "x".join(map(str, problem_size if isinstance(problem_size, (list, tuple)) else (problem_size,)))
    at = {"device_name": re.sub("[^0-9a-zA-Z]+", "_", env["device_name"].strip()), "problem_size": size}
    told["data"] = [one for one in told["data"] if {name: one[name] for name in at} != at] + [
        {**at, "tunable_parameters": {name: one[name] for name in tune_params}, objective: one[objective]} for one in good]
    write_json(results_filename, told, indent="")


def _results_in(path: Any) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            told: dict[str, Any] = json.load(file)
        if {"kernel_name", "objective", "tunable_parameters", "data"} <= told.keys():
            return told
    except (ValueError, AttributeError):  # no JSON, no object
        pass
    raise ArgumentError("%s is no file that store_results() has written" % path)


def _text(source: str) -> str:
    if not os.path.isfile(source):
        return source
    with open(source, encoding="utf-8") as file:
        return file.read()
