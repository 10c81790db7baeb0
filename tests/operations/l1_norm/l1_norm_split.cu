// SPDX-License-Identifier: Apache-2.0
//
// L1 norm in two launches: a warp for the magnitudes of a part of a row, into the workspace
// (float [rows][PARTS]); then a block a row that adds the parts and scales.
#include "fa_numeric.cuh"
#include "l1_norm_params.h"

constexpr bool kBf16 = DTYPE_BF16 != 0;

extern "C" __global__ void __launch_bounds__(32) l1_norm_sums(l1_norm_params p, float *workspace) {
    const u16 *x = static_cast<const u16 *>(p.x) + (long long)blockIdx.x * COLUMNS;
    const int first = blockIdx.y * PART, end = first + PART < COLUMNS ? first + PART : COLUMNS;
    float sum = 0.0f;
    for (int c = first + threadIdx.x; c < end; c += 32) sum += fabsf(to_float<kBf16>(x[c]));
    sum = warp_sum(sum);
    if (threadIdx.x == 0) workspace[(long long)blockIdx.x * PARTS + blockIdx.y] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) l1_norm_scale(l1_norm_params p, float *workspace) {
    const u16 *x = static_cast<const u16 *>(p.x) + (long long)blockIdx.x * COLUMNS;
    const u16 *w = static_cast<const u16 *>(p.w);
    u16 *y = static_cast<u16 *>(p.y) + (long long)blockIdx.x * COLUMNS;
    float sum = 0.0f;
    for (int i = 0; i < PARTS; i++) sum += workspace[(long long)blockIdx.x * PARTS + i];
    const float divisor = sum / COLUMNS + p.epsilon;
    for (int c = threadIdx.x; c < COLUMNS; c += THREADS)
        y[c] = from_float<kBf16>(to_float<kBf16>(w[c]) * to_float<kBf16>(x[c]) / divisor);
}
