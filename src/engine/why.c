/* SPDX-License-Identifier: Apache-2.0
 *
 * What fa_contact.h tells: the steps of a lookup, predictions against the truth, and the regret of
 * buckets.
 */
#include "lookup.h"
#include "request.h"
#include "stored.h"
#include "manifest.h"
#include "job.h"
#include "problem.h"
#include "store.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- why ------------------------------------------------------------------------------------*/
static const struct {
    const char *name, *nothing;
} kinds[] = {
    [FA_STEP_EXACT] = {"exact", "no winner is stored for these very lengths"},
    [FA_STEP_BUCKET] = {"bucket", "nothing measured is stored for this problem's bucket"},
    [FA_STEP_NEAREST] = {"nearest", "no other length within two octaves was measured on this GPU"},
    [FA_STEP_TRANSFERRED] = {"transferred", "no other GPU has a measured winner for this bucket"},
    [FA_STEP_PREDICTED] = {"predicted", "no prediction is stored for this bucket and GPU"},
    [FA_STEP_TUNE] = {"tune", ""},
};

enum { STEPS_MAX = FA_MATCHES_MAX + FA_STEP_TUNE + 1 };

typedef struct steps {
    fa_step step[STEPS_MAX];
    int count;
} steps;

static fa_step *add_step(steps *all, fa_step_kind kind)
{
    fa_step *step = &all->step[all->count++];
    *step = (fa_step){.kind = kind};
    snprintf(step->name, sizeof step->name, "%s", kinds[kind].name);
    return step;
}

/* One match as a step; taken: a lookup answers with it. */
static int add_match(steps *all, fa_tuner *tuner, const fa_target *target, const fa_match *match,
                     bool *taken, fa_diag *diag)
{
    fa_step *step = add_step(all, match->kind);
    fa_cubin_record cubin = {0};
    const char *ready = "";
    step->found = true;
    step->answer = match->answer;
    fa_records_place(tuner, &match->scope, true, &step->answer);
    fa_match_predict(tuner, target, &step->answer);
    bool serves = fa_match_serves(target, match);
    int rc = serves ? fa_records_cubin(tuner, match->answer.cubin_key, &cubin, diag) : 0;
    if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT)
        return rc;
    if (rc != 0) {
        serves = false;
        ready = "its cubin is gone from the store, a tune compiles it again";
    }
    fa_cubin_record_free(&cubin);
    step->taken = serves && !*taken;
    if (!match->usable)
        snprintf(step->why, sizeof step->why, "%.200s; passed over: %.290s", match->answer.why,
                 match->why);
    else if (step->taken && match->answer.driver_version == 0 && target->gpu.present)
        snprintf(step->why, sizeof step->why,
                 "%s; not launched before this GPU has proved it (effort predict)",
                 match->answer.why);
    else if (step->taken)
        snprintf(step->why, sizeof step->why, "%s", match->answer.why);
    else if (serves)
        snprintf(step->why, sizeof step->why, "%s; passed over: something above is trusted more",
                 match->answer.why);
    else
        snprintf(step->why, sizeof step->why, "%s; passed over: %s", match->answer.why,
                 ready[0] != 0 ? ready : "it is not compiled for this GPU yet");
    *taken = *taken || step->taken;
    return 0;
}

