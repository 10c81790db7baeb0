/* SPDX-License-Identifier: Apache-2.0
 *
 * SQLite as a backend: sentences for its errors, whose file it is, and the few calls of its library that
 * statements and transactions need.
 *
 * Writers begin with BEGIN IMMEDIATE, so that they queue up for the file instead of meeting in the
 * middle of two transactions, where neither could go on. The header is read by SQLite's own calls: closing
 * any other descriptor of a file would drop every lock that this process holds on it.
 *
 * Opening: who may write a file, whose it is, of which version, and is it whole. The header is looked at before SQLite
 * touches the file, so that a foreign file and a store of another version stay byte for byte as they were, hot journal and
 * all.
 *
 * A corrupt file is set aside under the name STORE.corrupt-UNIXTIME[-N], nothing in it is changed, and the
 * next opening makes a new store. Only if it has our header, only after a full check has confirmed that it is
 * corrupt, only if it still has the store's name, and under a lock, so that two processes which find the damage
 * together do not set aside each other's new store.
 *
 * Workload: one process start in a thousand makes a store; all others open it, read one winner and
 * are done. So opening takes one connection, one read of the header and one pragma; journal mode and
 * statements wait until somebody needs them.
 *
 * A part of a store that travels: its bytes may be hostile. SQLite reads them in memory, where nothing of the file system is
 * touched, without trust in their schema; before any row is read their tables are compared with ours, so that no view,
 * trigger, index or generated column of somebody else's is ever run; then its own check goes over every page.
 */
#include "sqlite.h"

#include "pool.h"
#include "statements.h"
#include "store.h"

#include <errno.h>
#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- errors ---------------------------------------------------------------------------------*/
static const struct {
    int sqlite, code;
    const char *advice;
} meanings[] = {
    {SQLITE_FULL, FA_EFULL, "no space is left: free some, nothing stored so far is lost"},
    {SQLITE_BUSY, FA_EBUSY, "other processes have kept it busy for too long: try again"},
    {SQLITE_LOCKED, FA_EBUSY, "it is in use: try again"},
    {SQLITE_READONLY, FA_EREADONLY, "it cannot be written"},
    {SQLITE_PERM, FA_EREADONLY, "access is denied"},
    {SQLITE_AUTH, FA_EREADONLY, "access is denied"},
    {SQLITE_CORRUPT, FA_ECORRUPT, "the file is damaged"},
    {SQLITE_NOTADB, FA_ECORRUPT, "the file is damaged"},
    {SQLITE_ERROR, FA_ECORRUPT, "its tables are not as they should be: move the file away"},
    {SQLITE_CONSTRAINT, FA_ECORRUPT, "its tables are not as they should be: move the file away"},
    {SQLITE_NOMEM, FA_ENOMEM, "out of memory"},
    {SQLITE_TOOBIG, FA_EINVAL, "a value is too large to be stored"},
};

/* Whether a result of SQLite means that the file is damaged. It says so of a read that failed, too, where
 * `error`, the errno that the call left (cleared before it), tells. */
static bool is_damage(int sqlite, int error)
{
    /* ENOLCK: of giving back a lock after a read that failed */
    bool failed_read = error == EIO || error == ENXIO || error == ERANGE || error == ENOLCK;
    return ((sqlite & 0xff) == SQLITE_CORRUPT || (sqlite & 0xff) == SQLITE_NOTADB) && !failed_read;
}

/* The sentence of the last SQLite error on this store; notes damage. */
static int fail(fa_store *store, fa_diag *diag, const char *what)
{
    int sqlite = sqlite3_errcode(store->db) & 0xff;
    /* SQLite does not keep the errno of a failed commit; sqlite_step() has cleared it before. */
    int last = errno, code = FA_EIO;
    bool damaged = is_damage(sqlite, last);
    if (sqlite == SQLITE_CORRUPT && !damaged)
        sqlite = SQLITE_IOERR;
    int error = sqlite3_system_errno(store->db) != 0 ? sqlite3_system_errno(store->db) : last;
    const char *advice = "reading or writing failed: look at the disk";
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++)
        if (meanings[i].sqlite == sqlite) {
            code = meanings[i].code;
            advice = meanings[i].advice;
        }
    if (sqlite == SQLITE_BUSY && store->unlockable) {
        code = FA_EIO;
        advice = "its file system gives no locks: put the store on another one (FA_TUNE_STORE)";
    }
    store->unlockable = false;
    /* An I/O error carries its errno; a full disk may show itself this way too. */
    if ((sqlite == SQLITE_IOERR || sqlite == SQLITE_CANTOPEN) && error != 0) {
        code = fa_db_errno(error) == FA_ENOTFOUND ? FA_EIO : fa_db_errno(error);
        advice = code == FA_EFULL ? meanings[0].advice : strerror(error);
    }
    store->damaged = store->damaged || damaged;
    return fa_fail(diag, code, "store %s: %s: %s (SQLite: %s)", store->path, what, advice,
                   sqlite3_errmsg(store->db));
}

