/* SPDX-License-Identifier: Apache-2.0
 *
 * Explains answers: where every config of a space ended (the space as it stands today, with the outcomes on record), the
 * ranking behind an answer (the configs on record that finished), and the steps of a lookup.
 *
 * Workload: a few hundred trials. A ranking evaluates no space, unless the model is asked about other lengths than the
 * bucket's, or an imported winner brought the times.
 */
#include "job.h"

#include "candidate.h"
#include "error.h"
#include "lookup.h"
#include "manifest.h"
#include "model.h"
#include "problem.h"
#include "session.h"
#include "store.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fa_candidate *find_pending(fa_space *space, const fa_config *config)
{
    int index = fa_space_find(space, config, FA_STATUS_PENDING);
    return index >= 0 ? &space->candidate[index] : NULL;
}

static void take_trial(fa_trial *trial, const fa_trial *known)
{
    uint32_t grid[3];
    memcpy(grid, trial->grid, sizeof grid);
    *trial = *known;
    memcpy(trial->grid, grid, sizeof grid);
}

/* Reads trials into a space that begins empty. */
static int take_trials(fa_study_trial *record, size_t count, fa_space *space, fa_diag *diag)
{
    fa_candidate *grown =
        realloc(space->candidate, ((size_t)space->count + count + 1) * sizeof *space->candidate);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %zu configs", count);
    space->candidate = grown;
    for (size_t i = 0; i < count; i++)
        grown[space->count++] = (fa_candidate){.trial = record[i].trial};
    return 0;
}

