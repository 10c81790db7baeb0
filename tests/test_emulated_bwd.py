#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""attn_bwd_sm80 and the reference that judges it on random problems without a GPU: each is made into a program for the
CPU (emulate.py, emulated_bwd.hpp) that holds its gradients against sums in double.

FA_TEST_SEED and FA_TEST_PROBLEMS repeat or extend it."""
import os
import random
import shutil
import subprocess
import tempfile

import emulate
import tap

FOLDERS = [word for name in ("attn_bwd", "vocabulary", "attn_fwd") for word in ("-I", os.path.join(emulate.TEMPLATES, name))]
TEMPLATE = os.path.join(emulate.TEMPLATES, "attn_bwd", "attn_bwd_sm80.cu")
HOPPER = os.path.join(emulate.TEMPLATES, "attn_bwd", "attn_bwd_sm90a.cu")
REFERENCE = os.path.join(emulate.TEMPLATES, "attn_bwd", "attn_bwd_ref.cu")
TILES = [32, 64, 96, 128, 192, 256]
# BLOCK_M, BLOCK_N, STAGES, WARPS
CONFIGS = [(64, 64, 1, 8), (64, 64, 2, 4), (32, 32, 1, 4), (32, 64, 2, 4), (64, 128, 2, 8), (128, 128, 1, 8)]


def tile(columns):
    return next(width for width in TILES if columns <= width)


def shared_bytes(m, n, stages, d, dv):
    return 2 * (n * (d + dv) + stages * m * (d + dv) + 2 * m * n)


def hopper_bytes(m, d, dv):
    return 128 * (d + dv) * 2 + 2 * m * (d + dv) * 2 + 2 * m * 128 * 2 + m * d * 4 + 4 * m * 4 + 192


class Case:
    def __init__(self, dice):
        self.d = dice.choice([8, 24, 32, 40, 64, 64, 72, 96, 128, 128, 136, 192, 256])
        self.dv = self.d if dice.random() < 0.7 else dice.choice([8, 48, 64, 104, 128])
        fitting = [c for c in CONFIGS if shared_bytes(*c[:3], tile(self.d), tile(self.dv)) <= 166912]
        self.config = dice.choice(fitting)
        self.flags = {name: dice.choice(values) for name, values in {
            "DTYPE_BF16": (0, 1), "CAUSAL": (0, 1, 2), "ALIGNED": (1, 1, 0), "WINDOW": (0, 0, 1), "SOFTCAP": (0, 0, 1),
            "SINKS": (0, 0, 1), "DETERMINISTIC": (0, 0, 1), "VARLEN": (0, 0, 1)}.items()}
        group, kv = dice.choice([(1, 1), (1, 2), (2, 1), (3, 1)])
        lengths = [0, 1, 7, 63, 64, 65, 100, 129, 150]
        gap = dice.choice([0, 8, 24]) + (0 if self.flags["ALIGNED"] else dice.choice([1, 3]))
        m, n, stages, warps = self.config
        self.words = [dice.choice([1, 3, 6] if self.flags["VARLEN"] else [1, 1, 2]), kv * group, kv, dice.choice(lengths), dice.choice(lengths),
                      dice.choice([-1, 0, 5, 70]), dice.choice([-1, 0, 5, 70]), gap, warps * 32,
                      shared_bytes(m, n, stages, tile(self.d), tile(self.dv)), dice.randrange(1, 1 << 30), int(dice.random() < 0.2)]

    def defines(self):
        m, n, stages, warps = self.config
        tiles = getattr(self, "tiles", [tile(self.d), tile(self.dv)])
        return {"FA_SM": 80, "HEAD_DIM": self.d, "HEAD_DIM_V": self.dv, "D_TILE": tiles[0], "DV_TILE": tiles[1],
                "BLOCK_M": m, "BLOCK_N": n, "STAGES": stages, "WARPS": warps, "MIN_BLOCKS": 1, **self.flags}


def program(case, folder, change=("", ""), template=TEMPLATE):
    """Compiled as emulate.py compiles, from the template as it is or with a part of it changed."""
    source, made = os.path.join(folder, "kernel.cu"), os.path.join(folder, "made")
    with open(template, encoding="utf-8") as file:
        text = file.read()
    assert change[0] in text, change
    defines = "".join("#define %s %d\n" % pair for pair in case.defines().items())
    defines += {REFERENCE: "#define REFERENCE\n", HOPPER: "#define HOPPER\n"}.get(template, "")
    with open(source, "w", encoding="utf-8") as file:
        file.write(defines + text.replace(*change))
    text, count = emulate.for_the_cpu(os.environ.get("CXX", "c++"), FOLDERS, source, 900 if template == HOPPER else 800)
    assert count == (template != REFERENCE), count
    text = '#define __shared__ static\n#define __syncthreads emu::block_barrier\n%s\n%s#include "emulated_bwd.hpp"\n' % (text, defines)
    emulate.compiled(os.environ.get("CXX", "c++"), text, made, program=True)
    return made


def proved(case, change=("", ""), template=TEMPLATE):
    folder = tempfile.mkdtemp()
    try:
        return subprocess.run([program(case, folder, change, template), *map(str, case.words)], capture_output=True, text=True, check=False)
    finally:
        shutil.rmtree(folder)


def random_problems_are_right():
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", "20261124")))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", "10"))):
        case = Case(dice)
        done = proved(case)
        assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words, done.stdout, done.stderr)


def the_reference_is_right():
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", "20261125")))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", "8"))):
        case = Case(dice)
        done = proved(case, template=REFERENCE)
        assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words, done.stdout, done.stderr)


def a_reference_that_is_wrong_is_found():
    case = plain_case(SINKS=1)
    assert proved(case, template=REFERENCE).returncode == 0
    for change in (("(product[i][j] - tile_delta[query])", "product[i][j]"), ("(CAUSAL && ahead > 0)", "(CAUSAL && ahead > 1)"),
                   ("float all = SINKS ?", "float all = false ?"), ("(float)-sum", "(float)sum")):
        assert proved(case, change, REFERENCE).returncode == 1, change


def hopper_case(dice):
    """Of what attn_bwd_sm90a takes."""
    case = Case(dice)
    case.d, case.dv = dice.choice([(8, 8), (48, 48), (64, 64), (72, 72), (128, 128), (128, 64), (64, 128), (96, 40)])
    tiles = [64 if width <= 64 else 128 for width in (case.d, case.dv)]
    case.flags |= {"ALIGNED": 1, "VARLEN": 0}
    case.words[0] = dice.choice([1, 2])
    blocks = [m for m in (64, 80, 96, 128) if (tiles[0] == 128 or m % 32 == 0) and m + sum(tiles) // 2 + m * tiles[0] // 256 <= 224
              and hopper_bytes(m, *tiles) <= 232448]
    case.config, case.tiles = (dice.choice(blocks), 128, 0, 0), tiles
    case.words[3:5] = [dice.choice([0, 1, 63, 65, 129, 200, 330]) for _ in range(2)]   # rings go round
    case.words[7] = dice.choice([0, 8, 24])
    case.words[8:10] = [384, hopper_bytes(case.config[0], *tiles)]
    return case


def hopper_problems_are_right():
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", "20261126")))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", "5"))):
        case = hopper_case(dice)
        done = proved(case, template=HOPPER)
        assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words, done.stdout, done.stderr)


def a_hopper_kernel_that_is_wrong_is_found():
    """Each wait, fence and arrival that keeps its shared memory in order, left out or too early."""
    case = hopper_case(random.Random(1))
    case.d = case.dv = 64
    case.tiles, case.config, case.flags = [64, 64], (96, 128, 0, 0), dict.fromkeys(case.flags, 0) | {"ALIGNED": 1, "CAUSAL": 1}
    case.words = [1, 1, 1, 400, 200, -1, -1, 0, 384, hopper_bytes(96, 64, 64), 5, 0]
    assert always_right(case, ("", ""))
    for change in (("barrier_wait(shared.barrier(kEmpty + slot), parity_of(step) ^ 1);", ""),
                   ("barrier_wait(shared.barrier(kDsFull + slot_of(step - 1)), parity_of(step - 1));", ""),
                   ("barrier_wait(shared.barrier(kDsEmpty + slot_of(step)), parity_of(step) ^ 1);", ""),
                   ("        barrier_wait(shared.barrier(kKeysEmpty), turn & 1 ^ 1);", ""),
                   ("        if constexpr (kFirst) await_stores();", "        if constexpr (kFirst) named_sync(kRoomsFree + group, kGroup + kWarp);"),
                   ("        barrier_wait(shared.barrier(kDsEmpty + slot_of(step - 1)), parity_of(step - 1));   // all", "        // all"),
                   ("    barrier_wait(shared.barrier(kJobEmpty), turn & 1 ^ 1);", ""),
                   ("        async_proxy_fence();\n        warp_sync();   // also", "        warp_sync();   // also"),
                   ("tma_store_commit();\n                    tma_store_wait_read<0>();", "tma_store_commit();"),
                   ("        wgmma_wait<1>();\n        Wgmma<kDv>::pin(dv);", "")):
        assert not always_right(case, change), change


def always_right(case, change):
    """In each of some orders in which warps may run, which the seed draws."""
    folder = tempfile.mkdtemp()
    try:
        made = program(case, folder, change, HOPPER)
        for seed in range(8):
            case.words[10] = seed
            if subprocess.run([made, *map(str, case.words)], capture_output=True, check=False).returncode == 1:
                return False
        return True
    finally:
        shutil.rmtree(folder)


def plain_case(**flags):
    case = Case(random.Random(1))
    case.d = case.dv = 64
    case.config = (64, 64, 2, 4)
    case.flags = dict.fromkeys(case.flags, 0) | {"ALIGNED": 1, "CAUSAL": 1} | flags
    case.words = [1, 2, 1, 100, 80, -1, -1, 0, 128, shared_bytes(64, 64, 2, 64, 64), 5, 0]
    return case


def sequences_of_several_lengths_are_right():
    """Behind one another, with empty ones of queries, of keys and of both: no sequence sees another, and all rows are written."""
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", "20261126")))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", "8"))):
        case = Case(dice)
        case.flags["VARLEN"] = 1
        case.words[0] = dice.choice([1, 2, 5, 9])
        case.words[3:5] = dice.choice([1, 30, 65, 90]), dice.choice([1, 30, 65, 90])
        for template in [TEMPLATE] if i % 4 else [TEMPLATE, REFERENCE]:
            done = proved(case, template=template)
            assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words, done.stdout, done.stderr)
    case = plain_case(VARLEN=1)
    case.words[0], case.words[3:5] = 5, [40, 40]
    assert proved(case).returncode == 0
    for change in (("own.first_k), p.k_strides.row", "0), p.k_strides.row"), ("s.first_k + key", "key"),
                   ("own.first_tile", "0")):
        assert proved(case, change).returncode != 0, change


def a_kernel_that_is_wrong_is_found():
    assert proved(plain_case()).returncode == 0
    of_a_sum = plain_case()
    of_a_sum.words[-1] = 1
    assert proved(of_a_sum).returncode == 0
    for change in (("dp[i][j][half * 2 + e] - delta[i][half]", "dp[i][j][half * 2 + e]"),
                   ("if (masked) seen", "if (false) seen"),
                   ("dk, p.softmax_scale, HEAD_DIM", "dk, 1.0f, HEAD_DIM")):
        assert proved(plain_case(), change).returncode == 1, change


tap.main([random_problems_are_right, sequences_of_several_lengths_are_right, hopper_problems_are_right,
          a_hopper_kernel_that_is_wrong_is_found, a_kernel_that_is_wrong_is_found, the_reference_is_right,
          a_reference_that_is_wrong_is_found])
