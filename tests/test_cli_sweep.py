#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sweeps from outside: what is told, what is shared, and how a sweep goes on."""
import signal
import sqlite3
import subprocess

import tap
from place import DEADLINE, FAST, FOUR, L4, TINY, TWO, Place


def a_sweep_tells_each_problem_and_shares_cubins_between_them():
    with Place(space=TWO, script=L4 + FAST) as place:
        done = place.run(*FOUR)
        lines = [line for line in done.stderr.splitlines() if line.startswith("[")]
        tap.equal([line.split("]")[0] for line in lines], ["[1/4", "[2/4", "[3/4", "[4/4"])
        tap.equal(["40.0 µs, 1.50× default" in line for line in lines], [True] * 4)
        tap.has(done.stdout, "4 of 4 done")
        tap.has(done.stdout, "8 trials, 4 cubins compiled, 4 reused")

        again = place.run(*FOUR)
        tap.equal((again.stdout, again.stderr), (done.stdout, "4 of 4 problems were done before\n"))
        told = place.json(*FOUR)
        tap.equal((told["sweep"]["state"], told["sweep"]["done"], told["sweep"]["failed"]), ("done", 4, 0))
        tap.equal([(i["state"], i["reason"], i["attempts"], i["answer"]["origin"])
                   for i in told["items"]], [("done", "", 1, "measured")] * 4)
        tap.equal(told["sweep"]["budget"], {"seconds": None, "trials": None})
        assert 0 < told["sweep"]["spent"]["seconds"] < 200
        tap.has(place.run("queue").stdout, "4/4")
    with Place(space=dict(TWO, BLOCK_M=[64])) as place:
        done = place.run("sweep", "--gpu", "L4", "--seq", "64,128", *TINY)
        tap.has(done.stdout, "2 trials, 1 cubin compiled, 1 reused")


def training_is_swept_and_its_passes_are_told_beside_each_other():
    training = ["sweep", "--seq", "64", "--causal", "bottom-right", "--heads", "2", "--heads-kv", "1", "--batch", "1", "--training"]
    with Place(space=TWO, script=L4 + FAST + "time attn_bwd_sm80 30\n") as place:
        place.one_backward_config()
        rows = place.run(*training).stdout.splitlines()
        tap.has(rows[1], "attention forward")
        tap.has(rows[2], "attention backward")
        tap.has(rows[2], "1.00×  attn_bwd_sm80 BLOCK_M=64")
        forward, backward = place.json("report")["problems"]
        tap.equal((forward["problem"]["lse"], forward["backward"], backward["backward"]), (True, 2, None))
        tap.equal(backward["problem"]["operation"], "attn_bwd")
        forward, backward = (one["winner"]["median_us"] for one in (forward, backward))
        assert abs(forward - 40) < 1 and abs(backward - 3 * 30) < 2, (forward, backward)   # three launches
        place.run("sweep", "--seq", "64", "--causal", "bottom-right", "--heads", "2", "--heads-kv", "1", "--batch", "1", "--gpu", "L40S", "--training",
                  "--effort", "predict")
        place.run("--seq", "96", *TINY)   # a forward pass without the LSE is none of training
        tap.equal([(one["gpu"]["name"], one["backward"]) for one in place.json("report")["problems"]],
                  [("L40S", 2), ("L40S", None), ("NVIDIA L4", None), ("NVIDIA L4", 5), ("NVIDIA L4", None)])


def a_problem_that_fails_is_told_and_tried_again_by_the_next_run():
    with Place(space=TWO, script=L4 + FAST + "fault family wrong\n") as place:
        done = place.run("sweep", "--seq", "64,128", *TINY, status=1)
        tap.has(done.stdout, "none of 2 configs survived")
        tap.has(done.stdout, "0 of 2 done, 2 failed (the same command tries them again)")
        tap.has(done.stderr, "2 of 2 problems failed")
        tap.has(place.run("queue").stdout, "failed: fp16")
        told = place.json("sweep", "--seq", "64,128", *TINY, status=1)
        tap.equal([(i["state"], i["attempts"], i["answer"]) for i in told["items"]], [("failed", 2, None)] * 2)
        place.use_fake_driver(L4 + FAST)
        told = place.json("sweep", "--seq", "64,128", *TINY, "--effort", "patient")
        tap.equal([i["state"] for i in told["items"]], ["done", "done"])


def a_problem_that_no_family_serves_does_not_stop_the_others():
    with Place(space=TWO, script=L4 + FAST) as place:
        told = place.json("sweep", "--gpu", "T4,L4", "--dtype", "bf16", "--seq", "64", *TINY, status=1)
        tap.equal([(i["state"], i["answer"] is None) for i in told["items"]], [("failed", True), ("done", False)])
        tap.equal((told["sweep"]["state"], told["sweep"]["done"], told["sweep"]["failed"]), ("done", 1, 1))


