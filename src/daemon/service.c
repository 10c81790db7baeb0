/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's life: its threads, its clock, its stop.
 */
#include "service.h"

#include "error.h"
#include "list.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TICK_MS = 100, BEAT_TICKS = 150 };

int64_t serve_unix_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int64_t serve_now_ms(const serve_service *service)
{
    return (int64_t)uv_now(service->loop);
}

/* ---- those that wait -------------------------------------------------------------------------*/
void serve_gather(serve_gathering *gathering, serve_exchange *exchange, int64_t due_ms)
{
    exchange->waits_for = gathering;
    exchange->due_ms = due_ms;
    SERVE_LIST_ADD(gathering->first, exchange);
    gathering->count++;
}

void serve_leave(serve_exchange *exchange)
{
    serve_gathering *gathering = exchange->waits_for;
    if (gathering == NULL)
        return;
    SERVE_LIST_REMOVE(gathering->first, exchange);
    exchange->waits_for = NULL;
    gathering->count--;
}

void serve_gathering_expire(serve_gathering *gathering, int64_t now_ms,
                            void (*due)(void *context, serve_exchange *exchange), void *context)
{
    serve_exchange *next;
    for (serve_exchange *e = gathering->first; e != NULL; e = next) {
        next = e->next;
        if (e->due_ms != 0 && now_ms >= e->due_ms) {
            serve_leave(e);
            due(context, e);
        }
    }
}

/* ---- life -----------------------------------------------------------------------------------*/
static void tick(uv_timer_t *timer)
{
    serve_service *service = timer->data;
    serve_flights_expire(service, serve_now_ms(service));
    serve_jobs_forget(service);
    if (++service->beats >= BEAT_TICKS) {
        service->beats = 0;
        serve_jobs_beat(service);
    }
}

bool serve_service_is_ready(const serve_service *service)
{
    return service->store_open && service->journal_open && !service->stopping;
}

/* The journal ends last: the others' last jobs are taken out of it. */
void serve_worker_gone(void *context)
{
    serve_service *service = context;
    service->workers--;
    if (service->stopping && service->workers == 1)
        serve_worker_stop(service->journal);
}

static int start_threads(serve_service *service, fa_diag *diag)
{
    static const serve_worker_calls lookup = {serve_watch, serve_lookup_end, serve_worker_gone,
                                              false};
    static const serve_worker_calls journal = {NULL, NULL, serve_worker_gone, true};
    int rc = serve_worker_start(service->mail, &lookup, service, &service->lookup, diag);
    if (rc == 0)
        service->workers++;
    if (rc == 0)
        rc = serve_worker_start(service->mail, &journal, service, &service->journal, diag);
    if (rc == 0)
        service->workers++;
    return rc;
}

int serve_service_open(uv_loop_t *loop, const serve_settings *settings,
                       void (*ready)(void *context), void *context, serve_service **ret_service,
                       fa_diag *diag)
{
    serve_service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the service");
    service->loop = loop;
    service->journal_lock = -1;
    service->settings = settings;
    service->ready = ready;
    service->ready_context = context;
    service->runs = true;
    service->started_ms = serve_unix_ms();
    fa_fail(&service->unready, 0, "the store is being opened");
    const int most = settings->max_connections;
    const serve_http_limits limits = {.connections = most,
                                      .remote =
                                          most - (most + 7) / 8 > 0 ? most - (most + 7) / 8 : 1,
                                      .strangers = most >= 4 ? most / 4 : 1,
                                      .head_ms = settings->head_timeout_s * 1000,
                                      .body_ms = settings->body_timeout_s * 1000,
                                      .idle_ms = settings->idle_timeout_s * 1000,
                                      .send_ms = settings->send_timeout_s * 1000};
    service->cache = serve_cache_make((size_t)settings->cache_mib << 20);
    int rc = service->cache == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for the service") : 0;
    if (rc == 0)
        rc = serve_mail_open(loop, &service->mail, diag);
    if (rc == 0)
        rc = serve_http_open(loop, &limits, &serve_routes, service, &service->http, diag);
    if (rc == 0)
        rc = start_threads(service, diag);
    if (rc != 0) { /* nothing is served; the process ends, and its threads with it */
        serve_http_close(&service->http);
        return rc;
    }
    uv_timer_init(loop, &service->tick);
    service->tick.data = service;
    uv_timer_start(&service->tick, tick, TICK_MS, TICK_MS);
    serve_ask_open(service);
    *ret_service = service;
    return 0;
}

void serve_service_stop(serve_service *service)
{
    if (service->stopping)
        return;
    service->stopping = true;
    fa_fail(&service->unready, 0, "this server is stopping");
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        atomic_store(&job->cancel, true);
    serve_http_drain(service->http);
    for (int i = 0; i < SERVE_RUNNERS; i++)
        if (service->runner[i] != NULL)
            serve_worker_stop(service->runner[i]->worker);
    serve_worker_stop(service->lookup);
    serve_flights_expire(service, INT64_MAX);
}

bool serve_service_stopped(const serve_service *service)
{
    return service->stopping && service->workers == 0;
}

static void timer_closed(uv_handle_t *handle)
{
    free(handle->data);
}

void serve_service_close(serve_service **service)
{
    if (service == NULL || *service == NULL)
        return;
    serve_service *s = *service;
    serve_http_close(&s->http);
    serve_mail_close(&s->mail);
    for (int i = 0; i < SERVE_RUNNERS; i++)
        if (s->runner[i] != NULL) {
            serve_worker_free(&s->runner[i]->worker);
            free(s->runner[i]);
        }
    serve_worker_free(&s->lookup);
    serve_worker_free(&s->journal);
    if (s->journal_lock >= 0)
        close(s->journal_lock);
    serve_flights_free(s);
    serve_jobs_free(s);
    serve_cache_free(&s->cache);
    uv_close((uv_handle_t *)&s->tick, timer_closed); /* which frees the service */
    *service = NULL;
}
