/* SPDX-License-Identifier: Apache-2.0
 *
 * The prover of any operation that its operation.json describes.
 *
 * Workload: fa_check.cuh fills inputs and compares outputs on the device. What it does not find right is looked at
 * once more on the host, which decides and says why.
 */
#include "generic.h"

#include "case_data.h"
#include "hash.h"
#include "prover_base.h"
#include "tensors.h"

#include "error.h"
#include "operation.h"
#include "problem.h"

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
    fa_tensors_free(&list);
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
        if (elements_of(&p) <= RAGGED_ELEMENTS)
            ret_case[count++] = p;
    }
    return count;
}

/* ---- the prover -----------------------------------------------------------------------------*/
enum {
    REFERENCE_THREADS = 128,
    INPUT_FENCE = 2048 /* 16-bit elements */
};
enum { FILL, LARGEST, CHECK_OUTPUT, CHECK_INPUT };
static const char *const entries[] = {"fa_check_fill", "fa_check_largest", "fa_check_output",
                                      "fa_check_input", NULL};

struct generic_case {
    fa_tensor_list tensors;
    fa_device_ptr fenced[FA_TENSORS_MAX]; /* fence, tensor, fence */
    uint64_t first[FA_TENSORS_MAX];       /* address of the tensor itself */
    fa_device_ptr given[FA_TENSORS_MAX];  /* of inputs that are not drawn: their values; else 0 */
    fa_device_ptr wanted[FA_TENSORS_MAX]; /* of outputs: the reference */
    fa_device_ptr largest;         /* of each output's reference: the largest magnitude, fp32 */
    uint64_t seed[FA_TENSORS_MAX]; /* of inputs */
    unsigned char *wanted_host[FA_TENSORS_MAX];
    /* where there is no reference: the proof whose kernel made what is wanted; 0: none has */
    uint64_t answered;
    /* of inputs: as they should be, with their fences; NULL: not asked for yet */
    unsigned char *input_host[FA_TENSORS_MAX];
    fa_tensor_values values;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    void *argument[FA_PARAMETERS_MAX];
    int argument_count;
    struct fa_verdict verdict[FA_PROVER_ROUNDS];
};

_Static_assert((int)FA_PARAMETERS_MAX <= (int)FA_PROVER_ARGUMENTS, "");

struct generic_prover {
    struct fa_prover base;
    struct generic_case at[FA_BENCH_CASES];
    unsigned char *host; /* room for a tensor that the host looks at: fresh pages cost more than its copy */
    size_t host_bytes;
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

/* References of the struct's kind compute in fp32; a kernel that is passed its arguments one by one, as it does. */
static fa_element wanted_element(const struct generic_case *c, int tensor)
{
    return c->tensors.parameter_count == 0 ? FA_ELEMENT_FP32 : c->tensors.at[tensor].element;
}

/* As fa_check.cuh knows it. */
static int device_element(fa_element element)
{
    return element == FA_ELEMENT_BOOL ? FA_ELEMENT_UINT8 : (int)element;
}

/* Packed tensors at these addresses, and the scalars of a proof. */
static void fill_values(const struct fa_prover *prover, int index,
                        const fa_device_ptr address[FA_TENSORS_MAX], fa_tensor_values *values)
{
    const struct generic_case *c = case_of(prover, index);
    const fa_problem *problem = &prover->at[index].problem;
    memcpy(values->address, address, sizeof values->address);
    for (int t = 0; t < c->tensors.count; t++)
        fa_tensor_pack(&c->tensors.at[t], problem, values->stride[t]);
    fa_tensors_scalars(problem, &c->tensors, true, values);
}

/* Where the file has the input, or the answer, of a case's tensor; -1: nowhere. */
static int64_t input_at(const struct fa_prover *prover, int index, int tensor)
{
    return prover->data != NULL ? prover->data->input[index][tensor] : -1;
}

static int64_t answer_at(const struct fa_prover *prover, int index, int tensor)
{
    return prover->data != NULL ? prover->data->answer[index][tensor] : -1;
}

static uint64_t fence_bytes(const fa_tensor *tensor)
{
    return 2 * (uint64_t)(tensor->output ? FA_PROVER_FENCE : INPUT_FENCE);
}

/* Bytes of a tensor with its fences: a multiple of 2. */
static uint64_t fenced_bytes(const fa_tensor *tensor)
{
    return 2 * fence_bytes(tensor) +
           (tensor->elements * fa_element_size(tensor->element) + 1) / 2 * 2;
}

static void plan(struct fa_prover *prover, int index, struct fa_cursor *inputs,
                 struct fa_cursor *outputs)
{
    struct generic_case *c = case_of(prover, index);
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        c->fenced[t] = fa_cursor_take(tensor->output ? outputs : inputs, fenced_bytes(tensor), 1);
        c->first[t] = c->fenced[t] + fence_bytes(tensor);
        if (input_at(prover, index, t) >= 0 || tensor->made)
            c->given[t] =
                fa_cursor_take(inputs, tensor->elements, fa_element_size(tensor->element));
        if (tensor->output)
            c->wanted[t] =
                fa_cursor_take(inputs, tensor->elements, fa_element_size(wanted_element(c, t)));
    }
    c->largest = fa_cursor_take(inputs, FA_TENSORS_MAX, sizeof(float));
    fill_values(prover, index, c->first, &c->values);
    c->argument_count = fa_tensors_arguments(&prover->at[index].problem, &c->tensors, &c->values,
                                             c->params, c->argument);
}

