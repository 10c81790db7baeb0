/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of what is served: openapi.json as it is built in, with the problems of every
 * operation that this process knows.
 */
#ifndef FA_DAEMON_OPENAPI_H
#define FA_DAEMON_OPENAPI_H

extern const char serve_openapi_document[]; /* without the problems */

/* The whole description; malloced, NULL: out of memory. */
char *serve_openapi_text(void);
/* Operations that it would describe now. */
int serve_openapi_operations(void);

#endif
