/* SPDX-License-Identifier: Apache-2.0
 *
 * Clients that wait for the same thing, or listen to it. An exchange is in one such list at most.
 */
#ifndef FA_DAEMON_WAITERS_H
#define FA_DAEMON_WAITERS_H

#include "exchange.h"

typedef struct serve_waiters {
    serve_exchange *first;
    int count;
} serve_waiters;

/* due_ms: when the exchange has waited long enough; 0: never. */
void serve_waiters_add(serve_waiters *waiters, serve_exchange *exchange, int64_t due_ms);
/* Takes an exchange out of the list that it is in, if it is in one. */
void serve_waiters_remove(serve_exchange *exchange);
/* Takes the first exchange out; NULL: nobody waits. */
serve_exchange *serve_waiters_take(serve_waiters *waiters);
/* Takes out those whose time has come, and calls due() of each. */
void serve_waiters_expire(serve_waiters *waiters, int64_t now_ms,
                          void (*due)(void *context, serve_exchange *exchange), void *context);

#endif
