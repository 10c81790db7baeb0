/* SPDX-License-Identifier: Apache-2.0
 *
 * The routes: which handler answers a request, who may send it, and how large its body may be; their description and
 * the metrics.
 */
#ifndef FA_DAEMON_ROUTES_H
#define FA_DAEMON_ROUTES_H

#include "service.h"
#include "http.h"

extern const char serve_openapi_document[]; /* without the problems */

/* The whole description; malloced, NULL: out of memory. */
char *serve_openapi_text(void);

extern const serve_http_events serve_routes; /* their context is a serve_service */

#endif
