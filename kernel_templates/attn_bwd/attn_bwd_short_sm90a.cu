// SPDX-License-Identifier: Apache-2.0
//
// Attention backward for Hopper (sm_90a) of short sequences: one launch, whose blocks share nothing.
//
// Purpose: dQ, dK and dV of heads whose rows fit the shared memory of a block, fp16 or bf16 in and out, fp32 sums. In a few microseconds a
// launch before the main one, sums of dQ in memory and a last launch take longer than products. So scores are computed twice, once for
// the gradients of K and V and once for that of Q: seven products in place of five.
// Workload: a block owns ROWS rows of a head. It copies all rows of Q, dO, K and V that these meet, and makes LSE and delta meanwhile. A
// warpgroup owns 64 keys (S^T = K Q^T, dP^T = V dO^T, dV += P^T dO, dK += dS^T Q), of all heads of queries that share them, or 64 queries
// (S = Q K^T, dP = dO V^T, dQ += dS K). A block has keys or queries (ROLES=0), which are then other blocks', or both, one after the other
// (ROLES=1) or by warpgroups of their own (ROLES=2): under a causal mask all blocks have as many steps then. P and dS multiply from registers.
// Invariants:
//  - shared memory is tiles of 64 rows of Q, of dO, of K and of V, LSE and delta (place_of_row). Tiles are slabs of 64 columns with swizzled rows
//    of 128 bytes. Rows that do not exist are zero.
//  - a launch asks for as much shared memory as the longest rows of a bucket of lengths want, so that the bucket's winner serves all of them.
//  - a barrier stands between what a block loads and its products; nothing is written to shared memory behind it.
//  - nothing is added in memory, so that gradients have the same bits in every run (DETERMINISTIC makes no difference).
#define STAGES 0
#define TEAMS 1
#include "attn_bwd_short_sm90a.cuh"

