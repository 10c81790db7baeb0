/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs.h"

#include "error.h"
#include "list.h"
#include "pending.h"
#include "problem.h"
#include "reply.h"
#include "runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { ENDED_MAX = 256 /* jobs that are remembered after their end */ };

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

/* Whether the loop may end a job that was given to its runner: the first of the two to take it has it. */
static bool take_job(serve_job *job)
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
    SERVE_LIST_REMOVE(job->service->jobs, job);
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

/* Keeps the jobs that ended last, for clients that ask what became of them. */
void serve_jobs_forget(serve_service *service)
{
    int ended = 0;
    serve_job *next;
    for (serve_job *job = service->jobs; job != NULL; job = next) {
        next = job->next;
        if (serve_job_is_over(job) && ++ended > ENDED_MAX && !job->given && job->references == 0 &&
            job->listeners.count == 0 && job->submitters.count == 0)
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

serve_job *serve_job_new(serve_service *service, serve_job_kind kind)
{
    serve_job *job = calloc(1, sizeof *job);
    if (job == NULL || !make_id(job->id)) {
        free(job);
        return NULL;
    }
    job->service = service;
    job->kind = kind;
    job->runner = -1;
    job->accepted_ms = serve_unix_ms();
    SERVE_LIST_ADD(service->jobs, job);
    service->live_jobs++;
    service->live_sweeps += kind == SERVE_SWEEP;
    service->counts.jobs[SERVE_QUEUED]++;
    return job;
}

/* ---- ends -----------------------------------------------------------------------------------*/
static void forget_in_journal(serve_job *job)
{
    if (job->journaled || job->journaling)
        serve_journal_remove(&job->service->journal, job->id);
    job->journaled = job->journaling = false;
}

static void finish_job(serve_job *job, serve_job_state state)
{
    serve_service *service = job->service;
    job->state = state;
    job->ended_ms = serve_unix_ms();
    service->live_jobs--;
    service->live_sweeps -= job->kind == SERVE_SWEEP;
    service->counts.jobs[state]++;
    if (state == SERVE_DONE && job->started_ms != 0) /* else it was in the store */
        serve_cache_empty(service->cache);
    if (!job->kept)
        forget_in_journal(job);
    free(job->items);
    job->items = NULL;
    serve_log(state == SERVE_FAILED ? SERVE_WARN : SERVE_INFO, "job ended", "job", job->id, "state",
              serve_job_state_name(state), "reason", job->message.text, NULL);
    serve_job_end_streams(job);
    service->job_ended(job);
}

void serve_job_answer(serve_job *job, char *result)
{
    if (!take_job(job)) { /* its runner began just now, and will find as much */
        free(result);
        return;
    }
    job->result = result;
    finish_job(job, SERVE_DONE);
}

void serve_job_fail(serve_job *job, int code, const char *message)
{
    job->code = fa_fail(&job->message, code, "%s", message);
    finish_job(job, SERVE_FAILED);
}

static void job_done(serve_task *task)
{
    serve_job *job = (serve_job *)task;
    job->given = false;
    if (serve_job_is_over(job))
        return; /* canceled or answered while it was queued */
    bool stopped = job->service->stopping && job->code == FA_ECANCELED && !job->unwanted;
    if (task->skipped || stopped) { /* the journal has it, and the next process goes on with it */
        job->state = SERVE_QUEUED;
        serve_job_end_streams(job);
        return;
    }
    finish_job(job, job->code == 0                                           ? SERVE_DONE
                    : job->code == FA_ECANCELED && atomic_load(&job->cancel) ? SERVE_CANCELED
                                                                             : SERVE_FAILED);
}

void serve_job_cancel(serve_job *job)
{
    forget_in_journal(job); /* whatever ends this process first */
    if (serve_job_is_over(job))
        return;
    job->unwanted = true;
    atomic_store(&job->cancel, true);
    if (job->state == SERVE_QUEUED && take_job(job)) {
        job->code = fa_fail(&job->message, FA_ECANCELED, "canceled before it began");
        finish_job(job, SERVE_CANCELED);
    }
}

bool serve_job_is_shared(const serve_job *job)
{
    for (const serve_exchange *e = job->listeners.first; e != NULL; e = e->next)
        if (serve_is_connected(e))
            return true;
    for (const serve_pending *p = job->service->pending; p != NULL; p = p->next)
        if (p->job == job && p->waits_for_job && p->clients.count > 0)
            return true;
    return job->submitters.count > 0;
}

/* ---- beginnings -----------------------------------------------------------------------------*/
static void reply_accepted(const serve_job *job, serve_exchange *exchange)
{
    char text[SERVE_ID_SIZE + 16], place[SERVE_ID_SIZE + 16];
    snprintf(text, sizeof text, "{\"job\":\"%s\"}", job->id);
    snprintf(place, sizeof place, "/v1/jobs/%s", job->id);
    serve_page *page = serve_page_json(strdup(text));
    serve_page_header(page, MHD_HTTP_HEADER_LOCATION, place);
    serve_reply_page(exchange, MHD_HTTP_ACCEPTED, page);
}

static void reply_not_kept(serve_exchange *exchange, int code, const char *reason)
{
    fa_diag diag;
    fa_fail(&diag, code, "the job could not be kept on disk, so it was not accepted: %s", reason);
    serve_reply_error(exchange, code, diag.text, NULL);
}

void serve_job_submit(serve_job *job, serve_exchange *exchange)
{
    if (job->journaling)
        serve_waiters_add(&job->submitters, exchange, 0);
    else if (job->journaled || serve_job_is_over(job))
        reply_accepted(job, exchange);
    else
        reply_not_kept(exchange, FA_ENOMEM, "out of memory");
}

static void journal_written(void *context, const char *id, int rc, const char *reason)
{
    serve_job *job = serve_job_find(context, id);
    serve_exchange *exchange;
    if (job == NULL)
        return;
    job->journaling = false;
    job->journaled = rc == 0;
    while ((exchange = serve_waiters_take(&job->submitters)) != NULL)
        if (rc == 0)
            reply_accepted(job, exchange);
        else
            reply_not_kept(exchange, rc, reason);
    if (rc == 0)
        return;
    serve_log(SERVE_ERROR, "job not kept", "job", job->id, "reason", reason, NULL);
    if (!serve_job_is_shared(job))
        serve_job_cancel(job); /* nobody waits for it, and nobody was promised it */
}

int serve_job_start(serve_job *job, const char *body, size_t size, const fa_gpu *gpu, fa_diag *diag)
{
    serve_service *service = job->service;
    serve_runner *runner;
    job->runner = gpu->present && gpu->ordinal >= 0 && gpu->ordinal < SERVE_DEVICES_MAX
                      ? gpu->ordinal
                      : SERVE_RUNNERS - 1;
    snprintf(job->gpu, sizeof job->gpu, "%s", gpu->name);
    job->task.work = serve_runner_work;
    job->task.done = job_done;
    job->task.interleaves = job->kind == SERVE_TUNE;
    if (!job->journaled) {
        serve_journal_entry entry = {
            .accepted_ms = job->accepted_ms, .body = (char *)(uintptr_t)body, .size = size};
        memcpy(entry.id, job->id, sizeof entry.id);
        snprintf(entry.kind, sizeof entry.kind, "%s", serve_job_kind_name(job->kind));
        job->journaling = serve_journal_add(&service->journal, &entry, journal_written, service);
    }
    if (!service->runs)
        return 0;
    int rc = serve_runner_get(service, job->runner, &runner, diag);
    if (rc == 0) {
        job->given = true;
        serve_thread_submit(runner->thread, &job->task);
    }
    return rc;
}
