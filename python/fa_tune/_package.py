# SPDX-License-Identifier: Apache-2.0
"""Where this package's own programs are."""
import os
import shutil

from ._errors import Error


def command():
    """The path of `fa-tune`: FA_TUNE_COMMAND, the package's own, or the one that is installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    for path in (os.environ.get("FA_TUNE_COMMAND"), os.path.join(here, "fa-tune"),
                 os.path.join(here, "bin", "fa-tune"), shutil.which("fa-tune")):
        if path and os.access(path, os.X_OK):
            return path
    raise Error("the fa-tune command is neither in the package nor on PATH: install the package's wheel, or "
                "set FA_TUNE_COMMAND to its path")
