/* SPDX-License-Identifier: Apache-2.0 */
#include "reply.h"

#include "buf.h"
#include "connection.h"
#include "fa_tune.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

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
    connection_resume(c);
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
