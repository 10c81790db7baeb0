#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The types of the Python package say what the library takes, and a type checker holds users to them (tests/typing)."""
import inspect
import os
import re
import subprocess
import sys
import tempfile
import typing

import tap

SOURCE = os.environ["FA_TEST_SOURCE"]
PACKAGES = os.path.join(os.environ["FA_TEST_BUILD"], "python")
TOOLS = os.path.join(SOURCE, ".python-tools")
# Modules that speak to PyTorch and to serving engines, and those without a signature for users, are checked as far as they are used.
CHECKED = ("_types", "_errors", "_problem", "_objects", "_functions", "_tables", "_engine", "_policy", "_recording", "_warm_up",
           "_progress")
FAULT = re.compile(r".*?(\w+\.py):(\d+): error: (.*)  \[([\w-]+)\]")
EXPECTED = re.compile(r"  # error: ([\w-]+)(?: \"([^\"]+)\")?$")
sys.path.insert(0, PACKAGES)

import fa_tune  # noqa: E402
from fa_tune import _core, _types  # noqa: E402

cache = tempfile.TemporaryDirectory()


def faults(*what):
    """What mypy --strict says, as (file, line, sentence, code); what it says of other files is left out."""
    if not os.path.exists(os.path.join(TOOLS, "test-tools.stamp")):
        raise tap.Skip("mypy is not here: ./dev test fetches it")
    done = subprocess.run([os.path.join(TOOLS, "bin", "python"), "-m", "mypy", "--strict", "--follow-imports=silent",
                           "--no-error-summary", "--hide-error-context", "--cache-dir", cache.name, *what],
                          env={**os.environ, "MYPYPATH": PACKAGES}, cwd=PACKAGES, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode in (0, 1) and not done.stderr, done.stderr
    lines = [line for line in done.stdout.splitlines() if ": note: " not in line]
    found = [FAULT.fullmatch(line) for line in lines]
    assert all(found), lines
    return [(match[1], int(match[2]), match[3], match[4]) for match in found]


def typed(name):
    return os.path.join(SOURCE, "tests", "typing", name)


def the_package_itself_is_checked_strictly():
    tap.equal(faults(*(word for name in CHECKED for word in ("-m", "fa_tune." + name))), [])


def right_uses_have_no_fault():
    tap.equal(faults(typed("right.py")), [])


def each_wrong_use_is_found_and_nothing_else():
    found = {}
    for _, line, sentence, code in faults(typed("wrong.py")):
        found.setdefault(line, []).append((code, sentence))
    wanted = {}
    for number, line in enumerate(tap.read(typed("wrong.py")).splitlines(), 1):
        match = EXPECTED.search(line)
        if match is not None:
            wanted[number] = match[1], match[2] or ""
    assert len(wanted) > 30, wanted
    tap.equal({line: {code for code, _ in these} for line, these in found.items()},
              {line: {code} for line, (code, _) in wanted.items()})
    for line, (_, part) in wanted.items():
        assert any(part in sentence for _, sentence in found[line]), "line %d: %r lacks %r" % (line, found[line], part)


def the_fields_of_a_problem_are_those_of_the_library():
    own = set(_core.fields_of(None))
    fields = typing.get_type_hints(_types.ProblemFields)
    tap.equal(set(fields), own | {"seq", "heads"})
    tap.equal(set(typing.get_type_hints(_types.GridFields)), set(fields))
    attributes = {name for name in fa_tune.Problem.__annotations__ if not name.startswith("_")}
    tap.equal(attributes, own | {"operation", "seq", "heads"})
    words = {"causal": _types.Mask, "layout": _types.Layout, "lengths_k": _types.LengthsK, "kv_dtype": _types.KvDtype}
    for name, literal in words.items():
        tap.equal(list(typing.get_args(literal)), _core.fields_of(None)[name][0])
    one = fa_tune.Problem(seq=64)
    for name in attributes:  # also those that JSON leaves out
        assert getattr(one, name) is not None, name
    tap.equal((one.window, one.lengths_k, one.kv_dtype), (False, "fixed", "same"))


def the_options_of_attention_are_those_of_its_signature():
    rows = [(fa_tune.attention, _types.AttentionOptions, {"q", "k", "v", "out", "return_lse"}),
            (fa_tune.attention_varlen, _types.VarlenOptions,
             {"q", "k", "v", "out", "return_softmax_lse", "max_seqlen_q", "cu_seqlens_q"}),
            (fa_tune.attention_decode, _types.DecodeOptions, {"q", "k_cache", "v_cache", "out", "return_softmax_lse"})]
    for function, options, others in rows:
        parameters = inspect.signature(function).parameters
        tap.equal(sorted(typing.get_type_hints(options)), sorted(set(parameters) - others))
        for name in sorted(set(parameters) - {"q", "k", "v", "k_cache", "v_cache"}):
            try:
                function(None, None, None, **{name: None})
            except TypeError as error:  # None is no tensor
                tap.lacks(str(error), "has no argument")
            except (ValueError, fa_tune.NotSupported):
                pass


def an_answer_has_the_attributes_that_it_is_said_to_have():
    """Against the names in docs/json.md, which the library writes."""
    text = tap.read(os.path.join(SOURCE, "docs", "json.md"))
    answer = text[text.index("An answer is a trial"):text.index("## The report's document")]
    trial = text[text.index("\nA trial: "):text.index("The page holds it shortened")]
    told = set(re.findall(r"`(\w+)`", answer + trial))
    attributes = {name for name in fa_tune.Answer.__annotations__ if not name.startswith("_")}
    tap.equal(sorted(attributes - told - {"why"}), [])


tap.main()
