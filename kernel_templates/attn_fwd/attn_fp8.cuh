// SPDX-License-Identifier: Apache-2.0
//
// Numbers of a cache in fp8 (e4m3) as numbers of the kernel's type.
#ifndef ATTN_FP8_CUH
#define ATTN_FP8_CUH

#include "fa_numeric.cuh"

// Two e4m3 numbers of `four` as a pair of fp16 or bf16, exact but for NaN, which reads as 480: their bits as the upper ones of
// a number with a wider exponent, times what the biases differ by. kBytes is a selector of prmt.b32 that puts them in
// the upper bytes of both halves.
template <bool kBf16, u32 kBytes> FA_DEVICE u32 widen(u32 four) {
    u32 spread, pair;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(spread) : "r"(four), "n"(kBytes));
    spread = (spread & 0x80008000u) | ((spread & 0x7f007f00u) >> (kBf16 ? 4 : 1));
    if constexpr (kBf16) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(spread), "r"(0x7b807b80u), "r"(0x80008000u));
    else                 asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(spread), "r"(0x5c005c00u));
    return pair;
}
constexpr u32 kBytes01 = 0x1404, kBytes23 = 0x3424, kBytes02 = 0x2404, kBytes13 = 0x3414;

#endif
