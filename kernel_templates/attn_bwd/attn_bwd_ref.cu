// SPDX-License-Identifier: Apache-2.0
//
// The judge of attention backward kernels: every gradient by its definition, in what amounts to fp32.
//
// Workload: a block for each 64 rows and 64 columns of an output; dK and dV go together, dQ for itself. It goes over all rows
// that those meet, computes the scores of a tile anew, and adds up weights times rows. `inputs` makes what backward takes from
// forward: O, rounded, and its LSE. Outputs of `reference` are packed arrays of float, whatever they are; strides are of the inputs.
// Numbers: tensor cores multiply tf32, which every fp16 and bf16 number is; a weight is two of them, and what is left of it is
// below 2^-22 of it. They cut sums off where fp32 rounds, so such a sum is a score's or over the 64 rows of a tile; those of tiles
// are added in fp32.
// Loops are not unrolled, with sums in local memory, because a first answer waits for this file's compilation.
#include "attn_bwd_params.h"
#include "fa_numeric.cuh"
#if SCORE_SNIPPET || MASK_SNIPPET || DROPOUT
#include "attn_snippet.cuh"
#endif

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kVarlen = VARLEN != 0;
constexpr int kThreads = 128, kTile = 64;   // rows of a tile, of which a warp owns 16, and columns at a time
constexpr int kPieces = ((HEAD_DIM > HEAD_DIM_V ? HEAD_DIM : HEAD_DIM_V) + kTile - 1) / kTile;   // of a row

struct alignas(16) Eight {
    u16 x[8];
};
struct alignas(16) Matrix {
    u16 at[kTile][kTile + 8];   // neighbouring rows begin 4 banks apart
};
__shared__ Matrix matrices[4];
__shared__ float tile_lse[kTile], tile_delta[kTile];   // of the queries
__shared__ double sums[kThreads];

// Rows [first, first + kTile) of one head; those from `end` on are 0, and so are columns from `columns` on.
struct Rows {
    const u16 *head;
    i64 step, first, end;
    int columns;
};

FA_DEVICE Rows rows_of(const void *tensor, const fa_attn_bwd_strides &s, i64 b, i64 h, i64 first, i64 end, int columns) {
    return {(const u16 *)tensor + b * s.batch + h * s.head, s.row, first, end, columns};
}

FA_DEVICE Eight load_eight(const Rows &a, i64 row, int column) {
    Eight eight = {};
    const u16 *from = a.head + (a.first + row) * a.step + column;
    if (a.first + row >= a.end || column >= a.columns) return eight;
    if constexpr (ALIGNED != 0) eight = *(const Eight *)from;
    else for (int i = 0; i < 8; i++) eight.x[i] = from[i];
    return eight;
}

// The key at which a row stands.
FA_DEVICE i64 stands(const fa_attn_bwd_params &p, i64 row) { return row + (CAUSAL == 2 ? 0 : (i64)p.seq_k - p.seq_q); }

FA_DEVICE bool sees(const fa_attn_bwd_params &p, i64 row, i64 key) {
    const i64 ahead = key - stands(p, row);
    if (row >= p.seq_q || key >= p.seq_k || (CAUSAL && ahead > 0)) return false;
    if (WINDOW && p.window_left >= 0 && ahead < -(i64)p.window_left) return false;
    return !(WINDOW && p.window_right >= 0 && ahead > p.window_right);
}

// Whether any of a tile's rows may see any of its keys; and whether all see all.
FA_DEVICE bool meet(const fa_attn_bwd_params &p, i64 row, i64 key) {
    const i64 ahead = key - stands(p, row);   // that of the first of both
    if (CAUSAL && ahead - (kTile - 1) > 0) return false;
    if (WINDOW && p.window_left >= 0 && ahead + (kTile - 1) < -(i64)p.window_left) return false;
    return !(WINDOW && p.window_right >= 0 && ahead - (kTile - 1) > p.window_right);
}
FA_DEVICE bool all_meet(const fa_attn_bwd_params &p, i64 row, i64 key) {
    return sees(p, row, key + kTile - 1) && sees(p, row + kTile - 1, key);
}

// ---- sequences -------------------------------------------------------------------------------------------------
// Where sequence b of a proof begins, of n that share some rows: every fourth or third one is empty.
FA_DEVICE i64 start_of(i64 b, i64 n, i64 rows, int period) {
    if (b % period == period - 1) b = b + 1 < n ? b + 1 : n;
    return b * rows / n + (b < n && b % period > 0 ? (b * 37 % 11 - 5) * (rows / n) / 16 : 0);
}

