#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa-tune report: the raw document, alone and in its page, and texts that mean harm. The page: test_report_browser.py."""
import csv
import html.parser
import io
import json
import os
import re
import subprocess

import tap
from place import SMALL, SOURCE, TWO, Place
from report_store import (L4, TIMES, add_baselines, baseline, change, rename_gpu, tune,
                          tuned)

HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'&|`\x1b[31m\u202e\n=cmd"


class Reader(html.parser.HTMLParser):
    """Elements with their attributes, in order, and the data of scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.inside, self.data = [], None, []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.inside = tag

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "script":
            self.data.append((self.elements[-1][1], data))


def document_in(source):
    text, = [data for attrs, data in Reader(source).data if attrs.get("id") == "document"]
    return json.loads(text)


def page_of(place, *arguments):
    """The document in the page."""
    return document_in(place.run("report", *arguments).stdout)


def counts_of(problem):
    counts = {}
    for one in problem["outcomes"]:
        counts[one["status"]] = counts.get(one["status"], 0) + one["count"]
    return counts


def words_of(config):
    return " ".join([config["family"]] + ["%s=%d" % pair for pair in config["tunables"].items()])


def a_measured_problem_is_told_raw():
    with Place(script=L4 + TIMES + "fault BLOCK_M=64;BLOCK_N=32;STAGES=1; wrong\n") as place:
        tune(place, 128)
        add_baselines(place, [baseline(128, "pytorch-fa2", 82.0, source="PyTorch 2.11"), baseline(128, "fa3", 10.0),
                              baseline(256, "nobody", 1.0), baseline(128, "other-gpu", 1.0, gpu="A100-SXM4-80GB")])
        told = place.json("report")
        tap.equal((told["document"], told["version"], len(told["problems"])), ("fa-tune-report", 2, 1))
        problem, = told["problems"]
        best = problem["winner"]
        tap.equal(problem["known_how"], "measured")
        tap.equal({peer["peer"]: (peer["median_us"], peer["source"]) for peer in problem["baselines"]},
                  {"pytorch-fa2": (82, "PyTorch 2.11"), "fa3": (10, "")})
        tap.equal((problem["evidence"]["space"], problem["evidence"]["measured"]), (8, 7))
        tap.equal(counts_of(problem), {"measured": 7, "wrong": 1})
        assert [one for one in problem["outcomes"] if one["status"] == "wrong"][0]["reason"], problem["outcomes"]
        tap.equal([config["rank"] for config in problem["configs"]], [1, 2, 3, 4, 5, 6, 7, None])
        tap.equal([config["winner"] for config in problem["configs"]], [True] + [False] * 7)
        tap.equal(sum(config["default"] for config in problem["configs"]), 1)
        first = problem["configs"][0]
        tap.equal((first["median_us"], len(first["samples_us"])), (best["median_us"], first["sample_count"]))
        tap.equal([words_of(told["space_configs"][row[0]]) for row in problem["space"]],
                  [words_of(config["config"]) for config in problem["configs"]])
        gates = [gate["status"] for gate in told["gates"]]
        tap.equal([gates[row[1]] for row in problem["space"]], [config["status"] for config in problem["configs"]])
        tap.equal([row[2:] for row in problem["space"]][-2:], [[problem["configs"][6]["median_us"]] +
                                                               [1] * problem["configs"][6]["raced"], []])
        tap.equal(problem["environments"][0]["trials"], 8)
        assert problem["tune_s"] > 0 and problem["compile_ms"] > 0, problem
        # What serving asks for is in a problem's JSON where it is asked for alone.
        forward, = [one for one in told["operations"] if one["name"] == "attn_fwd"]
        tap.equal([name for name, size in forward["sizes"].items() if not size.get("feature")],
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
                    assert dropped(value) or (isinstance(value, dict) and all(map(dropped, value.values()))), (where, name)
        elif isinstance(full, list):
            tap.equal((where, len(short)), (where, len(full)))
            for pair in zip(full, short):
                compare(*pair, where + "[]")
        elif isinstance(full, float):
            assert abs(full - short) <= 1e-6 * abs(full), (where, full, short)
        else:
            tap.equal((where, short), (where, full))

    with tuned(TWO, problems=((128,), (256, "--causal"))) as place:
        told, document = place.json("report"), page_of(place)
        del told["unix_time"], document["unix_time"]
        compare(told, document, "")


def a_prediction_never_looks_measured():
    with Place(space=TWO) as place:
        place.run("--gpu", "L4", *SMALL, "--quiet")
        problem = place.json("report")["problems"][0]
        tap.equal((problem["winner"]["median_us"], problem["known_how"]), (None, "predicted"))
        assert problem["winner"]["predicted_us"] > 0
        drawn, = page_of(place)["problems"]
        for trial in [drawn["winner"], *drawn["configs"]]:
            assert "median_us" not in trial and trial["predicted_us"] > 0, trial


def an_empty_store_says_what_to_do():
    with Place() as place:
        done = place.run("report")
        tap.has(done.stderr, "this store holds no problem yet: tune one")
        tap.equal((document_in(done.stdout)["problems"], place.json("report")["problems"]), ([], []))


def hostile_texts_are_shown_and_do_nothing():
    with tuned() as place:
        rename_gpu(place, HOSTILE[:63])
        change(place, ("UPDATE trial SET reason = ?, status = 'wrong' WHERE id = (SELECT max(id) FROM trial)", (HOSTILE,)),
               ("UPDATE trial SET clocks = ?", (json.dumps({"sm_mhz": 1500, "throttle": HOSTILE[:150]}),)))
        source = place.run("report").stdout
        page = Reader(source)
        tap.equal([tag for tag, _ in page.elements if tag == "img"], [])
        tap.equal([attrs for _, attrs in page.elements if any(name.startswith("on") for name in attrs)], [])
        tap.equal(sum(tag == "script" for tag, _ in page.elements), 2)
        tap.equal(re.findall(r"(?:https?:)?//[^\s\"'<>]+", re.sub(r"<script.*", "", source, flags=re.DOTALL)), [])
        for problem in (document_in(source)["problems"][0], place.json("report")["problems"][0]):
            tap.equal([one["reason"] for one in problem["configs"] if one["status"] == "wrong"], [HOSTILE])
            tap.equal((problem["gpu"]["name"], problem["configs"][0]["clocks"]["throttle"]), (HOSTILE[:63], HOSTILE[:150]))
        for form in ([], ["--json"]):
            text = place.run("report", *form).stdout
            for banned in ("\x1b", "\u202e", "<img", "</script></style>"):
                tap.lacks(text, banned)


def texts_that_are_no_utf8_are_mended():
    with tuned() as place:
        change(place, "UPDATE trial SET reason = CAST(x'ff41f09f' AS TEXT), status = 'wrong' "
                      "WHERE id = (SELECT max(id) FROM trial)")
        for form in ([], ["--json"]):
            tap.has(place.run("report", *form).stdout, "?A??")


def templates_that_moved_on_leave_what_is_on_record():
    with tuned() as place:
        place.templates({"BLOCK_M": [64], "BLOCK_N": [32, 64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]})
        old = place.json("report")["problems"][0]
        tap.equal((old["templates_are_present"], len(old["configs"]), old["evidence"]["space"]), (False, 8, 8))
        tune(place, 128)
        told = place.json("report")
        tap.equal((len(told["problems"]), told["earlier_generations"]), (1, 1))
        tap.equal((told["problems"][0]["templates_are_present"], len(told["problems"][0]["configs"])), (True, 2))


def what_nvml_says_beside_the_samples_is_recorded():
    with Place(space=TWO, script=L4 + TIMES) as place:
        subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", "-w", os.path.join(SOURCE, "tests", "fake_nvml.c"),
                        "-o", os.path.join(place.folder, "libnvidia-ml.so.1")], check=True)
        place.env["LD_LIBRARY_PATH"] = place.folder
        tune(place, 128)
        tap.equal(place.json("report")["problems"][0]["configs"][0]["clocks"], {
            "sm_mhz": 1410, "memory_mhz": 6251, "temperature_c": 55, "throttle": "power cap", "power_limit_w": 72,
            "driver": "580.159.04"})


def a_table_of_problems_has_one_row_for_each():
    with tuned(TWO, problems=((128,), (256, "--causal"))) as place:
        place.run("--gpu", "A100", *SMALL, "--quiet")
        add_baselines(place, [baseline(128, "pytorch-fa2", 82.0), baseline(128, "+1-1", 10.5)])
        told = place.json("report")["problems"]
        rows = list(csv.DictReader(io.StringIO(place.run("report", "--format", "csv").stdout)))
        tap.equal([(row["GPU"], row["origin"]) for row in rows], [(one["gpu"]["name"], one["known_how"]) for one in told])
        for row, one in zip(rows, told):
            best = one["winner"]
            tap.equal((row["problem"], row["config"]), ("attention forward · " + one["words"], words_of(best["config"])))
            timed = best["median_us"] is not None
            for name, value in (("time µs", best["median_us"]), ("±", timed and (best["high_us"] - best["low_us"]) / 2), ("default µs", one["default_us"]),
                                ("predicted µs", best["predicted_us"]), ("TFLOP/s", timed and one["flops"] / best["median_us"] * 1e-6)):
                tap.equal((name, row[name]), (name, "%.2f" % value if value else ""))
        tap.equal([[row[name] for row in rows if row["time µs"]] for name in ("pytorch-fa2 µs", "'+1-1 µs")], [["82.00", ""], ["10.50", ""]])
        lines = place.run("report", "--format", "md", "--gpu", "A100").stdout.splitlines()
        tap.equal((len(lines), lines[1].count("|"), "fa2" in lines[0]), (3, lines[2].count("|"), False))  # what nothing is known of has no column
        rename_gpu(place, "a|b,\"<i>*")
        tap.has(place.run("report", "--format", "md").stdout, "| a\\|b,\"\\<i>\\* |")
        tap.has(place.run("report", "--format", "csv").stdout, ',"a|b,""<i>*",')


def the_format_follows_the_file_and_a_file_is_whole_or_not_there():
    with Place() as place:
        for name, start, *more in (("r.html", "<!DOCTYPE html>"), ("r.json", "{\"document\""), ("r.txt", "{\"document\"", "--json"),
                                   ("r.csv", "", "--format", "CSV"), ("md.json", "", "--format", "md")):
            done = place.run("report", "--out", name, *more)
            assert re.fullmatch(r"0 problems, \d+ kB in %s\n" % re.escape(name), done.stdout), done
            tap.equal(tap.read(os.path.join(place.folder, name))[:len(start)], start)
        tap.equal(tap.read(os.path.join(place.folder, "md.json")), "")  # --format counts before the name
        tap.has(place.run("report", "-o", "r.json", "--format", "html", status=2).stderr, '--out: "r.json" is not a page')
        tap.has(place.run("report", "-o", "r.csv", status=2).stderr, '--out: "r.csv" is not a page\'s name, which ends in .html')
        tap.has(place.run("report", "--format", "text", status=2).stderr, '--format: "text" is not html, json, md or csv')
        tap.has(place.run("report", "--out", "nowhere/r.html", status=2).stderr, "the folder nowhere does not exist")
        before = sorted(os.listdir(place.folder))
        os.mkdir(os.path.join(place.folder, "d.json"))
        tap.has(place.run("report", "--out", "d.json", status=2).stderr, "not a regular file")
        tap.equal(sorted(os.listdir(place.folder)), sorted(before + ["d.json"]))


tap.main()
