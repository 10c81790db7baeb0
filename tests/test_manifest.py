#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A family's manifest through the door, `fa-tune explain --templates`: as hostile input, what is refused and in which words; what its expressions
mean; and the space that it makes: the gates in their order, and the budget to the byte. And which
directories are refused before a manifest is read."""
import os

import tap
from place import Place

# A family that is right, line by line as `written` has it: the third has the tunables, the fifth the restrictions.
RIGHT = {
    "name": '"small"', "sm": '{"min": 80, "max": 90}', "supports": '[{"require": "HEAD_DIM <= 128", "why": "heads to 128"}]',
    "tune": '{"BLOCK_M": [64, 128], "BLOCK_N": [32, 64, 128]}', "defines": '{"ROW": "HEAD_DIM * 2"}',
    "restrictions": '[{"require": "BLOCK_N <= BLOCK_M", "why": "keys fit the rows"}]', "block": '"BLOCK_M"',
    "shared_memory": '{"q": "BLOCK_M * ROW", "kv": "2 * BLOCK_N * ROW"}', "registers": '"HEAD_DIM / 2 + BLOCK_N / 2 + 24"',
    "grid": '["(SEQ_Q + BLOCK_M - 1) / BLOCK_M * HEADS_Q * BATCH", 1, 1]', "default": '{"BLOCK_M": 64, "BLOCK_N": "min(64, ROW)"}', "extra": ""}
TEXT = """{"name": %(name)s, "operation": "attn_fwd", "kernel": "kernel", "sm": %(sm)s,
"supports": %(supports)s,
"tune": %(tune)s,
"defines": %(defines)s,
"restrictions": %(restrictions)s,
"block": %(block)s, "shared_memory": %(shared_memory)s, "registers": %(registers)s, "grid": %(grid)s,
"default": %(default)s%(extra)s}"""
WRONG = [
    (dict(defines='{"ROW": "A", "A": "2"}'), 'defines ROW', 'unknown name A'),
    (dict(defines='{"ROW": "ROW"}'), 'defines ROW', 'unknown name ROW'), (dict(defines='7'), 'defines', 'object'),
    (dict(block='"WARPS * 32"'), 'block', 'unknown name WARPS'), (dict(block='1.5'), 'block', 'integer'), (dict(block='null'), 'block', 'missing'),
    (dict(shared_memory='{"q": "BLOCK_M * D_TILE"}'), 'shared_memory q', 'unknown name D_TILE'),
    (dict(shared_memory='{"Q": 1}'), 'shared_memory', '"Q"'),
    (dict(grid='[1, 1, 1, 1]'), 'grid', 'three'), (dict(extra='"run_time": "BLOCK_N"'), '"run_time"', 'an array'),
    (dict(extra='"run_time": [1]'), '"run_time"', 'no tunable'), (dict(extra='"run_time": ["ROW"]'), '"ROW"', 'no tunable'),
    (dict(extra='"run_time": ["BLOCK_M"]'), 'block', '"run_time"'),
    (dict(block='"ROW"', defines='{"ROW": "BLOCK_N * 2"}', extra='"run_time": ["BLOCK_N"]'), 'block', '"run_time"'),
    (dict(extra='\n"smem": 1'), 'small.json:8: ', '"smem"'), (dict(extra='"workspac": 1'), '"workspac"', 'did you mean "workspace"?'),
    (dict(extra='"takes": "page"'), '"takes" must be an array'), (dict(extra='"takes": [1]'), '"" is no feature of attn_fwd'),
    (dict(extra='"takes": ["head_dim"]'), '"head_dim" is no feature of attn_fwd'),
    (dict(extra='"beside_specific": 1'), '"beside_specific" must be true or false'), (dict(extra='"tries": 0'), '"tries" must be an integer from 1 on'), (dict(extra='"workspace": "PAGE_SIZE"'), 'PAGE_SIZE'),
    (dict(extra='"splits": "+"'), 'splits'), (dict(default='{"BLOCK_M": 64}'), 'default BLOCK_N', 'missing'),
    (dict(default='{"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 2}'), '"STAGES"', 'unknown'),
    (dict(defines='{"ROW": "HEAD_DIM + BLOCK_M"}'), 'default BLOCK_N', 'reads a tunable'),
    (dict(sm='{"min": 80, "max": 90, "only": 1}'), '"only"', 'unknown'), (dict(sm='{"min": 80}'), '"sm"', 'min and max'),
    (dict(sm='{"min": "80", "max": 90}'), 'min', 'number'), (dict(sm='{"min": 90, "max": 80}'), 'max', '90 to 999'),
    (dict(restrictions='["1",\n"1 +"]'), 'small.json:5: restrictions[1]'), (dict(restrictions='[{"why": "x"}]'), 'restrictions[0]', 'an expression'),
    (dict(restrictions='[{"require": "1", "why": "x", "else": 1}]'), '"else"', 'unknown'),
    (dict(restrictions='[{"require": "1", "why": "x", "is": "taste"}]'), 'restrictions[0]', 'does-not-pay'),
    (dict(restrictions='[{"require": "1", "why": "x", "is": 1}]'), 'restrictions[0]', 'does-not-pay'),
    (dict(restrictions=r'[{"require": "1", "why": "\u001b[2Jgone"}]'), 'restrictions[0]', 'control bytes'),
    (dict(supports=r'[{"require": "1", "why": "a\u007f"}]'), 'supports[0]', 'control bytes'),
    (dict(supports='[{"require": "1", "why": "x", "is": "budget"}]'), 'supports[0]', '"restrictions" only'),
    (dict(supports='[{"require": "BLOCK_M > 1"}]'), 'supports[0]', 'reads a tunable'), (dict(tune='{}'), 'no tunables'),
    (dict(tune='[1, 2]'), 'tune', 'object'), (dict(tune='{"A": 4}'), 'tune A', 'array'), (dict(tune='{"A": []}'), 'small.json:3: tune A', 'array'),
    (dict(tune='{"A": [0.5, 0.50]}'), 'tune A', '0.5 appears twice'), (dict(name='"../small"'), 'name', "file's name"),
    (dict(name='7'), 'name', "file's name")]
VALUES = ['true, "a"', 'null', '1, "a"', '"a", 1', '"a;b"', '""', r'"a\"b"', r'"a\nb"', '[1]', '1e999', '"abcdefghijklmnopqrstuvwxyz0123456"']
NAMES = [("else", "not a name"), ("A B", "not a name"), ("", "not a name"), ("FA_SM", "ours"), ("HEAD_DIM", "taken"), ("BLOCK_M", "taken"),
         ("ROW", "taken"), ("AN_ABSURDLY_LONG_NAME_OF_34_LETTERS", "31")]
NO_ARITHMETIC = [
    ('(SELECT 1)', 'unknown name SELECT'), ('BLOCK_M in (SELECT 64)', 'unknown name SELECT'), ('BLOCK_M in names', '"names" where ( is expected'),
    ('1) FROM names WHERE (1', '") FROM'), ('1), (2', '"), (2"'), ('1; DROP TABLE names', '"; DROP'), ('1 /* 2', '"* 2" where a value'),
    ("'text", 'has a text that does not end'), ("'a;b'", '"a;b", which is the value of no tunable'), ("''", '"", which is the value of no tunable'),
    ('[BLOCK_M]', '"[BLOCK_M]"'), ('names.BLOCK_M', 'unknown name names'), ('?1', '"?1"'), (r"BLOCK_M\u00e9", 'not printable ASCII'),
    ('BLOCK_M * 1e0', '"e0" where a number must end'), ('load_extension(1)', 'calls load_extension()'), ('random()', 'calls random()'),
    ('max(BLOCK_M)', 'the second of two values'), ('ceil_div(1, 2, 3)', '", 3)" where ) is expected'), ('abs(1, 2)', '", 2)"'),
    ('1 if 2', 'ends where else is expected'), ('1 if 2 if 3 else 4', '"if 3 else 4" where else is expected'),
    ('1 if else 2', 'uses the unknown name else'), ('if 1 else 2', 'uses the unknown name if'), ('BLOCK_M not 1', '"1" where in is expected'),
    ('CASE WHEN 1 THEN 2 END', 'unknown name CASE'), ('iif(1, 2, 3)', 'calls iif(), which is unknown'),
    ('BLOCK_M = 1', '"= 1" where an operator or the end is expected (as in Python: =='), ('BLOCK_M <> 1', '"> 1" where a value'),
    ('BLOCK_M AND 1', '"AND 1" where an operator'), ('BLOCK_M BETWEEN 1 AND 2', '"BETWEEN 1 AND 2" where an operator'),
    ('BLOCK_M BLOCK_N', '"BLOCK_N" where an operator'), ('(BLOCK_M, BLOCK_N)', '", BLOCK_N)"'), ('block_m', 'unknown name block_m'), ('', '0 bytes'),
    (' ', 'ends where a value')]
MEANINGS = [  # BLOCK_M is 64
    ('2 + 3 * 4 - 10 / 3 % 2', 13), ('-7 / 2', -3), ('-7 % 3', -1), ('7 // 2 * 100 + -7 // 2', 296), ('6 // -3 == -2 and 7.5 // 2 == 3', 1),
    ('2 ** 3 ** 2 - -2 ** 2', 516), ('3 * 2 ** 10 % 1000 == 72 and 2 ** -1 * 2 == 1', 1),
    ('2 ** 62 + (2 ** 62 - 1) == 9223372036854775807 and 2 ** 64 > 9223372036854775807', 1), ('7 - - 2', 9), ('- - - 2', -2), ('~0 & 12 | 3', 15),
    ('1 << 4 + 1 >> 1', 16), ('ceil_div(7, 2) * 100 + ceil_div(-7, 2)', 397), ('min(9, 3, 5) * 100 + max(1, 8, 4) + abs(-3)', 311), ('1 < 2 < 3', 1),
    ('3 > 2 > 2', 0), ('1 < 3 == 3 >= 3', 1), ('64 == BLOCK_M and not BLOCK_M == 32', 1), ('not 1 == 2 and 0', 0), ('1 or 1 and 0', 1),
    ('64 <= BLOCK_M <= 65 and not 1 <= 3 <= 2', 1), ('BLOCK_M in (1, 64)', 1), ('5 not in (1, 64, 5 - 0)', 0),
    ('1 if BLOCK_M > 64 else 2 if BLOCK_M == 64 else 3', 2), ('(1 if 0 else 2 if BLOCK_M == 64 else 3) * 10 + (4 if BLOCK_M else 5)', 24),
    ('1 + 2 if 0 or BLOCK_M == 1 else 3 + 4', 7), ('7 if (0 if 1 else 1) else max(1 if 1 else 2, 3 if 0 else 4)', 4),
    ('1 if BLOCK_M in (1, 2) else 2 if 1 < 2 < 3 else 3', 2), ('1 or 1 / 0', 1), ('0 and 1 / 0', 0), ('1 if 1 / 0 else 4', 4),
    ('3 if 1 else 1 / 0', 3), ('1 / 0 if 0 else 3', 3), ('9223372036854775807 + 1 > 9223372036854775807', 1),
    ('9223372036854775807 * 4 / 9223372036854775807 == 4', 1), ('99999999999999999999 > 9223372036854775807', 1),
    ('4611686018427387904 * 2 - 1 < 9223372036854775807', 0), ('(-9223372036854775807 - 1) / -1 > 0', 1), ('0.25 + 0.25 == 0.5 and 0.1 * 3 < 0.4', 1),
    ('-0.5 < 0 and 1.5e2 == 150 and 2.5e-1 == 0.25', 1), ("3 if 'half' == 'half' else 4", 3),
    ("'half' != 'float' and 'half' in ('float', 'half') and not 'half' == 1", 1)]
NO_VALUES = [
    ("'half'", 'is a text, which can only be compared'), ("'half' + 1", 'a text is used as a number'),
    ("'half' < 'more'", 'a text is used as a number'), ("-'half'", 'a text is used as a number'), ("not 'half'", 'a text is used as a number'),
    ('BLOCK_M * 0.3', 'is a fraction, where an integer is needed'), ('4611686018427387904 * 4', 'is beyond 64 bits')]
CONTRACT = '{"name": "mine", "title": "something of mine", "sizes": {"n": {}}}'
DIRECTORIES = [  # the files of one, and what refuses it
    ({"bad name.cu": "x"}, "not plain"), ({"nul.cu": "a\0b"}, "NUL"), ({"attn_params.h": " " * (1 << 20)}, None),
    ({"attn_params.h": " " * (1 << 20) + " "}, "no regular file of at most 1 MiB"), ({}, "no manifest"), ({"README": "x"}, "no manifest"),
    ({"mine.cu": "x"}, "no manifest (NAME.json)"), ({"attn_params.h": "x"}, None), ({"link.cuh": os.symlink}, "is a link: put the file itself there"),
    ({"pipe.cuh": os.mkfifo}, "no regular file"), ({"f%d.json" % i: "x" for i in range(128)}, "f0.json"),
    ({"f%d.json" % i: "x" for i in range(129)}, "more than 128"),
    ({"attn_fwd/attn_params.h": "x", "attn_params.h": "x"}, "attn_params.h: appears twice"),
    ({"mine/operation.json": CONTRACT, "mine/attn_params.h": "x"}, "is the name of a file of attn_fwd")]
place = Place()


def write(name, text):
    tap.write(os.path.join(place.env["FA_TUNE_TEMPLATES"], name), text)


def written(**parts):
    extra = parts.get("extra", "")
    return TEXT % {**RIGHT, **parts, "extra": extra and "," + extra}


def explain(*options, status=0, **parts):
    write("small.json", written(**parts))
    return place.run("explain", "--gpu", "L4", "--seq", "512", "--head-dim", "64", "--json", *options, status=status)


def refused(*sentences, **parts):
    told = explain(status=2, **parts).stderr
    for sentence in ("small.json", *sentences):
        tap.has(told, sentence)


def expression(text):
    return dict(defines='{"ROW": "HEAD_DIM * 2", "X": "%s"}' % text)


def space(*options, **parts):
    """The family's configs by their blocks."""
    explain(*options, **parts)
    rows = place.json("explain", "--gpu", "L4", "--seq", "512", "--head-dim", "64", *options)["configs"]
    return {tuple(row["config"]["tunables"].values())[:2]: row for row in rows if row["config"]["family"] == "small"}


