/* SPDX-License-Identifier: Apache-2.0
 *
 * The server's life, its connections' deadlines, and who makes room when there are too many.
 * libmicrohttpd knows a timeout for inactivity only, so time is kept here: a connection whose part of
 * a request takes too long has its socket shut down, and libmicrohttpd then clears it away.
 *
 * libmicrohttpd calls back as a request comes in part by part and as its reply goes out; where it reads a head more
 * kindly than a proxy before the daemon may, the head is refused here.
 */
#include "http.h"

#include "connection.h"
#include "error.h"
#include "service.h"

#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

enum {
    TICK_MS = 250,
    POOL_BYTES = 16 * 1024, /* for one head, and the head of its answer */
    SLACK = 512,            /* connections that are closing: a turn of accepting on each listener */
    DISCARD = 1 << 20 /* bytes read of a body that is not taken, so that the client reads why */
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

/* A client may close its sending side and wait for the reply, so the end of what it sends does not count. Over TCP the
 * kernel knows that both sides are closed from the answer to the next bytes or probe: serve_listener_accept(). */
static bool has_left(const struct connection *c)
{
    struct pollfd client = {.fd = c->fd};
    return poll(&client, 1, 0) > 0 && (client.revents & (POLLHUP | POLLERR)) != 0;
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
        } else if (c->suspended && has_left(c)) { /* libmicrohttpd does not look at it */
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

/* ---- what libmicrohttpd calls ----------------------------------------------------------------*/
/* A head must say the length of its body once and in one way: libmicrohttpd takes the first of two
 * lengths, a proxy might take the other, and one client's body would be another client's request.
 * The same holds for whom it asks, who asks, and from where. */
struct framing {
    int lengths, encodings, hosts, tokens, origins;
    size_t length;
    bool odd;
};

static enum MHD_Result look_at_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    struct framing *framing = context;
    (void)kind;
    if (strpbrk(name, " \t") != NULL) { /* "Content-Length : 5", which some take for the length */
        framing->odd = true;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        framing->lengths++;
        framing->odd |= value == NULL || *value == 0 || value[strspn(value, "0123456789")] != 0;
        framing->length = framing->odd ? 0 : (size_t)strtoull(value, NULL, 10);
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        framing->encodings++;
        framing->odd |= value == NULL || strcasecmp(value, "chunked") != 0;
        framing->length = SIZE_MAX;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        framing->hosts++;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_AUTHORIZATION) == 0) {
        framing->tokens++;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_ORIGIN) == 0) {
        framing->origins++;
    }
    return MHD_YES;
}

/* Whether a head can be read in two ways; else exchange.announced is set. */
static bool is_ambiguous(struct connection *c)
{
    struct framing framing = {0};
    MHD_get_connection_values(c->mhd, MHD_HEADER_KIND, look_at_header, &framing);
    c->exchange.announced = framing.length;
    return framing.odd || framing.lengths + framing.encodings > 1 || framing.hosts > 1 ||
           framing.tokens > 1 || framing.origins > 1;
}

/* A NUL would end the path where another reader of it goes on: it stays as it is written, and then
 * there is nothing at that path. */
static size_t http_unescape(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context;
    (void)mhd;
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}

/* Frees what belongs to one request. */
static void forget_request(struct connection *c)
{
    serve_exchange *exchange = &c->exchange;
    bool local = exchange->local, trusted = exchange->trusted;
    if (c->at_work) {
        c->at_work = false;
        c->http->busy--;
        c->http->events.over(c->http->context, exchange);
    }
    serve_page_drop(&c->page);
    serve_body_drop(&c->body);
    fa_buf_free(&c->out);
    c->out_taken = 0;
    c->waits = c->ended = c->overlong = false;
    memset(exchange, 0, sizeof *exchange);
    exchange->local = local;
    exchange->trusted = trusted;
}

static void http_connection_changed(void *context, struct MHD_Connection *mhd,
                                    void **socket_context, enum MHD_ConnectionNotificationCode code)
{
    serve_http *http = context;
    struct connection *c = *socket_context;
    http->progress++;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        c = info != NULL ? calloc(1, sizeof *c) : NULL;
        *socket_context = c;
        if (c == NULL)
            return;
        c->http = http;
        c->mhd = mhd;
        c->fd = info->connect_fd;
        c->exchange.local = http->adopting_local;
        c->source = http->adopting_source;
        connection_enter(c, CONNECTION_IDLE);
        SERVE_LIST_ADD(http->first, c);
        http->counts.connections++;
        connection_count(c, 1);
        return;
    }
    *socket_context = NULL;
    if (c == NULL)
        return;
    SERVE_LIST_REMOVE(http->first, c);
    http->counts.connections--;
    if (!c->cut)
        connection_count(c, -1);
    forget_request(c);
    free(c);
}

static void http_request_over(void *context, struct MHD_Connection *mhd, void **request_context,
                              enum MHD_RequestTerminationCode code)
{
    struct connection *c = *request_context;
    (void)context;
    (void)mhd;
    (void)code;
    if (c == NULL)
        return;
    *request_context = NULL;
    forget_request(c);
    c->served = true;
    connection_enter(c, CONNECTION_IDLE);
    if (c->http->draining || c->ambiguous)
        connection_cut(c);
}

static enum MHD_Result queue_reply(struct connection *c)
{
    serve_exchange *exchange = &c->exchange;
    unsigned hundreds = exchange->status / 100;
    if (c->phase != CONNECTION_STREAM)
        connection_enter(c, CONNECTION_SEND);
    c->http->counts.replies[hundreds < 6 ? hundreds : 5]++;
    enum MHD_Result rc = MHD_queue_response(c->mhd, exchange->status, c->page->response);
    serve_page_drop(&c->page);
    return rc;
}

