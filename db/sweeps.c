/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems as queues of items, what they may spend and what they have spent.
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

#define SPENT_COLUMNS "seconds, cost, trials, compiled, reused"
#define SPEND                                                            \
    "seconds = seconds + ?, cost = cost + ?, trials = trials + ?, "      \
    "compiled = compiled + ?, reused = reused + ?, updated = ?"

static void bind_spent(fa_binder *binder, const fa_sweep_spent *spent)
{
    fa_bind_real(binder, spent->seconds);
    fa_bind_real(binder, spent->cost);
    fa_bind_int(binder, spent->trials);
    fa_bind_int(binder, spent->compiled);
    fa_bind_int(binder, spent->reused);
}

static double read_amount(fa_reader *reader)
{
    double value = fa_read_real(reader, NAN);
    if (!(value >= 0 && isfinite(value)))
        reader->ok = false;
    return value;
}

static void read_spent(fa_reader *reader, fa_sweep_spent *ret_spent)
{
    ret_spent->seconds = read_amount(reader);
    ret_spent->cost = read_amount(reader);
    ret_spent->trials = fa_read_int(reader, 0, INT64_MAX);
    ret_spent->compiled = fa_read_int(reader, 0, INT64_MAX);
    ret_spent->reused = fa_read_int(reader, 0, INT64_MAX);
}

static bool amount(double value)
{
    return isfinite(value) && value >= 0;
}

/* A statement that takes one integer. */
static int run_on(fa_store *store, fa_db_slot slot, const char *sql, int64_t id, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, slot, sql, &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, id);
    return fa_db_run(store, &binder, diag);
}

/* ---- entering a sweep -----------------------------------------------------------------------*/
struct entering {
    const fa_sweep *sweep;
    const fa_sweep_item *items;
    int32_t count;
    bool restart;
    int64_t id;
};

static int find(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_SWEEP_FIND, "SELECT id FROM sweep WHERE key = ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, key);
    return fa_db_run_id(store, &binder, ret_id, diag);
}

static int forget(fa_store *store, int64_t id, fa_diag *diag)
{
    int rc = run_on(store, FA_SQL_SWEEP_FORGET_ITEMS, "DELETE FROM sweep_item WHERE sweep_id = ?",
                    id, diag);
    return rc != 0 ? rc
                   : run_on(store, FA_SQL_SWEEP_FORGET, "DELETE FROM sweep WHERE id = ?", id, diag);
}

static int add_item(fa_store *store, int64_t id, int32_t position, const fa_sweep_item *item,
                    fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ITEM_ADD,
                             "INSERT INTO sweep_item (sweep_id, position, problem_key, problem, "
                             "gpu, state, attempts, " SPENT_COLUMNS ", reason, updated) "
                             "VALUES (?,?,?,?,?,'pending',0,0,0,0,0,0,'',?)",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, id);
    fa_bind_int(&binder, position);
    fa_db_problem_bind(&binder, &item->problem);
    fa_bind_text(&binder, item->gpu);
    fa_bind_int(&binder, (int64_t)time(NULL));
    return fa_db_run(store, &binder, diag);
}

static int add(fa_store *store, struct entering *entering, fa_diag *diag)
{
    fa_statement *statement;
    const fa_sweep *sweep = entering->sweep;
    int rc = fa_db_statement(store, FA_SQL_SWEEP_ADD,
                             "INSERT INTO sweep (key, plan, state, budget_seconds, budget_trials, "
                             "budget_cost, price, " SPENT_COLUMNS ", created, updated) "
                             "VALUES (?,?,'running',?,?,?,?,0,0,0,0,0,?,?) RETURNING id",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, sweep->key);
    fa_bind_text(&binder, sweep->plan);
    fa_bind_real(&binder, sweep->budget.seconds);
    fa_bind_int(&binder, sweep->budget.trials);
    fa_bind_real(&binder, sweep->budget.cost);
    fa_bind_real(&binder, sweep->budget.price);
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_int(&binder, (int64_t)time(NULL));
    rc = fa_db_run_id(store, &binder, &entering->id, diag);
    for (int32_t i = 0; i < entering->count && rc == 0; i++)
        rc = add_item(store, entering->id, i, &entering->items[i], diag);
    return rc;
}

