#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README and docs/: links lead somewhere, and what scripts make of manifests and measured rows is up to
date."""
import glob
import json
import os
import re
import subprocess
import sys

import coverage
import tap
from place import BUILD, SMALL, SOURCE, Place

PAGES = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md",
         *sorted(os.path.relpath(path, SOURCE) for path in glob.glob(os.path.join(SOURCE, "docs/*.md")))]


def read(name):
    return tap.read(os.path.join(SOURCE, name))


def links_and_named_files_exist():
    for page in PAGES:
        text, folder = read(page), os.path.dirname(page)
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            path = os.path.join(SOURCE, folder, target)
            assert os.path.exists(path), "%s links to %s, which is not there" % (page, target)
        for name in re.findall(r"`((?:docs|src|tests|examples|system|kernel_templates|db|tuner|include)/[\w./-]+)`", text):
            assert os.path.exists(os.path.join(SOURCE, name)), "%s names %s, which is not there" % (page, name)


def options_that_a_report_and_the_journey_name_are_those_of_help():
    def told(verb):
        return subprocess.run([os.path.join(BUILD, "fa-tune"), "help", verb], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
    verbs = [verb["name"] for verb in json.loads(told("--json"))["verbs"]]
    for page, known in (("docs/journey.md", " ".join(map(told, verbs))), *((page, told("report")) for page in glob.glob("src/report/page/*.js", root_dir=SOURCE))):
        for name in re.findall("[`\"](--?[a-z][a-z-]*)", read(page)):
            assert re.search("(?<![a-z-])%s(?![a-z-])" % name, known), "%s names %s, which is none" % (page, name)


def every_page_of_docs_is_linked_from_readme():
    linked = set(re.findall(r"\]\((docs/[\w-]+\.md)\)", read("README.md")))
    tap.equal(linked, {page for page in PAGES if page.startswith("docs/")})


def the_tables_of_what_is_covered_and_of_models_are_made_from_the_manifests():
    for page in coverage.PAGES:
        text = read(page)
        assert coverage.replaced(page, text) == text, "%s is behind the manifests: run python3 tests/coverage.py --write" % page


def the_picture_is_drawn_from_the_measured_rows():
    script, rows = re.search(r"python3 (\S+) (\S+\.jsonl) > docs/tflops.svg", read("docs/measurements.md")).groups()
    drawn = subprocess.run([sys.executable, script, rows], cwd=SOURCE, stdout=subprocess.PIPE, encoding="utf-8", check=True)
    assert drawn.stdout == read("docs/tflops.svg"), "docs/tflops.svg is not what %s makes of %s" % (script, rows)


def the_picture_says_readmes_numbers_and_the_versions_of_measurements_md():
    picture, readme, measurements = read("docs/tflops.svg"), read("README.md"), read("docs/measurements.md")
    said = re.search("<title>(.*)</title>", picture)[1]
    for number in re.findall(r"[\d.]+ ×|\d+ problems|\d\.\d\d$", said):
        tap.has(readme, number.replace(" problems", " fp16 problems"))
    versions = re.findall(r"driver [\d.]+\d|CUDA [\d.]+\d|PyTorch [\d.]+\d|\(\w{8}\)|2026-08-15", picture.replace("Driver", "driver"))
    assert len(versions) == 5, versions
    for version in versions:
        tap.has(measurements, version.strip("()"))
    assert picture.count('class="ring"') != 1, "a mark of the legend does not occur"
    tap.equal(picture.count('class="product"'), 7)  # each panel, and the legend
    tap.has(picture, "@media (prefers-color-scheme:dark)")


def the_version_is_said_once_and_is_the_changelogs_newest():
    version, = re.findall(r"(?m)^  version: '([\d.]+)',$", read("meson.build"))
    tap.equal(re.search(r"(?m)^## (.*)$", read("CHANGELOG.md"))[1], version)
    for page in ("meson.build", "pyproject.toml", "dev", "Containerfile", "python/meson.build"):
        tap.equal((page, read(page).count(version)), (page, int(page == "meson.build")))


def what_readme_shows_of_explain_is_what_it_prints():
    command, shown = re.search(r"(?m)^\$ \./dev (explain .*)\n((?:.+\n)+)…\n", read("README.md")).groups()
    with Place(space=None) as place:
        told = place.run(*command.split()).stdout.splitlines()
    for line in shown.replace("…\n", "").splitlines():
        assert line in told, "%r is not among what explain prints: %r" % (line, told[:3])


def what_verbs_print_under_json_is_what_json_md_says():
    told = dict(re.findall(r"(?m)^\| `([a-z A-Z-]+)` \| (.*) \|$", read("docs/json.md").split("## The report")[0]))
    asked = {"tune": ["tune", "--gpu", "L4", *SMALL], "explain": ["explain", "--gpu", "L4", *SMALL],
             "show --why": ["show", "--why", "--gpu", "L4", *SMALL], "sweep": ["sweep", "--gpu", "L4", *SMALL],
             "export": ["export", "--out", "a.fab"], "show FILE": ["show", "a.fab"], "import": ["import", "a.fab"], "rm": ["rm", "--all"],
             "check": ["check", os.path.join(SOURCE, "tests/specifications/conv2d.cu")],
             "worker": ["worker", "--idle-exit", "1s"],
             "run": ["run", *SMALL]}
    space = {"BLOCK_M": [64], "BLOCK_N": [64], "STAGES": [1], "WARPS": [4], "Q_IN_REGS": [0], "MIN_BLOCKS": [2]}
    order = ["tune", "explain", "show", "show --why", "sweep", "keygen", "export", "show FILE",
             "import", "rm", "check", "doctor", "gpus", "queue", "worker",
             "run", "version"]
    tap.equal(set(told), {*order, "help --json", "push"})  # push needs a server: test_fleet_server.py
    with Place(space=space) as place:
        for command in order:
            if command == "run":
                place.use_fake_driver("device name=NVIDIA_L4 sm=89 sms=58\n")
                place.env["FA_TUNE_STORE"] = place.store
                place.run("tune", *SMALL)
            if command == "queue":  # this and what follows is a fleet's
                place.env["FA_TUNE_STORE"] = "%s/fleet.db" % place.folder
            document = place.json(*asked.get(command, command.split()))
            tap.equal(list(document)[0], "fa_tune")
            fields = re.sub(r"\([^)]*\)", "", told[command]).split(":")[0]
            missing = set(document) - {"fa_tune"} ^ set(re.findall(r"`(\w+)`", fields))
            tap.equal((command, missing - {"records"}), (command, set()))
            if command == "tune":
                answer = read("docs/json.md").split("An answer is a trial")[1].split("## ")[0] + read("docs/json.md").split("A trial:")[1]
                tap.equal([name for name in document["answer"] if "`%s`" % name not in answer], [])


def pkg_config_requires_nothing_that_is_opened_at_run_time():
    told = tap.read(os.path.join(BUILD, "meson-private", "fa-tune.pc"))
    tap.has(told, "Libs: -L${libdir} -lfa_tune\n")
    for name in ("libpq", "cuda", "nvrtc"):
        tap.lacks(told, name)


def the_quick_suite_that_dev_names_has_a_test_of_every_floor_and_no_long_one():
    tap.has(subprocess.run([os.path.join(SOURCE, "dev"), "help"], stdout=subprocess.PIPE, encoding="utf-8",
                           check=True).stdout, "--quick")
    tests = json.loads(tap.read(os.path.join(BUILD, "meson-info", "intro-tests.json")))
    suites = {test["name"]: test["suite"][0].rpartition(":")[2] for test in tests}
    tap.equal(set(suites.values()), {"quick", "short", "long"})
    quick = {name for name, of in suites.items() if of == "quick"}
    for floor in ("base", "gpu", "db", "tuner", "engine", "cli", "serve"):
        assert any(name.startswith("test_" + floor) for name in quick), "no quick test of " + floor
    assert "test_walks" in suites and "test_walks" not in quick


def every_claim_of_measurements_md_has_figure_card_date_and_command():
    text = read("docs/measurements.md")
    assert len(text.splitlines()) <= 150
    rows = [row for row in re.findall(r"(?m)^\| .* \|$", text) if not row.startswith("| claim | figure | card | date | command |")]
    assert len(rows) > 30
    for row in rows:
        claim, figure, card, date, command = [cell.strip() for cell in row.strip("|").split(" | ")]
        assert claim and re.search(r"\d", figure) and re.fullmatch(r"2026-\d\d-\d\d", date), row
        assert card in ("H100", "H200", "none"), row
        assert "`" in command or command == "the same", row


def readme_and_docs_are_short_and_narrow():
    assert len(read("README.md").splitlines()) <= 130
    docs = {page: read(page).splitlines() for page in PAGES if page.startswith("docs/")}
    assert sum(map(len, docs.values())) <= 1900
    tap.equal([(page, line) for page, lines in docs.items() for line in lines if len(line) > 200], [])


tap.main()
