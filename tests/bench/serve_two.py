#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes tune through one daemon, and one alone: are the winners' times the same?

    python3 tests/bench/serve_two.py FOLDER [--limit PERCENT] [--out FILE]

FOLDER has fa-tune, fa-tune-serve and fa-tune-worker. A daemon with a store of its own for each of
three runs:

    alone     one client tunes every problem, one after another
    again     the same once more: how far two runs of one client are apart
    together  two clients at once, each with every other problem

A winner's time is the median that its own tune measured. Prints a row for each problem and, last, the
medians of the ratios to `alone`; exit status 1 when that of `together` is off by more than the limit
(2 %), or when a client's answer is not measured.
"""
import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PATIENCE_S = 120


def problems(options):
    """By default long enough to be timed well, and of different kernels' taste."""
    return [["--seq", str(seq), "--head-dim", str(dim), "--batch", str(max(1, options.tokens // seq)),
             "--heads", str(max(1, options.hidden // dim)), *causal]
            for seq in options.seq for dim in (64, 128) for causal in ([], ["--causal"])]


class Daemon:
    def __init__(self, folder, place):
        self.socket = os.path.join(place, "s")
        environment = dict(os.environ, FA_TUNE_STORE=os.path.join(place, "store.db"),
                           FA_TUNE_WORKER=os.path.join(folder, "fa-tune-worker"), FA_TUNE_SYSTEM="")
        self.log = open(os.path.join(place, "log"), "wb")
        self.process = subprocess.Popen([os.path.join(folder, "fa-tune-serve"), "--socket",
                                         self.socket], env=environment, stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        end = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                sys.exit("the daemon did not start: see " + self.log.name)
            time.sleep(0.05)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        self.log.close()


def tune(folder, socket, arguments):
    """The document of one tune through the daemon; the client has no store of its own to fall back to
    without a note, which is a failure here."""
    done = subprocess.run([os.path.join(folder, "fa-tune"), "tune", *arguments, "--json",
                           "--no-progress", "--server", "unix:" + socket], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0 or done.stderr:
        sys.exit("fa-tune %s ended with %d: %s" % (" ".join(arguments), done.returncode, done.stderr))
    return json.loads(done.stdout)


def run(folder, shares):
    """Each share by a client of its own, at once; problem -> document, and the seconds it took."""
    place = tempfile.mkdtemp(prefix="ft-")
    found, failures = {}, []
    try:
        daemon = Daemon(folder, place)
        begin = time.monotonic()

        def client(share):
            try:
                for arguments in share:
                    found[" ".join(arguments)] = tune(folder, daemon.socket, arguments)
            except SystemExit as failure:  # of this thread alone, otherwise
                failures.append(str(failure))
        threads = [threading.Thread(target=client, args=(share,)) for share in shares]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.monotonic() - begin
        daemon.stop()
    finally:
        shutil.rmtree(place)
    if failures:
        sys.exit(failures[0])
    return found, seconds


def median_us(document):
    answer = document["answer"]
    if answer["origin"] != "measured" or not answer["median_us"]:
        sys.exit("an answer is %s, not measured: is there a GPU?" % answer["origin"])
    return answer["median_us"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder")
    parser.add_argument("--seq", type=int, nargs="+", default=[1024, 2048, 4096])
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--hidden", type=int, default=2048)
    parser.add_argument("--limit", type=float, default=2.0)
    parser.add_argument("--out")
    options = parser.parse_args()
    every = problems(options)
    runs, seconds = {}, {}
    for name, shares in (("alone", [every]), ("together", [every[0::2], every[1::2]]),
                         ("again", [every])):
        runs[name], seconds[name] = run(options.folder, shares)
    ratios = {"together": [], "again": []}
    out = open(options.out, "w", encoding="utf-8") if options.out else None
    print("%-64s %9s %9s %9s" % ("problem", "alone us", "together", "again"))
    for arguments in every:
        problem = " ".join(arguments)
        times = {name: median_us(runs[name][problem]) for name in runs}
        for name in ratios:
            ratios[name].append(times[name] / times["alone"])
        print("%-64s %9.2f %8.3fx %8.3fx" % (problem, times["alone"], ratios["together"][-1],
                                            ratios["again"][-1]))
        if out is not None:
            print(json.dumps({"problem": problem, "median_us": times, "config": {
                name: runs[name][problem]["answer"]["config"] for name in runs}}), file=out)
    off = {name: 100 * (statistics.median(values) - 1) for name, values in ratios.items()}
    worst = {name: max((100 * (value - 1) for value in values), key=abs)
             for name, values in ratios.items()}
    print("two through one daemon, %d problems: median %+.2f %% (worst %+.2f %%) beside alone; alone "
          "again %+.2f %% (worst %+.2f %%); %.1f s together, %.1f s alone"
          % (len(every), off["together"], worst["together"], off["again"], worst["again"],
             seconds["together"], seconds["alone"]))
    return 0 if abs(off["together"]) <= options.limit else 1


if __name__ == "__main__":
    sys.exit(main())
