#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user's kernel goes everywhere that attention goes, from a file of one kernel alone: a comment at the head of CUDA C++, or
JSON beside it. Under the fake driver, which runs these kernels' arithmetic on the CPU."""
import json
import os
import re
import resource
import shutil

import tap
from place import L4, SOURCE, Place, eight_of_conv2d, tunables

SPECIFICATIONS = os.path.join(SOURCE, "tests", "specifications")
SMALL = ["--w", "65", "--h", "33"]


def a_place(script=""):
    return Place(space=None, script=L4 + script)


def path_of(name):
    return os.path.join(SPECIFICATIONS, name)


def own_copy(place, name, change=None):
    """A copy of a specification of JSON and its source, changed."""
    document = json.loads(tap.read(path_of(name)))
    if change is not None:
        change(document)
    if "source" in document and os.path.exists(path_of(document["source"])):
        shutil.copy(path_of(document["source"]), place.folder)
    path = os.path.join(place.folder, name)
    tap.write(path, json.dumps(document, indent=1))
    return path


def a_kernel_with_two_sides_is_tuned_proved_and_timed():
    with a_place("time BLOCK_X=64;BLOCK_Y=4; 10\n") as place:
        path = eight_of_conv2d(place.folder)
        told = place.json(path, *SMALL)
        answer, funnel = told["answer"], told["funnel"]
        tap.equal(answer["origin"], "measured")
        tap.has(tunables(answer), "BLOCK_X=64;BLOCK_Y=4")
        tap.equal([funnel[name] for name in ("space", "in_budget", "measured", "failed")], [12, 8, 8, 0])
        tap.equal((answer["problem"]["operation"], answer["problem"]["w"], answer["problem"]["fw"]), ("conv2d", 65, 17))
        assert answer["max_error"] <= answer["tolerance"], answer
        tap.has(place.run(path, *SMALL).stdout, "found in")
        tap.equal(place.json("tune", path, "--w", "66", "--h", "33", "--evaluations", "4")["answer"]["problem"]["w"], 66)


def a_wrong_a_silent_and_a_nan_config_lose_their_own_trial_alone():
    faults = "fault BLOCK_X=16;BLOCK_Y=4; wrong\nfault BLOCK_X=32;BLOCK_Y=4; unwritten\nfault BLOCK_X=64;BLOCK_Y=1; nan\n"
    with a_place(faults) as place:
        path = eight_of_conv2d(place.folder)
        funnel = place.json(path, *SMALL)["funnel"]
        tap.equal((funnel["measured"], funnel["failed"]), (2, 6))
        tap.has(place.run("explain", path, *SMALL).stdout, "of out is")


def a_kernel_that_changes_its_input_is_given_it_anew():
    with a_place() as place:
        told = place.json(path_of("axpy.json"), "--n", "1000")
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"], told["answer"]["proved"]), (6, 0, False))


def without_an_answer_configs_must_agree():
    with a_place("fault THREADS=128; wrong\n") as place:
        tap.has(place.run(path_of("axpy.json")).stdout, "not checked: the kernel has no reference")
        tap.has(place.run("explain", path_of("axpy.json")).stdout, "in the config that was first")
        tap.equal(place.json(path_of("axpy.json"))["funnel"]["failed"], 2)
    with a_place("fault THREADS=64; nan\nfault THREADS=128; nan\n") as place:  # 128 has no room for most ragged cases, on which 64 went first
        path = own_copy(place, "axpy.json", lambda told: told.update(shared_memory={"y": "40000 * n if THREADS == 128 else 0"}))
        tap.equal([place.json(path, "--n", "2")["funnel"][name] for name in ("measured", "failed")], [2, 4])


def integers_are_exact_and_indexes_lie_in_their_range():
    with a_place() as place:
        told = place.json(path_of("gather.cu"))
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"], told["answer"]["proved"]), (4, 0, True))
    with a_place("fault THREADS=32; wrong\n") as place:
        tap.equal(place.json(path_of("gather.cu"))["funnel"]["failed"], 2)


