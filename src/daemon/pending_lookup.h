/* SPDX-License-Identifier: Apache-2.0
 *
 * What the lookup thread does for a pending request: from its ask to an answer, or to what a tune is
 * for.
 */
#ifndef FA_DAEMON_PENDING_LOOKUP_H
#define FA_DAEMON_PENDING_LOOKUP_H

#include "pending.h"

bool serve_pending_is_sweep(const serve_pending *pending);
/* The request of its ask, whose gpu points to the pending request's name. */
int serve_lookup_request(serve_pending *pending, fa_request *ret_request, fa_diag *diag);
/* A pending request's serve_task.work. */
void serve_lookup_work(serve_task *task, serve_thread *thread);

#endif
