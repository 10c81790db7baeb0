/* SPDX-License-Identifier: Apache-2.0 */
#include "trial_list.h"

#include "error.h"
#include "json_make.h"
#include "problem.h"
#include "trial.h"
#include "tunable.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double longest_us = 1e12; /* eleven days */

/* ---- in memory ------------------------------------------------------------------------------*/
void fa_trial_list_lighten(fa_trial_record *record)
{
    free((void *)(uintptr_t)record->samples_us);
    free((void *)(uintptr_t)record->environment);
    free((void *)(uintptr_t)record->clocks);
    record->samples_us = NULL;
    record->environment = record->clocks = NULL;
    record->sample_count = 0;
}

void fa_trial_list_cut(fa_trial_list *list, size_t left)
{
    while (list->count > left)
        fa_trial_list_lighten(&list->record[--list->count]);
}

void fa_trial_list_free(fa_trial_list *list)
{
    fa_trial_list_cut(list, 0);
    free(list->record);
    *list = (fa_trial_list){0};
}

int fa_trial_list_add(fa_trial_list *list, const fa_trial_record *record)
{
    fa_trial_record *grown =
        fa_grow(list->record, &list->capacity, list->count, sizeof *list->record);
    if (grown == NULL)
        return FA_ENOMEM;
    list->record = grown;
    int32_t count = record->samples_us == NULL                      ? 0
                    : record->sample_count > FA_TRIAL_SAMPLES_MAX ? FA_TRIAL_SAMPLES_MAX
                                                                    : record->sample_count;
    fa_trial_record copy = *record;
    float *samples = count > 0 ? malloc((size_t)count * sizeof *samples) : NULL;
    if (samples != NULL)
        memcpy(samples, record->samples_us, (size_t)count * sizeof *samples);
    copy.samples_us = samples;
    copy.sample_count = count;
    copy.environment = record->environment != NULL ? strdup(record->environment) : NULL;
    copy.clocks = record->clocks != NULL ? strdup(record->clocks) : NULL;
    if ((count > 0 && samples == NULL) ||
        (record->environment != NULL && copy.environment == NULL) ||
        (record->clocks != NULL && copy.clocks == NULL)) {
        fa_trial_list_lighten(&copy);
        return FA_ENOMEM;
    }
    list->record[list->count++] = copy;
    return 0;
}

/* Written so that NaN is no time. */
static bool times_are_good(const fa_trial *trial)
{
    return trial->low_us > 0 && trial->low_us <= trial->median_us &&
           trial->median_us <= trial->high_us && trial->high_us < longest_us &&
           trial->predicted_us >= 0 && trial->predicted_us < longest_us;
}

static double rounded(double us)
{
    return rint(us * 1e3) / 1e3; /* to the nanosecond: events resolve less */
}

static bool is_number(const cJSON *item, double least, double most)
{
    return cJSON_IsNumber(item) && item->valuedouble >= least && item->valuedouble <= most;
}

/* Reads from `item` on. false: one is no time. */
static bool read_samples(const cJSON *item, float samples[FA_TRIAL_SAMPLES_MAX], int32_t *ret_count)
{
    for (*ret_count = 0; item != NULL; item = item->next) {
        if (*ret_count == FA_TRIAL_SAMPLES_MAX || !is_number(item, 0, longest_us))
            return false;
        samples[(*ret_count)++] = (float)item->valuedouble;
    }
    return true;
}

/* ---- evidence -------------------------------------------------------------------------------*/
/* What made the trial, without the name of the machine, which is nobody's business. */
static void add_environment(cJSON *json, const char *name, const char *text)
{
    cJSON *environment;
    if (fa_json_parse_object(text, name, &environment, NULL) != 0) {
        fa_json_add(json, name, NULL); /* it will not be printed */
    } else if (environment != NULL) {
        cJSON_DeleteItemFromObjectCaseSensitive(environment, "host");
        fa_json_add(json, name, environment);
    }
}

#define ROW(kind, member, ...) FA_MEMBER(#member, kind, fa_trial, member, __VA_ARGS__)
static const fa_member evidence_members[] = {
    FA_CONFIG_MEMBER(fa_trial, config),
    ROW(NUMBER, median_us),
    ROW(NUMBER, low_us),
    ROW(NUMBER, high_us),
    ROW(NUMBER, predicted_us, .rules = FA_MEMBER_LEFT_OUT),
    ROW(FLAG, raced),
    ROW(NUMBER, max_error, .rules = FA_MEMBER_LEFT_OUT),
    ROW(NUMBER, tolerance, .rules = FA_MEMBER_LEFT_OUT),
    {.key = NULL},
};
#undef ROW

