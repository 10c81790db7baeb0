/* SPDX-License-Identifier: Apache-2.0
 *
 * First contact: what a tune is to try when something about the problem is known from elsewhere, and
 * the proof that a winner gets once more when the driver is another.
 *
 * Workload: a dozen leads and a few hundred trials on record at the most; a render and a hash for
 * each that may be raced. Invariant: nothing here is launched but in the measuring worker.
 */
#include "engine.h"

#include "bundles.h"
#include "cubin.h"
#include "error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- plans ----------------------------------------------------------------------------------*/
static fa_plan_item item_of(const fa_lead *lead)
{
    const fa_answer *answer = &lead->answer;
    fa_plan_item item = {.config = answer->trial.config,
                         .origin = lead->kind == FA_STEP_TRANSFERRED ? FA_ORIGIN_TRANSFERRED
                                                                     : FA_ORIGIN_PREDICTED,
                         .from_problem = answer->from_problem,
                         .predicted_us = answer->trial.predicted_us};
    memcpy(item.from_gpu, answer->from_gpu, sizeof item.from_gpu);
    return item;
}

static bool guessed(const fa_lead *lead)
{
    return lead->usable &&
           (lead->kind == FA_STEP_TRANSFERRED || lead->kind == FA_STEP_PREDICTED);
}

/* The first transferred one and the predicted one: what is not the first's fault may be the
 * second's fortune, and more would keep the caller waiting. */
static void plan_proof(const fa_leads *leads, fa_plan *plan)
{
    plan->prove_only = true;
    for (int i = 0; i < leads->count && plan->count < FA_PLAN_MAX; i++) {
        const fa_lead *lead = &leads->lead[i];
        bool first = plan->count == 0 || lead->kind == FA_STEP_PREDICTED;
        if (guessed(lead) && first)
            plan->item[plan->count++] = item_of(lead);
    }
}

struct readying {
    fa_tuner *tuner;
    const fa_target *target;
    const char *nvrtc;
    fa_plan *plan;
    fa_trial *trial; /* on record: [count] */
    int count, capacity;
    char code[FA_PLAN_MAX][FA_HASH_HEX]; /* of the plan's items */
    bool failed;
};

/* The item that a cubin stands for: an earlier one that executes the same, else this one, added. */
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
    fa_buf source = {0};
    fa_cubin_record cubin = {0};
    char architecture[32], key[FA_HASH_HEX];
    int at = -1;
    for (int i = 0; i < r->plan->count; i++)
        if (fa_config_equal(&r->plan->item[i].config, &item->config))
            return i;
    if (r->plan->count == FA_PLAN_MAX)
        return -1;
    if (fa_space_one(&r->tuner->families, &item->config, &r->target->problem, &r->target->gpu,
                     &candidate, NULL) != 0 ||
        candidate.trial.status != FA_STATUS_PENDING)
        return -1;
    if (fa_render_candidate(r->tuner, r->target, &candidate, r->nvrtc, &source, architecture,
                            sizeof architecture, key, NULL) == 0 &&
        fa_records_cubin(r->tuner, key, &cubin, NULL) == 0) {
        at = add_cubin(r, item, fa_family_entry(r->tuner->families.family[candidate.family]),
                       &cubin);
        fa_cubin_record_free(&cubin);
    }
    fa_buf_free(&source);
    return at;
}

static int keep_trial(void *context, const fa_trial_record *record)
{
    struct readying *r = context;
    const fa_trial *trial = &record->trial;
    if ((trial->status != FA_STATUS_COMPILED && trial->status != FA_STATUS_MEASURED) ||
        !(trial->predicted_us > 0))
        return 0;
    if (r->count == r->capacity) {
        int capacity = r->capacity == 0 ? 64 : r->capacity * 2;
        fa_trial *grown = realloc(r->trial, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            r->failed = true;
            return FA_ENOMEM;
        }
        r->trial = grown;
        r->capacity = capacity;
    }
    r->trial[r->count++] = *trial;
    return 0;
}

static int by_prediction(const void *a, const void *b)
{
    const fa_trial *x = a, *y = b;
    return (x->predicted_us > y->predicted_us) - (x->predicted_us < y->predicted_us);
}