def a_queue_that_is_not_valid_is_refused_until_it_is_restarted():
    with Place(space=TWO, script=L4 + FAST) as place:
        place.run(*FOUR)
        with sqlite3.connect(place.store) as store:  # beyond what was asked for: it has no problem to tune
            store.execute("UPDATE sweep_item SET position = 2000000000, state = 'pending' WHERE position = 1")
        tap.has(place.run(*FOUR, status=1).stderr, "restart the sweep")
        tap.equal(place.json("queue")["sweeps"][0]["state"], "stopped")
        tap.equal(place.json(*FOUR, "--restart")["sweep"]["done"], 4)


def no_device_stops_the_sweep_at_once():
    with Place(script="no_device\n") as place:
        done = place.run(*FOUR, status=1)
        tap.equal(done.stdout, "")
        tap.has(done.stderr, "such as L4")
        told = place.json("queue")["sweeps"]
        tap.equal([(s["state"], s["done"], s["failed"]) for s in told], [("stopped", 0, 0)])


def what_was_predicted_is_measured_once_the_gpu_is_here_and_restart_forgets():
    grid = ["sweep", "--gpu", "L4,L40S", "--seq", "64", *TINY]
    with Place(space=TWO, script="no_device\n") as place:
        told = place.json(*grid)
        tap.equal([(i["asked_gpu"], i["answer"]["origin"]) for i in told["items"]], [("L4", "predicted"), ("L40S", "predicted")])
        tap.has(place.run(*grid).stdout, "L40S")
        place.use_fake_driver(L4)
        told = place.json(*grid)
        tap.equal([(i["attempts"], i["answer"]["origin"]) for i in told["items"]], [(2, "measured"), (1, "predicted")])
        told = place.json(*grid, "--restart")
        tap.equal([(i["attempts"], i["answer"]["from_store"], i["spent"]["trials"])
                   for i in told["items"]], [(1, True, 0)] * 2)


def lengths_off_the_buckets_share_a_winner():
    grid = ["sweep", "--seq", "126,128", *TINY]
    with Place(space=TWO, script=L4 + FAST) as place:
        told = place.json(*grid)["items"]
        tap.equal([(i["problem"]["seq_q"], i["answer"]["origin"], i["spent"]["trials"])
                   for i in told], [(126, "nearest", 2), (128, "measured", 0)])
        rows = place.run(*grid).stdout.splitlines()
        tap.has(rows[1], "~40.0 µs")
        tap.has(rows[2], "40.0 µs")
        # Done is done, though for one the winner is another problem's.
        tap.equal([i["attempts"] for i in place.json(*grid)["items"]], [1, 1])
        told = place.json(*grid, "--exact")["items"]
        tap.has(place.run("queue").stdout, "--exact")
        tap.equal([(i["answer"]["origin"], i["spent"]["trials"]) for i in told], [("measured", 2), ("measured", 0)])
        # From now on the very lengths answer for themselves.
        tap.equal(place.json(*grid)["items"][0]["answer"]["origin"], "measured")


def again_is_a_sweep_of_its_own_that_tunes_what_is_stored():
    with Place(space=TWO, script=L4) as place:
        grid = ["sweep", "--seq", "64", *TINY]
        place.run(*grid)
        told = place.json(*grid, "--again")
        tap.equal((told["items"][0]["attempts"], told["items"][0]["answer"]["from_store"]), (1, False))
        tap.equal(len(place.json("queue")["sweeps"]), 2)


def something_is_told_while_a_problem_takes_long():
    hang = L4 + "fault BLOCK_M=64; hang\n"
    with Place(space=TWO, script=hang) as place:
        done = place.run("sweep", "--seq", "64", *TINY, "--trial-timeout", "6")
        lines = done.stderr.splitlines()
        assert len(lines) >= 2, lines
        tap.has(lines[0], "0/1")
        tap.has(lines[0], "fp16 B1 H1 S64 D64: ")
        tap.equal(place.run("sweep", "--seq", "64", *TINY, "--quiet").stderr, "")


def ctrl_c_keeps_everything():
    with Place(space=TWO, script=L4 + FAST + "fault CAUSAL=1; hang\n") as place:  # the last two problems wait for the signal
        process = place.start(*FOUR, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        while not process.stderr.readline().startswith("[1/4]"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
        tap.equal((process.returncode, out), (130, ""))
        tap.has(err, "problems are done, the same command continues")
        told = place.json("queue")["sweeps"]
        tap.equal(told[0]["state"], "stopped")
        assert 1 <= told[0]["done"] < 4, told
        place.use_fake_driver(L4 + FAST)
        # Nothing is tried twice. (One that ended while the sweep did is kept and not counted.)
        assert place.json(*FOUR)["sweep"]["spent"]["trials"] <= 8


tap.main()
