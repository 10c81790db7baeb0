# SPDX-License-Identifier: Apache-2.0
"""python -m fa_tune.caches: folders of other tuners, values in one file, and what is kept."""
import argparse
import hashlib
import hmac
import json
import lzma
import sys
import time

from .. import _core
from .._errors import Error
from .._functions import _spelled
from .._tables import counted
from . import _folder, _values

MAGIC = b"fa-tune values 1\n"
MOST = 4 << 30  # bytes of all values


def pack(path):
    """Writes all values into one file, signed by the key that signs them in the store; returns what it holds, in words."""
    rows = [(row, _values.peek(row[0])) for row in _core.kept(None, False)]
    values = [json.dumps([*row[:5], len(data)]).encode() + b"\n" + data for row, data in rows if data is not None]
    body = lzma.compress(b"".join(values))
    _core.write_file(path, MAGIC + hmac.digest(_values.secret(), body, hashlib.sha256) + body)
    return "%s in %s: %d bytes, signed by the key in %s" % (counted(len(values), "value"), path, len(MAGIC) + 32 + len(body), _values.key_path())


def unpack(path, key):
    """Takes the file's values into the store, where this user's key signs them. key: of who packed them; None: this user's."""
    with open(path, "rb") as file:
        head, body = file.read(len(MAGIC) + 32), file.read()
    if not hmac.compare_digest(head, MAGIC + hmac.digest(_values.secret(key), body, hashlib.sha256)):
        raise ValueError("%s is damaged, or was not signed by the key in %s: nothing is taken" % (path, key or _values.key_path()))
    unpacked = lzma.LZMADecompressor()
    rest, count, at = unpacked.decompress(body, MOST), 0, 0
    if not unpacked.eof:
        raise ValueError("%s holds more than %d bytes of values: nothing is taken" % (path, MOST))
    while at < len(rest):
        line = rest.index(b"\n", at)
        *row, size = json.loads(rest[at:line])
        at = line + 1 + size
        _values.keep(tuple(row), rest[line + 1:at])
        count += 1
    return "%s of %s went into the store" % (counted(count, "value"), path)


def chosen(gpu):
    """What is kept, newest first, of one GPU's type or of all. A name that nobody knows is a mistake, not an empty choice."""
    rows = [row for row in _core.kept(None, False) if gpu is None or _spelled(row[3]) == _spelled(gpu)]
    if gpu is not None and not rows:
        _core.gpu(gpu)
    return rows


def listed(rows, as_json):
    if as_json:
        return json.dumps([dict(zip(("key", "tuner", "name", "gpu", "made", "unix_time", "bytes"), row)) for row in rows])
    lines = [(*(text if text.isprintable() else ascii(text) for text in row[1:4]),
              time.strftime("%Y-%m-%d %H:%M", time.localtime(row[5])), "%d bytes" % row[6]) for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines] + [_size(rows)])


def _size(rows):
    return "%s of other tuners, %d bytes" % (counted(len(rows), "value"), sum(row[6] for row in rows))


def remove(rows, dry_run):
    for row in [] if dry_run else rows:
        _core.keep(*row[:5], None)
    if rows and not dry_run:
        _core.forget(lambda problem: False, False)  # forgets no problem, and makes the store's file smaller
    return ("would forget " if dry_run else "forgot ") + _size(rows)


def main(arguments):
    parser = argparse.ArgumentParser("python -m fa_tune.caches", description=__doc__, allow_abbrev=False)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = verbs.add_parser("mirror", help="make a folder and the store alike")
    verb.add_argument("folder")
    verb.add_argument("--as", dest="collection", metavar="NAME", help="what the folder is called on all hosts (its last name)")
    verbs.add_parser("pack", help="write all values into one signed file").add_argument("file")
    verb = verbs.add_parser("unpack", help="take the values of such a file into the store")
    verb.add_argument("file")
    verb.add_argument("--key", metavar="FILE", help="the key of who packed it (this user's)")
    for name, words, option, what in (("list", "list what is kept", "--json", "one JSON document"),
                                      ("rm", "forget what is kept", "--dry-run", "change nothing")):
        verb = verbs.add_parser(name, help=words)
        which = verb.add_mutually_exclusive_group(required=name == "rm")
        which.add_argument("--gpu", metavar="NAME", help="of this GPU's type alone")
        if name == "rm":
            which.add_argument("--all", action="store_true", help="of every GPU's type, and of none")
        verb.add_argument(option, dest="how", action="store_true", help=what)
    asked = parser.parse_args(arguments)
    try:
        print(_folder.mirror(asked.folder, asked.collection) if asked.verb == "mirror" else
              pack(asked.file) if asked.verb == "pack" else unpack(asked.file, asked.key) if asked.verb == "unpack" else
              listed(chosen(asked.gpu), asked.how) if asked.verb == "list" else remove(chosen(asked.gpu), asked.how))
    except (Error, OSError, ValueError) as error:
        print("fa_tune.caches: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
