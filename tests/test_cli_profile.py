#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa-tune profile: kernels of the fake driver under a recorded ncu (tests/recorded_ncu.py)."""
import json
import os
import re
import signal
import time

import recorded_ncu
import tap
from place import SMALL, SOURCE, Place, tunables
from recorded_ncu import WORKS

L4 = "device name=NVIDIA_L4 sm=89 sms=58\n"


def a_place(then=WORKS, script=L4):
    """A place whose ncu runs these lines of sh."""
    place = Place(script=script + "log fake.log\n")
    place.env["TMPDIR"] = os.path.join(place.folder, "tmp")
    place.env["PATH"] = os.path.join(place.folder, "bin") + ":/usr/bin:/bin"
    os.mkdir(place.env["TMPDIR"])
    os.mkdir(os.path.join(place.folder, "bin"))
    use_ncu(place, then)
    return place


tuned = []  # Place.take_store()


def tune(place):
    """SMALL on L4, measured once for all tests."""
    def measure():
        place.take_cubins()
        place.run(*SMALL, "--quiet")
    place.take_store(tuned, measure)


def use_ncu(place, then):
    recorded_ncu.install(os.path.join(place.folder, "bin"), then)


def recorded(place, rows=1, **changed):
    return recorded_ncu.replay(place.folder, rows, **changed)


def calls(place):
    path = os.path.join(place.folder, "bin", "calls")
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def fails(place, *arguments, part):
    done = place.run("profile", *SMALL, *arguments, status=1)
    tap.equal(done.stdout, "")
    tap.has(done.stderr, part)
    tap.equal(os.listdir(place.env["TMPDIR"]), [])


def the_winner_is_counted_once_and_a_sentence_says_what_bounds_it():
    with a_place() as place:
        place.take_cubins()
        winner = place.json(*SMALL)["answer"]
        text = place.run("profile", *SMALL).stdout
        tap.has(text, "#1 attn_fwd_sm80 BLOCK_M=")
        assert re.search(r"^ +tensor cores +67%$", text, re.MULTILINE), text
        assert re.search(r"^ +stall wait +2\.2$", text, re.MULTILINE), text
        assert re.search(r"^#1: attn_fwd is bound by the tensor cores \(67% of the peak\); the tile of a block moves "
                         r"that: BLOCK_M\.$", text, re.MULTILINE), text
        told = place.json("profile", *SMALL)
        profile, = told["profiles"]
        tap.equal((profile["config"], profile["rank"], profile["bound"], profile["longest"]),
                  (winner["config"], 1, "tensor-cores", 0))
        launch, = profile["launches"]
        tap.equal((launch["kernel"], launch["time_us"], launch["memory_percent"]), ("attn_fwd", 141.664, 54.25))
        tap.equal(list(launch["stalls"]), ["wait", "long_scoreboard", "barrier"])
        with open(os.path.join(place.folder, "fake.log"), encoding="utf-8") as file:
            log = re.sub(r"(?m)^pid=\d+ ", "", file.read())
        for counted in re.findall(r"(?s)profiler start\n(.*?)profiler stop\n", log):
            tap.equal([line.split()[1] for line in counted.splitlines()], ["attn_fwd"])
        tap.equal(log.count("profiler start"), 2)


def the_call_of_ncu_is_the_one_that_was_recorded():
    with a_place() as place:
        tune(place)
        place.run("profile", *SMALL)
        call, = calls(place)
        assert re.fullmatch(r"--config-file off --csv --page raw --print-units base --clock-control none --profile-from-start off "
                            r"--log-file /\S+/tmp/fa-tune-profile-\w{6}/ncu.csv --metrics gpu__time_duration.sum,\S+ "
                            r"/\S+/fa-tune-worker profile 0 /\S+/request /\S+/answer", call), call


