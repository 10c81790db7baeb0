// SPDX-License-Identifier: Apache-2.0
//
// Attention forward for few queries and many keys, on the Ampere family and newer: keys split among blocks.
//
// Purpose: O = softmax(scale * Q K^T) V as inference engines call it: lengths on the device, pages, windows,
// softcap, sinks. Memory bandwidth decides, so K and V are read once and many bytes are kept on their way.
// Workload: the query heads that share a key head, times the queries, are the rows of one problem (row r is
// query r / group, head r % group); a block takes BLOCK_M rows and one part of the keys they see. Its warps form
// GROUPS groups, each with a stream of its own: group g takes tiles g, g + GROUPS, … of BLOCK_N keys through
// STAGES slots and meets the others only at the end. Each COLUMN_WARPS warps of a group own the same rows: each
// computes all of their scores and its share of the output's columns. The grid is {rows and heads and batches,
// parts}: it depends on numbers that the host knows, and blocks without work leave at once.
// Invariants:
//  - shared memory is Q, then GROUPS * STAGES slots of {K tile, V tile}; with V_IN_K, of K tiles, whose first pieces
//    are V's. When the streams have ended, the same bytes hold the groups' accumulators and sums, and then a word
//    that says whether this block is the last.
//  - a part is a multiple of kStep keys. With BATCH_INVARIANT its length follows from the sequence alone.
//  - with several parts, the block that comes last combines them, in their order; a part without keys is
//    no part. A row that has seen no key keeps the finite reference kNoKey and the sum 0, so that no exponent
//    is infinite minus infinite.
//  - keys that no row of the block sees are not read; they are zeros in shared memory, so that 0 * garbage never
//    happens. Tiles start at a multiple of 16 keys, so that 16 keys never straddle two pages.
#include "attn_serving.cuh"
#include "attn_serving_params.h"
#include "fa_copy.cuh"
#include "fa_global.cuh"
#include "fa_numeric.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kFp8 = KV_FP8 != 0;
constexpr int kElement = kFp8 ? 1 : 2, kQElement = 2;   // bytes of K and V, and of Q in shared memory
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE, kDv = DV_TILE, kStages = STAGES, kGroups = GROUPS;
constexpr int kThreads = FA_THREADS, kGroupThreads = kThreads / kGroups, kGroupWarps = kGroupThreads / 32;
constexpr int kColumnWarps = COLUMN_WARPS;
constexpr int kSlabs = kM * kColumnWarps / (16 * kGroupWarps);   // 16-row slabs a warp owns
constexpr int kStep = kN * kGroups;               // keys that the groups take together
constexpr u32 kPage = PAGED != 0 ? PAGE_SIZE : 16;
constexpr bool kQInRegs = kSlabs * kD <= 128;
constexpr int kPhase = kD * kElement % 128 == 0 ? 8 : 4;   // 16-byte chunks a line; K's and V's are of one kind

constexpr int kQBytes = kM * kD * 2, kKBytes = kN * kD * kElement, kVBytes = V_IN_K != 0 ? 0 : kN * kDv * kElement, kSlotBytes = kKBytes + kVBytes;
constexpr int kStreamBytes = kGroups * kStages * kSlotBytes;
constexpr int kMergePitch = kDv + 8;              // floats; rows start 8 banks apart
constexpr int kMergeBytes = kGroups * kM * (kMergePitch + 2) * 4;
static_assert(FA_SMEM_BYTES == (kQBytes + kStreamBytes > kMergeBytes ? kQBytes + kStreamBytes : kMergeBytes),
              "shared memory differs from the manifest");
static_assert(kGroupWarps * 32 * kGroups == kThreads && kSlabs * kGroupWarps * 16 == kM * kColumnWarps &&
              kN % 16 == 0 && kStages >= 2, "tile and threads disagree");
