// SPDX-License-Identifier: Apache-2.0
//
// Gradients of the tensors that a user's score reads, with the same bits in every run.
//
// Purpose: dS and what an element changes of a score (fa_snippet_buffers.cuh) multiplied and summed over all queries and keys that read it.
// attn_bwd_tiles.cuh includes it where a gradient is wanted (D_BUFFERS > 0).
// Workload: with SUMS_IN_PASS the main launch sums what all queries of a key or head share (PassedSums), from the dS that it has. What is
// left is for blocks of their own in the next launch, one for each 64 keys of a head of queries, which walks its queries by 64. Scores and dP are computed anew by mma.m16n8k16 from
// 64 columns at a time (of heads of at most 128 columns at once). What a tile's products come to where they share an element (a head's, a query's, a key's, a diagonal's) is summed
// in an order that does not change, in fp32; sums of keys and heads over all tiles of the walk. Scores lie in shared memory meanwhile, and
// sites are asked in a loop: a text may be long, and an element's index far to compute.
// Invariants:
//  - the workspace begins with D_BUFFERS sums of kWords numbers each, zeros after the first launch: fixed-point numbers of kStep bits each and
//    what is carried, so that the order in which blocks add to them does not matter. The last number is 1 where something was too
//    large or no number: the gradient is NaN then. A last launch rounds them.
//  - of scores that weigh nothing nothing is added, whatever the text says there.
#ifndef ATTN_BWD_BUFFERS_CUH
#define ATTN_BWD_BUFFERS_CUH

#include "fa_async.cuh"
#include "fa_mma.cuh"

#ifndef GRADIENT_SITES
#define GRADIENT_SITES(F)   // none of them changes a score
#endif

namespace {

// Of a family: where a row's LSE and delta lie.
FA_DEVICE int place_of_row(int row);

// ---- exact sums ------------------------------------------------------------------------------------------------
constexpr int kWords = 6, kStep = 28, kLowest = -96;   // 2^kLowest: of the first number's lowest bit
constexpr i64 kStepMask = ((i64)1 << kStep) - 1;

constexpr i64 kSumWords = (i64)D_BUFFERS * kWords;
static_assert(kSumWords * 2 == kSumsFloats, "sums are in front of what else is in the workspace");
FA_DEVICE void clear_sums(void *workspace) {
    for (i64 i = (i64)blockIdx.x * kSideThreads + threadIdx.x; i < kSumWords; i += (i64)gridDim.x * kSideThreads) ((u64 *)workspace)[i] = 0;
}
FA_DEVICE void add_whole(u64 *to, i64 x) {
    const u64 y = (u64)x;
    if (x != 0) asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" :: "l"(to), "l"(y) : "memory");
}
// Bits below 2^kLowest are cut off.
FA_DEVICE void add_exactly(u64 *sum, float x) {
    const u32 bits = float_to_bits(x), exponent = bits >> 23 & 255;
    if ((bits & 0x7fffffffu) == 0) return;
    int lowest = (int)(exponent > 0 ? exponent : 1) - 150 - kLowest;
    i64 number = (i64)((bits & 0x7fffff) | (exponent > 0 ? 0x800000 : 0));
    if (lowest < 0) number = lowest > -24 ? number >> -lowest : 0, lowest = 0;
    const int word = lowest / kStep;
    if (word > kWords - 3) {
        sum[kWords - 1] = 1;
        return;
    }
    number <<= lowest % kStep;
    const i64 sign = bits >> 31 ? -1 : 1;
    add_whole(sum + word, sign * (number & kStepMask));
    add_whole(sum + word + 1, sign * (number >> kStep));
}
FA_DEVICE float rounded(const volatile u64 *sum) {
    double x = 0;
    for (int i = kWords - 2; i >= 0; --i) x = x * (double)(kStepMask + 1) + (double)(i64)sum[i];
    for (int i = 0; i < -kLowest; i += 48) x *= 1.0 / (double)((i64)1 << 48);
    return sum[kWords - 1] != 0 ? bits_to_float(0x7fffffffu) : (float)x;
}

FA_DEVICE i64 elements_of(const fa_attn_buffer_params &buffer) {
    i64 elements = 1;
    for (int d = 0; d < FA_ATTN_BUFFER_DIMS; ++d) elements *= (i64)buffer.last[d] + 1;
    return elements;
}
// Where a buffer's sums begin, those of each wanted one behind another.
FA_DEVICE i64 first_sum(const fa_attn_bwd_params &p, int buffer) {
    i64 first = 0;
    for (int i = 0; i < buffer; ++i)
        if (p.d_buffer[i]) first += elements_of(p.buffer[i]);
    return first;
}
// By a thread for each element: the last launch once more, whose grid then has two rows.
FA_DEVICE void round_sums(const fa_attn_bwd_params &p, const void *workspace) {
    i64 e = ((i64)blockIdx.y * gridDim.x + blockIdx.x) * kSideThreads + threadIdx.x;
    const u64 *sum = (const u64 *)workspace + e * kWords;
    for (int i = 0; i < BUFFER_COUNT; ++i) {
        const i64 elements = p.d_buffer[i] ? elements_of(p.buffer[i]) : 0;
        if (e >= 0 && e < elements) p.d_buffer[i][e] = rounded(sum);
        e -= elements;
    }
}

// ---- products --------------------------------------------------------------------------------------------------
constexpr int kRows = 64, kKeys = 64, kPiece = 64, kPitch = 2 * kPiece + 16, kScorePitch = kKeys + 1;
// In floats: scores, dS, what a site makes of them; LSE and delta of the rows; sums over the walk, of the first kKept sites.
constexpr int kTile = kRows * kScorePitch, kRowsAt = 3 * kTile, kKeptAt = kRowsAt + 2 * kRows, kKept = 4;
constexpr int kWide = kKeys / 2;                   // a warp has 16 rows and so many keys
using Fragments = float[kWide / 8][4];

struct alignas(16) Eight {
    u32 x[4];
};
FA_DEVICE Eight load_eight(const u16 *head, i64 step, int row, int rows, int column, int columns) {
    Eight eight = {};
    if (row >= rows || column >= columns) return eight;
    const u16 *from = head + row * step + column;
    if constexpr (kAligned) return *(const Eight *)from;
    for (int i = 0; i < 4; ++i) eight.x[i] = from[2 * i] | (u32)from[2 * i + 1] << 16;
    return eight;
}

struct Operand {
    const u16 *head;
    i64 step;
    int first, rows;
};
// sum = rows of a times rows of b, whose first `columns` columns count.
template <int kColumns> FA_DEVICE void multiply_rows(Fragments &sum, const Operand &a, const Operand &b) {
    const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half = thread / 32 % 2 * kWide;
    const u32 smem = shared_address(shared_memory), at_b = smem + kRows * kPitch;
    constexpr int kLoads = (kRows + kKeys) / 32;
    Eight next[kLoads];
    const auto fetch = [&](int column) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
            const int row = i * 32 + thread / 8, within = i < 2 ? row : row - kRows;
            const Operand &from = i < 2 ? a : b;
            next[i] = load_eight(from.head, from.step, from.first + within, from.rows, column + thread % 8 * 8, kColumns);
        }
    };
