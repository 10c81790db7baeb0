#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Baselines from PyTorch: how long its SDPA back ends take, and FlashAttention-3 and -2 where their
packages can be imported, as JSON lines that fa-tune takes in.

    python3 examples/baseline_torch.py --seq 512:16384:x2 --head-dim 64,128 --dtype fp16,bf16 \\
            --causal both --tokens 16384 --hidden 2048 >torch.jsonl
    fa-tune import torch.jsonl

Takes the grid's options as `fa-tune sweep` does, or --plan FILE. Times one call between CUDA events
with the L2 cache flushed before each, and tells the median with its 95% confidence interval. What a
back end cannot do is passed over with a note on stderr. Needs PyTorch and a GPU, nothing else;
--dry-run needs neither and makes lines of the same form with made-up times, which fa-tune refuses.
"""
import argparse
import contextlib
import functools
import importlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import re
import sys
import time

PEERS = {"pytorch-fa2": "FLASH_ATTENTION", "pytorch-cudnn": "CUDNN_ATTENTION",
         "pytorch-efficient": "EFFICIENT_ATTENTION"}
PACKAGES = {"FlashAttention-3": "flash_attn_interface", "FlashAttention-2": "flash_attn"}
SAMPLES, SECONDS, WARM_UP = 101, 0.5, 5  # at most so many samples and so long; calls before them
FIELDS = {"dtype": "fp16", "causal": "none", "layout": "bhsd", "head_dim": 64, "batch": 4,
          "heads_q": 8, "lse": False, "unaligned": False}


# ---- what is to be timed ---------------------------------------------------------------------
def numbers(text):
    """512,1024 or 512:16384:x2 or 512:2048:+512."""
    values = []
    for word in text.split(","):
        if ":" not in word:
            values.append(int(word))
            continue
        first, last, step = word.split(":")
        first, last, by = int(first), int(last), int(step[1:])
        if first < 1 or by < 1 + (step[0] == "x") or step[0] not in "x+":
            raise ValueError(word)
        while first <= last:
            values.append(first)
            first = first * by if step[0] == "x" else first + by
    return values


def words(text):
    return text.split(",")


def grid(options):
    masks = []
    for mask in options.causal:
        masks += ["none", "bottom-right"] if mask == "both" else [mask]
    for dim, dtype, mask, kv, seq, seq_k in itertools.product(
            options.head_dim, options.dtype, dict.fromkeys(masks), options.heads_kv or [None],
            options.seq, options.seq_k or [None]):
        all_heads = [options.hidden // dim] if options.hidden else options.heads
        batches = [options.tokens // seq] if options.tokens else options.batch
        for heads, batch in itertools.product(all_heads, batches):
            yield {"dtype": dtype, "causal": mask, "layout": "bhsd", "head_dim": dim,
                   "batch": batch, "heads_q": heads, "heads_kv": kv or heads, "seq_q": seq,
                   "seq_k": seq_k or seq, "lse": False, "unaligned": False}


def plan(path):
    with open(path, encoding="utf-8") as file:
        for line in file:
            if not line.strip():
                continue
            given = json.loads(line)
            given = given.get("problem", given)
            problem = {**FIELDS, **{k: v for k, v in given.items() if k not in ("gpu", "operation")}}
            problem.setdefault("heads_kv", problem["heads_q"])
            problem.setdefault("seq_k", problem["seq_q"])
            yield problem


# ---- timing ----------------------------------------------------------------------------------
def interval(samples):
    """Median and the order statistics that hold it with 95% confidence."""
    ordered, n = sorted(samples), len(samples)
    below = max(0, math.floor(n / 2 - 0.98 * math.sqrt(n)))
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    return middle, ordered[below], ordered[n - 1 - below]


def driver(path="/proc/driver/nvidia/version"):
    """", driver 580.159.04": the release of the kernel module; "" where it does not say."""
    try:
        with open(path, encoding="utf-8") as file:
            found = re.search(r"Kernel Module.*?\s(\d+\.[\d.]+)", file.read())
    except OSError:
        found = None
    return ", driver " + found[1] if found else ""


@functools.cache
def version(package):
    """", flash_attn_3 3.0.0" of what was installed as this module; "" where nobody says."""
    return "".join(", %s %s" % (name, importlib.metadata.version(name))
                   for name in importlib.metadata.packages_distributions().get(package, [])[:1])


def dtypes(torch):
    return {"fp16": torch.float16, "bf16": torch.bfloat16}


class Torch:
    """PyTorch on the current device."""
    mark = {}

    def __init__(self):
        try:
            import torch
            import torch.nn.attention
        except ImportError as error:
            sys.exit("%s: install PyTorch; --dry-run shows the form of the lines" % error)
        self.torch = torch
        if not torch.cuda.is_available():
            sys.exit("PyTorch sees no CUDA device: --dry-run shows the form of the lines")
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        cache = getattr(properties, "L2_cache_size", 64 << 20)
        # Long enough, too, for the host to enqueue the next call meanwhile.
        self.flush = torch.empty(max(2 * cache, 256 << 20), dtype=torch.int8, device="cuda")
        self.gpu = properties.name
        self.base = "PyTorch %s, CUDA %s%s" % (torch.__version__, torch.version.cuda, driver())
        self.products = {}

    def source(self, peer):
        return self.base + (version(PACKAGES[peer]) if peer in PACKAGES else "")

    def events(self, call, count):
        """So many calls between events, the L2 flushed before each, in microseconds."""
        torch, pairs = self.torch, []
        for _ in range(count):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self.flush.zero_()
            first.record()
            call()
            last.record()
            pairs.append((first, last))
        torch.cuda.synchronize()
        return [first.elapsed_time(last) * 1e3 for first, last in pairs]

    def matmul_tflops(self, dtype):
        """What the card reaches in a matrix product of 8192 by 8192 by 8192 of this type."""
        if dtype not in self.products:
            torch, n = self.torch, 8192
            a, b = (torch.randn(n, n, device="cuda", dtype=dtypes(torch)[dtype]) for _ in range(2))
            for _ in range(WARM_UP):
                torch.mm(a, b)
            median, _, _ = interval(self.events(lambda: torch.mm(a, b), 21))
            self.products[dtype] = 2 * n ** 3 / median * 1e-6
        return self.products[dtype]

    def tensors(self, problem):
        """Q, K and V as (batch, heads, seq, head_dim), laid out as the problem says."""
        torch = self.torch
        dtype = dtypes(torch)[problem["dtype"]]

        def tensor(heads, seq):
            shape = (problem["batch"], heads, seq, problem["head_dim"])
            if problem["layout"] == "bshd":
                return torch.randn(shape[0], seq, heads, shape[3], device="cuda",
                                   dtype=dtype).transpose(1, 2)
            return torch.randn(shape, device="cuda", dtype=dtype)
        return [tensor(problem["heads_q"], problem["seq_q"])] + [
            tensor(problem["heads_kv"], problem["seq_k"]) for _ in range(2)]

    def package_call(self, problem, package):
        """The same with FlashAttention's own function, whose mask is anchored bottom-right."""
        if problem["causal"] == "top-left" and problem["seq_q"] != problem["seq_k"]:
            raise RuntimeError("its mask is anchored bottom-right")
        q, k, v = (one.transpose(1, 2) for one in self.tensors(problem))
        function = importlib.import_module(package).flash_attn_func
        causal = problem["causal"] != "none"
        return lambda: function(q, k, v, causal=causal)

    def call(self, problem):
        """A call without arguments that computes the problem once."""
        torch = self.torch
        q, k, v = self.tensors(problem)
        how = {}
        if problem["causal"] == "bottom-right" and problem["seq_q"] != problem["seq_k"]:
            from torch.nn.attention.bias import causal_lower_right
            how["attn_mask"] = causal_lower_right(problem["seq_q"], problem["seq_k"])
        elif problem["causal"] != "none":  # PyTorch's own mask is anchored top-left
            how["is_causal"] = True
        if problem["heads_kv"] != problem["heads_q"]:
            how["enable_gqa"] = True
        return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, **how)

    def time_us(self, problem, peer):
        torch = self.torch
        if peer in PACKAGES:
            call, chosen = self.package_call(problem, PACKAGES[peer]), contextlib.nullcontext()
        else:
            call = self.call(problem)
            chosen = torch.nn.attention.sdpa_kernel(
                getattr(torch.nn.attention.SDPBackend, PEERS[peer]))
        with torch.no_grad(), chosen:
            for _ in range(WARM_UP):
                call()
            torch.cuda.synchronize()
            begin = time.monotonic()
            call()
            torch.cuda.synchronize()
            once = time.monotonic() - begin
            return self.events(call, max(11, min(SAMPLES, int(SECONDS / once))))


