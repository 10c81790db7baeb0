/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost of an attention kernel in which one warpgroup feeds the others.
 *
 * May be used by: attn_model.c.
 */
#ifndef FA_TUNER_OPS_ATTN_MODEL_SPECIALISED_H
#define FA_TUNER_OPS_ATTN_MODEL_SPECIALISED_H

#include "manifest.h"

bool fa_attn_is_specialised(const fa_candidate *candidate);

/* Microseconds of a launch with `blocks` >= 1 resident per SM. */
double fa_attn_specialised_us(const fa_candidate *candidate, const fa_problem *problem,
                              const fa_gpu *gpu, int32_t blocks);

#endif