/* A few leads of each kind in the order of trust. False when nothing that is transferred or predicted
 * is ready: other lengths' winners alone are no reason for a race. */
static bool add_leads(struct readying *r, const fa_leads *leads)
{
    enum { OF_A_KIND = 2 };
    int kept[FA_STEP_TUNE + 1] = {0};
    bool any = false;
    for (int i = 0; i < leads->count; i++) {
        const fa_lead *lead = &leads->lead[i];
        fa_plan_item item = item_of(lead);
        int at = lead->usable && kept[lead->kind] < OF_A_KIND ? add_ready(r, &item) : -1;
        if (at < 0)
            continue;
        kept[lead->kind]++;
        /* What would have been served if nothing were measured, of what is. */
        if (guessed(lead) && !any) {
            r->plan->promise = item;
            r->plan->promise.config = r->plan->item[at].config;
            any = true;
        }
    }
    return any;
}

/* The leads, then what was compiled for this silicon as the model ranks it. */
static int plan_race(fa_tuner *tuner, const fa_target *target, const fa_leads *leads, fa_plan *plan,
                     fa_diag *diag)
{
    fa_nvrtc_location nvrtc;
    struct readying r = {.tuner = tuner, .target = target, .nvrtc = nvrtc.identity, .plan = plan};
    int rc = fa_nvrtc_locate(&nvrtc, diag);
    if (rc == 0)
        rc = fa_tuner_families(tuner, diag);
    if (rc == 0)
        rc = fa_store_trials_each(tuner->store, &target->scope, keep_trial, &r, diag);
    if (rc == 0 && !add_leads(&r, leads)) {
        plan->count = 0;
    } else if (rc == 0) {
        if (r.count > 0)
            qsort(r.trial, (size_t)r.count, sizeof *r.trial, by_prediction);
        for (int i = 0; i < r.count; i++) {
            fa_plan_item item = {.config = r.trial[i].config,
                                 .origin = FA_ORIGIN_PREDICTED,
                                 .from_problem = target->problem,
                                 .predicted_us = r.trial[i].predicted_us};
            add_ready(&r, &item);
        }
    }
    free(r.trial);
    return r.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for %d trials", r.count) : rc;
}

int fa_plan_make(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                 fa_plan *ret_plan, fa_diag *diag)
{
    fa_leads *leads = NULL;
    fa_plan plan = {0};
    int rc = fa_leads_collect(tuner, target, &leads, diag);
    if (rc != 0)
        return rc;
    bool known = false; /* measured for these lengths: there is nothing to promise any more */
    for (int i = 0; i < leads->count && !plan.promised && !known; i++) {
        const fa_lead *lead = &leads->lead[i];
        known = lead->usable && (lead->kind == FA_STEP_EXACT || lead->kind == FA_STEP_BUCKET);
        plan.promised = guessed(lead);
        plan.promise = item_of(lead);
    }
    for (int i = 0; i < leads->count && !plan.with_rival; i++) {
        const fa_lead *lead = &leads->lead[i];
        fa_problem bucket = fa_problem_bucket(&target->problem);
        if (lead->kind != FA_STEP_NEAREST ||
            !fa_problem_equal(&lead->answer.from_problem, &bucket))
            continue;
        plan.with_rival = true;
        plan.rival = lead->answer.trial.config;
    }
    if (request->effort == FA_EFFORT_PREDICT)
        plan_proof(leads, &plan);
    else if (request->effort == FA_EFFORT_MEASURE && request->first_contact && !request->again &&
             target->gpu.present && plan.promised)
        rc = plan_race(tuner, target, leads, &plan, diag);
    free(leads);
    if (rc == 0)
        *ret_plan = plan;
    return rc;
}

