// SPDX-License-Identifier: Apache-2.0
//
// Decoding of multi-head latent attention for few rows, on Hopper and newer (sm_90): mma.sync, bulk copies.
//
// Purpose: O = softmax(scale * Q K^T) V of keys that few query heads share. A key has 576 columns, and its first 512 are its value:
// all of fp16 or bf16, or of e4m3, or, of fp8_ds_mla, 512 numbers of e4m3, an fp32 scale for each 128 of them, and 64 numbers of
// bf16 in 656 bytes. Memory bandwidth decides.
// Workload: a block takes kM packed rows (attn_split.cuh) and one part of the keys they see. Its warps form GROUPS groups of four,
// each with a stream of its own: group g takes tiles g, g + GROUPS, … of kN keys through STAGES slots and meets the others only at
// the end. A warp of a group owns 128 of the 512 columns, in both products. With several parts a second kernel adds up.
// Invariants:
//  - a key lies in shared memory as in global memory. Keys are kPitch apart, 4 banks more than whole lines, so that ldmatrix of eight
//    meets no bank twice: 656 bytes are so, others are copied key by key. L2 gives them up first: that is worth a tenth at 16 sequences.
//  - S: each warp multiplies its 128 columns, and 16 of the last 64. The four warps exchange these sums through shared memory and add
//    them in the same order: all of a group have the same P.
//  - numbers of e4m3 are widened in registers, for each product as it needs them. For S to fp16, which has all of e4m3; queries are
//    multiplied by a power of two for each row, so that fp16 has all of bf16 that matters, and the sums by the keys' scales. For O
//    bf16 with the bits of e4m3 is the number times 2^-120: P is multiplied by the key's scale (in fp32) and by 2^60, O by 2^60 at
//    the end. A scale is rounded to bf16, as in the other families.
//  - keys behind a sequence's end, and of pages that are not there, are zeros, or bytes of e4m3 whose scores and scales are replaced.
#include "attn_serving_params.h"
#include "fa_async.cuh"
#include "fa_mma.cuh"
#include "fa_tma.cuh"

namespace {

constexpr bool kBf16 = DTYPE_BF16 != 0, kBytes = KV_FP8 != 0, kScaled = KV_FP8 == 2;   // kScaled: numbers have scales in their rows
constexpr int kM = BLOCK_M, kN = BLOCK_N, kGroups = GROUPS, kStages = STAGES, kStep = kN * kGroups, kSlabs = 1, kOwnDv = 128;
constexpr int kPage = PAGED != 0 ? PAGE_SIZE : 1, kRun = 16;   // kRun: keys that are of one page
constexpr u32 kWarp = 32, kGroup = 128, kParts = kGroup / kWarp;
constexpr u32 kRowBytes = kScaled ? FA_DS_MLA_BYTES : kBytes ? HEAD_DIM : HEAD_DIM * 2, kPitch = kScaled ? kRowBytes : kRowBytes + 16;
constexpr u32 kRowRope = kScaled ? FA_DS_MLA_ROPE : kBytes ? HEAD_DIM_V : HEAD_DIM_V * 2;   // where the last 64 columns begin in a row
constexpr u32 kOwnBytes = kBytes ? 128 : 256;   // of a row's first 512 columns, those of one warp
constexpr u32 kSlotBytes = kN * kPitch, kStreamBytes = kStages * kSlotBytes, kExchangeBytes = kM * kN * 4 * kParts;
constexpr u32 kMergePitch = HEAD_DIM_V + 16;   // floats; rows start 16 banks apart
constexpr u32 kBarrierBytes = 128;
static_assert(FA_SMEM_BYTES == kBarrierBytes + kGroups * (kStreamBytes + kExchangeBytes), "shared memory differs from the manifest");
static_assert(kGroups * kM * (kMergePitch + 2) * 4 <= kGroups * (kStreamBytes + kExchangeBytes), "accumulators do not fit");
static_assert(FA_THREADS == kGroups * kGroup && kM == 16 && kN % 16 == 0 && kGroups * kStages * 8 <= kBarrierBytes, "tile and threads disagree");
static_assert(V_IN_K == 1 && ALIGNED == 1 && HEAD_DIM == 576 && HEAD_DIM_V == 512 && (PAGED == 0 || kPage % kRun == 0) &&
              (!kBytes || (kBf16 && kN == 32)), "no such keys");

}  // namespace