static int come_back(fa_store *store, const struct entering *entering, fa_diag *diag)
{
    fa_statement *statement;
    const fa_sweep *sweep = entering->sweep;
    int rc = fa_db_statement(store, FA_SQL_SWEEP_AGAIN,
                             "UPDATE sweep SET plan = ?, budget_seconds = ?, budget_trials = ?, "
                             "budget_cost = ?, price = ?, state = 'running', updated = ? "
                             "WHERE id = ?",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, sweep->plan);
    fa_bind_real(&binder, sweep->budget.seconds);
    fa_bind_int(&binder, sweep->budget.trials);
    fa_bind_real(&binder, sweep->budget.cost);
    fa_bind_real(&binder, sweep->budget.price);
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_int(&binder, entering->id);
    rc = fa_db_run(store, &binder, diag);
    if (rc != 0)
        return rc;
    return run_on(store, FA_SQL_SWEEP_REOPEN,
                  "UPDATE sweep_item SET state = 'pending', reason = '' "
                  "WHERE sweep_id = ? AND state IN ('running', 'failed')",
                  entering->id, diag);
}

static int enter_body(fa_store *store, void *context, fa_diag *diag)
{
    struct entering *entering = context;
    int rc = find(store, entering->sweep->key, &entering->id, diag);
    if (rc == 0 && entering->id != 0 && entering->restart) {
        rc = forget(store, entering->id, diag);
        entering->id = 0;
    }
    if (rc != 0)
        return rc;
    return entering->id == 0 ? add(store, entering, diag) : come_back(store, entering, diag);
}

int fa_store_sweep_enter(fa_store *store, const fa_sweep *sweep, const fa_sweep_item *items,
                         int32_t count, bool restart, int64_t *ret_id, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc != 0)
        return rc;
    if (strlen(sweep->key) != FA_HASH_HEX - 1 || count < 1 || !amount(sweep->budget.seconds) ||
        !amount(sweep->budget.cost) || !amount(sweep->budget.price) || sweep->budget.trials < 0)
        return fa_fail(diag, FA_EINVAL,
                       "a sweep needs a key, items, and a budget that is not negative");
    for (int32_t i = 0; i < count && rc == 0; i++) {
        if (memchr(items[i].gpu, 0, sizeof items[i].gpu) == NULL)
            rc = fa_fail(diag, FA_EINVAL, "the GPU's name of item %d does not end", i);
        else
            rc = fa_problem_check(&items[i].problem, diag);
    }
    struct entering entering = {sweep, items, count, restart, 0};
    if (rc == 0)
        rc = fa_db_write(store, enter_body, &entering, diag);
    if (rc == 0)
        *ret_id = entering.id;
    return rc;
}

int fa_store_sweep_find(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    int64_t id = 0;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = find(store, key, &id, diag);
    if (rc == 0 && id == 0)
        return FA_ENOTFOUND;
    if (rc == 0)
        *ret_id = id;
    return rc;
}

/* ---- one change, one transaction ------------------------------------------------------------*/
struct change {
    int64_t id;
    fa_sweep_state state;
    fa_store_claim claim;
    fa_item_state item_state;
    const char *reason;
    const fa_sweep_spent *spent;
    int32_t position;
};

static int state_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_SWEEP_STATE,
                             "UPDATE sweep SET state = ?, updated = ? WHERE id = ?", &statement,
                             diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_text(&binder, fa_sweep_state_name(change->state));
    fa_bind_int(&binder, (int64_t)time(NULL));
    fa_bind_int(&binder, change->id);
    return fa_db_run(store, &binder, diag);
}

int fa_store_sweep_set_state(fa_store *store, int64_t id, fa_sweep_state state, fa_diag *diag)
{
    struct change change = {.id = id, .state = state};
    return fa_db_change(store, state_body, &change, diag);
}

