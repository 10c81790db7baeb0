/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of a store: its sweeps, entered, listed, stopped, and as JSON text; and who works on it: a sweep enters its
 * items and works until none of them is open, within a budget; a worker takes items of any sweep until it is told to stop.
 *
 * Workload: one item at a time, of a second or of minutes.
 * Invariants: an item's account is written with its end; no item of a sweep is started once its budget is spent; however a
 * process ends, another gets its item.
 */
#include "fa_tune.h"

#include "catalogue.h"
#include "error.h"
#include "job.h"
#include "json.h"
#include "pool.h"
#include "problem.h"
#include "search.h"
#include "session.h"
#include "sources.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- a request ------------------------------------------------------------------------------*/
/* Checks a caller's request; a shorter struct of an older version is completed with zeros. */
static int copy_request(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag)
{
    FA_OR_RETURN(fa_copy_sized(ret, sizeof *ret, request,
                               "request.size is not sizeof(fa_sweep_request)", diag));
    const fa_sweep_budget *budget = &ret->budget;
    const fa_request each = ret->each;
    if (ret->items == NULL || ret->count < 1 || ret->count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "a sweep takes 1 to %d problems, not %d",
                       FA_SWEEP_ITEMS_MAX, ret->count);
    if (each.effort < FA_EFFORT_PREDICT || each.effort > FA_EFFORT_PATIENT)
        return fa_fail(diag, FA_EINVAL, "a sweep's effort is predict, measure or patient");
    if (!(budget->seconds >= 0 && isfinite(budget->seconds)) || budget->trials < 0)
        return fa_fail(diag, FA_EINVAL, "a budget's numbers may not be negative");
    return fa_request_copy(&each, &ret->each, diag);
}

static void key_of(const fa_sweep_request *request, char ret_key[65])
{
    const fa_request *each = &request->each;
    fa_hash hash;
    char text[FA_PROBLEM_KEY_MAX];
    fa_hash_init(&hash);
    snprintf(
        text, sizeof text,
        "effort=%d again=%d exact=%d device=%d strategy=%s evaluations=%d seconds_each=%.17g%s%s",
        (int)each->effort, each->again, each->exact, each->ordinal,
        each->strategy != NULL ? each->strategy : "", (int)each->evaluations, each->seconds,
        each->same_bits[0] != 0 ? " same_bits=" : "", each->same_bits);
    fa_hash_text(&hash, text);
    for (int32_t i = 0; i < request->count; i++) {
        fa_problem_key(&request->items[i].problem, text);
        fa_hash_text(&hash, text);
        fa_hash_part(&hash, request->items[i].gpu, strnlen(request->items[i].gpu, 64));
    }
    fa_hash_final(&hash, ret_key);
}

/* ---- how an item is tuned, as text ----------------------------------------------------------*/
static int read_ask(const char *text, fa_ask *ret_ask, fa_diag *diag)
{
    static const char where[] = "a queued item's request";
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    fa_ask ask = {.request.effort = FA_EFFORT_MEASURE};
    int rc = fa_json_parse(text, strlen(text), where, &json, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, fa_each_members, &ask, where, diag);
    ask.request.strategy = ask.strategy[0] != 0 ? ask.strategy : NULL;
    if (rc == 0)
        rc = fa_search_check(&ask.request.strategy, ask.request.evaluations, ask.request.seconds,
                             diag);
    if (rc == FA_EINVAL)
        return fa_fail(diag, FA_EINVAL, "%s is not understood: is a newer version at work?", where);
    if (rc == 0)
        *ret_ask = ask;
    return rc;
}

/* ---- entering -------------------------------------------------------------------------------*/
/* Under the key and with the plan and budget of ret_sweep, which then is as stored. `work` is held. */
static int enter_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                       fa_diag *diag)
{
    const char *strategy = request->each.strategy, *plan = request->plan;
    fa_ask ask = {.request = request->each};
    snprintf(ask.strategy, sizeof ask.strategy, "%s", strategy != NULL ? strategy : "");
    FA_ENDS(fa_free_at) char *how = fa_json_finish(fa_struct_to_json(fa_each_members, &ask));
    FA_OR_RETURN(fa_have(how != NULL, "a sweep", diag));
    ret_sweep->budget = request->budget;
    snprintf(ret_sweep->plan, sizeof ret_sweep->plan, "%s", plan != NULL ? plan : "");
    const fa_sweep_entry entry = {ret_sweep, request->items, request->count, request->restart, how};
    FA_OR_RETURN(fa_store_sweep_enter(tuner->store, &entry, diag));
    return fa_store_sweep_read(tuner->store, ret_sweep->key, ret_sweep, diag);
}

