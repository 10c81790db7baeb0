/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems, what they may spend and what they have spent; and their items, taken in turn and
 * ended. A fleet takes and ends them in queue.c.
 *
 * Workload: up to ten thousand items; one claim and one end for each, a line of spending every
 * second. Invariants: an item ends only under its latest claim; a sweep has spent what its items
 * have, because both are written in one transaction.
 */
#include "sweep_row.h"

#include "problem_row.h"

#include <math.h>
#include <string.h>

#define BUDGET(X)                              \
    X(REAL, "budget_seconds", budget.seconds)  \
    X(COUNT64, "budget_trials", budget.trials) \
    X(REAL, "budget_cost", budget.cost)        \
    X(REAL, "price", budget.price)
/* As a sweep is shown: the budget, what was spent, and how many of its items ended how. */
#define FIELDS(X)                                                                                \
    X(TEXT, "key", key)                                                                          \
    X(TEXT, "plan", plan)                                                                        \
    X(CHOICE, "state", state, .names = fa_sweep_state_names)                                     \
    BUDGET(X)                                                                                    \
    FA_SPENT_FIELDS(X)                                                                           \
    X(COUNT64, "created", created)                                                               \
    X(COUNT64, "updated", updated)                                                               \
    X(COUNT, "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id)", items)               \
    X(COUNT, "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id AND state = 'done')",   \
      done)                                                                                      \
    X(COUNT, "(SELECT count(*) FROM sweep_item WHERE sweep_id = sweep.id AND state = 'failed')", \
      failed)
#define FA_COLUMN_RECORD fa_sweep
static const fa_member budget[] = {BUDGET(FA_COLUMN_ENTRY){.key = NULL}};
static const fa_member columns[] = {FIELDS(FA_COLUMN_ENTRY){.key = NULL}};
#undef FA_COLUMN_RECORD

#define ITEM_FIELDS(X)                                      \
    X(TEXT, "gpu", gpu)                                     \
    X(CHOICE, "state", state, .names = fa_item_state_names) \
    X(COUNT, "attempts", attempts)                          \
    FA_SPENT_FIELDS(X)                                      \
    X(TEXT, "reason", reason)
#define FA_COLUMN_RECORD fa_sweep_item
static const fa_member item_columns[] = {ITEM_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};

/* One change of a sweep or of its items; each is one transaction. */
struct change {
    int64_t id;
    fa_sweep_state state;
    fa_store_claim claim;
    fa_item_state item_state;
    const char *reason;
    const fa_sweep_spent *spent;
    int32_t position;
};

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
    fa_bind_columns(&binder, budget, sweep);
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
    fa_bind_columns(&binder, budget, sweep);
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
    int rc = fa_db_sweep_check(&entering, diag);
    if (rc == 0)
        rc = fa_db_change(store, enter_body, &entering, diag);
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
    if (rc != 0 || id == 0)
        return rc != 0 ? rc : FA_ENOTFOUND;
    *ret_id = id;
    return 0;
}

static int state_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    fa_binder binder =
        fa_db_prepare(store, "UPDATE sweep SET state = ?, updated = ? WHERE id = ?", diag);
    fa_bind_text(&binder, fa_sweep_state_name(change->state));
    fa_bind_now(&binder);
    fa_bind_int(&binder, change->id);
    return fa_db_run(store, &binder, diag);
}

int fa_store_sweep_set_state(fa_store *store, int64_t id, fa_sweep_state state, fa_diag *diag)
{
    struct change change = {.id = id, .state = state};
    return fa_db_change(store, state_body, &change, diag);
}

/* ---- an item, taken and ended -----------------------------------------------------------------*/
#define SPEND                                                       \
    "seconds = seconds + ?, cost = cost + ?, trials = trials + ?, " \
    "compiled = compiled + ?, reused = reused + ?, updated = ?"

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
    return rc == 0 ? fa_fail(diag, FA_ECORRUPT, "a sweep's item is not valid: restart the sweep")
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
/* 1: read; 0: gone or not valid; or negative. */
static int load_sweep(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(store, "SELECT 1" FIELDS(FA_COLUMN_NAME) " FROM sweep WHERE id = ?", id,
                       &reader, diag);
    if (rc <= 0)
        return rc;
    fa_read_int(&reader, 1, 1);
    fa_read_columns(&reader, columns, ret_sweep);
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
        return fa_fail(diag, FA_ECORRUPT,
                       "store %s: this sweep's row is not valid: restart the sweep", store->path);
    *ret_sweep = sweep;
    return 0;
}

int fa_db_item_load(fa_store *store, int64_t id, int32_t *ret_position, fa_sweep_item *ret_item,
                    fa_diag *diag)
{
    fa_reader reader;
    int rc = fa_db_row(
        store,
        "SELECT position, problem_key, problem" ITEM_FIELDS(FA_COLUMN_NAME) " FROM sweep_item "
                                                                            "WHERE id = ?",
        id, &reader, diag);
    if (rc <= 0)
        return rc;
    *ret_position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    fa_db_problem_read(&reader, &ret_item->problem);
    fa_read_columns(&reader, item_columns, ret_item);
    rc = fa_read_end(&reader, diag);
    return rc == 0 && reader.rc == FA_EVERSION ? FA_EVERSION : rc;
}

struct visiting {
    fa_store_sweep_visit *sweep;
    fa_store_item_visit *item; /* one of both is NULL */
    void *context;
};

static int visit_sweep(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_sweep sweep = {0};
    int rc = load_sweep(store, id, &sweep, diag);
    return rc == 1 ? visiting->sweep(visiting->context, &sweep) : rc;
}

int fa_store_sweeps_each(fa_store *store, fa_store_sweep_visit *visit, void *context, fa_diag *diag)
{
    struct visiting visiting = {.sweep = visit, .context = context};
    fa_binder ids = fa_db_query(store, "SELECT id FROM sweep ORDER BY updated DESC, id DESC", diag);
    return fa_db_each(store, &ids, visit_sweep, &visiting, diag);
}

static int visit_item(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_sweep_item item = {0};
    int32_t position = 0;
    int rc = fa_db_item_load(store, id, &position, &item, diag);
    if (rc == 1)
        return visiting->item(visiting->context, position, &item);
    return rc == FA_EVERSION ? 0 : rc;
}

int fa_store_sweep_items_each(fa_store *store, int64_t id, fa_store_item_visit *visit,
                              void *context, fa_diag *diag)
{
    struct visiting visiting = {.item = visit, .context = context};
    fa_binder ids =
        fa_db_query(store, "SELECT id FROM sweep_item WHERE sweep_id = ? ORDER BY position", diag);
    fa_bind_int(&ids, id);
    return fa_db_each(store, &ids, visit_item, &visiting, diag);
}
