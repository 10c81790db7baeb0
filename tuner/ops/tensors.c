/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading tensors and scalars of an operation.json, numbers of each element type, and the struct that
 * kernels take.
 */
#include "tensors.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

_Static_assert(8 * FA_TENSORS_MAX * (1 + FA_TENSOR_STRIDES) +
                       4 * (FA_SCALARS_MAX + FA_PROBLEM_VALUES) <=
                   FA_PARAMS_MAX - 8,
               "");

static const char *const element_names[] = {"fp16", "bf16", "fp32"};

const char *fa_element_name(fa_element element)
{
    return element_names[element];
}

size_t fa_element_size(fa_element element)
{
    return element == FA_ELEMENT_FP32 ? 4 : 2;
}

/* The relative distance of neighbours. */
static double ulp_of(fa_element element)
{
    return element == FA_ELEMENT_FP16 ? 0x1p-10 : element == FA_ELEMENT_BF16 ? 0x1p-7 : 0x1p-23;
}

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float fa_element_value(fa_element element, const void *at)
{
    uint32_t wide;
    uint16_t bits;
    memcpy(&wide, at, element == FA_ELEMENT_FP32 ? 4 : 2);
    if (element == FA_ELEMENT_FP32)
        return from_bits(wide);
    memcpy(&bits, at, sizeof bits);
    if (element == FA_ELEMENT_BF16)
        return from_bits((uint32_t)bits << 16);
    int exponent = bits >> 10 & 31;
    float magnitude = exponent == 31 ? (bits & 1023) != 0 ? NAN : INFINITY
                                     : ldexpf((float)((bits & 1023) + (exponent > 0 ? 1024 : 0)),
                                              (exponent > 0 ? exponent : 1) - 25);
    return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

void fa_element_store(fa_element element, float value, void *at)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t half = (uint16_t)(bits >> 16); /* as bf16, exact */
    if (element == FA_ELEMENT_FP32) {
        memcpy(at, &bits, sizeof bits);
        return;
    }
    if (element == FA_ELEMENT_FP16) { /* 0, or an exponent that fp16 has too */
        uint32_t exponent = (bits >> 23 & 255) - 112;
        half = (uint16_t)((bits >> 16 & 0x8000) |
                          (value < 0 || value > 0 ? exponent << 10 | (bits >> 13 & 1023) : 0));
    }
    memcpy(at, &half, sizeof half);
}

static int read_element(const cJSON *json, const fa_problem *problem, fa_tensor *tensor,
                        const char *where, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    const char *name = NULL;
    int rc = fa_json_text_needed(json, "dtype", &name, where, diag);
    int field = rc == 0 ? fa_operation_field_index(operation, name) : -1;
    if (field >= 0 && operation->field[field].kind == FA_FIELD_CHOICE)
        name = operation->field[field].choice[problem->value[field]];
    for (int i = 0; rc == 0 && i < 3; i++) {
        if (strcmp(name, element_names[i]) != 0)
            continue;
        tensor->element = (fa_element)i;
        return 0;
    }
    return rc != 0 ? rc
                   : fa_fail(diag, FA_EINVAL, "%s: \"dtype\" must be fp16, bf16, fp32 or a field",
                             where);
}

/* Reads a dimension; false: it is neither a number nor the macro of a field. */
static bool read_dimension(const cJSON *item, const fa_operation *operation, fa_tensor *tensor)
{
    int *field = &tensor->field[tensor->dims];
    *field = -1;
    if (cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= INT32_MAX)
        tensor->size[tensor->dims] = (int)item->valuedouble;
    for (int i = 0; cJSON_IsString(item) && *field < 0 && i < operation->field_count; i++)
        if (strcmp(operation->field[i].macro, item->valuestring) == 0)
            *field = i;
    tensor->dims++;
    return cJSON_IsNumber(item) || *field >= 0;
}

