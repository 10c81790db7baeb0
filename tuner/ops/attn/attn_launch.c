/* SPDX-License-Identifier: Apache-2.0
 *
 * From fa_attn_args to what attention's kernels take: fa_attn_params and, for those that use TMA,
 * tensor maps.
 *
 * Workload: each attention layer of every step.
 */
#include "attn_launch.h"

#include "cubin.h"
#include "error.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct fa_tensor_map) == FA_TENSOR_MAP_BYTES, "a CUtensorMap");

enum { BOX_MAX = 256 };

static const int64_t STRIDE_MAX = ((int64_t)1 << 39) - 1; /* elements; in bytes below 2^40 */

/* ---- boxes ----------------------------------------------------------------------------------*/
/* Whether it takes fa_attn_serving_params, with any number of buffers. */
static bool is_serving(const fa_cubin_info *info)
{
    const int32_t buffers =
        info->parameter_size[0] - (int32_t)offsetof(struct fa_attn_serving_params, buffer);
    return info->parameter_count > 0 && buffers >= 0 &&
           buffers % (int32_t)sizeof(struct fa_attn_buffer_params) == 0 &&
           info->parameter_size[0] <= (int32_t)sizeof(struct fa_attn_serving_params);
}

/* Whether the entry takes fa_attn_params, then the maps if there are any, then the address of the
 * workspace if there is one, and nothing else; or fa_attn_serving_params, which has that address in it,
 * and the maps. One that uses none of them need not take them. */
static bool takes(const fa_cubin_info *info, bool maps, bool workspace)
{
    const bool serving = is_serving(info), address = workspace && !serving;
    const int32_t *size = info->parameter_size,
                  params = serving ? size[0] : (int32_t)sizeof(struct fa_attn_params);
    if (!maps && !address)
        return info->parameter_count <= 1 && size[0] <= params;
    return info->parameter_count == 1 + maps + address && size[0] == params &&
           (!maps || size[1] == sizeof(struct fa_attn_tensor_maps)) &&
           (!address || size[1 + maps] == sizeof(fa_device_ptr));
}

