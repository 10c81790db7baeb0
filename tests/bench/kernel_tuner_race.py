#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Examples of Kernel Tuner and KTT, as they stand, tuned by Kernel Tuner and by fa_tune on one GPU, and the two winners raced
against one another. Needs kernel_tuner, CuPy, and a folder with their files:

    python3 tests/bench/kernel_tuner_race.py FOLDER [EXAMPLE…] [--seconds N] [--strategy NAME] [--out FILE]

FOLDER   vector_add.py, convolution.cu, reduction.cu and matmul.cu of Kernel Tuner's examples/cuda; Transpose.cu and
         CoulombSum3d.cu of KTT's Examples
--seconds N   each searches a larger space for N seconds, Kernel Tuner by --strategy (greedy_ils); without it both try the whole
         of a smaller space, and the wall time of each is what is compared
--out FILE    gets the lines, too, behind what is there

Kernel Tuner runs through CuPy, checks no answer, and takes the mean of 7 launches with a warm cache; fa_tune proves every config
before it times it (against the default config, or the answer that an example has), flushes L2 before every launch and races the
finalists. One line of JSON for each example.
"""
import argparse
import json
import os
import sys
import tempfile
import time

try:
    import numpy
except ImportError:  # what fa_tune is told is tested without it
    numpy = None


def drawn(*shape):
    return numpy.random.default_rng(1).standard_normal(shape, dtype="f4")


def pixels(n, filter_size=17):
    return [numpy.zeros((n, n), "f4"), drawn(n + filter_size - 1, n + filter_size - 1), drawn(filter_size, filter_size)]


def atoms(n, count=256):
    """The same atoms twice: as float4, and as four arrays."""
    x, y, z, w = (20 * numpy.random.default_rng(i).random(count, dtype="f4") for i in range(4))
    return [numpy.stack([x, y, z, w], axis=1).copy(), x, y, z, w, numpy.int32(count), numpy.float32(0.5), numpy.int32(n),
            numpy.zeros((n, n, n), "f4")]


POWERS = [1, 2, 4, 8, 16, 32, 64]

# file, kernel     the source and its kernel
# n                the size, of which `arguments` makes the kernel's arguments and `args` what fa_tune is told of them
# tune, large      the space that is tried whole, and what differs in the one that is searched
# block, grid      expressions, as fa_tune takes them; `divisors` and `problem` are Kernel Tuner's words for the same grid
EXAMPLES = {
    "vector_add": dict(
        file="vector_add.py", kernel="vector_add", n=10_000_000, problem=lambda n: n, divisors=(["block_size_x"], None),
        arguments=lambda n: [numpy.zeros(n, "f4"), drawn(n), drawn(n), numpy.int32(n)],
        args=lambda f, n, _: dict(c=f.out("f32", "n"), a=f.array("f32", "n"), b=f.array("f32", "n"), n=n),
        tune={"block_size_x": [128 + 64 * i for i in range(15)]}, large={"block_size_x": [32 * i for i in range(1, 33)]},
        block=["block_size_x"], grid=["ceil_div(n, block_size_x)"]),
    "convolution": dict(
        file="convolution.cu", kernel="convolution_kernel", n=4096, problem=lambda n: (n, n), arguments=pixels,
        # `filter`, which the kernel does not read, is d_filter for the answer's kernel
        args=lambda f, n, _: dict(output=f.out("f32", "n", "n"), input=f.array("f32", "n+16", "n+16"),
                                  filter=f.array("f32", 17, 17, symbol="d_filter", parameter=True)),
        sizes=True, constants=lambda arguments: {"d_filter": arguments[2]},
        answer={"kernel": "convolution_naive", "block": [32, 8], "grid": ["ceil_div(n, 32)", "ceil_div(n, 8)"]},
        # a tile of 4 x 4 alone takes a compiler 20 s
        tune={"filter_height": [17], "filter_width": [17], "block_size_x": [16, 32, 64, 128], "block_size_y": [1, 2, 4, 8],
              "tile_size_x": [1, 2], "tile_size_y": [1, 2], "use_padding": [0, 1], "read_only": [0, 1]},
        large={"block_size_x": [16 * i for i in range(1, 9)], "block_size_y": [1, 2, 4, 8, 16, 32],
               "tile_size_x": list(range(1, 9)), "tile_size_y": list(range(1, 9))},
        restrictions=["use_padding==0 or (block_size_x % 32 != 0)", "block_size_x*block_size_y <= 1024"],
        block=["block_size_x", "block_size_y"],
        grid=["ceil_div(n, block_size_x*tile_size_x)", "ceil_div(n, block_size_y*tile_size_y)"],
        divisors=(["block_size_x", "tile_size_x"], ["block_size_y", "tile_size_y"]), flops="2*n*n*17*17"),
    "reduction": dict(
        file="reduction.cu", kernel="sum_floats", n=1 << 27, problem=lambda n: "num_blocks", divisors=([], None),
        arguments=lambda n: [numpy.zeros(32768, "f4"), drawn(n), numpy.int32(n)],
        args=lambda f, n, _: dict(sum_global=f.partial("f32", 32768), array=f.array("f32", "n"),
                                  n={"default": n, "multiple": 4}),
        rtol=1e-3,
        tune={"block_size_x": [64, 128, 256, 512], "vector": [1, 2, 4], "num_blocks": [32, 128, 512, 2048, 8192, 32768],
              "loop_unroll_factor_0": [0, 1, 16], "use_shuffle": [0, 1]},
        large={"block_size_x": [2 ** i for i in range(5, 11)], "num_blocks": [2 ** i for i in range(5, 16)],
               "loop_unroll_factor_0": [0, 1, 8, 16, 32, 64]},
        block=["block_size_x"], grid=["num_blocks"]),
    "matmul": dict(
        file="matmul.cu", kernel="matmul_kernel", n=4096, problem=lambda n: (n, n),
        arguments=lambda n: [numpy.zeros((n, n), "f4"), drawn(n, n), drawn(n, n)],
        args=lambda f, n, _: dict(C=f.out("f32", "n", "n"), A=f.array("f32", "n", "n"), B=f.array("f32", "n", "n")), sizes=True,
        tune={"block_size_x": [16, 32, 64], "block_size_y": [1, 2, 4, 8, 16, 32], "tile_size_x": [1, 2, 4, 8],
              "tile_size_y": [1, 2, 4, 8]},
        large={"block_size_x": [16, 32, 64, 128], "block_size_y": POWERS, "tile_size_x": POWERS[:5], "tile_size_y": POWERS[:6]},
        restrictions=["block_size_x==block_size_y*tile_size_y", "block_size_x*block_size_y <= 1024"],
        block=["block_size_x", "block_size_y"],
        grid=["ceil_div(n, block_size_x*tile_size_x)", "ceil_div(n, block_size_y*tile_size_y)"],
        divisors=(["block_size_x", "tile_size_x"], ["block_size_y", "tile_size_y"]), flops="2*n*n*n"),
    "transpose": dict(
        file="Transpose.cu", kernel="mtran", n=8192, problem=lambda n: (n, n),
        arguments=lambda n: [numpy.zeros((n, n), "f4"), drawn(n, n), numpy.int32(n), numpy.int32(n)],
        args=lambda f, n, _: dict(output=f.out("f32", "height", "width"), input=f.array("f32", "height", "width"),
                                  width=f.fixed(n), height=f.fixed(n)),
        tune={"VECTOR_TYPE": [1, 2, 4], "CR": [0, 1], "LOCAL_MEM": [0, 1], "PADD_LOCAL": [0, 1], "DIAGONAL_MAP": [0, 1],
              "WORK_GROUP_SIZE_X": [8, 16, 32], "WORK_GROUP_SIZE_Y": [2, 4, 8, 16], "TILE_SIZE_X": [8, 16, 32],
              "TILE_SIZE_Y": [8, 16, 32]},
        large={name: POWERS for name in ("WORK_GROUP_SIZE_X", "WORK_GROUP_SIZE_Y", "TILE_SIZE_X", "TILE_SIZE_Y")},
        restrictions=["TILE_SIZE_X == WORK_GROUP_SIZE_X", "WORK_GROUP_SIZE_Y <= TILE_SIZE_Y",
                      "TILE_SIZE_Y % WORK_GROUP_SIZE_Y == 0",
                      "LOCAL_MEM == 0 or TILE_SIZE_Y <= WORK_GROUP_SIZE_X*WORK_GROUP_SIZE_Y",
                      "LOCAL_MEM == 1 or PADD_LOCAL == 0", "LOCAL_MEM == 0 or VECTOR_TYPE == 1",
                      "TILE_SIZE_X*VECTOR_TYPE <= 64", "WORK_GROUP_SIZE_X*WORK_GROUP_SIZE_Y >= 32",
                      "WORK_GROUP_SIZE_X*WORK_GROUP_SIZE_Y <= 1024"],
        block=["WORK_GROUP_SIZE_X", "WORK_GROUP_SIZE_Y"],
        grid=["width / (TILE_SIZE_X*VECTOR_TYPE)", "height / TILE_SIZE_Y"],
        divisors=(["TILE_SIZE_X", "VECTOR_TYPE"], ["TILE_SIZE_Y"])),
    "coulomb": dict(
        file="CoulombSum3d.cu", kernel="directCoulombSum", n=256, problem=lambda n: (n, n, n), arguments=atoms,
        args=lambda f, n, given: dict(
            zip(("atomInfo", "atomInfoX", "atomInfoY", "atomInfoZ", "atomInfoW"), map(f.array, given)), numberOfAtoms=f.fixed(256),
            gridSpacing=0.5, gridSize=f.fixed(n), energyGrid=f.inout(given[8], "gridSize", "gridSize", "gridSize")),
        rtol=1e-4, options=["-use_fast_math"],
        tune={"WORK_GROUP_SIZE_X": [16, 32], "WORK_GROUP_SIZE_Y": [1, 2, 4, 8], "Z_ITERATIONS": [1, 2, 4, 8, 16, 32],
              "INNER_UNROLL_FACTOR": [0, 1, 2, 4, 8, 16, 32], "USE_SOA": [0, 1], "VECTOR_SIZE": [1]},
        large={"WORK_GROUP_SIZE_X": [16, 32, 64, 128, 256], "WORK_GROUP_SIZE_Y": [1, 2, 4, 8, 16]},
        restrictions=["INNER_UNROLL_FACTOR < Z_ITERATIONS", "WORK_GROUP_SIZE_X*WORK_GROUP_SIZE_Y >= 64",
                      "WORK_GROUP_SIZE_X*WORK_GROUP_SIZE_Y <= 1024"],
        block=["WORK_GROUP_SIZE_X", "WORK_GROUP_SIZE_Y"],
        grid=["ceil_div(gridSize, WORK_GROUP_SIZE_X)", "ceil_div(gridSize, WORK_GROUP_SIZE_Y)",
              "ceil_div(gridSize, Z_ITERATIONS)"],
        divisors=(["WORK_GROUP_SIZE_X"], ["WORK_GROUP_SIZE_Y"], ["Z_ITERATIONS"])),
}


def source_of(folder, example):
    with open(os.path.join(folder, example["file"]), encoding="utf-8") as file:
        text = file.read()
    return text.split('"""')[3] if example["file"].endswith(".py") else text


