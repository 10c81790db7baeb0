#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa-tune report in its four formats: the facts, what is left out, and texts that mean harm."""
import csv
import html.parser
import io
import json
import math
import os
import re
import subprocess

import tap
from place import EIGHT, SMALL, SOURCE, Place
from report_store import (L4, TIMES, add_baselines, baseline, change, multiply, rename_gpu, tune,
                          tuned)

# Enough where it is not about the configs.
TWO = dict(EIGHT, BLOCK_N=[64], STAGES=[1])
HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'&|`\x1b[31m\u202e\n=cmd"


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, in order, and the text outside of style and script."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.text, self.inside, self.data = [], "", None, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside in ("script", "style"):
            self.data.append((self.elements[-1][1], data))
        else:
            self.text += data


def document_in(source):
    """What the page's script draws."""
    text, = [data for attrs, data in Reader(source).data if attrs.get("id") == "document"]
    return json.loads(text)


def page_of(place, *arguments):
    """The document in the page, and the text of the page without its script."""
    source = place.run("report", "--format", "html", *arguments).stdout
    return document_in(source), Reader(source).text


def rows_of(place, *arguments):
    return list(csv.DictReader(io.StringIO(place.run("report", "--format", "csv",
                                                     *arguments).stdout, newline="")))


def a_measured_problem_is_told_alike_in_every_format():
    with Place(script=L4 + TIMES + "fault BLOCK_M=64;BLOCK_N=32;STAGES=1; wrong\n") as place:
        tune(place, 128)
        add_baselines(place, [
            baseline(128, "pytorch-fa2", 82.0, source="PyTorch 2.11"),
            baseline(128, "fa3", 10.0), baseline(256, "nobody", 1.0),
            baseline(128, "other-gpu", 1.0, gpu="A100-SXM4-80GB")])
        told = place.json("report")
        tap.equal((told["document"], told["version"], len(told["problems"])),
                  ("fa-tune-report", 1, 1))
        problem = told["problems"][0]
        best = problem["winner"]
        tap.equal((problem["known_how"], problem["measured"], problem["slow"]),
                  ("measured", True, True))
        tap.equal({peer["peer"]: round(peer["ratio"], 1) for peer in problem["baselines"]},
                  {"pytorch-fa2": 2.0, "fa3": 0.2})
        tap.equal((problem["funnel"]["space"], problem["funnel"]["measured"]), (8, 7))
        gates = {gate["status"]: gate for gate in problem["gates"]}
        tap.equal((gates["measured"]["count"], gates["wrong"]["count"]), (7, 1))
        assert gates["wrong"]["reasons"][0]["text"] != "", gates
        tap.equal([config["rank"] for config in problem["configs"]], [1, 2, 3, 4, 5, 6, 7, None])
        tap.equal([config["winner"] for config in problem["configs"]], [True] + [False] * 7)
        tap.equal(sum(config["default"] for config in problem["configs"]), 1)
        first = problem["configs"][0]
        tap.equal((first["median_us"], len(first["samples_us"])),
                  (best["median_us"], first["sample_count"]))
        tap.equal(problem["environments"][0]["trials"], 8)
        assert problem["tune_s"] > 0 and problem["compile_ms"] > 0, problem
        assert problem["environments"][0]["driver"] > 0 and problem["gpu"]["tensor_tflops"] > 0

        rows = rows_of(place)
        tap.equal([row["row"] for row in rows if row["row"] != "reason"],
                  ["winner", "baseline", "baseline", "gate", "gate"] + ["config"] * 8 +
                  ["environment", "comparison", "comparison"])
        tap.equal((rows[0]["median_us"], rows[0]["slow"], rows[0]["predicted_us"] != ""),
                  ("%.9g" % best["median_us"], "1", True))
        configs = [row for row in rows if row["row"] == "config"]
        tap.equal([row["unix_time"] for row in configs], [str(one["unix_time"]) for one in problem["configs"]])
        tap.equal([row["tunables"] for row in configs],
                  [words_of(one["config"]).split(" ", 1)[1] for one in problem["configs"]])
        tap.equal([row["name"] for row in rows if row["row"] == "baseline"],
                  [peer["peer"] for peer in problem["baselines"]])

        text = place.run("report").stdout
        time = "%.1f µs ±" % best["median_us"]
        tap.has(text, time)
        tap.has(text, "profile this kernel")
        tap.has(text, "proved and timed 7")
        tap.has(text, "PyTorch 2.11")

        document, plain = page_of(place)
        tap.has(plain, time)
        tap.lacks(plain, "predicted |")
        for absent in ("nobody", "other-gpu"):
            tap.lacks(json.dumps(document), absent)
        drawn = document["problems"][0]
        tap.equal([config["config"] for config in drawn["configs"]],
                  [config["config"] for config in problem["configs"]])
        tap.equal(drawn["configs"][0]["samples_us"], first["samples_us"])
        tap.equal((drawn["winner"]["raced"], drawn["slow"]), (True, True))
        tap.equal([peer["source"] for peer in drawn["baselines"] if "source" in peer],
                  ["PyTorch 2.11"])
        meanings = {gate["status"]: gate["meaning"] for gate in document["gates"]}
        tap.equal(meanings["wrong"], "gave wrong results")
        # What serving asks for is in a problem's JSON where it is asked for alone.
        forward, = [one for one in document["operations"] if one["name"] == "attn_fwd"]
        tap.equal([field["name"] for field in forward["fields"]
                   if not field.get("feature")],
                  [name for name in problem["problem"] if name != "operation"])


