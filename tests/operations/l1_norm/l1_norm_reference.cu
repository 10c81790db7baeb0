// SPDX-License-Identifier: Apache-2.0
//
// The judge of every L1 norm kernel: y = w * x / (mean(|x|) + epsilon) in fp32, an element a thread.
// Its output is an array of float, whatever y is.
#include "fa_numeric.cuh"
#include "l1_norm_params.h"

constexpr bool kBf16 = DTYPE_BF16 != 0;

extern "C" __global__ void reference(l1_norm_params p) {
    const long long count = (long long)p.rows * COLUMNS, step = (long long)gridDim.x * blockDim.x;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        const u16 *x = static_cast<const u16 *>(p.x) + i / COLUMNS * COLUMNS;
        float sum = 0.0f;
        for (int c = 0; c < COLUMNS; c++) sum += fabsf(to_float<kBf16>(x[c]));
        const int c = (int)(i % COLUMNS);
        static_cast<float *>(p.y)[i] = to_float<kBf16>(static_cast<const u16 *>(p.w)[c]) * to_float<kBf16>(x[c]) / (sum / COLUMNS + p.epsilon);
    }
}
