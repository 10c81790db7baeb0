/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: a plan, its budget, and its items, listed, taken in turn and ended.
 */
#ifndef FA_DB_SWEEPS_H
#define FA_DB_SWEEPS_H

#include "scopes.h"

/* Enters the sweep `sweep->key` with its items, or comes back to it: its plan and budget become
 * these, what failed or was left running is pending again, what is done and spent stays. With
 * `restart` an earlier one is forgotten first. The state is then FA_SWEEP_RUNNING. */
int fa_store_sweep_enter(fa_store *store, const fa_sweep *sweep, const fa_sweep_item *items,
                         int32_t count, bool restart, int64_t *ret_id, fa_diag *diag);
int fa_store_sweep_read(fa_store *store, int64_t id, fa_sweep *ret_sweep, fa_diag *diag);
int fa_store_sweep_set_state(fa_store *store, int64_t id, fa_sweep_state state, fa_diag *diag);
/* FA_ENOTFOUND, without a sentence. */
int fa_store_sweep_find(fa_store *store, const char *key, int64_t *ret_id, fa_diag *diag);
/* All sweeps, the one last worked on first. */
typedef int fa_store_sweep_visit(void *context, const fa_sweep *sweep);
int fa_store_sweeps_each(fa_store *store, fa_store_sweep_visit *visit, void *context,
                         fa_diag *diag);

/* A sweep's items in their order, positions from 0. */
typedef int fa_store_item_visit(void *context, int32_t position, const fa_sweep_item *item);
int fa_store_sweep_items_each(fa_store *store, int64_t id, fa_store_item_visit *visit,
                              void *context, fa_diag *diag);

/* An item taken from the queue. Whoever claims it later gets a higher fence, and what is said under
 * a lower one is refused. */
typedef struct fa_store_claim {
    int64_t sweep_id, item_id;
    int32_t position, fence;
} fa_store_claim;
/* The first pending item becomes running; FA_ENOTFOUND, without a sentence, when none is pending. */
int fa_store_sweep_claim(fa_store *store, int64_t id, fa_store_claim *ret_claim, fa_diag *diag);
/* Adds to what the claimed item and its sweep have spent. */
int fa_store_sweep_spend(fa_store *store, const fa_store_claim *claim, const fa_sweep_spent *spent,
                         fa_diag *diag);
/* The claimed item is done, failed (with its reason) or pending again. FA_EBUSY: the claim was lost. */
int fa_store_sweep_end(fa_store *store, const fa_store_claim *claim, fa_item_state state,
                       const char *reason, const fa_sweep_spent *spent, fa_diag *diag);
/* An item that was done is pending again. */
int fa_store_sweep_reopen(fa_store *store, int64_t id, int32_t position, fa_diag *diag);

#endif