#pragma unroll
    for (int j = 0; j < kWide / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[j][i] = 0.0f;
    fetch(0);
#pragma unroll 1
    for (int column = 0; column < kColumns; column += kPiece) {
        block_sync();
#pragma unroll
        for (int i = 0; i < kLoads; ++i)
            *(Eight *)(shared_memory + (i * 32 + thread / 8) * kPitch + thread % 8 * 16) = next[i];
        block_sync();
        if (column + kPiece < kColumns) fetch(column + kPiece);
#pragma unroll
        for (int k = 0; k < kPiece / 16; ++k) {
            u32 of_a[4], of_b[4];
            ldmatrix_x4(of_a, smem + (slab + lane % 16) * kPitch + k * 32 + lane / 16 * 16);
#pragma unroll
            for (int j = 0; j < kWide / 16; ++j) {
                ldmatrix_x4(of_b, at_b + (half + j * 16 + lane % 8 + lane / 16 * 8) * kPitch + k * 32 + lane / 8 % 2 * 16);
                mma_16816<kBf16>(sum[2 * j], of_a, of_b[0], of_b[1]);
                mma_16816<kBf16>(sum[2 * j + 1], of_a, of_b[2], of_b[3]);
            }
        }
    }
    block_sync();
}

// ---- sites -----------------------------------------------------------------------------------------------------
// A tile of the walk.
struct Contribution {
    const fa_attn_bwd_params &p;
    const Places &w;
    u64 *sums;
    int first_place, row0, key0;   // the place of query 0; the tile's first ones
    bool last;                     // of the walk
};
FA_DEVICE bool is_seen(const Places &w, int q, int k) {
#if MASK_SNIPPET
    return is_visible(w, q, k);
#endif
    return true;
}
using Gradient = SnippetSlopes<SnippetPlain<float>, float>;
// The text at a place, as a number and by what the element at the site changes it; and that element's index.
template <int kSite> FA_DEVICE SnippetSlope<float> ask(const Contribution &c, float score, int q, int k, i64 &ret_index) {
    const auto bent = snippet_score<Gradient>(SnippetSlope<float>{score, 0.0f}, c.w.batch, c.w.head, c.w.kv_head, q, k, c.w.len_q, c.w.len_k,
                                              MarkedBuffers<kSite, float>{c.p.buffer, &ret_index});
    return {snippet_value(bent), snippet_slope(bent)};
}
template <int kSite> FA_DEVICE void add_at(const Contribution &c, int row, int key, float x) {
    i64 index = 0;
    if (x == 0.0f) return;
    ask<kSite>(c, 0.0f, c.first_place + row, key, index);
    add_exactly(c.sums + index * kWords, x);
}
template <int kSite> FA_DEVICE SnippetTie tie_of_site() {
    constexpr SnippetTie none = {true, 0, 0};
    SnippetTie tie = none;
    snippet_score<SnippetTies>(SnippetTie{false, 1, 1}, none, none, none, SnippetTie{true, 1, 0}, SnippetTie{true, 0, 1}, none, none, TiedBuffers<kSite>{&tie});
    return tie;
}

