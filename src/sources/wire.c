/* SPDX-License-Identifier: Apache-2.0
 *
 * The texts of fa_service.h: printing and checked parsing, failures, asks, answers, a tune's progress, sweeps.
 * Asks come from anybody, so an unknown key is an error. Field names are stable: fields may be added, and none is renamed.
 */
#include "sources.h"

#include "lookup.h"
#include "search.h"
#include "trial.h"

#include "error.h"
#include "problem.h"

#include <math.h>
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

/* Prints a document and deletes it; NULL as a document is out of memory. */
static int print(cJSON *json, char **ret_text, fa_diag *diag)
{
    clean_json(json, true);
    char *text = fa_json_finish(json);
    FA_OR_RETURN(fa_have(text != NULL, "a text of the service", diag));
    *ret_text = text;
    return 0;
}

static int write_struct(const fa_member *members, const void *data, char **ret_text, fa_diag *diag)
{
    FA_OR_RETURN(
        fa_expect(data != NULL && ret_text != NULL, "what is to be written, or ret_text", diag));
    return print(fa_struct_to_json(members, data), ret_text, diag);
}

/* Reads an object of at most `limit` bytes whose texts are UTF-8 without control bytes. strict: keys that are not known are
 * refused. */
static int read_struct(const char *text, size_t size, size_t limit, const char *where,
                       const fa_member *members, bool strict, void *ret, fa_diag *diag)
{
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    if (text == NULL)
        return fa_fail(diag, FA_EINVAL, "%s: there is no text", where);
    if (size > limit)
        return fa_fail(diag, FA_EINVAL, "%s: has %zu bytes, %zu is the most", where, size, limit);
    FA_OR_RETURN(fa_json_parse(text, size, where, &json, diag));
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (!clean_json(json, false))
        return fa_fail(diag, FA_EINVAL, "%s: a text in it has control bytes or is not UTF-8",
                       where);
    return strict ? fa_struct_from_strict_json(json, members, ret, where, diag)
                  : fa_struct_from_json(json, members, ret, where, diag);
}

