/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection and the server that it belongs to, as the files of the HTTP server share them, and
 * how libmicrohttpd is run on the loop.
 */
#ifndef FA_DAEMON_CONNECTION_H
#define FA_DAEMON_CONNECTION_H

#include "buf.h"
#include "http.h"

#include <sys/un.h>

enum { CONNECTION_SMALL = 2048, CONNECTION_SOURCES = 1024 };

enum connection_phase {
    CONNECTION_IDLE,  /* until a head is whole */
    CONNECTION_BODY,  /* until its body is */
    CONNECTION_WORK,  /* the service's turn */
    CONNECTION_SEND,  /* until the client has taken the reply */
    CONNECTION_STREAM /* since it took something last */
};

struct connection {
    serve_exchange exchange; /* first: an exchange is its connection */
    serve_http *http;
    struct MHD_Connection *mhd;
    struct connection *next, *previous;
    int fd;
    unsigned source; /* over TCP: who the peer is, of CONNECTION_SOURCES */
    enum connection_phase phase;
    int64_t since_ms;
    bool served;      /* at least one request */
    bool at_work;     /* a request has begun and is not over */
    bool waits;       /* libmicrohttpd has been told to ask again for the reply */
    bool suspended;   /* libmicrohttpd does not look at it */
    bool cut;         /* its socket has been shut down */
    bool ambiguous;   /* nothing after this request is read */
    bool overlong;    /* more of a body came than is taken, or than there is memory for */
    serve_page *page; /* to be queued, with exchange.status */
    fa_buf out;       /* of a stream */
    size_t out_taken;
    bool ended;       /* nothing follows in the stream */
    serve_body *body; /* of a request whose body does not fit into `small`; else NULL */
    char small[CONNECTION_SMALL];
};

struct serve_http {
    uv_loop_t *loop;
    struct MHD_Daemon *daemon;
    uv_poll_t poll;
    uv_idle_t soon;   /* runs libmicrohttpd again, others having had their turn */
    uv_timer_t later; /* the same after a while: it is stuck */
    uv_timer_t tick;
    int open_handles;
    int64_t progress; /* callbacks of libmicrohttpd */
    serve_http_limits limits;
    serve_http_events events;
    void *context;
    serve_http_counts counts;
    struct connection *first;
    int busy;
    int open, remote, strangers; /* connections that were not cut, as serve_http_limits has them */
    int strangers_of[CONNECTION_SOURCES]; /* users of this host, and other hosts: serve_peer_of() */
    unsigned adopting_source;
    bool adopting_local, draining;
};

/* Goes on with what is under way, without waiting. */
void connection_run(serve_http *http);
/* The same once the loop's other events have had their turn. */
void connection_run_soon(serve_http *http);
void connection_enter(struct connection *c, enum connection_phase phase);
/* Without the token so far, over TCP. */
bool connection_is_stranger(const struct connection *c);
/* Adds to, or takes from, the counts of connections that were not cut. */
void connection_count(const struct connection *c, int change);
/* The part of strangers alone, for one that is none any more. */
void connection_count_stranger(const struct connection *c, int change);
/* Shuts the socket down; libmicrohttpd then clears the connection away. */
void connection_cut(struct connection *c);

#endif
