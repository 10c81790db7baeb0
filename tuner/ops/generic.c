/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher of any operation that its operation.json describes: what an entry takes, and the launches of a caller who
 * passes tensors and scalars; and its proofs.
 *
 * Workload: a few calls per tuned problem.
 */
#include "op.h"

#include "buf.h"
#include "cubin.h"
#include "error.h"
#include "json.h"
#include "operation.h"
#include "problem.h"
#include "prover.h"
#include "tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from tensors to variables of a module ---------------------------------------------------*/
/* Arguments that are copied to a variable of the kernel's module before its launch, as __constant__ memory is filled: tensors
 * of an operation.json with a "symbol". A copy is never larger than the variable; what lies behind the copy keeps its
 * value. copy_symbols() of one module from one thread at a time (fa_module_enter()), the others from any. */
/* The variables of one loaded module. */
typedef struct fa_symbols {
    int count;
    struct {
        int tensor; /* of the list */
        fa_device_ptr at;
        size_t bytes;
    } of[FA_TENSORS_MAX];
} fa_symbols;

static uint64_t bytes_of(const fa_tensor *tensor, const fa_problem *problem)
{
    uint64_t bytes =
        fa_element_size(tensor->element) * (unsigned)fa_element_numbers(tensor->element);
    for (int i = 0; i < tensor->dims; i++) {
        int64_t size = fa_tensor_size(tensor, problem, i);
        if (size < 0 || __builtin_mul_overflow(bytes, (uint64_t)size, &bytes))
            return UINT64_MAX;
    }
    return bytes;
}

/* Compares the variables of a cubin with the tensors; an answer may do without those of inputs. FA_ECORRUPT: one is missing, or
 * smaller than its tensor. */
static int check_symbols(const fa_tensor_list *list, const fa_cubin_entry *entry, fa_diag *diag)
{
    for (int t = 0; t < list->count; t++) {
        const fa_tensor *tensor = &list->at[t];
        uint64_t has = 0, needs = tensor->elements * fa_element_size(tensor->element);
        if (tensor->symbol == NULL || (entry->launch == FA_THE_ANSWER && !tensor->output))
            continue;
        int rc = fa_cubin_variable(entry->cubin, entry->size, tensor->symbol, &has, diag);
        if (rc == 0 && has < needs)
            rc = fa_fail(diag, FA_ECORRUPT, "%s has %llu bytes, and the argument %s has %llu",
                         tensor->symbol, (unsigned long long)has, tensor->name,
                         (unsigned long long)needs);
        if (rc != 0)
            return rc == FA_ENOTFOUND ? FA_ECORRUPT : rc;
    }
    return 0;
}

/* Those of the variables that the module has: all, if its cubin was checked. */
static int find_symbols(const fa_tensor_list *list, fa_module *module, fa_symbols *ret_symbols,
                        fa_diag *diag)
{
    fa_symbols symbols = {0};
    for (int t = 0; t < list->count; t++) {
        if (list->at[t].symbol == NULL)
            continue;
        int rc = fa_module_variable(module, list->at[t].symbol, &symbols.of[symbols.count].at,
                                    &symbols.of[symbols.count].bytes, diag);
        if (rc == 0)
            symbols.of[symbols.count++].tensor = t;
        else if (rc != FA_ENOTFOUND)
            return rc;
    }
    *ret_symbols = symbols;
    return 0;
}

/* Copies the tensors at these addresses, of this problem's sizes, in the order of the stream, before a launch; behind it the
 * `results`, from variables to outputs. FA_EINVAL: one is larger than its variable; nothing was copied then. */
static int copy_symbols(fa_driver *driver, const fa_symbols *symbols, const fa_tensor_list *list,
                        const fa_problem *problem, const uint64_t address[FA_TENSORS_MAX],
                        bool results, fa_stream stream, fa_diag *diag)
{
    uint64_t bytes[FA_TENSORS_MAX];
    int rc = 0;
    for (int i = 0; i < symbols->count; i++) {
        const fa_tensor *tensor = &list->at[symbols->of[i].tensor];
        bytes[i] = bytes_of(tensor, problem);
        if (bytes[i] > symbols->of[i].bytes)
            return fa_fail(diag, FA_EINVAL,
                           "%s has %llu bytes, and %s of the kernel has %zu: let the source make "
                           "it larger, or give the sizes of %s a \"max\"",
                           tensor->name, (unsigned long long)bytes[i], tensor->symbol,
                           symbols->of[i].bytes, tensor->name);
    }
    for (int i = 0; i < symbols->count && rc == 0; i++) {
        const fa_device_ptr variable = symbols->of[i].at, tensor = address[symbols->of[i].tensor];
        if (!results || list->at[symbols->of[i].tensor].output)
            rc = fa_copy_on_device(driver, results ? tensor : variable, results ? variable : tensor,
                                   (size_t)bytes[i], stream, diag);
    }
    return rc;
}

