# SPDX-License-Identifier: Apache-2.0
"""The console script fa-tune: becomes the packaged program."""
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def path():
    """Where the program fa-tune is: in the package; of a build folder two folders up."""
    for place in ("_native", os.path.join(os.pardir, os.pardir)):
        program = os.path.join(_HERE, place, "fa-tune")
        if os.access(program, os.X_OK):
            return os.path.normpath(program)
    raise FileNotFoundError("the program fa-tune is not in %s: install the package again" % _HERE)


def main():
    """Replaces this process by fa-tune with the same arguments."""
    program = path()
    os.execv(program, [program] + sys.argv[1:])
