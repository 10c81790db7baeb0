// SPDX-License-Identifier: Apache-2.0
//
// What the mma.sync kernels of C = A B^T share: which tile of C a block owns, and its sum over a range of K.
//
// Workload: a block of WARPS_M x WARPS_N warps owns BLOCK_M x BLOCK_N elements of C, each warp a part of them in registers.
// Slices of BLOCK_K columns of A and B pass through a ring of STAGES slots of shared memory, filled by cp.async.
// Invariants: rows and columns that do not exist are zeros in shared memory, and nothing outside the tensors is read. One block
// barrier a slice: behind it the slice has landed, and everybody is done with the one whose slot is filled next.
#ifndef GEMM_TILES_CUH
#define GEMM_TILES_CUH

#include "fa_copy.cuh"
#include "fa_mma.cuh"
#include "gemm_place.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kK = BLOCK_K, kStages = STAGES, kThreads = WARPS_M * WARPS_N * 32;
constexpr int kWarpM = kM / WARPS_M, kWarpN = kN / WARPS_N;
static_assert(kM % (16 * WARPS_M) == 0 && kN % (32 * WARPS_N) == 0 && kK % 32 == 0, "a warp owns whole fragments");
using Place = PlaceOf<kM, kN>;
using Layout = TileLayout<kK>;
using Part = TileLayout<kWarpN>;   // of a warp's elements of C, on their way to memory
constexpr u32 kABytes = kM * Layout::kPitch, kSlotBytes = kABytes + kN * Layout::kPitch;
static_assert(kM * kN * 2 <= kStages * (int)kSlotBytes, "C passes through the ring");
static_assert(FA_THREADS == kThreads, "the manifest differs");
extern __shared__ __align__(1024) unsigned char shared_memory[];

using Sums = float[kWarpM / 16][kWarpN / 8][4];

// One thread's share in copying kRows rows of a slice: a chunk of 8 columns of every kAtOnce-th row.
template <int kRows> struct Copier {
    static constexpr int kChunks = kK / 8, kAtOnce = kThreads / kChunks, kPasses = (kRows + kAtOnce - 1) / kAtOnce;

    const u16 *from;
    i64 step;          // elements from pass to pass
    u32 to;            // bytes from the tile's first
    int row, column, rows, columns;

    // `rows` of them exist; columns end at `end`.
    __device__ __forceinline__ Copier(const void *matrix, i64 stride, int first_row, int last_row, int begin, int end)
        : step(kAtOnce * stride), row((int)threadIdx.x / kChunks), rows(last_row - first_row), columns(end) {
        const int chunk = (int)threadIdx.x % kChunks;
        column = begin + chunk * 8;
        from = (const u16 *)matrix + (i64)(first_row + row) * stride + column;
        to = Layout::offset((u32)row, (u32)chunk);
    }
    // The next slice.
    __device__ __forceinline__ void copy(u32 tile) {
        static_assert(kAtOnce % 8 == 0, "the swizzle must repeat from pass to pass");
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
            const int at = row + i * kAtOnce;
            if (kRows % kAtOnce != 0 && at >= kRows) break;
            const bool there = at < rows && column < columns;
            cp_async_16_zfill(tile + to + (u32)(i * kAtOnce * Layout::kPitch), there ? from + i * step : from, there ? 16u : 0u);
        }
        column += kK;
        from += kK;
    }
};

// sum += A B^T over columns [begin, end) of both. Ends behind a block barrier, with the ring free.
FA_DEVICE void multiply(Sums &sum, const fa_gemm_params &p, const Place &place, int begin, int end) {
    const u32 ring = shared_address(shared_memory);
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 a_row = warp / WARPS_N * kWarpM + lane % 16, a_chunk = lane / 16;
    const u32 b_row = warp % WARPS_N * kWarpN + lane / 16 * 8 + lane % 8, b_chunk = lane / 8 % 2;
    Copier<kM> a(p.a, p.a_row, place.row, p.m, begin, end);
    Copier<kN> b(p.b, p.b_row, place.column, p.n, begin, end);
    const int slices = (end - begin + kK - 1) / kK;
    int filled = 0;
    u32 slot = 0, next = 0;   // bytes: what is read, what is filled
    const auto fill = [&] {
        if (filled < slices) {
            a.copy(ring + next);
            b.copy(ring + next + kABytes);
        }
        cp_async_commit();   // an empty group where nothing is left, so that counts stay
        ++filled;
        next = next + kSlotBytes == kStages * kSlotBytes ? 0 : next + kSlotBytes;
    };
#pragma unroll
    for (int i = 0; i < kStages - 1; ++i) fill();
#pragma unroll 1
    for (int slice = 0; slice < slices; ++slice) {
        cp_async_wait<kStages - 2>();
        block_sync();
        fill();
#pragma unroll
        for (int k = 0; k < kK / 16; ++k) {
            u32 left[kWarpM / 16][4], right[kWarpN / 16][4];
#pragma unroll
            for (int i = 0; i < kWarpM / 16; ++i)
                ldmatrix_x4(left[i], ring + slot + Layout::offset(a_row + i * 16, 2 * k + a_chunk));
#pragma unroll
            for (int j = 0; j < kWarpN / 16; ++j)
                ldmatrix_x4(right[j], ring + slot + kABytes + Layout::offset(b_row + j * 16, 2 * k + b_chunk));
#pragma unroll
            for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
                for (int j = 0; j < kWarpN / 8; ++j)
                    mma_16816<kBf16>(sum[i][j], left[i], right[j / 2][j % 2 * 2], right[j / 2][j % 2 * 2 + 1]);
            }
        }
        slot = slot + kSlotBytes == kStages * kSlotBytes ? 0 : slot + kSlotBytes;
    }
    cp_async_wait<0>();
    block_sync();
}

FA_DEVICE void clear(Sums &sum) {
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) sum[i][j][0] = sum[i][j][1] = sum[i][j][2] = sum[i][j][3] = 0.0f;
    }
}

// Rounds and stores a tile. Each warp passes its part through shared memory, so that memory is written 16 bytes a lane.
FA_DEVICE void store(const fa_gemm_params &p, const Place &place, const Sums &sum) {
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 room = shared_address(shared_memory) + warp * (kWarpM * Part::kPitch);
#pragma unroll
    for (int i = 0; i < kWarpM / 16; ++i) {
#pragma unroll
        for (int j = 0; j < kWarpN / 8; ++j) {
#pragma unroll
            for (int half = 0; half < 2; ++half)
                store_shared(room + Part::offset(i * 16 + half * 8 + lane / 4, j) + lane % 4 * 4,
                               pack2<kBf16>(sum[i][j][2 * half], sum[i][j][2 * half + 1]));
        }
    }
    warp_sync();
    const int row = place.row + (int)(warp / WARPS_N) * kWarpM, column = place.column + (int)(warp % WARPS_N) * kWarpN;
    u16 *c = (u16 *)p.c + (i64)row * p.c_row + column;
#pragma unroll
    for (int i = 0; i < kWarpM * Part::kChunks / 32; ++i) {
        const int at = i * 32 + (int)lane, r = at / Part::kChunks, chunk = at % Part::kChunks;
        u32 x[4];
        load_shared(x, room + Part::offset((u32)r, (u32)chunk));
        if (row + r < p.m && column + chunk * 8 < p.n) store_global_16(c + (i64)r * p.c_row + chunk * 8, x);
    }
}

}  // namespace

#endif
