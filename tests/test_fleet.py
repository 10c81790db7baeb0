#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that share a store, on the fake driver. The fleet's store is a file here: what needs a
database server is in test_fleet_postgres.py."""
import hashlib
import os
import sqlite3

import tap
from fleet import TINY, Host, InFile, finish, tests


def a_fleet_that_is_gone_is_told_once_and_caught_up_with_by_the_next_call():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        with fleet.down():
            done = one.run("--seq", "64", *TINY)
            here = one.run("--seq", "64", *TINY, "--effort", "cached")  # nobody is asked for what is here
            both = one.run("sweep", "--seq", "128,256", *TINY)  # one note, however many problems
        tap.equal((done.stderr.count("does not serve"), both.stderr.count("does not serve")), (1, 1))
        tap.equal(here.stderr, "")
        for told in (done, here):
            tap.has(told.stdout, "~/store.db")
        shown = one.json("show")
        tap.equal((len(shown["winners"]), shown["store"]), (3, fleet.location))
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "3")
        tap.equal(two.ask(64, "--effort", "cached")["answer"]["origin"], "measured-same-silicon")
        # It was published once: there is nothing left to publish.
        with sqlite3.connect(one.store) as store:
            tap.equal(store.execute("SELECT count(*) FROM outbox").fetchone()[0], 0)


def results_that_wait_go_to_the_fleet_that_they_wait_for_and_to_no_other():
    with InFile() as staging, InFile() as production, Host(staging.location, gpu=1) as one:
        with staging.down():
            one.ask(64)
        one.env["FA_TUNE_STORE"] = production.location
        one.ask(128)
        tap.equal(production.ask("SELECT count(*) FROM winner"), "1")
        told = "1 result in %s for " + staging.location
        tap.has(one.run("show").stdout, told % "~/store.db waits")
        tap.equal(one.json("show")["waiting"], [{"fleet": staging.location, "results": 1}])
        tap.has(one.run("doctor").stdout, told % "the local store waits")
        one.env["FA_TUNE_STORE"] = staging.location
        tap.equal(one.json("show")["waiting"], [])
        tap.equal((staging.ask("SELECT count(*) FROM winner"), one.waiting()), ("1", 0))
        tap.equal(production.ask("SELECT count(*) FROM winner"), "1")


def it_is_said_in_which_store_a_winner_lies():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        def places(host, *arguments):
            told = host.json(*arguments)
            answers = [told] if "answer" in told else told.get("winners", []) + told.get("steps", [])
            return [(one["answer"]["in_local"], one["answer"]["in_fleet"]) for one in answers if "answer" in one]
        for host in (one, two):
            host.env["FA_TUNE_STORE"] = host.store
        one.run("--seq", "64", *TINY)
        tap.has(one.run("show").stdout, "1 winner in ~/store.db")
        tap.equal(places(one, "show"), [(True, False)])
        one.env["FA_TUNE_STORE"] = fleet.location
        tap.has(one.run("show").stdout, "1 winner: 0 in %s, 1 in ~/store.db" % fleet.location)
        why = ("show", "--why", "--seq", "64", *TINY)
        tap.has(one.run(*why).stdout, "in ~/store.db\n")
        # Another length's, for which the fleet was asked in vain.
        nearest = ("--seq", "100", *TINY, "--effort", "cached")
        tap.has(one.run(*nearest).stdout, "found in ~/store.db, made")
        tap.equal((places(one, "show"), places(one, *why), places(one, *nearest)), 3 * ([(True, False)],))
        two.env["FA_TUNE_STORE"] = fleet.location
        both = "%s and ~/store.db" % fleet.location
        tap.has(two.run("--seq", "64", *TINY).stdout, "kept in " + both)
        tap.has(two.run(*why).stdout, "in " + both)
        tap.has(two.run("show").stdout, "1 winner: 1 in %s, 1 in ~/store.db" % fleet.location)
        tap.equal((places(two, "show"), places(two, *why)), 2 * ([(True, True)],))
        # One has another winner of the same problem, which was never published.
        with sqlite3.connect(one.store) as store:
            store.execute("UPDATE winner SET cubin_key = (SELECT min(key) FROM cubin WHERE key <> cubin_key)")
        tap.equal((places(one, "show"), places(one, *why)), ([(False, True)], [(True, False)]))


def a_worse_winner_never_takes_a_better_ones_place():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        with fleet.down():
            two.ask(64, "--gpu", "L4")  # predicted, and kept for the fleet
        one.ask(64)
        two.run("show")
        with sqlite3.connect(two.store) as store:
            tap.equal(store.execute("SELECT count(*) FROM outbox").fetchone()[0], 0)
        tap.equal(fleet.ask("SELECT origin FROM winner"), "measured")
        # And it gives way to the better one in its own local store.
        answer = two.ask(64, "--gpu", "L4")["answer"]
        tap.equal(answer["origin"], "measured-same-silicon")


def a_row_that_is_launched_otherwise_than_its_config_says_is_refused():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        one.ask(64)
        with sqlite3.connect(fleet.file) as store:
            store.execute("UPDATE winner SET grid_x = grid_x + 1")
        done = two.run("--seq", "64", *TINY, "--effort", "cached", status=1)
        tap.has(done.stderr, "is not used: it is launched otherwise")
        tap.equal(two.ask(64)["answer"]["from_store"], False)


def a_proof_is_of_the_cubin_that_it_was_made_with():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        one.ask(64)
        with sqlite3.connect(fleet.file) as store:
            for row, bytes_ in store.execute("SELECT id, bytes FROM cubin").fetchall():
                other = bytes_ + b"x"
                store.execute("UPDATE cubin SET bytes = ?, hash = ? WHERE id = ?",
                              (other, hashlib.blake2b(other, digest_size=32).hexdigest(), row))
            store.execute("DELETE FROM winner")
        with fleet.down():
            two.ask(128)  # with cubins of its own
        tap.equal(two.ask(64)["answer"]["from_store"], False)
        tap.equal(fleet.ask("SELECT max(driver_version) FROM winner"), "0")
        two.enqueue(256)
        finish(two.worker("--once"))
        tap.equal(fleet.ask("SELECT count(*) FROM winner WHERE driver_version = 0"), "3")


def lists_and_exports_tell_of_the_whole_fleet():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        one.ask(64)
        tap.equal(len(two.json("show")["winners"]), 1)
        told = two.json("export", "--unsigned", "--out", os.path.join(two.folder, "all.fab"))
        tap.equal((told["bundle"]["winners"], told["bundle"]["skipped"]), (1, 0))
        tap.equal(len(two.json("report", "--format", "json")["problems"]), 1)
        two.env["FA_TUNE_STORE"] = fleet.gone
        done = two.run("show")
        tap.has(done.stderr, "does not serve")
        tap.has(done.stdout, "~/store.db")


def what_is_forgotten_here_the_fleet_still_has_and_says_so():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one:
        one.ask(64)
        done = one.run("rm", "--seq", "64").stdout
        tap.has(done, "forgot 1 winner")
        tap.has(done, "a system bundle or the fleet has, too")
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "1")
        tap.equal((one.json("rm", "--all")["forgotten"]["winners"], one.waiting()), (0, 0))
        tap.equal(one.ask(64, "--effort", "cached")["answer"]["from_store"], True)
        one.env["FA_TUNE_STORE"] = fleet.file  # on a file of its own it acts as on any
        tap.equal(one.json("rm", "--all")["forgotten"]["winners"], 1)
        tap.equal(fleet.ask("SELECT count(*) FROM winner"), "0")


def a_problem_that_fails_keeps_its_reason_and_the_others_go_on():
    broken = "fault * out_of_memory\n"
    with InFile() as fleet, Host(fleet.location, gpu=1, script=broken) as one:
        one.enqueue(64, 128)
        out, err = finish(one.worker("--idle-exit", "0.2s"))
        tap.has(out, "0 measured, 0 compiled, 2 failed")
        tap.has(err, "none of 2 configs survived")
        queue = one.queue()
        tap.equal((queue["state"], queue["failed"]), ("done", 2))
        tap.has(fleet.ask("SELECT reason FROM sweep_item LIMIT 1"), "survived")
        # Entered again, what failed is open again.
        one.use_fake_driver("device name=NVIDIA_L4 sm=89 sms=58\n")
        tap.equal(one.enqueue(64, 128)["failed"], 0)
        finish(one.worker("--idle-exit", "0.2s"))
        tap.equal(one.queue()["done"], 2)


def a_sweep_can_be_taken_out_of_the_workers_hands():
    with InFile() as fleet, Host(fleet.location, gpu=1) as one:
        key = one.enqueue(64)["key"]
        tap.has(one.run("queue", "--stop", "nothing", status=1).stderr, "has the key nothing")
        tap.has(one.run("queue", "--stop", key[:10]).stdout, "stopped")
        tap.has(finish(one.worker("--idle-exit", "0.2s"))[0], "0 measured")
        tap.equal(one.enqueue(64)["state"], "running")
        told = one.run("queue").stdout
        tap.has(told, "not yet")
        tap.has(told, "waiting ")
        tap.lacks(told, "running")
        tap.has(finish(one.worker("--once"))[0], "1 measured")
        tap.lacks(one.run("queue").stdout, "not yet")
        out, _ = finish(one.begin("queue", "--follow"))
        tap.has(out, "done")


def what_cannot_be_is_said_clearly():
    with InFile() as fleet, Host(fleet.location) as one:
        tap.has(one.run("sweep", "--enqueue", "--seq", "64", *TINY, status=1).stderr, "--gpu")
        tap.has(one.run("worker", "--again", status=2).stderr, '"--again" is not an option of')
        tap.has(one.run("worker", "--gpu", "L5", status=1).stderr, "L5")
        one.env["FA_TUNE_LEASE"] = "soon"
        tap.has(one.run("queue", status=2).stderr, "FA_TUNE_LEASE is \"soon\"")
        one.env["FA_TUNE_LEASE"] = "10"
        one.env["FA_TUNE_STORE"] = fleet.gone
        tap.has(one.run("queue", status=1).stderr, "does not serve")
        # Nobody knows whether there was something to do: that is no good end.
        tap.has(one.run("worker", "--idle-exit", "0.1s", status=1).stderr, "does not serve")
        one.env["FA_TUNE_STORE"] = "postgresql://me:s3cret@127.0.0.1:1/db?connect_timeout=2&sslpassword=s3cret"
        said = one.run("--seq", "64", *TINY, "--gpu", "L4").stderr
        tap.has(said, "postgresql://me@127.0.0.1:1/db")
        tap.lacks(said, "s3cret")
        one.env["FA_TUNE_STORE"] = "postgresql://me:s3@cret@db/fleet"
        for verb, status in (("show", 0), ("queue", 1)):
            said = one.run(verb, status=status).stderr
            tap.has(said, "write @ as %40")
            tap.lacks(said, "cret")
        tap.lacks(said, "cret")
        one.env["FA_TUNE_STORE"] = one.store
        tap.has(one.run("worker", status=1).stderr, "FA_TUNE_STORE")
        tap.has(one.run("sweep", "--enqueue", "--gpu", "L4", "--seq", "64", status=1).stderr,
                "no store is shared")


tap.main(tests(InFile) + [
    a_fleet_that_is_gone_is_told_once_and_caught_up_with_by_the_next_call,
    results_that_wait_go_to_the_fleet_that_they_wait_for_and_to_no_other,
    it_is_said_in_which_store_a_winner_lies,
    a_worse_winner_never_takes_a_better_ones_place,
    a_row_that_is_launched_otherwise_than_its_config_says_is_refused,
    a_proof_is_of_the_cubin_that_it_was_made_with,
    lists_and_exports_tell_of_the_whole_fleet,
    what_is_forgotten_here_the_fleet_still_has_and_says_so,
    a_problem_that_fails_keeps_its_reason_and_the_others_go_on,
    a_sweep_can_be_taken_out_of_the_workers_hands,
    what_cannot_be_is_said_clearly,
])