#include "attn_softmax_mma.cuh"
#include "attn_split.cuh"

namespace {

struct Queries {
    u32 latent[8][4], rope[4];   // A operands of 16 columns
    float inverse[2];            // what the sums are multiplied by, of rows g and g + 8: a power of two, and 2^-60, for scales have 2^60
};
enum Named { kAll, kDone, kExchanged = kDone + kGroups };   // named barriers: the first of a kind
using Scales = float[kN / 8][2];   // of keys 8i + 2t and one more, times 2^60

// An array -> shared memory; its bytes arrive at `barrier`.
FA_DEVICE void bulk_load_once(u32 to, const void *from, u32 bytes, u32 barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;"
                 :: "r"(to), "l"(from), "r"(bytes), "r"(barrier), "l"(kEvictFirst) : "memory");
}
FA_DEVICE u32 load_u32(const u16 *from) { return (u32)load_int((const int *)from); }
FA_DEVICE void load_pair(u32 (&x)[2], const u16 *from) {
    asm volatile("ld.global.nc.v2.b32 {%0,%1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "l"(from));
}

// ---- copies ----------------------------------------------------------------------------------------------------

// The tiles of a group, which its first warp fetches: a lane each run of keys whose rows lie behind one another.
struct Stream {
    const char *keys;   // the first byte of the sequence's first key, or of the head in page 0
    i64 row, page;      // bytes from key to key, and from page to page
    const int *table;
    int end, pages, run;
    int key, in;        // this lane's first key of the tile to fetch next, and what the table says of it

    __device__ __forceinline__ Stream(const fa_attn_serving_params &p, const Work &w, u32 group, u32 lane) {
        constexpr i64 kUnit = kBytes ? 1 : 2;   // bytes of what strides count
        keys = (const char *)p.dense.k + (w.sequence.k + w.kv_head * p.dense.k_head_stride) * kUnit;
        row = p.dense.k_row_stride * kUnit, page = p.dense.k_batch_stride * kUnit;
        table = p.block_table + (PAGED != 0 ? w.batch * p.block_table_stride : 0);
        end = w.end, pages = p.num_pages, run = run_of(p);
        key = w.begin + (int)group * kN + (int)lane * run;
        in = look_up(key);
    }
    FA_DEVICE int run_of(const fa_attn_serving_params &p) { return kPitch == kRowBytes && p.dense.k_row_stride == kRowBytes ? kRun : 1; }
    __device__ __forceinline__ int look_up(int its_key) const {
        return PAGED != 0 && its_key < end ? load_int(table + (u32)its_key / kPage) : -1;
    }

    // Of a tile that is there. Each lane that has a run arrives.
    __device__ __forceinline__ void next(u32 slot, u32 full, u32 lane) {
        const int now = key, found = in;
        key += kStep;
        in = look_up(key);
        if ((int)lane * run >= kN) return;
        const int left = end - now, count = left < 0 ? 0 : left < run ? left : run;
        const bool exists = PAGED == 0 || (u32)found < (u32)pages;
        const u32 to = slot + lane * (u32)run * kPitch, bytes = (u32)count * kRowBytes;
        if (!exists || (!kBytes && count == 0)) {
            for (u32 i = 0; i < (kBytes ? bytes : kRowBytes); i += 16) store_shared(to + i, 0, 0, 0, 0);
            async_proxy_fence();
        }
        barrier_expect(full, exists ? bytes : 0);
        const i64 at = PAGED != 0 ? found * page + (u32)now % kPage * row : now * row;
        if (exists && count > 0) bulk_load_once(to, keys + at, bytes, full);
    }
};

FA_DEVICE void load_queries(Queries &q, const fa_attn_serving_params &p, const Work &w, u32 part, u32 lane) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int row = (int)lane / 4 + half * 8;
        u32 x[8][2] = {}, rope[2] = {0, 0};
        if (row < w.rows) {
            const u16 *from = (const u16 *)p.dense.q + w.sequence.q + w.head(row) * p.dense.q_head_stride + w.query(row) * p.dense.q_row_stride;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                const u16 *own = from + part * 128 + i * 16;
                if constexpr (kBytes) load_pair(x[i], own + lane % 4 * 4);   // four columns lie in one register of bytes
                else x[i][0] = load_u32(own + lane % 4 * 2), x[i][1] = load_u32(own + 8 + lane % 4 * 2);
            }
#pragma unroll
            for (int i = 0; i < 2; ++i)
                rope[i] = load_u32(kBytes && !kScaled ? from + HEAD_DIM_V + part * 16 + lane % 4 * 4 + i * 2 : from + HEAD_DIM_V + part * 16 + i * 8 + lane % 4 * 2);
        }
        q.rope[half] = rope[0], q.rope[2 + half] = rope[1];
        if constexpr (!kBytes) {
#pragma unroll
            for (int i = 0; i < 8; ++i) q.latent[i][half] = x[i][0], q.latent[i][2 + half] = x[i][1];
            continue;
        }
        u32 top = 0;   // the largest exponent, in its place
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const u32 high = x[i / 2][i % 2] & 0x7f800000u, low = x[i / 2][i % 2] << 16 & 0x7f800000u;
            top = top > high ? top : high;
            top = top > low ? top : low;
        }
        if constexpr (!kScaled)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const u32 exponent = (i % 2 ? rope[i / 2] : rope[i / 2] << 16) & 0x7f800000u;
                top = top > exponent ? top : exponent;
            }
        top = float_to_bits(quad_max(bits_to_float(top == 0x7f800000u ? 0x7f000000u : top)));
        top = top > 0x2b800000u ? top : 0x2b800000u;   // 2^-40: the powers below have room
        const float factor = bits_to_float(0x86000000u - top);   // 2^14 over it: (127 + 14 + 127) << 23
        q.inverse[half] = bits_to_float(top - 0x25000000u);      // (14 + 60) << 23
