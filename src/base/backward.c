/* SPDX-License-Identifier: Apache-2.0 */
#include "backward.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <string.h>

const cJSON *fa_operation_backward(const fa_operation *operation)
{
    return cJSON_GetObjectItemCaseSensitive(operation->document, "backward");
}

static bool lists(const cJSON *backward, const char *key, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(backward, key))
        if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0)
            return true;
    return false;
}

/* A field of the forward pass whose value has no meaning for its gradients. */
static int check_field(const cJSON *backward, const fa_operation *gradients,
                       const fa_problem *forward, int field, fa_diag *diag)
{
    const fa_field *f = &fa_operation_of(forward)->field[field];
    bool there = fa_operation_field_index(gradients, f->name) >= 0;
    if (forward->value[field] == f->preset || (there && !lists(backward, "refuses", f->name)) ||
        lists(backward, "ignores", f->name) || lists(backward, "needs", f->name))
        return 0;
    if (there)
        return fa_fail(
            diag, FA_ENOTSUP,
            "\"%s\" means another thing to %s: ask for it by itself, as operation %s", f->name,
            gradients->title, gradients->name);
    return fa_fail(diag, FA_ENOTSUP, "%s has no field \"%s\"", gradients->title, f->name);
}

/* One that follows another does so where the forward pass says by a number that is none here, as head_dim_v by 0. */
static int32_t value_of(const fa_problem *forward, const fa_operation *gradients, int field)
{
    const fa_field *f = &gradients->field[field];
    int from = fa_operation_field_index(fa_operation_of(forward), f->name);
    int32_t value = from >= 0 ? forward->value[from] : f->preset;
    return f->kind == FA_FIELD_INTEGER && f->follows >= 0 && value < f->min
               ? value_of(forward, gradients, f->follows)
               : value;
}

int fa_problem_train(fa_problem *forward, fa_problem *ret_backward, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(forward), *gradients = NULL;
    const cJSON *backward = fa_operation_backward(operation);
    fa_problem wanted = *forward, problem = {0};
    const char *name = NULL;
    if (backward == NULL)
        return fa_fail(diag, FA_ENOTFOUND, "%s has no gradients that are an operation",
                       operation->title);
    int rc = fa_json_text_needed(backward, "operation", &name, operation->name, diag);
    if (rc == 0)
        rc = fa_operation_find(name, &gradients, diag);
    for (int i = 0; i < operation->field_count && rc == 0; i++) {
        if (lists(backward, "needs", operation->field[i].name))
            wanted.value[i] = 1;
        rc = check_field(backward, gradients, &wanted, i, diag);
    }
    if (rc != 0)
        return rc;
    problem.operation = gradients;
    for (int i = 0; i < gradients->field_count; i++)
        problem.value[i] = value_of(&wanted, gradients, i);
    rc = fa_problem_check(&problem, diag);
    if (rc != 0)
        return rc;
    *forward = wanted;
    *ret_backward = problem;
    return 0;
}
