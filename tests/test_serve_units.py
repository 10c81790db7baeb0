#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The unit file says what systemd understands and names what is installed, and the image has what it needs."""
import json
import os
import re
import shutil
import subprocess
import tempfile

import tap
from place import DEADLINE

SOURCE = os.environ["FA_TEST_SOURCE"]
BUILD = os.environ["FA_TEST_BUILD"]


def control(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=DEADLINE).stdout.strip()


def the_service_starts_what_is_installed():
    text = tap.read(os.path.join(BUILD, "fa-tune.service"))
    program, = re.findall(r"^ExecStart=(\S+)$", text, re.MULTILINE)
    assert program.endswith("/libexec/fa-tune/fa-tune-serve"), program
    tap.lacks(text, "@SERVE")


def unit(folder):
    """The unit file in this folder; the program lies elsewhere until it is installed."""
    text = re.sub(r"^ExecStart=.*$", "ExecStart=" + os.path.join(BUILD, "fa-tune-serve"),
                  tap.read(os.path.join(BUILD, "fa-tune.service")), flags=re.MULTILINE)
    path = os.path.join(folder, "fa-tune.service")
    tap.write(path, text)
    return path


def systemd_finds_nothing_wrong_with_it():
    if shutil.which("systemd-analyze") is None:
        raise tap.Skip("no systemd-analyze")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit(folder)], check=False,
                              capture_output=True, text=True,
                              env={"PATH": os.environ["PATH"], "HOME": folder})
        ours = [line for line in done.stderr.splitlines() if "fa-tune" in line]
        if done.returncode != 0 and not ours:
            raise tap.Skip("systemd-analyze does not work here: " + done.stderr.strip()[:200])
        tap.equal((done.returncode, ours), (0, []))


def installed_by(stage):
    """The packages that a stage of the container file installs."""
    text = re.sub(r"(?m)^#.*\n", "", tap.read(os.path.join(SOURCE, "Containerfile"))).replace("\\\n", " ")
    return re.search(r"apt-get install -y --no-install-recommends ([^&\n]*)", text.split("\nFROM ")[stage])[1].split()


def the_image_has_every_library_that_the_programs_need():
    if shutil.which("dpkg") is None:
        raise tap.Skip("no dpkg")
    there = set(installed_by(2))
    ours = ("libfa_tune.so", "fa-tune", "fa-tune-serve", "fa-tune-worker")
    needed = {}  # file by library
    for file in ours:
        for name in re.findall(r"\(NEEDED\).*\[(.*)\]", control("readelf", "-d", os.path.join(BUILD, file))):
            if not name.startswith(ours):
                needed[name] = file
    listed = control("dpkg", "-S", *("*/" + name for name in needed), check=False)  # 1 where no package has a library
    for name, file in needed.items():
        owners = set(re.findall(r"(?m)^([^:\n]+):.*/%s$" % re.escape(name), listed))
        assert "san.so" in name or owners & (there | {"libc6"}), "%s needs %s of %s" % (file, name, owners)
    development = set(installed_by(1)) - {"gcc", "libc6-dev", "meson", "ninja-build", "pkg-config", "python3"}
    tap.equal(development - set(re.search(r"packages=\(([^)]*)\)", tap.read(os.path.join(SOURCE, "dev")))[1].split()), set())


def the_image_builds_all_that_it_installs():
    text = tap.read(os.path.join(SOURCE, "Containerfile")).replace("\\\n", " ")
    built = {word.partition(":")[0] for word in re.search(r"meson compile -C build ([^&\n]*)", text)[1].split()}
    info = os.path.join(BUILD, "meson-info")
    made_by = {file: target["name"] for target in json.loads(tap.read(os.path.join(info, "intro-targets.json"))) for file in target["filename"]}
    plan = json.loads(tap.read(os.path.join(info, "intro-install_plan.json")))["targets"]
    installed = {made_by[file] for file, of in plan.items() if of["tag"] == "runtime" and not of["destination"].startswith("{py_")}
    tap.equal(built, installed)


tap.main()