static_assert(HEAD_DIM % (16 / kElement) == 0 && HEAD_DIM_V % (16 / kElement) == 0, "rows are whole chunks");
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= kD && HEAD_DIM_V <= kDv, "the head does not fit its tile");
static_assert(ALIGNED != 0 && kPage % 16 == 0, "copies are of 16 bytes, and 16 keys are of one page");
static_assert(kDv * kElement % (kPhase * 16) == 0, "a thread copies the same rows of K and V");
static_assert(V_IN_K == 0 || kDv <= kD, "V is no part of K");

}  // namespace

#include "attn_serving_mma.cuh"
#include "attn_split.cuh"

namespace {

// One thread's share in the stream of its group: the same rows of every tile of K and of V.
struct Stream {
    static constexpr int kPhase = KLayout::kPhase;
    static constexpr int kPass = kGroupThreads / kPhase;          // rows that the group copies at once
    static constexpr int kSpan = kPass > 16 ? kPass : 16;         // rows for which a thread needs one page
    static constexpr int kLookups = kN > kSpan ? kN / kSpan : 1;

    u32 row, chunk;                 // this thread's first row of a tile; its chunk within kPhase chunks
    const char *k, *v;              // its chunk in key 0 of the sequence, or of page 0
    const int *table;               // the sequence's pages
    int end;                        // of the keys that may be read
    int key;                        // first key of the tile to load next
    u32 slot;                       // where it goes
    int page[kLookups];             // that tile's pages: what the table says
    u64 policy;

    __device__ __forceinline__ Stream(const fa_attn_serving_params &p, const Work &w, u32 group, u32 thread, u32 slots) {
        row = thread / kPhase, chunk = thread % kPhase;
        k = (const char *)p.dense.k + (w.sequence.k + w.kv_head * p.dense.k_head_stride) * kElement + chunk * 16;
        v = (const char *)p.dense.v + (w.sequence.v + w.kv_head * p.dense.v_head_stride) * kElement + chunk * 16;
        table = p.block_table + (PAGED != 0 ? w.batch * p.block_table_stride : 0);
        end = w.end;
        key = w.begin + (int)group * kN;
        slot = slots;
        policy = EVICT_FIRST != 0 ? read_once_policy() : 0;
    }

    // What the table says about the tile at `at`. Asked for a tile ahead, so that its latency is hidden.
    __device__ __forceinline__ void look_up(int (&found)[kLookups], int at) const {
        if constexpr (PAGED != 0) {
#pragma unroll
            for (int i = 0; i < kLookups; ++i) {
                const int its_key = at + i * kSpan + (int)(row & ~15u);
                found[i] = its_key < end ? load_int(table + (u32)its_key / kPage) : -1;
            }
        }
    }

    template <class Layout, int kValid>
    __device__ __forceinline__ void copy(u32 to, const char *from, i64 row_stride, int first, bool exists) const {
        // `first`: the key of the pass's first row for this thread. Rows r and r + 4 differ in their swizzle.
        constexpr int kPasses = kPass < 16 ? 16 / kPass : 1;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
            const int its_key = first + pass * kPass;
            const bool ok = exists && its_key < end;
            const u32 at = to + Layout::offset(row + pass * kPass, chunk);
#pragma unroll
            for (int piece = 0; piece < Layout::kPieces; ++piece) {
                const int column = piece * kPhase * 16;   // bytes, as kValid is
                const bool inside = column + kPhase * 16 <= kValid || (int)chunk * 16 + column < kValid;
                const u32 to_piece = at + piece * Layout::kPieceBytes, bytes = ok && inside ? 16 : 0;
                if constexpr (EVICT_FIRST != 0) cp_async_16_once(to_piece, from + column, bytes, policy);
                else                            cp_async_16_zfill(to_piece, from + column, bytes);
            }
            from += kPass * row_stride * kElement;
        }
    }

