#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa-tune report in its four formats: the facts, what is left out, and texts that mean harm."""
import csv
import html.parser
import io
import json
import os
import re

import tap
from place import EIGHT, SMALL, Place
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


def page_of(place, *arguments):
    return Reader(place.run("report", "--format", "html", *arguments).stdout)


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
                  ["environment"])
        tap.equal((rows[0]["median_us"], rows[0]["slow"], rows[0]["predicted_us"] != ""),
                  ("%.9g" % best["median_us"], "1", True))
        tap.equal([row["name"] for row in rows if row["row"] == "baseline"],
                  [peer["peer"] for peer in problem["baselines"]])

        text = place.run("report").stdout
        time = "%.1f µs ±" % best["median_us"]
        tap.has(text, time)
        tap.has(text, "profile this kernel")
        tap.has(text, "proved and timed 7")
        tap.has(text, "PyTorch 2.11")

        page = page_of(place)
        for part in ("%.1f µs" % best["median_us"], "profile this kernel", "gave wrong results",
                     "PyTorch 2.11", "The race", "Roofline", "Heat map", "Funnel"):
            tap.has(page.text, part)
        for absent in ("nobody", "other-gpu", "predicted, not measured"):
            tap.lacks(page.text.replace("is predicted, not measured", ""), absent)
        records = [json.loads(data) for attrs, data in page.data if attrs.get("id") == "c1"][0]
        labels = [json.loads(data) for attrs, data in page.data if attrs.get("id") == "labels"][0]
        tap.equal((len(records), {len(record) for record in records}), (8, {len(labels)}))
        tap.has(records[0][labels.index("measured")], "in the race")


def a_prediction_never_looks_measured():
    with Place(space=TWO) as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        problem = place.json("report")["problems"][0]
        tap.equal((problem["measured"], problem["winner"]["median_us"], problem["slow"],
                   problem["known_how"]), (False, None, False, "predicted"))
        assert problem["winner"]["predicted_us"] > 0
        row = rows_of(place)[0]
        tap.equal((row["median_us"], row["tflops"], row["known_how"]), ("", "", "predicted"))
        page = page_of(place)
        source = place.run("report", "--format", "html").stdout
        tap.has(page.text, "predicted, not measured")
        tap.lacks(page.text, "The race")
        body = source[source.index("<tbody>"):]
        times = re.findall(r'(.{30})(~?)(\d[\d,.]*) µs', re.sub(r"<script.*?</script>", "", body,
                                                               flags=re.DOTALL))
        assert len(times) > 5, "too few times were found"
        for before, tilde, number in times:
            assert tilde == "~" and ("guess" in before or "bold" in before), (before, number)
        tap.has(place.run("report").stdout, "µs* predicted")


def an_empty_store_says_what_to_do():
    with Place() as place:
        for form in ("html", "md"):
            tap.has(place.run("report", "--format", form).stdout, "This store holds no problem yet")
        tap.equal(place.json("report")["problems"], [])
        tap.equal(rows_of(place), [])


def a_store_of_failures_says_why():
    with Place(space=TWO, script=L4 + "fault family wrong\n") as place:
        place.run(*SMALL, status=1)
        problem = place.json("report")["problems"][0]
        tap.equal((problem["winner"], problem["known_how"], problem["gpu"]["name"]),
                  (None, "failed", "L4"))
        tap.equal([(gate["status"], gate["count"]) for gate in problem["gates"]], [("wrong", 2)])
        for form in ("html", "md"):
            tap.has(place.run("report", "--format", form).stdout, "No config came through")
        page = page_of(place)
        tap.has(page.text, "gave wrong results")
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
        tap.equal(sum(tag == "script" for tag, _ in page.elements), 3)
        tap.has(page.text, "</script></style><img src=x onerror=alert(1)>\"'&|`\\x1b[31m\\u202e")
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
        tap.has(page_of(place).text, "1 earlier generation")


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
        tap.has(place.run("report", "--dtype", "bf16").stdout, "None of the 3 problems")
        tap.has(place.run("report", "--gpu", "nonsense", status=2).stderr, "nonsense")