def fp8_and_complex_numbers_are_proved_and_nan_of_neither_passes():
    with a_place("fault THREADS=32; nan\nfault THREADS=64; unwritten\n") as place:
        funnel = place.json(path_of("mixed.cu"))["funnel"]
        tap.equal((funnel["measured"], funnel["failed"]), (1, 2))
        tap.has(place.run("explain", path_of("mixed.cu")).stdout, "element 0 of y is nan, the reference says")
    with a_place("fault THREADS=32; wrong\n") as place:
        told = place.json(path_of("mixed.cu"), "--n", "777")
        tap.equal((told["funnel"]["measured"], told["answer"]["proved"]), (2, True))
        tap.has(place.run("explain", path_of("mixed.cu"), "--n", "777").stdout, "the imaginary part of element ")
        path, arguments = beside(place, "mixed.cu", answer=None)  # configs that must agree: NaN agrees with nothing
        tap.write(os.path.join(place.folder, "script"), "fault THREADS=64; nan\n", "a")
        tap.equal(place.json(path)["funnel"]["failed"], 2)
        beside(place, "mixed.cu", arguments=[{**arguments[0], "type": "f8"}, *arguments[1:]])
        tap.has(place.run("check", path, status=2).stderr, "\"type\" must be f16, bf16, f32, f64, f8e4m3, f8e5m2, i8 to i64,")
        beside(place, "mixed.cu", arguments=[*arguments, {"name": "c", "type": "c64", "value": 1}])
        tap.has(place.run("check", path, status=2).stderr, "a scalar is of fp32, fp64 or of integers")


def refused_at_its_line(place, words, sentence):
    path, _ = changed(place, "gather.cu", **words)
    run = place.run("check", path, status=2)
    tap.has(run.stderr, sentence)
    assert run.stderr.startswith("fa-tune: gather.cu:2: "), run.stderr


def blocks_of_other_sides_are_launched_though_their_code_is_the_same():
    with a_place() as place:
        tap.write(os.path.join(place.folder, "script"), "log %s/log\n" % place.folder, "a")
        path, _ = beside(place, "gather.cu", tune={"THREADS": [64], "UNROLLED": [False], "BX": [64, 32]}, block=["BX", "64 / BX"])
        tap.equal(place.json(path)["funnel"]["measured"], 2)
        tap.equal(set(re.findall(r"launch gather .*BX=(\d+)", tap.read(os.path.join(place.folder, "log")))), {"64", "32"})


def configs_of_the_same_code_are_never_told_apart_by_their_times():
    launch = {"kernel": "gather", "block": "THREADS", "grid": "ceil_div(n, THREADS)"}
    for words in ({}, {"kernel": None, "block": None, "grid": None, "launches": [launch, launch]}):
        with a_place("time UNROLLED=1; 10\n") as place:
            path, _ = beside(place, "gather.cu", tune={"THREADS": [64], "UNROLLED": [False, True]}, **words)
            for bounds in (["--evaluations", "1"], ["--again"]):  # the second run knows the first one's time alone
                tap.equal(place.json(path, *bounds)["funnel"]["failed"], 0)
            rows = place.json("explain", path)["configs"]
            tap.equal([len(rows), len({row["median_us"] for row in rows})], [2, 1])
            tap.equal(sum("the same code as" in row["reason"] for row in rows), 1)


def a_space_of_a_hundred_million_points_is_not_counted_one_by_one():
    with a_place() as place:
        tune = {"T%d" % i: list(range(10)) for i in range(8)}
        for rule, said in (("(T0 + T1) % 10 == 0", "space 10,000,000:"), ("(T6 + T7) % 10 == 0", "space 100,000,000:")):
            path, _ = changed(place, "gather.cu", tune={"THREADS": [32], "UNROLLED": [False], **tune}, restrictions=[rule], default={})
            before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
            tap.has(place.run("explain", path).stdout, said)
            spent = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
            print("# %.2f s of a core: %s" % (spent, rule))  # one by one they would take more than ten
            assert spent < 10, spent


def restrictions_are_judged_for_the_sizes_that_are_asked():
    with a_place("no_device\n") as place:
        source = os.path.join(place.folder, "axpy.cu")
        tap.write(source, "__global__ void axpy(float *y, const float *x, float a, int n)\n"
                          "{ int i = blockIdx.x * BLOCK + threadIdx.x; if (i < n) y[i] += a * x[i]; }\n")

        def of(**words):
            words = {"restrictions": ["n % BLOCK == 0"], "default": None, **words}
            return own_copy(place, "axpy.json", lambda document: document.update(
                source="axpy.cu", kernel="axpy", answer=None, sizes={"n": 1000}, tune={"BLOCK": [64, 128]}, block="BLOCK",
                grid="ceil_div(n, BLOCK)", **words))
        none = "no config holds to \"n % BLOCK == 0\" with n 1000"
        path = of()
        for verb in ("check", "tune", "explain"):
            place.run(verb, path, "--gpu", "L4", "--n", "4096")
            tap.has(place.run(verb, path, "--gpu", "L4", status=1).stderr, none)
        tap.has(place.run("sweep", path, "--gpu", "L4", "--n", "1000,1088", status=1).stdout, none)
        # the stated default holds for 4096 alone; for 1088 the first that holds stands in for it
        path = of(default={"BLOCK": 128})
        for n in ("4096", "1088"):
            place.run("check", path, "--gpu", "L4", "--n", n)
        tap.equal(place.json("explain", path, "--gpu", "L4", "--n", "1088")["counts"]["constraint"], 1)
        path = of(defines={"REST": "n % BLOCK"}, restrictions=["REST == 0", "BLOCK > 1"])
        tap.has(place.run("check", path, "--gpu", "L4", status=1).stderr, "no config holds to the \"restrictions\" with n 1000")


