// SPDX-License-Identifier: Apache-2.0
//
// RMS norm of few rows, or of rows of any length: PARTS blocks share a row. The first launch leaves the sums of squares of the parts in
// the workspace, fp32 [rows][PARTS], and x + residual in sum; the second one adds the sums in their order and reads the row again.
#include "rms_norm_pieces.cuh"

namespace {

constexpr int kPart = ((COLUMNS + 7) / 8 + PARTS - 1) / PARTS * 8;   // columns of a part
static_assert(FA_THREADS == THREADS, "the manifest differs");

// What a thread has of its part: does(column) for each of its pieces.
template <class Does> FA_DEVICE void for_each_piece(const Does &does) {
    const int begin = (int)blockIdx.y * kPart, end = COLUMNS - begin < kPart ? COLUMNS : begin + kPart;
#pragma unroll 4
    for (int column = begin + (int)threadIdx.x * 8; column < end; column += THREADS * 8) does(column);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(FA_THREADS) rms_norm_sums(const __grid_constant__ fa_rms_norm_params p, float *workspace) {
    const i64 row = blockIdx.x;
    const u16 *x_row = (const u16 *)p.x + row * p.x_row, *residual_row = (const u16 *)p.residual + row * p.residual_row;
    float sum = 0.0f;
    for_each_piece([&](int column) {
        Piece x;
        load_piece(x, x_row, column);
        if constexpr (kResidual) {
            Piece residual;
            load_piece(residual, residual_row, column);
            add(x, residual);
            store_piece((u16 *)p.sum + row * p.sum_row, column, x);
        }
        sum += squares(x);
    });
    sum = sum_over<THREADS>(sum);
    if (threadIdx.x == 0) workspace[row * PARTS + blockIdx.y] = sum;
}

extern "C" __global__ void __launch_bounds__(FA_THREADS) rms_norm_scale(const __grid_constant__ fa_rms_norm_params p, float *workspace) {
    const i64 row = blockIdx.x;
    const u16 *x_row = kResidual ? (const u16 *)p.sum + row * p.sum_row : (const u16 *)p.x + row * p.x_row;
    float sum = 0.0f;
    for (int part = (int)threadIdx.x % 32; part < PARTS; part += 32) sum += workspace[row * PARTS + part];
    const float scale = scale_of(warp_sum(sum), p.epsilon);
    for_each_piece([&](int column) {
        Piece x, w;
        load_piece(x, x_row, column);
        load_piece<true>(w, (const u16 *)p.w, column);
        multiply(x, scale, w);
        store_piece((u16 *)p.y + row * p.y_row, column, x);
    });
}
