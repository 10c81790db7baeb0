// SPDX-License-Identifier: Apache-2.0
//
// C = A B^T for Hopper (sm_90a): TMA and wgmma, one producing warpgroup and two consuming ones, fp16 or bf16, fp32 sums.
//
// Workload: as many blocks as there are SMs, or tiles if they are fewer; each takes every gridDim.x-th tile of C. A consumer owns half
// of the tile's rows and all of its columns. While the consumers store a tile, the producer fetches the next one.
// Invariants:
//  - shared memory is a ring of STAGES slots of {64 columns of A, 64 columns of B}, then two pieces of C (16 rows x 64 columns) for
//    each consuming warp, then the barriers. All are slabs of 64 columns with swizzled rows of 128 bytes.
//  - a block makes the three tensor maps for itself, in its part of the workspace, before anybody uses them.
#include "fa_tma_device.cuh"
#include "fa_wgmma.cuh"
#include "gemm_place.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kStages = STAGES, kGroups = 2, kThreads = (kGroups + 1) * 128;
constexpr int kParts = kM / (64 * kGroups);   // products of 64 rows that a consumer has
static_assert(kM % (64 * kGroups) == 0 && kN % 64 == 0 && kN <= 256 && kM <= 256, "a consumer owns whole products");
static_assert(FA_THREADS == kThreads, "the manifest differs");
constexpr u32 kWarp = 32, kGroup = 128, kRowBytes = 128, kConsumers = kGroups * 4;   // warps
constexpr u32 kABytes = kM * kRowBytes, kSlotBytes = kABytes + kN * kRowBytes, kPieceBytes = 16 * kRowBytes;
constexpr u32 kPiecesAt = kStages * kSlotBytes, kBarriersAt = kPiecesAt + kConsumers * 2 * kPieceBytes;
enum Map { kMapA, kMapB, kMapC, kMaps };
extern __shared__ __align__(1024) unsigned char shared_memory[];

FA_DEVICE u32 full(u32 base, u32 slot) { return base + kBarriersAt + 8 * slot; }
FA_DEVICE u32 empty(u32 base, u32 slot) { return base + kBarriersAt + 8 * (kStages + slot); }

FA_DEVICE MapShape shape_of(const fa_gemm_params &p, u32 map) {
    return {map == kMapA ? p.a : map == kMapB ? p.b : p.c, map == kMapC ? p.n : p.k, map == kMapB ? p.n : p.m, 1, 1,
            map == kMapA ? p.a_row : map == kMapB ? p.b_row : p.c_row, 0, 0, map == kMapA ? kM : map == kMapB ? kN : 16};
}

// One thread fetches what the consumers multiply.
FA_DEVICE void produce(const fa_gemm_params &p, const fa_tensor_map *maps, u32 base) {
    acquire_map(maps + kMapA);
    acquire_map(maps + kMapB);
    Ring<kStages> ring;
#pragma unroll 1
    for (u32 tile = blockIdx.x; tile < Place::tiles(p); tile += gridDim.x) {
        const Place place(p, tile);
#pragma unroll 1
        for (int column = 0; column < p.k; column += 64) {
            const u32 to = base + ring.slot * kSlotBytes, barrier = full(base, ring.slot);
            barrier_wait(empty(base, ring.slot), ring.parity ^ 1);
            barrier_expect(barrier, kSlotBytes);
            tma_load(to, maps + kMapA, barrier, column, place.row, 0, 0, kEvictLast);
            tma_load(to + kABytes, maps + kMapB, barrier, column, place.column, 0, 0, kEvictLast);
            ring.advance();
        }
    }
}

struct Consumer {
    const fa_gemm_params &p;
    const u32 base, group, warp, lane;
    const u64 a_rows, b_rows;   // descriptors of slot 0
    Ring<kStages> ring;         // what is multiplied next
    float c[kParts][kN / 2];
    u32 piece;                  // of this warp, that is filled next

    __device__ __forceinline__ Consumer(const fa_gemm_params &p, u32 base, u32 group)
        : p(p), base(base), group(group), warp(threadIdx.x % kGroup / kWarp), lane(threadIdx.x % kWarp),
          a_rows(wgmma_descriptor<64>(base + group * kParts * 64 * kRowBytes, 0)), b_rows(wgmma_descriptor<64>(base + kABytes, 0)),
          piece(0) {}