/* ---- verification ---------------------------------------------------------------------------*/
/* One proof in a worker. 0: passed; FA_ENOKERNEL: not, and ret_end says how; else no proof came about. */
static int prove(fa_tuner *tuner, const fa_target *target, const fa_config *config,
                 const fa_cubin_record *cubin, fa_answer *ret_end, fa_diag *diag)
{
    fa_request request = {.size = sizeof request, .problem = target->asked,
                          .effort = FA_EFFORT_PREDICT};
    fa_plan plan = {.count = 1, .prove_only = true, .verify = true, .cubin = cubin};
    fa_job *job = NULL;
    plan.item[0].config = *config;
    *ret_end = (fa_answer){0};
    int rc = fa_job_new(tuner, &request, &job, diag);
    if (rc == 0)
        rc = fa_job_run(job, target, &plan, ret_end, diag);
    fa_job_free(&job);
    /* What the device had no room for was not proved wrong. */
    if (rc == FA_ENOKERNEL && ret_end->trial.status == FA_STATUS_OUT_OF_MEMORY)
        rc = FA_ENOMEM;
    return rc;
}

/* Whether our own manifest launches a config as an answer says: a proof runs the manifest's entry. */
static bool launched_so(fa_tuner *tuner, const fa_target *target, const fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    fa_candidate candidate;
    return fa_tuner_families(tuner, NULL) == 0 &&
           fa_space_one(&tuner->families, &trial->config, &target->asked, &target->gpu, &candidate,
                        NULL) == 0 &&
           candidate.trial.status == FA_STATUS_PENDING &&
           candidate.trial.threads == trial->threads &&
           candidate.trial.smem_bytes == trial->smem_bytes &&
           memcmp(candidate.trial.grid, trial->grid, sizeof trial->grid) == 0 &&
           strcmp(fa_family_entry(tuner->families.family[candidate.family]), answer->entry) == 0;
}

bool fa_contact_is_ours(fa_tuner *tuner, const fa_target *target, const fa_answer *answer)
{
    return launched_so(tuner, target, answer) && fa_record_holds(tuner, answer);
}

int fa_contact_prove(fa_tuner *tuner, const fa_target *target, const fa_answer *answer,
                     const fa_cubin_record *cubin, fa_diag *diag)
{
    fa_lock *gpu_lock = NULL;
    fa_answer end;
    fa_request request = {.size = sizeof request};
    if (!launched_so(tuner, target, answer))
        return fa_fail(diag, FA_ENOKERNEL, "the templates here do not launch %s so: they must be the "
                       "server's (FA_TUNE_TEMPLATES)", answer->trial.config.family);
    int rc = fa_store_is_read_only(tuner->store)
                 ? 0
                 : fa_request_wait(tuner, &request, target->gpu.uuid, &gpu_lock, NULL, diag);
    if (rc == 0)
        rc = prove(tuner, target, &answer->trial.config, cubin, &end, diag);
    fa_lock_release(&gpu_lock);
    return rc;
}

/* The winner's own row gets the cubin that was compiled anew; one that is not in this store keeps. */
static int replace_cubin(fa_tuner *tuner, const fa_scope *scope, const char *old_key,
                         const fa_answer *made, int driver_version, fa_diag *diag)
{
    fa_winner_record winner = {0};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? 0 : rc;
    if (strcmp(winner.cubin_key, old_key) == 0) {
        memcpy(winner.cubin_key, made->cubin_key, sizeof winner.cubin_key);
        memcpy(winner.nvrtc, made->nvrtc, sizeof winner.nvrtc);
        winner.trial.registers = made->trial.registers;
        winner.trial.spill_bytes = made->trial.spill_bytes;
        winner.driver_version = driver_version;
        rc = fa_store_winner_put(tuner->store, &winner, NULL, NULL, diag);
    }
    fa_winner_record_free(&winner);
    return rc;
}

/* The stored bytes do not load under this driver: the same config, compiled by today's NVRTC. */
static int prove_anew(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                      fa_answer *answer, fa_cubin_record *cubin, fa_answer *ret_end, fa_diag *diag)
{
    fa_cubin_record made = {0};
    int now = fa_driver_version(tuner->driver);
    int rc = prove(tuner, target, &answer->trial.config, NULL, ret_end, diag);
    if (rc == 0)
        rc = fa_records_cubin(tuner, ret_end->cubin_key, &made, diag);
    if (rc == 0)
        rc = replace_cubin(tuner, scope, answer->cubin_key, ret_end, now, diag);
    if (rc != 0) {
        fa_cubin_record_free(&made);
        return rc;
    }
    fa_cubin_record_free(cubin);
    *cubin = made;
    memcpy(answer->cubin_key, ret_end->cubin_key, sizeof answer->cubin_key);
    memcpy(answer->nvrtc, ret_end->nvrtc, sizeof answer->nvrtc);
    return 0;
}

