/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs.h"

#include "queries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the lookup ------------------------------------------------------------------------------*/
/* On the thread for lookups: from a request's ask to an answer, or to what a tune is for. */
static bool serve_pending_is_sweep(const serve_pending *pending)
{
    return pending->kind == SERVE_PENDING_SWEEP ||
           (pending->kind == SERVE_PENDING_JOB && pending->job->kind == SERVE_SWEEP);
}

static int look_up_tune(serve_pending *pending)
{
    serve_service *service = pending->service;
    fa_request request;
    int rc = serve_request_of(service, &pending->ask, &request, &pending->diag);
    if (rc == 0 && pending->ask.family[0] != 0)
        rc = serve_family_open(service, pending->ask.family, &service->family, &pending->diag);
    if (rc != 0)
        return rc;
    if (pending->as_good) {
        request.again = false;
        if (request.effort > FA_EFFORT_MEASURE)
            request.effort = FA_EFFORT_MEASURE;
    }
    fa_tuner *tuner = pending->ask.family[0] != 0 ? service->family.tuner : service->tuner;
    pending->found = (fa_found){.size = sizeof pending->found};
    rc = fa_find(tuner, &request, &pending->found, &pending->diag);
    if (rc != 0)
        return rc;
    pending->gpu = pending->found.gpu;
    return pending->found.answered ? serve_kernel_text(tuner, &pending->found.answer,
                                                       &pending->document, &pending->diag)
                                   : 0;
}

enum { NAMES_MAX = 64 };

/* Whether `name` is new; it is remembered, as long as there is room. */
static bool is_new(const char *names[NAMES_MAX], int *count, const char *name)
{
    for (int i = 0; i < *count; i++)
        if (strcmp(names[i], name) == 0)
            return false;
    if (*count < NAMES_MAX)
        names[(*count)++] = name;
    return true;
}

/* Reads a sweep and finds its runner: a device's runner where one of the items is for that device. */
static int look_up_sweep(serve_pending *pending)
{
    serve_service *service = pending->service;
    const char *names[NAMES_MAX]; /* looked up already */
    int asked = 0;
    int rc = fa_sweep_ask_read(pending->body->bytes, pending->body->size, &pending->sweep,
                               &pending->items, pending->plan, &pending->diag);
    if (rc == 0)
        rc = fa_sweep_key(&pending->sweep, pending->found.key, &pending->diag);
    for (int32_t i = 0; rc == 0 && i < pending->sweep.count && !pending->gpu.present; i++) {
        const fa_sweep_item *item = &pending->items[i];
        fa_ask ask = {.problem = item->problem,
                      .ordinal = pending->sweep.ordinal,
                      .effort = FA_EFFORT_PREDICT};
        fa_found found = {.size = sizeof found};
        fa_request request;
        if (!is_new(names, &asked, item->gpu))
            continue;
        memcpy(ask.gpu, item->gpu, sizeof ask.gpu);
        rc = serve_request_of(service, &ask, &request, &pending->diag);
        if (rc == 0)
            rc = fa_find(service->tuner, &request, &found, &pending->diag);
        if (rc == 0)
            pending->gpu = found.gpu;
    }
    return rc;
}

static int look_up_one(serve_pending *pending)
{
    return serve_pending_is_sweep(pending) ? look_up_sweep(pending) : look_up_tune(pending);
}

/* A pending request's serve_task.work. */
static void serve_lookup_work(serve_task *task, serve_thread *thread)
{
    serve_pending *pending = (serve_pending *)task;
    serve_service *service = pending->service;
    (void)thread;
    serve_find_devices(service);
    pending->rc = look_up_one(pending);
    if (serve_tuner_reopen(service, pending->rc)) {
        free(pending->items);
        pending->items = NULL;
        pending->rc = look_up_one(pending);
    }
    serve_tuner_watch(service);
}

/* ---- from a request to its reply -------------------------------------------------------------*/
enum { LOOKUP_MS = 30000 };

/* What requests want, in an order in which each includes those before it. */
enum { WANTS_PREDICTED, WANTS_FIRST_CONTACT, WANTS_MEASURED, WANTS_AGAIN, WANTS_PATIENT };

static int effort_of(const fa_ask *ask)
{
    return ask->effort >= FA_EFFORT_PATIENT  ? WANTS_PATIENT
           : ask->again                      ? WANTS_AGAIN
           : ask->effort < FA_EFFORT_MEASURE ? WANTS_PREDICTED
           : ask->first_contact              ? WANTS_FIRST_CONTACT
                                             : WANTS_MEASURED;
}

/* ---- memory ---------------------------------------------------------------------------------*/
static void free_pending(serve_pending *pending)
{
    SERVE_LIST_REMOVE(pending->service->pending, pending);
    if (pending->job != NULL)
        pending->job->references--;
    serve_body_drop(&pending->body);
    free(pending->document);
    free(pending->items);
    free(pending);
}

