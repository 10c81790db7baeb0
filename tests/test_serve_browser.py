#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The service's page in a real browser, with a tune running: what it shows as it happens, and that it keeps what its reader
has open."""
import contextlib

import devtools
import tap
from serve import FAST, HANGS, L4, LONG, Serve, TOKEN, a_place, ask, token_file, wait_for

state = {}


def text(page, selector="body"):
    """With the spaces that no line breaks at as others."""
    return page.run("(document.querySelector('%s') || {}).textContent || ''" % selector).replace("\u00a0", " ")


def shows(page, *words, selector="body"):
    page.wait(lambda: all(word in text(page, selector) for word in words), " and ".join(words))


@contextlib.contextmanager
def served(place, *flags):
    with Serve(place, "--tcp", "0", "--token-file", token_file(place), *flags) as daemon:
        daemon.page = "http://%s:%d/#" % daemon.tcp()
        yield daemon


def opened(daemon, *words, token=TOKEN, **how):
    if devtools.program() is None:
        raise tap.Skip("no Chromium here: ./dev installs it")
    if not state:
        state["browser"] = devtools.Browser()
    state["browser"].close_pages()  # they would ask the service before for as long as the browser runs
    page = state["browser"].open(daemon.page + token, **how)
    shows(page, *words)
    return page


def well(page, daemon):
    """It has complained of nothing and asked nobody else for anything."""
    tap.equal(page.complaints, [])
    own = page.run("location.origin") + "/"
    tap.equal([url for url in page.requests if not url.startswith((own, "data:"))], [])
    tap.equal([url for url in page.requests if TOKEN in url.partition("#")[0]], [])
    tap.equal(page.run("document.cookie + localStorage.length + sessionStorage.length"), "00")
    tap.lacks(daemon.log(), TOKEN)


def a_tune_is_seen_as_it_runs_and_its_winner_when_it_ends():
    with a_place(HANGS) as place, served(place, *LONG) as daemon:
        page = opened(daemon, "Nothing is under way", "0: NVIDIA L4 (sm_89, 58 SMs)idle", "B 2")
        first = daemon.begins(ask())
        second = daemon.connect()
        second.request("POST", "/v1/kernel", '{"problem": {"head_dim": 64, "batch": 1, "heads_q": 1, "seq_q": 512, "causal": "top-left"}}')
        shows(page, "1 tune under way, 1 waiting", "58 SMs)fp16 · B 1 · H 1 · S 128 · D 64",
              "1 measured of 2 configs", "40.0 µs", "attn_fwd_sm80 BLOCK_M=64", selector="#now")
        tap.equal(page.run("document.querySelector('#now progress').max"), 2)
        for width in (420, 1400):  # nothing spills over on a phone and on a desk
            page.resize(width, 900, False)
            page.settle()
            tap.equal((width, page.run("document.documentElement.scrollWidth <= innerWidth")), (width, True))
        place.use_fake_driver(L4 + FAST)
        first.close()
        second.close()
        shows(page, "Nothing is under way", selector="#now")
        tap.equal(daemon.post("/v1/kernel", ask(seq=256))[0], 200)
        well(page, daemon)


def what_its_reader_has_open_is_not_swept_away():
    with a_place(HANGS) as place, served(place, "--trial-timeout", "3") as daemon:
        page = opened(daemon, "Nothing is under way", "fp16 · B 2")
        page.run("document.querySelector('#p1 h3').dispatchEvent(new PointerEvent('pointerdown', "
                 "{bubbles: true}))")
        page.run("document.querySelector('#p1').dataset.mine = 1")
        connection = daemon.begins(ask(seq=256))
        shows(page, "1 tune under way", selector="#now")
        wait_for(lambda: daemon.jobs() == [], "its end")  # its second config is given up
        page.wait(lambda: page.run("document.querySelector('#now p:last-child').hidden") is False, "the offer")
        tap.equal(page.run("document.querySelector('#p1').dataset.mine"), "1")
        page.run("document.querySelector('#now button').click()")
        shows(page, "S 256", selector="#summary")
        tap.equal(page.run("document.querySelector('#now p:last-child').hidden"), True)
        connection.close()
        well(page, daemon)


try:
    tap.main()
finally:
    if state:
        state["browser"].__exit__()