#pragma unroll
        for (int i = 0; i < 8; ++i)
#pragma unroll
            for (int j = 0; j < 2; ++j)
                q.latent[i][2 * j + half] = pack2<false>(bits_to_float(x[i][j] << 16) * factor, bits_to_float(x[i][j] & 0xffff0000u) * factor);
        if constexpr (!kScaled)
#pragma unroll
            for (int i = 0; i < 2; ++i)
                q.rope[2 * i + half] = pack2<false>(bits_to_float(rope[i] << 16) * factor, bits_to_float(rope[i] & 0xffff0000u) * factor);
    }
}

// ---- products --------------------------------------------------------------------------------------------------

// Four numbers of e4m3 as two pairs of fp16.
FA_DEVICE void widen_to_halves(u32 &low, u32 &high, u32 four) {
    asm("{ .reg .b16 a, b; mov.b32 {a, b}, %2; cvt.rn.f16x2.e4m3x2 %0, a; cvt.rn.f16x2.e4m3x2 %1, b; }" : "=r"(low), "=r"(high) : "r"(four));
}
// Numbers 0 and 2 of four, or 1 and 3, times 2^-120 as a pair of bf16.
FA_DEVICE u32 even_of(u32 four) { return (four << 8 & 0x80008000u) | (four << 4 & 0x07f007f0u); }
FA_DEVICE u32 odd_of(u32 four) { return (four & 0x80008000u) | (four >> 4 & 0x07f007f0u); }