/* ---- inputs and references ------------------------------------------------------------------*/
/* From the file to the device. */
static int upload(struct fa_prover *prover, int64_t at, fa_device_ptr to, uint64_t bytes,
                  fa_diag *diag)
{
    enum { PIECE = 4 << 20 };
    int rc = 0;
    size_t size = 0;
    char *piece = malloc(bytes < PIECE ? (size_t)bytes + 1 : PIECE);
    if (piece == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the data of a proof");
    for (uint64_t done = 0; rc == 0 && done < bytes; done += size) {
        size = bytes - done < PIECE ? (size_t)(bytes - done) : PIECE;
        rc = fa_case_data_read(prover->data, at + (int64_t)done, piece, size, diag);
        if (rc == 0)
            rc = fa_copy_to_device(prover->driver, to + done, piece, size, diag);
    }
    free(piece);
    return rc;
}

/* The tensor's values, at this address; drawn ones where the reference will make them. */
static int fill_at(struct fa_prover *prover, const struct generic_case *c, int tensor,
                   fa_device_ptr address, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    uint64_t count = t->elements, seed = c->seed[tensor], span = (uint64_t)t->span;
    int64_t from = t->from;
    int element = device_element(t->element);
    fa_device_ptr given = t->made ? 0 : c->given[tensor];
    void *arguments[] = {&address, &count, &element, &seed, &from, &span, &given};
    return fa_prover_run(prover, prover->kernel[FILL], FA_PROVER_THREADS, count, arguments, diag);
}

/* Poison with the tensor's values in it. Those that the reference makes are overwritten later. */
static int fill_input(struct fa_prover *prover, const struct generic_case *c, int tensor,
                      fa_diag *diag)
{
    int rc = fa_fill16(prover->driver, c->fenced[tensor], FA_PROVER_POISON,
                       (size_t)fenced_bytes(&c->tensors.at[tensor]) / 2, prover->stream, diag);
    return rc != 0 ? rc : fill_at(prover, c, tensor, c->first[tensor], diag);
}

/* The module's variables that inputs are copied to. */
static int copy_symbols(struct fa_prover *prover, int index, const fa_symbols *symbols,
                        fa_diag *diag)
{
    const struct generic_case *c = case_of(prover, index);
    return fa_symbols_copy(prover->driver, symbols, &c->tensors, &prover->at[index].problem,
                           c->first, prover->stream, diag);
}

/* Makes a partial output, or its reference, zero: what a kernel does not write counts for nothing. */
static int clear(struct fa_prover *prover, const fa_tensor *tensor, fa_element element,
                 fa_device_ptr address, fa_diag *diag)
{
    return fa_fill8(prover->driver, address, 0, tensor->elements * fa_element_size(element),
                    prover->stream, diag);
}

/* Outputs that are inputs too, or partial, before each launch. */
static int restore(struct fa_prover *prover, int index, const void *extra, fa_diag *diag)
{
    const struct generic_case *c = case_of(prover, index);
    int rc = extra != NULL ? copy_symbols(prover, index, extra, diag) : 0;
    for (int t = 0; t < c->tensors.count && rc == 0; t++)
        if (c->tensors.at[t].updated)
            rc = fill_at(prover, c, t, c->first[t], diag);
        else if (c->tensors.at[t].partial)
            rc = clear(prover, &c->tensors.at[t], c->tensors.at[t].element, c->first[t], diag);
    return rc;
}

/* The input as it should be, on the host. */
static int remember_input(const struct fa_prover *prover, int index, int tensor, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    const fa_tensor *t = &c->tensors.at[tensor];
    size_t size = (size_t)fenced_bytes(t), fence = (size_t)fence_bytes(t);
    if (c->input_host[tensor] != NULL)
        return 0;
    unsigned char *bytes = malloc(size);
    int rc =
        bytes == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for the tensor %s", t->name) : 0;
    for (size_t i = 0; rc == 0 && i < size; i += 2)
        memcpy(bytes + i, &(uint16_t){FA_PROVER_POISON}, 2);
    if (rc == 0 && input_at(prover, index, tensor) >= 0)
        rc = fa_case_data_read(prover->data, input_at(prover, index, tensor), bytes + fence,
                               (size_t)t->elements * fa_element_size(t->element), diag);
    else if (rc == 0 && !t->made)
        fa_case_draw(t, c->seed[tensor], bytes + fence);
    if (rc != 0)
        free(bytes);
    else
        c->input_host[tensor] = bytes;
    return rc;
}

static int make_room(struct generic_case *c, int tensor, size_t *ret_size, fa_diag *diag)
{
    *ret_size = (size_t)c->tensors.at[tensor].elements * fa_element_size(wanted_element(c, tensor));
    if (c->wanted_host[tensor] == NULL)
        c->wanted_host[tensor] = malloc(*ret_size + 1);
    return c->wanted_host[tensor] != NULL
               ? 0
               : fa_fail(diag, FA_ENOMEM, "out of memory for the reference");
}

static int find_largest(struct fa_prover *prover, const struct generic_case *c, int tensor,
                        fa_diag *diag)
{
    uint64_t count = c->tensors.at[tensor].elements;
    int element = device_element(wanted_element(c, tensor));
    fa_device_ptr wanted = c->wanted[tensor], largest = c->largest + sizeof(float) * (size_t)tensor;
    void *arguments[] = {&wanted, &count, &element, &largest};
    int rc = fa_fill8(prover->driver, largest, 0, sizeof(float), prover->stream, diag);
    return rc != 0 ? rc
                   : fa_prover_run(prover, prover->kernel[LARGEST], FA_PROVER_THREADS, count,
                                   arguments, diag);
}

static int fetch_reference(struct fa_prover *prover, struct generic_case *c, int tensor,
                           fa_diag *diag)
{
    size_t size = 0;
    int rc = make_room(c, tensor, &size, diag);
    if (rc == 0)
        rc = find_largest(prover, c, tensor, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    return rc != 0 || size == 0 ? rc
                                : fa_copy_from_device(prover->driver, c->wanted_host[tensor],
                                                      c->wanted[tensor], size, diag);
}

/* Inputs that the reference computes from the others, and copies of them to be compared with later: on the device, and here
 * where no kernel can write. */
static int make_inputs(struct fa_prover *prover, int index, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    fa_function function;
    uint64_t work = 0;
    for (int t = 0; t < c->tensors.count; t++)
        if (c->tensors.at[t].made && work < c->tensors.at[t].elements)
            work = c->tensors.at[t].elements;
    if (work == 0)
        return 0;
    int rc;
    if ((rc = fa_module_function(prover->module, "inputs", 0, &function, diag)) != 0 ||
        (rc = fa_prover_run(prover, function, REFERENCE_THREADS, work, c->argument, diag)) != 0 ||
        (rc = fa_stream_synchronize(prover->driver, prover->stream, diag)) != 0)
        return rc;
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        if (tensor->made &&
            ((rc = fa_copy_on_device(prover->driver, c->given[t], c->first[t],
                                     tensor->elements * fa_element_size(tensor->element),
                                     prover->stream, diag)) != 0 ||
             (rc = remember_input(prover, index, t, diag)) != 0 ||
             (rc = fa_copy_from_device(prover->driver, c->input_host[t], c->fenced[t],
                                       (size_t)fenced_bytes(tensor), diag)) != 0))
            return rc;
    }
    return 0;
}

/* One side of the reference's grid or block: 1 where it is not told. */
static int read_side(const cJSON *sides, int side, const fa_problem *problem, int64_t most,
                     uint32_t *ret_side, fa_diag *diag)
{
    const char *text = cJSON_GetStringValue(cJSON_GetArrayItem(sides, side));
    fa_expr *expr = NULL;
    fa_expr_value value = {.kind = FA_EXPR_INTEGER, .integer = 1};
    int rc = text != NULL ? fa_operation_expr(fa_operation_of(problem), text, &expr, diag) : 0;
    if (rc == 0 && expr != NULL)
        value = fa_problem_evaluate(problem, expr);
    fa_expr_free(&expr);
    if (rc == 0 && (value.kind != FA_EXPR_INTEGER || value.integer < 1 || value.integer > most))
        rc = fa_fail(diag, FA_EINVAL, "the answer's side \"%.60s\" is not from 1 to %lld", text,
                     (long long)most);
    *ret_side = (uint32_t)value.integer;
    return rc;
}

/* The reference's launch: of a kernel that strides over any grid, or as the operation's "answer" says. */
static int run_reference(struct fa_prover *prover, int index, uint64_t work, void **arguments,
                         fa_diag *diag)
{
    const fa_problem *problem = &prover->at[index].problem;
    const cJSON *answer =
                    cJSON_GetObjectItemCaseSensitive(fa_operation_of(problem)->document, "answer"),
                *grid = cJSON_GetObjectItemCaseSensitive(answer, "grid"),
                *block = cJSON_GetObjectItemCaseSensitive(answer, "block");
    const char *entry = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(answer, "kernel"));
    uint32_t grids[3], blocks[3];
    fa_function function;
    int rc =
        fa_module_function(prover->module, entry != NULL ? entry : "reference", 0, &function, diag);
    if (rc != 0 || grid == NULL)
        return rc != 0 ? rc
                       : fa_prover_run(prover, function, REFERENCE_THREADS, work, arguments, diag);
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = read_side(grid, i, problem, i == 0 ? INT32_MAX : 65535, &grids[i], diag);
        if (rc == 0)
            rc = read_side(block, i, problem, 1024, &blocks[i], diag);
    }
    return rc != 0 ? rc
                   : fa_launch_kernel(prover->driver, function, grids, blocks, 0, prover->stream,
                                      arguments, diag);
}

