/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes whose winner a fleet's store is to get. `fleet` is the identity of an fa_fleet.
 */
#ifndef FA_DB_OUTBOX_H
#define FA_DB_OUTBOX_H

#include "scopes.h"

/* Adding a scope that waits for the fleet already makes it new. */
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

#endif
