#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The unit files say what systemd understands, and name what is installed."""
import os
import re
import shutil
import subprocess
import tempfile

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
BUILD = os.environ["FA_TEST_BUILD"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def the_service_starts_what_is_installed():
    text = read(os.path.join(BUILD, "fa-tune.service"))
    program, = re.findall(r"^ExecStart=(\S+)$", text, re.MULTILINE)
    assert program.endswith("/libexec/fa-tune/fa-tune-serve"), program
    tap.lacks(text, "@SERVE")
    tap.has(text, "Type=notify")
    tap.has(read(os.path.join(SOURCE, "dist/fa-tune.socket")), "SocketMode=0600")


def systemd_finds_nothing_wrong_with_them():
    if shutil.which("systemd-analyze") is None:
        raise tap.Skip("no systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        # The program lies elsewhere until it is installed.
        text = re.sub(r"^ExecStart=.*$", "ExecStart=" + os.path.join(BUILD, "fa-tune-serve"),
                      read(os.path.join(BUILD, "fa-tune.service")), flags=re.MULTILINE)
        units = [os.path.join(folder, name) for name in ("fa-tune.service", "fa-tune.socket")]
        for path, content in zip(units, (text, read(os.path.join(SOURCE, "dist/fa-tune.socket")))):
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], check=False,
                              capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], "HOME": folder})
        ours = [line for line in done.stderr.splitlines() if "fa-tune" in line]
        if done.returncode != 0 and not ours:
            raise tap.Skip("systemd-analyze does not work here: " + done.stderr.strip()[:200])
        tap.equal((done.returncode, ours), (0, []))


tap.main([
    the_service_starts_what_is_installed,
    systemd_finds_nothing_wrong_with_them,
])
