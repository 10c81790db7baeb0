/* SPDX-License-Identifier: Apache-2.0
 *
 * The proofs of any operation that its operation.json describes.
 *
 * Workload: a few calls per tuned problem.
 */
#include "generic.h"

#include "case_data.h"
#include "hash.h"
#include "prover_base.h"

#include "error.h"
#include "operation.h"
#include "problem.h"

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

/* ---- tensors --------------------------------------------------------------------------------*/
static int take_cases(fa_prover *prover, const fa_problem *problem, fa_diag *diag)
{
    fa_problem cases[FA_BENCH_CASES];
    int rc = 0;
    prover->count = fa_generic_cases(problem, prover->seed, cases);
    for (int i = 0; i < prover->count && rc == 0; i++) {
        struct fa_proof_case *c = &prover->at[i];
        *c = (struct fa_proof_case){.problem = cases[i], .once = i == 0, .empty = true, .bands = 1};
        rc = fa_tensors_read(&cases[i], &c->tensors, diag);
        for (int t = 0; rc == 0 && t < c->tensors.count; t++) {
            const fa_tensor *tensor = &c->tensors.at[t];
            fa_proof_pack(tensor, &c->of[t]);
            c->of[t].tolerance[0] = fa_tensors_tolerance(&c->tensors, tensor->element);
            c->empty = c->empty && (!tensor->output || tensor->elements == 0);
        }
    }
    return rc;
}

/* Packed tensors at these addresses, and the scalars of a proof. */
static int list_arguments(const fa_prover *prover, int index, bool references,
                          fa_tensor_values *values, unsigned char *params, void **argument)
{
    const struct fa_proof_case *c = &prover->at[index];
    for (int t = 0; t < c->tensors.count; t++) {
        values->address[t] =
            references && c->tensors.at[t].output ? c->of[t].wanted : c->of[t].first;
        fa_tensor_pack(&c->tensors.at[t], &c->problem, values->stride[t]);
    }
    fa_tensors_scalars(&c->problem, &c->tensors, true, values);
    return fa_tensors_arguments(&c->problem, &c->tensors, values, params, argument);
}

static int place(fa_prover *prover, int index, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    (void)diag;
    c->argument_count = list_arguments(prover, index, false, &c->values, c->params, c->argument);
    return 0;
}

/* The module's variables that inputs are copied to. */
static int copy_symbols(fa_prover *prover, int index, const void *symbols, fa_diag *diag)
{
    const struct fa_proof_case *c = &prover->at[index];
    return symbols == NULL ? 0
                           : fa_symbols_copy(prover->driver, symbols, &c->tensors, &c->problem,
                                             c->values.address, prover->stream, diag);
}

/* ---- references -----------------------------------------------------------------------------*/
/* Inputs that the reference computes from the others, and copies of them to be compared with later: on the device, and here
 * where no kernel can write. */
static int make_inputs(fa_prover *prover, int index, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    uint64_t work = 0;
    int rc = 0;
    for (int t = 0; t < c->tensors.count; t++)
        if (c->tensors.at[t].made && work < c->tensors.at[t].elements)
            work = c->tensors.at[t].elements;
    if (work > 0)
        rc = fa_prover_run_entry(prover, "inputs", work, c->argument, diag);
    if (rc == 0 && work > 0)
        rc = fa_stream_synchronize(prover->driver, prover->stream, diag);
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        size_t bytes = 0;
        if (!c->tensors.at[t].made || (rc = fa_proof_host(c, t, &bytes, diag)) != 0 || bytes == 0)
            continue;
        rc = fa_copy_on_device(prover->driver, c->of[t].given, c->of[t].first, bytes,
                               prover->stream, diag);
        if (rc == 0)
            rc = fa_copy_from_device(prover->driver, c->of[t].host, c->of[t].first, bytes, diag);
    }
    return rc;
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
static int run_reference(fa_prover *prover, int index, uint64_t work, void **arguments,
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
    if (entry == NULL)
        entry = "reference";
    if (grid == NULL)
        return fa_prover_run_entry(prover, entry, work, arguments, diag);
    int rc = fa_module_function(prover->module, entry, 0, &function, diag);
    for (int i = 0; i < 3 && rc == 0; i++) {
        rc = read_side(grid, i, problem, i == 0 ? INT32_MAX : 65535, &grids[i], diag);
        if (rc == 0)
            rc = read_side(block, i, problem, 1024, &blocks[i], diag);
    }
    return rc != 0 ? rc
                   : fa_launch_kernel(prover->driver, function, grids, blocks, 0, prover->stream,
                                      arguments, diag);
}

