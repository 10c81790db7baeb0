/* SPDX-License-Identifier: Apache-2.0
 *
 * Baselines: what other kernels take, as somebody measured it. One row for each problem, GPU and peer.
 */
#include "problem_row.h"
#include "statements.h"

#include <math.h>
#include <string.h>

#define FIELDS(X)                          \
    X(TEXT, "gpu_name", gpu_name)          \
    X(TEXT, "peer", peer)                  \
    X(REAL, "median_us", median_us)        \
    X(REAL, "low_us", low_us)              \
    X(REAL, "high_us", high_us)            \
    X(INT32, "sample_count", sample_count) \
    X(INT64, "unix_time", unix_time)       \
    X(TEXT, "source", source)              \
    X(REAL, "matmul_tflops", matmul_tflops)
#define FA_COLUMN_RECORD fa_baseline
static const fa_column columns[] = {FIELDS(FA_COLUMN_ENTRY)};

struct putting {
    const fa_baseline *baselines;
    size_t count;
};

static bool good(const fa_baseline *b)
{
    return memchr(b->gpu_name, 0, sizeof b->gpu_name) != NULL && b->gpu_name[0] != 0 &&
           memchr(b->peer, 0, sizeof b->peer) != NULL && b->peer[0] != 0 &&
           memchr(b->source, 0, sizeof b->source) != NULL && isfinite(b->median_us) &&
           isfinite(b->low_us) && isfinite(b->matmul_tflops) && b->matmul_tflops >= 0 && isfinite(b->high_us) && b->median_us > 0 &&
           ((b->low_us == 0 && b->high_us == 0) ||
            (0 < b->low_us && b->low_us <= b->median_us && b->median_us <= b->high_us)) &&
           b->sample_count >= 0 && b->unix_time >= 0 && fa_problem_check(&b->problem, NULL) == 0;
}

static int forget_earlier(fa_store *store, const fa_baseline *baseline, fa_diag *diag)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&baseline->problem, key);
    fa_binder binder = fa_db_prepare(
        store, "DELETE FROM baseline WHERE problem_key = ? AND gpu_name = ? AND peer = ?", diag);
    fa_bind_text(&binder, key);
    fa_bind_text(&binder, baseline->gpu_name);
    fa_bind_text(&binder, baseline->peer);
    return fa_db_run(store, &binder, diag);
}

static int put_one(fa_store *store, const fa_baseline *baseline, fa_diag *diag)
{
    int rc = forget_earlier(store, baseline, diag);
    if (rc != 0)
        return rc;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO baseline (problem_key, problem" FIELDS(
                          FA_COLUMN_NAME) ") VALUES (?,?" FIELDS(FA_COLUMN_PLACE) ")",
                      diag);
    fa_db_problem_bind(&binder, &baseline->problem);
    fa_bind_columns(&binder, columns, FA_COLUMN_COUNT(columns), baseline);
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

struct visiting {
    fa_store_baseline_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_baseline baseline = {0};
    fa_reader reader;
    int rc = fa_db_row(store,
                       "SELECT problem_key, problem" FIELDS(FA_COLUMN_NAME) " FROM baseline "
                                                                            "WHERE id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_problem_read(&reader, &baseline.problem);
    fa_read_columns(&reader, columns, FA_COLUMN_COUNT(columns), &baseline);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? (good(&baseline) ? visiting->visit(visiting->context, &baseline) : 0) : rc;
}

int fa_store_baselines_each(fa_store *store, fa_store_baseline_visit *visit, void *context,
                            fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store, "SELECT id FROM baseline ORDER BY id", diag);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}
