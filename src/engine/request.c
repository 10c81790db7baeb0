/* SPDX-License-Identifier: Apache-2.0
 *
 * A caller's request: checked and completed; what is decided before it is looked up; its wait for a lock; and which
 * answers are good enough for it.
 */
#include "request.h"

#include "catalogue.h"
#include "driver.h"
#include "error.h"
#include "store.h"
#include "manifest.h"
#include "pool.h"
#include "problem.h"
#include "search.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

int fa_copy_sized(void *ret, size_t size, const void *given, const char *why, fa_diag *diag)
{
    size_t given_size = given != NULL ? *(const size_t *)given : 0;
    memset(ret, 0, size);
    if (given_size < sizeof(size_t) || given_size > 4096)
        return fa_fail(diag, FA_EINVAL, "%s", why);
    memcpy(ret, given, given_size < size ? given_size : size);
    return 0;
}

int fa_request_copy(const fa_request *request, fa_request *ret_request, fa_diag *diag)
{
    int rc = fa_copy_sized(ret_request, sizeof *ret_request, request,
                           "request.size is not sizeof(fa_request)", diag);
    if (rc != 0)
        return rc;
    if (ret_request->effort < FA_EFFORT_CACHED || ret_request->effort > FA_EFFORT_PATIENT)
        return fa_fail(diag, FA_EINVAL, "effort is %d: use FA_EFFORT_CACHED to FA_EFFORT_PATIENT",
                       (int)ret_request->effort);
    if (ret_request->memory < 0 || ret_request->memory > FA_MEMORY_MAX)
        return fa_fail(diag, FA_EINVAL, "memory is %lld: use bytes, or 0 for the tuner's",
                       (long long)ret_request->memory);
    return fa_search_check(&ret_request->strategy, ret_request->evaluations, ret_request->seconds,
                           diag);
}

/* ---- callbacks ------------------------------------------------------------------------------*/
/* A request's progress is called while locks are held that another tune needs. in_callback: this thread is in one;
 * callback_since is when the tune that has those locks called its own, 0 outside of it. */
static _Thread_local bool in_callback __attribute__((tls_model("initial-exec")));
static _Atomic uint64_t callback_since;

int fa_callback_check(fa_diag *diag)
{
    return !in_callback
               ? 0
               : fa_fail(diag, FA_EBUSY,
                         "progress called the library for something that waits for its own call: "
                         "nothing can be tuned or forgotten inside of it");
}

static bool report(const fa_request *request, const fa_progress *progress)
{
    in_callback = true;
    bool stop = request->progress(request->context, progress) != 0;
    in_callback = false;
    return stop;
}

bool fa_request_report(fa_tuner *tuner, const fa_request *request, const fa_progress *progress)
{
    if (request->progress == NULL)
        return false;
    atomic_store(&callback_since, fa_clock_ns());
    fa_tuner_pause(tuner);
    bool stop = report(request, progress);
    atomic_store(&callback_since, 0);
    fa_tuner_resume(tuner);
    return stop;
}

/* ---- waiting --------------------------------------------------------------------------------*/
struct waiting {
    const fa_request *request;
    fa_progress progress;
    bool stuck;
};

/* A callback that has not returned for so long may wait for this thread. */
static bool give_up(struct waiting *waiting)
{
    static const uint64_t STUCK_NS = 5000000000;
    uint64_t since = atomic_load(&callback_since);
    waiting->progress.elapsed_s += 0.02;
    waiting->stuck = since != 0 && fa_clock_ns() > since + STUCK_NS;
    return waiting->stuck ||
           (waiting->request->progress != NULL && report(waiting->request, &waiting->progress));
}

/* Sleeps between two tries, `work` let go; 0, or why it gave up. */
static int nap(fa_tuner *tuner, struct waiting *waiting, int tries, const char *what, fa_diag *diag)
{
    bool gave_up = false;
    fa_tuner_pause(tuner);
    for (int i = 0; i < tries && !gave_up; i++) {
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
        gave_up = give_up(waiting);
    }
    fa_tuner_resume(tuner);
    if (gave_up && waiting->stuck)
        return fa_fail(
            diag, FA_EBUSY,
            "another tune waits for its progress function, which has not returned for 5 s and may wait "
            "for this call: nothing can be tuned until it has returned");
    return gave_up ? fa_fail(diag, FA_ECANCELED, "canceled while %s", what) : 0;
}

static const fa_progress begun = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_WAIT, .left_s = -1};

/* The first try is made with `work`: no tune of this process can end between a look and that. */
int fa_request_wait(fa_tuner *tuner, const fa_request *request, const char *name,
                    fa_lock **ret_lock, bool *ret_waited, fa_diag *diag)
{
    struct waiting waiting = {request, begun, false};
    const bool shared = strcmp(name, FA_TUNES_LOCK) == 0;
    const int tries = fa_store_is_address(fa_store_path(tuner->store)) ? 5 : 1;
    bool waited = false;
    int rc = fa_callback_check(diag), last = 0;
    while (rc == 0 &&
           (last = fa_store_lock(tuner->store, name, shared, ret_lock, diag)) == FA_EBUSY) {
        waited = true;
        rc = nap(tuner, &waiting, tries,
                 shared ? "winners of this store were forgotten"
                        : "another tune of this key was under way",
                 diag);
    }
    if (ret_waited != NULL)
        *ret_waited = waited;
    return rc != 0 ? rc : last;
}

