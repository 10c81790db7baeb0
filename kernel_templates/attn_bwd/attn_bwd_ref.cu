// SPDX-License-Identifier: Apache-2.0
//
// The judge of attention backward kernels: every gradient by its definition, in fp32.
//
// Workload: a block for each tile of 64 rows of an output, dQ, dK and dV each for itself: it goes over all rows that
// those meet, computes the scores of a tile anew, and adds up weights times rows. No rounding, no tensor cores, nothing
// shared between the three but that. `inputs` makes what backward takes from forward: O, rounded, and its LSE.
// Outputs of `reference` are packed arrays of float, whatever they are; strides are of the inputs.
#include "attn_bwd_params.h"
#include "fa_numeric.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kVarlen = VARLEN != 0;
constexpr int kThreads = 128, kTile = 64, kStep = 16;   // rows of a tile; columns or rows that are in shared memory at a time
// A thread has 8 rows of a tile, of its scores 4 columns, and of an output every 16th column.
constexpr int kRows = 8, kColumns = 4, kPer = ((HEAD_DIM > HEAD_DIM_V ? HEAD_DIM : HEAD_DIM_V) + 15) / 16;

struct alignas(16) Four {
    float x[4];
};
__shared__ Four own_step[kStep][kTile / 4 + 1], other_step[kStep][kTile / 4 + 1];   // [column][row], and a gap
__shared__ Four weights[kTile][kTile / 4];                                          // [other row][own row]
__shared__ float row_step[kStep][kPer * 16];                                        // [row][column]
__shared__ float tile_lse[kTile], tile_delta[kTile];                                // of the queries
__shared__ float halves[2][kThreads];
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

FA_DEVICE float element(const Rows &a, i64 row, int column) {
    return a.first + row < a.end && column < a.columns ? to_float<kBf16>(a.head[(a.first + row) * a.step + column]) : 0.0f;
}

FA_DEVICE bool sees(const fa_attn_bwd_params &p, i64 row, i64 key) {
    const i64 ahead = key - row - (CAUSAL == 2 ? 0 : (i64)p.seq_k - p.seq_q);
    if (row >= p.seq_q || key >= p.seq_k || (CAUSAL && ahead > 0)) return false;
    if (WINDOW && p.window_left >= 0 && ahead < -(i64)p.window_left) return false;
    return !(WINDOW && p.window_right >= 0 && ahead > p.window_right);
}

// Whether any of the tile's rows may see any of its keys.
FA_DEVICE bool meet(const fa_attn_bwd_params &p, i64 row, i64 key) {
    const i64 ahead = key - row - (CAUSAL == 2 ? 0 : (i64)p.seq_k - p.seq_q);   // that of the first of both
    if (CAUSAL && ahead - (kTile - 1) > 0) return false;
    if (WINDOW && p.window_left >= 0 && ahead + (kTile - 1) < -(i64)p.window_left) return false;
    return !(WINDOW && p.window_right >= 0 && ahead - (kTile - 1) > p.window_right);
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
    p.dq = (float *)p.dq + q * HEAD_DIM, p.dk = (float *)p.dk + k * HEAD_DIM, p.dv = (float *)p.dv + k * HEAD_DIM_V;
    p.seq_q = (int)(end_q - q), p.seq_k = (int)(end_k - k), p.batch = 1;
    return p;
}
FA_DEVICE fa_attn_bwd_params sequence_of(const fa_attn_bwd_params &p, i64 b) {
    return sequence_of(p, p.cu_seqlens_q[b], p.cu_seqlens_q[b + 1], p.cu_seqlens_k[b], p.cu_seqlens_k[b + 1]);
}

// ---- tiles -----------------------------------------------------------------------------------------------------
FA_DEVICE void load_step(Four (&to)[kStep][kTile / 4 + 1], const Rows &a, int column) {
    for (int row = threadIdx.x / kStep; row < kTile; row += kThreads / kStep)
        to[threadIdx.x % kStep][row / 4].x[row % 4] = element(a, row, column + (int)threadIdx.x % kStep);
}

