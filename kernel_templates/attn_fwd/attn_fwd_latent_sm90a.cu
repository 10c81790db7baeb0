// SPDX-License-Identifier: Apache-2.0
//
// Decoding of multi-head latent attention on Hopper (sm_90a): values are the keys' first columns, TMA, wgmma, three warpgroups.
//
// Purpose: O = softmax(scale * Q K^T) V of keys that many query heads share, K of up to 576 columns and V its first ones, up to
// 512, as inference engines call it: lengths on the device, pages, sinks. A tile of keys is fetched once, for both products.
// Workload: a block takes kM packed rows (attn_split.cuh) and one part of the keys they see, kN at a time. One warpgroup fetches;
// the second, `score`, multiplies S = Q K^T, takes the softmax and multiplies the left half of O += P V; the third, `follow`,
// multiplies the right half with the same P, which comes through shared memory. With several parts a second kernel adds up.
// Invariants, beside attn_softmax_wgmma.cuh's:
//  - shared memory is Q, then STAGES tiles of keys, then what is handed from `score` to `follow`, then the barriers. Q and tiles are
//    slabs of 64 columns, swizzled by the copy engine, or as it would. Rows and columns that do not exist are zeros.
//  - a slab is full by itself. Slabs are let go by regions, as they are done with: those of keys alone with Q K^T, the right
//    ones by `follow`, the left ones with the left P V. So a slot is filled again while its last products run.
//  - Q K^T of the next step and the left P V of this one are issued together; the softmax of the next step runs under the latter,
//    and the right P V under the former.
//  - a thread of `follow` holds the rows of the thread of `score` with its number, and takes its P from there: no fence is
//    needed, since neither the matrix units nor the copy engine read it there.
//  - keys behind a sequence's end are masked, and become zeros in shared memory before they are values, since what lies there
//    may be NaN.
#include "attn_serving_params.h"
#include "attn_tensor_maps.h"
#include "fa_async.cuh"
#include "fa_tma.cuh"
#include "fa_wgmma.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kStep = kN, kStages = STAGES;
constexpr int kSlabs = D_TILE / 64, kHalf = DV_TILE / 128;   // slabs of a tile; of values, in each half of the output
constexpr int kScores = kN / 2, kOutputs = kHalf * 32;       // accumulators of a thread
FA_DEVICE constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
constexpr int kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kBox = PAGED != 0 ? common_divisor(kPage, kN) : kN, kBoxes = kN / kBox;   // keys of a box; boxes of a tile

constexpr u32 kWarp = 32, kGroup = 128;
constexpr u32 kSlabBytes = 64 * 128, kQBytes = kSlabs * kSlabBytes, kTileBytes = kSlabs * kSlabBytes;
constexpr u32 kProbBytes = kGroup * kScores / 2 * 4, kFactorBytes = kGroup * 8, kBarrierBytes = 512;
static_assert(FA_SMEM_BYTES == kQBytes + kStages * kTileBytes + kProbBytes + kFactorBytes + kBarrierBytes, "shared memory differs from the manifest");
static_assert(FA_THREADS == 384 && kM == 64 && kN == 64 && V_IN_K == 1 && ALIGNED == 1 && KV_FP8 == 0, "tile and threads disagree");
static_assert(HEAD_DIM <= D_TILE && HEAD_DIM_V <= DV_TILE && DV_TILE <= D_TILE && DV_TILE % 128 == 0 && D_TILE % 64 == 0 &&
              HEAD_DIM % 8 == 0 && HEAD_DIM_V % 8 == 0 && kBox % 16 == 0, "heads and pages do not fit their tiles");

} // namespace

#include "attn_softmax_wgmma.cuh"
#include "attn_split.cuh"

extern "C" __constant__ fa_attn_boxes fa_attn_boxes_wanted = {64, 1, 1, kBox, kBox, 1};