/* ---- what an entry takes ---------------------------------------------------------------------*/
/* One by one, each of its own size. */
static int check_parameters(const fa_tensor_list *list, const fa_cubin_info *info,
                            const fa_cubin_entry *cubin, fa_diag *diag)
{
    const int *passed = list->taken[cubin->launch].at, count = list->taken[cubin->launch].count;
    if (count != info->parameter_count)
        return fa_fail(diag, FA_ECORRUPT, "%s takes %d arguments, and %d are stated%s", cubin->name,
                       info->parameter_count, count,
                       list->launches ? ": let the launch say its \"arguments\"" : "");
    for (int i = 0; i < count; i++) {
        const bool scalar = passed[i] >= FA_TENSORS_MAX;
        const int in = passed[i] - FA_PARAMETERS_MAX, has = info->parameter_size[i];
        const fa_element stated =
            in < 0 && scalar ? list->scalar[passed[i] - FA_TENSORS_MAX].element : FA_ELEMENTS;
        const int size = in >= 0  ? list->structure[in].size
                         : scalar ? (int)fa_element_size(stated)
                                  : 8;
        char fault[200] = "";
        if (has != size && in >= 0)
            snprintf(fault, sizeof fault, "has %d bytes, and its %d fields have %d", has,
                     list->structure[in].count, size);
        else if (has != size)
            snprintf(fault, sizeof fault, "has %d bytes, and %s has %d", has,
                     scalar ? fa_element_name(stated) : "an address", size);
        if (fault[0] != 0)
            return fa_fail(diag, FA_ECORRUPT, "argument %d of %s, %s, %s", i + 1, cubin->name,
                           fa_tensors_name(list, passed[i]), fault);
    }
    return 0;
}

/* A tensor map that a kernel is passed behind its struct, as its extern "C" __constant__ fa_maps_wanted[4] has it: with a box of
 * `sides`, the innermost first, as many as the tensor has or more, of one element. None: 0 sides. */
struct wanted_map {
    unsigned tensor, type, sides, box[FA_TENSOR_MAP_RANK], swizzle;
};

/* ---- launches of a caller -------------------------------------------------------------------*/
/* What all launches of an entry share: the tensors by their index and scalars by FA_TENSORS_MAX + theirs that a caller
 * passes, in his order. */
struct passed {
    fa_tensor_list list;
    int count, maps, at[FA_PARAMETERS_MAX];
    fa_module *module;
    fa_symbols symbols;
    struct wanted_map wanted[FA_MAPS_MAX];
    fa_kept_maps kept;
};

/* A struct, then maps, which are of strided tensors or of one dimension, then addresses. */
static int check_struct(struct passed *passed, const fa_cubin_info *info,
                        const fa_cubin_entry *entry, int bytes, fa_diag *diag)
{
    const fa_tensor_list *list = &passed->list;
    const struct wanted_map *map = passed->wanted;
    int rc = fa_cubin_constant(entry->cubin, entry->size, "fa_maps_wanted", passed->wanted,
                               sizeof passed->wanted, diag);
    bool right = info->parameter_size[0] <= bytes;
    for (; passed->maps < FA_MAPS_MAX && map->sides > 0; map++, passed->maps++)
        right = right && map->tensor < (unsigned)list->count && map->sides <= FA_TENSOR_MAP_RANK &&
                (int)map->sides >= list->at[map->tensor].dims && map->swizzle <= 128 &&
                list->at[map->tensor].stride_count == list->at[map->tensor].dims - 1;
    right = right && info->parameter_count == 1 + passed->maps + entry->workspace + entry->counters;
    for (int i = 1; right && i < info->parameter_count; i++)
        right = info->parameter_size[i] ==
                (i <= passed->maps ? (int)FA_TENSOR_MAP_BYTES : (int)sizeof(fa_device_ptr));
    if (right || (rc != 0 && rc != FA_ENOTFOUND))
        return rc == FA_ENOTFOUND ? 0 : rc;
    return fa_fail(diag, FA_ECORRUPT,
                   "%s does not take just a struct of %d bytes (addresses, strides, scalars, "
                   "integer fields), %d tensor maps, and its manifest's addresses",
                   entry->name, bytes, passed->maps);
}

