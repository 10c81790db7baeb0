#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py openapi.json OUT.c VERSION: the description as a C text, in one line of JSON."""
import json
import sys

source, target, version = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    document = json.load(file)
document["info"]["version"] = version
text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
with open(target, "w", encoding="utf-8") as file:
    file.write('#include "openapi.h"\n\nconst char serve_openapi[] = {')
    for start in range(0, len(text), 16):
        file.write("\n    " + ", ".join(str(ord(c)) for c in text[start:start + 16]) + ",")
    file.write("\n    10, 0};\n")
