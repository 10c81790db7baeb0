/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 on a libuv loop: libmicrohttpd's epoll descriptor under uv_poll.
 *
 * Workload: tens of thousands of small requests a second over a thousand kept connections, most of
 * them answered from memory; some wait for minutes, some are streams of events. Clients are taken
 * to be hostile: sizes, the time of each part of a request and the number of connections are bounded,
 * however slowly the bytes come in.
 * Invariants: everything happens on the loop's thread. A request is one serve_exchange, which is embedded in its connection
 * and lives until its reply has been given or its client is gone: no memory is allocated for a request with a small body
 * that is answered at once. Its reply comes at once, from memory, later, or as a stream of events.
 *
 * Bodies are shared by all who need the bytes, and bounded in sum. What a connection reads and what waits to be looked up
 * counts against one budget; a body that fits into its connection does not count, so that lookups go on while sweeps are
 * asked to come back. The loop's thread makes, keeps and drops bodies; other threads read the bytes of a body that the
 * loop holds for them.
 *
 * The seam for tests: serve_http_adopt() takes one end of a socket pair as a client, and what is
 * written into the other end goes the whole way of a request.
 */
#ifndef FA_DAEMON_HTTP_H
#define FA_DAEMON_HTTP_H

#include "fa_types.h"

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <uv.h>

struct fa_buf;

/* ---- pages (cache.c) ------------------------------------------------------------------------*/
/* Prepared responses, shared by any number of replies. On the loop's thread. */
typedef struct serve_page {
    struct MHD_Response *response;
    size_t size;
    int references;
} serve_page;

/* Takes a response of libmicrohttpd's, or NULL; one reference. NULL: out of memory. */
serve_page *serve_page_of(const char *type, size_t size, struct MHD_Response *response);
/* From malloced bytes, which the page owns from here on; NULL: out of memory, or no bytes. */
serve_page *serve_page_make(const char *type, void *bytes, size_t size);
serve_page *serve_page_json(char *text);                         /* the same for a JSON text */
serve_page *serve_page_text(const char *type, const char *text); /* of a constant */
/* NULL page is allowed. */
void serve_page_header(serve_page *page, const char *name, const char *value);
serve_page *serve_page_keep(serve_page *page);
void serve_page_drop(serve_page **page); /* NULL and pointer to NULL are allowed */

/* ---- answers in memory (cache.c): from the exact bytes of a request to a page ---------------*/
/* A hit allocates nothing.
 *
 * Workload: a few to some thousands of different requests, each sent again and again.
 * Invariants: bounded in entries and bytes. An answer is at most two seconds older than what the
 * store's watcher has seen, or as long as looking it up again takes (a database may have gone);
 * after a tune of this daemon no older answer is served at all. */
typedef struct serve_cache serve_cache;

/* When a lookup began, for what it found. */
typedef struct serve_cache_time {
    int64_t epoch, generation;
} serve_cache_time;

typedef struct serve_cache_counts {
    int64_t hits, misses, entries, bytes;
} serve_cache_counts;

serve_cache *serve_cache_make(size_t bytes); /* NULL: out of memory */
void serve_cache_free(serve_cache **cache);

/* A request's bytes, among those of one kind. */
typedef struct serve_cache_key {
    char kind; /* not 0 */
    const char *bytes;
    size_t size;
} serve_cache_key;

/* The page, or NULL. *ret_refresh: the page is older than a change of the store, and the caller looks it up again;
 * that is true for one caller only. The cache owns the page until the loop continues. */
serve_page *serve_cache_get(serve_cache *cache, serve_cache_key key, int64_t now_ms,
                            bool *ret_refresh);
serve_cache_time serve_cache_now(const serve_cache *cache);
/* Keeps a page that was looked up at `when`, unless the cache was emptied since. */
void serve_cache_put(serve_cache *cache, serve_cache_key key, serve_page *page,
                     serve_cache_time when, int64_t now_ms);