// Whether the main launch sums what is read at a site. The compiler knows it.
#ifndef SUMS_IN_PASS
#define SUMS_IN_PASS 0
#endif
template <int kSite> FA_DEVICE bool is_by_any() {
    const SnippetTie tie = tie_of_site<kSite>();
    return tie.q != 0 && tie.k != 0 && tie.q != -tie.k;
}
// Whether the element at a site is another one in another batch.
template <int kSite> FA_DEVICE bool is_of_batch() {
    constexpr SnippetTie none = {true, 0, 0};
    SnippetTie tie = none;
    snippet_score<SnippetTies>(SnippetTie{false, 1, 0}, SnippetTie{true, 1, 0}, none, none, none, none, none, none, TiedBuffers<kSite>{&tie});
    return tie.q != 0;
}
template <int kSite> FA_DEVICE bool is_by_ahead() {
    const SnippetTie tie = tie_of_site<kSite>();
    return tie.q != 0 && tie.q == -tie.k;
}
FA_DEVICE int ahead_site() {   // the first one
    int ordinal = -1;
#define IS_AHEAD(number, site, buffer) if (ordinal < 0 && is_by_ahead<site>()) ordinal = number;
    GRADIENT_SITES(IS_AHEAD)
#undef IS_AHEAD
    return ordinal;
}
template <int kOrdinal, int kSite> FA_DEVICE bool is_passed() { return SUMS_IN_PASS && kOrdinal < kKept && (tie_of_site<kSite>().q == 0 || kOrdinal == ahead_site()); }
#define IS_LEFT(ordinal, site, buffer) && !is_passed<ordinal, site>()
FA_DEVICE bool passes_any() { return !(true GRADIENT_SITES(IS_LEFT)); }
#undef IS_LEFT
#if SUMS_IN_PASS
// A warp's sums of diagonals over 16 keys and kM queries: score 4 * j + 2 * half + e of a lane is of key g + 8 * half and query 8 * j + 2 * t + e,
// so that two of a lane share a diagonal, and others lie in blocks of eight, from that of half 1 and j 0 downwards.
struct DiagonalSums {
    static constexpr int kBlocks = kM / 8 + 2, kSums = 8 * kBlocks;
    float under_way[2][2], odd_before, turned_before;   // of two blocks, by e; what a lane has of the block before
    float sum[(kBlocks + 3) / 4];                       // of block 4 * i + t: diagonal g of it

    __device__ __forceinline__ void add(int i, float x) {
        const int j = i / 4, ends = (j + 1) % 2, block = i / 2 % 2 == 0 ? j % 2 : ends;
        under_way[block][i % 2] += x;
        if (i % 4 == 3) end_block(j, under_way[ends]);
        if (i == kM / 2 - 1) {
            end_block(j + 1, under_way[j % 2]);
            end_block(j + 2, under_way[ends]);
        }
    }

    // To kSums floats, the lowest diagonal first.
    __device__ __forceinline__ void store(float *to) const {
        const int lane = (int)(threadIdx.x % 32);
#pragma unroll
        for (int i = 0; i < (kBlocks + 3) / 4; ++i)
            if (4 * i + lane % 4 < kBlocks) to[lane / 4 + 8 * (kBlocks - 1 - 4 * i - lane % 4)] = sum[i];
    }

private:
    __device__ __forceinline__ void end_block(int number, float (&x)[2]) {
        const int lane = (int)(threadIdx.x % 32), g = lane / 4, t = lane % 4;
        const float odd = from_lane(x[1], (g + 1) % 8 * 4 + t), both = x[0] + (g < 7 ? odd : odd_before);
        const float turned = from_lane(both, (g + 2 * t) % 8 * 4 + t), all = quad_sum(g + 2 * t < 8 ? turned : turned_before);
        odd_before = odd, turned_before = turned, x[0] = x[1] = 0.0f;
        if (t == number % 4) sum[number / 4] = all;
    }
};
// A thread's sums for its keys `key` and `key` + 8 over the queries of a head; a warp has 16 keys, and four lanes share one.
struct PassedSums {
    float of_key[kKept][2];

    // ds: of the text's result. score: what goes into the text.
    template <class Q, class K> __device__ __forceinline__ void add(const fa_attn_bwd_params &p, const Places &w, Q q, K k, float score, float ds, int i, DiagonalSums &diagonals) {
        i64 index = 0;
#define ADD_SITE(ordinal, site, which) \
        if (is_passed<ordinal, site>()) { \
            const auto bent = snippet_score<SnippetSlopes<SnippetFast, float>>(SnippetSlope<float>{score, 0.0f}, w.batch, w.head, w.kv_head, q, k, w.len_q, \
                                                                               w.len_k, MarkedBuffers<site, float>{p.buffer, &index}); \
            const float x = ds == 0.0f ? 0.0f : ds * snippet_slope(bent); \
            if (is_by_ahead<site>()) diagonals.add(i, x); \
            else of_key[(ordinal) % kKept][i / 2 % 2] += x; \
        }
        GRADIENT_SITES(ADD_SITE)
#undef ADD_SITE
    }
    // To the exact sums: of a step whose queries begin at the place `query`, and of a consumer's keys from `key` on. `parts`: of its four warps.
    template <int kOrdinal, int kSite, int kBuffer> FA_DEVICE void pass_step(const Contribution &of, int query, int key, const float *parts) {
        if (!is_passed<kOrdinal, kSite>() || !is_by_ahead<kSite>()) return;
        Contribution own = of;
        own.sums += first_sum(of.p, kBuffer) * kWords;
#pragma unroll 1
        for (int i = (int)threadIdx.x % 128; i < kM + 63; i += 128) {
            float sum = 0.0f;
#pragma unroll
            for (int warp = 0; warp < 4; ++warp) {
                const int at = i + 1 - 16 * warp;
                if (at >= 0 && at < DiagonalSums::kSums) sum += parts[warp * DiagonalSums::kSums + at];
            }
            add_at<kSite>(own, query, key + i - (kM - 1), sum);
        }
    }
    FA_DEVICE void pass_steps(const Contribution &of, int query, int key, const float *parts) {
#define PASS_STEP(ordinal, site, buffer) pass_step<ordinal, site, buffer>(of, query, key, parts);
        GRADIENT_SITES(PASS_STEP)
#undef PASS_STEP
    }
    // Of a walk. All lanes of a warp call it.
    template <int kOrdinal, int kSite, int kBuffer> __device__ __forceinline__ void pass(const Contribution &of, int key) {
        if (!is_passed<kOrdinal, kSite>() || is_by_ahead<kSite>()) return;
        const bool by_key = tie_of_site<kSite>().k != 0;
        float (&sum)[2] = of_key[kOrdinal % kKept];
        Contribution own = of;
        own.sums += first_sum(of.p, kBuffer) * kWords;
        if (!by_key) sum[0] += sum[1], sum[1] = 0.0f;
#pragma unroll 1
        for (int half = 0; half < (by_key ? 2 : 1); ++half) {
            const float all = by_key ? quad_sum(half == 0 ? sum[0] : sum[1]) : warp_sum(sum[0]);
            if (threadIdx.x % (by_key ? 4 : 32) == 0) add_at<kSite>(own, 0, key + half * 8, all);
        }
        sum[0] = sum[1] = 0.0f;
    }
    __device__ __forceinline__ void pass_all(const Contribution &of, int key) {
#define PASS_SITE(ordinal, site, buffer) pass<ordinal, site, buffer>(of, key);
        GRADIENT_SITES(PASS_SITE)
#undef PASS_SITE
    }
};
#endif

