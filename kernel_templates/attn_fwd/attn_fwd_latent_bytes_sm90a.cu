// SPDX-License-Identifier: Apache-2.0
//
// Decoding of multi-head latent attention over rows of fp8_ds_mla on Hopper (sm_90a): bulk copies, and wgmma whose keys and values
// are widened in registers.
//
// Purpose: O = softmax(scale * Q K^T) V of keys that many query heads share. A key is 656 bytes: 512 numbers of e4m3, an fp32
// scale for each 128 of them, 64 numbers of bf16; its first 512 numbers are its value, too.
// Workload: a block takes kM packed rows (attn_split.cuh) and one part of the keys they see, kN at a time. One warp fetches a
// tile's bytes as they are; `score` computes S^T = K Q^T, the softmax, and hands P^T over through shared memory; two warpgroups of
// `collect` compute O^T += V^T P^T, a half of the columns each. Of both products the tile is the operand in registers, so that no
// widened number passes through shared memory. With several parts a second kernel adds up.
// Invariants:
//  - shared memory is Q^T, then STAGES tiles of bytes, then two places of what is handed over, then what `score` exchanges, then the
//    barriers. Rows of Q^T are columns of Q, 128 bytes each, swizzled: those that are multiplied with bytes in the order in which
//    `spread` finds them.
//  - a number is the product of two numbers of bf16, its own and its scale's, rounded to bf16, here times 2^-kRaise, which leaves
//    room for large scales: scores and output are multiplied by 2^kRaise, and the queries' last columns by 2^-kRaise.
//  - keys behind a part's end are masked, and have scales of 0: what lies there is finite whatever it is.
//  - a row's reference is the largest score of the part's first tile that it sees, and is raised when a score is kSlack above it.
//    All warps of `score` agree on that, since each has other keys.
#include "attn_serving_params.h"
#include "fa_async.cuh"
#include "fa_e4m3.cuh"
#include "fa_mma.cuh"
#include "fa_tma_device.cuh"
#include "fa_wgmma.cuh"

namespace {

constexpr bool kBf16 = true;
constexpr int kM = BLOCK_M, kN = BLOCK_N, kStep = kN, kStages = STAGES, kPlaces = 2;
constexpr int kScores = kN / 2;   // accumulators of a thread
FA_DEVICE constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
constexpr int kPage = PAGED != 0 ? PAGE_SIZE : 1;
constexpr int kBox = PAGED != 0 ? common_divisor(kPage, kN) : kN, kBoxes = kN / kBox;   // keys that lie in one page; of a tile

constexpr int kRowBytes = FA_DS_MLA_BYTES;
constexpr u32 kWarp = 32, kGroup = 128;
constexpr u32 kSlabBytes = 64 * 128, kQBytes = HEAD_DIM * kM * 2, kTileBytes = kN * kRowBytes;
constexpr u32 kProbBytes = kN * kM * 2, kScaleBytes = 4 * kN * 2, kFactorBytes = kM * 4, kPlaceBytes = kProbBytes + kScaleBytes + kFactorBytes + 256;
constexpr u32 kTopBytes = 4 * kM * 4, kEndBytes = kM * 4, kFlagBytes = 32, kBarrierBytes = 128;
static_assert(FA_SMEM_BYTES == kQBytes + kStages * kTileBytes + kPlaces * kPlaceBytes + kTopBytes + kEndBytes + kFlagBytes + kBarrierBytes, "shared memory differs from the manifest");
static_assert(FA_THREADS == 512 && kM == 64 && kN == 64 && V_IN_K == 1 && ALIGNED == 1 && KV_FP8 == 2 && DTYPE_BF16 == 1 && HEAD_DIM == 576 &&
              HEAD_DIM_V == 512 && kBox % 16 == 0, "the problem is not what this is for");

} // namespace

#include "attn_softmax_wgmma.cuh"
#include "attn_split.cuh"

namespace {

constexpr int kOwn = kM / 4;   // of the block's rows, which are columns here, those of which a thread has scores: 8 * j + 2 * t + e
using Own = float[kOwn];
enum Named { kAll, kQueries, kAgreed };   // named barriers

// Powers of two: pairs of bf16, and floats. e4m3's bits read as bf16 are 2^-120 of the number.
constexpr u32 kScaleBy = 0x67806780, kQueryBy = 0x2b802b80;   // 2^(120 - kRaise), 2^-kRaise; kRaise = 40
constexpr float kRaised = 1099511627776.0f;                   // 2^kRaise

struct Shared {
    u32 base;

