/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines: what other kernels take, as somebody measured it. One row for each problem, GPU and peer.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct putting {
    const fa_baseline *baselines;
    size_t count;
};

static bool good(const fa_baseline *b)
{
    return memchr(b->gpu_name, 0, sizeof b->gpu_name) != NULL && b->gpu_name[0] != 0 &&
           memchr(b->peer, 0, sizeof b->peer) != NULL && b->peer[0] != 0 &&
           memchr(b->source, 0, sizeof b->source) != NULL && isfinite(b->median_us) &&
           isfinite(b->low_us) && isfinite(b->high_us) && b->median_us > 0 &&
           ((b->low_us == 0 && b->high_us == 0) ||
            (0 < b->low_us && b->low_us <= b->median_us && b->median_us <= b->high_us)) &&
           b->sample_count >= 0 && b->unix_time >= 0 && fa_problem_check(&b->problem, NULL) == 0;
}

static int forget_earlier(fa_store *store, const fa_baseline *baseline, fa_diag *diag)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_BASELINE_DELETE,
                             "DELETE FROM baseline WHERE problem_key = ? AND gpu_name = ? "
                             "AND peer = ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_problem_key(&baseline->problem, key);
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, key);
    fa_bind_text(&binder, baseline->gpu_name);
    fa_bind_text(&binder, baseline->peer);
    return fa_db_run(store, &binder, diag);
}

static int put_one(fa_store *store, const fa_baseline *baseline, fa_diag *diag)
{
    fa_statement *statement;
    int rc = forget_earlier(store, baseline, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_BASELINE_PUT,
                             "INSERT INTO baseline (problem_key, problem, gpu_name, "
                             "peer, median_us, low_us, high_us, sample_count, unix_time, source) "
                             "VALUES (?,?,?,?,?,?,?,?,?,?)",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_db_problem_bind(&binder, &baseline->problem);
    fa_bind_text(&binder, baseline->gpu_name);
    fa_bind_text(&binder, baseline->peer);
    fa_bind_real(&binder, baseline->median_us);
    fa_bind_real(&binder, baseline->low_us);
    fa_bind_real(&binder, baseline->high_us);
    fa_bind_int(&binder, baseline->sample_count);
    fa_bind_int(&binder, baseline->unix_time);
    fa_bind_text(&binder, baseline->source);
    return fa_db_run(store, &binder, diag);
}

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct putting *putting = context;
    int rc = 0;
    for (size_t i = 0; i < putting->count && rc == 0; i++)
        rc = put_one(store, &putting->baselines[i], diag);
    return rc;
}

int fa_store_baselines_put(fa_store *store, const fa_baseline *baselines, size_t count,
                           fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    for (size_t i = 0; i < count && rc == 0; i++)
        if (!good(&baselines[i]))
            rc = fa_fail(diag, FA_EINVAL,
                         "baseline %zu lacks a GPU or a peer, or its numbers cannot be", i);
    struct putting putting = {baselines, count};
    return rc != 0 ? rc : fa_db_write(store, put_body, &putting, diag);
}

/* 1: loaded; 0: gone or not valid, to be skipped; or negative. */
static int load(fa_store *store, int64_t id, fa_baseline *ret_baseline, fa_diag *diag)
{
    fa_baseline *b = ret_baseline;
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_BASELINE_READ,
                       "SELECT problem_key, problem, gpu_name, peer, median_us, low_us, "
                       "high_us, sample_count, unix_time, source FROM baseline WHERE id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_problem_read(&reader, &b->problem);
    fa_read_copy(&reader, b->gpu_name, sizeof b->gpu_name);
    fa_read_copy(&reader, b->peer, sizeof b->peer);
    b->median_us = fa_read_real(&reader, NAN);
    b->low_us = fa_read_real(&reader, NAN);
    b->high_us = fa_read_real(&reader, NAN);
    b->sample_count = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    b->unix_time = fa_read_int(&reader, 0, INT64_MAX);
    fa_read_copy(&reader, b->source, sizeof b->source);
    fa_db_reset(reader.statement);
    return reader.ok && good(b) ? 1 : 0;
}

int fa_store_baselines_each(fa_store *store, fa_store_baseline_visit *visit, void *context,
                            fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids(store, FA_SQL_BASELINE_IDS, "SELECT id FROM baseline ORDER BY id", &ids,
                       &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_baseline baseline = {0};
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load(store, ids[i], &baseline, diag);
        if (rc == 1)
            rc = visit(context, &baseline);
    }
    free(ids);
    return rc;
}
