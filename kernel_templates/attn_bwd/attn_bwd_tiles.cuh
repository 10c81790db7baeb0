// SPDX-License-Identifier: Apache-2.0
//
// What families of attention backward decide in the same way: who sees whom, what lies in the workspace, and the
// launches before and after the main one.
//
// Purpose: dP = dO V^T, dS = P * (dP - delta), with delta = rowsum(dO * O) - dLSE and P = exp(S - LSE); dV = P^T dO, dK = dS^T Q,
// dQ = dS K. A block of the main launch owns BLOCK_N keys of one head of keys and walks the BLOCK_M queries of all heads that share
// it, so that dK and dV are sums in registers. dQ is summed in fp32 in the workspace, over the blocks, and rounded last
// (attn_bwd_short_sm90a has no workspace: blocks of queries have dQ to themselves).
// Invariants:
//  - the workspace: for each row of queries, rounded up to whole tiles (of each sequence: those of a head lie behind one another), its LSE times log2(e) and its delta; the sums of
//    dQ, a tile after another, D_TILE columns, in an order of the family's own (kDqPlace); DETERMINISTIC=1: a counter for each
//    tile. The first launch sets all of it.
//  - a row that does not exist or sees no key has LSE +inf, so that all its P are 0 and never NaN.
//  - DETERMINISTIC=1: blocks add to a tile of dQ in the order of their keys; the counter says whose turn it is. A block only waits for
//    blocks (of attn_bwd_sm90a: jobs) with smaller numbers, which start before it (find_owned). The order falls, and each head's tiles of
//    queries are walked upwards; for groups of heads under a causal mask it rises, and tiles of queries are walked downwards, each for all
//    heads of the group.
// Includers define the macros of operation.json, BLOCK_M, BLOCK_N, D_TILE and DV_TILE, and include what copies their tiles first
// (fa_copy.cuh or fa_tma_device.cuh).
#ifndef ATTN_BWD_TILES_CUH
#define ATTN_BWD_TILES_CUH

#include "attn_bwd_params.h"
#include "fa_global.cuh"
#include "fa_numeric.cuh"

extern __shared__ __align__(1024) unsigned char shared_memory[];

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kAligned = ALIGNED != 0;
constexpr bool kCausal = CAUSAL != 0, kWindow = WINDOW != 0, kSoftcap = SOFTCAP != 0, kSinks = SINKS != 0;
constexpr bool kDeterministic = DETERMINISTIC != 0, kVarlen = VARLEN != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kD = D_TILE, kDv = DV_TILE;
constexpr int kSideThreads = 256;   // of the first and of the last launch
constexpr float kLog2e = 1.44269504088896341f;
static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM <= kD && HEAD_DIM_V % 8 == 0 && HEAD_DIM_V <= kDv, "the heads do not fit their tiles");

// The same number, of which the compiler does not know where it comes from: what is computed from it is not kept in registers.
FA_DEVICE u32 opaque(u32 x) {
    u32 y;
    asm volatile("mov.b32 %0, %1;" : "=r"(y) : "r"(x));
    return y;
}

// ---- sequences -------------------------------------------------------------------------------------------------

// A batch of a dense problem, or one of the sequences that lie behind one another.
struct Sequence {
    int seq_q, seq_k, window_left, window_right;
    int batch;              // by which strides count: 0 where sequences lie behind one another
    i64 first_q, first_k;   // its first rows
    i64 first_tile;         // of queries, in the workspace of a head
};

// Where sequence b's tiles begin among those of all: each one's last tile may be a part, so it begins b tiles later than its rows do.
template <int kRows> FA_DEVICE i64 first_tile_of(const int *starts, int b) { return starts[b] / kRows + b; }

FA_DEVICE Sequence sequence_of(const fa_attn_bwd_params &p, int b) {
    if constexpr (!kVarlen) return {p.seq_q, p.seq_k, p.window_left, p.window_right, b, 0, 0, 0};
    const int q = p.cu_seqlens_q[b], k = p.cu_seqlens_k[b], len_q = p.cu_seqlens_q[b + 1] - q, len_k = p.cu_seqlens_k[b + 1] - k;
    return {len_q > 0 ? len_q : 0, len_k > 0 ? len_k : 0, p.window_left, p.window_right, 0, q, k, first_tile_of<kM>(p.cu_seqlens_q, b)};
}

