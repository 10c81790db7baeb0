/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries: requests that a thread works on and that get one answer. This file has the queries for lists of winners,
 * lists of GPUs, and cubins.
 */
#ifndef FA_DAEMON_QUERIES_H
#define FA_DAEMON_QUERIES_H

#include "buf.h"
#include "service.h"

typedef struct serve_query serve_query;
struct serve_query {
    serve_task task;
    serve_service *service;
    serve_waiters client; /* empty: the client is gone, or the query refreshes the cache */
    int (*work)(serve_query *query, fa_diag *diag); /* on the lookup thread */
    serve_thread *
        apart; /* the thread that runs it, without the lookup thread's tuner; NULL: the lookup thread */
    serve_body *body;
    char gpu[64]; /* lists winners of this GPU type; "": of all types */
    int limit;
    char key[65]; /* of a cubin */
    serve_cache_time when;
    unsigned status; /* of a successful reply */
    int rc;
    fa_diag diag;
    fa_buf text; /* the reply, JSON */
    void *bytes; /* of a cubin */
    size_t size;
};

/* Runs a query for `exchange`, which may be NULL. *query is copied, and the copy owns its body. The reply is the
 * query's text, unless done() is given: it replies and frees the query. */
void serve_query_submit(serve_service *service, serve_exchange *exchange, const serve_query *query,
                        void (*done)(serve_task *task));
void serve_get_winners(serve_service *service, serve_exchange *exchange);
void serve_get_cubin(serve_service *service, serve_exchange *exchange);
void serve_get_gpus(serve_service *service, serve_exchange *exchange);

/* The page and what it shows: the report's document, the fleet's queue, and the jobs as a stream.
 *
 * A separate thread with a tuner of its own reads reports and the queue, so that no lookup waits for them. One
 * report is made at a time, however many clients request it, and making reports takes at most a fifth of the time:
 * a report is kept for four times as long as it took, and after that until the store has changed. Every follower
 * gets the whole state of the jobs, at most twice a second and only when it has changed: a follower that falls
 * behind misses states and costs no memory. */
void serve_get_page(serve_service *service, serve_exchange *exchange);
void serve_get_report(serve_service *service, serve_exchange *exchange);
void serve_get_queue(serve_service *service, serve_exchange *exchange);
void serve_get_events(serve_service *service, serve_exchange *exchange);

/* Sends the followers the state of the jobs if it has changed; and a comment. */
void serve_overview_send(serve_service *service);
void serve_overview_keep_alive(serve_service *service);
void serve_overview_stop(serve_service *service);
void serve_overview_free(serve_service *service);

#endif
