/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines from a file of JSON lines that anybody may have written: bounded in size, checked line by
 * line, and either all taken or none.
 */
#include "records.h"
#include "buf.h"
#include "problem.h"
#include "session.h"
#include "store.h"

#include "error.h"
#include "json.h"

#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 32 << 20, BASELINE_LINE_MAX = 16384, BASELINES_MAX = 100000, LINES_NAMED = 6 };

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
    fa_baseline_gpu(answer->gpu.name, here);
    return strcmp(baseline->gpu_name, here) == 0;
}