/* What effort measure of fa_get_best_kernel would do next. */
static int add_tune(steps *all, fa_tuner *tuner, const fa_target *target, const fa_matches *matches,
                    bool exact, fa_diag *diag)
{
    fa_request request = {.size = sizeof request,
                          .problem = target->asked,
                          .effort = FA_EFFORT_MEASURE,
                          .exact = exact,
                          .first_contact = true};
    fa_step *step = add_step(all, FA_STEP_TUNE);
    fa_plan plan = {0};
    fa_diag said = {{0}};
    for (int i = 0; i < all->count; i++) {
        if (all->step[i].taken &&
            fa_answer_satisfies(&all->step[i].answer,
                                (fa_wanted){.effort = FA_EFFORT_MEASURE, .exact = exact})) {
            snprintf(step->why, sizeof step->why, "effort measure has nothing to add");
            return 0;
        }
    }
    int rc = fa_plan_make(tuner, &request, target, matches, &plan, &said);
    if (rc == FA_ENOMEM || rc == FA_EIO)
        return fa_fail(diag, rc, "%s", said.text);
    if (rc != 0)
        snprintf(step->why, sizeof step->why, "%.500s", said.text);
    else if (plan.count > 0)
        snprintf(step->why, sizeof step->why, "effort measure would race the %d cubin%s ready here",
                 plan.count, plan.count == 1 ? " that is" : "s that are");
    else if (target->gpu.present)
        snprintf(step->why, sizeof step->why,
                 "effort measure would prove and time the whole space");
    else
        snprintf(step->why, sizeof step->why,
                 "a tune would compile the whole space and rank it by the model");
    return 0;
}

static int collect_steps(fa_tuner *tuner, const fa_request *request, steps *all, fa_gpu *ret_gpu,
                         fa_diag *diag)
{
    fa_target target;
    fa_matches *matches = NULL;
    int rc = fa_target_resolve(tuner, request, &target, diag);
    if (rc == 0)
        rc = fa_matches_collect(tuner, &target, &matches, diag);
    if (rc != 0)
        return rc;
    fa_problem bucket = fa_problem_bucket(&target.asked);
    bool taken = false;
    for (fa_step_kind kind = FA_STEP_EXACT; kind < FA_STEP_TUNE; kind++) {
        int found = 0;
        for (int i = 0; rc == 0 && i < matches->count; i++) {
            if (matches->match[i].kind != kind)
                continue;
            rc = add_match(all, tuner, &target, &matches->match[i], &taken, diag);
            found++;
        }
        /* The lengths are the bucket's own, so there is no more exact problem. */
        bool asked = kind != FA_STEP_EXACT || !fa_problem_equal(&bucket, &target.asked);
        if (found == 0 && asked)
            snprintf(add_step(all, kind)->why, sizeof all->step[0].why, "%s", kinds[kind].nothing);
    }
    if (rc == 0)
        rc = add_tune(all, tuner, &target, matches, request->exact, diag);
    free(matches);
    if (ret_gpu != NULL)
        *ret_gpu = target.gpu;
    return rc;
}