def a_look_that_gives_up_is_no_proof_that_nothing_holds():
    with a_place("no_device\n") as place:
        names = ["U%d" % i for i in range(11)]
        rare = {"tune": {"THREADS": [64], "UNROLLED": [False], **{name: list(range(1, 11)) for name in names}}, "restrictions": [" + ".join(names) + " == 110"],
                "default": {}}
        path, _ = changed(place, "gather.cu", **rare)
        tap.has(place.run("check", path, "--gpu", "L4", status=2).stderr, "no config was found that holds to the \"restrictions\" (gave up after ")
        path, _ = changed(place, "gather.cu", **{**rare, "default": {"THREADS": 64, "UNROLLED": False, **dict.fromkeys(names, 10)}})
        place.run("check", path, "--gpu", "L4")
        tap.has(place.run("explain", path, "--gpu", "L4").stdout, "space 100,000,000,000: searched")
        run = place.run(path, "--gpu", "L4", "--strategy", "random")
        tap.has(run.stderr, "of 100,000,000,000 configs at most 500 are compiled")
        tap.has(run.stdout, "budget 1 → compiled 1")
        path, _ = changed(place, "gather.cu", **{**rare, "restrictions": ["U0 + U1 > 20"]})
        tap.has(place.run("check", path, "--gpu", "L4", status=2).stderr, "no config holds to \"U0 + U1 > 20\"")


def parts_of(source):
    """The specification at the head of CUDA C++, the code below it."""
    head, end, code = tap.read(path_of(source)).partition("*/")
    return json.loads(head[head.index("{"):]), end + code


def changed(place, source, **words):
    """A copy of a specification at the head of CUDA C++, with other words in it."""
    document, code = parts_of(source)
    path = os.path.join(place.folder, source)
    tap.write(path, "/* fa-tune\n%s\n%s" % (json.dumps({**document, **words}), code))
    return path, document["arguments"]


def beside(place, source, **words):
    """As changed(), but as JSON beside the file as it is: what is the same in all kernels of a file is compiled once."""
    document, _ = parts_of(source)
    shutil.copy(path_of(source), place.folder)
    path = os.path.join(place.folder, source.replace(".cu", ".json"))
    tap.write(path, json.dumps({**document, "source": source, **words}))
    return path, document["arguments"]


def constant_memory_is_filled_before_each_launch_of_a_kernel_and_of_its_answer():
    with a_place() as place:
        told = place.json(path_of("blur.cu"), "--n", "1000")
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"], told["answer"]["proved"]), (3, 0, True))
        arguments = parts_of("blur.cu")[0]["arguments"]
        path, _ = beside(place, "blur.cu", kernel="blurred", answer="blurred_naive",
                         arguments=[*arguments[:2], {**arguments[2], "parameter": True}, arguments[3]])
        told = place.json(path, "--n", "1000")
        tap.equal((told["funnel"]["measured"], told["answer"]["proved"]), (3, True))
        assert told["answer"]["max_error"] <= told["answer"]["tolerance"], told["answer"]


def a_variable_that_is_missing_or_too_small_fails_a_check_and_a_tune():
    with a_place() as place:
        path, (out, x, w, n) = beside(place, "blur.cu")
        right = place.json("check", path)
        tap.equal((right["faults"], [one["fault"] for one in right["kernels"]]), (0, ["", ""]))
        beside(place, "blur.cu", arguments=[out, x, {**w, "symbol": "weight"}, n])
        fault = "no variable weight: declare it __constant__"
        tap.has(place.json("check", path, status=1)["kernels"][1]["fault"], fault)
        tap.has(place.run(path, "--n", "100", status=1).stderr, fault)
        beside(place, "blur.cu", arguments=[out, x, {**w, "shape": ["min(n, 9)"]}, n])
        tap.has(place.json("check", path, status=1)["kernels"][1]["fault"],
                "weights has 32 bytes, and the argument w has 36")
        fault = "w has 36 bytes, and weights of the kernel has 32"
        tap.has(place.run(path, "--n", "8", status=2).stderr, fault)  # in a ragged case alone
        beside(place, "blur.cu", arguments=[out, x, {**w, "shape": ["min(n, 9)"]}, n], answer=None)
        tap.has(place.run(path, "--n", "8", status=1).stderr, fault)
        for argument, fault in [({**w, "symbol": "mine::weights"}, "\"symbol\" must be the name of a variable"),
                                ({**w, "is": "scratch"}, "scratch has none"),
                                ({**w, "parameter": 1}, "\"parameter\" must be true or false"),
                                ({"name": "w", "value": 1.5, "type": "f32", "symbol": "weights"}, "are of arrays")]:
            beside(place, "blur.cu", arguments=[out, x, argument, n])
            tap.has(place.run("check", path, status=2).stderr, fault)


