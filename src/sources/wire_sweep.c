/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep and its events as JSON. Field names are a promise: they may be joined by others, never
 * renamed.
 */
#include "fa_service.h"
#include "wire.h"

#include <string.h>

/* ---- writing --------------------------------------------------------------------------------*/
static void add_left(cJSON *json, const char *key, double limit, double spent)
{
    fa_json_add_known(json, key, limit > spent ? limit - spent : 0, limit > 0);
}

static void add_spent(cJSON *object, const fa_sweep_spent *spent)
{
    cJSON *json = cJSON_AddObjectToObject(object, "spent");
    fa_json_add_known(json, "seconds", spent->seconds, true);
    fa_json_add_known(json, "trials", (double)spent->trials, true);
    fa_json_add_known(json, "cost", spent->cost, true);
    fa_json_add_known(json, "cubins_compiled", (double)spent->compiled, true);
    fa_json_add_known(json, "cubins_reused", (double)spent->reused, true);
}

cJSON *fa_wire_sweep(const fa_sweep *sweep)
{
    const fa_sweep_budget *budget = &sweep->budget;
    const fa_sweep_spent *spent = &sweep->spent;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "key", sweep->key);
    cJSON_AddStringToObject(json, "plan", sweep->plan);
    cJSON_AddStringToObject(json, "state", fa_sweep_state_name(sweep->state));
    cJSON_AddNumberToObject(json, "items", sweep->items);
    cJSON_AddNumberToObject(json, "done", sweep->done);
    cJSON_AddNumberToObject(json, "failed", sweep->failed);
    cJSON *limits = cJSON_AddObjectToObject(json, "budget");
    fa_json_add_known(limits, "seconds", budget->seconds, budget->seconds > 0);
    fa_json_add_known(limits, "trials", (double)budget->trials, budget->trials > 0);
    fa_json_add_known(limits, "cost", budget->cost, budget->cost > 0);
    fa_json_add_known(limits, "price", budget->price, budget->price > 0);
    add_spent(json, spent);
    cJSON *left = cJSON_AddObjectToObject(json, "left");
    cJSON_AddNumberToObject(left, "items", sweep->items - sweep->done - sweep->failed);
    add_left(left, "seconds", budget->seconds, spent->seconds);
    add_left(left, "trials", (double)budget->trials, (double)spent->trials);
    add_left(left, "cost", budget->cost, spent->cost);
    cJSON_AddNumberToObject(json, "created", (double)sweep->created);
    if (cJSON_AddNumberToObject(json, "updated", (double)sweep->updated) == NULL) {
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

int fa_sweep_write(const fa_sweep *sweep, char **ret_text, fa_diag *diag)
{
    if (sweep == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "sweep or ret_text is NULL");
    return fa_wire_print(fa_wire_sweep(sweep), ret_text, diag);
}

static const char *const events[] = {"begins", "tunes", "ends", "known"};
enum { EVENTS = sizeof events / sizeof *events };

static cJSON *item_to(const fa_sweep_item *item)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, "problem", fa_problem_to_json(&item->problem));
    cJSON_AddStringToObject(json, "gpu", item->gpu);
    cJSON_AddStringToObject(json, "state", fa_item_state_name(item->state));
    cJSON_AddNumberToObject(json, "attempts", item->attempts);
    cJSON_AddStringToObject(json, "reason", item->reason);
    if (json != NULL)
        add_spent(json, &item->spent);
    return json;
}

