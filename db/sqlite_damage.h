/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of a store that is damaged.
 */
#ifndef FA_DB_SQLITE_DAMAGE_H
#define FA_DB_SQLITE_DAMAGE_H

#include "database.h"

/* Sets the file aside when a full check confirms that it is corrupt. Leaves the store
 * disconnected; 0 also when another process has done it already. */
int fa_sqlite_set_aside(fa_store *store, fa_diag *ret_note, fa_diag *diag);

#endif
