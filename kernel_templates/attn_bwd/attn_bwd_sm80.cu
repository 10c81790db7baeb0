// SPDX-License-Identifier: Apache-2.0
//
// Attention backward for the Ampere family and newer: mma.m16n8k16, ldmatrix, cp.async.
//
// Purpose: dQ, dK and dV in three launches (attn_bwd_tiles.cuh), fp16 or bf16 in and out, fp32 sums.
// Workload: a block of the main launch holds a tile of K and of V and walks the tiles of Q and dO that meet it. Warps stand
// in a grid of WARPS / 2 by 2, of S, dK, dV and dQ alike; P and dS pass through shared memory.
// Invariants:
//  - shared memory is K, V, then STAGES slots of {Q tile, dO tile}, then P, then dS. Rows that do not exist are zero.
//  - two block barriers a step: behind the first a step's tiles have landed and the step before is done with P and dS
//    and with the slot that is filled next; behind the second P and dS are complete.
#include "fa_copy.cuh"
#include "attn_bwd_tiles.cuh"
#include "fa_mma.cuh"

namespace {

constexpr int kThreads = WARPS * 32, kStages = STAGES;
constexpr int kRowWarps = WARPS / 2;                     // by two columns of warps
constexpr int kQBytes = kM * kD * 2, kDoBytes = kM * kDv * 2, kKBytes = kN * kD * 2, kVBytes = kN * kDv * 2;
constexpr int kPBytes = kM * kN * 2, kSlotBytes = kQBytes + kDoBytes;
constexpr int kSlots = kKBytes + kVBytes, kP = kSlots + kStages * kSlotBytes, kDs = kP + kPBytes;
static_assert(kM % (16 * kRowWarps) == 0 && kN % (16 * kRowWarps) == 0 && kN % 32 == 0, "tiles and warps disagree");
constexpr int kSlabs = kM / kRowWarps / 16;              // 16-row slabs of S and dQ that a warp owns
constexpr int kKeySlabs = kN / kRowWarps / 16;           // of dK and dV
constexpr int kSPairs = kN / 32, kDPairs = kD / 32, kDvPairs = kDv / 32;   // 16-column pieces that a warp owns

// A lane's part in reading 16 x 16 blocks of a tile of kCols columns: of the block's rows in order (an A operand, or
// transposed a B operand), or with the two 8 x 8 blocks beside the diagonal exchanged (a B operand, or transposed an A operand).
template <int kCols, bool kCrossed> struct Reader {
    using Layout = TileLayout<kCols>;
    u32 base, bits;

    __device__ __forceinline__ Reader(u32 tile, u32 row0) {
        const u32 lane = threadIdx.x % 32;
        const u32 row = kCrossed ? (lane & 7) + ((lane >> 4) << 3) : lane & 15;
        const u32 high = kCrossed ? (lane >> 3) & 1 : lane >> 4;
        base = tile + (row0 + row) * Layout::kPitch;
        bits = (high ^ Layout::swizzle(row)) << 4;
    }
    // The block `down` blocks below the first row, `across` blocks from the first column.
    template <bool kTransposed> __device__ __forceinline__ void read(u32 (&r)[4], u32 down, u32 across) const {
        const u32 at = base + down * (16 * Layout::kPitch) + ((across << 5) ^ bits);
        if constexpr (kTransposed) ldmatrix_x4_trans(r, at);
        else                       ldmatrix_x4(r, at);
    }
};

// c += A B, kI slabs of 16 rows by kJ pieces of 16 columns, over kK steps of 16. Fragments of B are fetched one ahead.
template <int kI, int kJ, int kK, class A, class B>
FA_DEVICE void multiply(float (&c)[kI][2 * kJ][4], const A &read_a, const B &read_b) {
    u32 a[2][kI][4], b[2][4];
#pragma unroll
    for (int i = 0; i < kI; ++i) read_a(a[0][i], i, 0);
    read_b(b[0], 0, 0);
#pragma unroll
    for (int k = 0; k < kK; ++k)
#pragma unroll
        for (int j = 0; j < kJ; ++j) {
            const int now = k * kJ + j, next = now + 1;
            if (j == 0 && k + 1 < kK)
#pragma unroll
                for (int i = 0; i < kI; ++i) read_a(a[(k + 1) & 1][i], i, k + 1);
            if (next < kJ * kK) read_b(b[next & 1], next % kJ, next / kJ);
#pragma unroll
            for (int i = 0; i < kI; ++i) {
                mma_16816<kBf16>(c[i][2 * j], a[k & 1][i], b[now & 1][0], b[now & 1][1]);
                mma_16816<kBf16>(c[i][2 * j + 1], a[k & 1][i], b[now & 1][2], b[now & 1][3]);
            }
        }
}

// dQ in the workspace: fragment after fragment of 16 x 8, four sums of a lane beside one another.
struct DqPlace {
    FA_DEVICE int fragment(int slab, int piece) { return (slab * (kD / 8) + piece) * 128; }
    FA_DEVICE void element(int place, int &row, int &column) {
        const int fragment = place / 128, lane = place / 4 % 32, half = place / 2 % 2;
        row = fragment / (kD / 8) * 16 + half * 8 + lane / 4;
        column = fragment % (kD / 8) * 8 + lane % 4 * 2;
    }
};

using QCopier = TileCopier<kD, HEAD_DIM, kThreads, kAligned>;
using VCopier = TileCopier<kDv, HEAD_DIM_V, kThreads, kAligned>;

// A tile of kRows rows from row `row` on of one head; those from `rows` on are zeros.
template <int kRows, class Copier>
FA_DEVICE void fetch(const Copier &copier, u32 to, const u16 *head, i64 row_stride, int row, int rows) {
    copier.template load<kRows, true>(to, head + (i64)row * row_stride + copier.global_offset(row_stride), row_stride, rows - row);
}

#if D_BUFFERS > 0
FA_DEVICE int place_of_row(int row) { return row; }
#endif
#if SKIPS
// Behind the sums of dQ.
FA_DEVICE u32 *list_of(const fa_attn_bwd_params &p, void *workspace) {
    return (u32 *)Workspace(p, workspace, p.heads_q * batches_of(p)).dq;
}
#endif

// The tile of keys that a block owns, and a warp's place in it.
struct Place {
    int key0, head;   // head of keys
    u32 row_warp, column_warp, lane;
};

template <int kPairs>
FA_DEVICE void store_keys(const Sequence &s, const Place &at, void *tensor, const fa_attn_bwd_strides &strides,
                          const float (&sum)[kKeySlabs][2 * kPairs][4], float scale, int columns) {
#pragma unroll
    for (int i = 0; i < kKeySlabs; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int key = at.key0 + ((int)at.row_warp * kKeySlabs + i) * 16 + half * 8 + (int)at.lane / 4;
            if (key >= s.seq_k) continue;
#pragma unroll
            for (int j = 0; j < 2 * kPairs; ++j) {
                const int column = ((int)at.column_warp * 2 * kPairs + j) * 8 + (int)at.lane % 4 * 2;
                if (column < columns)
                    store_key(tensor, strides, s.batch, at.head, s.first_k + key, column, sum[i][j][half * 2] * scale,
                              sum[i][j][half * 2 + 1] * scale);
            }
        }
}

} // namespace

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_prepare(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
#if D_BUFFERS > 0
    clear_sums(workspace);
#endif
#if SKIPS
    list_tiles<Listed>(p, workspace);
#endif
    prepare_tile(p, workspace);
}

extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
attn_bwd(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    const u32 key_tiles = (u32)tiles_of<kN>(p, p.seq_k), kv_heads = (u32)p.heads_kv * (u32)batches_of(p);
    if (blockIdx.x >= key_tiles * kv_heads) return;
    const int group = p.heads_q / p.heads_kv;
    const u32 owned = find_owned(blockIdx.x, key_tiles, kv_heads, (u32)group);
    const int kv_head = (int)(owned / key_tiles);
    i64 own_tile = owned % key_tiles;
#if PLACES
    const i64 among_all = own_tile;
    const int index = find_index<kN>(p, p.cu_seqlens_k, kv_head / p.heads_kv, own_tile);
    const Sequence own = sequence_of(p, index);
#else
    const Sequence own = find_sequence<kN>(p, p.cu_seqlens_k, kv_head / p.heads_kv, own_tile);
#endif
    if (kVarlen && own_tile * kN >= own.seq_k) return;
    const int key_tile = (int)own_tile;
    const Place at = {key_tile * kN, kv_head % p.heads_kv, threadIdx.x / 64, threadIdx.x / 32 % 2, threadIdx.x % 32};
    const Band band = find_band(own);
    const Meets meets = find_meets(own, band, at.key0);
#if SKIPS
    int steps = 0;
    Steps walk(p, workspace, (u32)(own.batch * p.heads_q + at.head * group), (u32)among_all, group, steps), ahead = walk;   // as below
#else
    const int steps = meets.end > meets.first ? (meets.end - meets.first) * group : 0;
#endif
    const Curve curve(p);

    const u32 smem = shared_address(shared_memory), k_tile = smem, v_tile = smem + kKBytes;
    const QCopier q_copier(threadIdx.x);
    const VCopier v_copier(threadIdx.x);
    fetch<kN>(q_copier, k_tile, row_of(p.k, p.k_strides, own.batch, at.head, own.first_k), p.k_strides.row, at.key0, own.seq_k);
    fetch<kN>(v_copier, v_tile, row_of(p.v, p.v_strides, own.batch, at.head, own.first_k), p.v_strides.row, at.key0, own.seq_k);
    const auto load_step = [&](const Steps &walk, u32 slot) {
        const i64 head = at.head * group + walk.head;
        const int row = walk.tile * kM;
        fetch<kM>(q_copier, slot, row_of(p.q, p.q_strides, own.batch, head, own.first_q), p.q_strides.row, row, own.seq_q);
        fetch<kM>(v_copier, slot + kQBytes, row_of(p.d_o, p.d_o_strides, own.batch, head, own.first_q), p.d_o_strides.row, row,
                   own.seq_q);
    };
#if !SKIPS
    Steps walk(meets, group), ahead = walk;   // this step's, and that of the tiles which are fetched next
#endif
    if (steps > 0) load_step(ahead, smem + kSlots);
    cp_async_commit();

    const u32 slab_row = at.row_warp * (kSlabs * 16);
    float dk[kKeySlabs][2 * kDPairs][4] = {}, dv[kKeySlabs][2 * kDvPairs][4] = {};
#pragma unroll 1
    for (int step = 0; step < steps; ++step, go_on(walk, meets, group, steps - step)) {
        const int tile = walk.tile, head = at.head * group + walk.head;
        const u32 slot = smem + kSlots + (kStages > 1 ? step % kStages * kSlotBytes : 0);
        const u32 q_tile = slot, do_tile = slot + kQBytes, p_tile = smem + kP, ds_tile = smem + kDs;
        const Workspace work(p, workspace, (i64)own.batch * p.heads_q + head, own.first_tile);
#if DROPOUT
        const Dropout dropout(p.buffer, (i64)index * p.heads_q + head);
#endif
#if SCORE_SNIPPET || MASK_SNIPPET
        const Places places = places_of(p, own, index, head);
        const int first_place = place_of_query(own);
#if SKIPS
        const bool whole = walk.whole();
#else
        constexpr bool whole = false;
#endif
        const bool masked = !is_clear(meets, tile, own.seq_q);
#else
        const bool masked = tile < meets.first_clear || tile >= meets.end_clear;
#endif
        const int row0 = tile * kM + (int)(slab_row + at.lane / 4);   // this thread's first one

        if (kStages == 1 && step > 0) {
            block_sync();
            load_step(walk, slot);
            cp_async_commit();
        }
        float lse[kSlabs][2], delta[kSlabs][2];
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                lse[i][half] = load_float(work.lse + row0 + i * 16 + half * 8);
                delta[i][half] = load_float(work.delta + row0 + i * 16 + half * 8);
            }
        cp_async_wait<0>();
        block_sync();
        if (kStages > 1) {
            go_on(ahead, meets, group, steps - step - 1);
            if (step + 1 < steps) load_step(ahead, smem + kSlots + (step + 1) % kStages * kSlotBytes);
            cp_async_commit();
        }

        // S = Q K^T, dP = dO V^T; then P and dS.
        {
            float s[kSlabs][2 * kSPairs][4] = {}, dp[kSlabs][2 * kSPairs][4] = {};
            const Reader<kD, false> q(q_tile, slab_row);
            const Reader<kDv, false> d_o(do_tile, slab_row);
            const Reader<kD, true> k(k_tile, at.column_warp * (kN / 2));
            const Reader<kDv, true> v(v_tile, at.column_warp * (kN / 2));
            multiply<kSlabs, kSPairs, kD / 16>(s, [&](u32 (&r)[4], int i, int step) { q.read<false>(r, i, step); },
                                               [&](u32 (&r)[4], int j, int step) { k.read<false>(r, j, step); });
            multiply<kSlabs, kSPairs, kDv / 16>(dp, [&](u32 (&r)[4], int i, int step) { d_o.read<false>(r, i, step); },
                                                [&](u32 (&r)[4], int j, int step) { v.read<false>(r, j, step); });
#if DROPOUT
            Dropped<false, kN / 32> kept[kSlabs];
#pragma unroll
            for (int i = 0; i < kSlabs; ++i) {
                kept[i].find(dropout, tile * kM + (int)slab_row + i * 16, at.key0 + (int)at.column_warp * (kN / 2));
                kept[i].apply((float (&)[kSPairs * 8])dp[i]);
            }
#endif
            const int key0 = at.key0 + (int)at.column_warp * (kN / 2) + (int)at.lane % 4 * 2;
#pragma unroll
            for (int i = 0; i < kSlabs; ++i)
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    Seen seen = {0, kN};
                    if (masked) seen = find_seen(own, band, row0 + i * 16 + half * 8, key0);
#if SCORE_SNIPPET || MASK_SNIPPET
                    if (row0 + i * 16 + half * 8 >= own.seq_q) seen.high = 0;
                    const auto query = query_place(row0 + i * 16 + half * 8 + first_place);
#endif
                    const u32 row = slab_row + i * 16 + half * 8 + at.lane / 4;
#pragma unroll
                    for (int j = 0; j < 2 * kSPairs; ++j) {
                        float weight[2], slope[2], ds[2];
#if BUFFER_COUNT > 0
                        const int first_key = (int)opaque((u32)key0);   // so that what is read of some keys takes no registers meanwhile
#elif SCORE_SNIPPET || MASK_SNIPPET
                        const int first_key = key0;
#endif
#pragma unroll
                        for (int e = 0; e < 2; ++e) {
                            slope[e] = 1.0f;
#if SCORE_SNIPPET || MASK_SNIPPET
                            const auto key = line_place(first_key, j * 8 + e);
                            weight[e] = weigh(p, curve, places, query, key, s[i][j][half * 2 + e], lse[i][half], slope[e]);
#if MASK_SNIPPET
                            if (!whole && !is_visible(places, query, key)) weight[e] = 0.0f;
#endif
#else
                            weight[e] = curve.weight(s[i][j][half * 2 + e], lse[i][half], slope[e]);
#endif
                            if (masked && (j * 8 + e < seen.low || j * 8 + e >= seen.high)) weight[e] = 0.0f;
                            ds[e] = weight[e] * (dp[i][j][half * 2 + e] AS_KEPT - delta[i][half]);
#if SCORE_SNIPPET
                            ds[e] *= slope_at(weight[e], slope[e]);
#else
                            if constexpr (kSoftcap) ds[e] *= slope[e];
#endif
                        }
#if DROPOUT
#pragma unroll
                        for (int e = 0; e < 2; ++e)
                            weight[e] *= kept[i].factor(j * 4 + half * 2 + e);
#endif
                        const u32 place = TileLayout<kN>::offset(row, at.column_warp * (kN / 16) + j) + at.lane % 4 * 4;
                        store_shared(p_tile + place, pack2<kBf16>(weight[0], weight[1]));
                        store_shared(ds_tile + place, pack2<kBf16>(ds[0], ds[1]));
                    }
                }
        }
        block_sync();

        const Reader<kN, true> p_across(p_tile, 0), ds_across(ds_tile, 0);   // transposed: rows are keys
        const Reader<kD, false> q_down(q_tile, 0), k_down(k_tile, 0);
        const Reader<kDv, false> do_down(do_tile, 0);
        const Reader<kN, false> ds_rows(ds_tile, slab_row);
        const u32 key_slab = at.row_warp * kKeySlabs, d_piece = at.column_warp * kDPairs, dv_piece = at.column_warp * kDvPairs;
        multiply<kKeySlabs, kDvPairs, kM / 16>(dv, [&](u32 (&r)[4], int i, int k) { p_across.read<true>(r, k, key_slab + i); },
                                               [&](u32 (&r)[4], int j, int k) { do_down.read<true>(r, k, dv_piece + j); });
        {
            float dq[kSlabs][2 * kDPairs][4] = {};
            multiply<kSlabs, kDPairs, kN / 16>(dq, [&](u32 (&r)[4], int i, int k) { ds_rows.read<false>(r, i, k); },
                                               [&](u32 (&r)[4], int j, int k) { k_down.read<true>(r, k, d_piece + j); });
            if (kDeterministic) {
                if (threadIdx.x == 0) await_turn(work.turns + tile, key_tile);
                block_sync();
            }
            float *sums = work.dq + (i64)tile * kM * kD + at.lane * 4;
#pragma unroll
            for (int i = 0; i < kSlabs; ++i)
#pragma unroll
                for (int j = 0; j < 2 * kDPairs; ++j) {
                    const float(&x)[4] = dq[i][j];
                    add_floats(sums + DqPlace::fragment((int)at.row_warp * kSlabs + i, (int)at.column_warp * 2 * kDPairs + j),
                               x[0], x[1], x[2], x[3]);
                }
        }
        multiply<kKeySlabs, kDPairs, kM / 16>(dk, [&](u32 (&r)[4], int i, int k) { ds_across.read<true>(r, k, key_slab + i); },
                                              [&](u32 (&r)[4], int j, int k) { q_down.read<true>(r, k, d_piece + j); });
        if (kDeterministic) {   // now that the sums have had time to arrive
            block_sync();
            if (threadIdx.x == 0) give_turn(work.turns + tile, next_turn(key_tile, is_rising(p)));
        }
    }
    cp_async_wait<0>();
    store_keys<kDPairs>(own, at, p.dk, p.dk_strides, dk, p.softmax_scale, HEAD_DIM);
    store_keys<kDvPairs>(own, at, p.dv, p.dv_strides, dv, DV_SCALE, HEAD_DIM_V);
}

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_finish(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
#if D_BUFFERS > 0
    if (gridDim.y == 2) round_sums(p, workspace);
    if (gridDim.y == 2 || sum_buffers(p, workspace)) return;
#endif
    finish_tile<DqPlace>(p, workspace);
}
