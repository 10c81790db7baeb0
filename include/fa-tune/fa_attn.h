/* SPDX-License-Identifier: Apache-2.0
 *
 * What a caller of attention forward passes to fa_launch. Public; fa_tune.h includes it.
 */
#ifndef FA_ATTN_H
#define FA_ATTN_H

#include "fa_types.h"

/* Strides in elements, of the batch, head and row (sequence) dimensions; the last stride is 1.
 * A tensor whose three strides are all 0 is contiguous in the problem's layout. */
typedef struct fa_attn_args {
    size_t size;           /* sizeof(fa_attn_args) */
    const void *q, *k, *v; /* device pointers */
    void *o;
    float *lse;            /* [batch, heads_q, seq_q] contiguous, natural log; NULL: not wanted */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    float softmax_scale;   /* positive; 0: 1/sqrt(head_dim) */
} fa_attn_args;

#endif
