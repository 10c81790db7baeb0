/* SPDX-License-Identifier: Apache-2.0
 *
 * Trials that travel with a winner, in its evidence: in a bundle, and in a line that `fa-tune show FILE.fab --json` has of
 * it, alike.
 *
 * Workload: some dozen measured trials a winner, the best of them with their samples. What is read may
 * be anybody's.
 *
 *   "trials": [{"config":{…},"predicted_us":…,"median_us":…,"low_us":…,"high_us":…,"max_error":…,"tolerance":…,
 *               "raced":true,"seed":"…","environment":{…},"clocks":{…},"samples_us":[…]},…] */
#include "bundle.h"

#include "error.h"
#include "json.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double rounded(double us)
{
    return us > 0 ? rint(us * 1e3) / 1e3 : 0; /* to the nanosecond: events resolve less */
}

/* ---- what is kept of a trial ----------------------------------------------------------------*/
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT | FA_MEMBER_NULL
#define ROW(kind, member, ...) FA_MEMBER(#member, kind, fa_trial, member, __VA_ARGS__)
const fa_member fa_timed_members[] = {
    FA_CONFIG_MEMBER(fa_trial, config), ROW(NUMBER, predicted_us, LEFT_OUT),
    ROW(NUMBER, median_us, LEFT_OUT),   ROW(NUMBER, low_us, LEFT_OUT),
    ROW(NUMBER, high_us, LEFT_OUT),     ROW(COUNT, sample_count, LEFT_OUT),
    ROW(NUMBER, max_error, LEFT_OUT),   ROW(NUMBER, tolerance, LEFT_OUT),
    ROW(FLAG, raced, LEFT_OUT),         {.key = NULL},
};
#undef ROW

/* Written so that NaN is no time. */
bool fa_trial_is_timed(const fa_trial *trial)
{
    return trial->low_us > 0 && trial->low_us <= trial->median_us &&
           trial->median_us <= trial->high_us && trial->high_us < FA_US_MAX &&
           trial->predicted_us >= 0 && trial->predicted_us < FA_US_MAX;
}

/* ---- written --------------------------------------------------------------------------------*/
/* What made the trial, without the names of the machine and of its GPU, which are nobody's business. */
static void add_environment(cJSON *json, const char *name, const char *text)
{
    cJSON *environment;
    if (fa_json_parse_object(text, name, &environment, NULL) != 0) {
        fa_json_add(json, name, NULL); /* it will not be printed */
    } else if (environment != NULL) {
        cJSON_DeleteItemFromObjectCaseSensitive(environment, "host");
        cJSON_DeleteItemFromObjectCaseSensitive(environment, "uuid");
        fa_json_add(json, name, environment);
    }
}

/* With times to the nanosecond, and 0 for what is not known. */
static cJSON *write_trial(const fa_study_trial *record)
{
    fa_trial trial = record->trial;
    char seed[24]; /* as text: cJSON writes 15 digits of a number */
    trial.predicted_us = rounded(trial.predicted_us);
    trial.median_us = rounded(trial.median_us);
    trial.low_us = rounded(trial.low_us);
    trial.high_us = rounded(trial.high_us);
    if (!(isfinite(trial.max_error) && isfinite(trial.tolerance) && trial.tolerance > 0))
        trial.max_error = trial.tolerance = 0;
    trial.sample_count = 0; /* as many as there are */
    cJSON *json = fa_struct_to_json(fa_timed_members, &trial);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)record->seed);
    if (record->seed != 0)
        fa_json_add_text(json, "seed", seed);
    add_environment(json, "environment", record->environment);
    add_environment(json, "clocks", record->clocks);
    if (record->sample_count > 0) {
        cJSON *samples = fa_json_add_array(json, "samples_us");
        for (int32_t i = 0; i < record->sample_count && i < FA_TRIAL_SAMPLES_MAX; i++)
            fa_json_push(samples, cJSON_CreateNumber(rounded((double)record->samples_us[i])));
    }
    return json;
}