// The problem of sequence b alone, as a batch of 1. Outputs of the reference keep their heads' distance.
FA_DEVICE fa_attn_bwd_params sequence_of(fa_attn_bwd_params p, i64 q, i64 end_q, i64 k, i64 end_k) {
    const auto rows = [](const void *x, const fa_attn_bwd_strides &s, i64 row) { return (u16 *)x + row * s.row; };
    p.q = rows(p.q, p.q_strides, q), p.o = rows(p.o, p.o_strides, q), p.d_o = rows(p.d_o, p.d_o_strides, q);
    p.k = rows(p.k, p.k_strides, k), p.v = rows(p.v, p.v_strides, k);
    p.lse += q;
#if D_LSE
    p.d_lse += q;
#endif
    p.dq = (float *)p.dq + q * HEAD_DIM, p.dk = (float *)p.dk + k * HEAD_DIM, p.dv = (float *)p.dv + k * HEAD_DIM_V;
    p.seq_q = (int)(end_q - q), p.seq_k = (int)(end_k - k), p.batch = 1;
    return p;
}
FA_DEVICE fa_attn_bwd_params sequence_of(const fa_attn_bwd_params &p, i64 b) {
    return sequence_of(p, p.cu_seqlens_q[b], p.cu_seqlens_q[b + 1], p.cu_seqlens_k[b], p.cu_seqlens_k[b + 1]);
}

// ---- tiles -----------------------------------------------------------------------------------------------------
// Of own rows 0: Q or K, 1: dO or V; of the other ones 2 and 3.
FA_DEVICE Rows rows_of(const fa_attn_bwd_params &p, bool of_keys, int which, i64 b, i64 h, i64 row, i64 key) {
    const bool queries = (which < 2) != of_keys, of_v = which % 2 != 0;
    const fa_attn_bwd_strides &s = queries ? of_v ? p.d_o_strides : p.q_strides : of_v ? p.v_strides : p.k_strides;
    const void *tensor = queries ? of_v ? p.d_o : p.q : of_v ? p.v : p.k;
    return rows_of(tensor, s, b, queries ? h : h / (p.heads_q / p.heads_kv), queries ? row : key, queries ? p.seq_q : p.seq_k,
                   of_v ? HEAD_DIM_V : HEAD_DIM);
}

// By one warp.
FA_DEVICE void load_matrix(Matrix &to, const Rows &from, int column) {
    const int lane = threadIdx.x % 32, piece = lane % 8 * 8;
#pragma unroll 8
    for (int row = lane / 8; row < kTile; row += 4) *(Eight *)&to.at[row][piece] = load_eight(from, row, column + piece);
}

FA_DEVICE void multiply_add(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(float_to_bits(a[0])), "r"(float_to_bits(a[1])), "r"(float_to_bits(a[2])), "r"(float_to_bits(a[3])),
          "r"(float_to_bits(b[0])), "r"(float_to_bits(b[1])));
}

// Of 16 rows of a warp and 64 columns a lane has rows y and y + 8 and of each 8 columns 2 x and 2 x + 1.
typedef float Part[8][4];
FA_DEVICE int row_of(int i) { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + i % 4 / 2 * 8; }
FA_DEVICE int column_of(int i) { return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2; }

// sum += own rows . other rows. The order of the 8 columns that are multiplied at a time is free: a lane has two neighbours.
FA_DEVICE void add_products(Part &sum, const Matrix &own, const Matrix &other, int columns) {
    const auto two = [](const u16 *at) { return *(const u32 *)at; };
    const auto low = [](u32 pair) { return to_float<kBf16>((u16)pair); };
    const auto high = [](u32 pair) { return to_float<kBf16>((u16)(pair >> 16)); };
    Part kept;   // in registers
#pragma unroll
    for (int j = 0; j < 32; j++) kept[j / 4][j % 4] = sum[j / 4][j % 4];
#pragma unroll 1
    for (int first = 0; first < columns; first += 8) {
        const int column = first + column_of(0);
        const u32 upper = two(&own.at[row_of(0)][column]), lower = two(&own.at[row_of(2)][column]);
        const float a[4] = {low(upper), low(lower), high(upper), high(lower)};
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const u32 pair = two(&other.at[8 * j + threadIdx.x % 32 / 4][column]);
            const float b[2] = {low(pair), high(pair)};
            multiply_add(kept[j], a, b);
        }
    }
