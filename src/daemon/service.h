/* SPDX-License-Identifier: Apache-2.0
 *
 * The service's inside: what is asked, who waits for it, and what is done for them.
 *
 * The loop's thread owns everything here. Other threads see tasks only: a flight's lookup, a job's
 * run, a question, a file of the journal. What a task's thread writes is read by the loop when the
 * task is done.
 */
#ifndef FA_DAEMON_SERVICE_H
#define FA_DAEMON_SERVICE_H

#include "fa_tune.h"

#include "cache.h"
#include "http.h"
#include "log.h"
#include "settings.h"
#include "worker.h"

#include <stdatomic.h>

enum {
    SERVE_DEVICES_MAX = 16,
    SERVE_RUNNERS = SERVE_DEVICES_MAX + 1, /* the last is for GPUs that are not here */
    SERVE_ID_SIZE = 33,
    SERVE_ENDED_MAX = 256 /* jobs that are remembered after their end */
};

typedef struct serve_service serve_service;
typedef struct serve_job serve_job;
typedef struct serve_flight serve_flight;

/* ---- those that wait (service.c) -------------------------------------------------------------*/
typedef struct serve_gathering {
    serve_exchange *first;
    int count;
} serve_gathering;
void serve_gather(serve_gathering *gathering, serve_exchange *exchange, int64_t due_ms);
void serve_leave(serve_exchange *exchange); /* wherever it waits */
/* Calls due() of those whose time has come. */
void serve_gathering_expire(serve_gathering *gathering, int64_t now_ms,
                            void (*due)(void *context, serve_exchange *exchange), void *context);

/* ---- tunes and sweeps (jobs.c) ---------------------------------------------------------------*/
typedef enum serve_job_kind { SERVE_TUNE, SERVE_SWEEP } serve_job_kind;
typedef enum serve_job_state {
    SERVE_QUEUED,
    SERVE_RUNNING,
    SERVE_DONE,
    SERVE_FAILED,
    SERVE_CANCELED
} serve_job_state;

struct serve_job {
    serve_task task; /* first: of its runner */
    serve_service *service;
    serve_job *next, *previous; /* newest first */
    char id[SERVE_ID_SIZE];
    serve_job_kind kind;
    serve_job_state state;
    char key[65]; /* of the winner or the sweep; "" before it is known */
    int effort;   /* jobs of one key whose effort is no less serve a request too */
    char *body;   /* as it was asked */
    size_t body_size;
    int64_t accepted_ms, started_ms, ended_ms; /* Unix time */
    int runner;                                /* -1: not known yet */
    bool given;                                /* to its runner, which has not given it back */
    bool journaled, journaling;
    bool kept;          /* in the journal after its end: the next process tries again */
    bool unwanted;      /* a client has canceled it: no next process goes on with it */
    char gpu[64];       /* words for lists */
    fa_request request; /* of a tune; its gpu points to gpu_name */
    char gpu_name[64];
    char family[65];     /* a client's own that is tuned; "": the server's */
    fa_sweep_request sweep;
    fa_sweep_item *items;
    char plan[512];
    atomic_bool cancel, watched;
    atomic_bool taken; /* by its runner, or by the loop, which has ended it meanwhile */
    serve_gathering submitters, streams;
    int flights;     /* that wait for its end */
    char *progress;  /* the last one told, JSON, or NULL */
    int64_t told_ms; /* its runner's: when progress was last told */
    /* Its end, written by its runner. */
    int code;
    fa_diag message;
    char *result; /* {"answer":…,"cubin":…} or {"sweep":…} */
};

const char *serve_job_state_name(serve_job_state state);
bool serve_job_is_over(const serve_job *job);
serve_job *serve_job_find(serve_service *service, const char *id);
/* One that has not ended and gives at least what this effort does. */
serve_job *serve_job_of_key(serve_service *service, const char *key, const fa_problem *problem,
                            int effort);
