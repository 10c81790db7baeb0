/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 on a libuv loop: libmicrohttpd's epoll descriptor under uv_poll.
 *
 * Workload: tens of thousands of small requests a second over a thousand kept connections, most of
 * them answered from memory; some wait for minutes, some are streams of events. Clients are taken
 * to be hostile: sizes, the time of each part of a request and the number of connections are bounded,
 * however slowly the bytes come in.
 * Invariants: everything happens on the loop's thread. A request is one serve_exchange, embedded in
 * its connection: no memory is allocated for a request with a small body that is answered at once.
 *
 * The seam for tests: serve_http_adopt() takes one end of a socket pair as a client, and what is
 * written into the other end goes the whole way of a request.
 */
#ifndef FA_DAEMON_HTTP_H
#define FA_DAEMON_HTTP_H

#include "exchange.h"
#include "fa_types.h"

#include <uv.h>

typedef struct serve_http serve_http;

typedef struct serve_http_limits {
    int connections;
    int remote;    /* of these, over TCP */
    int strangers; /* of these, without the token so far: of a user or host that has the most of them the
                      oldest makes room for a new one */
    int head_ms;   /* a new connection until its first request's head is whole */
    int body_ms;   /* from a head to the end of its body */
    int idle_ms;   /* a kept connection until its next head is whole */
    int send_ms;   /* for a client to take a response, or what has piled up of a stream */
    size_t bodies; /* bytes of bodies in memory, but for those that fit into their connections */
} serve_http_limits;

/* What a front end asks of the service behind it. */
typedef struct serve_http_events {
    /* The head is there: set exchange->body_limit, or reply at once (the body is then not read).
     * A larger body is not kept, but body_size tells its size; a much larger body is not read. */
    void (*head)(void *context, serve_exchange *exchange);
    /* The body is there: reply, or serve_stream(). An exchange that is not answered when this
     * returns waits: the reply comes later, from elsewhere. */
    void (*request)(void *context, serve_exchange *exchange);
    /* The client has got its reply or is gone: drop all references to the exchange. */
    void (*over)(void *context, serve_exchange *exchange);
} serve_http_events;

typedef struct serve_http_counts {
    int64_t connections, accepted, refused, evicted, timed_out;
    int64_t requests;
    int64_t replies[6]; /* by the status' hundreds */
    serve_body_budget bodies;
} serve_http_counts;

int serve_http_open(uv_loop_t *loop, const serve_http_limits *limits,
                    const serve_http_events *events, void *context, serve_http **ret_http,
                    fa_diag *diag);
/* Replies that are being sent are cut off. NULL and pointer to NULL are allowed. */
void serve_http_close(serve_http **http);

/* A connection that was accepted; the descriptor is owned from here on. FA_EBUSY: too many, and the
 * client has got an error. */
int serve_http_adopt(serve_http *http, int fd, bool local);
/* From now on each reply is its connection's last. */
void serve_http_drain(serve_http *http);
const serve_http_counts *serve_http_counted(const serve_http *http);
/* Requests whose reply has not been sent completely. */
int serve_http_busy(const serve_http *http);

#endif
