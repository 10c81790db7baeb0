#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The configs of a tuned problem in the T4 format, which other auto-tuners read:

    fa-tune explain --gpu L4 --seq 512 --json | python3 examples/t4.py >trials.json
"""
import json
import sys

INVALIDITY = {"measured": "correct", "constraint": "constraints", "budget": "constraints", "registers": "constraints",
              "does-not-pay": "constraints", "compile-failed": "compile", "compile-timeout": "compile", "spills": "compile",
              "cubin": "compile", "wrong": "correctness", "other-bits": "correctness", "timeout": "timeout",
              "load-failed": "runtime", "launch-failed": "runtime", "crashed": "runtime", "out-of-memory": "runtime"}  # a config that was not tried to its end has none


def result(trial):
    correct = trial["status"] == "measured"
    ms = [trial["median_us"] / 1000] if correct else []
    return {"configuration": {"family": trial["config"]["family"], **trial["config"]["tunables"]},
            "times": {"compilation": trial.get("compile_ms") or 0, "benchmark": sum(ms), "framework": 0, "search_algorithm": 0,
                      "validation": 0, "runtimes": ms},
            "invalidity": INVALIDITY[trial["status"]], "correctness": int(correct),
            "measurements": [{"name": "time", "value": value, "unit": "ms"} for value in ms], "objectives": ["time"]}


def main():
    told = json.load(sys.stdin)
    results = [result(trial) for trial in told["configs"] if trial["status"] in INVALIDITY]
    if not any(one["correctness"] for one in results):
        sys.exit("t4.py: no config of this problem was measured")
    kernel = " ".join("%s=%s" % item for item in told["problem"].items())
    json.dump({"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds", "kernel": kernel, "device": told["gpu"]["name"]},
               "results": results}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()
