/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue: items of sweeps, which the host of a sweep takes in turn, or which any host of a fleet may take under
 * claims that run out; and leases.
 *
 * Workload: hundreds of workers, thousands of items; a claim, a few renewals or a line of spending every second, and
 * an end for each. Invariants: an item ends only under its latest claim, told by its fence (the number of times that
 * it was taken) and its holder; a winner and the end of its item are one transaction, so nobody publishes under a
 * claim that was lost; what is refused for that is counted; a sweep has spent what its items have, because both are
 * written in one transaction.
 */
#include "rows.h"

#include <stdio.h>
#include <string.h>

static const char *const stage_names[] = {"compile", "measure"};

/* Of a lease, or of a claim on an item. */
static int check_ms(const char *what, int64_t lease_ms, fa_diag *diag)
{
    if (lease_ms > 0 && lease_ms <= FA_LEASE_MAX_MS)
        return 0;
    return fa_fail(diag, FA_EINVAL, "a %s of %lld ms: use 1 to %d", what, (long long)lease_ms,
                   FA_LEASE_MAX_MS);
}

static bool holder_ok(const char *holder)
{
    return holder != NULL && holder[0] != 0 && strlen(holder) < FA_HOLDER_MAX;
}

/* ---- a sweep whose items have ended ---------------------------------------------------------*/
#define OPEN_ITEMS                                                                     \
    "EXISTS (SELECT 1 FROM sweep_item WHERE sweep_id = sweep.id AND sweep_item.state " \
    "IN ('pending', 'running'))"

/* A fleet's: done when no item is open, or closed when its budget is spent. */
static int close_sweep(fa_store *store, int64_t id, fa_diag *diag)
{
    return fa_db_do(store, diag,
                    "UPDATE sweep SET state = CASE WHEN " OPEN_ITEMS
                    " THEN 'budget-spent' ELSE 'done' END WHERE id = ? AND fleet = 1 "
                    "AND state IN ('running', 'budget-spent') AND (NOT " OPEN_ITEMS
                    " OR (budget_seconds > 0 AND seconds >= budget_seconds) "
                    "OR (budget_trials > 0 AND trials >= budget_trials) "
                    "OR (budget_cost > 0 AND cost >= budget_cost))",
                    fa_int(id));
}

/* ---- taking ---------------------------------------------------------------------------------*/
enum { PASSED_OVER_MAX = 8 };

struct claiming {
    fa_queue_taker taker;
    fa_queue_claim claim;
    fa_sweep_item *item;                  /* NULL: is not read */
    int64_t passed_over[PASSED_OVER_MAX]; /* items that only a newer version can read */
    int passed_over_count;
    bool found;
};

/* Which item: others in the middle of taking one are stepped around where the database can. */
static const char claim_sql[] =
    "UPDATE sweep_item SET state = 'running', attempts = attempts + 1, stage = ?, holder = ?, "
    "lease_until = unix_ms() + ?, updated = ? WHERE id = (SELECT sweep_item.id FROM sweep_item "
    "JOIN sweep ON sweep.id = sweep_item.sweep_id WHERE "
    "(sweep.id = ? OR (? = 1 AND sweep.fleet = 1 AND sweep.state = 'running')) "
    "AND (sweep_item.state = 'pending' "
    "OR (sweep_item.state = 'running' AND sweep_item.lease_until <= unix_ms())) "
    "AND sweep_item.ready <= ? AND (? = 1 OR sweep_item.gpu = ?) "
    "AND sweep_item.id NOT IN (?,?,?,?,?,?,?,?) "
    "ORDER BY sweep.id, sweep_item.ready DESC, sweep_item.position LIMIT 1 "
    "/*! FOR UPDATE OF sweep_item SKIP LOCKED */) "
    "RETURNING id, sweep_id, position, attempts, ready";

