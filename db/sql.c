/* SPDX-License-Identifier: Apache-2.0
 *
 * SQL made safe to use, whatever runs it: statements prepared once, one kind of write transaction,
 * and checked reading of columns.
 */
#include "internal.h"

#include "../src/base/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- statements -----------------------------------------------------------------------------*/
int fa_db_exec(fa_store *store, const char *sql, fa_diag *diag)
{
    return store->backend->exec(store, sql, diag);
}

int fa_db_statement(fa_store *store, fa_db_slot slot, const char *sql, fa_statement **ret_statement,
                    fa_diag *diag)
{
    fa_statement *kept = &store->statement[slot];
    *ret_statement = NULL;
    if (kept->handle == NULL) {
        int rc = store->backend->prepare(store, slot, sql, diag);
        if (rc != 0)
            return rc;
        kept->backend = store->backend;
    }
    fa_db_reset(kept);
    *ret_statement = kept;
    return 0;
}

int fa_db_step(fa_store *store, fa_statement *statement, fa_diag *diag)
{
    int rc = store->backend->step(store, statement, diag);
    if (rc != 1)
        fa_db_reset(statement);
    return rc;
}

void fa_db_reset(fa_statement *statement)
{
    if (statement != NULL && statement->handle != NULL)
        statement->backend->reset(statement);
}

int fa_db_notify(fa_store *store, fa_diag *diag)
{
    return store->backend->notify(store, diag);
}

int64_t fa_db_changes(fa_store *store)
{
    return store->backend->changes(store);
}

int fa_db_run(fa_store *store, const fa_binder *binder, fa_diag *diag)
{
    if (binder->rc == 0)
        return fa_db_step(store, binder->statement, diag);
    fa_db_reset(binder->statement);
    return fa_fail(diag, binder->rc, "%s",
                   binder->rc == FA_ENOMEM ? "out of memory" : "a value cannot be stored");
}

int fa_db_run_on(fa_store *store, fa_db_slot slot, const char *sql, int64_t value, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_statement(store, slot, sql, &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, value);
    return fa_db_run(store, &binder, diag);
}

int fa_db_run_id(fa_store *store, const fa_binder *binder, int64_t *ret_id, fa_diag *diag)
{
    int rc = fa_db_run(store, binder, diag);
    if (rc < 0)
        return rc;
    fa_value value = {0};
    if (rc == 1)
        store->backend->column(binder->statement, 0, &value);
    fa_db_reset(binder->statement);
    *ret_id = value.kind == FA_VALUE_INT ? value.integer : 0;
    return 0;
}

