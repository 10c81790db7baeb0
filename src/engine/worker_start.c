/* SPDX-License-Identifier: Apache-2.0
 *
 * How a compile worker is started: the same way for a tune and for the doctor.
 */
#include "engine.h"

#include <stdio.h>

int fa_compile_worker_start(uv_loop_t *loop, const char *path, const fa_nvrtc_location *nvrtc,
                            const fa_child_events *events, void *context, fa_child **ret_child,
                            fa_diag *diag)
{
    char major[16], minor[16];
    char *const arguments[] = {"fa-tune-worker", "compile", (char *)(uintptr_t)nvrtc->library,
                               (char *)(uintptr_t)nvrtc->builtins, major, minor, NULL};
    char *const nothing[] = {NULL}; /* a source could read the environment */
    snprintf(major, sizeof major, "%d", nvrtc->major);
    snprintf(minor, sizeof minor, "%d", nvrtc->minor);
    return fa_child_start(loop, path, arguments, nothing, events, context, ret_child, diag);
}