void serve_pending_free(serve_service *service)
{
    while (service->pending != NULL)
        free_pending(service->pending);
}

/* Takes the body, which only a job that is queued already may lack; NULL: out of memory. */
static serve_pending *new_pending(serve_service *service, serve_pending_kind kind, serve_body *body,
                                  const fa_ask *ask)
{
    serve_pending *pending = calloc(1, sizeof *pending);
    if (pending == NULL || (body == NULL && kind != SERVE_PENDING_JOB)) {
        serve_body_drop(&body);
        free(pending);
        return NULL;
    }
    pending->service = service;
    pending->kind = kind;
    pending->body = body;
    if (ask != NULL)
        pending->ask = *ask;
    SERVE_LIST_ADD(service->pending, pending);
    return pending;
}

/* ---- replies --------------------------------------------------------------------------------*/
static void reply_all(serve_pending *pending, unsigned status, serve_page *page)
{
    serve_exchange *exchange;
    while ((exchange = serve_waiters_take(&pending->clients)) != NULL)
        serve_reply(exchange, status, page);
}

static void fail_all(serve_pending *pending, int code, const char *message)
{
    serve_page *page = serve_page_json(serve_error_text(code, message, NULL));
    reply_all(pending, serve_status_of(code), page);
    serve_page_drop(&page);
}

static void refuse_all(serve_pending *pending, const char *message)
{
    serve_exchange *exchange;
    while ((exchange = serve_waiters_take(&pending->clients)) != NULL)
        serve_refuse(pending->service, exchange, message);
}

static void give_document(serve_pending *pending, const char *text, bool keep)
{
    serve_page *page = serve_page_json(strdup(text));
    if (page != NULL && keep)
        serve_cache_put(pending->service->cache,
                        (serve_cache_key){'K', pending->body->bytes, pending->body->size}, page,
                        pending->when, serve_now_ms(pending->service));
    reply_all(pending, MHD_HTTP_OK, page);
    serve_page_drop(&page);
}

/* ---- jobs -----------------------------------------------------------------------------------*/
/* The job that is to answer the request, new or under way; NULL: too many, or out of memory. Another
 * problem of the same key gets a job of its own, because it gets an answer of its own; that job is
 * looked up again when the first has ended. */
static serve_job *job_for(serve_pending *pending)
{
    serve_service *service = pending->service;
    serve_job_kind kind = serve_pending_is_sweep(pending) ? SERVE_SWEEP : SERVE_TUNE;
    int effort = kind == SERVE_SWEEP ? 0 : effort_of(&pending->ask);
    serve_job *job = serve_job_of_key(service, pending->found.key,
                                      kind == SERVE_TUNE ? &pending->ask.problem : NULL, effort,
                                      effort >= WANTS_AGAIN ? &pending->ask : NULL);
    return job != NULL || serve_jobs_full(service, kind) ? job : serve_job_new(service, kind);
}

/* What a new job is to do, taken from the request that it is for. */
static int start_job(serve_pending *pending, serve_job *job)
{
    if (job->runner >= 0)
        return 0;
    memcpy(job->key, pending->found.key, sizeof job->key);
    if (job->kind == SERVE_SWEEP) {
        job->items = pending->items;
        job->sweep = pending->sweep;
        job->sweep.items = job->items;
        pending->items = NULL;
        memcpy(job->plan, pending->plan, sizeof job->plan);
        job->sweep.plan = job->plan;
    } else {
        job->ask = pending->ask;
        job->effort = effort_of(&job->ask);
    }
    fa_diag diag;
    int rc = serve_job_start(job, pending->body->bytes, pending->body->size, &pending->gpu, &diag);
    if (rc != 0)
        serve_job_fail(job, rc, diag.text);
    else
        serve_log(SERVE_INFO, "job accepted", "job", job->id, "kind",
                  serve_job_kind_name(job->kind), "gpu", job->gpu, NULL);
    return rc;
}

/* The answer that was found is the job's end. */
static void answer_job(serve_pending *pending, serve_job *job)
{
    serve_job_answer(job, pending->document);
    pending->document = NULL;
}

static void submit(serve_pending *pending)
{
    serve_exchange *exchange;
    serve_job *job =
        pending->found.answered ? serve_job_new(pending->service, SERVE_TUNE) : job_for(pending);
    if (job == NULL) {
        refuse_all(pending, "too many jobs are waiting: come back later");
    } else if (pending->found.answered) {
        snprintf(job->gpu, sizeof job->gpu, "%s", pending->gpu.name);
        answer_job(pending, job);
    } else {
        start_job(pending, job);
    }
    while ((exchange = serve_waiters_take(&pending->clients)) != NULL)
        serve_job_submit(job, exchange);
}