def ends(row):
    return row["status"], row["reason"]


def what_is_wrong_with_a_manifest_is_named():
    for parts, *sentences in WRONG:
        refused(*sentences, **parts)
    for value in VALUES:
        refused("tune A", "value", tune='{"A": [%s]}' % value)
    for name, sentence in NAMES:
        refused(name, sentence, defines='{"ROW": 1, "%s": 4}' % name)
    refused("6,000,000,000,000 configs", "1,000,000,000,000", tune='{"BLOCK_M": [64, 128], "BLOCK_N": [32, 64, 128]%s}' % "".join(
        ', "T%d": [0,1,2,3,4,5,6,7,8,9]' % i for i in range(12)))
    text = written()
    for size in range(0, len(text), 23):  # cut anywhere; tests/fuzz cuts everywhere
        write("small.json", text[:size])
        tap.has(place.run("explain", "--gpu", "L4", "--seq", "512", status=2).stderr, "small.json")
    os.rename(os.path.join(place.env["FA_TUNE_TEMPLATES"], "small.cu"), os.path.join(place.folder, "small.cu"))
    refused("no template small.cu")
    os.rename(os.path.join(place.folder, "small.cu"), os.path.join(place.env["FA_TUNE_TEMPLATES"], "small.cu"))


def expressions_cannot_reach_beyond_arithmetic():
    for text, sentence in NO_ARITHMETIC:
        refused("defines X", sentence, **expression(text))
    for text, sentence in (("(" * 100 + "1" + ")" * 100, "nested too deeply"), ("-" * 100 + "1", "nested too deeply"), ("((1)", "ends where ) is expected"),
                           ("1" + "+1" * 700, "use 1 to 1024")):
        refused("defines X", sentence, **expression(text))
    refused("nested deeper", defines="[" * 38)