/* A new one, queued, of a body that was read and with no runner yet. */
serve_job *serve_job_new(serve_service *service, serve_job_kind kind, const char *body,
                         size_t size);
/* Gives it to the runner of this GPU. */
int serve_job_start(serve_job *job, const fa_gpu *gpu, fa_diag *diag);
/* The journal has it, or could not take it (code != 0): then it ends. */
void serve_job_journaled(serve_job *job, int code, const char *reason);
/* It ends without running: an answer was there. Takes `result`. */
void serve_job_answer(serve_job *job, char *result);
void serve_job_fail(serve_job *job, int code, const char *message);
void serve_job_cancel(serve_job *job);
bool serve_job_is_shared(const serve_job *job); /* somebody waits for it or listens */
/* Replies 202 once the job will outlive this process. */
void serve_job_submit(serve_job *job, serve_exchange *exchange);
bool serve_jobs_full(const serve_service *service, serve_job_kind kind);
void serve_jobs_beat(serve_service *service);   /* a sign of life to those that listen */
void serve_jobs_forget(serve_service *service); /* those that ended long ago */
void serve_jobs_free(serve_service *service);
/* job_tell.c */
void serve_job_stream(serve_job *job, serve_exchange *exchange);
void serve_job_send_event(serve_exchange *exchange, const char *event, const char *data,
                          bool may_drop);
void serve_job_send_end(const serve_job *job, serve_exchange *exchange);
char *serve_job_text(const serve_job *job);
char *serve_jobs_text(serve_service *service);
/* From its runner's thread. */
void serve_job_tell(serve_job *job, const char *event, char *text);
void serve_job_tell_started(serve_job *job);

/* ---- clients' own families (families.c) --------------------------------------------------------*/
/* A tuner of the one that was asked for last; a thread's. */
typedef struct serve_guest {
    char id[65];
    fa_tuner *tuner;
} serve_guest;
int serve_guest_open(const serve_service *service, const char *id, serve_guest *guest,
                     fa_tuner **ret_tuner, fa_diag *diag);
void serve_guest_close(serve_guest *guest);
void serve_family_post(serve_service *service, serve_exchange *exchange);
/* Removes what daemons that were killed had half made; the store is open. */
void serve_families_sweep(serve_service *service);

/* ---- runners (runner.c): a thread for each device, and one for GPUs that are not here --------*/
typedef struct serve_runner {
    serve_service *service;
    serve_worker *worker;
    fa_tuner *tuner, *sweeper; /* the thread's */
    serve_guest guest;
} serve_runner;
void serve_job_work(serve_task *task, serve_worker *worker);
int serve_runner_get(serve_service *service, int index, serve_runner **ret_runner, fa_diag *diag);
void serve_tuner_options(const serve_settings *settings, fa_options *ret_options);
/* {"answer":…,"cubin":{"key":…,"sha256":…,"size":…}}; malloced. The tuner's thread. */
int serve_compose(fa_tuner *tuner, const fa_answer *answer, char **ret_text, fa_diag *diag);

/* ---- flights (flights.c): requests of the same bytes are looked up together ------------------*/
typedef enum serve_flight_kind {
    SERVE_FLIGHT_KERNEL,
    SERVE_FLIGHT_TUNE,
    SERVE_FLIGHT_SWEEP,
    SERVE_FLIGHT_REFRESH, /* for the cache alone */
    SERVE_FLIGHT_RESUME,  /* for a job of an earlier process */
    SERVE_FLIGHT_SETTLE   /* for a queued job, one of whose key has ended */
} serve_flight_kind;
void serve_flight_kernel(serve_service *service, serve_exchange *exchange);
void serve_flight_tune(serve_service *service, serve_exchange *exchange);
void serve_flight_sweep(serve_service *service, serve_exchange *exchange);
void serve_flight_resume(serve_service *service, serve_job *job);
void serve_flight_settle(serve_service *service, serve_job *job, bool as_good);
void serve_flights_job_over(serve_service *service, serve_job *job);
bool serve_flights_wait_for(const serve_job *job);
int64_t serve_flights_different(const serve_service *service); /* looked up, or waiting for jobs */
int64_t serve_flights_waiting(const serve_service *service); /* requests, for jobs */
void serve_flights_expire(serve_service *service, int64_t now_ms);
void serve_flights_free(serve_service *service);