/* ---- whose file it is -----------------------------------------------------------------------*/
/* A number of the header. */
static uint32_t number_at(const unsigned char *bytes, int size)
{
    uint32_t number = 0;
    for (int i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

static fa_sqlite_header kind_of(const unsigned char header[100], uint32_t *ret_version)
{
    const uint32_t application = number_at(header + 68, 4);
    *ret_version = number_at(header + 60, 4);
    return memcmp(header, "SQLite format 3", 16) != 0 ? FA_HEADER_UNKNOWN
           : application == FA_BUNDLE_APPLICATION_ID  ? FA_HEADER_BUNDLE
           : application != FA_STORE_APPLICATION_ID   ? FA_HEADER_FOREIGN
           : *ret_version == FA_STORE_SCHEMA          ? FA_HEADER_OURS
                                                      : FA_HEADER_OTHER_VERSION;
}

/* SQLite's own descriptor and the file's size; NULL: there is none, or the size cannot be told. */
static sqlite3_file *open_file(sqlite3 *db, sqlite3_int64 *ret_size)
{
    sqlite3_file *file = NULL;
    return sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK &&
                   file != NULL && file->pMethods != NULL &&
                   file->pMethods->xFileSize(file, ret_size) == SQLITE_OK
               ? file
               : NULL;
}

static int read_header(sqlite3 *db, fa_sqlite_header *ret_kind, uint32_t *ret_version)
{
    sqlite3_int64 size = 0;
    unsigned char header[100] = {0};
    sqlite3_file *file = open_file(db, &size);
    if (file == NULL)
        return FA_EIO;
    if (size == 0) {
        /* SQLite reports a file of one byte as empty, and would make a database of it. */
        struct stat st;
        const char *path = sqlite3_db_filename(db, "main");
        const bool one_byte = path != NULL && stat(path, &st) == 0 && st.st_size == 1;
        *ret_kind = one_byte ? FA_HEADER_UNKNOWN : FA_HEADER_EMPTY;
        return 0;
    }
    int rc = file->pMethods->xRead(file, header, sizeof header, 0);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return FA_EIO;
    *ret_kind = kind_of(header, ret_version);
    if (size < 100)
        *ret_kind = FA_HEADER_UNKNOWN;
    return 0;
}

/* Reads the header through SQLite's own descriptor, without a lock. *ret_version is user_version
 * where the file is ours. */
static int read_kind(fa_store *store, fa_sqlite_header *ret_kind, uint32_t *ret_version,
                     fa_diag *diag)
{
    int rc = read_header(store->db, ret_kind, ret_version);
    return rc != 0 ? fa_fail(diag, rc, "store %s: cannot be read", store->path) : 0;
}

int fa_sqlite_kind_of(const char *path, fa_sqlite_header *ret_kind)
{
    sqlite3 *db = NULL;
    uint32_t version = 0;
    int rc =
        sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOFOLLOW, NULL) == SQLITE_OK
            ? read_header(db, ret_kind, &version)
            : FA_EIO;
    sqlite3_close(db);
    return rc;
}

/* ---- statements -----------------------------------------------------------------------------*/
static int sqlite_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    errno = 0;
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return fail(store, diag, "a command failed");
}

static int sqlite_prepare(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    sqlite3_stmt *handle = NULL;
    errno = 0;
    if (sqlite3_prepare_v3(store->db, statement->sql, -1, SQLITE_PREPARE_PERSISTENT, &handle,
                           NULL) != SQLITE_OK)
        return fail(store, diag, "a command was not understood");
    statement->handle = handle;
    return 0;
}

