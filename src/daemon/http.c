/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include "error.h"
#include "fa_tune.h"

#include <malloc.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    TICK_MS = 250,
    RUNS = 16,              /* of libmicrohttpd before other events get their turn */
    POOL_BYTES = 16 * 1024, /* for one head, and the head of its answer */
    DISCARD = 1 << 20,  /* bytes read of a body that is too large, so that its client reads why */
    BLOCK = 4096,       /* of a stream */
    BEHIND = 256 * 1024 /* of a stream that is not read: events are left out from here on */
};

static const char RETRY_S[] = "5";

struct door {
    serve_http *http;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    bool local;
};

struct serve_http {
    uv_timer_t tick;
    uv_idle_t soon;
    uv_loop_t *loop;
    serve_http_events events;
    void *context;
    struct door door[SERVE_DOORS_MAX];
    serve_http_counts *counts;
    int doors;
    int open;               /* connections at the last tick */
    int64_t progress;       /* callbacks of libmicrohttpd */
    serve_request *waiting; /* those that libmicrohttpd does not look at */
};

/* ---- the loop -------------------------------------------------------------------------------*/
static void run(serve_http *http);

static void run_now(uv_idle_t *idle)
{
    uv_idle_stop(idle);
    run(idle->data);
}

static void run_soon(serve_http *http)
{
    uv_idle_start(&http->soon, run_now);
}

/* libmicrohttpd looks for ever at a connection whose buffer is full of what it cannot read on (a chunk's extension of 16 KiB),
 * until the connection's time is up: without a callback the rest waits for the next tick. */
static void run(serve_http *http)
{
    const int64_t before = http->progress;
    bool more = false;
    for (int i = 0; i < http->doors; i++) {
        MHD_UNSIGNED_LONG_LONG ms = 1;
        int runs = 0;
        do
            MHD_run(http->door[i].daemon);
        while (MHD_get_timeout(http->door[i].daemon, &ms) == MHD_YES && ms == 0 && ++runs < RUNS);
        more = more || runs == RUNS;
    }
    if (more && http->progress != before)
        run_soon(http);
}

static void readable(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    run(((struct door *)poll->data)->http);
}

static void resume(serve_request *request)
{
    if (!request->suspended)
        return;
    request->suspended = false;
    *request->place = request->next;
    if (request->next != NULL)
        request->next->place = request->place;
    MHD_resume_connection(request->mhd);
    run_soon(request->http);
}

static void suspend(serve_request *request)
{
    serve_http *http = request->http;
    request->suspended = true;
    request->next = http->waiting;
    request->place = &http->waiting;
    if (request->next != NULL)
        request->next->place = &request->next;
    http->waiting = request;
    MHD_suspend_connection(request->mhd);
}

/* A client may close its sending side and wait for the reply: it has left when both sides are closed. Over TCP the kernel
 * knows that from the answer to the next bytes or probe (SO_KEEPALIVE). */
static void tick(uv_timer_t *timer)
{
    serve_http *http = timer->data;
    serve_request *next;
    for (serve_request *request = http->waiting; request != NULL; request = next) {
        next = request->next;
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(request->mhd, MHD_CONNECTION_INFO_CONNECTION_FD);
        struct pollfd client = {.fd = info != NULL ? info->connect_fd : -1};
        if (poll(&client, 1, 0) > 0 && (client.revents & (POLLHUP | POLLERR)) != 0) {
            request->gone = true;
            resume(request);
        }
    }
    run(http);
    const int open = serve_http_connections(http);
    if (open == 0 && http->open > 0)
        malloc_trim(0); /* what a burst took */
    http->open = open;
}

/* ---- the head -------------------------------------------------------------------------------*/
const char *serve_header(const serve_request *request, const char *name)
{
    return MHD_lookup_connection_value(request->mhd, MHD_HEADER_KIND, name);
}

bool serve_has_query(const serve_request *request)
{
    return MHD_get_connection_values(request->mhd, MHD_GET_ARGUMENT_KIND, NULL, NULL) > 0;
}

/* libmicrohttpd refuses what HTTP forbids from 0.9.77 on; what earlier ones passed over is read from their buffer. */
#if MHD_VERSION >= 0x00097701
enum { STRICTNESS = MHD_OPTION_CLIENT_DISCIPLINE_LVL, READS_BUFFER = false };
#else
enum { STRICTNESS = MHD_OPTION_STRICT_FOR_CLIENT, READS_BUFFER = true };
#endif

