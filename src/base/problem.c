/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done with a problem's values by its operation's table of fields.
 */
#include "problem.h"

#include "buf.h"
#include "error.h"
#include "json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define EACH_FIELD(op, f) \
    for (const fa_field *f = (op)->field; f < (op)->field + (op)->field_count; f++)
#define VALUE(problem, op, f) ((problem)->value[(f) - (op)->field])

/* ---- check ----------------------------------------------------------------------------------*/
/* "a, b or c" */
static int fail_choice(const fa_field *f, int32_t value, fa_diag *diag)
{
    fa_buf list = {0};
    for (int i = 0; f->choice[i] != NULL; i++)
        fa_buf_printf(&list, "%s%s",
                      i == 0                     ? ""
                      : f->choice[i + 1] != NULL ? ", "
                                                 : " or ",
                      f->choice[i]);
    int rc = fa_fail(diag, FA_EINVAL, "%s is %d: use %s", f->name, value,
                     list.data != NULL ? list.data : "another");
    fa_buf_free(&list);
    return rc;
}

static int fail_value(const fa_operation *op, const fa_field *f, const fa_problem *p, fa_diag *diag)
{
    int32_t value = VALUE(p, op, f);
    char steps[40] = "";
    if (f->kind == FA_FIELD_CHOICE)
        return fail_choice(f, value, diag);
    if (f->divides >= 0)
        return fa_fail(diag, FA_EINVAL, "%s is %d: must divide %s, which is %d", f->name, value,
                       op->field[f->divides].name, p->value[f->divides]);
    if (f->kind == FA_FIELD_BOOLEAN)
        return fa_fail(diag, FA_EINVAL, "%s is %d: use 0 or 1", f->name, value);
    if (f->multiple > 1)
        snprintf(steps, sizeof steps, "a multiple of %d from ", f->multiple);
    return fa_fail(diag, FA_EINVAL, "%s is %d: use %s%d to %d%s%s%s", f->name, value, steps, f->min,
                   f->max, f->hint[0] != 0 ? " (" : "", f->hint, f->hint[0] != 0 ? ")" : "");
}

int fa_problem_check(const fa_problem *p, fa_diag *diag)
{
    const fa_operation *op = fa_operation_of(p);
    if (op->field_count == 0)
        return fa_fail(diag, FA_ENOMEM, "out of memory for operations");
    EACH_FIELD(op, f)
    {
        int32_t value = VALUE(p, op, f);
        int32_t whole = f->divides >= 0 ? p->value[f->divides] : 0;
        if (value < f->min || value > f->max || value % f->multiple != 0 ||
            (f->divides >= 0 && (value < 1 || value > whole || whole % value != 0)))
            return fail_value(op, f, p, diag);
    }
    return 0;
}

/* ---- what stands for it ---------------------------------------------------------------------*/
fa_problem fa_problem_exact(const fa_problem *problem)
{
    fa_problem exact = *problem;
    const fa_operation *op = fa_operation_of(problem);
    EACH_FIELD(op, f)
    if (f->nonempty && VALUE(problem, op, f) == 0)
        VALUE(&exact, op, f) = 1;
    return exact;
}

int32_t fa_length_bucket(int32_t length)
{
    enum { EXACT = 16, PER_OCTAVE = 8 };
    if (length <= EXACT)
        return length;
    int64_t step = 1;
    while (step * 2 * PER_OCTAVE <= length)
        step *= 2;
    int64_t below = length / step * step, above = below + step;
    /* Nearer in ratio: length / below against above / length. */
    int64_t bucket = (int64_t)length * length < below * above ? below : above;
    return bucket <= INT32_MAX ? (int32_t)bucket : (int32_t)below;
}

fa_problem fa_problem_bucket(const fa_problem *problem)
{
    fa_problem bucket = fa_problem_exact(problem);
    const fa_operation *op = fa_operation_of(problem);
    EACH_FIELD(op, f)
    if (f->length)
        VALUE(&bucket, op, f) = fa_length_bucket(VALUE(&bucket, op, f));
    return bucket;
}

