/* SPDX-License-Identifier: Apache-2.0
 *
 * Opening a store in a file: who may write it, whose file it is, of which version, and is it whole. The
 * header is looked at before SQLite touches the file, so that a foreign file and a store of another
 * version stay byte for byte as they were, hot journal and all.
 *
 * A corrupt file is set aside under the name STORE.corrupt-UNIXTIME[-N], nothing in it is changed, and the
 * next opening makes a new store. Only if it has our header, only after a full check has confirmed that it is
 * corrupt, only if it still has the store's name, and under a lock, so that two processes which find the damage
 * together do not set aside each other's new store.
 *
 * Workload: one process start in a thousand makes a store; all others open it, read one winner and
 * are done. So opening takes one connection, one read of the header and one pragma; journal mode and
 * statements wait until somebody needs them.
 */
#include "sqlite.h"

#include "store.h"
#include "statements.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Waits are short and of random length, so that processes that wait do not all try again together. SQLite takes
 * a lock that cannot be had at all (ENOLCK: a network file system without its lock service) for one that
 * somebody holds. */
static int wait_for_others(void *context, int tries)
{
    fa_store *store = context;
    int64_t now = fa_db_now_ms();
    bool no_locks = errno == ENOLCK;
    if (tries == 0)
        store->busy_since = now;
    store->unlockable = no_locks && now - store->busy_since > FA_STORE_NO_LOCKS_MS;
    if (store->unlockable || now - store->busy_since > FA_STORE_BUSY_MS)
        return 0;
    uint32_t mixed = ((uint32_t)store->pid + (uint32_t)tries * 977u) * 2654435761u;
    struct timespec nap = {.tv_nsec = tries == 0 ? 200000 : 500000 + (long)(mixed >> 21) * 2000};
    nanosleep(&nap, NULL);
    errno = 0; /* what it is at the next call, this try has set */
    return 1;
}

