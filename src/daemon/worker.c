/* SPDX-License-Identifier: Apache-2.0 */
#include "worker.h"

#include "error.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* First in, first out. */
struct queue {
    serve_task *first, **last;
};

static void queue_put(struct queue *queue, serve_task *task)
{
    if (queue->first == NULL)
        queue->last = &queue->first;
    task->next = NULL;
    *queue->last = task;
    queue->last = &task->next;
}

/* The first task, or the first short one; NULL: there is none. */
static serve_task *queue_take(struct queue *queue, bool only_short)
{
    serve_task **at = &queue->first;
    while (*at != NULL && only_short && !(*at)->short_one)
        at = &(*at)->next;
    serve_task *task = *at;
    if (task == NULL)
        return NULL;
    *at = task->next;
    if (*at == NULL)
        queue->last = at;
    return task;
}

/* ---- mail -----------------------------------------------------------------------------------*/
struct serve_mail {
    uv_async_t async;
    pthread_mutex_t lock;
    struct queue queue;
};

static void deliver(uv_async_t *async)
{
    serve_mail *mail = async->data;
    for (;;) {
        pthread_mutex_lock(&mail->lock);
        serve_task *task = queue_take(&mail->queue, false);
        pthread_mutex_unlock(&mail->lock);
        if (task == NULL)
            return;
        task->done(task);
    }
}

int serve_mail_open(uv_loop_t *loop, serve_mail **ret_mail, fa_diag *diag)
{
    serve_mail *mail = calloc(1, sizeof *mail);
    int rc = mail == NULL ? UV_ENOMEM : uv_async_init(loop, &mail->async, deliver);
    if (rc != 0) {
        free(mail);
        return fa_fail(diag, FA_EIO, "no mailbox for threads: %s", uv_strerror(rc));
    }
    mail->async.data = mail;
    pthread_mutex_init(&mail->lock, NULL);
    *ret_mail = mail;
    return 0;
}

void serve_mail_post(serve_mail *mail, serve_task *task)
{
    pthread_mutex_lock(&mail->lock);
    queue_put(&mail->queue, task);
    uv_async_send(&mail->async);
    pthread_mutex_unlock(&mail->lock);
}

static void mail_closed(uv_handle_t *handle)
{
    serve_mail *mail = handle->data;
    pthread_mutex_destroy(&mail->lock);
    free(mail);
}

void serve_mail_close(serve_mail **mail)
{
    if (mail == NULL || *mail == NULL)
        return;
    deliver(&(*mail)->async);
    uv_close((uv_handle_t *)&(*mail)->async, mail_closed);
    *mail = NULL;
}

/* ---- workers --------------------------------------------------------------------------------*/
struct serve_worker {
    serve_task over; /* posted last */
    serve_mail *mail;
    serve_worker_calls calls;
    void *context;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct queue queue;
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
    while ((task = queue_take(&worker->queue, false)) == NULL && !worker->stopping)
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
    serve_mail_post(worker->mail, task);
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
            worker->calls.idle(worker, worker->context);
    }
    if (worker->calls.end != NULL)
        worker->calls.end(worker, worker->context);
    serve_mail_post(worker->mail, &worker->over);
    return NULL;
}

static void worker_over(serve_task *task)
{
    serve_worker *worker = (serve_worker *)task;
    if (worker->calls.ended != NULL)
        worker->calls.ended(worker->context);
}

int serve_worker_start(serve_mail *mail, const serve_worker_calls *calls, void *context,
                       serve_worker **ret_worker, fa_diag *diag)
{
    pthread_condattr_t attributes;
    sigset_t all, before;
    serve_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a thread");
    worker->over.done = worker_over;
    worker->mail = mail;
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

void serve_worker_give(serve_worker *worker, serve_task *task)
{
    pthread_mutex_lock(&worker->lock);
    queue_put(&worker->queue, task);
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

bool serve_worker_do_short(serve_worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    serve_task *task = worker->stopping ? NULL : queue_take(&worker->queue, true);
    pthread_mutex_unlock(&worker->lock);
    if (task != NULL)
        work_on(worker, task, false);
    return task != NULL;
}

void *serve_worker_context(const serve_worker *worker)
{
    return worker->context;
}

serve_mail *serve_worker_mail(const serve_worker *worker)
{
    return worker->mail;
}
