/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading tables of fields, and the list of the operations that this process knows.
 *
 * The list only grows: readers take its count first and need no lock, whoever adds holds the mutex.
 */
#include "operation.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "operation_builtin.h"
#include "problem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- one field ------------------------------------------------------------------------------*/
#define AT(member) offsetof(fa_field, member)

static const struct {
    const char *key;
    size_t at;
} texts[] = {{"name", AT(name)},   {"member", AT(member)},
             {"hint", AT(hint)},   {"key", AT(key)},
             {"macro", AT(macro)}, {"option", AT(option)},
             {"label", AT(label)}, {"option_help", AT(option_help)},
             {"words", AT(words)}},
  integers[] = {{"min", AT(min)},
                {"max", AT(max)},
                {"multiple", AT(multiple)},
                {"default", AT(preset)}},
  flags[] = {{"length", AT(length)},
             {"nonempty", AT(nonempty)},
             {"optional", AT(optional)},
             {"shapes_source", AT(shapes_source)}},
  others[] = {{"divides", AT(divides)}, {"follows", AT(follows)}}, /* of earlier fields */
    ways[] = {{"key_as", AT(key_as)}, {"macro_as", AT(macro_as)}};

static const char *const kinds[] = {"integer", "choice", "boolean", NULL};
static const char *const as_names[] = {"value", "nonzero", "not", NULL};

#define EACH(table, i) for (size_t i = 0; i < sizeof table / sizeof *table; i++)

static int index_of(const char *const *names, const char *name)
{
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

/* A key that nobody reads is a slip of the pen, and what it should have said would not be done. */
static int check_keys(const cJSON *json, const char *where, fa_diag *diag)
{
    for (const cJSON *item = json->child; item != NULL; item = item->next) {
        bool known = strcmp(item->string, "kind") == 0 || strcmp(item->string, "choices") == 0;
        EACH(texts, i)
        known = known || strcmp(item->string, texts[i].key) == 0;
        EACH(integers, i)
        known = known || strcmp(item->string, integers[i].key) == 0;
        EACH(flags, i)
        known = known || strcmp(item->string, flags[i].key) == 0;
        EACH(others, i)
        known = known || strcmp(item->string, others[i].key) == 0;
        EACH(ways, i)
        known = known || strcmp(item->string, ways[i].key) == 0;
        if (!known)
            return fa_fail(diag, FA_EINVAL, "%s: \"%.40s\" is no property of a field", where,
                           item->string);
    }
    return 0;
}

/* A text that names one of these; absent: the first. */
static int read_name(const cJSON *json, const char *key, const char *const *names, int *ret,
                     const char *where, fa_diag *diag)
{
    const char *text = names[0];
    int rc = fa_json_text(json, key, &text, where, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    *ret = index_of(names, text);
    return *ret >= 0 ? 0
                     : fa_fail(diag, FA_EINVAL, "%s: \"%s\" is \"%.40s\", which is not known",
                               where, key, text);
}

static int read_choices(const cJSON *json, fa_field *field, const char *where, fa_diag *diag)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "choices");
    int count = cJSON_GetArraySize(list);
    if ((field->kind == FA_FIELD_CHOICE) != (count > 0) || count > FA_CHOICES_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: \"choices\" must be 1 to %d names of a choice", where,
                       FA_CHOICES_MAX);
    for (int i = 0; i < count; i++) {
        field->choice[i] = cJSON_GetStringValue(cJSON_GetArrayItem(list, i));
        if (field->choice[i] == NULL || field->choice[i][0] == 0 ||
            strlen(field->choice[i]) >= FA_NAME_MAX)
            return fa_fail(diag, FA_EINVAL, "%s: \"choices\" must be names", where);
    }
    if (field->kind != FA_FIELD_INTEGER) {
        field->min = 0;
        field->max = count > 0 ? count - 1 : 1;
    }
    return 0;
}

static int read_texts(const cJSON *json, fa_field *field, const char *where, fa_diag *diag)
{
    EACH(texts, i)
    {
        const char *text = "";
        int rc = fa_json_text(json, texts[i].key, &text, where, diag);
        if (rc != 0 && rc != FA_ENOTFOUND)
            return rc;
        *(const char **)(void *)((char *)field + texts[i].at) = text;
    }
    if (!fa_is_identifier(field->name) || strcmp(field->name, "operation") == 0)
        return fa_fail(diag, FA_EINVAL, "%s: \"name\" must be an identifier", where);
    if (field->member[0] == 0)
        field->member = field->name;
    if (cJSON_GetObjectItemCaseSensitive(json, "key") == NULL)
        field->key = field->name;
    if (field->macro[0] != 0 && !fa_is_identifier(field->macro))
        return fa_fail(diag, FA_EINVAL, "%s: \"macro\" must be an identifier", where);
    return 0;
}

