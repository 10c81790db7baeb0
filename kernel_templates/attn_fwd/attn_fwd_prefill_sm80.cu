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
#include "attn_serving.cuh"
#include "attn_serving_params.h"
#include "attn_tiles.cuh"
#include "fa_copy.cuh"
#include "fa_numeric.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kFp8 = KV_FP8 != 0, kAligned = ALIGNED != 0, kQInRegs = Q_IN_REGS != 0;
constexpr int kElement = kFp8 ? 1 : 2;      // bytes of K and V
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE, kDv = DV_TILE, kStages = STAGES, kThreads = FA_THREADS;
constexpr int kColumnWarps = COLUMN_WARPS;
constexpr int kSlabs = kM * kColumnWarps / (16 * WARPS);   // 16-row slabs a warp owns
constexpr u32 kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kPhase = kD * kElement % 128 == 0 && kDv * kElement % 128 == 0 ? 8 : 4;   // 16-byte chunks a line

constexpr int kQBytes = kM * kD * 2, kKBytes = kN * kD * kElement, kVBytes = kN * kDv * kElement, kSlotBytes = kKBytes + kVBytes;
constexpr int kTilesBytes = kQBytes + kStages * kSlotBytes, kOutBytes = kM * kDv * 2;
static_assert(FA_SMEM_BYTES == (kTilesBytes > kOutBytes ? kTilesBytes : kOutBytes), "shared memory differs from the manifest");
static_assert(kThreads == WARPS * 32 && kSlabs * 16 * WARPS == kM * kColumnWarps && kN % 16 == 0 && kStages >= 2,
              "tile and threads disagree");
static_assert(HEAD_DIM % (16 / kElement) == 0 && HEAD_DIM_V % (16 / kElement) == 0, "rows are whole chunks");
static_assert(HEAD_DIM <= kD && HEAD_DIM_V <= kDv, "the head does not fit its tile");

}  // namespace

#include "attn_serving_mma.cuh"

namespace {

using OutLayout = SlabLayout<kDv * 2, kM, kDv * 2 % 128 == 0 ? 8 : 4>;

// What a block works on.
struct Work {
    int batch, head, kv_head;
    int row0, rows;              // of its queries: the first, and how many of the sequence's exist from there on
    int begin, end;              // keys that some row sees
    int clear_begin, clear_end;  // keys that every row sees
    Sequence sequence;
#if BUFFER_COUNT > 0
    const fa_attn_buffer_params *buffers;
#endif

    __device__ __forceinline__ int query(int row) const { return row0 + row; }
    __device__ __forceinline__ Places places() const { return {batch, head, kv_head, sequence.len_q, sequence.len_k AND_BUFFERS(buffers)}; }
};

// The steps of a tile that some row sees, from the last to the first.
#if MASK_SNIPPET
struct Steps {
    SeenSteps<kN> seen;
    const int count;

    __device__ __forceinline__ explicit Steps(int steps) : seen(steps), count(steps) {}
    __device__ __forceinline__ bool next(const Work &w, int &ret_key, bool &ret_whole) {
        const int first = w.query(0) + w.sequence.offset;
        const int step = seen.next(w.places(), first, first + w.rows - 1, w.begin, count, ret_whole);
        ret_key = w.begin + step * kN;
        return step >= 0;
    }
};
#else
struct Steps {
    int left;