    // The products of a slot, left under way.
    template <bool kFirst> __device__ __forceinline__ void issue() {
        barrier_wait(full(base, ring.slot), ring.parity);
        const u64 a = a_rows + ring.slot * (kSlotBytes / 16), b = b_rows + ring.slot * (kSlotBytes / 16);
        if constexpr (!kFirst) wgmma_fence();
#pragma unroll
        for (int part = 0; part < kParts; ++part)
            Wgmma<kN>::template multiply_4<kFirst>(c[part], a + part * (64 * kRowBytes / 16), b);
        wgmma_commit();
    }
    __device__ __forceinline__ void release(u32 slot) const {
        if (lane == 0) barrier_arrive(empty(base, slot));
    }
    // A slot is given back when the products of the next one are under way.
    __device__ __forceinline__ void multiply() {
        issue<true>();
        u32 before = ring.slot;
        ring.advance();
#pragma unroll 1
        for (int column = 64; column < p.k; column += 64) {
            issue<false>();
            wgmma_wait<1>();
            release(before);
            before = ring.slot;
            ring.advance();
        }
        wgmma_wait<0>();
#pragma unroll
        for (int part = 0; part < kParts; ++part) Wgmma<kN>::pin(c[part]);
        release(before);
    }
    // Rounded, 16 rows and 64 columns of this warp at a time, through its two pieces. What lies outside C is dropped.
    __device__ __forceinline__ void store(const Place &place, const fa_tensor_map *map) {
#pragma unroll
        for (int part = 0; part < kParts; ++part) {
            const int row = place.row + (int)((group * kParts + part) * 64 + warp * 16);
#pragma unroll
            for (int slab = 0; slab < kN / 64; ++slab) {
                const u32 room = base + kPiecesAt + ((group * 4 + warp) * 2 + piece) * kPieceBytes;
                if (lane == 0) tma_store_wait_read<1>();
                warp_sync();
#pragma unroll
                for (u32 j = 0; j < 4; ++j) {
                    const float *x = &c[part][8 * (slab * 4 + j)];
                    stmatrix_x4(room + (lane & 15) * kRowBytes + ((2 * j + (lane >> 4)) ^ (lane & 7)) * 16, pack2<kBf16>(x[0], x[1]),
                                pack2<kBf16>(x[2], x[3]), pack2<kBf16>(x[4], x[5]), pack2<kBf16>(x[6], x[7]));
                }
                async_proxy_fence();
                warp_sync();
                if (lane == 0) {
                    tma_store(map, room, place.column + slab * 64, row, 0, 0, kEvictFirst);
                    tma_store_commit();
                }
                piece ^= 1;
            }
        }
    }
};

} // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1)
gemm_sm90a(const __grid_constant__ fa_gemm_params p, fa_tensor_map *workspace) {
    const u32 base = shared_address(shared_memory);
    fa_tensor_map *maps = workspace + blockIdx.x * kMaps;
    if (threadIdx.x == 0) {
        if (base % 1024 != 0) asm volatile("trap;");   // descriptors and swizzles count on it
        for (u32 slot = 0; slot < kStages; ++slot) {
            barrier_init(full(base, slot), 1);
            barrier_init(empty(base, slot), kConsumers);
        }
        barrier_init_fence();
    }
    const u32 warp = (u32)uniform((int)(threadIdx.x / kWarp));
    if (warp < kMaps) make_map<kBf16>(maps + warp, base + kPiecesAt + warp * sizeof(fa_tensor_map), shape_of(p, warp));
    named_sync(0, kThreads);
    if (warp < 4) {
        registers_decrease<24>();
        if (warp == 0 && threadIdx.x == 0) produce(p, maps, base);
    } else {
        registers_increase<240>();
        Consumer consumer(p, base, warp / 4 - 1);
        if (consumer.lane == 0) acquire_map(maps + kMapC);
#pragma unroll 1
        for (u32 tile = blockIdx.x; tile < Place::tiles(p); tile += gridDim.x) {
            consumer.multiply();
            consumer.store(Place(p, tile), maps + kMapC);
        }
        if (consumer.lane == 0) tma_store_wait_read<0>();   // shared memory is gone when the block is
    }
}
