// SPDX-License-Identifier: Apache-2.0
//
// Attention forward of e4m3 queries, keys and values on Hopper (sm_90a): TMA, wgmma of e4m3, one producing warpgroup and GROUPS
// consuming ones.
//
// Purpose: O = softmax(scale * Q K^T) V with online softmax, e4m3 in, fp16 or bf16 out. k_scale holds what scores are multiplied
// by (the scale of keys times that of queries), v_scale that of values, for each sequence and key head.
// Workload: a tile is BLOCK_M = 64 * GROUPS query rows of one head; each consumer owns 64 of them and walks the keys that the tile
// can see, BLOCK_N at a time. A block draws its tiles from p.counters, so that blocks end together however
// long those are; the first product of a tile is under way when the output of the one before is written.
// Invariants:
//  - wgmma takes e4m3 with K along the rows of both operands alone, so three warps of the producing warpgroup transpose each tile
//    of V, in the order that accumulators have as an operand (fa_wgmma_e4m3.cuh). The fourth fetches.
//  - weights are P = 2^(exponent - reference). A row's first reference lies kOffset below its maximum; later it moves up where a
//    thread's weights of a step add up to more than kLargest, which is looked at afterwards: no weight is larger than that sum, and
//    some key may decide the row. Its weight becomes a power of two, which is exact. Where it has outgrown all before it by far, the
//    warp multiplies its scores again, by itself. e4m3 ends at 448 above and at 2^-9 below.
//  - a tensor core's sum keeps about 13 bits. Of P V it spans at most FLUSH steps, whose keys the manifest bounds; then it is added
//    to sums in fp32, in registers or (SUMS_SHARED) each thread's in shared memory, with references of their own. Where those and
//    a step's do not fit (CHUNKS > 1), each step's are made a chunk of columns at a time.
//  - the output is written from registers: a thread has four neighbouring columns of a row.
#include "attn_sections.cuh"
#include "attn_serving.cuh"
#include "fa_mma.cuh"
#include "fa_tma_device.cuh"
#include "fa_wgmma_e4m3.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE;
constexpr int kLine = kD % 128 == 0 ? 128 : 64;                             // bytes of a row of a slab of Q, K or V as it is stored,
constexpr int kKeyLine = kN % 128 == 0 ? 128 : kN % 64 == 0 ? 64 : 32;      // and of V transposed
constexpr int kSlabs = kD / kLine, kScores = kN / 2;
constexpr int kChunks = CHUNKS, kColumns = kD / kChunks;                    // of the output: made at once
constexpr bool kShared = SUMS_SHARED != 0;                                  // sums in fp32 lie in shared memory, else in registers
constexpr u32 kGroups = kM / 64, kConverters = 3, kWarp = 32, kGroup = 128;
constexpr bool kRagged = VARLEN_Q != 0 || LENGTHS_K != 0;
FA_DEVICE constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
constexpr int kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kBox = PAGED != 0 ? common_divisor(kPage, kN) : kN, kBoxes = kN / kBox;   // keys of a box; boxes of a tile
constexpr u32 kTile = kN * kD, kQPart = 64 * kD;
static_assert(FA_THREADS == (kGroups + 1) * kGroup && kM % 64 == 0 && kN % 32 == 0, "tile and threads disagree");
static_assert(HEAD_DIM % 16 == 0 && HEAD_DIM <= kD && ALIGNED == 1 && KV_FP8 == 1 && kBox % 16 == 0, "the head does not fit its tile");

} // namespace

extern "C" __constant__ fa_attn_boxes fa_attn_boxes_wanted = {kLine, 64, 1, kBox, kBox, 16};

#include "attn_softmax_wgmma.cuh"

