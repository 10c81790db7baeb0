// SPDX-License-Identifier: Apache-2.0
//
// Attention on warpgroups of sm_90a: what the families that multiply with wgmma share.
//
// Purpose: one producing warpgroup, which keeps the copy engine busy, and GROUPS consuming ones with 64 query rows each: rings
// of tiles, products, softmax, the order of a tile's steps. A family says what its work is by a struct `Kind`, which
// the functions below take as a parameter:
//  - Params: the kernel's first argument. Work: a tile: row0 (its first query), steps (of BLOCK_N keys; < 0: there is no
//    more work), and what it likes. Source: where a tile's keys come from. Own: the steps that the rows of one consumer see.
//  - Schedule, of a consumer: next() gives a block's tiles. produce: what the producing warpgroup does.
//  - source_of, locate and load, load_q, kLastPartFirst: the copies; queries_of, for produce_all: what load_q gets.
//    find_own, first_step, is_masked, kMasksLater, mask: the scores. Curve, find_curve: what exp2 is taken of (see Line).
//    clean: of the values of a tile's first step, before they are multiplied. finish: a row's end. let_go: output.
// Workload: a consumer walks the keys that a tile sees from the last to the first, so that only the first steps meet a mask. With PACK
// a tile's rows are those of all query heads that share keys: 16 queries of a head, the same queries of the next head, and so on.
// Invariants, beside attn_softmax_wgmma.cuh's:
//  - STAGES, Q_STAGES, OUT_SLABS and PINGPONG are known at run time only, so that one cubin serves many configs: the size of
//    the shared memory tells them (see Shared). Whether a block works on one tile or on many is told by the grid.
//  - shared memory is STAGES pairs of a K and a V tile, then Q (Q_STAGES times a part a consumer), then room for
//    OUT_SLABS slabs of output a consuming warp, then the barriers, as many as the largest numbers need. All tiles are
//    slabs of SLAB columns, swizzled by the copy engine. Rows and columns that do not exist are zeros.
//  - K and V have barriers of their own.
//  - a consumer lets its part of Q go with the tile's last Q K^T, so that the next one comes under the last P V.
//  - every warp stages its rows of the output by itself; they leave by TMA, which drops rows beyond the sequence, while
//    the next tile is under way.
//  - Q K^T of the next step and P V of this one are issued together, and the softmax of the next step runs under
//    P V. PINGPONG: consumers take turns in issuing, so that one's softmax runs under another's products.
#ifndef ATTN_WGMMA_CUH
#define ATTN_WGMMA_CUH

#include "attn_params.h"
#include "fa_tma.cuh"
#include "fa_wgmma.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE, kSlab = SLAB;
enum Width { kWidth = (HEAD_DIM + 15) / 16 * 16 };   // columns of a tile of Q and K that products read
#ifdef DV_TILE
constexpr int kDv = DV_TILE;   // of values and output
enum WidthV { kWidthV = (HEAD_DIM_V + 15) / 16 * 16 };   // columns of them that products read and make
#else
constexpr int kDv = kD;
enum WidthV { kWidthV = kWidth };
#endif
#ifdef WORK_BYTES
constexpr u32 kWorkBytes = WORK_BYTES;   // of shared memory that the family has for itself, in front of the barriers
#else
constexpr u32 kWorkBytes = 0;
#endif
#if defined(PACK) && PACK
enum { kPacked = 1 };
#else
enum { kPacked = 0 };
#endif
constexpr int kRun = kPacked ? 16 : 64;        // rows of a box of Q: queries of one head
constexpr int kGroups = kM / 64;               // consuming warpgroups
constexpr int kSlabs = kD / kSlab, kOutSlabs = kDv / kSlab;
constexpr int kScores = kN / 2, kOutputs = kWidthV / 2;   // accumulators a thread

constexpr int kQPartBytes = 64 * kD * 2, kKBytes = kN * kD * 2, kVBytes = kN * kDv * 2;
constexpr int kOutBytes = 16 * kSlab * 2;   // of a slab of a consuming warp's output
constexpr int kMostStages = 4, kMostQStages = 2;
enum Barrier { kQFull = 0, kQEmpty = kMostQStages * kGroups, kKFull = 2 * kMostQStages * kGroups, kKEmpty = kKFull + kMostStages,
               kVFull = kKEmpty + kMostStages, kVEmpty = kVFull + kMostStages, kBarrierCount = kVEmpty + kMostStages };
