/* SPDX-License-Identifier: Apache-2.0
 *
 * The common problems of an operation, which predictions for a catalogue of GPUs cover. Its file's "common"
 * has a list of values for some fields, of which the first varies fastest, and totals for products:
 * {"seq_q": [512, 1024], "--tokens": 16384}.
 */
#include "problem.h"

#include "error.h"

#include <string.h>

/* Takes one value of a list, by the remainder of *at, which is left as the quotient. */
static int take_value(const cJSON *list, const fa_field *field, int *at, int32_t *ret_value)
{
    int count = cJSON_GetArraySize(list);
    if (count < 1)
        return FA_EINVAL;
    const cJSON *item = cJSON_GetArrayItem(list, *at % count);
    *at /= count;
    *ret_value = cJSON_IsString(item) ? fa_field_choice(field, item->valuestring) : item->valueint;
    return 0;
}

int fa_operation_common(const fa_operation *operation, int at, fa_problem *ret_problem,
                        fa_diag *diag)
{
    const cJSON *common = cJSON_GetObjectItemCaseSensitive(operation->document, "common"), *item;
    fa_problem problem = {.operation = operation};
    uint32_t given = 0;
    cJSON_ArrayForEach (item, common) {
        int field = fa_operation_field_index(operation, item->string);
        if (field < 0)
            continue;
        if (take_value(item, &operation->field[field], &at, &problem.value[field]) != 0)
            return fa_fail(diag, FA_EINVAL, "operation %s: \"common\" has no list of %s",
                           operation->name, item->string);
        given |= 1u << field;
    }
    if (common == NULL || at > 0)
        return fa_fail(diag, FA_ENOTFOUND, "operation %s has no more common problems",
                       operation->name);
    for (int i = 0; i < operation->product_count; i++) {
        const fa_product *product = &operation->product[i];
        const cJSON *total = cJSON_GetObjectItemCaseSensitive(common, product->option);
        if (total == NULL || problem.value[product->by] < 1)
            continue;
        problem.value[product->field] = total->valueint / problem.value[product->by];
        given |= 1u << product->field;
    }
    fa_problem_fill(&problem, given);
    int rc = fa_problem_check(&problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
}
