/* SPDX-License-Identifier: Apache-2.0 */
#include "records.h"

#include "catalogue.h"
#include "error.h"
#include "json.h"
#include "json_make.h"
#include "json_struct.h"
#include "problem.h"
#include "render.h"
#include "store.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void fa_records_free(fa_records *records)
{
    for (int32_t i = 0; i < records->count; i++)
        free(records->record[i].trials);
    free(records->record);
    free(records->baseline);
    *records = (fa_records){0};
}

int fa_records_append(fa_records *records, const fa_answer *answer, char *trials, fa_diag *diag)
{
    if (records->count == FA_RECORDS_MAX)
        return fa_fail(diag, FA_EINVAL, "more than %d records", FA_RECORDS_MAX);
    fa_record *grown =
        fa_grow(records->record, &records->capacity, (size_t)records->count, sizeof *grown);
    if (grown == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for records");
    records->record = grown;
    records->record[records->count++] = (fa_record){.answer = *answer, .trials = trials};
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

void fa_records_keep(fa_records *records, bool (*keep)(void *context, const fa_answer *answer),
                     void *context)
{
    int32_t left = 0;
    for (int32_t i = 0; i < records->count; i++) {
        if (keep(context, &records->record[i].answer))
            records->record[left++] = records->record[i];
        else
            free(records->record[i].trials);
    }
    records->count = left;
    left = 0;
    for (int32_t i = 0; i < records->baselines; i++) {
        const fa_baseline *baseline = &records->baseline[i];
        fa_answer answer = {.problem = baseline->problem};
        memcpy(answer.gpu.name, baseline->gpu_name, sizeof baseline->gpu_name);
        if (keep(context, &answer))
            records->baseline[left++] = *baseline;
    }
    records->baselines = left;
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

/* ---- circumstances --------------------------------------------------------------------------*/
/* Those of a trial's clocks have the same names there. */
#define ROW(kind, member) \
    FA_MEMBER(#member, kind, fa_circumstances, member, .rules = FA_MEMBER_LEFT_OUT)
static const fa_member circumstance_members[] = {
    ROW(COUNT, cuda),          ROW(TEXT, driver),
    ROW(COUNT, sm_mhz),        ROW(COUNT, memory_mhz),
    ROW(COUNT, temperature_c), ROW(COUNT, power_limit_w),
    ROW(TEXT, throttle),       {.key = NULL},
};
#undef ROW

cJSON *fa_circumstances_to_json(const fa_circumstances *under)
{
    return fa_struct_to_json(circumstance_members, under);
}

int fa_circumstances_from_json(const cJSON *json, fa_circumstances *ret_under, const char *where,
                               fa_diag *diag)
{
    fa_circumstances under = {0};
    int rc = json == NULL || cJSON_IsObject(json)
                 ? 0
                 : fa_fail(diag, FA_EINVAL, "%s: \"measured_under\" must be an object", where);
    if (rc == 0 && json != NULL)
        rc = fa_struct_from_json(json, circumstance_members, &under, where, diag);
    if (rc == 0)
        *ret_under = under;
    return rc;
}

int fa_records_circumstances(const fa_trial_list *list, const fa_config *config,
                             fa_circumstances *ret_under, fa_diag *diag)
{
    fa_circumstances under = {0};
    cJSON *clocks = NULL, *environment = NULL;
    int64_t cuda = 0;
    size_t at = 0;
    while (at < list->count && !fa_config_equal(&list->record[at].trial.config, config))
        at++;
    if (at < list->count) {
        int rc = fa_json_parse_object(list->record[at].clocks, "clocks", &clocks, diag);
        if (rc == 0)
            rc = fa_json_parse_object(list->record[at].environment, "environment", &environment,
                                      diag);
        if (rc != 0) {
            cJSON_Delete(clocks);
            return rc;
        }
    }
    fa_struct_take_json(clocks, circumstance_members, &under);
    if (fa_json_int(environment, "driver", 0, INT32_MAX, &cuda, "environment", NULL) == 0)
        under.cuda = (int32_t)cuda;
    cJSON_Delete(clocks);
    cJSON_Delete(environment);
    *ret_under = under;
    return 0;
}

/* ---- trials ---------------------------------------------------------------------------------*/
int fa_records_trials(const fa_trial_list *list, char **ret_text, fa_diag *diag)
{
    cJSON *json = fa_trial_list_to_record(list);
    *ret_text = json != NULL ? fa_json_print(json) : NULL;
    cJSON_Delete(json);
    return *ret_text != NULL ? 0 : fa_fail(diag, FA_ENOMEM, "out of memory for records");
}

static const double longest_us = 1e12; /* eleven days */

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

static int read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    if (json == NULL)
        return fa_fail(diag, FA_EINVAL, "\"problem\" is missing");
    return fa_problem_from_strict_json(json, FA_NEED_INTEGERS, "*", ret_problem, diag);
}

#define ROW(kind, name, member, ...) FA_MEMBER(name, kind, fa_baseline, member, __VA_ARGS__),
static const fa_member baseline_members[] = {
    FA_BASELINE_FIELDS(ROW) FA_MEMBER("problem", OTHER, fa_baseline, problem,
                                      .write = fa_member_problem, .read = read_problem),
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
    int rc = cJSON_IsObject(json) ? 0 : fa_fail(diag, FA_EINVAL, "it is no JSON object");
    if (rc == 0)
        rc = refuse_dry_run(json, diag);
    if (rc == 0)
        rc = fa_struct_from_json(json, baseline_members, &baseline, "baseline", diag);
    if (rc == 0)
        rc = check_baseline(&baseline, diag);
    if (rc == 0) {
        *ret_baseline = baseline;
        fa_baseline_gpu(baseline.gpu_name, ret_baseline->gpu_name);
    }
    return rc;
}

cJSON *fa_baseline_to_json(const fa_baseline *baseline)
{
    return fa_struct_to_json(baseline_members, baseline);
}
