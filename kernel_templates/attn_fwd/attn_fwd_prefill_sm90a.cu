// SPDX-License-Identifier: Apache-2.0
//
// Attention forward for many queries as inference engines call it, on Hopper (sm_90a): TMA, wgmma, warpgroups.
//
// Purpose: O = softmax(scale * Q K^T) V with lengths on the device, pages, windows, softcap, sinks, and values with a head
// dimension of their own, at the pace of attn_fwd_sm90a, whose machinery it shares (attn_wgmma.cuh).
// Workload: a block for every place on the card, which draws tiles of BLOCK_M queries of one head, or (PACK) of the heads that
// share keys, of one sequence until none is left. How many there are is known on the device alone; the grid depends on numbers that the host knows.
// Invariants, beside attn_wgmma.cuh's:
//  - the first tile of a block has its number, the others come from a counter, which the last block to draw makes zero again.
//    The producer hands each tile to the consumers through kPlaces records in shared memory.
//  - tiles are numbered by sequence (of up to 32 packed ones by the keys that they have, the most first), and within one as
//    attn_sections.cuh has it.
//  - steps are counted from the first key that the tile sees; of pages from the beginning of its box, a box being the
//    largest part of a page that tiles are whole numbers of.
//  - keys behind a sequence's end are masked, values there become zeros in shared memory, since what lies there may be NaN.
//  - what a user adds to scores (SCORE_ADDS), divided by their scale, is where their accumulators start, so that weights are found as
//    without a text. Any other text is computed when a product is complete.
//  - with a user's mask a tile has the steps that some query sees by it. The fourth warp of the producing warpgroup deals tiles and finds
//    their steps, ahead of the threads that fetch; consumers know them by notes beside the tiles of K. By a mask that reads a tensor of
//    queries and keys (MASK_LISTS) no range says which those are: a launch before looks at every element.
//  - keys and values of fp8 come to tiles of their own, from which three warps of the producing warpgroup make the
//    tiles that wgmma multiplies. Their scales are numbers of the kernel's, but for the products.
//  - rows of the output leave by TMA, except by hand those of a warp that holds the last row of a sequence that another
//    one follows.
#if PIECE_STAGES
#include "fa_tma_device.cuh"
// All threads of the cluster have come.
FA_DEVICE void cluster_sync() { asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory"); }
#endif
#ifndef MASK_LISTS
#define MASK_LISTS 0
#endif
// Whether consumers copy by themselves what a text adds of queries and keys, by warps that copy whole rows.
#define OWN_PIECES (SCORE_ADDS && SCORE_FETCH_BYTES >= 128 && PIECE_STAGES && (BLOCK_M < 192 || D_TILE <= 64) && !MASK_SNIPPET && 512 % (BLOCK_N * (SCORE_FETCH_BYTES / 64)) == 0)
#if OWN_PIECES
#include "fa_async.cuh"
#endif
// Whether a step from one tile to the next has code of its own, in which the softmax and a text stand for the third time.
#define ACROSS (SHORT == 0 && (GROUPS > 1 || WIDE > 128))
#include "attn_sections.cuh"
#include "attn_serving.cuh"
#include "attn_serving_params.h"
#include "attn_snippet.cuh"
#include "attn_softcap.cuh"
#include "attn_wgmma.cuh"

namespace {

FA_DEVICE constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
constexpr int kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kBox = PAGED != 0 ? common_divisor(kPage, kN) : kN, kBoxes = kN / kBox;   // keys of a box; boxes of a tile

} // namespace

extern "C" __constant__ fa_attn_boxes fa_attn_boxes_wanted = {SLAB, kRun, 1, kBox, kBox, 16};

namespace {

static_assert(kBox % 16 == 0 && HEAD_DIM_V <= kDv, "pages and heads fit their tiles");

constexpr bool kFp8 = KV_FP8 != 0;
constexpr int kElement = kFp8 ? 1 : 2;         // bytes of a key's or a value's number
constexpr bool kWalks = MASK_SNIPPET != 0;     // a warp finds the steps of tiles
constexpr u32 kConverters = kFp8 ? 3 : 0;      // warps of the producing warpgroup that make tiles of fp8 ones
// Two threads fetch a tile of K, and two one of V, each every second box, where boxes are pages and no other warp has work of its own.
constexpr int kHalves = kBoxes > 1 && !kFp8 && !kWalks && PIECE_STAGES == 0 ? 2 : 1, kOwnBoxes = (kBoxes + kHalves - 1) / kHalves;   // of a thread
constexpr u32 kProducers = kFp8 || kWalks || kHalves > 1 ? 3 : 2;   // of its warps and threads, those that tiles are handed over to

// A tile: queries of a head, and the keys that they see.
struct Work {
    int row0, head, batch, steps;        // head: of keys where query heads are packed; steps < 0: there is no more work
    int len_q, len_k, first_q, key0;     // of the sequence; first_q: its first row of q and o; key0: where step 0 begins
    float k_scale;                       // of fp8 keys: what scores are multiplied by for exp2
};

FA_DEVICE Sequence sequence_of(const fa_attn_serving_params &p, const Work &work) {
    Sequence s = {};
    s.len_q = work.len_q, s.len_k = work.len_k, s.offset = key_offset(p, work.len_q, work.len_k);
    return s;
}
FA_DEVICE int kv_head_of(const fa_attn_serving_params &p, const Work &work) { return work.head / heads_a_key(p.dense); }
FA_DEVICE Places places_of(const fa_attn_serving_params &p, const Work &work) {
    return {work.batch, work.head, kv_head_of(p, work), work.len_q, work.len_k AND_BUFFERS(p.buffer)};
}

// What tiles see of steps, counted from key 0, by a mask: a byte, 0: nothing, 1: something, 2: all that fields let them see; and of each score, as lanes have
// them, a bit. MASK_LISTS has a bit for each place that the mask names: b, h, hk first, and one above 65,535 if what it reads are bytes.
struct Lists {
    enum { kMade = MASK_LISTS != 0, kByBatch = MASK_LISTS % 2 != 0 || VARLEN_Q != 0 || LENGTHS_K != 0, kByHead = MASK_LISTS / 2 % 4 != 0 };
    enum { kOfRow = (kN + 127) / 128 * 4, kOfTile = kM * kOfRow };   // words
    u32 *const bits;
    const u32 tiles, steps, heads, planes;   // of a plane's tile; planes by head and by sequence

    __device__ __forceinline__ explicit Lists(const fa_attn_serving_params &p)
        : bits((u32 *)p.workspace), tiles((u32)(p.dense.seq_q + kM - 1) / kM), steps((u32)(p.dense.seq_k + kN - 1) / kN),
          heads(kByHead ? p.dense.heads_q : 1), planes(kMade ? heads * (kByBatch ? p.dense.batch : 1) : 0) {}
    __device__ __forceinline__ i64 all() const { return (i64)planes * tiles * steps; }
    __device__ __forceinline__ i64 bytes() const { return all() * (kOfTile * 4 + 1); }
    __device__ __forceinline__ unsigned char *sees() const { return (unsigned char *)(bits + all() * kOfTile); }
    __device__ __forceinline__ i64 first_of(const Work &w) const {
        return ((i64)((kByBatch ? w.batch : 0) * heads + (kByHead ? w.head : 0)) * tiles + (u32)w.row0 / kM) * steps + (u32)w.key0 / kN;
    }
    __device__ __forceinline__ u32 *of_row(i64 at, int row) const { return bits + at * kOfTile + row * kOfRow; }
};

#if OWN_PIECES
constexpr bool kOwnPieces = true;
#else
constexpr bool kOwnPieces = false;
#endif
#if PIECE_STAGES
// Two blocks form a cluster: where the sequences of a batch read the same, as pair[h][q][k], each of them has a tile of one of two sequences,
// the same queries of the same head, and fetches half of each piece for both.
constexpr bool kClusters = SCORE_FETCHES == 2 && !kOwnPieces && MASK_SNIPPET == 0 && VARLEN_Q == 0 && LENGTHS_K == 0;
constexpr u32 kCluster = kClusters ? 2 : 1;
__device__ __forceinline__ bool shares_pieces(const fa_attn_serving_params &p);   // as kClusters has it
FA_DEVICE u32 cluster_rank() {
    u32 rank = 0;
    if (kClusters) asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    return rank;
}
// A box of a map -> the same place of both blocks, and to their barriers.
FA_DEVICE void tma_load_to_both(u32 to, const fa_tensor_map *map, u32 barrier, int column, int row, int head, int batch) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;"
                 :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "h"((u16)3), "l"(kEvictFirst) : "memory");
}
#endif
constexpr u32 kRecordBytes = 1024, kScaleBytes = kFp8 ? 2048 : 0;   // of the family's shared memory: records, and a number a thread
// Of pieces of what scores, or else masks, read of keys, or scores of queries and keys: bytes of an element, and of a piece.
#if PIECE_STAGES
constexpr bool kOfQueries = SCORE_FETCHES == 2;   // pieces of a consumer's 64 queries, else of all
#if SCORE_FETCHES
constexpr u32 kEach = SCORE_FETCH_BYTES / (kOfQueries ? 64 : 1);
#else
constexpr u32 kEach = MASK_FETCH_BYTES;
#endif
constexpr u32 kPieceBytes = (kEach * kN * (kOfQueries ? 64 : 1) + 1023) / 1024 * 1024;
#else
constexpr u32 kPieceBytes = 0;
#endif

