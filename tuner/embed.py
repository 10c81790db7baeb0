#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns every template file of a folder into one C file: a table of texts and their closure hash.

usage: embed.py FOLDER OUTPUT.c DEPFILE

Run by Meson at build time. The folder itself is a dependency, so that a new file is noticed. The
hash is what tuner/templates.c computes for a set of files: SHA-256 over name and text of each, in
order of their names, every part behind its length (8 bytes, little-endian).
"""
import hashlib
import os
import re
import sys

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\.(cu|cuh|h|json)\Z")


def byte_rows(data):
    data += b"\0"
    return "\n".join("    " + "".join("%d," % b for b in data[i:i + 24])
                     for i in range(0, len(data), 24))


def main():
    folder, output, depfile = sys.argv[1:4]
    names = sorted(n for n in os.listdir(folder) if NAME.match(n) and len(n) < 64)
    closure = hashlib.sha256()
    out = ["/* Made by embed.py from kernel_templates/: do not edit. */",
           '#include "templates_builtin.h"', ""]
    table = []
    for i, name in enumerate(names):
        with open(os.path.join(folder, name), "rb") as file:
            text = file.read()
        if b"\0" in text:
            sys.exit("%s holds a NUL byte" % name)
        for part in (name.encode(), text):
            closure.update(len(part).to_bytes(8, "little") + part)
        out.append("static const unsigned char file_%d[] = { /* %s */\n%s\n};\n"
                   % (i, name, byte_rows(text)))
        table.append('    {"%s", (const char *)file_%d, %d},' % (name, i, len(text)))
    out.append("const fa_template_file fa_templates_builtin[] = {\n%s\n    {NULL, NULL, 0},\n};"
               % "\n".join(table))
    out.append("const int fa_templates_builtin_count = %d;" % len(names))
    out.append('const char fa_templates_builtin_hash[] =\n    "%s";\n' % closure.hexdigest())
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(out))
    with open(depfile, "w", encoding="utf-8") as file:
        needed = [folder] + [os.path.join(folder, n) for n in names]
        file.write("%s: %s\n" % (output, " ".join(n.replace(" ", "\\ ") for n in needed)))


main()
