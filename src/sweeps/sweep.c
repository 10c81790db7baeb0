/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep of this host: its items are claimed from the store's queue and given to the runner, within a budget.
 *
 * Invariants: one process runs a sweep at a time (it holds a lock that the kernel releases when it dies), so an
 * item that is found running was left by a process that died; the account is written every second and with the end
 * of each item; no item is started once the budget is spent.
 */
#include "sweep.h"

#include "error.h"
#include "pool.h"
#include "problem.h"
#include "request.h"
#include "search.h"
#include "source.h"
#include "store.h"
#include "job.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LOCK_MS = 500 };
static const double account_s = 1.0; /* between two writings of the account */

struct sweep {
    fa_runner runner; /* first; its sweep is as the store has it, but for what is not yet written */
    const fa_sweep_request *request;
    int64_t id;
    bool budget_spent;
    double started_s; /* monotonic: this run */
    double tuning_s;  /* this run's time in items that were tuned, and how many */
    int32_t tuned;
    int store_rc; /* a failure to keep account, and its sentence */
    fa_diag store_diag;
};

/* A limit of trials does not stop a tune whose configs have all ended: only the race is left. */
static bool over_budget(const struct sweep *s, const fa_progress *tune)
{
    const fa_sweep_budget *budget = &s->request->budget;
    const fa_sweep_spent *spent = &s->runner.sweep.spent;
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
    const fa_sweep *now = &s->runner.sweep;
    double left = now->items - now->done - now->failed - part;
    return s->tuned + part > 0.1 ? took / (s->tuned + part) * left : -1;
}

static int report_sweep_event(struct sweep *s, fa_sweep_event event, const fa_progress *tune,
                              const fa_answer *answer)
{
    fa_sweep_progress progress = {
        .event = event,
        .sweep = &s->runner.sweep,
        .index = s->runner.claim.position,
        .item = &s->runner.item,
        .tune = tune,
        .answer = answer,
        .elapsed_s = fa_runner_now_s() - s->started_s,
        .left_s = time_left(s, tune),
    };
    const fa_sweep_request *request = s->request;
    return request->progress != NULL ? request->progress(request->context, &progress) : 0;
}

/* ---- items that are known --------------------------------------------------------------------*/
struct checking {
    struct sweep *sweep;
    fa_diag *diag;
};

