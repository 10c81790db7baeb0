// SPDX-License-Identifier: Apache-2.0
//
// The judge of RMS norm kernels: y = w * x / sqrt(mean(x^2) + epsilon) in fp32, a block of 128 threads a row at a time; with a residual
// x + residual, rounded, in the place of x, which is also the output sum. Outputs are packed arrays of float; strides are of the inputs.
#include "fa_numeric.cuh"
#include "rms_norm_params.h"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
__shared__ float sums[128];

FA_DEVICE float element(const fa_rms_norm_params &p, i64 row, int column) {
    const float x = to_float<kBf16>(((const u16 *)p.x)[row * p.x_row + column]);
    if (!RESIDUAL) return x;
    return to_float<kBf16>(from_float<kBf16>(x + to_float<kBf16>(((const u16 *)p.residual)[row * p.residual_row + column])));
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128) reference(const __grid_constant__ fa_rms_norm_params p) {
    for (i64 row = blockIdx.x; row < p.rows; row += gridDim.x) {
        float sum = 0.0f;
        for (int c = threadIdx.x; c < COLUMNS; c += 128) sum += element(p, row, c) * element(p, row, c);
        __syncthreads();
        sums[threadIdx.x] = sum;
        __syncthreads();
        sum = 0.0f;
        for (int i = 0; i < 128; i++) sum += sums[i];
        const float divisor = sqrtf(sum / COLUMNS + p.epsilon);
        for (int c = threadIdx.x; c < COLUMNS; c += 128) {
            const float x = element(p, row, c);
            ((float *)p.y)[row * COLUMNS + c] = to_float<kBf16>(((const u16 *)p.w)[c]) * (x / divisor);
            if (RESIDUAL) ((float *)p.sum)[row * COLUMNS + c] = x;
        }
    }
}
