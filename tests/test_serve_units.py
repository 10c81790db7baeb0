#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The unit file says what systemd understands, names what is installed, and starts under a manager of its own; and the image has what it needs."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tap
from serve import DEADLINE, Unix, wait_for

SOURCE = os.environ["FA_TEST_SOURCE"]
BUILD = os.environ["FA_TEST_BUILD"]
MANAGER = "/lib/systemd/systemd"
SETTINGS = """[Service]
Environment=FA_TUNE_WORKER=%s FA_TUNE_NVRTC=%s
%s"""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def the_service_starts_what_is_installed():
    text = read(os.path.join(BUILD, "fa-tune.service"))
    program, = re.findall(r"^ExecStart=(\S+)$", text, re.MULTILINE)
    assert program.endswith("/libexec/fa-tune/fa-tune-serve"), program
    tap.lacks(text, "@SERVE")


def unit(folder):
    """The unit file in this folder; the program lies elsewhere until it is installed."""
    text = re.sub(r"^ExecStart=.*$", "ExecStart=" + os.path.join(BUILD, "fa-tune-serve"),
                  read(os.path.join(BUILD, "fa-tune.service")), flags=re.MULTILINE)
    path = os.path.join(folder, "fa-tune.service")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
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
    text = re.sub(r"(?m)^#.*\n", "", read(os.path.join(SOURCE, "Containerfile"))).replace("\\\n", " ")
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
    tap.equal(development - set(re.search(r"packages=\(([^)]*)\)", read(os.path.join(SOURCE, "dev")))[1].split()), set())


def the_image_builds_all_that_it_installs():
    text = read(os.path.join(SOURCE, "Containerfile")).replace("\\\n", " ")
    built = {word.partition(":")[0] for word in re.search(r"meson compile -C build ([^&\n]*)", text)[1].split()}
    info = os.path.join(BUILD, "meson-info")
    made_by = {file: target["name"] for target in json.loads(read(os.path.join(info, "intro-targets.json"))) for file in target["filename"]}
    plan = json.loads(read(os.path.join(info, "intro-install_plan.json")))["targets"]
    installed = {made_by[file] for file, of in plan.items() if of["tag"] == "runtime" and not of["destination"].startswith("{py_")}
    tap.equal(built, installed)


def control(*words, check=True):
    return subprocess.run(words, check=check, capture_output=True, text=True, timeout=DEADLINE).stdout.strip()


def ask(method, path, body=None):
    connection = Unix(os.path.join(os.environ["XDG_RUNTIME_DIR"], "fa-tune.sock"))
    connection.request(method, path, body and json.dumps(body))
    response = connection.getresponse()
    return [response.status, response.read().decode()]


def under_a_manager():
    """What this file does in a mount and process namespace of its own, with a user's systemd: prints what came of it."""
    run, folder = os.environ["XDG_RUNTIME_DIR"], os.path.join(os.environ["HOME"], ".config", "systemd", "user")
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    os.makedirs("/run/systemd/system")  # systemd wants to be told that it has booted this machine
    os.makedirs(run, mode=0o700)
    os.makedirs(os.path.join(folder, "fa-tune.service.d"))
    unit(folder)
    with subprocess.Popen([MANAGER, "--user", "--log-target=null"]) as manager:
        try:
            wait_for(lambda: subprocess.run(["systemctl", "--user", "list-units"], check=False,
                                            capture_output=True).returncode == 0, "a manager")
            # A container's /proc may be such that nothing can be mounted over its parts: without this one it is tried there.
            there = ["systemd-run", "--user", "--wait", "--quiet", "--property=PrivateUsers=yes"]
            lacks = [name for name in ("ProtectKernelTunables",) if subprocess.run(
                [*there, "--property=%s=yes" % name, "true"], check=False, capture_output=True).returncode != 0]
            with open(os.path.join(folder, "fa-tune.service.d", "here.conf"), "w", encoding="utf-8") as file:
                file.write(SETTINGS % (os.environ["FA_TUNE_WORKER"], os.environ["FA_TUNE_NVRTC"],
                                       "".join(name + "=no\n" for name in lacks)))
            control("systemctl", "--user", "daemon-reload")
            control("systemctl", "--user", "start", "fa-tune.service")
            told = {"lacks": lacks}
            try:
                wait_for(lambda: os.path.exists(os.path.join(run, "fa-tune.sock")), "its socket")
            except AssertionError as error:
                how = control("systemctl", "--user", "show", "fa-tune.service", "--property=Result,ExecMainStatus,NRestarts,ActiveState")
                raise AssertionError("%s; of the service: %s" % (error, how.split())) from error
            wait_for(lambda: ask("GET", "/readyz")[0] == 200, "a service that is ready")
            told["kernel"] = ask("POST", "/v1/kernel", {
                "problem": {"head_dim": 16, "batch": 1, "heads_q": 1, "seq_q": 128}, "gpu": "L4", "effort": "predict", "evaluations": 1})
            show = ["systemctl", "--user", "show", "fa-tune.service", "--value", "--property"]
            told["active"] = control(*show, "ActiveState")
            control("systemctl", "--user", "stop", "fa-tune.service")
            told["after"] = [control(*show, name) for name in ("ActiveState", "Result")]
            told["store"] = os.path.exists(os.path.join(os.environ["HOME"], ".cache", "fa-tune", "store.db"))
            print(json.dumps(told))
        finally:
            manager.kill()


def a_users_systemd_starts_it_and_kernels_are_compiled_there():
    if not os.path.exists(MANAGER) or shutil.which("unshare") is None:
        raise tap.Skip("no systemd here")
    if "san" in os.path.basename(BUILD):
        raise tap.Skip("a sanitizer's runtime makes calls that the unit filters")
    if os.path.realpath(BUILD).startswith(("/tmp/", "/var/tmp/")):
        raise tap.Skip("the build lies in /tmp, and the service has one of its own")
    with tempfile.TemporaryDirectory(dir=BUILD) as home:
        done = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--mount-proc", sys.executable, __file__, "inside"],
                              check=False, capture_output=True, text=True, timeout=4 * DEADLINE,
                              env=dict({name: value for name, value in os.environ.items() if name != "FA_TUNE_STORE" and not name.startswith("XDG_")},
                                       HOME=home, XDG_RUNTIME_DIR="/run/user/test"))
        if "unshare failed" in done.stderr or "mount" in done.stderr:
            raise tap.Skip("no namespaces here: " + done.stderr.strip()[-200:])
        assert done.returncode == 0, done.stderr[-4000:]
        told = json.loads(done.stdout.splitlines()[-1])
        tap.equal(told["active"], "active")
        status, answer = told["kernel"]
        tap.equal(status, 200)
        tap.has(answer, '"origin":"predicted"')
        tap.equal((told["after"], told["store"]), (["inactive", "success"], True))
        if told["lacks"]:
            print("# without %s, which this kernel does not let units have" % ", ".join(told["lacks"]))


if sys.argv[1:] == ["inside"]:
    under_a_manager()
    sys.exit(0)
tap.main([
    the_service_starts_what_is_installed,
    systemd_finds_nothing_wrong_with_it,
    the_image_has_every_library_that_the_programs_need,
    the_image_builds_all_that_it_installs,
    a_users_systemd_starts_it_and_kernels_are_compiled_there,
])
