/* SPDX-License-Identifier: Apache-2.0 */
#include "exchange.h"

#include "connection.h"

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
