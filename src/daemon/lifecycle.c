/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "error.h"
#include "queries.h"
#include "jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 100, TELL_TICKS = 5, KEEP_ALIVE_TICKS = 150 };

/* ---- starting -------------------------------------------------------------------------------*/
/* On the lookup thread the store is opened, and then the devices here are looked for. On the families' thread, before
 * it makes any, what was left half made is removed. On the journal's thread the jobs of an earlier process are read. */
static int start_work(serve_service *service, serve_thread *on,
                      int (*work)(serve_query *query, fa_diag *diag),
                      void (*done)(serve_task *task), fa_diag *diag)
{
    const serve_query query = {.work = work, .apart = on};
    return serve_query_submit(service, NULL, &query, done) != NULL
               ? 0
               : fa_fail(diag, FA_ENOMEM, "out of memory for the service");
}

static int open_store(serve_query *query, fa_diag *diag)
{
    serve_service *service = query->service;
    int rc = serve_tuner_need(service, &service->tuner, diag);
    if (rc != 0)
        return rc;
    const char *file = fa_store_file(service->tuner), *slash = strrchr(file, '/');
    snprintf(service->store, sizeof service->store, "%s", file);
    snprintf(service->folder, sizeof service->folder, "%.*s",
             slash != NULL ? (int)(slash - file) : 1, slash != NULL ? file : ".");
    serve_families_load(service); /* asks and jobs of earlier processes name them */
    return 0;
}

static int clean_families(serve_query *query, fa_diag *diag)
{
    (void)diag;
    serve_families_clean(query->service);
    return 0;
}

static int find_devices(serve_query *query, fa_diag *diag)
{
    (void)diag;
    serve_find_devices(query->service);
    return 0;
}

static void devices_found(serve_task *task)
{
    serve_query *query = (serve_query *)task;
    serve_service *service = query->service;
    if (!task->skipped) {
        service->devices = service->device_count;
        for (int i = 0; i < service->device_count; i++)
            serve_log(SERVE_INFO, "device", "gpu", service->device[i].name, "uuid",
                      service->device[i].uuid, NULL);
        if (service->device_count == 0)
            serve_log(SERVE_INFO, "no device here, so answers are predicted", "reason",
                      service->device_reason.text, NULL);
    }
    serve_query_free(query);
}

static void resume_job(serve_service *service, const serve_journal_entry *entry)
{
    bool is_sweep = strcmp(entry->kind, serve_job_kind_name(SERVE_SWEEP)) == 0;
    bool known = is_sweep || strcmp(entry->kind, serve_job_kind_name(SERVE_TUNE)) == 0;
    serve_job *job = known ? serve_job_new(service, is_sweep ? SERVE_SWEEP : SERVE_TUNE) : NULL;
    if (job == NULL) {
        serve_log(SERVE_WARN, "a job's file cannot be read and is passed over", "file", entry->id,
                  NULL);
        return;
    }
    memcpy(job->id, entry->id, sizeof job->id);
    job->accepted_ms = entry->accepted_ms;
    job->journaled = true;
    serve_log(SERVE_INFO, "job goes on", "job", job->id, NULL);
    serve_pending_resume(job, entry->body, entry->size);
}

static void journal_loaded(serve_task *task)
{
    serve_query *query = (serve_query *)task;
    serve_service *service = query->service;
    serve_journal_entry *entry;
    while ((entry = service->journal.first) != NULL) {
        service->journal.first = entry->next;
        if (!service->stopping)
            resume_job(service, entry);
        free(entry->body);
        free(entry);
    }
    service->journal_open = true;
    if (query->rc != 0) /* a store that cannot be written: lookups work, and no job is accepted */
        serve_log(SERVE_WARN, "jobs cannot be kept", "reason", query->diag.text, NULL);
    if (serve_service_is_ready(service) && service->ready != NULL)
        service->ready(service->ready_context);
    serve_query_free(query);
}

static void store_opened(serve_task *task)
{
    serve_query *opened = (serve_query *)task;
    serve_service *service = opened->service;
    const bool goes_on = !task->skipped && !service->stopping;
    if (goes_on && opened->rc == 0)
        opened->rc =
            start_work(service, service->lookup, find_devices, devices_found, &opened->diag);
    if (goes_on && opened->rc == 0 && service->families != NULL)
        opened->rc = start_work(service, service->families, clean_families, NULL, &opened->diag);
    if (goes_on && opened->rc == 0)
        opened->rc = start_work(service, service->journal.thread, serve_journal_load,
                                journal_loaded, &opened->diag);
    if (!goes_on) {
        /* it ends */
    } else if (opened->rc != 0) {
        service->failed = opened->rc;
        service->unready = opened->diag;
        service->ready(service->ready_context);
    } else {
        service->store_open = true;
        fa_fail(&service->unready, 0, "earlier jobs are being read");
    }
    serve_query_free(opened);
}

