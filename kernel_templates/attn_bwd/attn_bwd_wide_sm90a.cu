// SPDX-License-Identifier: Apache-2.0
//
// Attention backward for Hopper (sm_90a) with more than 128 columns: TMA, wgmma, one producing warpgroup and two consuming ones.
//
// Purpose: dQ, dK and dV in three launches, four with sinks, five with gradients of buffers; fp16 or bf16 in and out, fp32 sums. One makes
// dK and dV, another one dQ, beside it where SMs are idle (programmatic dependent launches), and both
// compute scores: seven products in place of five. With so many columns a block owns only 64 keys, and sums of dQ in memory, which
// every block would add to, cost more than two products: here nothing is added in memory, and the gradients have the same bits in
// every run (DETERMINISTIC makes no difference).
// Workload: a block of a main launch takes jobs until none is left, so that the next job's tiles are fetched while this one's
// gradients are stored.
//  - dK, dV: a job is a tile of 64 keys, which walks the tiles of queries that meet it, of each head of its group. The consumers have
//    different work. One computes S^T = K Q^T, P and dV += P^T dO, the other one dP^T = V dO^T, dS and dK += dS^T Q. So each product of
//    scores is computed once, P^T and dS^T multiply from registers, and only P passes through shared memory, from a thread of one
//    consumer to the same thread of the other. With a softcap or a user's score that is P times the slope of its curve.
//  - dQ: a job is a tile of 128 queries, of which each consumer owns 64. It walks the tiles of keys that they see: S = Q K^T,
//    dP = dO V^T, dQ += dS K with dS from registers.
// With a user's mask the first launch lists the steps of both kinds of jobs (attn_bwd_snippet.cuh), and each launch draws dropout's bits anew.
// Invariants:
//  - shared memory is rings of LSE, delta and P (for dK and dV), the block's own two tiles (K and V, or Q and dO), rings of the two
//    tiles that it walks, barriers and the number of a job. Tiles are slabs of 64 columns with swizzled
//    rows of 128 bytes; tiles of 128 queries of one's own are two tiles of 64. Rows that do not exist are zero.
//  - the first launch makes LSE and delta, the tensor maps (of each sequence with VARLEN=1, so that copies read zeros behind it) and
//    the numbers of the next jobs.
//  - a consumer issues a step's gradient in front of the next scores, whose tile is another slot: the slot of this step's is given up,
//    and fetched anew, meanwhile. One consumer computes weights while the other multiplies.
//  - a slot of P is free when there is a tile of Q for the step that writes it: that tile's slot was given up by the reader of P.
//  - a job without steps loads nothing; its gradients are 0.
//  - what is read by loads or products is written again only behind a barrier at which its readers arrived.
//    tests/test_emulated_bwd.py finds each of these barriers left out.
// racecheck reports reads of LSE and delta, and of P, as attn_bwd_sm90a.cu says: P is ordered by a warp barrier in front of one lane's
// arrival, and reported for the other lanes alone. tests/racecheck_bwd.py lets these pass and no others.
#define ROW_PARTS 1
#define SKIPS MASK_SNIPPET   // nobody waits for turns
#include "attn_bwd_sm90a.cuh"

