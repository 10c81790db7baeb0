/* SPDX-License-Identifier: Apache-2.0
 *
 * What all texts of fa_service.h have in common: printing, checked parsing, failures.
 */
#include "fa_service.h"
#include "wire.h"
#include "json_make.h"

#include <stdlib.h>
#include <string.h>

/* The length of the character at `c` as UTF-8; 0: it is none, or a control character. */
static size_t utf8_character_size(const unsigned char *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = *c < 0x80 ? 1 : *c >> 5 == 6 ? 2 : *c >> 4 == 14 ? 3 : *c >> 3 == 30 ? 4 : 0;
    if (size <= 1)
        return size == 1 && *c >= 0x20 && *c != 0x7f ? 1 : 0;
    uint32_t code = *c & (0x7fu >> size);
    for (size_t i = 1; i < size; i++) {
        if (c[i] >> 6 != 2)
            return 0;
        code = code << 6 | (c[i] & 0x3fu);
    }
    bool good = code >= least[size] && code <= 0x10ffff && code >> 11 != 0x1b && code >= 0xa0;
    return good ? size : 0;
}

/* Whether a text is clean; with `mend` it is made so, in place. */
static bool clean_text(char *text, bool mend)
{
    for (unsigned char *c = (unsigned char *)text; c != NULL && *c != 0;) {
        size_t size = utf8_character_size(c);
        if (size == 0 && !mend)
            return false;
        if (size == 0)
            *c = *c < 0x20 ? ' ' : '?';
        c += size == 0 ? 1 : size;
    }
    return true;
}

/* The parser bounds the depth. */
static bool clean_json(cJSON *json, bool mend)
{
    for (cJSON *item = json; item != NULL; item = item->next)
        if (!clean_text(item->string, mend) ||
            (cJSON_IsString(item) && !clean_text(item->valuestring, mend)) ||
            !clean_json(item->child, mend))
            return false;
    return true;
}

int fa_wire_print(cJSON *json, char **ret_text, fa_diag *diag)
{
    char *printed = NULL, *text = NULL;
    if (json != NULL) {
        clean_json(json, true);
        printed = fa_json_print(json);
    }
    if (printed != NULL)
        text = strdup(printed); /* cJSON's memory may be another allocator's */
    cJSON_free(printed);
    cJSON_Delete(json);
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a text of the service");
    *ret_text = text;
    return 0;
}

int fa_wire_parse(const char *text, size_t size, size_t limit, const char *where, cJSON **ret_json,
                  fa_diag *diag)
{
    cJSON *json = NULL;
    if (text == NULL)
        return fa_fail(diag, FA_EINVAL, "%s: there is no text", where);
    if (size > limit)
        return fa_fail(diag, FA_EINVAL, "%s: has %zu bytes, %zu is the most", where, size, limit);
    int rc = fa_json_parse(text, size, where, &json, diag);
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (rc == 0 && !clean_json(json, false))
        rc = fa_fail(diag, FA_EINVAL, "%s: a text in it has control bytes or is not UTF-8", where);
    if (rc != 0)
        cJSON_Delete(json);
    else
        *ret_json = json;
    return rc;
}

int fa_wire_object(const cJSON *object, const char *key, const char *where, const cJSON **ret,
                   fa_diag *diag)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsObject(item))
        return fa_fail(diag, FA_EINVAL, "%s: \"%s\" must be an object", where, key);
    *ret = item;
    return 0;
}

int fa_wire_read_strictly(const char *text, size_t size, size_t limit, const char *where,
                          const fa_member *members, void *ret_data, fa_diag *diag)
{
    cJSON *json = NULL;
    int rc = fa_wire_parse(text, size, limit, where, &json, diag);
    if (rc == 0)
        rc = fa_struct_from_strict_json(json, members, ret_data, where, diag);
    cJSON_Delete(json);
    return rc;
}

bool fa_wire_is_hash(const char *text)
{
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64;
}

int fa_wire_problem(const cJSON *json, fa_need need, fa_problem *ret_problem, fa_diag *diag)
{
    fa_problem problem = {0};
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "\"problem\" must be an object");
    int rc = fa_problem_from_strict_json(json, need, NULL, &problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc == FA_ENOTSUP ? FA_EINVAL : rc; /* an operation that is not known here */
}

int fa_failure_write(int code, const char *message, char **ret_text, fa_diag *diag)
{
    const char *name = fa_error_name(code);
    cJSON *json = cJSON_CreateObject();
    cJSON *error = fa_json_add_object(json, "error");
    fa_json_add_text(error, "code", name != NULL ? name : "FA_EIO");
    fa_json_add_text(error, "message", message != NULL ? message : "");
    return fa_wire_print(json, ret_text, diag);
}

int fa_failure_read(const char *text, size_t size, int *ret_code, fa_diag *ret_message,
                    fa_diag *diag)
{
    cJSON *json = NULL;
    const cJSON *error = NULL;
    const char *name = "", *message = "";
    int code = FA_EIO;
    int rc = fa_wire_parse(text, size, FA_ANSWER_TEXT_MAX, "failure", &json, diag);
    if (rc == 0)
        rc = fa_wire_object(json, "error", "failure", &error, diag);
    if (rc == 0)
        rc = fa_json_text_needed(error, "code", &name, "failure", diag);
    if (rc == 0)
        rc = fa_json_text_needed(error, "message", &message, "failure", diag);
    if (rc == 0) {
        fa_error_parse(name, &code);
        *ret_code = fa_fail(ret_message, code, "%s", message);
    }
    cJSON_Delete(json);
    return rc;
}
