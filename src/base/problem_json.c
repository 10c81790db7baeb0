/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems as JSON, both ways. Documents may be hostile.
 */
#include "problem.h"

#include "error.h"
#include "json.h"

#include <stdio.h>
#include <string.h>

static cJSON *problem_to_json(const fa_problem *p, const char *name)
{
    const fa_operation *op = fa_operation_of(p);
    cJSON *json = cJSON_CreateObject();
    char room[16];
    fa_json_add_text(json, "operation", name);
    EACH_FIELD(op, f)
    {
        int32_t value = VALUE(p, op, f);
        if (fa_field_is_absent(f, value))
            continue;
        if (f->kind == FA_FIELD_INTEGER)
            fa_json_add_number(json, f->name, (double)fa_field_number(f, value));
        else if (f->kind == FA_FIELD_BOOLEAN)
            fa_json_add_bool(json, f->name, value != 0);
        else
            fa_json_add_text(json, f->name, fa_field_text(f, value, room));
    }
    return json;
}

cJSON *fa_problem_to_json(const fa_problem *p)
{
    return problem_to_json(p, fa_operation_of(p)->name);
}

cJSON *fa_member_very_problem(const void *problem)
{
    const fa_operation *op = fa_operation_of(problem);
    char name[FA_NAME_MAX + 80];
    snprintf(name, sizeof name, "%s%s%s", op->name, op->specification[0] != 0 ? "@" : "",
             op->specification);
    return problem_to_json(problem, name);
}

cJSON *fa_member_problem(const void *problem)
{
    return fa_problem_to_json(problem);
}

/* FA_ENOTFOUND: the field is absent. */
static int read_value(const cJSON *json, const fa_field *f, int32_t *ret, fa_diag *diag)
{
    int64_t number = 0;
    const char *text = "";
    bool flag = false;
    int rc = f->kind == FA_FIELD_INTEGER
                 ? fa_json_int(json, f->name, INT32_MIN, f->max > INT32_MAX ? f->max : INT32_MAX,
                               &number, "problem", diag)
             : f->kind == FA_FIELD_BOOLEAN ? fa_json_bool(json, f->name, &flag, "problem", diag)
                                           : fa_json_text(json, f->name, &text, "problem", diag);
    if (rc != 0)
        return rc;
    if (f->kind == FA_FIELD_CHOICE && fa_field_choice(f, text) < 0)
        return fa_fail(diag, FA_EINVAL, "problem: %s \"%s\" is not known", f->name, text);
    if (f->kind == FA_FIELD_INTEGER)
        return fa_field_keep(f, number, ret, diag);
    *ret = f->kind == FA_FIELD_BOOLEAN ? flag : fa_field_choice(f, text);
    return 0;
}

/* The operation that a document names; absent: that of `problem` as it is. Another one's problem begins
 * with its defaults. */
static int read_operation(const cJSON *json, fa_problem *problem, fa_diag *diag)
{
    const fa_operation *op = fa_operation_of(problem);
    const char *name = NULL;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "problem: must be a JSON object");
    int rc = fa_json_text(json, "operation", &name, "problem", diag);
    if (rc == 0) {
        rc = fa_operation_find(name, &op, diag);
        if (rc != 0)
            return fa_fail_in(diag, rc, "problem");
    }
    if (op != fa_operation_of(problem)) {
        *problem = (fa_problem){.operation = op};
        fa_problem_fill(problem, 0);
    }
    return rc == FA_ENOTFOUND ? 0 : rc;
}

/* Bit i of *ret_given: field i is there. */
static int read_values(const cJSON *json, fa_problem *problem, uint32_t *ret_given, fa_diag *diag)
{
    const fa_operation *op = fa_operation_of(problem);
    *ret_given = 0;
    for (int i = 0; i < op->field_count; i++) {
        int rc = read_value(json, &op->field[i], &problem->value[i], diag);
        if (rc != 0 && rc != FA_ENOTFOUND)
            return rc;
        if (rc == 0)
            *ret_given |= 1u << i;
    }
    return 0;
}

int fa_problem_from_json(const cJSON *json, fa_problem *ret_problem, fa_diag *diag)
{
    fa_problem problem = *ret_problem;
    uint32_t given;
    int rc;
    if ((rc = read_operation(json, &problem, diag)) != 0 ||
        (rc = read_values(json, &problem, &given, diag)) != 0 ||
        (rc = fa_problem_check(&problem, diag)) != 0)
        return rc;
    *ret_problem = problem;
    return 0;
}

static bool is_needed(const fa_field *f, fa_need need)
{
    return need == FA_NEED_ALL        ? !f->optional
           : need != FA_NEED_REQUIRED ? f->kind == FA_FIELD_INTEGER && !f->optional &&
                                            (f->follows < 0 || need == FA_NEED_INTEGERS)
                                      : f->required;
}

