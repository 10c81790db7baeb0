#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what compute-sanitizer's racecheck reports of attention backward beside what it is known not to follow.

    racecheck_bwd.py LOG

LOG is the output of tests/gpu_training.py with FA_TEST_FAMILY under `compute-sanitizer --tool racecheck --racecheck-report hazard
--print-limit 0`. In the families for Hopper LSE and delta come by cp.async.bulk, which writes behind an mbarrier that their readers have
passed; racecheck does not see it and reports each such read as a WAR hazard. In attn_bwd_wide_sm90a a thread of one consumer reads the
16 bytes of P that the same thread of the other one wrote; the writing warp met at a warp barrier, and its lane 0 arrived at an mbarrier
for all. racecheck does not see that either, and reports lanes 1 to 31 as RAW hazards. The next writing of the slot follows the reading warp's
barrier, its lane 0's arrival for the tile of Q (behind dK), the producer's copy into that tile and the writer's wait for it: WAR hazards of
lanes 1 to 31. Of lane 0, which arrives itself, it reports neither. In the same way the two warps that add dQ read in attn_bwd_sm90a which
parts a job clears and rounds, and thread 64 writes the next job's behind lane 0's arrival. Where these lie in shared memory a manifest says.
Exits with 1 for any other hazard, and where the log cannot tell: it has no summary, its list was cut, or several configs ran.
"""
import json
import os
import re
import sys

RESERVED = 0x400  # bytes in front of a kernel's own shared memory, in the addresses that racecheck prints
HAZARD = re.compile(r"Potential (\w+) hazard detected at __shared__ 0x([0-9a-f]+).*\n"
                    r"(?:=+ +(?:Write|Read) Thread \((\d+),0,0\).*\n=+ +(?:Write|Read) Thread \((\d+),0,0\))?")
MANIFEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../kernel_templates/attn_bwd/%s.json")


def known_addresses(config):
    """Of LSE and delta, the addend "rows" of the main launch's shared memory; of P, the addend "weights" behind it; of a job, the end of the last addend."""
    if not config["family"].endswith("sm90a") or "short" in config["family"] or "ring" in config["family"]:
        return range(0), range(0), range(0)
    with open(MANIFEST % config["family"], encoding="utf-8") as file:
        launches = json.load(file)["launches"]
    addends = next(launch["shared_memory"] for launch in launches if launch["kernel"] == "attn_bwd")

    def size(name):
        return eval(str(addends[name]), {"D_BUFFERS": 0}, dict(config["tunables"]))   # the manifest's words are Python's
    names = list(addends)
    if names[:2] == ["rows", "weights"]:
        end = RESERVED + size("rows")
        return range(RESERVED, end), range(end, end + size("weights")), range(0)
    end = RESERVED + config["smem_bytes"] - sum(map(size, names[names.index("rows") + 1:]))
    return range(end - size("rows"), end), range(0), range(end, RESERVED + config["smem_bytes"])


def expected(rows, weights, jobs, kind, address, first, second):
    """Whether a hazard is of the kinds that racecheck is known not to follow. The threads: for RAW the writing one first, for WAR the
    reading one."""
    if kind == "WAR" and address in rows:
        return True
    if kind == "WAR" and address in jobs and second == "64":
        return int(first) < 64 and int(first) % 32 != 0
    if kind not in ("RAW", "WAR") or address not in weights or not first:
        return False
    own = (address - weights.start) % (128 * 16) // 16   # whose bytes they are
    writer, reader = (first, second) if kind == "RAW" else (second, first)
    return own % 32 != 0 and (int(writer), int(reader)) == (128 + own, 256 + own)


def judged(log):
    """(what is wrong or None, a sentence)"""
    configs = set(re.findall(r"^config: (.*)$", log, re.MULTILINE))
    if len(configs) != 1:
        return "%d configs ran, and one says where LSE and delta lie" % len(configs), ""
    if "RACECHECK SUMMARY" not in log:
        return "there is no summary of racecheck", ""
    if "Maximum number of hazards reached" in log:
        return "the list of hazards was cut: NV_COMPUTE_SANITIZER_MAX_RACECHECK_HAZARDS raises its limit", ""
    known = known_addresses(json.loads(configs.pop()))
    hazards = [(kind, int(address, 16), *threads) for kind, address, *threads in HAZARD.findall(log)]
    other = [hazard[:2] for hazard in hazards if not expected(*known, *hazard)]
    told = "%d hazards, %d of them reads of LSE, delta, P and jobs that racecheck does not follow" % (len(hazards), len(hazards) - len(other))
    return ", ".join("%s at 0x%x" % hazard for hazard in other[:4]) or None, told


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        wrong, told = judged(file.read())
    print("racecheck: %s" % (told or wrong) + ("; other: %s" % wrong if told and wrong else ""))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
