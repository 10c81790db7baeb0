#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's table of what is covered, and the models of docs/serving.md, made from operation.json and the families' manifests.

Each family's "supports" is asked, field by field, which values it takes while the other fields stay as
they are in problems that it serves and that differ least from the default one; so a new family is a new column
and a new field a new row.

    python3 tests/coverage.py             prints the tables
    python3 tests/coverage.py --write     puts them into README.md and docs/serving.md
"""
import glob
import itertools
import json
import os
import re
import sqlite3
import sys

SOURCE = os.environ.get("FA_TEST_SOURCE", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LARGEST = 2 ** 31 - 1
BEGIN, END = "<!-- made by tests/coverage.py -->\n", "<!-- end of what tests/coverage.py made -->\n"
CHIPS = [(75, "Turing"), (80, "Ampere"), (89, "Ada"), (90, "Hopper"), (100, "Blackwell")]


def values_of(field):
    """Values to ask about, in order."""
    if field["kind"] == "choice":
        return list(range(len(field["choices"])))
    if field["kind"] == "boolean":
        return [0, 1]
    low, high, step = field.get("min", 0), field.get("max", LARGEST), field.get("multiple", 1)
    doubled = [step << i for i in range(31) if step << i <= high]
    return sorted({low, high, *[value for value in doubled if value >= low]})


class Family:
    def __init__(self, fields, manifest, database):
        self.fields, self.name, self.database = fields, manifest["name"], database
        self.sm = manifest["sm"]
        self.untaken = [field["name"] for field in fields
                        if field.get("feature") and field["name"] not in manifest.get("takes", [])]
        self.supports = [rule["require"] for rule in manifest.get("supports", [])]
        lets = manifest.get("let", {})
        for _ in lets:  # a let may name others
            self.supports = [re.sub(r"\b(%s)\b" % "|".join(lets), lambda m: "(%s)" % lets[m[0]], rule)
                             for rule in self.supports]
        self.bases = self.find_bases()
        self.bases += [{**self.bases[0], field["name"]: value} for field in fields
                       if field["kind"] != "integer" for value in values_of(field)]

    def serves(self, values):
        """Whether a problem of these values is one that the operation and the family take."""
        default = self.default()
        if any(values[name] != default[name] for name in self.untaken):
            return False
        for field in self.fields:
            if "divides" in field and values[field["name"]] > 0 \
                    and values[field["divides"]] % values[field["name"]] != 0:
                return False
        names = {"SM": self.sm["min"]}
        for field in self.fields:
            value = values[field["name"]]
            how = field.get("macro_as")
            if "macro" in field:
                names[field["macro"]] = int(value != 0) if how == "nonzero" else int(value == 0) if how == "not" else value
        for rule in self.supports:
            asked = re.sub(r"\b[A-Z][A-Z0-9_]*\b", lambda m: str(names.get(m[0], m[0])), rule)
            if not self.database.execute("SELECT " + asked).fetchone()[0]:
                return False
        return True

    def default(self):
        values = {}
        for field in self.fields:
            preset = field.get("default", 0 if field["kind"] != "integer" else max(field.get("min", 0), 1))
            if field["kind"] == "choice" and isinstance(preset, str):
                preset = field["choices"].index(preset)
            values[field["name"]] = 1 if field.get("nonempty") else preset  # small: limits of products tell less
        for field in self.fields:
            if "follows" in field:
                values[field["name"]] = values[field["follows"]]
        return values

    def find_bases(self):
        """Problems that the family serves: the default one, or those that differ in a field or two."""
        default = self.default()
        changes = [(field["name"], value) for field in self.fields for value in values_of(field)]
        for count in range(3):
            changed = ({**default, **dict(change)} for change in itertools.combinations(changes, count))
            bases = [values for values in changed if self.serves(values)]
            if bases:
                return bases
        sys.exit("%s serves no problem that differs in at most two fields from the default one" % self.name)

    def takes(self, field, value):
        changes = {field["name"]: value}
        for other in self.fields:
            if other.get("follows") == field["name"]:
                changes[other["name"]] = value
        return any(self.serves({**base, **changes}) for base in self.bases)

    def edge(self, field, good, bad):
        """The last value that is taken between one that is and one that is not."""
        step = field.get("multiple", 1)
        while abs(bad - good) > step:
            middle = (good + bad) // 2 // step * step
            middle = middle if middle not in (good, bad) else good + (step if bad > good else -step)
            good, bad = (middle, bad) if self.takes(field, middle) else (good, middle)
        return good

    def cell(self, field):
        values = values_of(field)
        if field["name"] in self.untaken:
            return "no"
        taken = [value for value in values if self.takes(field, value)]
        if field["kind"] == "boolean":
            return "yes" if taken == [0, 1] else "always" if taken == [1] else "no"
        if field["kind"] == "choice":
            return ", ".join(field["choices"][value] for value in taken)
        if field.get("divides"):
            return "any divisor" if len(taken) > 1 else "as many"
        if len(taken) < 2:
            return ", ".join(map(str, taken))
        below = [value for value in values if value < taken[0]]
        above = [value for value in values if value > taken[-1]]
        low = self.edge(field, taken[0], below[-1]) if below else taken[0]
        high = self.edge(field, taken[-1], above[0]) if above else taken[-1]
        step = field.get("multiple", 1)
        least = min(value for value in taken if value > 0)
        if least > step and not any(self.takes(field, least * times + by) for times in (1, 2) for by in (-step, step)):
            step = least
        if high >= 1 << 20:  # what no card holds
            return "any" if low <= 1 else "{:,} and more".format(low)
        return "{:,} to {:,}{}".format(low, high, "" if step == 1 else " in steps of %d" % step)


def chips(sm):
    low = [name for number, name in CHIPS if number <= sm["min"]][-1]
    high = [name for number, name in CHIPS if number <= sm["max"]][-1]
    names = low if low == high else "%s to %s" % (low, high)
    numbers = "sm_%d" % sm["min"] if sm["min"] == sm["max"] else "sm_%d to sm_%d" % (sm["min"], sm["max"])
    return "%s (%s)" % (names, numbers)


def table(folder):
    """The lines of one operation's table."""
    with open(os.path.join(folder, "operation.json"), encoding="utf-8") as file:
        operation = json.load(file)
    fields = [field for field in operation["fields"] if field.get("option") or field.get("feature")]
    families, database = [], sqlite3.connect(":memory:")
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        if os.path.basename(path) != "operation.json":
            with open(path, encoding="utf-8") as file:
                families.append(Family(operation["fields"], json.load(file), database))
    yield "| %s | %s |" % (operation["title"], " | ".join("`%s`" % family.name for family in families))
    yield "|---" * (len(families) + 1) + "|"
    yield "| GPUs | %s |" % " | ".join(chips(family.sm) for family in families)
    rows = {}  # fields of which every family takes the same values share a row
    for field in fields:
        cells = tuple(family.cell(field) for family in families)
        rows.setdefault(cells, []).append("`%s`" % field.get("option", field["name"]))
    for cells, names in rows.items():
        yield "| %s | %s |" % (", ".join(names), " | ".join(cells))


