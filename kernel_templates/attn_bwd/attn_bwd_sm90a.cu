// SPDX-License-Identifier: Apache-2.0
//
// Attention backward for Hopper (sm_90a): TMA, wgmma, one producing warpgroup and two consuming ones.
//
// Purpose: dQ, dK and dV in three launches (attn_bwd_tiles.cuh), fp16 or bf16 in and out, fp32 sums.
// Workload: a block of the main launch takes jobs until none is left, so that the next job's tiles are fetched while this one's dK and
// dV are stored. A job is a tile of 128 keys; each consumer owns 64 of them and walks the tiles of Q and dO that meet them. Scores are transposed, rows are keys: S^T = K Q^T and dP^T = V dO^T, so that P^T and dS^T multiply dO and Q
// from registers. dS passes through shared memory for dQ = dS K, of which each consumer computes a half.
// Invariants:
//  - shared memory is K, V, rings of tiles of Q and of dO, two tiles of dS, the consumers' halves of dQ, rings of LSE and
//    delta, barriers, the number of a job. Tiles are slabs of 64 columns with swizzled rows of 128 bytes. Rows that do not exist are zero.
//  - the first launch also makes the tensor maps and sets the number of the next job to 0, in the workspace between the sums of dQ and
//    the counters (Progress, or two turns for each tile, one for each half), and orders LSE and delta as a lane wants them (place_of_row).
//  - DETERMINISTIC=0: jobs clear the sums of dQ before they are added to and round them afterwards. With turns the first job at a tile
//    stores its sums, so that only tiles without one are cleared, and the last launch rounds them all.
//  - a consumer multiplies a step's dS with K during its next step, so that neither waits long for the other's rows of it: one
//    computes weights while the other multiplies.
//  - each consumer hands its half of dQ to a warp of the producing warpgroup, which adds it to the workspace.
//  - jobs are taken in the order of their numbers, so that a job that waits for others (DETERMINISTIC) waits for jobs that were taken.
//  - VARLEN=1: the first launch ranks the sequences, those with most queries first, and makes each its own tensor maps, which end with
//    it: copies read zeros behind a sequence and write nothing there. The thread that takes a job's number finds its sequence and tells
//    the other warps both.
//  - dK and dV are stored from registers, so that no job waits for the shared memory of the one before.
//  - what is read by loads, products or copies is written again only behind a barrier at which its readers arrived, and what
//    ordinary stores wrote (dS, halves of dQ) is fenced by each lane before its warp arrives.
//    tests/test_emulated_bwd.py finds each of these barriers and fences left out.
// racecheck reports races here, and two things here are beyond what it follows: an mbarrier between cp.async.bulk (LSE, delta) and
// another warp's loads (with cp.async.bulk.tensor it follows the same barrier: FlashAttention's AI/RACECHECK_TMA_HAZARD.md), and a
// warp barrier in front of one lane's arrival for all. A consumer passes one named barrier less than its draining warp, which arrives once more.
#if D_BUFFERS > 0
#define SUMS_IN_PASS 1
#else
#define SUMS_IN_PASS 0
#endif
#include "attn_bwd_sm90a.cuh"
#include "fa_wgmma_across.cuh"

namespace {

constexpr int kGroups = 2, kThreads = (kGroups + 1) * 128, kStages = 2;
constexpr int kSlabs = kD / 64, kSlabsV = kDv / 64;
constexpr int kWidth = (HEAD_DIM + 15) / 16 * 16, kWidthV = (HEAD_DIM_V + 15) / 16 * 16;   // columns of a tile that products read and make
static_assert(kN == kGroups * 64 && kM % 16 == 0 && kM >= 64 && kM <= 128, "a consumer owns 64 keys");
static_assert(kStages == 2, "a step's slot is its lowest bit");
static_assert(kD <= 128 && kDv <= 128, "the heads do not fit their tiles");

#if SKIPS
constexpr bool kKeeps = true;   // a consumer's warp keeps its job's numbers in shared memory while it multiplies
#else
constexpr bool kKeeps = kVarlen || kM == 80 || kParts > 1;
#endif
constexpr int kKeptBytes = 32;   // of a consumer's warp (keep_job)
constexpr int kKBytes = kN * kD * 2, kVBytes = kN * kDv * 2, kQBytes = kM * kD * 2, kDoBytes = kM * kDv * 2;
constexpr int kDsBytes = kM * kN * 2, kHalfBytes = kM * kD * 4 / kGroups, kRowsBytes = kM * 4;
constexpr int kKAt = 0, kVAt = kKAt + kKBytes, kQAt = kVAt + kVBytes, kDoAt = kQAt + kStages * kQBytes;
constexpr int kDsAt = kDoAt + kStages * kDoBytes, kHalvesAt = kDsAt + 2 * kDsBytes, kJobsAt = kHalvesAt + kGroups * kHalfBytes, kLseAt = kJobsAt + (kKeeps ? kGroups * 4 * kKeptBytes : 0);
constexpr int kDeltaAt = kLseAt + kStages * kRowsBytes, kBarriersAt = kDeltaAt + kStages * kRowsBytes;
enum Barrier { kJobFull, kJobEmpty, kKFull, kKEmpty, kVFull, kVEmpty, kQFull, kQEmpty = kQFull + kStages, kDoFull = kQEmpty + kStages,
               kDoEmpty = kDoFull + kStages, kDsFull = kDoEmpty + kStages, kDsEmpty = kDsFull + 2, kApartFull = kDsEmpty + 2, kBarrierCount };
constexpr int kJobAt = kBarriersAt + 8 * kBarrierCount, kSumsAt = kBarriersAt + 192;
static_assert(8 * kBarrierCount + (kVarlen ? 40 : 4) <= 192 && 64 * kD * 2 <= kHalfBytes, "what the manifest says of shared memory");
enum Named { kHalfEmpty = 1, kHalfFull = kHalfEmpty + kGroups, kSumsFull = kHalfFull + kGroups };
// Whether the second consumer begins a job when the first one's products for its first step are complete (kApartFull), so that one
// multiplies while the other computes weights. Nothing but time depends on it.
constexpr bool kApart = kD == 128;

// Whether a step's LSE and delta are read while products are waited for, where there are registers.
#if SCORE_SNIPPET || MASK_SNIPPET || DROPOUT
constexpr bool kEarly = false;
#else
constexpr bool kEarly = kD == 128 && kM <= 80 && !kSoftcap && !(kVarlen && kWindow) && !kDeterministic;
#endif

// How the consumers share dQ, in products of 64 rows and kDqN columns: by its rows, by its columns, or transposed (dQ^T = K^T dS^T:
// rows are columns of K), by what is left.
constexpr bool kDqByRows = kM == 128 && kD == 64, kDqByColumns = kM == 64 && kD == 128, kDqAcross = !kDqByRows && !kDqByColumns;
constexpr int kDqN = !kDqAcross ? 64 : kD == 128 ? kM : kM / 2;
// Of a half, what is summed: of the second one by columns those that exist.
constexpr int kDqRest = kDqByColumns ? kWidth - 64 : kDqN;
FA_DEVICE u32 bytes_of(u32 half) { return kDqRest < kDqN && half == 1 ? kDqRest * 256 : kHalfBytes; }
static_assert(kDqRest == kDqN || kDqN * 256 == kHalfBytes, "a half is 128 threads' floats");

#if SCORE_SNIPPET
// Whether dS is computed where the weights are, when dP is there: where a mask's walk, or addresses, leave no registers for both.
constexpr bool kReads = BUFFER_COUNT > 0 && SCORE_FETCHES != 2;   // other elements than those of queries and keys
constexpr bool kBentAtOnce = kReads || MASK_SNIPPET != 0 && kM + (kWidth + kWidthV) / 2 + kM * kD / 256 > 216;
#elif MASK_SNIPPET
constexpr bool kBentAtOnce = false;
#endif

// The most heads of queries of a part, and whether blocks then add to a tile of dQ in rising order.
FA_DEVICE u32 most_heads(const fa_attn_bwd_params &p) { return (opaque((u32)p.heads_q) / opaque((u32)p.heads_kv) + kParts - 1) / kParts; }
FA_DEVICE bool rises(const fa_attn_bwd_params &p) { return is_rising((int)most_heads(p)); }

// ---- the workspace ---------------------------------------------------------------------------------------------


// Numbers that take no registers of a producer meanwhile: tiles of queries of a head, and rows of all heads, in the workspace.
FA_DEVICE u32 tiles_in(const fa_attn_bwd_params &p) {
    return kVarlen ? opaque((u32)p.seq_q) / kM + opaque((u32)p.batch) : (opaque((u32)p.seq_q) + kM - 1) / kM;
}
FA_DEVICE i64 rows_in(const fa_attn_bwd_params &p) {
    return (i64)tiles_in(p) * kM * (opaque((u32)p.heads_q) * (kVarlen ? 1 : opaque((u32)p.batch)));
}
// The sums of dQ of a tile, counted through all heads of queries.
FA_DEVICE float *sums_of(const fa_attn_bwd_params &p, void *workspace, u32 tile) {
    return behind_sums(workspace) + rows_in(p) * 2 + (i64)tile * (kM * kD);
}
FA_DEVICE fa_tensor_map *maps_of(const fa_attn_bwd_params &p, void *workspace) {
    return (fa_tensor_map *)(behind_sums(workspace) + rows_in(p) * (kD + 2));
}
FA_DEVICE i64 maps_in(const fa_attn_bwd_params &p) { return kVarlen ? (i64)opaque((u32)p.batch) * kMaps : kMaps; }
FA_DEVICE u32 *next_job_of(const fa_attn_bwd_params &p, void *workspace) { return (u32 *)(maps_of(p, workspace) + maps_in(p)); }

// VARLEN=1: the sequences in the order in which their jobs are taken, and one entry behind them; in the workspace behind the next job's
// number.
struct alignas(16) Ranked {
    u32 key_tiles;    // of the sequences before, of one head
    u32 first_tile;   // of queries, in the workspace of a head
    u32 seq_q, seq_k;
    u32 first_q;
    u32 most_key_tiles;   // of a sequence, of one head; in the entry behind them
    u32 first_k;
#if PLACES
    u32 index;            // among all, as they lie
#endif
};
FA_DEVICE Ranked *ranking_of(const fa_attn_bwd_params &p, void *workspace) {
    return (Ranked *)(maps_of(p, workspace) + maps_in(p) + 1);
}
// SPLITS > 1: the sums of dK and dV of each tile of keys, of each part of it where they are few or DETERMINISTIC=1; behind all of them the tiles'
// counters, one of each warp.
constexpr int kPartFloats = kN * (kWidth + kWidthV), kArrivals = kGroups * 4;
constexpr u32 kSums = kDeterministic || SPLITS <= 2 ? kParts : 1;   // of a tile of keys
FA_DEVICE u32 all_key_tiles(const fa_attn_bwd_params &p) {
    const u32 tiles = kVarlen ? opaque((u32)p.seq_k) / kN + opaque((u32)p.batch) : ((opaque((u32)p.seq_k) + kN - 1) / kN) * opaque((u32)p.batch);
    return tiles * opaque((u32)p.heads_kv);
}
FA_DEVICE float *sums_of_keys(const fa_attn_bwd_params &p, void *workspace) {
    if constexpr (!kVarlen) return (float *)(maps_of(p, workspace) + kMaps + 1);
    return (float *)(ranking_of(p, workspace) + opaque((u32)p.batch) + 1);
}
FA_DEVICE u32 *arrivals_of(const fa_attn_bwd_params &p, void *workspace) {
    return (u32 *)(sums_of_keys(p, workspace) + (kParts == 1 ? 0 : (i64)all_key_tiles(p) * kSums * kPartFloats));
}
FA_DEVICE void *behind_ranking(const fa_attn_bwd_params &p, void *workspace) {
    return arrivals_of(p, workspace) + (kParts == 1 ? 0 : (i64)all_key_tiles(p) * kArrivals);
}
FA_DEVICE u32 *turns_of(const fa_attn_bwd_params &p, void *workspace, u32 tile) {
    return (u32 *)behind_ranking(p, workspace) + (i64)tile * kGroups;
}

// DETERMINISTIC=0: the sums of dQ of a head of keys (of a sequence) have as many parts as the head has jobs. Job n clears the part of
// job n + ahead and rounds that of job n - ahead, so that sums pass through the L2 cache once, while other blocks multiply. Jobs only wait
// for jobs with smaller numbers: `ahead` is at least the number of a head's jobs, and more than run at a time. The first launch clears what no
// job clears; or blocks share it when they begin (VARLEN=1, unless there are few_jobs), and what none rounds when all jobs have been taken.
// Parts of rows are of problems with few jobs: these share all sums of their head, but only at the beginning and at the end.
constexpr bool kInPassing = !kDeterministic;
#if MASK_SNIPPET
constexpr u32 kAhead = 400;   // under a mask jobs take different times
#else
constexpr u32 kAhead = kCausal || kWindow ? 400 : 160;
#endif
static_assert(!kLongestFirst || kAhead >= kLastJobs, "jobs wait for those with smaller numbers");
// VARLEN=1: by lengths alone, whether no job clears or rounds in passing.
FA_DEVICE bool few_jobs(const fa_attn_bwd_params &p) {
    return kVarlen && kInPassing && (opaque((u32)p.seq_k) / kN + opaque((u32)p.batch)) * parts_of_heads(p) <= kAhead;
}
// Whose sums of dQ the jobs of a head of keys, or of a part of one, add to.
FA_DEVICE u32 shared_by(u32 head) { return kOfRows ? head / kParts : head; }
// How many parts are clear, and how many jobs have been added, of each half of dQ of a head of keys.
struct Progress {
    u32 cleared[kGroups], added[kGroups];
};
FA_DEVICE Progress *progress_of(const fa_attn_bwd_params &p, void *workspace, u32 kv_head) {
    return (Progress *)behind_ranking(p, workspace) + kv_head;
}
#if SKIPS
// Behind it.
FA_DEVICE u32 *list_of(const fa_attn_bwd_params &p, void *workspace) {
    return (u32 *)progress_of(p, workspace, opaque((u32)p.batch) * parts_of_heads(p));
}
#endif
FA_DEVICE u32 tiles_of_keys(u32 seq_k) { return (seq_k + kN - 1) / kN; }
struct Jobs {
    u32 count, ahead;