/* A head as its bytes lie in libmicrohttpd's buffer, where it was parsed in place: `at` is where the next line begins. */
struct head {
    const char *at;
    bool odd;
    int lengths, hosts, tokens; /* Content-Length or Transfer-Encoding; Host; Authorization */
    size_t length;              /* of the body; SIZE_MAX: it comes in chunks */
};

/* Bytes that no line of a head may have. */
static bool has_control(const char *text)
{
    for (; *text != 0; text++)
        if (((unsigned char)*text < ' ' && *text != '\t') || *text == 0x7f)
            return true;
    return false;
}

static enum MHD_Result look_at_header(void *context, enum MHD_ValueKind kind, const char *name,
                                      const char *value)
{
    struct head *head = context;
    const char *end = name + strlen(name) + 1; /* behind the colon */
    (void)kind;
    if (value == NULL || strpbrk(name, " \t") != NULL || *name == 0 || has_control(name) ||
        has_control(value) ||
        (READS_BUFFER &&
         (name != head->at || value < end || strspn(end, " \t") != (size_t)(value - end)))) {
        head->odd = true;
        return MHD_NO;
    }
    head->at = value + strlen(value) + 2;
    if (strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0) {
        head->lengths++;
        head->odd |= *value == 0 || strlen(value) > 18 || value[strspn(value, "0123456789")] != 0;
        head->length = head->odd ? 0 : (size_t)strtoull(value, NULL, 10);
    } else if (strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0) {
        head->lengths++;
        head->odd |= strcasecmp(value, "chunked") != 0;
        head->length = SIZE_MAX;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0) {
        head->hosts++;
    } else if (strcasecmp(name, MHD_HTTP_HEADER_AUTHORIZATION) == 0) {
        head->tokens++;
    }
    return MHD_YES;
}

/* Whether the head has one meaning for every reader: libmicrohttpd takes a NUL, a bare CR or LF, folded lines, and the first of
 * two lengths, where a proxy may read another request. Its buffer shows what it passed over: lines follow each other with
 * two bytes between them, and the last one ends the head. */
static bool is_plain_head(const serve_request *request, const char *method, const char *version,
                          size_t *ret_length)
{
    struct head head = {.at = version + strlen(version) + 2};
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->mhd, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info == NULL || request->odd ||
        (READS_BUFFER && (request->uri != method + strlen(method) + 1 ||
                          version != request->uri + request->uri_size + 1)))
        return false;
    MHD_get_connection_values(request->mhd, MHD_HEADER_KIND, look_at_header, &head);
    *ret_length = head.length;
    return !head.odd && head.lengths <= 1 && head.hosts <= 1 && head.tokens <= 1 &&
           (!READS_BUFFER || head.at + 2 == method + info->header_size);
}

/* ---- what libmicrohttpd calls ----------------------------------------------------------------*/
/* The first that is heard of a request. */
static void *http_begin(void *context, const char *uri, struct MHD_Connection *mhd)
{
    struct door *door = context;
    serve_request *request = calloc(1, sizeof *request);
    if (request == NULL)
        return NULL;
    *request = (serve_request){.http = door->http,
                               .mhd = mhd,
                               .local = door->local,
                               .uri = uri,
                               .uri_size = strlen(uri),
                               .odd = has_control(uri)};
    door->http->counts->busy++;
    door->http->counts->requests++;
    return request;
}

static void http_over(void *context, struct MHD_Connection *mhd, void **request_context,
                      enum MHD_RequestTerminationCode code)
{
    serve_request *request = *request_context;
    (void)context, (void)mhd, (void)code;
    if (request == NULL)
        return;
    *request_context = NULL;
    request->http->progress++;
    request->http->counts->busy--;
    if (request->left != NULL)
        request->left(request);
    if (request->reply != NULL)
        MHD_destroy_response(request->reply);
    fa_buf_free(&request->body);
    fa_buf_free(&request->out);
    free(request);
}

/* A NUL would end the path where another reader of it goes on: it stays as it is written, and then there is nothing at that
 * path. */
static size_t http_unescape(void *context, struct MHD_Connection *mhd, char *text)
{
    (void)context, (void)mhd;
    return strstr(text, "%00") != NULL ? strlen(text) : MHD_http_unescape(text);
}

static enum MHD_Result queue_reply(serve_request *request)
{
    enum MHD_Result rc = MHD_queue_response(request->mhd, request->status, request->reply);
    MHD_destroy_response(request->reply);
    request->reply = NULL;
    return rc;
}

static void refuse_body(serve_request *request)
{
    serve_reply_failure(request, MHD_HTTP_CONTENT_TOO_LARGE, FA_EINVAL,
                        "the body is larger than this server takes");
}