    __device__ __forceinline__ explicit Steps(int steps) : left(steps) {}
    __device__ __forceinline__ bool next(const Work &w, int &ret_key, bool &) {
        ret_key = w.begin + --left * kN;
        return left >= 0;
    }
};
#endif

// False: nothing to do.
FA_DEVICE bool find_work(Work &w, const fa_attn_serving_params &p) {
    const fa_attn_params &d = p.dense;
    u32 tile, head;
    place_tile(d, blockIdx.x, ((u32)d.seq_q + kM - 1) / kM, tile, head);
    w.batch = (int)(head / (u32)d.heads_q), w.head = (int)(head % (u32)d.heads_q);
    w.kv_head = w.head / (d.heads_q / d.heads_kv);
    w.sequence = find_sequence(p, w.batch);
#if BUFFER_COUNT > 0
    w.buffers = p.buffer;
#endif
    const Sequence &s = w.sequence;
    w.row0 = (int)tile * kM;
    w.rows = s.len_q - w.row0 < kM ? s.len_q - w.row0 : kM;
    if (w.rows <= 0) return false;
    const int last = w.row0 + w.rows - 1;
    w.begin = first_key(p, s, w.row0), w.end = end_key(p, s, last);
    w.clear_begin = first_key(p, s, last), w.clear_end = end_key(p, s, w.row0);
    return true;
}

// 16 bytes of `from`, of elements of kBytes, to shared memory; where `exists` is false zeros, and nothing is read.
template <int kBytes> FA_DEVICE void copy_chunk(u32 to, const char *from, bool exists) {
    if constexpr (kAligned) {
        cp_async_16_zfill(to, from, exists ? 16 : 0);
    } else {
        u32 x[4] = {0, 0, 0, 0};
        if (exists) {
#pragma unroll
            for (int i = 0; i < 16 / kBytes; ++i) {
                const u32 element = kBytes == 1 ? (u32)(unsigned char)from[i] : (u32)((const u16 *)from)[i];
                x[i * kBytes / 4] |= element << (i * kBytes % 4 * 8);
            }
        }
        store_shared_16(to, x);
    }
}

// One thread's share in the tiles of K and V: the same rows of each, from the last tile to the first.
struct Stream {
    static constexpr int kPass = kThreads / kPhase;               // rows that the block copies at once
    static constexpr int kPasses = (kN + kPass - 1) / kPass;

    u32 row, chunk;       // this thread's first row of a tile; its chunk of a line
    const char *k, *v;    // its chunk in key 0 of the sequence, or of page 0
    const int *table;     // the sequence's pages
    int begin, end;       // of the keys that may be read
    Steps steps;
    int key;              // first key of the tile to load next; before `begin`: there is none
    int page[kPasses];    // that tile's pages: what the table says

    __device__ __forceinline__ Stream(const fa_attn_serving_params &p, const Work &w, int count) : steps(count) {
        row = threadIdx.x / kPhase, chunk = threadIdx.x % kPhase;
        k = (const char *)p.dense.k + (w.sequence.k + w.kv_head * p.dense.k_head_stride) * kElement + chunk * 16;
        v = (const char *)p.dense.v + (w.sequence.v + w.kv_head * p.dense.v_head_stride) * kElement + chunk * 16;
        table = p.block_table + (PAGED != 0 ? w.batch * p.block_table_stride : 0);
        begin = w.begin, end = w.end;
        look_up(w);
    }

    __device__ __forceinline__ void look_up(const Work &w) {
        bool whole;
        steps.next(w, key, whole);
        if constexpr (PAGED != 0) {
#pragma unroll
            for (int pass = 0; pass < kPasses; ++pass) {
                const int its_key = key + (int)row + pass * kPass;
                const bool asked = key >= begin && its_key < end && (int)row + pass * kPass < kN;
                page[pass] = asked ? load_int(table + (u32)its_key / kPage) : -1;
            }
        }
    }

    template <class Layout, int kValid>
    __device__ __forceinline__ void copy_row(u32 to, const char *from, u32 tile_row, bool exists) const {
#pragma unroll
        for (int piece = 0; piece < Layout::kPieces; ++piece) {
            const int column = piece * kPhase * 16;   // bytes, as kValid is
            const bool inside = column + kPhase * 16 <= kValid || (int)chunk * 16 + column < kValid;
            copy_chunk<kElement>(to + Layout::offset(tile_row, chunk) + piece * Layout::kPieceBytes, from + column,
                                 exists && inside);
        }
    }

    template <bool kRagged> __device__ __forceinline__ void copy_tile(const fa_attn_serving_params &p, u32 slot) const {
        const fa_attn_params &d = p.dense;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const u32 tile_row = row + pass * kPass;
            if (kN % kPass != 0 && tile_row >= kN) break;   // threads beyond the tile sit out
            const int its_key = key + (int)tile_row;
            bool exists = !kRagged || its_key < end;
            i64 k_from = its_key * d.k_row_stride, v_from = its_key * d.v_row_stride;
            if constexpr (PAGED != 0) {
                exists = exists && (u32)page[pass] < (u32)p.num_pages;
                const i64 of = exists ? page[pass] : 0;
                const u32 within_page = (u32)its_key % kPage;
                k_from = of * d.k_batch_stride + within_page * d.k_row_stride;
                v_from = of * d.v_batch_stride + within_page * d.v_row_stride;
            }
            copy_row<KLayout, HEAD_DIM * kElement>(slot, k + k_from * kElement, tile_row, exists);
            copy_row<VLayout, HEAD_DIM_V * kElement>(slot + kKBytes, v + v_from * kElement, tile_row, exists);
        }
    }

