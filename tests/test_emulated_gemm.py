#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The matrix products of mma.sync and the reference that judges them, on random problems without a GPU: each is made into a program for
the CPU (emulate.py, emulated_gemm.hpp) that holds C against sums in double.

FA_TEST_SEED and FA_TEST_PROBLEMS repeat or extend it."""
import os
import random

import emulate
import tap

REFERENCE, WHOLE, SPLIT, HOPPER, CUT, THIRD, PAIR, ALONG, ROWS, TURNS, BOTH = range(11)  # CUT, THIRD: Hopper's with tiles in two and three parts; PAIR, ALONG: with clusters; ROWS: not turned; TURNS: consumers have tiles in turn; BOTH: clusters share both operands
FILES = ["gemm_reference.cu", "gemm_sm80.cu", "gemm_splitk_sm80.cu", "gemm_sm90a.cu"]
# BLOCK_M, BLOCK_N (the other way round where C is not turned), BLOCK_K, STAGES, WARPS_M, WARPS_N; Hopper's kernel has no use for the last two
CONFIGS = {WHOLE: [(64, 64, 32, 3, 2, 2), (64, 128, 64, 3, 1, 4), (128, 64, 32, 5, 4, 2), (128, 128, 32, 4, 2, 2), (256, 64, 32, 3, 4, 2)],
           HOPPER: [(8, 64, 64, 6, 0, 0), (80, 64, 64, 3, 0, 0), (136, 128, 64, 4, 0, 0), (256, 128, 64, 4, 0, 0), (144, 192, 64, 3, 0, 0), (40, 256, 64, 4, 0, 0)],
          SPLIT: [(16, 64, 64, 4, 1, 2), (32, 64, 64, 4, 2, 2), (64, 128, 64, 4, 2, 4), (16, 128, 64, 6, 1, 4)]}


class Case:
    def __init__(self, kernel, dice):
        self.kernel = kernel
        self.bf16, self.splits = dice.choice([0, 1]), dice.choice({SPLIT: [2, 4], HOPPER: [0, 1, 2, 3, 4]}.get(kernel, [1]))
        self.config = dice.choice(CONFIGS[kernel]) if kernel != REFERENCE else (64, 64, 32, 3, 2, 2)
        self.group_m, self.turned = dice.choice([1, 2, 8]), dice.choice([0, 1]) if kernel == HOPPER else 1
        self.config = self.config if self.turned else (self.config[1], self.config[0], *self.config[2:])
        self.cluster = dice.choice([(1, 1, 1), (2, 1, 1), (4, 1, 1), (1, 2, 1), (1, 3, 1), (2, 2, 1), (4, 2, 1), (1, 1, 2), (1, 1, 8), (2, 1, 4), (1, 2, 2)][:11 if self.splits == 1 else 7] if kernel == HOPPER else [(1, 1, 1)])
        self.draw_sizes(dice)

    def draw_sizes(self, dice):
        """Of what one program may be asked."""
        self.m, self.n = dice.choice([1, 7, 63, 64, 65, 130, 200]), dice.choice([8, 56, 64, 72, 128, 136, 264])
        self.k, self.gap, self.seed = dice.choice([8, 24, 32, 64, 72, 200, 256]) + (256 if self.kernel == SPLIT else 0), dice.choice([0, 8, 24]), dice.randrange(1, 1 << 30)

    def defines(self):
        m, n, k, stages, down, across = self.config
        return {"FA_SM": 90 if self.kernel == HOPPER else 80, "DTYPE_BF16": self.bf16, "BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k, "STAGES": stages, "WARPS_M": down,
                "WARPS_N": across, "FA_THREADS": self.threads(), "TURNED": int(self.turned), "GROUP_M": self.group_m, "SPLITS": self.splits, "CLUSTER_M": self.cluster[0], "CLUSTER_N": self.cluster[1], "CLUSTER_K": self.cluster[2], "KERNEL": self.kernel}

    def threads(self):
        return {REFERENCE: 128, HOPPER: {64: 256, 192: 512}.get(self.config[self.turned] * (self.splits > 0), 384)}.get(self.kernel, self.config[4] * self.config[5] * 32)

    def words(self):
        m, n, k, stages, _, _ = self.config
        tiles = -(-self.m // (m * self.cluster[0])) * -(-self.n // (n * self.cluster[1]))
        # A few of Hopper's blocks take all tiles, and cut what would not come out even.
        blocks = {REFERENCE: 3, HOPPER: (3 + self.seed % 3 if self.splits > 1 else tiles if self.cluster[2] > 1 else min(tiles, 2)) * self.cluster[0] * self.cluster[1] * self.cluster[2]}.get(self.kernel, tiles)
        shared = 0 if self.kernel == REFERENCE else stages * (m + n) * k * 2 + ({256: 8208, 512: 12304}.get(self.threads(), 16400) + 16 * stages if self.kernel == HOPPER else 0)
        return [self.m, self.n, self.k, self.gap, self.threads(), shared, blocks, self.splits, self.seed]


def proved(case, **change):
    return emulate.judged("gemm", FILES[case.kernel], case.defines(), case.words(), "emulated_gemm.hpp", case.kernel == HOPPER, **change)


def random_problems_are_right():
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", "20261125")))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", "8"))):
        case = Case(i % 4, dice)
        for _ in range(3):
            done = proved(case)
            assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words(), done.stdout, done.stderr)
            case.draw_sizes(dice)


def a_kernel_that_is_wrong_is_found():
    dice = random.Random(1)
    for kernel, changes in ((WHOLE, (("at < rows && column < columns", "at < rows"), ("at < rows && column < columns", "column < columns"),
                                     ("cp_async_wait<kStages - 2>();\n        block_sync();", "cp_async_wait<kStages - 2>();"),
                                     ("cp_async_wait<kStages - 2>();", "cp_async_wait<kStages - 1>();"),
                                     ("over * kColumns", "over * (kColumns / 2)"))),
                            (SPLIT, (("begin_of(p, blockIdx.y + 1)", "p.k"), ("split < SPLITS", "split < SPLITS - 1"), ("sum[i][j][e] += x[e]", "sum[i][j][e] = x[e]"))), (REFERENCE, (("column + at < columns", "true"),)),
                            (CUT, (("x[0] += y[0], x[1] += y[1], x[2] += y[2], x[3] += y[3];", "x[0] += y[0], x[1] += y[1], x[2] += y[2], x[3] = y[3];"), ("last = (split + 1) * slices / SPLITS;", "last = (split + 1) * slices / SPLITS - split;"),
                                   ("if (came != SPLITS - 1) return false;", "if (came != SPLITS - 2) return false;"), ("arrives_last(counter, SPLITS)", "arrives_last(counter, SPLITS + 1)"), ("return tile < tiles;", "return tile + 1 < tiles;"))),
                            (THIRD, (("x[0] += sum[0]", "x[0] = sum[0]"),)), (ROWS, (("column + at < (u32)p.n", "column + at <= (u32)p.n"), ("row + part * 64 + r < (u32)p.m", "row + part * 64 + r + 1 < (u32)p.m"), ("swizzle(lane % 16)", "0"), ("at < end", "true"))), (TURNS, (("if (kInTurn && turn > 1) named_sync(consumer.order(consumer.group), 2 * kGroup);", ""), ("ring.parity ^= rounds % 2;", ""), ("turn++ % 2 != consumer.group", "turn++ % 2 == 0"))), (PAIR, (("barrier_init(empty(base, slot), kConsumers * kSharing);", "barrier_init(empty(base, slot), kConsumers);"), ("i < kStages", "false"))), (BOTH, (("kConsumers * kSharing", "kConsumers * (kSharing - 1)"),)),
                            (ALONG, (("x[e] = along == 0 ? y[e] : x[e] + y[e];", "x[e] = y[e];"), ("first = cluster_rank() / kSharing * part, last = first + part;", "first = 0, last = part;"), ("named_sync(1, kGroups * kGroup);", ""),
                                     ("if (kAlong > 1) cluster_sync();", ""))),
                            (HOPPER, (("barrier_wait(empty(base, ring.slot), ring.parity ^ 1);", ""), ("wgmma_wait<1>();", "wgmma_wait<2>();"),
                                      ("barrier_wait(full(base, ring.slot), ring.parity);", ""), ("async_proxy_fence();", ""), ("if (sends) tma_store_wait_read<1>();", "if (sends) tma_store_wait_read<2>();"),
                                      ("barrier_init(empty(base, slot), kConsumers * kSharing);", "barrier_init(empty(base, slot), kConsumers - 1);"),
                                      ("if (threadIdx.x % kGroup == 0) tma_store_wait_read<0>();", ""), ("row -= rows, column -= columns;", "row -= rows;"), ("share + i >= tile.rows", "share + i > tile.rows"), ("piece ^= 1;", "")))):
        case = Case(min(kernel, HOPPER), dice)
        case.turned, case.splits, case.cluster = kernel not in (ROWS, BOTH), {CUT: 2, THIRD: 3, SPLIT: case.splits, TURNS: 0, BOTH: 3}.get(kernel, 1), {PAIR: (2, 1, 1), BOTH: (4, 2, 1), ALONG: (1, 1, 2), ROWS: (1, 1, 2)}.get(kernel, (1, 1, 1))
        case.m, case.n, case.k, case.gap, case.group_m, case.seed = 130, 136, 328, 8, 2, 2
        case.config = {WHOLE: (64, 64, 32, 3, 2, 2), SPLIT: (32, 64, 64, 4, 2, 2), REFERENCE: case.config, CUT: (64, 128, 64, 3, 0, 0), THIRD: (64, 128, 64, 3, 0, 0), ROWS: (192, 144, 64, 3, 0, 0)}.get(kernel, (128, 128, 64, 4, 0, 0))
        if kernel == BOTH:  # a block whose copies come from itself is two rounds ahead of one across
            case.config, case.m, case.n, case.k, case.seed = (64, 8, 64, 6, 0, 0), 1, 72, 200, 554409969
        for change in range(len(changes) + 1):
            done = proved(case, changes=changes, change=change)
            assert done.returncode == (change > 0), (change, done)


tap.main()
