/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every config of a space ended: the space as it stands today, with the outcomes on record.
 */
#include "manifest.h"
#include "rank.h"
#include "request.h"
#include "store.h"
#include "stored.h"

#include "error.h"
#include "model.h"
#include "problem.h"

#include <stdlib.h>
#include <string.h>

static int merge_one(void *context, const fa_trial_record *record)
{
    fa_space *space = context;
    for (int i = 0; i < space->count; i++) {
        fa_trial *trial = &space->candidate[i].trial;
        if (trial->status == FA_STATUS_PENDING &&
            fa_config_equal(&trial->config, &record->trial.config)) {
            uint32_t grid[3];
            memcpy(grid, trial->grid, sizeof grid);
            *trial = record->trial;
            memcpy(trial->grid, grid, sizeof grid);
            break;
        }
    }
    return 0;
}

static int compare(const void *a, const void *b)
{
    return fa_trial_compare_ends(&((const fa_candidate *)a)->trial,
                                 &((const fa_candidate *)b)->trial);
}

/* A winner that was tuned by an equal config stands first even when a tie was broken its way. */
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

static int explain(fa_tuner *tuner, const fa_request *request, fa_space *space, fa_gpu *ret_gpu,
                   fa_diag *diag)
{
    fa_target target;
    fa_answer winner;
    int rc = fa_target_resolve(tuner, &request->problem, request->gpu, request->ordinal,
                               request->exact, &target, diag);
    if (rc == 0)
        rc = fa_tuner_families(tuner, diag);
    if (rc == 0)
        rc = fa_space_enumerate(&tuner->families, &target.problem, &target.gpu, space, diag);
    if (rc == 0)
        rc = fa_store_trials_each(tuner->store, &target.scope, merge_one, space, diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < space->count; i++)
        if (space->candidate[i].trial.status == FA_STATUS_PENDING)
            fa_model_predict(&space->candidate[i], &target.problem, &target.gpu,
                             &space->candidate[i].trial);
    qsort(space->candidate, (size_t)space->count, sizeof *space->candidate, compare);
    if (fa_records_lookup(tuner, &target, &winner, NULL, NULL) == 0)
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
