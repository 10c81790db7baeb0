/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps from boxes, pointers and strides.
 *
 * Workload: four encodes per proof case of a candidate, and per launch with new pointers.
 * Invariants: every dimension handed to the driver has at least one element, and one that has no
 * second element has a stride that the driver takes, whatever the caller said.
 */
#include "attn_launch.h"

#include "error.h"
#include "cubin.h"

_Static_assert(sizeof(struct fa_tensor_map) == FA_TENSOR_MAP_BYTES, "a CUtensorMap");
_Static_assert(_Alignof(struct fa_tensor_map) == FA_TENSOR_MAP_ALIGNMENT, "a CUtensorMap");

enum { BOX_MAX = 256 };

static const int64_t STRIDE_MAX = ((int64_t)1 << 39) - 1; /* elements; in bytes below 2^40 */

/* ---- boxes -----------------------------------------------------------------------------------*/

static int check_boxes(const struct fa_attn_boxes *boxes, fa_diag *diag)
{
    const struct {
        const char *name;
        unsigned value;
    } rows[] = {{"q_rows", boxes->q_rows},
                {"q_heads", boxes->q_heads},
                {"k_rows", boxes->k_rows},
                {"v_rows", boxes->v_rows},
                {"o_rows", boxes->o_rows}};
    if (boxes->columns != 16 && boxes->columns != 32 && boxes->columns != 64)
        return fa_fail(diag, FA_ECORRUPT,
                       "cubin wants tensor maps with boxes of %u columns: 16, "
                       "32 or 64 can be",
                       boxes->columns);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].value < 1 || rows[i].value > BOX_MAX)
            return fa_fail(diag, FA_ECORRUPT,
                           "cubin wants tensor maps with %s = %u: 1 to %d can "
                           "be",
                           rows[i].name, rows[i].value, BOX_MAX);
    return 0;
}

static bool is_serving(const fa_cubin_info *info)
{
    return info->parameter_count > 0 &&
           info->parameter_size[0] == sizeof(struct fa_attn_serving_params);
}

/* Whether the entry takes fa_attn_params, then the maps if there are any, then the address of the
 * workspace if there is one, and nothing else; or fa_attn_serving_params, which has that address in it,
 * and the maps. One that uses none of them need not take them. */
static bool takes(const fa_cubin_info *info, bool maps, bool workspace)
{
    bool serving = is_serving(info);
    int32_t size[3] = {serving ? sizeof(struct fa_attn_serving_params)
                               : sizeof(struct fa_attn_params)};
    int count = 1;
    if (maps)
        size[count++] = sizeof(struct fa_attn_tensor_maps);
    if (workspace && !serving)
        size[count++] = sizeof(fa_device_ptr);
    if (count == 1)
        return info->parameter_count <= 1 && info->parameter_size[0] <= size[0];
    bool same = info->parameter_count == count;
    for (int i = 0; i < count; i++)
        same = same && info->parameter_size[i] == size[i];
    return same;
}