def expressions_mean_what_they_say():
    """As restrictions of one manifest; each in a define of its own."""
    meanings = [*MEANINGS, ("1" + "<9" * 200, 0), ("+".join("1" * 401), 401), ("L21", 1 << 22)]
    chain = [("L%d" % i, "L%d + L%d" % (i - 1, i - 1) if i else "ROW + ROW") for i in range(22)]  # pasted into one another they would be 2^23 copies
    defines = [("ROW", "HEAD_DIM / 64"), *chain]
    for at in range(0, len(meanings), 16):  # as many as a manifest has
        rows = space(default='{"BLOCK_M": 64, "BLOCK_N": 64}', defines="{%s}" % ", ".join('"%s": "%s"' % one for one in defines), restrictions="[%s]" % ", ".join(
            '{"require": "(%s) == %d", "why": "%s is not %d"}' % (text, value, text[:100], value) for text, value in meanings[at:at + 16]))
        tap.equal(ends(rows[64, 32]), ("pending", ""))
    for text, sentence in NO_VALUES:
        refused(sentence, **expression(text))


def a_family_serves_the_features_that_its_manifest_takes_and_no_other():
    takes = dict(extra='"takes": ["lengths_k", "page"], "splits": "max(PAGE_SIZE / 8, 1)", "workspace": "PAGE_SIZE * BATCH"')
    pages = ("--lengths-k", "seqused", "--page", "64")
    tap.equal([len(space(*options, **takes)) for options in ((), pages, (*pages, "--kv-dtype", "fp8"), (*pages, "--sinks"))], [6, 6, 0, 0])
    for parts in (dict(sm='{"min": 75, "max": 86}'), dict(supports='[{"require": "SEQ_Q > 512", "why": "long ones only"}]')):
        tap.equal(space(**parts), {})


