/* SPDX-License-Identifier: Apache-2.0
 *
 * Sweeps as the queue of a fleet enters them.
 */
#ifndef FA_DB_SWEEP_ROW_H
#define FA_DB_SWEEP_ROW_H

#include "sweep_item_row.h"

typedef struct fa_entering {
    const fa_sweep *sweep;
    const fa_sweep_item *items;
    int32_t count;
    bool restart;
    int64_t id; /* of the sweep entered */
} fa_entering;
int fa_db_sweep_check(const fa_entering *entering, fa_diag *diag);
/* Inside a write transaction. */
int fa_db_sweep_enter(fa_store *store, fa_entering *entering, fa_diag *diag);

#endif
