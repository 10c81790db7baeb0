/* SPDX-License-Identifier: Apache-2.0
 *
 * What is asked of the store besides kernels: lists of winners and of GPUs, and cubins.
 */
#ifndef FA_DAEMON_QUERIES_H
#define FA_DAEMON_QUERIES_H

#include "service.h"

void serve_get_winners(serve_service *service, serve_exchange *exchange);
void serve_get_cubin(serve_service *service, serve_exchange *exchange);
void serve_get_gpus(serve_service *service, serve_exchange *exchange);

#endif
