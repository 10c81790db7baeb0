/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems, what they may spend and what they have spent; and their items, which queue.c hands out.
 *
 * Workload: up to ten thousand items.
 */
#include "rows.h"

#include <stdio.h>
#include <stdlib.h>
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

/* ---- entering a sweep -----------------------------------------------------------------------*/
static int find_sweep(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, "SELECT id FROM sweep WHERE key = ?", diag);
    fa_bind(&binder, fa_text(key));
    return fa_db_run_id(store, &binder, ret_id, diag);
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

static int add_sweep(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    int64_t id = 0;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO sweep (key, plan, state" BUDGET(
                          FA_COLUMN_NAME) ", created, updated, request) VALUES "
                                          "(?,?,'running'" BUDGET(FA_COLUMN_PLACE) ",?,?,?) "
                                                                                   "RETURNING id",
                      diag);
    fa_bind(&binder, fa_text(entry->sweep->key), fa_text(entry->sweep->plan));
    fa_bind_columns(&binder, budget, entry->sweep);
    fa_bind(&binder, fa_now(), fa_now(), fa_text(entry->request));
    int rc = fa_db_run_id(store, &binder, &id, diag);
    for (int32_t i = 0; i < entry->count && rc == 0; i++)
        rc = add_item(store, id, i, &entry->items[i], diag);
    return rc;
}

static int come_back(fa_store *store, const fa_sweep_entry *entry, int64_t id, fa_diag *diag)
{
    fa_binder binder =
        fa_db_prepare(store,
                      "UPDATE sweep SET plan = ?, budget_seconds = ?, budget_trials = ?, "
                      "budget_cost = ?, price = ?, state = 'running', updated = ?, request = ? "
                      "WHERE id = ?",
                      diag);
    fa_bind(&binder, fa_text(entry->sweep->plan));
    fa_bind_columns(&binder, budget, entry->sweep);
    fa_bind(&binder, fa_now(), fa_text(entry->request), fa_int(id));
    int rc = fa_db_run(store, &binder, diag);
    return rc != 0 ? rc
                   : fa_db_do(store, diag,
                              "UPDATE sweep_item SET state = 'pending', reason = '' "
                              "WHERE sweep_id = ? AND state = 'failed'",
                              fa_int(id));
}

static int enter(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    int64_t id = 0;
    int rc = find_sweep(store, entry->sweep->key, &id, diag);
    if (rc == 0 && id != 0 && !entry->restart)
        return come_back(store, entry, id, diag);
    if (rc == 0 && id != 0)
        rc = fa_db_do(store, diag, "DELETE FROM sweep_item WHERE sweep_id = ?", fa_int(id));
    if (rc == 0 && id != 0)
        rc = fa_db_do(store, diag, "DELETE FROM sweep WHERE id = ?", fa_int(id));
    return rc != 0 ? rc : add_sweep(store, entry, diag);
}

int fa_store_sweep_enter(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    for (int32_t i = 0; i < entry->count; i++) {
        int rc = fa_problem_check(&entry->items[i].problem, diag);
        if (rc != 0)
            return rc;
    }
    while (fa_store_change(&change))
        change.rc = enter(store, entry, diag);
    return change.rc;
}

int fa_store_sweep_set_state(fa_store *store, const char *key, fa_sweep_state state, fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change))
        change.rc = fa_db_do(store, diag, "UPDATE sweep SET state = ?, updated = ? WHERE key = ?",
                             fa_text(fa_sweep_state_name(state)), fa_now(), fa_text(key));
    return change.rc;
}

int fa_store_sweep_reopen(fa_store *store, const char *key, int32_t position, fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change))
        change.rc =
            fa_db_do(store, diag,
                     "UPDATE sweep_item SET state = 'pending' WHERE sweep_id = "
                     "(SELECT id FROM sweep WHERE key = ?) AND position = ? AND state = 'done'",
                     fa_text(key), fa_int(position));
    return change.rc;
}

/* ---- who works on an item -------------------------------------------------------------------*/
int fa_db_item_lock(fa_store *store, int64_t id, fa_lock **ret_lock, fa_diag *diag)
{
    char name[40];
    snprintf(name, sizeof name, "item-%lld", (long long)id);
    return fa_store_lock(store, name, false, ret_lock, diag);
}

/* Of an item that is running; one whose worker is gone is not held, nor is any where none can be worked on. */
static int is_held(fa_store *store, int64_t id, bool *ret_held, fa_diag *diag)
{
    fa_lock *lock = NULL;
    int rc = fa_db_item_lock(store, id, &lock, diag);
    *ret_held = rc == FA_EBUSY;
    fa_lock_release(&lock);
    return rc == FA_EBUSY || rc == FA_EREADONLY ? 0 : rc;
}

/* ---- reading --------------------------------------------------------------------------------*/
struct running {
    int64_t item;
    char sweep[FA_HASH_HEX];
};

