#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Manual pages and completions from the option tables, at build time: from what `fa-tune help --json` says.

    manual.py FA_TUNE FOLDER FILE...     writes each FILE of these into FOLDER:
                                         fa-tune.1 fa-tune-VERB.1 fa-tune.bash _fa-tune fa-tune.fish
"""
import json
import os
import re
import subprocess
import sys


def read_help(fa_tune):
    told = json.loads(subprocess.run([fa_tune, "help", "--json"], stdout=subprocess.PIPE, check=True).stdout)
    told["gpus"] = [name.replace(" ", "-") for name in told["gpus"]]  # --gpu takes both
    return told


def values_of(told, option):
    """The values that an option's value is one of; []: any."""
    return told["gpus"] if option["name"] == "--gpu" else option["choices"]


def takes_file(option):
    return option.get("value") in ("FILE", "DIR")


# ---- manual pages ------------------------------------------------------------------------------------
def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"(?m)^([.'])", r"\\&\1", text)


def roff_details(details):
    """Paragraphs are filled; lines that stand in from the margin stay as they are."""
    for paragraph in details.strip("\n").split("\n\n"):
        yield ".PP"
        if paragraph.startswith("  "):
            yield ".nf\n%s\n.fi" % roff(paragraph)
        else:
            yield roff(paragraph)


def roff_options(verb):
    for option in verb["options"]:
        value = ' " %s"' % roff(option["value"]) if option.get("value") else ""
        short = ".B %s\n.TQ\n" % roff(option["short"]) if "short" in option else ""
        yield ".TP\n%s.BI %s%s\n%s" % (short, roff(option["name"]), value, roff(option["help"]))


def page(name, told, summary, synopsis, body):
    yield '.TH %s 1 "" "fa\\-tune %s" "fa\\-tune"' % (roff(name.upper()), told["fa_tune"])
    yield ".SH NAME\n%s \\- %s" % (roff(name), roff(summary))
    yield ".SH SYNOPSIS\n%s" % synopsis
    yield from body
    yield ".SH EXIT STATUS\n0: done. 1: failed. 2: wrong usage. 130: stopped by Ctrl\\-C."


def verb_page(told, verb):
    body = [".SH DESCRIPTION", *roff_details(verb["details"] or verb["summary"] + "."), ".SH OPTIONS", *roff_options(verb)]
    synopsis = ".B fa\\-tune %s\n%s [OPTIONS]" % (roff(verb["name"]), roff(verb["operands"]))
    yield from page("fa-tune-" + verb["name"], told, verb["summary"], synopsis.replace("\n ", "\n"), body)
    yield ".SH SEE ALSO\n.BR fa\\-tune (1)"


def main_page(told):
    body = [".SH DESCRIPTION", "Kernels are compiled for the problem and the GPU, proved, timed where the GPU is here, and the winner is kept.",
            "Without a verb it tunes:", ".PP\n.B fa\\-tune \\-\\-gpu L4 \\-\\-seq 512", ".SH VERBS"]
    for verb in told["verbs"]:
        body += [".TP", ".B %s" % roff(verb["name"]), roff(verb["summary"]) + ". See", ".BR %s (1)." % roff("fa-tune-" + verb["name"])]
    body += [".SH ENVIRONMENT", ".TP\n.B FA_TUNE_STORE\nthe store's file; by default fa\\-tune/store.db in the cache directory.",
             ".TP\n.B FA_TUNE_SERVER\na service that is asked first.", ".PP\nThe other variables are in docs/environment.md of the source."]
    summary = "finds, proves and remembers the fastest CUDA kernel for a problem on a GPU"
    yield from page("fa-tune", told, summary, ".B fa\\-tune\n[VERB] [FILE.cu] [OPTIONS]", body)
    yield ".SH SEE ALSO\n" + ",\n".join(".BR %s (1)" % roff("fa-tune-" + verb["name"]) for verb in told["verbs"]).replace(",\n", "\n")


# ---- completions -------------------------------------------------------------------------------------
HELP = {"name": "help", "summary": "how to use fa-tune, or a verb of it", "options": []}