def space_of(example, seconds):
    return {**example["tune"], **(example["large"] if seconds else {})}


def by_kernel_tuner(example, source, arguments, seconds, strategy):
    from kernel_tuner import tune_kernel
    more = {"restrictions": example.get("restrictions"), "block_size_names": list(example["block"]),
            "compiler_options": example.get("options")}  # it appends to its lists
    for axis, divisors in zip("xyz", example["divisors"]):
        more["grid_div_" + axis] = divisors
    if "constants" in example:
        more["cmem_args"] = example["constants"](arguments)
    if seconds:
        # without a number of evaluations 100 are enough for it
        more.update(strategy=strategy, strategy_options={"time_limit": seconds, "max_fevals": 10 ** 9})
    began = time.perf_counter()
    results, _ = tune_kernel(example["kernel"], source, example["problem"](example["n"]), arguments, space_of(example, seconds),
                             lang="cupy", quiet=True, **{name: value for name, value in more.items() if value is not None})
    took = time.perf_counter() - began
    return took, len(results), best_of(results, example["tune"])


def best_of(results, names):
    """The fastest config; one that failed has no time, and one that there was no time for is None."""
    timed = [one for one in results if one is not None and isinstance(one.get("time"), float)]
    if not timed:
        raise RuntimeError("Kernel Tuner has timed none of its %d configs" % len(results))
    best = min(timed, key=lambda one: one["time"])
    return {name: int(best[name]) for name in names}


