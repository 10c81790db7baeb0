/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading the arguments of an operation or a specification, numbers of each element type, and what kernels take.
 */
#include "tensors.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

_Static_assert(8 * FA_TENSORS_MAX * (1 + FA_TENSOR_STRIDES) +
                       4 * (FA_SCALARS_MAX + FA_PROBLEM_VALUES) <=
                   FA_PARAMS_MAX - 8 - 64 * FA_ATTN_BUFFERS,
               "");

/* ---- elements --------------------------------------------------------------------------------*/
/* Of an integer, `ulp` is 0: it is exact. */
static const struct element {
    const char *name, *brief;
    size_t size; /* of one number */
    int numbers;
    double ulp; /* the relative distance of neighbours */
    /* Tolerances that are counted in ulps are no larger, of the number itself and of the largest one: 42 ulps, which are
     * 5e-6 of fp32, would be a third of bf16. */
    double most, most_of_largest;
    bool is_signed;
} elements[FA_ELEMENTS] = {
    [FA_ELEMENT_FP16] = {"fp16", "f16", 2, 1, 0x1p-10, 0x1p-8, 0x1p-9, true},
    [FA_ELEMENT_BF16] = {"bf16", "bf16", 2, 1, 0x1p-7, 0x1p-5, 0x1p-6, true},
    [FA_ELEMENT_FP32] = {"fp32", "f32", 4, 1, 0x1p-23, 1, 1, true},
    [FA_ELEMENT_FP64] = {"fp64", "f64", 8, 1, 0x1p-52, 1, 1, true},
    [FA_ELEMENT_INT8] = {"int8", "i8", 1, 1, 0, 0, 0, true},
    [FA_ELEMENT_INT16] = {"int16", "i16", 2, 1, 0, 0, 0, true},
    [FA_ELEMENT_INT32] = {"int32", "i32", 4, 1, 0, 0, 0, true},
    [FA_ELEMENT_INT64] = {"int64", "i64", 8, 1, 0, 0, 0, true},
    [FA_ELEMENT_UINT8] = {"uint8", "u8", 1, 1, 0, 0, 0, false},
    [FA_ELEMENT_UINT16] = {"uint16", "u16", 2, 1, 0, 0, 0, false},
    [FA_ELEMENT_UINT32] = {"uint32", "u32", 4, 1, 0, 0, 0, false},
    [FA_ELEMENT_UINT64] = {"uint64", "u64", 8, 1, 0, 0, 0, false},
    [FA_ELEMENT_FP8_E4M3] = {"fp8_e4m3", "f8e4m3", 1, 1, 0x1p-3, 0x1p-3, 0x1p-7, true},
    [FA_ELEMENT_FP8_E5M2] = {"fp8_e5m2", "f8e5m2", 1, 1, 0x1p-2, 0x1p-2, 0x1p-6, true},
    [FA_ELEMENT_COMPLEX64] = {"complex64", "c64", 4, 2, 0x1p-23, 1, 1, true},
    [FA_ELEMENT_COMPLEX128] = {"complex128", "c128", 8, 2, 0x1p-52, 1, 1, true},
    [FA_ELEMENT_BOOL] = {"bool", "bool", 1, 1, 0, 0, 0, false}};

const char *fa_element_name(fa_element element)
{
    return elements[element].name;
}

bool fa_element_find(const char *name, fa_element *ret_element)
{
    for (int i = 0; i < FA_ELEMENTS; i++) {
        if (strcmp(name, elements[i].name) != 0 && strcmp(name, elements[i].brief) != 0)
            continue;
        *ret_element = (fa_element)i;
        return true;
    }
    return false;
}

size_t fa_element_size(fa_element element)
{
    return elements[element].size;
}

int fa_element_numbers(fa_element element)
{
    return elements[element].numbers;
}