// Of one head, as many as sequences of any lengths need.
template <int kRows> FA_DEVICE i64 tiles_of(const fa_attn_bwd_params &p, int rows) {
    return kVarlen ? (i64)rows / kRows + p.batch : ((i64)rows + kRows - 1) / kRows;
}
FA_DEVICE i64 tiles_of_queries(const fa_attn_bwd_params &p) { return tiles_of<kM>(p, p.seq_q); }
FA_DEVICE i64 batches_of(const fa_attn_bwd_params &p) { return kVarlen ? 1 : p.batch; }

// The number of the sequence of a tile of one head; `tile` becomes its own number in it, whose end it may lie behind. Dense: the batch.
template <int kRows, class Tile> FA_DEVICE int find_index(const fa_attn_bwd_params &p, const int *starts, int batch, Tile &tile) {
    if constexpr (!kVarlen) return batch;
    int low = 0, high = p.batch - 1;
    while (low < high) {
        const int middle = high - (high - low) / 2;
        if (first_tile_of<kRows>(starts, middle) <= tile) low = middle;
        else high = middle - 1;
    }
    tile -= (Tile)first_tile_of<kRows>(starts, low);
    return low;
}
template <int kRows> FA_DEVICE Sequence find_sequence(const fa_attn_bwd_params &p, const int *starts, int batch, i64 &tile) {
    return sequence_of(p, find_index<kRows>(p, starts, batch, tile));
}

// ---- who sees whom ---------------------------------------------------------------------------------------------

// Row i sees the keys j with i + low <= j <= i + high, and below seq_k.
struct Band {
    i64 low, high;
};
template <class Lengths> FA_DEVICE Band find_band(const Lengths &p) {
    constexpr i64 kAll = (i64)1 << 40;
    const i64 offset = CAUSAL == 2 ? 0 : (i64)p.seq_k - p.seq_q;   // a causal mask's top-left corner, or its bottom-right one
    Band band = {-kAll, kAll};
    if (kWindow && p.window_left >= 0) band.low = offset - p.window_left;
    if (kWindow && p.window_right >= 0) band.high = offset + p.window_right;
    if (kCausal && band.high > offset) band.high = offset;
    return band;
}

FA_DEVICE int clamp(i64 x, int most) { return x < 0 ? 0 : x > most ? most : (int)x; }

// The tiles of queries [first, end) that some key of a tile meets, of which [first_clear, end_clear) need no mask.
struct Meets {
    int first, end, first_clear, end_clear;
};
template <class Lengths> FA_DEVICE Meets find_meets(const Lengths &p, const Band &band, int key0) {
    const int last = key0 + kN < p.seq_k ? key0 + kN - 1 : p.seq_k - 1, tiles = (int)(((i64)p.seq_q + kM - 1) / kM);
    const i64 first_row = key0 - band.high, end_row = last - band.low + 1;             // of those that see some key
    const i64 clear_row = last - band.high, clear_end = key0 - band.low + 1;           // of those that see all of them
    Meets meets = {clamp(first_row, p.seq_q) / kM, (clamp(end_row, p.seq_q) + kM - 1) / kM, 0, 0};
    if (first_row >= p.seq_q || p.seq_k <= key0) meets.first = meets.end = tiles;
    if (key0 + kN <= p.seq_k) {
        meets.first_clear = (clamp(clear_row, p.seq_q) + kM - 1) / kM;
        meets.end_clear = clear_end >= p.seq_q ? tiles : clamp(clear_end, p.seq_q) / kM;
    }
    return meets;
}

// The keys of a tile from `key` on that a row sees: [low, high).
struct Seen {
    int low, high;
};
template <class Lengths> FA_DEVICE Seen find_seen(const Lengths &p, const Band &band, int row, int key) {
    const i64 end = row + band.high + 1;
    return {clamp(row + band.low, p.seq_k) - key, clamp(end, p.seq_k) - key};
}

// ---- the workspace ---------------------------------------------------------------------------------------------

#if D_BUFFERS > 0
constexpr i64 kSumsFloats = (i64)D_BUFFERS * 12;   // attn_bwd_buffers.cuh
#else
constexpr i64 kSumsFloats = 0;
#endif
FA_DEVICE float *behind_sums(void *workspace) { return (float *)workspace + kSumsFloats; }

struct Workspace {
    float *lse, *delta, *dq;   // of a head of queries (of all batches): the first row of a tile
    u32 *turns;                // the tile's counter

