/* SPDX-License-Identifier: Apache-2.0
 *
 * What serving engines pass to attention beyond dense tensors: which problems ask for it, and the struct that
 * a kernel takes of it.
 *
 * May be used by: tuner/ops. Thread-safety: pure.
 */
#ifndef FA_TUNER_OPS_ATTN_SERVING_H
#define FA_TUNER_OPS_ATTN_SERVING_H

#include "fa_attn.h"
#include "attn_serving_params.h"
#include "call.h"

/* Strides beyond it, either way, reach outside any memory. In elements. */
#define FA_ATTN_STRIDE_LIMIT ((int64_t)1 << 48)

/* Whether the problem has none of it. */
bool fa_attn_is_dense(const fa_problem *problem);

/* Sets the window's ends: -1 where there is none. */
void fa_attn_window_take(const fa_problem *problem, struct fa_attn_serving_params *params);

/* The softcap, and what a kernel needs of it and of dense.softmax_scale, which is set. */
void fa_attn_softcap_take(float softcap, struct fa_attn_serving_params *params);

/* Sets what stands behind params->dense. `args` NULL: a caller of an earlier version, who asks for dense
 * problems alone. Nothing in device memory is read: lengths and tables may still be on their way.
 * FA_EINVAL names an argument that the problem asks for and that is missing or out of range, FA_EALIGN a pointer that is
 * not aligned to its numbers of four bytes. */
int fa_attn_serving_take(const fa_call *call, const fa_problem *problem, const fa_attn_args *args,
                         fa_call_memory memory, struct fa_attn_serving_params *params,
                         fa_diag *diag);

#endif
