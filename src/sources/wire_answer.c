/* SPDX-License-Identifier: Apache-2.0
 *
 * An answer and a tune's progress as JSON. Field names are a promise: they may be joined by others,
 * never renamed.
 */
#include "fa_service.h"
#include "wire.h"

#include "request.h"

#include <string.h>

#define FUNNEL(X) X(space) X(in_budget) X(compiled) X(clean) X(proved) X(measured) X(failed)

/* ---- answer ---------------------------------------------------------------------------------*/
static void add_times(cJSON *json, const fa_answer *answer)
{
    double median = answer->trial.median_us;
    fa_json_add_known(json, "default_us", answer->default_us, answer->default_us > 0);
    fa_json_add_known(json, "speedup_over_default", median > 0 ? answer->default_us / median : 0,
                      answer->default_us > 0 && median > 0);
    fa_json_add_known(json, "tflops",
                      median > 0 ? fa_problem_nominal_flops(&answer->from_problem) / median * 1e-6
                                 : 0,
                      median > 0);
    fa_json_add_known(json, "tune_s", answer->tune_s, answer->tune_s > 0);
    bool promised = answer->promised_rank > 0;
    fa_json_add_known(json, "promised_us", answer->promised_us, promised);
    fa_json_add_known(json, "promised_measured_us", answer->promised_measured_us, promised);
    fa_json_add_known(json, "promised_rank", answer->promised_rank, promised);
}

cJSON *fa_wire_answer(const fa_answer *answer)
{
    cJSON *json = cJSON_CreateObject();
    cJSON_AddItemToObject(json, "problem", fa_problem_to_json(&answer->problem));
    cJSON_AddItemToObject(json, "gpu", fa_gpu_to_json(&answer->gpu));
    cJSON_AddStringToObject(json, "origin", fa_origin_name(answer->origin));
    cJSON_AddBoolToObject(json, "from_store", answer->from_store);
    cJSON_AddBoolToObject(json, "from_system", answer->from_system);
    if (json == NULL || !fa_trial_add_json(json, &answer->trial)) {
        cJSON_Delete(json);
        return NULL;
    }
    cJSON_AddStringToObject(json, "entry", answer->entry);
    cJSON_AddStringToObject(json, "cubin_key", answer->cubin_key);
    cJSON_AddStringToObject(json, "nvrtc", answer->nvrtc);
    fa_json_add_known(json, "driver_version", answer->driver_version, answer->driver_version > 0);
    cJSON_AddNumberToObject(json, "unix_time", (double)answer->unix_time);
    add_times(json, answer);
    cJSON *funnel = cJSON_AddObjectToObject(json, "funnel");
#define ADD(field) cJSON_AddNumberToObject(funnel, #field, answer->field);
    FUNNEL(ADD)
#undef ADD
    cJSON_AddNumberToObject(json, "ties", answer->ties);
    cJSON_AddItemToObject(json, "from_problem", fa_problem_to_json(&answer->from_problem));
    if (answer->from_gpu[0] != 0)
        cJSON_AddStringToObject(json, "from_gpu", answer->from_gpu);
    else
        cJSON_AddNullToObject(json, "from_gpu");
    cJSON_AddStringToObject(json, "why", answer->why);
    if (cJSON_AddBoolToObject(json, "top_few", answer->top_few) == NULL) {
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

int fa_answer_write(const fa_answer *answer, char **ret_text, fa_diag *diag)
{
    if (answer == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "answer or ret_text is NULL");
    return fa_wire_print(fa_wire_answer(answer), ret_text, diag);
}

/* A problem with every field there. */
static int whole_problem(const cJSON *json, const char *key, fa_problem *ret, fa_diag *diag)
{
    const cJSON *object = NULL;
    fa_problem problem = {0};
    int rc = fa_wire_object(json, key, "answer", &object, diag);
    if (rc != 0)
        return rc;
    rc = fa_problem_from_strict_json(object, FA_NEED_ALL, NULL, &problem, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc == FA_ENOTSUP ? FA_EINVAL : rc, "answer: \"%s\"", key);
    *ret = problem;
    return 0;
}

static int read_names(const cJSON *json, fa_answer *answer, fa_diag *diag)
{
    static const char where[] = "answer";
    char origin[FA_NAME_MAX] = "";
    int rc = fa_json_copy_needed(json, "origin", origin, sizeof origin, where, diag);
    if (rc == 0 && fa_origin_parse(origin, &answer->origin) != 0)
        rc = fa_fail(diag, FA_EINVAL, "answer: there is no origin \"%s\"", origin);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "entry", answer->entry, sizeof answer->entry, where, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "cubin_key", answer->cubin_key, sizeof answer->cubin_key,
                                 where, diag);
    size_t length = strlen(answer->cubin_key);
    if (rc == 0 && length != 0 &&
        (length != 64 || strspn(answer->cubin_key, "0123456789abcdef") != 64))
        rc = fa_fail(diag, FA_EINVAL, "answer: \"cubin_key\" is not 64 hexadecimal digits");
    if (rc == 0)
        rc = fa_json_copy_needed(json, "nvrtc", answer->nvrtc, sizeof answer->nvrtc, where, diag);
    if (rc == 0)
        rc = fa_json_copy_needed(json, "why", answer->why, sizeof answer->why, where, diag);
    if (rc == 0 && !cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "from_gpu")))
        rc = fa_json_copy_needed(json, "from_gpu", answer->from_gpu, sizeof answer->from_gpu, where,
                                 diag);
    return rc;
}

