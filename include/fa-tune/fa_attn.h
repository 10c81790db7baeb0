/* SPDX-License-Identifier: Apache-2.0
 *
 * What a caller of attention forward passes to fa_launch. Public; fa_tune.h includes it.
 */
#ifndef FA_ATTN_H
#define FA_ATTN_H

#include "fa_types.h"

/* Strides in elements, of the batch, head and row (sequence) dimensions; the last stride is 1.
 * A tensor whose three strides are all 0 is contiguous in the problem's layout. Strides are less than 2^48, either way. */
typedef struct fa_attn_args {
    size_t size;           /* sizeof(fa_attn_args) */
    const void *q, *k,
        *v; /* device pointers; with problem.v_in_k v is k, and its strides are not read */
    void *o;
    float *lse;            /* [batch, heads_q, seq_q] contiguous, natural log; NULL: not wanted. With
                              problem.varlen [heads_q, total_q] */
    int64_t q_stride[3], k_stride[3], v_stride[3], o_stride[3];
    float softmax_scale;   /* positive; 0: 1/sqrt(head_dim) */
    /* What problems beyond dense tensors take besides; otherwise it is not read. All of it lies in
     * device memory and is read when the kernel runs, but for numbers. docs/serving.md has the contract. */
    const int32_t *cu_seqlens_q; /* [batch + 1]; problem.varlen. q, o: [total_q, heads_q, head_dim] */
    const int32_t *cu_seqlens_k; /* [batch + 1]; FA_LENGTHS_CU_SEQLENS. k, v, unless they are paged:
                                    [total_k, heads_kv, head_dim] */
    const int32_t *seqused_k;    /* [batch]; FA_LENGTHS_SEQUSED */
    const int32_t *block_table;  /* [batch, block_table_stride]; problem.page. k, v: [num_pages, page,
                                    heads_kv, head_dim], or heads before keys, by the strides */
    const float *sinks;          /* [heads_q], natural log; problem.sinks */
    const float *k_scale, *v_scale; /* FA_KV_FP8: a value is the stored number times its scale */
    int64_t block_table_stride; /* in entries; 0: as many pages as seq_k needs. FA_LENGTHS_FIXED: at
                                    least that many */
    int64_t k_scale_stride[2], v_scale_stride[2]; /* of batch and head; both 0: one for the tensor */
    int32_t num_pages;           /* of the pool: entries of block_table beyond are never followed */
    int32_t total_q, total_k;    /* rows of q, and of k where cu_seqlens_k tells its lengths */
    float softcap;               /* problem.softcap: positive */
    void *workspace; /* fa_kernel_workspace bytes, 256-byte aligned, of any content, for this
                                    launch alone; NULL: the library's memory for the stream */
    size_t workspace_bytes;
} fa_attn_args;

#endif
