/* SPDX-License-Identifier: Apache-2.0
 *
 * Leases: one holder at a time, among all who use the store.
 */
#ifndef FA_DB_LEASES_H
#define FA_DB_LEASES_H

#include "scopes.h"

enum {
    FA_LEASE_NAME_MAX = 160,
    FA_HOLDER_MAX = 96,            /* who it is: "host-pid-random", unlike anybody else's */
    FA_LEASE_MAX_MS = 24 * 3600000 /* longer ones are refused */
};
/* The database's clock decides when it ends. Each taking gets a higher fence. */
typedef struct fa_store_lease {
    char name[FA_LEASE_NAME_MAX], holder[FA_HOLDER_MAX];
    int64_t fence;
} fa_store_lease;
/* FA_EBUSY while another holder's lease is alive. A holder may take its own lease again, which makes the
 * earlier taking stale. */
int fa_store_lease_take(fa_store *store, const char *name, const char *holder, int64_t lease_ms,
                        fa_store_lease *ret_lease, fa_diag *diag);
/* For lease_ms from now on, also after its end if nobody took it meanwhile; else FA_EBUSY. Inside a
 * batch it cannot be lost until the end of that. */
int fa_store_lease_renew(fa_store *store, const fa_store_lease *lease, int64_t lease_ms,
                         fa_diag *diag);
/* Wakes whoever waits. Releasing a lease that was lost is no error. */
int fa_store_lease_release(fa_store *store, const fa_store_lease *lease, fa_diag *diag);

/* Of a lease or of a claim on an item. */
bool fa_db_holder_ok(const char *holder);

#endif
