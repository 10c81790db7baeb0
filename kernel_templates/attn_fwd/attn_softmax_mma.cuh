// SPDX-License-Identifier: Apache-2.0
//
// The online softmax of scores that mma.m16n8k16 left in registers.
//
// Purpose: what the families of mma.sync compute alike between the two products. Included behind the includer's constants:
// kBf16, kN (keys of a tile), kSlabs (16-row slabs a warp owns) and kOwnDv (columns of the output that a warp owns).
// Invariants:
//  - `reference` (scaled by log2 e) is never further than kSlack below the true running maximum of a row: the
//    accumulators are rescaled only when some row of the warp outgrows it. A row that has seen no key keeps the finite
//    kNoKey, so that exp2 of its masked scores is 0 and never NaN.
#ifndef ATTN_SOFTMAX_MMA_CUH
#define ATTN_SOFTMAX_MMA_CUH

#include "fa_mma.cuh"
#include "fa_numeric.cuh"

namespace {

constexpr float kSlack = 8.0f;        // log2 of the largest probability kept before normalisation
constexpr float kNoKey = -1.0e38f;    // the reference of a row that has seen no key

using Scores = float[kSlabs][kN / 8][4];
using Output = float[kSlabs][kOwnDv / 8][4];
using Probs = u32[kSlabs][4];                                        // A operand: 16 keys

// The softmax state of this thread's rows: slab i, rows g and g + 8 of it.
struct Rows {
    float reference[kSlabs][2];   // what exp2 subtracts, uniform over the quad
    float sum[kSlabs][2];         // this thread's share of the row sum
#if DROPOUT
    Dropped<false, kN / 16> dropped[kSlabs];   // of this step's weights
#endif
};

FA_DEVICE Rows no_keys_seen() {
    Rows rows;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) rows.reference[i][half] = kNoKey, rows.sum[i][half] = 0.0f;
    return rows;
}

// The largest of this thread's scores in each row.
FA_DEVICE void row_tops(float (&top)[kSlabs][2], const Scores &s) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float m = max2(s[i][0][half * 2], s[i][0][half * 2 + 1]);
#pragma unroll
            for (int n = 1; n < kN / 8; ++n) m = max2(m, max2(s[i][n][half * 2], s[i][n][half * 2 + 1]));
            top[i][half] = m;
        }
}

// Whether some row's scores go too far beyond its reference, or `any` is true already.
FA_DEVICE bool outgrown(const float (&top)[kSlabs][2], const Rows &rows, float scale, bool any = false) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) any |= top[i][half] * scale > rows.reference[i][half] + kSlack;
    return any;
}

// References move up to the largest scores of their rows, and what was summed so far is rescaled.
FA_DEVICE void raise_references(Rows &rows, Output &o, const float (&top)[kSlabs][2], float scale) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float raised = max2(rows.reference[i][half], quad_max(top[i][half]) * scale);
            const float shrink = exp2_fast(rows.reference[i][half] - raised);
            rows.reference[i][half] = raised;
            rows.sum[i][half] *= shrink;
#pragma unroll
            for (int d = 0; d < kOwnDv / 8; ++d) {
                o[i][d][half * 2] *= shrink;
                o[i][d][half * 2 + 1] *= shrink;
            }
        }
}

// P = exp2(S * scale - reference) in place, for the part [part/parts, (part+1)/parts) of 16 keys.
FA_DEVICE void exponentials(Scores &s, Rows &rows, float scale, int key_step, int part, int parts) {
    constexpr int kCount = kSlabs * 8;
#pragma unroll
    for (int e = 0; e < kCount; ++e) {
        if (e < part * kCount / parts || e >= (part + 1) * kCount / parts) continue;
        const int i = e / 8, n = 2 * key_step + e / 4 % 2, half = e % 4 / 2;
        float &x = s[i][n][e % 4];
        x = exp2_fast(x * scale - rows.reference[i][half]);
        rows.sum[i][half] += x;
    }
}

FA_DEVICE void pack(Probs &probs, const Scores &s, int key_step) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const float(&x)[4] = s[i][2 * key_step + r / 2];
            probs[i][r] = pack2<kBf16>(x[r % 2 * 2], x[r % 2 * 2 + 1]);
        }
}

}  // namespace

#endif
