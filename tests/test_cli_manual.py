#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions say what the programs take: every option of every verb's --help."""
import os
import re
import shutil
import subprocess

import tap
from place import BUILD, Place


def made(name):
    with open(os.path.join(BUILD, name), encoding="utf-8") as file:
        return file.read()


def helps(place):
    """verb -> the options that its --help lists"""
    verbs = re.findall(r"(?m)^  ([a-z]+)  +[a-z]", place.run("help").stdout.split("\n\nOptions of tune")[0])
    return {verb: re.findall(r"(?m)^  (--[a-z-]+)", place.run(verb, "--help").stdout) for verb in verbs if verb != "help"}


def every_verb_has_a_page_with_every_option():
    with Place(space=None) as place:
        told = helps(place)
    assert len(told) > 12 and "--head-dim" in told["tune"] and "--tcp" in told["serve"], told
    overview = made("fa-tune.1").replace("\\-", "-")
    for verb, options in told.items():
        text = made("fa-tune-%s.1" % verb).replace("\\-", "-")
        tap.has(overview, "fa-tune-%s (1)" % verb)
        tap.equal(re.findall(r"(?m)^\.BI (--\S+)", text), options)
        tap.lacks(text, "usage:")


def manual_pages_are_valid():
    if shutil.which("groff") is None:
        raise tap.Skip("there is no groff here")
    for name in sorted(os.listdir(BUILD)):
        if name.endswith(".1"):
            done = subprocess.run(["groff", "-man", "-ww", "-z", "-Kutf8", os.path.join(BUILD, name)],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=True)
            tap.equal((name, done.stdout), (name, ""))


def completed(*words):
    script = 'source %s/fa-tune.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _fa_tune; printf "%%s\\n" "${COMPREPLY[@]}"' % BUILD
    done = subprocess.run(["bash", "-c", script, "bash", *words], stdout=subprocess.PIPE, encoding="utf-8", check=True)
    return done.stdout.split()


def bash_completes_verbs_options_and_values():
    tap.equal(completed("fa-tune", "exp"), ["explain", "export"])
    tap.equal(completed("fa-tune", "--dt"), ["--dtype"])
    tap.equal(completed("fa-tune", "tune", "--dtype", ""), ["fp16", "bf16"])
    tap.equal(completed("fa-tune", "--dtype", "b"), ["bf16"])
    tap.equal(completed("fa-tune", "help", "tr"), ["trust"])
    tap.equal(completed("fa-tune", "gpus", "--q"), [])
    tap.has(completed("fa-tune", "serve", "--max"), "--max-jobs")
    gpus = completed("fa-tune", "explain", "--gpu", "H100")
    tap.equal(gpus, ["H100-PCIe", "H100-SXM"])
    with Place(space=None) as place:
        for gpu in gpus:
            tap.equal(place.json("explain", "--gpu", gpu, "--seq", "64", "--top", "1")["gpu"]["name"], gpu.replace("-", " "))


def zsh_and_fish_know_every_option():
    with Place(space=None) as place:
        told = helps(place)
    zsh, fish = made("_fa-tune"), made("fa-tune.fish")
    for verb, options in told.items():
        part = zsh[zsh.index("\n%s)\n" % verb):]
        part = part[:part.index(";;")]
        tap.equal(re.findall(r"'(--[a-z-]+)\[", part), options)
        tap.equal(re.findall(r"seen_subcommand_from %s' -l (\S+)" % verb, fish), [option[2:] for option in options])
    for shell, name in (("zsh", "_fa-tune"), ("fish", "fa-tune.fish")):
        if shutil.which(shell) is not None:
            subprocess.run([shell, "-n", os.path.join(BUILD, name)], check=True)


tap.main([
    every_verb_has_a_page_with_every_option,
    manual_pages_are_valid,
    bash_completes_verbs_options_and_values,
    zsh_and_fish_know_every_option,
])
