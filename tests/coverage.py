#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README's table of what is covered, docs/coverage.md's by kernel family, and the models of docs/serving.md, made from
operation.json and the families' manifests.

Each family's "supports" is asked, field by field, which values it takes while the other fields stay as
they are in problems that it serves and that differ least from the default one; so a new family is a new column
and a new field a new row. README's columns are GPUs, for which the families that run there answer together.

    python3 tests/coverage.py             prints the tables
    python3 tests/coverage.py --write     puts them into README.md, docs/coverage.md and docs/serving.md
"""
import glob
import itertools
import json
import os
import re
import sys
import textwrap

import tap

SOURCE = os.environ.get("FA_TEST_SOURCE", os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LARGEST = 2 ** 31 - 1
BEGIN, END = "<!-- made by tests/coverage.py -->\n", "<!-- end of what tests/coverage.py made -->\n"
LATENT = {"dtype": 1, "head_dim": 576, "head_dim_v": 512, "v_in_k": 1}  # fields that fp8_ds_mla needs together
E4M3 = {"kv_dtype": 1, "q_dtype": 1}
CHIPS = [(75, "Turing"), (80, "Ampere"), (87, "Ampere"), (89, "Ada"), (90, "Hopper"), (100, "Blackwell")]


def values_of(field):
    """Values to ask about, in order."""
    if field["kind"] == "choice":
        return list(range(len(field["choices"])))
    if field["kind"] == "boolean":
        return [0, 1]
    low, high, step = field.get("min", 0), field.get("max", LARGEST), field.get("multiple", 1)
    doubled = [step << i for i in range(31) if step << i <= high]
    return sorted({low, high, *[value for value in doubled if value >= low]})


class Column:
    """Whatever takes values of fields: untaken names the fields of which it takes the default alone."""

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
            return "yes" if field.get("feature") and taken == values and len(values) > 2 else ", ".join(field["choices"][value] for value in taken)
        if field.get("divides"):
            return "any divisor" if len(taken) > 1 else "as many"
        if not taken:
            return ""
        below = [value for value in values if value < taken[0]]
        above = [value for value in values if value > taken[-1]]
        low = self.edge(field, taken[0], below[-1]) if below else taken[0]
        high = self.edge(field, taken[-1], above[0]) if above else taken[-1]
        if low == high:
            return str(low)
        step = field.get("multiple", 1)
        least = min(value for value in taken if value > 0)
        if least > step and not any(self.takes(field, least * times + by) for times in (1, 2) for by in (-step, step)):
            step = least
        if high >= 1 << 20:  # what no card holds
            return "any" if low <= 1 else "{:,} and more".format(low)
        return "{:,} to {:,}{}".format(low, high, "" if step == 1 else " by %d" % step)


class Family(Column):
    """A family on the GPUs of one compute capability."""

    def __init__(self, fields, manifest, sm):
        self.fields, self.name, self.sm = fields, manifest["name"], sm
        self.untaken = [field["name"] for field in fields
                        if field.get("feature") and field["name"] not in manifest.get("takes", [])]
        supports = " and ".join(["(%s)" % rule["require"] for rule in manifest.get("supports", [])] or ["1"])
        lets = manifest.get("defines", {})
        for _ in lets:  # a let may name others
            supports = re.sub(r"\b(%s)\b" % "|".join(lets), lambda m: "(%s)" % lets[m[0]], supports)
        self.supports = compile(re.sub(r"(?<!/)/(?!/)", "//", supports), self.name, "eval")
        self.macros = [(field["macro"], field["name"], field.get("shown_as")) for field in fields if "macro" in field]
        self.divides = [(field["name"], field["divides"]) for field in fields if "divides" in field]
        self.default = self.default_problem()
        self.bases = self.find_bases()
        self.bases += [{**base, field["name"]: value} for base in self.bases[:1] for field in fields
                       if field["kind"] != "integer" or "multiple" in field for value in values_of(field)]
        self.bases += [{**base, **more} for more in ({"seq_k": 1 << 16}, {"batch": 64}) for base in self.bases if more.keys() <= base.keys()]
        self.bases += self.latent_bases()

    def serves(self, values):
        """Whether a problem of these values is one that the operation and the family take."""
        if any(values[name] != self.default[name] for name in self.untaken):
            return False
        if any(values[name] > 0 and values[whole] % values[name] != 0 for name, whole in self.divides):
            return False
        names = {"SM": self.sm}
        for macro, name, how in self.macros:
            value = values[name]
            names[macro] = int(value != 0) if how == "nonzero" else int(value == 0) if how == "not" else value
        return eval(self.supports, names)

    def default_problem(self):
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
        """Problems that the family serves: the default one, or those that differ in a field or two, of fp8 in two more."""
        changes = [(field["name"], value) for field in self.fields for value in values_of(field)]
        for count, start in itertools.product(range(3), (self.default, {**self.default, **E4M3})):
            changed = ({**start, **dict(change)} for change in itertools.combinations(changes, count))
            bases = [values for values in changed if self.serves(values)]
            if bases:
                return bases
        return self.latent_bases() or sys.exit("%s serves no problem on sm_%d that differs in at most two fields from the default one" % (self.name, self.sm))

    def latent_bases(self):
        return [base for base in ({**self.default, **LATENT, "kv_dtype": kind} for kind in (0, 2)) if base.keys() == self.default.keys() and self.serves(base)]

    def takes(self, field, value):
        name = field["name"]
        follow = [other["name"] for other in self.fields if other.get("follows") == name]
        return any(self.serves({**base, name: value, **{other: value for other in follow if base[other] == base[name]}}) for base in self.bases)


class Chip(Column):
    """The families that run on GPUs of one compute capability, together."""

    def __init__(self, families):
        self.families = families
        self.untaken = set.intersection(*(set(family.untaken) for family in families))

    def takes(self, field, value):
        return any(field["name"] not in family.untaken and family.takes(field, value) for family in self.families)


def chips(low, high):
    """GPUs of these compute capabilities, in words."""
    first, last = ([name for number, name in CHIPS if number <= sm][-1] for sm in (low, high))
    names = first if first == last else "%s to %s" % (first, last)
    numbers = "sm_%d" % low if low == high else "sm_%d to sm_%d" % (low, high)
    return "%s (%s)" % (names, numbers)


def told_fields(operation):
    """The fields that have an option, each with its name: their own, or else the one that sets them."""
    for field in operation["fields"]:
        sets = [one["option"] for one in operation.get("shorthands", []) if one.get("set", {}).get(field["name"]) == "true"]
        name = field.get("option") or (sets or [field["name"]] if field.get("feature") and (sets or "needs" not in field) else [None])[0]
        if name:
            yield {**field, "option": name}


def read_operation(folder):
    """The operation, its fields that a table tells, and its families' manifests."""
    operation = json.loads(tap.read(os.path.join(folder, "operation.json")))
    for size in operation["sizes"].values():
        if size.get("default") == "":   # a text, which is there or not
            size["default"] = False
    operation["fields"] = [{"name": name, "kind": "choice" if "choices" in size else "boolean" if size.get("default") is False else "integer",
                            **size} for name, size in operation["sizes"].items()]
    manifests = []
    for path in sorted(glob.glob(os.path.join(folder, "*.json"))):
        if os.path.basename(path) != "operation.json":
            manifests.append({"name": os.path.basename(path)[:-len(".json")], **json.loads(tap.read(path))})
    return operation, list(told_fields(operation)), manifests