static int sqlite_step(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    errno = 0;
    int sqlite = sqlite3_step(statement->handle);
    if (sqlite == SQLITE_ROW)
        return 1;
    return sqlite == SQLITE_DONE ? 0 : fail(store, diag, "a command failed");
}

static void sqlite_reset(fa_statement *statement)
{
    sqlite3_reset(statement->handle);
    sqlite3_clear_bindings(statement->handle);
}

static int sqlite_bind(fa_statement *statement, int place, const fa_value *value)
{
    sqlite3_stmt *handle = statement->handle;
    sqlite3_destructor_type life = value->copy ? SQLITE_TRANSIENT : SQLITE_STATIC;
    int sqlite = SQLITE_MISMATCH;
    switch (value->kind) {
    case FA_VALUE_NULL:
        sqlite = sqlite3_bind_null(handle, place);
        break;
    case FA_VALUE_INT:
        sqlite = sqlite3_bind_int64(handle, place, value->integer);
        break;
    case FA_VALUE_REAL: /* NaN becomes NULL */
        sqlite = sqlite3_bind_double(handle, place, value->real);
        break;
    case FA_VALUE_TEXT:
        sqlite = sqlite3_bind_text64(handle, place, value->bytes, value->size, life, SQLITE_UTF8);
        break;
    case FA_VALUE_BLOB:
        sqlite = sqlite3_bind_blob64(handle, place, value->bytes, value->size, life);
        break;
    case FA_VALUE_OTHER:
    case FA_VALUE_NO_MEMORY:
        break;
    }
    if (sqlite == SQLITE_OK)
        return 0;
    return sqlite == SQLITE_NOMEM ? FA_ENOMEM : FA_EINVAL;
}

static void sqlite_column(fa_statement *statement, int index, fa_value *ret_value)
{
    sqlite3_stmt *handle = statement->handle;
    fa_value value = {.kind = FA_VALUE_OTHER};
    switch (sqlite3_column_type(handle, index)) {
    case SQLITE_NULL:
        value.kind = FA_VALUE_NULL;
        break;
    case SQLITE_INTEGER:
        value.kind = FA_VALUE_INT;
        value.integer = sqlite3_column_int64(handle, index);
        break;
    case SQLITE_FLOAT:
        value.kind = FA_VALUE_REAL;
        value.real = sqlite3_column_double(handle, index);
        break;
    case SQLITE_TEXT:
        value.bytes = sqlite3_column_text(handle, index);
        value.kind = value.bytes != NULL ? FA_VALUE_TEXT : FA_VALUE_OTHER;
        break;
    case SQLITE_BLOB:
        value.kind = FA_VALUE_BLOB;
        value.bytes = sqlite3_column_blob(handle, index);
        break;
    }
    if ((value.kind == FA_VALUE_OTHER || value.kind == FA_VALUE_BLOB) && value.bytes == NULL &&
        sqlite3_errcode(sqlite3_db_handle(handle)) == SQLITE_NOMEM)
        value.kind = FA_VALUE_NO_MEMORY;
    if (value.kind == FA_VALUE_TEXT || value.kind == FA_VALUE_BLOB)
        value.size = (size_t)sqlite3_column_bytes(handle, index);
    *ret_value = value;
}

/* Closes the connection and all its statements; the next call opens another. */
static void disconnect(fa_store *store)
{
    for (size_t i = 0; i < FA_STATEMENTS_MAX; i++) {
        sqlite3_finalize(store->statement[i].handle);
        store->statement[i].handle = NULL;
    }
    sqlite3_close(store->db);
    store->db = NULL;
    store->journal_ready = false;
}