int fa_sqlite_connect(fa_store *store, const char *name, int flags, fa_diag *diag)
{
    int rc =
        sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    if (store->db == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    sqlite3_extended_result_codes(store->db, 1);
    if (rc != SQLITE_OK)
        return fa_sqlite_fail(store, diag, "cannot be opened");
    /* Where opening for writing fails, SQLite opens for reading, and stays with that. */
    if (!store->read_only && !store->absent && sqlite3_db_readonly(store->db, "main") != 0)
        return fa_fail(
            diag, FA_EIO,
            "store %s: cannot be opened for writing, though it may be written: look at the "
            "limit on open files (ulimit -n), and try again",
            store->path);
    sqlite3_busy_handler(store->db, wait_for_others, store);
    static const struct {
        int option, value;
    } options[] = {
        {SQLITE_DBCONFIG_DEFENSIVE, 1},   {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
        {SQLITE_DBCONFIG_ENABLE_FKEY, 1}, {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
        {SQLITE_DBCONFIG_ENABLE_VIEW, 0}, {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
        {SQLITE_DBCONFIG_DQS_DDL, 0},     {SQLITE_DBCONFIG_DQS_DML, 0},
    };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        sqlite3_db_config(store->db, options[i].option, options[i].value, (int *)NULL);
    sqlite3_limit(store->db, SQLITE_LIMIT_LENGTH, 2 * FA_STORE_CUBIN_MAX);
    sqlite3_limit(store->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_int64 no_map = 0;
    sqlite3_file_control(store->db, "main", SQLITE_FCNTL_MMAP_SIZE, &no_map);
    return fa_db_exec(store, "PRAGMA cell_size_check = ON", diag);
}

/* ---- setting a damaged file aside ------------------------------------------------------------*/
/* It may be a file of the user's that FA_TUNE_STORE names by mistake. */
static int fail_unknown(const fa_store *store, fa_diag *diag)
{
    return fa_fail(diag, FA_ESTORE,
                   "%s is not a store, or lost its header, and it was left as it is: name another "
                   "file, or move this one away",
                   store->path);
}

/* False when another process has just set the file aside. */
static bool has_its_name(const fa_store *store)
{
    struct stat st;
    return lstat(store->path, &st) == 0 && st.st_ino == store->inode && st.st_dev == store->device;
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

/* Another process may set the file aside meanwhile, or another program write into it. */
static int set_aside(fa_store *store, fa_diag *ret_note, fa_diag *diag)
{
    fa_lock *lock = NULL;
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    uint32_t version;
    const int64_t until = fa_db_now_ms() + FA_STORE_BUSY_MS;
    char aside[FA_STORE_PATH_MAX + 64];
    int rc = 0;
    while (has_its_name(store) &&
           (rc = fa_lock_of_file(store->path, "set-aside", false, &lock, diag)) == FA_EBUSY &&
           fa_db_now_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    if (rc == FA_EBUSY)
        fa_fail(diag, rc, "another process has been setting it aside for too long");
    if (rc != 0)
        return fa_fail_in(diag, FA_ECORRUPT, "store %s is corrupt", store->path);
    if (has_its_name(store) && (rc = fa_sqlite_read_header(store, &kind, &version, diag)) == 0)
        rc = kind == FA_HEADER_OURS ? fa_sqlite_check_pages(store, "PRAGMA quick_check(1)", diag)
                                    : fail_unknown(store, diag);
    fa_sqlite_disconnect(store);
    if (rc == FA_ECORRUPT && (rc = rename_all(store->path, aside, diag)) == 0)
        fa_fail(ret_note, 0, "store %s was corrupt; it was kept as %s and a new store begins empty",
                store->path, aside);
    fa_lock_release(&lock);
    store->damaged = false;
    return rc;
}

/* ---- whose file, of which version -----------------------------------------------------------*/
static int refuse_version(fa_store *store, int64_t version, fa_diag *diag)
{
    return fa_db_refuse_version(store, version, "name another file or move this one away", diag);
}

/* FA_ECORRUPT is SQLite's word that the file is damaged. */
static int read_version(fa_store *store, int *ret_version, fa_diag *diag)
{
    int sqlite_rc;
    *ret_version = fa_sqlite_pragma_int(store, "PRAGMA user_version", &sqlite_rc);
    if (sqlite_rc != SQLITE_OK)
        return fa_sqlite_fail(store, diag, "its version cannot be read");
    return 0;
}

/* Inside the transaction, before which another process may have been here. */
static int make_tables(fa_store *store, fa_diag *diag)
{
    int version = 0;
    char pragmas[128];
    int rc = read_version(store, &version, diag);
    if (rc != 0 || version == FA_STORE_SCHEMA)
        return rc;
    if (version != 0)
        return refuse_version(store, version, diag);
    rc = fa_db_exec(store, fa_db_schema, diag);
    snprintf(pragmas, sizeof pragmas, "PRAGMA user_version = %d; PRAGMA application_id = %d;",
             FA_STORE_SCHEMA, FA_STORE_APPLICATION_ID);
    return rc == 0 ? fa_db_exec(store, pragmas, diag) : rc;
}

static int change_tables(fa_store *store, fa_diag *diag)
{
    fa_change change = {.store = store, .diag = diag};
    store->entering = true;
    while (fa_store_change(&change))
        change.rc = make_tables(store, diag);
    store->entering = false;
    return change.rc;
}

static int check_contents(fa_store *store, fa_diag *diag)
{
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    uint32_t other = 0;
    int version = 0, rc = fa_sqlite_read_header(store, &kind, &other, diag);
    if (rc != 0)
        return rc;
    if (kind == FA_HEADER_UNKNOWN) {
        /* A process may have been killed while it made the file: SQLite undoes that first. */
        rc = read_version(store, &version, diag);
        if (rc == 0)
            rc = fa_sqlite_read_header(store, &kind, &other, diag);
        if (rc == FA_ECORRUPT || (rc == 0 && kind == FA_HEADER_UNKNOWN))
            return fail_unknown(store, diag);
        if (rc != 0)
            return rc;
    }
    if (kind == FA_HEADER_OTHER_VERSION)
        return refuse_version(store, other, diag);
    if (kind == FA_HEADER_BUNDLE)
        return fa_fail(diag, FA_ESTORE,
                       "%s is a bundle and not a store: `fa-tune import` takes what it holds into "
                       "one; name another file",
                       store->path);
    if (kind == FA_HEADER_FOREIGN)
        return fa_fail(diag, FA_ESTORE, "%s is a database of another program: name another file",
                       store->path);
    if (kind == FA_HEADER_OURS)
        rc = read_version(store, &version, diag);
    if (rc != 0 || version == FA_STORE_SCHEMA)
        return rc;
    if (version != 0) /* after SQLite undid what a process was killed over */
        return refuse_version(store, version, diag);
    if (store->read_only || store->existing)
        return fa_fail(diag, FA_ENOTFOUND, "store %s is empty", store->path);
    store->fresh = kind == FA_HEADER_EMPTY;
    rc = change_tables(store, diag);
    if (store->fresh)
        store->journal_ready = false; /* from now on everything is flushed */
    store->fresh = false;
    return rc;
}

static int connect_once(fa_store *store, fa_diag *diag)
{
    struct stat st;
    int rc = fa_db_check_file(store->path, &st, diag);
    if (rc == FA_ENOTFOUND && !store->read_only && !store->existing) {
        rc = fa_db_create_empty(store->path, diag);
        if (rc == 0)
            rc = fa_db_check_file(store->path, &st, diag);
    }
    if (rc == 0 && !store->read_only)
        rc = fa_db_check_writable(store->path, diag);
    if (rc != 0)
        return rc;
    store->device = st.st_dev;
    store->inode = st.st_ino;
    rc = fa_sqlite_connect(store, store->path,
                           store->read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE, diag);
    if (rc == 0)
        rc = check_contents(store, diag);
    return rc;
}

static int connect_file(fa_store *store, fa_diag *ret_note, fa_diag *diag)
{
    int rc = fa_db_check_directory(store->path, diag);
    for (int tries = 0; rc == 0 && tries < 3; tries++) {
        rc = connect_once(store, diag);
        if (rc == 0)
            return 0;
        if (rc != FA_ECORRUPT || !store->damaged || store->read_only || store->existing)
            break;
        rc = set_aside(store, ret_note, diag);
    }
    fa_sqlite_disconnect(store);
    store->damaged = false; /* whatever failed, the next opening finds it again */
    return rc != 0 ? rc : fa_fail(diag, FA_ECORRUPT, "store %s keeps breaking", store->path);
}

static int connect_absent(fa_store *store, fa_diag *diag)
{
    store->absent = true;
    int rc = fa_sqlite_connect(store, ":memory:", SQLITE_OPEN_READWRITE, diag);
    store->journal_ready = true; /* memory has one of its own */
    if (rc == 0)
        rc = change_tables(store, diag);
    if (rc != 0)
        fa_sqlite_disconnect(store);
    store->read_only = true;
    return rc;
}

static int enter(fa_store *store, fa_diag *diag)
{
    if (store->db != NULL && store->damaged && !store->read_only && !store->existing) {
        int rc = set_aside(store, NULL, diag);
        if (rc != 0)
            return rc;
    }
    /* Writing on after the file was renamed or removed would lose what is written. A file that
     * was emptied has no tables any more: opened anew, it gets them. */
    int moved = 0;
    if (store->db != NULL && !store->absent &&
        ((sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
          moved != 0) ||
         fa_sqlite_is_empty(store)))
        fa_sqlite_disconnect(store);
    if (store->db == NULL && store->changing) /* what follows may not be stored alone */
        return fa_fail(diag, FA_EIO, "store %s: its file was taken away in the middle of a change",
                       store->path);
    return store->db != NULL ? 0 : connect_file(store, NULL, diag);
}

static void close_store(fa_store *store)
{
    if (store->damaged && !store->read_only && !store->existing && store->db != NULL)
        set_aside(store, NULL, NULL);
    fa_sqlite_disconnect(store);
}

int fa_sqlite_open(fa_store *store, const char *path, fa_diag *ret_note, fa_diag *diag)
{
    store->backend = &fa_sqlite_backend;
    store->enter = enter;
    store->close = close_store;
    bool create = !store->read_only && !store->existing;
    store->path = store->file;
    int rc = fa_db_resolve(path, create, store->file, diag);
    if (rc == FA_ENOTFOUND && store->existing) /* nor is its directory */
        memcpy(store->file, path, strlen(path) + 1);
    if (rc == 0)
        rc = connect_file(store, ret_note, diag);
    return rc == FA_ENOTFOUND && store->existing ? connect_absent(store, diag) : rc;
}
