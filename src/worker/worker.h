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

#endif