static int take_item(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    const fa_queue_taker *taker = &claiming->taker;
    fa_queue_claim *claim = &claiming->claim;
    fa_reader reader;
    fa_binder binder = fa_db_prepare(store, claim_sql, diag);
    fa_bind(&binder, fa_text(stage_names[taker->stage]), fa_text(taker->holder),
            fa_int(taker->lease_ms), fa_now(), fa_int(taker->sweep_id),
            fa_int(taker->sweep_id == 0), fa_int(taker->stage == FA_WORK_COMPILE ? 0 : 1),
            fa_int(taker->gpu == NULL), fa_text(taker->gpu != NULL ? taker->gpu : ""));
    for (int i = 0; i < PASSED_OVER_MAX; i++)
        fa_bind(&binder, fa_int(i < claiming->passed_over_count ? claiming->passed_over[i] : -1));
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc <= 0)
        return rc < 0 ? rc : FA_ENOTFOUND;
    claim->item_id = fa_read_int(&reader, 0, INT64_MAX);
    claim->sweep_id = fa_read_int(&reader, 0, INT64_MAX);
    claim->position = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    claim->fence = (int32_t)fa_read_int(&reader, 0, INT32_MAX);
    claim->compiled = fa_read_int(&reader, 0, 1) != 0;
    rc = fa_read_end(&reader, diag);
    if (rc == 0)
        return fa_fail(diag, FA_ECORRUPT, "an item of the queue is not valid: restart its sweep");
    return rc < 0 ? rc : 0;
}

/* An item whose row was read whole and is not valid would come back to every worker for ever: it has
 * failed. Answers 1. */
static int fail_item(fa_store *store, const fa_queue_claim *claim, fa_diag *diag)
{
    int rc = fa_db_do(store, diag,
                      "UPDATE sweep_item SET state = 'failed', reason = 'its row is not valid', "
                      "holder = '', lease_until = 0 WHERE id = ?",
                      fa_int(claim->item_id));
    if (rc == 0)
        rc = close_sweep(store, claim->sweep_id, diag);
    return rc != 0 ? rc : 1;
}

/* An item of a newer version is left to workers of that version, as if it had not been taken. Returns 1,
 * or FA_ENOTFOUND after many of them, so that one claim does not read the whole queue. */
static int pass_over(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    int rc = fa_db_do(store, diag,
                      "UPDATE sweep_item SET state = 'pending', attempts = attempts - 1, "
                      "holder = '', lease_until = 0 WHERE id = ?",
                      fa_int(claiming->claim.item_id));
    claiming->found = false;
    if (rc != 0 || claiming->passed_over_count == PASSED_OVER_MAX)
        return rc != 0 ? rc : FA_ENOTFOUND;
    claiming->passed_over[claiming->passed_over_count++] = claiming->claim.item_id;
    return 1;
}

/* Returns 1 when this item is not for this worker and another is to be taken. */
static int read_claimed(fa_store *store, struct claiming *claiming, fa_diag *diag)
{
    fa_queue_claim *claim = &claiming->claim;
    fa_reader reader;
    int32_t position;
    int rc = fa_db_item_load(store, claim->item_id, &position, claiming->item, diag);
    if (rc == FA_EVERSION)
        return pass_over(store, claiming, diag);
    if (rc <= 0)
        return rc < 0 ? rc : fail_item(store, claim, diag);
    rc = fa_db_row(store, "SELECT request FROM sweep WHERE id = ?", claim->sweep_id, &reader, diag);
    if (rc != 1)
        return rc < 0 ? rc : fa_fail(diag, FA_ECORRUPT, "an item of the queue has no sweep");
    fa_read_copy(&reader, claim->request, sizeof claim->request);
    rc = fa_read_end(&reader, diag);
    return rc == 0 ? fail_item(store, claim, diag) : (rc < 0 ? rc : 0);
}

