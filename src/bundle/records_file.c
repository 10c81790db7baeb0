/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include "buf.h"
#include "bundle.h"
#include "catalogue.h"
#include "error.h"
#include "json.h"
#include "json_make.h"
#include "problem.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE_MAX_BYTES = 262144 };

/* ---- a line, written ------------------------------------------------------------------------*/
#define FUNNEL(X) X(space) X(in_budget) X(compiled) X(clean) X(proved) X(measured) X(failed) X(ties)

static double rounded(double us)
{
    return rint(us * 1e3) / 1e3;
}

/* Whether a line leaves the field out, because it is the usual: as another field, or the default. */
static bool is_usual(const fa_field *f, const fa_problem *problem, int32_t value)
{
    bool rare = f->kind == FA_FIELD_BOOLEAN || f->single || f->optional;
    return f->follows >= 0 ? value == problem->value[f->follows] : rare && value == f->preset;
}

static void add_problem(cJSON *json, const fa_problem *problem)
{
    const fa_operation *operation = fa_operation_of(problem);
    if (operation != fa_operation_of(NULL))
        fa_json_add_text(json, "operation", operation->name);
    for (int i = 0; i < operation->field_count; i++)
        if (!is_usual(&operation->field[i], problem, problem->value[i]))
            fa_field_to_json(json, operation->field[i].record, &operation->field[i],
                             problem->value[i]);
}

#define ROW(key, kind, member, ...) FA_MEMBER(key, kind, fa_answer, member, __VA_ARGS__)
static const fa_member record_members[] = {
    ROW("origin", CHOICE, origin, .names = fa_origin_names),
    FA_CONFIG_MEMBER(fa_answer, trial.config),
    ROW("predicted_us", NUMBER, trial.predicted_us),
    {.key = NULL},
};
/* Of a measured winner alone. */
static const fa_member measured_members[] = {
    ROW("median_us", NUMBER, trial.median_us),
    ROW("low_us", NUMBER, trial.low_us),
    ROW("high_us", NUMBER, trial.high_us),
    ROW("samples", COUNT, trial.sample_count),
    ROW("default_us", NUMBER, default_us),
    ROW("max_error", NUMBER, trial.max_error, .rules = FA_MEMBER_DIGITS),
    ROW("tolerance", NUMBER, trial.tolerance, .rules = FA_MEMBER_DIGITS),
    ROW("driver", COUNT, driver_version),
    ROW("nvrtc", TEXT, nvrtc),
    ROW("cubin", TEXT, cubin_key),
    {.key = NULL},
};
#undef ROW

static void round_times(fa_answer *record)
{
    fa_trial *trial = &record->trial;
    trial->predicted_us = rounded(trial->predicted_us);
    trial->median_us = rounded(trial->median_us);
    trial->low_us = rounded(trial->low_us);
    trial->high_us = rounded(trial->high_us);
    record->default_us = rounded(record->default_us);
}

static char *print_record(const fa_record *line)
{
    fa_answer answer = line->answer;
    const fa_answer *record = &answer;
    round_times(&answer);
    cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "gpu", record->gpu.name);
    add_problem(json, &record->problem);
    bool whole =
        json != NULL && fa_struct_add_json(json, record_members, record) &&
        (record->origin > FA_ORIGIN_IMPORTED || fa_struct_add_json(json, measured_members, record));
    cJSON *funnel = fa_json_add_array(json, "funnel");
#define ADD(field) fa_json_push(funnel, cJSON_CreateNumber(record->field));
    FUNNEL(ADD)
#undef ADD
    cJSON *under = fa_circumstances_to_json(&line->under);
    if (under != NULL && under->child == NULL)
        cJSON_Delete(under);
    else
        fa_json_add(json, "measured_under", under);
    if (line->trials != NULL && line->trials[0] != 0)
        fa_json_add(json, "trials", cJSON_CreateRaw(line->trials));
    char *text = whole ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    return text;
}

