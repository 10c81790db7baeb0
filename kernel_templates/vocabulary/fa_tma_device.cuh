// SPDX-License-Identifier: Apache-2.0
//
// More of the copy engine of sm_90a: tensor maps that a kernel makes by itself, copies of plain arrays, and sums into them.
//
// Invariants: a map that a kernel made is used by a later kernel, whose thread calls acquire_map first. Arrays and their
// sizes are multiples of 16 bytes.
#ifndef FA_TMA_DEVICE_CUH
#define FA_TMA_DEVICE_CUH

#include "fa_async.cuh"
#include "fa_tma.cuh"

FA_DEVICE void block_sync() { asm volatile("bar.sync 0;" ::: "memory"); }

// A ring of slots, walked by one side: the slot and the parity of its barriers.
template <int kCount> struct Ring {
    u32 slot = 0, parity = 0;

    __device__ __forceinline__ void advance() {
        const bool last = slot + 1 == kCount;
        slot = last ? 0 : slot + 1;
        parity ^= last;
    }
};

// A rank-4 tensor of 16-bit elements and the box that is copied at once: 64 columns, swizzled by their 128 bytes.
struct MapShape {
    const void *base;
    int columns, rows, heads, batch;       // extents; 0 counts as 1
    i64 row_stride, head_stride, batch_stride;   // elements, multiples of 8, not negative
    int box_rows;
};

#define FA_MAP_SET(FIELD, TYPE, CONSTRAINT, VALUE) \
    asm volatile("tensormap.replace.tile." FIELD ".shared::cta.b1024." TYPE " [%0], %1;" :: "r"(at), CONSTRAINT(VALUE) : "memory")
#define FA_MAP_SET_AT(FIELD, ORDINAL, TYPE, CONSTRAINT, VALUE) \
    asm volatile("tensormap.replace.tile." FIELD ".shared::cta.b1024." TYPE " [%0], " #ORDINAL ", %1;" \
                 :: "r"(at), CONSTRAINT(VALUE) : "memory")

// A whole warp makes a map, in 128 bytes of its shared memory first.
template <bool kBf16> FA_DEVICE void make_map(void *map, u32 at, const MapShape &shape) {
    // Assemblers before CUDA 12.7 take strides in units of 16 bytes.
    constexpr int kStrideShift = __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1207 ? 4 : 0;
    const u32 lane = threadIdx.x % 32;
    store_shared(at + 4 * lane, 0);
    warp_sync();
    if (lane == 0) {
        const int extent[4] = {shape.columns, shape.rows > 0 ? shape.rows : 1, shape.heads > 0 ? shape.heads : 1,
                               shape.batch > 0 ? shape.batch : 1};
        const i64 stride[3] = {shape.row_stride, shape.head_stride, shape.batch_stride};
        u64 bytes[3];
#pragma unroll
        for (int i = 0; i < 3; ++i) bytes[i] = (u64)(extent[i + 1] > 1 ? stride[i] * 2 : 16 * ((shape.columns + 7) / 8)) >> kStrideShift;
        FA_MAP_SET("global_address", "b64", "l", shape.base);
        FA_MAP_SET("rank", "b32", "r", 3);
        FA_MAP_SET_AT("box_dim", 0, "b32", "r", 64);
        FA_MAP_SET_AT("box_dim", 1, "b32", "r", shape.box_rows);
        FA_MAP_SET_AT("box_dim", 2, "b32", "r", 1);
        FA_MAP_SET_AT("box_dim", 3, "b32", "r", 1);
        FA_MAP_SET_AT("global_dim", 0, "b32", "r", extent[0]);
        FA_MAP_SET_AT("global_dim", 1, "b32", "r", extent[1]);
        FA_MAP_SET_AT("global_dim", 2, "b32", "r", extent[2]);
        FA_MAP_SET_AT("global_dim", 3, "b32", "r", extent[3]);
        FA_MAP_SET_AT("global_stride", 0, "b64", "l", bytes[0]);
        FA_MAP_SET_AT("global_stride", 1, "b64", "l", bytes[1]);
        FA_MAP_SET_AT("global_stride", 2, "b64", "l", bytes[2]);
        FA_MAP_SET_AT("element_stride", 0, "b32", "r", 1);
        FA_MAP_SET_AT("element_stride", 1, "b32", "r", 1);
        FA_MAP_SET_AT("element_stride", 2, "b32", "r", 1);
        FA_MAP_SET_AT("element_stride", 3, "b32", "r", 1);
        FA_MAP_SET("elemtype", "b32", "n", kBf16 ? 10 : 6);
        FA_MAP_SET("interleave_layout", "b32", "n", 0);
        FA_MAP_SET("swizzle_mode", "b32", "n", 3);   // 128 bytes
        FA_MAP_SET("fill_mode", "b32", "n", 0);      // zeros
    }
    warp_sync();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;"
                 :: "l"(map), "r"(at) : "memory");
}
FA_DEVICE void acquire_map(const fa_tensor_map *map) {
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" :: "l"(map) : "memory");
}

// An array -> shared memory; its bytes arrive at `barrier`.
FA_DEVICE void bulk_load(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 :: "r"(to), "l"(from), "r"(bytes), "r"(barrier) : "memory");
}
// Shared memory -> an array in global memory. The thread commits and waits as after tma_store.
FA_DEVICE void bulk_store(void *to, u32 from, u32 bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" :: "l"(to), "r"(from), "r"(bytes) : "memory");
}
// An array of floats in global memory += one in shared memory, likewise.
FA_DEVICE void bulk_add(float *to, u32 from, u32 bytes) {
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;"
                 :: "l"(to), "r"(from), "r"(bytes) : "memory");
}
// Between what threads wrote to global memory and sums into it, or the other way round.
FA_DEVICE void global_proxy_fence() { asm volatile("fence.proxy.async.global;" ::: "memory"); }
// Until what was committed is written, and seen by all, but for the last kPending commits.
template <int kPending> FA_DEVICE void bulk_wait_written() {
    asm volatile("cp.async.bulk.wait_group %0;\nfence.proxy.async.global;" :: "n"(kPending) : "memory");
}

#endif