    __device__ __forceinline__ Jobs(const fa_attn_bwd_params &p, void *workspace) {
        u32 key_tiles = tiles_of_keys(opaque((u32)p.seq_k)), most = key_tiles;
        if constexpr (kVarlen) {
            const Ranked *behind = ranking_of(p, workspace) + opaque((u32)p.batch);
            key_tiles = behind->key_tiles, most = behind->most_key_tiles;
        }
        count = key_tiles * parts_of_heads(p) * (kVarlen ? 1 : opaque((u32)p.batch));
        ahead = most + kAhead;
        if (ahead > count || kOfRows) ahead = count;
    }
};
// VARLEN=1: the rank of a job's sequence.
FA_DEVICE u32 find_rank(const fa_attn_bwd_params &p, void *workspace, u32 job) {
    const Ranked *ranking = ranking_of(p, workspace);
    u32 low = 0, high = opaque((u32)p.batch) - 1;
    while (low < high) {
        const u32 middle = high - (high - low) / 2;
        if (ranking[middle].key_tiles * parts_of_heads(p) <= job) low = middle;
        else high = middle - 1;
    }
    return low;
}
// What a job clears or rounds: tiles of queries, counted through the heads that share a head of keys.
struct Part {
    u32 kv_head, key_tiles;   // of all batches, or by the sequence's rank; how many jobs it has
    u32 first, end, tiles;    // tiles: of a head
    u32 first_head;           // of queries, of all batches
    u32 first_tile, first_q, seq_q;   // VARLEN=1: the sequence's

    __device__ __forceinline__ Part(const fa_attn_bwd_params &p, void *workspace, u32 rank, u32 job) {
        const u32 heads_kv = parts_of_heads(p), group = opaque((u32)p.heads_q) / (heads_kv / kParts);
        u32 before = 0;   // heads of the sequences in front
        seq_q = opaque((u32)p.seq_q), first_tile = first_q = 0;
        key_tiles = tiles_of_keys(opaque((u32)p.seq_k));
        if constexpr (kVarlen) {
            const Ranked own = ranking_of(p, workspace)[rank];
            seq_q = own.seq_q, first_tile = own.first_tile, first_q = own.first_q;
            key_tiles = tiles_of_keys(own.seq_k), job -= own.key_tiles * heads_kv, before = shared_by(rank * heads_kv);
            if (key_tiles == 0) key_tiles = 1;   // of a rank that is told where there is no job
        }
        if (kOfRows) key_tiles *= kParts;
        const u32 head = job / key_tiles;
        kv_head = before + head, first_head = kOfRows ? head : first_head_of(head, group);
        tiles = (seq_q + kM - 1) / kM;
        const u32 all = tiles * heads_of(head, group), each = (all + key_tiles - 1) / key_tiles;
        if (tiles == 0) tiles = 1;   // the part is empty
        first = (job - head * key_tiles) * each;
        first = first < all ? first : all;
        end = first + each < all ? first + each : all;
    }
    // Of a tile. Where sequences are as long as the tensor their heads lie behind one another.
    __device__ __forceinline__ float *sums(const fa_attn_bwd_params &p, void *workspace, u32 tile) const {
        const u32 head = kVarlen ? tile / tiles : 0;
        return sums_of(p, workspace, (first_head + head) * tiles_in(p) + first_tile + tile - head * tiles);
    }
};

FA_DEVICE void prepare_map(const fa_attn_bwd_params &p, fa_tensor_map *map, const Sequence &s, int which) {
    const int box = which == kMapQ || which == kMapDo ? kM : kN;
    make_map<kBf16>(map, shared_address(shared_memory) + which * sizeof(fa_tensor_map), shape_of(p, s, which, box));
}

// DETERMINISTIC=0, VARLEN=0: the parts of a head of keys that jobs clear or round, and how many of them no job clears.
struct FirstParts {
    u32 each, first;

