/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: grids of problems, what they may spend and what they have spent; and their items, the queue, which any process
 * that uses the store may take.
 *
 * Workload: up to ten thousand items, hundreds of workers; a claim, a line of spending every second, and an end for each.
 * Invariants: whoever works on an item holds its lock, which ends with him, so an item that is running and not locked is
 * anybody's; an item ends only under its latest claim, told by the number of times that it was taken; a sweep has spent
 * what its items have.
 */
#include "statements.h"

#include <stdio.h>
#include <string.h>

#define OF_ITEMS(what, which) "(SELECT " what " FROM sweep_item WHERE sweep_id = sweep.id" which ")"
#define REAL_SUM(column) OF_ITEMS("coalesce(sum(" column "), 0.0)", "")
#define COUNT_SUM(column) OF_ITEMS("CAST(coalesce(sum(" column "), 0) AS INTEGER)", "")
/* As a sweep is shown: the budget, what was spent, and how many of its items ended how. */
#define FIELDS(X)                                                     \
    X(TEXT, "key", key)                                               \
    X(TEXT, "plan", plan)                                             \
    X(CHOICE, "state", state, .names = fa_sweep_state_names)          \
    X(REAL, "budget_seconds", budget.seconds)                         \
    X(COUNT64, "budget_trials", budget.trials)                        \
    X(REAL, REAL_SUM("seconds"), spent.seconds)                       \
    X(COUNT64, COUNT_SUM("trials"), spent.trials)                     \
    X(COUNT64, COUNT_SUM("compiled"), spent.compiled)                 \
    X(COUNT64, COUNT_SUM("reused"), spent.reused)                     \
    X(COUNT64, "created", created)                                    \
    X(COUNT64, "updated", updated)                                    \
    X(COUNT, OF_ITEMS("count(*)", ""), items)                         \
    X(COUNT, OF_ITEMS("count(*)", " AND state = 'running'"), running) \
    X(COUNT, OF_ITEMS("count(*)", " AND state = 'done'"), done)       \
    X(COUNT, OF_ITEMS("count(*)", " AND state = 'failed'"), failed)   \
    X(COUNT, OF_ITEMS("count(*)", " AND ready = 1 AND state IN ('pending', 'running')"), compiled)
#define FA_COLUMN_RECORD fa_sweep
static const fa_member columns[] = {FIELDS(FA_COLUMN_ENTRY){.key = NULL}};
#undef FA_COLUMN_RECORD

#define ITEM_FIELDS(X)                                      \
    X(TEXT, "gpu", gpu)                                     \
    X(CHOICE, "state", state, .names = fa_item_state_names) \
    X(COUNT, "attempts", attempts)                          \
    X(REAL, "seconds", spent.seconds)                       \
    X(COUNT64, "trials", spent.trials)                      \
    X(COUNT64, "compiled", spent.compiled)                  \
    X(COUNT64, "reused", spent.reused)                      \
    X(TEXT, "reason", reason)                               \
    X(CHOICE, "stage", stage, .names = fa_work_stage_names) \
    X(TEXT, "holder", holder)
#define FA_COLUMN_RECORD fa_sweep_item
const char *const fa_work_stage_names[] = {"compile", "measure", NULL};
static const fa_member item_columns[] = {ITEM_FIELDS(FA_COLUMN_ENTRY){.key = NULL}};

/* ---- entering a sweep -----------------------------------------------------------------------*/
static int find_sweep(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    return fa_db_find(store, diag, ret_id, "SELECT id FROM sweep WHERE key = ?", fa_text(key));
}