bool fa_element_is_integer(fa_element element)
{
    return (element >= FA_ELEMENT_INT8 && element <= FA_ELEMENT_UINT64) ||
           element == FA_ELEMENT_BOOL;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The exponents of both types are 112 apart; the product is exact, of subnormal numbers too. */
static double half_value(uint32_t bits)
{
    uint32_t rest = bits & 0x7fff;
    float magnitude =
        rest >= 0x7c00 ? from_bits(0x7f800000 | rest << 13) : from_bits(rest << 13) * 0x1p112f;
    return (double)((bits & 0x8000) != 0 ? -magnitude : magnitude);
}

double fa_element_value(fa_element element, const void *at)
{
    uint64_t bits = 0;
    double wide;
    size_t size = elements[element].size;
    memcpy(&bits, at, size);
    if (fa_element_is_integer(element)) {
        int unused = 64 - 8 * (int)size;
        return elements[element].is_signed ? (double)((int64_t)(bits << unused) >> unused)
                                           : (double)bits;
    }
    const uint32_t word = (uint32_t)bits;
    switch (element) {
    case FA_ELEMENT_FP64:
    case FA_ELEMENT_COMPLEX128:
        memcpy(&wide, at, sizeof wide);
        return wide;
    case FA_ELEMENT_FP32:
    case FA_ELEMENT_COMPLEX64:
        return (double)from_bits(word);
    case FA_ELEMENT_BF16:
        return (double)from_bits(word << 16);
    case FA_ELEMENT_FP8_E4M3: /* no infinity, and one NaN of each sign */
        return (word & 0x7f) == 0x7f ? (double)NAN
                                     : 256 * half_value((word & 0x80) << 8 | (word & 0x7f) << 7);
    case FA_ELEMENT_FP8_E5M2:
        return half_value(word << 8);
    default:
        return half_value(word);
    }
}

/* Of fp32's bits those of a smaller type: 0, or an exponent that it has too. */
static uint32_t narrow(uint32_t word, int bits, int fraction, uint32_t bias)
{
    uint32_t magnitude = word & INT32_MAX, sign = word >> 31 << (bits - 1);
    return magnitude == 0 ? sign
                          : sign | ((magnitude >> (23 - fraction)) - ((127 - bias) << fraction));
}

void fa_element_store(fa_element element, double value, void *at)
{
    float single = (float)value;
    uint32_t word;
    memcpy(&word, &single, sizeof word);
    uint64_t bits = word;
    if (fa_element_is_integer(element))
        bits = value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
    else if (element == FA_ELEMENT_FP64 || element == FA_ELEMENT_COMPLEX128)
        memcpy(&bits, &value, sizeof bits);
    else if (element == FA_ELEMENT_BF16)
        bits = word >> 16;
    else if (element == FA_ELEMENT_FP16)
        bits = narrow(word, 16, 10, 15);
    else if (element == FA_ELEMENT_FP8_E4M3)
        bits = narrow(word, 8, 3, 7);
    else if (element == FA_ELEMENT_FP8_E5M2)
        bits = narrow(word, 8, 2, 15);
    memcpy(at, &bits, elements[element].size);
}

/* ---- tensors ---------------------------------------------------------------------------------*/
/* What is being read. */
struct reader {
    const fa_problem *problem;
    const fa_operation *operation;
    fa_tensor_list *list;
    const cJSON *json; /* the argument */
    bool one_by_one;   /* a specification's kernels take arguments in order, others one struct */
    char where[160]; /* in sentences */
    int rc;          /* of the first rule that is broken: no other has a sentence */
    fa_diag *diag;
};

__attribute__((format(printf, 3, 4))) static void refuse(struct reader *r, bool wrong,
                                                         const char *format, ...)
{
    char text[256];
    va_list args;
    if (!wrong || r->rc != 0)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    r->rc = fa_fail(r->diag, FA_EINVAL, "%s%s", r->where, text);
}

static void read_element(struct reader *r, fa_element *ret_element)
{
    const char *name = fa_json_string(r->json, "type");
    int field = name != NULL ? fa_operation_field_index(r->operation, name) : -1;
    if (field >= 0 && r->operation->field[field].kind == FA_FIELD_CHOICE)
        name = r->operation->field[field].choice[r->problem->value[field]];
    refuse(r, fa_json_member(r->json, "type") == NULL,
           " needs a \"type\", or is to have the name of a size");
    refuse(
        r, name == NULL || !fa_element_find(name, ret_element),
        ": \"type\" must be f16, bf16, f32, f64, f8e4m3, f8e5m2, i8 to i64, u8 to u64, bool, c64 "
        "or c128, not \"%.20s\"",
        name != NULL ? name : "");
}

static void read_expr(struct reader *r, const char *text, fa_expr **ret_expr)
{
    int rc = r->rc == 0 ? fa_operation_expr(r->operation, text, ret_expr, r->diag) : 0;
    if (rc != 0)
        r->rc = fa_fail_in(r->diag, rc == FA_ENOMEM ? rc : FA_EINVAL, "%s", r->where);
}

/* The field whose macro the text is; -1: none has it. */
static int field_called(const fa_operation *operation, const char *macro)
{
    for (int i = 0; macro != NULL && i < operation->field_count; i++)
        if (strcmp(operation->field[i].macro, macro) == 0)
            return i;
    return -1;
}

/* Each dimension is a number, the macro of a field, or an expression over them. */
static void read_shape(struct reader *r, fa_tensor *tensor)
{
    const cJSON *item, *shape = fa_json_member(r->json, "shape");
    refuse(r, !cJSON_IsArray(shape), ": \"shape\" must be an array");
    tensor->elements = (uint64_t)fa_element_numbers(tensor->element);
    if (tensor->scratch >= 0) { /* its family has the size, of a config: here it is empty */
        tensor->elements = 0;
        tensor->dims = 1;
        tensor->field[0] = -1;
        return;
    }
    cJSON_ArrayForEach (item, shape) {
        const int at = tensor->dims;
        const char *text = cJSON_GetStringValue(item);
        const bool number = cJSON_IsNumber(item) && item->valuedouble >= 0 &&
                            item->valuedouble <= (double)FA_SIZE_MAX;
        refuse(r, at == FA_ARGUMENT_DIMS, ": more than %d dimensions", FA_ARGUMENT_DIMS);
        refuse(r, !number && text == NULL,
               ": \"shape\" must be of macros, numbers and expressions");
        if (r->rc != 0)
            return;
        tensor->dims++;
        tensor->size[at] = number ? (int64_t)item->valuedouble : 0;
        tensor->field[at] = field_called(r->operation, text);
        if (text != NULL && tensor->field[at] < 0)
            read_expr(r, text, &tensor->expr[at]);
        if (r->rc != 0)
            return;
        int64_t size = fa_tensor_size(tensor, r->problem, at);
        refuse(r, size < 0, ": dimension %d has no size of 0 or more", at);
        if (__builtin_mul_overflow(tensor->elements, (uint64_t)size, &tensor->elements) ||
            tensor->elements > (uint64_t)1 << 60)
            r->rc = r->rc != 0
                        ? r->rc
                        : fa_fail(r->diag, FA_ENOMEM, "%s: more than 2^60 elements", r->where);
    }
}

/* "range": [low, high], the values of a proof's integers. */
static void read_range(struct reader *r, fa_tensor *tensor)
{
    const cJSON *range = fa_json_member(r->json, "range");
    char room[2][32];
    const char *low = fa_json_expression(cJSON_GetArrayItem(range, 0), room[0]);
    const char *high = fa_json_expression(cJSON_GetArrayItem(range, 1), room[1]);
    if (tensor->element == FA_ELEMENT_BOOL)
        tensor->span = 2;
    if (range == NULL)
        return;
    refuse(r,
           !fa_element_is_integer(tensor->element) || cJSON_GetArraySize(range) != 2 ||
               low == NULL || high == NULL,
           ": \"range\" must be two expressions, of integers");
    read_expr(r, low, &tensor->low);
    read_expr(r, high, &tensor->high);
    if (r->rc != 0)
        return;
    fa_expr_value from = fa_problem_evaluate(r->problem, tensor->low);
    fa_expr_value to = fa_problem_evaluate(r->problem, tensor->high);
    refuse(r,
           from.kind != FA_EXPR_INTEGER || to.kind != FA_EXPR_INTEGER ||
               to.integer <= from.integer || from.integer < -(INT64_C(1) << 53) ||
               to.integer > INT64_C(1) << 53,
           ": \"range\" holds no integer");
    tensor->from = from.integer;
    tensor->span = r->rc == 0 ? to.integer - from.integer : 0;
}

/* "normal": an expression; where it is not 0 what is timed reads normal numbers. */
static void read_normal(struct reader *r, fa_tensor *tensor)
{
    char room[32];
    const char *text = fa_json_expression(fa_json_member(r->json, "normal"), room);
    if (text == NULL || r->rc != 0)
        return;
    refuse(r, fa_element_is_integer(tensor->element), ": \"normal\" is of numbers with a fraction");
    read_expr(r, text, &tensor->low);
    if (r->rc != 0)
        return;
    const fa_expr_value is = fa_problem_evaluate(r->problem, tensor->low);
    refuse(r, is.kind != FA_EXPR_INTEGER, ": \"normal\" is no whole number");
    tensor->normal = is.integer != 0;
}

/* "symbol": the name of a variable, in C++, of at most as many letters as a sentence has room for; "parameter": true, where the
 * kernel takes its address besides. */
static void read_symbol(struct reader *r, fa_tensor *tensor)
{
    enum { MOST = 127 };
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    const cJSON *symbol = fa_json_member(r->json, "symbol"),
                *parameter = fa_json_member(r->json, "parameter");
    const char *name = tensor->symbol = cJSON_GetStringValue(symbol);
    const size_t size = name != NULL ? strspn(name, letters) : 0;
    tensor->parameter = cJSON_IsTrue(parameter);
    refuse(r,
           symbol != NULL &&
               (size == 0 || size > MOST || name[size] != 0 || (name[0] >= '0' && name[0] <= '9') ||
                tensor->scratch >= 0 || (tensor->output && !r->one_by_one)),
           ": \"symbol\" must be the name of a variable of the source, without its namespace, and "
           "scratch has none");
    refuse(r, parameter != NULL && (symbol == NULL || !cJSON_IsBool(parameter)),
           ": \"parameter\" must be true or false, beside a \"symbol\"");
}

/* "is": what a launch does with it. */
static void read_way(struct reader *r, fa_tensor *tensor)
{
    static const char *const ways[] = {"in", "out", "inout", "partial", "made"};
    const cJSON *is = fa_json_member(r->json, "is");
    const char *way = is == NULL ? "in" : cJSON_IsString(is) ? is->valuestring : "";
    const char *last = r->one_by_one ? "scratch" : "made";
    size_t which = 0, count = sizeof ways / sizeof *ways;
    while (which < count && strcmp(which == 4 ? last : ways[which], way) != 0)
        which++;
    tensor->output = which >= 1 && which <= 3;
    tensor->updated = which == 2;
    tensor->partial = which == 3;
    tensor->made = which == 4 && !r->one_by_one;
    tensor->scratch = which == 4 && r->one_by_one ? 0 : -1;
    refuse(r, which == count, ": \"is\" must be in, out, inout, partial or %s", last);
}

static void read_tensor(struct reader *r, fa_tensor *tensor)
{
    const cJSON *when = fa_json_member(r->json, "when"), *align = fa_json_member(r->json, "align");
    const bool strided = cJSON_IsTrue(fa_json_member(r->json, "strided"));
    read_element(r, &tensor->element);
    read_way(r, tensor);
    tensor->when =
        cJSON_IsString(when) ? fa_operation_field_index(r->operation, when->valuestring) : -1;
    refuse(r, when != NULL && tensor->when < 0, ": \"when\" must name a field");
    tensor->align = align == NULL ? 16 : cJSON_IsNumber(align) ? align->valueint : 0;
    refuse(r,
           tensor->align <
                   (int)fa_element_size(tensor->element) * fa_element_numbers(tensor->element) ||
               tensor->align > 256 || (tensor->align & (tensor->align - 1)) != 0,
           ": \"align\" must be a power of two from the element's size to 256");
    read_shape(r, tensor);
    read_range(r, tensor);
    read_normal(r, tensor);
    read_symbol(r, tensor);
    tensor->stride_count = strided ? tensor->dims - 1 : 0;
    refuse(r, strided && (tensor->stride_count < 1 || tensor->stride_count > FA_TENSOR_STRIDES),
           ": a strided tensor has 2 to %d dimensions", FA_TENSOR_STRIDES + 1);
}

static int64_t size_of(const fa_problem *problem, int field)
{
    return problem->value[field] >= 0
               ? problem->value[field]
               : fa_field_number(&fa_operation_of(problem)->field[field], problem->value[field]);
}

int64_t fa_tensor_size(const fa_tensor *tensor, const fa_problem *problem, int dimension)
{
    int field = tensor->field[dimension];
    if (tensor->expr[dimension] == NULL)
        return field >= 0 ? size_of(problem, field) : tensor->size[dimension];
    fa_expr_value value = fa_problem_evaluate(problem, tensor->expr[dimension]);
    return value.kind == FA_EXPR_INTEGER ? value.integer : -1;
}

bool fa_tensor_is_needed(const fa_tensor *tensor, const fa_problem *problem)
{
    const fa_field *field =
        tensor->when >= 0 ? &fa_operation_of(problem)->field[tensor->when] : NULL;
    return field == NULL || !fa_field_is_absent(field, problem->value[tensor->when]);
}

void fa_tensors_scratch(const fa_tensor_list *list, const fa_launches *launches, uint64_t workspace,
                        fa_tensor_values *values)
{
    for (int t = 0; t < list->count; t++)
        if (list->at[t].scratch >= 0)
            values->address[t] = workspace + (uint64_t)launches->scratch[list->at[t].scratch];
}

void fa_tensors_argument(const fa_tensor_list *list, int argument, const fa_problem *problem,
                         fa_argument *ret_argument)
{
    *ret_argument = (fa_argument){.size = sizeof *ret_argument, .needed = true};
    if (argument >= FA_TENSORS_MAX) {
        ret_argument->name = list->scalar[argument - FA_TENSORS_MAX].name;
        ret_argument->dtype = fa_element_name(list->scalar[argument - FA_TENSORS_MAX].element);
        return;
    }
    const fa_tensor *tensor = &list->at[argument];
    ret_argument->name = tensor->name;
    ret_argument->dtype = fa_element_name(tensor->element);
    ret_argument->tensor = true;
    ret_argument->strided = tensor->stride_count > 0;
    ret_argument->output = tensor->output;
    ret_argument->updated = tensor->updated || tensor->partial;
    ret_argument->needed = fa_tensor_is_needed(tensor, problem);
    ret_argument->dims = tensor->dims;
    for (int i = 0; i < tensor->dims; i++)
        ret_argument->shape[i] = fa_tensor_size(tensor, problem, i);
}

void fa_tensor_pack(const fa_tensor *tensor, const fa_problem *problem,
                    int64_t ret_stride[FA_TENSOR_STRIDES])
{
    uint64_t stride = 1;
    for (int i = tensor->stride_count - 1; i >= 0; i--) {
        stride *= (uint64_t)fa_tensor_size(tensor, problem, i + 1);
        ret_stride[i] = (int64_t)stride;
    }
}

/* ---- scalars and parameters ------------------------------------------------------------------*/
static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = fa_json_member(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

/* Whether an integer type has the value; types of fractions round it. */
static bool is_exact(fa_element element, double value)
{
    uint64_t bits = 0;
    if (!fa_element_is_integer(element))
        return element != FA_ELEMENT_FP16 || (fabs(value) >= 0x1p-14 && fabs(value) <= 65504) ||
               fpclassify(value) == FP_ZERO;
    if (!(value >= -0x1p63 && value < 0x1p64))
        return false;
    fa_element_store(element, value, &bits);
    double kept = fa_element_value(element, &bits);
    return kept <= value && kept >= value;
}

/* A number, which callers pass and proofs use; an expression, or the size of its name, which they do not. */
static void read_scalar(struct reader *r, fa_scalar *scalar)
{
    const cJSON *value = fa_json_member(r->json, "value");
    const bool size =
        value == NULL && r->one_by_one && fa_operation_field_index(r->operation, scalar->name) >= 0;
    const char *text = size ? scalar->name : cJSON_GetStringValue(value);
    scalar->element = size ? FA_ELEMENT_INT32 : FA_ELEMENT_FP32;
    scalar->value = number_of(r->json, "value");
    if (cJSON_HasObjectItem(r->json, "type"))
        read_element(r, &scalar->element);
    const fa_element is = scalar->element;
    refuse(r, cJSON_HasObjectItem(r->json, "symbol") || cJSON_HasObjectItem(r->json, "parameter"),
           ": \"symbol\" and \"parameter\" are of arrays, with a \"shape\"");
    refuse(r, text == NULL && !cJSON_IsNumber(value),
           " needs a \"shape\" if it is an array, a \"value\" if it is a number, or the name of a "
           "size");
    refuse(r, fa_element_numbers(is) > 1 || is == FA_ELEMENT_FP8_E4M3 || is == FA_ELEMENT_FP8_E5M2,
           ": a scalar is of fp32, fp64 or of integers, or of fp16 or bf16");
    refuse(r, !r->one_by_one && (is != FA_ELEMENT_FP32 || text != NULL),
           ": a struct has numbers of fp32");
    refuse(r, !is_exact(is, scalar->value), ": its value %.17g does not fit in %s", scalar->value,
           fa_element_name(is));
    scalar->field = fa_element_is_integer(is) ? field_called(r->operation, text) : -1;
    if (text != NULL)
        read_expr(r, text, &scalar->expr);
    if (scalar->expr == NULL || r->rc != 0)
        return;
    const fa_expr_value known = fa_problem_evaluate(r->problem, scalar->expr);
    refuse(r, known.kind != FA_EXPR_INTEGER && known.kind != FA_EXPR_REAL, ": its value %s",
           fa_expr_fault(known));
    refuse(r, fa_element_is_integer(is) && !is_exact(is, trunc(fa_expr_number(known))),
           ": %.17g does not fit in %s: let the kernel take an i64", fa_expr_number(known),
           fa_element_name(is));
}

static bool is_taken(const fa_tensor_list *list, const char *name)
{
    bool taken = false;
    for (int i = 0; i < list->struct_count; i++)
        taken = taken || strcmp(list->structure[i].name, name) == 0;
    for (int i = 0; i < list->count; i++)
        taken = taken || strcmp(list->at[i].name, name) == 0;
    for (int i = 0; i < list->scalar_count; i++)
        taken = taken || strcmp(list->scalar[i].name, name) == 0;
    return taken;
}

/* Begins to read an argument; its name. */
static const char *begin(struct reader *r, const cJSON *json, int index)
{
    const char *name = fa_json_string(json, "name");
    r->json = json;
    snprintf(r->where, sizeof r->where, "operation %s: arguments[%d] %.40s", r->operation->name,
             index, name != NULL ? name : "");
    refuse(
        r, name == NULL || !fa_is_identifier(name),
        ": a name begins with a letter, and has letters, digits and _, at most %d; it need not be "
        "the kernel's own",
        FA_NAME_MAX - 1);
    refuse(r, name != NULL && is_taken(r->list, name), " appears twice");
    return name;
}

/* With a shape it is a tensor, else a scalar. */
static void read_leaf(struct reader *r, const cJSON *json, int index, bool in_struct)
{
    fa_tensor_list *list = r->list;
    const char *name = begin(r, json, index);
    const bool tensor = cJSON_HasObjectItem(json, "shape");
    refuse(r, tensor ? list->count == FA_TENSORS_MAX : list->scalar_count == FA_SCALARS_MAX,
           ": at most %d %s can be", tensor ? FA_TENSORS_MAX : FA_SCALARS_MAX,
           tensor ? "arrays" : "numbers");
    if (r->rc != 0)
        return;
    const int leaf = tensor ? list->count : FA_TENSORS_MAX + list->scalar_count;
    if (r->one_by_one)
        list->parameter[list->parameter_count++] = leaf;
    if (r->one_by_one && !in_struct)
        list->argument[list->argument_count++] = leaf;
    if (tensor) {
        fa_tensor *is = &list->at[list->count++];
        is->name = name;
        read_tensor(r, is);
        if (is->scratch >= 0)
            is->scratch = list->scratch_count++;
    } else {
        list->scalar[list->scalar_count].name = name;
        read_scalar(r, &list->scalar[list->scalar_count++]);
    }
}

static int leaf_size(const fa_tensor_list *list, int leaf)
{
    return leaf < FA_TENSORS_MAX
               ? (int)sizeof(uint64_t)
               : (int)fa_element_size(list->scalar[leaf - FA_TENSORS_MAX].element);
}

/* A struct by value: every field lies at the next multiple of its own size. */
static void read_struct(struct reader *r, const cJSON *json, int index)
{
    static const char *const keys[] = {"name", "type",  "shape", "value",
                                       "is",   "range", "align", NULL};
    fa_tensor_list *list = r->list;
    const cJSON *field, *fields = fa_json_member(json, "fields");
    const char *name = begin(r, json, index);
    const int at = list->struct_count;
    int end = 0, most = 1;
    refuse(r, at == FA_STRUCTS_MAX, ": at most %d structs can be", FA_STRUCTS_MAX);
    refuse(r, !cJSON_IsArray(fields) || fields->child == NULL || cJSON_GetArraySize(json) != 2,
           ": \"fields\" must be an array of arguments, beside a \"name\" alone");
    if (r->rc != 0)
        return;
    list->structure[at].name = name;
    list->structure[at].first = list->parameter_count;
    list->struct_count++;
    cJSON_ArrayForEach (field, fields) {
        if (r->rc == 0)
            r->rc = fa_json_check_keys(field, keys, r->where, r->diag);
        if (r->rc == 0)
            read_leaf(r, field, index, true);
        if (r->rc != 0)
            return;
        const int leaf = list->parameter[list->parameter_count - 1], size = leaf_size(list, leaf);
        refuse(r,
               leaf < FA_TENSORS_MAX &&
                   (list->at[leaf].symbol != NULL || list->at[leaf].scratch >= 0),
               ": a field has no \"symbol\" and is no scratch");
        end = (end + size - 1) / size * size;
        list->structure[at].offset[list->structure[at].count++] = end;
        end += size;
        most = size > most ? size : most;
    }
    list->structure[at].size = (end + most - 1) / most * most;
    list->argument[list->argument_count++] = FA_PARAMETERS_MAX + at;
}

static void read_argument(struct reader *r, const cJSON *json, int index)
{
    const char *when = fa_json_string(json, "when");
    const int field = when != NULL ? fa_operation_field_index(r->operation, when) : -1;
    /* Of a feature that the problem does without: kernels that know nothing of it have the struct that they had. */
    if (field >= 0 && r->operation->field[field].feature &&
        fa_field_is_absent(&r->operation->field[field], r->problem->value[field]))
        return;
    if (r->one_by_one && cJSON_HasObjectItem(json, "fields"))
        read_struct(r, json, index);
    else
        read_leaf(r, json, index, false);
}

/* ---- what each launch takes ------------------------------------------------------------------*/
static bool is_passed(const fa_tensor_list *list, int argument)
{
    return argument >= FA_TENSORS_MAX || list->at[argument].symbol == NULL ||
           list->at[argument].parameter;
}

const char *fa_tensors_name(const fa_tensor_list *list, int argument)
{
    return argument < FA_TENSORS_MAX      ? list->at[argument].name
           : argument < FA_PARAMETERS_MAX ? list->scalar[argument - FA_TENSORS_MAX].name
                                          : list->structure[argument - FA_PARAMETERS_MAX].name;
}

/* An answer is one launch, and has no scratch. */
static bool may_take(const fa_tensor_list *list, int argument, int launch)
{
    return is_passed(list, argument) && (launch != FA_THE_ANSWER || argument >= FA_TENSORS_MAX ||
                                         list->at[argument].scratch < 0);
}

/* "arguments" of a launch, or all. */
static void take(struct reader *r, const cJSON *of, int launch)
{
    const fa_tensor_list *list = r->list;
    const cJSON *item, *names = fa_json_member(of, "arguments");
    int *at = r->list->taken[launch].at, *count = &r->list->taken[launch].count;
    for (int i = 0; names == NULL && i < list->argument_count; i++)
        if (may_take(list, list->argument[i], launch))
            at[(*count)++] = list->argument[i];
    refuse(r, names != NULL && !cJSON_IsArray(names), ": \"arguments\" must be an array of names");
    cJSON_ArrayForEach (item, names) {
        const char *name = cJSON_IsString(item) ? item->valuestring : "";
        int index = 0, before = 0;
        while (index < list->argument_count &&
               (strcmp(fa_tensors_name(list, list->argument[index]), name) != 0 ||
                !may_take(list, list->argument[index], launch)))
            index++;
        refuse(r, index == list->argument_count,
               ": arguments: \"%.40s\" is the name of none that %s", name,
               launch == FA_THE_ANSWER ? "an answer is passed, which has no scratch"
                                       : "kernels are passed");
        while (r->rc == 0 && before < *count && at[before] != list->argument[index])
            before++;
        refuse(r, before < *count, ": arguments: \"%.40s\" appears twice", name);
        if (r->rc != 0)
            return;
        at[(*count)++] = list->argument[index];
    }
}

static void take_all(struct reader *r)
{
    fa_tensor_list *list = r->list;
    const cJSON *document = r->operation->document,
                *launches = fa_json_member(document, "launches");
    const int count = launches != NULL ? cJSON_GetArraySize(launches) : 1;
    bool taken[FA_PARAMETERS_MAX + FA_STRUCTS_MAX] = {false};
    list->launches = launches != NULL;
    snprintf(r->where, sizeof r->where, "operation %s: answer", r->operation->name);
    take(r, fa_json_member(document, "answer"), FA_THE_ANSWER);
    for (int i = 0; i < count && i < FA_LAUNCHES_MAX; i++) {
        snprintf(r->where, sizeof r->where, "operation %s: launches[%d]", r->operation->name, i);
        take(r, cJSON_GetArrayItem(launches, i), i);
        for (int k = 0; k < list->taken[i].count; k++)
            taken[list->taken[i].at[k]] = true;
    }
    snprintf(r->where, sizeof r->where, "operation %s: arguments", r->operation->name);
    for (int i = 0; i < list->argument_count; i++)
        refuse(r, is_passed(list, list->argument[i]) && !taken[list->argument[i]],
               "[%d] %s: no launch takes it", i, fa_tensors_name(list, list->argument[i]));
}

static bool is_partial(const fa_problem *problem)
{
    static const char *const texts[] = {"score", "mask"};
    static const char *const calls[] = {"log(", "log (", "sqrt(", "sqrt (", "**"};
    bool is = false;
    for (int i = 0; i < 10; i++) {
        const char *text = fa_operand_text(problem, texts[i / 5]);
        is = is || (text != NULL && strstr(text, calls[i % 5]) != NULL);
    }
    return is;
}

void fa_case_keep_positive(const fa_problem *problem, bool is_real, fa_tensor *buffer)
{
    if (is_real && is_partial(problem))
        buffer->from = 1, buffer->span = 4;
}

void fa_case_keep_domain(const fa_problem *problem, fa_problem *drawn)
{
    const fa_operation *operation = fa_operation_of(problem);
    const int q = fa_operation_field_index(operation, "seq_q"),
              k = fa_operation_field_index(operation, "seq_k");
    if (q >= 0 && k >= 0 && drawn->value[k] > 0 && drawn->value[q] > drawn->value[k] &&
        problem->value[q] <= problem->value[k] && is_partial(problem))
        drawn->value[q] = drawn->value[k];
}

/* Those of a proof are as long as the problem needs, a caller's of any length. */
static void add_buffers(struct reader *r)
{
    fa_tensor_list *list = r->list;
    fa_buffer_plan plan[FA_ATTN_BUFFERS];
    list->plain = list->count;
    r->rc = r->one_by_one ? 0 : fa_buffers_read(fa_buffers_of(r->problem), list->buffer, r->diag);
    const int count = r->rc > 0 ? fa_buffers_plan(r->problem, false, 0, plan) : 0;
    r->rc = r->rc > 0 ? 0 : r->rc, list->buffer_count = count;
    for (int i = 0; i < 2 * count; i++) {
        const fa_buffer_plan *is = &plan[i % count];
        if (i >= count && !list->buffer[i - count].wanted)
            continue;
        if (list->count == FA_TENSORS_MAX)
            r->rc = fa_fail(r->diag, FA_EINVAL, "tensors: at most %d arrays and buffers can be",
                            FA_TENSORS_MAX);
        if (r->rc != 0)
            return;
        fa_tensor *tensor = &list->at[list->count++];
        *tensor = (fa_tensor){.name = "a buffer", .scratch = -1, .when = -1, .align = 4};
        fa_element_find(i >= count ? "fp32" : is->type->name, &tensor->element);
        tensor->output = tensor->summed = i >= count;
        tensor->elements = is->elements, tensor->span = is->span, tensor->runs = is->span > 0;
        fa_case_keep_positive(r->problem, i < count && is->type->real, tensor);
    }
}

int fa_tensors_read(const fa_problem *problem, fa_tensor_list *ret_list, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    const cJSON *tolerance = fa_json_member(operation->document, "tolerance"),
                *arguments = fa_json_member(operation->document, "arguments"), *item;
    fa_tensor_list list = {.ulps = number_of(tolerance, "ulps"),
                           .relative = number_of(tolerance, "relative"),
                           .of_largest = number_of(tolerance, "of_largest"),
                           .absolute = number_of(tolerance, "absolute"),
                           .unaligned = fa_operation_field_index(operation, "unaligned")};
    struct reader r = {.problem = problem,
                       .operation = operation,
                       .list = &list,
                       .one_by_one = operation->specification[0] != 0,
                       .diag = diag};
    int outputs = 0, index = 0;
    if (list.unaligned >= 0 && operation->field[list.unaligned].kind != FA_FIELD_BOOLEAN)
        list.unaligned = -1; /* a name of somebody's own */
    snprintf(r.where, sizeof r.where, "operation %s", operation->name);
    refuse(&r, !cJSON_IsArray(arguments),
           ": \"arguments\" must be an array, in the kernel's order");
    cJSON_ArrayForEach (item, arguments)
        if (r.rc == 0)
            read_argument(&r, item, index++);
    if (r.rc == 0)
        take_all(&r);
    if (r.rc == 0)
        add_buffers(&r);
    for (int i = 0; i < list.count; i++)
        outputs += list.at[i].output;
    /* without one every kernel would pass its proof without being launched */
    refuse(&r, outputs == 0, ": none is an output: say which \"is\" \"out\" or \"inout\"");
    refuse(&r, !(list.ulps > 0 || list.relative > 0 || list.absolute > 0),
           ": its file lacks a tolerance");
    if (r.rc != 0)
        fa_tensors_free(&list);
    else
        *ret_list = list;
    return r.rc;
}

void fa_tensors_free(fa_tensor_list *list)
{
    for (int t = 0; t < list->count; t++) {
        for (int i = 0; i < list->at[t].dims; i++)
            fa_expr_free(&list->at[t].expr[i]);
        fa_expr_free(&list->at[t].low);
        fa_expr_free(&list->at[t].high);
    }
    for (int i = 0; i < list->scalar_count; i++)
        fa_expr_free(&list->scalar[i].expr);
    list->count = list->scalar_count = 0;
}

/* ---- tolerance -------------------------------------------------------------------------------*/
/* Of integers, of which a relative distance says nothing, `ulps` counts for nothing. */
fa_tolerance fa_tensors_tolerance(const fa_tensor_list *list, fa_element element)
{
    const struct element *is = &elements[element];
    return (fa_tolerance){.relative = fmin(is->ulp * list->ulps, is->most) +
                                      (is->ulp > 0 ? list->relative : 0),
                          .of_largest = fmin(is->ulp * list->of_largest, is->most_of_largest),
                          .absolute = list->absolute};
}

double fa_tolerance_error(const fa_tolerance *tolerance, double largest, double got, double wanted,
                          double magnitude, double *ret_allowed)
{
    static const double least = 1e-30; /* a share of it is a number, also where all must be exact */
    bool infinite = isinf(wanted), same = isinf(got) && signbit(got) == signbit(wanted);
    *ret_allowed = fmax(least, tolerance->absolute + tolerance->of_largest * largest +
                                   (infinite ? 0 : tolerance->relative * magnitude));
    return !infinite ? fabs(got - wanted) : same ? 0 : isnan(got) ? got : INFINITY;
}

/* ---- what kernels take -----------------------------------------------------------------------*/
void fa_tensors_scalars(const fa_problem *problem, const fa_tensor_list *list, bool all,
                        fa_tensor_values *values)
{
    for (int i = 0; i < list->scalar_count; i++) {
        const fa_scalar *scalar = &list->scalar[i];
        double value = scalar->value;
        if (scalar->field >= 0) { /* at once: launches come here; its low bytes come first */
            values->scalar[i] = (fa_scalar_bits){.int64 = size_of(problem, scalar->field)};
            continue;
        }
        if (scalar->expr != NULL) {
            const fa_expr_value is = fa_problem_evaluate(problem, scalar->expr);
            if (is.kind == FA_EXPR_INTEGER && fa_element_is_integer(scalar->element)) {
                values->scalar[i] = (fa_scalar_bits){.int64 = is.integer};
                continue;
            }
            value = fa_expr_number(is);
        }
        if (all || scalar->expr != NULL) {
            values->scalar[i] = (fa_scalar_bits){0};
            fa_element_store(scalar->element, value, &values->scalar[i]);
        }
    }
}

static void *leaf_at(fa_tensor_values *values, int leaf)
{
    return leaf < FA_TENSORS_MAX ? (void *)&values->address[leaf]
                                 : (void *)&values->scalar[leaf - FA_TENSORS_MAX];
}

int fa_tensors_arguments(const fa_problem *problem, const fa_tensor_list *list, int launch,
                         fa_tensor_values *values, unsigned char ret_params[FA_PARAMS_MAX],
                         void *ret_argument[FA_PARAMETERS_MAX])
{
    ret_argument[0] = ret_params;
    if (list->parameter_count == 0) {
        fa_tensors_params(problem, list, values, ret_params);
        return 1;
    }
    size_t end = 0;
    for (int i = 0; i < list->taken[launch].count; i++) {
        const int at = list->taken[launch].at[i], in = at - FA_PARAMETERS_MAX;
        ret_argument[i] = in < 0 ? leaf_at(values, at) : ret_params + end;
        for (int f = 0; in >= 0 && f < list->structure[in].count; f++) {
            const int leaf = list->parameter[list->structure[in].first + f];
            memcpy(ret_params + end + list->structure[in].offset[f], leaf_at(values, leaf),
                   (size_t)leaf_size(list, leaf));
        }
        end += in >= 0 ? ((size_t)list->structure[in].size + 7) / 8 * 8 : 0;
    }
    return list->taken[launch].count;
}

size_t fa_tensors_params(const fa_problem *problem, const fa_tensor_list *list,
                         const fa_tensor_values *values, unsigned char ret_params[FA_PARAMS_MAX])
{
    const fa_operation *operation = fa_operation_of(problem);
    size_t size = (size_t)list->plain * sizeof *values->address;
    memcpy(ret_params, values->address, size);
    for (int i = 0; i < list->plain; i++) {
        size_t strides = (size_t)list->at[i].stride_count * sizeof **values->stride;
        memcpy(ret_params + size, values->stride[i], strides);
        size += strides;
    }
    for (int i = 0; i < list->scalar_count; i++, size += sizeof(float))
        memcpy(ret_params + size, &values->scalar[i].fp32, sizeof(float));
    for (int i = 0; i < operation->field_count; i++) {
        if (operation->field[i].kind != FA_FIELD_INTEGER)
            continue;
        memcpy(ret_params + size, &problem->value[i], sizeof problem->value[i]);
        size += sizeof problem->value[i];
    }
    memset(ret_params + size, 0, 8);
    size = (size + 7) / 8 * 8;
    return size + fa_buffers_pack(list->buffer, list->buffer_count, values->buffer,
                                  &values->address[list->plain + list->buffer_count],
                                  ret_params + size);
}
