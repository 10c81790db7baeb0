// SPDX-License-Identifier: Apache-2.0
//
// Products of e4m3 numbers on warpgroups of sm_90a: wgmma, its descriptors, and what brings operands into its order.
//
// Purpose: D (64 x kN, fp32, registers) += A (64 x 32) * B (32 x kN), kN a multiple of 16 up to 256. B lies in shared memory, A in
// shared memory or in registers. Both operands in shared memory run K along their rows: there is no transposing form.
// Invariants: fa_wgmma.cuh's, but for the tiles: slabs whose rows are 128, 64 or 32 bytes, swizzled by as much.
// The order of K: accumulators packed four at a time (pack_e4m3) are an A operand whose K within 16 is
// [0,1,8,9, 2,3,10,11, 4,5,12,13, 6,7,14,15], and transpose_e4m3 stores B in the same order. A tensor core's sum keeps about 14 bits.
#ifndef FA_WGMMA_E4M3_CUH
#define FA_WGMMA_E4M3_CUH

#include "fa_e4m3.cuh"
#include "fa_mma.cuh"
#include "fa_tma.cuh"
#include "fa_wgmma.cuh"

template <int kRow> FA_DEVICE u64 e4m3_descriptor(u32 address) {
    static_assert(kRow == 128 || kRow == 64 || kRow == 32, "bytes of a slab's row");
    constexpr u64 kSwizzle = kRow == 128 ? 1 : kRow == 64 ? 2 : 3;
    return (kSwizzle << 62) | ((u64)(8 * kRow / 16) << 32) | ((address & 0x3ffffu) >> 4);
}

// Where the 16 bytes of a row lie that are its chunk-th.
template <int kRow> FA_DEVICE u32 swizzled_chunk(u32 row, u32 chunk) {
    const u32 by = kRow == 128 ? row & 7 : kRow == 64 ? (row >> 1) & 3 : (row >> 2) & 1;
    return row * kRow + ((chunk ^ by) << 4);
}

// c += A B, or c = A B.
template <int kN> struct WgmmaE4m3;
#define FA_WGMMA_E4M3(N, R, R1, R2, R3, R4, R5)                                                                      \
    template <> struct WgmmaE4m3<N> {                                                                                \
        FA_DEVICE void multiply(float (&c)[R], u64 a, u64 b, bool accumulate) {                                      \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #R2 ", 0;\n"                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 "                                 \
                         "{" FA_REGS_##R "}, %" #R ", %" #R1 ", p, 1, 1; }"                                          \
                         : FA_ACCS_##R : "l"(a), "l"(b), "r"((u32)accumulate));                                      \
        }                                                                                                            \
        FA_DEVICE void multiply(float (&c)[R], const u32 *a, u64 b, bool accumulate) {                               \
            asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #R5 ", 0;\n"                                             \
                         "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 "                                 \
                         "{" FA_REGS_##R "}, {%" #R ",%" #R1 ",%" #R2 ",%" #R3 "}, %" #R4 ", p, 1, 1; }"             \
                         : FA_ACCS_##R : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"((u32)accumulate));  \
        }                                                                                                            \
    };
FA_WGMMA_E4M3(32, 16, 17, 18, 19, 20, 21)
FA_WGMMA_E4M3(64, 32, 33, 34, 35, 36, 37)
FA_WGMMA_E4M3(96, 48, 49, 50, 51, 52, 53)
FA_WGMMA_E4M3(128, 64, 65, 66, 67, 68, 69)
FA_WGMMA_E4M3(160, 80, 81, 82, 83, 84, 85)
FA_WGMMA_E4M3(192, 96, 97, 98, 99, 100, 101)
FA_WGMMA_E4M3(224, 112, 113, 114, 115, 116, 117)
FA_WGMMA_E4M3(256, 128, 129, 130, 131, 132, 133)

// A whole warp's: 32 rows (K) of 16 bytes, of which this lane has the address of one, become 16 rows of 32 bytes; `four` is what
// ldmatrix_x4_trans made of them, `to` the address of 16 bytes by lane: row transposed_row(lane), the first 16 bytes in lanes 0 to 15.
// Row n of the result is column 2 * (n % 8) + n / 8, so that a thread's accumulators are of four neighbouring columns.
FA_DEVICE void transpose_e4m3(u32 to, const u32 (&four)[4]) {
    stmatrix_x4(to, pick_bytes<0x6420>(four[0], four[1]), pick_bytes<0x7531>(four[0], four[1]),
                pick_bytes<0x6420>(four[2], four[3]), pick_bytes<0x7531>(four[2], four[3]));
}

#endif
