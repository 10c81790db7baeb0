/* SPDX-License-Identifier: Apache-2.0
 *
 * Winners, as the queue puts them.
 */
#ifndef FA_DB_WINNER_ROW_H
#define FA_DB_WINNER_ROW_H

#include "statements.h"

int fa_db_winner_check(const fa_winner_record *winner, const fa_cubin_record *cubin, fa_diag *diag);
/* Inside a write transaction: what fa_store_winner_put does. */
int fa_db_winner_put(fa_store *store, const fa_winner_record *winner, const fa_cubin_record *cubin,
                     bool *ret_kept, fa_diag *diag);

#endif
