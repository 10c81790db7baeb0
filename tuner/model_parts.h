/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two halves of the cost model share: model.c (kernels whose warps all do the same) and
 * model_specialised.c (a producer and consumers).
 *
 * May be used by: model.c and model_specialised.c only.
 */
#ifndef FA_TUNER_MODEL_PARTS_H
#define FA_TUNER_MODEL_PARTS_H

#include "model.h"

/* The tunable of that name, else the let, else `absent`. */
int32_t fa_model_tunable(const fa_candidate *candidate, const char *name, int32_t absent);

/* (sum of part^p)^(1/p): the largest of what overlaps perfectly, the sum (p = 1) of what does not
 * overlap at all. Parts are >= 0. */
double fa_model_p_norm(const double *part, int count, double p);

/* Microseconds to move every tensor once; 0 when the GPU's bandwidth is unknown. */
double fa_model_memory_us(const fa_problem *problem, const fa_gpu *gpu);

bool fa_model_is_specialised(const fa_candidate *candidate);

/* Microseconds of a launch with `blocks` >= 1 resident per SM. */
double fa_model_specialised_us(const fa_candidate *candidate, const fa_problem *problem,
                               const fa_gpu *gpu, int32_t blocks);

#endif
