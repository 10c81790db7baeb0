/* SPDX-License-Identifier: Apache-2.0
 *
 * The outbox: scopes whose winner another store is still to get, and which store that is. A ticket tells a scope that
 * was added once more from the one that has been sent meanwhile.
 */
#include "scope_row.h"

#include <stdlib.h>

struct sending {
    const char *fleet;
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
                      "INSERT INTO outbox (scope_id, fleet, ticket, unix_time) "
                      "VALUES (?, ?, (SELECT CASE WHEN max(ticket) >= unix_ms() "
                      "THEN max(ticket) + 1 ELSE unix_ms() END FROM outbox), ?) "
                      "ON CONFLICT (scope_id, fleet) DO UPDATE SET ticket = excluded.ticket",
                      diag);
    fa_bind_int(&binder, scope_id);
    fa_bind_text(&binder, sending->fleet);
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
    fa_binder binder = fa_db_prepare(
        store, "DELETE FROM outbox WHERE scope_id = ? AND fleet = ? AND ticket = ?", diag);
    fa_bind_int(&binder, scope_id);
    fa_bind_text(&binder, sending->fleet);
    fa_bind_int(&binder, sending->ticket);
    return fa_db_run(store, &binder, diag);
}

static int change(fa_store *store, fa_db_body *body, struct sending sending, fa_diag *diag)
{
    int rc = fa_db_scope_check(sending.scope, diag);
    return rc != 0 ? rc : fa_db_change(store, body, &sending, diag);
}

int fa_store_outbox_add(fa_store *store, const char *fleet, const fa_scope *scope, fa_diag *diag)
{
    return change(store, add_body, (struct sending){fleet, scope, 0}, diag);
}

int fa_store_outbox_remove(fa_store *store, const char *fleet, const fa_scope *scope,
                           int64_t ticket, fa_diag *diag)
{
    return change(store, remove_body, (struct sending){fleet, scope, ticket}, diag);
}

struct visiting {
    fa_outbox_visit *visit;
    fa_outbox_count_visit *count;
    void *context;
};

static int visit_row(fa_store *store, int64_t ticket, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_scope scope = {0};
    fa_reader reader;
    int rc = fa_db_row(store,
                       "SELECT " FA_SCOPE_COLUMNS " FROM outbox "
                       "JOIN scope ON scope.id = outbox.scope_id WHERE outbox.ticket = ?",
                       ticket, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_db_scope_read(&reader, &scope);
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? visiting->visit(visiting->context, &scope, ticket) : rc;
}

int fa_store_outbox_each(fa_store *store, const char *fleet, fa_outbox_visit *visit, void *context,
                         fa_diag *diag)
{
    struct visiting visiting = {.visit = visit, .context = context};
    fa_binder tickets =
        fa_db_query(store, "SELECT ticket FROM outbox WHERE fleet = ? ORDER BY ticket", diag);
    fa_bind_text(&tickets, fleet);
    return fa_db_each(store, &tickets, visit_row, &visiting, diag);
}

static int visit_count(fa_store *store, int64_t ticket, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_reader reader;
    int rc = fa_db_row(store,
                       "SELECT fleet, count(*) FROM outbox WHERE fleet = "
                       "(SELECT fleet FROM outbox WHERE ticket = ?) GROUP BY fleet",
                       ticket, &reader, diag);
    if (rc <= 0)
        return rc;
    char *fleet = fa_read_owned(&reader);
    int64_t count = fa_read_int(&reader, 1, INT64_MAX);
    rc = fa_read_end(&reader, diag);
    if (rc == 1)
        rc = visiting->count(visiting->context, fleet, count);
    free(fleet);
    return rc;
}

int fa_store_outbox_counts(fa_store *store, fa_outbox_count_visit *visit, void *context,
                           fa_diag *diag)
{
    struct visiting visiting = {.count = visit, .context = context};
    fa_binder tickets = fa_db_query(
        store, "SELECT min(ticket) FROM outbox GROUP BY fleet ORDER BY min(ticket)", diag);
    return fa_db_each(store, &tickets, visit_count, &visiting, diag);
}
