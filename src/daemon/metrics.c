/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include "buf.h"
#include "job.h"
#include "pending.h"
#include "reply.h"

#include <malloc.h>
#include <unistd.h>

static void metric(fa_buf *out, const char *name, const char *type, const char *help, int64_t value)
{
    fa_buf_printf(out,
                  "# HELP fa_tune_serve_%s %s\n# TYPE fa_tune_serve_%s %s\nfa_tune_serve_%s %lld\n",
                  name, help, name, type, name, (long long)value);
}

static void by_label(fa_buf *out, const char *name, const char *label, const char *value,
                     int64_t count)
{
    fa_buf_printf(out, "fa_tune_serve_%s{%s=\"%s\"} %lld\n", name, label, value, (long long)count);
}

static void headline(fa_buf *out, const char *name, const char *type, const char *help)
{
    fa_buf_printf(out, "# HELP fa_tune_serve_%s %s\n# TYPE fa_tune_serve_%s %s\n", name, help, name,
                  type);
}

static int64_t resident_bytes(void)
{
    fa_buf text = {0};
    long long pages = 0;
    if (fa_buf_read_file(&text, "/proc/self/statm", 4096) == 0)
        sscanf(text.data, "%*s %lld", &pages);
    fa_buf_free(&text);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static void add_http(fa_buf *out, const serve_http_counts *http, const serve_counts *counts)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    metric(out, "connections", "gauge", "Open connections.", http->connections);
    metric(out, "connections_accepted_total", "counter", "Connections taken.", http->accepted);
    metric(out, "connections_refused_total", "counter", "Connections turned away: too many.",
           http->refused);
    metric(out, "connections_foreign_total", "counter", "Connections of other users, turned away.",
           counts->foreign);
    metric(out, "connections_evicted_total", "counter", "Idle connections closed to make room.",
           http->evicted);
    metric(out, "connections_timed_out_total", "counter", "Connections closed for being too slow.",
           http->timed_out);
    metric(out, "body_bytes", "gauge", "Memory of large request bodies.",
           (int64_t)http->bodies.used);
    metric(out, "requests_total", "counter", "Requests whose head has come.", http->requests);
    headline(out, "replies_total", "counter", "Replies by the class of their status.");
    for (size_t i = 1; i < sizeof classes / sizeof *classes; i++)
        by_label(out, "replies_total", "class", classes[i], http->replies[i]);
    metric(out, "unauthorized_total", "counter", "Requests without the token.",
           counts->unauthorized);
    metric(out, "refused_total", "counter", "Requests asked to come back later.", counts->refused);
    metric(out, "expired_total", "counter", "Requests whose time ended before their tune.",
           counts->expired);
}

static void add_cache(fa_buf *out, const serve_cache_counts *cache, const serve_counts *counts)
{
    metric(out, "cache_hits_total", "counter", "Requests answered from memory.", cache->hits);
    metric(out, "cache_misses_total", "counter", "Requests that had to be looked up.",
           cache->misses);
    metric(out, "cache_entries", "gauge", "Answers in memory.", cache->entries);
    metric(out, "cache_bytes", "gauge", "Their size.", cache->bytes);
    metric(out, "cache_refreshes_total", "counter", "Answers looked up again after a change.",
           counts->refreshes);
    metric(out, "lookups_total", "counter", "Lookups in the store.", counts->lookups);
    metric(out, "requests_shared_total", "counter",
           "Requests that joined another one's lookup or tune.", counts->shared);
}

static void add_jobs(fa_buf *out, const serve_service *service)
{
    int64_t running = 0, waiting = 0;
    for (const serve_job *job = service->jobs; job != NULL; job = job->next) {
        running += job->state == SERVE_RUNNING;
        waiting += job->state == SERVE_QUEUED;
    }
    metric(out, "jobs_accepted_total", "counter", "Tunes and sweeps accepted.",
           service->counts.jobs[SERVE_QUEUED]);
    headline(out, "jobs_ended_total", "counter", "Tunes and sweeps by how they ended.");
    for (int state = SERVE_DONE; state <= SERVE_CANCELED; state++)
        by_label(out, "jobs_ended_total", "state", serve_job_state_name((serve_job_state)state),
                 service->counts.jobs[state]);
    metric(out, "requests_waiting", "gauge", "Requests that wait for a tune.",
           serve_pending_waiting(service));
    metric(out, "requests_different", "gauge",
           "Different requests, looked up or waiting for a tune.",
           serve_pending_different(service));
    metric(out, "jobs_running", "gauge", "Jobs under way.", running);
    metric(out, "jobs_queued", "gauge", "Jobs that wait.", waiting);
}

char *serve_metrics_text(const serve_service *service)
{
    fa_buf out = {0};
    add_http(&out, serve_http_counted(service->http), &service->counts);
    add_cache(&out, serve_cache_counted(service->cache), &service->counts);
    add_jobs(&out, service);
    metric(&out, "devices", "gauge", "CUDA devices here.", service->devices);
    metric(&out, "resident_bytes", "gauge", "Memory of this process.", resident_bytes());
    metric(&out, "ready", "gauge", "1 while requests are served.", serve_service_is_ready(service));
    headline(&out, "start_time_seconds", "gauge", "Unix time of the start.");
    fa_buf_printf(&out, "fa_tune_serve_start_time_seconds %.3f\n",
                  (double)service->started_ms / 1000);
    return serve_text_of(&out);
}