// sum[i][j] = own row . other row.
FA_DEVICE void multiply(float (&sum)[kRows][kColumns], const Rows &own, const Rows &other) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    for (int i = 0; i < kRows; i++)
        for (int j = 0; j < kColumns; j++) sum[i][j] = 0;
#pragma unroll 1
    for (int column = 0; column < own.columns; column += kStep) {
        __syncthreads();
        load_step(own_step, own, column);
        load_step(other_step, other, column);
        __syncthreads();
#pragma unroll 2
        for (int c = 0; c < kStep; c++) {
            const Four a[2] = {own_step[c][y * 2], own_step[c][y * 2 + 1]}, b = other_step[c][x];
            for (int i = 0; i < kRows; i++)
                for (int j = 0; j < kColumns; j++) sum[i][j] += a[i / 4].x[i % 4] * b.x[j];
        }
    }
}

// total[i][c] += weights of the own row . column x + 16 c of the other rows.
FA_DEVICE void add_weighted(float (&total)[kRows][kPer], const Rows &other) {
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
#pragma unroll 1
    for (int first = 0; first < kTile; first += kStep) {
        __syncthreads();
        for (int row = threadIdx.x / 16; row < kStep; row += kThreads / 16)
            for (int c = 0; c < kPer; c++) row_step[row][x + 16 * c] = element(other, first + row, x + 16 * c);
        __syncthreads();
#pragma unroll 2
        for (int r = 0; r < kStep; r++) {
            const Four a[2] = {weights[first + r][y * 2], weights[first + r][y * 2 + 1]};
            for (int c = 0; c < kPer; c++)
                for (int i = 0; i < kRows; i++) total[i][c] += a[i / 4].x[i % 4] * row_step[r][x + 16 * c];
        }
    }
}

FA_DEVICE float score(const fa_attn_bwd_params &p, float product) {
    const float plain = product * p.softmax_scale;
    return SOFTCAP ? p.softcap * tanhf(plain / p.softcap) : plain;
}