static int read_shape(const cJSON *shape, const fa_problem *problem, fa_tensor *tensor,
                      const char *where, fa_diag *diag)
{
    const cJSON *item;
    if (!cJSON_IsArray(shape))
        return fa_fail(diag, FA_EINVAL, "%s: \"shape\" must be an array", where);
    tensor->elements = 1;
    cJSON_ArrayForEach (item, shape) {
        if (tensor->dims == FA_ARGUMENT_DIMS)
            return fa_fail(diag, FA_EINVAL, "%s: more than %d dimensions", where, FA_ARGUMENT_DIMS);
        int64_t size = read_dimension(item, fa_operation_of(problem), tensor)
                           ? fa_tensor_size(tensor, problem, tensor->dims - 1)
                           : -1;
        if (size < 0)
            return fa_fail(diag, FA_EINVAL, "%s: \"shape\" must be of macros and numbers", where);
        if (__builtin_mul_overflow(tensor->elements, (uint64_t)size, &tensor->elements) ||
            tensor->elements > (uint64_t)1 << 60)
            return fa_fail(diag, FA_ENOMEM, "%s: more than 2^60 elements", where);
    }
    return 0;
}

/* "when": a field; "align": bytes. */
static int read_demands(const cJSON *json, const fa_operation *operation, fa_tensor *tensor,
                        const char *where, fa_diag *diag)
{
    const cJSON *when = cJSON_GetObjectItemCaseSensitive(json, "when");
    const cJSON *align = cJSON_GetObjectItemCaseSensitive(json, "align");
    int bytes = align == NULL ? 16 : cJSON_IsNumber(align) ? align->valueint : 0;
    tensor->when =
        cJSON_IsString(when) ? fa_operation_field_index(operation, when->valuestring) : -1;
    tensor->align = bytes;
    if (when != NULL && tensor->when < 0)
        return fa_fail(diag, FA_EINVAL, "%s: \"when\" must name a field", where);
    if (bytes < (int)fa_element_size(tensor->element) || bytes > 256 || (bytes & (bytes - 1)) != 0)
        return fa_fail(diag, FA_EINVAL,
                       "%s: \"align\" must be a power of two from the element's size to 256",
                       where);
    return 0;
}

static int read_tensor(const cJSON *json, const fa_problem *problem, fa_tensor *tensor,
                       const char *where, fa_diag *diag)
{
    int rc = fa_json_text_needed(json, "name", &tensor->name, where, diag);
    if (rc == 0)
        rc = read_element(json, problem, tensor, where, diag);
    if (rc == 0)
        rc = read_demands(json, fa_operation_of(problem), tensor, where, diag);
    if (rc == 0)
        rc = read_shape(cJSON_GetObjectItemCaseSensitive(json, "shape"), problem, tensor, where,
                        diag);
    if (rc != 0)
        return rc;
    bool strided = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "strided"));
    tensor->output = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "output"));
    tensor->made = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "made"));
    if (tensor->output && tensor->made)
        return fa_fail(diag, FA_EINVAL, "%s: an output cannot be \"made\"", where);
    tensor->stride_count = strided ? tensor->dims - 1 : 0;
    if (strided && (tensor->stride_count < 1 || tensor->stride_count > FA_TENSOR_STRIDES))
        return fa_fail(diag, FA_EINVAL, "%s: what is strided has 2 to %d dimensions", where,
                       FA_TENSOR_STRIDES + 1);
    return 0;
}