class DryRun:
    """Made-up times, so that the form can be seen and tested without PyTorch or a GPU."""
    mark = {"dry_run": True}  # so that nobody takes them for evidence

    def __init__(self, gpu):
        self.gpu = gpu

    def source(self, _):
        return "dry run: made up, not measured"

    def matmul_tflops(self, _):
        return 100.0

    def time_us(self, problem, peer):
        pairs = problem["batch"] * problem["heads_q"] * problem["seq_q"] * problem["seq_k"]
        base = 10 + pairs * problem["head_dim"] * 4e-8 + len(peer)
        return [base * (1 + n / 1000) for n in range(21)]


def reason_against(problem):
    if problem["lse"]:
        return "SDPA does not hand out the log-sum-exp"
    return "its tensors are always aligned" if problem["unaligned"] else None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seq", type=numbers)
    parser.add_argument("--seq-k", type=numbers)
    parser.add_argument("--batch", type=numbers, default=[4])
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--heads", type=numbers, default=[8])
    parser.add_argument("--hidden", type=int)
    parser.add_argument("--heads-kv", type=numbers)
    parser.add_argument("--head-dim", type=numbers, default=[64])
    parser.add_argument("--dtype", type=words, default=["fp16"])
    parser.add_argument("--causal", type=words, default=["none"])
    parser.add_argument("--plan", help="problems from JSON lines instead of a grid")
    everybody = [*PEERS, *PACKAGES]
    there = [*PEERS, *(peer for peer in PACKAGES if importlib.util.find_spec(PACKAGES[peer]))]
    parser.add_argument("--peers", type=words, default=there, help=",".join(everybody))
    parser.add_argument("--dry-run", action="store_true", help="made-up times, no GPU")
    parser.add_argument("--gpu-name", default="H200", help="the GPU that a dry run pretends")
    options = parser.parse_args()
    unknown = [peer for peer in options.peers if peer not in everybody]
    if unknown or (options.plan is None) == (options.seq is None):
        parser.error("no such peer: %s" % unknown[0] if unknown else "give --seq or --plan")
    clock = DryRun(options.gpu_name) if options.dry_run else Torch()
    seen = []
    for problem in plan(options.plan) if options.plan else grid(options):
        if problem in seen:
            continue
        seen.append(problem)
        for peer in options.peers:
            why = reason_against(problem)
            try:
                samples = clock.time_us(problem, peer) if why is None else []
            except (RuntimeError, TypeError, ImportError) as error:
                # This back end or this PyTorch cannot do it, or memory ran out.
                why = (str(error).splitlines() or ["no reason given"])[0]
            if why is not None:
                print("passed over: %s on %s: %s" % (peer, problem, why), file=sys.stderr)
                continue
            median, low, high = interval(samples)
            print(json.dumps({**clock.mark, "gpu": clock.gpu, "peer": peer, "median_us": round(median, 3),
                              "low_us": round(low, 3), "high_us": round(high, 3),
                              "sample_count": len(samples),
                              "matmul_tflops": round(clock.matmul_tflops(problem["dtype"]), 1),
                              "unix_time": int(time.time()),
                              "source": clock.source(peer), "problem": problem}), flush=True)


if __name__ == "__main__":
    main()
