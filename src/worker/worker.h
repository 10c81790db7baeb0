/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker process's roles, and the words both ends use. One executable:
 *   fa-tune-worker compile LIBNVRTC BUILTINS MAJOR MINOR   source in, cubin out
 *   fa-tune-worker measure ORDINAL                         cubin in, proof and samples out
 * Messages come and go on descriptor 3. The first answer of a role is {"rc":…} and says whether it could start.
 */
#ifndef FA_ENGINE_WORKER_H
#define FA_ENGINE_WORKER_H

#include "pool.h"
#include "fa_types.h"
#include "nvrtc.h"

int fa_worker_compile(int fd, const fa_nvrtc_location *location);
int fa_worker_measure(int fd, int ordinal);

/* {"rc":code,"text":sentence} */
cJSON *fa_worker_answer(int rc, const fa_diag *diag);

/* ---- what a compile worker gives up before it sees any source --------------------------------*/
/* Bounds address space, open files, file size and core size of this process. */
int fa_sandbox_limit(fa_diag *diag);
/* Takes away the file system (Landlock, where the kernel has it): nothing can be opened any more,
 * so that an #include of a file outside the templates finds nothing. *ret_confined says whether it
 * holds. Call it after every library is loaded. */
int fa_sandbox_confine(bool *ret_confined, fa_diag *diag);
/* Ends this process as soon as the other end of fd is gone, also in the middle of a compile. */
int fa_sandbox_follow(int fd, fa_diag *diag);

#endif