template <int kOrdinal, int kSite, int kBuffer> FA_DEVICE void add_site(const Contribution &tile) {
    const fa_attn_bwd_params &p = tile.p;
    const SnippetTie tie = tie_of_site<kSite>();
    const bool by_both = tie.q != 0 && tie.k != 0, by_ahead = by_both && tie.q == -tie.k, by_any = by_both && !by_ahead;
    const int thread = (int)threadIdx.x;
    const float *naturals = (const float *)shared_memory;
    float *scores = (float *)shared_memory + 2 * kTile, *kept = (float *)shared_memory + kKeptAt;
    Contribution own = tile;
    own.sums += first_sum(p, kBuffer) * kWords;
#pragma unroll 1
    for (int i = thread; i < kRows * kKeys; i += kSideThreads) {
        const int row = i / kKeys, key = i % kKeys, place = row * kScorePitch + key;
        float x = naturals[kTile + place];
        if (x != 0.0f) {
            i64 index = 0;
            x *= ask<kSite>(own, naturals[place], tile.first_place + tile.row0 + row, tile.key0 + key, index).slope;
            if (by_any) add_exactly(own.sums + index * kWords, x);
        }
        scores[place] = x;
    }
    block_sync();
    if (by_any) return;
    float sum = 0.0f;
    if (by_ahead) {
        const int ahead = thread - (kRows - 1), first = ahead < 0 ? -ahead : 0, end = ahead > kKeys - kRows ? kKeys - ahead : kRows;
        if (thread < kRows + kKeys - 1) {
            for (int row = first; row < end; ++row) sum += scores[row * kScorePitch + row + ahead];
            add_at<kSite>(own, tile.row0 + first, tile.key0 + first + ahead, sum);
        }
    } else if (tie.q != 0) {
        if (thread < kRows) {
            for (int column = 0; column < kKeys; ++column) sum += scores[thread * kScorePitch + column];
            add_at<kSite>(own, tile.row0 + thread, tile.key0, sum);
        }
    } else {   // of a key, or of a head
        constexpr bool kKeeps = kOrdinal < kKept;
        const bool adds = !kKeeps || tile.last;
        float *place = kept + (kKeeps ? kOrdinal * kKeys : 0) + thread;
        if (thread < kKeys) {
            for (int row = 0; row < kRows; ++row) sum += scores[row * kScorePitch + thread];
            if (kKeeps) sum += *place;
            if (tie.k != 0 && adds) add_at<kSite>(own, tile.row0, tile.key0 + thread, sum);
            if (kKeeps) *place = sum;
            else        scores[thread] = sum;   // its own column, which only it reads
        }
        block_sync();
        if (tie.k == 0 && adds && thread == 0) {
            sum = 0.0f;
            for (int i = 0; i < kKeys; ++i) sum += (kKeeps ? kept + kOrdinal * kKeys : scores)[i];
            add_at<kSite>(own, tile.row0, tile.key0, sum);
        }
    }
    block_sync();
}

// ---- heads of at most 128 columns --------------------------------------------------------------------------------
// K and V of a block's keys stay in shared memory, then a tile of Q and dO, which a diagonal's products take the place of; scores stay in
// registers, where texts know them as lines of keys.
constexpr bool kHolds = kD <= 128 && kDv <= 128;
constexpr int kQkPitch = kD * 2 + 16, kDoVPitch = kDv * 2 + 16, kHeldVAt = kKeys * kQkPitch, kHeldQAt = kHeldVAt + kKeys * kDoVPitch, kHeldDoAt = kHeldQAt + kRows * kQkPitch;
constexpr int kSkewed = kKeys + 8;   // floats of a row of products
#define COUNT_SITE(ordinal, site, buffer) +1
constexpr int kSites = 0 GRADIENT_SITES(COUNT_SITE);
#undef COUNT_SITE
constexpr bool kAddsEachTile = kSites > 4;   // else sums of keys and heads are kept over the walk

