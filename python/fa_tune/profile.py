# SPDX-License-Identifier: Apache-2.0
"""What bounds a tuned kernel: `python -m fa_tune.profile --seq 4096 [--config N]`.

Runs `fa-tune run` under Nsight Compute (ncu) and says in one sentence what bounds the longest launch and which tunables
move that. A unit counts as the bound from 60% of its peak on; below that, the largest stall does. SMs that are idle for 30%
of the time come before both. Which tunables move a bound is read off the space: those whose change alone changes the
property that the bound depends on (the grid, the shared memory, the threads), the largest effect on the time first.
"""
import argparse
import csv
import glob
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile

from ._package import _packaged

NEAR_PEAK, SMS_IDLE, ATTEMPTS, NAMED = 60, 70, 4, 4
STALLED, PER_ISSUE = "smsp__average_warps_issue_stalled_", "_per_issue_active.ratio"
TIME, ACTIVE, ELAPSED = "gpu__time_duration.sum", "sm__cycles_active.avg", "gpc__cycles_elapsed.max"
CONFLICTS = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum"
WAVEFRONTS = "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum"
UNITS = [  # what people call it, its share of the peak, and the property of a config that moves it
    ("the tensor cores", "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", "tile"),
    ("the special functions", "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active", "tile"),
    ("the issue slots", "sm__inst_issued.avg.pct_of_peak_sustained_active", "tile"),
    ("shared memory", "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", "smem"),
    ("the L2 cache", "lts__throughput.avg.pct_of_peak_sustained_elapsed", "tile"),
    ("the GPU's memory", "dram__throughput.avg.pct_of_peak_sustained_elapsed", "tile"),
]
WAITS = {
    "long_scoreboard": ("waits for global memory", "smem"),
    "lg_throttle": ("full queues to global memory", "threads"),
    "tex_throttle": ("full queues of texture loads", "threads"),
    "short_scoreboard": ("waits for shared memory", "smem"),
    "mio_throttle": ("full queues to shared memory", "smem"),
    "barrier": ("waits at barriers", "threads"),
    "membar": ("waits at memory fences", "threads"),
    "sleeping": ("warps that sleep", "threads"),
    "gmma": ("waits for wgmma", "smem"),
    "math_pipe_throttle": ("busy arithmetic pipes", "threads"),
    "wait": ("the latency of instructions", "resident"),
    "drain": ("stores at the end of blocks", "blocks"),
    "dispatch_stall": ("the dispatcher", "resident"),
    "no_instruction": ("misses of the instruction cache", "tile"),
    "branch_resolving": ("branches", "resident"),
    "imc_miss": ("misses of the constant cache", "resident"),
    "not_selected": ("", ""),  # could run while another warp does: waits for nothing
}
METRICS = [TIME, ACTIVE, ELAPSED, CONFLICTS, WAVEFRONTS, *(unit[1] for unit in UNITS),
           *(STALLED + reason + PER_ISSUE for reason in WAITS)]
PROPERTIES = {"blocks": "the number of blocks", "tile": "the tile of a block", "smem": "the shared memory of a block",
              "threads": "the threads of a block", "resident": "the blocks that an SM holds"}
DENIED = ("the driver lets only administrators read this GPU's counters (ERR_NVGPUCTRPERM): run the command as root, or "
          "set the option NVreg_RestrictProfilingToAdminUsers=0 of the kernel module nvidia; a container also needs "
          "the capability SYS_ADMIN")
MICROSECONDS = {"ns": 1e-3, "nsecond": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "msecond": 1e3, "s": 1e6, "second": 1e6}


class ProfileError(Exception):
    pass


def find_ncu():
    """FA_TUNE_NCU, else the absolute folders of PATH, else the CUDA toolkit: never the current folder."""
    named = os.environ.get("FA_TUNE_NCU", "")
    if named:
        if not os.path.isabs(named) or not os.path.isfile(named) or not os.access(named, os.X_OK):
            raise ProfileError('FA_TUNE_NCU is "%s", which is not the absolute path of a program' % named)
        return named
    folders = [folder for folder in os.environ.get("PATH", "").split(":") if os.path.isabs(folder)]
    for pattern in ("/usr/local/cuda/bin", "/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*"):
        folders += sorted(glob.glob(pattern), reverse=True)
    found = shutil.which("ncu", path=":".join(folders))
    if found is None:
        raise ProfileError("ncu (Nsight Compute's command line) is not here: install the CUDA toolkit or the package "
                           "nsight-compute, or name the program in FA_TUNE_NCU")
    return found