def words_of(fa_tune, example, arguments, seconds):
    """What fa_tune.tune_kernel() is told beside the source."""
    fixed = {"sizes": {"n": fa_tune.fixed(example["n"])}} if "sizes" in example else {}
    return dict(fixed, kernel=example["kernel"], args=example["args"](fa_tune, example["n"], arguments),
                tune=space_of(example, seconds), seconds=seconds or None,
                **{name: example[name] for name in ("block", "grid", "restrictions", "answer", "rtol", "flops", "options")
                   if name in example})


def by_fa_tune(example, source, arguments, seconds):
    began = time.perf_counter()
    import fa_tune
    tuned = fa_tune.tune_kernel(source, **words_of(fa_tune, example, arguments, seconds))
    took = time.perf_counter() - began
    return took, tuned.answer.funnel["measured"], tuned.answer.funnel["failed"], tuned.answer.tunables


def sides_of(example, expressions, config):
    """One to three expressions of sizes and tunables, as numbers; division is that of integers, as in fa_tune."""
    n = example["n"]
    known = {"n": n, "width": n, "height": n, "gridSize": n, "ceil_div": lambda a, b: -(-a // b), **config}
    sides = [int(eval(text.replace("/", "//"), {"__builtins__": {}}, known)) for text in expressions]
    return tuple(sides + [1] * (3 - len(sides)))


def race(example, source, arguments, configs, rounds=60):
    """Median microseconds of each config, interleaved, L2 flushed before every launch."""
    import cupy
    device = [cupy.asarray(one) if isinstance(one, numpy.ndarray) else one for one in arguments]
    flush = cupy.empty(256 << 20, cupy.uint8)
    kernels = []
    for config in configs:
        options = ("-std=c++17", *example.get("options", ()), *("-D%s=%d" % one for one in config.items()))
        module = cupy.RawModule(code='extern "C" {\n' + source + "}", options=options)
        for name, value in example.get("constants", lambda _: {})(arguments).items():
            cupy.ndarray(value.shape, value.dtype, module.get_global(name))[...] = cupy.asarray(value)
        kernels.append((module.get_function(example["kernel"]), sides_of(example, example["grid"], config),
                        sides_of(example, example["block"], config)))
    times = [[] for _ in configs]
    for turn in range(rounds + 3):
        for i in numpy.random.permutation(len(configs)):
            function, grid, block = kernels[i]
            flush.fill(turn & 255)
            start, stop = cupy.cuda.Event(), cupy.cuda.Event()
            start.record()
            function(grid, block, tuple(device))
            stop.record()
            stop.synchronize()
            if turn >= 3:
                times[i].append(1e3 * cupy.cuda.get_elapsed_time(start, stop))
    return [float(numpy.median(one)) for one in times]


def run(name, options):
    example = EXAMPLES[name]
    source, arguments = source_of(options.folder, example), example["arguments"](example["n"])
    ours, measured, failed, mine = by_fa_tune(example, source, arguments, options.seconds)
    theirs, configs, best = by_kernel_tuner(example, source, arguments, options.seconds, options.strategy)
    us = race(example, source, arguments, [best, mine])
    return {"example": name, "limit_s": options.seconds or None, "kernel_tuner_s": round(theirs, 2), "configs": configs,
            "fa_tune_s": round(ours, 2), "measured": measured, "failed": failed, "faster": round(theirs / ours, 1),
            "kernel_tuner": best, "fa_tune": mine, "race_us": [round(one, 1) for one in us],
            "winner_ratio": round(us[0] / us[1], 3)}


def main():
    parser = argparse.ArgumentParser(description="Kernel Tuner and fa_tune on the same examples")
    parser.add_argument("folder")
    parser.add_argument("examples", nargs="*", choices=[[], *EXAMPLES], metavar="EXAMPLE")
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--strategy", default="greedy_ils")
    parser.add_argument("--out")
    options = parser.parse_args()
    missing = [EXAMPLES[name]["file"] for name in options.examples or EXAMPLES
               if not os.path.exists(os.path.join(options.folder, EXAMPLES[name]["file"]))]
    if missing:
        parser.error("%s lacks %s" % (options.folder, ", ".join(missing)))
    import cupy
    cupy.zeros(1)
    os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(), "store.db")
    failed = 0
    for name in options.examples or EXAMPLES:
        try:
            line = json.dumps(run(name, options))
        except Exception as error:  # pylint: disable=broad-except  # the other examples run all the same
            failed += 1
            line = json.dumps({"example": name, "error": "%s: %s" % (type(error).__name__, error)})
        print(line, flush=True)
        if options.out:
            with open(options.out, "a", encoding="utf-8") as file:
                file.write(line + "\n")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
