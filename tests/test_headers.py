#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The public headers compile alone, as C11 and as C++, and name exactly what the library exports."""
import os
import re
import shutil
import subprocess

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
BUILD = os.environ["FA_TEST_BUILD"]
FOLDER = os.path.join(SOURCE, "include", "fa-tune")
HEADERS = sorted(os.listdir(FOLDER))


def compile_alone(header, compiler, language, standard):
    if shutil.which(compiler) is None:
        raise tap.Skip("no %s" % compiler)
    done = subprocess.run(
        [compiler, "-x", language, "-std=" + standard, "-Wall", "-Wextra", "-Wpedantic", "-Werror",
         "-fsyntax-only", "-I", FOLDER, "-include", os.path.join(FOLDER, header), "-"],
        input="int unit;\n", capture_output=True, text=True, check=False)
    tap.equal((done.returncode, done.stderr), (0, ""))


def public_headers_compile_alone_as_c11():
    for header in HEADERS:
        compile_alone(header, os.environ.get("CC", "cc"), "c", "c11")


def public_headers_compile_alone_as_cpp():
    for header in HEADERS:
        compile_alone(header, os.environ.get("CXX", "c++"), "c++", "c++11")


def public_headers_include_each_other_in_no_circle():
    includes = {}
    for header in HEADERS:
        includes[header] = re.findall(r'^#include "(\w+\.h)"', tap.read(os.path.join(FOLDER, header)), re.MULTILINE)
    left = set(HEADERS)
    while left:
        free = {header for header in left if not left & set(includes[header])}
        assert free, "a circle among %s" % ", ".join(sorted(left))
        left -= free


def declared():
    names = set()
    for header in HEADERS:
        names |= set(re.findall(r"^FA_API\b[^(;]*?\b(fa_\w+)\(", tap.read(os.path.join(FOLDER, header)), re.MULTILINE))
    return names


def the_library_exports_what_the_header_declares_and_nothing_else():
    if shutil.which("nm") is None:
        raise tap.Skip("no nm")
    done = subprocess.run(["nm", "-D", "--defined-only", os.path.join(BUILD, "libfa_tune.so")],
                          capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    exported = {}
    for name, _, version in (row[-1].partition("@@") for row in rows if row[-2] != "A"):
        exported.setdefault(re.sub(r"^FA_TUNE_PRIVATE_[\d.]+$", "of our programs", version), []).append(name)
    assert len(declared()) > 15, "too few declarations were found: %r" % declared()
    tap.equal(sorted(exported), ["FA_TUNE_0.2", "of our programs"])
    tap.equal(sorted(exported["FA_TUNE_0.2"]), sorted(declared()))


def library_and_programs_need_no_cuda_library():
    for name in ("libfa_tune.so", "fa-tune", "fa-tune-worker"):
        done = subprocess.run(["readelf", "--dynamic", os.path.join(BUILD, name)], capture_output=True, text=True, check=True)
        tap.equal(re.findall(r"lib(?:cuda|cudart|nvrtc|nvidia-ml)\S*", done.stdout), [])


tap.main()
