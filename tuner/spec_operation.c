/* SPDX-License-Identifier: Apache-2.0
 *
 * The operation of a kernel specification: sizes, arguments, the answer, how far from it is right.
 */
#include "spec_reading.h"

#include "expr.h"
#include "family.h"
#include "problem.h"
#include "search.h"
#include "tensors.h"
#include "trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- sizes ----------------------------------------------------------------------------------*/
/* Whether a macro is made of the size: problems that differ in it are then other kernels. */
static bool is_defined(const struct fa_spec_reading *r, const char *size)
{
    const cJSON *item;
    char room[32];
    cJSON_ArrayForEach (item, fa_spec_member(r->json, "defines")) {
        const char *text = fa_spec_expression(item, room);
        if (text != NULL && fa_source_find(text, size) != NULL)
            return true;
    }
    return false;
}

static int check_preset(const struct fa_spec_reading *r, const cJSON *size, const cJSON *preset)
{
    const cJSON *multiple = fa_spec_member(size, "multiple"), *max = fa_spec_member(size, "max");
    const double value = preset != NULL ? preset->valuedouble : 1, last = INT32_MAX;
    if (!(value >= 1 && value <= last && value <= floor(value)))
        return fa_spec_fault(r, "sizes %.60s: %.17g is no whole number from 1 to %.0f",
                             size->string, value, last);
    if (cJSON_IsNumber(max) && value > max->valuedouble)
        return fa_spec_fault(r, "sizes %.60s: its default %.0f is above its \"max\"", size->string,
                             value);
    if (cJSON_IsNumber(multiple) && preset != NULL && multiple->valuedouble >= 1 &&
        fmod(value, multiple->valuedouble) > 0)
        return fa_spec_fault(r, "sizes %.60s: its default %.0f is no multiple of %.0f",
                             size->string, value, multiple->valuedouble);
    return 0;
}

static int add_size(const struct fa_spec_reading *r, cJSON *fields, const cJSON *size)
{
    static const char *const keys[] = {"default", "fixed", "multiple", "max", NULL};
    cJSON *field = cJSON_CreateObject();
    char option[FA_NAME_MAX + 4];
    const cJSON *preset = cJSON_IsObject(size) ? fa_spec_member(size, "default") : size;
    if (!fa_is_identifier(size->string) || fa_expr_is_word(size->string) ||
        strcmp(size->string, "operation") == 0 || (preset != NULL && !cJSON_IsNumber(preset)) ||
        (preset == NULL && !cJSON_IsObject(size))) {
        cJSON_Delete(field);
        return fa_spec_fault(r, "size \"%.60s\" must be a name with a number, or with an object",
                             size->string);
    }
    int rc = fa_spec_check_keys(r, cJSON_IsObject(size) ? size : NULL, size->string, keys);
    if (rc == 0)
        rc = check_preset(r, size, preset);
    fa_json_add_text(field, "name", size->string);
    fa_json_add_text(field, "kind", "integer");
    fa_json_add_number(field, "min", 1);
    for (int i = 0; i < 4; i++)
        if (i != 1 && fa_spec_member(size, keys[i]) != NULL)
            fa_json_add(field, keys[i], cJSON_Duplicate(fa_spec_member(size, keys[i]), false));
    if (!cJSON_IsObject(size))
        fa_json_add_number(field, "default", size->valuedouble);
    fa_json_add_text(field, "macro", size->string);
    snprintf(option, sizeof option, "--%s", size->string);
    fa_json_add_text(field, "option", option);
    if (cJSON_IsTrue(fa_spec_member(size, "fixed")) || is_defined(r, size->string))
        fa_json_add_bool(field, "shapes_source", true);
    return fa_json_push(fields, field) ? rc : FA_ENOMEM;
}

static int add_sizes(const struct fa_spec_reading *r)
{
    const cJSON *size, *sizes = fa_spec_member(r->json, "sizes");
    cJSON *fields = fa_json_add_array(r->operation, "fields");
    int rc = cJSON_IsObject(sizes) && sizes->child != NULL
                 ? 0
                 : fa_spec_fault(r, "\"sizes\" must name at least one size, as in {\"n\": 4096}");
    cJSON_ArrayForEach (size, sizes)
        if (rc == 0)
            rc = add_size(r, fields, size);
    return rc;
}

