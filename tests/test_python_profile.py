#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa-tune run, and fa_tune.profile over it: kernels of the fake driver under a recorded ncu."""
import os
import re
import shlex
import subprocess
import sys

import tap
from place import DEADLINE, SMALL, SOURCE, Place
from attention_case import PACKAGE
from fa_tune import profile

L4 = "device name=NVIDIA_L4 sm=89 sms=58\nlog fake.log\n"
RECORDED = os.path.join(SOURCE, "tests", "data", "ncu-attn_fwd.csv")
CSV = tap.read(RECORDED)
# A program that notes its arguments, looks for the log's name and the metrics, and is left with the command to run.
NCU = """#!/bin/sh
printf '%%s\\n' "$*" >>%s
while [ "$1" != --metrics ]; do
    [ "$1" != --log-file ] || log=$2
    shift
done
metrics=$2
shift 2
"""
WORKS = '"$@"; cat %s >"$log"\n' % shlex.quote(RECORDED)
tuned = []  # Place.take_store()


def a_place(then=WORKS, script=L4):
    place = Place(script=script)
    place.env.update(PATH=os.path.join(place.folder, "bin") + ":/usr/bin:/bin", PYTHONPATH=PACKAGE)
    os.mkdir(os.path.join(place.folder, "bin"))
    use_ncu(place, then)

    def measure():
        place.take_cubins()
        place.run(*SMALL, "--quiet")
    place.take_store(tuned, measure)
    return place


def use_ncu(place, then):
    path = os.path.join(place.folder, "bin", "ncu")
    tap.write(path, NCU % shlex.quote(os.path.join(place.folder, "calls")) + then)
    os.chmod(path, 0o755)


def calls(place):
    path = os.path.join(place.folder, "calls")
    if not os.path.exists(path):
        return []
    return tap.read(path).splitlines()


def profiled(place, *arguments, status=0):
    done = subprocess.run([sys.executable, "-m", "fa_tune.profile", *SMALL, *arguments], env=place.env, cwd=place.folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False, timeout=DEADLINE)
    tap.equal((done.returncode, done.stderr if status == 0 else ""), (status, ""))
    return done.stdout if status == 0 else done.stderr


def driver_log(place):
    return re.sub(r"(?m)^pid=\d+ ", "", tap.read(os.path.join(place.folder, "fake.log")))


def a_run_proves_a_config_once_and_launches_it_as_often_as_asked():
    with a_place() as place:
        ranking = place.json("explain", *SMALL)["configs"]
        told = place.json("run", *SMALL, "--config", "3", "--launches", "5")
        tap.equal((told["rank"], told["launches"], told["config"]), (3, 5, ranking[2]["config"]))
        counted = re.findall(r"(?s)profiler start\n(.*?)profiler stop\n", driver_log(place))
        tap.equal([[line.split()[1] for line in one.splitlines() if line.startswith("launch")] for one in counted],
                  [["attn_fwd"] * 5])
        tap.has(place.run("run", *SMALL).stdout, "proved, and launched 1 time\n")
        tap.has(place.run("run", *SMALL, "--config", "99", status=1).stderr, "there is no config 99: `fa-tune explain` lists 8")
        tap.has(place.run("run", "--gpu", "A100", *SMALL, status=1).stderr, "no A100-SXM4-40GB is here")
        tap.has(place.run("run", *SMALL[:2], "--batch", "7", status=1).stderr, "nothing is tuned yet")
        place.use_fake_driver(L4 + "fault family wrong\n")
        tap.has(place.run("run", *SMALL, status=1).stderr, "wrong")


def a_kernel_of_ones_own_is_run():
    with a_place() as place:
        file = [os.path.join(SOURCE, "tests", "specifications", "conv2d.cu"), "--w", "64", "--h", "48"]
        place.run(*file[:1], *file[1:], "--evaluations", "4", "--quiet")
        tap.has(place.run("run", *file).stdout, "proved, and launched 1 time\n")


def the_winner_is_counted_once_and_a_sentence_says_what_bounds_it():
    with a_place() as place:
        text = profiled(place)
        tap.has(text, "attn_fwd: tensor cores 67%, special functions ")
        tap.has(text, "attn_fwd is bound by the tensor cores (67% of the peak); the tile of a block moves that: BLOCK_M.\n")
        call, = calls(place)
        tap.has(call, "--config-file off --csv --page raw --print-units base --clock-control none --target-processes all "
                      "--profile-from-start off --log-file ")
        tap.has(call, "/fa-tune run --seq 128 --batch 1 --heads 1 --config 1 --trial-timeout 20s --json --quiet")
        tap.equal(driver_log(place).count("profiler start"), 1)


BOUNDS = [  # a part of a metric's name, what is counted in its place, and what the sentence says of it
    ("sm__cycles_active", 10, "SMs without work (busy "),
    ("sm__inst_executed_pipe_xu", 81, "the special functions (81% of the peak)"),
    ("sm__inst_issued", 92.5, "the issue slots (92% of the peak)"),
    ("data_pipe_lsu_wavefronts.avg", 88, "shared memory (88% of the peak"),
    ("lts__throughput", 77, "the L2 cache (77% of the peak)"),
    ("dram__throughput", 95, "the GPU's memory (95% of the peak)"),
    ("pct_of_peak", 20, "the latency of instructions (wait 2.2, and no unit reaches 60% of its peak)"),
]


