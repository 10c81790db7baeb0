/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "error.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* First in, first out. */
typedef struct serve_tasks {
    serve_task *first, **last;
} serve_tasks;

static void put_task(serve_tasks *tasks, serve_task *task)
{
    if (tasks->first == NULL)
        tasks->last = &tasks->first;
    task->next = NULL;
    *tasks->last = task;
    tasks->last = &task->next;
}

/* The first task, or the first that interleaves; NULL: there is none. */
static serve_task *take_task(serve_tasks *tasks, bool only_interleaved)
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
        serve_task *task = take_task(&queue->tasks, false);
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
    put_task(&queue->tasks, task);
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

/* ---- threads --------------------------------------------------------------------------------*/
struct serve_thread {
    serve_task over; /* posted last */
    serve_loop_queue *queue;
    serve_thread_calls calls;
    void *context;
    pthread_t self;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    serve_tasks tasks;
    bool stopping;
};

/* The next task, or NULL after about a second; *ret_stopping: no more will come. */
static serve_task *wait_for_task(serve_thread *thread, bool *ret_stopping)
{
    struct timespec until;
    serve_task *task;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&thread->lock);
    while ((task = take_task(&thread->tasks, false)) == NULL && !thread->stopping)
        if (pthread_cond_timedwait(&thread->wake, &thread->lock, &until) != 0)
            break;
    *ret_stopping = thread->stopping;
    pthread_mutex_unlock(&thread->lock);
    return task;
}

static void work_on(serve_thread *thread, serve_task *task, bool skip)
{
    task->skipped = skip;
    if (!skip)
        task->work(task, thread);
    serve_loop_post(thread->queue, task);
}

static void *run_thread(void *context)
{
    serve_thread *thread = context;
    bool stopping = false;
    for (;;) {
        serve_task *task = wait_for_task(thread, &stopping);
        if (task != NULL)
            work_on(thread, task, stopping && !thread->calls.finishes);
        else if (stopping)
            break;
        else if (thread->calls.idle != NULL)
            thread->calls.idle(thread->context);
    }
    if (thread->calls.end != NULL)
        thread->calls.end(thread->context);
    serve_loop_post(thread->queue, &thread->over);
    return NULL;
}

static void thread_over(serve_task *task)
{
    serve_thread *thread = (serve_thread *)task;
    if (thread->calls.ended != NULL)
        thread->calls.ended(thread->context);
}

int serve_thread_start(serve_loop_queue *queue, const serve_thread_calls *calls, void *context,
                       serve_thread **ret_thread, fa_diag *diag)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    serve_thread *thread = calloc(1, sizeof *thread);
    if (thread == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a thread");
    thread->over.done = thread_over;
    thread->queue = queue;
    thread->calls = *calls;
    thread->context = context;
    pthread_mutex_init(&thread->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&thread->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread->self, NULL, run_thread, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        pthread_mutex_destroy(&thread->lock);
        pthread_cond_destroy(&thread->wake);
        free(thread);
        return fa_fail(diag, FA_EIO, "cannot start a thread: %s", strerror(rc));
    }
    *ret_thread = thread;
    return 0;
}

void serve_thread_submit(serve_thread *thread, serve_task *task)
{
    pthread_mutex_lock(&thread->lock);
    put_task(&thread->tasks, task);
    pthread_cond_signal(&thread->wake);
    pthread_mutex_unlock(&thread->lock);
}

void serve_thread_stop(serve_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    thread->stopping = true;
    pthread_cond_signal(&thread->wake);
    pthread_mutex_unlock(&thread->lock);
}

void serve_thread_free(serve_thread **thread)
{
    if (thread == NULL || *thread == NULL)
        return;
    pthread_join((*thread)->self, NULL);
    pthread_mutex_destroy(&(*thread)->lock);
    pthread_cond_destroy(&(*thread)->wake);
    free(*thread);
    *thread = NULL;
}

bool serve_thread_run_interleaved(serve_thread *thread)
{
    pthread_mutex_lock(&thread->lock);
    serve_task *task = thread->stopping ? NULL : take_task(&thread->tasks, true);
    pthread_mutex_unlock(&thread->lock);
    if (task != NULL)
        work_on(thread, task, false);
    return task != NULL;
}

void *serve_thread_context(const serve_thread *thread)
{
    return thread->context;
}