namespace {

using Output = float[kOutputs];
enum Region { kKeysOnly, kRight, kLeft, kRegions };
enum Named { kAll, kQueries, kCleanLeft, kCleanRight };   // named barriers

FA_DEVICE constexpr int first_slab(int region) { return region == kKeysOnly ? 2 * kHalf : region == kRight ? kHalf : 0; }
FA_DEVICE constexpr int end_slab(int region) { return region == kKeysOnly ? kSlabs : region == kRight ? 2 * kHalf : kHalf; }

// Where things lie in shared memory. A step's tile: its slabs and their barriers.
struct Shared {
    u32 base;

    __device__ __forceinline__ u32 q() const { return base; }
    __device__ __forceinline__ u32 slab(int step, int slab) const { return base + kQBytes + step % kStages * kTileBytes + slab * kSlabBytes; }
    __device__ __forceinline__ u32 probs() const { return base + kQBytes + kStages * kTileBytes; }
    __device__ __forceinline__ u32 factors() const { return probs() + kProbBytes; }
    __device__ __forceinline__ u32 barrier(u32 which) const { return factors() + kFactorBytes + which * 8; }
    __device__ __forceinline__ u32 handed() const { return barrier(0); }
    __device__ __forceinline__ u32 taken() const { return barrier(1); }
    __device__ __forceinline__ u32 full(int step, int slab) const { return barrier((u32)(2 + step % kStages * (kSlabs + kRegions) + slab)); }
    __device__ __forceinline__ u32 empty(int step, int region) const { return full(step, kSlabs + region); }
};
static_assert((2 + kStages * (kSlabs + kRegions)) * 8 <= kBarrierBytes, "more barriers than they have room");
FA_DEVICE u32 parity_of(int step) { return (u32)(step / kStages) & 1; }

// ---- copies ----------------------------------------------------------------------------------------------------

// One thread fetches all tiles of keys. A tile's pages are asked for a tile ahead.
FA_DEVICE void fetch(const fa_attn_serving_params &p, const fa_attn_tensor_maps &maps, const Shared &shared, const Work &w) {
    const int first = LENGTHS_K == 1 && PAGED == 0 ? load_int(p.cu_seqlens_k + w.batch) : 0;   // of the sequence, in the tensor
    auto place = find_boxes<kBoxes, kBox>(p, w, first, w.begin);
#pragma unroll 1
    for (int step = 0, key = w.begin; key < w.end; ++step, key += kN) {
        const auto now = place;
        if (key + kN < w.end) place = find_boxes<kBoxes, kBox>(p, w, first, key + kN);
#pragma unroll
        for (int region = 0; region < kRegions; ++region) {
            barrier_wait(shared.empty(step, region), parity_of(step) ^ 1);
#pragma unroll
            for (int slab = first_slab(region); slab < end_slab(region); ++slab) {
                barrier_expect(shared.full(step, slab), kSlabBytes);
#pragma unroll
                for (int i = 0; i < kBoxes; ++i)
                    tma_load(shared.slab(step, slab) + i * (kBox * 128), &maps.k, shared.full(step, slab), slab * 64, now.row[i], w.kv_head,
                             now.block[i], EVICT_FIRST != 0 ? kEvictFirst : kEvictLast);
            }
        }
    }
}

// The other two warpgroups fetch the queries: rows of several heads, which no box holds.
FA_DEVICE void fetch_queries(const fa_attn_serving_params &p, const Shared &shared, const Work &w) {
    const u32 thread = threadIdx.x - kGroup;
#pragma unroll 6
    for (u32 i = thread; i < kM * kSlabs * 8; i += 2 * kGroup) {
        const u32 row = i / (kSlabs * 8), chunk = i % (kSlabs * 8);
        const bool ok = (int)row < w.rows && chunk * 8 < HEAD_DIM;
        const u16 *from = (const u16 *)p.dense.q + w.sequence.q + w.head((int)row) * p.dense.q_head_stride +
                          w.query((int)row) * p.dense.q_row_stride + chunk * 8;
        cp_async_16_zfill(shared.q() + chunk / 8 * kSlabBytes + row * 128 + ((chunk % 8 ^ row % 8) << 4), from, ok ? 16 : 0);
    }
    cp_async_commit();
    cp_async_wait<0>();
    async_proxy_fence();
    named_sync(kQueries, 2 * kGroup);
}

// ---- products --------------------------------------------------------------------------------------------------

FA_DEVICE void wait_full(const Shared &shared, int step, int slab) { barrier_wait(shared.full(step, slab), parity_of(step)); }
FA_DEVICE void let_go(const Shared &shared, int step, int region) {
    if (threadIdx.x % kWarp == 0) barrier_arrive(shared.empty(step, region));
}

// S = Q K^T of a step, left under way: slab by slab as they come.
FA_DEVICE void issue_qk(Scores &s, const Shared &shared, int step) {
    // Asked anew each time: else the compiler keeps all 36 descriptors of Q's.
    const u64 q = wgmma_descriptor<64>((u32)uniform((int)shared.q()), 0), k = wgmma_descriptor<64>(shared.slab(step, 0), 0);
#pragma unroll
    for (int region = 0; region < kRegions; ++region) {
#pragma unroll
        for (int slab = first_slab(region); slab < end_slab(region); ++slab) {
            wait_full(shared, step, slab);
            const u64 apart = slab * (kSlabBytes / 16);
            if (slab == first_slab(kSlabs > 2 * kHalf ? kKeysOnly : kRight)) {
                Wgmma<kN>::multiply_4<true>(s, q + apart, k + apart);
            } else {
                wgmma_fence();
                Wgmma<kN>::multiply_4<false>(s, q + apart, k + apart);
            }
        }
    }
    wgmma_commit();
}

// Half of O += P V of a step, left under way.
FA_DEVICE void issue_pv(Output &o, const Probs &probs, const Shared &shared, int step, int region) {
    const u64 v = wgmma_descriptor<64>(shared.slab(step, first_slab(region)), kSlabBytes);
    Wgmma<kHalf * 64>::multiply_4<true>(o, probs, v, step > 0);
    wgmma_commit();
}

FA_DEVICE void scale_rows(Output &o, const float (&factor)[2]) {
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= factor[i % 4 / 2];
}

// In the step where the part ends: rows behind its end become zeros in the region's slabs, which have come.
FA_DEVICE void clean(const Shared &shared, const Work &w, int step, int region, u32 barrier) {
    const int first = w.end - w.begin - step * kN;
    if (first >= kN) return;
    for (int i = first * 8 + (int)(threadIdx.x % kGroup); i < kN * 8; i += kGroup)
#pragma unroll
        for (int slab = first_slab(region); slab < end_slab(region); ++slab) store_shared(shared.slab(step, slab) + i * 16, 0, 0, 0, 0);
    async_proxy_fence();
    named_sync(barrier, kGroup);
}

// ---- from `score` to `follow` ----------------------------------------------------------------------------------

// A step's P, and what O is to be multiplied by before it is added to, once what was handed before has been taken. Every thread
// arrives for itself.
FA_DEVICE void hand_over(const Shared &shared, const Probs &probs, const float (&factor)[2], int step) {
    const u32 thread = threadIdx.x % kGroup;
    barrier_wait(shared.taken(), ((u32)step & 1) ^ 1);
#pragma unroll
    for (int i = 0; i < kScores / 8; ++i)
        store_shared(shared.probs() + (i * kGroup + thread) * 16, probs[4 * i], probs[4 * i + 1], probs[4 * i + 2], probs[4 * i + 3]);
    store_shared(shared.factors() + thread * 8, factor[0], factor[1]);
    barrier_arrive(shared.handed());
}
FA_DEVICE void take(const Shared &shared, Probs &probs, float (&factor)[2], int step) {
    const u32 thread = threadIdx.x % kGroup;
    barrier_wait(shared.handed(), (u32)step & 1);
#pragma unroll
    for (int i = 0; i < kScores / 8; ++i)
        load_shared(probs[4 * i], probs[4 * i + 1], probs[4 * i + 2], probs[4 * i + 3], shared.probs() + (i * kGroup + thread) * 16);
    load_shared(factor[0], factor[1], shared.factors() + thread * 8);
    barrier_arrive(shared.taken());
}

// ---- output ----------------------------------------------------------------------------------------------------

// What the block works on, asked anew at its end: it would take registers that the products need.
FA_DEVICE Work find_own_work(const fa_attn_serving_params &p) {
    Work w;
    find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y);
    return w;
}