/* The name under which items for a GPU are queued: the catalogue's, where it knows the GPU. */
static void name_gpu_type(const fa_gpu *gpu, char ret_name[64])
{
    fa_gpu known;
    bool listed = fa_catalogue_match(gpu, &known) == 0;
    snprintf(ret_name, 64, "%s", listed ? known.name : gpu->name);
}

/* Every item names a GPU type, because other hosts have other devices. */
static int name_item_gpu(fa_tuner *tuner, int32_t ordinal, fa_sweep_item *item, fa_diag *diag)
{
    fa_gpu gpu;
    if (item->gpu[0] != 0) {
        int rc = fa_catalogue_find(item->gpu, &gpu, diag);
        if (rc == 0)
            snprintf(item->gpu, sizeof item->gpu, "%s", gpu.name);
        return rc;
    }
    int rc = fa_tuner_driver(tuner, diag);
    if (rc == 0)
        rc = fa_driver_device(tuner->driver, ordinal, &gpu, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "name the GPU type, or enter the sweep where one is");
    name_gpu_type(&gpu, item->gpu);
    return 0;
}

/* For workers. `work` is held. */
static int enqueue_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                         fa_diag *diag)
{
    fa_sweep_request named = *request;
    FA_ENDS(fa_free_at) fa_sweep_item *items = calloc((size_t)request->count, sizeof *items);
    FA_OR_RETURN(fa_have(items != NULL, "a sweep", diag));
    int rc = fa_tuner_need_server(tuner, diag);
    for (int32_t i = 0; rc == 0 && i < request->count; i++) {
        items[i].problem = request->items[i].problem;
        memcpy(items[i].gpu, request->items[i].gpu, sizeof items[i].gpu);
        rc = name_item_gpu(tuner, request->each.ordinal, &items[i], diag);
    }
    named.items = items;
    named.each.ordinal = 0;
    key_of(&named, ret_sweep->key);
    return rc != 0 ? rc : enter_sweep(tuner, &named, ret_sweep, diag);
}

static int no_such_sweep(const fa_tuner *tuner, const char *key, fa_diag *diag)
{
    return fa_fail(diag, FA_ENOTFOUND, "there is no sweep %.64s in store %s", key,
                   tuner->store_path);
}

int fa_stop_sweep(fa_tuner *tuner, const char *key, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check_with(tuner, key != NULL, "key", diag));
    int rc = FA_HELD(tuner, fa_store_sweep_set_state(tuner->store, key, FA_SWEEP_STOPPED, diag));
    return rc == FA_ENOTFOUND ? no_such_sweep(tuner, key, diag) : rc;
}

/* ---- lists ----------------------------------------------------------------------------------*/
int fa_list_sweeps(fa_tuner *tuner, fa_sweep **ret_sweeps, size_t *ret_count, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check_with(tuner, ret_sweeps != NULL && ret_count != NULL,
                                     "ret_sweeps or ret_count", diag));
    return FA_HELD(tuner, fa_store_sweeps(tuner->store, NULL, ret_sweeps, ret_count, diag));
}

int fa_list_sweep_items(fa_tuner *tuner, const char *key, fa_sweep_item **ret_items,
                        size_t *ret_count, fa_diag *diag)
{
    FA_OR_RETURN(fa_tuner_check_with(tuner, key != NULL && ret_items != NULL && ret_count != NULL,
                                     "key, ret_items or ret_count", diag));
    int rc = FA_HELD(tuner, fa_store_sweep_items(tuner->store, key, ret_items, ret_count, diag));
    return rc == FA_ENOTFOUND ? no_such_sweep(tuner, key, diag) : rc;
}