/* A job of an earlier process begins, or a queued job may have its answer already. */
static void resume(serve_pending *pending)
{
    serve_job *job = pending->job;
    bool waits = job->runner >= 0; /* for its runner, which will tell what is wrong */
    if (pending->task.skipped || pending->service->stopping || serve_job_is_over(job) ||
        (waits && pending->rc != 0)) {
        /* it stays as it is */
    } else if (pending->rc != 0) {
        job->kept = pending->rc == FA_ENODRIVER || pending->rc == FA_ENODEVICE; /* not there yet */
        serve_job_fail(job, pending->rc, pending->diag.text);
    } else if (pending->found.answered) {
        answer_job(pending, job);
    } else {
        start_job(pending, job);
    }
}

/* ---- time -----------------------------------------------------------------------------------*/
static void too_late(void *context, serve_exchange *exchange)
{
    const serve_pending *pending = context;
    if (pending->service->stopping) {
        serve_refuse(pending->service, exchange,
                     "this server is stopping; it goes on with the tune when it starts again");
        return;
    }
    pending->service->counts.expired++;
    serve_reply_error(exchange, FA_ETIMEOUT,
                      "the tune has not ended within the request's time; it goes on",
                      pending->waits_for_job ? pending->job->id : NULL);
}

/* A client that waits is told which job to follow, so a lookup is let finish first, if it does. */
static void expire(serve_pending *pending, int64_t now_ms)
{
    if (!pending->waits_for_job && !pending->service->stopping)
        now_ms -= LOOKUP_MS;
    serve_waiters_expire(&pending->clients, now_ms, too_late, pending);
}

void serve_pending_expire(serve_service *service, int64_t now_ms)
{
    serve_pending *next;
    for (serve_pending *pending = service->pending; pending != NULL; pending = next) {
        next = pending->next;
        expire(pending, now_ms);
        if (pending->waits_for_job && pending->clients.count == 0)
            free_pending(pending); /* its job goes on: a client that asks again finds it */
    }
}

/* ---- lookups --------------------------------------------------------------------------------*/
/* Returns whether the request stays, because its clients wait for a job. */
static bool answer_kernel(serve_pending *pending)
{
    serve_job *job;
    if (pending->found.answered) {
        give_document(pending, pending->document, true);
    } else if (pending->kind == SERVE_PENDING_REFRESH) {
        serve_cache_empty(pending->service->cache); /* a winner has gone */
    } else if (pending->clients.count == 0) {
        /* nobody waits for a tune any more */
    } else if ((job = job_for(pending)) == NULL) {
        refuse_all(pending, "too many jobs are waiting: come back later");
    } else if (start_job(pending, job) != 0) {
        fail_all(pending, job->code, job->message.text);
    } else {
        pending->job = job;
        pending->waits_for_job = true;
        job->references++;
        expire(pending, serve_now_ms(pending->service));
        return true;
    }
    return false;
}

static void looked_up(serve_task *task)
{
    serve_pending *pending = (serve_pending *)task;
    bool stays = false;
    if (pending->kind == SERVE_PENDING_JOB) {
        resume(pending);
    } else if (task->skipped || pending->service->stopping) {
        refuse_all(pending, "this server is stopping");
    } else if (pending->rc != 0) {
        bool gone = pending->rc == FA_ENOTFOUND || pending->rc == FA_ECORRUPT;
        if (pending->kind == SERVE_PENDING_REFRESH && gone)
            serve_cache_empty(pending->service->cache);
        fail_all(pending, pending->rc, pending->diag.text);
    } else if (pending->kind == SERVE_PENDING_TUNE || pending->kind == SERVE_PENDING_SWEEP) {
        submit(pending);
    } else {
        stays = answer_kernel(pending);
    }
    if (!stays)
        free_pending(pending);
}

static void look_up(serve_pending *pending)
{
    pending->task.work = serve_lookup_work;
    pending->task.done = looked_up;
    pending->when = serve_cache_now(pending->service->cache);
    pending->service->counts.lookups++;
    serve_thread_submit(pending->service->lookup, &pending->task);
}

int64_t serve_pending_different(const serve_service *service)
{
    int64_t count = 0;
    for (const serve_pending *pending = service->pending; pending != NULL; pending = pending->next)
        count++;
    return count;
}

int64_t serve_pending_waiting(const serve_service *service)
{
    int64_t count = 0;
    for (const serve_pending *pending = service->pending; pending != NULL; pending = pending->next)
        count += pending->waits_for_job ? pending->clients.count : 0;
    return count;
}