/* Looks at all pages by one of SQLite's checks, a literal. FA_ECORRUPT says what is wrong. The connection is there. */
static int check_pages(fa_store *store, const char *check, fa_diag *diag)
{
    fa_query query = fa_db_prepare(store, diag, check);
    int rc = fa_db_step(&query), error = errno;
    if (rc <= 0)
        return rc < 0 ? rc : fa_fail(diag, FA_EIO, "store %s: cannot be checked", store->path);
    const char *found = fa_read_text(&query, false);
    rc = strcmp(found, "ok") == 0 ? 0
         : is_damage(SQLITE_CORRUPT, error)
             ? fa_fail(diag, FA_ECORRUPT, "store %s: the file is damaged: %s", store->path, found)
             : fa_fail(diag, FA_EIO, "store %s: cannot be read: %s", store->path, strerror(error));
    const int end = fa_read_end(&query);
    return end < 0 ? end : rc;
}

/* ---- transactions ---------------------------------------------------------------------------*/
/* A rollback journal, not WAL: WAL's readers must write beside the file, its locks live in shared
 * memory, and before SQLite 3.51.3 two checkpointers can corrupt the file. TRUNCATE keeps the
 * journal's directory entry, and readers take an empty journal for none with one stat(). */
static int prepare_journal(fa_store *store, fa_diag *diag)
{
    if (store->journal_ready)
        return 0;
    FA_OR_RETURN(sqlite_exec(store,
                             store->no_space
                                 ? "PRAGMA temp_store = MEMORY; PRAGMA journal_mode = MEMORY"
                                 : "PRAGMA temp_store = DEFAULT; PRAGMA journal_mode = TRUNCATE",
                             diag));
    /* Flushing empty tables would cost a first caller as much as everything else together. Should the
     * power fail before the first commit that counts, and flushes them too, the file is set aside as
     * damaged, or refused if it has no header yet: nothing is in it. */
    int rc = sqlite_exec(
        store, store->fresh ? "PRAGMA synchronous = OFF" : "PRAGMA synchronous = FULL", diag);
    store->journal_ready = rc == 0;
    return rc;
}

/* A commit that leaves pages free makes the file smaller, which must be said before its first page is there. */
static int sqlite_begin(fa_store *store, fa_diag *diag)
{
    FA_OR_RETURN(prepare_journal(store, diag));
    return sqlite_exec(store, store->fresh ? "BEGIN; PRAGMA auto_vacuum = FULL" : "BEGIN IMMEDIATE",
                       diag);
}

static int sqlite_commit(fa_store *store, fa_diag *diag)
{
    return sqlite_exec(store, "COMMIT", diag);
}

/* Some errors have rolled back already. A rollback that fails leaves a hot journal, which the next
 * to open the file plays back; so the connection is given up. */
static void sqlite_rollback(fa_store *store)
{
    if (store->db != NULL && sqlite3_get_autocommit(store->db) == 0 &&
        sqlite_exec(store, "ROLLBACK", NULL) != 0)
        disconnect(store);
}

/* ---- space ----------------------------------------------------------------------------------*/
void fa_store_use_no_space(fa_store *store, bool on)
{
    if (store->no_space != on)
        store->journal_ready = false;
    store->no_space = on;
}

static int sqlite_lock(fa_store *store, const char *name, bool shared, fa_lock **ret_lock,
                       fa_diag *diag)
{
    return fa_lock_of_file(store->path, name, shared, ret_lock, diag);
}

static const fa_backend backend = FA_BACKEND(sqlite);

/* ---- opening --------------------------------------------------------------------------------*/
/* Waits are short and of random length, so that processes that wait do not all try again together. SQLite takes
 * a lock that cannot be had at all (ENOLCK: a network file system without its lock service) for one that
 * somebody holds. */