int fa_sweep_event_write(const fa_sweep_progress *progress, char **ret_text, fa_diag *diag)
{
    if (progress == NULL || ret_text == NULL || progress->sweep == NULL || progress->item == NULL)
        return fa_fail(diag, FA_EINVAL, "progress, its sweep or item, or ret_text is NULL");
    unsigned event = (unsigned)progress->event;
    cJSON *json = cJSON_CreateObject();
    cJSON_AddStringToObject(json, "event", event < EVENTS ? events[event] : "tunes");
    cJSON_AddNumberToObject(json, "index", progress->index);
    fa_json_add_known(json, "elapsed_s", progress->elapsed_s, progress->elapsed_s > 0);
    fa_json_add_known(json, "left_s", progress->left_s, progress->left_s >= 0);
    cJSON_AddItemToObject(json, "sweep", fa_wire_sweep(progress->sweep));
    cJSON_AddItemToObject(json, "item", item_to(progress->item));
    cJSON_AddItemToObject(json, "tune",
                          progress->tune != NULL ? fa_wire_progress(progress->tune)
                                                 : cJSON_CreateNull());
    cJSON_AddItemToObject(json, "answer",
                          progress->answer != NULL ? fa_wire_answer(progress->answer)
                                                   : cJSON_CreateNull());
    if (cJSON_GetArraySize(json) != 8) {
        cJSON_Delete(json);
        json = NULL;
    }
    return fa_wire_print(json, ret_text, diag);
}

/* ---- reading --------------------------------------------------------------------------------*/
static int read_spent(const cJSON *object, fa_sweep_spent *spent, const char *where, fa_diag *diag)
{
    static const int64_t most = (int64_t)1 << 53;
    const cJSON *json = NULL;
    int rc = fa_wire_object(object, "spent", where, &json, diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "seconds", &spent->seconds, "spent", diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "cost", &spent->cost, "spent", diag);
    if (rc == 0)
        rc = fa_json_int_needed(json, "trials", 0, most, &spent->trials, "spent", diag);
    if (rc == 0)
        rc = fa_json_int_needed(json, "cubins_compiled", 0, most, &spent->compiled, "spent", diag);
    if (rc == 0)
        rc = fa_json_int_needed(json, "cubins_reused", 0, most, &spent->reused, "spent", diag);
    return rc;
}

static int read_budget(const cJSON *object, fa_sweep_budget *budget, fa_diag *diag)
{
    const cJSON *json = NULL;
    double trials = 0;
    int rc = fa_wire_object(object, "budget", "sweep", &json, diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "seconds", &budget->seconds, "budget", diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "trials", &trials, "budget", diag);
    if (rc == 0 && (trials > 9e15 || trials != (double)(int64_t)trials))
        rc = fa_fail(diag, FA_EINVAL, "budget: \"trials\" must be a whole number");
    if (rc == 0)
        rc = fa_json_real_known(json, "cost", &budget->cost, "budget", diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "price", &budget->price, "budget", diag);
    if (rc == 0)
        budget->trials = (int64_t)trials;
    return rc;
}

int fa_wire_sweep_from(const cJSON *json, fa_sweep *ret_sweep, fa_diag *diag)
{
    static const char where[] = "sweep";
    fa_sweep sweep = {0};
    char state[FA_NAME_MAX] = "";
    int rc = fa_json_copy_needed(json, "key", sweep.key, sizeof sweep.key, where, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "plan", sweep.plan, sizeof sweep.plan, where, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "state", state, sizeof state, where, diag);
    if (rc == 0 && fa_sweep_state_parse(state, &sweep.state) != 0)
        rc = fa_fail(diag, FA_EINVAL, "%s: there is no state \"%s\"", where, state);
    if (rc == 0)
        rc = fa_json_int_known(json, "items", &sweep.items, where, diag);
    if (rc == 0)
        rc = fa_json_int_known(json, "done", &sweep.done, where, diag);
    if (rc == 0)
        rc = fa_json_int_known(json, "failed", &sweep.failed, where, diag);
    if (rc == 0 && (int64_t)sweep.done + sweep.failed > sweep.items)
        rc = fa_fail(diag, FA_EINVAL, "%s: more items have ended than there are", where);
    if (rc == 0)
        rc = read_budget(json, &sweep.budget, diag);
    if (rc == 0)
        rc = read_spent(json, &sweep.spent, where, diag);
    if (rc == 0)
        rc = fa_json_int_needed(json, "created", 0, (int64_t)1 << 40, &sweep.created, where, diag);
    if (rc == 0)
        rc = fa_json_int_needed(json, "updated", 0, (int64_t)1 << 40, &sweep.updated, where, diag);
    if (rc == 0)
        *ret_sweep = sweep;
    return rc;
}