/* Whether the store still has a winner that is good enough for a done item, which is told then. */
static int is_known(fa_runner *r, bool *ret_known, fa_diag *diag)
{
    struct sweep *s = (struct sweep *)r;
    fa_answer answer = {.size = sizeof answer};
    fa_request request = fa_runner_request(r);
    const fa_wanted wanted = fa_wanted_by(&request);
    request.progress = NULL;
    request.effort = FA_EFFORT_CACHED;
    request.again = false;
    int rc = fa_tune_here(r->tuner, &request, &answer, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    *ret_known = fa_answer_satisfies(&answer, wanted);
    return *ret_known && report_sweep_event(s, FA_SWEEP_ITEM_KNOWN, NULL, &answer) != 0
               ? fa_fail(diag, FA_ECANCELED, "canceled")
               : 0;
}

/* An item that an earlier run has done stays done while its winner is stored. It is opened again if the templates
 * have changed, the store is another one, or a GPU was added that was missing before. `work` is held. */
static int check_done_item(void *context, int32_t position, const fa_sweep_item *item)
{
    struct checking *checking = context;
    fa_runner *r = &checking->sweep->runner;
    const fa_sweep_request *request = checking->sweep->request;
    bool known = false;
    if (item->state != FA_ITEM_DONE || position >= request->count)
        return 0;
    r->item = *item;
    r->item.problem = request->items[position].problem; /* whatever the row says */
    memcpy(r->item.gpu, request->items[position].gpu, sizeof r->item.gpu);
    r->claim.position = position;
    /* Between two rows of a list others may use the store. */
    pthread_mutex_unlock(&r->tuner->work);
    int rc = is_known(r, &known, checking->diag);
    pthread_mutex_lock(&r->tuner->work);
    if (rc != 0 || known)
        return rc;
    r->sweep.done--;
    return fa_store_sweep_reopen(r->tuner->store, checking->sweep->id, position, checking->diag);
}

/* ---- the runner's feed ------------------------------------------------------------------------*/
static int next_sweep_item(fa_runner *r, fa_diag *diag)
{
    struct sweep *s = (struct sweep *)r;
    const fa_queue_taker taker = {.sweep_id = s->id, .stage = FA_WORK_MEASURE};
    s->budget_spent |= r->sweep.done + r->sweep.failed < r->sweep.items && over_budget(s, NULL);
    if (s->budget_spent)
        return FA_ENOTFOUND;
    pthread_mutex_lock(&r->tuner->work);
    int rc = fa_store_queue_claim(r->tuner->store, &taker, &r->claim, NULL, diag);
    pthread_mutex_unlock(&r->tuner->work);
    if (rc != 0)
        return rc;
    if (r->claim.position >= s->request->count)
        return fa_fail(diag, FA_ECORRUPT, "a sweep's item is not valid: restart the sweep");
    r->item = s->request->items[r->claim.position];
    r->item.attempts = r->claim.fence;
    r->item.reason[0] = 0;
    return 0;
}

static int begin_sweep_item(fa_runner *r, fa_diag *why)
{
    fa_request request = fa_runner_request(r);
    fa_target target;
    pthread_mutex_lock(&r->tuner->work);
    r->here = fa_target_resolve(r->tuner, &request, &target, NULL) == 0 && target.gpu.present;
    pthread_mutex_unlock(&r->tuner->work);
    return report_sweep_event((struct sweep *)r, FA_SWEEP_ITEM_BEGINS, NULL, NULL) != 0
               ? fa_fail(why, FA_ECANCELED, "canceled")
               : 0;
}

static int sweep_progress(fa_runner *r, const fa_progress *tune)
{
    struct sweep *s = (struct sweep *)r;
    if (r->unwritten.seconds >= account_s && s->store_rc == 0) {
        pthread_mutex_lock(&r->tuner->work);
        s->store_rc =
            fa_store_queue_spend(r->tuner->store, &r->claim, &r->unwritten, &s->store_diag);
        pthread_mutex_unlock(&r->tuner->work);
        r->unwritten = (fa_sweep_spent){0};
    }
    bool stop = report_sweep_event(s, FA_SWEEP_ITEM_TUNES, tune, NULL) != 0;
    if (!stop && tune->stage != FA_STAGE_DONE && over_budget(s, tune))
        s->budget_spent = true;
    return stop || s->budget_spent || s->store_rc != 0;
}

/* Writes the item's end with what is left of its account. */
static int write_end(fa_runner *r, fa_item_state state, const char *reason, fa_diag *diag)
{
    const fa_queue_end end = {.state = state, .reason = reason, .spent = &r->unwritten};
    pthread_mutex_lock(&r->tuner->work);
    int rc = fa_store_queue_end(r->tuner->store, &r->claim, &end, diag);
    pthread_mutex_unlock(&r->tuner->work);
    r->item.state = state;
    snprintf(r->item.reason, sizeof r->item.reason, "%.500s", reason);
    r->sweep.done += state == FA_ITEM_DONE;
    r->sweep.failed += state == FA_ITEM_FAILED;
    return rc;
}

static int end_sweep_item(fa_runner *r, int tuned, const fa_diag *why, fa_diag *diag)
{
    struct sweep *s = (struct sweep *)r;
    if (s->store_rc != 0)
        return fa_fail(diag, s->store_rc, "%s", s->store_diag.text);
    if (fa_runner_gives_back(tuned)) {
        write_end(r, FA_ITEM_PENDING, "", NULL);
        return tuned == FA_ECANCELED && s->budget_spent ? 0 : fa_fail(diag, tuned, "%s", why->text);
    }
    int rc = tuned == 0 ? write_end(r, FA_ITEM_DONE, "", diag)
                        : write_end(r, FA_ITEM_FAILED, why->text, diag);
    if (rc != 0)
        return rc;
    if (tuned != 0 || !r->answer.from_store) {
        s->tuned++;
        s->tuning_s += r->item.spent.seconds;
    }
    return report_sweep_event(s, FA_SWEEP_ITEM_ENDS, NULL, tuned == 0 ? &r->answer : NULL) != 0
               ? fa_fail(diag, FA_ECANCELED, "canceled; what was done is kept for the next run")
               : 0;
}

static const fa_feed sweep_feed = {next_sweep_item, begin_sweep_item, sweep_progress,
                                   end_sweep_item};

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
    fa_sweep *now = &s->runner.sweep;
    pthread_mutex_t *work = &s->runner.tuner->work;
    fa_store *store = s->runner.tuner->store;
    now->budget = request->budget;
    snprintf(now->plan, sizeof now->plan, "%s", request->plan != NULL ? request->plan : "");
    pthread_mutex_lock(work);
    const fa_sweep_entry entry = {now, request->items, request->count, request->restart, NULL};
    int rc = fa_store_sweep_enter(store, &entry, &s->id, diag);
    if (rc == 0)
        rc = fa_store_sweep_read(store, s->id, now, diag);
    if (rc != 0) {
        pthread_mutex_unlock(work);
        return rc;
    }
    s->started_s = fa_runner_now_s();
    rc =
        fa_store_sweep_items_each(store, s->id, check_done_item, &(struct checking){s, diag}, diag);
    pthread_mutex_unlock(work);
    if (rc == 0)
        rc = fa_runner_run(&s->runner, diag);
    fa_sweep_state state = rc != 0           ? FA_SWEEP_STOPPED
                           : s->budget_spent ? FA_SWEEP_BUDGET_SPENT
                                             : FA_SWEEP_DONE;
    pthread_mutex_lock(work);
    int kept = fa_store_sweep_set_state(store, s->id, state, rc == 0 ? diag : NULL);
    if (kept == 0)
        kept = fa_store_sweep_read(store, s->id, now, rc == 0 ? diag : NULL);
    pthread_mutex_unlock(work);
    return rc != 0 ? rc : kept;
}

