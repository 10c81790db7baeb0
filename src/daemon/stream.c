/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include "connection.h"
#include "reply.h"

#include <string.h>

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
    connection_resume(c);
}

void serve_stream_end(serve_exchange *exchange)
{
    struct connection *c = (struct connection *)exchange;
    c->ended = true;
    connection_resume(c);
}
