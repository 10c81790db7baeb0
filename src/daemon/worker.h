/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads beside the loop. A task is worked on by a worker's thread and then done on the loop's; a
 * mailbox carries whatever a thread has for the loop, in order.
 *
 * The store, CUDA and NVRTC are used by workers only: the loop never waits for them.
 */
#ifndef FA_DAEMON_WORKER_H
#define FA_DAEMON_WORKER_H

#include "fa_types.h"

#include <uv.h>

typedef struct serve_mail serve_mail;
typedef struct serve_worker serve_worker;
typedef struct serve_task serve_task;

struct serve_task {
    serve_task *next;
    void (*work)(serve_task *task, serve_worker *worker); /* on the worker's thread */
    void (*done)(serve_task *task);                       /* on the loop's; may free it */
    bool skipped;                                         /* the worker was stopped first */
    bool short_one; /* may be worked on in the middle of a long one */
};

int serve_mail_open(uv_loop_t *loop, serve_mail **ret_mail, fa_diag *diag);
/* Calls `done` of a task on the loop's thread. Any thread. */
void serve_mail_post(serve_mail *mail, serve_task *task);
/* What is still in it is done; every worker has ended. */
void serve_mail_close(serve_mail **mail);

typedef struct serve_worker_calls {
    void (*idle)(serve_worker *worker, void *context); /* about once a second without a task */
    void (*end)(serve_worker *worker, void *context);  /* before its thread ends */
    void (*ended)(void *context);                      /* on the loop's thread, after that */
    bool finishes; /* what it was given before it was stopped is worked on, not skipped */
} serve_worker_calls;

int serve_worker_start(serve_mail *mail, const serve_worker_calls *calls, void *context,
                       serve_worker **ret_worker, fa_diag *diag);
void serve_worker_give(serve_worker *worker, serve_task *task);
/* Ends after the task under way; the others come back as skipped. */
void serve_worker_stop(serve_worker *worker);
/* After `ended` was called; NULL and pointer to NULL are allowed. */
void serve_worker_free(serve_worker **worker);

/* On the worker's own thread, within a long task: works on the next short one, if there is one. */
bool serve_worker_do_short(serve_worker *worker);
void *serve_worker_context(const serve_worker *worker);
serve_mail *serve_worker_mail(const serve_worker *worker);

#endif