def rows_of(fields, columns):
    """Fields of which the columns take the same values share a row."""
    rows = {}
    for field in fields:
        cells = tuple(column.cell(field) for column in columns)
        rows.setdefault(cells, []).append("`%s`" % field["option"])
    return ((", ".join(names), cells) for cells, names in rows.items())


def table(operation, fields, heads, columns):
    """The lines of an operation's table: rows in which the columns differ, and a sentence that has what they take alike."""
    yield "| %s | %s |" % (operation["title"], " | ".join(heads))
    yield "|---" * (len(heads) + 1) + "|"
    rows = list(rows_of(fields, columns))
    alike = [(names, cells[0]) for names, cells in rows if len(set(cells)) == 1]
    yield from ("| %s | %s |" % (names, " | ".join(cells)) for names, cells in rows if len(set(cells)) > 1)
    if alike:
        barred = {bars: [one["option"] for one in fields if one.get("bars") == bars] for bars in
                  (field["bars"] for field in fields if "bars" in field)}
        yield "\n" + textwrap.fill("On all of these: %s.%s" % ("; ".join("%s %s" % row for row in alike), "".join(
            " `--%s` goes without `%s`." % (bars.replace("=", " "), "` and `".join(names)) for bars, names in barred.items())), 200, break_on_hyphens=False)


