/* SPDX-License-Identifier: Apache-2.0
 *
 * STORE.locks, the directory beside a store: its locks (lock.c), and the mark that says which file of
 * that name was a store. The directory itself proves nothing: anybody may have made it.
 */
#ifndef FA_DB_STORE_MARK_H
#define FA_DB_STORE_MARK_H

#include "fa_types.h"

#define FA_LOCKS_ENDING ".locks" /* of a store's path */

/* Makes the directory where it is missing: mode 0700, ours alone, since whoever can write it can hold
 * every lock of it for ever. */
int fa_db_locks_directory(const char *store_path, char *ret_directory, size_t size, fa_diag *diag);

/* Marks the file that has the path now. Only for a file that was just read and written as a store; best
 * effort. */
void fa_db_mark_store(const char *store_path);
/* Whether the very file that has the path now was marked: not another that took its name. */
bool fa_db_is_marked(const char *store_path);

#endif
