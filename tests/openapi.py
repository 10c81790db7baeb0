# SPDX-License-Identifier: Apache-2.0
"""Checks responses against the description that the daemon serves: the part of JSON Schema that it
uses, and nothing that is not known passes in silence."""
import json
import os
import re
import subprocess

DOCUMENT = json.loads(subprocess.run(
    [os.path.join(os.environ["FA_TEST_BUILD"], "fa-tune-serve"), "--openapi"], check=True,
    stdout=subprocess.PIPE, timeout=60).stdout)

KNOWN = {"$ref", "type", "enum", "required", "properties", "additionalProperties", "items", "anyOf",
         "minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum", "pattern",
         "multipleOf", "description", "format", "default"}
seen = set()  # (method, path, status) that responses were checked for


class Mismatch(Exception):
    pass


def is_type(value, name):
    return {"object": isinstance(value, dict), "array": isinstance(value, list),
            "string": isinstance(value, str), "null": value is None,
            "boolean": isinstance(value, bool),
            "integer": isinstance(value, int) and not isinstance(value, bool),
            "number": isinstance(value, (int, float)) and not isinstance(value, bool)}[name]


def resolve(thing):
    while "$ref" in thing:
        found = DOCUMENT
        for part in thing["$ref"].lstrip("#/").split("/"):
            found = found[part]
        thing = found
    return thing


def need(condition, where, what):
    if not condition:
        raise Mismatch("%s: %s" % (where, what))


def check_object(value, schema, where):
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name in schema.get("required", []):
        need(name in value, where, "lacks %r" % name)
    for name, part in value.items():
        if name in properties:
            check(part, properties[name], "%s.%s" % (where, name))
        elif isinstance(more, dict):
            check(part, more, "%s.%s" % (where, name))
        else:
            need(more, where, "has %r, which is not described" % name)


def check(value, schema, where="document"):
    schema = resolve(schema)
    need(set(schema) <= KNOWN, where, "the schema says more than is checked: %r" % set(schema))
    if "anyOf" in schema:
        reasons = []
        for choice in schema["anyOf"]:
            try:
                return check(value, choice, where)
            except Mismatch as reason:
                reasons.append(str(reason))
        raise Mismatch("%s: none of the choices: %s" % (where, "; ".join(reasons)))
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    need(not types or any(is_type(value, name) for name in types), where,
         "%r is no %s" % (value, types))
    need(value in schema.get("enum", [value]), where, "%r is not described" % (value,))
    if isinstance(value, dict):
        check_object(value, schema, where)
    if isinstance(value, list):
        need(schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)), where,
             "has %d items" % len(value))
        for index, item in enumerate(value):
            check(item, schema.get("items", {}), "%s[%d]" % (where, index))
    if isinstance(value, str):
        need(schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)), where,
             "%r has %d characters" % (value, len(value)))
        need(re.search(schema.get("pattern", ""), value), where, "%r has another form" % value)
    if is_type(value, "number"):
        need(schema.get("minimum", value) <= value <= schema.get("maximum", value) and
             value % schema.get("multipleOf", value or 1) == 0, where, "%r is out of range" % value)
    return None


def path_of(path):
    """The described path that this one is, or None."""
    path = path.partition("?")[0]
    for pattern in sorted(DOCUMENT["paths"], key=lambda p: p.count("{")):
        if re.fullmatch(re.sub(r"\\?\{\w+\\?\}", "[^/]+", pattern.replace(".", r"\.")), path):
            return pattern
    return None


def check_response(method, path, status, headers, data):
    """Of requests that the description knows; a HEAD is a GET without the body."""
    pattern = path_of(path)
    operation = DOCUMENT["paths"].get(pattern, {}).get({"HEAD": "get"}.get(method, method.lower()))
    if operation is None:
        need(status in (401, 404, 405), path, "%s, which is not described, gives %d" % (method, status))
        return
    where = "%s %s -> %d" % (method, pattern, status)
    if status in (413, 503):  # a body where none belongs; connections, too many of them
        check(json.loads(data), {"$ref": "#/components/schemas/Error"}, where)
        return
    need(str(status) in operation["responses"], where, "the status is not described: %r" % data[:300])
    response = resolve(operation["responses"][str(status)])
    headers = {name.lower(): value for name, value in headers.items()}
    for name, header in response.get("headers", {}).items():
        need(name.lower() in headers or not header.get("required"), where, "lacks %s" % name)
    if "content" in response and method != "HEAD":
        kind = headers["content-type"].partition(";")[0]
        need(kind in response["content"], where, "its type is %s" % kind)
        if kind == "application/json":
            check(json.loads(data), response["content"][kind]["schema"], where)
    seen.add((method.lower(), pattern, status))


def check_event(name, data):
    """A server-sent event of a tune."""
    check(data, DOCUMENT["components"]["schemas"][{"progress": "Progress", "done": "Kernel", "failed": "Error"}[name]], name)