void fa_problem_fill(fa_problem *problem, uint32_t given)
{
    const fa_operation *op = fa_operation_of(problem);
    for (int i = 0; i < op->field_count; i++) {
        const fa_field *f = &op->field[i];
        if (!(given >> i & 1))
            problem->value[i] = f->follows >= 0 ? problem->value[f->follows] : f->preset;
    }
}

static double length_distance(int32_t a, int32_t b)
{
    if (a == b)
        return 0;
    return a <= 1 || b <= 1 ? -1 : fabs(log2((double)a / b));
}

double fa_problem_distance(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a);
    double most = 0;
    if (!fa_problem_alike(a, b))
        return -1;
    EACH_FIELD(op, f)
    {
        double distance = f->length ? length_distance(VALUE(a, op, f), VALUE(b, op, f)) : 0;
        if (distance < 0)
            return -1;
        most = distance > most ? distance : most;
    }
    return most;
}

bool fa_problem_equal(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a);
    return op == fa_operation_of(b) &&
           memcmp(a->value, b->value, (size_t)op->field_count * sizeof *a->value) == 0;
}

bool fa_problem_alike(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a);
    bool alike = op == fa_operation_of(b);
    EACH_FIELD(op, f)
    alike = alike && (f->length || VALUE(a, op, f) == VALUE(b, op, f));
    return alike;
}

bool fa_problem_same_work(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a);
    fa_problem other = *b;
    bool square = true;
    int32_t length = -1;
    EACH_FIELD(op, f)
    {
        square = square && (!f->length || length < 0 || VALUE(a, op, f) == length);
        length = f->length ? VALUE(a, op, f) : length;
    }
    EACH_FIELD(op, f)
    if (f->anchored && square && VALUE(a, op, f) != f->preset && VALUE(b, op, f) != f->preset)
        VALUE(&other, op, f) = VALUE(a, op, f);
    return fa_problem_equal(a, &other);
}

int fa_problem_compare(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a);
    int order[FA_PROBLEM_VALUES];
    if (op != fa_operation_of(b))
        return strcmp(op->name, fa_operation_of(b)->name);
    fa_operation_order(op, FA_ORDER_LISTING, order);
    for (int i = 0; i < op->field_count; i++)
        if (a->value[order[i]] != b->value[order[i]])
            return a->value[order[i]] < b->value[order[i]] ? -1 : 1;
    return 0;
}

bool fa_problem_is_empty(const fa_problem *problem)
{
    const fa_operation *op = fa_operation_of(problem);
    bool empty = false;
    EACH_FIELD(op, f)
    empty = empty || (f->nonempty && VALUE(problem, op, f) == 0);
    return empty;
}

fa_problem fa_problem_some(const fa_operation *operation)
{
    enum { SOME = 64 };
    fa_problem problem = {.operation = operation};
    uint32_t given = 0;
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[i];
        if (!f->required)
            continue;
        given |= 1u << i;
        problem.value[i] = SOME < f->min ? f->min : SOME > f->max ? f->max : SOME;
        problem.value[i] = (problem.value[i] + f->multiple - 1) / f->multiple * f->multiple;
    }
    fa_problem_fill(&problem, given);
    return problem;
}

/* ---- texts ----------------------------------------------------------------------------------*/
const char *fa_field_text(const fa_field *field, int32_t value, char room[16])
{
    if (field->kind == FA_FIELD_BOOLEAN)
        return value != 0 ? "true" : "false";
    if (field->kind == FA_FIELD_CHOICE)
        return value >= field->min && value <= field->max ? field->choice[value] : "unknown";
    snprintf(room, 16, "%d", value);
    return room;
}

int fa_field_choice(const fa_field *field, const char *name)
{
    for (int i = 0; field->choice[i] != NULL; i++)
        if (strcmp(field->choice[i], name) == 0)
            return i;
    return -1;
}

