#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that share a store on a real PostgreSQL server, which is killed, stalls or raves; and the bench of it in small."""
import json
import os
import signal
import subprocess
import sys
import time

import tap
from fleet import FOR_EVER, SLOW, TINY, Host, OnServer, finish, line_with, tests
from place import BUILD, SOURCE
from postgres import Stub


def a_file_serves_while_the_server_is_gone_and_push_brings_it_what_was_kept():
    with OnServer() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        with fleet.down():
            three = one.run("sweep", "--seq", "64,128,256", *TINY)  # one note, however many problems
            tap.equal(three.stderr.count("does not serve"), 1)
            tap.has(one.run("show").stdout, "store.db")
        tap.equal(one.json("show")["winners"], [])
        tap.has(one.run("push").stdout, "3 added, 0 replaced in " + fleet.shown)
        tap.has(one.run("push").stdout, "0 added, 0 replaced, 3 same")
        tap.equal((fleet.ask("SELECT count(*) FROM winner"), len(two.json("report")["problems"][0]["configs"])), ("3", 2))
        tap.equal(two.ask(64, "--effort", "cached")["answer"]["origin"], "measured-same-silicon")


def a_worse_winner_never_takes_a_better_ones_place():
    with OnServer() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        two.env["FA_TUNE_STORE"] = two.env["FA_TUNE_LOCAL_STORE"]
        two.ask(64, "--gpu", "L4")  # predicted
        two.env["FA_TUNE_STORE"] = fleet.location
        one.ask(64)
        tap.equal(two.json("push")["worse"], 1)
        tap.equal(fleet.ask("SELECT origin FROM winner"), "measured")


def a_server_killed_in_mid_tune_costs_one_note_and_no_result():
    """Who tunes and who waits for that go on alone when it has not come back in time."""
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, Host(fleet.location, gpu=2) as two:
        tune = one.begin("--seq", "64", *TINY, *FOR_EVER)
        one.hanging(tune)
        waiting = two.begin("--seq", "64", *TINY)
        line_with(waiting, "another process")
        fleet.server.crash()
        one.let_go(tune)
        for process in waiting, tune:
            out, err = finish(process)
            tap.has(out, "kept in ~/store.db")
            tap.equal((err.count("is waited for"), err.count("does not serve")), (1, 1))
        fleet.server.start()
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "0")
        tap.equal(one.json("push")["added"], 1)


def a_server_that_comes_back_before_the_end_gets_the_result_and_who_waited_for_it_too():
    """Though who waited, or comes now, is connected again sooner than who held the key's lock."""
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, Host(fleet.location, gpu=2) as two, \
            Host(fleet.location, gpu=3) as three:
        tune = one.begin("--seq", "64", *TINY, *FOR_EVER)
        one.hanging(tune)
        waiting = two.begin("--seq", "64", *TINY, "--json")
        line_with(waiting, "another process")
        tune.send_signal(signal.SIGSTOP)
        fleet.server.crash()
        fleet.server.start()
        new = three.begin("--seq", "64", *TINY, "--json")
        line_with(new, "another process")
        time.sleep(1)
        tune.send_signal(signal.SIGCONT)
        one.let_go(tune)
        out, err = finish(tune)
        tap.has(out, "kept in " + fleet.shown)
        tap.lacks(err, "does not serve")
        for process in waiting, new:
            out, err = finish(process)
            tap.equal(json.loads(out)["answer"]["origin"], "measured-same-silicon")
            tap.lacks(err, "does not serve")
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "1")


def a_worker_waits_for_a_server_that_was_killed_and_goes_on():
    with OnServer() as fleet, Host(fleet.location, gpu=1) as one:
        one.enqueue(64, 128)
        fleet.server.crash()
        worker = one.worker("--idle-exit", "60s")
        line_with(worker, "waiting: the server")
        fleet.server.start()
        line_with(worker, "waiting: nothing to do")
        worker.terminate()
        tap.has(finish(worker)[0], "2 measured")
        tap.equal(one.queue()["done"], 2)


def a_server_that_stalls_after_the_login_is_given_up_once_long_before_its_time():
    half = Stub.message(b"C", b"SET\0")[:6]
    for answer in (b"", half):
        with Stub(answer) as server, Host(server.url) as one:
            done = one.run("--gpu", "L4", "--seq", "64", *TINY)
            tap.has(done.stdout, "kept in ~/store.db")
            tap.equal(done.stderr.count("does not serve"), 1)
            tap.has(done.stderr, "it did not answer")
            tap.lacks(done.stderr, Stub.LATE)
            tap.equal(server.logins, 1)


def what_a_server_says_reaches_no_terminal_as_it_is():
    rude = b"\x1b[31mrude\x9b\xc2\x9b\xe2\x80\xae"
    notice, error = Stub.said(b"N", b"WARNING", rude), Stub.said(b"E", b"ERROR", rude)
    with Stub(notice + error + Stub.message(b"Z", b"I"), at_login=notice) as server, \
            Host(server.url) as one:
        done = one.run("doctor", status=1)
        tap.equal(done.stderr, "")
        shown = one.run("show")
        for said in (done.stdout, shown.stderr):
            tap.has(said, "\\x1b[31mrude?")
            tap.equal([c for c in said if c != "\n" and not c.isprintable()], [])


def the_password_is_in_nothing_that_is_said():
    with OnServer() as fleet, Host(fleet.location) as one:
        said = one.run("doctor").stdout + one.run("queue", "--json").stdout
        one.env["FA_TUNE_STORE"] = fleet.gone
        said += one.run("show").stderr + one.run("push", status=1).stderr
        said += one.run("doctor", status=1).stdout
        for secret in ("s3cret", "w%C3%B6rd", "w\u00f6rd"):
            tap.lacks(said, secret)


def each_key_is_tuned_once_and_nothing_is_lost_whoever_is_killed():
    done = subprocess.run(
        [sys.executable, os.path.join(SOURCE, "tests/bench/fleet_hosts.py"), BUILD, "--processes", "8",
         "--keys", "3", "--asks", "5", "--every", "0.1"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=500)
    assert done.returncode == 0, (done.stdout, done.stderr)
    told = json.loads(done.stdout.splitlines()[-1])
    for row in told:
        tap.equal((row["lost"], row["failed"]), (0, 0))


tap.main(tests(OnServer) + tap.cases())
