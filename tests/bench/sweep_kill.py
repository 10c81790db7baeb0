# SPDX-License-Identifier: Apache-2.0
"""A sweep that is killed at random moments ends with the winners of one that ran through.

Runs one sweep into FOLDER/whole.db, the same one into FOLDER/killed.db with SIGKILL at --kills random
moments, and compares winners: the same config, or a tie, as a tune declares it: two configs within
half a percent in a race that both ran in, their intervals overlapping. Prints a line
for each problem, and the result as JSON in its last line; exit status 1 when a winner differs, an item is missing, or
a config that was on record was tried again.

    python3 tests/bench/sweep_kill.py build/fa-tune /tmp/sweeps             # 48 problems, a few minutes
    python3 tests/bench/sweep_kill.py build/fa-tune /tmp/sweeps --seq 512 --head-dim 64
"""
import argparse
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time

GRID = {"seq": "512:16384:x2", "head-dim": "64,128", "dtype": "fp16,bf16", "causal": "both",
        "tokens": "16384", "hidden": "2048"}
TIE = 0.5  # percent
SPARE = 3  # items that are left after the last kill, so that it comes before the end
ENDED = re.compile(r"^\[(\d+)/(\d+)")


def start(arguments, store):
    return subprocess.Popen(arguments + ["--store", store], stdin=subprocess.DEVNULL,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, encoding="utf-8")


def run_through(arguments, store):
    """Seconds that the sweep takes, and its document."""
    begin = time.monotonic()
    done = subprocess.run(arguments + ["--store", store, "--json"], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                          check=False)
    if done.returncode != 0:
        sys.exit("the sweep into %s ended with %d:\n%s" % (store, done.returncode, done.stderr[-2000:]))
    return time.monotonic() - begin, json.loads(done.stdout)


def run_and_kill(arguments, store, after_items, pause):
    """Kills the sweep a while after that many of its items have ended; false: it ended before."""
    process = start(arguments, store)
    ended = 0
    while ended < after_items:
        line = process.stderr.readline()
        if not line:
            break
        match = ENDED.match(line)
        known = re.match(r"^(\d+) of \d+ problems were done before", line)
        ended = int((match or known).group(1)) if match or known else ended
    time.sleep(pause)
    alive = process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    return alive


def tried_twice(store):
    """Configs that were proved and timed again although their first result was on record."""
    database = sqlite3.connect("file:%s?mode=ro" % store, uri=True)
    rows = database.execute(
        "SELECT count(*) FROM (SELECT 1 FROM trial WHERE raced = 0 AND status = 'measured' "
        "GROUP BY scope_id, config_key HAVING count(*) > 1)").fetchone()
    database.close()
    return rows[0]


def explain(fa_tune, store, item):
    """Every finished config of an item's problem in that store, by the text of its config."""
    p = item["problem"]
    arguments = [fa_tune, "explain", "--store", store, "--json", "--quiet"]
    for option, field in (("--dtype", "dtype"), ("--causal", "causal"), ("--layout", "layout"),
                          ("--head-dim", "head_dim"), ("--batch", "batch"), ("--heads", "heads_q"),
                          ("--heads-kv", "heads_kv"), ("--seq-q", "seq_q"), ("--seq-k", "seq_k")):
        arguments += [option, str(p[field])]
    if item["asked_gpu"]:
        arguments += ["--gpu", item["asked_gpu"]]
    done = subprocess.run(arguments, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return {name_of(row["config"]): row for row in json.loads(done.stdout)["configs"]}


def name_of(config):
    return config["family"] + " " + " ".join("%s=%d" % pair for pair in config["tunables"].items())


def overlap(a, b):
    return a["low_us"] <= b["high_us"] and b["low_us"] <= a["high_us"]


def verdict(ours, other, rows_of_ours, rows_of_other):
    """"same", "tie" or "DIFFERENT" for two winners. rows: every config of the problem, in each store."""
    a, b = name_of(ours["config"]), name_of(other["config"])
    for winner, rival, rows in () if a == b else ((ours, b, rows_of_ours()), (other, a, rows_of_other())):
        row = rows.get(rival)
        if row is not None and row["raced"] and winner["raced"] and overlap(winner, row) and \
                100 * (row["median_us"] / winner["median_us"] - 1) <= TIE:
            return "tie"
    return "same" if a == b else "DIFFERENT"


def compare(fa_tune, whole, killed, whole_store, killed_store):
    rows = []
    for ours, other in zip(whole["items"], killed["items"]):
        if ours["problem"] != other["problem"]:
            sys.exit("the two sweeps are of different problems")
        a, b = ours["answer"], other["answer"]
        row = {"problem": ours["problem"], "verdict": "MISSING"}
        if a is not None and b is not None:
            row.update(verdict=verdict(a, b, lambda: explain(fa_tune, whole_store, ours),
                                       lambda: explain(fa_tune, killed_store, other)),
                       whole=name_of(a["config"]), killed=name_of(b["config"]), whole_us=a["median_us"], killed_us=b["median_us"])
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fa_tune")
    parser.add_argument("folder")
    parser.add_argument("--kills", type=int, default=3)
    parser.add_argument("--random", type=int, default=int(time.time()), help="seed of the moments")
    for option, value in GRID.items():
        parser.add_argument("--" + option, default=value)
    parser.add_argument("--trial-timeout")
    options = parser.parse_args()
    os.makedirs(options.folder, mode=0o700, exist_ok=True)
    whole_store = os.path.join(options.folder, "whole.db")
    killed_store = os.path.join(options.folder, "killed.db")
    arguments = [options.fa_tune, "sweep"]
    for option in [*GRID, "trial-timeout"]:
        value = getattr(options, option.replace("-", "_"))
        arguments += ["--" + option, value] if value else []

    seconds, whole = run_through(arguments, whole_store)
    count = len(whole["items"])
    if count < options.kills + SPARE:
        sys.exit("%d problems are too few to be killed %d times" % (count, options.kills))
    moments = random.Random(options.random)
    each = seconds / count
    points = sorted(moments.sample(range(count - SPARE), options.kills))
    kills = sum(run_and_kill(arguments, killed_store, point, moments.uniform(0, 0.9) * each)
                for point in points)
    seconds_after, killed = run_through(arguments, killed_store)
    rows = compare(options.fa_tune, whole, killed, whole_store, killed_store)
    for row in rows:
        print(row)
    told = {word: sum(row["verdict"] == word for row in rows)
            for word in ("same", "tie", "DIFFERENT", "MISSING")}
    result = dict(problems=count, kills=kills, random=options.random, after_items=points,
                  seconds_whole=round(seconds, 1), seconds_of_the_last_run=round(seconds_after, 1),
                  trials_whole=whole["sweep"]["spent"]["trials"], tried_twice=tried_twice(killed_store),
                  **{word.lower(): n for word, n in told.items()}, rows=rows)
    good = kills == options.kills and told["same"] + told["tie"] == count and \
        result["tried_twice"] == 0
    print("%d problems, killed %d times: %d winners the same, %d ties, %d different, %d missing; "
          "%d configs tried twice" % (count, kills, told["same"], told["tie"], told["DIFFERENT"],
                                      told["MISSING"], result["tried_twice"]))
    print(json.dumps(result))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
