/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include "error.h"
#include "words.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_DEPTH = 32, MAX_KEYS = 1024 };

/* cJSON recurses; so the depth is bounded before it sees the text. */
static int check_depth(const char *text, size_t size, const char *where, fa_diag *diag)
{
    int depth = 0;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        if (c == 0) /* cJSON would end a text there */
            return fa_fail(diag, FA_EINVAL, "%s: holds a NUL byte at offset %zu", where, i);
        if (in_string) {
            if (c == '\\' && size - i >= 6 &&
                memcmp(text + i, "\\u0000", 6) == 0) /* would end the text */
                return fa_fail(diag, FA_EINVAL, "%s: holds a NUL character at offset %zu", where,
                               i);
            if (c == '\\')
                i++;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            if (++depth > MAX_DEPTH)
                return fa_fail(diag, FA_EINVAL, "%s: nested deeper than %d levels", where,
                               MAX_DEPTH);
        } else if (c == '}' || c == ']') {
            depth--;
        }
    }
    return 0;
}

/* cJSON does not tell a text that is not JSON from one for which it had no memory: the latter may be read at the second
 * attempt, or there is less memory left than its document needs at most. */
static cJSON *parse(const char *text, size_t size, const char **ret_end, bool *ret_short)
{
    enum { BYTES_EACH = 64 }; /* of memory for a byte of text: an item, which takes two */
    cJSON *json = cJSON_ParseWithLengthOpts(text, size, ret_end, false);
    if (json == NULL)
        json = cJSON_ParseWithLengthOpts(text, size, ret_end, false);
    void *room = json == NULL ? cJSON_malloc(BYTES_EACH * (size + 1)) : NULL;
    *ret_short = json == NULL && room == NULL;
    cJSON_free(room);
    return json;
}

int fa_json_parse(const char *text, size_t size, const char *where, cJSON **ret_json, fa_diag *diag)
{
    const char *end = NULL;
    bool is_short;
    int rc = 0;
    FA_OR_RETURN(check_depth(text, size, where, diag));
    FA_ENDS(fa_json_end) cJSON *json = parse(text, size, &end, &is_short);
    FA_OR_RETURN(fa_have(!is_short, where, diag));
    if (json == NULL) {
        int line = 1;
        size_t at = end != NULL && end >= text ? (size_t)(end - text) : 0;
        for (size_t i = 0; i < at; i++)
            line += text[i] == '\n';
        if (memchr(text, '\n', size) == NULL)
            return fa_fail(diag, FA_EINVAL, "%s: not valid JSON, near offset %zu", where, at);
        return fa_fail(diag, FA_EINVAL, "%s: not valid JSON in line %d, near offset %zu", where,
                       line, at);
    }
    for (; rc == 0 && end < text + size; end++)
        if (strchr(" \t\r\n", *end) == NULL)
            rc = fa_fail(diag, FA_EINVAL, "%s: text after the JSON value at offset %zu", where,
                         (size_t)(end - text));
    if (rc == 0 && cJSON_IsObject(json) &&
        cJSON_GetArraySize(json) > MAX_KEYS) /* compared in pairs below */
        rc = fa_fail(diag, FA_EINVAL, "%s: more than %d keys at the top level", where, MAX_KEYS);
    for (const cJSON *a = json->child; rc == 0 && a != NULL; a = a->next)
        for (const cJSON *b = a->next; rc == 0 && b != NULL && a->string != NULL; b = b->next)
            if (strcmp(a->string, b->string) == 0)
                rc = fa_fail(diag, FA_EINVAL, "%s: key \"%s\" appears twice", where, a->string);
    if (rc == 0)
        *ret_json = json, json = NULL;
    return rc;
}

int fa_json_next_line(fa_json_lines *lines, size_t longest, cJSON **ret_json, fa_diag *diag)
{
    *ret_json = NULL;
    while (lines->at < lines->end) {
        const char *text = lines->at, *newline = memchr(text, '\n', (size_t)(lines->end - text));
        const size_t size = (size_t)((newline != NULL ? newline : lines->end) - text);
        lines->at += size + (newline != NULL);
        lines->line++;
        if (size > longest)
            return fa_fail(diag, FA_EINVAL, "longer than %zu bytes", longest);
        if (strspn(text, " \t\r") < size)
            return fa_json_parse(text, size, "JSON", ret_json, diag);
    }
    return 0;
}