bool fa_is_sha256(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

/* ---- failures -------------------------------------------------------------------------------*/
struct failure {
    char code[32], message[sizeof(fa_diag)];
};

#define ROW(member) FA_MEMBER(#member, TEXT, struct failure, member)
static const fa_member error_members[] = {ROW(code), ROW(message), {.key = NULL}};
#undef ROW
static const fa_member failure_members[] = {
    {.key = "error", .kind = FA_MEMBER_STRUCT, .members = error_members}, {.key = NULL}};

int fa_failure_write(int code, const char *message, char **ret_text, fa_diag *diag)
{
    const char *name = fa_error_name(code);
    struct failure failure;
    snprintf(failure.code, sizeof failure.code, "%s", name != NULL ? name : "FA_EIO");
    snprintf(failure.message, sizeof failure.message, "%s", message != NULL ? message : "");
    return write_struct(failure_members, &failure, ret_text, diag);
}

int fa_failure_read(const char *text, size_t size, int *ret_code, fa_diag *ret_message,
                    fa_diag *diag)
{
    struct failure failure;
    FA_OR_RETURN(read_struct(text, size, FA_ANSWER_TEXT_MAX, "failure", failure_members, false,
                             &failure, diag));
    *ret_code = FA_EIO;
    fa_error_parse(failure.code, ret_code);
    fa_fail(ret_message, *ret_code, "%s", failure.message);
    return 0;
}

/* ---- asks -----------------------------------------------------------------------------------*/
static const char where[] = "ask";
static const char *const efforts[] = {"cached", "predict", "measure", "patient", NULL};

static const fa_request usual = {.size = sizeof usual, .effort = FA_EFFORT_MEASURE};

/* The name of the strategy becomes one that is valid for good, or NULL. */
static int check_search(const char *name, fa_request *request, fa_diag *diag)
{
    request->strategy = name[0] != 0 ? name : NULL;
    return fa_search_check(&request->strategy, request->evaluations, request->seconds, diag);
}

#define OPTIONAL .rules = FA_MEMBER_OPTIONAL
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT
/* What is asked of a specification is asked of that text: a service may know another of its name. */
#define PROBLEM(type, member)                                                  \
    FA_MEMBER("problem", OTHER, type, member, .write = fa_member_very_problem, \
              .read = fa_member_read_problem)
/* How a problem is tuned: `member` is a fa_request, beside which `type` has the strategy as a text. */
#define EACH(type, member, seconds_key)                                               \
    FA_MEMBER("ordinal", COUNT, type, member.ordinal, OPTIONAL, .most = 1023),        \
        FA_MEMBER("effort", CHOICE, type, member.effort, OPTIONAL, .names = efforts), \
        FA_MEMBER("again", FLAG, type, member.again, OPTIONAL),                       \
        FA_MEMBER("exact", FLAG, type, member.exact, OPTIONAL),                       \
        FA_MEMBER("same_bits", TEXT, type, member.same_bits, LEFT_OUT),               \
        FA_MEMBER("strategy", TEXT, type, strategy, LEFT_OUT),                        \
        FA_MEMBER("evaluations", COUNT, type, member.evaluations, LEFT_OUT),          \
        FA_MEMBER(seconds_key, REAL, type, member.seconds, LEFT_OUT)

/* ---- one problem ----------------------------------------------------------------------------*/
static const fa_member ask_members[] = {
    PROBLEM(fa_ask, request.problem),
    FA_MEMBER("gpu", TEXT, fa_ask, gpu, OPTIONAL),
    FA_MEMBER("uuid", TEXT, fa_ask, uuid, OPTIONAL),
    FA_MEMBER("first_contact", FLAG, fa_ask, request.first_contact, OPTIONAL),
    FA_MEMBER("timeout_ms", COUNT, fa_ask, timeout_ms, OPTIONAL),
    EACH(fa_ask, request, "seconds"),
    {.key = NULL},
};

int fa_ask_write(const fa_ask *ask, char **ret_text, fa_diag *diag)
{
    return write_struct(ask_members, ask, ret_text, diag);
}

int fa_ask_read(const char *text, size_t size, fa_ask *ret_ask, fa_diag *diag)
{
    fa_ask ask = {.request = usual};
    FA_OR_RETURN(fa_expect(ret_ask != NULL, "ret_ask", diag));
    FA_OR_RETURN(read_struct(text, size, FA_ASK_TEXT_MAX, where, ask_members, true, &ask, diag));
    FA_OR_RETURN(check_search(ask.strategy, &ask.request, diag));
    *ret_ask = ask;
    return 0;
}

/* ---- answer ---------------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define COUNT(member) ROW(member, COUNT, .rules = FA_MEMBER_NULL)
#define WHOLE(member) \
    ROW(member, OTHER, .write = fa_problem_to_json, .read = fa_member_read_problem)
#define UNKNOWN .rules = FA_MEMBER_UNKNOWN

static const fa_member answer_members[] = {
    WHOLE(problem),
    ROW(gpu, STRUCT, .members = fa_gpu_members),
    ROW(origin, CHOICE, .names = fa_origin_names),
    ROW(from_store, FLAG),
    ROW(from_system, FLAG),
    ROW(trial, PART, .members = fa_trial_members),
    ROW(entry, TEXT),
    ROW(cubin_key, TEXT),
    ROW(nvrtc, TEXT),
    ROW(driver_version, COUNT, UNKNOWN),
    ROW(unix_time, COUNT64, .most = (int64_t)1 << 40),
    ROW(default_us, REAL, UNKNOWN),
    ROW(tune_s, REAL, UNKNOWN),
    {.key = "funnel", .kind = FA_MEMBER_STRUCT, .members = fa_funnel_members},
    COUNT(ties),
    WHOLE(from_problem),
    ROW(from_gpu, TEXT, UNKNOWN),
    ROW(why, TEXT),
    ROW(shortlist_only, FLAG),
    ROW(strategy, TEXT, .rules = FA_MEMBER_LEFT_OUT),
    ROW(undated, FLAG, .rules = FA_MEMBER_LEFT_OUT),
    ROW(ties_differ, COUNT, .rules = FA_MEMBER_LEFT_OUT),
    ROW(same_bits, TEXT, .rules = FA_MEMBER_LEFT_OUT),
    {.key = NULL},
};
#undef ROW

int fa_answer_write(const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    FA_OR_RETURN(fa_expect(answer != NULL && ret_text != NULL, "answer or ret_text", diag));
    const double median = answer->trial.median_us;
    const double flops = fa_problem_work(&answer->from_problem, "flops");
    const bool own = median > 0 && answer->origin != FA_ORIGIN_NEAREST; /* this problem's time */
    cJSON *json = fa_struct_to_json(answer_members, answer);
    fa_json_add_known(json, "speedup_over_default", median > 0 ? answer->default_us / median : 0,
                      median > 0 && answer->default_us > 0);
    fa_json_add_known(json, "tflops", own ? flops / median * 1e-6 : 0, own);
    return print(json, ret_text, diag);
}