static_assert(8 * kBarrierCount <= 256, "more barriers than the shared memory has room for behind its tiles");
static_assert(FA_THREADS == (kGroups + 1) * 128 && kM % 64 == 0 && kN % 16 == 0, "tile and threads disagree");
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= kD && kD % kSlab == 0 && kDv % kSlab == 0 && ALIGNED == 1, "the head does not fit its tile");

constexpr u32 kWarp = 32, kGroup = 128;
enum Notes { kNotes = 512 };   // where they begin in the family's shared memory, with a user's mask
enum Named { kTurn = 1 };   // named barriers, one a consumer

} // namespace

#include "attn_softmax_wgmma.cuh"

namespace {

using Output = float[kOutputs];

// A row of the rows that tiles are cut from: its query, and its query head, counted from the first one that has these keys.
struct Row {
    int query, head;
};
FA_DEVICE u32 packed_heads(const fa_attn_params &p) { return kPacked ? (u32)(p.heads_q / p.heads_kv) : 1; }
FA_DEVICE Row find_row(const fa_attn_params &p, int row) {
    if constexpr (!kPacked) return {row, 0};
    const u32 run = (u32)row / kRun, heads = packed_heads(p), before = run / heads;
    return {(int)(before * kRun + (u32)row % kRun), (int)(run - before * heads)};
}
// So many queries' rows; the heads whose rows are cut apart, of a sequence.
FA_DEVICE u32 count_rows(const fa_attn_params &p, int queries) {
    return kPacked ? ((u32)queries + kRun - 1) / kRun * kRun * packed_heads(p) : (u32)queries;
}
FA_DEVICE u32 count_heads(const fa_attn_params &p) { return (u32)(kPacked ? p.heads_kv : p.heads_q); }
// Of heads whose rows are cut apart, those that have the same keys.
FA_DEVICE int heads_a_key(const fa_attn_params &p) { return kPacked ? 1 : p.heads_q / p.heads_kv; }

// A ring of slots, walked by one side: the slot and the parity of its barriers.
struct Ring {
    u32 slot = 0, parity = 0;

    __device__ __forceinline__ void advance(u32 count) {
        const bool last = slot + 1 == count;
        slot = last ? 0 : slot + 1;
        parity ^= last;
    }
};

// Where things lie in shared memory. Tiles end at a multiple of 1,024 bytes; what the launch asked for beyond is the
// barriers' room, 256 to 1,008 bytes, and says in its bits 4 to 9 the numbers that are not known when the kernel is
// compiled: OUT_SLABS - 1, then PINGPONG, Q_STAGES - 1 and STAGES - 1 (the manifest's let BARRIERS).
struct Shared {
    const u32 base;
    // Asked anew where they are needed: it is a constant operand, and a register less.
    __device__ __forceinline__ u32 size() const { return dynamic_shared_bytes(); }

    __device__ __forceinline__ u32 stages() const { return (size() >> 8 & 3) + 1; }
    __device__ __forceinline__ u32 q_stages() const { return (size() >> 7 & 1) + 1; }
    __device__ __forceinline__ u32 turns() const { return size() & 64; }
    __device__ __forceinline__ u32 out_slabs() const { return (size() >> 4 & 3) + 1; }

