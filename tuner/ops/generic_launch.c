/* SPDX-License-Identifier: Apache-2.0
 *
 * The launcher of any operation that its operation.json describes: what an entry takes, and the launches of a caller who
 * passes tensors and scalars.
 */
#include "op.h"

#include "cubin.h"
#include "error.h"
#include "operation.h"
#include "tensors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from tensors to variables of a module ---------------------------------------------------*/
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

int fa_symbols_find(const fa_tensor_list *list, fa_module *module, fa_symbols *ret_symbols,
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

int fa_symbols_copy(fa_driver *driver, const fa_symbols *symbols, const fa_tensor_list *list,
                    const fa_problem *problem, const uint64_t address[FA_TENSORS_MAX], bool results,
                    fa_stream stream, fa_diag *diag)
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
    int rc;
    if ((rc = fa_cubin_read(entry->cubin, entry->size, entry->name, &info, diag)) != 0 ||
        (rc = fa_tensors_read(problem, list, diag)) != 0)
        return rc;
    int32_t bytes = (int32_t)fa_tensors_params(problem, list, &values, params);
    rc = list->parameter_count > 0 ? check_parameters(list, &info, entry, diag)
                                   : check_struct(passed, &info, entry, bytes, diag);
    return rc != 0 ? rc : check_symbols(list, entry, diag);
}

int fa_generic_check_entry(const fa_problem *problem, const fa_cubin_entry *entry, fa_diag *diag)
{
    struct passed passed = {.count = 0};
    int rc = read_entry(problem, entry, &passed, diag);
    fa_tensors_free(&passed.list);
    return rc;
}

static void unload(void **shared)
{
    struct passed *passed = *shared;
    if (passed != NULL)
        fa_tensors_free(&passed->list);
    free(passed);
    *shared = NULL;
}

static int load_for_callers(fa_driver *driver, fa_module *module, const fa_problem *problem,
                            const fa_cubin_entry *entry, void **ret_shared, fa_diag *diag)
{
    (void)driver;
    struct passed *passed = calloc(1, sizeof *passed);
    if (passed == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a kernel");
    int rc = read_entry(problem, entry, passed, diag);
    if (rc != 0 || (rc = fa_symbols_find(&passed->list, module, &passed->symbols, diag)) != 0) {
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

const fa_symbols *fa_generic_symbols(const void *shared)
{
    return &((const struct passed *)shared)->symbols;
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
        int align = unaligned ? (int)fa_element_size(tensor->element) : tensor->align;
        int rc = take_tensor(tensor, problem, args->at[i], align, &values->address[at],
                             values->stride[at], diag);
        if (rc != 0)
            return rc;
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

int fa_generic_maps(void *shared, fa_driver *driver, const fa_problem *problem,
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
        rc = fa_symbols_copy(call->driver, &passed->symbols, &passed->list, problem, values.address,
                             false, stream, diag);
    if (call->composed != NULL)
        fa_tensors_scratch(&passed->list, &call->composed->launches, memory.workspace, &values);
    for (int i = 0; rc == 0 && i < fa_call_launches(call); i++) {
        int count = fa_tensors_arguments(problem, &passed->list, i, &values, params, arguments);
        rc = fa_generic_maps(call->shared, call->driver, problem, &values, maps, arguments, &count,
                             diag);
        rc = rc != 0 ? rc : fa_call_run(call, i, arguments, count, &memory, stream, diag);
    }
    if (enters && rc == 0)
        rc = fa_symbols_copy(call->driver, &passed->symbols, &passed->list, problem, values.address,
                             true, stream, diag);
    const int left = enters ? fa_module_leave(passed->module, stream, rc == 0 ? diag : NULL) : 0;
    if (memory.lease.lent != NULL)
        fa_stream_memory_leave(&memory.lease);
    return rc != 0 ? rc : left;
}

const fa_launcher fa_generic_launcher = {
    .load = load_for_callers, .unload = unload, .launch = launch, .argument = argument_of};
