/* SPDX-License-Identifier: Apache-2.0
 *
 * From the local store into the fleet's: a tune's winner with its cubin, its trials and the cubins
 * that others will want; and the outbox of what could not be published yet.
 *
 * Workload: one winner, its hundred trials and some cubins of 50 KB after a tune. Invariants: a scope
 * is in the outbox from the transaction that stores its winner until the fleet has it, so that a
 * kill -9 or a database that is gone loses nothing; what is published right after a tune goes out under
 * the key's lease, compared in the transaction that publishes; publishers of one key come one after
 * another, and a better winner is never replaced by a worse. What a worker tunes is in the outbox only
 * when it could not publish: else another process of its host would, without its claim.
 */
#include "bundle_check.h"
#include "fleet.h"

#include "store.h"
#include "pool.h"

#include <stdlib.h>
#include <string.h>

enum { CUBINS_WORTH_HAVING = 8, CATCH_UP_MS = 2000, OUTBOX_LOOK = 256 };

/* ---- trials and cubins ----------------------------------------------------------------------*/
struct sharing {
    fa_tuner *tuner;
    const fa_scope *scope;
    int rc;
    fa_diag *diag;
};

static int share_trial(void *context, const fa_trial_record *record)
{
    struct sharing *sharing = context;
    sharing->rc = fa_store_trial_put(fa_fleet_of(sharing->tuner)->store, sharing->scope, record,
                                     sharing->diag);
    return sharing->rc;
}

/* Inside a batch of the fleet's store. */
static int share_trials(void *context, fa_diag *diag)
{
    struct sharing *sharing = context;
    sharing->diag = diag;
    return fa_store_trials_each(sharing->tuner->store, sharing->scope, share_trial, sharing, diag);
}

/* A cubin that the local store has lost since is nobody's concern here. */
static int share_cubin(fa_tuner *tuner, const char *key, fa_diag *diag)
{
    fa_cubin_record cubin = {0};
    bool there = false;
    int rc = key[0] == 0 ? 0 : fa_store_cubin_exists(fa_fleet_of(tuner)->store, key, &there, diag);
    if (rc != 0 || there || key[0] == 0 || fa_store_cubin_get(tuner->store, key, &cubin, NULL) != 0)
        return rc;
    rc = fa_store_cubin_put(fa_fleet_of(tuner)->store, &cubin, diag);
    fa_cubin_record_free(&cubin);
    return rc;
}

static int share_cubin_of_trial(void *context, const fa_trial_record *record)
{
    struct sharing *sharing = context;
    return sharing->rc = share_cubin(sharing->tuner, record->cubin_key, sharing->diag);
}

int fa_fleet_share_cubins(fa_tuner *tuner, const fa_scope *scope, bool all, fa_diag *diag)
{
    struct sharing sharing = {tuner, scope, 0, diag};
    int32_t most = all ? INT32_MAX : CUBINS_WORTH_HAVING;
    int rc = fa_store_trials_fastest(tuner->store, scope, FA_STATUS_MEASURED, most,
                                     share_cubin_of_trial, &sharing, diag);
    return rc != 0 ? rc
                   : fa_store_trials_fastest(tuner->store, scope, FA_STATUS_COMPILED, most,
                                             share_cubin_of_trial, &sharing, diag);
}

int fa_fleet_share_rest(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag)
{
    struct sharing sharing = {.tuner = tuner, .scope = scope};
    int rc = fa_fleet_share_cubins(tuner, scope, false, diag);
    return rc != 0 ? rc : fa_store_batch(fa_fleet_of(tuner)->store, share_trials, &sharing, diag);
}

/* ---- a winner -------------------------------------------------------------------------------*/
struct publishing {
    fa_tuner *tuner;
    const fa_scope *scope;
    const fa_source_lease *lease; /* NULL: caught up with */
    const fa_winner_record *winner;
    const fa_cubin_record *cubin;
};