// Rows of one head, the first of which is `first`; those from `rows` on are zeros.
template <int kTile, int kCols, int kColumns> FA_DEVICE void hold_rows(u32 to, int pitch, const u16 *head, i64 step, int first, int rows) {
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < kTile * (kCols / 8); i += kSideThreads) {
        const int row = i / (kCols / 8), column = i % (kCols / 8) * 8;
        const u32 place = to + row * pitch + column * 2;
        const bool is = first + row < rows && column < kColumns;
        const u16 *from = is ? head + (i64)(first + row) * step + column : head;
        if constexpr (kAligned) {
            cp_async_16_zfill(place, from, is ? 16 : 0);
        } else {
            const Eight eight = load_eight(head, step, first + row, rows, column, kColumns);
            *(Eight *)(shared_memory + (place - shared_address(shared_memory))) = eight;
        }
    }
}
template <int kCols> FA_DEVICE void multiply_held(Fragments &sum, u32 rows, u32 keys, int pitch) {
    const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half = thread / 32 % 2 * kWide;
#pragma unroll
    for (int j = 0; j < kWide / 8; ++j)
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[j][i] = 0.0f;
#pragma unroll 4
    for (int k = 0; k < kCols / 16; ++k) {
        u32 of_a[4], of_b[4];
        ldmatrix_x4(of_a, rows + (slab + lane % 16) * pitch + k * 32 + lane / 16 * 16);
#pragma unroll
        for (int j = 0; j < kWide / 16; ++j) {
            ldmatrix_x4(of_b, keys + (half + j * 16 + lane % 8 + lane / 16 * 8) * pitch + k * 32 + lane / 8 % 2 * 16);
            mma_16816<kBf16>(sum[2 * j], of_a, of_b[0], of_b[1]);
            mma_16816<kBf16>(sum[2 * j + 1], of_a, of_b[2], of_b[3]);
        }
    }
}
using Kept = float[kAddsEachTile || kSites == 0 ? 1 : kSites][kWide / 4];   // of this thread's keys

// Sums of a thread's keys over all rows, or of all.
template <int kSite> FA_DEVICE void add_kept(const Contribution &own, bool by_key, float (&sum)[kWide / 4]) {
    const int thread = (int)threadIdx.x, lane = thread % 32, half_keys = thread / 32 % 2 * kWide;
    float *parts = (float *)(shared_memory + kHeldQAt);
    block_sync();
#pragma unroll
    for (int i = 0; i < kWide / 4; ++i) {
        for (int mask = 4; mask < 32; mask <<= 1) sum[i] += shuffle_xor(sum[i], mask);
        if (lane < 4) parts[thread / 64 * kKeys + half_keys + i / 2 * 8 + lane * 2 + i % 2] = sum[i];
        sum[i] = 0.0f;
    }
    block_sync();
    float all = 0.0f;
    if (thread < kKeys)
        for (int slab = 0; slab < kRows / 16; ++slab) all += parts[slab * kKeys + thread];
    if (by_key && thread < kKeys) add_at<kSite>(own, own.row0, own.key0 + thread, all);
    block_sync();
    if (by_key) return;
    if (thread < kKeys) parts[thread] = all;
    block_sync();
    if (thread == 0) {
        all = 0.0f;
        for (int i = 0; i < kKeys; ++i) all += parts[i];
        add_at<kSite>(own, own.row0, own.key0, all);
    }
    block_sync();
}

template <int kOrdinal, int kSite, int kBuffer> FA_DEVICE void add_held(const Contribution &tile, const Fragments &s, const Fragments &ds, Kept &kept) {
    const fa_attn_bwd_params &p = tile.p;
    const SnippetTie tie = tie_of_site<kSite>();
    if (is_passed<kOrdinal, kSite>()) return;
    const bool by_both = tie.q != 0 && tie.k != 0, by_ahead = by_both && tie.q == -tie.k, by_any = by_both && !by_ahead;
    const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half_keys = thread / 32 % 2 * kWide;
    float *products = (float *)(shared_memory + kHeldQAt);
    float of_row[2] = {}, once[kWide / 4] = {};
    float (&sum)[kWide / 4] = kAddsEachTile ? once : kept[kAddsEachTile ? 0 : kOrdinal];
    Contribution own = tile;
    own.sums += first_sum(p, kBuffer) * kWords;
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) {
        const int row = slab + i / 2 % 2 * 8 + lane / 4, first_key = tile.key0 + half_keys + lane % 4 * 2, ahead = i / 4 * 8 + i % 2;
        float natural = s[i / 4][i % 4] * p.softmax_scale;
        if constexpr (kSoftcap) natural = p.softcap * (1.0f - 2.0f * reciprocal(1.0f + exp2_fast(natural * (2.0f * kLog2e) * reciprocal(p.softcap))));
        i64 index = 0;
        const auto bent = snippet_score<SnippetSlopes<SnippetFast, float>>(
            SnippetSlope<float>{natural, 0.0f}, own.w.batch, own.w.head, own.w.kv_head, query_place(tile.first_place + tile.row0 + row),
            line_place(first_key, ahead), own.w.len_q, own.w.len_k, MarkedBuffers<kSite, float>{p.buffer, &index});
        const float x = ds[i / 4][i % 4] == 0.0f ? 0.0f : ds[i / 4][i % 4] * snippet_slope(bent);
        if (by_any && x != 0.0f) add_exactly(own.sums + index * kWords, x);
        if (by_ahead) products[row * kSkewed + half_keys + lane % 4 * 2 + ahead] = x;
        of_row[i / 2 % 2] += x;
        sum[i / 4 * 2 + i % 2] += x;
    }
    if (by_any) return;
    if (by_ahead) {
        block_sync();
        const int ahead = thread - (kRows - 1), first = ahead < 0 ? -ahead : 0, end = ahead > kKeys - kRows ? kKeys - ahead : kRows;
        if (thread < kRows + kKeys - 1) {
            float all = 0.0f;
#pragma unroll 4
            for (int row = first; row < end; ++row) all += products[row * kSkewed + row + ahead];
            add_at<kSite>(own, tile.row0 + first, tile.key0 + first + ahead, all);
        }
        block_sync();
    } else if (tie.q != 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            of_row[half] = quad_sum(of_row[half]);
            if (lane % 4 == 0) products[thread / 32 % 2 * kRows + slab + half * 8 + lane / 4] = of_row[half];
        }
        block_sync();
        if (thread < kRows) add_at<kSite>(own, tile.row0 + thread, tile.key0, products[thread] + products[kRows + thread]);
        block_sync();
    } else if (kAddsEachTile) {
        add_kept<kSite>(own, tie.k != 0, sum);
    }
}
template <int kOrdinal, int kSite, int kBuffer> FA_DEVICE void end_held(const Contribution &tile, Kept &kept) {
    const SnippetTie tie = tie_of_site<kSite>();
    if (kAddsEachTile || tie.q != 0 || is_passed<kOrdinal, kSite>()) return;
    Contribution own = tile;
    own.sums += first_sum(tile.p, kBuffer) * kWords;
    add_kept<kSite>(own, tie.k != 0, kept[kAddsEachTile ? 0 : kOrdinal]);
}

