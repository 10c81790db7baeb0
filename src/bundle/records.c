/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include "fa_bundle.h"

#include "catalogue.h"
#include "error.h"
#include "json.h"
#include "problem.h"
#include "render.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double longest_us = 1e12; /* eleven days */

/* ---- trials of an evidence, in memory -------------------------------------------------------*/
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
    int32_t count = record->samples_us == NULL                    ? 0
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
        (record->clocks != NULL && copy.clocks == NULL) ||
        fa_append(&list->record, &list->count, &list->capacity, &copy, sizeof copy) != 0) {
        fa_trial_list_lighten(&copy);
        return FA_ENOMEM;
    }
    return 0;
}

static double rounded(double us)
{
    return us > 0 ? rint(us * 1e3) / 1e3 : 0; /* to the nanosecond: events resolve less */
}

/* ---- what is kept of a trial ----------------------------------------------------------------*/
#define LEFT_OUT .rules = FA_MEMBER_LEFT_OUT
#define ROW(kind, member, ...) FA_MEMBER(#member, kind, fa_trial, member, __VA_ARGS__)
static const fa_member timed_members[] = {
    FA_CONFIG_MEMBER(fa_trial, config), ROW(NUMBER, predicted_us, LEFT_OUT),
    ROW(NUMBER, median_us, LEFT_OUT),   ROW(NUMBER, low_us, LEFT_OUT),
    ROW(NUMBER, high_us, LEFT_OUT),     ROW(COUNT, sample_count, LEFT_OUT),
    ROW(NUMBER, max_error, LEFT_OUT),   ROW(NUMBER, tolerance, LEFT_OUT),
    ROW(FLAG, raced, LEFT_OUT),         {.key = NULL},
};
#undef ROW

/* With its times to the nanosecond, and 0 for what is not known. */
static fa_trial timed_trial(const fa_trial *trial)
{
    fa_trial timed = *trial;
    timed.predicted_us = rounded(trial->predicted_us);
    timed.median_us = rounded(trial->median_us);
    timed.low_us = rounded(trial->low_us);
    timed.high_us = rounded(trial->high_us);
    if (!(isfinite(trial->max_error) && isfinite(trial->tolerance) && trial->tolerance > 0))
        timed.max_error = timed.tolerance = 0;
    return timed;
}

/* Written so that NaN is no time. */
static bool is_timed(const fa_trial *trial)
{
    return trial->low_us > 0 && trial->low_us <= trial->median_us &&
           trial->median_us <= trial->high_us && trial->high_us < longest_us &&
           trial->predicted_us >= 0 && trial->predicted_us < longest_us;
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

static cJSON *write_trial(const fa_trial_record *record)
{
    fa_trial trial = timed_trial(&record->trial);
    char seed[24];          /* as text: cJSON writes 15 digits of a number */
    trial.sample_count = 0; /* as many as there are */
    cJSON *json = fa_struct_to_json(timed_members, &trial);
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)record->seed);
    if (record->seed != 0)
        fa_json_add_text(json, "seed", seed);
    add_environment(json, "environment", record->environment);
    add_environment(json, "clocks", record->clocks);
    if (record->sample_count > 0) {
        cJSON *samples = fa_json_add_array(json, "samples_us");
        for (int32_t i = 0; i < record->sample_count; i++)
            fa_json_push(samples, cJSON_CreateNumber(rounded((double)record->samples_us[i])));
    }
    return json;
}

cJSON *fa_trial_list_to_json(const fa_trial_list *list)
{
    cJSON *array = cJSON_CreateArray();
    for (size_t i = 0; array != NULL && i < list->count; i++)
        fa_json_push(array, write_trial(&list->record[i]));
    return array;
}