int fa_attn_boxes_read(const fa_cubin_entry *entry, struct fa_attn_boxes *ret_boxes, fa_diag *diag)
{
    const bool workspace = entry->workspace;
    const int32_t one = sizeof(struct fa_attn_params), other = sizeof(struct fa_attn_tensor_maps);
    const char *then = workspace ? ", and then the address of its workspace" : "";
    struct fa_attn_boxes boxes = {0};
    fa_cubin_info info;
    int rc = fa_cubin_read(entry->cubin, entry->size, entry->name, &info, diag);
    if (rc != 0)
        return rc;
    rc = fa_cubin_constant(entry->cubin, entry->size, "fa_attn_boxes_wanted", &boxes, sizeof boxes,
                           diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    bool wanted = rc == 0;
    if (wanted && (rc = check_boxes(&boxes, diag)) != 0)
        return rc;
    if (wanted && !takes(&info, true, workspace))
        return fa_fail(diag, FA_ECORRUPT,
                       "cubin wants tensor maps, but %s does not take just "
                       "fa_attn_params (%d bytes) and fa_attn_tensor_maps (%d bytes)%s",
                       entry->name, one, other, then);
    if (!wanted && workspace && !takes(&info, false, true))
        return fa_fail(diag, FA_ECORRUPT, "%s does not take just fa_attn_params (%d bytes)%s",
                       entry->name, one, then);
    if (!wanted && !workspace && !takes(&info, false, false))
        return fa_fail(diag, FA_ECORRUPT,
                       "%s takes more than fa_attn_params (%d bytes): a kernel "
                       "that takes tensor maps declares fa_attn_boxes_wanted",
                       entry->name, one);
    *ret_boxes = boxes;
    return 0;
}

int fa_attn_serving_read(const fa_cubin_entry *entry, bool *ret_serving, fa_diag *diag)
{
    fa_cubin_info info;
    int rc = fa_cubin_read(entry->cubin, entry->size, entry->name, &info, diag);
    if (rc == 0)
        *ret_serving = is_serving(&info);
    return rc;
}

int fa_attn_check_entry(const fa_problem *problem, const fa_cubin_entry *entry, fa_diag *diag)
{
    struct fa_attn_boxes boxes;
    (void)problem;
    return fa_attn_boxes_read(entry, &boxes, diag);
}

/* ---- maps ------------------------------------------------------------------------------------*/

/* One tensor of [batch, heads, rows, columns] with its strides in elements, and its box. */
struct tensor {
    const char *name;
    const void *base;
    long long batch_stride, head_stride, row_stride;
    int columns, batch, rows, heads;
    bool bytes; /* elements are single bytes */
    unsigned box_rows;
    int group; /* heads in a group of a rank-5 map; 0: rank 4 */
    unsigned group_box;
};

/* Appends a dimension; `packed` is a stride that any driver takes. */
static bool add_dimension(fa_tensor_shape *shape, int extent, long long stride, uint64_t packed,
                          unsigned box)
{
    uint32_t at = shape->rank++;
    shape->extent[at] = extent > 1 ? (uint64_t)extent : 1;
    shape->box[at] = box;
    if (extent <= 1)
        stride = (long long)packed / fa_tensor_element_bytes(shape);
    else if (stride < 0 || stride > STRIDE_MAX)
        return false;
    shape->stride[at - 1] = (uint64_t)stride * fa_tensor_element_bytes(shape);
    return true;
}

static int encode_tensor(fa_driver *driver, const struct tensor *t, fa_dtype dtype,
                         unsigned box_columns, struct fa_tensor_map *ret_map, fa_diag *diag)
{
    static const char advice[] = "ask for the kernel with problem.unaligned = true, which needs no "
                                 "tensor maps";
    fa_tensor_shape shape = {.dtype = dtype,
                             .bytes = t->bytes,
                             .rank = 1,
                             .base = (fa_device_ptr)(uintptr_t)t->base,
                             .extent = {(uint64_t)t->columns},
                             .box = {box_columns}};
    uint64_t packed = ((uint64_t)t->columns * fa_tensor_element_bytes(&shape) + 15) / 16 * 16;
    bool fits =
        t->group == 0 || add_dimension(&shape, t->group, t->head_stride, packed, t->group_box);
    long long heads_stride = t->head_stride;
    if (t->group > 1 && __builtin_mul_overflow(t->head_stride, t->group, &heads_stride))
        fits = false;
    fits = fits && add_dimension(&shape, t->rows, t->row_stride, packed, t->box_rows) &&
           add_dimension(&shape, t->group == 0 ? t->heads : t->heads / t->group, heads_stride,
                         packed, 1) &&
           add_dimension(&shape, t->batch, t->batch_stride, packed, 1);
    if (!fits)
        return fa_fail(diag, FA_EALIGN,
                       "TMA does not take %s with strides %lld, %lld, %lld "
                       "(batch, head, row), which are negative or too large: %s",
                       t->name, t->batch_stride, t->head_stride, t->row_stride, advice);
    int rc = fa_tensor_map_encode(driver, &shape, ret_map, diag);
    if (rc == FA_EINVAL)
        return fa_fail_in(diag, FA_EALIGN,
                          "TMA does not take %s at %p with strides %lld, %lld, "
                          "%lld (batch, head, row): %s",
                          t->name, t->base, t->batch_stride, t->head_stride, t->row_stride, advice);
    return rc != 0 ? fa_fail_in(diag, rc, "the tensor map of %s", t->name) : 0;
}

struct fa_attn_form fa_attn_form_of(const fa_problem *problem)
{
    return (struct fa_attn_form){
        .dtype = problem->dtype,
        .head_dim = problem->head_dim,
        .head_dim_v = problem->head_dim_v > 0 ? problem->head_dim_v : problem->head_dim,
        .packed_q = problem->varlen,
        .packed_k = problem->lengths_k == FA_LENGTHS_CU_SEQLENS && problem->page == 0,
        .page = problem->page,
        .fp8 = problem->kv_dtype == FA_KV_FP8};
}

int fa_attn_maps_encode(fa_driver *driver, const struct fa_attn_boxes *boxes,
                        const struct fa_attn_form *form, const struct fa_attn_serving_params *params,
                        struct fa_attn_tensor_maps *ret_maps, fa_diag *diag)
{
    const struct fa_attn_params *p = &params->dense;
    const bool packed_q = form->packed_q, packed_k = form->packed_k, paged = form->page > 0;
    const int group = boxes->q_heads > 1 ? p->heads_q / p->heads_kv : 0;
    const int queries = packed_q ? params->total_q : p->seq_q, batch_q = packed_q ? 1 : p->batch;
    int keys = paged ? form->page : packed_k ? params->total_k : p->seq_k, heads_kv = p->heads_kv;
    int batch_k = paged ? params->num_pages : packed_k ? 1 : p->batch;
    const void *k_base = p->k, *v_base = p->v;
    if (p->seq_k == 0) { /* never loaded: one row of q stands in, for the pointers may be null */
        k_base = v_base = p->q;
        heads_kv = batch_k = keys = 1;
    }
    const struct {
        struct tensor tensor;
        struct fa_tensor_map *map;
    } all[] = {
        {{"q", p->q, p->q_batch_stride, p->q_head_stride, p->q_row_stride, form->head_dim, batch_q,
          queries, p->heads_q, false, boxes->q_rows, group, boxes->q_heads},
         &ret_maps->q},
        {{"k", k_base, p->k_batch_stride, p->k_head_stride, p->k_row_stride, form->head_dim, batch_k,
          keys, heads_kv, form->fp8, boxes->k_rows, 0, 0},
         &ret_maps->k},
        {{"v", v_base, p->v_batch_stride, p->v_head_stride, p->v_row_stride, form->head_dim_v,
          batch_k, keys, heads_kv, form->fp8, boxes->v_rows, 0, 0},
         &ret_maps->v},
        {{"o", p->o, p->o_batch_stride, p->o_head_stride, p->o_row_stride, form->head_dim_v, batch_q,
          queries, p->heads_q, false, boxes->o_rows, group, boxes->q_heads},
         &ret_maps->o}};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof all / sizeof *all; i++)
        rc = encode_tensor(driver, &all[i].tensor, form->dtype, boxes->columns, all[i].map, diag);
    return rc;
}
