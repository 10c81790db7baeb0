/* SPDX-License-Identifier: Apache-2.0
 *
 * A connection, as http.c and reply.c share it.
 */
#ifndef FA_DAEMON_CONNECTION_H
#define FA_DAEMON_CONNECTION_H

#include "buf.h"
#include "http.h"

#include <sys/un.h>

enum { CONNECTION_SMALL = 2048 };

enum connection_phase {
    CONNECTION_IDLE,  /* until a head is whole */
    CONNECTION_BODY,  /* until its body is */
    CONNECTION_WORK,  /* ours */
    CONNECTION_SEND,  /* until the client has taken the reply */
    CONNECTION_STREAM /* since it took something last */
};

struct connection {
    serve_exchange exchange; /* first: an exchange is its connection */
    serve_http *http;
    struct MHD_Connection *mhd;
    struct connection *next, *previous;
    int fd;
    enum connection_phase phase;
    int64_t since_ms;
    bool served;      /* at least one request */
    bool at_work;     /* a request has begun and is not over */
    bool suspended;   /* libmicrohttpd does not look at it */
    bool cut;         /* its socket has been shut down */
    bool ambiguous;   /* nothing after this request is read */
    bool overlong;    /* more of a body came than is taken */
    serve_page *page; /* to be queued, with exchange.status */
    fa_buf out;       /* of a stream */
    size_t out_taken;
    bool ended; /* nothing follows in the stream */
    char *body;
    size_t body_capacity;
    char small[CONNECTION_SMALL]; /* most bodies fit */
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
    bool adopting_local, draining;
};

void serve_http_run_soon(serve_http *http);
void connection_resume(struct connection *c);
void connection_forget(struct connection *c);
/* framing.c */
/* Whether a head can be read in two ways; else exchange.announced is set. */
bool connection_is_ambiguous(struct connection *c);
size_t connection_unescape(void *context, struct MHD_Connection *mhd, char *text);

#endif
