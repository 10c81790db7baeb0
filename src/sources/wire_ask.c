/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks: one problem, or a sweep's many. They come from anybody, so nothing in them is passed over.
 */
#include "fa_service.h"
#include "request.h"
#include "json_make.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char where[] = "ask";
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

static int read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return fa_wire_problem(json, FA_NEED_SIZES, ret_problem, diag);
}

#define OPTIONAL .rules = FA_MEMBER_OPTIONAL
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT
#define PROBLEM ROW(problem, OTHER, .write = fa_member_problem, .read = read_problem)
#define EFFORT ROW(effort, CHOICE, OPTIONAL, .names = efforts)
#define ORDINAL ROW(ordinal, COUNT, OPTIONAL, .most = 1023)

/* ---- one problem ----------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_ask, member, __VA_ARGS__)
static const fa_member ask_members[] = {
    PROBLEM,
    ROW(gpu, TEXT, OPTIONAL),
    ROW(uuid, TEXT, OPTIONAL),
    ORDINAL,
    EFFORT,
    ROW(again, FLAG, OPTIONAL),
    ROW(exact, FLAG, OPTIONAL),
    ROW(first_contact, FLAG, OPTIONAL),
    ROW(family, TEXT, LEFT_OUT),
    ROW(timeout_ms, COUNT, OPTIONAL),
    {.key = NULL},
};
#undef ROW

int fa_ask_write(const fa_ask *ask, char **ret_text, fa_diag *diag)
{
    fa_ask known;
    if (ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_text is NULL");
    int rc = fa_copy_sized(&known, sizeof known, ask, "ask.size is not sizeof(fa_ask)", diag);
    return rc != 0 ? rc : fa_wire_print(fa_struct_to_json(ask_members, &known), ret_text, diag);
}

int fa_ask_read(const char *text, size_t size, fa_ask *ret_ask, fa_diag *diag)
{
    fa_ask ask = {.size = sizeof ask, .effort = FA_EFFORT_MEASURE};
    if (ret_ask == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_ask is NULL");
    int rc = fa_wire_read_strictly(text, size, FA_ASK_TEXT_MAX, where, ask_members, &ask, diag);
    if (rc == 0 && ask.family[0] != 0 && !fa_wire_is_hash(ask.family))
        rc = fa_fail(diag, FA_EINVAL, "%s: \"family\" must be 64 lower-case hex digits", where);
    if (rc == 0)
        *ret_ask = ask;
    return rc;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
/* A request, and what it points to. */
struct sweep_ask {
    fa_sweep_request request;
    fa_sweep_item *items;
    char plan[512];
};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member item_members[] = {PROBLEM, ROW(gpu, TEXT, OPTIONAL), {.key = NULL}};
#undef ROW

static cJSON *write_items(const void *data)
{
    const struct sweep_ask *ask = data;
    cJSON *items = cJSON_CreateArray();
    for (int32_t i = 0; i < ask->request.count && items != NULL; i++) {
        cJSON *item = fa_struct_to_json(item_members, &ask->request.items[i]);
        if (!fa_json_push(items, item)) {
            cJSON_Delete(items);
            items = NULL;
        }
    }
    return items;
}

static int read_item(const cJSON *json, fa_sweep_item *ret_item, fa_diag *diag)
{
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "%s: an item must be an object", where);
    return fa_struct_from_strict_json(json, item_members, ret_item, where, diag);
}

static int read_items(const cJSON *json, void *data, fa_diag *diag)
{
    struct sweep_ask *ask = data;
    int count = cJSON_IsArray(json) ? cJSON_GetArraySize(json) : 0, rc = 0;
    if (count < 1 || count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: \"items\" must be an array of 1 to %d", where,
                       FA_SWEEP_ITEMS_MAX);
    fa_sweep_item *item = ask->items = calloc((size_t)count, sizeof *item);
    if (item == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %d items", count);
    for (const cJSON *one = json->child; one != NULL && rc == 0; one = one->next, item++)
        rc = read_item(one, item, diag);
    ask->request.count = count;
    return rc != 0 ? fa_fail_in(diag, rc, "item %d", (int)(item - ask->items)) : 0;
}

#define LIMIT .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_UNKNOWN
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_budget, member, __VA_ARGS__)
static const fa_member budget_members[] = {
    ROW(seconds, REAL, LIMIT),
    ROW(trials, COUNT64, LIMIT, .most = 1000000000000000),
    ROW(cost, REAL, LIMIT),
    ROW(price, REAL, LIMIT),
    {.key = NULL},
};
#undef ROW

#define ROW(member, kind, ...) \
    FA_MEMBER(#member, kind, struct sweep_ask, request.member, __VA_ARGS__)
static const fa_member sweep_members[] = {
    {.key = "items", .kind = FA_MEMBER_OTHER, .write = write_items, .read = read_items},
    FA_MEMBER("plan", TEXT, struct sweep_ask, plan, LEFT_OUT),
    EFFORT,
    ORDINAL,
    ROW(again, FLAG, OPTIONAL),
    ROW(exact, FLAG, OPTIONAL),
    ROW(restart, FLAG, OPTIONAL),
    ROW(budget, STRUCT, .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_STRICT, .members = budget_members),
    {.key = NULL},
};
#undef ROW

int fa_sweep_ask_write(const fa_sweep_request *request, char **ret_text, fa_diag *diag)
{
    struct sweep_ask ask = {.items = NULL};
    if (ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_text is NULL");
    int rc = fa_copy_sized(&ask.request, sizeof ask.request, request,
                           "request.size is not sizeof(fa_sweep_request)", diag);
    if (rc != 0)
        return rc;
    if (ask.request.items == NULL || ask.request.count < 1 ||
        ask.request.count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "a sweep has 1 to %d items", FA_SWEEP_ITEMS_MAX);
    if (ask.request.plan != NULL)
        snprintf(ask.plan, sizeof ask.plan, "%s", ask.request.plan);
    return fa_wire_print(fa_struct_to_json(sweep_members, &ask), ret_text, diag);
}

int fa_sweep_ask_read(const char *text, size_t size, fa_sweep_request *ret_request,
                      fa_sweep_item **ret_items, char ret_plan[512], fa_diag *diag)
{
    struct sweep_ask ask = {.request = {.size = sizeof ask.request, .effort = FA_EFFORT_MEASURE}};
    if (ret_request == NULL || ret_items == NULL || ret_plan == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_request, ret_items or ret_plan is NULL");
    int rc =
        fa_wire_read_strictly(text, size, FA_SWEEP_ASK_TEXT_MAX, where, sweep_members, &ask, diag);
    if (rc != 0) {
        free(ask.items);
        return rc;
    }
    memcpy(ret_plan, ask.plan, sizeof ask.plan);
    ask.request.plan = ask.plan[0] != 0 ? ret_plan : NULL;
    ask.request.items = *ret_items = ask.items;
    *ret_request = ask.request;
    return 0;
}