static int read_numbers(const cJSON *json, fa_answer *answer, fa_diag *diag)
{
    const cJSON *funnel = NULL;
    int64_t time = 0;
    int rc = fa_json_int_known(json, "driver_version", &answer->driver_version, "answer", diag);
    if (rc == 0)
        rc = fa_json_int_needed(json, "unix_time", 0, (int64_t)1 << 40, &time, "answer", diag);
    answer->unix_time = time;
    const struct {
        const char *key;
        double *value;
    } reals[] = {{"default_us", &answer->default_us},
                 {"tune_s", &answer->tune_s},
                 {"promised_us", &answer->promised_us},
                 {"promised_measured_us", &answer->promised_measured_us}};
    for (size_t i = 0; rc == 0 && i < sizeof reals / sizeof *reals; i++)
        rc = fa_json_real_known(json, reals[i].key, reals[i].value, "answer", diag);
    if (rc == 0)
        rc = fa_json_int_known(json, "promised_rank", &answer->promised_rank, "answer", diag);
    if (rc == 0)
        rc = fa_json_int_known(json, "ties", &answer->ties, "answer", diag);
    if (rc == 0)
        rc = fa_wire_object(json, "funnel", "answer", &funnel, diag);
#define READ(field) \
    if (rc == 0)    \
        rc = fa_json_int_known(funnel, #field, &answer->field, "answer", diag);
    FUNNEL(READ)
#undef READ
    return rc;
}

int fa_wire_answer_from(const cJSON *json, fa_answer *ret_answer, fa_diag *diag)
{
    static const char where[] = "answer";
    fa_answer answer = {.size = sizeof answer};
    const cJSON *gpu = NULL;
    int rc = whole_problem(json, "problem", &answer.problem, diag);
    if (rc == 0)
        rc = whole_problem(json, "from_problem", &answer.from_problem, diag);
    if (rc == 0)
        rc = fa_wire_object(json, "gpu", where, &gpu, diag);
    if (rc == 0)
        rc = fa_gpu_from_json(gpu, &answer.gpu, diag);
    if (rc == 0)
        rc = fa_trial_from_json(json, &answer.trial, diag);
    if (rc == 0)
        rc = read_names(json, &answer, diag);
    if (rc == 0)
        rc = read_numbers(json, &answer, diag);
    if (rc == 0)
        rc = fa_json_bool_needed(json, "from_store", &answer.from_store, where, diag);
    if (rc == 0)
        rc = fa_json_bool_needed(json, "from_system", &answer.from_system, where, diag);
    if (rc == 0)
        rc = fa_json_bool_needed(json, "top_few", &answer.top_few, where, diag);
    if (rc == 0)
        *ret_answer = answer;
    return rc;
}

int fa_answer_read(const char *text, size_t size, fa_answer *ret_answer, fa_diag *diag)
{
    cJSON *json = NULL;
    fa_answer answer;
    int rc = fa_answer_check(ret_answer, diag);
    if (rc == 0)
        rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "answer", &json, diag);
    if (rc == 0)
        rc = fa_wire_answer_from(json, &answer, diag);
    cJSON_Delete(json);
    if (rc == 0)
        fa_answer_give(&answer, ret_answer);
    return rc;
}

/* ---- progress -------------------------------------------------------------------------------*/
static const char *const kinds[] = {"stage", "trial", "progress"};
static const char *const stages[] = {"wait", "tune", "final", "done"};
enum { KINDS = sizeof kinds / sizeof *kinds, STAGES = sizeof stages / sizeof *stages };