namespace {

constexpr int kThreads = 3 * 128;
constexpr u32 kGroupWarps = 4;
constexpr int kSlabs = kD / 64, kSlabsV = kDv / 64;
constexpr int kQueryBox = 64, kKeyBox = DQ_BLOCK_N % 64 == 0 ? 64 : 32;   // rows of a copy
static_assert(kN == 64 && kM == 64 && DQ_BLOCK_N % 32 == 0, "a consumer owns 64 keys, and walks whole boxes");
static_assert(kD <= 256 && kDv <= 256, "the heads do not fit their tiles");

// ---- shared memory ---------------------------------------------------------------------------------------------

constexpr int kMost = 3;   // tiles in a ring
enum Barrier { kJobFull, kJobEmpty, kOwnFull, kOwnEmpty, kOwnVFull, kOwnVEmpty, kTileFull, kTileEmpty = kTileFull + kMost,
               kTileVFull = kTileEmpty + kMost, kTileVEmpty = kTileVFull + kMost, kWeightsFull = kTileVEmpty + kMost,
               kBarrierCount = kWeightsFull + kMost };

// A launch: the rows of a block's own tiles and of those that it walks, and how many of each it holds. "V" is what has kDv columns
// (V and dO), the other tile has kD (K and Q).
template <bool kOwnsKeys_, int kOwn_, int kStep_, int kStages_, int kStagesV_> struct Plan {
    static constexpr bool kOwnsKeys = kOwnsKeys_;
    static constexpr int kOwn = kOwn_, kStep = kStep_, kStages = kStages_, kStagesV = kStagesV_;
    static constexpr int kOwnBytes = kOwn * kD * 2, kOwnVBytes = kOwn * kDv * 2, kTileBytes = kStep * kD * 2, kTileVBytes = kStep * kDv * 2;
    static constexpr int kWeightsBytes = kOwnsKeys ? kStep * kOwn * 2 : 0, kRowsBytes = kOwnsKeys ? kStep * 4 : 0;
    static constexpr int kLseAt = 0, kDeltaAt = kLseAt + kStages * kRowsBytes;
    static constexpr int kWeightsAt = (kDeltaAt + kStagesV * kRowsBytes + 1023) / 1024 * 1024, kOwnAt = kWeightsAt + kStages * kWeightsBytes;
    static constexpr int kOwnVAt = kOwnAt + kOwnBytes, kTilesAt = kOwnVAt + kOwnVBytes, kTilesVAt = kTilesAt + kStages * kTileBytes;
    static constexpr int kBarriersAt = kTilesVAt + kStagesV * kTileVBytes;
    static constexpr int kJobAt = kBarriersAt + 8 * kBarrierCount;
    static_assert(kStages > 1 && kStages <= kMost && kStagesV <= kMost && kBarrierCount < 24, "what the manifest says of shared memory");

    const u32 base;
    __device__ __forceinline__ u32 barrier(u32 which) const { return base + kBarriersAt + 8 * which; }
};
using OfKeys = Plan<true, kN, kM, STAGES, STAGES>;              // dK and dV
using OfQueries = Plan<false, 128, DQ_BLOCK_N, 2, DQ_STAGES_V>; // dQ

// ---- the workspace ---------------------------------------------------------------------------------------------

// Behind LSE and delta, where other families have sums of dQ. Then two numbers of next jobs.
FA_DEVICE fa_tensor_map *maps_of(const fa_attn_bwd_params &p, void *workspace) { return (fa_tensor_map *)Workspace(p, workspace, 0).dq; }
FA_DEVICE u32 *next_job_of(const fa_attn_bwd_params &p, void *workspace, bool of_keys) {
    return (u32 *)(maps_of(p, workspace) + (kVarlen ? (i64)p.batch : 1) * kMaps) + (of_keys ? 0 : 1);
}
// SPLITS > 1: the sums of dK and dV of each part of each tile of keys; behind all of them the tiles' counters, of dK and of dV of each warp.
constexpr int kPartFloats = kN * (kD + kDv), kArrivals = 2 * kGroupWarps;
FA_DEVICE u32 all_key_tiles(const fa_attn_bwd_params &p) { return (u32)tiles_of<kN>(p, p.seq_k) * (u32)p.heads_kv * (u32)batches_of(p); }
FA_DEVICE float *sums_of_keys(const fa_attn_bwd_params &p, void *workspace) { return (float *)(next_job_of(p, workspace, true) + 4); }
FA_DEVICE u32 *arrivals_of(const fa_attn_bwd_params &p, void *workspace) {
    return (u32 *)(sums_of_keys(p, workspace) + (i64)all_key_tiles(p) * kParts * kPartFloats);
}
#if SKIPS
FA_DEVICE u32 *list_of(const fa_attn_bwd_params &p, void *workspace) {
    return kParts == 1 ? (u32 *)sums_of_keys(p, workspace) : arrivals_of(p, workspace) + (i64)all_key_tiles(p) * kArrivals;
}
template <class P> using Lists = ListedOf<P::kOwnsKeys, P::kOwn, P::kStep>;
#endif
// The first launch's part of a tile of queries.
FA_DEVICE void prepare_tile_rows(const fa_attn_bwd_params &p, void *workspace) {
    const u32 tiles = (u32)tiles_of_queries(p), block = blockIdx.x - map_blocks(p), head = block / tiles, batch = head / (u32)p.heads_q;
    i64 tile = block - head * tiles;
    const Workspace at(p, workspace, head, tile);
    const Sequence s = find_sequence<kM>(p, p.cu_seqlens_q, (int)batch, tile);
    prepare_rows(p, at, s, head - batch * (u32)p.heads_q, tile);
}
// A warp makes a map, of all batches or of a sequence.
FA_DEVICE void prepare_map(const fa_attn_bwd_params &p, void *workspace, int index, int which) {
    const int box = which == kMapQ || which == kMapDo ? kQueryBox : kKeyBox;
    make_map<kBf16>(maps_of(p, workspace) + (i64)index * kMaps + which, shared_address(shared_memory) + which * sizeof(fa_tensor_map),
                    shape_of(p, sequence_of(p, index), which, box));
}

// ---- jobs ------------------------------------------------------------------------------------------------------

template <class P> FA_DEVICE u32 tiles_a_head(const fa_attn_bwd_params &p) {
    return (u32)(P::kOwnsKeys ? tiles_of<P::kOwn>(p, p.seq_k) : tiles_of<P::kOwn>(p, p.seq_q));
}
// The same lengths and band, computed from what is at hand again: nothing of it stays in registers from one use to the next.
FA_DEVICE Sequence again(const fa_attn_bwd_params &p, const Sequence &s) {
    return {(int)opaque((u32)(kVarlen ? s.seq_q : p.seq_q)), (int)opaque((u32)(kVarlen ? s.seq_k : p.seq_k)), (int)opaque((u32)p.window_left),
            (int)opaque((u32)p.window_right), s.batch, s.first_q, s.first_k, s.first_tile};
}
// A step of a job: which tile is walked, and which head of queries of its group.
#if SKIPS
template <class P> using Step = ListedWalkOf<Lists<P>>;
#else
template <class P> struct Job;
template <class P> struct Step {
    int tile, head;
    __device__ __forceinline__ void next(const Job<P> &job) {
        if (++tile == job.end) tile = job.first, ++head;
    }
};
#endif
// A block's own tile, and the steps that it takes: the tiles that meet it, of each head of queries of its group where it owns keys.
template <class P> struct Job {
    int index, tile, head;   // of a sequence or batch; in it; head of keys (or part of one) or of queries
    int whole, group;        // heads of queries to a head of keys, and to its part of one
    u32 place;               // of the tile, among all heads of keys
    Sequence s;
    int first, end, steps;
#if SKIPS
    Step<P> listed;

    // The steps that are listed take the place of all.
    __device__ __forceinline__ void list(const fa_attn_bwd_params &p, void *workspace) {
        const u32 before = kVarlen ? (u32)first_tile_of<P::kOwn>(P::kOwnsKeys ? p.cu_seqlens_k : p.cu_seqlens_q, index) : 0;   // of other sequences
        listed = Step<P>(p, workspace, (u32)s.batch * opaque((u32)p.heads_q) + (u32)first_head(), before + (u32)tile, group, steps);
    }
    __device__ __forceinline__ Step<P> first_step() const { return listed; }
    __device__ __forceinline__ void go_on(Step<P> &step, bool more) const { step.next(more); }
#else
    __device__ __forceinline__ void list(const fa_attn_bwd_params &, void *) {}
    __device__ __forceinline__ Step<P> first_step() const { return {first, 0}; }
    __device__ __forceinline__ void go_on(Step<P> &step, bool) const { step.next(*this); }
#endif
    __device__ __forceinline__ int first_head() const { return P::kOwnsKeys ? (int)first_head_of((u32)head, (u32)whole) : head; }

    __device__ __forceinline__ Job(const fa_attn_bwd_params &p, u32 number) {
        const u32 tiles = opaque(tiles_a_head<P>(p)), heads = P::kOwnsKeys ? parts_of_heads(p) : opaque((u32)p.heads_q), all_head = number / tiles;
        tile = (int)(number - all_head * tiles);
        const int batch = (int)(all_head / heads);
        head = (int)(all_head - (u32)batch * heads);
        place = P::kOwnsKeys ? all_head / kParts * tiles + (u32)tile : 0;
        index = find_index<P::kOwn>(p, P::kOwnsKeys ? p.cu_seqlens_k : p.cu_seqlens_q, batch, tile);
        s = sequence_of(p, index);
        if constexpr (P::kOwnsKeys) {
            const Sequence lengths = again(p, s);
            const Meets meets = find_meets(lengths, find_band(lengths), tile * kN);
            first = meets.first, end = meets.end;
            whole = (int)(opaque((u32)p.heads_q) / opaque((u32)p.heads_kv));
            group = (int)heads_of((u32)head, (u32)whole);
            steps = end > first ? (end - first) * group : 0;
        } else {
            const Sequence before = again(p, s);
            const int own = (int)(((i64)before.seq_q + P::kOwn - 1) / P::kOwn);
            if (kCausal && tile < own) tile = own - 1 - tile;   // the longest first
            first = (int)opaque((u32)clamp((i64)tile * P::kOwn + find_band(before).low, before.seq_k) / P::kStep);
            const Sequence behind = again(p, s);
            const i64 row = (i64)tile * P::kOwn, end_row = row + P::kOwn < behind.seq_q ? row + P::kOwn : behind.seq_q;
            end = row < behind.seq_q ? (clamp(end_row + find_band(behind).high, behind.seq_k) + P::kStep - 1) / P::kStep : 0;
            group = 1;
            steps = end > first ? end - first : 0;
        }
    }
};

// Jobs are taken by one thread, from a counter, and read by the other warps of the block, which end with it after the last one.
template <class P> FA_DEVICE u32 take_job(const fa_attn_bwd_params &p, void *workspace, const P &shared, u32 turn) {
    const u32 tiles = tiles_a_head<P>(p), heads = (u32)(P::kOwnsKeys ? p.heads_kv * (int)kParts : p.heads_q) * (u32)batches_of(p);
    u32 number = take_number(next_job_of(p, workspace, P::kOwnsKeys));
    if (number >= tiles * heads) number = kNoJob;
    else if (kLongestFirst && !kVarlen) number = find_in_turn(number, tiles, heads);
    barrier_wait(shared.barrier(kJobEmpty), turn & 1 ^ 1);
    store_shared(shared.base + P::kJobAt, number);
    barrier_arrive(shared.barrier(kJobFull));
    return number;
}
template <class P> FA_DEVICE u32 read_job(const P &shared, u32 turn) {
    barrier_wait(shared.barrier(kJobFull), turn & 1);
    const u32 number = load_shared<u32>(shared.base + P::kJobAt);
    barrier_arrive(shared.barrier(kJobEmpty));
    return number;
}
// For a whole warp: one lane reads and arrives.
template <class P> FA_DEVICE u32 read_job_together(const P &shared, u32 turn) {
    u32 number = 0;
    if (threadIdx.x % kWarp == 0) number = read_job(shared, turn);
    return (u32)uniform((int)number);
}

// ---- copies ----------------------------------------------------------------------------------------------------

// A tile of kRows rows, in boxes of kBox rows.
template <int kCount, int kRows, int kBox>
FA_DEVICE void load_tile(u32 to, const fa_tensor_map *map, u32 barrier, int row, int head, int batch, u64 hint) {
#pragma unroll 1
    for (int i = 0; i < kCount; ++i)
#pragma unroll 1
        for (int r = 0; r < kRows; r += kBox) tma_load(to + (i * kRows + r) * kRowBytes, map, barrier, i * 64, row + r, head, batch, hint);
}

// One thread takes jobs and fetches tiles of K and Q, with LSE; another one those of V and dO, with delta.
template <class P, bool kOfV> FA_DEVICE void produce(const fa_attn_bwd_params &p, void *workspace, const P &shared) {
    constexpr int kCount = kOfV ? kSlabsV : kSlabs, kStages = kOfV ? P::kStagesV : P::kStages;
    constexpr int kOwnBytes = kOfV ? P::kOwnVBytes : P::kOwnBytes, kTileBytes = kOfV ? P::kTileVBytes : P::kTileBytes;
    constexpr u32 kOwnAt = kOfV ? P::kOwnVAt : P::kOwnAt, kTilesAt = kOfV ? P::kTilesVAt : P::kTilesAt, kRowsAt = kOfV ? P::kDeltaAt : P::kLseAt;
    constexpr u32 kFull = kOfV ? kTileVFull : kTileFull, kEmpty = kOfV ? kTileVEmpty : kTileEmpty;
    constexpr int kOwnBox = P::kOwnsKeys ? kKeyBox : kQueryBox, kBox = P::kOwnsKeys ? kQueryBox : kKeyBox;
    Ring<kStages> ring;
    u32 round = 0;   // of jobs that have steps
#pragma unroll 1
    for (u32 turn = 0;; ++turn) {
        const u32 number = kOfV ? read_job(shared, turn) : take_job(p, workspace, shared, turn);
        if (number == kNoJob) return;
        Job<P> job(p, number);
        job.list(p, workspace);
        if (job.steps == 0) continue;
        const fa_tensor_map *maps = maps_of(p, workspace) + (kVarlen ? (i64)job.index * kMaps : 0);
        const fa_tensor_map *own = maps + (P::kOwnsKeys ? (kOfV ? kMapV : kMapK) : (kOfV ? kMapDo : kMapQ));
        const fa_tensor_map *others = maps + (P::kOwnsKeys ? (kOfV ? kMapDo : kMapQ) : (kOfV ? kMapV : kMapK));
        acquire_map(own);
        acquire_map(others);
        const P again = {opaque(shared.base)};   // what is computed from it is not kept in registers meanwhile
        const u32 own_full = again.barrier(kOfV ? kOwnVFull : kOwnFull);
        barrier_wait(again.barrier(kOfV ? kOwnVEmpty : kOwnEmpty), round & 1 ^ 1);
        barrier_expect(own_full, kOwnBytes);
#pragma unroll 1
        for (int half = 0; half < P::kOwn / 64; ++half)
            load_tile<kCount, 64, kOwnBox>(again.base + kOwnAt + half * (kOwnBytes / (P::kOwn / 64)), own, own_full, job.tile * P::kOwn + half * 64,
                                           P::kOwnsKeys ? job.head / (int)kParts : job.head, job.s.batch, kEvictFirst);
        ++round;
        int head = P::kOwnsKeys ? (int)first_head_of((u32)job.head, (u32)job.whole) : job.head / (int)((u32)p.heads_q / opaque((u32)p.heads_kv));
#if SKIPS
        const int first_head = head;
        Step<P> step = job.first_step();
#pragma unroll 1
        for (int left = job.steps; left > 0; job.go_on(step, --left > 0), ring.advance()) {
            head = first_head + step.head;
            {
                const int tile = step.tile;
#else
        const int end_head = head + job.group;
#pragma unroll 1
        for (; head < end_head; ++head) {
#pragma unroll 1
            for (int tile = job.first; tile < job.end; ++tile, ring.advance()) {
#endif
                const P at = {opaque(shared.base)};
                const u32 full = at.barrier(kFull + ring.slot);
                barrier_wait(at.barrier(kEmpty + ring.slot), ring.parity ^ 1);
                barrier_expect(full, kTileBytes + P::kRowsBytes);
                load_tile<kCount, P::kStep, kBox>(at.base + kTilesAt + ring.slot * kTileBytes, others, full, tile * P::kStep, head, job.s.batch, kEvictLast);
                if constexpr (P::kOwnsKeys) {
                    const Workspace rows(p, workspace, (i64)job.s.batch * p.heads_q + head, job.s.first_tile + tile);
                    bulk_load(at.base + kRowsAt + ring.slot * P::kRowsBytes, kOfV ? rows.delta : rows.lse, P::kRowsBytes, full);
                }
            }
        }
    }
}

// ---- products --------------------------------------------------------------------------------------------------

#if SCORE_SNIPPET || MASK_SNIPPET
using Spot = SnippetCount<float>;
using Line = SnippetCount<SnippetLine>;
// Calls f(i, row, column, half, ahead) for the scores i of a lane, whose rows are at the places `row` and 8 more, and its columns `ahead` of the place `column`.
template <int kScores, class F> FA_DEVICE void each_score(int row, int column, const F &f) {
    constexpr int kApiece = BUFFER_COUNT > 0 ? 2 : 4;   // what is computed of so many takes no registers meanwhile
    const Spot low = query_place(row), high = query_place(row + 8);
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
        if (i % kApiece == 0) column = (int)opaque((u32)column);
        const int half = i / 2 % 2, ahead = i / 4 * 8 + i % 2;
        f(i, half == 0 ? low : high, line_place(column, ahead), half, ahead);
    }
}
#endif

// ---- dK and dV -------------------------------------------------------------------------------------------------

// What both consumers of keys know.
struct KeyWarp {
    const fa_attn_bwd_params &p;
    const OfKeys &shared;
    const u32 thread, lane;
    u32 step, round;   // of all jobs; of jobs that have steps

    __device__ __forceinline__ KeyWarp(const fa_attn_bwd_params &p, const OfKeys &shared)
        : p(p), shared(shared), thread(threadIdx.x % kGroup), lane(threadIdx.x % kWarp), step(0), round(0) {}
    __device__ __forceinline__ static u32 slot_of(u32 step) { return step % STAGES; }          // in each ring
    __device__ __forceinline__ static u32 parity_of(u32 step) { return step / STAGES & 1; }   // of that slot's barriers
    __device__ __forceinline__ u64 descriptor(u32 at, u32 slab_bytes = 0) const {
        return wgmma_descriptor<64>(opaque(shared.base) + at, slab_bytes);
    }
    __device__ __forceinline__ u64 queries(u32 of) const { return descriptor(OfKeys::kTilesAt + slot_of(of) * OfKeys::kTileBytes, kM * kRowBytes); }
    __device__ __forceinline__ u64 d_o(u32 of) const { return descriptor(OfKeys::kTilesVAt + slot_of(of) * OfKeys::kTileVBytes, kM * kRowBytes); }
    __device__ __forceinline__ u32 weights_at(u32 of) const { return shared.base + OfKeys::kWeightsAt + slot_of(of) * OfKeys::kWeightsBytes + thread * 16; }
    __device__ __forceinline__ void wait_full(u32 which, u32 of) const { barrier_wait(shared.barrier(which + slot_of(of)), parity_of(of)); }
    __device__ __forceinline__ void release(u32 which, u32 of) const {
        if (lane == 0) barrier_arrive(shared.barrier(which + slot_of(of)));
    }
};

#if DROPOUT
FA_DEVICE Dropped<true, kM / 16> kept_of_keys(const KeyWarp &w, const Job<OfKeys> &job, const Step<OfKeys> &at) {
    Dropped<true, kM / 16> kept;
    kept.find(Dropout(w.p.buffer, (i64)job.index * w.p.heads_q + job.first_head() + at.head), job.tile * kN + (int)(w.thread / kWarp * 16), at.tile * kM);
    return kept;
}
#endif
// S, P and dV of a job.
FA_DEVICE void take_values(KeyWarp &w, const Job<OfKeys> &job, float (&dv)[kDv / 2]) {
    const Curve curve(w.p);
    const int key = job.tile * kN + (int)(w.thread / kWarp * 16 + w.lane / 4);
    const Seers seers(job.s.seq_q, job.s.seq_k, find_band(job.s), key);
    const u32 t = w.lane % 4;
    Scores s;
    Packed weights;
    auto at = job.first_step();
    const auto issue_s = [&] {
        w.wait_full(kTileFull, w.step);
        issue_scores<64, kM, kSlabs * 4>(s, w.descriptor(OfKeys::kOwnAt), w.queries(w.step));
    };
    // P = exp2(S - LSE), while the other consumer's products are computed.
#if SCORE_SNIPPET || MASK_SNIPPET
    constexpr bool kBends = kSoftcap || SCORE_SNIPPET != 0;
    const auto weigh_all = [&] {
        const u32 lse = w.shared.base + OfKeys::kLseAt + KeyWarp::slot_of(w.step) * OfKeys::kRowsBytes + t * 16;
        const Places places = places_of(w.p, job.s, job.index, job.first_head() + at.head);
        const int row = at.tile * kM, own_row = row + (int)t * 2, place = own_row + place_of_query(job.s);
#if SKIPS
        const bool clear = at.whole();
#else
        const bool clear = seers.first[1] <= row && seers.end[0] >= row + kM;
#endif
        Wgmma<kM>::pin(s);
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) {
            float rows[4], before[2] = {};
            u32 bent[4];   // P times the slope of the text
            load_shared(rows, lse + j * 64);
            each_score<8>(key, place + j * 16, [&](int i, const Spot &key, const Line &query, int, int) {
                float slope = 1.0f;
                const float weight = weigh(w.p, curve, places, query, key, s[8 * j + i], rows[i / 4 * 2 + i % 2], slope), product = weight * slope_at(weight, slope);
                if (i % 2 == 1) weights[4 * j + i / 2] = pack2<kBf16>(before[0], weight), bent[i / 2] = pack2<kBf16>(before[1], product);
                before[0] = weight, before[1] = product;
            });
            if (!clear)
                each_score<8>(key, place + j * 16, [&](int i, const Spot &key, const Line &query, int half, int ahead) {
                    ahead += j * 16;
                    bool seen = ahead >= seers.first[half] - own_row & ahead < seers.end[half] - own_row;   // without branches
#if MASK_SNIPPET
                    seen &= is_visible(places, query, key);
#endif
                    const u32 kept = seen ? 0xffffffffu : i % 2 == 0 ? 0xffff0000u : 0xffffu;   // of a pair
                    weights[4 * j + i / 2] &= kept;
                    if (kBends) bent[i / 2] &= kept;
                });
            store_shared(w.weights_at(w.step) + j * (kGroup * 16), kBends ? (const u32 (&)[4])bent : (const u32 (&)[4])weights[4 * j]);
        }
    };
#else
    const auto weigh_all = [&] {
        const u32 lse = w.shared.base + OfKeys::kLseAt + KeyWarp::slot_of(w.step) * OfKeys::kRowsBytes + t * 16;
        Wgmma<kM>::pin(s);
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) {
            float rows[4], slope;
            load_shared(rows, lse + j * 64);
#pragma unroll
            for (int i = 0; i < 8; ++i) s[8 * j + i] = curve.weight(s[8 * j + i], rows[i / 4 * 2 + i % 2], slope);
        }
        seers.mask(s, at.tile * kM, (int)t * 2);
    };
#endif
    // To the registers of dV's product, and to the other consumer. more: there is another step.
    const auto pass = [&](bool more) {
#if !SCORE_SNIPPET && !MASK_SNIPPET
        const u32 lse = w.shared.base + OfKeys::kLseAt + KeyWarp::slot_of(w.step) * OfKeys::kRowsBytes + t * 16;
#pragma unroll
        for (int i = 0; i < kM / 4; ++i) weights[i] = pack2<kBf16>(s[2 * i], s[2 * i + 1]);
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) {
            u32 x[4] = {weights[4 * j], weights[4 * j + 1], weights[4 * j + 2], weights[4 * j + 3]};
            if constexpr (kSoftcap) {
                float rows[4];
                load_shared(rows, lse + j * 64);
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float a = s[8 * j + 2 * i], b = s[8 * j + 2 * i + 1];
                    x[i] = pack2<kBf16>(a * slope_of(curve, a, rows[i / 2 * 2]), b * slope_of(curve, b, rows[i / 2 * 2 + 1]));
                }
            }
            store_shared(w.weights_at(w.step) + j * (kGroup * 16), x);
        }
