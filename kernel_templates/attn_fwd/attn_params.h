/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of every attention forward kernel, passed by value.
 *
 * Included by the kernel templates (compiled by NVRTC) and by the host code that fills it in, so
 * that there is one layout and no copy of it. Plain C types only; both sides are LP64.
 *
 * Strides are in elements and may be any value; the last (head) dimension has stride 1. With the
 * define ALIGNED=1 every pointer is 16-byte aligned and every stride a multiple of 8 elements;
 * with ALIGNED=0 nothing but element alignment is promised.
 */
#ifndef FA_ATTN_PARAMS_H
#define FA_ATTN_PARAMS_H

struct fa_attn_params {
    const void *q; /* [batch, heads_q,  seq_q, head_dim] */
    const void *k; /* [batch, heads_kv, seq_k, head_dim] */
    const void *v; /* [batch, heads_kv, seq_k, head_dim] */
    void *o;       /* [batch, heads_q,  seq_q, head_dim] */
    float *lse;    /* [batch, heads_q, seq_q] contiguous, natural log; null: not wanted */
    long long q_batch_stride, q_head_stride, q_row_stride;
    long long k_batch_stride, k_head_stride, k_row_stride;
    long long v_batch_stride, v_head_stride, v_row_stride;
    long long o_batch_stride, o_head_stride, o_row_stride;
    int batch, heads_q, heads_kv; /* heads_q is a multiple of heads_kv */
    int seq_q, seq_k;             /* 0 or more; seq_k may be 0: O = 0, LSE = -inf */
    int causal_offset;            /* CAUSAL=1: key j is visible to query i when j <= i + causal_offset */
    float softmax_scale;          /* scores are scale * q.k */
    float softmax_scale_log2;     /* softmax_scale * log2(e) */
};

#endif