    __device__ __forceinline__ u32 q() const { return base; }
    __device__ __forceinline__ u32 tile(int step) const { return base + kQBytes + (u32)step % kStages * kTileBytes; }
    // A place: P^T, 128 bytes a key; scales of the keys, pairs of bf16; what the rows of O are to be multiplied by, and whether they are.
    __device__ __forceinline__ u32 probs(int step) const { return base + kQBytes + kStages * kTileBytes + (u32)step % kPlaces * kProbBytes; }
    __device__ __forceinline__ u32 scales(int step) const { return probs(0) + kPlaces * kProbBytes + (u32)step % kPlaces * (kPlaceBytes - kProbBytes); }
    __device__ __forceinline__ u32 factors(int step) const { return scales(step) + kScaleBytes; }
    __device__ __forceinline__ u32 grown(int step) const { return factors(step) + kFactorBytes; }
    __device__ __forceinline__ u32 tops() const { return scales(0) + kPlaces * (kPlaceBytes - kProbBytes); }
    __device__ __forceinline__ u32 ends() const { return tops() + kTopBytes; }
    __device__ __forceinline__ u32 flags(int step) const { return ends() + kEndBytes + (u32)step % 2 * 16; }
    __device__ __forceinline__ u32 barrier(u32 which) const { return ends() + kEndBytes + kFlagBytes + which * 8; }
    __device__ __forceinline__ u32 full(int step) const { return barrier((u32)step % kStages); }
    __device__ __forceinline__ u32 empty(int step) const { return barrier(kStages + (u32)step % kStages); }
    __device__ __forceinline__ u32 handed(int step) const { return barrier(2 * kStages + (u32)step % kPlaces); }
    __device__ __forceinline__ u32 taken(int step) const { return barrier(2 * kStages + kPlaces + (u32)step % kPlaces); }
};
static_assert((2 * kStages + 2 * kPlaces) * 8 <= kBarrierBytes, "more barriers than they have room");
FA_DEVICE u32 parity_of(int step) { return (u32)(step / kStages) & 1; }
FA_DEVICE u32 place_parity(int step) { return (u32)(step / kPlaces) & 1; }
FA_DEVICE void arrive_of_warp(u32 barrier) {
    if (threadIdx.x % kWarp == 0) barrier_arrive(barrier);
}

FA_DEVICE void load_bytes(u32 (&x)[4], const void *from) {
    asm volatile("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
}

constexpr u32 kEven = 0xa280, kOdd = 0xb391;   // selectors of bytes

// ---- copies ----------------------------------------------------------------------------------------------------

// One warp fetches all tiles, tiles before they are wanted. Rows that lie behind one another, as those of one head do,
// are one copy a page; keys of pages that there are not are zeros.
FA_DEVICE void fetch(const fa_attn_serving_params &p, const Shared &shared, const Work &w) {
    const u32 lane = threadIdx.x;
    const char *keys = (const char *)p.dense.k + w.sequence.k + w.kv_head * p.dense.k_head_stride;
    const i64 row = p.dense.k_row_stride, page = p.dense.k_batch_stride;
    const int *table = p.block_table + (PAGED != 0 ? w.batch * p.block_table_stride : 0);
    const int box_key = (int)(lane < kBoxes ? lane : 0) * kBox;
#pragma unroll 1
    for (int step = 0, key = w.begin; key < w.end; ++step, key += kN) {
        const int its_key = key + box_key, left = w.end - its_key;
        const int in = PAGED != 0 && left > 0 ? load_int(table + (u32)its_key / kPage) : 0;
        const int wanted = lane < kBoxes && left > 0 ? left < kBox ? left : kBox : 0;
        const int count = PAGED == 0 || (u32)in < (u32)p.num_pages ? wanted : 0;
        const char *from = keys + (PAGED != 0 ? (count > 0 ? in : 0) * page + (u32)its_key % kPage * row : its_key * row);
        barrier_wait(shared.empty(step), parity_of(step) ^ 1);
        int all = 0;
#pragma unroll
        for (int i = 0; i < kBoxes; ++i) {
            all += from_lane(count, i);
            if (PAGED != 0 && from_lane(wanted - count, i) > 0) {
                for (u32 j = lane; j < kBox * kRowBytes / 16; j += kWarp) store_shared(shared.tile(step) + i * (kBox * kRowBytes) + j * 16, 0, 0, 0, 0);
                async_proxy_fence();
            }
        }
        warp_sync();
        if (lane == 0) barrier_expect(shared.full(step), (u32)all * kRowBytes);
        warp_sync();
        if (row == kRowBytes) {
            if (count > 0) bulk_load(shared.tile(step) + box_key * kRowBytes, from, (u32)count * kRowBytes, shared.full(step));
        } else {
            for (int i = 0; i < count; ++i, from += row) bulk_load(shared.tile(step) + (box_key + i) * kRowBytes, from, kRowBytes, shared.full(step));
        }
    }
}

// Q^T: the other warpgroups turn eight columns of two rows at a time, a lane for each two rows.
FA_DEVICE void fetch_queries(const fa_attn_serving_params &p, const Shared &shared, const Work &w) {
    constexpr u32 kWarps = 3 * kGroup / kWarp;
    const u32 lane = threadIdx.x % kWarp;
    const u16 *from[2];
    bool ok[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int row = (int)lane * 2 + i;
        ok[i] = row < w.rows;
        from[i] = (const u16 *)p.dense.q + w.sequence.q + (ok[i] ? w.head(row) * p.dense.q_head_stride + w.query(row) * p.dense.q_row_stride : 0);
    }
#pragma unroll 3
    for (u32 turn = 0; turn < HEAD_DIM / 8 / kWarps; ++turn) {
        const u32 chunk = turn * kWarps + (threadIdx.x - kGroup) / kWarp;
        u32 x[2][4] = {};
#pragma unroll
        for (int i = 0; i < 2; ++i)
            if (ok[i]) load_bytes(x[i], from[i] + chunk * 8);
        const bool rope = chunk >= HEAD_DIM_V / 8;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            // Of 16 columns those of bytes 4 * t + {0, 2} are at 2 * t + {0, 1}, and of {1, 3} eight behind.
            const u32 c = chunk % 2 * 8 + i, at = chunk / 2 * 16 + (rope ? c : c % 2 * 8 + c / 4 * 2 + c / 2 % 2);
            u32 pair = i % 2 == 0 ? pick_bytes<0x5410>(x[0][i / 2], x[1][i / 2]) : pick_bytes<0x7632>(x[0][i / 2], x[1][i / 2]);
            if (rope) pair = multiply_pair(pair, kQueryBy);
            store_shared(shared.q() + at * 128 + ((lane / 4 ^ at % 8) << 4) + lane % 4 * 4, pair);
        }
    }
    const u32 thread = threadIdx.x - kGroup;
    if (thread < kM) store_shared(shared.ends() + thread * 4, (u32)((int)thread < w.rows ? end_key(p, w.sequence, w.query((int)thread)) : w.end));
    async_proxy_fence();
    named_sync(kQueries, 3 * kGroup);
}

// ---- scores ----------------------------------------------------------------------------------------------------

FA_DEVICE u32 own_key() { return threadIdx.x % kGroup / kWarp * 16 + threadIdx.x % kWarp / 4; }   // of a tile, and the eighth behind it
FA_DEVICE u32 first_own() { return threadIdx.x % 4 * 2; }

// A key's scale as it multiplies, a pair of one number. 0: no such key.
FA_DEVICE u32 scale_of(u32 bits, bool exists) {
    return exists ? multiply_pair(pack2<true>(bits_to_float(bits), bits_to_float(bits)), kScaleBy) : 0;
}
// Of keys g and g + 8 of the warp's, of each 128 columns.
using Scales = u32[4][2];
FA_DEVICE void find_scales(Scales &scales, u32 tile, int count) {
    const u32 key = own_key();
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        u32 x[4];
        load_shared(x, tile + (key + half * 8) * kRowBytes + FA_DS_MLA_SCALES);
#pragma unroll
        for (int i = 0; i < 4; ++i) scales[i][half] = scale_of(x[i], (int)key + half * 8 < count);
    }
}

