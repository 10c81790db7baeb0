#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The structures that Python programs of ours mirror lie in memory as the C compiler lays them out."""
import ctypes
import os
import subprocess
import sys
import tempfile

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
OPERATION = os.path.join(SOURCE, "kernel_templates", "attn_fwd")
sys.path[:0] = [os.path.join(SOURCE, "tests", "bench"), os.path.join(SOURCE, "examples")]
import fatune  # noqa: E402
import serve_and_launch  # noqa: E402

MIRRORS = [
    (fatune.Diag, "fa_diag"), (fatune.Problem, "fa_problem"), (fatune.Gpu, "fa_gpu"),
    (fatune.Tunable, "fa_tunable"), (fatune.Config, "fa_config"), (fatune.Trial, "fa_trial"),
    (fatune.Answer, "fa_answer"), (fatune.Args, "fa_attn_args"),
    (serve_and_launch.Params, "struct fa_attn_params"),
]


def rows_of(mirror, name):
    """(what, C expression, what Python has) of the whole and of each of its fields."""
    yield "size of " + name, "sizeof(%s)" % name, ctypes.sizeof(mirror)
    for field, *_ in mirror._fields_:
        place = getattr(mirror, field)
        yield "offset of %s in %s" % (field, name), "offsetof(%s, %s)" % (name, field), place.offset
        yield ("size of %s in %s" % (field, name), "sizeof(((%s *)0)->%s)" % (name, field),
               place.size)


def every_mirrored_structure_has_the_compilers_offsets():
    rows = [row for mirror, name in MIRRORS for row in rows_of(mirror, name)]
    program = '#include "fa_tune.h"\n#include "%s"\n#include <stdio.h>\nint main(void)\n{\n%s}\n' % (
        next(name for name in sorted(os.listdir(OPERATION)) if name.endswith("params.h")),
        "".join('    printf("%%zu\\n", %s);\n' % expression for _, expression, _ in rows))
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "layout")
        subprocess.run(
            [os.environ.get("CC", "cc"), "-x", "c", "-", "-o", binary,
             "-I", os.path.join(SOURCE, "include", "fa-tune"),
             "-I", OPERATION],
            input=program, text=True, check=True)
        told = subprocess.run([binary], capture_output=True, text=True, check=True).stdout.split()
    tap.equal([(what, mirrored) for what, _, mirrored in rows],
              [(what, int(number)) for (what, _, _), number in zip(rows, told)])


tap.main()
