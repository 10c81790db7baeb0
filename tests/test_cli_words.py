#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command line says to people: hints that can be run, failures as documents, help,
colours."""
import json
import os
import re
import subprocess

import tap
from place import DEADLINE, EIGHT, FA_TUNE, SMALL, Place

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"


def hints(text):
    return re.findall(r"`([^`]*)`", text)


def type_in(place, command):
    """Runs a command as a person types it, fa-tune being on the path."""
    folder = os.path.join(place.folder, "path")
    if not os.path.exists(folder):
        os.mkdir(folder)
        os.symlink(FA_TUNE, os.path.join(folder, "fa-tune"))
    done = subprocess.run(["sh", "-c", command], env=dict(place.env, PATH=folder + ":" + place.env["PATH"]),
                          cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          encoding="utf-8", check=False, timeout=DEADLINE)
    assert done.returncode == 0, (command, done.stderr)
    return done.stdout


def the_hint_behind_a_tune_explains_that_very_problem():
    with Place(space={**EIGHT, "BLOCK_M": [64], "BLOCK_N": [64], "STAGES": [1]}) as place:
        os.mkdir(os.path.join(place.folder, "my store"), mode=0o700)
        store = ["--store", "my store/s.db"]
        for problem in (["--seq", "128"],
                        ["--seq-q", "64", "--seq-k", "128", "--dtype", "bf16", "--causal", "top-left", "--lse", "--batch", "1",
                         "--heads", "4", "--heads-kv", "2", "--unaligned", "--exact"]):
            told = place.run("--gpu", "L4", *problem, *store, "--effort", "predict").stdout
            hint, = hints(told)
            explained = type_in(place, hint)
            tap.equal(explained.splitlines()[0], told.splitlines()[0])
            tap.has(explained, "ranked: 1 passed")


def a_failure_under_json_is_a_document():
    with Place(space=None) as place:
        for arguments, status, parts in (
                (["--seq", "12x", "--json"], 2, ['--seq: "12x"']),
                (["tunee", "--json"], 2, ["did you mean tune?"]),
                (["--seq", "5", "--json"], 1, ["driver", "name a GPU type"]),
                (["show", "--json", "x.fab"], 2, ["x.fab"])):
            done = place.run(*arguments, status=status)
            document = json.loads(done.stdout)
            tap.equal(list(document), ["fa_tune", "error"])
            error = document["error"]
            tap.equal((error["exit_status"], len(error["sentences"])), (status, len(parts)))
            for sentence, part in zip(error["sentences"], parts):
                tap.has(sentence, part)
                tap.has(done.stderr, sentence)
        tap.equal(place.run("--seq", "12x", status=2).stdout, "")


def colour_is_for_terminals_and_can_be_had_or_left():
    with Place(space=None) as place:
        place.env["TERM"] = "xterm"
        tap.has(place.on_a_terminal("stdout", "help"), "\x1b[1m")
        tap.lacks(place.on_a_terminal("stdout", "help", "--color=never"), "\x1b")
        place.env["NO_COLOR"] = "1"
        tap.lacks(place.on_a_terminal("stdout", "help"), "\x1b")
        tap.has(place.run("gpus", "--color=always").stdout, "\x1b[1m")
        error = place.run("tunee", "--color=always", status=2).stderr
        assert error.startswith("\x1b[1;31mfa-tune:\x1b[0m "), error


def filters_of_report_are_those_of_show_and_of_gpus():
    with Place() as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        place.run("--gpu", "L4", *SMALL[:4], "--heads", "2", "--causal", "--quiet")
        for asked, count in (([], 2), (["--causal"], 1), (["--heads", "2"], 1), (["--seq", "128"], 2), (["--dtype", "bf16"], 0),
                             (["--gpu", "L4", "--heads", "1"], 1), (["--gpu", "T4"], 0)):
            tap.equal((asked, len(place.json("show", *asked)["winners"])), (asked, count))
        tap.has(place.run("show", "--seq", "127").stdout, "a length of 127 is stored as its bucket, 128")

    def types(*asked):
        return {gpu["name"]: gpu["refused"] for gpu in place.json("gpus", *asked)["gpus"]}

    with Place(space=None) as place:
        tap.equal(list(types("--gpu", "L4")), ["L4"] + [name for name in types() if "L4" in name and name != "L4"])
        assert len(types("--gpu", "A100")) == 4, types("--gpu", "A100")
        served = types("--kv-dtype", "fp8")
        tap.has(served["T4"], "no kernel family serves this problem on T4")
        tap.equal((served["L4"], types()["T4"]), (None, None))


tap.main([
    the_hint_behind_a_tune_explains_that_very_problem,
    a_failure_under_json_is_a_document,
    colour_is_for_terminals_and_can_be_had_or_left,
    filters_of_report_are_those_of_show_and_of_gpus,
])