def a_page_holds_the_json_reports_document_without_what_says_nothing():
    def dropped(value):
        return value is None or value is False or value == "" or value == [] or value == {}

    def compare(full, short, where):
        if isinstance(full, dict):
            assert set(short) <= set(full), (where, set(short) - set(full))
            for name, value in full.items():
                if name in short:
                    compare(value, short[name], where + "." + name)
                else:
                    assert dropped(value) or (isinstance(value, dict) and
                                              all(map(dropped, value.values()))), (where, name, value)
        elif isinstance(full, list):
            tap.equal((where, len(short)), (where, len(full)))
            for pair in zip(full, short):
                compare(*pair, where + "[]")
        elif isinstance(full, float):
            assert abs(full - short) <= 1e-6 * abs(full), (where, full, short)
        else:
            tap.equal((where, short), (where, full))

    with tuned(TWO, problems=((128,), (256, "--causal"))) as place:
        told, (document, _) = place.json("report"), page_of(place)
        repeated = ("gpu", "silicon", "templates", "policy", "environments")
        tap.equal([name in document["problems"][1] for name in repeated], [False] * 5)
        for name in repeated:
            document["problems"][1].setdefault(name, document["problems"][0][name])
        del told["unix_time"], document["unix_time"]
        compare(told, document, "")


def a_prediction_never_looks_measured():
    with Place(space=TWO) as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        problem = place.json("report")["problems"][0]
        tap.equal((problem["measured"], problem["winner"]["median_us"], problem["slow"],
                   problem["known_how"]), (False, None, False, "predicted"))
        assert problem["winner"]["predicted_us"] > 0
        row = rows_of(place)[0]
        tap.equal((row["median_us"], row["tflops"], row["known_how"]), ("", "", "predicted"))
        document, plain = page_of(place)
        for trial in [document["problems"][0]["winner"], *document["problems"][0]["configs"]]:
            assert "median_us" not in trial and trial["predicted_us"] > 0, trial
        for text in (plain, place.run("report").stdout):
            tap.has(text, "µs* predicted")
        for tilde, number in re.findall(r"(~?)(\d[\d,.]*) µs", plain):
            assert tilde == "~", number


def an_empty_store_says_what_to_do():
    with Place() as place:
        for form in ("html", "md"):
            tap.has(place.run("report", "--format", form).stdout, "This store holds no problem yet")
        tap.equal(place.json("report")["problems"], [])
        tap.equal(rows_of(place), [])


def a_gpu_has_one_name_whether_a_problem_was_measured_or_failed():
    with tuned(TWO) as place:
        place.use_fake_driver(L4 + "fault family wrong\n")
        place.run("--seq", "256", *SMALL[2:], status=1)
        tap.equal([(p["known_how"], p["gpu"]["name"]) for p in place.json("report")["problems"]],
                  [("measured", "NVIDIA L4"), ("failed", "NVIDIA L4")])
        tap.equal(len(place.json("report", "--gpu", "L4")["problems"]), 2)


