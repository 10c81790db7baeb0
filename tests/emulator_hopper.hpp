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
inline const unsigned char *seen(u32 address, u32 bytes) {
    const unsigned char *at = shared(address, bytes);
    for (u32 i = (address - kSharedFirst) / 16; i <= (address - kSharedFirst + bytes - 1) / 16; i++)
        if (unfenced[i] != 0) fail("what a thread wrote to shared memory is used without a proxy fence");
    return at;
}
[[gnu::optimize("O3")]] inline void proxy_fence() {
    const u16 mine = (u16)(now->index.x + 1);
    for (u32 i = 0; i < shared_bytes / 16; i++) unfenced[i] = unfenced[i] == mine ? 0 : unfenced[i];
}
[[gnu::always_inline]] inline u64 mixed(u64 sum, u64 x) { return (sum ^ x) * 0x100000001b3ull; }

// ---- barriers that count bytes ----------------------------------------------------------------------------------
struct TensorMap {   // in the 128 bytes of a map
    const unsigned char *address;
    u32 rank, box[4], extent[4], element_stride[4], type, interleave, swizzle, fill;
    u64 stride[3];   // bytes
};
static_assert(sizeof(TensorMap) <= 128, "");
struct Load {
    u32 to, bytes, barrier;
    const unsigned char *from;   // an array; NULL: a box
    TensorMap map;
    int at[4];
};
inline std::vector<Load> loads;

inline void phase_may_end(SplitBarrier &b) {
    if (b.pending > 0 || b.bytes != 0) return;
    b.pending = b.count;
    b.phase ^= 1;
    for (u32 i = 0; i < threads; i++)
        if (lanes[i].split == &b) lanes[i].split = nullptr, lanes[i].waits = false;
}
inline void byte_arrive(u32 barrier, u32 bytes = 0) {
    SplitBarrier &b = split_at(barrier);
    if (b.pending == 0) fail("more arrivals at a barrier than a phase has");
    b.pending--;
    b.bytes += (int)bytes;
    phase_may_end(b);
    pause();   // whoever waited may use what was let go before this thread does anything else
}
// The address of an element in a box of 64 columns whose rows of 128 bytes are swizzled.
inline u32 swizzled(u32 address) { return address ^ (address >> 7 & 7) << 4; }

template <class F> void each_of_box(const TensorMap &map, const int (&at)[4], u32 shared_at, F f) {
    for (u32 row = 0; row < map.box[1]; row++)
        for (u32 column = 0; column < map.box[0]; column++) {
            const i64 c = at[0] + (i64)column, r = at[1] + (i64)row;
            const bool there = c >= 0 && c < map.extent[0] && r >= 0 && r < map.extent[1] && at[2] < (int)map.extent[2] && at[3] < (int)map.extent[3];
            const unsigned char *global_at = map.address + c * 2 + r * (i64)map.stride[0] + at[2] * (i64)map.stride[1] + at[3] * (i64)map.stride[2];
            f(swizzled(shared_at + row * 128 + column * 2), there ? global_at : nullptr);
        }
}
inline void spoil(u32 to, u32 bytes) {
    if (to % 16 != 0 || bytes % 16 != 0) fail("a copy that is not a multiple of 16 bytes");
    for (u32 i = 0; i < bytes; i += 16) {
        memset((void *)seen(to + i, 16), 0xff, 16);
        flying[(to + i - kSharedFirst) / 16] = true;
    }
}
inline void issued(const Load &load) {
    spoil(load.to, load.bytes);
    loads.push_back(load);
    const SplitBarrier &b = split_at(load.barrier);
    for (u32 i = 0; i < threads; i++)
        if (lanes[i].split == &b) lanes[i].split = nullptr, lanes[i].waits = false;
}
inline TensorMap map_at(const void *map) {
    TensorMap x;
    memcpy(&x, map, sizeof x);
    if ((uintptr_t)map % 64 != 0 || x.rank != 3 || x.box[0] != 64 || x.box[1] == 0 || x.box[1] > 256 || x.box[2] != 1 || x.box[3] != 1 ||
        x.swizzle != 3 || x.interleave != 0 || x.fill != 0 || (uintptr_t)x.address % 16 != 0 || x.stride[0] % 16 != 0 ||
        x.stride[1] % 16 != 0 || x.stride[2] % 16 != 0 || x.extent[0] == 0 || x.extent[1] == 0 || x.extent[2] == 0 || x.extent[3] == 0)
        fail("a tensor map that no kernel of ours makes");
    return x;
}
inline void tensor_load(u32 to, const void *map, u32 barrier, int c, int r, int h, int b, u64) {
    Load load = {to, 0, barrier, nullptr, map_at(map), {c, r, h, b}};
    if (to % 1024 != 0) fail("a swizzled box that does not begin at a multiple of 1024 bytes");
    load.bytes = load.map.box[1] * 128;
    issued(load);
}
inline void array_load(u32 to, const void *from, u32 bytes, u32 barrier) {
    if ((uintptr_t)from % 16 != 0) fail("a copy from an address that is not a multiple of 16");
    if (granted != nullptr && !granted(from, bytes, false)) fail("a copy from outside global memory");
    issued({to, bytes, barrier, (const unsigned char *)from, {}, {}});
}
inline void land(SplitBarrier &b) {
    std::vector<Load> left;
    for (const Load &load : loads) {
        if (load.barrier != b.address) {
            left.push_back(load);
            continue;
        }
        for (u32 i = 0; i < load.bytes; i += 16) flying[(load.to + i - kSharedFirst) / 16] = false;
        if (load.from != nullptr)
            memcpy(shared_memory + (load.to - kSharedFirst), load.from, load.bytes);
        else
            each_of_box(load.map, load.at, load.to, [&](u32 to, const unsigned char *from) {
                const u16 zero = 0;
                memcpy(shared_memory + (to - kSharedFirst), from == nullptr ? (const void *)&zero : global(from, 2, false), 2);
            });
        b.bytes -= (int)load.bytes;
    }
    loads.swap(left);
    phase_may_end(b);
}
inline void byte_wait(u32 barrier, u32 parity) {
    SplitBarrier &b = split_at(barrier);
    while (b.phase == parity) {
        land(b);
        if (b.phase != parity) return;
        now->waits = true;
        now->split = &b;
        yield();
    }
}
inline void barrier_arrive_only(u32 id, u32 count) {
    if (id >= kBarriers || count % kWarp != 0 || count == 0 || count > threads) fail("no such barrier");
    arrived_at(id, count);
    pause();
}