    __device__ __forceinline__ u32 k(u32 slot) const { return base + slot * (kKBytes + kVBytes); }
    __device__ __forceinline__ u32 v(u32 slot) const { return k(slot) + kKBytes; }
    __device__ __forceinline__ u32 q(u32 group, u32 slot) const { return k(stages()) + (slot * kGroups + group) * kQPartBytes; }
    __device__ __forceinline__ u32 out() const { return q(0, q_stages()); }
    __device__ __forceinline__ u32 barrier(u32 which) const { return base + (size() & ~1023u) + 8 * which; }
    __device__ __forceinline__ u32 work() const { return barrier(0) - kWorkBytes; }
    __device__ __forceinline__ bool fits() const { return out() + out_slabs() * (kGroups * 4 * kOutBytes) == work(); }
};

// With a user's mask the tiles of K in shared memory have notes of which steps they are, beside them; without, nothing stands here.
#if MASK_SNIPPET && !SCORE_ADDS
#define READ_NOTE(feed) feed.note = note_of(feed.shared, feed.k_ring.slot);   // while products are under way
#else
#define READ_NOTE(feed)
#endif

#if MASK_SNIPPET
// Read by the lane that lets the tile go.
FA_DEVICE int note_of(const Shared &shared, u32 slot) {
    u32 note = 0;
    if (threadIdx.x % kWarp == 0) load_shared(note, shared.work() + kNotes + slot * 4);
    return uniform((int)note);
}
#endif

// ---- producer --------------------------------------------------------------------------------------------------

// A tile of K, or of V, of kCount slabs, once its slot is free.
template <class Kind, int kCount>
FA_DEVICE void fetch_tile(const typename Kind::Params &p, const Shared &shared, const fa_tensor_map *map, u32 tile, u32 full,
                          u32 empty, Ring &ring, const typename Kind::Source &source, int step) {
    const auto place = Kind::locate(p, source, step);
    barrier_wait(shared.barrier(empty + ring.slot), ring.parity ^ 1);
    const u32 barrier = shared.barrier(full + ring.slot);
    barrier_expect(barrier, kCount * kSlab * kN * 2);
#pragma unroll
    for (int i = 0; i < kCount; ++i) Kind::load(map, tile + i * (kN * kSlab * 2), barrier, i * kSlab, place, source);
    ring.advance(shared.stages());
}

// The parts of Q of a tile, one for each consumer.
template <class Kind, class Queries>
FA_DEVICE void fetch_q(const typename Kind::Params &p, const fa_attn_tensor_maps &maps, const Shared &shared, Ring &ring, const Queries &queries) {
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
        const int g = Kind::kLastPartFirst ? kGroups - 1 - i : i;
        const u32 part = ring.slot * kGroups + g, full = shared.barrier(kQFull + part);
        barrier_wait(shared.barrier(kQEmpty + part), ring.parity ^ 1);
        barrier_expect(full, kQPartBytes);
#pragma unroll
        for (int row = 0; row < 64; row += kRun)
#pragma unroll
            for (int slab = 0; slab < kSlabs; ++slab)
                Kind::load_q(p, &maps.q, shared.q(g, ring.slot) + (slab * 64 + row) * (kSlab * 2), full, slab * kSlab, g * 64 + row, queries);
    }
    ring.advance(shared.q_stages());
}

// One thread fetches all: K of a step before V of the step before it, also from one tile to the next.
template <class Kind>
FA_DEVICE void produce_all(const typename Kind::Params &p, const fa_attn_tensor_maps &maps, const Shared &shared) {
    using Source = typename Kind::Source;
    Ring k, v, q;
    typename Kind::Schedule schedule(p, shared);
    Source owed = {};
    int owed_step = -1;   // whose V is owed; < 0: none is
    for (;;) {
        const typename Kind::Work work = schedule.next(p);
        const Source source = Kind::source_of(p, work);
        // Q comes first where there is room for two tiles' parts of it, else behind what was owed.
        const int end = work.steps > 0 ? 0 : work.steps - 1;
        const int before_q = work.steps < 0 ? 0 : work.steps > 0 && shared.q_stages() > 1 ? work.steps : work.steps - 1;
#pragma unroll 1
        for (int step = work.steps;; --step) {
            if (step == before_q) fetch_q<Kind>(p, maps, shared, q, Kind::queries_of(p, work));
            if (step == end) break;
            if (step > 0) fetch_tile<Kind, kSlabs>(p, shared, &maps.k, shared.k(k.slot), kKFull, kKEmpty, k, source, step - 1);
            if (owed_step >= 0)
                fetch_tile<Kind, kOutSlabs>(p, shared, &maps.v, shared.v(v.slot), kVFull, kVEmpty, v, owed, owed_step);
            owed = source;
            owed_step = step - 1;
        }
        if (work.steps < 0) break;
    }
}