static int wait_for_others(void *context, int tries)
{
    fa_store *store = context;
    int64_t now = fa_clock_ms();
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

/* Opens the connection, as careful as can be with what is in the file; flags: SQLite's for reading or writing. */
static int connect_to(fa_store *store, const char *name, int flags, fa_diag *diag)
{
    int rc =
        sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW, NULL);
    FA_OR_RETURN(fa_have(store->db != NULL, "a store", diag));
    sqlite3_extended_result_codes(store->db, 1);
    if (rc != SQLITE_OK)
        return fail(store, diag, "cannot be opened");
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
    FA_ENDS(fa_lock_release) fa_lock *lock = NULL;
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    uint32_t version;
    const int64_t until = fa_clock_ms() + FA_STORE_BUSY_MS;
    char aside[FA_STORE_PATH_MAX + 64];
    int rc = 0;
    while (has_its_name(store) &&
           (rc = fa_lock_of_file(store->path, "set-aside", false, &lock, diag)) == FA_EBUSY &&
           fa_clock_ms() < until)
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    if (rc == FA_EBUSY)
        fa_fail(diag, rc, "another process has been setting it aside for too long");
    if (rc != 0)
        return fa_fail_in(diag, FA_ECORRUPT, "store %s is corrupt", store->path);
    if (has_its_name(store) && (rc = read_kind(store, &kind, &version, diag)) == 0)
        rc = kind == FA_HEADER_OURS ? check_pages(store, "PRAGMA quick_check(1)", diag)
                                    : fail_unknown(store, diag);
    disconnect(store);
    if (rc == FA_ECORRUPT && (rc = rename_all(store->path, aside, diag)) == 0)
        fa_fail(ret_note, 0, "store %s was corrupt; it was kept as %s and a new store begins empty",
                store->path, aside);
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
    sqlite3_stmt *statement = NULL;
    errno = *ret_version = 0;
    int rc = sqlite3_prepare_v2(store->db, "PRAGMA user_version", -1, &statement, NULL);
    if (rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        *ret_version = sqlite3_column_int(statement, 0);
    if (rc == SQLITE_OK)
        rc = sqlite3_finalize(statement);
    return rc == SQLITE_OK ? 0 : fail(store, diag, "its version cannot be read");
}

/* Inside the transaction, before which another process may have been here. */
static int make_tables(fa_store *store, fa_diag *diag)
{
    int version = 0;
    char pragmas[128];
    FA_OR_RETURN(read_version(store, &version, diag));
    if (version != 0)
        return version == FA_STORE_SCHEMA ? 0 : refuse_version(store, version, diag);
    FA_OR_RETURN(fa_db_exec(store, fa_db_schema, diag));
    snprintf(pragmas, sizeof pragmas, "PRAGMA user_version = %d; PRAGMA application_id = %d;",
             FA_STORE_SCHEMA, FA_STORE_APPLICATION_ID);
    return fa_db_exec(store, pragmas, diag);
}

static int change_tables(fa_store *store, fa_diag *diag)
{
    store->entering = true;
    int rc = FA_CHANGED(store, diag, make_tables(store, diag));
    store->entering = false;
    return rc;
}

static int check_contents(fa_store *store, fa_diag *diag)
{
    fa_sqlite_header kind = FA_HEADER_UNKNOWN;
    uint32_t other = 0;
    int version = 0, rc = read_kind(store, &kind, &other, diag);
    if (rc != 0)
        return rc;
    if (kind == FA_HEADER_UNKNOWN) {
        /* A process may have been killed while it made the file: SQLite undoes that first. */
        rc = read_version(store, &version, diag);
        if (rc == 0)
            rc = read_kind(store, &kind, &other, diag);
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
    rc = connect_to(store, store->path,
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
    disconnect(store);
    store->damaged = false; /* whatever failed, the next opening finds it again */
    return rc != 0 ? rc : fa_fail(diag, FA_ECORRUPT, "store %s keeps breaking", store->path);
}

static int connect_absent(fa_store *store, fa_diag *diag)
{
    store->absent = true;
    int rc = connect_to(store, ":memory:", SQLITE_OPEN_READWRITE, diag);
    store->journal_ready = true; /* memory has one of its own */
    if (rc == 0)
        rc = change_tables(store, diag);
    if (rc != 0)
        disconnect(store);
    store->read_only = true;
    return rc;
}

static int enter(fa_store *store, fa_diag *diag)
{
    if (store->db != NULL && store->damaged && !store->read_only && !store->existing)
        FA_OR_RETURN(set_aside(store, NULL, diag));
    /* Writing on after the file was renamed or removed would lose what is written. A file that
     * was emptied has no tables any more: opened anew, it gets them. */
    int moved = 0;
    sqlite3_int64 size = -1;
    if (store->db != NULL && !store->absent &&
        ((sqlite3_file_control(store->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
          moved != 0) ||
         (open_file(store->db, &size) != NULL && size == 0)))
        disconnect(store);
    if (store->db == NULL && store->changing) /* what follows may not be stored alone */
        return fa_fail(diag, FA_EIO, "store %s: its file was taken away in the middle of a change",
                       store->path);
    return store->db != NULL ? 0 : connect_file(store, NULL, diag);
}

static void close_store(fa_store *store)
{
    if (store->damaged && !store->read_only && !store->existing && store->db != NULL)
        set_aside(store, NULL, NULL);
    disconnect(store);
}

int fa_sqlite_open(fa_store *store, const char *path, fa_diag *ret_note, fa_diag *diag)
{
    store->backend = &backend;
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

/* ---- a part of a store that travels -------------------------------------------------------*/
enum { PAGE_SIZE_BYTES = 4096 };

static int enter_part(fa_store *store, fa_diag *diag)
{
    return store->db != NULL ? 0 : fa_fail(diag, FA_EIO, "store %s: it was given up", store->path);
}

/* A connection of its own to what `name` names; closed with fa_store_close(). */
static int connect_part(const char *name, int flags, const char *path, fa_store **ret_store,
                        fa_diag *diag)
{
    FA_ENDS(fa_store_close) fa_store *store = calloc(1, sizeof *store);
    FA_OR_RETURN(fa_have(store != NULL, "a store", diag));
    store->backend = &backend;
    store->enter = enter_part;
    store->close = disconnect;
    store->pid = getpid();
    store->absent = true;
    store->journal_ready = true;
    store->read_only = (flags & SQLITE_OPEN_READONLY) != 0;
    snprintf(store->file, sizeof store->file, "in %.4000s", path);
    store->path = store->file;
    FA_OR_RETURN(connect_to(store, name, flags, diag));
    *ret_store = store, store = NULL;
    return 0;
}

/* ---- a part: making it --------------------------------------------------------------------*/
int fa_portable_new(fa_store **ret_store, fa_diag *diag)
{
    FA_ENDS(fa_store_close) fa_store *store = NULL;
    char pragmas[160];
    snprintf(pragmas, sizeof pragmas,
             "PRAGMA page_size = %d; PRAGMA encoding = 'UTF-8'; PRAGMA auto_vacuum = NONE;"
             "PRAGMA user_version = %d; PRAGMA application_id = %d;",
             PAGE_SIZE_BYTES, FA_STORE_SCHEMA, FA_BUNDLE_APPLICATION_ID);
    FA_OR_RETURN(connect_part(":memory:", SQLITE_OPEN_READWRITE, "a bundle", &store, diag));
    FA_OR_RETURN(fa_db_exec(store, pragmas, diag));
    FA_OR_RETURN(fa_db_exec(store, fa_db_portable_schema, diag));
    *ret_store = store, store = NULL;
    return 0;
}

int fa_portable_print(fa_store *store, fa_buf *out, fa_diag *diag)
{
    sqlite3_int64 size = 0;
    FA_OR_RETURN(fa_db_enter(store, diag));
    unsigned char *bytes = sqlite3_serialize(store->db, "main", &size, 0);
    fa_buf_append(out, bytes, bytes != NULL ? (size_t)size : 0);
    int rc =
        bytes == NULL || out->failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a bundle") : 0;
    sqlite3_free(bytes);
    return rc;
}

/* ---- a part: reading it -------------------------------------------------------------------*/
int fa_portable_check(const unsigned char header[FA_PORTABLE_HEADER], size_t size,
                      uint32_t *ret_version)
{
    const fa_sqlite_header kind = kind_of(header, ret_version);
    if (kind != FA_HEADER_BUNDLE)
        return kind == FA_HEADER_OURS || kind == FA_HEADER_OTHER_VERSION ? FA_ESTORE : FA_ECORRUPT;
    if (*ret_version != FA_STORE_SCHEMA)
        return FA_EVERSION;
    bool ours = number_at(header + 16, 2) == PAGE_SIZE_BYTES &&
                number_at(header + 18, 3) == 0x010100 && /* a rollback journal, no tail of pages */
                number_at(header + 56, 4) == SQLITE_UTF8 &&
                memcmp(header + 24, header + 92, 4) == 0 && /* the number of pages counts */
                (uint64_t)number_at(header + 28, 4) * PAGE_SIZE_BYTES == size;
    return ours ? 0 : FA_ECORRUPT;
}

/* The tables and indices of a database as one text. */
static int print_schema(fa_store *store, fa_buf *out, fa_diag *diag)
{
    int rc;
    fa_query query = fa_db_query(
        store, diag,
        "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema ORDER BY rowid");
    while ((rc = fa_db_step(&query)) == 1) {
        for (int i = 0; i < 4; i++) {
            const char *text = fa_read_text(&query, false);
            fa_buf_printf(out, "%zu:", strlen(text));
            fa_buf_text(out, text);
        }
        if (query.rc != 0) {
            rc = fa_read_end(&query);
            return rc < 0 ? rc
                          : fa_fail(diag, FA_ECORRUPT, "store %s: its tables cannot be read",
                                    store->path);
        }
    }
    return rc == 0 && out->failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a bundle") : rc;
}

static int check_tables(fa_store *store, fa_diag *diag)
{
    FA_ENDS(fa_store_close) fa_store *made = NULL;
    FA_ENDS(fa_buf_free) fa_buf ours = {0}, theirs = {0};
    FA_OR_RETURN(fa_portable_new(&made, diag));
    FA_OR_RETURN(print_schema(made, &ours, diag));
    FA_OR_RETURN(print_schema(store, &theirs, diag));
    return ours.size == theirs.size && memcmp(ours.data, theirs.data, ours.size) == 0
               ? 0
               : fa_fail(diag, FA_ECORRUPT, "store %s: its tables are not those of a bundle",
                         store->path);
}

/* As SQLite's URI of a file that nobody changes. */
static int uri_of(const char *path, char ret_uri[], size_t size, fa_diag *diag)
{
    char whole[PATH_MAX];
    if (realpath(path, whole) == NULL)
        return fa_fail(diag, FA_EIO, "store in %s: cannot be opened", path);
    size_t used = (size_t)snprintf(ret_uri, size, "file:");
    for (const char *c = whole; *c != 0; c++)
        used += (size_t)snprintf(ret_uri + used, size - used,
                                 strchr("%?#", *c) != NULL ? "%%%02X" : "%c", (unsigned char)*c);
    snprintf(ret_uri + used, size - used, "?immutable=1");
    return 0;
}

int fa_portable_open(const void *bytes, size_t size, const char *path, fa_store **ret_store,
                     fa_diag *diag)
{
    FA_ENDS(fa_store_close) fa_store *store = NULL;
    char uri[3 * PATH_MAX + 32] = ":memory:";
    FA_OR_RETURN(bytes == NULL ? uri_of(path, uri, sizeof uri, diag) : 0);
    FA_OR_RETURN(connect_part(uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, path, &store, diag));
    if (bytes != NULL && sqlite3_deserialize(store->db, "main", (unsigned char *)(uintptr_t)bytes,
                                             (sqlite3_int64)size, (sqlite3_int64)size,
                                             SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a bundle"); /* it looks at no byte yet */
    FA_OR_RETURN(check_tables(store, diag));
    FA_OR_RETURN(bytes != NULL ? check_pages(store, "PRAGMA integrity_check(1)", diag) : 0);
    *ret_store = store, store = NULL;
    return 0;
}

int fa_portable_count(fa_store *store, int64_t *ret_winners, int64_t *ret_cubins, fa_diag *diag)
{
    fa_query query =
        fa_db_query(store, diag,
                    "SELECT (SELECT count(*) FROM winner), (SELECT count(*) FROM cubin), "
                    "(SELECT count(*) FROM scope WHERE id NOT IN (SELECT scope_id FROM winner)) + "
                    "(SELECT count(*) FROM cubin WHERE key NOT IN (SELECT cubin_key FROM winner))");
    int rc = fa_db_step(&query);
    if (rc <= 0)
        return rc;
    *ret_winners = fa_read_int(&query, 0, INT64_MAX);
    *ret_cubins = fa_read_int(&query, 0, INT64_MAX);
    const int64_t of_nobody = fa_read_int(&query, 0, INT64_MAX);
    rc = fa_read_end(&query);
    rc = rc < 0 ? rc : 0;
    if (rc == 0 && of_nobody != 0)
        rc = fa_fail(diag, FA_ECORRUPT, "store %s: it holds a scope or a cubin of no winner",
                     store->path);
    return rc;
}
