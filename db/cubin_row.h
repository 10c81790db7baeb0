/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled kernels, as the rows of winners need them.
 */
#ifndef FA_DB_CUBIN_ROW_H
#define FA_DB_CUBIN_ROW_H

#include "statements.h"

#define FA_CUBIN_COLUMNS \
    "cubin.key, cubin.entry, cubin.sm, cubin.compile_ms, cubin.log, cubin.sha256, cubin.bytes"
/* Behind a cubin `found` by its key: reads all columns from the table. A damaged index may name another
 * cubin's row, and SQLite would take the key from the index and the bytes from that row. */
#define FA_CUBIN_ROW " LEFT JOIN cubin ON cubin.id = found.id "

int fa_db_cubin_check(const fa_cubin_record *record, fa_diag *diag);
/* Inside a write transaction. */
int fa_db_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag);
int fa_db_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag);
/* FA_CUBIN_COLUMNS; the reader has failed when the bytes are not those of that key. */
void fa_db_cubin_read(fa_reader *reader, const char *key, fa_cubin_record *ret_record);
/* Deletes the row if it is still corrupt; best effort. */
void fa_db_cubin_drop(fa_store *store, const char *key);

#endif