#if SCORE_ADDS
enum { kStarts = 1 };   // accumulators of scores start from what the user adds to them
#else
enum { kStarts = 0 };
#endif

// ---- consumer --------------------------------------------------------------------------------------------------

// S = Q K^T, or with SCORE_ADDS S += Q K^T, left under way; of the descriptors of a part of Q and of a tile of K.
FA_DEVICE void issue_qk(Scores &s, u64 q, u64 k) {
    constexpr int kFours = kSlab == 64 ? kWidth / 64 : 0;
    if constexpr (kFours > 0 && kStarts) {
        Wgmma<kN>::pin(s);
        wgmma_fence();
        Wgmma<kN>::multiply_4<false>(s, q, k);
    } else if constexpr (kFours > 0) {
        Wgmma<kN>::multiply_4<true>(s, q, k);
    } else {
        Wgmma<kN>::pin(s);
        wgmma_fence();
    }
#pragma unroll
    for (int slab = 1; slab < kFours; ++slab)
        Wgmma<kN>::multiply_4<false>(s, q + slab * (64 * kSlab * 2 / 16), k + slab * (kN * kSlab * 2 / 16));
#pragma unroll
    for (int d = kFours * 4; d < kWidth / 16; ++d) {
        const u32 slab = d / (kSlab / 16), within = d % (kSlab / 16) * 32;   // 16 columns are 32 bytes
        Wgmma<kN>::multiply(s, q + (slab * (64 * kSlab * 2) + within) / 16, k + (slab * (kN * kSlab * 2) + within) / 16, kStarts || d > 0);
    }
    wgmma_commit();
}

// O += P V, left under way; of the descriptor of a tile of V.
FA_DEVICE void issue_pv(Output &o, const Probs &p, u64 v, bool accumulate) {
    constexpr int kFours = kSlab == 64 ? kN / 64 * 4 : 0;
    if constexpr (kFours > 0) {
        Wgmma<kWidthV>::multiply_4<true>(o, p, v, accumulate);
    } else {
        Wgmma<kWidthV>::pin(o);
        wgmma_fence();
    }
#pragma unroll
    for (int k = 4; k < kFours; k += 4) Wgmma<kWidthV>::multiply_4<false>(o, &p[4 * k], v + k * (16 * kSlab * 2 / 16), true);
#pragma unroll
    for (int k = kFours; k < kN / 16; ++k)
        Wgmma<kWidthV>::multiply(o, &p[4 * k], v + k * (16 * kSlab * 2 / 16), k > 0 || accumulate);
    wgmma_commit();
}

FA_DEVICE void scale_rows(Output &o, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i % 4 / 2];
}

// One lane: the place of the next slab in the output's room is free again. Stores of the tile before are long done.
FA_DEVICE void wait_for_room(int slab, u32 slabs) {
    if (slab == 0 || slabs == 1) tma_store_wait_read<0>();
    else if (slabs < kOutSlabs) tma_store_wait_read<1>();
}

// Round, stage and let go, a slab of columns at a time and every warp for itself. Columns that do not exist are
// dropped by the copy engine, rows by Kind::let_go.
template <class Kind>
FA_DEVICE void store_output(const typename Kind::Params &p, const fa_attn_tensor_maps &maps, const Shared &shared,
                            const typename Kind::Work &work, const Output &o, u32 group) {
    const u32 warp = group * 4 + threadIdx.x % kGroup / kWarp, lane = threadIdx.x % kWarp;
    const u32 row = lane & 15, high = lane >> 4;   // of the matrix that this lane addresses
    const u32 swizzle = kSlab == 64 ? row & 7 : (row >> 1) & 3;
    const u32 slabs = shared.out_slabs();
    const u32 room = shared.out() + warp * slabs * kOutBytes, room_end = room + slabs * kOutBytes;
    u32 stage = room;
#pragma unroll
    for (int slab = 0; slab < kOutSlabs; ++slab) {
        if (lane == 0) wait_for_room(slab, slabs);
        warp_sync();
#pragma unroll
        for (u32 j = 0; j < kSlab / 16 && slab * kSlab + j * 16 < kWidthV; ++j) {
            const float *c = &o[8 * (slab * (kSlab / 16) + j)];
            stmatrix_x4(stage + row * (kSlab * 2) + ((2 * j + high) ^ swizzle) * 16, pack2<kBf16>(c[0], c[1]),
                        pack2<kBf16>(c[2], c[3]), pack2<kBf16>(c[4], c[5]), pack2<kBf16>(c[6], c[7]));
        }
        async_proxy_fence();
        warp_sync();
        Kind::let_go(p, maps, work, stage, slab * kSlab, (int)warp * 16);
        stage = stage + kOutBytes == room_end ? room : stage + kOutBytes;
    }
}
FA_DEVICE void turn_begin(const Shared &shared, u32 group) {
    if (kGroups > 1) named_sync_if(shared.turns(), kTurn + group, 2 * kGroup);
}
FA_DEVICE void turn_end(const Shared &shared, u32 group) {
    if (kGroups > 1) named_arrive_if(shared.turns(), kTurn + (group + 1 == kGroups ? 0 : group + 1), 2 * kGroup);
}