/* ---- questions (questions.c): asked of the store, answered once ------------------------------*/
void serve_ask_open(serve_service *service); /* opens the store, on its thread */
void serve_ask_winners(serve_service *service, serve_exchange *exchange);
void serve_ask_cubin(serve_service *service, serve_exchange *exchange, const char *key);
void serve_ask_gpus(serve_service *service, serve_exchange *exchange);
void serve_reply_cubin(serve_exchange *exchange, serve_page *page); /* or 304 */
/* On the lookup thread: tells the loop once the store has changed. */
void serve_watch(serve_worker *worker, void *service);
void serve_lookup_end(serve_worker *worker, void *service);
/* On the lookup thread: the devices here, asked of the driver once. */
void serve_devices_know(serve_service *service);

/* ---- journal (journal.c) ---------------------------------------------------------------------*/
void serve_journal_load(serve_service *service);
void serve_journal_add(serve_job *job);
void serve_journal_remove(serve_job *job);
bool serve_is_id(const char *text); /* of a job */

/* ---- pages (routes.c, metrics.c) -------------------------------------------------------------*/
extern const serve_http_events serve_routes;
char *serve_metrics_text(serve_service *service);

typedef struct serve_counts {
    int64_t flights, refreshes, shared; /* lookups; of the cache's own; requests that joined one */
    int64_t jobs[SERVE_CANCELED + 1];   /* by how they ended; SERVE_QUEUED: accepted */
    int64_t refused, unauthorized, expired, foreign;
} serve_counts;

struct serve_service {
    uv_loop_t *loop;
    const serve_settings *settings;
    serve_http *http;
    serve_mail *mail;
    serve_worker *lookup, *journal;
    serve_runner *runner[SERVE_RUNNERS];
    int workers; /* threads that have not ended */
    serve_cache *cache;
    serve_flight *flights;
    serve_job *jobs;
    int live_jobs, live_sweeps; /* that have not ended */
    serve_counts counts;
    uv_timer_t tick;
    int beats;
    int64_t started_ms;
    int journal_lock; /* held while this process lives; -1 */
    bool store_open, journal_open, journal_shut, stopping, failed;
    int devices;                    /* here, once they are known */
    fa_diag unready;                /* why it is not ready, while it is not */
    char store[1024], folder[1100]; /* the store's path, the journal's */
    void (*ready)(void *context);   /* called once: it is ready, or has failed */
    void *ready_context;
    bool runs; /* false: jobs are queued and never run, as in a test of requests */
    /* The lookup thread's: */
    fa_tuner *tuner;
    serve_guest guest;
    bool devices_known;
    struct {
        int64_t seconds, nanoseconds, size, inode;
        int64_t looked_ms;
    } seen;
    /* Written by that thread before a task of its is done, then never again: */
    fa_gpu device[SERVE_DEVICES_MAX];
    int device_count;
    int device_code;
    fa_diag device_reason; /* why there is none */
};

/* Starts its threads; ready() is called when the store is open and earlier jobs are known. */
int serve_service_open(uv_loop_t *loop, const serve_settings *settings,
                       void (*ready)(void *context), void *context, serve_service **ret_service,
                       fa_diag *diag);
/* Stops accepting and cancels what runs; its jobs stay in the journal. */
void serve_service_stop(serve_service *service);
/* Whether everything has come to its end. */
bool serve_service_stopped(const serve_service *service);
void serve_service_close(serve_service **service);
bool serve_service_is_ready(const serve_service *service);
int64_t serve_unix_ms(void);
int64_t serve_now_ms(const serve_service *service);
void serve_worker_gone(void *service); /* a thread has ended; on the loop's */

#endif
