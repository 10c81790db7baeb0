/* SPDX-License-Identifier: Apache-2.0
 *
 * One request from its door to its answer: look up, wait for whoever tunes the same key, look
 * again, tune.
 */
#include "tune.h"

#include "request.h"
#include "job.h"
#include "lock.h"
#include "problem.h"
#include "store.h"
#include "stored.h"

#include "error.h"
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The plan first; when none of the few that it names comes through, the whole space (or the model's
 * first, for effort PREDICT). */
static int run_plan(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                    fa_lookup *found, fa_job **job, fa_answer *ret_answer, fa_diag *diag)
{
    fa_plan plan;
    fa_diag none = {{0}};
    int rc = found->matches == NULL ? fa_matches_collect(tuner, target, &found->matches, diag) : 0;
    if (rc == 0)
        rc = fa_plan_make(tuner, request, target, found->matches, &plan, diag);
    for (;;) {
        if (rc == 0 && *job == NULL)
            rc = fa_job_new(tuner, request, job, diag);
        if (rc != 0)
            return rc;
        bool few = plan.count > 0;
        if (!few && target->gpu.present)
            fa_job_compile_prestart(*job); /* they load while the space is enumerated */
        rc = fa_job_run(*job, target, &plan, ret_answer, few ? &none : diag);
        fa_job_free(job); /* the workers go before another process's may come */
        if (!few || rc == 0)
            return rc;
        if (rc != FA_ENOKERNEL)
            return fa_fail(diag, rc, "%s", none.text);
        plan.count = 0;
        plan.prove_only = false;
        rc = 0;
    }
}

/* When no other tune of this tuner runs its workers. */
static int run_alone(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                     fa_lookup *found, fa_job **job, fa_answer *ret_answer, fa_diag *diag)
{
    pthread_mutex_unlock(&tuner->work);
    pthread_mutex_lock(&tuner->tuning);
    pthread_mutex_lock(&tuner->work);
    int rc = run_plan(tuner, request, target, found, job, ret_answer, diag);
    pthread_mutex_unlock(&tuner->tuning);
    return rc;
}

int fa_tune_target(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                   fa_job **job, fa_answer *ret_answer, fa_diag *diag)
{
    fa_lock *key_lock = NULL, *gpu_lock = NULL, *tunes_lock = NULL;
    fa_source_leases leases = {{NULL}};
    fa_lookup known = {.matches = NULL};
    char key[FA_HASH_HEX];
    bool waited = false, again = request->again || request->effort == FA_EFFORT_PATIENT;
    int64_t since = (int64_t)time(NULL);
    fa_scope_key(&target->scope, key);
    int rc = fa_store_is_read_only(tuner->store)
                 ? fa_fail(diag, FA_EREADONLY,
                           "the store %s cannot be written, so a tune could not be kept: set "
                           "FA_TUNE_STORE to a file that can",
                           tuner->store_path)
                 : fa_request_wait(tuner, request, key, &key_lock, &waited, diag);
    bool found = rc == 0 && (waited || !again) && fa_look(tuner, target, 0, &known, NULL) == 0 &&
                 fa_answer_satisfies(&known.answer, fa_wanted_by(request)) &&
                 (!again || known.answer.unix_time >= since); /* not all who hold the key tune it */
    if (found)
        *ret_answer = known.answer;
    /* The same among hosts. */
    if (rc == 0 && !found)
        rc =
            fa_sources_lease_take(tuner, request, target, again, &leases, &found, ret_answer, diag);
    /* Two tunes on one GPU would time each other. */
    if (rc == 0 && !found && target->gpu.present)
        rc = fa_request_wait(tuner, request, target->gpu.uuid, &gpu_lock, NULL, diag);
    if (rc == 0 && !found)
        rc = fa_request_share_tunes(tuner, request, &tunes_lock, diag);
    if (rc == 0 && !found)
        rc = run_alone(tuner, request, target, &known, job, ret_answer, diag);
    if (rc == 0 && !found)
        fa_sources_publish(tuner, &target->scope, &leases);
    fa_lookup_free(&known);
    fa_job_free(job);
    fa_lock_release(&tunes_lock);
    fa_sources_lease_end(tuner, &leases);
    fa_lock_release(&gpu_lock);
    fa_lock_release(&key_lock);
    return rc;
}

/* Something is going to be compiled for the GPU that is here, unless something fails: the driver takes a
 * while to start, and the compile workers can load meanwhile. */
