/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of a call, and the variables of its module that are written before them. The driver reads as many arguments
 * as the kernel takes.
 */
#include "call.h"

#include "cubin.h"
#include "error.h"
#include "tensors.h"

int fa_call_take_memory(const fa_call *call, void *brought, size_t bytes, fa_stream stream,
                        fa_call_memory *ret_memory, fa_diag *diag)
{
    const fa_call_composed *composed = call->composed;
    size_t needed = composed != NULL ? (size_t)composed->launches.workspace_bytes : 0;
    size_t counters = composed != NULL ? 4 * (size_t)composed->launches.counters : 0;
    fa_device_ptr at[FA_STREAM_KINDS] = {0};
    if (needed > 0 && brought != NULL && (bytes < needed || (uintptr_t)brought % 256 != 0))
        return fa_fail(diag, FA_EINVAL,
                       "the workspace of %zu bytes at %p will not do: fa_kernel_workspace says "
                       "%zu bytes, and they must be 256-byte aligned",
                       bytes, brought, needed);
    size_t own[FA_STREAM_KINDS] = {
        [FA_STREAM_COUNTERS] = counters, [FA_STREAM_SCRATCH] = brought == NULL ? needed : 0};
    int rc = 0;
    if (own[FA_STREAM_COUNTERS] > 0 || own[FA_STREAM_SCRATCH] > 0)
        rc = fa_stream_memory_take(composed->memory, stream, own, at, diag);
    if (rc != 0)
        return rc;
    if (needed > 0 && brought != NULL)
        at[FA_STREAM_SCRATCH] = (fa_device_ptr)(uintptr_t)brought;
    *ret_memory = (fa_call_memory){at[FA_STREAM_SCRATCH], at[FA_STREAM_COUNTERS]};
    return 0;
}

static int run_composed(const fa_call *call, void *arguments[FA_CALL_ARGUMENTS], int count,
                        fa_device_ptr workspace, fa_stream stream, fa_diag *diag)
{
    const fa_call_composed *composed = call->composed;
    int rc = 0;
    arguments[count] = &workspace;
    for (int i = 0; rc == 0 && i < composed->launches.count; i++) {
        const fa_launch_shape *launch = &composed->launches.at[i];
        rc = fa_launch_clusters(call->driver, composed->function[i], launch->grid, launch->block,
                                launch->cluster, (uint32_t)launch->smem_bytes, stream, arguments,
                                diag);
    }
    return rc;
}

int fa_call_run(const fa_call *call, void *arguments[FA_CALL_ARGUMENTS], int count,
                fa_device_ptr workspace, fa_stream stream, fa_diag *diag)
{
    if (call->composed != NULL)
        return run_composed(call, arguments, count, workspace, stream, diag);
    return fa_launch_kernel(call->driver, call->function, call->grid,
                            (const uint32_t[]){call->threads, 1, 1}, call->smem_bytes, stream,
                            arguments, diag);
}

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

int fa_symbols_check(const fa_tensor_list *list, const void *cubin, size_t size, fa_diag *diag)
{
    for (int t = 0; t < list->count; t++) {
        const fa_tensor *tensor = &list->at[t];
        uint64_t has = 0, needs = tensor->elements * fa_element_size(tensor->element);
        if (tensor->symbol == NULL)
            continue;
        int rc = fa_cubin_variable(cubin, size, tensor->symbol, &has, diag);
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
                    const fa_problem *problem, const uint64_t address[FA_TENSORS_MAX],
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
    for (int i = 0; i < symbols->count && rc == 0; i++)
        rc = fa_copy_on_device(driver, symbols->of[i].at, address[symbols->of[i].tensor],
                               (size_t)bytes[i], stream, diag);
    return rc;
}