// A consumer's place in the rings that the producer fills. Every step of a tile is taken once by every consumer, in
// order: waited for, used or not, and released by each of its warps.
struct Feed {
    const Shared &shared;
    const u32 group;
    const u64 k_tiles, v_tiles;   // descriptors of the first tiles
    Ring k_ring, v_ring, q_ring;
#if MASK_SNIPPET
    int note = 0;                 // of the K that is multiplied
#endif
#if PIECE_STAGES
    Ring piece_ring;               // of what scores read of keys
#endif

    __device__ __forceinline__ Feed(const Shared &shared, u32 group)
        : shared(shared), group(group), k_tiles(wgmma_descriptor<kSlab>(shared.k(0), 0)),
          v_tiles(wgmma_descriptor<kSlab>(shared.v(0), kN * kSlab * 2)) {}

    // Of what was waited for: its descriptor.
    __device__ __forceinline__ u64 wait_q() const {
        barrier_wait(shared.barrier(kQFull + q_ring.slot * kGroups + group), q_ring.parity);
        return wgmma_descriptor<kSlab>(shared.q(group, q_ring.slot), 0);
    }
    __device__ __forceinline__ u64 wait_k() const {
        barrier_wait(shared.barrier(kKFull + k_ring.slot), k_ring.parity);
        return k_tiles + k_ring.slot * ((kKBytes + kVBytes) / 16);
    }
    __device__ __forceinline__ u64 wait_v() const {
        barrier_wait(shared.barrier(kVFull + v_ring.slot), v_ring.parity);
        return v_tiles + v_ring.slot * ((kKBytes + kVBytes) / 16);
    }
    __device__ __forceinline__ void release_k() {
        if (threadIdx.x % kWarp == 0) barrier_arrive(shared.barrier(kKEmpty + k_ring.slot));
        k_ring.advance(shared.stages());
    }
    __device__ __forceinline__ void release_v() {
        if (threadIdx.x % kWarp == 0) barrier_arrive(shared.barrier(kVEmpty + v_ring.slot));
        v_ring.advance(shared.stages());
    }
    // The tile's last Q K^T is complete.
    __device__ __forceinline__ void release_q() {
        if (threadIdx.x % kWarp == 0) barrier_arrive(shared.barrier(kQEmpty + q_ring.slot * kGroups + group));
        q_ring.advance(shared.q_stages());
    }
    // Steps that this consumer's rows do not see, before or behind those that they do. Turns are taken all the same: every consumer takes as many of them as
    // its tile has steps, or the others would wait for ever.
    __device__ __forceinline__ void skip(int steps) {
        for (; steps > 0; --steps) {
            wait_k();
            warp_sync();   // all lanes have seen it before one lets it go
            turn_begin(shared, group);
            turn_end(shared, group);
            release_k();
            wait_v();
            warp_sync();
            release_v();
        }
    }
};
// S = Q K^T of a step and O += P V of the step before it: both are issued, once `before` is done, S is complete, O is under way.
template <class... Before> FA_DEVICE void issue_both(Feed &feed, Scores &s, Output &o, const Probs &probs, u64 q, bool accumulate, const Before &...before) {
    const u64 k = feed.wait_k();
    (before(), ...);
    turn_begin(feed.shared, feed.group);
    issue_qk(s, q, k);
    issue_pv(o, probs, feed.wait_v(), accumulate);
    turn_end(feed.shared, feed.group);
    READ_NOTE(feed)
    wgmma_wait<1>();
    Wgmma<kN>::pin(s);
    feed.release_k();
}

