#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fa-tune program on a device: whole tunes under the fake CUDA driver, with and without trouble.

The fake runs the kernels' arithmetic on the CPU and scripts their times (tests/fake_cuda.c)."""
import os
import re
import sqlite3

import tap
from place import BUILD, EIGHT, L4, SMALL, SOURCE, Place, tunables

FASTEST = "BLOCK_M=128;BLOCK_N=32;STAGES=2;"


def a_present_gpu_is_measured_and_the_fastest_config_wins():
    with Place(script=L4 + "time BLOCK_M= 60\ntime BLOCK_M=64;BLOCK_N=64;STAGES=1; 50\n"
                           "time %s 40\n" % FASTEST) as place:
        told = place.json(*SMALL)
        answer, funnel = told["answer"], told["funnel"]
        tap.equal((answer["origin"], answer["status"], answer["from_store"]), ("measured", "measured", False))
        tap.equal((told["gpu"]["name"], told["gpu"]["present"], told["gpu"]["ordinal"]), ("NVIDIA L4", True, 0))
        tap.has(tunables(answer) + ";", FASTEST)
        tap.equal([funnel[name] for name in ("space", "compiled", "proved", "measured", "failed")], [8, 8, 8, 8, 0])
        assert answer["low_us"] <= answer["median_us"] <= answer["high_us"]
        assert 39 < answer["median_us"] < 42 and 49 < answer["default_us"] < 52, answer
        assert 1.2 < answer["speedup_over_default"] < 1.3, answer
        assert answer["max_error"] <= answer["tolerance"], answer
        assert answer["driver_version"] > 0
        tap.equal((len(told["ranking"]), answer["rank"]), (8, 1))
        tap.has(place.run(*SMALL).stdout, "winner #1, measured: 4")


def a_config_that_is_far_behind_is_timed_by_its_proof_alone_and_has_no_interval():
    with Place(script=L4 + "time BLOCK_M= 400\ntime BLOCK_M=64;BLOCK_N=64;STAGES=1; 40\n") as place:
        place.run(*SMALL)
        rows = [row for row in place.run("explain", *SMALL).stdout.splitlines() if "µs" in row and "attn_fwd_sm80" in row]
        fast, slow = [[row for row in rows if re.search(time, row)] for time in (r" [34]\d\.\d µs", r" [34]\d\d\.\d µs")]
        assert len(fast) == 1 and "±" in fast[0], rows
        assert len(slow) == 7 and sum("±" not in row for row in slow) >= 5, rows  # what came before the fast one has samples


def a_plain_tune_tries_the_rest_of_what_a_small_search_has_left():
    for first in (["--evaluations", "1"], ["--time", "0.001s"], ["sweep", "--time-each", "0.001s"]):
        with Place(script=L4 + "time BLOCK_M= 50\ntime %s 40\n" % FASTEST) as place:
            place.run(*first, *SMALL)
            for more in ([], ["--strategy", "exhaustive"], ["--evaluations", "8"]):
                told = place.json(*SMALL, *more)
                tap.equal((told["answer"]["from_store"], told["funnel"]["measured"]), (more != [], 8))
                tap.has(tunables(told["answer"]) + ";", FASTEST)
    with Place() as place:
        place.run("--gpu", "L4", "--evaluations", "1", *SMALL)
        tap.equal(place.json("--gpu", "L4", *SMALL)["funnel"]["compiled"], 8)


def naming_the_present_gpu_measures_on_it():
    with Place(space=dict(EIGHT, BLOCK_N=[64], STAGES=[1]), script=L4) as place:
        told = place.json("--gpu", "L4", *SMALL)
        tap.equal((told["answer"]["origin"], told["gpu"]["present"]), ("measured", True))
        other = place.json("--gpu", "L40S", *SMALL)
        tap.equal((other["answer"]["origin"], other["gpu"]["present"]), ("predicted", False))
        tap.equal((other["answer"]["median_us"], other["funnel"]["compiled"]), (None, 2))


def a_prediction_becomes_a_measurement_when_the_gpu_comes():
    with Place() as place:
        tap.equal(place.json("--gpu", "L4", *SMALL)["answer"]["origin"], "predicted")
        place.use_fake_driver(L4)
        measured = place.json(*SMALL)
        tap.equal((measured["answer"]["origin"], measured["funnel"]["measured"]), ("measured", 8))
        again = place.json(*SMALL)
        tap.equal((again["answer"]["origin"], again["answer"]["from_store"]), ("measured", True))


