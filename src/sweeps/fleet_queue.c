/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's queue: entering a sweep, listing, stopping, and the queue as JSON text; and a worker of the fleet: gives the
 * runner items from the queue and publishes the results.
 *
 * Workload: one item at a time, of a second or of minutes. Invariants: a thread with its own connection renews the
 * claim for as long as the tune takes; a result is published in the transaction that compares the claim's fence, or
 * not at all; however the worker ends, another worker gets its item: at once if it was handed back, otherwise when
 * the claim expires.
 */
#include "buf.h"

#include "fa_tune.h"

#include "catalogue.h"
#include "error.h"
#include "fleet.h"
#include "json.h"
#include "json_struct.h"
#include "problem.h"
#include "request.h"
#include "search.h"
#include "sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* FA_ESTORE, with what to set: this tuner has no queue. */
static int fail_without_fleet(fa_diag *diag)
{
    return fa_fail(diag, FA_ESTORE,
                   "no store is shared with other hosts: set FA_TUNE_STORE to "
                   "postgresql://USER@HOST/DATABASE, or to sqlite:///PATH among containers of one "
                   "machine");
}

/* The fleet's store for a call that needs it; NULL with an error in diag. The caller holds `work`. */
static fa_store *need_fleet(fa_tuner *tuner, int *ret_rc, fa_diag *diag)
{
    if (fa_fleet_of(tuner) == NULL) {
        *ret_rc = fail_without_fleet(diag);
        return NULL;
    }
    fa_fleet_of(tuner)->retry_ns = 0; /* connects now, without the pause after a failure */
    fa_store *store = fa_fleet_store(tuner);
    if (store == NULL)
        *ret_rc = fa_fail(diag, FA_EIO, "the fleet's store %s does not serve: %s",
                          fa_fleet_of(tuner)->shown, fa_fleet_of(tuner)->why.text);
    return store;
}

/* ---- entering -------------------------------------------------------------------------------*/
/* Every item names a GPU type, because other hosts have other devices. */
static int name_item_gpu(fa_tuner *tuner, int32_t ordinal, fa_sweep_item *item, fa_diag *diag)
{
    fa_gpu gpu;
    int rc;
    if (item->gpu[0] != 0) {
        rc = memchr(item->gpu, 0, sizeof item->gpu) != NULL
                 ? fa_catalogue_find(item->gpu, &gpu, diag)
                 : fa_fail(diag, FA_EINVAL, "the GPU's name of an item does not end");
    } else {
        rc = fa_tuner_driver(tuner, diag);
        if (rc == 0)
            rc = fa_driver_device(tuner->driver, ordinal, &gpu, diag);
        if (rc != 0)
            return fa_fail_in(diag, rc, "name the GPU type, or enter the sweep where one is");
        fa_fleet_gpu_type(&gpu, item->gpu);
        return 0;
    }
    if (rc == 0)
        snprintf(item->gpu, sizeof item->gpu, "%s", gpu.name);
    return rc;
}

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_item_request, member, __VA_ARGS__)
static const fa_member item_request_members[] = {
    ROW(effort, COUNT, .least = FA_EFFORT_PREDICT, .most = FA_EFFORT_PATIENT),
    ROW(again, FLAG),
    ROW(exact, FLAG),
    ROW(price, REAL),
    ROW(strategy, TEXT, .rules = FA_MEMBER_LEFT_OUT),
    ROW(evaluations, COUNT, .rules = FA_MEMBER_LEFT_OUT),
    ROW(seconds_each, REAL, .rules = FA_MEMBER_LEFT_OUT),
    {.key = NULL},
};
#undef ROW

static char *item_request_text(const fa_sweep_request *sweep)
{
    const fa_item_request how = fa_item_request_of(sweep);
    return fa_json_finish(fa_struct_to_json(item_request_members, &how));
}