def a_store_of_failures_says_why():
    with Place(space=TWO, script=L4 + "fault family wrong\n") as place:
        place.run(*SMALL, status=1)
        problem = place.json("report")["problems"][0]
        tap.equal((problem["winner"], problem["known_how"], problem["gpu"]["name"]),
                  (None, "failed", "L4"))
        tap.equal([(gate["status"], gate["count"]) for gate in problem["gates"]], [("wrong", 2)])
        tap.has(place.run("report").stdout, "No config passed")
        document, _ = page_of(place)
        tap.equal(("winner" in document["problems"][0], document["problems"][0]["known_how"]),
                  (False, "failed"))
        tap.equal(rows_of(place)[0]["known_how"], "failed")


def hostile_texts_are_shown_and_do_nothing():
    with tuned() as place:
        rename_gpu(place, HOSTILE[:63])
        change(place, ("UPDATE trial SET reason = ?, status = 'wrong' WHERE id = "
                       "(SELECT max(id) FROM trial)", (HOSTILE,)),
               ("UPDATE trial SET clocks = ?",
                (json.dumps({"sm_mhz": 1500, "memory_mhz": 6000, "temperature_c": 50,
                             "throttle": HOSTILE[:150]}),)))
        source = place.run("report", "--format", "html").stdout
        page = Reader(source)
        tap.equal([tag for tag, _ in page.elements if tag == "img"], [])
        tap.equal([attrs for _, attrs in page.elements
                   if any(name.startswith("on") for name in attrs)], [])
        tap.equal(sum(tag == "script" for tag, _ in page.elements), 2)
        document = document_in(source)
        tap.equal([config["reason"] for config in document["problems"][0]["configs"]
                   if config["status"] == "wrong"], [HOSTILE])
        tap.equal(document["problems"][0]["gpu"]["name"], HOSTILE[:63])
        for banned in ("\x1b", "\u202e"):
            tap.lacks(source, banned)
        tap.equal(re.findall(r"(?:https?:)?//[^\s\"'<>]+", re.sub(r"<script.*", "", source,
                                                                  flags=re.DOTALL)), [])
        markdown = place.run("report").stdout
        for banned in ("<img", "</script>", "\x1b", "\u202e"):
            tap.lacks(markdown, banned)
        rows = rows_of(place)
        assert len({len(row) for row in rows}) == 1 and None not in rows[0], rows[0]
        reasons = [row["text"] for row in rows if row["row"] == "config" and row["status"] == "wrong"]
        tap.equal(len(reasons), 1)
        tap.has(reasons[0], "</script></style><img src=x onerror=alert(1)>\"'&|`\\x1b[31m")
        told = place.json("report")["problems"][0]
        tap.equal(told["gpu"]["name"], HOSTILE[:63])


def a_spreadsheet_runs_nothing():
    with tuned(TWO) as place:
        for name in ("=1+1", "+1", "-1", "@SUM(A1)"):
            rename_gpu(place, name)
            row = rows_of(place)[0]
            tap.equal(row["gpu"], "'" + name)
            for value in row.values():
                assert not value or value[0] not in "=+-@", row
        rename_gpu(place, 'a "quoted", name')
        tap.equal(rows_of(place)[0]["gpu"], 'a "quoted", name')
        raw = place.run("report", "--format", "csv").stdout
        assert '"a ""quoted"", name"' in raw, raw[:300]


def texts_that_are_no_utf8_are_mended():
    with tuned() as place:
        change(place, "UPDATE trial SET reason = CAST(x'ff41f09f' AS TEXT), status = 'wrong' "
                      "WHERE id = (SELECT max(id) FROM trial)")
        for form in ("html", "md", "csv", "json"):
            tap.has(place.run("report", "--format", form).stdout, "?A??")


def templates_that_moved_on_leave_what_is_on_record():
    with tuned() as place:
        place.templates({"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4],
                         "Q_IN_REGS": [0], "MIN_BLOCKS": [2]})
        old = place.json("report")["problems"][0]
        tap.equal((old["templates_are_present"], len(old["configs"]), old["funnel"]["space"]),
                  (False, 8, 8))
        tune(place, 128)
        told = place.json("report")
        tap.equal((len(told["problems"]), told["earlier_generations"]), (1, 1))
        tap.equal((told["problems"][0]["templates_are_present"],
                   len(told["problems"][0]["configs"])), (True, 2))
        tap.equal(page_of(place)[0]["earlier_generations"], 1)


