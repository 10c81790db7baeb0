// SPDX-License-Identifier: Apache-2.0
//
// The judge of attention as serving engines call it: the reference in double, and the plain low-precision computation
// that sets the tolerance.
//
// Workload: some or all rows of O, one block of 128 threads per row. Built to be right and easy to believe, not fast.
// Invariants: compiled with every macro of attn_serving_params.h. Row ids are (b*heads_q + h)*seq_q + s; with
// VARLEN_Q they are h*total_q + row. Keys that a row does not see are not read, nor are pages behind a sequence's end.
//
// Error of attn_ref_fp32: scores, weights and sums are doubles, so it is that of the last rounding to fp32.
#include "attn_serving_params.h"
#include "fa_numeric.cuh"
#if DROPOUT
#include "attn_dropout.cuh"
#endif

#define REF_THREADS 128
#define OUT_DIM HEAD_DIM_V
#define COLUMNS ((OUT_DIM + REF_THREADS - 1) / REF_THREADS)

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM >= 8 && HEAD_DIM <= 576 && OUT_DIM % 8 == 0 && OUT_DIM <= 512, "head dims");

using Params = fa_attn_serving_params;
#if BUFFER_COUNT > 0
#define AND_BUFFERS , p.buffer
#else
#define AND_BUFFERS
#endif

#ifndef Q_FP8
#define Q_FP8 0
#endif

constexpr bool kBf16 = DTYPE_BF16 != 0;

FA_DEVICE float value(u16 x) { return to_float<kBf16>(x); }
FA_DEVICE float rounded(float x) { return to_float<kBf16>(from_float<kBf16>(x)); }

#if KV_FP8
// e4m3 as its standard has it: bias 7, no infinity, 0x7f and 0xff are NaN.
FA_DEVICE float value_e4m3(unsigned char x) {
    const u32 exponent = x >> 3 & 15, fraction = x & 7;
    if (exponent == 15 && fraction == 7) return bits_to_float(0x7fc00000u);
    const float scale = bits_to_float((exponent == 0 ? 1 + 117 : exponent + 117) << 23);   // 2^(exponent - 7 - 3)
    const float size = (float)(exponent == 0 ? fraction : 8 + fraction) * scale;
    return x & 0x80 ? -size : size;
}

typedef unsigned char Stored;
#else
typedef u16 Stored;
#endif

// Number d of a key or of a value. A plain computation may leave the product of a number of fp8_ds_mla and its scale unrounded.
FA_DEVICE float value_kv(const Stored *row, int d, bool lowp) {
#if KV_FP8 == 2
    if (d >= 512) return value(((const u16 *)(row + FA_DS_MLA_ROPE))[d - 512]);
    const float x = value_e4m3(row[d]) * rounded(((const float *)(row + FA_DS_MLA_SCALES))[d / 128]);
    return lowp ? x : rounded(x);
#elif KV_FP8
    return value_e4m3(row[d]);
#else
    return value(row[d]);
#endif
}

#if Q_FP8
typedef unsigned char Query;
FA_DEVICE float value_q(Query x) { return value_e4m3(x); }
// A weight, at most 1, to the nearest e4m3 of 256 times it.
FA_DEVICE float rounded_weight(float x) {
    const u32 bits = float_to_bits(x);
    const float units = (x * 131072.0f + 12582912.0f) - 12582912.0f;   // of 2^-17, below 2^-14
    return x < 0x1p-14f ? units * 0x1p-17f : bits_to_float((bits + 0x7ffffu + (bits >> 20 & 1)) & 0xfff00000u);
}
#else
typedef u16 Query;
FA_DEVICE float value_q(Query x) { return value(x); }
FA_DEVICE float rounded_weight(float x) { return rounded(x); }
#endif

// The row of one row id, where its data lie, and the keys that it sees: first .. end-1.
struct Row {
    const Query *q;
    const Stored *k, *v;
    int b, h, h_kv, first, end, len_q, len_k, stands;   // at this key
    i64 query;   // its number in its sequence

