/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of the operations with C code of their own, what the engine asks of any, and ranking by their cost models.
 *
 * Workload: some thousand predictions per tuning.
 */
#include "op.h"

#include "attn_launch.h"
#include "attn_proof.h"
#include "family.h"
#include "model.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

static const fa_op ops[] = {
    {.name = "attn_fwd",
     .cases = fa_attn_case_problems,
     .reference_entry = "attn_ref_fp32",
     .proof = &fa_attn_proof,
     .predict = fa_attn_predict},
    {.name = NULL,
     .cases = fa_generic_cases,
     .proof = &fa_generic_proof,
     .predict = fa_roofline_predict,
     .blur = 0.05},
};

const fa_op *fa_op_of(const fa_problem *problem)
{
    const char *name = fa_operation_of(problem)->name;
    const fa_op *op = ops;
    while (op->name != NULL && strcmp(op->name, name) != 0)
        op++;
    return op;
}

int fa_bench_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES])
{
    return fa_op_of(problem)->cases(problem, seed, ret_case);
}

const char *fa_op_reference_entry(const fa_problem *problem)
{
    const cJSON *document = fa_operation_of(problem)->document;
    const char *entry = fa_op_of(problem)->reference_entry;
    if (entry == NULL)
        entry = fa_json_string(fa_json_member(document, "answer"), "kernel");
    return entry != NULL                                ? entry
           : cJSON_HasObjectItem(document, "reference") ? "reference"
                                                        : "fa_check_output";
}

int fa_op_check_entry(const fa_problem *problem, const fa_cubin_entry *entry, fa_diag *diag)
{
    const fa_launcher *launcher = fa_op_of(problem)->proof->launcher;
    void *shared = NULL;
    int rc = launcher->load(NULL, problem, entry, &shared, diag);
    launcher->unload(&shared);
    return rc;
}

int fa_op_read_cubin(const fa_family *family, const fa_candidate *candidate,
                     const fa_problem *problem, const void *cubin, size_t size,
                     fa_cubin_info *ret_info, fa_diag *diag)
{
    fa_cubin_entry entry = {cubin, size, .workspace = candidate->launches.workspace_bytes > 0,
                            .counters = candidate->launches.counters > 0};
    fa_cubin_info all = {0};
    for (int i = 0; i < family->launch_count; i++) {
        int32_t threads = candidate->launches.at[i].threads;
        fa_cubin_info info;
        entry.name = family->launch[i].entry;
        entry.launch = i;
        FA_OR_RETURN(fa_cubin_read(cubin, size, entry.name, &info, diag));
        FA_OR_RETURN(fa_op_check_entry(problem, &entry, diag));
        if (i > 0 && info.max_threads != 0 && info.max_threads < threads)
            return fa_fail(diag, FA_ECORRUPT,
                           "cubin allows %d threads in %s, the manifest launches %d",
                           info.max_threads, entry.name, threads);
        if (i == 0)
            all = info;
        fa_cubin_join(&all, &info);
    }
    *ret_info = all;
    return 0;
}

/* ---- by the cost model ----------------------------------------------------------------------*/
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
