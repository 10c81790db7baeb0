#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every command of README.md, CONTRIBUTING.md and docs/ is run as it is written: what stands in blocks
that begin with ```sh, page by page, in one shell session a page.

A comment above a block, which a reader of the page does not see, says what is special about it:

    <!-- test: skip, WHY -->             counted as a skip
    <!-- test: on a GPU -->              from here on the fake driver is there: an L4
    <!-- test: runs on until FILE -->    goes on in the background until the page's end; FILE says it is ready
    <!-- test: with NAME=VALUE -->       the page's environment has this from here on; $PWD is the folder
    <!-- test: file NAME -->             no command: the block is written to this file (in any language)

Pages run in one folder that looks like the checkout: `dev` stands for ./dev and knows the same verbs, `sudo`
installs below the folder what is built, and ncu is a recorded one. Families have two configs there and the convolution has eight, so that a tune compiles next to nothing."""
import glob
import json
import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import time

import tap
from place import BUILD, DEADLINE, FA_TUNE, SOURCE, Place, eight_of_conv2d

PAGES = ["README.md", "CONTRIBUTING.md", "system/README.md",
         *sorted(os.path.relpath(path, SOURCE) for path in glob.glob(os.path.join(SOURCE, "docs/*.md")))]
SPACE = {"BLOCK_M": [64, 128], "BLOCK_N": [64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}
L4 = "device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n"
BLOCK = re.compile(r"(?m)(?:^<!-- test: (?P<marker>.*) -->\n)?^```(?P<language>\w*)\n(?P<body>(?:.*\n)*?)```$")


def linked_with():
    return re.search(r"(?m)^ LINK_ARGS = (.*)$", tap.read(os.path.join(BUILD, "build.ninja"))).group(1)


def write_program(path, text):
    tap.write(path, "#!/bin/bash\n" + text)
    os.chmod(path, 0o700)


def verbs_of_dev():
    """The verbs that ./dev hands to fa-tune."""
    told = re.search(r"(?s)^case \$\{1-help\} in\n(.*?)\)", tap.read(os.path.join(SOURCE, "dev")), re.M).group(1)
    return [word for word in re.split(r"[\s|\\]+", told) if re.fullmatch(r"[a-z]+", word)]


def furnish(place):
    """Makes the place's folder look like a checkout that was built."""
    tools = os.path.join(place.folder, "tools")
    os.mkdir(tools)
    for name in ("docs", "examples", "system", "kernel_templates"):
        os.symlink(os.path.join(SOURCE, name), os.path.join(place.folder, name))
    os.makedirs(os.path.join(place.folder, "tests", "specifications"))
    eight_of_conv2d(os.path.join(place.folder, "tests", "specifications"))
    os.symlink(BUILD, os.path.join(place.folder, "build"))
    os.symlink(FA_TUNE, os.path.join(tools, "fa-tune"))
    write_program(os.path.join(tools, "sudo"), 'DESTDIR="%s/installed" exec "$@" --no-rebuild\n' % place.folder)
    write_program(os.path.join(place.folder, "dev"),
                  'case $1 in\n%s) exec fa-tune "$@" ;;\nbuild) ;;\n*) echo "no ./dev $1" >&2; exit 1 ;;\nesac\n'
                  % " | ".join(verbs_of_dev()))
    place.env["PATH"] = tools + ":" + place.env["PATH"]
    place.env["XDG_RUNTIME_DIR"] = os.path.join(place.folder, "run")
    os.mkdir(place.env["XDG_RUNTIME_DIR"], stat.S_IRWXU)
    # README's install goes below the folder; programs that are linked with the library find it there.
    told = tap.read(os.path.join(BUILD, "meson-private", "fa-tune.pc"))
    prefix, libdir = (re.search(r"(?m)^%s=(.*)$" % name, told).group(1) for name in ("prefix", "libdir"))
    place.prefix = place.folder + "/installed" + prefix
    libdir = place.folder + "/installed" + libdir.replace("${prefix}", prefix)
    place.env.update(PKG_CONFIG_SYSROOT_DIR=place.folder + "/installed", PKG_CONFIG_PATH=libdir + "/pkgconfig",
                     LD_LIBRARY_PATH=libdir, FA_TUNE_WORKER=os.environ["FA_TUNE_WORKER"])


class Session:
    """One page's shell: variables and the folder stay from block to block."""

    def __init__(self, place, gpu_env):
        self.place, self.gpu_env, self.running = place, gpu_env, []
        self.state = os.path.join(place.folder, "state")
        if os.path.exists(self.state):
            os.remove(self.state)

    def end(self):
        for process in self.running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(DEADLINE)

    def start(self, body, env, log):
        exports = "".join("export %s=%s\n" % (name, shlex.quote(value)) for name, value in env.items())
        script = "set -eo pipefail\n[ ! -e %s ] || . %s\n%s%s\nexport -p >%s\n" % (
            self.state, self.state, exports, body, self.state)
        return subprocess.Popen(["bash", "-c", script], cwd=self.place.folder, env=self.place.env, stdin=subprocess.DEVNULL,
                                stdout=log, stderr=log, start_new_session=True)

    def run(self, marker, body):
        kind, _, rest = marker.partition(" ")
        env = {}
        if marker == "on a GPU":
            env = self.gpu_env
        elif kind == "with":
            name, _, value = rest.partition("=")
            env = {name: value.replace("$PWD", self.place.folder)}
        else:
            assert kind in ("", "runs"), marker
        with open(os.path.join(self.place.folder, "log"), "w+b") as log:
            process = self.start(body, env, log)
            if kind == "runs":
                self.running.append(process)
                self.wait_for(re.fullmatch("on until (.*)", rest).group(1), process)
            elif process.wait(DEADLINE) != 0:
                log.seek(0)
                raise AssertionError("exit status %d:\n%s\n%s" % (
                    process.returncode, body, log.read().decode("utf-8", "replace")[-3000:]))

    def wait_for(self, name, process):
        until = time.monotonic() + DEADLINE
        while not os.path.exists(os.path.join(self.place.folder, name)):
            assert process.poll() is None, "it ended with status %d before %s was there" % (process.returncode, name)
            assert time.monotonic() < until, name
            time.sleep(0.02)


def test_of(session, page, line, marker, body):
    def run():
        if marker.startswith("skip"):
            raise tap.Skip(marker.partition(",")[2].strip())
        if re.search(r"(?m)^cc ", body) and "-fsanitize" in linked_with():
            raise tap.Skip("a program without a sanitizer cannot be linked with a library that has one")
        if re.search(r"(?m)^curl ", body) and shutil.which("curl") is None:
            raise tap.Skip("there is no curl here")
        session().run(marker, body)
    run.__name__ = re.sub(r"\W+", "_", "%s_line_%d" % (page, line))
    return run


def file_of(session, page, name, body):
    def write():
        path = os.path.join(session().place.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        tap.write(path, body)
    write.__name__ = re.sub(r"\W+", "_", "%s_file_%s" % (page, name))
    return write


def tests_of(page, open_session):
    text = tap.read(os.path.join(SOURCE, page))
    opened = []  # the page's session, from its first block on

    def session():
        if not opened:
            opened.append(open_session())
        return opened[0]

    for block in BLOCK.finditer(text):
        marker, line = block["marker"] or "", text.count("\n", 0, block.start("body")) + 1
        if marker.startswith("file "):
            yield file_of(session, page, marker[5:], block["body"])
        elif block["language"] == "sh":
            yield test_of(session, page, line, marker, block["body"])
        else:
            assert marker == "", "%s:%d: a mark on a block that is no command" % (page, line)


def what_readme_shows_of_a_tune_is_what_it_prints():
    def bare(text):
        """Without what differs from machine to machine."""
        return re.sub(r" in [\d.]+ s \(\d+ workers?\)", "", text).split()
    command, shown = re.search(r"(?m)^\$ \./dev (tune .*)\n((?:.+\n)+)```", tap.read(os.path.join(SOURCE, "README.md"))).groups()
    with Place(space=None) as place:
        place.env.update(HOME=place.folder, FA_TUNE_STORE=os.path.join(place.folder, ".cache/fa-tune/store.db"))
        told = place.run(*command.split()).stdout
    tap.equal(bare(told), bare(shown))


