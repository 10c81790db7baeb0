// SPDX-License-Identifier: Apache-2.0
//
// What the families of attention backward for Hopper (sm_90a) share, beside attn_bwd_tiles.cuh: tensor maps, LSE and delta as a
// consumer's lane reads them, products, masks of scores whose rows are keys.
//
// Includers define what attn_bwd_tiles.cuh wants, with ALIGNED=1.
#ifndef ATTN_BWD_SM90A_CUH
#define ATTN_BWD_SM90A_CUH

#include "fa_tma_device.cuh"
#include "attn_bwd_tiles.cuh"
#include "fa_wgmma.cuh"

namespace {

constexpr int kRowBytes = 128;   // of a slab of 64 columns
constexpr u32 kWarp = 32, kGroup = 128;
constexpr u32 kNoJob = 0xffffffffu;
static_assert(kD % 64 == 0 && kDv % 64 == 0 && ALIGNED == 1, "the heads do not fit their tiles");

FA_DEVICE u32 take_number(u32 *counter) {
    u32 number;
    asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], 1;" : "=r"(number) : "l"(counter) : "memory");
    return number;
}

// As await_launches_before(), and the copy engine, too, may touch it.
FA_DEVICE void await_launches_and_copies_before() {
    await_launches_before();
    global_proxy_fence();
}

// Without sinks the last launch, which writes their gradients, may be left out.
FA_DEVICE void zero_gradients_of_sinks(const fa_attn_bwd_params &p) {
    if (!kSinks && p.d_sinks && blockIdx.x == 0)
        for (u32 h = threadIdx.x; h < p.heads_q; h += kSideThreads) p.d_sinks[h] = 0.0f;
}

// ---- the first and the last launch -----------------------------------------------------------------------------

enum Map { kMapQ, kMapK, kMapV, kMapDo, kMaps };

// Of all batches, or of a sequence, with which copies then end. `box`: rows of a copy.
FA_DEVICE MapShape shape_of(const fa_attn_bwd_params &p, const Sequence &s, int which, int box) {
    const bool queries = which == kMapQ || which == kMapDo, of_v = which == kMapV || which == kMapDo;
    const fa_attn_bwd_strides &strides = which == kMapQ ? p.q_strides : which == kMapK ? p.k_strides : which == kMapV ? p.v_strides : p.d_o_strides;
    const void *base = which == kMapQ ? p.q : which == kMapK ? p.k : which == kMapV ? p.v : p.d_o;
    return {(const u16 *)base + (queries ? s.first_q : s.first_k) * strides.row, of_v ? HEAD_DIM_V : HEAD_DIM, queries ? s.seq_q : s.seq_k,
            queries ? p.heads_q : p.heads_kv, kVarlen ? 1 : p.batch, strides.row, strides.head, strides.batch, box};
}

// Of 16 rows, those that a lane wants of LSE and delta lie beside one another: columns 2t, 2t + 1, 2t + 8 and 2t + 9 of a fragment.
FA_DEVICE int place_of_row(int row) { return (row & ~15) + (row % 8 / 2) * 4 + row % 16 / 8 * 2 + row % 2; }

FA_DEVICE void load_global_16(u32 (&x)[4], const u16 *from) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
}
// Sixteen bytes of two rows, multiplied.
FA_DEVICE float product_of(const u32 (&x)[4], const u32 (&y)[4]) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        sum += to_float<kBf16>((u16)x[i]) * to_float<kBf16>((u16)y[i]);
        sum += to_float<kBf16>((u16)(x[i] >> 16)) * to_float<kBf16>((u16)(y[i] >> 16));
    }
    return sum;
}
// LSE and delta of tile `tile` of a sequence, of head h. kLanes of a warp share a row. All loads go out at once; of a row or columns that
// do not exist, others are read.
FA_DEVICE void prepare_rows(const fa_attn_bwd_params &p, const Workspace &at, const Sequence &s, i64 h, i64 tile) {
    constexpr int kLanes = kDv > 128 ? 32 : kDv / 8, kAtOnce = kSideThreads / kLanes, kRounds = (kM + kAtOnce - 1) / kAtOnce;
    const int column = (int)threadIdx.x % kLanes * 8, first = (int)threadIdx.x / kLanes;
    u32 x[kRounds][4] = {}, y[kRounds][4] = {};
    float said[kRounds] = {};
    if (tile * kM < s.seq_q)
#pragma unroll
        for (int i = 0; i < kRounds; ++i) {
            const i64 row = tile * kM + first + i * kAtOnce, from = s.first_q + (row < s.seq_q ? row : s.seq_q - 1);
            said[i] = p.lse[s.batch * p.lse_strides.batch + h * p.lse_strides.head + from];
            load_global_16(x[i], row_of(p.o, p.o_strides, s.batch, h, from) + (column < HEAD_DIM_V ? column : 0));
            load_global_16(y[i], row_of(p.d_o, p.d_o_strides, s.batch, h, from) + (column < HEAD_DIM_V ? column : 0));
        }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
        const int r = first + i * kAtOnce;
        const i64 row = tile * kM + r;
        float sum = row < s.seq_q && column < HEAD_DIM_V ? product_of(x[i], y[i]) : 0.0f;
#pragma unroll
        for (int mask = kLanes / 2; mask > 0; mask >>= 1) sum += shuffle_xor(sum, mask);
        if (column != 0 || r >= kM) continue;
        if (row >= s.seq_q) said[i] = neg_infinity();
        at.lse[place_of_row(r)] = said[i] == neg_infinity() ? -neg_infinity() : said[i] * kLog2e;
        at.delta[place_of_row(r)] = delta_of(p, s, h, row, sum, said[i]);
    }
}
// The first launch has a block for the tensor maps, one for each sequence, in front of those for tiles of queries.
FA_DEVICE u32 map_blocks(const fa_attn_bwd_params &p) { return kVarlen ? (u32)p.batch : 1; }

