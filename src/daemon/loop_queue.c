/* SPDX-License-Identifier: Apache-2.0 */
#include "loop_queue.h"

#include "error.h"

#include <pthread.h>
#include <stdlib.h>

void serve_tasks_put(serve_tasks *tasks, serve_task *task)
{
    if (tasks->first == NULL)
        tasks->last = &tasks->first;
    task->next = NULL;
    *tasks->last = task;
    tasks->last = &task->next;
}

serve_task *serve_tasks_take(serve_tasks *tasks, bool only_interleaved)
{
    serve_task **at = &tasks->first;
    while (*at != NULL && only_interleaved && !(*at)->interleaves)
        at = &(*at)->next;
    serve_task *task = *at;
    if (task == NULL)
        return NULL;
    *at = task->next;
    if (*at == NULL)
        tasks->last = at;
    return task;
}

struct serve_loop_queue {
    uv_async_t async;
    pthread_mutex_t lock;
    serve_tasks tasks;
};

static void deliver(uv_async_t *async)
{
    serve_loop_queue *queue = async->data;
    for (;;) {
        pthread_mutex_lock(&queue->lock);
        serve_task *task = serve_tasks_take(&queue->tasks, false);
        pthread_mutex_unlock(&queue->lock);
        if (task == NULL)
            return;
        task->done(task);
    }
}

int serve_loop_queue_open(uv_loop_t *loop, serve_loop_queue **ret_queue, fa_diag *diag)
{
    serve_loop_queue *queue = calloc(1, sizeof *queue);
    int rc = queue == NULL ? UV_ENOMEM : uv_async_init(loop, &queue->async, deliver);
    if (rc != 0) {
        free(queue);
        return fa_fail(diag, FA_EIO, "no queue from threads to the loop: %s", uv_strerror(rc));
    }
    queue->async.data = queue;
    pthread_mutex_init(&queue->lock, NULL);
    *ret_queue = queue;
    return 0;
}

void serve_loop_post(serve_loop_queue *queue, serve_task *task)
{
    pthread_mutex_lock(&queue->lock);
    serve_tasks_put(&queue->tasks, task);
    uv_async_send(&queue->async);
    pthread_mutex_unlock(&queue->lock);
}

static void queue_closed(uv_handle_t *handle)
{
    serve_loop_queue *queue = handle->data;
    pthread_mutex_destroy(&queue->lock);
    free(queue);
}

void serve_loop_queue_close(serve_loop_queue **queue)
{
    if (queue == NULL || *queue == NULL)
        return;
    deliver(&(*queue)->async);
    uv_close((uv_handle_t *)&(*queue)->async, queue_closed);
    *queue = NULL;
}
