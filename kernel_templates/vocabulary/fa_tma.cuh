// SPDX-License-Identifier: Apache-2.0
//
// What a warp-specialised kernel of sm_90 is made of: mbarriers, the tensor copy engine (TMA), barriers between
// some warps, and registers handed from one warpgroup to another. Raw PTX.
//
// Invariants: a full barrier completes when its one arrival (expect_bytes) and that many bytes have come; an empty
// barrier when every consumer has arrived. A barrier's phase alternates: wait(parity) returns once the phase of
// that parity has completed; a fresh barrier has completed parity 1. Coordinates of a copy may lie outside the
// tensor: what is read there is 0, what is written there is dropped.
#ifndef FA_TMA_CUH
#define FA_TMA_CUH

#include "attn_tensor_maps.h"
#include "fa_shared.cuh"

FA_DEVICE void barrier_init(u32 barrier, u32 arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(barrier), "r"(arrivals) : "memory");
}
// Makes what barrier_init wrote known to the copy engine (and to the cluster).
FA_DEVICE void barrier_init_fence() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

FA_DEVICE void barrier_expect(u32 barrier, u32 bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}
FA_DEVICE void barrier_arrive(u32 barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(barrier) : "memory");
}
FA_DEVICE void barrier_wait(u32 barrier, u32 parity) {
    asm volatile("{ .reg .pred done;\n"
                 "AGAIN_%=:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra AGAIN_%=; }" :: "r"(barrier), "r"(parity) : "memory");
}

// Which lines of a copy L2 gives up first, in the form that the copy engine takes.
constexpr u64 kEvictFirst = 0x12f0000000000000, kEvictLast = 0x14f0000000000000;

// A box of a rank-4 map (columns, rows, head, batch) -> shared memory; its bytes arrive at `barrier`.
FA_DEVICE void tma_load(u32 to, const fa_tensor_map *map, u32 barrier, int column, int row, int head, int batch, u64 hint) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;"
                 :: "r"(to), "l"(map), "r"(barrier), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(hint) : "memory");
}
// Shared memory -> a box of a rank-4 map. One thread stores, commits and waits.
FA_DEVICE void tma_store(const fa_tensor_map *map, u32 from, int column, int row, int head, int batch, u64 hint) {
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], %6;"
                 :: "l"(map), "r"(from), "r"(column), "r"(row), "r"(head), "r"(batch), "l"(hint) : "memory");
}
FA_DEVICE void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Until the sources of all but the newest kPending groups may be reused.
template <int kPending> FA_DEVICE void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(kPending) : "memory");
}
FA_DEVICE void tma_prefetch_map(const fa_tensor_map *map) {
    asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory");
}
// Ordinary stores to shared memory before it are seen by the copy engine and the matrix units after it, and ordinary loads before it
// have ended. A barrier's arrival waits for no load: whoever gives memory back to the copy engine that it has read by ld.shared or
// ldmatrix passes a fence first, or has computed with all that it read.
FA_DEVICE void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Barriers 1..15 among `threads` threads (whole warps): all of them sync, or some arrive and go on.
FA_DEVICE void named_sync(u32 barrier, u32 threads) {
    asm volatile("bar.sync %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
FA_DEVICE void named_arrive(u32 barrier, u32 threads) {
    asm volatile("bar.arrive %0, %1;" :: "r"(barrier), "r"(threads) : "memory");
}
// The same where `taken`, which all these threads agree on, without a branch.
FA_DEVICE void named_sync_if(u32 taken, u32 barrier, u32 threads) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p bar.sync %0, %1; }" :: "r"(barrier), "r"(threads), "r"(taken) : "memory");
}
FA_DEVICE void named_arrive_if(u32 taken, u32 barrier, u32 threads) {
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %2, 0; @p bar.arrive %0, %1; }" :: "r"(barrier), "r"(threads), "r"(taken) : "memory");
}

// A value that is the same in all lanes, in a form that the compiler knows to be so: what is computed from it stays in
// uniform registers, where the descriptors of wgmma must be.
FA_DEVICE int uniform(int x) {
    int y;
    asm volatile("shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;" : "=r"(y) : "r"(x));
    return y;
}
// Programmatic dependent launches: the next kernel of the call may begin, and this one may touch what those before it wrote.
FA_DEVICE void let_next_launch_begin() { asm volatile("griddepcontrol.launch_dependents;"); }
FA_DEVICE void await_launches_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// What the launch asked for.
FA_DEVICE u32 dynamic_shared_bytes() {
    u32 bytes;
    asm volatile("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
    return bytes;
}

// A whole warpgroup gives registers back, or waits until it has as many.
template <int kRegisters> FA_DEVICE void registers_decrease() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(kRegisters));
}
template <int kRegisters> FA_DEVICE void registers_increase() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(kRegisters));
}

// Four 8x8 matrices of 16-bit elements in mma accumulator order; lane 8i+r supplies the address of row r of matrix i.
FA_DEVICE void stmatrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

#endif