def explain_numbers_configs_as_the_tune_did_where_their_times_tie():
    with Place(script=L4 + "time BLOCK_M= 60\n") as place:
        place.take_cubins()
        winner = place.json(*SMALL)["answer"]
        tap.equal(tunables(place.json("explain", *SMALL)["configs"][0]), tunables(winner))
        with sqlite3.connect(place.store) as store:  # as after a tune that was killed; nothing is proved then that says bits
            store.execute("DELETE FROM winner")
        place.env["FA_TUNE_LIBCUDA"] = "no-driver"
        answer = place.json(*SMALL, "--gpu", "L4")["answer"]
        tap.equal((answer["origin"], answer["ties"], "ties_differ" in answer), ("measured-same-silicon", winner["ties"], False))


# What the driver is told, and the status that the config must end with.
FAULTS = {"crash": "crashed", "illegal_address": "crashed", "out_of_memory": "out-of-memory", "load_failure": "load-failed",
          "launch_failure": "launch-failed", "hang": "timeout", **dict.fromkeys(("wrong", "nan", "unwritten", "overrun"), "wrong")}
VICTIM = "BLOCK_M=128;BLOCK_N=64;STAGES=2;"


def a_tune_outlives_every_fault_and_records_it():
    for fault, status in FAULTS.items():
        with Place(script=L4 + "time %s 1\nfault %s %s\n" % (VICTIM, VICTIM, fault)) as place:
            place.take_cubins()
            told = place.json(*SMALL, "--trial-timeout", "5")
            tap.equal((fault, told["answer"]["origin"]), (fault, "measured"))
            tap.lacks(tunables(told["answer"]) + ";", VICTIM)
            tap.equal((fault, told["funnel"]["measured"], told["funnel"]["failed"]), (fault, 7, 1))
            ended = {tunables(row) + ";": row for row in place.json("explain", *SMALL)["configs"]}
            victim, = [row for name, row in ended.items() if VICTIM in name]
            tap.equal((fault, victim["status"]), (fault, status))
            assert victim["reason"] != "", "%s has no reason" % fault
            tap.equal(sum(row["status"] == "measured" for row in ended.values()), 7)


def with_same_bits_only_configs_compete_that_leave_the_default_configs_bits():
    """The two fastest of all have another lowest bit in one LSE, in one case of the proof; the winner is that of its very lengths."""
    problem, bits = ["--seq", "100", *SMALL[2:]], ["--same-bits", "default"]
    with Place(script=L4 + "time BLOCK_M= 60\ntime BLOCK_M=128 40\nfault BLOCK_M=128;BLOCK_N=32 one_bit after=1\n") as place:
        place.take_cubins()
        any_bits = place.json(*problem, "--exact")["answer"]
        tap.equal((any_bits["ties"], any_bits["ties_differ"], "same_bits" in any_bits), (3, 2, False))
        tap.has(place.run(*problem).stdout, "ties: 3, 2 of them in other bits")
        tap.has(place.run(*problem, *bits, "--effort", "cached", status=1).stderr, "no winner is stored")
        told = place.json(*problem, *bits)
        answer = told["answer"]
        tap.equal((answer["same_bits"], answer["from_problem"]["seq_q"], answer["ties"], "ties_differ" in answer), ("default", 100, 1, False))
        tap.equal((tunables(answer)[:22], told["funnel"]["measured"], told["funnel"]["failed"]), ("BLOCK_M=128;BLOCK_N=64", 6, 2))
        others = [row for row in place.json("explain", *problem, *bits)["configs"] if row["status"] == "other-bits"]
        tap.equal([row["reason"] for row in others], ["its outputs differ in bits from the default config's"] * 2)
        tap.has(place.run("show").stdout, "measured, same bits as default")
        tap.equal(place.json(*problem, *bits, "--again")["answer"]["from_store"], False)
        tap.has(place.run("--seq", "128", *SMALL[2:], *bits, "--effort", "cached", status=1).stderr, "no winner is stored")
        tap.has(place.run(*problem, *bits, "--gpu", "L40S", status=1).stderr, "L40S is not here")
        tap.has(place.run(*problem, "--same-bits", "mine", status=2).stderr, 'same_bits is "mine": use "default"')
        # A bundle keeps the two apart; a file of records, whose kernels are compiled anew, leaves the one out.
        place.run("export", "--unsigned", "--out", "both.fab")
        tap.write(os.path.join(place.folder, "both.json"), place.run("show", "--json").stdout)
        tap.has(place.run("export", "--unsigned", "--from-records", "both.json", "--out", "one.fab").stdout, "2 winners")
        os.remove(place.store)
        place.run("import", "both.fab", "--allow-unsigned")
        for more, way in ([], "same_bits"), (["--exact"], "ties_differ"):
            tap.has(place.json(*problem, *(more or bits))["answer"], way)