int fa_request_turn(fa_tuner *tuner, const fa_request *request, fa_diag *diag)
{
    struct waiting waiting = {request, begun, false};
    int rc = 0;
    while (rc == 0 && pthread_mutex_trylock(&tuner->tuning) != 0)
        rc = nap(tuner, &waiting, 1, "another tune of this process was under way", diag);
    return rc;
}

/* A name that a device of this machine answers to means that device. */
static int resolve_gpu(fa_tuner *tuner, const char *name, int32_t ordinal, fa_gpu *ret_gpu,
                       fa_diag *diag)
{
    int rc = name != NULL ? fa_catalogue_find(name, ret_gpu, diag) : fa_tuner_driver(tuner, diag);
    if (rc == 0 && name == NULL)
        return fa_driver_device(tuner->driver, ordinal, ret_gpu, diag);
    int count =
        rc == 0 && fa_tuner_driver(tuner, NULL) == 0 ? fa_driver_device_count(tuner->driver) : 0;
    for (int i = 0; i < count; i++) {
        fa_gpu device, known;
        if (fa_driver_device(tuner->driver, i, &device, NULL) == 0 &&
            fa_catalogue_match(&device, &known) == 0 && strcmp(known.name, ret_gpu->name) == 0) {
            *ret_gpu = device;
            break;
        }
    }
    return rc;
}

int fa_target_resolve(fa_tuner *tuner, const fa_request *request, fa_target *ret_target,
                      fa_diag *diag)
{
    const fa_problem *problem = &request->problem;
    fa_target target = {0};
    int rc = fa_problem_check(problem, diag);
    if (rc == 0)
        rc = resolve_gpu(tuner, request->gpu, request->ordinal, &target.gpu, diag);
    if (rc != 0)
        return rc;
    target.asked = fa_problem_exact(problem);
    target.problem = request->exact ? target.asked : fa_problem_bucket(problem);
    target.scope.problem = target.problem;
    fa_gpu_silicon(&target.gpu, target.scope.silicon);
    snprintf(target.scope.templates, sizeof target.scope.templates, "%s",
             fa_templates_hash(fa_templates_for(tuner, problem), fa_operation_of(problem)));
    snprintf(target.scope.policy, sizeof target.scope.policy, "%s", FA_MEASURE_POLICY);
    *ret_target = target;
    return 0;
}

bool fa_origin_is_timed(fa_origin origin)
{
    return fa_origin_trust(origin) <= fa_origin_trust(FA_ORIGIN_NEAREST);
}

const fa_request *fa_request_with_search(const fa_request *request, fa_request *own)
{
    const cJSON *search = fa_operation_of(&request->problem)->document;
    if (request->strategy != NULL || request->evaluations > 0 || request->seconds > 0)
        return request;
    const cJSON *evaluations = cJSON_GetObjectItemCaseSensitive(search, "evaluations");
    const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(search, "seconds");
    *own = *request;
    own->strategy = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(search, "strategy"));
    own->evaluations = evaluations != NULL ? evaluations->valueint : 0;
    own->seconds = seconds != NULL ? seconds->valuedouble : 0;
    bool right = fa_search_check(&own->strategy, own->evaluations, own->seconds, NULL) == 0;
    return right ? own : request; /* of an operation's file that nobody has checked */
}

int32_t fa_contents_of(const fa_problem *problem)
{
    return atomic_load_explicit(&fa_operation_of(problem)->contents, memory_order_relaxed);
}

/* Whether the search that found the answer was no smaller than what is asked for. */
static bool tried_enough(const fa_answer *answer, const fa_request *request)
{
    fa_request own;
    bool large = answer->space_estimated || answer->space > FA_SPACE_MAX;
    if (answer->strategy[0] == 0) /* all were tried */
        return true;
    request = fa_request_with_search(request, &own);
    if (request->evaluations > 0) /* what does not compile cost none */
        return answer->clean >= request->evaluations;
    return request->seconds > 0 ? answer->tune_s >= request->seconds
                                : large && answer->clean >= FA_SEARCH_EVALUATIONS;
}

bool fa_answer_satisfies(const fa_answer *answer, const fa_request *request)
{
    if (request->effort == FA_EFFORT_CACHED)
        return true;
    if (answer->gpu.present && answer->driver_version == 0)
        return false;
    if (request->effort == FA_EFFORT_PREDICT)
        return true;
    fa_problem bucket = fa_problem_bucket(&answer->problem);
    fa_problem itself = fa_problem_exact(&answer->problem);
    bool own = fa_problem_equal(&answer->from_problem, &itself) ||
               (!request->exact && fa_problem_equal(&answer->from_problem, &bucket));
    bool whole = !request->first_contact;
    int32_t given = fa_contents_of(&request->problem);
    if ((whole && !tried_enough(answer, request)) || (given != 0 && given != answer->contents))
        return false;
    if (fa_origin_is_timed(answer->origin))
        return own && !(whole && answer->shortlist_only);
    /* Where the GPU is not here, the best of the whole space by the model is the best possible answer; that of a
     * few configs is not. */
    return own && !answer->gpu.present && !answer->shortlist_only;
}
