/* SPDX-License-Identifier: Apache-2.0
 *
 * Flights: requests of the very same bytes are read and looked up once, on the lookup thread,
 * and all who sent them wait together; those that a tune has to answer then wait for its job,
 * which others of the same key share.
 */
#include "flight.h"

#include "error.h"
#include "list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_AFTER_S = 5, STOP_RETRY_S = 2, LOOKUP_MS = 30000 };

bool serve_flight_is_sweep(const serve_flight *flight)
{
    return flight->kind == SERVE_FLIGHT_SWEEP ||
           (flight->kind >= SERVE_FLIGHT_RESUME && flight->job->kind == SERVE_SWEEP);
}

static int effort_of(const fa_ask *ask)
{
    return ask->effort >= FA_EFFORT_PATIENT  ? WANTS_PATIENT
           : ask->again                      ? WANTS_AGAIN
           : ask->effort < FA_EFFORT_MEASURE ? WANTS_PREDICTED
           : ask->first_contact              ? WANTS_FIRST_CONTACT
                                             : WANTS_MEASURED;
}

/* ---- memory ---------------------------------------------------------------------------------*/
static void free_flight(serve_flight *flight)
{
    serve_service *service = flight->service;
    SERVE_LIST_REMOVE(service->flights, flight);
    if (flight->job != NULL)
        flight->job->flights--;
    free(flight->body);
    free(flight->document);
    free(flight->items);
    free(flight);
}

void serve_flights_free(serve_service *service)
{
    while (service->flights != NULL)
        free_flight(service->flights);
}

static serve_flight *new_flight(serve_service *service, serve_flight_kind kind, const char *body,
                                size_t size)
{
    serve_flight *flight = calloc(1, sizeof *flight);
    char *copy = malloc(size + 1);
    if (flight == NULL || copy == NULL) {
        free(flight);
        free(copy);
        return NULL;
    }
    memcpy(copy, body, size);
    copy[size] = 0;
    flight->service = service;
    flight->kind = kind;
    flight->body = copy;
    flight->body_size = size;
    SERVE_LIST_ADD(service->flights, flight);
    return flight;
}

/* ---- replies --------------------------------------------------------------------------------*/
static void reply_all(serve_flight *flight, unsigned status, serve_page *page)
{
    while (flight->waiters.first != NULL) {
        serve_exchange *exchange = flight->waiters.first;
        serve_leave(exchange);
        serve_reply(exchange, status, page);
    }
}

static void fail_all(serve_flight *flight, int code, const char *message)
{
    char *text = serve_error_text(code, message, NULL);
    serve_page *page = serve_page_make("application/json", text, text != NULL ? strlen(text) : 0);
    reply_all(flight, serve_status_of(code), page);
    serve_page_drop(&page);
}

static void refuse(serve_exchange *exchange, serve_service *service, const char *message)
{
    service->counts.refused++;
    serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY, message,
                        service->stopping ? STOP_RETRY_S : RETRY_AFTER_S);
}

static void refuse_all(serve_flight *flight, const char *message)
{
    while (flight->waiters.first != NULL) {
        serve_exchange *exchange = flight->waiters.first;
        serve_leave(exchange);
        refuse(exchange, flight->service, message);
    }
}

static void give_document(serve_flight *flight, const char *text, bool keep)
{
    char *copy = strdup(text);
    serve_page *page = serve_page_make("application/json", copy, strlen(text));
    if (page != NULL && keep)
        serve_cache_put(flight->service->cache, 'K', flight->body, flight->body_size, page,
                        flight->when, serve_now_ms(flight->service));
    reply_all(flight, MHD_HTTP_OK, page);
    serve_page_drop(&page);
}

/* ---- on the loop's ---------------------------------------------------------------------------*/
/* The job that is to answer the flight, new or under way; NULL: too many. Another problem of the
 * same key is a job of its own, because its answer is, which is settled when the first has
 * ended. */