FA_DEVICE int row_of_thread() { return (int)(threadIdx.x % kGroup / kWarp * 16 + threadIdx.x % kWarp / 4); }

// Half of the columns, from `column` on: as they are for the second kernel, or rounded.
FA_DEVICE void store_rows(const fa_attn_serving_params &p, const Work &w, const Output &o, int column) {
    const fa_attn_params &d = p.dense;
    const u32 parts = w.parts();
    const int pair = (int)threadIdx.x % 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row_of_thread() + half * 8;
        if (parts > 1) {
            float *to = Partials(p, w, gridDim.y).rows + ((u64)w.part * kM + row) * HEAD_DIM_V + column + pair * 2;
#pragma unroll
            for (int j = 0; j < kOutputs / 4; ++j)
                if (row < w.rows && column + j * 8 < HEAD_DIM_V) store_floats(to + j * 8, {o[4 * j + half * 2], o[4 * j + half * 2 + 1]});
            continue;
        }
        // Of 16 columns a pair of threads exchanges what lets each store four.
        u16 *to = (u16 *)d.o + w.sequence.o + w.head(row) * d.o_head_stride + w.query(row) * d.o_row_stride + column +
                  pair % 2 * 8 + pair / 2 * 4;
#pragma unroll
        for (int j = 0; j < kOutputs / 4; j += 2) {
            const u32 low = pack2<kBf16>(o[4 * j + half * 2], o[4 * j + half * 2 + 1]);
            const u32 high = pack2<kBf16>(o[4 * j + half * 2 + 4], o[4 * j + half * 2 + 5]);
            const bool odd = pair % 2 != 0;
            const u32 other = shuffle_xor(odd ? low : high, 1);
            if (row < w.rows && column + j * 8 + pair % 2 * 8 < HEAD_DIM_V) store_global_8(to + j * 8, odd ? other : low, odd ? high : other);
        }
    }
}