static int add_sweep(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    int64_t id = 0;
    const fa_sweep *sweep = entry->sweep;
    int rc =
        fa_db_find(store, diag, &id,
                   "INSERT INTO sweep (key, plan, state, budget_seconds, budget_trials, created, "
                   "updated, request) VALUES (?,?,'running',?,?,?,?,?) RETURNING id",
                   fa_text(sweep->key), fa_text(sweep->plan), fa_real(sweep->budget.seconds),
                   fa_int(sweep->budget.trials), fa_now(), fa_now(), fa_text(entry->request));
    for (int32_t i = 0; i < entry->count && rc == 0; i++) {
        fa_query query = fa_db_prepare(
            store, diag,
            "INSERT INTO sweep_item (sweep_id, position, problem_key, problem, gpu, state, attempts, "
            "seconds, trials, compiled, reused, reason, updated) "
            "VALUES (?,?,?,?,?,'pending',0,0,0,0,0,'',?)",
            fa_int(id), fa_int(i));
        fa_db_problem_bind(&query, &entry->items[i].problem);
        fa_bind(&query, fa_text(entry->items[i].gpu), fa_now());
        rc = fa_db_step(&query);
    }
    return rc;
}

static int come_back(fa_store *store, const fa_sweep_entry *entry, int64_t id, fa_diag *diag)
{
    const fa_sweep *sweep = entry->sweep;
    int rc = fa_db_do(store, diag,
                      "UPDATE sweep SET plan = ?, budget_seconds = ?, budget_trials = ?, "
                      "state = 'running', updated = ?, request = ? WHERE id = ?",
                      fa_text(sweep->plan), fa_real(sweep->budget.seconds),
                      fa_int(sweep->budget.trials), fa_now(), fa_text(entry->request), fa_int(id));
    return rc != 0 ? rc
                   : fa_db_do(store, diag,
                              "UPDATE sweep_item SET state = 'pending', reason = '' "
                              "WHERE sweep_id = ? AND state = 'failed'",
                              fa_int(id));
}

static int enter(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    int64_t id = 0;
    FA_OR_RETURN(find_sweep(store, entry->sweep->key, &id, diag));
    if (id != 0 && !entry->restart)
        return come_back(store, entry, id, diag);
    if (id != 0) {
        FA_OR_RETURN(
            fa_db_do(store, diag, "DELETE FROM sweep_item WHERE sweep_id = ?", fa_int(id)));
        FA_OR_RETURN(fa_db_do(store, diag, "DELETE FROM sweep WHERE id = ?", fa_int(id)));
    }
    return add_sweep(store, entry, diag);
}

int fa_store_sweep_enter(fa_store *store, const fa_sweep_entry *entry, fa_diag *diag)
{
    for (int32_t i = 0; i < entry->count; i++)
        FA_OR_RETURN(fa_problem_check(&entry->items[i].problem, diag));
    return FA_CHANGED(store, diag, enter(store, entry, diag));
}

int fa_store_sweep_set_state(fa_store *store, const char *key, fa_sweep_state state, fa_diag *diag)
{
    int64_t id = 0;
    int rc =
        FA_CHANGED(store, diag,
                   fa_db_find(store, diag, &id,
                              "UPDATE sweep SET state = ?, updated = ? WHERE key = ? RETURNING id",
                              fa_text(fa_sweep_state_name(state)), fa_now(), fa_text(key)));
    return rc != 0 ? rc : id == 0 ? FA_ENOTFOUND : 0;
}

int fa_store_sweep_reopen(fa_store *store, const char *key, int32_t position, fa_diag *diag)
{
    return FA_CHANGED(
        store, diag,
        fa_db_do(store, diag,
                 "UPDATE sweep_item SET state = 'pending' WHERE sweep_id = "
                 "(SELECT id FROM sweep WHERE key = ?) AND position = ? AND state = 'done'",
                 fa_text(key), fa_int(position)));
}