/* ---- into the queue -------------------------------------------------------------------------*/
static int read_item_request(const char *text, fa_item_request *ret_request, fa_diag *diag)
{
    static const char where[] = "a queued item's request";
    cJSON *json = NULL;
    fa_item_request request = {.price = 0};
    int rc = fa_json_parse(text, strlen(text), where, &json, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, item_request_members, &request, where, diag);
    cJSON_Delete(json);
    const char *strategy = request.strategy[0] != 0 ? request.strategy : NULL;
    if (rc == 0)
        rc = fa_search_check(&strategy, request.evaluations, request.seconds_each, diag);
    if (rc == FA_EINVAL || (rc == 0 && !(request.price < 1e12)))
        return fa_fail(diag, FA_EINVAL, "%s is not understood: is a newer version in the fleet?",
                       where);
    if (rc == 0)
        *ret_request = request;
    return rc;
}

static int enter_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep_item *items,
                       fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep sweep = {.budget = request->budget};
    int64_t id;
    int rc = 0;
    fa_store *store = need_fleet(tuner, &rc, diag);
    for (int32_t i = 0; rc == 0 && i < request->count; i++)
        rc = name_item_gpu(tuner, request->ordinal, &items[i], diag);
    fa_sweep_request named = *request;
    named.items = items;
    named.ordinal = 0;
    if (rc == 0)
        rc = fa_sweep_key(&named, sweep.key, diag);
    if (rc != 0)
        return rc;
    snprintf(sweep.plan, sizeof sweep.plan, "%s", request->plan != NULL ? request->plan : "");
    char *how = item_request_text(request);
    if (how == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a sweep");
    fa_diag why = {{0}};
    const fa_sweep_entry entry = {&sweep, items, request->count, request->restart, how};
    rc = fa_store_sweep_enter(store, &entry, &id, &why);
    if (rc == 0)
        rc = fa_store_sweep_read(store, id, &sweep, &why);
    free(how);
    if (rc == 0) {
        *ret_sweep = sweep;
        return 0;
    }
    fa_fleet_failed(tuner, rc, &why);
    return fa_fail(diag, rc, "%s", why.text);
}

int fa_enqueue_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                     fa_diag *diag)
{
    fa_sweep_request known;
    fa_sweep sweep;
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_sweep_request_copy(request, &known, diag);
    if (rc != 0)
        return rc;
    fa_sweep_item *items = calloc((size_t)known.count, sizeof *items);
    if (items == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a sweep");
    for (int32_t i = 0; i < known.count; i++) {
        items[i].problem = known.items[i].problem;
        memcpy(items[i].gpu, known.items[i].gpu, sizeof items[i].gpu);
    }
    pthread_mutex_lock(&tuner->work);
    rc = enter_sweep(tuner, &known, items, &sweep, diag);
    pthread_mutex_unlock(&tuner->work);
    free(items);
    if (rc == 0 && ret_sweep != NULL)
        *ret_sweep = sweep;
    return rc;
}

/* ---- listing --------------------------------------------------------------------------------*/
struct queues {
    fa_queue *queue;
    size_t count, capacity;
};

static int add_queue(void *context, const fa_sweep *sweep)
{
    struct queues *all = context;
    const fa_queue queue = {.sweep = *sweep};
    return fa_append(&all->queue, &all->count, &all->capacity, &queue, sizeof queue);
}

static int count_items(fa_store *store, fa_queue *queue, fa_diag *diag)
{
    int64_t id;
    int rc = fa_store_sweep_find(store, queue->sweep.key, &id, diag);
    return rc != 0 ? rc : fa_store_queue_counts(store, id, queue, diag);
}

int fa_list_queues(fa_tuner *tuner, fa_queue_visit *visit, void *context, fa_diag *diag)
{
    struct queues all = {0};
    fa_diag why = {{0}};
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    fa_store *store = need_fleet(tuner, &rc, &why);
    if (store != NULL)
        rc = fa_store_sweeps_each(store, add_queue, &all, &why);
    if (rc == FA_ENOMEM)
        fa_fail(&why, rc, "out of memory after %zu sweeps", all.count);
    for (size_t i = 0; i < all.count && rc == 0; i++)
        rc = count_items(store, &all.queue[i], &why);
    if (rc != 0 && store != NULL)
        fa_fleet_failed(tuner, rc, &why);
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0)
        fa_fail(diag, rc, "%s", why.text);
    for (size_t i = 0; i < all.count && rc == 0; i++)
        rc = visit(context, &all.queue[i]);
    free(all.queue);
    return rc;
}