    __device__ __forceinline__ Row(const Params &p, const i64 *rows, i64 i) {
        const fa_attn_params &d = p.dense;
        const i64 id = rows ? rows[i] : i;
        len_q = d.seq_q, len_k = d.seq_k;
        i64 s, at;                                  // the query's number in its sequence; its row of Q and O
#if VARLEN_Q
        h = (int)(id / p.total_q);
        at = id - (i64)h * p.total_q;
        b = 0;
        while (b + 1 < d.batch && p.cu_seqlens_q[b + 1] <= at) b++;
        s = at - p.cu_seqlens_q[b];
        len_q = p.cu_seqlens_q[b + 1] - p.cu_seqlens_q[b];
        const i64 block_q = 0;
#else
        const i64 bh = id / d.seq_q;
        at = s = id - bh * d.seq_q;
        b = (int)(bh / d.heads_q), h = (int)(bh - (i64)b * d.heads_q);
        const i64 block_q = b * d.q_batch_stride;
#endif
        h_kv = h / (d.heads_q / d.heads_kv);
        i64 block_k = b * d.k_batch_stride, block_v = b * d.v_batch_stride;
#if LENGTHS_K == 1
        len_k = p.cu_seqlens_k[b + 1] - p.cu_seqlens_k[b];
        block_k = p.cu_seqlens_k[b] * d.k_row_stride, block_v = p.cu_seqlens_k[b] * d.v_row_stride;
#elif LENGTHS_K == 2
        len_k = p.seqused_k[b];
#endif
        if (PAGED) block_k = block_v = 0;
        q = (const Query *)d.q + block_q + h * d.q_head_stride + at * d.q_row_stride;
        k = (const Stored *)d.k + block_k + h_kv * d.k_head_stride;
        v = (const Stored *)d.v + block_v + h_kv * d.v_head_stride;
        const i64 stands = s + (VARLEN_Q || LENGTHS_K ? len_k - len_q : d.causal_offset);
        this->stands = (int)stands, query = s;
        i64 from = 0, to = len_k;
        if (CAUSAL && stands + 1 < to) to = stands + 1;
        if (WINDOW && p.window_right >= 0 && stands + p.window_right + 1 < to) to = stands + p.window_right + 1;
        if (WINDOW && p.window_left >= 0 && stands - p.window_left > from) from = stands - p.window_left;
        first = (int)(from < len_k ? from : len_k);
        end = to > first ? (int)to : first;
    }

    // Where key j lies behind `k` and `v`.
    __device__ __forceinline__ i64 place(const Params &p, int j, i64 block_stride, i64 row_stride) const {
#if PAGED
        return (i64)p.block_table[b * p.block_table_stride + j / PAGE_SIZE] * block_stride + j % PAGE_SIZE * row_stride;
#else
        return j * row_stride;
#endif
    }
};

// The score of key j as softmax takes it.
FA_DEVICE double score(const Params &p, const Row &row, const double *q, int j, bool lowp) {
    const Stored *k = row.k + row.place(p, j, p.dense.k_batch_stride, p.dense.k_row_stride);
    double dot = 0.0;
#pragma unroll 4
    for (int d = 0; d < HEAD_DIM; d++) dot += q[d] * (double)value_kv(k, d, lowp);
    dot *= (double)p.dense.softmax_scale;
    if (KV_FP8 == 1) dot *= (double)p.k_scale[(i64)row.b * p.k_scale_batch_stride + (i64)row.h_kv * p.k_scale_head_stride];
    if (SOFTCAP) dot = (double)p.softcap * tanh(dot / (double)p.softcap);
#if SCORE_SNIPPET
    dot = snippet_score<SnippetPlain<double>>(dot, row.b, row.h, row.h_kv, row.stands, j, row.len_q, row.len_k AND_BUFFERS);
#endif
#if MASK_SNIPPET
    if (!snippet_mask<SnippetPlain<double>>(row.b, row.h, row.h_kv, row.stands, j, row.len_q, row.len_k AND_BUFFERS)) dot = (double)neg_infinity();
#endif
    return dot;
}

// Maximum or sum over the block; every thread gets it.
FA_DEVICE double block_reduce(double x, bool maximum) {
    __shared__ double part[REF_THREADS];
    __syncthreads();
    part[threadIdx.x] = x;
    __syncthreads();
    double all = part[0];
#pragma unroll 1
    for (int i = 1; i < REF_THREADS; i++) all = maximum ? (part[i] > all ? part[i] : all) : all + part[i];
    return all;
}

