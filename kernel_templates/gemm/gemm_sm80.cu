// SPDX-License-Identifier: Apache-2.0
//
// C = A B^T with mma.sync, fp16 or bf16, fp32 sums: a block a tile of C (gemm_tiles.cuh). Each warp passes its rounded part
// through shared memory, so that memory is written 16 bytes a lane.
#include "gemm_tiles.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) gemm_sm80(const __grid_constant__ fa_gemm_params p) {
    if (blockIdx.x >= Place::tiles(p)) return;
    const Place place(p, blockIdx.x);
    Sums sum;
    clear(sum);
    multiply(sum, p, place, 0, p.k);

    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 room = shared_address(shared_memory) + warp * (kWarpM * Part::kPitch);
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_shared_4(room + Part::offset(i * 16 + half * 8 + lane / 4, j) + lane % 4 * 4,
                               pack2<kBf16>(sum[i][j][2 * half], sum[i][j][2 * half + 1]));
        }
    }
    warp_sync();
    const int row = place.row + (int)(warp / WARPS_N) * kWarpM, column = place.column + (int)(warp % WARPS_N) * kWarpN;
    u16 *c = (u16 *)p.c + (i64)row * p.c_row + column;
#pragma unroll
    for (int i = 0; i < kWarpM * Part::kChunks / 32; ++i) {
        const int at = i * 32 + (int)lane, r = at / Part::kChunks, chunk = at % Part::kChunks;
        u32 x[4];
        load_shared_16(x, room + Part::offset((u32)r, (u32)chunk));
        if (row + r < p.m && column + chunk * 8 < p.n) store_global_16(c + (i64)r * p.c_row + chunk * 8, x);
    }
}
