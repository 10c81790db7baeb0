/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of a kernel on the caller's stream.
 *
 * Workload: each attention layer of every step. Nothing is allocated and nothing waits.
 */
#include "attn_params.h"
#include "error.h"
#include "kernel_table.h"

#include <math.h>

/* Strides of [batch, heads, seq, head_dim] in elements: batch, head, row. */
static void contiguous(const fa_problem *p, int32_t heads, int32_t seq, int64_t ret_stride[3])
{
    ret_stride[0] = (int64_t)heads * seq * p->head_dim;
    ret_stride[1] = p->layout == FA_BHSD ? (int64_t)seq * p->head_dim : p->head_dim;
    ret_stride[2] = p->layout == FA_BHSD ? p->head_dim : (int64_t)heads * p->head_dim;
}

/* Copies strides, or the contiguous ones where all are 0; gathers their low bits for the check. */
static uint64_t take_strides(const int64_t given[3], const int64_t whole[3], long long *batch,
                             long long *head, long long *row)
{
    const int64_t *stride = (given[0] | given[1] | given[2]) == 0 ? whole : given;
    *batch = stride[0];
    *head = stride[1];
    *row = stride[2];
    return (uint64_t)(stride[0] | stride[1] | stride[2]);
}

int fa_launch(const fa_kernel *kernel, const fa_attn_args *args, void *stream, fa_diag *diag)
{
    if (kernel == NULL || args == NULL)
        return fa_fail(diag, FA_EINVAL, "kernel or args is NULL");
    if (kernel->empty)
        return 0;
    const fa_problem *problem = &kernel->problem;
    bool no_keys = problem->seq_k == 0;
    if (args->q == NULL || args->o == NULL || (!no_keys && (args->k == NULL || args->v == NULL)))
        return fa_fail(diag, FA_EINVAL, "q, k, v or o is NULL");
    float scale =
        args->softmax_scale != 0.0f ? args->softmax_scale : 1.0f / sqrtf((float)problem->head_dim);
    float scale_log2 = scale * 1.44269504088896340736f;
    if (!(scale > 0) || !isfinite(scale_log2)) /* kernels take the maximum before they scale */
        return fa_fail(diag, FA_EINVAL, "softmax_scale must be positive, at most 2e38");
    struct fa_attn_params params = {.q = args->q,
                                    .k = args->k,
                                    .v = args->v,
                                    .o = args->o,
                                    .lse = args->lse,
                                    .batch = problem->batch,
                                    .heads_q = problem->heads_q,
                                    .heads_kv = problem->heads_kv,
                                    .seq_q = problem->seq_q,
                                    .seq_k = problem->seq_k,
                                    .causal_offset = kernel->causal_offset,
                                    .softmax_scale = scale,
                                    .softmax_scale_log2 = scale_log2};
    int64_t q_whole[3], k_whole[3];
    contiguous(problem, problem->heads_q, problem->seq_q, q_whole);
    contiguous(problem, problem->heads_kv, problem->seq_k, k_whole);
    uint64_t strides = take_strides(args->q_stride, q_whole, &params.q_batch_stride,
                                    &params.q_head_stride, &params.q_row_stride) |
                       take_strides(args->k_stride, k_whole, &params.k_batch_stride,
                                    &params.k_head_stride, &params.k_row_stride) |
                       take_strides(args->v_stride, k_whole, &params.v_batch_stride,
                                    &params.v_head_stride, &params.v_row_stride) |
                       take_strides(args->o_stride, q_whole, &params.o_batch_stride,
                                    &params.o_head_stride, &params.o_row_stride);
    uintptr_t pointers =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    if (!problem->unaligned && (strides % 8 != 0 || pointers % 16 != 0))
        return fa_fail(diag, FA_EALIGN,
                       "q, k, v and o must be 16-byte aligned with strides in multiples of 8 "
                       "elements: ask for the kernel with problem.unaligned = true");
    if (pointers % 2 != 0 || (uintptr_t)args->lse % 4 != 0)
        return fa_fail(diag, FA_EALIGN, "a pointer is not aligned to its element");
    struct fa_attn_tensor_maps maps;
    int rc =
        kernel->loaded->maps == NULL
            ? 0
            : fa_map_cache_get(kernel->loaded->maps, kernel->loaded->driver, &params, &maps, diag);
    if (rc != 0)
        return rc;
    void *arguments[] = {&params, &maps}; /* the driver reads as many as the kernel takes */
    const fa_trial *trial = &kernel->answer->trial;
    return fa_launch_kernel(kernel->loaded->driver, kernel->loaded->function, kernel->grid,
                            (uint32_t)trial->threads, (uint32_t)trial->smem_bytes, stream,
                            arguments, diag);
}
