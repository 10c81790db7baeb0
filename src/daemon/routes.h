/* SPDX-License-Identifier: Apache-2.0
 *
 * The routes: which handler answers a request, who may send it, and how large its body may be.
 */
#ifndef FA_DAEMON_ROUTES_H
#define FA_DAEMON_ROUTES_H

#include "http.h"

extern const serve_http_events serve_routes; /* their context is a serve_service */

#endif
