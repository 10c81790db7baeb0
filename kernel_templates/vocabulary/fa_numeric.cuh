// SPDX-License-Identifier: Apache-2.0
//
// Numbers: fp16 and bf16 storage <-> fp32, base-2 exponential and logarithm, reductions over a quad and a warp.
//
// Purpose: one vocabulary of numeric primitives for every kernel template, in raw PTX, so that no CUDA
// header is compiled. Usable on sm_75 and newer (bf16 conversions are done in integers on sm_75).
// Invariants: storage is 16 raw bits; a pair is packed low half first (element 0 in bits 0..15);
// conversions to storage round to nearest even, overflow to infinity and keep NaN.
#ifndef FA_NUMERIC_CUH
#define FA_NUMERIC_CUH

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define FA_DEVICE static __device__ __forceinline__

FA_DEVICE float bits_to_float(u32 bits) {
    float x;
    asm("mov.b32 %0, %1;" : "=f"(x) : "r"(bits));
    return x;
}

FA_DEVICE u32 float_to_bits(float x) {
    u32 bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

FA_DEVICE float neg_infinity() { return bits_to_float(0xff800000u); }

// One stored element -> fp32, exact.
template <bool kBf16> FA_DEVICE float to_float(u16 bits) {
    if constexpr (kBf16) {
        return bits_to_float((u32)bits << 16);
    } else {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
}

#if __CUDA_ARCH__ < 800
// bf16 rounding in integers: round to nearest even, NaN stays a (quiet) NaN.
FA_DEVICE u32 bf16_round(float x) {
    u32 b = float_to_bits(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
    return (b + 0x7fffu + ((b >> 16) & 1u)) >> 16;
}
#endif

// fp32 -> one stored element.
template <bool kBf16> FA_DEVICE u16 from_float(float x) {
    u16 bits;
    if constexpr (kBf16) {
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
        bits = (u16)bf16_round(x);
#endif
    } else {
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    }
    return bits;
}

// Two fp32 -> a stored pair, `lo` in the low half.
template <bool kBf16> FA_DEVICE u32 pack2(float lo, float hi) {
    u32 pair;
#if __CUDA_ARCH__ >= 800
    if constexpr (kBf16) asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
    else                 asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(hi), "f"(lo));
#else
    pair = (u32)from_float<kBf16>(lo) | ((u32)from_float<kBf16>(hi) << 16);
#endif
    return pair;
}

// 2^x, about 2 ulp; exp2_fast(-inf) = +0.
FA_DEVICE float exp2_fast(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// log2(x), absolute error about 2^-22; log2_fast(0) = -inf.
FA_DEVICE float log2_fast(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// 1/x, about 1 ulp.
FA_DEVICE float reciprocal(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

FA_DEVICE float max2(float a, float b) {
    float y;
    asm("max.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

// Exchange with the lane whose number differs by `mask`; all 32 lanes take part.
FA_DEVICE float shuffle_xor(float x, int mask) {
    float y;
    asm volatile("shfl.sync.bfly.b32 %0, %1, %2, 31, 0xffffffff;" : "=f"(y) : "f"(x), "r"(mask));
    return y;
}
FA_DEVICE u32 shuffle_xor(u32 x, int mask) { return float_to_bits(shuffle_xor(bits_to_float(x), mask)); }

// The value of lane `lane`; all 32 lanes take part.
FA_DEVICE int from_lane(int x, int lane) {
    int y;
    asm volatile("shfl.sync.idx.b32 %0, %1, %2, 31, 0xffffffff;" : "=r"(y) : "r"(x), "r"(lane));
    return y;
}
FA_DEVICE float from_lane(float x, int lane) { return bits_to_float((u32)from_lane((int)float_to_bits(x), lane)); }

// Over the four lanes 4i..4i+3, which share the rows of an mma accumulator: every lane gets the result.
FA_DEVICE float quad_max(float x) {
    x = max2(x, shuffle_xor(x, 1));
    return max2(x, shuffle_xor(x, 2));
}

FA_DEVICE float quad_sum(float x) {
    x += shuffle_xor(x, 1);
    return x + shuffle_xor(x, 2);
}

// Over the 32 lanes of a warp.
FA_DEVICE float warp_max(float x) {
    for (int mask = 16; mask > 0; mask >>= 1) x = max2(x, shuffle_xor(x, mask));
    return x;
}

FA_DEVICE float warp_sum(float x) {
    for (int mask = 16; mask > 0; mask >>= 1) x += shuffle_xor(x, mask);
    return x;
}

// True in every lane when `x` is true in any lane of the warp.
FA_DEVICE bool warp_any(bool x) {
    u32 any;
    asm volatile("{ .reg .pred p, q; setp.ne.u32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; selp.u32 %0, 1, 0, q; }"
                 : "=r"(any) : "r"((u32)x));
    return any != 0;
}

#endif
