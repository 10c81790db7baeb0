/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cubins were proved again on a silicon under another driver, and how that ended.
 */
#include "scope_row.h"

#include <string.h>

struct marking {
    const fa_verification *mark;
    const fa_scope *scope;
};

static bool ends(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

/* The column says 0: failed; 1: passed; 1 + n: its time ran out n times in a row. Versions before
 * that take the last for no mark at all. */
static int64_t outcome(const fa_verification *mark)
{
    return mark->late > 0 ? 1 + mark->late : mark->passed;
}

static int put_mark(fa_store *store, const fa_verification *mark, fa_diag *diag)
{
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO verification (cubin_key, silicon, driver_version, "
                      "passed, reason, unix_time) VALUES (?,?,?,?,?,?) "
                      "ON CONFLICT (cubin_key, silicon, driver_version) DO UPDATE SET "
                      "passed = excluded.passed, reason = excluded.reason, "
                      "unix_time = excluded.unix_time",
                      diag);
    fa_bind_text(&binder, mark->cubin_key);
    fa_bind_text(&binder, mark->silicon);
    fa_bind_int(&binder, mark->driver_version);
    fa_bind_int(&binder, outcome(mark));
    fa_bind_text(&binder, mark->reason);
    fa_bind_now(&binder);
    return fa_db_run(store, &binder, diag);
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
        fa_bind_int(&binder, mark->driver_version);
    fa_bind_int(&binder, scope_id);
    fa_bind_text(&binder, mark->cubin_key);
    return fa_db_run(store, &binder, diag);
}

static int mark_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct marking *marking = context;
    int64_t scope_id = 0;
    int rc = put_mark(store, marking->mark, diag);
    if (rc == 0)
        rc = fa_db_scope_id(store, marking->scope, false, &scope_id, diag);
    /* A winner of another store has no scope here. */
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
    fa_verification mark = {.driver_version = driver_version};
    fa_reader reader;
    fa_binder binder =
        fa_db_query(store,
                    "SELECT cubin_key, silicon, passed, unix_time, reason FROM verification "
                    "WHERE cubin_key = ? AND silicon = ? AND driver_version = ?",
                    diag);
    fa_bind_text(&binder, cubin_key);
    fa_bind_text(&binder, silicon);
    fa_bind_int(&binder, driver_version);
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc <= 0)
        return rc < 0 ? rc : FA_ENOTFOUND;
    fa_read_copy(&reader, mark.cubin_key, sizeof mark.cubin_key);
    fa_read_copy(&reader, mark.silicon, sizeof mark.silicon);
    int64_t said = fa_read_int(&reader, 0, 1 + FA_VERIFICATION_LATE_MAX);
    mark.passed = said == 1;
    mark.late = said > 1 ? (int32_t)said - 1 : 0;
    mark.unix_time = fa_read_int(&reader, 0, INT64_MAX);
    fa_read_copy(&reader, mark.reason, sizeof mark.reason);
    rc = fa_read_end(&reader, diag);
    if (rc != 1) /* a mark that is not valid counts as none: the cubin is proved once more */
        return rc < 0 ? rc : FA_ENOTFOUND;
    *ret_mark = mark;
    return 0;
}