#define PROGRESS_COUNTS(X)                                                       \
    X(space)                                                                     \
    X(in_budget) X(compiled) X(clean) X(proved) X(measured) X(failed) X(resumed) \
        X(compile_workers) X(reused)

static void add_trial(cJSON *json, const char *key, const fa_trial *trial)
{
    cJSON *object = trial != NULL ? cJSON_AddObjectToObject(json, key) : NULL;
    if (trial == NULL)
        cJSON_AddNullToObject(json, key);
    else if (object != NULL)
        fa_trial_add_json(object, trial);
}

cJSON *fa_wire_progress(const fa_progress *p)
{
    cJSON *json = cJSON_CreateObject();
    unsigned kind = (unsigned)p->kind, stage = (unsigned)p->stage;
    cJSON_AddStringToObject(json, "kind", kind < KINDS ? kinds[kind] : "progress");
    cJSON_AddStringToObject(json, "stage", stage < STAGES ? stages[stage] : "tune");
#define ADD(field) cJSON_AddNumberToObject(json, #field, p->field);
    PROGRESS_COUNTS(ADD)
#undef ADD
    fa_json_add_known(json, "elapsed_s", p->elapsed_s, p->elapsed_s > 0);
    fa_json_add_known(json, "left_s", p->left_s, p->left_s >= 0);
    add_trial(json, "trial", p->trial);
    add_trial(json, "best", p->best);
    fa_json_add_known(json, "default_us", p->default_us, p->default_us > 0);
    return json;
}

int fa_progress_write(const fa_progress *progress, char **ret_text, fa_diag *diag)
{
    if (progress == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "progress or ret_text is NULL");
    return fa_wire_print(fa_wire_progress(progress), ret_text, diag);
}

static int read_trial(const cJSON *json, const char *key, fa_trial *trial, const fa_trial **ret,
                      fa_diag *diag)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(json, key);
    if (object == NULL)
        return fa_fail(diag, FA_EINVAL, "progress: \"%s\" is missing", key);
    if (cJSON_IsNull(object))
        return 0;
    int rc = fa_trial_from_json(object, trial, diag);
    if (rc == 0)
        *ret = trial;
    return rc;
}

int fa_wire_progress_from(const cJSON *json, fa_progress *ret_progress, fa_trial *ret_trial,
                          fa_trial *ret_best, fa_diag *diag)
{
    static const char where[] = "progress";
    fa_progress p = {0};
    fa_trial trial, best;
    const fa_trial *has_trial = NULL, *has_best = NULL;
    int kind = 0, stage = 0;
    int rc = fa_wire_choice(json, "kind", kinds, KINDS, &kind, where, diag);
    if (rc == 0)
        rc = fa_wire_choice(json, "stage", stages, STAGES, &stage, where, diag);
#define READ(field) \
    if (rc == 0)    \
        rc = fa_json_int_known(json, #field, &p.field, where, diag);
    PROGRESS_COUNTS(READ)
#undef READ
    if (rc == 0)
        rc = fa_json_real_known(json, "elapsed_s", &p.elapsed_s, where, diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "left_s", &p.left_s, where, diag);
    if (rc == 0)
        rc = fa_json_real_known(json, "default_us", &p.default_us, where, diag);
    if (rc == 0)
        rc = read_trial(json, "trial", &trial, &has_trial, diag);
    if (rc == 0)
        rc = read_trial(json, "best", &best, &has_best, diag);
    if (rc != 0)
        return rc;
    if (cJSON_IsNull(cJSON_GetObjectItemCaseSensitive(json, "left_s")))
        p.left_s = -1;
    p.kind = (fa_event_kind)kind;
    p.stage = (fa_stage)stage;
    if (has_trial != NULL) {
        *ret_trial = trial;
        p.trial = ret_trial;
    }
    if (has_best != NULL) {
        *ret_best = best;
        p.best = ret_best;
    }
    *ret_progress = p;
    return 0;
}

int fa_progress_read(const char *text, size_t size, fa_progress *ret_progress, fa_trial *ret_trial,
                     fa_trial *ret_best, fa_diag *diag)
{
    cJSON *json = NULL;
    if (ret_progress == NULL || ret_trial == NULL || ret_best == NULL)
        return fa_fail(diag, FA_EINVAL, "ret_progress, ret_trial or ret_best is NULL");
    int rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "progress", &json, diag);
    if (rc == 0)
        rc = fa_wire_progress_from(json, ret_progress, ret_trial, ret_best, diag);
    cJSON_Delete(json);
    return rc;
}
