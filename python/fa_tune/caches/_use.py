# SPDX-License-Identifier: Apache-2.0
"""use(): fa-tune's store behind Triton, PyTorch Inductor (2.11 and later) and Helion, in this process and its children."""
from __future__ import annotations

import importlib.util
import os
from typing import Any

from .. import _core
from . import _values

HELION = "helion"
# Inductor's class, its setting, and what is kept
INDUCTOR = (
    ("RemoteAutotuneCache", "autotune_remote_cache", "inductor"),
    ("RemoteBundledAutotuneCache", "bundled_autotune_remote_cache", "inductor bundle"),
    ("RemoteFxGraphCache", "fx_graph_remote_cache", "inductor graph"),
)
ENVIRONMENT = {
    "TRITON_CACHE_MANAGER": "fa_tune.caches:TritonCache",
    "TRITON_CACHE_AUTOTUNING": "1",
    "HELION_REMOTE_CACHE_BACKEND": "fa_tune.caches.HelionCache",
    "HELION_AUTOTUNE_CACHE": "RemoteAutotuneCache",
}


def _read(tuner: str, key: str, may_start_cuda: bool) -> bytes | None:
    with _values.guarded("reading a value of " + tuner):
        return _values.get(tuner, _values.key_of(tuner, _values.here(may_start_cuda)[1], key))
    return None


def _write(tuner: str, key: str, data: bytes, may_start_cuda: bool) -> None:
    with _values.guarded("keeping a value of " + tuner):
        gpu, silicon = _values.here(may_start_cuda)
        _values.put(_values.key_of(tuner, silicon, key), tuner, key, gpu, _values.made_with(), data)


def _use_inductor() -> None:
    import torch
    from torch._inductor import config, remote_cache

    for cache, setting, tuner in INDUCTOR:
        # Without a GPU the bundled cache fails every compile: it asserts that Triton's backend has a hash.
        if setting.startswith("bundled") and torch.cuda.device_count() == 0:
            continue
        # Inductor asks its own folder first, unpickles graphs, and does not catch what a backend raises.
        methods: dict[str, Any] = {"_get": lambda self, key, tuner=tuner: _read(tuner, key, False),
                                   "_put": lambda self, key, data, tuner=tuner: _write(tuner, key, data, False)}
        getattr(remote_cache, cache).backend_override_cls = type(cache, (remote_cache.RemoteCacheBackend,), methods)
        setattr(config, setting, True)


def use() -> None:
    """Keeps what these tuners make in fa-tune's store, and takes it from there. What the environment says already stays."""
    with _values.guarded("fa_tune.caches.use()"):
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        if importlib.util.find_spec("torch") is not None:
            _use_inductor()


def helion_cache() -> type:
    """The class that HELION_REMOTE_CACHE_BACKEND=fa_tune.caches.HelionCache names."""
    from helion.autotuner.remote_cache import RemoteCacheBackend

    class HelionCache(RemoteCacheBackend):  # type: ignore[misc]
        def get(self, key: str) -> str | None:
            data = _read(HELION, key, True)
            return data.decode() if data is not None else None

        def put(self, key: str, value: str) -> None:
            _write(HELION, key, value.encode(), True)

        def list(self, max_results: int = 100) -> Any:
            """The newest winners of this GPU first, from which a tune starts warm."""
            listed: Any = []
            with _values.guarded("listing Helion's winners"):
                gpu = _values.here(True)[0]
                for row in _core.kept(None, False) or []:
                    data = _values.peek(row[0]) if len(listed) < max_results and (row[1], row[3]) == (HELION, gpu) else None
                    listed += [data.decode()] if data is not None else []
            return listed

    return HelionCache
