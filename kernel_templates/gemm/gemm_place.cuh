// SPDX-License-Identifier: Apache-2.0
//
// Which tile of C, of kRows x kColumns, has which number. Tiles of GROUP_M rows of tiles stand below one another before the next column, so that blocks
// that run together share rows of A and of B in L2.
#ifndef GEMM_PLACE_CUH
#define GEMM_PLACE_CUH

#include "fa_numeric.cuh"
#include "gemm_params.h"

template <int kRows, int kColumns> struct PlaceOf {
    int row, column;   // of C

    __device__ __forceinline__ PlaceOf(const fa_gemm_params &p, u32 index) {
        const u32 down = tiles_down(p), across = ((u32)p.n + kColumns - 1) / kColumns;
        const u32 group = index / (GROUP_M * across), at = index % (GROUP_M * across);
        const u32 rows = down - group * GROUP_M < GROUP_M ? down - group * GROUP_M : GROUP_M;
        row = (int)((group * GROUP_M + at % rows) * kRows);
        column = (int)(at / rows * kColumns);
    }
    static __device__ __forceinline__ u32 tiles_down(const fa_gemm_params &p) { return ((u32)p.m + kRows - 1) / kRows; }
    static __device__ __forceinline__ u32 tiles(const fa_gemm_params &p) { return tiles_down(p) * (((u32)p.n + kColumns - 1) / kColumns); }
};

#endif
