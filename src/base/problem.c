/* SPDX-License-Identifier: Apache-2.0
 *
 * What is done with the values of a problem by its operation's table of fields, and what work it is.
 */
#include "problem.h"

#include "buf.h"
#include "error.h"
#include "json.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- check ----------------------------------------------------------------------------------*/
/* Whether an earlier field has the value that this one, away from its default, does not go with. */
static bool is_barred(const fa_operation *op, const fa_field *f, const fa_problem *p)
{
    const char *equals = strchr(f->bars, '=');
    char room[16];
    for (const fa_field *other = op->field; equals != NULL && other < f; other++)
        if (strncmp(f->bars, other->name, (size_t)(equals - f->bars)) == 0 &&
            other->name[equals - f->bars] == 0 &&
            strcmp(fa_field_text(other, VALUE(p, op, other), room), equals + 1) == 0)
            return VALUE(p, op, f) != f->preset;
    return false;
}

int fa_problem_check(const fa_problem *p, fa_diag *diag)
{
    const fa_operation *op = fa_operation_of(p);
    char room[FA_FIELD_RANGE_MAX];
    FA_OR_RETURN(fa_have(op->field_count > 0, "operations", diag));
    EACH_FIELD(op, f)
    {
        int32_t value = VALUE(p, op, f);
        int32_t whole = f->divides >= 0 ? p->value[f->divides] : 0;
        const int64_t number = fa_field_number(f, value);
        if (number < f->min || number > f->max || number % f->multiple != 0 ||
            (f->divides >= 0 && (value < 1 || value > whole || whole % value != 0)))
            return f->divides >= 0
                       ? fa_fail(diag, FA_EINVAL, "%s is %d: it must divide %s, which is %d",
                                 f->name, value, op->field[f->divides].name, whole)
                       : fa_fail(diag, FA_EINVAL, "%s is %lld%s", f->name, (long long)number,
                                 fa_field_range(f, number, room));
        if (f->needs >= 0 && value != f->preset && p->value[f->needs] == op->field[f->needs].preset)
            return fa_fail(diag, FA_EINVAL, "%s is %s, which needs %s: set it, too", f->name,
                           fa_field_text(f, value, room), op->field[f->needs].name);
        if (f->at_most >= 0 && value > p->value[f->at_most])
            return fa_fail(diag, FA_EINVAL, "%s is %d: use at most %s, which is %d", f->name, value,
                           op->field[f->at_most].name, p->value[f->at_most]);
        if (is_barred(op, f, p))
            return fa_fail(diag, FA_EINVAL, "%s does not go with %s", f->name, f->bars);
    }
    return 0;
}

bool fa_field_is_absent(const fa_field *field, int32_t value)
{
    return field->optional && value == field->preset;
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

int32_t fa_length_bucket(int32_t length, bool up)
{
    const int per_octave = up ? 64 : 8;
    int64_t step = up ? 8 : 1;
    while (step * 2 * per_octave <= length)
        step *= 2;
    int64_t below = length / step * step, above = below + step;
    /* Nearer in ratio: length / below against above / length. */
    bool down = below == length || (!up && (int64_t)length * length < below * above);
    return (int32_t)(down || above > INT32_MAX ? below : above);
}

fa_problem fa_problem_bucket(const fa_problem *problem)
{
    fa_problem bucket = fa_problem_exact(problem);
    const fa_operation *op = fa_operation_of(problem);
    EACH_FIELD(op, f)
    if (f->length)
        VALUE(&bucket, op, f) = fa_length_bucket(VALUE(&bucket, op, f), f->rounds_up);
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

double fa_problem_apart(const fa_problem *a, const fa_problem *b)
{
    static const double OTHER_KIND = 5;
    const fa_operation *op = fa_operation_of(a);
    double sum = 0;
    if (op != fa_operation_of(b))
        return -1;
    EACH_FIELD(op, f)
    {
        int32_t x = VALUE(a, op, f), y = VALUE(b, op, f);
        if (x == y)
            continue;
        if (f->shapes_source || !(f->length || f->nonempty))
            return -1;
        sum += f->length && (x <= 1 || y <= 1) ? OTHER_KIND : fabs(log2((double)x / y));
    }
    return sum;
}

bool fa_problem_equal(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a);
    return op == fa_operation_of(b) &&
           memcmp(a->value, b->value, (size_t)op->field_count * sizeof *a->value) == 0;
}

int fa_problem_compare(const fa_problem *a, const fa_problem *b)
{
    const fa_operation *op = fa_operation_of(a), *other = fa_operation_of(b);
    if (op != other)
        return op->is_default || other->is_default ? other->is_default - op->is_default
                                                   : strcmp(op->name, other->name);
    for (int pass = 0; pass < 3; pass++)
        EACH_FIELD(op, f)
        {
            const int64_t x = fa_field_number(f, VALUE(a, op, f)),
                          y = fa_field_number(f, VALUE(b, op, f));
            if (x != y && pass == (f->shapes_source ? 0 : f->length ? 1 : 2))
                return x < y ? -1 : 1;
        }
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
        problem.value[i] = SOME < f->min ? f->min : SOME > f->max ? (int32_t)f->max : SOME;
        problem.value[i] = (problem.value[i] + f->multiple - 1) / f->multiple * f->multiple;
    }
    fa_problem_fill(&problem, given);
    return problem;
}

