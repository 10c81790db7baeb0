/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in an SQLite file: sqlite.c is the backend, sqlite_open.c opens the file and sets it aside when it
 * is damaged.
 */
#ifndef FA_DB_SQLITE_H
#define FA_DB_SQLITE_H

#include "database.h"

/* Opens the connection, as careful as can be with what is in the file; flags: SQLite's for reading or writing. */
int fa_sqlite_connect(fa_store *store, const char *name, int flags, fa_diag *diag);
/* path: as the caller gave it. */
int fa_sqlite_open(fa_store *store, const char *path, fa_diag *ret_note, fa_diag *diag);
extern const fa_backend fa_sqlite_backend;

/* Whose file it is, by the first hundred bytes of it. */
typedef enum fa_sqlite_header {
    FA_HEADER_EMPTY,
    FA_HEADER_OURS,
    FA_HEADER_OTHER_VERSION, /* ours, but not of FA_STORE_SCHEMA */
    FA_HEADER_BUNDLE,        /* a bundle, of any version */
    FA_HEADER_FOREIGN,       /* SQLite, of another program */
    FA_HEADER_UNKNOWN        /* not SQLite, or damaged */
} fa_sqlite_header;
/* Reads the header through SQLite's own descriptor, without a lock. *ret_version is user_version
 * where the file is ours. */
int fa_sqlite_read_header(fa_store *store, fa_sqlite_header *ret_kind, uint32_t *ret_version,
                          fa_diag *diag);
/* What the file of that name is, in which no part is a symbolic link; FA_EIO. */
int fa_sqlite_kind_of(const char *path, fa_sqlite_header *ret_kind);
/* Whether nothing is in the file any more. */
bool fa_sqlite_is_empty(fa_store *store);

/* The sentence of the last SQLite error on this store; notes damage. */
int fa_sqlite_fail(fa_store *store, fa_diag *diag, const char *what);
/* Whether a result of SQLite means that the file is damaged. It says so of a read that failed, too, where
 * `error`, the errno that the call left (cleared before it), tells. */
bool fa_sqlite_is_damage(int sqlite, int error);
/* Closes the connection and all its statements; the next call opens another. */
void fa_sqlite_disconnect(fa_store *store);
int fa_sqlite_pragma_int(fa_store *store, const char *sql, int *ret_sqlite_rc);
/* fa_store_shrink() of a store that is open. */
int64_t fa_sqlite_shrink(fa_store *store);

#endif