    // Starts the copies of the next tile and closes their group, also where there is no tile. kRagged: it may end
    // behind the last key.
    template <bool kRagged> __device__ __forceinline__ void next(const fa_attn_serving_params &p, const Work &w, u32 slot) {
        if (key >= begin) {
            copy_tile<kRagged>(p, slot);
            look_up(w);
        }
        cp_async_commit();
    }
};

FA_DEVICE void copy_q(const fa_attn_serving_params &p, const Work &w, u32 smem) {
    const char *q = (const char *)((const u16 *)p.dense.q + w.sequence.q + w.head * p.dense.q_head_stride +
                                   w.row0 * p.dense.q_row_stride);
    for (u32 i = threadIdx.x; i < kM * (kD / 8); i += kThreads) {
        const u32 row = i / (kD / 8), chunk = i % (kD / 8);
        const bool exists = (int)row < w.rows && chunk * 8 < HEAD_DIM;
        copy_chunk<2>(smem + QLayout::place(row, chunk), q + (row * p.dense.q_row_stride + chunk * 8) * 2, exists);
    }
}

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

// O += softmax(S) V. The exponentials of the next 16 keys are spread among the products of these 16.
FA_DEVICE void multiply_pv(Output &o, Scores &s, Rows &rows, float scale, u32 v_tile, const LaneOffsets<VLayout> &lanes) {
    Probs probs[2];
    u32 v[2][4];
    if constexpr (!kFp8) ldmatrix_x4_trans(v[0], lanes.at(v_tile, 0, 0));
    exponentials(s, rows, scale, 0, 0, 1);
    pack(probs[0], s, 0);
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
        if (k + 1 < kKeySteps) pack(probs[(k + 1) & 1], s, k + 1);
    }
}

// Rounds this thread's part of a row to where it is staged. `stage`: of the warp's columns.
FA_DEVICE void stage_row(u32 stage, u32 row, const float (&o)[kOwnDv / 8][4], int half, float inverse) {
    const u32 t = threadIdx.x % 4;
#pragma unroll
    for (int d = 0; d < kOwnDv / 8; d += 2) {
        const float(&x)[4] = o[d], (&y)[4] = o[d + 1];
        const int a = half * 2, b = half * 2 + 1;
        if constexpr (kFp8) {   // columns 8d + 4t on: x has the even ones, y the odd ones
            const u32 to = stage + OutLayout::place(row, d + t / 2) + t % 2 * 8;
            store_shared_4(to, pack2<kBf16>(x[a] * inverse, y[a] * inverse));
            store_shared_4(to + 4, pack2<kBf16>(x[b] * inverse, y[b] * inverse));
        } else {
            store_shared_4(stage + OutLayout::place(row, d) + t * 4, pack2<kBf16>(x[a] * inverse, x[b] * inverse));
            store_shared_4(stage + OutLayout::place(row, d + 1) + t * 4, pack2<kBf16>(y[a] * inverse, y[b] * inverse));
        }
    }
}

// Divides by the row sums, rounds, stages the warp's rows and columns and stores them in 16-byte chunks; the LSE beside
// the first columns.
FA_DEVICE void store_output(const fa_attn_serving_params &p, const Work &w, const Output &o, const Rows &rows, u32 smem,
                            int warp_row, u32 column_warp) {
    const fa_attn_params &d = p.dense;
    const u32 lane = threadIdx.x % 32, stage = smem + column_warp * columns_of_a_warp<OutLayout, 2>();
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = warp_row + i * 16 + half * 8 + (int)lane / 4;
            const Total total = {rows.reference[i][half], quad_sum(rows.sum[i][half])};
            const Closed row_end = close_row(p, w.batch, w.kv_head, w.head, total);
            stage_row(stage, (u32)row, o[i], half, row_end.inverse);
            if (d.lse && column_warp == 0 && lane % 4 == 0 && row < w.rows)
                d.lse[w.sequence.lse + w.head * w.sequence.lse_head + w.row0 + row] = row_end.lse;
        }
    warp_sync();

    u16 *out = (u16 *)d.o + w.sequence.o + w.head * d.o_head_stride + w.row0 * d.o_row_stride +
               column_warp * kOwnDv;