    __device__ __forceinline__ void copy_tile(const fa_attn_serving_params &p) const {
        const fa_attn_params &d = p.dense;
        if (kN < kPass && (int)row >= kN) return;
#pragma unroll
        for (int i = 0; i < kLookups; ++i) {
            const int first = key + i * kSpan + (int)row;
            i64 k_from, v_from;
            bool exists = true;
            if constexpr (PAGED != 0) {
                exists = (u32)page[i] < (u32)p.num_pages;
                const u32 within_page = (u32)first % kPage;
                const i64 of = exists ? page[i] : 0;
                k_from = of * d.k_batch_stride + within_page * d.k_row_stride;
                v_from = of * d.v_batch_stride + within_page * d.v_row_stride;
            } else {
                k_from = first * d.k_row_stride, v_from = first * d.v_row_stride;
            }
            copy<KLayout, HEAD_DIM * kElement>(slot + i * kSpan * KLayout::kPitch, k + k_from * kElement, d.k_row_stride, first,
                                               exists);
            if constexpr (V_IN_K == 0)
                copy<VLayout, HEAD_DIM_V * kElement>(slot + kKBytes + i * kSpan * VLayout::kPitch, v + v_from * kElement,
                                                 d.v_row_stride, first, exists);
        }
    }

    // Starts the copies of the next tile, if there is one, and asks for the pages of the tile behind it.
    __device__ __forceinline__ void next(const fa_attn_serving_params &p, u32 slots) {
        int found[kLookups];
        look_up(found, key + kStep);
        if (key < end) {
            copy_tile(p);
            key += kStep;
            slot = slot + kSlotBytes == slots + kStages * kSlotBytes ? slots : slot + kSlotBytes;
        }
#pragma unroll
        for (int i = 0; i < kLookups; ++i) page[i] = found[i];
    }
};

FA_DEVICE void copy_q(const fa_attn_serving_params &p, const Work &w, u32 smem) {
#pragma unroll 1
    for (u32 i = threadIdx.x; i < kM * (kD / 8); i += kThreads) {
        const u32 row = i / (kD / 8), chunk = i % (kD / 8);
        const bool ok = (int)row < w.rows && chunk * 8 < HEAD_DIM;
        const i64 from = w.sequence.q + w.head((int)row) * p.dense.q_head_stride + w.query((int)row) * p.dense.q_row_stride + chunk * 8;
        const u32 to = smem + QLayout::place(row, chunk);
        if constexpr (Q_FP8 != 0) {   // widened: e4m3 is exact in both types
            u32 x[4] = {0, 0, 0, 0};
            if (ok) {
                const u32 *four = (const u32 *)((const char *)p.dense.q + from);
                x[0] = widen<kBf16, kBytes01>(four[0]), x[1] = widen<kBf16, kBytes23>(four[0]);
                x[2] = widen<kBf16, kBytes01>(four[1]), x[3] = widen<kBf16, kBytes23>(four[1]);
            }
            store_shared(to, x);
        } else {
            cp_async_16_zfill(to, (const u16 *)p.dense.q + from, ok ? 16 : 0);
        }
    }
}

FA_DEVICE void group_sync(u32 group) {
    if constexpr (kGroupWarps == 1) warp_sync();
    else asm volatile("bar.sync %0, %1;" :: "r"(group + 1), "n"(kGroupThreads) : "memory");
}

// References move up where a row of the warp has outgrown its own.
FA_DEVICE void settle_scores(const Scores &s, Rows &rows, Output &o, float scale) {
    float top[kSlabs][2];
    row_tops(top, s);
    if (warp_any(outgrown(top, rows, scale))) raise_references(rows, o, top, scale);
}

// P = exp2(S * scale - reference) for 16 keys, summed and packed as an A operand.
FA_DEVICE void weigh(Probs &probs, Scores &s, Rows &rows, float scale, int key_step) {
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            float(&x)[4] = s[i][2 * key_step + r / 2];
            const int half = r % 2;
            const float low = exp2_fast(x[half * 2] * scale - rows.reference[i][half]);
            const float high = exp2_fast(x[half * 2 + 1] * scale - rows.reference[i][half]);
            rows.sum[i][half] += low + high;
            probs[i][r] = pack2<kBf16>(low, high);
        }
}