/* ---- as JSON text ---------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member held_members[] = {
    ROW(index, COUNT), ROW(problem, OTHER, .write = fa_problem_to_json),
    ROW(gpu, TEXT),    ROW(attempts, COUNT),
    ROW(holder, TEXT), ROW(stage, CHOICE, .names = fa_work_stage_names),
    {.key = NULL},
};
#undef ROW

static int add_sweep(fa_tuner *tuner, const fa_sweep *sweep, cJSON *sweeps, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_sweep_item *item = NULL;
    size_t items = 0;
    int rc = fa_list_sweep_items(tuner, sweep->key, &item, &items, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? 0 : rc; /* it has left the queue meanwhile */
    cJSON *object = fa_struct_to_json(fa_sweep_members, sweep);
    fa_json_add_number(object, "running", sweep->running);
    fa_json_add_number(object, "pending",
                       sweep->items - sweep->done - sweep->failed - sweep->running);
    fa_json_add_number(object, "compiled", sweep->compiled);
    cJSON *held = fa_json_add_array(object, "held");
    for (size_t i = 0; i < items; i++)
        if (item[i].state == FA_ITEM_RUNNING)
            fa_json_push(held, fa_struct_to_json(held_members, &item[i]));
    fa_json_push(sweeps, object);
    return 0;
}

int fa_queue_write(fa_tuner *tuner, char **ret_text, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_sweep *sweep = NULL;
    size_t count = 0;
    FA_OR_RETURN(fa_expect(ret_text != NULL, "ret_text", diag));
    FA_OR_RETURN(fa_list_sweeps(tuner, &sweep, &count, diag));
    FA_ENDS(fa_json_end) cJSON *json = cJSON_CreateObject();
    cJSON *sweeps = fa_json_add_array(json, "sweeps");
    for (size_t i = 0; i < count; i++)
        FA_OR_RETURN(add_sweep(tuner, &sweep[i], sweeps, diag));
    char *text = fa_json_print(json);
    FA_OR_RETURN(fa_have(text != NULL, "a queue", diag));
    *ret_text = text;
    return 0;
}

enum {
    ATTEMPTS_MOST = 40, /* an item fails after so many have begun it and died or handed it back */
    PAUSE_LEAST_MS = 50,
    PAUSE_MOST_MS = 1000
};

struct runner {
    fa_tuner *tuner;
    const fa_sweep_request *request; /* NULL: a worker, which works for any sweep */
    int (*report)(void *context, const fa_sweep_progress *progress);
    void *context;
    fa_queue_taker taker;
    char gpu[64], holder[96];
    int32_t ordinal;
    bool on_device; /* items are tuned for the device here, whatever GPU type they name */
    bool stop;      /* the caller has asked for it */
    bool budget_spent;
    fa_sweep sweep; /* as the store has it, and what is not yet written */
    bool *told;     /* of a sweep: the items whose end the caller knows */
    double started_s, idle_since_s;
    int32_t pause_ms;
    /* the item under way, or that has just ended */
    fa_ask how;
    fa_queue_claim claim;
    fa_sweep_item item;
    fa_answer answer;
    fa_progress seen; /* what the account has seen of its tune */
    double accounted_s;
};

/* Whether the error would make every other item fail too, or means that nobody wants the item: it goes back. */
static bool gives_back(int rc)
{
    static const int codes[] = {FA_ECANCELED, FA_ENOMEM,   FA_EIO,     FA_ENODRIVER,
                                FA_ENODEVICE, FA_ENONVRTC, FA_ESTORE,  FA_EVERSION,
                                FA_EREADONLY, FA_EFULL,    FA_EFORKED, FA_EMANIFEST};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i] == rc)
            return true;
    return false;
}

/* ---- budget ---------------------------------------------------------------------------------*/
/* A limit of trials does not stop a tune whose configs have all ended: only the race is left. */
static bool over_budget(const struct runner *r, const fa_progress *tune)
{
    if (r->request == NULL)
        return false;
    const fa_sweep_budget *budget = &r->request->budget;
    const fa_sweep_spent *spent = &r->sweep.spent;
    bool more = tune == NULL || (tune->stage == FA_STAGE_TUNE && tune->ended < tune->in_budget);
    return (budget->seconds > 0 && spent->seconds >= budget->seconds) ||
           (budget->trials > 0 && spent->trials >= budget->trials && more);
}