def by_family(folder):
    """The lines of one operation's table with a column for each family."""
    operation, fields, manifests = read_operation(folder)
    families = [Family(operation["fields"], manifest, manifest["sm"]["min"]) for manifest in manifests]
    kind = os.path.basename(folder)
    names = [family.name.removeprefix(kind + "_") for family in families]   # a line has at most 200 characters
    lines = list(table({**operation, "title": "%s: %s_…" % (operation["title"], kind)}, fields, names, families))
    lines.insert(2, "| GPUs | %s |" % " | ".join(chips(manifest["sm"]["min"], manifest["sm"]["max"]).split("(")[1][:-1] for manifest in manifests))
    return lines


def by_gpu(folder):
    """The same with a column for GPUs on which the families take the same together."""
    operation, fields, manifests = read_operation(folder)
    if not operation.get("default"):   # README is about that one; docs/coverage.md has all
        return
    columns = []  # lowest and highest capability, Chip, what it takes
    for number, _ in CHIPS:
        here = [manifest for manifest in manifests if manifest["sm"]["min"] <= number <= manifest["sm"]["max"]]
        if not here:
            continue
        high = max(manifest["sm"]["max"] for manifest in here) if number == CHIPS[-1][0] else number
        chip = Chip([Family(operation["fields"], manifest, number) for manifest in here])
        cells = [chip.cell(field) for field in fields]
        if columns and columns[-1][3] == cells:
            columns[-1] = (columns[-1][0], high, chip, cells)
        else:
            columns.append((number, high, chip, cells))
    yield from table(operation, fields, [chips(low, high) for low, high, _, _ in columns], [chip for _, _, chip, _ in columns])


def layer(fields):
    """What tells a kind of layer from plain ones, in words."""
    words = []
    if fields.get("window") == "true":
        words.append("window of {:,}".format(int(fields["window_left"]) + 1))
    if "head_dim_v" in fields:
        words.append("V of " + fields["head_dim_v"])
    words += [word for word in ("softcap", "sinks") if fields.get(word) == "true"]
    if "seq_q" in fields:
        words.append("{:,} of {:,} keys".format(int(fields["seq_q"]), int(fields["seq_k"])))
    return ", ".join(words) or "plain"


def models(folder):
    """The lines of a list of the models that fa_tune.model knows, by their kinds of layers."""
    known, rows = {}, {}
    if folder.endswith("attn_fwd"):
        known = json.loads(tap.read(os.path.join(SOURCE, "python", "fa_tune", "models.json")))["models"]
    for name, layers in known.items():
        layers = known[layers] if isinstance(layers, str) else layers  # those of another model
        if isinstance(layers, dict):
            rows.setdefault("not covered", {}).setdefault(layers["not_covered"], []).append("`%s`" % name)
            continue
        heads = ["%s/%s" % (one["heads_q"], one["heads_kv"]) for one in layers]
        shape = "%s × %s" % (" and ".join(dict.fromkeys(heads)), " and ".join(dict.fromkeys(one["head_dim"] for one in layers)))
        rows.setdefault("; ".join(map(layer, layers)), {}).setdefault(shape, []).append("`%s`" % name)
    for kind, shapes in rows.items():
        listed = "; ".join("%s: %s" % (shape, ", ".join(names)) for shape, names in shapes.items())
        yield textwrap.fill("- **%s**. %s" % (kind, listed), 200, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


PAGES = {"README.md": by_gpu, "docs/coverage.md": by_family, "docs/serving.md": models}


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
        tap.write(path, replaced(page, tap.read(path)))


if __name__ == "__main__":
    main()
