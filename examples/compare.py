#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which winners became slower from one store to another, for a pipeline:

    fa-tune show --store old.db --json >old.json
    fa-tune show --store new.db --json >new.json
    python3 examples/compare.py old.json new.json [MARGIN]

Compares measured winners of the same problem on the same silicon. Exit status 1 when one is slower by more than MARGIN (5)
percent with confidence, from the high end of its interval in old.json to the low end in new.json, and when nothing could be
compared: a gate that compares nothing must not pass.
"""
import json
import sys

SILICON = ("sm", "sm_count", "smem_per_block", "smem_per_sm", "l2_bytes")


def measured(path):
    """(problem, silicon): (GPU, median, low, high) of the newest measured winner, in microseconds."""
    with open(path, encoding="utf-8") as file:
        winners = json.load(file)["winners"]
    found = {}
    for winner in sorted(winners, key=lambda winner: winner["answer"]["unix_time"]):
        answer, gpu = winner["answer"], winner["gpu"]
        if answer["origin"].startswith("measured"):
            key = json.dumps([winner["problem"], [gpu.get(name) for name in SILICON]], sort_keys=True)
            found[key] = (gpu["name"], answer["median_us"], answer["low_us"], answer["high_us"])
    return found


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    margin = float(sys.argv[3]) if len(sys.argv) == 4 else 5.0
    old, new = measured(sys.argv[1]), measured(sys.argv[2])
    both, slower = sorted(set(old) & set(new)), 0
    for key in both:
        (gpu, before, low, high), (_, after, new_low, new_high) = old[key], new[key]
        verdict = "slower" if new_low > high * (1 + margin / 100) else "faster" if new_high < low / (1 + margin / 100) else "same"
        slower += verdict == "slower"
        print("%-6s  %.3fx  %.1f us -> %.1f us  %s  %s" % (verdict, after / before, before, after, gpu, json.dumps(json.loads(key)[0])))
    print("%d slower by more than %g%% with confidence, %d compared, %d not comparable"
          % (slower, margin, len(both), len(set(old) ^ set(new))))
    sys.exit(slower > 0 or not both)


if __name__ == "__main__":
    main()
