#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed_standard.py OUT.c FILE.cuh...: what stands in a kernel for headers of the standard library, as a table of C. NAME.cuh, without the
comment at its head, is NAME.h and cNAME; usual.cuh and arguments.cuh are texts of their own."""
import os
import sys

# What NVRTC brings itself, or what a kernel has no use for.
EMPTY = "stdio.h cstdio stdlib.h cstdlib string.h cstring math.h cmath assert.h cassert stddef.h cstddef stdbool.h iostream"


def literal(text):
    return "\n    ".join('"%s\\n"' % line.replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n")[:-1])


target, *sources = sys.argv[1:]
table, texts = ['    {"%s", "\\n"},' % name for name in EMPTY.split()], ""
for source in sources:
    name = os.path.basename(source)[:-len(".cuh")]
    with open(source, encoding="ascii") as file:
        text = literal(file.read().split(" */\n", 1)[1])
    if name in ("usual", "arguments"):
        texts += "const char fa_%s[] =\n    %s;\n" % (name, text)
    else:
        table += ['    {"%s", %s},' % (called, text) for called in (name + ".h", "c" + name)]
with open(target, "w", encoding="ascii") as file:
    file.write('#include "spec_reading.h"\n\nconst fa_template_text fa_standard[] = {\n%s\n    {NULL, NULL}};\n%s' % ("\n".join(table), texts))