// The rows are complete: what O is multiplied by, and their LSE; or what the second kernel needs of them.
FA_DEVICE void close_rows(const fa_attn_serving_params &p, const Work &w, const Rows &rows, float (&factor)[2]) {
    const u32 parts = w.parts();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = row_of_thread() + half * 8;
        const Total total = {rows.reference[half], quad_sum(rows.sum[half])};
        const bool writes = row < w.rows && threadIdx.x % 4 == 0;
        factor[half] = 1.0f;
        if (parts > 1) {
            if (writes) store_floats(Partials(p, w, gridDim.y).sums + ((u64)w.part * kM + row) * 2, {total.reference, total.sum});
        } else if (row < w.rows) {
            const Closed end = close_row(p, w.batch, w.kv_head, w.head(row), total);
            factor[half] = end.inverse;
            if (writes && p.dense.lse) p.dense.lse[w.sequence.lse + w.head(row) * w.sequence.lse_head + w.query(row)] = end.lse;
        }
    }
}

// ---- what the consuming warpgroups do --------------------------------------------------------------------------

FA_DEVICE void apply_mask(Scores &s, const fa_attn_serving_params &p, const Work &w, int step) {
    const int key = w.begin + step * kN, from = key + (int)threadIdx.x % 4 * 2;
    if (key + kN <= w.clear_end && key + kN <= w.end) return;
    int end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int own = end_key(p, w.sequence, w.query(row_of_thread() + half * 8));
        end[half] = (own < w.end ? own : w.end) - from;
    }
    Wgmma<kN>::mask(s, end[0], end[1]);
}

