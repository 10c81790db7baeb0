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

    // x / d for x < 2^29, which the first fetch of a block waits for: a division by what is not known takes five times as long.
    static __device__ __forceinline__ u32 quotient(u32 x, u32 d) {
        static_assert(GROUP_M <= 8, "a reciprocal is chosen");
        const u32 part = d == 2 ? 0x80000000 : d == 3 ? 0x55555556 : d == 4 ? 0x40000000 : d == 5 ? 0x33333334 : d == 6 ? 0x2aaaaaab : d == 7 ? 0x24924925 : 0x20000000;
        return d == 1 ? x : (u32)((u64)x * part >> 32);
    }
    __device__ __forceinline__ PlaceOf(const fa_gemm_params &p, u32 index) {
        const u32 down = tiles_down(p), across = ((u32)p.n + kColumns - 1) / kColumns;
        const u32 group = down > GROUP_M ? index / (GROUP_M * across) : 0, at = index - group * GROUP_M * across;
        const u32 rows = down - group * GROUP_M < GROUP_M ? down - group * GROUP_M : GROUP_M, over = quotient(at, rows);
        row = (int)((group * GROUP_M + at - over * rows) * kRows);
        column = (int)(over * kColumns);
    }
    static __device__ __forceinline__ u32 tiles_down(const fa_gemm_params &p) { return ((u32)p.m + kRows - 1) / kRows; }
    static __device__ __forceinline__ u32 tiles(const fa_gemm_params &p) { return tiles_down(p) * (((u32)p.n + kColumns - 1) / kColumns); }
};

#endif