/* ---- texts ----------------------------------------------------------------------------------*/
/* As "%lld" has it; returns the end. */
static char *put_number(char *to, int64_t value)
{
    char digits[20];
    int count = 0;
    uint64_t rest = value < 0 ? 0u - (uint64_t)value : (uint64_t)value;
    do
        digits[count++] = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0)
        *to++ = '-';
    while (count > 0)
        *to++ = digits[--count];
    return to;
}

/* Several times for each row of a list, so without printf. No operation is read whose keys would not fit. */
static void put_key(const fa_problem *problem, bool lengths, char ret_key[FA_PROBLEM_KEY_MAX])
{
    const fa_operation *op = fa_operation_of(problem);
    char *end = stpcpy(ret_key, op->name), hash[FA_HASH_HEX];
    EACH_FIELD(op, f)
    {
        int32_t value = VALUE(problem, op, f);
        if ((f->length && !lengths) || fa_field_is_absent(f, value))
            continue;
        *end++ = ' ';
        end = stpcpy(end, f->key);
        if (f->key[0] != 0)
            *end++ = '=';
        if (f->kind == FA_FIELD_TEXT) {
            const char *text = fa_field_text(f, value, NULL);
            fa_hash_bytes(text, strlen(text), hash);
            end = mempcpy(end, hash, FA_FIELD_KEY_DIGITS);
        } else
            end = f->kind == FA_FIELD_CHOICE ? stpcpy(end, fa_field_text(f, value, NULL))
                                             : put_number(end, fa_field_shown(f, value));
    }
    *end = 0;
}

void fa_problem_key(const fa_problem *problem, char ret_key[FA_PROBLEM_KEY_MAX])
{
    put_key(problem, true, ret_key);
}

void fa_problem_shape(const fa_problem *problem, char ret_shape[FA_PROBLEM_KEY_MAX])
{
    put_key(problem, false, ret_shape);
}

int fa_operation_expr(const fa_operation *operation, const char *text, fa_expr **ret_expr,
                      fa_diag *diag)
{
    const char *name[FA_PROBLEM_VALUES];
    for (int i = 0; i < operation->field_count; i++)
        name[i] = operation->field[i].macro;
    int rc = fa_expr_parse(text, name, operation->field_count, false, ret_expr, diag);
    if (rc == 0 && cJSON_HasObjectItem(operation->document, "specification"))
        fa_expr_divide_truly(*ret_expr);
    return rc;
}

fa_expr_value fa_problem_evaluate(const fa_problem *problem, const fa_expr *expr)
{
    const fa_operation *operation = fa_operation_of(problem);
    fa_expr_value value[FA_PROBLEM_VALUES];
    for (int i = 0; i < operation->field_count; i++)
        value[i] =
            (fa_expr_value){.kind = FA_EXPR_INTEGER,
                            .integer = fa_field_shown(&operation->field[i], problem->value[i])};
    return fa_expr_evaluate(expr, value);
}

double fa_problem_work(const fa_problem *p, const char *key)
{
    const char *text = fa_json_string(fa_operation_of(p)->document, key);
    FA_ENDS(fa_expr_free) fa_expr *expr = NULL;
    fa_expr_value value = {.kind = FA_EXPR_NONE};
    if (text != NULL && fa_operation_expr(fa_operation_of(p), text, &expr, NULL) == 0)
        value = fa_problem_evaluate(p, expr);
    return fa_expr_number(value);
}

bool fa_problem_has_no_answer(const fa_problem *p)
{
    const fa_operation *operation = fa_operation_of(p);
    return operation->specification[0] != 0 &&
           !cJSON_HasObjectItem(operation->document, "reference") && !fa_problem_answer_is_given(p);
}

