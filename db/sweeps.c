/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems, what they may spend and what they have spent; and their items, which queue.c hands out.
 *
 * Workload: up to ten thousand items.
 */
#include "rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BUDGET(X)                              \
    X(REAL, "budget_seconds", budget.seconds)  \
    X(COUNT64, "budget_trials", budget.trials) \
    X(REAL, "budget_cost", budget.cost)        \
    X(REAL, "price", budget.price)
#define OF_ITEMS(what, which) "(SELECT " what " FROM sweep_item WHERE sweep_id = sweep.id" which ")"
#define REAL_SUM(column) OF_ITEMS("coalesce(sum(" column "), 0.0)", "")
#define COUNT_SUM(column) OF_ITEMS("CAST(coalesce(sum(" column "), 0) AS INTEGER)", "")
/* As a sweep is shown: the budget, what was spent, and how many of its items ended how. */
#define FIELDS(X)                                                   \
    X(TEXT, "key", key)                                             \
    X(TEXT, "plan", plan)                                           \
    X(CHOICE, "state", state, .names = fa_sweep_state_names)        \
    BUDGET(X)                                                       \
    X(REAL, REAL_SUM("seconds"), spent.seconds)                     \
    X(REAL, REAL_SUM("cost"), spent.cost)                           \
    X(COUNT64, COUNT_SUM("trials"), spent.trials)                   \
    X(COUNT64, COUNT_SUM("compiled"), spent.compiled)               \
    X(COUNT64, COUNT_SUM("reused"), spent.reused)                   \
    X(COUNT64, "created", created)                                  \
    X(COUNT64, "updated", updated)                                  \
    X(COUNT, OF_ITEMS("count(*)", ""), items)                       \
    X(COUNT, OF_ITEMS("count(*)", " AND state = 'done'"), done)     \
    X(COUNT, OF_ITEMS("count(*)", " AND state = 'failed'"), failed) \
    X(COUNT, OF_ITEMS("count(*)", " AND ready = 1 AND state IN ('pending', 'running')"), compiled)
#define FA_COLUMN_RECORD fa_sweep
static const fa_member budget[] = {BUDGET(FA_COLUMN_ENTRY){.key = NULL}};
static const fa_member columns[] = {FIELDS(FA_COLUMN_ENTRY){.key = NULL}};
#undef FA_COLUMN_RECORD

#define ITEM_FIELDS(X)                                      \
    X(TEXT, "gpu", gpu)                                     \
    X(CHOICE, "state", state, .names = fa_item_state_names) \
    X(COUNT, "attempts", attempts)                          \
    FA_SPENT_FIELDS(X)                                      \
    X(TEXT, "reason", reason)                               \
    X(CHOICE, "stage", stage, .names = fa_db_stage_names)   \
    X(TEXT, "holder", holder)
#define FA_COLUMN_RECORD fa_sweep_item
const char *const fa_db_stage_names[] = {"compile", "measure", NULL};
static const fa_member item_columns[] = {ITEM_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};

/* One change of a sweep or of its items; each is one transaction. */
struct change {
    const char *key;
    fa_sweep_state state;
    int32_t position;
};

struct entering {
    const fa_sweep_entry *entry;
    int64_t id; /* of the sweep entered */
};

static bool amount(double value)
{
    return isfinite(value) && value >= 0;
}

/* ---- entering a sweep -----------------------------------------------------------------------*/
static int find_sweep(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, "SELECT id FROM sweep WHERE key = ?", diag);
    fa_bind(&binder, fa_text(key));
    return fa_db_run_id(store, &binder, ret_id, diag);
}

static int forget(fa_store *store, int64_t id, fa_diag *diag)
{
    int rc = fa_db_do(store, diag, "DELETE FROM sweep_item WHERE sweep_id = ?", fa_int(id));
    return rc != 0 ? rc : fa_db_do(store, diag, "DELETE FROM sweep WHERE id = ?", fa_int(id));
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
    fa_bind(&binder, fa_int(id), fa_int(position));
    fa_db_problem_bind(&binder, &item->problem);
    fa_bind(&binder, fa_text(item->gpu), fa_now());
    return fa_db_run(store, &binder, diag);
}

