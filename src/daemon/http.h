/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 on libuv's loop: libmicrohttpd reads and writes, and its epoll descriptor is polled by the loop.
 *
 * Workload: a hundred thousand small requests a second over some hundred kept connections, most of them answered at once;
 * some wait for minutes, some are streams of events.
 * Invariants: everything happens on the loop's thread. A request lives until its reply was sent or its client is gone,
 * which left() reports. It has one reply, which is given at once or later. Limits on heads, connections and idle time are
 * libmicrohttpd's; the limit on a body is the request's own.
 */
#ifndef FA_DAEMON_HTTP_H
#define FA_DAEMON_HTTP_H

#include "buf.h"

#include <microhttpd.h>
#include <uv.h>

enum { SERVE_DOORS_MAX = 2 };

typedef struct serve_http serve_http;

typedef struct serve_http_counts {
    int busy;                  /* requests that are not over */
    int64_t requests, refused; /* so far; as busy */
} serve_http_counts;

typedef struct serve_request {
    const char *method, *path; /* decoded, without its query; valid until the reply */
    fa_buf body;
    size_t body_limit; /* set by head() */
    bool local;        /* came over a Unix socket, which its owner alone can open */
    unsigned status;   /* of its reply; 0: it has none yet */
    /* The service's own: */
    const void *route;
    const char *part; /* of the path, behind the route's last '/' */
    void *waits_in;   /* what it waits for */
    void (*left)(struct serve_request
                     *request); /* called where the client goes before its reply's end; or NULL */
    /* http.c's own: */
    serve_http *http;
    struct MHD_Connection *mhd;
    struct serve_request *next, **place; /* among those that wait for their reply */
    struct MHD_Response *reply;
    const char *uri;            /* as it came */
    size_t uri_size, discarded; /* discarded: of a body that is too large */
    fa_buf out;                 /* of a stream */
    bool begun, handled, again, suspended, queued, streams, ended, gone, overlong, odd;
} serve_request;

typedef struct serve_http_events {
    /* The head is there: sets body_limit, or replies at once. */
    void (*head)(void *context, serve_request *request);
    /* The body is there: replies, or leaves the request to be answered later. */
    void (*handle)(void *context, serve_request *request);
} serve_http_events;

/* *counts is kept up to date. */
int serve_http_make(uv_loop_t *loop, const serve_http_events *events, void *context,
                    serve_http_counts *counts, serve_http **ret_http, fa_diag *diag);
/* Serves the clients of a socket that listens; the socket stays the caller's. local: see serve_request. So many connections at a
 * time, each of which may be silent for so long, unless it waits for a reply. */
int serve_http_listen(serve_http *http, int fd, bool local, int connections, int idle_s,
                      fa_diag *diag);
int serve_http_connections(const serve_http *http);

/* ---- the head -------------------------------------------------------------------------------*/
const char *serve_header(const serve_request *request, const char *name); /* or NULL */
bool serve_has_query(const serve_request *request);

/* ---- replies --------------------------------------------------------------------------------*/
/* A response of malloced bytes, which it owns; NULL: out of memory, or no bytes. */
struct MHD_Response *serve_response(const char *type, char *bytes, size_t size);
/* The request owns the response; NULL: the connection is cut off. */
void serve_reply(serve_request *request, unsigned status, struct MHD_Response *response);
/* From within handle() alone: the caller's response, which is not taken. */
void serve_reply_shared(serve_request *request, struct MHD_Response *response);
/* Malloced text; NULL: out of memory. */
void serve_reply_json(serve_request *request, unsigned status, char *text);
/* {"error": {"code": "FA_E…", "message": …}} with this status (0: the code's), or as the event "failed" that ends a stream.
 * FA_EBUSY asks the client to come back. */
void serve_reply_failure(serve_request *request, unsigned status, int code, const char *message);
/* A buffer's text, which is the caller's from here on; NULL: out of memory. */
char *serve_text_of(fa_buf *buf);

/* Server-sent events, as a reply that goes on until its end. A client that reads too slowly misses events that are not
 * the last. */
void serve_stream(serve_request *request);
/* A comment, by which a client sees that the server is there. */
void serve_stream_comment(serve_request *request);
void serve_stream_event(serve_request *request, const char *name, const char *data, bool last);

#endif
