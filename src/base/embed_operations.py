#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeds the operation.json of every folder of kernel_templates/ as a C text, without its white space.

usage: embed_operations.py FOLDER OUTPUT.c DEPFILE

Run by Meson at build time. The folder itself is a dependency, so that a new operation is noticed.
"""
import json
import os
import sys


def main():
    folder, output, depfile = sys.argv[1:4]
    files = [os.path.join(folder, name, "operation.json") for name in sorted(os.listdir(folder))]
    files = [file for file in files if os.path.isfile(file)]
    out = ["/* Made by embed_operations.py: do not edit. */", '#include "operation_builtin.h"', ""]
    table = []
    for i, path in enumerate(files):
        with open(path, encoding="utf-8") as file:
            text = json.dumps(json.load(file), separators=(",", ":"), ensure_ascii=True).encode()
        rows = "\n".join("    " + "".join("%d," % byte for byte in text[at:at + 24])
                         for at in range(0, len(text), 24))
        out.append("static const unsigned char text_%d[] = {\n%s\n    0};\n" % (i, rows))
        table.append('    {"%s", (const char *)text_%d, sizeof text_%d - 1},'
                     % (os.path.relpath(path, folder), i, i))
    out.append("const struct fa_operation_text fa_operations_builtin[] = {\n%s\n};" % "\n".join(table))
    out.append("const size_t fa_operations_builtin_count = %d;\n" % len(files))
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(out))
    with open(depfile, "w", encoding="utf-8") as file:
        file.write("%s: %s\n" % (output, " ".join(n.replace(" ", "\\ ") for n in [folder] + files)))


main()