namespace {

// A row's largest weight is kHeaviest when its reference is taken, or less by whole powers of two, so that what a thread adds in a
// step is kLargest at most. Where that is more the reference moves; where it is more than kJump some key's score is taken to be too
// small by kShort of itself, and where it is more than kFar, or the reference more than kReach, scores are multiplied again.
constexpr float kOffset = 7.0f, kHeaviest = 128.0f, kLargest = kN > 128 ? 200.0f : 240.0f, kJump = 1024.0f, kFar = 8192.0f;
constexpr float kShort = HEAD_DIM > 32 ? (HEAD_DIM / 32.0f - 1.0f) * 2.6e-4f : 0.0f, kReach = HEAD_DIM > 32 ? 0.03f / kShort : 3.0e38f;
constexpr int kMoved = 127 + 6;   // the exponent, in its bits, of a sum that was more than kLargest, of a reference that has moved by those powers
using Weights = u32[kN / 8];
using Output = float[kColumns / 2];

// The tangent of x up to kNear is kBendSlope times x * (y * y + kBendRest), y = x * x + kBendShift, to 8.3e-6 of it (attn_softcap.cuh).
constexpr float kNear = 0.42f, kBendShift = -1.38377180f, kBendRest = 6.40901564f, kBendSlope = 0.120135864f;

// ---- shared memory ---------------------------------------------------------------------------------------------

// K, V as it is stored and V transposed, STAGES tiles of each; then Q_STAGES times Q, then the records of tiles and the barriers.
constexpr u32 kRecords = 3, kRecordBytes = 48;
constexpr u32 kRawAt = STAGES * kTile, kTurnedAt = kRawAt + STAGES * kTile, kQAt = kTurnedAt + STAGES * kTile,
              kSumsAt = kQAt + Q_STAGES * kGroups * kQPart, kRecordsAt = kSumsAt + (kShared ? kM * kD * 4 : 0), kBarriersAt = kRecordsAt + kRecords * kRecordBytes;
enum Barrier { kKFull, kKEmpty = kKFull + STAGES, kRawFull = kKEmpty + STAGES, kRawEmpty = kRawFull + STAGES,
               kTurnedFull = kRawEmpty + STAGES, kTurnedEmpty = kTurnedFull + STAGES, kQFull = kTurnedEmpty + STAGES,
               kQEmpty = kQFull + Q_STAGES * kGroups, kToldFull = kQEmpty + Q_STAGES * kGroups, kToldEmpty = kToldFull + kRecords,
               kBarrierCount = kToldEmpty + kRecords };
static_assert(8 * kBarrierCount + kRecords * kRecordBytes <= 512 && kRecordsAt + 512 == FA_SMEM_BYTES, "shared memory is not what the manifest says");
enum Named { kTurn = 1 };   // named barriers, one a consumer

FA_DEVICE u32 barrier_at(u32 base, u32 which) { return base + kBarriersAt + 8 * which; }

// ---- which tile, which keys ------------------------------------------------------------------------------------

struct Work {
    int row0, head, batch, kv_head;
    int len_q, len_k, first_q, first_k;    // of the sequence, where it has lengths of its own
    int steps;                             // of its keys, each BLOCK_N; < 0: there is no more work
    int begin;                             // the step that comes first; with a window, where step 0 begins
    float scale, bend;                     // what scores are multiplied by for exp2, and before it for a softcap
};

FA_DEVICE Sequence sequence_of(const fa_attn_serving_params &p, const Work &w) {
    Sequence s = {};
    s.len_q = VARLEN_Q != 0 ? w.len_q : p.dense.seq_q, s.len_k = LENGTHS_K != 0 ? w.len_k : p.dense.seq_k;
    s.offset = key_offset(p, s.len_q, s.len_k);
    return s;
}
FA_DEVICE int first_query(const Work &w) { return VARLEN_Q != 0 ? w.first_q : 0; }
// Steps come from the last to the first. Under a causal mask the last that all rows see whole comes first, so that a row's reference is of
// many keys, or of all that it sees; those behind it come last, with negative numbers.
constexpr bool kTurns = CAUSAL != 0 && WINDOW == 0;
FA_DEVICE int key_of_step(const Work &w, int step) { return WINDOW != 0 ? w.begin + step * kN : (kTurns && step < 0 ? -step : step) * kN; }
FA_DEVICE int first_step(const Work &w) { return kTurns ? w.begin : w.steps - 1; }
FA_DEVICE int next_step(const Work &w, int step) { return kTurns && step == 0 ? -1 - w.begin : step - 1; }

// The tiles of a block, of the thread that fetches: sequence by sequence where those have lengths of their own, else of all at
// once. Where there is a causal mask their order is that of attn_sections.cuh; else tiles that are short of queries come last.
class Dealer {
    u32 number = blockIdx.x;   // of the next tile, or of the last one while the next is not drawn yet
    bool drawn = true;         // the former
    u32 before = 0;        // tiles of the sequences before this one
    int batch = 0;         // this sequence

    // False: there is none, and `before` is how many tiles there are.
    __device__ __forceinline__ bool find(const fa_attn_serving_params &p, Work &w) {
        const fa_attn_params &d = p.dense;
        u32 heads = (u32)d.heads_q, tiles = ((u32)d.seq_q + kM - 1) / kM, index = number;
        if constexpr (kRagged) {
            for (;; before += tiles * heads, ++batch) {
                if (batch == d.batch) return false;
                const Sequence s = find_sequence(p, batch);
                w.len_q = s.len_q, w.len_k = s.len_k;
                tiles = ((u32)w.len_q + kM - 1) / kM;
                if (index - before < tiles * heads) break;
            }
            index -= before;
            w.batch = batch;
            w.first_q = VARLEN_Q != 0 ? load_int(p.cu_seqlens_q + batch) : 0;
            w.first_k = LENGTHS_K == 1 && PAGED == 0 ? load_int(p.cu_seqlens_k + batch) : 0;
        } else {
            heads *= (u32)d.batch;
            before = tiles * heads;
            if (index >= before) return false;
        }
        u32 tile, head;
        if constexpr (CAUSAL != 0) {
            const float fit = L2_SECTION_KB * 1024.0f * reciprocal((float)sequence_of(p, w).len_k * (HEAD_DIM * 2)) * (float)(d.heads_q / d.heads_kv);
            const HeadTile at = find_head_tile(index, heads, tiles, fit);
            tile = at.tile, head = at.head;
        } else {
            const u32 full = (u32)sequence_of(p, w).len_q / kM;
            tile = index < full * heads ? index % full : full;
            head = index < full * heads ? index / full : index - full * heads;
        }
        w.row0 = (int)tile * kM, w.head = (int)head;
        if constexpr (!kRagged) w.batch = w.head / d.heads_q, w.head %= d.heads_q;
        return true;
    }

  public:
    // The next tile's number, asked for in front of a tile's last step: asked for earlier, it would give another long tile to a block that
    // has one, while others wait.
    __device__ __forceinline__ void draw(const fa_attn_serving_params &p) {
        if (drawn) return;
        asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(number) : "l"(p.counters) : "memory");
        number += gridDim.x, drawn = true;
    }
    __device__ __forceinline__ Work next(const fa_attn_serving_params &p) {
        Work w = {};
        draw(p);
        if (!find(p, w)) {
            // Each block with a tile draws until it gets a number behind the last, so there are as many draws as tiles.
            if (number == before + gridDim.x - 1) asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p.counters), "r"(0) : "memory");
            w.steps = -1;
            return w;
        }
        drawn = false;
        const Sequence s = sequence_of(p, w);
        const int begin = WINDOW != 0 ? first_key(p, s, w.row0) : 0;
        const int end = end_key(p, s, (w.row0 + kM < s.len_q ? w.row0 + kM : s.len_q) - 1);
        if (WINDOW != 0) w.begin = PAGED != 0 ? begin / kBox * kBox : begin;
        if (kTurns && end_key(p, s, w.row0) >= kN) w.begin = end_key(p, s, w.row0) / kN - 1;
        w.steps = end > begin ? (end - key_of_step(w, 0) + kN - 1) / kN : 0;
        w.kv_head = w.head / (p.dense.heads_q / p.dense.heads_kv);
        w.scale = find_scale(p, w.batch, w.kv_head).exponent;
        if constexpr (SOFTCAP != 0) {
            w.scale *= kBendSlope;
            w.bend = p.dense.softmax_scale * p.k_scale[(i64)w.batch * p.k_scale_batch_stride + w.kv_head * p.k_scale_head_stride] * reciprocal(p.softcap);
        }
        return w;
    }
};