/* Looks up what a job asks. Takes the body; NULL: the job has been read already. */
static void look_up_job(serve_job *job, serve_body *body, const fa_ask *ask, bool as_good)
{
    serve_pending *pending = new_pending(job->service, SERVE_PENDING_JOB, body, ask);
    if (pending == NULL)
        return;
    pending->job = job;
    pending->as_good = as_good;
    job->references++;
    if (job->kind == SERVE_TUNE && body != NULL)
        pending->rc = fa_ask_read(body->bytes, body->size, &pending->ask, &pending->diag);
    if (pending->rc != 0)
        looked_up(&pending->task);
    else
        look_up(pending);
}

void serve_pending_job_ended(serve_job *job)
{
    serve_service *service = job->service;
    serve_pending *next;
    for (serve_pending *pending = service->pending; pending != NULL; pending = next) {
        next = pending->next;
        if (!pending->waits_for_job || pending->job != job)
            continue;
        if (job->state == SERVE_DONE)
            give_document(pending, job->result, false);
        else
            fail_all(pending, job->code, job->message.text);
        free_pending(pending);
    }
    for (serve_job *other = service->jobs; other != NULL; other = other->next)
        if (job->state == SERVE_DONE && other->state == SERVE_QUEUED && other->key[0] != 0 &&
            other->kind == SERVE_TUNE && strcmp(other->key, job->key) == 0)
            look_up_job(other, NULL, &other->ask,
                        other->effort <= job->effort && serve_same_search(&other->ask, &job->ask));
}

/* ---- requests -------------------------------------------------------------------------------*/
/* Whether it waits for a job that somebody has canceled. */
static bool is_doomed(const serve_pending *pending)
{
    return pending->waits_for_job && atomic_load(&pending->job->cancel);
}

static bool is_of_body(const serve_pending *pending, const serve_exchange *exchange)
{
    return pending->body != NULL && pending->body->size == exchange->body_size &&
           memcmp(pending->body->bytes, exchange->body, exchange->body_size) == 0;
}

static void wait_for(serve_pending *pending, serve_exchange *exchange)
{
    const serve_service *service = pending->service;
    int64_t wait_ms = pending->ask.timeout_ms > 0 ? pending->ask.timeout_ms
                                                  : (int64_t)service->settings->wait_s * 1000;
    serve_waiters_add(&pending->clients, exchange,
                      pending->kind == SERVE_PENDING_KERNEL ? serve_now_ms(service) + wait_ms : 0);
}

/* Joins the pending request of the same bytes, or reads them and starts one. `kind` REFRESH: the
 * exchange has been answered, and the cache alone wants to know. */
static void join(serve_service *service, serve_pending_kind kind, serve_exchange *exchange)
{
    bool answered = kind == SERVE_PENDING_REFRESH;
    fa_ask ask = {0};
    fa_diag diag;
    for (serve_pending *p = service->pending; p != NULL && !answered; p = p->next)
        if (p->kind == kind && is_of_body(p, exchange) && !is_doomed(p)) {
            service->counts.shared++;
            wait_for(p, exchange);
            return;
        }
    int rc = kind == SERVE_PENDING_SWEEP
                 ? 0
                 : fa_ask_read(exchange->body, exchange->body_size, &ask, &diag);
    if (rc != 0) {
        serve_reply_error(exchange, rc, diag.text, NULL); /* unless it has been answered */
        return;
    }
    /* A request whose clients have gone away is looked up all the same: the queue is bounded. */
    serve_pending *pending =
        serve_pending_different(service) < 2 * service->settings->max_connections
            ? new_pending(service, kind, serve_exchange_body(exchange), &ask)
            : NULL;
    if (pending != NULL) {
        service->counts.refreshes += answered;
        if (!answered)
            wait_for(pending, exchange);
        look_up(pending);
    } else if (!answered) {
        serve_refuse(service, exchange, "too many lookups are waiting: come back later");
    }
}

void serve_post_kernel(serve_service *service, serve_exchange *exchange)
{
    bool stale;
    serve_page *page =
        serve_cache_get(service->cache, (serve_cache_key){'K', exchange->body, exchange->body_size},
                        serve_now_ms(service), &stale);
    if (page != NULL)
        serve_reply(exchange, MHD_HTTP_OK, page);
    if (page == NULL || stale)
        join(service, page == NULL ? SERVE_PENDING_KERNEL : SERVE_PENDING_REFRESH, exchange);
}

void serve_post_tune(serve_service *service, serve_exchange *exchange)
{
    join(service, SERVE_PENDING_TUNE, exchange);
}

void serve_post_sweep(serve_service *service, serve_exchange *exchange)
{
    join(service, SERVE_PENDING_SWEEP, exchange);
}

void serve_pending_resume(serve_job *job, const char *body, size_t size)
{
    serve_body *copy = serve_body_make(body, size, NULL);
    if (copy != NULL)
        look_up_job(job, copy, NULL, false);
}
