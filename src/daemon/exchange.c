/* SPDX-License-Identifier: Apache-2.0 */
#include "http.h"

#include "buf.h"
#include "connection.h"
#include "fa_tune.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* ---- bodies ---------------------------------------------------------------------------------*/
static int reserve(serve_body_budget *budget, size_t more)
{
    if (budget == NULL)
        return 0;
    if (more > budget->limit - budget->used)
        return FA_EBUSY;
    budget->used += more;
    return 0;
}

serve_body *serve_body_make(const char *bytes, size_t size, serve_body_budget *budget)
{
    serve_body *body = reserve(budget, size + 1) == 0 ? malloc(sizeof *body + size + 1) : NULL;
    if (body == NULL)
        return NULL;
    *body = (serve_body){budget, 1, size, size + 1};
    memcpy(body->bytes, bytes, size);
    body->bytes[size] = 0;
    return body;
}

int serve_body_append(serve_body **body, const char *bytes, size_t size)
{
    serve_body *b = *body;
    size_t needed = b->size + size + 1;
    if (needed > b->capacity) {
        size_t capacity = b->capacity * 2 > needed ? b->capacity * 2 : needed;
        int rc = reserve(b->budget, capacity - b->capacity);
        if (rc != 0)
            return rc;
        serve_body *larger = realloc(b, sizeof *b + capacity);
        if (larger == NULL) {
            if (b->budget != NULL)
                b->budget->used -= capacity - b->capacity;
            return FA_ENOMEM;
        }
        *body = b = larger;
        b->capacity = capacity;
    }
    memcpy(b->bytes + b->size, bytes, size);
    b->size += size;
    b->bytes[b->size] = 0;
    return 0;
}

static serve_body *keep_body(serve_body *body)
{
    body->references++;
    return body;
}

void serve_body_drop(serve_body **body)
{
    if (body == NULL || *body == NULL)
        return;
    serve_body *b = *body;
    *body = NULL;
    if (--b->references > 0)
        return;
    if (b->budget != NULL)
        b->budget->used -= b->capacity;
    free(b);
}

/* ---- requests -------------------------------------------------------------------------------*/
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

struct known {
    const char *names, *unknown;
};

static enum MHD_Result look_at_argument(void *context, enum MHD_ValueKind kind, const char *name,
                                        const char *value)
{
    struct known *known = context;
    size_t length = strlen(name);
    (void)kind, (void)value;
    for (const char *at = known->names; *at != 0;
         at += strcspn(at, " ") + (at[strcspn(at, " ")] != 0))
        if (strcspn(at, " ") == length && memcmp(at, name, length) == 0)
            return MHD_YES;
    known->unknown = name;
    return MHD_NO;
}

const char *serve_unknown_argument(const serve_exchange *exchange, const char *names)
{
    const struct connection *c = (const struct connection *)exchange;
    struct known known = {names, NULL};
    MHD_get_connection_values(c->mhd, MHD_GET_ARGUMENT_KIND, look_at_argument, &known);
    return known.unknown;
}

const char *serve_header(const serve_exchange *exchange, const char *name)
{
    const struct connection *c = (const struct connection *)exchange;
    return MHD_lookup_connection_value(c->mhd, MHD_HEADER_KIND, name);
}

serve_body *serve_exchange_body(serve_exchange *exchange)
{
    struct connection *c = (struct connection *)exchange;
    return c->body != NULL ? keep_body(c->body)
                           : serve_body_make(exchange->body, exchange->body_size, NULL);
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
    {FA_EUNTRUSTED, MHD_HTTP_UNAUTHORIZED},
};

/* libmicrohttpd looks at a suspended connection only after it is resumed. */
static void resume(struct connection *c)
{
    if (!c->suspended)
        return;
    c->suspended = false;
    MHD_resume_connection(c->mhd);
    connection_run_soon(c->http);
}

unsigned serve_status_of(int code)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i].code == code)
            return statuses[i].status;
    return MHD_HTTP_INTERNAL_SERVER_ERROR;
}

void serve_reply(serve_exchange *exchange, unsigned status, serve_page *page)
{
    struct connection *c = (struct connection *)exchange;
    if (exchange->status != 0) /* answered already */
        return;
    exchange->status = status;
    c->page = serve_page_keep(page);
    resume(c);
}

void serve_reply_page(serve_exchange *exchange, unsigned status, serve_page *page)
{
    serve_reply(exchange, status, page);
    serve_page_drop(&page);
}

