/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer, a tune's progress, a sweep and its events as JSON. Field names are stable: fields may be added, and
 * none is renamed.
 */
#include "fa_service.h"
#include "json.h"
#include "request.h"
#include "trial.h"
#include "wire.h"

#include <string.h>

/* ---- answer ---------------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define COUNT(member) ROW(member, COUNT, .rules = FA_MEMBER_NULL)
#define PROBLEM(member, read_) ROW(member, OTHER, .write = fa_member_problem, .read = read_)
#define UNKNOWN .rules = FA_MEMBER_UNKNOWN

static const fa_member funnel[] = {
    COUNT(space),  COUNT(in_budget), COUNT(compiled), COUNT(clean),
    COUNT(proved), COUNT(measured),  COUNT(failed),   {.key = NULL},
};

static const fa_member answer_members[] = {
    PROBLEM(problem, fa_member_read_whole_problem),
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
    {.key = "funnel", .kind = FA_MEMBER_STRUCT, .members = funnel},
    COUNT(ties),
    PROBLEM(from_problem, fa_member_read_whole_problem),
    ROW(from_gpu, TEXT, UNKNOWN),
    ROW(why, TEXT),
    ROW(shortlist_only, FLAG),
    ROW(strategy, TEXT, .rules = FA_MEMBER_LEFT_OUT),
    ROW(space_estimated, FLAG, .rules = FA_MEMBER_LEFT_OUT),
    ROW(undated, FLAG, .rules = FA_MEMBER_LEFT_OUT),
    {.key = NULL},
};
#undef ROW

static cJSON *write_answer(const void *data)
{
    const fa_answer *answer = data;
    fa_answer known = *answer;
    double median = answer->trial.median_us;
    double flops = fa_problem_nominal_flops(&answer->from_problem);
    bool own = median > 0 && answer->origin != FA_ORIGIN_NEAREST; /* no time of another problem */
    known.trial = fa_trial_known(&answer->trial);
    cJSON *json = fa_struct_to_json(answer_members, &known);
    fa_json_add_known(json, "speedup_over_default", median > 0 ? answer->default_us / median : 0,
                      median > 0 && answer->default_us > 0);
    fa_json_add_known(json, "tflops", own ? flops / median * 1e-6 : 0, own);
    return json;
}

int fa_wire_read_answer(const cJSON *json, void *ret_answer, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    int rc;
    if ((rc = fa_wire_object(json, "answer", diag)) != 0 ||
        (rc = fa_struct_from_json(json, answer_members, &answer, "answer", diag)) != 0)
        return rc;
    if (answer.cubin_key[0] != 0 && !fa_wire_is_hash(answer.cubin_key))
        return fa_fail(diag, FA_EINVAL, "answer: \"cubin_key\" is not 64 hexadecimal digits");
    fa_trial_settle(&answer.trial);
    memcpy(ret_answer, &answer, sizeof answer);
    return 0;
}

int fa_answer_write(const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    if (answer == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "answer or ret_text is NULL");
    return fa_wire_print(write_answer(answer), ret_text, diag);
}

/* ---- progress -------------------------------------------------------------------------------*/
static cJSON *write_trial(const void *trial)
{
    fa_trial known = fa_trial_known(trial);
    return fa_struct_to_json(fa_trial_members, &known);
}

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
    ROW(left_s, REAL, .rules = FA_MEMBER_MINUS),
    ROW(trial, POINTED, .rules = FA_MEMBER_NULL, .write = write_trial),
    ROW(best, POINTED, .rules = FA_MEMBER_NULL, .write = write_trial),
    ROW(default_us, REAL, UNKNOWN),
    ROW(ended, COUNT, .rules = FA_MEMBER_OPTIONAL), /* absent from earlier versions' */
    {.key = NULL},
};
#undef ROW

int fa_progress_write(const fa_progress *progress, char **ret_text, fa_diag *diag)
{
    if (progress == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "progress or ret_text is NULL");
    return fa_wire_print(fa_struct_to_json(progress_members, progress), ret_text, diag);
}

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
    {.key = "left", .kind = FA_MEMBER_OTHER, .write = write_left},
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

/* ---- a sweep's events ----------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member item_members[] = {
    PROBLEM(problem, NULL), ROW(gpu, TEXT),    ROW(state, CHOICE, .names = fa_item_state_names),
    COUNT(attempts),        ROW(reason, TEXT), ROW(spent, STRUCT, .members = spent_members),
    {.key = NULL},
};
#undef ROW

static const char *const events[] = {"begins", "tunes", "ends", "known", NULL};

#define MAY_LACK .rules = FA_MEMBER_NULL | FA_MEMBER_OPTIONAL
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_progress, member, __VA_ARGS__)
static const fa_member event_members[] = {
    ROW(event, CHOICE, .names = events),
    COUNT(index),
    ROW(elapsed_s, REAL, .rules = FA_MEMBER_UNKNOWN),
    ROW(left_s, REAL, .rules = FA_MEMBER_MINUS),
    ROW(sweep, POINTED, .members = sweep_members),
    ROW(item, POINTED, .members = item_members),
    ROW(tune, POINTED, MAY_LACK, .members = progress_members),
    ROW(answer, POINTED, MAY_LACK, .write = write_answer),
    {.key = NULL},
};
#undef ROW

int fa_sweep_event_write(const fa_sweep_progress *progress, char **ret_text, fa_diag *diag)
{
    if (progress == NULL || ret_text == NULL || progress->sweep == NULL || progress->item == NULL)
        return fa_fail(diag, FA_EINVAL, "progress, its sweep or item, or ret_text is NULL");
    return fa_wire_print(fa_struct_to_json(event_members, progress), ret_text, diag);
}
