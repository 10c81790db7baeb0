# SPDX-License-Identifier: Apache-2.0
"""The packaged `fa-tune` as a child process, for a report and for forgetting."""
import json
import subprocess

from . import _package
from ._errors import Error


def run(*arguments):
    """Runs `fa-tune ARGUMENTS` and returns what it wrote to stdout."""
    child = subprocess.run([_package.command(), *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                           encoding="utf-8")
    if child.returncode != 0:
        raise Error(_sentence(child.stderr, child.stdout, arguments, child.returncode))
    return child.stdout


def run_json(*arguments):
    """The document that `fa-tune ARGUMENTS --json` wrote."""
    return json.loads(run(*arguments, "--json"))


def _failure(told):
    """The sentences of a failure's document: what failed, then what to do."""
    return "; ".join(told["error"]["sentences"])


def _sentence(complaint, told, arguments, status):
    """What was wrong: of the document of a failure, else of stderr."""
    try:
        return _failure(json.loads(told))
    except (ValueError, TypeError, LookupError):
        pass
    lines = [line.partition("fa-tune: ")[2] for line in complaint.splitlines()
             if line.startswith("fa-tune: ")]
    return lines[-1] if lines else "fa-tune %s ended with exit status %d" % (arguments[0], status)


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