bool fa_problem_answer_is_given(const fa_problem *p)
{
    return cJSON_HasObjectItem(fa_json_member(fa_operation_of(p)->document, "answer"), "given");
}

bool fa_problem_reads_fp32(const fa_problem *p)
{
    const fa_operation *operation = fa_operation_of(p);
    const cJSON *tensor;
    bool single = false, half = false;
    cJSON_ArrayForEach (tensor, fa_json_member(operation->document, "arguments")) {
        const char *type = fa_json_string(tensor, "type");
        const char *is = fa_json_string(tensor, "is");
        int field = type != NULL ? fa_operation_field_index(operation, type) : -1;
        char room[16];
        if (field >= 0)
            type = fa_field_text(&operation->field[field], p->value[field], room);
        if (type == NULL || !cJSON_HasObjectItem(tensor, "shape") ||
            (is != NULL && strcmp(is, "in") != 0 && strcmp(is, "made") != 0))
            continue;
        single |= strcmp(type, "fp32") == 0 || strcmp(type, "f32") == 0;
        half |= strcmp(type, "fp16") == 0 || strcmp(type, "f16") == 0 || strcmp(type, "bf16") == 0;
    }
    return single && !half;
}

/* ---- gradients --------------------------------------------------------------------------------*/
static bool lists(const cJSON *backward, const char *key, const char *name)
{
    const cJSON *item;
    cJSON_ArrayForEach (item, fa_json_member(backward, key))
        if (cJSON_IsString(item) && strcmp(item->valuestring, name) == 0)
            return true;
    return false;
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
    const cJSON *backward = fa_json_member(operation->document, "backward");
    fa_problem wanted = *forward, problem = {0};
    const char *name = NULL;
    if (backward == NULL)
        return fa_fail(diag, FA_ENOTFOUND, "%s has no gradients that are an operation",
                       operation->title);
    FA_OR_RETURN(fa_json_text_needed(backward, "operation", &name, operation->name, diag));
    FA_OR_RETURN(fa_operation_find(name, &gradients, diag));
    for (int i = 0; i < operation->field_count; i++) {
        const fa_field *f = &operation->field[i];
        const bool there = fa_operation_field_index(gradients, f->name) >= 0,
                   needed = lists(backward, "needs", f->name);
        if (needed)
            wanted.value[i] = 1;
        /* else its value may have no meaning for the gradients */
        else if (wanted.value[i] != f->preset && !lists(backward, "ignores", f->name) &&
                 (!there || lists(backward, "refuses", f->name)))
            return there ? fa_fail(diag, FA_ENOTSUP,
                                   "\"%s\" means another thing to %s: ask for it by itself, as "
                                   "operation %s",
                                   f->name, gradients->title, gradients->name)
                         : fa_fail(diag, FA_ENOTSUP, "%s has no field \"%s\"", gradients->title,
                                   f->name);
    }
    problem.operation = gradients;
    for (int i = 0; i < gradients->field_count; i++)
        problem.value[i] = value_of(&wanted, gradients, i);
    FA_OR_RETURN(fa_problem_check(&problem, diag));
    *forward = wanted;
    *ret_backward = problem;
    return 0;
}

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

cJSON *fa_problem_to_json(const void *problem)
{
    return problem_to_json(problem, fa_operation_of(problem)->name);
}

cJSON *fa_member_very_problem(const void *problem)
{
    const fa_operation *op = fa_operation_of(problem);
    char name[FA_NAME_MAX + 80];
    snprintf(name, sizeof name, "%s%s%s", op->name, op->specification[0] != 0 ? "@" : "",
             op->specification);
    return problem_to_json(problem, name);
}

/* FA_ENOTFOUND: the field is absent. */
static int read_value(const cJSON *json, const fa_field *f, int32_t *ret, fa_diag *diag)
{
    int64_t number = 0;
    const char *text = "";
    bool flag = false;
    FA_OR_RETURN(f->kind == FA_FIELD_INTEGER ? fa_json_int(json, f->name, INT32_MIN,
                                                           f->max > INT32_MAX ? f->max : INT32_MAX,
                                                           &number, "problem", diag)
                 : f->kind == FA_FIELD_BOOLEAN
                     ? fa_json_bool(json, f->name, &flag, "problem", diag)
                     : fa_json_text(json, f->name, &text, "problem", diag));
    if (f->kind == FA_FIELD_CHOICE && fa_field_choice(f, text) < 0)
        return fa_fail(diag, FA_EINVAL, "problem: %s \"%s\" is not known", f->name, text);
    if (f->kind == FA_FIELD_TEXT)
        return fa_value_of_line(text, ret, diag);
    if (f->kind == FA_FIELD_INTEGER)
        return fa_field_keep(f, number, ret, diag);
    *ret = f->kind == FA_FIELD_BOOLEAN ? flag : fa_field_choice(f, text);
    return 0;
}

