/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker of the fleet: claims items from the queue, tunes them here and publishes the results.
 *
 * Workload: one item at a time, of a second or of minutes. Invariants: a thread with its own connection renews the
 * claim for as long as the tune takes; a result is published in the transaction that compares the claim's fence, or
 * not at all; however the worker ends, another worker gets its item: at once if it was handed back, otherwise when
 * the claim expires.
 */
#include "fleet.h"

#include "error.h"
#include "request.h"
#include "sweep.h"
#include "tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* An item fails after so many workers have claimed it and died or handed it back. */
enum { ATTEMPTS_MOST = 40, PAUSE_MS = 500 };

struct worker {
    fa_tuner *tuner;
    const fa_worker_request *request;
    fa_worker_report report;
    char gpu[64];  /* the GPU type that it works for; "": compiles for any type */
    bool measures; /* on the device `ordinal` */
    int32_t ordinal;
    bool stop; /* the caller has asked it to stop */
    double idle_since_s;

    fa_queue_claim claim;
    fa_sweep_item item;
    fa_queued_request how;
    fa_work_stage stage;
    bool publishes; /* its winner was measured */
    fa_answer answer;
    fa_sweep_spent spent;
    fa_progress seen;
    double began_s;
};

static double now_s(void)
{
    return (double)fa_clock_ns() / 1e9;
}

/* ---- reporting ------------------------------------------------------------------------------*/
static void report(struct worker *w, fa_worker_progress *progress)
{
    progress->report = &w->report;
    progress->stage = w->stage;
    if (progress->event == FA_WORK_IDLE)
        progress->idle_s = now_s() - w->idle_since_s;
    else
        progress->item = &w->item;
    if (progress->reason == NULL)
        progress->reason = "";
    if (w->request->progress != NULL && w->request->progress(w->request->context, progress) != 0)
        w->stop = true;
}

static void report_event(struct worker *w, fa_work_event event, const char *reason)
{
    fa_worker_progress progress = {.event = event, .reason = reason};
    report(w, &progress);
}

static void report_end(struct worker *w, fa_work_end end, const char *reason)
{
    int32_t *const count[] = {
        [FA_WORK_DONE] = w->stage == FA_WORK_MEASURE ? &w->report.measured : &w->report.compiled,
        [FA_WORK_FAILED] = &w->report.failed,
        [FA_WORK_HANDED_BACK] = &w->report.handed_back,
        [FA_WORK_REFUSED] = &w->report.refused,
        [FA_WORK_UNPUBLISHED] = &w->report.unpublished,
    };
    fa_worker_progress progress = {.event = FA_WORK_ENDS,
                                   .end = end,
                                   .reason = reason,
                                   .answer = end == FA_WORK_DONE ? &w->answer : NULL};
    ++*count[end];
    report(w, &progress);
}

/* An fa_request.progress: runs inside fa_tune(). */
static int on_tune_progress(void *context, const fa_progress *tune)
{
    struct worker *w = context;
    fa_sweep_spent more = fa_spent_of_event(&w->seen, tune);
    fa_worker_progress progress = {.event = FA_WORK_TUNES, .tune = tune};
    w->spent.trials += more.trials;
    w->spent.compiled += more.compiled;
    w->spent.reused += more.reused;
    report(w, &progress);
    return w->stop;
}

static void pause_shortly(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    nanosleep(&pause, NULL);
}

/* ---- the queue ------------------------------------------------------------------------------*/
/* A call of the queue about the claim. */
typedef int queue_call(struct worker *w, fa_store *store, const char *text, fa_diag *diag);

static int scope_of_item(struct worker *w, fa_scope *ret_scope, fa_diag *diag)
{
    fa_target target;
    fa_request request = {.problem = w->item.problem,
                          .gpu = w->measures ? NULL : w->item.gpu,
                          .ordinal = w->ordinal,
                          .exact = w->how.exact};
    int rc = fa_target_resolve(w->tuner, &request, &target, diag);
    if (rc == 0)
        *ret_scope = target.scope;
    return rc;
}

static int32_t lease_ms(const struct worker *w)
{
    return fa_fleet_of(w->tuner)->lease_ms;
}

/* Publishes all clean cubins and the predicted winner, for hosts that ask before a measurement exists. */
static int give_compiled(struct worker *w, fa_store *store, const fa_scope *scope,
                         const fa_winner_record *winner, const fa_cubin_record *cubin,
                         fa_diag *diag)
{
    int rc = fa_store_queue_renew(store, &w->claim, lease_ms(w), diag);
    if (rc == 0)
        rc = fa_fleet_share_cubins(w->tuner, scope, true, diag);
    if (rc == 0)
        rc = fa_store_winner_put(store, winner, cubin, NULL, diag);
    return rc != 0 ? rc : fa_store_queue_compiled(store, &w->claim, &w->spent, diag);
}

