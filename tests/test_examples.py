#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say."""
import os
import subprocess

import tap
from fleet import Host, InFile
from place import BUILD, DEADLINE, EIGHT, FA_TUNE, SOURCE, Place


def example(place, name, *arguments, status=0):
    done = subprocess.run([os.path.join(BUILD, "examples", name), *arguments], env=place.env,
                          cwd=place.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=DEADLINE)
    tap.equal((done.returncode, done.stderr), (status, ""))
    return done.stdout


def compile_for_absent_gpu_writes_a_cubin_and_its_geometry():
    with Place(space=dict(EIGHT, BLOCK_M=[64], BLOCK_N=[64], STAGES=[1])) as place:
        told = example(place, "compile_for_absent_gpu", "L4", "l4.cubin")
        tap.has(told, "L4, sm_89")
        tap.has(told, "predicted, made now")
        tap.has(told, "blocks of 128 threads")
        with open(os.path.join(place.folder, "l4.cubin"), "rb") as file:
            cubin = file.read()
        tap.equal(cubin[:5], b"\x7fELF\x02")
        tap.has(told, "l4.cubin, %d bytes" % len(cubin))
        tap.has(example(place, "compile_for_absent_gpu", "L4", "again.cubin"), "found in the store")
        with open(os.path.join(place.folder, "again.cubin"), "rb") as file:
            tap.equal(file.read(), cubin)


def tune_and_launch_without_a_gpu_ends_with_77():
    with Place() as place:
        tap.has(example(place, "tune_and_launch", status=77), "no CUDA device")


def tune_and_launch_tunes_once_and_the_next_process_finds_the_winner():
    with Place(script="device name=NVIDIA_L4 sm=89 sms=58\ninit_once\n") as place:
        first = example(place, "tune_and_launch")
        tap.has(first, "not in %s yet: tuning" % place.store)
        tap.has(first, "origin measured, tuned now")
        tap.has(first, "against the CPU")
        second = example(place, "tune_and_launch")
        tap.has(second, "origin measured, found in the store")
        tap.lacks(second, "tuning")
        tap.equal(second.splitlines()[0], first.splitlines()[1])


SRUN = """#!/bin/sh
while [ "${1#--}" != "$1" ]; do shift; done
"$@" & "$@" & wait
"""


def slurm_worker_drains_the_queue_on_a_store_of_the_nodes_own():
    with InFile() as fleet, Host(fleet.location, gpu=1) as host:
        host.enqueue(64, 128)
        srun = os.path.join(host.folder, "srun")  # in Slurm's place: two tasks
        with open(srun, "w", encoding="utf-8") as file:
            file.write(SRUN)
        os.chmod(srun, 0o700)
        env = dict(host.env, PATH=host.folder + ":" + host.env["PATH"], FA_TUNE=FA_TUNE,
                   SLURM_TMPDIR=host.folder, SLURM_JOB_ID="7", IDLE_EXIT="0.5s")
        del env["FA_TUNE_LOCAL_STORE"]
        done = subprocess.run([os.path.join(SOURCE, "examples/slurm_worker.sh")], env=env,
                              cwd=host.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", check=False,
                              timeout=DEADLINE)
        tap.equal((done.returncode, done.stderr), (0, ""))
        tap.equal(host.queue()["done"], 2)
        assert os.path.exists(os.path.join(host.folder, "fa-tune-7", "fa-tune", "store.db"))
        del env["FA_TUNE_STORE"]
        done = subprocess.run([os.path.join(SOURCE, "examples/slurm_worker.sh")], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                              check=False)
        tap.has(done.stderr, "FA_TUNE_STORE")


tap.main([
    compile_for_absent_gpu_writes_a_cubin_and_its_geometry,
    tune_and_launch_without_a_gpu_ends_with_77,
    tune_and_launch_tunes_once_and_the_next_process_finds_the_winner,
    slurm_worker_drains_the_queue_on_a_store_of_the_nodes_own,
])