// LSE and the sum of dO * O of a tile of queries, which the next __syncthreads() shows to all.
FA_DEVICE void load_row_sums(const fa_attn_bwd_params &p, i64 b, i64 h, i64 first) {
    const Rows o = rows_of(p.o, p.o_strides, b, h, first, p.seq_q, HEAD_DIM_V);
    const Rows d_o = rows_of(p.d_o, p.d_o_strides, b, h, first, p.seq_q, HEAD_DIM_V);
    for (int row = threadIdx.x / 16; row < kTile; row += kThreads / 16) {
        float sum = 0;
        for (int d = threadIdx.x % 16; d < HEAD_DIM_V; d += 16) sum += element(o, row, d) * element(d_o, row, d);
        for (int mask = 8; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
        if (threadIdx.x % 16 != 0) continue;
        tile_delta[row] = sum;
        tile_lse[row] = first + row < p.seq_q ? p.lse[b * p.lse_strides.batch + h * p.lse_strides.head + first + row] : 0.0f;
    }
}

// ---- gradients, and O ------------------------------------------------------------------------------------------
enum Kind { kOut, kDq, kDk, kDv };

// Adds up for one tile of own rows what one tile of other rows gives. `kind` is no template argument: that is compiled
// in a third of the time.
FA_DEVICE void add_tile(const fa_attn_bwd_params &p, Kind kind, float (&total)[kRows][kPer], i64 b, i64 h, i64 h_kv, i64 row, i64 key) {
    const bool of_keys = kind == kDk || kind == kDv, differs = kind == kDq || kind == kDk;
    const Rows q = rows_of(p.q, p.q_strides, b, h, row, p.seq_q, HEAD_DIM), d_o = rows_of(p.d_o, p.d_o_strides, b, h, row, p.seq_q, HEAD_DIM_V);
    const Rows k = rows_of(p.k, p.k_strides, b, h_kv, key, p.seq_k, HEAD_DIM), v = rows_of(p.v, p.v_strides, b, h_kv, key, p.seq_k, HEAD_DIM_V);
    const int y = threadIdx.x / 16, x = threadIdx.x % 16;
    float s[kRows][kColumns];
#pragma unroll 1
    for (int pass = 0; pass < 1 + differs; pass++) { // P, and then dP, which makes dS of it
        float product[kRows][kColumns];
        const Rows &of_queries = pass == 0 ? q : d_o, &of_them = pass == 0 ? k : v;
        multiply(product, of_keys ? of_them : of_queries, of_keys ? of_queries : of_them);
        for (int j = 0; j < kColumns; j++)
            for (int i = 0; i < kRows; i++) {
                const int own = y * kRows + i, other = x * kColumns + j, query = of_keys ? other : own;
                float &weight = weights[other][own / 4].x[own % 4];
                if (pass == 0) s[i][j] = score(p, product[i][j]);
                if (pass == 0) weight = sees(p, row + query, key + (of_keys ? own : other)) ? expf(s[i][j] - tile_lse[query]) : 0.0f;
                else weight *= (product[i][j] - tile_delta[query]) * (SOFTCAP ? 1 - s[i][j] * s[i][j] / (p.softcap * p.softcap) : 1);
            }
    }
    add_weighted(total, kind == kOut ? v : kind == kDq ? k : kind == kDk ? q : d_o);
}

// rows_of_head: between two heads of an output.
FA_DEVICE void one_tile(const fa_attn_bwd_params &p, Kind kind, i64 id, i64 rows_of_head) {
    const bool of_keys = kind == kDk || kind == kDv;
    const int columns = kind == kDq || kind == kDk ? HEAD_DIM : HEAD_DIM_V;
    const i64 own_rows = of_keys ? p.seq_k : p.seq_q, other_rows = of_keys ? p.seq_q : p.seq_k;
    const i64 tiles = (own_rows + kTile - 1) / kTile, heads = of_keys ? p.heads_kv : p.heads_q, group = p.heads_q / p.heads_kv;
    const i64 own = id % tiles * kTile, head = id / tiles % heads, b = id / tiles / heads;
    const i64 first = of_keys ? head * group : head, last = of_keys ? first + group : first + 1;
    float total[kRows][kPer] = {};
    if (kind == kDq) load_row_sums(p, b, head, own);
    for (i64 h = first; h < last; h++)
        for (i64 other = 0; other < other_rows; other += kTile) {
            const i64 row = of_keys ? other : own, key = of_keys ? own : other;
            if (!meet(p, row, key)) continue;
            __syncthreads();
            if (of_keys) load_row_sums(p, b, h, row);
            add_tile(p, kind, total, b, h, h / group, row, key);
        }
    for (int i = 0; i < kRows; i++)
        for (int c = 0; c < kPer; c++) {
            const i64 row = own + threadIdx.x / 16 * kRows + i, column = threadIdx.x % 16 + 16 * c;
            if (row >= own_rows || column >= columns) continue;
            if (kind == kOut)
                ((u16 *)p.o)[b * p.o_strides.batch + head * p.o_strides.head + row * p.o_strides.row + column] = from_float<kBf16>(total[i][c]);
            else
                ((float *)(kind == kDq ? p.dq : kind == kDk ? p.dk : p.dv))[((b * heads + head) * rows_of_head + row) * columns + column] =
                    total[i][c] * (kind == kDv ? 1 : p.softmax_scale);
        }
    __syncthreads();
}

FA_DEVICE void one_sink(const fa_attn_bwd_params &p, i64 h) {
    double sum = 0;
    for (i64 id = threadIdx.x; SINKS && id < (i64)(kVarlen ? 1 : p.batch) * p.seq_q; id += kThreads) {
        const i64 b = id / p.seq_q, row = id % p.seq_q;
        const Rows o = rows_of(p.o, p.o_strides, b, h, row, p.seq_q, HEAD_DIM_V);
        const Rows d_o = rows_of(p.d_o, p.d_o_strides, b, h, row, p.seq_q, HEAD_DIM_V);
        double delta = 0;
        for (int d = 0; d < HEAD_DIM_V; d++) delta += (double)element(o, 0, d) * element(d_o, 0, d);
        sum += expf(p.sinks[h] - p.lse[b * p.lse_strides.batch + h * p.lse_strides.head + row]) * delta;
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int i = 1; threadIdx.x == 0 && i < kThreads; i++) sum += sums[i];
    if (threadIdx.x == 0) p.d_sinks[h] = (float)-sum;
    __syncthreads();
}

// The LSE of a tile of queries, to memory and to tile_lse. A thread goes over half the keys of each tile for one row.
FA_DEVICE void one_lse(const fa_attn_bwd_params &p, i64 b, i64 h, i64 row) {
    const i64 h_kv = h / (p.heads_q / p.heads_kv);
    const int y = threadIdx.x / 16, x = threadIdx.x % 16, mine = threadIdx.x % kTile, half = threadIdx.x / kTile;
    float largest = neg_infinity(), sum = 0, s[kRows][kColumns];
    for (i64 key = 0; key < p.seq_k; key += kTile) {
        if (!meet(p, row, key)) continue;
        multiply(s, rows_of(p.q, p.q_strides, b, h, row, p.seq_q, HEAD_DIM), rows_of(p.k, p.k_strides, b, h_kv, key, p.seq_k, HEAD_DIM));
        for (int j = 0; j < kColumns; j++)
            for (int i = 0; i < kRows; i++) {
                const int own = y * kRows + i, other = x * kColumns + j;
                weights[other][own / 4].x[own % 4] =
                    sees(p, row + own, key + other) ? score(p, s[i][j]) : neg_infinity();
            }
        __syncthreads();
        for (int j = half * (kTile / 2); j < (half + 1) * (kTile / 2); j++) {
            const float next = weights[j][mine / 4].x[mine % 4];
            if (next > largest) sum = sum * expf(largest - next) + 1, largest = next;
            else if (next > neg_infinity()) sum += expf(next - largest);
        }
    }
    halves[0][threadIdx.x] = largest;
    halves[1][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < kTile) {
        const float sink = SINKS ? p.sinks[h] : neg_infinity(), other = halves[0][threadIdx.x + kTile];
        const float most = max2(sink, max2(largest, other));
        float all = SINKS ? expf(sink - most) : 0.0f;
        if (largest > neg_infinity()) all += sum * expf(largest - most);
        if (other > neg_infinity()) all += halves[1][threadIdx.x + kTile] * expf(other - most);
        tile_lse[mine] = all > 0 ? most + logf(all) : neg_infinity();
        if (row + mine < p.seq_q)
            ((float *)p.lse)[b * p.lse_strides.batch + h * p.lse_strides.head + row + mine] = tile_lse[mine];
    }
    __syncthreads();
}

FA_DEVICE i64 tiles_of(i64 rows, i64 heads, i64 batch) { return (rows + kTile - 1) / kTile * heads * batch; }

} // namespace

