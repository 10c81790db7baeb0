#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns every template file of a directory into one C file: a table of texts and their closure hashes.

usage: embed.py DIRECTORY OUTPUT.c DEPFILE

Run by Meson at build time. The directory and its folders are dependencies, so that a new file is
noticed. There is a hash for each operation over its folder and the vocabulary: over name and text of each
file, in order of their names, every part behind its length (8 bytes, little-endian). Of a manifest it
covers what may be compiled, how that is launched, and what the model is told of that, so that a winner
outlives a change of the rest; of an operation.json that tells its tensors, what kernels are passed and
what they are proved by. operation.json is the only file whose name in the table has its folder's in front.
"""
import hashlib
import json
import os
import re
import sys

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\.(cu|cuh|h|json)\Z")
CONTRACT, VOCABULARY = "operation.json", "vocabulary"


def byte_rows(data):
    data += b"\0"
    return "\n".join("    " + "".join("%d," % b for b in data[i:i + 24])
                     for i in range(0, len(data), 24))


def template_files(directory):
    """(name, folder, path) of each, in order of their names."""
    found = []
    for folder in sorted(os.listdir(directory)):
        place = os.path.join(directory, folder)
        for file in os.listdir(place) if os.path.isdir(place) else []:
            if NAME.match(file) and len(file) < 64:
                name = folder + "/" + file if file == CONTRACT else file
                found.append((name, folder, os.path.join(place, file)))
    found.sort()
    for (one, _, _), (other, _, path) in zip(found, found[1:]):
        if one == other:
            sys.exit("%s: another folder has a file of this name" % path)
    return found


def members(item, names):
    """Each as text without blanks; one that is not there is empty."""
    return [json.dumps(item[name], separators=(",", ":"), ensure_ascii=False).replace(" ", "").encode() if name in item else b""
            for name in names]


def contract_parts(name, text):
    contract = json.loads(text)
    if "arguments" not in contract:
        return []
    parts = [name.encode()] + members(contract, ("arguments", "tolerance", "reference"))
    for name, field in contract["sizes"].items():
        size = field if isinstance(field, dict) else {"default": field}
        parts += [name.encode(), b"boolean" if isinstance(size.get("default"), bool) else b""]
        parts += members(size, ("choices", "macro", "shown_as"))
    return parts


def manifest_parts(text):
    """No manifest has a "cluster": its place stays, since without it every stored winner would be another's."""
    manifest = json.loads(text)
    for rules in ("supports", "restrictions"):
        if rules in manifest:
            manifest[rules] = [{"require": rule["require"]} if isinstance(rule, dict) else rule for rule in manifest[rules]
                               if not isinstance(rule, dict) or rule.get("is") != "does-not-pay"]
    return members(manifest, ("sm", "arch_suffix", "takes", "supports", "tune", "run_time", "defines", "restrictions", "launches", "kernel",
                              "block", "cluster", "cooperative", "grid", "shared_memory", "work", "workspace", "counters", "splits"))


def closure(files, folders):
    """The hash over the files of these folders."""
    digest = hashlib.blake2b(digest_size=32)
    for name, folder, path in files:
        if folder not in folders:
            continue
        with open(path, "rb") as file:
            text = file.read()
        for part in contract_parts(name, text) if name.endswith("/" + CONTRACT) else \
                [name.encode()] + (manifest_parts(text) if name.endswith(".json") else [text]):
            digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()


def main():
    directory, output, depfile = sys.argv[1:4]
    files = template_files(directory)
    assert len(files) <= 128, "more files than templates.c has room for"
    out = ["/* Made by embed.py from kernel_templates/: do not edit. */",
           '#include "manifest.h"', ""]
    table = []
    for i, (name, folder, path) in enumerate(files):
        with open(path, "rb") as file:
            text = file.read()
        if b"\0" in text:
            sys.exit("%s holds a NUL byte" % name)
        out.append("static const unsigned char file_%d[] = { /* %s */\n%s\n};\n"
                   % (i, name, byte_rows(text)))
        table.append('    {"%s", "%s", (const char *)file_%d, %d},' % (name, folder, i, len(text)))
    out.append("const fa_template_file fa_templates_builtin[] = {\n%s\n    {NULL, NULL, NULL, 0},\n};"
               % "\n".join(table))
    out.append("const int fa_templates_builtin_count = %d;" % len(files))
    hashes = [(folder, closure(files, {folder, VOCABULARY})) for folder in dict.fromkeys(
        folder for _, folder, _ in files if folder != VOCABULARY)]
    out.append("const fa_template_closure fa_templates_builtin_closures[] = {")
    out += ['    {"%s", "%s"},' % pair for pair in hashes]
    out.append("};\nconst int fa_templates_builtin_closure_count = %d;\n" % len(hashes))
    with open(output, "w", encoding="ascii") as file:
        file.write("\n".join(out))
    with open(depfile, "w", encoding="utf-8") as file:
        needed = [directory] + sorted({os.path.dirname(path) for _, _, path in files}) + \
            [path for _, _, path in files]
        file.write("%s: %s\n" % (output, " ".join(n.replace(" ", "\\ ") for n in needed)))


main()
