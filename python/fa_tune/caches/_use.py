# SPDX-License-Identifier: Apache-2.0
"""use(): fa-tune's store behind Triton, PyTorch Inductor (2.11 and later) and Helion, in this process and its children."""
from __future__ import annotations

import copy
import functools
import importlib.util
import os
from typing import Any

from .. import _core
from . import _values

HELION, GRAPH = "helion", "inductor graph"
INDUCTOR = (  # its class, its setting, and what is kept
    ("RemoteAutotuneCache", "", "inductor"),  # its setting is for compile workers, too, which have no backend of ours
    ("RemoteBundledAutotuneCache", "bundled_autotune_remote_cache", "inductor bundle"),
    ("RemoteFxGraphCache", "fx_graph_remote_cache", GRAPH),
)
ENVIRONMENT = {
    "TRITON_CACHE_MANAGER": "fa_tune.caches:TritonCache",
    "TRITON_CACHE_AUTOTUNING": "1",
    "HELION_REMOTE_CACHE_BACKEND": "fa_tune.caches.HelionCache",
    "HELION_AUTOTUNE_CACHE": "RemoteAutotuneCache",
}


def _read(tuner: str, key: str, may_start_cuda: bool, most_s: float) -> bytes | None:
    ours = _values.key_of(tuner, _values.here(may_start_cuda)[1], key)
    return _values.get(tuner, ours, most_s) if most_s > 0 else _values.peek(ours)


def _write(tuner: str, key: str, data: bytes, may_start_cuda: bool) -> None:
    gpu, silicon = _values.here(may_start_cuda)
    _values.put(_values.key_of(tuner, silicon, key), tuner, key, gpu, _values.made_with(), data)


def _backend(base: type, tuner: str) -> type:
    """Inductor does not catch what a backend raises, and unpickles graphs."""
    return type("Kept", (base,), {
        "wait_s": _values.WAIT_S if tuner == GRAPH else 0,
        "_get": lambda self, key: _read(tuner, key, False, self.wait_s),
        "_put": lambda self, key, data: _write(tuner, key, data, False),
    })


@functools.lru_cache(maxsize=1)
def _use_inductor() -> None:
    import torch
    import torch._dynamo
    from torch._inductor import config, remote_cache

    for cache, setting, tuner in INDUCTOR:
        getattr(remote_cache, cache).backend_override_cls = _backend(remote_cache.RemoteCacheBackend, tuner)
        # Without a GPU the bundled cache fails every compile: it asserts that Triton's backend has a hash.
        if tuner == GRAPH or (setting and torch.cuda.device_count() > 0):
            setattr(config, setting, True)
    torch._dynamo.on_compile_end(lambda *_: _values.let_go(GRAPH))  # of a graph that Inductor does not keep
    if torch.cuda.device_count() > 0:
        _tune_once()


def _cache_of(kernel: Any) -> Any:
    """Inductor's AutotuneCache of a kernel, whose remote cache waits for another process that makes the winner; None: it has none."""
    cache = getattr(kernel.save_cache_hook, "__self__", None)
    if cache is not None and cache.remote_cache is None:
        cache._setup_remote_autotune_cache({**kernel.inductor_meta, "autotune_remote_cache": True}, cache._prepare_key(kernel.filename))
    if cache is None or cache.remote_cache is None:
        return None
    cache.remote_cache[0].backend.wait_s = 60  # at most
    return cache


def _tune_once() -> None:
    """One process times an Inductor kernel's configs, and steps on from the fastest; another that loaded the kernel before takes
    its winner. Inductor asks for winners when it loads a kernel, which it may never time: only here a process becomes the maker."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner
    tune, descend = CachingAutotuner.autotune_to_one_config, CachingAutotuner.coordinate_descent_tuning

    @functools.wraps(tune)
    def tune_once(self: Any, *args: Any, **kwargs: Any) -> None:
        with _values.guarded("looking for the winner of an Inductor kernel"):
            if cache := _cache_of(self):
                best = cache.read_best(self.inductor_meta, [one.config for one in self.launchers])
                self.launchers = [one for one in self.launchers if one.config is best] or self.launchers
        tune(self, *args, **kwargs)  # of what is left: with a winner of one, which is timed for Inductor's own records

    @functools.wraps(descend)
    def descend_once(self: Any, launcher: Any, *args: Any, **kwargs: Any) -> Any:
        cache = found = None
        with _values.guarded("looking for the descent of an Inductor kernel"):
            if cache := _cache_of(self):
                remote, key = cache.remote_cache
                key += " from %s" % launcher.config  # its text has all members
                if found := remote.get(key):
                    best = copy.copy(launcher.config)
                    best.kwargs, best.num_warps, best.num_stages = found["kwargs"], found["num_warps"], found["num_stages"]
                    self.coordesc_tuner.autotune = lambda *_: best
        made = descend(self, launcher, *args, **kwargs)
        if cache and not found:
            with _values.guarded("keeping the descent of an Inductor kernel"):
                remote.put(key, {name: getattr(made.config, name) for name in ("kwargs", "num_warps", "num_stages")})
        return made

    CachingAutotuner.autotune_to_one_config, CachingAutotuner.coordinate_descent_tuning = tune_once, descend_once


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
            data = _read(HELION, key, True, _values.WAIT_S)
            return data.decode() if data is not None else None

        def put(self, key: str, value: str) -> None:
            _write(HELION, key, value.encode(), True)

        def list(self, max_results: int = 100) -> Any:
            """The newest winners of this GPU first, from which a tune starts warm."""
            with _values.guarded("listing Helion's winners"):
                keys = [row[0] for row in _core.kept(None, False) or [] if (row[1], row[3]) == (HELION, _values.here(True)[0])]
                return [data.decode() for data in map(_values.peek, keys[:max_results]) if data is not None]
            return []

    return HelionCache