static char *print_head(const fa_records *records)
{
    char day[32];
    struct tm tm;
    time_t made = (time_t)records->made;
    gmtime_r(&made, &tm);
    strftime(day, sizeof day, "%Y-%m-%d", &tm);
    cJSON *json = cJSON_CreateObject();
    fa_json_add_number(json, "fa_tune_records", FA_RECORDS_VERSION);
    fa_json_add_text(json, "made", day);
    cJSON *families = fa_json_add_object(json, "families");
    for (int i = 0; i < records->families; i++)
        fa_json_add_text(families, records->family[i].name, records->family[i].hash);
    char *text = fa_json_print(json);
    cJSON_Delete(json);
    return text;
}

static int catalogue_place(const char *name)
{
    fa_gpu gpu;
    for (int i = 0; i < fa_catalogue_count(); i++) {
        const char *refused;
        fa_catalogue_at(i, &gpu, &refused);
        if (strcmp(gpu.name, name) == 0)
            return i;
    }
    return fa_catalogue_count();
}

static int compare_places(const char *gpu, const fa_problem *x, const char *other,
                          const fa_problem *y)
{
    int place = catalogue_place(gpu) - catalogue_place(other);
    return place != 0 ? place : fa_problem_compare(x, y);
}

static int compare(const void *a, const void *b)
{
    const fa_answer *x = &((const fa_record *)a)->answer, *y = &((const fa_record *)b)->answer;
    return compare_places(x->gpu.name, &x->problem, y->gpu.name, &y->problem);
}

static int compare_baselines(const void *a, const void *b)
{
    const fa_baseline *x = a, *y = b;
    int order = compare_places(x->gpu_name, &x->problem, y->gpu_name, &y->problem);
    return order != 0 ? order : strcmp(x->peer, y->peer);
}

static char *print_baseline(const fa_baseline *baseline)
{
    cJSON *json = fa_baseline_to_json(baseline);
    char *text = json != NULL ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    return text;
}

static void put_line(fa_buf *out, char *text)
{
    if (text == NULL) {
        out->failed = true;
        return;
    }
    fa_buf_text(out, text);
    fa_buf_text(out, "\n");
    cJSON_free(text);
}

int fa_records_write(fa_records *records, const char *path, fa_diag *diag)
{
    fa_buf out = {0};
    if (records->count > 0)
        qsort(records->record, (size_t)records->count, sizeof *records->record, compare);
    if (records->baselines > 0)
        qsort(records->baseline, (size_t)records->baselines, sizeof *records->baseline,
              compare_baselines);
    put_line(&out, print_head(records));
    for (int32_t i = 0; i < records->count; i++)
        put_line(&out, print_record(&records->record[i]));
    for (int32_t i = 0; i < records->baselines; i++)
        put_line(&out, print_baseline(&records->baseline[i]));
    int rc = out.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for records")
                        : fa_output_write(path, out.data, out.size, diag);
    fa_buf_free(&out);
    return rc;
}

/* ---- a line, read ---------------------------------------------------------------------------*/
/* Gives a field of a line the name by which a problem knows it. */
static bool rename_field(cJSON *json, const fa_field *f)
{
    if (strcmp(f->record, f->name) == 0)
        return true;
    cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(json, f->record);
    return item == NULL || fa_json_add(json, f->name, item);
}

