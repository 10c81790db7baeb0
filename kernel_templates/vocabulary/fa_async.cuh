// SPDX-License-Identifier: Apache-2.0
//
// Asynchronous copies of 16 bytes from global to shared memory (sm_80 and newer), in raw PTX.
#ifndef FA_ASYNC_CUH
#define FA_ASYNC_CUH

#include "fa_shared.cuh"

// 16 bytes, global -> shared, asynchronous; `bytes` < 16 reads only that many and zero-fills the rest.
FA_DEVICE void cp_async_16(u32 shared, const void *global) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" :: "r"(shared), "l"(global));
}
FA_DEVICE void cp_async_16_zfill(u32 shared, const void *global, u32 bytes) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" :: "r"(shared), "l"(global), "r"(bytes));
}
FA_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;"); }

// Until at most kPending of this thread's newest groups are still in flight.
template <int kPending> FA_DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" :: "n"(kPending) : "memory");
}

#endif
