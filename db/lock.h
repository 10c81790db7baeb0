/* SPDX-License-Identifier: Apache-2.0
 *
 * Named locks between processes, beside the store: one tunes a key while the rest wait, one
 * measures on a GPU at a time. Locks are flock(2) on files of a directory next to the store, so
 * the kernel lets go when the holder dies, however it dies.
 *
 * Thread-safety: a lock belongs to its holder; two threads of one process exclude one another too
 * (each acquire opens its own file description).
 */
#ifndef FA_DB_LOCK_H
#define FA_DB_LOCK_H

#include "fa_types.h"

typedef struct fa_lock fa_lock;

/* How long to wait while another process holds the lock. */
typedef struct fa_lock_wait {
    int timeout_ms;                /* 0: one try; negative: for ever */
    bool (*giveup)(void *context); /* called about every 20 ms; true ends the wait. NULL: never */
    void *context;
} fa_lock_wait;

/* name: letters, digits, '-' and '_' only. FA_ETIMEOUT / FA_ECANCELED / FA_EREADONLY / FA_EIO. */
int fa_lock_acquire(const char *store_path, const char *name, fa_lock_wait wait, fa_lock **ret_lock,
                    fa_diag *diag);
/* The same, beside others who share it: keeps out who acquires it, and the other way round. Its file stays. */
int fa_lock_share(const char *store_path, const char *name, fa_lock_wait wait, fa_lock **ret_lock,
                  fa_diag *diag);
void fa_lock_release(fa_lock **lock); /* NULL is allowed */

#endif
