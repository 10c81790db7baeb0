// SPDX-License-Identifier: Apache-2.0
//
// Attention forward for the Ampere family and newer: mma.m16n8k16, ldmatrix, cp.async.
//
// Purpose: O = softmax(scale * Q K^T) V with online softmax, fp16 or bf16 in and out, fp32 inside.
// Workload: one block per BLOCK_M query rows of one head; each warp owns BLOCK_M / WARPS whole rows and
// walks the keys it can see in tiles of BLOCK_N, from the last tile to the first, so that only the first
// steps meet a mask (the ragged end of the keys, the causal diagonal) and only the first load is ragged.
// Invariants:
//  - shared memory is Q, then STAGES slots of {K tile, V tile}, then the barrier of the slots' turns; with
//    Q_IN_REGS = 2 Q's bytes are reused by the slots once its fragments are in registers. The output is
//    staged over Q's bytes, rows of a warp touched by that warp alone.
//  - STAGES = 1: K and V take turns, V arrives under Q K^T and the next K under P V, two block barriers a
//    step. STAGES > 1: tile t + STAGES - 1 is fetched under tile t, one barrier a step, in two halves.
//  - rows and columns that do not exist are zero in shared memory, so that 0 * garbage never happens.
//  - attn_softmax_mma.cuh's.
#include "attn_params.h"
#include "attn_tiles.cuh"
#include "fa_copy.cuh"
#include "fa_mma.cuh"
#include "fa_numeric.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE, kStages = STAGES, kThreads = FA_THREADS;
constexpr bool kQInRegs = Q_IN_REGS != 0, kQShares = Q_IN_REGS == 2;
constexpr int kSlabs = kM / (16 * WARPS);   // 16-row slabs a warp owns
constexpr int kDimSteps = kD / 16;          // 16-wide steps over the head dimension
constexpr int kOwnDv = kD;                  // columns of the output that a warp owns
constexpr int kKeySteps = kN / 16;          // 16-key steps over a tile

constexpr int kQBytes = kM * kD * 2, kTileBytes = kN * kD * 2, kSlotBytes = 2 * kTileBytes;
constexpr int kSlots = kQShares ? 0 : kQBytes;   // where the slots start
constexpr int kSlotsEnd = kSlots + kStages * kSlotBytes;
constexpr int kTurn = kSlotsEnd > kQBytes ? kSlotsEnd : kQBytes, kTurnBytes = kStages > 1 ? 16 : 0;
static_assert(FA_SMEM_BYTES == kTurn + kTurnBytes, "shared memory differs from the manifest");
static_assert(FA_THREADS == WARPS * 32 && kM % (16 * WARPS) == 0 && kN % 16 == 0, "tile and threads disagree");
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= kD, "the head does not fit its tile");

constexpr float kLn2 = 0.69314718055994531f;

}  // namespace

#include "attn_softmax_mma.cuh"

namespace {

using Layout = TileLayout<kD>;
using Copier = TileCopier<kD, HEAD_DIM, kThreads, ALIGNED != 0>;
using QFragments = u32[kSlabs][kQInRegs ? kDimSteps : 2][4];         // all steps, or this and the next

// What a block works on.
struct Work {
    int row0, head, batch;
};

FA_DEVICE Work find_work(const fa_attn_params &p) {
    u32 tile, head;
    place_tile(p, blockIdx.x, ((u32)p.seq_q + kM - 1) / kM, tile, head);
    return {(int)tile * kM, (int)(head % (u32)p.heads_q), (int)(head / (u32)p.heads_q)};
}

// One thread's way through the tiles of K or V, from the last to the first.
struct Stream {
    const u16 *next;          // this thread's first chunk of the tile to load next
    i64 row_stride, step;     // elements; a tile

    __device__ __forceinline__ Stream(const void *base, i64 offset, i64 row_stride, int tiles, const Copier &copier)
        : row_stride(row_stride), step(kN * row_stride) {
        next = (const u16 *)base + offset + (tiles - 1) * step + copier.global_offset(row_stride);
    }
    template <bool kRagged> __device__ __forceinline__ void load(const Copier &copier, u32 to, int rows_valid = kN) {
        copier.load<kN, kRagged>(to, next, row_stride, rows_valid);
        next -= step;
    }
};

// Lane offsets of ldmatrix in a tile, one per swizzled 16-column step; further steps and rows are immediates.
struct LaneOffsets {
    u32 rows16[Layout::kSteps];   // 16 rows x 16 columns in row order: Q (A operand) and V (transposed B)
    u32 keys16[Layout::kSteps];   // the same block as a B operand: K

