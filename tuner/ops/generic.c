/* SPDX-License-Identifier: Apache-2.0
 *
 * The prover and the cost model of any operation that its operation.json describes.
 *
 * Workload: fa_check.cuh fills inputs and compares outputs on the device. What it does not find right is looked at
 * once more on the host, which decides and says why; inputs that the reference made are always compared here.
 */
#include "generic.h"

#include "random.h"
#include "model_parts.h"
#include "prover_base.h"
#include "tensors.h"

#include "error.h"
#include "operation.h"
#include "problem.h"
#include "cubin.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------*/
/* A small value for a field, within its range. */
static int32_t small_value(const fa_field *f, uint64_t random)
{
    static const int32_t sizes[] = {1, 2, 3, 5, 17, 33, 63, 64, 65, 100, 129, 200};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    int32_t value = sizes[random % SIZES] / f->multiple * f->multiple;
    return value < f->min ? f->min : value > f->max ? f->max : value;
}

/* Must the field stay at its default because the one that it needs is at its own? */
static bool is_barred(const fa_operation *operation, const fa_problem *problem, int field)
{
    int needs = operation->field[field].needs;
    return needs >= 0 && fa_field_is_absent(&operation->field[needs], problem->value[needs]);
}

enum { RAGGED_ELEMENTS = 1 << 20 /* of all tensors of a ragged case */ };

/* Elements of all tensors; UINT64_MAX: no problem. */
static uint64_t elements_of(const fa_problem *problem)
{
    fa_tensor_list list;
    uint64_t elements = 0;
    if (fa_problem_check(problem, NULL) != 0 || fa_tensors_read(problem, &list, NULL) != 0)
        return UINT64_MAX;
    for (int t = 0; t < list.count; t++)
        elements += list.at[t].elements;
    return elements;
}

static bool is_drawn(const fa_operation *operation, const fa_problem *problem, int field)
{
    return operation->field[field].kind == FA_FIELD_INTEGER &&
           !operation->field[field].shapes_source && !is_barred(operation, problem, field);
}

/* Fields that divide another do so as often as in the problem itself: heads stay grouped. */
static void keep_groups(const fa_operation *operation, const fa_problem *problem, fa_problem *drawn)
{
    for (int f = 0; f < operation->field_count; f++) {
        int whole = operation->field[f].divides;
        if (whole < 0 || !is_drawn(operation, drawn, f) || problem->value[f] < 1)
            continue;
        int32_t group = problem->value[whole] / problem->value[f];
        int32_t parts = group > 0 ? drawn->value[whole] / group : drawn->value[whole];
        drawn->value[f] = parts > 0 ? parts : 1;
        drawn->value[whole] = group > 0 ? drawn->value[f] * group : drawn->value[f];
    }
}

/* Halves the largest sizes until the host can make and compare the tensors in milliseconds. */
static void shrink_case(const fa_operation *operation, const fa_problem *problem, fa_problem *drawn)
{
    uint64_t before = UINT64_MAX, elements;
    while ((elements = elements_of(drawn)) > RAGGED_ELEMENTS && elements < before) {
        int largest = -1;
        for (int f = 0; f < operation->field_count; f++) {
            const fa_field *field = &operation->field[f];
            if (is_drawn(operation, drawn, f) && field->divides < 0 &&
                drawn->value[f] / 2 >= field->min && drawn->value[f] / 2 >= field->multiple &&
                (largest < 0 || drawn->value[f] > drawn->value[largest]))
                largest = f;
        }
        if (largest < 0)
            return;
        int32_t multiple = operation->field[largest].multiple, half = drawn->value[largest] / 2;
        drawn->value[largest] = multiple > 1 ? half / multiple * multiple
                                : half > 1   ? half | 1
                                             : half;
        keep_groups(operation, problem, drawn);
        before = elements;
    }
}

