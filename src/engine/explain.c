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
#include "trials.h"
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

/* What an imported winner brought: times, and nothing of how a kernel was compiled but its own, which the space says:
 * an empty one is enumerated for it. */
static int merge_brought(fa_tuner *tuner, const fa_target *target, fa_space *space, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_study_trial *record = NULL;
    size_t brought = 0;
    fa_answer answer;
    int rc = fa_store_winner_get(tuner->store, &target->scope, &winner, NULL, diag);
    if (rc != 0) /* a damaged one brings nothing */
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    if (winner.origin == FA_ORIGIN_IMPORTED)
        rc = fa_trials_from_evidence(winner.evidence, &record, &brought, diag);
    if (rc == 0 && brought > 0)
        rc = fa_records_answer(&winner, &target->gpu, &answer, diag);
    if (rc == 0 && brought > 0 && space->count == 0)
        rc = fa_tuner_enumerate(tuner, &target->problem, &target->gpu, space, diag);
    for (size_t i = 0; rc == 0 && i < brought; i++) {
        const fa_trial *timed = &record[i].trial;
        fa_candidate *one = find_pending(space, &timed->config);
        if (one == NULL)
            continue;
        fa_trial *trial = &one->trial;
        if (fa_config_equal(&timed->config, &answer.trial.config)) {
            take_trial(trial, &answer.trial);
            continue;
        }
        trial->status = timed->status;
        trial->predicted_us = timed->predicted_us;
        fa_trial_take_times(trial, timed);
    }
    free(record);
    fa_winner_record_free(&winner);
    return rc;
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
    if (whole && count == 0)
        rc = merge_brought(tuner, target, space, diag);
    if (whole && rc == 0)
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
    if (rc == 0 && space->count == 0)
        rc = merge_brought(tuner, target, space, diag);
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
static const struct {
    const char *name, *nothing;
} kinds[] = {
    [FA_STEP_EXACT] = {"exact", "no winner is stored for these very lengths"},
    [FA_STEP_BUCKET] = {"bucket", "nothing measured is stored for this problem's bucket"},
    [FA_STEP_PREDICTED] = {"predicted", "no prediction is stored for this bucket and GPU"},
    [FA_STEP_TUNE] = {"tune", ""},
};

static void add_step(fa_list *list, fa_step *step, fa_step_kind kind)
{
    step->kind = kind;
    snprintf(step->name, sizeof step->name, "%s", kinds[kind].name);
    fa_list_add(list, step, sizeof *step);
}

static void add_match(fa_list *list, const fa_target *target, const fa_match *match, bool taken)
{
    fa_step step = {.found = true, .taken = taken, .answer = match->answer};
    const bool unproved = taken && match->answer.driver_version == 0 && target->gpu.present;
    const char *more = unproved        ? "; it is not launched before this GPU has proved it "
                                         "(effort predict)"
                       : taken         ? ""
                       : match->usable ? "something above is trusted more"
                                       : match->why;
    snprintf(step.why, sizeof step.why, "%s%s%.240s", match->answer.why,
             taken ? "" : "; passed over: ", more);
    add_step(list, &step, match->kind);
}

/* What effort measure of fa_get_best_kernel would do next. */
static int add_tune(fa_list *list, fa_tuner *tuner, const fa_target *target, const fa_lookup *known,
                    bool exact, fa_diag *diag)
{
    const fa_request request = {.size = sizeof request,
                                .problem = target->asked,
                                .effort = FA_EFFORT_MEASURE,
                                .exact = exact,
                                .first_contact = true};
    fa_step step = {.found = false};
    fa_plan plan = {0};
    fa_diag said = {{0}};
    bool enough = known->taken > 0 && fa_answer_satisfies(&known->answer, &request);
    int rc = enough ? 0 : fa_plan_make(tuner, &request, target, known, &plan, &said);
    if (rc == FA_ENOMEM || rc == FA_EIO)
        return fa_fail(diag, rc, "%s", said.text);
    if (plan.count > 0)
        snprintf(step.why, sizeof step.why, "effort measure would race the %d cubin%s ready here",
                 plan.count, plan.count == 1 ? " that is" : "s that are");
    else
        snprintf(step.why, sizeof step.why, "%.500s",
                 enough                ? "effort measure has nothing to add"
                 : rc != 0             ? said.text
                 : target->gpu.present ? "effort measure would prove and time the whole space"
                                       : "a tune would compile the whole space and rank it by the "
                                         "model");
    add_step(list, &step, FA_STEP_TUNE);
    return 0;
}

static int list_steps(fa_tuner *tuner, const fa_request *request, fa_list *list, fa_gpu *ret_gpu,
                      fa_diag *diag)
{
    static const fa_step_kind order[] = {FA_STEP_EXACT, FA_STEP_BUCKET, FA_STEP_PREDICTED};
    fa_target target;
    fa_lookup found;
    int rc = fa_target_resolve(tuner, request, &target, diag);
    if (rc != 0)
        return rc;
    rc = fa_look(tuner, &target, true, &found, diag);
    if (rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        rc = 0;
    const fa_problem bucket = fa_problem_bucket(&target.asked);
    for (size_t k = 0; rc == 0 && k < sizeof order / sizeof *order; k++) {
        /* The lengths may be the bucket's own: then there is no more exact problem. */
        bool missed = order[k] != FA_STEP_EXACT || !fa_problem_equal(&bucket, &target.asked);
        for (int i = 0; i < found.count; i++)
            if (found.own[i].kind == order[k]) {
                add_match(list, &target, &found.own[i], found.taken == i + 1);
                missed = false;
            }
        fa_step none = {.found = false};
        snprintf(none.why, sizeof none.why, "%s", kinds[order[k]].nothing);
        if (missed)
            add_step(list, &none, order[k]);
    }
    if (rc == 0)
        rc = add_tune(list, tuner, &target, &found, request->exact, diag);
    fa_lookup_free(&found);
    if (ret_gpu != NULL)
        *ret_gpu = target.gpu;
    return rc;
}

int fa_why(fa_tuner *tuner, const fa_request *request, fa_step **ret_steps, size_t *ret_count,
           fa_gpu *ret_gpu, fa_diag *diag)
{
    fa_list list = {0};
    fa_request known;
    int rc = fa_tuner_check_with(tuner, ret_steps != NULL && ret_count != NULL,
                                 "ret_steps or ret_count", diag);
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = list_steps(tuner, &known, &list, ret_gpu, diag);
    pthread_mutex_unlock(&tuner->work);
    return fa_list_end(&list, rc, NULL, ret_steps, ret_count, diag);
}