static int read_answer(const cJSON *json, void *ret_answer, fa_diag *diag)
{
    fa_answer *answer = ret_answer;
    int rc = cJSON_IsObject(json)
                 ? fa_struct_from_json(json, answer_members, answer, "answer", diag)
                 : fa_fail(diag, FA_EINVAL, "\"answer\" must be an object");
    if (rc == 0 && answer->cubin_key[0] != 0 && !fa_is_sha256(answer->cubin_key))
        rc = fa_fail(diag, FA_EINVAL, "answer: \"cubin_key\" is not 64 hexadecimal digits");
    if (isnan(answer->trial.max_error) && !(answer->trial.tolerance > 0)) /* it was null */
        answer->trial.max_error = 0;
    return rc;
}

static const fa_member kernel_members[] = {
    {.key = "answer", .kind = FA_MEMBER_OTHER, .read = read_answer}, {.key = NULL}};

int fa_kernel_read(const char *text, size_t size, fa_answer *ret_answer, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    const int rc = read_struct(text, size, 2 * FA_ANSWER_TEXT_MAX, "reply", kernel_members, false,
                               &answer, diag);
    if (rc == 0)
        memcpy(ret_answer, &answer, sizeof answer);
    return rc;
}

/* ---- progress -------------------------------------------------------------------------------*/
static const char *const kinds[] = {"stage", "trial", "progress", NULL};
static const char *const stages[] = {"wait", "tune", "final", "done", NULL};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_progress, member, __VA_ARGS__)
static const fa_member progress_members[] = {
    ROW(kind, CHOICE, .names = kinds),
    ROW(stage, CHOICE, .names = stages),
    COUNT(space),
    COUNT(in_budget),
    COUNT(compiled),
    COUNT(clean),
    COUNT(proved),
    COUNT(measured),
    COUNT(failed),
    COUNT(resumed),
    COUNT(compile_workers),
    COUNT(reused),
    ROW(elapsed_s, REAL, UNKNOWN),
    ROW(trial, POINTED, .members = fa_trial_members),
    ROW(best, POINTED, .members = fa_trial_members),
    ROW(default_us, REAL, UNKNOWN),
    COUNT(ended),
    {.key = NULL},
};
#undef ROW

int fa_progress_write(const fa_progress *progress, char **ret_text, fa_diag *diag)
{
    return write_struct(progress_members, progress, ret_text, diag);
}

