/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of a store: its sweeps, entered, listed, stopped, and as JSON text.
 */
#include "sweep.h"

#include "catalogue.h"
#include "error.h"
#include "json.h"
#include "json_struct.h"
#include "problem.h"
#include "session.h"
#include "search.h"
#include "wire.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a request ------------------------------------------------------------------------------*/
int fa_sweep_request_copy(const fa_sweep_request *request, fa_sweep_request *ret, fa_diag *diag)
{
    int rc = fa_copy_sized(ret, sizeof *ret, request,
                           "request.size is not sizeof(fa_sweep_request)", diag);
    if (rc != 0)
        return rc;
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

void fa_sweep_key(const fa_sweep_request *request, char ret_key[65])
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
int fa_item_ask_read(const char *text, fa_ask *ret_ask, fa_diag *diag)
{
    static const char where[] = "a queued item's request";
    cJSON *json = NULL;
    fa_ask ask = {.request.effort = FA_EFFORT_MEASURE};
    int rc = fa_json_parse(text, strlen(text), where, &json, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, fa_each_members, &ask, where, diag);
    cJSON_Delete(json);
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
int fa_sweep_enter(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                   fa_diag *diag)
{
    const char *strategy = request->each.strategy, *plan = request->plan;
    fa_ask ask = {.request = request->each};
    snprintf(ask.strategy, sizeof ask.strategy, "%s", strategy != NULL ? strategy : "");
    char *how = fa_json_finish(fa_struct_to_json(fa_each_members, &ask));
    if (how == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a sweep");
    ret_sweep->budget = request->budget;
    snprintf(ret_sweep->plan, sizeof ret_sweep->plan, "%s", plan != NULL ? plan : "");
    const fa_sweep_entry entry = {ret_sweep, request->items, request->count, request->restart, how};
    int rc = fa_store_sweep_enter(tuner->store, &entry, diag);
    free(how);
    return rc != 0 ? rc : fa_store_sweep_read(tuner->store, ret_sweep->key, ret_sweep, diag);
}

int fa_sweep_need_server(fa_tuner *tuner, fa_diag *diag)
{
    return fa_store_server_is_gone(tuner->store)
               ? fa_fail(diag, FA_EIO, "the server of the store %s does not serve",
                         tuner->store_path)
               : 0;
}

void fa_sweep_gpu_type(const fa_gpu *gpu, char ret_name[64])
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
    fa_sweep_gpu_type(&gpu, item->gpu);
    return 0;
}

int fa_sweep_enqueue(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                     fa_diag *diag)
{
    fa_sweep_request named = *request;
    fa_sweep_item *items = calloc((size_t)request->count, sizeof *items);
    if (items == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a sweep");
    int rc = fa_sweep_need_server(tuner, diag);
    for (int32_t i = 0; rc == 0 && i < request->count; i++) {
        items[i].problem = request->items[i].problem;
        memcpy(items[i].gpu, request->items[i].gpu, sizeof items[i].gpu);
        rc = name_item_gpu(tuner, request->each.ordinal, &items[i], diag);
    }
    named.items = items;
    named.each.ordinal = 0;
    fa_sweep_key(&named, ret_sweep->key);
    if (rc == 0)
        rc = fa_sweep_enter(tuner, &named, ret_sweep, diag);
    free(items);
    return rc;
}

static int no_such_sweep(const fa_tuner *tuner, const char *key, fa_diag *diag)
{
    return fa_fail(diag, FA_ENOTFOUND, "there is no sweep %.64s in store %s", key,
                   tuner->store_path);
}

int fa_stop_sweep(fa_tuner *tuner, const char *key, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, key != NULL, "key", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_sweep_set_state(tuner->store, key, FA_SWEEP_STOPPED, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc == FA_ENOTFOUND ? no_such_sweep(tuner, key, diag) : rc;
}

/* ---- lists ----------------------------------------------------------------------------------*/
int fa_list_sweeps(fa_tuner *tuner, fa_sweep **ret_sweeps, size_t *ret_count, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, ret_sweeps != NULL && ret_count != NULL,
                                 "ret_sweeps or ret_count", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_sweeps(tuner->store, NULL, ret_sweeps, ret_count, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

int fa_list_sweep_items(fa_tuner *tuner, const char *key, fa_sweep_item **ret_items,
                        size_t *ret_count, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, key != NULL && ret_items != NULL && ret_count != NULL,
                                 "key, ret_items or ret_count", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_sweep_items(tuner->store, key, ret_items, ret_count, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc == FA_ENOTFOUND ? no_such_sweep(tuner, key, diag) : rc;
}

/* ---- as JSON text ---------------------------------------------------------------------------*/
static const char *const stages[] = {"compile", "measure", NULL};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member held_members[] = {
    ROW(index, COUNT), ROW(problem, OTHER, .write = fa_problem_to_json),
    ROW(gpu, TEXT),    ROW(attempts, COUNT),
    ROW(holder, TEXT), ROW(stage, CHOICE, .names = stages),
    {.key = NULL},
};
#undef ROW

static int add_sweep(fa_tuner *tuner, const fa_sweep *sweep, cJSON *sweeps, fa_diag *diag)
{
    fa_sweep_item *item = NULL;
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
    free(item);
    fa_json_push(sweeps, object);
    return 0;
}

int fa_queue_write(fa_tuner *tuner, char **ret_text, fa_diag *diag)
{
    fa_sweep *sweep = NULL;
    size_t count = 0;
    if (ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_text is NULL");
    int rc = fa_list_sweeps(tuner, &sweep, &count, diag);
    if (rc != 0)
        return rc;
    cJSON *json = cJSON_CreateObject(), *sweeps = fa_json_add_array(json, "sweeps");
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = add_sweep(tuner, &sweep[i], sweeps, diag);
    free(sweep);
    char *text = fa_json_finish(json);
    if (rc == 0 && text == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a queue");
    if (rc == 0)
        *ret_text = text;
    else
        free(text);
    return rc;
}