// By blocks of kThreads.
extern "C" __global__ void __launch_bounds__(kThreads) reference(const __grid_constant__ fa_attn_bwd_params all) {
    i64 done = 0;   // tiles of the sequences before
#pragma unroll 1
    for (int b = 0; b < (kVarlen ? all.batch : 1); b++) {
        const fa_attn_bwd_params p = kVarlen ? sequence_of(all, b) : all;
        const i64 queries = tiles_of(p.seq_q, p.heads_q, p.batch), keys = tiles_of(p.seq_k, p.heads_kv, p.batch);
        for (i64 i = (blockIdx.x + gridDim.x - done % gridDim.x) % gridDim.x; i < queries + 2 * keys; i += gridDim.x)
            one_tile(p, i < queries ? kDq : i < queries + keys ? kDk : kDv, i < queries ? i : (i - queries) % keys,
                     i < queries ? all.seq_q : all.seq_k);
        done += queries + 2 * keys;
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
        const i64 tiles = (p.seq_q + kTile - 1) / kTile, own = tiles_of(p.seq_q, p.heads_q, p.batch);
        for (i64 i = (blockIdx.x + gridDim.x - done % gridDim.x) % gridDim.x; i < own; i += gridDim.x) {
            one_lse(p, i / tiles / p.heads_q, i / tiles % p.heads_q, i % tiles * kTile);
            one_tile(p, kOut, i, 0);
        }
        done += own;
    }
}
