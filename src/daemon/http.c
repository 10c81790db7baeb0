/* SPDX-License-Identifier: Apache-2.0
 *
 * Connections, their deadlines, and libmicrohttpd's callbacks. libmicrohttpd knows a timeout for
 * inactivity only, so time is kept here: a connection whose part of a request takes too long has
 * its socket shut down, and libmicrohttpd then clears it away.
 */
#include "http.h"

#include "buf.h"
#include "connection.h"
#include "error.h"
#include "list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    TICK_MS = 250,
    STUCK_MS = 5,
    RUNS = 16,              /* of libmicrohttpd before the loop's others get their turn */
    POOL_BYTES = 16 * 1024, /* for one head, and the head of its answer */
    SLACK = 128,            /* connections that are closing */
    DISCARD = 1 << 20       /* of a body that is too large, so that the client reads the reply */
};

/* ---- time -----------------------------------------------------------------------------------*/
static int64_t now_ms(const serve_http *http)
{
    return (int64_t)uv_now(http->loop);
}

static void enter(struct connection *c, enum connection_phase phase)
{
    c->phase = phase;
    c->since_ms = now_ms(c->http);
}

/* libmicrohttpd looks at a suspended connection only after it is resumed. */
void connection_resume(struct connection *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    MHD_resume_connection(c->mhd);
    serve_http_run_soon(c->http);
}

static bool is_stranger(const struct connection *c)
{
    return !c->exchange.local && !c->exchange.trusted;
}

static void count(const struct connection *c, int change)
{
    c->http->open += change;
    c->http->remote += c->exchange.local ? 0 : change;
    c->http->strangers += is_stranger(c) ? change : 0;
}

static void cut(struct connection *c)
{
    if (c->cut)
        return;
    count(c, -1);
    c->cut = true;
    shutdown(c->fd, SHUT_RDWR);
    /* One whose buffer is full is not read again, and its end is not seen. */
    MHD_set_connection_option(c->mhd, MHD_CONNECTION_OPTION_TIMEOUT, 1u);
    connection_resume(c);
}

/* Nobody tells of a client that hangs up while its connection is suspended. */
static bool hung_up(const struct connection *c)
{
    char byte;
    ssize_t got = recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool serve_is_connected(const serve_exchange *exchange)
{
    const struct connection *c = (const struct connection *)exchange;
    return !c->cut && !hung_up(c);
}

static bool overdue(const struct connection *c)
{
    const serve_http_limits *limits = &c->http->limits;
    int64_t waited = now_ms(c->http) - c->since_ms;
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
            cut(c);
        } else if (c->suspended && hung_up(c)) {
            cut(c);
        }
    }
    serve_http_run(http);
}

/* ---- running --------------------------------------------------------------------------------*/
static void run_now(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    serve_http_run(idle->data);
}

static void run_late(uv_timer_t *timer)
{
    serve_http_run(timer->data);
}

/* No timer of 0 ms: one that starts itself again from its callback lets nothing else happen. */
void serve_http_run_soon(serve_http *http)
{
    uv_idle_start(&http->soon, run_now);
}

void serve_http_run(serve_http *http)
{
    MHD_UNSIGNED_LONG_LONG ms = 1;
    int64_t before = http->progress;
    for (int i = 0; i < RUNS; i++) {
        MHD_run(http->daemon);
        if (MHD_get_timeout(http->daemon, &ms) != MHD_YES || ms > 0)
            return;
    }
    /* A connection whose buffer is full of what cannot be read on (a chunk's extension of 16
     * KiB) is looked at for ever, until its time is up. */
    if (http->progress != before)
        serve_http_run_soon(http);
    else if (!uv_is_active((uv_handle_t *)&http->later))
        uv_timer_start(&http->later, run_late, STUCK_MS, 0);
}

static void readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    serve_http_run(poll->data);
}