static int read_field(const cJSON *json, fa_operation *operation, const char *where, fa_diag *diag)
{
    fa_field *field = &operation->field[operation->field_count];
    int kind = 0, as = 0, rc = check_keys(json, where, diag);
    *field = (fa_field){.max = INT32_MAX, .multiple = 1};
    if (rc == 0)
        rc = read_texts(json, field, where, diag);
    if (rc == 0)
        rc = read_name(json, "kind", kinds, &kind, where, diag);
    field->kind = (fa_field_kind)kind;
    EACH(ways, i)
    {
        if (rc == 0)
            rc = read_name(json, ways[i].key, as_names, &as, where, diag);
        *(fa_field_as *)(void *)((char *)field + ways[i].at) = (fa_field_as)as;
    }
    EACH(integers, i)
    {
        int64_t value = 0;
        int got =
            rc == 0 ? fa_json_int(json, integers[i].key, INT32_MIN, INT32_MAX, &value, where, diag)
                    : FA_ENOTFOUND;
        if (got == 0)
            *(int32_t *)(void *)((char *)field + integers[i].at) = (int32_t)value;
        else if (got != FA_ENOTFOUND)
            rc = got;
    }
    EACH(flags, i)
    {
        bool *flag = (bool *)((char *)field + flags[i].at);
        int got = rc == 0 ? fa_json_bool(json, flags[i].key, flag, where, diag) : FA_ENOTFOUND;
        rc = got == FA_ENOTFOUND ? rc : got;
    }
    EACH(others, i)
    {
        const char *other = "";
        int got = rc == 0 ? fa_json_text(json, others[i].key, &other, where, diag) : FA_ENOTFOUND;
        int index = fa_operation_field_index(operation, other);
        *(int *)(void *)((char *)field + others[i].at) = index;
        if (got == 0 && index < 0)
            rc = fa_fail(diag, FA_EINVAL, "%s: \"%s\" must name an earlier field", where,
                         others[i].key);
        else if (got != FA_ENOTFOUND)
            rc = got;
    }
    if (rc == 0)
        rc = read_choices(json, field, where, diag);
    if (rc == 0 && (field->multiple < 1 || field->min > field->max))
        rc = fa_fail(diag, FA_EINVAL, "%s: \"multiple\" or the range is empty", where);
    return rc;
}

/* ---- one operation --------------------------------------------------------------------------*/
/* Bytes that the longest key of its problems needs. */
static size_t longest_key(const fa_operation *operation)
{
    size_t size = strlen(operation->name) + 1;
    for (int i = 0; i < operation->field_count; i++) {
        size_t value = 11; /* digits of INT32_MIN */
        for (int c = 0; operation->field[i].choice[c] != NULL; c++)
            if (strlen(operation->field[i].choice[c]) > value)
                value = strlen(operation->field[i].choice[c]);
        size += 2 + strlen(operation->field[i].key) + value;
    }
    return size;
}

static int read_fields(const cJSON *list, fa_operation *operation, const char *where, fa_diag *diag)
{
    const cJSON *item;
    if (!cJSON_IsArray(list) || cJSON_GetArraySize(list) < 1 ||
        cJSON_GetArraySize(list) > FA_PROBLEM_VALUES)
        return fa_fail(diag, FA_EINVAL, "%s: \"fields\" must be a list of 1 to %d", where,
                       FA_PROBLEM_VALUES);
    cJSON_ArrayForEach (item, list) {
        char place[256];
        snprintf(place, sizeof place, "%.200s: fields[%d]", where, operation->field_count);
        if (!cJSON_IsObject(item))
            return fa_fail(diag, FA_EINVAL, "%s must be an object", place);
        int rc = read_field(item, operation, place, diag);
        if (rc != 0)
            return rc;
        const char *name = operation->field[operation->field_count].name;
        if (fa_operation_field_index(operation, name) >= 0)
            return fa_fail(diag, FA_EINVAL, "%s: there is a field \"%s\" already", place, name);
        operation->field_count++;
    }
    if (longest_key(operation) > FA_PROBLEM_KEY_MAX)
        return fa_fail(diag, FA_EINVAL, "%s: a problem's key would be longer than %d bytes", where,
                       FA_PROBLEM_KEY_MAX - 1);
    return 0;
}

static void operation_free(fa_operation *operation)
{
    if (operation != NULL)
        cJSON_Delete(operation->document);
    free(operation);
}

static int operation_read(const char *text, size_t size, const char *where,
                          fa_operation **ret_operation, fa_diag *diag)
{
    fa_operation *operation = calloc(1, sizeof *operation);
    if (operation == NULL)
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    int rc = fa_json_parse(text, size, where, &operation->document, diag);
    const cJSON *json = operation->document;
    if (rc == 0 && !cJSON_IsObject(json))
        rc = fa_fail(diag, FA_EINVAL, "%s: must be a JSON object", where);
    if (rc == 0)
        rc = fa_json_text_needed(json, "name", &operation->name, where, diag);
    if (rc == 0 && !fa_is_identifier(operation->name))
        rc = fa_fail(diag, FA_EINVAL, "%s: \"name\" must be an identifier", where);
    if (rc == 0)
        rc = fa_json_text_needed(json, "title", &operation->title, where, diag);
    if (rc == 0) {
        rc = fa_json_bool(json, "default", &operation->is_default, where, diag);
        rc = rc == FA_ENOTFOUND ? 0 : rc;
    }
    if (rc == 0)
        rc = read_fields(cJSON_GetObjectItemCaseSensitive(json, "fields"), operation, where, diag);
    if (rc != 0) {
        operation_free(operation);
        return rc;
    }
    *ret_operation = operation;
    return 0;
}

