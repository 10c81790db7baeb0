/* SPDX-License-Identifier: Apache-2.0
 *
 * Setting a corrupt file aside: it gets the name STORE.corrupt-UNIXTIME[-N], nothing in it is
 * changed, and the next opening makes a new store. Only after a full check has confirmed that it is
 * corrupt, only if it still has the store's name, and under a lock, so that two processes which
 * find the damage together do not set aside each other's new store.
 */
#include "sqlite_damage.h"

#include "lock.h"
#include "sqlite_header.h"
#include "sqlite_statements.h"
#include "store_mark.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* 1: corrupt; 0: sound after all; negative: cannot be told now, or the file never was a store. */
static int confirm(fa_store *store, fa_diag *diag)
{
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    uint32_t version;
    sqlite3_stmt *statement = NULL;
    int rc = fa_db_read_header(store, &kind, &version, diag);
    if (rc != 0)
        return rc;
    if (kind != FA_HEADER_OURS && !fa_db_is_marked(store->path))
        return fa_fail(diag, FA_ESTORE, "%s is not a store", store->path);
    errno = 0; /* what the check could not read it tells as damage, too */
    rc = sqlite3_prepare_v2(store->db, "PRAGMA quick_check(1)", -1, &statement, NULL);
    int corrupt = 0;
    if (rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(statement, 0);
        corrupt = text != NULL && strcmp(text, "ok") != 0;
    }
    int error = errno;
    if (statement != NULL)
        rc = sqlite3_finalize(statement);
    if (fa_sqlite_is_damage(corrupt ? SQLITE_CORRUPT : rc, error))
        return 1;
    if (corrupt)
        return fa_fail(diag, FA_EIO, "store %s: cannot be read: %s", store->path, strerror(error));
    if (rc != SQLITE_OK)
        return fa_sqlite_fail(store, diag, "cannot be checked");
    return kind == FA_HEADER_UNKNOWN; /* SQLite reads what is missing of a short header as zeros */
}

/* The journal goes first and under the corrupt file's name: left behind, it would be played back
 * into the next store. */
static int rename_all(const char *path, char ret_aside[FA_STORE_PATH_MAX + 64], fa_diag *diag)
{
    static const char *const companions[] = {"-journal", "-wal", "-shm"};
    struct stat st;
    long long now = (long long)time(NULL);
    snprintf(ret_aside, FA_STORE_PATH_MAX + 64, "%s.corrupt-%lld", path, now);
    for (int n = 1; lstat(ret_aside, &st) == 0 && n < 1000; n++)
        snprintf(ret_aside, FA_STORE_PATH_MAX + 64, "%s.corrupt-%lld-%d", path, now, n);
    for (size_t i = 0; i < sizeof companions / sizeof *companions; i++) {
        char from[FA_STORE_PATH_MAX + 80], to[FA_STORE_PATH_MAX + 80];
        snprintf(from, sizeof from, "%s%s", path, companions[i]);
        snprintf(to, sizeof to, "%s%s", ret_aside, companions[i]);
        if (lstat(from, &st) == 0 && st.st_size == 0)
            continue; /* nothing in it to play back */
        if (rename(from, to) != 0 && errno != ENOENT)
            return fa_fail(diag, FA_ECORRUPT, "store %s is corrupt and cannot be set aside: %s",
                           path, strerror(errno));
    }
    if (rename(path, ret_aside) != 0)
        return fa_fail(diag, FA_ECORRUPT, "store %s is corrupt and cannot be set aside: %s", path,
                       strerror(errno));
    return 0;
}

static int set_aside_locked(fa_store *store, fa_diag *ret_note, fa_diag *diag)
{
    struct stat st;
    if (lstat(store->path, &st) != 0 || st.st_ino != store->inode || st.st_dev != store->device)
        return 0; /* somebody was quicker */
    int corrupt = confirm(store, diag);
    if (corrupt <= 0)
        return corrupt;
    fa_sqlite_disconnect(store);
    char aside[FA_STORE_PATH_MAX + 64];
    int rc = rename_all(store->path, aside, diag);
    if (rc == 0)
        fa_fail(ret_note, 0, "store %s was corrupt; it was kept as %s and a new store begins empty",
                store->path, aside);
    return rc;
}

int fa_sqlite_set_aside(fa_store *store, fa_diag *ret_note, fa_diag *diag)
{
    fa_lock *lock = NULL;
    int rc =
        fa_lock_acquire(store->path, "set-aside", FA_STORE_BUSY_MS, NULL, NULL, &lock, NULL, diag);
    if (rc != 0)
        return fa_fail_in(diag, FA_ECORRUPT, "store %s is corrupt", store->path);
    rc = set_aside_locked(store, ret_note, diag);
    fa_lock_release(&lock);
    fa_sqlite_disconnect(store);
    store->damaged = false;
    return rc;
}
