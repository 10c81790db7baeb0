/* SPDX-License-Identifier: Apache-2.0 */
#include "job.h"

#include "buf.h"
#include "json_make.h"
#include "problem.h"
#include "reply.h"
#include "stream.h"

#include <cJSON.h>
#include <stdlib.h>
#include <string.h>

const char *serve_job_state_name(serve_job_state state)
{
    static const char *const names[] = {"queued", "running", "done", "failed", "canceled"};
    return names[state];
}

const char *serve_job_kind_name(serve_job_kind kind)
{
    return kind == SERVE_TUNE ? "tune" : "sweep";
}

bool serve_job_is_over(const serve_job *job)
{
    return job->state >= SERVE_DONE;
}

/* ---- as text --------------------------------------------------------------------------------*/
/* The members of a JSON object's text, without its braces. */
static void append_members(fa_buf *out, const char *object)
{
    size_t size = strlen(object);
    if (size > 2) {
        fa_buf_text(out, ",");
        fa_buf_append(out, object + 1, size - 2);
    }
}

static void append_time(fa_buf *out, const char *name, int64_t unix_ms)
{
    if (unix_ms > 0)
        fa_buf_printf(out, ",\"%s\":%.3f", name, (double)unix_ms / 1000);
    else
        fa_buf_printf(out, ",\"%s\":null", name);
}

/* As JSON; "" is null. */
static void append_text(fa_buf *out, const char *text)
{
    cJSON *json = text[0] != 0 ? cJSON_CreateString(text) : cJSON_CreateNull();
    char *printed = fa_json_print(json);
    cJSON_Delete(json);
    out->failed |= printed == NULL;
    fa_buf_text(out, printed != NULL ? printed : "null");
    free(printed);
}

/* What is tuned, in words. */
static void append_what(fa_buf *out, const serve_job *job)
{
    fa_buf words = {0};
    if (job->kind == SERVE_SWEEP)
        fa_buf_text(&words, job->plan);
    else if (job->runner >= 0) /* its request has been read */
        fa_problem_words(&words, &job->request.problem, " · ", false);
    out->failed |= words.failed;
    append_text(out, words.data != NULL ? words.data : "");
    fa_buf_free(&words);
}

static void append_job(fa_buf *out, const serve_job *job, bool whole)
{
    fa_buf_printf(out, "{\"id\":\"%s\",\"kind\":\"%s\",\"state\":\"%s\",\"gpu\":", job->id,
                  serve_job_kind_name(job->kind), serve_job_state_name(job->state));
    append_text(out, job->gpu);
    fa_buf_text(out, ",\"what\":");
    append_what(out, job);
    if (job->runner >= 0 && job->runner < SERVE_DEVICES_MAX)
        fa_buf_printf(out, ",\"ordinal\":%d", job->runner);
    else
        fa_buf_text(out, ",\"ordinal\":null");
    append_time(out, "accepted", job->accepted_ms);
    append_time(out, "started", job->started_ms);
    append_time(out, "ended", job->ended_ms);
    if (whole) {
        fa_buf_text(out, ",\"progress\":");
        fa_buf_text(out, job->progress != NULL ? job->progress : "null");
        if (job->state == SERVE_DONE && job->result != NULL)
            append_members(out, job->result);
    }
    if (job->state == SERVE_FAILED || job->state == SERVE_CANCELED) {
        char *error = serve_error_text(job->code, job->message.text, NULL);
        if (error != NULL)
            append_members(out, error);
        free(error);
    }
    fa_buf_text(out, "}");
}

char *serve_job_text(const serve_job *job)
{
    fa_buf out = {0};
    append_job(&out, job, true);
    return serve_text_of(&out);
}

char *serve_jobs_text(const serve_service *service)
{
    fa_buf out = {0};
    fa_buf_text(&out, "{\"jobs\":[");
    for (const serve_job *job = service->jobs; job != NULL; job = job->next) {
        append_job(&out, job, false);
        if (job->next != NULL)
            fa_buf_text(&out, ",");
    }
    fa_buf_text(&out, "]}");
    return serve_text_of(&out);
}

