/* SPDX-License-Identifier: Apache-2.0
 *
 * Pending requests: requests of the very same bytes are read and looked up once, on the lookup
 * thread, and all clients that sent them wait together; a request that only a tune can answer then
 * waits for the tune's job, which requests of the same key share.
 */
#ifndef FA_DAEMON_PENDING_H
#define FA_DAEMON_PENDING_H

#include "jobs.h"

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
    char gpu_name[64]; /* of the request; "": a device */
    fa_gpu gpu;        /* whose runner it is for */
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
