/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries: requests that a thread works on and that are answered once. Here are those for what the store
 * has besides kernels: lists of winners and of GPUs, and cubins.
 */
#ifndef FA_DAEMON_QUERIES_H
#define FA_DAEMON_QUERIES_H

#include "buf.h"
#include "service.h"

typedef struct serve_query serve_query;
struct serve_query {
    serve_task task;
    serve_service *service;
    serve_waiters client; /* nobody: its client is gone, or it is for the cache alone */
    int (*work)(serve_query *query, fa_diag *diag); /* on the lookup thread */
    serve_thread *apart; /* on this thread, without the lookup thread's tuner; NULL: on that */
    serve_body *body;
    char gpu[64]; /* winners of this type; "": of all */
    int limit;
    char key[65]; /* of a cubin */
    serve_cache_time when;
    unsigned status; /* of the reply, when it went well */
    int rc;
    fa_diag diag;
    fa_buf text; /* the reply, JSON */
    void *bytes; /* of a cubin */
    size_t size;
};

/* Asked by `exchange`, which may be NULL; *query is copied, and its body is taken. Its reply is the query's text, unless
 * done() makes another, which then frees the query. */
void serve_query_submit(serve_service *service, serve_exchange *exchange, const serve_query *query,
                        void (*done)(serve_task *task));
/* Takes the client; false: it is gone, or has been told what went wrong. */
bool serve_query_take_client(serve_query *query, serve_exchange **ret_exchange);
void serve_query_free(serve_query *query);

void serve_get_winners(serve_service *service, serve_exchange *exchange);
void serve_get_cubin(serve_service *service, serve_exchange *exchange);
void serve_get_gpus(serve_service *service, serve_exchange *exchange);

#endif