def what_another_store_measured_is_no_measurement_of_this_one():
    with tuned() as place:
        add_baselines(place, [baseline(128, "fa3", 10.0)])
        change(place, "UPDATE winner SET origin = 'imported'")
        problem = place.json("report")["problems"][0]
        tap.equal((problem["known_how"], problem["measured"], problem["slow"],
                   round(problem["winner"]["median_us"])), ("imported", False, False, 41))
        tap.equal({row["known_how"] for row in rows_of(place)}, {"imported"})
        text = place.run("report").stdout
        tap.has(text, " | imported | ")
        tap.has(text, "~0.24×")
        tap.lacks(text, "SLOW")
        page = page_of(place)
        for part in ("imported: measured elsewhere", "ours, imported", "As imported: ~"):
            tap.has(page.text, part)
        tap.lacks(page.text, "Ours measured")


def lengths_between_buckets_are_told_with_their_regret():
    with tuned(TWO) as place:
        for form in ("html", "md"):
            tap.lacks(place.run("report", "--format", form).stdout, "Shape buckets")
        place.use_fake_driver(L4 + "time BLOCK_M=128; 60\ntime BLOCK_M=64; 50\n")
        tune(place, 135, "--exact")
        point, = place.json("report")["regret"]
        tap.equal((point["problem"]["seq_q"], point["bucket"]["seq_q"], point["gpu"]),
                  (135, 128, "NVIDIA L4"))
        assert 0.15 < point["regret"] < 0.25, point
        told = "%.1f%%" % (100 * point["regret"])
        tap.has(place.run("report").stdout, "1 point between buckets: median regret %s, worst %s."
                % (told, told))
        page = page_of(place)
        tap.has(page.text, "1 point: median %s, worst %s." % (told, told))
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
        tap.has(place.run("report").stdout, " | %d of 2 |" % one["rank"])
        tap.has(page_of(place).text, "Predictions that were measured")
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
        tap.has(place.run("report", "--out", "r.pdf", status=2).stderr, "--format html, md, csv")
        tap.has(place.run("report", "--format", "pdf", status=2).stderr, "use html, md, csv or json")
        tap.lacks(place.run("report", "--format", "x", status=2).stderr, "did you mean ?")
        tap.has(place.run("report", "--format", "", status=2).stderr, "use html, md, csv or json")
        tap.has(place.run("report", "--json", "--format", "csv", status=2).stderr, "exclude")
        tap.has(place.run("report", "--out", "nowhere/r.md", status=1).stderr, "nowhere/r.md")
        before = sorted(os.listdir(place.folder))
        os.mkdir(os.path.join(place.folder, "d.md"))
        tap.has(place.run("report", "--out", "d.md", status=2).stderr, "no regular file")
        tap.equal(sorted(os.listdir(place.folder)), sorted(before + ["d.md"]))


def a_page_of_many_problems_stays_small_and_says_what_it_leaves_out():
    space = dict(EIGHT, BLOCK_M=[64], STAGES=[1], Q_IN_REGS=[0, 1], MIN_BLOCKS=[2, 3])
    times = "time * 90\ntime MIN_BLOCKS=3; 70\ntime Q_IN_REGS=1; 60\n"
    with tuned(space, L4 + times) as place:
        multiply(place, 60)
        told = place.json("report")["problems"]
        tap.equal((len(told), {len(problem["configs"]) for problem in told}), (60, {8}))
        source = place.run("report", "--format", "html", "--top", "1").stdout
        assert len(source) < 3000000, len(source)
        page = Reader(source)
        tap.equal(sum(tag == "article" for tag, _ in page.elements), 60)
        left_out = "further ones that were tried only counted"
        assert left_out in page.text, "what was left out is not said"
        everything = Reader(place.run("report", "--format", "html").stdout)
        assert left_out not in everything.text, "nothing had to be left out"


tap.main([
    a_measured_problem_is_told_alike_in_every_format,
    a_prediction_never_looks_measured,
    an_empty_store_says_what_to_do,
    a_store_of_failures_says_why,
    hostile_texts_are_shown_and_do_nothing,
    a_spreadsheet_runs_nothing,
    texts_that_are_no_utf8_are_mended,
    templates_that_moved_on_leave_what_is_on_record,
    filters_keep_what_agrees,
    what_another_store_measured_is_no_measurement_of_this_one,
    lengths_between_buckets_are_told_with_their_regret,
    a_prediction_that_was_measured_is_told_with_its_place,
    the_format_follows_the_file_and_a_file_is_whole_or_not_there,
    a_page_of_many_problems_stays_small_and_says_what_it_leaves_out,
])