    __device__ __forceinline__ explicit LaneOffsets(u32 lane) {
#pragma unroll
        for (int i = 0; i < Layout::kSteps; ++i) {
            rows16[i] = Layout::offset(lane & 15, 2 * i + (lane >> 4));
            keys16[i] = Layout::offset((lane & 7) + ((lane >> 4) << 3), 2 * i + ((lane >> 3) & 1));
            asm volatile("" : "+r"(rows16[i]), "+r"(keys16[i]));   // keep; do not compute again in every step
        }
    }
    FA_DEVICE u32 at(u32 tile, const u32 (&lane)[Layout::kSteps], int row_step, int col_step) {
        return tile + lane[col_step % Layout::kSteps] +
               (u32)(row_step * 16 * Layout::kPitch + col_step / Layout::kSteps * Layout::kPhase * 16);
    }
};

FA_DEVICE void load_q(QFragments &q, int slot, u32 tile, const LaneOffsets &lanes, int step) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i) ldmatrix_x4(q[i][slot], LaneOffsets::at(tile, lanes.rows16, i, step));
}

FA_DEVICE void load_all_q(QFragments &q, u32 tile, const LaneOffsets &lanes) {
#pragma unroll
    for (int d = 0; d < kDimSteps; ++d) load_q(q, kQInRegs ? d : 0, tile, lanes, d);
}

// S = Q K^T. `q_tile`: this warp's rows of Q; `k_tile`: the tile. Fragments are fetched one step ahead.
FA_DEVICE void multiply_qk(Scores &s, QFragments &q, u32 q_tile, u32 k_tile, const LaneOffsets &lanes) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int n = 0; n < kN / 8; ++n) s[i][n][0] = s[i][n][1] = s[i][n][2] = s[i][n][3] = 0.0f;

    u32 k[2][4];
    if constexpr (!kQInRegs) load_q(q, 0, q_tile, lanes, 0);
    ldmatrix_x4(k[0], LaneOffsets::at(k_tile, lanes.keys16, 0, 0));
#pragma unroll
    for (int d = 0; d < kDimSteps; ++d) {
#pragma unroll
        for (int n = 0; n < kKeySteps; ++n) {
            const int now = d * kKeySteps + n, next = now + 1;
            if (!kQInRegs && n == 0 && d + 1 < kDimSteps) load_q(q, (d + 1) & 1, q_tile, lanes, d + 1);
            if (next < kDimSteps * kKeySteps)
                ldmatrix_x4(k[next & 1], LaneOffsets::at(k_tile, lanes.keys16, next % kKeySteps, next / kKeySteps));
            const u32(&b)[4] = k[now & 1];
#pragma unroll
            for (int i = 0; i < kSlabs; ++i) {
                const u32(&a)[4] = q[i][kQInRegs ? d : d & 1];
                mma_16816<kBf16>(s[i][2 * n], a, b[0], b[1]);
                mma_16816<kBf16>(s[i][2 * n + 1], a, b[2], b[3]);
            }
        }
    }
}

// Where this thread's first score lies: its row and key.
struct Place {
    int row, key;
};

// Scores of keys that a row must not see become -inf.
FA_DEVICE void apply_mask(Scores &s, const fa_attn_params &p, const Place &at) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int limit = keys_seen_from(p, at.row + i * 16 + half * 8, at.key);
#pragma unroll
            for (int n = 0; n < kN / 8; ++n)
#pragma unroll
                for (int e = 0; e < 2; ++e)
                    if (n * 8 + e >= limit) s[i][n][half * 2 + e] = neg_infinity();
        }
}

// Make the scores ready for exp2. Common case: nothing to do. If the tile meets a mask, apply it; if some row
// of the warp has outgrown its reference, move the references up and rescale what was summed so far. Both are
// behind one branch, so that the row maxima are found among the last products of Q K^T.
FA_DEVICE void settle_scores(Scores &s, Rows &rows, Output &o, float scale, bool masked, const fa_attn_params &p,
                             const Place &at) {
    float top[kSlabs][2];
    row_tops(top, s);
    if (!warp_any(outgrown(top, rows, scale, masked))) return;

    if (masked) {
        apply_mask(s, p, at);
        row_tops(top, s);
    }
    raise_references(rows, o, top, scale);
}

