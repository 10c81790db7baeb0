# SPDX-License-Identifier: Apache-2.0
"""mirror: the files of any tuner's folder, into the store and from it, by their content.

A file is taken whole: size, time and place are the same before and after it is read, and it was not written within two seconds.
Of two that differ the later is kept on both sides, unless the folder's is the start of the other or has the other's time, which
says that it was cut or flipped. The folder's own path stands as a mark in a kept text, so that values fit any host.
"""
from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator

from .. import _core
from .._errors import ArgumentError
from . import _values

TUNER = "folder"
MARK = b"@FA_TUNE_FOLDER@"
YOUNG_S = 2
PASSING = (".lock", ".tmp", ".part", ".fa-tune-new")  # ends of names that are no results


def _files(root: str) -> Iterator[str]:
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if not name.startswith("tmp.")]
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if not name.endswith(PASSING) and stat.S_ISREG(os.lstat(path).st_mode):
                    yield os.path.relpath(path, root)


def _place(is_: os.stat_result) -> tuple[int, ...]:
    return is_.st_dev, is_.st_ino, is_.st_size, is_.st_mtime_ns


def _whole(path: str) -> tuple[bytes, os.stat_result]:
    """A file's content at one moment, or OSError."""
    for attempt in range(3):
        with contextlib.suppress(OSError):  # ESTALE, EBUSY, or it was renamed: once more
            young = os.lstat(path).st_mtime + YOUNG_S - time.time()
            if 0 < young <= YOUNG_S:
                time.sleep(young)
                continue
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb") as file:
                before = os.fstat(file.fileno())
                content = file.read()
                if _place(before) == _place(os.fstat(file.fileno())) == _place(os.lstat(path)) and len(content) == before.st_size:
                    return content, before
        time.sleep(0.1 * attempt)
    raise OSError("it changes while it is read")


def _write(root: str, name: str, content: bytes, mode: int, mtime_ns: int) -> None:
    path = os.path.normpath(os.path.join(root, name))
    folder = os.path.dirname(path)
    if not path.startswith(root + os.sep) or os.path.realpath(folder) != folder:
        raise OSError("it lies outside of the folder")
    os.makedirs(folder, exist_ok=True)
    part = "%s.%d.fa-tune-new" % (path, os.getpid())
    try:
        with open(part, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o600 | mode & 0o100)
        os.utime(part, ns=(mtime_ns, mtime_ns))
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)


def mirror(folder: str, collection: str | None = None) -> str:
    """Makes folder and store alike; returns how many files went where and which did not, in words."""
    root = os.path.realpath(folder)
    os.makedirs(root, exist_ok=True)
    collection = collection or os.path.basename(root)
    gpu, silicon = _values.here(may_start_cuda=True)
    stored = {}
    for row in _core.kept(None, False) or []:
        with contextlib.suppress(ValueError):  # what is said of a value may be anything until its signature is read
            about = json.loads(row[4]) if row[1] == TUNER else {}
            if about.get("collection") == collection and about.get("silicon") == silicon:
                stored[str(about.get("path"))] = (row[0], about)

    def one(name: str) -> str:
        key, about = stored.get(name, (_values.key_of(TUNER, silicon, collection, name), {}))
        kept = _values.peek(key)
        if os.path.lexists(os.path.join(root, name)):
            content, is_ = _whole(os.path.join(root, name))
            if MARK in content or (root.encode() in content and b"\0" in content):
                raise OSError("it names its folder and is no text")
            content = content.replace(root.encode(), MARK)
            if kept == content:
                return "alike"
            broken = kept is not None and (kept.startswith(content) or is_.st_mtime_ns == about["mtime_ns"])
            if kept is None or not (broken or is_.st_mtime_ns < about["mtime_ns"]):
                about = {"path": name, "mode": is_.st_mode & 0o100, "mtime_ns": is_.st_mtime_ns}
                made = _values.made_with(collection=collection, silicon=silicon, **about)
                _values.keep((key, TUNER, collection + "/" + name, gpu, json.dumps(made)), content)
                return "into the store"
        if kept is None:
            raise OSError("its value is damaged or another user's")
        _write(root, name, kept.replace(MARK, root.encode()), about["mode"], about["mtime_ns"])
        return "out of it"

    done = dict.fromkeys(("into the store", "out of it", "alike"), 0)
    left = []
    for name in sorted({*_files(root), *stored}):
        try:
            done[one(name)] += 1
        except UnicodeEncodeError:
            left.append("\n  not %s: its name is no UTF-8" % ascii(name))
        except (OSError, ArgumentError) as error:  # ArgumentError: it is larger than a value may be
            left.append("\n  not %s: %s" % (name, getattr(error, "strerror", None) or error))
    return "%s of %s: %s%s" % (collection, gpu, ", ".join("%d %s" % (count, way) for way, count in done.items()), "".join(left))
