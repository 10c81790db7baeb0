/* SPDX-License-Identifier: Apache-2.0
 *
 * The family of a kernel specification, as a manifest: tunables, restrictions, geometry.
 */
#include "spec_reading.h"

#include "family.h"
#include "trial.h"

#include <stdio.h>
#include <string.h>

/* ---- the family ------------------------------------------------------------------------------*/
cJSON *fa_spec_preset(int32_t value)
{
    char room[FA_VALUE_TEXT_MAX], text[FA_VALUE_TEXT_MAX + 2];
    const char *quote = fa_value_is_text(value) ? "'" : "";
    snprintf(text, sizeof text, "%s%s%s", quote, fa_value_words(value, room), quote);
    return cJSON_CreateString(text);
}

/* Values of a tunable: true and false are 1 and 0. */
static int add_tunable(const struct fa_spec_reading *r, cJSON *tunables, cJSON *presets,
                       const cJSON *values)
{
    const cJSON *value;
    int32_t is = 0;
    cJSON *domain = fa_json_add_array(tunables, values->string);
    if (!cJSON_IsArray(values) || values->child == NULL)
        return fa_spec_fault(r, "tune %.60s must be an array of numbers, booleans or texts",
                             values->string);
    if (cJSON_GetArraySize(values) > FA_MAX_DOMAIN) /* before the process keeps them for good */
        return fa_spec_fault(r, "tune %.60s has %d values: at most %d", values->string,
                             cJSON_GetArraySize(values), FA_MAX_DOMAIN);
    cJSON_ArrayForEach (value, values) {
        if (fa_value_of_json(value, &is, r->diag) != 0)
            return fa_fail_in(r->diag, FA_EMANIFEST, "%s: tune %.60s", r->where, values->string);
        fa_json_push(domain,
                     cJSON_IsBool(value) ? cJSON_CreateNumber(is) : cJSON_Duplicate(value, false));
    }
    const cJSON *preset = fa_spec_member(fa_spec_member(r->json, "default"), values->string);
    if (fa_value_of_json(preset != NULL ? preset : domain->child, &is, r->diag) != 0)
        return fa_fail_in(r->diag, FA_EMANIFEST, "%s: default %.60s", r->where, values->string);
    fa_json_add(presets, values->string, fa_spec_preset(is));
    return 0;
}

static int add_restrictions(const struct fa_spec_reading *r)
{
    static const char *const keys[] = {"require", "why", NULL};
    const cJSON *item, *list = fa_spec_member(r->json, "restrictions");
    int at = 0;
    cJSON *constraints = fa_json_add_array(r->manifest, "constraints");
    if (list != NULL && !cJSON_IsArray(list))
        return fa_spec_fault(r, "\"restrictions\" must be an array of expressions");
    cJSON_ArrayForEach (item, list) {
        cJSON *rule = cJSON_CreateObject();
        const cJSON *why = fa_spec_member(item, "why");
        char place[32];
        snprintf(place, sizeof place, "restrictions[%d]", at++);
        if (cJSON_IsObject(item) && fa_spec_check_keys(r, item, place, keys) != 0) {
            cJSON_Delete(rule);
            return FA_EMANIFEST;
        }
        fa_json_add(
            rule, "require",
            cJSON_Duplicate(cJSON_IsObject(item) ? fa_spec_member(item, "require") : item, false));
        fa_json_add_text(rule, "why",
                         cJSON_IsString(why)    ? why->valuestring
                         : cJSON_IsString(item) ? item->valuestring
                                                : fa_spec_text(item, "require"));
        fa_json_push(constraints, rule);
    }
    return 0;
}

/* One launch: into the manifest itself, or of several into an element of its list. */
static int add_launch(const struct fa_spec_reading *r, int index, cJSON *launch)
{
    const cJSON *from = fa_spec_launch(r, index), *memory = fa_spec_member(from, "shared_memory");
    char place[32] = "";
    if (from != r->json)
        snprintf(place, sizeof place, "launches[%d]: ", index);
    fa_json_add_text(launch, "entry", r->entry[index]);
    int rc = fa_spec_add_sides(r, from, place, launch, "block");
    if (rc == 0)
        rc = fa_spec_add_sides(r, from, place, launch, "grid");
    if (rc == 0 && fa_spec_member(from, "cluster") != NULL)
        rc = fa_spec_add_sides(r, from, place, launch, "cluster");
    cJSON *addends = cJSON_IsObject(memory) ? cJSON_Duplicate(memory, true) : cJSON_CreateObject();
    if (memory != NULL && !cJSON_IsObject(memory))
        fa_json_add(addends, "dynamic", cJSON_Duplicate(memory, false));
    fa_json_add(launch, "shared_memory", addends);
    if (fa_spec_member(from, "work") != NULL)
        fa_json_add(launch, "work", cJSON_Duplicate(fa_spec_member(from, "work"), true));
    return rc;
}

int fa_spec_make_manifest(struct fa_spec_reading *r)
{
    const cJSON *item;
    char operation[FA_NAME_MAX + FA_HASH_HEX + 1];
    cJSON *json = r->manifest = cJSON_CreateObject();
    snprintf(operation, sizeof operation, "%s@%s", r->name, r->hash);
    fa_json_add_text(json, "name", r->name);
    fa_json_add_text(json, "operation", operation);
    fa_json_add_bool(json, "as_is", true);
    cJSON *sm = fa_json_add_object(json, "sm");
    fa_json_add_number(sm, "min", 10);
    fa_json_add_number(sm, "max", 999);
    cJSON *tunables = fa_json_add_object(json, "tunables");
    cJSON *presets = fa_json_add_object(json, "default");
    if (!cJSON_IsObject(fa_spec_member(r->json, "tune")))
        return fa_spec_fault(r, "\"tune\" must be an object, as in {\"BLOCK\": [64, 128, 256]}");
    int rc = 0;
    cJSON_ArrayForEach (item, fa_spec_member(r->json, "tune"))
        if (rc == 0)
            rc = add_tunable(r, tunables, presets, item);
    cJSON_ArrayForEach (item, fa_spec_member(r->json, "default"))
        if (rc == 0 && !cJSON_HasObjectItem(tunables, item->string))
            rc = fa_spec_fault(r, "default %.60s is none of \"tune\"", item->string);
    if (fa_spec_member(r->json, "defines") != NULL)
        fa_json_add(json, "let", cJSON_Duplicate(fa_spec_member(r->json, "defines"), true));
    if (rc == 0)
        rc = add_restrictions(r);
    if (fa_spec_member(r->json, "launches") == NULL)
        return rc == 0 ? add_launch(r, 0, json) : rc;
    cJSON *launches = fa_json_add_array(json, "launches");
    for (int i = 0; i < fa_spec_count_launches(r) && rc == 0; i++) {
        cJSON *launch = cJSON_CreateObject();
        rc = fa_json_push(launches, launch) ? add_launch(r, i, launch) : FA_ENOMEM;
    }
    return rc;
}
