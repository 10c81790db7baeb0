#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Scripts of Kernel Tuner's, run by Kernel Tuner and by fa_tune.kernel_tuner, and their winners raced against one another:

    python3 tests/bench/kernel_tuner_race.py FOLDER [SCRIPT…] [--seconds N] [--limit N] [--out FILE]

FOLDER has scripts (without a SCRIPT all are run, test_… by pytest) and the files that they read, as Kernel Tuner's examples/cuda; in a copy the
lines that import kernel_tuner import fa_tune.kernel_tuner instead. Where kernel_tuner is not installed, fa_tune runs alone. Kernel Tuner takes
the mean of 7 launches with a warm cache; fa_tune flushes L2 before every launch. The race is fa_tune's, of the two winners alone, interleaved.
A line of JSON for each script, with its tunes in their order: how many configs have a time, the seconds, the winner, its
milliseconds, and `race`, Kernel Tuner's winner's time over fa_tune's (1: they are the same config).
"""
import argparse
import glob
import importlib.util
import inspect
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time


def replaced(text):
    """The script with fa_tune.kernel_tuner in the place of kernel_tuner."""
    text = re.sub(r"^(\s*)import kernel_tuner(?: as (\w+))?[ \t]*$", lambda found: "%simport fa_tune.kernel_tuner as %s" % (
        found[1], found[2] or "kernel_tuner"), text, flags=re.M)
    return re.sub(r"^(\s*from )kernel_tuner\b", r"\1fa_tune.kernel_tuner", text, flags=re.M)


def plain(value):
    return value.item() if hasattr(value, "item") else value


class Noted:
    """tune_kernel() that writes down what each call came to; with winners of both it races these instead."""

    def __init__(self, tune, seconds, theirs, pairs):
        self.tune, self.seconds, self.theirs, self.pairs, self.calls = tune, seconds, theirs, pairs, []

    def __call__(self, *args, **words):
        bound = inspect.signature(self.tune).bind(*args, **words).arguments
        if self.pairs is not None:
            bound.update(self._pair(bound["tune_params"]), cache=None, strategy=None, strategy_options=None)
        elif self.seconds and bound.get("strategy") is None:
            bound["strategy_options"] = {"time_limit": self.seconds, **({"max_fevals": 10 ** 9} if self.theirs else {})}
            bound["strategy"] = "greedy_ils" if self.theirs else None
        began = time.perf_counter()
        results, env = self.tune(**bound)
        timed = [one for one in results if one is not None and isinstance(one.get("time"), float)]
        best = min(timed, key=lambda one: one["time"])
        self.calls.append({"kernel": bound["kernel_name"], "timed": len(timed), "of": len(results), "s": round(time.perf_counter() - began, 2),
                           "ms": round(float(best["time"]), 5), "winner": {name: plain(best[name]) for name in bound["tune_params"]}})
        if self.pairs is not None:
            self.calls[-1]["times"] = [[one["time"] for one in timed if all(one[name] == value for name, value in config.items())] for config in self.pairs[len(self.calls) - 1]]
        return results, env

    def _pair(self, tunables):
        pair = self.pairs[len(self.calls)]
        said = [" and ".join("%s == %r" % one for one in config.items()) for config in pair]
        return {"tune_params": {name: list(dict.fromkeys(config[name] for config in pair)) for name in tunables},
                "restrictions": [" or ".join("(%s)" % one for one in said)]}


def run_script(script, out, side, seconds, pairs):
    """In a process of its own: one side's run of a script, in the script's folder."""
    if side == "kernel_tuner":
        import kernel_tuner as module
    else:
        import fa_tune.kernel_tuner as module
    noted = module.tune_kernel = Noted(module.tune_kernel, seconds, side == "kernel_tuner", pairs)
    sys.path.insert(0, os.getcwd())
    told = {"error": None}
    try:
        if script.startswith("test_"):
            import pytest
            told["error"] = "pytest: %s" % code if (code := int(pytest.main(["-q", "-p", "no:cacheprovider", script]))) else None
        else:
            runpy.run_path(script, run_name="__main__")
    except BaseException as error:  # pylint: disable=broad-except  # the script's end, whatever it is
        told["error"] = "%s: %s" % (type(error).__name__, str(error)[:300])
    with open(out, "w", encoding="utf-8") as file:
        json.dump({**told, "tunes": noted.calls}, file)


def run(folder, script, side, options, pairs=None):
    """What one side's run of a script came to."""
    with tempfile.TemporaryDirectory() as place:
        there = os.path.join(place, "scripts")
        shutil.copytree(folder, there)
        path, out = os.path.join(there, script), os.path.join(place, "out.json")
        if side == "fa_tune":
            with open(path, encoding="utf-8") as file:
                text = replaced(file.read())
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        env = dict(os.environ, FA_TUNE_STORE=os.path.join(place, "store.db"), CUPY_CACHE_IN_MEMORY="1", MPLBACKEND="agg")
        began = time.perf_counter()
        with open(os.path.join(place, "log"), "w+", encoding="utf-8", errors="replace") as log:
            try:
                subprocess.run([sys.executable, os.path.abspath(__file__), there, script, "--side", side, "--seconds", str(options.seconds), "--out", out,
                                "--pairs", json.dumps(pairs)], cwd=there, env=env, stdout=log, stderr=log, timeout=options.limit, check=False)
                with open(out, encoding="utf-8") as file:
                    told = json.load(file)
            except (subprocess.TimeoutExpired, OSError, ValueError) as error:
                log.seek(0)
                told = {"error": "%s; its last words: %s" % (type(error).__name__, log.read()[-300:]), "tunes": []}
        return {"s": round(time.perf_counter() - began, 1), **told}