// ---- copies from shared memory ----------------------------------------------------------------------------------
struct Store {
    u32 lane, group, from, bytes;
    float *sum;   // an array that is added to or written; NULL: a box
    TensorMap map;
    int at[4];
    u64 content;
    bool adds;
};
inline std::vector<Store> stores;
inline u32 store_groups[kThreadsMax];

inline u64 content_of(u32 from, u32 bytes) {
    u64 sum = 0;
    for (u32 i = 0; i < bytes; i += 8) {
        u64 x;
        memcpy(&x, seen(from + i, 8), 8);
        sum = mixed(sum, x);
    }
    return sum;
}
inline void issued(Store store) {
    store.lane = now->index.x;
    store.group = store_groups[store.lane];
    store.content = content_of(store.from, store.bytes);
    stores.push_back(store);
}
inline void tensor_store(const void *map, u32 from, int c, int r, int h, int b, u64) {
    const TensorMap m = map_at(map);
    issued(Store{0, 0, from, m.box[1] * 128, nullptr, m, {c, r, h, b}, 0});
}
inline void array_add(float *to, u32 from, u32 bytes) { issued(Store{0, 0, from, bytes, to, {}, {}, 0, true}); }
inline void array_store(void *to, u32 from, u32 bytes) { issued(Store{0, 0, from, bytes, (float *)to, {}, {}, 0, false}); }
inline void store_commit() { store_groups[now->index.x]++; }
inline void store_wait(u32 pending = 0) {
    std::vector<Store> left;
    for (const Store &s : stores) {
        if (s.lane != now->index.x || s.group + pending >= store_groups[s.lane]) {
            left.push_back(s);
            continue;
        }
        if (content_of(s.from, s.bytes) != s.content) fail("shared memory was changed while it was copied");
        if (s.sum != nullptr) {
            for (u32 i = 0; i < s.bytes; i += 4) {
                float x;
                memcpy(&x, shared_memory + (s.from + i - kSharedFirst), 4);
                if (s.adds) add_global(s.sum + i / 4, x);
                else        store_global(s.sum + i / 4, x);
            }
            continue;
        }
        each_of_box(s.map, s.at, s.from, [&](u32 from, const unsigned char *to) {
            if (to != nullptr) memcpy(global(to, 2, true), shared_memory + (from - kSharedFirst), 2);
        });
    }
    stores.swap(left);
}

