// SPDX-License-Identifier: Apache-2.0
//
// What sm_90 adds to a block on the CPU (emulator.hpp): wgmma, the copy engine with its tensor maps, mbarriers that count bytes, named
// barriers at which some threads only arrive, stmatrix.
//
// Whatever runs asynchronously is as late, and as early, as it may be, so that a missing wait is found:
//  - a copy to shared memory spoils its place when it is issued, and lands when somebody waits at its barrier;
//  - a product reads its operands and adds when it is waited for. A copy from shared memory reads then, too. Both remember what lay
//    there when they were issued, and it is a fault if that changed meanwhile;
//  - what a thread wrote to shared memory is no operand, and no source or place of a copy, before it has passed a proxy fence;
//  - a block may not end with a copy from its shared memory under way.
// What is not modelled: who may see what a thread wrote without a barrier, and registers that are touched under a product.
#ifndef FA_TESTS_EMULATOR_HOPPER_HPP
#define FA_TESTS_EMULATOR_HOPPER_HPP

#include "emulator.hpp"

#include <vector>


namespace emu {

// ---- shared memory, as what runs asynchronously sees it ---------------------------------------------------------
const unsigned char *seen(u32 address, u32 bytes);
void proxy_fence();
[[gnu::always_inline]] inline u64 mixed(u64 sum, u64 x) { return (sum ^ x) * 0x100000001b3ull; }

// ---- barriers that count bytes ----------------------------------------------------------------------------------
struct TensorMap {   // in the 128 bytes of a map
    const unsigned char *address;
    u32 rank, box[4], extent[4], element_stride[4], type, interleave, swizzle, fill;   // type 0: of bytes, else of 16 bits
    u64 stride[3];   // bytes
};
static_assert(sizeof(TensorMap) <= 128, "");
struct alignas(64) MapPlace {
    unsigned char bytes[128];
};
struct Load {
    u32 to, bytes, barrier;
    const unsigned char *from;   // an array; NULL: a box
    TensorMap map;
    int at[4];
};

void phase_may_end(SplitBarrier &b);
void byte_arrive(u32 barrier, u32 bytes = 0);
// The address of an element in a box whose rows of 16 << mode bytes are swizzled.
inline u32 swizzled(u32 address, u32 mode) { return address ^ (address >> 7 & ((1u << mode) - 1)) << 4; }

// Eight elements at a time: all of them are there, or none is.
template <class F> void each_of_box(const TensorMap &map, const int (&at)[4], u32 shared_at, F f) {
    const u32 element = map.type == 0 ? 1 : 2;
    const bool outside = at[2] < 0 || at[2] >= (int)map.extent[2] || at[3] < 0 || at[3] >= (int)map.extent[3];
    for (u32 row = 0; row < map.box[1]; row++)
        for (u32 column = 0; column < map.box[0]; column += 8) {
            const i64 c = at[0] + (i64)column, r = at[1] + (i64)row;
            const bool there = !outside && c >= 0 && c < map.extent[0] && r >= 0 && r < map.extent[1];
            const unsigned char *global_at = map.address + c * element + r * (i64)map.stride[0] + at[2] * (i64)map.stride[1] + at[3] * (i64)map.stride[2];
            f(swizzled(shared_at + (row * map.box[0] + column) * element, map.swizzle), there ? global_at : nullptr, 8 * element);
        }
}
inline u32 bytes_of_box(const TensorMap &map) { return map.box[1] * (16u << map.swizzle); }
void spoil(u32 to, u32 bytes);
void issued(const Load &load);
TensorMap map_at(const void *map);
void tensor_load(u32 to, const void *map, u32 barrier, int c, int r, int h, int b, u64);
void array_load(u32 to, const void *from, u32 bytes, u32 barrier, u64 = 0);
void land(SplitBarrier &b);
void byte_wait(u32 barrier, u32 parity);
void barrier_arrive_only(u32 id, u32 count);
inline void barrier_arrive_only_if(u32 id, u32 count, u32 taken) {
    if (taken != 0) barrier_arrive_only(id, count);
}

// ---- clusters ---------------------------------------------------------------------------------------------------
void cluster_barrier();
void load_from_block(float &x, float &y, float &z, float &w, u32 from);
void byte_arrive_in_block(u32 barrier, u32 rank);
inline void cluster_rank(u32 &x) { x = block.x % cluster; }
inline void place_in_block(u32 &x, u32 address, u32 rank) { x = address | rank << 24; }
void tensor_load_to_all(u32 to, const void *map, u32 barrier, int c, int r, int h, int b, u16 blocks, u64 hint);
inline void tensor_load_to_all(u32 to, const void *map, u32 barrier, int c, int r, int zero, u16 blocks, u64 hint) { tensor_load_to_all(to, map, barrier, c, r, zero, zero, blocks, hint); }

// ---- copies from shared memory ----------------------------------------------------------------------------------
struct Store {
    u32 lane, group, from, bytes;
    float *sum;   // an array that is added to or written; NULL: a box
    TensorMap map;
    int at[4];
    u64 content;
    bool adds;
};

u64 content_of(u32 from, u32 bytes);
void issued(Store store);
void tensor_store(const void *map, u32 from, int c, int r, int h, int b, u64);
inline void array_add(float *to, u32 from, u32 bytes) { issued(Store{0, 0, from, bytes, to, {}, {}, 0, true}); }
inline void array_store(void *to, u32 from, u32 bytes) { issued(Store{0, 0, from, bytes, (float *)to, {}, {}, 0, false}); }
void store_commit();
void store_wait(u32 pending = 0);

// ---- tensor maps that a kernel makes ----------------------------------------------------------------------------
void map_set(u32 map, u32 TensorMap::*field, u64 value);
template <class T, size_t kCount> void map_set(u32 map, T (TensorMap::*field)[kCount], u32 i, u64 value) {
    TensorMap x;
    memcpy(&x, shared(map, 128), sizeof x);
    (x.*field)[i] = (T)value;
    memcpy(shared(map, 128), &x, sizeof x);
}
void map_set_address(u32 map, const void *address);
void copy_maps(void *const *args);
void map_copy(void *to, u32 from);

// ---- products of a warpgroup ------------------------------------------------------------------------------------
enum Form { kSharedForm, kRegistersForm, kAcrossForm };
struct GroupProduct {
    int columns;
    int kind;   // of numbers: 0 fp16, 1 bf16, 2 e4m3, of which two lie where one of the others does
    bool accumulate, from_registers, a_across, b_across;
    u64 a, b;
    float *c[kWarp][128];
    u32 registers[kWarp][4];
    u32 group;
    u64 content;
};
// What is under way in a block.
struct Flight {
    std::vector<Load> loads;
    std::vector<Store> stores;
    std::vector<GroupProduct> products[kThreadsMax / kWarp];
    u32 store_groups[kThreadsMax], product_groups[kThreadsMax / kWarp];
};
inline Flight flights[kBlocksMost];
inline Flight &flight() { return flights[here - blocks]; }

// Rows of an operand from `first` on, by K, which runs along its rows or across them; 16 bytes lie together, and must be such as `seen` takes.
const char *read_operand(u64 descriptor, bool across, int first, int rows, u16 *ret, int width, u64 &sum);
// Those of a warp's part of a product, A's first, as they lie in shared memory now; returns a sum over them.
struct Elements {
    u16 a[16][16], b[16][256];   // by K
};
u64 read_operands(const GroupProduct &p, u32 quadrant, Elements &ret);
void complete(const GroupProduct &p, u32 quadrant);

struct Operands {
    float *c[128];
    u64 in[20];
    int sums = 0, count = 0;
    void add(float &x) { c[sums++] = &x; }
    void add(u64 x) { in[count++] = x; }
};
// One product of `form`, or four of them whose B is `apart` further on each.
template <int kColumns, int kKind, Form kForm, int kCount, int kApart, int kAccumulate> void issue(void *const *args) {
    const u32 warp = now->index.x / kWarp;
    const Operands &first = *(const Operands *)args[0];
    for (int i = 0; i < kCount; i++) {
        flight().products[warp].emplace_back();
        GroupProduct &p = flight().products[warp].back();
        constexpr int kBAt = kForm == kRegistersForm ? 4 * kCount : kCount;
        p.columns = kColumns, p.kind = kKind, p.from_registers = kForm == kRegistersForm, p.group = flight().product_groups[warp];
        p.a = first.in[i], p.b = first.in[kBAt] + (u64)(i * kApart);
        p.a_across = kForm == kAcrossForm && first.in[3] != 0;
        p.b_across = (kForm == kRegistersForm && kKind != 2) || (kForm == kAcrossForm && first.in[4] != 0);
        p.accumulate = i > 0 || (kAccumulate >= 0 ? kAccumulate != 0 : first.in[kBAt + 1] != 0);
        for (int l = 0; l < kWarp; l++) {
            const Operands &o = *(const Operands *)args[l];
            memcpy(p.c[l], o.c, sizeof o.c);
            for (int r = 0; r < 4 && p.from_registers; r++) p.registers[l][r] = (u32)o.in[4 * i + r];
            if (!p.from_registers && (o.in[i] != first.in[i] || o.in[kBAt] != first.in[kBAt])) fail("lanes differ in a descriptor");
        }
        static Elements in;
        p.content = read_operands(p, warp % 4, in);
    }
}
template <int kColumns, int kKind, Form kForm, int kCount, int kApart, int kAccumulate, class... T> void wgmma(T &&...x) {
    Operands o;
    (o.add(x), ...);
    if (o.sums != kColumns / 2) fail("a product with other accumulators than it has columns");
    meet(issue<kColumns, kKind, kForm, kCount, kApart, kAccumulate>, &o);
}
inline void end_group(void *const *) { flight().product_groups[now->index.x / kWarp]++; }
inline void product_commit() { meet(end_group, nullptr); }
void complete_groups(void *const *args);
inline void product_wait(u32 pending) { meet(complete_groups, &pending); }

// ---- matrices, lanes --------------------------------------------------------------------------------------------
struct StoredMatrix {
    u32 x[4], address;
};
template <bool kTransposed> void store_matrices(void *const *args) {
    u16 matrix[4][8][8];
    for (int i = 0; i < kWarp; i++)
        for (int m = 0; m < 4; m++)
            for (int e = 0; e < 2; e++) {
                const int row = i / 4, column = i % 4 * 2 + e;
                (kTransposed ? matrix[m][column][row] : matrix[m][row][column]) = (u16)(((const StoredMatrix *)args[i])->x[m] >> 16 * e);
            }
    for (int i = 0; i < kWarp; i++) {
        const u32 address = ((const StoredMatrix *)args[i])->address;
        memcpy(shared(address, 16), matrix[i / 8][i % 8], 16);
        here->unfenced[(address - kSharedFirst) / 16] = (u16)(now->index.x / kWarp * kWarp + (u32)i + 1);
    }
}
extern template void store_matrices<false>(void *const *);
extern template void store_matrices<true>(void *const *);
void stmatrix(u32 address, u32 a, u32 b, u32 c, u32 d);
void stmatrix_trans(u32 address, u32 a, u32 b, u32 c, u32 d);
struct Exchange {
    u32 *to, from, mask;   // mask ~0: from lane 0
};
void exchange_all(void *const *args);
template <class T> void from_first(T &to, T from) {
    Exchange e = {(u32 *)&to, (u32)from, ~0u};
    meet(exchange_all, &e);
}
void from_neighbour(u32 &to, u32 from);
void transpose_all(void *const *args);
void transpose(u32 &to, u32 from);
inline void trap() { fail("a trap"); }

// Between blocks: nothing may be under way.
const char *left_over();
void begin_hopper_block();
inline const bool hopper = (begin_more = begin_hopper_block, end_more = left_over, true);

}  // namespace emu

#endif