FA_DEVICE void load_scales(Scales &scales, u32 slot, u32 part, u32 lane) {
#pragma unroll
    for (int i = 0; i < kN / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            const float scale = kScaled ? load_shared<float>(slot + (i * 8 + lane % 4 * 2 + e) * kPitch + FA_DS_MLA_SCALES + part * 4) : 1.0f;
            scales[i][e] = (kScaled ? bits_to_float(pack2<true>(0.0f, scale)) : 1.0f) * 0x1p60f;
        }
}

// This warp's share of S = Q K^T.
FA_DEVICE void multiply_qk(Scores &s, const Queries &q, const Scales &scales, u32 slot, u32 part, u32 lane) {
    const u32 keys = slot + lane % 8 * kPitch + part * kOwnBytes + lane / 8 * 16;
    const u32 rope = slot + (lane % 8 + lane / 16 * 8) * kPitch + kRowRope + part * 32 + lane / 8 % 2 * 16;
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) s[0][n][0] = s[0][n][1] = s[0][n][2] = s[0][n][3] = 0.0f;
#pragma unroll
    for (u32 piece = 0; piece < kOwnBytes / 64; ++piece)
#pragma unroll
        for (int n = 0; n < kN / 8; ++n) {
            u32 k[4];
            ldmatrix_x4(k, keys + n * 8 * kPitch + piece * 64);
            if constexpr (kBytes) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    u32 low, high;
                    widen_to_halves(low, high, k[i]);
                    mma_16816<false>(s[0][n], q.latent[piece * 4 + i], low, high);
                }
            } else {
#pragma unroll
                for (int i = 0; i < 2; ++i) mma_16816<kBf16>(s[0][n], q.latent[piece * 2 + i], k[2 * i], k[2 * i + 1]);
            }
        }
    if constexpr (kBytes && !kScaled) {   // the last columns of 32 keys are bytes, too
        u32 k[4];
        ldmatrix_x4(k, slot + lane * kPitch + kRowRope + part * 16);
#pragma unroll
        for (int n = 0; n < kN / 8; ++n) {
            u32 low, high;
            widen_to_halves(low, high, k[n]);
            mma_16816<false>(s[0][n], q.rope, low, high);
#pragma unroll
            for (int e = 0; e < 4; ++e) s[0][n][e] *= q.inverse[e / 2] * scales[n][e % 2];
        }
        return;
    }
#pragma unroll
    for (int n = 0; n < kN / 8; n += 2) {
        u32 k[4];
        ldmatrix_x4(k, rope + n * 8 * kPitch);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int e = 0; kBytes && e < 4; ++e) s[0][n + i][e] *= q.inverse[e / 2] * scales[n + i][e % 2];
            mma_16816<kBf16>(s[0][n + i], q.rope, k[2 * i], k[2 * i + 1]);
        }
    }
}

// What all warps of a group have of S, added up.
FA_DEVICE void add_scores(Scores &s, u32 from) {
#pragma unroll
    for (int n = 0; n < kN / 8; ++n) {
        float x[kParts][4];
#pragma unroll
        for (int part = 0; part < (int)kParts; ++part) load_shared(x[part], from + (part * (kN / 8) + n) * (kWarp * 16));
#pragma unroll
        for (int e = 0; e < 4; ++e) s[0][n][e] = (x[0][e] + x[1][e]) + (x[2][e] + x[3][e]);
    }
}

// Scores of keys that a row must not see become -inf; scales behind the end, where anything may lie, 0.
FA_DEVICE void apply_mask(Scores &s, Scales &scales, const fa_attn_serving_params &p, const Work &w, int key, u32 lane) {
    const int from = key + (int)lane % 4 * 2;
    int end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const int own = end_key(p, w.sequence, w.query((int)lane / 4 + half * 8));
        end[half] = (own < w.end ? own : w.end) - from;
    }