void serve_reply_unless_known(serve_exchange *exchange, serve_page *page)
{
    const char *known = serve_header(exchange, MHD_HTTP_HEADER_IF_NONE_MATCH);
    const char *tag =
        page != NULL ? MHD_get_response_header(page->response, MHD_HTTP_HEADER_ETAG) : NULL;
    if (known == NULL || tag == NULL || strstr(known, tag) == NULL) {
        serve_reply(exchange, MHD_HTTP_OK, page);
        return;
    }
    serve_page *same = serve_page_text("application/octet-stream", "");
    serve_page_header(same, MHD_HTTP_HEADER_ETAG, tag);
    serve_reply_page(exchange, MHD_HTTP_NOT_MODIFIED, same);
}

void serve_reply_json(serve_exchange *exchange, unsigned status, char *text)
{
    serve_reply_page(exchange, status, serve_page_json(text));
}

char *serve_text_of(fa_buf *buf)
{
    char *text = buf->data;
    if (buf->failed) {
        fa_buf_free(buf);
        return NULL;
    }
    *buf = (fa_buf){0};
    return text;
}

char *serve_error_text(int code, const char *message, const char *job)
{
    fa_buf out = {0};
    char *text = NULL;
    if (fa_failure_write(code, message, &text, NULL) != 0 || job == NULL)
        return text;
    fa_buf_append(&out, text, strlen(text) - 1);
    fa_buf_printf(&out, ",\"job\":\"%s\"}", job);
    free(text);
    return serve_text_of(&out);
}

void serve_reply_error(serve_exchange *exchange, int code, const char *message, const char *job)
{
    serve_reply_json(exchange, serve_status_of(code), serve_error_text(code, message, job));
}

void serve_reply_refused(serve_exchange *exchange, unsigned status, int code, const char *message,
                         int retry_after_s)
{
    char seconds[16];
    serve_page *page = serve_page_json(serve_error_text(code, message, NULL));
    snprintf(seconds, sizeof seconds, "%d", retry_after_s);
    if (retry_after_s > 0)
        serve_page_header(page, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    if (status == MHD_HTTP_UNAUTHORIZED)
        serve_page_header(page, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    serve_reply_page(exchange, status, page);
}

void serve_reply_no_memory(serve_exchange *exchange)
{
    serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY,
                        "too many large bodies are in memory: come back later", 5);
}

void serve_send_alone(int fd, unsigned status, int code, const char *message)
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

/* ---- streams of events ----------------------------------------------------------------------*/
enum {
    STREAM_BLOCK = 4096,
    STREAM_BEHIND = 256 * 1024, /* from here on what may be dropped is */
    STREAM_TOO_FAR = 4 * 1024 * 1024
};

static ssize_t read_stream(void *context, uint64_t position, char *ret, size_t size)
{
    struct connection *c = context;
    size_t left = c->out.size - c->out_taken;
    (void)position;
    if (c->cut)
        return MHD_CONTENT_READER_END_WITH_ERROR;
    c->http->progress++;
    c->since_ms = (int64_t)uv_now(c->http->loop);
    if (left > 0) {
        size_t count = left < size ? left : size;
        memcpy(ret, c->out.data + c->out_taken, count);
        c->out_taken += count;
        if (c->out_taken == c->out.size) {
            fa_buf_clear(&c->out);
            c->out_taken = 0;
        }
        return (ssize_t)count;
    }
    if (c->ended)
        return MHD_CONTENT_READER_END_OF_STREAM;
    c->suspended = true;
    MHD_suspend_connection(c->mhd);
    return 0;
}

void serve_stream(serve_exchange *exchange)
{
    struct connection *c = (struct connection *)exchange;
    serve_page *page = serve_page_of(
        "text/event-stream", 0,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, c, NULL));
    serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    serve_reply_page(exchange, MHD_HTTP_OK, page);
    c->phase = CONNECTION_STREAM;
}

void serve_stream_send(serve_exchange *exchange, const char *text, size_t size, bool may_drop)
{
    struct connection *c = (struct connection *)exchange;
    size_t behind = c->out.size - c->out_taken;
    if (c->ended || c->cut || (may_drop && behind > STREAM_BEHIND))
        return;
    if (c->out_taken > 0) {
        memmove(c->out.data, c->out.data + c->out_taken, behind);
        c->out.size = behind;
        c->out_taken = 0;
    }
    fa_buf_append(&c->out, text, size);
    if (c->out.failed || c->out.size > STREAM_TOO_FAR)
        c->ended = true;
    if (c->phase == CONNECTION_STREAM && c->suspended)
        c->since_ms = (int64_t)uv_now(c->http->loop);
    resume(c);
}

void serve_stream_end(serve_exchange *exchange)
{
    struct connection *c = (struct connection *)exchange;
    c->ended = true;
    resume(c);
}

/* ---- those that wait ------------------------------------------------------------------------*/
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
    resume(c);
}
