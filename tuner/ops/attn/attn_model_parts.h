/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention's cost models share: which keys some rows see, how wide a product is, and the cost of a kernel that
 * splits the keys among blocks.
 *
 * May be used by: tuner/ops. Thread-safety: pure.
 */
#ifndef FA_TUNER_OPS_ATTN_MODEL_PARTS_H
#define FA_TUNER_OPS_ATTN_MODEL_PARTS_H

#include "manifest.h"

bool fa_attn_is_split(const fa_candidate *candidate);

/* Microseconds of a launch with `blocks` >= 1 resident per SM; `tensor_flops`: of an SM, per clock. */
double fa_attn_split_us(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                        int32_t blocks, double tensor_flops);

/* Keys that some rows meet: [first, end); [clear_first, clear_end) is seen by every one of them, and may be empty or
 * turned round. */
typedef struct {
    double first, end, clear_first, clear_end;
} fa_attn_model_keys;

/* Of `rows` rows from row0 on. A sequence is as long as the problem says. */
fa_attn_model_keys fa_attn_model_keys_of(const fa_problem *problem, double row0, double rows);

/* Columns of the products, on average of those with keys and those with values. */
double fa_attn_model_head(const fa_candidate *candidate, const fa_problem *problem);

#endif