namespace {

// LSE and delta of the rows of queries, when this thread's copies have landed: it reads of dO what it has copied. h: the first head.
// Lanes share a row, and end with the sum of one of eight.
FA_DEVICE void make_rows(const fa_attn_bwd_params &p, const Held &held, int h) {
    using At = Lanes<kDv>;
    constexpr int kRounds = 8;   // whose loads go out at once
    const At lanes;
    const int column = lanes.chunk * 8, first = held.queries.first * kTileRows, rows = held.queries.count() * kTileRows, all = rows * held.heads;
    const int there = p.seq_q - first;   // of a head's
    const u16 *o = row_of(p.o, p.o_strides, held.s.batch, h, first) + (column < HEAD_DIM_V ? column : 0);
#pragma unroll 1
    for (int place = lanes.row; place - lanes.row < all; place += kRounds * At::kAtOnce) {
        u32 x[kRounds][4] = {};
        float sums[kRounds], lse = neg_infinity();
        int head = ROLES == 0 ? place / rows : 0, row = place - head * rows;
#pragma unroll
        for (int i = 0; i < kRounds; ++i) {
            if (row < there && (ROLES != 0 || head < held.heads)) load_global_16(x[i], o + head * p.o_strides.head + row * p.o_strides.row);
            row += At::kAtOnce;
            if (ROLES == 0 && row >= rows) row -= rows, ++head;
        }
        const int own = place + lanes.chunk / (At::kLanes / kRounds) * At::kAtOnce;
        head = ROLES == 0 ? own / rows : 0, row = own - head * rows;
        const bool exists = own < all && row < there;
        const Sequence s = {p.seq_q, p.seq_k, 0, 0, held.s.batch, first, 0, 0};
        if (exists) lse = p.lse[held.s.batch * p.lse_strides.batch + (h + head) * p.lse_strides.head + first + row];
        cp_async_wait<0>();
#pragma unroll
        for (int i = 0; i < kRounds; ++i) {
            const int r = place + i * At::kAtOnce;
            float its[4];
            u32 y[4];
            load_shared(its, lanes.place(held.d_o, r < all ? r : place));
#pragma unroll
            for (int e = 0; e < 4; ++e) y[e] = float_to_bits(its[e]);
            sums[i] = column < HEAD_DIM_V ? product_of(x[i], y) : 0.0f;
        }
#pragma unroll
        for (int mask = At::kLanes / 2, half = kRounds / 2; mask > 0; mask /= 2, half /= 2) {
            const bool upper = (lanes.chunk & mask) != 0;
            if (half == 0) sums[0] += shuffle_xor(sums[0], mask);
#pragma unroll
            for (int i = 0; i < half; ++i) sums[i] = (upper ? sums[i + half] : sums[i]) + shuffle_xor(upper ? sums[i] : sums[i + half], mask);
        }
        if (own >= all || lanes.chunk % (At::kLanes / kRounds) != 0) continue;
        store_shared(held.lse + place_of_row(own) * 4, lse == neg_infinity() ? -neg_infinity() : lse * kLog2e);
        store_shared(held.delta + place_of_row(own) * 4, exists ? delta_of(p, s, h + head, row, sums[0], lse) : 0.0f);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
attn_bwd(const __grid_constant__ fa_attn_bwd_params p) {
    const auto blocks_of = [](int rows) { return (u32)(rows + ROWS - 1) / ROWS; };
    // Blocks of keys come first, those of the first keys and of the last queries in front: under a causal mask they take longest.
    const u32 key_blocks = blocks_of(ROLES == 0 || p.seq_k > p.seq_q ? p.seq_k : p.seq_q), of_keys = key_blocks * p.heads_kv * p.batch;
    const bool keys = ROLES != 0 || blockIdx.x < of_keys;
    const u32 heads = keys ? p.heads_kv : p.heads_q, blocks = keys ? key_blocks : blocks_of(p.seq_q), number = keys ? blockIdx.x : blockIdx.x - of_keys;
    if (p.d_sinks && blockIdx.x == 0)
        for (u32 h = threadIdx.x; h < p.heads_q; h += kThreads) p.d_sinks[h] = 0.0f;
    if (number >= heads * p.batch * blocks) return;
    const u32 place = number / (heads * p.batch), part = keys ? place : blocks - 1 - place, of_all = number - place * heads * p.batch, batch = of_all / heads;
    const u32 h = of_all - batch * heads, group = ROLES == 0 ? (u32)p.heads_q / p.heads_kv : 1, head_k = keys ? h : h / group, head_q = keys ? h * group : h;
    const Held held(sequence_of(p, (int)batch), (int)part * kOwn, keys, ROLES != 0 || !keys, ROLES == 0 && keys ? (int)group : 1);
    for (int i = 0; i < held.heads; ++i) {
        const u32 tiles = i * held.queries.count();
        load_tiles<kD, HEAD_DIM>(held.q + tiles * kTileBytes, held.queries, row_of(p.q, p.q_strides, batch, head_q + i, 0), p.q_strides.row, p.seq_q);
        load_tiles<kDv, HEAD_DIM_V>(held.d_o + tiles * kTileVBytes, held.queries, row_of(p.d_o, p.d_o_strides, batch, head_q + i, 0), p.d_o_strides.row, p.seq_q);
    }
    load_tiles<kD, HEAD_DIM>(held.k, held.keys, row_of(p.k, p.k_strides, batch, head_k, 0), p.k_strides.row, p.seq_k);
    load_tiles<kDv, HEAD_DIM_V>(held.v, held.keys, row_of(p.v, p.v_strides, batch, head_k, 0), p.v_strides.row, p.seq_k);
    cp_async_commit();
    make_rows(p, held, (int)head_q);
    cp_async_wait<0>();   // where there are no queries
    async_proxy_fence();
    block_sync();
    NoRing none;
    const int worker = uniform((int)(threadIdx.x / kGroup)), tile = (int)part * kOwn + worker % kOwn;
    if (ROLES == 1 || (ROLES == 0 ? keys : worker < kOwn)) differentiate_keys(p, held, none, (int)head_k, tile);
    if (ROLES == 1 || (ROLES == 0 ? !keys : worker >= kOwn)) differentiate_queries(p, held, none, (int)head_q, tile);
}
