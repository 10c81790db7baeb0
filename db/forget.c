/* SPDX-License-Identifier: Apache-2.0
 *
 * Forgetting: the scopes that go, and the cubins that nothing else refers to, stand in two tables of the
 * connection's own. The counts of a dry run and of a real one are made by the same statements, before
 * anything is deleted.
 *
 * Workload: by hand or once a day: tens to thousands of scopes with a hundred trials each. No index leads from a
 * cubin's key to its trials: both sides are read once, whatever their number.
 */
#include "rows.h"
#include "sqlite.h"

#define GOING "(SELECT scope_id FROM forgotten)"
#define CUBINS_GOING "(SELECT cubin_key FROM forgotten_cubin)"

static const char begin_sql[] =
    "CREATE TEMP TABLE IF NOT EXISTS forgotten (scope_id INTEGER PRIMARY KEY);"
    "CREATE TEMP TABLE IF NOT EXISTS forgotten_cubin (cubin_key TEXT PRIMARY KEY);"
    "DELETE FROM temp.forgotten;"
    "DELETE FROM temp.forgotten_cubin;";

static const char cubins_sql[] =
    "INSERT INTO temp.forgotten_cubin "
    "SELECT cubin_key FROM trial WHERE scope_id IN " GOING
    " UNION SELECT cubin_key FROM winner WHERE scope_id IN " GOING
    " EXCEPT SELECT cubin_key FROM trial WHERE scope_id NOT IN " GOING
    " EXCEPT SELECT cubin_key FROM winner WHERE scope_id NOT IN " GOING;

static const char everything_sql[] =
    "INSERT INTO temp.forgotten SELECT id FROM scope;"
    "INSERT INTO temp.forgotten_cubin SELECT key FROM cubin UNION SELECT cubin_key FROM verification;";

/* Children before their parents, as their foreign keys demand. */
static const char delete_sql[] =
    "DELETE FROM winner WHERE scope_id IN " GOING ";"
    "DELETE FROM trial WHERE scope_id IN " GOING ";"
    "DELETE FROM prediction WHERE scope_id IN " GOING ";"
    "DELETE FROM outbox WHERE scope_id IN " GOING ";"
    "DELETE FROM winner_set_aside WHERE scope_id IN " GOING ";"
    "DELETE FROM scope WHERE id IN " GOING ";"
    "DELETE FROM verification WHERE cubin_key IN " CUBINS_GOING ";"
    "DELETE FROM cubin WHERE key IN " CUBINS_GOING ";"
    "DELETE FROM environment WHERE id NOT IN (SELECT environment_id FROM trial);";

struct forgetting {
    const fa_scope *scopes; /* NULL: everything */
    size_t count;
    const int64_t *unread;
    size_t unread_count;
    bool dry_run;
    fa_store_forgotten forgotten;
};

static int choose_scope(fa_store *store, const fa_scope *scope, fa_diag *diag)
{
    int64_t id = 0;
    int rc = fa_db_scope_id(store, scope, false, &id, diag);
    return rc != 0 || id == 0
               ? rc /* gone meanwhile */
               : fa_db_run_on(store, "INSERT OR IGNORE INTO temp.forgotten VALUES (?)", id, diag);
}

static int choose_scopes(fa_store *store, const struct forgetting *forgetting, fa_diag *diag)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < forgetting->count; i++)
        rc = choose_scope(store, &forgetting->scopes[i], diag);
    for (size_t i = 0; rc == 0 && i < forgetting->unread_count; i++)
        rc = fa_db_run_on(store,
                          "INSERT OR IGNORE INTO temp.forgotten SELECT id FROM scope WHERE id = ?",
                          forgetting->unread[i], diag);
    return rc != 0 ? rc : fa_db_exec(store, cubins_sql, diag);
}

static int count_rows(fa_store *store, fa_store_forgotten *ret_forgotten, fa_diag *diag)
{
    fa_store_forgotten counts;
    fa_reader reader;
    fa_binder binder = fa_db_prepare(
        store,
        "SELECT (SELECT count(*) FROM winner WHERE scope_id IN " GOING "), "
        "(SELECT count(*) FROM (SELECT DISTINCT scope_id, config_key FROM trial WHERE scope_id IN " GOING
        ")), (SELECT count(*) FROM cubin WHERE key IN " CUBINS_GOING "), "
        "coalesce((SELECT sum(length(bytes) + coalesce(length(log), 0)) FROM cubin WHERE key IN " CUBINS_GOING
        "), 0) + "
        "coalesce((SELECT sum(length(samples) + length(reason) + coalesce(length(clocks), 0)) FROM trial "
        "WHERE scope_id IN " GOING "), 0) + "
        "coalesce((SELECT sum(coalesce(length(evidence), 0)) FROM winner WHERE scope_id IN " GOING
        "), 0)",
        diag);
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc <= 0)
        return rc;
    counts.winners = fa_read_int(&reader, 0, INT64_MAX);
    counts.trials = fa_read_int(&reader, 0, INT64_MAX);
    counts.cubins = fa_read_int(&reader, 0, INT64_MAX);
    counts.bytes = fa_read_int(&reader, 0, INT64_MAX);
    rc = fa_read_end(&reader, diag);
    if (rc == 1)
        *ret_forgotten = counts;
    return rc == 0 ? fa_fail(diag, FA_ECORRUPT, "store %s: it cannot be counted", store->path)
                   : (rc < 0 ? rc : 0);
}

static int forget_body(fa_store *store, void *context, fa_diag *diag)
{
    struct forgetting *forgetting = context;
    int rc = fa_db_exec(store, begin_sql, diag);
    if (rc == 0)
        rc = forgetting->scopes == NULL ? fa_db_exec(store, everything_sql, diag)
                                        : choose_scopes(store, forgetting, diag);
    if (rc == 0)
        rc = count_rows(store, &forgetting->forgotten, diag);
    return rc == 0 && !forgetting->dry_run ? fa_db_exec(store, delete_sql, diag) : rc;
}

int fa_store_forget(fa_store *store, const fa_scope *scopes, size_t count, const int64_t *unread,
                    size_t unread_count, bool dry_run, fa_store_forgotten *ret_forgotten,
                    fa_diag *diag)
{
    struct forgetting forgetting = {.scopes = scopes,
                                    .count = count,
                                    .unread = unread,
                                    .unread_count = unread_count,
                                    .dry_run = dry_run};
    int rc = fa_db_enter(store, diag);
    if (rc == 0 && store->postgres != NULL)
        rc = fa_fail(diag, FA_ENOTSUP,
                     "store %s is on a server: only a file's winners are forgotten", store->path);
    for (size_t i = 0; rc == 0 && scopes != NULL && i < count; i++)
        rc = fa_db_scope_check(&scopes[i], diag);
    if (rc == 0)
        rc = dry_run ? forget_body(store, &forgetting, diag)
                     : fa_db_write(store, forget_body, &forgetting, diag);
    if (rc == 0)
        *ret_forgotten = forgetting.forgotten;
    return rc;
}

int64_t fa_store_shrink(fa_store *store)
{
    return fa_db_enter(store, NULL) == 0 && store->postgres == NULL && !store->read_only
               ? fa_sqlite_shrink(store)
               : 0;
}