int fa_generic_cases(const fa_problem *problem, uint64_t seed, fa_problem ret_case[FA_BENCH_CASES])
{
    const fa_operation *operation = fa_operation_of(problem);
    int count = 1;
    ret_case[0] = *problem;
    for (int i = 1; i < FA_BENCH_CASES; i++) {
        fa_problem p = *problem;
        for (int f = 0; f < operation->field_count; f++)
            if (is_drawn(operation, &p, f))
                p.value[f] =
                    small_value(&operation->field[f], fa_random(seed, (uint64_t)(100 * i + f)));
        keep_groups(operation, problem, &p);
        shrink_case(operation, problem, &p);
        if (fa_problem_check(&p, NULL) == 0)
            ret_case[count++] = p;
    }
    return count;
}

/* ---- the prover -----------------------------------------------------------------------------*/
enum {
    REFERENCE_THREADS = 128,
    INPUT_FENCE = 2048 /* 16-bit elements */
};
enum { REFERENCE, FILL, LARGEST, CHECK_OUTPUT, CHECK_INPUT };
static const char *const entries[] = {"reference",       "fa_check_fill",  "fa_check_largest",
                                      "fa_check_output", "fa_check_input", NULL};

struct generic_case {
    fa_tensor_list tensors;
    fa_device_ptr fenced[FA_TENSORS_MAX]; /* fence, tensor, fence */
    uint64_t first[FA_TENSORS_MAX];       /* address of the tensor itself */
    fa_device_ptr wanted[FA_TENSORS_MAX]; /* of outputs: the reference, fp32 */
    fa_device_ptr largest;         /* of each output's reference: the largest magnitude, fp32 */
    uint64_t seed[FA_TENSORS_MAX]; /* of inputs */
    float *wanted_host[FA_TENSORS_MAX];
    unsigned char *input_host
        [FA_TENSORS_MAX]; /* of inputs: as they should be, with their fences; NULL: not asked for yet */
    size_t params_size;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    struct fa_verdict verdict[FA_PROVER_ROUNDS];
};

struct generic_prover {
    struct fa_prover base;
    struct generic_case at[FA_BENCH_CASES];
};

static struct generic_case *case_of(const struct fa_prover *prover, int index)
{
    return (struct generic_case *)&((const struct generic_prover *)prover)->at[index];
}

static int take_cases(struct fa_prover *prover, const fa_problem *problem, fa_diag *diag)
{
    fa_problem cases[FA_BENCH_CASES];
    int rc = 0;
    prover->count = fa_generic_cases(problem, prover->seed, cases);
    for (int i = 0; i < prover->count && rc == 0; i++) {
        struct generic_case *c = case_of(prover, i);
        prover->at[i] = (struct fa_prover_case){.problem = cases[i], .once = i == 0, .empty = true};
        rc = fa_tensors_read(&cases[i], &c->tensors, diag);
        for (int t = 0; rc == 0 && t < c->tensors.count; t++)
            if (c->tensors.at[t].output && c->tensors.at[t].elements > 0)
                prover->at[i].empty = false;
    }
    return rc;
}

static uint64_t fence_bytes(const fa_tensor *tensor)
{
    return 2 * (uint64_t)(tensor->output ? FA_PROVER_FENCE : INPUT_FENCE);
}

/* Bytes of a tensor with its fences: a multiple of 2. */
static uint64_t fenced_bytes(const fa_tensor *tensor)
{
    return 2 * fence_bytes(tensor) + tensor->elements * fa_element_size(tensor->element);
}

static void plan(struct fa_prover *prover, int index, struct fa_cursor *inputs,
                 struct fa_cursor *outputs)
{
    struct generic_case *c = case_of(prover, index);
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        c->fenced[t] = fa_cursor_take(tensor->output ? outputs : inputs, fenced_bytes(tensor), 1);
        c->first[t] = c->fenced[t] + fence_bytes(tensor);
        if (tensor->output)
            c->wanted[t] = fa_cursor_take(inputs, tensor->elements, sizeof(float));
    }
    c->largest = fa_cursor_take(inputs, FA_TENSORS_MAX, sizeof(float));
    c->params_size =
        fa_tensors_params_packed(&prover->at[index].problem, &c->tensors, c->first, c->params);
}

/* ---- numbers --------------------------------------------------------------------------------*/
/* A value that every element type holds exactly: k / 64 with |k| <= 255, near enough to normal. */
static float input_value(uint64_t random)
{
    int sum = (int)(random & 127) + (int)(random >> 16 & 127) + (int)(random >> 32 & 127) +
              (int)(random >> 48 & 127);
    return (float)(sum - 254) / 64.0f;
}

