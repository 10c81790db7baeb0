#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples do what they say."""
import json
import os
import subprocess
import sys

import tap
from fleet import Host, InFile
from place import BUILD, DEADLINE, EIGHT, FA_TUNE, SOURCE, TWO, Place


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
        cubin = tap.read(os.path.join(place.folder, "l4.cubin"), "rb")
        tap.equal(cubin[:5], b"\x7fELF\x02")
        tap.has(told, "l4.cubin, %d bytes" % len(cubin))
        tap.has(example(place, "compile_for_absent_gpu", "L4", "again.cubin"), "found in the store")
        tap.equal(tap.read(os.path.join(place.folder, "again.cubin"), "rb"), cubin)


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


def slurm_worker_drains_the_queue():
    with InFile() as fleet, Host(fleet.location, gpu=1) as host:
        host.enqueue(64, 128)
        srun = os.path.join(host.folder, "srun")  # in Slurm's place: two tasks
        tap.write(srun, SRUN)
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
        del env["FA_TUNE_STORE"]
        done = subprocess.run([os.path.join(SOURCE, "examples/slurm_worker.sh")], env=env,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                              check=False)
        tap.has(done.stderr, "FA_TUNE_STORE")


ENTRIES = {"%d,%d" % (x, y): {"x": x, "y": y, "time": 1 + (x - 7) ** 2 + (y - 3) ** 2} for x in range(16) for y in range(16)}
FAILED = {"20,1": {"x": 20, "y": 1, "time": "InvalidConfig"}, "21,1": {"x": 21, "y": 1, "__error__": "CompilationFailedConfig"},
          "22,1": {"x": 22, "y": 1, "time": "RuntimeFailedConfig"}, "23,1": {"x": 23, "y": 1, "time": 1e20}}
CACHE = {"kernel_name": "hill", "device_name": "a GPU", "tune_params_keys": ["x", "y"], "cache": {**ENTRIES, **FAILED}}
REPLAY = os.path.join(SOURCE, "tests", "bench", "search_replay.py")


def replayed(place, *arguments, status=0):
    done = subprocess.run([sys.executable, REPLAY, *arguments], cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                          check=False, timeout=DEADLINE)
    tap.equal(done.returncode, status)
    return done.stdout if status == 0 else done.stderr


def a_problems_configs_travel_as_t4_and_are_replayed():
    with Place(space=dict(EIGHT, STAGES=[1]), script="device name=NVIDIA_L4 sm=89 sms=58\nfault BLOCK_M=64;BLOCK_N=32; wrong\n") as place:
        place.run("--seq", "128", "--quiet")
        explained = place.run("explain", "--seq", "128", "--json").stdout
        text = subprocess.run([sys.executable, os.path.join(SOURCE, "examples", "t4.py")], input=explained, stdout=subprocess.PIPE,
                              encoding="utf-8", check=True).stdout
        results = json.loads(text)["results"]
        tap.equal(sorted(one["invalidity"] for one in results), ["correct"] * 3 + ["correctness"])
        tap.write(os.path.join(place.folder, "t4.json"), text)
        told = replayed(place, "t4.json").splitlines()
        tap.has(told[0], "4 configs of 2 parameters, 0 did not compile, 1 failed")
        tap.equal(told[2].split(), ["auto", "1.000", "1.000", "4", "exhaustive"])


def recorded_spaces_are_searched_by_every_strategy():
    with Place(space=None) as place:
        text = json.dumps(CACHE)
        for name, content in (("hill.json", text), ("open.json", text[:-2] + ","), ("torn.json", text[:500]), ("deep.json", "[" * 1000),
                              ("other.json", "{}"), ("empty.json", '{"results": []}'),
                              ("rate.json", json.dumps(dict(CACHE, objective="GFLOP/s", cache={"1": {"x": 1, "y": 1, "GFLOP/s": 5}})))):
            tap.write(os.path.join(place.folder, name), content)
        how = ("--strategy", "all", "--evaluations", "40", "--repeats", "5")
        told = replayed(place, "hill.json", *how)
        tap.has(told, "hill on a GPU: 259 configs of 2 parameters, 1 did not compile, 2 failed")
        rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()[2:]}
        tap.equal(list(rows), ["auto", "exhaustive", "random", "surrogate"])
        tap.equal((rows["surrogate"][0], rows["auto"]), ("1.000", [*rows["surrogate"], "surrogate"]))
        tap.equal((replayed(place, "hill.json", *how), replayed(place, "open.json", *how)), (told, told))
        tap.has(replayed(place, "rate.json"), "1.000")
        for arguments, says in ((("other.json",), "neither a cache file"), (("torn.json",), "torn.json"), (("deep.json",), "deep.json"),
                                (("none.json",), "none.json"), (("empty.json",), "has 0 configs"), ((".",), "directory")):
            tap.has(replayed(place, *arguments, status=1), says)
        tap.has(replayed(place, "hill.json", "--strategy", "guess", status=1), 'no strategy "guess"')