FA_DEVICE void store_record(u32 to, const Work &w) {
    store_shared(to, w.row0, w.head, w.batch, w.kv_head);
    store_shared(to + 16, w.len_q, w.len_k, w.first_q, w.first_k);
    store_shared(to + 32, w.steps, w.begin, w.scale, w.bend);
}
// Of a record, what says where the tile lies, its sequence (kRagged) and its steps. kAlone: of the thread that stored it, else a whole
// warp's. One lane reads, which lets the record go: racecheck does not follow a warp barrier that orders other lanes' reads.
template <bool kAlone, bool kPlace, bool kSteps> FA_DEVICE Work load_record(u32 from) {
    constexpr bool kParts[3] = {kPlace, kRagged, kSteps};
    int x[12];
#pragma unroll
    for (int i = 0; i < 12; i += 4) {
        x[i] = x[i + 1] = x[i + 2] = x[i + 3] = 0;
        if (kParts[i / 4] && (kAlone || threadIdx.x % kWarp == 0))
            load_shared(x[i], x[i + 1], x[i + 2], x[i + 3], from + 4 * i);
    }
#pragma unroll
    for (int i = 0; i < (SOFTCAP != 0 ? 12 : 11); ++i)
        if (!kAlone && kParts[i / 4]) x[i] = uniform(x[i]);
    return {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], x[8], x[9], bits_to_float((u32)x[10]), bits_to_float((u32)x[11])};
}

// The steps of a tile that the rows of one consumer see: some row those of [from, steps), every row those of
// [clear_from, clear_steps) whole.
struct Own {
    int from, steps, clear_from, clear_steps;
};
FA_DEVICE Own find_own(const fa_attn_serving_params &p, const Work &w, u32 group) {
    const Sequence s = sequence_of(p, w);
    const int row = w.row0 + (int)group * 64, last = (row + 64 < s.len_q ? row + 64 : s.len_q) - 1, key0 = key_of_step(w, 0);
    if (w.steps <= 0 || row > last) return {0, 0, 0, 0};
    const int seen = end_key(p, s, last) - key0, clear = end_key(p, s, row) - key0;
    Own own = {0, seen > 0 ? (seen + kN - 1) / kN : 0, 0, clear > 0 ? clear / kN : 0};
    if constexpr (WINDOW != 0) {
        const int first = first_key(p, s, row) - key0, hidden = first_key(p, s, last) - key0;
        own.from = first <= 0 ? 0 : first / kN < own.steps ? first / kN : own.steps > 0 ? own.steps - 1 : 0;
        own.clear_from = hidden > 0 ? (hidden + kN - 1) / kN : 0;
    }
    return own;
}

// ---- producer --------------------------------------------------------------------------------------------------

FA_DEVICE void load_tile(const fa_attn_serving_params &p, const fa_tensor_map *map, u32 to, u32 full, const Work &w, int step) {
    const int key = key_of_step(w, step);
    barrier_expect(full, kTile);
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
        int row = LENGTHS_K == 1 && PAGED == 0 ? w.first_k + key : key, block = LENGTHS_K == 1 ? 0 : w.batch;
        if constexpr (PAGED != 0) {   // -1: there is none, and the copy engine writes zeros
            const int its_key = key + box * kBox;
            row = (int)((u32)its_key % kPage);
            block = its_key < sequence_of(p, w).len_k
                        ? load_int(p.block_table + w.batch * p.block_table_stride + (u32)its_key / kPage) : -1;
        }
#pragma unroll
        for (int i = 0; i < kSlabs; ++i)
            tma_load(to + i * (kN * kLine) + box * (kBox * kLine), map, full, i * kLine, row, w.kv_head, block, kEvictLast);
    }
}

// One thread: K of a step before its V, Q behind a tile's first K. The next tile is handed over with the last step.
FA_DEVICE void fetch(const fa_attn_serving_params &p, const fa_attn_tensor_maps &maps, u32 base) {
    Ring<STAGES> k, raw;
    Ring<Q_STAGES> q;
    Ring<kRecords> told;
    Dealer dealer;
    const auto tell = [&] {
        const Work next = dealer.next(p);
        barrier_wait(barrier_at(base, kToldEmpty + told.slot), told.parity ^ 1);
        store_record(base + kRecordsAt + told.slot * kRecordBytes, next);
        barrier_arrive(barrier_at(base, kToldFull + told.slot));
    };
    for (tell();;) {
        const Work w = load_record<true, true, true>(base + kRecordsAt + told.slot * kRecordBytes);
        if (w.steps < 0) break;
        told.advance();
#pragma unroll 1
        for (int left = w.steps, step = first_step(w); left == w.steps || left > 0; --left, step = next_step(w, step)) {
            if (left <= 1) dealer.draw(p);
            if (left > 0) {
                barrier_wait(barrier_at(base, kKEmpty + k.slot), k.parity ^ 1);
                load_tile(p, &maps.k, base + k.slot * kTile, barrier_at(base, kKFull + k.slot), w, step);
                k.advance();
            }
            if (left == w.steps) {
#pragma unroll 1
                for (u32 g = q.slot * kGroups; g < (q.slot + 1) * kGroups; ++g) {
                    barrier_wait(barrier_at(base, kQEmpty + g), q.parity ^ 1);
                    barrier_expect(barrier_at(base, kQFull + g), kQPart);
#pragma unroll
                    for (int i = 0; i < kSlabs; ++i)
                        tma_load(base + kQAt + g * kQPart + i * (64 * kLine), &maps.q, barrier_at(base, kQFull + g), i * kLine,
                                 first_query(w) + w.row0 + (int)(g - q.slot * kGroups) * 64, w.head, VARLEN_Q != 0 ? 0 : w.batch, kEvictFirst);
                }
                q.advance();
            }
            if (left > 0) {
                barrier_wait(barrier_at(base, kRawEmpty + raw.slot), raw.parity ^ 1);
                load_tile(p, &maps.v, base + kRawAt + raw.slot * kTile, barrier_at(base, kRawFull + raw.slot), w, step);
                raw.advance();
            }
            if (left <= 1) tell();
        }
    }
}

