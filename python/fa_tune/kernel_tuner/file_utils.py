# SPDX-License-Identifier: Apache-2.0
"""The T4 files of a tune: its results, and where they were made."""
from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

from .util import CompilationFailedConfig, InvalidConfig, write_json

_TIMES = {"compilation": "compile_time", "benchmark": "benchmark_time", "framework": "framework_time",
          "search_algorithm": "strategy_time", "validation": "verification_time"}


def get_t4_results(results: Sequence[Mapping[str, Any]], tune_params: Mapping[str, Any], objective: str = "time") -> dict[str, Any]:
    told = []
    for one in results:
        error = one.get("__error__")
        apart = {*tune_params, *_TIMES.values(), "timestamp", "times", "__error__"}
        told.append({
            "timestamp": one.get("timestamp", ""), "configuration": {name: one[name] for name in tune_params},
            "times": {**{name: one.get(key, 0) for name, key in _TIMES.items()}, "runtimes": [one["time"]] if "time" in one else []},
            "invalidity": "correct" if error is None else "compile" if isinstance(error, CompilationFailedConfig) else
                          "constraints" if isinstance(error, InvalidConfig) else "runtime",
            "correctness": int(error is None),
            "measurements": [{"name": name, "value": value, "unit": "ms" if name.startswith("time") else ""}
                             for name, value in one.items() if name not in apart],
            "objectives": [objective]})
    return {"results": told, "schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}


def get_t4_metadata() -> dict[str, Any]:
    import fa_tune
    here = [{"system": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count()}]
    return {"schema_version": "1.0.0", "metadata": {
        "operating_system": platform.system(), "hardware": {"hardware_description": here},
        "environment": {"device_query": {check.name: check.text for check in fa_tune.doctor()},
                        "requirements": ["fa_tune==" + fa_tune.__version__]}}}


def store_output_file(output_filename: Any, results: Sequence[Mapping[str, Any]], tune_params: Mapping[str, Any], objective: str = "time") -> None:
    _write(output_filename, get_t4_results(results, tune_params, objective))


def store_metadata_file(metadata_filename: Any) -> None:
    _write(metadata_filename, get_t4_metadata())


def _write(path: Any, told: Mapping[str, Any]) -> None:
    path = os.fspath(path)
    path += ".json" * (not path.endswith(".json"))
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    write_json(path, told)
