/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer and a tune's progress as JSON. Field names are a promise: they may be joined by others,
 * never renamed.
 */
#include "fa_service.h"
#include "wire.h"
#include "json_make.h"

#include "request.h"
#include "trial.h"

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

/* The members before a trial's, those between them and what is computed, and the others. */
static const fa_member answer_head[] = {
    PROBLEM(problem),
    ROW(gpu, OTHER, .write = fa_member_gpu, .read = read_gpu),
    ROW(origin, CHOICE, .names = fa_origin_names),
    ROW(from_store, FLAG),
    ROW(from_system, FLAG),
    ROW(in_local, FLAG),
    ROW(in_fleet, FLAG),
    {.key = NULL},
};
static const fa_member answer_body[] = {
    ROW(entry, TEXT),
    ROW(cubin_key, TEXT),
    ROW(nvrtc, TEXT),
    ROW(driver_version, COUNT, UNKNOWN),
    ROW(unix_time, COUNT64, .most = (int64_t)1 << 40),
    ROW(default_us, REAL, UNKNOWN),
    {.key = NULL},
};
static const fa_member answer_tail[] = {
    ROW(tune_s, REAL, UNKNOWN),
    ROW(promised_us, REAL, UNKNOWN),
    ROW(promised_measured_us, REAL, UNKNOWN),
    ROW(promised_rank, COUNT, UNKNOWN),
    {.key = "funnel", .kind = FA_MEMBER_STRUCT, .members = funnel},
    COUNT(ties),
    PROBLEM(from_problem),
    ROW(from_gpu, TEXT, UNKNOWN),
    ROW(why, TEXT),
    ROW(top_few, FLAG),
    {.key = NULL},
};
#undef ROW

cJSON *fa_wire_write_answer(const fa_answer *answer)
{
    double median = answer->trial.median_us;
    double speedup = median > 0 ? answer->default_us / median : 0;
    double flops = fa_problem_nominal_flops(&answer->from_problem);
    cJSON *json = cJSON_CreateObject();
    bool whole = json != NULL && fa_struct_add_json(json, answer_head, answer) &&
                 fa_trial_add_json(json, &answer->trial) &&
                 fa_struct_add_json(json, answer_body, answer);
    if (whole) {
        fa_json_add_known(json, "speedup_over_default", speedup, speedup > 0);
        fa_json_add_known(json, "tflops", median > 0 ? flops / median * 1e-6 : 0, median > 0);
    }
    if (whole && fa_struct_add_json(json, answer_tail, answer))
        return json;
    cJSON_Delete(json);
    return NULL;
}

int fa_wire_read_answer(const cJSON *json, fa_answer *ret_answer, fa_diag *diag)
{
    static const char where[] = "answer";
    fa_answer answer = {.size = sizeof answer};
    int rc = fa_struct_from_json(json, answer_head, &answer, where, diag);
    if (rc == 0)
        rc = fa_trial_from_json(json, &answer.trial, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, answer_body, &answer, where, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, answer_tail, &answer, where, diag);
    if (rc == 0 && answer.cubin_key[0] != 0 && !fa_wire_is_hash(answer.cubin_key))
        rc = fa_fail(diag, FA_EINVAL, "answer: \"cubin_key\" is not 64 hexadecimal digits");
    if (rc == 0)
        *ret_answer = answer;
    return rc;
}

int fa_answer_write(const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    if (answer == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "answer or ret_text is NULL");
    return fa_wire_print(fa_wire_write_answer(answer), ret_text, diag);
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

cJSON *fa_wire_write_progress(const fa_progress *progress)
{
    return fa_struct_to_json(progress_members, progress);
}

int fa_wire_read_progress(const cJSON *json, fa_progress *ret_progress, fa_trial *ret_trial,
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
    return fa_wire_print(fa_wire_write_progress(progress), ret_text, diag);
}

int fa_progress_read(const char *text, size_t size, fa_progress *ret_progress, fa_trial *ret_trial,
                     fa_trial *ret_best, fa_diag *diag)
{
    cJSON *json = NULL;
    if (ret_progress == NULL || ret_trial == NULL || ret_best == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_progress, ret_trial or ret_best is NULL");
    int rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "progress", &json, diag);
    if (rc == 0)
        rc = fa_wire_read_progress(json, ret_progress, ret_trial, ret_best, diag);
    cJSON_Delete(json);
    return rc;
}