static int add_sweep(fa_store *store, struct entering *entering, fa_diag *diag)
{
    const fa_sweep *sweep = entering->entry->sweep;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO sweep (key, plan, state" BUDGET(
                          FA_COLUMN_NAME) ", created, updated, request) VALUES "
                                          "(?,?,'running'" BUDGET(FA_COLUMN_PLACE) ",?,?,?) "
                                                                                   "RETURNING id",
                      diag);
    fa_bind(&binder, fa_text(sweep->key), fa_text(sweep->plan));
    fa_bind_columns(&binder, budget, sweep);
    fa_bind(&binder, fa_now(), fa_now(), fa_text(entering->entry->request));
    int rc = fa_db_run_id(store, &binder, &entering->id, diag);
    for (int32_t i = 0; i < entering->entry->count && rc == 0; i++)
        rc = add_item(store, entering->id, i, &entering->entry->items[i], diag);
    return rc;
}

static int come_back(fa_store *store, const struct entering *entering, fa_diag *diag)
{
    const fa_sweep *sweep = entering->entry->sweep;
    fa_binder binder =
        fa_db_prepare(store,
                      "UPDATE sweep SET plan = ?, budget_seconds = ?, budget_trials = ?, "
                      "budget_cost = ?, price = ?, state = 'running', updated = ?, request = ? "
                      "WHERE id = ?",
                      diag);
    fa_bind(&binder, fa_text(sweep->plan));
    fa_bind_columns(&binder, budget, sweep);
    fa_bind(&binder, fa_now(), fa_text(entering->entry->request), fa_int(entering->id));
    int rc = fa_db_run(store, &binder, diag);
    return rc != 0 ? rc
                   : fa_db_do(store, diag,
                              "UPDATE sweep_item SET state = 'pending', reason = '' "
                              "WHERE sweep_id = ? AND state = 'failed'",
                              fa_int(entering->id));
}

static int enter_body(fa_store *store, void *context, fa_diag *diag)
{
    struct entering *entering = context;
    int rc = find_sweep(store, entering->entry->sweep->key, &entering->id, diag);
    if (rc == 0 && entering->id != 0 && entering->entry->restart) {
        rc = forget(store, entering->id, diag);
        entering->id = 0;
    }
    return rc != 0             ? rc
           : entering->id == 0 ? add_sweep(store, entering, diag)
                               : come_back(store, entering, diag);
}

static int check_entry(const fa_sweep_entry *entry, fa_diag *diag)
{
    const fa_sweep *sweep = entry->sweep;
    if (strlen(sweep->key) != FA_HASH_HEX - 1 || entry->count < 1 ||
        !amount(sweep->budget.seconds) || !amount(sweep->budget.cost) ||
        !amount(sweep->budget.price) || sweep->budget.trials < 0)
        return fa_fail(diag, FA_EINVAL,
                       "a sweep needs a key, items, and a budget that is not negative");
    if (strlen(entry->request) >= FA_QUEUE_REQUEST_MAX)
        return fa_fail(diag, FA_EINVAL, "a sweep's request has up to %d bytes",
                       FA_QUEUE_REQUEST_MAX - 1);
    for (int32_t i = 0; i < entry->count; i++) {
        const fa_sweep_item *item = &entry->items[i];
        if (memchr(item->gpu, 0, sizeof item->gpu) == NULL)
            return fa_fail(diag, FA_EINVAL, "the GPU's name of item %d does not end", i);
        int rc = fa_problem_check(&item->problem, diag);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int fa_store_sweep_enter(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    struct entering entering = {.entry = entry};
    int rc = check_entry(entry, diag);
    return rc != 0 ? rc : fa_db_change(store, enter_body, &entering, diag);
}

static int state_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    return fa_db_do(store, diag, "UPDATE sweep SET state = ?, updated = ? WHERE key = ?",
                    fa_text(fa_sweep_state_name(change->state)), fa_now(), fa_text(change->key));
}

int fa_store_sweep_set_state(fa_store *store, const char *key, fa_sweep_state state, fa_diag *diag)
{
    struct change change = {.key = key, .state = state};
    return fa_db_change(store, state_body, &change, diag);
}

static int reopen_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct change *change = context;
    return fa_db_do(store, diag,
                    "UPDATE sweep_item SET state = 'pending' WHERE sweep_id = "
                    "(SELECT id FROM sweep WHERE key = ?) AND position = ? AND state = 'done'",
                    fa_text(change->key), fa_int(change->position));
}

