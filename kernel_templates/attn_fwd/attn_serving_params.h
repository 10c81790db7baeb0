/* SPDX-License-Identifier: Apache-2.0
 *
 * The one argument of the attention kernels that serving engines call, passed by value: dense attention's,
 * then what comes beside it. docs/serving.md has the contract.
 *
 * Included by the kernel templates and by the host code that fills it in. A kernel may take this struct or
 * fa_attn_params alone; the host reads in the cubin which. What a problem does not ask for is null, 0 or as
 * stated, and must not be read. Lengths, tables and scales lie in device memory: the host does not know them.
 */
#ifndef FA_ATTN_SERVING_PARAMS_H
#define FA_ATTN_SERVING_PARAMS_H

#include "attn_params.h"

enum { FA_ATTN_BUFFERS = 8, FA_ATTN_BUFFER_DIMS = 4 };
/* A key of fp8_ds_mla in bytes: 512 numbers of e4m3, an fp32 scale for each 128 of them, 64 numbers of bf16; its end. */
enum { FA_DS_MLA_SCALES = 512, FA_DS_MLA_ROPE = 528, FA_DS_MLA_BYTES = 656 };

/* What a user's score or mask reads: a tensor or a number, in the order of the problem's buffers. */
struct fa_attn_buffer_params {
    union {
        const void *at;
        float real;
        int whole;
    };
    long long stride[FA_ATTN_BUFFER_DIMS]; /* in elements */
    int last[FA_ATTN_BUFFER_DIMS];         /* the largest index */
};

struct fa_attn_serving_params {
    /* seq_q, seq_k: the most of any sequence. PAGED: k_batch_stride, v_batch_stride are strides of a page.
     * VARLEN_Q: q_batch_stride, o_batch_stride are not used; query i of sequence b is row cu_seqlens_q[b] + i.
     * LENGTHS_K = 1 without PAGED: likewise those of K and V, by cu_seqlens_k. lse is [batch, heads_q, seq_q],
     * with VARLEN_Q [heads_q, total_q]. causal_offset holds where both lengths are fixed; else it is
     * keys of the sequence - queries of the sequence. */
    struct fa_attn_params dense;
    const int *cu_seqlens_q;        /* [batch + 1]; VARLEN_Q = 1 */
    const int *cu_seqlens_k;        /* [batch + 1]; LENGTHS_K = 1 */
    const int *seqused_k;           /* [batch]; LENGTHS_K = 2 */
    const int *block_table;         /* [batch, block_table_stride]; PAGED = 1 */
    const float *sinks;             /* [heads_q], natural-log units; SINKS = 1 */
    const float *k_scale, *v_scale; /* KV_FP8 = 1: value = stored * scale */
    void *workspace;                /* the launches' scratch, of the manifest's "workspace" bytes: its content is unknown */
    unsigned int *counters;         /* the manifest's "counters": zeros, and zeros again when the launches end. The library's
                                       own, for one stream or one captured graph */
    long long block_table_stride;   /* in entries */
    int k_scale_batch_stride, k_scale_head_stride, v_scale_batch_stride, v_scale_head_stride;
    int page_size;                  /* keys of a page; PAGE_SIZE, too, is defined */
    int num_pages;                  /* pages of the pool: an index outside is never followed */
    int total_q, total_k;           /* rows of q and of k where they are packed behind one another */
    int window_left, window_right;  /* WINDOW = 1; -1: no limit. Key j is visible to query i when
                                       i + off - left <= j <= i + off + right, off = causal_offset: 0 for
                                       a mask of the top left, else keys - queries; CAUSAL = 1 comes on top */
    float softcap;                  /* SOFTCAP = 1: s = softcap * tanh(scale * q.k / softcap), before the mask */
    float cap_shift, cap_rest, cap_slope; /* SOFTCAP = 1: with x = q.k and y = x * x + cap_shift, log2 e * s is
                                       x * cap_slope * (y * y + cap_rest), off by 8.3e-6 of itself at most, where
                                       |scale * x / softcap| <= 0.42. Computed by the host, for a kernel's
                                       arithmetic takes arguments as operands without a register's read */
    int splits;                     /* of the manifest's "splits", 1 or more */
#ifndef __CUDACC__
    struct fa_attn_buffer_params buffer[FA_ATTN_BUFFERS]; /* a kernel takes as many as its problem has */
#elif BUFFER_COUNT > 0
    struct fa_attn_buffer_params buffer[BUFFER_COUNT];
#endif
};

#ifdef __CUDACC__
/* What a family's manifest does not take has no macro: it is off. */
#ifndef VARLEN_Q
#define VARLEN_Q 0
#endif
#ifndef LENGTHS_K
#define LENGTHS_K 0 /* 0: fixed, 1: cu_seqlens_k, 2: seqused_k */
#endif
#ifndef PAGE_SIZE
#define PAGE_SIZE 0
#endif
#define PAGED (PAGE_SIZE > 0)
#ifndef WINDOW
#define WINDOW 0
#endif
#ifndef BUFFER_COUNT
#define BUFFER_COUNT 0
#endif
#ifndef SOFTCAP
#define SOFTCAP 0
#endif
#ifndef SINKS
#define SINKS 0
#endif
#ifndef KV_FP8
#define KV_FP8 0
#endif
#ifndef BATCH_INVARIANT
#define BATCH_INVARIANT 0
#endif
#if !defined(HEAD_DIM_V) || HEAD_DIM_V == 0
#undef HEAD_DIM_V
#define HEAD_DIM_V HEAD_DIM
#endif
#endif

#endif
