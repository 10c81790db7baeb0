/* SPDX-License-Identifier: Apache-2.0 */
#include "openapi.h"

#include "operation.h"

static cJSON *schema_of_field(const fa_field *field)
{
    static const char *const types[] = {
        [FA_FIELD_INTEGER] = "integer", [FA_FIELD_BOOLEAN] = "boolean"};
    cJSON *schema = cJSON_CreateObject();
    if (field->kind == FA_FIELD_CHOICE) {
        cJSON *names = cJSON_AddArrayToObject(schema, "enum");
        for (const char *const *name = field->choice; *name != NULL; name++)
            cJSON_AddItemToArray(names, cJSON_CreateString(*name));
        return schema;
    }
    cJSON_AddStringToObject(schema, "type", types[field->kind]);
    if (field->kind == FA_FIELD_INTEGER) {
        cJSON_AddNumberToObject(schema, "minimum", field->min);
        if (field->max < INT32_MAX)
            cJSON_AddNumberToObject(schema, "maximum", field->max);
        if (field->multiple > 1)
            cJSON_AddNumberToObject(schema, "multipleOf", field->multiple);
    }
    return schema;
}

static cJSON *schema_of_operation(const fa_operation *operation)
{
    cJSON *schema = cJSON_CreateObject();
    cJSON_AddStringToObject(schema, "type", "object");
    cJSON_AddStringToObject(schema, "description", operation->title);
    cJSON *required = cJSON_AddArrayToObject(schema, "required");
    cJSON_AddBoolToObject(schema, "additionalProperties", false);
    cJSON *properties = cJSON_AddObjectToObject(schema, "properties");
    cJSON *name = cJSON_AddObjectToObject(properties, "operation");
    cJSON_AddItemToArray(cJSON_AddArrayToObject(name, "enum"), cJSON_CreateString(operation->name));
    if (!operation->is_default)
        cJSON_AddItemToArray(required, cJSON_CreateString("operation"));
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *field = &operation->field[i];
        cJSON_AddItemToObject(properties, field->name, schema_of_field(field));
        if (field->kind == FA_FIELD_INTEGER && field->follows < 0)
            cJSON_AddItemToArray(required, cJSON_CreateString(field->name));
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
    cJSON *choices = cJSON_AddArrayToObject(problem, "anyOf");
    const fa_operation *operation;
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++)
        cJSON_AddItemToArray(choices, schema_of_operation(operation));
    char *text = choices != NULL ? cJSON_PrintUnformatted(document) : NULL;
    cJSON_Delete(document);
    return text;
}
