// SPDX-License-Identifier: Apache-2.0
//
// The judge of dense attention forward kernels: a naive fp32 reference, and the plain low-precision
// computation that sets the tolerance.
//
// Workload: some or all rows of O, one thread block per row. Built
// to be right and easy to believe, not fast; one file serves every family, data type and SM.
// Invariants: compiled with FA_SM, HEAD_DIM, DTYPE_BF16 and CAUSAL only. Any grid works, with
// blocks of 128 threads. Row ids are (b*heads_q + h)*seq_q + s; `rows` null means 0, 1, 2, ...
//
// Error of attn_ref_fp32, relative to the sum of |weight * v|: below 2^-18, against 2^-11 of one fp16
// rounding. Its parts: scores are compensated sums (error about 2^-24 of scale*(score - max), never of
// the score itself, so large magnitudes cost nothing); exp has relative error 2^-21; the weighted
// sum adds 128 keys at a time in fp32 (at most 2^-17.6 if all roundings agreed, about 2^-21 in
// practice) and the chunks by Kahan's rule. LSE: 2^-24 of |LSE| and 2^-20 absolute.
#include "attn_params.h"
#include "fa_numeric.cuh"

#define REF_THREADS 128
#define KEY_LANES 8                                /* lanes that share the dot product of one key */
#define KEYS_AT_ONCE (REF_THREADS / KEY_LANES)
#define TILE REF_THREADS                           /* keys whose weights are held at once */
#define KEY_GROUPS (HEAD_DIM >= REF_THREADS ? 1 : REF_THREADS / HEAD_DIM)
#define COLUMNS ((HEAD_DIM + REF_THREADS - 1) / REF_THREADS)

static_assert(HEAD_DIM % 8 == 0 && HEAD_DIM >= 8 && HEAD_DIM <= 512, "HEAD_DIM");

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr float kLog2e = 1.44269502162933350f;     // log2(e) rounded to fp32 ...
constexpr float kLog2eRest = 1.92596299e-8f;       // ... and what the rounding left
constexpr float kLn2 = 0.693147180559945f;

FA_DEVICE float value(u16 x) { return to_float<kBf16>(x); }
FA_DEVICE float rounded(float x) { return to_float<kBf16>(from_float<kBf16>(x)); }

// A sum carried as high + low, low being what the roundings of high lost.
struct Sum {
    float high = 0.0f, low = 0.0f;

    __device__ __forceinline__ void add(float x) {           // Knuth: the error of one addition, exactly
        const float total = high + x, part = total - high;
        low += (high - (total - part)) + (x - part);
        high = total;
    }
};

// e^x for x <= 0 or barely above; the reduced argument r is in [-1/2, 1/2] and exact to 2^-25.
FA_DEVICE float exp_reduced(float x) {
    float n;
    asm("cvt.rni.f32.f32 %0, %1;" : "=f"(n) : "f"(x * kLog2e));
    float r;
    asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(x), "f"(kLog2e), "f"(-n));
    return exp2_fast(r + x * kLog2eRest) * exp2_fast(n);
}

// The row (b, h, s) of one row id and where its data lie.
struct Row {
    const u16 *q, *k, *v;
    int visible;                                   // keys 0 .. visible-1 are seen

    __device__ __forceinline__ Row(const fa_attn_params &p, const i64 *rows, i64 i) {
        const i64 id = rows ? rows[i] : i;
        const u32 bh = (u32)((u64)id / (u32)p.seq_q);   // batch * heads_q < 2^32: a grid could not hold more
        const i64 s = id - (i64)bh * p.seq_q;
        const i64 b = bh / (u32)p.heads_q, h = bh - (u32)b * (u32)p.heads_q;
        const i64 h_kv = (u32)h / ((u32)p.heads_q / (u32)p.heads_kv);
        q = (const u16 *)p.q + b * p.q_batch_stride + h * p.q_head_stride + s * p.q_row_stride;
        k = (const u16 *)p.k + b * p.k_batch_stride + h_kv * p.k_head_stride;
        v = (const u16 *)p.v + b * p.v_batch_stride + h_kv * p.v_head_stride;
        i64 end = p.seq_k;
        if (CAUSAL && s + p.causal_offset + 1 < end) end = s + p.causal_offset + 1;
        visible = end > 0 ? (int)end : 0;
    }
};

// q.k for one key by KEY_LANES neighbouring lanes, all of which get it. Its high part is the plain
// fp32 sum that any kernel would take; the low part makes it exact to about 2^-45.
FA_DEVICE Sum score(const float *q, const u16 *k) {
    Sum dot;
#pragma unroll 4
    for (int d = threadIdx.x % KEY_LANES; d < HEAD_DIM; d += KEY_LANES) dot.add(q[d] * value(k[d]));   // exact products
#pragma unroll 1
    for (int mask = KEY_LANES / 2; mask > 0; mask >>= 1) {
        const float high = shuffle_xor(dot.high, mask);
        dot.low += shuffle_xor(dot.low, mask);
        dot.add(high);
    }
    return dot;
}

