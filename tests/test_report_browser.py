#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The report's page in a real browser: it opens quietly and alone, sorts, tells records by pointer
and by keyboard, fits phone and paper, and is not taken over by what the store holds."""
import json
import os

import devtools
import tap
from place import EIGHT, SMALL
from report_store import add_baselines, baseline, change, rename_gpu, tuned

HOSTILE = "</script><img src=x onerror=document.title=1>"
state = {}


def page(name="tuned", **how):
    """The page of a store that was tuned once, opened anew in the one browser."""
    if devtools.program() is None:
        raise tap.Skip("no Chromium here: ./dev installs it")
    if not state:
        place = tuned(dict(EIGHT, STAGES=[1]), problems=((128,), (256, "--causal")))
        add_baselines(place, [baseline(128, "pytorch-fa2", 82.0), baseline(128, "fa3", 10.0)])
        place.run("report", "--out", "tuned.html")
        place.run("--gpu", "A30", *SMALL, "--quiet")
        place.run("report", "--gpu", "A30", "--out", "predicted.html")
        rename_gpu(place, HOSTILE)
        change(place, ("UPDATE trial SET reason = ?, status = 'wrong'", (HOSTILE,)),
               ("UPDATE trial SET clocks = ?", (json.dumps({"sm_mhz": 1, "throttle": HOSTILE}),)))
        place.run("report", "--out", "hostile.html")
        state.update(place=place, browser=devtools.Browser())
    return state["browser"].open(os.path.join(state["place"].folder, name + ".html"), **how)


def column(shown, name):
    """The texts of one column of the summary, from top to bottom."""
    return shown.run("""(function () {
        var table = document.querySelector("#summary table");
        var at = Array.from(table.tHead.rows[0].cells).findIndex(c => c.textContent === "%s");
        return Array.from(table.tBodies[0].rows).map(r => r.cells[at].textContent);
    })()""" % name)


def sort_state(shown, name):
    return shown.run("""Array.from(document.querySelectorAll("#summary th")).find(
        c => c.textContent === "%s").getAttribute("aria-sort")""" % name)


def it_opens_without_complaint_and_asks_nobody_for_anything():
    for name in ("tuned", "predicted", "hostile"):
        shown = page(name)
        shown.settle()
        tap.equal((name, shown.complaints), (name, []))
        tap.equal([url for url in shown.requests if not url.startswith(("file:", "data:"))], [])
        tap.equal(len(shown.requests) - sum(url.startswith("data:") for url in shown.requests), 1)
        tap.equal(shown.run("document.title"), "fa-tune report")


def a_click_sorts_and_another_one_turns_it_round():
    shown = page()
    before = column(shown, "TFLOP/s")
    tap.equal((len(before), sort_state(shown, "TFLOP/s")), (2, "none"))
    click = """Array.from(document.querySelectorAll("#summary th button")).find(
        b => b.textContent === "TFLOP/s").click()"""
    shown.run(click)
    up = column(shown, "TFLOP/s")
    tap.equal((up, sort_state(shown, "TFLOP/s")), (sorted(up, key=float), "ascending"))
    shown.run(click)
    tap.equal((column(shown, "TFLOP/s"), sort_state(shown, "TFLOP/s")), (up[::-1], "descending"))
    tap.has(shown.run("document.querySelector('[role=status]').textContent"), "TFLOP/s, descending")
    tap.equal(sort_state(shown, "time"), "none")


def the_unknown_stay_last_either_way():
    shown = page()
    for _ in range(2):
        shown.run("""Array.from(document.querySelectorAll("#summary th button")).find(
            b => b.textContent.includes("fa3")).click()""")
        tap.equal([text == "–" for text in column(shown, "× fa3")], [False, True])


def the_keyboard_sorts_too():
    shown = page()
    tap.equal(sort_state(shown, "problem"), "none")
    for _ in range(12):
        shown.key("Tab", 9)
        if shown.run("document.activeElement.textContent") == "problem":
            break
    tap.equal(shown.run("document.activeElement.matches('#summary th button')"), True)
    tap.equal(shown.run("getComputedStyle(document.activeElement).outlineStyle"), "solid")
    shown.key("Enter", 13, "\r")
    tap.equal(sort_state(shown, "problem"), "ascending")
    shown.key("Enter", 13, "\r")
    tap.equal(sort_state(shown, "problem"), "descending")


def focus_tells_a_configs_record_and_arrows_move():
    shown = page()
    tip = "document.getElementById('tip')"
    tap.equal(shown.run(tip + ".hidden"), True)
    shown.run("document.querySelector('.race [data-c]').focus()")
    shown.settle()  # the page has scrolled there, and said so
    assert shown.run("scrollY") > 0, "nothing had to scroll"
    text = shown.run(tip + ".textContent")
    for part in ("#1, the winner", "BLOCK_M=128", "95% interval", "registers", "seed"):
        tap.has(text, part)
    tap.equal(shown.run("document.activeElement.getAttribute('aria-describedby')"), "tip")
    tap.equal(shown.run("(b => b.top >= 0 && b.left >= 0 && b.right <= innerWidth)"
                        "(%s.getBoundingClientRect())" % tip), True)
    first = shown.run("document.activeElement.dataset.c")
    shown.key("ArrowDown", 40)
    shown.settle()
    second = shown.run("document.activeElement.dataset.c")
    assert second != first, "the arrow did not move"
    tap.lacks(shown.run(tip + ".textContent"), "the winner")
    tap.equal(shown.run(tip + ".hidden"), False)
    shown.run("scrollTo(0, 0)")
    shown.settle()
    tap.equal(shown.run(tip + ".hidden"), True)
    shown.run("document.activeElement.blur(), document.querySelector('.race [data-c]').focus()")
    tap.equal(shown.run(tip + ".hidden"), False)
    shown.key("Escape", 27)
    tap.equal(shown.run(tip + ".hidden"), True)


def the_pointer_tells_it_and_a_press_keeps_it():
    shown = page()
    at = shown.run("""(function () {
        var cell = document.querySelector(".heat .best");
        cell.scrollIntoView({block: "center"});
        var box = cell.getBoundingClientRect();
        return [box.x + box.width / 2, box.y + box.height / 2];
    })()""")
    shown.settle()
    shown.call("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])
    shown.settle()
    tap.has(shown.run("document.getElementById('tip').textContent"), "the winner")
    for kind in ("mousePressed", "mouseReleased"):
        shown.call("Input.dispatchMouseEvent", type=kind, x=at[0], y=at[1], button="left",
                   clickCount=1)
    tap.equal(shown.run("document.getElementById('record').open"), True)
    tap.has(shown.run("document.getElementById('record-text').textContent"), "the winner")
    shown.key("Escape", 27)
    tap.equal(shown.run("document.getElementById('record').open"), False)
    tap.equal(shown.run("document.activeElement.matches('.heat .best')"), True)


def nothing_spills_over_in_light_and_dark_on_desk_and_phone():
    colours = set()
    for name in ("tuned", "predicted", "hostile"):
        for width, height in ((1280, 900), (768, 1024), (360, 740)):
            for dark in (False, True):
                shown = page(name, width=width, height=height, dark=dark)
                shown.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
                shown.settle()
                wide, room = shown.run("(e => [e.scrollWidth, e.clientWidth])"
                                       "(document.documentElement)")
                assert wide <= room <= width, (name, wide, room, width)
                colours.add(shown.run("getComputedStyle(document.body).backgroundColor"))
                shown.call("Page.close")
    tap.equal(len(colours), 2)


def every_number_in_colour_has_contrast():
    for dark in (False, True):
        worst = page(dark=dark).run("""(function () {
            function light(colour) {
                var c = colour.match(/[\\d.]+/g).slice(0, 3).map(function (v) {
                    v /= 255;
                    return v <= 0.03928 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4);
                });
                return 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
            }
            return Math.min.apply(null, Array.from(document.querySelectorAll(
                    ".key li[class], .heat td > [class^=h]")).map(function (e) {
                var style = getComputedStyle(e), a = light(style.color),
                    b = light(style.backgroundColor);
                return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
            }));
        })()""")
        assert worst >= 4.5, "contrast %.2f" % worst


def a_screen_reader_finds_its_way():
    shown = page()
    tap.equal(shown.run("Array.from(document.querySelectorAll('table')).filter("
                        "t => !t.caption || !t.querySelector('th[scope]')).length"), 0)
    tap.equal(shown.run("Array.from(document.querySelectorAll('svg[role]')).filter(s => "
                        "!s.querySelector('title') || !s.querySelector('desc')).length"), 0)
    tap.equal(shown.run("document.querySelectorAll('svg:not([role]):not([aria-hidden])').length"), 0)
    tap.equal(shown.run("[document.documentElement.lang, document.querySelectorAll('h1').length, "
                        "document.querySelectorAll('main').length]"), ["en", 1, 1])
    levels = shown.run("Array.from(document.querySelectorAll('main :is(h1,h2,h3,h4)')).map("
                       "h => +h.tagName[1])")
    assert all(b - a <= 1 for a, b in zip(levels, levels[1:])), levels
    tap.equal(shown.run("""(function () {
        var ids = Array.from(document.querySelectorAll("[id]")).map(e => e.id);
        return ids.length - new Set(ids).size;
    })()"""), 0)
    tap.equal(shown.run("Array.from(document.querySelectorAll('[aria-labelledby]')).every(e => "
                        "e.getAttribute('aria-labelledby').split(' ').every("
                        "i => document.getElementById(i)))"), True)


def hostile_texts_stay_texts():
    shown = page("hostile")
    tap.equal(shown.run("document.images.length"), 0)
    tap.equal(shown.run("document.title"), "fa-tune report")
    tap.has(shown.run("document.querySelector('#summary td').textContent"), HOSTILE[:40])
    shown.run("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    shown.run("document.querySelector('[data-c]').focus()")
    tap.has(shown.run("document.getElementById('tip').textContent"), HOSTILE)
    tap.equal((shown.run("document.images.length"), shown.complaints), (0, []))


def it_prints_within_the_margins_of_a4():
    shown = page(width=688, height=1000, dark=True)
    shown.call("Emulation.setEmulatedMedia", media="print",
               features=[{"name": "prefers-color-scheme", "value": "dark"}])
    shown.settle()
    wide, room = shown.run("(e => [e.scrollWidth, e.clientWidth])(document.documentElement)")
    assert wide <= room, (wide, room)
    tap.equal(shown.run("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)")
    pdf = page().pdf()
    tap.equal(pdf[:5], b"%PDF-")
    pages = pdf.count(b"/Type /Page\n") + pdf.count(b"/Type /Page/") + pdf.count(b"/Type /Page ")
    assert len(pdf) > 20000 and 1 <= pages <= 12, (len(pdf), pages)


try:
    tap.main([
        it_opens_without_complaint_and_asks_nobody_for_anything,
        a_click_sorts_and_another_one_turns_it_round,
        the_unknown_stay_last_either_way,
        the_keyboard_sorts_too,
        focus_tells_a_configs_record_and_arrows_move,
        the_pointer_tells_it_and_a_press_keeps_it,
        nothing_spills_over_in_light_and_dark_on_desk_and_phone,
        every_number_in_colour_has_contrast,
        a_screen_reader_finds_its_way,
        hostile_texts_stay_texts,
        it_prints_within_the_margins_of_a4,
    ])
finally:
    if state:
        state["browser"].__exit__()
        state["place"].__exit__()
