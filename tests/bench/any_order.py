#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""any_order.py BUILD RUNS [SEED]: runs every test of a build folder RUNS times, each time in another random order and as another user's machine: another
HOME, TZ, umask, locale and a small limit of descriptors, beside two processes that keep the cores busy. Prints a line a run and each failure."""
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

NOT_OK = re.compile(r"^not ok .*$", re.M)


def one(test, env, mask):
    def become():
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))

    try:
        done = subprocess.run(test["cmd"], env={**os.environ, **test["env"], **env}, cwd=test["workdir"], preexec_fn=become, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=10 * test["timeout"], check=False)
    except subprocess.TimeoutExpired:
        return test["name"], ["out of time"], 0
    text = done.stdout.decode("utf-8", "replace")
    bad = [line for line in NOT_OK.findall(text) if "# SKIP" not in line] or (["exit status %d" % done.returncode] if done.returncode else [])
    return test["name"], bad and bad + text.splitlines()[-40:], len(re.findall(r"(?m)^ok ", text))


def run(tests, seed):
    draw = random.Random(seed)
    draw.shuffle(tests)
    mask = draw.choice([0o022, 0o077, 0o027])
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o711)  # some tests become another user
        env = {"HOME": home, "TZ": draw.choice(["UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia"]), "TMPDIR": home,
               "LC_ALL": draw.choice(["C", "C.UTF-8", "POSIX", "xx_XX"]), "XDG_CACHE_HOME": os.path.expanduser("~/.cache")}
        started = time.monotonic()
        with ThreadPoolExecutor(3 * (os.cpu_count() or 1)) as pool:
            done = list(pool.map(lambda test: one(test, env, mask), tests))
    failed = [(name, bad) for name, bad, _ in done if bad]
    print("seed %d: %d passed, %d failed, TZ %s, LC_ALL %s, umask %03o, 256 descriptors, %.0f s" % (
        seed, sum(passed for _, _, passed in done), len(failed), env["TZ"], env["LC_ALL"], mask, time.monotonic() - started), flush=True)
    for name, bad in failed:
        print("  %s: %s" % (name, "\n    ".join(bad)), flush=True)
    return not failed


def main():
    build, runs = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    first = int(sys.argv[3]) if len(sys.argv) > 3 else random.randrange(1 << 30)
    with open(os.path.join(build, "meson-info", "intro-tests.json"), encoding="utf-8") as file:
        tests = json.load(file)
    for test in tests:
        test["workdir"] = test["workdir"] or build
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    try:
        right = sum(run(list(tests), first + i) for i in range(runs))
    finally:
        for process in busy:
            process.kill()
    print("%d of %d runs without a failure" % (right, runs))
    return right < runs


sys.exit(main())
