/* SPDX-License-Identifier: Apache-2.0 */
#include "connection.h"

#include <sys/socket.h>

enum {
    STUCK_MS = 5,
    RUNS = 16 /* of libmicrohttpd before the loop's other events get their turn */
};

static void run_now(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    connection_run(idle->data);
}

static void run_late(uv_timer_t *timer)
{
    connection_run(timer->data);
}

/* No timer of 0 ms: one that starts itself again from its callback lets nothing else happen. */
void connection_run_soon(serve_http *http)
{
    uv_idle_start(&http->soon, run_now);
}

void connection_run(serve_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms = 1;
    int64_t before = http->progress;
    for (int i = 0; i < RUNS; i++) {
        MHD_run(http->daemon);
        if (MHD_get_timeout(http->daemon, &ms) != MHD_YES || ms > 0)
            return;
    }
    /* libmicrohttpd looks for ever at a connection whose buffer is full of what it cannot read on
     * (a chunk's extension of 16 KiB), until the connection's time is up. */
    if (http->progress != before)
        connection_run_soon(http);
    else if (!uv_is_active((uv_handle_t *)&http->later))
        uv_timer_start(&http->later, run_late, STUCK_MS, 0);
}

void connection_resume(struct connection *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    MHD_resume_connection(c->mhd);
    connection_run_soon(c->http);
}

void connection_enter(struct connection *c, enum connection_phase phase)
{
    c->phase = phase;
    c->since_ms = (int64_t)uv_now(c->http->loop);
}

bool connection_is_stranger(const struct connection *c)
{
    return !c->exchange.local && !c->exchange.trusted;
}

void connection_count_stranger(const struct connection *c, int change)
{
    c->http->strangers += change;
    c->http->strangers_of[c->source] += change;
}

void connection_count(const struct connection *c, int change)
{
    c->http->open += change;
    c->http->remote += c->exchange.local ? 0 : change;
    if (connection_is_stranger(c))
        connection_count_stranger(c, change);
}

void connection_cut(struct connection *c)
{
    if (c->cut)
        return;
    connection_count(c, -1);
    c->cut = true;
    shutdown(c->fd, SHUT_RDWR);
    /* A connection whose buffer is full is not read again, and its end would not be seen. */
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    connection_resume(c);
}