/* What launches of an entry share, but for the module's: the list, which is freed, and the maps. */
static int read_entry(const fa_problem *problem, const fa_cubin_entry *entry, struct passed *passed,
                      fa_diag *diag)
{
    unsigned char params[FA_PARAMS_MAX];
    fa_tensor_values values = {0};
    fa_tensor_list *list = &passed->list;
    fa_cubin_info info;
    FA_OR_RETURN(fa_cubin_read(entry->cubin, entry->size, entry->name, &info, diag));
    FA_OR_RETURN(fa_tensors_read(problem, list, diag));
    int32_t bytes = (int32_t)fa_tensors_params(problem, list, &values, params);
    int rc = list->parameter_count > 0 ? check_parameters(list, &info, entry, diag)
                                       : check_struct(passed, &info, entry, bytes, diag);
    return rc != 0 ? rc : check_symbols(list, entry, diag);
}

static void unload(void **shared)
{
    struct passed *passed = *shared;
    if (passed != NULL)
        fa_tensors_free(&passed->list);
    free(passed);
    *shared = NULL;
}

static int load_for_callers(fa_module *module, const fa_problem *problem,
                            const fa_cubin_entry *entry, void **ret_shared, fa_diag *diag)
{
    struct passed *passed = calloc(1, sizeof *passed);
    FA_OR_RETURN(fa_have(passed != NULL, "a kernel", diag));
    int rc = read_entry(problem, entry, passed, diag);
    if (rc == 0 && module != NULL)
        rc = find_symbols(&passed->list, module, &passed->symbols, diag);
    if (rc != 0) {
        unload((void **)&passed);
        return rc;
    }
    const fa_tensor_list *list = &passed->list;
    const int count = list->parameter_count; /* 0: tensors, then scalars */
    for (int i = 0; i < (count > 0 ? count : list->count + list->scalar_count); i++) {
        const int at = count > 0         ? list->parameter[i]
                       : i < list->count ? i
                                         : FA_TENSORS_MAX + i - list->count;
        if (at < FA_TENSORS_MAX ? list->at[at].scratch < 0
                                : count == 0 || list->scalar[at - FA_TENSORS_MAX].expr == NULL)
            passed->at[passed->count++] = at;
    }
    passed->module = module;
    atomic_flag_clear(&passed->kept.taken);
    *ret_shared = passed;
    return 0;
}

static int argument_of(const fa_call *call, const fa_problem *problem, int32_t index,
                       fa_argument *ret_argument)
{
    const struct passed *passed = call->shared;
    if (index < 0 || index >= passed->count)
        return FA_ENOTFOUND;
    fa_tensors_argument(&passed->list, passed->at[index], problem, ret_argument);
    return 0;
}

static int take_tensor(const fa_tensor *tensor, const fa_problem *problem,
                       const fa_tensor_arg *given, int align, uint64_t *ret_address,
                       int64_t ret_stride[FA_TENSOR_STRIDES], fa_diag *diag)
{
    *ret_address = given != NULL ? (uint64_t)(uintptr_t)given->data : 0;
    if (*ret_address == 0 && fa_tensor_is_needed(tensor, problem) && bytes_of(tensor, problem) > 0)
        return fa_fail(diag, FA_EINVAL, "%s is NULL", tensor->name);
    if (tensor->stride_count == 0 && *ret_address % (uint64_t)align == 0)
        return 0;
    const int64_t limit = (int64_t)1 << 48, size = (int64_t)fa_element_size(tensor->element) *
                                                   fa_element_numbers(tensor->element);
    int64_t any = 0;
    fa_tensor_pack(tensor, problem, ret_stride);
    for (int i = 0; given != NULL && i < tensor->stride_count; i++)
        any |= given->stride[i];
    for (int i = 0; any != 0 && i < tensor->stride_count; i++) {
        if (given->stride[i] <= -limit || given->stride[i] >= limit)
            return fa_fail(diag, FA_EINVAL, "a stride of %s is beyond 2^48 elements", tensor->name);
        ret_stride[i] = given->stride[i];
    }
    bool right = *ret_address % (uint64_t)align == 0;
    for (int i = 0; i < tensor->stride_count; i++)
        right = right && ret_stride[i] * size % align == 0 && (align <= size || ret_stride[i] >= 0);
    return right
               ? 0
               : fa_fail(
                     diag, FA_EALIGN,
                     "%s must be %d-byte aligned, and its strides multiples of %d elements, not negative",
                     tensor->name, align, align / (int)size);
}