int fa_json_parse_object(const char *text, const char *where, cJSON **ret_json, fa_diag *diag)
{
    FA_ENDS(fa_json_end) cJSON *json = NULL;
    int rc = text != NULL ? fa_json_parse(text, strlen(text), where, &json, NULL) : 0;
    *ret_json = NULL;
    FA_OR_RETURN(fa_have(rc != FA_ENOMEM, where, diag));
    if (cJSON_IsObject(json))
        *ret_json = json, json = NULL;
    return 0;
}

int fa_json_check_keys(const cJSON *object, const char *const *keys, const char *where,
                       fa_diag *diag)
{
    const cJSON *item;
    if (object != NULL && !cJSON_IsObject(object))
        return fa_fail(diag, FA_EINVAL, "%s must be an object", where);
    cJSON_ArrayForEach (item, object) {
        int i = 0;
        while (keys[i] != NULL && strcmp(item->string, keys[i]) != 0)
            i++;
        if (keys[i] == NULL) {
            const char *near = fa_nearest(item->string, keys);
            return fa_fail(diag, FA_EINVAL, "%s: the key \"%.60s\" is unknown%s%s%s", where,
                           item->string, near != NULL ? ": did you mean \"" : "",
                           near != NULL ? near : "", near != NULL ? "\"?" : "");
        }
        for (const cJSON *other = item->next; other != NULL; other = other->next)
            if (strcmp(item->string, other->string) == 0)
                return fa_fail(diag, FA_EINVAL, "%s: the key \"%.60s\" appears twice", where,
                               item->string);
    }
    return 0;
}

const cJSON *fa_json_member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNull(item) ? NULL : item;
}

const char *fa_json_string(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(fa_json_member(object, key));
}

const char *fa_json_expression(const cJSON *item, char room[32])
{
    if (!cJSON_IsNumber(item))
        return cJSON_GetStringValue(item);
    snprintf(room, 32, "%.17g", item->valuedouble);
    return room;
}

int fa_json_number(const cJSON *object, const char *key, double *ret, const char *where,
                   fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL)
        return FA_ENOTFOUND;
    if (!cJSON_IsNumber(item) || !isfinite(item->valuedouble))
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be a number", where, key);
    *ret = item->valuedouble;
    return 0;
}

int fa_json_int(const cJSON *object, const char *key, int64_t low, int64_t high, int64_t *ret,
                const char *where, fa_diag *diag)
{
    double number = 0;
    FA_OR_RETURN(fa_json_number(object, key, &number, where, diag));
    /* Doubles hold integers exactly up to 2^53; larger ones cannot be told from their neighbours. */
    if (floor(number) != number || fabs(number) > 9007199254740992.0)
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be a whole number", where, key);
    if (number < (double)low || number > (double)high)
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" is %.0f: must be %lld to %lld", where, key,
                       number, (long long)low, (long long)high);
    *ret = (int64_t)number;
    return 0;
}

int fa_json_bool(const cJSON *object, const char *key, bool *ret, const char *where, fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL)
        return FA_ENOTFOUND;
    if (!cJSON_IsBool(item))
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be true or false", where, key);
    *ret = cJSON_IsTrue(item) != 0;
    return 0;
}

int fa_json_text(const cJSON *object, const char *key, const char **ret, const char *where,
                 fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL)
        return FA_ENOTFOUND;
    if (!cJSON_IsString(item) || item->valuestring == NULL)
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be a string", where, key);
    *ret = item->valuestring;
    return 0;
}

int fa_json_text_needed(const cJSON *object, const char *key, const char **ret, const char *where,
                        fa_diag *diag)
{
    int rc = fa_json_text(object, key, ret, where, diag);
    return rc == FA_ENOTFOUND ? fa_fail(diag, FA_EINVAL, "%s: \"%s\" is missing", where, key) : rc;
}

int fa_json_copy(const cJSON *object, const char *key, char *ret, size_t size, const char *where,
                 fa_diag *diag)
{
    const char *text = NULL;
    FA_OR_RETURN(fa_json_text(object, key, &text, where, diag));
    if (strlen(text) >= size)
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" is longer than %zu bytes", where, key,
                       size - 1);
    memcpy(ret, text, strlen(text) + 1);
    return 0;
}

/* ---- making ---------------------------------------------------------------------------------*/
enum { LACKS_SOMETHING = 1 << 16 }; /* above all bits of a type that cJSON uses */

