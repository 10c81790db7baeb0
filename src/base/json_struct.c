/* SPDX-License-Identifier: Apache-2.0
 *
 * Structs as JSON objects.
 */
#include "json_struct.h"
#include "json.h"

#include "buf.h"
#include "error.h"
#include "wording.h"

#include <math.h>
#include <string.h>

static const int64_t MOST_EXACT = (int64_t)1 << 53; /* doubles hold integers exactly up to here */

static bool is_number(const fa_member *m)
{
    return m->kind <= FA_MEMBER_NUMBER;
}

static double number_at(const fa_member *m, const void *at)
{
    return m->kind == FA_MEMBER_COUNT     ? *(const int32_t *)at
           : m->kind == FA_MEMBER_COUNT64 ? (double)*(const int64_t *)at
                                          : *(const double *)at;
}

static void set_number(const fa_member *m, void *at, double value)
{
    if (m->kind == FA_MEMBER_COUNT)
        *(int32_t *)at = (int32_t)value;
    else if (m->kind == FA_MEMBER_COUNT64)
        *(int64_t *)at = (int64_t)value;
    else
        *(double *)at = value;
}

/* ---- writing --------------------------------------------------------------------------------*/
static cJSON *write_number(const fa_member *m, double value)
{
    bool unknown = (m->rules & FA_MEMBER_UNKNOWN) == FA_MEMBER_UNKNOWN && !(value > 0);
    return unknown || !isfinite(value) ? cJSON_CreateNull() : cJSON_CreateNumber(value);
}

static cJSON *write_member(const fa_member *m, const void *at)
{
    cJSON *array;
    if (is_number(m))
        return write_number(m, number_at(m, at));
    switch (m->kind) {
    case FA_MEMBER_FLAG:
        return cJSON_CreateBool(*(const bool *)at);
    case FA_MEMBER_TEXT:
        return (m->rules & FA_MEMBER_UNKNOWN) == FA_MEMBER_UNKNOWN && *(const char *)at == 0
                   ? cJSON_CreateNull()
                   : cJSON_CreateString(at);
    case FA_MEMBER_STRING:
        memcpy(&at, at, sizeof at);
        return at != NULL ? cJSON_CreateString(at) : cJSON_CreateNull();
    case FA_MEMBER_CHOICE:
        return cJSON_CreateString(fa_name_at(m->names, *(const int *)at));
    case FA_MEMBER_THREE:
        array = cJSON_CreateArray();
        for (int i = 0; i < 3; i++)
            fa_json_push(array, cJSON_CreateNumber(((const uint32_t *)at)[i]));
        return array;
    case FA_MEMBER_STRUCT:
        return fa_struct_to_json(m->members, at);
    case FA_MEMBER_POINTED:
        memcpy(&at, at, sizeof at);
        if (at == NULL)
            return cJSON_CreateNull();
        return m->members != NULL ? fa_struct_to_json(m->members, at) : m->write(at);
    default:
        return m->write(at);
    }
}

static bool is_left_out(const fa_member *m, const void *at)
{
    return (m->rules & FA_MEMBER_LEFT_OUT) == FA_MEMBER_LEFT_OUT &&
           (is_number(m) ? !(number_at(m, at) != 0)
                         : *(const char *)at == 0); /* a text or a flag */
}

static bool is_known(const fa_member *members, const fa_member *m, const void *data)
{
    const fa_member *by = members;
    while (m->known_by != NULL && strcmp(by->key, m->known_by) != 0)
        by++;
    return m->known_by == NULL || number_at(by, (const char *)data + by->offset) > 0;
}

void fa_struct_add_json(cJSON *object, const fa_member *members, const void *data)
{
    for (const fa_member *m = members; m->key != NULL; m++) {
        const void *at = (const char *)data + m->offset;
        if (m->kind == FA_MEMBER_PART)
            fa_struct_add_json(object, m->members, at);
        else if (!is_left_out(m, at))
            fa_json_add(object, m->key,
                        is_known(members, m, data) ? write_member(m, at) : cJSON_CreateNull());
    }
}

cJSON *fa_struct_to_json(const fa_member *members, const void *data)
{
    cJSON *object = cJSON_CreateObject();
    fa_struct_add_json(object, members, data);
    return object;
}

/* ---- reading --------------------------------------------------------------------------------*/
static int read_number(const cJSON *json, const fa_member *m, void *at, const char *where,
                       fa_diag *diag)
{
    const bool small = m->kind == FA_MEMBER_COUNT, whole = small || m->kind == FA_MEMBER_COUNT64;
    const int64_t most = m->most != 0 ? m->most : small ? INT32_MAX : MOST_EXACT;
    int64_t count = 0;
    double value = 0;
    int rc = whole ? fa_json_int(json, m->key, m->least, most, &count, where, diag)
                   : fa_json_number(json, m->key, &value, where, diag);
    if (rc == 0 && m->kind == FA_MEMBER_REAL && !(value >= 0))
        rc = fa_fail(diag, FA_EINVAL, "%s: \"%s\" is %g: must not be negative", where, m->key,
                     value);
    if (rc == 0)
        set_number(m, at, whole ? (double)count : value);
    return rc;
}

