/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems, what they may spend and what they have spent. Their items are taken and
 * ended in sweep_items.c and, by a fleet, in queue.c.
 */
#include "internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static bool amount(double value)
{
    return isfinite(value) && value >= 0;
}

/* ---- entering a sweep -----------------------------------------------------------------------*/
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
    int rc = fa_db_run_on(store, FA_SQL_SWEEP_FORGET_ITEMS, "DELETE FROM sweep_item WHERE sweep_id = ?",
                    id, diag);
    return rc != 0 ? rc
                   : fa_db_run_on(store, FA_SQL_SWEEP_FORGET, "DELETE FROM sweep WHERE id = ?", id, diag);
}

static int add_item(fa_store *store, int64_t id, int32_t position, const fa_sweep_item *item,
                    fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, FA_SQL_ITEM_ADD,
                             "INSERT INTO sweep_item (sweep_id, position, problem_key, problem, "
                             "gpu, state, attempts, " FA_SPENT_COLUMNS ", reason, updated) "
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

static int add(fa_store *store, fa_entering *entering, fa_diag *diag)
{
    fa_statement *statement;
    const fa_sweep *sweep = entering->sweep;
    int rc = fa_db_statement(store, FA_SQL_SWEEP_ADD,
                             "INSERT INTO sweep (key, plan, state, budget_seconds, budget_trials, "
                             "budget_cost, price, " FA_SPENT_COLUMNS ", created, updated) "
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

static int come_back(fa_store *store, const fa_entering *entering, fa_diag *diag)
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
    return fa_db_run_on(store, FA_SQL_SWEEP_REOPEN,
                  "UPDATE sweep_item SET state = 'pending', reason = '' "
                  "WHERE sweep_id = ? AND state IN ('running', 'failed') "
                  "AND lease_until <= unix_ms()", /* one that a host of the fleet holds stays its */
                  entering->id, diag);
}

int fa_db_sweep_enter(fa_store *store, fa_entering *entering, fa_diag *diag)
{
    int rc = find(store, entering->sweep->key, &entering->id, diag);
    if (rc == 0 && entering->id != 0 && entering->restart) {
        rc = forget(store, entering->id, diag);
        entering->id = 0;
    }
    if (rc != 0)
        return rc;
    return entering->id == 0 ? add(store, entering, diag) : come_back(store, entering, diag);
}

int fa_db_sweep_check(const fa_entering *entering, fa_diag *diag)
{
    const fa_sweep *sweep = entering->sweep;
    if (strlen(sweep->key) != FA_HASH_HEX - 1 || entering->count < 1 ||
        !amount(sweep->budget.seconds) || !amount(sweep->budget.cost) ||
        !amount(sweep->budget.price) || sweep->budget.trials < 0)
        return fa_fail(diag, FA_EINVAL,
                       "a sweep needs a key, items, and a budget that is not negative");
    int rc = 0;
    for (int32_t i = 0; i < entering->count && rc == 0; i++) {
        const fa_sweep_item *item = &entering->items[i];
        if (memchr(item->gpu, 0, sizeof item->gpu) == NULL)
            rc = fa_fail(diag, FA_EINVAL, "the GPU's name of item %d does not end", i);
        else
            rc = fa_problem_check(&item->problem, diag);
    }
    return rc;
}

static int enter_body(fa_store *store, void *context, fa_diag *diag)
{
    return fa_db_sweep_enter(store, context, diag);
}

int fa_store_sweep_enter(fa_store *store, const fa_sweep *sweep, const fa_sweep_item *items,
                         int32_t count, bool restart, int64_t *ret_id, fa_diag *diag)
{
    fa_entering entering = {sweep, items, count, restart, 0};
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_sweep_check(&entering, diag);
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

struct state_change {
    int64_t id;
    fa_sweep_state state;
};

static int state_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct state_change *change = context;
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
    struct state_change change = {.id = id, .state = state};
    return fa_db_change(store, state_body, &change, diag);
}

/* ---- reading --------------------------------------------------------------------------------*/
/* 1: read; 0: gone or not valid; or negative. */
static int load(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep *sweep = ret_sweep;
    fa_reader reader;
    int rc = fa_db_row(store, FA_SQL_SWEEP_READ,
                       "SELECT key, plan, state, budget_seconds, budget_trials, budget_cost, "
                       "price, " FA_SPENT_COLUMNS ", created, updated, "
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
    sweep->budget.seconds = fa_db_amount_read(&reader);
    sweep->budget.trials = fa_read_int(&reader, 0, INT64_MAX);
    sweep->budget.cost = fa_db_amount_read(&reader);
    sweep->budget.price = fa_db_amount_read(&reader);
    fa_db_spent_read(&reader, &sweep->spent);
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