#pragma unroll
    for (int j = 0; j < 32; j++) sum[j / 4][j % 4] = kept[j / 4][j % 4];
}

// total += weights . other rows.
FA_DEVICE void add_weighted(Part &total, const Part &weight, const Matrix &other) {
    Part sum = {};
#pragma unroll 1
    for (int j = 0; j < 8; j++) {
        float high[4], low[4];
        for (int i = 0; i < 4; i++) {
            const float x = weight[j][i / 2 + i % 2 * 2];
            high[i] = bits_to_float((float_to_bits(x) + 0x1000) & 0xffffe000u);
            low[i] = bits_to_float(float_to_bits(x - high[i]) & 0xffffe000u);
        }
        const u16 *rows = &other.at[8 * j + column_of(0)][threadIdx.x % 32 / 4];
#pragma unroll
        for (int n = 0; n < 8; n++) {
            const float b[2] = {to_float<kBf16>(rows[8 * n]), to_float<kBf16>(rows[8 * n + (kTile + 8)])};
            multiply_add(sum[n], high, b);
            multiply_add(sum[n], low, b);
        }
    }
    for (int n = 0; n < 8; n++)
        for (int i = 0; i < 4; i++) total[n][i] += sum[n][i];
}

// What softmax takes of a product, and by what the product's scaled value changes it. index: of the sequence.
struct Score {
    float x, slope;
};
FA_DEVICE Score score(const fa_attn_bwd_params &p, float product, i64 index, i64 h, i64 row, i64 key) {
    const float plain = product * p.softmax_scale, x = SOFTCAP ? p.softcap * tanhf(plain / p.softcap) : plain;
    const float slope = SOFTCAP ? 1 - x * x / (p.softcap * p.softcap) : 1;
#if SCORE_SNIPPET
    const auto bent = snippet_score<SnippetSlopes<SnippetPlain<double>, double>>(
        {x, slope}, (int)index, (int)h, (int)h / (p.heads_q / p.heads_kv), (int)stands(p, row), (int)key, p.seq_q, p.seq_k AND_BUFFERS(p.buffer));
    return {(float)snippet_value(bent), (float)snippet_slope(bent)};
#endif
    return {x, slope};
}
#if D_BUFFERS > 0
#ifndef GRADIENT_SITES
#define GRADIENT_SITES(F)
#endif
// What a product adds to the gradient of the element that a text reads at a site.
template <int kSite> FA_DEVICE void add_of_site(const fa_attn_bwd_params &p, float *gradient, float product, float ds, i64 index, i64 h, i64 row, i64 key) {
    const double plain = (double)product * p.softmax_scale, x = SOFTCAP ? p.softcap * tanh(plain / p.softcap) : plain;
    i64 at = 0;
    const auto bent = snippet_score<SnippetSlopes<SnippetPlain<double>, double>>(
        SnippetSlope<double>{x, 0}, (int)index, (int)h, (int)h / (p.heads_q / p.heads_kv), (int)stands(p, row), (int)key, p.seq_q, p.seq_k,
        MarkedBuffers<kSite, double>{p.buffer, &at});
    asm volatile("red.relaxed.gpu.global.add.f32 [%0], %1;" :: "l"(gradient + at), "f"((float)(ds * snippet_slope(bent))) : "memory");
}
#endif
FA_DEVICE bool is_masked(const fa_attn_bwd_params &p, i64 index, i64 h, i64 row, i64 key) {
#if MASK_SNIPPET
    return !snippet_mask<SnippetPlain<double>>((int)index, (int)h, (int)h / (p.heads_q / p.heads_kv), (int)stands(p, row), (int)key, p.seq_q, p.seq_k AND_BUFFERS(p.buffer));
#endif
    return false;
}

// The sum of dO * O of a row.
FA_DEVICE float multiply_row(const Rows &o, const Rows &d_o, int row, int first, int step) {
    float sum = 0;
#pragma unroll 2
    for (int d = first; d < HEAD_DIM_V; d += step) {
        const Eight x = load_eight(o, row, d), y = load_eight(d_o, row, d);
        for (int i = 0; i < 8; i++) sum += to_float<kBf16>(x.x[i]) * to_float<kBf16>(y.x[i]);
    }
    return sum;
}

