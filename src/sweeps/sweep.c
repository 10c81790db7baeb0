/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep: claims items from its queue in the store, tunes them as fa_tune() does, and accounts for time, trials
 * and money.
 *
 * Invariants: one process runs a sweep at a time (it holds a lock that the kernel releases when it dies), so an
 * item that is found running was left by a process that died; the account is written every second and with the end
 * of each item; no item is started once the budget is spent.
 */
#include "sweep.h"

#include "request.h"
#include "lock.h"
#include "pool.h"
#include "problem.h"
#include "search.h"
#include "store.h"
#include "tune.h"

#include "error.h"
#include "source.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOCK_MS = 500 };
static const double account_s = 1.0; /* between two writings of the account */

struct sweep {
    fa_tuner *tuner;
    const fa_sweep_request *request;
    int64_t id;
    fa_sweep now;             /* as the store has it, but for what is not yet written */
    fa_sweep_spent unwritten; /* since then, of the item under way */
    fa_sweep_item item;       /* the one under way, or that has just ended */
    fa_store_claim claim;
    fa_progress seen; /* what the account has seen of the tune under way */
    bool gpu_held;    /* the item's GPU is in this machine */
    bool budget_spent;
    double started_s, accounted_s; /* monotonic: this run; the account */
    double tuning_s;               /* this run's time in items that were tuned, and how many */
    int32_t tuned;
    int store_rc; /* a failure to keep account, and its sentence */
    fa_diag store_diag;
};

static double now_s(void)
{
    return (double)fa_clock_ns() / 1e9;
}

/* ---- the account ----------------------------------------------------------------------------*/
/* Both take `work` as held: the store belongs to one thread at a time. */
static void account_time(struct sweep *s)
{
    double now = now_s(), passed = now - s->accounted_s;
    double cost = s->gpu_held ? passed * s->request->budget.price / 3600 : 0;
    s->accounted_s = now;
    s->unwritten.seconds += passed;
    s->unwritten.cost += cost;
    s->item.spent.seconds += passed;
    s->item.spent.cost += cost;
    s->now.spent.seconds += passed;
    s->now.spent.cost += cost;
}

static void write_account(struct sweep *s)
{
    if (s->store_rc == 0)
        s->store_rc =
            fa_store_sweep_spend(s->tuner->store, &s->claim, &s->unwritten, &s->store_diag);
    s->unwritten = (fa_sweep_spent){0};
}

fa_sweep_spent fa_spent_of_event(fa_progress *seen, const fa_progress *tune)
{
    int64_t compiled = tune->compiled - tune->reused - (seen->compiled - seen->reused);
    int64_t reused = tune->reused - seen->reused;
    if (tune->kind == FA_EVENT_STAGE && tune->stage == FA_STAGE_TUNE)
        compiled = reused = 0; /* what is on record from earlier runs */
    *seen = *tune;
    return (fa_sweep_spent){
        .trials = tune->kind == FA_EVENT_TRIAL && tune->stage == FA_STAGE_TUNE,
        .compiled = compiled > 0 ? compiled : 0,
        .reused = reused > 0 ? reused : 0,
    };
}

static void account_tune(struct sweep *s, const fa_progress *tune)
{
    fa_sweep_spent more = fa_spent_of_event(&s->seen, tune);
    fa_sweep_spent *const accounts[] = {&s->unwritten, &s->item.spent, &s->now.spent};
    for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++) {
        accounts[i]->trials += more.trials;
        accounts[i]->compiled += more.compiled;
        accounts[i]->reused += more.reused;
    }
}

/* A limit of trials does not stop a tune whose configs have all ended: only the race is left. */
static bool over_budget(const struct sweep *s, const fa_progress *tune)
{
    const fa_sweep_budget *budget = &s->request->budget;
    const fa_sweep_spent *spent = &s->now.spent;
    bool more = tune == NULL || (tune->stage == FA_STAGE_TUNE && tune->ended < tune->in_budget);
    return (budget->seconds > 0 && spent->seconds >= budget->seconds) ||
           (budget->cost > 0 && spent->cost >= budget->cost) ||
           (budget->trials > 0 && spent->trials >= budget->trials && more);
}

