/* SPDX-License-Identifier: Apache-2.0
 *
 * Values into a prepared statement of PostgreSQL's and out of its rows. Whole numbers go in as
 * text, all else as the bytes that it is; everything comes back in binary, so no locale is in the
 * way.
 */
#include "postgres_values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Types of columns, from the server's catalogue pg_type. */
enum {
    TYPE_BYTES = 17,
    TYPE_INT8 = 20,
    TYPE_INT2 = 21,
    TYPE_INT4 = 23,
    TYPE_TEXT = 25,
    TYPE_FLOAT8 = 701,
    TYPE_VARCHAR = 1043
};

/* ---- binding --------------------------------------------------------------------------------*/
/* How long the character at text is, in UTF-8; 0: it is none, or one that the server refuses. */
static size_t character(const unsigned char *text, size_t left)
{
    unsigned char c = text[0];
    size_t size = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (size == 0 || size > left || c == 0)
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    if (size > 2) { /* overlong, surrogates, beyond the last character */
        unsigned second = text[1];
        if ((c == 0xe0 && second < 0xa0) || (c == 0xed && second > 0x9f) ||
            (c == 0xf0 && second < 0x90) || (c == 0xf4 && second > 0x8f))
            return 0;
    }
    return size;
}

char *fa_postgres_utf8(const char *text, size_t size)
{
    char *copy = malloc(size + 1);
    for (size_t i = 0; copy != NULL && i < size;) {
        size_t bytes = character((const unsigned char *)text + i, size - i);
        if (bytes == 0)
            copy[i] = '?';
        else
            memcpy(copy + i, text + i, bytes);
        i += bytes == 0 ? 1 : bytes;
    }
    if (copy != NULL)
        copy[size] = 0;
    return copy;
}

static int bind_bytes(struct fa_prepared *prepared, int i, const fa_value *value)
{
    if (value->size > 2 * FA_STORE_CUBIN_MAX)
        return FA_EINVAL;
    prepared->values[i] = value->bytes;
    prepared->sizes[i] = (int)value->size;
    prepared->formats[i] = 1;
    if (value->kind == FA_VALUE_BLOB)
        return 0;
    prepared->values[i] = prepared->copies[i] = fa_postgres_utf8(value->bytes, value->size);
    return prepared->copies[i] != NULL ? 0 : FA_ENOMEM;
}

static void put_big_endian(char ret_bytes[8], double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    for (int i = 0; i < 8; i++)
        ret_bytes[i] = (char)(bits >> (56 - 8 * i) & 0xff);
}

int fa_postgres_bind(fa_statement *statement, int place, const fa_value *value)
{
    struct fa_prepared *prepared = statement->handle;
    int i = place - 1;
    if (prepared == NULL)
        return FA_EIO;
    if (i < 0 || i >= FA_POSTGRES_PLACES)
        return FA_EINVAL;
    if (place > prepared->bound)
        prepared->bound = place;
    prepared->values[i] = prepared->numbers[i];
    prepared->formats[i] = 0;
    switch (value->kind) {
    case FA_VALUE_NULL:
        prepared->values[i] = NULL;
        return 0;
    case FA_VALUE_INT:
        snprintf(prepared->numbers[i], FA_POSTGRES_NUMBER, "%lld", (long long)value->integer);
        return 0;
    case FA_VALUE_REAL:
        put_big_endian(prepared->numbers[i], value->real);
        prepared->sizes[i] = 8;
        prepared->formats[i] = 1;
        return 0;
    case FA_VALUE_TEXT:
    case FA_VALUE_BLOB:
        return bind_bytes(prepared, i, value);
    case FA_VALUE_OTHER:
    case FA_VALUE_NO_MEMORY:
        break;
    }
    return FA_EINVAL;
}

/* ---- reading --------------------------------------------------------------------------------*/
/* A number of `size` bytes as it comes over the network, signed. */
static int64_t big_endian(const char *bytes, int size)
{
    uint64_t value = (signed char)bytes[0] < 0 ? UINT64_MAX : 0;
    for (int i = 0; i < size; i++)
        value = value << 8 | (unsigned char)bytes[i];
    return (int64_t)value;
}

void fa_postgres_column(fa_statement *statement, int index, fa_value *ret_value)
{
    const struct fa_prepared *prepared = statement->handle;
    fa_value value = {.kind = FA_VALUE_OTHER};
    *ret_value = value;
    if (prepared == NULL || prepared->result == NULL ||
        index >= prepared->pq->nfields(prepared->result) ||
        prepared->row >= prepared->pq->ntuples(prepared->result))
        return;
    const fa_pq *pq = prepared->pq;
    const PGresult *result = prepared->result;
    const char *bytes = pq->getvalue(result, prepared->row, index);
    int size = pq->getlength(result, prepared->row, index);
    Oid type = pq->ftype(result, index);
    if (pq->getisnull(result, prepared->row, index)) {
        value.kind = FA_VALUE_NULL;
    } else if ((type == TYPE_INT8 && size == 8) || (type == TYPE_INT4 && size == 4) ||
               (type == TYPE_INT2 && size == 2)) {
        value.kind = FA_VALUE_INT;
        value.integer = big_endian(bytes, size);
    } else if (type == TYPE_FLOAT8 && size == 8) {
        int64_t bits = big_endian(bytes, size);
        memcpy(&value.real, &bits, sizeof bits);
        /* SQLite has no NaN, and nothing of ours stores one. */
        value.kind = isnan(value.real) ? FA_VALUE_NULL : FA_VALUE_REAL;
    } else if (type == TYPE_TEXT || type == TYPE_VARCHAR || type == TYPE_BYTES) {
        value.kind = type == TYPE_BYTES ? FA_VALUE_BLOB : FA_VALUE_TEXT;
        value.bytes = bytes; /* libpq puts a NUL behind it */
        value.size = (size_t)size;
    }
    *ret_value = value;
}
