// SPDX-License-Identifier: Apache-2.0
//
// Keys of a sequence split into parts, which several blocks take: which part is whose, and how parts add up.
//
// Purpose: what the families for few queries share. The query heads that share a key head, times the queries, are the rows of
// one problem (row r is query r / group, head r % group); a unit is kM of them. Included behind the includer's constants: kBf16,
// kM, kStep (of whose multiples parts are), kPage (PAGED: keys of a page) and kNoKey (the reference of a row without keys).
// Invariants: a part's length follows from numbers that all blocks of a unit know; one without keys is no part.
#ifndef ATTN_SPLIT_CUH
#define ATTN_SPLIT_CUH

#include "attn_serving.cuh"
#include "fa_global.cuh"
#include "fa_shared.cuh"

#ifndef SPLIT_KEYS
#define SPLIT_KEYS 1 /* of a part; BATCH_INVARIANT = 1 */
#endif

namespace {

// What a block works on.
struct Work {
    int batch, kv_head, group;   // group: query heads of a key head
    int row0, rows;              // of its packed rows: the first, and how many of the sequence's exist from there on
    int begin, end;              // keys of its part
    int clear_begin, clear_end;  // keys that every row sees
    u32 part, unit;              // unit: which rows of which head, of all
    u32 seen, length;            // keys that its rows see; of a part
    Sequence sequence;

    // Asked when the first tiles are on their way.
    __device__ __forceinline__ u32 parts() const { return seen > length ? (seen - 1) / length + 1 : 1; }

    __device__ __forceinline__ int query(int row) const { return (int)((u32)(row0 + row) / (u32)group); }
    __device__ __forceinline__ int head(int row) const { return kv_head * group + (int)((u32)(row0 + row) % (u32)group); }
};

// The most keys that the rows of a block may see, as far as the host knows.
FA_DEVICE i64 most_keys(const fa_attn_serving_params &p, int group) {
    const i64 left = window_left(p), right = window_right(p);
    if (left < 0 || right < 0) return p.dense.seq_k;
    const i64 seen = left + right + (kM - 1) / group + 18;   // two queries more than whole groups; 15 keys of rounding
    return seen < p.dense.seq_k ? seen : p.dense.seq_k;
}

// The keys of one part of at most so many of a unit. False: nothing to do.
FA_DEVICE bool find_work(Work &w, const fa_attn_serving_params &p, u32 unit, u32 part, u32 most) {
    const fa_attn_params &d = p.dense;
    w.group = d.heads_q / d.heads_kv;
    const u32 tiles = ((u32)d.seq_q * (u32)w.group + kM - 1) / kM;
    w.unit = unit, w.part = part;
    const u32 head = w.unit / tiles, tile = tiles - 1 - w.unit % tiles;   // the last rows see the most keys
    w.batch = (int)(head / (u32)d.heads_kv), w.kv_head = (int)(head % (u32)d.heads_kv);
    // Numbers of 32 bits, of which division is short: no length is beyond the manifest's limits, nor a part of one.
    u32 length = BATCH_INVARIANT != 0 ? SPLIT_KEYS : ((u32)most_keys(p, w.group) + most - 1) / most;
    if constexpr (PAGED != 0 && WINDOW == 0) {   // the first page's number comes beside the sequence's length, not behind it
        const u32 key = w.part * length;
        if (threadIdx.x == 0 && key < (u32)d.seq_k) prefetch(p.block_table + w.batch * p.block_table_stride + key / kPage);
    }
    w.sequence = find_sequence(p, w.batch);
    const Sequence &s = w.sequence;
    w.row0 = (int)tile * kM;
    w.rows = s.len_q * w.group - w.row0 < kM ? s.len_q * w.group - w.row0 : kM;
    if (w.rows <= 0) return false;

    const int first = w.query(0), last = w.query(w.rows - 1);
    const int begin = first_key(p, s, first) & ~15, end = end_key(p, s, last);
    w.clear_begin = first_key(p, s, last), w.clear_end = end_key(p, s, first);
    w.seen = end > begin ? (u32)(end - begin) : 0;
    length = length * most < w.seen ? (w.seen + most - 1) / most : length;
    w.length = (length + kStep - 1) / kStep * kStep;
    const u32 before = w.part * w.length;
    if (w.part > 0 && before >= w.seen) return false;
    w.begin = begin + (int)before;
    w.end = w.begin + (int)(w.length < w.seen - before ? w.length : w.seen - before);
    return true;
}

// Where the boxes of a tile of keys lie that the copy engine fetches: rows of the tensor, or of pages.
template <int kBoxes> struct BoxPlace {
    int row[kBoxes], block[kBoxes];   // block: sequence or page; -1: there is none, and the copy engine writes zeros
};
// first: the sequence's first key in the tensor.
template <int kBoxes, int kBox> FA_DEVICE BoxPlace<kBoxes> find_boxes(const fa_attn_serving_params &p, const Work &w, int first, int key) {
    BoxPlace<kBoxes> place;
    if constexpr (PAGED != 0) {
        const int *table = p.block_table + w.batch * p.block_table_stride;
#pragma unroll
        for (int i = 0; i < kBoxes; ++i) {
            const int its_key = key + i * kBox;
            place.row[i] = (int)((u32)its_key % kPage);
            place.block[i] = its_key < w.end ? load_int(table + (u32)its_key / kPage) : -1;
        }
    } else {
        place.row[0] = first + key;
        place.block[0] = LENGTHS_K == 1 ? 0 : w.batch;
    }
    return place;
}

// Four columns of a row over the groups of a block, and the row's total. The groups' accumulators lie in shared memory, [group][row][kPitch] floats,
// and behind them {reference, sum} [group][row].
template <int kGroups, int kPitch> FA_DEVICE Total gather_groups(float (&x)[4], u32 from, u32 row, u32 column) {
    float state[kGroups][2];
    Total total = {kNoKey, 0.0f};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
        load_shared(state[g][0], state[g][1], from + kGroups * kM * kPitch * 4 + (g * kM + row) * 8);
        total.reference = max2(total.reference, state[g][0]);
    }
    x[0] = x[1] = x[2] = x[3] = 0.0f;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
        const float weight = exp2_fast(state[g][0] - total.reference);
        float y[4];
        load_shared(y, from + ((g * kM + row) * kPitch + column) * 4);
        total.sum += state[g][1] * weight;
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] += y[e] * weight;
    }
    return total;
}

