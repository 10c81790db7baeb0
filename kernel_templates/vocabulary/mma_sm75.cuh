// SPDX-License-Identifier: Apache-2.0
//
// Turing's vocabulary: m16n8k8 fp16 matrix products, ldmatrix, swizzled shared memory, 16-byte moves.
//
// Purpose: everything in PTX that a kernel for sm_75 needs and no newer instruction.
// Workload: tiles of fp16 rows in shared memory, read as fragments by whole warps.
// Invariants: shared addresses are 32-bit byte addresses of the shared window; a row of kChunks 16-byte
// chunks (kChunks a multiple of 4) keeps chunk c at c ^ swizzle(row), so that eight consecutive rows of
// one chunk column lie in eight different bank groups. Moves are volatile, so they keep their order.
#ifndef FA_MMA_SM75_CUH
#define FA_MMA_SM75_CUH

#include "fa_shared.cuh"

// Eight fp16 of one row.
struct Vector16 {
    u32 x, y, z, w;
};

// The exclusive-or that spreads a row's chunks over the banks; the same for row and row + 8.
template <int kChunks> FA_DEVICE int swizzle(int row) {
    static_assert(kChunks % 4 == 0, "a row is a multiple of 64 bytes");
    return kChunks % 8 == 0 ? row & 7 : (row >> 1) & 3;
}

FA_DEVICE void store_vector(u32 to, const Vector16 &v) { store_shared(to, v.x, v.y, v.z, v.w); }
FA_DEVICE Vector16 load_vector(u32 from) {
    Vector16 v;
    load_shared(v.x, v.y, v.z, v.w, from);
    return v;
}

// Eight elements from global memory that the kernel never writes. kAligned: 16-byte aligned.
template <bool kAligned> FA_DEVICE Vector16 load_global(const u16 *source) {
    Vector16 v;
    if constexpr (kAligned) {
        asm volatile("ld.global.nc.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(source));
    } else {
        u16 e[8];
#pragma unroll
        for (int i = 0; i < 8; i++) asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(e[i]) : "l"(source + i));
        v.x = e[0] | (u32)e[1] << 16, v.y = e[2] | (u32)e[3] << 16;
        v.z = e[4] | (u32)e[5] << 16, v.w = e[6] | (u32)e[7] << 16;
    }
    return v;
}

template <bool kAligned> FA_DEVICE void store_global(u16 *target, const Vector16 &v) {
    if constexpr (kAligned) {
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" :: "l"(target), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
    } else {
        const u32 pairs[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (int i = 0; i < 8; i++) target[i] = (u16)(pairs[i / 2] >> 16 * (i % 2));
    }
}

// Four 8x8 matrices; lanes 8i..8i+7 name the rows of matrix i. Lane l receives elements 2(l%4), 2(l%4)+1 of
// row l/4 of each.
FA_DEVICE void load_matrices(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}

// The same, each matrix transposed: lane l receives rows 2(l%4), 2(l%4)+1 of column l/4.
FA_DEVICE void load_matrices_transposed(u32 (&m)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3]) : "r"(address) : "memory");
}

// c[16x8] += a[16x8] b[8x8], fp16 into fp32. Lane l holds of a: row l/4 (a0) and l/4+8 (a1), columns
// 2(l%4), +1; of b: rows 2(l%4), +1 of column l/4; of c: row l/4 (c[0], c[1]) and l/4+8 (c[2], c[3]), as a.
FA_DEVICE void mma_16x8x8(float (&c)[4], u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a0), "r"(a1), "r"(b));
}

#endif
