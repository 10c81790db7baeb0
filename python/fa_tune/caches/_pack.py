# SPDX-License-Identifier: Apache-2.0
"""pack and unpack: all values of other tuners in one file, signed by the key that signs them in the store."""
from __future__ import annotations

import hashlib
import hmac
import json
import lzma

from .. import _core
from . import _values

MAGIC = b"fa-tune values 1\n"
SIZE_MAX = 4 << 30  # bytes, unpacked


def pack(path: str) -> str:
    """Writes the file; returns what it holds, in words."""
    values, names = [], set()
    for row in _core.kept(None, False) or []:
        data = _values.peek(row[0])
        if data is not None:
            values.append(json.dumps([*row[:5], len(data)]).encode() + b"\n" + data)
            names.add(row[1])
    body = lzma.compress(b"".join(values))
    _core.write_file(path, MAGIC + hmac.new(_values.secret(), body, hashlib.sha256).digest() + body)
    return "%d values (%s) in %s: %d bytes, signed by the key in %s" % (
        len(values), ", ".join(sorted(names)), path, len(MAGIC) + 32 + len(body), _values.key_path())


def unpack(path: str, key: str | None = None) -> str:
    """Takes the file's values into the store, where this user's key signs them. key: of who packed them; None: this user's."""
    with open(path, "rb") as file:
        head, body = file.read(len(MAGIC) + 32), file.read()
    if not head.startswith(MAGIC):
        raise ValueError("%s was not made by `python -m fa_tune.caches pack`" % path)
    if not hmac.compare_digest(head[len(MAGIC):], hmac.new(_values.secret(key), body, hashlib.sha256).digest()):
        raise ValueError("%s is damaged, or was not signed by the key in %s: nothing is taken" % (path, key or _values.key_path()))
    rest, count, at = lzma.LZMADecompressor().decompress(body, SIZE_MAX), 0, 0
    while at < len(rest):
        line = rest.index(b"\n", at)
        *row, size = json.loads(rest[at:line])
        at = line + 1 + size
        _values.keep(tuple(row), rest[line + 1:at])
        count += 1
    return "%d values of %s are in the store" % (count, path)