    __device__ __forceinline__ FirstParts(const fa_attn_bwd_params &p, void *workspace, u32 kv_head) {
        const Jobs jobs(p, workspace);
        const u32 before = kv_head * (each = tiles_of_keys(opaque((u32)p.seq_k)) * (kOfRows ? kParts : 1));
        first = jobs.ahead > before ? jobs.ahead - before : 0;
        first = first < each ? first : each;
    }
};
// Whether no job clears the sums of dQ of a tile of a head of queries of all batches.
FA_DEVICE bool is_cleared_first(const fa_attn_bwd_params &p, void *workspace, u32 head, u32 tile, u32 tiles) {
    const u32 group = (u32)p.heads_q / (u32)p.heads_kv;
    const u32 kv_head = kOfRows ? head : head / group * kParts + ((head % group + 1) * kParts - 1) / group, first_head = kOfRows ? head : first_head_of(kv_head, group);
    const FirstParts parts(p, workspace, kv_head);
    const u32 each = parts.each > 0 ? (tiles * heads_of(kv_head, group) + parts.each - 1) / parts.each : 1;
    return (head - first_head) * tiles + tile < parts.first * each;
}
// The first launch's part of a tile of queries: whose turn it is first, zeros, LSE and delta.
FA_DEVICE void prepare_tile_rows(const fa_attn_bwd_params &p, void *workspace) {
    const i64 tiles = tiles_of_queries(p), block = blockIdx.x - map_blocks(p), head = block / tiles;
    i64 tile = block % tiles;
    const Workspace at(p, workspace, head, tile);
    u32 *turns = turns_of(p, workspace, (u32)head * (u32)tiles + (u32)tile);
    const Sequence s = find_sequence<kM>(p, p.cu_seqlens_q, (int)(head / p.heads_q), tile);
    bool clears = false;
    if constexpr (kDeterministic) {
        const u32 turn = first_turn(s, (int)tile, rises(p));
        const Meets meets = find_meets(s, find_band(s), (int)turn * kN);
        clears = turn >= ((u32)s.seq_k + kN - 1) / kN || tile < meets.first || tile >= meets.end;   // nobody adds
        if (threadIdx.x < kGroups) turns[threadIdx.x] = turn | kStores;
    }
    if constexpr (kInPassing && !kVarlen) clears = is_cleared_first(p, workspace, (u32)head, (u32)tile, (u32)tiles);
    if constexpr (kInPassing && kVarlen) clears = few_jobs(p) && tile * kM < s.seq_q;
    const float zeros[4] = {};
    if (clears)
#pragma unroll 4
        for (int i = threadIdx.x; i < kM * kD / 4; i += kSideThreads) store_floats(at.dq + 4 * i, zeros);
    prepare_rows(p, at, s, head % p.heads_q, tile);
    if (!kInPassing || s.seq_k > 0) return;
    u16 *dq = (u16 *)row_of(p.dq, p.dq_strides, s.batch, head % p.heads_q, s.first_q + tile * kM);   // there are no jobs that round it
    for (int i = threadIdx.x; i < kM * (HEAD_DIM / 4); i += kSideThreads) {
        const int row = i / (HEAD_DIM / 4);
        if (tile * kM + row < s.seq_q) store_global_8(dq + row * p.dq_strides.row + i % (HEAD_DIM / 4) * 4, 0, 0);
    }
}

// VARLEN=1: a warp makes one of the maps of a sequence, in its place among all, and the first warp tells that place.
FA_DEVICE void rank_sequence(const fa_attn_bwd_params &p, void *workspace, int b, int which) {
    const Sequence own = sequence_of(p, b);
    u32 before = 0, key_tiles = 0, most = 0;
    for (int other = (int)(threadIdx.x % kWarp); other < p.batch; other += (int)kWarp) {
        const Sequence s = sequence_of(p, other);
        const u32 its_tiles = tiles_of_keys((u32)s.seq_k);
        if (its_tiles > most) most = its_tiles;
        if (s.seq_q < own.seq_q || (s.seq_q == own.seq_q && other >= b)) continue;
        ++before;
        key_tiles += its_tiles;
    }
#pragma unroll
    for (int mask = 1; mask < (int)kWarp; mask <<= 1) {
        before += shuffle_xor(before, mask);
        key_tiles += shuffle_xor(key_tiles, mask);
        const u32 others = shuffle_xor(most, mask);
        if (others > most) most = others;
    }
    prepare_map(p, maps_of(p, workspace) + (i64)before * kMaps + which, own, which);
    if (threadIdx.x != 0) return;
    Ranked *at = ranking_of(p, workspace) + before;
    at[0] = {key_tiles, (u32)own.first_tile, (u32)own.seq_q, (u32)own.seq_k, (u32)own.first_q, 0, (u32)own.first_k};
#if PLACES
    at[0].index = (u32)b;
#endif
    if (before == (u32)p.batch - 1) at[1] = {key_tiles + tiles_of_keys((u32)own.seq_k), 0, 0, 0, 0, most};
}

// An 8 x 8 matrix of 16-bit elements, transposed.
FA_DEVICE u32 transpose(u32 x) {
    u32 y;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// Four floats that other blocks wrote, if they are there; else zeros.
FA_DEVICE void load_floats_if(bool there, float (&x)[4], const float *from) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %5, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000; mov.f32 %2, 0f00000000; "
                 "mov.f32 %3, 0f00000000; @p ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4]; }"
                 : "=&f"(x[0]), "=&f"(x[1]), "=&f"(x[2]), "=&f"(x[3]) : "l"(from), "r"((u32)there) : "memory");
}
// A thread's share of half the sums of dQ of a tile, in the order of a consumer's accumulators. All loads go out at once.
constexpr int kDqCells = kDqN / 8;
using HalfOfDq = float[kDqCells][4];
FA_DEVICE void load_half(HalfOfDq &x, const float *sums, int half, bool there = true) {
#pragma unroll
    for (int i = 0; i < kDqCells; ++i) load_floats_if(there && (i * 8 < kDqRest || half == 0), x[i], sums + half * (kHalfBytes / 4) + (i * kGroup + threadIdx.x % kGroup) * 4);
}
// It is scaled, rounded and stored. `to`: the tile's first row; `rows`: of the sequence, from that one on. 128 threads.
FA_DEVICE void store_half(const fa_attn_bwd_params &p, const HalfOfDq &x, u16 *to, i64 rows, int half) {
    const int thread = threadIdx.x % kGroup, g = thread % 32 / 4, t = thread % 4, slab = thread / 32 * 16;
#pragma unroll
    for (int pair = 0; pair < kDqCells / 2; ++pair) {
        u32 packed[2][2];   // fragment, upper or lower rows
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
            for (int low = 0; low < 2; ++low) {
                const float *sums = &x[2 * pair + i][2 * low];
                packed[i][low] = pack2<kBf16>(sums[0] * p.softmax_scale, sums[1] * p.softmax_scale);
                if constexpr (kDqAcross) packed[i][low] = transpose(packed[i][low]);
            }
#pragma unroll
        for (int k = 0; k < 2; ++k) {
            const u32 left = kDqAcross ? packed[k][0] : packed[0][k], right = kDqAcross ? packed[k][1] : packed[1][k];
            int row, column = t % 2 * 8 + t / 2 * 4;
            if constexpr (kDqAcross) {
                row = (2 * pair + k) * 8 + g + (kD == 64 ? half * (kM / 2) : 0);
                column += slab + (kD == 64 ? 0 : half * 64);
            } else {
                row = slab + g + 8 * k + (kDqByRows ? half * 64 : 0);
                column += pair * 16 + (kDqByRows ? 0 : half * 64);
            }
            store_two_blocks(to + (i64)row * p.dq_strides.row + column, left, right, row < rows && column < HEAD_DIM);
        }
    }
}
// The last launch's part of a tile of queries, unless dQ is rounded in passing.
FA_DEVICE void finish_rows(const fa_attn_bwd_params &p, void *workspace) {
    const i64 tiles = tiles_of_queries(p), head = blockIdx.x / tiles;
    i64 tile = blockIdx.x % tiles;
    const float *sums = Workspace(p, workspace, head, tile).dq;
    const Sequence own = find_sequence<kM>(p, p.cu_seqlens_q, (int)(head / p.heads_q), tile);
    if (kVarlen && tile * kM >= own.seq_q) return;
    const int half = (int)(threadIdx.x / kGroup);
    HalfOfDq x;
    load_half(x, sums, half);
    store_half(p, x, (u16 *)row_of(p.dq, p.dq_strides, own.batch, head % p.heads_q, own.first_q + tile * kM), own.seq_q - tile * kM, half);
}

// ---- the main launch -------------------------------------------------------------------------------------------

// The tile of keys that a block owns and the steps that it takes: the tiles of queries that meet it, of each head of its group.
FA_DEVICE u32 slot_of(u32 step) { return step & 1; }              // in each ring
FA_DEVICE u32 parity_of(u32 step) { return step >> 1 & 1; }       // of that slot's barriers
// What the warps of a block are told of a job: its number, and of a sequence among others (VARLEN=1) its rank, which is then the number.
// DETERMINISTIC=0: and whose part it clears and whose it rounds (kNoJob: none).
struct Passing {
    u32 rank, job;   // rank: of that job's sequence (VARLEN=1)
};
struct Told {
    u32 number, head, key_tile, first_tile, seq_q, seq_k;
    Passing rounds;
};
struct Job {
    int key_tile, head, batch;   // head of keys, or part of one
    int first_tile, seq_q, seq_k;   // VARLEN=1
    int whole, group;            // heads of queries that share it, and of its part of them
    int steps;
    Band band;
    Meets meets;
#if PLACES
    // Of the batch, or the sequence of a rank.
    __device__ __forceinline__ int index(const fa_attn_bwd_params &p, void *workspace, u32 rank) const {
        return kVarlen ? (int)ranking_of(p, workspace)[rank].index : batch;
    }
#endif
#if SKIPS
    Steps walk;

    // The steps that are listed take the place of all.
    __device__ __forceinline__ void list(const fa_attn_bwd_params &p, void *workspace, u32 rank) {
        const u32 before = kVarlen ? (u32)first_tile_of<kN>(p.cu_seqlens_k, index(p, workspace, rank)) : 0;   // tiles of keys of other sequences
        walk = Steps(p, workspace, (u32)batch * opaque((u32)p.heads_q) + first_head_of((u32)head, (u32)whole), before + (u32)key_tile, group, steps);
    }
#endif

    // By way of opaque(), since a producer has few registers to keep numbers in.
    __device__ __forceinline__ Job(const fa_attn_bwd_params &p, const Told &told) {
        Sequence lengths = {(int)opaque((u32)p.seq_q), (int)opaque((u32)p.seq_k), (int)opaque((u32)p.window_left), (int)opaque((u32)p.window_right), 0, 0, 0, 0};
        u32 kv_head = 0;
        if constexpr (kVarlen) {
            key_tile = (int)told.key_tile, first_tile = (int)told.first_tile;
            seq_q = lengths.seq_q = (int)told.seq_q, seq_k = lengths.seq_k = (int)told.seq_k;
        } else {
            const u32 key_tiles = tiles_of_keys((u32)lengths.seq_k);
            kv_head = told.number / key_tiles;
            key_tile = (int)(told.number - kv_head * key_tiles);
        }
        band = find_band(lengths);
        meets = find_meets(lengths, band, key_tile * kN);
        const u32 heads_kv = parts_of_heads(p);
        batch = kVarlen ? 0 : (int)(kv_head / heads_kv);
        head = kVarlen ? (int)told.head : (int)(kv_head - (u32)batch * heads_kv);
        whole = (int)((u32)p.heads_q / (heads_kv / kParts));
        group = (int)heads_of((u32)head, (u32)whole);
        if constexpr (kOfRows) {
            const int first = meets.first, count = meets.end > first ? meets.end - first : 0, part = head % (int)kParts;
            meets.first = first + count * part / (int)kParts, meets.end = first + count * (part + 1) / (int)kParts;
        }
        steps = meets.end > meets.first ? (meets.end - meets.first) * group : 0;
    }
};
// Short groups walk downwards without turns, too: blocks of a head of keys then read the same tiles of queries at about the same time,
// where those of all heads of a group in flight do not fit the L2 cache.
FA_DEVICE bool walks_down(const fa_attn_bwd_params &p, const Job &job) {
    return rises(p) || (kInPassing && kCausal && job.group > 1 && (kVarlen ? job.seq_k : p.seq_k) <= 32 * kD);
}
struct Shared {
    const u32 base;
    __device__ __forceinline__ u32 barrier(u32 which) const { return base + kBarriersAt + 8 * which; }
};

