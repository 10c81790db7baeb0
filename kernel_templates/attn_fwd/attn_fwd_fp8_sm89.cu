// SPDX-License-Identifier: Apache-2.0
//
// Attention forward of e4m3 queries, keys and values by mma.sync, on Ada and newer (sm_89).
//
// Purpose: O = softmax(scale * Q K^T) V with e4m3 in and fp16 or bf16 out, for all that attn_fwd_prefill_sm80 takes of heads up to
// 256. k_scale holds what scores are multiplied by (the scale of keys times that of queries), v_scale that of values.
// Workload and shared memory: attn_fwd_prefill_sm80.cu's, with Q of bytes.
// Invariants:
//  - weights are P = 2^(exponent - reference), and a row's reference lies kOffset below the largest exponent that it has met: the
//    key that decides a row has a power of two, exact in e4m3, which ends at 448 above and at 2^-9 below.
//  - a tensor core's sum keeps about 14 bits. Of P V it spans one step of BLOCK_N keys; then it is added to O in fp32, which shrinks
//    in the same instruction by what the reference moved.
//  - values are turned as they are read: a lane has two columns of two keys, and of two such the bytes of one column (fa_e4m3.cuh has
//    the order of keys, in which weights lie already). Accumulators are the even and the odd ones of 16 columns.
#include "attn_prefill_tiles.cuh"

namespace {

constexpr float kOffset = 8.0f;   // log2 of the largest weight
static_assert(Q_FP8 == 1 && kFp8 && kN % 32 == 0 && kColumnWarps == 1, "e4m3 is taken 32 keys at a time");

FA_DEVICE void settle_scores(Scores &s, Rows &, Output &, float, bool masked, const fa_attn_serving_params &p, const Work &w, int row,
                             int key) {
    if (masked) apply_mask(s, p, w, row, key);
}

// References move up to this step's scores. True maxima: `shrink` is what earlier sums are multiplied by.
FA_DEVICE void move_references(float (&shrink)[kSlabs][2], const Scores &s, Rows &rows, float scale) {
    float top[kSlabs][2];
    row_tops(top, s);
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float raised = max2(rows.reference[i][half], quad_max(top[i][half]) * scale - kOffset);
            shrink[i][half] = exp2_fast(rows.reference[i][half] - raised);
            rows.reference[i][half] = raised;
            rows.sum[i][half] *= shrink[i][half];
        }
}

// False, as no offset is negative; but what stands before `if (never(...)) return;` is computed there, since both ways need it. By
// itself the assembler begins so many products that their sums have no registers. Each `place` is asked about once.
FA_DEVICE bool never(u32 offset, int place) {
    u32 x;
    asm volatile("mov.b32 %0, %1;" : "=r"(x) : "r"(offset + place));
    return (int)x < 0;
}

// O = O shrunk + softmax(S) V, 32 columns at a time.
FA_DEVICE void multiply_pv(Output &o, Scores &s, Rows &rows, float scale, u32 v_tile, const LaneOffsets<VLayout> &lanes) {
    float shrink[kSlabs][2];
    move_references(shrink, s, rows, scale);
    u32 probs[kN / 32][kSlabs][4];
#pragma unroll
    for (int k = 0; k < kKeySteps; ++k) {
        exponentials(s, rows, scale, k, 0, 1);
#if DROPOUT
#pragma unroll
        for (int e = 0; e < kSlabs * 8; ++e) s[e / 8][2 * k + e % 8 / 4][e % 4] *= rows.dropped[e / 8].factor(k * 8 + e % 8);
#endif
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                const float(&x)[4] = s[i][2 * k], (&y)[4] = s[i][2 * k + 1];
                probs[k / 2][i][k % 2 * 2 + half] = pack_e4m3(x[half * 2], x[half * 2 + 1], y[half * 2], y[half * 2 + 1]);
            }
    }
    if (never(lanes.step[0], kOutSteps)) return;
#pragma unroll
    for (int d = 0; d < kOutSteps; d += 2) {
        float sum[kSlabs][4][4] = {};
#pragma unroll
        for (int k = 0; k < kN / 32; ++k) {
            u32 low[4], high[4];   // of 16 keys each, two by two, and of 16 columns, then of the next 16
            ldmatrix_x4_trans(low, lanes.at(v_tile, 2 * k, d / 2));
            ldmatrix_x4_trans(high, lanes.at(v_tile, 2 * k + 1, d / 2));
#pragma unroll
            for (int j = 0; j < 4; j += 2) {
                const u32 even0 = pick_bytes<0x6420>(low[j], low[j + 1]), even1 = pick_bytes<0x6420>(high[j], high[j + 1]);
                const u32 odd0 = pick_bytes<0x7531>(low[j], low[j + 1]), odd1 = pick_bytes<0x7531>(high[j], high[j + 1]);
#pragma unroll
                for (int i = 0; i < kSlabs; ++i) {
                    mma_16832_e4m3(sum[i][j], probs[k][i], even0, even1);
                    mma_16832_e4m3(sum[i][j + 1], probs[k][i], odd0, odd1);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int j = 0; j < 4; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) o[i][2 * d + j][e] = o[i][2 * d + j][e] * shrink[i][e / 2] + sum[i][j][e];
        if (never(lanes.step[0], d)) return;
    }
}

}  // namespace

#include "attn_prefill_kernel.cuh"
