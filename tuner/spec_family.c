/* SPDX-License-Identifier: Apache-2.0
 *
 * The family of a kernel specification, as a manifest: tunables, restrictions, geometry.
 */
#include "spec_reading.h"

#include <stdio.h>
#include <string.h>

/* ---- the family ------------------------------------------------------------------------------*/
/* Values of a tunable: true and false are 1 and 0. */
static int add_tunable(const struct fa_spec_reading *r, cJSON *tunables, cJSON *presets,
                       const cJSON *values)
{
    const cJSON *value;
    cJSON *domain = fa_json_add_array(tunables, values->string);
    if (!cJSON_IsArray(values) || values->child == NULL)
        return fa_spec_fault(r, "tune %.60s must be an array of integers or booleans",
                             values->string);
    cJSON_ArrayForEach (value, values) {
        if (!cJSON_IsNumber(value) && !cJSON_IsBool(value))
            return fa_spec_fault(r, "tune %.60s: its values must be integers or booleans",
                                 values->string);
        fa_json_push(domain, cJSON_CreateNumber(cJSON_IsNumber(value) ? value->valuedouble
                                                                      : cJSON_IsTrue(value)));
    }
    const cJSON *preset = fa_spec_member(fa_spec_member(r->json, "default"), values->string);
    fa_json_add(presets, values->string,
                cJSON_IsBool(preset)
                    ? cJSON_CreateNumber(cJSON_IsTrue(preset))
                    : cJSON_Duplicate(preset != NULL ? preset : domain->child, false));
    return 0;
}

static int add_restrictions(const struct fa_spec_reading *r)
{
    const cJSON *item, *list = fa_spec_member(r->json, "restrictions");
    cJSON *constraints = fa_json_add_array(r->manifest, "constraints");
    if (list != NULL && !cJSON_IsArray(list))
        return fa_spec_fault(r, "\"restrictions\" must be an array of expressions");
    cJSON_ArrayForEach (item, list) {
        cJSON *rule = cJSON_CreateObject();
        const cJSON *why = fa_spec_member(item, "why");
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

int fa_spec_make_manifest(struct fa_spec_reading *r)
{
    const cJSON *item, *memory = fa_spec_member(r->json, "shared_memory");
    char operation[FA_NAME_MAX + FA_HASH_HEX + 1];
    cJSON *json = r->manifest = cJSON_CreateObject();
    snprintf(operation, sizeof operation, "%s@%s", r->name, r->hash);
    fa_json_add_text(json, "name", r->name);
    fa_json_add_text(json, "operation", operation);
    fa_json_add_text(json, "entry", r->entry);
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
    if (rc == 0)
        rc = fa_spec_add_sides(r, r->json, "", json, "block");
    if (rc == 0)
        rc = fa_spec_add_sides(r, r->json, "", json, "grid");
    cJSON *addends = cJSON_IsObject(memory) ? cJSON_Duplicate(memory, true) : cJSON_CreateObject();
    if (memory != NULL && !cJSON_IsObject(memory))
        fa_json_add(addends, "dynamic", cJSON_Duplicate(memory, false));
    fa_json_add(json, "shared_memory", addends);
    return rc;
}