static serve_job *job_for(serve_flight *flight)
{
    serve_service *service = flight->service;
    serve_job_kind kind = serve_flight_is_sweep(flight) ? SERVE_SWEEP : SERVE_TUNE;
    int effort = kind == SERVE_SWEEP ? 0 : effort_of(&flight->ask);
    serve_job *job = serve_job_of_key(service, flight->found.key,
                                      kind == SERVE_TUNE ? &flight->ask.problem : NULL, effort);
    if (job != NULL)
        return job;
    if (serve_jobs_full(service, kind))
        return NULL;
    return serve_job_new(service, kind, flight->body, flight->body_size);
}

/* What a new job is to do, taken from the flight that it is for. */
static int start_job(serve_flight *flight, serve_job *job)
{
    if (job->runner >= 0)
        return 0;
    memcpy(job->key, flight->found.key, sizeof job->key);
    if (job->kind == SERVE_SWEEP) {
        job->items = flight->items;
        job->sweep = flight->sweep;
        job->sweep.items = job->items;
        flight->items = NULL;
        memcpy(job->plan, flight->plan, sizeof job->plan);
        job->sweep.plan = job->plan;
    } else {
        job->effort = effort_of(&flight->ask);
        serve_flight_request(flight, &job->request, NULL); /* which the lookup has done as well */
        memcpy(job->gpu_name, flight->gpu_name, sizeof job->gpu_name);
        memcpy(job->family, flight->ask.family, sizeof job->family);
        if (job->request.gpu != NULL)
            job->request.gpu = job->gpu_name;
    }
    fa_diag diag;
    int rc = serve_job_start(job, &flight->gpu, &diag);
    if (rc != 0)
        serve_job_fail(job, rc, diag.text);
    else
        serve_log(SERVE_INFO, "job accepted", "job", job->id, "kind",
                  job->kind == SERVE_TUNE ? "tune" : "sweep", "gpu", job->gpu, NULL);
    return rc;
}

static void submit(serve_flight *flight)
{
    serve_service *service = flight->service;
    serve_job *job;
    if (flight->found.answered) {
        job = serve_job_new(service, SERVE_TUNE, flight->body, flight->body_size);
        if (job != NULL) {
            snprintf(job->gpu, sizeof job->gpu, "%s", flight->gpu.name);
            serve_job_answer(job, flight->document);
            flight->document = NULL;
        }
    } else {
        job = job_for(flight);
        if (job != NULL)
            start_job(flight, job);
    }
    if (job == NULL)
        refuse_all(flight, "too many jobs are waiting: come back later");
    while (flight->waiters.first != NULL) {
        serve_exchange *exchange = flight->waiters.first;
        serve_leave(exchange);
        serve_job_submit(job, exchange);
    }
    free_flight(flight);
}

/* A job of an earlier process begins, or one that is queued may have its answer already. */
static void resume(serve_flight *flight)
{
    serve_job *job = flight->job;
    bool waits = job->runner >= 0; /* for its runner, which will tell what is wrong */
    if (flight->task.skipped || flight->service->stopping || serve_job_is_over(job) ||
        (waits && flight->rc != 0)) {
        /* it stays as it is */
    } else if (flight->rc != 0) {
        job->kept = flight->rc == FA_ENODRIVER || flight->rc == FA_ENODEVICE; /* not there yet */
        serve_job_fail(job, flight->rc, flight->diag.text);
    } else if (flight->found.answered) {
        serve_job_answer(job, flight->document);
        flight->document = NULL;
    } else {
        start_job(flight, job);
    }
    free_flight(flight);
}

struct expiring {
    serve_service *service;
    serve_flight *flight;
};

static void too_late(void *context, serve_exchange *exchange)
{
    const struct expiring *expiring = context;
    const serve_job *job = expiring->flight->waits_for_job ? expiring->flight->job : NULL;
    if (expiring->service->stopping) {
        refuse(exchange, expiring->service,
               "this server is stopping; it goes on with the tune when it starts again");
        return;
    }
    expiring->service->counts.expired++;
    serve_reply_error(exchange, FA_ETIMEOUT,
                      "the tune has not ended within the request's time; it goes on",
                      job != NULL ? job->id : NULL);
}