// S += A B of 32 columns, left under way beside those before.
FA_DEVICE void issue_32(Scores &s, const u32 (&a)[8], u64 b, bool adds) {
    wgmma_fence();
    Wgmma<kM>::multiply(s, a, b, adds);
    Wgmma<kM>::multiply(s, a + 4, b + 128, true);
    wgmma_commit();
    wgmma_wait<1>();
}

// S^T = K Q^T of a tile, 32 columns at a time, the last ones first.
FA_DEVICE void multiply_keys(Scores &s, const Shared &shared, int step, const Scales &scales) {
    const u64 q = wgmma_descriptor<64>((u32)uniform((int)shared.q()), kSlabBytes);
    const u32 lane = threadIdx.x % kWarp, at = shared.tile(step) + (threadIdx.x % kGroup / kWarp * 16 + lane % 16) * kRowBytes + lane / 16 * 16;
    u32 a[2][8], four[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) ldmatrix_x4(*(u32(*)[4])&a[i][4 * j], at + FA_DS_MLA_ROPE + i * 64 + j * 32);
        if (i > 0) ldmatrix_x4(four[0], at);
        issue_32(s, a[i], q + (16 + i) * 256, i > 0);
    }
#pragma unroll
    for (int i = 0; i < 16; ++i) {
        if (i == LAG && step > 0) arrive_of_warp(shared.handed(step - 1));
        if (i < 15) ldmatrix_x4(four[(i + 1) % 2], at + (i + 1) * 32);
#pragma unroll
        for (int j = 0; j < 4; ++j) {   // j % 2: keys g, or g + 8; j / 2: which 16 columns
            a[i % 2][j / 2 * 4 + j % 2] = multiply_pair(spread_e4m3<kEven>(four[i % 2][j]), scales[i / 4][j % 2]);
            a[i % 2][j / 2 * 4 + j % 2 + 2] = multiply_pair(spread_e4m3<kOdd>(four[i % 2][j]), scales[i / 4][j % 2]);
        }
        issue_32(s, a[i % 2], q + i * 256, true);
    }
    wgmma_wait<0>();
    Wgmma<kM>::pin(s);
}

