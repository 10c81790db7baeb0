/* SPDX-License-Identifier: Apache-2.0
 *
 * The outbox: scopes whose winner another store is still to get. A ticket tells a scope that was
 * added once more from the one that has been sent meanwhile.
 */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

struct sending {
    const fa_scope *scope;
    int64_t ticket;
};

static int add_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct sending *sending = context;
    int64_t scope_id = 0;
    fa_statement *statement;
    int rc = fa_db_scope_id(store, sending->scope, true, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_OUTBOX_ADD,
                             "INSERT INTO outbox (scope_id, ticket, unix_time) "
                             "VALUES (?, (SELECT CASE WHEN max(ticket) >= unix_ms() "
                             "THEN max(ticket) + 1 ELSE unix_ms() END FROM outbox), ?) "
                             "ON CONFLICT (scope_id) DO UPDATE SET ticket = excluded.ticket",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    fa_bind_int(&binder, (int64_t)time(NULL));
    return fa_db_run(store, &binder, diag);
}

static int remove_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct sending *sending = context;
    int64_t scope_id = 0;
    fa_statement *statement;
    int rc = fa_db_scope_id(store, sending->scope, false, &scope_id, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_OUTBOX_REMOVE,
                             "DELETE FROM outbox WHERE scope_id = ? AND ticket = ?", &statement,
                             diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, scope_id);
    fa_bind_int(&binder, sending->ticket);
    return fa_db_run(store, &binder, diag);
}

static int change(fa_store *store, fa_db_body *body, const fa_scope *scope, int64_t ticket,
                  fa_diag *diag)
{
    struct sending sending = {scope, ticket};
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_scope_check(scope, diag);
    return rc != 0 ? rc : fa_db_write(store, body, &sending, diag);
}

int fa_store_outbox_add(fa_store *store, const fa_scope *scope, fa_diag *diag)
{
    return change(store, add_body, scope, 0, diag);
}

int fa_store_outbox_remove(fa_store *store, const fa_scope *scope, int64_t ticket, fa_diag *diag)
{
    return change(store, remove_body, scope, ticket, diag);
}

/* 1: loaded; 0: gone or invalid, to be skipped; or negative. */
static int load(fa_store *store, int64_t scope_id, fa_scope *ret_scope, int64_t *ret_ticket,
                fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_OUTBOX_READ,
                       "SELECT " FA_SCOPE_COLUMNS ", outbox.ticket FROM outbox "
                       "JOIN scope ON scope.id = outbox.scope_id WHERE outbox.scope_id = ?",
                       scope_id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_scope_read(&reader, ret_scope);
    *ret_ticket = fa_read_int(&reader, 0, INT64_MAX);
    fa_db_reset(reader.statement);
    return reader.ok ? 1 : 0;
}

int fa_store_outbox_each(fa_store *store, fa_outbox_visit *visit, void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids(store, FA_SQL_OUTBOX_IDS, "SELECT scope_id FROM outbox ORDER BY ticket",
                       &ids, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_scope scope = {0};
        int64_t ticket = 0;
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load(store, ids[i], &scope, &ticket, diag);
        if (rc == 1)
            rc = visit(context, &scope, ticket);
    }
    free(ids);
    return rc;
}