def times(us):
    return "device name=NVIDIA_L4 sm=89 sms=58\ntime BLOCK_M=64 90\ntime BLOCK_M=128 %g\n" % us


def save(place, name, text):
    path = os.path.join(place.folder, name)
    tap.write(path, text)
    return path


def the_lines_of_the_example_are_taken_in_and_stand_in_a_report():
    grid = ["--seq", "64,128", "--causal", "both", "--batch", "1", "--heads", "2"]
    example = os.path.join(SOURCE, "examples/baseline_torch.py")
    with Place(space=TWO, script=times(40)) as place:
        def lines(*options):
            done = subprocess.run([sys.executable, example, "--dry-run", "--gpu-name", "NVIDIA L4",
                                   *options], stdout=subprocess.PIPE, encoding="utf-8", check=True)
            return done.stdout
        text = lines(*grid)
        path = save(place, "dry.jsonl", text)
        tap.has(place.run("import", path, status=1).stderr, "line 1: its time is made up")
        measured = [json.loads(line) for line in text.splitlines()]
        for line in measured:  # as a run on a GPU writes them
            del line["dry_run"]
        path = save(place, "torch.jsonl", "".join(json.dumps(line) + "\n" for line in measured))
        tap.has(place.run("import", path).stdout, "12 baselines")
        place.run("sweep", *grid)
        peers = [peer for problem in place.json("report")["problems"] for peer in problem["baselines"]]
        tap.equal(sorted(peer["peer"] for peer in peers).count("pytorch-fa2"), 4)
        assert all(peer["low_us"] < peer["median_us"] for peer in peers)
        again = [json.loads(line)["problem"] for line in lines("--plan", path).splitlines()]
        tap.equal(again, [json.loads(line)["problem"] for line in text.splitlines()])


def a_winner_that_became_slower_fails_the_comparison():
    with Place(space=TWO) as place:
        shown = {}
        for name, us in (("old", 40), ("new", 44)):
            place.use_fake_driver(times(us))
            place.run("sweep", "--seq", "64,128", "--batch", "1", "--heads", "1", "--store", name + ".db", "--quiet")
            shown[name] = save(place, name + ".json", place.run("show", "--store", name + ".db", "--json").stdout)
        shown["none"] = save(place, "none.json", '{"winners": []}')
        for old, new, margin, status, part in (
                ("old", "new", "5", 1, "2 slower by more than 5% with confidence, 2 compared, 0 not"), ("old", "new", "12", 0, "0 slower"),
                ("old", "old", "5", 0, "same    1.000x"), ("new", "old", "5", 0, "faster  "), ("old", "none", "5", 1, "0 compared, 2 not")):
            done = subprocess.run([sys.executable, os.path.join(SOURCE, "examples", "compare.py"), shown[old], shown[new], margin],
                                  stdout=subprocess.PIPE, encoding="utf-8", check=False)
            tap.equal((old, new, margin, done.returncode), (old, new, margin, status))
            tap.has(done.stdout, part)


def kernels_of_ones_own_are_right_and_tuned():
    with Place(space=None, script="device name=NVIDIA_H200 sm=90 sms=132\n") as place:
        for name in ("cooperative", "split_sum", "large", "struct", "device_result"):
            path = os.path.join(SOURCE, "examples", name + ".cu")
            tap.equal(place.json("check", path)["faults"], 0)
            if name == "cooperative":
                continue  # its blocks wait for one another, which those of the fake driver cannot
            funnel = place.json(path)["funnel"]
            tap.equal((funnel["measured"], funnel["failed"]), (funnel["in_budget"], 0))


tap.main()
