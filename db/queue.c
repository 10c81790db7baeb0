/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue: items of sweeps, which any process that uses the store may take.
 *
 * Workload: hundreds of workers, thousands of items; a claim, a line of spending every second, and an end for each.
 * Invariants: whoever works on an item holds its lock, which ends with him, so an item that is running and not locked is
 * anybody's; an item ends only under its latest claim, told by the number of times that it was taken; a sweep has spent
 * what its items have.
 */
#include "rows.h"

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
    return rc != 0
               ? rc
               : fa_db_do(store, diag,
                          "UPDATE sweep SET state = CASE WHEN " OPEN_ITEMS
                          " THEN 'budget-spent' ELSE 'done' END WHERE id = ? "
                          "AND state IN ('running', 'budget-spent') AND (NOT " OPEN_ITEMS
                          " OR " SPENT("seconds") " OR " SPENT("trials") " OR " SPENT("cost") ")",
                          fa_int(id));
}

/* ---- taking ---------------------------------------------------------------------------------*/
enum { PASSED_OVER_MAX = 8 };

struct claiming {
    const fa_queue_taker *taker;
    fa_queue_claim claim;
    fa_sweep_item *item;
    int64_t id;
    int64_t passed_over[PASSED_OVER_MAX]; /* held, or of an operation that is not known here */
    int passed_over_count;
    bool found;
};

/* Others in the middle of taking an item are stepped around where the database can. Of those that are running the ones
 * come first of which nobody has heard for the longest time. */
static const char candidate_sql[] =
    "SELECT sweep_item.id FROM sweep_item JOIN sweep ON sweep.id = sweep_item.sweep_id "
    "WHERE (sweep.key = ? OR (? = 1 AND sweep.state = 'running')) AND sweep_item.state = ? "
    "AND sweep_item.ready <= ? "
    "AND (? = 1 OR sweep_item.gpu = ? OR (? = 1 AND sweep_item.gpu <> '')) "
    "AND sweep_item.id NOT IN (?,?,?,?,?,?,?,?) "
    "ORDER BY CASE WHEN sweep_item.state = 'running' THEN sweep_item.updated ELSE 0 END, sweep.id, "
    "sweep_item.ready DESC, sweep_item.position LIMIT 1 /*! FOR UPDATE OF sweep_item SKIP LOCKED */";

static int find_candidate(fa_store *store, struct claiming *claiming, const char *state,
                          fa_diag *diag)
{
    const fa_queue_taker *taker = claiming->taker;
    fa_binder binder = fa_db_prepare(store, candidate_sql, diag);
    fa_bind(&binder, fa_text(taker->key != NULL ? taker->key : ""), fa_int(taker->key == NULL),
            fa_text(state), fa_int(taker->stage == FA_WORK_COMPILE ? 0 : 1),
            fa_int(taker->key != NULL), fa_text(taker->gpu != NULL ? taker->gpu : "none"),
            fa_int(taker->gpu == NULL));
    for (int i = 0; i < PASSED_OVER_MAX; i++)
        fa_bind(&binder, fa_int(i < claiming->passed_over_count ? claiming->passed_over[i] : -1));
    int rc = fa_db_run_id(store, &binder, &claiming->id, diag);
    return rc == 0 && claiming->id == 0 ? FA_ENOTFOUND : rc;
}

static int read_claim(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    fa_queue_claim *claim = &claiming->claim;
    fa_reader reader;
    int rc = fa_db_item_load(store, claiming->id, claiming->item, diag);
    if (rc != 1)
        return rc;
    claim->position = claiming->item->index;
    claim->attempts = claiming->item->attempts;
    rc = fa_db_row(store,
                   "SELECT sweep.key, request, ready FROM sweep JOIN sweep_item "
                   "ON sweep.id = sweep_item.sweep_id WHERE sweep_item.id = ?",
                   claiming->id, &reader, diag);
    if (rc != 1)
        return rc;
    fa_read_copy(&reader, claim->key, sizeof claim->key);
    fa_read_copy(&reader, claim->request, sizeof claim->request);
    claim->compiled = fa_read_int(&reader, 0, 1) != 0;
    return fa_read_end(&reader, diag);
}

/* An item whose row was read whole and is not valid would come back to every worker for ever. */
static int fail_item(fa_store *store, int64_t id, fa_diag *diag)
{
    int64_t sweep = 0;
    fa_binder binder = fa_db_prepare(
        store,
        "UPDATE sweep_item SET state = 'failed', reason = 'its row is not valid', stage = 'measure' "
        "WHERE id = ? RETURNING sweep_id",
        diag);
    fa_bind(&binder, fa_int(id));
    int rc = fa_db_run_id(store, &binder, &sweep, diag);
    return rc != 0 ? rc : close_sweep(store, sweep, diag);
}

