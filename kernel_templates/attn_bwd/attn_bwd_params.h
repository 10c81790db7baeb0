/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of every attention backward kernel, passed by value, as operation.json implies it: the addresses of
 * the tensors, the strides of those that are strided, the scalars, the integer fields.
 *
 * Strides are in elements: batch, head, row; the last dimension has stride 1. With the define ALIGNED=1 every address of a
 * strided tensor is 16-byte aligned and every stride a multiple of 8 elements.
 */
#ifndef FA_ATTN_BWD_PARAMS_H
#define FA_ATTN_BWD_PARAMS_H

#if BUFFER_COUNT > 0 && defined __CUDACC__
#include "attn_serving_params.h"
#endif

struct fa_attn_bwd_strides {
    long long batch, head, row;
};

struct fa_attn_bwd_head_strides {
    long long batch, head;
};

/* VARLEN=1: the rows of all sequences lie behind one another, seq_q and seq_k in all, as if the batch were one; batch counts the
 * sequences. */
struct fa_attn_bwd_params {
    const void *q;      /* [batch, heads_q,  seq_q, head_dim] */
    const void *k;      /* [batch, heads_kv, seq_k, head_dim] */
    const void *v;      /* [batch, heads_kv, seq_k, head_dim_v] */
    const void *o;      /* [batch, heads_q,  seq_q, head_dim_v], what forward wrote */
    const float *lse;   /* [batch, heads_q, seq_q], natural log, the sink included; -inf: the row sees no key */
    const float *sinks; /* [heads_q], natural log; SINKS=1 */
    const void *d_o;    /* [batch, heads_q,  seq_q, head_dim_v] */
    void *dq, *dk, *dv; /* as q, k and v */
    float *d_sinks;     /* [heads_q]; 0 without sinks; null: not wanted */
    const int *cu_seqlens_q, *cu_seqlens_k; /* [batch + 1], where each sequence begins and the last one ends; VARLEN=1 */
#if D_LSE
    const float *d_lse; /* [batch, heads_q, seq_q], the gradient of lse; not read where lse is -inf */
#endif
    struct fa_attn_bwd_strides q_strides, k_strides, v_strides, o_strides;
    struct fa_attn_bwd_head_strides lse_strides;
    struct fa_attn_bwd_strides d_o_strides, dq_strides, dk_strides, dv_strides;
#if D_LSE
    struct fa_attn_bwd_head_strides d_lse_strides;
#endif
    float softmax_scale; /* scores are scale * q.k */
    float softcap;       /* SOFTCAP=1: and then softcap * tanh(score / softcap) */
    int head_dim, head_dim_v;
    int batch, heads_q, heads_kv; /* heads_q is a multiple of heads_kv */
    int seq_q, seq_k;
    int window_left, window_right; /* WINDOW=1: keys beside a query's own place that it sees; < 0: all */
#if BUFFER_COUNT > 0
    int d_elements; /* room for so many elements of gradients */
    struct fa_attn_buffer_params buffer[BUFFER_COUNT]; /* what a user's score and mask read */
    float *d_buffer[BUFFER_COUNT]; /* the gradient, its elements behind one another; null: not wanted */
#endif
};

#endif