/* ---- arguments ------------------------------------------------------------------------------*/
static int add_tensor(const struct fa_spec_reading *r, const cJSON *argument, fa_element element,
                      const char *place)
{
    static const char *const ways[] = {"in", "out", "inout", "partial", NULL};
    const char *way = fa_spec_member(argument, "is") != NULL ? fa_spec_text(argument, "is") : "in";
    cJSON *tensor = cJSON_CreateObject();
    static const char *const copied[] = {"align", "symbol", "parameter"};
    const cJSON *item, *shape = fa_spec_member(argument, "shape"),
                       *range = fa_spec_member(argument, "range");
    char room[32];
    int which = 0;
    while (ways[which] != NULL && strcmp(ways[which], way) != 0)
        which++;
    fa_json_add_text(tensor, "name", fa_spec_text(argument, "name"));
    fa_json_add_text(tensor, "dtype", fa_element_name(element));
    for (int i = 0; i < 3; i++)
        if (fa_spec_member(argument, copied[i]) != NULL)
            fa_json_add(tensor, copied[i],
                        cJSON_Duplicate(fa_spec_member(argument, copied[i]), false));
    if (which > 0)
        fa_json_add_bool(tensor, "output", true);
    if (which > 1)
        fa_json_add_bool(tensor, which == 2 ? "updated" : "partial", true);
    cJSON *sizes = fa_json_add_array(tensor, "shape");
    cJSON_ArrayForEach (item, shape)
        fa_json_push(sizes, cJSON_Duplicate(item, false));
    cJSON *ends = range != NULL ? fa_json_add_array(tensor, "range") : NULL;
    cJSON_ArrayForEach (item, range)
        fa_json_push(ends, cJSON_CreateString(fa_spec_expression(item, room) != NULL
                                                  ? fa_spec_expression(item, room)
                                                  : "none"));
    cJSON *tensors = cJSON_GetObjectItemCaseSensitive(r->operation, "tensors");
    if (!fa_json_push(tensors, tensor))
        return FA_ENOMEM;
    if (ways[which] == NULL)
        return fa_spec_fault(r, "%s: \"is\" must be in, out, inout or partial", place);
    return cJSON_IsArray(shape) ? 0 : fa_spec_fault(r, "%s: \"shape\" must be an array", place);
}

/* A scalar: a number, which callers pass and proofs use; an expression, or the size of its name, which they do not. */
static int add_scalar(const struct fa_spec_reading *r, const cJSON *argument, fa_element element,
                      const char *place)
{
    const char *name = fa_spec_text(argument, "name");
    const cJSON *value = fa_spec_member(argument, "value");
    cJSON *scalar = cJSON_CreateObject();
    bool size = value == NULL && fa_spec_member(fa_spec_member(r->json, "sizes"), name) != NULL;
    fa_json_add_text(scalar, "name", name);
    fa_json_add_text(scalar, "dtype", fa_element_name(element));
    if (value != NULL)
        fa_json_add(scalar, "value", cJSON_Duplicate(value, false));
    else if (size)
        fa_json_add_text(scalar, "value", name);
    if (!fa_json_push(cJSON_GetObjectItemCaseSensitive(r->operation, "scalars"), scalar))
        return FA_ENOMEM;
    return size || cJSON_IsNumber(value) || cJSON_IsString(value)
               ? 0
               : fa_spec_fault(
                     r,
                     "%s needs a \"shape\" if it is an array, a \"value\" if it is a number, or "
                     "the name of a size",
                     place);
}

