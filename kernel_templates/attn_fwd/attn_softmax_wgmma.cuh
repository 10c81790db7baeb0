// SPDX-License-Identifier: Apache-2.0
//
// The online softmax of scores that wgmma left in registers.
//
// Purpose: what the families of wgmma compute alike between the two products. Included behind the includer's constants: kBf16
// and kScores (scores of a thread: half the keys of a step).
// Invariants:
//  - `reference` (scaled by log2 e) is never further than kSlack below the true running maximum of a row: the
//    output is rescaled only when some row of the warp outgrows it. A row that has seen no key keeps the finite
//    sentinel kNoKey, so that exp2 of its masked scores is 0 and never NaN.
#ifndef ATTN_SOFTMAX_WGMMA_CUH
#define ATTN_SOFTMAX_WGMMA_CUH

#include "fa_numeric.cuh"

namespace {

constexpr float kSlack = 8.0f;        // log2 of the largest probability kept before normalisation
constexpr float kNoKey = -1.0e38f;    // the reference of a row that has seen no key
constexpr int kAnyScore = (int)0x80000000;   // a limit that every score reaches

using Scores = float[kScores];     // element 4 * j + 2 * half + e: row g + 8 * half, key 8 * j + 2 * t + e
using Probs = u32[kScores / 2];    // A operand of P V, 4 for each 16 keys

FA_DEVICE int max3(int a, int b, int c) {
    const int ab = a > b ? a : b;
    return ab > c ? ab : c;
}

struct Rows {
    float reference[2];   // what exp2 subtracts, uniform over the quad; rows g and g + 8 of the warp
    float sum[2];         // this thread's share of the row sum
    int limit[2];         // the bits of a score, as an integer: a row whose scores are all below keeps its reference
};

FA_DEVICE Rows new_rows() { return {{kNoKey, kNoKey}, {0.0f, 0.0f}, {kAnyScore, kAnyScore}}; }

// S becomes exp2 of what `exponent` makes of a score and its row's reference; sums grow by it.
template <class Exponent> FA_DEVICE void exponentials(Scores &s, Rows &rows, const Exponent &exponent) {
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
        const int half = i % 4 / 2;
        s[i] = exp2_fast(exponent(s[i], rows.reference[half]));
        rows.sum[half] += s[i];
    }
}

// Whether some row may outgrow its reference. The bits of floats, read as integers, have the order of the floats except
// among negative ones, so a limit is positive, or one that everything reaches. Integers are compared three at a time.
FA_DEVICE bool may_outgrow(const Scores &s, const Rows &rows) {
    int top[2] = {kAnyScore, kAnyScore};
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
        const int half = i % 4 / 2;
        top[half] = max3(top[half], (int)float_to_bits(s[i]), (int)float_to_bits(s[i + 1]));
    }
    return top[0] >= rows.limit[0] || top[1] >= rows.limit[1];
}

FA_DEVICE void row_tops(float (&top)[2], const Scores &s) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float m = max2(s[half * 2], s[half * 2 + 1]);
#pragma unroll
        for (int j = 1; j < kScores / 4; ++j) m = max2(m, max2(s[4 * j + half * 2], s[4 * j + half * 2 + 1]));
        top[half] = m;
    }
}

// From a score to the exponent of which exp2 is taken, less its row's reference: the scale alone. A family's Curve has these
// functions; where one has a quick way for most scores, the others are far.
struct Line {
    float scale;

    __device__ __forceinline__ bool may_be_far(const Scores &) const { return false; }
    __device__ __forceinline__ bool is_far(const Scores &, float) const { return false; }
    __device__ __forceinline__ float exponent_of(float score) const { return score * scale; }
    __device__ __forceinline__ float score_of(float exponent) const { return exponent * reciprocal(scale); }
    __device__ __forceinline__ void weigh(Scores &s, Rows &rows, bool) const {
        exponentials(s, rows, [this](float score, float reference) { return score * scale - reference; });
    }
};

// S becomes P = exp2(exponent - reference), of scores that are masked. Where some row of the warp has outgrown its reference
// the references move up: true when the output must shrink by `shrink`, which is left alone otherwise. Most steps end with
// the first look at the scores; true maxima are found in the others.
template <class Curve>
FA_DEVICE bool weigh_scores(Scores &s, Rows &rows, float (&shrink)[2], const Curve &curve) {
    bool grown = false, far = false;
    if (warp_any(curve.may_be_far(s) | may_outgrow(s, rows))) {
        float top[2];
        row_tops(top, s);
        far = warp_any(curve.is_far(s, max2(top[0], top[1])));
        grown = warp_any(curve.exponent_of(top[0]) > rows.reference[0] + kSlack ||
                         curve.exponent_of(top[1]) > rows.reference[1] + kSlack);
#pragma unroll
        for (int half = 0; half < 2 && grown; ++half) {
            const float raised = max2(rows.reference[half], curve.exponent_of(quad_max(top[half])));
            shrink[half] = exp2_fast(rows.reference[half] - raised);
            rows.reference[half] = raised;
            rows.sum[half] *= shrink[half];
            const float limit = curve.score_of(raised + kSlack);
            rows.limit[half] = limit > 0.0f ? (int)float_to_bits(limit) : kAnyScore;
        }
    }
    curve.weigh(s, rows, far);
    return grown;
}

// Everything that the row sums are made of is computed before what follows. Without it the assembler moves the
// exponentials behind the wait for P V, whose time they are to fill. A sum is never negative, so nobody sleeps.
FA_DEVICE void finish_before_wait(const Rows &rows) {
    asm volatile("{ .reg .pred p; setp.lt.f32 p, %0, 0f00000000; @p nanosleep.u32 0; }"
                 :: "f"(rows.sum[0] + rows.sum[1]) : "memory");
}

FA_DEVICE void pack(Probs &probs, const Scores &s) {
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) probs[i] = pack2<kBf16>(s[2 * i], s[2 * i + 1]);
}

} // namespace

#endif
