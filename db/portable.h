/* SPDX-License-Identifier: Apache-2.0
 *
 * A part of a store that travels: scopes, cubins and winners in the tables of a store, in the bytes of one file.
 * It is made in memory and given out as bytes. It is read from bytes, or from a file whose owner is trusted, with
 * the calls of any store, and nothing can write it.
 */
#ifndef FA_DB_PORTABLE_H
#define FA_DB_PORTABLE_H

#include "store.h"

#include "buf.h"

enum { FA_PORTABLE_HEADER = 100 };

/* An empty one to be written to. */
int fa_portable_new(fa_store **ret_store, fa_diag *diag);
/* Appends it as it stands. The same rows put in the same order give the same bytes. */
int fa_portable_print(fa_store *store, fa_buf *out, fa_diag *diag);

/* Whether the header of a file of `size` bytes is one of ours; looks at nothing else. 0; or without a sentence FA_ESTORE, it
 * is a store's, FA_ECORRUPT or FA_EVERSION. *ret_version is the version in all but the third. */
int fa_portable_check(const unsigned char header[FA_PORTABLE_HEADER], size_t size,
                      uint32_t *ret_version);
/* From bytes, which must outlive the store and may be anybody's: all of them are looked through, and the tables must
 * be exactly those that fa_portable_new() makes. bytes NULL: from the file at `path` that begins with them,
 * whose tables alone are looked at, and which must not change. `path` is the name for sentences, too. */
int fa_portable_open(const void *bytes, size_t size, const char *path, fa_store **ret_store,
                     fa_diag *diag);
/* How many there are. FA_ECORRUPT: some belong to no winner. */
int fa_portable_count(fa_store *store, int64_t *ret_winners, int64_t *ret_cubins, fa_diag *diag);

#endif