/* One of an operation that is not known here is left to workers that know it. */
static int take_candidate(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    const fa_queue_taker *taker = claiming->taker;
    claiming->passed_over[claiming->passed_over_count++] = claiming->id;
    int rc = fa_db_item_lock(store, claiming->id, &claiming->claim.lock, diag);
    if (rc == FA_EBUSY)
        return 0;
    int valid = rc == 0 ? read_claim(store, claiming, diag) : rc;
    if (valid == 1)
        rc = fa_db_do(store, diag,
                      "UPDATE sweep_item SET state = 'running', attempts = attempts + 1, "
                      "stage = ?, holder = ?, updated = ? WHERE id = ?",
                      fa_text(fa_db_stage_names[taker->stage]), fa_text(taker->holder), fa_now(),
                      fa_int(claiming->id));
    else if (valid == 0)
        rc = fail_item(store, claiming->id, diag);
    else
        rc = valid == FA_EVERSION ? 0 : valid;
    claiming->found = rc == 0 && valid == 1;
    if (!claiming->found)
        fa_lock_release(&claiming->claim.lock);
    return rc;
}

/* An empty queue is no failure: rows that were found invalid on the way are still committed. */
static int claim(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    static const char *const states[] = {"pending", "running"};
    int rc = 0;
    fa_lock_release(&claiming->claim.lock);
    claiming->found = false;
    for (size_t i = 0; i < 2; i++) {
        claiming->passed_over_count = 0;
        rc = 0;
        while (rc == 0 && !claiming->found && claiming->passed_over_count < PASSED_OVER_MAX) {
            claiming->claim = (fa_queue_claim){.position = 0};
            rc = find_candidate(store, claiming, states[i], diag);
            if (rc == 0)
                rc = take_candidate(store, claiming, diag);
        }
        if (claiming->found || (rc != 0 && rc != FA_ENOTFOUND))
            break;
    }
    return rc == FA_ENOTFOUND ? 0 : rc;
}

int fa_store_queue_claim(fa_store *store, const fa_queue_taker *taker, fa_queue_claim *ret_claim,
                         fa_sweep_item *ret_item, fa_diag *diag)
{
    fa_sweep_item item = {0};
    struct claiming claiming = {.taker = taker, .item = &item};
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change))
        change.rc = claim(store, &claiming, diag);
    if (change.rc != 0)
        fa_lock_release(&claiming.claim.lock);
    if (change.rc != 0 || !claiming.found)
        return change.rc != 0 ? change.rc : FA_ENOTFOUND;
    *ret_claim = claiming.claim;
    *ret_item = item;
    ret_claim->attempts = ++ret_item->attempts;
    return 0;
}

/* ---- spending and ending --------------------------------------------------------------------*/
#define SPEND                                                       \
    "seconds = seconds + ?, cost = cost + ?, trials = trials + ?, " \
    "compiled = compiled + ?, reused = reused + ?, updated = ?"
#define OF_CLAIM                                                                                \
    " WHERE sweep_id = (SELECT id FROM sweep WHERE key = ?) AND position = ? AND attempts = ? " \
    "AND state = 'running'"

static void bind_spent(fa_binder *binder, const fa_sweep_spent *spent)
{
    fa_bind(binder, fa_real(spent->seconds), fa_real(spent->cost), fa_int(spent->trials),
            fa_int(spent->compiled), fa_int(spent->reused), fa_now());
}

static void bind_claim(fa_binder *binder, const fa_queue_claim *claim)
{
    fa_bind(binder, fa_text(claim->key), fa_int(claim->position), fa_int(claim->attempts));
}

int fa_store_queue_spend(fa_store *store, const fa_queue_claim *claim, const fa_sweep_spent *spent,
                         fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change)) {
        fa_binder binder = fa_db_prepare(store, "UPDATE sweep_item SET " SPEND OF_CLAIM, diag);
        bind_spent(&binder, spent);
        bind_claim(&binder, claim);
        change.rc = fa_db_run(store, &binder, diag);
    }
    return change.rc;
}

int fa_store_queue_end(fa_store *store, fa_queue_claim *claim, const fa_queue_end *end,
                       fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    while (fa_store_change(&change)) {
        fa_binder binder = fa_db_prepare(store,
                                         "UPDATE sweep_item SET " SPEND
                                         ", state = ?, ready = ?, reason = ?, holder = ''" OF_CLAIM
                                         " RETURNING sweep_id",
                                         diag);
        bind_spent(&binder, end->spent != NULL ? end->spent : &(fa_sweep_spent){0});
        fa_bind(&binder, fa_text(fa_item_state_name(end->state)),
                fa_int(end->compiled || claim->compiled),
                fa_text_start(end->reason != NULL ? end->reason : "",
                              sizeof((fa_sweep_item *)NULL)->reason - 1));
        bind_claim(&binder, claim);
        int64_t sweep = 0;
        change.rc = fa_db_run_id(store, &binder, &sweep, diag);
        if (change.rc == 0 && sweep != 0)
            change.rc = close_sweep(store, sweep, diag);
    }
    fa_lock_release(&claim->lock);
    return change.rc;
}