    __device__ __forceinline__ Workspace(const fa_attn_bwd_params &p, void *workspace, i64 head, i64 tile = 0) {
        const i64 tiles = tiles_of_queries(p), rows = tiles * kM, all = rows * p.heads_q * batches_of(p), row = head * rows + tile * kM;
        float *start = behind_sums(workspace);
        lse = start + row;
        delta = start + all + row;
        dq = start + 2 * all + row * kD;
        turns = (u32 *)(start + 2 * all + all * kD) + head * tiles + tile;
    }
};

FA_DEVICE float load_float(const float *from) {
    float x;
    asm volatile("ld.global.b32 %0, [%1];" : "=f"(x) : "l"(from) : "memory");
    return x;
}
FA_DEVICE void add_float(float *to, float x) {
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(to), "f"(x) : "memory");
}
FA_DEVICE void add_floats(float *to, float a, float b, float c, float d) {
#if __CUDA_ARCH__ >= 900
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(to), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
#else
    add_float(to, a), add_float(to + 1, b), add_float(to + 2, c), add_float(to + 3, d);
#endif
}

// Whether blocks add to a tile of dQ in the rising order of their keys.
FA_DEVICE bool is_rising(int group) { return kDeterministic && kCausal && group > 1; }
FA_DEVICE bool is_rising(const fa_attn_bwd_params &p) { return kDeterministic && kCausal && p.heads_q > p.heads_kv; }

// The steps of a tile of keys: the tiles of queries that meet it, for each head of its group. Downwards heads come innermost.
struct Walk {
    int tile, head;   // of queries; in the group
    bool down;

    __device__ __forceinline__ Walk(const Meets &meets, int group, bool down) : tile(down ? meets.end - 1 : meets.first), head(0), down(down) {}
    __device__ __forceinline__ Walk(const Meets &meets, int group) : Walk(meets, group, is_rising(group)) {}
    __device__ __forceinline__ void next(const Meets &meets, int group) {
        if (down) {
            if (++head == group) head = 0, --tile;
        } else {
            if (++tile == meets.end) tile = meets.first, ++head;
        }
    }
};

// Whose turn it is to add to a tile of dQ: a tile of keys; and, as the highest bit, that there are no sums yet, so that they are stored and
// not added. One thread waits for its own turn, and gives it to the next one.
constexpr u32 kStores = 0x80000000u;
struct Turn {
    bool here, stores;

    __device__ __forceinline__ Turn(const u32 *turn, int key_tile) {
        u32 now;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(turn) : "memory");
        here = (now & ~kStores) == (u32)key_tile, stores = now >= kStores;
    }
};
FA_DEVICE bool await_turn(const u32 *turn, int key_tile) {
    while (true) {
        const Turn now(turn, key_tile);
        if (now.here) return now.stores;
    }
}
FA_DEVICE int next_turn(int key_tile, bool rising) { return key_tile + (rising ? 1 : -1); }
FA_DEVICE void give_turn(u32 *turn, int key_tile) { asm volatile("st.release.gpu.global.u32 [%0], %1;" :: "l"(turn), "r"(key_tile) : "memory"); }
// The first tile of keys, in that order, that meets a tile of queries, if any does.
template <class Lengths> FA_DEVICE u32 first_turn(const Lengths &p, int query_tile, bool rising) {
    if (rising) return (u32)clamp((i64)query_tile * kM + find_band(p).low, p.seq_k) / kN;
    const i64 end_row = (i64)query_tile * kM + kM, last = (end_row < p.seq_q ? end_row : p.seq_q) - 1 + find_band(p).high;
    return (u32)(last < p.seq_k ? last : (i64)p.seq_k - 1) / kN;
}

// Which tile of keys, counted through all heads of keys (of all batches), the block or job of a number owns. DETERMINISTIC=1: the same
// tile of some heads has neighbouring numbers, so that few tiles of a head start together; their dQ, Q and dO fit the L2 cache.
// In falling order tiles of keys under a mask that follows the diagonal wait for nobody: one comes to a tile of queries some steps after
// the tile behind it did. But the longest jobs, of the first keys, come last: for groups of heads they are long enough to be waited for.
// In rising order these come first, and each tile waits a step for the one before it, once.
FA_DEVICE u32 find_owned(u32 number, u32 key_tiles, u32 kv_heads, u32 group) {
    if constexpr (!kDeterministic) return number;
    const bool rising = is_rising((int)group);
    u32 heads;
    if (rising) {
        constexpr u32 kHeadsAtOnce = kWindow ? 8 : 48;   // of queries
        const u32 most = kHeadsAtOnce > group ? kHeadsAtOnce / group : 1, parts = (kv_heads + most - 1) / most;
        heads = (kv_heads + parts - 1) / parts;
    } else {
        constexpr u32 kAtOnce = 256;   // tiles, about twice as many as there are blocks at a time
        heads = kAtOnce > key_tiles ? kAtOnce / key_tiles : 1;
    }
    const u32 first = number / (heads * key_tiles) * heads, place = number - first * key_tiles;
    if (heads > kv_heads - first) heads = kv_heads - first;
    const u32 turn = place / heads;
    return (first + place - turn * heads) * key_tiles + (rising ? turn : key_tiles - 1 - turn);
}