static int add_argument(const struct fa_spec_reading *r, const cJSON *argument, int index)
{
    static const char *const keys[] = {"name",  "type",  "shape",  "value",     "is",
                                       "range", "align", "symbol", "parameter", NULL};
    const char *name = fa_spec_text(argument, "name"), *type = fa_spec_text(argument, "type");
    fa_element element = FA_ELEMENT_INT32;
    char place[96];
    snprintf(place, sizeof place, "arguments[%d] %.40s", index, name);
    if (!cJSON_IsObject(argument) || name[0] == 0)
        return fa_spec_fault(r, "arguments[%d] must be an object with a \"name\"", index);
    if (!fa_is_identifier(name))
        return fa_spec_fault(
            r,
            "%s: a name begins with a letter, and has letters, digits and _, at most "
            "%d; it need not be the kernel's own",
            place, FA_NAME_MAX - 1);
    bool size = fa_spec_member(fa_spec_member(r->json, "sizes"), name) != NULL && type[0] == 0;
    int rc = fa_spec_check_keys(r, argument, place, keys);
    if (rc != 0)
        return rc;
    if (fa_spec_member(argument, "type") == NULL && !size)
        return fa_spec_fault(r, "%s needs a \"type\", or is to have the name of a size", place);
    if (!size && !fa_element_find(type, &element))
        return fa_spec_fault(
            r,
            "%s: \"type\" must be f16, bf16, f32, f64, f8e4m3, f8e5m2, i8 to i64, u8 to u64, bool, c64 "
            "or c128, not \"%.20s\"",
            place, type);
    cJSON *parameters = cJSON_GetObjectItemCaseSensitive(r->operation, "parameters"), *other;
    cJSON_ArrayForEach (other, parameters)
        if (strcmp(other->valuestring, name) == 0)
            return fa_spec_fault(r, "%s appears twice", place);
    if (fa_spec_member(argument, "shape") == NULL &&
        (fa_spec_member(argument, "symbol") != NULL ||
         fa_spec_member(argument, "parameter") != NULL))
        return fa_spec_fault(r, "%s: \"symbol\" and \"parameter\" are of arrays, with a \"shape\"",
                             place);
    if (!fa_json_push(parameters, cJSON_CreateString(name)))
        return FA_ENOMEM;
    return fa_spec_member(argument, "shape") != NULL ? add_tensor(r, argument, element, place)
                                                     : add_scalar(r, argument, element, place);
}

static int add_arguments(const struct fa_spec_reading *r)
{
    const cJSON *argument, *tensor, *list = fa_spec_member(r->json, "arguments");
    int index = 0, outputs = 0,
        rc = cJSON_IsArray(list)
                 ? 0
                 : fa_spec_fault(r, "\"arguments\" must be an array, in the kernel's order");
    fa_json_add_array(r->operation, "tensors");
    fa_json_add_array(r->operation, "scalars");
    fa_json_add_array(r->operation, "parameters");
    cJSON_ArrayForEach (argument, list)
        if (rc == 0)
            rc = add_argument(r, argument, index++);
    cJSON_ArrayForEach (tensor, cJSON_GetObjectItemCaseSensitive(r->operation, "tensors"))
        outputs += cJSON_HasObjectItem(tensor, "output");
    if (rc == 0 && outputs == 0)
        rc =
            fa_spec_fault(r, "arguments: none is an output: say which \"is\" \"out\" or \"inout\"");
    return rc;
}

/* ---- the answer -----------------------------------------------------------------------------*/
/* Without a launch of its own the answer has a thread for each element of the largest output, in blocks of 128. */
static int add_usual_launch(const struct fa_spec_reading *r, cJSON *answer)
{
    const cJSON *tensor, *size;
    fa_buf grid = {0};
    char room[32];
    fa_buf_text(&grid, "ceil_div(max(1, 1");
    cJSON_ArrayForEach (tensor, cJSON_GetObjectItemCaseSensitive(r->operation, "tensors")) {
        if (!cJSON_HasObjectItem(tensor, "output"))
            continue;
        fa_buf_text(&grid, ", 1");
        cJSON_ArrayForEach (size, cJSON_GetObjectItemCaseSensitive(tensor, "shape"))
            fa_buf_printf(&grid, " * (%s)",
                          fa_spec_expression(size, room) != NULL ? fa_spec_expression(size, room)
                                                                 : "1");
    }
    fa_buf_text(&grid, "), 128)");
    cJSON *sides = fa_json_add_array(answer, "grid"), *block = fa_json_add_array(answer, "block");
    bool made = !grid.failed && fa_json_push(sides, cJSON_CreateString(grid.data)) &&
                fa_json_push(block, cJSON_CreateString("128"));
    fa_buf_free(&grid);
    return made ? 0 : FA_ENOMEM;
}

static int add_answer(const struct fa_spec_reading *r)
{
    static const char *const keys[] = {"kernel", "source", "block", "grid", NULL};
    const cJSON *is = fa_spec_member(r->json, "answer"), *given = fa_spec_member(is, "given");
    char file[FA_NAME_MAX + 16];
    if (is == NULL)
        return 0;
    if (cJSON_IsObject(is) && given == NULL && fa_spec_check_keys(r, is, "answer", keys) != 0)
        return FA_EMANIFEST;
    cJSON *answer = fa_json_add_object(r->operation, "answer");
    if (given != NULL) {
        fa_json_add_text(answer, "given", cJSON_GetStringValue(given));
        return cJSON_IsString(given) && is->child->next == NULL
                   ? 0
                   : fa_spec_fault(r, "answer: \"given\" must be a text, and alone");
    }
    snprintf(file, sizeof file, "%s%s.cu", r->name, r->answer_source != NULL ? "_answer" : "");
    fa_json_add_text(r->operation, "reference", file);
    fa_json_add_text(answer, "kernel", r->answer);
    if (fa_spec_member(is, "grid") == NULL && fa_spec_member(is, "block") == NULL)
        return add_usual_launch(r, answer);
    int rc = fa_spec_add_sides(r, is, "answer: ", answer, "grid");
    return rc == 0 ? fa_spec_add_sides(r, is, "answer: ", answer, "block") : rc;
}

