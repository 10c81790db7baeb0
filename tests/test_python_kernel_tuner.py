#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fa_tune.kernel_tuner: Kernel Tuner's calls, on the fake driver that computes axpy."""
import contextlib
import functools
import io
import itertools
import json
import os
import re
import runpy
import subprocess
import sys
import types
import warnings
from unittest import mock

import tap
from attention_case import PACKAGE, place, refused  # the fake driver, and the package's path
import producer
import fa_tune
import fa_tune.kernel_tuner as kernel_tuner
from fa_tune.kernel_tuner import _described, _trace, strategies
from fa_tune.kernel_tuner.file_utils import store_metadata_file, store_output_file
from fa_tune.kernel_tuner.kernelbuilder import PythonKernel

try:
    import numpy
except ImportError:
    import small_numpy as numpy
    sys.modules["numpy"] = numpy

TESTS = os.path.join(os.environ["FA_TEST_SOURCE"], "tests")
AXPY = tap.read(os.path.join(TESTS, "specifications", "axpy_kernels.cu"))
TUNE = {"THREADS": [64, 128, 256], "PER_THREAD": [1, 2, 4]}
ONE = {"THREADS": [numpy.asarray(64, dtype="int32")], "PER_THREAD": [1]}
RIGHT = [1.0 + 2.5 * i for i in range(64)]
LAUNCH = dict(grid_div_x=["THREADS", "PER_THREAD"], block_size_names=["THREADS"])


def floats(values):
    return numpy.asarray(list(values), dtype="float32")


def arguments():
    return [floats([1.0] * 64), floats(range(64)), numpy.asarray(2.5, dtype="float32"), numpy.asarray(64, dtype="int32")]


def tune(kernel="axpy", source=AXPY, size=64, tunables=None, **more):
    return kernel_tuner.tune_kernel(kernel, source, size, arguments(), tunables or TUNE, **{"quiet": True, **LAUNCH, **more})


def wrote(name, text):
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    tap.write(name, text)


def results_are_a_dict_for_each_config_with_its_time():
    metrics = {"GB/s": "64 * 12 / 1e6 / time", "double": lambda p: 2 * p["GB/s"]}
    results, env = tune(answer=[floats(RIGHT), None, None, None], restrictions=["THREADS * PER_THREAD <= 256"], metrics=metrics, iterations=3)
    tap.equal([(one["THREADS"], one["PER_THREAD"]) for one in results], [(64, 1), (64, 2), (64, 4), (128, 1), (128, 2), (256, 1)])
    best = env["best_config"]
    assert all(one["time"] >= best["time"] > 0 and one["compile_time"] >= 0 and one["timestamp"] for one in results), results
    tap.equal((best["double"], env["iterations"]), (2 * 64 * 12 / 1e6 / best["time"], 3))
    json.dumps((results, env))
    for first in (float("nan"), 2.0):  # NaN is no value of an objective
        tap.equal(kernel_tuner.get_best_config([{"cost": first}, {"cost": 2.0}, {"cost": float("nan")}], "cost"), {"cost": 2.0})
    near = [floats([value + 1e-3 for value in RIGHT]), None, None, None]
    refused(fa_tune.Error, "none of", by=lambda: tune(answer=near))
    tap.has(json.dumps(tune(answer=near, atol=1e-2, tunables=ONE)[0]), '[{"THREADS": 64, "PER_THREAD": 1, "time": ')
    refused(fa_tune.ArgumentError, "element 0 is no array of the 64 elements of argument 0", by=lambda: tune(answer=[floats([1.0]), None, None, None]))


