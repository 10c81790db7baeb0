/* SPDX-License-Identifier: Apache-2.0
 *
 * Scopes whose winner another store is to get.
 */
#ifndef FA_DB_OUTBOX_H
#define FA_DB_OUTBOX_H

#include "scopes.h"

/* Adding a scope that is in it already makes it new. */
int fa_store_outbox_add(fa_store *store, const fa_scope *scope, fa_diag *diag);
/* The one added first comes first; a non-zero return stops and is returned. */
typedef int fa_outbox_visit(void *context, const fa_scope *scope, int64_t ticket);
int fa_store_outbox_each(fa_store *store, fa_outbox_visit *visit, void *context, fa_diag *diag);
/* Stays when it was added again since it was told with this ticket. */
int fa_store_outbox_remove(fa_store *store, const fa_scope *scope, int64_t ticket, fa_diag *diag);

#endif
