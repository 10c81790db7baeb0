/* SPDX-License-Identifier: Apache-2.0
 *
 * Bodies of requests: shared by all who need the bytes, and bounded in sum. What a connection reads
 * and what waits to be looked up counts against one budget; a body that fits into its connection
 * does not count, so that lookups go on while sweeps are told to come back.
 *
 * Invariants: the loop's thread makes, keeps and drops bodies; other threads read the bytes of a
 * body that the loop holds for them.
 */
#ifndef FA_DAEMON_BODY_H
#define FA_DAEMON_BODY_H

#include <stddef.h>

typedef struct serve_body_budget {
    size_t used, limit;
} serve_body_budget;

typedef struct serve_body {
    serve_body_budget *budget; /* NULL: it does not count */
    int references;
    size_t size, capacity;
    char bytes[]; /* `size` of them, then a NUL */
} serve_body;

/* A copy with one reference; NULL: out of memory, or over the budget (which may be NULL). */
serve_body *serve_body_make(const char *bytes, size_t size, serve_body_budget *budget);
/* Of a body that nobody else holds: 0, FA_ENOMEM, or FA_EBUSY over the budget; then it is as it was. */
int serve_body_append(serve_body **body, const char *bytes, size_t size);
serve_body *serve_body_keep(serve_body *body);
void serve_body_drop(serve_body **body); /* NULL and pointer to NULL are allowed */

#endif
