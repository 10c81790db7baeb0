#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A floor includes only floors below it: reads every #include of the C sources."""
import ast
import os
import re
import tempfile

import tap
from rooms import ROOMS, ROOT

# Single headers across rooms. The plain types are below everything.
ALSO = {room: ["include/fa-tune/fa_types.h"] for room in ROOMS}
for door in ("src/cli", "src/daemon"):
    ALSO[door].append("src/report/report.h")  # a verb of the command line opens that door, and the service

ALSO["src/daemon"].append("src/cli/options.h")  # the service's options are read as a verb's

# Arrows that still run up: (file, header that it includes). This list only shrinks.
STILL_UP = set()

# Outside headers that only some places may include: pattern -> rooms or files.
OUTSIDE = [
    (re.compile(r"sqlite3"), ["db"]),
    (re.compile(r"uv\.h$|^uv/"), ["src/daemon"]),  # it aborts a process without descriptors
    (re.compile(r"^(cuda|cu(?!rl)[A-Z]|nvrtc|nvml|cuda_)", re.IGNORECASE), []),
    (re.compile(r"curl"), ["src/sources"]),
    (re.compile(r"libpq"), ["db"]),
    (re.compile(r"microhttpd"), ["src/daemon"]),
]
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
# Names of the CUDA driver, NVRTC and NVML as code: quoted symbol names and calls.
CUDA_NAME = re.compile(r"\b(?:cu(?:Init|Ctx|Module|Launch|Mem|Stream|Event|Func|Device|Driver|Tensor)"
                       r"[A-Z]?\w*|nvrtc[A-Z]\w+|nvml[A-Z]\w+)\b")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# A person reads these in sentences; they are no CUDA calls.
HARMLESS = {"nvrtcVersion"}


def sources(root):
    for room in ROOMS:
        for folder, _, names in sorted(os.walk(os.path.join(root, room))):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def")):
                    yield room, os.path.relpath(os.path.join(folder, name), root)


def room_of(path):
    """The room of a file; a room may have folders (tuner/ops/attn)."""
    folder = os.path.dirname(path)
    while folder and folder not in ROOMS:
        folder = os.path.dirname(folder)
    return folder or None


def resolve(root, room, file, name):
    """The included file below root, as the compiler would find it; None: not one of ours."""
    folders = [os.path.dirname(file), "tuner/ops", "tuner/ops/attn", "tuner/search"] + list(ROOMS)
    for folder in folders:
        path = os.path.normpath(os.path.join(folder, name))
        if os.path.isfile(os.path.join(root, path)):
            return path
    return None


def violations(root):
    found = []
    for room, file in sources(root):
        text = tap.read(os.path.join(root, file))
        for _, name in INCLUDE.findall(text):
            path = resolve(root, room, file, name)
            if path is None:
                for pattern, places in OUTSIDE:
                    if pattern.search(name) and room not in places and file not in places:
                        found.append("%s includes <%s>" % (file, name))
            elif room_of(path) is None:
                found.append("%s includes %s, which is in no room" % (file, path))
            elif room_of(path) != room and room_of(path) not in ROOMS[room] and \
                    path not in ALSO[room] and (file, path) not in STILL_UP:
                found.append("%s includes %s" % (file, path))
        if room not in ("src/gpu", "kernel_templates/attn_fwd"):
            code = COMMENT.sub(" ", text)
            found.extend("%s names %s" % (file, name) for name in sorted(set(CUDA_NAME.findall(code)) - HARMLESS))
    return found


def no_source_includes_a_room_above_its_own():
    tap.equal(violations(ROOT), [])


def every_room_was_read():
    rooms = {room for room, _ in sources(ROOT)}
    for room in set(ROOMS) - {"src/bundle"}:
        assert room in rooms, "no source of %s was found" % room