FA_DEVICE void store_global(void *to, int a, int b, int c, int d) {
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" :: "l"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// The same for the warp that walks the steps of a tile, which has a memo.
#if MASK_SNIPPET && BUFFER_COUNT > 0
static_assert(kRecordBytes + kMemoBytes + PIECE_STAGES * kGroups * kPieceBytes == kWorkBytes, "a memo fits its place");
FA_DEVICE Places places_of_walker(const fa_attn_serving_params &p, const Work &work, const Shared &shared) {
    Places places = places_of(p, work);
    places.memo = shared.work() + kRecordBytes;
    return places;
}
#else
FA_DEVICE Places places_of_walker(const fa_attn_serving_params &p, const Work &work, const Shared &) { return places_of(p, work); }
#endif

// The steps of a tile, from the last to the first.
#if MASK_SNIPPET
// What the walker says of 32 steps of which some are seen (SeenSteps), in turn, for the threads that fetch K and V.
struct Marks {
    static constexpr u32 kPlaces = 8;
    u32 base;

    __device__ __forceinline__ explicit Marks(const Shared &shared) : base(shared.work() + kNotes + kMostStages * 4) {}
    __device__ __forceinline__ u32 mark(u32 place) const { return base + place * 16; }
    __device__ __forceinline__ u32 full(u32 place) const { return mark(kPlaces + place); }
    __device__ __forceinline__ u32 empty(u32 place) const { return full(place) + 8; }
};
static_assert(kNotes + kMostStages * 4 + Marks::kPlaces * 32 <= kRecordBytes, "marks fit their place");

// Of a thread that fetches.
template <bool kAlone = true> class Steps {   // kAlone: else of all lanes of a warp
    const Marks marks;
    Ring place;
    int first = 0;
    u32 seen = 0, whole = 0;   // of the steps from `first` on, those that are still to come

  public:
    bool is_whole = false;     // every query of the tile sees the step that next() came to, by the mask

    __device__ __forceinline__ explicit Steps(const Shared &shared) : marks(shared) {}
    __device__ __forceinline__ int next(int) {
        if (seen == 0) {
            int none;
            barrier_wait(marks.full(place.slot), place.parity);
            if (!kAlone) warp_sync();
            if (kAlone || threadIdx.x % kWarp == 0) {
                load_shared(first, seen, whole, none, marks.mark(place.slot));
                barrier_arrive(marks.empty(place.slot));
            }
            if (!kAlone) first = uniform(first), seen = (u32)uniform((int)seen), whole = (u32)uniform((int)whole);
            place.advance(Marks::kPlaces);
        }
        const int bit = highest_bit(seen);
        seen ^= 1u << bit;
        is_whole = (whole >> bit & 1) != 0;
        return first + bit;
    }
};
#else
template <bool kAlone = true> struct Steps {
    __device__ __forceinline__ explicit Steps(const Shared &) {}
    FA_DEVICE int next(int step) { return step; }
};
#endif

// The records by which the producer hands tiles to the consumers, and their barriers.
struct Records {
    static constexpr u32 kPlaces = 2, kBytes = 48;
    u32 base;

    __device__ __forceinline__ explicit Records(const Shared &shared) : base(shared.work()) {}
    __device__ __forceinline__ u32 record(u32 place) const { return base + place * kBytes; }
    __device__ __forceinline__ u32 full(u32 place) const { return base + kPlaces * kBytes + place * 8; }
    __device__ __forceinline__ u32 empty(u32 place) const { return full(place) + kPlaces * 8; }
};
static_assert(Records::kPlaces * (Records::kBytes + 16) <= kNotes && kNotes + kMostStages * 4 <= kRecordBytes && FA_THREADS * 4 <= 2048, "they fit their places");

// Tiles of fp8 keys and values, in turn, and their barriers.
struct Narrow {
    static constexpr u32 kSlots = FP8_SLOTS, kSlotBytes = kN * (kD > kDv ? kD : kDv), kLine = 64;   // bytes of a row of a slab
    u32 base;

    __device__ __forceinline__ explicit Narrow(const Shared &shared) : base(shared.work() + kRecordBytes + kScaleBytes) {}
    __device__ __forceinline__ u32 tile(u32 slot) const { return base + slot * kSlotBytes; }
    __device__ __forceinline__ u32 full(u32 slot) const { return base - kScaleBytes - (slot + 1) * 16; }   // behind the records
    __device__ __forceinline__ u32 empty(u32 slot) const { return full(slot) + 8; }
};
static_assert(!kFp8 || (kSlab == 64 && kRecordBytes + kScaleBytes + Narrow::kSlots * Narrow::kSlotBytes == kWorkBytes),
              "tiles of fp8 fit their place");

#if PIECE_STAGES
// Pieces, of a consumer's rows and a step's keys: PIECE_STAGES in turn for each consumer, and their barriers.
struct Pieces {
    u32 base;

    __device__ __forceinline__ Pieces(const Shared &shared) : base(shared.work()) {}
    __device__ __forceinline__ u32 full(u32 slot) const { return base + kRecordBytes - (slot + 1) * 24; }
    __device__ __forceinline__ u32 empty(u32 slot) const { return full(slot) + 8; }
    __device__ __forceinline__ u32 is_copied(u32 slot) const { return full(slot) + 16; }   // else scores read it where it lies
    __device__ __forceinline__ u32 piece(u32 slot) const { return base + kWorkBytes - (slot + 1) * kPieceBytes; }
    // Of a row's byte: of queries' rows 128 bytes each lie in a slab, swizzled as the copy engine does it.
    static __device__ __forceinline__ u32 place(u32 piece, int row, u32 byte) {
        return kOfQueries ? piece + byte / 128 * 8192 + row * 128 + (byte % 128 ^ (u32)(row & 7) << 4) : piece + byte;
    }
};
static_assert(PIECE_STAGES * kGroups * 24 <= 144, "pieces fit their place");
#endif

// What is handed over: to a consuming or a converting warp, or (kAlone) to a thread that fetches V or Q.
template <bool kAlone> class Handed {
    const Records records;
    Ring place;

  public:
    __device__ __forceinline__ Handed(const fa_attn_serving_params &, const Shared &shared) : records(shared) {}
    FA_DEVICE void draw(const fa_attn_serving_params &) {}   // the walker does

    __device__ __forceinline__ Work next(const fa_attn_serving_params &) {
        Work w = {};
        barrier_wait(records.full(place.slot), place.parity);
        if (!kAlone) warp_sync();   // all lanes have seen it before one lets it go
        // Only the lane that lets the record go reads it: racecheck does not follow a warp barrier that orders other lanes' reads.
        constexpr bool kAll = PIECE_STAGES != 0 && kGroups == 3;   // or zeros are kept from tile to tile, for which registers are short
        if (kAlone || kAll || threadIdx.x % kWarp == 0) {
            load_shared(w.row0, w.head, w.batch, w.steps, records.record(place.slot));
            load_shared(w.len_q, w.len_k, w.first_q, w.key0, records.record(place.slot) + 16);
            if (kFp8) w.k_scale = load_shared<float>(records.record(place.slot) + 32);
            if (kAll && !kAlone) warp_sync();
            if (!kAll || kAlone || threadIdx.x % kWarp == 0) barrier_arrive(records.empty(place.slot));
        }
        place.advance(Records::kPlaces);
        if (kAlone) return w;
        w.row0 = uniform(w.row0), w.head = uniform(w.head), w.batch = uniform(w.batch), w.steps = uniform(w.steps);
        w.len_q = uniform(w.len_q), w.len_k = uniform(w.len_k), w.first_q = uniform(w.first_q), w.key0 = uniform(w.key0);
        if (kFp8) w.k_scale = bits_to_float((u32)uniform((int)float_to_bits(w.k_scale)));
        return w;
    }
};

// Packed sequences of a batch of up to kMost, in the order in which they are dealt out, so that the GPU does not wait for a long one at its
// end. The dealer has their lengths at hand. A warp makes it before the thread that deals begins.
struct Order {
    static constexpr bool kMade = VARLEN_Q != 0 && !kWalks && !kFp8;
    static constexpr int kMost = 32;
    static constexpr u32 kAt = 128, kBarrier = 15;   // of the family's shared memory; a named barrier
    static_assert(kAt >= Records::kPlaces * (Records::kBytes + 16) && kAt + kMost * 16 <= kRecordBytes, "it fits its place");

    static __device__ __forceinline__ bool is_made(const fa_attn_serving_params &p) { return kMade && p.dense.batch > 1 && p.dense.batch <= kMost; }
    static __device__ __forceinline__ void make(const fa_attn_serving_params &p, const Shared &shared) {
        const u32 table = shared.work() + kAt;
        const int lane = (int)threadIdx.x;
        Sequence s = {};
        s.len_k = -1;   // behind all others
        if (lane < p.dense.batch) s = find_sequence(p, lane);
        store_shared(table + lane * 16, s.len_q, s.len_k, (int)s.lse, lane);
        named_sync(kBarrier, kWarp);
        int before = 0;
#pragma unroll 4
        for (int i = 0; i < kMost; ++i) {
            int len_q, len_k, first, its;
            load_shared(len_q, len_k, first, its, table + i * 16);
            before += len_k > s.len_k || (len_k == s.len_k && i < lane);
        }
        named_sync(kBarrier, kWarp);
        store_shared(table + before * 16, s.len_q, s.len_k, (int)s.lse, lane);
        named_sync(kBarrier, kWarp);
    }
};

// Of the thread that fetches K, or the warp that walks: draws tiles, and tells the others.
class Dealer {
    const Records records;
    Ring place;
    u32 number;          // of the next tile, or of the last one while the next is not drawn yet
    bool drawn = true;   // the former
    u32 before = 0;      // tiles of the sequences before this one
    int batch = -1;      // sequences in front of this one
    int its = 0;         // this sequence
    Sequence sequence;

    __device__ __forceinline__ void come_to(const fa_attn_serving_params &p) {
        if (!Order::is_made(p)) {
            its = batch;
            sequence = find_sequence(p, batch);
            return;
        }
        int first;
        sequence = {};
        load_shared(sequence.len_q, sequence.len_k, first, its, records.base + Order::kAt + batch * 16);
        sequence.lse = first, sequence.offset = key_offset(p, sequence.len_q, sequence.len_k);
    }

    FA_DEVICE u32 number_after(const fa_attn_serving_params &p, u32 number) {
#if PIECE_STAGES
        if (shares_pieces(p)) return number + gridDim.x;
#endif
        u32 drawn;
        if (kWalks && threadIdx.x % kWarp != 0) drawn = 0;
        else asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(drawn) : "l"(p.counters) : "memory");
        if constexpr (kWalks) drawn = (u32)uniform((int)drawn);
        return drawn + gridDim.x;
    }
    // Each block with a tile draws until it gets a number behind the last, so there are as many draws as tiles.
    FA_DEVICE bool is_last_draw(const fa_attn_serving_params &p, u32 number, u32 all) {
#if PIECE_STAGES
        if (shares_pieces(p)) return false;
#endif
        return number == all + gridDim.x - 1;
    }

    __device__ __forceinline__ u32 tiles(const fa_attn_serving_params &p) const { return (count_rows(p.dense, sequence.len_q) + kM - 1) / kM; }
    // Heads whose keys and values fit in L2 together.
    FA_DEVICE float fitting(const fa_attn_serving_params &p, int len_k) {
        return 33024 * 1024.0f * reciprocal((float)len_k * ((HEAD_DIM + HEAD_DIM_V) * kElement)) *
               (float)heads_a_key(p.dense);
    }
    // Sequences whose tiles are dealt out in turn from `batch` on, so that what a score reads of queries and keys comes to L2 once for all.
    __device__ __forceinline__ u32 together(const fa_attn_serving_params &p) const {
#if SCORE_FETCHES == 2 && VARLEN_Q == 0 && LENGTHS_K == 0
        const float fit = fitting(p, sequence.len_k);
        const u32 left = (u32)(p.dense.batch - batch), most = fit < 1.0f ? 1 : fit < (float)left ? (u32)fit : left;
#if PIECE_STAGES
        if (shares_pieces(p)) return most < 2 ? 2 : most & ~1u;
#endif
        return most;
#else
        return 1;
#endif
    }

  public:
    __device__ __forceinline__ void hand_over(const Work &w) {
        if (kWalks && threadIdx.x % kWarp != 0) return;   // the first lane's place alone moves
        barrier_wait(records.empty(place.slot), place.parity ^ 1);
        store_shared(records.record(place.slot), w.row0, w.head, w.batch, w.steps);
        store_shared(records.record(place.slot) + 16, w.len_q, w.len_k, w.first_q, w.key0);
        if (kFp8) store_shared(records.record(place.slot) + 32, w.k_scale);
        barrier_arrive(records.full(place.slot));
        place.advance(Records::kPlaces);
    }

  private:
    __device__ __forceinline__ Work find_tile(const fa_attn_serving_params &p, u32 number) const {
        const u32 many = together(p);
        const float fit = many == 1 ? fitting(p, sequence.len_k) : fitting(p, sequence.len_k) * reciprocal((float)many);
        const HeadTile at = find_head_tile(number / many, count_heads(p.dense), tiles(p), fit);
        Work w;
        w.row0 = (int)at.tile * kM;
        w.head = (int)at.head;
        w.batch = its + (int)(number % many);
        w.len_q = sequence.len_q, w.len_k = sequence.len_k;
        w.first_q = VARLEN_Q != 0 ? (int)sequence.lse : 0;
        const int end_row = kPacked ? find_row(p.dense, w.row0 + kM - 1).query + 1 : w.row0 + kM;
        const int begin = first_key(p, sequence, find_row(p.dense, w.row0).query);
        const int end = end_key(p, sequence, (end_row < w.len_q ? end_row : w.len_q) - 1);
#if MASK_LISTS
        w.key0 = begin / kN * kN;
#elif DROPOUT || OWN_PIECES
        w.key0 = PAGED != 0 ? begin / kBox * kBox : begin / 16 * 16;   // bits are of 16 keys, copies of 16 bytes
#else
        w.key0 = PAGED != 0 ? begin / kBox * kBox : begin;
#endif
        w.steps = end > begin ? (end - w.key0 + kN - 1) / kN : 0;   // of a user's mask some are hidden
        w.k_scale = kFp8 ? find_scale(p, its, kv_head_of(p, w)).exponent : 0.0f;
        return w;
    }

  public:
    __device__ __forceinline__ Dealer(const fa_attn_serving_params &, const Shared &shared) : records(shared), number(blockIdx.x) {}

    // The next tile's number, asked for in front of a tile's last step: asked for earlier, it would give another long tile to a block that
    // has one, while others wait.
    __device__ __forceinline__ void draw(const fa_attn_serving_params &p) {
        if (!drawn) number = number_after(p, number), drawn = true;
    }

    // The next tile, which is not handed over yet.
    __device__ __forceinline__ Work find(const fa_attn_serving_params &p) {
        draw(p);
        u32 here = batch < 0 ? 0 : tiles(p) * count_heads(p.dense) * together(p);
        while (number - before >= here) {
            before += here;
            batch += batch < 0 ? 1 : (int)together(p);
            if (batch == p.dense.batch) break;
            come_to(p);
            here = tiles(p) * count_heads(p.dense) * together(p);
        }
        Work w = {0, 0, 0, -1, 0, 0, 0, 0, 0.0f};
        if (batch < p.dense.batch) {
            w = find_tile(p, number - before);
            drawn = false;
        } else if ((!kWalks || threadIdx.x % kWarp == 0) && is_last_draw(p, number, before)) {
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" :: "l"(p.counters), "r"(0) : "memory");
        }
        return w;
    }
    __device__ __forceinline__ Work next(const fa_attn_serving_params &p) {
        const Work w = find(p);
        hand_over(w);
        return w;
    }
};

