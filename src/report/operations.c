/* SPDX-License-Identifier: Apache-2.0
 *
 * The operations as reports tell them: their tables of fields, as their files have them, with what a page
 * needs to name, filter, group and ask for problems.
 */
#include "words.h"

#include "operation.h"
#include "json_make.h"

#include <string.h>

cJSON *report_operations_json(void)
{
    static const char *const told[] = {"name", "title", "default", "counts", "fields"};
    const fa_operation *operation;
    cJSON *array = cJSON_CreateArray();
    for (int i = 0; (operation = fa_operation_at(i)) != NULL; i++) {
        cJSON *item = cJSON_CreateObject();
        for (size_t t = 0; t < sizeof told / sizeof *told; t++) {
            const cJSON *value = cJSON_GetObjectItemCaseSensitive(operation->document, told[t]);
            if (value != NULL)
                fa_json_add(item, told[t], cJSON_Duplicate(value, true));
        }
        fa_json_push(array, item);
    }
    return array;
}