// Scores and dS of a tile of queries, of which Q and dO come to their place behind K and V. False: no query sees a key.
struct HeldTile {
    const fa_attn_bwd_params &p;
    const Sequence own;
    const Places w;
    const int key0, place;   // place: of query 0
    const Band band;
    const Workspace at;

    __device__ __forceinline__ HeldTile(const fa_attn_bwd_params &p, void *workspace, const Sequence &own, const Places &w, i64 head, int key0)
        : p(p), own(own), w(w), key0(key0), place(place_of_query(own)), band(find_band(own)), at(p, workspace, head, own.first_tile) {}
    __device__ __forceinline__ void hold_keys() const {
        const u32 smem = shared_address(shared_memory);
        hold_rows<kKeys, kD, HEAD_DIM>(smem, kQkPitch, row_of(p.k, p.k_strides, own.batch, w.kv_head, own.first_k), p.k_strides.row, key0, own.seq_k);
        hold_rows<kKeys, kDv, HEAD_DIM_V>(smem + kHeldVAt, kDoVPitch, row_of(p.v, p.v_strides, own.batch, w.kv_head, own.first_k), p.v_strides.row, key0, own.seq_k);
    }
    // first_row, end_row: of the queries that see some key.
    __device__ __forceinline__ void find_rows(int &ret_first, int &ret_end) const {
        const int last_key = (key0 + kKeys < own.seq_k ? key0 + kKeys : own.seq_k) - 1;
        ret_first = clamp(key0 - band.high, own.seq_q) / kRows * kRows, ret_end = clamp(last_key - band.low + 1, own.seq_q);
    }
    // kOfKeys: K and V are others than before.
    template <bool kOfKeys> __device__ __forceinline__ bool multiply(int row0, Fragments &s, Fragments &dp) const {
        const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half_keys = thread / 32 % 2 * kWide;
        const int last_row = (row0 + kRows < own.seq_q ? row0 + kRows : own.seq_q) - 1, last_key = (key0 + kKeys < own.seq_k ? key0 + kKeys : own.seq_k) - 1;
        const u32 smem = shared_address(shared_memory);
        const Curve curve(p);
        bool clear = row0 + kRows <= own.seq_q && key0 + kKeys <= own.seq_k && row0 + band.high >= last_key && last_row + band.low <= key0;
#if MASK_SNIPPET
        const SnippetSpan<int> sees = SeenSteps<kKeys>::look(w, row0 + place, last_row + place, key0);
        if (sees.high == 0) return false;
        clear = clear && sees.low != 0;
#endif
        block_sync();
        if (kOfKeys) hold_keys();
        hold_rows<kRows, kD, HEAD_DIM>(smem + kHeldQAt, kQkPitch, row_of(p.q, p.q_strides, own.batch, w.head, own.first_q), p.q_strides.row, row0, own.seq_q);
        hold_rows<kRows, kDv, HEAD_DIM_V>(smem + kHeldDoAt, kDoVPitch, row_of(p.d_o, p.d_o_strides, own.batch, w.head, own.first_q), p.d_o_strides.row, row0, own.seq_q);
        cp_async_commit();
        float lse[2], delta[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0 + slab + half * 8 + lane / 4;
            lse[half] = -neg_infinity(), delta[half] = 0.0f;
            if (row < own.seq_q) lse[half] = at.lse[place_of_row(row)], delta[half] = at.delta[place_of_row(row)];
        }
        cp_async_wait<0>();
        block_sync();
        multiply_held<kD>(s, smem + kHeldQAt, smem, kQkPitch);
        multiply_held<kDv>(dp, smem + kHeldDoAt, smem + kHeldVAt, kDoVPitch);
#if DROPOUT
        Dropped<false, kWide / 16> kept;
        kept.find(Dropout(p.buffer, (i64)w.batch * p.heads_q + w.head), row0 + slab, key0 + half_keys);
        kept.apply((float (&)[kWide / 2])dp);
#endif
        block_sync();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = row0 + slab + half * 8 + lane / 4, key = key0 + half_keys + lane % 4 * 2;
            Seen sees = {0, kKeys};
            if (!clear) sees = find_seen(own, band, row, key);
            if (row >= own.seq_q) sees.high = 0;
            const auto query = query_place(row + place);
#pragma unroll
            for (int i = 0; i < kWide / 4; ++i) {
                const int ahead = i / 2 * 8 + i % 2;
                const auto line = line_place(key, ahead);
                float &ds = dp[i / 2][half * 2 + i % 2], slope = 1.0f;
                float weight = weigh(p, curve, w, query, line, s[i / 2][half * 2 + i % 2], lse[half], slope);
#if MASK_SNIPPET
                if (!clear && !is_visible(w, query, line)) weight = 0.0f;
#endif
                if (ahead < sees.low || ahead >= sees.high) weight = 0.0f;
                ds = weight == 0.0f ? 0.0f : weight * (ds AS_KEPT - delta[half]);
            }
        }
        return true;
    }
};