// A Line (attn_wgmma.cuh) whose scale is a tile's own, which each thread keeps for itself in shared memory.
struct TileLine {
    FA_DEVICE u32 place() {
        extern __shared__ __align__(1024) unsigned char memory[];
        return Shared{shared_address(memory)}.work() + kRecordBytes + threadIdx.x * 4;
    }
    FA_DEVICE void keep(float scale) { store_shared(place(), scale); }
    FA_DEVICE Line line() { return {load_shared<float>(place())}; }

    __device__ __forceinline__ bool may_be_far(const Scores &) const { return false; }
    __device__ __forceinline__ bool is_far(const Scores &, float) const { return false; }
    __device__ __forceinline__ float exponent_of(float score) const { return line().exponent_of(score); }
    __device__ __forceinline__ float score_of(float exponent) const { return line().score_of(exponent); }
    __device__ __forceinline__ void weigh(Scores &s, Rows &rows, bool far) const { line().weigh(s, rows, far); }
};

// Attention as serving engines call it, as attn_wgmma.cuh asks for it.
struct Serving {
    using Params = fa_attn_serving_params;
    using Work = ::Work;
    using Schedule = Handed<false>;
#if SOFTCAP
    using Curve = Bend;
    FA_DEVICE Curve find_curve(const Params &p) {
        const Scale scale = find_scale(p, 0, 0);
        return {p.cap_shift, p.cap_rest, p.cap_slope, scale.exponent, scale.cap_rate};
    }
#elif KV_FP8
    using Curve = TileLine;
    FA_DEVICE Curve find_curve(const Params &) { return {}; }
#else
    using Curve = Line;
    FA_DEVICE Curve find_curve(const Params &p) { return {SCORE_SNIPPET != 0 && !kStarts ? kLog2E : find_scale(p, 0, 0).exponent}; }
#endif
    static constexpr bool kMasksLater = CAUSAL != 0 || WINDOW != 0 || MASK_SNIPPET != 0;
    // The last part's rows see the last keys, so their consumer is first to begin, and within windows first to end.
    static constexpr bool kLastPartFirst = true;

    FA_DEVICE void start(const Params &p, const Shared &shared) {
        const Records records(shared);
        for (u32 i = 0; i < Records::kPlaces; ++i) {
            barrier_init(records.full(i), 1);
            barrier_init(records.empty(i), kGroups * 4 + kProducers);
        }
#if MASK_SNIPPET
        const Marks marks(shared);
        for (u32 i = 0; i < Marks::kPlaces; ++i) {
            barrier_init(marks.full(i), 1);
            barrier_init(marks.empty(i), PIECE_STAGES ? 3 : 2);
        }
#endif
#if PIECE_STAGES && !OWN_PIECES
        const Pieces pieces(shared);
        for (u32 i = 0; i < PIECE_STAGES * kGroups; ++i) {
            barrier_init(pieces.full(i), 1);
            barrier_init(pieces.empty(i), shares_pieces(p) ? 8 : 4);
        }
#endif
        if constexpr (!kFp8) return;
        const Narrow narrow(shared);
        for (u32 i = 0; i < Narrow::kSlots; ++i) {
            barrier_init(narrow.full(i), 1);
            barrier_init(narrow.empty(i), kConverters);
        }
        for (int i = 0; i < kMostStages; ++i)   // of the tiles that are multiplied, which the copy engine does not fill
            for (u32 full = kKFull; full <= kVFull; full += kVFull - kKFull) {
                asm volatile("mbarrier.inval.shared::cta.b64 [%0];" :: "r"(shared.barrier(full + i)) : "memory");
                barrier_init(shared.barrier(full + i), kConverters);
            }
    }

    // ---- copies