def planted(file, text):
    """What is found in a small tree that is clean but for one planted file."""
    with tempfile.TemporaryDirectory() as root:
        clean = {
            "src/base/error.h": "",
            "src/gpu/driver.h": '#include "../base/error.h"\n#include "fa_types.h"\n',
            "db/store.h": '#include "error.h"\n#include <sqlite3.h>\n',
            "tuner/space.h": '#include "driver.h"\n',
            "include/fa-tune/fa_tune.h": "",
            "include/fa-tune/fa_types.h": "",
            "src/worker/compile.h": '#include "driver.h"\n#include "fa_types.h"\n',
            "src/engine/engine.h": '#include "store.h"\n#include "space.h"\n',
            "src/cli/main.c": '#include "fa_tune.h"\n#include "error.h"\n/* cuInit */\n',
        }
        for name, content in {**clean, file: text}.items():
            path = os.path.join(root, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            tap.write(path, content)
        return violations(root)


def a_planted_violation_of_each_kind_is_found():
    tap.equal(planted("src/base/ok.c", '#include "error.h"\n'), [])
    for file, text, finding in [
        ("src/base/up.c", '#include "driver.h"\n', "src/base/up.c includes src/gpu/driver.h"),
        ("src/gpu/side.c", '#include "../../db/store.h"\n', "src/gpu/side.c includes db/store.h"),
        ("db/up.c", '  #  include "engine.h"\n', "db/up.c includes src/engine/engine.h"),
        ("db/public.c", '#include "fa_tune.h"\n', "db/public.c includes include/fa-tune/fa_tune.h"),
        ("src/worker/up.c", '#include "engine.h"\n', "src/worker/up.c includes src/engine/engine.h"),
        ("tuner/db.c", '#include "store.h"\n', "tuner/db.c includes db/store.h"),
        ("src/cli/in.c", '#include "engine.h"\n', "src/cli/in.c includes src/engine/engine.h"),
        ("src/cli/sql.c", "#include <sqlite3.h>\n", "src/cli/sql.c includes <sqlite3.h>"),
        ("tuner/sql.c", "#include <sqlite3.h>\n", "tuner/sql.c includes <sqlite3.h>"),
        ("src/engine/loop.c", "#include <uv.h>\n", "src/engine/loop.c includes <uv.h>"),
        ("tuner/loop.c", "#include <uv.h>\n", "tuner/loop.c includes <uv.h>"),
        ("src/gpu/toolkit.c", "#include <cuda.h>\n", "src/gpu/toolkit.c includes <cuda.h>"),
        ("src/engine/call.c", "int x = cuInit(0);\n", "src/engine/call.c names cuInit"),
        ("src/engine/rtc.c", 'f("nvrtcCompileProgram");\n',
         "src/engine/rtc.c names nvrtcCompileProgram"),
    ]:
        tap.equal(planted(file, text), [finding])


def names_that_programs_of_the_tests_take_of_each_other_exist():
    """tests/bench/*.py need PyTorch and a GPU, so no test imports them."""
    trees = {name[:-3]: ast.parse(tap.read(os.path.join(folder, name))) for folder in (os.path.join(ROOT, "tests"), os.path.join(ROOT, "tests", "bench"))
             for name in os.listdir(folder) if name.endswith(".py") and not name.startswith("test_")}
    has, missing, taken = {}, [], 0
    for module, tree in trees.items():
        plain = [node for top in tree.body if not isinstance(top, (ast.FunctionDef, ast.ClassDef)) for node in ast.walk(top)]
        has[module] = {top.name for top in tree.body if isinstance(top, (ast.FunctionDef, ast.ClassDef))} | \
            {node.id for node in plain if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)} | \
            {alias.asname or alias.name for node in plain if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names}
    for module, tree in trees.items():
        called = {alias.asname or alias.name: alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names if alias.name in has}
        uses = [(called[node.value.id], node.attr) for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in called]
        uses += [(node.module, alias.name) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module in has for alias in node.names]
        taken += len(uses)
        missing += ["%s takes %s of %s" % (module, name, other) for other, name in uses if name not in has[other] and name[:2] != "__"]
    assert taken > 100, taken
    tap.equal(missing, [])


def every_test_is_listed_in_meson_build():
    listed = tap.read(os.path.join(ROOT, "tests", "meson.build"))
    missing = [name for name in sorted(os.listdir(os.path.join(ROOT, "tests")))
               if re.fullmatch(r"test_\w+\.(c|py)", name)
               and "'%s'" % name.rsplit(".", 1)[0] not in listed]
    tap.equal(missing, [])


tap.main()
