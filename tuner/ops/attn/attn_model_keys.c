/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks and windows as the cost models see them.
 */
#include "attn_model_keys.h"

#include "attn_cases.h"
#include "model_parts.h"

#include <math.h>

fa_attn_model_keys fa_attn_model_keys_of(const fa_problem *problem, double row0, double rows)
{
    fa_attn_model_keys keys = {.end = problem->seq_k, .clear_end = problem->seq_k};
    const double diagonal = row0 + fa_attn_causal_offset(problem);
    const bool causal = problem->causal != FA_CAUSAL_NONE;
    if (causal || (problem->window && problem->window_right >= 0)) {
        double right = causal ? 0 : problem->window_right;
        keys.end = fmin(fmax(diagonal + right + rows, 0), problem->seq_k);
        keys.clear_end = fmin(fmax(diagonal + right + 1, 0), problem->seq_k);
    }
    if (problem->window && problem->window_left >= 0) {
        keys.first = fmin(fmax(diagonal - problem->window_left, 0), keys.end);
        keys.clear_first = fmax(diagonal + rows - 1 - problem->window_left, 0);
    }
    return keys;
}

double fa_attn_model_head(const fa_candidate *candidate, const fa_problem *problem)
{
    int32_t keys = fa_model_tunable(candidate, "D_TILE", (problem->head_dim + 15) / 16 * 16);
    double head = (keys + (double)fa_model_tunable(candidate, "DV_TILE", keys)) / 2;
    return head >= 1 ? head : problem->head_dim;
}
