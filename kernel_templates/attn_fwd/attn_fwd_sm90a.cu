// SPDX-License-Identifier: Apache-2.0
//
// Attention forward for Hopper (sm_90a): TMA, wgmma, one producing warpgroup and GROUPS consuming ones.
//
// Purpose: O = softmax(scale * Q K^T) V with online softmax, fp16 or bf16 in and out, fp32 inside.
// Workload: a tile is BLOCK_M = 64 * GROUPS query rows of one head, or (PACK) of the heads that share keys; each consumer owns 64 of them and walks the keys
// that the tile can see, BLOCK_N at a time, from the last to the first, so that only the first steps meet a mask.
// Invariants: attn_wgmma.cuh's. Whether a block works on one tile or on many is told by the grid.
#include "attn_tiles.cuh"
#include "attn_wgmma.cuh"

extern "C" __constant__ fa_attn_boxes fa_attn_boxes_wanted = {SLAB, kRun, 1, BLOCK_N, BLOCK_N, 16};

namespace {

constexpr bool kCausal = CAUSAL != 0;
constexpr float kLn2 = 0.69314718055994531f;

// ---- which tile, which keys ------------------------------------------------------------------------------------

struct Work {
    int row0, head;   // head: of all batches; of keys where query heads are packed
    int steps;        // of its keys, each BLOCK_N; < 0: there is no more work
};

// What some rows of tiles see.
FA_DEVICE Visible rows_see(const fa_attn_params &p, int row0, int rows) {
    const int first = find_row(p, row0).query;
    return find_visible(p, first, kPacked ? find_row(p, row0 + rows - 1).query - first + 1 : rows, kN);
}
FA_DEVICE Work make_work(const fa_attn_params &p, u32 tile, u32 head) {
    const int row0 = (int)tile * kM;
    return {row0, (int)head, rows_see(p, row0, kM).steps};
}

// The tiles that a block works on, one after another. The manifest sees to it that their numbers fit 31 bits.
struct Schedule {
    const u32 tiles, heads;        // of a head; of all batches
    u32 pairs, section;            // causal: pairs of heads, and how many of the other heads go together
    u32 round = 0;

    __device__ __forceinline__ Schedule(const fa_attn_params &p, const Shared &)
        : tiles((count_rows(p, p.seq_q) + kM - 1) / kM), heads(count_heads(p) * (u32)p.batch) {
        if constexpr (!kCausal) return;
        const u32 last = gridDim.x / tiles > 0 ? gridDim.x / tiles * 2 : 2;
        pairs = heads > last ? (heads - last) / 2 : 0;
        section = heads - pairs * 2;
        if (gridDim.x == tiles * heads) {
            const float fit = L2_SECTION_KB * 1024.0f * reciprocal((float)p.seq_k * (HEAD_DIM * 4)) * (float)heads_a_key(p);
            section = fit < 1.0f ? 1 : fit < (float)section ? (u32)fit : section;
        }
    }

    __device__ __forceinline__ Work next(const fa_attn_params &p) {
        if constexpr (kCausal) return next_causal(p);
        const u32 index = round * gridDim.x + blockIdx.x;
        if (index >= tiles * heads) return {0, 0, -1};
        ++round;
        return make_work(p, index % tiles, index / tiles);
    }

  private:
    // Tiles differ in length. Most heads go two by two: a block takes a tile of one and the tile of the other that is as
    // far from the opposite end, and all such pairs are equally long. The last heads, about two tiles a block, make the
    // finish even: their tiles go singly, longest first, dealt out forth and back. Blocks that run together share heads.
    // With a block for every tile there are no pairs, and sections of heads whose keys and values fit in L2 together.
    __device__ __forceinline__ Work next_causal(const fa_attn_params &p) {
        const u32 paired = pairs * tiles, singles = heads - pairs * 2;
        const u32 turn = round / 2, full = paired / gridDim.x;
        const bool back = turn > full && (turn - full) % 2 == 1;
        const u32 place = turn * gridDim.x + (back ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
        u32 tile, head;
        if (place < paired) {
            const u32 second = round++ % 2;
            tile = place % tiles;
            head = place / tiles * 2 + second;
            if (second == 0) tile = tiles - 1 - tile;
        } else {
            const u32 rest = place - paired;
            if (rest >= singles * tiles) return {0, 0, -1};
            round += 2;
            const u32 first = rest / (section * tiles) * section, within = rest % (section * tiles);
            const u32 here = singles - first < section ? singles - first : section;
            tile = tiles - 1 - within / here;
            head = heads - singles + first + within % here;
        }
        return make_work(p, tile, head);
    }
};
// Dense attention, as attn_wgmma.cuh asks for it.
struct Dense {
    using Params = fa_attn_params;
    using Work = ::Work;
    using Schedule = ::Schedule;
    using Own = Visible;
    using Curve = Line;
    struct Source {
        int head, batch;
    };
    struct Queries {
        int row0, head, batch;
    };
    static constexpr bool kMasksLater = kCausal, kLastPartFirst = false;