static int read_problem(cJSON *json, fa_problem *ret_problem, const char *where, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(NULL);
    const char *name = NULL;
    int rc = fa_json_text(json, "operation", &name, where, diag);
    if (rc == 0)
        rc = fa_operation_find(name, &operation, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return fa_fail_in(diag, rc, "%s", where);
    fa_problem problem = {.operation = operation};
    for (int i = 0; i < operation->field_count; i++)
        if (!rename_field(json, &operation->field[i]))
            return fa_fail(diag, FA_ENOMEM, "out of memory for records");
    rc = fa_problem_from_strict_json(json, FA_NEED_SIZES, "*", &problem, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "%s", where);
    *ret_problem = problem;
    return 0;
}

static int read_times(const cJSON *json, fa_answer *record, const char *where, fa_diag *diag)
{
    const fa_trial *trial = &record->trial;
    int rc = fa_struct_from_json(json, measured_members, record, where, diag);
    if (rc == 0 && !(trial->median_us > 0 && trial->low_us <= trial->median_us &&
                     trial->median_us <= trial->high_us))
        return fa_fail(diag, FA_EINVAL, "%s: its median does not lie in its interval", where);
    return rc;
}

static int read_funnel(const cJSON *json, fa_answer *record, const char *where, fa_diag *diag)
{
    int32_t *const field[] = {
#define FIELD(name) &record->name,
        FUNNEL(FIELD)
#undef FIELD
    };
    const cJSON *funnel = cJSON_GetObjectItemCaseSensitive(json, "funnel");
    int count = (int)(sizeof field / sizeof *field);
    if (!cJSON_IsArray(funnel) || cJSON_GetArraySize(funnel) != count)
        return fa_fail(diag, FA_EINVAL, "%s: \"funnel\" must be %d numbers", where, count);
    for (int i = 0; i < count; i++) {
        const cJSON *item = cJSON_GetArrayItem(funnel, i);
        if (!cJSON_IsNumber(item) || !(item->valuedouble >= 0 && item->valuedouble <= INT32_MAX))
            return fa_fail(diag, FA_EINVAL, "%s: \"funnel\" must be %d numbers", where, count);
        *field[i] = (int32_t)item->valuedouble;
    }
    return 0;
}

static int read_record(cJSON *json, fa_answer *record, const char *where, fa_diag *diag)
{
    char gpu[sizeof record->gpu.name] = "";
    int rc = fa_json_copy_needed(json, "gpu", gpu, sizeof gpu, where, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, record_members, record, where, diag);
    if (rc == 0)
        rc = fa_catalogue_find(gpu, &record->gpu, diag);
    if (rc == 0)
        rc = read_problem(json, &record->problem, where, diag);
    if (rc == 0 && record->origin <= FA_ORIGIN_IMPORTED)
        rc = read_times(json, record, where, diag);
    if (rc == 0)
        rc = read_funnel(json, record, where, diag);
    return rc;
}

/* A line's trials are read, and written anew: what is kept is in our own form. */
static int read_trials(const cJSON *json, char **ret_text, const char *where, fa_diag *diag)
{
    fa_trial_list list = {0};
    const cJSON *trials = cJSON_GetObjectItemCaseSensitive(json, "trials");
    if (trials == NULL)
        return 0;
    int rc = fa_trial_list_from_record(trials, &list, where, diag);
    if (rc == 0)
        rc = fa_records_trials(&list, ret_text, diag);
    fa_trial_list_free(&list);
    return rc;
}

static int read_head(const cJSON *json, fa_records *records, const char *where, fa_diag *diag)
{
    int64_t version = 0;
    char day[16] = "";
    struct tm tm = {0};
    const cJSON *families = cJSON_GetObjectItemCaseSensitive(json, "families"), *item;
    int rc = fa_json_int(json, "fa_tune_records", 1, INT32_MAX, &version, where, diag);
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, FA_EINVAL, "%s: this is no file of records", where);
    if (rc == 0 && version != FA_RECORDS_VERSION)
        return fa_fail(
            diag, FA_EVERSION,
            "%s: records of version %lld, and this fa-tune reads version %d alone: use "
            "the fa-tune that made them, or make them anew with `fa-tune export --records`",
            where, (long long)version, FA_RECORDS_VERSION);
    if (rc == 0)
        rc = fa_json_copy(json, "made", day, sizeof day, where, diag);
    const char *end = rc == 0 ? strptime(day, "%Y-%m-%d", &tm) : NULL;
    if (end == NULL || *end != 0 || !cJSON_IsObject(families) ||
        cJSON_GetArraySize(families) > FA_RECORDS_FAMILIES)
        return fa_fail(diag, FA_EINVAL, "%s: \"made\" must be a day and \"families\" an object",
                       where);
    records->made = (int64_t)timegm(&tm);
    cJSON_ArrayForEach (item, families) {
        if (!cJSON_IsString(item) || strlen(item->valuestring) != FA_HASH_HEX - 1 ||
            strlen(item->string) >= FA_NAME_MAX)
            return fa_fail(diag, FA_EINVAL, "%s: \"families\" must name SHA-256 sums", where);
        memcpy(records->family[records->families].hash, item->valuestring, FA_HASH_HEX);
        snprintf(records->family[records->families++].name, FA_NAME_MAX, "%s", item->string);
    }
    return 0;
}