/* ---- inputs and references ------------------------------------------------------------------*/
static unsigned char *make_input(const fa_tensor *t, uint64_t seed)
{
    size_t size = (size_t)fenced_bytes(t), fence = (size_t)fence_bytes(t);
    unsigned char *bytes = malloc(size);
    if (bytes == NULL)
        return NULL;
    for (size_t i = 0; i < size; i += 2)
        memcpy(bytes + i, &(uint16_t){FA_PROVER_POISON}, 2);
    for (uint64_t i = 0; i < t->elements; i++)
        fa_element_store(t->element, input_value(fa_random(seed, i)),
                         bytes + fence + i * fa_element_size(t->element));
    return bytes;
}

/* Poison with the tensor's values in it. Those that the reference makes are overwritten later. */
static int fill_input(struct fa_prover *prover, const struct generic_case *c, int tensor,
                      fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    uint64_t first = c->first[tensor], count = t->elements, seed = c->seed[tensor];
    int element = (int)t->element;
    void *arguments[] = {&first, &count, &element, &seed};
    int rc = fa_fill16(prover->driver, c->fenced[tensor], FA_PROVER_POISON,
                       (size_t)fenced_bytes(t) / 2, prover->stream, diag);
    return rc != 0 ? rc
                   : fa_prover_run(prover, prover->kernel[FILL], FA_PROVER_THREADS, count,
                                   arguments, diag);
}

/* The input as it should be, on the host. */
static int remember_input(struct generic_case *c, int tensor, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    if (c->input_host[tensor] == NULL)
        c->input_host[tensor] = make_input(t, c->seed[tensor]);
    return c->input_host[tensor] != NULL
               ? 0
               : fa_fail(diag, FA_ENOMEM, "out of memory for the tensor %s", t->name);
}

