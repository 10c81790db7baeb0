/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines from a file of JSON lines that anybody may have written: bounded in size, checked line by
 * line, and either all taken or none.
 */
#include "buf.h"
#include "problem.h"
#include "session.h"
#include "store.h"

#include "catalogue.h"
#include "error.h"
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 32 << 20, BASELINE_LINE_MAX = 16384, BASELINES_MAX = 100000, LINES_NAMED = 6 };
static const double longest_us = 1e12; /* eleven days */

static bool printable(const char *text)
{
    for (; *text != 0; text++)
        if (*text < 0x20 || *text > 0x7e)
            return false;
    return true;
}

/* The catalogue's name of a GPU that it knows under this one, else the name itself. */
static void canonical_gpu(const char *name, char ret_name[64])
{
    fa_gpu gpu;
    if (fa_catalogue_find(name, &gpu, NULL) == 0)
        name = gpu.name;
    snprintf(ret_name, 64, "%s", name);
}

static int need(int rc, const char *key, fa_diag *diag)
{
    return rc == FA_ENOTFOUND ? fa_fail(diag, FA_EINVAL, "\"%s\" is missing", key) : rc;
}

static int optional(int rc)
{
    return rc == FA_ENOTFOUND ? 0 : rc;
}

static int read_names(const cJSON *json, fa_baseline *ret, fa_diag *diag)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    char gpu[sizeof ret->gpu_name];
    int rc = need(fa_json_copy(json, "gpu", gpu, sizeof gpu, "baseline", diag), "gpu", diag);
    if (rc == 0)
        rc = need(fa_json_copy(json, "peer", ret->peer, sizeof ret->peer, "baseline", diag), "peer",
                  diag);
    if (rc == 0)
        rc = optional(
            fa_json_copy(json, "source", ret->source, sizeof ret->source, "baseline", diag));
    if (rc != 0)
        return rc;
    if (gpu[0] == 0 || !printable(gpu) || !printable(ret->source))
        return fa_fail(diag, FA_EINVAL,
                       "\"gpu\" and \"source\" take printable ASCII, and "
                       "\"gpu\" may not be empty");
    if (ret->peer[0] == 0 || strspn(ret->peer, letters) != strlen(ret->peer))
        return fa_fail(diag, FA_EINVAL, "peer \"%s\": use letters, digits, '.', '_', '+' and '-'",
                       ret->peer);
    canonical_gpu(gpu, ret->gpu_name);
    return 0;
}

static int read_times(const cJSON *json, fa_baseline *ret, fa_diag *diag)
{
    int64_t count = 0;
    ret->unix_time = (int64_t)time(NULL);
    int rc = need(fa_json_number(json, "median_us", &ret->median_us, "baseline", diag), "median_us",
                  diag);
    if (rc == 0)
        rc = optional(fa_json_number(json, "low_us", &ret->low_us, "baseline", diag));
    if (rc == 0)
        rc = optional(fa_json_number(json, "high_us", &ret->high_us, "baseline", diag));
    if (rc == 0)
        rc = optional(fa_json_int(json, "sample_count", 0, INT32_MAX, &count, "baseline", diag));
    if (rc == 0)
        rc = optional(
            fa_json_int(json, "unix_time", 0, (int64_t)1 << 40, &ret->unix_time, "baseline", diag));
    if (rc != 0)
        return rc;
    if (!(ret->median_us > 0 && ret->median_us < longest_us))
        return fa_fail(diag, FA_EINVAL, "\"median_us\" is %g: it must be above 0 and below %g",
                       ret->median_us, longest_us);
    if (!(ret->low_us == 0 && ret->high_us == 0) &&
        !(0 < ret->low_us && ret->low_us <= ret->median_us && ret->median_us <= ret->high_us &&
          ret->high_us < longest_us))
        return fa_fail(diag, FA_EINVAL,
                       "the interval from %g to %g us does not hold the median %g: give both ends "
                       "or neither",
                       ret->low_us, ret->high_us, ret->median_us);
    ret->sample_count = (int32_t)count;
    return 0;
}

static int read_baseline(const char *text, size_t size, fa_baseline *ret, fa_diag *diag)
{
    cJSON *json = NULL;
    *ret = (fa_baseline){0};
    int rc = fa_json_parse(text, size, "baseline", &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "it is no JSON object");
    if (rc == 0)
        rc = read_names(json, ret, diag);
    if (rc == 0)
        rc = read_times(json, ret, diag);
    const cJSON *problem = cJSON_GetObjectItemCaseSensitive(json, "problem");
    if (rc == 0 && problem == NULL)
        rc = fa_fail(diag, FA_EINVAL, "\"problem\" is missing");
    if (rc == 0)
        rc = fa_problem_from_strict_json(problem, FA_NEED_INTEGERS, "*", &ret->problem, diag);
    cJSON_Delete(json);
    return rc;
}

/* ---- the file -------------------------------------------------------------------------------*/
struct reading {
    fa_baseline *baseline;
    size_t count, capacity;
    fa_buf bad; /* what the sentence says of the bad lines */
    size_t bad_count;
};

static int take_line(struct reading *reading, const char *text, size_t size, size_t number)
{
    fa_diag why;
    fa_baseline *grown =
        fa_grow(reading->baseline, &reading->capacity, reading->count, sizeof *grown);
    if (grown == NULL)
        return FA_ENOMEM;
    reading->baseline = grown;
    int rc = size > BASELINE_LINE_MAX
                 ? fa_fail(&why, FA_EINVAL, "longer than %d bytes", BASELINE_LINE_MAX)
                 : read_baseline(text, size, &reading->baseline[reading->count], &why);
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

static int take_lines(struct reading *reading, const fa_buf *file, fa_diag *diag)
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
        int rc = blank < size ? take_line(reading, at, size, number) : 0;
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

static int read_file(struct reading *reading, const char *path, fa_diag *diag)
{
    fa_buf file = {0};
    int rc = fa_buf_read_file(&file, path, FILE_MAX);
    if (rc == FA_EINVAL)
        rc = fa_fail(diag, rc, "it is no regular file of at most %d MiB", FILE_MAX >> 20);
    else if (rc != 0)
        rc = fa_fail(diag, rc, "it cannot be read: %s", fa_error_text(rc));
    else
        rc = take_lines(reading, &file, diag);
    fa_buf_free(&file);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "baselines %.200s", path);
}

int fa_import_baselines(fa_tuner *tuner, const char *path, int32_t *ret_count, fa_diag *diag)
{
    struct reading reading = {0};
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    if (path == NULL)
        return fa_fail(diag, FA_EINVAL, "path is NULL");
    rc = read_file(&reading, path, diag);
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
    int rc = fa_tuner_check(tuner, diag);
    if (rc != 0)
        return rc;
    if (visit == NULL)
        return fa_fail(diag, FA_EINVAL, "visit is NULL");
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
    canonical_gpu(answer->gpu.name, here);
    return strcmp(baseline->gpu_name, here) == 0;
}
