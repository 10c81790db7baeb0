/* SPDX-License-Identifier: Apache-2.0
 *
 * What is said of a job: as a document, and to those that listen.
 */
#include "service.h"

#include "buf.h"

#include <cJSON.h>
#include <stdlib.h>
#include <string.h>

static const char *const state_names[] = {"queued", "running", "done", "failed", "canceled"};

const char *serve_job_state_name(serve_job_state state)
{
    return state_names[state];
}

/* ---- what is said of a job -------------------------------------------------------------------*/
/* Inner part of a JSON object's text, without its braces. */
static void append_inner(fa_buf *out, const char *object)
{
    size_t size = strlen(object);
    if (size > 2) {
        fa_buf_text(out, ",");
        fa_buf_append(out, object + 1, size - 2);
    }
}

static void append_error(fa_buf *out, const serve_job *job)
{
    char *text = serve_error_text(job->code, job->message.text, NULL);
    if (text != NULL)
        append_inner(out, text);
    free(text);
}

static void append_time(fa_buf *out, const char *name, int64_t unix_ms)
{
    if (unix_ms > 0)
        fa_buf_printf(out, ",\"%s\":%.3f", name, (double)unix_ms / 1000);
    else
        fa_buf_printf(out, ",\"%s\":null", name);
}

static void append_job(fa_buf *out, const serve_job *job, bool whole)
{
    fa_buf_printf(out, "{\"id\":\"%s\",\"kind\":\"%s\",\"state\":\"%s\",\"gpu\":", job->id,
                  job->kind == SERVE_TUNE ? "tune" : "sweep", serve_job_state_name(job->state));
    cJSON *gpu = job->gpu[0] != 0 ? cJSON_CreateString(job->gpu) : cJSON_CreateNull();
    char *name = cJSON_PrintUnformatted(gpu);
    cJSON_Delete(gpu);
    fa_buf_text(out, name != NULL ? name : "null");
    free(name);
    append_time(out, "accepted", job->accepted_ms);
    append_time(out, "started", job->started_ms);
    append_time(out, "ended", job->ended_ms);
    if (whole) {
        fa_buf_text(out, ",\"progress\":");
        fa_buf_text(out, job->progress != NULL ? job->progress : "null");
        if (job->state == SERVE_DONE && job->result != NULL)
            append_inner(out, job->result);
    }
    if (job->state == SERVE_FAILED || job->state == SERVE_CANCELED)
        append_error(out, job);
    fa_buf_text(out, "}");
}

static char *text_of(fa_buf *out)
{
    if (out->failed)
        fa_buf_free(out);
    return out->data;
}

char *serve_job_text(const serve_job *job)
{
    fa_buf out = {0};
    append_job(&out, job, true);
    return text_of(&out);
}

char *serve_jobs_text(serve_service *service)
{
    fa_buf out = {0};
    fa_buf_text(&out, "{\"jobs\":[");
    for (const serve_job *job = service->jobs; job != NULL; job = job->next) {
        append_job(&out, job, false);
        if (job->next != NULL)
            fa_buf_text(&out, ",");
    }
    fa_buf_text(&out, "]}");
    return text_of(&out);
}

/* ---- those that listen -----------------------------------------------------------------------*/
void serve_job_send_event(serve_exchange *exchange, const char *event, const char *data,
                          bool may_drop)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "event: %s\ndata: ", event);
    fa_buf_text(&line, data);
    fa_buf_text(&line, "\n\n");
    if (!line.failed)
        serve_stream_send(exchange, line.data, line.size, may_drop);
    fa_buf_free(&line);
}

void serve_job_send_end(const serve_job *job, serve_exchange *exchange)
{
    char *text =
        job->state == SERVE_DONE ? NULL : serve_error_text(job->code, job->message.text, NULL);
    const char *data = job->state == SERVE_DONE ? job->result : text;
    serve_job_send_event(exchange, serve_job_state_name(job->state), data != NULL ? data : "{}",
                         false);
    free(text);
    serve_stream_end(exchange);
}

void serve_job_stream(serve_job *job, serve_exchange *exchange)
{
    static const char hello[] = ": the job's events follow\n\n";
    serve_stream(exchange);
    serve_stream_send(exchange, hello, sizeof hello - 1, false);
    if (job->progress != NULL && !serve_job_is_over(job))
        serve_job_send_event(exchange, "progress", job->progress, false);
    if (serve_job_is_over(job)) {
        serve_job_send_end(job, exchange);
        return;
    }
    serve_gather(&job->streams, exchange, 0);
    atomic_store(&job->watched, true);
}

void serve_jobs_beat(serve_service *service)
{
    static const char beat[] = ": still there\n\n";
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        for (serve_exchange *e = job->streams.first; e != NULL; e = e->next)
            serve_stream_send(e, beat, sizeof beat - 1, true);
}
