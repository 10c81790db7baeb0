/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of serving engines: checked by what the problem asks for, and handed on.
 *
 * Workload: each attention layer of every step.
 */
#include "attn_serving.h"

#include "../../src/base/error.h"

#include <math.h>

bool fa_attn_is_dense(const fa_problem *p)
{
    return !p->varlen && p->lengths_k == FA_LENGTHS_FIXED && p->page == 0 && !p->window &&
           !p->softcap && !p->sinks && p->kv_dtype == FA_KV_SAME && p->head_dim_v == 0;
}

/* The pointers and numbers that the problem's fields ask for. */
static int check_arguments(const fa_problem *p, const fa_attn_args *args, fa_diag *diag)
{
    const bool cu_k = p->lengths_k == FA_LENGTHS_CU_SEQLENS, paged = p->page > 0;
    const bool fp8 = p->kv_dtype == FA_KV_FP8, keys = p->seq_k > 0;
    const struct {
        bool asked, there;
        const char *name, *field;
    } rows[] = {
        {p->varlen, args->cu_seqlens_q != NULL, "cu_seqlens_q", "varlen"},
        {p->varlen, args->total_q >= 0, "total_q", "varlen"},
        {cu_k, args->cu_seqlens_k != NULL, "cu_seqlens_k", "lengths_k"},
        {cu_k && !paged, args->total_k >= 0, "total_k", "lengths_k"},
        {p->lengths_k == FA_LENGTHS_SEQUSED, args->seqused_k != NULL, "seqused_k", "lengths_k"},
        {paged && keys, args->block_table != NULL, "block_table", "page"},
        {paged && keys, args->num_pages > 0, "num_pages", "page"},
        {paged, args->block_table_stride >= 0, "block_table_stride", "page"},
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

void fa_attn_window_take(const fa_problem *problem, struct fa_attn_serving_params *params)
{
    params->window_left = problem->window ? problem->window_left : -1;
    params->window_right = problem->window ? problem->window_right : -1;
}

static void take_arguments(const fa_problem *p, const fa_attn_args *args,
                           struct fa_attn_serving_params *to)
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
    fa_attn_window_take(p, to);
    to->softcap = args->softcap;
}

int fa_attn_serving_take(const fa_call *call, const fa_problem *problem, const fa_attn_args *args,
                         fa_call_memory memory, struct fa_attn_serving_params *params,
                         fa_diag *diag)
{
    *params = (struct fa_attn_serving_params){
        .dense = params->dense,
        .workspace = (void *)(uintptr_t)memory.workspace,
        .counters = (unsigned int *)(uintptr_t)memory.counters,
        .window_left = -1,
        .window_right = -1,
        .splits = call->composed != NULL ? call->composed->launches.splits : 1};
    if (fa_attn_is_dense(problem))
        return 0;
    if (args == NULL)
        return fa_fail(diag, FA_EINVAL,
                       "args->size is that of an earlier version, which knows dense problems only");
    int rc = check_arguments(problem, args, diag);
    if (rc == 0)
        take_arguments(problem, args, params);
    return rc;
}
