/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes: a full winner key, by text and hash; those whose winner a fleet's store is to get (scopes.c); and how what
 * is stored about some of them is forgotten (forget.c).
 */
#ifndef FA_DB_SCOPES_H
#define FA_DB_SCOPES_H

#include "fa_types.h"
#include "hash.h"
#include "problem.h"

typedef struct fa_store fa_store;

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

/* ---- the outbox: scopes whose winner a fleet's store is to get ------------------------------ */
/* `fleet` is the identity of an fa_fleet. Adding a scope that waits for the fleet already makes it new. */
int fa_store_outbox_add(fa_store *store, const char *fleet, const fa_scope *scope, fa_diag *diag);
/* The one added first comes first; a non-zero return stops and is returned. */
typedef int fa_outbox_visit(void *context, const fa_scope *scope, int64_t ticket);
int fa_store_outbox_each(fa_store *store, const char *fleet, fa_outbox_visit *visit, void *context,
                         fa_diag *diag);
/* Removes the entry only if its ticket still matches. */
int fa_store_outbox_remove(fa_store *store, const char *fleet, const fa_scope *scope,
                           int64_t ticket, fa_diag *diag);
/* How many scopes wait for each fleet. */
typedef int fa_outbox_count_visit(void *context, const char *fleet, int64_t count);
int fa_store_outbox_counts(fa_store *store, fa_outbox_count_visit *visit, void *context,
                           fa_diag *diag);

/* ---- forgetting: what tuning has stored about some scopes goes, and the file gets smaller --- */
typedef struct fa_store_forgotten {
    int64_t winners, trials; /* trials: configs that were tried, each once for each scope */
    int64_t cubins;          /* that nothing refers to any more */
    int64_t bytes;           /* of those cubins, samples, logs, reasons and evidence */
} fa_store_forgotten;

/* Deletes these scopes, and those of `unread` (fa_unread_scope.id), with their winners, trials, predictions, outbox
 * entries and rows set aside, and the cubins with their verifications that only those referred to; in one
 * transaction, or the batch's. scopes NULL: everything of that kind, also what only another version could read.
 * Baselines and the plans of sweeps stay. dry_run: only counts, and works on a store that is read-only. Of a file
 * only: FA_ENOTSUP on a server. */
int fa_store_forget(fa_store *store, const fa_scope *scopes, size_t count, const int64_t *unread,
                    size_t unread_count, bool dry_run, fa_store_forgotten *ret_forgotten,
                    fa_diag *diag);

/* Gives the file's free pages back to the file system where they are a quarter of it, and what is left takes no
 * long copy; others wait for the store meanwhile. Best effort: by how many bytes the file got smaller. */
int64_t fa_store_shrink(fa_store *store);

#endif