def a_check_names_the_authors_files_and_no_store():
    with a_place() as place:
        path, _ = changed(place, "blur.cu", kernel="blur<THREADS>")
        text = tap.read(path)
        text = text.replace("__global__ void __launch_bounds__(THREADS) blur(", "template <int T> __global__ void blur(")
        wrong = text.replace("if (i < n) out[i] = at(in, mine", "if (i < n) missing[i] = at(in, mine")  # of the answer, too
        line = wrong[:wrong.index("missing")].count("\n") + 1
        path = os.path.join(place.folder, "Blur it-2.cu")
        tap.write(path, wrong)
        run = place.run("check", path, status=1)
        tap.equal(run.stderr, "")
        tap.equal(run.stdout.count("Blur it-2.cu(%d): error" % line), 4)  # in the table and below it, of two kernels
        assert "reference" not in run.stdout and "candidate" not in run.stdout and "_answer" not in run.stdout, run.stdout
        for answer, fault in [({"kernel": "nix"}, "answer: there is no kernel nix"),
                              ({"kernel": "blur_naive", "grid": "m + 1", "block": 64}, "answer: grid[0]: uses the unknown name m"),
                              ({"kernel": "blur_naive", "grid": "THREADS"}, "answer: \"block\" is missing")]:
            path, _ = changed(place, "blur.cu", answer=answer)
            tap.has(place.run("check", path, status=2).stderr, "blur.cu:2: " + fault)


def results_are_read_back_from_variables_and_nothing_is_known_of_them_before():
    head, _, code = tap.read(os.path.join(SOURCE, "examples", "device_result.cu")).partition("*/")
    document = json.loads(head[head.index("{"):])
    total = document["arguments"][0]
    with a_place("fault THREADS=256; wrong\n") as place:
        path = os.path.join(place.folder, "device_result.cu")
        def written(name="sum_device", total=total, code=code, **words):
            text = json.dumps({**document, **words, "kernel": name, "arguments": [total, *document["arguments"][1:]]})
            tap.write(path, "/* fa-tune %s */%s" % (text, code.replace("sum_device(", "%s(" % name)))
            return path
        told = place.json(written(), "--n", "1000")
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"], told["answer"]["proved"]), (1, 1, True))
        tap.has(place.run(written("sum_device_added"), status=1).stderr, "element 0 of total is nan")
        tap.equal(place.json(written("sum_device_added", {**total, "is": "inout"}, answer=None), "--n", "1000")["funnel"]["failed"], 1)
        tap.equal(place.json(written("sum_device_added", {**total, "is": "partial"}), "--n", "1000")["funnel"]["failed"], 1)
        tap.has(place.run("check", written(total={**total, "symbol": "none"}), status=1).stdout, "no variable none: declare it")
        tap.has(place.run("check", written(total={**total, "shape": [2]}), status=1).stdout, "total has 4 bytes, and the argument total has 8")
        tap.write(os.path.join(place.folder, "other.cu"), "__global__ void sum_device_naive(const float *x, int n) { }\n")
        run = place.run("check", written(answer={"kernel": "sum_device_naive", "source": "other.cu"}), status=1)
        tap.has(run.stdout, "no variable total: declare it")


def partial_results_are_compared_by_their_sum():
    with a_place() as place:
        told = place.json(path_of("sums.cu"), "--n", "12345")
        tap.equal((told["funnel"]["measured"], told["funnel"]["failed"]), (6, 0))
    with a_place("fault BLOCKS=16; wrong\n") as place:
        tap.equal(place.json(path_of("sums.cu"))["funnel"]["failed"], 2)
        tap.has(place.run("explain", path_of("sums.cu")).stdout, "the sum of out is")


def split_sum(place, **words):
    """A copy of the example's specification beside its code, in a few configs, with other words in it."""
    head, end, code = tap.read(os.path.join(SOURCE, "examples", "split_sum.cu")).partition("*/")
    document = {**json.loads(head[head.index("{"):]), "sizes": {"n": 1000}, "tune": {"BLOCKS": [1, 64], "THREADS": [128]}, **words}
    path = os.path.join(place.folder, "split_sum.cu")
    tap.write(path, "/* fa-tune\n%s\n%s" % (json.dumps(document), end + code))
    return path, document["launches"]