/* ---- reading --------------------------------------------------------------------------------*/
int fa_store_sweeps(fa_store *store, const char *key, fa_sweep **ret_rows, size_t *ret_count,
                    fa_diag *diag)
{
    int rc;
    fa_query query =
        fa_db_query(store, diag,
                    "SELECT 1" FIELDS(FA_COLUMN_NAME) " FROM sweep WHERE key = coalesce(?, key) "
                                                      "ORDER BY updated DESC, id DESC",
                    fa_text(key));
    while ((rc = fa_db_step(&query)) == 1) {
        fa_sweep sweep = {0};
        fa_read_int(&query, 1, 1);
        fa_read_columns(&query, columns, &sweep);
        if (query.rc == 0)
            fa_list_add(&query.list, &sweep, sizeof sweep);
    }
    return fa_list_end(&query.list, rc, NULL, ret_rows, ret_count, diag);
}

/* Its number; FA_ENOTFOUND, without a sentence. */
static int need_sweep(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag)
{
    FA_OR_RETURN(fa_db_enter(store, diag));
    FA_OR_RETURN(find_sweep(store, key, ret_id, diag));
    return *ret_id == 0 ? FA_ENOTFOUND : 0;
}

int fa_store_sweep_read(fa_store *store, const char *key, fa_sweep *ret_sweep, fa_diag *diag)
{
    FA_ENDS(fa_free_at) fa_sweep *row = NULL;
    size_t count = 0;
    int64_t id = 0;
    int rc = need_sweep(store, key, &id, diag);
    if (rc != 0 || (rc = fa_store_sweeps(store, key, &row, &count, diag)) != 0)
        return rc;
    if (count == 1)
        *ret_sweep = *row;
    return count == 1
               ? 0
               : fa_fail(diag, FA_ECORRUPT,
                         "store %s: this sweep's row is not valid: restart the sweep", store->path);
}

#define ITEM_COLUMNS "id, position, problem_key, problem" ITEM_FIELDS(FA_COLUMN_NAME)

static void read_item(fa_query *query, int64_t *ret_id, fa_sweep_item *ret_item)
{
    *ret_id = fa_read_int(query, 0, INT64_MAX);
    ret_item->index = (int32_t)fa_read_int(query, 0, INT32_MAX);
    fa_db_problem_read(query, &ret_item->problem);
    fa_read_columns(query, item_columns, ret_item);
}

int fa_store_sweep_items(fa_store *store, const char *key, fa_sweep_item **ret_rows,
                         size_t *ret_count, fa_diag *diag)
{
    int64_t sweep = 0, id;
    int rc;
    FA_OR_RETURN(need_sweep(store, key, &sweep, diag));
    fa_query query = fa_db_prepare(
        store, diag, "SELECT " ITEM_COLUMNS " FROM sweep_item WHERE sweep_id = ? ORDER BY position",
        fa_int(sweep));
    while ((rc = fa_db_step(&query)) == 1) {
        fa_sweep_item item = {0};
        read_item(&query, &id, &item);
        if (query.rc == 0)
            fa_list_add(&query.list, &item, sizeof item);
    }
    return fa_list_end(&query.list, rc, NULL, ret_rows, ret_count, diag);
}

/* ---- a sweep whose items have ended ---------------------------------------------------------*/
#define OPEN_ITEMS                                                                     \
    "EXISTS (SELECT 1 FROM sweep_item WHERE sweep_id = sweep.id AND sweep_item.state " \
    "IN ('pending', 'running'))"
#define SPENT(what)                              \
    "(budget_" what " > 0 AND (SELECT sum(" what \
    ") FROM sweep_item WHERE sweep_id = sweep.id) >= budget_" what ")"

/* Whoever changes the sweep's row holds up all others that end an item of it, and sees what those before it have ended. */
static int close_sweep(fa_store *store, int64_t id, fa_diag *diag)
{
    int rc =
        fa_db_do(store, diag, "UPDATE sweep SET updated = ? WHERE id = ?", fa_now(), fa_int(id));
    return rc != 0 ? rc
                   : fa_db_do(store, diag,
                              "UPDATE sweep SET state = CASE WHEN " OPEN_ITEMS
                              " THEN 'budget-spent' ELSE 'done' END WHERE id = ? "
                              "AND state IN ('running', 'budget-spent') AND (NOT " OPEN_ITEMS
                              " OR " SPENT("seconds") " OR " SPENT("trials") ")",
                              fa_int(id));
}