/* Whether the fleet's winner, where it has one that may be served, is replaced. */
static int compare_with_fleet(struct publishing *publishing, fa_bundle_change *ret_change,
                              fa_diag *diag)
{
    fa_store *store = fa_fleet_of(publishing->tuner)->store;
    fa_winner_record there = {0};
    bool served = false;
    const char *why;
    *ret_change = FA_BUNDLE_ADDED;
    int rc = fa_store_winner_get(store, publishing->scope, &there, NULL, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND || rc == FA_ECORRUPT ? 0 : rc;
    rc = fa_store_cubin_exists(store, there.cubin_key, &served, diag);
    if (served)
        *ret_change = fa_bundle_weigh(&there, publishing->winner, &why);
    fa_winner_record_free(&there);
    return rc;
}

/* Nobody else changes the winner between weighing and replacing it. */
static int publish_in_batch(void *context, fa_diag *diag)
{
    struct publishing *publishing = context;
    fa_tuner *tuner = publishing->tuner;
    const fa_source_lease *lease = publishing->lease;
    fa_bundle_change change = FA_BUNDLE_SAME;
    int rc = lease != NULL ? fa_store_lease_renew(fa_fleet_of(tuner)->store, &lease->lease,
                                                  lease->lease_ms, diag)
                           : 0;
    if (rc == 0)
        rc = fa_store_winner_hold(fa_fleet_of(tuner)->store, publishing->scope, diag);
    if (rc == 0)
        rc = compare_with_fleet(publishing, &change, diag);
    if (rc != 0 || change == FA_BUNDLE_SAME) /* published before, by another process of this host */
        return rc;
    if (change != FA_BUNDLE_KEPT)
        rc = fa_store_winner_replace(fa_fleet_of(tuner)->store, publishing->winner,
                                     publishing->cubin, diag);
    return rc != 0 ? rc : share_trials(&(struct sharing){tuner, publishing->scope, 0, diag}, diag);
}

/* 0: the fleet has it, or there is nothing to publish any more. FA_EBUSY: the lease was lost. */
static int publish_winner(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease,
                          fa_diag *diag)
{
    fa_winner_record winner = {0};
    fa_cubin_record cubin = {0};
    struct publishing publishing = {tuner, scope, lease, &winner, &cubin};
    int rc = fa_store_winner_get(tuner->store, scope, &winner, &cubin, diag);
    bool gone = rc == FA_ENOTFOUND || rc == FA_ECORRUPT;
    if (rc == 0)
        rc = fa_fleet_share_cubins(tuner, scope, false, diag);
    if (rc == 0) {
        fa_fleet_void_other_proof(fa_fleet_of(tuner)->store, &winner, &cubin);
        rc = fa_store_batch(fa_fleet_of(tuner)->store, publish_in_batch, &publishing, diag);
    }
    if (gone)
        rc = 0;
    fa_cubin_record_free(&cubin);
    fa_winner_record_free(&winner);
    return rc;
}

/* ---- the outbox -----------------------------------------------------------------------------*/
int fa_fleet_remember(fa_tuner *tuner, const fa_scope *scope, fa_diag *diag)
{
    return fa_fleet_of(tuner) != NULL && !fa_fleet_is_worker(fa_fleet_of(tuner))
               ? fa_store_outbox_add(tuner->store, fa_fleet_of(tuner)->identity, scope, diag)
               : 0;
}

struct outbox {
    struct {
        fa_scope scope;
        int64_t ticket;
    } one[OUTBOX_LOOK];
    int count;
    const fa_scope *only; /* this one; NULL: all */
};

static int add_outbox_entry(void *context, const fa_scope *scope, int64_t ticket)
{
    struct outbox *outbox = context;
    char key[FA_HASH_HEX], only[FA_HASH_HEX];
    if (outbox->only != NULL) {
        fa_scope_key(scope, key);
        fa_scope_key(outbox->only, only);
        if (strcmp(key, only) != 0)
            return 0;
    }
    outbox->one[outbox->count].scope = *scope;
    outbox->one[outbox->count].ticket = ticket;
    return ++outbox->count == (outbox->only != NULL ? 1 : OUTBOX_LOOK);
}

/* What waits, the oldest first; NULL: nothing, or it cannot be told. Caller frees. */
static struct outbox *read_outbox(fa_tuner *tuner, const fa_scope *only)
{
    struct outbox *outbox = calloc(1, sizeof *outbox);
    if (outbox == NULL)
        return NULL;
    outbox->only = only;
    int rc = fa_store_outbox_each(tuner->store, fa_fleet_of(tuner)->identity, add_outbox_entry,
                                  outbox, NULL);
    if (rc < 0 || outbox->count == 0) {
        free(outbox);
        return NULL;
    }
    return outbox;
}

/* A scope is no longer to be published. */
static void remove_from_outbox(fa_tuner *tuner, const fa_scope *scope)
{
    struct outbox *outbox = read_outbox(tuner, scope);
    if (outbox != NULL)
        fa_store_outbox_remove(tuner->store, fa_fleet_of(tuner)->identity, scope,
                               outbox->one[0].ticket, NULL);
    free(outbox);
}

void fa_fleet_publish(fa_tuner *tuner, const fa_scope *scope, const fa_source_lease *lease)
{
    fa_diag why = {{0}};
    if (fa_fleet_is_worker(fa_fleet_of(tuner)) || fa_fleet_store(tuner) == NULL)
        return;
    if (lease != NULL && !lease->held) /* it is there again */
        lease = NULL;
    int rc = publish_winner(tuner, scope, lease, &why);
    if (fa_fleet_is_worth_retry(tuner, rc))
        rc = publish_winner(tuner, scope, lease, &why);
    bool lost = rc == FA_EBUSY && lease != NULL &&
                fa_store_lease_renew(fa_fleet_of(tuner)->store, &lease->lease, lease->lease_ms,
                                     NULL) == FA_EBUSY;
    if (lost)
        fa_note(tuner,
                "another host took this key over while it was tuned here: the result stays in "
                "the local store");
    if (rc == 0 || lost)
        remove_from_outbox(tuner, scope);
    else
        fa_fleet_failed(tuner, rc, &why);
    if (rc != 0 && !lost &&
        fa_fleet_of(tuner)->store != NULL) /* nobody was told that it does not serve */
        fa_note(tuner, "the result is in the local store only: %s", why.text);
}

/* Publishes one scope of the outbox. False: going on has no use. The key's lock on this host is held,
 * because whoever tunes the key publishes it, and one of several processes that catch up is enough. */
static bool publish_outbox_entry(fa_tuner *tuner, const fa_scope *scope)
{
    char key[FA_HASH_HEX];
    fa_lock *lock = NULL;
    fa_diag why = {{0}};
    fa_scope_key(scope, key);
    if (fa_lock_acquire(tuner->store_path, key, (fa_lock_wait){.timeout_ms = 0}, &lock, NULL) != 0)
        return true;
    struct outbox *still = read_outbox(tuner, scope);
    fa_fleet_of(tuner)->asked_ns = fa_clock_ns();
    int rc = still != NULL ? publish_winner(tuner, scope, NULL, &why) : 0;
    if (still != NULL && rc == 0)
        fa_store_outbox_remove(tuner->store, fa_fleet_of(tuner)->identity, scope,
                               still->one[0].ticket, NULL);
    if (rc != 0)
        fa_fleet_failed(tuner, rc, &why);
    free(still);
    fa_lock_release(&lock);
    return fa_fleet_of(tuner)->store != NULL;
}

void fa_fleet_catch_up(fa_tuner *tuner)
{
    fa_fleet *fleet = fa_fleet_of(tuner);
    uint64_t until = fa_clock_ns() + (uint64_t)CATCH_UP_MS * 1000000;
    if (fleet == NULL || fleet->store == NULL || fa_fleet_is_worker(fleet) ||
        fa_store_is_read_only(tuner->store))
        return;
    struct outbox *outbox = read_outbox(tuner, NULL);
    for (int i = 0; outbox != NULL && i < outbox->count && fa_clock_ns() < until; i++)
        if (!publish_outbox_entry(tuner, &outbox->one[i].scope))
            break;
    free(outbox);
}

/* ---- what waits -----------------------------------------------------------------------------*/
struct waiting {
    fa_waiting_visit *visit;
    void *context;
};

static int tell_waiting(void *context, const char *fleet, int64_t count)
{
    const struct waiting *waiting = context;
    return waiting->visit(waiting->context, &(fa_waiting){.fleet = fleet, .results = count});
}

int fa_list_waiting(fa_tuner *tuner, fa_waiting_visit *visit, void *context, fa_diag *diag)
{
    int rc = fa_tuner_check_with(tuner, visit != NULL, "visit", diag);
    if (rc != 0)
        return rc;
    pthread_mutex_lock(&tuner->work);
    rc =
        fa_store_outbox_counts(tuner->store, tell_waiting, &(struct waiting){visit, context}, diag);
    pthread_mutex_unlock(&tuner->work);
    return rc;
}