// O += softmax(S) V.
FA_DEVICE void multiply_pv(Output &o, Scores &s, Rows &rows, float scale, u32 v_tile, const LaneOffsets<VLayout> &lanes) {
    u32 v[2][4];
    if constexpr (!kFp8) ldmatrix_x4_trans(v[0], lanes.at(v_tile, 0, 0));
#pragma unroll
    for (int k = 0; k < kKeySteps; ++k) {
        Probs probs;
        weigh(probs, s, rows, scale, k);
        if constexpr (kFp8) {
            multiply_pv_fp8(o, probs, v_tile, lanes, k);
        } else {
#pragma unroll
            for (int d = 0; d < kOutSteps; ++d) {
                const int now = k * kOutSteps + d, next = now + 1;
                if (next < kKeySteps * kOutSteps)
                    ldmatrix_x4_trans(v[next & 1], lanes.at(v_tile, next / kOutSteps, next % kOutSteps));
                const u32(&b)[4] = v[now & 1];
#pragma unroll
                for (int i = 0; i < kSlabs; ++i) {
                    mma_16816<kBf16>(o[i][2 * d], probs[i], b[0], b[1]);
                    mma_16816<kBf16>(o[i][2 * d + 1], probs[i], b[2], b[3]);
                }
            }
        }
    }
}

// This group's accumulators and sums, for the others: [group][row][pitch], then {reference, sum} [group][row].
FA_DEVICE void leave_accumulators(u32 smem, u32 group, int warp_row, u32 column_warp, int rows_valid, const Output &o,
                                  const Rows &rows) {
    const u32 lane = threadIdx.x % 32;
    const u32 mine = smem + group * (kM * kMergePitch * 4), sums = smem + kGroups * kM * kMergePitch * 4 + group * (kM * 8);
#pragma unroll
    for (int i = 0; i < kSlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const u32 row = (u32)warp_row + i * 16 + half * 8 + lane / 4;
            const float sum = quad_sum(rows.sum[i][half]);
            if ((int)row >= rows_valid) continue;
            if (column_warp == 0 && lane % 4 == 0) store_shared(sums + row * 8, rows.reference[i][half], sum);
            const u32 to = mine + (row * kMergePitch + column_warp * kOwnDv) * 4;
#pragma unroll
            for (int d = 0; d < kOwnDv / 8; d += 2) {
                const float(&x)[4] = o[i][d], (&y)[4] = o[i][d + 1];
                if constexpr (kFp8) {
                    store_shared(to + (d * 8 + lane % 4 * 4) * 4, x[half * 2], y[half * 2]);
                    store_shared(to + (d * 8 + lane % 4 * 4 + 2) * 4, x[half * 2 + 1], y[half * 2 + 1]);
                } else {
                    store_shared(to + (d * 8 + lane % 4 * 2) * 4, x[half * 2], x[half * 2 + 1]);
                    store_shared(to + (d * 8 + 8 + lane % 4 * 2) * 4, y[half * 2], y[half * 2 + 1]);
                }
            }
        }
}

// The last block of a unit adds up its parts.
FA_DEVICE void combine(const fa_attn_serving_params &p, const Work &w, const Partials &partials, u32 parts) {
    constexpr u32 kQuads = HEAD_DIM_V / 4;
    for (u32 item = threadIdx.x; item < (u32)w.rows * kQuads; item += kThreads) {
        const u32 row = item / kQuads, column = item % kQuads * 4;
        float x[4];
        const Total total = add_parts<8>(x, partials, row, column, parts);
        store_final(p, w, x, total, row, column);
    }
}

