// SPDX-License-Identifier: Apache-2.0
//
// Attention backward for Hopper (sm_90a) of few and short rows: two launches, of which the second adds nothing in memory.
//
// Purpose: dQ, dK and dV where attn_bwd_sm90a has too few jobs for all SMs, or pays for clearing, adding and rounding sums of dQ, and where rows
// do not fit a block of attn_bwd_short_sm90a. fp16 or bf16 in and out, fp32 sums. Scores are computed twice, once for the gradients of K and V
// and once for that of Q: seven products in place of five.
// Workload: the first launch makes LSE and delta, in the workspace. A block of the second owns 64 keys of a head, of all heads of queries that
// share them, or 64 queries (attn_bwd_short_sm90a.cuh). Tiles that these meet pass through a ring. TEAMS warpgroups share a block's rows: each
// multiplies every TEAMS-th tile, and their sums are added at the end, so that a long group of heads takes half as many turns.
// Invariants:
//  - shared memory is tiles of 64 rows of Q, of dO, of K and of V, those of a block's own rows or of the ring, then LSE and delta of those of
//    queries. Rows that do not exist are zero, and their LSE is +inf.
//  - a block copies its own rows and the first tiles of the ring before the first launch has ended, LSE and delta afterwards.
//  - a tile is copied when all warps have passed the barrier behind their products with the one that lay there before.
//  - nothing is added in memory, so that gradients have the same bits in every run (DETERMINISTIC makes no difference).
#define ROWS 64
#define STAGES 2
#define ROLES 0
#include "attn_bwd_short_sm90a.cuh"