/* Another config of the bucket, chosen for lengths beside it: no row would hold a new cubin of it. */
static bool is_rival(fa_tuner *tuner, const fa_scope *scope, const char *cubin_key)
{
    fa_winner_record winner = {0};
    bool rival = fa_store_winner_get(tuner->store, scope, &winner, NULL, NULL) == 0 &&
                 strcmp(winner.cubin_key, cubin_key) != 0;
    fa_winner_record_free(&winner);
    return rival;
}

static int verify_locked(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                         fa_answer *answer, fa_cubin_record *cubin, fa_diag *diag)
{
    fa_answer end;
    fa_diag why = {{0}};
    int before = answer->driver_version, now = fa_driver_version(tuner->driver);
    fa_verification mark = {.driver_version = now};
    memcpy(mark.cubin_key, answer->cubin_key, sizeof mark.cubin_key);
    memcpy(mark.silicon, target->scope.silicon, sizeof mark.silicon);
    bool read_only = fa_store_is_read_only(tuner->store);
    int rc = prove(tuner, target, &answer->trial.config, cubin, &end, &why);
    if (rc == FA_ENOKERNEL && end.trial.status == FA_STATUS_LOAD_FAILED && !read_only &&
        !is_rival(tuner, scope, answer->cubin_key)) {
        rc = prove_anew(tuner, target, scope, answer, cubin, &end, &why);
        if (rc == 0)
            fa_note(tuner, "driver %d does not load the winner's cubin that driver %d proved: it was "
                           "compiled anew and proved", now, before);
    }
    if (rc != 0 && rc != FA_ENOKERNEL)
        return fa_fail(diag, rc, "the winner was proved under driver %d and must be once more under "
                                 "%d: %s", before, now, why.text);
    mark.passed = rc == 0;
    if (rc == 0)
        memcpy(mark.cubin_key, answer->cubin_key, sizeof mark.cubin_key);
    else
        snprintf(mark.reason, sizeof mark.reason, "%.500s", why.text);
    if (!read_only && fa_store_verification_put(tuner->store, &mark, scope, &why) != 0)
        fa_note(tuner, "that a winner was proved under driver %d could not be kept: %s", now,
                why.text);
    if (rc != 0) {
        fa_note(tuner, "a winner that driver %d proved failed its proof under driver %d and is "
                       "dropped: %s", before, now, mark.reason);
        return fa_fail(diag, rc, "%s", mark.reason);
    }
    answer->driver_version = now;
    return 0;
}

int fa_contact_verify(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                      fa_answer *answer, fa_cubin_record *cubin, fa_diag *diag)
{
    fa_lock *key_lock = NULL, *gpu_lock = NULL;
    fa_verification mark;
    char key[FA_HASH_HEX];
    fa_request request = {.size = sizeof request};
    int rc = 0, now = fa_driver_version(tuner->driver);
    fa_scope_key(scope, key);
    if (!fa_store_is_read_only(tuner->store)) {
        rc = fa_request_wait(tuner, &request, key, &key_lock, NULL, diag);
        if (rc == 0)
            rc = fa_request_wait(tuner, &request, target->gpu.uuid, &gpu_lock, NULL, diag);
    }
    /* Another process may have done it while this one waited. */
    bool known = rc == 0 && fa_store_verification_get(tuner->store, answer->cubin_key,
                                                      target->scope.silicon, now, &mark, NULL) == 0;
    if (known && mark.passed)
        answer->driver_version = now;
    else if (known)
        rc = fa_fail(diag, FA_ENOKERNEL, "%s", mark.reason);
    else if (rc == 0)
        rc = verify_locked(tuner, target, scope, answer, cubin, diag);
    fa_lock_release(&gpu_lock);
    fa_lock_release(&key_lock);
    return rc;
}
