/* SPDX-License-Identifier: Apache-2.0
 *
 * SQL made safe to use, whatever database runs it: statements prepared once, rows, and one kind of write
 * transaction.
 */
#ifndef FA_DB_STATEMENTS_H
#define FA_DB_STATEMENTS_H

#include "values.h"

/* The connection is there, and this process may use it. */
int fa_db_enter(fa_store *store, fa_diag *diag);
int fa_db_exec(fa_store *store, const char *sql, fa_diag *diag);
/* FA_EVERSION, with its sentence: the store is of another version than this library's. `instead`: what
 * else the user may do. */
int fa_db_refuse_version(const fa_store *store, int64_t version, const char *instead,
                         fa_diag *diag);
/* Where the statement's values are bound, prepared at its first use. `sql` must be a literal. A failure is
 * in the binder's rc: it binds nothing, and running it fails with that. */
fa_binder fa_db_prepare(fa_store *store, const char *sql, fa_diag *diag);
/* fa_db_enter() and then that. */
fa_binder fa_db_query(fa_store *store, const char *sql, fa_diag *diag);

/* Steps a statement when all of its values were bound. 1: a row; 0: none, and the statement is reset;
 * negative: failed, and reset. */
int fa_db_run(fa_store *store, const fa_binder *binder, fa_diag *diag);
/* As fa_db_run(): 1: *ret_reader stands before the row's columns; end with fa_read_end(). */
int fa_db_run_row(fa_store *store, const fa_binder *binder, fa_reader *ret_reader, fa_diag *diag);
/* As fa_db_run, for a statement that gives at most a row's number: *ret_id is 0 when it gives none. */
int fa_db_run_id(fa_store *store, const fa_binder *binder, int64_t *ret_id, fa_diag *diag);
/* Whether it gives a row. */
int fa_db_run_exists(fa_store *store, const fa_binder *binder, bool *ret_exists, fa_diag *diag);
/* Prepares a statement, binds these values and runs it, as fa_db_run(). */
int fa_db_run_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                     size_t count);
#define fa_db_do(store, diag, sql, ...) fa_db_run_values(store, diag, sql, FA_VALUES(__VA_ARGS__))
/* Of a statement with one parameter, a row's number. */
int fa_db_row(fa_store *store, const char *sql, int64_t id, fa_reader *ret_reader, fa_diag *diag);
int64_t fa_db_changes(fa_store *store); /* rows that the last change changed */

/* Calls back with every number that the statement gives. All are read first and the store is entered
 * anew for each, so the callback may take its time and may use the store. Non-zero stops. */
typedef int fa_db_each_row(fa_store *store, int64_t id, void *context, fa_diag *diag);
int fa_db_each(fa_store *store, const fa_binder *ids, fa_db_each_row *row, void *context,
               fa_diag *diag);

/* Runs body inside BEGIN IMMEDIATE … COMMIT; anything but 0 from it rolls back. */
typedef int fa_db_body(fa_store *store, void *context, fa_diag *diag);
int fa_db_write(fa_store *store, fa_db_body *body, void *context, fa_diag *diag);
/* fa_db_enter() and then that. */
int fa_db_change(fa_store *store, fa_db_body *body, void *context, fa_diag *diag);
/* In a transaction: whoever waits in fa_store_wait() wakes when it is committed. */
int fa_db_notify(fa_store *store, fa_diag *diag);

#endif
