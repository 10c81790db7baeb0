#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of one room need each other in no circle, and rooms need only rooms below them: by the symbols
that each object file defines and needs, which no header can hide."""
import ast
import functools
import os
import re
import shutil
import subprocess

import tap
from rooms import ROOMS, ROOT

BUILD = os.environ.get("FA_TEST_BUILD", os.path.join(ROOT, "build"))
# Where the Python extension's objects are, in builds that have it.
EXTENSION = [folder for folder in ["python/fa_tune/_core.abi3.so.p"]
             if os.path.exists(os.path.join(BUILD, folder))]
# A door may call what is public, and the command line and the service open the report's door.
ALSO = {("src/cli", "src/report"), ("src/daemon", "src/report"), ("src/daemon", "src/cli")}

# Rooms whose files still go in a circle, and arrows that still run up. Both lists only shrink.
STILL_CIRCULAR = set()
STILL_UP = set()


def source_of():
    """Object file name -> (room, source)."""
    found = {}
    for room in ROOMS:
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            for name in names:
                if name.endswith(".c"):
                    path = os.path.relpath(os.path.join(folder, name), ROOT)
                    found[path.replace("/", "_") + ".o"] = (room, path)
    return found


def objects():
    """(room, source) -> its newest object file, of the libraries and programs."""
    sources = source_of()
    found = {}
    folders = [folder for folder in sorted(os.listdir(BUILD))
               if re.fullmatch(r"(lib)?fa[-_]\w+.*\.p", folder)] + EXTENSION
    for folder in folders:
        for name in os.listdir(os.path.join(BUILD, folder)):
            path = os.path.join(BUILD, folder, name)
            # An object of the extension is named as its source lies seen from python/fa_tune.
            source = sources.get(re.sub(r"^\.\._", "python_", name))
            if source and (source not in found or
                           os.path.getmtime(path) > os.path.getmtime(found[source])):
                found[source] = path
    return found


def symbols(paths):
    """Object file -> what it defines for others, and what it needs of them."""
    found, defined, needed = {}, set(), set()
    for line in subprocess.run(["nm", "-P", "-g", *paths], capture_output=True, text=True,
                               check=True).stdout.splitlines():
        row = line.split()
        if len(row) == 1 and line.endswith(":"):
            defined, needed = found.setdefault(line[:-1], (set(), set()))
        elif len(row) > 1:
            (needed if row[1] == "U" else defined).add(row[0])
    return found


def graph(table):
    """{file: (room, defined, needed)} -> {(file, other file): symbols that tie them}."""
    owner = {name: file for file, (_, defined, _) in table.items() for name in defined}
    arrows = {}
    for file, (_, _, needed) in table.items():
        for name in needed:
            if owner.get(name, file) != file:
                arrows.setdefault((file, owner[name]), set()).add(name)
    return arrows


def circles(files, arrows):
    """Groups of files that all need each other, by Tarjan's algorithm without recursion."""
    after = {file: sorted(to for (of, to) in arrows if of == file and to in files)
             for file in files}
    index, low, stack, groups = {}, {}, [], []
    for start in sorted(files):
        if start in index:
            continue
        work = [(start, iter(after[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            file, rest = work[-1]
            for to in rest:
                if to not in index:
                    index[to] = low[to] = len(index)
                    stack.append(to)
                    work.append((to, iter(after[to])))
                    break
                if to in stack:
                    low[file] = min(low[file], index[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[file])
                if low[file] == index[file]:
                    group = stack[stack.index(file):]
                    del stack[stack.index(file):]
                    if len(group) > 1:
                        groups.append(sorted(group))
    return groups


def ties(group, arrows):
    return ["%s -> %s: %s" % (of, to, ", ".join(sorted(names)))
            for (of, to), names in sorted(arrows.items()) if of in group and to in group]


def find_circles(table, arrows):
    """Room -> the ties of its circles."""
    found = {}
    for room in sorted({room for room, _, _ in table.values()}):
        for group in circles({file for file in table if table[file][0] == room}, arrows):
            found.setdefault(room, []).extend(ties(set(group), arrows))
    return found


def find_arrows_up(table, arrows, public):
    """(room, room) -> the ties that run up."""
    found = {}
    for (of, to), names in sorted(arrows.items()):
        rooms = (table[of][0], table[to][0])
        if rooms[0] == rooms[1] or rooms[1] in ROOMS[rooms[0]] or rooms in ALSO:
            continue
        if "include/fa-tune" in ROOMS[rooms[0]] and "src/gpu" not in ROOMS[rooms[0]]:
            names = names - public  # a door
        if names:
            found.setdefault(rooms, []).append("%s -> %s: %s" % (of, to, ", ".join(sorted(names))))
    return found


@functools.lru_cache
def read():
    if shutil.which("nm") is None:
        raise tap.Skip("no nm")
    found = objects()
    known = symbols(sorted(found.values()))
    table = {source: (room, *known[path]) for (room, source), path in found.items()}
    return table, graph(table)


def public_symbols():
    names = set()
    folder = os.path.join(ROOT, "include", "fa-tune")
    for name in os.listdir(folder):
        names |= set(re.findall(r"^FA_API\b[^(;]*?\b(fa_\w+)\(", tap.read(os.path.join(folder, name)), re.MULTILINE))
    return names


def without(found, still, what):
    for known in sorted(still - set(found), key=str):
        print("# %s is clean: take it off the list of %s" % (known, what))
    return {key: ties for key, ties in found.items() if key not in still}


def files_of_a_room_go_in_no_circle():
    tap.equal(without(find_circles(*read()), STILL_CIRCULAR, "circles"), {})


def no_room_needs_a_room_above_it():
    table, arrows = read()
    tap.equal(without(find_arrows_up(table, arrows, public_symbols()), STILL_UP, "arrows"), {})


def every_source_has_been_read():
    table, _ = read()
    rooms = {room for room, _, _ in table.values()}
    wanted = {room for room in ROOMS if not room.startswith(("include", "kernel_templates"))}
    if not EXTENSION:
        wanted.remove("python/_core")
    tap.equal(sorted(wanted - rooms - {"src/bundle"}), [])
    assert len(table) > 90, "only %d objects were found in %s" % (len(table), BUILD)


def planted_circles_and_arrows_are_found():
    table = {
        "src/base/a.c": ("src/base", {"a"}, {"b", "malloc"}),
        "src/base/b.c": ("src/base", {"b"}, {"c"}),
        "src/base/c.c": ("src/base", {"c", "c2"}, {"a"}),
        "src/base/d.c": ("src/base", {"d"}, {"a"}),
        "db/e.c": ("db", {"e"}, {"c2", "g"}),
        "src/gpu/g.c": ("src/gpu", {"g"}, {"d"}),
        "src/engine/api.c": ("src/engine", {"fa_open", "inside"}, {"e"}),
        "src/cli/main.c": ("src/cli", {"main"}, {"fa_open", "inside"}),
    }
    arrows = graph(table)
    tap.equal(find_circles(table, arrows), {"src/base": [
        "src/base/a.c -> src/base/b.c: b", "src/base/b.c -> src/base/c.c: c",
        "src/base/c.c -> src/base/a.c: a"]})
    tap.equal(find_arrows_up(table, arrows, {"fa_open"}), {
        ("db", "src/gpu"): ["db/e.c -> src/gpu/g.c: g"],
        ("src/cli", "src/engine"): ["src/cli/main.c -> src/engine/api.c: inside"]})


def modules_of_the_python_package_go_in_no_circle():
    folder = os.path.join(ROOT, "python", "fa_tune")
    modules = {name[:-3] for name in os.listdir(folder) if name.endswith(".py") and name != "__init__.py"}
    arrows = {}  # imports of functions count too
    for module in modules:
        for node in ast.walk(ast.parse(tap.read(os.path.join(folder, module + ".py")))):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                for name in [node.module] if node.module else [alias.name for alias in node.names]:
                    if name in modules:
                        arrows.setdefault((module, name), set()).add("line %d" % node.lineno)
    assert len(arrows) > 20, arrows
    tap.equal([ties(group, arrows) for group in circles(modules, arrows)], [])


tap.main()