def filters_keep_what_agrees():
    with tuned(TWO, problems=((128,), (256, "--causal"))) as place:
        place.run("--gpu", "A30", *SMALL, "--quiet")

        def kept(*arguments):
            return [(p["problem"]["seq_q"], p["gpu"]["name"])
                    for p in place.json("report", *arguments)["problems"]]

        everything = [(128, "A30"), (128, "NVIDIA L4"), (256, "NVIDIA L4")]
        tap.equal(sorted(kept()), sorted(everything))
        tap.equal(kept("--gpu", "l4"), [(128, "NVIDIA L4"), (256, "NVIDIA L4")])
        tap.equal(kept("--gpu", "L4", "--seq", "128"), [(128, "NVIDIA L4")])
        tap.equal(kept("--causal"), [(256, "NVIDIA L4")])
        tap.equal(kept("--dtype", "bf16"), [])
        tap.equal(len(kept("--head-dim", "64", "--batch", "1", "--heads", "1")), 3)
        tap.equal(place.json("report", "--causal")["not_asked_for"], 2)
        tap.has(place.run("report", "--dtype", "bf16").stdout, "No problem in this store (3 in all)")
        tap.has(place.run("report", "--gpu", "nonsense", status=2).stderr, "nonsense")


def what_another_store_measured_is_told_as_measured_and_as_imported():
    with tuned() as place:
        add_baselines(place, [baseline(128, "fa3", 10.0)])
        change(place, "UPDATE winner SET origin = 'imported'")
        problem = place.json("report")["problems"][0]
        tap.equal((problem["known_how"], problem["measured"], problem["slow"],
                   round(problem["winner"]["median_us"])), ("imported", False, False, 41))
        tap.equal({row["known_how"] for row in rows_of(place) if row["row"] != "comparison"}, {"imported"})
        for text in (place.run("report").stdout, page_of(place)[1]):
            tap.has(text, "` | NVIDIA L4 | imported |  | %.1f µs ±" % problem["winner"]["median_us"])
            tap.has(text, "fa3 0.24×")
            tap.lacks(text, "SLOW")
            tap.lacks(text, "~0.24×")


def an_imported_winner_has_the_funnel_of_the_store_that_it_came_from():
    with tuned() as place, Place(script=L4) as other:
        bundle = os.path.join(other.folder, "l4.fab")
        place.run("export", "--out", bundle, "--unsigned")
        other.run("import", bundle, "--allow-unsigned")
        mine, theirs = (one.json("report")["problems"][0] for one in (place, other))
        tap.equal((theirs["known_how"], theirs["configs_tried"]), ("imported", mine["configs_tried"]))
        tap.equal(theirs["funnel"], mine["funnel"])
        counts = [theirs["funnel"][name] for name in ("space", "compiled", "proved", "measured")]
        tap.equal(counts, [8, 8, 8, 8])
        tap.has(other.run(*SMALL).stdout, "proved 8 → measured 8")  # as the tune's answer tells it
        tap.lacks([gate["status"] for gate in theirs["gates"]], "pending")
        text = other.run("report").stdout
        tap.has(text, "proved and timed 8")
        tap.lacks(text, "no config timed")
        tap.lacks(text, "0.000 s")
        tap.equal(theirs["compile_ms"], None)  # nothing was compiled here
        assert len(theirs["configs"]) == 8 and theirs["configs"][0]["samples_us"], theirs


def chosen(problems, configs):
    """How many problems these configs were measured on, and the mean of the best one's time over the winner's."""
    ratios = []
    for problem in problems:
        times = [one["median_us"] for one in problem["configs"]
                 if one["median_us"] and words_of(one["config"]) in configs]
        ratios += [min(times) / problem["winner"]["median_us"]] if times else []
    return len(ratios), math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else 0, max(ratios)


def words_of(config):
    return " ".join([config["family"]] + ["%s=%d" % pair for pair in config["tunables"].items()])


