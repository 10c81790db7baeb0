# SPDX-License-Identifier: Apache-2.0
"""Where this package's own programs are, and the console script that becomes one of them."""
import os
import sys


def _packaged():
    """The program of this package: a wheel's, or that of the build folder the package is linked into."""
    here = os.path.dirname(os.path.abspath(__file__))
    for place in ("_native", os.path.join(os.pardir, os.pardir)):
        path = os.path.normpath(os.path.join(here, place, "fa-tune"))
        if os.access(path, os.X_OK):
            return path
    return None


def main():
    """The console script: replaces this process by the packaged fa-tune, with the same arguments."""
    program = _packaged()
    if program is None:
        sys.exit("fa-tune: the program is not in the package: install its wheel again")
    os.execv(program, [program] + sys.argv[1:])
