#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A kernel of three million configs is searched, never built: what is tried is right, bounded, remembered and good. Under the
fake driver, whose times have one known valley."""
import json
import os
import signal
import sqlite3
import subprocess
import time

import tap
from place import DEADLINE, FA_TUNE, SOURCE, Place, eight_of_conv2d
from serve import Serve, ask

# 50 us at the floor, 302 us at the default config; F and G change nothing.
VALLEY = {"THREADS": (128, 0.2), "A": (16, 0.15), "B": (8, 0.1), "C": (4, 0.1), "D": (32, 0.1), "E": (2, 0.15)}
SCRIPT = "device name=NVIDIA_L4 sm=89 sms=58\ntime * 50\n" + "".join("valley %s %s %s\n" % (name, *valley) for name, valley in VALLEY.items())
MANY = os.path.join(SOURCE, "tests", "specifications", "many.cu")
SEED = ["--seed", "3"]  # one seed draws the same configs for every problem, which are then compiled once
SPACE = 4 * (64 - 10) * (64 - 10) * 8 * 8 * 4  # ten pairs of values break each restriction


def a_place():
    return Place(space=None, script=SCRIPT)


def tried(place, *problem):
    """The configs on record with where each ended, by their tunables."""
    told = place.json("explain", MANY, *problem)
    return {json.dumps(row["config"]["tunables"], sort_keys=True): row["status"] for row in told["configs"]}, told["counts"]


def a_search_finds_the_valley_of_a_space_that_it_does_not_build():
    with a_place() as place:
        told = place.json(MANY, "--evaluations", "40", *SEED)
        answer, funnel = told["answer"], told["funnel"]
        tap.equal((answer["origin"], answer["strategy"], funnel["space"], funnel["measured"]), ("measured", "surrogate", SPACE, 40))
        assert answer["median_us"] < 70, answer["median_us"]  # of as many points by chance the best has 93 us
        by_chance = place.json(MANY, "--evaluations", "24", *SEED, "--strategy", "random", "--n", "2000")["answer"]
        tap.equal(by_chance["strategy"], "random")
        assert by_chance["median_us"] > answer["median_us"], by_chance["median_us"]
        report = place.json("report", MANY)
        tap.equal([problem["evidence"]["space"] for problem in report["problems"]], [SPACE, SPACE])
        text = place.run(MANY, "--evaluations", "42", *SEED).stdout
        tap.has(text, "space {:,} → tried ".format(SPACE))
        tap.has(text, "(surrogate)")
        place.run("export", MANY, "--unsigned", "--out", "many.fab")
        place.run("import", MANY, "many.fab", "--allow-unsigned", "--store", "other.db")
        best = place.json("explain", MANY, "--store", "other.db")["configs"][0]
        tap.equal((best["rank"], best["status"], best["median_us"] < 70), (1, "measured", True))


def what_breaks_a_restriction_is_never_compiled_and_what_does_not_compile_costs_nothing():
    with a_place() as place:
        place.run(MANY, "--evaluations", "24", "--strategy", "random", *SEED)
        ends, counts = tried(place)
        for text, end in ends.items():
            config = json.loads(text)
            assert config["A"] * config["B"] <= 1024 and config["C"] <= 8 * config["D"], config
            tap.equal(end, "compile-failed" if config["G"] == 3 else "measured")
        tap.equal(counts["measured"], 24)
        assert counts["compile-failed"] >= 4, counts
        tap.equal(len(ends), counts["measured"] + counts["compile-failed"])


def a_killed_search_goes_on_and_tries_nothing_twice():
    with a_place() as place:
        tune = subprocess.Popen([FA_TUNE, MANY, "--evaluations", "2000", *SEED], env=place.env, cwd=place.folder,
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        before, end = {}, time.monotonic() + DEADLINE
        while len(before) < 8 and time.monotonic() < end and tune.poll() is None:
            time.sleep(0.05)
            if os.path.exists(place.store):
                before = tried(place)[0]
        tune.send_signal(signal.SIGKILL)
        tune.wait()
        before, counts = tried(place)
        assert 8 <= len(before) and counts["measured"] < 2000, counts
        more = counts["measured"] + 8
        funnel = place.json(MANY, "--evaluations", str(more), *SEED)["funnel"]
        tap.equal((funnel["measured"], funnel["resumed"]), (more, len(before)))
        after = tried(place)[0]
        assert before.items() <= after.items()
        tap.equal(len(after), more + sum(end == "compile-failed" for end in after.values()))
        # Nothing is left to spend; a larger budget goes on from here.
        tap.equal(place.json(MANY, "--evaluations", str(more), "--again")["funnel"]["resumed"], len(after))
        tap.equal(tried(place)[0], after)
        tap.equal(place.json(MANY, "--evaluations", str(more + 3), "--again")["funnel"]["measured"], more + 3)


def for_an_absent_gpu_a_stated_number_is_compiled():
    with a_place() as place:
        run = place.run(MANY, "--gpu", "H200", "--evaluations", "6", *SEED)
        tap.has(run.stdout, "space {:,} → tried ".format(SPACE))
        tap.has(run.stdout, "(random) → compiled 6 ")
        ends, counts = tried(place, "--gpu", "H200")
        tap.equal((counts["compiled"], sum(end == "compiled" for end in ends.values())), (6, 6))
        # Found again, although most of the space was not compiled.
        tap.has(place.run(MANY, "--gpu", "H200", "--evaluations", "6", *SEED).stdout, "found in")
        tap.has(place.run(MANY, "--gpu", "H200", "--effort", "cached").stdout, "found in")


def one_proved_kernel_is_enough_where_no_more_is_asked_for():
    with a_place() as place:
        run = place.run(MANY, "--effort", "predict", *SEED)
        tap.has(run.stdout, "tried 1 (random) → compiled 1 ")
        tap.has(run.stdout, "Proved, not timed: without --effort configs are timed.")
        tap.lacks(run.stderr, "note:")
        tap.equal(place.json(MANY, "--evaluations", "5", *SEED)["funnel"]["measured"], 5)


TYPO = """/* fa-tune {"arguments": [{"name": "y", "type": "f32", "shape": ["n"], "is": "out"}, {"name": "n"}], "sizes": {"n": 1000},
"tune": {"BLOCK": [32, 64, 128, 256], "UNROLL": [1, 2, 4, 8], "WAY": [3, 0, 1, 2]}, "block": "BLOCK", "grid": "ceil_div(n, BLOCK)"} */
%s
__global__ void typo(float *y, int n) { int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] = WAY + UNROLL + %s; }
"""


def compiled_in_vain(place, *problem):
    """How many configs the compiler was given that did not compile, of those on record."""
    rows = place.json("explain", *problem)["configs"]
    return sum(row["status"] == "compile-failed" and (row["compile_ms"] or 0) > 0 for row in rows)


def a_mistake_in_the_source_is_found_by_a_few_compiles():
    mistakes = [("", "vlaue", "typo.cu(4): error: identifier \"vlaue\" is undefined"),
                ("#include \"absent.h\"", "0", "typo.cu(3): catastrophic error: could not open source file \"absent.h\"")]
    for number, (head, value, error) in enumerate(mistakes):
        for bounds in ([], ["--evaluations", "20"]):
            with Place(space=None, script="no_device\n") as place:
                path = os.path.join(place.folder, "typo.cu")
                tap.write(path, TYPO % (head, value))
                run = place.run(path, "--gpu", "L4", "--jobs", "4", *bounds, status=1)
                tap.has(run.stderr, "  compile-failed: %s" % error)  # at once, beside the counts
                tap.has(run.stderr, "configs survived; the first: compile-failed: %s" % error)
                assert 2 <= compiled_in_vain(place, path, "--gpu", "L4") <= 7 + 4  # beside the eighth three are under way
                if number > 0:
                    continue
                problems = [str(n) for n in range(2000, 2010)]
                run = place.run("sweep", path, "--gpu", "L4", *bounds, "--n", ",".join(problems), status=1)
                tap.has(run.stdout, "0 of 10 done, 10 failed")
                assert sum(compiled_in_vain(place, path, "--gpu", "L4", "--n", n) for n in problems) <= 7 + os.cpu_count()


def a_mistake_that_only_some_configs_compile_ends_no_tune():
    for bounds in ([], ["--evaluations", "6"]):
        with Place(space=None, script="no_device\n") as place:
            path = os.path.join(place.folder, "typo.cu")
            tap.write(path, TYPO % ("#if WAY == 3\n#define VALUE vlaue\n#else\n#define VALUE 0\n#endif", "VALUE"))
            funnel = place.json(path, "--gpu", "L4", *bounds)["funnel"]
            tap.equal(funnel["compiled"], 6 if bounds else 48)


def a_small_space_is_tried_whole_unless_it_is_bounded():
    with a_place() as place:
        asked = [eight_of_conv2d(place.folder), "--gpu", "L40S", "--w", "65", "--h", "33"]
        place.run(*asked, "--evaluations", "5")
        tap.equal(place.json("explain", *asked)["counts"]["compiled"], 5)
        whole = place.json(*asked, "--evaluations", "1000", "--again")
        tap.equal((whole["funnel"]["compiled"], whole["answer"].get("strategy")), (8, None))


def measured(place, n):
    return tried(place, "--n", n)[1]["measured"]


def a_request_for_more_than_was_tried_goes_on_and_one_for_as_much_is_found():
    with a_place() as place:
        def found(*bounds):
            answer = place.json(MANY, *bounds, *SEED)["answer"]
            return answer["from_store"], answer["funnel"]["measured"]
        tap.equal(found("--evaluations", "5"), (False, 5))
        for less in (("--evaluations", "5"), ("--evaluations", "2", "--strategy", "random"), ("--time", "0.001s"), ("--effort", "cached")):
            tap.equal(found(*less), (True, 5))
        tap.equal(found("--evaluations", "8"), (False, 8))
        place.run("sweep", MANY, "--n", "1000", "--evaluations", "9", *SEED)
        tap.equal(measured(place, "1000"), 9)
        before = place.json(MANY, "--evaluations", "9")["answer"]
        after = place.json(MANY, "--time", "%.1fs" % (before["tune_s"] + 0.3), *SEED)["answer"]
        assert (before["from_store"], after["from_store"]) == (True, False) and after["funnel"]["measured"] > 9, after


def a_sweep_searches_each_problem_within_its_bounds():
    sweep = ["sweep", MANY, "--n", "1000,2000", *SEED]
    with a_place() as place:
        text = place.run(*sweep, "--strategy", "random", "--evaluations", "5").stdout
        tap.has(text, "2 of 2 done")
        tap.equal((measured(place, "1000"), measured(place, "2000")), (5, 5))
        tap.has(place.run("queue").stdout, "--strategy random --evaluations 5")
        told = place.json(*sweep, "--strategy", "random", "--evaluations", "5")
        tap.equal([(row["answer"]["strategy"], row["answer"]["from_store"]) for row in told["items"]], [("random", True)] * 2)
        # A larger budget is another sweep, which goes on from here.
        place.run(*sweep, "--evaluations", "7")
        place.run(*sweep, "--again", "--evaluations", "8")
        tap.equal((measured(place, "1000"), measured(place, "2000")), (8, 8))
        place.run("sweep", MANY, "--n", "500,600", "--time-each", "0.001s", *SEED)  # one config is measured, however short it is
        tap.equal((measured(place, "500"), measured(place, "600")), (1, 1))


def a_worker_searches_what_is_queued_within_its_bounds():
    with a_place() as place:
        place.env["FA_TUNE_STORE"] = os.path.join(place.folder, "shared.db")
        for bounds in (["--strategy", "random", "--evaluations", "5", "--n", "1000"], ["--time-each", "0.001s", "--n", "500"]):
            place.run("sweep", MANY, *bounds, "--enqueue", "--gpu", "L4")
        tap.has(place.run("worker", MANY, "--idle-exit", "1s").stdout, "2 measured, 0 compiled")
        tap.equal((measured(place, "1000"), measured(place, "500")), (5, 1))
        tap.equal(place.json(MANY, "--n", "1000", "--evaluations", "5")["answer"]["strategy"], "random")


def a_queued_search_that_is_not_understood_fails_its_problem_alone():
    shared = "shared.db"
    with a_place() as place:
        place.env["FA_TUNE_STORE"] = os.path.join(place.folder, shared)
        for i, search in enumerate(('"strategy": "guess"', '"evaluations": -1', '"evaluations": 20001', '"seconds_each": 1e10',
                                    '"seconds_each": "soon"', '"strategy": "%s"' % ("x" * 900))):
            place.run("sweep", MANY, "--n", str(1000 + i), "--evaluations", str(3 + i), "--enqueue", "--gpu", "L4")
            with sqlite3.connect(os.path.join(place.folder, shared)) as store:
                changed = store.execute("UPDATE sweep SET request = replace(request, ?, ?) WHERE request LIKE ?",
                                        ('"evaluations":%d' % (3 + i), search, '%%"evaluations":%d%%' % (3 + i))).rowcount
            tap.equal(changed, 1)
        place.run("sweep", MANY, "--n", "900", "--evaluations", "2", "--enqueue", "--gpu", "L4")
        tap.has(place.run("worker", MANY, "--idle-exit", "1s").stdout, "1 measured, 0 compiled, 6 failed")
        tap.equal(measured(place, "900"), 2)


def a_service_searches_within_the_bounds_of_who_asks():
    # Each of these eight configs compiles without spills, whichever are drawn: of the whole space one does not.
    with Place(script="no_device\n") as home, Place(script="no_device\n") as away, Serve(home) as daemon:
        there = ["--gpu", "L4", "--seq", "128", "--server", daemon.socket]
        run = away.run(*there, "--strategy", "random", "--evaluations", "3")
        tap.lacks(run.stderr, "note:")
        tap.has(run.stdout, "compiled 3 ")
        tap.equal(home.json("explain", *there[:4])["counts"]["compiled"], 3)
        # Who asks again is not given what a job with other bounds has found.
        status, document = daemon.post("/v1/kernel", ask(gpu="L4", again=True, evaluations=5))
        tap.equal((status, document["answer"]["strategy"]), (200, "random"))
        for wrong in ({"strategy": "guess"}, {"evaluations": 20001}, {"evaluations": -1}, {"evaluations": "1"}, {"seconds": -1},
                      {"seconds": 1e10}, {"strategy": ["random"]}, {"strategy": "x" * 4000}):
            status, document = daemon.post("/v1/kernel", ask(gpu="L4", **wrong))
            tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))
        for wrong in ({"strategy": "guess"}, {"evaluations": 20001}, {"seconds_each": -1}, {"seconds": 1}):
            status, document = daemon.post("/v1/sweeps", {"items": [ask(gpu="L4")], **wrong})
            tap.equal((status, document["error"]["code"]), (400, "FA_EINVAL"))


tap.main()
