/* SPDX-License-Identifier: Apache-2.0
 *
 * Jobs, tunes and sweeps: how they begin, are kept on disk, run, end and are forgotten; and the requests that wait
 * for them.
 */
#ifndef FA_DAEMON_JOBS_H
#define FA_DAEMON_JOBS_H

#include "buf.h"
#include "service.h"

/* ---- jobs (jobs.c) --------------------------------------------------------------------------*/

typedef enum serve_job_kind { SERVE_TUNE, SERVE_SWEEP } serve_job_kind;
typedef enum serve_job_state {
    SERVE_QUEUED,
    SERVE_RUNNING,
    SERVE_DONE,
    SERVE_FAILED,
    SERVE_CANCELED
} serve_job_state;

typedef struct serve_job serve_job;
struct serve_job {
    serve_task task; /* first: of its runner */
    serve_service *service;
    serve_job *next, *previous;
    char id[SERVE_ID_SIZE];
    serve_job_kind kind;
    serve_job_state state;
    char key[65]; /* of the winner or the sweep; "" before it is known */
    int effort;   /* jobs of one key whose effort is no less serve a request too */
    int64_t accepted_ms, started_ms, ended_ms; /* Unix time */
    int runner;                                /* -1: not known yet */
    bool given;                                /* its runner has the job and has not returned it */
    bool journaled, journaling;
    bool kept;     /* stays in the journal after its end, so that the next process tries again */
    bool unwanted; /* a client has canceled it: the next process does not continue it */
    char gpu[64];  /* words for lists */
    fa_ask ask;    /* of a tune, as it was asked */
    fa_sweep_request sweep;
    fa_sweep_item *items;
    char plan[512];
    atomic_bool cancel, watched;
    atomic_bool taken; /* its runner has begun it, or the loop has ended it before that */
    serve_waiters submitters, listeners;
    int references;  /* of pending requests */
    char *progress;  /* the last progress that was reported, as JSON, or NULL */
    int64_t reported_ms; /* when the runner last reported progress */
    /* Its end, written by its runner. */
    int code;
    fa_diag message;
    char *result; /* {"answer":…,"cubin":…} or {"sweep":…} */
};

const char *serve_job_state_name(serve_job_state state);
const char *serve_job_kind_name(serve_job_kind kind);
bool serve_job_is_over(const serve_job *job);
char *serve_job_text(const serve_job *job);
char *serve_jobs_text(const serve_service *service);
/* "queued":2,"jobs":[…]: every running job in full, some queued jobs and the last ones that ended. */
void serve_jobs_now(const serve_service *service, fa_buf *out);

/* ---- listeners ---- */
void serve_job_listen(serve_job *job, serve_exchange *exchange);
void serve_jobs_keep_alive(serve_service *service); /* sends a comment to every listener */

typedef struct serve_runner {
    serve_service *service;
    serve_thread *thread;
    fa_tuner *tuner, *sweeper; /* the thread's */
    serve_family_tuner family;
} serve_runner;

/* The request of an ask, whose gpu and strategy point into the ask; after the first lookup. FA_ENODEVICE and
 * others: it names a device that is not here, or there is none. */
int serve_request_of(const serve_service *service, const fa_ask *ask, fa_request *ret_request,
                     fa_diag *diag);
serve_job *serve_job_find(serve_service *service, const char *id);
/* A job of this key that has not ended and whose effort is at least this one; of the same problem, and searched as
 * `search` asks, unless that is NULL. */
serve_job *serve_job_of_key(serve_service *service, const char *key, const fa_problem *problem,
                            int effort, const fa_ask *search);
/* Whether two asks name the same strategy, evaluations and seconds. */
bool serve_same_search(const fa_ask *one, const fa_ask *other);
/* A new job, queued, with no runner yet. */
serve_job *serve_job_new(serve_service *service, serve_job_kind kind);
/* Keeps the job in the journal with the body that it came in, and gives it to the runner of this
 * GPU. */
int serve_job_start(serve_job *job, const char *body, size_t size, const fa_gpu *gpu,
                    fa_diag *diag);
/* Replies 202 once the job will outlive this process. */
void serve_job_submit(serve_job *job, serve_exchange *exchange);
/* It ends without running: an answer was there. Takes `result`. */
void serve_job_answer(serve_job *job, char *result);
void serve_job_fail(serve_job *job, int code, const char *message);
void serve_job_cancel(serve_job *job);
bool serve_job_is_shared(const serve_job *job); /* somebody waits for it or listens */
bool serve_jobs_full(const serve_service *service, serve_job_kind kind);
void serve_jobs_forget(serve_service *service); /* jobs that ended long ago */
void serve_jobs_free(serve_service *service);

/* ---- pending requests (pending.c) -----------------------------------------------------------*/
/* Requests of the very same bytes are read and looked up once, on the lookup thread, and all clients that sent them
 * wait together; a request that only a tune can answer then waits for the tune's job, which requests of the same key
 * share. */
typedef enum serve_pending_kind {
    SERVE_PENDING_KERNEL,
    SERVE_PENDING_TUNE,
    SERVE_PENDING_SWEEP,
    SERVE_PENDING_REFRESH, /* for the cache alone */
    SERVE_PENDING_JOB      /* for a job: of an earlier process, or another of its key has ended */
} serve_pending_kind;

typedef struct serve_pending serve_pending;
struct serve_pending {
    serve_task task; /* first: of the lookup thread */
    serve_service *service;
    serve_pending *next, *previous;
    serve_pending_kind kind;
    serve_body *body;
    fa_ask ask;
    serve_cache_time when;
    serve_waiters clients;
    serve_job *job; /* that it waits for, or that it is about */
    bool waits_for_job;
    bool as_good; /* what is stored now is what is wanted, also `again` */
    /* What the lookup thread writes. */
    int rc;
    fa_diag diag;
    fa_found found;
    char *document; /* when answered */
    fa_sweep_request sweep;
    fa_sweep_item *items;
    char plan[512];
    fa_gpu gpu; /* whose runner it is for */
};

void serve_post_kernel(serve_service *service, serve_exchange *exchange);
void serve_post_tune(serve_service *service, serve_exchange *exchange);
void serve_post_sweep(serve_service *service, serve_exchange *exchange);
/* Looks up what a job of an earlier process asked, and begins it where there is no answer yet. */
void serve_pending_resume(serve_job *job, const char *body, size_t size);
/* The job has ended: those that wait for it are answered, and queued jobs of its key looked up. */
void serve_pending_job_ended(serve_job *job);
int64_t serve_pending_different(const serve_service *service); /* looked up, or waiting for jobs */
int64_t serve_pending_waiting(const serve_service *service);   /* clients, for jobs */
void serve_pending_expire(serve_service *service, int64_t now_ms);
void serve_pending_free(serve_service *service);

#endif
