#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report's page in a real browser: it opens quietly and alone, says what follows from the document, filters, sorts,
tells records by pointer and by keyboard, fits phone and paper, and is not taken over by what the store holds."""
import copy
import json
import math
import os
import re
import shlex

import devtools
import tap
from place import EIGHT, SMALL, SOURCE, Place
from report_store import L4, add_baselines, baseline, change, multiply, rename_gpu, tuned

HOSTILE = "</script><img src=x onerror=document.title=1>"
MANY = 1680 if os.environ.get("FA_TEST_SLOW") == "1" else 600  # there is no room for all of their configs
PAGES = ("tuned", "predicted", "hostile", "failed", "imported", "lengths", "many", "rows", "serving")
state = {}


def page(name="tuned", **how):
    """The page of a store that was tuned once, opened anew; what was shown before is gone."""
    if devtools.program() is None:
        raise tap.Skip("no Chromium here: ./dev installs it")
    if not state:
        place = tuned(dict(EIGHT, STAGES=[1]), problems=((128,), (256, "--causal")))
        add_baselines(place, [baseline(128, "pytorch-fa2", 82.0), baseline(128, "fa3", 10.0)])
        place.run("report", "--out", "tuned.html")
        state.update(place=place, told=place.json("report"), browser=devtools.Browser())
        place.run("--gpu", "L40S", *SMALL, "--quiet")  # whose kernels are those of an L4
        place.run("report", "--gpu", "L40S", "--out", "predicted.html")
        other_stores(place.folder)
        rename_gpu(place, HOSTILE)
        change(place, ("UPDATE trial SET reason = ?, status = 'wrong'", (HOSTILE,)),
               ("UPDATE trial SET clocks = ?", (json.dumps({"sm_mhz": 1, "throttle": HOSTILE}),)))
        place.run("report", "--out", "hostile.html")
    path = os.path.join(state["place"].folder, name + ".html")
    if "tab" in state:  # another tab for each page takes half as much again
        state["tab"].show_anew(path, **how)
    else:
        state["tab"] = state["browser"].open(path, **how)
    return state["tab"]


def other_stores(folder):
    def write(place, name):
        place.run("report", "--out", os.path.join(folder, name + ".html"))

    with Place(space=dict(EIGHT, BLOCK_N=[64], STAGES=[1]), script=L4 + "fault family wrong\n") as place:
        place.run(*SMALL, status=1)
        write(place, "failed")
    with tuned() as place, Place(script=L4) as other:
        bundle = os.path.join(folder, "l4.fab")
        place.run("export", "--out", bundle, "--unsigned")
        other.run("import", bundle, "--allow-unsigned")
        add_baselines(other, [baseline(128, "fa3", 10.0)])
        write(other, "imported")
    with tuned() as place:
        multiply(place, MANY)
        write(place, "many")
    with Place(space=None, script=L4 + "time WARPS= 50\ntime PARTS= 20\n") as place:
        place.env["FA_TUNE_TEMPLATES"] = os.path.join(SOURCE, "tests", "operations")
        place.run("sweep", "--operation", "l1_norm", "--rows", "64,128", "--columns", "256", "--quiet")
        write(place, "rows")
    with Place(space=dict(EIGHT, BLOCK_N=[64], STAGES=[1])) as place:
        place.run("sweep", "--gpu", "H100", "--seq", "1", "--seq-k", "4096,16384", "--heads", "32",
                  "--heads-kv", "8", "--head-dim", "128", "--page", "64", "--lengths-k", "seqused",
                  "--effort", "predict", "--quiet")
        write(place, "serving")
    lengths = [((seq, "--exact") if seq == 1032 else (seq,)) for seq in (512, 1024, 1032, 2048)]
    with tuned(dict(EIGHT, BLOCK_N=[64], STAGES=[1]), L4 + "time BLOCK_M=128; 60\ntime BLOCK_M=64; 50\n", lengths) as place:
        add_baselines(place, [baseline(seq, peer, us, low_us=us - 0.2, high_us=us + 0.2, matmul_tflops=80.5)
                              for seq in (512, 1024, 2048)
                              for peer, us in (("fa3", 45.0), ("level", 50.0), ("torch", 75.0))])
        write(place, "lengths")


def drawn(changed, name="predicted"):
    """A page that draws the tuned store's document after `changed` has changed a copy of it."""
    shown = page(name)
    told = copy.deepcopy(state["told"])
    changed(told)
    shown.run("report.draw(%s)" % json.dumps(told))
    shown.settle()
    tap.equal(shown.complaints, [])
    return shown