#endif
#if DROPOUT
        kept_of_keys(w, job, at).apply(weights);
#endif
        job.go_on(at, more);
        warp_sync();   // all lanes have read LSE and written P
        w.release(kWeightsFull, w.step);
        w.release(kTileEmpty, w.step);
        ++w.step;
    };
    const auto issue_dv = [&] {
        w.wait_full(kTileVFull, w.step - 1);
        issue_gradient<kDv, kM>(dv, weights, w.d_o(w.step - 1));
    };
    const auto finish_dv = [&] {
        Wgmma<kDv>::pin(dv);
        w.release(kTileVEmpty, w.step - 1);
    };
    barrier_wait(w.shared.barrier(kOwnFull), w.round & 1);
    issue_s();
    wgmma_wait<0>();
    weigh_all();
    pass(job.steps > 1);
#pragma unroll 1
    for (int left = job.steps - 1; left > 0; --left) {
        issue_dv();
        issue_s();
        wgmma_wait<1>();
        finish_dv();
        wgmma_wait<0>();
        weigh_all();
        pass(left > 1);
    }
    if (w.lane == 0) barrier_arrive(w.shared.barrier(kOwnEmpty));
    issue_dv();
    wgmma_wait<0>();
    finish_dv();
}

// dP, dS and dK of a job.
FA_DEVICE void take_keys(KeyWarp &w, const Job<OfKeys> &job, float (&dk)[kD / 2]) {
    Scores dp;
    Packed ds;
#if DROPOUT
    const fa_attn_bwd_params &p = w.p;
    auto at = job.first_step();
#endif
    const auto issue_dp = [&] {
        w.wait_full(kTileVFull, w.step);
        issue_scores<64, kM, kSlabsV * 4>(dp, w.descriptor(OfKeys::kOwnVAt), w.d_o(w.step));
    };
    // dS = P (dP - delta).
    const auto weigh = [&](bool more) {
        const u32 delta = w.shared.base + OfKeys::kDeltaAt + KeyWarp::slot_of(w.step) * OfKeys::kRowsBytes + w.lane % 4 * 16;
        Wgmma<kM>::pin(dp);
#if DROPOUT
        kept_of_keys(w, job, at).apply(dp);
        job.go_on(at, more);
#endif
        w.wait_full(kWeightsFull, w.step);
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) {
            float rows[4];
            u32 weights[4];
            load_shared(rows, delta + j * 64);
            load_shared(weights, w.weights_at(w.step) + j * (kGroup * 16));
#pragma unroll
            for (int i = 0; i < 8; ++i)
                dp[8 * j + i] = to_float<kBf16>((u16)(weights[i / 2] >> i % 2 * 16)) * (dp[8 * j + i] AS_KEPT - rows[i / 4 * 2 + i % 2]);
        }
        async_proxy_fence();   // the copy engine writes the next delta there
        warp_sync();           // all lanes have read it
        w.release(kTileVEmpty, w.step);
    };
    const auto pass = [&] {
#pragma unroll
        for (int i = 0; i < kM / 4; ++i) ds[i] = pack2<kBf16>(dp[2 * i], dp[2 * i + 1]);
        ++w.step;
    };
    const auto issue_dk = [&] {
        w.wait_full(kTileFull, w.step - 1);
        issue_gradient<kD, kM>(dk, ds, w.queries(w.step - 1));
    };
    const auto finish_dk = [&] {
        Wgmma<kD>::pin(dk);
        w.release(kTileEmpty, w.step - 1);
    };
    barrier_wait(w.shared.barrier(kOwnVFull), w.round & 1);
    issue_dp();
    wgmma_wait<0>();
    weigh(job.steps > 1);
    pass();