/* ---- read -----------------------------------------------------------------------------------*/
static bool read_samples(const cJSON *array, float samples[FA_TRIAL_SAMPLES_MAX],
                         int32_t *ret_count)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, array) {
        if (*ret_count == FA_TRIAL_SAMPLES_MAX || !cJSON_IsNumber(item) ||
            !(item->valuedouble >= 0 && item->valuedouble <= longest_us))
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

static int read_trial(const cJSON *json, fa_trial_list *list, fa_diag *diag)
{
    float samples[FA_TRIAL_SAMPLES_MAX];
    fa_trial_record record = {.samples_us = samples,
                              .trial = {.status = FA_STATUS_MEASURED, .blocks_per_sm = -1}};
    fa_trial *trial = &record.trial;
    const char *seed = NULL;
    char *environment = NULL, *clocks = NULL;
    int rc = fa_struct_from_json(json, timed_members, trial, "trials", diag);
    if (rc != 0)
        return rc;
    if (!is_timed(trial) || !read_samples(cJSON_GetObjectItemCaseSensitive(json, "samples_us"),
                                          samples, &record.sample_count))
        return fa_fail(diag, FA_EINVAL,
                       "trials: each has its median in its interval and at most %d samples",
                       FA_TRIAL_SAMPLES_MAX);
    trial->sample_count = record.sample_count;
    if (fa_json_text(json, "seed", &seed, "trials", NULL) == 0)
        record.seed = strtoull(seed, NULL, 10);
    rc = print_object(cJSON_GetObjectItemCaseSensitive(json, "environment"), &environment);
    if (rc == 0)
        rc = print_object(cJSON_GetObjectItemCaseSensitive(json, "clocks"), &clocks);
    record.environment = environment;
    record.clocks = clocks;
    if (rc == 0)
        rc = fa_trial_list_add(list, &record);
    free(environment);
    free(clocks);
    return rc == 0 ? 0 : fa_fail(diag, rc, "out of memory for evidence");
}

/* Joins those of an evidence, which may be NULL; FA_EINVAL with a sentence leaves some of them in the list. FA_ENOMEM. */
static int join_trials(const cJSON *json, fa_trial_list *list, fa_diag *diag)
{
    const cJSON *item;
    if (json != NULL && (!cJSON_IsArray(json) || cJSON_GetArraySize(json) > FA_TRIAL_LIST_MAX))
        return fa_fail(diag, FA_EINVAL, "\"trials\" must be an array of at most %d",
                       FA_TRIAL_LIST_MAX);
    cJSON_ArrayForEach (item, json) {
        int rc = read_trial(item, list, diag);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int fa_trial_list_from_evidence(const char *evidence, fa_trial_list *list, fa_diag *diag)
{
    cJSON *json;
    int rc = fa_json_parse_object(evidence, "evidence", &json, diag);
    const cJSON *trials = cJSON_GetObjectItemCaseSensitive(json, "trials"), *item;
    cJSON_ArrayForEach (item, trials) {
        if (rc == FA_ENOMEM || list->count == FA_TRIAL_LIST_MAX || !cJSON_IsArray(trials))
            break;
        rc = read_trial(item, list, NULL);
    }
    cJSON_Delete(json);
    return rc == FA_ENOMEM ? fa_fail(diag, rc, "out of memory for evidence") : 0;
}

/* ---- records in memory ----------------------------------------------------------------------*/
enum { LINE_MAX_BYTES = 262144 };

void fa_records_free(fa_records *records)
{
    for (int32_t i = 0; i < records->count; i++)
        fa_winner_record_free(&records->record[i]);
    free(records->record);
    free(records->baseline);
    *records = (fa_records){0};
}

int fa_records_append(fa_records *records, const fa_winner_record *record, fa_diag *diag)
{
    if (records->count == FA_RECORDS_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d records", FA_RECORDS_MAX);
    fa_winner_record *grown =
        fa_grow(records->record, &records->capacity, (size_t)records->count, sizeof *grown);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for records");
    records->record = grown;
    records->record[records->count++] = *record;
    return 0;
}

int fa_records_append_baseline(fa_records *records, const fa_baseline *baseline, fa_diag *diag)
{
    for (int32_t i = 0; i < records->baselines; i++) {
        fa_baseline *earlier = &records->baseline[i];
        if (strcmp(earlier->peer, baseline->peer) == 0 &&
            strcmp(earlier->gpu_name, baseline->gpu_name) == 0 &&
            fa_problem_equal(&earlier->problem, &baseline->problem)) {
            *earlier = *baseline;
            return 0;
        }
    }
    if (records->baselines == FA_RECORDS_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d baselines", FA_RECORDS_MAX);
    fa_baseline *grown = fa_grow(records->baseline, &records->baseline_capacity,
                                 (size_t)records->baselines, sizeof *grown);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for records");
    records->baseline = grown;
    records->baseline[records->baselines++] = *baseline;
    return 0;
}

/* ---- families -------------------------------------------------------------------------------*/
int fa_records_families(fa_records *records, const fa_templates *templates,
                        const fa_family_list *families, fa_diag *diag)
{
    if (families->count > FA_RECORDS_FAMILIES)
        return fa_fail(diag, FA_EINVAL, "more than %d families", FA_RECORDS_FAMILIES);
    records->families = families->count;
    for (int i = 0; i < families->count; i++) {
        const char *name = fa_family_name(families->family[i]);
        snprintf(records->family[i].name, sizeof records->family[i].name, "%s", name);
        if (fa_render_family_hash(templates, name, records->family[i].hash) != 0)
            return fa_fail(diag, FA_EMANIFEST, "family %s has no template", name);
    }
    return 0;
}

static const char *hash_of(const fa_records *records, const char *family)
{
    for (int i = 0; i < records->families; i++)
        if (strcmp(records->family[i].name, family) == 0)
            return records->family[i].hash;
    return "";
}

bool fa_records_family_moved(const fa_records *file, const fa_records *today, const char *family)
{
    return strcmp(hash_of(file, family), hash_of(today, family)) != 0;
}

const char *fa_records_moved(const fa_records *file, const fa_records *today)
{
    for (int i = 0; i < today->families; i++)
        if (fa_records_family_moved(file, today, today->family[i].name))
            return today->family[i].name;
    for (int i = 0; i < file->families; i++)
        if (hash_of(today, file->family[i].name)[0] == 0)
            return file->family[i].name;
    return NULL;
}

/* ---- baselines as JSON ----------------------------------------------------------------------*/

static bool is_printable(const char *text)
{
    for (; *text != 0; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

void fa_baseline_gpu(const char *name, char ret_name[64])
{
    fa_gpu gpu;
    if (fa_catalogue_find(name, &gpu, NULL) == 0)
        name = gpu.name;
    snprintf(ret_name, 64, "%s", name);
}

static int read_any_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    if (json == NULL)
        return fa_fail(diag, FA_EINVAL, "\"problem\" is missing");
    return fa_problem_from_strict_json(json, FA_NEED_INTEGERS, "*", ret_problem, diag);
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_baseline, member, __VA_ARGS__),
static const fa_member baseline_members[] = {
    FA_BASELINE_FIELDS(ROW) FA_MEMBER("problem", OTHER, fa_baseline, problem,
                                      .write = fa_member_problem, .read = read_any_problem),
    {.key = NULL},
};
#undef ROW

static int check_baseline(const fa_baseline *baseline, fa_diag *diag)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    double median = baseline->median_us, low = baseline->low_us, high = baseline->high_us;
    if (baseline->gpu_name[0] == 0 || !is_printable(baseline->gpu_name) ||
        !is_printable(baseline->source))
        return fa_fail(diag, FA_EINVAL,
                       "\"gpu\" and \"source\" take printable ASCII, and "
                       "\"gpu\" may not be empty");
    if (baseline->peer[0] == 0 || strspn(baseline->peer, letters) != strlen(baseline->peer))
        return fa_fail(diag, FA_EINVAL, "peer \"%s\": use letters, digits, '.', '_', '+' and '-'",
                       baseline->peer);
    if (!(median > 0 && median < longest_us))
        return fa_fail(diag, FA_EINVAL, "\"median_us\" is %g: it must be above 0 and below %g",
                       median, longest_us);
    if (!(low == 0 && high == 0) &&
        !(0 < low && low <= median && median <= high && high < longest_us))
        return fa_fail(diag, FA_EINVAL,
                       "the interval from %g to %g us does not hold the median %g: give both ends "
                       "or neither",
                       low, high, median);
    if (!(baseline->matmul_tflops >= 0 && baseline->matmul_tflops < 1e6))
        return fa_fail(diag, FA_EINVAL, "\"matmul_tflops\" is %g: it must be at least 0 and below 1e6",
                       baseline->matmul_tflops);
    return 0;
}

/* Lines that show the form alone say so, and are no evidence. */
static int refuse_dry_run(const cJSON *json, fa_diag *diag)
{
    bool dry_run = false;
    int rc = fa_json_bool(json, "dry_run", &dry_run, "baseline", diag);
    if (rc == 0 && dry_run)
        return fa_fail(diag, FA_EINVAL, "its time is made up (\"dry_run\"), not measured");
    return rc == FA_ENOTFOUND ? 0 : rc;
}

int fa_baseline_from_json(const cJSON *json, fa_baseline *ret_baseline, fa_diag *diag)
{
    fa_baseline baseline = {.unix_time = (int64_t)time(NULL)};
    int rc;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "it is no JSON object");
    if ((rc = refuse_dry_run(json, diag)) != 0 ||
        (rc = fa_struct_from_json(json, baseline_members, &baseline, "baseline", diag)) != 0 ||
        (rc = check_baseline(&baseline, diag)) != 0)
        return rc;
    *ret_baseline = baseline;
    fa_baseline_gpu(baseline.gpu_name, ret_baseline->gpu_name);
    return 0;
}

/* ---- a winner as JSON -----------------------------------------------------------------------*/
static cJSON *write_evidence(const void *member)
{
    const char *text = *(char *const *)member;
    return cJSON_CreateRaw(text != NULL ? text : "{}");
}

static int read_evidence(const cJSON *json, void *ret_evidence, fa_diag *diag)
{
    fa_trial_list list = {0};
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "\"evidence\" must be an object");
    int rc = join_trials(cJSON_GetObjectItemCaseSensitive(json, "trials"), &list, diag);
    fa_trial_list_free(&list);
    if (rc != 0)
        return rc;
    char *text = *(char **)ret_evidence = fa_json_print(json);
    return text != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for records");
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_winner_record, member, __VA_ARGS__),
static const fa_member winner_members[] = {
    FA_MEMBER("problem", OTHER, fa_winner_record, scope.problem, .write = fa_member_problem,
              .read = fa_member_read_problem),
    FA_WINNER_FIELDS(ROW) FA_MEMBER("", PART, fa_winner_record, trial, .members = timed_members),
    FA_MEMBER("unix_time", COUNT64, fa_winner_record, unix_time, .rules = FA_MEMBER_LEFT_OUT,
              .most = (int64_t)1 << 40),
    FA_MEMBER("evidence", OTHER, fa_winner_record, evidence, .write = write_evidence,
              .read = read_evidence),
    {.key = NULL},
};
#undef ROW

/* ---- the file, written ----------------------------------------------------------------------*/
static char *print_winner(const fa_winner_record *record)
{
    fa_winner_record line = *record;
    line.trial = timed_trial(&record->trial);
    return fa_json_finish(fa_struct_to_json(winner_members, &line));
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
    return fa_json_finish(json);
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
    const fa_winner_record *x = a, *y = b;
    return compare_places(x->gpu_name, &x->scope.problem, y->gpu_name, &y->scope.problem);
}

static int compare_baselines(const void *a, const void *b)
{
    const fa_baseline *x = a, *y = b;
    int order = compare_places(x->gpu_name, &x->problem, y->gpu_name, &y->problem);
    return order != 0 ? order : strcmp(x->peer, y->peer);
}

static char *print_baseline(const fa_baseline *baseline)
{
    return fa_json_finish(fa_struct_to_json(baseline_members, baseline));
}

static void put_line(fa_buf *out, char *text)
{
    if (text == NULL) {
        out->failed = true;
        return;
    }
    fa_buf_text(out, text);
    fa_buf_text(out, "\n");
    free(text);
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
        put_line(&out, print_winner(&records->record[i]));
    for (int32_t i = 0; i < records->baselines; i++)
        put_line(&out, print_baseline(&records->baseline[i]));
    int rc = out.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for records")
                        : fa_output_write(path, out.data, out.size, diag);
    fa_buf_free(&out);
    return rc;
}

/* ---- the file, read -------------------------------------------------------------------------*/
static int read_winner(const cJSON *json, fa_winner_record *record, const char *where,
                       fa_diag *diag)
{
    fa_gpu gpu;
    int rc = fa_struct_from_json(json, winner_members, record, where, diag);
    if (rc == 0)
        rc = fa_catalogue_find(record->gpu_name, &gpu, diag);
    if (rc != 0)
        return rc;
    if (record->origin <= FA_ORIGIN_IMPORTED && !is_timed(&record->trial))
        return fa_fail(diag, FA_EINVAL, "%s: its median does not lie in its interval", where);
    memcpy(record->gpu_name, gpu.name, sizeof gpu.name);
    fa_gpu_silicon(&gpu, record->scope.silicon);
    return 0;
}

static int add_winner(const cJSON *json, fa_records *records, const char *where, fa_diag *diag)
{
    fa_winner_record record = {0};
    int rc = read_winner(json, &record, where, diag);
    if (rc == 0)
        rc = fa_records_append(records, &record, diag);
    if (rc != 0)
        fa_winner_record_free(&record);
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
            return fa_fail(diag, FA_EINVAL, "%s: \"families\" must name hashes", where);
        memcpy(records->family[records->families].hash, item->valuestring, FA_HASH_HEX);
        snprintf(records->family[records->families++].name, FA_NAME_MAX, "%s", item->string);
    }
    return 0;
}

static int take_line(const cJSON *json, int number, fa_records *records, const char *where,
                     fa_diag *diag)
{
    fa_baseline baseline;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (number == 1)
        return read_head(json, records, where, diag);
    if (!cJSON_HasObjectItem(json, "peer"))
        return add_winner(json, records, where, diag);
    int rc = fa_baseline_from_json(json, &baseline, diag);
    return rc == 0 ? fa_records_append_baseline(records, &baseline, diag) : rc;
}

static int read_line(const char *path, int number, const char *line, size_t size,
                     fa_records *records, fa_diag *diag)
{
    char where[300];
    cJSON *json = NULL;
    snprintf(where, sizeof where, "%.256s, line %d", path, number);
    if (size > LINE_MAX_BYTES)
        return fa_fail(diag, FA_ECORRUPT, "%s: longer than %d bytes", where, LINE_MAX_BYTES);
    int rc = fa_json_parse(line, size, where, &json, diag);
    if (rc == 0)
        rc = take_line(json, number, records, where, diag);
    if (rc != 0 && strncmp(diag != NULL ? diag->text : where, where, strlen(where)) != 0)
        rc = fa_fail_in(diag, rc, "%s", where);
    cJSON_Delete(json);
    return rc == FA_EINVAL ? FA_ECORRUPT : rc; /* whoever names the file has asked rightly */
}

int fa_records_read(const char *path, fa_records *ret_records, fa_diag *diag)
{
    fa_buf text;
    fa_records records = {0};
    int rc = fa_input_read(&text, path, FA_RECORDS_BYTES_MAX, diag), number = 1;
    if (rc != 0)
        return fa_fail_in(diag, rc, "records %s", path);
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
