# SPDX-License-Identifier: Apache-2.0
"""How much a user loses by trusting the model: over every problem of a store that was measured in
full, the measured time of the model's first choice, and of the best of its first 8, over the best;
and the middle of predicted over measured time. A line for each family, head dim and mask, then all.

    python3 tests/bench/model_regret.py ~/.cache/fa-tune/store.db
"""
import json
import sqlite3
import statistics
import sys


def problems(path):
    """{scope: (group, [(predicted, measured), …])}: the newest trial of each config."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    newest = db.execute(
        "SELECT scope_id, problem, config, predicted_us, median_us "
        "FROM trial JOIN scope ON scope.id = scope_id WHERE status = 'measured' AND trial.id IN "
        "(SELECT max(id) FROM trial GROUP BY scope_id, config_key)")
    table = {}
    for scope, problem, config, predicted, median in newest:
        problem = json.loads(problem)
        group = (json.loads(config)["family"], problem["head_dim"],
                 "plain" if problem["causal"] == "none" else "causal")
        table.setdefault(scope, (group, []))[1].append((predicted, median))
    return {scope: rows for scope, rows in table.items() if len(rows[1]) >= 20}


def main():
    groups = {}
    for group, rows in problems(sys.argv[1]).values():
        ranked = [measured for _, measured in sorted(rows)]
        best = min(ranked)
        regret = (ranked[0] / best - 1, min(ranked[:8]) / best - 1,
                  statistics.median(predicted / measured for predicted, measured in rows))
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