// ---- tensor maps that a kernel makes ----------------------------------------------------------------------------
inline void map_set(u32 map, u32 TensorMap::*field, u64 value) {
    TensorMap x;
    memcpy(&x, shared(map, 128), sizeof x);
    x.*field = (u32)value;
    memcpy(shared(map, 128), &x, sizeof x);
}
template <class T, size_t kCount> void map_set(u32 map, T (TensorMap::*field)[kCount], u32 i, u64 value) {
    TensorMap x;
    memcpy(&x, shared(map, 128), sizeof x);
    (x.*field)[i] = (T)value;
    memcpy(shared(map, 128), &x, sizeof x);
}
inline void map_set_address(u32 map, const void *address) { memcpy(shared(map, 128), &address, sizeof address); }
inline void copy_maps(void *const *args) {
    const u64 *first = (const u64 *)args[0];
    memcpy(global((void *)first[0], 128, true), shared((u32)first[1], 128), 128);
}
inline void map_copy(void *to, u32 from) {
    u64 args[2] = {(u64)(uintptr_t)to, from};
    proxy_fence();
    meet(copy_maps, args);
}

// ---- products of a warpgroup ------------------------------------------------------------------------------------
enum Form { kSharedForm, kRegistersForm, kAcrossForm };
struct GroupProduct {
    int columns;
    bool brain, accumulate, from_registers, a_across, b_across;
    u64 a, b;
    float *c[kWarp][128];
    u32 registers[kWarp][4];
    u32 group;
    u64 content;
};
inline std::vector<GroupProduct> products[kThreadsMax / kWarp];
inline u32 product_groups[kThreadsMax / kWarp];

// Of an operand at `k`: rows from `first` on. K runs along its rows, or across them. Each element's bytes must be such as `seen` takes.
[[gnu::optimize("O2")]] inline const char *read_operand(u64 descriptor, bool across, int k, int first, int rows, u16 *ret) {
    const u32 start = (u32)(descriptor & 0x3fff) << 4, leading = (u32)(descriptor >> 16 & 0x3fff) << 4;
    const u32 eight = (u32)(descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 != 1) return "a descriptor without rows of 128 swizzled bytes";
    for (int i = 0; i < rows; i++) {
        const int row = first + i;
        const u32 address = across ? start + row / 64 * leading + k / 8 * eight + k % 8 * 128 + row % 64 * 2
                                   : start + row / 8 * eight + row % 8 * 128 + k * 2;
        const u32 at = swizzled(address) - kSharedFirst;
        if (at >= shared_bytes) return "address outside shared memory";
        if (flying[at / 16]) return "shared memory is touched while a copy is on its way there";
        if (unfenced[at / 16] != 0) return "what a thread wrote to shared memory is used without a proxy fence";
        memcpy(ret + i, shared_memory + at, 2);
    }
    return nullptr;
}
// Those of a warp's part of a product, A's first, as they lie in shared memory now; returns a sum over them.
struct Elements {
    u16 a[16][16], b[16][256];   // by K
};
[[gnu::optimize("O2")]] inline u64 read_operands(const GroupProduct &p, u32 quadrant, Elements &ret) {
    u64 sum = 0;
    const char *wrong = nullptr;
    for (int k = 0; k < 16 && wrong == nullptr; k++) {
        if (!p.from_registers) wrong = read_operand(p.a, p.a_across, k, (int)quadrant * 16, 16, ret.a[k]);
        if (wrong == nullptr) wrong = read_operand(p.b, p.b_across, k, 0, p.columns, ret.b[k]);
        for (int i = 0; i < 16 && !p.from_registers; i++) sum = mixed(sum, ret.a[k][i]);
        for (int j = 0; j < p.columns; j++) sum = mixed(sum, ret.b[k][j]);
    }
    if (wrong != nullptr) fail(wrong);
    return sum;
}
inline void complete(const GroupProduct &p, u32 quadrant) {
    static float a[16][16], b[16][256], c[16][256];
    static Elements in;
    const u64 content = read_operands(p, quadrant, in);
    if (content != p.content) fail("shared memory was changed under a product");
    const auto value = [&](u16 x) { return p.brain ? brain_value(x) : half_value(x); };
    for (int k = 0; k < 16; k++) {
        for (int i = 0; i < 16 && !p.from_registers; i++) a[i][k] = value(in.a[k][i]);
        for (int j = 0; j < p.columns; j++) b[k][j] = value(in.b[k][j]);
    }
    for (int l = 0; l < kWarp; l++) {
        for (int r = 0; r < 4 && p.from_registers; r++)
            for (int e = 0; e < 2; e++) a[l / 4 + r % 2 * 8][l % 4 * 2 + r / 2 * 8 + e] = value((u16)(p.registers[l][r] >> 16 * e));
        for (int j = 0; j < p.columns / 2; j++) c[l / 4 + j / 2 % 2 * 8][j / 4 * 8 + l % 4 * 2 + j % 2] = p.accumulate ? *p.c[l][j] : 0.0f;
    }
    add_products(c, a, b, p.columns);
    for (int l = 0; l < kWarp; l++)
        for (int j = 0; j < p.columns / 2; j++) *p.c[l][j] = c[l / 4 + j / 2 % 2 * 8][j / 4 * 8 + l % 4 * 2 + j % 2];
}