// A lane's pairs of two blocks of 8 columns of a row: even lanes write half of the left block, odd lanes half of the right one, at
// column t % 2 * 8 + t / 2 * 4, so that four lanes write 32 bytes of the row together. The whole warp calls it.
FA_DEVICE void store_two_blocks(u16 *to, u32 left, u32 right, bool there) {
    const bool odd = threadIdx.x % 2 != 0;
    const u32 other = shuffle_xor(odd ? left : right, 1);
    if (there) store_global_8(to, odd ? other : left, odd ? right : other);
}

// A gradient of a warp's 16 rows, rounded. `to`: the first one's row; `left`: rows from that one on.
template <int kColumns, int kThere> FA_DEVICE void store_gradient(const float (&c)[kColumns / 2], float scale, u16 *to, i64 stride, int left) {
    const int lane = (int)(threadIdx.x % kWarp), g = lane / 4, t = lane % 4;
    to += (i64)g * stride + t % 2 * 8 + t / 2 * 4;
#pragma unroll
    for (int pair = 0; pair < kColumns / 16; ++pair)
#pragma unroll
        for (int low = 0; low < 2; ++low) {
            const float *x = &c[8 * pair + 2 * low];
            store_two_blocks(to + 8 * low * stride + pair * 16, pack2<kBf16>(x[0] * scale, x[1] * scale), pack2<kBf16>(x[4] * scale, x[5] * scale),
                             g + 8 * low < left && pair * 16 + t % 2 * 8 < kThere);
        }
}

// ---- the order of jobs -----------------------------------------------------------------------------------------

// Under a causal mask a head's jobs are of many lengths, and under a mask's text they may be. So that the last ones are short, those of the
// same tile of the last heads have neighbouring numbers, the longest first. Before them, few heads at a time are in the L2 cache.
#if MASK_SNIPPET
constexpr bool kLongestFirst = !kWindow;
#else
constexpr bool kLongestFirst = kCausal && !kWindow;
#endif
constexpr u32 kLastJobs = 330;   // more than two of an SM
// Of jobs numbered head by head, the one whose turn it is.
FA_DEVICE u32 find_in_turn(u32 turn, u32 tiles, u32 heads) {
    const u32 most = tiles < kLastJobs ? kLastJobs / tiles : 1, last = heads < most ? heads : most, place = heads * tiles - 1 - turn, tile = place / last;
    return tile < tiles ? (heads - 1 - (place - tile * last)) * tiles + (tiles - 1 - tile) : turn;
}

// ---- parts of a group ------------------------------------------------------------------------------------------

// SPLITS jobs share a tile of keys: each has a part of the heads of queries of its group. Or ROW_PARTS jobs, where each head of queries has
// keys of its own: each has a part of the tiles of queries. A job's "head of keys" is such a part of one.
// Each part writes its sums of dK and dV to the workspace, and the one that ends last adds them, in the order of the parts, and stores them; or
// each adds its own to sums that the first launch cleared, so that the last one does not read those of all.
constexpr bool kOfRows = ROW_PARTS > 1;
constexpr u32 kParts = kOfRows ? ROW_PARTS : SPLITS;
static_assert(ROW_PARTS == 1 || SPLITS == 1, "parts of either kind");
FA_DEVICE u32 parts_of_heads(const fa_attn_bwd_params &p) { return opaque((u32)p.heads_kv) * kParts; }
// The first head of queries of a part, and how many it has. `group`: of a whole head of keys.
FA_DEVICE u32 first_head_of(u32 head, u32 group) { return kParts == 1 ? head * group : kOfRows ? head / kParts : head / kParts * group + head % kParts * group / kParts; }
FA_DEVICE u32 heads_of(u32 head, u32 group) { return kParts == 1 || kOfRows ? group : first_head_of(head + 1, group) - first_head_of(head, group); }
// A warp's sums of its rows of a tile, one of the parts. `sums`: where those of the first part are kept as lanes have them, `apart` floats
// before those of the next one.
template <int kFloats> FA_DEVICE void put_part(const float (&x)[kFloats], float *sums, i64 apart, u32 part) {
    sums += threadIdx.x % kWarp * 4 + part * apart;
#pragma unroll
    for (int i = 0; i < kFloats; i += 4) store_floats(sums + i * (int)kWarp, (const float (&)[4])x[i]);
}
// Whether this warp comes last to its rows.
FA_DEVICE bool comes_last(u32 *counter) {
    warp_sync();
    int last = 0;
    if (threadIdx.x % kWarp == 0) last = arrives_last(counter, kParts);
    if (!uniform(last)) return false;
    warp_sync();   // what lane 0 has acquired is there for all
    return true;
}
// A part's sums are added to those of all parts.
template <int kFloats> FA_DEVICE void add_part(const float (&x)[kFloats], float *sums) {
    sums += threadIdx.x % kWarp * 4;
#pragma unroll
    for (int i = 0; i < kFloats; i += 4)
        asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};"
                     :: "l"(sums + i * (int)kWarp), "f"(x[i]), "f"(x[i + 1]), "f"(x[i + 2]), "f"(x[i + 3]) : "memory");
}
// The sums of kCount parts.
template <u32 kCount = kParts, int kFloats> FA_DEVICE void add_parts(float (&x)[kFloats], const float *sums, i64 apart) {
    sums += threadIdx.x % kWarp * 4;
#pragma unroll 1
    for (u32 other = 0; other < kCount; ++other, sums += apart) {
#pragma unroll
        for (int i = 0; i < kFloats; i += 4) {
            float y[4];
            load_floats(y, sums + i * (int)kWarp);
#pragma unroll
            for (int e = 0; e < 4; ++e) x[i + e] = other == 0 ? y[e] : x[i + e] + y[e];
        }
    }
}