int fa_db_collect_ids(fa_store *store, fa_statement *statement, int64_t **ret_ids,
                      size_t *ret_count, fa_diag *diag)
{
    int64_t *ids = NULL;
    size_t count = 0, capacity = 0;
    int rc;
    while ((rc = fa_db_step(store, statement, diag)) == 1) {
        int64_t *grown = fa_grow(ids, &capacity, count, sizeof *ids);
        if (grown == NULL) {
            fa_db_reset(statement);
            rc = fa_fail(diag, FA_ENOMEM, "out of memory");
            break;
        }
        ids = grown;
        fa_value value;
        store->backend->column(statement, 0, &value);
        ids[count++] = value.kind == FA_VALUE_INT ? value.integer : 0;
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
    fa_statement *statement;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_statement(store, slot, sql, &statement, diag);
    return rc != 0 ? rc : fa_db_collect_ids(store, statement, ret_ids, ret_count, diag);
}

int fa_db_ids_of(fa_store *store, fa_db_slot slot, const char *sql, int64_t of, int64_t **ret_ids,
                 size_t *ret_count, fa_diag *diag)
{
    fa_statement *statement;
    int rc = fa_db_enter(store, diag);
    if (rc == 0)
        rc = fa_db_statement(store, slot, sql, &statement, diag);
    if (rc != 0)
        return rc;
    fa_binder binder = {.statement = statement};
    fa_bind_int(&binder, of);
    return fa_db_collect_ids(store, statement, ret_ids, ret_count, diag);
}

int fa_db_row(fa_store *store, fa_db_slot slot, const char *sql, int64_t id, fa_reader *ret_reader,
              fa_diag *diag)
{
    fa_statement *statement;
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
static int write_once(fa_store *store, fa_db_body *body, void *context, fa_diag *diag)
{
    store->conflict = false;
    int rc = store->backend->begin(store, diag);
    if (rc == 0)
        rc = body(store, context, diag);
    if (rc == 0)
        rc = store->backend->commit(store, diag);
    if (rc != 0)
        store->backend->rollback(store);
    return rc;
}

static int run_batch(fa_store *store, void *context, fa_diag *diag);

/* Our bodies set what they answer anew each time, so they may run again; a caller's may not. */
int fa_db_write(fa_store *store, fa_db_body *body, void *context, fa_diag *diag)
{
    enum { TRIES = 8 };
    if (store->read_only)
        return fa_fail(diag, FA_EREADONLY, "store %s was opened for reading only", store->path);
    if (store->batching) /* inside fa_store_batch, whose transaction this joins */
        return body(store, context, diag);
    int rc = 0;
    for (int i = 0; i < TRIES; i++) {
        rc = write_once(store, body, context, diag);
        if (rc == 0 || !store->conflict || body == run_batch)
            break;
    }
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
static void bind(fa_binder *binder, const fa_value *value)
{
    int rc = binder->statement->backend->bind(binder->statement, ++binder->index, value);
    if (binder->rc == 0)
        binder->rc = rc;
}

void fa_bind_int(fa_binder *binder, int64_t value)
{
    bind(binder, &(fa_value){.kind = FA_VALUE_INT, .integer = value});
}

void fa_bind_real(fa_binder *binder, double value)
{
    bind(binder, &(fa_value){.kind = isnan(value) ? FA_VALUE_NULL : FA_VALUE_REAL, .real = value});
}

static void bind_text(fa_binder *binder, const char *text, size_t size, bool copy)
{
    fa_value value = {.kind = FA_VALUE_TEXT, .bytes = text, .size = size, .copy = copy};
    bind(binder, text != NULL ? &value : &(fa_value){.kind = FA_VALUE_NULL});
}

void fa_bind_text(fa_binder *binder, const char *text)
{
    bind_text(binder, text, text != NULL ? strlen(text) : 0, false);
}

void fa_bind_text_start(fa_binder *binder, const char *text, size_t size)
{
    bind_text(binder, text, text != NULL ? strnlen(text, size) : 0, false);
}

void fa_bind_copy(fa_binder *binder, const char *text)
{
    bind_text(binder, text, text != NULL ? strlen(text) : 0, true);
}

void fa_bind_blob(fa_binder *binder, const void *bytes, size_t size)
{
    fa_value value = {.kind = FA_VALUE_BLOB, .bytes = bytes, .size = size};
    bind(binder, bytes != NULL ? &value : &(fa_value){.kind = FA_VALUE_NULL});
}

/* ---- reading --------------------------------------------------------------------------------*/
static fa_value next(fa_reader *reader)
{
    fa_value value;
    reader->statement->backend->column(reader->statement, reader->column++, &value);
    return value;
}

int64_t fa_read_int(fa_reader *reader, int64_t low, int64_t high)
{
    fa_value value = next(reader);
    if (value.kind == FA_VALUE_INT && value.integer >= low && value.integer <= high)
        return value.integer;
    reader->ok = false;
    return low;
}

double fa_read_real(fa_reader *reader, double when_null)
{
    fa_value value = next(reader);
    if (value.kind == FA_VALUE_REAL)
        return value.real;
    if (value.kind != FA_VALUE_NULL)
        reader->ok = false;
    return when_null;
}

const char *fa_read_text(fa_reader *reader, bool may_be_null)
{
    fa_value value = next(reader);
    if (value.kind == FA_VALUE_NULL && may_be_null)
        return NULL;
    /* A NUL inside would hide the rest from whoever compares it as a C string. */
    if (value.kind == FA_VALUE_TEXT && strlen(value.bytes) == value.size)
        return value.bytes;
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
    fa_value value = next(reader);
    *ret_size = value.kind == FA_VALUE_BLOB ? value.size : 0;
    if (value.kind != FA_VALUE_BLOB || value.size > limit ||
        (value.bytes == NULL && value.size != 0)) {
        reader->ok = false;
        *ret_size = 0;
    }
    return value.kind == FA_VALUE_BLOB ? value.bytes : NULL;
}
