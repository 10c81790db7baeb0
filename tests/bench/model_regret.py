# SPDX-License-Identifier: Apache-2.0
"""How much a user loses by trusting the model: over every problem of a store that was measured in
full, the time of the model's first choice, and of the best of its first 8, over the winner's; and the
middle of predicted over measured time. A line for each family, head dim and mask, then all.

A power-limited card runs a race, which comes last, at a lower clock than the probes before it, so like
is compared with like: what was raced by its race, anything else by its probe over the winner's probe.

    python3 tests/bench/model_regret.py ~/.cache/fa-tune/store.db
"""
import json
import sqlite3
import statistics
import sys


def problems(path):
    """{scope: (group, [(predicted, measured, time over the winner's), …])}"""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    rows = db.execute("SELECT scope_id, problem, config, config_key, predicted_us, median_us, raced "
                      "FROM trial JOIN scope ON scope.id = scope_id WHERE status = 'measured' ORDER BY trial.id")
    groups, table = {}, {}
    for scope, problem, config, key, predicted, median, raced in rows:
        problem = json.loads(problem)
        groups[scope] = (json.loads(config)["family"], problem["head_dim"],
                         "plain" if problem["causal"] == "none" else "causal")
        of_one = table.setdefault(scope, {}).setdefault(key, {"predicted": predicted})
        of_one["race" if raced else "probe"] = median
    return {scope: (groups[scope], list(compare(configs))) for scope, configs in table.items()
            if len(configs) >= 20 and any("race" in one for one in configs.values())}


def compare(configs):
    winner = min((one for one in configs.values() if "race" in one), key=lambda one: one["race"])
    for one in configs.values():
        if "race" in one:
            yield one["predicted"], one["race"], one["race"] / winner["race"]
        elif "probe" in winner:
            yield one["predicted"], one["probe"], one["probe"] / winner["probe"]


def main():
    groups = {}
    for group, rows in problems(sys.argv[1]).values():
        ranked = [over for _, _, over in sorted(rows)]
        regret = (ranked[0] - 1, min(ranked[:8]) - 1,
                  statistics.median(predicted / measured for predicted, measured, _ in rows))
        for key in (group, ("all",)):
            groups.setdefault(key, []).append(regret)
    if not groups:
        raise SystemExit("no problem in this store was measured in full")
    for key in sorted(groups, key=lambda key: (key == ("all",), key)):
        first, raced, ratio = zip(*groups[key])
        print(f"{' '.join(map(str, key))}: model regret over {len(first)} problems: first choice "
              f"median {statistics.median(first):.1%} worst {max(first):.1%}; first 8 raced median "
              f"{statistics.median(raced):.1%} worst {max(raced):.1%}; predicted over measured "
              f"{min(ratio):.2f} to {max(ratio):.2f}")


if __name__ == "__main__":
    main()
