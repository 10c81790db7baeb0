# SPDX-License-Identifier: Apache-2.0
"""A recorded ncu: a small program that starts the worker as ncu does and replays what the real one wrote (tests/data)."""
import os
import shlex

from place import SOURCE

RECORDED = os.path.join(SOURCE, "tests", "data", "ncu-attn_fwd.csv")
# Reads its arguments up to the program that it is to start, which is then "$@".
ARGUMENTS = """#!/bin/sh
printf '%%s\\n' "$*" >>%s
while [ "$1" != --metrics ]; do
    [ "$1" != --log-file ] || log=$2
    shift
done
metrics=$2
shift 2
"""
WORKS = '"$@"; cat %s >"$log"\n' % shlex.quote(RECORDED)


def install(folder, then=WORKS):
    """Writes the program ncu, which runs these lines of sh and adds its arguments to the file "calls" beside it."""
    path = os.path.join(folder, "ncu")
    with open(path, "w", encoding="utf-8") as file:
        file.write(ARGUMENTS % shlex.quote(os.path.join(folder, "calls")) + then)
    os.chmod(path, 0o755)


def replay(folder, rows=1, **changed):
    """Lines of sh that replay so many launches, with the values changed whose metric's name has the keyword in it."""
    with open(RECORDED, encoding="utf-8") as file:
        lines = file.read().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    names = lines[begin].strip('"').split('","')
    row = lines[begin + 2].strip('"').split('","')
    made = []
    for number in range(rows):
        values = [str(number)] + row[1:]
        for part, value in changed.items():
            value = value[number] if isinstance(value, list) else value
            values = [str(value) if part in name else old for name, old in zip(names, values)]
        made.append('"%s"' % '","'.join(values))
    path = os.path.join(folder, "replay.csv")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines[:begin + 2] + made) + "\n")
    return '"$@"; cat %s >"$log"\n' % shlex.quote(path)