// O += softmax(S) V. The exponentials of the next 16 keys are spread among the products of these 16.
// `after_reads` is called once the last of V has been asked for.
template <class Then>
FA_DEVICE void multiply_pv(Output &o, Scores &s, Rows &rows, float scale, u32 v_tile, const LaneOffsets &lanes,
                           Then after_reads) {
    Probs probs[2];
    u32 v[2][4];
    ldmatrix_x4_trans(v[0], LaneOffsets::at(v_tile, lanes.rows16, 0, 0));
    exponentials(s, rows, scale, 0, 0, 1);
    pack(probs[0], s, 0);
#pragma unroll
    for (int k = 0; k < kKeySteps; ++k) {
#pragma unroll
        for (int d = 0; d < kDimSteps; ++d) {
            const int now = k * kDimSteps + d, next = now + 1;
            if (next < kKeySteps * kDimSteps)
                ldmatrix_x4_trans(v[next & 1], LaneOffsets::at(v_tile, lanes.rows16, next / kDimSteps, next % kDimSteps));
            if (next == kKeySteps * kDimSteps - 1) after_reads();
            const u32(&b)[4] = v[now & 1];
#pragma unroll
            for (int i = 0; i < kSlabs; ++i) {
                mma_16816<kBf16>(o[i][2 * d], probs[k & 1][i], b[0], b[1]);
                mma_16816<kBf16>(o[i][2 * d + 1], probs[k & 1][i], b[2], b[3]);
            }
            if (k + 1 < kKeySteps) exponentials(s, rows, scale, k + 1, d, kDimSteps);
        }
        if (k + 1 < kKeySteps) pack(probs[(k + 1) & 1], s, k + 1);
    }
}

// Divide by the row sums, round, stage over Q's rows of this warp, store whole 16-byte chunks; then the LSE.
FA_DEVICE void store_output(const fa_attn_params &p, const Work &work, Output &o, const Rows &rows, u32 stage) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const int warp_row = work.row0 + (int)warp * kSlabs * 16;
    stage += warp * (kSlabs * 16 * Layout::kPitch);
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(rows.sum[i][half]);
            const float inverse = sum == 0.0f ? 0.0f : reciprocal(sum);   // NaN stays NaN
            const u32 row = i * 16 + half * 8 + lane / 4;
#pragma unroll
            for (int d = 0; d < kD / 8; ++d)
                store_shared(stage + Layout::offset(row, d) + lane % 4 * 4,
                               pack2<kBf16>(o[i][d][half * 2] * inverse, o[i][d][half * 2 + 1] * inverse));
            if (p.lse && lane % 4 == 0 && warp_row + (int)row < p.seq_q)
                p.lse[((i64)work.batch * p.heads_q + work.head) * p.seq_q + warp_row + (int)row] =
                    sum == 0.0f ? neg_infinity() : (rows.reference[i][half] + log2_fast(sum)) * kLn2;
        }
    warp_sync();

    u16 *out = (u16 *)p.o + work.batch * p.o_batch_stride + work.head * p.o_head_stride + warp_row * p.o_row_stride;
    const u32 chunk0 = lane % Layout::kPhase;