// A warp's part of a tile of V: every kConverters-th 16 columns, kAtOnce times 32 keys of them under way together. Swizzles move
// the same bits for all of them, so that places differ by numbers that the compiler knows. Keys from `end` on become zeros: what
// lies there may be NaN.
FA_DEVICE void transpose_tile(u32 from, u32 to, int end) {
    constexpr bool kRoomy = !kRagged && PAGED == 0;   // of registers
    constexpr u32 kBlocks = kN / 32, kAtOnce = kRoomy && kBlocks % 4 == 0 ? 4 : kBlocks % 3 == 0 ? 3 : kBlocks % 2 == 0 ? 2 : kBlocks > 5 ? 1 : kBlocks;
    const u32 lane = threadIdx.x % kWarp, load = swizzled_chunk<kLine>(lane, 0), store = swizzled_chunk<kKeyLine>(lane % 16, lane / 16);
#pragma unroll 1
    for (u32 column = threadIdx.x / kWarp * 16; column < kD; column += kConverters * 16) {
        const u32 source = from + column / kLine * (kN * kLine) + (load ^ column % kLine), target = to + column * kKeyLine;
#pragma unroll(kRoomy ? 8 : 1)
        for (u32 first = 0; first < kBlocks; first += kAtOnce) {
            u32 four[kAtOnce][4];
#pragma unroll
            for (u32 i = 0; i < kAtOnce; ++i) ldmatrix_x4_trans(four[i], source + (first + i) * (32 * kLine));
#pragma unroll
            for (u32 i = 0; i < kAtOnce; ++i) {
                const u32 key = (first + i) * 32;
                if ((kRagged || PAGED != 0) && end < (int)key + 32)
#pragma unroll
                    for (u32 m = 0; m < 4; ++m) {   // each has two keys of two columns
                        const int its_key = (int)(key + m * 8 + lane % 4 * 2);
                        four[i][m] = its_key >= end ? 0 : its_key + 1 >= end ? four[i][m] & 0xffffu : four[i][m];
                    }
                transpose_e4m3(target + key / kKeyLine * (kD * kKeyLine) + (store ^ key % kKeyLine), four[i]);
            }
        }
    }
}

FA_DEVICE void convert(const fa_attn_serving_params &p, u32 base) {
    Ring<STAGES> ring;   // of both
    for (Ring<kRecords> told;; told.advance()) {
        barrier_wait(barrier_at(base, kToldFull + told.slot), told.parity);
        const Work w = load_record<false, false, true>(base + kRecordsAt + told.slot * kRecordBytes);
        if (threadIdx.x % kWarp == 0) barrier_arrive(barrier_at(base, kToldEmpty + told.slot));
        if (w.steps < 0) return;
#pragma unroll 1
        for (int left = w.steps, step = first_step(w); left > 0; --left, step = next_step(w, step)) {
            barrier_wait(barrier_at(base, kRawFull + ring.slot), ring.parity);
            barrier_wait(barrier_at(base, kTurnedEmpty + ring.slot), ring.parity ^ 1);
            transpose_tile(base + kRawAt + ring.slot * kTile, base + kTurnedAt + ring.slot * kTile,
                           sequence_of(p, w).len_k - key_of_step(w, step));
            async_proxy_fence();
            warp_sync();   // all lanes have read and written
            if (threadIdx.x % kWarp == 0) {
                barrier_arrive(barrier_at(base, kRawEmpty + ring.slot));
                barrier_arrive(barrier_at(base, kTurnedFull + ring.slot));
            }
            ring.advance();
        }
    }
}

// ---- consumer --------------------------------------------------------------------------------------------------

struct Feed {
    const u32 base, group;
    Ring<STAGES> k, v;
    Ring<Q_STAGES> q;
    Ring<kRecords> told;

    __device__ __forceinline__ u32 q_part() const { return q.slot * kGroups + group; }
    __device__ __forceinline__ u64 wait_q() const {
        barrier_wait(barrier_at(base, kQFull + q_part()), q.parity);
        return e4m3_descriptor<kLine>(base + kQAt + q_part() * kQPart);
    }
    __device__ __forceinline__ void release_q() {
        if (threadIdx.x % kWarp == 0) barrier_arrive(barrier_at(base, kQEmpty + q_part()));
        q.advance();
    }
    __device__ __forceinline__ u32 record() const { return base + kRecordsAt + told.slot * kRecordBytes; }

    __device__ __forceinline__ u64 wait_k() const {
        barrier_wait(barrier_at(base, kKFull + k.slot), k.parity);
        return e4m3_descriptor<kLine>(base + k.slot * kTile);
    }
    __device__ __forceinline__ u64 wait_v() const {
        barrier_wait(barrier_at(base, kTurnedFull + v.slot), v.parity);
        return e4m3_descriptor<kKeyLine>(base + kTurnedAt + v.slot * kTile);
    }
    __device__ __forceinline__ void release_k() {
        if (threadIdx.x % kWarp == 0) barrier_arrive(barrier_at(base, kKEmpty + k.slot));
        k.advance();
    }
    __device__ __forceinline__ void release_v() {
        if (threadIdx.x % kWarp == 0) barrier_arrive(barrier_at(base, kTurnedEmpty + v.slot));
        v.advance();
    }
    // Consumers take turns in issuing products, so that one's softmax runs under another's.
    __device__ __forceinline__ void turn_begin() const {
        if (PINGPONG != 0) named_sync(kTurn + group, 2 * kGroup);
    }
    __device__ __forceinline__ void turn_end() const {
        if (PINGPONG != 0) named_arrive(kTurn + (group + 1 == kGroups ? 0 : group + 1), 2 * kGroup);
    }
    // Steps that this consumer's rows do not see; turns are taken all the same, as many of them as the tile has steps.
    __device__ __forceinline__ void skip(int steps) {
        for (; steps > 0; --steps) {
            wait_k();
            warp_sync();   // all lanes have seen it before one lets it go
            turn_begin();
            turn_end();
            release_k();
            wait_v();
            warp_sync();
            release_v();
        }
    }
};

