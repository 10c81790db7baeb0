// SPDX-License-Identifier: Apache-2.0
//
// Copies between global and shared memory for tiles of 16-bit elements, the XOR swizzle they agree on, barriers.
//
// A tile is `rows` x kCols elements, row pitch kCols * 2 bytes, no padding. A row is made of 16-byte
// chunks; chunk c of row r is stored at chunk c ^ swizzle(r), which makes 8 consecutive rows of one
// chunk column fall in 8 different 16-byte bank groups (ldmatrix without conflicts):
//   pitch a multiple of 128 B: swizzle(r) = r % 8;   pitch 64 B beyond one: swizzle(r) = (r / 2) % 4.
// Invariants: shared tiles start at a multiple of 128 B; nothing outside valid rows and columns is read;
// chunks beyond them are written as zeros.
#ifndef FA_COPY_CUH
#define FA_COPY_CUH

#include "fa_async.cuh"

FA_DEVICE void block_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// A block barrier in two halves (an mbarrier, 8 bytes of shared memory): a thread arrives when the others may
// rely on what it has done, goes on with work of its own, and waits when it needs them, by when they have
// usually arrived. Arrivals and waits alternate in every thread. Every thread arrives for itself: one lane for
// its warp measured within 1% of that, and leaves the order of the other lanes' copies to a warp barrier that
// checkers do not follow. Call initialise() once, then block_sync(). With kSplit = false both halves are one
// plain barrier at wait(): for copies by ordinary stores, which gain nothing from the split.
template <bool kSplit> struct SplitBarrier {
    u32 address, parity;

    __device__ __forceinline__ void initialise(u32 threads) const {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" :: "r"(address), "r"(threads) : "memory");
    }
    __device__ __forceinline__ void arrive() const {
        if constexpr (!kSplit) return;
        asm volatile("{ .reg .b64 state; mbarrier.arrive.shared.b64 state, [%0]; }" :: "r"(address) : "memory");
    }
    __device__ __forceinline__ void wait() {
        if constexpr (!kSplit) return block_sync();
        asm volatile("{ .reg .pred done;\n"
                     "AGAIN_%=:\n"
#if __CUDA_ARCH__ >= 900
                     "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
#else
                     "mbarrier.test_wait.parity.shared.b64 done, [%0], %1;\n"
#endif
                     "@!done bra AGAIN_%=; }" :: "r"(address), "r"(parity) : "memory");
        parity ^= 1;
    }
};

FA_DEVICE void store_global_16(void *address, const u32 (&x)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" :: "l"(address), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]));
}
// Eight elements of a row. kAligned: by one store of 16 bytes.
template <bool kAligned> FA_DEVICE void store_chunk(u16 *to, const u32 (&x)[4]) {
    if constexpr (kAligned) return store_global_16(to, x);
#pragma unroll
    for (int e = 0; e < 8; ++e) to[e] = (u16)(x[e / 2] >> (e % 2 * 16));
}

// The shared-memory picture of a tile with kCols columns.
template <int kCols> struct TileLayout {
    static_assert(kCols % 32 == 0, "a row is whole 64-byte pieces");
    static constexpr int kPitch = kCols * 2;                        // bytes
    static constexpr int kChunks = kCols / 8;                       // 16-byte chunks a row
    static constexpr int kPhase = kChunks % 8 == 0 ? 8 : 4;         // chunks the swizzle permutes among themselves
    static constexpr int kSteps = kPhase / 2;                       // 16-column steps with a swizzle of their own
    static constexpr int kPieces = kChunks / kPhase;                // swizzled pieces a row

    FA_DEVICE u32 swizzle(u32 row) { return kPhase == 8 ? row & 7u : (row >> 1) & 3u; }
    FA_DEVICE u32 offset(u32 row, u32 chunk) { return row * kPitch + ((chunk ^ swizzle(row)) << 4); }
};

// One thread's share in copying tiles of kCols columns (kValid of them in memory) with kThreads threads:
// chunk `chunk` of every kPhase-chunk piece, in rows row, row + kRowsPerPass, …
template <int kCols, int kValid, int kThreads, bool kAligned> struct TileCopier {
    using Layout = TileLayout<kCols>;
    static constexpr int kRowsPerPass = kThreads / Layout::kPhase;
    static_assert(kRowsPerPass % 8 == 0, "the swizzle must repeat from pass to pass");

    u32 row, chunk;      // first row; chunk within a piece
    u32 shared_offset;   // of (row, chunk) in a tile, bytes

    __device__ __forceinline__ explicit TileCopier(u32 thread) {
        row = thread / Layout::kPhase;
        chunk = thread % Layout::kPhase;
        shared_offset = Layout::offset(row, chunk);
    }

    // Element offset of the thread's first chunk from the tile's first element.
    __device__ __forceinline__ i64 global_offset(i64 row_stride) const { return (i64)row * row_stride + chunk * 8; }

    // Copy kRows rows; `source` is the thread's own first chunk. With kRagged only rows < rows_valid are read.
    template <int kRows, bool kRagged>
    __device__ __forceinline__ void load(u32 tile, const u16 *source, i64 row_stride, int rows_valid) const {
#pragma unroll
        for (int r = 0; r < kRows; r += kRowsPerPass) {
            const bool whole_pass = r + kRowsPerPass <= kRows;      // else threads beyond the tile sit out
            if (!whole_pass && (int)row + r >= kRows) break;
            const bool row_ok = !kRagged || (int)row + r < rows_valid;
#pragma unroll
            for (int piece = 0; piece < Layout::kPieces; ++piece) {
                const u32 to = tile + shared_offset + (u32)(r * Layout::kPitch + piece * Layout::kPhase * 16);
                const int first = piece * Layout::kPhase * 8;       // the piece's first column
                const bool in_memory = first + Layout::kPhase * 8 <= kValid || (int)chunk * 8 + first < kValid;
                load_chunk<kRagged || kValid < kCols>(to, source + first, row_ok && in_memory);
            }
            source += (i64)kRowsPerPass * row_stride;
        }
    }

  private:
    // One 16-byte chunk; `ok` false: zeros, and `from` is not read. kMayMiss false: `ok` is known to be true.
    template <bool kMayMiss> FA_DEVICE void load_chunk(u32 to, const u16 *from, bool ok) {
        if constexpr (kAligned) {
            if constexpr (kMayMiss) cp_async_16_zfill(to, from, ok ? 16u : 0u);
            else                    cp_async_16(to, from);
        } else {
            u32 x[4] = {0, 0, 0, 0};
            if (ok) {
#pragma unroll
                for (int i = 0; i < 4; ++i) x[i] = (u32)from[2 * i] | ((u32)from[2 * i + 1] << 16);
            }
            store_shared(to, x);
        }
    }
};

#endif