// ---- the main launches -----------------------------------------------------------------------------------------

// c = A B^T, K along the rows of both: 64 rows of a tile of kRowsA by kRows, kSteps of 16 columns. Left under way.
template <int kRowsA, int kRows, int kSteps> FA_DEVICE void issue_scores(float (&c)[kRows / 2], u64 a, u64 b) {
    constexpr int kFours = kSteps / 4;
    if constexpr (kFours > 0) Wgmma<kRows>::template multiply_4<true>(c, a, b);
    else                      wgmma_fence();
#pragma unroll
    for (int i = 1; i < kFours; ++i)
        Wgmma<kRows>::template multiply_4<false>(c, a + i * (kRowsA * kRowBytes / 16), b + i * (kRows * kRowBytes / 16));
#pragma unroll
    for (int k = 0; k < kSteps % 4; ++k)
        Wgmma<kRows>::multiply(c, a + kFours * (kRowsA * kRowBytes / 16) + 2 * k, b + kFours * (kRows * kRowBytes / 16) + 2 * k, kFours > 0 || k > 0);
    wgmma_commit();
}
// c += A B, A in registers, K across the kRows rows of B. Left under way.
template <int kColumns, int kRows> FA_DEVICE void issue_gradient(float (&c)[kColumns / 2], const u32 (&a)[kRows / 4], u64 tile) {
    constexpr int kFours = kRows / 64 * 4;
    if constexpr (kFours == 0) wgmma_fence();
#pragma unroll
    for (int k = 0; k < kFours; k += 4) {
        if (k == 0) Wgmma<kColumns>::template multiply_4<true>(c, a, tile, true);
        else        Wgmma<kColumns>::template multiply_4<false>(c, &a[4 * k], tile + k * (16 * kRowBytes / 16), true);
    }
#pragma unroll
    for (int k = kFours; k < kRows / 16; ++k) Wgmma<kColumns>::multiply(c, &a[4 * k], tile + k * (16 * kRowBytes / 16), true);
    wgmma_commit();
}
// By what dS is multiplied, from the weight, whose tangent this is once more.
FA_DEVICE float slope_of(const Curve &curve, float weight, float lse) {
    const float tangent = (log2_fast(weight) + lse) * reciprocal(curve.factor);
    return weight > 0.0f ? 1.0f - tangent * tangent : 0.0f;
}

using Scores = float[kM / 2];   // element 4 * j + 2 * half + e: key g + 8 * half, row 8 * j + 2 * t + e
using Packed = u32[kM / 4];     // A operand, 4 for each 16 rows

// The rows [first, end) that see a lane's keys g (half 0) and g + 8. Of a key that does not exist there are none.
struct Seers {
    int first[2], end[2];

    __device__ __forceinline__ Seers(int seq_q, int seq_k, const Band &band, int key) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int at = key + half * 8;
            first[half] = at < seq_k ? clamp(at - band.high, seq_q) : seq_q;
            end[half] = kWindow ? clamp(at - band.low + 1, seq_q) : seq_q;
        }
    }
    // Others weigh nothing. `row`: the first one of the tile.
    __device__ __forceinline__ void mask(Scores &s, int row, int column0) const {
        if (first[1] <= row && (!kWindow || end[0] >= row + kM)) return;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int low = first[half] - row - column0, high = end[half] - row - column0;
#pragma unroll
            for (int i = 0; i < kM / 4; ++i) {
                const int column = i / 2 * 8 + i % 2;
                float &x = s[i / 2 * 4 + half * 2 + i % 2];
                if (column < low || (kWindow && column >= high)) x = 0.0f;
            }
        }
    }
};

} // namespace

#endif