FA_DEVICE u32 own_of(const fa_attn_bwd_params &p, u32 number, u32 key_tiles, u32 kv_heads) {
    if constexpr (kInPassing && kLongestFirst) return find_in_turn(number, key_tiles, kv_heads);
    return find_owned(number, key_tiles, kv_heads, most_heads(p));
}
FA_DEVICE void store_passing(u32 at, const Passing &x) { store_shared(at, x.rank, x.job); }
FA_DEVICE Passing load_passing(u32 at) {
    Passing x;
    load_shared(x.rank, x.job, at);
    return x;
}
// What a job clears and rounds. VARLEN=1: as it was told, until it has been read.
enum PassingAt : u32 { kClears = 24, kRounds = 32 };   // where they are told, from kJobAt on
FA_DEVICE u32 number_of(const Jobs &jobs, PassingAt which, u32 number) {
    const u32 other = which == kClears ? number + jobs.ahead : number - jobs.ahead;
    if constexpr (kOfRows) return kNoJob;
    return other < jobs.count ? other : kNoJob;
}
template <PassingAt kWhich> FA_DEVICE Passing passing_of(const fa_attn_bwd_params &p, void *workspace, const Shared &shared, u32 number) {
    if constexpr (kVarlen) return load_passing(opaque(shared.base) + kJobAt + kWhich);
    return {0, number_of(Jobs(p, workspace), kWhich, number)};
}
// Jobs are taken by one thread, from a counter, and read by the other warps of the block, which end with it after the last one.
FA_DEVICE void tell_job(const Shared &shared, const Told &job) {
    const u32 at = shared.base + kJobAt;
    store_shared(at, job.number);
    if constexpr (kVarlen) {
        store_shared(at + 4, job.head);
        store_shared(at + 8, job.key_tile);
        store_shared(at + 12, job.first_tile);
        store_shared(at + 16, job.seq_q, job.seq_k);
    }
    barrier_arrive(shared.barrier(kJobFull));
}
FA_DEVICE u32 peek_job(const Shared &shared, u32 turn) {
    barrier_wait(shared.barrier(kJobFull), turn & 1);
    return load_shared<u32>(shared.base + kJobAt);
}
FA_DEVICE Told read_job(const Shared &shared, u32 turn) {
    const u32 at = shared.base + kJobAt;
    Told job;
    job.number = peek_job(shared, turn);
    if constexpr (kVarlen) {
        load_shared(job.head, at + 4);
        load_shared(job.key_tile, at + 8);
        load_shared(job.first_tile, at + 12);
        load_shared(job.seq_q, job.seq_k, at + 16);
        if constexpr (kInPassing) job.rounds = load_passing(at + kRounds);
    }
    barrier_arrive(shared.barrier(kJobEmpty));
    return job;
}
// For a whole warp: one lane reads and arrives.
FA_DEVICE Told read_job_together(const Shared &shared, u32 turn) {
    Told job = {};
    if (threadIdx.x % kWarp == 0) job = read_job(shared, turn);
    job.number = (u32)uniform((int)job.number);
    if constexpr (kVarlen) {
        job.head = (u32)uniform((int)job.head), job.key_tile = (u32)uniform((int)job.key_tile);
        job.first_tile = (u32)uniform((int)job.first_tile), job.seq_q = (u32)uniform((int)job.seq_q), job.seq_k = (u32)uniform((int)job.seq_k);
        job.rounds = {(u32)uniform((int)job.rounds.rank), (u32)uniform((int)job.rounds.job)};
    }
    return job;
}
// VARLEN=1: the rank of the sequence of a job. Numbers only rise, so it is the one that was told last, 0 at first, or a later one.
FA_DEVICE u32 follow_rank(const Ranked *ranking, u32 told, u32 job, u32 heads_kv, u32 batch) {
    u32 rank = load_shared<u32>(told);
    while (rank < batch && job >= ranking[rank + 1].key_tiles * heads_kv) ++rank;
    return rank;
}
// The job of a number.
FA_DEVICE Told find_job(const fa_attn_bwd_params &p, void *workspace, const Shared &shared, u32 number) {
    Told told = {kNoJob};
    if constexpr (!kVarlen) {
        const Jobs jobs(p, workspace);
        const u32 key_tiles = tiles_of_keys(opaque((u32)p.seq_k));
        if (number < jobs.count) told.number = own_of(p, number, key_tiles, jobs.count / key_tiles);
        return told;
    }
    const Ranked *ranking = ranking_of(p, workspace);
    const u32 heads_kv = parts_of_heads(p), batch = opaque((u32)p.batch), at = opaque(shared.base) + kJobAt;
    const u32 rank = follow_rank(ranking, at, number, heads_kv, batch);
    if (rank >= batch) return told;
    const Ranked own = ranking[rank];
    const u32 tiles = tiles_of_keys(own.seq_k), owned = own_of(p, number - own.key_tiles * heads_kv, tiles, heads_kv);
    return {rank, owned / tiles, owned % tiles, own.first_tile, own.seq_q, own.seq_k};
}
// VARLEN=1: tells what the job of a number clears and rounds, in front of the job.
template <PassingAt kWhich> FA_DEVICE void tell_passing(const fa_attn_bwd_params &p, void *workspace, const Shared &shared, u32 number) {
    const u32 at = opaque(shared.base) + kJobAt + kWhich;
    Passing x = {0, few_jobs(p) ? kNoJob : number_of(Jobs(p, workspace), kWhich, number)};
    if (x.job != kNoJob) x.rank = follow_rank(ranking_of(p, workspace), at, x.job, parts_of_heads(p), opaque((u32)p.batch));
    store_passing(at, x);
}
// What a consumer's warp wants to know of its job again when it stores (kKeeps).
FA_DEVICE void keep_job(u32 at, const Told &job, u32 turn) {
    store_shared(at, job.number, turn);
    store_shared(at + 8, job.head, job.key_tile);
    if constexpr (kVarlen && kInPassing) store_passing(at + 16, job.rounds);
}
FA_DEVICE u32 recall_job(u32 at, Job &job, u32 &turn, Passing &rounds) {
    u32 rank;
    if constexpr (kVarlen && kInPassing) rounds = load_passing(at + 16);
    load_shared(rank, turn, at);
    load_shared(job.head, job.key_tile, at + 8);
    job.batch = 0;
    return rank;
}
// A job's tensor maps.
FA_DEVICE const fa_tensor_map *map_of(const fa_tensor_map *maps, u32 rank, int which) { return maps + (kVarlen ? (i64)rank * kMaps : 0) + which; }

FA_DEVICE void count_up(u32 *counter) { asm volatile("red.release.gpu.global.add.u32 [%0], %1;" :: "l"(counter), "r"(1u) : "memory"); }
FA_DEVICE void wait_count(const u32 *counter, u32 wanted) {
    u32 now;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    while (now < wanted);
}
// Waits until the sums that a job rounds are complete; the thread that takes jobs calls it before it tells the job.
FA_DEVICE void wait_added(const fa_attn_bwd_params &p, void *workspace, const Passing &rounds) {
    if (rounds.job == kNoJob) return;
    const Part part(p, workspace, rounds.rank, rounds.job);
    const Progress *progress = progress_of(p, workspace, part.kv_head);
    wait_count(&progress->added[0], part.key_tiles);
    wait_count(&progress->added[1], part.key_tiles);
}

template <int kCount>
FA_DEVICE void load_slabs(u32 to, const fa_tensor_map *map, u32 barrier, int rows, int row, int head, int batch, u64 hint) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) tma_load(to + i * rows * kRowBytes, map, barrier, i * 64, row, head, batch, hint);
}

// One thread takes jobs and fetches tiles of K, and those of Q with their LSE; another one tiles of V, and those of dO with their delta.
template <bool kOfV> FA_DEVICE void produce(const fa_attn_bwd_params &p, void *workspace, const Shared &shared) {
    constexpr int kCount = kOfV ? kSlabsV : kSlabs, kKeysBytes = kOfV ? kVBytes : kKBytes, kTileBytes = kOfV ? kDoBytes : kQBytes;
    constexpr u32 kFull = kOfV ? kDoFull : kQFull, kEmpty = kOfV ? kDoEmpty : kQEmpty;
    constexpr u32 kKeysFull = kOfV ? kVFull : kKFull, kKeysEmpty = kOfV ? kVEmpty : kKEmpty;
    constexpr u32 kTilesAt = kOfV ? kDoAt : kQAt, kTilesRowsAt = kOfV ? kDeltaAt : kLseAt, kKeysAt = kOfV ? kVAt : kKAt;
    u32 step = 0;
    if constexpr (kVarlen && !kOfV) load_float((const float *)ranking_of(p, workspace));   // while a number is taken: its line holds the first four
    if constexpr (!kVarlen) acquire_map(maps_of(p, workspace) + (kOfV ? kMapV : kMapK)), acquire_map(maps_of(p, workspace) + (kOfV ? kMapDo : kMapQ));
#pragma unroll 1
    for (u32 turn = 0;; ++turn) {
        const fa_tensor_map *maps = maps_of(p, workspace);
        Told told;
        if constexpr (kOfV) {
            told = read_job(shared, turn);
        } else {
            const u32 number = take_number(next_job_of(p, workspace));
            barrier_wait(shared.barrier(kJobEmpty), turn & 1 ^ 1);
            if constexpr (kVarlen && kInPassing) {
                tell_passing<kClears>(p, workspace, shared, number);
                tell_passing<kRounds>(p, workspace, shared, number);
            }
            told = find_job(p, workspace, shared, number);
            if (kInPassing && told.number != kNoJob) wait_added(p, workspace, passing_of<kRounds>(p, workspace, shared, told.number));
            tell_job(shared, told);
        }
        if (told.number == kNoJob) return;
        const fa_tensor_map *keys = map_of(maps, told.number, kOfV ? kMapV : kMapK), *queries = map_of(maps, told.number, kOfV ? kMapDo : kMapQ);
        if constexpr (kVarlen) acquire_map(keys), acquire_map(queries);
#if SKIPS
        Job job(p, told);
        job.list(p, workspace, told.number);
#else
        const Job job(p, told);
#endif
        barrier_wait(shared.barrier(kKeysEmpty), turn & 1 ^ 1);
        barrier_expect(shared.barrier(kKeysFull), kKeysBytes);
        load_slabs<kCount>(shared.base + kKeysAt, keys, shared.barrier(kKeysFull), kN, job.key_tile * kN, job.head / (int)kParts, job.batch,
                           kParts == 1 ? kEvictFirst : kEvictLast);
        const int first_head = (int)first_head_of((u32)job.head, (u32)job.whole);
        const u32 tiles = tiles_in(p);
        // Tiles of the heads in front. Delta is behind LSE.
        const u32 before = (((u32)job.batch + (kOfV ? opaque((u32)batches_of(p)) : 0)) * opaque((u32)p.heads_q) + (u32)first_head) * tiles +
                           (kVarlen ? (u32)job.first_tile : 0);
#if SKIPS
        Steps walk = job.walk;
#else
        Walk walk(job.meets, job.group, walks_down(p, job));
#endif
#pragma unroll 1
        for (const u32 end = step + (u32)job.steps; step != end; ++step, go_on(walk, job.meets, job.group, (int)(end - step))) {
            const u32 slot = slot_of(step), full = shared.barrier(kFull + slot), place = before + (u32)walk.head * tiles + (u32)walk.tile;
            barrier_wait(shared.barrier(kEmpty + slot), parity_of(step) ^ 1);
            barrier_expect(full, kTileBytes + kRowsBytes);
            load_slabs<kCount>(shared.base + kTilesAt + slot * kTileBytes, queries, full, kM, walk.tile * kM, first_head + walk.head, job.batch, kEvictLast);
            bulk_load(shared.base + kTilesRowsAt + slot * kRowsBytes, (const float *)behind_sums(workspace) + (i64)place * kM, kRowsBytes, full);
        }
    }
}

