/* SPDX-License-Identifier: Apache-2.0
 *
 * One request to its answer: look up, wait for whoever tunes the same key, look again where
 * somebody did, tune.
 */

#include "request.h"
#include "job.h"
#include "problem.h"
#include "store.h"
#include "stored.h"

#include "error.h"
#include "source.h"

#include <string.h>
#include <time.h>

/* Whether it tunes anew, whatever is stored. */
static bool is_again(const fa_request *request)
{
    return request->again || request->effort == FA_EFFORT_PATIENT;
}

/* The plan first; when none of the few that it names comes through, the whole space (or the model's
 * first, for effort PREDICT); and when none of it does, what was refused with other inputs. */
static int run_plan(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    fa_plan plan;
    fa_diag none = {{0}};
    int rc = 0;
    if (!tuning->known.looked)
        rc = fa_look(tuner, &tuning->target, 0, &tuning->known, diag);
    if (rc == 0 || rc == FA_ENOTFOUND || rc == FA_ECORRUPT)
        rc = fa_plan_make(tuner, tuning->request, &tuning->target, &tuning->known, &plan, diag);
    for (;;) {
        if (rc == 0 && tuning->job == NULL)
            rc = fa_job_new(tuner, tuning->request, tuning->target.gpu.sm, &tuning->job, diag);
        if (rc != 0)
            return rc;
        bool few = plan.count > 0;
        plan.data = tuning->data;
        if (!few && tuning->target.gpu.present)
            fa_job_compile_prestart(tuning->job); /* they load while the space is enumerated */
        rc = fa_job_run(tuning->job, &tuning->target, &plan, ret_answer, few ? &none : diag);
        bool refused = tuning->job->refused_before > 0 && !plan.refused_too;
        fa_job_free(&tuning->job); /* the workers go before another process's may come */
        if (rc == 0 || (!few && (rc != FA_ENOKERNEL || !refused)))
            return rc;
        if (rc != FA_ENOKERNEL)
            return fa_fail(diag, rc, "%s", none.text);
        plan.refused_too = !few;
        plan.count = 0;
        plan.prove_only = false;
        rc = 0;
    }
}

/* Whether what is stored by now is enough. since: when the request began, for one that wants a new answer: not all
 * who hold the key's lock tune it. */
static bool find_made(fa_tuning *tuning, bool again, int64_t since, fa_answer *ret_answer)
{
    fa_lookup_free(&tuning->known);
    if (fa_look(tuning->tuner, &tuning->target, 0, &tuning->known, NULL) != 0 ||
        !fa_answer_satisfies(&tuning->known.answer, tuning->request) ||
        (again && tuning->known.answer.unix_time < since))
        return false;
    *ret_answer = tuning->known.answer;
    return true;
}

static bool of_server(const fa_tuner *tuner)
{
    return fa_store_is_address(fa_store_path(tuner->store));
}

int fa_tune_target(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    const fa_request *request = tuning->request;
    const fa_target *target = &tuning->target;
    fa_lock *key_lock = NULL, *gpu_lock = NULL, *tunes_lock = NULL;
    char key[FA_HASH_HEX];
    bool waited = false, found = false;
    bool again = is_again(request);
    int64_t since = (int64_t)time(NULL);
    int rc = 0;
    if (fa_store_is_read_only(tuner->store)) {
        rc = fa_fail(diag, FA_EREADONLY,
                     "the store %s cannot be written, so a tune could not be kept: set "
                     "FA_TUNE_STORE to a file that can",
                     tuner->store_path);
        goto done;
    }
    fa_scope_key(&target->scope, key);
    for (bool asked = false;; asked = true) {
        rc = fa_request_wait(tuner, request, key, &key_lock, &waited, diag);
        if (rc != 0)
            goto done;
        const fa_answer known = tuning->known.answer;
        const bool sure = waited || asked || !tuning->known.looked;
        /* Another host may have tuned it between a look and the lock. */
        found = (waited || (!again && (sure || of_server(tuner)))) &&
                find_made(tuning, again, since, ret_answer) &&
                (sure || known.unix_time != ret_answer->unix_time ||
                 strcmp(known.cubin_key, ret_answer->cubin_key) != 0);
        if (found)
            goto done;
        if (asked || !fa_job_asks_caller(target))
            break;
        fa_lock_release(&key_lock); /* the caller's function may tune */
        if ((rc = fa_job_ask_caller(tuner, target, false, &tuning->data, diag)) != 0)
            goto done;
    }
    /* Two tunes on one GPU would time each other. */
    if (target->gpu.present)
        rc = fa_request_wait(tuner, request, target->gpu.uuid, &gpu_lock, NULL, diag);
    if (rc == 0)
        rc = fa_request_wait(tuner, request, FA_TUNES_LOCK, &tunes_lock, NULL, diag);
    if (rc == 0 && (rc = fa_request_turn(tuner, request, diag)) == 0) {
        rc = run_plan(tuning, ret_answer, diag);
        pthread_mutex_unlock(&tuner->tuning);
    }
done:
    fa_lookup_free(&tuning->known);
    fa_job_free(&tuning->job);
    fa_case_data_close(&tuning->data);
    fa_lock_release(&tunes_lock);
    fa_lock_release(&gpu_lock);
    fa_lock_release(&key_lock);
    return rc;
}

/* Something is going to be compiled for the GPU that is here, unless something fails: the driver takes a
 * while to start, and the compile workers can load meanwhile. Of a server's store others may be about to tune it. */