/* Adds that, and the time since the last call. */
static void account(struct runner *r, fa_sweep_spent more)
{
    fa_sweep_spent *const accounts[] = {&r->item.spent, &r->sweep.spent};
    double now = fa_clock_s();
    more.seconds = now - r->accounted_s;
    r->accounted_s = now;
    for (size_t i = 0; i < sizeof accounts / sizeof *accounts; i++) {
        accounts[i]->seconds += more.seconds;
        accounts[i]->trials += more.trials;
        accounts[i]->compiled += more.compiled;
        accounts[i]->reused += more.reused;
    }
}

/* ---- reporting ------------------------------------------------------------------------------*/
/* True when the caller wants no more. */
static bool report(struct runner *r, fa_sweep_event event, const fa_progress *tune,
                   const fa_answer *answer, const char *reason)
{
    fa_sweep_progress progress = {
        .event = event,
        .sweep = r->request != NULL ? &r->sweep : NULL,
        .index = r->item.index,
        .item = event == FA_SWEEP_IDLE ? NULL : &r->item,
        .tune = tune,
        .answer = answer,
        .reason = reason,
        .elapsed_s = fa_clock_s() - r->started_s,
    };
    if (r->report != NULL && r->report(r->context, &progress) != 0)
        r->stop = true;
    return r->stop;
}

static int on_progress(void *context, const fa_progress *tune)
{
    struct runner *r = context;
    const fa_progress *seen = &r->seen;
    int64_t compiled = tune->compiled - tune->reused - (seen->compiled - seen->reused);
    int64_t reused = tune->reused - seen->reused;
    if (tune->kind == FA_EVENT_STAGE && tune->stage == FA_STAGE_TUNE)
        compiled = reused = 0; /* what is on record from earlier runs */
    r->seen = *tune;
    account(r, (fa_sweep_spent){
                   .trials = tune->kind == FA_EVENT_TRIAL && tune->stage == FA_STAGE_TUNE,
                   .compiled = compiled > 0 ? compiled : 0,
                   .reused = reused > 0 ? reused : 0,
               });
    report(r, FA_SWEEP_ITEM_TUNES, tune, NULL, "");
    r->budget_spent |= tune->stage != FA_STAGE_DONE && over_budget(r, tune);
    return r->stop || r->budget_spent;
}

/* ---- an item --------------------------------------------------------------------------------*/
static fa_request request_of(struct runner *r)
{
    fa_request request = r->how.request;
    request.size = sizeof request;
    request.problem = r->item.problem;
    request.gpu = r->on_device || r->item.gpu[0] == 0 ? NULL : r->item.gpu;
    request.ordinal = r->ordinal;
    request.progress = on_progress;
    request.context = r;
    return request;
}

static int tune_item(struct runner *r, fa_diag *why)
{
    if (report(r, FA_SWEEP_ITEM_BEGINS, NULL, NULL, ""))
        return fa_fail(why, FA_ECANCELED, "canceled");
    FA_OR_RETURN(read_ask(r->claim.request, &r->how, why));
    if (r->item.attempts > ATTEMPTS_MOST)
        return fa_fail(why, FA_EWORKER,
                       "given up: %d workers have begun it and none came to an end",
                       r->item.attempts - 1);
    if (r->taker.stage == FA_WORK_COMPILE && r->how.request.effort == FA_EFFORT_MEASURE)
        r->how.request.effort = FA_EFFORT_PATIENT; /* the GPU's host is to find every cubin */
    fa_request request = request_of(r);
    /* Bits are compared where the GPU is, of what compiles for these lengths. */
    if (r->taker.stage == FA_WORK_COMPILE && request.same_bits[0] != 0) {
        request.exact = true;
        request.same_bits[0] = 0;
    }
    const int rc = fa_tune_here(r->tuner, &request, &r->answer, why);
    account(r, (fa_sweep_spent){0});
    return rc;
}