int fa_store_sweep_reopen(fa_store *store, const char *key, int32_t position, fa_diag *diag)
{
    struct change change = {.key = key, .position = position};
    return fa_db_change(store, reopen_body, &change, diag);
}

/* ---- who works on an item -------------------------------------------------------------------*/
int fa_db_item_lock(fa_store *store, int64_t id, fa_lock **ret_lock, fa_diag *diag)
{
    char name[40];
    snprintf(name, sizeof name, "item-%lld", (long long)id);
    return fa_store_lock(store, name, false, ret_lock, diag);
}

/* Of an item that is running; one whose worker is gone is not held. */
static int is_held(fa_store *store, int64_t id, bool *ret_held, fa_diag *diag)
{
    fa_lock *lock = NULL;
    int rc = fa_db_item_lock(store, id, &lock, diag);
    *ret_held = rc == FA_EBUSY;
    fa_lock_release(&lock);
    return rc == FA_EBUSY ? 0 : rc;
}

static int count_held(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    fa_sweep *sweep = context;
    bool held;
    int rc = is_held(store, id, &held, diag);
    if (rc == FA_EREADONLY) /* nobody can work on it */
        return 0;
    sweep->running += rc == 0 && held;
    return rc;
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
    rc = fa_read_end(&reader, diag);
    if (rc != 1)
        return rc;
    fa_binder running = fa_db_prepare(
        store, "SELECT id FROM sweep_item WHERE sweep_id = ? AND state = 'running'", diag);
    fa_bind(&running, fa_int(id));
    rc = fa_db_each(store, &running, count_held, ret_sweep, diag);
    return rc != 0 ? rc : 1;
}

/* Its number; FA_ENOTFOUND, without a sentence. */
static int need_sweep(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = find_sweep(store, key, ret_id, diag);
    return rc != 0 ? rc : *ret_id == 0 ? FA_ENOTFOUND : 0;
}

int fa_store_sweep_read(fa_store *store, const char *key, fa_sweep *ret_sweep, fa_diag *diag)
{
    fa_sweep sweep = {0};
    int64_t id = 0;
    int rc = need_sweep(store, key, &id, diag);
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
    bool held = true;
    int rc = fa_db_item_load(store, id, &position, &item, diag);
    if (rc != 1)
        return rc == FA_EVERSION ? 0 : rc;
    if (item.state == FA_ITEM_RUNNING)
        rc = is_held(store, id, &held, diag);
    if (rc < 0 && rc != FA_EREADONLY)
        return rc;
    if (!held || rc == FA_EREADONLY)
        item.state = FA_ITEM_PENDING;
    if (item.state != FA_ITEM_RUNNING)
        item.holder[0] = 0;
    return visiting->item(visiting->context, position, &item);
}

int fa_store_sweep_items_each(fa_store *store, const char *key, fa_store_item_visit *visit,
                              void *context, fa_diag *diag)
{
    struct visiting visiting = {.item = visit, .context = context};
    int64_t id = 0;
    int rc = need_sweep(store, key, &id, diag);
    if (rc != 0)
        return rc;
    fa_binder ids =
        fa_db_query(store, "SELECT id FROM sweep_item WHERE sweep_id = ? ORDER BY position", diag);
    fa_bind(&ids, fa_int(id));
    return fa_db_each(store, &ids, visit_item, &visiting, diag);
}
