/* SPDX-License-Identifier: Apache-2.0
 *
 * First contact: which cubins were proved again on a silicon under another driver, and what predicted
 * choices turned out to be when they were measured.
 */
#include "internal.h"

#include "../src/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool ends(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

/* ---- verifications --------------------------------------------------------------------------*/
struct marking {
    const fa_verification *mark;
    const fa_scope *scope;
};

/* The column says 0: failed; 1: passed; 1 + n: its time ran out n times in a row. Versions before
 * that take the last for no mark at all. */
static int64_t outcome(const fa_verification *mark)
{
    return mark->late > 0 ? 1 + mark->late : mark->passed;
}

static int put_mark(fa_store *store, const fa_verification *mark, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_VERIFICATION_PUT,
                             "INSERT INTO verification (cubin_key, silicon, driver_version, "
                             "passed, reason, unix_time) VALUES (?,?,?,?,?,?) "
                             "ON CONFLICT (cubin_key, silicon, driver_version) DO UPDATE SET "
                             "passed = excluded.passed, reason = excluded.reason, "
                             "unix_time = excluded.unix_time",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, mark->cubin_key);
    fa_bind_text(&binder, mark->silicon);
    fa_bind_int(&binder, mark->driver_version);
    fa_bind_int(&binder, outcome(mark));
    fa_bind_text(&binder, mark->reason);
    fa_bind_int(&binder, (int64_t)time(NULL));
    return fa_db_step(store, statement, diag);
}

static int tell_winner(fa_store *store, int64_t scope_id, const fa_verification *mark, fa_diag *diag)
{
    fa_statement *statement;
    int rc = mark->passed
                 ? fa_db_statement(store, FA_SQL_WINNER_VERIFIED,
                                   "UPDATE winner SET driver_version = ? "
                                   "WHERE scope_id = ? AND cubin_key = ?",
                                   &statement, diag)
                 : fa_db_statement(store, FA_SQL_WINNER_REFUSED,
                                   "DELETE FROM winner WHERE scope_id = ? AND cubin_key = ?",
                                   &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    if (mark->passed)
        fa_bind_int(&binder, mark->driver_version);
    fa_bind_int(&binder, scope_id);
    fa_bind_text(&binder, mark->cubin_key);
    return fa_db_step(store, statement, diag);
}

static int mark_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct marking *marking = context;
    int64_t scope_id = 0;
    int rc = put_mark(store, marking->mark, diag);
    if (rc == 0)
        rc = fa_db_scope_id(store, marking->scope, false, &scope_id, diag);
    /* A winner that is not of this store has no scope here. */
    if (rc == 0 && scope_id != 0 && marking->mark->late == 0)
        rc = tell_winner(store, scope_id, marking->mark, diag);
    return rc;
}

int fa_store_verification_put(fa_store *store, const fa_verification *mark, const fa_scope *scope,
                              fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    if (rc == 0 &&
        (!ends(mark->cubin_key, sizeof mark->cubin_key) || mark->cubin_key[0] == 0 ||
         !ends(mark->silicon, sizeof mark->silicon) || !ends(mark->reason, sizeof mark->reason) ||
         mark->driver_version <= 0 || mark->late < 0 || mark->late > FA_VERIFICATION_LATE_MAX ||
         (mark->passed && mark->late > 0)))
        rc = fa_fail(diag, FA_EINVAL, "a verification needs a cubin key, a silicon and a driver");
    struct marking marking = {mark, scope};
    return rc != 0 ? rc : fa_db_write(store, mark_body, &marking, diag);
}

int fa_store_verification_get(fa_store *store, const char *cubin_key, const char *silicon,
                              int32_t driver_version, fa_verification *ret_mark, fa_diag *diag)
{
    fa_statement *statement;
    fa_verification mark = {.driver_version = driver_version};
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_VERIFICATION_GET,
                             "SELECT cubin_key, silicon, passed, unix_time, reason FROM verification "
                             "WHERE cubin_key = ? AND silicon = ? AND driver_version = ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, cubin_key);
    fa_bind_text(&binder, silicon);
    fa_bind_int(&binder, driver_version);
    rc = fa_db_step(store, statement, diag);
    if (rc <= 0)
        return rc < 0 ? rc : FA_ENOTFOUND;
    fa_reader reader = {.statement = statement, .ok = true};
    fa_read_copy(&reader, mark.cubin_key, sizeof mark.cubin_key);
    fa_read_copy(&reader, mark.silicon, sizeof mark.silicon);
    int64_t said = fa_read_int(&reader, 0, 1 + FA_VERIFICATION_LATE_MAX);
    mark.passed = said == 1;
    mark.late = said > 1 ? (int32_t)said - 1 : 0;
    mark.unix_time = fa_read_int(&reader, 0, INT64_MAX);
    fa_read_copy(&reader, mark.reason, sizeof mark.reason);
    fa_db_reset(statement);
    if (!reader.ok) /* as good as none: it is proved once more */
        return FA_ENOTFOUND;
    *ret_mark = mark;
    return 0;
}

