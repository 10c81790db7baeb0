/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems by the names of their fields, for callers: what fa_problem.h declares.
 */
#include "error.h"
#include "fa_problem.h"
#include "json.h"
#include "problem.h"
#include "spec.h"
#include "trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const fa_operation *or_default(const fa_operation *operation)
{
    return operation != NULL ? operation : fa_operation_of(NULL);
}

int fa_find_operation(const char *name, const fa_operation **ret_operation, fa_diag *diag)
{
    if (name == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "name or ret_operation is NULL");
    return fa_operation_find(name, ret_operation, diag);
}

int fa_load_operations(const char *templates, fa_diag *diag)
{
    if (templates == NULL)
        return fa_fail(diag, FA_EINVAL, "templates is NULL");
    return fa_operation_load(templates, diag);
}

int fa_spec_load(const char *path, const fa_operation **ret_operation, fa_diag *diag)
{
    if (path == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "path or ret_operation is NULL");
    return fa_spec_open(path, ret_operation, diag);
}

int fa_spec_read(const char *where, const char *text, const char *source,
                 const fa_operation **ret_operation, fa_diag *diag)
{
    if (where == NULL || text == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "where, text or ret_operation is NULL");
    return fa_spec_make(where, text, source, false, ret_operation, diag);
}

int fa_spec_read_untrusted(const char *where, const char *text, const char *source,
                           const fa_operation **ret_operation, fa_diag *diag)
{
    if (where == NULL || text == NULL || ret_operation == NULL)
        return fa_fail(diag, FA_EINVAL, "where, text or ret_operation is NULL");
    return fa_spec_make(where, text, source, true, ret_operation, diag);
}

int fa_spec_name(const fa_operation *operation, char *ret_name, size_t size, fa_diag *diag)
{
    operation = or_default(operation);
    const char *hash = cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(operation->document, "specification"));
    int length = ret_name == NULL ? -1
                 : hash == NULL   ? snprintf(ret_name, size, "%s", operation->name)
                                  : snprintf(ret_name, size, "%s@%s", operation->name, hash);
    return length >= 0 && (size_t)length < size
               ? 0
               : fa_fail(diag, FA_EINVAL, "the name of %s does not fit", operation->name);
}

int fa_spec_cases(const fa_operation *operation, fa_case_function *function, void *context,
                  fa_diag *diag)
{
    return fa_spec_set_cases(or_default(operation), function, context, diag);
}

const char *fa_name_of_operation(const fa_operation *operation)
{
    return or_default(operation)->name;
}

const char *fa_name_of_value(int32_t value, char *room)
{
    return fa_value_words(value, room);
}

int fa_operation_field(const fa_operation *operation, int32_t index, fa_field_info *ret_info)
{
    operation = or_default(operation);
    if (ret_info == NULL || ret_info->size < sizeof *ret_info)
        return FA_EINVAL;
    if (index < 0 || index >= operation->field_count)
        return FA_ENOTFOUND;
    const fa_field *f = &operation->field[index];
    *ret_info = (fa_field_info){.size = sizeof *ret_info,
                                .name = f->name,
                                .choices = f->kind == FA_FIELD_CHOICE ? f->choice : NULL,
                                .boolean = f->kind == FA_FIELD_BOOLEAN,
                                .min = f->min,
                                .max = f->max,
                                .multiple = f->multiple,
                                .preset = f->preset,
                                .required = f->required};
    return 0;
}

int fa_make_problem(const fa_operation *operation, fa_problem *ret_problem)
{
    if (ret_problem == NULL)
        return FA_EINVAL;
    *ret_problem = (fa_problem){.operation = operation};
    fa_problem_fill(ret_problem, 0);
    return 0;
}

/* The field of this name, or NULL after a sentence. */
static const fa_field *find_field(const fa_problem *problem, const char *name, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    int index = problem != NULL && name != NULL ? fa_operation_field_index(operation, name) : -1;
    if (index >= 0)
        return &operation->field[index];
    fa_fail(diag, FA_EINVAL, "a problem of %s has no field \"%.40s\"", operation->name,
            name != NULL ? name : "");
    return NULL;
}

int fa_set_field(fa_problem *problem, const char *name, const char *text, fa_diag *diag)
{
    const fa_field *f = find_field(problem, name, diag);
    if (f == NULL)
        return FA_EINVAL;
    if (text == NULL)
        return fa_fail(diag, FA_EINVAL, "no value for %s is given", f->name);
    char *end = NULL;
    long value = 0;
    if (f->kind == FA_FIELD_CHOICE)
        value = fa_field_choice(f, text);
    else if (f->kind == FA_FIELD_BOOLEAN)
        value = strcmp(text, "true") == 0 ? 1 : strcmp(text, "false") == 0 ? 0 : -1;
    else
        value = strtol(text, &end, 10);
    bool whole = end == NULL || (end != text && *end == 0);
    if (!whole || value < f->min || value > f->max || value % f->multiple != 0)
        return fa_fail(diag, FA_EINVAL, "%s cannot be \"%.40s\"", f->name, text);
    problem->value[f - fa_operation_of(problem)->field] = (int32_t)value;
    return 0;
}

int fa_get_field(const fa_problem *problem, const char *name, char *ret_text, size_t size,
                 fa_diag *diag)
{
    const fa_field *f = find_field(problem, name, diag);
    char room[16];
    if (f == NULL)
        return FA_EINVAL;
    const char *text = fa_field_text(f, problem->value[f - fa_operation_of(problem)->field], room);
    if (ret_text == NULL || strlen(text) >= size)
        return fa_fail(diag, FA_EINVAL, "%s is \"%s\", which does not fit", f->name, text);
    memcpy(ret_text, text, strlen(text) + 1);
    return 0;
}

int fa_check_problem(const fa_problem *problem, fa_diag *diag)
{
    return problem != NULL ? fa_problem_check(problem, diag)
                           : fa_fail(diag, FA_EINVAL, "problem is NULL");
}

int fa_problem_write(const fa_problem *problem, char **ret_text, fa_diag *diag)
{
    if (problem == NULL || ret_text == NULL)
        return fa_fail(diag, FA_EINVAL, "problem or ret_text is NULL");
    char *text = fa_json_finish(fa_problem_to_json(problem));
    if (text == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a problem");
    *ret_text = text;
    return 0;
}

int fa_problem_read(const char *text, size_t size, fa_problem *ret_problem, fa_diag *diag)
{
    cJSON *json = NULL;
    fa_problem problem = {0};
    if (text == NULL || ret_problem == NULL)
        return fa_fail(diag, FA_EINVAL, "text or ret_problem is NULL");
    int rc = fa_json_parse(text, size, "problem", &json, diag);
    if (rc == 0)
        rc = fa_problem_from_strict_json(json, FA_NEED_SIZES, NULL, &problem, diag);
    cJSON_Delete(json);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
}