void serve_jobs_now(const serve_service *service, fa_buf *out)
{
    enum { QUEUED_MAX = 20, ENDED_MAX = 10 };
    int queued = 0, ended = 0, told = 0;
    for (const serve_job *job = service->jobs; job != NULL; job = job->next)
        queued += job->state == SERVE_QUEUED;
    fa_buf_printf(out, "\"queued\":%d,\"jobs\":[", queued);
    for (const serve_job *job = service->jobs; job != NULL; job = job->next) {
        if (serve_job_is_over(job) ? ended++ >= ENDED_MAX
                                   : job->state == SERVE_QUEUED && queued-- > QUEUED_MAX)
            continue;
        fa_buf_text(out, told++ > 0 ? "," : "");
        append_job(out, job, job->state == SERVE_RUNNING);
    }
    fa_buf_text(out, "]");
}

/* ---- listeners ------------------------------------------------------------------------------*/
static void send_event(serve_exchange *exchange, const char *event, const char *data, bool may_drop)
{
    fa_buf line = {0};
    fa_buf_printf(&line, "event: %s\ndata: ", event);
    fa_buf_text(&line, data);
    fa_buf_text(&line, "\n\n");
    if (!line.failed)
        serve_stream_send(exchange, line.data, line.size, may_drop);
    fa_buf_free(&line);
}

static void send_end(const serve_job *job, serve_exchange *exchange)
{
    char *text =
        job->state == SERVE_DONE ? NULL : serve_error_text(job->code, job->message.text, NULL);
    const char *data = job->state == SERVE_DONE ? job->result : text;
    send_event(exchange, serve_job_state_name(job->state), data != NULL ? data : "{}", false);
    free(text);
    serve_stream_end(exchange);
}

void serve_job_end_streams(serve_job *job)
{
    serve_exchange *exchange;
    while ((exchange = serve_waiters_take(&job->listeners)) != NULL)
        if (serve_job_is_over(job))
            send_end(job, exchange);
        else
            serve_stream_end(exchange);
}

void serve_job_listen(serve_job *job, serve_exchange *exchange)
{
    static const char hello[] = ": the job's events follow\n\n";
    serve_stream(exchange);
    serve_stream_send(exchange, hello, sizeof hello - 1, false);
    if (serve_job_is_over(job)) {
        send_end(job, exchange);
        return;
    }
    if (job->progress != NULL)
        send_event(exchange, "progress", job->progress, false);
    serve_waiters_add(&job->listeners, exchange, 0);
    atomic_store(&job->watched, true);
}

void serve_jobs_keep_alive(serve_service *service)
{
    static const char comment[] = ": still there\n\n";
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        for (serve_exchange *e = job->listeners.first; e != NULL; e = e->next)
            serve_stream_send(e, comment, sizeof comment - 1, true);
}

/* ---- from a runner's thread -------------------------------------------------------------------*/
struct event {
    serve_task task;
    serve_job *job;
    const char *name; /* NULL: the job has begun */
    char *text;
};

static void take_event(serve_task *task)
{
    struct event *event = (struct event *)task;
    serve_job *job = event->job;
    if (event->name != NULL) {
        for (serve_exchange *e = job->listeners.first; e != NULL; e = e->next)
            send_event(e, event->name, event->text, true);
        free(job->progress);
        job->progress = event->text;
        if (job->listeners.count == 0)
            atomic_store(&job->watched, false);
    } else if (job->state == SERVE_QUEUED) {
        job->state = SERVE_RUNNING;
        job->started_ms = serve_unix_ms();
        serve_log(SERVE_INFO, "job started", "job", job->id, "gpu", job->gpu, NULL);
    }
    free(event);
}

void serve_job_post_event(serve_job *job, const char *name, char *text)
{
    struct event *event = calloc(1, sizeof *event);
    if (event == NULL) {
        free(text);
        return;
    }
    *event = (struct event){{.done = take_event}, job, name, text};
    serve_loop_post(job->service->queue, &event->task);
}

void serve_job_post_start(serve_job *job)
{
    serve_job_post_event(job, NULL, NULL);
}
