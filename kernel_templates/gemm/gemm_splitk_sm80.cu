// SPDX-License-Identifier: Apache-2.0
//
// C = A B^T for few rows, of which whole tiles do not fill a GPU: SPLITS blocks share a tile, each a range of K. The first launch
// leaves their sums in the workspace, fp32 [SPLITS][m][n]; the second one adds them in their order and rounds, so that every run has
// the same bits.
#include "gemm_tiles.cuh"
#include "fa_global.cuh"

// A range of K: whole slices, as even as they can be.
FA_DEVICE int begin_of(const fa_gemm_params &p, u32 split) {
    const int slices = (p.k + kK - 1) / kK;
    return (int)((i64)slices * split / SPLITS) * kK;
}

extern "C" __global__ void __launch_bounds__(kThreads) gemm_sums(const __grid_constant__ fa_gemm_params p, float *workspace) {
    if (blockIdx.x >= Place::tiles(p)) return;
    const Place place(p, blockIdx.x);
    const int begin = begin_of(p, blockIdx.y), end = begin_of(p, blockIdx.y + 1);
    Sums sum;
    clear(sum);
    multiply(sum, p, place, begin, end < p.k ? end : p.k);

    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int first = place.row + (int)(warp / WARPS_N) * kWarpM + (int)lane / 4;
    const int column = place.column + (int)(warp % WARPS_N) * kWarpN + (int)lane % 4 * 2;
    float *to = workspace + (i64)blockIdx.y * p.m * p.n;
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first + i * 16 + half * 8;
#pragma unroll
            for (int j = 0; j < kWarpN / 8; ++j)
                if (row < p.m && column + j * 8 < p.n)
                    store_floats(to + (i64)row * p.n + column + j * 8, {sum[i][j][2 * half], sum[i][j][2 * half + 1]});
        }
    }
}

// A thread adds four neighbours.
extern "C" __global__ void __launch_bounds__(256) gemm_add(const __grid_constant__ fa_gemm_params p, const float *workspace) {
    const i64 all = (i64)p.m * p.n, at = ((i64)blockIdx.x * 256 + threadIdx.x) * 4;
    if (at >= all) return;
    float sum[4] = {};
#pragma unroll
    for (int split = 0; split < SPLITS; ++split) {
        float x[4];
        load_floats(x, workspace + split * all + at);
#pragma unroll
        for (int i = 0; i < 4; ++i) sum[i] += x[i];
    }
    const i64 row = at / p.n, column = at - row * p.n;   // n is a multiple of 8
    store_global_8((u16 *)p.c + row * p.c_row + column, pack2<kBf16>(sum[0], sum[1]), pack2<kBf16>(sum[2], sum[3]));
}