static int claim_body(fa_store *store, void *context, fa_diag *diag)
{
    struct change *change = context;
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ITEM_CLAIM,
                             "UPDATE sweep_item SET state = 'running', attempts = attempts + 1, "
                             "updated = ? WHERE id = (SELECT id FROM sweep_item WHERE "
                             "sweep_id = ? AND state = 'pending' ORDER BY position LIMIT 1) "
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

static int spend_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    int rc = spend_on(store, FA_SQL_ITEM_SPEND, "UPDATE sweep_item SET " SPEND " WHERE id = ?",
                      change->claim.item_id, change->spent, diag);
    if (rc != 0)
        return rc;
    return spend_on(store, FA_SQL_SWEEP_SPEND, "UPDATE sweep SET " SPEND " WHERE id = ?",
                    change->claim.sweep_id, change->spent, diag);
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
        return fa_fail(diag, FA_EBUSY, "this item of the sweep was taken over by another process, or its "
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
/* 1: read; 0: gone or not valid; or negative. */
static int load(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep *sweep = ret_sweep;
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_SWEEP_READ,
                       "SELECT key, plan, state, budget_seconds, budget_trials, budget_cost, "
                       "price, " SPENT_COLUMNS ", created, updated, "
                       "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id), "
                       "(SELECT count(*) FROM sweep_item "
                       "WHERE sweep_id = sweep.id AND state = 'done'), "
                       "(SELECT count(*) FROM sweep_item "
                       "WHERE sweep_id = sweep.id AND state = 'failed') "
                       "FROM sweep WHERE id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    fa_read_copy(&reader, sweep->key, sizeof sweep->key);
    fa_read_copy(&reader, sweep->plan, sizeof sweep->plan);
    if (fa_sweep_state_parse(fa_read_text(&reader, false), &sweep->state) != 0)
        reader.ok = false;
    sweep->budget.seconds = read_amount(&reader);
    sweep->budget.trials = fa_read_int(&reader, 0, INT64_MAX);
    sweep->budget.cost = read_amount(&reader);
    sweep->budget.price = read_amount(&reader);
    read_spent(&reader, &sweep->spent);
    sweep->created = fa_read_int(&reader, 0, INT64_MAX);
    sweep->updated = fa_read_int(&reader, 0, INT64_MAX);
    sweep->items = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    sweep->done = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    sweep->failed = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_reset(reader.statement);
    return reader.ok ? 1 : 0;
}

int fa_store_sweep_read(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep sweep = {0};
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = load(store, id, &sweep, diag);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fa_fail(diag, FA_ECORRUPT, "store %s: this sweep's row is not valid: use --restart",
                       store->path);
    *ret_sweep = sweep;
    return 0;
}

int fa_store_sweeps_each(fa_store *store, fa_store_sweep_visit *visit, void *context,
                         fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    int rc = fa_db_ids(store, FA_SQL_SWEEP_IDS,
                       "SELECT id FROM sweep ORDER BY updated DESC, id DESC", &ids, &count,
                       diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_sweep sweep = {0};
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load(store, ids[i], &sweep, diag);
        if (rc == 1)
            rc = visit(context, &sweep);
    }
    free(ids);
    return rc;
}

static int load_item(fa_store *store, int64_t id, int32_t *ret_position, fa_sweep_item *ret_item,
                     fa_diag *diag)
{
    fa_sweep_item *item = ret_item;
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_ITEM_READ,
                       "SELECT position, problem_key, problem, gpu, state, "
                       "attempts, " SPENT_COLUMNS ", reason FROM sweep_item WHERE id = ?",
                       id, &reader, diag);
    if (rc <= 0)
        return rc;
    *ret_position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_problem_read(&reader, &item->problem);
    fa_read_copy(&reader, item->gpu, sizeof item->gpu);
    if (fa_item_state_parse(fa_read_text(&reader, false), &item->state) != 0)
        reader.ok = false;
    item->attempts = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    read_spent(&reader, &item->spent);
    fa_read_copy(&reader, item->reason, sizeof item->reason);
    fa_db_reset(reader.statement);
    return reader.ok ? 1 : 0;
}

int fa_store_sweep_items_each(fa_store *store, int64_t id, fa_store_item_visit *visit,
                              void *context, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0;
    fa_statement *statement;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_statement(store, FA_SQL_ITEM_IDS,
                             "SELECT id FROM sweep_item WHERE sweep_id = ? ORDER BY position",
                             &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, id);
    rc = fa_db_collect_ids(store, statement, &ids, &count, diag);
    for (size_t i = 0; rc == 0 && i < count; i++) {
        fa_sweep_item item = {0};
        int32_t position = 0;
        rc = fa_db_enter(store, diag);
        if (rc == 0)
            rc = load_item(store, ids[i], &position, &item, diag);
        if (rc == 1)
            rc = visit(context, position, &item);
    }
    free(ids);
    return rc;
}