// Plain weights carry a factor that cancels in the quotient, 3/8 of the data type's spacing above 1: else the heaviest
// weight of a row, 1, would never be rounded (attn_ref.cu says why that matters).
FA_DEVICE double weight(double score, double largest, bool lowp) {
    constexpr float kOffGrid = 1.0f + 0.375f * (Q_FP8 ? 0x1p-3f : kBf16 ? 0x1p-7f : 0x1p-10f);
    return lowp ? (double)(kOffGrid * exp2_fast((float)((score - largest) * 1.4426950408889634))) : exp(score - largest);
}

// One row of O and its LSE: the largest score first, then weights, their sum and the weighted sum of V.
static __device__ __noinline__ void attention_row(const Params &p, const i64 *rows, i64 i, bool lowp, float *ret_o, float *ret_lse) {
    __shared__ double q[HEAD_DIM], weights[REF_THREADS];
    const Row row(p, rows, i);
    __syncthreads();
    for (int d = threadIdx.x; d < HEAD_DIM; d += REF_THREADS) q[d] = (double)value_q(row.q[d]);
    __syncthreads();
    const double none = (double)neg_infinity();
    double largest = none;
#pragma unroll 1
    for (int j = row.first + threadIdx.x; j < row.end; j += REF_THREADS) {
        const double s = score(p, row, q, j, lowp);
        largest = s > largest ? s : largest;
    }
    largest = block_reduce(largest, true);
    const double sink = SINKS ? (double)p.sinks[row.h] : none;
    if (sink > largest) largest = sink;

    double total = 0.0, out[COLUMNS] = {};
#pragma unroll 1
    for (int first = row.first; first < row.end; first += REF_THREADS) {
        const int count = row.end - first < REF_THREADS ? row.end - first : REF_THREADS, own = threadIdx.x;
        __syncthreads();
        if (own < count) {
            const double s = score(p, row, q, first + own, lowp), w = s == none ? 0.0 : weight(s, largest, lowp);
            total += w;
            weights[own] = lowp ? (double)rounded_weight((float)w) : w;
#if DROPOUT
            if (!Dropout(p.buffer, (i64)row.b * p.dense.heads_q + row.h).keeps(row.query, first + own)) weights[own] = 0.0;
#endif
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            for (int j = 0, d = own + c * REF_THREADS; d < OUT_DIM && j < count; j++)
                out[c] += weights[j] *
                          (double)value_kv(row.v + row.place(p, first + j, p.dense.v_batch_stride, p.dense.v_row_stride), d, lowp);
    }
    total = block_reduce(total, false);
    if (SINKS) total += weight(sink, largest, lowp);
    double scale = total > 0.0 ? 1.0 / total : 0.0;
#if DROPOUT
    scale *= (double)dropout_scale(p.buffer);
#endif
    if (KV_FP8 == 1) scale *= (double)p.v_scale[(i64)row.b * p.v_scale_batch_stride + (i64)row.h_kv * p.v_scale_head_stride];
    for (int c = 0; c < COLUMNS; c++) {
        const int d = threadIdx.x + c * REF_THREADS;
        if (d < OUT_DIM) ret_o[d] = lowp ? rounded((float)(out[c] * scale)) : (float)(out[c] * scale);
    }
    if (threadIdx.x == 0) *ret_lse = total > 0.0 ? (float)(largest + log(total)) : neg_infinity();
}

extern "C" __global__ void __launch_bounds__(REF_THREADS)
attn_ref_fp32(const __grid_constant__ Params p, const long long *rows, int row_count, float *ref_o, float *ref_lse) {
    for (i64 i = blockIdx.x; i < row_count; i += gridDim.x)
        attention_row(p, rows, i, false, ref_o + i * OUT_DIM, ref_lse + i);
}

// The weights rounded to the data type, or with queries of fp8 to e4m3, before P V, the output rounded.
extern "C" __global__ void __launch_bounds__(REF_THREADS)
attn_ref_lowp(const __grid_constant__ Params p, const long long *rows, int row_count, float *ref_o, float *ref_lse) {
    for (i64 i = blockIdx.x; i < row_count; i += gridDim.x)
        attention_row(p, rows, i, true, ref_o + i * OUT_DIM, ref_lse + i);
}