def _number(text):
    try:
        value = float(text.replace(",", ""))
    except ValueError:
        return None
    return value if math.isfinite(value) and value >= 0 else None


def read_log(log):
    """The launches in what ncu wrote with --csv --page raw: of each its kernel's name and what was counted, by metric."""
    lines = log.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    rows = list(csv.DictReader(line for line in lines[begin:] if line.startswith('"'))) if begin is not None else []
    unit = next((row.get(TIME) for row in rows if not row["ID"]), None)
    launches = []
    for row in rows:
        if row["ID"]:
            counted = {name: _number(row.get(name) or "") for name in METRICS}
            if counted[TIME] is not None:
                counted[TIME] = counted[TIME] * MICROSECONDS[unit] if unit in MICROSECONDS else None
            launches.append((row.get("Kernel Name") or "?", counted))
    return launches


def run_ncu(program, arguments):
    """The launches of one call, and its config."""
    ncu, unknown = find_ncu(), set()
    with tempfile.TemporaryDirectory() as folder:
        log = os.path.join(folder, "ncu.csv")
        for _ in range(ATTEMPTS):
            metrics = ",".join(name for name in METRICS if name not in unknown)
            # Without a configuration file: one in the current folder could name programs for ncu to run.
            done = subprocess.run([ncu, "--config-file", "off", "--csv", "--page", "raw", "--print-units", "base",
                                   "--clock-control", "none", "--target-processes", "all", "--profile-from-start", "off",
                                   "--log-file", log, "--metrics", metrics, program, "run", *arguments, "--json", "--quiet"],
                                  stdout=subprocess.PIPE, env=dict(os.environ, LC_ALL="C"), encoding="utf-8",
                                  errors="replace", check=False)
            with open(log, "a+", encoding="utf-8", errors="replace") as file:
                file.seek(0)
                text = file.read()
            os.unlink(log)
            document = read_document(done.stdout)
            launches = read_log(text)
            if launches and "config" in document:
                return launches, document["config"]
            if "ERR_NVGPUCTRPERM" in text:
                raise ProfileError(DENIED)
            errors = [line for line in text.splitlines() if line.startswith("==ERROR==")]
            refused = {name for name in METRICS if name not in unknown and any(name in line for line in errors)}
            if not refused:
                break
            unknown |= refused
    why = errors or [line for line in text.splitlines() if line.startswith("==WARNING==") and "Note:" not in line]
    raise ProfileError("ncu counted nothing" + (": " + why[0] if why else " and does not say why"))


def read_document(text):
    """What fa-tune --json says; an error's sentences are raised."""
    try:
        document = json.loads(text[text.index("{"):text.rindex("}") + 1])
    except ValueError:
        return {}
    if "error" in document:
        raise ProfileError("; ".join(document["error"]["sentences"]))
    return document


def _share(part, whole):
    return min(100 * part / whole, 100) if part is not None and whole and part <= whole * 1.05 else None


def find_bound(counted):
    """What bounds a launch, in words, and the property of a config that moves it; (None, None): too little was counted."""
    busy = _share(counted[ACTIVE], counted[ELAPSED])
    if busy is not None and busy < SMS_IDLE:
        return "SMs without work (busy %.0f%% of the time)" % busy, "blocks"
    share, words, metric, moved_by = max((_share(counted[metric], 100) or -1, words, metric, moved_by)
                                         for words, metric, moved_by in UNITS)
    if share >= NEAR_PEAK:
        conflicts = _share(counted[CONFLICTS], counted[WAVEFRONTS]) if metric.startswith("l1tex") else None
        return "%s (%.0f%% of the peak%s)" % (words, share, ", %.0f%% of it bank conflicts" % conflicts
                                              if conflicts and conflicts >= 1 else ""), moved_by
    warps, reason = max((counted[STALLED + reason + PER_ISSUE] or 0, reason) for reason in WAITS if WAITS[reason][0])
    if share < 0 or warps == 0:
        return None, None
    return "%s (%s %.1f, and no unit reaches %d%% of its peak)" % (WAITS[reason][0], reason, warps, NEAR_PEAK), WAITS[reason][1]


