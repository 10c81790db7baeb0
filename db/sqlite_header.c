/* SPDX-License-Identifier: Apache-2.0
 *
 * The header is read by SQLite's own calls: closing any other descriptor of a file would drop every
 * lock that this process holds on it.
 */
#include "sqlite_header.h"

#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

static uint32_t big_endian(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
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
    sqlite3_file *file = NULL;
    sqlite3_int64 size = 0;
    unsigned char header[100] = {0};
    if (sqlite3_file_control(db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL ||
        file->pMethods->xFileSize(file, &size) != SQLITE_OK)
        return FA_EIO;
    if (size == 0) {
        *ret_kind = is_one_byte(db) ? FA_HEADER_UNKNOWN : FA_HEADER_EMPTY;
        return 0;
    }
    int rc = file->pMethods->xRead(file, header, sizeof header, 0);
    if (rc != SQLITE_OK && rc != SQLITE_IOERR_SHORT_READ)
        return FA_EIO;
    *ret_version = big_endian(header + 60);
    if (size < 100 || memcmp(header, "SQLite format 3", 16) != 0)
        *ret_kind = FA_HEADER_UNKNOWN;
    else if (big_endian(header + 68) != FA_STORE_APPLICATION_ID)
        *ret_kind = FA_HEADER_FOREIGN;
    else
        *ret_kind = *ret_version == FA_STORE_SCHEMA ? FA_HEADER_OURS : FA_HEADER_OTHER_VERSION;
    return 0;
}

int fa_db_read_header(fa_store *store, fa_sqlite_header *ret_kind, uint32_t *ret_version,
                      fa_diag *diag)
{
    int rc = read_header(store->db, ret_kind, ret_version);
    return rc != 0 ? fa_fail(diag, rc, "store %s: cannot be read", store->path) : 0;
}

bool fa_sqlite_is_empty(fa_store *store)
{
    sqlite3_file *file = NULL;
    sqlite3_int64 size = -1;
    return sqlite3_file_control(store->db, "main", SQLITE_FCNTL_FILE_POINTER, &file) == SQLITE_OK &&
           file != NULL && file->pMethods != NULL &&
           file->pMethods->xFileSize(file, &size) == SQLITE_OK && size == 0;
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
