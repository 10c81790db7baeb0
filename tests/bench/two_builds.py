#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two builds of fa-tune beside each other, in turn, so that a change of the host or of the card's clock touches both.

    python3 tests/bench/two_builds.py OLD NEW [--host] [--rounds 5]

OLD and NEW are folders as tests/gpu_bundle.sh makes them, for a machine with a GPU. The last column is NEW / OLD.
--host: they are folders as ./dev build makes them (build/), and the machine may be busy: processor time of a command with its workers,
instructions (by callgrind) and resident memory. A GPU is the fake driver's; the space of a tune is eight configs.
"""
import argparse
import glob
import json
import os
import re
import resource
import statistics
import subprocess
import tempfile
import time
import zlib

import serve_load

LATENCY = re.compile(r"launchable kernel ([\d.]+) ms \(open ([\d.]+) ms\); hit in the process "
                     r"([\d.]+) ns; launch on the host ([\d.]+) us")
LATENCIES = (("new process to launchable kernel", "ms"), ("opening a tuner", "ms"), ("hit in the process", "ns"), ("launch on the host", "us"))


def environment(folder, store):
    return dict(os.environ, FA_TUNE_STORE=store, FA_TUNE_SYSTEM="", FA_TUNE_SERVER="", FA_TUNE_WORKER=os.path.join(folder, "fa-tune-worker"))


def latency(command, env):
    """What bench_latency prints."""
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    return [float(value) for value in LATENCY.search(done.stdout).groups()]


class Rows(dict):
    """name -> unit, samples of OLD, samples of NEW."""

    def keep(self, name, unit, which, value):
        self.setdefault(name, (unit, [], []))[1 + which].append(value)


def device_rows(old, new, place, rounds):
    rows = Rows()
    keep = rows.keep
    tunes = {"D 64, S 512": ["--seq", "512"],
             "D 128, S 4096, causal": ["--seq", "4096", "--head-dim", "128", "--causal"]}
    stores = [os.path.join(place, name) for name in ("old.db", "new.db")]
    for folder, store in zip((old, new), stores):
        subprocess.run([os.path.join(folder, "fa-tune"), "--seq", "512", "--quiet"],
                       env=environment(folder, store), stdout=subprocess.DEVNULL, check=True)
    for turn in range(rounds):
        order = ((0, old), (1, new)) if turn % 2 == 0 else ((1, new), (0, old))
        for which, folder in order:
            for name, options in tunes.items():
                store = os.path.join(place, "cold-%d.db" % time.monotonic_ns())
                begin = time.perf_counter()
                done = subprocess.run([os.path.join(folder, "fa-tune"), *options, "--json", "--quiet"],
                                      env=environment(folder, store), stdout=subprocess.PIPE, check=True)
                keep("cold tune, %s" % name, "s", which, time.perf_counter() - begin)
                keep("cold tune, %s, configs measured" % name, "", which, json.loads(done.stdout)["funnel"]["measured"])
        for which, folder in order * 3:
            told = latency([os.path.join(folder, "bench_latency")], environment(folder, stores[which]))
            for (name, unit), value in zip(LATENCIES, told):
                keep(name, unit, which, value)
    return rows


# ---- without a GPU, on a machine that others use ----------------------------------------------------------------
EIGHT = {"BLOCK_M": [64, 128], "BLOCK_N": [32, 64], "STAGES": [1, 2], "WARPS": [4], "Q_IN_REGS": [0],
         "MIN_BLOCKS": [2]}
GRID = ["--seq", "512:16384:x2", "--head-dim", "64,128", "--dtype", "fp16,bf16", "--causal", "both",
        "--tokens", "16384", "--hidden", "2048"]
SHAPE = ["1", "1", "16", "64"]


def small_templates(build, place):
    """attn_fwd_sm80 of that build's tree with eight configs, the decoding family with its default alone."""
    source = os.path.join(os.path.dirname(build), "kernel_templates", "attn_fwd")
    folder = os.path.join(place, "templates")
    os.makedirs(folder)
    for name in ("attn_fwd_sm80", "attn_fwd_splitkv_sm80"):
        with open(os.path.join(source, name + ".json"), encoding="utf-8") as file:
            manifest = {"name": name, **json.load(file)}
        tune, rules = ("tune", "restrictions") if "tune" in manifest else ("tunables", "constraints")  # as an older tree has them
        if name == "attn_fwd_sm80":
            manifest[tune] = {key: EIGHT.get(key, [0]) for key in manifest[tune]}
            manifest[rules] = [c for c in manifest[rules] if "BLOCK_M %" in c["require"]]
            manifest["default"] = {"BLOCK_M": 64, "BLOCK_N": 64, "STAGES": 1, "WARPS": 4, "Q_IN_REGS": 0,
                                   "MIN_BLOCKS": 2}
        else:
            manifest[rules] = [{"require": "%s == (%s)" % pair, "why": "its default alone"} for pair in manifest["default"].items()]
        with open(os.path.join(folder, name + ".json"), "w", encoding="utf-8") as file:
            json.dump(manifest, file)
    return folder


