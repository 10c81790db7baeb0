// SPDX-License-Identifier: Apache-2.0
//
// What families of attention backward for Hopper (sm_90a) share that compute scores twice: blocks own keys, or queries, and add nothing in memory.
//
// Includers define ROWS, ROLES (attn_bwd_short_sm90a.cu), TEAMS and STAGES: 0 where a block holds all tiles that its own meet, else those of a ring,
// through which they pass.
#ifndef ATTN_BWD_SHORT_SM90A_CUH
#define ATTN_BWD_SHORT_SM90A_CUH

#define SPLITS 1
#define ROW_PARTS 1
#include "attn_bwd_sm90a.cuh"

namespace {

constexpr int kTileRows = 64, kOwn = ROWS / kTileRows, kThreads = kOwn * (ROLES == 2 ? 2 : TEAMS) * (int)kGroup;
constexpr int kWidth = (HEAD_DIM + 15) / 16 * 16, kWidthV = (HEAD_DIM_V + 15) / 16 * 16;   // columns of a tile that products read and make
constexpr int kSlabBytes = kTileRows * kRowBytes, kTileBytes = kD / 64 * kSlabBytes, kTileVBytes = kDv / 64 * kSlabBytes;
static_assert(kN == kTileRows && kM == kTileRows, "steps are whole tiles");
static_assert(kD <= 128 && kDv <= 128, "gradients fit the registers");

// Numbers of 32 bits, since thousands of clocks count: a row sees the keys from row + low to row + high.
struct Reach {
    int low, high;

    __device__ __forceinline__ explicit Reach(const Sequence &s) {
        constexpr int kFar = 1 << 16;   // beyond all rows
        const auto less = [](int x) { return x < kFar ? x : kFar; };
        const int offset = CAUSAL == 2 ? 0 : s.seq_k - s.seq_q;
        low = kWindow && s.window_left >= 0 ? offset - less(s.window_left) : -kFar;
        high = kWindow && s.window_right >= 0 ? offset + less(s.window_right) : kFar;
        if (kCausal && high > offset) high = offset;
    }
};
struct Range {
    int first, end;

    __device__ __forceinline__ int count() const { return end - first; }
    __device__ __forceinline__ void extend(const Range &x) {
        if (x.first >= x.end) return;
        const bool empty = first >= end;
        if (empty || x.first < first) first = x.first;
        if (empty || x.end > end) end = x.end;
    }
};
// The tiles of the rows from `first` to before `end`, of those that exist.
FA_DEVICE Range tiles_of_rows(int first, int end, int rows) {
    first = first > 0 ? first : 0, end = end < rows ? end : rows;
    if (first >= end) return {0, 0};
    return {first / kTileRows, (end + kTileRows - 1) / kTileRows};
}
// Of `rows` rows, those that see keys from `first` to before `end`; and the other way round.
FA_DEVICE Range queries_of(const Reach &reach, int first, int end, int rows) { return tiles_of_rows(first - reach.high, end - reach.low, rows); }
FA_DEVICE Range keys_of(const Reach &reach, int first, int end, int rows) { return tiles_of_rows(first + reach.low, end + reach.high, rows); }

// What a block reads: tiles of queries, of one head or of all that share its keys, and of keys, and where they lie.
struct Held {
    const Sequence s;
    const Reach reach;
    const int heads;                         // of queries
    Range queries = {0, 0}, keys = {0, 0};   // tiles
    u32 q, d_o, k, v, lse, delta, end;       // shared addresses, of the first ones

