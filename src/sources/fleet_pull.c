/* SPDX-License-Identifier: Apache-2.0
 *
 * From the fleet's store into the local one: a winner with its cubin, seen from here; and the lease of the host that
 * tunes a key.
 *
 * Workload: one or two rows for each problem that this host has not seen. Whoever can write the
 * fleet's store is believed about times and proofs, as whoever can write the local file is; what a
 * row says is checked all the same, because a row may be damaged or of another version.
 */
#include "bundle_check.h"

#include "catalogue.h"
#include "error.h"
#include "fleet.h"
#include "lookup.h"
#include "pool.h"
#include "problem.h"
#include "request.h"
#include "stored.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MISS_MS = 5000, NEAREST_MOST = 2, OTHERS_MOST = 4 };
static const double octaves_most = 2;

/* ---- checking -------------------------------------------------------------------------------*/
/* The cubin is what the winner says, and the winner is launched as its config says. */
static int check_winner(fa_tuner *tuner, const fa_target *target, const fa_winner_record *winner,
                        const fa_cubin_record *cubin, const fa_answer *answer, fa_diag *diag)
{
    const fa_trial *trial = &winner->trial;
    const fa_problem *problem = &winner->scope.problem;
    fa_candidate today;
    fa_gpu gpu = target->gpu;
    int rc = fa_bundle_check_cubin(winner, cubin->bytes, cubin->size, diag);
    if (rc == 0 && strcmp(winner->scope.silicon, target->scope.silicon) != 0) {
        gpu = answer->gpu;
        if (gpu.sm == 0)
            rc = fa_catalogue_find(winner->gpu_name, &gpu, diag);
    }
    if (rc == 0)
        rc = fa_tuner_families(tuner, diag);
    if (rc != 0)
        return rc;
    fa_task task = fa_task_for(tuner, problem, &gpu);
    rc = fa_space_one(&task, &trial->config, &today, diag);
    if (rc != 0)
        return rc;
    if (today.trial.status != FA_STATUS_PENDING)
        return fa_fail(diag, FA_ECORRUPT, "its config does not fit the GPU: %.200s",
                       today.trial.reason);
    if (today.trial.threads != trial->threads || today.trial.smem_bytes != trial->smem_bytes ||
        memcmp(today.trial.grid, trial->grid, sizeof trial->grid) != 0 ||
        strcmp(winner->entry, fa_family_entry(task.families->family[today.family])) != 0)
        return fa_fail(diag, FA_ECORRUPT, "it is launched otherwise than its config says");
    return 0;
}

/* ---- storing --------------------------------------------------------------------------------*/
struct candidate_winner {
    fa_tuner *tuner;
    fa_winner_record *winner;
    const fa_cubin_record *cubin;
    bool kept; /* the local store took it */
};

/* Whether the local store has a winner that may be served and is as good. */
static int is_better_than_local(struct candidate_winner *candidate, bool *ret_better, fa_diag *diag)
{
    fa_store *store = candidate->tuner->store;
    fa_winner_record own = {0};
    fa_cubin_record cubin = {0};
    const char *why;
    *ret_better = true;
    int rc = fa_store_winner_get(store, &candidate->winner->scope, &own, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    if (fa_store_cubin_get(store, own.cubin_key, &cubin, NULL) == 0)
        *ret_better = fa_bundle_weigh(&own, candidate->winner, &why) == FA_BUNDLE_REPLACED;
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&own);
    return 0;
}

static int store_if_better(void *context, fa_diag *diag)
{
    struct candidate_winner *candidate = context;
    bool better = false;
    fa_fleet_void_other_proof(candidate->tuner->store, candidate->winner, candidate->cubin);
    int rc = is_better_than_local(candidate, &better, diag);
    if (rc == 0 && better)
        rc = fa_store_winner_replace(candidate->tuner->store, candidate->winner, candidate->cubin,
                                     diag);
    candidate->kept = rc == 0 && better;
    return rc;
}

/* ---- pulling --------------------------------------------------------------------------------*/
/* One scope's winner. True when the local store took it; *ret_found when the fleet has one that
 * somebody measured. */
