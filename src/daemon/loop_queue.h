/* SPDX-License-Identifier: Apache-2.0
 *
 * Tasks, and the queue that brings them from other threads to the loop, in order.
 */
#ifndef FA_DAEMON_LOOP_QUEUE_H
#define FA_DAEMON_LOOP_QUEUE_H

#include "fa_types.h"

#include <uv.h>

typedef struct serve_loop_queue serve_loop_queue;
typedef struct serve_task serve_task;
struct serve_thread;

struct serve_task {
    serve_task *next;
    void (*work)(serve_task *task, struct serve_thread *thread); /* on its thread */
    void (*done)(serve_task *task);                              /* on the loop's; may free it */
    bool skipped;                                                /* the thread was stopped first */
    bool interleaves; /* may be worked on in the middle of a long task */
};

/* First in, first out. */
typedef struct serve_tasks {
    serve_task *first, **last;
} serve_tasks;
void serve_tasks_put(serve_tasks *tasks, serve_task *task);
/* The first task, or the first that interleaves; NULL: there is none. */
serve_task *serve_tasks_take(serve_tasks *tasks, bool only_interleaved);

int serve_loop_queue_open(uv_loop_t *loop, serve_loop_queue **ret_queue, fa_diag *diag);
/* Calls `done` of a task on the loop's thread. Any thread. */
void serve_loop_post(serve_loop_queue *queue, serve_task *task);
/* What is still in it is done; every thread has ended. */
void serve_loop_queue_close(serve_loop_queue **queue);

#endif