/* ---- life -----------------------------------------------------------------------------------*/
static void tick(uv_timer_t *timer)
{
    serve_service *service = timer->data;
    serve_pending_expire(service, serve_now_ms(service));
    serve_jobs_forget(service);
    if (++service->ticks % TELL_TICKS == 0)
        serve_overview_send(service);
    if (service->ticks >= KEEP_ALIVE_TICKS) {
        service->ticks = 0;
        serve_jobs_keep_alive(service);
        serve_overview_keep_alive(service);
    }
}

static int start_threads(serve_service *service, fa_diag *diag)
{
    static const serve_thread_calls lookup = {serve_tuner_watch, serve_tuner_close,
                                              serve_service_thread_ended, false};
    static const serve_thread_calls families = {NULL, NULL, serve_service_thread_ended, false};
    static const serve_thread_calls journal = {NULL, NULL, serve_service_thread_ended, true};
    const bool allow = service->settings->allow_user_templates;
    int rc = serve_thread_start(service->queue, &lookup, service, &service->lookup, diag);
    if (rc == 0)
        rc = serve_thread_start(service->queue, &journal, service, &service->journal.thread, diag);
    if (rc == 0 && allow)
        rc = serve_thread_start(service->queue, &families, service, &service->families, diag);
    service->threads = rc == 0 ? 2 + allow : 0;
    return rc;
}

static serve_http_limits limits_of(const serve_settings *settings)
{
    const int most = settings->max_connections, reserved = (most + 7) / 8;
    const size_t bodies = (size_t)settings->max_bodies_mib << 20;
    const size_t largest = 2 * (size_t)settings->max_sweep_body; /* as its memory grows */
    return (serve_http_limits){.connections = most,
                               .remote = most > reserved ? most - reserved : 1,
                               .strangers = most >= 4 ? most / 4 : 1,
                               .head_ms = settings->head_timeout_s * 1000,
                               .body_ms = settings->body_timeout_s * 1000,
                               .idle_ms = settings->idle_timeout_s * 1000,
                               .send_ms = settings->send_timeout_s * 1000,
                               .bodies = bodies > largest ? bodies : largest};
}

int serve_service_open(uv_loop_t *loop, const serve_settings *settings,
                       void (*ready)(void *context), void *context, serve_service **ret_service,
                       fa_diag *diag)
{
    serve_service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the service");
    service->loop = loop;
    service->journal.lock = -1;
    service->settings = settings;
    service->ready = ready;
    service->ready_context = context;
    service->job_ended = serve_pending_job_ended;
    service->runs = true;
    service->started_ms = serve_unix_ms();
    fa_fail(&service->unready, 0, "the store is being opened");
    const serve_http_limits limits = limits_of(settings);
    service->cache = serve_cache_make((size_t)settings->cache_mib << 20);
    int rc = service->cache == NULL ? fa_fail(diag, FA_ENOMEM, "out of memory for the service") : 0;
    if (rc != 0 || (rc = serve_loop_queue_open(loop, &service->queue, diag)) != 0 ||
        (rc = serve_http_open(loop, &limits, &serve_routes, service, &service->http, diag)) != 0 ||
        (rc = start_threads(service, diag)) != 0) {
        /* Nothing is served; the process ends, and its threads with it. */
        serve_http_close(&service->http);
        return rc;
    }
    uv_timer_init(loop, &service->tick);
    service->tick.data = service;
    uv_timer_start(&service->tick, tick, TICK_MS, TICK_MS);
    rc = start_work(service, service->lookup, open_store, store_opened, diag);
    if (rc != 0) {
        serve_http_close(&service->http);
        return rc;
    }
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
            serve_thread_stop(service->runner[i]->thread);
    serve_thread_stop(service->lookup);
    if (service->families != NULL)
        serve_thread_stop(service->families);
    serve_overview_stop(service);
    serve_pending_expire(service, INT64_MAX);
}

bool serve_service_stopped(const serve_service *service)
{
    return service->stopping && service->threads == 0;
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
    serve_loop_queue_close(&s->queue);
    for (int i = 0; i < SERVE_RUNNERS; i++)
        if (s->runner[i] != NULL) {
            serve_thread_free(&s->runner[i]->thread);
            free(s->runner[i]);
        }
    serve_thread_free(&s->lookup);
    serve_thread_free(&s->families);
    serve_thread_free(&s->journal.thread);
    if (s->journal.lock >= 0)
        close(s->journal.lock);
    serve_pending_free(s);
    serve_jobs_free(s);
    serve_cache_free(&s->cache);
    serve_overview_free(s);
    serve_page_drop(&s->openapi);
    uv_close((uv_handle_t *)&s->tick, timer_closed); /* which frees the service */
    *service = NULL;
}