static enum MHD_Result begin(serve_request *request, const char *path, const char *method,
                             const char *version)
{
    size_t length = 0;
    request->begun = true;
    request->path = path;
    request->method = method;
    if (!is_plain_head(request, method, version, &length))
        serve_reply_failure(
            request, 0, FA_EINVAL,
            "the head of this request has bytes that HTTP forbids, or says its host, token or "
            "length twice");
    else
        request->http->events.head(request->http->context, request);
    if (request->status == 0 && length != SIZE_MAX && length > request->body_limit + DISCARD)
        refuse_body(request);
    if (request->status == 0)
        return MHD_YES;
    return request->reply != NULL ? queue_reply(request) : MHD_NO;
}

/* A request that waits is suspended at the second call: libmicrohttpd first sees that it is whole and nothing is to be read,
 * for it reads from a connection as it did before it was suspended, and closes one whose client has closed its sending
 * side. */
static enum MHD_Result http_handle(void *context, struct MHD_Connection *mhd, const char *url,
                                   const char *method, const char *version, const char *upload,
                                   size_t *upload_size, void **request_context)
{
    serve_request *request = *request_context;
    (void)context, (void)mhd;
    if (request == NULL || request->gone)
        return MHD_NO;
    request->http->progress++;
    if (!request->begun)
        return begin(request, url, method, version);
    if (*upload_size > 0) {
        const size_t size = *upload_size;
        *upload_size = 0;
        request->overlong |= size > request->body_limit - request->body.size;
        if (request->overlong)
            return (request->discarded += size) < DISCARD ? MHD_YES : MHD_NO;
        fa_buf_append(&request->body, upload, size);
        return request->body.failed ? MHD_NO : MHD_YES;
    }
    if (!request->handled && request->overlong)
        refuse_body(request);
    else if (!request->handled)
        request->http->events.handle(request->http->context, request);
    request->handled = true;
    if (request->queued)
        return MHD_YES;
    if (request->status != 0)
        return request->reply != NULL ? queue_reply(request) : MHD_NO;
    if (request->again)
        suspend(request);
    request->again = true;
    return MHD_YES;
}

/* ---- replies --------------------------------------------------------------------------------*/
static const struct {
    int code;
    unsigned status;
} statuses[] = {
    {FA_EINVAL, MHD_HTTP_BAD_REQUEST},
    {FA_ENOTSUP, MHD_HTTP_UNPROCESSABLE_CONTENT},
    {FA_ENOTFOUND, MHD_HTTP_NOT_FOUND},
    {FA_ENODRIVER, MHD_HTTP_UNPROCESSABLE_CONTENT},
    {FA_ENODEVICE, MHD_HTTP_UNPROCESSABLE_CONTENT},
    {FA_ECOMPILE, MHD_HTTP_UNPROCESSABLE_CONTENT},
    {FA_ENOKERNEL, MHD_HTTP_UNPROCESSABLE_CONTENT},
    {FA_EALIGN, MHD_HTTP_UNPROCESSABLE_CONTENT},
    {FA_ECANCELED, MHD_HTTP_CONFLICT},
    {FA_EBUSY, MHD_HTTP_SERVICE_UNAVAILABLE},
    {FA_EREADONLY, MHD_HTTP_SERVICE_UNAVAILABLE},
    {FA_ENOMEM, MHD_HTTP_SERVICE_UNAVAILABLE},
    {FA_EFULL, MHD_HTTP_INSUFFICIENT_STORAGE},
    {FA_ETIMEOUT, MHD_HTTP_GATEWAY_TIMEOUT},
};

char *serve_text_of(fa_buf *buf)
{
    char *text = buf->failed ? NULL : buf->data;
    if (text == NULL)
        fa_buf_free(buf);
    *buf = (fa_buf){0};
    return text;
}

struct MHD_Response *serve_response(const char *type, char *bytes, size_t size)
{
    struct MHD_Response *response =
        bytes != NULL ? MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response == NULL) {
        free(bytes);
        return NULL;
    }
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    return response;
}

void serve_reply(serve_request *request, unsigned status, struct MHD_Response *response)
{
    request->status = status;
    request->reply = response;
    request->left = NULL;
    resume(request);
}

void serve_reply_shared(serve_request *request, struct MHD_Response *response)
{
    request->status = MHD_HTTP_OK;
    request->left = NULL;
    request->queued = MHD_queue_response(request->mhd, MHD_HTTP_OK, response) == MHD_YES;
}

void serve_reply_json(serve_request *request, unsigned status, char *text)
{
    serve_reply(request, status,
                serve_response("application/json", text, text != NULL ? strlen(text) : 0));
}