/* After a callback of the service: what it has decided. libmicrohttpd first sees that the request is whole and nothing is to
 * be read, for it reads from a connection as it did before it was suspended, and closes one whose client has closed its
 * sending side. */
static enum MHD_Result go_on(struct connection *c)
{
    if (c->cut)
        return MHD_NO;
    if (c->page != NULL)
        return queue_reply(c);
    if (c->exchange.status != 0) /* memory was short */
        return MHD_NO;
    c->suspended = c->waits;
    c->waits = true;
    if (c->suspended)
        MHD_suspend_connection(c->mhd);
    return MHD_YES;
}

static enum MHD_Result begin_request(struct connection *c, const char *url, const char *method)
{
    serve_http *http = c->http;
    serve_exchange *exchange = &c->exchange;
    bool stranger = connection_is_stranger(c);
    exchange->method = method;
    exchange->path = url;
    http->counts.requests++;
    http->busy++;
    c->at_work = true;
    connection_enter(c, CONNECTION_BODY);
    c->ambiguous = is_ambiguous(c);
    if (c->ambiguous)
        serve_reply_refused(exchange, MHD_HTTP_BAD_REQUEST, FA_EINVAL,
                            "the host, the token, the origin or the length of the body is said "
                            "twice, or in no way that is known",
                            0);
    else
        http->events.head(http->context, exchange);
    if (stranger && exchange->trusted)
        connection_count_stranger(c, -1);
    if (exchange->status == 0 && exchange->announced != SIZE_MAX &&
        exchange->announced > exchange->body_limit + DISCARD)
        serve_reply_refused(exchange, MHD_HTTP_CONTENT_TOO_LARGE, FA_EINVAL,
                            "the body is much larger than this server takes", 0);
    if (exchange->status == 0 && exchange->announced != SIZE_MAX &&
        exchange->announced >= sizeof c->small && exchange->announced <= exchange->body_limit &&
        exchange->announced > http->counts.bodies.limit - http->counts.bodies.used)
        serve_reply_no_memory(exchange);
    if (exchange->status == 0)
        return MHD_YES;
    return c->page != NULL ? queue_reply(c) : MHD_NO;
}

/* The body goes into its connection as long as it fits there. */
static bool keep_body(struct connection *c, const char *bytes, size_t size)
{
    serve_exchange *exchange = &c->exchange;
    if (c->body == NULL && exchange->body_size + size < sizeof c->small) {
        memcpy(c->small + exchange->body_size, bytes, size);
        return true;
    }
    if (c->body == NULL)
        c->body = serve_body_make(c->small, exchange->body_size, &c->http->counts.bodies);
    return c->body != NULL && serve_body_append(&c->body, bytes, size) == 0;
}

static enum MHD_Result take_body(struct connection *c, const char *bytes, size_t size)
{
    serve_exchange *exchange = &c->exchange;
    size_t needed = exchange->body_size + size;
    if (!c->overlong && needed <= exchange->body_limit && !keep_body(c, bytes, size))
        exchange->body_lost = true;
    exchange->body_size = needed;
    if (needed > exchange->body_limit || exchange->body_lost) {
        c->overlong = true;
        serve_body_drop(&c->body);
    }
    return needed > exchange->body_limit + DISCARD ? MHD_NO : MHD_YES;
}

static enum MHD_Result http_handle(void *context, struct MHD_Connection *mhd, const char *url,
                                   const char *method, const char *version, const char *upload,
                                   size_t *upload_size, void **request_context)
{
    serve_http *http = context;
    struct connection *c = *request_context;
    (void)version;
    http->progress++;
    if (c == NULL) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
        c = info != NULL ? info->socket_context : NULL;
        if (c == NULL || c->cut)
            return MHD_NO;
        *request_context = c;
        return begin_request(c, url, method);
    }
    if (*upload_size > 0) {
        size_t size = *upload_size;
        *upload_size = 0;
        return c->page != NULL || c->cut ? MHD_NO : take_body(c, upload, size);
    }
    if (c->phase == CONNECTION_BODY) {
        serve_exchange *exchange = &c->exchange;
        connection_enter(c, CONNECTION_WORK);
        if (c->body == NULL)
            c->small[c->overlong ? 0 : exchange->body_size] = 0;
        exchange->body = c->body != NULL ? c->body->bytes : c->small;
        http->events.request(http->context, exchange);
    }
    return go_on(c);
}

/* libmicrohttpd answers a head that it does not take by itself, with a page of its own, and up to
 * 0.9.75 says that answer's head twice when it is a header that is wrong. It tells its log before it
 * does so, and the connection is then the only one whose head is whole while its request has not
 * begun: such a request is answered here, and libmicrohttpd finds the connection shut. */
static void http_log(void *context, const char *format, va_list arguments)
{
    static const char told[] = "Error processing request";
    serve_http *http = context;
    if (strncmp(format, told, sizeof told - 1) != 0)
        return;
    struct connection *c = http->first;
    while (c != NULL &&
           (c->at_work || c->cut ||
            MHD_get_connection_info(c->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE) == NULL))
        c = c->next;
    if (c == NULL)
        return;
    unsigned status = va_arg(arguments, unsigned);
    http->counts.requests++;
    http->counts.replies[status / 100 < 6 ? status / 100 : 5]++;
    serve_send_alone(c->fd, status, FA_EINVAL,
                     "a header of this request is missing, wrong or too large");
    connection_cut(c);
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
