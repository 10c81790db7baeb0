/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cubins were proved again, on which silicon, under which driver.
 */
#ifndef FA_DB_VERIFICATIONS_H
#define FA_DB_VERIFICATIONS_H

#include "scopes.h"

/* That a cubin was proved again, or failed to be, on a silicon under a driver; or that it came to no
 * verdict in its time. */
typedef struct fa_verification {
    char cubin_key[FA_HASH_HEX];
    char silicon[FA_SILICON_MAX];
    int32_t driver_version;
    bool passed;
    int32_t late;      /* how often in a row its time ran out; 0: it passed or it failed */
    int64_t unix_time; /* when the mark was kept */
    char reason[512];  /* when it did not pass */
} fa_verification;
enum { FA_VERIFICATION_LATE_MAX = 30 };
/* Keeps the mark as of now and, in the same transaction, tells the scope's winner when it still is
 * this cubin: passed, its driver_version becomes this one; failed, it is deleted; late, it stays. */
int fa_store_verification_put(fa_store *store, const fa_verification *mark, const fa_scope *scope,
                              fa_diag *diag);
/* FA_ENOTFOUND: this cubin was never proved again there. */
int fa_store_verification_get(fa_store *store, const char *cubin_key, const char *silicon,
                              int32_t driver_version, fa_verification *ret_mark, fa_diag *diag);

#endif
