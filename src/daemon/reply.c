/* SPDX-License-Identifier: Apache-2.0
 *
 * Replies: at once or later, whole or as a stream of events.
 */
#include "connection.h"
#include "error.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STREAM_BLOCK = 4096,
    STREAM_BEHIND = 256 * 1024, /* from here on what may be dropped is */
    STREAM_TOO_FAR = 4 * 1024 * 1024
};

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

const char *serve_code_name(int code)
{
    switch (code) {
#define CODE_NAME(name, value, text) \
    case (value):                    \
        return "FA_" #name;
        FA_ERRORS(CODE_NAME)
#undef CODE_NAME
    default:
        return "FA_EIO";
    }
}

static struct connection *connection_of(serve_exchange *exchange)
{
    return (struct connection *)exchange;
}

const char *serve_argument(serve_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(connection_of(exchange)->mhd, MHD_GET_ARGUMENT_KIND, name);
}

const char *serve_header(serve_exchange *exchange, const char *name)
{
    return MHD_lookup_connection_value(connection_of(exchange)->mhd, MHD_HEADER_KIND, name);
}

/* ---- pages ----------------------------------------------------------------------------------*/
static serve_page *page_of(const char *type, size_t size, struct MHD_Response *response)
{
    serve_page *page = response != NULL ? calloc(1, sizeof *page) : NULL;
    if (page != NULL) {
        *page = (serve_page){response, size, 1};
        if (serve_page_header(page, MHD_HTTP_HEADER_CONTENT_TYPE, type))
            return page;
    }
    free(page);
    if (response != NULL)
        MHD_destroy_response(response);
    return NULL;
}

serve_page *serve_page_make(const char *type, void *bytes, size_t size)
{
    struct MHD_Response *response =
        bytes != NULL ? MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response == NULL)
        free(bytes);
    return page_of(type, size, response);
}

serve_page *serve_page_text(const char *type, const char *text)
{
    size_t size = strlen(text);
    return page_of(
        type, size,
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT));
}

bool serve_page_header(serve_page *page, const char *name, const char *value)
{
    return MHD_add_response_header(page->response, name, value) == MHD_YES;
}

serve_page *serve_page_keep(serve_page *page)
{
    if (page != NULL)
        page->references++;
    return page;
}

void serve_page_drop(serve_page **page)
{
    if (page == NULL || *page == NULL)
        return;
    if (--(*page)->references == 0) {
        MHD_destroy_response((*page)->response);
        free(*page);
    }
    *page = NULL;
}

/* ---- whole replies --------------------------------------------------------------------------*/
void serve_reply(serve_exchange *exchange, unsigned status, serve_page *page)
{
    struct connection *c = connection_of(exchange);
    if (exchange->status != 0) /* answered already */
        return;
    exchange->status = status;
    c->page = serve_page_keep(page);
    connection_resume(c);
}

void serve_reply_json(serve_exchange *exchange, unsigned status, char *text)
{
    serve_page *page = serve_page_make("application/json", text, text != NULL ? strlen(text) : 0);
    serve_reply(exchange, status, page);
    serve_page_drop(&page);
}

char *serve_error_text(int code, const char *message, const char *job)
{
    cJSON *document = cJSON_CreateObject();
    cJSON *error = cJSON_AddObjectToObject(document, "error");
    cJSON_AddStringToObject(error, "code", serve_code_name(code));
    cJSON_AddStringToObject(error, "message", message);
    if (job != NULL)
        cJSON_AddStringToObject(document, "job", job);
    char *text = document != NULL ? cJSON_PrintUnformatted(document) : NULL;
    cJSON_Delete(document);
    return text;
}

void serve_reply_error(serve_exchange *exchange, int code, const char *message, const char *job)
{
    serve_reply_json(exchange, serve_status_of(code), serve_error_text(code, message, job));
}

void serve_reply_refused(serve_exchange *exchange, unsigned status, int code, const char *message,
                         int retry_after_s)
{
    char *text = serve_error_text(code, message, NULL), seconds[16];
    serve_page *page = serve_page_make("application/json", text, text != NULL ? strlen(text) : 0);
    snprintf(seconds, sizeof seconds, "%d", retry_after_s);
    if (page != NULL && retry_after_s > 0)
        serve_page_header(page, MHD_HTTP_HEADER_RETRY_AFTER, seconds);
    if (page != NULL && status == MHD_HTTP_UNAUTHORIZED)
        serve_page_header(page, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    serve_reply(exchange, status, page);
    serve_page_drop(&page);
}

/* ---- streams --------------------------------------------------------------------------------*/
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
    struct connection *c = connection_of(exchange);
    serve_page *page = page_of(
        "text/event-stream", 0,
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, c, NULL));
    if (page != NULL)
        serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
    serve_reply(exchange, MHD_HTTP_OK, page);
    serve_page_drop(&page);
    c->phase = CONNECTION_STREAM;
}

void serve_stream_send(serve_exchange *exchange, const char *text, size_t size, bool may_drop)
{
    struct connection *c = connection_of(exchange);
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
    connection_resume(c);
}

void serve_stream_end(serve_exchange *exchange)
{
    struct connection *c = connection_of(exchange);
    c->ended = true;
    connection_resume(c);
}