def two_configs_stand_side_by_side_by_their_numbers():
    with a_place(script=L4 + "time BLOCK_M= 60\ntime STAGES=2; 40\n") as place:
        place.take_cubins()
        place.run(*SMALL, "--quiet")
        ranking = place.json("explain", *SMALL)["configs"]
        told = place.json("profile", *SMALL, "--config", "7", "--beside", "3")["profiles"]
        tap.equal([profile["rank"] for profile in told], [7, 3])
        tap.equal([tunables(profile) for profile in told], [tunables(ranking[6]), tunables(ranking[2])])
        text = place.run("profile", *SMALL, "--config", "7", "--beside", "3").stdout
        tap.has(text, "stall: how many warps")
        for same in (["--beside", "1"], ["--config", "3", "--beside", "3"]):
            tap.has(place.run("profile", *SMALL, *same, status=2).stderr, "name another")
        assert re.search(r"#7 attn_fwd +#3 attn_fwd$", text, re.MULTILINE), text
        assert re.search(r"^ +occupancy +\d+% +\d+%$", text, re.MULTILINE), text
        fails(place, "--config", "9", part="there is no config 9: `fa-tune explain` lists 8")


BOUNDS = [  # metrics that are changed, their value, the bound, and what its sentence says
    ("sm__cycles_active", "47632", "idle-sms", "SMs without work (busy 21% of the time); the number of blocks moves"),
    ("sm__inst_executed_pipe_xu", "81", "special-functions", "the special functions (81% of the peak)"),
    ("sm__inst_issued", "92.5", "issue-slots", "the issue slots (92% of the peak)"),
    ("data_pipe_lsu_wavefronts.avg", "88", "shared-memory",
     "shared memory (88% of the peak); the shared memory of a block moves that: "),
    ("lts__throughput", "77", "l2", "the L2 cache (77% of the peak)"),
    ("dram__throughput", "95", "memory", "the GPU's memory (95% of the peak)"),
    ("pct_of_peak", "20", "latency", "the latency of instructions (wait 2.2, and no unit reaches 60% of its peak)"),
]


def each_bound_has_its_sentence():
    with a_place() as place:
        tune(place)
        for metric, value, bound, words in BOUNDS:
            use_ncu(place, recorded(place, **{metric: value}))
            profile, = place.json("profile", *SMALL)["profiles"]
            tap.equal((metric, profile["bound"]), (metric, bound))
            tap.has(profile["sentence"], "attn_fwd is bound by " + words)
        use_ncu(place, recorded(place, pct_of="n/a", stalled="n/a"))
        profile, = place.json("profile", *SMALL)["profiles"]
        tap.equal((profile["bound"], profile["launches"][0]["l2_percent"], profile["launches"][0]["stalls"]),
                  ("unknown", None, {}))
        tap.has(place.run("profile", *SMALL).stdout, "has a bound that cannot be told")


def every_launch_has_a_column_and_the_longest_one_the_sentence():
    rows = ["--templates", os.path.join(SOURCE, "tests", "operations"), "--operation", "l1_norm", "--rows", "64",
            "--columns", "256"]
    with a_place(script=L4 + "time WARPS= 50\ntime PARTS=8; 40\ntime PARTS=2; 20\n") as place:
        place.run(*rows, "--quiet")
        split = next(row["rank"] for row in place.json("explain", *rows)["configs"]
                     if row["config"]["family"] == "l1_norm_split")
        use_ncu(place, recorded(place, rows=2, gpu__time=["1,000", "3,000"]))
        text = place.run("profile", *rows, "--config", str(split)).stdout
        assert re.search(r"^ +time +1\.00 µs +3\.00 µs$", text, re.MULTILINE), text
        profile, = place.json("profile", *rows, "--config", str(split))["profiles"]
        tap.equal(profile["longest"], 1)
        tap.has(profile["sentence"], "%s, 75%% of the time of 2 launches, is bound by" % profile["launches"][1]["kernel"])
        use_ncu(place, WORKS)
        done = place.run("profile", *rows, "--config", str(split), status=1)
        tap.has(done.stderr, "ncu counted 1 launches of a config that has 2")