// The gradient of a row's LSE; 0 where the LSE is -inf.
FA_DEVICE float d_lse_of(const fa_attn_bwd_params &p, i64 b, i64 h, i64 row) {
#if D_LSE
    if (row < p.seq_q && p.lse[b * p.lse_strides.batch + h * p.lse_strides.head + row] > neg_infinity())
        return p.d_lse[b * p.d_lse_strides.batch + h * p.d_lse_strides.head + row];
#endif
    return 0;
}

// LSE and the sum of dO * O of a tile of queries, less dLSE, which the next __syncthreads() shows to all. Two threads have a row.
FA_DEVICE void load_row_sums(const fa_attn_bwd_params &p, i64 b, i64 h, i64 first) {
    const int row = threadIdx.x / 2;
    const float sum = multiply_row(rows_of(p.o, p.o_strides, b, h, first, p.seq_q, HEAD_DIM_V),
                                   rows_of(p.d_o, p.d_o_strides, b, h, first, p.seq_q, HEAD_DIM_V), row, threadIdx.x % 2 * 8, 16);
    tile_delta[row] = sum + shuffle_xor(sum, 1) - d_lse_of(p, b, h, first + row);
    const float lse = first + row < p.seq_q ? p.lse[b * p.lse_strides.batch + h * p.lse_strides.head + first + row] : 0.0f;
    tile_lse[row] = lse > neg_infinity() ? lse : -neg_infinity();   // of scores of -inf alone, too, no weight
}

// ---- gradients, and O ------------------------------------------------------------------------------------------
enum Kind { kOut, kDq, kDkDv };
enum { kOfV, kOfK };   // sums: dV or O; dK or dQ. Weights: P, dS.

struct Sums {
    Part total[2];
    float largest[2], weight[2];   // of O's rows y and y + 8: the largest score, what the weights of this lane's columns add up to
};

// Softmax as it goes: what was added up becomes relative to the largest score so far. kept: a bit for each score; what is kept is scaled.
FA_DEVICE void weigh_out(Sums &sums, Part &s, u32 kept, float scale) {
#pragma unroll 1
    for (int half = 0; half < 4; half += 2) {
        float &so_far = sums.largest[half / 2], largest = so_far, weight = 0;
        for (int j = 0; j < 8; j++) largest = max2(largest, max2(s[j][half], s[j][half + 1]));
        largest = quad_max(largest);
        const float base = largest > neg_infinity() ? largest : 0, before = expf(so_far - base);
#pragma unroll 1
        for (int j = 0; j < 8; j++)
            for (int i = half; i < half + 2; i++) {
                s[j][i] = expf(s[j][i] - base), weight += s[j][i];
                s[j][i] = kept >> (4 * j + i) & 1 ? s[j][i] * scale : 0;
                sums.total[kOfV][j][i] *= before;
            }
        so_far = largest, sums.weight[half / 2] = sums.weight[half / 2] * before + weight;
    }
}

