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
#define SPLITS 1
#define ROW_PARTS 1
#include "attn_bwd_sm90a.cuh"

namespace {

constexpr int kTileRows = 64, kOwn = ROWS / kTileRows, kThreads = kOwn * (ROLES == 2 ? 2 : 1) * (int)kGroup;
constexpr int kWidth = (HEAD_DIM + 15) / 16 * 16, kWidthV = (HEAD_DIM_V + 15) / 16 * 16;   // columns of a tile that products read and make
constexpr int kSlabBytes = kTileRows * kRowBytes, kTileBytes = kD / 64 * kSlabBytes, kTileVBytes = kDv / 64 * kSlabBytes;
static_assert(kN == kTileRows && kM == kTileRows, "steps are whole tiles");
static_assert(kD <= 128 && kDv <= 128, "gradients fit the registers");

// Numbers of 32 bits, since thousands of clocks count: a row sees the keys from row + low to row + high.
struct Reach {
    int low, high;

    __device__ __forceinline__ explicit Reach(const fa_attn_bwd_params &p) {
        constexpr int kFar = 1 << 16;   // beyond all rows
        const auto less = [](int x) { return x < kFar ? x : kFar; };
        const int offset = CAUSAL == 2 ? 0 : p.seq_k - p.seq_q;
        low = kWindow && p.window_left >= 0 ? offset - less(p.window_left) : -kFar;
        high = kWindow && p.window_right >= 0 ? offset + less(p.window_right) : kFar;
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
    const Reach reach;
    const int batch, heads;                  // heads: of queries
    Range queries = {0, 0}, keys = {0, 0};   // tiles
    u32 q, d_o, k, v, lse, delta;            // shared addresses, of the first ones

    // own: the block's first tile.
    __device__ __forceinline__ Held(const fa_attn_bwd_params &p, int batch, int own, bool of_keys, bool of_queries, int heads)
        : reach(p), batch(batch), heads(heads) {
        const int first = own * kTileRows, end_q = first + ROWS < p.seq_q ? first + ROWS : p.seq_q, end_k = first + ROWS < p.seq_k ? first + ROWS : p.seq_k;
        if (of_queries && first < end_q) queries = tiles_of_rows(first, end_q, p.seq_q), keys = keys_of(reach, first, end_q, p.seq_k);
        if (of_keys && first < end_k) keys.extend(tiles_of_rows(first, end_k, p.seq_k)), queries.extend(queries_of(reach, first, end_k, p.seq_q));
        const int tiles = heads * queries.count();
        q = shared_address(shared_memory), d_o = q + tiles * kTileBytes, k = d_o + tiles * kTileVBytes;
        v = k + keys.count() * kTileBytes, lse = v + keys.count() * kTileVBytes, delta = lse + tiles * kTileRows * 4;
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

// LSE and delta of the rows of queries, when this thread's copies have landed: it reads of dO what it has copied. h: the first head.
// Lanes share a row, and end with the sum of one of eight.
FA_DEVICE void make_rows(const fa_attn_bwd_params &p, const Held &held, int h) {
    using At = Lanes<kDv>;
    constexpr int kRounds = 8;   // whose loads go out at once
    const At lanes;
    const int column = lanes.chunk * 8, first = held.queries.first * kTileRows, rows = held.queries.count() * kTileRows, all = rows * held.heads;
    const int there = p.seq_q - first;   // of a head's
    const u16 *o = row_of(p.o, p.o_strides, held.batch, h, first) + (column < HEAD_DIM_V ? column : 0);
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
        const Sequence s = {p.seq_q, p.seq_k, 0, 0, held.batch, first, 0, 0};
        if (exists) lse = p.lse[held.batch * p.lse_strides.batch + (h + head) * p.lse_strides.head + first + row];
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

// dK and dV of a tile of keys. h: their head.
FA_DEVICE void differentiate_keys(const fa_attn_bwd_params &p, const Held &held, int h, int tile) {
    const int lane = (int)(threadIdx.x % kWarp), first = tile * kTileRows + (int)(threadIdx.x % kGroup / kWarp) * 16;
    if (tile * kTileRows >= p.seq_k) return;
    const Curve curve(p);
    const int end_key = tile * kTileRows + kTileRows < p.seq_k ? tile * kTileRows + kTileRows : p.seq_k, own = held.place_of_key(tile * kTileRows);
    const Range steps = queries_of(held.reach, tile * kTileRows, end_key, p.seq_q);
    const u64 k = rows_at<kTileBytes>(held.k, own), v = rows_at<kTileVBytes>(held.v, own);
    float dk[kWidth / 2] = {}, dv[kWidthV / 2] = {};
    const float none[2][2] = {};
    Columns<kCausal || kWindow, kWindow> seers;   // keys that do not exist are not stored
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int key = first + lane / 4 + half * 8;
        seers.low[half] = key - held.reach.high, seers.high[half] = key - held.reach.low + 1;
    }
    const int rows = steps.count() * kM, end = steps.end * kM;
    int row = steps.first * kM, place = held.place_of_query(row, 0);
#pragma unroll 1
    for (int left = steps.count() * held.heads; left > 0; --left) {
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
        row += kM, place += kM;
        if (ROLES == 0 && row == end) row -= rows, place += held.queries.count() * kTileRows - rows;   // of the next head
    }
    store_gradient<kWidthV, HEAD_DIM_V>(dv, 1.0f, (u16 *)row_of(p.dv, p.dv_strides, held.batch, h, first), p.dv_strides.row, p.seq_k - first);
    store_gradient<kWidth, HEAD_DIM>(dk, p.softmax_scale, (u16 *)row_of(p.dk, p.dk_strides, held.batch, h, first), p.dk_strides.row, p.seq_k - first);
}

// dQ of a tile of queries.
FA_DEVICE void differentiate_queries(const fa_attn_bwd_params &p, const Held &held, int h, int tile) {
    const int lane = (int)(threadIdx.x % kWarp), first = tile * kTileRows + (int)(threadIdx.x % kGroup / kWarp) * 16;
    if (tile * kTileRows >= p.seq_q) return;
    const Curve curve(p);
    const int end_row = tile * kTileRows + kTileRows < p.seq_q ? tile * kTileRows + kTileRows : p.seq_q, place = held.place_of_query(tile * kTileRows, 0);
    const Range steps = keys_of(held.reach, tile * kTileRows, end_row, p.seq_k);
    const u64 q = rows_at<kTileBytes>(held.q, place), d_o = rows_at<kTileVBytes>(held.d_o, place);
    float dq[kWidth / 2] = {}, own[2][2];
    Columns<kWindow, true> seen;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + lane / 4 + half * 8, at = place_of_row(place + row - tile * kTileRows) * 4, end = row + held.reach.high + 1;
        own[0][half] = load_shared<float>(held.lse + at), own[1][half] = load_shared<float>(held.delta + at);
        seen.low[half] = row + held.reach.low, seen.high[half] = end < p.seq_k ? end : p.seq_k;
    }
#pragma unroll 1
    for (int step = steps.first; step < steps.end; ++step) {
        Scores s, dp;
        Packed weights, ds;
        const int keys = held.place_of_key(step * kM);
        const u64 k = rows_at<kTileBytes>(held.k, keys);
        issue_scores<kTileRows, kM, kWidth / 16>(s, q, k);
        issue_scores<kTileRows, kM, kWidthV / 16>(dp, d_o, rows_at<kTileVBytes>(held.v, keys));
        weigh<false>(curve, s, dp, weights, ds, 0, 0, own, seen, step * kM);
        issue_gradient<kWidth, kM>(dq, ds, k);
        wgmma_wait<0>();
        Wgmma<kWidth>::pin(dq);
    }
    store_gradient<kWidth, HEAD_DIM>(dq, p.softmax_scale, (u16 *)row_of(p.dq, p.dq_strides, held.batch, h, first), p.dq_strides.row, p.seq_q - first);
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
    const Held held(p, (int)batch, (int)part * kOwn, keys, ROLES != 0 || !keys, ROLES == 0 && keys ? (int)group : 1);
    const u32 end = held.delta + (held.delta - held.lse) - held.q;
    if (held.q % 1024 != 0 || end > dynamic_shared_bytes()) asm volatile("trap;");   // descriptors and swizzles count on it
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
    const int worker = uniform((int)(threadIdx.x / kGroup)), tile = (int)part * kOwn + worker % kOwn;
    if (ROLES == 1 || (ROLES == 0 ? keys : worker < kOwn)) differentiate_keys(p, held, (int)head_k, tile);
    if (ROLES == 1 || (ROLES == 0 ? !keys : worker >= kOwn)) differentiate_queries(p, held, (int)head_q, tile);
}
