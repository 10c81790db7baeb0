/* SPDX-License-Identifier: Apache-2.0
 *
 * The cost model of a problem's operation, and ranking by it.
 *
 * Workload: some thousand predictions per tuning.
 */
#include "model.h"

#include "op.h"

#include "problem.h"

#include <stdlib.h>
#include <string.h>

void fa_model_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                      fa_trial *trial)
{
    fa_op_of(problem)->predict(candidate, problem, gpu, trial);
}

static int compare(const void *left, const void *right, void *context)
{
    const fa_space *space = context;
    const fa_candidate *one = &space->candidate[*(const int *)left];
    const fa_candidate *other = &space->candidate[*(const int *)right];
    const fa_trial *a = &one->trial, *b = &other->trial;
    bool a_runs = a->predicted_us > 0, b_runs = b->predicted_us > 0;
    if (a_runs != b_runs)
        return a_runs ? -1 : 1;
    if (a_runs && (a->predicted_us < b->predicted_us || a->predicted_us > b->predicted_us))
        return a->predicted_us < b->predicted_us ? -1 : 1;
    if (one->is_default != other->is_default)
        return one->is_default ? -1 : 1;
    char a_text[FA_CONFIG_TEXT_MAX], b_text[FA_CONFIG_TEXT_MAX];
    fa_config_text(&a->config, a_text);
    fa_config_text(&b->config, b_text);
    int order = strcmp(a->config.family, b->config.family);
    return order != 0 ? order : strcmp(a_text, b_text);
}

void fa_model_rank(const fa_space *space, int *order, int count)
{
    if (count > 1)
        qsort_r(order, (size_t)count, sizeof *order, compare, (void *)(uintptr_t)space);
}

static void move_to_front(int *order, int at)
{
    int moved = order[at];
    memmove(order + 1, order, (size_t)at * sizeof *order);
    order[0] = moved;
}

bool fa_model_is_tied(const fa_problem *problem, const fa_trial *trial, const fa_trial *best)
{
    return trial->predicted_us > 0 &&
           trial->predicted_us <= best->predicted_us * (1 + fa_op_of(problem)->blur);
}

int fa_model_break_ties(const fa_problem *problem, const fa_space *space, int *order, int count)
{
    int ties = 0, preset = -1;
    for (; ties < count && fa_model_is_tied(problem, &space->candidate[order[ties]].trial,
                                            &space->candidate[order[0]].trial);
         ties++)
        if (preset < 0 && space->candidate[order[ties]].is_default)
            preset = ties;
    if (preset > 0)
        move_to_front(order, preset);
    return ties > 0 ? ties - 1 : 0;
}

static int32_t registers_of(const fa_candidate *candidate)
{
    return candidate->estimated_registers > 0 ? candidate->estimated_registers
                                              : fa_model_tunable(candidate, "CONSUMER_NEED", 0);
}

static int compare_size(const void *left, const void *right, void *context)
{
    const fa_space *space = context;
    int32_t a = registers_of(&space->candidate[*(const int *)left]);
    int32_t b = registers_of(&space->candidate[*(const int *)right]);
    return a != b ? (a < b) - (a > b) : compare(left, right, context);
}

void fa_model_largest_first(const fa_space *space, int *order, int count)
{
    if (count > 1)
        qsort_r(order, (size_t)count, sizeof *order, compare_size, (void *)(uintptr_t)space);
}

static const double alike = 1.02; /* predictions that differ by less say nothing */

void fa_model_soonest_first(const fa_space *space, int *order, int count)
{
    int32_t least = 0;
    int best = 0;
    for (int i = 0; i < count; i++) {
        const fa_candidate *first = &space->candidate[order[0]],
                           *candidate = &space->candidate[order[i]];
        int32_t need = fa_model_tunable(candidate, "CONSUMER_NEED", 0);
        if (!(candidate->trial.predicted_us > 0) || need <= 0 ||
            candidate->trial.predicted_us > first->trial.predicted_us * alike)
            break;
        if (i > 0 && need >= least)
            continue;
        least = need;
        best = i;
    }
    move_to_front(order, best);
}
