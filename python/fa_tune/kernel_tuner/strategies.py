# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's strategies, each as the strategy of fa-tune that takes its place."""
from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from .._errors import ArgumentError, NotSupported, did_you_mean, shown

NAMES = ("brute_force", "random_sample", "minimize", "basinhopping", "diff_evo", "genetic_algorithm", "greedy_mls", "ordered_greedy_mls",
         "greedy_ils", "dual_annealing", "mls", "pso", "simulated_annealing", "skopt", "firefly_algorithm", "bayes_opt",
         "pyatf_strategies", "hybrid_vndx", "adaptive_tabu_greywolf")

MOST = 2 ** 31 - 1  # evaluations


def __getattr__(name: str) -> str:
    if name not in NAMES:
        raise AttributeError("module %r has no attribute %r" % (__name__, name))
    return name


def searching(strategy: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """strategy=, evaluations= and seconds= of fa_tune.tune_kernel()."""
    if strategy is not None and not isinstance(strategy, str):
        raise NotSupported("strategy: %s is a strategy of your own, and fa-tune searches by its own: leave it out" % shown(strategy))
    if strategy not in (None, *NAMES):
        raise ArgumentError("there is no strategy %r%s" % (strategy, did_you_mean(strategy, NAMES)))
    search: dict[str, Any] = {}
    if options.get("max_fevals") is not None:
        search["evaluations"] = min(int(options["max_fevals"]), MOST)
    if options.get("time_limit") is not None:
        search["seconds"] = options["time_limit"]
    other = sorted(set(options) - {"max_fevals", "time_limit", "searchspace_construction_options"})
    if strategy == "random_sample":
        search["strategy"] = "random"
    elif strategy not in (None, "brute_force"):
        search["strategy"] = "surrogate"
        warnings.warn("strategy: fa-tune's surrogate (a Gaussian process) searches in the place of %s%s" % (
            strategy, "; not read: " + ", ".join(other) if other else ""), stacklevel=3)
    return search