// ---- scores ----------------------------------------------------------------------------------------------------

// What exp2 is taken of, less a row's LSE, and by what dS is multiplied.
struct Curve {
    float scale, rate, factor;   // SOFTCAP: exponent = factor * tanh(x), with rate = 2 log2(e) x / score

    __device__ __forceinline__ explicit Curve(const fa_attn_bwd_params &p) {
        scale = p.softmax_scale * kLog2e;
        rate = factor = 0.0f;
        if (!kSoftcap) return;
        rate = 2.0f * kLog2e * p.softmax_scale * reciprocal(p.softcap);
        factor = p.softcap * kLog2e;
    }
    __device__ __forceinline__ float weight(float score, float lse, float &slope) const {
        if constexpr (!kSoftcap) return exp2_fast(score * scale - lse);
        const float tangent = 1.0f - 2.0f * reciprocal(1.0f + exp2_fast(score * rate));
        slope = 1.0f - tangent * tangent;
        return exp2_fast(factor * tangent - lse);
    }
};

#define PLACES (SCORE_SNIPPET || MASK_SNIPPET || DROPOUT)   // whether anything is asked about a score's place
#if DROPOUT
#define AS_KEPT * dropout_scale(p.buffer)   // of dP that is kept
#define DV_SCALE dropout_scale(p.buffer)
#else
#define AS_KEPT
#define DV_SCALE 1.0f
#endif
#if PLACES
} // namespace

#ifndef SKIPS
#define SKIPS (MASK_SNIPPET && !DETERMINISTIC)
#endif
#include "attn_bwd_snippet.cuh"

