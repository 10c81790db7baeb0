// SPDX-License-Identifier: Apache-2.0
//
// Numbers of e4m3 in registers, four to one, and their products by a warp (sm_89 and newer).
//
// Invariants: fragments are fa_mma.cuh's with two numbers in place of each of 16 bits, so that what ldmatrix makes of bytes is an
// operand of twice the columns. Accumulators packed four at a time are an A operand whose K within 16 is
// [0,1,8,9, 2,3,10,11, 4,5,12,13, 6,7,14,15]. A tensor core's sum keeps about 14 bits.
#ifndef FA_E4M3_CUH
#define FA_E4M3_CUH

#include "fa_numeric.cuh"

// Four numbers, the first in the lowest byte, to nearest even; beyond 448 they become 448.
FA_DEVICE u32 pack_e4m3(float a, float b, float c, float d) {
    u32 four;
    asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1; cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
        : "=r"(four) : "f"(a), "f"(b), "f"(c), "f"(d));
    return four;
}

template <u32 kBytes> FA_DEVICE u32 pick_bytes(u32 a, u32 b) {
    u32 four;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(four) : "r"(a), "r"(b), "n"(kBytes));
    return four;
}

// Two bytes of `four` as numbers of bf16 whose exponents are 120 less: a selector puts each below eight copies of its sign.
template <u32 kBytes> FA_DEVICE u32 spread_e4m3(u32 four) {
    u32 x;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(x) : "r"(four), "n"(kBytes));
    return x << 4 & 0x87f087f0u;
}
// Products of two pairs of bf16.
FA_DEVICE u32 multiply_pair(u32 x, u32 y) {
    u32 z;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(z) : "r"(x), "r"(y), "r"(0x80008000u));
    return z;
}

// c += a * b of 16 x 32 and 32 x 8 numbers.
FA_DEVICE void mma_16832_e4m3(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

#endif