/* ---- reporting ------------------------------------------------------------------------------*/
/* Seconds that the remaining problems will take at the pace so far; the finished part of the current problem
 * counts. -1: nothing is known yet. */
static double time_left(const struct sweep *s, const fa_progress *tune)
{
    bool under_way = tune != NULL && tune->in_budget > 0;
    double part = under_way ? fmin((double)tune->ended / tune->in_budget, 1) : 0;
    double took = s->tuning_s + (tune != NULL ? tune->elapsed_s : 0);
    double left = s->now.items - s->now.done - s->now.failed - part;
    return s->tuned + part > 0.1 ? took / (s->tuned + part) * left : -1;
}

static int report_sweep_event(struct sweep *s, fa_sweep_event event, const fa_progress *tune,
                              const fa_answer *answer)
{
    double elapsed = now_s() - s->started_s;
    fa_sweep_progress progress = {
        .event = event,
        .sweep = &s->now,
        .index = s->claim.position,
        .item = &s->item,
        .tune = tune,
        .answer = answer,
        .elapsed_s = elapsed,
        .left_s = time_left(s, tune),
    };
    const fa_sweep_request *request = s->request;
    return request->progress != NULL ? request->progress(request->context, &progress) : 0;
}

/* An fa_request.progress: runs inside fa_tune(), which holds `work` and has no transaction open. */
static int on_tune_progress(void *context, const fa_progress *tune)
{
    struct sweep *s = context;
    account_time(s);
    account_tune(s, tune);
    if (s->unwritten.seconds >= account_s)
        write_account(s);
    bool stop = report_sweep_event(s, FA_SWEEP_ITEM_TUNES, tune, NULL) != 0;
    if (!stop && tune->stage != FA_STAGE_DONE && over_budget(s, tune))
        s->budget_spent = true;
    return stop || s->budget_spent || s->store_rc != 0;
}

/* ---- items ----------------------------------------------------------------------------------*/
static fa_request request_of(struct sweep *s, int32_t index)
{
    const fa_sweep_item *item = &s->request->items[index];
    return (fa_request){.size = sizeof(fa_request),
                        .problem = item->problem,
                        .gpu = item->gpu[0] != 0 ? item->gpu : NULL,
                        .ordinal = s->request->ordinal,
                        .effort = s->request->effort,
                        .again = s->request->again,
                        .exact = s->request->exact,
                        .strategy = s->request->strategy,
                        .evaluations = s->request->evaluations,
                        .seconds = s->request->seconds_each,
                        .progress = on_tune_progress,
                        .context = s};
}

static bool is_gpu_present(struct sweep *s, const fa_request *request)
{
    fa_target target;
    pthread_mutex_lock(&s->tuner->work);
    int rc = fa_target_resolve(s->tuner, request, &target, NULL);
    pthread_mutex_unlock(&s->tuner->work);
    return rc == 0 && target.gpu.present;
}

/* An item that an earlier run has done stays done while its winner is stored. It is opened again if the templates
 * have changed, the store is another one, or a GPU was added that was missing before. */
static int check_done_item(struct sweep *s, int32_t position, const fa_sweep_item *item)
{
    fa_answer answer = {.size = sizeof answer};
    if (item->state != FA_ITEM_DONE)
        return 0;
    fa_request request = request_of(s, position);
    request.progress = NULL;
    request.effort = FA_EFFORT_CACHED;
    request.again = false;
    int rc = fa_tune_here(s->tuner, &request, &answer, &s->store_diag);
    if (rc == 0 && fa_answer_satisfies(
                       &answer, (fa_wanted){s->request->effort, request.exact, .whole = true})) {
        s->claim.position = position;
        s->item = *item;
        return report_sweep_event(s, FA_SWEEP_ITEM_KNOWN, NULL, &answer) != 0
                   ? fa_fail(&s->store_diag, FA_ECANCELED, "canceled")
                   : 0;
    }
    if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT)
        return rc;
    pthread_mutex_lock(&s->tuner->work);
    rc = fa_store_sweep_reopen(s->tuner->store, s->id, position, &s->store_diag);
    pthread_mutex_unlock(&s->tuner->work);
    s->now.done--;
    return rc;
}

