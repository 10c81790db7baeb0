/* SPDX-License-Identifier: Apache-2.0
 *
 * What predicted choices turned out to be when they were measured.
 */
#include "scope_row.h"
#include "trial_row.h"

#include <math.h>
#include <string.h>

#define FIELDS(X)                         \
    X(REAL, "predicted_us", predicted_us) \
    X(REAL, "measured_us", measured_us)   \
    X(REAL, "best_us", best_us)           \
    X(INT32, "rank", rank)                \
    X(INT32, "raced", raced)
#define NAMES(X)                  \
    X(ORIGIN, "origin", origin)   \
    X(TEXT, "gpu_name", gpu_name) \
    X(TEXT, "from_gpu", from_gpu)
#define FA_COLUMN_RECORD fa_prediction_record
static const fa_column names[] = {NAMES(FA_COLUMN_ENTRY)};
static const fa_column columns[] = {FIELDS(FA_COLUMN_ENTRY)};

static bool sound(const fa_prediction_record *r)
{
    return (r->origin == FA_ORIGIN_TRANSFERRED || r->origin == FA_ORIGIN_PREDICTED) &&
           memchr(r->gpu_name, 0, sizeof r->gpu_name) != NULL &&
           memchr(r->from_gpu, 0, sizeof r->from_gpu) != NULL && isfinite(r->predicted_us) &&
           r->predicted_us >= 0 && isfinite(r->measured_us) && r->measured_us > 0 &&
           isfinite(r->best_us) && r->best_us > 0 && r->rank >= 1 && r->raced >= r->rank;
}

static int forget_oldest(fa_store *store, fa_diag *diag)
{
    return fa_db_run_on(store,
                        "DELETE FROM prediction WHERE id <= (SELECT max(id) FROM prediction) - ?",
                        FA_PREDICTIONS_MAX, diag);
}

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    const fa_prediction_record *record = context;
    char config[FA_CONFIG_JSON_MAX];
    int64_t scope_id = 0;
    int rc = fa_db_scope_id(store, &record->scope, true, &scope_id, diag);
    if (rc != 0)
        return rc;
    fa_db_config_print(&record->config, config);
    fa_binder binder = fa_db_prepare(
        store,
        "INSERT INTO prediction (scope_id" NAMES(FA_COLUMN_NAME) ", config" FIELDS(
            FA_COLUMN_NAME) ", unix_time) VALUES (?" NAMES(FA_COLUMN_PLACE) ",?" FIELDS(FA_COLUMN_PLACE) ",?)",
        diag);
    fa_bind_int(&binder, scope_id);
    fa_bind_columns(&binder, names, FA_COLUMN_COUNT(names), record);
    fa_bind_text(&binder, config);
    fa_bind_columns(&binder, columns, FA_COLUMN_COUNT(columns), record);
    fa_bind_now(&binder);
    rc = fa_db_run(store, &binder, diag);
    return rc != 0 ? rc : forget_oldest(store, diag);
}

int fa_store_prediction_put(fa_store *store, const fa_prediction_record *record, fa_diag *diag)
{
    fa_prediction_record copy = *record;
    int rc = fa_db_scope_check(&record->scope, diag);
    if (rc == 0 && !sound(record))
        rc = fa_fail(diag, FA_EINVAL, "a prediction needs an origin that is one, times and a rank");
    return rc != 0 ? rc : fa_db_change(store, put_body, &copy, diag);
}

struct visiting {
    fa_prediction_record_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_prediction_record record = {0};
    fa_reader reader;
    int rc = fa_db_row(store,
                       "SELECT " FA_SCOPE_COLUMNS NAMES(FA_COLUMN_NAME) ", config" FIELDS(
                           FA_COLUMN_NAME) ", unix_time FROM prediction "
                                           "JOIN scope ON scope.id = scope_id "
                                           "WHERE prediction.id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_scope_read(&reader, &record.scope);
    fa_read_columns(&reader, names, FA_COLUMN_COUNT(names), &record);
    fa_db_config_read(&reader, &record.config);
    fa_read_columns(&reader, columns, FA_COLUMN_COUNT(columns), &record);
    record.unix_time = fa_read_int(&reader, 0, INT64_MAX);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? (sound(&record) ? visiting->visit(visiting->context, &record) : 0) : rc;
}

int fa_store_predictions_each(fa_store *store, fa_prediction_record_visit *visit, void *context,
                              fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store, "SELECT id FROM prediction ORDER BY id DESC", diag);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}