// S = Q K^T, left under way.
template <int kTo = kD> FA_DEVICE void issue_qk(Scores &s, u64 q, u64 k) {
    Wgmma<kN>::pin(s);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < kTo; d += 32)
        WgmmaE4m3<kN>::multiply(s, q + (d / kLine * (64 * kLine) + d % kLine) / 16, k + (d / kLine * (kN * kLine) + d % kLine) / 16, d > 0);
    wgmma_commit();
}

// Of a first step's scores: what columns behind the first kExact add to them, kExact at a time and in fp32. A tensor core's sum of more
// columns lacks too much of a score that decides a row.
constexpr int kExact = kD > 64 ? 32 : 64, kFew = kN % 64 == 0 ? 64 : 32;
FA_DEVICE void issue_columns(float (&sum)[kFew / 2], u64 q, u64 k, int n) {
    const int key = n % (kN / kFew) * kFew, first = (n / (kN / kFew) + 1) * kExact;
    Wgmma<kFew>::pin(sum);
    wgmma_fence();
#pragma unroll
    for (int d = first; d < first + kExact; d += 32)
        WgmmaE4m3<kFew>::multiply(sum, q + (d / kLine * (64 * kLine) + d % kLine) / 16, k + (d / kLine * (kN * kLine) + key * kLine + d % kLine) / 16, d > first);
    wgmma_commit();
}
FA_DEVICE void add_columns(Scores &s, u64 q, u64 k) {
    constexpr int kTimes = (kD / kExact - 1) * (kN / kFew);
    constexpr int kSums = kN > 128 || kGroups > 2 ? 1 : 2;   // under way: registers
    float sum[kSums][kFew / 2];
    if constexpr (kSums == 2 && kTimes > 0) issue_columns(sum[0], q, k, 0);
#pragma unroll
    for (int n = 0; n < kTimes; ++n) {
        if (kSums == 1) issue_columns(sum[0], q, k, n);
        if (kSums == 2 && n + 1 < kTimes) {
            issue_columns(sum[(n + 1) % kSums], q, k, n + 1);
            wgmma_wait<1>();
        } else {
            wgmma_wait<0>();
        }
        Wgmma<kFew>::pin(sum[n % kSums]);
#pragma unroll
        for (int i = 0; i < kFew / 2; ++i) s[n % (kN / kFew) * (kFew / 2) + i] += sum[n % kSums][i];
    }
}

// O += P V of a chunk of columns and some keys.
template <int kFrom, int kTo> FA_DEVICE void multiply_pv(Output &o, const Weights &p, u64 v, int chunk, bool accumulate) {
    wgmma_fence();
#pragma unroll
    for (int key = kFrom; key < kTo; key += 32)
        WgmmaE4m3<kColumns>::multiply(o, &p[key / 8], v + (key / kKeyLine * (kD * kKeyLine) + chunk * (kColumns * kKeyLine) + key % kKeyLine) / 16,
                                      key > 0 || accumulate);
}
// Of all keys, left under way.
FA_DEVICE void issue_pv(Output &o, const Weights &p, u64 v, int chunk, bool accumulate) {
    Wgmma<kColumns>::pin(o);
    multiply_pv<0, kN>(o, p, v, chunk, accumulate);
    wgmma_commit();
}

// The scores of this warp's 16 rows once more, by products that a warp does alone, 16 of K at a time: `rows` of Q, and a tile of K.
// Two numbers of e4m3 are a pair of fp16; of four neighbours the second two take the places of K + 8, in both operands.
FA_DEVICE void multiply_again(Scores &s, u32 rows, u32 keys) {
    const u32 lane = threadIdx.x % kWarp, row = threadIdx.x % kGroup / kWarp * 16 * kLine;
#pragma unroll
    for (int i = 0; i < kScores; ++i) s[i] = 0.0f;
#pragma unroll 1
    for (u32 d = 0; d < kD; d += 16) {
        const u32 place = swizzled_chunk<kLine>(lane / 4, d % kLine / 16) + lane % 4 * 4;
        const u32 low = load_shared<u32>(rows + d / kLine * (64 * kLine) + row + place), high = load_shared<u32>(rows + d / kLine * (64 * kLine) + row + 8 * kLine + place);
        const u32 left[4] = {widen<false, kBytes01>(low), widen<false, kBytes01>(high), widen<false, kBytes23>(low), widen<false, kBytes23>(high)};
#pragma unroll
        for (u32 key = 0; key < kN; key += 8) {
            const u32 four = load_shared<u32>(keys + d / kLine * (kN * kLine) + place + key * kLine);
            mma_16816<false>(*(float (*)[4])&s[key / 2], left, widen<false, kBytes01>(four), widen<false, kBytes23>(four));
        }
    }
}

// What stands behind this stays behind. By itself the assembler puts the sum of an exponential so close to it that a warp, which
// issues in order, waits 11 clocks for each, where the unit takes 8. Batches are never negative; of all these the cubin has one.
// Beside a product under way it would wait for that.
constexpr int kBehind = 6;   // exponentials
FA_DEVICE void keep_order(int batch) {
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %0, 0; @p exit; }" :: "r"(batch) : "memory");
}

// The largest weight of a row: bits of floats that are not negative have their order as integers, which are compared three at a time.
FA_DEVICE float largest(const Scores &s, int half) {
    int top = 0;
#pragma unroll
    for (int i = half * 2; i < kScores; i += 4) top = max3(top, (int)float_to_bits(s[i]), (int)float_to_bits(s[i + 1]));
    return bits_to_float((u32)top);
}

