/* SPDX-License-Identifier: Apache-2.0
 *
 * The launches of a call. The driver reads as many arguments as the kernel takes.
 */
#include "call.h"

static int run_composed(const fa_call *call, void *arguments[FA_CALL_ARGUMENTS], int count,
                        fa_stream stream, fa_diag *diag)
{
    const fa_call_composed *composed = call->composed;
    fa_device_ptr workspace = composed->workspace;
    int rc = 0;
    arguments[count] = &workspace;
    for (int i = 0; rc == 0 && i < composed->launches.count; i++) {
        const fa_launch_shape *launch = &composed->launches.at[i];
        rc = fa_launch_kernel(call->driver, composed->function[i], launch->grid,
                              (uint32_t)launch->threads, (uint32_t)launch->smem_bytes, stream,
                              arguments, diag);
    }
    return rc;
}

int fa_call_run(const fa_call *call, void *arguments[FA_CALL_ARGUMENTS], int count,
                fa_stream stream, fa_diag *diag)
{
    if (call->composed != NULL)
        return run_composed(call, arguments, count, stream, diag);
    return fa_launch_kernel(call->driver, call->function, call->grid, call->threads,
                            call->smem_bytes, stream, arguments, diag);
}
