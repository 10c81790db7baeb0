# SPDX-License-Identifier: Apache-2.0
"""Where this package's own programs are, and the console script that becomes one of them."""
import os
import shutil
import sys

from ._errors import Error


def _packaged():
    """The program of this package: a wheel's, or that of the build folder the package is linked into."""
    here = os.path.dirname(os.path.abspath(__file__))
    for place in ("_native", os.path.join(os.pardir, os.pardir)):
        path = os.path.normpath(os.path.join(here, place, "fa-tune"))
        if os.access(path, os.X_OK):
            return path
    return None


def command():
    """The path of `fa-tune`: FA_TUNE_COMMAND, the package's own, or the one that is installed."""
    for path in (os.environ.get("FA_TUNE_COMMAND"), _packaged(), shutil.which("fa-tune")):
        if path and os.access(path, os.X_OK):
            return path
    raise Error("the fa-tune command is neither in the package nor on PATH: install the package's wheel, or "
                "set FA_TUNE_COMMAND to its path")


def main():
    """The console script: replaces this process by the packaged fa-tune, with the same arguments."""
    program = _packaged()
    if program is None:
        sys.exit("fa-tune: the program is not in the package: install its wheel again")
    os.execv(program, [program] + sys.argv[1:])