    // One thread fetches K, one V, one Q: a tile of small pages is many copies, of which a second thread has half, and a part of Q is
    // free when its consumer has done with the tile before, on which the next keys need not wait.
    FA_DEVICE void produce(const Params &p, const fa_attn_tensor_maps &maps, const Shared &shared) {
        if constexpr (kFp8) return produce_of_fp8(p, maps, shared);
        Ring ring;
        Steps<> steps(shared);
#if PIECE_STAGES && !OWN_PIECES
        if (threadIdx.x / kWarp == 2) return fetch_pieces(p, maps, shared);
#endif
#if MASK_SNIPPET
        if (threadIdx.x / kWarp == 3) return walk(p, shared);
        using KTiles = Handed<true>;
#else
        using KTiles = Dealer;
#endif
        if (Order::is_made(p) && threadIdx.x < kWarp) Order::make(p, shared);
        if (threadIdx.x == 0) {
            KTiles tiles(p, shared);
            for (Work work; (work = tiles.next(p)).steps >= 0;) fetch_keys(p, maps, shared, ring, steps, work, 0, [&] { tiles.draw(p); });
        } else if (threadIdx.x == kWarp) {
            Handed<true> tiles(p, shared);
            for (Work work; (work = tiles.next(p)).steps >= 0;) fetch_values(p, maps, shared, ring, steps, work, 0);
        } else if (threadIdx.x == 2 * kWarp) {
            Ring of_values;
            Handed<true> tiles(p, shared);
            for (Work work; (work = tiles.next(p)).steps >= 0;) {
                fetch_q<Serving>(p, maps, shared, ring, work);
                if constexpr (kHalves > 1) fetch_values(p, maps, shared, of_values, steps, work, 1);
            }
        } else if (kHalves > 1 && threadIdx.x == 3 * kWarp) {
            Handed<true> tiles(p, shared);
            for (Work work; (work = tiles.next(p)).steps >= 0;) fetch_keys(p, maps, shared, ring, steps, work, 1, [] {});
        }
    }
    template <class Last>
    FA_DEVICE void fetch_keys(const Params &p, const fa_attn_tensor_maps &maps, const Shared &shared, Ring &ring, Steps<> &steps, const Work &work, int half, Last &&at_last) {
        fetch_all<kSlabs>(p, shared, &maps.k, shared.k(0), kKFull, kKEmpty, ring, steps, work, half, at_last);
    }
    FA_DEVICE void fetch_values(const Params &p, const fa_attn_tensor_maps &maps, const Shared &shared, Ring &ring, Steps<> &steps, const Work &work, int half) {
        fetch_all<kOutSlabs>(p, shared, &maps.v, shared.v(0), kVFull, kVEmpty, ring, steps, work, half, [] {});
    }
    // A tile's keys or values, or half of their boxes. Where the next step's pages are is asked a step ahead. at_last() is called in front of the last step.
    template <int kCount, class Last>
    FA_DEVICE void fetch_all(const Params &p, const Shared &shared, const fa_tensor_map *map, u32 first, u32 full, u32 empty, Ring &ring, Steps<> &steps,
                             const Work &work, int half, Last &&at_last) {
        Source source = source_of(p, work);
        source.half = half;
        Place next = locate(p, source, work.steps > 0 ? work.steps - 1 : 0);
#pragma unroll 1
        for (int left = work.steps; left > 0; --left) {
            const int step = steps.next(left - 1);
            if (left == 1) at_last();
#if MASK_SNIPPET
            source.whole = steps.is_whole;
            const Place place = locate(p, source, step);
#else
            const Place place = next;
            if (left > 1) next = locate(p, source, step - 1);
#endif
            barrier_wait(shared.barrier(empty + ring.slot), ring.parity ^ 1);
#if MASK_SNIPPET
            if (full == kKFull) write_note(shared, ring.slot, source, step);
#endif
            const u32 barrier = shared.barrier(full + ring.slot), tile = first + ring.slot * (kKBytes + kVBytes);
            if (half == 0) barrier_expect(barrier, kCount * kSlab * kN * 2);   // of both halves: bytes may come before
#pragma unroll
            for (int i = 0; i < kCount; ++i) load(map, tile + i * (kN * kSlab * 2), barrier, i * kSlab, place, source);
            ring.advance(shared.stages());
        }
    }

#if PIECE_STAGES
    // What the copy engine is told of a tensor of queries and keys, if it can be: a map that the warp makes, of elements of 16 bits.
    struct Pairs {
        fa_tensor_map *map = nullptr;
        bool are = false, of_heads = false, of_kv_heads = false, of_batch = false;   // by which coordinates rows differ

        __device__ __forceinline__ Pairs(const Params &p, const Shared &shared) {
#if SCORE_FETCHES == 2
            const fa_attn_params &d = p.dense;
            const KeyRow first = row_of(p, 0, 0, 0, 0, d.seq_k);
            const auto from_first = [&](int batch, int head, int kv_head, int q) { return (i64)row_of(p, batch, head, kv_head, q, d.seq_k).at - (i64)first.at; };
            const i64 by_batch = from_first(1, 0, 0, 0), by_head = from_first(0, 1, 0, 0), by_kv_head = from_first(0, 0, 1, 0), by_q = from_first(0, 0, 0, 1);
            const i64 by_heads = by_head | by_kv_head;
            map = (fa_tensor_map *)(((u64)p.workspace + Lists(p).bytes() + 127) / 128 * 128) + blockIdx.x;
            of_heads = by_head != 0, of_kv_heads = by_kv_head != 0, of_batch = by_batch != 0;
            constexpr u32 kMapAt = Order::kMade ? Order::kAt + Order::kMost * 16 : 256;   // in front of the pieces' barriers
            const int places = d.seq_q + key_offset(p, d.seq_q, d.seq_k);   // of queries: as many as keys, but with a top-left mask
            // Rows are where strides say: no index is beyond the tensor, which is read as its last one.
            are = first.stride == 1 && first.last >= d.seq_k - 1 && by_q > 0 && by_batch >= 0 && by_heads >= 0 && !(of_heads && of_kv_heads) &&
                  ((u64)first.at | (u64)(by_q | by_batch | by_heads)) % 16 == 0 && from_first(0, 0, 0, places - 1) == by_q * (places - 1) &&
                  from_first(d.batch - 1, 0, 0, 0) == by_batch * (d.batch - 1) && from_first(0, d.heads_q - 1, 0, 0) == by_head * (d.heads_q - 1) &&
                  from_first(0, 0, d.heads_kv - 1, 0) == by_kv_head * (d.heads_kv - 1) && row_of(p, 0, 0, 0, 0, 0).at == first.at;
            if (!are) return;
            make_map<true>(map, shared.work() + kMapAt, {first.at, (first.last < 1 << 24 ? first.last + 1 : 1 << 24) * (int)(kEach / 2), places, of_heads ? d.heads_q : of_kv_heads ? d.heads_kv : 1,
                                                       of_batch ? d.batch : 1, by_q / 2, by_heads / 2, by_batch / 2, 64});
            acquire_map(map);
#endif
        }
    };

    // A warp fetches Q and pieces.
    FA_DEVICE void fetch_pieces(const Params &p, const fa_attn_tensor_maps &maps, const Shared &shared) {
        const int lane = (int)(threadIdx.x % kWarp);
        Handed<false> tiles(p, shared);
        Steps<false> steps(shared);
        Ring parts;
        const Pairs pairs(p, shared);
        u32 before = 0;   // bits 2 * i and 2 * i + 1: pieces that consumer i was given
        for (Work work; (work = tiles.next(p)).steps >= 0;) {
#pragma unroll 1
            for (int step = work.steps;; --step) {   // Q comes behind the first step's
                if (step > 0) {
                    const int place = steps.next(step - 1);
#pragma unroll 1
                    for (int g = kGroups - 1; g >= 0; --g) {   // as kLastPartFirst has it
                        const Own own = find_own(p, work, (u32)g);
                        if (step > own.steps || step <= own.from) continue;
                        const u32 count = before >> 2 * g & 3;
                        fetch_piece(p, shared, work, g, place, pairs, PIECE_STAGES == 1 ? 0 : count & 1, PIECE_STAGES == 1 ? count & 1 : count >> 1);
                        before ^= (count ^ ((count + 1) & 3)) << 2 * g;
                    }
                }
                if (step == work.steps && lane == 0) fetch_q<Serving>(p, maps, shared, parts, work);
                if (step <= 1) break;
            }
        }
    }
    FA_DEVICE void fetch_piece(const Params &p, const Shared &shared, const Work &work, int group, int step, const Pairs &pairs, u32 stage, u32 parity) {
        const Pieces pieces(shared);
        const u32 slot = (u32)group * PIECE_STAGES + stage, piece = pieces.piece(slot), full = pieces.full(slot);
        const int key = work.key0 + step * kN, query = work.row0 + group * 64 + sequence_of(p, work).offset;
        const bool leads = threadIdx.x % kWarp == 0;
        bool copied;
        KeyRow row;
        if (kOfQueries) copied = pairs.are && query >= 0;   // positions before the first key are read as the first
        else row = row_at(p, work, 0, step * kN, copied);
        if (leads) {
            barrier_wait(pieces.empty(slot), parity ^ 1);
            store_shared(pieces.is_copied(slot), copied);
            if (copied) barrier_expect(full, kOfQueries ? 64 * kN * kEach : kN * kEach);
            else if (kOfQueries) barrier_arrive(full);
        }
        if (kOfQueries && copied && leads) {
            const int head = pairs.of_kv_heads ? kv_head_of(p, work) : pairs.of_heads ? work.head : 0;
#pragma unroll
            for (int i = 0; i < (int)(kN * kEach / 128); ++i) {
                const u32 to = piece + i * 8192;
                const int column = key * (int)(kEach / 2) + i * 64, batch = pairs.of_batch ? work.batch : 0;
                if (!kClusters || !shares_pieces(p)) tma_load(to, pairs.map, full, column, query, head, batch, kEvictFirst);
                else if ((u32)(i + step) % 2 == cluster_rank()) tma_load_to_both(to, pairs.map, full, column, query, head, batch);
            }
        }
        if (!kOfQueries) {
            warp_sync();
            if (copied) {
                if (leads) bulk_load(piece, (const char *)row.at + (i64)key * kEach, kN * kEach, full);
            } else {
                fill<1>(p, work, group * 64, step * kN, piece, 0);
                async_proxy_fence();
                warp_sync();
                if (leads) barrier_arrive(full);
            }
        }
    }
#endif

#if MASK_SNIPPET
    // A warp deals tiles with the steps that are seen of them. A tile is handed over when these are counted, and where there are more of
    // them than marks have places for, they are found once more for those who fetch.
    FA_DEVICE void walk(const Params &p, const Shared &shared) {
        const Marks marks(shared);
        Ring place;
        Dealer dealer(p, shared);
#if BUFFER_COUNT > 0
        clear_memo(shared.work() + kRecordBytes);
#endif
        const Lists lists(p);
        if (Lists::kMade) await_launches_before();
        warp_sync();
        for (;;) {
            Work work = dealer.find(p);
            dealer.draw(p);
            const int all = work.steps, offset = sequence_of(p, work).offset;
            const int last = (work.row0 + kM < work.len_q ? work.row0 + kM : work.len_q) - 1;
            const bool held = all <= (int)Marks::kPlaces * 32;
            int count = 0;
            bool counted = false;
#pragma unroll 1
            for (SeenSteps<kN> steps(all);;) {
                if (steps.first > 0) {
                    if constexpr (Lists::kMade) {
                        steps.first -= 32;
                        const int step = steps.first + (int)(threadIdx.x % 32), sees = step < all ? lists.sees()[lists.first_of(work) + step] : 0;
                        steps.seen = warp_ballot(sees != 0), steps.whole = warp_ballot(sees > 1);
                    } else {
                        steps.look_on(places_of_walker(p, work, shared), work.row0 + offset, last + offset, work.key0, all);
                    }
                    for (u32 left = counted ? 0 : steps.seen; left != 0; left &= left - 1) ++count;
                    if (steps.seen == 0 || !(held || counted)) continue;
                    if (threadIdx.x % kWarp == 0) {
                        barrier_wait(marks.empty(place.slot), place.parity ^ 1);
                        store_shared(marks.mark(place.slot), steps.first, steps.seen, steps.whole, 0);
                        barrier_arrive(marks.full(place.slot));
                    }
                    place.advance(Marks::kPlaces);
                } else {
                    work.steps = all < 0 ? all : count;
                    if (!counted) dealer.hand_over(work);
                    if (held || counted) break;
                    counted = true, steps = SeenSteps<kN>(all);
                }
            }
            if (all < 0) return;
        }
    }
#endif