#pragma unroll
    for (int r = (int)lane / OutLayout::kPhase; r < kSlabs * 16; r += 32 / OutLayout::kPhase) {
        const int row = warp_row + r;
        if (row >= w.rows) break;
#pragma unroll
        for (u32 chunk = lane % OutLayout::kPhase; chunk < kOwnDv / 8; chunk += OutLayout::kPhase) {
            if (column_warp * kOwnDv + chunk * 8 >= HEAD_DIM_V) break;
            u32 x[4];
            load_shared_16(x, stage + OutLayout::place((u32)row, chunk));
            u16 *to = out + row * d.o_row_stride + chunk * 8;
            if constexpr (kAligned) {
                store_global_16(to, x);
            } else {
#pragma unroll
                for (int e = 0; e < 8; ++e) to[e] = (u16)(x[e / 2] >> (e % 2 * 16));
            }
        }
    }
}

}  // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
attn_fwd(const __grid_constant__ fa_attn_serving_params p) {
    Work w;
    if (!find_work(w, p)) return;
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, column_warp = warp % kColumnWarps;
    const int warp_row = (int)(warp / kColumnWarps) * kSlabs * 16;   // this warp's first row
    const u32 smem = shared_address(shared_memory), slots = smem + kQBytes, slots_end = slots + kStages * kSlotBytes;
    const u32 q_tile = smem + (u32)warp_row * QLayout::kPitch;
    const u32 v_columns = kKBytes + column_warp * columns_of_a_warp<VLayout, kElement>();   // this warp's, in a slot
    const LaneOffsets<QLayout> q_lanes(lane, false);
    const LaneOffsets<KLayout> k_lanes(lane, true);
    const LaneOffsets<VLayout> v_lanes(lane, false);
    const int steps = w.end > w.begin ? (w.end - w.begin + kN - 1) / kN : 0;

    // Q, then the first tiles; one group of copies each.
    Stream stream(p, w, steps);
    copy_q(p, w, smem);
    cp_async_commit();
    u32 load_slot = slots;
    stream.next<true>(p, w, load_slot);
#pragma unroll
    for (int t = 1; t < kStages - 1; ++t) stream.next<false>(p, w, load_slot += kSlotBytes);
    QFragments q;
    if constexpr (kQInRegs) {
        cp_async_wait<kStages - 1>();
        block_sync();
#pragma unroll
        for (int d = 0; d < kDimSteps; ++d) load_q(q, d, q_tile, q_lanes, d);
    }

    Output o = {};
    Rows rows = no_keys_seen();
    const Scale scale = find_scale(p, w.batch, w.kv_head);
    const float exponent = SCORE_SNIPPET != 0 ? kLog2E : scale.exponent;
    u32 slot = slots;
    Steps own_steps(steps);
    int key;
    bool whole = true;
#pragma unroll 1
    while (own_steps.next(w, key, whole)) {
        // This tile has landed for the whole block, and every warp has left the slot filled next.
        cp_async_wait<kStages - 2>();
        block_sync();
        load_slot = load_slot + kSlotBytes == slots_end ? slots : load_slot + kSlotBytes;
        stream.next<false>(p, w, load_slot);

        Scores s;
        multiply_qk(s, q, q_tile, slot, q_lanes, k_lanes);
        if constexpr (SOFTCAP != 0) cap_scores(s, scale.cap_rate);
        const int row = warp_row + (int)lane / 4, own_key = key + (int)lane % 4 * 2;
#if SCORE_SNIPPET || MASK_SNIPPET
        apply_snippets(s, w, row, own_key, scale.exponent * kLn2, whole);
#endif
        const bool masked = key < w.clear_begin || key + kN > w.clear_end;
        settle_scores(s, rows, o, exponent, masked, p, w, row, own_key);
        multiply_pv(o, s, rows, exponent, slot + v_columns, v_lanes);
        slot = slot + kSlotBytes == slots_end ? slots : slot + kSlotBytes;
    }

    cp_async_wait<0>();
    block_sync();   // everybody is done with the bytes that the output is staged in
    store_output(p, w, o, rows, smem, warp_row, column_warp);
}
