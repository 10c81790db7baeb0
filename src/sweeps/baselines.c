/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines from a file of JSON lines that anybody may have written: bounded in size, checked line by
 * line, and either all taken or none.
 */
#include "baselines.h"

#include "buf.h"
#include "catalogue.h"
#include "json_struct.h"
#include "problem.h"
#include "session.h"
#include "store.h"

#include "error.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 32 << 20, BASELINE_LINE_MAX = 16384, BASELINES_MAX = 100000, LINES_NAMED = 6 };

static const double longest_us = 1e12; /* eleven days */

/* ---- a baseline as JSON ---------------------------------------------------------------------*/
static bool is_printable(const char *text)
{
    for (; *text != 0; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

static void baseline_gpu(const char *name, char ret_name[64])
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
    FA_BASELINE_FIELDS(ROW)
        FA_MEMBER("problem", OTHER, fa_baseline, problem, .read = read_any_problem),
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
        return fa_fail(diag, FA_EINVAL,
                       "\"matmul_tflops\" is %g: it must be at least 0 and below 1e6",
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
    baseline_gpu(baseline.gpu_name, ret_baseline->gpu_name);
    return 0;
}

/* ---- the file -------------------------------------------------------------------------------*/
struct reading {
    fa_baseline *baseline;
    size_t count, capacity;
    fa_buf bad; /* what the sentence says of the bad lines */
    size_t bad_count;
};

static int add_line(struct reading *reading, const char *text, size_t size, size_t number)
{
    fa_diag why;
    cJSON *json = NULL;
    fa_baseline *grown =
        fa_grow(reading->baseline, &reading->capacity, reading->count, sizeof *grown);
    if (grown == NULL)
        return FA_ENOMEM;
    reading->baseline = grown;
    int rc = size > BASELINE_LINE_MAX
                 ? fa_fail(&why, FA_EINVAL, "longer than %d bytes", BASELINE_LINE_MAX)
                 : fa_json_parse(text, size, "baseline", &json, &why);
    if (rc == 0)
        rc = fa_baseline_from_json(json, &reading->baseline[reading->count], &why);
    cJSON_Delete(json);
    if (rc == 0) {
        reading->count++;
    } else if (rc != FA_EINVAL) {
        return rc;
    } else if (reading->bad_count++ < LINES_NAMED) {
        fa_buf_printf(&reading->bad, "%sline %zu: %.120s", reading->bad_count > 1 ? "; " : "",
                      number, why.text);
    }
    return 0;
}

static int add_lines(struct reading *reading, const fa_buf *file, fa_diag *diag)
{
    const char *at = file->data, *end = file->data + file->size;
    for (size_t number = 1; at < end; number++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop != NULL ? stop : end) - at);
        size_t blank = 0;
        while (blank < size && (at[blank] == ' ' || at[blank] == '\t' || at[blank] == '\r'))
            blank++;
        if (blank < size && reading->count == BASELINES_MAX)
            return fa_fail(diag, FA_EINVAL, "more than %d baselines: split the file",
                           BASELINES_MAX);
        int rc = blank < size ? add_line(reading, at, size, number) : 0;
        if (rc != 0)
            return fa_fail(diag, rc, "line %zu: %s", number, fa_error_text(rc));
        at += size + (stop != NULL);
    }
    if (reading->bad_count > LINES_NAMED)
        fa_buf_printf(&reading->bad, "; and %zu more lines", reading->bad_count - LINES_NAMED);
    if (reading->bad_count > 0)
        return fa_fail(diag, FA_EINVAL, "none was taken: %s",
                       reading->bad.data != NULL ? reading->bad.data : "");
    return 0;
}

static int read_baseline_file(struct reading *reading, const char *path, fa_diag *diag)
{
    fa_buf file = {0};
    int rc = fa_input_read(&file, path, FILE_MAX, diag);
    if (rc == 0)
        rc = add_lines(reading, &file, diag);
    fa_buf_free(&file);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "baselines %.200s", path);
}

int fa_import_baselines(fa_tuner *tuner, const char *path, int32_t *ret_count, fa_diag *diag)
{
    struct reading reading = {0};
    int rc = fa_tuner_check_with(tuner, path != NULL, "path", diag);
    if (rc != 0)
        return rc;
    rc = read_baseline_file(&reading, path, diag);
    if (rc == 0) {
        pthread_mutex_lock(&tuner->work);
        rc = fa_store_baselines_put(tuner->store, reading.baseline, reading.count, diag);
        pthread_mutex_unlock(&tuner->work);
    }
    if (rc == 0 && ret_count != NULL)
        *ret_count = (int32_t)reading.count;
    free(reading.baseline);
    fa_buf_free(&reading.bad);
    return rc;
}

int fa_list_baselines(fa_tuner *tuner, fa_baseline_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc = fa_store_baselines_each(tuner->store, visit, context, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}

bool fa_baseline_concerns(const fa_baseline *baseline, const fa_answer *answer)
{
    char here[sizeof baseline->gpu_name];
    if (!fa_problem_same_work(&answer->problem, &baseline->problem))
        return false;
    baseline_gpu(answer->gpu.name, here);
    return strcmp(baseline->gpu_name, here) == 0;
}
