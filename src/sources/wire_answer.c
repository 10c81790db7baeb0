/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer, a tune's progress, a sweep and its events as JSON. Field names are stable: fields may be added, and
 * none is renamed.
 */
#include "fa_service.h"
#include "json_make.h"
#include "request.h"
#include "trial.h"
#include "wire.h"

#include <string.h>

/* ---- answer ---------------------------------------------------------------------------------*/
static int read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return fa_wire_problem(json, FA_NEED_ALL, ret_problem, diag);
}

static int read_gpu(const cJSON *json, void *ret_gpu, fa_diag *diag)
{
    return cJSON_IsObject(json) ? fa_gpu_from_json(json, ret_gpu, diag)
                                : fa_fail(diag, FA_EINVAL, "answer: \"gpu\" must be an object");
}

/* ---- the table ------------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_answer, member, __VA_ARGS__)
#define COUNT(member) ROW(member, COUNT, .rules = FA_MEMBER_NULL)
#define PROBLEM(member) ROW(member, OTHER, .write = fa_member_problem, .read = read_problem)
#define UNKNOWN .rules = FA_MEMBER_UNKNOWN

static const fa_member funnel[] = {
    COUNT(space),  COUNT(in_budget), COUNT(compiled), COUNT(clean),
    COUNT(proved), COUNT(measured),  COUNT(failed),   {.key = NULL},
};

static const fa_member answer_members[] = {
    PROBLEM(problem),
    ROW(gpu, OTHER, .write = fa_member_gpu, .read = read_gpu),
    ROW(origin, CHOICE, .names = fa_origin_names),
    ROW(from_store, FLAG),
    ROW(from_system, FLAG),
    ROW(in_local, FLAG),
    ROW(in_fleet, FLAG),
    ROW(trial, PART, .members = fa_trial_members),
    ROW(entry, TEXT),
    ROW(cubin_key, TEXT),
    ROW(nvrtc, TEXT),
    ROW(driver_version, COUNT, UNKNOWN),
    ROW(unix_time, COUNT64, .most = (int64_t)1 << 40),
    ROW(default_us, REAL, UNKNOWN),
    ROW(tune_s, REAL, UNKNOWN),
    ROW(model_choice_predicted_us, REAL, UNKNOWN),
    ROW(model_choice_measured_us, REAL, UNKNOWN),
    ROW(model_choice_rank, COUNT, UNKNOWN),
    {.key = "funnel", .kind = FA_MEMBER_STRUCT, .members = funnel},
    COUNT(ties),
    PROBLEM(from_problem),
    ROW(from_gpu, TEXT, UNKNOWN),
    ROW(why, TEXT),
    ROW(shortlist_only, FLAG),
    ROW(strategy, TEXT, .rules = FA_MEMBER_LEFT_OUT),
    ROW(space_estimated, FLAG, .rules = FA_MEMBER_LEFT_OUT),
    {.key = NULL},
};
#undef ROW

static cJSON *write_answer(const fa_answer *answer)
{
    fa_answer known = *answer;
    double median = answer->trial.median_us;
    double flops = fa_problem_nominal_flops(&answer->from_problem);
    known.trial = fa_trial_known(&answer->trial);
    cJSON *json = fa_struct_to_json(answer_members, &known);
    fa_json_add_known(json, "speedup_over_default", median > 0 ? answer->default_us / median : 0,
                      median > 0 && answer->default_us > 0);
    fa_json_add_known(json, "tflops", median > 0 ? flops / median * 1e-6 : 0, median > 0);
    return json;
}

int fa_wire_read_answer(const cJSON *json, fa_answer *ret_answer, fa_diag *diag)
{
    fa_answer answer = {.size = sizeof answer};
    int rc = fa_struct_from_json(json, answer_members, &answer, "answer", diag);
    if (rc == 0 && answer.cubin_key[0] != 0 && !fa_wire_is_hash(answer.cubin_key))
        rc = fa_fail(diag, FA_EINVAL, "answer: \"cubin_key\" is not 64 hexadecimal digits");
    if (rc != 0)
        return rc;
    fa_trial_settle(&answer.trial);
    *ret_answer = answer;
    return 0;
}

int fa_answer_write(const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    if (answer == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "answer or ret_text is NULL");
    return fa_wire_print(write_answer(answer), ret_text, diag);
}

int fa_answer_read(const char *text, size_t size, fa_answer *ret_answer, fa_diag *diag)
{
    cJSON *json = NULL;
    fa_answer answer;
    int rc = fa_answer_check(ret_answer, diag);
    if (rc == 0)
        rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "answer", &json, diag);
    if (rc == 0)
        rc = fa_wire_read_answer(json, &answer, diag);
    cJSON_Delete(json);
    if (rc == 0)
        fa_answer_give(&answer, ret_answer);
    return rc;
}

/* ---- progress -------------------------------------------------------------------------------*/
static cJSON *write_trial(const void *member)
{
    const fa_trial *trial = *(const fa_trial *const *)member;
    if (trial == NULL)
        return cJSON_CreateNull();
    cJSON *json = cJSON_CreateObject();
    if (json != NULL && fa_trial_add_json(json, trial))
        return json;
    cJSON_Delete(json);
    return NULL;
}

