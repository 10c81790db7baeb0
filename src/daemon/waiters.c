/* SPDX-License-Identifier: Apache-2.0 */
#include "waiters.h"

#include "list.h"

void serve_waiters_add(serve_waiters *waiters, serve_exchange *exchange, int64_t due_ms)
{
    exchange->waits_in = waiters;
    exchange->due_ms = due_ms;
    SERVE_LIST_ADD(waiters->first, exchange);
    waiters->count++;
}

void serve_waiters_remove(serve_exchange *exchange)
{
    serve_waiters *waiters = exchange->waits_in;
    if (waiters == NULL)
        return;
    SERVE_LIST_REMOVE(waiters->first, exchange);
    exchange->waits_in = NULL;
    waiters->count--;
}

serve_exchange *serve_waiters_take(serve_waiters *waiters)
{
    serve_exchange *exchange = waiters->first;
    if (exchange != NULL)
        serve_waiters_remove(exchange);
    return exchange;
}

void serve_waiters_expire(serve_waiters *waiters, int64_t now_ms,
                          void (*due)(void *context, serve_exchange *exchange), void *context)
{
    serve_exchange *next;
    for (serve_exchange *e = waiters->first; e != NULL; e = next) {
        next = e->next;
        if (e->due_ms != 0 && now_ms >= e->due_ms) {
            serve_waiters_remove(e);
            due(context, e);
        }
    }
}