#pragma unroll 1
    for (int left = job.steps - 1; left > 0; --left) {
        issue_dk();
        issue_dp();
        wgmma_wait<1>();
        finish_dk();
        wgmma_wait<0>();
        weigh(left > 1);
        pass();
    }
    if (w.lane == 0) barrier_arrive(w.shared.barrier(kOwnVEmpty));
    issue_dk();
    wgmma_wait<0>();
    finish_dk();
}

template <bool kOfV> FA_DEVICE void consume_keys(const fa_attn_bwd_params &p, void *workspace, const OfKeys &shared) {
    constexpr int kTile = kOfV ? kDv : kD;
    KeyWarp w(p, shared);
#pragma unroll 1
    for (u32 turn = 0;; ++turn) {
        const u32 number = read_job_together(shared, turn);
        if (number == kNoJob) return;
        float sum[kTile / 2];
#pragma unroll
        for (int i = 0; i < kTile / 2; ++i) sum[i] = 0.0f;
        {
            Job<OfKeys> job(p, number);
            job.list(p, workspace);
            if (job.steps > 0) {
                if constexpr (kOfV) take_values(w, job, sum);
                else                take_keys(w, job, sum);
                ++w.round;
            }
        }
        const Job<OfKeys> job(p, opaque(number));
        if constexpr (kParts > 1) {
            const u32 warp = w.thread / kWarp;
            float *sums = sums_of_keys(p, workspace) + (i64)job.place * kParts * kPartFloats + (kOfV ? kN * kD : 0) + warp * (16 * kTile);
            put_part(sum, sums, kPartFloats, (u32)job.head % kParts);
            if (!comes_last(arrivals_of(p, workspace) + (i64)job.place * kArrivals + (kOfV ? kGroupWarps : 0) + warp)) continue;
            add_parts(sum, sums, kPartFloats);
        }
        const int key = job.tile * kN + (int)(w.thread / kWarp * 16);
        const fa_attn_bwd_strides &strides = kOfV ? p.dv_strides : p.dk_strides;
        u16 *to = (u16 *)row_of(kOfV ? p.dv : p.dk, strides, job.s.batch, job.head / (int)kParts, job.s.first_k + key);
        store_gradient<kTile, kOfV ? HEAD_DIM_V : HEAD_DIM>(sum, kOfV ? DV_SCALE : p.softmax_scale, to, strides.row, job.s.seq_k - key);
    }
}

