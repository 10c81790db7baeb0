# SPDX-License-Identifier: Apache-2.0
"""python -m fa_tune.caches: folders of other tuners, and values in one file. `fa-tune show --caches` lists what is kept."""
import argparse
import sys

from .._errors import Error
from . import _folder, _pack


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
    asked = parser.parse_args(arguments)
    try:
        if asked.verb == "mirror":
            print(_folder.mirror(asked.folder, asked.collection))
        else:
            print(_pack.pack(asked.file) if asked.verb == "pack" else _pack.unpack(asked.file, asked.key))
    except (Error, OSError, ValueError) as error:
        print("fa_tune.caches: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