/* ---- libmicrohttpd's callbacks ---------------------------------------------------------------*/
/* An error as a whole reply, written past libmicrohttpd to a connection that ends with it. */
static void send_alone(int fd, unsigned status, int code, const char *message)
{
    char reply[512], *text = serve_error_text(code, message, NULL);
    if (text == NULL)
        return;
    int size = snprintf(reply, sizeof reply,
                        "HTTP/1.1 %u %s\r\n%sContent-Type: application/json\r\n"
                        "Content-Length: %zu\r\nConnection: close\r\n\r\n%s",
                        status, MHD_get_reason_phrase_for(status),
                        status == MHD_HTTP_SERVICE_UNAVAILABLE ? "Retry-After: 1\r\n" : "",
                        strlen(text), text);
    free(text);
    if (size > 0 && (size_t)size < sizeof reply)
        (void)!send(fd, reply, (size_t)size, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void connection_changed(void *context, struct MHD_Connection *mhd, void **socket_context,
                               enum MHD_ConnectionNotificationCode code)
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
        enter(c, CONNECTION_IDLE);
        SERVE_LIST_ADD(http->first, c);
        http->counts.connections++;
        count(c, 1);
        return;
    }
    *socket_context = NULL;
    if (c == NULL)
        return;
    SERVE_LIST_REMOVE(http->first, c);
    http->counts.connections--;
    if (!c->cut)
        count(c, -1);
    connection_forget(c);
    free(c);
}

/* Frees what belongs to one request. */
void connection_forget(struct connection *c)
{
    serve_exchange *exchange = &c->exchange;
    bool local = exchange->local, trusted = exchange->trusted;
    if (c->at_work) {
        c->at_work = false;
        c->http->busy--;
        c->http->events.over(c->http->context, exchange);
    }
    serve_page_drop(&c->page);
    if (c->body != c->small)
        free(c->body);
    c->body = c->small;
    c->body_capacity = sizeof c->small;
    fa_buf_free(&c->out);
    c->out_taken = 0;
    c->ended = c->overlong = false;
    memset(exchange, 0, sizeof *exchange);
    exchange->local = local;
    exchange->trusted = trusted;
}

static void request_over(void *context, struct MHD_Connection *mhd, void **request_context,
                         enum MHD_RequestTerminationCode code)
{
    struct connection *c = *request_context;
    (void)context;
    (void)mhd;
    (void)code;
    if (c == NULL)
        return;
    *request_context = NULL;
    connection_forget(c);
    c->served = true;
    enter(c, CONNECTION_IDLE);
    if (c->http->draining || c->ambiguous)
        cut(c);
}

static enum MHD_Result queue_reply(struct connection *c)
{
    serve_exchange *exchange = &c->exchange;
    unsigned hundreds = exchange->status / 100;
    if (c->phase != CONNECTION_STREAM)
        enter(c, CONNECTION_SEND);
    c->http->counts.replies[hundreds < 6 ? hundreds : 5]++;
    enum MHD_Result rc = MHD_queue_response(c->mhd, exchange->status, c->page->response);
    serve_page_drop(&c->page);
    return rc;
}

/* After a callback of the service: what it has decided. */
static enum MHD_Result go_on(struct connection *c)
{
    if (c->cut)
        return MHD_NO;
    if (c->page != NULL)
        return queue_reply(c);
    if (c->exchange.status != 0) /* memory was short */
        return MHD_NO;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    return MHD_YES;
}

static enum MHD_Result begin(struct connection *c, const char *url, const char *method)
{
    serve_http *http = c->http;
    serve_exchange *exchange = &c->exchange;
    bool stranger = is_stranger(c);
    c->body = c->small;
    c->body_capacity = sizeof c->small;
    exchange->method = method;
    exchange->path = url;
    http->counts.requests++;
    http->busy++;
    c->at_work = true;
    enter(c, CONNECTION_BODY);
    c->ambiguous = connection_is_ambiguous(c);
    if (c->ambiguous)
        serve_reply_refused(exchange, MHD_HTTP_BAD_REQUEST, FA_EINVAL,
                            "the host or the length of the body is said twice, or in no way that "
                            "is known",
                            0);
    else
        http->events.head(http->context, exchange);
    if (stranger && exchange->trusted)
        http->strangers--;
    if (exchange->status == 0 && exchange->announced != SIZE_MAX &&
        exchange->announced > exchange->body_limit + DISCARD)
        serve_reply_refused(exchange, MHD_HTTP_CONTENT_TOO_LARGE, FA_EINVAL,
                            "the body is much larger than this server takes", 0);
    if (exchange->status == 0)
        return MHD_YES;
    return c->page != NULL ? queue_reply(c) : MHD_NO;
}