    // own: the block's first tile.
    __device__ __forceinline__ Held(const Sequence &s, int own, bool of_keys, bool of_queries, int heads) : s(s), reach(s), heads(heads) {
        const int first = own * kTileRows, end_q = first + ROWS < s.seq_q ? first + ROWS : s.seq_q, end_k = first + ROWS < s.seq_k ? first + ROWS : s.seq_k;
        if (of_queries && first < end_q) queries = tiles_of_rows(first, end_q, s.seq_q), keys = keys_of(reach, first, end_q, s.seq_k);
        if (of_keys && first < end_k) keys.extend(tiles_of_rows(first, end_k, s.seq_k)), queries.extend(queries_of(reach, first, end_k, s.seq_q));
        const int tiles_q = STAGES == 0 ? heads * queries.count() : of_keys ? STAGES * TEAMS : kOwn, tiles_k = STAGES == 0 ? keys.count() : of_keys ? kOwn : STAGES * TEAMS;
        q = shared_address(shared_memory), d_o = q + tiles_q * kTileBytes, k = d_o + tiles_q * kTileVBytes;
        v = k + tiles_k * kTileBytes, lse = v + tiles_k * kTileVBytes, delta = lse + tiles_q * kTileRows * 4, end = delta + (delta - lse);
        if (q % 1024 != 0 || end - q > dynamic_shared_bytes()) asm volatile("trap;");   // descriptors and swizzles count on it
    }
    // Where a row of a sequence's queries or keys lies among those held.
    __device__ __forceinline__ int place_of_query(int row, int head) const { return row + (head * queries.count() - queries.first) * kTileRows; }
    __device__ __forceinline__ int place_of_key(int row) const { return row - keys.first * kTileRows; }
};
// A descriptor of a tile, by its first row's place.
template <int kBytes> FA_DEVICE u64 rows_at(u32 tiles, int place) {
    return wgmma_descriptor<64>(tiles + place / kTileRows * kBytes, kSlabBytes);
}

// A thread's places: 16 bytes of a row, and of other rows kAtOnce further on.
template <int kColumns> struct Lanes {
    static constexpr int kLanes = kColumns / 8, kAtOnce = kThreads / kLanes;
    static_assert(kAtOnce % 8 == 0 && kAtOnce <= kTileRows, "chunks lie alike in all of a thread's rows, which pass one head at a time");
    const int chunk = (int)threadIdx.x % kLanes, row = (int)threadIdx.x / kLanes;
    const u32 within = (u32)(chunk / 8 * kSlabBytes + ((chunk ^ row) & 7) * 16);

    __device__ __forceinline__ u32 place(u32 tiles, int r) const { return tiles + within + r / kTileRows * (kColumns / 64 * kSlabBytes) + r % kTileRows * kRowBytes; }
};
// Tiles of a tensor's rows; `from`: its first row, `rows` of them exist. Left under way.
template <int kColumns, int kThere> FA_DEVICE void load_tiles(u32 to, const Range &tiles, const u16 *from, i64 stride, int rows) {
    const Lanes<kColumns> lanes;
    if (lanes.chunk * 8 >= (kThere + 15) / 16 * 16) return;
    const u16 *next = from + (i64)(tiles.first * kTileRows + lanes.row) * stride + lanes.chunk * 8;
    const int there = lanes.chunk * 8 < kThere ? rows - tiles.first * kTileRows : 0;
#pragma unroll 1
    for (int r = lanes.row; r < tiles.count() * kTileRows; r += lanes.kAtOnce, next += lanes.kAtOnce * stride)
        cp_async_16_zfill(lanes.place(to, r), r < there ? next : from, r < there ? 16 : 0);
}
// Of one tile, without a loop.
template <int kColumns, int kThere> FA_DEVICE void load_tile(u32 to, int tile, const u16 *from, i64 stride, int rows) {
    const Lanes<kColumns> lanes;
    if (lanes.chunk * 8 >= (kThere + 15) / 16 * 16) return;
    const u16 *next = from + (i64)(tile * kTileRows + lanes.row) * stride + lanes.chunk * 8;
    const int there = (lanes.chunk * 8 < kThere ? rows - tile * kTileRows : 0) - lanes.row;
    to += lanes.within + lanes.row * kRowBytes;
#pragma unroll
    for (int r = 0; r < kTileRows; r += lanes.kAtOnce, next += lanes.kAtOnce * stride)
        if (kTileRows % lanes.kAtOnce == 0 || lanes.row + r < kTileRows) cp_async_16_zfill(to + r * kRowBytes, r < there ? next : from, r < there ? 16 : 0);
}

struct NoRing {};

// Of a lane's two rows, the columns from `low` to before `high` that weigh something, as far as there are such bounds.
template <bool kLow, bool kHigh> struct Columns {
    int low[2], high[2];

    __device__ __forceinline__ void mask(Scores &s, int column0) const {
        const int column = column0 + (int)threadIdx.x % 4 * 2;
        if ((!kLow || (low[0] <= column0 && low[1] <= column0)) && (!kHigh || (high[0] >= column0 + kM && high[1] >= column0 + kM))) return;
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
            for (int i = 0; i < kM / 4; ++i) {
                const int at = i / 2 * 8 + i % 2;
                float &x = s[i / 2 * 4 + half * 2 + i % 2];
                if ((kLow && at < low[half] - column) || (kHigh && at >= high[half] - column)) x = 0.0f;
            }
    }
};
// P and dS of a step, packed. kByColumn: LSE and delta are those of columns (a lane's, from `lse` and `delta` on), or of the two rows `own`.
template <bool kByColumn, class Seen>
FA_DEVICE void weigh(const Curve &curve, Scores &s, Scores &dp, Packed &weights, Packed &ds, u32 lse, u32 delta, const float (&own)[2][2], const Seen &seen, int column0) {
    const auto of = [&](const float (&x)[4], int which, int i) { return kByColumn ? x[i / 4 * 2 + i % 2] : own[which][i / 2 % 2]; };
    wgmma_wait<1>();
    Wgmma<kM>::pin(s);
    float x[4], y[4], slope;
#pragma unroll
    for (int j = 0; j < kM / 16; ++j) {
        if (kByColumn) load_shared(x, lse + j * 64);
#pragma unroll
        for (int i = 0; i < 8; ++i) s[8 * j + i] = curve.weight(s[8 * j + i], of(x, 0, i), slope);
    }
    seen.mask(s, column0);
    wgmma_wait<0>();
    Wgmma<kM>::pin(dp);
#pragma unroll
    for (int j = 0; j < kM / 16; ++j) {
        if (kByColumn && kSoftcap) load_shared(x, lse + j * 64);
        if (kByColumn) load_shared(y, delta + j * 64);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            dp[8 * j + i] = s[8 * j + i] * (dp[8 * j + i] - of(y, 1, i));
            if constexpr (kSoftcap) dp[8 * j + i] *= slope_of(curve, s[8 * j + i], of(x, 0, i));
        }
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (kByColumn) weights[4 * j + i] = pack2<kBf16>(s[8 * j + 2 * i], s[8 * j + 2 * i + 1]);
            ds[4 * j + i] = pack2<kBf16>(dp[8 * j + 2 * i], dp[8 * j + 2 * i + 1]);
        }
    }
}