def a_config_carries_its_launch_or_ends_at_the_first_gate_that_it_does_not_pass():
    rows = space()
    tap.equal(sorted(rows), [(m, n) for m in (64, 128) for n in (32, 64, 128)])
    row = rows[128, 32]
    tap.equal((ends(row), row["threads"], row["grid"], row["smem_bytes"]), (("pending", ""), 128, [4 * 8 * 4, 1, 1], 128 * 128 + 2 * 32 * 128))
    tap.equal(ends(rows[64, 128]), ("constraint", "keys fit the rows"))
    gates = ('[{"require": "BLOCK_M > 64", "is": "does-not-pay", "why": "taste"}, {"require": "BLOCK_N > 64", "is": "registers", "why": "full"},'
             '{"require": "BLOCK_M + BLOCK_N < 256", "why": "never"}]')
    rows = space(restrictions=gates)
    tap.equal([ends(rows[at]) for at in ((64, 128), (64, 64), (128, 128))], [("does-not-pay", "taste"), ("registers", "full"), ("constraint", "never")])
    rows = space(restrictions=gates, shared_memory='{"all": "BLOCK_M * BLOCK_N * 1024"}')  # its numbers come first
    tap.equal(ends(rows[64, 64]), ("budget", "needs 4,194,304 B = all 4,194,304; L4 allows 101,376"))
    # an expression may rely on the restrictions: what they refuse is not evaluated further
    divides = dict(defines='{"ROW": "HEAD_DIM * 2", "TILES": "BLOCK_M / BLOCK_N"}', block='"128 / TILES"')
    rows = space(**divides, restrictions='[{"require": "TILES > 0", "why": "at least one"}]')
    tap.equal([row["status"] for row in rows.values()].count("pending"), 5)
    refused("block x has no value", '{"BLOCK_M":64,"BLOCK_N":128}', **divides, restrictions="[]")