struct Operands {
    float *c[128];
    u64 in[20];
    int sums = 0, count = 0;
    void add(float &x) { c[sums++] = &x; }
    void add(u64 x) { in[count++] = x; }
};
// One product of `form`, or four of them whose B is `apart` further on each.
template <int kColumns, bool kBrain, Form kForm, int kCount, int kApart, int kAccumulate> void issue(void *const *args) {
    const u32 warp = now->index.x / kWarp;
    const Operands &first = *(const Operands *)args[0];
    for (int i = 0; i < kCount; i++) {
        products[warp].emplace_back();
        GroupProduct &p = products[warp].back();
        constexpr int kBAt = kForm == kRegistersForm ? 4 * kCount : kCount;
        p.columns = kColumns, p.brain = kBrain, p.from_registers = kForm == kRegistersForm, p.group = product_groups[warp];
        p.a = first.in[i], p.b = first.in[kBAt] + (u64)(i * kApart);
        p.a_across = kForm == kAcrossForm && first.in[3] != 0;
        p.b_across = kForm == kRegistersForm || (kForm == kAcrossForm && first.in[4] != 0);
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
template <int kColumns, bool kBrain, Form kForm, int kCount, int kApart, int kAccumulate, class... T> void wgmma(T &&...x) {
    Operands o;
    (o.add(x), ...);
    if (o.sums != kColumns / 2) fail("a product with other accumulators than it has columns");
    meet(issue<kColumns, kBrain, kForm, kCount, kApart, kAccumulate>, &o);
}
inline void end_group(void *const *) { product_groups[now->index.x / kWarp]++; }
inline void product_commit() { meet(end_group, nullptr); }
inline void complete_groups(void *const *args) {
    const u32 warp = now->index.x / kWarp, pending = *(const u32 *)args[0];
    std::vector<GroupProduct> &mine = products[warp];
    size_t done = 0;   // they are in the order of their groups
    for (; done < mine.size() && mine[done].group + pending < product_groups[warp]; done++) complete(mine[done], warp % 4);
    mine.erase(mine.begin(), mine.begin() + (i64)done);
}
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
        unfenced[(address - kSharedFirst) / 16] = (u16)(now->index.x / kWarp * kWarp + (u32)i + 1);
    }
}
inline void stmatrix(u32 address, u32 a, u32 b, u32 c, u32 d) {
    StoredMatrix m = {{a, b, c, d}, address};
    meet(store_matrices<false>, &m);
}
inline void stmatrix_trans(u32 address, u32 a, u32 b, u32 c, u32 d) {
    StoredMatrix m = {{a, b, c, d}, address};
    meet(store_matrices<true>, &m);
}
struct Exchange {
    u32 *to, from, mask;   // mask ~0: from lane 0
};
inline void exchange_all(void *const *args) {
    for (u32 i = 0; i < kWarp; i++) {
        const Exchange *e = (const Exchange *)args[i];
        *e->to = ((const Exchange *)args[e->mask == ~0u ? 0 : i ^ e->mask])->from;
    }
}
template <class T> void from_first(T &to, T from) {
    Exchange e = {(u32 *)&to, (u32)from, ~0u};
    meet(exchange_all, &e);
}
inline void from_neighbour(u32 &to, u32 from) {
    Exchange e = {&to, from, 1};
    meet(exchange_all, &e);
}
inline void transpose_all(void *const *args) {
    u16 x[8][8];
    for (int i = 0; i < kWarp; i++)
        for (int e = 0; e < 2; e++) x[i / 4][i % 4 * 2 + e] = (u16)(((const Exchange *)args[i])->from >> 16 * e);
    for (int i = 0; i < kWarp; i++) *((const Exchange *)args[i])->to = x[i % 4 * 2][i / 4] | (u32)x[i % 4 * 2 + 1][i / 4] << 16;
}
inline void transpose(u32 &to, u32 from) {
    Exchange e = {&to, from, 0};
    meet(transpose_all, &e);
}
inline void trap() { fail("a trap"); }

// Between blocks: nothing may be under way.
inline const char *left_over() {
    for (const std::vector<GroupProduct> &p : products)
        if (!p.empty()) return "a block ended with a product under way";
    return !stores.empty() ? "a block ended while its shared memory was copied" : !loads.empty() ? "a block ended before a copy landed" : nullptr;
}
inline void begin_hopper_block() {
    for (std::vector<GroupProduct> &p : products) p.clear();
    loads.clear(), stores.clear();
    memset(store_groups, 0, sizeof store_groups);
    memset(product_groups, 0, sizeof product_groups);
}
inline const bool hopper = (begin_more = begin_hopper_block, end_more = left_over, true);

}  // namespace emu

#endif