/* Whether the tuning program has answered the case; an output without elements has its place in the file, too. */
static bool is_answered(const struct fa_prover *prover, int index)
{
    const struct generic_case *c = case_of(prover, index);
    bool answered = false;
    for (int t = 0; t < c->tensors.count; t++)
        answered = answered || (c->tensors.at[t].output && answer_at(prover, index, t) >= 0);
    return answered;
}

/* Whether kernels are compared with one another. */
static bool has_no_answer(const struct fa_prover *prover, int index)
{
    const fa_problem *problem = &prover->at[index].problem;
    return fa_problem_has_no_answer(problem) ||
           (fa_problem_answer_is_given(problem) && !is_answered(prover, index));
}

static int compute_reference(struct fa_prover *prover, int index, uint64_t work, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    fa_device_ptr address[FA_TENSORS_MAX] = {0};
    fa_tensor_values values;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    void *arguments[FA_PARAMETERS_MAX];
    int rc = 0;
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        address[t] = c->tensors.at[t].output ? c->wanted[t] : c->first[t];
        if (c->tensors.at[t].updated)
            rc = fill_at(prover, c, t, c->wanted[t], diag);
        else if (c->tensors.at[t].partial)
            rc = clear(prover, &c->tensors.at[t], wanted_element(c, t), c->wanted[t], diag);
    }
    fill_values(prover, index, address, &values);
    fa_tensors_arguments(&prover->at[index].problem, &c->tensors, &values, params, arguments);
    fa_symbols symbols; /* the answer may do without them */
    if (rc != 0 || (rc = fa_symbols_find(&c->tensors, prover->module, &symbols, diag)) != 0 ||
        (rc = copy_symbols(prover, index, &symbols, diag)) != 0 ||
        (rc = run_reference(prover, index, work, arguments, diag)) != 0 ||
        (rc = fa_stream_synchronize(prover->driver, prover->stream, diag)) != 0)
        return rc;
    for (int t = 0; t < c->tensors.count && rc == 0; t++)
        if (c->tensors.at[t].output)
            rc = fetch_reference(prover, c, t, diag);
    return rc;
}