def a_launch_may_begin_before_the_one_in_front_of_it_ends():
    for gpu, programmatic in (("NVIDIA_H100_80GB_HBM3 sm=90 sms=132", True), ("NVIDIA_L4 sm=89 sms=58", False)):
        with Place(space=None, script="device name=%s\n" % gpu) as place:
            tap.write(os.path.join(place.folder, "script"), "log %s/log\n" % place.folder, "a")
            path, launches = split_sum(place, tune={"BLOCKS": [16], "THREADS": [128]})
            split_sum(place, launches=[launches[0], {**launches[1], "programmatic": True}, *launches[2:]])
            tap.equal(place.json(path)["funnel"]["failed"], 0)
            tap.equal("programmatic" in tap.read(os.path.join(place.folder, "log")), programmatic)
            split_sum(place, launches=[{**launches[0], "programmatic": True}, *launches[1:]])
            tap.has(place.run(path, status=2).stderr, "launches[0]: \"programmatic\" must be true or false, of a launch behind another one")
            whole = {**launches[2], "when": "n > 100"}  # the proof's small sizes leave it out: then none is in front
            words = [one for one in parts_of(path)[0]["arguments"] if one["name"] != "parts"]
            split_sum(place, launches=[whole, {**whole, "when": 1, "programmatic": True}], arguments=words, tune={"THREADS": [128]}, answer=None)
            tap.write(os.path.join(place.folder, "log"), "")
            tap.equal(place.json(path)["funnel"]["failed"], 0)
            log = tap.read(os.path.join(place.folder, "log"))
            tap.equal(0 < 2 * log.count("programmatic") < log.count("launch sum_whole"), programmatic)


def each_launch_takes_its_own_arguments_and_some_configs_or_sizes_leave_one_out():
    with a_place() as place:
        parts_of_all = [dict(name="x", type="f32", shape=["n"]), dict(name="parts", type="f32", shape=[64], **{"is": "partial"}),
                        dict(name="y", type="f32", shape=[1], **{"is": "out"}), dict(name="n")]
        path, (parts, total, whole) = split_sum(place)
        parts.pop("when")
        tap.equal([one["fault"] for one in place.json("check", path)["kernels"]], [""] * 4)
        for launches, failed in (([parts, total, whole], 0), ([whole, parts, {**total, "block": "BLOCKS // 64 * 64"}], 0),
                                 ([parts, {**total, "when": "n > 100"}, {**whole, "when": "not n > 100"}], 0),
                                 ([parts, {**total, "when": "n > 9999"}, {**whole, "when": "n <= 9999"}], 0),
                                 ([parts, total, {**whole, "when": "BLOCKS > 64"}], 1),
                                 ([parts, total, {**whole, "when": "n == 1000 and BLOCKS == 1"}], 1)):
            split_sum(place, launches=launches, arguments=parts_of_all, answer=None)
            tap.equal(place.json(path)["funnel"]["failed"], failed)
        for launches, sentence in (([parts, {**total, "arguments": ["y", "z"]}], "launches[1]: arguments: \"z\" is the name of none"),
                                   ([parts, {**total, "arguments": ["y", "y"]}], "launches[1]: arguments: \"y\" appears twice"),
                                   ([parts, {**total, "arguments": "y"}], "launches[1]: \"arguments\" must be an array of names"),
                                   ([{**parts, "arguments": ["x", "parts"]}, total], "arguments[3] n: no launch takes it"),
                                   ([parts, {**total, "when": "Q > 1"}], "launches[1]: when: uses the unknown name Q"),
                                   ([parts, {**total, "when": "n // (BLOCKS - 1)"}], "when has no value")):
            split_sum(place, launches=launches)
            tap.has(place.run("check", path, status=2).stderr, sentence)
        split_sum(place, launches=[{**parts, "when": "n < 9"}, {**total, "when": 0}])
        tap.has(place.run("check", path, status=1).stderr, "the default config of split_sum: none of its launches is made")
        for one in parts, total, whole:
            one.pop("arguments")
        split_sum(place, launches=[parts, total, whole])  # whose parameters have the arguments' names
        tap.equal(place.json(path)["funnel"]["failed"], 0)
        arguments = parts_of(path)[0]["arguments"]
        split_sum(place, launches=[parts, total, whole], arguments=[{**arguments[0], "name": "given"}, *arguments[1:]], answer=None)
        tap.has(place.run("check", path, status=1).stdout, "sum_parts takes 3 arguments, and 4 are stated: let the launch say its")


