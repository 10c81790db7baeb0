/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of a kernel on the caller's stream.
 *
 * Workload: each attention layer of every step, from any thread. Nothing is allocated and nothing waits.
 */
#include "attn_params.h"
#include "error.h"
#include "kernel_table.h"
#include "launch_serving.h"

#include <math.h>
#include <stddef.h>

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

/* All launches of a call; the address of its workspace is the last argument. */
static int launch_call(const fa_kernel *kernel, const fa_attn_args *args, void *arguments[3],
                       void *stream, fa_diag *diag)
{
    const struct fa_call *call = kernel->call;
    fa_device_ptr workspace = 0;
    int rc = fa_launch_workspace(kernel, args, &workspace, diag);
    arguments[kernel->maps != NULL ? 2 : 1] = &workspace;
    for (int i = 0; rc == 0 && i < call->launches.count; i++) {
        const fa_launch_shape *launch = &call->launches.at[i];
        rc = fa_launch_kernel(kernel->driver, call->function[i], launch->grid,
                              (uint32_t)launch->threads, (uint32_t)launch->smem_bytes, stream,
                              arguments, diag);
    }
    return rc;
}

int fa_launch(const fa_kernel *kernel, const fa_attn_args *args, void *stream, fa_diag *diag)
{
    if (kernel == NULL || args == NULL || args->size < offsetof(fa_attn_args, cu_seqlens_q))
        return fa_fail(diag, FA_EINVAL,
                       "kernel or args is NULL, or args->size is not sizeof(fa_attn_args)");
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
    uint64_t strides = take_strides(args->q_stride, kernel->q_stride, &params.q_batch_stride,
                                    &params.q_head_stride, &params.q_row_stride) |
                       take_strides(args->k_stride, kernel->k_stride, &params.k_batch_stride,
                                    &params.k_head_stride, &params.k_row_stride) |
                       take_strides(args->v_stride, kernel->k_stride, &params.v_batch_stride,
                                    &params.v_head_stride, &params.v_row_stride) |
                       take_strides(args->o_stride, kernel->q_stride, &params.o_batch_stride,
                                    &params.o_head_stride, &params.o_row_stride);
    uintptr_t pointers =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    if (!problem->unaligned && (strides % 8 != 0 || pointers % 16 != 0))
        return fa_fail(diag, FA_EALIGN,
                       "q, k, v and o must be 16-byte aligned with strides in multiples of 8 "
                       "elements: ask for the kernel with problem.unaligned = true");
    if (pointers % 2 != 0 || (uintptr_t)args->lse % 4 != 0)
        return fa_fail(diag, FA_EALIGN, "a pointer is not aligned to its element");
    if (kernel->serving)
        return fa_launch_serving(kernel, args, &params, stream, diag);
    struct fa_attn_tensor_maps maps;
    int rc = kernel->maps == NULL
                 ? 0
                 : fa_map_cache_get(kernel->maps, kernel->driver, &params, &maps, diag);
    if (rc != 0)
        return rc;
    void *arguments[] = {&params, &maps, NULL}; /* the driver reads as many as the kernel takes */
    if (kernel->call != NULL)
        return launch_call(kernel, args, arguments, stream, diag);
    return fa_launch_kernel(kernel->driver, kernel->function, kernel->grid, kernel->threads,
                            kernel->smem_bytes, stream, arguments, diag);
}
