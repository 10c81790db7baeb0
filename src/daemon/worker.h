/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads beside the loop. A task is worked on by a worker's thread and then done on the loop's.
 *
 * The store, CUDA and NVRTC are used by workers only: the loop never waits for them.
 */
#ifndef FA_DAEMON_WORKER_H
#define FA_DAEMON_WORKER_H

#include "loop_queue.h"

typedef struct serve_worker serve_worker;

typedef struct serve_worker_calls {
    void (*idle)(void *context);  /* about once a second without a task */
    void (*end)(void *context);   /* before its thread ends */
    void (*ended)(void *context); /* on the loop's thread, after that */
    bool finishes; /* what it was given before it was stopped is worked on, not skipped */
} serve_worker_calls;

int serve_worker_start(serve_loop_queue *queue, const serve_worker_calls *calls, void *context,
                       serve_worker **ret_worker, fa_diag *diag);
void serve_worker_submit(serve_worker *worker, serve_task *task);
/* Ends after the task under way; the others come back as skipped. */
void serve_worker_stop(serve_worker *worker);
/* After `ended` was called; NULL and pointer to NULL are allowed. */
void serve_worker_free(serve_worker **worker);

/* On the worker's own thread, within a long task: works on the next one that interleaves. */
bool serve_worker_run_interleaved(serve_worker *worker);
void *serve_worker_context(const serve_worker *worker);

#endif