FA_DEVICE void sum_held(const fa_attn_bwd_params &p, void *workspace, const Sequence &own, const Places &w, i64 head, int key0) {
    const HeldTile tile(p, workspace, own, w, head, key0);
    int first, end;
    tile.find_rows(first, end);
    tile.hold_keys();
    Kept kept = {};
    Contribution c = {p, w, (u64 *)workspace, tile.place, first, key0, false};
#pragma unroll 1
    for (int row0 = first; row0 < end; row0 += kRows) {
        Fragments s, dp;
        if (!tile.multiply<false>(row0, s, dp)) continue;
        c.row0 = row0;
#define ADD_SITE(ordinal, site, buffer) add_held<ordinal, site, buffer>(c, s, dp, kept);
        GRADIENT_SITES(ADD_SITE)
#undef ADD_SITE
    }
    cp_async_commit();
    cp_async_wait<0>();   // for K and V, where no tile did: they would land on what the block writes next
#define END_SITE(ordinal, site, buffer) end_held<ordinal, site, buffer>(c, kept);
    GRADIENT_SITES(END_SITE)
#undef END_SITE
}

// ---- elements of their own for each query and key of a head, for all batches ---------------------------------------
// A block sums a tile of queries and keys over batches in registers, so that an element is added to few times.
#define IS_OVER_BATCHES(ordinal, site, buffer) && (is_passed<ordinal, site>() || (is_by_any<site>() && !is_of_batch<site>()))
FA_DEVICE bool are_over_batches() { return kHolds && !kVarlen && kSites <= 2 && (true GRADIENT_SITES(IS_OVER_BATCHES)); }
#undef IS_OVER_BATCHES
using OverBatches = float[kSites <= 2 && kSites > 0 ? kSites : 1][kWide / 2];

template <int kOrdinal, int kSite, int kBuffer> FA_DEVICE void sum_batch(const HeldTile &tile, int row0, const Fragments &s, const Fragments &ds, OverBatches &sums) {
    if (is_passed<kOrdinal, kSite>()) return;
    const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half_keys = thread / 32 % 2 * kWide;
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) {
        const int row = slab + i / 2 % 2 * 8 + lane / 4, first_key = tile.key0 + half_keys + lane % 4 * 2, ahead = i / 4 * 8 + i % 2;
        float natural = s[i / 4][i % 4] * tile.p.softmax_scale;
        if constexpr (kSoftcap) natural = tile.p.softcap * (1.0f - 2.0f * reciprocal(1.0f + exp2_fast(natural * (2.0f * kLog2e) * reciprocal(tile.p.softcap))));
        i64 index = 0;
        const auto bent = snippet_score<SnippetSlopes<SnippetFast, float>>(
            SnippetSlope<float>{natural, 0.0f}, tile.w.batch, tile.w.head, tile.w.kv_head, query_place(tile.place + row0 + row),
            line_place(first_key, ahead), tile.w.len_q, tile.w.len_k, MarkedBuffers<kSite, float>{tile.p.buffer, &index});
        sums[kOrdinal < kSites ? kOrdinal % 2 : 0][i] += ds[i / 4][i % 4] == 0.0f ? 0.0f : ds[i / 4][i % 4] * snippet_slope(bent);
    }
}
template <int kOrdinal, int kSite, int kBuffer> FA_DEVICE void end_batches(const Contribution &of, OverBatches &sums) {
    if (is_passed<kOrdinal, kSite>()) return;
    const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half_keys = thread / 32 % 2 * kWide;
    Contribution own = of;
    own.sums += first_sum(of.p, kBuffer) * kWords;
#pragma unroll
    for (int i = 0; i < kWide / 2; ++i) {
        float &x = sums[kOrdinal < kSites ? kOrdinal % 2 : 0][i];
        add_at<kSite>(own, own.row0 + slab + i / 2 % 2 * 8 + lane / 4, own.key0 + half_keys + lane % 4 * 2 + i / 4 * 8 + i % 2, x);
        x = 0.0f;
    }
}
// One block's, of `tiles` of keys of all heads and batches. Some blocks have nothing to do: fewer add less often.
FA_DEVICE void sum_batches(const fa_attn_bwd_params &p, void *workspace, u32 block, i64 tiles) {
    constexpr i64 kEnough = 640;
    const i64 owners = tiles * p.heads_q, most = kEnough / owners, parts = most < 1 ? 1 : most < p.batch ? most : p.batch;
    const i64 part = block / owners, head = block % owners / tiles;
    if (part >= parts) return;
    const int key0 = (int)(block % tiles) * kKeys;
    const i64 all = ((i64)p.seq_q + kRows - 1) / kRows * p.batch, end = all * (part + 1) / parts;   // batch after batch of a tile of queries
    OverBatches sums = {};
#pragma unroll 1
    for (i64 step = all * part / parts; step < end; ++step) {
        const int batch = (int)(step % p.batch), row0 = (int)(step / p.batch) * kRows;
        const Sequence own = sequence_of(p, batch);
        const Places w = places_of(p, own, batch, (int)head);
        const HeldTile tile(p, workspace, own, w, (i64)batch * p.heads_q + head, key0);
        int first, end_row;
        tile.find_rows(first, end_row);
        Fragments s, dp;
        if (row0 >= first && row0 < end_row && tile.multiply<true>(row0, s, dp)) {
#define SUM_BATCH(ordinal, site, buffer) sum_batch<ordinal, site, buffer>(tile, row0, s, dp, sums);
            GRADIENT_SITES(SUM_BATCH)
#undef SUM_BATCH
        }
        if (step + 1 < end && batch + 1 < p.batch) continue;
        const Contribution c = {p, w, (u64 *)workspace, tile.place, row0, key0, true};
#define END_BATCHES(ordinal, site, buffer) end_batches<ordinal, site, buffer>(c, sums);
        GRADIENT_SITES(END_BATCHES)
#undef END_BATCHES
    }
}