/* An empty queue is no failure: rows that were found invalid on the way are still committed. */
static int claim_body(fa_store *store, void *context, fa_diag *diag)
{
    struct claiming *claiming = context;
    int rc;
    claiming->passed_over_count = 0;
    do {
        rc = take_item(store, claiming, diag);
        claiming->found = rc == 0;
        if (rc == 0 && claiming->item != NULL)
            rc = read_claimed(store, claiming, diag);
    } while (rc == 1);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

int fa_store_queue_claim(fa_store *store, const fa_queue_taker *taker, fa_queue_claim *ret_claim,
                         fa_sweep_item *ret_item, fa_diag *diag)
{
    struct claiming claiming = {.taker = *taker, .item = ret_item, .claim.stage = taker->stage};
    int rc = 0;
    if (taker->sweep_id != 0) {
        claiming.taker.holder = "";
        claiming.taker.lease_ms = 0;
    } else if (!holder_ok(taker->holder) ||
               (taker->stage != FA_WORK_COMPILE && taker->stage != FA_WORK_MEASURE)) {
        rc = fa_fail(diag, FA_EINVAL, "a claim needs a stage and a holder of up to %d bytes",
                     FA_HOLDER_MAX - 1);
    } else {
        rc = check_ms("claim", taker->lease_ms, diag);
    }
    if (rc != 0)
        return rc;
    strcpy(claiming.claim.holder, claiming.taker.holder);
    rc = fa_db_change(store, claim_body, &claiming, diag);
    if (rc != 0 || !claiming.found)
        return rc != 0 ? rc : FA_ENOTFOUND;
    *ret_claim = claiming.claim;
    return 0;
}

/* ---- holding --------------------------------------------------------------------------------*/
/* A change of what is claimed; one transaction. */
struct holding {
    const fa_queue_claim *claim;
    int64_t lease_ms;
    const fa_sweep_spent *spent;
    const fa_queue_end *end;
    char reason[sizeof((fa_sweep_item *)NULL)->reason];
    bool lost;
};

static void bind_claim(fa_binder *binder, const fa_queue_claim *claim)
{
    fa_bind(binder, fa_int(claim->item_id), fa_int(claim->fence), fa_text(claim->holder));
}

static int lost(const fa_queue_claim *claim, fa_diag *diag)
{
    return fa_fail(diag, FA_EBUSY,
                   "the claim on item %d of the sweep is lost: it ran out and the item was taken "
                   "over, or the store was replaced",
                   claim->position);
}

static int renew_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct holding *holding = context;
    fa_binder binder =
        fa_db_prepare(store,
                      "UPDATE sweep_item SET lease_until = unix_ms() + ? "
                      "WHERE id = ? AND attempts = ? AND holder = ? AND state = 'running'",
                      diag);
    fa_bind(&binder, fa_int(holding->lease_ms));
    bind_claim(&binder, holding->claim);
    int rc = fa_db_run(store, &binder, diag);
    return rc == 0 && fa_db_changes(store) != 1 ? lost(holding->claim, diag) : rc;
}

int fa_store_queue_renew(fa_store *store, const fa_queue_claim *claim, int64_t lease_ms,
                         fa_diag *diag)
{
    struct holding holding = {.claim = claim, .lease_ms = lease_ms};
    int rc = check_ms("claim", lease_ms, diag);
    return rc != 0 ? rc : fa_db_change(store, renew_body, &holding, diag);
}

#define SPEND                                                       \
    "seconds = seconds + ?, cost = cost + ?, trials = trials + ?, " \
    "compiled = compiled + ?, reused = reused + ?, updated = ? WHERE id = ?"

static int spend_on(fa_store *store, const char *sql, int64_t id, const fa_sweep_spent *spent,
                    fa_diag *diag)
{
    return fa_db_do(store, diag, sql, fa_real(spent->seconds), fa_real(spent->cost),
                    fa_int(spent->trials), fa_int(spent->compiled), fa_int(spent->reused), fa_now(),
                    fa_int(id));
}

static int spend_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct holding *holding = context;
    const fa_queue_claim *claim = holding->claim;
    int rc = spend_on(store, "UPDATE sweep_item SET " SPEND, claim->item_id, holding->spent, diag);
    return rc != 0
               ? rc
               : spend_on(store, "UPDATE sweep SET " SPEND, claim->sweep_id, holding->spent, diag);
}