static bool sure_to_tune(fa_tuner *tuner, const fa_request *request)
{
    if (fa_sources_share(tuner) || request->gpu != NULL || request->effort < FA_EFFORT_PREDICT ||
        tuner->driver != NULL || fa_store_is_read_only(tuner->store) ||
        fa_problem_check(&request->problem, NULL) != 0)
        return false;
    fa_problem bucket =
        request->exact ? fa_problem_exact(&request->problem) : fa_problem_bucket(&request->problem);
    return request->again || request->effort == FA_EFFORT_PATIENT ||
           fa_store_winner_any(tuner->store, &bucket,
                               fa_templates_hash(tuner->templates, fa_operation_of(&bucket))) ==
               FA_ENOTFOUND;
}

/* What is stored, where that is enough for the request. FA_ENOTFOUND and FA_ECORRUPT only for one
 * that may not tune. */
static int look_up(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                   fa_lookup *ret_found, bool *ret_answered, fa_diag *diag)
{
    *ret_answered = false;
    *ret_found = (fa_lookup){.matches = NULL};
    if (request->again || request->effort == FA_EFFORT_PATIENT)
        return 0;
    int rc = fa_look(tuner, target, FA_LOOK_HOSTS, ret_found, diag);
    *ret_answered = rc == 0 && fa_answer_satisfies(&ret_found->answer, fa_wanted_by(request));
    bool nothing = rc == FA_ENOTFOUND || rc == FA_ECORRUPT;
    return nothing && request->effort != FA_EFFORT_CACHED ? 0 : rc;
}

static int tune_locked(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer,
                       fa_diag *diag)
{
    fa_target target;
    fa_job *job = NULL;
    if (sure_to_tune(tuner, request) && fa_job_new(tuner, request, &job, NULL) == 0)
        fa_job_compile_prestart(job);
    int rc = fa_target_resolve(tuner, request, &target, diag);
    if (rc != 0) {
        fa_job_free(&job);
        return rc;
    }
    if (job == NULL) {
        bool answered;
        fa_lookup found;
        rc = look_up(tuner, request, &target, &found, &answered, diag);
        if (rc == 0 && answered) {
            *ret_answer = found.answer;
            fa_records_place(tuner, &found.scope, false, ret_answer);
        }
        fa_lookup_free(&found);
        if (rc != 0 || answered)
            return rc;
    }
    rc = fa_tune_target(tuner, request, &target, &job, ret_answer, diag);
    if (rc == 0)
        fa_records_place(tuner, &target.scope, false, ret_answer);
    return rc;
}

int fa_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    fa_request known;
    fa_answer answer;
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_answer_check(ret_answer, diag);
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    rc = fa_sources_tune(tuner, &known, &answer, diag);
    bool elsewhere = rc != FA_SOURCE_NONE;
    if (!elsewhere)
        rc = fa_tune_here(tuner, &known, &answer, diag);
    if (rc != 0)
        return rc;
    fa_answer_give(&answer, ret_answer);
    if (known.ranking == NULL)
        return 0;
    return elsewhere ? known.ranking(known.ranking_context, 1, &answer.trial)
                     : fa_ranking_tell(tuner, &known, &answer, diag);
}

int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    pthread_mutex_lock(&tuner->work);
    int rc = tune_locked(tuner, request, ret_answer, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

static int find_locked(fa_tuner *tuner, const fa_request *request, fa_found *found, fa_diag *diag)
{
    fa_target target;
    int rc = fa_target_resolve(tuner, request, &target, diag);
    if (rc != 0)
        return rc;
    fa_scope_key(&target.scope, found->key);
    found->gpu = target.gpu;
    fa_lookup stored;
    rc = look_up(tuner, request, &target, &stored, &found->answered, diag);
    found->answer = stored.answer;
    fa_lookup_free(&stored);
    return rc;
}

int fa_find(fa_tuner *tuner, const fa_request *request, fa_found *ret_found, fa_diag *diag)
{
    fa_request known;
    fa_found found = {0};
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0 && (ret_found == NULL || ret_found->size < sizeof(size_t)))
        rc = fa_fail(diag, FA_EINVAL, "ret_found is NULL, or its size is not sizeof(fa_found)");
    if (rc == 0)
        rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    found.size = ret_found->size < sizeof found ? ret_found->size : sizeof found;
    pthread_mutex_lock(&tuner->work);
    rc = find_locked(tuner, &known, &found, diag);
    pthread_mutex_unlock(&tuner->work);
    found.answer.size = sizeof found.answer;
    if (found.size < offsetof(fa_found, answer) + sizeof found.answer)
        found.answer.size = found.size - offsetof(fa_found, answer);
    if (rc == 0)
        memcpy(ret_found, &found, found.size);
    return rc;
}