def plain(text):
    """With the spaces and hyphens that a line may break at."""
    return text.replace("\u00a0", " ").replace("\u2011", "-")


def texts(shown, selector):
    return [plain(text) for text in
            shown.run("Array.from(document.querySelectorAll(%s)).map(e => e.textContent)" % json.dumps(selector))]


def column(shown, name):
    """The texts of one column of the summary, from top to bottom."""
    at = texts(shown, "#summary thead th").index(name)
    return texts(shown, "#summary tbody tr > :nth-child(%d)" % (at + 1))


# ---- what the page says -------------------------------------------------------------------------
def a_card_answers_which_kernel_how_sure_how_far_and_against_what():
    shown = page()
    tap.equal(texts(shown, "#p1 .answers dt"), ["Which kernel", "How sure", "How far from the ceiling", "Against others"])
    which, sure, far, against = texts(shown, "#p1 .answers dd")
    tap.has(which, "attn_fwd_sm80 BLOCK_M=128")
    tap.has(which, 'fa_make_problem(NULL, &problem); fa_set_field(&problem, "batch", "1", NULL);')
    tap.has(which, "kernel = fa_tune.kernel(batch=1, heads=1, seq=128)")
    tap.has(sure, "95% interval")
    tap.has(far, "% of the ")
    assert re.search(r"fa3 is 5\.(1[5-9]|2\d?)× as fast", against), against  # of a median that is a percent wide
    assert {"The race", "Roofline", "Heat map", "Funnel"} <= set(texts(shown, "#p1 h4")), texts(shown, "#p1 h4")
    words, place = texts(shown, "#p1 .copyable code")[0], state["place"]  # a printed command works as printed
    tap.has(place.run(*shlex.split(words)[1:]).stdout, "measured")


def how_much_faster_on_which_gpu_is_said_first():
    def sentences(changed):
        return texts(drawn(changed), ".headline")

    first, second = (one["winner"]["median_us"] for one in (page(), state["told"]["problems"])[1])

    def peers(told):
        for one, fa3, cudnn in zip(told["problems"], (1.5 * first, 0.9 * second), (2 * first, 3 * second)):
            one["baselines"] = [{"peer": "fa3", "median_us": fa3}, {"peer": "pytorch-cudnn", "median_us": cudnn}]
    tap.equal(sentences(peers), ["On an NVIDIA L4, fa-tune’s kernels are %.2f× as fast as fa3 (geometric mean of 2 problems, "
                                 "worst 0.90) and %.2f× as cuDNN (worst 2.00)." % (math.sqrt(1.35), math.sqrt(6))])

    def defaults(told):
        for one in told["problems"]:
            one.update(baselines=[], default_us=2 * one["winner"]["median_us"])
    tap.has(sentences(defaults)[0], "fa-tune’s kernels are 2.00× as fast as their families’ defaults")


def whether_tuning_pays_and_how_few_configs_would_do_is_told():
    with tuned(dict(EIGHT, STAGES=[1]), problems=((128,), (256,), (512,), (1024,))) as place:
        # Another config is the best of each problem.
        change(place, "UPDATE trial SET median_us = 50 + 7 * ((scope_id + (SELECT count(*) FROM trial AS other "
               "WHERE other.scope_id = trial.scope_id AND other.config_key < trial.config_key)) % 4)")
        told = place.json("report")
    shown = page("predicted")
    shown.run("report.draw(%s)" % json.dumps(told))
    table = "[aria-label='Does tuning pay?'] "
    default, one, best = texts(shown, table + "tbody th")
    tap.equal((default, one), ("the family’s default config", "one config for all of them"))
    assert re.fullmatch(r"the best of [234] fixed configs", best), best
    known = [one["default_us"] / one["winner"]["median_us"] for one in told["problems"]]
    tap.equal(texts(shown, table + "tbody tr:nth-child(1) td")[:3],
              ["4 of 4", "%.2f×" % math.exp(sum(map(math.log, known)) / 4), "%.2f×" % max(known)])
    tap.equal(texts(shown, "[aria-label='Few configs'] tbody tr:last-child td")[1], "100%")


