// SPDX-License-Identifier: Apache-2.0
//
// Attention forward for few queries of many heads and many keys on Hopper (sm_90a): keys split among blocks, TMA, wgmma.
//
// Purpose: O = softmax(scale * Q K^T) V as inference engines call it: lengths on the device, pages, windows, softcap, sinks,
// where the query heads that share a key head, times the queries, are so many rows that mma.sync, and no longer memory, bounds
// attn_fwd_splitkv_sm80.
// Workload: a block takes kM packed rows and one part of the keys that they see (attn_split.cuh), and walks the part as a tile of
// attn_wgmma.cuh. With several parts a second kernel adds up.
// Invariants, beside those two files':
//  - a consumer fetches its own 64 rows of Q, of several heads, which no box of the copy engine holds; the first keys are on
//    their way meanwhile.
//  - with pages a part begins where a box begins: it is moved back by less than a box, and so is its end, unless the keys end
//    there. First keys that no row sees are masked by the window.
//  - keys behind the part's end are masked; values there become zeros in shared memory, since what lies there may be NaN.
#include "attn_serving_params.h"
#include "attn_softcap.cuh"
#include "fa_async.cuh"

namespace {

FA_DEVICE constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
constexpr int kStep = kN, kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kBox = PAGED != 0 ? common_divisor(kPage, kN) : kN, kBoxes = kN / kBox;   // keys of a box; boxes of a tile
static_assert(kBox % 16 == 0 && HEAD_DIM_V <= kDv && HEAD_DIM_V % 8 == 0, "pages and heads fit their tiles");

} // namespace

#include "attn_split.cuh"

extern "C" __constant__ fa_attn_boxes fa_attn_boxes_wanted = {SLAB, 1, 1, kBox, kBox, 1};

namespace {

// A block's only tile; steps < 0: it has been taken.
struct Tile : Work {
    int steps;
};

// One part of the keys of packed rows, as attn_wgmma.cuh asks for it.
struct Part {
    using Work = Tile;
    struct Params {
        const fa_attn_serving_params &p;
        Tile tile;
    };
#if SOFTCAP
    using Curve = Bend;
    FA_DEVICE Curve find_curve(const Params &a) {
        const Scale scale = find_scale(a.p, 0, 0);
        return {a.p.cap_shift, a.p.cap_rest, a.p.cap_slope, scale.exponent, scale.cap_rate};
    }
#else
    using Curve = Line;
    FA_DEVICE Curve find_curve(const Params &a) { return {find_scale(a.p, 0, 0).exponent}; }
#endif
    static constexpr bool kMasksLater = CAUSAL != 0 || WINDOW != 0;

    FA_DEVICE void start(const Params &, const Shared &) {}

    // Of a consumer, which fetches its queries before it asks for the tile.
    struct Schedule {
        int steps;

        __device__ __forceinline__ Schedule(const Params &a, const Shared &shared) : steps(a.tile.steps) {
            fetch_queries(a.p, shared, a.tile, threadIdx.x / kGroup - 1);
        }
        __device__ __forceinline__ Tile next(const Params &a) {
            Tile tile = a.tile;
            tile.steps = steps;
            steps = -1;
            return tile;
        }
    };

    // ---- copies

    FA_DEVICE void fetch_queries(const fa_attn_serving_params &p, const Shared &shared, const Tile &w, u32 group) {
        constexpr u32 kChunks = kD / 8, kOfSlab = kSlab / 8;   // 16-byte chunks of a row, of a row of a slab
#pragma unroll 4
        for (u32 i = threadIdx.x % kGroup; i < 64 * kChunks; i += kGroup) {
            const u32 at = i / kChunks, chunk = i % kChunks, row = group * 64 + at, swizzle = kSlab == 64 ? at & 7 : (at >> 1) & 3;
            const bool ok = (int)row < w.rows && chunk * 8 < HEAD_DIM;
            const u16 *from = (const u16 *)p.dense.q + w.sequence.q + w.head((int)row) * p.dense.q_head_stride +
                              w.query((int)row) * p.dense.q_row_stride + chunk * 8;
            cp_async_16_zfill(shared.q(group, 0) + chunk / kOfSlab * (64 * kSlab * 2) + at * (kSlab * 2) + ((chunk % kOfSlab ^ swizzle) << 4),
                              from, ok ? 16 : 0);
        }
        cp_async_commit();
        cp_async_wait<0>();
        async_proxy_fence();
        named_sync(kTurn + kGroups + group, kGroup);
        if (threadIdx.x % kGroup == 0) barrier_arrive(shared.barrier(kQFull + group));
    }

