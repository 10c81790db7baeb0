/* SPDX-License-Identifier: Apache-2.0
 *
 * SQL made safe to use, whatever database runs it: statements prepared once, one kind of write transaction, values into
 * the places of a statement and out of the columns of a row, one at a time or by a table of columns; and what one topic of
 * the store needs of another's rows. What is read is never trusted: types, ranges and lengths are checked.
 */
#ifndef FA_DB_STATEMENTS_H
#define FA_DB_STATEMENTS_H

#include "database.h"
#include "json.h"
#include "trial.h"

#include <cJSON.h>

/* ---- a statement in use ----------------------------------------------------------------------*/
/* Its places are bound from left to right; then it is stepped, and the columns of each row are read from left to right. */
typedef struct fa_query {
    fa_store *store;
    fa_diag *diag;
    fa_statement *statement; /* NULL: it could not be prepared, and rc and its sentence say why */
    int place, column;
    /* The first failure to bind a value, with which the first step fails; then of the row. FA_ECORRUPT: a value of a wrong
     * type, range or length; FA_EVERSION: a problem of an operation that is not known here or has other fields; FA_ENOMEM,
     * whatever it was before: nothing is known of the row, and the next step fails. */
    int rc;
    bool stepped;
    fa_list list; /* of what its rows say; the caller ends it with fa_list_end() */
} fa_query;

/* Values for its places. Bytes must outlive the step, but for fa_copy()'s. */
fa_value fa_int(int64_t value);
fa_value fa_real(double value);                        /* NaN becomes NULL */
fa_value fa_text(const char *text);                    /* NULL stays NULL */
fa_value fa_text_start(const char *text, size_t size); /* the same, cut there */
fa_value fa_copy(const char *text);
fa_value fa_blob(const void *bytes, size_t size); /* NULL stays NULL */
fa_value fa_now(void);                            /* seconds since 1970 */

#define FA_VALUES(...) \
    (const fa_value[]){__VA_ARGS__}, sizeof((const fa_value[]){__VA_ARGS__}) / sizeof(fa_value)

/* The connection is there, and this process may use it. */
int fa_db_enter(fa_store *store, fa_diag *diag);
/* NULL: no memory. */
fa_lock *fa_db_lock_new(const char *name, bool shared, void (*release)(fa_lock *lock));
/* A statement, prepared at its first use, with values for its first places, if any. `sql` must be a literal. A failure is
 * the query's: it binds nothing, and its first step fails with that. */
fa_query fa_db_prepare_values(fa_store *store, fa_diag *diag, const char *sql,
                              const fa_value *values, size_t count);
#define fa_db_prepare(store, diag, sql, ...) \
    fa_db_prepare_values(store, diag, sql, FA_VALUES(__VA_ARGS__))
/* fa_db_enter() and then that. */
fa_query fa_db_query_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                            size_t count);
#define fa_db_query(store, diag, sql, ...) \
    fa_db_query_values(store, diag, sql, FA_VALUES(__VA_ARGS__))
/* Values for its next places. */
void fa_bind_values(fa_query *query, const fa_value *values, size_t count);
#define fa_bind(query, ...) fa_bind_values(query, FA_VALUES(__VA_ARGS__))

/* 1: it stands before the columns of its next row; 0: there is none, and the statement is reset; negative: failed, and
 * reset. A row after which rc is not 0 is passed over. */
int fa_db_step(fa_query *query);
/* Of a statement that gives at most a row's number: *ret_id is 0 when it gives none. */
int fa_db_step_id(fa_query *query, int64_t *ret_id);
/* Prepares a statement and steps it, as fa_db_step() or fa_db_step_id(). */
int fa_db_do_values(fa_store *store, fa_diag *diag, const char *sql, const fa_value *values,
                    size_t count);
#define fa_db_do(store, diag, sql, ...) fa_db_do_values(store, diag, sql, FA_VALUES(__VA_ARGS__))
int fa_db_find_values(fa_store *store, fa_diag *diag, int64_t *ret_id, const char *sql,
                      const fa_value *values, size_t count);
#define fa_db_find(store, diag, ret_id, sql, ...) \
    fa_db_find_values(store, diag, ret_id, sql, FA_VALUES(__VA_ARGS__))

