/* SPDX-License-Identifier: Apache-2.0
 *
 * The worker process's two roles, and the words both ends use. One executable:
 *   fa-tune-worker compile LIBNVRTC BUILTINS MAJOR MINOR [SECONDS]   source in, cubin out; SECONDS:
 *                                                          of a compile, in the strict sandbox
 *   fa-tune-worker measure ORDINAL                         cubin in, proof and samples out
 * Messages come and go on descriptor 3. The first answer of either role is {"rc":…} and says
 * whether it could start.
 */
#ifndef FA_ENGINE_WORKER_H
#define FA_ENGINE_WORKER_H

#include "channel.h"
#include "nvrtc.h"

/* strict_s: 0, or the strict sandbox and the processor time that one compile in it may take. */
int fa_worker_compile(int fd, const fa_nvrtc_location *location, int strict_s);
int fa_worker_measure(int fd, int ordinal);

/* {"rc":code,"text":sentence} */
cJSON *fa_worker_answer(int rc, const fa_diag *diag);

#endif
