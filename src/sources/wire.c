/* SPDX-License-Identifier: Apache-2.0
 *
 * What all texts of fa_service.h have in common: printing, checked parsing, failures.
 * Then asks: one problem, or a sweep's many. They come from anybody, so an unknown key is an error.
 */
#include "fa_service.h"
#include "json.h"
#include "request.h"
#include "search.h"
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether a text is clean; with `mend` it is made so, in place. */
static bool clean_text(char *text, bool mend)
{
    for (char *c = text; c != NULL && *c != 0;) {
        uint32_t code = 0;
        size_t size = fa_utf8_at(c, SIZE_MAX, &code);
        bool good = size > 0 && code >= 0x20 && (code < 0x7f || code >= 0xa0);
        if (!good && !mend)
            return false;
        if (!good)
            *c = (unsigned char)*c < 0x20 ? ' ' : '?';
        c += good ? size : 1;
    }
    return true;
}

/* The parser bounds the depth. */
static bool clean_json(cJSON *json, bool mend)
{
    for (cJSON *item = json; item != NULL; item = item->next)
        if (!clean_text(item->string, mend) ||
            (cJSON_IsString(item) && !clean_text(item->valuestring, mend)) ||
            !clean_json(item->child, mend))
            return false;
    return true;
}

int fa_wire_print(cJSON *json, char **ret_text, fa_diag *diag)
{
    clean_json(json, true);
    char *text = fa_json_finish(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a text of the service");
    *ret_text = text;
    return 0;
}

int fa_wire_read(const char *text, size_t size, size_t limit, const char *where,
                 fa_wire_reader *read, void *ret, fa_diag *diag)
{
    cJSON *json = NULL;
    if (text == NULL)
        return fa_fail(diag, FA_EINVAL, "%s: there is no text", where);
    if (size > limit)
        return fa_fail(diag, FA_EINVAL, "%s: has %zu bytes, %zu is the most", where, size, limit);
    int rc = fa_json_parse(text, size, where, &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (rc == 0 && !clean_json(json, false))
        rc = fa_fail(diag, FA_EINVAL, "%s: a text in it has control bytes or is not UTF-8", where);
    if (rc == 0)
        rc = read(json, ret, diag);
    cJSON_Delete(json);
    return rc;
}

int fa_wire_object(const cJSON *json, const char *what, fa_diag *diag)
{
    return cJSON_IsObject(json) ? 0 : fa_fail(diag, FA_EINVAL, "\"%s\" must be an object", what);
}

bool fa_wire_is_hash(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

int fa_failure_write(int code, const char *message, char **ret_text, fa_diag *diag)
{
    const char *name = fa_error_name(code);
    cJSON *json = cJSON_CreateObject();
    cJSON *error = fa_json_add_object(json, "error");
    fa_json_add_text(error, "code", name != NULL ? name : "FA_EIO");
    fa_json_add_text(error, "message", message != NULL ? message : "");
    return fa_wire_print(json, ret_text, diag);
}

struct failure {
    int code;
    fa_diag message;
};

static int read_failure(const cJSON *json, void *ret_failure, fa_diag *diag)
{
    struct failure *failure = ret_failure;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const char *name = "", *message = "";
    int rc = fa_wire_object(error, "error", diag);
    if (rc == 0)
        rc = fa_json_text_needed(error, "code", &name, "failure", diag);
    if (rc == 0)
        rc = fa_json_text_needed(error, "message", &message, "failure", diag);
    if (rc == 0) {
        fa_error_parse(name, &failure->code);
        fa_fail(&failure->message, failure->code, "%s", message);
    }
    return rc;
}

int fa_failure_read(const char *text, size_t size, int *ret_code, fa_diag *ret_message,
                    fa_diag *diag)
{
    struct failure failure = {.code = FA_EIO};
    const int rc =
        fa_wire_read(text, size, FA_ANSWER_TEXT_MAX, "failure", read_failure, &failure, diag);
    if (rc == 0) {
        *ret_code = failure.code;
        *ret_message = failure.message;
    }
    return rc;
}

/* ---- asks -----------------------------------------------------------------------------------*/
static const char where[] = "ask";
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

/* *ret_strategy: the name that is valid for good, or NULL. */
static int check_search(const char *name, int32_t evaluations, double seconds,
                        const char **ret_strategy, fa_diag *diag)
{
    *ret_strategy = name[0] != 0 ? name : NULL;
    int rc = fa_search_check(ret_strategy, evaluations, seconds, diag);
    return rc != 0 ? fa_fail_in(diag, rc, "%s", where) : 0;
}

#define OPTIONAL .rules = FA_MEMBER_OPTIONAL
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT
/* What is asked of a specification is asked of that text: a service may know another of its name. */
#define PROBLEM ROW(problem, OTHER, .write = fa_member_very_problem, .read = fa_member_read_problem)
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
    ROW(timeout_ms, COUNT, OPTIONAL),
    ROW(strategy, TEXT, LEFT_OUT),
    ROW(evaluations, COUNT, LEFT_OUT),
    ROW(seconds, REAL, LEFT_OUT),
    {.key = NULL},
};
#undef ROW

static int read_ask(const cJSON *json, void *ret_ask, fa_diag *diag)
{
    return fa_struct_from_strict_json(json, ask_members, ret_ask, where, diag);
}

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
    const char *strategy;
    if (ret_ask == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_ask is NULL");
    int rc = fa_wire_read(text, size, FA_ASK_TEXT_MAX, where, read_ask, &ask, diag);
    if (rc != 0)
        return rc;
    rc = check_search(ask.strategy, ask.evaluations, ask.seconds, &strategy, diag);
    if (rc != 0)
        return rc;
    *ret_ask = ask;
    return 0;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
/* A request, and what it points to. */
struct sweep_ask {
    fa_sweep_request request;
    fa_sweep_item *items;
    char plan[512], strategy[16];
};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member item_members[] = {PROBLEM, ROW(gpu, TEXT, OPTIONAL), {.key = NULL}};
#undef ROW

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
    {.key = "items", .kind = FA_MEMBER_OTHER, .read = read_items},
    FA_MEMBER("plan", TEXT, struct sweep_ask, plan, LEFT_OUT),
    EFFORT,
    ORDINAL,
    ROW(again, FLAG, OPTIONAL),
    ROW(exact, FLAG, OPTIONAL),
    ROW(restart, FLAG, OPTIONAL),
    ROW(budget, STRUCT, .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_STRICT, .members = budget_members),
    FA_MEMBER("strategy", TEXT, struct sweep_ask, strategy, LEFT_OUT),
    ROW(evaluations, COUNT, LEFT_OUT),
    ROW(seconds_each, REAL, LEFT_OUT),
    {.key = NULL},
};
#undef ROW

static int read_sweep_ask(const cJSON *json, void *ret_ask, fa_diag *diag)
{
    return fa_struct_from_strict_json(json, sweep_members, ret_ask, where, diag);
}

int fa_sweep_ask_read(const char *text, size_t size, fa_sweep_request *ret_request,
                      fa_sweep_item **ret_items, char ret_plan[512], fa_diag *diag)
{
    struct sweep_ask ask = {.request = {.size = sizeof ask.request, .effort = FA_EFFORT_MEASURE}};
    if (ret_request == NULL || ret_items == NULL || ret_plan == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_request, ret_items or ret_plan is NULL");
    int rc = fa_wire_read(text, size, FA_SWEEP_ASK_TEXT_MAX, where, read_sweep_ask, &ask, diag);
    if (rc == 0)
        rc = check_search(ask.strategy, ask.request.evaluations, ask.request.seconds_each,
                          &ask.request.strategy, diag);
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
