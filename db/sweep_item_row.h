/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of a sweep and what they have spent, for the files about sweeps and the queue.
 */
#ifndef FA_DB_SWEEP_ITEM_ROW_H
#define FA_DB_SWEEP_ITEM_ROW_H

#include "statements.h"

/* Of any struct with a member `spent`. */
#define FA_SPENT_FIELDS(X)                 \
    X(REAL, "seconds", spent.seconds)      \
    X(REAL, "cost", spent.cost)            \
    X(COUNT64, "trials", spent.trials)     \
    X(COUNT64, "compiled", spent.compiled) \
    X(COUNT64, "reused", spent.reused)

/* Inside a write transaction. */
int fa_db_sweep_spend(fa_store *store, const fa_store_claim *claim, const fa_sweep_spent *spent,
                      fa_diag *diag);
/* 1: loaded; 0: gone or not valid; FA_EVERSION: only a newer version can read it; or negative. */
int fa_db_item_load(fa_store *store, int64_t id, int32_t *ret_position, fa_sweep_item *ret_item,
                    fa_diag *diag);

#endif
