/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include "connection.h"
#include "list.h"

#include <errno.h>
#include <sys/socket.h>

bool serve_is_connected(const serve_exchange *exchange)
{
    const struct connection *c = (const struct connection *)exchange;
    char byte;
    if (c->cut)
        return false;
    ssize_t got = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

const char *serve_argument(const serve_exchange *exchange, const char *name)
{
    const struct connection *c = (const struct connection *)exchange;
    return MHD_lookup_connection_value(c->mhd, MHD_GET_ARGUMENT_KIND, name);
}

const char *serve_header(const serve_exchange *exchange, const char *name)
{
    const struct connection *c = (const struct connection *)exchange;
    return MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, name);
}

serve_body *serve_exchange_body(serve_exchange *exchange)
{
    struct connection *c = (struct connection *)exchange;
    return c->body != NULL ? serve_body_keep(c->body)
                           : serve_body_make(exchange->body, exchange->body_size, NULL);
}

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