int fa_run_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                 fa_diag *diag)
{
    fa_sweep_request known;
    fa_lock *lock = NULL;
    char name[80];
    struct sweep s = {.runner = {.feed = &sweep_feed, .tuner = tuner}, .request = &known};
    int rc;
    if ((rc = fa_tuner_check(tuner, diag)) != 0 ||
        (rc = fa_sweep_request_copy(request, &known, diag)) != 0 ||
        (rc = fa_sweep_key(&known, s.runner.sweep.key, diag)) != 0)
        return rc;
    s.runner.ordinal = known.ordinal;
    s.runner.how = fa_item_request_of(&known);
    sweep_lock_name(s.runner.sweep.key, name);
    if (fa_store_is_read_only(tuner->store))
        return fa_fail(diag, FA_EREADONLY,
                       "the store %s cannot be written, so a sweep could not be kept: set "
                       "FA_TUNE_STORE to a file that can",
                       tuner->store_path);
    /* Waits briefly, because a process that lists sweeps holds this lock for a moment. */
    rc = fa_lock_acquire(tuner->store_path, name, (fa_lock_wait){.timeout_ms = LOCK_MS}, &lock,
                         diag);
    if (rc == FA_ETIMEOUT)
        return fa_fail(diag, FA_EBUSY, "another process runs this sweep: let it, or stop it first");
    if (rc != 0)
        return rc;
    rc = run_entered_sweep(&s, diag);
    fa_lock_release(&lock);
    if (ret_sweep != NULL && s.id != 0) /* also when it was stopped: how far it came */
        *ret_sweep = s.runner.sweep;
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
        fa_lock_acquire(listing->tuner->store_path, name, (fa_lock_wait){.timeout_ms = 0}, &lock,
                        NULL) == 0)
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

