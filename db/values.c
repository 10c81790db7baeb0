/* SPDX-License-Identifier: Apache-2.0 */
#include "statements.h"

#include "json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- binding --------------------------------------------------------------------------------*/
fa_value fa_int(int64_t value)
{
    return (fa_value){.kind = FA_VALUE_INT, .integer = value};
}

fa_value fa_real(double value)
{
    return (fa_value){.kind = isnan(value) ? FA_VALUE_NULL : FA_VALUE_REAL, .real = value};
}

fa_value fa_text_start(const char *text, size_t size)
{
    if (text == NULL)
        return (fa_value){.kind = FA_VALUE_NULL};
    return (fa_value){.kind = FA_VALUE_TEXT, .bytes = text, .size = strnlen(text, size)};
}

fa_value fa_text(const char *text)
{
    return fa_text_start(text, SIZE_MAX);
}

fa_value fa_copy(const char *text)
{
    fa_value value = fa_text(text);
    value.copy = true;
    return value;
}

fa_value fa_blob(const void *bytes, size_t size)
{
    if (bytes == NULL)
        return (fa_value){.kind = FA_VALUE_NULL};
    return (fa_value){.kind = FA_VALUE_BLOB, .bytes = bytes, .size = size};
}

fa_value fa_now(void)
{
    return fa_int((int64_t)time(NULL));
}

void fa_bind_values(fa_binder *binder, const fa_value *values, size_t count)
{
    for (size_t i = 0; i < count && binder->statement != NULL; i++) {
        int rc = binder->statement->backend->bind(binder->statement, ++binder->index, &values[i]);
        if (binder->rc == 0)
            binder->rc = rc;
    }
}

void fa_bind_json(fa_binder *binder, cJSON *json)
{
    char *text = fa_json_finish(json);
    fa_bind(binder, fa_copy(text));
    if (text == NULL && binder->rc == 0)
        binder->rc = FA_ENOMEM;
    free(text);
}

/* ---- reading --------------------------------------------------------------------------------*/
void fa_read_fail(fa_reader *reader, int code)
{
    if (reader->rc == 0 || code == FA_ENOMEM)
        reader->rc = code;
}

static fa_value next_value(fa_reader *reader)
{
    fa_value value;
    reader->statement->backend->column(reader->statement, reader->column++, &value);
    if (value.kind == FA_VALUE_NO_MEMORY)
        fa_read_fail(reader, FA_ENOMEM);
    return value;
}

int64_t fa_read_int(fa_reader *reader, int64_t low, int64_t high)
{
    fa_value value = next_value(reader);
    if (value.kind == FA_VALUE_INT && value.integer >= low && value.integer <= high)
        return value.integer;
    fa_read_fail(reader, FA_ECORRUPT);
    return low;
}

double fa_read_real(fa_reader *reader, double when_null)
{
    fa_value value = next_value(reader);
    if (value.kind == FA_VALUE_REAL)
        return value.real;
    if (value.kind != FA_VALUE_NULL)
        fa_read_fail(reader, FA_ECORRUPT);
    return when_null;
}

const char *fa_read_text(fa_reader *reader, bool may_be_null)
{
    fa_value value = next_value(reader);
    if (value.kind == FA_VALUE_NULL && may_be_null)
        return NULL;
    /* A NUL inside the text would hide what follows it from comparisons as C strings. */
    if (value.kind == FA_VALUE_TEXT && strlen(value.bytes) == value.size)
        return value.bytes;
    fa_read_fail(reader, FA_ECORRUPT);
    return "";
}

void fa_read_copy(fa_reader *reader, char *ret_text, size_t size)
{
    const char *text = fa_read_text(reader, false);
    size_t length = strlen(text);
    if (length >= size) {
        fa_read_fail(reader, FA_ECORRUPT);
        length = 0;
    }
    memcpy(ret_text, text, length);
    ret_text[length] = 0;
}

char *fa_read_owned(fa_reader *reader)
{
    const char *text = fa_read_text(reader, true);
    if (text == NULL || reader->rc != 0)
        return NULL;
    char *owned = strdup(text);
    if (owned == NULL)
        fa_read_fail(reader, FA_ENOMEM);
    return owned;
}

const void *fa_read_blob(fa_reader *reader, size_t limit, size_t *ret_size)
{
    fa_value value = next_value(reader);
    *ret_size = value.kind == FA_VALUE_BLOB ? value.size : 0;
    if (value.kind != FA_VALUE_BLOB || value.size > limit ||
        (value.bytes == NULL && value.size != 0)) {
        fa_read_fail(reader, FA_ECORRUPT);
        *ret_size = 0;
    }
    return value.kind == FA_VALUE_BLOB ? value.bytes : NULL;
}