/* Missing fields, and keys that are none. */
static int check_document(const cJSON *json, const fa_operation *op, fa_need need,
                          const char *beside, fa_diag *diag)
{
    bool any = beside != NULL && strcmp(beside, "*") == 0;
    if (op->field_count == 0)
        return fa_fail(diag, FA_ENOMEM, "out of memory for operations");
    for (const cJSON *item = json->child; item != NULL && !any; item = item->next)
        if (fa_operation_field_index(op, item->string) < 0 &&
            strcmp(item->string, "operation") != 0 &&
            (beside == NULL || strcmp(item->string, beside) != 0))
            return fa_operation_refuse(op, item->string, diag) != 0
                       ? fa_fail_in(diag, FA_ENOTSUP, "problem")
                       : fa_fail(diag, FA_EINVAL, "problem: there is no key \"%.40s\"",
                                 item->string);
    for (const cJSON *item = json->child; item != NULL; item = item->next)
        if (cJSON_GetObjectItemCaseSensitive(json, item->string) != item)
            return fa_fail(diag, FA_EINVAL, "problem: key \"%.40s\" appears twice", item->string);
    if (need == FA_NEED_ALL && cJSON_GetObjectItemCaseSensitive(json, "operation") == NULL)
        return fa_fail(diag, FA_EINVAL, "problem: \"operation\" is missing");
    EACH_FIELD(op, f)
    {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, f->name);
        int64_t value;
        if (is_needed(f, need) && item == NULL)
            return fa_fail(diag, FA_EINVAL, "problem: %s needs \"%s\", which is missing",
                           op->name, f->name);
        if (f->required && need == FA_NEED_REQUIRED) {
            int rc = fa_json_int(json, f->name, f->min, f->max, &value, "problem", diag);
            if (rc != 0)
                return rc;
        }
    }
    return 0;
}

int fa_problem_from_strict_json(const cJSON *json, fa_need need, const char *beside,
                                fa_problem *ret_problem, fa_diag *diag)
{
    fa_problem problem = {.operation = ret_problem->operation};
    uint32_t given = 0;
    int rc;
    if ((rc = read_operation(json, &problem, diag)) != 0 ||
        (rc = check_document(json, fa_operation_of(&problem), need, beside, diag)) != 0 ||
        (rc = read_values(json, &problem, &given, diag)) != 0)
        return rc;
    fa_problem_fill(&problem, given);
    rc = fa_problem_check(&problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
}

static int read_member(const cJSON *json, fa_need need, fa_problem *ret_problem, fa_diag *diag)
{
    *ret_problem = (fa_problem){0};
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "\"problem\" must be an object");
    int rc = fa_problem_from_strict_json(json, need, NULL, ret_problem, diag);
    return rc == FA_ENOTSUP ? FA_EINVAL : rc; /* an operation that is not known here */
}

int fa_member_read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return read_member(json, FA_NEED_SIZES, ret_problem, diag);
}

int fa_member_read_whole_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    return read_member(json, FA_NEED_ALL, ret_problem, diag);
}

/* A problem in words for people, by the labels of its operation's fields. */
/* The field that follows this one and whose value is another; NULL: none. */
static const fa_field *follower_apart(const fa_operation *op, const fa_field *f,
                                      const fa_problem *p)
{
    EACH_FIELD(op, other)
    if (other->follows == f - op->field && VALUE(p, op, other) != VALUE(p, op, f))
        return other;
    return NULL;
}

static void put_words(fa_buf *out, const fa_operation *op, const fa_field *f, const fa_problem *p,
                      bool brief)
{
    const fa_field *apart = follower_apart(op, f, p);
    const char *label = f->label;
    char room[16];
    const char *value = fa_field_text(f, VALUE(p, op, f), room);
    bool alone =
        f->kind == FA_FIELD_BOOLEAN || (brief && f->kind == FA_FIELD_CHOICE && label[0] != 0);
    fa_buf_printf(out, "%s%s%s", label, alone || brief || label[0] == 0 ? "" : " ",
                  alone ? "" : value);
    if (apart == NULL)
        return;
    value = fa_field_text(apart, VALUE(p, op, apart), room);
    if (brief || !f->length)
        fa_buf_printf(out, "/%s", value);
    else
        fa_buf_printf(out, " %s %s", apart->label, value);
}

void fa_problem_words(fa_buf *out, const fa_problem *problem, const char *separator, bool brief)
{
    const fa_operation *op = fa_operation_of(problem);
    int order[FA_PROBLEM_VALUES];
    bool first = true;
    fa_operation_order(op, FA_ORDER_WORDS, order);
    for (int i = 0; i < op->field_count; i++) {
        const fa_field *f = &op->field[order[i]];
        if (f->follows >= 0 || (f->quiet && VALUE(problem, op, f) == f->preset))
            continue;
        fa_buf_text(out, first ? "" : separator);
        put_words(out, op, f, problem, brief);
        first = false;
    }
}

void fa_problem_lengths(const fa_problem *problem, char *ret_text, size_t size)
{
    const fa_operation *op = fa_operation_of(problem);
    if (size == 0)
        return;
    ret_text[0] = 0;
    EACH_FIELD(op, f)
    {
        const fa_field *apart = follower_apart(op, f, problem);
        size_t used = strlen(ret_text);
        if (!f->length || f->follows >= 0 || fa_field_is_absent(f, VALUE(problem, op, f)))
            continue;
        snprintf(ret_text + used, size - used, "%s%s %d", used > 0 ? ", " : "", f->label,
                 VALUE(problem, op, f));
        used = strlen(ret_text);
        if (apart != NULL)
            snprintf(ret_text + used, size - used, ", %s %d", apart->label,
                     VALUE(problem, op, apart));
    }
}
