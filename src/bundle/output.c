/* SPDX-License-Identifier: Apache-2.0
 *
 * Output files that a person names: reports, bundles, records, keys, recordings.
 *
 * Invariants: an output never replaces a database (every store is one) but a bundle, a file that belongs to one, a key, and is never
 * put among the trusted keys, by whatever name. No folder is made. A file appears whole, or the old one stays.
 *
 * A database is known by its content, which SQLite reads: closing a descriptor of our own would drop every lock that
 * this process holds on the file.
 */
#include "fa_bundle.h"

#include "buf.h"
#include "error.h"
#include "bundle.h"
#include "own_place.h"
#include "sqlite.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* Where the file is, or is to be: the folder without links, and the path. */
typedef struct target {
    char folder[PATH_MAX], path[2 * PATH_MAX];
} target;

/* ---- where ----------------------------------------------------------------------------------*/
static int find_target(const char *path, target *ret_target, fa_diag *diag)
{
    struct stat st;
    char folder[PATH_MAX];
    if (path == NULL || path[0] == 0)
        return fa_fail(diag, FA_EINVAL, "no file to write to is named");
    const char *slash = strrchr(path, '/'), *name = slash != NULL ? slash + 1 : path;
    if (strlen(path) >= sizeof folder)
        return fa_fail(diag, FA_EINVAL, "the path of a file to write is longer than %zu bytes",
                       sizeof folder - 1);
    fa_directory_of(path, folder);
    if (realpath(folder, ret_target->folder) == NULL)
        return errno == ENOENT ? fa_fail(diag, FA_EINVAL,
                                         "cannot write %s: the folder %s does not exist: make it, "
                                         "or name another",
                                         path, folder)
                               : fa_fail(diag, fa_db_errno(errno), "cannot write %s: %s: %s", path,
                                         folder, strerror(errno));
    /* A rename would take a device's place, /dev/null's for one. */
    if (name[0] == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode)))
        return fa_fail(diag, FA_EINVAL, "cannot write %s: it is there and not a regular file",
                       path);
    if (realpath(path, ret_target->path) == NULL) /* it is not there */
        snprintf(ret_target->path, sizeof ret_target->path, "%s/%s", ret_target->folder, name);
    return 0;
}

/* ---- what must stay -------------------------------------------------------------------------*/
/* 1: a database; 0: not one, or nothing. */
static int is_database(const char *path, fa_diag *diag)
{
    struct stat st;
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return 0;
    int rc = fa_sqlite_kind_of(path, &kind);
    if (rc != 0)
        return fa_fail(diag, rc, "cannot tell whether %s is a store", path);
    return kind != FA_HEADER_UNKNOWN && kind != FA_HEADER_EMPTY && kind != FA_HEADER_BUNDLE;
}

static int check_database(const target *target, const char *path, fa_diag *diag)
{
    static const char *const endings[] = {"-journal", "-wal", "-shm", FA_LOCK_ENDING};
    char database[2 * PATH_MAX];
    const size_t size = strlen(target->path);
    int rc = is_database(target->path, diag);
    if (rc > 0)
        return fa_fail(diag, FA_EINVAL,
                       "cannot write %s: it is a store, or another database, and stays: name "
                       "another file",
                       path);
    for (size_t i = 0; rc == 0 && i < sizeof endings / sizeof *endings; i++) {
        const size_t tail = strlen(endings[i]); /* whose case some file systems ignore */
        if (size <= tail || strcasecmp(target->path + size - tail, endings[i]) != 0)
            continue;
        snprintf(database, sizeof database, "%.*s", (int)(size - tail), target->path);
        rc = is_database(database, diag);
    }
    return rc > 0 ? fa_fail(diag, FA_EINVAL,
                            "cannot write %s: the name belongs to a store: name another file", path)
                  : rc;
}

int fa_output_check(const char *path, fa_diag *diag)
{
    target target;
    char folder[PATH_MAX];
    struct stat st, other;
    fa_buf text = {0};
    bool key = false;
    int rc = find_target(path, &target, diag);
    if (rc == 0)
        rc = check_database(&target, path, diag);
    if (rc != 0)
        return rc;
    if (stat(target.path, &st) == 0 && st.st_size <= FA_MINISIGN_MAX) {
        if ((rc = fa_buf_read_file(&text, target.path, FA_MINISIGN_MAX)) != 0)
            return fa_fail(diag, rc, "cannot tell whether %s is a key", path);
        const size_t size = text.size;
        key = fa_is_key(text.data);
        explicit_bzero(text.data, size);
        fa_buf_free(&text);
    }
    if (key)
        return fa_fail(
            diag, FA_EINVAL,
            "cannot write %s: it is a key, which is never written over: name another file", path);
    if (fa_own_config(FA_TRUSTED_FOLDER, folder, sizeof folder) == 0 &&
        stat(target.folder, &st) == 0 && stat(folder, &other) == 0 && st.st_dev == other.st_dev &&
        st.st_ino == other.st_ino)
        return fa_fail(diag, FA_EINVAL,
                       "cannot write %s: its folder is that of the trusted keys: name another file",
                       path);
    return 0;
}

int fa_output_write(const char *path, const void *bytes, size_t size, fa_diag *diag)
{
    int rc = fa_output_check(path, diag);
    if (rc != 0)
        return rc;
    int failed = fa_replace_file(path, bytes, size, 0644);
    if (failed == 0)
        return 0;
    return fa_fail(diag, fa_db_errno(failed) == FA_ENOTFOUND ? FA_EIO : fa_db_errno(failed),
                   "cannot write %s: %s", path, strerror(failed));
}