void serve_reply_failure(serve_request *request, unsigned status, int code, const char *message)
{
    char *text = NULL;
    const bool written = fa_failure_write(code, message, &text, NULL) == 0;
    request->http->counts->refused += code == FA_EBUSY;
    if (request->streams) {
        serve_stream_event(request, "failed", written ? text : "{}", true);
        free(text);
        return;
    }
    struct MHD_Response *response =
        serve_response("application/json", text, written ? strlen(text) : 0);
    if (response != NULL && code == FA_EBUSY)
        MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, RETRY_S);
    if (response != NULL && status == MHD_HTTP_UNAUTHORIZED)
        MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    for (size_t i = 0; status == 0 && i < sizeof statuses / sizeof *statuses; i++)
        status = statuses[i].code == code ? statuses[i].status : 0;
    serve_reply(request, status != 0 ? status : MHD_HTTP_INTERNAL_SERVER_ERROR, response);
}

/* ---- streams --------------------------------------------------------------------------------*/
static ssize_t read_stream(void *context, uint64_t position, char *ret, size_t size)
{
    serve_request *request = context;
    fa_buf *out = &request->out;
    (void)position;
    request->http->progress++;
    if (request->gone || out->failed)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    if (out->size > 0) {
        const size_t count = out->size < size ? out->size : size;
        memcpy(ret, out->data, count);
        memmove(out->data, out->data + count, out->size - count);
        out->size -= count;
        return (ssize_t)count;
    }
    if (request->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    suspend(request);
    return 0;
}

void serve_stream(serve_request *request)
{
    struct MHD_Response *response =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, read_stream, request, NULL);
    if (response != NULL) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
        MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    }
    request->streams = true;
    serve_reply(request, MHD_HTTP_OK, response);
}

void serve_stream_event(serve_request *request, const char *name, const char *data, bool last)
{
    if (last || request->out.size < BEHIND)
        fa_buf_printf(&request->out, "event: %s\ndata: %s\n\n", name, data);
    request->ended = last;
    if (last)
        request->left = NULL;
    resume(request);
}

void serve_stream_comment(serve_request *request)
{
    fa_buf_text(&request->out, ":\n\n");
    resume(request);
}

/* ---- life -----------------------------------------------------------------------------------*/
int serve_http_make(uv_loop_t *loop, const serve_http_events *events, void *context,
                    serve_http_counts *counts, serve_http **ret_http, fa_diag *diag)
{
    serve_http *http = calloc(1, sizeof *http);
    FA_OR_RETURN(fa_have(http != NULL, "the HTTP server", diag));
    http->loop = loop;
    http->counts = counts;
    http->events = *events;
    http->context = context;
    http->tick.data = http->soon.data = http;
    uv_timer_init(loop, &http->tick);
    uv_idle_init(loop, &http->soon);
    uv_timer_start(&http->tick, tick, TICK_MS, TICK_MS);
    *ret_http = http;
    return 0;
}

int serve_http_listen(serve_http *http, int fd, bool local, int connections, int idle_s,
                      fa_diag *diag)
{
    struct door *door = &http->door[http->doors];
    *door = (struct door){.http = http, .local = local, .poll.data = door};
    door->daemon = MHD_start_daemon(
        MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_TURBO, 0, NULL, NULL, http_handle, door,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_URI_LOG_CALLBACK, http_begin, door,
        MHD_OPTION_NOTIFY_COMPLETED, http_over, NULL, MHD_OPTION_UNESCAPE_CALLBACK, http_unescape,
        NULL, MHD_OPTION_CONNECTION_LIMIT, (unsigned)connections, MHD_OPTION_CONNECTION_TIMEOUT,
        (unsigned)idle_s, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)POOL_BYTES, STRICTNESS, 1,
        MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    const union MHD_DaemonInfo *info =
        door->daemon != NULL ? MHD_get_daemon_info(door->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
    if (info == NULL || uv_poll_init(http->loop, &door->poll, info->epoll_fd) != 0) {
        if (door->daemon != NULL)
            MHD_stop_daemon(door->daemon);
        return fa_fail(diag, FA_EIO, "libmicrohttpd did not start: has it epoll?");
    }
    uv_poll_start(&door->poll, UV_READABLE, readable);
    http->doors++;
    return 0;
}

int serve_http_connections(const serve_http *http)
{
    int count = 0;
    for (int i = 0; i < http->doors; i++)
        count += (int)MHD_get_daemon_info(http->door[i].daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS)
                     ->num_connections;
    return count;
}
