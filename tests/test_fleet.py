#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hosts that share a store in a file, on the fake driver; with a server it is test_fleet_server.py."""
import os
import subprocess
import sys
import time

import tap
from fleet import SLOW, TINY, Host, InFile, finish, kill, tests
from place import BUILD


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
        tap.has(one.run("queue", "--stop", "nothing", status=1).stderr, '"nothing" is not the key of a sweep')
        tap.has(one.run("queue", "--json", "--stop", 79 * "a" + "é", status=1).stdout, 79 * "a" + '...\\" is not')
        tap.has(one.run("queue", "--stop", key[:10]).stdout, "stopped")
        tap.has(finish(one.worker("--idle-exit", "0.2s"))[0], "0 measured")
        tap.equal(one.enqueue(64)["state"], "running")
        told = one.run("queue").stdout
        tap.has(told, "not yet")
        tap.has(told, "waiting ")
        tap.lacks(told, "running")
        tap.has(finish(one.worker("--once"))[0], "1 measured")
        tap.lacks(one.run("queue").stdout, "not yet")
        with Host(fleet.location) as other:  # what has no GPU compiles, also where bits are to be compared
            other.run("sweep", "--enqueue", "--gpu", "L4", "--seq", "64", *TINY, "--same-bits", "default")
            tap.has(finish(other.worker("--idle-exit", "0.2s"))[0], "0 measured, 1 compiled")
        tap.has(finish(one.worker("--once"))[0], "1 measured")
        again = one.run("sweep", "--gpu", "L4", "--seq", "64", *TINY, "--same-bits", "default")
        tap.has(again.stdout, "measured, same bits as default")


def pythons_sweep_waits_for_what_others_work_on_and_takes_over_what_their_death_leaves():
    code = ("import fa_tune\n"
            "print(*[answer.origin for answer in fa_tune.sweep([fa_tune.Problem(head_dim=64, seq_q=64, batch=1, heads_q=1)], "
            "progress=False).answers()])")
    with InFile() as fleet, Host(fleet.location, gpu=1, script=SLOW) as one:
        def sweep():
            return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, encoding="utf-8",
                                    env={**one.env, "PYTHONPATH": os.path.join(BUILD, "python"),
                                         "FA_TUNE_WORKER": os.path.join(BUILD, "fa-tune-worker")})
        first = sweep()
        one.hanging(first)
        second = sweep()
        time.sleep(1)  # it comes to the end of what it can take
        tap.equal(second.poll(), None)
        one.use_fake_driver("device name=NVIDIA_L4 sm=89 sms=58 board=1\n")
        kill(first)
        tap.equal(finish(second)[0], "measured\n")
        tap.equal(fleet.ask("SELECT attempts FROM sweep_item"), "2")


def what_cannot_be_is_said_clearly():
    with InFile() as fleet, Host(fleet.location) as one:
        tap.has(one.run("sweep", "--enqueue", "--seq", "64", *TINY, status=1).stderr, "name the GPU type")
        tap.has(one.run("worker", "--gpu", "L5", status=1).stderr, "L5")
        tap.has(one.run("push", status=1).stderr, "is a file: set FA_TUNE_STORE to the server's address")
        one.env["FA_TUNE_STORE"] = "postgresql://me:s3cret@127.0.0.1:1/db?connect_timeout=2&sslpassword=s3cret"
        said = one.run("--seq", "64", *TINY, "--gpu", "L4").stderr
        tap.has(said, "postgresql://me@127.0.0.1:1/db")
        tap.lacks(said, "s3cret")
        # What is only there for others is nothing for the local file.
        for verb in (("sweep", "--enqueue", "--gpu", "L4", "--seq", "64"), ("push",),
                     ("worker", "--idle-exit", "0.1s")):
            tap.has(one.run(*verb, status=1).stderr, "does not serve")
        one.env["FA_TUNE_STORE"] = "postgresql://me:s3@cret@db/fleet"
        said = one.run("show", status=2).stderr
        tap.has(said, "write @ as %40")
        tap.lacks(said, "cret")


tap.main(tests(InFile) + tap.cases())