/* ---- sweeps as they are asked for ------------------------------------------------------------*/
static const fa_member asked_members[] = {PROBLEM(fa_sweep_item, problem),
                                          FA_MEMBER("gpu", TEXT, fa_sweep_item, gpu, OPTIONAL),
                                          {.key = NULL}};

static int read_items(const cJSON *json, void *data, fa_diag *diag)
{
    fa_sweep_ask *ask = data;
    int count = cJSON_IsArray(json) ? cJSON_GetArraySize(json) : 0, rc = 0;
    if (count < 1 || count > FA_SWEEP_ITEMS_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: \"items\" must be an array of 1 to %d", where,
                       FA_SWEEP_ITEMS_MAX);
    fa_sweep_item *item = ask->items = calloc((size_t)count, sizeof *item);
    ask->request.items = item;
    FA_OR_RETURN(fa_have(item != NULL, "items", diag));
    for (const cJSON *one = json->child; one != NULL && rc == 0; one = one->next, item++)
        rc = cJSON_IsObject(one) ? fa_struct_from_strict_json(one, asked_members, item, where, diag)
                                 : fa_fail(diag, FA_EINVAL, "%s: an item must be an object", where);
    ask->request.count = count;
    return rc != 0 ? fa_fail_in(diag, rc, "item %d", (int)(item - ask->items)) : 0;
}

#define LIMIT .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_UNKNOWN
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_budget, member, __VA_ARGS__)
static const fa_member budget_members[] = {
    ROW(seconds, REAL, LIMIT),
    ROW(trials, COUNT64, LIMIT, .most = 1000000000000000),
    {.key = NULL},
};
#undef ROW

#define ROW(key, kind, member, ...) FA_MEMBER(key, kind, fa_sweep_ask, member, __VA_ARGS__)
static const fa_member sweep_ask_members[] = {
    {.key = "items", .kind = FA_MEMBER_OTHER, .read = read_items},
    ROW("plan", TEXT, plan, LEFT_OUT),
    ROW("restart", FLAG, request.restart, OPTIONAL),
    ROW("budget", STRUCT, request.budget, .rules = FA_MEMBER_OPTIONAL | FA_MEMBER_STRICT,
        .members = budget_members),
    EACH(fa_sweep_ask, request.each, "seconds_each"),
    {.key = NULL},
};
#undef ROW
const fa_member fa_each_members[] = {EACH(fa_ask, request, "seconds_each"), {.key = NULL}};

int fa_sweep_ask_read(const char *text, size_t size, fa_sweep_ask *ret_ask, fa_diag *diag)
{
    fa_sweep_ask ask = {.request.size = sizeof ask.request, .request.each = usual};
    FA_OR_RETURN(fa_expect(ret_ask != NULL, "ret_ask", diag));
    int rc =
        read_struct(text, size, FA_SWEEP_ASK_TEXT_MAX, where, sweep_ask_members, true, &ask, diag);
    if (rc == 0)
        rc = check_search(ask.strategy, &ask.request.each, diag);
    if (rc != 0) {
        free(ask.items);
        return rc;
    }
    *ret_ask = ask;
    ret_ask->request.plan = ask.plan[0] != 0 ? ret_ask->plan : NULL;
    return 0;
}

/* ---- a sweep --------------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep, member, __VA_ARGS__)
const fa_member fa_sweep_members[] = {
    ROW(key, TEXT),
    ROW(plan, TEXT),
    ROW(state, CHOICE, .names = fa_sweep_state_names),
    COUNT(items),
    COUNT(done),
    COUNT(failed),
    ROW(budget, STRUCT, .members = budget_members),
    ROW(spent, STRUCT, .members = fa_sweep_spent_members),
    ROW(created, COUNT64),
    ROW(updated, COUNT64),
    {.key = NULL},
};
#undef ROW

int fa_sweep_write(const fa_sweep *sweep, char **ret_text, fa_diag *diag)
{
    return write_struct(fa_sweep_members, sweep, ret_text, diag);
}