def markdown_says_what_its_figures_are_in_whole_sentences():
    with tuned(TWO) as place:
        text = place.run("report").stdout
        tap.has(text, "A ratio is another kernel's time divided by fa-tune's: above 1, fa-tune is faster.")
        tap.has(text, "| default's time / fa-tune's | other kernels' time / fa-tune's |")
        tap.has(place.run("report", "--gpu", "L4", "--batch", "77").stdout, "No problem in this store (1 in all) matches the filters.")
        add_baselines(place, [baseline(128, "torch", 0.01)])
        tap.has(place.run("report").stdout, "times as long as torch: profile this kernel")


def whether_tuning_pays_is_told_against_the_default_and_fixed_configs():
    problems = ((128,), (256,), (512,), (1024,))
    with tuned(dict(EIGHT, STAGES=[1]), problems=problems) as place:
        # Another config is the best of each problem; the last problem knows no default and has one config.
        change(place, "UPDATE trial SET median_us = 50 + 7 * ((scope_id + (SELECT count(*) FROM trial AS other "
               "WHERE other.scope_id = trial.scope_id AND other.config_key < trial.config_key)) % 4)",
               "DELETE FROM trial WHERE scope_id = 4 AND rowid NOT IN "
               "(SELECT min(rowid) FROM trial WHERE scope_id = 4)",
               "UPDATE winner SET evidence = json_set(evidence, '$.default_us', 0) WHERE scope_id = 4")
        document = place.json("report")
        told = document["problems"]
        pay, = document["pay"]
        tap.equal((pay["gpu"], pay["operation"], pay["problems"]), ("NVIDIA L4", "attn_fwd", 4))
        default, one, four = pay["rows"]
        known = [problem["speedup_over_default"] for problem in told if problem["speedup_over_default"]]
        tap.equal((default["problems"], default["configs"], len(known)), (3, [], 3))
        assert abs(default["gain"] - math.exp(sum(map(math.log, known)) / 3)) < 1e-6, default
        assert abs(default["most"] - max(known)) < 1e-6, default
        every = {words_of(config["config"]) for problem in told for config in problem["configs"]}
        best = min((-served, mean) for served, mean, _ in (chosen(told, {name}) for name in every))
        for row, count in ((one, 1), (four, len(four["configs"]))):
            served, mean, most = chosen(told, set(row["configs"]))
            tap.equal((row["problems"], len(set(row["configs"]))), (served, count))
            assert abs(row["gain"] - mean) < 1e-6 and abs(row["most"] - most) < 1e-6, (row, mean, most)
        tap.equal(one["problems"], -best[0])
        assert abs(one["gain"] - best[1]) < 1e-6, (one, best)
        assert four["gain"] < one["gain"] and 2 <= len(four["configs"]) <= 4, (one, four)
        assert one["probes"] + four["probes"] > 0, pay
        text = place.run("report").stdout
        tap.has(text, "## Does tuning pay?")
        tap.has(text, "| NVIDIA L4 | the family's default config | 3 | 4 | 0 | %.2f× |" % default["gain"])
        tap.has(text, "one config for all of them | %d | 4 |" % one["problems"])
    with Place(space=TWO) as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        tap.equal(place.json("report")["pay"], [])
        tap.lacks(place.run("report").stdout, "tuning pay")


def sentence_of(place):
    headline, = place.json("report")["headlines"]
    return headline["sentence"]