// Divides by the sum (with the sink's share), rounds and stores four columns of a row; the LSE beside the first.
FA_DEVICE void store_final(const fa_attn_serving_params &p, const Work &w, float (&x)[4], Total total, u32 row, u32 column) {
    const fa_attn_params &d = p.dense;
    const int head = w.head((int)row), query = w.query((int)row);
    const Closed row_end = close_row(p, w.batch, w.kv_head, head, total);
    const float inverse = row_end.inverse;
    u16 *to = (u16 *)d.o + w.sequence.o + head * d.o_head_stride + query * d.o_row_stride + column;
    store_global_8(to, pack2<kBf16>(x[0] * inverse, x[1] * inverse), pack2<kBf16>(x[2] * inverse, x[3] * inverse));
    if (d.lse && column == 0)
        d.lse[w.sequence.lse + head * w.sequence.lse_head + query] = row_end.lse;
}

// Where the parts of a unit lie: {reference, sum} and the accumulators [unit][part][row].
struct Partials {
    float *sums, *rows;   // of this unit's part 0

    // Of a grid that has all units along x, and of at most so many parts.
    __device__ __forceinline__ Partials(const fa_attn_serving_params &p, const Work &w, u32 most) {
        const u64 units = gridDim.x, before = (u64)w.unit * most * kM;
        sums = (float *)p.workspace + before * 2;
        rows = (float *)p.workspace + units * most * kM * 2 + before * HEAD_DIM_V;
    }
};

// Adds up four columns of a row over its parts, in their order; kBatch at a time, so that their loads overlap.
template <u32 kBatch>
FA_DEVICE Total add_parts(float (&x)[4], const Partials &partials, u32 row, u32 column, u32 parts) {
    Total total = {kNoKey, 0.0f};
    x[0] = x[1] = x[2] = x[3] = 0.0f;
    for (u32 part0 = 0; part0 < parts; part0 += kBatch) {
        float state[kBatch][2], y[kBatch][4];
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            const u64 at = (u64)(part0 + i) * kM + row;
            state[i][0] = kNoKey, state[i][1] = y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0.0f;
            if (part0 + i < parts) {
                load_floats(state[i], partials.sums + at * 2);
                load_floats(y[i], partials.rows + at * HEAD_DIM_V + column);
            }
        }
        float raised = total.reference;
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) raised = max2(raised, state[i][0]);
        const float shrink = exp2_fast(total.reference - raised);
        total = {raised, total.sum * shrink};
#pragma unroll
        for (int e = 0; e < 4; ++e) x[e] *= shrink;
#pragma unroll
        for (u32 i = 0; i < kBatch; ++i) {
            const float weight = exp2_fast(state[i][0] - raised);
            total.sum += state[i][1] * weight;
#pragma unroll
            for (int e = 0; e < 4; ++e) x[e] += y[i][e] * weight;
        }
    }
    return total;
}

// For a launch of a block for each row of each unit, of a thread for four columns: whether a thread has some whose parts are to be added up.
FA_DEVICE bool find_row(Work &w, const fa_attn_serving_params &p) {
    return find_work(w, p, blockIdx.x, 0, (u32)p.splits) && (int)blockIdx.y < w.rows && threadIdx.x * 4 < HEAD_DIM_V && w.parts() > 1;
}
FA_DEVICE void add_row(const fa_attn_serving_params &p, const Work &w) {
    const u32 row = blockIdx.y, column = threadIdx.x * 4;
    float x[4];
    const Total total = add_parts<16>(x, Partials(p, w, (u32)p.splits), row, column, w.parts());
    store_final(p, w, x, total, row, column);
}

}  // namespace

#endif
