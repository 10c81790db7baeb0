// SPDX-License-Identifier: Apache-2.0
//
// C = A B^T for few rows, of which whole tiles do not fill a GPU: SPLITS blocks share a tile, each a range of K. They leave their sums in
// the workspace, fp32 [tiles][SPLITS][vectors of four][threads], and the last one to come adds them in their order and rounds, so that
// every run has the same bits.
#include "gemm_tiles.cuh"
#include "fa_global.cuh"

// A range of K: whole slices, as even as they can be.
FA_DEVICE int begin_of(const fa_gemm_params &p, u32 split) {
    const int slices = (p.k + kK - 1) / kK;
    return (int)((i64)slices * split / SPLITS) * kK;
}

extern "C" __global__ void __launch_bounds__(kThreads)
gemm_splitk(const __grid_constant__ fa_gemm_params p, float *workspace, u32 *counters) {
    if (blockIdx.x >= Place::tiles(p)) return;
    const Place place(p, blockIdx.x);
    const int begin = begin_of(p, blockIdx.y), end = begin_of(p, blockIdx.y + 1);
    Sums sum;
    clear(sum);
    multiply(sum, p, place, begin, end < p.k ? end : p.k);

    float *const all = workspace + ((i64)blockIdx.x * SPLITS * kThreads * (kM * kN / kThreads) + threadIdx.x * 4);
    const auto vector = [&](u32 split, int i, int j) {
        return all + (split * (kM * kN / kThreads / 4) + i * (kWarpN / 8) + j) * kThreads * 4;
    };
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) store_floats(vector(blockIdx.y, i, j), sum[i][j]);
    }
    block_sync();
    const u32 answer = shared_address(shared_memory);
    if (threadIdx.x == 0) store_shared(answer, arrives_last(counters + blockIdx.x, SPLITS));
    block_sync();
    if (load_shared<u32>(answer) == 0) return;
    clear(sum);
#pragma unroll 2
    for (u32 split = 0; split < SPLITS; ++split) {
#pragma unroll
        for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
            for (int j = 0; j < kWarpN / 8; ++j) {
                float x[4];
                load_floats(x, vector(split, i, j));
#pragma unroll
                for (int e = 0; e < 4; ++e) sum[i][j][e] += x[e];
            }
        }
    }
    block_sync();   // the answer has been read
    store(p, place, sum);
}