static bool added(cJSON *parent, cJSON *item, bool good)
{
    if (good)
        return true;
    cJSON_Delete(item);
    if (parent != NULL)
        parent->type |= LACKS_SOMETHING;
    return false;
}

bool fa_json_add(cJSON *object, const char *key, cJSON *item)
{
    return added(object, item, cJSON_AddItemToObject(object, key, item));
}

bool fa_json_push(cJSON *array, cJSON *item)
{
    return added(array, item, cJSON_AddItemToArray(array, item));
}

bool fa_json_add_text(cJSON *object, const char *key, const char *text)
{
    return text == NULL || fa_json_add(object, key, cJSON_CreateString(text));
}

bool fa_json_add_number(cJSON *object, const char *key, double number)
{
    return fa_json_add(object, key, cJSON_CreateNumber(number));
}

bool fa_json_add_bool(cJSON *object, const char *key, bool value)
{
    return fa_json_add(object, key, cJSON_CreateBool(value));
}

void fa_json_add_known(cJSON *object, const char *key, double value, bool known)
{
    known = known && isfinite(value);
    fa_json_add(object, key, known ? cJSON_CreateNumber(value) : cJSON_CreateNull());
}

cJSON *fa_json_add_object(cJSON *object, const char *key)
{
    cJSON *made = cJSON_CreateObject();
    return fa_json_add(object, key, made) ? made : NULL;
}

cJSON *fa_json_add_array(cJSON *object, const char *key)
{
    cJSON *made = cJSON_CreateArray();
    return fa_json_add(object, key, made) ? made : NULL;
}

static bool are_whole(const cJSON *json) /* and those that follow it in its list */
{
    for (; json != NULL; json = json->next)
        if ((json->type & LACKS_SOMETHING) != 0 || !are_whole(json->child))
            return false;
    return true;
}

bool fa_json_is_whole(const cJSON *json)
{
    return json != NULL && (json->type & LACKS_SOMETHING) == 0 && are_whole(json->child);
}

/* ---- printing -------------------------------------------------------------------------------*/
/* A number of up to 15 digits and 7 decimals, as printf and its reading back would find it, in a fifth of the time: both
 * parts of digits / power are exact, so that it is rounded once, as the text is when it is read. False: it has more. */
static bool print_decimal(fa_buf *out, double value)
{
    const double size = fabs(value);
    uint64_t power = 10;
    for (int decimals = 1; size >= 1e-4 && decimals <= 7; decimals++, power *= 10) {
        const double digits = rint(size * (double)power);
        if (digits >= 1e15)
            return false;
        if (digits / (double)power < size || digits / (double)power > size)
            continue;
        fa_buf_printf(out, "%s%" PRIu64 ".%0*" PRIu64, value < 0 ? "-" : "",
                      (uint64_t)digits / power, decimals, (uint64_t)digits % power);
        return true;
    }
    return false;
}

static void print_number(fa_buf *out, double value)
{
    char text[FA_DIGITS_MAX];
    if (!isfinite(value)) {
        fa_buf_text(out, "null");
    } else if (floor(value) == value && fabs(value) < 1e15) {
        fa_buf_printf(out, "%" PRId64, (int64_t)value); /* 0 for -0 */
    } else if (!print_decimal(out, value)) {
        fa_digits(value, text);
        fa_buf_text(out, text);
    }
}