def each_bound_has_its_words():
    (kernel, counted), = profile.read_log(CSV)
    tap.equal((kernel.split("(")[0], round(counted[profile.TIME], 3)), ("attn_fwd", 141.664))
    for part, value, words in BOUNDS:
        changed = {name: value if part in name else old for name, old in counted.items()}
        tap.has(profile.find_bound(changed)[0], words)
    nothing = dict.fromkeys(counted)
    tap.equal(profile.find_bound(nothing), (None, None))
    tap.has(profile.say([(kernel, nothing)], {}, [], 58), " has a bound that is not known")
    longer = dict(counted, **{profile.TIME: 3 * counted[profile.TIME]})
    tap.has(profile.say([("a", counted), ("b", longer)], {"family": "f", "tunables": {}}, [], 58),
            "b, 75% of the time of 2 launches, is bound by ")


def whatever_stands_in_the_log_is_read():
    for text in ("", '"ID"', '"ID"\n"0"\n', CSV[:2000], CSV.replace('"ID"', '"IX"'), CSV[:len(CSV) // 2], '"ID","ID"\n,,,\n"1"'):
        for _, counted in profile.read_log(text):
            profile.find_bound(counted)
    tap.equal(len(profile.read_log(CSV.replace('"54.', '"n/a'))), 1)


def trial(block, stages, warps, **changed):
    return dict({"config": {"family": "f", "tunables": {"BLOCK": block, "STAGES": stages, "WARPS": warps}}, "threads": 32 * warps,
                 "smem_bytes": 256 * block * stages, "blocks_per_sm": 2, "grid": [4096 // block, 1, 1], "median_us": None}, **changed)


def movers(what, trials, sms=0):
    return profile.find_movers(what, sms, trials[0]["config"], trials)


def the_tunables_that_move_a_bound_are_read_off_the_space():
    own, block, stages, warps = trial(64, 2, 4), trial(128, 2, 4), trial(64, 3, 4), trial(64, 2, 8)
    tap.equal(movers("tile", [own, block, stages, warps]), ["BLOCK"])
    tap.equal(movers("threads", [own, block, stages, warps]), ["WARPS"])
    timed = [dict(one, grid=[132, 1, 1], median_us=us) for one, us in zip([own, block, stages], (10, 11, 15))]
    tap.equal((movers("tile", timed), movers("smem", timed)), ([], ["STAGES", "BLOCK"]))  # the larger effect first
    persistent = [dict(own, grid=[8, 1, 1]), dict(block, grid=[16, 1, 1])]
    tap.equal((movers("tile", persistent, sms=4), movers("blocks", persistent, sms=4)), ([], ["BLOCK"]))
    together = [own, trial(128, 2, 8), trial(32, 3, 4)]
    tap.equal(movers("tile", together), ["BLOCK", "STAGES", "WARPS"])
    tap.equal(movers("tile", [own]), [])


def metrics_that_ncu_does_not_know_are_left_out():
    refuses = 'case $metrics in *pipe_xu*) echo "==ERROR== Failed to find metric %s" >"$log"; exit 1;; esac\n' % profile.UNITS[1][1]
    with a_place(refuses + WORKS) as place:
        tap.has(profiled(place), "is bound by the tensor cores")
        tap.equal([profile.UNITS[1][1] in call for call in calls(place)], [True, False])


FAILURES = [  # what ncu does, and a part of the sentence
    ('"$@"; echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission" >"$log"; exit 1\n',
     "NVreg_RestrictProfilingToAdminUsers=0"),
    ('"$@"; echo "==WARNING== No kernels were profiled." >"$log"\n', "No kernels were profiled"),
    ('echo "==ERROR== InterprocessLockFailed" >"$log"; exit 255\n', "InterprocessLockFailed"),
    ("kill -SEGV $$\n", "ncu counted nothing and does not say why"),
    ('"$@"; head -c 100000 "$1" >"$log"\n', "ncu counted nothing"),  # garbage
    ('echo "==ERROR== Failed to find metric ${metrics%%,*}" >"$log"\n', "Failed to find metric"),  # another one each time
]


def whatever_ncu_does_has_a_sentence():
    with a_place() as place:
        for then, part in FAILURES:
            use_ncu(place, then)
            tap.has(profiled(place, status=1), part)
        use_ncu(place, WORKS)
        tap.has(profiled(place, "--config", "99", status=1), "there is no config 99")
        tap.has(profiled(place, "--sq", "99", status=1), "--sq")


def a_ncu_of_the_current_folder_is_not_run():
    with a_place() as place:
        os.rename(os.path.join(place.folder, "bin", "ncu"), os.path.join(place.folder, "ncu"))
        place.env["PATH"] = ".::bin:/usr/bin:/bin:"
        if not any(os.path.exists(path) for path in ("/usr/local/cuda/bin/ncu", "/usr/bin/ncu", "/opt/nvidia")):
            tap.has(profiled(place, status=1), "is not here: install")
        for name in ("ncu", "./ncu", "/nowhere/ncu", place.folder):
            place.env["FA_TUNE_NCU"] = name
            tap.has(profiled(place, status=1), "FA_TUNE_NCU is")
        tap.equal(calls(place), [])
        place.env["FA_TUNE_NCU"] = os.path.join(place.folder, "ncu")
        tap.has(profiled(place), "is bound by")


tap.main()
