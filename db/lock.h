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

/* Returns true to give up waiting. Called about every 20 ms. */
typedef bool fa_lock_giveup(void *context);

/* name: letters, digits, '-' and '_' only. timeout_ms 0 tries once; negative waits for ever.
 * FA_ETIMEOUT / FA_ECANCELED / FA_EREADONLY / FA_EIO. *ret_waited (may be NULL): whether somebody
 * else held it first, in which case the caller looks again for the answer before working. */
int fa_lock_acquire(const char *store_path, const char *name, int timeout_ms,
                    fa_lock_giveup *giveup, void *context, fa_lock **ret_lock, bool *ret_waited,
                    fa_diag *diag);
/* The same, beside others who share it: keeps out who acquires it, and the other way round. Its file stays. */
int fa_lock_share(const char *store_path, const char *name, int timeout_ms, fa_lock_giveup *giveup,
                  void *context, fa_lock **ret_lock, fa_diag *diag);
void fa_lock_release(fa_lock **lock); /* NULL is allowed */

#endif
