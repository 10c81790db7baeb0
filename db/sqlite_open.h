/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in an SQLite file.
 */
#ifndef FA_DB_SQLITE_OPEN_H
#define FA_DB_SQLITE_OPEN_H

#include "database.h"

/* path: as the caller gave it. */
int fa_sqlite_open(fa_store *store, const char *path, fa_diag *ret_note, fa_diag *diag);

#endif
