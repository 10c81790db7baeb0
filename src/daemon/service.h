/* SPDX-License-Identifier: Apache-2.0
 *
 * The service: what its handlers share, and the handlers of kernel.c.
 *
 * Threads: the loop's thread owns everything here, and calls each function. What work on other threads reads of it is
 * the settings and devices, which do not change, and the news of a tune (kernel.c). It may end at any moment: the store
 * has what was measured.
 */
#ifndef FA_DAEMON_SERVICE_H
#define FA_DAEMON_SERVICE_H

#include "buf.h"
#include "fa_tune.h"
#include "http.h"
#include "options.h"

#include <pthread.h>

/* ---- work on libuv's threads (work.c): everything that reads the store, opens the GPU's driver or tunes ----*/
/* Each kind of work has a share of the threads, so that none of one kind waits for a thread behind another: an answer that is
 * stored is looked up while tunes run. In a share, work of one lane comes one at a time: a GPU measures one kernel at a time.
 *
 * Threads: the loop's thread submits work, and runs done(). run() is called on one of libuv's threads and touches its own work
 * only, until it returns; done() follows. A tuner is used by one run() at a time, and is kept for the next one of its share
 * under the share's lock, which is held for nothing else. */
enum {
    /* Threads of each kind of work; tunes have one for each device, and one for all GPUs that are not here. Each that has
     * worked holds some 100 kB, and each tuner 200 kB. */
    SERVE_LOOKUPS = 2,
    SERVE_LISTS = 2, /* lists, reports and sweeps */
    SERVE_DEVICES_MAX = 16,
    SERVE_LANES = SERVE_DEVICES_MAX + 2 /* 0: none; a device's is its ordinal plus 1 */
};

typedef struct serve_share serve_share;
typedef struct serve_work serve_work;
struct serve_service;

/* The first member of what run() and done() know. */
struct serve_work {
    uv_work_t uv;
    serve_share *share;
    serve_work *next; /* of those that wait */
    struct serve_service *service;
    serve_request *request; /* NULL: nobody waits for a reply, or no longer */
    fa_buf body;            /* of the request */
    fa_buf text;            /* of the reply, as run() makes it */
    int lane;               /* below SERVE_LANES */
    /* Runs again, with a tuner that was opened anew, where the store was broken. */
    int (*run)(serve_work *work, fa_tuner *tuner, fa_diag *diag);
    void (*done)(serve_work *work); /* frees it, or submits it again */
    int rc;                         /* what run() returned, or why there was no tuner */
    fa_diag diag;
};

struct serve_share {
    uv_loop_t *loop;
    fa_options options;
    serve_work *first;
    int most, running, waiting;
    bool busy[SERVE_LANES];
    pthread_mutex_t lock; /* of the tuners that nobody uses */
    fa_tuner *idle[SERVE_LANES];
    int idle_count;
};

void serve_share_init(serve_share *share, uv_loop_t *loop, const fa_options *options, int most);
/* Zeroed work of `size` bytes, which takes the request's body; NULL: out of memory, and the request is answered. */
void *serve_work_new(struct serve_service *service, serve_request *request, size_t size);
void serve_work_submit(serve_share *share, serve_work *work);
void serve_work_free(serve_work *work);

/* ---- the log --------------------------------------------------------------------------------*/
/* A line of logfmt on stderr, behind its time, in one write; any thread. Texts in it have no line breaks: fa_diag's and names.
 *
 *     serve_log("level=info event=\"tune ended\" gpu=\"%s\"", gpu->name); */
void serve_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- settings: the options, which the command line reads, and the token ----------------------*/
enum { SERVE_TOKEN_MAX = 512 };

typedef struct serve_settings {
    cli_options options;
    char token[SERVE_TOKEN_MAX + 1]; /* "": none */
    unsigned char token_hash[FA_HASH_BYTES]; /* compared whole, in constant time */
} serve_settings;

/* FA_EINVAL with a sentence. Texts point into the arguments. */
int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag);

/* ---- stored answers by the exact bytes of their requests (kernel.c) --------------------------*/
enum { SERVE_CACHE_SLOTS = 8192 };

struct serve_cached {
    uint64_t hash;
    char *request;
    size_t size;
    struct MHD_Response *response;
    int64_t looked_ms;
    bool asked; /* it is being looked up again */
};

typedef struct serve_cache {
    int64_t epoch; /* grows whenever it is emptied; a lookup takes it before it begins */
    struct serve_cached slot[SERVE_CACHE_SLOTS];
} serve_cache;

/* ---- the service ----------------------------------------------------------------------------*/
struct serve_kernel;

typedef struct serve_service {
    uv_loop_t *loop;
    const serve_settings *settings;
    serve_http *http;
    serve_http_counts counts;
    serve_share lookups, tunes, lists;
    serve_cache cache;
    struct serve_kernel *kernels; /* tunes, and requests that wait for one; the newest first */
    pthread_mutex_t news_lock;
    uv_timer_t tick;
    int64_t tuned; /* so far */
    int64_t hits, looked_up, unauthorized;
    int ticks;
    struct {
        fa_gpu gpu[SERVE_DEVICES_MAX];
        int count, code;
        fa_diag reason; /* why there is none */
    } device;
} serve_service;

/* Opens the store, whose failure is the service's. */
int serve_service_open(uv_loop_t *loop, const serve_settings *settings, serve_service **ret_service,
                       fa_diag *diag);

/* ---- kernels (kernel.c) ---------------------------------------------------------------------*/
void serve_kernels_open(serve_service *service);
void serve_post_kernel(serve_service *service, serve_request *request);
void serve_get_jobs(serve_service *service, serve_request *request);

extern const char serve_openapi_document[];

#endif
