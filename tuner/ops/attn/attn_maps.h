/* SPDX-License-Identifier: Apache-2.0
 *
 * Tensor maps of an attention launch: what boxes a cubin wants, and the maps for one set of
 * pointers and strides. Used wherever a kernel is launched: by the prover and by fa_launch.
 *
 * May be used by: engine. May use: base, gpu, the structs of kernel_templates. Thread-safety: pure,
 * but for what the driver notes of failures.
 */
#ifndef FA_TUNER_ATTN_MAPS_H
#define FA_TUNER_ATTN_MAPS_H

#include "attn_serving_params.h"
#include "attn_tensor_maps.h"
#include "fa_types.h"
#include "driver.h"

/* Reads what maps the entry of a cubin wants: ret_boxes->columns is 0 when it wants none.
 * FA_ECORRUPT: the boxes are impossible, or the entry's parameters are not those that go with
 * them and with a `workspace`, whose address comes last, or lies in fa_attn_serving_params (the driver would
 * read arguments that nobody passes). */
int fa_attn_boxes_read(const void *cubin, size_t size, const char *entry, bool workspace,
                       struct fa_attn_boxes *ret_boxes, fa_diag *diag);

/* Whether the entry takes fa_attn_serving_params, and not just their beginning, fa_attn_params. */
int fa_attn_serving_read(const void *cubin, size_t size, const char *entry, bool *ret_serving,
                         fa_diag *diag);

/* As fa_op.check_entry. */
int fa_attn_check_entry(const fa_problem *problem, const void *cubin, size_t size,
                        const char *entry, bool workspace, fa_diag *diag);

/* How the tensors of a problem lie. */
struct fa_attn_form {
    fa_dtype dtype;
    int32_t head_dim, head_dim_v; /* of q and k, of v and o */
    bool packed_q, packed_k;      /* sequences lie behind one another, total_q and total_k rows in all */
    int32_t page;                 /* keys of a page; 0: no pages */
};

struct fa_attn_form fa_attn_form_of(const fa_problem *problem);

/* Encodes the four maps of a launch; `boxes` wants some. Takes any number of keys, rows and
 * batches, 0 too. Packed tensors are one batch, pages are batches of `page` rows. Of params what lies behind `dense` is read
 * for packed tensors and pages alone. FA_EALIGN: TMA does not take a tensor; the sentence names it, and ret_maps holds
 * nothing of use. */
int fa_attn_maps_encode(fa_driver *driver, const struct fa_attn_boxes *boxes,
                        const struct fa_attn_form *form, const struct fa_attn_serving_params *params,
                        struct fa_attn_tensor_maps *ret_maps, fa_diag *diag);

#endif
