#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums up every case of Meson test runs.

usage: tap_sum.py [--all intro-tests.json] testlog.json...

Prints the cases that failed or were skipped, each with its reason, and "N passed, N failed,
N skipped" as its last line; exit status 1 when anything failed. A program that crashed, ran out of
time, told no plan or another number of cases than planned counts as one failed case of its own.
With --all, so do a test of that build that no run had, and a case that was skipped for a sanitizer and passed
nowhere else; a case that did pass in another run is not counted as skipped.
"""
import argparse
import json
import re
import sys

CASE = re.compile(r"(not )?ok\b\s*(\d+)?\s*-?\s*([^#]*)(?:#\s*(SKIP|TODO)\b\s*(.*))?", re.IGNORECASE)
PLAN = re.compile(r"1\.\.(\d+)(?:\s*#\s*SKIP\b\s*(.*))?", re.IGNORECASE)


def program_of(run):
    return run["name"].split(" / ")[-1]  # Meson puts the project and the suites in front


def cases_of(run):
    """Yields (outcome, name, reason) of one test program."""
    notes, seen, failed, plan, bail = [], 0, 0, None, None
    program = program_of(run)
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


def without_gaps(cases, programs, known):
    """The cases of several runs of one tree, and one more failed case for each test that none of them had."""
    passed = {name for outcome, name, _ in cases if outcome == "passed"}
    for outcome, name, reason in cases:
        if outcome != "skipped":
            yield outcome, name, reason
        elif name not in passed:
            yield ("failed", name, "run without a sanitizer nowhere: " + reason) if "sanitizer" in reason else (outcome, name, reason)
    for name in sorted(known - programs):
        yield "failed", name, "it was in none of these runs"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all")
    parser.add_argument("logs", nargs="+")
    words = parser.parse_args()
    cases, programs = [], set()
    for path in words.logs:
        try:
            with open(path, encoding="utf-8", errors="replace") as log:
                runs = [json.loads(line) for line in log]
        except (OSError, ValueError) as error:
            cases.append(("failed", path, "the test log cannot be read: %s" % error))
            continue
        if not runs:
            cases.append(("failed", path, "no test was run"))
        programs |= {program_of(run) for run in runs}
        cases += [case for run in runs for case in cases_of(run)]
    if words.all is not None:
        try:
            with open(words.all, encoding="utf-8") as file:
                known = {test["name"] for test in json.load(file)}
        except (OSError, ValueError) as error:
            known = {"the list of tests cannot be read: %s" % error}
        cases = list(without_gaps(cases, programs, known))
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for outcome, name, reason in cases:
        counts[outcome] += 1
        if outcome == "failed":
            print("FAIL  %s" % name + "".join("\n      " + line for line in reason.splitlines()))
        elif outcome == "skipped":
            print("skip  %s  (%s)" % (name, reason))
    print("%(passed)d passed, %(failed)d failed, %(skipped)d skipped" % counts)
    return 1 if counts["failed"] else 0


sys.exit(main())
