/* SPDX-License-Identifier: Apache-2.0
 *
 * The service: what its handlers share, and the handlers that routes.c lists.
 *
 * Threads: the loop's thread owns everything here, and calls each function. What work on other threads reads of it is
 * the settings and devices, which do not change, and the news of a tune (kernel.c). It may end at any moment: the store
 * has what was measured.
 */
#ifndef FA_DAEMON_SERVICE_H
#define FA_DAEMON_SERVICE_H

#include "hash.h"
#include "options.h"
#include "work.h"

/* ---- settings: the options, which the command line reads, and the token ----------------------*/
enum { SERVE_TOKEN_MAX = 512 };

typedef struct serve_settings {
    cli_options options;
    char token[SERVE_TOKEN_MAX + 1]; /* "": none */
    unsigned char
        token_hash[FA_HASH_BYTES]; /* compared whole, so that comparing takes constant time */
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
    struct serve_kernel
        *kernels; /* requests for kernels that wait for a tune, and tunes; the newest first */
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

/* ---- lists (lists.c) ------------------------------------------------------------------------*/
void serve_get_winners(serve_service *service, serve_request *request);
void serve_get_cubin(serve_service *service, serve_request *request);
void serve_get_sweeps(serve_service *service, serve_request *request);
void serve_post_sweep(serve_service *service, serve_request *request);
void serve_get_report(serve_service *service, serve_request *request);
void serve_get_ready(serve_service *service, serve_request *request);

/* ---- routes (routes.c) ----------------------------------------------------------------------*/
extern const serve_http_events serve_routes; /* their context is a serve_service */
extern const char serve_openapi_document[];
#endif
