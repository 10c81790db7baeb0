// SPDX-License-Identifier: Apache-2.0
//
// The kernels that compare, scan and fill, for every reference of attention forward.
//
// Workload: whole tensors, after each launch of a proof. Any grid works, with blocks of any multiple of 32.
// The file that includes this defines before it: Params, dense_of(Params), rows_of(Params) (of O), OUT_DIM and Row:
// Row(p, rows, i) has `o` and `lse`, offsets of the row's first element of O and of its LSE; Stored is an element of
// keys and values in memory, and stored_kv(float) makes one.
#ifndef ATTN_CHECKS_CUH
#define ATTN_CHECKS_CUH

#include "attn_check.h"
#include "fa_numeric.cuh"

// Non-negative floats order as their bits do.
FA_DEVICE void raise(float *maximum, float x) {
    x = warp_max(x);
    if (threadIdx.x % 32 == 0 && x > 0.0f) atomicMax((unsigned int *)maximum, float_to_bits(x));
}

FA_DEVICE void count(unsigned int *counter, unsigned int n) {
    if (n) atomicAdd(counter, n);
}

FA_DEVICE i64 thread_in_grid() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
FA_DEVICE i64 threads_of_grid() { return (i64)gridDim.x * blockDim.x; }

// Takes a difference into a maximum, or, if it is no number, into the count.
FA_DEVICE void gather(float difference, float &maximum, unsigned int &nonfinite) {
    if (finite(difference)) maximum = max2(maximum, magnitude(difference));
    else nonfinite++;
}

extern "C" __global__ void attn_compare(const __grid_constant__ Params p, const long long *rows, int row_count,
                                        const float *ref_o, const float *ref_lse, const float *lowp_o,
                                        struct fa_attn_compare *result) {
    float error = 0.0f, error_lowp = 0.0f, error_lse = 0.0f, magnitude_lse = 0.0f;
    unsigned int nonfinite = 0;
    for (i64 i = thread_in_grid() / 32; i < row_count; i += threads_of_grid() / 32) {   // a warp per row
        const Row row(p, rows, i);
#pragma unroll 1
        for (int d = threadIdx.x % 32; d < OUT_DIM; d += 32) {
            const float wanted = ref_o[i * OUT_DIM + d];
            gather(value(((const u16 *)dense_of(p).o)[row.o + d]) - wanted, error, nonfinite);
            gather(lowp_o[i * OUT_DIM + d] - wanted, error_lowp, nonfinite);
        }
        if (threadIdx.x % 32 != 0) continue;
        const float wanted = ref_lse[i];
        if (finite(wanted)) magnitude_lse = max2(magnitude_lse, magnitude(wanted));   // O's tolerance wants it too
        if (!dense_of(p).lse) continue;
        const float lse = dense_of(p).lse[row.lse];
        if (lse == wanted && lse == neg_infinity()) continue;
        gather(lse - wanted, error_lse, nonfinite);
    }
    raise(&result->max_error, error);
    raise(&result->max_error_lowp, error_lowp);
    raise(&result->max_error_lse, error_lse);
    raise(&result->max_magnitude_lse, magnitude_lse);
    count(&result->nonfinite, nonfinite);
}

// Every element of O and of LSE, not only the rows compared: all written, none NaN, O finite, LSE not +inf.
// `poison` is the element that O was filled with; LSE is held against FA_POISON_LSE.
extern "C" __global__ void attn_check_written(const __grid_constant__ Params p, unsigned short poison,
                                              struct fa_attn_compare *result) {
    const i64 rows = rows_of(p);
    unsigned int unwritten = 0, nonfinite = 0;
    for (i64 i = thread_in_grid() / 32; i < rows; i += threads_of_grid() / 32) {        // a warp per row
        const Row row(p, nullptr, i);
#pragma unroll 1
        for (int d = threadIdx.x % 32; d < OUT_DIM; d += 32) {
            const u16 o = ((const u16 *)dense_of(p).o)[row.o + d];
            if (o == poison) unwritten++;
            else if (!finite(value(o))) nonfinite++;
        }
        if (threadIdx.x % 32 != 0 || !dense_of(p).lse) continue;
        const float lse = dense_of(p).lse[row.lse];
        if (float_to_bits(lse) == FA_POISON_LSE) unwritten++;
        else if (!finite(lse) && lse != neg_infinity()) nonfinite++;
    }
    count(&result->unwritten, unwritten);
    count(&result->nonfinite, nonfinite);
}

