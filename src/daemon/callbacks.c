/* SPDX-License-Identifier: Apache-2.0 */
#include "callbacks.h"

#include "error.h"
#include "list.h"
#include "reply.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

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
size_t http_unescape(void *context, struct MHD_Connection *mhd, char *text)
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
    c->ended = c->overlong = false;
    memset(exchange, 0, sizeof *exchange);
    exchange->local = local;
    exchange->trusted = trusted;
}

void http_connection_changed(void *context, struct MHD_Connection *mhd, void **socket_context,
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

void http_request_over(void *context, struct MHD_Connection *mhd, void **request_context,
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
        exchange->announced > exchange->body_limit + HTTP_DISCARD)
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
    return needed > exchange->body_limit + HTTP_DISCARD ? MHD_NO : MHD_YES;
}

enum MHD_Result http_handle(void *context, struct MHD_Connection *mhd, const char *url,
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
void http_log(void *context, const char *format, va_list arguments)
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