def race(folder, script, options, both):
    """Kernel Tuner's winner's time over fa_tune's, of each tune that both have."""
    pairs = [[one["winner"] for one in tunes] for tunes in zip(*(side["tunes"] for side in both))]
    if any(theirs != ours for theirs, ours in pairs):
        raced = run(folder, script, "fa_tune", options, pairs)["tunes"]
        pairs = [(pair, one["times"]) for pair, one in zip(pairs, raced)]
        return [1 if theirs == ours else round(times[0][0] / times[1][0], 3) if times[0] and times[1] else None
                for (theirs, ours), times in pairs]
    return [1 for _ in pairs]


def main():
    parser = argparse.ArgumentParser(description="Kernel Tuner's scripts, by Kernel Tuner and by fa_tune")
    parser.add_argument("folder")
    parser.add_argument("scripts", nargs="*", metavar="SCRIPT")
    parser.add_argument("--seconds", type=float, default=0, help="a tune whose script names no strategy is a search of so many, Kernel Tuner's by greedy_ils")
    parser.add_argument("--limit", type=float, default=600, help="seconds after which a script is stopped (600)")
    parser.add_argument("--out", help="the lines are added to this file, too")
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--pairs", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        run_script(options.scripts[0], options.out, options.side, options.seconds, options.pairs)
        return
    ran = 0
    scripts = options.scripts or sorted(os.path.basename(path) for path in glob.glob(os.path.join(options.folder, "*.py")))
    for script in scripts:
        told = {"script": script, "fa_tune": run(options.folder, script, "fa_tune", options), "kernel_tuner": None, "race": None}
        ran += told["fa_tune"]["error"] is None
        if importlib.util.find_spec("kernel_tuner") is not None:
            told["kernel_tuner"] = run(options.folder, script, "kernel_tuner", options)
            told["race"] = race(options.folder, script, options, [told["kernel_tuner"], told["fa_tune"]])
        line = json.dumps(told)
        print(line, flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(line + "\n")
    print("%d of %d scripts ran to their end by fa_tune" % (ran, len(scripts)))


if __name__ == "__main__":
    main()
