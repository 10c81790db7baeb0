# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's functions over fa_tune.tune_kernel(), so that its scripts run with one line changed:

    import fa_tune.kernel_tuner as kernel_tuner
    results, env = kernel_tuner.tune_kernel("vector_add", source, size, [c, a, b, n], {"block_size_x": [128, 256]})

docs/your-own-kernel.md says what is honoured, what is accepted and what is refused.
"""
from __future__ import annotations

import datetime
import inspect
import time
from collections.abc import Mapping
from typing import Any

from .._errors import ArgumentError, Error, NotSupported
from . import file_utils, strategies, util  # noqa: F401  # scripts find them here
from ._cache import Cache
from ._described import Described, is_array
from ._device import all_close
from .integration import store_results
from .util import RuntimeFailedConfig, get_best_config, get_config_string, get_objective_defaults, process_metrics

__all__ = ["create_device_targets", "run_kernel", "store_results", "tune_cache", "tune_kernel", "tune_kernel_T1"]


def tune_kernel(kernel_name: str, kernel_source: Any, problem_size: Any, arguments: Any, tune_params: Mapping[str, Any],
                grid_div_x: Any = None, grid_div_y: Any = None, grid_div_z: Any = None, restrictions: Any = None, answer: Any = None,
                atol: float = 1e-6, verify: Any = None, verbose: bool = False, lang: str | None = None, device: int = 0,
                platform: int = 0, smem_args: Any = None, cmem_args: Any = None, texmem_args: Any = None, compiler: str | None = None,
                compiler_options: Any = None, defines: Any = None, log: Any = None, iterations: int = 7, block_size_names: Any = None,
                quiet: bool = False, strategy: Any = None, strategy_options: Any = None, cache: Any = None, metrics: Any = None,
                simulation_mode: Any = None, parallel: Any = None, observers: Any = None, objective: Any = None,
                objective_higher_is_better: Any = None, objectives: Any = None, seed: int | None = None
                ) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Kernel Tuner's tune_kernel(): (a dict for each config that was tried, a dict about where)."""
    began = time.perf_counter()
    refuse(simulation_mode=simulation_mode, texmem_args=texmem_args, observers=observers, objectives=objectives)
    objective, higher = get_objective_defaults(objective, objective_higher_is_better)
    search = strategies.searching(strategy, strategy_options or {})
    described = Described(kernel_name, kernel_source, problem_size, arguments, tune_params, (grid_div_x, grid_div_y, grid_div_z),
                          restrictions, lang, smem_args, cmem_args, compiler_options, defines, block_size_names, device)
    given = None if verify else described.answers(answer)
    kept = Cache(cache, kernel_name, problem_size, tune_params, objective) if cache else None
    results: list[dict[str, Any]] = [one for one in kept.results() if described.has(one)] if kept else []
    most = search.get("evaluations")
    env: dict[str, Any] = {"iterations": iterations, "compiler_options": compiler_options}
    if not (kept and kept.device and (len(results) >= most if most else described.all_of(results))):
        search["progress"] = False if quiet else None
        try:
            tuned = described.tuned(given, atol, **search)
        except Error as error:
            if given is None or "it wrote to its input" not in str(error):
                raise
            # Nothing is said of an argument that the kernel writes: then the fastest config's outputs are compared here.
            verify, tuned = all_close, described.tuned(None, None, **search)
        env["device_name"] = tuned.answer.gpu
        if kept and kept.device not in (None, tuned.answer.gpu):
            raise ArgumentError("cache: %s has the times of %s, and this is %s" % (kept.path, kept.device, tuned.answer.gpu))
        had = {described.key(one) for one in results}
        results += [one for one in map(described.of_row, tuned.configs) if one is not None and described.key(one) not in had]
        if verify:
            _verified(described, results, answer, verify, atol)
    env.setdefault("device_name", kept.device if kept else None)
    results = [_told(one, tune_params, metrics, verbose) for one in sorted(results, key=described.place)]
    if kept:
        kept.write(env["device_name"], {described.key(one): one for one in results})
    env["best_config"] = best = get_best_config(results, objective, higher)
    for name in ("compile", "verification", "benchmark", "strategy", "framework"):
        env["total_%s_time" % name] = sum(one.get(name + "_time", 0) for one in results)
    env["overhead_time"] = 1000 * (time.perf_counter() - began)
    if not quiet:
        print("%s on %s, %d configs; the best by %s: %s" % (kernel_name, env["device_name"], len(results), objective, get_config_string(
            best, [*tune_params, objective, *(metrics or {})], {"time": "ms"})))
    return results, env