// ---- dQ --------------------------------------------------------------------------------------------------------

// dQ of a job's rows from `row` on, those of a warp.
FA_DEVICE void take_queries(const fa_attn_bwd_params &p, void *workspace, const OfQueries &shared, const Job<OfQueries> &job, u32 group, u32 round,
                            Ring<2> &ring, Ring<DQ_STAGES_V> &ring_v, float (&dq)[kD / 2]) {
    constexpr int kKeys = DQ_BLOCK_N;
    const u32 lane = threadIdx.x % kWarp, t = lane % 4;
    const int row0 = job.tile * OfQueries::kOwn + (int)(group * 64 + threadIdx.x % kGroup / kWarp * 16 + lane / 4);
    const Workspace from(p, workspace, (i64)job.s.batch * p.heads_q + job.head, job.s.first_tile);
    const Curve curve(p);
#if MASK_LISTS || SCORE_SNIPPET && MASK_SNIPPET && BUFFER_COUNT > 0
    constexpr bool kLate = kD > 192;   // addresses leave few registers: dP is issued behind the weights, and rows are read anew
    const auto read_rows = [&](float (&x)[2], bool of_lse) {
        const Workspace from(p, workspace, (i64)(int)opaque((u32)job.s.batch) * p.heads_q + job.head, job.s.first_tile);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = (int)opaque((u32)row0) + half * 8;
            x[half] = row >= job.s.seq_q ? (of_lse ? -neg_infinity() : 0.0f) : load_float((of_lse ? from.lse : from.delta) + (i64)(row & ~15) + place_of_row(row & 15));
        }
    };
