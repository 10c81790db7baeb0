#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server that is killed, stalls or raves in the middle of what the hosts of a fleet do."""
import tap
from fleet import FOR_EVER, SLOW, TINY, Host, OnServer, finish, line_with
from postgres import Stub


def a_database_killed_in_mid_tune_costs_one_note_and_gets_the_result_later():
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, \
            Host(fleet.location, gpu=2) as two:
        tune = one.begin("--seq", "64", *TINY, *FOR_EVER)
        one.hanging(tune)
        fleet.server.crash()
        one.let_go(tune)
        out, err = finish(tune)
        tap.has(out, "kept in ~/store.db")
        tap.equal(err.count("does not serve"), 1)
        # Still gone: another problem is tuned all the same, and what is known is answered.
        tap.has(two.run("--seq", "64", *TINY).stderr, "does not serve")
        tap.equal(two.run("--seq", "64", *TINY).stderr, "")
        fleet.server.start()
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "0")
        tap.equal(len(one.json("show")["winners"]), 1)
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "1")


def a_database_that_comes_back_before_the_end_gets_the_result_at_once():
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one:
        tune = one.begin("--seq", "64", *TINY, *FOR_EVER)
        one.hanging(tune)
        fleet.server.crash()
        fleet.server.start()
        one.let_go(tune)
        out, err = finish(tune)
        tap.has(out, "kept in " + fleet.shown)
        tap.lacks(err, "does not serve")
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "1")


def a_worker_waits_for_a_database_that_was_killed_and_publishes():
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one:
        one.enqueue(64, 128)
        worker = one.worker("--idle-exit", "1s", *FOR_EVER)
        one.hanging(worker)
        fleet.server.crash()
        one.let_go(worker)
        line_with(worker, "does not serve")
        fleet.server.start()
        out, _ = finish(worker)
        tap.has(out, "2 measured")
        queue = one.queue()
        tap.equal((queue["done"], queue["refused"]), (2, 0))
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "2")


def a_worker_stopped_while_the_database_is_gone_leaves_its_result_to_the_next_call():
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one:
        one.enqueue(64)
        worker = one.worker(*FOR_EVER)
        one.hanging(worker)
        fleet.server.crash()
        one.let_go(worker)
        line_with(worker, "does not serve")
        # Until then nobody else of this host may publish it, without the claim.
        tap.equal(one.waiting(), 0)
        worker.terminate()
        out, _ = finish(worker)
        tap.has(out, "1 unpublished")
        tap.equal(one.waiting(), 1)
        fleet.server.start()
        one.run("show")
        tap.equal((fleet.ask("SELECT origin FROM winner"), one.waiting()), ("measured", 0))


def who_waits_for_another_hosts_tune_goes_on_alone_when_the_database_dies():
    with OnServer() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one, \
            Host(fleet.location, gpu=2) as two:
        tune = one.begin("--seq", "64", *TINY, *FOR_EVER)
        one.hanging(tune)
        waiting = two.begin("--seq", "64", *TINY)
        line_with(waiting, "another process")
        fleet.server.crash()
        out, err = finish(waiting)
        tap.has(out, "kept in ~/store.db")
        tap.has(err, "does not serve")
        tune.terminate()
        finish(tune, status=143)
        fleet.server.start()


def a_server_that_stalls_after_the_login_is_given_up_once_long_before_its_time():
    half = Stub.message(b"C", b"SET\0")[:6]
    for answer in (b"", half):
        with Stub(answer) as server, Host(server.url) as one:
            done = one.run("--gpu", "L4", "--seq", "64", *TINY)
            tap.has(done.stdout, "kept in ~/store.db")
            tap.equal(done.stderr.count("does not serve"), 1)
            tap.has(done.stderr, "it did not answer")
            tap.lacks(done.stderr, Stub.LATE)
            tap.equal((server.logins, one.waiting()), (1, 1))  # neither pull, lease nor publishing tried again


def what_a_server_says_reaches_no_terminal_as_it_is():
    rude = b"\x1b[31mrude\x9b\xc2\x9b\xe2\x80\xae"
    notice, error = Stub.said(b"N", b"WARNING", rude), Stub.said(b"E", b"ERROR", rude)
    with Stub(notice + error + Stub.message(b"Z", b"I"), at_login=notice) as server, \
            Host(server.url) as one:
        done = one.run("doctor", status=1)
        tap.equal(done.stderr, "")
        shown = one.run("show")
        tap.equal(shown.stderr.count("\n"), 1)  # the note; the notices are nobody's
        for said in (done.stdout, shown.stderr):
            tap.has(said, "\\x1b[31mrude?")
            tap.equal([c for c in said if c != "\n" and not c.isprintable()], [])


tap.main([
    a_database_killed_in_mid_tune_costs_one_note_and_gets_the_result_later,
    a_database_that_comes_back_before_the_end_gets_the_result_at_once,
    a_worker_waits_for_a_database_that_was_killed_and_publishes,
    a_worker_stopped_while_the_database_is_gone_leaves_its_result_to_the_next_call,
    who_waits_for_another_hosts_tune_goes_on_alone_when_the_database_dies,
    a_server_that_stalls_after_the_login_is_given_up_once_long_before_its_time,
    what_a_server_says_reaches_no_terminal_as_it_is,
])