def a_config_whose_outputs_change_from_launch_to_launch_has_the_bits_of_none():
    for fault, status, sentence in (("BLOCK_M=64;BLOCK_N=64;STAGES=1;", 1, "its own differ from launch to launch"), ("BLOCK_M=128", 0, "")):
        with Place(script=L4 + "fault %s one_bit after=1 times=1\n" % fault) as place:
            place.take_cubins()
            tap.has(place.run(*SMALL, "--same-bits", "default", status=status).stderr, sentence)
            rows = place.json("explain", *SMALL, "--same-bits", "default")["configs"]
            tap.equal([row["reason"] for row in rows if row["status"] == "other-bits"], ["its outputs differ from launch to launch"] * (1 - status))


def the_first_kernel_of_a_user_that_has_the_defaults_bits_wins():
    axpy = [os.path.join(SOURCE, "tests", "specifications", "axpy.json"), "--n", "1000", "--same-bits", "default"]
    with Place(space=None, script=L4 + "time PER_THREAD= 30\ntime PER_THREAD=2 20\nfault PER_THREAD=2 one_bit\n") as place:
        told = place.json(*axpy)
        tap.equal((tunables(told["answer"])[-12:], told["funnel"]["measured"], told["funnel"]["failed"]), ("PER_THREAD=1", 3, 3))


def a_worker_that_dies_once_costs_at_most_its_config():
    with Place(script=L4 + "fault STAGES=1; crash times=1\n") as place:
        place.take_cubins()
        told = place.json(*SMALL)
        tap.equal(told["answer"]["origin"], "measured")
        counts = place.json("explain", *SMALL)["counts"]
        tap.equal(counts["measured"] + counts["crashed"], 8)
        assert counts["measured"] >= 4, counts


def a_worker_has_of_the_environment_what_cuda_needs_and_none_starts_for_what_is_stored():
    masked = [*SMALL, "--mask", "k <= q"]
    secrets = ("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "GITHUB_TOKEN", "NVIDIA_API_KEY", "NV_API_KEY", "LD_ACCESS_TOKEN", "HOMEBREW_TOKEN",
               "FA_TUNE_TOKEN_FILE", "FA_TUNE_SERVER")
    with Place(script=L4) as place:
        seen = os.path.join(place.folder, "seen")
        place.env.update(dict.fromkeys(secrets[:-1], "kept-to-myself"), FA_TUNE_SERVER="", CUDA_VISIBLE_DEVICES="0", LD_LIBRARY_PATH="/nowhere",
                         FA_TUNE_WORKER=os.path.join(place.folder, "worker"))
        tap.write(place.env["FA_TUNE_WORKER"], "#!/bin/sh\nenv > '%s.'$1\nexec '%s' \"$@\"\n" % (seen, os.path.join(BUILD, "fa-tune-worker")))
        os.chmod(place.env["FA_TUNE_WORKER"], 0o700)
        tap.equal(place.json(*masked)["answer"]["origin"], "measured")
        for role, told in (("compile", False), ("measure", True)):
            lines = tap.read("%s.%s" % (seen, role)).splitlines()
            names = [line.split("=")[0] for line in lines]
            tap.equal([name for name in secrets if name in names], [])
            tap.equal([name in names for name in ("CUDA_VISIBLE_DEVICES", "LD_LIBRARY_PATH", "HOME", "FA_TUNE_LIBCUDA")], [told] * 4)
            os.remove("%s.%s" % (seen, role))
        tap.equal((place.json(*masked)["answer"]["from_store"], os.path.exists(seen + ".compile")), (True, False))


tap.main()