// A part of the sums of dQ: a draining warp clears its half.
FA_DEVICE void clear_part(const fa_attn_bwd_params &p, void *workspace, const Passing &clears, u32 half) {
    if (clears.job == kNoJob) return;
    const Part part(p, workspace, clears.rank, clears.job);
    const float zeros[4] = {};
#pragma unroll 1
    for (u32 tile = part.first; tile < part.end; ++tile) {
        float *to = part.sums(p, workspace, tile) + half * (kHalfBytes / 4) + threadIdx.x % kWarp * 4;
#pragma unroll 8
        for (int i = 0; i < kHalfBytes / 4; i += kWarp * 4)
            if (kDqRest == kDqN || i < kDqRest * 64 || half == 0) store_floats(to + i, zeros);
    }
    global_proxy_fence();
    warp_sync();
    if (threadIdx.x % kWarp == 0) count_up(&progress_of(p, workspace, part.kv_head)->cleared[half]);
}
constexpr bool kShort = kVarlen && kParts > 1;   // a draining warp lacks the register of a copy
// VARLEN=1: the parts that no job clears: those of the first jobs, which round nothing.
FA_DEVICE void clear_first(const fa_attn_bwd_params &p, void *workspace, u32 half) {
    u32 ahead = kShort ? 0 : Jobs(p, workspace).ahead;
#pragma unroll 1
    while (true) {
        if constexpr (kShort) ahead = Jobs(p, workspace).ahead;
        u32 job = 0;
        if (threadIdx.x % kWarp == 0) job = take_number(next_job_of(p, workspace) + 1 + half);
        job = (u32)uniform((int)job);
        if (job >= ahead) return;
        clear_part(p, workspace, {kVarlen ? find_rank(p, workspace, job) : 0, job}, half);
    }
}
// The part of the sums of dQ that a job rounds: a consumer rounds its half. It loads the first two tiles between the job's stores.
struct Rounding {
    const Part part;
    u32 tile, end;   // of the part, from the next one on
    int half;

    __device__ __forceinline__ Rounding(const fa_attn_bwd_params &p, void *workspace, const Passing &rounds, u32 half)
        : part(p, workspace, rounds.rank, rounds.job == kNoJob ? 0 : rounds.job), half((int)half) {
        tile = part.first, end = rounds.job == kNoJob ? tile : part.end;
    }
    __device__ __forceinline__ void load(const fa_attn_bwd_params &p, void *workspace, HalfOfDq &x, u32 ahead) const {
        load_half(x, part.sums(p, workspace, tile + ahead), half, tile + ahead < end);
    }
    __device__ __forceinline__ void store(const fa_attn_bwd_params &p, const HalfOfDq &x, u32 ahead) const {
        if (tile + ahead >= end) return;
        const u32 within = (tile + ahead) / part.tiles, row = (tile + ahead - within * part.tiles) * kM, heads_q = opaque((u32)p.heads_q);
        const u32 head = part.first_head + within;
        u16 *to = (u16 *)row_of(p.dq, p.dq_strides, kVarlen ? 0 : head / heads_q, kVarlen ? head : head % heads_q, (i64)part.first_q + row);
        store_half(p, x, to, part.seq_q - row, half);
    }
    // Two tiles, which have been loaded, and all others.
    __device__ __forceinline__ void finish(const fa_attn_bwd_params &p, void *workspace, const HalfOfDq &x, const HalfOfDq &y) {
        store(p, x, 0);
        store(p, y, 1);
        tile += 2;
        finish(p, workspace);
    }
    __device__ __forceinline__ void finish(const fa_attn_bwd_params &p, void *workspace) {
#pragma unroll 1
        for (; tile < end; tile += 2) {
            HalfOfDq x, y;
            load(p, workspace, x, 0), load(p, workspace, y, 1);
            store(p, x, 0), store(p, y, 1);
        }
    }
};

// The parts that no job rounds, of which each block takes some.
FA_DEVICE void round_rest(const fa_attn_bwd_params &p, void *workspace, u32 half) {
    const Jobs jobs(p, workspace);
#pragma unroll 1
    for (u32 job = jobs.count - jobs.ahead + blockIdx.x; job < jobs.count; job += gridDim.x) {
        Rounding rounding(p, workspace, {kVarlen ? find_rank(p, workspace, job) : 0, job}, half);
        if (threadIdx.x % kWarp == 0) wait_count(&progress_of(p, workspace, rounding.part.kv_head)->added[half], rounding.part.key_tiles);
        warp_sync();
        rounding.finish(p, workspace);
    }
}

// A warp adds one consumer's halves of dQ to the workspace.
FA_DEVICE void drain(const fa_attn_bwd_params &p, void *workspace, const Shared &shared, u32 half) {
    const bool first = threadIdx.x % kWarp == 0;
#pragma unroll 1
    for (u32 turn = 0;; ++turn) {
        Told told = {};
        if constexpr (kInPassing) told.number = peek_job(shared, turn);   // before the rest, for which there are no registers yet
        else                      told = read_job_together(shared, turn);
        if (told.number == kNoJob) return;
        if (turn == 0) named_arrive(kHalfEmpty + half, kGroup + kWarp);
        if constexpr (kInPassing) {
            if (kVarlen && !few_jobs(p) && passing_of<kRounds>(p, workspace, shared, told.number).job == kNoJob) clear_first(p, workspace, kShort ? half : opaque(half));
            clear_part(p, workspace, passing_of<kClears>(p, workspace, shared, told.number), kShort ? half : opaque(half));
            warp_sync();   // no lane reads what was told after the first one has let it go
            told = read_job_together(shared, turn);
        }
#if SKIPS
        Job job(p, told);
        job.list(p, workspace, told.number);
#else
        const Job job(p, told);
#endif
        const u32 kv_head = (kVarlen ? told.number : (u32)job.batch) * parts_of_heads(p) + (u32)job.head;
        const auto first_head = [&] { return first_head_of(kVarlen ? (u32)job.head : opaque(kv_head), (u32)job.whole); };
        const u32 first_tile = kVarlen ? (u32)job.first_tile : 0;
        // By way of opaque(): there are few registers to keep addresses in.
        const auto turn_of = [&](u32 place) {
            return turns_of(p, workspace, place) + half;
        };
#if SKIPS
        Steps walk = job.walk;
#else
        Walk walk(job.meets, job.group, walks_down(p, job));
#endif
        const auto place_of = [&](const Steps &walk) { return (first_head() + (u32)walk.head) * tiles_in(p) + opaque(first_tile) + (u32)walk.tile; };
        u32 place = place_of(walk);   // of a step's tile, in the workspace
        u32 owed = kNoJob;            // that of the step before, whose addition may not be complete and whose turn is not passed
        if (kInPassing && first && job.steps > 0 && !few_jobs(p)) {
            wait_count(&progress_of(p, workspace, shared_by(kv_head))->cleared[half], tiles_of_keys(kVarlen ? told.seq_k : opaque((u32)p.seq_k)) * (kOfRows ? kParts : 1));
            global_proxy_fence();
        }
        bool stores = kDeterministic && first && job.steps > 0 && await_turn(turn_of(place), job.key_tile);
        const auto pass_turn = [&](u32 place) { give_turn(turn_of(place), next_turn(job.key_tile, rises(p))); };
#pragma unroll 1
        for (int left = job.steps; left > 0; --left) {
            named_sync(kHalfFull + half, kGroup + kWarp);
            if (first) {
                float *to = sums_of(p, workspace, place) + opaque(half) * (kHalfBytes / 4);
                const u32 from = shared.base + kHalvesAt + opaque(half) * kHalfBytes;
                if (stores) bulk_store(to, from, bytes_of(opaque(half)));
                else        bulk_add(to, from, bytes_of(opaque(half)));
                tma_store_commit();
                if (kDeterministic && owed != kNoJob) {
                    bulk_wait_written<1>();
                    pass_turn(owed);
                }
                tma_store_wait_read<0>();
            }
            warp_sync();
            named_arrive(kHalfEmpty + half, kGroup + kWarp);
            const u32 added = place;
            go_on(walk, job.meets, job.group, left - 1);
            place = place_of(walk);
            if constexpr (kDeterministic) {
                // The next step's turn is waited for while its half of dQ is computed. If it is there, this one's is passed when the next
                // addition has been sent, so that this warp seldom waits until one is complete.
                if (first) {
                    owed = kNoJob;
                    if (left > 1) {
                        const Turn now(turn_of(place), job.key_tile);
                        if (now.here) owed = added, stores = now.stores;
                    }
                    if (owed == kNoJob) {
                        bulk_wait_written<0>();
                        pass_turn(added);
                        if (left > 1) stores = await_turn(turn_of(place), job.key_tile);
                    }
                }
                warp_sync();
            }
        }
        if (kInPassing && first) {
            bulk_wait_written<0>();
            count_up(&progress_of(p, workspace, shared_by(kv_head))->added[half]);
        }
    }
}