static int compute_reference(fa_prover *prover, int index, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    fa_tensor_values values;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    void *arguments[FA_PARAMETERS_MAX];
    fa_symbols symbols; /* the answer may do without them */
    uint64_t work = 0;
    int rc = fa_proof_start_outputs(prover, index, true, diag);
    list_arguments(prover, index, true, &values, params, arguments);
    for (int t = 0; t < c->tensors.count; t++)
        if (c->tensors.at[t].output && work < c->tensors.at[t].elements)
            work = c->tensors.at[t].elements;
    if (rc != 0 || (rc = fa_symbols_find(&c->tensors, prover->module, &symbols, diag)) != 0 ||
        (rc = copy_symbols(prover, index, &symbols, diag)) != 0 ||
        (rc = run_reference(prover, index, work, arguments, diag)) != 0 ||
        (rc = fa_stream_synchronize(prover->driver, prover->stream, diag)) != 0)
        return rc;
    for (int t = 0; t < c->tensors.count && rc == 0; t++)
        if (c->tensors.at[t].output)
            rc = fa_proof_fetch(prover, index, t, diag);
    return rc;
}

/* What an earlier kernel made, or the tuning program answered, to the device again. */
static int give_answer(fa_prover *prover, int index, fa_diag *diag)
{
    struct fa_proof_case *c = &prover->at[index];
    int rc = 0;
    for (int t = 0; t < c->tensors.count && rc == 0; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        int64_t at = fa_proof_answer_at(prover, index, t);
        size_t size = 0;
        if (!tensor->output || tensor->elements == 0 || (at < 0 && c->answered == 0))
            continue;
        rc = fa_proof_host(c, t, &size, diag);
        if (rc == 0 && at >= 0)
            rc = fa_case_data_read(prover->data, at, c->of[t].host, size, diag);
        if (rc == 0)
            rc = fa_copy_to_device(prover->driver, c->of[t].wanted, c->of[t].host, size, diag);
        if (rc == 0)
            rc = fa_proof_largest(prover, index, t, diag);
    }
    return rc;
}

static int refer(fa_prover *prover, int index, fa_diag *diag)
{
    int rc = make_inputs(prover, index, diag);
    if (rc != 0)
        return rc;
    return fa_proof_is_answered(prover, index) || fa_proof_has_no_answer(prover, index)
               ? give_answer(prover, index, diag)
               : compute_reference(prover, index, diag);
}

/* ---- launching ------------------------------------------------------------------------------*/
static int load(fa_prover *prover, fa_module *module, const fa_cubin_entry *entry, void **ret_extra,
                fa_diag *diag)
{
    fa_symbols symbols = {0};
    int rc = fa_generic_check_entry(&prover->at[0].problem, entry, diag);
    *ret_extra = NULL;
    if (rc == 0)
        rc = fa_symbols_find(&prover->at[0].tensors, module, &symbols, diag);
    if (rc != 0 || symbols.count == 0)
        return rc;
    fa_symbols *extra = malloc(sizeof *extra);
    if (extra == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a kernel");
    *extra = symbols;
    *ret_extra = extra;
    return 0;
}

static void arguments(fa_prover *prover, int index, void *extra,
                      void *ret_argument[FA_PROVER_ARGUMENTS])
{
    const struct fa_proof_case *c = &prover->at[index];
    (void)extra;
    memcpy(ret_argument, c->argument, (size_t)c->argument_count * sizeof *ret_argument);
}

static void text(const fa_prover *prover, int index, char *ret_text, size_t size)
{
    char key[FA_PROBLEM_KEY_MAX];
    fa_problem_key(&prover->at[index].problem, key);
    snprintf(ret_text, size, "%s", key);
}

const struct fa_proof_type fa_generic_proof = {.take_cases = take_cases,
                                               .place = place,
                                               .refer = refer,
                                               .restore = copy_symbols,
                                               .load = load,
                                               .arguments = arguments,
                                               .text = text};
