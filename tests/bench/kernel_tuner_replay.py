#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's strategies on recorded spaces, in its simulation mode, as `search_replay` measures ours: optimum ÷ found.

    python3 tests/bench/kernel_tuner_replay.py [--repeats 20] [--evaluations 100] CACHE_FILE…

Needs `pip install kernel_tuner==1.5.0`. A strategy gets 60 s for each file; the number of its repeats is printed."""
import argparse
import contextlib
import io
import json
import random
import statistics
import time
import warnings

import kernel_tuner
import numpy
from constraint import FunctionConstraint

STRATEGIES = [("diff_evo", {"popsize": 8}), ("genetic_algorithm", {}), ("pso", {}), ("simulated_annealing", {}),
              ("random_sample", {}), ("greedy_ils", {}), ("hybrid_vndx", {}), ("adaptive_tabu_greywolf", {}), ("bayes_opt", {})]


def is_cost(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool) and value < 1e19


def search(path, space, strategy, options, seed):
    """The cheapest time that one run finds; None: none."""
    keys = space["tune_params_keys"]
    known = {tuple(entry[key] for key in keys) for entry in space["cache"].values()}
    size = space["problem_size"]
    random.seed(seed)
    numpy.random.seed(seed)
    with contextlib.redirect_stdout(io.StringIO()):
        results, _ = kernel_tuner.tune_kernel(
            space["kernel_name"], "__global__ void k(){}", tuple(size) if isinstance(size, list) else size, [],
            {key: space["tune_params"][key] for key in keys},
            restrictions=[FunctionConstraint(lambda *values: tuple(values) in known)], strategy=strategy,
            strategy_options=options, simulation_mode=True, cache=path, lang="CUDA", quiet=True)
    return min((one["time"] for one in results if is_cost(one.get("time"))), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=100)
    parser.add_argument("files", nargs="+")
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    for path in given.files:
        with open(path, encoding="utf-8") as file:
            space = json.load(file)
        best = min(entry["time"] for entry in space["cache"].values() if is_cost(entry["time"]))
        for strategy, options in STRATEGIES:
            shares, begin = [], time.monotonic()
            while len(shares) < given.repeats and time.monotonic() - begin < 60:
                found = search(path, space, strategy, {**options, "max_fevals": given.evaluations}, len(shares))
                shares.append(best / found if found else 0)
            shares.sort()
            print("%s %s: %d repeats, median %.3f, tenth percentile %.3f" % (
                path, strategy, len(shares), statistics.median(shares), shares[(len(shares) - 1) // 10]), flush=True)


if __name__ == "__main__":
    main()