static bool pull_winner(fa_tuner *tuner, const fa_target *target, const fa_scope *scope,
                        bool *ret_found)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    fa_answer answer;
    fa_diag why = {{0}};
    struct candidate_winner candidate = {.tuner = tuner, .winner = &winner, .cubin = &cubin};
    int rc = fa_store_winner_get(fa_fleet_of(tuner)->store, scope, &winner, &cubin, &why);
    if (fa_fleet_is_worth_retry(tuner, rc))
        rc = fa_store_winner_get(fa_fleet_of(tuner)->store, scope, &winner, &cubin, &why);
    if (rc != 0) {
        if (rc == FA_ECORRUPT)
            fa_note(tuner, "a winner of the fleet's is not used: %s", why.text);
        fa_fleet_failed(tuner, rc, &why);
        return false;
    }
    rc = fa_records_answer(&winner, NULL, &answer, &why);
    if (rc == 0)
        rc = check_winner(tuner, target, &winner, &cubin, &answer, &why);
    if (rc == 0) {
        if (winner.origin == FA_ORIGIN_MEASURED && strcmp(answer.gpu.uuid, target->gpu.uuid) != 0)
            winner.origin = FA_ORIGIN_MEASURED_SAME_SILICON;
        *ret_found = *ret_found || winner.trial.status == FA_STATUS_MEASURED;
        rc = fa_store_batch(tuner->store, store_if_better, &candidate, &why);
    }
    if (rc != 0)
        fa_note(tuner, "a winner of the fleet's is not used: %s", why.text);
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return candidate.kept;
}

/* Winners of other lengths and of other GPUs, for what a lookup makes of them. */
struct others {
    const fa_target *target;
    fa_scope nearest[NEAREST_MOST], other[OTHERS_MOST];
    double distance[NEAREST_MOST];
    int nearest_count, other_count;
};

static void add_nearest_scope(struct others *others, const fa_scope *scope)
{
    double distance = fa_problem_distance(&scope->problem, &others->target->asked);
    if (!(distance >= 0 && distance <= octaves_most))
        return;
    int at = others->nearest_count < NEAREST_MOST ? others->nearest_count++ : NEAREST_MOST;
    for (; at > 0 && others->distance[at - 1] > distance; at--) {
        if (at == NEAREST_MOST)
            continue;
        others->nearest[at] = others->nearest[at - 1];
        others->distance[at] = others->distance[at - 1];
    }
    if (at == NEAREST_MOST)
        return;
    others->nearest[at] = *scope;
    others->distance[at] = distance;
}

static int add_other_scope(void *context, const fa_winner_record *winner)
{
    struct others *others = context;
    const fa_scope *scope = &winner->scope;
    if (winner->trial.status != FA_STATUS_MEASURED)
        return 0;
    if (strcmp(scope->silicon, others->target->scope.silicon) == 0)
        add_nearest_scope(others, scope);
    else if (fa_problem_equal(&scope->problem, &others->target->problem) &&
             others->other_count < OTHERS_MOST)
        others->other[others->other_count++] = *scope;
    return 0;
}

static bool pull_others(fa_tuner *tuner, const fa_target *target)
{
    struct others others = {.target = target};
    fa_diag why = {{0}};
    bool some = false, found = false;
    int rc = fa_store_winners_like(fa_fleet_of(tuner)->store, &target->scope, add_other_scope,
                                   &others, &why);
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    for (int i = 0; i < others.nearest_count && fa_fleet_of(tuner)->store != NULL; i++)
        some = pull_winner(tuner, target, &others.nearest[i], &found) || some;
    for (int i = 0; i < others.other_count && fa_fleet_of(tuner)->store != NULL; i++)
        some = pull_winner(tuner, target, &others.other[i], &found) || some;
    return some;
}

/* ---- misses ---------------------------------------------------------------------------------*/
static bool was_missed(const fa_fleet *fleet, const char *key)
{
    uint64_t now = fa_clock_ns();
    for (int i = 0; i < FA_FLEET_MISSES; i++)
        if (now < fleet->missed[i].until_ns && strcmp(fleet->missed[i].key, key) == 0)
            return true;
    return false;
}

static void remember_miss(fa_fleet *fleet, const char *key)
{
    int at = fleet->next_missed;
    fleet->next_missed = (at + 1) % FA_FLEET_MISSES;
    snprintf(fleet->missed[at].key, sizeof fleet->missed[at].key, "%s", key);
    fleet->missed[at].until_ns = fa_clock_ns() + (uint64_t)MISS_MS * 1000000;
}

bool fa_fleet_pull(fa_tuner *tuner, const fa_target *target, bool now)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_scope exact = target->scope;
    char key[FA_HASH_HEX];
    bool some = false, found = false;
    exact.problem = target->asked;
    fa_scope_key(&exact, key);
    if (fleet == NULL || fa_store_is_read_only(tuner->store) || (!now && was_missed(fleet, key)) ||
        fa_fleet_store(tuner) == NULL)
        return false;
    if (!fa_problem_equal(&target->asked, &target->problem))
        some = pull_winner(tuner, target, &exact, &found);
    if (fleet->store != NULL)
        some = pull_winner(tuner, target, &target->scope, &found) || some;
    if (fleet->store != NULL && !found && !now)
        some = pull_others(tuner, target) || some;
    if (!found)
        remember_miss(fleet, key);
    return some;
}