    using Place = BoxPlace<kBoxes>;
    struct Source {
        int head;
        u64 hint;      // keys that one block alone reads leave the L2 first
        Place place;   // of the step that is fetched, asked for a step ahead
    };
    FA_DEVICE Place find_place(const Params &a, int first, int step) {
        return find_boxes<kBoxes, kBox>(a.p, a.tile, first, a.tile.begin + step * kN);
    }
    FA_DEVICE Place locate(const Params &, const Source &source, int) { return source.place; }
    FA_DEVICE void load(const fa_tensor_map *map, u32 to, u32 barrier, int column, const Place &place, const Source &source) {
#pragma unroll
        for (int i = 0; i < kBoxes; ++i)
            tma_load(to + i * (kBox * kSlab * 2), map, barrier, column, place.row[i], source.head, place.block[i], source.hint);
    }

    // One thread fetches K, one V.
    FA_DEVICE void produce(const Params &a, const fa_attn_tensor_maps &maps, const Shared &shared) {
        if (threadIdx.x != 0 && threadIdx.x != kWarp || a.tile.steps <= 0) return;
        const int first = LENGTHS_K == 1 && PAGED == 0 ? load_int(a.p.cu_seqlens_k + a.tile.batch) : 0;   // of the sequence, in the tensor
        Ring ring;
        const bool once = a.p.dense.seq_q * a.tile.group <= kM;
        Source source = {a.tile.kv_head, once ? kEvictFirst : kEvictLast, find_place(a, first, a.tile.steps - 1)};
#pragma unroll 1
        for (int step = a.tile.steps - 1; step >= 0; --step) {
            const Source now = source;
            if (step > 0) source.place = find_place(a, first, step - 1);
            if (threadIdx.x == 0) fetch_tile<Part, kSlabs>(a, shared, &maps.k, shared.k(ring.slot), kKFull, kKEmpty, ring, now, step);
            else                  fetch_tile<Part, kOutSlabs>(a, shared, &maps.v, shared.v(ring.slot), kVFull, kVEmpty, ring, now, step);
        }
    }

    // ---- scores

    struct Own {
        int steps;                     // some row sees keys of the steps [0, steps)
        int clear_from, clear_steps;   // every row sees those of the steps [clear_from, clear_steps) whole
    };
    FA_DEVICE int end_of(const Params &a, const Tile &w, int row) {
        const int end = end_key(a.p, w.sequence, w.query(row));
        return end < w.end ? end : w.end;
    }
    FA_DEVICE Own find_own(const Params &a, const Tile &w, u32 group) {
        const int row = (int)group * 64, last = (row + 64 < w.rows ? row + 64 : w.rows) - 1;
        if (w.steps <= 0 || row > last) return {0, 0, 0};
        const int seen = end_of(a, w, last) - w.begin, clear = end_of(a, w, row) - w.begin;
        const int hidden = WINDOW != 0 ? first_key(a.p, w.sequence, w.query(last)) - w.begin : 0;
        return {seen > 0 ? (seen + kN - 1) / kN : 0, hidden > 0 ? (hidden + kN - 1) / kN : 0, clear > 0 ? clear / kN : 0};
    }
    FA_DEVICE int first_step(const Own &) { return 0; }
    FA_DEVICE bool is_masked(const Own &own, int step) { return step >= own.clear_steps || (WINDOW != 0 && step < own.clear_from); }

    FA_DEVICE void mask(Scores &s, const Params &a, const Tile &w, int row, int key) {
        const int from = w.begin + key;
        Wgmma<kN>::mask(s, end_of(a, w, row) - from, end_of(a, w, row + 8) - from);
        if constexpr (WINDOW != 0) {
            const int begin[2] = {first_key(a.p, w.sequence, w.query(row)) - from, first_key(a.p, w.sequence, w.query(row + 8)) - from};
#pragma unroll
            for (int i = 0; i < kScores; ++i)
                if (i / 4 * 8 + i % 2 < begin[i % 4 / 2]) s[i] = neg_infinity();
        }
    }