def the_budget_holds_to_the_byte():
    """101,376 bytes fit an L4, one more does not; and the sentence adds up."""
    rows = space(shared_memory='{"q": 32768, "k": "BLOCK_N * 1000", "none": 0, "v": "101376 - 32768 - BLOCK_N * 1000 + (0 if BLOCK_M == 64 else 1)"}',
                 tune='{"BLOCK_M": [64, 128], "BLOCK_N": [32]}', default='{"BLOCK_M": 64, "BLOCK_N": 32}')
    tap.equal((ends(rows[64, 32]), rows[64, 32]["smem_bytes"]), (("pending", ""), 101376))
    tap.equal(ends(rows[128, 32]), ("budget", "needs 101,377 B = q 32,768 + k 32,000 + v 36,609; L4 allows 101,376"))
    rows = space(shared_memory="{%s}" % ", ".join('"a_name_of_thirty_one_letters_%02d": "1099511627776"' % i for i in range(12)))
    tap.has(rows[64, 32]["reason"], "needs 13,194,139,533,312 B = a_name")
    tap.has(rows[64, 32]["reason"], "; L4 allows 101,376")
    rows = space(registers='"192 + BLOCK_N - 1 if BLOCK_M == 64 else 128 + BLOCK_N / 64"', block='"128 if BLOCK_M == 64 else 512"', restrictions="[]")
    tap.equal([ends(rows[at]) for at in ((64, 64), (64, 128), (128, 32), (128, 64))], [
        ("pending", ""), ("registers", "needs about 319 registers per thread: at most 255"), ("pending", ""),
        ("registers", "needs about 512 threads x 129 registers = 66,048: a block has at most 65,536")])
    rows = space(block='"1025 if BLOCK_N == 32 else 1024"', registers="0", grid='[1, 65535, "65535 + BLOCK_M / 128"]', restrictions="[]")
    tap.equal([ends(rows[at]) for at in ((64, 32), (64, 64), (128, 64))], [
        ("constraint", "1,025 threads: a block has at most 1,024"), ("pending", ""), ("constraint", "the grid's z is 65,536: at most 65,535")])


