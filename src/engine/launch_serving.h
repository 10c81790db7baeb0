/* SPDX-License-Identifier: Apache-2.0
 *
 * Launches of kernels that take fa_attn_serving_params, and the scratch memory of a call.
 */
#ifndef FA_ENGINE_LAUNCH_SERVING_H
#define FA_ENGINE_LAUNCH_SERVING_H

#include "attn_serving_params.h"
#include "kernel_table.h"

/* The rest of fa_launch, with what it has checked and gathered. */
int fa_launch_serving(const fa_kernel *kernel, const fa_attn_args *args,
                      const struct fa_attn_params *dense, void *stream, fa_diag *diag);

/* The workspace of a call: the caller's, or the kernel's own. FA_EINVAL: the caller's is too small. */
int fa_launch_workspace(const fa_kernel *kernel, const fa_attn_args *args, fa_device_ptr *ret_at,
                        fa_diag *diag);

#endif