static int count_running(fa_store *store, fa_sweep *sweeps, size_t count, fa_diag *diag)
{
    fa_list list = {0};
    fa_reader reader = {0};
    struct running *running = NULL;
    size_t rows = 0;
    int rc;
    fa_binder binder = fa_db_prepare(store,
                                     "SELECT sweep_item.id, sweep.key FROM sweep_item JOIN sweep "
                                     "ON sweep.id = sweep_id WHERE sweep_item.state = 'running'",
                                     diag);
    while ((rc = fa_db_next(store, &binder, &reader, diag)) == 1) {
        struct running row = {.item = fa_read_int(&reader, 0, INT64_MAX)};
        fa_read_copy(&reader, row.sweep, sizeof row.sweep);
        if (reader.rc == 0)
            fa_list_add(&list, &row, sizeof row);
    }
    rc = fa_list_end(&list, rc, NULL, &running, &rows, diag);
    for (size_t i = 0; rc == 0 && i < rows; i++)
        for (size_t k = 0; rc == 0 && k < count; k++) {
            bool held = false;
            if (strcmp(sweeps[k].key, running[i].sweep) == 0)
                rc = is_held(store, running[i].item, &held, diag);
            sweeps[k].running += held;
        }
    free(running);
    return rc;
}

/* key NULL: all. */
static int list_sweeps(fa_store *store, const char *key, fa_sweep **ret_rows, size_t *ret_count,
                       fa_diag *diag)
{
    fa_list list = {0};
    fa_reader reader = {0};
    int rc;
    fa_binder binder =
        fa_db_query(store,
                    "SELECT 1" FIELDS(FA_COLUMN_NAME) " FROM sweep WHERE key = coalesce(?, key) "
                                                      "ORDER BY updated DESC, id DESC",
                    diag);
    fa_bind(&binder, fa_text(key));
    while ((rc = fa_db_next(store, &binder, &reader, diag)) == 1) {
        fa_sweep sweep = {0};
        fa_read_int(&reader, 1, 1);
        fa_read_columns(&reader, columns, &sweep);
        if (reader.rc == 0)
            fa_list_add(&list, &sweep, sizeof sweep);
    }
    rc = fa_list_end(&list, rc, NULL, ret_rows, ret_count, diag);
    if (rc == 0 && (rc = count_running(store, *ret_rows, *ret_count, diag)) != 0)
        free(*ret_rows);
    return rc;
}

int fa_store_sweeps(fa_store *store, fa_sweep **ret_rows, size_t *ret_count, fa_diag *diag)
{
    return list_sweeps(store, NULL, ret_rows, ret_count, diag);
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
    fa_sweep *row = NULL;
    size_t count = 0;
    int64_t id = 0;
    int rc = need_sweep(store, key, &id, diag);
    if (rc != 0 || (rc = list_sweeps(store, key, &row, &count, diag)) != 0)
        return rc;
    if (count == 1)
        *ret_sweep = *row;
    free(row);
    return count == 1
               ? 0
               : fa_fail(diag, FA_ECORRUPT,
                         "store %s: this sweep's row is not valid: restart the sweep", store->path);
}

#define ITEM_COLUMNS "id, position, problem_key, problem" ITEM_FIELDS(FA_COLUMN_NAME)

static void read_item(fa_reader *reader, int64_t *ret_id, fa_sweep_item *ret_item)
{
    *ret_id = fa_read_int(reader, 0, INT64_MAX);
    ret_item->index = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    fa_db_problem_read(reader, &ret_item->problem);
    fa_read_columns(reader, item_columns, ret_item);
}

int fa_db_item_load(fa_store *store, int64_t id, fa_sweep_item *ret_item, fa_diag *diag)
{
    fa_reader reader;
    int rc =
        fa_db_row(store, "SELECT " ITEM_COLUMNS " FROM sweep_item WHERE id = ?", id, &reader, diag);
    if (rc <= 0)
        return rc;
    read_item(&reader, &id, ret_item);
    rc = fa_read_end(&reader, diag);
    return rc == 0 && reader.rc == FA_EVERSION ? FA_EVERSION : rc;
}

int fa_store_sweep_items(fa_store *store, const char *key, fa_sweep_item **ret_rows,
                         size_t *ret_count, fa_diag *diag)
{
    fa_list items = {0}, ids = {0};
    fa_reader reader = {0};
    int64_t sweep = 0, id, *number = NULL;
    size_t numbers = 0;
    bool held;
    int rc = need_sweep(store, key, &sweep, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = fa_db_prepare(
        store, "SELECT " ITEM_COLUMNS " FROM sweep_item WHERE sweep_id = ? ORDER BY position",
        diag);
    fa_bind(&binder, fa_int(sweep));
    while ((rc = fa_db_next(store, &binder, &reader, diag)) == 1) {
        fa_sweep_item item = {0};
        read_item(&reader, &id, &item);
        if (reader.rc != 0)
            continue;
        fa_list_add(&items, &item, sizeof item);
        fa_list_add(&ids, &id, sizeof id);
    }
    rc = fa_list_end(&ids, rc, NULL, &number, &numbers, diag);
    rc = fa_list_end(&items, rc, NULL, ret_rows, ret_count, diag);
    for (size_t i = 0; rc == 0 && i < numbers; i++) {
        fa_sweep_item *item = &(*ret_rows)[i];
        if (item->state == FA_ITEM_RUNNING &&
            ((rc = is_held(store, number[i], &held, diag)) != 0 || !held))
            item->state = FA_ITEM_PENDING;
        if (item->state != FA_ITEM_RUNNING)
            item->holder[0] = 0;
    }
    if (rc != 0 && number != NULL)
        free(*ret_rows);
    free(number);
    return rc;
}
