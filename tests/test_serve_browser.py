#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The service's page in a real browser, with a tune running: what it shows as it happens, that it keeps
what its reader has open, and that its link is good once."""
import devtools
import tap
from place import SIXTEEN, Place
from serve import FAST, HANGS, L4, LONG, Serve, a_place, ask

HOSTILE = "</script><img src=x onerror=document.title=1>\u202e"
state = {}


def link(daemon):
    return daemon.post("/v1/links", b"")[1]["url"]


def text(page, selector="body"):
    """With the spaces that no line breaks at as others."""
    return page.run("(document.querySelector('%s') || {}).textContent || ''" % selector).replace("\u00a0", " ")


def shows(page, *words, selector="body"):
    page.wait(lambda: all(word in text(page, selector) for word in words), " and ".join(words))


def opened(daemon, *words, url=None, **how):
    if devtools.program() is None:
        raise tap.Skip("no Chromium here: ./dev installs it")
    if not state:
        state["browser"] = devtools.Browser()
    state["browser"].close_pages()  # they would ask the service before for as long as the browser runs
    page = state["browser"].open(url or link(daemon), **how)
    shows(page, *words)
    return page


def well(page, daemon):
    """It has complained of nothing and asked nobody else for anything."""
    tap.equal(page.complaints, [])
    own = page.run("location.origin") + "/"
    tap.equal([url for url in page.requests if not url.startswith((own, "data:"))], [])
    tap.equal(page.run("location.href"), own)  # no secret stays in the address
    tap.equal(page.run("document.cookie + localStorage.length + sessionStorage.length"), "00")
    tap.lacks(daemon.log(), "unauthorized")


def a_tune_is_seen_as_it_runs_and_its_winner_when_it_ends():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        page = opened(daemon, "Nothing is under way", "0: NVIDIA L4 (sm_89, 58 SMs)idle", "B 2")
        job = daemon.post("/v1/tunes", ask())[1]["job"]
        waiting = daemon.post("/v1/tunes", ask(seq=512, causal="top-left"))[1]["job"]
        shows(page, "1 job under way, 1 waiting", "58 SMs)tune fp16 · B 1 · H 1 · S 128 · D 64",
              "1 measured of 2 configs", "40.0 µs", "attn_fwd_sm80 BLOCK_M=64", selector="#now")
        tap.equal(page.run("document.querySelector('#now progress').max"), 2)
        names = page.run("Array.from(document.querySelectorAll('[aria-label=Jobs] tbody th')).map(e => e.textContent)")
        assert len(names) == 2 and all(" S" not in name.replace("· ", "") and "S\u00a0" in name for name in names), names
        assert any("top\u2011left" in name for name in names), names
        for each in (waiting, job):
            daemon.delete("/v1/jobs/" + each)
        shows(page, "Nothing is under way", "canceled", selector="#now")
        place.use_fake_driver(L4 + FAST)
        daemon.wait_for_state(daemon.post("/v1/tunes", ask(seq=256))[1]["job"], "done")
        shows(page, "S 256", "40.0 µs", selector="#summary")
        daemon.wait_for_state(daemon.post("/v1/sweeps", {"items": [ask(), ask(seq=256)], "plan": "--seq 128,256"})[1]["job"], "done")
        shows(page, "sweep --seq 128,256", "2 of 2 problems", selector="#now")
        page.wait(lambda: page.run("Array.from(document.querySelectorAll('[aria-label=Jobs] tbody tr')).some(e => "
                                   "e.textContent.includes('S\u00a0256') && e.textContent.includes('done') && e.textContent.includes('40.0 µs'))"),
                  "what the job came to")
        well(page, daemon)


def without_a_gpu_the_bar_of_a_tune_counts_what_was_compiled():
    with Place(space=SIXTEEN, script="no_device\n") as place:
        place.compiles_slowly()  # else kept cubins come too fast for the bar to be seen
        with Serve(place) as daemon:
            page = opened(daemon, "Nothing is under way")
            job = daemon.post("/v1/tunes", ask(gpu="L4"))[1]["job"]
            page.wait(lambda: page.run("(document.querySelector('#now progress') || {}).value > 0"), "the bar to move")
            tap.lacks(text(page, "#now"), "measured")
            daemon.delete("/v1/jobs/" + job)
            well(page, daemon)


def what_its_reader_has_open_is_not_swept_away():
    with a_place(L4 + FAST) as place, Serve(place) as daemon:
        page = opened(daemon, "Nothing is under way", "fp16 · B 2")
        page.run("document.querySelector('#p1 h3').dispatchEvent(new PointerEvent('pointerdown', "
                 "{bubbles: true}))")
        page.run("document.querySelector('#p1').dataset.mine = 1")
        daemon.wait_for_state(daemon.post("/v1/tunes", ask(seq=256))[1]["job"], "done")
        page.wait(lambda: page.run("document.querySelector('#now p:last-child').hidden") is False,
                  "the offer")
        tap.equal(page.run("document.querySelector('#p1').dataset.mine"), "1")
        page.run("document.querySelector('#now button').click()")
        shows(page, "S 256", selector="#summary")
        tap.equal(page.run("document.querySelector('#now p:last-child').hidden"), True)
        well(page, daemon)


def a_link_opens_one_page_once():
    with a_place("no_device\n") as place, Serve(place) as daemon:
        url = link(daemon)
        page = opened(daemon, "No GPU is here", url=url)
        other = state["browser"].open(url)
        shows(other, "This link was used already, or is too old. Type fa-tune serve --open")
        page.call("Page.reload")
        shows(page, "This page needs a link. Type fa-tune serve --open")
        page.run("location.hash = '%s'" % link(daemon).rpartition("#")[2])  # typed over this one
        shows(page, "No GPU is here")
        shows(state["browser"].open(page.run("location.href")), "This page needs a link.")


def a_service_that_goes_is_told_of():
    with a_place("no_device\n") as place, Serve(place) as daemon:
        page = opened(daemon, "No GPU is here")
        daemon.stop()
        shows(page, "The service does not answer.")
        daemon.start()


def hostile_texts_of_jobs_stay_texts():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        page = opened(daemon, "Nothing is under way")
        job = daemon.post("/v1/sweeps", {"items": [ask(), ask(seq=512)], "plan": HOSTILE})[1]["job"]
        shows(page, "sweep </script><img src=x onerror=document.title=1>\\u202e", "0 of 2 problems",
              selector="#now")
        tap.equal(page.run("document.images.length + document.title"), "0fa-tune report")
        daemon.delete("/v1/jobs/" + job)
        shows(page, "canceled", selector="#now")
        well(page, daemon)


def nothing_spills_over_on_a_phone_and_on_a_desk():
    with a_place(HANGS) as place, Serve(place, *LONG) as daemon:
        job = daemon.post("/v1/sweeps", {"items": [ask(), ask(seq=256)], "plan": "--seq 128,256"})[1]["job"]
        page = opened(daemon, "1 job under way", "0 of 2 problems", "1 measured of 2 configs", width=420)
        for width in (420, 900, 1400):
            page.resize(width, 900, False)
            page.settle()
            tap.equal((width, page.run("document.documentElement.scrollWidth <= innerWidth")), (width, True))
            tap.equal(page.run("""Array.from(document.querySelectorAll("#now th, #now td, #now p")).filter(
                e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""), [])
            lines = page.run("""(e => { const range = document.createRange(); range.selectNodeContents(e);
                return range.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight); })
                (document.querySelector("#now [aria-label=Jobs] tbody th"))""")
            assert lines < 3, (width, lines)  # the job's name, and not a word of it a line
            counts = page.run("(e => e.offsetHeight / parseFloat(getComputedStyle(e).lineHeight))(document.querySelector('#now progress + .word'))")
            assert counts < 1.5, (width, counts)  # a count is in one line
            left = page.run("Array.from(document.querySelectorAll('#now progress')).map(e => e.getBoundingClientRect().left)")
            assert len(left) == 2 and left[0] == left[1], (width, left)  # and each bar on a line of its own
        daemon.delete("/v1/jobs/" + job)


try:
    tap.main([
        a_tune_is_seen_as_it_runs_and_its_winner_when_it_ends,
        without_a_gpu_the_bar_of_a_tune_counts_what_was_compiled,
    what_its_reader_has_open_is_not_swept_away,
        a_link_opens_one_page_once,
        a_service_that_goes_is_told_of,
        hostile_texts_of_jobs_stay_texts,
        nothing_spills_over_on_a_phone_and_on_a_desk,
    ])
finally:
    if state:
        state["browser"].__exit__()
