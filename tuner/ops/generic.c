/* SPDX-License-Identifier: Apache-2.0
 *
 * The proofs of any operation that its operation.json describes.
 *
 * Workload: a few calls per tuned problem.
 */
#include "op.h"

#include "case_data.h"
#include "hash.h"
#include "prover.h"

#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"

#include <string.h>

/* ---- cases ----------------------------------------------------------------------------------*/
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

/* A size of its own, that need not stay at its default because the field that it needs is at its own. */
static bool is_drawn(const fa_operation *operation, const fa_problem *problem, int field)
{
    const fa_field *is = &operation->field[field];
    return is->kind == FA_FIELD_INTEGER && !is->shapes_source &&
           !(is->needs >= 0 &&
             fa_field_is_absent(&operation->field[is->needs], problem->value[is->needs]));
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
    static const int32_t sizes[] = {1, 2, 3, 5, 17, 33, 63, 64, 65, 100, 129, 200};
    const fa_operation *operation = fa_operation_of(problem);
    int count = 1;
    ret_case[0] = *problem;
    for (int i = 1; i < FA_BENCH_CASES; i++) {
        fa_problem p = *problem;
        for (int f = 0; f < operation->field_count; f++) {
            const fa_field *field = &operation->field[f];
            const uint64_t random = fa_random(seed, (uint64_t)(100 * i + f));
            const int32_t size = sizes[random % (sizeof sizes / sizeof *sizes)],
                          value = size / field->multiple * field->multiple;
            if (is_drawn(operation, &p, f))
                p.value[f] = value < field->min   ? field->min
                             : value > field->max ? (int32_t)field->max
                                                  : value;
        }
        keep_groups(operation, problem, &p);
        shrink_case(operation, problem, &p);
        if (elements_of(&p) <= RAGGED_ELEMENTS)
            ret_case[count++] = p;
    }
    return count;
}

/* ---- tensors --------------------------------------------------------------------------------*/
static void take_cases(fa_bench *b, const fa_problem *problem)
{
    fa_problem cases[FA_BENCH_CASES];
    b->count = fa_generic_cases(problem, b->seed, cases);
    for (int i = 0; i < b->count; i++) {
        struct fa_proof_case *c = &b->at[i];
        *c = (struct fa_proof_case){.problem = cases[i], .once = i == 0, .empty = true, .bands = 1};
        FA_TRY(b, fa_tensors_read(&cases[i], &c->tensors, b->diag));
        for (int t = 0; t < c->tensors.count; t++) {
            const fa_tensor *tensor = &c->tensors.at[t];
            fa_proof_pack(tensor, &c->of[t]);
            c->of[t].tolerance[0] = fa_tensors_tolerance(&c->tensors, tensor->element);
            c->empty = c->empty && (!tensor->output || tensor->elements == 0);
        }
    }
}

/* Packed tensors at these addresses, and the scalars of a proof. */
static void set_values(const struct fa_proof_case *c, bool references, fa_tensor_values *values)
{
    for (int t = 0; t < c->tensors.count; t++) {
        values->address[t] =
            references && c->tensors.at[t].output ? c->of[t].wanted : c->of[t].first;
        fa_tensor_pack(&c->tensors.at[t], &c->problem, values->stride[t]);
    }
    fa_tensors_scalars(&c->problem, &c->tensors, true, values);
}

static void place(fa_bench *b, int index)
{
    set_values(&b->at[index], false, &b->at[index].values);
}

/* The module's variables. */
static void copy_symbols(fa_bench *b, int index, const fa_symbols *symbols,
                         const fa_tensor_values *values, bool results)
{
    const struct fa_proof_case *c = &b->at[index];
    FA_TRY(b, fa_symbols_copy(b->driver, symbols, &c->tensors, &c->problem, values->address,
                              results, b->stream, b->diag));
}

static void copy_variables(fa_bench *b, int index, const void *shared, bool results)
{
    copy_symbols(b, index, fa_generic_symbols(shared), &b->at[index].values, results);
}

/* ---- references -----------------------------------------------------------------------------*/
/* Elements of the largest tensor that is an output, or made by the reference. */
static uint64_t most_elements(const struct fa_proof_case *c, bool made)
{
    uint64_t most = 0;
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        if ((made ? tensor->made : tensor->output) && most < tensor->elements)
            most = tensor->elements;
    }
    return most;
}

/* Inputs that the reference computes from the others, and copies of them to be compared with later: on the device, and here
 * where no kernel can write. */
