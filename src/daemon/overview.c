/* SPDX-License-Identifier: Apache-2.0 */
#include "queries.h"

#include "error.h"
#include "jobs.h"
#include "report.h"

#include <stdlib.h>
#include <string.h>

enum {
    PROBLEMS_MAX = 4000, /* of a report */
    REPORT_MAX_MS = 120000,
    REST = 4, /* the next report is started after so many times the time that the last one took */
    FOLLOWERS_MAX = 32
};

/* ---- the page -------------------------------------------------------------------------------*/
void serve_get_page(serve_service *service, serve_exchange *exchange)
{
    if (!serve_is_at_home(exchange)) {
        serve_reply_refused(exchange, MHD_HTTP_FORBIDDEN, FA_EUNTRUSTED,
                            "open this page by a name of this host's loopback, as in "
                            "http://127.0.0.1",
                            0);
        return;
    }
    if (service->front == NULL) {
        fa_buf out = {0};
        for (size_t i = 0; i < sizeof report_live_part / sizeof *report_live_part; i++)
            fa_buf_append(&out, report_live_part[i].bytes, report_live_part[i].size);
        const size_t size = out.size;
        serve_page *page = serve_page_make("text/html; charset=utf-8", serve_text_of(&out), size);
        /* The page's own policy names its script and style; frame-ancestors works in a header only. */
        serve_page_header(page, "Content-Security-Policy", "frame-ancestors 'none'");
        serve_page_header(page, "Cross-Origin-Opener-Policy", "same-origin");
        serve_page_header(page, "Cross-Origin-Resource-Policy", "same-origin");
        serve_page_header(page, "Referrer-Policy", "no-referrer");
        serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
        service->front = page;
    }
    serve_reply(exchange, MHD_HTTP_OK, service->front);
}

/* ---- the reader's thread ----------------------------------------------------------------------*/
static void reader_end(void *context)
{
    fa_close(&((serve_service *)context)->reader_tuner);
}

static int need_reader(serve_service *service, fa_diag *diag)
{
    static const serve_thread_calls calls = {NULL, reader_end, serve_service_thread_ended, false};
    if (service->reader != NULL)
        return 0;
    int rc = serve_thread_start(service->queue, &calls, service, &service->reader, diag);
    service->threads += rc == 0;
    return rc;
}

/* ---- the report -----------------------------------------------------------------------------*/
static int64_t ms_since(uint64_t began_ns)
{
    return (int64_t)((uv_hrtime() - began_ns) / 1000000);
}

static bool stops(const void *context, int32_t done, int32_t all)
{
    (void)done, (void)all;
    const serve_query *query = context;
    return atomic_load(&query->service->stop_reading) || ms_since(query->began_ns) > REPORT_MAX_MS;
}

/* On the reader's thread. An error of a broken store is reported once, because the store is reopened then. */
static int write_report(serve_query *query, fa_diag *diag)
{
    fa_tuner **tuner = &query->service->reader_tuner;
    const report_options options = {
        .format = REPORT_PAGE_JSON, .most = PROBLEMS_MAX, .progress = stops, .context = query};
    query->began_ns = uv_hrtime();
    int rc = serve_tuner_need(query->service, tuner, diag);
    if (rc == 0)
        rc = report_write(*tuner, &options, &query->text, NULL, diag);
    serve_tuner_close_broken(tuner, rc);
    return rc == FA_ECANCELED
               ? fa_fail(diag, FA_ETIMEOUT,
                         "the report takes too long: ask for a part of it, as in fa-tune report "
                         "--gpu L4")
               : rc;
}

static void version_of(serve_cache_time when, char ret[64])
{
    snprintf(ret, 64, "\"%lld.%lld\"", (long long)when.epoch, (long long)when.generation);
}

