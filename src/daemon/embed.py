#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""embed.py openapi.json OUT.c VERSION: the description as a C text, in one line of JSON. An operation's
"failures" become responses: 503 is Busy, any other status is Failure."""
import json
import sys

source, target, version = sys.argv[1:]
with open(source, encoding="utf-8") as file:
    document = json.load(file)
document["info"]["version"] = version
for path in document["paths"].values():
    for operation in path.values():
        responses = operation.get("responses", {}) if isinstance(operation, dict) else {}
        for status in responses.pop("failures", []):
            kind = "Busy" if status == 503 else "Failure"
            responses[str(status)] = {"$ref": "#/components/responses/" + kind}
text = json.dumps(document, separators=(",", ":"), ensure_ascii=True)
with open(target, "w", encoding="utf-8") as file:
    file.write('#include "service.h"\n\nconst char serve_openapi_document[] = {')
    for start in range(0, len(text), 16):
        file.write("\n    " + ", ".join(str(ord(c)) for c in text[start:start + 16]) + ",")
    file.write("\n    0};\n")