// Maximum or sum over the block; every thread gets it.
template <bool kMax> FA_DEVICE float block_reduce(float x) {
    __shared__ float parts[REF_THREADS / 32];
    x = kMax ? warp_max(x) : warp_sum(x);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    return kMax ? max2(max2(parts[0], parts[1]), max2(parts[2], parts[3]))
                : (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

FA_DEVICE float largest_score(const fa_attn_params &p, const Row &row, const float *q) {
    float largest = neg_infinity();
#pragma unroll 1
    for (int first = 0; first < row.visible; first += KEYS_AT_ONCE) {
        const int key = first + threadIdx.x / KEY_LANES;
        const int inside = key < row.visible ? key : row.visible - 1;   // all lanes shuffle; a repeat is harmless
        largest = max2(largest, score(q, row.k + inside * p.k_row_stride).high);
    }
    return block_reduce<true>(largest);
}

FA_DEVICE void scores_of_tile(const fa_attn_params &p, const Row &row, const float *q, int first, float *high, float *low) {
#pragma unroll 1
    for (int j = threadIdx.x / KEY_LANES; j < TILE; j += KEYS_AT_ONCE) {
        const int key = first + j, inside = key < row.visible ? key : row.visible - 1;
        const Sum dot = score(q, row.k + inside * p.k_row_stride);
        if (threadIdx.x % KEY_LANES == 0) high[j] = dot.high, low[j] = dot.low;
    }
}

// exp(scale * (score - largest)), as a plain kernel computes it or as exactly as fp32 allows. Plain weights carry
// a factor that cancels in the quotient, 3/8 of the data type's spacing above 1: else the heaviest weight
// of a row, 1, would never be rounded. Only a kernel that subtracts the exact maximum enjoys that; one whose
// maximum may lag behind rounds heavy weights too (rows with a heavy key: 2.7 times the error, seen with bf16).
FA_DEVICE float weight(const fa_attn_params &p, float high, float low, float largest, bool lowp) {
    constexpr float kOffGrid = 1.0f + 0.375f * (kBf16 ? 0x1p-7f : 0x1p-10f);
    if (lowp) return kOffGrid * exp2_fast((high - largest) * p.softmax_scale_log2);
    return exp_reduced(p.softmax_scale * ((high - largest) + low));
}

// One row of O and its LSE: the largest score first, then weights, their sum and the weighted sum of V.
// Compiled once for both kernels: `lowp` asks for the plain low-precision computation.
static __device__ __noinline__ void attention_row(const fa_attn_params &p, const i64 *rows, i64 i, bool lowp,
                                                  float *ret_o, float *ret_lse) {
    __shared__ float q[HEAD_DIM], high[TILE], low[TILE], partial[REF_THREADS * COLUMNS];
    const Row row(p, rows, i);
    const int group = threadIdx.x / HEAD_DIM, column = threadIdx.x % HEAD_DIM;
    __syncthreads();
#pragma unroll 1
    for (int d = threadIdx.x; d < HEAD_DIM; d += REF_THREADS) q[d] = value(row.q[d]);
    __syncthreads();
    const float largest = row.visible ? largest_score(p, row, q) : 0.0f;

    Sum weights, out[COLUMNS];
#pragma unroll 1
    for (int first = 0; first < row.visible; first += TILE) {
        const int keys = row.visible - first < TILE ? row.visible - first : TILE;
        scores_of_tile(p, row, q, first, high, low);
        __syncthreads();
        if (threadIdx.x < keys) {
            const float w = weight(p, high[threadIdx.x], low[threadIdx.x], largest, lowp);
            weights.add(w);
            high[threadIdx.x] = lowp ? rounded(w) : w;
        }
        __syncthreads();
        for (int c = 0; c < COLUMNS; c++) {
            const int d = column + c * REF_THREADS;
            float sum = 0.0f;
            if (d < HEAD_DIM)
#pragma unroll 4
                for (int j = group; j < keys; j += KEY_GROUPS) sum += high[j] * value(row.v[(first + j) * p.v_row_stride + d]);
            out[c].add(sum);
        }
        __syncthreads();
    }
    for (int c = 0; c < COLUMNS; c++) partial[threadIdx.x + c * REF_THREADS] = out[c].high + out[c].low;
    const float total = block_reduce<false>(weights.high + weights.low), scale = reciprocal(total);
#pragma unroll 1
    for (int d = threadIdx.x; d < HEAD_DIM; d += REF_THREADS) {
        float sum = partial[d];
#pragma unroll 1
        for (int g = 1; g < KEY_GROUPS; g++) sum += partial[d + g * HEAD_DIM];
        const float o = row.visible ? sum * scale : 0.0f;
        ret_o[d] = lowp ? rounded(o) : o;
    }
    if (threadIdx.x == 0)
        *ret_lse = row.visible ? p.softmax_scale * largest + log2_fast(total) * kLn2 : neg_infinity();
}

extern "C" __global__ void __launch_bounds__(REF_THREADS)
attn_ref_fp32(const __grid_constant__ fa_attn_params p, const long long *rows, int row_count, float *ref_o, float *ref_lse) {
    for (i64 i = blockIdx.x; i < row_count; i += gridDim.x)
        attention_row(p, rows, i, false, ref_o + i * HEAD_DIM, ref_lse + i);
}

// Scores and sums in fp32, the weights rounded to the data type before P V, the output rounded: what
// one cannot do better than with this data type on the matrix units.
extern "C" __global__ void __launch_bounds__(REF_THREADS)
attn_ref_lowp(const __grid_constant__ fa_attn_params p, const long long *rows, int row_count, float *ref_o, float *ref_lse) {
    for (i64 i = blockIdx.x; i < row_count; i += gridDim.x)
        attention_row(p, rows, i, true, ref_o + i * HEAD_DIM, ref_lse + i);
}