static void report_made(serve_task *task)
{
    serve_query *making = (serve_query *)task;
    serve_service *service = making->service;
    serve_report *report = &service->report;
    serve_exchange *exchange;
    char tag[64];
    if (!task->skipped && making->rc == 0) {
        const size_t size = making->text.size;
        serve_page_drop(&report->page);
        report->page = serve_page_make("application/json", serve_text_of(&making->text), size);
        report->when = making->when;
        report->made_ms = serve_now_ms(service);
        report->took_ms = ms_since(making->began_ns);
        version_of(report->when, tag);
        serve_page_header(report->page, MHD_HTTP_HEADER_ETAG, tag);
        serve_page_header(report->page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    }
    report->making = NULL;
    while ((exchange = serve_waiters_take(&making->client)) != NULL)
        if (task->skipped || service->stopping)
            serve_refuse(service, exchange, "this server is stopping");
        else if (making->rc != 0)
            serve_reply_error(exchange, making->rc, making->diag.text, NULL);
        else
            serve_reply_unless_known(exchange, report->page);
    serve_query_free(making);
}

static bool is_current(const serve_service *service)
{
    const serve_report *report = &service->report;
    const serve_cache_time now = serve_cache_now(service->cache);
    return report->page != NULL &&
           ((report->when.epoch == now.epoch && report->when.generation == now.generation) ||
            serve_now_ms(service) - report->made_ms < REST * report->took_ms);
}

void serve_get_report(serve_service *service, serve_exchange *exchange)
{
    serve_report *report = &service->report;
    fa_diag diag;
    if (is_current(service)) {
        serve_reply_unless_known(exchange, report->page);
        return;
    }
    if (report->making != NULL) {
        serve_waiters_add(&report->making->client, exchange, 0);
        return;
    }
    int rc = need_reader(service, &diag);
    const serve_query query = {.work = write_report, .apart = service->reader};
    if (rc != 0)
        serve_reply_error(exchange, rc, diag.text, NULL);
    else
        report->making = serve_query_submit(service, exchange, &query, report_made);
}

/* ---- the fleet's queue ------------------------------------------------------------------------*/
/* A store that no other host shares has no queue. */
static int read_queue(serve_query *query, fa_diag *diag)
{
    fa_tuner **tuner = &query->service->reader_tuner;
    char *text = NULL;
    int rc = serve_tuner_need(query->service, tuner, diag);
    if (rc == 0)
        rc = fa_queue_write(*tuner, &text, diag);
    serve_tuner_close_broken(tuner, rc);
    if (rc == 0 || rc == FA_ESTORE)
        fa_buf_text(&query->text, rc == 0 ? text : "{\"sweeps\":[]}");
    free(text);
    return rc == FA_ESTORE ? 0 : rc;
}

void serve_get_queue(serve_service *service, serve_exchange *exchange)
{
    fa_diag diag;
    int rc = need_reader(service, &diag);
    const serve_query query = {.work = read_queue, .apart = service->reader};
    if (rc != 0)
        serve_reply_error(exchange, rc, diag.text, NULL);
    else
        serve_query_submit(service, exchange, &query, NULL);
}

/* ---- followers --------------------------------------------------------------------------------*/
/* {"ready":…,"report":"1.4","queued":0,"jobs":[…]} as an event; NULL: out of memory. */
static char *state_text(const serve_service *service)
{
    fa_buf out = {0};
    char tag[64];
    version_of(serve_cache_now(service->cache), tag);
    fa_buf_printf(&out, "event: state\ndata: {\"ready\":%s,\"report\":%s,",
                  serve_service_is_ready(service) ? "true" : "false", tag);
    serve_jobs_now(service, &out);
    fa_buf_text(&out, "}\n\n");
    return serve_text_of(&out);
}

void serve_get_events(serve_service *service, serve_exchange *exchange)
{
    static const char hello[] = ": what is under way follows\n\n";
    if (service->followers.count >= FOLLOWERS_MAX || service->stopping) {
        serve_refuse(service, exchange, "too many follow already");
        return;
    }
    char *text = state_text(service);
    serve_stream(exchange);
    serve_stream_send(exchange, hello, sizeof hello - 1, false);
    if (text != NULL)
        serve_stream_send(exchange, text, strlen(text), false);
    free(text);
    serve_waiters_add(&service->followers, exchange, 0);
}

static void send_all(const serve_service *service, const char *text, size_t size)
{
    for (serve_exchange *e = service->followers.first; e != NULL; e = e->next)
        serve_stream_send(e, text, size, true);
}

void serve_overview_send(serve_service *service)
{
    char *text = service->followers.count > 0 ? state_text(service) : NULL;
    if (text == NULL || (service->last_state != NULL && strcmp(text, service->last_state) == 0)) {
        free(text);
        return;
    }
    send_all(service, text, strlen(text));
    free(service->last_state);
    service->last_state = text;
}

void serve_overview_keep_alive(serve_service *service)
{
    static const char comment[] = ": still there\n\n";
    send_all(service, comment, sizeof comment - 1);
}

/* ---- the end ----------------------------------------------------------------------------------*/
void serve_overview_stop(serve_service *service)
{
    serve_exchange *exchange;
    atomic_store(&service->stop_reading, true);
    while ((exchange = serve_waiters_take(&service->followers)) != NULL)
        serve_stream_end(exchange);
    if (service->reader != NULL)
        serve_thread_stop(service->reader);
}

void serve_overview_free(serve_service *service)
{
    serve_thread_free(&service->reader);
    serve_page_drop(&service->front);
    serve_page_drop(&service->report.page);
    free(service->last_state);
}
