/* SPDX-License-Identifier: Apache-2.0
 *
 * SQLite's part of a backend: sentences for its errors, statements and transactions.
 */
#ifndef FA_DB_SQLITE_STATEMENTS_H
#define FA_DB_SQLITE_STATEMENTS_H

#include "database.h"

#include <sqlite3.h>

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
/* Milliseconds since 1970, as a function of SQL: sqlite3_create_function_v2(). */
void fa_sqlite_unix_ms(sqlite3_context *context, int count, sqlite3_value **values);
extern const fa_backend fa_sqlite_backend;

#endif
