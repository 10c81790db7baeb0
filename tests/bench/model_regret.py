# SPDX-License-Identifier: Apache-2.0
"""How much a user loses by trusting the model: over every problem of a store that was measured in
full, the measured time of the model's first choice, and of the best of its first 8, over the best.

    python3 tests/bench/model_regret.py ~/.cache/fa-tune/store.db
"""
import sqlite3
import statistics
import sys


def problems(path):
    """{scope: [(predicted, measured), …]}: the newest trial of each config."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    newest = db.execute(
        "SELECT scope_id, predicted_us, median_us FROM trial WHERE status = 'measured' AND id IN "
        "(SELECT max(id) FROM trial GROUP BY scope_id, config_key)")
    table = {}
    for scope, predicted, median in newest:
        table.setdefault(scope, []).append((predicted, median))
    return {scope: rows for scope, rows in table.items() if len(rows) >= 20}


def main():
    first, raced = [], []
    for rows in problems(sys.argv[1]).values():
        ranked = [measured for _, measured in sorted(rows)]
        best = min(ranked)
        first.append(ranked[0] / best - 1)
        raced.append(min(ranked[:8]) / best - 1)
    if not first:
        raise SystemExit("no problem in this store was measured in full")
    print(f"model regret over {len(first)} problems: first choice median "
          f"{statistics.median(first):.1%} worst {max(first):.1%}; first 8 raced median "
          f"{statistics.median(raced):.1%} worst {max(raced):.1%}")


if __name__ == "__main__":
    main()
