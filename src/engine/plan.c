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
#include "hash.h"
#include "manifest.h"
#include "compile_pool.h"
#include "problem.h"
#include "store.h"
#include "stored.h"

#include "cubin.h"
#include "error.h"
#include "trial.h"

#include <stdlib.h>
#include <string.h>

/* ---- plans ----------------------------------------------------------------------------------*/
static fa_plan_item item_of(const fa_match *match)
{
    const fa_answer *answer = &match->answer;
    fa_plan_item item = {.config = answer->trial.config,
                         .origin = match->kind == FA_STEP_TRANSFERRED
                                       ? FA_ORIGIN_TRANSFERRED
                                       : fa_origin_untimed(&answer->trial)};
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
    fa_trial *trial; /* on record: [count] */
    size_t count, capacity;
    char code[FA_PLAN_MAX][FA_HASH_HEX]; /* of the plan's items */
    bool failed;
};

/* The item for a cubin: an earlier item that executes the same code, else a new one. */
static int add_cubin(struct readying *r, const fa_plan_item *item, const char *entry,
                     const fa_cubin_record *cubin)
{
    fa_plan *plan = r->plan;
    char *code = r->code[plan->count];
    if (fa_cubin_code(cubin->bytes, cubin->size, entry, code, NULL) != 0)
        code[0] = 0;
    for (int i = 0; i < plan->count && code[0] != 0; i++)
        if (strcmp(r->code[i], code) == 0)
            return i;
    plan->item[plan->count] = *item;
    return plan->count++;
}

/* The item that a config is raced as; -1: it does not fit, its cubin is not there, or the plan is
 * full. */
static int add_ready(struct readying *r, const fa_plan_item *item)
{
    fa_candidate candidate;
    fa_rendered rendered = {.key = ""};
    fa_cubin_record cubin = {0};
    int at = -1;
    for (int i = 0; i < r->plan->count; i++)
        if (fa_config_equal(&r->plan->item[i].config, &item->config))
            return i;
    if (r->plan->count == FA_PLAN_MAX)
        return -1;
    fa_task task = fa_task_for(r->tuner, &r->target->problem, &r->target->gpu);
    if (fa_space_one(&task, &item->config, &candidate, NULL) != 0 ||
        candidate.trial.status != FA_STATUS_PENDING)
        return -1;
    if (fa_render_candidate(r->tuner, &task, &candidate, r->nvrtc, &rendered, NULL) == 0 &&
        fa_records_cubin(r->tuner, rendered.key, &cubin, NULL) == 0) {
        at = add_cubin(r, item, fa_family_entry(task.families->family[candidate.family]), &cubin);
        fa_cubin_record_free(&cubin);
    }
    fa_buf_free(&rendered.source);
    return at;
}

static int keep_trial(void *context, const fa_trial_record *record)
{
    struct readying *r = context;
    const fa_trial *trial = &record->trial;
    if (!fa_trial_finished(trial) || !(trial->predicted_us > 0))
        return 0;
    r->failed = fa_append(&r->trial, &r->count, &r->capacity, trial, sizeof *trial) != 0;
    return r->failed ? FA_ENOMEM : 0;
}

static int by_prediction(const void *a, const void *b)
{
    const fa_trial *x = a, *y = b;
    return (x->predicted_us > y->predicted_us) - (x->predicted_us < y->predicted_us);
}

/* Adds a few matches of each kind in the order of trust. Returns false when no transferred or predicted
 * config is ready: winners of other lengths alone do not justify a race. */
static bool add_matches(struct readying *r, const fa_matches *matches)
{
    enum { OF_A_KIND = 2 };
    int kept[FA_STEP_TUNE + 1] = {0};
    bool any = false;
    for (int i = 0; i < matches->count; i++) {
        const fa_match *match = &matches->match[i];
        fa_plan_item item = item_of(match);
        int at = match->usable && kept[match->kind] < OF_A_KIND ? add_ready(r, &item) : -1;
        if (at < 0)
            continue;
        kept[match->kind]++;
        /* Of the ready items, the one that a lookup would have served had nothing been measured. */
        if (guessed(match) && !any) {
            r->plan->promise = item;
            r->plan->promise.config = r->plan->item[at].config;
            any = true;
        }
    }
    return any;
}

/* The matches, then what was compiled for this silicon as the model ranks it. */
static int plan_race(fa_tuner *tuner, const fa_target *target, const fa_matches *matches,
                     fa_plan *plan, fa_diag *diag)
{
    fa_nvrtc_location nvrtc;
    struct readying r = {.tuner = tuner, .target = target, .nvrtc = nvrtc.identity, .plan = plan};
    int rc;
    if ((rc = fa_compiler_choose(tuner->worker_path, target->gpu.sm, &nvrtc, NULL, diag)) != 0 ||
        (rc = fa_tuner_families(tuner, diag)) != 0)
        return rc;
    rc = fa_store_trials_each(tuner->store, &target->scope, keep_trial, &r, diag);
    if (rc != 0)
        goto done;
    if (!add_matches(&r, matches)) {
        plan->count = 0;
        goto done;
    }
    if (r.count > 0)
        qsort(r.trial, r.count, sizeof *r.trial, by_prediction);
    for (size_t i = 0; i < r.count; i++) {
        add_ready(&r, &(fa_plan_item){r.trial[i].config, FA_ORIGIN_PREDICTED, ""});
    }
done:
    free(r.trial);
    return r.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for %zu trials", r.count) : rc;
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
