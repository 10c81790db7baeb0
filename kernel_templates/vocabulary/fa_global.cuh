// SPDX-License-Identifier: Apache-2.0
//
// Global memory between the blocks of one launch: vectors that pass by L1, a counter of the blocks that have
// arrived; and asynchronous copies with a word to L2 about what is read once.
//
// Invariants: counters lie in memory that the library zeroed and gives to one stream or one captured graph. A launch
// finds zeros there and leaves zeros there. Nothing that another kernel may have written is ever trusted.
#ifndef FA_GLOBAL_CUH
#define FA_GLOBAL_CUH

#include "fa_numeric.cuh"

FA_DEVICE int load_int(const int *from) {
    int x;
    asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(x) : "l"(from));
    return x;
}

// Four floats that other blocks may have written: from L2.
FA_DEVICE void load_floats(float (&x)[4], const float *from) {
    asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "l"(from) : "memory");
}
FA_DEVICE void load_floats(float (&x)[2], const float *from) {
    asm volatile("ld.global.cg.v2.f32 {%0,%1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "l"(from) : "memory");
}
FA_DEVICE void store_floats(float *to, const float (&x)[4]) {
    asm volatile("st.global.v4.f32 [%0], {%1,%2,%3,%4};" :: "l"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
}
FA_DEVICE void store_floats(float *to, const float (&x)[2]) {
    asm volatile("st.global.v2.f32 [%0], {%1,%2};" :: "l"(to), "f"(x[0]), "f"(x[1]) : "memory");
}
FA_DEVICE void store_global_8(void *to, u32 low, u32 high) {
    asm volatile("st.global.v2.b32 [%0], {%1,%2};" :: "l"(to), "r"(low), "r"(high) : "memory");
}

// Counts this block as arrived and returns whether it is the last of `blocks`, which makes the counter zero again. One thread
// of each block calls it. What the block wrote before a block barrier in front of this is seen by the last block
// behind a block barrier after it.
FA_DEVICE bool arrives_last(u32 *counter, u32 blocks) {
    u32 before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(before) : "l"(counter), "r"(blocks - 1) : "memory");
    return before == blocks - 1;
}

// L2 fetches a line that will be asked for soon.
FA_DEVICE void prefetch(const void *from) { asm volatile("prefetch.global.L2 [%0];" :: "l"(from)); }

// How L2 treats lines that are read once.
FA_DEVICE u64 read_once_policy() {
    u64 policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
// 16 bytes, global -> shared, asynchronous; `bytes` (0 or 16) of them are read, the rest is zeros.
FA_DEVICE void cp_async_16_once(u32 shared, const void *global, u32 bytes, u64 policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::128B [%0], [%1], 16, %2, %3;"
                 :: "r"(shared), "l"(global), "r"(bytes), "l"(policy));
}

#endif