// With a score or mask of a user's, steps are those that a tile's queries see: Kind::come_to sets Own::place, the number among all
// of the step whose K was waited for; its scores become what the user makes of them. Without, nothing stands here.
#if SCORE_SNIPPET || MASK_SNIPPET
#define PLACE_OF(step) own.place
#define COME_TO(step, work) Kind::come_to(own, feed, step), Kind::bend(s, feed, p, work, own, lane_row, lane_key + own.place * kN)
#if SCORE_ADDS
#if MASK_SNIPPET
#define NOTE_FIRST(feed) feed.note = note_of(feed.shared, feed.k_ring.slot);
#else
#define NOTE_FIRST(feed)
#endif
#define START(step, work, first) NOTE_FIRST(feed) Kind::come_to(own, feed, step), Kind::start_scores(s, ahead, feed, p, work, lane_row, lane_key + own.place * kN, first, step > from);
#define AND_START(step, work, first) , [&] { START(step, work, first) }
#endif
#else
#define PLACE_OF(step) step
#define COME_TO(step, work)
#endif
#ifndef START
#define START(step, work, first)
#define AND_START(step, work, first)
#endif
// Weights that dropout does not keep become 0, when they are summed and packed.
#if DROPOUT
#define DRAW_FOR(step, work) Kind::draw(dropped, p, work, lane_row, lane_key + PLACE_OF(step) * kN);
#define DROP dropped.apply(probs);
#else
#define DRAW_FOR(step, work)
#define DROP
#endif