/* Who waits is told which job to follow, so a lookup is let finish first, if it does. */
static void expire(serve_flight *flight, int64_t now_ms)
{
    struct expiring expiring = {flight->service, flight};
    if (!flight->waits_for_job && !flight->service->stopping)
        now_ms -= LOOKUP_MS;
    serve_gathering_expire(&flight->waiters, now_ms, too_late, &expiring);
}

static void answer_kernel(serve_flight *flight)
{
    serve_job *job;
    if (flight->found.answered) {
        give_document(flight, flight->document, true);
    } else if (flight->kind == SERVE_FLIGHT_REFRESH) {
        serve_cache_empty(flight->service->cache); /* a winner has gone */
    } else if (flight->waiters.count == 0) {
        /* nobody waits for a tune any more */
    } else if ((job = job_for(flight)) == NULL) {
        refuse_all(flight, "too many jobs are waiting: come back later");
    } else {
        flight->job = job;
        flight->waits_for_job = true;
        job->flights++;
        if (start_job(flight, job) == 0) /* else it has ended, and the flight with it */
            expire(flight, serve_now_ms(flight->service));
        return;
    }
    free_flight(flight);
}

static void looked_up(serve_task *task)
{
    serve_flight *flight = (serve_flight *)task;
    if (flight->kind == SERVE_FLIGHT_RESUME || flight->kind == SERVE_FLIGHT_SETTLE) {
        resume(flight);
    } else if (task->skipped || flight->service->stopping) {
        refuse_all(flight, "this server is stopping");
        free_flight(flight);
    } else if (flight->rc != 0) {
        bool gone = flight->rc == FA_ENOTFOUND || flight->rc == FA_ECORRUPT;
        if (flight->kind == SERVE_FLIGHT_REFRESH && gone)
            serve_cache_empty(flight->service->cache);
        fail_all(flight, flight->rc, flight->diag.text);
        free_flight(flight);
    } else if (flight->kind == SERVE_FLIGHT_TUNE || flight->kind == SERVE_FLIGHT_SWEEP) {
        submit(flight);
    } else {
        answer_kernel(flight);
    }
}

static void give(serve_flight *flight)
{
    flight->task.work = serve_flight_look_up;
    flight->task.done = looked_up;
    flight->when = serve_cache_now(flight->service->cache);
    flight->service->counts.flights++;
    serve_worker_give(flight->service->lookup, &flight->task);
}

bool serve_flights_wait_for(const serve_job *job)
{
    for (const serve_flight *flight = job->service->flights; flight != NULL; flight = flight->next)
        if (flight->job == job && flight->waits_for_job && flight->waiters.count > 0)
            return true;
    return false;
}

int64_t serve_flights_different(const serve_service *service)
{
    int64_t count = 0;
    for (const serve_flight *flight = service->flights; flight != NULL; flight = flight->next)
        count++;
    return count;
}

int64_t serve_flights_waiting(const serve_service *service)
{
    int64_t count = 0;
    for (const serve_flight *flight = service->flights; flight != NULL; flight = flight->next)
        count += flight->waits_for_job ? flight->waiters.count : 0;
    return count;
}

void serve_flights_job_over(serve_service *service, serve_job *job)
{
    serve_flight *next;
    for (serve_flight *flight = service->flights; flight != NULL; flight = next) {
        next = flight->next;
        if (!flight->waits_for_job || flight->job != job)
            continue;
        if (job->state == SERVE_DONE)
            give_document(flight, job->result, false);
        else
            fail_all(flight, job->code, job->message.text);
        free_flight(flight);
    }
}

void serve_flights_expire(serve_service *service, int64_t now_ms)
{
    serve_flight *next;
    for (serve_flight *flight = service->flights; flight != NULL; flight = next) {
        next = flight->next;
        expire(flight, now_ms);
        if (flight->waits_for_job && flight->waiters.count == 0)
            free_flight(flight); /* its job goes on: who asks again finds it */
    }
}

/* ---- requests -------------------------------------------------------------------------------*/
/* Whether it waits for a job that somebody has canceled. */
static bool is_doomed(const serve_flight *flight)
{
    return flight->waits_for_job && atomic_load(&flight->job->cancel);
}

