/* SPDX-License-Identifier: Apache-2.0
 *
 * GET /metrics, as Prometheus reads it.
 */
#ifndef FA_DAEMON_METRICS_H
#define FA_DAEMON_METRICS_H

#include "service.h"

char *serve_metrics_text(const serve_service *service); /* malloced */

#endif
