/* SPDX-License-Identifier: Apache-2.0 */
#include "metrics.h"

#include "buf.h"
#include "job.h"
#include "pending.h"
#include "reply.h"

#include <string.h>
#include <unistd.h>

#define PREFIX "fa_tune_serve_"

struct metric {
    const char *name, *help; /* a name that ends in _total counts up for ever */
    int64_t value;
};

static void add_head(fa_buf *out, const char *name, const char *help)
{
    size_t size = strlen(name);
    bool counts = size > 6 && strcmp(name + size - 6, "_total") == 0;
    fa_buf_printf(out, "# HELP " PREFIX "%s %s\n# TYPE " PREFIX "%s %s\n", name, help, name,
                  counts ? "counter" : "gauge");
}

static void add_all(fa_buf *out, const struct metric *metrics, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_head(out, metrics[i].name, metrics[i].help);
        fa_buf_printf(out, PREFIX "%s %lld\n", metrics[i].name, (long long)metrics[i].value);
    }
}

static void add_by_label(fa_buf *out, const char *name, const char *label, const char *value,
                         int64_t count)
{
    fa_buf_printf(out, PREFIX "%s{%s=\"%s\"} %lld\n", name, label, value, (long long)count);
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

static int64_t jobs_in(const serve_service *service, serve_job_state state)
{
    int64_t count = 0;
    for (const serve_job *job = service->jobs; job != NULL; job = job->next)
        count += job->state == state;
    return count;
}

char *serve_metrics_text(const serve_service *service)
{
    static const char *const classes[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    const serve_http_counts *http = serve_http_counted(service->http);
    const serve_cache_counts *cache = serve_cache_counted(service->cache);
    const serve_counts *counts = &service->counts;
    const struct metric metrics[] = {
        {"connections", "Open connections.", http->connections},
        {"connections_accepted_total", "Connections taken.", http->accepted},
        {"connections_refused_total", "Connections turned away: too many.", http->refused},
        {"connections_foreign_total", "Connections of other users, turned away.", counts->foreign},
        {"connections_evicted_total", "Connections closed to make room.", http->evicted},
        {"connections_timed_out_total", "Connections closed for being too slow.", http->timed_out},
        {"body_bytes", "Memory of large request bodies.", (int64_t)http->bodies.used},
        {"requests_total", "Requests whose head has come.", http->requests},
        {"unauthorized_total", "Requests without the token.", counts->unauthorized},
        {"refused_total", "Requests asked to come back later.", counts->refused},
        {"expired_total", "Requests whose time ended before their tune.", counts->expired},
        {"cache_hits_total", "Requests answered from memory.", cache->hits},
        {"cache_misses_total", "Requests that had to be looked up.", cache->misses},
        {"cache_entries", "Answers in memory.", cache->entries},
        {"cache_bytes", "Their size.", cache->bytes},
        {"cache_refreshes_total", "Answers looked up again after a change.", counts->refreshes},
        {"lookups_total", "Lookups in the store.", counts->lookups},
        {"requests_shared_total", "Requests that joined another one's lookup or tune.",
         counts->shared},
        {"requests_waiting", "Requests that wait for a tune.", serve_pending_waiting(service)},
        {"requests_different", "Different requests, looked up or waiting for a tune.",
         serve_pending_different(service)},
        {"jobs_accepted_total", "Tunes and sweeps accepted.", counts->jobs[SERVE_QUEUED]},
        {"jobs_running", "Jobs under way.", jobs_in(service, SERVE_RUNNING)},
        {"jobs_queued", "Jobs that wait.", jobs_in(service, SERVE_QUEUED)},
        {"devices", "CUDA devices here.", service->devices},
        {"resident_bytes", "Memory of this process.", resident_bytes()},
        {"ready", "1 while requests are served.", serve_service_is_ready(service)},
    };
    fa_buf out = {0};
    add_all(&out, metrics, sizeof metrics / sizeof *metrics);
    add_head(&out, "replies_total", "Replies by the class of their status.");
    for (size_t i = 1; i < sizeof classes / sizeof *classes; i++)
        add_by_label(&out, "replies_total", "class", classes[i], http->replies[i]);
    add_head(&out, "jobs_ended_total", "Tunes and sweeps by how they ended.");
    for (int state = SERVE_DONE; state <= SERVE_CANCELED; state++)
        add_by_label(&out, "jobs_ended_total", "state",
                     serve_job_state_name((serve_job_state)state), counts->jobs[state]);
    add_head(&out, "start_time_seconds", "Unix time of the start.");
    fa_buf_printf(&out, PREFIX "start_time_seconds %.3f\n", (double)service->started_ms / 1000);
    return serve_text_of(&out);
}
