// SPDX-License-Identifier: Apache-2.0
//
// C = A B^T with mma.sync, fp16 or bf16, fp32 sums: a block a tile of C (gemm_tiles.cuh).
#include "gemm_tiles.cuh"

extern "C" __global__ void __launch_bounds__(kThreads) gemm_sm80(const __grid_constant__ fa_gemm_params p) {
    if (blockIdx.x >= Place::tiles(p)) return;
    const Place place(p, blockIdx.x);
    Sums sum;
    clear(sum);
    multiply(sum, p, place, 0, p.k);
    store(p, place, sum);
}
