# SPDX-License-Identifier: Apache-2.0
"""What buckets of lengths cost between their points, on the GPU that is here: random lengths off the buckets, each tuned exactly beside its
bucket. Regret is the time there of what a lookup answers from the bucket over the best time there, less one: of the exact point's race where it
is among the fastest, else of its probe. About 5 s a point, a JSON line each; exit status 1 when the median is above 2 % or the worst above 10 %.

    python3 tests/bench/bucket_regret.py build/fa-tune [POINTS] [--seed N] [--range LOW HIGH] [--out FILE] [--keep STORE]
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile

GOAL_MEDIAN, GOAL_WORST = 0.02, 0.10
TOKENS, HIDDEN = 16384, 2048


def bucket(length):
    """As fa_length_bucket: 1 to 16, then eight in every octave, the nearest in ratio."""
    if length <= 16:
        return length
    step = 1
    while step * 2 * 8 <= length:
        step *= 2
    below = length // step * step
    return below if length * length < below * (below + step) else below + step


def points(count, low, high, seed):
    """Lengths spread evenly over the octaves, off the buckets, with every kind of problem in turn."""
    rng = random.Random(seed)
    kinds = [(d, causal, dtype) for d in (64, 128) for causal in ("none", "bottom-right")
             for dtype in ("fp16", "bf16")]
    for i in range(count):
        length = low
        while bucket(length) == length:
            length = round(math.exp(rng.uniform(math.log(low), math.log(high))))
        yield (length, *kinds[i % len(kinds)])


def tune(program, store, length, head_dim, causal, dtype, *more):
    command = [program, "tune", "--seq", str(length), "--head-dim", str(head_dim), "--causal", causal,
               "--dtype", dtype, "--heads", str(HIDDEN // head_dim),
               "--batch", str(max(1, TOKENS // length)), "--store", store, "--json", "--quiet",
               "--top", "100000", *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def measure(program, store, point):
    of_bucket = tune(program, store, *point)["answer"]
    exact = tune(program, store, *point, "--exact")
    best = exact["answer"]
    same, = [row for row in exact["ranking"] if row["config"] == of_bucket["config"]] or [None]
    row = dict(zip(("seq", "head_dim", "causal", "dtype"), point), bucket=bucket(point[0]),
               from_bucket=of_bucket["from_problem"]["seq_q"], best_us=best["median_us"],
               bucket_us=same and same["median_us"], best_config=best["config"],
               bucket_config=of_bucket["config"], ties=best["ties"])
    row["regret"] = max(0.0, row["bucket_us"] / row["best_us"] - 1) if row["bucket_us"] else None
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("points", nargs="?", type=int, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--range", nargs=2, type=int, default=(512, 16384), metavar=("LOW", "HIGH"))
    parser.add_argument("--out")
    parser.add_argument("--keep", metavar="STORE", help="make the store here and leave it")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=os.path.expanduser("~")) as folder, \
            open(options.out or os.devnull, "w", encoding="utf-8") as out:
        for point in points(options.points, *options.range, options.seed):
            store = options.keep or os.path.join(folder, "store.db")
            rows.append(measure(options.program, store, point))
            for file in (sys.stdout, out):
                print(json.dumps(rows[-1]), file=file, flush=True)
    regrets = [row["regret"] for row in rows if row["regret"] is not None]
    failed = len(rows) - len(regrets)
    median, worst = statistics.median(regrets), max(regrets)
    print(f"bucket regret over {len(rows)} lengths: median {median:.2%}, worst {worst:.2%}"
          + (f"; the bucket's answer failed at {failed}" if failed else ""), file=sys.stderr)
    return failed > 0 or median > GOAL_MEDIAN or worst > GOAL_WORST


if __name__ == "__main__":
    sys.exit(main())
