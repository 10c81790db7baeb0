/* SPDX-License-Identifier: Apache-2.0
 *
 * The service from its start to its stop: its threads, its clock, and what an earlier process left.
 */
#ifndef FA_DAEMON_LIFECYCLE_H
#define FA_DAEMON_LIFECYCLE_H

#include "service.h"

/* Starts its threads; ready() is called when the store is open and earlier jobs are known. */
int serve_service_open(uv_loop_t *loop, const serve_settings *settings,
                       void (*ready)(void *context), void *context, serve_service **ret_service,
                       fa_diag *diag);
/* Stops accepting and cancels what runs; its jobs stay in the journal. */
void serve_service_stop(serve_service *service);
/* Whether everything has come to its end. */
bool serve_service_stopped(const serve_service *service);
void serve_service_close(serve_service **service);

#endif