/* Writes the item's end, and reads how its sweep stands. `tuned` is 0, or what failed, with the reason. */
static int end_item(struct runner *r, int tuned, const fa_diag *why, fa_diag *diag)
{
    const bool back = tuned != 0 && (r->stop || gives_back(tuned));
    const bool compiled = tuned == 0 && r->taker.stage == FA_WORK_COMPILE &&
                          (r->how.request.same_bits[0] != 0 ||
                           fa_origin_trust(r->answer.origin) > fa_origin_trust(FA_ORIGIN_IMPORTED));
    const fa_queue_end end = {.state = back || compiled ? FA_ITEM_PENDING
                                       : tuned == 0     ? FA_ITEM_DONE
                                                        : FA_ITEM_FAILED,
                              .compiled = tuned == 0,
                              .reason = tuned == 0 || back ? "" : why->text,
                              .spent = &r->item.spent};
    r->item.state = end.state;
    snprintf(r->item.reason, sizeof r->item.reason, "%.500s", end.reason);
    pthread_mutex_lock(&r->tuner->work);
    int rc = fa_store_queue_end(r->tuner->store, &r->claim, &end, diag);
    if (rc == 0 && r->request != NULL)
        rc = fa_store_sweep_read(r->tuner->store, r->sweep.key, &r->sweep, diag);
    pthread_mutex_unlock(&r->tuner->work);
    if (rc == FA_ENOTFOUND)
        rc = fa_fail(diag, FA_EIO, "the sweep is not in the store any more: begin it again");
    if (r->told != NULL)
        r->told[r->item.index] = !back;
    if (!back || r->request == NULL)
        report(r, FA_SWEEP_ITEM_ENDS, NULL, tuned == 0 ? &r->answer : NULL, "");
    return rc != 0 ? rc : back ? fa_fail(diag, tuned, "%s", why->text) : 0;
}

/* Takes one item to its end. FA_ENOTFOUND: there is none to take; any other failure that *ret_taken comes with ends the
 * run. */
static int work_on_one(struct runner *r, bool *ret_taken, fa_diag *diag)
{
    fa_diag why = {{0}};
    *ret_taken = false;
    pthread_mutex_lock(&r->tuner->work);
    int rc = fa_store_queue_claim(r->tuner->store, &r->taker, &r->claim, diag);
    bool strange = rc == 0 && r->request != NULL && r->claim.item.index >= r->request->count;
    if (strange)
        fa_lock_release(&r->claim.lock);
    pthread_mutex_unlock(&r->tuner->work);
    if (rc != 0)
        return rc;
    *ret_taken = true;
    if (strange)
        return fa_fail(diag, FA_ECORRUPT, "a sweep's item is not valid: restart the sweep");
    r->item = r->claim.item;
    r->item.state = FA_ITEM_RUNNING;
    r->item.spent = (fa_sweep_spent){0};
    r->seen = (fa_progress){0};
    r->answer = (fa_answer){.size = sizeof(fa_answer)};
    r->accounted_s = fa_clock_s();
    rc = tune_item(r, &why);
    return end_item(r, rc, &why, diag);
}

/* Longer each time that there was nothing to do. */
static void pause_shortly(struct runner *r)
{
    nanosleep(&(struct timespec){r->pause_ms / 1000, r->pause_ms % 1000 * 1000000L}, NULL);
    r->pause_ms = r->pause_ms < PAUSE_MOST_MS / 2 ? 2 * r->pause_ms : PAUSE_MOST_MS;
}

static void begin(struct runner *r)
{
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(r->holder, sizeof r->holder, "%s:%d", host, (int)getpid());
    r->taker.holder = r->holder;
    r->started_s = r->idle_since_s = fa_clock_s();
    r->pause_ms = PAUSE_LEAST_MS;
}

/* ---- a sweep --------------------------------------------------------------------------------*/
/* An item that is done and that the caller has not heard of: an earlier run's, or another process's. It stays done
 * while a winner that is good enough is stored, and is opened again if the templates have changed, the store is another
 * one, or a GPU was added that was missing before. */
static int check_done_item(struct runner *r, const fa_sweep_item *item, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    if (item->state != FA_ITEM_DONE || item->index >= r->request->count || r->told[item->index])
        return 0;
    r->item = *item;
    r->item.problem = r->request->items[item->index].problem; /* whatever the row says */
    memcpy(r->item.gpu, r->request->items[item->index].gpu, sizeof r->item.gpu);
    const fa_request wanted = request_of(r);
    fa_request request = wanted;
    request.progress = NULL;
    request.effort = FA_EFFORT_CACHED;
    request.again = false;
    int rc = fa_tune_here(r->tuner, &request, &answer, diag);
    if (rc != 0 && rc != FA_ENOTFOUND && rc != FA_ECORRUPT)
        return rc;
    if (rc == 0 && fa_answer_satisfies(&answer, &wanted)) {
        r->told[item->index] = true;
        return report(r, FA_SWEEP_ITEM_KNOWN, NULL, &answer, "")
                   ? fa_fail(diag, FA_ECANCELED, "canceled")
                   : 0;
    }
    return FA_HELD(r->tuner,
                   fa_store_sweep_reopen(r->tuner->store, r->sweep.key, item->index, diag));
}

