# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's cache file: the results of a call, which the next one does not measure again."""
from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from .._errors import ArgumentError
from .util import NpEncoder, error_of, write_json


class Cache:
    """device: whose times the file has; None: there is no file."""

    def __init__(self, path: Any, kernel_name: str, problem_size: Any, tune_params: Mapping[str, Any], objective: str) -> None:
        self.path = os.fspath(path) + ".json" * (not os.fspath(path).endswith(".json"))
        self.device: str | None = None
        self._entries: dict[str, dict[str, Any]] = {}
        self._head = {"kernel_name": kernel_name, "problem_size": "callable" if callable(problem_size) else problem_size,
                      "tune_params_keys": list(tune_params), "tune_params": dict(tune_params), "objective": [objective]}
        if os.path.exists(self.path):
            self._read()

    def _read(self) -> None:
        with open(self.path, encoding="utf-8") as file:
            text = file.read().strip()
        try:
            try:
                told = json.loads(text)
            except ValueError:  # of a tune that was stopped
                told = json.loads(text.rstrip(",") + "}\n}")
            head, entries = {name: told[name] for name in ("device_name", "kernel_name", "tune_params_keys")}, told["cache"]
            self._entries = {key: dict(entry) for key, entry in entries.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ArgumentError("cache: %s is no cache file of Kernel Tuner's" % self.path) from None
        mine = json.loads(json.dumps(self._head, cls=NpEncoder))
        for name, value in (*head.items(), ("problem_size", told.get("problem_size"))):
            one = [value, mine.get(name, value)] if name != "problem_size" else [side if isinstance(side, list) else [side] for side in (
                value, mine[name] if value is not None else None)]
            if one[0] != one[1]:
                raise ArgumentError("cache: %s is of another tune: its %s is %s, and this call's %s" % (self.path, name, *one))
        self.device = head["device_name"]

    def results(self) -> list[dict[str, Any]]:
        """As they were; a config that failed has its error."""
        for entry in self._entries.values():
            failed = [error for error in map(error_of, entry.values()) if error is not None]
            if failed:
                entry["__error__"] = failed[0]
        return list(self._entries.values())

    def write(self, device: Any, results: Mapping[str, Mapping[str, Any]]) -> None:
        """Adds them to those that the file has."""
        told = {"device_name": device, **self._head, "cache": {**self._entries, **results}}
        write_json(self.path, told, indent="")