static double number_or(const cJSON *json, const char *key, double preset)
{
    const cJSON *item = fa_spec_member(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : preset;
}

/* Unless "atol" says otherwise, what is near 0 may differ by that part of the output's largest element. */
static int add_tolerance(const struct fa_spec_reading *r)
{
    enum { OF_TYPE = 84 /* of fp32: 1e-5 */ };
    cJSON *tolerance = fa_json_add_object(r->operation, "tolerance");
    const double rtol = number_or(r->json, "rtol", -1), atol = number_or(r->json, "atol", -1);
    const cJSON *given[] = {fa_spec_member(r->json, "rtol"), fa_spec_member(r->json, "atol")};
    for (int i = 0; i < 2; i++)
        if (given[i] != NULL && !(cJSON_IsNumber(given[i]) && given[i]->valuedouble >= 0 &&
                                  given[i]->valuedouble < 1e30))
            return fa_spec_fault(r, "\"%s\" must be a number of 0 or more",
                                 i == 0 ? "rtol" : "atol");
    if (rtol >= 0)
        fa_json_add_number(tolerance, "relative", rtol);
    else
        fa_json_add_number(tolerance, "ulps", OF_TYPE / 2);
    if (atol < 0)
        fa_json_add_number(tolerance, "of_largest", OF_TYPE / 2);
    fa_json_add_number(tolerance, "absolute", atol > 0 ? atol : 1e-30);
    return 0;
}

/* How the space is searched where a request does not say. */
static int add_search(const struct fa_spec_reading *r)
{
    const cJSON *strategy = fa_spec_member(r->json, "strategy"),
                *evaluations = fa_spec_member(r->json, "evaluations"),
                *seconds = fa_spec_member(r->json, "seconds");
    const char *name = cJSON_GetStringValue(strategy);
    const double count = number_or(r->json, "evaluations", 0),
                 time = number_or(r->json, "seconds", 0);
    const bool whole = count >= 0 && count <= INT32_MAX && count <= floor(count);
    if (strategy == NULL && evaluations == NULL && seconds == NULL)
        return 0;
    if ((strategy != NULL && name == NULL) ||
        (evaluations != NULL && !cJSON_IsNumber(evaluations)) ||
        (seconds != NULL && !cJSON_IsNumber(seconds)))
        return fa_spec_fault(
            r, "\"strategy\" must be a text, \"evaluations\" and \"seconds\" must be numbers");
    int rc = fa_search_check(&name, whole ? (int32_t)count : -1, time, r->diag);
    if (rc != 0)
        return fa_fail_in(r->diag, FA_EMANIFEST, "%s", r->where);
    cJSON *search = fa_json_add_object(r->operation, "search");
    if (name != NULL)
        fa_json_add_text(search, "strategy", name);
    fa_json_add_number(search, "evaluations", count);
    fa_json_add_number(search, "seconds", time);
    return 0;
}

int fa_spec_make_operation(struct fa_spec_reading *r)
{
    static const char *const copied[] = {"flops", "bytes"};
    r->operation = cJSON_CreateObject();
    fa_json_add_text(r->operation, "name", r->name);
    fa_json_add_text(r->operation, "title", r->name);
    fa_json_add_text(r->operation, "specification", r->hash);
    for (int i = 0; i < 2; i++)
        if (cJSON_IsString(fa_spec_member(r->json, copied[i])))
            fa_json_add_text(r->operation, copied[i], fa_spec_text(r->json, copied[i]));
        else if (fa_spec_member(r->json, copied[i]) != NULL)
            return fa_spec_fault(r, "\"%s\" must be an expression", copied[i]);
    static int (*const steps[])(const struct fa_spec_reading *) = {
        add_sizes, add_arguments, add_answer, add_tolerance, add_search};
    int rc = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && rc == 0; i++)
        rc = steps[i](r);
    return rc;
}
