/* SPDX-License-Identifier: Apache-2.0
 *
 * How a compile worker is started: the same way for a tune, for a bundle and for the doctor.
 */
#ifndef FA_COMPILE_WORKER_H
#define FA_COMPILE_WORKER_H

#include "manifest.h"
#include "nvrtc.h"
#include "pool.h"

/* A compile worker that loads NVRTC and then says {"rc":…}; its environment is empty.
 * strict_ms: 0, or how long a compile of source from outside may take, in the strict sandbox. */
int fa_compile_worker_start(fa_loop *loop, const char *path, const fa_nvrtc_location *nvrtc,
                            int strict_ms, const fa_child_events *events, void *context,
                            fa_child **ret_child, fa_diag *diag);
/* The first message to one: the headers that sources may include. */
int fa_compile_worker_headers(fa_child *child, const fa_templates *templates, fa_diag *diag);

#endif
