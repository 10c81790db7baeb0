// SPDX-License-Identifier: Apache-2.0
//
// The products of attention over tiles in shared memory, for keys and values of the kernel's type or of fp8, and for queries, too.
//
// Purpose: what the families that serve engines compute alike, whatever order they walk the keys in. Included behind
// the includer's constants: kBf16, kFp8, kElement and kQElement (bytes of K and V, and of Q), kM, kN, kD, kDv, kSlabs, kColumnWarps (warps that
// share the columns of a row slab's output), kQInRegs and kPhase (16-byte chunks of a line of K and of V: 8, or 4 where
// a row is not whole 128s).
// Invariants: of fp8, two accumulators of O side by side are the even and the odd ones of 16 columns.
#ifndef ATTN_SERVING_MMA_CUH
#define ATTN_SERVING_MMA_CUH

#include "attn_serving.cuh"
#include "attn_snippet.cuh"
#include "fa_e4m3.cuh"
#include "fa_mma.cuh"
#include "fa_shared.cuh"

namespace {

constexpr int kOwnDv = kDv / kColumnWarps;   // columns of the output that a warp owns
constexpr int kDimSteps = kD * kQElement / 32, kOutSteps = kOwnDv / 16, kKeySteps = kN / 16;

}  // namespace

#include "attn_softmax_mma.cuh"

namespace {

// A tile in shared memory: pieces of kLine 16-byte chunks of each row one behind the other, kRows lines each, chunks
// exchanged as the tensor copy engine does it.
template <int kRowBytes, int kRows, int kLine> struct SlabLayout {
    static constexpr int kPhase = kLine;
    static constexpr int kSteps = kPhase / 2;                     // steps of two chunks a piece
    static constexpr int kPieces = kRowBytes / (kPhase * 16);
    static_assert(kPieces > 0 && kRowBytes % (kPhase * 16) == 0, "a row is whole pieces");
    static constexpr int kPitch = kPhase * 16, kPieceBytes = kRows * kPitch;

    FA_DEVICE u32 offset(u32 row, u32 chunk) {
        return row * kPitch + ((chunk ^ (kPhase == 8 ? row & 7u : (row >> 1) & 3u)) << 4);
    }
    // Of any chunk of a row, whatever its piece.
    FA_DEVICE u32 place(u32 row, u32 chunk) { return chunk / kPhase * kPieceBytes + offset(row, chunk % kPhase); }
};
using QLayout = SlabLayout<kD * kQElement, kM, kD * kQElement % 128 == 0 ? 8 : 4>;
using KLayout = SlabLayout<kD * kElement, kN, kPhase>;
using VLayout = SlabLayout<kDv * kElement, kN, kPhase>;
using QFragments = u32[kSlabs][kQInRegs ? kDimSteps : 2][4];         // all steps, or this and the next

// How far one warp's columns of a tile of kBytes an element lie from the next one's.
template <class Layout, int kBytes> FA_DEVICE constexpr u32 columns_of_a_warp() {
    static_assert(kColumnWarps == 1 || kOwnDv * kBytes % Layout::kPitch == 0, "a warp's columns are whole pieces");
    return (u32)(kOwnDv * kBytes / Layout::kPitch * Layout::kPieceBytes);
}

// Lane offsets of ldmatrix in a tile, one per swizzled step of two chunks; further steps and rows are immediates. With queries of
// fp8, whose sums want more registers, the first is kept alone.
template <class Layout> struct LaneOffsets {
    static constexpr int kKept = kQElement == 1 ? 1 : Layout::kSteps;
    u32 step[kKept];

    // `keys`: the 16 x 16 block as a B operand (K); otherwise in row order, for Q (A operand) and V (transposed B).
    __device__ __forceinline__ LaneOffsets(u32 lane, bool keys) {
#pragma unroll
        for (int i = 0; i < kKept; ++i) {
            step[i] = keys ? Layout::offset((lane & 7) + ((lane >> 4) << 3), 2 * i + ((lane >> 3) & 1))
                           : Layout::offset(lane & 15, 2 * i + (lane >> 4));
            asm volatile("" : "+r"(step[i]));   // keep; do not compute again in every step
        }
    }
    __device__ __forceinline__ u32 at(u32 tile, int row_step, int column_step) const {
        return tile + (step[column_step % kKept] ^ (u32)(column_step % Layout::kSteps / kKept * 32)) +
               (u32)(row_step * 16 * Layout::kPitch + column_step / Layout::kSteps * Layout::kPieceBytes);
    }
};

// 32 bytes of Q's rows as A operands. For fp8 keys beside wider queries, of which a lane gets four neighbours at once, the columns are taken in
// the order that those come in: pair t of the operand's first half is columns 4t, 4t+1, of its second 4t+2, 4t+3.
FA_DEVICE void load_q(QFragments &q, int at, u32 tile, const LaneOffsets<QLayout> &lanes, int step) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) {
        if constexpr (kFp8 && kQElement == 2) {
            const u32 lane = threadIdx.x % 32, chunk = (u32)step * 2 + lane % 4 / 2;
            const u32 from = tile + QLayout::place(i * 16 + lane / 4, chunk) + lane % 2 * 8;
            load_shared(q[i][at][0], q[i][at][2], from);
            load_shared(q[i][at][1], q[i][at][3], from + 8 * QLayout::kPitch);   // 8 rows on: the same exchange
        } else {
            ldmatrix_x4(q[i][at], lanes.at(tile, i, step));
        }
    }
}

