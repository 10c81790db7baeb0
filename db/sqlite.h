/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in an SQLite file: what opening it, setting it aside and the statements of sql_sqlite.c
 * share.
 */
#ifndef FA_DB_SQLITE_H
#define FA_DB_SQLITE_H

#include "internal.h"
#include "sqlite_header.h"

#include <sqlite3.h>

/* ---- open.c ----------------------------------------------------------------------------------*/
int fa_db_connect(fa_store *store, fa_diag *ret_note, fa_diag *diag);
/* To the empty tables of a store that is not there. */
int fa_db_connect_absent(fa_store *store, fa_diag *diag);
void fa_db_disconnect(fa_store *store);

/* fa_backend's enter and close. */
int fa_sqlite_enter(fa_store *store, fa_diag *diag);
void fa_sqlite_close(fa_store *store);

/* ---- aside.c ---------------------------------------------------------------------------------*/
/* Sets the file aside when a full check confirms that it is corrupt. Leaves the store
 * disconnected; 0 also when another process has done it already. */
int fa_db_set_aside(fa_store *store, fa_diag *ret_note, fa_diag *diag);

/* ---- sql_sqlite.c ----------------------------------------------------------------------------*/
extern const fa_backend fa_sqlite_backend;
/* The sentence of the last SQLite error on this store; notes damage. */
int fa_db_fail(fa_store *store, fa_diag *diag, const char *what);
/* Milliseconds since 1970, as a function of SQL: sqlite3_create_function_v2(). */
void fa_sqlite_unix_ms(sqlite3_context *context, int count, sqlite3_value **values);
int fa_db_pragma_int(fa_store *store, const char *sql, int *ret_sqlite_rc);

#endif
