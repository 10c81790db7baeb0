/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of a sweep: taken in turn, ended, told.
 *
 * Workload: up to ten thousand items; one claim and one end for each, a line of spending every
 * second. Invariants: an item ends only under its latest claim; a sweep has spent what its items
 * have, because both are written in one transaction.
 */
#include "sweep_item_row.h"

#include "problem_row.h"

#define FIELDS(X)                  \
    X(TEXT, "gpu", gpu)            \
    X(ITEM_STATE, "state", state)  \
    X(INT32, "attempts", attempts) \
    FA_SPENT_FIELDS(X)             \
    X(TEXT, "reason", reason)
#define FA_COLUMN_RECORD fa_sweep_item
static const fa_column columns[] = {FIELDS(FA_COLUMN_ENTRY)};

#define SPEND                                                       \
    "seconds = seconds + ?, cost = cost + ?, trials = trials + ?, " \
    "compiled = compiled + ?, reused = reused + ?, updated = ?"

/* ---- one change, one transaction ------------------------------------------------------------*/
struct change {
    int64_t id;
    fa_store_claim claim;
    fa_item_state item_state;
    const char *reason;
    const fa_sweep_spent *spent;
    int32_t position;
};

static int claim_body(fa_store *store, void *context, fa_diag *diag)
{
    struct change *change = context;
    fa_binder binder =
        fa_db_prepare(store,
                      "UPDATE sweep_item SET state = 'running', attempts = attempts + 1, "
                      "updated = ? WHERE id = (SELECT id FROM sweep_item WHERE "
                      "sweep_id = ? AND state = 'pending' ORDER BY position LIMIT 1 "
                      "/*! FOR UPDATE SKIP LOCKED */) "
                      "RETURNING id, position, attempts",
                      diag);
    fa_bind_now(&binder);
    fa_bind_int(&binder, change->id);
    fa_reader reader;
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc <= 0)
        return rc < 0 ? rc : FA_ENOTFOUND;
    change->claim.sweep_id = change->id;
    change->claim.item_id = fa_read_int(&reader, 0, INT64_MAX);
    change->claim.position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    change->claim.fence = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    rc = fa_read_end(&reader, diag);
    return rc == 0 ? fa_fail(diag, FA_ECORRUPT, "a sweep's item is not valid: use --restart")
                   : (rc < 0 ? rc : 0);
}

int fa_store_sweep_claim(fa_store *store, int64_t id, fa_store_claim *ret_claim, fa_diag *diag)
{
    struct change change = {.id = id};
    int rc = fa_db_change(store, claim_body, &change, diag);
    if (rc == 0)
        *ret_claim = change.claim;
    return rc;
}

static int spend_on(fa_store *store, const char *sql, int64_t id, const fa_sweep_spent *spent,
                    fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, sql, diag);
    fa_bind_real(&binder, spent->seconds);
    fa_bind_real(&binder, spent->cost);
    fa_bind_int(&binder, spent->trials);
    fa_bind_int(&binder, spent->compiled);
    fa_bind_int(&binder, spent->reused);
    fa_bind_now(&binder);
    fa_bind_int(&binder, id);
    return fa_db_run(store, &binder, diag);
}

int fa_db_sweep_spend(fa_store *store, const fa_store_claim *claim, const fa_sweep_spent *spent,
                      fa_diag *diag)
{
    int rc = spend_on(store, "UPDATE sweep_item SET " SPEND " WHERE id = ?", claim->item_id, spent,
                      diag);
    return rc != 0 ? rc
                   : spend_on(store, "UPDATE sweep SET " SPEND " WHERE id = ?", claim->sweep_id,
                              spent, diag);
}

static int spend_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    return fa_db_sweep_spend(store, &change->claim, change->spent, diag);
}

int fa_store_sweep_spend(fa_store *store, const fa_store_claim *claim, const fa_sweep_spent *spent,
                         fa_diag *diag)
{
    struct change change = {.claim = *claim, .spent = spent};
    return fa_db_change(store, spend_body, &change, diag);
}

static int end_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    fa_binder binder = fa_db_prepare(store,
                                     "UPDATE sweep_item SET state = ?, reason = ?, updated = ? "
                                     "WHERE id = ? AND attempts = ? AND state = 'running'",
                                     diag);
    fa_bind_text(&binder, fa_item_state_name(change->item_state));
    fa_bind_text(&binder, change->reason);
    fa_bind_now(&binder);
    fa_bind_int(&binder, change->claim.item_id);
    fa_bind_int(&binder, change->claim.fence);
    int rc = fa_db_run(store, &binder, diag);
    if (rc != 0)
        return rc;
    if (fa_db_changes(store) != 1)
        return fa_fail(diag, FA_EBUSY,
                       "this item of the sweep was taken over by another process, or its "
                       "store was replaced");
    return spend_body(store, context, diag);
}

int fa_store_sweep_end(fa_store *store, const fa_store_claim *claim, fa_item_state state,
                       const char *reason, const fa_sweep_spent *spent, fa_diag *diag)
{
    struct change change = {.claim = *claim, .item_state = state, .reason = reason, .spent = spent};
    return fa_db_change(store, end_body, &change, diag);
}

static int reopen_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    fa_binder binder = fa_db_prepare(store,
                                     "UPDATE sweep_item SET state = 'pending' "
                                     "WHERE sweep_id = ? AND position = ? AND state = 'done'",
                                     diag);
    fa_bind_int(&binder, change->id);
    fa_bind_int(&binder, change->position);
    return fa_db_run(store, &binder, diag);
}

int fa_store_sweep_reopen(fa_store *store, int64_t id, int32_t position, fa_diag *diag)
{
    struct change change = {.id = id, .position = position};
    return fa_db_change(store, reopen_body, &change, diag);
}

/* ---- reading --------------------------------------------------------------------------------*/
int fa_db_item_load(fa_store *store, int64_t id, int32_t *ret_position, fa_sweep_item *ret_item,
                    fa_diag *diag)
{
    fa_reader reader;
    int rc =
        fa_db_row(store,
                  "SELECT position, problem_key, problem" FIELDS(FA_COLUMN_NAME) " FROM sweep_item "
                                                                                 "WHERE id = ?",
                  id, &reader, diag);
    if (rc <= 0)
        return rc;
    *ret_position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_problem_read(&reader, &ret_item->problem);
    fa_read_columns(&reader, columns, FA_COLUMN_COUNT(columns), ret_item);
    rc = fa_read_end(&reader, diag);
    return rc == 0 && reader.rc == FA_EVERSION ? FA_EVERSION : rc;
}

struct visiting {
    fa_store_item_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_sweep_item item = {0};
    int32_t position = 0;
    int rc = fa_db_item_load(store, id, &position, &item, diag);
    if (rc == 1)
        return visiting->visit(visiting->context, position, &item);
    return rc == FA_EVERSION ? 0 : rc;
}

int fa_store_sweep_items_each(fa_store *store, int64_t id, fa_store_item_visit *visit,
                              void *context, fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids =
        fa_db_query(store, "SELECT id FROM sweep_item WHERE sweep_id = ? ORDER BY position", diag);
    fa_bind_int(&ids, id);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}