static int take_arguments(const struct passed *passed, const fa_problem *problem,
                          const fa_args *args, fa_tensor_values *values, bool *ret_empty,
                          fa_diag *diag)
{
    const fa_tensor_list *list = &passed->list;
    bool unaligned = list->unaligned >= 0 && problem->value[list->unaligned] != 0;
    int64_t room = list->buffer_count > 0 ? fa_buffers_room(problem) : 0;
    *ret_empty = true;
    if (args->count != passed->count)
        return fa_fail(diag, FA_EINVAL, "%d arguments are given, and a kernel of %s takes %d",
                       (int)args->count, fa_operation_of(problem)->name, passed->count);
    for (int i = 0; i < passed->count; i++) {
        const int at = passed->at[i], s = at - FA_TENSORS_MAX;
        if (s >= 0) {
            if (args->at[i] != NULL)
                memcpy(&values->scalar[s], args->at[i], fa_element_size(list->scalar[s].element));
            if (args->at[i] == NULL ||
                !isfinite(fa_element_value(list->scalar[s].element, &values->scalar[s])))
                return fa_fail(diag, FA_EINVAL, "%s must be a finite number", list->scalar[s].name);
            continue;
        }
        const fa_tensor *tensor = &list->at[at];
        const int align = unaligned ? (int)fa_element_size(tensor->element) : tensor->align;
        const int which = at - list->plain;
        FA_OR_RETURN(which >= 0 && which < list->buffer_count
                         ? fa_buffer_take(&list->buffer[which], args->at[i], &room,
                                          &values->buffer[which], diag)
                         : take_tensor(tensor, problem, args->at[i], align, &values->address[at],
                                       values->stride[at], diag));
        *ret_empty = *ret_empty && (!tensor->output || bytes_of(tensor, problem) == 0);
    }
    return 0;
}

/* ---- tensor maps ----------------------------------------------------------------------------*/
bool fa_maps_find(fa_kept_maps *kept, const void *key, size_t size, int count, void *ret_maps)
{
    bool known = false;
    if (atomic_flag_test_and_set_explicit(&kept->taken, memory_order_acquire))
        return false;
    for (int i = 0; i < FA_MAP_SETS && !known; i++)
        if ((known = memcmp(kept->set[i].key, key, size) == 0))
            memcpy(ret_maps, kept->set[i].map, (size_t)count * FA_TENSOR_MAP_BYTES);
    atomic_flag_clear_explicit(&kept->taken, memory_order_release);
    return known;
}

int fa_maps_make(fa_kept_maps *kept, fa_driver *driver, const void *key, size_t size, int count,
                 const fa_tensor_shape *shape, void *ret_maps, fa_diag *diag)
{
    unsigned char(*map)[FA_TENSOR_MAP_BYTES] = ret_maps;
    int rc = 0;
    for (int i = 0; i < count && rc == 0; i++)
        rc = fa_tensor_map_encode(driver, &shape[i], map[i], diag);
    if (rc != 0 || atomic_flag_test_and_set_explicit(&kept->taken, memory_order_acquire))
        return rc;
    memcpy(kept->set[kept->next].key, key, size);
    memcpy(kept->set[kept->next].map, map, (size_t)count * FA_TENSOR_MAP_BYTES);
    kept->next = (kept->next + 1) % FA_MAP_SETS;
    atomic_flag_clear_explicit(&kept->taken, memory_order_release);
    return 0;
}

