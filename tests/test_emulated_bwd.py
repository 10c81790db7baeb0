#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The families of attention backward and the reference that judges them on random problems without a GPU: each is made into a program for the
CPU (emulate.py, emulated_bwd.hpp) that holds its gradients against sums in double.

FA_TEST_SEED and FA_TEST_PROBLEMS repeat or extend it; with `./dev test --slow` (FA_TEST_SLOW=1) there are four times as many problems,
and orders of warps."""
import os
import random

import emulate
import racecheck_bwd
import tap

KERNEL, HOPPER, WIDE, SHORT, RING, REFERENCE = ["attn_bwd_%s.cu" % name for name in ("sm80", "sm90a", "wide_sm90a", "short_sm90a", "ring_sm90a", "ref")]
SLOW = os.environ.get("FA_TEST_SLOW") == "1"
ORDERS = 32 if SLOW else 8  # of warps
TILES = [32, 64, 96, 128, 192, 256]
# BLOCK_M, BLOCK_N, STAGES, WARPS
CONFIGS = [(64, 64, 1, 8), (64, 64, 2, 4), (32, 32, 1, 4), (32, 64, 2, 4), (64, 128, 2, 8), (128, 128, 1, 8)]


def tile(columns):
    return next(width for width in TILES if columns <= width)


def shared_bytes(m, n, stages, d, dv):
    return 2 * (n * (d + dv) + stages * m * (d + dv) + 2 * m * n)


def hopper_bytes(m, d, dv, varlen=0):
    return 256 * varlen + 128 * (d + dv) * 2 + 2 * m * (d + dv) * 2 + 2 * m * 128 * 2 + m * d * 4 + 4 * m * 4 + 192


def hopper_more(case):
    """Beside hopper_bytes(): the lists of a mask, and sums of diagonals."""
    lists = case.flags.get("MASK_SNIPPET", 0) > case.flags["DETERMINISTIC"] + case.flags["VARLEN"]
    return 256 * max(lists, (case.config[0] == 80 or case.splits * getattr(case, "rows", 1) > 1) and not case.flags["VARLEN"]) + (64 * (case.config[0] + 16) if case.flags.get("D_BUFFERS") else 0)


def wide_bytes(stages, d, dv):
    """Of the launch for dK and dV."""
    return 64 * (d + dv) * 2 + stages * 64 * (d + dv + 64) * 2 + 1024 * (stages - 1) + 192


def wide_dq_bytes(keys, stages_v, d, dv):
    return 128 * (d + dv) * 2 + keys * (2 * d + stages_v * dv) * 2 + 192


# A score and a mask as src/snippet prints them: 2 * tanh((score - (h + 1) / 16 * (q - k)) / 3) + max(score, 0.25) / 2 + b + hk, and what is
# no number for rows that do not exist; and k < 200 * h or 0 <= q - k < 250.
SNIPPETS = """#include "fa_snippet.cuh"
#define PLACES typename As::Whole b, typename As::Whole h, typename As::Whole hk, Q q, K k, typename As::Whole len_q, typename As::Whole len_k
template <class As, class Q, class K> FA_DEVICE auto snippet_score(typename As::Real score, PLACES) {
    const auto ahead = As::count(q) - As::count(k);
    const auto steep = As::count(h) + As::count(1LL);
    const auto less = As::real(As::number(0.0625)) * As::real(steep);
    const auto far = As::real(less) * As::real(ahead);
    const auto one = As::real(score) - As::real(far);
    const auto bent = As::real(snippet_tanh(As::number(As::number(one) / As::number(3.0)))) * As::real(As::number(2.0));
    const auto half = As::real(snippet_max(As::number(score), As::number(As::number(0.25)))) * As::real(As::number(0.5));
    const auto end = As::count(snippet_max(As::count(len_q), As::count(len_k))) - As::count(q);
    const auto same = As::count(b) + As::count(hk);
    return As::number(As::real(As::real(As::real(bent) + As::real(half)) + As::real(same)) + As::real(snippet_sqrt(As::number(end))));
}
template <class As, class Q, class K> FA_DEVICE auto snippet_mask(PLACES) {
    const auto first = As::count(k) < As::count(As::count(h) * As::count(200LL));
    const auto behind = As::count(q) - As::count(k);
    return As::truth(As::truth(first) || As::truth(As::truth(As::count(behind) >= As::count(0LL)) && As::truth(As::count(behind) < As::count(250LL))));
}
"""
# What they are with buffers, bias:f32[:]* doc:i32[:,:] pair:bf16[:,:]* slope:f32[:]* table:f32[:,:]*: score + slope[h] * (k - q) +
# table[h][k - q + 20] + bias[k] * pair[q][k] + bias[q]; and doc[b][q] == doc[b][k].
BUFFERS = """#include "fa_snippet_buffers.cuh"
#define PLACES typename As::Whole b, typename As::Whole h, typename As::Whole hk, Q q, K k, typename As::Whole len_q, typename As::Whole len_k, const Held &held
template <class As, class Q, class K, class Held> FA_DEVICE auto snippet_score(typename As::Real score, PLACES) {
    const auto ahead = As::count(k) - As::count(q);
    const auto steep = As::real(snippet_load<As, float, 3>(held[3], As::whole(h))) * As::real(ahead);
    const auto entry = snippet_load<As, float, 17>(held[4], As::whole(h), As::whole(As::whole(ahead) + As::whole(As::count(20LL))));
    const auto of_key = snippet_column<As, float, 21>(held[0], k);
    const auto both = As::real(of_key) * As::real(snippet_load<As, SnippetBrain, 26>(held[2], As::whole(q), As::whole(k)));
    const auto sum = As::real(As::real(As::real(score) + As::real(steep)) + As::real(entry)) + As::real(both);
    return As::number(As::real(sum) + As::real(snippet_load<As, float, 31>(held[0], As::whole(q))));
}
#if D_BUFFERS == 4096
#define GRADIENT_SITES(F) F(0, 3, 3) F(1, 17, 4) F(2, 21, 0) F(3, 26, 2) F(4, 31, 0)
#elif D_BUFFERS == 1536
#define GRADIENT_SITES(F) F(0, 26, 2)
#else
#define GRADIENT_SITES(F) F(0, 3, 3) F(1, 21, 0) F(2, 31, 0)
#endif
template <class As, class Q, class K, class Held> FA_DEVICE auto snippet_mask(PLACES) {
    if constexpr (MASK_LISTS) return As::truth(As::real(snippet_load<As, SnippetBrain, 35>(held[2], snippet_floor_div(As::whole(q), As::whole(40LL)), snippet_floor_div(As::whole(k), As::whole(50LL)))) > As::real(As::number(0.0)));
    else return As::truth(As::whole(snippet_load<As, int, 4>(held[1], As::whole(b), As::whole(q))) == As::whole(snippet_column<As, int, 9>(held[1], k, As::whole(b))));
}
"""


class Case:
    def __init__(self, dice):
        self.d = dice.choice([8, 24, 32, 40, 64, 64, 72, 96, 128, 128, 136, 192, 256])
        self.dv = self.d if dice.random() < 0.7 else dice.choice([8, 48, 64, 104, 128])
        fitting = [c for c in CONFIGS if shared_bytes(*c[:3], tile(self.d), tile(self.dv)) <= 166912]
        self.config = dice.choice(fitting)
        self.flags = {name: dice.choice(values) for name, values in {
            "DTYPE_BF16": (0, 1), "CAUSAL": (0, 1, 2), "ALIGNED": (1, 1, 0), "WINDOW": (0, 0, 1), "SOFTCAP": (0, 0, 1),
            "SINKS": (0, 0, 1), "DETERMINISTIC": (0, 0, 1), "VARLEN": (0, 0, 1)}.items()} | {"D_LSE": 0, "MASK_LISTS": 0}
        self.draw_words(dice)

    def draw_words(self, dice):
        """Of what one program may be asked: lengths, heads, strides and the like."""
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
        return {"FA_SM": 80, "SPLITS": getattr(self, "splits", 1), "ROW_PARTS": getattr(self, "rows", 1), "HEAD_DIM": self.d, "HEAD_DIM_V": self.dv, "D_TILE": tiles[0], "DV_TILE": tiles[1],
                "BLOCK_M": m, "BLOCK_N": n, "STAGES": stages, "WARPS": warps, "MIN_BLOCKS": 1, **self.flags}


def proved(case, kernel=KERNEL, **change):
    buffers = case.flags.get("BUFFER_COUNT")
    defines = case.defines() | ({"": BUFFERS if buffers else SNIPPETS} if case.flags.get("SCORE_SNIPPET") or case.flags.get("MASK_SNIPPET") else {}) | {REFERENCE: {"REFERENCE": 1}, HOPPER: {"HOPPER": 1}, WIDE: {"HOPPER": 1, "WIDE": 1}, SHORT: {"SHORT": 1}, RING: {"RING": 1}}.get(kernel, {})
    judge = "emulated_bwd_buffers.hpp" if buffers else "emulated_bwd_d_lse.hpp" if case.flags["D_LSE"] else "emulated_bwd.hpp"
    launched = case.launched() if kernel == RING else [case.words[8], case.words[9] + (hopper_more(case) if kernel == HOPPER else 0)]
    words = [*case.words[:8], *launched, *case.words[10:]]
    return emulate.judged("attn_bwd", kernel, defines, words, judge, kernel in (HOPPER, WIDE, SHORT, RING), **change)


def prove_some(count, seed, case_of=Case, kernel=KERNEL):
    """So many programs, each on three problems: compiling is what takes time. Of some thousand seeds, those here draw programs that have
    each feature and the most tiles and shapes among those of a kernel. Every other one takes the gradient of the LSE."""
    dice = random.Random(int(os.environ.get("FA_TEST_SEED", seed)))
    for i in range(int(os.environ.get("FA_TEST_PROBLEMS", count * (4 if SLOW else 1)))):
        case = case_of(dice)
        case.flags["D_LSE"] = i % 2 or "BUFFER_COUNT" in case.flags
        for _ in range(3):
            done = proved(case, kernel)
            assert done.returncode == 0, "problem %d: %s %s\n%s%s" % (i, case.defines(), case.words, done.stdout, done.stderr)
            case.draw_words(dice)


def find_each(case, changes, kernel=KERNEL, right=()):
    """`right`: changes that the same program can make, too."""
    for change in range(len(changes) + 1):
        done = proved(case, kernel, changes=(*changes, *right), change=change)
        assert (done.returncode != 0) == (change > 0), (change, done)   # or it crashes


def random_problems_are_right():
    prove_some(3, 2442)


class ShortCase(Case):
    """Sequences of two tiles at most, for the reference: it takes seconds for more of 256 columns."""

    def draw_words(self, dice):
        super().draw_words(dice)
        self.words[3:5] = [min(length, 80) for length in self.words[3:5]]


def the_reference_is_right():
    prove_some(1, 8288, ShortCase, REFERENCE)


def a_reference_that_is_wrong_is_found():
    find_each(plain_case(SINKS=1, D_LSE=1), (
        ("d_lse_of(p, b, h, first + row)", "0.0f"), ("d_lse_of(p, b, h, row)", "0.0f"), ("(slope - tile_delta[query])", "slope"), ("(CAUSAL && ahead > 0)", "(CAUSAL && ahead > 1)"),
        ("(SINKS ? expf(sink - most) : 0.0f)", "0.0f"), ("(float)-sum", "(float)sum"), ("multiply_add(sum[n], low, b);", ""), ("sums.total[kOfV][j][i] *= before;", "")), REFERENCE)


class HopperCase(Case):
    """Of what attn_bwd_sm90a takes."""

    def __init__(self, dice):
        super().__init__(dice)
        self.d, self.dv = dice.choice([(8, 8), (48, 48), (64, 64), (72, 72), (128, 128), (128, 64), (64, 128), (96, 40)])
        self.tiles = [64 if width <= 64 else 128 for width in (self.d, self.dv)]
        self.flags |= {"ALIGNED": 1, "VARLEN": 0}
        self.splits = dice.choice([1, 1, 2, 3])
        blocks = [m for m in (64, 80, 96, 128) if (self.tiles[0] == 128 or m % 32 == 0) and hopper_bytes(m, *self.tiles) <= 232192]
        self.config = (dice.choice(blocks), 128, 0, 0)
        self.draw_words(dice)

    def draw_words(self, dice):
        super().draw_words(dice)
        self.words[0] = dice.choice([1, 2])
        self.words[3:5] = [dice.choice([0, 1, 63, 65, 129, 200, 330]) for _ in range(2)]   # rings go round
        self.words[7] = dice.choice([0, 8, 24])
        self.words[8:10] = [384, hopper_bytes(self.config[0], *getattr(self, "tiles", [64, 64]), self.flags["VARLEN"])]


class SequencesCase(Case):   # behind one another
    def draw_words(self, dice):
        self.flags["VARLEN"] = 1
        super().draw_words(dice)
        self.words[0] = dice.choice([1, 2, 5, 9])
        self.words[3:5] = dice.choice([1, 30, 65, 90]), dice.choice([1, 30, 65, 90])


class NarrowSequencesCase(SequencesCase):
    """Up to 64 columns, for the reference: nine sequences of 256 columns take it ten seconds, and random problems have wide ones."""

    def __init__(self, dice):
        super().__init__(dice)
        self.d, self.dv = min(self.d, 64), min(self.dv, 64)
        self.draw_words(dice)


class HopperSequencesCase(HopperCase):
    """Sequences behind one another for attn_bwd_sm90a: lengths of several tiles, and empty ones."""

    def draw_words(self, dice):
        self.flags["VARLEN"] = 1
        super().draw_words(dice)
        self.words[0] = dice.choice([1, 2, 5, 9])
        self.words[3:5] = dice.choice([1, 30, 65, 110]), dice.choice([1, 30, 90, 150])


class WideCase(Case):
    """Of what attn_bwd_wide_sm90a takes."""

    def __init__(self, dice):
        super().__init__(dice)
        self.d, self.dv = dice.choice([(256, 256), (192, 128), (192, 192), (136, 136), (64, 192), (200, 40), (256, 64)])
        self.tiles = [next(width for width in (64, 128, 192, 256) if columns <= width) for columns in (self.d, self.dv)]
        self.splits, self.flags = dice.choice([1, 2, 3]), self.flags | {"ALIGNED": 1}
        self.dq = dice.choice([keys for keys in ((64, 1), (64, 2), (96, 1), (96, 2), (128, 1))
                               if wide_dq_bytes(*keys, *self.tiles) <= 232448])
        self.config = (64, 64, dice.choice([stages for stages in (2, 3) if wide_bytes(stages, *self.tiles) <= 232448]), 0)
        self.draw_words(dice)

    def defines(self):
        return super().defines() | dict(zip(("DQ_BLOCK_N", "DQ_STAGES_V"), self.dq))

    def draw_words(self, dice):
        super().draw_words(dice)
        self.words[0] = dice.choice([1, 2, 5]) if self.flags["VARLEN"] else dice.choice([1, 1, 2])
        lengths = [1, 30, 65, 110] if self.flags["VARLEN"] else [0, 1, 63, 65, 129, 200, 330]
        self.words[3:5] = [dice.choice(lengths) for _ in range(2)]
        self.words[7] = dice.choice([0, 8, 24])
        if hasattr(self, "dq"):
            self.words[8:10] = [384, wide_bytes(self.config[2], *self.tiles)]
            self.words += [wide_dq_bytes(*self.dq, *self.tiles)]


class ShortHeadsCase(HopperCase):
    """Of what attn_bwd_short_sm90a takes."""

    def __init__(self, dice):
        super().__init__(dice)
        self.flags["SINKS"], self.config, self.splits, self.own, self.roles = 0, (64, 64, 0, 0), 1, dice.choice([64, 128]), dice.choice([0, 0, 1, 2])
        self.draw_words(dice)

    def defines(self):
        return super().defines() | {"ROWS": self.own, "ROLES": self.roles}

    def draw_words(self, dice):
        super().draw_words(dice)
        if hasattr(self, "roles"):
            self.words[2] = self.words[1] if self.roles else self.words[2]
            group, own = self.words[1] // self.words[2], self.own // 64
            self.words[3:5] = [min(length, 64 if group * sum(self.tiles) > 512 else 100 if sum(self.tiles) > 128 else 150 if group > 1 else 330) for length in self.words[3:5]]
            q, k = (-(-length // 64) for length in self.words[3:5])
            tiles = q + (min(own, q) if self.flags["CAUSAL"] and self.words[3] == self.words[4] else k) if self.roles else max(group * q + min(own, k), min(own, q) + k)
            self.words[8:10] = [self.own * (4 if self.roles == 2 else 2), tiles * 128 * sum(self.tiles) + group * q * 512]


class RingCase(HopperCase):
    """Of what attn_bwd_ring_sm90a takes."""

    def __init__(self, dice):
        super().__init__(dice)
        self.flags |= {"SINKS": 0, "VARLEN": dice.choice([0, 1])}
        self.config, self.splits, self.teams = (64, 64, 2, 0), 1, dice.choice([1, 2])

    def defines(self):
        return super().defines() | {"TEAMS": self.teams}

    def launched(self):
        return [128 * self.teams, 128 * (1 + 2 * self.teams) * sum(self.tiles) + self.teams * 1024]


def hopper_problems_are_right():
    for count, seed, case_of, kernel in ((2, 2770, ShortHeadsCase, SHORT), (2, 2607, RingCase, RING), (2, 1266, WideCase, WIDE), (2, 1119, HopperCase, HOPPER), (1, 135, HopperCase, HOPPER), (1, 735, HopperCase, HOPPER), (1, 22402, HopperSequencesCase, HOPPER)):
        prove_some(count, seed, case_of, kernel)


def narrow(case, block_m, words, **flags):
    """A case of 64 columns without any feature but these."""
    case.d = case.dv = 64
    case.splits, case.tiles, case.config, case.flags = 1, [64, 64], (block_m, 128, 0, 0), dict.fromkeys(case.flags, 0) | {"ALIGNED": 1} | flags
    case.words = [*words, -1, -1, 0, 384, hopper_bytes(block_m, 64, 64, case.flags["VARLEN"]), 5, 0]
    return case


class PassingCase(HopperCase):
    """Whose sums of dQ are cleared and rounded while other jobs run."""

    def draw_words(self, dice):
        self.flags["DETERMINISTIC"] = 0
        super().draw_words(dice)


# Parts of what attn_bwd_sm90a does in passing.
PASSING = (("clear_part(p, workspace, passing_of<kClears>(p, workspace, shared, told.number), kShort ? half : opaque(half));", ""), ("store_floats(to + i, zeros);", ";"),
           ("if constexpr (kInPassing) round_rest(p, workspace, group);", ""), ("job < jobs.count", "job < jobs.count - 1"), ("other < jobs.count ? other : kNoJob", "other < jobs.count - 1 ? other : kNoJob"),
           ("(head - first_head) * tiles + tile < parts.first * each", "(head - first_head) * tiles + tile + 1 < parts.first * each"))
NEAR = tuple((*change, "with others") for change in (
    ("ahead = most + kAhead;", "ahead = most + (kLongestFirst ? 7 : 1);"), ("tiles < kLastJobs ? kLastJobs / tiles : 1", "tiles < 7 ? 7 / tiles : 1"), ("parts_of_heads(p) <= kAhead", "parts_of_heads(p) < 1")))
# Each wait, fence and arrival that keeps its shared memory in order, left out or too early.
IN_ORDER = (("barrier_wait(shared.barrier(kEmpty + slot), parity_of(step) ^ 1);", ""), ("barrier_wait(shared.barrier(kDsFull + slot_of(step - 1)), parity_of(step - 1));", ""),
            ("barrier_wait(shared.barrier(kDsEmpty + slot_of(step)), parity_of(step) ^ 1);", ""), ("barrier_wait(shared.barrier(kKeysEmpty), turn & 1 ^ 1);", ""), ("barrier_wait(shared.barrier(kJobEmpty), turn & 1 ^ 1);", ""),
            ("        async_proxy_fence();\n        warp_sync();", "warp_sync();"), ("                tma_store_wait_read<0>();", ""),
            ("        wgmma_wait<1>();   // dV and dQ\n        Wgmma<kWidthV>::pin(dv);", "Wgmma<kWidthV>::pin(dv);"), ("        wgmma_wait<0>();\n        Wgmma<kWidth>::pin(dk);", "Wgmma<kWidth>::pin(dk);"),
            ("        wgmma_wait<0>();\n        Wgmma<kM>::pin(dp);", "Wgmma<kM>::pin(dp);"),
            ("        async_proxy_fence();\n        named_arrive(kHalfFull + group, kGroup + kWarp);", "named_arrive(kHalfFull + group, kGroup + kWarp);"),
            ("named_sync(kHalfEmpty + group, kGroup + kWarp);", "named_arrive(kHalfEmpty + group, kGroup + kWarp);"), ("named_sync(kHalfFull + half, kGroup + kWarp);", "named_arrive(kHalfFull + half, kGroup + kWarp);"),
            ("if (turn == 0) named_arrive(kHalfEmpty + half, kGroup + kWarp);", "named_arrive(kHalfEmpty + half, kGroup + kWarp);"), ("if constexpr (kFirst) barrier_wait(shared.barrier(kVFull), turn & 1);", ""),
            ("barrier_wait(shared.barrier(kDoFull + slot_of(step)), parity_of(step));", ""), ("barrier_wait(shared.barrier(kQFull + slot_of(step)), parity_of(step));", ""), ("1 + kGroups + kGroups * 4", "kGroups + kGroups * 4"),
            ("barrier_init(shared.barrier(kDsFull + i), kGroups * 4);", "barrier_init(shared.barrier(kDsFull + i), kGroups * 2);"),
            ("barrier_init(shared.barrier(kDsEmpty + i), kGroups * 4);", "barrier_init(shared.barrier(kDsEmpty + i), kGroups * 2);"))
# The gradient of the LSE.
DELTA = (("d_lse[s.first_q + row]", "0.0f"), ("d_lse[s.first_q + row]", "d_lse[row]"), ("lse != neg_infinity()", "true"))
# What orders the sums of dQ between blocks.
BETWEEN = (("if (kInPassing && told.number != kNoJob) wait_added(p, workspace, passing_of<kRounds>(p, workspace, shared, told.number));", ""),
           ("wait_count(&progress_of(p, workspace, shared_by(kv_head))->cleared[half], tiles_of_keys(kVarlen ? told.seq_k : opaque((u32)p.seq_k)) * (kOfRows ? kParts : 1));", ""),
           ("if (threadIdx.x % kWarp == 0) wait_count(&progress_of(p, workspace, rounding.part.kv_head)->added[half], rounding.part.key_tiles);", ""))

# Each place of attn_bwd_sm90a that tells sequences apart.
APART = (("(queries ? s.first_q : s.first_k) * strides.row", "0"), ("(kVarlen ? (u32)job.first_tile : 0)", "0"),
         ("opaque(first_tile) + (u32)walk.tile", "(u32)walk.tile"), ("job >= ranking[rank + 1].key_tiles * heads_kv", "job > ranking[rank + 1].key_tiles * heads_kv"),
         ("queries ? s.seq_q : s.seq_k", "queries ? p.seq_q : p.seq_k"), ("key_tiles += its_tiles;", "++key_tiles;"))


def sums_of_dq_are_cleared_and_rounded_in_passing():
    """One job ahead, each part of it left out; of sequences each place that tells them apart, too."""
    dice = random.Random(2)
    case = narrow(PassingCase(dice), 96, [1, 12, 12, 8, 8], CAUSAL=1)
    find_each(case, PASSING, HOPPER, right=(*NEAR, *IN_ORDER))
    sequences = narrow(HopperSequencesCase(dice), 64, [9, 4, 2, 70, 110], CAUSAL=1, VARLEN=1, D_LSE=1)
    find_each(sequences, (*DELTA, *PASSING[:-1], ("if (job >= ahead) return;", "if (job >= ahead - 1) return;"), ("(i64)part.first_q + row", "row"), ("rank * heads_kv", "0"), ("tile / tiles", "0"), *APART), HOPPER, right=NEAR)
    find_each(sequences, (("clears = few_jobs(p)", "clears = 0 > 1"),), HOPPER)
    for _ in range(2):
        case.draw_words(dice)
        case.words[3:5] = 200, 330
        done = proved(case, HOPPER, changes=(*PASSING, *NEAR, *IN_ORDER), change=len(PASSING) + 1)
        assert done.returncode == 0, (case.words, done)


def blocks_wait_for_one_another_s_sums_of_dq():
    """Two at once, one job ahead."""
    case = narrow(PassingCase(random.Random(2)), 64, [1, 4, 4, 140, 260])
    find_in_some_order(case, BETWEEN, HOPPER, before=NEAR)
    assert all(proved(case, HOPPER, changes=(*NEAR, *BETWEEN), change=1).returncode == 0 for case.words[10] in range(2))
    # One before the last jobs, which go by their tile, adds late.
    case = narrow(PassingCase(random.Random(2)), 64, [1, 8, 8, 140, 256], CAUSAL=1)
    late, wait = "named_sync(kHalfFull + half, kGroup + kWarp);", "wait_added(p, workspace, passing_of<kRounds>(p, workspace, shared, %s))"
    find_in_some_order(case, ((wait % "told.number", wait % "number"),), HOPPER, before=(*NEAR, (
        late, "if (told.number + 12 == Jobs(p, workspace).count) wait_count(next_job_of(p, workspace), told.number + 11); " + late, "with others")))


def the_parts_of_a_group_are_summed():
    """Five heads of queries, or the tiles of one, in three parts; each step of the sum left out, and what tells parts apart."""
    heads, rows = ("head / kParts * group", "0u"), (("first + count * part / (int)kParts", "first"), ("if (kOfRows) key_tiles *= kParts;", ""))
    added, apart = (("store_floats(sums_of_keys(p, workspace) + 4 * i, zeros);", ""), ("add_part(dv, sums_at(true));", "")), (
        ("other < kCount", "other < kCount - 1"), ("x[i + e] + y[e]", "y[e]"), ("(u32)job.head % kParts", "0u"))
    for words, flags, more in (([1, 10, 2, 70, 260], {"CAUSAL": 1}, (heads, *added)), ([1, 2, 2, 330, 260], {"CAUSAL": 1}, (*rows, *apart)),
                               ([3, 2, 2, 330, 260], {"CAUSAL": 1, "VARLEN": 1}, (*rows, *apart, ("shared_by(rank * heads_kv)", "rank * heads_kv"))),
                               ([4, 10, 2, 70, 140], {"CAUSAL": 1, "VARLEN": 1, "DETERMINISTIC": 1}, (heads, *apart, ("own.key_tiles * heads_kv + head * tiles_of_keys(own.seq_k)", "head * tiles_of_keys(own.seq_k)")))):
        case = narrow(PassingCase(random.Random(2)), 64, words, **flags)
        case.splits, case.rows = (1, 3) if rows[0] in more else (3, 1)
        find_each(case, (("!uniform(last)", "uniform(last)"), ("i < (i64)all_key_tiles(p) * kArrivals", "false"), *more), HOPPER)


def a_hopper_kernel_that_is_wrong_is_found():
    case = narrow(HopperCase(random.Random(1)), 96, [1, 1, 1, 400, 200], CAUSAL=1)
    find_in_some_order(case, IN_ORDER, HOPPER, before=(*PASSING, *NEAR))


def find_in_some_order(case, changes, kernel, before=()):
    def always_right(change):   # in each of some orders in which warps may run, which the seed draws
        return all(proved(case, kernel, changes=(*before, *changes), change=change and len(before) + change).returncode != 1 for case.words[10] in range(ORDERS))
    tap.equal([change for change in range(len(changes) + 1) if always_right(change)], [0])


def narrow_wide(words, **flags):
    case = WideCase(random.Random(1))
    case.d, case.dv, case.splits, case.tiles, case.config, case.dq, case.flags = 64, 64, 1, [64, 64], (64, 64, 2, 0), (64, 1), dict.fromkeys(case.flags, 0) | {"ALIGNED": 1} | flags
    case.words = [*words, -1, -1, 0, 384, wide_bytes(2, 64, 64), 5, 0, wide_dq_bytes(64, 1, 64, 64)]
    return case


def a_wide_kernel_that_is_wrong_is_found():
    """Each wait that keeps the shared memory of its main launches in order, left out, and what tells sequences and heads apart."""
    find_in_some_order(narrow_wide([3, 2, 1, 130, 130], CAUSAL=1, VARLEN=1), (
        ("barrier_wait(at.barrier(kEmpty + ring.slot), ring.parity ^ 1);", ""), ("barrier_wait(again.barrier(kOfV ? kOwnVEmpty : kOwnEmpty), round & 1 ^ 1);", ""),
        ("barrier_wait(shared.barrier(kJobEmpty), turn & 1 ^ 1);", ""), ("w.wait_full(kWeightsFull, w.step);", ""), ("wgmma_wait<1>();\n        finish_dv();", "finish_dv();"),
        ("wgmma_wait<1>();\n        finish_dk();", "finish_dk();"), ("wgmma_wait<1>();\n        Wgmma<kD>::pin(dq);", "Wgmma<kD>::pin(dq);"), ("barrier_wait(shared.barrier(kTileVFull + ring_v.slot), ring_v.parity);", ""),
        ("barrier_wait(shared.barrier(kTileFull + ring.slot), ring.parity);", ""), ("barrier_wait(w.shared.barrier(kOwnFull), w.round & 1);", ""), ("barrier_wait(w.shared.barrier(kOwnVFull), w.round & 1);", ""),
        ("barrier_wait(shared.barrier(kOwnFull), round & 1);", ""), ("barrier_wait(shared.barrier(kOwnVFull), round & 1);", ""), ("w.wait_full(kTileFull, w.step);", ""), ("w.wait_full(kTileVFull, w.step - 1);", ""),
        ("1 + 2 * kGroupWarps", "2 * kGroupWarps"), ("barrier_init(shared.barrier(kTileEmpty + i), 2 * kGroupWarps);", "barrier_init(shared.barrier(kTileEmpty + i), kGroupWarps);"),
        ("barrier_init(shared.barrier(kTileVEmpty + i), 2 * kGroupWarps);", "barrier_init(shared.barrier(kTileVEmpty + i), kGroupWarps);"),
        ("barrier_init(shared.barrier(kWeightsFull + i), kGroupWarps);", "barrier_init(shared.barrier(kWeightsFull + i), kGroupWarps / 2);"), ("(queries ? s.first_q : s.first_k) * strides.row", "0"),
        ("queries ? s.seq_q : s.seq_k", "queries ? p.seq_q : p.seq_k"), ("job.s.first_tile + tile", "tile"), ("head + job.group", "head + 1")), WIDE)


def short_kernels_that_are_wrong_are_found():
    """What orders their loads, their products and their shared memory, left out, and what tells heads and rows apart."""
    case = RingCase(random.Random(1))
    case.d, case.dv, case.tiles, case.teams, case.flags = 64, 64, [64, 64], 2, dict.fromkeys(case.flags, 0) | {"ALIGNED": 1, "VARLEN": 1}
    case.words = [4, 4, 2, 260, 230, -1, -1, 0, 0, 0, 5, 0]
    find_each(case, (("cp_async_wait<STAGES - 2>();", ""), ("        async_proxy_fence();", ""), ("        block_sync();\n        copy<true, true>();", "copy<true, true>();"), ("cp_async_wait<0>();", ""),
                     ("        block_sync();\n        differentiate_queries(p, held, ring, h, tile);", "differentiate_queries(p, held, ring, h, tile);"), ("        block_sync();\n        if (team > 0) (put(sums, at), ...);", "if (team > 0) (put(sums, at), ...);"),
                     ("        block_sync();\n        if (team > 0) return false;", "if (team > 0) return false;"), ("next_tile + 1 == range.end", "false"), ("left + TEAMS > team", "true"), ("held.s.first_tile + tile", "tile"),
                     ("query_blocks - 1 - place", "place - 1"), ("(int)(h * group)", "(int)h"), ("sequence_of(p, index)", "sequence_of(p, 0)")), RING)
    case = ShortHeadsCase(random.Random(1))
    case.d, case.dv, case.tiles, case.own, case.roles, case.flags = 64, 64, [64, 64], 128, 0, dict.fromkeys(case.flags, 0) | {"ALIGNED": 1, "CAUSAL": 1, "WINDOW": 1}
    case.words = [2, 4, 2, 150, 150, 70, -1, 0, 256, 8 * 16384 + 6 * 512, 5, 0]
    find_each(case, (("    async_proxy_fence();", ""), ("    block_sync();", ""), ("    cp_async_commit();", ""), ("        cp_async_wait<0>();", ""), ("wgmma_wait<1>();", ""), ("    wgmma_wait<0>();\n    Wgmma<kM>::pin(dp);", ""),
                     ("        wgmma_wait<0>();\n        Wgmma<kWidthV>::pin(dv);", ""), ("        wgmma_wait<0>();\n        Wgmma<kWidth>::pin(dq);", ""), ("lanes.chunk * 8 < kThere ? rows - tiles.first * kTileRows : 0", "1 << 20"),
                     ("lse == neg_infinity() ? -neg_infinity() : lse * kLog2e", "lse * kLog2e"), ("of_all - batch * heads", "of_all"), ("(h + head) * p.lse_strides.head", "h * p.lse_strides.head"), ("ROLES == 0 && row == end", "false"),
                     ("key - held.reach.low + 1", "key - held.reach.low"), ("row + held.reach.low", "row + held.reach.low + 1"), ("blocks - 1 - place", "place - 1")), SHORT)


def plain_case(**flags):
    case = Case(random.Random(1))
    case.d, case.dv, case.config = 64, 64, (64, 64, 2, 4)
    case.flags = dict.fromkeys(case.flags, 0) | {"ALIGNED": 1, "CAUSAL": 1} | flags
    case.words = [1, 2, 1, 100, 80, -1, -1, 0, 128, shared_bytes(64, 64, 2, 64, 64), 5, 0]
    return case


def sequences_of_several_lengths_are_right():
    """Behind one another, with empty ones of queries, of keys and of both: no sequence sees another, and all rows are written."""
    prove_some(1, 16382, SequencesCase)
    prove_some(1, 7104, NarrowSequencesCase, REFERENCE)


def a_kernel_that_is_wrong_is_found():
    """Of sequences behind one another, what tells them apart too."""
    case = plain_case(VARLEN=1, D_LSE=1)
    case.words[0], case.words[3:5] = 5, [40, 40]
    changes = (*DELTA, ("row_of(p.k, p.k_strides, own.batch, at.head, own.first_k)", "row_of(p.k, p.k_strides, own.batch, at.head, 0)"),
               ("s.first_k + key", "key"), ("own.first_tile", "0"), ("dp[i][j][half * 2 + e] AS_KEPT - delta[i][half]", "dp[i][j][half * 2 + e]"),
               ("if (masked) seen = find_seen(own, band, row0 + i * 16 + half * 8, key0);", ""), ("store_keys<kDPairs>(own, at, p.dk, p.dk_strides, dk, p.softmax_scale, HEAD_DIM);",
                "store_keys<kDPairs>(own, at, p.dk, p.dk_strides, dk, 1.0f, HEAD_DIM);"))
    find_each(case, changes)
    case.words[-1] = 1   # of a sum
    assert proved(case, changes=changes).returncode == 0


def bent(case, score=1, mask=1):
    case.flags |= {"SCORE_SNIPPET": score, "MASK_SNIPPET": mask}
    return case


def scores_and_masks_of_a_user_are_right():
    for seed, case_of, kernel in ((1, Case, KERNEL), (8, ShortCase, REFERENCE), (5, HopperCase, HOPPER), (6, HopperCase, HOPPER), (2, WideCase, WIDE)):
        prove_some(1, seed, lambda dice: bent(case_of(dice), *dice.choice(((1, 1), (1, 0), (0, 1)))), kernel)


def held(case, room=4096, lists=0):
    while case.config[0] == 80:   # sums of diagonals do not fit beside its tiles
        case = type(case)(random.Random(case.words[10]))
    case.flags |= {"SCORE_SNIPPET": 1, "MASK_SNIPPET": 1, "BUFFER_COUNT": 7, "D_BUFFERS": room, "MASK_LISTS": lists, "MASK_NAMES": lists or 25}
    return case


def gradients_of_what_texts_read_are_right():
    """Of few sites sums are kept over the walk, of heads above 128 columns tiles are read by pieces; some keys no query sees."""
    for seed, case_of, kernel, room, *lists in ((1, Case, KERNEL, 4096), (6, Case, KERNEL, 2048), (12, Case, KERNEL, 2048), (8, ShortCase, REFERENCE, 4096), (5, HopperCase, HOPPER, 2048), (3, Case, KERNEL, 1536),
                                                (2, WideCase, WIDE, 2048), (2, Case, KERNEL, 2048, 24), (5, HopperCase, HOPPER, 2048, 24), (6, WideCase, WIDE, 2048, 27)):
        prove_some(1, seed, lambda dice: held(case_of(dice), room, *lists), kernel)
    find_each(held(narrow(HopperCase(random.Random(1)), 64, [2, 2, 1, 140, 260], D_LSE=1), 2048, 24), (
        ("key + i % kWide * 32", "key"), ("seen &= ~told[i][0]", "seen &= ~told[i][1]"), ("whole |= told[i][1]", "whole |= seen")), HOPPER)


def dropped(case, room=0):   # with dropout, alone or with texts that read
    case = held(case, room) if room > 0 else case
    case.flags |= {"BUFFER_COUNT": 7, "D_BUFFERS": room, "D_LSE": 1, "DROPOUT": 1, "DROPOUT_AT": 5, "DROPOUT_SEED_AT": 6}
    return case


def gradients_with_dropout_are_right():
    for seed, case_of, kernel, room in ((1, Case, KERNEL, 0), (8, ShortCase, REFERENCE, 4096), (5, HopperCase, HOPPER, 0), (6, HopperCase, HOPPER, 2048), (3, Case, KERNEL, 1536), (2, WideCase, WIDE, 0),
                                         (3, lambda dice: bent(HopperCase(dice), 0), HOPPER, 0)):
        prove_some(1, seed, lambda dice: dropped(case_of(dice), room), kernel)


def dropout_that_is_done_wrong_is_found():
    case = dropped(plain_case())
    case.words[0] = 2
    find_each(case, (("weight[e] *= kept[i].factor(j * 4 + half * 2 + e);", ""), ("(i64)index * p.heads_q + head", "head")))
    find_each(dropped(narrow(HopperCase(random.Random(1)), 96, [2, 2, 1, 150, 130])), (("x *= is_kept, s[8 * j + i] *= is_kept;", "x *= is_kept;"), ("places.head + walk.head", "places.head")), HOPPER)
    find_each(dropped(bent(narrow(HopperCase(random.Random(1)), 96, [2, 2, 1, 150, 130]), 0)), (("2.0f * kept.factor(i) - 1.0f", "1.0f"), ("weight = 0.0f - weight", "weight = 0.0f")), HOPPER)
    find_each(dropped(narrow_wide([2, 2, 1, 150, 130])), (("kept_of_keys(w, job, at).apply(weights);", ""), ("kept_of_keys(w, job, at).apply(dp);", ""), ("kept.apply((float (&)[16])dp[16 * j]);", "")), WIDE)


def sums_of_what_texts_read_that_are_wrong_are_found():
    """Those of keys, heads and diagonals in the main launch, and those over batches."""
    for block, words, room, changes in (
            (96, [1, 2, 1, 110, 200], 4096, (
                ("(g + 2 * t) % 8", "(g + t) % 8"), ("turned_before = turned", "turned_before = 0.0f"), ("odd_before = odd", "odd_before = 0.0f"),
                ("end_block(j + 2, under_way[ends]);", ""), ("(int)(warp * 16 + lane / 4)", "(int)(lane / 4)"), ("16 * warp", "8 * warp"), ("left == 0 || walk.head != head", "left == 0"),
                ("if (column < seers.first[half] - first_row || column >= seers.end[half] - first_row) weight = 0.0f;", ""),
                ("if (!is_visible(w, query, key)) weight = 0.0f;", ""), ("query_place(key + 8)", "query_place(key)"))),
            (64, [2, 2, 1, 150, 40], 1536, (("(int)(step % p.batch)", "0"), ("if (kOfKeys) hold_keys();", ""), ("step + 1 < end && batch + 1 < p.batch", "step + 1 < end"),
                                           ("own.row0 + slab + i / 2 % 2 * 8", "own.row0 + slab + i / 2 % 2")))):
        find_each(held(narrow(HopperCase(random.Random(1)), block, words, CAUSAL=1, D_LSE=1), room), changes, HOPPER)


def a_text_that_is_done_wrong_is_found():
    """Each place that says by what dS is multiplied, which tiles a mask lists, or for which rows a text is asked."""
    case = bent(plain_case(CAUSAL=0))
    case.words[:5] = [1, 4, 2, 70, 420]
    lists = (("is && sees.high != 0", "is && sees.low != 0"), ("row += kListsHeads ? listed.apart : 0, ++head;", "row += 2 * listed.apart, ++head;"),
             ("row + i * listed.apart", "row"))
    find_each(case, (*lists, ("head / (p.heads_q / p.heads_kv)", "head"), ("ds[e] *= slope_at(weight[e], slope[e]);", ""), ("places_of(p, own, index, head)", "places_of(p, own, index, at.head)"),
                     ("!is_visible(places, query, key)", "false"), ("if (row0 + i * 16 + half * 8 >= own.seq_q) seen.high = 0;", "")))
    of_hopper, of_d_128 = (narrow(HopperCase(random.Random(1)), 64, [1, 4, 2, 100, 450], SCORE_SNIPPET=1, MASK_SNIPPET=1) for _ in range(2))
    of_d_128.d = of_d_128.dv = 128
    of_d_128.tiles, of_d_128.words[9] = [128, 128], hopper_bytes(64, 128, 128)
    for one, more in ((of_hopper, (("s[i] = 0.0f;", ""),)), (of_d_128, (("ds[i / 2] &= other;", ""), ("dp[i] AS_KEPT - deltas[row]", "dp[i]")))):
        find_each(one, (*lists, *more, ("is_clear(meets, tile, L::kOfKeys ? s.seq_q : 2147483647)", "true"), ("w.head += walk.head;", ""), ("weights[i / 2] &= other;", ""), ("weight * slope_at(weight, slope)", "weight"),
                        ("query_place(key + 8)", "query_place(key)")), HOPPER)
    find_each(narrow_wide([1, 4, 2, 130, 450], SCORE_SNIPPET=1, MASK_SNIPPET=1), (
        *lists, ("is_clear(meets, tile, L::kOfKeys ? s.seq_q : 2147483647)", "true"), ("job.first_head() + at.head", "job.first_head()"), ("weights[4 * j + i / 2] &= kept;", ""),
        ("bent[i / 2] &= kept;", ""), ("if (!seen) s[i] = 0.0f;", ""), ("weight * slope_at(weight, slope)", "weight"), ("query_place(row + 8)", "query_place(row)")), WIDE)
    short = bent(plain_case(CAUSAL=0))
    short.words[:5] = [2, 4, 2, 70, 90]
    find_each(short, (("(weigh == 0 ? 1 : is.slope)", "1"), ("!is_masked(p, index, h, row + query, key + other)", "true"), ("kVarlen ? sequence : b", "0")), REFERENCE)


def of_what_racecheck_reports_reads_of_lse_delta_and_p_alone_are_expected():
    """What a sanitized run on a GPU is judged by; the addresses are those of a run on an H100."""
    config = 'config: {"family": "attn_bwd_sm90a", "tunables": {"BLOCK_M": 64, "BLOCK_N": 128}, "smem_bytes": 115904}\n'
    summary = "========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)\n"

    def wrong(*hazards, config=config, summary=summary):
        lines = ["========= Error: Potential %s hazard detected at __shared__ 0x%x in block (0,0,0) :\n" % hazard[:2] + "".join(
            "=========     %s Thread (%d,0,0) at attn_bwd+0x70\n" % pair
            for pair in zip(("Read", "Write") if hazard[0] == "WAR" else ("Write", "Read"), hazard[2:])) for hazard in hazards]
        return racecheck_bwd.judged("".join(lines) + config + summary)[0]
    first, last = 0x400 + 115904 - 192 - 1024, 0x400 + 115904 - 192 - 4
    tap.equal(wrong(), None)
    tap.equal(wrong(("WAR", first), ("WAR", last)), None)
    tap.equal(wrong(("WAR", last + 4, 31, 64), ("WAR", last + 192, 63, 64)), None)   # a job, read by the warps that add dQ
    for hazard in (("WAR", first - 4), ("WAR", last + 4), ("RAW", first), ("WAW", last), ("WAR", last + 4, 32, 64), ("WAR", last + 4, 31, 65), ("WAR", last + 196, 31, 64)):
        tap.equal(wrong(("WAR", first), hazard), "%s at 0x%x" % hazard[:2])
    tap.equal(wrong(("WAR", first), config=config.replace("sm90a", "sm80")), "WAR at 0x%x" % first)
    wide = config.replace("attn_bwd_sm90a", "attn_bwd_wide_sm90a").replace('"BLOCK_N": 128', '"BLOCK_N": 64, "STAGES": 2')
    tap.equal([wrong(("WAR", at), config=wide) for at in (0x400, 0x7fc, 0x800)], [None, None, "WAR at 0x800"])
    place = 0x800 + 2048 + 65 * 16   # of the second 16 rows, thread 65's
    tap.equal(wrong(("RAW", place, 193, 321), ("RAW", place + 15, 193, 321), ("WAR", place, 321, 193), config=wide), None)
    tap.equal(wrong(("RAW", place, 193, 321)), "RAW at 0x%x" % place)   # of attn_bwd_sm90a
    for hazard in (("WAR", place, 193, 321), ("WAR", place, 321, 194), ("WAR", place - 16, 320, 192), ("WAR", place), ("WAW", place, 193, 321), ("RAW", place, 193, 322), ("RAW", place, 192, 321), ("RAW", place - 1, 193, 321),
                   ("RAW", place - 16, 192, 320), ("RAW", place + 2 * 8192, 193, 321), ("RAW", place - 4096, 193, 321), ("RAW", place)):
        tap.equal(wrong(("WAR", 0x400), hazard, config=wide), "%s at 0x%x" % hazard[:2])
    tap.has(wrong(summary=""), "no summary")
    tap.has(wrong(config=""), "0 configs ran")
    tap.has(wrong(summary="Maximum number of hazards reached." + summary), "was cut")


tap.main()