    // Rows behind the part's end become zeros, in the step where it ends. Every consumer does so for itself: what another one writes
    // there are zeros too.
    FA_DEVICE void clean(const Feed &feed, const Tile &w, int step) {
        if constexpr (LENGTHS_K == 0 && PAGED == 0) return;
        const int first = w.end - w.begin - step * kN;
        if (first >= kN) return;
        feed.wait_v();
        constexpr int kChunks = kSlab / 8;
        const u32 values = feed.shared.v(feed.v_ring.slot);
        for (int i = first * kChunks + (int)(threadIdx.x % kGroup); i < kN * kChunks; i += kGroup)
#pragma unroll
            for (int slab = 0; slab < kOutSlabs; ++slab)
                store_shared(values + slab * (kN * kSlab * 2) + i * 16, 0, 0, 0, 0);
        async_proxy_fence();
        named_sync(kTurn + kGroups + feed.group, kGroup);
    }

    // ---- output

    // The rows are complete: what O is multiplied by, and their LSE; or what the second kernel needs of them.
    FA_DEVICE void finish(const Params &a, const Tile &w, const Rows &rows, float (&factor)[2], int lane_row) {
        const u32 parts = w.parts();
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = lane_row + half * 8;
            const Total total = {rows.reference[half], quad_sum(rows.sum[half])};
            const bool writes = row < w.rows && threadIdx.x % 4 == 0;
            factor[half] = 1.0f;
            if (parts > 1) {
                if (writes) store_floats(Partials(a.p, w, gridDim.y).sums + ((u64)w.part * kM + row) * 2, {total.reference, total.sum});
            } else if (row < w.rows) {
                const Closed end = close_row(a.p, w.batch, w.kv_head, w.head(row), total);
                factor[half] = end.inverse;
                if (writes && a.p.dense.lse) a.p.dense.lse[w.sequence.lse + w.head(row) * w.sequence.lse_head + w.query(row)] = end.lse;
            }
        }
    }
};

// Rows of the output as they are for the second kernel, or rounded: rows of several heads, which no box holds.
template <>
__device__ __forceinline__ void store_output<Part>(const Part::Params &a, const fa_attn_tensor_maps &, const Shared &, const Tile &w,
                                                   const Output &o, u32 group) {
    const fa_attn_params &d = a.p.dense;
    const u32 parts = w.parts();
    const int pair = (int)threadIdx.x % 4, first = (int)(group * 64 + threadIdx.x % kGroup / kWarp * 16 + threadIdx.x % kWarp / 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = first + half * 8;
        if (parts > 1) {
            float *to = Partials(a.p, w, gridDim.y).rows + ((u64)w.part * kM + row) * HEAD_DIM_V + pair * 2;
#pragma unroll
            for (int j = 0; j < kOutputs / 4; ++j)
                if (row < w.rows && j * 8 < HEAD_DIM_V) store_floats(to + j * 8, {o[4 * j + half * 2], o[4 * j + half * 2 + 1]});
            continue;
        }
        // Of 16 columns a pair of threads exchanges what lets each store four.
        u16 *to = (u16 *)d.o + w.sequence.o + w.head(row) * d.o_head_stride + w.query(row) * d.o_row_stride + pair % 2 * 8 + pair / 2 * 4;
#pragma unroll
        for (int j = 0; j < kOutputs / 4; j += 2) {
            const u32 low = pack2<kBf16>(o[4 * j + half * 2], o[4 * j + half * 2 + 1]);
            const u32 high = pack2<kBf16>(o[4 * j + half * 2 + 4], o[4 * j + half * 2 + 5]);
            const bool odd = pair % 2 != 0;
            const u32 other = float_to_bits(shuffle_xor(bits_to_float(odd ? low : high), 1));
            if (row < w.rows && j * 8 + pair % 2 * 8 < HEAD_DIM_V) store_global_8(to + j * 8, odd ? other : low, odd ? high : other);
        }
    }
}

} // namespace

extern "C" __global__ void __launch_bounds__(FA_THREADS, 1)
attn_fwd(const __grid_constant__ fa_attn_serving_params p, const __grid_constant__ fa_attn_tensor_maps maps) {
    Tile w;
    if (!find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y)) return;
    if constexpr (PAGED != 0 && WINDOW != 0) {
        const int back = w.begin % kBox;
        w.begin -= back;
        if (w.part + 1 < w.parts()) w.end -= back;
    }
    w.steps = (w.end - w.begin + kN - 1) / kN;
    let_next_launch_begin();
    run_block<Part>({p, w}, maps);
}

// Adds up the parts of a row: a block for each row of each unit.
extern "C" __global__ void __launch_bounds__(ADD_THREADS)
attn_fwd_add(const __grid_constant__ fa_attn_serving_params p, const __grid_constant__ fa_attn_tensor_maps) {
    Work w;
    const bool exists = find_row(w, p);
    await_launches_before();
    if (exists) add_row(p, w);
}