/* The tensor maps of a launch, of what the launcher loaded: they follow the `count` arguments. */
static int add_maps(void *shared, fa_driver *driver, const fa_problem *problem,
                    const fa_tensor_values *values, unsigned char (*ret_maps)[FA_TENSOR_MAP_BYTES],
                    void **ret_argument, int *count, fa_diag *diag)
{
    struct passed *passed = shared;
    fa_tensor_shape shape[FA_MAPS_MAX] = {{0}};
    for (int i = 0; i < passed->maps; i++) {
        const struct wanted_map *map = &passed->wanted[i];
        const fa_tensor *tensor = &passed->list.at[map->tensor];
        shape[i] = (fa_tensor_shape){.name = tensor->name,
                                     .base = values->address[map->tensor],
                                     .rank = map->sides,
                                     .type = map->type,
                                     .swizzle = (uint16_t)map->swizzle};
        memcpy(shape[i].box, map->box, sizeof map->box);
        for (int side = 0, dim = tensor->dims - 1; dim >= 0; side++, dim--) {
            shape[i].extent[side] = (uint64_t)fa_tensor_size(tensor, problem, dim);
            if (side > 0)
                shape[i].stride[side - 1] =
                    (uint64_t)values->stride[map->tensor][dim] * fa_element_size(tensor->element);
        }
        ret_argument[(*count)++] = ret_maps[i];
    }
    if (passed->maps == 0 ||
        fa_maps_find(&passed->kept, shape, sizeof shape, passed->maps, ret_maps))
        return 0;
    return fa_maps_make(&passed->kept, driver, shape, sizeof shape, passed->maps, shape, ret_maps,
                        diag);
}

static int launch(const fa_call *call, const fa_problem *problem, const void *data,
                  fa_stream stream, fa_diag *diag)
{
    const fa_args *args = data;
    const struct passed *passed = call->shared;
    fa_tensor_values values;
    _Alignas(8) unsigned char params[FA_PARAMS_MAX];
    unsigned char maps[FA_MAPS_MAX][FA_TENSOR_MAP_BYTES];
    void *arguments[FA_CALL_ARGUMENTS];
    fa_call_memory memory = {0};
    bool empty = false;
    int rc = take_arguments(passed, problem, args, &values, &empty, diag);
    if (rc != 0 || empty)
        return rc;
    fa_tensors_scalars(problem, &passed->list, false, &values);
    if (call->composed != NULL &&
        (call->composed->launches.workspace_bytes > 0 || call->composed->launches.counters > 0))
        rc = fa_call_take_memory(call, args->workspace, args->workspace_bytes, stream, &memory,
                                 diag);
    bool enters = rc == 0 && passed->symbols.count > 0;
    if (enters && (rc = fa_module_enter(passed->module, stream, diag)) != 0)
        enters = false;
    if (enters)
        rc = copy_symbols(call->driver, &passed->symbols, &passed->list, problem, values.address,
                          false, stream, diag);
    if (call->composed != NULL)
        fa_tensors_scratch(&passed->list, &call->composed->launches, memory.workspace, &values);
    for (int i = 0; rc == 0 && i < fa_call_launches(call); i++) {
        int count = fa_tensors_arguments(problem, &passed->list, i, &values, params, arguments);
        rc = add_maps(call->shared, call->driver, problem, &values, maps, arguments, &count, diag);
        rc = rc != 0 ? rc : fa_call_run(call, i, arguments, count, &memory, stream, diag);
    }
    if (enters && rc == 0)
        rc = copy_symbols(call->driver, &passed->symbols, &passed->list, problem, values.address,
                          true, stream, diag);
    const int left = enters ? fa_module_leave(passed->module, stream, rc == 0 ? diag : NULL) : 0;
    if (memory.lease.lent != NULL)
        fa_stream_memory_leave(&memory.lease);
    return rc != 0 ? rc : left;
}

static const fa_launcher fa_generic_launcher = {
    .load = load_for_callers, .unload = unload, .launch = launch, .argument = argument_of};

/* ---- cases ----------------------------------------------------------------------------------*/
enum { RAGGED_ELEMENTS = 1 << 20 /* of all tensors of a ragged case */ };

