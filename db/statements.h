/* SPDX-License-Identifier: Apache-2.0
 *
 * SQL made safe to use, whatever database runs it: statements prepared once, one kind of write transaction, values into
 * the places of a statement and out of the columns of a row, one at a time or by a table of columns; and what one topic of
 * the store needs of another's rows (scopes.c). What is read is never trusted: types, ranges and lengths are checked.
 */
#ifndef FA_DB_STATEMENTS_H
#define FA_DB_STATEMENTS_H

#include "database.h"
#include "json_struct.h"
#include "trial.h"

#include <cJSON.h>

/* ---- binding --------------------------------------------------------------------------------*/
/* Values for the places of a statement. Bytes must outlive the step, but for fa_copy()'s. */
fa_value fa_int(int64_t value);
fa_value fa_real(double value);                        /* NaN becomes NULL */
fa_value fa_text(const char *text);                    /* NULL stays NULL */
fa_value fa_text_start(const char *text, size_t size); /* the same, cut there */
fa_value fa_copy(const char *text);
fa_value fa_blob(const void *bytes, size_t size); /* NULL stays NULL */
fa_value fa_now(void);                            /* seconds since 1970 */

/* Binds from left to right; rc keeps the first failure. */
typedef struct fa_binder {
    fa_statement *statement; /* NULL: it could not be prepared, and rc and its sentence say why */
    int index, rc;
} fa_binder;
void fa_bind_values(fa_binder *binder, const fa_value *values, size_t count);
#define FA_VALUES(...) \
    (const fa_value[]){__VA_ARGS__}, sizeof((const fa_value[]){__VA_ARGS__}) / sizeof(fa_value)
#define fa_bind(binder, ...) fa_bind_values(binder, FA_VALUES(__VA_ARGS__))
/* The document as text, and frees it; NULL is out of memory. */
void fa_bind_json(fa_binder *binder, cJSON *json);

/* ---- reading --------------------------------------------------------------------------------*/
/* Reads from left to right. rc becomes FA_ECORRUPT at the first value of a wrong type, range or length,
 * FA_EVERSION at a problem of an operation that is not known here or has other fields, and FA_ENOMEM, whatever it was before, when
 * memory is lacking: then nothing is known of the row. */
typedef struct fa_reader {
    fa_statement *statement;
    int column;
    int rc;
} fa_reader;
void fa_read_fail(fa_reader *reader, int code);
int64_t fa_read_int(fa_reader *reader, int64_t low, int64_t high);
double fa_read_real(fa_reader *reader, double when_null); /* infinities are passed on */
void fa_read_copy(fa_reader *reader, char *ret_text, size_t size);
const char *fa_read_text(fa_reader *reader, bool may_be_null); /* until the next step or reset */
/* The same in memory of the caller's; NULL: it is NULL, or the reader has failed. */
char *fa_read_owned(fa_reader *reader);
const void *fa_read_blob(fa_reader *reader, size_t limit, size_t *ret_size);
/* A document that is printed in up to `limit` bytes, the caller's to delete; NULL: the reader has failed. */
cJSON *fa_read_json(fa_reader *reader, size_t limit);
/* Lets go of the row. 1: it was read; 0: it is not valid, or not for this version; or FA_ENOMEM. */
int fa_read_end(fa_reader *reader, fa_diag *diag);

/* ---- tables of columns ----------------------------------------------------------------------*/
/* A list of columns is a macro LIST(X) of X(KIND, "name", member, rules), rules as json_struct.h has them; these
 * make its table (with FA_COLUMN_RECORD as the struct's name), its names in SQL and its places, each with a comma
 * before. In a column a NUMBER's NaN is NULL, a REAL is finite and not negative, NULL reads as 0 where the rules
 * let it, and there a count may be negative. Members by functions have columns that others read and bind. */
#define FA_COLUMN_ENTRY(kind, name, member, ...) \
    FA_MEMBER(name, kind, FA_COLUMN_RECORD, member, __VA_ARGS__),
#define FA_COLUMN_NAME(kind, name, ...) ", " name
#define FA_COLUMN_MEMBER(kind, name, member, ...) ", " #member /* name is JSON's alone */
#define FA_COLUMN_PLACE(kind, name, ...) ",?"
#define FA_COLUMN_NAME3(name, member) ", " name "_x, " name "_y, " name "_z"
#define FA_COLUMN_PLACE3(name, member) ",?,?,?"

void fa_bind_columns(fa_binder *binder, const fa_member *members, const void *record);
void fa_read_columns(fa_reader *reader, const fa_member *members, void *ret_record);

/* ---- statements -----------------------------------------------------------------------------*/
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
/* Prepares a statement, binds these values and runs it, as fa_db_run(). */
int fa_db_run_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                     size_t count);
#define fa_db_do(store, diag, sql, ...) fa_db_run_values(store, diag, sql, FA_VALUES(__VA_ARGS__))
/* Of a statement with one parameter, a row's number. */
int fa_db_row(fa_store *store, const char *sql, int64_t id, fa_reader *ret_reader, fa_diag *diag);

/* Steps through the rows of a statement: 1: *ret_reader stands before the columns of the next one; 0: there is no other;
 * or negative, also where memory was lacking for the row before. A row after which the reader's rc is not 0 is passed over. */
int fa_db_next(fa_store *store, const fa_binder *binder, fa_reader *reader, fa_diag *diag);

/* ---- scopes ---------------------------------------------------------------------------------*/
#define FA_SCOPE_COLUMNS \
    "scope.key, scope.problem_key, scope.problem, scope.silicon, scope.templates, scope.policy"
int fa_db_scope_check(const fa_scope *scope, fa_diag *diag);
void fa_db_scope_bind(fa_binder *binder, const fa_scope *scope); /* 5: the full key */
void fa_db_scope_read(fa_reader *reader, fa_scope *ret_scope);   /* FA_SCOPE_COLUMNS */
/* *ret_id is 0 when there is none and create is false. create: inside a write transaction. */
int fa_db_scope_id(fa_store *store, const fa_scope *scope, bool create, int64_t *ret_id,
                   fa_diag *diag);
/* fa_db_enter(), and a statement whose first place has the scope's number; 0, which no row has, where the store does not
 * know the scope. A failure is the binder's. */
fa_binder fa_db_prepare_scope(fa_store *store, const fa_scope *scope, const char *sql,
                              fa_diag *diag);
/* Inside a write transaction: others who change the scope's winner wait for its end. */
int fa_db_scope_lock(fa_store *store, int64_t id, fa_diag *diag);

/* ---- a problem as two columns, its key and its JSON, which must agree when they are read -----*/
void fa_db_problem_bind(fa_binder *binder, const fa_problem *problem);
void fa_db_problem_read(fa_reader *reader, fa_problem *ret_problem);

/* ---- a trial as columns of a row, the same in tables trial and winner ------------------------*/
#define FA_TRIAL_COLUMNS "config_key, config" FA_TRIAL_FIELDS(FA_COLUMN_NAME, FA_COLUMN_NAME3)
#define FA_TRIAL_PLACES "?,?" FA_TRIAL_FIELDS(FA_COLUMN_PLACE, FA_COLUMN_PLACE3)

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag);
void fa_db_trial_bind(fa_binder *binder, const fa_trial *trial);
void fa_db_trial_read(fa_reader *reader, fa_trial *ret_trial);

#endif
