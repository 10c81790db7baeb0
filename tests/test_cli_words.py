#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the command line says to people: hints that can be run, failures as documents, narrow and dumb
terminals, figures that can be told apart."""
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
            tap.has(explained, "ranked: 1 came through")


def hints_name_the_program_as_it_was_called():
    with Place(space=None) as place:
        tap.equal(hints(place.run("sweep", "--status", status=1).stderr), ["fa-tune sweep --help"])
        tap.equal(hints(place.run("--seq", "5", status=1).stderr), ["fa-tune --gpu L4 --seq 512", "fa-tune gpus", "fa-tune doctor"])
        place.env["FA_TUNE_CALLED"] = "./dev"
        tap.equal(hints(place.run("sweep", "--status", status=1).stderr), ["./dev sweep --help"])
        tap.equal(hints(place.run("--seq", "5", status=1).stderr), ["./dev --gpu L4 --seq 512", "./dev gpus", "./dev doctor"])
        tap.equal(hints(place.run("trust", "list").stdout), ["./dev trust add KEY"])


def a_failure_under_json_is_a_document():
    with Place(space=None) as place:
        for arguments, status, parts in (
                (["--seq", "12x", "--json"], 2, ['--seq "12x"']),
                (["tunee", "--json"], 2, ["did you mean tune?"]),
                (["--seq", "5", "--json"], 1, ["driver", "name a GPU type"]),
                (["show", "--json", "x.fab"], 1, ["x.fab"])):
            done = place.run(*arguments, status=status)
            error = json.loads(done.stdout)["error"]
            tap.equal((error["exit_status"], len(error["sentences"])), (status, len(parts)))
            for sentence, part in zip(error["sentences"], parts):
                tap.has(sentence, part)
                tap.has(done.stderr, sentence)
        tap.equal(place.run("--seq", "12x", status=2).stdout, "")


def names_of_types_that_others_use_are_taken():
    with Place(space=None) as place:
        for name, dtype in (("float16", "fp16"), ("FP16", "fp16"), ("half", "fp16"), ("bfloat16", "bf16"), ("BF16", "bf16")):
            tap.equal(place.json("explain", "--gpu", "L4", "--seq", "64", "--dtype", name, "--top", "1")["problem"]["dtype"], dtype)


def doctor_advises_what_helps():
    def store(place):
        check, = [check for check in place.json("doctor", status=1)["checks"] if check["name"] == "store"]
        return check["text"], check["advice"]

    with Place(space=None) as place:
        shared = os.path.join(place.folder, "shared")
        os.mkdir(shared)
        os.chmod(shared, 0o777)
        place.env["FA_TUNE_STORE"] = os.path.join(shared, "store.db")
        text, advice = store(place)
        tap.has(text, "mode 0777")
        assert advice.startswith("chmod go-w %s, or set FA_TUNE_STORE" % shared), advice
        del place.env["FA_TUNE_STORE"], place.env["HOME"]
        text, advice = store(place)
        tap.has(text, "HOME is not set")
        tap.equal(advice, "set FA_TUNE_STORE to a file")


def times_of_a_model_have_three_digits():
    with Place(space=None) as place:
        times = re.findall(r"~(\S+) µs", place.run("explain", "--gpu", "L4", "--seq", "512").stdout)
        assert len(times) > 50 and len(set(times[:10])) > 3, times
        for time in times:
            assert len(time.replace(".", "")) >= 3, time


def a_problem_that_no_card_holds_says_so_and_why_nothing_fits():
    with Place(space=None) as place:
        told = place.run("explain", "--gpu", "L4", "--seq", "1000000000", "--top", "1").stdout
        tap.has(told, "its tensors take 15,259 GiB: no GPU has so much memory")
        tap.lacks(place.run("explain", "--gpu", "L4", "--seq", "4096", "--top", "1").stdout, "GiB")
        done = place.run("--gpu", "L4", "--seq", "512", "--batch", "1000000000", status=1)
        assert re.search(r"no config of \d+ fits: the grid's x is [\d,]+: at most 2,147,483,647", done.stderr), done.stderr
        tap.has(done.stderr, "no GPU has so much memory")


def what_no_family_serves_is_told_by_the_families_for_that_gpu():
    with Place(space=None) as place:
        refused = place.run("--gpu", "T4", "--seq", "512", "--dtype", "bf16", status=1).stderr
        tap.equal(refused, "fa-tune: no kernel family serves this problem on T4: attn_fwd_sm75: Turing's matrix units multiply "
                           "fp16, not bf16; 5 more are for other GPUs\n")


def a_narrow_terminal_gets_whole_lines_and_a_dumb_one_no_escapes():
    with Place(script=L4) as place:
        place.env["TERM"] = "dumb"
        text = place.on_a_terminal("stderr", *SMALL)
        tap.lacks(text, "\x1b")
        tap.lacks(text, "\u2591")
        tap.has(text, "compiling with")
        place.env["TERM"] = "xterm"
        text = place.on_a_terminal("stderr", *SMALL, "--again", columns=60)
        drawn = [line for line in re.split(r"[\r\n]", text.replace("\x1b[K", "")) if line and "/" in line]
        assert drawn and max(map(len, drawn)) < 60, drawn
        ranking = place.run(*SMALL).stdout.splitlines()
        cells = [line.split()[-1] for line in ranking if re.match(r" *\d+  attn", line)]
        assert len(cells) == 8 and all(re.fullmatch(r"\d\.\d\d×|-", cell) for cell in cells), ranking


tap.main([
    the_hint_behind_a_tune_explains_that_very_problem,
    hints_name_the_program_as_it_was_called,
    a_failure_under_json_is_a_document,
    names_of_types_that_others_use_are_taken,
    doctor_advises_what_helps,
    times_of_a_model_have_three_digits,
    a_problem_that_no_card_holds_says_so_and_why_nothing_fits,
    what_no_family_serves_is_told_by_the_families_for_that_gpu,
    a_narrow_terminal_gets_whole_lines_and_a_dumb_one_no_escapes,
])