#else
    constexpr bool kLate = false;
    const auto read_rows = [&](float (&)[2], bool) {};
#endif
    float lse[2], delta[2];
    const Band band = find_band(job.s);
    int low[2], high[2];   // keys that rows g and g + 8 see, counted from 2 t
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row0 + half * 8;
        const bool there = row < job.s.seq_q;
        const i64 place = (i64)(row & ~15) + place_of_row(row & 15);
        lse[half] = there ? load_float(from.lse + place) : -neg_infinity();
        delta[half] = there ? load_float(from.delta + place) : 0.0f;
        const Seen seen = find_seen(job.s, band, row, (int)t * 2);
        low[half] = seen.low, high[half] = seen.high;
#if SCORE_SNIPPET || MASK_SNIPPET
        if (!there) high[half] = 0;   // a text may say anything of it
#endif
    }
    const auto descriptor = [&](u32 place, u32 slab_bytes) { return wgmma_descriptor<64>(opaque(shared.base) + place, slab_bytes); };
    const auto release = [&](u32 which) {
        if (lane == 0) barrier_arrive(shared.barrier(which));
    };
    float s[kKeys / 2], dp[kKeys / 2];   // element 4 * j + 2 * half + e: row g + 8 * half, key 8 * j + 2 * t + e
    u32 ds[kKeys / 4], slot = 0;         // of the tile of keys that dQ multiplies
