# SPDX-License-Identifier: Apache-2.0
"""A short run of libFuzzer on each target, where ./dev has built them; ./dev fuzz has longer ones."""
import os
import shutil
import subprocess
import tempfile

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
PROGRAMS = os.path.join(SOURCE, "build-fuzz", "tests", "fuzz")
CORPORA = os.path.join(SOURCE, "tests", "fuzz", "corpus")
PLAIN = os.path.join(SOURCE, "build") == os.environ["FA_TEST_BUILD"]
RUNS = {"bundle": 1000, "http": 1500, "lines": 5000, "specification": 1000}  # the others: 10000, which take a third of a second


def run(target):
    program = os.path.join(PROGRAMS, "fuzz_" + target)
    if not PLAIN:
        raise tap.Skip("only in the plain build's tests")
    if not os.path.exists(program):
        raise tap.Skip("not built with libFuzzer: ./dev test and ./dev fuzz do so; their corpora are replayed with changes by fuzz_%s" % target)
    folder = tempfile.mkdtemp(prefix="fuzz-")
    try:
        done = subprocess.run(
            [program, "-runs=%d" % RUNS.get(target, 10000), "-max_len=4096", "-timeout=60",
             "-rss_limit_mb=4096", "-print_final_stats=1", "-artifact_prefix=%s/" % folder, folder,
             os.path.join(CORPORA, target)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=500)
        text = done.stdout.decode("utf-8", "replace")
        for line in text.splitlines():
            if "DONE" in line or "number_of_executed_units" in line:
                print("# %s: %s" % (target, line))
        assert done.returncode == 0, text[-4000:]
        tap.has(text, "number_of_executed_units")
    finally:
        shutil.rmtree(folder)


def test_of(target):
    def test():
        run(target)
    test.__name__ = "%s_takes_what_libfuzzer_thinks_of" % target
    return test


tap.main([test_of(target) for target in sorted(os.listdir(CORPORA))])
