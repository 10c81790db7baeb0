// SPDX-License-Identifier: Apache-2.0
//
// Shared memory by 32-bit addresses, in raw PTX: loads and stores of one, two or four numbers of 4 bytes (int, u32 or float).
//
// Invariants: an address is a multiple of the bytes of the access; the compiler moves no other access to memory across one of these.
#ifndef FA_SHARED_CUH
#define FA_SHARED_CUH

#include "fa_numeric.cuh"

FA_DEVICE u32 shared_address(const void *pointer) {
    u32 address;
    asm("{ .reg .u64 t; cvta.to.shared.u64 t, %1; cvt.u32.u64 %0, t; }" : "=r"(address) : "l"(pointer));
    return address;
}

// All lanes of a warp have come, and see what each has written.
FA_DEVICE void warp_sync() { asm volatile("bar.warp.sync 0xffffffff;" ::: "memory"); }

FA_DEVICE u32 word_of(u32 x) { return x; }
FA_DEVICE u32 word_of(int x) { return (u32)x; }
FA_DEVICE u32 word_of(float x) { return float_to_bits(x); }
FA_DEVICE void set_word(u32 &x, u32 word) { x = word; }
FA_DEVICE void set_word(int &x, u32 word) { x = (int)word; }
FA_DEVICE void set_word(float &x, u32 word) { x = bits_to_float(word); }

template <class A> FA_DEVICE void store_shared(u32 to, A a) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(to), "r"(word_of(a)) : "memory"); }
template <class A, class B> FA_DEVICE void store_shared(u32 to, A a, B b) {
    asm volatile("st.shared.v2.b32 [%0], {%1,%2};" :: "r"(to), "r"(word_of(a)), "r"(word_of(b)) : "memory");
}
template <class A, class B, class C, class D> FA_DEVICE void store_shared(u32 to, A a, B b, C c, D d) {
    asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" :: "r"(to), "r"(word_of(a)), "r"(word_of(b)), "r"(word_of(c)), "r"(word_of(d)) : "memory");
}
template <class A> FA_DEVICE void store_shared(u32 to, const A (&x)[4]) { store_shared(to, x[0], x[1], x[2], x[3]); }

template <class A> FA_DEVICE void load_shared(A &a, u32 from) {
    u32 x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    set_word(a, x);
}
template <class A, class B> FA_DEVICE void load_shared(A &a, B &b, u32 from) {
    u32 x, y;
    asm volatile("ld.shared.v2.b32 {%0,%1}, [%2];" : "=r"(x), "=r"(y) : "r"(from) : "memory");
    set_word(a, x), set_word(b, y);
}
template <class A, class B, class C, class D> FA_DEVICE void load_shared(A &a, B &b, C &c, D &d, u32 from) {
    u32 x, y, z, w;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(x), "=r"(y), "=r"(z), "=r"(w) : "r"(from) : "memory");
    set_word(a, x), set_word(b, y), set_word(c, z), set_word(d, w);
}
template <class A> FA_DEVICE void load_shared(A (&x)[4], u32 from) { load_shared(x[0], x[1], x[2], x[3], from); }
template <class A> FA_DEVICE A load_shared(u32 from) {
    A x;
    load_shared(x, from);
    return x;
}

#endif