#if SKIPS
    auto at = job.first_step();
    int tile = at.tile, left = job.steps;   // left: from this one on
#else
    int tile = job.first;
#endif
    int key;                             // the first one of a step
    const auto issue_s = [&] {
        barrier_wait(shared.barrier(kTileFull + ring.slot), ring.parity);
        issue_scores<64, kKeys, kSlabs * 4>(s, descriptor(OfQueries::kOwnAt + group * (64 * kD * 2), 0),
                                    descriptor(OfQueries::kTilesAt + ring.slot * OfQueries::kTileBytes, 0));
    };
    const auto issue_dp = [&] {
        barrier_wait(shared.barrier(kTileVFull + ring_v.slot), ring_v.parity);
        issue_scores<64, kKeys, kSlabsV * 4>(dp, descriptor(OfQueries::kOwnVAt + group * (64 * kDv * 2), 0),
                                     descriptor(OfQueries::kTilesVAt + ring_v.slot * OfQueries::kTileVBytes, 0));
    };
    // P = exp2(S - LSE), while dP is computed; with texts P times its slope.
#if SCORE_SNIPPET || MASK_SNIPPET
    const auto weigh_all = [&] {
        const Places places = places_of(p, job.s, job.index, job.head);
        const int first_row = row0 + place_of_query(job.s);
        key = tile * kKeys;
        if (kLate) read_rows(lse, true);
        each_score<kKeys / 2>(first_row, key + (int)t * 2, [&](int i, const Spot &query, const Line &line, int half, int) {
            float slope = 1.0f;
            const float weight = weigh(p, curve, places, query, line, s[i], lse[half], slope);
            s[i] = weight * slope_at(weight, slope);
        });
#if SKIPS
        const bool clear = at.whole();
#else
        const bool clear = high[0] >= key + kKeys && high[1] >= key + kKeys && !(kWindow && low[1] > key);
#endif
        if (!clear)
            each_score<kKeys / 2>(first_row, key + (int)t * 2, [&](int i, const Spot &query, const Line &line, int half, int ahead) {
                bool seen = key + ahead < high[half] & (!kWindow || key + ahead >= low[half]);
#if MASK_SNIPPET
                seen &= is_visible(places, query, line);
#endif
                if (!seen) s[i] = 0.0f;
            });
#if SKIPS
        at.next(--left > 0);
        tile = left > 0 ? at.tile : job.end;
#else
        ++tile;
#endif
    };
#else
    const auto weigh_all = [&] {
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) {
            float slope;
            s[i] = curve.weight(s[i], lse[i / 2 % 2], slope);
        }
        key = tile * kKeys;
        if (high[0] < key + kKeys || (kWindow && low[1] > key)) {
#pragma unroll
            for (int i = 0; i < kKeys / 2; ++i) {
                const int column = key + i / 4 * 8 + i % 2;
                if (column >= high[i / 2 % 2] || (kWindow && column < low[i / 2 % 2])) s[i] = 0.0f;
            }
        }
        ++tile;
    };
#endif
    const auto pass = [&] {
        wgmma_wait<0>();
        Wgmma<kKeys>::pin(dp);
        release(kTileVEmpty + ring_v.slot);
#if DROPOUT
#pragma unroll
        for (int j = 0; j < kKeys / 32; ++j) {   // few at a time, for there are few registers
            Dropped<false, 2> kept;
            kept.find(Dropout(p.buffer, (i64)job.index * p.heads_q + job.head), row0 - (int)lane / 4, key + j * 32);
            kept.apply((float (&)[16])dp[16 * j]);
        }
#endif
        if (kLate) read_rows(delta, false);
#pragma unroll
        for (int i = 0; i < kKeys / 2; ++i) {
            dp[i] = s[i] * (dp[i] AS_KEPT - delta[i / 2 % 2]);
#if !SCORE_SNIPPET && !MASK_SNIPPET
            if constexpr (kSoftcap) dp[i] *= slope_of(curve, s[i], lse[i / 2 % 2]);
#endif
        }
#pragma unroll
        for (int i = 0; i < kKeys / 4; ++i) ds[i] = pack2<kBf16>(dp[2 * i], dp[2 * i + 1]);
        slot = ring.slot;
        ring.advance();
        ring_v.advance();
    };
    const auto issue_dq = [&] {
        issue_gradient<kD, kKeys>(dq, ds, descriptor(OfQueries::kTilesAt + slot * OfQueries::kTileBytes, kKeys * kRowBytes));
    };
    barrier_wait(shared.barrier(kOwnFull), round & 1);
    issue_s();
    barrier_wait(shared.barrier(kOwnVFull), round & 1);
    if (!kLate) issue_dp();
    wgmma_wait<kLate ? 0 : 1>();
    Wgmma<kKeys>::pin(s);
    weigh_all();
    if (kLate) issue_dp();
    pass();
