/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "error.h"

#include <stdio.h>
#include <stdlib.h>

enum { COMPILE_MS = 300000 /* waiting for a free worker included */ };

static void log_note(void *context, const char *sentence)
{
    (void)context;
    serve_log("level=warn event=note text=\"%s\"", sentence);
}

static void find_devices(serve_service *service)
{
    int rc = 0, at;
    while (rc == 0 && (at = service->device.count) < SERVE_DEVICES_MAX) {
        rc = fa_gpu_find(NULL, at, &service->device.gpu[at], &service->device.reason);
        service->device.code = at == 0 ? rc : 0;
        service->device.count += rc == 0;
        if (rc == 0)
            serve_log("level=info event=device gpu=\"%s\"", service->device.gpu[at].name);
    }
}

int serve_service_open(uv_loop_t *loop, const serve_settings *settings, serve_service **ret_service,
                       fa_diag *diag)
{
    fa_options options = cli_library_options(&settings->options);
    char threads[16];
    options.log = log_note;
    options.server = "";       /* it is one itself */
    options.compile_nice = 19; /* its compile workers give way to all other processes */
    if (options.compile_timeout_ms == 0)
        options.compile_timeout_ms = COMPILE_MS;
    serve_service *service = calloc(1, sizeof *service);
    if (service == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for the service");
    service->loop = loop;
    service->settings = settings;
    pthread_mutex_init(&service->news_lock, NULL);
    find_devices(service);
    serve_share_init(&service->lookups, loop, &options, SERVE_LOOKUPS);
    serve_share_init(&service->tunes, loop, &options, service->device.count + 1);
    serve_share_init(&service->lists, loop, &options, SERVE_LISTS);
    /* Each thread that has worked holds some 200 kB. It is set before libuv's first thread. */
    snprintf(threads, sizeof threads, "%d",
             service->lookups.most + service->tunes.most + service->lists.most);
    setenv("UV_THREADPOOL_SIZE", threads, 1);
    /* Fails early where the store cannot be opened at all. */
    fa_tuner **first = &service->lookups.idle[0];
    int rc = fa_open(&options, first, diag);
    service->lookups.idle_count = rc == 0;
    if (rc == 0)
        serve_log("level=info event=store at=\"%s\"", fa_store_location(*first));
    if (rc == 0)
        rc = serve_http_make(loop, &serve_routes, service, &service->counts, &service->http, diag);
    if (rc != 0) { /* the process ends */
        serve_share_close(&service->lookups);
        free(service);
        return rc;
    }
    serve_kernels_open(service);
    *ret_service = service;
    return 0;
}

void serve_service_stop(serve_service *service)
{
    atomic_store(&service->stopping, true);
    serve_http_drain(service->http);
    serve_kernels_stop(service);
}

bool serve_service_stopped(const serve_service *service)
{
    return service->stopping && service->lookups.running + service->tunes.running +
                                        service->lists.running + service->lookups.waiting +
                                        service->tunes.waiting + service->lists.waiting ==
                                    0;
}

void serve_service_end(serve_service *service)
{
    serve_share_close(&service->lookups);
    serve_share_close(&service->tunes);
    serve_share_close(&service->lists);
}