def every_marker_stands_above_a_block():
    for page in PAGES:
        text = tap.read(os.path.join(SOURCE, page))
        tap.equal((page, text.count("<!-- test:")), (page, sum(1 for block in BLOCK.finditer(text) if block["marker"])))


def main():
    sessions = []
    with Place(space=SPACE, script=L4) as place:
        names = ("FA_TUNE_LIBCUDA", "FAKE_CUDA_SCRIPT")
        gpu_env = {name: place.env.pop(name) for name in names}
        place.env["FA_TUNE_LIBCUDA"] = os.path.join(place.folder, "no-libcuda.so.1")
        furnish(place)

        def installed_programs_find_what_belongs_to_them():
            """Below another folder than the one that they were built for; `worker` is of the library that they load."""
            env = {"PATH": "/usr/bin:/bin", "HOME": place.folder, "LD_LIBRARY_PATH": BUILD}
            done = subprocess.run([place.prefix + "/bin/fa-tune", "doctor", "--json"], env=env, stdout=subprocess.PIPE, check=False)
            worker, = [check["text"] for check in json.loads(done.stdout)["checks"] if check["name"] == "worker"]
            tap.equal(os.path.realpath(worker), place.prefix + "/libexec/fa-tune/fa-tune-worker")

        def open_session():
            for session in sessions:
                session.end()
            sessions.append(Session(place, gpu_env))
            return sessions[-1]

        try:
            tap.main([every_marker_stands_above_a_block, what_readme_shows_of_a_tune_is_what_it_prints,
                      *[test for page in PAGES for test in tests_of(page, open_session)],
                      installed_programs_find_what_belongs_to_them])
        finally:
            for session in sessions:
                session.end()


main()