FA_DEVICE void score(const fa_attn_serving_params &p, const Shared &shared, const Work &w, int steps) {
    const Line line = {find_scale(p, w.batch, w.kv_head).exponent};
    Output o;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
    Rows rows = new_rows();
    Scores s;
    Probs probs = {};
    float factor[2] = {1.0f, 1.0f};
    if (steps > 0) {
        issue_qk(s, shared, 0);
        wgmma_wait<0>();
        Wgmma<kN>::pin(s);
        let_go(shared, 0, kKeysOnly);
        apply_mask(s, p, w, 0);
        weigh_scores(s, rows, factor, line);
        pack(probs, s);
        hand_over(shared, probs, factor, 0);
        // Each turn: Q K^T of the next step beside P V of this one.
#pragma unroll 1
        for (int step = 1; step < steps; ++step) {
            issue_qk(s, shared, step);
            issue_pv(o, probs, shared, step - 1, kLeft);
            wgmma_wait<1>();
            Wgmma<kN>::pin(s);
            let_go(shared, step, kKeysOnly);
            apply_mask(s, p, w, step);
            factor[0] = factor[1] = 1.0f;
            const bool grown = weigh_scores(s, rows, factor, line);
            finish_before_wait(rows);
            wgmma_wait<0>();
            Wgmma<kHalf * 64>::pin(o);
            let_go(shared, step - 1, kLeft);
            if (grown) scale_rows(o, factor);
            pack(probs, s);
            hand_over(shared, probs, factor, step);
        }
        named_sync(kCleanLeft, kGroup);   // no warp multiplies queries with these keys any more
        clean(shared, w, steps - 1, kLeft, kCleanLeft);
        issue_pv(o, probs, shared, steps - 1, kLeft);
        wgmma_wait<0>();
        Wgmma<kHalf * 64>::pin(o);
    }
    const Work again = find_own_work(p);
    close_rows(p, again, rows, factor);
    hand_over(shared, probs, factor, steps);
    scale_rows(o, factor);
    store_rows(p, again, o, 0);
}

FA_DEVICE void follow(const fa_attn_serving_params &p, const Shared &shared, const Work &w, int steps) {
    Output o;
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] = 0.0f;
    Probs probs;
    float factor[2];
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        take(shared, probs, factor, step);
        if (warp_any(factor[0] != 1.0f || factor[1] != 1.0f)) scale_rows(o, factor);
#pragma unroll
        for (int slab = first_slab(kRight); slab < end_slab(kRight); ++slab) wait_full(shared, step, slab);
        clean(shared, w, step, kRight, kCleanRight);
        issue_pv(o, probs, shared, step, kRight);
        wgmma_wait<0>();
        Wgmma<kHalf * 64>::pin(o);
        let_go(shared, step, kRight);
    }
    const Work again = find_own_work(p);
    take(shared, probs, factor, steps);
    scale_rows(o, factor);
    store_rows(p, again, o, kHalf * 64);
}

} // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, 1)
attn_fwd(const __grid_constant__ fa_attn_serving_params p, const __grid_constant__ fa_attn_tensor_maps maps) {
    Work w;
    if (!find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y)) return;
    const Shared shared = {shared_address(shared_memory)};
    if (threadIdx.x == 0) {
        if (shared.base % 1024 != 0) asm volatile("trap;");   // descriptors and swizzles count on it
        tma_prefetch_map(&maps.k);
        for (int stage = 0; stage < kStages; ++stage) {
            for (int slab = 0; slab < kSlabs; ++slab) barrier_init(shared.full(stage, slab), 1);
            for (int region = 0; region < kRegions; ++region) barrier_init(shared.empty(stage, region), 4);
        }
        barrier_init(shared.handed(), kGroup);
        barrier_init(shared.taken(), kGroup);
        barrier_init_fence();
    }
    named_sync(kAll, FA_THREADS);
    const int steps = (w.end - w.begin + kN - 1) / kN;
    const int group = uniform((int)(threadIdx.x / kGroup));
    let_next_launch_begin();
    if (group == 0) {
        registers_decrease<PRODUCER_REGS>();
        if (threadIdx.x == 0) fetch(p, maps, shared, w);
    } else {
        registers_increase<CONSUMER_REGS>();
        fetch_queries(p, shared, w);
        if (group == 1) score(p, shared, w, steps);
        else            follow(p, shared, w, steps);
    }
}

// Adds up the parts of a row: a block for each row of each unit.
extern "C" __global__ void __launch_bounds__(DV_TILE / 4)
attn_fwd_add(const __grid_constant__ fa_attn_serving_params p, const __grid_constant__ fa_attn_tensor_maps maps) {
    Work w;
    const bool exists = find_row(w, p);
    await_launches_before();
    if (exists) add_row(p, w);
}
