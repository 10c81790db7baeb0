// SPDX-License-Identifier: Apache-2.0
//
// What the RMS norm kernels share: pieces of eight neighbouring elements of a row, and sums over the threads of a row.
//
// Invariants: nothing outside a row is read or written. A piece of an aligned problem is one access of 16 bytes; others are
// read and written element by element, and elements beyond the row are 0.
#ifndef RMS_NORM_PIECES_CUH
#define RMS_NORM_PIECES_CUH

#include "fa_copy.cuh"
#include "rms_norm_params.h"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kAligned = ALIGNED != 0, kResidual = RESIDUAL != 0;
static_assert(!kAligned || COLUMNS % 8 == 0, "an aligned row is whole pieces");
extern __shared__ __align__(16) unsigned char shared_memory[];   // a float for each warp

using Piece = u32[4];

FA_DEVICE float reciprocal_root(float x) {
    float y;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Of an array that nobody writes to.
FA_DEVICE void load_kept(Piece &x, const u16 *from) {
    asm volatile("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
}
// Of a row that is read once, and may be written to afterwards. It comes faster by way of L1 than past it.
FA_DEVICE void load_once(Piece &x, const u16 *from) {
    asm volatile("ld.global.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
}
FA_DEVICE u32 element(const u16 *row, int column) { return column < COLUMNS ? row[column] : 0u; }

template <bool kKept = false> FA_DEVICE void load_piece(Piece &x, const u16 *row, int column) {
    if constexpr (kAligned && kKept) load_kept(x, row + column);
    else if constexpr (kAligned)     load_once(x, row + column);
    else
        for (int i = 0; i < 4; ++i) x[i] = element(row, column + 2 * i) | element(row, column + 2 * i + 1) << 16;
}

FA_DEVICE void store_piece(u16 *row, int column, const Piece &x) {
    if constexpr (kAligned) store_global_16(row + column, x);
    else
        for (int i = 0; i < 8; ++i)
            if (column + i < COLUMNS) row[column + i] = (u16)(x[i / 2] >> i % 2 * 16);
}

FA_DEVICE float low(u32 pair) { return to_float<kBf16>((u16)pair); }
FA_DEVICE float high(u32 pair) { return to_float<kBf16>((u16)(pair >> 16)); }

// x += y, rounded.
FA_DEVICE void add(Piece &x, const Piece &y) {
    for (int i = 0; i < 4; ++i) x[i] = pack2<kBf16>(low(x[i]) + low(y[i]), high(x[i]) + high(y[i]));
}

FA_DEVICE float squares(const Piece &x) {
    float sum = 0.0f;
    for (int i = 0; i < 4; ++i) sum += low(x[i]) * low(x[i]) + high(x[i]) * high(x[i]);
    return sum;
}

// x *= scale * w
FA_DEVICE void multiply(Piece &x, float scale, const Piece &w) {
    for (int i = 0; i < 4; ++i) x[i] = pack2<kBf16>(low(x[i]) * scale * low(w[i]), high(x[i]) * scale * high(w[i]));
}

FA_DEVICE float scale_of(float sum, float epsilon) { return reciprocal_root(sum * (1.0f / COLUMNS) + epsilon); }

// Over each kLanes neighbouring threads, of which there are a power of two; every thread of the block calls it, and gets the sum of its
// own ones.
template <int kLanes> FA_DEVICE float sum_over(float x) {
    for (int mask = (kLanes < 32 ? kLanes : 32) / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    if constexpr (kLanes > 32) {
        constexpr u32 kWarps = kLanes / 32, kEach = kWarps < 4 ? kWarps : 4;   // sums that a thread reads in one access
        const u32 warp = threadIdx.x / 32;
        float *sums = (float *)shared_memory;
        if (threadIdx.x % 32 == 0) sums[warp] = x;
        block_sync();
        sums += (kLanes == FA_THREADS ? 0 : warp / kWarps * kWarps) + threadIdx.x % (kWarps / kEach) * kEach;
        x = sums[0] + sums[1];
        if constexpr (kEach == 4) x += sums[2] + sums[3];
        for (int mask = (int)(kWarps / kEach) / 2; mask > 0; mask /= 2) x += shuffle_xor(x, mask);
    }
    return x;
}

}  // namespace

#endif