static void make_inputs(fa_bench *b, int index)
{
    struct fa_proof_case *c = &b->at[index];
    const uint64_t work = most_elements(c, true);
    void *argument[FA_PARAMETERS_MAX];
    if (work == 0)
        return;
    fa_tensors_arguments(&c->problem, &c->tensors, 0, &c->values, c->params, argument);
    fa_bench_run_entry(b, "inputs", work, argument);
    fa_bench_synchronize(b);
    for (int t = 0; t < c->tensors.count; t++) {
        struct fa_proof_tensor *of = &c->of[t];
        if (!c->tensors.at[t].made)
            continue;
        size_t bytes = fa_proof_host(b, index, t);
        FA_TRY(b, fa_copy_on_device(b->driver, of->given, of->first, bytes, b->stream, b->diag));
        fa_bench_download(b, of->host, of->first, bytes);
    }
}

/* The reference's launch: of a kernel that strides over any grid, or of an "answer": as it says, else with a thread for each
 * element of the largest output. */
static void run_reference(fa_bench *b, int index, uint64_t work, void **arguments)
{
    enum { USUAL = 128 };
    const cJSON *answer =
        fa_json_member(fa_operation_of(&b->at[index].problem)->document, "answer");
    const char *entry = fa_json_string(answer, "kernel");
    fa_launch_shape launch = b->at[index].answer;
    fa_function function;
    if (entry == NULL) {
        fa_bench_run_entry(b, "reference", work, arguments);
        return;
    }
    if (launch.threads == 0)
        launch = (fa_launch_shape){
            .block = {USUAL, 1, 1},
            .grid = {work > USUAL ? (uint32_t)((work + USUAL - 1) / USUAL) : 1, 1, 1}};
    FA_TRY(b, fa_module_function(b->module, entry, launch.smem_bytes, &function, b->diag));
    FA_TRY(b, fa_launch_shaped(b->driver, &launch, function, arguments, b->stream, b->diag));
}

static void compute_reference(fa_bench *b, int index)
{
    struct fa_proof_case *c = &b->at[index];
    fa_tensor_values values;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    void *arguments[FA_PARAMETERS_MAX];
    fa_symbols symbols = {0}; /* the answer may do without them */
    fa_proof_start_outputs(b, index, true);
    set_values(c, true, &values);
    fa_tensors_arguments(&c->problem, &c->tensors, FA_THE_ANSWER, &values, params, arguments);
    FA_TRY(b, fa_symbols_find(&c->tensors, b->module, &symbols, b->diag));
    copy_symbols(b, index, &symbols, &values, false);
    run_reference(b, index, most_elements(c, false), arguments);
    copy_symbols(b, index, &symbols, &values, true);
    fa_bench_synchronize(b);
    for (int t = 0; t < c->tensors.count; t++)
        if (c->tensors.at[t].output)
            fa_proof_fetch(b, index, t);
}

/* What an earlier kernel made, or the tuning program answered, to the device again. */
static void give_answer(fa_bench *b, int index)
{
    struct fa_proof_case *c = &b->at[index];
    for (int t = 0; t < c->tensors.count; t++) {
        const fa_tensor *tensor = &c->tensors.at[t];
        struct fa_proof_tensor *of = &c->of[t];
        if (!tensor->output || tensor->elements == 0 || (of->answer_at < 0 && c->answered == 0))
            continue;
        size_t size = fa_proof_host(b, index, t);
        if (of->answer_at >= 0)
            FA_TRY(b, fa_case_data_read(b->data, of->answer_at, of->host, size, b->diag));
        fa_bench_upload(b, of->wanted, of->host, size);
        fa_proof_largest(b, index, t);
    }
}

static void refer(fa_bench *b, int index)
{
    make_inputs(b, index);
    (b->at[index].by == FA_PROOF_REFERENCE ? compute_reference : give_answer)(b, index);
}

/* ---- launching ------------------------------------------------------------------------------*/
static int arguments(fa_bench *b, int index, int launch, void *shared,
                     void *ret_argument[FA_PROVER_ARGUMENTS])
{
    struct fa_proof_case *c = &b->at[index];
    fa_tensors_scratch(&c->tensors, b->launches, b->workspace.at, &c->values);
    int count =
        fa_tensors_arguments(&c->problem, &c->tensors, launch, &c->values, c->params, ret_argument);
    FA_TRY(b, fa_generic_maps(shared, b->driver, &c->problem, &c->values, c->maps, ret_argument,
                              &count, b->diag));
    return count;
}

const struct fa_proof_type fa_generic_proof = {.take_cases = take_cases,
                                               .place = place,
                                               .refer = refer,
                                               .copy_variables = copy_variables,
                                               .launcher = &fa_generic_launcher,
                                               .arguments = arguments};
