/* SPDX-License-Identifier: Apache-2.0
 *
 * A plan: problems from a file of JSON lines. Its bytes are anybody's: sizes are bounded, every key is
 * checked, and the sentence names the line.
 */
#include "grid.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdio.h>
#include <string.h>

enum { PLAN_MAX = 16 << 20, PLAN_LINE_MAX = 16384 };

/* A key that nobody knows is a mistake: its default would be tuned in silence. */
static int check_keys(const cJSON *problem, bool flat, fa_diag *diag)
{
    static const char *const keys[] = {"operation", "dtype",   "causal",   "layout", "head_dim",
                                       "batch",     "heads_q", "heads_kv", "seq_q",  "seq_k",
                                       "lse",       "unaligned"};
    const char *operation;
    for (const cJSON *item = problem->child; item != NULL; item = item->next) {
        bool known = flat && strcmp(item->string, "gpu") == 0;
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
            known = known || strcmp(item->string, keys[i]) == 0;
        if (!known)
            return fa_fail(diag, FA_EINVAL, "a problem has no \"%.40s\"", item->string);
    }
    int rc = fa_json_text(problem, "operation", &operation, "problem", diag);
    if (rc == 0 && strcmp(operation, "attn_fwd") != 0)
        return fa_fail(diag, FA_EINVAL, "operation \"%.40s\" is not known: use attn_fwd",
                       operation);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

/* What is left out is as on the command line; seq_k follows seq_q and heads_kv heads_q. */
static int read_problem(const cJSON *json, bool flat, fa_problem *ret, fa_diag *diag)
{
    int64_t value;
    fa_problem problem = {.head_dim = 64, .batch = 4, .heads_q = 8, .seq_q = -1};
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "\"problem\" is no JSON object");
    int rc = check_keys(json, flat, diag);
    if (rc == 0)
        rc = fa_json_int(json, "seq_q", 0, INT32_MAX, &value, "problem", diag);
    if (rc == FA_ENOTFOUND)
        return fa_fail(diag, FA_EINVAL, "\"seq_q\" is missing");
    if (rc != 0)
        return rc;
    problem.seq_k = (int32_t)value;
    rc = fa_json_int(json, "heads_q", 1, 65535, &value, "problem", diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    problem.heads_kv = rc == 0 ? (int32_t)value : problem.heads_q;
    rc = fa_problem_from_json(json, &problem, diag);
    if (rc == 0)
        *ret = problem;
    return rc;
}

static int take_line(const char *text, size_t size, const char (*gpus)[64], int gpu_count,
                     cli_grid *grid, fa_diag *diag)
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
        rc = read_problem(inner != NULL ? inner : json, inner == NULL, &problem, diag);
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

static int take_lines(const fa_buf *file, const char (*gpus)[64], int gpu_count, cli_grid *grid,
                      fa_diag *diag)
{
    const char *at = file->data, *end = file->data + file->size;
    for (size_t line = 1; at < end; line++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t size = (size_t)((stop != NULL ? stop : end) - at), blank = 0;
        while (blank < size && strchr(" \t\r", at[blank]) != NULL && at[blank] != 0)
            blank++;
        int rc = blank < size ? take_line(at, size, gpus, gpu_count, grid, diag) : 0;
        if (rc != 0)
            return fa_fail_in(diag, rc, "line %zu", line);
        at += size + (stop != NULL);
    }
    return grid->count > 0 ? 0 : fa_fail(diag, FA_EINVAL, "it holds no problem");
}

int cli_plan_read(const char *path, const char (*gpus)[64], int gpu_count, cli_grid *grid,
                  fa_diag *diag)
{
    fa_buf file = {0};
    int rc = fa_buf_read_file(&file, path, PLAN_MAX);
    if (rc == FA_EINVAL)
        rc = fa_fail(diag, rc, "it is no regular file of at most %d MiB", PLAN_MAX >> 20);
    else if (rc != 0)
        rc = fa_fail(diag, rc, "it cannot be read: %s", fa_error_text(rc));
    else
        rc = take_lines(&file, gpus, gpu_count, grid, diag);
    fa_buf_free(&file);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "plan %.200s", path);
}