def a_config_that_fails_has_an_error_and_no_time():
    had, told = tap.read(os.path.join(place.folder, "script")), io.StringIO()
    wrote(os.path.join(place.folder, "script"), had + "fault THREADS=64; illegal_address\n")
    try:
        with warnings.catch_warnings(record=True) as noted, contextlib.redirect_stdout(told):
            warnings.simplefilter("always")
            results, env = tune(tunables={"THREADS": [64, 128], "PER_THREAD": [1], "UNREAD": [7, 8]}, verbose=True, quiet=False,
                                compiler_options=["-O3", "-arch=sm_52", "-std=c++14"])
    finally:
        wrote(os.path.join(place.folder, "script"), had)
    tap.has(told.getvalue(), "THREADS=64, PER_THREAD=1, UNREAD=7: proving a kernel: recording an event")
    tap.has(told.getvalue(), "axpy on NVIDIA L4, 2 configs; the best by time: THREADS=128, PER_THREAD=1, UNREAD=7, time=0.")
    tap.equal([str(one.message).partition(": ")[2].partition(":")[0] for one in noted], [
        "-O3 is left out", "-arch=sm_52 is left out", "neither the kernel nor its launch reads it"])
    tap.equal([("time" in one, one.get("__error__"), one["UNREAD"]) for one in results], [(False, "RuntimeFailedConfig", 7), (True, None, 7)])
    store_output_file("of/t4", results, TUNE)
    store_metadata_file("metadata")
    tap.equal([(one["configuration"]["THREADS"], one["invalidity"], one["correctness"], len(one["times"]["runtimes"]))
               for one in json.loads(tap.read("of/t4.json"))["results"]], [(64, "runtime", 0, 0), (128, "correct", 1, 1)])
    for size in (64, (64, 2), 64):
        kernel_tuner.store_results("best.json", "axpy", AXPY, TUNE, size, results, env)
    tap.equal([(one["problem_size"], one["tunable_parameters"]["THREADS"]) for one in json.loads(tap.read("best.json"))["data"]], [("64x2", 128), ("64", 128)])


# What a text or a function says of a, b and s, and the expression that it becomes.
SAID = [
    ("a / b <= 1", "((1.0 * a / b) <= 1)"), ("a == 1 or b % 2 == 0 and s == 'x'", "((a == 1) or (((b % 2) == 0) and (s == 'x')))"),
    ("(a - b) % 2 == 1", "(((((a - b) % 2) + 2) % 2) == 1)"), ("int(a / b) == 1", "((a // b) == 1)"), ("1 < a < 3", "((a > 1) and (a < 3))"),
    ("not a == 2", "(not (a == 2))"), ("any(a == x for x in (1, 3))", "((a == 1) or (a == 3))"), ("ceil(a / 2) == b", "(ceil_div(a, 2) == b)"), ("True", "1"),
    (lambda p: p["a"] * p["b"] <= 8, "((a * b) <= 8)"), (lambda p: p["s"] == "x" and p["a"] > 1, "((s == 'x') and (a > 1))"),
    (lambda p: int(p["a"] / 2) == 1, "((a // 2) == 1)"), (lambda p: isinstance(p["a"], int) and p["a"] > 1, "(0 if a == 1 else 1)"), (lambda p: {1: 1, 2: 0, 3: 1}[p["a"]], "(0 if a == 2 else 1)"),
    (lambda p: max(p["a"], p.get("b")) > 2, "((b > 2) if (b > a) else (a > 2))"), (lambda a, b: a < b, "(a < b)")]


