/* SPDX-License-Identifier: Apache-2.0
 *
 * What one topic of the store needs of another's rows: scopes, problems, trials, winners and sweeps.
 */
#ifndef FA_DB_ROWS_H
#define FA_DB_ROWS_H

#include "statements.h"
#include "trial.h"

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