int fa_operation_field_index(const fa_operation *operation, const char *name)
{
    for (int i = 0; i < operation->field_count; i++)
        if (strcmp(operation->field[i].name, name) == 0)
            return i;
    return -1;
}

int32_t fa_field_shown(fa_field_as as, int32_t value)
{
    return as == FA_AS_VALUE ? value : as == FA_AS_NONZERO ? value != 0 : value == 0;
}

/* ---- all operations -------------------------------------------------------------------------*/
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* who adds holds it */
static fa_operation *known[FA_OPERATIONS_MAX];
static atomic_int known_count;                          /* entries below it stay as they are */
static _Atomic(const fa_operation *) default_operation; /* set when all built-in ones are there */

static const fa_operation *find(const char *name)
{
    int count = atomic_load_explicit(&known_count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (strcmp(known[i]->name, name) == 0)
            return known[i];
    return NULL;
}

/* With the mutex held. */
static int add(const char *text, size_t size, const char *where, const fa_operation **ret_operation,
               fa_diag *diag)
{
    fa_operation *operation = NULL;
    int count = atomic_load_explicit(&known_count, memory_order_relaxed);
    int rc = operation_read(text, size, where, &operation, diag);
    if (rc != 0)
        return rc;
    const fa_operation *same = find(operation->name);
    if (same != NULL) {
        const char *name = "fields";
        if (!cJSON_Compare(cJSON_GetObjectItemCaseSensitive(operation->document, name),
                           cJSON_GetObjectItemCaseSensitive(same->document, name), true))
            rc = fa_fail(diag, FA_EINVAL,
                         "%s: operation %s is known with other fields: give this one another name",
                         where, same->name);
        operation_free(operation);
    } else if (count == FA_OPERATIONS_MAX) {
        rc = fa_fail(diag, FA_EINVAL, "%s: more than %d operations", where, FA_OPERATIONS_MAX);
        operation_free(operation);
    } else {
        known[count] = operation;
        atomic_store_explicit(&known_count, count + 1, memory_order_release);
        same = operation;
    }
    if (rc == 0)
        *ret_operation = same;
    return rc;
}

/* Reads the built-in operations unless that is done; NULL when memory runs out. */
static const fa_operation *builtin(void)
{
    const fa_operation *found = atomic_load_explicit(&default_operation, memory_order_acquire);
    if (found != NULL)
        return found;
    pthread_mutex_lock(&mutex);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < fa_operations_builtin_count; i++) {
        const struct fa_operation_text *text = &fa_operations_builtin[i];
        const fa_operation *operation = NULL;
        rc = add(text->text, text->size, text->where, &operation, NULL);
        if (rc == 0 && operation->is_default)
            found = operation;
    }
    if (rc == 0)
        atomic_store_explicit(&default_operation, found, memory_order_release);
    pthread_mutex_unlock(&mutex);
    return rc == 0 ? found : NULL;
}

const fa_operation *fa_operation_of(const fa_problem *problem)
{
    static const fa_operation none = {.name = "", .title = ""};
    const fa_operation *operation =
        problem != NULL && problem->operation != NULL ? problem->operation : builtin();
    return operation != NULL ? operation : &none;
}

const fa_operation *fa_operation_at(int index)
{
    return builtin() == NULL || index < 0 ||
                   index >= atomic_load_explicit(&known_count, memory_order_acquire)
               ? NULL
               : known[index];
}

int fa_operation_find(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    const fa_operation *found = builtin() != NULL ? find(name) : NULL;
    if (found != NULL) {
        *ret_operation = found;
        return 0;
    }
    fa_buf list = {0};
    for (int i = 0; fa_operation_at(i) != NULL; i++)
        fa_buf_printf(&list, "%s%s",
                      i == 0                           ? ""
                      : fa_operation_at(i + 1) != NULL ? ", "
                                                       : " or ",
                      fa_operation_at(i)->name);
    int rc = list.data == NULL
                 ? fa_fail(diag, FA_ENOMEM, "out of memory for operations")
                 : fa_fail(diag, FA_ENOTSUP, "operation \"%.40s\" is not known: use %s", name,
                           list.data);
    fa_buf_free(&list);
    return rc;
}

int fa_operation_register(const char *text, size_t size, const char *where,
                          const fa_operation **ret_operation, fa_diag *diag)
{
    if (builtin() == NULL)
        return fa_fail(diag, FA_ENOMEM, "%s: out of memory", where);
    pthread_mutex_lock(&mutex);
    int rc = add(text, size, where, ret_operation, diag);
    pthread_mutex_unlock(&mutex);
    return rc;
}