def a_kernel_of_ones_own_is_profiled():
    with a_place() as place:
        file = os.path.join(SOURCE, "tests", "specifications", "conv2d.cu")
        place.run(file, "--w", "64", "--h", "48", "--evaluations", "4", "--quiet")
        text = place.run("profile", file, "--w", "64", "--h", "48").stdout
        tap.has(text, "is bound by the tensor cores (67% of the peak)")


def a_report_shows_the_figures_and_forgetting_takes_them():
    with a_place() as place:
        tune(place)
        tap.lacks(place.run("report").stdout, "bound by")
        place.run("profile", *SMALL, "--beside", "2")
        told = json.loads(place.run("report", "--json").stdout)
        profiles = told["problems"][0]["profiles"]
        tap.equal([(p["rank"], p["bound"]) for p in profiles], [(1, "tensor-cores"), (2, "tensor-cores")])
        text = place.run("report").stdout
        tap.has(text, "is bound by the tensor cores (67% of the peak)")
        assert re.search(r"^\| attn\\_fwd \| 141\.7 µs \| 94% \| 67% \|", text, re.MULTILINE), text
        rows = [line for line in place.run("report", "--format", "csv").stdout.splitlines() if line.startswith("profile,")]
        tap.equal(len(rows), 2)
        place.run("rm", "--all")
        place.run(*SMALL, "--quiet")
        tap.lacks(place.run("report").stdout, "bound by")


def a_report_may_profile_the_winners_that_were_not_yet():
    with a_place() as place:
        tune(place)
        for _ in range(2):
            tap.has(place.run("report", "--profile").stdout, "is bound by the tensor cores")
        tap.equal(len(calls(place)), 1)
        place.env["FA_TUNE_NCU"] = ""
        tap.has(place.run("report", "--profile").stdout, "is bound by")  # nothing is left to be profiled
        place.run(*SMALL[:2], *SMALL[4:], "--batch", "2", "--quiet")
        tap.has(place.run("report", "--profile", status=1).stderr, "is not here: install")


def metrics_that_ncu_does_not_know_are_left_out():
    unknown = "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active"
    refuses = ('case $metrics in *pipe_xu*) echo "==ERROR== Failed to find metric %s" >"$log"; exit 1;; esac\n'
               % unknown)
    with a_place(refuses + WORKS) as place:
        tune(place)
        place.run("profile", *SMALL)
        tap.equal([unknown in call for call in calls(place)], [True, False])
        use_ncu(place, 'echo "==ERROR== Failed to find metric ${metrics%%,*}" >"$log"\n')  # another one each time
        fails(place, part="ncu does not know a metric")


FAILURES = [  # what ncu does, and a part of the sentence
    ('"$@"; echo "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission" >"$log"; exit 1\n',
     "NVreg_RestrictProfilingToAdminUsers=0"),
    ('"$@"; echo "==WARNING== No kernels were profiled." >"$log"\n', "No kernels were profiled"),
    ('echo "==ERROR== InterprocessLockFailed" >"$log"; exit 255\n', "InterprocessLockFailed"),
    ("kill -SEGV $$\n", "ncu counted nothing"),
    ("exit 1\n", "ncu counted nothing"),
    ('"$@"; head -c 100000 "$1" >"$log"\n', "ncu counted nothing"),  # garbage
    ('"$@"; ln -s /dev/zero "$log"\n', "ncu's log is not a file"),
]


def whatever_ncu_does_has_a_sentence_and_leaves_nothing_behind():
    with a_place() as place:
        tune(place)
        for then, part in FAILURES:
            use_ncu(place, then)
            fails(place, part=part)
        use_ncu(place, '"$@" & wait; sleep 600\n')   # ten times the limit of a trial is waited for it
        told = json.loads(place.run("profile", *SMALL, "--trial-timeout", "1s", "--json", status=1).stdout)
        tap.has(told["error"]["sentences"][0], "ncu did not end within 10 s")


def a_kernel_that_fails_its_proof_is_not_profiled():
    with a_place() as place:
        tune(place)
        place.use_fake_driver(L4 + "fault family wrong\n")
        fails(place, part="wrong")
        tap.equal(calls(place), [])