// A consumer's half of dQ = dS K, or of its transpose. Left under way.
FA_DEVICE void issue_dq(float (&c)[kDqN / 2], u32 k_tile, u32 ds_tile, u32 group) {
    const u32 rows = kDqByRows ? group * 64 : kDqAcross && kD == 64 ? group * (kM / 2) : 0;
    const u64 ds = wgmma_descriptor<64>(ds_tile + rows * kRowBytes, 0);
    const u64 keys = wgmma_descriptor<64>(k_tile + (kD == 128 ? group * (kN * kRowBytes) : 0), kN * kRowBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
        const u64 of_ds = ds + (k / 4 * (kM * kRowBytes) + k % 4 * 32) / 16, of_keys = keys + k * (16 * kRowBytes / 16);
        if constexpr (kDqAcross) WgmmaAcross<kDqN>::template multiply<1, 0>(c, of_keys, of_ds, k > 0);
        else                     WgmmaAcross<kDqN>::template multiply<0, 1>(c, of_ds, of_keys, k > 0);
    }
    wgmma_commit();
}

// As Seers, where there is no mask: a register less. At head dim 64 that order of the code was 8 % slower.
struct KeysThere {
    int left;   // from a lane's first one on

    __device__ __forceinline__ KeysThere(int, int seq_k, const Band &, int key) : left(seq_k - key) {}
    __device__ __forceinline__ void mask(Scores &s, int, int) const {
        if (left > 8) return;
#pragma unroll
        for (int i = 0; i < kM / 2; ++i)
            if (i / 2 % 2 == 1 || left <= 0) s[i] = 0.0f;
    }
};
template <bool> struct SeersOf { using Type = Seers; };
template <> struct SeersOf<false> { using Type = KeysThere; };

// One consumer at one job: where it stands, and its sums.
struct Consumer {
    const fa_attn_bwd_params &p;
    const Shared &shared;
    const Curve curve;
    const u32 group, thread, warp, lane;
    const u32 half, ds_place;                      // its half of dQ; what this lane addresses of a tile of dS
    float dk[kWidth / 2], dv[kWidthV / 2];
    const SeersOf<kCausal || kWindow || !kEarly>::Type seers;
    const Meets meets;
    const int heads;       // of queries
    Steps walk;
    int left;              // steps from this one on
#if PLACES
    Places places;         // of the group's first head
    int key;               // this lane's first one
#endif
#if SUMS_IN_PASS
    PassedSums sums = {};
#endif
    u32 step;              // of all jobs; its slot in each ring is its lowest bit, the parity of that slot's barriers the next one

    // index: of the batch or sequence.
    __device__ __forceinline__ Consumer(const fa_attn_bwd_params &p, const Shared &shared, const Job &job, u32 group, u32 step, int index = 0)
        : p(p), shared(shared), curve(p), group(group), thread(threadIdx.x % kGroup), warp(thread / kWarp),
          lane(thread % kWarp), half(shared.base + kHalvesAt + group * kHalfBytes),
          ds_place(group * (kM * kRowBytes) + ((lane >> 4) * 8 + (lane & 7)) * kRowBytes +
                   (((warp * 2 + ((lane >> 3) & 1)) ^ (lane & 7)) << 4)),
          seers(kVarlen ? job.seq_q : p.seq_q, kVarlen ? job.seq_k : p.seq_k, job.band, job.key_tile * kN + (int)(group * 64 + warp * 16 + lane / 4)), 
          meets(job.meets), heads(job.group),
#if SKIPS
          walk(job.walk),
#else
          walk(job.meets, job.group, walks_down(p, job)),
#endif
          left(job.steps), step(step) {
#if PLACES
        places = {index, (int)first_head_of((u32)job.head, (u32)job.whole), job.head / (int)kParts, kVarlen ? job.seq_q : p.seq_q, kVarlen ? job.seq_k : p.seq_k AND_BUFFERS(p.buffer)};
        key = job.key_tile * kN + (int)(group * 64 + warp * 16 + lane / 4);
#endif
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) dk[i] = 0.0f;
#pragma unroll
        for (int i = 0; i < kWidthV / 2; ++i) dv[i] = 0.0f;
    }

    __device__ __forceinline__ u64 descriptor(u32 at, u32 slab_bytes) const {
        return wgmma_descriptor<64>(opaque(shared.base) + at, slab_bytes);
    }
    // A consumer's half of dQ of the step before, left under way.
    __device__ __forceinline__ void start_dq(float (&dq)[kDqN / 2]) {
        barrier_wait(shared.barrier(kDsFull + slot_of(step - 1)), parity_of(step - 1));
        const u32 base = opaque(shared.base);
        issue_dq(dq, base + kKAt, base + kDsAt + slot_of(step - 1) * kDsBytes, group);
    }
    // It is complete: the warp that adds it to the workspace gets it.
    __device__ __forceinline__ void pass_dq(const float (&dq)[kDqN / 2]) {
        if (lane == 0) barrier_arrive(shared.barrier(kDsEmpty + slot_of(step - 1)));
        named_sync(kHalfEmpty + group, kGroup + kWarp);
#pragma unroll
        for (int i = 0; i < kDqN / 8; ++i)
            if (i * 8 < kDqRest || opaque(group) == 0) store_shared(half + (i * 128 + thread) * 16, dq[4 * i], dq[4 * i + 1], dq[4 * i + 2], dq[4 * i + 3]);
        async_proxy_fence();
        named_arrive(kHalfFull + group, kGroup + kWarp);
    }
#if DROPOUT
#define DROP_FROM_DP kept.apply(dp);
    __device__ __forceinline__ Dropped<true, kM / 16> find_kept() const {
        Dropped<true, kM / 16> kept;
        kept.find(Dropout(p.buffer, (i64)places.batch * p.heads_q + places.head + walk.head), key - (int)lane / 4, walk.tile * kM);
        return kept;
    }
    // Weights that are not kept become negative: no other registers tell it while a mask is asked.
    __device__ __forceinline__ void sign_dropped(Scores &s) const {
        constexpr int kSixteens = kM % 32 == 0 ? 2 : kM / 16;   // at a time
        const Dropout dropout(p.buffer, (i64)places.batch * p.heads_q + places.head + walk.head);
#pragma unroll
        for (int j = 0; j < kM / 16; j += kSixteens) {
            Dropped<true, kSixteens> kept;
            kept.find(dropout, key - (int)lane / 4, walk.tile * kM + j * 16);
#pragma unroll
            for (int i = 0; i < kSixteens * 8; ++i) s[j * 8 + i] *= 2.0f * kept.factor(i) - 1.0f;
        }
    }
#else
#define DROP_FROM_DP
#endif
#define SIGNS_DROPPED (DROPOUT && MASK_SNIPPET && !SCORE_SNIPPET)
#if SCORE_SNIPPET || MASK_SNIPPET
    static constexpr int kApiece = BUFFER_COUNT > 0 && SCORE_FETCHES != 2 ? 2 : 4;
    using Line = SnippetCount<SnippetLine>;
    using Spot = SnippetCount<float>;
    // Calls f(i, query, key, half, column) for each of the scores i of a step. kOneByOne: what is computed of some takes no registers meanwhile.
    template <bool kOneByOne, class F> __device__ __forceinline__ void each_score(const F &f) const {
        const auto low_key = query_place(key), high_key = query_place(key + 8);
        int first = walk.tile * kM + (int)(lane % 4) * 2 + (CAUSAL == 2 ? 0 : places.len_k - places.len_q);
#pragma unroll
        for (int i = 0; i < kM / 2; ++i) {
            if (kOneByOne && i % kApiece == 0) first = (int)opaque((u32)first);
            const int half = i / 2 % 2, column = i / 4 * 8 + i % 2;
            f(i, line_place(first, column), half == 0 ? low_key : high_key, half, column);
        }
    }
    __device__ __forceinline__ Places places_of_step() const {
        Places w = places;
        w.head += walk.head;
        return w;
    }
    __device__ __forceinline__ Seers seers_of_step(const Places &w) const {   // here, as they are seldom needed
        const Sequence lengths = {w.len_q, w.len_k, p.window_left, p.window_right, 0, 0, 0, 0};
        return Seers(w.len_q, w.len_k, find_band(lengths), (int)opaque((u32)key));
    }
    // What a row does not see, or that of a row that does not exist, weighs nothing.
    __device__ __forceinline__ void hide(Scores &s, Packed &weights, Packed &ds) const {
        const int row = walk.tile * kM + (int)(lane % 4) * 2;
        const Places w = places_of_step();
        const Seers seers = seers_of_step(w);
        each_score<true>([&](int i, const Line &query, const Spot &key, int half, int column) {
            bool seen = column >= seers.first[half] - row & column < seers.end[half] - row;   // without branches
#if MASK_SNIPPET
            seen &= is_visible(w, query, key);
#endif
            const u32 other = i % 2 == 0 ? 0xffff0000u : 0xffffu;   // of a pair
            if (!kBentAtOnce && !seen) s[i] = 0.0f;
            if (SCORE_SNIPPET != 0 && !seen) weights[i / 2] &= other;
            if (kBentAtOnce && !seen) ds[i / 2] &= other;
        });
    }
#endif
#if SCORE_SNIPPET
    // Scores become weights times slopes, and `weights` the weights; kAtOnce: and ds. kSums: all are summed, which hides what hide() does.
    template <bool kAtOnce, bool kSums, bool kHides> __device__ __forceinline__ void bend(Scores &s, const Scores &dp, Packed &weights, Packed &ds, u32 lse, u32 delta) {
        const Places w = places_of_step();
        float rows[4], deltas[4], before = 0.0f;
#if SUMS_IN_PASS
        const int first_row = walk.tile * kM + (int)(lane % 4) * 2;
        Seers seers(0, 0, {0, 0}, 0);
        DiagonalSums diagonals = {};
        if constexpr (kSums && kHides) seers = seers_of_step(w);
#endif
        each_score<(BUFFER_COUNT > 0)>([&](int i, const Line &query, const Spot &key, int half, int column) {
            const int row = i / 4 % 2 * 2 + i % 2;
            if (i % 8 == 0) load_shared(rows, lse + i / 8 * 64);
            if (kAtOnce && i % 8 == 0) load_shared(deltas, delta + i / 8 * 64);
            float slope = 1.0f;
            float weight = weigh(p, curve, w, query, key, s[i], rows[row], slope);
#if SUMS_IN_PASS
            if constexpr (kSums && kHides) {
                if (column < seers.first[half] - first_row || column >= seers.end[half] - first_row) weight = 0.0f;
#if MASK_SNIPPET
                if (!is_visible(w, query, key)) weight = 0.0f;
#endif
            }
            if constexpr (kSums) {
                float natural = s[i] * p.softmax_scale;
                if constexpr (kSoftcap) natural = p.softcap * (1.0f - 2.0f * reciprocal(1.0f + exp2_fast(s[i] * curve.rate)));
                sums.add(p, w, query, key, natural, weight * (dp[i] AS_KEPT - deltas[row]), i, diagonals);
            }
#endif
            s[i] = weight * slope_at(weight, slope);
            if (kAtOnce) s[i] *= dp[i] AS_KEPT - deltas[row];
            if (kAtOnce && i % 2 == 1) ds[i / 2] = pack2<kBf16>(s[i - 1], s[i]);
            if (i % 2 == 1) weights[i / 2] = pack2<kBf16>(before, weight);
            before = weight;
        });
#if SUMS_IN_PASS
        if (kSums && ahead_site() >= 0 && ahead_site() < kKept) diagonals.store(parts_of_step(step) + warp * DiagonalSums::kSums);
#endif
    }
