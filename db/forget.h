/* SPDX-License-Identifier: Apache-2.0
 *
 * Forgetting: what tuning has stored about some scopes goes, and the file gets smaller.
 */
#ifndef FA_DB_FORGET_H
#define FA_DB_FORGET_H

#include "scopes.h"

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
