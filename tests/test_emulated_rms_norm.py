#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernels of RMS norm and the reference that judges them, on random problems without a GPU: each is made into a program for
the CPU (emulate.py, emulated_rms_norm.hpp) that holds its outputs against sums in double.

FA_TEST_SEED and FA_TEST_PROBLEMS repeat or extend it."""
import os
import random

import emulate
import tap

REFERENCE, ROWS, SPLIT = range(3)
FILES = ["rms_norm_reference.cu", "rms_norm_rows.cu", "rms_norm_split.cu"]


class Case:
    def __init__(self, kernel, dice):
        self.kernel, self.rows, self.seed = kernel, dice.choice([1, 3, 8, 33]), dice.randrange(1, 1 << 30)
        self.bf16, self.residual, self.aligned = (dice.choice([0, 1]) for _ in range(3))
        self.in_place = dice.choice([0, 1]) if kernel != REFERENCE else 0
        self.lanes, self.parts = dice.choice([4, 8, 16, 32, 64, 256]) if kernel == ROWS else 0, dice.choice([2, 8, 64]) if kernel == SPLIT else 1
        self.threads = {REFERENCE: 128, ROWS: max(dice.choice([128, 256]), self.lanes), SPLIT: 128}[kernel]
        least, most = (1, self.lanes * 8 * dice.choice([1, 2, 4, 8])) if kernel == ROWS else (512 * self.parts, 1024 * self.parts)
        self.columns = most if dice.choice([False, True]) else dice.randrange(max(least, most // 2), most) if kernel != REFERENCE else dice.randrange(1, 700)
        if self.aligned:
            self.columns = (self.columns + 7) // 8 * 8
        self.gap, self.first = (dice.choice([0, 8, 24]), 0) if self.aligned else (dice.choice([0, 3, 8]), dice.choice([0, 1]))

    def defines(self):
        return {"FA_SM": 80, "DTYPE_BF16": self.bf16, "COLUMNS": self.columns, "RESIDUAL": self.residual, "ALIGNED": self.aligned, "LANES": self.lanes,
                "THREADS": self.threads, "FA_THREADS": self.threads, "PARTS": self.parts, "KERNEL": self.kernel}

    def words(self):
        blocks = {REFERENCE: 2, ROWS: -(-self.rows // (self.threads // max(self.lanes, 1))), SPLIT: self.rows}[self.kernel]
        return [self.rows, self.gap, self.first, self.in_place, self.threads, self.threads // 8, blocks, self.parts, self.seed]


def proved(case, **change):
    return emulate.judged("rms_norm", FILES[case.kernel], case.defines(), case.words(), "emulated_rms_norm.hpp", **change)


def random_problems_are_right():
    """Of some thousand seeds, this one's six problems have the most features of each kernel."""
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", "14803")))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", "6"))):
        case = Case([ROWS, SPLIT, ROWS, REFERENCE, ROWS, SPLIT][i % 6], dice)
        done = proved(case)
        assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words(), done.stdout, done.stderr)


def plain(kernel, **changed):
    case = Case(kernel, random.Random(1))
    case.rows, case.bf16, case.residual, case.aligned, case.in_place, case.gap, case.first = 5, 0, 1, 1, 0, 8, 0
    case.lanes, case.parts, case.threads, case.columns = (64, 1, 128, 1000) if kernel == ROWS else (0, 2 if kernel == SPLIT else 1, 128, 2056)
    case.__dict__.update(changed)
    return case


def a_kernel_that_is_wrong_is_found():
    for case, changes in ((plain(ROWS), (("row < p.rows", "true"), ("kWhole || column(i) < COLUMNS", "true"),
                                         ("low(x[i]) * scale * low(w[i])", "low(x[i]) * scale"),
                                         ("sum * (1.0f / COLUMNS) + epsilon", "sum * (1.0f / COLUMNS)"), ("1.0f / COLUMNS", "1.0f / (COLUMNS + 24)"),
                                         ("share.store(p.sum, row * p.sum_row, x);", "share.store(p.sum, 0 * row * p.sum_row, x);"),
                                         ("warp / kWarps * kWarps", "0"),
                                         ("add(x[i], residual[i]);", ""), ("block_sync();", ""))),
                          (plain(ROWS, lanes=8, columns=64), (("kLanes < 32 ? kLanes : 32", "32"),)),
                          (plain(ROWS, aligned=0, columns=997), (("column < COLUMNS ? row[column] : 0u", "row[column]"), ("column + i < COLUMNS", "true"))),
                          (plain(SPLIT), (("COLUMNS - begin < kPart ? COLUMNS : begin + kPart", "begin + kPart"),
                                          ("row * PARTS + blockIdx.y", "row * PARTS"), ("part < PARTS", "part < 1"),
                                          ("kResidual ? (const u16 *)p.sum + row * p.sum_row : (const u16 *)p.x + row * p.x_row",
                                           "(const u16 *)p.x + row * p.x_row"))),
                          (plain(REFERENCE), (("sum / COLUMNS", "sum"), ("i < 128", "i < 127"),
                                              ("x + to_float<kBf16>(((const u16 *)p.residual)[row * p.residual_row + column])",
                                               "x - to_float<kBf16>(((const u16 *)p.residual)[row * p.residual_row + column])")))):
        for change in range(len(changes) + 1):
            done = proved(case, changes=changes, change=change)
            assert done.returncode == (change > 0), (case.defines(), change, done)


tap.main()
