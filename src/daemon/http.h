/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 on a libuv loop: libmicrohttpd's epoll descriptor under uv_poll.
 *
 * Workload: tens of thousands of small requests a second over a thousand kept connections, most of
 * them answered from memory; some wait for minutes, some are streams of events. Whoever is at the
 * other end is hostile until shown otherwise: sizes, the time of each part of a request and the
 * number of connections are bounded, whatever trickles in.
 * Invariants: everything happens on the loop's thread. A request is one serve_exchange, embedded in
 * its connection: nothing is allocated for one that is answered at once and whose body is small.
 *
 * The seam for tests: serve_http_adopt() takes one end of a socket pair as a client, and what is
 * written into the other end goes the whole way of a request.
 */
#ifndef FA_DAEMON_HTTP_H
#define FA_DAEMON_HTTP_H

#include "fa_types.h"

#include <microhttpd.h>
#include <uv.h>

typedef struct serve_http serve_http;
typedef struct serve_exchange serve_exchange;

typedef struct serve_http_limits {
    int connections;
    int remote;    /* of these, over TCP */
    int strangers; /* of these, without the token so far: the oldest makes room for a new one */
    int head_ms;   /* a new connection until its first request's head is whole */
    int body_ms;   /* from a head to the end of its body */
    int idle_ms;   /* a kept connection until its next head is whole */
    int send_ms;   /* for a client to take a response, or what has piled up of a stream */
} serve_http_limits;

/* What a front end asks of the service behind it. */
typedef struct serve_http_events {
    /* The head is there: set exchange->body_limit, or reply at once (the body is then not read).
     * Of a body that is larger nothing is kept, but body_size tells of it; one that is much
     * larger is not read. */
    void (*head)(void *context, serve_exchange *exchange);
    /* All of it is there: reply, or serve_stream(). An exchange that is not answered when this
     * returns waits: the reply comes later, from elsewhere. */
    void (*request)(void *context, serve_exchange *exchange);
    /* Whoever waited or listened is gone, or has been answered: forget the exchange. */
    void (*over)(void *context, serve_exchange *exchange);
} serve_http_events;

struct serve_exchange {
    const char *method, *path; /* decoded, without its query; path lives until the reply */
    const char *body;          /* body_size bytes and a NUL */
    size_t body_size, body_limit;
    size_t announced; /* bytes of the body as its head tells; SIZE_MAX: they come in chunks */
    bool local;       /* the peer was checked by its uid; else a token is due */
    bool trusted;     /* the peer has sent the token, with this request or an earlier one */
    unsigned status;  /* of the reply; 0: none yet */
    /* The service's: */
    void *waits_for;                        /* while it waits or streams */
    int64_t due_ms;                         /* when it has waited long enough; 0: never */
    struct serve_exchange *next, *previous; /* of those that wait for the same */
};

typedef struct serve_http_counts {
    int64_t connections, accepted, refused, evicted, timed_out;
    int64_t requests;
    int64_t replies[6]; /* by the status' hundreds */
    int64_t bytes_in;
} serve_http_counts;

int serve_http_open(uv_loop_t *loop, const serve_http_limits *limits,
                    const serve_http_events *events, void *context, serve_http **ret_http,
                    fa_diag *diag);
/* Answers that are under way are cut off. NULL and pointer to NULL are allowed. */
void serve_http_close(serve_http **http);

/* A connection that was accepted; the descriptor is owned from here on. FA_EBUSY: too many, and the
 * client has been told so. */
int serve_http_adopt(serve_http *http, int fd, bool local);
/* Goes on with what is under way, without waiting. */
void serve_http_run(serve_http *http);
/* From now on each reply is its connection's last. */
void serve_http_drain(serve_http *http);
const serve_http_counts *serve_http_counted(const serve_http *http);
/* Requests whose answer has not been given whole. */
int serve_http_busy(const serve_http *http);

/* Whether its client is still there, as far as the kernel has heard. */
bool serve_is_connected(const serve_exchange *exchange);
/* The value of a query's argument or of a header, or NULL. */
const char *serve_argument(serve_exchange *exchange, const char *name);
const char *serve_header(serve_exchange *exchange, const char *name);

/* ---- pages: prepared responses, shared by any number of replies -------------------------------*/
typedef struct serve_page {
    struct MHD_Response *response;
    size_t size;
    int references;
} serve_page;

/* From malloced bytes, which the page owns from here on; one reference. NULL: no memory, or no
 * bytes. */
serve_page *serve_page_make(const char *type, void *bytes, size_t size);
serve_page *serve_page_text(const char *type, const char *text); /* of a constant */
bool serve_page_header(serve_page *page, const char *name, const char *value);
serve_page *serve_page_keep(serve_page *page);
void serve_page_drop(serve_page **page); /* NULL and pointer to NULL are allowed */

/* ---- replies: exactly one for an exchange ----------------------------------------------------*/
/* The caller keeps its reference; NULL: memory was short, and the connection is cut off. */
void serve_reply(serve_exchange *exchange, unsigned status, serve_page *page);
/* Text that was malloced, or NULL when memory was short; it is freed. */
void serve_reply_json(serve_exchange *exchange, unsigned status, char *text);
/* {"error": {"code": "FA_E…", "message": …}} with the code's status, and "job" where it is
 * given. */
void serve_reply_error(serve_exchange *exchange, int code, const char *message, const char *job);
/* The same with a status and, when positive, Retry-After. */
void serve_reply_refused(serve_exchange *exchange, unsigned status, int code, const char *message,
                         int retry_after_s);
unsigned serve_status_of(int code);
const char *serve_code_name(int code); /* "FA_EINVAL" */
/* The error document; malloced. */
char *serve_error_text(int code, const char *message, const char *job);

/* ---- streams of events -----------------------------------------------------------------------*/
void serve_stream(serve_exchange *exchange);
/* Queues text. What may be dropped is, when the client has fallen behind. */
void serve_stream_send(serve_exchange *exchange, const char *text, size_t size, bool may_drop);
void serve_stream_end(serve_exchange *exchange); /* after what is queued */

#endif