void serve_cache_empty(serve_cache *cache);      /* a tune has stored a winner */
void serve_cache_mark_stale(serve_cache *cache); /* somebody has written to the store */
const serve_cache_counts *serve_cache_counted(const serve_cache *cache);

/* ---- bodies ---------------------------------------------------------------------------------*/
typedef struct serve_body_budget {
    size_t used, limit;
} serve_body_budget;

typedef struct serve_body {
    serve_body_budget *budget; /* NULL: it does not count */
    int references;
    size_t size, capacity;
    char bytes[]; /* `size` of them, then a NUL */
} serve_body;

/* A copy with one reference; NULL: out of memory, or over the budget (which may be NULL). */
serve_body *serve_body_make(const char *bytes, size_t size, serve_body_budget *budget);
/* Of a body that nobody else holds: 0, FA_ENOMEM, or FA_EBUSY over the budget; then it is as it was. */
int serve_body_append(serve_body **body, const char *bytes, size_t size);
void serve_body_drop(serve_body **body); /* NULL and pointer to NULL are allowed */

/* ---- requests -------------------------------------------------------------------------------*/
typedef struct serve_exchange serve_exchange;

enum { SERVE_PART_SIZE = 66 };

struct serve_exchange {
    const char *method, *path; /* decoded, without its query; path lives until the reply */
    const char *body;          /* body_size bytes and a NUL */
    size_t body_size, body_limit;
    size_t announced; /* Content-Length; SIZE_MAX: the body comes in chunks */
    bool local;       /* the peer was checked by its uid; otherwise it needs a token */
    bool trusted;     /* the peer has sent the token, with this request or an earlier one */
    bool body_lost;   /* there was no memory for the body: the client is asked to come back */
    unsigned status;  /* of the reply; 0: none yet */
    /* The routes': */
    const void *route;          /* that the path and the method lead to; NULL: to none */
    unsigned allowed;           /* methods that the path takes */
    char part[SERVE_PART_SIZE]; /* what a "*" of the route stands for, within the path */
    /* The service's: */
    void *waits_in;                         /* the list of those that wait or listen with it */
    int64_t due_ms;                         /* when it has waited long enough; 0: never */
    struct serve_exchange *next, *previous; /* in that list */
};

/* Whether its client has closed neither its connection nor its sending side. */
bool serve_is_connected(const serve_exchange *exchange);
/* The value of a query's argument or of a header, or NULL. */
const char *serve_argument(const serve_exchange *exchange, const char *name);
/* The first argument whose name is not among these, which are separated by spaces; NULL: there is none. */
const char *serve_unknown_argument(const serve_exchange *exchange, const char *names);
const char *serve_header(const serve_exchange *exchange, const char *name);
/* The body for those who need it after the request: one reference; NULL: out of memory. */
serve_body *serve_exchange_body(serve_exchange *exchange);

/* ---- replies: exactly one for an exchange ---------------------------------------------------*/
/* The caller keeps its reference; NULL: memory was short, and the connection is cut off. */
void serve_reply(serve_exchange *exchange, unsigned status, serve_page *page);
/* The same; the caller's reference is given up. */
void serve_reply_page(serve_exchange *exchange, unsigned status, serve_page *page);
/* The page, or 304 with its ETag where the client's If-None-Match names it. */
void serve_reply_unless_known(serve_exchange *exchange, serve_page *page);
/* Text that was malloced, or NULL when memory was short; it is freed. */
void serve_reply_json(serve_exchange *exchange, unsigned status, char *text);
/* {"error": {"code": "FA_E…", "message": …}} with the code's status, and "job" where it is
 * given. */
void serve_reply_error(serve_exchange *exchange, int code, const char *message, const char *job);
/* The same with a status and, when positive, Retry-After. */
void serve_reply_refused(serve_exchange *exchange, unsigned status, int code, const char *message,
                         int retry_after_s);