/* Publishes the winner that the tune has stored locally. */
static int give_winner(struct worker *w, fa_store *store, const char *text, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    fa_scope scope;
    (void)text;
    int rc = scope_of_item(w, &scope, diag);
    if (rc != 0)
        return rc;
    scope.problem = w->answer.from_problem;
    rc = fa_store_winner_get(w->tuner->store, &scope, &winner, &cubin, diag);
    if (rc == FA_ENOTFOUND) {
        rc = fa_fail(diag, FA_EINVAL, "the local store has lost the winner");
    } else if (rc == 0 && w->publishes) {
        fa_fleet_void_other_proof(store, &winner, &cubin);
        rc = fa_store_queue_publish(store, &w->claim, &winner, &cubin, &w->spent, NULL, diag);
    } else if (rc == 0) {
        rc = give_compiled(w, store, &scope, &winner, &cubin, diag);
    }
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

static int fail_item(struct worker *w, fa_store *store, const char *text, fa_diag *diag)
{
    return fa_store_queue_fail(store, &w->claim, text, &w->spent, diag);
}

static int hand_back(struct worker *w, fa_store *store, const char *text, fa_diag *diag)
{
    (void)text;
    return fa_store_queue_give_back(store, &w->claim, &w->spent, diag);
}

static int call_queue(struct worker *w, queue_call *call, const char *text, fa_diag *diag)
{
    fa_tuner *tuner = w->tuner;
    pthread_mutex_lock(&tuner->work);
    fa_store *store = fa_fleet_store(tuner);
    int rc = store != NULL ? call(w, store, text, diag)
                           : fa_fail(diag, FA_EIO, "%s", fa_fleet_of(tuner)->why.text);
    if (store != NULL && fa_fleet_is_worth_retry(tuner, rc))
        rc = call(w, store, text, diag);
    if (rc != 0 && rc != FA_EBUSY && store != NULL)
        fa_fleet_failed(tuner, rc, diag);
    fa_fleet_of(tuner)->retry_ns = 0; /* a result waits: nothing better to do than try again */
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

/* A refused renewal is not counted; a refused end of a claim is. */
static int renew_claim(struct worker *w, fa_store *store, const char *text, fa_diag *diag)
{
    (void)text;
    return fa_store_queue_renew(store, &w->claim, lease_ms(w), diag);
}

/* Repeats the call until the database has answered or the worker is asked to stop. FA_EBUSY: the claim is lost, not
 * merely late. */
static int call_queue_until_heard(struct worker *w, queue_call *call, const char *text,
                                  fa_diag *diag)
{
    for (;;) {
        int rc = call_queue(w, call, text, diag);
        if (rc == FA_EBUSY && call_queue(w, renew_claim, "", diag) == FA_EBUSY)
            return rc;
        if (rc != FA_EIO && rc != FA_EBUSY)
            return rc;
        fa_worker_progress progress = {
            .event = FA_WORK_TUNES, .tune = &w->seen, .reason = diag->text};
        report(w, &progress);
        if (w->stop)
            return rc;
        pause_shortly();
    }
}

/* ---- an item --------------------------------------------------------------------------------*/
/* The claim is renewed by another thread, which sees only this. */
struct claim_renewal {
    const fa_queue_claim *claim;
    int32_t lease_ms;
};

static int renew_in_thread(fa_store *store, void *context, fa_diag *diag)
{
    const struct claim_renewal *renewal = context;
    return fa_store_queue_renew(store, renewal->claim, renewal->lease_ms, diag);
}

static int tune_item(struct worker *w, fa_diag *diag)
{
    fa_tuner *tuner = w->tuner;
    struct claim_renewal renewal = {&w->claim, lease_ms(w)};
    fa_heartbeat *heartbeat = NULL;
    fa_request request = {.size = sizeof request,
                          .problem = w->item.problem,
                          .gpu = w->measures ? NULL : w->item.gpu,
                          .ordinal = w->ordinal,
                          .effort = w->how.effort,
                          .again = w->how.again,
                          .exact = w->how.exact,
                          .strategy = w->how.strategy[0] != 0 ? w->how.strategy : NULL,
                          .evaluations = w->how.evaluations,
                          .seconds = w->how.seconds_each,
                          .progress = on_tune_progress,
                          .context = w};
    int rc = fa_heartbeat_start(fa_fleet_of(tuner), renew_in_thread, &renewal, &heartbeat, diag);
    if (rc == 0)
        rc = fa_tune_here(tuner, &request, &w->answer, diag);
    fa_heartbeat_stop(&heartbeat);
    w->spent.seconds = now_s() - w->began_s;
    w->spent.cost = w->measures ? w->spent.seconds * w->how.price / 3600 : 0;
    return rc;
}

struct sharing {
    fa_tuner *tuner;
    const fa_scope *scope;
};

static int share_trials(void *context, fa_diag *diag)
{
    const struct sharing *sharing = context;
    return fa_fleet_share_trials(sharing->tuner, sharing->scope, diag);
}

/* Publishes trials and cubins besides the winner; a failure here loses no winner. */
static void share_rest(struct worker *w)
{
    fa_tuner *tuner = w->tuner;
    fa_scope scope;
    fa_diag why = {{0}};
    pthread_mutex_lock(&tuner->work);
    if (fa_fleet_of(tuner)->store != NULL && scope_of_item(w, &scope, &why) == 0) {
        struct sharing sharing = {tuner, &scope};
        int rc = fa_fleet_share_cubins(tuner, &scope, false, &why);
        if (rc == 0)
            rc = fa_store_batch(fa_fleet_of(tuner)->store, share_trials, &sharing, &why);
        if (rc != 0)
            fa_fleet_failed(tuner, rc, &why);
    }
    pthread_mutex_unlock(&tuner->work);
}

/* For a worker that ends before its result could be published: the outbox keeps it, and the next process publishes
 * it. */
static void leave_in_outbox(struct worker *w)
{
    fa_scope scope;
    pthread_mutex_lock(&w->tuner->work);
    if (scope_of_item(w, &scope, NULL) == 0)
        fa_store_outbox_add(w->tuner->store, fa_fleet_of(w->tuner)->identity, &scope, NULL);
    pthread_mutex_unlock(&w->tuner->work);
}

static void hand_item_back(struct worker *w)
{
    fa_diag none = {{0}};
    call_queue(w, hand_back, "", &none); /* else its claim runs out */
    report_end(w, FA_WORK_HANDED_BACK, "");
}

/* Writes the item's end into the queue; non-zero ends the worker. */
static int end_queue_item(struct worker *w, int tuned, fa_diag *why, fa_diag *diag)
{
    fa_diag said = {{0}};
    bool measured = fa_origin_trust(w->answer.origin) <= fa_origin_trust(FA_ORIGIN_IMPORTED);
    if (tuned != 0 && (w->stop || tuned == FA_ECANCELED || fa_sweep_is_fatal(tuned))) {
        hand_item_back(w);
        return w->stop ? 0 : fa_fail(diag, tuned, "%s", why->text);
    }
    w->publishes = tuned == 0 && (w->stage == FA_WORK_MEASURE || measured);
    int rc = call_queue_until_heard(w, tuned == 0 ? give_winner : fail_item, why->text, &said);
    if (rc == 0 && w->publishes && w->stage == FA_WORK_MEASURE && !w->answer.from_store)
        share_rest(w);
    if (rc == FA_EBUSY) {
        report_end(w, FA_WORK_REFUSED, said.text);
    } else if (rc == 0) {
        report_end(w, tuned == 0 ? FA_WORK_DONE : FA_WORK_FAILED, tuned == 0 ? "" : why->text);
    } else if (w->stop) {
        if (tuned == 0)
            leave_in_outbox(w);
        report_end(w, FA_WORK_UNPUBLISHED, said.text);
    } else {
        hand_item_back(w);
        return fa_fail(diag, rc, "%s", said.text);
    }
    return 0;
}

static int run_queue_item(struct worker *w, fa_diag *diag)
{
    fa_diag why = {{0}};
    w->stage = w->measures ? FA_WORK_MEASURE : FA_WORK_COMPILE;
    w->spent = (fa_sweep_spent){0};
    w->seen = (fa_progress){0};
    w->answer = (fa_answer){.size = sizeof(fa_answer)};
    w->began_s = now_s();
    report_event(w, FA_WORK_BEGINS, "");
    if (w->stop) {
        hand_item_back(w);
        return 0;
    }
    int rc = fa_queued_request_read(w->claim.request, &w->how, &why);
    if (rc == 0 && w->claim.item.fence > ATTEMPTS_MOST)
        rc = fa_fail(&why, FA_EWORKER, "given up: %d workers have begun it and none came to an end",
                     w->claim.item.fence - 1);
    if (rc == 0)
        rc = tune_item(w, &why);
    return end_queue_item(w, rc, &why, diag);
}

/* ---- the loop -------------------------------------------------------------------------------*/
/* 0: an item was claimed; FA_ENOTFOUND: there is none, or the database does not answer, and *ret_why has the reason. */
static int claim_item(struct worker *w, fa_diag *ret_why)
{
    fa_tuner *tuner = w->tuner;
    const char *gpus[] = {w->gpu};
    pthread_mutex_lock(&tuner->work);
    fa_store *store = fa_fleet_store(tuner);
    int rc = store == NULL
                 ? fa_fail(ret_why, FA_EIO, "%s", fa_fleet_of(tuner)->why.text)
                 : fa_store_queue_claim(store, gpus, w->gpu[0] != 0,
                                        w->measures ? FA_STAGE_MEASURE : FA_STAGE_COMPILE,
                                        fa_fleet_of(tuner)->holder, fa_fleet_of(tuner)->lease_ms,
                                        &w->claim, &w->item, ret_why);
    if (rc != 0 && rc != FA_ENOTFOUND && store != NULL)
        fa_fleet_failed(tuner, rc, ret_why);
    fa_fleet_of(tuner)->working = rc == 0;
    fa_fleet_of(tuner)->worker = pthread_self();
    pthread_mutex_unlock(&tuner->work);
    return rc == 0 ? 0 : FA_ENOTFOUND;
}

/* Waits until an item may have come, at most half a second. */
static void wait_for_work(struct worker *w)
{
    fa_tuner *tuner = w->tuner;
    fa_diag why = {{0}};
    int rc = FA_EIO;
    pthread_mutex_lock(&tuner->work);
    fa_store *store = fa_fleet_of(tuner)->store;
    if (store != NULL) {
        fa_fleet_catch_up(tuner);
        store = fa_fleet_of(tuner)->store;
    }
    if (store != NULL) {
        rc = fa_store_wait(store, PAUSE_MS, &why);
        if (rc != 0 && rc != FA_ETIMEOUT)
            fa_fleet_failed(tuner, rc, &why);
    }
    if (fa_fleet_of(tuner)->failures > 0 &&
        fa_fleet_of(tuner)->store == NULL) /* it has nothing else to do */
        fa_fleet_of(tuner)->retry_ns = 0;
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0 && rc != FA_ETIMEOUT)
        pause_shortly();
}

static int work_on_queue(struct worker *w, fa_diag *diag)
{
    int rc = 0;
    w->idle_since_s = now_s();
    while (rc == 0 && !w->stop) {
        fa_diag why = {{0}};
        if (claim_item(w, &why) == 0) {
            rc = run_queue_item(w, diag);
            pthread_mutex_lock(&w->tuner->work);
            fa_fleet_of(w->tuner)->working = false;
            pthread_mutex_unlock(&w->tuner->work);
            w->idle_since_s = now_s();
            if (w->request->once)
                break;
            continue;
        }
        report_event(w, FA_WORK_IDLE, why.text);
        if (w->request->idle_exit_s > 0 && now_s() - w->idle_since_s >= w->request->idle_exit_s) {
            if (why.text[0] != 0) /* nobody knows whether there was something to do */
                rc = fa_fail(diag, FA_EIO, "%s", why.text);
            break;
        }
        if (!w->stop)
            wait_for_work(w);
    }
    return rc == 0 && w->stop ? fa_fail(diag, FA_ECANCELED, "stopped") : rc;
}

/* Finds out whether this host measures, and for which GPU type it works. */
static int find_what_to_work_on(struct worker *w, fa_diag *diag)
{
    const char *name = w->request->gpu;
    fa_request any = {.problem = fa_problem_some(fa_operation_of(NULL)),
                      .gpu = name,
                      .ordinal = w->request->ordinal};
    fa_target target;
    pthread_mutex_lock(&w->tuner->work);
    int rc = fa_fleet_of(w->tuner) == NULL ? fa_fail_without_fleet(diag)
             : fa_store_is_read_only(w->tuner->store)
                 ? fa_fail(diag, FA_EREADONLY, "the local store %s cannot be written",
                           w->tuner->store_path)
                 : fa_target_resolve(w->tuner, &any, &target, diag);
    pthread_mutex_unlock(&w->tuner->work);
    if (name == NULL && (rc == FA_ENODRIVER || (rc == FA_ENODEVICE && w->request->ordinal == 0)))
        return 0; /* compiles for any type */
    if (rc != 0)
        return rc;
    w->measures = target.gpu.present;
    w->ordinal = target.gpu.present ? target.gpu.ordinal : 0;
    fa_fleet_gpu_type(&target.gpu, w->gpu);
    return 0;
}

int fa_run_worker(fa_tuner *tuner, const fa_worker_request *request, fa_worker_report *ret_report,
                  fa_diag *diag)
{
    fa_worker_request known;
    struct worker w = {.tuner = tuner, .request = &known};
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_copy_sized(&known, sizeof known, request,
                           "request.size is not sizeof(fa_worker_request)", diag);
    if (rc != 0)
        return rc;
    if (!(known.idle_exit_s >= 0 && isfinite(known.idle_exit_s)))
        return fa_fail(diag, FA_EINVAL, "idle_exit_s may not be negative");
    rc = find_what_to_work_on(&w, diag);
    if (rc == 0) {
        fa_tuner_ignore_system(tuner, true);
        rc = work_on_queue(&w, diag);
        fa_tuner_ignore_system(tuner, false);
    }
    if (ret_report != NULL)
        *ret_report = w.report;
    return rc;
}
