/* SPDX-License-Identifier: Apache-2.0
 *
 * Asks: one problem, or a sweep's many. They come from anybody, so nothing in them is passed over.
 */
#include "fa_service.h"
#include "wire.h"

#include <stdlib.h>
#include <string.h>

static const char where[] = "ask";

int fa_wire_ask_problem(const cJSON *object, fa_problem *ret_problem, fa_diag *diag)
{
    fa_problem problem = {0};
    int rc = fa_problem_from_strict_json(object, FA_NEED_SIZES, NULL, &problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc == FA_ENOTSUP ? FA_EINVAL : rc; /* an operation that is not known is a wrong name */
}

static int read_problem(const cJSON *object, fa_problem *ret_problem, fa_diag *diag)
{
    const cJSON *problem = NULL;
    int rc = fa_wire_object(object, "problem", where, &problem, diag);
    return rc != 0 ? rc : fa_wire_ask_problem(problem, ret_problem, diag);
}

static int read_name(const cJSON *object, const char *key, char *ret, size_t size, fa_diag *diag)
{
    int rc = fa_json_copy(object, key, ret, size, where, diag);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

static int read_count(const cJSON *object, const char *key, int32_t most, int32_t *ret,
                      fa_diag *diag)
{
    int64_t value = 0;
    int rc = fa_json_int(object, key, 0, most, &value, where, diag);
    if (rc == 0)
        *ret = (int32_t)value;
    return rc == FA_ENOTFOUND ? 0 : rc;
}

/* ---- one problem ----------------------------------------------------------------------------*/
int fa_ask_write(const fa_ask *ask, char **ret_text, fa_diag *diag)
{
    fa_ask known = {0};
    if (ask == NULL || ret_text == NULL || ask->size < sizeof(size_t) || ask->size > 4096)
        return fa_fail(diag, FA_EINVAL,
                       "ask or ret_text is NULL, or ask.size is not sizeof(fa_ask)");
    memcpy(&known, ask, ask->size < sizeof known ? ask->size : sizeof known);
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, "problem", fa_problem_to_json(&known.problem));
    cJSON_AddStringToObject(json, "gpu", known.gpu);
    cJSON_AddStringToObject(json, "uuid", known.uuid);
    cJSON_AddNumberToObject(json, "ordinal", known.ordinal);
    cJSON_AddStringToObject(json, "effort", fa_effort_name(known.effort));
    cJSON_AddBoolToObject(json, "again", known.again);
    cJSON_AddBoolToObject(json, "exact", known.exact);
    cJSON_AddBoolToObject(json, "first_contact", known.first_contact);
    if (known.family[0] != 0)
        cJSON_AddStringToObject(json, "family", known.family);
    if (cJSON_AddNumberToObject(json, "timeout_ms", known.timeout_ms) == NULL) {
        cJSON_Delete(json);
        json = NULL;
    }
    return fa_wire_print(json, ret_text, diag);
}

static int ask_from(const cJSON *json, fa_ask *ask, fa_diag *diag)
{
    static const char *const keys[] = {"problem",    "gpu",    "uuid",  "ordinal",
                                       "effort",     "again",  "exact", "first_contact",
                                       "timeout_ms", "family", NULL};
    int rc = fa_wire_keys(json, keys, where, diag);
    if (rc == 0)
        rc = read_problem(json, &ask->problem, diag);
    if (rc == 0)
        rc = read_name(json, "gpu", ask->gpu, sizeof ask->gpu, diag);
    if (rc == 0)
        rc = read_name(json, "uuid", ask->uuid, sizeof ask->uuid, diag);
    if (rc == 0)
        rc = read_count(json, "ordinal", 1023, &ask->ordinal, diag);
    if (rc == 0)
        rc = fa_wire_effort(json, &ask->effort, where, diag);
    if (rc == 0)
        rc = fa_wire_flag(json, "again", &ask->again, where, diag);
    if (rc == 0)
        rc = fa_wire_flag(json, "exact", &ask->exact, where, diag);
    if (rc == 0)
        rc = fa_wire_flag(json, "first_contact", &ask->first_contact, where, diag);
    if (rc == 0)
        rc = read_count(json, "timeout_ms", INT32_MAX, &ask->timeout_ms, diag);
    if (rc == 0)
        rc = read_name(json, "family", ask->family, sizeof ask->family, diag);
    if (rc == 0 && ask->family[0] != 0 &&
        (strlen(ask->family) != 64 || strspn(ask->family, "0123456789abcdef") != 64))
        rc = fa_fail(diag, FA_EINVAL, "%s: \"family\" must be 64 lower-case hex digits", where);
    return rc;
}

int fa_ask_read(const char *text, size_t size, fa_ask *ret_ask, fa_diag *diag)
{
    fa_ask ask = {.size = sizeof ask, .effort = FA_EFFORT_MEASURE};
    cJSON *json = NULL;
    if (ret_ask == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_ask is NULL");
    int rc = fa_wire_parse(text, size, FA_ASK_TEXT_MAX, where, &json, diag);
    if (rc == 0)
        rc = ask_from(json, &ask, diag);
    cJSON_Delete(json);
    if (rc == 0)
        *ret_ask = ask;
    return rc;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
int fa_sweep_ask_write(const fa_sweep_request *request, char **ret_text, fa_diag *diag)
{
    fa_sweep_request known = {0};
    if (request == NULL || ret_text == NULL || request->size < sizeof(size_t) ||
        request->size > 4096)
        return fa_fail(diag, FA_EINVAL, "request or ret_text is NULL, or request.size is wrong");
    memcpy(&known, request, request->size < sizeof known ? request->size : sizeof known);
    if (known.items == NULL || known.count < 1 || known.count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "a sweep has 1 to %d items", FA_SWEEP_ITEMS_MAX);
    cJSON *json = cJSON_CreateObject();
    cJSON *items = cJSON_AddArrayToObject(json, "items");
    for (int32_t i = 0; i < known.count && items != NULL; i++) {
        cJSON *item = cJSON_CreateObject();
        cJSON_AddItemToObject(item, "problem", fa_problem_to_json(&known.items[i].problem));
        cJSON_AddStringToObject(item, "gpu", known.items[i].gpu);
        cJSON_AddItemToArray(items, item);
    }
    if (known.plan != NULL)
        cJSON_AddStringToObject(json, "plan", known.plan);
    cJSON_AddStringToObject(json, "effort", fa_effort_name(known.effort));
    cJSON_AddNumberToObject(json, "ordinal", known.ordinal);
    cJSON_AddBoolToObject(json, "again", known.again);
    cJSON_AddBoolToObject(json, "exact", known.exact);
    cJSON_AddBoolToObject(json, "restart", known.restart);
    cJSON *budget = cJSON_AddObjectToObject(json, "budget");
    fa_json_add_known(budget, "seconds", known.budget.seconds, known.budget.seconds > 0);
    fa_json_add_known(budget, "trials", (double)known.budget.trials, known.budget.trials > 0);
    fa_json_add_known(budget, "cost", known.budget.cost, known.budget.cost > 0);
    fa_json_add_known(budget, "price", known.budget.price, known.budget.price > 0);
    if (cJSON_GetArraySize(budget) != 4 || cJSON_GetArraySize(items) != known.count) {
        cJSON_Delete(json);
        json = NULL;
    }
    return fa_wire_print(json, ret_text, diag);
}

static int read_items(const cJSON *json, fa_sweep_item **ret_items, int32_t *ret_count,
                      fa_diag *diag)
{
    static const char *const keys[] = {"problem", "gpu", NULL};
    const cJSON *array = cJSON_GetObjectItemCaseSensitive(json, "items");
    int count = cJSON_IsArray(array) ? cJSON_GetArraySize(array) : 0, rc = 0;
    if (count < 1 || count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: \"items\" must be an array of 1 to %d", where,
                       FA_SWEEP_ITEMS_MAX);
    fa_sweep_item *items = calloc((size_t)count, sizeof *items), *item = items;
    if (items == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for %d items", count);
    for (const cJSON *one = array->child; one != NULL && rc == 0; one = one->next, item++) {
        if (!cJSON_IsObject(one))
            rc = fa_fail(diag, FA_EINVAL, "%s: an item must be an object", where);
        if (rc == 0)
            rc = fa_wire_keys(one, keys, where, diag);
        if (rc == 0)
            rc = read_problem(one, &item->problem, diag);
        if (rc == 0)
            rc = read_name(one, "gpu", item->gpu, sizeof item->gpu, diag);
        if (rc != 0)
            fa_fail_in(diag, rc, "item %d", (int)(item - items) + 1);
    }
    if (rc != 0) {
        free(items);
        return rc;
    }
    *ret_items = items;
    *ret_count = count;
    return 0;
}

/* null and absent: no limit. */
static int read_limit(const cJSON *object, const char *key, double *ret, fa_diag *diag)
{
    return cJSON_GetObjectItemCaseSensitive(object, key) == NULL
               ? 0
               : fa_json_real_known(object, key, ret, "budget", diag);
}

static int read_budget(const cJSON *json, fa_sweep_budget *budget, fa_diag *diag)
{
    static const char *const keys[] = {"seconds", "trials", "cost", "price", NULL};
    const cJSON *object = NULL;
    double trials = 0;
    if (cJSON_GetObjectItemCaseSensitive(json, "budget") == NULL)
        return 0;
    int rc = fa_wire_object(json, "budget", where, &object, diag);
    if (rc == 0)
        rc = fa_wire_keys(object, keys, "budget", diag);
    if (rc == 0)
        rc = read_limit(object, "seconds", &budget->seconds, diag);
    if (rc == 0)
        rc = read_limit(object, "trials", &trials, diag);
    if (rc == 0 && (trials > 1e15 || trials != (double)(int64_t)trials))
        rc = fa_fail(diag, FA_EINVAL, "budget: \"trials\" must be a whole number, at most 1e15");
    if (rc == 0)
        rc = read_limit(object, "cost", &budget->cost, diag);
    if (rc == 0)
        rc = read_limit(object, "price", &budget->price, diag);
    if (rc == 0)
        budget->trials = (int64_t)trials;
    return rc;
}

static int sweep_from(const cJSON *json, fa_sweep_request *request, char plan[512], fa_diag *diag)
{
    static const char *const keys[] = {"items", "plan",    "effort", "ordinal", "again",
                                       "exact", "restart", "budget", NULL};
    int rc = fa_wire_keys(json, keys, where, diag);
    if (rc == 0)
        rc = read_name(json, "plan", plan, 512, diag);
    if (rc == 0)
        rc = fa_wire_effort(json, &request->effort, where, diag);
    if (rc == 0)
        rc = read_count(json, "ordinal", 1023, &request->ordinal, diag);
    if (rc == 0)
        rc = fa_wire_flag(json, "again", &request->again, where, diag);
    if (rc == 0)
        rc = fa_wire_flag(json, "exact", &request->exact, where, diag);
    if (rc == 0)
        rc = fa_wire_flag(json, "restart", &request->restart, where, diag);
    if (rc == 0)
        rc = read_budget(json, &request->budget, diag);
    return rc;
}

int fa_sweep_ask_read(const char *text, size_t size, fa_sweep_request *ret_request,
                      fa_sweep_item **ret_items, char ret_plan[512], fa_diag *diag)
{
    fa_sweep_request request = {.size = sizeof request, .effort = FA_EFFORT_MEASURE};
    fa_sweep_item *items = NULL;
    char plan[512] = "";
    cJSON *json = NULL;
    if (ret_request == NULL || ret_items == NULL || ret_plan == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_request, ret_items or ret_plan is NULL");
    int rc = fa_wire_parse(text, size, FA_SWEEP_ASK_TEXT_MAX, where, &json, diag);
    if (rc == 0)
        rc = sweep_from(json, &request, plan, diag);
    if (rc == 0)
        rc = read_items(json, &items, &request.count, diag);
    bool planned = cJSON_GetObjectItemCaseSensitive(json, "plan") != NULL;
    cJSON_Delete(json);
    if (rc != 0)
        return rc;
    memcpy(ret_plan, plan, sizeof plan);
    request.plan = planned ? ret_plan : NULL;
    request.items = items;
    *ret_items = items;
    *ret_request = request;
    return 0;
}
