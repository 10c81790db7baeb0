/* SPDX-License-Identifier: Apache-2.0
 *
 * What serving engines pass beyond dense tensors: checked by what the problem asks for, and handed on.
 *
 * Workload: each attention layer of every step, from any thread. Nothing is allocated, nothing waits, and
 * nothing in device memory is read: lengths and tables may still be on their way.
 */
#include "launch_serving.h"

#include "error.h"

#include <math.h>
#include <stddef.h>

size_t fa_kernel_workspace(const fa_kernel *kernel)
{
    return kernel != NULL && kernel->call != NULL ? (size_t)kernel->call->launches.workspace_bytes
                                                  : 0;
}

/* Whether the caller's structure goes to its end; what he knows nothing of is not read. */
static bool is_whole(const fa_attn_args *args)
{
    return args->size >= offsetof(fa_attn_args, workspace_bytes) + sizeof args->workspace_bytes;
}

int fa_launch_workspace(const fa_kernel *kernel, const fa_attn_args *args, fa_device_ptr *ret_at,
                        fa_diag *diag)
{
    size_t needed = fa_kernel_workspace(kernel);
    *ret_at = kernel->call != NULL ? kernel->call->workspace : 0;
    if (needed == 0 || !is_whole(args) || args->workspace == NULL)
        return 0;
    if (args->workspace_bytes < needed || (uintptr_t)args->workspace % 256 != 0)
        return fa_fail(diag, FA_EINVAL,
                       "the workspace of %zu bytes at %p will not do: fa_kernel_workspace says "
                       "%zu bytes, 256-byte aligned",
                       args->workspace_bytes, args->workspace, needed);
    *ret_at = (fa_device_ptr)(uintptr_t)args->workspace;
    return 0;
}

/* The pointers and numbers that the problem's fields ask for. */
static int check(const fa_problem *p, const fa_attn_args *args, fa_diag *diag)
{
    const bool cu_k = p->lengths_k == FA_LENGTHS_CU_SEQLENS;
    const bool used = p->lengths_k == FA_LENGTHS_SEQUSED, fp8 = p->kv_dtype == FA_KV_FP8;
    const struct {
        bool asked, there;
        const char *name, *field;
    } rows[] = {
        {p->varlen, args->cu_seqlens_q != NULL, "cu_seqlens_q", "varlen"},
        {p->varlen, args->total_q >= 0, "total_q", "varlen"},
        {cu_k, args->cu_seqlens_k != NULL, "cu_seqlens_k", "lengths_k"},
        {cu_k && p->page == 0, args->total_k >= 0, "total_k", "lengths_k"},
        {used, args->seqused_k != NULL, "seqused_k", "lengths_k"},
        {p->page > 0 && p->seq_k > 0, args->block_table != NULL, "block_table", "page"},
        {p->page > 0 && p->seq_k > 0, args->num_pages > 0, "num_pages", "page"},
        {p->page > 0, args->block_table_stride >= 0, "block_table_stride", "page"},
        {p->sinks, args->sinks != NULL, "sinks", "sinks"},
        {p->softcap, args->softcap > 0 && isfinite(args->softcap), "softcap", "softcap"},
        {fp8, args->k_scale != NULL, "k_scale", "kv_dtype"},
        {fp8, args->v_scale != NULL, "v_scale", "kv_dtype"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].asked && !rows[i].there)
            return fa_fail(diag, FA_EINVAL,
                           "args->%s is missing or out of range: problem.%s asks for it",
                           rows[i].name, rows[i].field);
    return 0;
}

static void take(const fa_problem *p, const fa_attn_args *args, struct fa_attn_serving_params *to)
{
    int64_t pages = p->page > 0 ? ((int64_t)p->seq_k + p->page - 1) / p->page : 0;
    to->cu_seqlens_q = args->cu_seqlens_q;
    to->cu_seqlens_k = args->cu_seqlens_k;
    to->seqused_k = args->seqused_k;
    to->block_table = args->block_table;
    to->block_table_stride = args->block_table_stride > 0 ? args->block_table_stride : pages;
    to->sinks = args->sinks;
    to->k_scale = args->k_scale;
    to->v_scale = args->v_scale;
    to->k_scale_batch_stride = (int)args->k_scale_stride[0];
    to->k_scale_head_stride = (int)args->k_scale_stride[1];
    to->v_scale_batch_stride = (int)args->v_scale_stride[0];
    to->v_scale_head_stride = (int)args->v_scale_stride[1];
    to->page_size = p->page;
    to->num_pages = args->num_pages;
    to->total_q = args->total_q;
    to->total_k = args->total_k;
    to->window_left = p->window ? p->window_left : -1;
    to->window_right = p->window ? p->window_right : -1;
    to->softcap = args->softcap;
}

/* Whether the problem is dense: then the arguments of an earlier version do. */
static bool is_dense(const fa_problem *p)
{
    return !p->varlen && p->lengths_k == FA_LENGTHS_FIXED && p->page == 0 && !p->window &&
           !p->softcap && !p->sinks && p->kv_dtype == FA_KV_SAME;
}

int fa_launch_serving(const fa_kernel *kernel, const fa_attn_args *args,
                      const struct fa_attn_params *dense, void *stream, fa_diag *diag)
{
    struct fa_attn_serving_params params = {
        .dense = *dense, .window_left = -1, .window_right = -1, .splits = 1};
    fa_device_ptr workspace = 0;
    if (!is_dense(&kernel->problem)) {
        if (!is_whole(args))
            return fa_fail(diag, FA_EINVAL,
                           "args->size is that of an earlier version, which knows dense "
                           "problems only");
        int rc = check(&kernel->problem, args, diag);
        if (rc != 0)
            return rc;
        take(&kernel->problem, args, &params);
    }
    int rc = fa_launch_workspace(kernel, args, &workspace, diag);
    params.workspace = (void *)(uintptr_t)workspace;
    struct fa_attn_tensor_maps maps;
    if (rc == 0 && kernel->maps != NULL)
        rc = fa_map_cache_get(kernel->maps, kernel->driver, &params.dense, &maps, diag);
    if (rc != 0)
        return rc;
    void *arguments[] = {&params, &maps};
    if (kernel->call == NULL)
        return fa_launch_kernel(kernel->driver, kernel->function, kernel->grid, kernel->threads,
                                kernel->smem_bytes, stream, arguments, diag);
    const struct fa_call *call = kernel->call;
    params.splits = call->launches.splits;
    for (int i = 0; rc == 0 && i < call->launches.count; i++) {
        const fa_launch_shape *launch = &call->launches.at[i];
        rc = fa_launch_kernel(kernel->driver, call->function[i], launch->grid,
                              (uint32_t)launch->threads, (uint32_t)launch->smem_bytes, stream,
                              arguments, diag);
    }
    return rc;
}