def run_kernel(kernel_name: str, kernel_source: Any, problem_size: Any, arguments: Any, params: Mapping[str, Any],
               grid_div_x: Any = None, grid_div_y: Any = None, grid_div_z: Any = None, lang: str | None = None, device: int = 0,
               platform: int = 0, smem_args: Any = None, cmem_args: Any = None, texmem_args: Any = None, compiler: str | None = None,
               compiler_options: Any = None, defines: Any = None, block_size_names: Any = None, quiet: bool = False,
               log: Any = None) -> list[Any]:
    """Kernel Tuner's run_kernel(): the arguments as they are after one launch of one config."""
    refuse(texmem_args=texmem_args)
    described = Described(kernel_name, kernel_source, problem_size, arguments, {name: [value] for name, value in params.items()},
                          (grid_div_x, grid_div_y, grid_div_z), None, lang, smem_args, cmem_args, compiler_options, defines,
                          block_size_names, device)
    return described.launched(described.tuned(None, None, progress=False if quiet else None))


_WITHOUT = {
    "simulation_mode": "a recorded space is replayed by Kernel Tuner itself",
    "texmem_args": "no proof could draw a texture's contents: pass the array as an argument",
    "observers": "kernels run in worker processes, where no object of this program can watch them: leave them out, and metrics that read "
                 "what they measure",
    "objectives": "one objective is searched: pass objective=, and compute others from the results",
}


def refuse(**given: Any) -> None:
    for name, value in given.items():
        if value:
            words = name if name != "observers" else "observers (%s)" % ", ".join(type(one).__name__ for one in value)
            raise NotSupported("fa_tune.kernel_tuner has no %s: %s" % (words, _WITHOUT[name]))


def _told(result: dict[str, Any], tune: Any, metrics: Any, verbose: bool) -> dict[str, Any]:
    why = result.pop("reason", "")
    if "__error__" in result:
        if verbose:
            print("%s: %s" % (get_config_string(result, tune), why))
        return result
    result.setdefault("timestamp", str(datetime.datetime.now(datetime.timezone.utc)))
    return process_metrics(result, metrics)


def _verified(described: Described, results: list[dict[str, Any]], answer: Any, verify: Any, atol: float) -> None:
    """Asks the caller's function for the fastest config, and for the next where that is wrong."""
    looked_at = [is_array(value) if answer is None else answer[i] is not None for i, value in enumerate(described.arguments)]
    more = {"atol": atol} if "atol" in inspect.signature(verify).parameters else {}
    for result in sorted((one for one in results if "__error__" not in one), key=lambda one: one["time"]):
        one = described.alone({name: result[name] for name in described.tune})
        outputs = one.launched(one.tuned(None, None, progress=False), looked_at, copied=True)
        if verify(answer, outputs, **more):
            return
        for name in set(result).difference(described.tune):
            del result[name]
        result.update(__error__=RuntimeFailedConfig(), reason="its outputs are wrong")
    raise Error("the outputs of every config differ from the answer" if verify is all_close else "verify() refused the outputs of every config")


def _absent(name: str, instead: str) -> Any:
    def call(*_: Any, **__: Any) -> Any:
        raise NotSupported("fa_tune.kernel_tuner has no %s(): %s" % (name, instead))
    call.__name__ = name
    return call


tune_cache = _absent("tune_cache", "a recorded space is replayed by Kernel Tuner itself")
tune_kernel_T1 = _absent("tune_kernel_T1", "pass what the T1 file says to tune_kernel()")
create_device_targets = _absent("create_device_targets", "`fa-tune export` carries winners to other machines")