/* ---- read -----------------------------------------------------------------------------------*/
static bool read_samples(const cJSON *array, float samples[FA_TRIAL_SAMPLES_MAX],
                         int32_t *ret_count)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, array) {
        if (*ret_count == FA_TRIAL_SAMPLES_MAX || !cJSON_IsNumber(item) ||
            !(item->valuedouble >= 0 && item->valuedouble <= FA_US_MAX))
            return false;
        samples[(*ret_count)++] = (float)item->valuedouble;
    }
    return array == NULL || cJSON_IsArray(array);
}

static int print_object(const cJSON *json, char **ret_text)
{
    *ret_text = cJSON_IsObject(json) ? fa_json_print(json) : NULL;
    return cJSON_IsObject(json) && *ret_text == NULL ? FA_ENOMEM : 0;
}

static int read_trial(const cJSON *json, fa_list *list, fa_diag *diag)
{
    float samples[FA_TRIAL_SAMPLES_MAX];
    fa_study_trial record = {.samples_us = samples,
                             .trial = {.status = FA_STATUS_MEASURED, .blocks_per_sm = -1}};
    fa_trial *trial = &record.trial;
    const char *seed = NULL;
    FA_ENDS(fa_free_at) char *environment = NULL;
    FA_ENDS(fa_free_at) char *clocks = NULL;
    FA_OR_RETURN(fa_struct_from_json(json, fa_timed_members, trial, "trials", diag));
    if (!fa_trial_is_timed(trial) ||
        !read_samples(fa_json_member(json, "samples_us"), samples, &record.sample_count))
        return fa_fail(diag, FA_EINVAL,
                       "trials: each has its median in its interval and at most %d samples",
                       FA_TRIAL_SAMPLES_MAX);
    trial->sample_count = record.sample_count;
    if (fa_json_text(json, "seed", &seed, "trials", NULL) == 0)
        record.seed = strtoull(seed, NULL, 10);
    int rc = print_object(fa_json_member(json, "environment"), &environment);
    if (rc == 0)
        rc = print_object(fa_json_member(json, "clocks"), &clocks);
    record.environment = environment;
    record.clocks = clocks;
    if (rc == 0)
        fa_trials_add(list, &record);
    return rc == 0 ? 0 : fa_fail(diag, rc, "out of memory for evidence");
}

int fa_trials_from_json(const cJSON *json, fa_study_trial **ret_rows, size_t *ret_count,
                        fa_diag *diag)
{
    const cJSON *item;
    fa_list list = {0};
    int rc = 0;
    if (json != NULL && (!cJSON_IsArray(json) || cJSON_GetArraySize(json) > FA_TRIAL_LIST_MAX))
        return fa_fail(diag, FA_EINVAL, "\"trials\" must be an array of at most %d",
                       FA_TRIAL_LIST_MAX);
    cJSON_ArrayForEach (item, json)
        if (rc == 0)
            rc = read_trial(item, &list, diag);
    return fa_trials_end(&list, rc, ret_rows, ret_count, diag);
}

int fa_trials_from_evidence(const char *evidence, fa_study_trial **ret_rows, size_t *ret_count,
                            fa_diag *diag)
{
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    fa_list list = {0};
    int rc = fa_json_parse_object(evidence, "evidence", &json, diag);
    const cJSON *trials = fa_json_member(json, "trials"), *item;
    cJSON_ArrayForEach (item, trials) {
        if (rc == FA_ENOMEM || list.count == FA_TRIAL_LIST_MAX || !cJSON_IsArray(trials))
            break;
        rc = read_trial(item, &list, NULL);
    }
    rc = rc == FA_ENOMEM ? fa_fail(diag, rc, "out of memory for evidence") : 0;
    return fa_trials_end(&list, rc, ret_rows, ret_count, diag);
}

int fa_trials_join(const fa_study_trial *rows, size_t count, char **evidence, fa_diag *diag)
{
    cJSON *json;
    FA_OR_RETURN(fa_json_parse_object(*evidence, "evidence", &json, diag));
    cJSON_DeleteItemFromObjectCaseSensitive(json, "trials");
    cJSON *trials = fa_json_add_array(json, "trials");
    for (size_t i = 0; i < count; i++)
        fa_json_push(trials, write_trial(&rows[i]));
    char *text = fa_json_finish(json);
    FA_OR_RETURN(fa_have(text != NULL, "evidence", diag));
    free(*evidence);
    *evidence = text;
    return 0;
}