#pragma unroll
    for (int n = 0; n < kN / 8; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
            if (n * 8 + e % 2 >= end[e / 2]) s[0][n][e] = neg_infinity();
            if (kBytes && n * 8 + e % 2 >= w.end - from) scales[n][e % 2] = 0.0f;
        }
}

// O += softmax(S) V, of this warp's columns.
FA_DEVICE void multiply_pv(Output &o, const Scores &s, const Scales &scales, Rows &rows, float scale, u32 slot, u32 part, u32 lane) {
    const u32 values = slot + lane % 16 * kPitch + part * kOwnBytes + lane / 16 * 16;
#pragma unroll
    for (int k = 0; k < kN / 16; ++k) {
        u32 probs[4];
#pragma unroll
        for (int r = 0; r < 4; ++r) {
            const int n = 2 * k + r / 2, half = r % 2;
            const float low = exp2_fast(s[0][n][half * 2] * scale - rows.reference[0][half]);
            const float high = exp2_fast(s[0][n][half * 2 + 1] * scale - rows.reference[0][half]);
            rows.sum[0][half] += low + high;
            probs[r] = kBytes ? pack2<true>(low * scales[n][0], high * scales[n][1]) : pack2<kBf16>(low, high);
        }
#pragma unroll
        for (u32 d = 0; d < kOwnBytes / 32; ++d) {
            u32 v[4];
            ldmatrix_x4_trans(v, values + k * 16 * kPitch + d * 32);
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                if constexpr (kBytes) {
                    mma_16816<true>(o[0][4 * d + 2 * j], probs, even_of(v[2 * j]), even_of(v[2 * j + 1]));
                    mma_16816<true>(o[0][4 * d + 2 * j + 1], probs, odd_of(v[2 * j]), odd_of(v[2 * j + 1]));
                } else {
                    mma_16816<kBf16>(o[0][2 * d + j], probs, v[2 * j], v[2 * j + 1]);
                }
            }
        }
    }
}

// ---- output ----------------------------------------------------------------------------------------------------

// This warp's accumulators and its group's sums, for all: [group][row][pitch], then {reference, sum} [group][row].
FA_DEVICE void leave_accumulators(u32 to, u32 group, u32 part, u32 lane, const Output &o, const Rows &rows) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        const u32 row = group * kM + lane / 4 + half * 8;
        const float sum = quad_sum(rows.sum[0][half]);
        if (part == 0 && lane % 4 == 0) store_shared(to + kGroups * kM * kMergePitch * 4 + row * 8, rows.reference[0][half], sum);
#pragma unroll
        for (int d = 0; d < kOwnDv / 8; d += 2) {
            const float(&x)[4] = o[0][d], (&y)[4] = o[0][d + 1];   // of bytes the even and the odd of 16 columns
            const u32 at = to + (row * kMergePitch + part * 128 + d * 8) * 4;
            if constexpr (kBytes) {
                store_shared(at + lane % 4 * 16, {x[half * 2] * 0x1p60f, y[half * 2] * 0x1p60f, x[half * 2 + 1] * 0x1p60f, y[half * 2 + 1] * 0x1p60f});
            } else {
                store_shared(at + lane % 4 * 8, x[half * 2], x[half * 2 + 1]);
                store_shared(at + lane % 4 * 8 + 32, y[half * 2], y[half * 2 + 1]);
            }
        }
    }
}

}  // namespace

extern __shared__ __align__(1024) unsigned char shared_memory[];