void fa_read_fail(fa_query *query, int code);
int64_t fa_read_int(fa_query *query, int64_t low, int64_t high);
double fa_read_real(fa_query *query, double when_null); /* infinities are passed on */
void fa_read_copy(fa_query *query, char *ret_text, size_t size);
const char *fa_read_text(fa_query *query, bool may_be_null); /* until the next step or reset */
const char *fa_read_kept(fa_query *query, bool may_be_null); /* for a record of its list */
/* The same in memory of the caller's; NULL: it is NULL, or the row is not valid. */
char *fa_read_owned(fa_query *query);
const void *fa_read_blob(fa_query *query, size_t limit, size_t *ret_size);
/* A document that is printed in up to `limit` bytes, the caller's to delete; NULL: the row is not valid. */
cJSON *fa_read_json(fa_query *query, size_t limit);
/* Lets go of the row. 1: it was read; 0: it is not valid, or not for this version; or FA_ENOMEM. */
int fa_read_end(fa_query *query);

/* ---- tables of columns ----------------------------------------------------------------------*/
/* A list of columns is a macro LIST(X) of X(KIND, "name", member, rules), rules as json.h has them; these
 * make its table (with FA_COLUMN_RECORD as the struct's name), its names in SQL and its places, each with a comma
 * before. In a column a NUMBER's NaN is NULL, a REAL is finite and not negative, NULL reads as 0 where the rules
 * let it, there a count may be negative, and of a STRING a row that is read keeps a copy. Members by
 * functions have columns that others read and bind. */
#define FA_COLUMN_ENTRY(kind, name, member, ...) \
    FA_MEMBER(name, kind, FA_COLUMN_RECORD, member, __VA_ARGS__),
#define FA_COLUMN_NAME(kind, name, ...) ", " name
#define FA_COLUMN_MEMBER(kind, name, member, ...) ", " #member /* name is JSON's alone */
#define FA_COLUMN_PLACE(kind, name, ...) ",?"
#define FA_COLUMN_NAME3(name, member) ", " name "_x, " name "_y, " name "_z"
#define FA_COLUMN_PLACE3(name, member) ",?,?,?"

void fa_bind_columns(fa_query *query, const fa_member *members, const void *record);
void fa_read_columns(fa_query *query, const fa_member *members, void *ret_record);

#define fa_db_exec(store, sql, diag) (store)->backend->exec(store, sql, diag)
/* FA_EVERSION, with its sentence: the store is of another version than this library's. `instead`: what
 * else the user may do. */
int fa_db_refuse_version(const fa_store *store, int64_t version, const char *instead,
                         fa_diag *diag);

/* ---- scopes ---------------------------------------------------------------------------------*/
#define FA_SCOPE_COLUMNS \
    "scope.key, scope.problem_key, scope.problem, scope.silicon, scope.templates, scope.policy"
int fa_db_scope_check(const fa_scope *scope, fa_diag *diag);
void fa_db_scope_bind(fa_query *query, const fa_scope *scope); /* 5: the full key */
void fa_db_scope_read(fa_query *query, fa_scope *ret_scope);   /* FA_SCOPE_COLUMNS */
/* *ret_id is 0 when there is none and create is false. create: inside a write transaction. */
int fa_db_scope_id(fa_store *store, const fa_scope *scope, bool create, int64_t *ret_id,
                   fa_diag *diag);

/* ---- a problem as two columns, its key and its JSON, which must agree when they are read -----*/
void fa_db_problem_bind(fa_query *query, const fa_problem *problem);
void fa_db_problem_read(fa_query *query, fa_problem *ret_problem);

/* ---- a trial as columns of a row, the same in tables trial and winner ------------------------*/
#define FA_TRIAL_COLUMNS "config_key, config" FA_TRIAL_FIELDS(FA_COLUMN_NAME, FA_COLUMN_NAME3)
#define FA_TRIAL_PLACES "?,?" FA_TRIAL_FIELDS(FA_COLUMN_PLACE, FA_COLUMN_PLACE3)

int fa_db_trial_check(const fa_trial *trial, fa_diag *diag);
void fa_db_trial_bind(fa_query *query, const fa_trial *trial);
void fa_db_trial_read(fa_query *query, fa_trial *ret_trial);

#endif