static enum MHD_Result take_body(struct connection *c, const char *bytes, size_t size)
{
    serve_exchange *exchange = &c->exchange;
    size_t needed = exchange->body_size + size;
    c->http->counts.bytes_in += (int64_t)size;
    if (c->overlong || needed > exchange->body_limit) {
        c->overlong = true;
        exchange->body_size = needed;
        return needed > exchange->body_limit + DISCARD ? MHD_NO : MHD_YES;
    }
    if (needed + 1 > c->body_capacity) {
        size_t capacity = c->body_capacity * 2 > needed + 1 ? c->body_capacity * 2 : needed + 1;
        char *larger = malloc(capacity);
        if (larger == NULL)
            return MHD_NO;
        memcpy(larger, c->body, exchange->body_size);
        if (c->body != c->small)
            free(c->body);
        c->body = larger;
        c->body_capacity = capacity;
    }
    memcpy(c->body + exchange->body_size, bytes, size);
    exchange->body_size = needed;
    return MHD_YES;
}

static enum MHD_Result handle(void *context, struct MHD_Connection *mhd, const char *url,
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
        return begin(c, url, method);
    }
    if (*upload_size > 0) {
        size_t size = *upload_size;
        *upload_size = 0;
        return c->page != NULL || c->cut ? MHD_NO : take_body(c, upload, size);
    }
    if (c->phase == CONNECTION_BODY) {
        serve_exchange *exchange = &c->exchange;
        enter(c, CONNECTION_WORK);
        c->body[c->overlong ? 0 : exchange->body_size] = 0;
        exchange->body = c->body;
        http->events.request(http->context, exchange);
    }
    return go_on(c);
}

/* libmicrohttpd answers a head that it does not take by itself, with a page of its own, and up to
 * 0.9.75 says that answer's head twice when it is a header that is wrong. It tells its log before it
 * does so, and the connection is then the only one whose head is whole while its request has not
 * begun: such a request is answered here, and libmicrohttpd finds the connection shut. */
static void answer_in_its_place(void *context, const char *format, va_list arguments)
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
    send_alone(c->fd, status, FA_EINVAL, "a header of this request is missing, wrong or too large");
    cut(c);
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
    http->events = *events;
    http->context = context;
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO |
            MHD_USE_ERROR_LOG,
        0, NULL, NULL, handle, http, MHD_OPTION_EXTERNAL_LOGGER, answer_in_its_place, http,
        MHD_OPTION_NOTIFY_COMPLETED, request_over, NULL, MHD_OPTION_NOTIFY_CONNECTION,
        connection_changed, http, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)(limits->connections + SLACK), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)POOL_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, 0u, MHD_OPTION_UNESCAPE_CALLBACK,
        connection_unescape, NULL, MHD_OPTION_STRICT_FOR_CLIENT, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
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
        cut(c);
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
            cut(c);
    serve_http_run_soon(http);
}

static bool is_idle(const struct connection *c)
{
    return c->phase == CONNECTION_IDLE;
}

static bool is_idle_and_remote(const struct connection *c)
{
    return c->phase == CONNECTION_IDLE && !c->exchange.local;
}

/* Of the connections that may go, the one that has been in its phase for longest makes room. */
static bool evict(serve_http *http, bool (*may_go)(const struct connection *c))
{
    struct connection *oldest = NULL;
    for (struct connection *c = http->first; c != NULL; c = c->next)
        if (!c->cut && may_go(c) && (oldest == NULL || c->since_ms <= oldest->since_ms))
            oldest = c;
    if (oldest == NULL)
        return false;
    cut(oldest);
    http->counts.evicted++;
    return true;
}

/* Whoever has no token loses his connection in whatever he does: all that he is given is short, and
 * the next one in line may be a client with the token, or a probe. */
static bool make_room(serve_http *http, bool local)
{
    const serve_http_limits *limits = &http->limits;
    if (!local && http->strangers >= limits->strangers && !evict(http, is_stranger))
        return false;
    if (!local && http->remote >= limits->remote && !evict(http, is_idle_and_remote))
        return false;
    return http->open < limits->connections || evict(http, is_idle_and_remote) ||
           evict(http, is_idle) || (local && evict(http, is_stranger));
}

int serve_http_adopt(serve_http *http, int fd, bool local)
{
    struct sockaddr_un nobody = {.sun_family = AF_UNIX};
    if (http->draining || !make_room(http, local)) {
        http->counts.refused++;
        send_alone(fd, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY, "too many connections are open");
        close(fd);
        return FA_EBUSY;
    }
    http->adopting_local = local;
    if (MHD_add_connection(http->daemon, fd, (struct sockaddr *)&nobody, sizeof nobody) !=
        MHD_YES) {
        http->counts.refused++; /* libmicrohttpd has closed it */
        return FA_EIO;
    }
    http->counts.accepted++;
    serve_http_run_soon(http);
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