int fa_store_queue_spend(fa_store *store, const fa_queue_claim *claim, const fa_sweep_spent *spent,
                         fa_diag *diag)
{
    struct holding holding = {.claim = claim, .spent = spent};
    return fa_db_change(store, spend_body, &holding, diag);
}

/* ---- ending ---------------------------------------------------------------------------------*/
static int is_compiled(const struct holding *holding)
{
    return holding->end->compiled || holding->claim->compiled;
}

static int end_item(fa_store *store, const struct holding *holding, fa_diag *diag)
{
    fa_binder binder =
        fa_db_prepare(store,
                      "UPDATE sweep_item SET state = ?, ready = ?, reason = ?, updated = ?, "
                      "holder = '', lease_until = 0 "
                      "WHERE id = ? AND attempts = ? AND holder = ? AND state = 'running'",
                      diag);
    fa_bind(&binder, fa_text(fa_item_state_name(holding->end->state)), fa_int(is_compiled(holding)),
            fa_text(holding->reason), fa_now());
    bind_claim(&binder, holding->claim);
    return fa_db_run(store, &binder, diag);
}

/* Whether this very claim has ended the item so: the connection may have been lost after the commit and
 * before its answer. */
static int said_before(fa_store *store, const struct holding *holding, bool *ret_said,
                       fa_diag *diag)
{
    fa_binder binder =
        fa_db_prepare(store,
                      "SELECT 1 FROM sweep_item WHERE id = ? AND attempts = ? AND state = ? "
                      "AND ready = ? AND holder = ''",
                      diag);
    fa_bind(&binder, fa_int(holding->claim->item_id), fa_int(holding->claim->fence),
            fa_text(fa_item_state_name(holding->end->state)), fa_int(is_compiled(holding)));
    return fa_db_run_exists(store, &binder, ret_said, diag);
}

static int end_body(fa_store *store, void *context, fa_diag *diag)
{
    struct holding *holding = context;
    const fa_queue_end *end = holding->end;
    holding->lost = false;
    int rc = end_item(store, holding, diag);
    if (rc != 0)
        return rc;
    if (fa_db_changes(store) != 1) {
        bool said = false;
        rc = said_before(store, holding, &said, diag);
        if (rc != 0 || said)
            return rc;
        holding->lost = true; /* and the count of it is committed */
        if (end->state == FA_ITEM_PENDING && !end->compiled)
            return 0;
        return fa_db_do(store, diag, "UPDATE sweep SET refused = refused + 1 WHERE id = ?",
                        fa_int(holding->claim->sweep_id));
    }
    if (end->winner != NULL)
        rc = fa_db_winner_put(store, end->winner, end->cubin, diag);
    /* The sweep's row comes last and is changed even if nothing was spent: whoever changes it holds up all others
     * that end an item of it, and sees what those before it have ended. */
    if (rc == 0)
        rc = spend_body(store, holding, diag);
    if (rc == 0)
        rc = close_sweep(store, holding->claim->sweep_id, diag);
    return rc != 0 ? rc : fa_db_notify(store, diag);
}

int fa_store_queue_end(fa_store *store, const fa_queue_claim *claim, const fa_queue_end *end,
                       fa_diag *diag)
{
    static const fa_sweep_spent nothing;
    struct holding holding = {
        .claim = claim, .end = end, .spent = end->spent != NULL ? end->spent : &nothing};
    snprintf(holding.reason, sizeof holding.reason, "%s", end->reason != NULL ? end->reason : "");
    int rc = fa_db_enter(store, diag);
    if (rc == 0 && end->winner != NULL)
        rc = fa_db_winner_check(end->winner, end->cubin, diag);
    if (rc == 0)
        rc = fa_db_write(store, end_body, &holding, diag);
    return rc == 0 && holding.lost ? lost(claim, diag) : rc;
}