    // Of fp8: one thread fetches all, Q behind a tile's first keys and values, which the converting warps have while a part of
    // Q is not free yet.
    FA_DEVICE void produce_of_fp8(const Params &p, const fa_attn_tensor_maps &maps, const Shared &shared) {
        const Narrow narrow(shared);
        Ring from;
        if (threadIdx.x == kConverters * kWarp) {
            Ring parts;
            Dealer dealer(p, shared);
            for (Work work; (work = dealer.next(p)).steps >= 0;) {
                const Source source = source_of(p, work);
                Place place = locate(p, source, work.steps > 0 ? work.steps - 1 : 0);
#pragma unroll 1
                for (int step = work.steps;; --step) {
                    if (step == 1) dealer.draw(p);
                    if (step > 0) {
                        fetch_narrow<kSlabs>(narrow, &maps.k, from, source, place);
                        fetch_narrow<kOutSlabs>(narrow, &maps.v, from, source, place);
                    }
                    if (step == work.steps) fetch_q<Serving>(p, maps, shared, parts, work);
                    if (step <= 1) break;
                    place = locate(p, source, step - 2);   // comes while a tile's place is not free yet
                }
            }
        } else if (threadIdx.x < kConverters * kWarp) {
            Ring to;
            Handed<false> tiles(p, shared);
            for (Work work; (work = tiles.next(p)).steps >= 0;)
#pragma unroll 1
                for (int step = work.steps; step > 0; --step) {
                    convert<kSlabs>(narrow, from, shared, shared.k(to.slot), kKFull, kKEmpty, to);
                    convert<kOutSlabs>(narrow, from, shared, shared.v(to.slot), kVFull, kVEmpty, to);
                    to.advance(shared.stages());
                }
        }
    }

    struct Source {
        int head, batch;   // of keys and values
        int key0, len_k;   // PAGED: the tile's first key and the sequence's end; otherwise key0 is a row of the tensor
        int half = 0;      // which boxes are this thread's, where it has every second one
#if MASK_SNIPPET
        bool whole = false;   // of the step that is fetched: every query sees it by the mask
#endif
    };
    FA_DEVICE Source source_of(const Params &p, const Work &work) {
        const int first = LENGTHS_K == 1 && PAGED == 0 ? load_int(p.cu_seqlens_k + work.batch) : 0;
        return {kv_head_of(p, work), work.batch, first + work.key0, work.len_k};
    }
    // Where a step's boxes lie: rows of the tensor, or of pages.
    struct Place {
        int row[kOwnBoxes], block[kOwnBoxes];   // block: sequence or page; -1: there is none, and the copy engine writes zeros
    };
    FA_DEVICE Place locate(const Params &p, const Source &source, int step) {
        Place place;
        const int key = source.key0 + step * kN;
        if constexpr (PAGED != 0) {
            const int *table = p.block_table + source.batch * p.block_table_stride;
#pragma unroll
            for (int i = 0; i < kOwnBoxes; ++i) {
                const int its_key = key + (i * kHalves + source.half) * kBox;
                place.row[i] = (int)((u32)its_key % kPage);
                place.block[i] = its_key < source.len_k ? load_int(table + (u32)its_key / kPage) : -1;
            }
        } else {
            place.row[0] = key;
            place.block[0] = LENGTHS_K == 1 ? 0 : source.batch;
        }
        return place;
    }
    FA_DEVICE void load(const fa_tensor_map *map, u32 to, u32 barrier, int column, const Place &place, const Source &source) {
#pragma unroll
        for (int i = 0; i < kOwnBoxes; ++i)
            if (kBoxes % kHalves == 0 || i * kHalves + source.half < kBoxes)
                tma_load(to + (i * kHalves + source.half) * (kBox * kSlab * kElement), map, barrier, column, place.row[i], source.head, place.block[i], kEvictLast);
    }
    FA_DEVICE int head_of(const Params &p, const Work &work, const Row &at) { return work.head * (int)packed_heads(p.dense) + at.head; }
    FA_DEVICE void load_q(const Params &p, const fa_tensor_map *map, u32 to, u32 barrier, int column, int row, const Work &work) {
        const Row at = find_row(p.dense, work.row0 + row);
        tma_load(to, map, barrier, column, work.first_q + at.query, head_of(p, work, at), VARLEN_Q != 0 ? 0 : work.batch, kEvictFirst);
    }

    template <int kCount>
    FA_DEVICE void fetch_narrow(const Narrow &narrow, const fa_tensor_map *map, Ring &ring, const Source &source, const Place &place) {
        barrier_wait(narrow.empty(ring.slot), ring.parity ^ 1);
        barrier_expect(narrow.full(ring.slot), kCount * kSlab * kN);
#pragma unroll
        for (int i = 0; i < kCount; ++i)
            load(map, narrow.tile(ring.slot) + i * (kN * Narrow::kLine), narrow.full(ring.slot), i * kSlab, place, source);
        ring.advance(Narrow::kSlots);
    }

    // This thread's part of a tile of kCount slabs: 16 numbers of every kPass-th row. Both tiles are swizzled as the copy engine
    // does it; eight lanes, on two rows of a slab, read and write all banks.
    template <int kCount>
    FA_DEVICE void convert(const Narrow &narrow, Ring &from, const Shared &shared, u32 tile, u32 full, u32 empty, const Ring &to) {
        constexpr int kPass = kConverters * 8 / kCount;     // rows that the warps take at once
        constexpr int kBatch = kCount < 3 ? 2 * kCount : kCount;   // passes whose loads are under way together
        static_assert(kConverters * 8 % kCount == 0 && kPass * kBatch % 8 == 0, "a batch's rows are swizzled as the next one's");
        const int chunk = (int)threadIdx.x % 4, slab = (int)threadIdx.x / 8 % kCount;
        const int row = (int)threadIdx.x / (8 * kCount) * 2 + (int)threadIdx.x / 4 % 2;
        barrier_wait(narrow.full(from.slot), from.parity);
        barrier_wait(shared.barrier(empty + to.slot), to.parity ^ 1);
        u32 source = narrow.tile(from.slot) + (slab * kN + row) * Narrow::kLine, target = tile + (slab * kN + row) * (kSlab * 2);
#pragma unroll 1
        for (int left = kN - row; left > 0; left -= kBatch * kPass) {
            int four[kBatch][4];
#pragma unroll
            for (int i = 0; i < kBatch; ++i)
                if (left > i * kPass)
                    load_shared(four[i][0], four[i][1], four[i][2], four[i][3],
                                source + i * kPass * Narrow::kLine + ((chunk ^ ((row + i * kPass) / 2 % 4)) << 4));
#pragma unroll
            for (int i = 0; i < kBatch; ++i) {
                if (left <= i * kPass) break;
                const u32 at = target + i * kPass * (kSlab * 2), first = (2 * chunk ^ ((row + i * kPass) % 8)) << 4;
                u32 pair[8];
#pragma unroll
                for (int k = 0; k < 4; ++k) {
                    pair[2 * k] = widen<kBf16, kBytes01>((u32)four[i][k]);
                    pair[2 * k + 1] = widen<kBf16, kBytes23>((u32)four[i][k]);
                }
                store_shared(at + first, pair[0], pair[1], pair[2], pair[3]);
                store_shared(at + (first ^ 16), pair[4], pair[5], pair[6], pair[7]);
            }
            source += kBatch * kPass * Narrow::kLine;
            target += kBatch * kPass * (kSlab * 2);
        }
        async_proxy_fence();
        warp_sync();   // all lanes have read and written
        if (threadIdx.x % kWarp == 0) {
            barrier_arrive(narrow.empty(from.slot));
            barrier_arrive(shared.barrier(full + to.slot));
        }
        from.advance(Narrow::kSlots);
    }

    // ---- scores