class Host:
    """A build with a folder of its own."""

    def __init__(self, build, place):
        self.build, self.place = build, place
        os.makedirs(place)
        script = os.path.join(place, "script")
        with open(script, "w", encoding="utf-8"):
            pass
        self.env = dict(os.environ, HOME=place, FA_TUNE_SYSTEM="", FA_TUNE_SERVER="",
                        FA_TUNE_WORKER=os.path.join(build, "fa-tune-worker"),
                        FA_TUNE_TEMPLATES=small_templates(build, place), FAKE_CUDA_SCRIPT=script)
        self.fake = os.path.join(build, "tests", "fake", "libcuda.so.1")

    def tune(self, store, *arguments, driver="/nowhere/libcuda.so.1"):
        """Processor seconds of the command with its workers, and the most memory of one of its processes, MB."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_RDWR)
            for fd in (0, 1, 2):
                os.dup2(null, fd)
            os.execve(os.path.join(self.build, "fa-tune"), ["fa-tune", *arguments], dict(self.env, FA_TUNE_STORE=store, FA_TUNE_LIBCUDA=driver))
        _, status, usage = os.wait4(child, 0)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert status == 0, "%s: status %d" % (" ".join(arguments), status)
        return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, usage.ru_maxrss / 1024)

    def latency(self, store, *wrapper):
        return latency([*wrapper, os.path.join(self.build, "tests", "bench_latency"), *SHAPE],
                       dict(self.env, FA_TUNE_STORE=store, FA_TUNE_LIBCUDA=self.fake))

    def instructions(self, store):
        """Of opening a tuner and its first kernel, of a hit, and of a launch without the driver's part. Callgrind has
        no SHA instructions: what is hashed counts more than it takes."""
        out = os.path.join(self.place, "callgrind")
        self.latency(store, "valgrind", "--tool=callgrind", "--callgrind-out-file=" + out)
        return callgrind_calls(out, "main")


def wheel_part(build, place):
    """What a wheel of that build has of ours, its binaries stripped, compressed as a wheel is, MB. The C libraries that
    it brings along are the same in both."""
    native = ["fa-tune", "fa-tune-worker", "fa-tune-serve", "libfa_tune.so", "python/fa_tune/_core.abi3.so"]
    paths = glob.glob(os.path.join(os.path.dirname(build), "python", "fa_tune", "**", "*.py"), recursive=True)
    paths.append(os.path.join(os.path.dirname(build), "system", "records.jsonl"))
    size = 0
    for name in native:
        stripped = os.path.join(place, "stripped")
        subprocess.run(["strip", "-o", stripped, os.path.realpath(os.path.join(build, name))], check=True)
        with open(stripped, "rb") as file:
            size += len(zlib.compress(file.read(), 9))
    for path in paths:
        with open(path, "rb") as file:
            size += len(zlib.compress(file.read(), 9))
    return size / 1e6


def callgrind_calls(path, caller):
    """Of each function that `caller` calls: [(calls, instructions with all that it calls), …] by place."""
    names, found, inside, callee, calls = {}, {}, False, None, 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            what = re.match(r"(c?fn)=\((\d+)\)(?: (.*))?", line)
            if what:
                name = names.setdefault(what[2], what[3])
                if what[1] == "fn":
                    inside = name.split("'")[0] == caller
                else:
                    callee = name.split("'")[0]
            elif line.startswith("calls="):
                calls = int(line[6:].split()[0])
                cost = int(next(file).split()[-1])
                if inside:
                    found.setdefault(callee, []).append((calls, cost))
    return found


def serving_cost(host, rounds):
    """Processor microseconds of the daemon for each cached answer, and its resident memory a second after its clients have left, MB."""
    body = serve_load.ask(128, effort="predict")
    folder = os.path.join(host.place, "serve")
    os.makedirs(folder)
    samples = []
    with serve_load.Daemon(host.build, folder) as daemon:
        assert daemon.request("POST", "/v1/kernel", body)[0] == 200
        samples.extend(daemon.load(body, 100000)["cpu_us"] for _ in range(rounds))
        time.sleep(1)
        with open("/proc/%d/status" % daemon.process.pid, encoding="utf-8") as file:
            memory = int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) / 1024
    return samples, memory


def host_rows(old, new, place, rounds):
    hosts = [Host(build, os.path.join(place, name)) for build, name in ((old, "old"), (new, "new"))]
    rows = Rows()
    keep = rows.keep
    for turn in range(rounds):
        for which, host in sorted(enumerate(hosts), reverse=turn % 2 == 1):
            at = os.path.join(host.place, "%d-" % turn)
            seconds, _ = host.tune(at + "tune.db", "--quiet", "--gpu", "L4", "--effort", "patient", "--seq", "128")
            keep("cold tune of 8 configs for an absent L4", "s", which, seconds)  # a fake GPU is each build's own
            seconds, _ = host.tune(at + "sweep.db", "sweep", "--quiet", "--gpu", "L4", *GRID)
            keep("sweep of 48 problems for an absent L4, 8 configs each", "s", which, seconds)
            bundle = at + "bundle"
            host.tune(at + "sweep.db", "export", "--out", bundle, "--unsigned")
            seconds, memory = host.tune(at + "import.db", "import", "--allow-unsigned", bundle)
            keep("import of a bundle of 48 winners", "s", which, seconds)
            keep("memory of that", "MB", which, memory)
            seconds, memory = host.tune(at + "sweep.db", "show")
            keep("listing 48 winners", "s", which, seconds)
            keep("memory of that", "MB", which, memory)
    stores = [os.path.join(host.place, "kernel.db") for host in hosts]
    for which, host in enumerate(hosts):
        del host.env["FA_TUNE_TEMPLATES"]
        host.tune(stores[which], "--quiet", "--batch", SHAPE[0], "--heads", SHAPE[1], "--seq", SHAPE[2], "--head-dim", SHAPE[3], driver=host.fake)
        calls = host.instructions(stores[which])
        keep("instructions: opening a tuner", "", which, calls["fa_open"][0][1])
        first, hit = calls["fa_get_best_kernel"][:2]
        keep("instructions: stored winner to launchable kernel", "", which, first[1])
        keep("instructions: hit in the process", "", which, hit[1] / hit[0])
        own = calls["fa_launch"][-1]
        keep("instructions: launch, without the driver's", "", which, own[1] / own[0])
    for turn in range(10 * rounds):
        for which, host in sorted(enumerate(hosts), reverse=turn % 2 == 1):
            for (name, unit), value in zip(LATENCIES, host.latency(stores[which])):
                keep(name + ", least", unit, which, value)
    for name, (unit, *samples) in rows.items():
        if name.endswith("least"):
            rows[name] = (unit, *([min(values)] for values in samples))
    for which, host in enumerate(hosts):
        samples, memory = serving_cost(host, rounds)
        for sample in samples:
            keep("processor time of a cached answer of the daemon", "us", which, sample)
        keep("memory of the daemon", "MB", which, memory)
        keep("our part of the wheel", "MB", which, wheel_part(host.build, host.place))
    return rows


def print_rows(rows):
    print("%-52s %12s %12s %9s" % ("", "old", "new", "new / old"))
    for name, (unit, before, after) in rows.items():
        a, b = statistics.median(before), statistics.median(after)
        print("%-52s %9.5g %-2s %9.5g %-2s %9.3f" % (name, a, unit, b, unit, b / a if a else 0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--host", action="store_true", help="without a GPU, on a machine that others use")
    options = parser.parse_args()
    old, new = os.path.abspath(options.old), os.path.abspath(options.new)
    with tempfile.TemporaryDirectory(prefix="ft-") as place:
        print_rows((host_rows if options.host else device_rows)(old, new, place, options.rounds))


if __name__ == "__main__":
    main()
