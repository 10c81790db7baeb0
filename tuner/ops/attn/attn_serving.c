/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of serving engines: checked by what the problem asks for, and handed on.
 *
 * Workload: each attention layer of every step.
 */
#include "attn_launch.h"

#include "error.h"

#include <math.h>

bool fa_attn_is_dense(const fa_problem *p)
{
    return !p->varlen && p->lengths_k == FA_LENGTHS_FIXED && p->page == 0 && !p->window &&
           !p->softcap && !p->sinks && p->kv_dtype == FA_KV_SAME && p->head_dim_v == 0;
}

/* Pages of the longest sequence. */
static int64_t pages_of(const fa_problem *p)
{
    return p->page > 0 ? ((int64_t)p->seq_k + p->page - 1) / p->page : 0;
}

/* A kernel takes scales' strides as 32-bit numbers, and multiplies that of the heads as such. */
static bool fits_32_bits(int64_t stride, int64_t count)
{
    int64_t reach;
    return !__builtin_mul_overflow(stride, count, &reach) && reach <= INT32_MAX &&
           reach >= -INT32_MAX;
}

static int check_strides(const fa_problem *p, const fa_attn_args *args, fa_diag *diag)
{
    /* Where the device knows the lengths, no sequence need be as long as the problem says. */
    int64_t table = args->block_table_stride;
    int64_t needed = p->lengths_k == FA_LENGTHS_FIXED && p->batch > 1 ? pages_of(p) : 0;
    if (p->page > 0 && table != 0 && (table < needed || table > FA_ATTN_STRIDE_LIMIT))
        return fa_fail(diag, FA_EINVAL,
                       "args->block_table_stride is %lld: a row of the table has %lld entries or "
                       "more, at most 2^48",
                       (long long)table, (long long)needed);
    if (p->kv_dtype == FA_KV_FP8 &&
        !(fits_32_bits(args->k_scale_stride[0], 1) && fits_32_bits(args->v_scale_stride[0], 1) &&
          fits_32_bits(args->k_scale_stride[1], p->heads_kv) &&
          fits_32_bits(args->v_scale_stride[1], p->heads_kv)))
        return fa_fail(
            diag, FA_EINVAL,
            "args->k_scale_stride or v_scale_stride is too large: the scales of a sequence "
            "must lie within 2^31 elements");
    return 0;
}

/* The pointers and numbers that the problem's fields ask for. */
static int check_arguments(const fa_problem *p, const fa_attn_args *args, fa_diag *diag)
{
    const bool cu_k = p->lengths_k == FA_LENGTHS_CU_SEQLENS, paged = p->page > 0;
    const bool fp8 = p->kv_dtype == FA_KV_FP8, keys = p->seq_k > 0;
    const struct {
        bool asked, there;
        const char *name, *field;
        const void *at; /* NULL: a number */
    } rows[] = {
        {p->varlen, args->cu_seqlens_q != NULL, "cu_seqlens_q", "varlen", args->cu_seqlens_q},
        {p->varlen, args->total_q >= 0, "total_q", "varlen", NULL},
        {cu_k, args->cu_seqlens_k != NULL, "cu_seqlens_k", "lengths_k", args->cu_seqlens_k},
        {cu_k && !paged, args->total_k >= 0, "total_k", "lengths_k", NULL},
        {p->lengths_k == FA_LENGTHS_SEQUSED, args->seqused_k != NULL, "seqused_k", "lengths_k",
         args->seqused_k},
        {paged && keys, args->block_table != NULL, "block_table", "page", args->block_table},
        {paged && keys, args->num_pages > 0, "num_pages", "page", NULL},
        {p->sinks, args->sinks != NULL, "sinks", "sinks", args->sinks},
        {p->softcap, args->softcap > 0 && isfinite(args->softcap), "softcap", "softcap", NULL},
        {fp8, args->k_scale != NULL, "k_scale", "kv_dtype", args->k_scale},
        {fp8, args->v_scale != NULL, "v_scale", "kv_dtype", args->v_scale},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].asked)
            continue;
        if (!rows[i].there)
            return fa_fail(diag, FA_EINVAL,
                           "args->%s is missing or out of range: problem.%s asks for it",
                           rows[i].name, rows[i].field);
        if ((uintptr_t)rows[i].at % 4 != 0)
            return fa_fail(diag, FA_EALIGN, "args->%s at %p is not aligned to 4 bytes",
                           rows[i].name, rows[i].at);
    }
    return check_strides(p, args, diag);
}

void fa_attn_window_take(const fa_problem *problem, struct fa_attn_serving_params *params)
{
    params->window_left = problem->window ? problem->window_left : -1;
    params->window_right = problem->window ? problem->window_right : -1;
}

/* tanh(t) is t * (a0 + a1 * t^2 + a2 * t^4) for |t| <= 0.42 (least squares, weighted anew until the largest relative errors are
 * equal): a2 * t * ((t^2 + a1 / (2 * a2))^2 + a0 / a2 - (a1 / (2 * a2))^2), in which t is rate * q.k. */
void fa_attn_softcap_take(float softcap, struct fa_attn_serving_params *params)
{
    static const double a0 = 0.99999171, a1 = -0.33248131, a2 = 0.12013641,
                        log2_e = 1.4426950408889634;
    double rate = (double)params->dense.softmax_scale / (double)softcap, square = rate * rate,
           middle = a1 / (2 * a2);
    params->softcap = softcap;
    params->cap_shift = (float)(middle / square);
    params->cap_rest = (float)((a0 / a2 - middle * middle) / (square * square));
    params->cap_slope = (float)(a2 * log2_e * (double)softcap * rate * square * square);
}

static void take_arguments(const fa_problem *p, const fa_attn_args *args,
                           struct fa_attn_serving_params *to)
{
    to->cu_seqlens_q = args->cu_seqlens_q;
    to->cu_seqlens_k = args->cu_seqlens_k;
    to->seqused_k = args->seqused_k;
    to->block_table = args->block_table;
    to->block_table_stride = args->block_table_stride > 0 ? args->block_table_stride : pages_of(p);
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
    if (p->softcap)
        fa_attn_softcap_take(args->softcap, to);
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
