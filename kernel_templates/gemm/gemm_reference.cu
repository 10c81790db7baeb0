// SPDX-License-Identifier: Apache-2.0
//
// The judge of matrix products: C = A B^T in fp32, a tile of 64 x 64 a block at a time. Its output is a packed array of
// float; strides are of the inputs.
#include "fa_numeric.cuh"
#include "gemm_params.h"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kTile = 64, kStep = 16, kRows = 8, kColumns = 4;   // a thread has 8 x 4 elements
__shared__ float a_step[kStep][kTile + 4], b_step[kStep][kTile + 4];   // [column][row], and a gap

FA_DEVICE void load_step(float (&to)[kStep][kTile + 4], const void *from, i64 stride, i64 first, int rows, int column, int columns) {
    for (int i = threadIdx.x; i < kTile * kStep; i += 128) {
        const int row = i / kStep, at = i % kStep;
        const bool there = first + row < rows && column + at < columns;
        to[at][row] = there ? to_float<kBf16>(((const u16 *)from)[(first + row) * stride + column + at]) : 0.0f;
    }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(128) reference(const __grid_constant__ fa_gemm_params p) {
    const i64 across = ((i64)p.n + kTile - 1) / kTile, tiles = across * (((i64)p.m + kTile - 1) / kTile);
    const int y = threadIdx.x / 16 * kRows, x = threadIdx.x % 16 * kColumns;
    for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const i64 row = tile / across * kTile, column = tile % across * kTile;
        float sum[kRows][kColumns] = {};
        for (int k = 0; k < p.k; k += kStep) {
            __syncthreads();
            load_step(a_step, p.a, p.a_row, row, p.m, k, p.k);
            load_step(b_step, p.b, p.b_row, column, p.n, k, p.k);
            __syncthreads();
            for (int s = 0; s < kStep; s++)
                for (int i = 0; i < kRows; i++)
                    for (int j = 0; j < kColumns; j++) sum[i][j] += a_step[s][y + i] * b_step[s][x + j];
        }
        for (int i = 0; i < kRows; i++)
            for (int j = 0; j < kColumns; j++)
                if (row + y + i < p.m && column + x + j < p.n)
                    ((float *)p.c)[(row + y + i) * p.n + column + x + j] = sum[i][j];
    }
}
