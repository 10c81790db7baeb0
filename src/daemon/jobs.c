/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs from their acceptance to their end, and those that follow them.
 */
#include "service.h"

#include "error.h"
#include "list.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

bool serve_job_is_over(const serve_job *job)
{
    return job->state >= SERVE_DONE;
}

serve_job *serve_job_find(serve_service *service, const char *id)
{
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        if (strcmp(job->id, id) == 0)
            return job;
    return NULL;
}

serve_job *serve_job_of_key(serve_service *service, const char *key, const fa_problem *problem,
                            int effort)
{
    for (serve_job *job = service->jobs; job != NULL; job = job->next)
        if (!serve_job_is_over(job) && !atomic_load(&job->cancel) && job->effort >= effort &&
            strcmp(job->key, key) == 0 &&
            (problem == NULL || fa_problem_equal(&job->request.problem, problem)))
            return job;
    return NULL;
}

/* Whether the loop may end a job that its runner has: only one of the two takes it. */
static bool take(serve_job *job)
{
    return !job->given || !atomic_exchange(&job->taken, true);
}

bool serve_jobs_full(const serve_service *service, serve_job_kind kind)
{
    return service->live_jobs >= service->settings->max_jobs ||
           (kind == SERVE_SWEEP && service->live_sweeps >= service->settings->max_sweeps);
}

/* ---- memory ---------------------------------------------------------------------------------*/
static void free_job(serve_job *job)
{
    serve_service *service = job->service;
    SERVE_LIST_REMOVE(service->jobs, job);
    free(job->body);
    free(job->items);
    free(job->progress);
    free(job->result);
    free(job);
}

void serve_jobs_free(serve_service *service)
{
    while (service->jobs != NULL)
        free_job(service->jobs);
}

/* Keeps the last that have ended, for whoever asks what became of them. */
void serve_jobs_forget(serve_service *service)
{
    int ended = 0;
    serve_job *next;
    for (serve_job *job = service->jobs; job != NULL; job = next) {
        next = job->next;
        if (serve_job_is_over(job) && ++ended > SERVE_ENDED_MAX && !job->given &&
            job->flights == 0 && job->streams.count == 0 && job->submitters.count == 0)
            free_job(job);
    }
}