static void print_string(fa_buf *out, const char *text)
{
    static const char special[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
    fa_buf_text(out, "\"");
    while (text != NULL && *text != 0) {
        size_t plain = 0;
        while ((unsigned char)text[plain] >= 0x20 && text[plain] != '"' && text[plain] != '\\')
            plain++;
        fa_buf_append(out, text, plain);
        text += plain;
        if (*text == 0)
            break;
        const char *found = strchr(special, *text);
        if (found != NULL)
            fa_buf_printf(out, "\\%c", letter[found - special]);
        else
            fa_buf_printf(out, "\\u%04x", (unsigned)(unsigned char)*text);
        text++;
    }
    fa_buf_text(out, "\"");
}

static void print_item(fa_buf *out, const cJSON *json)
{
    const bool object = cJSON_IsObject(json);
    out->failed |= (json->type & LACKS_SOMETHING) != 0;
    if (cJSON_IsString(json)) {
        print_string(out, json->valuestring);
    } else if (cJSON_IsNumber(json)) {
        print_number(out, json->valuedouble);
    } else if (!object && !cJSON_IsArray(json)) {
        fa_buf_text(out, cJSON_IsRaw(json)     ? json->valuestring
                         : cJSON_IsTrue(json)  ? "true"
                         : cJSON_IsFalse(json) ? "false"
                                               : "null");
    } else {
        fa_buf_text(out, object ? "{" : "[");
        for (const cJSON *item = json->child; item != NULL; item = item->next) {
            if (object) {
                print_string(out, item->string);
                fa_buf_text(out, ":");
            }
            print_item(out, item);
            fa_buf_text(out, item->next != NULL ? "," : "");
        }
        fa_buf_text(out, object ? "}" : "]");
    }
}

char *fa_json_print(const cJSON *json)
{
    fa_buf out = {0};
    if (json == NULL)
        return NULL;
    print_item(&out, json);
    if (out.failed)
        fa_buf_free(&out);
    return out.data;
}

void fa_json_end(cJSON **json)
{
    cJSON_Delete(*json);
}

char *fa_json_finish(cJSON *json)
{
    char *text = fa_json_print(json);
    cJSON_Delete(json);
    return text;
}

/* ---- structs by tables of members ------------------------------------------------------------*/
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
static cJSON *write_member(const fa_member *m, const void *at)
{
    cJSON *array;
    const double value = is_number(m) ? number_at(m, at) : 0;
    const bool unknown = (m->rules & FA_MEMBER_UNKNOWN) == FA_MEMBER_UNKNOWN;
    if (is_number(m))
        return (unknown && !(value > 0)) || !isfinite(value) ? cJSON_CreateNull()
                                                             : cJSON_CreateNumber(value);
    switch (m->kind) {
    case FA_MEMBER_FLAG:
        return cJSON_CreateBool(*(const bool *)at);
    case FA_MEMBER_TEXT:
        return unknown && *(const char *)at == 0 ? cJSON_CreateNull() : cJSON_CreateString(at);
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

void fa_struct_add_json(cJSON *object, const fa_member *members, const void *data)
{
    for (const fa_member *m = members, *by = members; m->key != NULL; m++, by = members) {
        const void *at = (const char *)data + m->offset;
        while (m->known_by != NULL && strcmp(by->key, m->known_by) != 0)
            by++;
        const bool known =
            m->known_by == NULL || number_at(by, (const char *)data + by->offset) > 0;
        if (m->kind == FA_MEMBER_PART)
            fa_struct_add_json(object, m->members, at);
        else if ((m->rules & FA_MEMBER_LEFT_OUT) != FA_MEMBER_LEFT_OUT ||
                 (is_number(m) ? number_at(m, at) != 0
                               : *(const char *)at != 0)) /* a text or a flag */
            fa_json_add(object, m->key, known ? write_member(m, at) : cJSON_CreateNull());
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
    FA_OR_RETURN(whole ? fa_json_int(json, m->key, m->least, most, &count, where, diag)
                       : fa_json_number(json, m->key, &value, where, diag));
    if (m->kind == FA_MEMBER_REAL && !(value >= 0))
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" is %g: must not be negative", where, m->key,
                       value);
    set_number(m, at, whole ? (double)count : value);
    return 0;
}

static int read_choice(const cJSON *json, const fa_member *m, void *at, const char *where,
                       fa_diag *diag)
{
    const char *text = NULL;
    FA_OR_RETURN(fa_json_text(json, m->key, &text, where, diag));
    const char *const *names = m->names;
    if (fa_name_find(names, text, at) == 0)
        return 0;
    FA_ENDS(fa_buf_free) fa_buf list = {0};
    fa_words_or(&list, names);
    return fa_fail(diag, FA_EINVAL, "%s: there is no %s \"%.40s\": use %s", where, m->key, text,
                   list.data != NULL ? list.data : "another");
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
        if (m->kind == FA_MEMBER_PART)
            FA_OR_RETURN(fa_struct_from_json(json, m->members, at, where, diag));
        else if (item != NULL || (m->rules & FA_MEMBER_OPTIONAL) == 0)
            FA_OR_RETURN(item != NULL || m->kind >= FA_MEMBER_THREE
                             ? read_member(json, item, m, at, where, diag)
                             : fa_fail(diag, FA_EINVAL, "%s: \"%s\" is missing", where, m->key));
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
