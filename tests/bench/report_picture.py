#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of a report that docs/journey.md shows: the head of the page, as a browser draws it.

    python3 tests/bench/report_picture.py report-h100.html docs/report.png
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import devtools  # noqa: E402

WIDTH, HEIGHT = 1280, 1480


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    if devtools.program() is None:
        sys.exit("no Chromium here")
    with devtools.Browser() as browser:
        shown = browser.open(os.path.abspath(sys.argv[1]), width=WIDTH, height=HEIGHT)
        shown.settle()
        if shown.run("document.querySelectorAll('#lengths svg').length") == 0:
            sys.exit("%s draws no chart over lengths" % sys.argv[1])
        shown.screenshot(sys.argv[2], captureBeyondViewport=True,  # without a scroll bar
                         clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 1})
    print("%s: %d kB" % (sys.argv[2], os.path.getsize(sys.argv[2]) // 1000))


main()