static int fetch_reference(struct fa_prover *prover, struct generic_case *c, int tensor,
                           fa_diag *diag)
{
    uint64_t count = c->tensors.at[tensor].elements;
    fa_device_ptr largest = c->largest + sizeof(float) * (size_t)tensor;
    void *arguments[] = {&c->wanted[tensor], &count, &largest};
    size_t size = (size_t)count * sizeof(float);
    if (c->wanted_host[tensor] == NULL)
        c->wanted_host[tensor] = malloc(size + 1);
    if (c->wanted_host[tensor] == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the reference");
    int rc =
        fa_prover_run(prover, prover->kernel[LARGEST], FA_PROVER_THREADS, count, arguments, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    return rc != 0 || size == 0 ? rc
                                : fa_copy_from_device(prover->driver, c->wanted_host[tensor],
                                                      c->wanted[tensor], size, diag);
}

/* Inputs that the reference computes from the others: on the device, then here, to be compared with later. */
static int make_inputs(struct fa_prover *prover, struct generic_case *c, fa_diag *diag)
{
    void *arguments[] = {c->params};
    fa_function function;
    uint64_t work = 0;
    for (int t = 0; t < c->tensors.count; t++)
        if (c->tensors.at[t].made && work < c->tensors.at[t].elements)
            work = c->tensors.at[t].elements;
    if (work == 0)
        return 0;
    int rc = fa_module_function(prover->module, "inputs", 0, &function, diag);
    if (rc == 0)
        rc = fa_prover_run(prover, function, REFERENCE_THREADS, work, arguments, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        if (!c->tensors.at[t].made)
            continue;
        rc = remember_input(c, t, diag);
        if (rc == 0)
            rc = fa_copy_from_device(prover->driver, c->input_host[t], c->fenced[t],
                                     (size_t)fenced_bytes(&c->tensors.at[t]), diag);
    }
    return rc;
}

static int prepare(struct fa_prover *prover, int index, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    uint64_t address[FA_TENSORS_MAX], work = 0;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    void *arguments[] = {params};
    int rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        address[t] = tensor->output ? c->wanted[t] : c->first[t];
        if (tensor->output)
            work = work < tensor->elements ? tensor->elements : work;
        c->seed[t] = fa_random(prover->seed, (uint64_t)(1000 + FA_TENSORS_MAX * index + t));
        if (!tensor->output)
            rc = fill_input(prover, c, t, diag);
    }
    if (rc == 0)
        rc = fa_fill8(prover->driver, c->largest, 0, FA_TENSORS_MAX * sizeof(float), prover->stream,
                      diag);
    if (rc != 0 || prover->at[index].empty)
        return rc;
    rc = make_inputs(prover, c, diag);
    if (rc != 0)
        return rc;
    fa_tensors_params_packed(&prover->at[index].problem, &c->tensors, address, params);
    rc = fa_prover_run(prover, prover->kernel[REFERENCE], REFERENCE_THREADS, work, arguments, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++)
        if (c->tensors.at[t].output)
            rc = fetch_reference(prover, c, t, diag);
    return rc;
}

static void release(struct fa_prover *prover)
{
    for (int i = 0; i < prover->count; i++)
        for (int t = 0; t < FA_TENSORS_MAX; t++) {
            free(case_of(prover, i)->wanted_host[t]);
            free(case_of(prover, i)->input_host[t]);
        }
}

/* ---- launching ------------------------------------------------------------------------------*/
int fa_generic_check_entry(const fa_problem *problem, const void *cubin, size_t size,
                           const char *entry, bool workspace, fa_diag *diag)
{
    static const uint64_t nowhere[FA_TENSORS_MAX];
    unsigned char params[FA_PARAMS_MAX];
    fa_tensor_list tensors;
    fa_cubin_info info;
    int rc = fa_cubin_read(cubin, size, entry, &info, diag);
    if (rc == 0)
        rc = fa_tensors_read(problem, &tensors, diag);
    if (rc != 0)
        return rc;
    int32_t bytes = (int32_t)fa_tensors_params_packed(problem, &tensors, nowhere, params);
    if (info.parameter_count != 1 + workspace || info.parameter_size[0] > bytes ||
        (workspace && info.parameter_size[1] != (int32_t)sizeof(fa_device_ptr)))
        return fa_fail(diag, FA_ECORRUPT,
                       "%s does not take just a struct of %d bytes (addresses, "
                       "strides, scalars, integer fields)%s",
                       entry, bytes, workspace ? ", and then the address of its workspace" : "");
    return 0;
}

static int generic_load(struct fa_prover *prover, const void *cubin, size_t size, const char *entry,
                        bool workspace, void **ret_extra, fa_diag *diag)
{
    *ret_extra = NULL;
    return fa_generic_check_entry(&prover->at[0].problem, cubin, size, entry, workspace, diag);
}

static void arguments(struct fa_prover *prover, int index, void *extra,
                      void *ret_argument[FA_PROVER_ARGUMENTS])
{
    (void)extra;
    ret_argument[0] = case_of(prover, index)->params;
}

/* ---- checking -------------------------------------------------------------------------------*/
/* What lies around a tensor must be as it was. */
static void check_fences(const fa_tensor *t, const unsigned char *bytes, struct fa_verdict *v)
{
    size_t size = (size_t)fenced_bytes(t), fence = (size_t)fence_bytes(t);
    for (size_t i = 0; i < size && v->passed; i = i + 2 == fence ? size - fence : i + 2) {
        uint16_t bits;
        memcpy(&bits, bytes + i, sizeof bits);
        if (bits == FA_PROVER_POISON)
            continue;
        v->passed = false;
        v->damaged = true;
        snprintf(v->reason, sizeof v->reason, "it wrote outside its output %s", t->name);
    }
}

static void compare(const fa_tensor_list *list, const fa_tensor *t, const unsigned char *elements,
                    const float *wanted, struct fa_verdict *v)
{
    size_t size = fa_element_size(t->element);
    double worst = -1, largest = 0;
    for (uint64_t i = 0; i < t->elements; i++)
        if (isfinite(wanted[i]) && fabs((double)wanted[i]) > largest)
            largest = fabs((double)wanted[i]);
    for (uint64_t i = 0; i < t->elements; i++) {
        double got = (double)fa_element_value(t->element, elements + i * size), allowed;
        double error =
            fa_tensors_error(list, t->element, largest, got, (double)wanted[i], &allowed);
        double ratio = error / allowed;
        if (ratio <= worst)
            continue;
        worst = ratio; /* NaN too, which nothing follows */
        v->error = error;
        v->tolerance = allowed;
        if (error <= allowed)
            continue;
        v->passed = false;
        snprintf(v->reason, sizeof v->reason,
                 "element %llu of %s is %.6g, the reference says %.6g, allowed is %.3g",
                 (unsigned long long)i, t->name, got, (double)wanted[i], allowed);
        if (!(ratio > 0))
            return;
    }
}

/* What a kernel only reads must be as it was: the next one is proved on it. */
static void check_input(const fa_tensor *t, const unsigned char *bytes, const unsigned char *filled,
                        struct fa_verdict *v)
{
    if (memcmp(bytes, filled, (size_t)fenced_bytes(t)) == 0)
        return;
    v->damaged = true;
    if (v->passed)
        snprintf(v->reason, sizeof v->reason, "it wrote to its input %s", t->name);
    v->passed = false;
}

/* Copies a tensor to the host and looks at it there. */
static int check_tensor(struct fa_prover *prover, struct generic_case *c, int tensor,
                        struct fa_verdict *v, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    size_t size = (size_t)fenced_bytes(t);
    int rc = t->output ? 0 : remember_input(c, tensor, diag);
    if (rc != 0)
        return rc;
    unsigned char *bytes = malloc(size);
    rc = bytes == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for the tensor %s", t->name)
                       : fa_copy_from_device(prover->driver, bytes, c->fenced[tensor], size, diag);
    if (rc == 0 && !t->output)
        check_input(t, bytes, c->input_host[tensor], v);
    else if (rc == 0)
        check_fences(t, bytes, v);
    if (rc == 0 && t->output && v->passed)
        compare(&c->tensors, t, bytes + fence_bytes(t), c->wanted_host[tensor], v);
    free(bytes);
    return rc;
}

/* The same on the device; `result`: of this tensor. */
static int start_check(struct fa_prover *prover, struct generic_case *c, int tensor,
                       fa_device_ptr result, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    uint64_t fence = fence_bytes(t) / 2, count = t->elements;
    uint64_t work = count > fence ? count : fence;
    int element = (int)t->element;
    double relative, of_largest, absolute = c->tensors.absolute;
    fa_device_ptr largest = c->largest + sizeof(float) * (size_t)tensor;
    fa_tensors_tolerance(&c->tensors, t->element, &relative, &of_largest);
    void *of_output[] = {&c->fenced[tensor], &fence,    &count,      &element,  &c->wanted[tensor],
                         &largest,           &relative, &of_largest, &absolute, &result};
    void *of_input[] = {&c->fenced[tensor], &fence, &count, &element, &c->seed[tensor], &result};
    return fa_prover_run(prover, prover->kernel[t->output ? CHECK_OUTPUT : CHECK_INPUT],
                         FA_PROVER_THREADS, work, t->output ? of_output : of_input, diag);
}

/* Takes what the device found of an output that is right. */
static void take_worst(uint64_t found, struct fa_verdict *v)
{
    uint32_t bits[] = {(uint32_t)(found >> 32), (uint32_t)found};
    float ratio, allowed;
    memcpy(&ratio, &bits[0], sizeof ratio);
    memcpy(&allowed, &bits[1], sizeof allowed);
    if ((double)ratio <= v->error / v->tolerance)
        return;
    v->error = (double)ratio * (double)allowed;
    v->tolerance = (double)allowed;
}

static int generic_check(struct fa_prover *prover, int round, int index, fa_device_ptr result,
                         fa_diag *diag)
{
    enum { FAILED = -1 };
    struct generic_case *c = case_of(prover, index);
    struct fa_verdict v = {.passed = true,
                           .tolerance = c->tensors.absolute > 0 ? c->tensors.absolute : 1};
    uint64_t found[FA_TENSORS_MAX] = {0};
    int rc = 0;
    if (prover->at[index].empty) {
        c->verdict[round] = v;
        return 0;
    }
    for (int t = 0; t < c->tensors.count && rc == 0; t++)
        if (!c->tensors.at[t].made)
            rc = start_check(prover, c, t, result + sizeof *found * (size_t)t, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    if (rc == 0)
        rc = fa_copy_from_device(prover->driver, found, result, sizeof found, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        bool failed = found[t] == (uint64_t)FAILED;
        if (failed || c->tensors.at[t].made)
            rc = check_tensor(prover, c, t, &v, diag);
        else if (c->tensors.at[t].output)
            take_worst(found[t], &v);
        v.damaged = v.damaged || failed; /* what it was compared with may be wrong on the device */
    }
    c->verdict[round] = v;
    return rc;
}

static void judge(const struct fa_prover *prover, int round, int index, const void *result,
                  struct fa_verdict *ret_verdict)
{
    (void)result;
    *ret_verdict = case_of(prover, index)->verdict[round];
}

static void generic_case_text(const struct fa_prover *prover, int index, char *ret_text,
                              size_t size)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&prover->at[index].problem, key);
    snprintf(ret_text, size, "%s", key);
}