static int check_done_items(struct runner *r, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_sweep_item *item = NULL;
    size_t count = 0;
    int rc =
        FA_HELD(r->tuner, fa_store_sweep_items(r->tuner->store, r->sweep.key, &item, &count, diag));
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = check_done_item(r, &item[i], diag);
    if (rc == 0)
        rc = FA_HELD(r->tuner, fa_store_sweep_read(r->tuner->store, r->sweep.key, &r->sweep, diag));
    return rc;
}

/* Works until no item is open: what others are working on is waited for. */
static int run_items(struct runner *r, fa_diag *diag)
{
    bool taken;
    int rc = check_done_items(r, diag);
    while (rc == 0) {
        r->budget_spent |= r->sweep.done + r->sweep.failed < r->sweep.items && over_budget(r, NULL);
        if (r->budget_spent)
            break;
        rc = work_on_one(r, &taken, diag);
        if (rc == FA_ECANCELED && r->budget_spent && !r->stop)
            rc = 0;
        else if (rc == 0 && r->stop)
            rc = fa_fail(diag, FA_ECANCELED, "canceled; what was done is kept for the next run");
        if (rc != FA_ENOTFOUND || taken)
            continue;
        rc = check_done_items(r, diag);
        if (rc == 0 && r->sweep.running == 0 && r->sweep.done + r->sweep.failed == r->sweep.items)
            break;
        if (rc == 0 && report(r, FA_SWEEP_IDLE, NULL, NULL, "others work on what is left"))
            rc = fa_fail(diag, FA_ECANCELED, "canceled");
        pause_shortly(r);
    }
    return rc;
}

static int run_entered_sweep(struct runner *r, fa_diag *diag)
{
    fa_tuner *tuner = r->tuner;
    fa_sweep *now = &r->sweep;
    FA_OR_RETURN(FA_HELD(tuner, enter_sweep(tuner, r->request, now, diag)));
    int rc = run_items(r, diag);
    fa_sweep_state state = rc != 0           ? FA_SWEEP_STOPPED
                           : r->budget_spent ? FA_SWEEP_BUDGET_SPENT
                                             : FA_SWEEP_DONE;
    FA_HOLDS(&tuner->work);
    int kept = fa_store_sweep_set_state(tuner->store, now->key, state, rc == 0 ? diag : NULL);
    if (kept == 0)
        kept = fa_store_sweep_read(tuner->store, now->key, now, rc == 0 ? diag : NULL);
    return rc != 0 ? rc : kept;
}

int fa_run_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                 fa_diag *diag)
{
    fa_sweep_request known;
    struct runner r = {.tuner = tuner, .request = &known};
    int rc;
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    FA_OR_RETURN(copy_request(request, &known, diag));
    if (known.each.same_bits[0] == 0) /* another sweep than without, also for workers that do not ask for it */
        memcpy(known.each.same_bits, tuner->options.same_bits, sizeof known.each.same_bits);
    key_of(&known, r.sweep.key);
    if (known.enqueue) {
        rc = FA_HELD(tuner, enqueue_sweep(tuner, &known, &r.sweep, diag));
        if (rc == 0 && ret_sweep != NULL)
            *ret_sweep = r.sweep;
        return rc;
    }
    r.told = calloc((size_t)known.count, sizeof *r.told);
    FA_OR_RETURN(fa_have(r.told != NULL, "a sweep", diag));
    r.report = known.progress;
    r.context = known.context;
    r.ordinal = known.each.ordinal;
    r.taker = (fa_queue_taker){.key = r.sweep.key, .stage = FA_WORK_MEASURE};
    r.how.request = (fa_request){
        .effort = known.each.effort, .again = known.each.again, .exact = known.each.exact};
    memcpy(r.how.request.same_bits, known.each.same_bits, sizeof known.each.same_bits);
    begin(&r);
    rc = fa_store_is_read_only(tuner->store)
             ? fa_fail(diag, FA_EREADONLY,
                       "the store %s cannot be written, so a sweep could not be kept: set "
                       "FA_TUNE_STORE to a file that can",
                       tuner->store_path)
             : run_entered_sweep(&r, diag);
    free(r.told);
    if (ret_sweep != NULL && r.sweep.items > 0) /* also when it was stopped: how far it came */
        *ret_sweep = r.sweep;
    return rc;
}

