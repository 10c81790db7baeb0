/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void serve_share_init(serve_share *share, uv_loop_t *loop, const fa_options *options, int most)
{
    *share = (serve_share){.loop = loop, .options = *options, .most = most};
    pthread_mutex_init(&share->lock, NULL);
}

/* ---- on a thread of libuv's ------------------------------------------------------------------*/
static void run(uv_work_t *uv)
{
    serve_work *work = uv->data;
    serve_share *share = work->share;
    for (bool again = false;; again = true) {
        pthread_mutex_lock(&share->lock);
        fa_tuner *tuner = share->idle_count > 0 ? share->idle[--share->idle_count] : NULL;
        pthread_mutex_unlock(&share->lock);
        fa_buf_clear(&work->text);
        work->rc = tuner != NULL ? 0 : fa_open(&share->options, &tuner, &work->diag);
        if (work->rc != 0)
            return;
        work->rc = work->run(work, tuner, &work->diag);
        /* Opening a store makes the tables of an empty file, and moves a damaged file away. */
        if (work->rc == FA_ECORRUPT ||
            (work->rc == FA_ESTORE && fa_store_location(tuner)[0] == '/')) {
            fa_close(&tuner);
            if (!again)
                continue;
        }
        if (tuner != NULL) {
            pthread_mutex_lock(&share->lock);
            share->idle[share->idle_count++] = tuner;
            pthread_mutex_unlock(&share->lock);
        }
        return;
    }
}

/* ---- on the loop's ---------------------------------------------------------------------------*/
static void start_more(serve_share *share);

static void done(uv_work_t *uv, int status)
{
    serve_work *work = uv->data;
    serve_share *share = work->share;
    (void)status;
    share->running--;
    share->busy[work->lane] = false;
    work->done(work);
    start_more(share);
}

static void start_more(serve_share *share)
{
    for (serve_work **at = &share->first; *at != NULL && share->running < share->most;) {
        serve_work *work = *at;
        if (work->lane != 0 && share->busy[work->lane]) {
            at = &work->next;
            continue;
        }
        *at = work->next;
        share->waiting--;
        share->running++;
        share->busy[work->lane] = work->lane != 0;
        uv_queue_work(share->loop, &work->uv, run, done);
    }
}

static void left(serve_request *request)
{
    ((serve_work *)request->waits_in)->request = NULL;
}

void *serve_work_new(struct serve_service *service, serve_request *request, size_t size)
{
    serve_work *work = calloc(1, size);
    if (work == NULL) {
        serve_reply_failure(request, 0, FA_EBUSY, "out of memory: come back later");
        return NULL;
    }
    work->service = service;
    work->request = request;
    work->body = request->body;
    request->body = (fa_buf){0};
    request->waits_in = work;
    request->left = left;
    return work;
}

void serve_work_submit(serve_share *share, serve_work *work)
{
    serve_work **at = &share->first;
    work->share = share;
    work->uv.data = work;
    work->next = NULL;
    while (*at != NULL)
        at = &(*at)->next;
    *at = work;
    share->waiting++;
    start_more(share);
}

void serve_work_free(serve_work *work)
{
    fa_buf_free(&work->body);
    fa_buf_free(&work->text);
    free(work);
}

/* ---- the log --------------------------------------------------------------------------------*/
void serve_log(const char *format, ...)
{
    char line[4096];
    struct timespec now;
    struct tm parts;
    va_list values;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &parts);
    size_t size = strftime(line, sizeof line, "time=%Y-%m-%dT%H:%M:%S", &parts);
    size += (size_t)snprintf(line + size, 8, ".%03dZ ", (int)(now.tv_nsec / 1000000));
    va_start(values, format);
    vsnprintf(line + size, sizeof line - size - 1, format, values);
    va_end(values);
    size = strlen(line);
    line[size++] = '\n';
    (void)!write(STDERR_FILENO, line, size);
}