// S becomes weights, of scores that are masked. `first`: references move to kOffset below the maxima before; else those move of rows
// where a thread's weights add up to more than kLargest or one is more than kHeaviest, after it, by the largest weight: it is a power
// of two then, which e4m3 does not round, as where a reference was taken before. True when some row's of the warp has moved and sums
// must shrink by `shrink`.
// A tensor core's sum of products of e4m3 keeps 13 bits: a score of a key that lies along its query is too small, by 2.1e-4 of itself
// in the mean at head dim 64, 7.5e-4 at 128 and 2.0e-3 at 256 (by simulation; half or one and a half times that for some). Where a key
// has outgrown all before it, kJump, kShort makes up for it; keys of other directions lack a 20th of that, so it is 4 % of a weight at
// most. `lost`: of a later step, a thread's add up to more than kFar, kJump beyond kReach, or to infinity; the rows are as they were,
// but for NaN, and scores are to be multiplied again, which takes the time of several steps.
// Warps decide for themselves, so that nothing here may be a warpgroup's instruction.
FA_DEVICE bool weigh(Scores &s, Rows &rows, float (&shrink)[2], float scale, int batch, bool first, bool &lost) {
    if (first) {
        float top[2];
        row_tops(top, s);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float raised = max2(rows.reference[half], quad_max(top[half]) * scale - kOffset);
            shrink[half] = exp2_fast(rows.reference[half] - raised);
            rows.reference[half] = raised;
            rows.sum[half] *= shrink[half];
        }
    }
    // Rows g, then rows g + 8: multiplications in a row read their reference once. The assembler would take rows in turn, but the second
    // reference waits for a weight of the first rows. Worth 3 % at head dim 128, nothing at 64.
    constexpr int kRow = kD > 64 ? kScores / 2 : 2;
    const auto at = [](int n) { return n / (2 * kRow) * (2 * kRow) + n % kRow / 2 * 4 + n / kRow % 2 * 2 + n % 2; };
    float part[2] = {0.0f, 0.0f}, reference[2] = {rows.reference[0], rows.reference[1]};
#pragma unroll
    for (int i = 0; i < kScores + kBehind; ++i) {
        if (kD > 64 && i == kRow) reference[1] = bits_to_float(float_to_bits(reference[1]) ^ (float_to_bits(s[at(kScores * 5 / 16)]) & (u32)(batch >> 31)));
        if (i < kScores) s[at(i)] = exp2_fast(s[at(i)] * scale - reference[at(i) % 4 / 2]);
        if (i >= kBehind) part[at(i - kBehind) % 4 / 2] += s[at(i - kBehind)];
        if (kChunks > 1 && i < kScores) keep_order(batch);
    }
    lost = false;
    const bool grown = warp_any(!(part[0] <= kLargest) || !(part[1] <= kLargest));   // NaN, too
    if (grown) {
        const auto is_lost = [&](int half) { return part[half] > (rows.reference[half] > kReach ? kJump : kFar); };
        lost = !first && warp_any(is_lost(0) || is_lost(1));
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (lost && part[half] == part[half]) part[half] = 0.0f;
            const float own = largest(s, half), peak = quad_max(own), most = quad_max(part[half]);
            float up = 0.0f;
            if (!first && !lost && (most > kLargest || peak > kHeaviest)) {
                up = log2_fast(peak);
                const float more = most > kJump ? (rows.reference[half] + up) * kShort : 0.0f;
                const float full = peak * exp2_fast(more);
#pragma unroll
                for (int i = half * 2; i < kScores && own == peak && more != 0.0f; i += 4)
#pragma unroll
                    for (int e = i; e < i + 2; ++e)
                        if (s[e] == peak) s[e] = full, part[half] += full - peak;
                up += more - kOffset;
            }
            const float fits = most * exp2_fast(-up);
            if (fits > kLargest) up += (float)((int)(float_to_bits(fits) >> 23) - kMoved);
            if (!first) shrink[half] = 1.0f;
            if (!warp_any(up != 0.0f)) continue;
            const float less = exp2_fast(-up);
            shrink[half] *= less;
            rows.reference[half] += up;
            rows.sum[half] *= less;
            part[half] *= less;
#pragma unroll
            for (int i = half * 2; i < kScores; i += 4) s[i] *= less, s[i + 1] *= less;
        }
    }
    rows.sum[0] += part[0], rows.sum[1] += part[1];
    return grown || first;
}

// 4 for each 32 keys: rows g, g + 8 of the first 16 and of the others.
template <int kFrom = 0, int kTo = kN> FA_DEVICE void pack_weights(Weights &p, const Scores &s) {
#pragma unroll
    for (int i = kFrom / 8; i < kTo / 8; ++i) {
        const float *low = &s[i / 2 * 8 + i % 2 * 2];
        p[i] = pack_e4m3(low[0], low[1], low[4], low[5]);
    }
}

template <int kCount> FA_DEVICE void scale_rows(float (&o)[kCount], const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) o[i] *= factor[i % 4 / 2];
}
// A thread's sums in shared memory, which are of references of their own: they and o become one, in o. `kept`: there are some.
FA_DEVICE void add_kept(u32 at, Output &o, const Rows &rows, const float (&reference)[2], bool kept) {
    if (!kept) return;
    const float factor[2] = {exp2_fast(reference[0] - rows.reference[0]), exp2_fast(reference[1] - rows.reference[1])};
#pragma unroll
    for (int i = 0; i < kColumns / 2; i += 4) {
        float x[4];
        load_shared(x, at + i * (kGroup * 4));
#pragma unroll
        for (int j = 0; j < 4; ++j) o[i + j] += x[j] * factor[j / 2];
    }
}
FA_DEVICE void keep(u32 at, const Output &o) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; i += 4)
        store_shared(at + i * (kGroup * 4), o[i], o[i + 1], o[i + 2], o[i + 3]);
}
FA_DEVICE void add_chunk(float (&total)[kD / 2], const Output &o, int chunk) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) total[chunk * (kColumns / 2) + i] += o[i];
}