template <class Kind>
FA_DEVICE void consume(const typename Kind::Params &p, const fa_attn_tensor_maps &maps, const Shared &shared, u32 group) {
    using Work = typename Kind::Work;
    const int lane_row = (int)(group * 64 + threadIdx.x % kGroup / kWarp * 16 + threadIdx.x % kWarp / 4);
    const int lane_key = (int)(threadIdx.x % 4) * 2;
    const typename Kind::Curve curve = Kind::find_curve(p);
    Feed feed(shared, group);
    typename Kind::Schedule schedule(p, shared);
    if (group == kGroups - 1) turn_end(shared, group);   // the first turn is consumer 0's

    for (Work work = schedule.next(p), next; work.steps >= 0; work = next) {
        Output o;
#pragma unroll
        for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
        Rows rows = new_rows();
        float factor[2];   // what the output is to be multiplied by
        typename Kind::Own own = Kind::find_own(p, work, group);
        u64 q = feed.wait_q();
        feed.skip(work.steps - own.steps);
        if (own.steps > 0) {
            // The first step of a tile, which nothing overlaps.
            Scores s;
            Probs probs;
#if DROPOUT
            Dropped<false, kN / 16> dropped;
#endif
#if SCORE_ADDS
            typename Kind::Ahead ahead;
#endif
            int step = own.steps - 1, from = Kind::first_step(own);
            const u64 k = feed.wait_k();
            START(step, work, true)
            turn_begin(shared, group);
            issue_qk(s, q, k);
            turn_end(shared, group);
            READ_NOTE(feed)
            wgmma_wait<0>();
            Wgmma<kN>::pin(s);
            feed.release_k();
            if (step == from) feed.release_q();
            COME_TO(step, work);
            if (Kind::is_masked(own, PLACE_OF(step))) Kind::mask(s, p, work, lane_row, lane_key + PLACE_OF(step) * kN);
            weigh_scores(s, rows, factor, curve);
            DRAW_FOR(step, work)
            pack(probs, s);
            DROP
            Kind::clean(feed, work, PLACE_OF(step));
            bool accumulate = false;
            for (;;) {
                // Each turn: Q K^T of the next step beside P V of this one.
                while (step > from) {
                    --step;
                    issue_both(feed, s, o, probs, q, accumulate AND_START(step, work, false));
                    if (step == from) feed.release_q();
                    COME_TO(step, work);
                    if (Kind::kMasksLater && Kind::is_masked(own, PLACE_OF(step)))
                        Kind::mask(s, p, work, lane_row, lane_key + PLACE_OF(step) * kN);
                    float shrink[2];
                    const bool grown = weigh_scores(s, rows, shrink, curve);
                    DRAW_FOR(step, work)
                    finish_before_wait(rows);
                    wgmma_wait<0>();
                    Wgmma<kWidthV>::pin(o);
                    feed.release_v();
                    if (grown) scale_rows(o, shrink);
                    pack(probs, s);
                    DROP
                    accumulate = true;
                }
                // The same from one tile to the next, where nothing is in the way: the producer hands a tile over when it has
                // fetched all keys of the one before, for which it needs what is skipped.
                if (from > 0) break;
                next = schedule.next(p);
                own = Kind::find_own(p, next, group);
                if (!ACROSS || next.steps <= 0 || own.steps < next.steps) break;
                step = own.steps - 1;
                from = Kind::first_step(own);
                q = feed.wait_q();
                issue_both(feed, s, o, probs, q, accumulate AND_START(step, next, true));
                if (step == from) feed.release_q();
                Kind::finish(p, work, rows, factor, lane_row);
                rows = new_rows();
                COME_TO(step, next);
                if (Kind::is_masked(own, PLACE_OF(step))) Kind::mask(s, p, next, lane_row, lane_key + PLACE_OF(step) * kN);
                float none[2];
                weigh_scores(s, rows, none, curve);
                DRAW_FOR(step, next)
                finish_before_wait(rows);
                wgmma_wait<0>();
                Wgmma<kWidthV>::pin(o);
                feed.release_v();
                scale_rows(o, factor);
                store_output<Kind>(p, maps, shared, work, o, group);
                pack(probs, s);
                DROP
                Kind::clean(feed, next, PLACE_OF(step));
                accumulate = false;
                work = next;
            }
            issue_pv(o, probs, feed.wait_v(), accumulate);
            wgmma_wait<0>();
            Wgmma<kWidthV>::pin(o);
            feed.release_v();
            feed.skip(from);
            if (from > 0) next = schedule.next(p);
        } else {
            warp_sync();   // all lanes have seen Q before one lets it go
            feed.release_q();
            next = schedule.next(p);
        }
        Kind::finish(p, work, rows, factor, lane_row);
        scale_rows(o, factor);
        store_output<Kind>(p, maps, shared, work, o, group);
    }
    if (threadIdx.x % kWarp == 0) tma_store_wait_read<0>();   // shared memory is gone when the block is
}
// What a block does, the kernel's whole body.
template <class Kind> FA_DEVICE void run_block(const typename Kind::Params &p, const fa_attn_tensor_maps &maps) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const Shared shared = {shared_address(memory)};
    if (threadIdx.x == 0) {
        if (shared.base % 1024 != 0 || !shared.fits()) asm volatile("trap;");   // descriptors and swizzles count on the first
        tma_prefetch_map(&maps.q);
        tma_prefetch_map(&maps.k);
        tma_prefetch_map(&maps.v);
        for (int g = 0; g < kMostQStages * kGroups; ++g) {
            barrier_init(shared.barrier(kQFull + g), 1);
            barrier_init(shared.barrier(kQEmpty + g), 4);
        }
        for (int i = 0; i < kMostStages; ++i) {
            barrier_init(shared.barrier(kKFull + i), 1);
            barrier_init(shared.barrier(kVFull + i), 1);
            barrier_init(shared.barrier(kKEmpty + i), kGroups * 4);
            barrier_init(shared.barrier(kVEmpty + i), kGroups * 4);
        }
        Kind::start(p, shared);
        barrier_init_fence();
    }
#if PIECE_STAGES
    cluster_sync();
#else
    named_sync(0, FA_THREADS);
#endif
    const u32 group = (u32)uniform((int)(threadIdx.x / kGroup));
    if (group == 0) {
        registers_decrease<PRODUCER_REGS>();
        Kind::produce(p, maps, shared);
    } else {
        registers_increase<CONSUMER_REGS>();
        consume<Kind>(p, maps, shared, group - 1);
    }
}

} // namespace

#endif