cJSON *fa_read_json(fa_reader *reader, size_t limit)
{
    const char *text = fa_read_text(reader, false);
    size_t size = strlen(text);
    cJSON *json = NULL;
    int rc = size > limit ? FA_ECORRUPT : fa_json_parse(text, size, "row", &json, NULL);
    if (rc != 0)
        fa_read_fail(reader, rc == FA_ENOMEM ? FA_ENOMEM : FA_ECORRUPT);
    return json;
}

int fa_read_end(fa_reader *reader, fa_diag *diag)
{
    if (reader->statement->handle != NULL)
        reader->statement->backend->reset(reader->statement);
    if (reader->rc == FA_ENOMEM)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    return reader->rc == 0;
}

/* ---- tables of columns ----------------------------------------------------------------------*/
void fa_bind_columns(fa_binder *binder, const fa_member *members, const void *record)
{
    for (const fa_member *m = members; m->key != NULL; m++) {
        const void *at = (const char *)record + m->offset;
        switch (m->kind) {
        case FA_MEMBER_COUNT:
            fa_bind(binder, fa_int(*(const int32_t *)at));
            break;
        case FA_MEMBER_COUNT64:
            fa_bind(binder, fa_int(*(const int64_t *)at));
            break;
        case FA_MEMBER_THREE:
            for (int i = 0; i < 3; i++)
                fa_bind(binder, fa_int(((const uint32_t *)at)[i]));
            break;
        case FA_MEMBER_FLAG:
            fa_bind(binder, fa_int(*(const bool *)at));
            break;
        case FA_MEMBER_REAL:
        case FA_MEMBER_NUMBER:
            fa_bind(binder, fa_real(*(const double *)at));
            break;
        case FA_MEMBER_TEXT:
            fa_bind(binder, fa_text(at));
            break;
        case FA_MEMBER_CHOICE:
            fa_bind(binder, fa_text(fa_name_at(m->names, *(const int *)at)));
            break;
        default: /* has columns of its own */
            break;
        }
    }
}

/* In a column 0 stands for itself, and "not known" may be negative. */
static int64_t read_count(fa_reader *reader, const fa_member *m, int64_t smallest, int64_t largest)
{
    int64_t low = (m->rules & (FA_MEMBER_NULL | FA_MEMBER_MINUS)) != 0 ? smallest : m->least;
    return fa_read_int(reader, low, m->most != 0 ? m->most : largest);
}

static double read_real(fa_reader *reader, const fa_member *m)
{
    if ((m->rules & FA_MEMBER_NULL) != 0)
        return fa_read_real(reader, 0);
    double value = fa_read_real(reader, NAN);
    bool any = m->kind == FA_MEMBER_NUMBER || (m->rules & FA_MEMBER_NAN) != 0;
    if (!any && !(value >= 0 && isfinite(value)))
        fa_read_fail(reader, FA_ECORRUPT);
    return value;
}

void fa_read_columns(fa_reader *reader, const fa_member *members, void *ret_record)
{
    for (const fa_member *m = members; m->key != NULL; m++) {
        void *at = (char *)ret_record + m->offset;
        switch (m->kind) {
        case FA_MEMBER_COUNT:
            *(int32_t *)at = (int32_t)read_count(reader, m, INT32_MIN, INT32_MAX);
            break;
        case FA_MEMBER_COUNT64:
            *(int64_t *)at = read_count(reader, m, INT64_MIN, INT64_MAX);
            break;
        case FA_MEMBER_THREE:
            for (int i = 0; i < 3; i++)
                ((uint32_t *)at)[i] = (uint32_t)fa_read_int(reader, 0, UINT32_MAX);
            break;
        case FA_MEMBER_FLAG:
            *(bool *)at = fa_read_int(reader, 0, 1) != 0;
            break;
        case FA_MEMBER_REAL:
        case FA_MEMBER_NUMBER:
            *(double *)at = read_real(reader, m);
            break;
        case FA_MEMBER_TEXT:
            fa_read_copy(reader, at, m->size);
            break;
        case FA_MEMBER_CHOICE:
            if (fa_name_find(m->names, fa_read_text(reader, false), at) != 0)
                fa_read_fail(reader, FA_ECORRUPT);
            break;
        default:
            break;
        }
    }
}