/* What an earlier kernel made, or the tuning program answered, to the device again. */
static int give_answer(struct fa_prover *prover, int index, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    int rc = 0;
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        int64_t at = answer_at(prover, index, t);
        size_t size = 0;
        if (!tensor->output || tensor->elements == 0 || (at < 0 && c->answered == 0))
            continue;
        if (at >= 0 &&
            ((rc = make_room(c, t, &size, diag)) != 0 ||
             (rc = fa_case_data_read(prover->data, at, c->wanted_host[t], size, diag)) != 0))
            return rc;
        rc = fa_copy_to_device(prover->driver, c->wanted[t], c->wanted_host[t],
                               tensor->elements * fa_element_size(tensor->element), diag);
        if (rc == 0)
            rc = find_largest(prover, c, t, diag);
    }
    return rc;
}

static int prepare(struct fa_prover *prover, int index, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    uint64_t work = 0;
    int rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        if (tensor->output)
            work = work < tensor->elements ? tensor->elements : work;
        c->seed[t] = fa_case_seed(prover->seed, index, t);
        if (input_at(prover, index, t) >= 0)
            rc = upload(prover, input_at(prover, index, t), c->given[t],
                        tensor->elements * fa_element_size(tensor->element), diag);
        if (rc == 0 && !tensor->output)
            rc = fill_input(prover, c, t, diag);
    }
    if (rc != 0 || prover->at[index].empty)
        return rc;
    rc = make_inputs(prover, index, diag);
    if (rc != 0)
        return rc;
    return is_answered(prover, index) || has_no_answer(prover, index)
               ? give_answer(prover, index, diag)
               : compute_reference(prover, index, work, diag);
}