def results_that_are_not_integers_are_errors_with_a_sentence():
    for parts, *sentences in (
            (dict(block='"128 / (BLOCK_M - 64)"'), "block x has no value", "divides by zero"), (dict(block="0"), "block x is 0"),
            (dict(shared_memory='{"q": "9223372036854775807 + BLOCK_M"}'), "shared_memory q is beyond 64 bits"),
            (dict(shared_memory='{"q": "0 - BLOCK_M"}'), "shared_memory q is -64: must be 0 to"), (dict(grid='["BLOCK_M - 65", 1, 1]'), "grid x is -1"),
            (dict(defines='{"ROW": "4294967296"}', shared_memory='{"q": 1}'), "defines ROW is 4,294,967,296"),
            (dict(block='"abs(-9223372036854775807 - 1) + BLOCK_M"'), "beyond 64 bits"),
            (dict(default='{"BLOCK_M": 64, "BLOCK_N": 48}'), "default BLOCK_N is 48", "not in its domain"),
            (dict(default='{"BLOCK_M": "1 / (SM - 89)", "BLOCK_N": 64}'), "default BLOCK_M has no value"),
            (dict(supports='[{"require": "1 / 0", "why": "a"}]'), "supports[0] has no value")):
        refused(*sentences, **parts)


def of_a_large_space_what_holds_to_the_restrictions_is_kept_or_counted_where_that_is_quick():
    def decades(count, preset):
        return dict(tune='{"BLOCK_M": [64, 128], "BLOCK_N": [32, 64]%s}' % "".join(', "T%d": [0,1,2,3,4,5,6,7,8,9]' % i for i in range(count)),
                    default='{"BLOCK_M": 64, "BLOCK_N": 64%s}' % "".join(', "T%d": %d' % (i, preset) for i in range(count)))
    large = dict(decades(6, 7), defines='{"ROW": "HEAD_DIM * 2", "SUM": "T0 + T1 + T2"}')
    explain(**large, restrictions='[{"require": "T0 != 6", "why": "d"}, {"require": "SUM == 21", "why": "a"}, {"require": "T3 <= T4 <= T5", "why": "b"},'
                                  '{"require": "100 / (T0 - 6) > 99", "why": "c"}]')
    told = place.json("explain", "--gpu", "L4", "--seq", "512", "--head-dim", "64")
    kept = [row["config"]["tunables"] for row in told["configs"] if row["config"]["family"] == "small"]
    # T0 = 7 alone gives 100; T1 + T2 = 14 in 5 ways; 220 triples are in order, of which 55 end in 9.
    tap.equal((len(kept), {one["T0"] for one in kept}, sum(one["T5"] == 9 for one in kept)), (4 * 5 * 220, {7}, 4 * 5 * 55))
    write("small.json", written(**large, restrictions='[{"require": "SUM == 21", "why": "a"}]'))
    tap.has(place.run("explain", "--gpu", "L4", "--seq", "512", "--head-dim", "64").stdout, "space 112,0")  # 28 of 1,000 triples, and the other families'
    # 10^9 points, and a restriction that is known only with the last tunable
    rest = "(T8 % 7 if T8 < 10 else 1" + "+(T8%7)" * 60 + ")"
    write("small.json", written(**decades(9, 0), restrictions='[{"require": "%s == 0", "why": "x"}]' % rest))
    tap.has(place.run("explain", "--gpu", "L4", "--seq", "512", "--head-dim", "64").stdout, "space 4,000,0")


