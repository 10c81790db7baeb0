/* SPDX-License-Identifier: Apache-2.0
 *
 * The fleet's queue: entering a sweep, listing, stopping, and the queue as JSON text.
 */
#include "buf.h"
#include "catalogue.h"
#include "error.h"
#include "fa_tune.h"
#include "fleet.h"
#include "json.h"
#include "json_struct.h"
#include "problem.h"
#include "request.h"
#include "search.h"
#include "sweep.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int fa_fail_without_fleet(fa_diag *diag)
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
        *ret_rc = fa_fail_without_fleet(diag);
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

int fa_item_request_read(const char *text, fa_item_request *ret_request, fa_diag *diag)
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
