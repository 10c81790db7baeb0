#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/promises.md says which tests hold what never happens: they exist and they run. And two promises that
the sources themselves show."""
import os
import re
import subprocess

import tap
from place import BUILD, SOURCE

TESTS = os.path.join(SOURCE, "tests")
# What ends a process or writes to a terminal. Assertions of our own invariants are none of a caller's doing.
ENDS_OR_PRINTS = {"abort", "exit", "_exit", "_Exit", "quick_exit", "raise", "printf", "fprintf", "vprintf", "vfprintf",
                  "puts", "fputs", "putc", "putchar", "fputc", "perror", "psignal", "err", "errx", "warn", "warnx",
                  "syslog", "stdout", "stderr",
                  "__tls_get_addr"}  # a thread's variable that is made at its first access, or the process ends
# This machine, and the names and networks that are reserved for examples. A name without a dot is nobody's.
HERE = re.compile(r"^(127\.[0-9.]+|0\.0\.0\.0|[^.]*|.*(^|\.)(example|invalid|test)(\.(org|com|net))?"
                  r"|192\.0\.2\.\d+|198\.51\.100\.\d+|203\.0\.113\.\d+|.*[%{$<\\].*)$")


def read(*path):
    return tap.read(os.path.join(*path))


def entries():
    """The list's entries, each on one line."""
    return re.findall(r"(?m)^- (.*)$", re.sub(r"\n +", " ", read(SOURCE, "docs", "promises.md")))


def promises():
    """(promise, file, test) of each test that the list names; the test is None where it names all of a file."""
    for entry in entries():
        for file, names in re.findall(r"`(test_\w+\.(?:c|py))`:? ?((?:`\w+`(?:, )?)*)", entry):
            for name in re.findall(r"`(\w+)`", names) or [None]:
                yield entry.partition(": `test")[0], file, name


def each_promise_is_held_by_tests_that_run():
    listed = read(TESTS, "meson.build")
    held = list(promises())
    assert len({promise for promise, _, _ in held}) >= 10, "the list has lost entries"
    for promise, file, name in held:
        assert os.path.exists(os.path.join(TESTS, file)), "%s: there is no %s" % (promise, file)
        tap.has(listed, "'%s'" % file.rsplit(".", 1)[0])
        if name is None:
            continue
        text = read(TESTS, file)
        if file.endswith(".py"):  # tap.py's rule
            assert re.search(r"(?m)^def (?=\w+_\w+_)%s\(\):" % name, text), "%s: %s has no test %s" % (promise, file, name)
            continue
        assert re.search(r"(?m)^\w*TEST(?:_WITHIN\(\w+, |\()%s[,)]" % name, text), "%s: %s has no test %s" % (promise, file, name)


def every_line_names_a_test():
    tap.equal([entry for entry in entries() if "`test_" not in entry], [])


def the_library_calls_nothing_that_ends_a_process_or_prints():
    done = subprocess.run(["nm", "--dynamic", "--undefined-only", os.path.join(BUILD, "libfa_tune.so")], check=True,
                          stdout=subprocess.PIPE, encoding="ascii", timeout=60)
    called = {re.sub(r"^__(\w+)_chk$", r"\1", line.split()[1].split("@")[0]) for line in done.stdout.splitlines()}
    assert "malloc" in called and "snprintf" in called or "vsnprintf" in called, "nm shows nothing"
    tap.equal(called & ENDS_OR_PRINTS, set())
    tap.equal([name for name in called if name.startswith("uv_")], [])  # libuv ends its process for want of descriptors


def tests_name_no_host_of_the_network():
    found = []
    for folder, _, names in os.walk(TESTS):
        for name in names:
            if not name.endswith((".c", ".h", ".py")) or "bench" in folder:
                continue
            text = read(folder, name)
            for host in re.findall(r"(?:https?|postgres(?:ql)?)://(?:[^\s\"'/@]*@)?([^\s\"'/:?,;)]*)", text):
                if not HERE.match(host):
                    found.append((name, host))
    tap.equal(found, [])


tap.main()