struct collected {
    fa_sweep_item *item;
    int32_t count;
};

static int collect_item(void *context, int32_t position, const fa_sweep_item *item)
{
    struct collected *collected = context;
    if (position < collected->count)
        collected->item[position] = *item;
    return 0;
}

/* The items are read first, because a visit may not use the store. */
static int check_done_items(struct sweep *s, fa_diag *diag)
{
    struct collected all = {calloc((size_t)s->request->count, sizeof *all.item), s->request->count};
    if (all.item == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a sweep");
    pthread_mutex_lock(&s->tuner->work);
    int rc = fa_store_sweep_items_each(s->tuner->store, s->id, collect_item, &all, diag);
    pthread_mutex_unlock(&s->tuner->work);
    for (int32_t i = 0; i < all.count && rc == 0; i++) {
        rc = check_done_item(s, i, &all.item[i]);
        if (rc != 0)
            fa_fail(diag, rc, "%s", s->store_diag.text);
    }
    free(all.item);
    return rc;
}

bool fa_sweep_is_fatal(int rc)
{
    static const int fatal[] = {FA_ENOMEM,   FA_EIO,     FA_ENODRIVER, FA_ENODEVICE,
                                FA_ENONVRTC, FA_ESTORE,  FA_EVERSION,  FA_EREADONLY,
                                FA_EFULL,    FA_EFORKED, FA_EMANIFEST};
    for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++)
        if (fatal[i] == rc)
            return true;
    return false;
}

/* Writes the item's end with what is left of its account. */
static int end_sweep_item(struct sweep *s, fa_item_state state, const char *reason, fa_diag *diag)
{
    pthread_mutex_lock(&s->tuner->work);
    account_time(s);
    int rc = fa_store_sweep_end(s->tuner->store, &s->claim, state, reason, &s->unwritten, diag);
    pthread_mutex_unlock(&s->tuner->work);
    s->unwritten = (fa_sweep_spent){0};
    s->item.state = state;
    snprintf(s->item.reason, sizeof s->item.reason, "%s", reason);
    s->now.done += state == FA_ITEM_DONE;
    s->now.failed += state == FA_ITEM_FAILED;
    return rc;
}

/* Tunes the claimed item; non-zero ends the sweep. */
static int run_sweep_item(struct sweep *s, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    fa_diag why = {{0}};
    fa_request request = request_of(s, s->claim.position);
    double began = now_s();
    s->item = s->request->items[s->claim.position];
    s->item.state = FA_ITEM_RUNNING;
    s->item.attempts = s->claim.fence;
    s->item.spent = (fa_sweep_spent){0};
    s->item.reason[0] = 0;
    s->seen = (fa_progress){0};
    s->accounted_s = began;
    s->gpu_held = is_gpu_present(s, &request);
    int rc = report_sweep_event(s, FA_SWEEP_ITEM_BEGINS, NULL, NULL) != 0
                 ? fa_fail(&why, FA_ECANCELED, "canceled")
                 : fa_tune_here(s->tuner, &request, &answer, &why);
    if (s->store_rc != 0)
        return fa_fail(diag, s->store_rc, "%s", s->store_diag.text);
    if (rc != 0 && (rc == FA_ECANCELED || fa_sweep_is_fatal(rc))) {
        end_sweep_item(s, FA_ITEM_PENDING, "", NULL);
        return rc == FA_ECANCELED && s->budget_spent ? 0 : fa_fail(diag, rc, "%s", why.text);
    }
    int kept = rc == 0 ? end_sweep_item(s, FA_ITEM_DONE, "", diag)
                       : end_sweep_item(s, FA_ITEM_FAILED, why.text, diag);
    if (kept != 0)
        return kept;
    if (rc != 0 || !answer.from_store) {
        s->tuned++;
        s->tuning_s += now_s() - began;
    }
    return report_sweep_event(s, FA_SWEEP_ITEM_ENDS, NULL, rc == 0 ? &answer : NULL) != 0
               ? fa_fail(diag, FA_ECANCELED, "canceled; what was done is kept for the next run")
               : 0;
}