/* ---- taking ---------------------------------------------------------------------------------*/
enum { PASSED_OVER_MAX = 8 };

struct claiming {
    const fa_queue_taker *taker;
    fa_queue_claim claim;
    int64_t id;
    int64_t passed_over[PASSED_OVER_MAX]; /* held, or of an operation that is not known here */
    int passed_over_count;
    bool found;
};

/* Others in the middle of taking an item are stepped around where the database can. Behind what is pending, of those that
 * are running the ones come first of which nobody has heard for the longest time. */
static const char candidate_sql[] =
    "SELECT sweep_item.id FROM sweep_item JOIN sweep ON sweep.id = sweep_item.sweep_id "
    "WHERE (sweep.key = ? OR (? = 1 AND sweep.state = 'running')) "
    "AND sweep_item.state IN ('pending', 'running') AND sweep_item.ready <= ? "
    "AND (? = 1 OR sweep_item.gpu = ? OR (? = 1 AND sweep_item.gpu <> '')) "
    "AND sweep_item.id NOT IN (?,?,?,?,?,?,?,?) "
    "ORDER BY CASE WHEN sweep_item.state = 'running' THEN sweep_item.updated ELSE 0 END, sweep.id, "
    "sweep_item.ready DESC, sweep_item.position LIMIT 1 /*! FOR UPDATE OF sweep_item SKIP LOCKED */";

static int find_candidate(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    const fa_queue_taker *taker = claiming->taker;
    fa_query query =
        fa_db_prepare(store, diag, candidate_sql, fa_text(taker->key != NULL ? taker->key : ""),
                      fa_int(taker->key == NULL), fa_int(taker->stage != FA_WORK_COMPILE),
                      fa_int(taker->key != NULL), fa_text(taker->gpu != NULL ? taker->gpu : "none"),
                      fa_int(taker->gpu == NULL));
    for (int i = 0; i < PASSED_OVER_MAX; i++)
        fa_bind(&query, fa_int(i < claiming->passed_over_count ? claiming->passed_over[i] : -1));
    int rc = fa_db_step_id(&query, &claiming->id);
    return rc == 0 && claiming->id == 0 ? FA_ENOTFOUND : rc;
}

/* 1; 0: the row is not valid; FA_EVERSION: of an operation that is not known here. */
static int read_claim(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    fa_queue_claim *claim = &claiming->claim;
    int64_t id;
    fa_query query = fa_db_prepare(store, diag,
                                   "SELECT " ITEM_COLUMNS ", ready, "
                                   "(SELECT key FROM sweep WHERE sweep.id = sweep_id), "
                                   "(SELECT request FROM sweep WHERE sweep.id = sweep_id) "
                                   "FROM sweep_item WHERE id = ?",
                                   fa_int(claiming->id));
    int rc = fa_db_step(&query);
    if (rc != 1)
        return rc;
    read_item(&query, &id, &claim->item);
    claim->compiled = fa_read_int(&query, 0, 1) != 0;
    fa_read_copy(&query, claim->key, sizeof claim->key);
    fa_read_copy(&query, claim->request, sizeof claim->request);
    rc = fa_read_end(&query);
    return rc == 0 && query.rc == FA_EVERSION ? FA_EVERSION : rc;
}

/* One of an operation that is not known here is left to workers that know it; one whose row was read whole and is not valid
 * would come back to every worker for ever, and fails. */