def backward_stands_beside_forward():
    def passes(told):
        forward, backward = told["problems"]
        forward["backward"] = 2
        forward["winner"]["median_us"], backward["winner"]["median_us"] = 100, 250
    label = "[aria-label='Training: backward beside forward'] "
    tap.equal(texts(drawn(passes), label + "tbody td")[1:], ["100.0 µs", "250.0 µs", "2.50×", "350.0 µs"])

    def predicted(told):
        passes(told)
        for one, us in zip(told["problems"], (10, 30)):
            one["winner"].update(median_us=None, predicted_us=us)
    tap.equal(texts(drawn(predicted), label + "tbody td")[1:], ["~10.0 µs", "~30.0 µs", "~3.00×", "~40.0 µs"])
    tap.equal(texts(drawn(lambda told: None), label), [])


def what_failed_is_imported_or_predicted_never_looks_measured_here():
    text = page("failed").run("document.body.innerText")
    for part in ("On an L4, 1 problem without a kernel: no config passed.", "No config passed", "gave wrong results"):
        tap.has(text, part)
    tap.lacks(text, "predicted")
    shown = page("imported")
    tap.equal(shown.run("document.querySelectorAll('article .predicted, article .hollow, article .guess').length"), 0)
    text = " ".join(texts(shown, "article"))
    tap.has(text, "Measured elsewhere, and imported.")
    tap.lacks(text, "Nothing was timed")
    tap.has(text, "The race")  # of the trials that it brought
    shown = page("predicted")
    tap.equal(texts(shown, ".headline"), ["On an L40S, 1 problem is not measured yet."])
    text = shown.run("document.querySelector('main').innerText")
    tap.equal(re.findall(r"(?<![~\d.,])\d[\d,.]* µs", text), [])  # each has a tilde
    tap.has(text, "not measured")
    tap.lacks(text, "The race")


def charts_and_lists_are_drawn_from_what_the_problems_have():
    shown = page("lengths")
    tap.equal(texts(shown, "#lengths .legend li")[:4], ["fa-tune", "fa3", "level", "torch"])
    tap.equal(shown.run("document.querySelectorAll('#lengths svg[role] path.line').length"), 4)
    tap.has(" ".join(texts(shown, "#lengths td")), "–")  # no baseline at 1,032
    shown.run("location.hash = '#p1'")
    shown.settle()
    tap.has(texts(shown, "#p1 .answers li"), "level with level: the intervals overlap")
    shown = page("rows")  # an operation that a folder brings
    tap.equal(texts(shown, "#p1 .copyable code"), ["fa-tune --gpu 'NVIDIA L4' --operation l1_norm --rows 64 --columns 256"])
    tap.has(texts(page("serving"), "#p1 .answers dd")[0], "--seq-q 1 --seq-k 4096 --lengths-k seqused --page 64")


# ---- what a reader does -------------------------------------------------------------------------
def filters_choose_for_list_and_chart_alike():
    shown = page("lengths")
    tap.equal(len(column(shown, "problem")), 4)
    find = """(find => { find.value = "%s"; find.dispatchEvent(new Event("input")); })(document.querySelector(".filters input"))"""
    shown.run(find % "s 1024")
    tap.equal(column(shown, "problem"), ["fp16 · B 1 · H 1 · S 1024 · D 64"])
    tap.has(" ".join(texts(shown, "[role=status]")), "1 of 4 problems")
    tap.equal(texts(shown, "#lengths"), [])
    shown.run(find % "s 4711")
    tap.equal((texts(shown, "#summary table"), texts(shown, "#summary p")[1:]), ([], ["No problem matches the filters."]))


