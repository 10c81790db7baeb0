/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps: a plan, its budget and its items.
 */
#ifndef FA_DB_SWEEPS_H
#define FA_DB_SWEEPS_H

#include "store_types.h"

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

#endif