def layer(fields):
    """What tells a kind of layer from plain ones, in words."""
    words = []
    if fields.get("window") == "true":
        words.append("window of {:,}".format(int(fields["window_left"]) + 1))
    if "head_dim_v" in fields:
        words.append("V of " + fields["head_dim_v"])
    return ", ".join(words + ["sinks"] * (fields.get("sinks") == "true")) or "plain"


def models(folder):
    """The lines of a table of the models that an operation knows; those of the same layers share a row."""
    with open(os.path.join(folder, "operation.json"), encoding="utf-8") as file:
        known = json.load(file).get("models", {})
    rows = {}
    for name, layers in known.items():
        heads = ["%s, %s" % (one["heads_q"], one["heads_kv"]) for one in layers]
        cells = ("; ".join(dict.fromkeys(heads)), "; ".join(dict.fromkeys(one["head_dim"] for one in layers)), "; ".join(map(layer, layers)))
        rows.setdefault(cells, []).append("`%s`" % name)
    if rows:
        yield "| `--model` | heads, of keys | head dim | layers |"
        yield "|---|---|---|---|"
    for cells, names in rows.items():
        yield "| %s | %s |" % (", ".join(names), " | ".join(cells))


PAGES = {"README.md": table, "docs/serving.md": models}


def whole(lines):
    folders = sorted(map(os.path.dirname, glob.glob(os.path.join(SOURCE, "kernel_templates/*/operation.json"))))
    return "\n\n".join(filter(None, ("\n".join(lines(folder)) for folder in folders))) + "\n"


def replaced(page, text):
    head, rest = text.split(BEGIN)
    return head + BEGIN + whole(PAGES[page]) + END + rest.split(END)[1]


def main():
    for page, lines in PAGES.items():
        if sys.argv[1:] != ["--write"]:
            sys.stdout.write(whole(lines))
            continue
        path = os.path.join(SOURCE, page)
        with open(path, encoding="utf-8") as file:
            text = replaced(page, file.read())
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


if __name__ == "__main__":
    main()