const struct fa_prover_type fa_generic_prover = {.size = sizeof(struct generic_prover),
                                                 .result_bytes = FA_TENSORS_MAX * sizeof(uint64_t),
                                                 .entry = entries,
                                                 .take_cases = take_cases,
                                                 .plan = plan,
                                                 .prepare = prepare,
                                                 .arguments = arguments,
                                                 .load = generic_load,
                                                 .check = generic_check,
                                                 .judge = judge,
                                                 .text = generic_case_text,
                                                 .release = release};

/* ---- launches of a caller ---------------------------------------------------------------------*/
static int load_for_callers(fa_driver *driver, const fa_problem *problem, const void *cubin,
                            size_t size, const char *entry, bool workspace, void **ret_shared,
                            fa_diag *diag)
{
    (void)driver;
    int rc = fa_generic_check_entry(problem, cubin, size, entry, workspace, diag);
    fa_tensor_list *list = rc == 0 ? malloc(sizeof *list) : NULL;
    if (rc == 0 && list == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a kernel");
    if (rc == 0)
        rc = fa_tensors_read(problem, list, diag);
    if (rc != 0)
        free(list);
    else
        *ret_shared = list;
    return rc;
}

static void unload(void **shared)
{
    free(*shared);
    *shared = NULL;
}

static bool is_needed(const fa_tensor *tensor, const fa_problem *problem)
{
    const fa_field *field =
        tensor->when >= 0 ? &fa_operation_of(problem)->field[tensor->when] : NULL;
    return field == NULL || !fa_field_is_absent(field, problem->value[tensor->when]);
}

static int argument_of(const fa_call *call, const fa_problem *problem, int32_t index,
                       fa_argument *ret_argument)
{
    const fa_tensor_list *list = call->shared;
    int scalar = index - list->count;
    if (index < 0 || scalar >= list->scalar_count)
        return FA_ENOTFOUND;
    if (scalar >= 0) {
        *ret_argument = (fa_argument){.name = list->scalar_name[scalar],
                                      .dtype = fa_element_name(FA_ELEMENT_FP32),
                                      .needed = true};
        return 0;
    }
    const fa_tensor *tensor = &list->at[index];
    *ret_argument = (fa_argument){.name = tensor->name,
                                  .dtype = fa_element_name(tensor->element),
                                  .tensor = true,
                                  .strided = tensor->stride_count > 0,
                                  .output = tensor->output,
                                  .needed = is_needed(tensor, problem),
                                  .dims = tensor->dims};
    for (int i = 0; i < tensor->dims; i++)
        ret_argument->shape[i] = fa_tensor_size(tensor, problem, i);
    return 0;
}

static bool is_empty(const fa_tensor *tensor, const fa_problem *problem)
{
    bool empty = false;
    for (int i = 0; i < tensor->dims; i++)
        empty = empty || fa_tensor_size(tensor, problem, i) == 0;
    return empty;
}

static int take_tensor(const fa_tensor *tensor, const fa_problem *problem,
                       const fa_tensor_arg *given, int align, uint64_t *ret_address,
                       int64_t ret_stride[FA_TENSOR_STRIDES], fa_diag *diag)
{
    const int64_t limit = (int64_t)1 << 48, size = (int64_t)fa_element_size(tensor->element);
    int64_t any = 0;
    *ret_address = given != NULL ? (uint64_t)(uintptr_t)given->data : 0;
    fa_tensor_pack(tensor, problem, ret_stride);
    if (*ret_address == 0 && is_needed(tensor, problem) && !is_empty(tensor, problem))
        return fa_fail(diag, FA_EINVAL, "%s is NULL", tensor->name);
    for (int i = 0; given != NULL && i < tensor->stride_count; i++)
        any |= given->stride[i];
    for (int i = 0; any != 0 && i < tensor->stride_count; i++) {
        if (given->stride[i] <= -limit || given->stride[i] >= limit)
            return fa_fail(diag, FA_EINVAL, "a stride of %s is beyond 2^48 elements", tensor->name);
        ret_stride[i] = given->stride[i];
    }
    bool right = *ret_address % (uint64_t)align == 0;
    for (int i = 0; i < tensor->stride_count; i++)
        right = right && ret_stride[i] * size % align == 0;
    return right ? 0
                 : fa_fail(diag, FA_EALIGN,
                           "%s must be %d-byte aligned, and its strides multiples of %d elements",
                           tensor->name, align, align / (int)size);
}

static int take_arguments(const fa_tensor_list *list, const fa_problem *problem,
                          const fa_args *args, fa_tensor_values *values, bool *ret_empty,
                          fa_diag *diag)
{
    bool unaligned = list->unaligned >= 0 && problem->value[list->unaligned] != 0;
    *ret_empty = true;
    if (args->count != list->count + list->scalar_count)
        return fa_fail(diag, FA_EINVAL,
                       "%d arguments are given, and a kernel of %s takes %d tensors and %d scalars",
                       (int)args->count, fa_operation_of(problem)->name, list->count,
                       list->scalar_count);
    for (int i = 0; i < list->count; i++) {
        const fa_tensor *tensor = &list->at[i];
        int align = unaligned ? (int)fa_element_size(tensor->element) : tensor->align;
        int rc = take_tensor(tensor, problem, args->at[i], align, &values->address[i],
                             values->stride[i], diag);
        if (rc != 0)
            return rc;
        *ret_empty = *ret_empty && (!tensor->output || is_empty(tensor, problem));
    }
    for (int i = 0; i < list->scalar_count; i++) {
        const float *given = args->at[list->count + i];
        if (given == NULL || !isfinite(*given))
            return fa_fail(diag, FA_EINVAL, "%s must be a finite number", list->scalar_name[i]);
        values->scalar[i] = *given;
    }
    return 0;
}

static int launch(const fa_call *call, const fa_problem *problem, const void *data,
                  fa_stream stream, fa_diag *diag)
{
    const fa_args *args = data;
    fa_tensor_values values;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    void *arguments[FA_CALL_ARGUMENTS] = {params};
    fa_call_memory memory = {0};
    bool empty = false;
    int rc = take_arguments(call->shared, problem, args, &values, &empty, diag);
    if (rc != 0 || empty)
        return rc;
    fa_tensors_params(problem, call->shared, &values, params);
    if (call->composed != NULL)
        rc = fa_call_take_memory(call, args->workspace, args->workspace_bytes, stream, &memory,
                                 diag);
    return rc != 0 ? rc : fa_call_run(call, arguments, 1, memory.workspace, stream, diag);
}

const fa_launcher fa_generic_launcher = {
    .load = load_for_callers, .unload = unload, .launch = launch, .argument = argument_of};

/* ---- no cost model --------------------------------------------------------------------------*/
void fa_generic_predict(const fa_candidate *candidate, const fa_problem *problem, const fa_gpu *gpu,
                        fa_trial *trial)
{
    enum { USUAL_REGISTERS = 40 };
    int32_t registers = trial->registers > 0                 ? trial->registers
                        : candidate->estimated_registers > 0 ? candidate->estimated_registers
                                                             : USUAL_REGISTERS;
    (void)problem;
    trial->blocks_per_sm = fa_model_occupancy(gpu, trial->threads, registers, trial->smem_bytes);
    trial->predicted_us = 0;
}