static cJSON *trial_to_evidence(const fa_trial_record *record)
{
    fa_trial trial = record->trial;
    char seed[24]; /* as text: cJSON writes 15 digits of a number */
    trial.predicted_us = trial.predicted_us > 0 ? rounded(trial.predicted_us) : 0;
    if (!(isfinite(trial.max_error) && isfinite(trial.tolerance) && trial.tolerance > 0))
        trial.max_error = trial.tolerance = 0;
    cJSON *json = fa_struct_to_json(evidence_members, &trial);
    if (record->environment != NULL) {
        snprintf(seed, sizeof seed, "%llu", (unsigned long long)record->seed);
        fa_json_add_text(json, "seed", seed);
        add_environment(json, "environment", record->environment);
        add_environment(json, "clocks", record->clocks);
    }
    if (record->sample_count > 0) {
        cJSON *samples = fa_json_add_array(json, "samples_us");
        for (int32_t i = 0; i < record->sample_count; i++)
            fa_json_push(samples, cJSON_CreateNumber(rounded((double)record->samples_us[i])));
    }
    return json;
}

cJSON *fa_trial_list_to_evidence(const fa_trial_list *list)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; array != NULL && i < list->count; i++)
        fa_json_push(array, trial_to_evidence(&list->record[i]));
    return array;
}

static int add_evidence(const cJSON *json, fa_trial_list *list)
{
    float samples[FA_TRIAL_SAMPLES_MAX];
    fa_trial_record record = {.trial = {.status = FA_STATUS_MEASURED, .blocks_per_sm = -1}};
    fa_trial *trial = &record.trial;
    const char *seed = NULL;
    fa_struct_take_json(json, evidence_members, trial);
    if (trial->config.family[0] == 0)
        return 0;
    const cJSON *times = cJSON_GetObjectItemCaseSensitive(json, "samples_us");
    const cJSON *environment = cJSON_GetObjectItemCaseSensitive(json, "environment");
    const cJSON *clocks = cJSON_GetObjectItemCaseSensitive(json, "clocks");
    if (!times_are_good(trial) || (times != NULL && !cJSON_IsArray(times)) ||
        !read_samples(times != NULL ? times->child : NULL, samples, &record.sample_count))
        return 0;
    record.samples_us = samples;
    trial->sample_count = record.sample_count;
    if (fa_json_text(json, "seed", &seed, "trial", NULL) == 0)
        record.seed = strtoull(seed, NULL, 10);
    char *where = cJSON_IsObject(environment) ? fa_json_print(environment) : NULL;
    char *how = cJSON_IsObject(clocks) ? fa_json_print(clocks) : NULL;
    record.environment = where;
    record.clocks = how;
    bool lost =
        (cJSON_IsObject(environment) && where == NULL) || (cJSON_IsObject(clocks) && how == NULL);
    int rc = lost ? FA_ENOMEM : fa_trial_list_add(list, &record);
    cJSON_free(where);
    cJSON_free(how);
    return rc;
}

int fa_trial_list_from_evidence(const char *evidence, fa_trial_list *list, fa_diag *diag)
{
    cJSON *json;
    int rc = fa_json_parse_object(evidence, "evidence", &json, diag);
    const cJSON *trials = cJSON_GetObjectItemCaseSensitive(json, "trials"), *item;
    cJSON_ArrayForEach (item, trials) {
        if (rc != 0 || list->count == FA_TRIAL_LIST_MAX || !cJSON_IsArray(trials))
            break;
        rc = add_evidence(item, list);
    }
    cJSON_Delete(json);
    return rc == FA_ENOMEM ? fa_fail(diag, rc, "out of memory for evidence") : rc;
}

/* ---- records --------------------------------------------------------------------------------*/
static bool same_names(const fa_config *a, const fa_config *b)
{
    if (a->count != b->count || strcmp(a->family, b->family) != 0)
        return false;
    for (int32_t i = 0; i < a->count; i++)
        if (strcmp(a->tunable[i].name, b->tunable[i].name) != 0)
            return false;
    return true;
}

static void push(cJSON *array, double value)
{
    fa_json_push(array, cJSON_CreateNumber(value));
}

static cJSON *trial_to_record(const fa_trial_record *record)
{
    const fa_trial *trial = &record->trial;
    cJSON *row = cJSON_CreateArray();
    for (int32_t i = 0; i < trial->config.count; i++)
        fa_json_push(row, fa_value_to_json(trial->config.tunable[i].value));
    push(row, rounded(trial->median_us));
    push(row, rounded(trial->low_us));
    push(row, rounded(trial->high_us));
    push(row, rounded(trial->predicted_us > 0 ? trial->predicted_us : 0));
    push(row, trial->raced);
    for (int32_t i = 0; i < record->sample_count; i++)
        push(row, rounded((double)record->samples_us[i]));
    return row;
}

