/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose file it is, by the first hundred bytes of it.
 */
#ifndef FA_DB_SQLITE_HEADER_H
#define FA_DB_SQLITE_HEADER_H

#include "database.h"

typedef enum fa_sqlite_header {
    FA_HEADER_EMPTY,
    FA_HEADER_OURS,
    FA_HEADER_OTHER_VERSION, /* ours, but not of FA_STORE_SCHEMA */
    FA_HEADER_FOREIGN,       /* SQLite, of another program */
    FA_HEADER_UNKNOWN        /* not SQLite, or damaged */
} fa_sqlite_header;

/* Reads the header through SQLite's own descriptor, without a lock. *ret_version is user_version
 * where the file is ours. */
int fa_db_read_header(fa_store *store, fa_sqlite_header *ret_kind, uint32_t *ret_version,
                      fa_diag *diag);
/* Whether nothing is in the file any more. */
bool fa_sqlite_is_empty(fa_store *store);
/* The same of the file of that name, in which no part is a symbolic link; FA_EIO. */
int fa_sqlite_kind_of(const char *path, fa_sqlite_header *ret_kind);

#endif
