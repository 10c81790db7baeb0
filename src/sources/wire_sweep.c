/* SPDX-License-Identifier: Apache-2.0
 *
 * A sweep and its events as JSON. Field names are a promise: they may be joined by others, never
 * renamed.
 */
#include "fa_service.h"
#include "wire.h"
#include "json_make.h"

#include <string.h>

#define LATEST ((int64_t)1 << 40) /* of Unix times */

/* ---- a sweep --------------------------------------------------------------------------------*/
#define ROW(key, kind, member, ...) FA_MEMBER(key, kind, fa_sweep_spent, member, __VA_ARGS__)
static const fa_member spent_members[] = {
    ROW("seconds", REAL, seconds, .rules = FA_MEMBER_NULL),
    ROW("trials", COUNT64, trials),
    ROW("cost", REAL, cost, .rules = FA_MEMBER_NULL),
    ROW("cubins_compiled", COUNT64, compiled),
    ROW("cubins_reused", COUNT64, reused),
    {.key = NULL},
};
#undef ROW

#define ROW(member, kind) \
    FA_MEMBER(#member, kind, fa_sweep_budget, member, .rules = FA_MEMBER_UNKNOWN)
static const fa_member budget_members[] = {
    ROW(seconds, REAL), ROW(trials, COUNT64), ROW(cost, REAL), ROW(price, REAL), {.key = NULL},
};
#undef ROW

static void add_left(cJSON *json, const char *key, double limit, double spent)
{
    fa_json_add_known(json, key, limit > spent ? limit - spent : 0, limit > 0);
}

static cJSON *write_left(const void *data)
{
    const fa_sweep *sweep = data;
    const fa_sweep_budget *budget = &sweep->budget;
    const fa_sweep_spent *spent = &sweep->spent;
    cJSON *left = cJSON_CreateObject();
    fa_json_add_known(left, "items", sweep->items - sweep->done - sweep->failed, true);
    add_left(left, "seconds", budget->seconds, spent->seconds);
    add_left(left, "trials", (double)budget->trials, (double)spent->trials);
    add_left(left, "cost", budget->cost, spent->cost);
    return left;
}

static int pass_over(const cJSON *json, void *data, fa_diag *diag)
{
    (void)json, (void)data, (void)diag;
    return 0;
}

#define COUNT(member) ROW(member, COUNT, .rules = FA_MEMBER_NULL)
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep, member, __VA_ARGS__)
static const fa_member sweep_members[] = {
    ROW(key, TEXT),
    ROW(plan, TEXT),
    ROW(state, CHOICE, .names = fa_sweep_state_names),
    COUNT(items),
    COUNT(done),
    COUNT(failed),
    ROW(budget, STRUCT, .members = budget_members),
    ROW(spent, STRUCT, .members = spent_members),
    {.key = "left", .kind = FA_MEMBER_OTHER, .write = write_left, .read = pass_over},
    ROW(created, COUNT64, .most = LATEST),
    ROW(updated, COUNT64, .most = LATEST),
    {.key = NULL},
};
#undef ROW

int fa_sweep_write(const fa_sweep *sweep, char **ret_text, fa_diag *diag)
{
    if (sweep == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "sweep or ret_text is NULL");
    return fa_wire_print(fa_struct_to_json(sweep_members, sweep), ret_text, diag);
}

int fa_wire_read_sweep(const cJSON *json, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep sweep = {0};
    int rc = fa_struct_from_json(json, sweep_members, &sweep, "sweep", diag);
    if (rc == 0 && (int64_t)sweep.done + sweep.failed > sweep.items)
        rc = fa_fail(diag, FA_EINVAL, "sweep: more items have ended than there are");
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
        rc = fa_wire_read_sweep(json, ret_sweep, diag);
    cJSON_Delete(json);
    return rc;
}

