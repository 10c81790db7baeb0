/* SPDX-License-Identifier: Apache-2.0
 *
 * openapi.json as it is built in.
 */
#ifndef FA_DAEMON_OPENAPI_H
#define FA_DAEMON_OPENAPI_H

extern const char serve_openapi[];

#endif
