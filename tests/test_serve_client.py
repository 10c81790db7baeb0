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
    """fa-tune at work, whose tune is under way."""

    def __init__(self, place, daemon, name, *more):
        self.errors_path = os.path.join(place.folder, name)
        with open(self.errors_path, "wb") as errors:
            self.process = place.start(*SMALL, "--server", daemon.socket, *more,
                                       stdout=subprocess.PIPE, stderr=errors)
        wait_for(lambda: any(job["started"] for job in daemon.jobs()), "its tune")

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
        tap.equal(notes(told.stderr), [])
        again = away.json(*SMALL, *there)
        tap.equal((again["answer"]["from_store"], again["server"]), (True, "unix:" + daemon.socket))
        tap.equal(away.json("show")["winners"], [])  # nothing is kept here
        tap.equal(again["answer"]["cubin_key"],
                  home.json(*SMALL, "--effort", "cached")["answer"]["cubin_key"])


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
            tap.has(errors, "this service has no L4")
        tap.has(done.stdout, "origin measured, tuned now")
        tap.equal((told["answer"]["origin"], told["server"]), ("measured", None))
        # Nothing was compiled there for that; a prediction is the server's to make.
        tap.equal(daemon.get("/v1/winners")[1]["winners"], [])
        tap.equal(daemon.get("/v1/jobs")[1]["jobs"], [])


def a_daemon_killed_in_mid_tune_is_done_without():
    with Home(script=SLOW) as home, Home(script=L4) as away, \
            Serve(home, "--trial-timeout", "3600") as daemon:
        client = Client(away, daemon, "first", "--json")
        daemon.kill()
        told = client.json()
        tap.equal((told["server"], told["answer"]["origin"]), (None, "measured"))
        tap.equal(len(notes(client.errors())), 1)


def a_client_that_is_interrupted_cancels_its_tune_and_another_goes_on_there():
    with Home(script=SLOW) as home, Place(script=L4) as away, \
            Serve(home, "--trial-timeout", "3600") as daemon:
        first = Client(away, daemon, "first")
        second = Client(away, daemon, "second", "--json")
        wait_for(lambda: len(daemon.jobs()) == 2, "both")
        home.use_fake_driver(L4)
        tap.equal(first.interrupt(), 130)
        tap.equal(second.json()["answer"]["origin"], "measured")
        wait_for(lambda: daemon.jobs() == [], "the end of both")


tap.main([
    a_tune_is_done_by_the_server_and_kept_there,
    both_examples_get_a_kernel_from_the_daemon_and_launch_it,
    what_a_server_without_the_gpu_cannot_measure_is_measured_here,
    a_daemon_killed_in_mid_tune_is_done_without,
    a_client_that_is_interrupted_cancels_its_tune_and_another_goes_on_there,
])