def a_button_copies_the_command():
    shown = page()
    shown.call("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    click(shown, "#p1 .copy")
    shown.wait(lambda: texts(shown, "#p1 .copy")[0] != "Copy", "the button to say what it did")
    tap.equal((texts(shown, "#p1 .copy")[0], shown.run("navigator.clipboard.readText()")),
              ("Copied", texts(shown, "#p1 .copyable code")[0]))


def click(shown, selector):
    x, y = shown.run("""(e => {
        e.scrollIntoView({block: "center"});
        const box = e.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
    })(document.querySelector(%s))""" % json.dumps(selector))
    shown.settle()
    shown.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    shown.settle()
    for kind in ("mousePressed", "mouseReleased"):
        shown.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def focus_and_pointer_tell_a_configs_record():
    shown = page()
    shown.run("document.querySelector('.race [data-c]').focus()")
    shown.settle()
    for part in ("#1, the winner", "BLOCK_M=128", "95% interval", "registers", "seed"):
        tap.has(texts(shown, "#tip")[0], part)
    tap.equal(shown.run("document.activeElement.getAttribute('aria-describedby')"), "tip")
    shown.key("ArrowDown", 40)
    shown.settle()
    tap.lacks(texts(shown, "#tip")[0], "the winner")
    shown.key("Escape", 27)
    tap.equal(shown.run("document.getElementById('tip').hidden"), True)
    click(shown, ".heat .best")
    tap.equal(shown.run("document.getElementById('record').open"), True)
    tap.has(texts(shown, "#record-text")[0], "the winner")
    shown.key("Escape", 27)
    tap.equal(shown.run("document.activeElement.matches('.heat .best')"), True)


def a_page_of_many_problems_opens_with_its_list_alone():
    shown = page("many")
    tap.equal((len(column(shown, "problem")), texts(shown, "article")), (100, []))
    weight, nodes = os.path.getsize(os.path.join(state["place"].folder, "many.html")), shown.run("document.getElementsByTagName('*').length")
    assert weight < 5e6 and nodes < 8000, (weight, nodes)
    left_out = shown.run("JSON.parse(document.getElementById('document').textContent).problems.map(p => p.configs_left_out)")
    assert len(left_out) == MANY and 0 < max(left_out) <= 8, (min(left_out), max(left_out))
    tap.has(texts(shown, "footer")[0], "To keep this page small, ")
    shown.run("document.querySelector('#summary .quiet').click()")
    tap.equal(len(column(shown, "problem")), MANY)
    shown.run("document.querySelector('#summary tbody tr:last-child a').click()")
    shown.settle()
    tap.equal(texts(shown, "article h3"), ["fp16 · B %d · H 1 · S 128 · D 64" % MANY])
    shown.run("document.querySelector('article header button').click()")
    tap.equal(texts(shown, "article"), [])


# ---- that it opens, fits, prints and stays harmless ---------------------------------------------
def every_page_opens_alone_and_fits_desk_and_phone_in_light_and_dark():
    colours = set()
    for name in PAGES:
        shown = page(name)
        shown.settle()
        tap.equal((name, shown.complaints, shown.run("document.title")), (name, [], "fa-tune report"))
        tap.equal([url for url in shown.requests if not url.startswith(("file:", "data:"))], [])
        shown.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
        for width, height, dark in ((1400, 900, False), (360, 740, True)):
            shown.resize(width, height, dark)
            shown.settle()
            wide, room = shown.run("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)")
            assert wide <= room and width - 20 <= room <= width, (name, wide, room, width)  # less a scroll bar
            colours.add(shown.run("getComputedStyle(document.body).backgroundColor"))
    tap.equal(len(colours), 2)


def a_screen_reader_finds_its_way():
    shown = page()
    for what, wrong in (("tables without names", "Array.from(document.querySelectorAll('table')).filter(t => !t.caption || !t.querySelector('th[scope]'))"),
                        ("drawings without names", "Array.from(document.querySelectorAll('svg[role=img]')).filter(s => !s.querySelector('title') || !s.querySelector('desc'))"),
                        ("fields without names", "Array.from(document.querySelectorAll('select, input')).filter(e => !e.labels.length)"),
                        ("ids twice", "Array.from(document.querySelectorAll('[id]')).filter(e => document.querySelectorAll('#' + e.id).length > 1)")):
        tap.equal((what, shown.run(wrong + ".length")), (what, 0))
    levels = shown.run("Array.from(document.querySelectorAll('main :is(h1,h2,h3,h4)')).map(h => +h.tagName[1])")
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels


def hostile_texts_stay_texts():
    shown = page("hostile")
    tap.has(texts(shown, "#summary p")[0], HOSTILE[:40])  # one GPU, told once
    tap.has(texts(shown, ".headline")[0], HOSTILE[:40])
    for number in (2, 3):
        shown.run("document.querySelector('#summary a[href=\"#p%d\"]').click()" % number)
        shown.settle()
    shown.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    shown.settle()
    shown.run("document.querySelector('[data-c]').focus()")
    tap.has(texts(shown, "#tip")[0], HOSTILE)
    tap.equal((shown.run("document.images.length"), shown.run("document.title"), shown.complaints), (0, "fa-tune report", []))


try:
    tap.main()
finally:
    if state:
        state["browser"].__exit__()
        state["place"].__exit__()
