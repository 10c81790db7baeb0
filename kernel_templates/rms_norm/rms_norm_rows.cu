// SPDX-License-Identifier: Apache-2.0
//
// RMS norm in one pass: LANES threads own a row, which stays in their registers from the sum of its squares to the output. With a
// residual the row is x + residual, rounded, and is written as well.
#include "rms_norm_pieces.cuh"

namespace {

constexpr int kRows = FA_THREADS / LANES, kPieces = (COLUMNS + LANES * 8 - 1) / (LANES * 8);
// A block of one row needs no predicate for it. But without one the assembler sends for all of the row at once, and where that is by
// single elements the registers do not suffice.
constexpr bool kAlone = kRows == 1 && kAligned;
constexpr bool kWhole = COLUMNS % (LANES * 8) == 0;
constexpr bool kFirst = kResidual && kPieces <= 2;   // registers hold w beside the row and the residual: all are on their way together
constexpr bool kEarly = !kFirst && kPieces <= 4;     // beside the row alone: w is on its way while the sum is made

// x, which is not known before w is: else the assembler sends for w when x has come. `zero` is a zero that the compiler does not know.
FA_DEVICE void come_with(Piece &x, const Piece &w, u32 zero) { x[0] |= w[0] & zero; }
static_assert(FA_THREADS == THREADS && THREADS % LANES == 0, "the manifest differs");

// What a thread has of some rows of memory: every LANES-th piece.
struct Share {
    int first;    // column
    bool there;   // does its row exist?

    __device__ __forceinline__ int column(int i) const { return first + i * LANES * 8; }
    __device__ __forceinline__ bool has(int i) const { return there && (kWhole || column(i) < COLUMNS); }

    template <bool kKept = false> __device__ __forceinline__ void load(Piece (&x)[kPieces], const void *from, i64 at) const {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0;
            if (has(i)) load_piece<kKept>(x[i], (const u16 *)from + at, column(i));
        }
    }
    __device__ __forceinline__ void store(void *to, i64 at, const Piece (&x)[kPieces]) const {
#pragma unroll
        for (int i = 0; i < kPieces; ++i)
            if (has(i)) store_piece((u16 *)to + at, column(i), x[i]);
    }
};

}  // namespace

extern "C" __global__ void __launch_bounds__(FA_THREADS) rms_norm_rows(const __grid_constant__ fa_rms_norm_params p) {
    const i64 row = blockIdx.x * kRows + threadIdx.x / LANES;
    if (kAlone && row >= p.rows) return;
    const Share share = {(int)(threadIdx.x % LANES) * 8, kAlone || row < p.rows};
    Piece x[kPieces], w[kPieces];
    if constexpr (kFirst) share.load<true>(w, p.w, 0);
    share.load(x, p.x, row * p.x_row);
    if constexpr (kResidual) {
        Piece residual[kPieces];
        share.load(residual, p.residual, row * p.residual_row);
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
            if constexpr (kFirst) come_with(x[i], w[i], (u32)(p.rows >> 31));
            add(x[i], residual[i]);
        }
        share.store(p.sum, row * p.sum_row, x);
    }
    if constexpr (kEarly) share.load<true>(w, p.w, 0);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) sum += squares(x[i]);
    const float scale = scale_of(sum_over<LANES>(sum), p.epsilon);
    if constexpr (!kFirst && !kEarly) share.load<true>(w, p.w, 0);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) multiply(x[i], scale, w[i]);
    share.store(p.y, row * p.y_row, x);
}