/* ---- the runner -------------------------------------------------------------------------------*/
double fa_runner_now_s(void)
{
    return (double)fa_clock_ns() / 1e9;
}

bool fa_runner_gives_back(int rc)
{
    static const int codes[] = {FA_ECANCELED, FA_ENOMEM,   FA_EIO,     FA_ENODRIVER,
                                FA_ENODEVICE, FA_ENONVRTC, FA_ESTORE,  FA_EVERSION,
                                FA_EREADONLY, FA_EFULL,    FA_EFORKED, FA_EMANIFEST};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == rc)
            return true;
    return false;
}

fa_item_request fa_item_request_of(const fa_sweep_request *sweep)
{
    fa_item_request how = {.effort = sweep->effort,
                           .again = sweep->again,
                           .exact = sweep->exact,
                           .price = sweep->budget.price,
                           .evaluations = sweep->evaluations,
                           .seconds_each = sweep->seconds_each};
    snprintf(how.strategy, sizeof how.strategy, "%s",
             sweep->strategy != NULL ? sweep->strategy : "");
    return how;
}

/* What an event of a tune adds to the account. */
static fa_sweep_spent spent_of_event(fa_progress *seen, const fa_progress *tune)
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

/* Adds that, and the time since the last call. */
static void account(fa_runner *r, fa_sweep_spent more)
{
    fa_sweep_spent *const accounts[] = {&r->unwritten, &r->item.spent, &r->sweep.spent};
    double now = fa_runner_now_s();
    more.seconds = now - r->accounted_s;
    more.cost = r->here ? more.seconds * r->how.price / 3600 : 0;
    r->accounted_s = now;
    for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++) {
        accounts[i]->seconds += more.seconds;
        accounts[i]->cost += more.cost;
        accounts[i]->trials += more.trials;
        accounts[i]->compiled += more.compiled;
        accounts[i]->reused += more.reused;
    }
}

static int on_progress(void *context, const fa_progress *tune)
{
    fa_runner *r = context;
    account(r, spent_of_event(&r->seen, tune));
    return r->feed->progress(r, tune);
}

fa_request fa_runner_request(fa_runner *r)
{
    const fa_item_request *how = &r->how;
    return (fa_request){.size = sizeof(fa_request),
                        .problem = r->item.problem,
                        .gpu = r->on_device || r->item.gpu[0] == 0 ? NULL : r->item.gpu,
                        .ordinal = r->ordinal,
                        .effort = how->effort,
                        .again = how->again,
                        .exact = how->exact,
                        .strategy = how->strategy[0] != 0 ? how->strategy : NULL,
                        .evaluations = how->evaluations,
                        .seconds = how->seconds_each,
                        .progress = on_progress,
                        .context = r};
}

int fa_runner_run(fa_runner *r, fa_diag *diag)
{
    for (;;) {
        fa_diag why = {{0}};
        int rc = r->feed->next(r, diag);
        if (rc != 0)
            return rc == FA_ENOTFOUND ? 0 : rc;
        r->item.state = FA_ITEM_RUNNING;
        r->item.spent = r->unwritten = (fa_sweep_spent){0};
        r->seen = (fa_progress){0};
        r->answer = (fa_answer){.size = sizeof(fa_answer)};
        r->accounted_s = fa_runner_now_s();
        rc = r->feed->begin(r, &why);
        if (rc == 0) {
            fa_request request = fa_runner_request(r); /* `how` may be known only now */
            rc = fa_tune_here(r->tuner, &request, &r->answer, &why);
            account(r, (fa_sweep_spent){0});
        }
        rc = r->feed->end(r, rc, &why, diag);
        if (rc != 0)
            return rc;
    }
}
