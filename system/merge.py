#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Merges records: lines of records, documents of `fa-tune show --json` and lines of baselines, into lines on standard output.
    fa-tune gpus --json >gpus.json; system/merge.py gpus.json system/records.jsonl h200.json torch.jsonl >new.jsonl
A device gets the name that its silicon has in the catalogue, which stands first. Of two winners for a problem and GPU the one with the better origin stays, of two equals the later file's; of two baselines of
a peer the later file's. Kept of an answer is what an import reads."""
import json
import sys

ORIGINS = ["measured", "measured-same-silicon", "imported", "transferred", "predicted", "unranked"]
LEFT_OUT = {"problem", "gpu", "from_problem", "from_gpu", "from_store", "from_system", "why", "status", "reason",
          "threads", "smem_bytes", "static_smem_bytes", "registers", "spill_bytes", "blocks_per_sm", "grid", "compile_ms", "entry",
          "tune_s", "shortlist_only", "speedup_over_default", "tflops"}


def silicon(gpu):
    return [gpu[name] for name in ("sm", "sm_count", "smem_per_block", "smem_per_sm", "memory_bus_bits")] + [
        gpu["l2_bytes"] >> 20, (gpu["clock_mhz"] + 50) // 100]


def name_of(gpu):
    same = [known["name"] for known in catalogue if "sm" in gpu and silicon(known) == silicon(gpu)]
    return gpu["name"] if gpu["name"] in same or not same else same[0]


def read(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        document = json.loads(text)
    except json.JSONDecodeError:
        return [json.loads(line) for line in text.splitlines()]
    catalogue.extend(gpu for gpu in document.get("gpus", []) if not gpu.get("refused"))
    return document.get("winners", [] if "gpus" in document else [document])


catalogue, kept = [], {}
for path in sys.argv[1:]:
    for line in read(path):
        if "peer" not in line:
            answer = {name: value for name, value in line["answer"].items() if name not in LEFT_OUT and value is not None}
            if answer["origin"] not in ORIGINS[:3]:
                line.pop("trials", None)
            line = {"problem": line["problem"], "gpu": {"name": name_of(line["gpu"])}, "answer": answer,
                    **({"trials": line["trials"]} if "trials" in line else {})}
        key = (line.get("peer", ""), str(line["gpu"]), json.dumps(line["problem"], sort_keys=True))
        if key in kept and "answer" in line and ORIGINS.index(kept[key]["answer"]["origin"]) < ORIGINS.index(line["answer"]["origin"]):
            continue
        kept[key] = line
for line in sorted(kept.values(), key=lambda line: "peer" in line):  # in the order of the files, baselines last
    print(json.dumps(line, separators=(",", ":"), ensure_ascii=False))