// One block's.
FA_DEVICE void sum_tiles(const fa_attn_bwd_params &p, void *workspace, u32 block) {
#define IS_LEFT(ordinal, site, buffer) && is_passed<ordinal, site>()
    if (true GRADIENT_SITES(IS_LEFT)) return;   // nothing is left
#undef IS_LEFT
    const i64 tiles = tiles_of<kKeys>(p, p.seq_k);
    if (block >= tiles * p.heads_q * batches_of(p)) return;
    if (are_over_batches()) {
        sum_batches(p, workspace, block, tiles);
        return;
    }
    const i64 head = block / tiles;   // of queries, of all batches
    i64 tile = block % tiles;
    const int h = (int)(head % p.heads_q), group = p.heads_q / p.heads_kv;
    const int index = find_index<kKeys>(p, p.cu_seqlens_k, (int)(head / p.heads_q), tile);
    const Sequence own = sequence_of(p, index);
    if (tile * kKeys >= own.seq_k) return;
    const Places w = places_of(p, own, index, h);
    if constexpr (kHolds) {
        sum_held(p, workspace, own, w, head, (int)tile * kKeys);
        return;
    }
    const Band band = find_band(own);
    const int key0 = (int)tile * kKeys, last_key = (key0 + kKeys < own.seq_k ? key0 + kKeys : own.seq_k) - 1;
    const i64 first_row = key0 - band.high, end_row = last_key - band.low + 1;   // of those that see some key
    const int first = clamp(first_row, own.seq_q) / kRows, end = clamp(end_row, own.seq_q);
    const Workspace at(p, workspace, head, own.first_tile);
    const Operand k = {row_of(p.k, p.k_strides, own.batch, h / group, own.first_k), p.k_strides.row, key0, own.seq_k};
    const Operand v = {row_of(p.v, p.v_strides, own.batch, h / group, own.first_k), p.v_strides.row, key0, own.seq_k};
    const int thread = (int)threadIdx.x, lane = thread % 32, slab = thread / 64 * 16, half_keys = thread / 32 % 2 * kWide;
    float *shared = (float *)shared_memory;
    const Curve curve(p);
    for (int i = thread; i < kKept * kKeys; i += kSideThreads) shared[kKeptAt + i] = 0.0f;
#pragma unroll 1
    for (int row0 = first * kRows; row0 < end; row0 += kRows) {
        const Contribution c = {p, w, (u64 *)workspace, place_of_query(own), row0, key0, row0 + kRows >= end};
        Fragments s, dp;
        multiply_rows<HEAD_DIM>(s, {row_of(p.q, p.q_strides, own.batch, h, own.first_q), p.q_strides.row, row0, own.seq_q}, k);
        multiply_rows<HEAD_DIM_V>(dp, {row_of(p.d_o, p.d_o_strides, own.batch, h, own.first_q), p.d_o_strides.row, row0, own.seq_q}, v);
        if (thread < 2 * kRows) {
            const int row = row0 + thread % kRows;
            shared[kRowsAt + thread] = row >= own.seq_q ? -neg_infinity() : (thread < kRows ? at.lse : at.delta)[place_of_row(row)];
        }
#pragma unroll
        for (int i = 0; i < kWide / 2; ++i) {
            const int place = (slab + i / 2 % 2 * 8 + lane / 4) * kScorePitch + half_keys + i / 4 * 8 + lane % 4 * 2 + i % 2;
            float natural = s[i / 4][i % 4] * p.softmax_scale;
            if constexpr (kSoftcap) natural = p.softcap * (1.0f - 2.0f * reciprocal(1.0f + exp2_fast(s[i / 4][i % 4] * curve.rate)));
            shared[place] = natural, shared[kTile + place] = dp[i / 4][i % 4];
        }
        block_sync();
#pragma unroll 1
        for (int i = thread; i < kRows * kKeys; i += kSideThreads) {
            const int row = i / kKeys, key = i % kKeys, place = row * kScorePitch + key;
            const Seen sees = find_seen(own, band, row0 + row, key0);
            float &ds = shared[kTile + place];
            float weight = 0.0f;
            if (row0 + row < own.seq_q && key >= sees.low && key < sees.high && is_seen(w, c.first_place + row0 + row, key0 + key)) {
                const auto bent = snippet_score<SnippetPlain<float>>(shared[place], w.batch, w.head, w.kv_head, c.first_place + row0 + row, key0 + key, w.len_q, w.len_k, w.buffers);
                weight = exp2_fast(bent * kLog2e - shared[kRowsAt + row]);
            }
#if DROPOUT
            ds = Dropout(p.buffer, (i64)w.batch * p.heads_q + w.head).keeps(row0 + row, key0 + key) ? ds * dropout_scale(p.buffer) : 0.0f;
#endif
            ds = weight == 0.0f ? 0.0f : weight * (ds - shared[kRowsAt + kRows + row]);
        }
        block_sync();
#define ADD_SITE(ordinal, site, buffer) add_site<ordinal, site, buffer>(c);
        GRADIENT_SITES(ADD_SITE)
#undef ADD_SITE
    }
}
// By the last blocks of the launch behind the main ones. False: this block is none of them.
FA_DEVICE bool sum_buffers(const fa_attn_bwd_params &p, void *workspace) {
    const i64 tiles = tiles_of<kKeys>(p, p.seq_k) * p.heads_q * batches_of(p);
    const u32 blocks = tiles > 0 ? (u32)tiles : 1, first = gridDim.x - blocks;
    if (blockIdx.x < first) return false;
    sum_tiles(p, workspace, blockIdx.x - first);
    return true;
}

} // namespace

#endif