// dK and dV of a tile of keys. h: their head. `ring`: through which tiles of queries pass (STAGES > 0).
template <class Ring> FA_DEVICE void differentiate_keys(const fa_attn_bwd_params &p, const Held &held, Ring &ring, int h, int tile) {
    const int lane = (int)(threadIdx.x % kWarp), first = tile * kTileRows + (int)(threadIdx.x % kGroup / kWarp) * 16;
    if (STAGES == 0 && tile * kTileRows >= held.s.seq_k) return;
    const Curve curve(p);
    const int end_key = tile * kTileRows + kTileRows < held.s.seq_k ? tile * kTileRows + kTileRows : held.s.seq_k, own = held.place_of_key(tile * kTileRows);
    const Range steps = queries_of(held.reach, tile * kTileRows, end_key, held.s.seq_q);
    const u64 k = rows_at<kTileBytes>(held.k, own), v = rows_at<kTileVBytes>(held.v, own);
    float dk[kWidth / 2] = {}, dv[kWidthV / 2] = {};
    const float none[2][2] = {};
    Columns<kCausal || kWindow, kWindow> seers;   // keys that do not exist are not stored
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int key = first + lane / 4 + half * 8;
        seers.low[half] = key - held.reach.high, seers.high[half] = key - held.reach.low + 1;
    }
    const auto step = [&](int row, int place) {
        Scores s, dp;
        Packed weights, ds;
        const u64 q = rows_at<kTileBytes>(held.q, place), d_o = rows_at<kTileVBytes>(held.d_o, place);
        const u32 of_lane = (u32)place * 4 + lane % 4 * 16;
        issue_scores<kTileRows, kM, kWidth / 16>(s, k, q);
        issue_scores<kTileRows, kM, kWidthV / 16>(dp, v, d_o);
        weigh<true>(curve, s, dp, weights, ds, held.lse + of_lane, held.delta + of_lane, none, seers, row);
        issue_gradient<kWidthV, kM>(dv, weights, d_o);
        issue_gradient<kWidth, kM>(dk, ds, q);
        wgmma_wait<0>();
        Wgmma<kWidthV>::pin(dv);
        Wgmma<kWidth>::pin(dk);
    };
    if constexpr (STAGES > 0) {
#pragma unroll 1
        while (ring.turn())
            if (ring.meets(steps)) step(ring.tile * kM, ring.slot * kM);
        if (!ring.join(dk, dv)) return;
    } else {
        const int rows = steps.count() * kM, end = steps.end * kM;
        int row = steps.first * kM, place = held.place_of_query(row, 0);
#pragma unroll 1
        for (int left = steps.count() * held.heads; left > 0; --left) {
            step(row, place);
            row += kM, place += kM;
            if (ROLES == 0 && row == end) row -= rows, place += held.queries.count() * kTileRows - rows;   // of the next head
        }
    }
    store_gradient<kWidthV, HEAD_DIM_V>(dv, 1.0f, (u16 *)row_of(p.dv, p.dv_strides, held.s.batch, h, held.s.first_k + first), p.dv_strides.row, held.s.seq_k - first);
    store_gradient<kWidth, HEAD_DIM>(dk, p.softmax_scale, (u16 *)row_of(p.dk, p.dk_strides, held.s.batch, h, held.s.first_k + first), p.dk_strides.row, held.s.seq_k - first);
}

