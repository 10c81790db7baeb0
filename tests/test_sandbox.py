#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Source that is compiled in the worker's sandbox: what it asks the compiler to read is not there, and what it
makes the compiler do ends."""
import os

import tap
from place import Place, is_sanitized, write_manifest

SECRET = "Tr0ub4dor"
# On a T4 no family of ours serves it: nothing but a test's own is compiled.
WIDE = ["--gpu", "T4", "--head-dim", "512", "--batch", "1", "--heads", "2", "--seq", "128"]
ABSENT = "not open source file"
# What stands before the kernel, or in it, of each config but the first, and what its reason says; FOLDER is the test's own.
HOSTILE = [
    ('#include "/proc/self/environ"', ABSENT), ("#include </etc/passwd>", ABSENT), ('#include "FOLDER/secret"', ABSENT),
    ('#include "FOLDER/link"', ABSENT), ('#include "FOLDER/fifo"', ABSENT), ('#include "FOLDER/device"', ABSENT),
    ('#include "/proc/self/fd/3"', ABSENT), ('#include "/dev/zero"', ABSENT), ('#include "secret"', ABSENT),
    ('#include "../../../../../../../../../../etc/passwd"', ABSENT), ('%:include "FOLDER/secret"', ABSENT),
    ('#inc\\\nlude "FOLDER/secret"', ABSENT), ('# /* a */ include "FOLDER/secret"', ABSENT),
    ('#define WHERE "FOLDER/secret"\n#include WHERE', ABSENT), ('#line 1 "FOLDER/secret"\n#include __FILE__', ABSENT),
    ('#line 1 "FOLDER/secret"\n#error shown', "shown"), ('#include_next "FOLDER/secret"', ABSENT), ('#import "FOLDER/secret"', ""),
    ('#embed "FOLDER/secret"', "directive"), ("#pragma nvrtc --include-path=FOLDER\n#include <secret>", ABSENT),
    ("// --include-path=FOLDER --pre-include=secret\n#include <secret>", ABSENT),
    ('asm volatile(".incbin \\"FOLDER/secret\\";");', "ptxas"), ('asm volatile(".include \\"FOLDER/secret\\";");', "ptxas")]
# The first goes on for minutes, the second takes all the memory that it gets.
ENDLESS = ["""__device__ constexpr unsigned spin(unsigned n)
{ unsigned s = 0; for (unsigned i = 0; i < 100000; i++) s += i ^ n; return s; }
#define A0 static_assert(spin(1) != 77, "");
#define A1 A0 A0 A0 A0 A0 A0 A0 A0 A0 A0
#define A2 A1 A1 A1 A1 A1 A1 A1 A1 A1 A1
#define A3 A2 A2 A2 A2 A2 A2 A2 A2 A2 A2
#define A4 A3 A3 A3 A3 A3 A3 A3 A3 A3 A3
A4 A4 A4 A4 A4 A4 A4 A4 A4 A4""", "__device__ char huge[4000u << 20] = {1};"]


def tuned(place, texts, *more, status=0):
    """What a tune of a family with a config for each text says, and how the configs ended."""
    folder = place.env["FA_TUNE_TEMPLATES"] = os.path.join(place.folder, "templates")
    place.env["A_SECRET"] = SECRET
    os.makedirs(folder, exist_ok=True)
    write_manifest(folder, {"name": "mine", "operation": "attn_fwd", "kernel": "attn_fwd", "sm": {"min": 75, "max": 121},
                            "tune": {"WHICH": list(range(len(texts) + 1))}, "default": {"WHICH": 0}, "block": "128",
                            "shared_memory": {"q": "0"}, "registers": "32", "grid": ["1", "1", "1"]})
    cases = ["#if WHICH == %d\n%s\n#endif\n" % case for case in enumerate(texts, 1)]
    tap.write(os.path.join(folder, "mine.cu"), '#include "attn_params.h"\n%sextern "C" __global__ void attn_fwd(fa_attn_params p)\n{\n%s}\n' % (
                                        "".join(case for case in cases if "asm " not in case), "".join(case for case in cases if "asm " in case)))
    said = place.run(*WIDE, "--effort", "patient", *more, status=status).stderr
    rows = {row["config"]["tunables"]["WHICH"]: row for row in place.json("explain", *WIDE)["configs"]}
    tap.equal(sorted(rows), list(range(len(texts) + 1)))
    return said, [rows[which] for which in sorted(rows)]


def nothing_that_source_asks_for_is_there():
    with Place(space=None) as place:
        for name, make in (("link", lambda path: os.symlink("secret", path)), ("device", lambda path: os.symlink("/dev/tty", path)), ("fifo", os.mkfifo)):
            make(os.path.join(place.folder, name))
        tap.write(os.path.join(place.folder, "secret"), SECRET + "\n")
        said, rows = tuned(place, [text.replace("FOLDER", place.folder) for text, _ in HOSTILE])
        for row, (text, reason) in zip(rows, [("", "")] + HOSTILE):
            tap.equal((text, row["status"]), (text, "compile-failed" if text else "compiled"))
            tap.has(row["reason"], reason)
            tap.lacks(row["reason"], SECRET)
        tap.lacks(said, "note:")
        tap.lacks(tap.read(place.store, "rb"), SECRET.encode())


def source_that_never_ends_or_eats_memory_costs_its_own_trial():
    texts = ENDLESS[:1] if is_sanitized() else ENDLESS  # a sanitizer's worker has no bounds in memory
    for seconds in (1.2, 4.8, 19.2):  # on a busy machine even the harmless one takes longer
        with Place(space=None) as place:
            try:
                rows = tuned(place, texts, "--compile-timeout", "%gs" % seconds)[1]
            except AssertionError:  # nothing compiled in time
                continue
        if rows[0]["status"] == "compiled":
            break
    tap.equal([row["status"] for row in rows[:2]], ["compiled", "compile-timeout"])
    tap.has(rows[1]["reason"], "did not answer within %d ms" % (1000 * seconds))
    assert all(row["status"] in ("compile-failed", "compile-timeout") for row in rows[2:]), rows


def without_landlock_it_is_compiled_and_said():
    with Place(space=None) as place:
        place.env["FA_TUNE_WORKER"] = os.environ["FA_TEST_NO_LANDLOCK"]
        tap.has(tuned(place, [])[0], "this kernel has no Landlock")


tap.main()
