#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library and the command line against the real daemon."""
import json
import os
import signal
import subprocess
import sys

import tap
from place import BUILD, DEADLINE, EIGHT, SMALL, SOURCE, Place
from serve import Serve, wait_for

L4 = "device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n"
SLOW = L4 + "fault * hang\n"  # each config takes the trial's whole time limit
TWO = dict(EIGHT, BLOCK_N=[64], STAGES=[1])
GRID = ["sweep", "--seq", "128,256", "--batch", "1", "--heads", "1"]


def run(place, *command, status=0):
    done = subprocess.run(command, env=place.env, cwd=place.folder, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                          check=False, timeout=DEADLINE)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def launch(place, **how):
    return run(place, os.path.join(BUILD, "examples", "tune_and_launch"), **how)


def notes(text):
    return [line for line in text.splitlines() if line.startswith("note: ")]


class Home(Place):
    """Where the daemon's store is; cubins are there already."""

    def __init__(self, **how):
        super().__init__(**how)
        self.take_cubins()


class Client:
    """fa-tune at work, which has heard of its tune."""

    def __init__(self, place, daemon, name, *more):
        self.errors_path = os.path.join(place.folder, name)
        with open(self.errors_path, "wb") as errors:
            self.process = place.start(*SMALL, "--server", daemon.socket, *more,
                                       stdout=subprocess.PIPE, stderr=errors)
        wait_for(lambda: "space 8" in self.errors(), "a client that listens")

    def errors(self):
        with open(self.errors_path, encoding="utf-8") as file:
            return file.read()

    def json(self):
        out, _ = self.process.communicate(timeout=DEADLINE)
        tap.equal((self.process.returncode, self.errors() if self.process.returncode else ""), (0, ""))
        return json.loads(out)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)
        self.process.communicate(timeout=DEADLINE)
        return self.process.returncode


def a_tune_is_done_by_the_server_and_kept_there():
    with Home(script=L4) as home, Place(script=L4) as away, Serve(home) as daemon:
        there = ["--server", "unix:" + daemon.socket]
        told = away.run(*SMALL, *there)
        tap.has(told.stdout, "winner #1, measured")
        tap.has(told.stdout, "kept by unix:" + daemon.socket)
        tap.has(told.stderr, "attn_fwd_sm80")  # its progress
        tap.equal(notes(told.stderr), [])
        again = away.json(*SMALL, *there)
        tap.equal((again["answer"]["from_store"], again["server"]), (True, "unix:" + daemon.socket))
        tap.equal([w["problem"]["seq_q"] for w in away.json("show", *there)["winners"]
                   if w["answer"]["origin"] == "measured"], [128])
        tap.equal(away.json("show")["winners"], [])  # nothing is kept here
        tap.equal(again["answer"]["cubin_key"],
                  home.json(*SMALL, "--effort", "cached")["answer"]["cubin_key"])


def a_sweep_is_done_by_the_server_and_told_whole():
    with Home(script=L4) as home, Place(script=L4) as away, Serve(home) as daemon:
        away.env["FA_TUNE_SERVER"] = daemon.socket
        for _ in range(2):  # the second time everything is known before anybody listens
            told = away.json(*GRID)
            tap.equal([item["state"] for item in told["items"]], ["done", "done"])
            tap.equal([item["answer"]["origin"] for item in told["items"]], ["measured"] * 2)
            tap.equal((told["sweep"]["state"], told["sweep"]["done"]), ("done", 2))
        tap.has(away.run(*GRID).stdout, "2 of 2 done")
        tap.equal(len(home.json("sweep", "--list")["sweeps"]), 1)
        away.env["FA_TUNE_SERVER"] = ""
        tap.equal(away.json("sweep", "--list")["sweeps"], [])


