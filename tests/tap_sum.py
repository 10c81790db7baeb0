#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up every case of a Meson test run.

usage: tap_sum.py testlog.json

Prints the cases that failed or were skipped, each with its reason, and "N passed, N failed,
N skipped" as its last line; exit status 1 when anything failed. A program that crashed, ran out of
time, told no plan or another number of cases than planned counts as one failed case of its own.
"""
import json
import re
import sys

CASE = re.compile(r"(not )?ok\b\s*(\d+)?\s*-?\s*([^#]*)(?:#\s*(SKIP|TODO)\b\s*(.*))?", re.IGNORECASE)
PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?", re.IGNORECASE)


def cases_of(run):
    """Yields (outcome, name, reason) of one test program."""
    notes, seen, failed, plan, bail = [], 0, 0, None, None
    program = run["name"].split(" / ")[-1]  # Meson puts the project and the suite in front
    for line in (run.get("stdout") or "").splitlines():
        case, planned = CASE.match(line), PLAN.match(line)
        if case:
            seen += 1
            name = "%s: %s" % (program, case.group(3).strip())
            if (case.group(4) or "").upper() == "SKIP":
                yield "skipped", name, case.group(5).strip()
            elif case.group(1):
                failed += 1
                yield "failed", name, "\n".join(notes)
            else:
                yield "passed", name, ""
            notes = []
        elif planned:
            plan = int(planned.group(1))
            if plan == 0:
                yield "skipped", program, planned.group(2) or "no cases"
        elif line.startswith("Bail out!"):
            bail = line
        elif line.startswith("#"):
            notes.append(line.lstrip("# "))
    code, result = run.get("returncode"), run.get("result")
    why = None
    if result == "TIMEOUT":
        why = "ran out of time after %.0f s" % run.get("duration", 0)
    elif bail is not None:
        why = bail
    elif code is not None and (code < 0 or code > 128):
        why = "ended by signal %d" % (-code if code < 0 else code - 128)
    elif plan is None:
        why = "told no plan, exit status %s" % code
    elif plan != seen:
        why = "planned %d cases and told %d" % (plan, seen)
    elif result not in ("OK", "SKIP", "EXPECTEDFAIL") and failed == 0:
        why = "%s, exit status %s" % (result, code)
    if why is not None:
        tail = (run.get("stderr") or "").strip().splitlines()[-12:]
        yield "failed", program, "\n".join([why] + notes + tail)


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    runs = 0
    try:
        with open(sys.argv[1], encoding="utf-8", errors="replace") as log:
            for line in log:
                run = json.loads(line)
                runs += 1
                for outcome, name, reason in cases_of(run):
                    counts[outcome] += 1
                    if outcome != "passed":
                        print("%s  %s" % ("FAIL" if outcome == "failed" else "skip", name), end="")
                        print("".join("\n      " + r for r in reason.splitlines())
                              if outcome == "failed" else "  (%s)" % reason)
    except (OSError, ValueError) as error:
        print("FAIL  the test log cannot be read: %s" % error)
        counts["failed"] += 1
    if runs == 0:
        print("FAIL  no test was run")
        counts["failed"] += 1
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return 1 if counts["failed"] else 0


sys.exit(main())
