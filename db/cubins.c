/* SPDX-License-Identifier: Apache-2.0
 *
 * Compiled kernels by key. The bytes lie beside their hash and are never handed out without
 * having been compared with it: they would be run on the caller's GPU.
 */
#include "rows.h"

#include <stdlib.h>
#include <string.h>

static const char get_sql[] =
    "SELECT " FA_CUBIN_COLUMNS " FROM cubin AS found" FA_CUBIN_ROW "WHERE found.key = ?";

int fa_db_cubin_check(const fa_cubin_record *record, fa_diag *diag)
{
    if (record == NULL || memchr(record->key, 0, sizeof record->key) == NULL ||
        record->key[0] == 0 || memchr(record->entry, 0, sizeof record->entry) == NULL)
        return fa_fail(diag, FA_EINVAL, "a cubin needs a key and an entry that end");
    if (record->bytes == NULL || record->size == 0 || record->size > FA_STORE_CUBIN_MAX)
        return fa_fail(diag, FA_EINVAL, "a cubin has %zu bytes: 1 to %d can be stored",
                       record->size, FA_STORE_CUBIN_MAX);
    return 0;
}

/* A statement about one cubin. */
static fa_binder about_key(fa_store *store, const char *sql, const char *key, fa_diag *diag)
{
    fa_binder binder = fa_db_prepare(store, sql, diag);
    fa_bind(&binder, fa_text(key));
    return binder;
}

int fa_db_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag)
{
    fa_binder binder = about_key(store, "SELECT 1 FROM cubin WHERE key = ?", key, diag);
    return fa_db_run_exists(store, &binder, ret_exists, diag);
}

void fa_db_cubin_read(fa_reader *reader, const char *key, fa_cubin_record *ret_record)
{
    fa_cubin_record record = {0};
    char stored[FA_HASH_HEX], now[FA_HASH_HEX];
    fa_read_copy(reader, record.key, sizeof record.key);
    fa_read_copy(reader, record.entry, sizeof record.entry);
    record.sm = (int32_t)fa_read_int(reader, 0, INT32_MAX);
    record.compile_ms = fa_read_real(reader, 0);
    record.log = fa_read_owned(reader);
    fa_read_copy(reader, stored, sizeof stored);
    const void *bytes = fa_read_blob(reader, FA_STORE_CUBIN_MAX, &record.size);
    if (reader->rc == 0) {
        fa_hash_bytes(bytes, record.size, now);
        if (record.size == 0 || strcmp(record.key, key) != 0 || strcmp(stored, now) != 0)
            fa_read_fail(reader, FA_ECORRUPT);
    }
    if (reader->rc == 0 && (record.bytes = malloc(record.size)) == NULL)
        fa_read_fail(reader, FA_ENOMEM);
    if (reader->rc != 0) {
        fa_cubin_record_free(&record);
        return;
    }
    memcpy(record.bytes, bytes, record.size);
    *ret_record = record;
}

/* FA_ENOTFOUND when there is none, FA_ECORRUPT when it was read whole and is not what was stored. */
static int get_cubin(fa_store *store, const char *key, fa_cubin_record *ret_record, fa_diag *diag)
{
    fa_reader reader;
    fa_binder binder = about_key(store, get_sql, key, diag);
    int rc = fa_db_run_row(store, &binder, &reader, diag);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return fa_fail(diag, FA_ENOTFOUND, "store %s has no cubin %s", store->path, key);
    fa_db_cubin_read(&reader, key, ret_record);
    rc = fa_read_end(&reader, diag);
    if (rc == 0)
        return fa_fail(diag, FA_ECORRUPT,
                       "store %s: cubin %s does not match its hash and was discarded; it will "
                       "be compiled again",
                       store->path, key);
    return rc < 0 ? rc : 0;
}

static int delete_key(fa_store *store, const char *key, fa_diag *diag)
{
    fa_binder binder = about_key(store, "DELETE FROM cubin WHERE key = ?", key, diag);
    return fa_db_run(store, &binder, diag);
}

/* Looks again inside the transaction: another process may have stored a good one since. */
static int drop_body(fa_store *store, void *context, fa_diag *diag)
{
    fa_cubin_record record = {0};
    int rc = get_cubin(store, context, &record, diag);
    fa_cubin_record_free(&record);
    if (rc == FA_ECORRUPT && !store->damaged)
        return delete_key(store, context, diag);
    return rc == FA_ENOTFOUND ? 0 : rc;
}

void fa_db_cubin_drop(fa_store *store, const char *key)
{
    if (!store->read_only && !store->damaged)
        fa_db_write(store, drop_body, (void *)(uintptr_t)key, NULL);
}

/* A cubin that is stored and sound stays: its proof is about its very bytes. */
int fa_db_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag)
{
    fa_cubin_record earlier = {0};
    int rc = get_cubin(store, record->key, &earlier, diag);
    fa_cubin_record_free(&earlier);
    if (rc == 0)
        return 0;
    if (rc == FA_ECORRUPT && !store->damaged)
        rc = delete_key(store, record->key, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    char hash[FA_HASH_HEX];
    fa_hash_bytes(record->bytes, record->size, hash);
    fa_binder binder =
        fa_db_prepare(store,
                      "INSERT INTO cubin (key, entry, sm, compile_ms, log, hash, unix_time, bytes) "
                      "VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (key) DO NOTHING",
                      diag);
    fa_bind(&binder, fa_text(record->key), fa_text(record->entry), fa_int(record->sm),
            fa_real(record->compile_ms));
    /* A compiler log of more than a megabyte is cut. */
    fa_bind(&binder, fa_text_start(record->log, FA_STORE_TEXT_MAX), fa_text(hash));
    if (store->absent)
        fa_bind(&binder, fa_int(0)); /* the same content of a bundle gives the same bytes */
    else
        fa_bind(&binder, fa_now());
    fa_bind(&binder, fa_blob(record->bytes, record->size));
    return fa_db_run(store, &binder, diag);
}

static int put_body(fa_store *store, void *context, fa_diag *diag)
{
    return fa_db_cubin_put(store, context, diag);
}

int fa_store_cubin_put(fa_store *store, const fa_cubin_record *record, fa_diag *diag)
{
    int rc = fa_db_cubin_check(record, diag);
    return rc != 0 ? rc : fa_db_change(store, put_body, (void *)(uintptr_t)record, diag);
}

int fa_store_cubin_get(fa_store *store, const char *key, fa_cubin_record *ret_record, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    if (rc != 0)
        return rc;
    if (key == NULL || key[0] == 0)
        return fa_fail(diag, FA_EINVAL, "no cubin key given");
    rc = get_cubin(store, key, ret_record, diag);
    if (rc == FA_ECORRUPT)
        fa_db_cubin_drop(store, key);
    return rc;
}

int fa_store_cubin_exists(fa_store *store, const char *key, bool *ret_exists, fa_diag *diag)
{
    int rc = fa_db_enter(store, diag);
    return rc != 0 ? rc : fa_db_cubin_exists(store, key, ret_exists, diag);
}

void fa_cubin_record_free(fa_cubin_record *record)
{
    if (record == NULL)
        return;
    free(record->bytes);
    free(record->log);
    record->bytes = NULL;
    record->log = NULL;
    record->size = 0;
}
