// SPDX-License-Identifier: Apache-2.0
//
// Warp matrix vocabulary of the Ampere family (sm_80 and newer): mma.m16n8k16 and ldmatrix, in raw PTX.
//
// Invariants: fragments follow the PTX ISA. For lane l, row g = l/4 and pair t = l%4:
//   accumulator c[4]: (g, 2t) (g, 2t+1) (g+8, 2t) (g+8, 2t+1) of a 16x8 tile;
//   A a[4] (16x16): rows g, g+8 at columns 2t.., then rows g, g+8 at columns 2t+8..;
//   B b[2] (16x8): k = 2t.. and k = 2t+8.. of column g.
// So two neighbouring accumulators, packed to 16 bits, are the A operand of the next product.
#ifndef FA_MMA_CUH
#define FA_MMA_CUH

#include "fa_numeric.cuh"

// c += a * b, fp32 accumulate. Not volatile: the compiler may move it, never across what it depends on.
template <bool kBf16>
FA_DEVICE void mma_16816(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    if constexpr (kBf16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

// Four 8x8 matrices of 16-bit elements; lane 8i+r supplies the address of row r of matrix i.
// Volatile: keeps its place among copies, waits and barriers.
FA_DEVICE void ldmatrix_x4(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

FA_DEVICE void ldmatrix_x4_trans(u32 (&r)[4], u32 address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(address));
}

#endif
