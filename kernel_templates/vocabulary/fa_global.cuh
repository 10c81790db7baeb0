// SPDX-License-Identifier: Apache-2.0
//
// Global memory between the blocks of one launch: vectors that pass by L1, fences, a count of blocks that have
// come; and asynchronous copies with a word to L2 about what is read once.
//
// Invariants: a counter needs no first value. A word that no kernel of ours has counted in (of which all but
// 2^-48 of the possible words tell) becomes zero before the first block adds to it, and the last block makes it
// zero again, so that a launch may be replayed and memory may come from anywhere.
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

// One word of global memory that counts the blocks which have come. One thread of each block calls both functions.
struct Arrivals {
    static constexpr u64 kZero = 0x5e1fc0de7a11ull << 16;   // the upper 48 bits of a word in use

    // Some time before last(): makes the word one in use if it is not.
    FA_DEVICE void prepare(u64 *word) {
        u64 old;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(old) : "l"(word) : "memory");
        if (old >> 16 == kZero >> 16) return;
        // Another block may have been faster: then this changes nothing.
        asm volatile("{ .reg .b64 found; atom.relaxed.gpu.global.cas.b64 found, [%0], %1, %2; }"
                     :: "l"(word), "l"(old), "l"(kZero) : "memory");
    }

    // Whether this block is the last of `blocks` (below 65,536) to come. What the block wrote before a block barrier
    // in front of this is seen by the last block behind a block barrier after it.
    FA_DEVICE bool last(u64 *word, u32 blocks) {
        u64 old;
        asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], 1;" : "=l"(old) : "l"(word) : "memory");
        if (old != kZero + blocks - 1) return false;
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" :: "l"(word), "l"(kZero) : "memory");
        return true;
    }
};

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
