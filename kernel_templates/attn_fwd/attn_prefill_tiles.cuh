// SPDX-License-Identifier: Apache-2.0
//
// A tile of queries of one head on mma.sync: what a block works on, and how its keys and values come into shared memory.
//
// Purpose: what attn_fwd_prefill_sm80 and attn_fwd_fp8_sm89 do alike before and between their products. attn_prefill_kernel.cuh has
// the rest. attn_fwd_prefill_sm80.cu says how a block goes about its keys.
#ifndef ATTN_PREFILL_TILES_CUH
#define ATTN_PREFILL_TILES_CUH

#include "attn_serving.cuh"
#include "attn_serving_params.h"
#include "attn_tiles.cuh"
#include "fa_copy.cuh"
#include "fa_numeric.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kFp8 = KV_FP8 != 0, kAligned = ALIGNED != 0, kQInRegs = Q_IN_REGS != 0;
constexpr int kElement = kFp8 ? 1 : 2, kQElement = Q_FP8 != 0 ? 1 : 2;   // bytes of K and V, and of Q
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE, kDv = DV_TILE, kStages = STAGES, kThreads = FA_THREADS;
constexpr int kColumnWarps = COLUMN_WARPS;
constexpr int kSlabs = kM * kColumnWarps / (16 * WARPS);   // 16-row slabs a warp owns
constexpr u32 kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kPhase = kD * kElement % 128 == 0 && kDv * kElement % 128 == 0 ? 8 : 4;   // 16-byte chunks a line

constexpr int kQBytes = kM * kD * kQElement, kKBytes = kN * kD * kElement, kVBytes = kN * kDv * kElement, kSlotBytes = kKBytes + kVBytes;
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
#if DROPOUT
    w.begin = w.begin / 16 * 16;   // bits are of 16 keys
#endif
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
        store_shared(to, x);
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
    constexpr u32 kChunk = 16 / kQElement, kChunks = kD / kChunk;   // numbers of a chunk, chunks of a row
    const char *q = (const char *)p.dense.q + (w.sequence.q + w.head * p.dense.q_head_stride + w.row0 * p.dense.q_row_stride) * kQElement;
    for (u32 i = threadIdx.x; i < kM * kChunks; i += kThreads) {
        const u32 row = i / kChunks, chunk = i % kChunks;
        const bool exists = (int)row < w.rows && chunk * kChunk < HEAD_DIM;
        copy_chunk<kQElement>(smem + QLayout::place(row, chunk), q + (row * p.dense.q_row_stride + chunk * kChunk) * kQElement, exists);
    }
}

}  // namespace

#endif