int fa_sweep_read(const char *text, size_t size, fa_sweep *ret_sweep, fa_diag *diag)
{
    cJSON *json = NULL;
    if (ret_sweep == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_sweep is NULL");
    int rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "sweep", &json, diag);
    if (rc == 0)
        rc = fa_wire_sweep_from(json, ret_sweep, diag);
    cJSON_Delete(json);
    return rc;
}

static int item_from(const cJSON *json, fa_sweep_item *ret_item, fa_diag *diag)
{
    static const char where[] = "item";
    const cJSON *problem = NULL;
    char state[FA_NAME_MAX] = "";
    int rc = fa_wire_object(json, "problem", where, &problem, diag);
    if (rc == 0)
        rc = fa_wire_ask_problem(problem, &ret_item->problem, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "gpu", ret_item->gpu, sizeof ret_item->gpu, where, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "state", state, sizeof state, where, diag);
    if (rc == 0 && fa_item_state_parse(state, &ret_item->state) != 0)
        rc = fa_fail(diag, FA_EINVAL, "%s: there is no state \"%s\"", where, state);
    if (rc == 0)
        rc = fa_json_int_known(json, "attempts", &ret_item->attempts, where, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "reason", ret_item->reason, sizeof ret_item->reason, where,
                                 diag);
    return rc != 0 ? rc : read_spent(json, &ret_item->spent, where, diag);
}

/* null or absent: *ret_here is false. */
static int optional(const cJSON *json, const char *key, const cJSON **ret, bool *ret_here,
                    fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    *ret_here = item != NULL && !cJSON_IsNull(item);
    return *ret_here ? fa_wire_object(json, key, "event", ret, diag) : 0;
}

static int event_from(const cJSON *json, fa_sweep_progress *p, fa_sweep_parts *parts, fa_diag *diag)
{
    static const char where[] = "event";
    const cJSON *part = NULL;
    bool here = false;
    int event = 0;
    int rc = fa_wire_choice(json, "event", events, EVENTS, &event, where, diag);
    p->event = (fa_sweep_event)event;
    if (rc == 0)
        rc = fa_json_int_known(json, "index", &p->index, where, diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "elapsed_s", &p->elapsed_s, where, diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "left_s", &p->left_s, where, diag);
    if (rc == 0 && cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "left_s")))
        p->left_s = -1;
    if (rc == 0)
        rc = fa_wire_object(json, "sweep", where, &part, diag);
    if (rc == 0)
        rc = fa_wire_sweep_from(part, &parts->sweep, diag);
    if (rc == 0 && p->index >= parts->sweep.items)
        rc = fa_fail(diag, FA_EINVAL, "%s: there is no item %d", where, p->index);
    if (rc == 0)
        rc = fa_wire_object(json, "item", where, &part, diag);
    if (rc == 0)
        rc = item_from(part, &parts->item, diag);
    if (rc == 0)
        rc = optional(json, "tune", &part, &here, diag);
    if (rc == 0 && here) {
        rc = fa_wire_progress_from(part, &parts->tune, &parts->trial, &parts->best, diag);
        p->tune = &parts->tune;
    }
    if (rc == 0)
        rc = optional(json, "answer", &part, &here, diag);
    if (rc == 0 && here) {
        rc = fa_wire_answer_from(part, &parts->answer, diag);
        p->answer = &parts->answer;
    }
    p->sweep = &parts->sweep;
    p->item = &parts->item;
    return rc;
}

int fa_sweep_event_read(const char *text, size_t size, fa_sweep_progress *ret_progress,
                        fa_sweep_parts *ret_parts, fa_diag *diag)
{
    fa_sweep_progress progress = {0};
    cJSON *json = NULL;
    if (ret_progress == NULL || ret_parts == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_progress or ret_parts is NULL");
    int rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "event", &json, diag);
    if (rc == 0) {
        *ret_parts = (fa_sweep_parts){0};
        rc = event_from(json, &progress, ret_parts, diag);
    }
    cJSON_Delete(json);
    if (rc == 0)
        *ret_progress = progress;
    return rc;
}
