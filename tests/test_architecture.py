#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The walks of docs/architecture.md name functions that are there, and that lead to one another."""
import os
import re

import tap
from rooms import ROOT

STEP = re.compile(r"^(\d+)\. `(\w+)` \(`([\w./-]+)`\) ", re.MULTILINE)
LONGEST = 9


def read(path):
    return tap.read(os.path.join(ROOT, path))


def walks():
    """Of each walk its title and its steps: (number, function, file)."""
    chapter = read("docs/architecture.md").split("## Four requests, step by step\n")[1].split("\n## ")[0]
    for part in chapter.split("\n### ")[1:]:
        title, _, text = part.partition("\n")
        steps = [(int(number), name, path) for number, name, path in STEP.findall(text)]
        tap.equal(len(re.findall(r"^\d+\. ", text, re.MULTILINE)), len(steps))
        yield title, steps


def defines(path, name):
    """A definition, or an inline function of a header: its name at the end of a type, then its body."""
    return re.search(r"^[\w][\w \*]*[ \*]%s\([^;{]*\)\n\{" % name, read(path), re.MULTILINE) is not None


def four_walks_have_at_most_nine_steps():
    found = list(walks())
    tap.equal(len(found), 4)
    for title, steps in found:
        assert 2 <= len(steps) <= LONGEST, "%s: %d steps" % (title, len(steps))
        tap.equal([number for number, _, _ in steps], list(range(1, len(steps) + 1)))


def each_step_is_a_function_of_its_file():
    for title, steps in walks():
        for number, name, path in steps:
            assert defines(path, name), "%s, step %d: %s does not define %s" % (title, number, path, name)


def sources():
    for folder, _, names in os.walk(os.path.join(ROOT, "src")):
        for name in names:
            if name.endswith(".c"):
                yield os.path.relpath(os.path.join(folder, name), ROOT)


def each_step_is_reached_from_an_earlier_one():
    """The file of an earlier step names it, or calls the member that it is assigned to somewhere. Launching is the
    caller's own call."""
    members = {}
    for member, name in re.findall(r"(\w+) = (\w+);", "".join(map(read, sources()))):
        members.setdefault(name, set()).add(member)
    for title, steps in walks():
        for at, (number, name, _) in enumerate(steps[1:], 1):
            earlier = "".join({path: read(path) for _, _, path in steps[:at]}.values())
            use = re.compile(r"(?<!\w)%s\b(?!\([^;{]*\)\n\{)" % name)
            reached = use.search(earlier) or any("->%s(" % member in earlier for member in members.get(name, ()))
            assert reached or name == "fa_launch", "%s, step %d: nothing before it names %s" % (title, number, name)


tap.main()