// The rows of a consumer are complete.
FA_DEVICE void finish(const fa_attn_serving_params &p, const Work &w, const Rows &rows, const float (&total)[kD / 2], int row) {
    const fa_attn_params &d = p.dense;
    const int len_q = sequence_of(p, w).len_q;
    const i64 lse = VARLEN_Q != 0 ? (i64)w.head * p.total_q + w.first_q : ((i64)w.batch * d.heads_q + w.head) * d.seq_q;
    u16 *o = (u16 *)d.o + (VARLEN_Q != 0 ? w.first_q * d.o_row_stride : w.batch * d.o_batch_stride) + w.head * d.o_head_stride + threadIdx.x % 4 * 4;
#pragma unroll
    for (int half = 0; half < 2; ++half, row += 8) {
        const Closed end = close_row(p, w.batch, w.kv_head, w.head, {rows.reference[half], quad_sum(rows.sum[half])});
        if (row >= len_q) continue;
        if (d.lse && threadIdx.x % 4 == 0) d.lse[lse + row] = end.lse;
#pragma unroll
        for (int column = 0; column < kD; column += 16) {
            const float *x = &total[column / 2 + half * 2];   // columns 0 and 2 of four, then in x[4] 1 and 3
            if (HEAD_DIM == kD || column < HEAD_DIM)
                store_global_8(o + row * d.o_row_stride + column, pack2<kBf16>(x[0] * end.inverse, x[4] * end.inverse),
                               pack2<kBf16>(x[1] * end.inverse, x[5] * end.inverse));
        }
    }
}

// Scores of keys that a row must not see become -inf.
FA_DEVICE bool is_masked(const Own &own, int step) { return step >= own.clear_steps || (WINDOW != 0 && step < own.clear_from); }
FA_DEVICE void mask(Scores &s, const fa_attn_serving_params &p, const Work &w, int row, int key, int step) {
    const Sequence sequence = sequence_of(p, w);
    const int query = w.row0 + row, from = key + key_of_step(w, step);
    Wgmma<kN>::mask(s, end_key(p, sequence, query) - from, end_key(p, sequence, query + 8) - from);
    if constexpr (WINDOW != 0) {
        const int begin[2] = {first_key(p, sequence, query) - from, first_key(p, sequence, query + 8) - from};
#pragma unroll
        for (int i = 0; i < kScores; ++i)
            if (i / 4 * 8 + i % 2 < begin[i % 4 / 2]) s[i] = neg_infinity();
    }
}

// Scores under a softcap, before they are masked.
FA_DEVICE void bend(Scores &s, float rate) {
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < kScores; ++i) {
        s[i] *= rate;
        most = max2(most, fabsf(s[i]));
    }
    if (warp_any(most > kNear)) {
#pragma unroll
        for (int i = 0; i < kScores; ++i) s[i] = (1.0f - 2.0f * reciprocal(1.0f + exp2_fast(s[i] * (2.0f * kLog2E)))) * (1.0f / kBendSlope);
    } else {
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
            const float y = s[i] * s[i] + kBendShift;
            s[i] *= y * y + kBendRest;
        }
    }
}