static bool sure_to_tune(fa_tuner *tuner, const fa_request *request)
{
    if (of_server(tuner) || request->gpu != NULL || request->effort < FA_EFFORT_PREDICT ||
        tuner->driver != NULL || fa_store_is_read_only(tuner->store) ||
        fa_problem_check(&request->problem, NULL) != 0)
        return false;
    fa_problem bucket =
        request->exact ? fa_problem_exact(&request->problem) : fa_problem_bucket(&request->problem);
    return is_again(request) ||
           fa_store_winner_any(tuner->store, &bucket,
                               fa_templates_hash(fa_templates_for(tuner, &bucket),
                                                 fa_operation_of(&bucket))) == FA_ENOTFOUND;
}

/* Sets tuning->known to what is stored; *ret_answered: that is enough for the request. FA_ENOTFOUND and FA_ECORRUPT
 * only for one that may not tune. */
static int look_up(fa_tuning *tuning, bool *ret_answered, fa_diag *diag)
{
    const fa_request *request = tuning->request;
    *ret_answered = false;
    if (is_again(request))
        return 0;
    int rc = fa_look(tuning->tuner, &tuning->target, 0, &tuning->known, diag);
    *ret_answered = rc == 0 && fa_answer_satisfies(&tuning->known.answer, request);
    bool nothing = rc == FA_ENOTFOUND || rc == FA_ECORRUPT;
    return nothing && request->effort != FA_EFFORT_CACHED ? 0 : rc;
}

/* From the store, else from a tune. */
static int answer_request(fa_tuning *tuning, fa_answer *ret_answer, fa_diag *diag)
{
    fa_tuner *tuner = tuning->tuner;
    bool answered = false;
    if (sure_to_tune(tuner, tuning->request) &&
        fa_job_new(tuner, tuning->request, 0, &tuning->job, NULL) == 0)
        fa_job_compile_prestart(tuning->job);
    int rc = fa_target_resolve(tuner, tuning->request, &tuning->target, diag);
    const bool begun = tuning->job != NULL;
    if (rc == 0 && begun &&
        100 * tuning->job->nvrtc.major + tuning->job->nvrtc.minor <
            fa_nvrtc_since(tuning->target.gpu.sm))
        fa_job_free(&tuning->job); /* another NVRTC may know the GPU */
    if (rc == 0 && !begun)
        rc = look_up(tuning, &answered, diag);
    if (rc != 0)
        return rc;
    if (answered) {
        *ret_answer = tuning->known.answer;
        return 0;
    }
    return fa_tune_target(tuning, ret_answer, diag);
}

int fa_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    fa_request known;
    fa_answer answer;
    int rc;
    if ((rc = fa_tuner_check(tuner, diag)) != 0)
        return rc;
    if (ret_answer == NULL || ret_answer->size < sizeof(size_t) || ret_answer->size > 1 << 20)
        return fa_fail(diag, FA_EINVAL, "ret_answer is NULL, or its size is not sizeof(fa_answer)");
    if ((rc = fa_request_copy(request, &known, diag)) != 0)
        return rc;
    rc = tuner->service != NULL ? tuner->service->tune(tuner, &known, &answer, diag)
                                : FA_SOURCE_NONE;
    bool elsewhere = rc != FA_SOURCE_NONE;
    if (!elsewhere)
        rc = fa_tune_here(tuner, &known, &answer, diag);
    if (rc != 0)
        return rc;
    answer.size = ret_answer->size < sizeof answer ? ret_answer->size : sizeof answer;
    memcpy(ret_answer, &answer, answer.size);
    if (known.ret_ranking == NULL || known.ret_ranked == NULL)
        return 0;
    return fa_ranking_read(tuner, &known, &answer, elsewhere, diag);
}

int fa_tune_here(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    int rc = FA_EIO;
    pthread_mutex_lock(&tuner->work);
    for (int tries = 0; tries < 2 && rc == FA_EIO && (tries == 0 || fa_store_is_lost(tuner->store));
         tries++) {
        fa_tuning tuning = {.tuner = tuner, .request = request};
        rc = answer_request(&tuning, ret_answer, diag);
        fa_lookup_free(&tuning.known);
        fa_job_free(&tuning.job);
    }
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_find(fa_tuner *tuner, const fa_request *request, fa_found *ret_found, fa_diag *diag)
{
    fa_request known;
    fa_found found = {0};
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    if (ret_found == NULL || ret_found->size < sizeof(size_t))
        return fa_fail(diag, FA_EINVAL, "ret_found is NULL, or its size is not sizeof(fa_found)");
    rc = fa_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    found.size = ret_found->size < sizeof found ? ret_found->size : sizeof found;
    fa_tuning tuning = {.tuner = tuner, .request = &known};
    pthread_mutex_lock(&tuner->work);
    rc = fa_target_resolve(tuner, &known, &tuning.target, diag);
    if (rc == 0) {
        fa_scope_key(&tuning.target.scope, found.key);
        found.gpu = tuning.target.gpu;
        rc = look_up(&tuning, &found.answered, diag);
        found.answer = tuning.known.answer;
        fa_lookup_free(&tuning.known);
    }
    pthread_mutex_unlock(&tuner->work);
    found.answer.size = sizeof found.answer;
    if (found.size < offsetof(fa_found, answer) + sizeof found.answer)
        found.answer.size = found.size - offsetof(fa_found, answer);
    if (rc == 0)
        memcpy(ret_found, &found, found.size);
    return rc;
}