    struct Own {
        int from, steps;               // some row sees keys of the steps [from, steps)
        int clear_from, clear_steps;   // every row sees those of the steps [clear_from, clear_steps) whole
        // With a user's mask clear_from and clear_steps count all steps, from and steps those seen.
        int place;
        bool whole;                    // every query of the tile sees the step at `place` by the mask
    };
    FA_DEVICE Own find_own(const Params &p, const Work &work, u32 group) {
        const Sequence s = sequence_of(p, work);
        const int first_row = work.row0 + (int)group * 64, row = find_row(p.dense, first_row).query;
        const int end_row = kPacked ? find_row(p.dense, first_row + 63).query + 1 : row + 64, last = (end_row < s.len_q ? end_row : s.len_q) - 1;
        if (work.steps <= 0 || row > last) return {0, 0, 0, 0, 0, false};
        if constexpr (kFp8) TileLine::keep(work.k_scale);
        const int seen = end_key(p, s, last) - work.key0, clear = end_key(p, s, row) - work.key0;
        Own own = {0, seen > 0 ? (seen + kN - 1) / kN : 0, 0, clear > 0 ? clear / kN : 0, 0, false};
        if constexpr (WINDOW != 0) {
            const int first = first_key(p, s, row) - work.key0, hidden = first_key(p, s, last) - work.key0;
            own.from = first <= 0 ? 0 : first / kN < own.steps ? first / kN : own.steps > 0 ? own.steps - 1 : 0;
            own.clear_from = hidden > 0 ? (hidden + kN - 1) / kN : 0;
        }
        if constexpr (kWalks) own.from = 0, own.steps = work.steps;
        return own;
    }
#if MASK_SNIPPET
    FA_DEVICE void write_note(const Shared &shared, u32 slot, const Source &source, int step) {
        store_shared(shared.work() + kNotes + slot * 4, (u32)step << 1 | source.whole);
    }
    FA_DEVICE void come_to(Own &own, const Feed &feed, int) { own.place = feed.note >> 1, own.whole = (feed.note & 1) != 0; }
#else
    FA_DEVICE void come_to(Own &own, const Feed &, int step) { own.place = step; }
#endif
    // With a softcap the compiler must not know that this is 0, nor, with a window and lengths, where masks begin: it would keep
    // more values than the registers hold.
    FA_DEVICE int first_step(const Own &own) {
        int from = WINDOW != 0 ? own.from : 0;
        if constexpr (SOFTCAP != 0) asm volatile("" : "+r"(from));
        return from;
    }
    FA_DEVICE bool is_masked(const Own &own, int step) {
        return step >= own.clear_steps || (WINDOW != 0 && step < own.clear_from);
    }

#if SCORE_SNIPPET
    // A score of a step, whose first one is of the query at `row` and the key at `key` of the tile.
    struct Bent {
        const Places places;
        const float scale, same;
        const int at, from;
        Scores &s;

        __device__ __forceinline__ Bent(Scores &s, const Params &p, const Work &work, int row, int key)
            : places(places_of(p, work)), scale(p.dense.softmax_scale), same((float)(work.key0 + key)), at(work.row0 + row + sequence_of(p, work).offset),
              from(work.key0 + key), s(s) {}
        template <class Held> __device__ __forceinline__ float operator()(int i, const Held &held) const {
            return bent_score(s[i] * scale, places, query_place(at + i % 4 / 2 * 8), key_place(from, same, i / 4 * 8 + i % 2), held);
        }
    };
#if SCORE_ADDS
    // What the user adds to a score, divided by its scale.
    struct Added {
        const Places places;
        const float scale, same;
        const int at, from;

        __device__ __forceinline__ Added(const Params &p, const Work &work, int row, int key)
            : places(places_of(p, work)), scale(reciprocal(p.dense.softmax_scale)), same((float)(work.key0 + key)), at(work.row0 + row + sequence_of(p, work).offset),
              from(work.key0 + key) {}
        template <class Held> __device__ __forceinline__ float operator()(int i, const Held &held) const {
            return added_score(places, query_place(at + i % 4 / 2 * 8), key_place(from, same, i / 4 * 8 + i % 2), held) * scale;
        }
    };
#endif
#endif
#if MASK_SNIPPET
    struct Seen {   // likewise: whether a score is
        const Places places;
        const int at, from;

        __device__ __forceinline__ Seen(const Params &p, const Work &work, int row, int key)
            : places(places_of(p, work)), at(work.row0 + row + sequence_of(p, work).offset), from(work.key0 + key) {}
        template <class Held> __device__ __forceinline__ bool operator()(int i, const Held &held) const {
            return is_visible(places, query_place(at + i % 4 / 2 * 8), key_place(from, (float)from, i / 4 * 8 + i % 2), held);
        }
    };
#endif
#if PIECE_STAGES
    // Of the query at `row` of the tile; copied: whether the copy engine takes the keys of the step at `key`, whatever the query.
    FA_DEVICE KeyRow row_at(const Params &p, const Work &work, int row, int key, bool &copied) {
        KeyRow is;
        const KeyReads<kFetchWhere> held = {p.buffer, nullptr, 0, kN - 1, &copied, &is};
#if SCORE_FETCHES
        Scores none = {};
        Bent(none, p, work, row, key)(0, held);
#else
        Seen(p, work, row, key)(0, held);
#endif
        return is;
    }
    // Of any places, with lengths alike.
    FA_DEVICE KeyRow row_of(const Params &p, int batch, int head, int kv_head, int q, int length) {
        KeyRow is;
        bool copied;
#if SCORE_FETCHES
        bent_score(0.0f, {batch, head, kv_head, length, length AND_BUFFERS(p.buffer)}, query_place(q), key_place(0, 0.0f, 0),
                   KeyReads<kFetchWhere>{p.buffer, nullptr, 0, 0, &copied, &is});
#endif
        return is;
    }
    // By a warp, which the copy engine leaves it to: rows of a piece from `first` on, the tile's from `row` on.
    template <int kRows> FA_DEVICE void fill(const Params &p, const Work &work, int row, int key, u32 piece, int first) {
        constexpr int kUnit = kEach == 8 ? 2 : 1, kIn = kEach == 2 ? 2 : 1, kUnits = kN / kIn;   // words of a lane's unit, keys in it, units of a row
        const int lane = (int)(threadIdx.x % kWarp);
        bool copied;
#pragma unroll 1
        for (int r = 0; r < kRows; ++r) {
            const KeyRow is = row_at(p, work, row + r, key, copied);
            u32 x[(kUnits + 31) / 32][2];
#pragma unroll
            for (int i = 0; i < (kUnits + 31) / 32; ++i)
#pragma unroll
                for (int e = 0; e < kUnit * kIn; ++e) {
                    const i64 at = is.stride * snippet_held(work.key0 + key + (int)((lane + i * kWarp) * kIn + e / kUnit), is.last);
                    x[i][e] = kEach == 2 ? ((const u16 *)is.at)[at] : ((const u32 *)is.at)[at * kUnit + e % kUnit];
                }
#pragma unroll
            for (int i = 0; i < (kUnits + 31) / 32; ++i)
                if (lane + i * kWarp < kUnits) {
                    const u32 place = Pieces::place(piece, first + r, (lane + i * kWarp) * (kUnit * 4));
                    store_shared(place, kIn == 2 ? x[i][1] << 16 | x[i][0] : x[i][0]);
                    if (kUnit == 2) store_shared(place + 4, x[i][1]);
                }
        }
    }
    // By a warp, of its part of a piece: each score of its own, with what was fetched for it.
    template <class Each> FA_DEVICE void each_fetched(u32 line, u32 within, const Params &p, const Each &each) {
        constexpr int kBatch = !kOfQueries ? 32 : kGroups == 3 ? 8 : 16;
        u32 raw[kScores];
#pragma unroll
        for (int first = 0; first < kScores; first += kBatch) {
#pragma unroll
            for (int i = first; i < first + kBatch && i < kScores; i += kOfQueries ? 2 : 4) {
                const u32 byte = i / 4 * 8 * kEach, from = kOfQueries ? line + byte / 128 * 8192 + i % 4 / 2 * 1024 + (byte % 128 ^ within) : line + byte + within;
                if constexpr (kEach == 8) load_shared(raw[i], raw[i + 1], raw[i + 2], raw[i + 3], from);
                else if constexpr (kEach == 4) load_shared(raw[i], raw[i + 1], from);
                else load_shared(raw[i], from);
            }
#pragma unroll
            for (int i = first; i < first + kBatch && i < kScores; ++i) each(i, KeyReads<kFetched>{p.buffer, raw, i});
        }
    }
#endif
#if PIECE_STAGES && !OWN_PIECES
    // What text(i, held) makes of each score with what was fetched for it, where it is asked.
    template <class Text> FA_DEVICE void with_piece(Feed &feed, const Params &p, const Work &work, int row, int key, bool asked, const Text &text) {
        const Pieces pieces(feed.shared);
        const u32 slot = feed.group * PIECE_STAGES + feed.piece_ring.slot, from = pieces.piece(slot);
        const int lane = (int)(threadIdx.x % kWarp);
        barrier_wait(pieces.full(slot), feed.piece_ring.parity);
        feed.piece_ring.advance(PIECE_STAGES);
        if constexpr (kOfQueries) {
            warp_sync();   // all lanes have seen it
            if (uniform(load_shared<int>(pieces.is_copied(slot))) == 0) {
                int first = row % 64 - lane / 4, from_key = key - lane % 4 * 2;
                asm volatile("" : "+r"(first), "+r"(from_key));   // addresses are not to be kept from step to step
                fill<16>(p, work, (int)feed.group * 64 + first, from_key, from, first);
                warp_sync();
            }
        }
        const u32 line = from + (kOfQueries ? row % 64 * 128 : 0), within = lane % 4 * 2 * kEach ^ (kOfQueries ? lane / 4 << 4 : 0);   // as Pieces::place has it
        if (asked) each_fetched(line, within, p, text);
        async_proxy_fence();   // what was filled by hand, and loads that are under way: the copy engine's next writes wait for neither by themselves
        warp_sync();
        if (!kClusters || !shares_pieces(p)) {
            if (lane == 0) barrier_arrive(pieces.empty(slot));
        } else if (lane < 2) {   // each block of the cluster may fill it again
            asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;\n"
                         "mbarrier.arrive.shared::cluster.b64 _, [there]; }" :: "r"(pieces.empty(slot)), "r"(lane) : "memory");
        }
    }