/* Elements of all tensors; UINT64_MAX: no problem. */
static uint64_t elements_of(const fa_problem *problem)
{
    FA_ENDS(fa_tensors_free) fa_tensor_list list = {.count = 0};
    uint64_t elements = 0;
    if (fa_problem_check(problem, NULL) != 0 || fa_tensors_read(problem, &list, NULL) != 0)
        return UINT64_MAX;
    for (int t = 0; t < list.count; t++)
        elements += list.at[t].elements;
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
    static const int32_t sizes[12] = {1, 2, 3, 5, 17, 33, 63, 64, 65, 100, 129, 200};
    const fa_operation *operation = fa_operation_of(problem);
    int count = 1;
    ret_case[0] = *problem;
    for (int i = 1; i < FA_BENCH_CASES; i++) {
        fa_problem p = *problem;
        for (int f = 0; f < operation->field_count; f++) {
            const fa_field *field = &operation->field[f];
            const uint64_t random = fa_random(seed, (uint64_t)(100 * i + f));
            const int32_t value = sizes[random % 12] / field->multiple * field->multiple;
            const int64_t most = field->length && i % 2 ? problem->value[f] : field->max;
            if (is_drawn(operation, &p, f))
                p.value[f] = value < field->min ? field->min : value > most ? (int32_t)most : value;
        }
        keep_groups(operation, problem, &p);
        shrink_case(operation, problem, &p);
        fa_case_keep_domain(problem, &p);
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
            c->of[t].scale = i == 0 && tensor->normal ? 1 : 0;
            c->of[t].tolerance[0] = fa_tensors_tolerance(&c->tensors, tensor->element);
            if (tensor->summed) /* over all queries and keys: what is left of sums that cancel */
                c->of[t].tolerance[0] = (fa_tolerance){0x1p-8, 0x1p-8, 1e-3};
            c->empty = c->empty && (!tensor->output || tensor->elements == 0);
        }
    }
}

/* Packed tensors at these addresses, and the scalars of a proof. */
static void set_values(const struct fa_proof_case *c, bool references, fa_tensor_values *values)
{
    fa_buffer_plan plan[FA_ATTN_BUFFERS];
    int64_t room = INT64_MAX;
    for (int t = 0; t < c->tensors.count; t++) {
        values->address[t] =
            references && c->tensors.at[t].output ? c->of[t].wanted : c->of[t].first;
        fa_tensor_pack(&c->tensors.at[t], &c->problem, values->stride[t]);
    }
    fa_tensors_scalars(&c->problem, &c->tensors, true, values);
    for (int i = 0, count = fa_buffers_plan(&c->problem, false, 0, plan); i < count; i++) {
        plan[i].is.at = (const void *)(uintptr_t)c->of[c->tensors.plain + i].first;
        fa_buffer_take(&c->tensors.buffer[i], &plan[i].is, &room, &values->buffer[i], NULL);
    }
}

static void place(fa_bench *b, int index)
{
    set_values(&b->at[index], false, &b->at[index].values);
}

/* The module's variables. */
static void copy_once(fa_bench *b, int index, const fa_symbols *symbols,
                      const fa_tensor_values *values, bool results)
{
    const struct fa_proof_case *c = &b->at[index];
    FA_TRY(b, copy_symbols(b->driver, symbols, &c->tensors, &c->problem, values->address, results,
                           b->stream, b->diag));
}

static void copy_variables(fa_bench *b, int index, const void *shared, bool results)
{
    const struct passed *passed = shared; /* with the variables of the module */
    copy_once(b, index, &passed->symbols, &b->at[index].values, results);
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

/* Inputs that the reference computes from the others, and copies of them to be compared with later. */
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
        size_t bytes = c->tensors.at[t].elements * fa_element_size(c->tensors.at[t].element);
        FA_TRY(b, fa_copy_on_device(b->driver, of->given, of->first, bytes, b->stream, b->diag));
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
    FA_TRY(b, find_symbols(&c->tensors, b->module, &symbols, b->diag));
    copy_once(b, index, &symbols, &values, false);
    run_reference(b, index, most_elements(c, false), arguments);
    copy_once(b, index, &symbols, &values, true);
    fa_bench_synchronize(b);
    for (int t = 0; t < c->tensors.count; t++) {
        c->of[t].late = c->of[t].count > 16 << 20 && !c->tensors.at[t].partial;
        if (c->tensors.at[t].output) /* to the host a gigabyte takes a second */
            (c->of[t].late ? fa_proof_largest : fa_proof_fetch)(b, index, t);
    }
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
    FA_TRY(b, add_maps(shared, b->driver, &c->problem, &c->values, c->maps, ret_argument, &count,
                       b->diag));
    return count;
}

const struct fa_proof_type fa_generic_proof = {.take_cases = take_cases,
                                               .place = place,
                                               .refer = refer,
                                               .copy_variables = copy_variables,
                                               .launcher = &fa_generic_launcher,
                                               .arguments = arguments};
