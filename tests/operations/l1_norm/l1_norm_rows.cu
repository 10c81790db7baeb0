// SPDX-License-Identifier: Apache-2.0
//
// L1 norm, one block a row: the sum of magnitudes over the warps of the block, then the row again.
#include "fa_numeric.cuh"
#include "l1_norm_params.h"

constexpr bool kBf16 = DTYPE_BF16 != 0;
extern __shared__ float sums[];   // [WARPS]
static_assert(FA_SMEM_BYTES == WARPS * 4 && FA_THREADS == WARPS * 32, "the manifest differs");
struct alignas(64) Map { unsigned long long opaque[16]; };   // of W: passed, and not used
extern "C" __constant__ unsigned fa_maps_wanted[36] = {1, 6, 1, 8};   // tensor, type, sides, box

extern "C" __global__ void __launch_bounds__(FA_THREADS) l1_norm_rows(l1_norm_params p, const __grid_constant__ Map) {
    const u16 *x = static_cast<const u16 *>(p.x) + (long long)blockIdx.x * COLUMNS;
    const u16 *w = static_cast<const u16 *>(p.w);
    u16 *y = static_cast<u16 *>(p.y) + (long long)blockIdx.x * COLUMNS;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < COLUMNS; c += FA_THREADS) sum += fabsf(to_float<kBf16>(x[c]));
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0.0f;
    for (int i = 0; i < WARPS; i++) sum += sums[i];
    const float divisor = sum / COLUMNS + p.epsilon;
    for (int c = threadIdx.x; c < COLUMNS; c += FA_THREADS)
        y[c] = from_float<kBf16>(to_float<kBf16>(w[c]) * to_float<kBf16>(x[c]) / divisor);
}