static int run_sweep_items(struct sweep *s, fa_diag *diag)
{
    int rc = 0;
    while (rc == 0 && !s->budget_spent) {
        if (s->now.done + s->now.failed < s->now.items && over_budget(s, NULL)) {
            s->budget_spent = true;
            break;
        }
        pthread_mutex_lock(&s->tuner->work);
        rc = fa_store_sweep_claim(s->tuner->store, s->id, &s->claim, diag);
        pthread_mutex_unlock(&s->tuner->work);
        if (rc == FA_ENOTFOUND)
            return 0;
        if (rc == 0 && s->claim.position >= s->request->count)
            rc = fa_fail(diag, FA_ECORRUPT, "a sweep's item is not valid: restart the sweep");
        if (rc == 0)
            rc = run_sweep_item(s, diag);
    }
    return rc;
}

/* ---- a run ----------------------------------------------------------------------------------*/
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag)
{
    int rc = fa_copy_sized(ret, sizeof *ret, request,
                           "request.size is not sizeof(fa_sweep_request)", diag);
    if (rc != 0)
        return rc;
    const fa_sweep_budget *budget = &ret->budget;
    if (ret->items == NULL || ret->count < 1 || ret->count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "a sweep takes 1 to %d problems, not %d",
                       FA_SWEEP_ITEMS_MAX, ret->count);
    if (ret->effort < FA_EFFORT_PREDICT || ret->effort > FA_EFFORT_PATIENT)
        return fa_fail(diag, FA_EINVAL, "a sweep's effort is predict, measure or patient");
    if (!(budget->seconds >= 0 && isfinite(budget->seconds)) ||
        !(budget->cost >= 0 && isfinite(budget->cost)) ||
        !(budget->price >= 0 && isfinite(budget->price)) || budget->trials < 0)
        return fa_fail(diag, FA_EINVAL, "a budget's numbers may not be negative");
    if (budget->cost > 0 && !(budget->price > 0))
        return fa_fail(diag, FA_EINVAL, "a budget of money needs the price of a GPU's hour");
    return fa_search_check(&ret->strategy, ret->evaluations, ret->seconds_each, diag);
}

int fa_sweep_key(const fa_sweep_request *request, char ret_key[65], fa_diag *diag)
{
    fa_sweep_request known;
    fa_hash hash;
    char text[FA_PROBLEM_KEY_MAX];
    int rc = fa_sweep_request_copy(request, &known, diag);
    if (rc == 0 && ret_key == NULL)
        rc = fa_fail(diag, FA_EINVAL, "ret_key is NULL");
    if (rc != 0)
        return rc;
    fa_hash_init(&hash);
    snprintf(text, sizeof text, "sweep effort=%d again=%d exact=%d device=%d", (int)known.effort,
             known.again, known.exact, known.ordinal);
    fa_hash_text(&hash, text);
    if (known.strategy != NULL || known.evaluations > 0 || known.seconds_each > 0) {
        snprintf(text, sizeof text, "strategy=%s evaluations=%d seconds_each=%.17g",
                 known.strategy != NULL ? known.strategy : "", (int)known.evaluations,
                 known.seconds_each);
        fa_hash_text(&hash, text);
    }
    for (int32_t i = 0; i < known.count; i++) {
        fa_problem_key(&known.items[i].problem, text);
        fa_hash_text(&hash, text);
        fa_hash_part(&hash, known.items[i].gpu, strnlen(known.items[i].gpu, 64));
    }
    fa_hash_final(&hash, ret_key);
    return 0;
}

static void sweep_lock_name(const char *key, char ret_name[80])
{
    snprintf(ret_name, 80, "sweep-%s", key);
}

