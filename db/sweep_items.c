/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of a sweep: taken in turn, ended, told.
 *
 * Workload: up to ten thousand items; one claim and one end for each, a line of spending every
 * second. Invariants: an item ends only under its latest claim; a sweep has spent what its items
 * have, because both are written in one transaction.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SPEND                                                       \
    "seconds = seconds + ?, cost = cost + ?, trials = trials + ?, " \
    "compiled = compiled + ?, reused = reused + ?, updated = ?"

static void bind_spent(fa_binder *binder, const fa_sweep_spent *spent)
{
    fa_bind_real(binder, spent->seconds);
    fa_bind_real(binder, spent->cost);
    fa_bind_int(binder, spent->trials);
    fa_bind_int(binder, spent->compiled);
    fa_bind_int(binder, spent->reused);
}

double fa_db_amount_read(fa_reader *reader)
{
    double value = fa_read_real(reader, NAN);
    if (!(value >= 0 && isfinite(value)))
        reader->ok = false;
    return value;
}

void fa_db_spent_read(fa_reader *reader, fa_sweep_spent *ret_spent)
{
    ret_spent->seconds = fa_db_amount_read(reader);
    ret_spent->cost = fa_db_amount_read(reader);
    ret_spent->trials = fa_read_int(reader, 0, INT64_MAX);
    ret_spent->compiled = fa_read_int(reader, 0, INT64_MAX);
    ret_spent->reused = fa_read_int(reader, 0, INT64_MAX);
}

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
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ITEM_CLAIM,
                             "UPDATE sweep_item SET state = 'running', attempts = attempts + 1, "
                             "updated = ? WHERE id = (SELECT id FROM sweep_item WHERE "
                             "sweep_id = ? AND state = 'pending' ORDER BY position LIMIT 1 "
                             "/*! FOR UPDATE SKIP LOCKED */) "
                             "RETURNING id, position, attempts",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_int(&binder, change->id);
    rc = fa_db_run(store, &binder, diag);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return FA_ENOTFOUND;
    fa_reader reader = {.statement = statement, .ok = true};
    change->claim.sweep_id = change->id;
    change->claim.item_id = fa_read_int(&reader, 0, INT64_MAX);
    change->claim.position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    change->claim.fence = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_reset(statement);
    return reader.ok ? 0 : fa_fail(diag, FA_ECORRUPT, "a sweep's item is not valid: use --restart");
}

int fa_store_sweep_claim(fa_store *store, int64_t id, fa_store_claim *ret_claim, fa_diag *diag)
{
    struct change change = {.id = id};
    int rc = fa_db_change(store, claim_body, &change, diag);
    if (rc == 0)
        *ret_claim = change.claim;
    return rc;
}

static int spend_on(fa_store *store, fa_db_slot slot, const char *sql, int64_t id,
                    const fa_sweep_spent *spent, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, slot, sql, &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    bind_spent(&binder, spent);
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_int(&binder, id);
    return fa_db_run(store, &binder, diag);
}

int fa_db_sweep_spend(fa_store *store, const fa_store_claim *claim, const fa_sweep_spent *spent,
                      fa_diag *diag)
{
    int rc = spend_on(store, FA_SQL_ITEM_SPEND, "UPDATE sweep_item SET " SPEND " WHERE id = ?",
                      claim->item_id, spent, diag);
    if (rc != 0)
        return rc;
    return spend_on(store, FA_SQL_SWEEP_SPEND, "UPDATE sweep SET " SPEND " WHERE id = ?",
                    claim->sweep_id, spent, diag);
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
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ITEM_END,
                             "UPDATE sweep_item SET state = ?, reason = ?, updated = ? "
                             "WHERE id = ? AND attempts = ? AND state = 'running'",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, fa_item_state_name(change->item_state));
    fa_bind_text(&binder, change->reason);
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_int(&binder, change->claim.item_id);
    fa_bind_int(&binder, change->claim.fence);
    rc = fa_db_run(store, &binder, diag);
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
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ITEM_REOPEN,
                             "UPDATE sweep_item SET state = 'pending' "
                             "WHERE sweep_id = ? AND position = ? AND state = 'done'",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
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
    fa_sweep_item *item = ret_item;
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_ITEM_READ,
                       "SELECT position, problem_key, problem, gpu, state, "
                       "attempts, " FA_SPENT_COLUMNS ", reason FROM sweep_item WHERE id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    *ret_position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_problem_read(&reader, &item->problem);
    fa_read_copy(&reader, item->gpu, sizeof item->gpu);
    if (fa_item_state_parse(fa_read_text(&reader, false), &item->state) != 0)
        reader.ok = false;
    item->attempts = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_spent_read(&reader, &item->spent);
    fa_read_copy(&reader, item->reason, sizeof item->reason);
    fa_db_reset(reader.statement);
    return reader.ok ? 1 : 0;
}

int fa_store_sweep_items_each(fa_store *store, int64_t id, fa_store_item_visit *visit,
                              void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids_of(store, FA_SQL_ITEM_IDS,
                          "SELECT id FROM sweep_item WHERE sweep_id = ? ORDER BY position", id,
                          &ids, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_sweep_item item = {0};
        int32_t position = 0;
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = fa_db_item_load(store, ids[i], &position, &item, diag);
        if (rc == 1)
            rc = visit(context, position, &item);
    }
    free(ids);
    return rc;
}
