/* SPDX-License-Identifier: Apache-2.0
 *
 * The state that the service's files share, its clock, and its tuners.
 *
 * The loop's thread owns everything here. Other threads see tasks only: the lookup of a pending
 * request, a job's run, a query, a file of the journal. What a task's thread writes is read by the
 * loop when the task is done.
 */
#ifndef FA_DAEMON_SERVICE_H
#define FA_DAEMON_SERVICE_H

#include "fa_tune.h"
#include "cache.h"
#include "hash.h"
#include "http.h"
#include "journal.h"
#include "settings.h"
#include "thread.h"
#include "exchange.h"
#include <stdatomic.h>

enum {
    SERVE_DEVICES_MAX = 16,
    SERVE_RUNNERS = SERVE_DEVICES_MAX + 1, /* the last is for GPUs that are not here */
    SERVE_JOB_STATES = 5,
    SERVE_SESSIONS = 8 /* of the page, at a time */
};

typedef struct serve_service serve_service;
struct serve_job;
struct serve_pending;
struct serve_runner;

/* A thread's tuner for the kernel family of a client that was asked for last. */
typedef struct serve_family_tuner {
    char id[65];
    fa_tuner *tuner;
} serve_family_tuner;

/* What somebody may hand in, as its hash, until then. */
typedef struct serve_secret {
    unsigned char hash[FA_HASH_BYTES];
    int64_t until_ms;
} serve_secret;

/* The report's document as it was told last. */
typedef struct serve_report {
    serve_page *page; /* NULL: none yet */
    serve_cache_time when;
    int64_t made_ms, took_ms;
    bool under_way;
    serve_waiters waiting; /* for the one under way */
} serve_report;

typedef struct serve_counts {
    int64_t lookups, refreshes, shared; /* refreshes: the cache's own; shared: joined another */
    int64_t jobs[SERVE_JOB_STATES];     /* by how they ended; SERVE_QUEUED: accepted */
    int64_t refused, unauthorized, expired, foreign;
} serve_counts;

struct serve_service {
    uv_loop_t *loop;
    const serve_settings *settings;
    serve_http *http;
    serve_loop_queue *queue;
    serve_thread *lookup;
    serve_thread *families; /* what clients send is evaluated there; NULL: none is taken */
    serve_thread *reader;   /* of reports and the queue; NULL: nobody has asked yet */
    serve_journal journal;
    struct serve_runner *runner[SERVE_RUNNERS];
    int threads; /* threads that have not ended */
    serve_cache *cache;
    serve_page *openapi; /* once it was asked for, with as many operations */
    int openapi_operations;
    serve_page *front; /* "/", once it was asked for */
    serve_report report;
    serve_waiters followers; /* of everything that is under way */
    char *told;              /* to them last, or NULL */
    serve_secret link, session[SERVE_SESSIONS];
    /* The page's port on the loopback, opened when it is needed first: "127.0.0.1:40123". NULL: none is. */
    int (*need_port)(void *ready_context, const char **ret_address, fa_diag *diag);
    struct serve_pending *pending;
    struct serve_job *jobs;     /* newest first */
    int live_jobs, live_sweeps; /* that have not ended */
    serve_counts counts;
    uv_timer_t tick;
    int ticks;
    int64_t started_ms;
    bool store_open, store_broken, journal_open, stopping, failed;
    int devices;                  /* here, once they are known */
    fa_diag unready;              /* why it is not ready, while it is not */
    char store[1024];             /* the store's path */
    void (*ready)(void *context); /* called once: it is ready, or has failed */
    void *ready_context;
    void (*job_ended)(struct serve_job *job); /* those that wait for the job are told */
    bool runs;                /* false: jobs are queued and never run, as in a test of requests */
    atomic_bool stop_reading; /* a report under way ends */
    fa_tuner *reader_tuner;   /* the reader's */
    /* The lookup thread's: */
    fa_tuner *tuner;
    serve_family_tuner family;
    bool devices_known, reopen_failed;
    struct {
        int64_t seconds, nanoseconds, size, inode;
        int64_t looked_ms, reopened_ms;
    } seen;
    /* Written by that thread before a task of its is done, then never again: */
    fa_gpu device[SERVE_DEVICES_MAX];
    int device_count;
    int device_code;
    fa_diag device_reason; /* why there is none */
};

int64_t serve_unix_ms(void);
int64_t serve_now_ms(const serve_service *service);
bool serve_service_is_ready(const serve_service *service);
/* Asks a client to come back, and counts it. */
void serve_refuse(serve_service *service, serve_exchange *exchange, const char *message);
/* A thread has ended; on the loop's. */
void serve_service_thread_ended(void *service);

void serve_tuner_options(const serve_settings *settings, fa_options *ret_options);
/* {"answer":…,"cubin":{"key":…,"sha256":…,"size":…}}; malloced. The tuner's thread. */
int serve_kernel_text(fa_tuner *tuner, const fa_answer *answer, char **ret_text, fa_diag *diag);

/* Whether what a tuner has returned says that its store, a file, has to be opened anew. */
bool serve_tuner_is_broken(const fa_tuner *tuner, int rc);

/* ---- on the lookup thread ---- */
/* Tells the loop once the store has changed, and opens it anew when it is broken. */
void serve_tuner_watch(void *service);
/* Whether rc says that the store is broken and it could be opened anew, which sets it right: the
 * caller looks again. Where it cannot be, the daemon is not ready until it can. */
bool serve_tuner_reopen(serve_service *service, int rc);
void serve_tuner_close(void *service);
/* The devices here, asked of the driver once. */
void serve_find_devices(serve_service *service);

#endif