/* The member points to where a trial may be put. */
static int read_trial(const cJSON *json, void *member, fa_diag *diag)
{
    fa_trial **trial = member;
    if (json == NULL)
        return fa_fail(diag, FA_EINVAL, "progress: \"trial\" or \"best\" is missing");
    if (!cJSON_IsNull(json))
        return fa_trial_from_json(json, *trial, diag);
    *trial = NULL;
    return 0;
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
    ROW(trial, OTHER, .write = write_trial, .read = read_trial),
    ROW(best, OTHER, .write = write_trial, .read = read_trial),
    ROW(default_us, REAL, UNKNOWN),
    ROW(ended, COUNT, .rules = FA_MEMBER_OPTIONAL), /* absent from earlier versions' */
    {.key = NULL},
};
#undef ROW

static cJSON *write_progress(const fa_progress *progress)
{
    return fa_struct_to_json(progress_members, progress);
}

static int read_progress(const cJSON *json, fa_progress *ret_progress, fa_trial *ret_trial,
                         fa_trial *ret_best, fa_diag *diag)
{
    fa_trial trial, best;
    fa_progress progress = {.trial = &trial, .best = &best};
    int rc = fa_struct_from_json(json, progress_members, &progress, "progress", diag);
    if (rc != 0)
        return rc;
    if (progress.trial != NULL) {
        *ret_trial = trial;
        progress.trial = ret_trial;
    }
    if (progress.best != NULL) {
        *ret_best = best;
        progress.best = ret_best;
    }
    *ret_progress = progress;
    return 0;
}

int fa_progress_write(const fa_progress *progress, char **ret_text, fa_diag *diag)
{
    if (progress == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "progress or ret_text is NULL");
    return fa_wire_print(write_progress(progress), ret_text, diag);
}

int fa_progress_read(const char *text, size_t size, fa_progress *ret_progress, fa_trial *ret_trial,
                     fa_trial *ret_best, fa_diag *diag)
{
    cJSON *json = NULL;
    if (ret_progress == NULL || ret_trial == NULL || ret_best == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_progress, ret_trial or ret_best is NULL");
    int rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "progress", &json, diag);
    if (rc == 0)
        rc = read_progress(json, ret_progress, ret_trial, ret_best, diag);
    cJSON_Delete(json);
    return rc;
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

static int pass_over(const cJSON *json, void *data, fa_diag *diag)
{
    (void)json, (void)data, (void)diag;
    return 0;
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

/* ---- a sweep's events ----------------------------------------------------------------------*/
static int read_item_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return fa_wire_problem(json, FA_NEED_SIZES, ret_problem, diag);
}

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_sweep_item, member, __VA_ARGS__)
static const fa_member item_members[] = {
    ROW(problem, OTHER, .write = fa_member_problem, .read = read_item_problem),
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
        fa_json_add(json, "tune", p->tune != NULL ? write_progress(p->tune) : cJSON_CreateNull()) &&
        fa_json_add(json, "answer",
                    p->answer != NULL ? write_answer(p->answer) : cJSON_CreateNull());
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
        rc = read_progress(tune, &parts->tune, &parts->trial, &parts->best, diag);
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
