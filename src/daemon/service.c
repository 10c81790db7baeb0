/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "error.h"
#include "own_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* ---- settings -------------------------------------------------------------------------------*/
enum { TOKEN_MIN = 16, TOKEN_BYTES = 32 };

static int read_token(serve_settings *settings, fa_diag *diag)
{
    cli_options *options = &settings->options;
    unsigned char bytes[TOKEN_BYTES];
    int rc = 0;
    if (options->serve.token_file != NULL)
        rc = fa_own_token(options->serve.token_file, 077, TOKEN_MIN, sizeof settings->token,
                          settings->token, diag);
    else if (options->serve.tcp != NULL)
        rc = fa_fail(
            diag, FA_EINVAL,
            "--tcp needs --token-file: without it, anybody who reaches the port could use the GPU");
    else if (options->serve.page && getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        rc = fa_fail(diag, FA_EIO, "the kernel gives no random bytes for a token");
    else if (options->serve.page)
        for (size_t i = 0; i < sizeof bytes; i++)
            snprintf(settings->token + 2 * i, 3, "%02x", bytes[i]);
    if (rc == 0 && options->serve.page && options->serve.tcp == NULL)
        options->serve.tcp = "127.0.0.1:0";
    fa_hash_raw(settings->token, strlen(settings->token), settings->token_hash);
    return rc;
}

int serve_settings_read(int count, char **arguments, serve_settings *ret_settings, fa_diag *diag)
{
    static const cli_verb verb = {.name = "serve", .groups = CLI_GROUPS_SERVE};
    *ret_settings = (serve_settings){.token = ""};
    const int rc =
        cli_options_parse(&verb, true, count - 1, arguments + 1, &ret_settings->options, diag);
    return rc != 0 || ret_settings->options.serve.openapi || ret_settings->options.help
               ? rc
               : read_token(ret_settings, diag);
}

/* ---- the service ----------------------------------------------------------------------------*/
enum { COMPILE_MS = 300000 /* waiting for a free worker included */ };

static void log_note(void *context, const char *sentence)
{
    (void)context;
    serve_log("level=warn event=note text=\"%s\"", sentence);
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
    for (int at = 0, found = 0; found == 0 && at < SERVE_DEVICES_MAX; at++) {
        found = fa_gpu_find(NULL, at, &service->device.gpu[at], &service->device.reason);
        service->device.code = at == 0 ? found : 0;
        service->device.count += found == 0;
        if (found == 0)
            serve_log("level=info event=device gpu=\"%s\"", service->device.gpu[at].name);
    }
    serve_share_init(&service->lookups, loop, &options, SERVE_LOOKUPS);
    serve_share_init(&service->tunes, loop, &options, service->device.count + 1);
    serve_share_init(&service->lists, loop, &options, SERVE_LISTS);
    /* Set before libuv's first thread. */
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
    if (rc != 0) /* the process ends */
        return rc;
    serve_kernels_open(service);
    *ret_service = service;
    return 0;
}
