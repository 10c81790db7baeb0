/* SPDX-License-Identifier: Apache-2.0
 *
 * SQLite as a backend: sentences for its errors, whose file it is, and the few calls of its library that
 * statements and transactions need.
 *
 * Writers begin with BEGIN IMMEDIATE, so that they queue up for the file instead of meeting in the
 * middle of two transactions, where neither could go on. The header is read by SQLite's own calls: closing
 * any other descriptor of a file would drop every lock that this process holds on it.
 */
#include "sqlite.h"
#include "statements.h"

#include <errno.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

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

int fa_sqlite_fail(fa_store *store, fa_diag *diag, const char *what)
{
    int sqlite = sqlite3_errcode(store->db) & 0xff;
    /* SQLite does not keep the errno of a failed commit; sqlite_step() has cleared it before. */
    int last = errno, code = FA_EIO;
    bool damaged = is_damage(sqlite, last);
    if (sqlite == SQLITE_CORRUPT && !damaged)
        sqlite = SQLITE_IOERR;
    int error = sqlite3_system_errno(store->db) != 0 ? sqlite3_system_errno(store->db) : last;
    const char *advice = "reading or writing failed: look at the disk";
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        if (meanings[i].sqlite == sqlite) {
            code = meanings[i].code;
            advice = meanings[i].advice;
        }
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
uint32_t fa_sqlite_number(const unsigned char *bytes, int size)
{
    uint32_t number = 0;
    for (int i = 0; i < size; i++)
        number = number << 8 | bytes[i];
    return number;
}

fa_sqlite_header fa_sqlite_kind(const unsigned char header[100], uint32_t *ret_version)
{
    const uint32_t application = fa_sqlite_number(header + 68, 4);
    *ret_version = fa_sqlite_number(header + 60, 4);
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

bool fa_sqlite_is_empty(fa_store *store)
{
    sqlite3_int64 size = -1;
    return open_file(store->db, &size) != NULL && size == 0;
}

/* SQLite reports a file of one byte as empty, and would make a database of it. */
static bool is_one_byte(sqlite3 *db)
{
    struct stat st;
    const char *path = sqlite3_db_filename(db, "main");
    return path != NULL && stat(path, &st) == 0 && st.st_size == 1;
}

static int read_header(sqlite3 *db, fa_sqlite_header *ret_kind, uint32_t *ret_version)
{
    sqlite3_int64 size = 0;
    unsigned char header[100] = {0};
    sqlite3_file *file = open_file(db, &size);
    if (file == NULL)
        return FA_EIO;
    if (size == 0) {
        *ret_kind = is_one_byte(db) ? FA_HEADER_UNKNOWN : FA_HEADER_EMPTY;
        return 0;
    }
    int rc = file->pMethods->xRead(file, header, sizeof header, 0);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return FA_EIO;
    *ret_kind = fa_sqlite_kind(header, ret_version);
    if (size < 100)
        *ret_kind = FA_HEADER_UNKNOWN;
    return 0;
}

int fa_sqlite_read_header(fa_store *store, fa_sqlite_header *ret_kind, uint32_t *ret_version,
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
    return fa_sqlite_fail(store, diag, "a command failed");
}

int fa_sqlite_pragma_int(fa_store *store, const char *sql, int *ret_sqlite_rc)
{
    sqlite3_stmt *statement = NULL;
    errno = 0;
    int value = 0, rc = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
    if (rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        value = sqlite3_column_int(statement, 0);
    if (rc == SQLITE_OK)
        rc = sqlite3_finalize(statement);
    *ret_sqlite_rc = rc;
    return value;
}

static int sqlite_prepare(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    sqlite3_stmt *handle = NULL;
    errno = 0;
    if (sqlite3_prepare_v3(store->db, statement->sql, -1, SQLITE_PREPARE_PERSISTENT, &handle,
                           NULL) != SQLITE_OK)
        return fa_sqlite_fail(store, diag, "a command was not understood");
    statement->handle = handle;
    return 0;
}

static int sqlite_step(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    errno = 0;
    int sqlite = sqlite3_step(statement->handle);
    if (sqlite == SQLITE_ROW)
        return 1;
    return sqlite == SQLITE_DONE ? 0 : fa_sqlite_fail(store, diag, "a command failed");
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

void fa_sqlite_disconnect(fa_store *store)
{
    for (size_t i = 0; i < FA_STATEMENTS_MAX; i++) {
        sqlite3_finalize(store->statement[i].handle);
        store->statement[i].handle = NULL;
    }
    sqlite3_close(store->db);
    store->db = NULL;
    store->journal_ready = false;
}

int fa_sqlite_check_pages(fa_store *store, const char *check, fa_diag *diag)
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
    int rc =
        sqlite_exec(store,
                    store->no_space ? "PRAGMA temp_store = MEMORY; PRAGMA journal_mode = MEMORY"
                                    : "PRAGMA temp_store = DEFAULT; PRAGMA journal_mode = TRUNCATE",
                    diag);
    if (rc != 0)
        return rc;
    /* Flushing empty tables would cost a first caller as much as everything else together. Should the
     * power fail before the first commit that counts, and flushes them too, the file is set aside as
     * damaged, or refused if it has no header yet: nothing is in it. */
    rc = sqlite_exec(store, store->fresh ? "PRAGMA synchronous = OFF" : "PRAGMA synchronous = FULL",
                     diag);
    store->journal_ready = rc == 0;
    return rc;
}

/* A commit that leaves pages free makes the file smaller, which must be said before its first page is there. */
static int sqlite_begin(fa_store *store, fa_diag *diag)
{
    int rc = prepare_journal(store, diag);
    return rc != 0
               ? rc
               : sqlite_exec(store,
                             store->fresh ? "BEGIN; PRAGMA auto_vacuum = FULL" : "BEGIN IMMEDIATE",
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
        fa_sqlite_disconnect(store);
}

/* ---- space ----------------------------------------------------------------------------------*/
void fa_store_use_no_space(fa_store *store, bool on)
{
    if (store->no_space != on)
        store->journal_ready = false;
    store->no_space = on;
}

const fa_backend fa_sqlite_backend = FA_BACKEND(sqlite);