// dQ of a tile of queries. `ring`: through which tiles of keys pass.
template <class Ring> FA_DEVICE void differentiate_queries(const fa_attn_bwd_params &p, const Held &held, Ring &ring, int h, int tile) {
    const int lane = (int)(threadIdx.x % kWarp), first = tile * kTileRows + (int)(threadIdx.x % kGroup / kWarp) * 16;
    if (STAGES == 0 && tile * kTileRows >= held.s.seq_q) return;
    const Curve curve(p);
    const int end_row = tile * kTileRows + kTileRows < held.s.seq_q ? tile * kTileRows + kTileRows : held.s.seq_q, place = held.place_of_query(tile * kTileRows, 0);
    const Range steps = keys_of(held.reach, tile * kTileRows, end_row, held.s.seq_k);
    const u64 q = rows_at<kTileBytes>(held.q, place), d_o = rows_at<kTileVBytes>(held.d_o, place);
    float dq[kWidth / 2] = {}, own[2][2];
    Columns<kWindow, true> seen;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + lane / 4 + half * 8, at = place_of_row(place + row - tile * kTileRows) * 4, end = row + held.reach.high + 1;
        own[0][half] = load_shared<float>(held.lse + at), own[1][half] = load_shared<float>(held.delta + at);
        seen.low[half] = row + held.reach.low, seen.high[half] = end < held.s.seq_k ? end : held.s.seq_k;
    }
    const auto step = [&](int key, int place) {
        Scores s, dp;
        Packed weights, ds;
        const u64 k = rows_at<kTileBytes>(held.k, place);
        issue_scores<kTileRows, kM, kWidth / 16>(s, q, k);
        issue_scores<kTileRows, kM, kWidthV / 16>(dp, d_o, rows_at<kTileVBytes>(held.v, place));
        weigh<false>(curve, s, dp, weights, ds, 0, 0, own, seen, key);
        issue_gradient<kWidth, kM>(dq, ds, k);
        wgmma_wait<0>();
        Wgmma<kWidth>::pin(dq);
    };
    if constexpr (STAGES > 0) {
#pragma unroll 1
        while (ring.turn())
            if (ring.meets(steps)) step(ring.tile * kM, ring.slot * kM);
        if (!ring.join(dq)) return;
    } else {
#pragma unroll 1
        for (int tile = steps.first; tile < steps.end; ++tile) step(tile * kM, held.place_of_key(tile * kM));
    }
    store_gradient<kWidth, HEAD_DIM>(dq, p.softmax_scale, (u16 *)row_of(p.dq, p.dq_strides, held.s.batch, h, held.s.first_q + first), p.dq_strides.row, held.s.seq_q - first);
}

} // namespace

#endif