/* Enters the sweep, checks the items that are done, runs the others, and writes the sweep's state. */
static int run_entered_sweep(struct sweep *s, fa_diag *diag)
{
    const fa_sweep_request *request = s->request;
    fa_store *store = s->tuner->store;
    s->now.budget = request->budget;
    snprintf(s->now.plan, sizeof s->now.plan, "%s", request->plan != NULL ? request->plan : "");
    pthread_mutex_lock(&s->tuner->work);
    int rc = fa_store_sweep_enter(store, &s->now, request->items, request->count, request->restart,
                                  &s->id, diag);
    if (rc == 0)
        rc = fa_store_sweep_read(store, s->id, &s->now, diag);
    pthread_mutex_unlock(&s->tuner->work);
    if (rc != 0)
        return rc;
    s->started_s = now_s();
    rc = check_done_items(s, diag);
    if (rc == 0)
        rc = run_sweep_items(s, diag);
    fa_sweep_state state = rc != 0           ? FA_SWEEP_STOPPED
                           : s->budget_spent ? FA_SWEEP_BUDGET_SPENT
                                             : FA_SWEEP_DONE;
    pthread_mutex_lock(&s->tuner->work);
    int kept = fa_store_sweep_set_state(store, s->id, state, rc == 0 ? diag : NULL);
    if (kept == 0)
        kept = fa_store_sweep_read(store, s->id, &s->now, rc == 0 ? diag : NULL);
    pthread_mutex_unlock(&s->tuner->work);
    return rc != 0 ? rc : kept;
}

int fa_run_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                 fa_diag *diag)
{
    fa_sweep_request known;
    fa_lock *lock = NULL;
    char name[80];
    struct sweep s = {.tuner = tuner, .request = &known};
    int rc = fa_tuner_check(tuner, diag);
    if (rc == 0)
        rc = fa_sweep_request_copy(request, &known, diag);
    if (rc == 0)
        rc = fa_sweep_key(&known, s.now.key, diag);
    if (rc != 0)
        return rc;
    fa_sweep there = {0};
    rc = fa_sources_sweep(tuner, &known, &there, diag);
    if (rc != FA_SOURCE_NONE) {
        if (ret_sweep != NULL && (rc == 0 || there.items > 0))
            *ret_sweep = there;
        return rc;
    }
    sweep_lock_name(s.now.key, name);
    if (fa_store_is_read_only(tuner->store))
        return fa_fail(diag, FA_EREADONLY,
                       "the store %s cannot be written, so a sweep could not be kept: set "
                       "FA_TUNE_STORE to a file that can",
                       tuner->store_path);
    /* Waits briefly, because a process that lists sweeps holds this lock for a moment. */
    rc = fa_lock_acquire(tuner->store_path, name, LOCK_MS, NULL, NULL, &lock, NULL, diag);
    if (rc == FA_ETIMEOUT)
        return fa_fail(diag, FA_EBUSY, "another process runs this sweep: let it, or stop it first");
    if (rc != 0)
        return rc;
    rc = run_entered_sweep(&s, diag);
    fa_lock_release(&lock);
    if (ret_sweep != NULL && s.id != 0) /* also when it was stopped: how far it came */
        *ret_sweep = s.now;
    return rc;
}

/* ---- lists ----------------------------------------------------------------------------------*/
struct listing {
    fa_tuner *tuner;
    fa_sweep_visit *visit;
    void *context;
};

/* A sweep whose state is running and whose lock is free was left by a process that died. */
static int list_sweep(void *context, const fa_sweep *stored)
{
    struct listing *listing = context;
    fa_sweep sweep = *stored;
    fa_lock *lock = NULL;
    char name[80];
    sweep_lock_name(sweep.key, name);
    if (sweep.state == FA_SWEEP_RUNNING &&
        fa_lock_acquire(listing->tuner->store_path, name, 0, NULL, NULL, &lock, NULL, NULL) == 0)
        sweep.state = FA_SWEEP_STOPPED;
    fa_lock_release(&lock);
    return listing->visit(listing->context, &sweep);
}

int fa_list_sweeps(fa_tuner *tuner, fa_sweep_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    struct listing listing = {tuner, visit, context};
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_sweeps_each(tuner->store, list_sweep, &listing, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_list_sweep_items(fa_tuner *tuner, const char *key, fa_sweep_item_visit *visit, void *context,
                        fa_diag *diag)
{
    int64_t id;
    int rc = fa_tuner_check_with(tuner, visit != NULL && key != NULL, "visit or key", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_sweep_find(tuner->store, key, &id, diag);
    if (rc == FA_ENOTFOUND)
        rc = fa_fail(diag, rc, "there is no sweep %.64s in store %s", key, tuner->store_path);
    else if (rc == 0)
        rc = fa_store_sweep_items_each(tuner->store, id, visit, context, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}
