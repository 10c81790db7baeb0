/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include "error.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct serve_worker {
    serve_task over; /* posted last */
    serve_loop_queue *queue;
    serve_worker_calls calls;
    void *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    serve_tasks tasks;
    bool stopping;
};

/* The next task, or NULL after about a second; *ret_stopping: no more will come. */
static serve_task *wait_for_task(serve_worker *worker, bool *ret_stopping)
{
    struct timespec until;
    serve_task *task;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&worker->lock);
    while ((task = serve_tasks_take(&worker->tasks, false)) == NULL && !worker->stopping)
        if (pthread_cond_timedwait(&worker->wake, &worker->lock, &until) != 0)
            break;
    *ret_stopping = worker->stopping;
    pthread_mutex_unlock(&worker->lock);
    return task;
}

static void work_on(serve_worker *worker, serve_task *task, bool skip)
{
    task->skipped = skip;
    if (!skip)
        task->work(task, worker);
    serve_loop_post(worker->queue, task);
}

static void *run(void *context)
{
    serve_worker *worker = context;
    bool stopping = false;
    for (;;) {
        serve_task *task = wait_for_task(worker, &stopping);
        if (task != NULL)
            work_on(worker, task, stopping && !worker->calls.finishes);
        else if (stopping)
            break;
        else if (worker->calls.idle != NULL)
            worker->calls.idle(worker->context);
    }
    if (worker->calls.end != NULL)
        worker->calls.end(worker->context);
    serve_loop_post(worker->queue, &worker->over);
    return NULL;
}

static void worker_over(serve_task *task)
{
    serve_worker *worker = (serve_worker *)task;
    if (worker->calls.ended != NULL)
        worker->calls.ended(worker->context);
}

int serve_worker_start(serve_loop_queue *queue, const serve_worker_calls *calls, void *context,
                       serve_worker **ret_worker, fa_diag *diag)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    serve_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a thread");
    worker->over.done = worker_over;
    worker->queue = queue;
    worker->calls = *calls;
    worker->context = context;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&worker->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    sigfillset(&all); /* signals are the loop's */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&worker->thread, NULL, run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        pthread_mutex_destroy(&worker->lock);
        pthread_cond_destroy(&worker->wake);
        free(worker);
        return fa_fail(diag, FA_EIO, "cannot start a thread: %s", strerror(rc));
    }
    *ret_worker = worker;
    return 0;
}

void serve_worker_submit(serve_worker *worker, serve_task *task)
{
    pthread_mutex_lock(&worker->lock);
    serve_tasks_put(&worker->tasks, task);
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
}

void serve_worker_stop(serve_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    worker->stopping = true;
    pthread_cond_signal(&worker->wake);
    pthread_mutex_unlock(&worker->lock);
}

void serve_worker_free(serve_worker **worker)
{
    if (worker == NULL || *worker == NULL)
        return;
    pthread_join((*worker)->thread, NULL);
    pthread_mutex_destroy(&(*worker)->lock);
    pthread_cond_destroy(&(*worker)->wake);
    free(*worker);
    *worker = NULL;
}

bool serve_worker_run_interleaved(serve_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    serve_task *task = worker->stopping ? NULL : serve_tasks_take(&worker->tasks, true);
    pthread_mutex_unlock(&worker->lock);
    if (task != NULL)
        work_on(worker, task, false);
    return task != NULL;
}

void *serve_worker_context(const serve_worker *worker)
{
    return worker->context;
}