// Keys that a row does not see become -inf.
FA_DEVICE void apply_mask(Scores &s, const Shared &shared, const Work &w, int step) {
    const int key = w.begin + step * kN;
    if (key + kN <= w.clear_end && key + kN <= w.end) return;
    const int own = key + (int)own_key();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int seen = load_shared<int>(shared.ends() + (first_own() + i / 2 * 8 + i % 2) * 4), end = seen < w.end ? seen : w.end;
#pragma unroll
        for (int half = 0; half < 2; ++half)
            if (own + half * 8 >= end) s[i / 2 * 4 + half * 2 + i % 2] = neg_infinity();
    }
}

// The largest score of each row of the block in all warps' keys, above the row's reference.
FA_DEVICE void find_tops(Own &top, const Scores &s, const Shared &shared) {
    const u32 at = shared.tops() + first_own() * 4;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        top[i] = max2(s[i / 2 * 4 + i % 2], s[i / 2 * 4 + 2 + i % 2]);
#pragma unroll
        for (int apart = 4; apart < 32; apart *= 2) top[i] = max2(top[i], shuffle_xor(top[i], apart));
    }
#pragma unroll
    for (int i = 0; i < kOwn; i += 2)
        if (threadIdx.x % kWarp < 4) store_shared(at + threadIdx.x % kGroup / kWarp * (kM * 4) + i * 16, top[i], top[i + 1]);
    named_sync(kAgreed, kGroup);
#pragma unroll 1
    for (int warp = 0; warp < 4; ++warp)
#pragma unroll
        for (int i = 0; i < kOwn; i += 2) {
            float x, y;
            load_shared(x, y, at + warp * (kM * 4) + i * 16);
            top[i] = max2(top[i], x), top[i + 1] = max2(top[i + 1], y);
        }
}