#endif
    template <bool kFirst> __device__ __forceinline__ void issue_dp(Scores &dp, u32 turn) const {
        if constexpr (kFirst) barrier_wait(shared.barrier(kVFull), turn & 1);
        barrier_wait(shared.barrier(kDoFull + slot_of(step)), parity_of(step));
        issue_scores<kN, kM, kWidthV / 16>(dp, descriptor(kVAt + group * 64 * kRowBytes, 0), descriptor(kDoAt + slot_of(step) * kDoBytes, 0));
    }
    __device__ __forceinline__ void await_ds_slot() const { barrier_wait(shared.barrier(kDsEmpty + slot_of(step)), parity_of(step) ^ 1); }
    static __device__ __forceinline__ void load_rows(float (&x)[kM / 16][4], u32 from) {
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) load_shared(x[j], from + j * 64);
    }
    // A step, and dQ of the step before unless this is the first one: neither consumer waits long for the other's dS.
    template <bool kFirst> __device__ __forceinline__ void take_step(u32 turn, void *workspace) {
        const u32 t = lane % 4;
        const u32 lse = shared.base + kLseAt + slot_of(step) * kRowsBytes + t * 16;
        const u32 delta = shared.base + kDeltaAt + slot_of(step) * kRowsBytes + t * 16;
        Scores s, dp;
        Packed weights, ds;
        float dq[kDqN / 2], early[kM / 16][4];
        barrier_wait(shared.barrier(kQFull + slot_of(step)), parity_of(step));
        if (kFirst && kApart && group == 1) barrier_wait(shared.barrier(kApartFull), turn & 1);
        issue_scores<kN, kM, kWidth / 16>(s, descriptor(kKAt + group * 64 * kRowBytes, 0), descriptor(kQAt + slot_of(step) * kQBytes, 0));
#if !SIGNS_DROPPED
        issue_dp<kFirst>(dp, turn);
#if DROPOUT
        const Dropped<true, kM / 16> kept = find_kept();
#endif
        if constexpr (kEarly) load_rows(early, lse);
        wgmma_wait<1>();
#else
        wgmma_wait<0>();
#endif
        Wgmma<kM>::pin(s);

        // P = exp2(S - LSE).
#if SKIPS
        const bool clear = walk.whole();
#elif SCORE_SNIPPET || MASK_SNIPPET
        const bool clear = !MASK_SNIPPET && is_clear(meets, walk.tile, places.len_q);
#endif
#if SUMS_IN_PASS
        const bool at_once = kBentAtOnce || passes_any();   // the compiler knows it
#elif SCORE_SNIPPET || MASK_SNIPPET
        constexpr bool at_once = kBentAtOnce;
#endif
#if SCORE_SNIPPET
        if (at_once) {
            wgmma_wait<0>();
            Wgmma<kM>::pin(dp);
            DROP_FROM_DP
        }
#if SUMS_IN_PASS
        if (passes_any()) {
            if (clear) bend<true, true, false>(s, dp, weights, ds, lse, delta);
            else       bend<true, true, true>(s, dp, weights, ds, lse, delta);
        } else
#endif
            bend<kBentAtOnce, false, false>(s, dp, weights, ds, lse, delta);
#else
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) {
            float slope;
            if constexpr (!kEarly) load_shared(early[j], lse + j * 64);
#pragma unroll
            for (int i = 0; i < 8; ++i) s[8 * j + i] = curve.weight(s[8 * j + i], early[j][i / 4 * 2 + i % 2], slope);
        }
#endif
#if SCORE_SNIPPET || MASK_SNIPPET
#if SUMS_IN_PASS
        if (!clear && !passes_any()) hide(s, weights, ds);
#else
        if (!clear) hide(s, weights, ds);
#endif
#if SIGNS_DROPPED
        sign_dropped(s);
        issue_dp<kFirst>(dp, turn);   // not before: there are few registers
        wgmma_wait<0>();
        Wgmma<kM>::pin(dp);
#else
        if (!at_once) {
            wgmma_wait<0>();
            Wgmma<kM>::pin(dp);
            DROP_FROM_DP
        }
#endif
#else
        if constexpr (kEarly) {
            load_rows(early, delta);
            await_ds_slot();
        }
        seers.mask(s, walk.tile * kM, (int)t * 2);
        wgmma_wait<0>();
        Wgmma<kM>::pin(dp);
#endif
        if (left == 1 && lane == 0) barrier_arrive(shared.barrier(kVEmpty));   // the next job's V comes during this step
        if constexpr (kFirst) come_apart();

        // dS = P (dP - delta).
        const u32 ds_tile = shared.base + kDsAt + slot_of(step) * kDsBytes + ds_place;
        if constexpr (!kEarly) await_ds_slot();
#pragma unroll
        for (int j = 0; j < kM / 16; ++j) {
#if SCORE_SNIPPET
            float rows[4];
            if (!at_once) {
                load_shared(rows, delta + j * 64);
#pragma unroll
                for (int i = 0; i < 8; ++i) dp[8 * j + i] = s[8 * j + i] * (dp[8 * j + i] AS_KEPT - rows[i / 4 * 2 + i % 2]);
#pragma unroll
                for (int i = 0; i < 4; ++i) ds[4 * j + i] = pack2<kBf16>(dp[8 * j + 2 * i], dp[8 * j + 2 * i + 1]);
            }
#else
            float (&rows)[4] = early[j], row_lse[4];
            if constexpr (!kEarly) load_shared(rows, delta + j * 64);
            if constexpr (kSoftcap) load_shared(row_lse, lse + j * 64);
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float weight = s[8 * j + i];
                float &x = dp[8 * j + i];
#if SIGNS_DROPPED
                if (weight <= 0.0f) x = s[8 * j + i] = 0.0f, weight = 0.0f - weight;
#endif
#if DROPOUT && !MASK_SNIPPET
                const float is_kept = kept.factor(8 * j + i);
                x *= is_kept, s[8 * j + i] *= is_kept;
#endif
                x = weight * (x AS_KEPT - rows[i / 4 * 2 + i % 2]);
                if constexpr (kSoftcap) x *= slope_of(curve, weight, row_lse[i / 4 * 2 + i % 2]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                weights[4 * j + i] = pack2<kBf16>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
                ds[4 * j + i] = pack2<kBf16>(dp[8 * j + 2 * i], dp[8 * j + 2 * i + 1]);
            }
#endif
            stmatrix_x4_trans(ds_tile + j * (16 * kRowBytes), ds[4 * j], ds[4 * j + 1], ds[4 * j + 2], ds[4 * j + 3]);
        }
#if DROPOUT && SCORE_SNIPPET
        kept.apply(weights);
#endif
        // dV multiplies while the fence and the other consumer are waited for.
        issue_gradient<kWidthV, kM>(dv, weights, descriptor(kDoAt + slot_of(step) * kDoBytes, kM * kRowBytes));
        async_proxy_fence();
        warp_sync();   // also for the releases of dO and Q below: all lanes have read delta and LSE
        if (lane == 0) barrier_arrive(shared.barrier(kDsFull + slot_of(step)));

        if constexpr (!kFirst) start_dq(dq);
        issue_gradient<kWidth, kM>(dk, ds, descriptor(kQAt + slot_of(step) * kQBytes, kM * kRowBytes));
        wgmma_wait<1>();   // dV and dQ
        Wgmma<kWidthV>::pin(dv);
        if (lane == 0) barrier_arrive(shared.barrier(kDoEmpty + slot_of(step)));
        if constexpr (!kFirst) pass_dq(dq);
        wgmma_wait<0>();
        Wgmma<kWidth>::pin(dk);
        if (lane == 0) barrier_arrive(shared.barrier(kQEmpty + slot_of(step)));
#if SUMS_IN_PASS
        pass_step(workspace);
#endif
        ++step;
        --left;
        go_on(walk, meets, heads, left);
    }
    __device__ __forceinline__ void come_apart() {
        if (kApart && group == 0 && lane == 0) barrier_arrive(shared.barrier(kApartFull));
    }
#if SUMS_IN_PASS
    // A step's sums of diagonals of the consumer's warps: two take turns, so that one barrier a step is enough.
    __device__ __forceinline__ float *parts_of_step(u32 step) const {
        return (float *)(shared_memory + kSumsAt) + (slot_of(step) * kGroups + group) * (4 * DiagonalSums::kSums);
    }
    __device__ __forceinline__ void pass_step(void *workspace) {
        if (ahead_site() < 0 || ahead_site() >= kKept) return;
        const Places w = places_of_step();
        named_sync(kSumsFull + group, kGroup);
        PassedSums::pass_steps({p, w, (u64 *)workspace, 0, 0, 0, false}, walk.tile * kM + (CAUSAL == 2 ? 0 : w.len_k - w.len_q),
                               (int)opaque((u32)key) - (int)(warp * 16 + lane / 4), parts_of_step(step));
    }
    // Of a head of the group, all of whose steps have been taken for now.
    __device__ __forceinline__ void pass_sums(void *workspace, int head) {
        Places w = places;
        w.head += head;
        sums.pass_all({p, w, (u64 *)workspace, 0, 0, 0, false}, (int)opaque((u32)key));
    }
