/* SPDX-License-Identifier: Apache-2.0
 *
 * SQLite made safe to use: sentences for its errors, statements prepared once, one kind of write
 * transaction, and checked reading of columns.
 *
 * Writers begin with BEGIN IMMEDIATE, so that they queue up for the file instead of meeting in the
 * middle of two transactions, where neither could go on.
 */
#include "internal.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

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

int fa_db_fail(fa_store *store, fa_diag *diag, const char *what)
{
    int sqlite = sqlite3_errcode(store->db) & 0xff;
    /* SQLite does not keep the errno of a failed commit; fa_db_step() has cleared it before. */
    int last = errno, code = FA_EIO;
    int error = sqlite3_system_errno(store->db) != 0 ? sqlite3_system_errno(store->db) : last;
    const char *advice = "reading or writing failed: look at the disk";
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        if (meanings[i].sqlite == sqlite) {
            code = meanings[i].code;
            advice = meanings[i].advice;
        }
    }
    /* An I/O error carries its errno; a full disk may show itself this way too. */
    if ((sqlite == SQLITE_IOERR || sqlite == SQLITE_CANTOPEN) && error != 0) {
        code = fa_db_errno(error) == FA_ENOTFOUND ? FA_EIO : fa_db_errno(error);
        advice = code == FA_EFULL ? meanings[0].advice : strerror(error);
    }
    if (sqlite == SQLITE_CORRUPT || sqlite == SQLITE_NOTADB)
        store->damaged = true;
    return fa_fail(diag, code, "store %s: %s: %s (SQLite: %s)", store->path, what, advice,
                   sqlite3_errmsg(store->db));
}

/* ---- statements -----------------------------------------------------------------------------*/
int fa_db_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    errno = 0;
    if (sqlite3_exec(store->db, sql, NULL, NULL, NULL) == SQLITE_OK)
        return 0;
    return fa_db_fail(store, diag, "a command failed");
}

int fa_db_pragma_int(fa_store *store, const char *sql, int *ret_sqlite_rc)
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

int fa_db_statement(fa_store *store, fa_db_slot slot, const char *sql, sqlite3_stmt **ret_statement,
                    fa_diag *diag)
{
    sqlite3_stmt **kept = &store->statement[slot];
    *ret_statement = NULL;
    errno = 0;
    if (*kept == NULL &&
        sqlite3_prepare_v3(store->db, sql, -1, SQLITE_PREPARE_PERSISTENT, kept, NULL) != SQLITE_OK)
        return fa_db_fail(store, diag, "a command was not understood");
    fa_db_reset(*kept);
    *ret_statement = *kept;
    return 0;
}

int fa_db_step(fa_store *store, sqlite3_stmt *statement, fa_diag *diag)
{
    errno = 0;
    int sqlite = sqlite3_step(statement);
    if (sqlite == SQLITE_ROW)
        return 1;
    int rc = sqlite == SQLITE_DONE ? 0 : fa_db_fail(store, diag, "a command failed");
    fa_db_reset(statement);
    return rc;
}

void fa_db_reset(sqlite3_stmt *statement)
{
    if (statement == NULL)
        return;
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
}

int fa_db_collect_ids(fa_store *store, sqlite3_stmt *statement, int64_t **ret_ids,
                      size_t *ret_count, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0, capacity = 0;
    int rc;
    while ((rc = fa_db_step(store, statement, diag)) == 1) {
        if (count == capacity) {
            capacity = capacity * 2 + 64;
            int64_t *more = realloc(ids, capacity * sizeof *ids);
            if (more == NULL) {
                fa_db_reset(statement);
                rc = fa_fail(diag, FA_ENOMEM, "out of memory");
                break;
            }
            ids = more;
        }
        ids[count++] = sqlite3_column_int64(statement, 0);
    }
    if (rc != 0) {
        free(ids);
        return rc;
    }
    *ret_ids = ids;
    *ret_count = count;
    return 0;
}

int fa_db_ids(fa_store *store, fa_db_slot slot, const char *sql, int64_t **ret_ids,
              size_t *ret_count, fa_diag *diag)
{
    sqlite3_stmt *statement;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_statement(store, slot, sql, &statement, diag);
    return rc != 0 ? rc : fa_db_collect_ids(store, statement, ret_ids, ret_count, diag);
}

int fa_db_row(fa_store *store, fa_db_slot slot, const char *sql, int64_t id, fa_reader *ret_reader,
              fa_diag *diag)
{
    sqlite3_stmt *statement;
    int rc = fa_db_statement(store, slot, sql, &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, id);
    rc = fa_db_step(store, statement, diag);
    if (rc == 1)
        *ret_reader = (fa_reader){.statement = statement, .ok = true};
    return rc;
}

/* ---- transactions ---------------------------------------------------------------------------*/
static int run(fa_store *store, fa_db_slot slot, const char *sql, fa_diag *diag)
{
    sqlite3_stmt *statement;
    int rc = fa_db_statement(store, slot, sql, &statement, diag);
    return rc != 0 ? rc : fa_db_step(store, statement, diag);
}

/* A rollback journal, not WAL: WAL's readers must write beside the file, its locks live in shared
 * memory, and before SQLite 3.51.3 two checkpointers can corrupt the file. TRUNCATE keeps the
 * journal's directory entry, and readers take an empty journal for none with one stat(). */
static int is_truncate(void *context, int columns, char **values, char **names)
{
    (void)names;
    *(bool *)context = columns == 1 && values[0] != NULL && strcmp(values[0], "truncate") == 0;
    return 0;
}

