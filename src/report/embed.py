#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns the page into one C file of two parts: before the document, and after it. Its style and
its script come into it with the hashes that its content security policy names: nothing but exactly these two may style
the page and run in it. The page of a file reaches
nobody; that of a service (report_live_part) reaches who serves it.

usage: embed.py OUTPUT.c report_page_part|report_live_part PAGE.html PAGE.css SCRIPT.js...
"""
import base64
import hashlib
import re
import sys


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def inside_an_element(text):
    if "\0" in text or "</" in text or "<!--" in text:
        sys.exit("this cannot stand inside an element: %r" % text[:60])
    return text


def digest(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def main():
    output, name, page = sys.argv[1], sys.argv[2], read(sys.argv[3])
    style = inside_an_element(read(sys.argv[4]))
    script = inside_an_element('"use strict";\n{\n%s}\n' % "".join(map(read, sys.argv[5:])))
    values = {"style": style, "script": script, "style-hash": digest(style),
              "script-hash": digest(script),
              "connect": "'self'" if name == "report_live_part" else "'none'"}
    parts = page.split("{{document}}")
    parts = [re.sub(r"\{\{([a-z-]+)\}\}", lambda match: values[match[1]], part).encode()
             for part in parts]
    out = ["/* Made by embed.py: do not edit. */", '#include "report.h"', ""]
    for number, data in enumerate(parts):
        lines = ("    " + "".join("%d," % byte for byte in data[i:i + 24])
                 for i in range(0, len(data), 24))
        out.append("static const unsigned char part%d[] = {\n%s\n};" % (number, "\n".join(lines)))
    out.append("const report_part %s[%d] = {%s};" % (name, len(parts), ", ".join(
        "{part%d, sizeof part%d}" % (number, number) for number in range(len(parts)))))
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(out) + "\n")


main()