def a_ncu_of_the_current_folder_is_not_run():
    with a_place() as place:
        tune(place)
        os.rename(os.path.join(place.folder, "bin", "ncu"), os.path.join(place.folder, "ncu"))
        place.env["PATH"] = ".::bin:/usr/bin:/bin:"
        if not any(os.path.exists(path) for path in ("/usr/local/cuda/bin/ncu", "/usr/bin/ncu", "/opt/nvidia")):
            fails(place, part="ncu (Nsight Compute's command line) is not here: install")
        tap.equal(calls(place), [])
        for name in ("ncu", "./ncu", "/nowhere/ncu", place.folder):
            place.env["FA_TUNE_NCU"] = name
            done = place.run("profile", *SMALL, status=2)
            tap.has(done.stderr, "FA_TUNE_NCU is")
        place.env["FA_TUNE_NCU"] = os.path.join(place.folder, "ncu")
        place.run("profile", *SMALL)
        place.env["FA_TUNE_NCU"] = ""
        fails(place, part="is not here: install")


def a_config_file_of_the_current_folder_is_not_read_by_ncu():
    # As the real one does, unless it is told not to.
    reads = 'case $(cat %s) in *"--config-file off"*) ;; *) [ ! -e config.ncu-cfg ] || >read;; esac\n'
    with a_place() as place:
        tune(place)
        use_ncu(place, reads % os.path.join(place.folder, "bin", "calls") + WORKS)
        with open(os.path.join(place.folder, "config.ncu-cfg"), "w", encoding="utf-8") as file:
            file.write("[Launch-and-attach]\n--section-folder = sections\n")
        place.run("profile", *SMALL)
        tap.equal(len(calls(place)), 1)
        tap.equal(os.path.exists(os.path.join(place.folder, "read")), False)


def what_is_not_tuned_or_not_here_is_said():
    with a_place() as place:
        fails(place, part="nothing is tuned yet for this problem on NVIDIA L4: tune it first")
        done = place.run("profile", "--gpu", "H100-SXM5-80GB", *SMALL, status=1)
        tap.has(done.stderr, "a profile needs the GPU itself")
        place.env["FA_TUNE_NCU"] = ""  # which is not worth an installation
        tap.has(place.run("profile", "--gpu", "A100", *SMALL, status=1).stderr, "a profile needs the GPU itself, and no A100")


def ctrl_c_ends_ncu():
    with a_place("echo $$ >pid; exec sleep 600\n") as place:
        tune(place)
        process = place.start("profile", *SMALL)
        path = os.path.join(place.folder, "pid")
        while not os.path.exists(path) or os.path.getsize(path) == 0:
            assert process.poll() is None
            time.sleep(0.02)
        with open(path, encoding="utf-8") as file:
            pid = int(file.read())
        process.send_signal(signal.SIGINT)
        tap.equal(process.wait(60), 130)
        try:
            os.kill(pid, 0)
            raise AssertionError("ncu still runs")
        except ProcessLookupError:
            pass


tap.main([
    the_winner_is_counted_once_and_a_sentence_says_what_bounds_it,
    the_call_of_ncu_is_the_one_that_was_recorded,
    two_configs_stand_side_by_side_by_their_numbers,
    each_bound_has_its_sentence,
    every_launch_has_a_column_and_the_longest_one_the_sentence,
    a_kernel_of_ones_own_is_profiled,
    a_report_shows_the_figures_and_forgetting_takes_them,
    a_report_may_profile_the_winners_that_were_not_yet,
    metrics_that_ncu_does_not_know_are_left_out,
    whatever_ncu_does_has_a_sentence_and_leaves_nothing_behind,
    a_kernel_that_fails_its_proof_is_not_profiled,
    a_ncu_of_the_current_folder_is_not_run,
    a_config_file_of_the_current_folder_is_not_read_by_ncu,
    what_is_not_tuned_or_not_here_is_said,
    ctrl_c_ends_ncu,
])
