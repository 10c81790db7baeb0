/* SPDX-License-Identifier: Apache-2.0
 *
 * The bytes may be hostile. SQLite reads them in memory, where nothing of the file system is touched, without
 * trust in their schema; before any row is read their tables are compared with ours, so that no view, trigger,
 * index or generated column of somebody else's is ever run; then its own check goes over every page.
 */
#include "store.h"

#include "sqlite.h"
#include "statements.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PAGE_SIZE_BYTES = 4096 };

static int enter(fa_store *store, fa_diag *diag)
{
    return store->db != NULL ? 0 : fa_fail(diag, FA_EIO, "store %s: it was given up", store->path);
}

/* A connection of its own to what `name` names; closed with fa_store_close(). */
static int connect_to(const char *name, int flags, const char *path, fa_store **ret_store,
                      fa_diag *diag)
{
    fa_store *store = calloc(1, sizeof *store);
    if (store == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    store->backend = &fa_sqlite_backend;
    store->enter = enter;
    store->close = fa_sqlite_disconnect;
    store->pid = getpid();
    store->absent = true;
    store->journal_ready = true;
    store->read_only = (flags & SQLITE_OPEN_READONLY) != 0;
    snprintf(store->file, sizeof store->file, "in %.4000s", path);
    store->path = store->file;
    int rc = fa_sqlite_connect(store, name, flags, diag);
    if (rc != 0) {
        fa_store_close(&store);
        return rc;
    }
    *ret_store = store;
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------*/
int fa_portable_new(fa_store **ret_store, fa_diag *diag)
{
    fa_store *store = NULL;
    char pragmas[160];
    snprintf(pragmas, sizeof pragmas,
             "PRAGMA page_size = %d; PRAGMA encoding = 'UTF-8'; PRAGMA auto_vacuum = NONE;"
             "PRAGMA user_version = %d; PRAGMA application_id = %d;",
             PAGE_SIZE_BYTES, FA_STORE_SCHEMA, FA_BUNDLE_APPLICATION_ID);
    int rc = connect_to(":memory:", SQLITE_OPEN_READWRITE, "a bundle", &store, diag);
    if (rc == 0)
        rc = fa_db_exec(store, pragmas, diag);
    if (rc == 0)
        rc = fa_db_exec(store, fa_db_portable_schema, diag);
    if (rc != 0)
        fa_store_close(&store);
    *ret_store = store;
    return rc;
}

int fa_portable_print(fa_store *store, fa_buf *out, fa_diag *diag)
{
    sqlite3_int64 size = 0;
    int rc = fa_db_enter(store, diag);
    if (rc != 0)
        return rc;
    unsigned char *bytes = sqlite3_serialize(store->db, "main", &size, 0);
    fa_buf_append(out, bytes, bytes != NULL ? (size_t)size : 0);
    rc = bytes == NULL || out->failed ? fa_fail(diag, FA_ENOMEM, "out of memory for a bundle") : 0;
    sqlite3_free(bytes);
    return rc;
}

/* ---- reading --------------------------------------------------------------------------------*/
int fa_portable_check(const unsigned char header[FA_PORTABLE_HEADER], size_t size,
                      uint32_t *ret_version)
{
    const fa_sqlite_header kind = fa_sqlite_kind(header, ret_version);
    if (kind != FA_HEADER_BUNDLE)
        return kind == FA_HEADER_OURS || kind == FA_HEADER_OTHER_VERSION ? FA_ESTORE : FA_ECORRUPT;
    if (*ret_version != FA_STORE_SCHEMA)
        return FA_EVERSION;
    bool ours =
        fa_sqlite_number(header + 16, 2) == PAGE_SIZE_BYTES &&
        fa_sqlite_number(header + 18, 3) == 0x010100 && /* a rollback journal, no tail of pages */
        fa_sqlite_number(header + 56, 4) == SQLITE_UTF8 &&
        memcmp(header + 24, header + 92, 4) == 0 && /* the number of pages counts */
        (uint64_t)fa_sqlite_number(header + 28, 4) * PAGE_SIZE_BYTES == size;
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
    fa_store *made = NULL;
    fa_buf ours = {0}, theirs = {0};
    int rc;
    if ((rc = fa_portable_new(&made, diag)) == 0 && (rc = print_schema(made, &ours, diag)) == 0 &&
        (rc = print_schema(store, &theirs, diag)) == 0 &&
        (ours.size != theirs.size || memcmp(ours.data, theirs.data, ours.size) != 0))
        rc = fa_fail(diag, FA_ECORRUPT, "store %s: its tables are not those of a bundle",
                     store->path);
    fa_buf_free(&ours);
    fa_buf_free(&theirs);
    fa_store_close(&made);
    return rc;
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
    fa_store *store = NULL;
    char uri[3 * PATH_MAX + 32] = ":memory:";
    int rc;
    if ((bytes == NULL && (rc = uri_of(path, uri, sizeof uri, diag)) != 0) ||
        (rc = connect_to(uri, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, path, &store, diag)) != 0)
        return rc;
    if (bytes != NULL && sqlite3_deserialize(store->db, "main", (unsigned char *)(uintptr_t)bytes,
                                             (sqlite3_int64)size, (sqlite3_int64)size,
                                             SQLITE_DESERIALIZE_READONLY) != SQLITE_OK)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a bundle"); /* it looks at no byte yet */
    else
        rc = check_tables(store, diag);
    if (rc == 0 && bytes != NULL)
        rc = fa_sqlite_check_pages(store, "PRAGMA integrity_check(1)", diag);
    if (rc != 0)
        fa_store_close(&store);
    *ret_store = store;
    return rc;
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
