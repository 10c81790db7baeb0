/* SPDX-License-Identifier: Apache-2.0
 *
 * What an attention kernel is launched with: the struct that serving engines' arguments become, the tensor maps that a
 * cubin wants for one set of pointers and strides, and the launch itself. The prover makes its launches of the same
 * parts. And its cost model.
 *
 * May be used by: tuner/ops. Thread-safety: any thread at any time.
 */
#ifndef FA_TUNER_OPS_ATTN_LAUNCH_H
#define FA_TUNER_OPS_ATTN_LAUNCH_H

#include "attn_serving_params.h"
#include "attn_tensor_maps.h"
#include "call.h"
#include "manifest.h"
#include "snippet.h"

struct fa_attn_shared; /* below */

/* ---- the arguments of serving engines --------------------------------------------------------*/
/* Strides beyond it, either way, reach outside any memory. In elements. */
#define FA_ATTN_STRIDE_LIMIT ((int64_t)1 << 48)

/* In a prover LSE and what lists say stand behind these. */
enum { FA_ATTN_Q, FA_ATTN_K, FA_ATTN_V, FA_ATTN_O, FA_ATTN_TENSORS, FA_ATTN_LSE = FA_ATTN_TENSORS };

/* Of K of "fp8_ds_mla" they are bytes. */
static inline int32_t fa_attn_columns(const fa_problem *p, int tensor)
{
    return tensor == FA_ATTN_K && p->kv_dtype == FA_KV_FP8_DS_MLA ? FA_DS_MLA_BYTES
           : tensor >= FA_ATTN_V && p->head_dim_v > 0             ? p->head_dim_v
                                                                  : p->head_dim;
}

/* Whether the problem is of dense tensors: it has nothing that only serving engines pass. */
bool fa_attn_is_dense(const fa_problem *problem);

/* causal_offset of the kernels: query i stands at key i + offset, from which masks and windows count. 0 for TOP_LEFT,
 * else seq_k - seq_q. */
int32_t fa_attn_causal_offset(const fa_problem *problem);

/* The softcap, and what a kernel needs of it and of dense.softmax_scale, which is set. */
void fa_attn_softcap_take(float softcap, struct fa_attn_serving_params *params);

/* Sets the arguments of dense attention. FA_EINVAL, FA_EALIGN as fa_launch. */
int fa_attn_dense_take(const fa_problem *problem, const fa_attn_args *args,
                       struct fa_attn_params *ret_params, fa_diag *diag);

/* Sets what stands behind params->dense, but for memory and splits. Nothing in device memory is read: lengths and tables may
 * still be on their way. FA_EINVAL names an argument that the problem asks for and that is missing or out of range,
 * FA_EALIGN a pointer that is not aligned to its numbers of four bytes. shared: NULL, or the cubin's,
 * whose list of buffers need not be read again where it is the problem's. */
int fa_attn_serving_take(const fa_problem *problem, const struct fa_attn_shared *shared,
                         const fa_attn_args *args, struct fa_attn_serving_params *params,
                         fa_diag *diag);

/* ---- tensor maps -----------------------------------------------------------------------------*/
/* Reads what maps the entry of a cubin wants: ret_boxes->columns is 0 when it wants none; and whether it takes
 * fa_attn_serving_params, and not just their beginning, fa_attn_params.
 * FA_ECORRUPT: the boxes are impossible, or the entry's parameters are not those that go with them and with a workspace,
 * whose address comes last, or lies in fa_attn_serving_params (the driver would read arguments that nobody passes). */
int fa_attn_boxes_read(const fa_cubin_entry *entry, struct fa_attn_boxes *ret_boxes,
                       bool *ret_serving, fa_diag *diag);

/* ---- launches --------------------------------------------------------------------------------*/
/* Launches on tensors of the caller: fa_attn_args (fa_types.h). */
extern const fa_launcher fa_attn_launcher;

/* What launches of a cubin share; of one that takes fa_attn_params alone without maps, nothing. */
struct fa_attn_shared {
    bool serving;               /* it takes fa_attn_serving_params */
    struct fa_attn_boxes boxes; /* columns 0: it takes no tensor maps */
    int32_t buffers;            /* of the problem that it was loaded for, and their list */
    int buffer_count;
    fa_buffer buffer[FA_ATTN_BUFFERS];
    fa_kept_maps maps;
    unsigned char proved[sizeof(struct fa_attn_tensor_maps)]; /* of a proof's launch */
};

/* The four maps of a launch, as fa_attn_tensor_maps has them: of any number of keys, rows and batches, 0 too. Packed tensors are
 * one batch, pages are batches of `page` rows. Of params what lies behind `dense` is read for these alone. */
int fa_attn_maps_get(struct fa_attn_shared *shared, fa_driver *driver, const fa_problem *problem,
                     const struct fa_attn_serving_params *params, void *ret_maps, fa_diag *diag);

/* ---- attn_model.c ----------------------------------------------------------------------------*/
/* As fa_model_predict. */
void fa_attn_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                     fa_trial *trial);

#endif
