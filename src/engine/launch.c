/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch of a kernel on the caller's stream, by the rules of its operation.
 */
#include "error.h"
#include "kernel_table.h"

int fa_launch(const fa_kernel *kernel, const fa_attn_args *args, void *stream, fa_diag *diag)
{
    if (kernel == NULL || args == NULL)
        return fa_fail(diag, FA_EINVAL, "kernel or args is NULL");
    return kernel->call.launcher->launch(&kernel->call, &kernel->problem, args, stream, diag);
}

size_t fa_kernel_workspace(const fa_kernel *kernel)
{
    return kernel != NULL && kernel->call.composed != NULL
               ? (size_t)kernel->call.composed->launches.workspace_bytes
               : 0;
}
