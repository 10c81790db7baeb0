#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The catalogue of GPU types through the public functions: found by what people write, complete, and true where data sheets can be held
against it."""
import ctypes
import os
import sys

import tap
from place import BUILD, SOURCE, is_foreign

sys.path.insert(0, os.path.join(SOURCE, "tests", "bench"))
from fatune import Diag, Gpu  # noqa: E402

NAMES = {
    "L4": "L4", "l4": "L4", "NVIDIA L4": "L4", "Tesla T4": "T4", "a100": "A100-SXM4-40GB", "A100-80GB": "A100-SXM4-80GB",
    "NVIDIA A100-PCIE-40GB": "A100-PCIE-40GB", "a100_80gb pcie": "A100 80GB PCIe", "4090": "RTX 4090", "rtx4090": "RTX 4090",
    "NVIDIA GeForce RTX 4090": "RTX 4090", "NVIDIA H100 80GB HBM3": "H100 SXM", "h100": "H100 SXM", "H100-PCIe": "H100 PCIe", "NVIDIA H200": "H200",
    "NVIDIA GH200 480GB": "GH200", "Orin": "Orin", "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada", "NVIDIA Thor": "Thor",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTX PRO 6000 Blackwell"}
# Dense fp16 with fp32 sums, TFLOP/s at the clock of the catalogue.
PEAKS = {"T4": 65, "A100": 312, "A30": 165, "A10": 125, "A10G": 70, "A40": 150, "RTX A6000": 155, "RTX 3090": 71, "L4": 121, "L40": 181, "L40S": 362,
         "RTX 4090": 165, "H100 SXM": 989 * 1980 / 1830, "H100 PCIe": 756 * 1755 / 1620, "H20": 148 * 1980 / 1830, "RTX 5090": 209.5,
         "RTX PRO 6000": 504, "B200": 2250 * 1965 / 1850, "Thor": 258}
library = ctypes.CDLL(os.path.join(BUILD, "libfa_tune.so")) if not is_foreign() else None


def find(name):
    """(the type's facts, None) or (None, the sentence)."""
    gpu, diag = Gpu(), Diag()
    if library is None:
        raise tap.Skip("Python's own process is of another machine")
    rc = library.fa_gpu_find(name.encode("utf-8", "surrogateescape"), -1, ctypes.byref(gpu), ctypes.byref(diag))
    return (gpu, None) if rc == 0 else (None, diag.text.decode("utf-8", "replace"))


def types():
    if library is None:
        raise tap.Skip("Python's own process is of another machine")
    gpu, refused, index = Gpu(), ctypes.c_char_p(), 0
    while library.fa_gpu_type(index, ctypes.byref(gpu), ctypes.byref(refused)) == 0:
        yield Gpu.from_buffer_copy(gpu), refused.value
        index += 1


def names_are_found_however_they_are_written():
    for written, name in NAMES.items():
        tap.equal((written, find(written)[0].name.decode()), (written, name))


def every_entry_is_complete_and_found_by_its_own_name():
    for gpu, refused in types():
        name = gpu.name.decode()
        assert 70 <= gpu.sm <= 121 and 0 < gpu.sm_count <= 192, name
        assert 0 < gpu.smem_per_block and gpu.smem_per_block + gpu.smem_reserved <= gpu.smem_per_sm, name
        assert gpu.regs_per_sm == 65536 and gpu.threads_per_sm >= 1024 and gpu.blocks_per_sm >= 16, name
        assert gpu.l2_bytes >= 2 << 20 and gpu.l2_bytes % 1024 == 0 and gpu.memory_bus_bits >= 128 and 1000 < gpu.clock_mhz < 3500, name
        assert 100 < gpu.bandwidth_gbs <= 8000 and 5 < gpu.tensor_tflops < 3000 and not gpu.present and gpu.ordinal == -1, name
        found, sentence = find(name)
        tap.equal((found is None, found and found.name), (refused is not None, None if refused else gpu.name))
        assert not refused or "sm_70" in sentence, sentence


def tensor_peaks_are_those_of_the_data_sheets():
    for name, tflops in PEAKS.items():
        assert abs(find(name)[0].tensor_tflops / tflops - 1) < 0.02, name


def an_unknown_name_is_answered_with_what_is_near():
    for written, near, other in (("L4O", "L4", "RTX 3090"), ("RTX 409O", "RTX 4090", "H100"), ("H1000", "H100", "RTX 3090"),
                                 ("Radeon", "fa-tune gpus", "V100"), ("", "", "V100"), ("x" * 5000, "", "V100"), ("\x1b[31m\udcff|", "", "\x1b")):
        gpu, sentence = find(written)
        assert gpu is None and near in sentence and other not in sentence, (written, sentence)


tap.main()
