/* SPDX-License-Identifier: Apache-2.0
 *
 * A store in an SQLite file: sqlite.c is the backend, opens the file and sets it aside when it is damaged.
 */
#ifndef FA_DB_SQLITE_H
#define FA_DB_SQLITE_H

#include "database.h"
#include "store.h"

#include <sys/stat.h>

/* path: as the caller gave it. */
int fa_sqlite_open(fa_store *store, const char *path, fa_diag *ret_note, fa_diag *diag);

/* Whose file it is, by the first hundred bytes of it. */
typedef enum fa_sqlite_header {
    FA_HEADER_EMPTY,
    FA_HEADER_OURS,
    FA_HEADER_OTHER_VERSION, /* ours, but not of FA_STORE_SCHEMA */
    FA_HEADER_BUNDLE,        /* a bundle, of any version */
    FA_HEADER_FOREIGN,       /* SQLite, of another program */
    FA_HEADER_UNKNOWN        /* not SQLite, or damaged */
} fa_sqlite_header;
/* What the file of that name is, in which no part is a symbolic link; FA_EIO. */
int fa_sqlite_kind_of(const char *path, fa_sqlite_header *ret_kind);

/* ---- where a store may live, and the directory beside it -------------------------------------*/
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

#define FA_LOCK_ENDING ".lock" /* behind a store's path: the file with its locks */
/* fa_store_lock() of a store at this path, in which no part is a symbolic link. */
int fa_lock_of_file(const char *store_path, const char *name, bool shared, fa_lock **ret_lock,
                    fa_diag *diag);

#endif
