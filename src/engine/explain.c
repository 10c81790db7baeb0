/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every config of a space ended: the space as it stands today, with the outcomes on record.
 */
#include "evidence.h"
#include "lookup.h"
#include "manifest.h"
#include "rank.h"
#include "request.h"
#include "store.h"
#include "stored.h"
#include "trial_list.h"

#include "error.h"
#include "model.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

struct merging {
    fa_space *space;
    bool any; /* something is on record */
};

static fa_trial *find_pending(fa_space *space, const fa_config *config)
{
    for (int i = 0; i < space->count; i++) {
        fa_trial *trial = &space->candidate[i].trial;
        if (trial->status == FA_STATUS_PENDING && fa_config_equal(&trial->config, config))
            return trial;
    }
    return NULL;
}

static void take_trial(fa_trial *trial, const fa_trial *known)
{
    uint32_t grid[3];
    memcpy(grid, trial->grid, sizeof grid);
    *trial = *known;
    memcpy(trial->grid, grid, sizeof grid);
}

static int merge_one(void *context, const fa_trial_record *record)
{
    struct merging *merging = context;
    fa_trial *trial = find_pending(merging->space, &record->trial.config);
    merging->any = true;
    if (trial != NULL)
        take_trial(trial, &record->trial);
    return 0;
}

/* What an imported winner brought: times, and nothing of how a kernel was compiled but its own. */
static int merge_brought(fa_tuner *tuner, const fa_target *target, fa_space *space, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_trial_list brought = {0};
    fa_answer answer;
    int rc = fa_store_winner_get(tuner->store, &target->scope, &winner, NULL, diag);
    if (rc != 0) /* a damaged one brings nothing */
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    if (winner.origin == FA_ORIGIN_IMPORTED)
        rc = fa_trial_list_from_evidence(winner.evidence, &brought, diag);
    if (rc == 0 && brought.count > 0)
        rc = fa_records_answer(&winner, &target->gpu, &answer, diag);
    for (size_t i = 0; rc == 0 && i < brought.count; i++) {
        const fa_trial *timed = &brought.record[i].trial;
        fa_trial *trial = find_pending(space, &timed->config);
        if (trial == NULL)
            continue;
        if (fa_config_equal(&timed->config, &answer.trial.config)) {
            take_trial(trial, &answer.trial);
            continue;
        }
        trial->status = timed->status;
        trial->median_us = timed->median_us;
        trial->low_us = timed->low_us;
        trial->high_us = timed->high_us;
        trial->predicted_us = timed->predicted_us;
        trial->sample_count = timed->sample_count;
        trial->raced = timed->raced;
        trial->max_error = timed->max_error;
        trial->tolerance = timed->tolerance;
    }
    fa_trial_list_free(&brought);
    fa_winner_record_free(&winner);
    return rc;
}

static int compare(const void *a, const void *b)
{
    return fa_trial_compare_ends(&((const fa_candidate *)a)->trial,
                                 &((const fa_candidate *)b)->trial);
}

/* What answers for the asked lengths stands first: a tie was broken its way, or it is not the bucket's winner. */
static void winner_first(fa_space *space, const fa_answer *winner)
{
    for (int i = 1; i < space->count && fa_trial_finished(&space->candidate[i].trial); i++) {
        if (!fa_config_equal(&space->candidate[i].trial.config, &winner->trial.config))
            continue;
        fa_candidate chosen = space->candidate[i];
        memmove(&space->candidate[1], &space->candidate[0], (size_t)i * sizeof chosen);
        space->candidate[0] = chosen;
        return;
    }
}

/* The model's times of what nobody timed: for the lengths that were asked for, which the space's may stand for. */
static int predict(fa_tuner *tuner, const fa_target *target, fa_space *space, fa_diag *diag)
{
    fa_space asked = {0};
    int rc = fa_problem_equal(&target->asked, &target->problem)
                 ? 0
                 : fa_space_enumerate(&tuner->families, &target->asked, &target->gpu, &asked, diag);
    for (int i = 0; rc == 0 && i < space->count; i++) {
        fa_candidate *one = &space->candidate[i], *there = one;
        const fa_problem *problem = &target->problem;
        if (one->trial.status != FA_STATUS_PENDING &&
            (one->trial.status != FA_STATUS_COMPILED || asked.count == 0))
            continue;
        if (i < asked.count && asked.candidate[i].trial.status == FA_STATUS_PENDING &&
            fa_config_equal(&asked.candidate[i].trial.config, &one->trial.config)) {
            there = &asked.candidate[i];
            there->trial.registers = one->trial.registers;
            problem = &target->asked;
        }
        fa_model_predict(there, problem, &target->gpu, &there->trial);
        one->trial.predicted_us = there->trial.predicted_us;
        one->trial.blocks_per_sm = there->trial.blocks_per_sm;
    }
    fa_space_free(&asked);
    return rc;
}

static int explain(fa_tuner *tuner, const fa_request *request, fa_space *space, fa_gpu *ret_gpu,
                   fa_diag *diag)
{
    fa_target target;
    fa_answer winner;
    struct merging merging = {.space = space};
    int rc = fa_target_resolve(tuner, &request->problem, request->gpu, request->ordinal,
                               request->exact, &target, diag);
    if (rc == 0)
        rc = fa_tuner_families(tuner, diag);
    if (rc == 0)
        rc = fa_space_enumerate(&tuner->families, &target.problem, &target.gpu, space, diag);
    if (rc == 0)
        rc = fa_store_trials_each(tuner->store, &target.scope, merge_one, &merging, diag);
    if (rc == 0 && !merging.any)
        rc = merge_brought(tuner, &target, space, diag);
    if (rc == 0)
        rc = predict(tuner, &target, space, diag);
    if (rc != 0)
        return rc;
    qsort(space->candidate, (size_t)space->count, sizeof *space->candidate, compare);
    if (fa_matches_find(tuner, &target, &winner, NULL, NULL, NULL, NULL) == 0)
        winner_first(space, &winner);
    if (ret_gpu != NULL)
        *ret_gpu = target.gpu;
    return 0;
}

int fa_explain(fa_tuner *tuner, const fa_request *request, fa_explain_visit *visit, void *context,
               fa_gpu *ret_gpu, fa_diag *diag)
{
    fa_space space = {0};
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    fa_request known;
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = explain(tuner, &known, &space, ret_gpu, diag);
    pthread_mutex_unlock(&tuner->work);
    for (int i = 0; i < space.count && rc == 0; i++)
        rc = visit(context, fa_trial_finished(&space.candidate[i].trial) ? i + 1 : 0,
                   &space.candidate[i].trial);
    fa_space_free(&space);
    return rc;
}
