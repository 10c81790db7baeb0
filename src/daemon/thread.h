/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads besides the loop's, and the queue from them to the loop. A thread runs a task's work(), then the loop's
 * thread runs its done().
 *
 * The store, CUDA and NVRTC are used by these threads only: the loop never waits for them.
 */
#ifndef FA_DAEMON_THREAD_H
#define FA_DAEMON_THREAD_H

#include "fa_types.h"

#include <uv.h>

/* ---- tasks, and the queue to the loop, first in, first out ---- */
typedef struct serve_loop_queue serve_loop_queue;
typedef struct serve_task serve_task;
typedef struct serve_thread serve_thread;

struct serve_task {
    serve_task *next;
    void (*work)(serve_task *task, serve_thread *thread); /* on its thread */
    void (*done)(serve_task *task);                       /* on the loop's; may free it */
    bool skipped;                                         /* the thread was stopped first */
    bool interleaves; /* may be worked on in the middle of a long task */
};

int serve_loop_queue_open(uv_loop_t *loop, serve_loop_queue **ret_queue, fa_diag *diag);
/* Calls `done` of a task on the loop's thread. Any thread. */
void serve_loop_post(serve_loop_queue *queue, serve_task *task);
/* Runs done() of the tasks that are still in the queue; every thread has ended. */
void serve_loop_queue_close(serve_loop_queue **queue);

/* ---- threads ---- */
typedef struct serve_thread_calls {
    void (*idle)(void *context);  /* about once a second without a task */
    void (*end)(void *context);   /* before its thread ends */
    void (*ended)(void *context); /* on the loop's thread, after that */
    bool finishes; /* tasks that were submitted before the stop are run, not skipped */
} serve_thread_calls;

int serve_thread_start(serve_loop_queue *queue, const serve_thread_calls *calls, void *context,
                       serve_thread **ret_thread, fa_diag *diag);
void serve_thread_submit(serve_thread *thread, serve_task *task);
/* The thread ends after its current task; the other tasks come back as skipped. */
void serve_thread_stop(serve_thread *thread);
/* After `ended` was called; NULL and pointer to NULL are allowed. */
void serve_thread_free(serve_thread **thread);

/* On the thread itself, within a long task: runs the next task that interleaves. */
bool serve_thread_run_interleaved(serve_thread *thread);
void *serve_thread_context(const serve_thread *thread);

#endif