def bash(told):
    names = " ".join(verb["name"] for verb in told["verbs"])
    yield "# made from the option tables of fa-tune %s" % told["fa_tune"]
    yield "_fa_tune() {\n    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=tune words= values= list="
    yield "    case ${COMP_WORDS[1]} in\n    %s | help) [ \"$COMP_CWORD\" -lt 2 ] || verb=${COMP_WORDS[1]} ;;\n    esac" % " | ".join(names.split())
    yield "    case $verb:$prev in"
    for verb in told["verbs"]:
        for option in verb["options"]:
            if values_of(told, option):
                yield "    %s:%s)%s values='%s' ;;" % (verb["name"], option["name"], " list=yes" if option["list"] else "",
                                                       " ".join(values_of(told, option)))
            elif takes_file(option):
                yield "    %s:%s) COMPREPLY=($(compgen -f -- \"$cur\")); return ;;" % (verb["name"], option["name"])
    yield "    esac\n    case $verb in"
    for verb in told["verbs"]:
        yield "    %s) words='%s' ;;" % (verb["name"], " ".join(option["name"] for option in verb["options"]))
    yield "    help) words='%s' ;;" % names
    yield "    esac"
    yield "    [ \"$COMP_CWORD\" != 1 ] || [[ $cur == -* ]] || words='%s help'" % names
    # Of a list the last value is completed, behind those before it, which are not offered again.
    yield "    local before= value\n    [ -z \"$list\" ] || [[ $cur != *,* ]] || before=${cur%,*},"
    yield "    [ -z \"$values\" ] || words=\n    for value in $values; do [[ ,$before == *,\"$value\",* ]] || words+=\" $value\"; done"
    yield "    COMPREPLY=($(compgen -P \"$before\" -W \"$words\" -- \"${cur#\"$before\"}\"))"
    yield "}\ncomplete -o default -F _fa_tune fa-tune"


def quoted(text):
    return text.replace("'", "'\\''")


def zsh_option(told, option):
    words = re.sub(r"([\[\]:])", r"\\\1", option["help"])
    if not option.get("value"):
        return "'%s[%s]'" % (option["name"], quoted(words))
    values = " ".join(values_of(told, option))
    action = "_files" if takes_file(option) else " "
    if values:
        action = "_values -s , value %s" % values if option["list"] else "(%s)" % values
    value = re.sub(r"[\[\]:]", "", option["value"])
    return "'%s[%s]:%s:%s'" % (option["name"], quoted(words), quoted(value), action)


def zsh(told):
    yield "#compdef fa-tune\n# made from the option tables of fa-tune %s" % told["fa_tune"]
    yield "local -a verbs\nverbs=("
    for verb in [*told["verbs"], HELP]:
        yield "    '%s:%s'" % (verb["name"], quoted(verb["summary"].replace(":", "\\:")))
    yield ")\nlocal verb=tune"
    yield "if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n    _describe verb verbs\n"
    yield "    _files -g '*.(cu|json)'\n    return\nfi"
    yield "if [[ $words[2] != -* ]]; then\n    verb=$words[2]\n    shift words\n    (( CURRENT-- ))\nfi"
    yield "case $verb in"
    for verb in told["verbs"]:
        yield "%s)\n    _arguments \\\n        %s\n    ;;" % (
            verb["name"], " \\\n        ".join([*(zsh_option(told, option) for option in verb["options"]), "'*:file:_files'"]))
    yield "help)\n    _describe verb verbs\n    ;;\nesac"


def fish(told):
    yield "# made from the option tables of fa-tune %s" % told["fa_tune"]
    yield "function __fa_tune_verb\n    set -l words (commandline -opc) tune"
    yield "    string match -q -- '-*' $words[2]; and echo tune; or echo $words[2]\nend"
    yield "function __fa_tune_list # each other value, behind those that the list has already"
    yield "    set -l before (string match -r '.*,' -- (commandline -ct))\n    set -q before[1]; or set before ''"
    yield "    for value in $argv\n        contains -- $value (string split , -- $before); or echo $before$value\n    end\nend"
    yield "complete -c fa-tune -n 'test (count (commandline -opc)) = 1' -a '(__fish_complete_suffix .cu)'"
    for verb in [*told["verbs"], HELP]:
        yield "complete -c fa-tune -f -n 'test (count (commandline -opc)) = 1; or test (__fa_tune_verb) = help' -a %s -d '%s'" % (
            verb["name"], verb["summary"].replace("'", "\\'"))
        for option in verb["options"]:
            line = "complete -c fa-tune -n 'test (__fa_tune_verb) = %s' -l %s -d '%s'" % (
                verb["name"], option["name"][2:], option["help"].replace("'", "\\'"))
            if "short" in option:
                line += " -s %s" % option["short"][1:]
            if values_of(told, option):
                line += " -x -a '%s'" % ("(__fa_tune_list %s)" if option["list"] else "%s") % " ".join(values_of(told, option))
            elif option.get("value"):
                line += " -r" if takes_file(option) else " -x"
            yield line


def main():
    fa_tune, folder, *names = sys.argv[1:]
    told = read_help(fa_tune)
    makers = {"fa-tune.1": main_page, "fa-tune.bash": bash, "_fa-tune": zsh, "fa-tune.fish": fish}
    for verb in told["verbs"]:
        makers["fa-tune-%s.1" % verb["name"]] = lambda told, verb=verb: verb_page(told, verb)
    missing = {name for name in makers if name.endswith(".1")} - set(names)
    if missing:
        sys.exit("meson.build does not list the manual pages of all verbs: %s" % ", ".join(sorted(missing)))
    for name in names:
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write("\n".join(makers[name](told)) + "\n")


if __name__ == "__main__":
    main()