namespace {
#endif
#if SKIPS
using Steps = ListedWalk;
FA_DEVICE void go_on(Steps &walk, const Meets &, int, int left) { walk.next(left > 0); }
#else
using Steps = Walk;
FA_DEVICE void go_on(Steps &walk, const Meets &meets, int group, int) { walk.next(meets, group); }
#endif

// ---- memory ----------------------------------------------------------------------------------------------------

FA_DEVICE const u16 *row_of(const void *tensor, const fa_attn_bwd_strides &s, i64 batch, i64 head, i64 row) {
    return (const u16 *)tensor + batch * s.batch + head * s.head + row * s.row;
}
// A row's delta, of its sum of dO * O. Where the LSE is -inf, its gradient is not read: autograd may leave NaN there.
FA_DEVICE float delta_of(const fa_attn_bwd_params &p, const Sequence &s, i64 head, i64 row, float sum, float lse) {
#if D_LSE
    const float *d_lse = p.d_lse + s.batch * p.d_lse_strides.batch + head * p.d_lse_strides.head;
    if (lse != neg_infinity()) sum -= d_lse[s.first_q + row];
#endif
    return sum;
}
FA_DEVICE void store_pair(u16 *to, float a, float b) {
    const u32 pair = pack2<kBf16>(a, b);
    if constexpr (kAligned) {
        *(u32 *)to = pair;
    } else {
        to[0] = (u16)pair;
        to[1] = (u16)(pair >> 16);
    }
}

// The first launch: a block for each tile of queries of a head, a warp for each of its rows.
FA_DEVICE void prepare_tile(const fa_attn_bwd_params &p, void *workspace) {
    const i64 tiles = tiles_of_queries(p);
    if (blockIdx.x >= tiles * p.heads_q * batches_of(p)) return;
    i64 tile = blockIdx.x % tiles;
    const i64 head = blockIdx.x / tiles, h = head % p.heads_q;
    const Workspace at(p, workspace, head, tile);
    const Sequence s = find_sequence<kM>(p, p.cu_seqlens_q, (int)(head / p.heads_q), tile);
    const int lane = threadIdx.x % 32;
    if (kDeterministic && threadIdx.x == 0) *at.turns = first_turn(s, (int)tile, is_rising(p));
    for (int r = threadIdx.x / 32; r < kM; r += kSideThreads / 32) {
        const i64 row = tile * kM + r;
        float sum = 0.0f, lse = -neg_infinity();
        if (row < s.seq_q) {
            const u16 *o = row_of(p.o, p.o_strides, s.batch, h, s.first_q + row);
            const u16 *d_o = row_of(p.d_o, p.d_o_strides, s.batch, h, s.first_q + row);
            for (int d = lane * 2; d < HEAD_DIM_V; d += 64) {
                u32 x, y;
                if constexpr (kAligned) x = *(const u32 *)(o + d), y = *(const u32 *)(d_o + d);
                else x = o[d] | (u32)o[d + 1] << 16, y = d_o[d] | (u32)d_o[d + 1] << 16;
                sum += to_float<kBf16>((u16)x) * to_float<kBf16>((u16)y);
                sum += to_float<kBf16>((u16)(x >> 16)) * to_float<kBf16>((u16)(y >> 16));
            }
            sum = warp_sum(sum);
            const float said = p.lse[s.batch * p.lse_strides.batch + h * p.lse_strides.head + s.first_q + row];
            if (said != neg_infinity()) lse = said * kLog2e;
            sum = delta_of(p, s, h, row, sum, said);
        }
        if (lane == 0) at.lse[r] = lse, at.delta[r] = sum;
    }
    const float zeros[4] = {};
    for (int i = threadIdx.x; i < kM * kD / 4; i += kSideThreads) store_floats(at.dq + 4 * i, zeros);
}

// A sink's part in the sum of its rows' softmax: d sink = -sum of exp(sink - LSE) * delta, over all rows of its head.
FA_DEVICE void finish_sink(const fa_attn_bwd_params &p, void *workspace, int h) {
    float *parts = (float *)shared_memory;   // of a warp each
    float sum = 0.0f;
    if constexpr (kSinks) {
        const float sink = p.sinks[h] * kLog2e;
        for (i64 b = 0; b < batches_of(p); b++) {
            const Workspace at(p, workspace, b * p.heads_q + h);
            // Rows that do not exist have LSE +inf and delta 0.
            for (i64 row = threadIdx.x; row < tiles_of_queries(p) * kM; row += kSideThreads)
                sum += exp2_fast(sink - at.lse[row]) * at.delta[row];
        }
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    block_sync();
    if (threadIdx.x != 0) return;
    sum = 0.0f;
    for (int i = 0; i < kSideThreads / 32; i++) sum += parts[i];
    if (p.d_sinks) p.d_sinks[h] = 0.0f - sum;
}

// The last launch: a block for each tile of queries of a head, then one for each head's sink. `Place` says where the sums of
// columns d and d + 1 (d even) of a row lie in their tile; they are neighbours.
template <class Place> FA_DEVICE void finish_tile(const fa_attn_bwd_params &p, void *workspace) {
    const i64 tiles = tiles_of_queries(p), all = tiles * p.heads_q * batches_of(p);
    if (blockIdx.x >= all) {
        if (blockIdx.x - all < p.heads_q) finish_sink(p, workspace, (int)(blockIdx.x - all));
        return;
    }
    i64 tile = blockIdx.x % tiles;
    const i64 head = blockIdx.x / tiles, h = head % p.heads_q;
    const float *dq = Workspace(p, workspace, head, tile).dq;
    const Sequence s = find_sequence<kM>(p, p.cu_seqlens_q, (int)(head / p.heads_q), tile);
    for (int i = threadIdx.x; i < kM * kD / 2; i += kSideThreads) {
        int row, column;
        float sum[2];
        load_floats(sum, dq + 2 * i);
        Place::element(2 * i, row, column);
        if (tile * kM + row >= s.seq_q || column >= HEAD_DIM) continue;
        u16 *to = (u16 *)row_of(p.dq, p.dq_strides, s.batch, h, s.first_q + tile * kM + row);
        store_pair(to + column, sum[0] * p.softmax_scale, sum[1] * p.softmax_scale);
    }
}

// Two neighbouring columns of a row of dK or dV.
FA_DEVICE void store_key(void *tensor, const fa_attn_bwd_strides &s, i64 batch, i64 head, i64 key, int column, float a, float b) {
    store_pair((u16 *)row_of(tensor, s, batch, head, key) + column, a, b);
}

} // namespace

#if D_BUFFERS > 0
#include "attn_bwd_buffers.cuh"
#endif

#endif
