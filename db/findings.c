/* SPDX-License-Identifier: Apache-2.0
 *
 * What was learned beside trials and winners: which cubins were proved again under another driver, and what other
 * kernels take.
 */
#include "store.h"

#include "json.h"
#include "rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- verifications --------------------------------------------------------------------------*/
static int put_mark(fa_store *store, const fa_verification *mark, fa_diag *diag)
{
    return fa_db_do(store, diag,
                    "INSERT INTO verification (cubin_key, silicon, driver_version, "
                    "passed, reason, unix_time) VALUES (?,?,?,?,?,?) "
                    "ON CONFLICT (cubin_key, silicon, driver_version) DO UPDATE SET "
                    "passed = excluded.passed, reason = excluded.reason, "
                    "unix_time = excluded.unix_time",
                    fa_text(mark->cubin_key), fa_text(mark->silicon), fa_int(mark->driver_version),
                    fa_int(mark->passed), fa_text(mark->reason), fa_now());
}

static int tell_winner(fa_store *store, int64_t scope_id, const fa_verification *mark,
                       fa_diag *diag)
{
    fa_binder binder =
        mark->passed
            ? fa_db_prepare(store,
                            "UPDATE winner SET driver_version = ? "
                            "WHERE scope_id = ? AND cubin_key = ?",
                            diag)
            : fa_db_prepare(store, "DELETE FROM winner WHERE scope_id = ? AND cubin_key = ?", diag);
    if (mark->passed)
        fa_bind(&binder, fa_int(mark->driver_version));
    fa_bind(&binder, fa_int(scope_id), fa_text(mark->cubin_key));
    return fa_db_run(store, &binder, diag);
}

int fa_store_verification_put(fa_store *store, const fa_verification *mark, const fa_scope *scope,
                              fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    int64_t scope_id;
    int rc = fa_db_scope_check(scope, diag);
    if (rc != 0)
        return rc;
    while (fa_store_change(&change)) {
        scope_id = 0;
        change.rc = put_mark(store, mark, diag);
        if (change.rc == 0)
            change.rc = fa_db_scope_id(store, scope, false, &scope_id, diag);
        if (change.rc == 0 && scope_id != 0) /* 0: a winner of another store */
            change.rc = tell_winner(store, scope_id, mark, diag);
    }
    return change.rc;
}

int fa_store_verification_get(fa_store *store, const char *cubin_key, const char *silicon,
                              int32_t driver_version, fa_verification *ret_mark, fa_diag *diag)
{
    fa_verification mark = {.driver_version = driver_version};
    fa_reader reader;
    fa_binder binder = fa_db_query(store,
                                   "SELECT cubin_key, silicon, passed, reason FROM verification "
                                   "WHERE cubin_key = ? AND silicon = ? AND driver_version = ?",
                                   diag);
    fa_bind(&binder, fa_text(cubin_key), fa_text(silicon), fa_int(driver_version));
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc <= 0)
        return rc < 0 ? rc : FA_ENOTFOUND;
    fa_read_copy(&reader, mark.cubin_key, sizeof mark.cubin_key);
    fa_read_copy(&reader, mark.silicon, sizeof mark.silicon);
    mark.passed = fa_read_int(&reader, 0, 1) == 1;
    fa_read_copy(&reader, mark.reason, sizeof mark.reason);
    rc = fa_read_end(&reader, diag);
    if (rc != 1) /* a mark that is not valid counts as none: the cubin is proved once more */
        return rc < 0 ? rc : FA_ENOTFOUND;
    *ret_mark = mark;
    return 0;
}

/* ---- baselines: one row for each problem, GPU and peer ---------------------------------------*/
#define FA_COLUMN_RECORD fa_baseline
static const fa_member baseline_columns[] = {FA_BASELINE_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};

static bool sound_baseline(const fa_baseline *b)
{
    return b->gpu_name[0] != 0 && b->peer[0] != 0 && isfinite(b->median_us) &&
           isfinite(b->low_us) && isfinite(b->matmul_tflops) && b->matmul_tflops >= 0 &&
           isfinite(b->high_us) && b->median_us > 0 &&
           ((b->low_us == 0 && b->high_us == 0) ||
            (0 < b->low_us && b->low_us <= b->median_us && b->median_us <= b->high_us)) &&
           b->sample_count >= 0 && b->unix_time >= 0 && b->unix_time <= FA_BASELINE_TIME_MAX &&
           fa_problem_check(&b->problem, NULL) == 0;
}

static int put_baseline(fa_store *store, const fa_baseline *baseline, fa_diag *diag)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&baseline->problem, key);
    int rc = fa_db_do(store, diag,
                      "DELETE FROM baseline WHERE problem_key = ? AND gpu_name = ? AND peer = ?",
                      fa_text(key), fa_text(baseline->gpu_name), fa_text(baseline->peer));
    if (rc != 0)
        return rc;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO baseline (problem_key, problem" FA_BASELINE_FIELDS(
                          FA_COLUMN_MEMBER) ") VALUES (?,?" FA_BASELINE_FIELDS(FA_COLUMN_PLACE) ")",
                      diag);
    fa_db_problem_bind(&binder, &baseline->problem);
    fa_bind_columns(&binder, baseline_columns, baseline);
    return fa_db_run(store, &binder, diag);
}

int fa_store_baselines_put(fa_store *store, const fa_baseline *baselines, size_t count,
                           fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change))
        for (size_t i = 0; i < count && change.rc == 0; i++)
            change.rc = put_baseline(store, &baselines[i], diag);
    return change.rc;
}

int fa_store_baselines(fa_store *store, fa_baseline **ret_rows, size_t *ret_count, fa_diag *diag)
{
    fa_list list = {0};
    fa_reader reader = {0};
    int rc;
    fa_binder binder = fa_db_query(
        store,
        "SELECT problem_key, problem" FA_BASELINE_FIELDS(FA_COLUMN_MEMBER) " FROM baseline "
                                                                           "ORDER BY id",
        diag);
    while ((rc = fa_db_next(store, &binder, &reader, diag)) == 1) {
        fa_baseline baseline = {0};
        fa_db_problem_read(&reader, &baseline.problem);
        fa_read_columns(&reader, baseline_columns, &baseline);
        if (reader.rc == 0 && sound_baseline(&baseline))
            fa_list_add(&list, &baseline, sizeof baseline);
    }
    return fa_list_end(&list, rc, NULL, ret_rows, ret_count, diag);
}