static int add_record(cJSON *json, fa_records *records, const char *where, fa_diag *diag)
{
    char *trials = NULL;
    fa_circumstances under = {0};
    fa_answer *answer = calloc(1, sizeof *answer);
    int rc = answer != NULL ? read_record(json, answer, where, diag)
                            : fa_fail(diag, FA_ENOMEM, "out of memory for records");
    if (rc == 0)
        rc = read_trials(json, &trials, where, diag);
    if (rc == 0)
        rc = fa_circumstances_from_json(cJSON_GetObjectItemCaseSensitive(json, "measured_under"),
                                        &under, where, diag);
    if (rc == 0)
        rc = fa_records_append(records, answer, trials, diag);
    if (rc == 0)
        records->record[records->count - 1].under = under;
    else
        free(trials);
    free(answer);
    return rc;
}

static int read_line(const char *path, int number, const char *line, size_t size,
                     fa_records *records, fa_diag *diag)
{
    char where[300];
    cJSON *json = NULL;
    fa_baseline baseline;
    snprintf(where, sizeof where, "%.256s, line %d", path, number);
    if (size > LINE_MAX_BYTES)
        return fa_fail(diag, FA_ECORRUPT, "%s: longer than %d bytes", where, LINE_MAX_BYTES);
    int rc = fa_json_parse(line, size, where, &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (rc == 0 && number == 1) {
        rc = read_head(json, records, where, diag);
    } else if (rc == 0 && cJSON_HasObjectItem(json, "peer")) {
        rc = fa_baseline_from_json(json, &baseline, diag);
        if (rc == 0)
            rc = fa_records_append_baseline(records, &baseline, diag);
    } else if (rc == 0) {
        rc = add_record(json, records, where, diag);
    }
    if (rc != 0 && strncmp(diag != NULL ? diag->text : where, where, strlen(where)) != 0)
        rc = fa_fail_in(diag, rc, "%s", where);
    cJSON_Delete(json);
    return rc == FA_EINVAL ? FA_ECORRUPT : rc; /* whoever names the file has asked rightly */
}

int fa_records_read(const char *path, fa_records *ret_records, fa_diag *diag)
{
    fa_buf text;
    fa_records records = {0};
    int rc = fa_buf_read_file(&text, path, FA_RECORDS_BYTES_MAX), number = 1;
    if (rc != 0)
        return fa_fail(diag, rc, "records %s: %s", path, fa_error_text(rc));
    for (size_t at = 0; rc == 0 && at < text.size; number++) {
        const char *newline = memchr(text.data + at, '\n', text.size - at);
        size_t size = newline != NULL ? (size_t)(newline - text.data) - at : text.size - at;
        rc = read_line(path, number, text.data + at, size, &records, diag);
        at += size + 1;
    }
    if (rc == 0 && number == 1)
        rc = fa_fail(diag, FA_ECORRUPT, "records %s: the file is empty", path);
    fa_buf_free(&text);
    if (rc != 0)
        fa_records_free(&records);
    else
        *ret_records = records;
    return rc;
}
