/* SPDX-License-Identifier: Apache-2.0
 *
 * What the parts of a specification are read with.
 */
#include "spec_reading.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int fa_spec_fault(const struct fa_spec_reading *r, const char *format, ...)
{
    char text[700];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return fa_fail(r->diag, FA_EMANIFEST, "%s: %s", r->where, text);
}

const cJSON *fa_spec_member(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNull(item) ? NULL : item;
}

const char *fa_spec_text(const cJSON *json, const char *key)
{
    const char *text = cJSON_GetStringValue(fa_spec_member(json, key));
    return text != NULL ? text : "";
}

int fa_spec_check_keys(const struct fa_spec_reading *r, const cJSON *object, const char *place,
                       const char *const *keys)
{
    char where[300];
    snprintf(where, sizeof where, "%.200s%s%.60s", r->where, place[0] != 0 ? ": " : "", place);
    return fa_json_check_keys(object, keys, where, r->diag) == 0 ? 0 : FA_EMANIFEST;
}

const char *fa_spec_expression(const cJSON *item, char room[32])
{
    if (cJSON_IsString(item))
        return item->valuestring;
    if (!cJSON_IsNumber(item))
        return NULL;
    snprintf(room, 32, "%.17g", item->valuedouble);
    return room;
}

int fa_spec_add_sides(const struct fa_spec_reading *r, const cJSON *from, const char *place,
                      cJSON *to, const char *key)
{
    const cJSON *sides = fa_spec_member(from, key);
    cJSON *array = fa_json_add_array(to, key);
    char room[32];
    int count = cJSON_IsArray(sides) ? cJSON_GetArraySize(sides) : sides != NULL;
    for (int i = 0; i < 3; i++) {
        const cJSON *side = cJSON_IsArray(sides) ? cJSON_GetArrayItem(sides, i)
                            : i == 0             ? sides
                                                 : NULL;
        const char *text = fa_spec_expression(side, room);
        if (i < count && text == NULL)
            return fa_spec_fault(r, "%s\"%s\" must be one to three expressions", place, key);
        if (!fa_json_push(array, cJSON_CreateString(i < count ? text : "1")))
            return FA_ENOMEM;
    }
    return count >= 1 && count <= 3
               ? 0
               : fa_spec_fault(r, "%s\"%s\" must be one to three expressions", place, key);
}

int fa_spec_count_launches(const struct fa_spec_reading *r)
{
    const cJSON *list = fa_spec_member(r->json, "launches");
    return cJSON_IsArray(list) ? cJSON_GetArraySize(list) : 1;
}

const cJSON *fa_spec_launch(const struct fa_spec_reading *r, int launch)
{
    const cJSON *list = fa_spec_member(r->json, "launches");
    return cJSON_IsArray(list) ? cJSON_GetArrayItem(list, launch) : r->json;
}
