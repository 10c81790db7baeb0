/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes as rows, for the topics that hang on them.
 */
#ifndef FA_DB_SCOPE_ROW_H
#define FA_DB_SCOPE_ROW_H

#include "statements.h"

#define FA_SCOPE_COLUMNS \
    "scope.key, scope.problem_key, scope.problem, scope.silicon, scope.templates, scope.policy"
int fa_db_scope_check(const fa_scope *scope, fa_diag *diag);
void fa_db_scope_bind(fa_binder *binder, const fa_scope *scope); /* 5: the full key */
void fa_db_scope_read(fa_reader *reader, fa_scope *ret_scope);   /* FA_SCOPE_COLUMNS */
/* *ret_id is 0 when there is none and create is false. create: inside a write transaction. */
int fa_db_scope_id(fa_store *store, const fa_scope *scope, bool create, int64_t *ret_id,
                   fa_diag *diag);
/* Inside a write transaction: others who change the scope's winner wait for its end. */
int fa_db_scope_lock(fa_store *store, int64_t id, fa_diag *diag);

#endif