static int take_candidate(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    const fa_queue_taker *taker = claiming->taker;
    int64_t sweep = 0;
    char name[40];
    claiming->passed_over[claiming->passed_over_count++] = claiming->id;
    snprintf(name, sizeof name, "item-%lld", (long long)claiming->id);
    int rc = fa_store_lock(store, name, false, &claiming->claim.lock, diag);
    if (rc == FA_EBUSY)
        return 0;
    int valid = rc == 0 ? read_claim(store, claiming, diag) : rc;
    if (valid == 1)
        rc = fa_db_do(store, diag,
                      "UPDATE sweep_item SET state = 'running', attempts = attempts + 1, "
                      "stage = ?, holder = ?, updated = ? WHERE id = ?",
                      fa_text(fa_work_stage_names[taker->stage]), fa_text(taker->holder), fa_now(),
                      fa_int(claiming->id));
    else if (valid == 0)
        rc = fa_db_find(store, diag, &sweep,
                        "UPDATE sweep_item SET state = 'failed', reason = 'its row is not valid', "
                        "stage = 'measure' WHERE id = ? RETURNING sweep_id",
                        fa_int(claiming->id));
    else
        rc = valid == FA_EVERSION ? 0 : valid;
    if (rc == 0 && valid == 0)
        rc = close_sweep(store, sweep, diag);
    claiming->found = rc == 0 && valid == 1;
    if (!claiming->found)
        fa_lock_release(&claiming->claim.lock);
    return rc;
}

/* An empty queue is no failure: rows that were found invalid on the way are still committed. */
static int claim(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    int rc = 0;
    fa_lock_release(&claiming->claim.lock);
    claiming->found = false;
    claiming->passed_over_count = 0;
    while (rc == 0 && !claiming->found && claiming->passed_over_count < PASSED_OVER_MAX) {
        claiming->claim = (fa_queue_claim){.compiled = false};
        rc = find_candidate(store, claiming, diag);
        if (rc == 0)
            rc = take_candidate(store, claiming, diag);
    }
    return rc == FA_ENOTFOUND ? 0 : rc;
}

int fa_store_queue_claim(fa_store *store, const fa_queue_taker *taker, fa_queue_claim *ret_claim,
                         fa_diag *diag)
{
    struct claiming claiming = {.taker = taker};
    int rc = FA_CHANGED(store, diag, claim(store, &claiming, diag));
    if (rc != 0)
        fa_lock_release(&claiming.claim.lock);
    if (rc != 0 || !claiming.found)
        return rc != 0 ? rc : FA_ENOTFOUND;
    *ret_claim = claiming.claim;
    ret_claim->item.attempts++;
    return 0;
}

/* ---- ending ---------------------------------------------------------------------------------*/
int fa_store_queue_end(fa_store *store, fa_queue_claim *claim, const fa_queue_end *end,
                       fa_diag *diag)
{
    const fa_sweep_spent spent = end->spent != NULL ? *end->spent : (fa_sweep_spent){0};
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change)) {
        int64_t sweep = 0;
        change.rc = fa_db_find(
            store, diag, &sweep,
            "UPDATE sweep_item SET seconds = seconds + ?, trials = trials + ?, "
            "compiled = compiled + ?, reused = reused + ?, updated = ?, state = ?, ready = ?, "
            "reason = ?, holder = '' WHERE sweep_id = (SELECT id FROM sweep WHERE key = ?) "
            "AND position = ? AND attempts = ? AND state = 'running' RETURNING sweep_id",
            fa_real(spent.seconds), fa_int(spent.trials), fa_int(spent.compiled),
            fa_int(spent.reused), fa_now(), fa_text(fa_item_state_name(end->state)),
            fa_int(end->compiled || claim->compiled),
            fa_text_start(end->reason != NULL ? end->reason : "",
                          sizeof((fa_sweep_item *)NULL)->reason - 1),
            fa_text(claim->key), fa_int(claim->item.index), fa_int(claim->item.attempts));
        if (change.rc == 0 && sweep != 0)
            change.rc = close_sweep(store, sweep, diag);
    }
    fa_lock_release(&claim->lock);
    return change.rc;
}
