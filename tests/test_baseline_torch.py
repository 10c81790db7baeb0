#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/baseline_torch.py with modules that stand in for PyTorch and FlashAttention's packages: which peers
it times, how it calls them, and that fa-tune takes its lines."""
import json
import os
import re
import subprocess
import sys

import tap
from place import DEADLINE, EIGHT, SOURCE, Place
from report_store import L4

EXAMPLE = os.path.join(SOURCE, "examples", "baseline_torch.py")

# Every call notes itself in calls.jsonl; an event's time counts the calls before it, so that each takes 1 ms.
TORCH = '''
import contextlib, json, sys, types
clock, float16, bfloat16, int8, __version__ = 0, "fp16", "bf16", "int8", "9.9"
version = types.SimpleNamespace(cuda="13.9")

def note(**what):
    global clock
    clock += 1
    with open("calls.jsonl", "a") as file:
        file.write(json.dumps(what) + "\\n")

class Tensor:
    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype
    def transpose(self, a, b):
        shape = list(self.shape)
        shape[a], shape[b] = shape[b], shape[a]
        return Tensor(shape, self.dtype)
    def zero_(self):
        pass

def empty(size, dtype, device):
    return Tensor([size], dtype)
def randn(*shape, device, dtype):
    return Tensor(shape[0] if isinstance(shape[0], tuple) else shape, dtype)
def mm(a, b):
    note(call="mm", dtype=a.dtype, shape=a.shape)
no_grad = contextlib.nullcontext

class Event:
    def __init__(self, enable_timing):
        assert enable_timing
    def record(self):
        self.at = clock
    def elapsed_time(self, other):
        return float(other.at - self.at)

cuda = types.SimpleNamespace(
    is_available=lambda: True, current_device=lambda: 0, synchronize=lambda: None, Event=Event,
    get_device_properties=lambda _: types.SimpleNamespace(name="NVIDIA L4", L2_cache_size=1 << 20))
chosen = []

@contextlib.contextmanager
def sdpa_kernel(backend):
    chosen.append(backend)
    yield
    chosen.pop()

def sdpa(q, k, v, attn_mask=None, is_causal=False, enable_gqa=False):
    if chosen[-1] == "efficient" and enable_gqa:
        raise RuntimeError("this back end knows no grouped heads")
    note(call=chosen[-1], shape=q.shape, kv=k.shape, causal=is_causal, gqa=enable_gqa)

nn = types.ModuleType("torch.nn")
nn.functional = types.SimpleNamespace(scaled_dot_product_attention=sdpa)
nn.attention = types.ModuleType("torch.nn.attention")
nn.attention.sdpa_kernel = sdpa_kernel
nn.attention.SDPBackend = types.SimpleNamespace(FLASH_ATTENTION="fa2", CUDNN_ATTENTION="cudnn",
                                                EFFICIENT_ATTENTION="efficient")
sys.modules["torch.nn"], sys.modules["torch.nn.attention"] = nn, nn.attention
__path__ = []
'''
PACKAGE = '''
import torch
def flash_attn_func(q, k, v, causal=False):
    assert q.dtype in ("fp16", "bf16")
    torch.note(call=__name__, shape=q.shape, kv=k.shape, causal=causal)
    return (q, None)
'''


class Machine:
    """A folder with these modules, from which the example runs."""

    def __init__(self, place, **modules):
        self.folder = place.folder
        for name, text in modules.items():
            tap.write(os.path.join(self.folder, name + ".py"), text)

    def run(self, *options, status=0):
        calls = os.path.join(self.folder, "calls.jsonl")
        open(calls, "w").close()
        done = subprocess.run([sys.executable, EXAMPLE, *options], cwd=self.folder, check=False,
                              env={"PATH": os.environ["PATH"], "PYTHONPATH": self.folder,
                                   "PYTHONDONTWRITEBYTECODE": "1", "LC_ALL": "C.UTF-8"},
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              encoding="utf-8", timeout=DEADLINE)
        tap.equal((done.returncode, done.stderr if status == 0 and "passed over" not in done.stderr
                   else ""), (status, ""))
        self.calls = [json.loads(line) for line in tap.read(calls).splitlines()]
        return done


def peers(done):
    return [json.loads(line)["peer"] for line in done.stdout.splitlines()]


def flash_attention_3_and_2_are_timed_where_their_packages_are():
    with Place(EIGHT) as place:
        sdpa = ["pytorch-fa2", "pytorch-cudnn", "pytorch-efficient"]
        machine = Machine(place, torch=TORCH)
        tap.equal(peers(machine.run("--seq", "512")), sdpa)
        Machine(place, flash_attn_interface=PACKAGE)
        os.mkdir(os.path.join(place.folder, "flash_attn_3-3.0.0.dist-info"))
        for name, text in (("METADATA", "Metadata-Version: 2.1\nName: flash_attn_3\nVersion: 3.0.0\n"),
                           ("top_level.txt", "flash_attn_interface\n")):
            tap.write(os.path.join(place.folder, "flash_attn_3-3.0.0.dist-info", name), text)
        tap.equal(peers(machine.run("--seq", "512")), sdpa + ["FlashAttention-3"])
        Machine(place, flash_attn=PACKAGE)
        done = machine.run("--seq", "512")
        tap.equal(peers(done), sdpa + ["FlashAttention-3", "FlashAttention-2"])
        tap.equal({call["call"] for call in machine.calls},
                  {"fa2", "cudnn", "efficient", "flash_attn_interface", "flash_attn", "mm"})
        for line in map(json.loads, done.stdout.splitlines()):
            tap.equal((line["median_us"], line["low_us"], line["gpu"]), (1000, 1000, "NVIDIA L4"))
            package = ", flash_attn_3 3.0.0" if line["peer"] == "FlashAttention-3" else ""
            assert re.fullmatch(r"PyTorch 9\.9, CUDA 13\.9(, driver [\d.]+)?" + package, line["source"]), line["source"]
            tap.equal(line["matmul_tflops"], round(2 * 8192 ** 3 / 1e9, 1))


def tensors_and_masks_are_those_of_the_problem():
    with Place(EIGHT) as place:
        machine = Machine(place, torch=TORCH, flash_attn_interface=PACKAGE)
        done = machine.run("--seq", "256", "--seq-k", "512", "--heads", "8", "--heads-kv", "2", "--dtype", "bf16",
                           "--causal", "bottom-right,top-left", "--peers", "pytorch-efficient,FlashAttention-3")
        tap.equal(peers(done), ["FlashAttention-3"])  # the other one's refusal is passed over, with its words
        tap.has(done.stderr, "this back end knows no grouped heads")
        tap.has(done.stderr, "its mask is anchored bottom-right")
        calls = [call for call in machine.calls if call["call"] == "flash_attn_interface"]
        tap.equal({(tuple(call["shape"]), tuple(call["kv"]), call["causal"]) for call in calls},
                  {((4, 256, 8, 64), (4, 512, 2, 64), True)})  # batch, sequence, heads, head dim
        machine.run("--seq", "128", "--causal", "both", "--peers", "pytorch-cudnn")
        tap.equal({(tuple(call["shape"]), call["causal"]) for call in machine.calls if call["call"] == "cudnn"},
                  {((4, 8, 128, 64), False), ((4, 8, 128, 64), True)})


def its_lines_are_taken_in_with_the_matrix_product_of_their_run():
    with Place(EIGHT, script=L4) as place:
        machine = Machine(place, torch=TORCH, flash_attn_interface=PACKAGE)
        text = machine.run("--seq", "128", "--batch", "1", "--heads", "1", "--peers",
                           "pytorch-cudnn,FlashAttention-3").stdout
        tap.write(os.path.join(place.folder, "torch.jsonl"), text)
        tap.has(place.run("import", "torch.jsonl").stdout, "2 baselines")
        place.run("--seq", "128", "--batch", "1", "--heads", "1", "--quiet")
        told = place.json("report")["problems"][0]["baselines"]
        tap.equal({(one["peer"], one["matmul_tflops"]) for one in told},
                  {("FlashAttention-3", 1099.5), ("pytorch-cudnn", 1099.5)})


def a_package_that_is_asked_for_and_not_there_is_passed_over():
    with Place(EIGHT) as place:
        done = Machine(place, torch=TORCH).run("--seq", "128", "--peers", "FlashAttention-3")
        tap.equal(done.stdout, "")
        tap.has(done.stderr, "No module named 'flash_attn_interface'")
        tap.has(Machine(place).run("--seq", "128", "--peers", "fa4", status=2).stderr, "no such peer: fa4")


def the_drivers_release_is_read_from_either_kind_of_kernel_module():
    sys.path.insert(0, os.path.dirname(EXAMPLE))
    import baseline_torch
    with Place() as place:
        path = os.path.join(place.folder, "version")
        for text, release in (("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\nGCC version: 12.2.0\n", "580.159.04"),
                              ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n", "535.104.05")):
            tap.write(path, text)
            tap.equal(baseline_torch.driver(path), ", driver " + release)
        tap.equal(baseline_torch.driver(path + ".not"), "")


tap.main()