def restrictions_mean_what_python_makes_of_them():
    tunables = {"a": [1, 2, 3], "b": [1, 2, 4], "s": ["x", "y"]}
    for said, expected in SAID:
        function = _trace.of_text(said) if isinstance(said, str) else _described._of_names(said)
        tap.equal((said, _trace.expression("restrictions", function, tunables, {name: name for name in tunables}, True)), (said, expected))
    space = [dict(zip(TUNE, values)) for values in itertools.product(*TUNE.values())]
    for said, holds in ((lambda p: p["THREADS"] / p["PER_THREAD"] < 48, lambda t, p: t / p < 48), ("THREADS / 100 <= PER_THREAD", lambda t, p: t / 100 <= p),
                        (lambda p: int(p["THREADS"] / 100) in (0, 2), lambda t, p: int(t / 100) in (0, 2)),
                        (lambda THREADS, PER_THREAD: THREADS % 3 == PER_THREAD % 3, lambda t, p: t % 3 == p % 3),
                        ([lambda p: p["THREADS"] != 128, "PER_THREAD // 3 == 0"], lambda t, p: t != 128 and p // 3 == 0)):
        tap.equal([(one["THREADS"], one["PER_THREAD"]) for one in tune(restrictions=said)[0]],
                  [tuple(one.values()) for one in space if holds(*one.values())])
    # Of numbers below 0, too; the configs have one code, and the default's cubin may come last.
    for said, holds in (("SHIFT % 3 == 2", [-1, 2]), (lambda p: int(p["SHIFT"] / 2) == 0, [-1])):
        tap.equal([one["SHIFT"] for one in tune(tunables={**ONE, "SHIFT": [-3, -1, 2]}, restrictions=[said])[0]], holds)
    refused(fa_tune.NotSupported, "a specification would need an expression of", by=lambda: _trace.expression(
        "grid_div_x", lambda p: hash((int(p["a"]), int(p["b"]))), {"a": list(range(40)), "b": list(range(40))}, {"a": "a", "b": "b"}))
    refused(fa_tune.ArgumentError, "c > 1: name 'c' is not defined: the tunables are THREADS, PER_THREAD", by=lambda: tune(restrictions=["c > 1"]))
    refused(fa_tune.ArgumentError, "c >: is no expression of Python's", by=lambda: tune(restrictions=["c >"]))
    refused(KeyError, "c", by=lambda: tune(restrictions=lambda p: p["c"] > 1))


def the_grid_is_that_of_kernel_tuner():
    tunables = {**TUNE, "block_size_x": [32]}
    for size, divisors, axis, expected in [
            (100, None, 0, "ceil_div(100, block_size_x)"), ((100, 7), [], 1, "7"), ((100,), None, 1, "ceil_div(1, block_size_x)"), (100, 7, 0, "15"),
            ("THREADS * 2", [], 0, "(THREADS * 2)"), (100, ["THREADS / PER_THREAD"], 0, "ceil_div(100, (THREADS // PER_THREAD))"), (100, [], 0, "100"),
            (100, lambda p: p["THREADS"] / 32, 0, "ceil_div((100 * 32), THREADS)"),
            (100, [lambda p: p["PER_THREAD"] * 0.75], 0, "(34 if PER_THREAD == 4 else (67 if PER_THREAD == 2 else 134))"),
            (100, ["(PER_THREAD - 1) % 3 + 1"], 0, "(50 if PER_THREAD == 2 else 100)"),
            (lambda p: (p["THREADS"], 3), "PER_THREAD", 0, "ceil_div(THREADS, PER_THREAD)")]:
        side = _described._side(size, divisors, "block_size_x", axis)
        tap.equal(_trace.expression("grid", side, tunables, {name: name for name in tunables}), expected)


def sources_may_be_files_functions_and_templates():
    wrote("axpy.cu", AXPY)
    wrote("none.h", "\n")
    for source in ("axpy.cu", '#include "none.h"\n' + AXPY, lambda p: AXPY.replace("PER_THREAD", str(p["PER_THREAD"]))):
        tap.equal(len(tune(source=source, lang="cupy")[0]), 9)
    made = _described.Described("k", lambda p: "__global__ void k(float *y) { y[0] = %d; }" % (p["A"] // 2), 64, arguments()[:1], {"A": [2, 3, 4], "S": ["x", "y"]},
                                (None,) * 3, None, None, None, None, None, None, None, 0)
    tap.equal(re.findall(r"(?m)^#.*", made.source), ["#if A == 2 || A == 3", "#elif A == 4", "#endif"])
    described = functools.partial(_described.Described, restrictions=None, lang=None, device=0, arguments=arguments()[:1])
    said = described("k<THREADS>", "template<int THREADS> __global__ void k(float *y) { y[0] = block_size_y + grid_size_x; }", 64, tune_params={"THREADS": [32]},
                     grid_div=(["THREADS"], None, None), smem_args={"size": "THREADS * 4"}, cmem_args={"c": floats([1.0])}, compiler_options=["-I", "."],
                     defines={"N": "THREADS + 1", "M": lambda p: p["THREADS"] // 2}, block_size_names=["THREADS"])
    tap.equal([said.words[key] for key in ("kernel", "tune", "defines", "shared_memory", "include")], [
        "k<kernel_tuner_THREADS>", {"kernel_tuner_THREADS": [32]}, {"M": "(kernel_tuner_THREADS // 2)"}, "(kernel_tuner_THREADS * 4)", [os.getcwd()]])
    assert said.source.startswith("#define N kernel_tuner_THREADS + 1\n#line 1\n") and said._args(None)["cmem_c"]["symbol"] == "c", said.source
    said = described("k", "__global__ void k(float *y) { y[0] = BLOCK_SIZE_X + block_size_y + grid_size_x; }", 64, tune_params={"BLOCK_SIZE_X": [32]},
                     grid_div=(None,) * 3, smem_args=None, cmem_args=None, compiler_options=None, defines=None, block_size_names=None)
    tap.equal((said.words["block"], said.words["defines"], said.source.partition("\n#line")[0]), (
        ["BLOCK_SIZE_X", "1", "1"], {"grid_size_x": "ceil_div(64, BLOCK_SIZE_X)"}, "#define block_size_y 1"))


def a_second_run_takes_what_the_cache_file_has():
    kept = functools.partial(tune, restrictions=["THREADS * PER_THREAD <= 256"], cache="kept")
    first, env = kept()
    with mock.patch.object(_described.Described, "tuned", None):  # nothing may be tuned
        again, told = kept(cache="kept.json", metrics={"more": "2 * time"})
        tap.equal([(one["THREADS"], one["more"]) for one in again], [(one["THREADS"], 2 * one["time"]) for one in first])
        tap.equal(told["best_config"]["time"], env["best_config"]["time"])
        tap.equal([len(kept(**more)[0]) for more in ({"strategy": "random_sample", "strategy_options": {"max_fevals": 4}}, {"tunables": {"THREADS": [64], "PER_THREAD": [1, 2]}})], [6, 2])
        tap.equal(len(json.loads(tap.read("kept.json"))["cache"]), 6)
        for what, words in (("kernel_name", {"kernel": "other"}), ("problem_size", {"size": 65}), ("tune_params_keys", {"tunables": {**TUNE, "X": [1]}})):
            refused(fa_tune.ArgumentError, "is of another tune: its " + what, by=functools.partial(kept, **words))
    for text in (tap.read("kept.json")[:70], "", "[1]", '{"cache": 1}', "\0"):  # torn, and of others
        wrote("torn.json", text)
        refused(fa_tune.ArgumentError, "torn.json is no cache file of Kernel Tuner's", by=functools.partial(kept, cache="torn"))
        refused(fa_tune.ArgumentError, "torn.json is no file that", by=lambda: kernel_tuner.store_results("torn.json", "axpy", AXPY, TUNE, 64, first, env))
        tap.equal(tap.read("torn.json"), text)
    told = json.loads(tap.read("kept.json"))
    for key in list(told["cache"])[3:]:
        del told["cache"][key]
    told["cache"]["64,1"] = {"THREADS": 64, "PER_THREAD": 1, "time": "InvalidConfig"}
    wrote("kept.json", json.dumps(told, indent="")[:-3] + ",")  # as Kernel Tuner leaves it when it is stopped
    resumed, _ = kept()
    tap.equal((len(resumed), str(resumed[0]["__error__"]), resumed[1]["time"]), (6, "InvalidConfig", first[1]["time"]))


class Cupy(producer.Exchanged):
    """As much of an array of CuPy's as a launch asks for."""
    def get(self):
        return floats(self.read())


def one_config_is_launched_on_copies_of_the_arguments():
    cupy = types.SimpleNamespace(array=lambda given: Cupy(given.shape, list(given.flat), dtype=(producer.FLOAT, 32)))
    with tap.modules({"cupy": cupy}):
        given, config = arguments(), {"THREADS": 64, "PER_THREAD": 2}
        for source, params in ((AXPY.replace("THREADS", "256").replace("PER_THREAD", "1"), {}), (AXPY, config)):
            out = kernel_tuner.run_kernel("axpy", source, 64, given, params, quiet=True, **(LAUNCH if params else {"grid_div_x": [256]}))
        tap.equal((list(out[0].flat), list(out[1].flat), out[3] is given[3], list(given[0].flat)), (RIGHT, list(range(64)), True, [1.0] * 64))
        kernel = PythonKernel("axpy", AXPY, 64, given, config, outputs=[True, False, False, False], **LAUNCH)
        tap.equal([list(one.flat) for one in kernel(*arguments())], [RIGHT])
        # y has no answer, and the kernel writes it: then the fastest config's x is compared after its launch
        tap.equal(sum("time" in one for one in tune(answer=[None, floats(range(64)), None, None])[0]), 9)
        refused(fa_tune.Error, "of every config differ from the answer", by=lambda: tune(tunables=ONE, answer=[None, floats([7.0] * 64), None, None]))
        asked = []

        def verify(answer, result, atol=None):
            asked.append(([one is None for one in result], atol))
            return len(asked) == 3 and answer[0] == sum(result[0].flat)
        results, env = tune(answer=[sum(RIGHT), None, None, None], verify=verify, atol=0.5)
        tap.equal(asked, [([False, True, True, True], 0.5)] * 3)
        tap.equal((sum("time" in one for one in results), env["best_config"]["time"]), (7, min(one["time"] for one in results if "time" in one)))
        refused(fa_tune.Error, "verify() refused the outputs of every config", by=lambda: tune(tunables=ONE, verify=lambda a, b: False))


def what_is_not_there_is_refused_by_name():
    for sentence, words in (("no simulation_mode", dict(simulation_mode=True)), ("no texmem_args", dict(texmem_args={"t": 1})),
                            ("no observers (SimpleNamespace)", dict(observers=[types.SimpleNamespace()])), ("no objectives", dict(objectives={"time": False})),
                            ("CUDA kernels alone, and axpy is in OpenCL", dict(lang="OpenCL")), ("a strategy of your own", dict(strategy=tap)),
                            ("did you mean 'bayes_opt'", dict(strategy="bayes")), ("whether more of 'loud' is better", dict(objective="loud")),
                            ("texts and functions are taken, and not 5", dict(restrictions=[5])), ("smem_args", dict(smem_args={"config": 1})),
                            ("block_size_names is a list", dict(block_size_names="x")), ("more than 1048576 bytes", dict(source=lambda p: "x" * (1 << 19) + str(p)))):
        refused(fa_tune.Error, sentence, by=functools.partial(tune, **words))
    refused(fa_tune.ArgumentError, "such as numpy.int32(5), not 5", by=lambda: kernel_tuner.tune_kernel("axpy", AXPY, 64, [5], ONE))
    refused(fa_tune.NotSupported, "no tune_cache()", by=lambda: kernel_tuner.tune_cache("a"))
    for module in ("observers.nvml", "accuracy"):
        refused(ImportError, "fa_tune.kernel_tuner has no", by=functools.partial(__import__, "fa_tune.kernel_tuner." + module))
    with warnings.catch_warnings(record=True) as noted:
        warnings.simplefilter("always")
        limits = {"evaluations": 7, "seconds": 3}
        for strategy, ours in ((None, {}), ("random_sample", {"strategy": "random"}), (strategies.pso, {"strategy": "surrogate"})):
            tap.equal(strategies.searching(strategy, {"max_fevals": 7, "time_limit": 3, "popsize": 2}), {**limits, **ours})
    tap.has(str(noted[0].message), "in the place of pso; not read: popsize")


SCRIPT = """import small_numpy as numpy
import kernel_tuner
from kernel_tuner.util import get_config_string
args = [numpy.asarray(given, dtype) for given, dtype in (([1.0] * 64, "float32"), ([2.0] * 64, "float32"), (2.5, "float32"), (64, "int32"))]
_, env = kernel_tuner.tune_kernel("axpy", "axpy.cu", 64, args, {"THREADS": [64, 128], "PER_THREAD": [1]}, block_size_names=["THREADS"])
print(get_config_string(env["best_config"]))
"""


def a_folder_of_scripts_is_raced():
    for name, text in (("axpy.cu", AXPY), ("one.py", SCRIPT), ("two.py", "from kernel_tuner.observers.nvml import NVMLObserver\n")):
        wrote("scripts/" + name, text)
    path = os.path.join(TESTS, "bench", "kernel_tuner_race.py")
    done = subprocess.run([sys.executable, path, "scripts"], env=dict(os.environ, PYTHONPATH=PACKAGE + os.pathsep + TESTS), stdout=subprocess.PIPE,
                          text=True, check=True)
    one, two, last = done.stdout.splitlines()
    one, two = json.loads(one)["fa_tune"], json.loads(two)["fa_tune"]
    tap.equal((one["error"], [(each["kernel"], each["timed"], each["of"]) for each in one["tunes"]], last),
              (None, [("axpy", 2, 2)], "1 of 2 scripts ran to their end by fa_tune"))
    tap.has(two["error"], "has no observers")
    race = runpy.run_path(path)
    noted = race["Noted"](kernel_tuner.tune_kernel, 0, False, [[{"THREADS": threads, "PER_THREAD": per} for threads, per in ((64, 2), (256, 1))]])
    tap.equal(len(noted("axpy", AXPY, 64, arguments(), TUNE, quiet=True, **LAUNCH)[0]), 2)
    tap.equal([len(times) for times in noted.calls[0]["times"]], [1, 1])
    tap.equal(race["replaced"]("import kernel_tuner as kt\n  from kernel_tuner.util import x\nimport kernel_tuners\n"),
              "import fa_tune.kernel_tuner as kt\n  from fa_tune.kernel_tuner.util import x\nimport kernel_tuners\n")


tap.main()
