#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that share a store, on the fake driver. The fleet's store is a file here: what needs a
database server is in test_fleet_postgres.py."""
import json
import os
import signal
import sqlite3

import tap
from fleet import SLOW, TINY, Host, finish, kill, line_with
from place import Place


class Shared:
    """The location of a store that hosts share, and of one that cannot be reached."""

    def __init__(self):
        self.place = Place(space=None)
        self.file = os.path.join(self.place.folder, "shared", "fleet.db")
        self.location = "sqlite://" + self.file
        self.gone = "sqlite://" + os.path.join(self.place.folder, "gone", "fleet.db")
        with open(os.path.dirname(self.gone[len("sqlite://"):]), "w", encoding="utf-8"):
            pass  # a file where a directory would have to be

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.place.__exit__()

    def count(self, query):
        with sqlite3.connect(self.file) as store:
            return store.execute(query).fetchone()[0]


def a_host_pulls_what_another_has_measured_and_keeps_it():
    with Shared() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        made = one.ask(64)["answer"]
        tap.equal((made["origin"], made["from_store"]), ("measured", False))
        pulled = two.ask(64, "--effort", "cached")["answer"]
        tap.equal((pulled["origin"], pulled["from_store"]), ("measured-same-silicon", True))
        tap.equal((pulled["config"], pulled["cubin_key"]), (made["config"], made["cubin_key"]))
        # From now on it is there without the fleet, which is not even asked.
        two.env["FA_TUNE_STORE"] = fleet.gone
        done = two.run("--seq", "64", *TINY, "--effort", "cached")
        tap.has(done.stdout, "measured-same-silicon")
        tap.equal(done.stderr, "")


def a_fleet_that_is_gone_is_told_once_and_caught_up_with_by_the_next_call():
    with Shared() as fleet, Host(fleet.gone, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        done = one.run("--seq", "64", *TINY)
        tap.equal(done.stderr.count("does not serve"), 1)
        tap.has(done.stdout, "kept in ~/store.db")
        one.env["FA_TUNE_STORE"] = fleet.location
        shown = one.json("show")
        tap.equal((len(shown["winners"]), shown["store"]), (1, fleet.location))
        tap.equal(fleet.count("SELECT count(*) FROM winner"), 1)
        tap.equal(two.ask(64, "--effort", "cached")["answer"]["origin"], "measured-same-silicon")
        # It was published once: there is nothing left to publish.
        with sqlite3.connect(one.store) as store:
            tap.equal(store.execute("SELECT count(*) FROM outbox").fetchone()[0], 0)


def a_worse_winner_never_takes_a_better_ones_place():
    with Shared() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.gone) as two:
        two.ask(64, "--gpu", "L4")  # predicted, and kept for the fleet
        one.ask(64)
        two.env["FA_TUNE_STORE"] = fleet.location
        two.run("show")
        with sqlite3.connect(two.store) as store:
            tap.equal(store.execute("SELECT count(*) FROM outbox").fetchone()[0], 0)
        tap.equal(fleet.count("SELECT origin FROM winner"), "measured")
        # And it gives way to the better one in its own local store.
        answer = two.ask(64, "--gpu", "L4")["answer"]
        tap.equal(answer["origin"], "measured-same-silicon")


def a_row_that_is_launched_otherwise_than_its_config_says_is_refused():
    with Shared() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location, gpu=2) as two:
        one.ask(64)
        with sqlite3.connect(fleet.file) as store:
            store.execute("UPDATE winner SET grid_x = grid_x + 1")
        done = two.run("--seq", "64", *TINY, "--effort", "cached", status=1)
        tap.has(done.stderr, "is not used: it is launched otherwise")
        tap.equal(two.ask(64)["answer"]["from_store"], False)


def a_key_asked_for_on_four_hosts_at_once_is_tuned_once():
    with Shared() as fleet:
        hosts = [Host(fleet.location, gpu=board) for board in range(4)]
        try:
            asking = [host.begin("--seq", "64", *TINY, "--json") for host in hosts]
            told = [json.loads(finish(process)[0])["answer"] for process in asking]
            tap.equal(sorted(answer["from_store"] for answer in told), [False, True, True, True])
            tap.equal(len({answer["cubin_key"] for answer in told}), 1)
            tap.equal(fleet.count("SELECT count(*) FROM winner"), 1)
        finally:
            for host in hosts:
                host.__exit__()


def lists_and_exports_tell_of_the_whole_fleet():
    with Shared() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        one.ask(64)
        tap.equal(len(two.json("show")["winners"]), 1)
        told = two.json("export", "--unsigned", "--out", os.path.join(two.folder, "all.fab"))
        tap.equal((told["bundle"]["winners"], told["bundle"]["skipped"]), (1, 0))
        tap.equal(len(two.json("report", "--format", "json")["problems"]), 1)
        two.env["FA_TUNE_STORE"] = fleet.gone
        done = two.run("show")
        tap.has(done.stderr, "does not serve")
        tap.has(done.stdout, "~/store.db")


def those_without_a_gpu_compile_for_those_with_one():
    with Shared() as fleet, Host(fleet.location, gpu=1) as one, Host(fleet.location) as two:
        tap.equal(two.enqueue(64, 128)["items"], 2)
        out, err = finish(two.worker("--idle-exit", "0.2s"))
        tap.has(out, "0 measured, 2 compiled")
        tap.has(err, "L4: compiled")
        queue = one.queue()
        tap.equal((queue["done"], queue["compiled"], queue["pending"]), (0, 2, 2))
        before = queue["spent"]
        # Before anybody has measured, there is a guess to be had.
        tap.equal(one.json("show")["winners"][0]["answer"]["origin"], "predicted")
        out, err = finish(one.worker("--idle-exit", "0.2s"))
        tap.has(out, "2 measured, 0 compiled")
        queue = one.queue()
        tap.equal((queue["state"], queue["done"], queue["refused"]), ("done", 2, 0))
        # Two configs of two problems, whose source is the same: nothing was compiled anew.
        tap.equal((before["cubins_compiled"], queue["spent"]["cubins_compiled"]), (2, 2))
        tap.equal(queue["spent"]["cubins_reused"] - before["cubins_reused"], 4)
        tap.equal(fleet.count("SELECT count(*) FROM winner WHERE origin = 'measured'"), 2)
        tap.equal(fleet.count("SELECT count(*) FROM winner"), 2)


def what_a_killed_worker_had_goes_to_another():
    with Shared() as fleet, Host(fleet.location, gpu=1, script=SLOW, lease=2) as one, \
            Host(fleet.location, gpu=2, lease=2) as two:
        one.enqueue(64)
        victim = one.worker("--trial-timeout", "600")
        line_with(victim, "measuring")
        held = two.queue()["held"]
        tap.equal([(h["stage"], h["attempts"]) for h in held], [("measure", 1)])
        kill(victim)
        out, _ = finish(two.worker("--once"))
        tap.has(out, "1 measured")
        queue = two.queue()
        tap.equal((queue["state"], queue["done"], queue["held"]), ("done", 1, []))
        tap.equal(fleet.count("SELECT attempts FROM sweep_item"), 2)
        tap.equal(fleet.count("SELECT count(*) FROM winner"), 1)


def a_worker_that_was_away_too_long_cannot_publish_and_is_counted():
    with Shared() as fleet, Host(fleet.location, gpu=1, script=SLOW, lease=2) as one, \
            Host(fleet.location, gpu=2, lease=2) as two:
        one.enqueue(64)
        stale = one.worker("--once", "--trial-timeout", "3")
        line_with(stale, "measuring")
        stale.send_signal(signal.SIGSTOP)
        finish(two.worker("--once"))
        winner = fleet.count("SELECT evidence FROM winner")
        stale.send_signal(signal.SIGCONT)
        out, err = finish(stale)
        tap.has(out, "1 refused")
        tap.has(err, "came too late")
        queue = two.queue()
        tap.equal((queue["done"], queue["refused"]), (1, 1))
        tap.equal(fleet.count("SELECT evidence FROM winner"), winner)
        # Nor later: it is nothing that waits to be published.
        one.run("show")
        tap.equal(fleet.count("SELECT evidence FROM winner"), winner)


def a_worker_told_to_stop_hands_its_problem_back():
    with Shared() as fleet, Host(fleet.location, gpu=1, script=SLOW, lease=600) as one, \
            Host(fleet.location, gpu=2, lease=600) as two:
        one.enqueue(64)
        worker = one.worker("--trial-timeout", "600")
        line_with(worker, "measuring")
        worker.send_signal(signal.SIGTERM)
        out, err = finish(worker)
        tap.has(out, "1 handed back")
        queue = two.queue()
        tap.equal((queue["pending"], queue["running"]), (1, 0))
        finish(two.worker("--once"))
        tap.equal(two.queue()["done"], 1)


def a_problem_that_fails_keeps_its_reason_and_the_others_go_on():
    broken = "fault * out_of_memory\n"
    with Shared() as fleet, Host(fleet.location, gpu=1, script=broken) as one:
        one.enqueue(64, 128)
        out, err = finish(one.worker("--idle-exit", "0.2s"))
        tap.has(out, "0 measured, 0 compiled, 2 failed")
        tap.has(err, "none of 2 configs survived")
        queue = one.queue()
        tap.equal((queue["state"], queue["failed"]), ("done", 2))
        tap.has(fleet.count("SELECT reason FROM sweep_item LIMIT 1"), "survived")
        # Entered again, what failed is open again.
        one.use_fake_driver("device name=NVIDIA_L4 sm=89 sms=58\n")
        tap.equal(one.enqueue(64, 128)["failed"], 0)
        finish(one.worker("--idle-exit", "0.2s"))
        tap.equal(one.queue()["done"], 2)


def what_cannot_be_is_said_clearly():
    with Shared() as fleet, Host(fleet.location) as one:
        tap.has(one.run("sweep", "--enqueue", "--seq", "64", *TINY, status=1).stderr, "--gpu")
        tap.has(one.run("worker", "--again", status=2).stderr, "who enqueues")
        tap.has(one.run("worker", "--gpu", "L5", status=1).stderr, "L5")
        one.env["FA_TUNE_LEASE"] = "soon"
        tap.has(one.run("queue", status=2).stderr, "FA_TUNE_LEASE is \"soon\"")
        one.env["FA_TUNE_LEASE"] = "10"
        one.env["FA_TUNE_STORE"] = fleet.gone
        tap.has(one.run("queue", status=1).stderr, "does not serve")
        one.env["FA_TUNE_STORE"] = one.store
        tap.has(one.run("worker", status=1).stderr, "FA_TUNE_STORE")
        tap.has(one.run("sweep", "--enqueue", "--gpu", "L4", "--seq", "64", status=1).stderr,
                "no store is shared")


tap.main([
    a_host_pulls_what_another_has_measured_and_keeps_it,
    a_fleet_that_is_gone_is_told_once_and_caught_up_with_by_the_next_call,
    a_worse_winner_never_takes_a_better_ones_place,
    a_row_that_is_launched_otherwise_than_its_config_says_is_refused,
    a_key_asked_for_on_four_hosts_at_once_is_tuned_once,
    lists_and_exports_tell_of_the_whole_fleet,
    those_without_a_gpu_compile_for_those_with_one,
    what_a_killed_worker_had_goes_to_another,
    a_worker_that_was_away_too_long_cannot_publish_and_is_counted,
    a_worker_told_to_stop_hands_its_problem_back,
    a_problem_that_fails_keeps_its_reason_and_the_others_go_on,
    what_cannot_be_is_said_clearly,
])