def _differs(what, sms, a, b):
    def fills_gpu(trial):  # as a persistent kernel does, whose number of blocks says nothing of the tile
        blocks = math.prod(trial["grid"])
        return sms > 0 and blocks % sms == 0 and blocks <= sms * (trial["blocks_per_sm"] or 32)
    if what == "blocks":
        return bool(a["grid"] and b["grid"]) and a["grid"] != b["grid"]
    if what == "tile":
        return _differs("blocks", sms, a, b) and not fills_gpu(a) and not fills_gpu(b)
    if what == "smem":  # by more than barriers take
        x, y = a["smem_bytes"], b["smem_bytes"]
        return x is not None and y is not None and 64 * abs(x - y) > x
    x, y = (trial["threads" if what == "threads" else "blocks_per_sm"] for trial in (a, b))
    return bool(x and y) and x != y


def find_movers(what, sms, config, trials):
    """The tunables of which the nearest configs (those that differ in it and in the fewest others) differ in the property."""
    mine = config["tunables"]
    own = next((trial for trial in trials if trial["config"] == config), None)
    near = {name: (len(mine), False, 0.0) for name in mine}  # others that differ, moves, largest effect
    for trial in trials if own else []:
        other = trial["config"]["tunables"]
        if trial["config"]["family"] != config["family"] or not trial["threads"]:
            continue
        changed = [name for name in mine if other.get(name) != mine[name]]
        for name in changed:
            others, moves, effect = near[name] if len(changed) - 1 >= near[name][0] else (len(changed) - 1, False, 0.0)
            if len(changed) - 1 > others:
                continue
            if own["median_us"] and trial["median_us"]:
                effect = max(effect, abs(math.log(trial["median_us"] / own["median_us"])))
            near[name] = (others, moves or _differs(what, sms, own, trial), effect)
    return sorted((name for name in mine if near[name][1]), key=lambda name: (near[name][0], -near[name][2], name))


def say(launches, config, trials, sms):
    """The sentence about the longest launch."""
    times = [counted[TIME] or 0 for _, counted in launches]
    kernel, counted = launches[times.index(max(times))]
    part = ", %.0f%% of the time of %d launches," % (100 * max(times) / sum(times), len(times)) if len(times) > 1 and sum(times) else ""
    words, moved_by = find_bound(counted)
    if words is None:
        return kernel + part + " has a bound that is not known: this GPU or this ncu counts too little"
    moving, order = [], list(PROPERTIES)
    for what in order[order.index(moved_by):]:
        moving = find_movers(what, sms, config, trials)
        if moving:
            break
    moves = "no tunable of its space moves that" if not moving else "%s moves that: %s" % (
        "the size of its tiles in shared memory" if (moved_by, what) == ("tile", "smem") else PROPERTIES[what],
        ", ".join(moving[:NAMED]))
    return "%s%s is bound by %s; %s" % (kernel, part, words, moves)


def main(arguments):
    parser = argparse.ArgumentParser("python -m fa_tune.profile", description=__doc__, allow_abbrev=False,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog="All other options are those of fa-tune explain: they say the problem.")
    parser.add_argument("--config", default="1", metavar="N", help="by its number in fa-tune explain (1, the winner)")
    parser.add_argument("--trial-timeout", default="20s", metavar="TIME", help="limit for the proof; ten times that for ncu")
    own, problem = parser.parse_known_args(arguments)
    program = _packaged() or shutil.which("fa-tune")
    try:
        if program is None:
            raise ProfileError("the program fa-tune is not here")
        launches, config = run_ncu(program, [*problem, "--config", own.config, "--trial-timeout", own.trial_timeout])
        explain = [program, "explain", *problem, "--json", "--quiet"]
        space = read_document(subprocess.run(explain, stdout=subprocess.PIPE, encoding="utf-8", check=False).stdout)
        if "configs" not in space:
            raise ProfileError("fa-tune explain lists no configs")
        for kernel, counted in launches:
            print("%s: %s" % (kernel, ", ".join("%s %.0f%%" % (words.replace("the ", ""), counted[metric])
                                                for words, metric, _ in UNITS if counted[metric] is not None)))
        print(say(launches, config, space["configs"], space["gpu"]["sm_count"]) + ".")
    except ProfileError as error:
        print("fa_tune.profile: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
