/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems, what they may spend and what they have spent. Their items are taken and
 * ended in sweep_items.c and, by a fleet, in queue.c.
 */
#include "sweep_row.h"

#include "problem_row.h"

#include <math.h>
#include <string.h>

#define BUDGET(X)                               \
    X(AMOUNT, "budget_seconds", budget.seconds) \
    X(INT64, "budget_trials", budget.trials)    \
    X(AMOUNT, "budget_cost", budget.cost)       \
    X(AMOUNT, "price", budget.price)
/* As a sweep is shown: the budget, what was spent, and how many of its items ended how. */
#define FIELDS(X)                                                                                \
    X(TEXT, "key", key)                                                                          \
    X(TEXT, "plan", plan)                                                                        \
    X(SWEEP_STATE, "state", state)                                                               \
    BUDGET(X)                                                                                    \
    FA_SPENT_FIELDS(X)                                                                           \
    X(INT64, "created", created)                                                                 \
    X(INT64, "updated", updated)                                                                 \
    X(INT32, "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id)", items)               \
    X(INT32, "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id AND state = 'done')",   \
      done)                                                                                      \
    X(INT32, "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id AND state = 'failed')", \
      failed)
#define FA_COLUMN_RECORD fa_sweep
static const fa_column budget[] = {BUDGET(FA_COLUMN_ENTRY)};
static const fa_column columns[] = {FIELDS(FA_COLUMN_ENTRY)};

static bool amount(double value)
{
    return isfinite(value) && value >= 0;
}

/* ---- entering a sweep -----------------------------------------------------------------------*/
static int find_sweep(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, "SELECT id FROM sweep WHERE key = ?", diag);
    fa_bind_text(&binder, key);
    return fa_db_run_id(store, &binder, ret_id, diag);
}

static int forget(fa_store *store, int64_t id, fa_diag *diag)
{
    int rc = fa_db_run_on(store, "DELETE FROM sweep_item WHERE sweep_id = ?", id, diag);
    return rc != 0 ? rc : fa_db_run_on(store, "DELETE FROM sweep WHERE id = ?", id, diag);
}

static int add_item(fa_store *store, int64_t id, int32_t position, const fa_sweep_item *item,
                    fa_diag *diag)
{
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO sweep_item (sweep_id, position, problem_key, problem, "
                      "gpu, state, attempts" FA_SPENT_FIELDS(
                          FA_COLUMN_NAME) ", reason, updated) "
                                          "VALUES (?,?,?,?,?,'pending',0,0,0,0,0,0,'',?)",
                      diag);
    fa_bind_int(&binder, id);
    fa_bind_int(&binder, position);
    fa_db_problem_bind(&binder, &item->problem);
    fa_bind_text(&binder, item->gpu);
    fa_bind_now(&binder);
    return fa_db_run(store, &binder, diag);
}

static int add_sweep(fa_store *store, fa_entering *entering, fa_diag *diag)
{
    const fa_sweep *sweep = entering->sweep;
    fa_binder binder = fa_db_prepare(
        store,
        "INSERT INTO sweep (key, plan, state" BUDGET(FA_COLUMN_NAME) FA_SPENT_FIELDS(
            FA_COLUMN_NAME) ", created, updated) VALUES "
                            "(?,?,'running'" BUDGET(FA_COLUMN_PLACE) ",0,0,0,0,0,?,?) RETURNING id",
        diag);
    fa_bind_text(&binder, sweep->key);
    fa_bind_text(&binder, sweep->plan);
    fa_bind_columns(&binder, budget, FA_COLUMN_COUNT(budget), sweep);
    fa_bind_now(&binder);
    fa_bind_now(&binder);
    int rc = fa_db_run_id(store, &binder, &entering->id, diag);
    for (int32_t i = 0; i < entering->count && rc == 0; i++)
        rc = add_item(store, entering->id, i, &entering->items[i], diag);
    return rc;
}

static int come_back(fa_store *store, const fa_entering *entering, fa_diag *diag)
{
    const fa_sweep *sweep = entering->sweep;
    fa_binder binder =
        fa_db_prepare(store,
                      "UPDATE sweep SET plan = ?, budget_seconds = ?, budget_trials = ?, "
                      "budget_cost = ?, price = ?, state = 'running', updated = ? "
                      "WHERE id = ?",
                      diag);
    fa_bind_text(&binder, sweep->plan);
    fa_bind_columns(&binder, budget, FA_COLUMN_COUNT(budget), sweep);
    fa_bind_now(&binder);
    fa_bind_int(&binder, entering->id);
    int rc = fa_db_run(store, &binder, diag);
    if (rc != 0)
        return rc;
    return fa_db_run_on(
        store,
        "UPDATE sweep_item SET state = 'pending', reason = '' "
        "WHERE sweep_id = ? AND state IN ('running', 'failed') "
        "AND lease_until <= unix_ms()", /* an item that a host of the fleet holds stays with it */
        entering->id, diag);
}

int fa_db_sweep_enter(fa_store *store, fa_entering *entering, fa_diag *diag)
{
    int rc = find_sweep(store, entering->sweep->key, &entering->id, diag);
    if (rc == 0 && entering->id != 0 && entering->restart) {
        rc = forget(store, entering->id, diag);
        entering->id = 0;
    }
    if (rc != 0)
        return rc;
    return entering->id == 0 ? add_sweep(store, entering, diag) : come_back(store, entering, diag);
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
        rc = find_sweep(store, key, &id, diag);
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
    fa_binder binder =
        fa_db_prepare(store, "UPDATE sweep SET state = ?, updated = ? WHERE id = ?", diag);
    fa_bind_text(&binder, fa_sweep_state_name(change->state));
    fa_bind_now(&binder);
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
static int load_sweep(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(store, "SELECT 1" FIELDS(FA_COLUMN_NAME) " FROM sweep WHERE id = ?", id,
                       &reader, diag);
    if (rc <= 0)
        return rc;
    fa_read_int(&reader, 1, 1);
    fa_read_columns(&reader, columns, FA_COLUMN_COUNT(columns), ret_sweep);
    return fa_read_end(&reader, diag);
}

int fa_store_sweep_read(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep sweep = {0};
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = load_sweep(store, id, &sweep, diag);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fa_fail(diag, FA_ECORRUPT, "store %s: this sweep's row is not valid: use --restart",
                       store->path);
    *ret_sweep = sweep;
    return 0;
}

struct visiting {
    fa_store_sweep_visit *visit;
    void *context;
};

static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_sweep sweep = {0};
    int rc = load_sweep(store, id, &sweep, diag);
    return rc == 1 ? visiting->visit(visiting->context, &sweep) : rc;
}

int fa_store_sweeps_each(fa_store *store, fa_store_sweep_visit *visit, void *context, fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store, "SELECT id FROM sweep ORDER BY updated DESC, id DESC", diag);
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}
