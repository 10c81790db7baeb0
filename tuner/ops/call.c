/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of a call. The driver reads as many arguments as the kernel takes.
 */
#include "call.h"

#include "error.h"

int fa_call_take_memory(const fa_call *call, void *brought, size_t bytes, fa_stream stream,
                        fa_call_memory *ret_memory, fa_diag *diag)
{
    const fa_call_composed *composed = call->composed;
    size_t needed = composed != NULL ? (size_t)composed->launches.workspace_bytes : 0;
    size_t counters = composed != NULL ? 4 * (size_t)composed->launches.counters : 0;
    fa_stream_lease lease = {.stream = stream};
    if (needed > 0 && brought != NULL && (bytes < needed || (uintptr_t)brought % 256 != 0))
        return fa_fail(diag, FA_EINVAL,
                       "the workspace of %zu bytes at %p will not do: fa_kernel_workspace says "
                       "%zu bytes, and they must be 256-byte aligned",
                       bytes, brought, needed);
    size_t own[FA_STREAM_KINDS] = {
        [FA_STREAM_COUNTERS] = counters, [FA_STREAM_SCRATCH] = brought == NULL ? needed : 0};
    int rc = 0;
    if (own[FA_STREAM_COUNTERS] > 0 || own[FA_STREAM_SCRATCH] > 0)
        rc = fa_stream_memory_take(composed->memory, stream, own, &lease, diag);
    if (rc == 0)
        *ret_memory =
            (fa_call_memory){needed > 0 && brought != NULL ? (fa_device_ptr)(uintptr_t)brought
                                                           : lease.at[FA_STREAM_SCRATCH],
                             lease.at[FA_STREAM_COUNTERS], lease};
    return rc;
}

int fa_launch_shaped(fa_driver *driver, const fa_launch_shape *launch, fa_function function,
                     void **arguments, fa_stream stream, fa_diag *diag)
{
    return fa_launch_is_left_out(launch)
               ? 0
               : fa_launch_clusters(driver, function, launch->grid, launch->block, launch->cluster,
                                    launch->how, (uint32_t)launch->smem_bytes, stream, arguments,
                                    diag);
}
