/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled kernels by cubin key: SHA-256 hex of everything that went into them.
 */
#ifndef FA_DB_CUBINS_H
#define FA_DB_CUBINS_H

#include "store_types.h"

typedef struct fa_cubin_record {
    char key[FA_HASH_HEX];
    char entry[FA_NAME_MAX];
    int32_t sm;
    void *bytes; /* on get: malloced, owned by the record */
    size_t size;
    char *log; /* compiler's log, escaped by who prints it; may be NULL; owned on get */
    double compile_ms;
} fa_cubin_record;
int fa_store_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag);
/* FA_ENOTFOUND; FA_ECORRUPT when the bytes do not match their SHA-256 (the row is deleted). */
int fa_store_cubin_get(fa_store *store, const char *key, fa_cubin_record *ret_record,
                       fa_diag *diag);
/* Without its bytes: what a host asks before it sends them. */
int fa_store_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag);
/* Its SHA-256 and size as they are stored; the bytes are neither read nor compared. */
int fa_store_cubin_hash(fa_store *store, const char *key, char ret_sha256[FA_HASH_HEX],
                        size_t *ret_size, fa_diag *diag);
void fa_cubin_record_free(fa_cubin_record *record);

#endif
