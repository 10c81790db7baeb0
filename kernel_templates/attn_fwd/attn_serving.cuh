// SPDX-License-Identifier: Apache-2.0
//
// One sequence of a batch: where its rows lie, how long it is, which keys its queries see.
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

struct Sequence {
    i64 q, k, v, o;    // element offsets of its first rows in the first head; PAGED: k and v are 0
    i64 lse, lse_head; // of its first row in the first head of the LSE, and from head to head
    int len_q, len_k;
    int offset;        // query i stands at key i + offset
};

FA_DEVICE int within(i64 x, int most) { return x < 0 ? 0 : x < most ? (int)x : most; }

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
    s.offset = VARLEN_Q != 0 || LENGTHS_K != 0 ? s.len_k - s.len_q : d.causal_offset;
    return s;
}

// How far a query sees behind and before the key it stands at; -1: to the end.
FA_DEVICE int window_left(const fa_attn_serving_params &p) { return WINDOW != 0 ? p.window_left : -1; }
FA_DEVICE int window_right(const fa_attn_serving_params &p) { return CAUSAL != 0 ? 0 : WINDOW != 0 ? p.window_right : -1; }

// The first key that query i sees, and the end of them.
FA_DEVICE int first_key(const fa_attn_serving_params &p, const Sequence &s, int i) {
    const int left = window_left(p);
    return left < 0 ? 0 : within((i64)i + s.offset - left, s.len_k);
}
FA_DEVICE int end_key(const fa_attn_serving_params &p, const Sequence &s, int i) {
    const int right = window_right(p);
    return right < 0 ? s.len_k : within((i64)i + s.offset + right + 1, s.len_k);
}

#endif