def nothing_is_known_of_scratch_before_a_call():
    with a_place() as place:
        path, launches = split_sum(place, tune={"BLOCKS": [16], "THREADS": [128]})
        arguments = parts_of(path)[0]["arguments"]
        for parts, total, why in (("sum_parts", "sum_total", None), ("sum_parts_added", "sum_total", "element 0 of y is nan"),
                                  ("sum_parts_added", "sum_total_zeroed", "element 0 of y is nan"), ("sum_parts", "sum_total_zeroed", None)):
            code = tap.read(os.path.join(SOURCE, "examples", "split_sum.cu")).partition("*/")[2].replace("void sum_parts(", "void %s(" % parts).replace("void sum_total(", "void %s(" % total)
            document = {**parts_of(path)[0], "launches": [{**launches[0], "kernel": parts}, {**launches[1], "kernel": total}]}
            tap.write(path, "/* fa-tune\n%s\n*/%s" % (json.dumps(document), code))
            run = place.run(path, status=1 if why else 0)
            tap.has(run.stderr if why else run.stdout, why or "winner #1, measured: ")
        split_sum(place, tune={"BLOCKS": [16], "THREADS": [128], "LESS": [0, 1]}, launches=launches[:2],  # which no code says
                  arguments=[arguments[0], {**arguments[1], "shape": ["BLOCKS - LESS"]}, *arguments[2:]])
        tap.equal(place.json(path)["funnel"]["failed"], 1)
        for shape, why in ((["BLOCKS - 1"], "it wrote past the end of its workspace of 60 bytes"), (["BLOCKS", "n / 3"], "is a fraction"),
                           (["Q"], "arguments[1]: uses the unknown name Q")):
            split_sum(place, tune={"BLOCKS": [16], "THREADS": [128]}, launches=launches[:2],
                      arguments=[arguments[0], {**arguments[1], "shape": shape}, *arguments[2:]])
            tap.has(place.run(path, status=1 if "wrote" in why else 2).stderr, why)
        for words, why in (({"answer": {"kernel": "sum_naive", "arguments": ["y", "parts", "n"], "block": 1, "grid": 1}}, "which has no scratch"),
                           ({"arguments": [{**arguments[1], "name": "p%d" % i} for i in range(5)] + arguments, "launches": [
                               {"kernel": "sum_whole", "block": "THREADS", "grid": 1, "arguments": [*"xyn", "parts", "p0", "p1", "p2", "p3", "p4"]}]},
                            "more than 4 are scratch"),
                           ({"arguments": [arguments[0], {**arguments[1], "symbol": "parts"}, *arguments[2:]]}, "scratch has none"),
                           ({"arguments": [*arguments[:2], {**arguments[2], "is": "scratch"}, arguments[3]], "answer": None}, "none is an output")):
            split_sum(place, **words)
            tap.has(place.run(path, status=2).stderr, why)


def a_size_may_have_more_than_31_bits():
    path = os.path.join(SOURCE, "examples", "large.cu")
    with a_place() as place:
        told = place.json(path)
        tap.equal((told["funnel"]["measured"], told["answer"]["problem"]["n"], told["answer"]["proved"]), (2, 6000000000, True))
        tap.has(place.run(path).stdout, "large · n 6000000000 · ")
        tap.equal(place.json(path, "--n", "2147483648", "--evaluations", "2")["answer"]["problem"]["n"], 2147483648)
        tap.has(place.run("sweep", path, "--n", "5000000000,7").stdout, "n 5000000000")
        tap.has(place.run("explain", path, "--n", "9000000000").stdout, "pending 2")
        tap.has(place.run(path, "--n", str(10 ** 15), status=2).stderr, "is not a whole number (1 to 999999999999999)")
        narrow = tap.read(path).replace("long long n)", "int n)").replace('"name": "n", "type": "i64"', '"name": "n", "type": "i32"')
        tap.write(os.path.join(place.folder, "narrow.cu"), narrow)
        tap.has(place.run("check", "narrow.cu", status=2).stderr, "narrow.cu:6: arguments[1] n: 6000000000 does not fit in int32: let the")
        for value, sentence in (("n * 4", "narrow.cu:6: arguments[1] m: 24000000000 does not fit in int32"),
                                ("n % (n - n)", "narrow.cu:6: arguments[1] m: its value has no value (it divides")):
            tap.write(os.path.join(place.folder, "narrow.cu"), narrow.replace('"n", "type": "i32"', '"m", "type": "i32", "value": "%s"' % value))
            tap.has(place.run("check", "narrow.cu", status=2).stderr, sentence)
        tap.write(os.path.join(place.folder, "narrow.cu"), narrow.replace("6000000000", "2147483647"))
        tap.equal(place.json("check", "narrow.cu")["faults"], 0)
        for words in (["narrow.cu"], ["narrow.cu", "--gpu", "A100"], ["explain", "narrow.cu"]):  # before anything is compiled
            tap.has(place.run(*words, "--n", "2147483648", status=2).stderr, "n: 2147483648 does not fit in int32: let the kernel take an i64")
        wide = narrow.replace("ceil_div(n, THREADS << 30)", "n").replace("int n)", "long long n)").replace("i32", "i64")
        tap.write(os.path.join(place.folder, "narrow.cu"), wide)
        tap.has(place.run("check", "narrow.cu", status=1).stderr, "the grid's x is 6,000,000,000: at most 2,147,483,647")


