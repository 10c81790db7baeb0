#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernel Tuner's own examples, as they stand, tuned by Kernel Tuner and by fa_tune on one GPU: wall time of the whole space, and
the two winners raced against one another. Needs kernel_tuner, CuPy, and the folder examples/cuda of Kernel Tuner's repository:

    python3 tests/bench/kernel_tuner_race.py FOLDER [EXAMPLE…]

Kernel Tuner runs by brute force through CuPy, checks no answer, and takes the mean of 7 launches with a warm cache; fa_tune proves
every config before it times it (against the default config: these examples have no other kernel to compare with), flushes L2
before every launch and races the finalists. One line of JSON for each example.
"""
import json
import os
import sys
import tempfile
import time

import cupy
import numpy

EXAMPLES = {
    "vector_add": dict(
        kernel="vector_add", n=10_000_000, problem=10_000_000,
        arguments=lambda n: [numpy.zeros(n, "f4"), numpy.random.randn(n).astype("f4"), numpy.random.randn(n).astype("f4"),
                             numpy.int32(n)],
        args=lambda f, n: dict(c=f.out("f32", "n"), a=f.array("f32", "n"), b=f.array("f32", "n"), n=n),
        tune={"block_size_x": [128 + 64 * i for i in range(15)]}, block=["block_size_x"], grid=["ceil_div(n, block_size_x)"]),
    "matmul": dict(
        kernel="matmul_kernel", n=4096, problem=(4096, 4096),
        arguments=lambda n: [numpy.zeros((n, n), "f4")] + [numpy.random.randn(n, n).astype("f4") for _ in range(2)],
        args=lambda f, n: dict(C=f.out("f32", "n", "n"), A=f.array("f32", "n", "n"), B=f.array("f32", "n", "n")), fixed=True,
        tune={"block_size_x": [16, 32, 64], "block_size_y": [1, 2, 4, 8, 16, 32], "tile_size_x": [1, 2, 4, 8],
              "tile_size_y": [1, 2, 4, 8]},
        restrictions=["block_size_x==block_size_y*tile_size_y"], block=["block_size_x", "block_size_y"],
        grid=["ceil_div(n, block_size_x*tile_size_x)", "ceil_div(n, block_size_y*tile_size_y)"],
        divisors=(["block_size_x", "tile_size_x"], ["block_size_y", "tile_size_y"]), flops="2*n*n*n"),
    # Its border is not written: x_new is an input, too.
    "stencil": dict(
        kernel="stencil_kernel", n=4096, problem=(4096, 2048),
        arguments=lambda n: [numpy.random.randn(n * 2048).astype("f4") for _ in range(2)],
        args=lambda f, n: dict(x_new=f.inout("f32", 2048, "n"), x_old=f.array("f32", 2048, "n")), fixed=True,
        tune={"block_size_x": [32 * i for i in range(1, 9)], "block_size_y": [1, 2, 4, 8, 16, 32]},
        block=["block_size_x", "block_size_y"], grid=["ceil_div(n, block_size_x)", "ceil_div(2048, block_size_y)"],
        divisors=(["block_size_x"], ["block_size_y"])),
}


def source_of(folder, name):
    with open(os.path.join(folder, name + (".py" if name == "vector_add" else ".cu")), encoding="utf-8") as file:
        text = file.read()
    return text.split('"""')[3] if name == "vector_add" else text


def by_kernel_tuner(example, source, arguments):
    from kernel_tuner import tune_kernel
    more = {}
    if "divisors" in example:
        more["grid_div_x"], more["grid_div_y"] = example["divisors"]
    if "restrictions" in example:
        more["restrictions"] = example["restrictions"]
    began = time.perf_counter()
    results, _ = tune_kernel(example["kernel"], source, example["problem"], arguments, dict(example["tune"]), lang="cupy",
                             quiet=True, **more)
    seconds = time.perf_counter() - began
    timed = [one for one in results if isinstance(one["time"], float)]
    best = min(timed, key=lambda one: one["time"])
    return seconds, len(results), {name: int(best[name]) for name in example["tune"]}


def by_fa_tune(example, source):
    began = time.perf_counter()
    import fa_tune
    args = example["args"](fa_tune, example["n"])
    sizes = None if "n" in args else {"n": fa_tune.fixed(example["n"]) if example.get("fixed") else example["n"]}
    tuned = fa_tune.tune_kernel(source, kernel=example["kernel"], args=args, sizes=sizes, tune=example["tune"],
                                block=example["block"], grid=example["grid"],
                                restrictions=example.get("restrictions", ()), flops=example.get("flops"))
    seconds = time.perf_counter() - began
    return seconds, tuned.answer.funnel["measured"], tuned.answer.funnel["failed"], tuned.answer.tunables


def race(example, source, arguments, configs, rounds=60):
    """Median microseconds of each config, interleaved, L2 flushed before every launch."""
    device = [cupy.asarray(one) if isinstance(one, numpy.ndarray) else one for one in arguments]
    flush = cupy.empty(256 << 20, cupy.uint8)
    kernels = []
    for config in configs:
        defines = tuple("-D%s=%d" % one for one in config.items())
        module = cupy.RawModule(code='extern "C" {' + source + "}", options=defines)
        x, y = config["block_size_x"], config.get("block_size_y", 1)
        tiles = config.get("tile_size_x", 1), config.get("tile_size_y", 1)
        size = example["problem"] if isinstance(example["problem"], tuple) else (example["problem"], 1)
        grid = (-(-size[0] // (x * tiles[0])), -(-size[1] // (y * tiles[1])))
        kernels.append((module.get_function(example["kernel"]), grid, (x, y)))
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


def main():
    folder, names = sys.argv[1], sys.argv[2:] or list(EXAMPLES)
    os.environ["FA_TUNE_STORE"] = os.path.join(tempfile.mkdtemp(), "store.db")
    cupy.zeros(1)
    for name in names:
        example = EXAMPLES[name]
        source, arguments = source_of(folder, name), example["arguments"](example["n"])
        ours, measured, failed, mine = by_fa_tune(example, source)
        theirs, configs, best = by_kernel_tuner(example, source, arguments)
        us = race(example, source, arguments, [best, mine])
        print(json.dumps({"example": name, "kernel_tuner_s": round(theirs, 2), "configs": configs, "fa_tune_s": round(ours, 2),
                          "measured": measured, "failed": failed, "faster": round(theirs / ours, 1), "kernel_tuner": best,
                          "fa_tune": mine, "race_us": [round(one, 1) for one in us],
                          "winner_ratio": round(us[0] / us[1], 3)}), flush=True)


main()