// Scores, scaled and above their rows' references, are raised where one is kSlack above. True: they were.
FA_DEVICE bool raise(Scores &s, Own &reference, Own &sum, const Shared &shared, int step) {
    int highest = kAnyScore;
#pragma unroll
    for (int i = 0; i < kScores; i += 2) highest = max3(highest, (int)float_to_bits(s[i]), (int)float_to_bits(s[i + 1]));
    const bool far = warp_any(highest > 0x41000000 || step == 0);   // 8
    if (threadIdx.x % kWarp == 0) store_shared(shared.flags(step) + threadIdx.x % kGroup / kWarp * 4, (u32)far);
    named_sync(kAgreed, kGroup);
    u32 flags[4];
    load_shared(flags, shared.flags(step));
    if ((flags[0] | flags[1] | flags[2] | flags[3]) == 0) return false;
    Own by;
    find_tops(by, s, shared);
    const float least = step > 0 ? 0.0f : kNoKey;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        by[i] = max2(by[i], least);
        reference[i] += by[i];
        s[i / 2 * 4 + i % 2] -= by[i], s[i / 2 * 4 + 2 + i % 2] -= by[i];
        by[i] = exp2_fast(-max2(by[i], 0.0f));
        sum[i] *= by[i];
    }
    // By all that have them: they are the same.
#pragma unroll
    for (int i = 0; i < kOwn; i += 2) store_shared(shared.factors(step) + first_own() * 4 + i * 16, by[i], by[i + 1]);
    return true;
}

// P^T and the keys' scales, as `collect` multiplies with them: for 32 keys and 128 columns 16 bytes for each of four lanes.
FA_DEVICE void hand_over(const Shared &shared, const Scores &s, bool grown, int step, int count) {
    const u32 warp = threadIdx.x % kGroup / kWarp, lane = threadIdx.x % kWarp, t = lane % 4, odd = lane / 4 % 2;
    const u32 key = warp * 16 + lane % 16, to = shared.probs(step) + key * 128;
#pragma unroll
    for (int j = 0; j < kM / 8; j += 2)
        stmatrix_x4(to + (((u32)j + lane / 16) ^ key % 8) * 16, pack2<true>(s[4 * j], s[4 * j + 1]), pack2<true>(s[4 * j + 2], s[4 * j + 3]),
                    pack2<true>(s[4 * j + 4], s[4 * j + 5]), pack2<true>(s[4 * j + 6], s[4 * j + 7]));
    u32 scale[2];
#pragma unroll
    for (int half = 0; half < 2; ++half)
        scale[half] = scale_of(load_shared<u32>(shared.tile(step) + (own_key() + half * 8) * kRowBytes + FA_DS_MLA_SCALES + t * 4), (int)own_key() + half * 8 < count);
    const u32 other = float_to_bits(shuffle_xor(bits_to_float(odd ? scale[0] : scale[1]), 4));
    store_shared(shared.scales(step) + ((t * 2 + warp / 2) * 4 + lane / 8) * 16 + (warp % 2 * 2 + odd) * 4,
                 odd ? pick_bytes<0x5410>(other, scale[1]) : pick_bytes<0x5410>(scale[0], other));
    if (threadIdx.x % kGroup == 0) store_shared(shared.grown(step), (u32)grown);
    async_proxy_fence();
    warp_sync();
    arrive_of_warp(shared.empty(step));
}

// What the block works on, asked anew at its end: it would take registers that the products need.
FA_DEVICE Work find_own_work(const fa_attn_serving_params &p) {
    Work w;
    find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y);
    return w;
}

// The rows are complete: what O is multiplied by, and their LSE; or what the second kernel needs of them.
FA_DEVICE void close_rows(const fa_attn_serving_params &p, const Shared &shared, const Own &reference, Own &sum, int steps) {
    const u32 row = threadIdx.x % kGroup;
#pragma unroll
    for (int i = 0; i < kOwn; ++i)
#pragma unroll
        for (int apart = 4; apart < 32; apart *= 2) sum[i] += shuffle_xor(sum[i], apart);
    named_sync(kAgreed, kGroup);   // nobody reads tops any more
#pragma unroll
    for (int i = 0; i < kOwn; i += 2) {
        if (threadIdx.x % kWarp < 4) store_shared(shared.tops() + row / kWarp * (kM * 4) + first_own() * 4 + i * 16, sum[i], sum[i + 1]);
        if (row < 4) store_shared(shared.factors(steps) + first_own() * 4 + i * 16, reference[i], reference[i + 1]);
    }
    named_sync(kAgreed, kGroup);
    const Work w = find_own_work(p);
    if (row < kM) {
        Total total = {load_shared<float>(shared.factors(steps) + row * 4), 0.0f};
#pragma unroll
        for (int warp = 0; warp < 4; ++warp) total.sum += load_shared<float>(shared.tops() + warp * (kM * 4) + row * 4);
        if (total.sum == 0.0f) total.reference = kNoKey;
        float factor = 1.0f;
        if (w.parts() > 1) {
            if ((int)row < w.rows) store_floats(Partials(p, w, gridDim.y).sums + ((u64)w.part * kM + row) * 2, {total.reference, total.sum});
        } else if ((int)row < w.rows) {
            const Closed end = close_row(p, w.batch, w.kv_head, w.head((int)row), total);
            factor = end.inverse;
            if (p.dense.lse) p.dense.lse[w.sequence.lse + w.head((int)row) * w.sequence.lse_head + w.query((int)row)] = end.lse;
        }
        store_shared(shared.factors(steps) + row * 4, factor * kRaised);
    }
    warp_sync();
    arrive_of_warp(shared.handed(steps));
}