def shared_memory_of_the_kernels_own_counts_in_tables_and_in_how_many_blocks_fit():
    with a_place() as place:
        tune = {"THREADS": [64, 128], "BLOCKS": [16]}
        path, _ = beside(place, "sums.cu", tune=tune)
        told = place.json(path, "--gpu", "A100")
        rows = {row["config"]["tunables"]["THREADS"]: row for row in told["ranking"]}
        tap.equal([(rows[threads]["smem_bytes"], rows[threads]["static_smem_bytes"]) for threads in (64, 128)],
                  [(0, 256), (0, 512)])
        beside(place, "sums.cu", tune=tune, shared_memory=40800)  # of 167,936 B of an SM, with 1,024 B of the system's a block
        for row in place.json(path, "--gpu", "A100")["ranking"]:
            tap.equal(row["blocks_per_sm"], 3)
        text = place.run(path, "--gpu", "A100").stdout
        tap.has(text, "41,056")
        tap.has(text, "41,312")
        beside(place, "sums.cu", tune=tune, shared_memory=166800)
        tap.has(place.run(path, "--gpu", "A100", status=1).stderr,
                "256 B of static and 166800 B of dynamic shared memory, and a block has at most 166912 B")


def a_bundle_is_imported_where_its_kernels_file_is():
    with a_place() as place, a_place() as other:
        key = place.run("keygen").stdout.split()[0]
        path = shutil.copy(path_of("sums.cu"), place.folder)
        place.run(path, "--n", "1000")
        bundle = os.path.join(other.folder, "sums.fab")
        tap.has(place.run("export", path, "--out", bundle).stdout, "1 winner, 1 cubin")
        trusted = os.path.join(other.folder, ".config", "fa-tune", "trusted")
        os.makedirs(trusted, mode=0o700)
        tap.write(os.path.join(trusted, "test.pub"), key)
        tap.has(other.run("import", bundle, status=1).stderr, "name the file of a kernel of your own first")
        tap.has(other.run("show", path, bundle).stdout, "n 1000")
        tap.has(other.run("import", path, bundle).stdout, "added")
        tap.has(other.run(path, "--n", "1000").stdout, "found in")


def without_a_gpu_the_command_is_told_that_compiles_the_file():
    with Place(space=None) as place:
        tap.has(place.run(path_of("axpy.json"), status=1).stderr, "tune for a GPU that is not here by its name, such as L4")


def an_absent_gpu_takes_the_winner_of_one_that_was_here_and_no_rank():
    with a_place("time THREADS=128;PER_THREAD=2; 10\n") as place:
        place.run(path_of("axpy.json"))
        text = place.run(path_of("axpy.json"), "--gpu", "A100").stdout
        tap.has(text, "clean 6 → unranked\n")
        tap.has(text, "unranked: no model tells these kernels apart; it won on NVIDIA L4")
        tap.equal(tunables(place.json(path_of("axpy.json"), "--gpu", "A100")["answer"]), "THREADS=128;PER_THREAD=2")


def a_queue_is_worked_on_by_workers_that_have_the_file():
    with a_place() as place:
        place.env["FA_TUNE_STORE"] = os.path.join(place.folder, "shared.db")
        place.run("sweep", path_of("gather.cu"), "--n", "10", "--enqueue", "--gpu", "L4")
        tap.has(place.run("worker", "--idle-exit", "1s").stdout, "0 measured, 0 compiled")
        tap.has(place.run("worker", path_of("gather.cu"), "--idle-exit", "1s").stdout, "1 measured, 0 compiled")
        tap.has(place.run(path_of("gather.cu"), "--n", "10").stdout, "found in")


def an_edited_kernel_is_tuned_anew():
    with a_place() as place:
        path = own_copy(place, "axpy.json")
        place.run(path, "--n", "100")
        tap.has(place.run(path, "--n", "100").stdout, "found in")
        own_copy(place, "axpy.json", lambda told: told["tune"].update(THREADS=[64, 128]))
        tap.equal(place.json(path, "--n", "100")["funnel"]["measured"], 4)