def a_report_begins_with_how_much_faster_on_which_gpu():
    with tuned(TWO, problems=((128,), (256,))) as place:
        first, second = (problem["winner"]["median_us"] for problem in place.json("report")["problems"])
        tap.has(sentence_of(place), "On an NVIDIA L4, fa-tune's kernels are ")
        tap.has(sentence_of(place), " as their families' defaults (geometric mean of 2 problems, worst ")
        tap.has(sentence_of(place), "); no other kernel's time is stored.")
        add_baselines(place, [baseline(128, "fa3", 1.5 * first), baseline(256, "fa3", 0.9 * second),
                              baseline(128, "pytorch-cudnn", 2 * first), baseline(256, "pytorch-cudnn", 3 * second)])
        document = place.json("report")
        headline, = document["headlines"]
        tap.equal(headline["sentence"], "On an NVIDIA L4, fa-tune's kernels are %.2f × as fast as fa3 "
                  "(geometric mean of 2 problems, worst 0.90) and %.2f × as cuDNN (worst 2.00)." % (math.sqrt(1.5 * 0.9), math.sqrt(2 * 3)))
        tap.equal([(peer["peer"], peer["name"], peer["problems"], peer["ahead"]) for peer in headline["peers"]],
                  [("fa3", "fa3", 2, 1), ("pytorch-cudnn", "cuDNN", 2, 2)])
        page, plain = page_of(place)
        tap.equal(page["headlines"][0]["sentence"], headline["sentence"])
        for text in (plain, place.run("report").stdout):
            tap.has(text.split("| problem ")[0], headline["sentence"])
            tap.has(text, "| problem | kernel | ")
        rows = [row for row in rows_of(place) if row["row"] == "comparison"]
        tap.equal([(row["name"], row["count"], row["text"], round(float(row["ratio"]), 2)) for row in rows],
                  [("fa3", "2", headline["sentence"], 1.16), ("pytorch-cudnn", "2", headline["sentence"], 2.45)])
        # On one of the problems alone: each peer says how many.
        place.run("--seq", "512", "--batch", "1", "--heads", "1", "--quiet")
        third = place.json("report")["problems"][2]["winner"]["median_us"]
        add_baselines(place, [baseline(512, "fa3", 3 * third)])
        tap.has(sentence_of(place), "as fast as fa3 (geometric mean of 3 problems, worst 0.90)")
        tap.has(sentence_of(place), "as cuDNN (geometric mean of 2 problems, worst 2.00).")
        # Each GPU has its own, and what was not measured is compared with nothing.
        place.run("--gpu", "A30", *SMALL, "--quiet")
        add_baselines(place, [baseline(128, "fa3", 1.0, gpu="A30")])
        tap.equal([one["sentence"] for one in place.json("report", "--gpu", "A30")["headlines"]],
                  ["On an A30, 1 problem is not measured yet."])
        tap.equal([one["gpu"] for one in place.json("report")["headlines"]], ["NVIDIA L4", "A30"])  # measured first
        for gpu in ("A10", "A2", "A40"):
            place.run("--gpu", gpu, *SMALL, "--quiet")
        tap.equal([(one["sentence"], one["measured"]) for one in place.json("report")["headlines"]][1:], [("Nothing is measured on 4 other GPU types.", 0)])
        place.run("rm", "--gpu", "A40")
        tap.equal(len(place.json("report")["headlines"]), 4)
        # Of several operations each sentence names its own, the default one's first; their GPU is told once.
        place.run("--operation", "gemm", "--gpu", "A30", "--m", "64", "--n", "64", "--k", "64", "--evaluations", "1", "--quiet")
        tap.equal([one["sentence"] for one in place.json("report", "--gpu", "A30")["headlines"]],
                  ["On an A30, 1 problem of attention forward is not measured yet.",
                   "On an A30, 1 problem of matrix product is not measured yet."])
        tap.equal(place.run("report", "--gpu", "A30").stdout.count("nothing was measured"), 1)
        place.one_backward_config()
        place.run("--operation", "attn_bwd", *SMALL, "--causal", "--effort", "predict", "--quiet")
        lines = {one["circumstances"] for one in place.json("report", "--gpu", "NVIDIA L4")["headlines"]}
        assert len(lines) == 1 and "nothing was measured" not in "".join(lines), lines


def the_circumstances_are_told_and_what_is_not_recorded_is_said():
    def told(place):
        headline, = place.json("report")["headlines"]
        return headline["circumstances"]

    with tuned(TWO) as place:
        tap.equal(told(place)[:46], "NVIDIA L4 · driver for CUDA 13.0 · CUDA 13.0 (")
        tap.has(told(place), " · SM clock not recorded · power limit not recorded · measured 20")
        change(place, ("UPDATE trial SET clocks = ?", (json.dumps(
            {"sm_mhz": 1410, "memory_mhz": 6251, "temperature_c": 50, "throttle": "", "power_limit_w": 72,
             "driver": "580.159.04"}),)),
            ("UPDATE trial SET clocks = ? WHERE id = (SELECT max(id) FROM trial)", (json.dumps(
                {"sm_mhz": 1980, "memory_mhz": 6251, "temperature_c": 50, "throttle": ""}),)))
        tap.has(told(place), "NVIDIA L4 · driver 580.159.04 (for CUDA 13.0) · CUDA ")
        tap.has(told(place), " · SM clock 1,410 to 1,980 MHz · memory clock 6,251 MHz · power limit 72 W · measured ")
        problem = place.json("report")["problems"][0]
        tap.equal((problem["drivers"], problem["power_limit_w"]), (["580.159.04"], [72, 72]))
        change(place, "UPDATE environment SET json = json_set(json, '$.driver', 0)", "UPDATE trial SET clocks = NULL")
        tap.has(told(place), "NVIDIA L4 · driver not recorded · CUDA ")
        change(place, "UPDATE winner SET origin = 'imported'")
        tap.has(told(place), " · measured elsewhere and imported, 20")
        change(place, "UPDATE winner SET evidence = json_set(evidence, '$.undated', json('true'))")
        tap.has(told(place), " · measured elsewhere and imported, by 20")
        tap.equal([problem["undated"] for problem in place.json("report")["problems"]], [True])
        tap.has(place.run("show").stdout, "by 20")


