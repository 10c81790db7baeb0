/* SPDX-License-Identifier: Apache-2.0
 *
 * The outbox: scopes whose winner another store is still to get. A ticket tells a scope that was
 * added once more from the one that has been sent meanwhile.
 */
#include "scope_row.h"

struct sending {
    const fa_scope *scope;
    int64_t ticket;
};

static int add_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct sending *sending = context;
    int64_t scope_id = 0;
    int rc = fa_db_scope_id(store, sending->scope, true, &scope_id, diag);
    if (rc != 0)
        return rc;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO outbox (scope_id, ticket, unix_time) "
                      "VALUES (?, (SELECT CASE WHEN max(ticket) >= unix_ms() "
                      "THEN max(ticket) + 1 ELSE unix_ms() END FROM outbox), ?) "
                      "ON CONFLICT (scope_id) DO UPDATE SET ticket = excluded.ticket",
                      diag);
    fa_bind_int(&binder, scope_id);
    fa_bind_now(&binder);
    return fa_db_run(store, &binder, diag);
}

static int remove_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct sending *sending = context;
    int64_t scope_id = 0;
    int rc = fa_db_scope_id(store, sending->scope, false, &scope_id, diag);
    if (rc != 0)
        return rc;
    fa_binder binder =
        fa_db_prepare(store, "DELETE FROM outbox WHERE scope_id = ? AND ticket = ?", diag);
    fa_bind_int(&binder, scope_id);
    fa_bind_int(&binder, sending->ticket);
    return fa_db_run(store, &binder, diag);
}

static int change(fa_store *store, fa_db_body *body, const fa_scope *scope, int64_t ticket,
                  fa_diag *diag)
{
    struct sending sending = {scope, ticket};
    int rc = fa_db_scope_check(scope, diag);
    return rc != 0 ? rc : fa_db_change(store, body, &sending, diag);
}

int fa_store_outbox_add(fa_store *store, const fa_scope *scope, fa_diag *diag)
{
    return change(store, add_body, scope, 0, diag);
}

int fa_store_outbox_remove(fa_store *store, const fa_scope *scope, int64_t ticket, fa_diag *diag)
{
    return change(store, remove_body, scope, ticket, diag);
}

struct visiting {
    fa_outbox_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t scope_id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_scope scope = {0};
    fa_reader reader;
    int rc = fa_db_row(store,
                       "SELECT " FA_SCOPE_COLUMNS ", outbox.ticket FROM outbox "
                       "JOIN scope ON scope.id = outbox.scope_id WHERE outbox.scope_id = ?",
                       scope_id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_scope_read(&reader, &scope);
    int64_t ticket = fa_read_int(&reader, 0, INT64_MAX);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? visiting->visit(visiting->context, &scope, ticket) : rc;
}

int fa_store_outbox_each(fa_store *store, fa_outbox_visit *visit, void *context, fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store, "SELECT scope_id FROM outbox ORDER BY ticket", diag);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}