def what_is_wrong_is_said_with_its_place():
    def told(**changes):
        return lambda document: document.update(changes)

    wrong = [
        (told(kernel="axpi"), "there is no kernel axpi in it, but other, axpy"),
        (told(kernel=None), "\"kernel\" must say which one is meant: other, axpy"),
        (told(source="../axpy_kernels.cu"), "the name of a file beside the specification"),
        (told(source="absent.cu"), "absent.cu"),
        (told(tuna={}), "did you mean \"tune\"?"),
        (told(tune={"THREADS": [64.5], "PER_THREAD": [1]}), "is a fraction"),
        (told(tune={"and": [64]}), "\"and\" is not a name"),
        (told(restrictions=["THREADS <= BLOK"]), "unknown name BLOK"),
        (told(restrictions=["THREADS < 1"]), "no config holds to \"THREADS < 1\""),
        (told(sizes={}), "uses the unknown name n"),
        (told(grid=["1", "1", "1", "1"]), "\"grid\" must be one to three expressions"),
        (lambda document: document.pop("grid"), "\"grid\" is missing: one to three expressions"),
        (told(arguments=[{"name": "y", "type": "f31", "shape": ["n"]}]), "not \"f31\""),
        (told(arguments=[{"name": "y", "type": "f32", "shape": ["n"]}]), "none is an output"),
        (told(answer="axpy_naive"), "there is no kernel axpy_naive"),
        (told(name="../x"), "\"name\" is"),
        (told(answer="axpy"), "axpy is the kernel itself"),
        (told(answer={"kernel": "axpy_naive", "source": "absent.cu"}), "absent.cu"),
        (told(flops="2 * m"), "flops: uses the unknown name m"),
        (told(sizes={"n": 0}), "sizes n: 0 is no whole number from 1"),
        (told(sizes={"n": 1e15}), "sizes n: 1000000000000000 is no whole number from 1 to 999999999999999"),
        (told(sizes={"n": {"default": 4000000000, "max": 3000000000}}), "its default is 4000000000: use 1 to 3000000000"),
        (told(sizes={"n": {"default": 100, "max": 64}}), "its default is 100: use 1 to 64"),
        (told(sizes={"n": {"default": 100, "multiple": 64}}), "its default is 100: use a multiple of 64 from 1 to"),
        (told(default={"THREADS": 65}), "default THREADS is 65"),
        (told(block="THREADS * 0"), "block x is 0"),
        (told(grid="n // 1000000"), "grid x is 0"),
        (told(grid="n / 3000"), "is a fraction, where an integer is needed: write // or ceil_div"),
        (told(shared_memory=-4), "shared_memory dynamic is -4"),
        (told(arguments=[{"name": "y", "shape": ["n"]}]), "arguments[0] y needs a \"type\""),
        (told(arguments=[{"name": "_y", "type": "f32", "shape": ["n"]}]), "arguments[0] _y: a name begins with a letter"),
        (told(answer={"given": 1}), "\"given\" must be a text, and alone"),
        (told(answer={"given": "f", "block": 1}), "\"given\" must be a text, and alone"),
    ]
    with a_place() as place:
        for change, sentence in wrong:
            run = place.run(own_copy(place, "axpy.json", change), status=2)
            tap.has(run.stderr, sentence)
            assert re.match(r"fa-tune: axpy\.json:[0-9]+: ", run.stderr), run.stderr
        for size, option in ("gpu", "--gpu"), ("top", "--top"):  # --gpu A100 must not be a size
            named = own_copy(place, "axpy.json", lambda told: told["sizes"].update({size: 3}))  # pylint: disable=cell-var-from-loop
            tap.has(place.run(named, option, "4", status=2).stderr, "the size %s has the name of an option of `fa-tune tune`" % size)
        bare = os.path.join(place.folder, "bare.cu")
        tap.write(bare, "__global__ void k() {}\n")
        tap.has(place.run(bare, status=2).stderr, "let the file begin with a comment")
        tap.write(bare, "/* fa-tune {\n  \"sizes\": {\"n\" 3}\n} */\n__global__ void k() {}\n")
        tap.has(place.run(bare, status=2).stderr, "bare.cu:2: not valid JSON")
        tap.write(bare, "/* fa-tune {\n  \"sizes\": {")
        tap.has(place.run("check", bare, status=2).stderr, "the comment with the specification does not end: */ is missing")
        os.mkdir(os.path.join(place.folder, "folder.cu"))
        tap.has(place.run("check", "folder.cu", status=2).stderr, "folder.cu: it is a folder")


def an_answer_that_a_program_gives_is_that_programs_to_tune():
    with a_place() as place:
        path = own_copy(place, "axpy.json", lambda told: told.update(answer={"given": "right"}))
        tap.has(place.run(path, status=1).stderr, "only the program that tuned axpy has its reference")
        tap.equal(place.json(path, "--gpu", "A100")["answer"]["origin"], "unranked")  # where nothing is proved


def arguments_that_the_kernel_does_not_take_are_found_in_its_cubin():
    with a_place() as place:
        swap = own_copy(place, "axpy.json", lambda told: told["arguments"][2].update(type="f64"))
        tap.has(place.run(swap, "--gpu", "L4", status=1).stderr, "argument 3 of axpy, a, has 4 bytes, and fp64 has 8")
        less = own_copy(place, "axpy.json", lambda told: told["arguments"].pop())
        tap.has(place.run(less, "--gpu", "L4", status=1).stderr, "axpy takes 4 arguments, and 3 are stated")


tap.main()