def what_nvml_says_beside_the_samples_is_recorded():
    with Place(space=TWO, script=L4 + TIMES) as place:
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", os.path.join(SOURCE, "tests", "fake_nvml.c"),
                        "-o", os.path.join(place.folder, "libnvidia-ml.so.1")], check=True)
        place.env["LD_LIBRARY_PATH"] = place.folder
        tune(place, 128)
        document = place.json("report")
        tap.has(document["headlines"][0]["circumstances"], "driver 580.159.04 (for CUDA 13.0) · CUDA ")
        tap.has(document["headlines"][0]["circumstances"],
                " · SM clock 1,410 MHz · memory clock 6,251 MHz · power limit 72 W · measured ")
        tap.equal((document["problems"][0]["temperature_c"], document["problems"][0]["throttled_by"]), ([55, 55], ["power cap"]))


def cubins_that_are_reused_cost_no_compile_time_again():
    with Place(space=TWO, script=L4 + TIMES) as place:
        tune(place, 128)
        spent = place.json("report")["problems"][0]["compile_ms"]
        assert spent > 0, spent
        tune(place, 256)  # of the same cubins: this family's kernels do not know their lengths
        first, second = place.json("report")["problems"]
        tap.equal((first["compile_ms"], second["compile_ms"]), (spent, None))
        tap.equal({one["cubin_key"] for one in first["configs"]}, {one["cubin_key"] for one in second["configs"]})


def lengths_between_buckets_are_told_with_their_regret():
    with tuned(TWO) as place:
        tap.lacks(place.run("report").stdout, "Shape buckets")
        place.use_fake_driver(L4 + "time BLOCK_M=128; 60\ntime BLOCK_M=64; 50\n")
        tune(place, 135, "--exact")
        point, = place.json("report")["regret"]
        tap.equal((point["problem"]["seq_q"], point["bucket"]["seq_q"], point["gpu"]),
                  (135, 128, "NVIDIA L4"))
        assert 0.15 < point["regret"] < 0.25, point
        told = "%.1f%%" % (100 * point["regret"])
        tap.has(place.run("report").stdout, "1 point between buckets: median regret %s, worst %s."
                % (told, told))
        drawn, = page_of(place)[0]["regret"]
        tap.equal((drawn["problem"]["seq_q"], drawn["words"], drawn["bucket_words"]),
                  (135, point["words"], point["bucket_words"]))
        row, = [row for row in rows_of(place) if row["row"] == "regret"]
        tap.equal((row["seq_q"], row["ratio"]), ("135", "%.9g" % (1 + point["regret"])))
        tap.equal(place.json("report", "--seq", "128")["regret"], [])


def a_prediction_that_was_measured_is_told_with_its_place():
    with Place(space=TWO) as place:
        tune(place, 128, "--gpu", "L4")
        tap.equal(place.json("report")["predictions"], [])
        place.use_fake_driver(L4 + "time BLOCK_M=128; 60\ntime BLOCK_M=64; 50\n")
        tune(place, 128, "--effort", "measure")
        one, = place.json("report")["predictions"]
        slow = one["config"]["tunables"]["BLOCK_M"] == 128
        tap.equal((one["known_how"], one["gpu"], one["problem"]["seq_q"], one["measured"]),
                  ("predicted", "NVIDIA L4", 128, 2))
        tap.equal((one["rank"], round(one["measured_us"]), round(one["best_us"])),
                  (2, 60, 50) if slow else (1, 50, 50))
        assert one["predicted_us"] > 0
        tap.has(place.run("report").stdout, " | predicted | ")
        tap.has(place.run("report").stdout, " | %d | 2 |" % one["rank"])
        tap.equal(page_of(place)[0]["predictions"][0]["rank"], one["rank"])
        row, = [row for row in rows_of(place) if row["row"] == "prediction"]
        tap.equal((row["known_how"], row["median_us"]), ("predicted", "%.9g" % one["measured_us"]))
        tap.equal(place.json("report", "--dtype", "bf16")["predictions"], [])