/* ---- its events -----------------------------------------------------------------------------*/
static int read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return fa_wire_problem(json, FA_NEED_SIZES, ret_problem, diag);
}

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member item_members[] = {
    ROW(problem, OTHER, .write = fa_member_problem, .read = read_problem),
    ROW(gpu, TEXT),
    ROW(state, CHOICE, .names = fa_item_state_names),
    COUNT(attempts),
    ROW(reason, TEXT),
    ROW(spent, STRUCT, .members = spent_members),
    {.key = NULL},
};
#undef ROW

static const char *const events[] = {"begins", "tunes", "ends", "known", NULL};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_progress, member, __VA_ARGS__)
static const fa_member event_members[] = {
    ROW(event, CHOICE, .names = events),
    COUNT(index),
    ROW(elapsed_s, REAL, .rules = FA_MEMBER_UNKNOWN),
    ROW(left_s, REAL, .rules = FA_MEMBER_MINUS),
    {.key = NULL},
};
#undef ROW

static cJSON *event_json(const fa_sweep_progress *p)
{
    cJSON *json = fa_struct_to_json(event_members, p);
    bool whole =
        json != NULL && fa_json_add(json, "sweep", fa_struct_to_json(sweep_members, p->sweep)) &&
        fa_json_add(json, "item", fa_struct_to_json(item_members, p->item)) &&
        fa_json_add(json, "tune",
                    p->tune != NULL ? fa_wire_write_progress(p->tune) : cJSON_CreateNull()) &&
        fa_json_add(json, "answer",
                    p->answer != NULL ? fa_wire_write_answer(p->answer) : cJSON_CreateNull());
    if (whole)
        return json;
    cJSON_Delete(json);
    return NULL;
}

int fa_sweep_event_write(const fa_sweep_progress *progress, char **ret_text, fa_diag *diag)
{
    if (progress == NULL || ret_text == NULL || progress->sweep == NULL || progress->item == NULL)
        return fa_fail(diag, FA_EINVAL, "progress, its sweep or item, or ret_text is NULL");
    return fa_wire_print(event_json(progress), ret_text, diag);
}

/* An object, or with `needed` false null or nothing: then *ret is NULL. */
static int read_part(const cJSON *json, const char *key, bool needed, const cJSON **ret,
                     fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    if (!needed && (item == NULL || cJSON_IsNull(item)))
        return 0;
    return fa_wire_object(json, key, "event", ret, diag);
}

static int read_event(const cJSON *json, fa_sweep_progress *p, fa_sweep_parts *parts, fa_diag *diag)
{
    const cJSON *sweep, *item, *tune = NULL, *answer = NULL;
    int rc = fa_struct_from_json(json, event_members, p, "event", diag);
    if (rc != 0 || (rc = read_part(json, "sweep", true, &sweep, diag)) != 0 ||
        (rc = read_part(json, "item", true, &item, diag)) != 0 ||
        (rc = read_part(json, "tune", false, &tune, diag)) != 0 ||
        (rc = read_part(json, "answer", false, &answer, diag)) != 0 ||
        (rc = fa_wire_read_sweep(sweep, &parts->sweep, diag)) != 0 ||
        (rc = fa_struct_from_json(item, item_members, &parts->item, "item", diag)) != 0)
        return rc;
    if (p->index >= parts->sweep.items)
        return fa_fail(diag, FA_EINVAL, "event: there is no item %d", p->index);
    if (tune != NULL)
        rc = fa_wire_read_progress(tune, &parts->tune, &parts->trial, &parts->best, diag);
    if (rc == 0 && answer != NULL)
        rc = fa_wire_read_answer(answer, &parts->answer, diag);
    p->sweep = &parts->sweep;
    p->item = &parts->item;
    p->tune = tune != NULL ? &parts->tune : NULL;
    p->answer = answer != NULL ? &parts->answer : NULL;
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
        rc = read_event(json, &progress, ret_parts, diag);
    }
    cJSON_Delete(json);
    if (rc == 0)
        *ret_progress = progress;
    return rc;
}