static void release(struct fa_prover *prover)
{
    for (int i = 0; i < prover->count; i++)
        for (int t = 0; t < FA_TENSORS_MAX; t++) {
            free(case_of(prover, i)->wanted_host[t]);
            free(case_of(prover, i)->input_host[t]);
        }
    for (int i = 0; i < prover->count; i++)
        fa_tensors_free(&case_of(prover, i)->tensors);
    free(((struct generic_prover *)prover)->host);
}

/* ---- launching ------------------------------------------------------------------------------*/
static int generic_load(struct fa_prover *prover, fa_module *module, const fa_cubin_entry *entry,
                        void **ret_extra, fa_diag *diag)
{
    fa_symbols symbols = {0};
    int rc = fa_generic_check_entry(&prover->at[0].problem, entry, diag);
    *ret_extra = NULL;
    if (rc == 0)
        rc = fa_symbols_find(&case_of(prover, 0)->tensors, module, &symbols, diag);
    if (rc != 0 || symbols.count == 0)
        return rc;
    fa_symbols *extra = malloc(sizeof *extra);
    if (extra == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a kernel");
    *extra = symbols;
    *ret_extra = extra;
    return 0;
}

static void arguments(struct fa_prover *prover, int index, void *extra,
                      void *ret_argument[FA_PROVER_ARGUMENTS])
{
    const struct generic_case *c = case_of(prover, index);
    (void)extra;
    memcpy(ret_argument, c->argument, (size_t)c->argument_count * sizeof *ret_argument);
}

/* ---- checking -------------------------------------------------------------------------------*/
/* Whether the first word is poison, and every other like the one before it. */
static bool is_poison(const unsigned char *bytes, size_t size)
{
    return memcmp(bytes, &(uint16_t){FA_PROVER_POISON}, 2) == 0 &&
           memcmp(bytes, bytes + 2, size - 2) == 0;
}

/* What lies around a tensor must be as it was. */
static void check_fences(const fa_tensor *t, const unsigned char *bytes, struct fa_verdict *v)
{
    size_t size = (size_t)fenced_bytes(t), fence = (size_t)fence_bytes(t);
    if (!v->passed || (is_poison(bytes, fence) && is_poison(bytes + size - fence, fence)))
        return;
    v->passed = false;
    v->damaged = true;
    snprintf(v->reason, sizeof v->reason, "it wrote outside its output %s", t->name);
}

static const char *said_by(const struct fa_prover *prover, int index)
{
    return case_of(prover, index)->answered > 0 ? "in the config that was first"
           : is_answered(prover, index)         ? "the answer says"
                                                : "the reference says";
}

/* Of a wanted number that a complex one has beside it: the magnitude of the two together. */
static double magnitude_of(const fa_tensor *t, fa_element is, const unsigned char *wanted,
                           uint64_t i, double right)
{
    if (fa_element_numbers(t->element) == 1)
        return fabs(right);
    double beside = fa_element_value(is, wanted + (i ^ 1) * fa_element_size(is));
    return isfinite(beside) ? hypot(right, beside) : fabs(right);
}

static void compare(const struct fa_prover *prover, int index, int tensor,
                    const unsigned char *outputs, struct fa_verdict *v)
{
    const struct generic_case *c = case_of(prover, index);
    const fa_tensor *t = &c->tensors.at[tensor];
    const fa_element is = wanted_element(c, tensor);
    const unsigned char *wanted = c->wanted_host[tensor];
    size_t size = fa_element_size(t->element), wanted_size = fa_element_size(is);
    const unsigned numbers = (unsigned)fa_element_numbers(t->element);
    double worst = -1, largest = 0;
    for (uint64_t i = 0; i < t->elements; i++) {
        double right = fa_element_value(is, wanted + i * wanted_size);
        if (isfinite(right) && fabs(right) > largest)
            largest = fabs(right);
    }
    for (uint64_t i = 0; i < t->elements; i++) {
        double got = fa_element_value(t->element, outputs + i * size), allowed;
        double right = fa_element_value(is, wanted + i * wanted_size);
        double error = fa_tensors_error(&c->tensors, t->element, largest, got, right,
                                        magnitude_of(t, is, wanted, i, right), &allowed);
        double ratio = error / allowed;
        if (ratio <= worst)
            continue;
        worst = ratio; /* NaN too, which nothing follows */
        v->error = error;
        v->tolerance = allowed;
        if (error <= allowed)
            continue;
        v->passed = false;
        snprintf(
            v->reason, sizeof v->reason, "%selement %llu of %s is %.6g, %s %.6g, allowed is %.3g",
            numbers == 1 ? ""
            : i % 2 == 0 ? "the real part of "
                         : "the imaginary part of ",
            (unsigned long long)i / numbers, t->name, got, said_by(prover, index), right, allowed);
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

/* The sum of a tensor's elements, of complex ones that of one part, and that of their magnitudes. */
static double sum_of(const fa_tensor *t, fa_element is, unsigned part, const unsigned char *at,
                     double *ret_magnitude)
{
    const size_t size = fa_element_size(is);
    const unsigned numbers = (unsigned)fa_element_numbers(t->element);
    double sum = 0, magnitude = 0;
    for (uint64_t i = part; i < t->elements; i += numbers) {
        double value = fa_element_value(is, at + i * size);
        sum += value;
        magnitude += fabs(value);
    }
    *ret_magnitude = magnitude;
    return sum;
}

/* Of a partial output the sum of all elements, of complex ones that of each part. */
static void compare_sum(const struct fa_prover *prover, int index, int tensor, unsigned part,
                        const unsigned char *outputs, struct fa_verdict *v)
{
    const struct generic_case *c = case_of(prover, index);
    const fa_tensor *t = &c->tensors.at[tensor];
    const fa_element is = wanted_element(c, tensor);
    double magnitude = 0, allowed, got = sum_of(t, t->element, part, outputs, &magnitude);
    double wanted = sum_of(t, is, part, c->wanted_host[tensor], &magnitude);
    double error =
        fa_tensors_error(&c->tensors, t->element, magnitude, got, wanted, fabs(wanted), &allowed);
    if (!(error / allowed <= v->error / v->tolerance)) {
        v->error = error;
        v->tolerance = allowed;
    }
    if (error <= allowed)
        return;
    v->passed = false;
    snprintf(v->reason, sizeof v->reason, "the sum of %s is %.9g, %s %.9g, allowed is %.3g",
             t->name, got, said_by(prover, index), wanted, allowed);
}

static void compare_sums(const struct fa_prover *prover, int index, int tensor,
                         const unsigned char *outputs, struct fa_verdict *v)
{
    const fa_element element = case_of(prover, index)->tensors.at[tensor].element;
    for (unsigned part = 0; part < (unsigned)fa_element_numbers(element); part++)
        compare_sum(prover, index, tensor, part, outputs, v);
}

/* The tensor with its fences, on the host until the next is fetched. */
static int fetch_tensor(struct fa_prover *prover, const struct generic_case *c, int tensor,
                        const unsigned char **ret_bytes, fa_diag *diag)
{
    struct generic_prover *p = (struct generic_prover *)prover;
    const fa_tensor *t = &c->tensors.at[tensor];
    size_t size = (size_t)fenced_bytes(t);
    if (size > p->host_bytes) {
        free(p->host);
        p->host = malloc(size);
        p->host_bytes = p->host != NULL ? size : 0;
    }
    *ret_bytes = p->host;
    return p->host == NULL
               ? fa_fail(diag, FA_ENOMEM, "out of memory for the tensor %s", t->name)
               : fa_copy_from_device(prover->driver, p->host, c->fenced[tensor], size, diag);
}

/* Copies a tensor to the host and looks at it there. */
static int check_tensor(struct fa_prover *prover, int index, int tensor, struct fa_verdict *v,
                        fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    const fa_tensor *t = &c->tensors.at[tensor];
    const unsigned char *bytes;
    int rc = t->output ? 0 : remember_input(prover, index, tensor, diag);
    if (rc == 0)
        rc = fetch_tensor(prover, c, tensor, &bytes, diag);
    if (rc == 0 && !t->output)
        check_input(t, bytes, c->input_host[tensor], v);
    else if (rc == 0)
        check_fences(t, bytes, v);
    if (rc == 0 && t->output && v->passed)
        (t->partial ? compare_sums : compare)(prover, index, tensor, bytes + fence_bytes(t), v);
    return rc;
}

/* The same on the device; `result`: of this tensor. */
static int start_check(struct fa_prover *prover, struct generic_case *c, int tensor,
                       fa_device_ptr result, fa_diag *diag)
{
    const fa_tensor *t = &c->tensors.at[tensor];
    uint64_t fence = fence_bytes(t) / 2, count = t->elements;
    uint64_t work = count > fence ? count : fence;
    int element = device_element(t->element), wanted = device_element(wanted_element(c, tensor));
    double relative, of_largest, absolute = c->tensors.absolute;
    fa_device_ptr largest = c->largest + sizeof(float) * (size_t)tensor;
    int64_t from = t->from;
    uint64_t span = (uint64_t)t->span;
    fa_tensors_tolerance(&c->tensors, t->element, &relative, &of_largest);
    void *of_output[] = {&c->fenced[tensor], &fence,    &count,   &element,
                         &c->wanted[tensor], &wanted,   &largest, &relative,
                         &of_largest,        &absolute, &result};
    void *of_input[] = {
        &c->fenced[tensor], &fence, &count, &element, &c->seed[tensor], &from, &span,
        &c->given[tensor],  &result};
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

/* The first element that was never written; `count`: none. Of 16-bit types and less any bits may be a value. */
static uint64_t find_unwritten(const unsigned char *bytes, uint64_t count, size_t size)
{
    const uint64_t poison = FA_PROVER_POISON * UINT64_C(0x0001000100010001);
    uint64_t i = 0;
    if (size < 4)
        return count;
    while (i < count && (size == 4 ? memcmp(bytes + 4 * i, &poison, 4) != 0
                                   : memcmp(bytes + 8 * i, &poison, 8) != 0))
        i++;
    return i;
}

/* Takes the first kernel's outputs as what is wanted of all others: on the device, and here for what is made anew. */
static int take_answer(struct fa_prover *prover, int index, struct fa_verdict *v, fa_diag *diag)
{
    struct generic_case *c = case_of(prover, index);
    int rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        size_t bytes = 0;
        if (!tensor->output || tensor->elements == 0)
            continue;
        if ((rc = make_room(c, t, &bytes, diag)) != 0 ||
            (rc = fa_copy_on_device(prover->driver, c->wanted[t], c->first[t], bytes,
                                    prover->stream, diag)) != 0 ||
            (rc = find_largest(prover, c, t, diag)) != 0 ||
            (rc = fa_copy_from_device(prover->driver, c->wanted_host[t], c->first[t], bytes,
                                      diag)) != 0 ||
            !v->passed || tensor->partial)
            continue;
        uint64_t at =
            find_unwritten(c->wanted_host[t], tensor->elements, fa_element_size(tensor->element));
        v->passed = at == tensor->elements;
        if (!v->passed)
            snprintf(v->reason, sizeof v->reason, "element %llu of %s is not written",
                     (unsigned long long)at / (unsigned)fa_element_numbers(tensor->element),
                     tensor->name);
    }
    c->answered = prover->proofs;
    return rc;
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
    if (has_no_answer(prover, index) && (c->answered == 0 || c->answered == prover->refuted))
        rc = take_answer(prover, index, &v, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++)
        if (!c->tensors.at[t].partial)
            rc = start_check(prover, c, t, result + sizeof *found * (size_t)t, diag);
    if (rc == 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    if (rc == 0)
        rc = fa_copy_from_device(prover->driver, found, result, sizeof found, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        bool failed = found[t] == (uint64_t)FAILED;
        if (failed || c->tensors.at[t].partial)
            rc = check_tensor(prover, index, t, &v, diag);
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
                                                 .restore = restore,
                                                 .arguments = arguments,
                                                 .load = generic_load,
                                                 .check = generic_check,
                                                 .judge = judge,
                                                 .text = generic_case_text,
                                                 .release = release};