/* ---- counting -------------------------------------------------------------------------------*/
#define COUNT(condition) "count(CASE WHEN " condition " THEN 1 END), "
#define OF_FLEET "sweep.fleet = 1 AND (sweep.id = ?1 OR ?1 = 0)"

int fa_store_queue_counts(fa_store *store, int64_t id, fa_queue *ret_queue, fa_diag *diag)
{
    static const char sql[] = "SELECT count(*), " COUNT("i.state = 'done'") COUNT(
        "i.state = 'failed'") COUNT("i.state = 'pending'") COUNT("i.state = 'running'")
        COUNT("i.state = 'running' AND i.lease_until <= unix_ms()") COUNT(
            "i.state IN ('pending', 'running') AND i.ready = 1") "(SELECT CAST(coalesce(sum(refused), 0) AS bigint) FROM sweep WHERE " OF_FLEET
                                                                 ") "
                                                                 "FROM sweep_item i JOIN sweep ON sweep.id = i.sweep_id WHERE " OF_FLEET;
    int64_t n[8] = {0};
    fa_reader reader;
    fa_binder binder = fa_db_query(store, sql, diag);
    fa_bind(&binder, fa_int(id));
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc < 0)
        return rc;
    for (size_t i = 0; rc == 1 && i < sizeof n / sizeof *n; i++)
        n[i] = fa_read_int(&reader, 0, i < 3 ? INT32_MAX : INT64_MAX);
    if (rc == 1)
        rc = fa_read_end(&reader, diag);
    if (rc != 1)
        return rc < 0 ? rc
                      : fa_fail(diag, FA_ECORRUPT,
                                "store %s: the counts of its queue are not valid", store->path);
    ret_queue->sweep.items = (int32_t)n[0];
    ret_queue->sweep.done = (int32_t)n[1];
    ret_queue->sweep.failed = (int32_t)n[2];
    ret_queue->pending = n[3];
    ret_queue->running = n[4];
    ret_queue->expired = n[5];
    ret_queue->compiled = n[6];
    ret_queue->refused = n[7];
    return 0;
}

/* ---- holders --------------------------------------------------------------------------------*/
struct visiting {
    fa_store_holding_visit *visit;
    void *context;
};

/* An item that is no longer held, or whose row is not valid, is left out. */
static int visit_row(fa_store *store, int64_t id, void *context, fa_diag *diag)
{
    const struct visiting *visiting = context;
    fa_queue_holding holding = {0};
    fa_reader reader;
    int rc = fa_db_item_load(store, id, &holding.index, &holding.item, diag);
    if (rc == 1)
        rc = fa_db_row(store,
                       "SELECT holder, stage, lease_until - unix_ms() FROM sweep_item "
                       "WHERE id = ? AND state = 'running'",
                       id, &reader, diag);
    if (rc != 1)
        return rc == FA_EVERSION ? 0 : rc;
    fa_read_copy(&reader, holding.holder, sizeof holding.holder);
    const char *stage = fa_read_text(&reader, false);
    holding.stage =
        strcmp(stage, stage_names[FA_WORK_COMPILE]) == 0 ? FA_WORK_COMPILE : FA_WORK_MEASURE;
    holding.left_s = (double)fa_read_int(&reader, INT64_MIN, INT64_MAX) / 1000;
    rc = fa_read_end(&reader, diag);
    return rc == 1 ? visiting->visit(visiting->context, &holding) : rc;
}

int fa_store_queue_holdings_each(fa_store *store, int64_t id, fa_store_holding_visit *visit,
                                 void *context, fa_diag *diag)
{
    struct visiting visiting = {visit, context};
    fa_binder ids = fa_db_query(store,
                                "SELECT id FROM sweep_item WHERE sweep_id = ? "
                                "AND state = 'running' ORDER BY position",
                                diag);
    fa_bind(&ids, fa_int(id));
    return fa_db_each(store, &ids, visit_row, &visiting, diag);
}

