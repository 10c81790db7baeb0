/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in an SQLite file: sqlite.c is the backend, opens the file and sets it aside when it is damaged.
 */
#ifndef FA_DB_SQLITE_H
#define FA_DB_SQLITE_H

#include "database.h"

#include <sys/stat.h>

/* path: as the caller gave it. */
int fa_sqlite_open(fa_store *store, const char *path, fa_diag *ret_note, fa_diag *diag);

/* ---- where a store may live, and the directory beside it -------------------------------------*/
/* Absolute path without symbolic links. create: makes the cache directory where it is missing, mode 0700,
 * and no other. */
int fa_db_resolve(const char *path, bool create, char ret_path[FA_STORE_PATH_MAX], fa_diag *diag);
/* The directory is on a local file system and nobody else can write it. */
int fa_db_check_directory(const char *path, fa_diag *diag);
/* A regular file of ours (or root's, which we can only read), that nobody else can write. */
int fa_db_check_file(const char *path, struct stat *ret_stat, fa_diag *diag);
/* By permission and by file system; the directory too, for the journal. */
int fa_db_check_writable(const char *path, fa_diag *diag);
int fa_db_create_empty(const char *path, fa_diag *diag); /* mode 0600; 0 when it exists already */

/* fa_store_lock() of a store at this path, in which no part is a symbolic link. */
int fa_lock_of_file(const char *store_path, const char *name, bool shared, fa_lock **ret_lock,
                    fa_diag *diag);

#endif