#pragma unroll
    for (u32 row = lane / Layout::kPhase; row < kSlabs * 16; row += 32 / Layout::kPhase) {
        if (warp_row + (int)row >= p.seq_q) break;
#pragma unroll
        for (u32 chunk = chunk0; chunk < Layout::kChunks; chunk += Layout::kPhase) {
            if (chunk * 8 >= HEAD_DIM) break;
            u32 x[4];
            load_shared(x, stage + Layout::offset(row, chunk));
            store_chunk<ALIGNED != 0>(out + (i64)row * p.o_row_stride + chunk * 8, x);
        }
    }
}

}  // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS) attn_fwd(const __grid_constant__ fa_attn_params p) {
    const Work work = find_work(p);
    const Visible keys = find_visible(p, work.row0, kM, kN);
    const int last_valid = p.seq_k - (keys.steps - 1) * kN;   // keys of the last tile that exist
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 smem = shared_address(shared_memory), slots = smem + kSlots, slots_end = smem + kSlotsEnd;
    const u32 q_tile = smem + warp * (kSlabs * 16 * Layout::kPitch);   // this warp's rows
    const LaneOffsets lanes(lane);
    const Copier copier(threadIdx.x);
    const float scale = max2(p.softmax_scale_log2, 1.0e-30f);          // so that -inf * scale is -inf

    const int kv_head = work.head / (p.heads_q / p.heads_kv);
    Stream k(p.k, work.batch * p.k_batch_stride + kv_head * p.k_head_stride, p.k_row_stride, keys.steps, copier);
    Stream v(p.v, work.batch * p.v_batch_stride + kv_head * p.v_head_stride, p.v_row_stride, keys.steps, copier);
    SplitBarrier<ALIGNED != 0> turn{smem + kTurn, 0};
    if (kStages > 1 && threadIdx.x == 0) turn.initialise(FA_THREADS);

    // Q, then the first tiles; one group of copies each.
    QFragments q;
    const u16 *q_rows = (const u16 *)p.q + work.batch * p.q_batch_stride + work.head * p.q_head_stride +
                        work.row0 * p.q_row_stride + copier.global_offset(p.q_row_stride);
    copier.load<kM, true>(smem, q_rows, p.q_row_stride, p.seq_q - work.row0);
    cp_async_commit();
    if constexpr (kQShares) {
        cp_async_wait<0>();
        block_sync();
        load_all_q(q, q_tile, lanes);
        block_sync();
    }
    if (keys.steps > 0) k.load<true>(copier, slots, last_valid);
    if constexpr (kStages == 1) cp_async_commit();
    if (keys.steps > 0) v.load<true>(copier, slots + kTileBytes, last_valid);
    cp_async_commit();
    u32 load_slot = slots;
#pragma unroll
    for (int t = 1; t < kStages - 1; ++t) {
        load_slot += kSlotBytes;
        if (t < keys.steps) k.load<false>(copier, load_slot), v.load<false>(copier, load_slot + kTileBytes);
        cp_async_commit();
    }
    if constexpr (kQInRegs && !kQShares) {
        cp_async_wait<(kStages == 1 ? 2 : kStages - 1)>();
        block_sync();
        load_all_q(q, q_tile, lanes);
    }
    if constexpr (kStages > 1) {
        if constexpr (!kQInRegs || kQShares) block_sync();   // the barrier is initialised
        cp_async_wait<kStages - 2>();
        turn.arrive();
    }

    Output o = {};
    Rows rows = no_keys_seen();
    Place at = {work.row0 + (int)warp * kSlabs * 16 + (int)lane / 4, (keys.steps - 1) * kN + (int)lane % 4 * 2};
    u32 slot = slots;
#pragma unroll 1
    for (int tile = keys.steps - 1; tile >= 0; --tile, at.key -= kN) {
        const bool masked = tile >= keys.clear_steps;
        Scores s;
        if constexpr (kStages == 1) {
            // K of this tile is on its way; V's place is free once every warp is here.
            cp_async_wait<1>();
            block_sync();
            if (tile != keys.steps - 1) {
                v.load<false>(copier, slot + kTileBytes);
                cp_async_commit();
            }
            multiply_qk(s, q, q_tile, slot, lanes);
            cp_async_wait<0>();
            block_sync();
            if (tile > 0) k.load<false>(copier, slot);
            cp_async_commit();
            cp_async_commit();   // an empty group, so that the wait above counts alike in every step
            settle_scores(s, rows, o, scale, masked, p, at);
            multiply_pv(o, s, rows, scale, slot + kTileBytes, lanes, [] {});
        } else {
            // Every warp's copies of this tile have landed, and every warp has left the slot filled next.
            turn.wait();
            load_slot = load_slot + kSlotBytes == slots_end ? slots : load_slot + kSlotBytes;
            if (tile >= kStages - 1) k.load<false>(copier, load_slot), v.load<false>(copier, load_slot + kTileBytes);
            cp_async_commit();
            multiply_qk(s, q, q_tile, slot, lanes);
            settle_scores(s, rows, o, scale, masked, p, at);
            multiply_pv(o, s, rows, scale, slot + kTileBytes, lanes, [&] {
                cp_async_wait<kStages < 2 ? 0 : kStages - 2>();
                turn.arrive();
            });
            slot = slot + kSlotBytes == slots_end ? slots : slot + kSlotBytes;
        }
    }

    if (kQShares || !kQInRegs || keys.steps == 0) {
        cp_async_wait<0>();
        block_sync();   // everybody is done with the bytes that the output is staged in
    }
    store_output(p, work, o, rows, smem);
}
