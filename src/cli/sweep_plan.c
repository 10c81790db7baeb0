/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan: problems from a file of JSON lines. Its bytes are anybody's: sizes are bounded, every key is
 * checked, and the sentence names the line.
 */
#include "sweep_plan.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdio.h>
#include <string.h>

enum { PLAN_MAX = 16 << 20, PLAN_LINE_MAX = 16384 };

static int take_line(const char *text, size_t size, const fa_operation *operation,
                     const char (*gpus)[64], int gpu_count, cli_grid *grid, fa_diag *diag)
{
    cJSON *json = NULL;
    fa_problem problem;
    const char *name = NULL;
    fa_gpu gpu;
    if (size > PLAN_LINE_MAX)
        return fa_fail(diag, FA_EINVAL, "longer than %d bytes", PLAN_LINE_MAX);
    int rc = fa_json_parse(text, size, "JSON", &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "it is no JSON object");
    if (rc == 0) {
        const cJSON *inner = cJSON_GetObjectItemCaseSensitive(json, "problem");
        problem.operation = operation;
        rc = inner != NULL && !cJSON_IsObject(inner)
                 ? fa_fail(diag, FA_EINVAL, "\"problem\" is no JSON object")
                 : fa_problem_from_strict_json(inner != NULL ? inner : json, FA_NEED_REQUIRED,
                                               inner == NULL ? "gpu" : NULL, &problem, diag);
    }
    if (rc == 0) {
        rc = fa_json_text(json, "gpu", &name, "JSON", diag);
        rc = rc == 0 ? fa_gpu_find(name, &gpu, diag) : rc == FA_ENOTFOUND ? 0 : rc;
    }
    if (rc == 0 && name != NULL)
        rc = cli_grid_add(grid, &problem, gpu.name, diag);
    for (int i = 0; i < gpu_count && name == NULL && rc == 0; i++)
        rc = cli_grid_add(grid, &problem, gpus[i], diag);
    cJSON_Delete(json);
    return rc;
}

static int take_lines(const fa_buf *file, const fa_operation *operation, const char (*gpus)[64],
                      int gpu_count, cli_grid *grid, fa_diag *diag)
{
    const char *at = file->data, *end = file->data + file->size;
    for (size_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop != NULL ? stop : end) - at), blank = 0;
        while (blank < size && strchr(" \t\r", at[blank]) != NULL && at[blank] != 0)
            blank++;
        int rc = blank < size ? take_line(at, size, operation, gpus, gpu_count, grid, diag) : 0;
        if (rc != 0)
            return fa_fail_in(diag, rc, "line %zu", line);
        at += size + (stop != NULL);
    }
    return grid->count > 0 ? 0 : fa_fail(diag, FA_EINVAL, "it holds no problem");
}

int cli_plan_read(const char *path, const fa_operation *operation, const char (*gpus)[64],
                  int gpu_count, cli_grid *grid, fa_diag *diag)
{
    fa_buf file = {0};
    int rc = fa_buf_read_file(&file, path, PLAN_MAX);
    if (rc == FA_EINVAL)
        rc = fa_fail(diag, rc, "it is no regular file of at most %d MiB", PLAN_MAX >> 20);
    else if (rc != 0)
        rc = fa_fail(diag, rc, "it cannot be read: %s", fa_error_text(rc));
    else
        rc = take_lines(&file, operation, gpus, gpu_count, grid, diag);
    fa_buf_free(&file);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "plan %.200s", path);
}