FA_DEVICE void consume(const fa_attn_serving_params &p, u32 base, u32 group) {
    const int lane_row = (int)(group * 64 + threadIdx.x % kGroup / kWarp * 16 + threadIdx.x % kWarp / 4);
    const int lane_key = (int)(threadIdx.x % 4) * 2;
    const u32 sums = base + kSumsAt + group * (64 * kD * 4) + threadIdx.x % kGroup * 16;
    Feed feed = {base, group};
    Work w;     // of it, what a step needs; the rest is read from the record again
    Own own;
    u64 q;
    Scores s;
    if (group == kGroups - 1) feed.turn_end();   // the first turn is consumer 0's

    float total[kD / 2];
    Rows rows;
    u32 complete;   // the record of the tile before
    const auto write = [&] {
        const Work done = load_record<false, true, false>(base + kRecordsAt + complete * kRecordBytes);
        finish(p, done, rows, total, done.row0 + lane_row);
        if (threadIdx.x % kWarp == 0) barrier_arrive(barrier_at(base, kToldEmpty + complete));
    };
    // Comes to the next tile. While its first scores are under way, the one before is written.
    const auto begin = [&](bool any) {
        barrier_wait(barrier_at(base, kToldFull + feed.told.slot), feed.told.parity);
        w = load_record<false, true, true>(feed.record());
        own = find_own(p, w, group);
        if (w.steps >= 0) {
            q = feed.wait_q();
            if (!kTurns) feed.skip(w.steps - own.steps);
        }
        if (own.steps > 0) {
            const u64 k = feed.wait_k();
            feed.turn_begin();
            issue_qk<kExact>(s, q, k);
            feed.turn_end();
            if (any) write();
            wgmma_wait<0>();
            Wgmma<kN>::pin(s);
            add_columns(s, q, k);
        } else {
            if (any) write();
#pragma unroll
            for (int i = 0; i < kScores; ++i) s[i] = 0.0f;   // scores that are there in any case would take registers all the time
            warp_sync();   // all lanes have seen Q before one lets it go
            if (w.steps >= 0) feed.release_q();
        }
    };

    begin(false);
    while (w.steps >= 0) {
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) total[i] = 0.0f;
        rows = new_rows();
        const int unseen = kTurns ? w.steps - own.steps : WINDOW != 0 ? own.from : 0;   // steps, which come last
        const float scale = w.scale;
        const auto recall = [&] {
            Work again = w;
            if constexpr (kRagged) {
                const Work read = load_record<false, false, false>(feed.record());
                again.len_q = read.len_q, again.len_k = read.len_k;
            }
            return again;
        };
        if (own.steps > 0) {
            Weights weights;
            float shrink[2];
            const int last = WINDOW != 0 ? own.from : kTurns && own.steps - 1 > w.begin ? 1 - own.steps : 0;
            int step = kTurns ? w.begin : own.steps - 1;
            bool lost;
            feed.release_k();
            if (step == last) feed.release_q();
            if (SOFTCAP != 0) bend(s, w.bend);
            if (is_masked(own, step)) mask(s, p, recall(), lane_row, lane_key, step);
            weigh(s, rows, shrink, scale, p.dense.batch, true, lost);
            if (kChunks == 1) pack_weights(weights, s);
            // Of a later step, whose scores are complete. Until the step that all rows see, some may have no reference yet.
            const auto weigh_step = [&](int step) {
                bool lost, grown, first = WINDOW != 0 && step >= own.clear_steps - 1;
                for (;; first = true) {
                    Wgmma<kN>::pin(s);
                    if (SOFTCAP != 0) bend(s, w.bend);
                    if (WINDOW != 0 ? is_masked(own, step) : kTurns && step < 0) mask(s, p, recall(), lane_row, lane_key, step);
                    grown = weigh(s, rows, shrink, scale, p.dense.batch, first, lost);
                    if (!lost) break;
                    multiply_again(s, base + kQAt + feed.q_part() * kQPart, base + feed.k.slot * kTile);
                }
                feed.release_k();
                if (step == last) feed.release_q();
                return grown;
            };
            if constexpr (kChunks == 1) {
                // Each turn: Q K^T of the next step beside P V of this one.
                Output o;
                int fresh = 0;   // steps in o
                bool kept = false;
                float reference[2];   // of sums in shared memory
                while (step != last) {
                    step = next_step(w, step);
                    feed.turn_begin();
                    issue_qk(s, q, feed.wait_k());
                    issue_pv(o, weights, feed.wait_v(), 0, fresh > 0);
                    feed.turn_end();
                    wgmma_wait<1>();
                    const bool grown = weigh_step(step);
                    finish_before_wait(rows);
                    wgmma_wait<0>();
                    Wgmma<kColumns>::pin(o);
                    feed.release_v();
                    if constexpr (kShared) {
                        if (grown) scale_rows(o, shrink);
                        if (++fresh == FLUSH) {
                            add_kept(sums, o, rows, reference, kept);
                            keep(sums, o);
                            reference[0] = rows.reference[0], reference[1] = rows.reference[1];
                            fresh = 0, kept = true;
                        }
                    } else {
                        if (++fresh == FLUSH) {
                            add_chunk(total, o, 0);
                            fresh = 0;
                        } else if (FLUSH > 1 && grown) scale_rows(o, shrink);
                        if (grown) scale_rows(total, shrink);
                    }
                    pack_weights(weights, s);
                }
                issue_pv(o, weights, feed.wait_v(), 0, fresh > 0);
                wgmma_wait<0>();
                Wgmma<kColumns>::pin(o);
                feed.release_v();
                if constexpr (kShared) add_kept(sums, o, rows, reference, kept);
                add_chunk(total, o, 0);
            } else {
                // Each turn: P V of this step, a chunk's sums added under the next one's product, then Q K^T of the next step.
                for (;;) {
                    // Of keys whose weights are multiplied while those of the others are rounded, where registers do for it.
                    constexpr int kFirst = kChunks == 2 && kN == 256 ? kN / 2 : kN;
                    pack_weights<0, kFirst>(weights, s);
                    const u64 v = feed.wait_v();
                    if (step != last) feed.turn_begin();
                    Output o[2];
                    Wgmma<kColumns>::pin(o[0]);
                    multiply_pv<0, kFirst>(o[0], weights, v, 0, false);
                    if constexpr (kFirst < kN) {
                        pack_weights<kFirst, kN>(weights, s);
                        multiply_pv<kFirst, kN>(o[0], weights, v, 0, false);
                    }
                    wgmma_commit();
#pragma unroll
                    for (int chunk = 0; chunk < kChunks; ++chunk) {
                        if (chunk + 1 < kChunks) {
                            issue_pv(o[(chunk + 1) % 2], weights, v, chunk + 1, false);
                            wgmma_wait<1>();
                        } else {
                            wgmma_wait<0>();
                        }
                        Wgmma<kColumns>::pin(o[chunk % 2]);
                        add_chunk(total, o[chunk % 2], chunk);
                    }
                    feed.release_v();
                    if (step == last) break;
                    step = next_step(w, step);
                    issue_qk(s, q, feed.wait_k());
                    feed.turn_end();
                    wgmma_wait<0>();
                    if (weigh_step(step)) scale_rows(total, shrink);
                }
            }
        }
        feed.skip(unseen);
        complete = feed.told.slot;
        feed.told.advance();
        begin(true);
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FA_THREADS, 1)
attn_fwd(const __grid_constant__ fa_attn_serving_params p, const __grid_constant__ fa_attn_tensor_maps maps) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 base = shared_address(memory);
    if (threadIdx.x == 0) {
        if (base % 1024 != 0) asm volatile("trap;");   // swizzles count on it
        tma_prefetch_map(&maps.q);
        tma_prefetch_map(&maps.k);
        tma_prefetch_map(&maps.v);
        for (u32 i = 0; i < STAGES; ++i) {
            barrier_init(barrier_at(base, kKFull + i), 1);
            barrier_init(barrier_at(base, kKEmpty + i), kGroups * 4);
            barrier_init(barrier_at(base, kRawFull + i), 1);
            barrier_init(barrier_at(base, kRawEmpty + i), kConverters);
            barrier_init(barrier_at(base, kTurnedFull + i), kConverters);
            barrier_init(barrier_at(base, kTurnedEmpty + i), kGroups * 4);
        }
        for (u32 g = 0; g < Q_STAGES * kGroups; ++g) {
            barrier_init(barrier_at(base, kQFull + g), 1);
            barrier_init(barrier_at(base, kQEmpty + g), 4);
        }
        for (u32 i = 0; i < kRecords; ++i) {
            barrier_init(barrier_at(base, kToldFull + i), 1);
            barrier_init(barrier_at(base, kToldEmpty + i), kGroups * 4 + kConverters);
        }
        barrier_init_fence();
    }
    named_sync(0, FA_THREADS);
    const u32 group = (u32)uniform((int)(threadIdx.x / kGroup));
    if (group == 0) {
        registers_decrease<PRODUCER_REGS>();
        if (threadIdx.x < kConverters * kWarp) convert(p, base);
        else if (threadIdx.x == kConverters * kWarp) fetch(p, maps, base);
    } else {
        registers_increase<CONSUMER_REGS>();
        consume(p, base, group - 1);
    }
}
