// SPDX-License-Identifier: Apache-2.0
//
// Attention forward for many queries as inference engines call it, on the Ampere family and newer.
//
// Purpose: O = softmax(scale * Q K^T) V with lengths on the device, pages of any size, windows, softcap, sinks, fp8 keys
// and values, values with a head dimension of their own, and tensors that are aligned to their elements alone.
// Workload: one block per BLOCK_M queries of one head of one sequence; the grid depends on numbers that the host knows,
// and blocks behind a sequence's end leave at once. Each COLUMN_WARPS warps own the same rows: each computes all of their
// scores and its share of the output's columns. The keys that some row of the tile sees are walked in tiles of BLOCK_N
// through STAGES slots, from the last to the first, so that the ragged tile comes first; tiles that every row sees
// whole meet no mask.
// Invariants:
//  - shared memory is Q, then STAGES slots of {K tile, V tile}; in the end the output is staged over all of it, rows
//    and columns of a warp touched by that warp alone.
//  - tile t + STAGES - 1 is fetched under tile t, one barrier a step. Each row of a tile is looked up in the block
//    table by itself, a tile ahead of its copy, so that pages may have any size.
//  - rows and columns that do not exist, and keys that no row of the tile sees, are zeros in shared memory, so that
//    0 * garbage never happens.
//  - attn_softmax_mma.cuh's.
#include "attn_prefill_tiles.cuh"

namespace {

// Makes the scores ready for exp2: masked where some row must not see the tile whole, and references moved up where
// a row of the warp has outgrown its own, with what was summed so far. Both are rare, behind one branch.
FA_DEVICE void settle_scores(Scores &s, Rows &rows, Output &o, float scale, bool masked, const fa_attn_serving_params &p,
                             const Work &w, int row, int key) {
    float top[kSlabs][2];
    row_tops(top, s);
    if (!warp_any(masked || outgrown(top, rows, scale))) return;

    if (masked) {
        apply_mask(s, p, w, row, key);
        row_tops(top, s);
    }
    raise_references(rows, o, top, scale);
}

FA_DEVICE void pack_kept(Probs &probs, const Scores &s, const Rows &rows, int key_step) {
    pack(probs, s, key_step);
#if DROPOUT
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) rows.dropped[i].apply(probs[i], key_step * 8);
#endif
}

// O += softmax(S) V. The exponentials of the next 16 keys are spread among the products of these 16.
FA_DEVICE void multiply_pv(Output &o, Scores &s, Rows &rows, float scale, u32 v_tile, const LaneOffsets<VLayout> &lanes) {
    Probs probs[2];
    u32 v[2][4];
    if constexpr (!kFp8) ldmatrix_x4_trans(v[0], lanes.at(v_tile, 0, 0));
    exponentials(s, rows, scale, 0, 0, 1);
    pack_kept(probs[0], s, rows, 0);
#pragma unroll
    for (int k = 0; k < kKeySteps; ++k) {
        if constexpr (kFp8) {
            multiply_pv_fp8(o, probs[k & 1], v_tile, lanes, k);
            if (k + 1 < kKeySteps) exponentials(s, rows, scale, k + 1, 0, 1);
        } else {
#pragma unroll
            for (int d = 0; d < kOutSteps; ++d) {
                const int now = k * kOutSteps + d, next = now + 1;
                if (next < kKeySteps * kOutSteps)
                    ldmatrix_x4_trans(v[next & 1], lanes.at(v_tile, next / kOutSteps, next % kOutSteps));
                const u32(&b)[4] = v[now & 1];
#pragma unroll
                for (int i = 0; i < kSlabs; ++i) {
                    mma_16816<kBf16>(o[i][2 * d], probs[k & 1][i], b[0], b[1]);
                    mma_16816<kBf16>(o[i][2 * d + 1], probs[k & 1][i], b[2], b[3]);
                }
                if (k + 1 < kKeySteps) exponentials(s, rows, scale, k + 1, d, kOutSteps);
            }
        }
        if (k + 1 < kKeySteps) pack_kept(probs[(k + 1) & 1], s, rows, k + 1);
    }
}

}  // namespace

#include "attn_prefill_kernel.cuh"