cJSON *fa_trial_list_to_record(const fa_trial_list *list)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t first = 0; first < list->count; first++) {
        const fa_config *config = &list->record[first].trial.config;
        size_t before = 0;
        while (before < first && !same_names(&list->record[before].trial.config, config))
            before++;
        if (before < first)
            continue;
        cJSON *family = cJSON_CreateObject();
        fa_json_add_text(family, "family", config->family);
        cJSON *names = fa_json_add_array(family, "tunables");
        for (int32_t i = 0; i < config->count; i++)
            fa_json_push(names, cJSON_CreateString(config->tunable[i].name));
        cJSON *rows = fa_json_add_array(family, "trials");
        for (size_t i = first; i < list->count; i++)
            if (same_names(&list->record[i].trial.config, config))
                fa_json_push(rows, trial_to_record(&list->record[i]));
        fa_json_push(array, family);
    }
    return array;
}

/* The config without its values. */
static bool read_names(const cJSON *json, fa_config *ret_config)
{
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(json, "tunables"), *name;
    fa_config config = {0};
    if (!cJSON_IsObject(json) || !cJSON_IsArray(names) ||
        fa_json_copy(json, "family", config.family, sizeof config.family, "trials", NULL) != 0 ||
        !fa_is_identifier(config.family))
        return false;
    cJSON_ArrayForEach (name, names) {
        if (config.count == (int32_t)(sizeof config.tunable / sizeof *config.tunable) ||
            !cJSON_IsString(name) || !fa_is_identifier(name->valuestring))
            return false;
        int32_t ignored;
        if (fa_config_get(&config, name->valuestring, &ignored))
            return false;
        snprintf(config.tunable[config.count++].name, FA_NAME_MAX, "%s", name->valuestring);
    }
    *ret_config = config;
    return true;
}

/* 0, FA_EINVAL or FA_ENOMEM. */
static int add_record(const cJSON *row, const fa_config *names, fa_trial_list *list)
{
    float samples[FA_TRIAL_SAMPLES_MAX];
    fa_trial_record record = {.samples_us = samples};
    fa_trial *trial = &record.trial;
    double time[5];
    *trial = (fa_trial){.status = FA_STATUS_MEASURED, .blocks_per_sm = -1, .config = *names};
    const cJSON *item = cJSON_IsArray(row) ? row->child : NULL;
    for (int32_t i = 0; i < names->count; i++, item = item != NULL ? item->next : NULL) {
        int rc = fa_value_of_json(item, &trial->config.tunable[i].value, NULL);
        if (rc != 0)
            return rc;
    }
    for (int i = 0; i < 5; i++, item = item->next) {
        if (!is_number(item, 0, longest_us))
            return FA_EINVAL;
        time[i] = item->valuedouble;
    }
    trial->median_us = time[0];
    trial->low_us = time[1];
    trial->high_us = time[2];
    trial->predicted_us = time[3];
    trial->raced = time[4] == 1;
    if (!times_are_good(trial) || (time[4] != 0 && time[4] != 1) ||
        !read_samples(item, samples, &record.sample_count))
        return FA_EINVAL;
    trial->sample_count = record.sample_count;
    return fa_trial_list_add(list, &record);
}

int fa_trial_list_from_record(const cJSON *json, fa_trial_list *list, const char *where,
                              fa_diag *diag)
{
    const cJSON *family, *row;
    fa_config names;
    int rc = json == NULL || cJSON_IsArray(json) ? 0 : FA_EINVAL;
    cJSON_ArrayForEach (family, json) {
        const cJSON *rows = cJSON_GetObjectItemCaseSensitive(family, "trials");
        if (rc == 0 && (!read_names(family, &names) || !cJSON_IsArray(rows)))
            rc = FA_EINVAL;
        cJSON_ArrayForEach (row, rows) {
            if (rc == 0)
                rc = list->count < FA_TRIAL_LIST_MAX ? add_record(row, &names, list) : FA_EINVAL;
        }
        if (rc != 0)
            break;
    }
    if (rc == FA_EINVAL)
        return fa_fail(diag, rc,
                       "%s: \"trials\" must be at most %d measured configs of named families, each "
                       "with its median in its interval and at most %d samples",
                       where, FA_TRIAL_LIST_MAX, FA_TRIAL_SAMPLES_MAX);
    return rc == 0 ? 0 : fa_fail(diag, rc, "out of memory for records");
}