def the_format_follows_the_file_and_a_file_is_whole_or_not_there():
    with Place() as place:
        for name, start in (("r.html", "<!DOCTYPE html>"), ("r.md", "# fa-tune"),
                            ("r.csv", "row,problem,"), ("r.json", "{\"document\"")):
            done = place.run("report", "--out", name)
            assert re.fullmatch(r"0 problems, \d+ kB in %s\n" % re.escape(name), done.stdout), done
            with open(os.path.join(place.folder, name), encoding="utf-8") as file:
                tap.equal(file.read()[:len(start)], start)
        tap.has(place.run("report", "-o", "r.pdf", status=2).stderr, "--format html, md, csv")
        tap.has(place.run("report", "--format", "pdf", status=2).stderr, "use html, md, csv or json")
        tap.lacks(place.run("report", "--format", "x", status=2).stderr, "did you mean ?")
        tap.has(place.run("report", "--format", "", status=2).stderr, "use html, md, csv or json")
        tap.has(place.run("report", "--json", "--format", "csv", status=2).stderr, "exclude")
        tap.has(place.run("report", "--out", "nowhere/r.md", status=2).stderr, "the folder nowhere does not exist")
        before = sorted(os.listdir(place.folder))
        os.mkdir(os.path.join(place.folder, "d.md"))
        tap.has(place.run("report", "--out", "d.md", status=2).stderr, "not a regular file")
        tap.equal(sorted(os.listdir(place.folder)), sorted(before + ["d.md"]))


def a_page_of_many_problems_stays_small_and_says_what_it_leaves_out():
    space = dict(EIGHT, BLOCK_M=[64], STAGES=[1], Q_IN_REGS=[0, 1], MIN_BLOCKS=[2, 3])
    times = "time * 90\ntime MIN_BLOCKS=3; 70\ntime Q_IN_REGS=1; 60\n"
    with tuned(space, L4 + times) as place:
        multiply(place, 60)
        told = place.json("report")["problems"]
        tap.equal((len(told), {len(problem["configs"]) for problem in told}), (60, {8}))
        document, _ = page_of(place, "--top", "1")
        left_out = {problem["configs_left_out"] for problem in document["problems"]}
        assert len(document["problems"]) == 60 and min(left_out) > 0, left_out
        everything, _ = page_of(place)
        tap.equal({problem["configs_left_out"] for problem in everything["problems"]}, {0})


tap.main([
    a_measured_problem_is_told_alike_in_every_format,
    a_page_holds_the_json_reports_document_without_what_says_nothing,
    a_prediction_never_looks_measured,
    an_empty_store_says_what_to_do,
    a_gpu_has_one_name_whether_a_problem_was_measured_or_failed,
    a_store_of_failures_says_why,
    hostile_texts_are_shown_and_do_nothing,
    a_spreadsheet_runs_nothing,
    texts_that_are_no_utf8_are_mended,
    templates_that_moved_on_leave_what_is_on_record,
    filters_keep_what_agrees,
    what_another_store_measured_is_told_as_measured_and_as_imported,
    an_imported_winner_has_the_funnel_of_the_store_that_it_came_from,
    markdown_says_what_its_figures_are_in_whole_sentences,
    whether_tuning_pays_is_told_against_the_default_and_fixed_configs,
    a_report_begins_with_how_much_faster_on_which_gpu,
    the_circumstances_are_told_and_what_is_not_recorded_is_said,
    what_nvml_says_beside_the_samples_is_recorded,
    cubins_that_are_reused_cost_no_compile_time_again,
    lengths_between_buckets_are_told_with_their_regret,
    a_prediction_that_was_measured_is_told_with_its_place,
    the_format_follows_the_file_and_a_file_is_whole_or_not_there,
    a_page_of_many_problems_stays_small_and_says_what_it_leaves_out,
])
