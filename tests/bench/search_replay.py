#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How well each way of searching does, without a GPU, on a space that somebody measured whole: a cache file of Kernel Tuner,
also one that was never closed, or a result in the T4 format (examples/t4.py writes such files).

    python3 tests/bench/search_replay.py FILE [--strategy NAME|all] [--evaluations 100] [--repeats 100] [--batch 1] [--seed 0]

Prints the median and the tenth percentile of optimum / found: 1 is the best config on record. Each repeat is one search
with the next seed; configs that violate a restriction or do not compile are not counted."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNBUILT, FAILED, NO_POINT = -1.0, -2.0, -3.0  # as tuner/search/search.h has the first two; a restriction forbids the last


def cost_of(objective, number):
    """A cost from a number; a rate ("GFLOP/s") is better the higher it is."""
    usable = isinstance(number, (int, float)) and 0 < number < 1e19  # 1e20 meant a failure once
    return (1 / number if "/" in objective else number) if usable else FAILED


def cost_of_failure(text):
    """What is meant by the names of failures in either format."""
    return NO_POINT if text.lower() in ("invalidconfig", "constraints") else UNBUILT if text.lower().startswith("compil") else FAILED


def in_cache(objective, entry):
    error = entry.get("__error__")
    value = error if isinstance(error, str) else entry.get(objective)
    return cost_of_failure(value) if isinstance(value, str) else cost_of(objective, value)


def in_t4(objective, result):
    if str(result.get("invalidity", "correct")).lower() != "correct":
        return cost_of_failure(str(result["invalidity"]))
    for one in result.get("measurements") or []:
        if one.get("name") == objective:
            return cost_of(objective, one.get("value"))
    runtimes = (result.get("times") or {}).get("runtimes")
    return cost_of(objective, statistics.fmean(runtimes)) if runtimes and objective == "time" else FAILED


def first_text(given):
    given = given[0] if isinstance(given, list) and given else given
    return given if isinstance(given, str) and given else "time"


def read(document):
    """(kernel, device, names of parameters, [(config, cost)]) of either format."""
    if isinstance(document.get("results"), list):
        results, about = document["results"], document.get("metadata") or {}
        objective = first_text(results[0].get("objectives")) if results else ""
        names = list(dict.fromkeys(name for one in results for name in one["configuration"]))
        return about.get("kernel", ""), about.get("device", ""), names, [(one["configuration"], in_t4(objective, one)) for one in results]
    if not isinstance(document.get("cache"), dict) or not isinstance(document.get("tune_params_keys"), list):
        raise ValueError("it is neither a cache file (\"cache\" and \"tune_params_keys\") nor T4 (\"results\")")
    objective = first_text(document.get("objective"))
    return (document.get("kernel_name", ""), document.get("device_name", ""), document["tune_params_keys"],
            [(one, in_cache(objective, one)) for one in document["cache"].values()])


def rank(value):
    """What lacks a parameter comes first, then flags, numbers and texts, each in their order."""
    if not isinstance(value, (str, int, float, type(None))) or isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a config has %r, which is no number, text, true or false" % (value,))
    return (0,) if value is None else (1, value) if isinstance(value, bool) else (3, value) if isinstance(value, str) else (2, value)


def space_of(path):
    """(what the file is about, the optimum, the program's input). The values of its parameters are those that occur."""
    with open(path, encoding="utf-8") as file:
        text = file.read().rstrip()
    document = json.loads(text[:-1] + "}}" if text.endswith(",") else text)  # never closed
    kernel, device, names, entries = read(document)
    if not entries:
        raise ValueError("has 0 configs")
    values = [sorted({rank(config.get(name)) for config, _ in entries}) for name in names]
    places = [{value: at for at, value in enumerate(of_one)} for of_one in values]
    points = {}
    for config, cost in entries:  # of a config that is there twice, the first counts
        if cost != NO_POINT:
            points.setdefault(tuple(place[rank(config.get(name))] for name, place in zip(names, places)), cost)
    right = [cost for cost in points.values() if cost > 0]
    if not right:
        raise ValueError("no config of it has a usable time")
    if math.prod(map(len, values)) > 1 << 62:
        raise ValueError("has too many combinations of values")
    lines = ["%d %d" % (len(names), len(points))]
    lines += ["%d %s" % (len(of_one), " ".join("%r" % one[1] if one[0] == 2 else "0" for one in of_one)) for of_one in values]
    lines += ["%s %r" % (" ".join(map(str, point)), cost) for point, cost in points.items()]
    about = "%s on %s: %d configs of %d parameters, %d did not compile, %d failed" % (
        kernel, device, len(points), sum(len(of_one) > 1 for of_one in values), list(points.values()).count(UNBUILT),
        list(points.values()).count(FAILED))
    return about, min(right), "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--strategy", default="auto")
    for name, preset in (("evaluations", 100), ("repeats", 100), ("batch", 1), ("seed", 0)):
        parser.add_argument("--" + name, type=int, default=preset)
    options = parser.parse_args()
    try:
        about, optimum, text = space_of(options.file)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        sys.exit("search_replay: %s: %s" % (options.file, error))
    program = os.path.join(os.environ.get("FA_TEST_BUILD", os.path.join(ROOT, "build")), "tests", "search_replay")
    done = subprocess.run([program, options.strategy, *(str(getattr(options, name)) for name in ("evaluations", "repeats", "batch", "seed"))],
                          input=text, stdout=subprocess.PIPE, encoding="ascii", check=False)
    if done.returncode != 0:
        sys.exit(done.returncode)
    print(about + "\nstrategy    median  tenth percentile  evaluations")
    runs = {}
    for line in done.stdout.splitlines():
        strategy, chosen, spent, cost = line.split()
        runs.setdefault(strategy, []).append((optimum / float(cost) if float(cost) else 0, int(spent), chosen))
    for strategy, of_one in runs.items():
        shares = sorted(share for share, _, _ in of_one)
        print("%-10s  %6.3f  %16.3f  %11.0f  %s" % (strategy, statistics.median(shares), shares[(len(shares) - 1) // 10],
                                                   statistics.fmean(spent for _, spent, _ in of_one),
                                                   of_one[0][2] if of_one[0][2] != strategy else ""))


main()
