/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's life, its connections' deadlines, and who makes room when there are too many.
 * libmicrohttpd knows a timeout for inactivity only, so time is kept here: a connection whose part of
 * a request takes too long has its socket shut down, and libmicrohttpd then clears it away.
 */
#include "http.h"

#include "callbacks.h"
#include "connection.h"
#include "error.h"
#include "auth.h"
#include "reply.h"

#include <stdlib.h>
#include <unistd.h>

enum {
    TICK_MS = 250,
    POOL_BYTES = 16 * 1024, /* for one head, and the head of its answer */
    SLACK = 512             /* connections that are closing: a turn of accepting on each listener */
};

/* ---- time -----------------------------------------------------------------------------------*/
static bool overdue(const struct connection *c)
{
    const serve_http_limits *limits = &c->http->limits;
    int64_t waited = (int64_t)uv_now(c->http->loop) - c->since_ms;
    switch (c->phase) {
    case CONNECTION_IDLE:
        return waited > (c->served ? limits->idle_ms : limits->head_ms);
    case CONNECTION_BODY:
        return waited > limits->body_ms;
    case CONNECTION_SEND:
        return waited > limits->send_ms;
    case CONNECTION_STREAM:
        return !c->suspended && waited > limits->send_ms;
    case CONNECTION_WORK:
        break;
    }
    return false;
}

static void tick(uv_timer_t *timer)
{
    serve_http *http = timer->data;
    for (struct connection *c = http->first; c != NULL; c = c->next) {
        if (c->cut)
            continue;
        if (overdue(c)) {
            http->counts.timed_out++;
            connection_cut(c);
        } else if (c->suspended && !serve_is_connected(&c->exchange)) { /* nobody tells of it */
            connection_cut(c);
        }
    }
    connection_run(http);
}

static void readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    connection_run(poll->data);
}

/* ---- life -----------------------------------------------------------------------------------*/
int serve_http_open(uv_loop_t *loop, const serve_http_limits *limits,
                    const serve_http_events *events, void *context, serve_http **ret_http,
                    fa_diag *diag)
{
    serve_http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the HTTP server");
    http->loop = loop;
    http->limits = *limits;
    http->counts.bodies.limit = limits->bodies;
    http->events = *events;
    http->context = context;
    const bool logs = MHD_is_feature_supported(MHD_FEATURE_MESSAGES) == MHD_YES;
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO |
            (logs ? MHD_USE_ERROR_LOG : 0u),
        0, NULL, NULL, http_handle, http, MHD_OPTION_EXTERNAL_LOGGER, http_log, http,
        MHD_OPTION_NOTIFY_COMPLETED, http_request_over, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        http_connection_changed, http, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(limits->connections + SLACK), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_UNESCAPE_CALLBACK,
        http_unescape, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1,
        MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        http->daemon != NULL ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    int fd = info != NULL ? info->epoll_fd : -1;
    int rc = fd < 0 ? UV_EINVAL : uv_poll_init(loop, &http->poll, fd);
    if (rc != 0) {
        if (http->daemon != NULL)
            MHD_stop_daemon(http->daemon);
        free(http);
        return fa_fail(diag, FA_EIO, "libmicrohttpd did not start (%s): is its epoll there?",
                       fd < 0 ? "no descriptor" : uv_strerror(rc));
    }
    uv_idle_init(loop, &http->soon);
    uv_timer_init(loop, &http->later);
    uv_timer_init(loop, &http->tick);
    http->poll.data = http->soon.data = http->later.data = http->tick.data = http;
    uv_poll_start(&http->poll, UV_READABLE, readable);
    uv_timer_start(&http->tick, tick, TICK_MS, TICK_MS);
    *ret_http = http;
    return 0;
}

static void closed(uv_handle_t *handle)
{
    serve_http *http = handle->data;
    if (--http->open_handles == 0)
        free(http);
}

void serve_http_close(serve_http **http)
{
    if (http == NULL || *http == NULL)
        return;
    serve_http *h = *http;
    for (struct connection *c = h->first; c != NULL; c = c->next)
        connection_cut(c);
    MHD_run(h->daemon); /* resumes those that waited */
    MHD_stop_daemon(h->daemon);
    h->open_handles = 4;
    uv_close((uv_handle_t *)&h->poll, closed);
    uv_close((uv_handle_t *)&h->soon, closed);
    uv_close((uv_handle_t *)&h->later, closed);
    uv_close((uv_handle_t *)&h->tick, closed);
    *http = NULL;
}

void serve_http_drain(serve_http *http)
{
    http->draining = true;
    for (struct connection *c = http->first; c != NULL; c = c->next)
        if (c->phase == CONNECTION_IDLE)
            connection_cut(c);
    connection_run_soon(http);
}

static bool is_idle(const struct connection *c)
{
    return c->phase == CONNECTION_IDLE;
}

static bool is_idle_and_remote(const struct connection *c)
{
    return c->phase == CONNECTION_IDLE && !c->exchange.local;
}

/* How many strangers come from where this one does; 0: it is none. */
static int crowd_of(const struct connection *c)
{
    return connection_is_stranger(c) ? c->http->strangers_of[c->source] : 0;
}

/* Of the connections that may go, one of the largest crowd of strangers makes room, so that a crowd pushes
 * out its own; of these the one that has been in its phase for longest. */
static bool evict(serve_http *http, bool (*may_go)(const struct connection *c))
{
    struct connection *out = NULL;
    int largest = 0;
    for (struct connection *c = http->first; c != NULL; c = c->next) {
        int crowd = crowd_of(c);
        bool sooner =
            out == NULL || crowd > largest || (crowd == largest && c->since_ms <= out->since_ms);
        if (c->cut || !may_go(c) || !sooner)
            continue;
        out = c;
        largest = crowd;
    }
    if (out == NULL)
        return false;
    connection_cut(out);
    http->counts.evicted++;
    return true;
}

/* A client without the token loses its connection whatever it is doing: its requests are short, and the
 * new connection may be that of a client with the token, of who opens the page, or of a probe. */
static bool make_room(serve_http *http, bool local)
{
    const serve_http_limits *limits = &http->limits;
    if (!local && http->strangers >= limits->strangers && !evict(http, connection_is_stranger))
        return false;
    if (!local && http->remote >= limits->remote && !evict(http, is_idle_and_remote))
        return false;
    return http->open < limits->connections || evict(http, is_idle_and_remote) ||
           evict(http, is_idle) || (local && evict(http, connection_is_stranger));
}

int serve_http_adopt(serve_http *http, int fd, bool local)
{
    struct sockaddr_un nobody = {.sun_family = AF_UNIX};
    if (http->draining || !make_room(http, local)) {
        http->counts.refused++;
        serve_send_alone(fd, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY,
                         "too many connections are open");
        close(fd);
        return FA_EBUSY;
    }
    http->adopting_local = local;
    http->adopting_source = local ? 0 : serve_peer_of(fd) % CONNECTION_SOURCES;
    if (MHD_add_connection(http->daemon, fd, (struct sockaddr *)&nobody, sizeof nobody) !=
        MHD_YES) {
        http->counts.refused++; /* libmicrohttpd has closed it */
        return FA_EIO;
    }
    http->counts.accepted++;
    connection_run_soon(http);
    return 0;
}

const serve_http_counts *serve_http_counted(const serve_http *http)
{
    return &http->counts;
}

int serve_http_busy(const serve_http *http)
{
    return http->busy;
}