int fa_attn_boxes_read(const fa_cubin_entry *entry, struct fa_attn_boxes *ret_boxes,
                       bool *ret_serving, fa_diag *diag)
{
    struct fa_attn_boxes boxes = {0};
    fa_cubin_info info;
    FA_OR_RETURN(fa_cubin_read(entry->cubin, entry->size, entry->name, &info, diag));
    int rc = fa_cubin_constant(entry->cubin, entry->size, "fa_attn_boxes_wanted", &boxes,
                               sizeof boxes, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    const bool maps = rc == 0;
    const unsigned rows[] = {boxes.q_rows, boxes.q_heads, boxes.k_rows, boxes.v_rows, boxes.o_rows};
    bool possible = boxes.columns >= 16 && boxes.columns <= 128 && 128 % boxes.columns == 0;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        possible = possible && rows[i] >= 1 && rows[i] <= BOX_MAX;
    if (maps && !possible)
        return fa_fail(diag, FA_ECORRUPT,
                       "cubin wants tensor maps with boxes of %u columns and %u, %u, %u, %u and %u "
                       "rows: 16, 32, 64 or 128 columns and 1 to %d rows can be",
                       boxes.columns, rows[0], rows[1], rows[2], rows[3], rows[4], BOX_MAX);
    if (!takes(&info, maps, entry->workspace))
        return fa_fail(diag, FA_ECORRUPT,
                       "%s%s does not take just fa_attn_params (%zu bytes)%s%s%s",
                       maps ? "cubin wants tensor maps, but " : "", entry->name,
                       sizeof(struct fa_attn_params), maps ? " and fa_attn_tensor_maps" : "",
                       entry->workspace ? ", and then the address of its workspace" : "",
                       maps ? "" : ": one that takes tensor maps declares fa_attn_boxes_wanted");
    *ret_boxes = boxes;
    *ret_serving = is_serving(&info);
    return 0;
}

/* ---- maps -----------------------------------------------------------------------------------*/
/* A stride that is negative or too large becomes one that no driver takes. */
static void add_side(fa_tensor_shape *shape, int extent, unsigned box, long long stride, int factor)
{
    const bool fits = stride >= 0 && stride <= STRIDE_MAX;
    shape->extent[shape->rank] = (uint64_t)extent;
    shape->box[shape->rank] = box;
    shape->stride[shape->rank++ - 1] = fits ? (uint64_t)stride * (uint64_t)factor : UINT64_MAX;
}

/* Whether keys of all sequences lie behind one another. */
static bool packs_keys(const fa_problem *problem)
{
    return problem->lengths_k == FA_LENGTHS_CU_SEQLENS && problem->page == 0;
}

int fa_attn_maps_get(struct fa_attn_shared *shared, fa_driver *driver, const fa_problem *problem,
                     const struct fa_attn_serving_params *params, void *ret_maps, fa_diag *diag)
{
    const struct fa_attn_boxes *boxes = &shared->boxes;
    const struct fa_attn_params *p = &params->dense;
    const bool packed_q = problem->varlen, packed_k = packs_keys(problem),
               paged = problem->page > 0, fp8 = problem->kv_dtype == FA_KV_FP8;
    const int lengths[] = {packed_q ? params->total_q : 0, packed_k ? params->total_k : 0,
                           paged ? params->num_pages : 0};
    unsigned char key[sizeof *p + sizeof lengths];
    memcpy(key, p, sizeof *p);
    memset(key + offsetof(struct fa_attn_params, lse), 0, sizeof p->lse); /* fresh in each call */
    memcpy(key + sizeof *p, lengths, sizeof lengths);
    if (fa_maps_find(&shared->maps, key, sizeof key, 4, ret_maps))
        return 0;
    const int group = boxes->q_heads > 1 ? p->heads_q / p->heads_kv : 0;
    const int queries = packed_q ? params->total_q : p->seq_q, batch_q = packed_q ? 1 : p->batch;
    int keys = paged ? problem->page : packed_k ? params->total_k : p->seq_k;
    int heads_kv = p->heads_kv;
    int batch_k = paged ? params->num_pages : packed_k ? 1 : p->batch;
    const void *k_base = p->k, *v_base = p->v;
    if (p->seq_k == 0) { /* never loaded: one row of q stands in, for the pointers may be null */
        k_base = v_base = p->q;
        heads_kv = batch_k = keys = 1;
    }
    static const char *const name[] = {"q", "k", "v", "o"};
    const void *const base[] = {p->q, k_base, v_base, p->o};
    const bool bytes[] = {problem->q_dtype == FA_KV_FP8, fp8, fp8, false};
    const unsigned box_rows[] = {boxes->q_rows, boxes->k_rows, boxes->v_rows, boxes->o_rows};
    const uint32_t type = problem->dtype == FA_BF16 ? FA_MAP_BFLOAT16 : FA_MAP_FLOAT16;
    long long stride[4][3]; /* of batch, head and row */
    fa_tensor_shape shape[FA_MAPS_MAX] = {{0}};
    memcpy(stride, (const char *)p + 5 * sizeof(void *), sizeof stride);
    for (int i = 0; i < 4; i++) {
        const bool query = i % 3 == 0, groups = query && group > 0;
        const int size = bytes[i] ? 1 : 2, g = groups ? group : 1;
        const unsigned columns = boxes->columns > 64 && size == 2 ? 64 : boxes->columns;
        shape[i] = (fa_tensor_shape){.name = name[i],
                                     .base = (fa_device_ptr)(uintptr_t)base[i],
                                     .extent = {(uint64_t)fa_attn_columns(problem, i)},
                                     .box = {columns},
                                     .rank = 1,
                                     .type = bytes[i] ? FA_MAP_UINT8 : type,
                                     .swizzle = (uint16_t)(columns * (unsigned)size),
                                     .promotion = 256};
        if (groups)
            add_side(&shape[i], g, boxes->q_heads, stride[i][1], size);
        add_side(&shape[i], query ? queries : keys, box_rows[i], stride[i][2], size);
        add_side(&shape[i], (query ? p->heads_q : heads_kv) / g, 1, stride[i][1], size * g);
        add_side(&shape[i], query ? batch_q : batch_k, 1, stride[i][0], size);
    }
    int rc = fa_maps_make(&shared->maps, driver, key, sizeof key, 4, shape, ret_maps, diag);
    return rc != FA_EALIGN ? rc : fa_fail_in(diag, rc, "ask with problem.unaligned = true");
}

/* ---- the arguments of serving engines ---------------------------------------------------------*/
bool fa_attn_is_dense(const fa_problem *p)
{
    return !p->varlen && p->lengths_k == FA_LENGTHS_FIXED && p->page == 0 && !p->window &&
           !p->softcap && !p->sinks && p->kv_dtype == FA_KV_SAME && p->head_dim_v == 0 &&
           !p->v_in_k;
}

int32_t fa_attn_causal_offset(const fa_problem *p)
{
    return p->causal == FA_CAUSAL_TOP_LEFT ? 0 : p->seq_k - p->seq_q;
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

int fa_attn_serving_take(const fa_problem *problem, const struct fa_attn_shared *shared,
                         const fa_attn_args *args, struct fa_attn_serving_params *params,
                         fa_diag *diag)
{
    memset((char *)params + sizeof params->dense, 0,
           offsetof(struct fa_attn_serving_params, buffer) - sizeof params->dense);
    params->window_left = params->window_right = -1;
    fa_buffer own[FA_ATTN_BUFFERS];
    const bool same = shared != NULL && shared->buffers == problem->buffers;
    const int count =
        same ? shared->buffer_count : fa_buffers_read(fa_buffers_of(problem), own, diag);
    int rc = count < 0
                 ? count
                 : fa_buffers_take(same ? shared->buffer : own, count, args, params->buffer, diag);
    if (rc != 0 || fa_attn_is_dense(problem))
        return rc;
    FA_OR_RETURN(check_arguments(problem, args, diag));
    if (problem->v_in_k) {
        struct fa_attn_params *d = &params->dense;
        d->v = d->k;
        d->v_batch_stride = d->k_batch_stride;
        d->v_head_stride = d->k_head_stride;
        d->v_row_stride = d->k_row_stride;
    }
    params->cu_seqlens_q = args->cu_seqlens_q;
    params->cu_seqlens_k = args->cu_seqlens_k;
    params->seqused_k = args->seqused_k;
    params->block_table = args->block_table;
    params->block_table_stride =
        args->block_table_stride > 0 ? args->block_table_stride : pages_of(problem);
    params->sinks = args->sinks;
    params->k_scale = args->k_scale;
    params->v_scale = args->v_scale;
    params->k_scale_batch_stride = (int)args->k_scale_stride[0];
    params->k_scale_head_stride = (int)args->k_scale_stride[1];
    params->v_scale_batch_stride = (int)args->v_scale_stride[0];
    params->v_scale_head_stride = (int)args->v_scale_stride[1];
    params->page_size = problem->page;
    params->num_pages = args->num_pages;
    params->total_q = args->total_q;
    params->total_k = args->total_k;
    if (problem->window) {
        params->window_left = problem->window_left;
        params->window_right = problem->window_right;
    }
    if (problem->softcap)
        fa_attn_softcap_take(args->softcap, params);
    return 0;
}

/* ---- launches ---------------------------------------------------------------------------------*/
static void unload(void **shared)
{
    free(*shared);
    *shared = NULL;
}

static int attn_load(fa_module *module, const fa_problem *problem, const fa_cubin_entry *entry,
                     void **ret_shared, fa_diag *diag)
{
    (void)module;
    struct fa_attn_boxes boxes;
    bool serving = false;
    int rc = fa_attn_boxes_read(entry, &boxes, &serving, diag);
    if (rc != 0 || (boxes.columns == 0 && !serving))
        return rc;
    struct fa_attn_shared *shared = calloc(1, sizeof *shared);
    FA_OR_RETURN(fa_have(shared != NULL, "a kernel", diag));
    shared->serving = serving;
    shared->boxes = boxes;
    shared->buffers = problem->buffers; /* the source has been made of the list: it can be read */
    shared->buffer_count = fa_buffers_read(fa_buffers_of(problem), shared->buffer, NULL);
    atomic_flag_clear(&shared->maps.taken);
    *ret_shared = shared;
    return 0;
}

struct strides {
    int64_t batch, head, row;
};

/* Of a tensor that lies contiguous in the problem's layout; `seq` is a page's where there are pages. Sequences that are
 * `packed` behind one another lie as [total, heads, dim]. */
static inline struct strides contiguous(const fa_problem *problem, bool packed, int32_t heads,
                                        int32_t seq, int32_t dim)
{
    bool heads_first = problem->layout == FA_BHSD && !packed;
    int64_t of_heads = (int64_t)heads * dim, of_rows = (int64_t)seq * dim;
    return (struct strides){.batch = packed ? 0 : of_heads * seq,
                            .head = heads_first ? of_rows : dim,
                            .row = heads_first ? dim : of_heads};
}

/* Sets a tensor's strides: those given, or the contiguous ones where all are 0. Gathers their bits for the checks, each with
 * the limit added: that leaves their low bits as they are, and sets a bit beyond the limit's for each one outside of +-limit. */
static inline uint64_t take_strides(const int64_t given[3], struct strides all, long long *batch,
                                    long long *head, long long *row)
{
    if ((given[0] | given[1] | given[2]) != 0)
        all = (struct strides){given[0], given[1], given[2]};
    *batch = all.batch;
    *head = all.head;
    *row = all.row;
    const uint64_t limit = FA_ATTN_STRIDE_LIMIT;
    return ((uint64_t)all.batch + limit) | ((uint64_t)all.head + limit) |
           ((uint64_t)all.row + limit);
}

/* Sets the strides of all four tensors; returns their gathered bits. */
static inline uint64_t set_strides(const fa_problem *problem, const fa_attn_args *args,
                                   struct fa_attn_params *params)
{
    int32_t heads = problem->heads_q, heads_kv = problem->heads_kv, dim = problem->head_dim;
    int32_t dim_v = fa_attn_columns(problem, FA_ATTN_V),
            dim_k = fa_attn_columns(problem, FA_ATTN_K);
    bool paged = problem->page > 0, packed = packs_keys(problem), rows = problem->varlen != 0;
    int32_t seq_q = problem->seq_q, seq_k = paged ? problem->page : problem->seq_k;
    struct strides q = contiguous(problem, rows, heads, seq_q, dim);
    struct strides o = contiguous(problem, rows, heads, seq_q, dim_v);
    struct strides k = contiguous(problem, packed, heads_kv, seq_k, dim_k);
    struct strides v = contiguous(problem, packed, heads_kv, seq_k, dim_v);
    return take_strides(args->q_stride, q, &params->q_batch_stride, &params->q_head_stride,
                        &params->q_row_stride) |
           take_strides(args->k_stride, k, &params->k_batch_stride, &params->k_head_stride,
                        &params->k_row_stride) |
           take_strides(args->v_stride, v, &params->v_batch_stride, &params->v_head_stride,
                        &params->v_row_stride) |
           take_strides(args->o_stride, o, &params->o_batch_stride, &params->o_head_stride,
                        &params->o_row_stride);
}

inline __attribute__((always_inline)) int fa_attn_dense_take(const fa_problem *problem,
                                                             const fa_attn_args *args,
                                                             struct fa_attn_params *ret_params,
                                                             fa_diag *diag)
{
    bool no_keys = problem->seq_k == 0;
    if (args->q == NULL || args->o == NULL || (!no_keys && (args->k == NULL || args->v == NULL)))
        return fa_fail(diag, FA_EINVAL, "q, k, v or o is NULL");
    float scale =
        args->softmax_scale != 0.0f ? args->softmax_scale : 1.0f / sqrtf((float)problem->head_dim);
    float scale_log2 = scale * 1.44269504088896340736f;
    if (!(scale > 0) || !isfinite(scale_log2)) /* kernels take the maximum before they scale */
        return fa_fail(diag, FA_EINVAL, "softmax_scale must be positive, at most 2e38");
    *ret_params = (struct fa_attn_params){.q = args->q,
                                          .k = args->k,
                                          .v = args->v,
                                          .o = args->o,
                                          .lse = args->lse,
                                          .batch = problem->batch,
                                          .heads_q = problem->heads_q,
                                          .heads_kv = problem->heads_kv,
                                          .seq_q = problem->seq_q,
                                          .seq_k = problem->seq_k,
                                          .causal_offset = fa_attn_causal_offset(problem),
                                          .softmax_scale = scale,
                                          .softmax_scale_log2 = scale_log2};
    uint64_t strides = set_strides(problem, args, ret_params);
    uintptr_t pointers =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    bool fp8 = problem->kv_dtype != FA_KV_SAME;
    uint64_t of_keys = (uint64_t)(ret_params->k_batch_stride | ret_params->k_head_stride |
                                  ret_params->k_row_stride | ret_params->v_batch_stride |
                                  ret_params->v_head_stride | ret_params->v_row_stride);
    if (problem->q_dtype == FA_KV_FP8)
        of_keys |= (uint64_t)(ret_params->q_batch_stride | ret_params->q_head_stride |
                              ret_params->q_row_stride);
    if (strides >= 2 * (uint64_t)FA_ATTN_STRIDE_LIMIT)
        return fa_fail(diag, FA_EINVAL, "a stride of q, k, v or o is beyond 2^48 elements");
    if (!problem->unaligned &&
        (strides % 8 != 0 || (fp8 && of_keys % 16 != 0) || pointers % 16 != 0))
        return fa_fail(diag, FA_EALIGN,
                       "q, k, v and o must be 16-byte aligned with strides in multiples of 8 "
                       "elements (16 of fp8 ones): ask for the kernel with "
                       "problem.unaligned = true");
    if (pointers % 2 != 0 || (uintptr_t)args->lse % 4 != 0)
        return fa_fail(diag, FA_EALIGN, "a pointer is not aligned to its element");
    return 0;
}

static int launch(const fa_call *call, const fa_problem *problem, const void *data,
                  fa_stream stream, fa_diag *diag)
{
    const fa_attn_args *args = data;
    struct fa_attn_shared *shared = call->shared;
    struct fa_attn_serving_params params; /* a kernel may take their beginning alone */
    struct fa_attn_tensor_maps maps;
    void *arguments[FA_CALL_ARGUMENTS]; /* those behind the set ones are not read */
    arguments[0] = &params, arguments[1] = &maps;
    const bool has_maps = shared != NULL && shared->boxes.columns != 0;
    fa_call_memory memory = {0};
    if (args->size < sizeof *args)
        return fa_fail(diag, FA_EINVAL, "args->size is not sizeof(fa_attn_args)");
    if (call->empty)
        return 0;
    int rc = fa_attn_dense_take(problem, args, &params.dense, diag);
    if (rc == 0 && call->composed != NULL)
        rc = fa_call_take_memory(call, args->workspace, args->workspace_bytes, stream, &memory,
                                 diag);
    if (rc == 0 && shared != NULL && shared->serving)
        rc = fa_attn_serving_take(problem, shared, args, &params, diag);
    if (call->composed != NULL || (shared != NULL && shared->serving)) {
        params.workspace = (void *)(uintptr_t)memory.workspace;
        params.counters = (unsigned int *)(uintptr_t)memory.counters;
        params.splits = call->composed != NULL ? call->composed->launches.splits : 1;
    }
    if (rc == 0 && has_maps)
        rc = fa_attn_maps_get(shared, call->driver, problem, &params, &maps, diag);
    int done = 0;
    while (rc == 0 && done < fa_call_launches(call))
        rc = fa_call_run(call, done++, arguments, has_maps ? 2 : 1, &memory, stream, diag);
    if (memory.lease.lent != NULL) /* mostly there is none: no call for nothing */
        fa_stream_memory_leave(&memory.lease);
    return rc;
}

const fa_launcher fa_attn_launcher = {.load = attn_load, .unload = unload, .launch = launch};