int64_t fa_tensor_size(const fa_tensor *tensor, const fa_problem *problem, int dimension)
{
    int field = tensor->field[dimension];
    return field >= 0 ? problem->value[field] : tensor->size[dimension];
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

/* The boolean field that says that nothing is aligned; -1: the operation has none. */
static int unaligned_field(const fa_operation *operation)
{
    int index = fa_operation_field_index(operation, "unaligned");
    return index >= 0 && operation->field[index].kind == FA_FIELD_BOOLEAN ? index : -1;
}

static double number_of(const cJSON *json, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

int fa_tensors_read(const fa_problem *problem, fa_tensor_list *ret_list, fa_diag *diag)
{
    const fa_operation *operation = fa_operation_of(problem);
    const cJSON *json = operation->document, *item;
    const cJSON *tolerance = cJSON_GetObjectItemCaseSensitive(json, "tolerance");
    fa_tensor_list list = {.ulps = number_of(tolerance, "ulps"),
                           .of_largest = number_of(tolerance, "of_largest"),
                           .absolute = number_of(tolerance, "absolute"),
                           .unaligned = unaligned_field(operation)};
    int outputs = 0;
    char where[128];
    cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(json, "tensors")) {
        snprintf(where, sizeof where, "operation %s: tensors[%d]", operation->name, list.count);
        if (list.count == FA_TENSORS_MAX)
            return fa_fail(diag, FA_EINVAL, "%s: at most %d can be", where, FA_TENSORS_MAX);
        fa_tensor *tensor = &list.at[list.count++];
        int rc = read_tensor(item, problem, tensor, where, diag);
        if (rc != 0)
            return rc;
        outputs += tensor->output;
    }
    cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(json, "scalars")) {
        if (list.scalar_count == FA_SCALARS_MAX)
            return fa_fail(diag, FA_EINVAL, "operation %s: more than %d scalars", operation->name,
                           FA_SCALARS_MAX);
        snprintf(where, sizeof where, "operation %s: scalars[%d]", operation->name,
                 list.scalar_count);
        int rc =
            fa_json_text_needed(item, "name", &list.scalar_name[list.scalar_count], where, diag);
        if (rc != 0)
            return rc;
        list.scalar[list.scalar_count++] = (float)number_of(item, "value");
    }
    if (list.count == 0 || !(list.ulps > 0 || list.absolute > 0))
        return fa_fail(diag, FA_EINVAL, "operation %s: its file tells no tensors or no tolerance",
                       operation->name);
    if (outputs == 0) /* every kernel would pass its proof without being launched */
        return fa_fail(diag, FA_EINVAL,
                       "operation %s: none of its tensors is an output: say "
                       "\"output\": true",
                       operation->name);
    *ret_list = list;
    return 0;
}

void fa_tensors_tolerance(const fa_tensor_list *list, fa_element element, double *ret_relative,
                          double *ret_of_largest)
{
    *ret_relative = ulp_of(element) * list->ulps;
    *ret_of_largest = ulp_of(element) * list->of_largest;
}

double fa_tensors_error(const fa_tensor_list *list, fa_element element, double largest, double got,
                        double wanted, double *ret_allowed)
{
    bool infinite = isinf(wanted), same = isinf(got) && signbit(got) == signbit(wanted);
    double relative = infinite ? 0 : list->ulps * fabs(wanted);
    *ret_allowed = list->absolute + ulp_of(element) * (relative + list->of_largest * largest);
    return !infinite ? fabs(got - wanted) : same ? 0 : isnan(got) ? got : INFINITY;
}

size_t fa_tensors_params(const fa_problem *problem, const fa_tensor_list *list,
                         const fa_tensor_values *values, unsigned char ret_params[FA_PARAMS_MAX])
{
    const fa_operation *operation = fa_operation_of(problem);
    size_t size = (size_t)list->count * sizeof *values->address;
    size_t scalars = (size_t)list->scalar_count * sizeof *values->scalar;
    memcpy(ret_params, values->address, size);
    for (int i = 0; i < list->count; i++) {
        size_t strides = (size_t)list->at[i].stride_count * sizeof **values->stride;
        memcpy(ret_params + size, values->stride[i], strides);
        size += strides;
    }
    memcpy(ret_params + size, values->scalar, scalars);
    size += scalars;
    for (int i = 0; i < operation->field_count; i++) {
        if (operation->field[i].kind != FA_FIELD_INTEGER)
            continue;
        memcpy(ret_params + size, &problem->value[i], sizeof problem->value[i]);
        size += sizeof problem->value[i];
    }
    memset(ret_params + size, 0, 8);
    return (size + 7) / 8 * 8;
}

size_t fa_tensors_params_packed(const fa_problem *problem, const fa_tensor_list *list,
                                const uint64_t address[FA_TENSORS_MAX],
                                unsigned char ret_params[FA_PARAMS_MAX])
{
    fa_tensor_values values;
    memcpy(values.address, address, sizeof values.address);
    memcpy(values.scalar, list->scalar, sizeof values.scalar);
    for (int i = 0; i < list->count; i++)
        fa_tensor_pack(&list->at[i], problem, values.stride[i]);
    return fa_tensors_params(problem, list, &values, ret_params);
}