static int read_choice(const cJSON *json, const fa_member *m, void *at, const char *where,
                       fa_diag *diag)
{
    const char *text = NULL;
    int rc = fa_json_text(json, m->key, &text, where, diag);
    if (rc != 0)
        return rc;
    const char *const *names = m->names;
    if (fa_name_find(names, text, at) == 0)
        return 0;
    fa_buf list = {0};
    fa_words_or(&list, names);
    rc = fa_fail(diag, FA_EINVAL, "%s: there is no %s \"%.40s\": use %s", where, m->key, text,
                 list.data != NULL ? list.data : "another");
    fa_buf_free(&list);
    return rc;
}

static int read_three(const cJSON *array, const fa_member *m, uint32_t three[3], const char *where,
                      fa_diag *diag)
{
    const cJSON *item = cJSON_IsArray(array) ? array->child : NULL;
    int count = 0;
    for (; item != NULL && count < 3; item = item->next, count++) {
        double value = cJSON_IsNumber(item) ? item->valuedouble : -1;
        if (!(value >= 0 && value <= UINT32_MAX && floor(value) == value))
            break;
        three[count] = (uint32_t)value;
    }
    return count == 3 && item == NULL
               ? 0
               : fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be three whole numbers", where, m->key);
}

/* null, where it is taken: true, and the member is set. */
static bool read_null(const fa_member *m, void *at)
{
    if ((m->rules & (FA_MEMBER_NULL | FA_MEMBER_NAN)) == 0)
        return false;
    if (is_number(m))
        set_number(m, at, (m->rules & FA_MEMBER_NAN) != 0 ? NAN : 0);
    else if (m->kind == FA_MEMBER_STRING)
        *(const char **)at = NULL;
    else
        *(char *)at = 0;
    return true;
}

static int read_member(const cJSON *json, const cJSON *item, const fa_member *m, void *at,
                       const char *where, fa_diag *diag)
{
    if (cJSON_IsNull(item) && read_null(m, at))
        return 0;
    if (is_number(m))
        return read_number(json, m, at, where, diag);
    switch (m->kind) {
    case FA_MEMBER_FLAG:
        return fa_json_bool(json, m->key, at, where, diag);
    case FA_MEMBER_TEXT:
        return fa_json_copy(json, m->key, at, m->size, where, diag);
    case FA_MEMBER_STRING:
        return fa_json_text(json, m->key, at, where, diag);
    case FA_MEMBER_CHOICE:
        return read_choice(json, m, at, where, diag);
    case FA_MEMBER_THREE:
        return read_three(item, m, at, where, diag);
    case FA_MEMBER_STRUCT:
        if (!cJSON_IsObject(item))
            return fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be an object", where, m->key);
        return (m->rules & FA_MEMBER_STRICT) != 0
                   ? fa_struct_from_strict_json(item, m->members, at, m->key, diag)
                   : fa_struct_from_json(item, m->members, at, m->key, diag);
    default:
        return m->read(item, at, diag);
    }
}

int fa_struct_from_json(const cJSON *json, const fa_member *members, void *ret_data,
                        const char *where, fa_diag *diag)
{
    for (const fa_member *m = members; m->key != NULL; m++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, m->key);
        void *at = (char *)ret_data + m->offset;
        int rc = 0;
        if (m->kind == FA_MEMBER_PART)
            rc = fa_struct_from_json(json, m->members, at, where, diag);
        else if (item != NULL || (m->rules & FA_MEMBER_OPTIONAL) == 0)
            rc = item != NULL || m->kind >= FA_MEMBER_THREE
                     ? read_member(json, item, m, at, where, diag)
                     : fa_fail(diag, FA_EINVAL, "%s: \"%s\" is missing", where, m->key);
        if (rc != 0)
            return rc;
    }
    return 0;
}

int fa_struct_from_strict_json(const cJSON *json, const fa_member *members, void *ret_data,
                               const char *where, fa_diag *diag)
{
    const char *keys[FA_MEMBERS_MAX + 1] = {NULL};
    for (int i = 0; members[i].key != NULL; i++)
        keys[i] = members[i].key;
    int rc = fa_json_check_keys(json, keys, where, diag);
    return rc == 0 ? fa_struct_from_json(json, members, ret_data, where, diag) : rc;
}