static void put_key(const fa_problem *problem, bool lengths, char ret_key[FA_PROBLEM_KEY_MAX])
{
    const fa_operation *op = fa_operation_of(problem);
    int n = snprintf(ret_key, FA_PROBLEM_KEY_MAX, "%s", op->name);
    EACH_FIELD(op, f)
    {
        int32_t value = VALUE(problem, op, f);
        char room[16];
        const char *text = room;
        if ((f->length && !lengths) || (f->optional && value == f->preset))
            continue;
        if (f->kind == FA_FIELD_CHOICE && f->key_as == FA_AS_VALUE)
            text = fa_field_text(f, value, room);
        else
            snprintf(room, sizeof room, "%d", fa_field_shown(f->key_as, value));
        n += snprintf(ret_key + n, (size_t)(FA_PROBLEM_KEY_MAX - n), " %s%s%s", f->key,
                      f->key[0] != 0 ? "=" : "", text);
    }
}

void fa_problem_key(const fa_problem *problem, char ret_key[FA_PROBLEM_KEY_MAX])
{
    put_key(problem, true, ret_key);
}

void fa_problem_shape(const fa_problem *problem, char ret_shape[FA_PROBLEM_KEY_MAX])
{
    put_key(problem, false, ret_shape);
}

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
    const char *label =
        apart != NULL && !brief && f->label_apart[0] != 0 ? f->label_apart : f->label;
    char room[16];
    const char *value = fa_field_text(f, VALUE(p, op, f), room);
    bool alone = f->kind == FA_FIELD_BOOLEAN ||
                 (brief && f->quiet && f->kind == FA_FIELD_CHOICE && label[0] != 0);
    fa_buf_printf(out, "%s%s%s", label, alone || brief || label[0] == 0 ? "" : " ",
                  alone ? "" : value);
    if (apart == NULL)
        return;
    value = fa_field_text(apart, VALUE(p, op, apart), room);
    if (brief || f->label_apart[0] == 0)
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
    fa_buf text = {0};
    EACH_FIELD(op, f)
    {
        const fa_field *apart = follower_apart(op, f, problem);
        if (!f->length || f->follows >= 0)
            continue;
        fa_buf_printf(&text, "%s%s %d", text.size > 0 ? ", " : "",
                      apart != NULL ? f->label_apart : f->label, VALUE(problem, op, f));
        if (apart != NULL)
            fa_buf_printf(&text, ", %s %d", apart->label, VALUE(problem, op, apart));
    }
    snprintf(ret_text, size, "%s", text.data != NULL ? text.data : "");
    fa_buf_free(&text);
}

/* ---- JSON -----------------------------------------------------------------------------------*/
cJSON *fa_field_to_json(cJSON *object, const char *key, const fa_field *field, int32_t value)
{
    char room[16];
    if (field->kind == FA_FIELD_INTEGER)
        return cJSON_AddNumberToObject(object, key, value);
    if (field->kind == FA_FIELD_BOOLEAN)
        return cJSON_AddBoolToObject(object, key, value != 0);
    return cJSON_AddStringToObject(object, key, fa_field_text(field, value, room));
}

cJSON *fa_problem_to_json(const fa_problem *p)
{
    const fa_operation *op = fa_operation_of(p);
    cJSON *json = cJSON_CreateObject();
    cJSON *last = cJSON_AddStringToObject(json, "operation", op->name);
    EACH_FIELD(op, f) {
        int32_t value = VALUE(p, op, f);
        if (last != NULL && !(f->optional && value == f->preset))
            last = fa_field_to_json(json, f->name, f, value);
    }
    if (last == NULL) {
        cJSON_Delete(json);
        return NULL;
    }
    return json;
}