// Adds up for one tile of own rows what one tile of other rows gives to 64 columns.
FA_DEVICE void add_tile(const fa_attn_bwd_params &p, Kind kind, Sums &sums, i64 b, i64 index, i64 h, i64 row, i64 key, int column) {
    const bool of_keys = kind == kDkDv, forward = kind == kOut;
    const int warp = threadIdx.x / 32;
    const Rows mine = rows_of(p, of_keys, warp, b, h, row, key);
    Part weight[2] = {};
#pragma unroll 1
    for (int piece = 1; piece <= kPieces; piece++) {   // that of the output's columns last, so that it stays
        const int at = (column + piece * kTile) % (kPieces * kTile);
        __syncthreads();
        if (!forward || warp != 1) load_matrix(matrices[warp], mine, at);
        if (of_keys && piece == 1) load_row_sums(p, b, h, row);
        __syncthreads();
#pragma unroll 1
        for (int i = 0; i < 2 - forward; i++) {   // S, and dP
            const int left = (i == 0 ? HEAD_DIM : HEAD_DIM_V) - at;
            add_products(weight[i], matrices[i], matrices[2 + i], left < kTile ? left : kTile);
        }
    }
    const bool all = all_meet(p, row, key);
    u32 kept = 0xffffffffu;
    float scale = 1;
#if DROPOUT
    const Dropout dropout(p.buffer, index * p.heads_q + h);
    scale = dropout_scale(p.buffer);
#endif
#pragma unroll 2
    for (int i = 0; i < 32; i++) {
        const int query = of_keys ? column_of(i) : row_of(i), other = of_keys ? row_of(i) : column_of(i);
        const bool seen = (all || sees(p, row + query, key + other)) && !is_masked(p, index, h, row + query, key + other);
        float &weigh = weight[0][i / 4][i % 4], &slope = weight[1][i / 4][i % 4];
        const Score is = score(p, weigh, index, h, row + query, key + other);
#if DROPOUT
        if (!dropout.keeps(row + query, key + other)) kept &= ~(1u << i);
#endif
        const float share = kept >> i & 1 ? scale : 0;
        slope *= share;
        const float x = seen ? is.x : neg_infinity();
#if D_BUFFERS > 0
        if (kind == kDq && column == 0 && seen) {
            const float ds = expf(x - tile_lse[query]) * (slope - tile_delta[query]);
#define ADD_SITE(ordinal, site, buffer) if (ds != 0) add_of_site<site>(p, p.d_buffer[buffer], weigh, ds, index, h, row + query, key + other);
            GRADIENT_SITES(ADD_SITE)
        }
#endif
        weigh = forward ? x : seen ? expf(x - tile_lse[query]) : 0.0f;
        if (forward) continue;
        slope = !seen ? 0.0f : weigh * (slope - tile_delta[query]) * (weigh == 0 ? 1 : is.slope);
        weigh *= share;
    }
    if (forward) weigh_out(sums, weight[0], kept, scale);
#pragma unroll 1
    for (int i = kind == kDq ? kOfK : kOfV; i <= (forward ? kOfV : kOfK); i++) add_weighted(sums.total[i], weight[i], matrices[3 - i]);
}

FA_DEVICE void store_out(const fa_attn_bwd_params &p, const Sums &sums, i64 b, i64 h, i64 first, int column) {
#pragma unroll 1
    for (int half = 0; half < 4; half += 2) {
        const i64 row = first + row_of(half);
        const float sink = SINKS ? p.sinks[h] : neg_infinity(), largest = sums.largest[half / 2], most = max2(sink, largest);
        const float own = most > neg_infinity() ? expf(largest - most) : 0.0f;
        const float all = quad_sum(sums.weight[half / 2]) * own + (SINKS ? expf(sink - most) : 0.0f);
        if (row >= p.seq_q) continue;
        ((float *)p.lse)[b * p.lse_strides.batch + h * p.lse_strides.head + row] = all > 0 ? most + logf(all) : neg_infinity();
        u16 *to = (u16 *)p.o + b * p.o_strides.batch + h * p.o_strides.head + row * p.o_strides.row + column;
#pragma unroll 1
        for (int i = half; i < 32; i += i % 2 ? 3 : 1)
            if (column + column_of(i) < HEAD_DIM_V)
                to[column_of(i)] = from_float<kBf16>(all > 0 ? sums.total[kOfV][i / 4][i % 4] * own / all : 0.0f);
    }
}

// rows_of_head: between two heads of an output. sequence: its number. No function that is inlined: one for both kernels.
static __device__ __noinline__ void one_tile(const fa_attn_bwd_params &p, Kind kind, i64 id, i64 rows_of_head, i64 sequence) {
    const bool of_keys = kind == kDkDv;
    const i64 own_rows = of_keys ? p.seq_k : p.seq_q, other_rows = of_keys ? p.seq_q : p.seq_k;
    const i64 tiles = (own_rows + kTile - 1) / kTile, heads = of_keys ? p.heads_kv : p.heads_q, group = p.heads_q / p.heads_kv;
    const int column = (int)(id % kPieces) * kTile;
    id /= kPieces;
    const i64 own = id % tiles * kTile, head = id / tiles % heads, b = id / tiles / heads;
    const i64 first = of_keys ? head * group : head, last = of_keys ? first + group : first + 1;
    Sums sums = {{}, {neg_infinity(), neg_infinity()}, {}};
    __syncthreads();
    if (kind == kDq) load_row_sums(p, b, head, own);
#pragma unroll 1
    for (i64 h = first; h < last; h++)
#pragma unroll 1
        for (i64 other = 0; other < other_rows; other += kTile) {
            const i64 row = of_keys ? other : own, key = of_keys ? own : other;
            if (meet(p, row, key)) add_tile(p, kind, sums, b, kVarlen ? sequence : b, h, row, key, column);
        }
    if (kind == kOut) store_out(p, sums, b, head, own, column);
#pragma unroll 1
    for (int i = kind == kDq ? kOfK : kOfV; kind != kOut && i <= kOfK; i++) {
        const int columns = i == kOfV ? HEAD_DIM_V : HEAD_DIM;
        float *to = (float *)(i == kOfV ? p.dv : of_keys ? p.dk : p.dq) + ((b * heads + head) * rows_of_head + own) * columns + column;
#pragma unroll 1
        for (int j = 0; j < 32; j++)
            if (own + row_of(j) < own_rows && column + column_of(j) < columns)
                to[(i64)row_of(j) * columns + column_of(j)] = sums.total[i][j / 4][j % 4] * (i == kOfV ? 1 : p.softmax_scale);
    }
}

