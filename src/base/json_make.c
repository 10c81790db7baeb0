/* SPDX-License-Identifier: Apache-2.0 */
#include "json_make.h"

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

bool fa_json_add_null(cJSON *object, const char *key)
{
    return fa_json_add(object, key, cJSON_CreateNull());
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

char *fa_json_print(const cJSON *json)
{
    return fa_json_is_whole(json) ? cJSON_PrintUnformatted(json) : NULL;
}

char *fa_json_print_tidy(const cJSON *json)
{
    return fa_json_is_whole(json) ? cJSON_Print(json) : NULL;
}