FA_DEVICE void score(const fa_attn_serving_params &p, const Shared &shared, const Work &w, int steps) {
    const float scale = find_scale(p, w.batch, w.kv_head).exponent * kRaised;
    Own reference, sum;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) reference[i] = sum[i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        Scores s;
        Scales scales;
        barrier_wait(shared.full(step), parity_of(step));
        const int count = w.end - w.begin - step * kN;
        find_scales(scales, shared.tile(step), count);
        multiply_keys(s, shared, step, scales);
        apply_mask(s, shared, w, step);
#pragma unroll
        for (int i = 0; i < kScores; ++i) s[i] = s[i] * scale - reference[i / 4 * 2 + i % 2];
        barrier_wait(shared.taken(step), place_parity(step) ^ 1);
        const bool grown = raise(s, reference, sum, shared, step);
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
            s[i] = exp2_fast(s[i]);
            sum[i / 4 * 2 + i % 2] += s[i];
        }
        hand_over(shared, s, grown, step, count);
    }
    if (steps > 0) arrive_of_warp(shared.handed(steps - 1));
    barrier_wait(shared.taken(steps), place_parity(steps) ^ 1);
    close_rows(p, shared, reference, sum, steps);
}

// ---- output ----------------------------------------------------------------------------------------------------

// O^T of a half of the columns: of each 64 a warp has 16, and a thread 2 * g and 2 * g + 1 of them.
using Output = float[4][kScores];

FA_DEVICE void scale_rows(Output &o, const Shared &shared, int step) {
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
        float factor[2];
        load_shared(factor[0], factor[1], shared.factors(step) + (first_own() + j * 8) * 4);
#pragma unroll
        for (int c = 0; c < 4; ++c)
#pragma unroll
            for (int e = 0; e < 4; ++e) o[c][4 * j + e] *= factor[e % 2];
    }
}

// O^T += V^T P^T of a tile.
FA_DEVICE void multiply_values(Output &o, const Shared &shared, int step, u32 half) {
    const u32 lane = threadIdx.x % kWarp, at = shared.tile(step) + lane * kRowBytes + half * 256 + threadIdx.x % kGroup / kWarp * 16;
    const u32 scales = shared.scales(step) + half * 256 + lane % 4 * 16;
    const u64 probs = wgmma_descriptor<64>((u32)uniform((int)shared.probs(step)), kProbBytes);
    u32 a[2][8], four[2][4], scale[4];
    ldmatrix_x4_trans(four[0], at);
#pragma unroll
    for (int i = 0; i < 8; ++i) {   // 32 keys of 64 columns
        const int keys = i / 4, c = i % 4;
        if (i % 2 == 0) load_shared(scale, scales + (c / 2 * 2 + keys) * 64);
        if (i < 7) ldmatrix_x4_trans(four[(i + 1) % 2], at + (i + 1) / 4 * (32 * kRowBytes) + (i + 1) % 4 * 64);
#pragma unroll
        for (int j = 0; j < 4; ++j) {   // eight keys
            a[i % 2][2 * j] = multiply_pair(spread_e4m3<kEven>(four[i % 2][j]), scale[j]);
            a[i % 2][2 * j + 1] = multiply_pair(spread_e4m3<kOdd>(four[i % 2][j]), scale[j]);
        }
        issue_32(o[c], a[i % 2], probs + keys * 256, step > 0 || keys > 0);
    }
    wgmma_wait<0>();
#pragma unroll
    for (int c = 0; c < 4; ++c) Wgmma<kM>::pin(o[c]);
}

