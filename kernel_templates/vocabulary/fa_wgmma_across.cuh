// SPDX-License-Identifier: Apache-2.0
//
// More of wgmma on sm_90a: products of two operands in shared memory of which one or both run K across their rows, and
// matrices stored transposed. Invariants: fa_wgmma.cuh's; an operand that runs K across its rows is 64 columns wide, one slab.
#ifndef FA_WGMMA_ACROSS_CUH
#define FA_WGMMA_ACROSS_CUH

#include "fa_wgmma.cuh"

// c += A B, or c = A B. kAcrossA, kAcrossB: 1 where K runs across the rows of that operand, else 0.
template <int kN> struct WgmmaAcross;
#define FA_WGMMA_ACROSS(N, R, R1, R2, R3, R4)                                                                        \
    template <> struct WgmmaAcross<N> {                                                                              \
        template <int kAcrossA, int kAcrossB>                                                                        \
        FA_DEVICE void multiply(float (&c)[R], u64 a, u64 b, bool accumulate) {                                      \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #R2 ", 0;\n"                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k16" FA_WGMMA_TYPES                                 \
                         "{" FA_REGS_##R "}, %" #R ", %" #R1 ", p, 1, 1, %" #R3 ", %" #R4 "; }"                      \
                         : FA_ACCS_##R : "l"(a), "l"(b), "r"((u32)accumulate), "n"(kAcrossA), "n"(kAcrossB));        \
        }                                                                                                            \
    };
FA_WGMMA_ACROSS(32, 16, 17, 18, 19, 20)
FA_WGMMA_ACROSS(48, 24, 25, 26, 27, 28)
FA_WGMMA_ACROSS(64, 32, 33, 34, 35, 36)
FA_WGMMA_ACROSS(80, 40, 41, 42, 43, 44)
FA_WGMMA_ACROSS(96, 48, 49, 50, 51, 52)

// As stmatrix_x4, each matrix transposed: lane 8i+r supplies the address of column r of matrix i.
FA_DEVICE void stmatrix_x4_trans(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1,%2,%3,%4};"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

#endif