// S += Q K^T of fp8 keys and wider queries: four matrices are 16 keys by 32 columns.
FA_DEVICE void multiply_qk_fp8(Scores &s, QFragments &q, u32 q_tile, u32 k_tile, const LaneOffsets<QLayout> &rows,
                               const LaneOffsets<KLayout> &keys) {
#pragma unroll
    for (int d = 0; d < kDimSteps; d += 2) {
        if constexpr (!kQInRegs) load_q(q, 0, q_tile, rows, d), load_q(q, 1, q_tile, rows, d + 1);
#pragma unroll
        for (int n = 0; n < kKeySteps; ++n) {
            u32 k[4];
            ldmatrix_x4(k, keys.at(k_tile, n, d / 2));
#pragma unroll
            for (int j = 0; j < 4; ++j) {   // keys 8 * (j / 2) on, columns 16 * (d + j % 2) on
                const u32 b0 = widen<kBf16, kBytes01>(k[j]), b1 = widen<kBf16, kBytes23>(k[j]);
#pragma unroll
                for (int i = 0; i < kSlabs; ++i)
                    mma_16816<kBf16>(s[i][2 * n + j / 2], q[i][kQInRegs ? d + j % 2 : j % 2], b0, b1);
            }
        }
    }
}

// S = Q K^T. `q_tile`: this warp's rows of Q. Fragments are fetched one step ahead.
FA_DEVICE void multiply_qk(Scores &s, QFragments &q, u32 q_tile, u32 k_tile, const LaneOffsets<QLayout> &rows,
                           const LaneOffsets<KLayout> &keys) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int n = 0; n < kN / 8; ++n) s[i][n][0] = s[i][n][1] = s[i][n][2] = s[i][n][3] = 0.0f;

    if constexpr (kFp8 && kQElement == 2) return multiply_qk_fp8(s, q, q_tile, k_tile, rows, keys);
    u32 k[2][4];
    if constexpr (!kQInRegs) load_q(q, 0, q_tile, rows, 0);
    ldmatrix_x4(k[0], keys.at(k_tile, 0, 0));