// As they are for the second kernel, or rounded.
FA_DEVICE void store_rows(const fa_attn_serving_params &p, const Output &o, u32 half) {
    const Work w = find_own_work(p);
    const fa_attn_params &d = p.dense;
    const u32 g = threadIdx.x % kWarp / 4;
    const int column = (int)(half * 256 + threadIdx.x % kGroup / kWarp * 16);
    if (w.parts() > 1) {
        float *to = Partials(p, w, gridDim.y).rows + (u64)w.part * kM * HEAD_DIM_V + column + g * 2;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
            const u32 row = first_own() + i / 2 * 8 + i % 2;
#pragma unroll
            for (int c = 0; c < 4; ++c)
                if ((int)row < w.rows) store_floats(to + row * HEAD_DIM_V + c * 64, {o[c][i / 2 * 4 + i % 2], o[c][i / 2 * 4 + 2 + i % 2]});
        }
        return;
    }
    // Of two rows a pair of threads exchanges what lets each store four columns of one.
#pragma unroll
    for (int j = 0; j < kM / 8; ++j) {
        const int row = (int)(first_own() + j * 8 + g % 2);
        u16 *to = (u16 *)d.o + w.sequence.o + (row < w.rows ? w.head(row) * d.o_head_stride + w.query(row) * d.o_row_stride : 0) + column + g / 2 * 4;
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const u32 first = pack2<true>(o[c][4 * j], o[c][4 * j + 2]), second = pack2<true>(o[c][4 * j + 1], o[c][4 * j + 3]);
            const u32 other = float_to_bits(shuffle_xor(bits_to_float(g % 2 != 0 ? first : second), 4));
            if (row < w.rows) store_global_8(to + c * 64, g % 2 != 0 ? other : first, g % 2 != 0 ? second : other);
        }
    }
}

FA_DEVICE void collect(const fa_attn_serving_params &p, const Shared &shared, int steps, u32 half) {
    Output o;
#pragma unroll
    for (int c = 0; c < 4; ++c)
#pragma unroll
        for (int i = 0; i < kScores; ++i) o[c][i] = 0.0f;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
        barrier_wait(shared.full(step), parity_of(step));
        barrier_wait(shared.handed(step), place_parity(step));
        if (load_shared<u32>(shared.grown(step)) != 0) scale_rows(o, shared, step);
        multiply_values(o, shared, step, half);
        arrive_of_warp(shared.taken(step));
        arrive_of_warp(shared.empty(step));
    }
    barrier_wait(shared.handed(steps), place_parity(steps));
    scale_rows(o, shared, steps);
    store_rows(p, o, half);
}

} // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, 1)
attn_fwd(const __grid_constant__ fa_attn_serving_params p) {
    Work w;
    if (!find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y)) return;
    const Shared shared = {shared_address(shared_memory)};
    if (threadIdx.x == 0) {
        if (shared.base % 1024 != 0) asm volatile("trap;");   // descriptors and swizzles count on it
        for (int i = 0; i < kStages; ++i) barrier_init(shared.full(i), 1), barrier_init(shared.empty(i), 12);
        for (int i = 0; i < kPlaces; ++i) barrier_init(shared.handed(i), 4), barrier_init(shared.taken(i), 8);
        barrier_init_fence();
    }
    named_sync(kAll, FA_THREADS);
    const int steps = (w.end - w.begin + kN - 1) / kN;
    const int group = uniform((int)(threadIdx.x / kGroup));
    let_next_launch_begin();
    if (group == 0) {
        registers_decrease<PRODUCER_REGS>();
        if (threadIdx.x < kWarp) fetch(p, shared, w);
    } else if (group == 1) {
        registers_decrease<SCORE_REGS>();   // a block begins with 128 each
        fetch_queries(p, shared, w);
        score(p, shared, w, steps);
    } else {
        registers_increase<COLLECT_REGS>();
        fetch_queries(p, shared, w);
        collect(p, shared, steps, (u32)group - 2);
    }
}

// Adds up the parts of a row: a block for each row of each unit.
extern "C" __global__ void __launch_bounds__(HEAD_DIM_V / 4)
attn_fwd_add(const __grid_constant__ fa_attn_serving_params p) {
    Work w;
    const bool exists = find_row(w, p);
    await_launches_before();
    if (exists) add_row(p, w);
}
