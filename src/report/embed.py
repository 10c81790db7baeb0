#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the page's style and script into one C file, each with the hash that its content security
policy names: nothing but exactly these two may style the page and run in it.

usage: embed.py REPORT.css REPORT.js OUTPUT.c
"""
import base64
import hashlib
import sys


def literal(data):
    data += b"\0"
    return "\n".join("    " + "".join("%d," % byte for byte in data[i:i + 24])
                     for i in range(0, len(data), 24))


def main():
    out = ["/* Made by embed.py: do not edit. */", '#include "html.h"', ""]
    for name, path in (("style", sys.argv[1]), ("script", sys.argv[2])):
        with open(path, "rb") as file:
            data = file.read()
        if b"\0" in data or b"</" in data or b"<!--" in data:
            sys.exit("%s cannot stand inside an element" % path)
        out.append("const unsigned char report_%s[] = {\n%s\n};" % (name, literal(data)))
        out.append('const char report_%s_hash[] = "sha256-%s";\n' % (
            name, base64.b64encode(hashlib.sha256(data).digest()).decode("ascii")))
    with open(sys.argv[3], "w", encoding="ascii") as file:
        file.write("\n".join(out))


main()