#pragma unroll
    for (int d = 0; d < kDimSteps; ++d) {
        if (!kQInRegs && d + 1 < kDimSteps) load_q(q, (d + 1) & 1, q_tile, rows, d + 1);
#pragma unroll
        for (int n = 0; n < kKeySteps; ++n) {
            const int now = d * kKeySteps + n, next = now + 1;
            if (next < kDimSteps * kKeySteps) ldmatrix_x4(k[next & 1], keys.at(k_tile, next % kKeySteps, next / kKeySteps));
            const u32(&b)[4] = k[now & 1];
#pragma unroll
            for (int i = 0; i < kSlabs; ++i) {
                const u32(&a)[4] = q[i][kQInRegs ? d : d & 1];
                if constexpr (kQElement == 1) {
                    mma_16832_e4m3(s[i][2 * n], a, b[0], b[1]);
                    mma_16832_e4m3(s[i][2 * n + 1], a, b[2], b[3]);
                } else {
                    mma_16816<kBf16>(s[i][2 * n], a, b[0], b[1]);
                    mma_16816<kBf16>(s[i][2 * n + 1], a, b[2], b[3]);
                }
            }
        }
    }
}

// Scores become tanh(score * rate), rate = 2 log2(e) scale / softcap: 1 - 2 / (1 + exp2(x)).
FA_DEVICE void cap_scores(Scores &s, float rate) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int n = 0; n < kN / 8; ++n)
#pragma unroll
            for (int e = 0; e < 4; ++e) s[i][n][e] = 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(s[i][n][e] * rate));
}

#if SCORE_SNIPPET || MASK_SNIPPET
// What the user makes of scores, which are `unit` times what they are here; then they are natural ones. whole: the mask hides none.
template <class Work>
FA_DEVICE void apply_snippets(Scores &s, const Work &w, int row, int key, float unit, bool whole) {
    const Places places = w.places();
    const float first = (float)key;
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const auto q = query_place(w.query(row + i * 16 + half * 8) + w.sequence.offset);
#pragma unroll
            for (int n = 0; n < kN / 8; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float &x = s[i][n][half * 2 + e];
                    const auto k = key_place(key, first, n * 8 + e);
#if SCORE_SNIPPET
                    x = bent_score(x * unit, places, q, k);
#endif
#if MASK_SNIPPET
                    if (!whole && !is_visible(places, q, k)) x = neg_infinity();
#endif
                }
        }
}
#endif

// Scores of keys that a row must not see become -inf. `row`: this thread's first row; `key`: its first key.
template <class Work>
FA_DEVICE void apply_mask(Scores &s, const fa_attn_serving_params &p, const Work &w, int row, int key) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int query = w.query(row + i * 16 + half * 8);
            const int end = end_key(p, w.sequence, query), own_end = (end < w.end ? end : w.end) - key;
            const int begin = (WINDOW != 0 ? first_key(p, w.sequence, query) : 0) - key;
#pragma unroll
            for (int n = 0; n < kN / 8; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (n * 8 + e >= own_end || n * 8 + e < begin) s[i][n][half * 2 + e] = neg_infinity();
        }
}

// O += P V for 16 keys of fp8 values, of which a lane gets two columns of two keys at once: accumulators 2m and 2m + 1
// are the even and the odd ones of columns 16m on.
FA_DEVICE void multiply_pv_fp8(Output &o, const Probs &probs, u32 v_tile, const LaneOffsets<VLayout> &lanes, int key_step) {
#pragma unroll
    for (int d = 0; d < kOutSteps; d += 2) {
        u32 v[4];
        ldmatrix_x4_trans(v, lanes.at(v_tile, key_step, d / 2));
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const u32 even0 = widen<kBf16, kBytes02>(v[2 * j]), even1 = widen<kBf16, kBytes02>(v[2 * j + 1]);
            const u32 odd0 = widen<kBf16, kBytes13>(v[2 * j]), odd1 = widen<kBf16, kBytes13>(v[2 * j + 1]);
#pragma unroll
            for (int i = 0; i < kSlabs; ++i) {
                mma_16816<kBf16>(o[i][2 * (d + j)], probs[i], even0, even1);
                mma_16816<kBf16>(o[i][2 * (d + j) + 1], probs[i], odd0, odd1);
            }
        }
    }
}

}  // namespace

#endif
