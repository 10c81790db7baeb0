/* SPDX-License-Identifier: Apache-2.0
 *
 * Who tunes a key in the whole fleet: a lease in the fleet's store, kept alive by a thread while its
 * holder works.
 *
 * Workload: a tune of a second needs no sign of life and so neither the thread's connection; one of
 * minutes gives a few. Invariant: whoever lost the lease publishes nothing, because the fence is
 * compared in the transaction that publishes.
 */
#include "fleet.h"

#include "request.h"
#include "error.h"
#include "lookup.h"
#include "pool.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BEATS_IN_A_LEASE = 3, RETRY_MS = 500, REFUSALS = 3, WAIT_MS = 200, REST_MS = 20 };

/* ---- signs of life --------------------------------------------------------------------------*/
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

/* ---- leases ---------------------------------------------------------------------------------*/
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
    if (request->progress != NULL && request->progress(request->context, progress) != 0)
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
                        bool again, fa_source_lease **ret_lease, bool *ret_found,
                        fa_answer *ret_answer, fa_diag *diag)
{
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
