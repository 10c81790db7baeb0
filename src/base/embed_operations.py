#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Embeds the operation.json of every folder of kernel_templates/ as the tree that cJSON would make of it,
so that no process parses what was known when it was built.

usage: embed_operations.py FOLDER OUTPUT.c DEPFILE

Run by Meson at build time. The folder itself is a dependency, so that a new operation is noticed.
"""
import json
import os
import sys


def text_of(text):
    """A C string literal; NULL for None."""
    if text is None:
        return "NULL"
    return '"%s"' % "".join(chr(byte) if byte < 128 and chr(byte).isalnum() or chr(byte) in " _-,.:;=()[]<>/*+|%#'"
                            else "\\%03o" % byte for byte in text.encode())


def add(nodes, value, name=None):
    """Appends the node of a value and all below it; returns its index."""
    at = len(nodes)
    node = {"string": text_of(name), "type": "cJSON_NULL"}
    nodes.append(node)
    if isinstance(value, bool):
        node["type"] = "cJSON_True" if value else "cJSON_False"
    elif isinstance(value, (int, float)):
        whole = max(-2 ** 31, min(2 ** 31 - 1, int(value)))
        node.update(type="cJSON_Number", valueint=str(whole), valuedouble=repr(float(value)))
    elif isinstance(value, str):
        node.update(type="cJSON_String", valuestring=text_of(value))
    elif isinstance(value, (list, dict)):
        node["type"] = "cJSON_Object" if isinstance(value, dict) else "cJSON_Array"
        items = value.items() if isinstance(value, dict) else ((None, item) for item in value)
        below = [add(nodes, item, key) for key, item in items]
        for i, child in enumerate(below):
            nodes[child]["prev"] = "%%s + %d" % below[i - 1]
            if i + 1 < len(below):
                nodes[child]["next"] = "%%s + %d" % below[i + 1]
        if below:
            node["child"] = "%%s + %d" % below[0]
    return at


def main():
    folder, output, depfile = sys.argv[1:4]
    files = [os.path.join(folder, name, "operation.json") for name in sorted(os.listdir(folder))]
    files = [file for file in files if os.path.isfile(file)]
    out = ["/* Made by embed_operations.py: do not edit. */", '#include "operation.h"', ""]
    table, default = [], -1
    for i, path in enumerate(files):
        nodes, name = [], "node_%d" % i
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        add(nodes, document)
        if document.get("default"):
            default = i
        rows = "\n".join("    {%s}," % ", ".join(
            ".%s = %s" % (key, value % name if value.startswith("%s + ") else value)
            for key, value in node.items()) for node in nodes)
        out.append("static cJSON %s[] = {\n%s\n};\n" % (name, rows))
        table.append('    {%s, "%s", %s},' % (text_of(document["name"]), os.path.relpath(path, folder), name))
    out.append("const struct fa_operation_builtin fa_operations_builtin[] = {\n%s\n};"
               % "\n".join(table))
    assert default >= 0, "no operation is the default"
    out.append("const int fa_operations_builtin_count = %d, fa_operations_builtin_default = %d;\n" % (len(files), default))
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(out))
    with open(depfile, "w", encoding="utf-8") as file:
        file.write("%s: %s\n" % (output, " ".join(n.replace(" ", "\\ ") for n in [folder] + files)))


main()
