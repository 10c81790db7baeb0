#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions say what the programs take: every option of every verb's --help."""
import os
import re
import shutil
import subprocess

import tap
from place import BUILD, DEADLINE, Place


def made(name):
    return tap.read(os.path.join(BUILD, name))


def helps(place):
    """verb -> the options that its --help lists"""
    verbs = re.findall(r"(?m)^  ([a-z]+)  +[a-z]", place.run("help").stdout)
    return {verb: re.findall(r"(?m)^  (?:    |-., )?(--[a-z0-9-]+)", place.run(verb, "--help").stdout) for verb in verbs}


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


# What a shell offers behind each line of its input: one offer a line, and a dot alone behind the last. zsh has no way to ask for it but at a
# terminal of its own, which takes all lines: its completion takes a quarter of a second to set up.
OFFERS = {
    "bash": """source "$1/fa-tune.bash"
while IFS= read -r line; do
    IFS=' ' read -ra COMP_WORDS <<<"$line."; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_WORDS[COMP_CWORD]=${COMP_WORDS[COMP_CWORD]%.}
    COMPREPLY=(); _fa_tune; printf '%s\\n' "${COMPREPLY[@]}" .; done""",
    "fish": """source $argv[2]/fa-tune.fish; while read -l line; complete -C "$line" | string replace -r '\\t.*' ''; echo .; end""",
    "zsh": """cat >$ZDOTDIR/.zshrc <<END
PROMPT=; fpath=($1 \\$fpath); autoload -Uz compinit; compinit -u -D
compadd() { local -a found; builtin compadd -O found "\\$@"; print -rl -- "<"\\$^found">" >/dev/tty; builtin compadd "\\$@" }
offer() { zle complete-word; print ready >/dev/tty; zle kill-buffer }; zle -N offer; bindkey "^I" offer
END
zmodload zsh/zpty
zpty shell zsh -d -i
while IFS= read -r line; do
    all=; zpty -n -w shell "$line"$'\\t'
    while zpty -r shell row '*'$'\\n' && [[ $row != *ready* ]]; do all+=$row; done
    print -r -- "$all" | grep -oE '<[^<> ]+>' | tr -d '<>'; echo .; done""",
}


def completed(shell, lines):
    """What a shell offers behind each line, which are lists of words."""
    with Place(space=None) as place:
        start = [shell, "-f", "-c"] if shell == "zsh" else [shell, "-c"]
        done = subprocess.run([*start, OFFERS[shell], shell, BUILD], input="".join(" ".join(words) + "\n" for words in lines),
                              stdout=subprocess.PIPE, encoding="utf-8", check=True, timeout=DEADLINE,
                              env={**os.environ, **dict.fromkeys(("HOME", "ZDOTDIR", "XDG_CONFIG_HOME"), place.folder)})
    found, end = re.split(r"(?m)^\.\n", done.stdout), len(lines)
    tap.equal(found[end:], [""])
    return [sorted(set(offers.split())) for offers in found[:end]]


def check_completions(shell):
    if shutil.which(shell) is None:
        raise tap.Skip("there is no %s here" % shell)
    expected = ((["exp"], ["explain", "export"]),
                (["--dt"], ["--dtype"]),
                (["tune", "--dtype", ""], ["bf16", "fp16"]),
                (["--dtype", "b"], ["bf16"]),
                (["hel"], ["help"]),
                (["gpus", "--qx"], []),
                (["sweep", "--causal", "b"], ["both", "bottom-right"]),
                (["sweep", "--dtype", "fp16,b"], ["fp16,bf16"]),
                (["sweep", "--dtype", "fp16,"], ["fp16,bf16"]),
                (["sweep", "--dtype", "fp16,bf16,"], []),
                (["sweep", "--gpu", "L4,H100"], ["L4,H100-PCIe", "L4,H100-SXM"]),
                (["tune", "--strategy", "a"], ["auto"]),
                (["explain", "--operation", "rms"], ["rms_norm"]),
                (["sweep", "--effort", "c"], []),
                (["tune", "--effort", "c"], ["cached"]),
                (["explain", "--gpu", "H100"], ["H100-PCIe", "H100-SXM"]))
    *found, maximum = completed(shell, [["fa-tune", *words] for words, _ in expected] + [["fa-tune", "serve", "--max"]])
    for (words, offered), found in zip(expected, found, strict=True):
        if shell == "fish":  # offers words that hold what was typed, too
            found = [word for word in found if word.startswith(words[-1])]
        if shell == "zsh":  # offers what stands behind the comma
            offered = [word.rpartition(",")[2] for word in offered]
        tap.equal((words, found), (words, offered))
    tap.has(maximum, "--max-tunes")


def bash_completes_verbs_options_and_values():
    check_completions("bash")


def zsh_completes_verbs_options_and_values():
    check_completions("zsh")


def fish_completes_verbs_options_and_values():
    check_completions("fish")


def names_of_gpus_that_are_completed_are_taken():
    with Place(space=None) as place:
        for gpu in completed("bash", [["fa-tune", "explain", "--gpu", "H100"]])[0]:
            tap.equal(place.json("explain", "--gpu", gpu, "--seq", "64", "--top", "1")["gpu"]["name"], gpu.replace("-", " "))


def zsh_and_fish_know_every_option():
    with Place(space=None) as place:
        told = helps(place)
    zsh, fish = made("_fa-tune"), made("fa-tune.fish")
    for verb, options in told.items():
        part = zsh[zsh.index("\n%s)\n" % verb):]
        part = part[:part.index(";;")]
        tap.equal(re.findall(r"'(--[a-z0-9-]+)\[", part), options)
        tap.equal(re.findall(r"__fa_tune_verb\) = %s' -l (\S+)" % verb, fish), [option[2:] for option in options])


tap.main()
