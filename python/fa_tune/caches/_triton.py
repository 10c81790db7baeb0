# SPDX-License-Identifier: Apache-2.0
"""Triton's cache manager: TRITON_CACHE_MANAGER=fa_tune.caches:TritonCache (Triton 3.6 and later).

Triton's own folder stays in front, and what it lacks comes from the store: the files of a compiled kernel as one value, and the
timings of an autotuned function, those of all its configs and each config's. Triton's key of a kernel names the architecture,
which is all that a compiler's output depends on, so that an H100 and an H200 share kernels; a winner's key has the silicon in
front. What Triton compiles for the host (launchers) stays in its folder.
"""
from __future__ import annotations

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from triton.runtime import autotuner
from triton.runtime.cache import FileCacheManager

from . import _values

KERNEL, WINNER, TIMES = "triton kernel", "triton", "triton timings"
AUTOTUNE, SUMS = ".autotune.json", "__fa_tune__"


def _sums(group: dict[str, str]) -> dict[str, str]:
    return {name: hashlib.blake2b(Path(path).read_bytes(), digest_size=16).hexdigest() for name, path in group.items()}


class TritonCache(FileCacheManager):
    def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
        super().__init__(key, override=override, dump=dump)
        self._plain = override or dump  # folders of the user's own, for looking into kernels
        if not self._plain:
            _time_only_new_configs()

    def _winner(self, filename: str) -> tuple[str, str, str]:
        """The value's key, its GPU, and the name of this GPU's file: hosts with other GPUs may share the folder."""
        gpu, silicon = _values.here(may_start_cuda=True)
        key = _values.key_of(WINNER, silicon, self.key, filename)
        return key, gpu, key[:16] + "." + filename

    def get_file(self, filename: str) -> str | None:
        if self._plain or not filename.endswith(AUTOTUNE):
            return super().get_file(filename)
        with _values.guarded("reading Triton's timings"):
            key, _, local = self._winner(filename)
            path = super().get_file(local)
            if path is not None and _has_timings(Path(path).read_bytes()):
                return path
            data = _values.get(WINNER, key)
            if data is not None and _has_timings(data):
                return super().put(data, local)
        return None

    def put(self, data: Any, filename: str, binary: bool = True) -> str:
        local = filename
        if not self._plain and filename.endswith(AUTOTUNE):
            with _values.guarded("keeping Triton's timings"):
                key, gpu, local = self._winner(filename)
                timings = json.loads(data)["configs_timings"]
                best = min(times[0] for _, times in timings)
                made = _values.made_with(timings=timings, ties=sum(times[0] <= best * 1.005 for _, times in timings))
                _values.put(key, WINNER, filename[:-len(AUTOTUNE)], gpu, made, data.encode())
        return super().put(data, local, binary=binary)

    def get_group(self, filename: str) -> dict[str, str] | None:
        group = super().get_group(filename)
        if self._plain:
            return group
        with _values.guarded("reading Triton's kernel"):
            if group is not None and self._is_whole(filename, group):
                return group
            data = _values.get(KERNEL, _values.key_of(KERNEL, self.key, filename), most_s=60)
            if data is not None:
                head, _, rest = data.partition(b"\n")
                group = {}
                for name, size in json.loads(head):
                    group[name] = super().put(rest[:size], os.path.basename(name))
                    rest = rest[size:]
                super().put_group(filename, group)
                super().put(json.dumps(_sums(group)), SUMS + filename, binary=False)
                return group
        return None

    def put_group(self, filename: str, group: dict[str, str]) -> str:
        listed: str = super().put_group(filename, group)
        if not self._plain:
            with _values.guarded("keeping Triton's kernel"):
                super().put(json.dumps(_sums(group)), SUMS + filename, binary=False)
                files = {name: Path(path).read_bytes() for name, path in group.items()}
                about = json.loads(files[filename])
                _values.put(_values.key_of(KERNEL, self.key, filename), KERNEL, str(about["name"]),
                            "%(backend)s %(arch)s" % about["target"], _values.made_with(),
                            json.dumps([(name, len(data)) for name, data in files.items()]).encode() + b"\n" + b"".join(files.values()))
        return listed

    def _is_whole(self, filename: str, group: dict[str, str]) -> bool:
        """Whether the files are those that were put. Files of plain Triton's have no sums and count as they are."""
        path = super().get_file(SUMS + filename)
        if path is None or json.loads(Path(path).read_bytes() or b"0") == _sums(group):
            return True
        _values.note("files of Triton's kernel in %s are damaged: they are made anew" % self.cache_dir)
        return False


def _has_timings(data: bytes) -> bool:
    try:
        return all(len(config) * len(times) > 0 for config, times in json.loads(data)["configs_timings"])
    except (ValueError, KeyError, TypeError):
        _values.note("a file of Triton's timings is damaged: it is made anew")
        return False


# ---- each config's time, so that another list of configs measures only what is new ----
def _times_key(tuner: Any, meta: dict[str, Any], silicon: str) -> str:
    """What all configs of a function and a tuning key have in common."""
    function = tuner.fn
    while not isinstance(function, autotuner.JITFunction):
        function = function.fn
    values = {**tuner.nargs, **meta}
    named = [str(values[name]) for name in tuner.keys if name in values]
    types = [str(values[name].dtype) for name in tuner.arg_names if hasattr(values.get(name), "dtype")]
    return _values.key_of(TIMES, silicon, autotuner.triton_key(), str(autotuner.driver.active.get_current_target()),
                          function.cache_key, str(sorted(autotuner.get_cache_invalidating_env_vars().items())),
                          getattr(tuner._do_bench, "__qualname__", "triton"), *named, *types)


@functools.lru_cache(maxsize=1)
def _time_only_new_configs() -> None:
    measure = autotuner.Autotuner._bench

    @functools.wraps(measure)
    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> Any:
        key, gpu, known = "", "", {}
        with _values.guarded("reading the times of Triton's configs"):
            if self.cache_results and not config.pre_hook:
                gpu, silicon = _values.here(may_start_cuda=True)
                key = _times_key(self, meta, silicon)
                known = json.loads(_values.peek(key) or b"{}")
        if str(config) not in known:
            known[str(config)] = measure(self, *args, config=config, **meta)
            if key:
                _values.put(key, TIMES, self.base_fn.__name__, gpu, _values.made_with(), json.dumps(known).encode(), replace=True)
        return known[str(config)]

    autotuner.Autotuner._bench = bench