extern "C" __global__ void attn_check_guard(const unsigned char *bytes, unsigned long long byte_count, unsigned char expect,
                                            struct fa_attn_compare *result) {
    unsigned int damaged = 0;
#pragma unroll 1
    for (u64 i = thread_in_grid(); i < byte_count; i += threads_of_grid()) damaged += bytes[i] != expect;
    count(&result->guard_damaged, damaged);
}

// Whether element i of a region belongs to its tensor.
FA_DEVICE bool in_tensor(const fa_attn_region &region, u64 i) {
    if (i < region.first) return false;
    u64 rest = i - region.first;
#pragma unroll 1
    for (int level = 0; level < region.levels; level++) {
        const u64 index = rest / region.stride[level];
        if (index >= region.extent[level]) return false;
        rest -= index * region.stride[level];
    }
    return true;
}

// Before and behind an input and between its rows: a NaN that a kernel meets only if it reads what it must not.
extern "C" __global__ void attn_poison_gaps(const __grid_constant__ fa_attn_region region) {
#pragma unroll 1
    for (u64 i = thread_in_grid(); i < region.count; i += threads_of_grid())
        if (!in_tensor(region, i)) region.base[i] = FA_POISON_ELEMENT;
}

// Gaps that no longer hold the poison they were filled with: written outside the tensors, by whatever route.
extern "C" __global__ void attn_check_gaps(const __grid_constant__ fa_attn_region o, const __grid_constant__ fa_attn_region lse,
                                           struct fa_attn_compare *result) {
    unsigned int damaged = 0;
#pragma unroll 1
    for (u64 i = thread_in_grid(); i < o.count; i += threads_of_grid())
        damaged += o.base[i] != FA_POISON_ELEMENT && !in_tensor(o, i);
#pragma unroll 1
    for (u64 i = thread_in_grid(); i < lse.count; i += threads_of_grid())
        damaged += lse.base[i] != FA_POISON_ELEMENT && !in_tensor(lse, i);
    count(&result->guard_damaged, damaged);
}

// splitmix64 (Steele, Lea, Flood 2014): the i-th output of a stream is a function of seed and i alone.
FA_DEVICE u64 splitmix64(u64 seed, u64 i) {
    u64 z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

// About normal(0, 1): the sum of four 16-bit uniforms, centred (integer, so that a host can repeat it bit
// for bit), times sqrt(3)/65536; it ends at 3.46 standard deviations.
FA_DEVICE float normal_number(u64 seed, u64 i) {
    const u64 z = splitmix64(seed, i);
    const int sum = (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
    return (float)(sum - 2 * 65535) * (1.7320508f / 65536.0f);
}

extern "C" __global__ void attn_fill(unsigned short *x, unsigned long long element_count, unsigned long long seed, float scale) {
#pragma unroll 1
    for (u64 i = thread_in_grid(); i < element_count; i += threads_of_grid())
        x[i] = from_float<kBf16>(normal_number(seed, i) * scale);
}

// Keys or values: of each block (a page, a sequence, all rows that lie behind one another) the first used[block] rows
// of every head. What is not filled keeps the poison that the host put there.
extern "C" __global__ void attn_fill_keys(const __grid_constant__ struct fa_attn_keys keys, const int *used,
                                          unsigned long long seed, float scale) {
    const i64 rows = (i64)keys.blocks * keys.heads * keys.rows;
#pragma unroll 1
    for (i64 i = thread_in_grid() / 32; i < rows; i += threads_of_grid() / 32) {        // a warp per row
        const i64 block = i / ((i64)keys.heads * keys.rows), head = i / keys.rows % keys.heads, row = i % keys.rows;
        if (row >= used[block]) continue;
        Stored *to = (Stored *)keys.first + block * keys.block_stride + head * keys.head_stride + row * keys.row_stride;
        for (int d = threadIdx.x % 32; d < keys.columns; d += 32)
            to[d] = stored_kv(normal_number(seed, (u64)i * (u32)keys.columns + (u32)d) * scale);
    }
}

#endif