int fa_problem_from_json(const cJSON *json, bool sizes, const char *beside, fa_problem *ret_problem,
                         fa_diag *diag)
{
    const fa_operation *op = fa_operation_of(ret_problem);
    const char *name = NULL, *keys[FA_PROBLEM_VALUES + 3] = {"operation"};
    uint32_t given = 0;
    if (!cJSON_IsObject(json))
        return fa_fail(diag, FA_EINVAL, "\"problem\" must be an object");
    int rc = fa_json_text(json, "operation", &name, "problem", diag);
    if (rc == 0 && (rc = fa_operation_find(name, &op, diag)) != 0)
        return fa_fail_in(diag, rc, "problem");
    fa_problem problem = {.operation = name != NULL ? op : ret_problem->operation};
    FA_OR_RETURN(rc != FA_ENOTFOUND ? rc : fa_have(op->field_count > 0, "operations", diag));
    for (int i = 0; i < op->field_count; i++)
        keys[1 + i] = op->field[i].name;
    keys[1 + op->field_count] = beside;
    if (beside == NULL || strcmp(beside, "*") != 0)
        FA_OR_RETURN(fa_json_check_keys(json, keys, "problem", diag));
    for (int i = 0; i < op->field_count; i++) {
        const fa_field *f = &op->field[i];
        const bool needed =
            f->required || (sizes && f->kind == FA_FIELD_INTEGER && !f->optional &&
                            f->follows < 0 && fa_field_number(f, f->preset) <= INT32_MAX);
        rc = read_value(json, f, &problem.value[i], diag);
        if (rc == 0)
            given |= 1u << i;
        else if (rc != FA_ENOTFOUND || needed)
            return rc != FA_ENOTFOUND
                       ? rc
                       : fa_fail(diag, FA_EINVAL, "problem: %s needs \"%s\", which is missing",
                                 op->name, f->name);
    }
    fa_problem_fill(&problem, given);
    FA_OR_RETURN(fa_problem_check(&problem, diag));
    *ret_problem = problem;
    return 0;
}

int fa_member_read_problem(const cJSON *json, void *ret_problem, fa_diag *diag)
{
    *(fa_problem *)ret_problem = (fa_problem){0};
    int rc = fa_problem_from_json(json, true, NULL, ret_problem, diag);
    return rc == FA_ENOTSUP ? FA_EINVAL : rc; /* an operation that is not known here */
}

/* ---- words -----------------------------------------------------------------------------------*/
static void put_words(fa_buf *out, const fa_operation *op, const fa_field *f, const fa_problem *p,
                      bool brief)
{
    const fa_field *apart = NULL; /* that follows this one, and whose value is another */
    const char *label = f->label;
    char room[16];
    const char *value = fa_field_text(f, VALUE(p, op, f), room);
    bool alone =
        f->kind == FA_FIELD_BOOLEAN || (brief && f->kind == FA_FIELD_CHOICE && label[0] != 0);
    fa_buf_printf(out, "%s%s%s", label, alone || brief || label[0] == 0 ? "" : " ",
                  alone ? "" : value);
    EACH_FIELD(op, other)
    if (apart == NULL && other->follows == f - op->field && VALUE(p, op, other) != VALUE(p, op, f))
        apart = other;
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
    bool first = true;
    for (int pass = 0; pass < 3; pass++)
        EACH_FIELD(op, f)
        {
            /* integers that shape the source, as a head dim does, stand behind others */
            const bool shape = f->kind == FA_FIELD_INTEGER && f->shapes_source;
            if (pass != (f->quiet ? 2 : shape) || f->follows >= 0 ||
                (f->quiet && VALUE(problem, op, f) == f->preset))
                continue;
            fa_buf_text(out, first ? "" : separator);
            put_words(out, op, f, problem, brief);
            first = false;
        }
}

void fa_problem_lengths(fa_buf *out, const fa_problem *problem)
{
    const fa_operation *op = fa_operation_of(problem);
    const size_t before = out->size;
    EACH_FIELD(op, f)
    {
        if (!f->length || f->follows >= 0 || fa_field_is_absent(f, VALUE(problem, op, f)))
            continue;
        fa_buf_text(out, out->size > before ? ", " : "");
        put_words(out, op, f, problem, false);
    }
}
