/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of an attention kernel that splits the keys among blocks.
 *
 * May be used by: attn_model.c.
 */
#ifndef FA_TUNER_OPS_ATTN_MODEL_SPLIT_H
#define FA_TUNER_OPS_ATTN_MODEL_SPLIT_H

#include "manifest.h"

bool fa_attn_is_split(const fa_candidate *candidate);

/* Microseconds of a launch with `blocks` >= 1 resident per SM; `tensor_flops`: of an SM, per clock. */
double fa_attn_split_us(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                        int32_t blocks, double tensor_flops);

#endif