/* A sweep in the fleet's queue, by its key. The caller holds `work`. */
static fa_store *find_queue(fa_tuner *tuner, const char *key, int64_t *ret_id, int *ret_rc,
                            fa_diag *diag)
{
    fa_store *store = need_fleet(tuner, ret_rc, diag);
    if (store == NULL)
        return NULL;
    *ret_rc = fa_store_sweep_find(store, key, ret_id, diag);
    if (*ret_rc == FA_ENOTFOUND)
        fa_fail(diag, *ret_rc, "there is no sweep %.64s in the queue of %s", key,
                fa_fleet_of(tuner)->shown);
    return *ret_rc == 0 ? store : NULL;
}

int fa_stop_queue(fa_tuner *tuner, const char *key, fa_diag *diag)
{
    int64_t id;
    int rc = fa_tuner_check_with(tuner, key != NULL, "key", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    fa_store *store = find_queue(tuner, key, &id, &rc, diag);
    if (store != NULL)
        rc = fa_store_sweep_set_state(store, id, FA_SWEEP_STOPPED, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_list_queue_holdings(fa_tuner *tuner, const char *key, fa_queue_holding_visit *visit,
                           void *context, fa_diag *diag)
{
    int64_t id;
    int rc = fa_tuner_check_with(tuner, visit != NULL && key != NULL, "visit or key", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    fa_store *store = find_queue(tuner, key, &id, &rc, diag);
    if (store != NULL)
        rc = fa_store_queue_holdings_each(store, id, visit, context, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

/* ---- as JSON text ---------------------------------------------------------------------------*/
struct sweeps {
    cJSON *array;
    fa_diag *diag;
};

static int add_holding(void *context, const fa_queue_holding *holding)
{
    cJSON *object = cJSON_CreateObject();
    fa_json_add_number(object, "index", holding->index);
    fa_json_add(object, "problem", fa_problem_to_json(&holding->item.problem));
    fa_json_add_text(object, "gpu", holding->item.gpu);
    fa_json_add_number(object, "attempts", holding->item.attempts);
    fa_json_add_text(object, "stage", holding->stage == FA_WORK_MEASURE ? "measure" : "compile");
    fa_json_add_text(object, "holder", holding->holder);
    fa_json_add_number(object, "left_s", holding->left_s);
    return fa_json_push(context, object) ? 0 : FA_ENOMEM;
}

static int add_sweep(void *context, const fa_queue *queue)
{
    struct sweeps *sweeps = context;
    char *text = NULL;
    int rc = fa_sweep_write(&queue->sweep, &text, sweeps->diag);
    cJSON *object = rc == 0 ? cJSON_Parse(text) : NULL;
    free(text);
    fa_json_add_number(object, "pending", (double)queue->pending);
    fa_json_add_number(object, "running", (double)queue->running);
    fa_json_add_number(object, "expired", (double)queue->expired);
    fa_json_add_number(object, "compiled", (double)queue->compiled);
    fa_json_add_number(object, "refused", (double)queue->refused);
    fa_json_add_array(object, "held");
    return fa_json_push(sweeps->array, object) ? 0 : rc != 0 ? rc : FA_ENOMEM;
}

int fa_queue_write(fa_tuner *tuner, char **ret_text, fa_diag *diag)
{
    if (ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_text is NULL");
    cJSON *json = cJSON_CreateObject(), *object;
    struct sweeps sweeps = {fa_json_add_array(json, "sweeps"), diag};
    int rc = fa_list_queues(tuner, add_sweep, &sweeps, diag);
    cJSON_ArrayForEach (object, sweeps.array) {
        if (rc == 0)
            rc = fa_list_queue_holdings(
                tuner, cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, "key")),
                add_holding, cJSON_GetObjectItemCaseSensitive(object, "held"), diag);
        if (rc == FA_ENOTFOUND) /* it has left the queue meanwhile */
            rc = 0;
    }
    char *text = rc == 0 ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    if (rc == FA_ENOMEM || (rc == 0 && text == NULL))
        return fa_fail(diag, FA_ENOMEM, "out of memory for a queue");
    *ret_text = rc == 0 ? text : *ret_text;
    return rc;
}

/* ---- working --------------------------------------------------------------------------------*/
/* An item fails after so many workers have claimed it and died or handed it back. */
enum { ATTEMPTS_MOST = 40, PAUSE_MS = 500 };

struct worker {
    fa_runner runner; /* first; on_device: it measures */
    const fa_worker_request *request;
    fa_worker_report report;
    char gpu[64]; /* the GPU type that it works for; "": compiles for any type */
    bool stop;    /* the caller has asked it to stop */
    bool ended;   /* an item */
    double idle_since_s;
    fa_work_stage stage;
    bool publishes;          /* the item's winner was measured */
    fa_heartbeat *heartbeat; /* its thread sees the runner's claim and lease_ms */
    int32_t lease_ms;
};

/* ---- reporting ------------------------------------------------------------------------------*/
static void report(struct worker *w, fa_worker_progress progress)
{
    progress.report = &w->report;
    progress.stage = w->stage;
    if (progress.event == FA_WORK_IDLE)
        progress.idle_s = fa_runner_now_s() - w->idle_since_s;
    else
        progress.item = &w->runner.item;
    if (progress.reason == NULL)
        progress.reason = "";
    if (w->request->progress != NULL && w->request->progress(w->request->context, &progress) != 0)
        w->stop = true;
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
    ++*count[end];
    report(w, (fa_worker_progress){.event = FA_WORK_ENDS,
                                   .end = end,
                                   .reason = reason,
                                   .answer = end == FA_WORK_DONE ? &w->runner.answer : NULL});
}

static int work_progress(fa_runner *r, const fa_progress *tune)
{
    struct worker *w = (struct worker *)r;
    report(w, (fa_worker_progress){.event = FA_WORK_TUNES, .tune = tune});
    return w->stop;
}

static void pause_shortly(void)
{
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000L};
    nanosleep(&pause, NULL);
}

/* ---- the queue ------------------------------------------------------------------------------*/
/* A call of the queue about the claim. */
typedef int queue_call(struct worker *w, fa_store *store, const fa_queue_end *end, fa_diag *diag);

static int scope_of_item(struct worker *w, fa_scope *ret_scope, fa_diag *diag)
{
    fa_target target;
    fa_request request = fa_runner_request(&w->runner);
    int rc = fa_target_resolve(w->runner.tuner, &request, &target, diag);
    if (rc == 0)
        *ret_scope = target.scope;
    return rc;
}

/* A refused renewal is not counted; a refused end of a claim is. */
static int renew_claim(struct worker *w, fa_store *store, const fa_queue_end *end, fa_diag *diag)
{
    (void)end;
    return fa_store_queue_renew(store, &w->runner.claim, w->lease_ms, diag);
}

static int end_claim(struct worker *w, fa_store *store, const fa_queue_end *end, fa_diag *diag)
{
    return fa_store_queue_end(store, &w->runner.claim, end, diag);
}

/* Publishes all clean cubins and the predicted winner, for hosts that ask before a measurement exists. */
static int give_compiled(struct worker *w, fa_store *store, const fa_scope *scope,
                         const fa_winner_record *winner, const fa_cubin_record *cubin,
                         fa_diag *diag)
{
    const fa_queue_end end = {
        .state = FA_ITEM_PENDING, .compiled = true, .spent = &w->runner.unwritten};
    int rc;
    if ((rc = renew_claim(w, store, NULL, diag)) != 0 ||
        (rc = fa_fleet_share_cubins(w->runner.tuner, scope, true, diag)) != 0 ||
        (rc = fa_store_winner_put(store, winner, cubin, NULL, diag)) != 0)
        return rc;
    return end_claim(w, store, &end, diag);
}

/* Publishes the winner that the tune has stored locally. */
static int give_winner(struct worker *w, fa_store *store, const fa_queue_end *end, fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    fa_queue_end published = *end;
    fa_scope scope;
    int rc = scope_of_item(w, &scope, diag);
    if (rc != 0)
        return rc;
    scope.problem = w->runner.answer.from_problem;
    rc = fa_store_winner_get(w->runner.tuner->store, &scope, &winner, &cubin, diag);
    if (rc == FA_ENOTFOUND) {
        rc = fa_fail(diag, FA_EINVAL, "the local store has lost the winner");
    } else if (rc == 0 && w->publishes) {
        fa_fleet_void_other_proof(store, &winner, &cubin);
        published.winner = &winner;
        published.cubin = &cubin;
        rc = end_claim(w, store, &published, diag);
    } else if (rc == 0) {
        rc = give_compiled(w, store, &scope, &winner, &cubin, diag);
    }
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

static int call_queue(struct worker *w, queue_call *call, const fa_queue_end *end, fa_diag *diag)
{
    fa_tuner *tuner = w->runner.tuner;
    pthread_mutex_lock(&tuner->work);
    fa_store *store = fa_fleet_store(tuner);
    int rc = store != NULL ? call(w, store, end, diag)
                           : fa_fail(diag, FA_EIO, "%s", fa_fleet_of(tuner)->why.text);
    if (store != NULL && fa_fleet_is_worth_retry(tuner, rc))
        rc = call(w, store, end, diag);
    if (rc != 0 && rc != FA_EBUSY && store != NULL)
        fa_fleet_failed(tuner, rc, diag);
    fa_fleet_of(tuner)->retry_ns = 0; /* a result waits: nothing better to do than try again */
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

/* Repeats the call until the database has answered or the worker is asked to stop. FA_EBUSY: the claim is lost, not
 * merely late. */
static int call_queue_until_heard(struct worker *w, queue_call *call, const fa_queue_end *end,
                                  fa_diag *diag)
{
    for (;;) {
        int rc = call_queue(w, call, end, diag);
        if (rc == FA_EBUSY && call_queue(w, renew_claim, NULL, diag) == FA_EBUSY)
            return rc;
        if (rc != FA_EIO && rc != FA_EBUSY)
            return rc;
        report(w, (fa_worker_progress){
                      .event = FA_WORK_TUNES, .tune = &w->runner.seen, .reason = diag->text});
        if (w->stop)
            return rc;
        pause_shortly();
    }
}

/* ---- an item --------------------------------------------------------------------------------*/
/* Publishes trials and cubins besides the winner; a failure here loses no winner. */
static void share_rest(struct worker *w)
{
    fa_tuner *tuner = w->runner.tuner;
    fa_scope scope;
    fa_diag why = {{0}};
    pthread_mutex_lock(&tuner->work);
    int rc = fa_fleet_of(tuner)->store != NULL && scope_of_item(w, &scope, &why) == 0
                 ? fa_fleet_share_rest(tuner, &scope, &why)
                 : 0;
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    pthread_mutex_unlock(&tuner->work);
}

/* For a worker that ends before its result could be published: the outbox keeps it, and the next process publishes
 * it. */
static void leave_in_outbox(struct worker *w)
{
    fa_tuner *tuner = w->runner.tuner;
    fa_scope scope;
    pthread_mutex_lock(&tuner->work);
    if (scope_of_item(w, &scope, NULL) == 0)
        fa_store_outbox_add(tuner->store, fa_fleet_of(tuner)->identity, &scope, NULL);
    pthread_mutex_unlock(&tuner->work);
}

static void hand_item_back(struct worker *w)
{
    const fa_queue_end end = {.state = FA_ITEM_PENDING, .spent = &w->runner.unwritten};
    fa_diag none = {{0}};
    call_queue(w, end_claim, &end, &none); /* else its claim runs out */
    report_end(w, FA_WORK_HANDED_BACK, "");
}

static int renew_in_thread(fa_store *store, void *context, fa_diag *diag)
{
    const struct worker *w = context;
    return fa_store_queue_renew(store, &w->runner.claim, w->lease_ms, diag);
}

static int begin_work(fa_runner *r, fa_diag *why)
{
    struct worker *w = (struct worker *)r;
    w->stage = r->on_device ? FA_WORK_MEASURE : FA_WORK_COMPILE;
    report(w, (fa_worker_progress){.event = FA_WORK_BEGINS});
    if (w->stop)
        return FA_ECANCELED;
    int rc = read_item_request(r->claim.request, &r->how, why);
    if (w->stage == FA_WORK_COMPILE && r->how.effort == FA_EFFORT_MEASURE)
        r->how.effort = FA_EFFORT_PATIENT; /* the GPU's host is to find every cubin */
    if (rc == 0 && r->claim.fence > ATTEMPTS_MOST)
        rc = fa_fail(why, FA_EWORKER, "given up: %d workers have begun it and none came to an end",
                     r->claim.fence - 1);
    return rc != 0
               ? rc
               : fa_heartbeat_start(fa_fleet_of(r->tuner), renew_in_thread, w, &w->heartbeat, why);
}

/* Writes the item's end into the queue. */
static int write_end(struct worker *w, int tuned, const fa_diag *why, fa_diag *diag)
{
    const fa_runner *r = &w->runner;
    const char *reason = tuned == 0 ? "" : why->text;
    fa_diag said = {{0}};
    bool measured = fa_origin_trust(r->answer.origin) <= fa_origin_trust(FA_ORIGIN_IMPORTED);
    if (tuned != 0 && (w->stop || fa_runner_gives_back(tuned))) {
        hand_item_back(w);
        return w->stop ? 0 : fa_fail(diag, tuned, "%s", why->text);
    }
    w->publishes = tuned == 0 && (w->stage == FA_WORK_MEASURE || measured);
    const fa_queue_end end = {.state = tuned == 0 ? FA_ITEM_DONE : FA_ITEM_FAILED,
                              .compiled = tuned == 0,
                              .reason = reason,
                              .spent = &r->unwritten};
    int rc = call_queue_until_heard(w, tuned == 0 ? give_winner : end_claim, &end, &said);
    if (rc == 0 && w->publishes && w->stage == FA_WORK_MEASURE && !r->answer.from_store)
        share_rest(w);
    if (rc == FA_EBUSY) {
        report_end(w, FA_WORK_REFUSED, said.text);
    } else if (rc == 0) {
        report_end(w, tuned == 0 ? FA_WORK_DONE : FA_WORK_FAILED, reason);
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

static void set_working(struct worker *w, bool working)
{
    fa_fleet *fleet = fa_fleet_of(w->runner.tuner);
    pthread_mutex_lock(&w->runner.tuner->work);
    fleet->working = working;
    fleet->worker = pthread_self();
    pthread_mutex_unlock(&w->runner.tuner->work);
}

static int end_work(fa_runner *r, int tuned, const fa_diag *why, fa_diag *diag)
{
    struct worker *w = (struct worker *)r;
    fa_heartbeat_stop(&w->heartbeat);
    int rc = write_end(w, tuned, why, diag);
    set_working(w, false);
    w->idle_since_s = fa_runner_now_s();
    w->ended = true;
    return rc;
}

/* ---- the loop -------------------------------------------------------------------------------*/
/* 0: an item was claimed; FA_ENOTFOUND: there is none, or the database does not answer, and *ret_why has the reason. */
static int claim_item(struct worker *w, fa_diag *ret_why)
{
    fa_runner *r = &w->runner;
    fa_fleet *fleet = fa_fleet_of(r->tuner);
    const fa_queue_taker taker = {.gpu = w->gpu[0] != 0 ? w->gpu : NULL,
                                  .stage = r->on_device ? FA_WORK_MEASURE : FA_WORK_COMPILE,
                                  .holder = fleet->holder,
                                  .lease_ms = fleet->lease_ms};
    pthread_mutex_lock(&r->tuner->work);
    fa_store *store = fa_fleet_store(r->tuner);
    int rc = store != NULL ? fa_store_queue_claim(store, &taker, &r->claim, &r->item, ret_why)
                           : fa_fail(ret_why, FA_EIO, "%s", fleet->why.text);
    if (rc != 0 && rc != FA_ENOTFOUND && store != NULL)
        fa_fleet_failed(r->tuner, rc, ret_why);
    pthread_mutex_unlock(&r->tuner->work);
    if (rc == 0)
        set_working(w, true);
    return rc == 0 ? 0 : FA_ENOTFOUND;
}

/* Waits until an item may have come, at most half a second. */
static void wait_for_work(struct worker *w)
{
    fa_tuner *tuner = w->runner.tuner;
    fa_fleet *fleet = fa_fleet_of(tuner);
    fa_diag why = {{0}};
    int rc = FA_EIO;
    pthread_mutex_lock(&tuner->work);
    fa_fleet_catch_up(tuner);
    if (fleet->store != NULL) {
        rc = fa_store_wait(fleet->store, PAUSE_MS, &why);
        if (rc != 0 && rc != FA_ETIMEOUT)
            fa_fleet_failed(tuner, rc, &why);
    }
    if (fleet->failures > 0 && fleet->store == NULL) /* it has nothing else to do */
        fleet->retry_ns = 0;
    pthread_mutex_unlock(&tuner->work);
    if (rc != 0 && rc != FA_ETIMEOUT)
        pause_shortly();
}

/* Waits for an item until the caller stops that. */
static int next_work(fa_runner *r, fa_diag *diag)
{
    struct worker *w = (struct worker *)r;
    const double idle_exit_s = w->request->idle_exit_s;
    if (w->ended && w->request->once && !w->stop)
        return FA_ENOTFOUND;
    while (!w->stop) {
        fa_diag why = {{0}};
        if (claim_item(w, &why) == 0)
            return 0;
        report(w, (fa_worker_progress){.event = FA_WORK_IDLE, .reason = why.text});
        if (!w->stop && idle_exit_s > 0 && fa_runner_now_s() - w->idle_since_s >= idle_exit_s)
            /* With a reason nobody knows whether there was something to do. */
            return why.text[0] != 0 ? fa_fail(diag, FA_EIO, "%s", why.text) : FA_ENOTFOUND;
        if (!w->stop)
            wait_for_work(w);
    }
    return fa_fail(diag, FA_ECANCELED, "stopped");
}

static const fa_feed work_feed = {next_work, begin_work, work_progress, end_work};

/* Finds out whether this host measures, and for which GPU type it works. */
static int find_what_to_work_on(struct worker *w, fa_diag *diag)
{
    const char *name = w->request->gpu;
    fa_request any = {.problem = fa_problem_some(fa_operation_of(NULL)),
                      .gpu = name,
                      .ordinal = w->request->ordinal};
    fa_tuner *tuner = w->runner.tuner;
    fa_target target;
    pthread_mutex_lock(&tuner->work);
    int rc =
        fa_fleet_of(tuner) == NULL ? fail_without_fleet(diag)
        : fa_store_is_read_only(tuner->store)
            ? fa_fail(diag, FA_EREADONLY, "the local store %s cannot be written", tuner->store_path)
            : fa_target_resolve(tuner, &any, &target, diag);
    pthread_mutex_unlock(&tuner->work);
    if (name == NULL && (rc == FA_ENODRIVER || (rc == FA_ENODEVICE && w->request->ordinal == 0)))
        return 0; /* compiles for any type */
    if (rc != 0)
        return rc;
    w->runner.on_device = w->runner.here = target.gpu.present;
    w->runner.ordinal = target.gpu.present ? target.gpu.ordinal : 0;
    fa_fleet_gpu_type(&target.gpu, w->gpu);
    return 0;
}

int fa_run_worker(fa_tuner *tuner, const fa_worker_request *request, fa_worker_report *ret_report,
                  fa_diag *diag)
{
    fa_worker_request known;
    struct worker w = {.runner = {.feed = &work_feed, .tuner = tuner}, .request = &known};
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
        w.lease_ms = fa_fleet_of(tuner)->lease_ms;
        w.idle_since_s = fa_runner_now_s();
        fa_tuner_ignore_system(tuner, true);
        rc = fa_runner_run(&w.runner, diag);
        fa_tuner_ignore_system(tuner, false);
    }
    if (ret_report != NULL)
        *ret_report = w.report;
    return rc;
}