static int compare(const void *a, const void *b)
{
    return fa_trial_compare(&((const fa_candidate *)a)->trial, &((const fa_candidate *)b)->trial);
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
static void predict(fa_tuner *tuner, const fa_target *target, fa_space *space)
{
    const bool same = fa_problem_equal(&target->asked, &target->problem);
    for (int i = 0; i < space->count; i++) {
        fa_candidate *one = &space->candidate[i];
        bool untimed = one->trial.status == FA_STATUS_PENDING ||
                       (one->trial.status == FA_STATUS_COMPILED && !same);
        /* Of a ranking, what does not run at these lengths keeps what is on record. */
        if (untimed && (same || !fa_target_predict(tuner, target, &one->trial)) &&
            one->launches.count > 0)
            fa_model_predict(one, &target->problem, &target->gpu, &one->trial);
    }
}

/* The whole space, and where each config of it ended; of one that is too large, those that were tried. */
static int read_space(fa_tuner *tuner, const fa_target *target, fa_space *space, fa_diag *diag)
{
    fa_study_trial *record = NULL;
    size_t count = 0;
    int rc = fa_tuner_enumerate(tuner, &target->problem, &target->gpu, space, diag);
    if (rc == 0)
        rc = fa_store_trials(tuner->store, &target->scope, &record, &count, diag);
    const bool whole = rc == 0 && space->held == 0;
    if (rc == 0 && !whole)
        rc = take_trials(record, count, space, diag);
    for (size_t i = 0; whole && i < count; i++) {
        fa_candidate *one = find_pending(space, &record[i].trial.config);
        if (one != NULL)
            take_trial(&one->trial, &record[i].trial);
    }
    free(record);
    if (whole)
        predict(tuner, target, space);
    return rc;
}

/* Of the configs on record those that finished. */
static int read_finished(fa_tuner *tuner, const fa_target *target, fa_space *space, fa_diag *diag)
{
    const fa_status finished[] = {FA_STATUS_MEASURED, FA_STATUS_COMPILED};
    int rc = 0;
    for (int i = 0; rc == 0 && i < 2; i++) {
        fa_study_trial *record = NULL;
        size_t count = 0;
        rc = fa_store_trials_fastest(tuner->store, &target->scope, finished[i], FA_SPACE_MAX,
                                     &record, &count, diag);
        if (rc == 0)
            rc = take_trials(record, count, space, diag);
        free(record);
    }
    const fa_candidate *last = space->count > 0 ? &space->candidate[space->count - 1] : NULL;
    if (rc == 0 && last != NULL && last->trial.status == FA_STATUS_COMPILED &&
        !fa_problem_equal(&target->asked, &target->problem))
        predict(tuner, target, space);
    return rc;
}

static void rank(fa_space *space, const fa_answer *winner)
{
    if (space->count > 0)
        qsort(space->candidate, (size_t)space->count, sizeof *space->candidate, compare);
    if (winner != NULL)
        winner_first(space, winner);
}

int fa_explain(fa_tuner *tuner, const fa_request *request, fa_ranked **ret_configs,
               size_t *ret_count, fa_explained *ret_space, fa_diag *diag)
{
    fa_space space = {0};
    fa_list list = {0};
    fa_target target;
    fa_lookup winner = {.count = 0};
    fa_request known;
    int rc = fa_tuner_check_with(tuner, ret_configs != NULL && ret_count != NULL,
                                 "ret_configs or ret_count", diag);
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_target_resolve(tuner, &known, &target, diag);
    if (rc == 0)
        rc = read_space(tuner, &target, &space, diag);
    bool won = rc == 0 && fa_look(tuner, &target, false, &winner, NULL) == 0;
    pthread_mutex_unlock(&tuner->work);
    /* An imported winner has no trial on record but itself. */
    fa_candidate *alone = won && fa_problem_equal(&winner.answer.from_problem, &target.problem)
                              ? find_pending(&space, &winner.answer.trial.config)
                              : NULL;
    if (alone != NULL)
        take_trial(&alone->trial, &winner.answer.trial);
    if (rc == 0)
        rank(&space, won ? &winner.answer : NULL);
    if (rc == 0 && ret_space != NULL)
        *ret_space = (fa_explained){.gpu = target.gpu,
                                    .configs = space.held > 0 ? space.held : space.count,
                                    .about = space.about,
                                    .is_searched = space.held > 0};
    for (int i = 0; rc == 0 && i < space.count; i++) {
        const fa_trial *trial = &space.candidate[i].trial;
        const fa_ranked row = {fa_trial_finished(trial) ? i + 1 : 0, *trial};
        fa_list_add(&list, &row, sizeof row);
    }
    fa_lookup_free(&winner);
    fa_space_free(&space);
    return fa_list_end(&list, rc, NULL, ret_configs, ret_count, diag);
}

int fa_ranking_read(fa_tuner *tuner, const fa_request *request, const fa_answer *answer,
                    bool elsewhere, fa_diag *diag)
{
    fa_space space = {0};
    fa_target target;
    fa_list list = {0};
    int rc = 0;
    if (!elsewhere) {
        pthread_mutex_lock(&tuner->work);
        rc = fa_target_resolve(tuner, request, &target, diag);
        if (rc == 0)
            rc = read_finished(tuner, &target, &space, diag);
        pthread_mutex_unlock(&tuner->work);
    }
    if (rc == 0)
        rank(&space, answer);
    for (int i = 0; rc == 0 && i < space.count && fa_trial_finished(&space.candidate[i].trial);
         i++) {
        const fa_ranked row = {i + 1, space.candidate[i].trial};
        fa_list_add(&list, &row, sizeof row);
    }
    fa_space_free(&space);
    if (rc == 0 && list.count == 0) {
        const fa_ranked only = {1, answer->trial};
        fa_list_add(&list, &only, sizeof only);
    }
    return fa_list_end(&list, rc, NULL, request->ret_ranking, request->ret_ranked, diag);
}

/* ---- why ------------------------------------------------------------------------------------*/
static void add_match(fa_list *list, const fa_target *target, const fa_match *match, bool taken,
                      const char *name)
{
    fa_step step = {.kind = match->kind, .found = true, .taken = taken, .answer = match->answer};
    const bool unproved = taken && match->answer.driver_version == 0 && target->gpu.present;
    const char *more = unproved        ? "; it is not launched before this GPU has proved it "
                                         "(effort predict)"
                       : taken         ? ""
                       : match->usable ? "something above is trusted more"
                                       : match->why;
    snprintf(step.name, sizeof step.name, "%s", name);
    snprintf(step.why, sizeof step.why, "%s%s%.240s", match->answer.why,
             taken ? "" : "; passed over: ", more);
    fa_list_add(list, &step, sizeof step);
}

int fa_why(fa_tuner *tuner, const fa_request *request, fa_step **ret_steps, size_t *ret_count,
           fa_gpu *ret_gpu, fa_diag *diag)
{
    static const struct {
        fa_step_kind kind;
        const char *name, *nothing;
    } kinds[] = {
        {FA_STEP_EXACT, "exact", "no winner is stored for these very lengths"},
        {FA_STEP_BUCKET, "bucket", "nothing measured is stored for this problem's bucket"},
        {FA_STEP_PREDICTED, "predicted", "no prediction is stored for this bucket and GPU"},
    };
    fa_request known;
    fa_target target;
    fa_lookup found = {.count = 0};
    fa_list list = {0};
    int rc = fa_tuner_check_with(tuner, ret_steps != NULL && ret_count != NULL,
                                 "ret_steps or ret_count", diag);
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_target_resolve(tuner, &known, &target, diag);
    if (rc == 0 && ret_gpu != NULL)
        *ret_gpu = target.gpu;
    const int looked = rc == 0 ? fa_look(tuner, &target, true, &found, diag) : 0;
    pthread_mutex_unlock(&tuner->work);
    if (looked != FA_ENOTFOUND && looked != FA_ECORRUPT && rc == 0)
        rc = looked;
    for (size_t k = 0; rc == 0 && k < sizeof kinds / sizeof *kinds; k++) {
        const fa_problem bucket = fa_problem_bucket(&target.asked);
        /* The lengths may be the bucket's own: then there is no more exact problem. */
        bool missed = kinds[k].kind != FA_STEP_EXACT || !fa_problem_equal(&bucket, &target.asked);
        for (int i = 0; i < found.count; i++)
            if (found.own[i].kind == kinds[k].kind) {
                add_match(&list, &target, &found.own[i], found.taken == i + 1, kinds[k].name);
                missed = false;
            }
        fa_step none = {.kind = kinds[k].kind};
        snprintf(none.name, sizeof none.name, "%s", kinds[k].name);
        snprintf(none.why, sizeof none.why, "%s", kinds[k].nothing);
        if (missed)
            fa_list_add(&list, &none, sizeof none);
    }
    fa_lookup_free(&found);
    return fa_list_end(&list, rc, NULL, ret_steps, ret_count, diag);
}