/* Also turns a file back that another program has switched to WAL. */
static int prepare_journal(fa_store *store, fa_diag *diag)
{
    if (store->journal_ready)
        return 0;
    bool good = false;
    errno = 0;
    if (sqlite3_exec(store->db, "PRAGMA journal_mode = TRUNCATE", is_truncate, &good, NULL) !=
        SQLITE_OK)
        return fa_db_fail(store, diag, "its journal cannot be prepared");
    if (!good)
        return fa_fail(diag, FA_EBUSY,
                       "store %s: another program uses it with another kind of "
                       "journal; close that first",
                       store->path);
    /* Flushing empty tables would cost a first caller as much as everything else together. Should the
     * power fail before the first commit that counts, and flushes them too, the file is found
     * damaged and set aside with nothing in it. */
    int rc = fa_db_exec(store, store->fresh ? "PRAGMA synchronous = OFF"
                                            : "PRAGMA synchronous = FULL",
                        diag);
    store->journal_ready = rc == 0;
    return rc;
}

int fa_db_write(fa_store *store, fa_db_body *body, void *context, fa_diag *diag)
{
    if (store->read_only)
        return fa_fail(diag, FA_EREADONLY, "store %s was opened for reading only", store->path);
    if (store->batching) /* inside fa_store_batch, whose transaction this joins */
        return body(store, context, diag);
    int rc = prepare_journal(store, diag);
    if (rc == 0)
        rc = run(store, FA_SQL_BEGIN, "BEGIN IMMEDIATE", diag);
    if (rc == 0)
        rc = body(store, context, diag);
    if (rc == 0)
        rc = run(store, FA_SQL_COMMIT, "COMMIT", diag);
    /* Some errors have rolled back already. A rollback that fails leaves a hot journal, which the
     * next to open the file plays back; so the connection is given up. */
    if (rc != 0 && sqlite3_get_autocommit(store->db) == 0 &&
        run(store, FA_SQL_ROLLBACK, "ROLLBACK", NULL) != 0)
        fa_db_disconnect(store);
    return rc;
}

int fa_db_change(fa_store *store, fa_db_body *body, void *context, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? rc : fa_db_write(store, body, context, diag);
}

struct batch {
    fa_store_body *body;
    void *context;
};

static int run_batch(fa_store *store, void *context, fa_diag *diag)
{
    struct batch *batch = context;
    store->batching = true;
    int rc = batch->body(batch->context, diag);
    store->batching = false;
    return rc;
}

int fa_store_batch(fa_store *store, fa_store_body *body, void *context, fa_diag *diag)
{
    struct batch batch = {body, context};
    return fa_db_change(store, run_batch, &batch, diag);
}

/* ---- binding --------------------------------------------------------------------------------*/
static void note(fa_binder *binder, int sqlite)
{
    if (binder->rc == 0 && sqlite != SQLITE_OK)
        binder->rc = sqlite == SQLITE_NOMEM ? FA_ENOMEM : FA_EINVAL;
}

void fa_bind_int(fa_binder *binder, int64_t value)
{
    note(binder, sqlite3_bind_int64(binder->statement, ++binder->index, value));
}

void fa_bind_real(fa_binder *binder, double value)
{
    note(binder, sqlite3_bind_double(binder->statement, ++binder->index, value));
}

void fa_bind_text(fa_binder *binder, const char *text)
{
    note(binder, sqlite3_bind_text(binder->statement, ++binder->index, text, -1, SQLITE_STATIC));
}

void fa_bind_blob(fa_binder *binder, const void *bytes, size_t size)
{
    note(binder,
         sqlite3_bind_blob64(binder->statement, ++binder->index, bytes, size, SQLITE_STATIC));
}

/* ---- reading --------------------------------------------------------------------------------*/
int64_t fa_read_int(fa_reader *reader, int64_t low, int64_t high)
{
    int column = reader->column++;
    int64_t value = sqlite3_column_int64(reader->statement, column);
    if (sqlite3_column_type(reader->statement, column) == SQLITE_INTEGER && value >= low &&
        value <= high)
        return value;
    reader->ok = false;
    return low;
}

double fa_read_real(fa_reader *reader, double when_null)
{
    int column = reader->column++;
    int type = sqlite3_column_type(reader->statement, column);
    if (type == SQLITE_NULL)
        return when_null;
    if (type != SQLITE_FLOAT)
        reader->ok = false;
    return sqlite3_column_double(reader->statement, column);
}

const char *fa_read_text(fa_reader *reader, bool may_be_null)
{
    int column = reader->column++;
    int type = sqlite3_column_type(reader->statement, column);
    if (type == SQLITE_NULL && may_be_null)
        return NULL;
    const char *text =
        type == SQLITE_TEXT ? (const char *)sqlite3_column_text(reader->statement, column) : NULL;
    /* A NUL inside would hide the rest from whoever compares it as a C string. */
    if (text != NULL && strlen(text) == (size_t)sqlite3_column_bytes(reader->statement, column))
        return text;
    reader->ok = false;
    return "";
}

void fa_read_copy(fa_reader *reader, char *ret_text, size_t size)
{
    const char *text = fa_read_text(reader, false);
    size_t length = strlen(text);
    if (length >= size) {
        reader->ok = false;
        length = 0;
    }
    memcpy(ret_text, text, length);
    ret_text[length] = 0;
}

const void *fa_read_blob(fa_reader *reader, size_t limit, size_t *ret_size)
{
    int column = reader->column++;
    if (sqlite3_column_type(reader->statement, column) != SQLITE_BLOB) {
        reader->ok = false;
        *ret_size = 0;
        return NULL;
    }
    const void *bytes = sqlite3_column_blob(reader->statement, column);
    *ret_size = (size_t)sqlite3_column_bytes(reader->statement, column);
    if (*ret_size > limit || (bytes == NULL && *ret_size != 0)) {
        reader->ok = false;
        *ret_size = 0;
    }
    return bytes;
}