#endif
    __device__ __forceinline__ void take_all(u32 turn, void *workspace) {
        barrier_wait(shared.barrier(kKFull), turn & 1);
        if (left == 0) {
            come_apart();
            barrier_wait(shared.barrier(kVFull), turn & 1);
            warp_sync();
            if (lane == 0) barrier_arrive(shared.barrier(kKEmpty)), barrier_arrive(shared.barrier(kVEmpty));
            return;
        }
#if SUMS_IN_PASS
        int head = walk.head;
        take_step<true>(turn, workspace);
#pragma unroll 1
        while (true) {
            if (left == 0 || walk.head != head) pass_sums(workspace, head);
            if (left == 0) break;
            head = walk.head;
            take_step<false>(turn, workspace);
        }
#else
        take_step<true>(turn, workspace);
#pragma unroll 1
        while (left > 0) take_step<false>(turn, workspace);
#endif
        float dq[kDqN / 2];
        start_dq(dq);
        wgmma_wait<0>();
        if (lane == 0) barrier_arrive(shared.barrier(kKEmpty));
        pass_dq(dq);
    }
    // Whether it has the sums of all parts of its keys then: the last one has. `tile`: of keys, among all.
    __device__ __forceinline__ bool join(void *workspace, u32 tile, u32 part) {
        const auto sums_at = [&](bool of_v) {   // computed from what is at hand again
            return sums_of_keys(p, workspace) + (i64)opaque(tile) * kSums * kPartFloats + (of_v ? kN * kWidth : 0) +
                   (opaque(group) * 4 + warp) * ((of_v ? kWidthV : kWidth) / 2 * kWarp);
        };
        if constexpr (kSums == 1) {
            add_part(dk, sums_at(false));
            add_part(dv, sums_at(true));
        } else {
            put_part(dk, sums_at(false), kPartFloats, part);
            put_part(dv, sums_at(true), kPartFloats, part);
        }
        if (!comes_last(arrivals_of(p, workspace) + (i64)tile * kArrivals + group * 4 + warp)) return false;
        add_parts<kSums>(dk, sums_at(false), kPartFloats);
        add_parts<kSums>(dv, sums_at(true), kPartFloats);
        return true;
    }
    // rank: of the job's sequence (VARLEN=1).
    __device__ __forceinline__ void store(void *workspace, const Job &job, u32 rank, bool of_v) const {
        const int key = job.key_tile * kN + (int)(group * 64 + warp * 16), head = job.head / (int)kParts;
        i64 first = 0;
        int seq_k = p.seq_k;
        if constexpr (kVarlen) {
            const Ranked own = ranking_of(p, workspace)[rank];
            first = own.first_k, seq_k = (int)own.seq_k;
        }
        const fa_attn_bwd_strides &strides = of_v ? p.dv_strides : p.dk_strides;
        u16 *to = (u16 *)row_of(of_v ? p.dv : p.dk, strides, job.batch, head, first + key);
        if (of_v) store_gradient<kWidthV, HEAD_DIM_V>(dv, DV_SCALE, to, strides.row, seq_k - key);
        else      store_gradient<kWidth, HEAD_DIM>(dk, p.softmax_scale, to, strides.row, seq_k - key);
    }
};

// A job's tile of keys, counted through all real heads of keys.
FA_DEVICE u32 place_of_keys(const fa_attn_bwd_params &p, void *workspace, const Job &job, u32 rank) {
    const u32 heads_kv = opaque((u32)p.heads_kv), head = (u32)job.head / kParts, key_tile = (u32)job.key_tile;
    if constexpr (!kVarlen) return ((u32)job.batch * heads_kv + head) * tiles_of_keys(opaque((u32)p.seq_k)) + key_tile;
    const Ranked own = ranking_of(p, workspace)[rank];
    return own.key_tiles * heads_kv + head * tiles_of_keys(own.seq_k) + key_tile;
}

FA_DEVICE void consume(const fa_attn_bwd_params &p, void *workspace, const Shared &shared, u32 group) {
    u32 step = 0;
#pragma unroll 1
    for (u32 turn = 0;; ++turn) {
        const Told told = read_job_together(shared, turn);
        if (told.number == kNoJob) break;
        Job job(p, told);
        const u32 kept = shared.base + kJobsAt + (group * 4 + threadIdx.x % kGroup / kWarp) * kKeptBytes;
        if (kKeeps && threadIdx.x % kWarp == 0) keep_job(kept, told, turn);
#if SKIPS
        job.list(p, workspace, told.number);
#endif
#if PLACES
        Consumer consumer(p, shared, job, group, step, job.index(p, workspace, told.number));
#else
        Consumer consumer(p, shared, job, group, step);
#endif
        consumer.take_all(turn, workspace);
        Passing rounds = {0, kNoJob};
        u32 rank = 0;
        if constexpr (kKeeps) warp_sync();
        u32 number = told.number;
        if constexpr (kKeeps && !kVarlen) {
            number = recall_job(kept, job, turn, rounds);
            job = Job(p, {number});
        }
        if constexpr (!kVarlen && kInPassing) rounds = passing_of<kRounds>(p, workspace, shared, number);
        if constexpr (kVarlen) rank = recall_job(kept, job, turn, rounds);
        step = consumer.step;
        bool stores = true;
        if constexpr (kParts > 1) stores = consumer.join(workspace, place_of_keys(p, workspace, job, rank), (u32)job.head % kParts);
        if constexpr (kInPassing) {
            Rounding rounding(p, workspace, rounds, opaque(group));
            HalfOfDq x, y;
            rounding.load(p, workspace, x, 0);
            if (stores) consumer.store(workspace, job, rank, true);
            rounding.load(p, workspace, y, 1);
            if (stores) consumer.store(workspace, job, rank, false);
            rounding.finish(p, workspace, x, y);
        } else {
            if (stores) consumer.store(workspace, job, rank, true);
            if (stores) consumer.store(workspace, job, rank, false);
        }
    }
    if constexpr (kInPassing) round_rest(p, workspace, group);
}

} // namespace

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_prepare(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    let_next_launch_begin();
#if D_BUFFERS > 0
    clear_sums(workspace);
#endif
    zero_gradients_of_sinks(p);
    const u32 warp = threadIdx.x / kWarp;
    if (kVarlen && blockIdx.x < p.batch && warp < kMaps) rank_sequence(p, workspace, (int)blockIdx.x, (int)warp);
    if (!kVarlen && blockIdx.x == 0 && warp < kMaps) prepare_map(p, maps_of(p, workspace) + warp, sequence_of(p, 0), (int)warp);
    if (blockIdx.x == 0 && threadIdx.x <= kGroups) next_job_of(p, workspace)[threadIdx.x] = 0;
    if constexpr (kInPassing)
        for (i64 i = (i64)blockIdx.x * kSideThreads + threadIdx.x; i < (i64)p.batch * p.heads_kv * kParts * (int)(sizeof(Progress) / 4); i += (i64)gridDim.x * kSideThreads)
            ((u32 *)progress_of(p, workspace, 0))[i] = kVarlen || i % 4 >= kGroups ? 0 : FirstParts(p, workspace, (u32)(i / 4)).first;
    if constexpr (kParts > 1)
        for (i64 i = (i64)blockIdx.x * kSideThreads + threadIdx.x; i < (i64)all_key_tiles(p) * kArrivals; i += (i64)gridDim.x * kSideThreads)
            arrivals_of(p, workspace)[i] = 0;
    if constexpr (kParts > 1 && kSums == 1) {
        const float zeros[4] = {};
        for (i64 i = (i64)blockIdx.x * kSideThreads + threadIdx.x; i < (i64)all_key_tiles(p) * (kPartFloats / 4); i += (i64)gridDim.x * kSideThreads)
            store_floats(sums_of_keys(p, workspace) + 4 * i, zeros);
    }
#if SKIPS
    list_tiles<Listed>(p, workspace);
#endif
    if (blockIdx.x - map_blocks(p) < tiles_of_queries(p) * p.heads_q * batches_of(p)) prepare_tile_rows(p, workspace);
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
attn_bwd(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    const Shared shared = {shared_address(shared_memory)};
    if (threadIdx.x == 0) {
        if (shared.base % 1024 != 0) asm volatile("trap;");   // descriptors and swizzles count on it
        if (kVarlen) store_shared(shared.base + kJobAt, 0);

        if (kVarlen) store_passing(shared.base + kJobAt + kClears, {0, 0}), store_passing(shared.base + kJobAt + kRounds, {0, 0});
        barrier_init(shared.barrier(kJobFull), 1);
        barrier_init(shared.barrier(kJobEmpty), 1 + kGroups + kGroups * 4);   // V's producer, draining warps, consumers' warps
        barrier_init(shared.barrier(kKFull), 1);
        barrier_init(shared.barrier(kKEmpty), kGroups * 4);
        barrier_init(shared.barrier(kVFull), 1);
        barrier_init(shared.barrier(kVEmpty), kGroups * 4);
        for (int i = 0; i < kStages; ++i) {
            barrier_init(shared.barrier(kQFull + i), 1);
            barrier_init(shared.barrier(kDoFull + i), 1);
            barrier_init(shared.barrier(kQEmpty + i), kGroups * 4);
            barrier_init(shared.barrier(kDoEmpty + i), kGroups * 4);
        }
        barrier_init(shared.barrier(kApartFull), 4);
        for (int i = 0; i < 2; ++i) {
            barrier_init(shared.barrier(kDsFull + i), kGroups * 4);
            barrier_init(shared.barrier(kDsEmpty + i), kGroups * 4);
        }
        barrier_init_fence();
    }
    let_next_launch_begin();
    await_launches_and_copies_before();
    named_sync(0, kThreads);
    const u32 group = (u32)uniform((int)(threadIdx.x / kGroup));
    if (group == 0) {
#if SKIPS
        registers_decrease<40>();
#else
        registers_decrease<24>();
#endif
        const u32 warp = (u32)uniform((int)(threadIdx.x / kWarp));
        if (warp < kGroups) {
            drain(p, workspace, shared, warp);
        } else if (threadIdx.x % kWarp == 0) {
            if (warp == kGroups) produce<false>(p, workspace, shared);
            else                 produce<true>(p, workspace, shared);
        }
    } else {
#if SKIPS
        registers_increase<232>();
#else
        registers_increase<240>();
#endif
        consume(p, workspace, shared, group - 1);
    }
}

extern "C" __global__ void __launch_bounds__(kSideThreads)
attn_bwd_finish(const __grid_constant__ fa_attn_bwd_params p, void *workspace) {
    await_launches_and_copies_before();
#if D_BUFFERS > 0
    if (gridDim.y == 2) round_sums(p, workspace);
    if (gridDim.y == 2 || sum_buffers(p, workspace)) return;
#endif
    const i64 all = kInPassing ? 0 : tiles_of_queries(p) * p.heads_q * batches_of(p);
    if (!kInPassing && blockIdx.x < all) finish_rows(p, workspace);
    else if (blockIdx.x - all < p.heads_q) finish_sink(p, workspace, (int)(blockIdx.x - all));
}
