/* SPDX-License-Identifier: Apache-2.0
 *
 * One request and its reply, and lists of those that wait. An exchange is embedded in its connection
 * and lives until its reply has been given or its client is gone.
 */
#ifndef FA_DAEMON_EXCHANGE_H
#define FA_DAEMON_EXCHANGE_H

#include "body.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct serve_exchange serve_exchange;

enum { SERVE_PART_SIZE = 66 };

struct serve_exchange {
    const char *method, *path; /* decoded, without its query; path lives until the reply */
    const char *body;          /* body_size bytes and a NUL */
    size_t body_size, body_limit;
    size_t announced; /* bytes of the body as its head tells; SIZE_MAX: they come in chunks */
    bool local;       /* the peer was checked by its uid; else a token is due */
    bool trusted;     /* the peer has sent the token, with this request or an earlier one */
    bool body_lost;   /* no memory was left for the body: the client is to come back */
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

/* Whether its client is still there, as far as the kernel has heard. */
bool serve_is_connected(const serve_exchange *exchange);
/* The value of a query's argument or of a header, or NULL. */
const char *serve_argument(const serve_exchange *exchange, const char *name);
const char *serve_header(const serve_exchange *exchange, const char *name);
/* The body for those who need it after the request: one reference; NULL: out of memory. */
serve_body *serve_exchange_body(serve_exchange *exchange);

/* Clients that wait for the same thing, or listen to it. An exchange is in one such list at most. */
typedef struct serve_waiters {
    serve_exchange *first;
    int count;
} serve_waiters;

/* due_ms: when the exchange has waited long enough; 0: never. */
void serve_waiters_add(serve_waiters *waiters, serve_exchange *exchange, int64_t due_ms);
/* Takes an exchange out of the list that it is in, if it is in one. */
void serve_waiters_remove(serve_exchange *exchange);
/* Takes the first exchange out; NULL: nobody waits. */
serve_exchange *serve_waiters_take(serve_waiters *waiters);
/* Takes out those whose time has come, and calls due() of each. */
void serve_waiters_expire(serve_waiters *waiters, int64_t now_ms,
                          void (*due)(void *context, serve_exchange *exchange), void *context);

#endif