/* ---- a worker -------------------------------------------------------------------------------*/
/* Finds out whether this host measures, and for which GPU type it works. */
static int find_what_to_work_on(struct runner *r, const fa_worker_request *request, fa_diag *diag)
{
    fa_request any = {.problem = fa_problem_some(fa_operation_of(NULL)),
                      .gpu = request->gpu,
                      .ordinal = request->ordinal};
    fa_tuner *tuner = r->tuner;
    fa_target target;
    int rc = FA_HELD(tuner, fa_store_is_read_only(tuner->store)
                                ? fa_fail(diag, FA_EREADONLY, "the store %s cannot be written",
                                          tuner->store_path)
                                : fa_target_resolve(tuner, &any, &target, diag));
    if (request->gpu == NULL &&
        (rc == FA_ENODRIVER || (rc == FA_ENODEVICE && request->ordinal == 0)))
        return 0; /* compiles for any type */
    if (rc != 0)
        return rc;
    r->on_device = target.gpu.present;
    r->ordinal = target.gpu.present ? target.gpu.ordinal : 0;
    r->taker.stage = target.gpu.present ? FA_WORK_MEASURE : FA_WORK_COMPILE;
    name_gpu_type(&target.gpu, r->gpu);
    r->taker.gpu = r->gpu;
    return 0;
}

static int work(struct runner *r, const fa_worker_request *request, fa_diag *diag)
{
    while (!r->stop) {
        bool taken = false;
        fa_diag why = {{0}}, said = {{0}}; /* why: nobody knows whether there is an item */
        int rc = FA_HELD(r->tuner, fa_tuner_need_server(r->tuner, &why));
        if (rc == 0)
            rc = work_on_one(r, &taken, &said);
        if (taken && rc != 0 && rc != FA_EIO && rc != FA_EBUSY && !r->stop)
            return fa_fail(diag, rc, "%s", said.text); /* of the others: the server is waited for */
        if (taken && request->once && !r->stop)
            return 0;
        if (taken) {
            r->idle_since_s = fa_clock_s();
            r->pause_ms = PAUSE_LEAST_MS;
            continue;
        }
        if (rc != FA_ENOTFOUND && why.text[0] == 0)
            fa_fail(&why, rc, "%s", said.text);
        if (report(r, FA_SWEEP_IDLE, NULL, NULL, why.text))
            break;
        if (request->idle_exit_s > 0 && fa_clock_s() - r->idle_since_s >= request->idle_exit_s)
            return why.text[0] != 0 ? fa_fail(diag, FA_EIO, "%s", why.text) : 0;
        pause_shortly(r);
    }
    return fa_fail(diag, FA_ECANCELED, "stopped");
}

int fa_run_worker(fa_tuner *tuner, const fa_worker_request *request, fa_diag *diag)
{
    fa_worker_request known;
    struct runner r = {.tuner = tuner};
    FA_OR_RETURN(fa_tuner_check(tuner, diag));
    FA_OR_RETURN(fa_copy_sized(&known, sizeof known, request,
                               "request.size is not sizeof(fa_worker_request)", diag));
    if (!(known.idle_exit_s >= 0 && isfinite(known.idle_exit_s)))
        return fa_fail(diag, FA_EINVAL, "idle_exit_s may not be negative");
    r.report = known.progress;
    r.context = known.context;
    FA_OR_RETURN(find_what_to_work_on(&r, &known, diag));
    begin(&r);
    fa_tuner_ignore_system(tuner, true);
    int rc = work(&r, &known, diag);
    fa_tuner_ignore_system(tuner, false);
    return rc;
}