static bool make_id(char ret_id[SERVE_ID_SIZE])
{
    unsigned char bytes[(SERVE_ID_SIZE - 1) / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret_id + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

serve_job *serve_job_new(serve_service *service, serve_job_kind kind, const char *body, size_t size)
{
    serve_job *job = calloc(1, sizeof *job);
    char *copy = malloc(size + 1);
    if (job == NULL || copy == NULL || !make_id(job->id)) {
        free(job);
        free(copy);
        return NULL;
    }
    memcpy(copy, body, size);
    copy[size] = 0;
    job->service = service;
    job->kind = kind;
    job->body = copy;
    job->body_size = size;
    job->runner = -1;
    job->accepted_ms = serve_unix_ms();
    SERVE_LIST_ADD(service->jobs, job);
    service->live_jobs++;
    service->live_sweeps += kind == SERVE_SWEEP;
    service->counts.jobs[SERVE_QUEUED]++;
    return job;
}

/* ---- news ----------------------------------------------------------------------------------*/
/* What a runner's thread has to tell. */
struct note {
    serve_task task;
    serve_job *job;
    const char *event;
    char *text;
};

static void take_note(serve_task *task)
{
    struct note *note = (struct note *)task;
    serve_job *job = note->job;
    for (serve_exchange *e = job->streams.first; e != NULL; e = e->next)
        serve_job_send_event(e, note->event, note->text, true);
    free(job->progress);
    job->progress = note->text;
    if (job->streams.count == 0)
        atomic_store(&job->watched, false);
    free(note);
}

void serve_job_tell(serve_job *job, const char *event, char *text)
{
    struct note *note = calloc(1, sizeof *note);
    if (note == NULL) {
        free(text);
        return;
    }
    *note = (struct note){{.done = take_note}, job, event, text};
    serve_mail_post(job->service->mail, &note->task);
}

static void take_start(serve_task *task)
{
    struct note *note = (struct note *)task;
    serve_job *job = note->job;
    if (job->state == SERVE_QUEUED) {
        job->state = SERVE_RUNNING;
        job->started_ms = serve_unix_ms();
        serve_log(SERVE_INFO, "job started", "job", job->id, "gpu", job->gpu, NULL);
    }
    free(note);
}

void serve_job_tell_started(serve_job *job)
{
    struct note *note = calloc(1, sizeof *note);
    if (note == NULL)
        return;
    *note = (struct note){{.done = take_start}, job, NULL, NULL};
    serve_mail_post(job->service->mail, &note->task);
}

/* ---- ends -----------------------------------------------------------------------------------*/
static void finish(serve_job *job, serve_job_state state)
{
    serve_service *service = job->service;
    serve_exchange *next;
    job->state = state;
    job->ended_ms = serve_unix_ms();
    service->live_jobs--;
    service->live_sweeps -= job->kind == SERVE_SWEEP;
    service->counts.jobs[state]++;
    if (state == SERVE_DONE && job->started_ms != 0) /* else it was in the store */
        serve_cache_empty(service->cache);
    if (!job->kept)
        serve_journal_remove(job);
    free(job->body); /* a sweep's is large */
    free(job->items);
    job->body = NULL;
    job->items = NULL;
    serve_log(state == SERVE_FAILED ? SERVE_WARN : SERVE_INFO, "job ended", "job", job->id, "state",
              serve_job_state_name(state), "reason", job->message.text, NULL);
    for (serve_exchange *e = job->streams.first; e != NULL; e = next) {
        next = e->next;
        serve_leave(e);
        serve_job_send_end(job, e);
    }
    serve_flights_job_over(service, job);
    for (serve_job *other = service->jobs; other != NULL; other = other->next)
        if (state == SERVE_DONE && other->state == SERVE_QUEUED && other->key[0] != 0 &&
            strcmp(other->key, job->key) == 0)
            serve_flight_settle(service, other, other->effort <= job->effort);
}

void serve_job_answer(serve_job *job, char *result)
{
    if (!take(job)) { /* its runner began just now, and will find as much */
        free(result);
        return;
    }
    job->result = result;
    finish(job, SERVE_DONE);
}

void serve_job_fail(serve_job *job, int code, const char *message)
{
    job->code = fa_fail(&job->message, code, "%s", message);
    finish(job, SERVE_FAILED);
}

/* Its runner was told to stop: the journal has it, and the next process goes on with it. */
static void interrupt(serve_job *job)
{
    serve_exchange *next;
    job->state = SERVE_QUEUED;
    for (serve_exchange *e = job->streams.first; e != NULL; e = next) {
        next = e->next;
        serve_leave(e);
        serve_stream_end(e);
    }
}

static void job_done(serve_task *task)
{
    serve_job *job = (serve_job *)task;
    job->given = false;
    if (serve_job_is_over(job))
        return; /* canceled or answered while it was queued */
    bool stopped = job->service->stopping && job->code == FA_ECANCELED && !job->unwanted;
    if (task->skipped || stopped)
        interrupt(job);
    else
        finish(job, job->code == 0                                           ? SERVE_DONE
                    : job->code == FA_ECANCELED && atomic_load(&job->cancel) ? SERVE_CANCELED
                                                                             : SERVE_FAILED);
}

void serve_job_cancel(serve_job *job)
{
    if (serve_job_is_over(job)) {
        serve_journal_remove(job);
        return;
    }
    job->unwanted = true;
    serve_journal_remove(job); /* whatever ends this process first */
    atomic_store(&job->cancel, true);
    if (job->state == SERVE_QUEUED && take(job)) {
        job->code = fa_fail(&job->message, FA_ECANCELED, "canceled before it began");
        finish(job, SERVE_CANCELED);
    }
}

bool serve_job_is_shared(const serve_job *job)
{
    for (const serve_exchange *e = job->streams.first; e != NULL; e = e->next)
        if (serve_is_connected(e))
            return true;
    return serve_flights_wait_for(job) || job->submitters.count > 0;
}

/* ---- beginnings ------------------------------------------------------------------------------*/
int serve_job_start(serve_job *job, const fa_gpu *gpu, fa_diag *diag)
{
    serve_service *service = job->service;
    serve_runner *runner;
    job->runner = gpu->present && gpu->ordinal >= 0 && gpu->ordinal < SERVE_DEVICES_MAX
                      ? gpu->ordinal
                      : SERVE_RUNNERS - 1;
    snprintf(job->gpu, sizeof job->gpu, "%s", gpu->name);
    job->task.work = serve_job_work;
    job->task.done = job_done;
    job->task.short_one = job->kind == SERVE_TUNE;
    if (!job->journaled)
        serve_journal_add(job);
    if (!service->runs)
        return 0;
    int rc = serve_runner_get(service, job->runner, &runner, diag);
    if (rc == 0) {
        job->given = true;
        serve_worker_give(runner->worker, &job->task);
    }
    return rc;
}

static void reply_accepted(const serve_job *job, serve_exchange *exchange)
{
    char text[SERVE_ID_SIZE + 16], place[SERVE_ID_SIZE + 16];
    snprintf(text, sizeof text, "{\"job\":\"%s\"}", job->id);
    snprintf(place, sizeof place, "/v1/jobs/%s", job->id);
    char *copy = strdup(text);
    serve_page *page = serve_page_make("application/json", copy, strlen(text));
    if (page != NULL)
        serve_page_header(page, MHD_HTTP_HEADER_LOCATION, place);
    serve_reply(exchange, MHD_HTTP_ACCEPTED, page);
    serve_page_drop(&page);
}

void serve_job_submit(serve_job *job, serve_exchange *exchange)
{
    if (job->journaling)
        serve_gather(&job->submitters, exchange, 0);
    else
        reply_accepted(job, exchange);
}

void serve_job_journaled(serve_job *job, int code, const char *reason)
{
    fa_diag diag;
    serve_exchange *next;
    if (code != 0)
        fa_fail(&diag, code, "the job could not be kept on disk, so it was not accepted: %s",
                reason);
    for (serve_exchange *e = job->submitters.first; e != NULL; e = next) {
        next = e->next;
        serve_leave(e);
        if (code == 0)
            reply_accepted(job, e);
        else
            serve_reply_error(e, code, diag.text, NULL);
    }
    if (code == 0)
        return;
    serve_log(SERVE_ERROR, "job not kept", "job", job->id, "reason", reason, NULL);
    if (!serve_job_is_shared(job))
        serve_job_cancel(job); /* nobody waits for it, and nobody was promised it */
}