int fa_fleet_cubin(fa_tuner *tuner, const char *key, fa_cubin_record *ret_cubin)
{
    fa_diag why = {{0}};
    if (fa_fleet_of(tuner) == NULL || fa_fleet_of(tuner)->store == NULL)
        return FA_ENOTFOUND;
    fa_fleet_of(tuner)->asked_ns = fa_clock_ns();
    int rc = fa_store_cubin_get(fa_fleet_of(tuner)->store, key, ret_cubin, &why);
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    return rc;
}

/* ---- leases: signs of life ------------------------------------------------------------------*/
/* Who tunes a key in the whole fleet: a lease in the fleet's store, kept alive by a thread while its
 * holder works.
 *
 * Workload: a tune of a second needs no sign of life and so neither the thread's connection; one of
 * minutes gives a few. Invariant: whoever lost the lease publishes nothing, because the fence is
 * compared in the transaction that publishes. */
enum { BEATS_IN_A_LEASE = 3, RETRY_MS = 500, REFUSALS = 3, WAIT_MS = 200, REST_MS = 20 };

struct fa_heartbeat {
    char location[FA_STORE_PATH_MAX];
    int32_t every_ms;
    fa_heartbeat_body *body;
    void *context;
    pthread_t thread;
    pthread_mutex_t mutex; /* of `stop` */
    pthread_cond_t wake;
    bool stop;
};

/* True when it is to stop. */
static bool wait_or_stop(fa_heartbeat *beat, int32_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&beat->mutex);
    int rc = 0;
    while (!beat->stop && rc == 0)
        rc = pthread_cond_timedwait(&beat->wake, &beat->mutex, &until);
    bool stop = beat->stop;
    pthread_mutex_unlock(&beat->mutex);
    return stop;
}

/* A store that does not answer is not a lost lease: it may come back before another host takes over, and
 * publishing compares the fence. A lease whose renewal is refused again and again is lost. */
static void *run_heartbeat(void *context)
{
    fa_heartbeat *beat = context;
    fa_store *store = NULL;
    int32_t wait_ms = beat->every_ms, refused = 0;
    while (!wait_or_stop(beat, wait_ms)) {
        int rc = store != NULL
                     ? 0
                     : fa_store_open(beat->location, FA_STORE_READ_WRITE, &store, NULL, NULL);
        if (rc == 0)
            rc = beat->body(store, beat->context, NULL);
        refused = rc == FA_EBUSY ? refused + 1 : 0;
        if (refused == REFUSALS)
            break;
        wait_ms = rc == 0 || beat->every_ms < RETRY_MS ? beat->every_ms : RETRY_MS;
    }
    fa_store_close(&store);
    return NULL;
}

/* This thread takes none of the host's signals. */
static int start_heartbeat_thread(fa_heartbeat *beat)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&beat->thread, NULL, run_heartbeat, beat);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