/* FA_ENOTFOUND: the field is absent. */
static int read_value(const cJSON *json, const fa_field *f, int32_t *ret, fa_diag *diag)
{
    int64_t number = 0;
    const char *text = "";
    bool flag = false;
    int rc = f->kind == FA_FIELD_INTEGER
                 ? fa_json_int(json, f->name, INT32_MIN, INT32_MAX, &number, "problem", diag)
             : f->kind == FA_FIELD_BOOLEAN ? fa_json_bool(json, f->name, &flag, "problem", diag)
                                           : fa_json_text(json, f->name, &text, "problem", diag);
    if (rc != 0)
        return rc;
    if (f->kind == FA_FIELD_CHOICE && fa_field_choice(f, text) < 0)
        return fa_fail(diag, FA_EINVAL, "problem: %s \"%s\" is not known", f->name, text);
    *ret = f->kind == FA_FIELD_INTEGER   ? (int32_t)number
           : f->kind == FA_FIELD_BOOLEAN ? flag
                                         : fa_field_choice(f, text);
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
    int rc = read_operation(json, &problem, diag);
    if (rc == 0)
        rc = read_values(json, &problem, &given, diag);
    if (rc == 0)
        rc = fa_problem_check(&problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
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
    for (const cJSON *item = json->child; item != NULL && !any; item = item->next)
        if (fa_operation_field_index(op, item->string) < 0 &&
            strcmp(item->string, "operation") != 0 &&
            (beside == NULL || strcmp(item->string, beside) != 0))
            return fa_fail(diag, FA_EINVAL, "problem: there is no key \"%.40s\"", item->string);
    for (const cJSON *item = json->child; item != NULL; item = item->next)
        if (cJSON_GetObjectItemCaseSensitive(json, item->string) != item)
            return fa_fail(diag, FA_EINVAL, "problem: key \"%.40s\" stands twice", item->string);
    if (need == FA_NEED_ALL && cJSON_GetObjectItemCaseSensitive(json, "operation") == NULL)
        return fa_fail(diag, FA_EINVAL, "problem: \"operation\" is missing");
    EACH_FIELD(op, f)
    {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, f->name);
        int64_t value;
        if (is_needed(f, need) && item == NULL)
            return fa_fail(diag, FA_EINVAL, "problem: \"%s\" is missing", f->name);
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
    int rc = read_operation(json, &problem, diag);
    if (rc == 0)
        rc = check_document(json, fa_operation_of(&problem), need, beside, diag);
    if (rc == 0)
        rc = read_values(json, &problem, &given, diag);
    if (rc != 0)
        return rc;
    fa_problem_fill(&problem, given);
    rc = fa_problem_check(&problem, diag);
    if (rc == 0)
        *ret_problem = problem;
    return rc;
}

/* ---- work and traffic, as the operation's file tells them -----------------------------------*/
/* The value of a field, or a number itself; 0: it is neither. */
static double factor(const fa_operation *operation, const fa_problem *p, const cJSON *item)
{
    int field = cJSON_IsString(item) ? fa_operation_field_index(operation, item->valuestring) : -1;
    return field >= 0 ? p->value[field] : cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* The sum of the products that `key` lists: [[4, "batch", "seq_q"], …]. */
static double sum_of_products(const fa_problem *p, const char *key)
{
    const fa_operation *operation = fa_operation_of(p);
    const cJSON *product, *item;
    double sum = 0;
    cJSON_ArrayForEach (product, cJSON_GetObjectItemCaseSensitive(operation->document, key)) {
        double value = 1;
        cJSON_ArrayForEach (item, product)
            value *= factor(operation, p, item);
        sum += cJSON_GetArraySize(product) > 0 ? value : 0;
    }
    return sum;
}

double fa_problem_nominal_flops(const fa_problem *p)
{
    const fa_operation *operation = fa_operation_of(p);
    const cJSON *halved = cJSON_GetObjectItemCaseSensitive(operation->document, "flops_halved_by");
    double flops = sum_of_products(p, "flops"), by = factor(operation, p, halved);
    return by > 0 ? flops / 2 : flops;
}

double fa_problem_bytes(const fa_problem *p)
{
    return sum_of_products(p, "bytes");
}
