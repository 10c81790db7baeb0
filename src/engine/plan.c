/* SPDX-License-Identifier: Apache-2.0
 *
 * First contact: what a tune is to try when something about the problem is known from elsewhere.
 *
 * Workload: a dozen matches and a few hundred trials on record at the most; a render and a hash for
 * each that may be raced.
 */
#include "job.h"

#include "buf.h"
#include "candidate.h"
#include "manifest.h"
#include "compile_pool.h"
#include "problem.h"
#include "store.h"
#include "stored.h"

#include "error.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

static fa_plan_item item_of(const fa_match *match)
{
    const fa_answer *answer = &match->answer;
    fa_plan_item item = {answer->trial.config,
                         match->kind == FA_STEP_TRANSFERRED ? FA_ORIGIN_TRANSFERRED
                                                            : fa_origin_untimed(&answer->trial),
                         ""};
    memcpy(item.from_gpu, answer->from_gpu, sizeof item.from_gpu);
    return item;
}

static bool guessed(const fa_match *match)
{
    return match->usable &&
           (match->kind == FA_STEP_TRANSFERRED || match->kind == FA_STEP_PREDICTED);
}

/* At most one transferred and one predicted config are tried: if the transferred one fails its proof, the
 * predicted one may still pass. Trying more would keep the caller waiting. */
static void plan_proof(const fa_matches *matches, fa_plan *plan)
{
    plan->prove_only = true;
    for (int i = 0; i < matches->count && plan->count < FA_PLAN_MAX; i++) {
        const fa_match *match = &matches->match[i];
        bool first = plan->count == 0 || match->kind == FA_STEP_PREDICTED;
        if (guessed(match) && first)
            plan->item[plan->count++] = item_of(match);
    }
}

struct readying {
    fa_tuner *tuner;
    const fa_target *target;
    const char *nvrtc;
    fa_plan *plan;
};

/* Adds a config to the race if it fits and its cubin is there; false: it is not in the plan. */
static bool add_ready(struct readying *r, const fa_plan_item *item)
{
    fa_candidate candidate;
    fa_rendered rendered = {.key = ""};
    for (int i = 0; i < r->plan->count; i++)
        if (fa_config_equal(&r->plan->item[i].config, &item->config))
            return true;
    if (r->plan->count == FA_PLAN_MAX)
        return false;
    fa_task task = fa_task_for(r->tuner, &r->target->problem, &r->target->gpu);
    bool ready = fa_space_one(&task, &item->config, &candidate, NULL) == 0 &&
                 candidate.trial.status == FA_STATUS_PENDING &&
                 fa_render_candidate(r->tuner, &task, &candidate, r->nvrtc, &rendered, NULL) == 0 &&
                 fa_records_has_cubin(r->tuner, rendered.key);
    if (ready)
        r->plan->item[r->plan->count++] = *item;
    fa_buf_free(&rendered.source);
    return ready;
}

static int by_prediction(const void *a, const void *b)
{
    double x = ((const fa_trial_record *)a)->trial.predicted_us;
    double y = ((const fa_trial_record *)b)->trial.predicted_us;
    return (x > y) - (x < y);
}

/* A few matches of each kind in the order of trust, then what was compiled for this silicon as the model ranks it. Nothing
 * where no transferred or predicted config is ready: winners of other lengths alone do not justify a race. */
static int plan_race(fa_tuner *tuner, const fa_target *target, const fa_matches *matches,
                     fa_plan *plan, fa_diag *diag)
{
    enum { OF_A_KIND = 2 };
    int kept[FA_STEP_TUNE + 1] = {0}, rc;
    bool any = false;
    fa_nvrtc_location nvrtc;
    struct readying r = {.tuner = tuner, .target = target, .nvrtc = nvrtc.identity, .plan = plan};
    fa_trial_record *trial = NULL;
    size_t count = 0, ready = 0;
    if ((rc = fa_compiler_choose(tuner->worker_path, target->gpu.sm, &nvrtc, NULL, diag)) != 0 ||
        (rc = fa_tuner_families(tuner, diag)) != 0)
        return rc;
    for (int i = 0; i < matches->count; i++) {
        const fa_match *match = &matches->match[i];
        const fa_plan_item item = item_of(match);
        if (!match->usable || kept[match->kind] == OF_A_KIND || !add_ready(&r, &item))
            continue;
        kept[match->kind]++;
        any = any || guessed(match);
    }
    if (any)
        rc = fa_store_trials(tuner->store, &target->scope, &trial, &count, diag);
    else
        plan->count = 0;
    for (size_t i = 0; i < count; i++)
        if (fa_trial_finished(&trial[i].trial) && trial[i].trial.predicted_us > 0)
            trial[ready++] = trial[i];
    if (ready > 0)
        qsort(trial, ready, sizeof *trial, by_prediction);
    for (size_t i = 0; i < ready; i++)
        add_ready(&r, &(fa_plan_item){trial[i].trial.config, FA_ORIGIN_PREDICTED, ""});
    free(trial);
    return rc;
}

int fa_plan_make(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                 const fa_matches *matches, fa_plan *ret_plan, fa_diag *diag)
{
    fa_plan plan = {0};
    int rc = 0;
    bool known = false; /* measured for these very lengths: no other config promises more */
    for (int i = 0; i < matches->count && !plan.promised && !known; i++) {
        const fa_match *match = &matches->match[i];
        known = match->usable && (match->kind == FA_STEP_EXACT || match->kind == FA_STEP_BUCKET);
        plan.promised = guessed(match) && match->answer.origin != FA_ORIGIN_UNRANKED;
        plan.promise = item_of(match);
    }
    if (request->effort == FA_EFFORT_PREDICT)
        plan_proof(matches, &plan);
    else if (request->effort == FA_EFFORT_MEASURE && request->first_contact && !request->again &&
             target->gpu.present && plan.promised)
        rc = plan_race(tuner, target, matches, &plan, diag);
    if (rc == 0)
        *ret_plan = plan;
    return rc;
}