FA_DEVICE void one_sink(const fa_attn_bwd_params &p, i64 h) {
    double sum = 0;
    for (i64 id = threadIdx.x; SINKS && id < (i64)(kVarlen ? 1 : p.batch) * p.seq_q; id += kThreads) {
        const i64 b = id / p.seq_q, row = id % p.seq_q;
        const Rows o = rows_of(p.o, p.o_strides, b, h, row, p.seq_q, HEAD_DIM_V);
        const Rows d_o = rows_of(p.d_o, p.d_o_strides, b, h, row, p.seq_q, HEAD_DIM_V);
        const double delta = (double)multiply_row(o, d_o, 0, 0, 8) - d_lse_of(p, b, h, row);
        sum += expf(p.sinks[h] - p.lse[b * p.lse_strides.batch + h * p.lse_strides.head + row]) * delta;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 1; threadIdx.x == 0 && i < kThreads; i++) sum += sums[i];
    if (threadIdx.x == 0) p.d_sinks[h] = (float)-sum;
    __syncthreads();
}

// Blocks' work: 64 columns of a tile.
FA_DEVICE i64 pieces_of(i64 rows, i64 heads, i64 batch) { return (rows + kTile - 1) / kTile * heads * batch * kPieces; }

} // namespace

// By blocks of kThreads.
extern "C" __global__ void __launch_bounds__(kThreads) reference(const __grid_constant__ fa_attn_bwd_params all) {
    i64 done = 0;   // tiles of the sequences before
#pragma unroll 1
    for (int b = 0; b < (kVarlen ? all.batch : 1); b++) {
        const fa_attn_bwd_params p = kVarlen ? sequence_of(all, b) : all;
        const i64 queries = pieces_of(p.seq_q, p.heads_q, p.batch), keys = pieces_of(p.seq_k, p.heads_kv, p.batch);
        for (i64 i = (blockIdx.x + gridDim.x - done % gridDim.x) % gridDim.x; i < keys + queries; i += gridDim.x)
            one_tile(p, i < keys ? kDkDv : kDq, i < keys ? i : i - keys, i < keys ? all.seq_k : all.seq_q, b);
        done += keys + queries;
    }
    for (i64 h = blockIdx.x; h < all.heads_q; h += gridDim.x) one_sink(all, h);
}

// O and LSE of forward; and where sequences of several lengths begin.
extern "C" __global__ void __launch_bounds__(kThreads) inputs(const __grid_constant__ fa_attn_bwd_params all) {
    i64 done = 0;
    const i64 n = all.batch;
    for (i64 b = blockIdx.x * (i64)kThreads + threadIdx.x; kVarlen && n > 0 && b <= n; b += gridDim.x * (i64)kThreads) {
        ((int *)all.cu_seqlens_q)[b] = (int)start_of(b, n, all.seq_q, 4);
        ((int *)all.cu_seqlens_k)[b] = (int)start_of(b, n, all.seq_k, 3);
    }
#pragma unroll 1
    for (i64 b = 0; b < (kVarlen ? n : 1); b++) {
        const fa_attn_bwd_params p =
            kVarlen ? sequence_of(all, start_of(b, n, all.seq_q, 4), start_of(b + 1, n, all.seq_q, 4), start_of(b, n, all.seq_k, 3),
                                  start_of(b + 1, n, all.seq_k, 3))
                    : all;
        const i64 own = pieces_of(p.seq_q, p.heads_q, p.batch);
        for (i64 i = (blockIdx.x + gridDim.x - done % gridDim.x) % gridDim.x; i < own; i += gridDim.x) one_tile(p, kOut, i, 0, b);
        done += own;
    }
}
