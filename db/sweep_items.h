/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of a sweep: listed, taken in turn and ended.
 */
#ifndef FA_DB_SWEEP_ITEMS_H
#define FA_DB_SWEEP_ITEMS_H

#include "store_types.h"

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