// Adds up the groups. With one part that is the answer; else it goes to the workspace, and the last block combines.
FA_DEVICE void finish(const fa_attn_serving_params &p, const Work &w, u32 smem, u32 parts) {
    constexpr u32 kQuads = HEAD_DIM_V / 4;
    const Partials partials(p, w, gridDim.y);
    for (u32 item = threadIdx.x; item < (u32)w.rows * kQuads; item += kThreads) {
        const u32 row = item / kQuads, column = item % kQuads * 4;
        float x[4];
        const Total total = gather_groups<kGroups, kMergePitch>(x, smem, row, column);
        if (parts == 1) {
            store_final(p, w, x, total, row, column);
        } else {
            const u64 at = (u64)w.part * kM + row;
            store_floats(partials.rows + at * HEAD_DIM_V + column, x);
            if (column == 0) store_floats(partials.sums + at * 2, {total.reference, total.sum});
        }
    }
    if (parts == 1) return;

    block_sync();   // this part is written, and what the groups left has been read
    if (threadIdx.x == 0) store_shared(smem, arrives_last(p.counters + w.unit, parts));
    block_sync();
    if (load_shared<u32>(smem) != 0) combine(p, w, partials, parts);
}

}  // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
attn_fwd(const __grid_constant__ fa_attn_serving_params p) {
    Work w;
    if (!find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y)) return;
    const u32 lane = threadIdx.x % 32, group = threadIdx.x / kGroupThreads, group_thread = threadIdx.x % kGroupThreads;
    const u32 column_warp = group_thread / 32 % kColumnWarps;
    const int warp_row = (int)(group_thread / 32 / kColumnWarps) * kSlabs * 16;   // this warp's first row
    const u32 smem = shared_address(shared_memory), slots = smem + kQBytes + group * (kStages * kSlotBytes);
    const u32 q_tile = smem + (u32)warp_row * QLayout::kPitch;
    const u32 v_columns = (V_IN_K != 0 ? 0 : kKBytes) + column_warp * columns_of_a_warp<VLayout, kElement>();   // this warp's, in a slot

    // The first tiles, one group of copies each; Q goes with the first, whose keys are asked for before it.
    Stream stream(p, w, group, group_thread, slots);
    stream.look_up(stream.page, stream.key);
#pragma unroll 1
    for (int t = 0; t < kStages - 1; ++t) {
        stream.next(p, slots);
        if (t == 0) copy_q(p, w, smem);
        cp_async_commit();
    }
    const u32 parts = w.parts();
    const LaneOffsets<QLayout> q_lanes(lane, false);
    const LaneOffsets<KLayout> k_lanes(lane, true);
    const LaneOffsets<VLayout> v_lanes(lane, false);
    cp_async_wait<kStages - 2>();
    block_sync();
    QFragments q;
    if constexpr (kQInRegs) {
#pragma unroll
        for (int d = 0; d < kDimSteps; ++d) load_q(q, d, q_tile, q_lanes, d);
    }

    Output o = {};
    Rows rows = no_keys_seen();
    const Scale scale = find_scale(p, w.batch, w.kv_head);
    u32 slot = slots;
#pragma unroll 1
    for (int key = w.begin + (int)group * kN; key < w.end; key += kStep) {
        // This tile has landed for the whole group, and the group has left the slot filled next.
        cp_async_wait<kStages - 2>();
        group_sync(group);
        stream.next(p, slots);
        cp_async_commit();

        Scores s;
        multiply_qk(s, q, q_tile, slot, q_lanes, k_lanes);
        if constexpr (SOFTCAP != 0) cap_scores(s, scale.cap_rate);
        if (key < w.clear_begin || key + kN > w.clear_end || key + kN > w.end)
            apply_mask(s, p, w, warp_row + (int)lane / 4, key + (int)lane % 4 * 2);
        settle_scores(s, rows, o, scale.exponent);
        multiply_pv(o, s, rows, scale.exponent, slot + v_columns, v_lanes);
        slot = slot + kSlotBytes == slots + kStages * kSlotBytes ? slots : slot + kSlotBytes;
    }

    // A group without a tile in the last round passes its barrier all the same: racecheck counts a thread's
    // barriers without their names, and takes threads that passed more of them for later ones.
    if ((w.end - w.begin - 1) % kStep < (int)group * kN) group_sync(group);

    cp_async_wait<0>();
    block_sync();   // everybody is done with the bytes that the accumulators are left in
    leave_accumulators(smem, group, warp_row, column_warp, w.rows, o, rows);
    block_sync();
    finish(p, w, smem, parts);
}