def both_examples_get_a_kernel_from_the_daemon_and_launch_it():
    with Place(space=dict(TWO, BLOCK_M=[64]), script=L4) as home, Place(script=L4) as away, Serve(home) as daemon:
        away.env["FA_TUNE_SERVER"] = "unix:" + daemon.socket
        first = launch(away)
        tap.equal(first.stderr, "")
        tap.has(first.stdout, "not in unix:%s yet: tuning" % daemon.socket)
        tap.has(first.stdout, "from the service at unix:" + daemon.socket)
        second = launch(away)
        tap.has(second.stdout, "origin measured, found in the store")
        tap.lacks(second.stdout, "tuning")
        away.preload_sanitizers()
        example = [sys.executable, os.path.join(SOURCE, "examples", "serve_and_launch.py")]
        told = run(away, *example, daemon.socket).stdout
        tap.has(told, "origin measured, ")
        tap.has(told, "against double precision")
        tap.has(run(away, *example, daemon.socket + "x", status=1).stderr, "no service answers")
        away.env["FA_TUNE_LIBCUDA"] = os.path.join(away.folder, "none")
        tap.has(run(away, *example, daemon.socket, status=77).stdout, "no CUDA device")


def what_a_server_without_the_gpu_cannot_measure_is_measured_here():
    with Place() as home, Place(space=TWO, script=L4) as away, Serve(home) as daemon:
        away.env["FA_TUNE_SERVER"] = daemon.socket
        done = launch(away)  # asks for what is stored, then to measure
        told = away.json(*SMALL)
        for errors in (done.stderr, away.run(*SMALL, "--again", "--no-progress").stderr):
            tap.equal(len(notes(errors)), 1)
            tap.has(errors, "it has nothing measured for this GPU, and none like it")
        tap.has(done.stdout, "origin measured, tuned now")
        tap.equal((told["answer"]["origin"], told["server"]), ("measured", None))
        # Nothing was compiled there for that; a prediction is the server's to make.
        tap.equal(daemon.get("/v1/winners")[1]["winners"], [])
        tap.equal(daemon.get("/v1/jobs")[1]["jobs"], [])


def a_daemon_killed_in_mid_tune_is_waited_for_a_little_and_then_done_without():
    with Home(script=SLOW) as home, Home(script=L4) as away, \
            Serve(home, "--trial-timeout", "3600") as daemon:
        client = Client(away, daemon, "first", "--json")
        daemon.kill()
        told = client.json()
        tap.equal((told["server"], told["answer"]["origin"]), (None, "measured"))
        tap.equal(len(notes(client.errors())), 1)
        # One that comes back in time goes on with its job, and its client with it.
        daemon.start()
        client = Client(away, daemon, "second", "--json")
        daemon.kill()
        home.use_fake_driver(L4)
        daemon.start()
        told = client.json()
        tap.equal((told["server"], told["answer"]["origin"]), ("unix:" + daemon.socket, "measured"))
        tap.equal(notes(client.errors()), [])


def a_client_that_is_interrupted_cancels_its_job_unless_another_waits():
    with Home(script=SLOW) as home, Place(script=L4) as away, \
            Serve(home, "--trial-timeout", "3600") as daemon:
        first, second = Client(away, daemon, "first"), Client(away, daemon, "second")
        job, = [j["id"] for j in daemon.get("/v1/jobs")[1]["jobs"]]
        tap.equal(first.interrupt(), 130)
        tap.equal(daemon.job(job)["state"], "running")
        tap.equal(second.interrupt(), 130)
        tap.equal(daemon.wait_for_state(job, "canceled", "done", "failed")["state"], "canceled")


tap.main([
    a_tune_is_done_by_the_server_and_kept_there,
    a_sweep_is_done_by_the_server_and_told_whole,
    both_examples_get_a_kernel_from_the_daemon_and_launch_it,
    what_a_server_without_the_gpu_cannot_measure_is_measured_here,
    a_daemon_killed_in_mid_tune_is_waited_for_a_little_and_then_done_without,
    a_client_that_is_interrupted_cancels_its_job_unless_another_waits,
])