/* ---- predictions ----------------------------------------------------------------------------*/
static bool sound(const fa_prediction_record *r)
{
    return (r->origin == FA_ORIGIN_TRANSFERRED || r->origin == FA_ORIGIN_PREDICTED) &&
           ends(r->gpu_name, sizeof r->gpu_name) && ends(r->from_gpu, sizeof r->from_gpu) &&
           isfinite(r->predicted_us) && r->predicted_us >= 0 && isfinite(r->measured_us) &&
           r->measured_us > 0 && isfinite(r->best_us) && r->best_us > 0 && r->rank >= 1 &&
           r->raced >= r->rank;
}

static int prediction_body(fa_store *store, void *context, fa_diag *diag)
{
    const fa_prediction_record *record = context;
    fa_statement *statement = NULL;
    int64_t scope_id = 0;
    cJSON *json = fa_config_to_json(&record->config);
    char *config = json != NULL ? cJSON_PrintUnformatted(json) : NULL;
    cJSON_Delete(json);
    int rc = config == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory")
                            : fa_db_scope_id(store, &record->scope, true, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_PREDICTION_PUT,
                             "INSERT INTO prediction (scope_id, origin, gpu_name, from_gpu, config, "
                             "predicted_us, measured_us, best_us, rank, raced, unix_time) "
                             "VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                             &statement, diag);
    if (rc == 0) {
        fa_binder binder = {.statement = statement};
        fa_bind_int(&binder, scope_id);
        fa_bind_text(&binder, fa_origin_name(record->origin));
        fa_bind_text(&binder, record->gpu_name);
        fa_bind_text(&binder, record->from_gpu);
        fa_bind_text(&binder, config);
        fa_bind_real(&binder, record->predicted_us);
        fa_bind_real(&binder, record->measured_us);
        fa_bind_real(&binder, record->best_us);
        fa_bind_int(&binder, record->rank);
        fa_bind_int(&binder, record->raced);
        fa_bind_int(&binder, (int64_t)time(NULL));
        rc = fa_db_step(store, statement, diag);
    }
    cJSON_free(config);
    return rc;
}

int fa_store_prediction_put(fa_store *store, const fa_prediction_record *record, fa_diag *diag)
{
    fa_prediction_record copy = *record;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(&record->scope, diag);
    if (rc == 0 && !sound(record))
        rc = fa_fail(diag, FA_EINVAL, "a prediction needs an origin that is one, times and a rank");
    return rc != 0 ? rc : fa_db_write(store, prediction_body, &copy, diag);
}

/* 1: loaded; 0: gone or invalid, to be skipped; or negative. */
static int load(fa_store *store, int64_t id, fa_prediction_record *ret_record, fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_PREDICTION_READ,
                       "SELECT " FA_SCOPE_COLUMNS ", origin, gpu_name, from_gpu, config, "
                       "predicted_us, measured_us, best_us, rank, raced, unix_time "
                       "FROM prediction JOIN scope ON scope.id = scope_id "
                       "WHERE prediction.id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_prediction_record *r = ret_record;
    cJSON *json = NULL;
    fa_db_scope_read(&reader, &r->scope);
    if (fa_origin_parse(fa_read_text(&reader, false), &r->origin) != 0)
        reader.ok = false;
    fa_read_copy(&reader, r->gpu_name, sizeof r->gpu_name);
    fa_read_copy(&reader, r->from_gpu, sizeof r->from_gpu);
    const char *config = fa_read_text(&reader, false);
    if (!reader.ok || fa_json_parse(config, strlen(config), "config", &json, NULL) != 0 ||
        fa_config_from_json(json, &r->config, NULL) != 0)
        reader.ok = false;
    cJSON_Delete(json);
    double *const times[] = {&r->predicted_us, &r->measured_us, &r->best_us};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        *times[i] = fa_read_real(&reader, 0);
    r->rank = (int32_t)fa_read_int(&reader, 1, INT32_MAX);
    r->raced = (int32_t)fa_read_int(&reader, 1, INT32_MAX);
    r->unix_time = fa_read_int(&reader, 0, INT64_MAX);
    fa_db_reset(reader.statement);
    return reader.ok && sound(r) ? 1 : 0;
}

int fa_store_predictions_each(fa_store *store, fa_prediction_record_visit *visit, void *context,
                              fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids(store, FA_SQL_PREDICTION_IDS,
                       "SELECT id FROM prediction ORDER BY id DESC", &ids, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_prediction_record record = {0};
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load(store, ids[i], &record, diag);
        if (rc == 1)
            rc = visit(context, &record);
    }
    free(ids);
    return rc;
}
