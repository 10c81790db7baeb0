/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a store may live, and the directory beside it.
 */
#ifndef FA_DB_PATHS_H
#define FA_DB_PATHS_H

#include "store.h"

#include <sys/stat.h>

int fa_db_errno(int error); /* errno to FA_E… */
/* Absolute path without symbolic links. create: makes the cache directory where it is missing, mode 0700,
 * and no other. */
int fa_db_resolve(const char *path, bool create, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
/* FA_ESTORE: the store's directory is missing, and not the cache directory. */
int fa_db_need_directory(const char *path, fa_diag *diag);
/* The directory is on a local file system and nobody else can write it. */
int fa_db_check_directory(const char *path, fa_diag *diag);
/* A regular file of ours (or root's, which we can only read), that nobody else can write. */
int fa_db_check_file(const char *path, struct stat *ret_stat, fa_diag *diag);
/* By permission and by file system; the directory too, for the journal. */
int fa_db_check_writable(const char *path, fa_diag *diag);
int fa_db_create_empty(const char *path, fa_diag *diag); /* mode 0600; 0 when it exists already */
const char *fa_db_network_name(unsigned long f_type);    /* NULL: a local file system */

/* STORE.locks, the directory beside a store: its locks (lock.c), and the mark that says which file of
 * that name was a store. The directory itself proves nothing: anybody may have made it. */
#define FA_LOCKS_ENDING ".locks" /* of a store's path */
enum { FA_LOCKS_PATH_MAX = FA_STORE_PATH_MAX + 16 };

/* Makes the directory where it is missing: mode 0700, ours alone, since whoever can write it can hold
 * every lock of it for ever. */
int fa_db_locks_directory(const char *store_path, char ret_directory[FA_LOCKS_PATH_MAX],
                          fa_diag *diag);

/* Marks the file that has the path now. Only for a file that was just read and written as a store; best
 * effort. */
void fa_db_mark_store(const char *store_path);
/* Whether the very file that has the path now was marked: not another that took its name. */
bool fa_db_is_marked(const char *store_path);

#endif
