#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of fa-tune beside each other, in turn, so that a change of the host or of the card's
clock touches both.

    python3 tests/bench/two_builds.py OLD NEW [--rounds 5]

OLD and NEW are folders as tests/gpu_bundle.sh makes them. On a GPU machine it prints, of each, the
median of a cold tune, of the way from a new process to a launchable kernel, of a hit in the process
and of a launch on the host; anywhere, the cached answers of the daemon. The last column is NEW / OLD.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

import serve_load

LATENCY = re.compile(r"launchable kernel ([\d.]+) ms \(open ([\d.]+) ms\); hit in the process "
                     r"([\d.]+) ns; launch on the host ([\d.]+) us")


def environment(folder, store):
    return dict(os.environ, FA_TUNE_STORE=store, FA_TUNE_SYSTEM="", FA_TUNE_SERVER="",
                FA_TUNE_WORKER=os.path.join(folder, "fa-tune-worker"))


def cold_tune(folder, place, options):
    """(seconds, configs measured) of one tune on an empty store."""
    store = os.path.join(place, "cold-%d.db" % time.monotonic_ns())
    begin = time.perf_counter()
    done = subprocess.run([os.path.join(folder, "fa-tune"), *options, "--json", "--quiet"],
                          env=environment(folder, store), stdout=subprocess.PIPE, check=True)
    seconds = time.perf_counter() - begin
    return seconds, json.loads(done.stdout)["funnel"]["measured"]


def latency(folder, store):
    text = subprocess.run([os.path.join(folder, "bench_latency")], env=environment(folder, store),
                          stdout=subprocess.PIPE, check=True, text=True).stdout
    return [float(value) for value in LATENCY.search(text).groups()]


def device_rows(old, new, place, rounds):
    """name -> unit, samples of OLD, samples of NEW."""
    rows = {}

    def keep(name, unit, which, value):
        rows.setdefault(name, (unit, [], []))[1 + which].append(value)
    tunes = {"D 64, S 512": ["--seq", "512"],
             "D 128, S 4096, causal": ["--seq", "4096", "--head-dim", "128", "--causal"]}
    stores = [os.path.join(place, name) for name in ("old.db", "new.db")]
    for folder, store in zip((old, new), stores):
        subprocess.run([os.path.join(folder, "fa-tune"), "--seq", "512", "--quiet"],
                       env=environment(folder, store), stdout=subprocess.DEVNULL, check=True)
    for turn in range(rounds):
        order = ((0, old), (1, new)) if turn % 2 == 0 else ((1, new), (0, old))
        for which, folder in order:
            for name, options in tunes.items():
                seconds, measured = cold_tune(folder, place, options)
                keep("cold tune, %s" % name, "s", which, seconds)
                keep("cold tune, %s, configs measured" % name, "", which, measured)
        for which, folder in order * 3:
            ready, opened, hit, launch = latency(folder, stores[which])
            keep("new process to launchable kernel", "ms", which, ready)
            keep("opening a tuner", "ms", which, opened)
            keep("hit in the process", "ns", which, hit)
            keep("launch on the host", "us", which, launch)
    return rows


def daemon_rows(old, new, rounds):
    rows = {"cached answers of the daemon": ("/s", [], []), "their p99": ("us", [], [])}
    body = serve_load.ask(128, effort="predict")
    with tempfile.TemporaryDirectory(prefix="ft-") as a, tempfile.TemporaryDirectory(prefix="ft-") as b, \
            serve_load.Daemon(old, a) as one, serve_load.Daemon(new, b) as other:
        for daemon in (one, other):
            assert daemon.request("POST", "/v1/kernel", body)[0] == 200
        for turn in range(2 * rounds):
            for which, daemon in sorted(enumerate((one, other)), reverse=turn % 2 == 1):
                result = daemon.load(body, 100000)
                rows["cached answers of the daemon"][1 + which].append(result["per_second"])
                rows["their p99"][1 + which].append(result["p99_us"])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    old, new = os.path.abspath(options.old), os.path.abspath(options.new)
    rows = {}
    device = subprocess.run([os.path.join(new, "fa-tune"), "doctor", "--json"], text=True,
                            stdout=subprocess.PIPE, check=False).stdout
    with tempfile.TemporaryDirectory() as place:
        if any(check["name"] == "driver" and check["level"] == "ok"
               for check in json.loads(device)["checks"]):
            rows.update(device_rows(old, new, place, options.rounds))
        else:
            print("no CUDA device here: the daemon alone", file=sys.stderr)
    rows.update(daemon_rows(old, new, options.rounds))
    print("%-52s %12s %12s %9s" % ("", "old", "new", "new / old"))
    for name, (unit, before, after) in rows.items():
        a, b = statistics.median(before), statistics.median(after)
        print("%-52s %9.5g %-2s %9.5g %-2s %9.3f" % (name, a, unit, b, unit, b / a if a else 0))


if __name__ == "__main__":
    main()