/* Joins the flight of the same bytes, or starts one. */
static void join(serve_service *service, serve_flight_kind kind, const fa_ask *ask,
                 serve_exchange *exchange, int64_t due_ms)
{
    for (serve_flight *flight = service->flights; flight != NULL; flight = flight->next)
        if (flight->kind == kind && flight->body_size == exchange->body_size &&
            memcmp(flight->body, exchange->body, exchange->body_size) == 0 && !is_doomed(flight)) {
            service->counts.shared++;
            serve_gather(&flight->waiters, exchange, due_ms);
            return;
        }
    /* Those whose clients have gone away are looked up all the same: the queue is bounded. */
    if (serve_flights_different(service) >= 2 * service->settings->max_connections) {
        refuse(exchange, service, "too many lookups are waiting: come back later");
        return;
    }
    serve_flight *flight = new_flight(service, kind, exchange->body, exchange->body_size);
    if (flight == NULL) {
        refuse(exchange, service, "out of memory");
        return;
    }
    if (ask != NULL)
        flight->ask = *ask;
    serve_gather(&flight->waiters, exchange, due_ms);
    give(flight);
}

void serve_flight_kernel(serve_service *service, serve_exchange *exchange)
{
    fa_ask ask;
    fa_diag diag;
    bool refresh;
    int64_t now = serve_now_ms(service);
    serve_page *page =
        serve_cache_get(service->cache, 'K', exchange->body, exchange->body_size, now, &refresh);
    if (page != NULL)
        serve_reply(exchange, MHD_HTTP_OK, page);
    if (page != NULL && !refresh)
        return;
    int rc = fa_ask_read(exchange->body, exchange->body_size, &ask, &diag);
    if (page != NULL) {
        serve_flight *flight =
            rc == 0 ? new_flight(service, SERVE_FLIGHT_REFRESH, exchange->body, exchange->body_size)
                    : NULL;
        if (flight != NULL) {
            flight->ask = ask;
            service->counts.refreshes++;
            give(flight);
        }
    } else if (rc != 0) {
        serve_reply_error(exchange, rc, diag.text, NULL);
    } else {
        int64_t wait =
            ask.timeout_ms > 0 ? ask.timeout_ms : (int64_t)service->settings->wait_s * 1000;
        join(service, SERVE_FLIGHT_KERNEL, &ask, exchange, now + wait);
    }
}

void serve_flight_tune(serve_service *service, serve_exchange *exchange)
{
    fa_ask ask;
    fa_diag diag;
    int rc = fa_ask_read(exchange->body, exchange->body_size, &ask, &diag);
    if (rc != 0)
        serve_reply_error(exchange, rc, diag.text, NULL);
    else
        join(service, SERVE_FLIGHT_TUNE, &ask, exchange, 0);
}

void serve_flight_sweep(serve_service *service, serve_exchange *exchange)
{
    join(service, SERVE_FLIGHT_SWEEP, NULL, exchange, 0);
}

static serve_flight *flight_about(serve_service *service, serve_flight_kind kind, serve_job *job)
{
    serve_flight *flight = new_flight(service, kind, job->body, job->body_size);
    if (flight != NULL) {
        flight->job = job;
        job->flights++;
    }
    return flight;
}

void serve_flight_resume(serve_service *service, serve_job *job)
{
    serve_flight *flight = flight_about(service, SERVE_FLIGHT_RESUME, job);
    if (flight == NULL)
        return;
    flight->rc = job->kind == SERVE_TUNE
                     ? fa_ask_read(job->body, job->body_size, &flight->ask, &flight->diag)
                     : 0;
    if (flight->rc != 0)
        resume(flight);
    else
        give(flight);
}

void serve_flight_settle(serve_service *service, serve_job *job, bool as_good)
{
    serve_flight *flight =
        job->kind == SERVE_TUNE ? flight_about(service, SERVE_FLIGHT_SETTLE, job) : NULL;
    if (flight == NULL)
        return;
    flight->as_good = as_good;
    if (fa_ask_read(job->body, job->body_size, &flight->ask, &flight->diag) == 0)
        give(flight);
    else
        free_flight(flight);
}
