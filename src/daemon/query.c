/* SPDX-License-Identifier: Apache-2.0 */
#include "query.h"

#include "reply.h"
#include "tuners.h"

#include <stdlib.h>

/* A query that finds the store broken asks again, once it has been opened anew. */
static void work_on(serve_task *task, serve_thread *thread)
{
    serve_query *query = (serve_query *)task;
    (void)thread;
    query->rc = query->work(query, &query->diag);
    if (serve_tuner_reopen(query->service, query->rc)) {
        fa_buf_clear(&query->text);
        query->rc = query->work(query, &query->diag);
    }
}

static void work_apart(serve_task *task, serve_thread *thread)
{
    serve_query *query = (serve_query *)task;
    (void)thread;
    query->rc = query->work(query, &query->diag);
}

bool serve_query_take_client(serve_query *query, serve_exchange **ret_exchange)
{
    serve_exchange *exchange = serve_waiters_take(&query->client);
    *ret_exchange = exchange;
    if (exchange == NULL)
        return false;
    if (query->task.skipped)
        serve_refuse(query->service, exchange, "this server is stopping");
    else if (query->rc != 0)
        serve_reply_error(exchange, query->rc, query->diag.text, NULL);
    return !query->task.skipped && query->rc == 0;
}

void serve_query_free(serve_query *query)
{
    serve_body_drop(&query->body);
    fa_buf_free(&query->text);
    free(query->bytes);
    free(query);
}

static void reply_text(serve_task *task)
{
    serve_query *query = (serve_query *)task;
    serve_exchange *exchange;
    if (serve_query_take_client(query, &exchange))
        serve_reply_json(exchange, query->status, serve_text_of(&query->text));
    serve_query_free(query);
}

void serve_query_submit(serve_service *service, serve_exchange *exchange, const serve_query *query,
                        void (*done)(serve_task *task))
{
    serve_query *copy = malloc(sizeof *copy);
    if (copy == NULL) {
        serve_body *body = query->body;
        serve_body_drop(&body);
        if (exchange != NULL)
            serve_reply_error(exchange, FA_ENOMEM, "out of memory", NULL);
        return;
    }
    *copy = *query;
    copy->task.work = query->apart != NULL ? work_apart : work_on;
    copy->task.done = done != NULL ? done : reply_text;
    copy->service = service;
    copy->when = serve_cache_now(service->cache);
    if (copy->status == 0)
        copy->status = MHD_HTTP_OK;
    if (exchange != NULL)
        serve_waiters_add(&copy->client, exchange, 0);
    serve_thread_submit(query->apart != NULL ? query->apart : service->lookup, &copy->task);
}