#endif
#if SCORE_SNIPPET && !OWN_PIECES
    // Each score of a step becomes what `text` makes of it.
    template <class Text> FA_DEVICE void each_score(Scores &s, Feed &feed, const Params &p, const Work &work, int row, int key, const Text &text) {
#if PIECE_STAGES && SCORE_FETCHES
        with_piece(feed, p, work, row, key, true, [&](int i, const KeyReads<kFetched> &held) { s[i] = text(i, held); });
#else
#pragma unroll
        for (int i = 0; i < kScores; ++i) s[i] = text(i, HELD_OF(text.places));
#endif
    }
#endif
#if OWN_PIECES
    // Where a warp's part of a piece is copied from, one step ahead, by each lane 16 bytes at a time: nobody waits for other warps.
    struct Ahead {
        const char *at;   // this lane's first bytes of the tile's first key
        i64 by;           // from a query to the next
        int last;         // the tensor's last key, counted from the tile's first; -1: rows lie otherwise
    };
    enum { kLanes = (int)(kN * kEach / 16), kRows = 32 / kLanes };   // that copy a row; rows that are copied at once
    FA_DEVICE void find_rows(Ahead &ahead, const Params &p, const Work &work, int row) {
        const int lane = (int)(threadIdx.x % kWarp);
        bool copied;
        const KeyRow first = row_at(p, work, row, 0, copied), second = row_at(p, work, row + 1, 0, copied), last = row_at(p, work, row + 15, 0, copied);
        ahead.by = (i64)second.at - (i64)first.at;
        const bool are = first.stride == 1 && ((u64)first.at | (u64)ahead.by | (u64)work.key0 * kEach) % 16 == 0 && (i64)last.at - (i64)first.at == ahead.by * 15;
        ahead.last = are ? first.last - work.key0 : -1;
        ahead.at = (const char *)first.at + (i64)work.key0 * kEach + lane / kLanes * ahead.by + lane % kLanes * 16;
    }
    FA_DEVICE void copy_ahead(const Ahead &ahead, u32 piece, int row, int key) {
        const int lane = (int)(threadIdx.x % kWarp);
        if (key + kN - 1 > ahead.last) return;
        const char *at = ahead.at + (i64)key * kEach;
#pragma unroll
        for (int i = 0; i < 16; i += kRows, at += ahead.by * kRows) cp_async_16(Pieces::place(piece, row + i + lane / kLanes, lane % kLanes * 16), at);
        cp_async_commit();
    }
    FA_DEVICE void start_scores(Scores &s, Ahead &ahead, Feed &feed, const Params &p, const Work &work, int row, int key, bool first, bool more) {
        const int lane = (int)(threadIdx.x % kWarp), first_row = row - lane / 4, first_key = key - lane % 4 * 2;
        const u32 piece = Pieces(feed.shared).piece(feed.group * PIECE_STAGES);
        if (first) {
            find_rows(ahead, p, work, first_row);
            copy_ahead(ahead, piece, first_row % 64, first_key);
        }
        cp_async_wait<0>();
        warp_sync();
        if (first_key + kN - 1 > ahead.last) {
            int r = first_row, k = first_key;
            asm volatile("" : "+r"(r), "+r"(k));   // addresses are not to be kept from step to step
            fill<16>(p, work, r, k, piece, r % 64);
            warp_sync();
        }
        const Added added(p, work, row, key);
        each_fetched(piece + row % 64 * 128, lane % 4 * 2 * kEach ^ lane / 4 << 4, p, [&](int i, const KeyReads<kFetched> &held) { s[i] = added(i, held); });
        warp_sync();   // all have read what is overwritten
        if (more) copy_ahead(ahead, piece, first_row % 64, first_key - kN);
    }
#elif SCORE_ADDS
    struct Ahead {};
    FA_DEVICE void start_scores(Scores &s, Ahead &, Feed &feed, const Params &p, const Work &work, int row, int key, bool, bool) {
        each_score(s, feed, p, work, row, key, Added(p, work, row, key));
    }
#endif
    // What the user makes of scores, natural ones then, and hides by the mask.
    FA_DEVICE void bend(Scores &s, Feed &feed, const Params &p, const Work &work, const Own &own, int row, int key) {
#if SCORE_SNIPPET && !SCORE_ADDS
        each_score(s, feed, p, work, row, key, Bent(s, p, work, row, key));
#endif
#if PIECE_STAGES && !SCORE_FETCHES
        const Seen fetched(p, work, row, key);
        with_piece(feed, p, work, row, key, !own.whole, [&](int i, const KeyReads<kFetched> &held) { if (!fetched(i, held)) s[i] = neg_infinity(); });
#endif
#if MASK_SNIPPET && !(PIECE_STAGES && !SCORE_FETCHES)
        if (own.whole) return;
#if MASK_LISTS
        const Lists lists(p);
        const u32 *its = lists.of_row(lists.first_of(work) + own.place, row), lane_key = threadIdx.x % 4 * 2;
        int bits[2][Lists::kOfRow];
#pragma unroll
        for (int i = 0; i < 2 * Lists::kOfRow; i += 4) {
            int (&of)[Lists::kOfRow] = bits[i / Lists::kOfRow];
            const int at = i % Lists::kOfRow;
            asm volatile("ld.global.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(of[at]), "=r"(of[at + 1]), "=r"(of[at + 2]), "=r"(of[at + 3])
                         : "l"(its + i / Lists::kOfRow * 8 * Lists::kOfRow + at) : "memory");
        }
#pragma unroll
        for (int i = 0; i < kScores; ++i)
            if (((u32)bits[i % 4 / 2][i / 16] >> lane_key >> (i / 4 % 4 * 8 + i % 2) & 1) == 0) s[i] = neg_infinity();
#elif MASK_FETCHES
        asm volatile("" : "+r"(row), "+r"(key));   // addresses are not to be kept from step to step
        const Seen sees(p, work, row, key);
        constexpr int kBatch = MASK_FETCHES > 1 ? 16 : 32;   // as many are under way as registers are left for
        u32 raw[kScores];
#pragma unroll
        for (int first = 0; first < kScores; first += kBatch) {
            const int end = first + kBatch < kScores ? first + kBatch : kScores;
            fetch_of_keys<MASK_FETCHES>(raw, p.buffer, first, end, sees);
#pragma unroll
            for (int i = first; i < end; ++i)
                if (!sees(i, KeyReads<kFetched>{p.buffer, raw, i})) s[i] = neg_infinity();
        }
#else
        const Seen sees(p, work, row, key);
#pragma unroll
        for (int i = 0; i < kScores; ++i)
            if (!sees(i, HELD_OF(sees.places))) s[i] = neg_infinity();
#endif
#endif
    }

    FA_DEVICE void mask(Scores &s, const Params &p, const Work &work, int row, int key) {
        const Sequence sequence = sequence_of(p, work);
        int query = find_row(p.dense, work.row0 + row).query, from = work.key0 + key;
        if constexpr (SOFTCAP != 0 && WINDOW != 0 && LENGTHS_K != 0) asm volatile("" : "+r"(query), "+r"(from));
        Wgmma<kN>::mask(s, end_key(p, sequence, query) - from, end_key(p, sequence, query + 8) - from);
        if constexpr (WINDOW != 0) {
            const int begin[2] = {first_key(p, sequence, query) - from, first_key(p, sequence, query + 8) - from};
#pragma unroll
            for (int i = 0; i < kScores; ++i)
                if (i / 4 * 8 + i % 2 < begin[i % 4 / 2]) s[i] = neg_infinity();
        }
    }

#if DROPOUT
    FA_DEVICE void draw(Dropped<false, kN / 16> &dropped, const Params &p, const Work &work, int row, int key) {
        const int lane = (int)(threadIdx.x % kWarp);
        dropped.find(Dropout(p.buffer, (i64)work.batch * p.dense.heads_q + work.head), work.row0 + row - lane / 4, work.key0 + key - lane % 4 * 2);
    }