/* ---- leases: taking -------------------------------------------------------------------------*/
/* Names with one holder at a time, until a moment of the database's clock. A row stays when
 * its lease has ended, so that the next holder's fence is higher than all before it. */
struct leasing {
    const fa_store_lease *lease;
    int64_t lease_ms, fence;
};

static int take_body(fa_store *store, void *context, fa_diag *diag)
{
    struct leasing *leasing = context;
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO lease (name, holder, fence, lease_until) "
                      "VALUES (?,?,1,unix_ms() + ?) ON CONFLICT (name) DO UPDATE SET "
                      "holder = excluded.holder, fence = lease.fence + 1, "
                      "lease_until = excluded.lease_until "
                      "WHERE lease.lease_until <= unix_ms() "
                      "OR lease.holder = excluded.holder RETURNING fence",
                      diag);
    fa_bind(&binder, fa_text(leasing->lease->name), fa_text(leasing->lease->holder),
            fa_int(leasing->lease_ms));
    int rc = fa_db_run_id(store, &binder, &leasing->fence, diag);
    if (rc == 0 && leasing->fence <= 0)
        rc = fa_fail(diag, FA_EBUSY, "another worker holds the lease on %s", leasing->lease->name);
    return rc;
}

int fa_store_lease_take(fa_store *store, const char *name, const char *holder, int64_t lease_ms,
                        fa_store_lease *ret_lease, fa_diag *diag)
{
    if (name == NULL || name[0] == 0 || strlen(name) >= FA_LEASE_NAME_MAX || !holder_ok(holder))
        return fa_fail(diag, FA_EINVAL,
                       "a lease needs a name and a holder, of up to %d and %d bytes",
                       FA_LEASE_NAME_MAX - 1, FA_HOLDER_MAX - 1);
    int rc = check_ms("lease", lease_ms, diag);
    if (rc != 0)
        return rc;
    fa_store_lease lease = {0};
    strcpy(lease.name, name);
    strcpy(lease.holder, holder);
    struct leasing leasing = {.lease = &lease, .lease_ms = lease_ms};
    rc = fa_db_change(store, take_body, &leasing, diag);
    if (rc != 0)
        return rc;
    lease.fence = leasing.fence;
    *ret_lease = lease;
    return 0;
}

/* ---- leases: holding and letting go ---------------------------------------------------------*/
#define OF_TAKING "WHERE name = ? AND holder = ? AND fence = ?"

/* lease_ms 0: lets go. */
static int hold_body(fa_store *store, void *context, fa_diag *diag)
{
    const struct leasing *leasing = context;
    bool ends = leasing->lease_ms == 0;
    fa_binder binder =
        fa_db_prepare(store,
                      ends ? "UPDATE lease SET lease_until = 0, holder = '' " OF_TAKING
                           : "UPDATE lease SET lease_until = unix_ms() + ? " OF_TAKING,
                      diag);
    if (!ends)
        fa_bind(&binder, fa_int(leasing->lease_ms));
    fa_bind(&binder, fa_text(leasing->lease->name), fa_text(leasing->lease->holder),
            fa_int(leasing->lease->fence));
    int rc = fa_db_run(store, &binder, diag);
    if (rc != 0)
        return rc;
    if (ends)
        return fa_db_notify(store, diag);
    return fa_db_changes(store) == 1
               ? 0
               : fa_fail(diag, FA_EBUSY, "the lease on %s ran out and was taken over",
                         leasing->lease->name);
}

int fa_store_lease_renew(fa_store *store, const fa_store_lease *lease, int64_t lease_ms,
                         fa_diag *diag)
{
    struct leasing leasing = {.lease = lease, .lease_ms = lease_ms};
    int rc = check_ms("lease", lease_ms, diag);
    return rc != 0 ? rc : fa_db_change(store, hold_body, &leasing, diag);
}

int fa_store_lease_release(fa_store *store, const fa_store_lease *lease, fa_diag *diag)
{
    struct leasing leasing = {.lease = lease};
    return fa_db_change(store, hold_body, &leasing, diag);
}