int fa_heartbeat_start(const fa_fleet *fleet, fa_heartbeat_body *body, void *context,
                       fa_heartbeat **ret_heartbeat, fa_diag *diag)
{
    pthread_condattr_t monotonic;
    fa_heartbeat *beat = calloc(1, sizeof *beat);
    if (beat == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tune");
    snprintf(beat->location, sizeof beat->location, "%s", fleet->location);
    beat->every_ms = fleet->lease_ms / BEATS_IN_A_LEASE;
    beat->body = body;
    beat->context = context;
    pthread_mutex_init(&beat->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&beat->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
    int error = start_heartbeat_thread(beat);
    if (error != 0) {
        pthread_cond_destroy(&beat->wake);
        pthread_mutex_destroy(&beat->mutex);
        free(beat);
        return fa_fail(diag, FA_ENOMEM, "no thread to be had: %s", strerror(error));
    }
    *ret_heartbeat = beat;
    return 0;
}

void fa_heartbeat_stop(fa_heartbeat **heartbeat)
{
    fa_heartbeat *beat = *heartbeat;
    if (beat == NULL)
        return;
    pthread_mutex_lock(&beat->mutex);
    beat->stop = true;
    pthread_cond_signal(&beat->wake);
    pthread_mutex_unlock(&beat->mutex);
    pthread_join(beat->thread, NULL);
    pthread_cond_destroy(&beat->wake);
    pthread_mutex_destroy(&beat->mutex);
    free(beat);
    *heartbeat = NULL;
}

/* ---- leases: taken and given up -------------------------------------------------------------*/
static int renew_lease(fa_store *store, void *context, fa_diag *diag)
{
    const fa_source_lease *lease = context;
    return fa_store_lease_renew(store, &lease->lease, lease->lease_ms, diag);
}

/* Lets other threads use the tuner and its connection for a moment. */
static void rest(fa_tuner *tuner)
{
    pthread_mutex_unlock(&tuner->work);
    nanosleep(&(struct timespec){.tv_nsec = REST_MS * 1000000}, NULL);
    pthread_mutex_lock(&tuner->work);
}

/* Waits a moment for the host that holds the key; FA_ECANCELED by the request. */
static int wait_for_holder(fa_tuner *tuner, const fa_request *request, fa_progress *progress,
                           uint64_t since, bool *ret_woken, fa_diag *diag)
{
    fa_diag why = {{0}};
    progress->elapsed_s = (double)(fa_clock_ns() - since) / 1e9;
    if (fa_request_report(tuner, request, progress))
        return fa_fail(diag, FA_ECANCELED, "canceled while another host tuned this key");
    int rc = FA_ETIMEOUT;
    for (int ms = 0; rc == FA_ETIMEOUT && ms < WAIT_MS; ms += REST_MS) {
        rest(tuner);
        if (fa_fleet_of(tuner)->store == NULL)
            break;
        rc = fa_store_wait(fa_fleet_of(tuner)->store, 0, &why);
    }
    if (rc != 0 && rc != FA_ETIMEOUT)
        fa_fleet_failed(tuner, rc, &why);
    *ret_woken = rc == 0;
    return 0;
}

/* Whether the fleet has meanwhile what the request asks for. */
static bool holder_has_answered(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                                fa_answer *ret_answer)
{
    fa_lookup found;
    fa_fleet_pull(tuner, target, true);
    bool answered = fa_look(tuner, target, 0, &found, NULL) == 0 &&
                    fa_answer_satisfies(&found.answer, fa_wanted_by(request));
    if (answered)
        *ret_answer = found.answer;
    fa_lookup_free(&found);
    return answered;
}

/* The scope's lease if it is free; else FA_EBUSY. */
static int try_lease(fa_tuner *tuner, const fa_scope *scope, fa_source_lease *lease, fa_diag *diag)
{
    char key[FA_HASH_HEX], name[FA_LEASE_NAME_MAX];
    fa_scope_key(scope, key);
    snprintf(name, sizeof name, "tune-%s", key);
    lease->lease_ms = fa_fleet_of(tuner)->lease_ms;
    int rc = fa_store_lease_take(fa_fleet_of(tuner)->store, name, fa_fleet_of(tuner)->holder,
                                 lease->lease_ms, &lease->lease, diag);
    lease->held = rc == 0;
    return rc;
}

int fa_fleet_lease_take(fa_tuner *tuner, const fa_request *request, const fa_target *target,
                        fa_source_lease **ret_lease, bool *ret_found, fa_answer *ret_answer,
                        fa_diag *diag)
{
    bool again = fa_request_is_again(request);
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_progress progress = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_WAIT, .left_s = -1};
    uint64_t since = fa_clock_ns();
    fa_source_lease *lease = *ret_lease = calloc(1, sizeof *lease);
    if (lease == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a tune");
    for (int rc = FA_EBUSY; rc == FA_EBUSY;) {
        fa_diag why = {{0}};
        if (fa_fleet_store(tuner) == NULL)
            return 0;
        rc = try_lease(tuner, &target->scope, lease, &why);
        if (fa_fleet_is_worth_retry(tuner, rc))
            rc = try_lease(tuner, &target->scope, lease, &why);
        if (rc != 0 && rc != FA_EBUSY) {
            fa_fleet_failed(tuner, rc, &why);
            return 0;
        }
        if (rc == 0)
            break;
        bool woken = false;
        again = false;
        int canceled = wait_for_holder(tuner, request, &progress, since, &woken, diag);
        if (canceled != 0)
            return canceled;
        *ret_found = woken && holder_has_answered(tuner, request, target, ret_answer);
        if (*ret_found)
            return 0;
    }
    *ret_found = !again && holder_has_answered(tuner, request, target, ret_answer);
    if (!*ret_found) /* without a sign of life the lease only ends early */
        fa_heartbeat_start(fleet, renew_lease, lease, &lease->heartbeat, NULL);
    return 0;
}

void fa_fleet_lease_end(fa_tuner *tuner, fa_source_lease **lease_pointer)
{
    fa_source_lease *lease = *lease_pointer;
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_diag why = {{0}};
    if (lease == NULL)
        return;
    fa_heartbeat_stop(&lease->heartbeat);
    if (lease->held && fleet->store != NULL) {
        int rc = fa_store_lease_release(fleet->store, &lease->lease, &why);
        if (rc != 0)
            fa_fleet_failed(tuner, rc, &why);
    }
    free(lease);
    *lease_pointer = NULL;
}
