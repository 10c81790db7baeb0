// SPDX-License-Identifier: Apache-2.0
//
// The functions of emulator.hpp and emulator_hopper.hpp that are long or compute much: compiled once, with optimising, for all programs.
#include "emulator_hopper.hpp"

namespace emu {

static void enter(Block &b) { here = &b, block = b.index, shared_memory = b.shared_memory; }
static bool warp_pauses;
void pause() {
    const u32 drawn = below(4);
    if (drawn > 1) return;
    now->paused = true;
    warp_pauses = drawn == 1;
    yield();
}
void fail(const char *what) {
    if (fault[0] == 0)
        snprintf(fault, sizeof fault, "%s (block %u,%u thread %u)", what, block.x, block.y, now->index.x);
    _longjmp(scheduler, 1);
}
unsigned char *shared(u32 address, u32 bytes) {
    const u32 at = address - kSharedFirst;
    if (address < kSharedFirst || bytes > shared_bytes || at > shared_bytes - bytes) fail("address outside shared memory");
    if (at % bytes != 0) fail("shared address that is not a multiple of the access");
    if (here->flying[at / 16]) fail("shared memory is touched while a copy is on its way there");
    return shared_memory + at;
}
void *global(const void *address, u32 bytes, bool write) {
    if ((uintptr_t)address % bytes != 0) fail("global address that is not a multiple of the access");
    if (granted != nullptr && !granted(address, bytes, write)) fail("address outside global memory");
    return const_cast<void *>(address);
}
void load_acquire(u32 &x, const u32 *from) {
    now->looks = from == now->looked ? now->looks + 1 : 1;
    now->looked = from;
    now->paused = true;
    yield();
    load_global(x, from);
}
void load_global_if(float &x, float &y, float &z, float &w, const float *from, u32 there) {
    x = y = z = w = 0.0f;
    if (there != 0) load_global(x, y, z, w, from);
}
void copy_async(u32 to, const void *from, u32 bytes, u64) {
    if (bytes > 16) fail("a copy of more than 16 bytes");
    if (bytes > 0 && (uintptr_t)from % 16 != 0) fail("a copy from an address that is not a multiple of 16");
    if (bytes > 0 && granted != nullptr && !granted(from, bytes, false)) fail("a copy from outside global memory");
    memset(shared(to, 16), 0xff, 16);
    here->flying[(to - kSharedFirst) / 16] = true;
    if (now->copies == kCopies) fail("more copies on their way than the emulator holds");
    now->copy[now->copies++] = {to, bytes, now->groups, from};
}
void wait_copies(u32 pending) {
    u32 left = 0;
    for (u32 i = 0; i < now->copies; i++) {
        const Copy c = now->copy[i];
        if (c.group + pending >= now->groups) {
            now->copy[left++] = c;
            continue;
        }
        here->flying[(c.to - kSharedFirst) / 16] = false;
        here->unfenced[(c.to - kSharedFirst) / 16] = (u16)(now->index.x + 1);
        unsigned char *to = shared(c.to, 16);
        memset(to, 0, 16);
        if (c.bytes > 0) memcpy(to, c.from, c.bytes);
    }
    now->copies = left;
}
bool arrived_at(u32 id, u32 count) {
    if (++here->arrived[id] < count) return false;
    here->arrived[id] = 0;
    for (u32 i = 0; i < threads; i++)
        if (here->lanes[i].barrier == (int)id) here->lanes[i].barrier = -1, here->lanes[i].waits = false;
    return true;
}
void barrier(u32 id, u32 count) {
    if (id >= kBarriers || count % kWarp != 0 || count == 0 || count > threads) fail("no such barrier");
    now->waits = true;
    now->barrier = (int)id;
    if (!arrived_at(id, count)) yield();
}
SplitBarrier &split_at(u32 address) {
    for (u32 i = 0; i < here->split_barriers; i++)
        if (here->split_barrier[i].address == address) return here->split_barrier[i];
    fail("a split barrier that nobody initialised");
}
void split_init(u32 address, u32 count) {
    shared(address, 8);
    if (here->split_barriers == kSplitBarriers) fail("more split barriers than the emulator holds");
    here->split_barrier[here->split_barriers++] = {address, count, count, 0, 0};
}
void split_end(u32 address) {
    SplitBarrier &b = split_at(address);
    b = here->split_barrier[--here->split_barriers];
}
void wake(const SplitBarrier &b) {
    for (u32 i = 0; i < threads; i++)
        if (here->lanes[i].split == &b) here->lanes[i].split = nullptr, here->lanes[i].waits = false;
}
void end_phase(SplitBarrier &b) {
    b.pending = b.count;
    b.phase ^= 1;
    wake(b);
}
void split_arrive(u32 address) {
    SplitBarrier &b = split_at(address);
    if (--b.pending == 0) end_phase(b);
    pause();
}
void split_wait(u32 address, u32 parity) {
    SplitBarrier &b = split_at(address);
    if (b.phase != parity) return;
    now->waits = true;
    now->split = &b;
    yield();
}
void meet(Together what, void *args) {
    Warp &w = here->warps[now->index.x / kWarp];
    if (w.met > 0 && w.what != what) fail("lanes of a warp meet at different instructions");
    w.what = what;
    w.args[now->index.x % kWarp] = args;
    if (++w.met < kWarp) {
        now->waits = true;
        yield();
        return;
    }
    w.met = 0;
    Lane *first = now - now->index.x % kWarp;
    for (int i = 0; i < kWarp; i++) first[i].waits = false;
    what(w.args);
}
void vote(void *const *args) {
    u32 all = 0;
    for (int i = 0; i < kWarp; i++) all |= (u32)(((const Vote *)args[i])->mine != 0) << i;
    for (int i = 0; i < kWarp; i++) *((const Vote *)args[i])->all = all;
}
void ballot(u32 &all, u32 mine) {
    Vote v = {&all, mine};
    meet(vote, &v);
}
void shuffle(void *const *args) {
    for (int i = 0; i < kWarp; i++) {
        const Shuffle *s = (const Shuffle *)args[i];
        *s->to = ((const Shuffle *)args[i ^ (s->mask & 31)])->from;
    }
}
u16 half_of(float x) {
    const u32 b = bits_of(x), sign = b >> 16 & 0x8000, size = b & 0x7fffffff;
    if (size > 0x7f800000u) return 0x7fff;
    if (size >= 0x477ff000u) return (u16)(sign | 0x7c00);
    if (size < 0x38800000u) return (u16)(sign | (u32)nearbyintf(float_of(size) * 0x1p24f));
    return (u16)(sign | ((size - 0x38000000u + 0xfff + (size >> 13 & 1)) >> 13));
}
void exp2_of(float &y, float x) { y = flushed(exp2f(flushed(x))); }
void permute(u32 &x, u32 a, u32 selector) { permute(x, a, 0, selector); }
void permute(u32 &x, u32 a, u32 b, u32 selector) {
    const u64 bytes = a | (u64)b << 32;
    x = 0;
    for (int i = 0; i < 4; i++, selector >>= 4) {
        const unsigned char byte = (unsigned char)(bytes >> (selector & 7) * 8);
        x |= (u32)(selector & 8 ? (byte >> 7) * 0xff : byte) << 8 * i;
    }
}
static unsigned char e4m3_of(float x) {
    if (isnan(x)) return 0x7f;
    int exponent;
    const float size = fabsf(x);
    frexpf(size, &exponent);
    exponent = size > 0 && exponent - 1 > -6 ? exponent - 1 : -6;
    const float units = nearbyintf(ldexpf(size, 3 - exponent));   // to nearest even
    const int bits = (exponent + 6) * 8 + (int)(units < 16 ? units : 16);
    return (unsigned char)((signbit(x) ? 0x80 : 0) | (size >= 464 || bits > 0x7e ? 0x7e : bits));
}
void pack_e4m3(u32 &four, float a, float b, float c, float d) {
    four = e4m3_of(a) | (u32)e4m3_of(b) << 8 | (u32)e4m3_of(c) << 16 | (u32)e4m3_of(d) << 24;
}
void multiply_halves(u32 &x, u32 a, u32 b) {
    pack_half(x, half_value((u16)(a >> 16)) * half_value((u16)(b >> 16)), half_value((u16)a) * half_value((u16)b));
}
void multiply_add_brains(u32 &x, u32 a, u32 b, u32 c) {
    pack_brain(x, fmaf(brain_value((u16)(a >> 16)), brain_value((u16)(b >> 16)), brain_value((u16)(c >> 16))),
               fmaf(brain_value((u16)a), brain_value((u16)b), brain_value((u16)c)));
}
template void load_matrices<false>(void *const *);
template void load_matrices<true>(void *const *);
void ldmatrix(u32 &a, u32 &b, u32 &c, u32 &d, u32 address) {
    Matrix m = {{&a, &b, &c, &d}, address};
    meet(load_matrices<false>, &m);
}
void ldmatrix_trans(u32 &a, u32 &b, u32 &c, u32 &d, u32 address) {
    Matrix m = {{&a, &b, &c, &d}, address};
    meet(load_matrices<true>, &m);
}
template void multiply<half_value>(void *const *);
template void multiply<brain_value>(void *const *);
template void multiply<byte_value>(void *const *);
void multiply_tf32(void *const *args) {
    const auto value = [](u32 bits) {
        float x;
        bits &= 0xffffe000u;
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    };
    double a[16][8], b[8][8], c[16][8];
    for (int i = 0; i < kWarp; i++) {
        const Product *p = (const Product *)args[i];
        const int g = i / 4, t = i % 4;
        for (int r = 0; r < 4; r++) a[g + r % 2 * 8][t + r / 2 * 4] = value(p->a[r]), c[g + r / 2 * 8][t * 2 + r % 2] = *p->c[r];
        for (int r = 0; r < 2; r++) b[t + r * 4][g] = value(p->b[r]);
    }
    add_products(c, a, b);
    for (int i = 0; i < kWarp; i++)
        for (int e = 0; e < 4; e++) {
            const double sum = c[i / 4 + e / 2 * 8][i % 4 * 2 + e % 2];
            const float rounded = (float)sum;
            *((const Product *)args[i])->c[e] = fabs(rounded) > fabs(sum) ? nextafterf(rounded, 0.0f) : rounded;
        }
}
void mma_tf32(float &c0, float &c1, float &c2, float &c3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    Product p = {{&c0, &c1, &c2, &c3}, {a0, a1, a2, a3}, {b0, b1}};
    meet(multiply_tf32, &p);
}
// Of all fibers. Not malloc()'s, which fills what it gives where MALLOC_PERTURB_ is set, as Meson does.
alignas(64) static unsigned char stacks[(size_t)kBlocksMost * kThreadsMax * kStack];

void run_threads() {
    for (;;) {
        kernel();
        now->ended = true;
        if (now->copies > 0 && fault[0] == 0) fail("a thread ended before its copies landed");
        yield();
    }
}
void resume(Lane &lane) {
    now = &lane;
    if (_setjmp(scheduler) != 0) return;
    if (lane.started) _longjmp(lane.at, 1);
    lane.started = true;
    getcontext(&lane.context);
    lane.context.uc_stack.ss_sp = stacks + (size_t)((u32)(here - blocks) * kThreadsMax + lane.index.x) * kStack;
    lane.context.uc_stack.ss_size = kStack;
    lane.context.uc_link = nullptr;
    makecontext(&lane.context, run_threads, 0);
    setcontext(&lane.context);
}
bool run_warp(u32 warp) {
    bool any = false;
    warp_pauses = false;
    for (bool again = true; again && fault[0] == 0 && !warp_pauses;) {
        again = false;
        const u32 first = below(2) == 0 ? 0 : below(kWarp);
        for (u32 i = 0; i < kWarp && fault[0] == 0 && !warp_pauses; i++) {
            Lane &lane = here->lanes[warp * kWarp + (first + i) % kWarp];
            if (lane.ended || lane.waits || lane.paused) continue;
            const u32 looks = lane.looks;
            if (here->resumed++ == kResumedMost) snprintf(fault, sizeof fault, "a block does not end (block %u,%u)", block.x, block.y);
            resume(lane);
            if (lane.looks == looks) lane.looks = 0, lane.looked = nullptr;
            again = true, any |= lane.looks < 3;   // who looks again and again does not go on
        }
    }
    for (u32 i = warp * kWarp; i < (warp + 1) * kWarp; i++) here->lanes[i].paused = false;
    return any;
}
// Gives one warp, or the four of a warpgroup, another rank.
static void draw_rank(u32 *rank, u32 first, u32 together) {
    const u32 drawn = below(1 << 30);
    for (u32 i = 0; i < together; i++) rank[first + i] = drawn;
}
// Of the warps, in the order of their ranks, the first that can go on does so; false: none can.
static bool run_some_warp() {
    bool tried[kThreadsMax / kWarp] = {};
    const u32 count = threads / kWarp, *rank = here->rank;
    for (u32 n = 0; n < count && fault[0] == 0; n++) {
        u32 best = count;
        for (u32 i = 0; i < count; i++)
            if (!tried[i] && (best == count || rank[i] > rank[best])) best = i;
        tried[best] = true;
        if (run_warp(best)) return true;
    }
    return false;
}
static void begin_block(Index index) {
    Block &b = *here;
    b.index = block = index;
    memset(shared_memory, 0xff, shared_bytes);
    memset(b.flying, 0, sizeof b.flying);
    memset(b.unfenced, 0, sizeof b.unfenced);
    if (begin_more != nullptr) begin_more();
    memset(b.arrived, 0, sizeof b.arrived);
    b.split_barriers = b.resumed = 0;
    const u32 count = threads / kWarp;
    for (u32 i = 0; i < count; i++) b.warps[i].met = 0;
    for (u32 i = 0; i < threads; i++) {
        Lane &l = b.lanes[i];
        l.index = {i, 0, 0};
        l.ended = l.waits = l.paused = false;
        l.looks = 0, l.looked = nullptr;
        l.barrier = -1;
        l.split = nullptr;
        l.copies = l.groups = 0;
    }
    b.together = count % 4 == 0 && below(2) == 0 ? 4 : 1;
    for (u32 i = 0; i < count; i += b.together) draw_rank(b.rank, i, b.together);
}
// Until nothing in the block can go on, or until another block's turn comes; whether anything went on.
static bool run_block() {
    const u32 count = threads / kWarp / here->together;
    u32 turns = 0, most = blocks_at_once == 1 || below(2) == 0 ? ~0u : 1 + below(256);
    for (; turns < most && fault[0] == 0 && run_some_warp(); turns++)
        if (below(16) == 0) draw_rank(here->rank, below(count) * here->together, here->together);
    return turns > 0;
}
// The first thread that has not ended; NULL: the block has.
static Lane *left_in_block() {
    for (u32 i = 0; i < threads; i++)
        if (!here->lanes[i].ended) return &here->lanes[i];
    return nullptr;
}
void run_grid() {
    const u32 all = grid.x * grid.y * grid.z;
    bool lives[kBlocksMost] = {}, stuck[kBlocksMost] = {};
    for (Block &b : blocks)
        for (u32 i = 0; i < threads; i++) b.lanes[i].started = false;
    for (u32 next = 0; fault[0] == 0;) {
        u32 can = 0, at = kBlocksMost;
        for (u32 i = 0; i < blocks_at_once; i++) {
            if (!lives[i] && next < all) {
                enter(blocks[i]);
                begin_block({next % grid.x, next / grid.x % grid.y, next / grid.x / grid.y});
                next++, lives[i] = true, stuck[i] = false;
            }
            if (lives[i] && !stuck[i] && below(++can) == 0) at = i;
        }
        if (can == 0) {   // all blocks have ended, or wait for ever
            for (u32 i = 0; i < blocks_at_once && fault[0] == 0; i++)
                if (lives[i]) enter(blocks[i]), now = left_in_block(), snprintf(fault, sizeof fault, "thread %u waits for ever", now->index.x);
            return;
        }
        enter(blocks[at]);
        if (run_block()) memset(stuck, 0, sizeof stuck);
        else             stuck[at] = true;   // until another one goes on
        lives[at] = left_in_block() != nullptr;
        const char *wrong = !lives[at] && fault[0] == 0 && end_more != nullptr ? end_more() : nullptr;
        if (wrong != nullptr) snprintf(fault, sizeof fault, "%s (block %u,%u)", wrong, block.x, block.y);
    }
}

// ---- emulator_hopper.hpp ----------------------------------------------------------------------------------------
const unsigned char *seen(u32 address, u32 bytes) {
    const unsigned char *at = shared(address, bytes);
    for (u32 i = (address - kSharedFirst) / 16; i <= (address - kSharedFirst + bytes - 1) / 16; i++)
        if (here->unfenced[i] != 0) fail("what a thread wrote to shared memory is used without a proxy fence");
    return at;
}
void proxy_fence() {
    const u16 mine = (u16)(now->index.x + 1);
    for (u32 i = 0; i < shared_bytes / 16; i++) here->unfenced[i] = here->unfenced[i] == mine ? 0 : here->unfenced[i];
}
void phase_may_end(SplitBarrier &b) {
    if (b.pending == 0 && b.bytes == 0) end_phase(b);
}
static void count_arrival(u32 barrier, u32 bytes) {
    SplitBarrier &b = split_at(barrier);
    if (b.pending == 0) fail("more arrivals at a barrier than a phase has");
    b.pending--;
    b.bytes += (int)bytes;
    phase_may_end(b);
}
void byte_arrive(u32 barrier, u32 bytes) {
    count_arrival(barrier, bytes);
    pause();   // whoever waited may use what was let go before this thread does anything else
}
void spoil(u32 to, u32 bytes) {
    if (to % 16 != 0 || bytes % 16 != 0) fail("a copy that is not a multiple of 16 bytes");
    for (u32 i = 0; i < bytes; i += 16) {
        memset((void *)seen(to + i, 16), 0xff, 16);
        here->flying[(to + i - kSharedFirst) / 16] = true;
    }
}
void issued(const Load &load) {
    spoil(load.to, load.bytes);
    flight().loads.push_back(load);
    wake(split_at(load.barrier));
}
TensorMap map_at(const void *map) {
    TensorMap x;
    memcpy(&x, map, sizeof x);
    if ((uintptr_t)map % 64 != 0 || x.rank != 3 || x.swizzle < 1 || x.swizzle > 3 || x.box[0] * (x.type == 0 ? 1 : 2) != 16u << x.swizzle ||
        x.box[1] == 0 || x.box[1] > 256 || x.box[2] != 1 || x.box[3] != 1 || x.extent[0] % 8 != 0 || x.interleave != 0 || x.fill != 0 || (uintptr_t)x.address % 16 != 0 || x.stride[0] % 16 != 0 ||
        x.stride[1] % 16 != 0 || x.stride[2] % 16 != 0 || x.extent[0] == 0 || x.extent[1] == 0 || x.extent[2] == 0 || x.extent[3] == 0)
        fail("a tensor map that no kernel of ours makes");
    return x;
}
void tensor_load(u32 to, const void *map, u32 barrier, int c, int r, int h, int b, u64) {
    Load load = {to, 0, barrier, nullptr, map_at(map), {c, r, h, b}};
    if (to % 1024 != 0) fail("a swizzled box that does not begin at a multiple of 1024 bytes");
    load.bytes = bytes_of_box(load.map);
    issued(load);
}
void array_load(u32 to, const void *from, u32 bytes, u32 barrier, u64) {
    if ((uintptr_t)from % 16 != 0) fail("a copy from an address that is not a multiple of 16");
    if (granted != nullptr && !granted(from, bytes, false)) fail("a copy from outside global memory");
    issued({to, bytes, barrier, (const unsigned char *)from, {}, {}});
}
void land(SplitBarrier &b) {
    std::vector<Load> left;
    for (const Load &load : flight().loads) {
        if (load.barrier != b.address) {
            left.push_back(load);
            continue;
        }
        for (u32 i = 0; i < load.bytes; i += 16) here->flying[(load.to + i - kSharedFirst) / 16] = false;
        if (load.from != nullptr)
            memcpy(shared_memory + (load.to - kSharedFirst), load.from, load.bytes);
        else
            each_of_box(load.map, load.at, load.to, [&](u32 to, const unsigned char *from, u32 bytes) {
                const u64 zeros[2] = {};
                memcpy(shared_memory + (to - kSharedFirst), from == nullptr ? zeros : global(from, bytes, false), bytes);
            });
        b.bytes -= (int)load.bytes;
    }
    flight().loads.swap(left);
    phase_may_end(b);
}
void byte_wait(u32 barrier, u32 parity) {
    SplitBarrier &b = split_at(barrier);
    while (b.phase == parity) {
        land(b);
        if (b.phase != parity) return;
        now->waits = true;
        now->split = &b;
        yield();
    }
}
// As if a block of this one's cluster did it.
template <class F> static void in_block(u32 rank, F f) {
    Block &mine = *here;
    const u32 index = block.x - block.x % cluster + rank;
    for (u32 i = 0; i < blocks_at_once; i++)
        if (blocks[i].index.x == index) enter(blocks[i]);
    if (rank >= cluster || block.x != index) fail("no such block in the cluster");
    f();
    enter(mine);
}
void cluster_barrier() {
    now->waits = true, now->barrier = kBarriers;
    if (++cluster_arrived < cluster * threads) return yield();
    cluster_arrived = 0;
    for (u32 b = 0; b < blocks_at_once; b++)
        for (Lane &lane : blocks[b].lanes)
            if (lane.barrier == kBarriers) lane.barrier = -1, lane.waits = false;
}
void load_from_block(float &x, float &y, float &z, float &w, u32 from) {
    in_block(from >> 24, [&] { load_shared(x, y, z, w, from & 0xffffff); });
}
void byte_arrive_in_block(u32 barrier, u32 rank) {
    in_block(rank, [=] { count_arrival(barrier, 0); });
    pause();
}
void tensor_load_to_all(u32 to, const void *map, u32 barrier, int c, int r, int h, int b, u16 to_blocks, u64 hint) {
    for (u32 rank = 0; rank < 16; rank++)
        if ((to_blocks >> rank & 1) != 0) in_block(rank, [=] { tensor_load(to, map, barrier, c, r, h, b, hint); });
}
void barrier_arrive_only(u32 id, u32 count) {
    if (id >= kBarriers || count % kWarp != 0 || count == 0 || count > threads) fail("no such barrier");
    arrived_at(id, count);
    pause();
}
u64 content_of(u32 from, u32 bytes) {
    u64 sum = 0;
    for (u32 i = 0; i < bytes; i += 8) {
        u64 x;
        memcpy(&x, seen(from + i, 8), 8);
        sum = mixed(sum, x);
    }
    return sum;
}
void issued(Store store) {
    store.lane = now->index.x;
    store.group = flight().store_groups[store.lane];
    store.content = content_of(store.from, store.bytes);
    flight().stores.push_back(store);
}
void tensor_store(const void *map, u32 from, int c, int r, int h, int b, u64) {
    const TensorMap m = map_at(map);
    issued(Store{0, 0, from, bytes_of_box(m), nullptr, m, {c, r, h, b}, 0});
}
void store_commit() { flight().store_groups[now->index.x]++; }
void store_wait(u32 pending) {
    std::vector<Store> left;
    for (const Store &s : flight().stores) {
        if (s.lane != now->index.x || s.group + pending >= flight().store_groups[s.lane]) {
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
        each_of_box(s.map, s.at, s.from, [&](u32 from, const unsigned char *to, u32 bytes) {
            if (to != nullptr) memcpy(global(to, bytes, true), shared_memory + (from - kSharedFirst), bytes);
        });
    }
    flight().stores.swap(left);
}
void map_set(u32 map, u32 TensorMap::*field, u64 value) {
    TensorMap x;
    memcpy(&x, shared(map, 128), sizeof x);
    x.*field = (u32)value;
    memcpy(shared(map, 128), &x, sizeof x);
}
void map_set_address(u32 map, const void *address) { memcpy(shared(map, 128), &address, sizeof address); }
void copy_maps(void *const *args) {
    const u64 *first = (const u64 *)args[0];
    memcpy(global((void *)first[0], 128, true), shared((u32)first[1], 128), 128);
}
void map_copy(void *to, u32 from) {
    u64 args[2] = {(u64)(uintptr_t)to, from};
    proxy_fence();
    meet(copy_maps, args);
}
const char *read_operand(u64 descriptor, bool across, int first, int rows, u16 *ret, int width, u64 &sum) {
    const u32 start = (u32)(descriptor & 0x3fff) << 4, leading = (u32)(descriptor >> 16 & 0x3fff) << 4;
    const u32 eight = (u32)(descriptor >> 32 & 0x3fff) << 4;
    if (descriptor >> 62 == 0) return "a descriptor without swizzled rows";
    const u32 mode = 4 - (u32)(descriptor >> 62), bytes = 16u << mode;   // of a row of a slab
    for (int i = 0; i < 2 * rows; i++) {
        const int k = across ? i % 16 : i % 2 * 8, own = across ? i / 16 * 8 : i / 2, row = first + own;
        const u32 address = across ? start + row / (bytes / 2) * leading + k / 8 * eight + k % 8 * bytes + row % (bytes / 2) * 2
                                   : start + row / 8 * eight + row % 8 * bytes + k * 2;
        const u32 at = swizzled(address, mode) - kSharedFirst;
        if (at >= shared_bytes) return "address outside shared memory";
        if (here->flying[at / 16]) return "shared memory is touched while a copy is on its way there";
        if (here->unfenced[at / 16] != 0) return "what a thread wrote to shared memory is used without a proxy fence";
        u64 halves[2];
        memcpy(halves, shared_memory + at, 16);
        sum = mixed(mixed(sum, halves[0]), halves[1]);
        for (int e = 0; e < 8; e++) ret[(across ? k : k + e) * width + (across ? own + e : own)] = (u16)(halves[e / 4] >> 16 * (e % 4));
    }
    return nullptr;
}
u64 read_operands(const GroupProduct &p, u32 quadrant, Elements &ret) {
    u64 sum = 0;
    const char *wrong = p.from_registers ? nullptr : read_operand(p.a, p.a_across, (int)quadrant * 16, 16, ret.a[0], 16, sum);
    if (wrong == nullptr) wrong = read_operand(p.b, p.b_across, 0, p.columns, ret.b[0], 256, sum);
    if (wrong != nullptr) fail(wrong);
    return sum;
}
void complete(const GroupProduct &p, u32 quadrant) {
    static float a[16][16], b[16][256], c[16][256];
    static Elements in;
    const u64 content = read_operands(p, quadrant, in);
    if (content != p.content) fail("shared memory was changed under a product");
    for (int l = 0; l < kWarp; l++)
        for (int j = 0; j < p.columns / 2; j++) c[l / 4 + j / 2 % 2 * 8][j / 4 * 8 + l % 4 * 2 + j % 2] = p.accumulate ? *p.c[l][j] : 0.0f;
    for (int byte = 0; byte < (p.kind == 2 ? 2 : 1); byte++) {
        const auto value = [&](u16 x) { return p.kind == 2 ? e4m3_value((unsigned char)(x >> 8 * byte)) : p.kind == 1 ? brain_value(x) : half_value(x); };
        for (int k = 0; k < 16; k++) {
            for (int i = 0; i < 16 && !p.from_registers; i++) a[i][k] = value(in.a[k][i]);
            for (int j = 0; j < p.columns; j++) b[k][j] = value(in.b[k][j]);
        }
        for (int l = 0; l < kWarp; l++)
            for (int r = 0; r < 4 && p.from_registers; r++)
                for (int e = 0; e < 2; e++) a[l / 4 + r % 2 * 8][l % 4 * 2 + r / 2 * 8 + e] = value((u16)(p.registers[l][r] >> 16 * e));
        add_products(c, a, b, p.columns);
    }
    for (int l = 0; l < kWarp; l++)
        for (int j = 0; j < p.columns / 2; j++) *p.c[l][j] = c[l / 4 + j / 2 % 2 * 8][j / 4 * 8 + l % 4 * 2 + j % 2];
}
void complete_groups(void *const *args) {
    const u32 warp = now->index.x / kWarp, pending = *(const u32 *)args[0];
    std::vector<GroupProduct> &mine = flight().products[warp];
    size_t done = 0;   // they are in the order of their groups
    for (; done < mine.size() && mine[done].group + pending < flight().product_groups[warp]; done++) complete(mine[done], warp % 4);
    mine.erase(mine.begin(), mine.begin() + (i64)done);
}
template void store_matrices<false>(void *const *);
template void store_matrices<true>(void *const *);
void stmatrix(u32 address, u32 a, u32 b, u32 c, u32 d) {
    StoredMatrix m = {{a, b, c, d}, address};
    meet(store_matrices<false>, &m);
}
void stmatrix_trans(u32 address, u32 a, u32 b, u32 c, u32 d) {
    StoredMatrix m = {{a, b, c, d}, address};
    meet(store_matrices<true>, &m);
}
void exchange_all(void *const *args) {
    for (u32 i = 0; i < kWarp; i++) {
        const Exchange *e = (const Exchange *)args[i];
        *e->to = ((const Exchange *)args[e->mask == ~0u ? 0 : i ^ e->mask])->from;
    }
}
void from_neighbour(u32 &to, u32 from) {
    Exchange e = {&to, from, 1};
    meet(exchange_all, &e);
}
void transpose_all(void *const *args) {
    u16 x[8][8];
    for (int i = 0; i < kWarp; i++)
        for (int e = 0; e < 2; e++) x[i / 4][i % 4 * 2 + e] = (u16)(((const Exchange *)args[i])->from >> 16 * e);
    for (int i = 0; i < kWarp; i++) *((const Exchange *)args[i])->to = x[i % 4 * 2][i / 4] | (u32)x[i % 4 * 2 + 1][i / 4] << 16;
}
void transpose(u32 &to, u32 from) {
    Exchange e = {&to, from, 0};
    meet(transpose_all, &e);
}
const char *left_over() {
    for (const std::vector<GroupProduct> &p : flight().products)
        if (!p.empty()) return "a block ended with a product under way";
    for (u32 warp = 0; warp < threads / kWarp; warp++)
        if (flight().product_groups[warp] != flight().product_groups[warp / 4 * 4]) return "not all warps of a warpgroup took part in a product";
    return !flight().stores.empty() ? "a block ended while its shared memory was copied" : !flight().loads.empty() ? "a block ended before a copy landed" : nullptr;
}
void begin_hopper_block() {
    for (std::vector<GroupProduct> &p : flight().products) p.clear();
    flight().loads.clear(), flight().stores.clear();
    memset(flight().store_groups, 0, sizeof flight().store_groups);
    memset(flight().product_groups, 0, sizeof flight().product_groups);
}

}  // namespace emu