#pragma unroll 1
    while (tile < job.end) {
        issue_dq();
        issue_s();
        wgmma_wait<1>();
        Wgmma<kD>::pin(dq);
        release(kTileEmpty + slot);
        wgmma_wait<0>();
        Wgmma<kKeys>::pin(s);
        if (!kLate) issue_dp();
        weigh_all();
        if (kLate) issue_dp();
        pass();
    }
    release(kOwnEmpty);
    release(kOwnVEmpty);
    issue_dq();
    wgmma_wait<0>();
    Wgmma<kD>::pin(dq);
    release(kTileEmpty + slot);
}

FA_DEVICE void consume_queries(const fa_attn_bwd_params &p, void *workspace, const OfQueries &shared, u32 group) {
    Ring<2> ring;
    Ring<DQ_STAGES_V> ring_v;
    u32 round = 0;
#pragma unroll 1
    for (u32 turn = 0;; ++turn) {
        const u32 number = read_job_together(shared, turn);
        if (number == kNoJob) return;
        float dq[kD / 2];
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) dq[i] = 0.0f;
        {
            Job<OfQueries> job(p, number);
            job.list(p, workspace);
            if (job.steps > 0) take_queries(p, workspace, shared, job, group, round++, ring, ring_v, dq);
        }
        const Job<OfQueries> job(p, opaque(number));
        const int row = job.tile * OfQueries::kOwn + (int)(group * 64 + threadIdx.x % kGroup / kWarp * 16);
        u16 *to = (u16 *)row_of(p.dq, p.dq_strides, job.s.batch, job.head, job.s.first_q + row);
        store_gradient<kD, HEAD_DIM>(dq, p.softmax_scale, to, p.dq_strides.row, job.s.seq_q - row);
    }
}

// ---- launches --------------------------------------------------------------------------------------------------

template <class P> FA_DEVICE void make_barriers(const P &shared) {
    constexpr u32 kReaders = P::kOwnsKeys ? kGroupWarps : 2 * kGroupWarps;   // of a block's own tile
    if (threadIdx.x == 0) {
        if (shared.base % 1024 != 0) asm volatile("trap;");   // descriptors and swizzles count on it
        barrier_init(shared.barrier(kJobFull), 1);
        barrier_init(shared.barrier(kJobEmpty), 1 + 2 * kGroupWarps);   // the other producer, consumers' warps
        for (int i = kOwnFull; i <= kOwnVFull; i += 2) {
            barrier_init(shared.barrier(i), 1);
            barrier_init(shared.barrier(i + 1), kReaders);
        }
        for (int i = 0; i < kMost; ++i) {
            barrier_init(shared.barrier(kTileFull + i), 1);
            barrier_init(shared.barrier(kTileVFull + i), 1);
            barrier_init(shared.barrier(kTileEmpty + i), 2 * kGroupWarps);
            barrier_init(shared.barrier(kTileVEmpty + i), 2 * kGroupWarps);
            barrier_init(shared.barrier(kWeightsFull + i), kGroupWarps);
        }
        barrier_init_fence();
    }
    named_sync(0, kThreads);
}

template <class P> FA_DEVICE void produce_all(const fa_attn_bwd_params &p, void *workspace, const P &shared) {
    registers_decrease<40>();
    const u32 warp = (u32)uniform((int)(threadIdx.x / kWarp));
    if (warp > 1 || threadIdx.x % kWarp != 0) return;
    if (warp == 0) produce<P, false>(p, workspace, shared);
    else           produce<P, true>(p, workspace, shared);
}

} // namespace

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_prepare(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    let_next_launch_begin();
#if D_BUFFERS > 0
    clear_sums(workspace);
#endif
    zero_gradients_of_sinks(p);
    const int warp = (int)(threadIdx.x / kWarp);
    if (blockIdx.x < map_blocks(p) && warp < kMaps) prepare_map(p, workspace, (int)blockIdx.x, warp);
    if (blockIdx.x == 0 && threadIdx.x < 2) *next_job_of(p, workspace, threadIdx.x == 0) = 0;
    if constexpr (kParts > 1)
        for (i64 i = (i64)blockIdx.x * kSideThreads + threadIdx.x; i < (i64)all_key_tiles(p) * kArrivals; i += (i64)gridDim.x * kSideThreads)
            arrivals_of(p, workspace)[i] = 0;
#if SKIPS
    list_tiles<Lists<OfKeys>>(p, workspace);
    list_tiles<Lists<OfQueries>>(p, workspace);
#endif
    if (blockIdx.x - map_blocks(p) < tiles_of_queries(p) * p.heads_q * batches_of(p)) prepare_tile_rows(p, workspace);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
attn_bwd(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    const OfKeys shared = {shared_address(shared_memory)};
    make_barriers(shared);
    await_launches_and_copies_before();
    let_next_launch_begin();   // dQ's, which reads what the first launch wrote, and nothing of this one
    const u32 group = (u32)uniform((int)(threadIdx.x / kGroup));
    if (group == 0) {
        produce_all(p, workspace, shared);
    } else {
        registers_increase<232>();
        if (group == 1) consume_keys<true>(p, workspace, shared);
        else            consume_keys<false>(p, workspace, shared);
    }
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
attn_bwd_dq(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    const OfQueries shared = {shared_address(shared_memory)};
    make_barriers(shared);
    let_next_launch_begin();
    const u32 group = (u32)uniform((int)(threadIdx.x / kGroup));
    if (group == 0) {
        produce_all(p, workspace, shared);
    } else {
        registers_increase<232>();
        consume_queries(p, workspace, shared, group - 1);
        await_launches_and_copies_before();   // who waits for this launch waits for all
    }
}

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_finish(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    await_launches_and_copies_before();
#if D_BUFFERS > 0
    if (gridDim.y == 2) round_sums(p, workspace);
    if (gridDim.y == 2 || sum_buffers(p, workspace)) return;
#endif
    finish_sink(p, workspace, (int)blockIdx.x);
}
