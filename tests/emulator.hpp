// SPDX-License-Identifier: Apache-2.0
//
// A GPU's block on the CPU: what a kernel template that emulate.py has translated calls.
//
// Each thread of a block is a fiber. An instruction of a whole warp (a matrix product, ldmatrix, a shuffle, a vote)
// takes place when its 32 lanes have come. Which warp runs next is drawn from a seed: each has a rank, the highest that
// can go on runs until it waits, and now and then a rank is drawn anew, so that some warp is far ahead of all others, or
// far behind. Faults that a GPU may hide are found:
//  - asynchronous copies land only where their thread waits for them, and until then nobody may touch their bytes;
//  - shared memory is NaN at first; shared and global addresses are looked up before they are followed;
//  - lanes of a warp that meet at different instructions, barriers that nobody opens, and an arrival too many are faults.
// What is not modelled: the order of plain stores among warps, and the rounding of a product's partial sums.
#ifndef FA_TESTS_EMULATOR_HPP
#define FA_TESTS_EMULATOR_HPP

#include <math.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __constant__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __grid_constant__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define threadIdx emu::now->index
#define blockIdx emu::block
#define gridDim emu::grid

namespace emu {

typedef uint32_t u32;
typedef unsigned long long u64;
typedef long long i64;
typedef uint16_t u16;

enum { kWarp = 32, kThreadsMax = 1024, kShared = 232448, kSharedFirst = 1024, kStack = 64 << 10, kCopies = 1024,
       kBarriers = 16, kSplitBarriers = 64, kBlocksMost = 8, kResumedMost = 1 << 24 };

struct Index {
    u32 x, y, z;
};
struct Copy {
    u32 to, bytes, group;
    const void *from;
};
struct SplitBarrier {
    u32 address, count, pending, phase;
    int bytes;   // of copies, that are still to come
};
struct Lane {
    Index index;
    jmp_buf at;
    ucontext_t context;
    bool started, ended, waits, paused;
    u32 looks;   // one after another at the same number, which somebody else may have to write
    const void *looked;
    int barrier;                  // waits there; -1: not at a block's barrier
    const SplitBarrier *split;
    Copy copy[kCopies];
    u32 copies, groups;           // in flight; closed so far
};
typedef void (*Together)(void *const *args);
struct Warp {
    Together what;
    void *args[kWarp];
    int met;
};

inline Index block, grid;
inline Lane *now;
struct Block {
    Index index;
    Lane lanes[kThreadsMax];
    Warp warps[kThreadsMax / kWarp];
    u32 rank[kThreadsMax / kWarp], together;   // of the warps; how many that are neighbours have the same
    u32 arrived[kBarriers], split_barriers, resumed;   // resumed: how often one of its lanes was
    SplitBarrier split_barrier[kSplitBarriers];
    alignas(1024) unsigned char shared_memory[kShared];
    bool flying[kShared / 16];   // a copy is on its way to these 16 bytes
    u16 unfenced[kShared / 16];  // the thread that wrote them, from 1 on, until it passes a proxy fence; only Hopper's emulation looks
};
inline Block blocks[kBlocksMost], *here = blocks;   // that run at once; the one that runs now
inline unsigned char *shared_memory = blocks[0].shared_memory;   // of that one
inline u32 threads, shared_bytes, blocks_at_once = 1;   // a test may set the last, of kernels whose shared memory is the launch's alone
inline u32 cluster = 1, cluster_arrived;   // blocks of a cluster, which all run at once; threads at its barrier
inline void (*begin_more)();        // more to be done when a block begins,
inline const char *(*end_more)();   // and what is wrong with how it ended
inline char fault[200];
inline jmp_buf scheduler;
inline bool (*granted)(const void *, size_t, bool);   // the memory of the launch

inline void yield() {
    if (_setjmp(now->at) == 0) _longjmp(scheduler, 1);
}
inline u32 dice = 1;   // a test may seed it
inline u32 below(u32 n) {
    dice = dice * 1664525u + 1013904223u;
    return (u32)((u64)dice * n >> 32);
}
inline int told(const char *name) { return getenv(name) != nullptr ? atoi(getenv(name)) : 0; }
inline int change = told("EMULATOR_CHANGE");   // emulate.py's with_changes
// Other lanes or other warps may go on first.
void pause();
[[noreturn]] void fail(const char *what);

// ---- memory -----------------------------------------------------------------------------------
unsigned char *shared(u32 address, u32 bytes);
void *global(const void *address, u32 bytes, bool write);
inline void shared_address(u32 &x, const void *pointer) {
    x = kSharedFirst + (u32)((const unsigned char *)pointer - shared_memory);
}
template <class... T> void load(const void *from, T &...x) {
    const unsigned char *at = (const unsigned char *)from;
    ((memcpy(&x, at, sizeof x), at += sizeof x), ...);
}
template <class... T> void store(void *to, const T &...x) {
    unsigned char *at = (unsigned char *)to;
    ((memcpy(at, &x, sizeof x), at += sizeof x), ...);
}
// What lies there already is written for nobody: several threads may write the same zeros.
template <class... T> void store_shared(u32 to, T... x) {
    unsigned char *at = shared(to, sizeof...(x) * 4), before[sizeof...(x) * 4];
    memcpy(before, at, sizeof before);
    store(at, x...);
    if (memcmp(before, at, sizeof before) != 0) here->unfenced[(to - kSharedFirst) / 16] = (u16)(now->index.x + 1);
}
inline void load_shared(u32 &x, u32 from) { load(shared(from, 4), x); }
inline void load_shared(float &x, u32 from) { load(shared(from, 4), x); }
template <class T> void load_shared(T &x, T &y, u32 from) { load(shared(from, 8), x, y); }
template <class T> void load_shared(T &x, T &y, T &z, T &w, u32 from) { load(shared(from, 16), x, y, z, w); }
template <class... T> void store_global(void *to, T... x) { store(global(to, sizeof...(x) * 4, true), x...); }
template <class T> void load_global(T &x, const void *from) { load(global(from, 4, false), x); }
template <class T> void load_global(T &x, T &y, const void *from) { load(global(from, 8, false), x, y); }
template <class T> void load_global(T &x, T &y, T &z, T &w, const void *from) { load(global(from, 16, false), x, y, z, w); }
void load_acquire(u32 &x, const u32 *from);
void load_global_if(float &x, float &y, float &z, float &w, const float *from, u32 there);
template <class T, class... Rest> void add_global(T *to, T x, Rest... rest) {
    T before;
    load(global(to, sizeof before, false), before);
    store(global(to, sizeof before, true), before + x);
    if constexpr (sizeof...(rest) > 0) add_global(to + 1, rest...);
}
inline void count(u32 &before, u32 *to) {
    load(global(to, 4, false), before);
    store(global(to, 4, true), before + 1);
}
inline void count_and_wrap(u32 &before, void *to, u32 most) {
    load(global(to, 4, false), before);
    store(global(to, 4, true), before >= most ? 0 : before + 1);
}

// ---- asynchronous copies ----------------------------------------------------------------------
void copy_async(u32 to, const void *from, u32 bytes, u64 = 0);
inline void copy_async_16(u32 to, const void *from) { copy_async(to, from, 16); }
inline void commit() { now->groups++; }
void wait_copies(u32 pending);

// ---- barriers ---------------------------------------------------------------------------------
// Whether this arrival opened it.
bool arrived_at(u32 id, u32 count);
void barrier(u32 id, u32 count);
inline void block_barrier() { barrier(0, threads); }
inline void barrier_if(u32 id, u32 count, u32 taken) {
    if (taken != 0) barrier(id, count);
}

SplitBarrier &split_at(u32 address);
void split_init(u32 address, u32 count);
void split_end(u32 address);
void split_arrive(u32 address);
void split_wait(u32 address, u32 parity);
[[noreturn]] inline void not_emulated(const char *instruction) { fail(instruction); }
inline void nothing() {}
inline void shared_size(u32 &x) { x = shared_bytes; }
template <class... T> void nothing(T &&...) {}

// ---- warps ------------------------------------------------------------------------------------
void meet(Together what, void *args);
inline void meet_only(void *const *) {}
inline void warp_barrier() { meet(meet_only, nullptr); }

struct Vote {
    u32 *all, mine;
};
void vote(void *const *args);
void ballot(u32 &all, u32 mine);
inline void highest_bit(int &bit, u32 x) { bit = x == 0 ? -1 : 31 - __builtin_clz(x); }

// Every lane gets that of a lane, or the least (32) or the most (33) of all.
struct Gather {
    int *to, mine, which;
};
inline void gather(void *const *args) {
    for (int i = 0; i < kWarp; i++) {
        const Gather *g = (const Gather *)args[i];
        int x = ((const Gather *)args[g->which & 31])->mine;
        for (int j = 0, y; g->which > 31 && j < kWarp; j++)
            if (((y = ((const Gather *)args[j])->mine) < x) == (g->which == 32)) x = y;
        *g->to = x;
    }
}
inline void from_lane(int &to, int mine, int lane) {
    Gather g = {&to, mine, lane};
    meet(gather, &g);
}
template <int kWhich> inline void of_all(int &to, int mine) { from_lane(to, mine, kWhich); }

struct Shuffle {
    float *to, from;
    int mask;
};
void shuffle(void *const *args);
template <class T> void shuffle_xor(T &to, T from, int mask) {
    static_assert(sizeof to == sizeof(float), "");
    Shuffle s = {(float *)&to, 0, mask};
    memcpy(&s.from, &from, sizeof from);
    meet(shuffle, &s);
}

// ---- numbers ----------------------------------------------------------------------------------
template <class A, class B> void same_bits(A &x, const B &y) {
    static_assert(sizeof x == sizeof y, "");
    memcpy(&x, &y, sizeof x);
}
inline float float_of(u32 bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
inline u32 bits_of(float x) {
    u32 bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
[[gnu::always_inline]] inline float half_value(u16 h) {
    const u32 sign = (u32)(h & 0x8000) << 16, size = (u32)(h & 0x7fff) << 13;
    return float_of(sign | ((h & 0x7c00) == 0x7c00 ? size | 0x7f800000u : bits_of(float_of(size) * 0x1p112f)));
}
// To nearest even.
u16 half_of(float x);
inline float brain_value(u16 h) { return float_of((u32)h << 16); }
inline u16 brain_of(float x) {
    const u32 b = bits_of(x);
    return (b & 0x7fffffff) > 0x7f800000u ? 0x7fff : (u16)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}
inline void half_to_float(float &x, u16 h) { x = half_value(h); }
inline void float_to_half(u16 &h, float x) { h = half_of(x); }
inline void float_to_brain(u16 &h, float x) { h = brain_of(x); }
inline void pack_half(u32 &pair, float high, float low) { pair = half_of(low) | (u32)half_of(high) << 16; }
inline void pack_brain(u32 &pair, float high, float low) { pair = brain_of(low) | (u32)brain_of(high) << 16; }
inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }
void exp2_of(float &y, float x);
inline void log2_of(float &y, float x) { y = log2f(flushed(x)); }
inline void reciprocal_of(float &y, float x) { y = flushed(1 / flushed(x)); }
inline void reciprocal_root_of(float &y, float x) { y = flushed(1 / sqrtf(flushed(x))); }
inline void max_of(float &y, float a, float b) { y = fmaxf(a, b); }
void permute(u32 &x, u32 a, u32 selector);
void permute(u32 &x, u32 a, u32 b, u32 selector);
// fp16 has e4m3's bits between its sign and 256th of its value.
inline float e4m3_value(unsigned char x) { return (x & 0x7f) == 0x7f ? NAN : 256 * half_value((u16)((x & 0x80) << 8 | (x & 0x7f) << 7)); }
inline float byte_value(u16 x) { return e4m3_value((unsigned char)x); }
void pack_e4m3(u32 &four, float a, float b, float c, float d);
inline void widen_e4m3(u32 &low, u32 &high, u32 four) {
    const u16 x[] = {half_of(e4m3_value(four & 0xff)), half_of(e4m3_value(four >> 8 & 0xff)), half_of(e4m3_value(four >> 16 & 0xff)), half_of(e4m3_value(four >> 24))};
    low = x[0] | (u32)x[1] << 16, high = x[2] | (u32)x[3] << 16;
}
void multiply_halves(u32 &x, u32 a, u32 b);
void multiply_add_brains(u32 &x, u32 a, u32 b, u32 c);

// ---- matrices ---------------------------------------------------------------------------------
struct Matrix {
    u32 *x[4], address;
};
template <bool kTransposed> void load_matrices(void *const *args) {
    u16 matrix[4][8][8];
    for (int i = 0; i < kWarp; i++) memcpy(matrix[i / 8][i % 8], shared(((const Matrix *)args[i])->address, 16), 16);
    for (int i = 0; i < kWarp; i++)
        for (int m = 0; m < 4; m++) {
            const int row = i / 4, pair = i % 4 * 2;
            const u16 low = kTransposed ? matrix[m][pair][row] : matrix[m][row][pair];
            const u16 high = kTransposed ? matrix[m][pair + 1][row] : matrix[m][row][pair + 1];
            *((const Matrix *)args[i])->x[m] = low | (u32)high << 16;
        }
}
extern template void load_matrices<false>(void *const *);
extern template void load_matrices<true>(void *const *);
void ldmatrix(u32 &a, u32 &b, u32 &c, u32 &d, u32 address);
void ldmatrix_trans(u32 &a, u32 &b, u32 &c, u32 &d, u32 address);

struct Product {
    float *c[4];
    u32 a[4], b[2];
};
// Most of what the emulator computes: several columns at a time, each in the same order as without optimising.
template <class T, int kDepth, int kColumns>
[[gnu::optimize("O3")]] void add_products(T (&c)[16][kColumns], const T (&a)[16][kDepth], const T (&b)[kDepth][kColumns], int columns = kColumns) {
    for (int i = 0; i < 16; i++)
        for (int k = 0; k < kDepth; k++)
            for (int j = 0; j < columns; j++) c[i][j] += a[i][k] * b[k][j];
}
template <float (*kValue)(u16)> void multiply(void *const *args) {   // bytes are twice as many as numbers of 16 bits
    constexpr int kBits = kValue == byte_value ? 8 : 16, kDepth = 256 / kBits, kIn = 32 / kBits;
    float a[16][kDepth], b[kDepth][8], c[16][8];
    for (int i = 0; i < kWarp; i++) {
        const Product *p = (const Product *)args[i];
        const int g = i / 4, t = i % 4 * kIn;
        for (int r = 0; r < 4; r++) c[g + r / 2 * 8][i % 4 * 2 + r % 2] = *p->c[r];
        for (int e = 0; e < kIn; e++) {
            for (int r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * (kDepth / 2) + e] = kValue((u16)(p->a[r] >> kBits * e));
            for (int r = 0; r < 2; r++) b[t + r * (kDepth / 2) + e][g] = kValue((u16)(p->b[r] >> kBits * e));
        }
    }
    add_products(c, a, b);
    for (int i = 0; i < kWarp; i++)
        for (int e = 0; e < 4; e++) *((const Product *)args[i])->c[e] = c[i / 4 + e / 2 * 8][i % 4 * 2 + e % 2];
}
extern template void multiply<half_value>(void *const *);
extern template void multiply<brain_value>(void *const *);
extern template void multiply<byte_value>(void *const *);
template <float (*kValue)(u16)>
void mma(float &c0, float &c1, float &c2, float &c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    Product p = {{&c0, &c1, &c2, &c3}, {a0, a1, a2, a3}, {b0, b1}};
    meet(multiply<kValue>, &p);
}

// tf32: the lower 13 bits of an operand do not count; a sum is cut off, not rounded.
void multiply_tf32(void *const *args);
void mma_tf32(float &c0, float &c1, float &c2, float &c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1);

// ---- launches ---------------------------------------------------------------------------------
template <class P> struct Kernel {
    static inline void (*entry)(P);
    static inline const P *params;
    static void run() { entry(*params); }
};

// A fiber outlives its thread and becomes the same thread of a later block: to make a fiber takes system calls.
inline void (*kernel)();
void run_threads();
void resume(Lane &lane);

// Whether some lane of the warp could go on.
bool run_warp(u32 warp);

void run_grid();

// NULL: the launch is done; else what was wrong.
template <class P>
const char *launch(void (*entry)(P), const void *params, const u32 sizes[3], u32 block_threads, u32 smem) {
    Kernel<P>::entry = entry;
    Kernel<P>::params = (const P *)params;
    kernel = Kernel<P>::run;
    grid = {sizes[0], sizes[1], sizes[2]};
    threads = block_threads;
    shared_bytes = smem;
    fault[0] = 0;
    if (threads > kThreadsMax || threads % kWarp != 0 || smem > kShared) return "a launch that no GPU takes";
    run_grid();
    return fault[0] != 0 ? fault : nullptr;
}

}  // namespace emu

#endif