int fa_why(fa_tuner *tuner, const fa_request *request, fa_step_visit *visit, void *context,
           fa_gpu *ret_gpu, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    fa_request known;
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    steps *all = calloc(1, sizeof *all);
    if (all == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a lookup");
    pthread_mutex_lock(&tuner->work);
    rc = collect_steps(tuner, &known, all, ret_gpu, diag);
    pthread_mutex_unlock(&tuner->work);
    for (int i = 0; rc == 0 && i < all->count; i++)
        rc = visit(context, &all->step[i]);
    free(all);
    return rc;
}

/* ---- predictions ----------------------------------------------------------------------------*/
struct telling {
    fa_tuner *tuner;
    fa_prediction_visit *prediction;
    fa_regret_visit *regret;
    void *context;
    fa_diag *diag;
};

static int tell_prediction(void *context, const fa_prediction_record *record)
{
    struct telling *telling = context;
    fa_prediction told = {.problem = record->scope.problem,
                          .origin = record->origin,
                          .config = record->config,
                          .predicted_us = record->predicted_us,
                          .measured_us = record->measured_us,
                          .best_us = record->best_us,
                          .rank = record->rank,
                          .measured = record->raced,
                          .unix_time = record->unix_time};
    memcpy(told.gpu, record->gpu_name, sizeof told.gpu);
    memcpy(told.from_gpu, record->from_gpu, sizeof told.from_gpu);
    return telling->prediction(telling->context, &told);
}

int fa_list_predictions(fa_tuner *tuner, fa_prediction_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    struct telling telling = {.tuner = tuner, .prediction = visit, .context = context};
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_predictions_each(tuner->store, tell_prediction, &telling, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

/* ---- regret ---------------------------------------------------------------------------------*/
struct point {
    fa_regret regret;
    bool raced;  /* its winner was: a probe, at another clock, is no time beside that */
    bool probed; /* what the bucket gives was probed there and no more */
};

static int find_time(void *context, const fa_trial_record *record)
{
    struct point *point = context;
    const fa_trial *trial = &record->trial;
    if (trial->status != FA_STATUS_MEASURED ||
        !fa_config_equal(&trial->config, &point->regret.bucket_config))
        return 0;
    point->probed = trial->raced != point->raced;
    if (!point->probed)
        point->regret.bucket_us = trial->median_us;
    return 0;
}

/* The config that a lookup at an exact point would answer with if that had not been tuned: the bucket's where
 * another cannot be found for other reasons than the machine's. */
static int given_by_bucket(fa_tuner *tuner, const fa_winner_record *point,
                           const fa_winner_record *bucket, fa_config *ret_given, fa_diag *diag)
{
    fa_answer answer;
    fa_alternatives *alternatives = NULL;
    *ret_given = bucket->trial.config;
    int rc = fa_records_answer(point, NULL, &answer, diag);
    bool current = fa_templates_match(fa_templates_for(tuner, &point->scope.problem),
                                      &point->scope.problem, point->scope.templates);
    if (rc == 0 && current)
        rc = fa_alternatives_find(tuner, &bucket->scope, &bucket->trial, &point->scope.problem,
                                  &answer.gpu, &alternatives, diag);
    if (rc == 0 && current && alternatives->count > 0)
        *ret_given = alternatives->alternative[0].trial.config;
    free(alternatives);
    return rc == FA_ENOMEM || rc == FA_EIO ? rc : 0;
}

static int tell_regret(void *context, fa_store *store, const fa_winner_record *winner)
{
    struct telling *telling = context;
    fa_winner_record of_bucket = {0};
    fa_scope scope = winner->scope;
    scope.problem = fa_problem_bucket(&winner->scope.problem);
    if (fa_problem_equal(&scope.problem, &winner->scope.problem) ||
        winner->trial.status != FA_STATUS_MEASURED)
        return 0;
    fa_config given;
    int rc = fa_store_winner_get(store, &scope, &of_bucket, NULL, telling->diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    rc = given_by_bucket(telling->tuner, winner, &of_bucket, &given, telling->diag);
    struct point point = {.regret = {.problem = winner->scope.problem,
                                     .bucket = scope.problem,
                                     .bucket_config = given,
                                     .best_config = winner->trial.config,
                                     .best_us = winner->trial.median_us},
                          .raced = winner->trial.raced};
    fa_regret *regret = &point.regret;
    bool measured = of_bucket.trial.status == FA_STATUS_MEASURED;
    memcpy(regret->gpu, winner->gpu_name, sizeof regret->gpu);
    fa_winner_record_free(&of_bucket);
    if (rc != 0 || !measured)
        return rc;
    rc = fa_store_trials_each(store, &winner->scope, find_time, &point, telling->diag);
    if (rc != 0 || point.probed)
        return rc;
    /* The winner of a tie may be a little slower than the fastest. */
    if (regret->bucket_us > 0 && regret->bucket_us < regret->best_us)
        regret->best_us = regret->bucket_us;
    return telling->regret(telling->context, regret);
}

int fa_list_regret(fa_tuner *tuner, fa_regret_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    struct telling telling = {.tuner = tuner, .regret = visit, .context = context, .diag = diag};
    pthread_mutex_lock(&tuner->work);
    rc = fa_listed_winners_each(tuner, tell_regret, &telling, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}