extern "C" __global__ void __launch_bounds__(FA_THREADS, 1)
attn_fwd(const __grid_constant__ fa_attn_serving_params p) {
    Work w;
    if (!find_work(w, p, blockIdx.x, blockIdx.y, gridDim.y)) return;
    const u32 lane = threadIdx.x % kWarp, group = (u32)uniform((int)(threadIdx.x / kGroup)), part = (u32)uniform((int)(threadIdx.x / kWarp % kParts));
    const u32 barriers = shared_address(shared_memory), memory = barriers + kBarrierBytes;
    const u32 full = barriers + group * kStages * 8, slots = memory + group * kStreamBytes;
    const u32 exchange = memory + kGroups * kStreamBytes + group * kExchangeBytes + lane * 16;
    if (threadIdx.x == 0) {
        for (u32 i = 0; i < kGroups * kStages; ++i) barrier_init(barriers + i * 8, (u32)(kN / Stream::run_of(p)));
        barrier_init_fence();
    }
    named_sync(kAll, FA_THREADS);
    let_next_launch_begin();

    Stream stream(p, w, group, lane);
    const int first = w.begin + (int)group * kN;
    if (part == 0)
#pragma unroll 1
        for (int t = 0; t < kStages && first + t * kStep < w.end; ++t) stream.next(slots + t * kSlotBytes, full + t * 8, lane);
    Queries q;
    load_queries(q, p, w, part, lane);
    const u32 parts = w.parts();
    Output o = {};
    Rows rows = no_keys_seen();
    const float scale = find_scale(p, w.batch, w.kv_head).exponent;
    u32 stage = 0, parity = 0;
#pragma unroll 1
    for (int key = first; key < w.end; key += kStep) {
        const u32 slot = slots + stage * kSlotBytes;
        barrier_wait(full + stage * 8, parity);
        Scales scales;
        Scores s;
        if constexpr (kBytes) load_scales(scales, slot, part, lane);
        multiply_qk(s, q, scales, slot, part, lane);
        named_sync(kDone + group, kGroup);   // with the tile before this one, and with the sums that were exchanged for it
        if (part == 0 && key > first && key + (kStages - 1) * kStep < w.end) {
            const u32 before = stage == 0 ? kStages - 1 : stage - 1;
            stream.next(slots + before * kSlotBytes, full + before * 8, lane);
        }
#pragma unroll
        for (int n = 0; n < kN / 8; ++n) store_shared(exchange + (part * (kN / 8) + n) * (kWarp * 16), s[0][n]);
        named_sync(kExchanged + group, kGroup);
        add_scores(s, exchange);
        if (key + kN > w.clear_end || key + kN > w.end) apply_mask(s, scales, p, w, key, lane);
        float top[kSlabs][2];
        row_tops(top, s);
        if (warp_any(outgrown(top, rows, scale))) raise_references(rows, o, top, scale);
        multiply_pv(o, s, scales, rows, scale, slot, part, lane);
        if (++stage == kStages) stage = 0, parity ^= 1;
    }

    // A group without a tile in the last round passes its barriers all the same: racecheck counts a thread's barriers without
    // their names, and takes threads that passed more of them for later ones.
    if ((w.end - w.begin - 1) % kStep < (int)group * kN) {
        named_sync(kDone + group, kGroup);
        named_sync(kExchanged + group, kGroup);
    }
    named_sync(kAll, FA_THREADS);   // everybody is done with the bytes that the accumulators are left in
    leave_accumulators(memory, group, part, lane, o, rows);
    named_sync(kAll, FA_THREADS);
    const Partials partials(p, w, gridDim.y);
    for (u32 item = threadIdx.x; item < (u32)w.rows * (HEAD_DIM_V / 4); item += FA_THREADS) {
        const u32 row = item / (HEAD_DIM_V / 4), column = item % (HEAD_DIM_V / 4) * 4;
        float x[4];
        const Total total = gather_groups<kGroups, kMergePitch>(x, memory, row, column);
        if (parts == 1) {
            store_final(p, w, x, total, row, column);
        } else {
            const u64 at = (u64)w.part * kM + row;
            store_floats(partials.rows + at * HEAD_DIM_V + column, x);
            if (column == 0) store_floats(partials.sums + at * 2, {total.reference, total.sum});
        }
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
