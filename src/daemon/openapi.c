/* SPDX-License-Identifier: Apache-2.0 */
#include "openapi.h"

#include "operation.h"
#include "json_make.h"

static cJSON *schema_of_field(const fa_field *field)
{
    static const char *const types[] = {
        [FA_FIELD_INTEGER] = "integer", [FA_FIELD_BOOLEAN] = "boolean"};
    cJSON *schema = cJSON_CreateObject();
    if (field->kind == FA_FIELD_CHOICE) {
        cJSON *names = fa_json_add_array(schema, "enum");
        for (const char *const *name = field->choice; *name != NULL; name++)
            fa_json_push(names, cJSON_CreateString(*name));
        return schema;
    }
    fa_json_add_text(schema, "type", types[field->kind]);
    if (field->kind == FA_FIELD_INTEGER) {
        fa_json_add_number(schema, "minimum", field->min);
        if (field->max < INT32_MAX)
            fa_json_add_number(schema, "maximum", field->max);
        if (field->multiple > 1)
            fa_json_add_number(schema, "multipleOf", field->multiple);
    }
    return schema;
}

static cJSON *schema_of_operation(const fa_operation *operation)
{
    cJSON *schema = cJSON_CreateObject();
    fa_json_add_text(schema, "type", "object");
    fa_json_add_text(schema, "description", operation->title);
    cJSON *required = fa_json_add_array(schema, "required");
    fa_json_add_bool(schema, "additionalProperties", false);
    cJSON *properties = fa_json_add_object(schema, "properties");
    cJSON *name = fa_json_add_object(properties, "operation");
    fa_json_push(fa_json_add_array(name, "enum"), cJSON_CreateString(operation->name));
    if (!operation->is_default)
        fa_json_push(required, cJSON_CreateString("operation"));
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        fa_json_add(properties, field->name, schema_of_field(field));
        if (field->kind == FA_FIELD_INTEGER && field->follows < 0 && !field->optional)
            fa_json_push(required, cJSON_CreateString(field->name));
    }
    return schema;
}

int serve_openapi_operations(void)
{
    int count = 0;
    while (fa_operation_at(count) != NULL)
        count++;
    return count;
}

char *serve_openapi_text(void)
{
    cJSON *document = cJSON_Parse(serve_openapi_document);
    cJSON *components = cJSON_GetObjectItemCaseSensitive(document, "components");
    cJSON *schemas = cJSON_GetObjectItemCaseSensitive(components, "schemas");
    cJSON *problem = cJSON_GetObjectItemCaseSensitive(schemas, "Problem");
    cJSON *choices = fa_json_add_array(problem, "anyOf");
    const fa_operation *operation;
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++)
        fa_json_push(choices, schema_of_operation(operation));
    char *text = choices != NULL ? fa_json_print(document) : NULL;
    cJSON_Delete(document);
    return text;
}