def sequences_whose_last_tile_passes_32_bits_are_refused():
    """The number of a key or row inside the last tile, up to 256 beyond the end, must fit 32 bits."""
    longest = 2 ** 31 - 1 - 256
    with Place(space=None) as built_in:
        for gpu in "T4", "L4", "H200":
            for seq, other in ("--seq-k", "--seq-q"), ("--seq-q", "--seq-k"):
                built_in.run("explain", "--gpu", gpu, "--exact", seq, str(longest), other, "512")
                tap.has(built_in.run("explain", "--gpu", gpu, "--exact", seq, str(longest + 1), other, "512", status=1).stderr, "at most 2,147,483,391")


def directories_of_odd_files_are_refused_with_the_reason_and_do_not_hang():
    for at, (files, sentence) in enumerate(DIRECTORIES):
        folder = os.path.join(place.folder, "of%d" % at)
        os.mkdir(folder)
        for name, content in files.items():
            path = os.path.join(folder, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if callable(content):
                content(*(["/etc/passwd"] if content is os.symlink else []), path)
            else:
                tap.write(path, content)
        told = place.run("explain", "--gpu", "L4", "--seq", "512", "--templates", folder, status=2 if sentence else 0)
        tap.has(told.stderr, sentence or "")
    tap.has(place.run("explain", "--gpu", "L4", "--seq", "512", "--templates", "/nowhere/at/all", status=2).stderr, "/nowhere/at/all")


with place:
    write("small.cu", '#include "small.cuh"\n__global__ void kernel() {}\n')
    write("small.cuh", "#pragma once\n")
    tap.main()