namespace {

constexpr int kSlots = STAGES * TEAMS;   // of the ring
static_assert(STAGES >= 2, "a tile is copied while another one is multiplied");
static_assert(TEAMS <= 2 && (kWidth + kWidthV) * 2 * (int)kGroup <= (1 + kSlots) * (kTileBytes + kTileVBytes), "the second team's sums fit where tiles were");

// LSE and delta of a tile of queries of head h, to place `at` of those held. Left under way.
FA_DEVICE void copy_rows(const fa_attn_bwd_params &p, void *workspace, const Held &held, int at, int h, int tile) {
    constexpr int kLanes = kTileRows / 4;
    if (threadIdx.x >= 2 * kLanes) return;
    const Workspace from(p, workspace, (i64)held.s.batch * p.heads_q + h, held.s.first_tile + tile);
    const int lane = (int)threadIdx.x % kLanes;
    cp_async_16((threadIdx.x < kLanes ? held.lse : held.delta) + at * kTileRows * 4 + lane * 16, (threadIdx.x < kLanes ? from.lse : from.delta) + lane * 4);
}

// The tiles that a block's own rows meet: of queries, of all heads that share its keys, or of keys. h: the first head.
template <bool kQueries> struct Ring {
    const fa_attn_bwd_params &p;
    const Held &held;
    void *workspace;
    const int team;
    const Range range;
    int tile, slot = kSlots - 1, ahead, left;   // the team's, how far the next one lies, how many tiles are left for all teams
    int next_tile, next_slot = 0, next_h, to_copy;

    __device__ __forceinline__ Ring(const fa_attn_bwd_params &p, void *workspace, const Held &held, int team, int h)
        : p(p), held(held), workspace(workspace), team(team), range(kQueries ? held.queries : held.keys), tile(range.end - 1), ahead(team + 1),
          left(range.count() * (kQueries ? held.heads : 1)), next_tile(range.first), next_h(h), to_copy(left) {}
    __device__ __forceinline__ void step(int &tile, int &slot) const {
        if (++tile == range.end) tile = range.first;
        if (++slot == kSlots) slot = 0;
    }
    __device__ __forceinline__ void copy_tile() const {
        const Sequence &s = held.s;
        const u32 at = next_slot * kTileBytes, at_v = next_slot * kTileVBytes;
        if constexpr (kQueries) {
            load_tile<kD, HEAD_DIM>(held.q + at, next_tile, row_of(p.q, p.q_strides, s.batch, next_h, s.first_q), p.q_strides.row, s.seq_q);
            load_tile<kDv, HEAD_DIM_V>(held.d_o + at_v, next_tile, row_of(p.d_o, p.d_o_strides, s.batch, next_h, s.first_q), p.d_o_strides.row, s.seq_q);
        } else {
            load_tile<kD, HEAD_DIM>(held.k + at, next_tile, row_of(p.k, p.k_strides, s.batch, next_h, s.first_k), p.k_strides.row, s.seq_k);
            load_tile<kDv, HEAD_DIM_V>(held.v + at_v, next_tile, row_of(p.v, p.v_strides, s.batch, next_h, s.first_k), p.v_strides.row, s.seq_k);
        }
    }
    // Copies the next tile of each team, as far as there are any; all of them or a part.
    template <bool kTiles, bool kRows> __device__ __forceinline__ void copy() {
#pragma unroll 1
        for (int i = 0; i < TEAMS && to_copy > 0; ++i, --to_copy) {
            if (kTiles) copy_tile();
            if (kRows && kQueries) copy_rows(p, workspace, held, next_slot, next_h, next_tile);
            if (next_tile + 1 == range.end) ++next_h;
            step(next_tile, next_slot);
        }
    }
    // Goes on to the next tiles, whose copies have landed then; false: there are none.
    __device__ __forceinline__ bool turn() {
        if (left <= 0) return false;
        for (; ahead > 0; --ahead) step(tile, slot);
        ahead = TEAMS, left -= TEAMS;
        cp_async_wait<STAGES - 2>();
        async_proxy_fence();
        block_sync();
        copy<true, true>();   // where the tiles of the turn before lay
        cp_async_commit();
        return true;
    }
    // Whether the team's tile is among those from `first` to before `end`.
    __device__ __forceinline__ bool meets(const Range &tiles) const { return left + TEAMS > team && tile >= tiles.first && tile < tiles.end; }
    // The first team gets the sums of both, the second one nothing: false.
    template <class... Sums> __device__ __forceinline__ bool join(Sums &...sums) const {
        if constexpr (TEAMS == 1) return true;
        u32 at = shared_address(shared_memory) + threadIdx.x % kGroup * 16;
        // When all tiles have been multiplied.
        block_sync();
        if (team > 0) (put(sums, at), ...);
        block_sync();
        if (team > 0) return false;
        (add(sums, at), ...);
        return true;
    }
    template <int kFloats> __device__ static __forceinline__ void put(const float (&x)[kFloats], u32 &at) {
#pragma unroll
        for (int i = 0; i < kFloats; i += 4, at += kGroup * 16) store_shared(at, (const float (&)[4])x[i]);
    }
    template <int kFloats> __device__ static __forceinline__ void add(float (&x)[kFloats], u32 &at) {
#pragma unroll
        for (int i = 0; i < kFloats; i += 4, at += kGroup * 16) {
            float y[4];
            load_shared(y, at);
#pragma unroll
            for (int e = 0; e < 4; ++e) x[i + e] += y[e];
        }
    }
};

// The gradients of a block's own rows, keys or queries of head h. heads: of queries that share the keys; others: the first head of what these meet.
template <bool kKeys> FA_DEVICE void differentiate(const fa_attn_bwd_params &p, void *workspace, const Sequence &s, int tile, int h, int heads, int others) {
    const Held held(s, tile, kKeys, !kKeys, heads);
    const Range own = kKeys ? held.keys : held.queries;
    if (own.count() == 0) return await_launches_before();   // who waits for this launch waits for all
    if constexpr (kKeys) {
        load_tiles<kD, HEAD_DIM>(held.k, own, row_of(p.k, p.k_strides, s.batch, h, s.first_k), p.k_strides.row, s.seq_k);
        load_tiles<kDv, HEAD_DIM_V>(held.v, own, row_of(p.v, p.v_strides, s.batch, h, s.first_k), p.v_strides.row, s.seq_k);
    } else {
        load_tiles<kD, HEAD_DIM>(held.q, own, row_of(p.q, p.q_strides, s.batch, h, s.first_q), p.q_strides.row, s.seq_q);
        load_tiles<kDv, HEAD_DIM_V>(held.d_o, own, row_of(p.d_o, p.d_o_strides, s.batch, h, s.first_q), p.d_o_strides.row, s.seq_q);
    }
    Ring<kKeys> ring(p, workspace, held, uniform((int)(threadIdx.x / kGroup)), others), tiles = ring;
    for (int i = 0; i < STAGES - 1; ++i) tiles.template copy<true, false>();
    await_launches_before();
    if (!kKeys) copy_rows(p, workspace, held, 0, h, tile);
    for (int i = 0; i < STAGES - 1; ++i) {
        ring.template copy<false, true>();
        cp_async_commit();
    }
    if constexpr (kKeys) {
        differentiate_keys(p, held, ring, h, tile);
    } else {
        cp_async_wait<0>();   // for LSE and delta
        block_sync();
        differentiate_queries(p, held, ring, h, tile);
    }
    cp_async_wait<0>();   // of keys that nobody sees
}

} // namespace

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_prepare(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    let_next_launch_begin();
    zero_gradients_of_sinks(p);
    const u32 tiles = (u32)tiles_of_queries(p);
    if (tiles == 0) return;
    const u32 head = blockIdx.x / tiles, batch = head / (u32)p.heads_q;
    i64 tile = blockIdx.x - head * tiles;
    const Workspace at(p, workspace, head, tile);
    const Sequence s = find_sequence<kM>(p, p.cu_seqlens_q, (int)batch, tile);
    prepare_rows(p, at, s, head - batch * (u32)p.heads_q, tile);
}

extern "C" __global__ void __launch_bounds__(kThreads)
attn_bwd(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    // Blocks of keys come first, those of the first keys and of the last queries in front: under a causal mask they take longest.
    const u32 batches = (u32)batches_of(p), key_blocks = (u32)tiles_of<ROWS>(p, p.seq_k), query_blocks = (u32)tiles_of<ROWS>(p, p.seq_q);
    const u32 of_keys = key_blocks * p.heads_kv * batches, group = (u32)p.heads_q / p.heads_kv;
    const bool keys = blockIdx.x < of_keys;
    const u32 heads = keys ? p.heads_kv : p.heads_q, number = keys ? blockIdx.x : blockIdx.x - of_keys, place = number / (heads * batches);
    const u32 of_all = number - place * heads * batches, batch = of_all / heads, h = of_all - batch * heads;
    if (!keys && place >= query_blocks) return await_launches_before();   // of what has no rows at all
    int tile = (int)(keys ? place : query_blocks - 1 - place);
    const int index = keys ? find_index<ROWS>(p, p.cu_seqlens_k, (int)batch, tile) : find_index<ROWS>(p, p.cu_seqlens_q, (int)batch, tile);
    const Sequence s = sequence_of(p, index);
    if (keys) differentiate<true>(p, workspace, s, tile, (int)h, (int)group, (int)(h * group));
    else      differentiate<false>(p, workspace, s, tile, (int)h, 1, (int)(h / group));
}
