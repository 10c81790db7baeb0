// SPDX-License-Identifier: Apache-2.0
//
// One sequence of a batch: where its rows lie, how long it is, which keys its queries see, how its rows end; and numbers of fp8.
//
// Purpose: what every family that serves sequences of their own lengths decides in the same way. Includers define
// CAUSAL, WINDOW, VARLEN_Q, LENGTHS_K and PAGED.
// Invariants: lengths read on the device are held within [0, the maximum that the host knows], so that nothing
// outside the tensors is read or written whatever they say. Keys have 32-bit numbers, and so have queries.
#ifndef ATTN_SERVING_CUH
#define ATTN_SERVING_CUH

#include "attn_serving_params.h"
#include "fa_global.cuh"
#include "fa_numeric.cuh"
#if DROPOUT
#include "attn_dropout.cuh"
#endif

#ifndef Q_FP8
#define Q_FP8 0
#endif

struct Sequence {
    i64 q, k, v, o;    // element offsets of its first rows in the first head; PAGED: k and v are 0
    i64 lse, lse_head; // of its first row in the first head of the LSE, and from head to head
    int len_q, len_k;
    int offset;        // query i stands at key i + offset
};

FA_DEVICE int within(i64 x, int most) { return x < 0 ? 0 : x < most ? (int)x : most; }

FA_DEVICE int key_offset(const fa_attn_serving_params &p, int len_q, int len_k) {
    return VARLEN_Q != 0 || LENGTHS_K != 0 ? len_k - len_q : p.dense.causal_offset;
}

FA_DEVICE Sequence find_sequence(const fa_attn_serving_params &p, int batch) {
    const fa_attn_params &d = p.dense;
    Sequence s = {batch * d.q_batch_stride, batch * d.k_batch_stride, batch * d.v_batch_stride, batch * d.o_batch_stride,
                  (i64)batch * d.heads_q * d.seq_q, d.seq_q, d.seq_q, d.seq_k, 0};
    if constexpr (VARLEN_Q != 0) {
        const int first = load_int(p.cu_seqlens_q + batch);
        s.len_q = within((i64)load_int(p.cu_seqlens_q + batch + 1) - first, d.seq_q);
        s.q = first * d.q_row_stride, s.o = first * d.o_row_stride;
        s.lse = first, s.lse_head = p.total_q;
    }
    if constexpr (LENGTHS_K == 1) {
        const int first = load_int(p.cu_seqlens_k + batch);
        s.len_k = within((i64)load_int(p.cu_seqlens_k + batch + 1) - first, d.seq_k);
        s.k = first * d.k_row_stride, s.v = first * d.v_row_stride;
    } else if constexpr (LENGTHS_K == 2) {
        s.len_k = within(load_int(p.seqused_k + batch), d.seq_k);
    }
    if constexpr (PAGED != 0) s.k = s.v = 0;
    s.offset = key_offset(p, s.len_q, s.len_k);
    return s;
}

// How far a query sees behind and before the key it stands at; -1: to the end.
FA_DEVICE int window_left(const fa_attn_serving_params &p) { return WINDOW != 0 ? p.window_left : -1; }
FA_DEVICE int window_right(const fa_attn_serving_params &p) { return CAUSAL != 0 ? 0 : WINDOW != 0 ? p.window_right : -1; }

// The first key that query i sees, and the end of them. The key that the query stands at has a 32-bit number, which neither
// limit is added to where the sum would have none.
FA_DEVICE int first_key(const fa_attn_serving_params &p, const Sequence &s, int i) {
    const int left = window_left(p), at = i + s.offset;
    return left < 0 || at <= left ? 0 : at - left < s.len_k ? at - left : s.len_k;
}
FA_DEVICE int end_key(const fa_attn_serving_params &p, const Sequence &s, int i) {
    const int right = window_right(p), at = i + s.offset;
    if (right < 0 || at >= s.len_k || (u32)right >= (u32)s.len_k - (u32)at) return s.len_k;
    return at + right < 0 ? 0 : at + right + 1;
}

constexpr float kLn2 = 0.69314718055994531f, kLog2E = 1.4426950408889634f;

// A row's sum of exponentials and what they were taken from.
struct Total {
    float reference, sum;
};

// What a row of O is multiplied by, and the row's LSE.
struct Closed {
    float inverse, lse;
};

// Of what a row has seen and, with sinks, its head's sink; fp8 values with their scale, and weights that dropout keeps with theirs.
FA_DEVICE Closed close_row(const fa_attn_serving_params &p, int batch, int kv_head, int head, Total total) {
    float shrink = 1.0f;
    if constexpr (SINKS != 0) {
        const float sink = p.sinks[head] * kLog2E, raised = max2(total.reference, sink);
        shrink = exp2_fast(total.reference - raised);
        total = {raised, total.sum * shrink + exp2_fast(sink - raised)};
    }
    float inverse = total.sum == 0.0f ? 0.0f : reciprocal(total.sum) * shrink;   // NaN stays NaN
    if constexpr (KV_FP8 == 1) inverse *= p.v_scale[(i64)batch * p.v_scale_batch_stride + kv_head * p.v_scale_head_stride];
#if DROPOUT
    inverse *= dropout_scale(p.buffer);
#endif
    return {inverse, total.sum == 0.0f ? neg_infinity() : (total.reference + log2_fast(total.sum)) * kLn2};
}

// Two e4m3 numbers of `four` as a pair of fp16 or bf16, exact but for NaN, which reads as 480: their bits as the upper ones of
// a number with a wider exponent, times what the biases differ by. kBytes is a selector of prmt.b32 that puts them in
// the upper bytes of both halves.
template <bool kBf16, u32 kBytes> FA_DEVICE u32 widen(u32 four) {
    u32 spread, pair;
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(spread) : "r"(four), "n"(kBytes));
    spread = (spread & 0x80008000u) | ((spread & 0x7f007f00u) >> (kBf16 ? 4 : 1));
    if constexpr (kBf16) asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(pair) : "r"(spread), "r"(0x7b807b80u), "r"(0x80008000u));
    else                 asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(spread), "r"(0x5c005c00u));
    return pair;
}
constexpr u32 kBytes01 = 0x1404, kBytes23 = 0x3424, kBytes02 = 0x2404, kBytes13 = 0x3414;

// What scores are multiplied by for exp2, and before a softcap.
struct Scale {
    float exponent, cap_rate;
};

// -inf * scale must be -inf; after a softcap scores are in units of it.
FA_DEVICE Scale find_scale(const fa_attn_serving_params &p, int batch, int kv_head) {
    float keys = p.dense.softmax_scale_log2;
    if constexpr (KV_FP8 == 1) keys *= p.k_scale[(i64)batch * p.k_scale_batch_stride + kv_head * p.k_scale_head_stride];
    return {max2(SOFTCAP != 0 ? p.softcap * kLog2E : keys, 1.0e-30f), SOFTCAP != 0 ? 2.0f * keys / p.softcap : 0.0f};
}

#endif