    FA_DEVICE void start(const Params &, const Shared &) {}
    FA_DEVICE Curve find_curve(const Params &p) { return {p.softmax_scale_log2}; }

    FA_DEVICE void produce(const Params &p, const fa_attn_tensor_maps &maps, const Shared &shared) {
        if (threadIdx.x == 0) produce_all<Dense>(p, maps, shared);
    }
    FA_DEVICE Queries queries_of(const Params &p, const Work &work) {
        const u32 head = (u32)work.head, heads = count_heads(p);
        return {work.row0, (int)(head % heads), (int)(head / heads)};
    }
    FA_DEVICE Source source_of(const Params &p, const Work &work) {
        const Queries queries = queries_of(p, work);
        return {queries.head / heads_a_key(p), queries.batch};
    }
    FA_DEVICE int locate(const Params &, const Source &, int step) { return step * kN; }
    FA_DEVICE void load(const fa_tensor_map *map, u32 to, u32 barrier, int column, int row, const Source &source) {
        tma_load(to, map, barrier, column, row, source.head, source.batch, kEvictLast);
    }
    FA_DEVICE void load_q(const Params &p, const fa_tensor_map *map, u32 to, u32 barrier, int column, int row, const Queries &queries) {
        const Row at = find_row(p, queries.row0 + row);
        tma_load(to, map, barrier, column, at.query, queries.head * (int)packed_heads(p) + at.head, queries.batch, kEvictFirst);
    }

    // The steps of a tile that this consumer's rows see.
    FA_DEVICE Own find_own(const Params &p, const Work &work, u32 group) {
        const int row0 = work.row0 + (int)group * 64;
        Own own = rows_see(p, row0, 64);
        if (find_row(p, row0).query >= p.seq_q) own.steps = 0;
        return own;
    }
    FA_DEVICE int first_step(const Own &) { return 0; }
    FA_DEVICE bool is_masked(const Own &own, int step) { return step >= own.clear_steps; }
    // Scores of keys that a row must not see become -inf.
    FA_DEVICE void mask(Scores &s, const Params &p, const Work &work, int row, int key) {
        const int query = find_row(p, work.row0 + row).query;
        Wgmma<kN>::mask(s, keys_seen_from(p, query, key), keys_seen_from(p, query + 8, key));
    }
    FA_DEVICE void clean(const Feed &, const Work &, int) {}

    // The rows are complete: what their outputs are divided by, and their LSE.
    FA_DEVICE void finish(const Params &p, const Work &work, const Rows &rows, float (&inverse)[2], int lane_row) {
        const Row at = find_row(p, work.row0 + lane_row);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const float sum = quad_sum(rows.sum[half]);
            inverse[half] = sum == 0.0f ? 0.0f : reciprocal(sum);   // NaN stays NaN
            const int row = at.query + half * 8;
            if (p.lse && threadIdx.x % 4 == 0 && row < p.seq_q)
                p.lse[(i64)(work.head * (int)packed_heads(p) + at.head) * p.seq_q + row] =
                    sum == 0.0f ? neg_infinity() : (rows.reference[half] + log2_fast(sum)) * kLn2;
        }
    }
    // A warp's slab of output, `row` being its first. Rows that do not exist are dropped by the copy engine.
    FA_DEVICE void let_go(const Params &p, const fa_attn_tensor_maps &maps, const Work &work, u32 stage, int column, int row) {
        const Queries queries = queries_of(p, work);
        if (threadIdx.x % kWarp != 0) return;
        const Row at = find_row(p, queries.row0 + row);
        tma_store(&maps.o, stage, column, at.query, queries.head * (int)packed_heads(p) + at.head, queries.batch, kEvictFirst);
        tma_store_commit();
    }
};

} // namespace

extern "C" __global__ void __launch_bounds__(FA_THREADS, MIN_BLOCKS)
attn_fwd(const __grid_constant__ fa_attn_params p, const __grid_constant__ fa_attn_tensor_maps maps) {
    run_block<Dense>(p, maps);
}
