/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection keeps every statement that it has prepared, told from others by the address of its text:
 * each stands once in the program.
 */
#include "statements.h"

#include <unistd.h>

int fa_db_enter(fa_store *store, fa_diag *diag)
{
    if (store == NULL)
        return fa_fail(diag, FA_EINVAL, "no store is open");
    if (store->pid != getpid())
        return fa_fail(diag, FA_EFORKED,
                       "store %s was opened before fork(): open it again in the child",
                       store->path);
    return store->enter(store, diag);
}

int fa_db_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    return store->backend->exec(store, sql, diag);
}

int fa_db_refuse_version(const fa_store *store, int64_t version, const char *instead, fa_diag *diag)
{
    return fa_fail(diag, FA_EVERSION,
                   "store %s is of version %lld, and this fa-tune reads and writes version %d "
                   "alone, so it was left as it is; use the fa-tune that made it, %s",
                   store->path, (long long)version, FA_STORE_SCHEMA, instead);
}

/* ---- statements -----------------------------------------------------------------------------*/
/* NULL when the table is full, which it never is: the program's statements are fewer. */
static fa_statement *find_statement(fa_store *store, const char *sql)
{
    size_t at = (size_t)(((uintptr_t)sql >> 3) * 2654435761u >> 8);
    for (size_t i = 0; i < FA_STATEMENTS_MAX; i++) {
        fa_statement *statement = &store->statement[(at + i) % FA_STATEMENTS_MAX];
        if (statement->sql == sql || statement->sql == NULL)
            return statement;
    }
    return NULL;
}

/* Lets go of what was bound too; NULL is allowed. */
static void reset_statement(fa_statement *statement)
{
    if (statement != NULL && statement->handle != NULL)
        statement->backend->reset(statement);
}

fa_binder fa_db_prepare(fa_store *store, const char *sql, fa_diag *diag)
{
    fa_statement *statement = find_statement(store, sql);
    if (statement == NULL)
        return (fa_binder){.rc = fa_fail(diag, FA_ENOMEM, "too many statements")};
    if (statement->handle == NULL) {
        statement->sql = sql;
        statement->backend = store->backend;
        int rc = store->backend->prepare(store, statement, diag);
        if (rc != 0)
            return (fa_binder){.rc = rc};
    }
    reset_statement(statement);
    return (fa_binder){.statement = statement};
}

fa_binder fa_db_query(fa_store *store, const char *sql, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? (fa_binder){.rc = rc} : fa_db_prepare(store, sql, diag);
}

static int step_statement(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    int rc = store->backend->step(store, statement, diag);
    if (rc != 1)
        reset_statement(statement);
    return rc;
}

int fa_db_run(fa_store *store, const fa_binder *binder, fa_diag *diag)
{
    if (binder->statement == NULL)
        return binder->rc;
    if (binder->rc == 0)
        return step_statement(store, binder->statement, diag);
    reset_statement(binder->statement);
    return fa_fail(diag, binder->rc, "%s",
                   binder->rc == FA_ENOMEM ? "out of memory" : "a value cannot be stored");
}

int fa_db_run_row(fa_store *store, const fa_binder *binder, fa_reader *ret_reader, fa_diag *diag)
{
    int rc = fa_db_run(store, binder, diag);
    if (rc == 1)
        *ret_reader = (fa_reader){.statement = binder->statement};
    return rc;
}

int fa_db_run_id(fa_store *store, const fa_binder *binder, int64_t *ret_id, fa_diag *diag)
{
    fa_value value = {0};
    int rc = fa_db_run(store, binder, diag);
    if (rc == 1)
        store->backend->column(binder->statement, 0, &value);
    reset_statement(binder->statement);
    if (rc >= 0)
        *ret_id = value.kind == FA_VALUE_INT ? value.integer : 0;
    return rc < 0 ? rc : 0;
}

int fa_db_run_exists(fa_store *store, const fa_binder *binder, bool *ret_exists, fa_diag *diag)
{
    int rc = fa_db_run(store, binder, diag);
    reset_statement(binder->statement);
    if (rc >= 0)
        *ret_exists = rc == 1;
    return rc < 0 ? rc : 0;
}

int fa_db_run_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                     size_t count)
{
    fa_binder binder = fa_db_prepare(store, sql, diag);
    fa_bind_values(&binder, values, count);
    return fa_db_run(store, &binder, diag);
}

int fa_db_row(fa_store *store, const char *sql, int64_t id, fa_reader *ret_reader, fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, sql, diag);
    fa_bind(&binder, fa_int(id));
    return fa_db_run_row(store, &binder, ret_reader, diag);
}

int fa_db_next(fa_store *store, const fa_binder *binder, fa_reader *reader, fa_diag *diag)
{
    if (reader->rc != FA_ENOMEM)
        return fa_db_run_row(store, binder, reader, diag);
    reset_statement(binder->statement);
    return fa_fail(diag, FA_ENOMEM, "out of memory");
}

/* ---- transactions ---------------------------------------------------------------------------*/
enum { TRIES = 8 };

/* After a failure. */
static bool may_try_again(fa_change *change)
{
    fa_store *store = change->store;
    const bool lost = change->rc == FA_EIO && store->lost && !store->entering;
    if (change->tries == TRIES || !(store->conflict || lost))
        return false;
    if (lost)
        change->rc = fa_db_enter(store, change->diag);
    return !lost || change->rc == 0;
}

bool fa_store_change(fa_change *change)
{
    fa_store *store = change->store;
    if (change->within) {
        return false;
    } else if (change->tries == 0) {
        change->rc = store != NULL && store->entering ? 0 : fa_db_enter(store, change->diag);
        if (change->rc == 0 && store->read_only)
            change->rc = fa_fail(change->diag, FA_EREADONLY, "store %s was opened for reading only",
                                 store->path);
        change->within = change->rc == 0 && store->changing;
        if (change->rc != 0 || change->within)
            return change->rc == 0;
    } else {
        store->changing = false;
        if (change->rc == 0)
            change->rc = store->backend->commit(store, change->diag);
        if (change->rc == 0)
            return false;
        store->backend->rollback(store);
        if (change->once || !may_try_again(change))
            return false;
    }
    do {
        change->tries++;
        store->conflict = false;
        change->rc = store->backend->begin(store, change->diag);
        if (change->rc == 0)
            return store->changing = true;
        store->backend->rollback(store);
    } while (may_try_again(change));
    return false;
}
