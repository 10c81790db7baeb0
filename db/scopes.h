/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes: a full winner key, by text and hash.
 */
#ifndef FA_DB_SCOPES_H
#define FA_DB_SCOPES_H

#include "store_types.h"

/* What must agree for a winner to be served. Stored and compared in full, not by hash only. */
typedef struct fa_scope {
    fa_problem problem; /* the bucket */
    char silicon[FA_SILICON_MAX];
    char templates[FA_HASH_HEX]; /* closure of all templates of the operation */
    char policy[64];             /* measuring policy, "measure-1" */
} fa_scope;
void fa_scope_key(const fa_scope *scope, char ret_hex[FA_HASH_HEX]);

/* Calls back with every scope, how many configs were tried in it and when the newest trial was
 * written (0: none); a non-zero return stops and is returned. */
typedef int fa_scope_visit(void *context, const fa_scope *scope, int32_t trials, int64_t unix_time);
int fa_store_scopes_each(fa_store *store, fa_scope_visit *visit, void *context, fa_diag *diag);

/* A scope that fa_store_scopes_each() leaves out: its problem is of an operation that is not known here, or has
 * other fields, or is damaged. Texts are valid while the visit runs. */
typedef struct fa_unread_scope {
    int64_t id;
    const char *problem; /* JSON, as stored */
    const char *silicon;
    const char *gpu; /* the winner's; NULL: there is no winner */
    int32_t trials;
    int64_t unix_time; /* of the newest trial, or of the winner */
} fa_unread_scope;
typedef int fa_unread_scope_visit(void *context, const fa_unread_scope *scope);
int fa_store_unread_scopes_each(fa_store *store, fa_unread_scope_visit *visit, void *context,
                                fa_diag *diag);

#endif
