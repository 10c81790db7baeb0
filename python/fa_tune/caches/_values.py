# SPDX-License-Identifier: Apache-2.0
"""Values of other tuners in fa-tune's store: their keys, their signatures, and who makes one that is missing.

Invariants: get() and put() never raise: what cannot be read is a miss, what cannot be written is not kept, and a sentence says
so once. A value is returned only if the key of this user has signed it, with all that is said of it.
"""
from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from .. import _core, _progress
from .._errors import Error

MAGIC, WAIT_S = b"fa-tune value 1\n", 600

_said: set[str] = set()


class _Thread(threading.local):
    def __init__(self) -> None:
        self.leases: dict[str, str] = {}  # the key of the value of each tuner that this thread is to make


_mine = _Thread()


def note(sentence: str) -> None:
    """Says a sentence once in this process."""
    if sentence not in _said:
        _said.add(sentence)
        _progress.note(sentence)


@contextlib.contextmanager
def guarded(doing: str) -> Iterator[None]:
    """Whatever fails inside is a sentence, and the caller's program goes on."""
    try:
        yield
    except Exception as error:  # a cache may not end the step of who uses it
        note("%s failed, so that fa_tune.caches does without: %s" % (doing, error))


# ---- the key that signs ----
def key_path() -> str:
    config = os.environ.get("XDG_CONFIG_HOME", "")
    config = config if os.path.isabs(config) else os.path.expanduser("~/.config")
    return os.environ.get("FA_TUNE_CACHES_KEY") or os.path.join(config, "fa-tune", "caches.key")


@functools.lru_cache(maxsize=4)
def secret(path: str | None = None) -> bytes:
    """The key of a file that nobody else may read. This user's is made where there is none."""
    mine = path or key_path()
    if path is None and not os.path.lexists(mine):
        os.makedirs(os.path.dirname(mine), mode=0o700, exist_ok=True)
        part = "%s.%d.%d" % (mine, os.getpid(), threading.get_ident())
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(os.urandom(32).hex() + "\n")
        with contextlib.suppress(FileExistsError):  # another process was first
            os.link(part, mine)
        os.unlink(part)
    with open(os.open(mine, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), encoding="ascii") as file:
        is_, text = os.fstat(file.fileno()), file.read(100).strip()
    if is_.st_uid != os.geteuid() or is_.st_mode & 0o077 or len(text) != 64:
        raise PermissionError("%s must be this user's, with mode 0600 and 64 hexadecimal digits" % mine)
    return bytes.fromhex(text)


def _signature(row: tuple[str, ...], data: bytes) -> bytes:
    head = json.dumps(row).encode()
    return hmac.digest(secret(), b"%d\n%s%s" % (len(head), head, data), hashlib.sha256)


# ---- what a value is for ----
@functools.lru_cache(maxsize=64)
def _gpu(asked: str | None, device: int) -> tuple[str, str]:
    name, sm, sms, block, shared, l2, bus, mhz = _core.gpu(asked, device)
    return name, "sm_%d x%d smem=%d/%d l2=%dM bus=%d clock=%d" % (sm, sms, block, shared, l2 >> 20, bus, (mhz + 50) // 100 * 100)


def here(may_start_cuda: bool) -> tuple[str, str]:
    """Name and silicon, which decides a winner, of the GPU that this process computes on, or that FA_TUNE_CACHES_GPU names. A
    process that starts CUDA can no longer fork others that use it, so that the caller says whether this one may."""
    asked = os.environ.get("FA_TUNE_CACHES_GPU")
    torch = sys.modules.get("torch")
    started = torch is not None and torch.cuda.is_initialized()
    try:
        if asked or started or may_start_cuda:
            return _gpu(asked, torch.cuda.current_device() if started else 0)
    except Error as error:
        if asked:
            note("FA_TUNE_CACHES_GPU: %s" % error)
    return "no GPU", "none"


def made_with(**more: Any) -> dict[str, Any]:
    """What a value is made with: versions of what is loaded, and the caller's own."""
    versions = {name: str(getattr(sys.modules.get(name), "__version__", "")) for name in ("triton", "torch", "helion")}
    return {"python": platform.python_version(), "fa_tune": _core.version(), **{name: is_ for name, is_ in versions.items() if is_}, **more}


def key_of(*parts: str) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=32).hexdigest()


# ---- values ----
def keep(row: tuple[str, str, str, str, str], data: bytes) -> None:
    """Keeps data under a key, with its tuner, name, GPU and JSON of what made it."""
    _core.keep(*row, MAGIC + _signature(row, data) + data)


def found(rows: Any) -> bytes | None:
    """The data of the value in a list of at most one, or None, with a note, where this user has not signed it."""
    if not rows:
        return None
    row, value, begin = rows[0][:5], rows[0][7], len(MAGIC) + 32
    if value.startswith(MAGIC) and hmac.compare_digest(value[len(MAGIC):begin], _signature(row, value[begin:])):
        return value[begin:]  # type: ignore[no-any-return]
    note("%s's value of %s in the store is damaged, or was not signed by the key in %s: it is made anew" % (*row[1:3], key_path()))
    return None


def peek(key: str) -> bytes | None:
    """A value's data. Ends this process's lease of it."""
    with guarded("looking up a value"):
        return found(_core.kept(key, False))
    return None


def put(key: str, tuner: str, name: str, for_gpu: str, made: dict[str, Any], data: bytes, replace: bool = False) -> None:
    """Keeps data and ends this process's lease. A value that is there stays, unless `replace`."""
    with guarded("keeping a value of " + tuner):
        name = "".join(c if c.isprintable() else "?" for c in name)[:120]
        if replace or found(_core.kept(key, True)) is None:
            keep((key, tuner, name, for_gpu, json.dumps(made)), data)
    let_go(tuner, key)


# ---- who makes a value that is missing ----
def let_go(tuner: str, key: str | None = None) -> None:
    """Ends the lease of a key, or the one that this thread has of a tuner's values."""
    key = key or _mine.leases.get(tuner)
    if key is not None and _mine.leases.get(tuner) == key:
        del _mine.leases[tuner]
    with guarded("ending a lease"):
        for name in filter(None, (key, key and _of_job(key))):
            _core.kept(name, False)


def _of_job(key: str) -> str:
    """A second lease, which says that a rank of this job has the first one; "": this process is no rank."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size() < 2:
        return ""
    names = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT")
    return key_of(key, *(os.environ.get(name, "") for name in names))


def get(tuner: str, key: str, most_s: float = WAIT_S) -> bytes | None:
    """A value's data. Where there is none, the first process that asks is to make it, and gets None at once; others wait, at
    most FA_TUNE_CACHES_WAIT seconds. Ranks of one job never wait for one another, and without that variable for nobody: a
    tune may need a collective. A thread makes one value of a tuner at a time: its next question ends the lease before."""
    with guarded("looking up a value of " + tuner):
        let_go(tuner)
        peers, asked = _of_job(key), os.environ.get("FA_TUNE_CACHES_WAIT")
        end = time.monotonic() + min(float(asked) if asked else 0 if peers else WAIT_S, most_s)
        pause = 0.01
        while (rows := _core.kept(key, True)) is None:  # another process makes it
            if time.monotonic() >= end or (peers and _core.kept(peers, True) is None):
                return None
            if peers:
                _core.kept(peers, False)
            time.sleep(pause)
            pause = min(pause * 1.5, 0.2)
        data = found(rows)
        if data is None:
            if rows:
                _core.keep(key, "", "", "", "", None)
                _core.kept(key, True)
            _mine.leases[tuner] = key
            if peers:
                _core.kept(peers, True)
        return data
    return None