/* Asks a client to come back whose body found no memory. */
void serve_reply_no_memory(serve_exchange *exchange);
unsigned serve_status_of(int code);
/* The error document; malloced. */
char *serve_error_text(int code, const char *message, const char *job);
/* A buffer's text, which is the caller's from here on; NULL when memory was short. */
char *serve_text_of(struct fa_buf *buf);
/* An error as a whole reply, written past libmicrohttpd to a connection that ends with it. */
void serve_send_alone(int fd, unsigned status, int code, const char *message);

/* ---- streams of events: a reply that goes on until it is ended ------------------------------*/
void serve_stream(serve_exchange *exchange);
/* Queues text. With may_drop the text is dropped if the client has fallen behind. */
void serve_stream_send(serve_exchange *exchange, const char *text, size_t size, bool may_drop);
void serve_stream_end(serve_exchange *exchange); /* after what is queued */

/* ---- lists of waiting clients ------------------------------------------------------------------------*/
/* Clients that wait for the same thing, or listen to it. An exchange is in one such list at most. */
typedef struct serve_waiters {
    serve_exchange *first;
    int count;
} serve_waiters;

/* due_ms: when the exchange has waited long enough; 0: never. */
void serve_waiters_add(serve_waiters *waiters, serve_exchange *exchange, int64_t due_ms);
/* Removes an exchange from the list that it is in, if it is in one. */
void serve_waiters_remove(serve_exchange *exchange);
/* Removes and returns the first exchange; NULL: the list is empty. */
serve_exchange *serve_waiters_take(serve_waiters *waiters);
/* Removes every exchange that is due, and calls due() for it. */
void serve_waiters_expire(serve_waiters *waiters, int64_t now_ms,
                          void (*due)(void *context, serve_exchange *exchange), void *context);

/* Doubly linked lists of structs with `next` and `previous` of their own type; `first` is the head. */
#define SERVE_LIST_ADD(first, item)          \
    do {                                     \
        (item)->previous = NULL;             \
        (item)->next = (first);              \
        if ((item)->next != NULL)            \
            (item)->next->previous = (item); \
        (first) = (item);                    \
    } while (0)

#define SERVE_LIST_REMOVE(first, item)                                                   \
    do {                                                                                 \
        *((item)->previous != NULL ? &(item)->previous->next : &(first)) = (item)->next; \
        if ((item)->next != NULL)                                                        \
            (item)->next->previous = (item)->previous;                                   \
        (item)->next = (item)->previous = NULL;                                          \
    } while (0)

/* ---- http.c ----------------------------------------------------------------------------------*/
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

/* ---- sockets to accept connections from -----------------------------------------------------*/
/* They are opened by the daemon itself, or passed by systemd. */
typedef struct serve_listener {
    int fd;
    bool local;   /* a Unix socket: peers are known by their uid */
    int lock_fd;  /* of the lock file of the process that serves there; -1 */
    dev_t device; /* of the socket that was bound, so that no other socket is removed */
    ino_t inode;
    char where[160]; /* "unix:/run/…", "tcp:127.0.0.1:7411" */
} serve_listener;

/* Binds a Unix socket that only its owner may use. A socket file that no process serves any more is replaced.
 * FA_EBUSY: another process serves there. */
int serve_listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag);
/* "HOST:PORT", "[::1]:PORT", or a port alone, which is on 127.0.0.1. Port 0: any, see `where`. */
/* Whether it is such an address, without resolving it. */
int serve_tcp_check(const char *where, fa_diag *diag);
int serve_listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag);
/* The sockets that systemd passes, at most `room`; *ret_count is 0 when it passes none. */
int serve_listen_inherited(serve_listener *ret_listeners, int room, int *ret_count, fa_diag *diag);
/* Closes the listener and removes its Unix socket if this process has bound it. */
void serve_listener_close(serve_listener *listener);

/* A connection, or -1 when there is none for now, or when the peer is another user (*ret_refused is true). */
int serve_listener_accept(const serve_listener *listener, bool *ret_refused);

/* Sends "READY=1" and the like to systemd, if NOTIFY_SOCKET is set. */
void serve_notify(const char *state);

#endif
