# SPDX-License-Identifier: Apache-2.0
"""The packaged `fa-tune` as a child process: what is long, or reads the whole store, is done there."""
import json
import os
import signal
import subprocess

from . import _package
from ._errors import Error

PATIENCE_S = 5.0  # for a child that was interrupted to end by itself


def run(*arguments, progress=None, allowed=(0,)):
    """Runs `fa-tune ARGUMENTS` and returns what it wrote to stdout.

    progress  False: nothing on stderr; else its stderr is ours, live line and all
    allowed   exit statuses that are an answer

    Ctrl-C stops the child, which keeps what it did, and raises KeyboardInterrupt.
    """
    child = subprocess.Popen([_package.command(), *arguments], stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, encoding="utf-8",
                             stderr=subprocess.PIPE if progress is False else None)
    try:
        told, complaint = child.communicate()
    except BaseException:
        _stop(child)
        raise
    if child.returncode not in allowed:
        raise Error(_sentence(complaint, told, arguments, child.returncode))
    return told


def run_json(*arguments, **how):
    """The document that `fa-tune ARGUMENTS --json` wrote, whose exit status may be that of an answer and of a failure."""
    told = json.loads(run(*arguments, "--json", **how))
    if "error" in told:
        raise Error(_failure(told))
    return told


def _stop(child):
    """Ends the child as Ctrl-C does: it keeps what it did."""
    if not _terminal_reaches(child):
        child.send_signal(signal.SIGINT)
    try:
        child.wait(PATIENCE_S)
    except subprocess.TimeoutExpired:
        child.terminate()
        child.wait()


def _terminal_reaches(child):
    """Whether a terminal's Ctrl-C went to the child too; a second one would end it at once."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgid(child.pid)
    except OSError:
        return False
    finally:
        os.close(terminal)


def _failure(told):
    """The sentences of a failure's document: what failed, then what to do."""
    return "; ".join(told["error"]["sentences"])


def _sentence(complaint, told, arguments, status):
    """What was wrong: of the document of a failure, else of stderr."""
    try:
        return _failure(json.loads(told))
    except (ValueError, TypeError, LookupError):
        pass
    lines = [line.partition("fa-tune: ")[2] for line in (complaint or "").splitlines()
             if line.startswith("fa-tune: ")]
    return lines[-1] if lines else "fa-tune %s ended with exit status %d%s" % (
        arguments[0], status, "" if complaint else ": see what it wrote to stderr")


def options_of(fields):
    """Fields of a problem as options of the command line."""
    names = {"heads_q": "heads"}
    words = []
    for name, value in fields.items():
        option = "--" + names.get(name, name).replace("_", "-")
        if value is True:
            words.append(option)
        elif value is not False and value is not None:
            words += [option, str(value)]
    return words