#endif

    // ---- values

    // Rows behind the sequence's end become zeros, in the step where it ends. Every consumer does so for itself: what
    // another one writes there are zeros too.
    FA_DEVICE void clean(const Feed &feed, const Work &work, int step) {
        if constexpr (LENGTHS_K != 0 || PAGED != 0) {
            const int first = work.len_k - work.key0 - step * kN;   // with a mask only where the last step is seen
            if (first >= kN) return;
            feed.wait_v();
            constexpr int kChunks = kSlab / 8;   // 16-byte chunks of a row of a slab
            const u32 values = feed.shared.v(feed.v_ring.slot), thread = threadIdx.x % kGroup;
            for (int i = first * kChunks + (int)thread; i < kN * kChunks; i += kGroup)
#pragma unroll
                for (int slab = 0; slab < kOutSlabs; ++slab) store_shared(values + slab * (kN * kSlab * 2) + i * 16, 0, 0, 0, 0);
            async_proxy_fence();
            named_sync(kTurn + kGroups + feed.group, kGroup);
        }
    }

    // ---- output

    // The rows are complete: what their outputs are multiplied by, and their LSE.
    FA_DEVICE void finish(const Params &p, const Work &work, const Rows &rows, float (&inverse)[2], int lane_row) {
        const fa_attn_params &d = p.dense;
        const Row row0 = find_row(d, work.row0 + lane_row);
        const int head = head_of(p, work, row0);
        Closed end[2];   // both before one is written: the sink is read once
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int kv_head = kFp8 ? kv_head_of(p, work) : 0;   // which fp8 alone asks for
            end[half] = close_row(p, work.batch, kv_head, head, {rows.reference[half], quad_sum(rows.sum[half])});
            inverse[half] = end[half].inverse;
        }
        if (!d.lse || threadIdx.x % 4 != 0) return;
        const i64 at = VARLEN_Q != 0 ? (i64)head * p.total_q + work.first_q : ((i64)work.batch * d.heads_q + head) * d.seq_q;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0.query + half * 8;
            if (row < work.len_q) d.lse[at + row] = end[half].lse;
        }
    }

    // A warp's slab of output, `row` being its first.
    FA_DEVICE void let_go(const Params &p, const fa_attn_tensor_maps &maps, const Work &work, u32 stage, int column, int row) {
        const Row at = find_row(p.dense, work.row0 + row);
        const int first = work.first_q + at.query, rows = work.len_q - at.query, head = head_of(p, work, at);
        const u32 lane = threadIdx.x % kWarp;
        if (VARLEN_Q == 0 || rows >= 16) {
            if (lane != 0) return;
            tma_store(&maps.o, stage, column, first, head, VARLEN_Q != 0 ? 0 : work.batch, kEvictFirst);
            tma_store_commit();
            return;
        }
        constexpr int kChunks = kSlab / 8;
        u16 *out = (u16 *)p.dense.o + first * p.dense.o_row_stride + head * p.dense.o_head_stride + column;
        for (int i = (int)lane; i < rows * kChunks; i += kWarp) {
            const int at = i / kChunks, chunk = i % kChunks, swizzle = kSlab == 64 ? at & 7 : (at >> 1) & 3;
            int a, b, c, d;
            if (column + chunk * 8 >= HEAD_DIM_V) continue;
            load_shared(a, b, c, d, stage + at * (kSlab * 2) + (chunk ^ swizzle) * 16);
            store_global(out + at * p.dense.o_row_stride + chunk * 8, a, b, c, d);
        }
    }
};

#if MASK_LISTS
#if MASK_LISTS > 65535
// What a mask reads of 32 keys of a row of bytes, for a thread: whether they lie together, all of them, and each of them. Lanes have keys as
// snippet_column() does not expect of a SnippetLine, so that places here are none.
enum Reading { kAsk, kRead, kUse };
template <Reading kMode> struct ByteReads {
    const fa_attn_buffer_params *buffers;
    u32 *raw;
    int ahead;   // of the first of those keys
    bool *together;
    __device__ __forceinline__ auto operator[](int which) const {
        if constexpr (kMode == kUse) return buffers[which];
        else return SnippetSilent{0, 0.0f};
    }
    template <class T, bool kColumn, class K, class... I> __device__ __forceinline__ int of_key(int which, K k, I... index) const {
        if constexpr (kMode == kUse) return (int)(raw[ahead / 4] >> ahead % 4 * 8 & 255);
        const fa_attn_buffer_params &is = buffers[which];
        constexpr int kLast = sizeof...(I);
        i64 row = k.whole;
        int d = 0;
        ((row += is.stride[d] * snippet_held(index, is.last[d]), ++d), ...);
        const unsigned char *at = (const unsigned char *)is.at + row;
        if constexpr (kMode == kAsk) {
            *together = is.stride[kLast] == 1 && k.whole >= 0 && k.whole + 31 <= is.last[kLast] && (u64)at % 16 == 0;
        } else {
            for (int i = 0; i < 8; i += 4)
                asm volatile("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(raw[i]), "=r"(raw[i + 1]), "=r"(raw[i + 2]), "=r"(raw[i + 3]) : "l"(at + i * 4));
        }
        return 0;
    }
};
template <Reading kMode> struct SnippetFetches<ByteReads<kMode>> { enum { is = 1 }; };
template <Reading kMode> FA_DEVICE bool read_key(const Places &places, int q, int key, int ahead, u32 (&raw)[8], bool *together = nullptr) {
    return is_visible(places, query_place(q), query_place(key + ahead), ByteReads<kMode>{places.buffers, raw, ahead, together});
}
#endif
// By a warp: what the queries from `row` to `last` see of the keys from `key` to `last_key`. A word is of a row's 32 keys; lanes have those behind one another.
FA_DEVICE int look_at_all(const Places &places, int row, int last, int key, int last_key, u32 *to) {
    constexpr int kWords = (kN + 31) / 32, kOfLane = 4;
    const int lane = (int)(threadIdx.x % kWarp);
    u32 some = 0, hidden = 0;
    const auto query_of = [&](int i) { return row + i / kWords; };
    const auto key_of = [&](int i) { return key + i % kWords * 32; };
    const auto keep = [&](int i, u32 word) {
        const int keys = last_key + 1 - key_of(i);
        const u32 there = query_of(i) > last || keys <= 0 ? 0 : keys < 32 ? (1u << keys) - 1 : ~0u;
        some |= word & there, hidden |= ~word & there;
        if (i < kM * kWords) to[i / kWords * Lists::kOfRow + i % kWords] = word;
    };
    const int queries = last + 1 - row, end = (queries < kM ? queries : kM) * kWords;
    int made = 0;
#if MASK_LISTS > 65535
    bool together = true, is = false;
#pragma unroll
    for (int i = 0; i < kM; i += kWarp) {
        u32 none[8];
        read_key<kAsk>(places, row + i + lane, key_of(kWords - 1), 0, none, &is);
        together = together && is;
    }
    if (!warp_any(!together)) {
        constexpr int kAtOnce = kWarp * kOfLane;   // words of which some are under way while others are made
        const auto read = [&](u32 (&raw)[kOfLane][8], int first) {
#pragma unroll
            for (int j = 0; j < kOfLane; ++j) {
                const int i = first + j * kWarp + lane, q = query_of(i);
                read_key<kRead>(places, q < last ? q : last, key_of(i), 0, raw[j]);   // not behind the tile, whose rows alone were looked at
            }
        };
        const auto make = [&](u32 (&raw)[kOfLane][8], int first) {
#pragma unroll 1
            for (int i = first + lane; i < first + kAtOnce; i += kWarp) {
                u32 word = 0;
#pragma unroll
                for (int e = 0; e < 32; ++e) word |= read_key<kUse>(places, query_of(i), key_of(i), e, raw[0]) ? 1u << e : 0;
                keep(i, word);
#pragma unroll
                for (int j = 1; j < kOfLane; ++j)   // the text stands here once
#pragma unroll
                    for (int e = 0; e < 8; ++e) raw[j - 1][e] = raw[j][e];
            }
        };
        u32 even[kOfLane][8], odd[kOfLane][8];
        read(even, 0);
#pragma unroll 1
        for (int first = 0; first < end; first += 2 * kAtOnce) {
            if (first + kAtOnce < end) read(odd, first + kAtOnce);
            make(even, first);
            if (first + 2 * kAtOnce < end) read(even, first + 2 * kAtOnce);
            if (first + kAtOnce < end) make(odd, first + kAtOnce);
        }
        made = end;
    }
#endif
#pragma unroll 1
    for (int i = made; i < end; i += kWarp) {
        u32 word = 0;
#pragma unroll 16
        for (int j = 0; j < kWarp; ++j) {
            const u32 all = warp_ballot(is_visible(places, query_place(query_of(i + j)), query_place(key_of(i + j) + lane)));
            word = lane == j ? all : word;
        }
        keep(i + lane, word);
    }
    return !warp_any(some != 0) ? 0 : warp_any(hidden != 0) ? 1 : 2;
}
// By all warps of the first launch.
FA_DEVICE void make_lists(const fa_attn_serving_params &p) {
    const Lists lists(p);
    constexpr u32 kWarps = FA_THREADS / kWarp;
    for (i64 i = blockIdx.x * kWarps + uniform((int)(threadIdx.x / kWarp)); i < lists.all(); i += gridDim.x * kWarps) {
        const u32 plane = (u32)(i / lists.steps / lists.tiles);
        Work work = {};
        work.row0 = (int)(i / lists.steps % lists.tiles) * kM, work.head = (int)(plane % lists.heads), work.batch = (int)(plane / lists.heads);
        const Sequence s = find_sequence(p, work.batch);
        work.len_q = s.len_q, work.len_k = s.len_k;
        const int key = (int)(i % lists.steps) * kN, last = (work.row0 + kM < s.len_q ? work.row0 + kM : s.len_q) - 1;
        int sees = 0;
        if (work.row0 <= last) {
            const Places places = places_of(p, work);
            const int end = end_key(p, s, last), last_key = (key + kN < end ? key + kN : end) - 1;
            if (key <= last_key && first_key(p, s, work.row0) <= last_key) {
                const SnippetSpan<int> span = SeenSteps<kN>::look(places, work.row0 + s.offset, last + s.offset, key);
                sees = uniform(span.high) == 0 ? 0 : uniform(span.low) != 0 ? 2 : look_at_all(places, work.row0 + s.offset, last + s.offset, key, last_key, lists.of_row(i, 0));
            }
        }
        if (threadIdx.x % kWarp == 0) lists.sees()[i] = (unsigned char)sees;
    }
}
#endif

} // namespace

#if PIECE_STAGES
namespace {

__device__ __forceinline__ bool shares_pieces(const fa_attn_serving_params &p) {
    bool copied;
    Work first = {}, second = {};
    second.batch = 1;
    return kClusters && p.dense.batch % 2 == 0 && Serving::row_at(p, first, 0, 0, copied).at == Serving::row_at(p, second, 0, 0, copied).at;
}

} // namespace
#endif

extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
#if PIECE_STAGES
__cluster_dims__(kCluster, 1, 1)
#endif
attn_fwd(const __grid_constant__ fa_attn_serving_params p, const __grid_constant__ fa_attn_tensor_maps maps) {
#if MASK_LISTS
    if (dynamic_shared_bytes() == 0) return make_lists(p);
#endif
    run_block<Serving>(p, maps);
#if PIECE_STAGES
    if (kClusters) cluster_sync();   // nothing is under way to a block that has ended
#endif
}
