/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune-serve: listens, serves until a signal stops it.
 *
 * Exit status: 0 stopped as asked, 1 failed, 2 wrong usage.
 */
#include "service.h"

#include "error.h"
#include "listen.h"

#include <malloc.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FILES_MAX = 65536, DRAIN_TICK_MS = 20, STOP_MS = 20000, EXIT_USAGE = 2 };

struct program {
    uv_loop_t loop;
    serve_settings settings;
    serve_service *service;
    serve_listener listener[SERVE_DOORS_MAX];
    int listeners;
    uv_signal_t on_term, on_int;
    uv_timer_t stopping;
    int64_t stop_by_ms; /* 0: it is not stopping */
};

/* ---- listening ------------------------------------------------------------------------------*/
static int open_doors(struct program *program, fa_diag *diag)
{
    const cli_options *options = &program->settings.options;
    const char *path = options->serve.socket, *runtime = getenv("XDG_RUNTIME_DIR");
    char preset[160];
    int rc = 0;
    if (path == NULL && (runtime == NULL || runtime[0] != '/'))
        return fa_fail(diag, FA_EINVAL,
                       "XDG_RUNTIME_DIR is not set: say where to serve, as in --socket "
                       "/run/fa-tune/fa-tune.sock");
    if (path == NULL) {
        snprintf(preset, sizeof preset, "%s/fa-tune.sock", runtime);
        path = preset;
    }
    if (path[0] != 0) {
        rc = serve_listen_unix(path, &program->listener[0], diag);
        program->listeners += rc == 0;
    }
    if (rc == 0 && options->serve.tcp != NULL) {
        rc = serve_listen_tcp(options->serve.tcp, &program->listener[program->listeners], diag);
        program->listeners += rc == 0;
    }
    if (rc == 0 && program->listeners == 0)
        rc = fa_fail(diag, FA_EINVAL, "there is nothing to serve on: give --socket or --tcp");
    for (int i = 0; i < program->listeners && rc == 0; i++) {
        const serve_listener *listener = &program->listener[i];
        rc = serve_http_listen(program->service->http, listener->fd, listener->local,
                               options->serve.connections, (int)ceil(options->serve.idle_s), diag);
        if (rc == 0)
            serve_log("level=info event=listening on=%s", listener->where);
    }
    return rc;
}

static void close_listeners(struct program *program)
{
    for (int i = 0; i < program->listeners; i++)
        serve_listener_close(&program->listener[i]);
    program->listeners = 0;
}

/* ---- stopping -------------------------------------------------------------------------------*/
/* Work ends, and answers that are under way reach their clients; or time is up. */
static void check_stopped(uv_timer_t *timer)
{
    struct program *program = timer->data;
    const bool late = (int64_t)uv_now(&program->loop) > program->stop_by_ms;
    if (serve_service_stopped(program->service) && (program->service->counts.busy == 0 || late)) {
        uv_stop(&program->loop);
    } else if (late) {
        /* A driver call that does not return holds a thread. Winners are in the store: nothing is lost. */
        serve_log("level=warn event=\"stopped without waiting for a tune any longer\"");
        close_listeners(program);
        _exit(0);
    }
}

static void told_to_stop(uv_signal_t *signal, int number)
{
    struct program *program = signal->data;
    (void)number;
    if (program->stop_by_ms != 0)
        return;
    program->stop_by_ms = (int64_t)uv_now(&program->loop) + STOP_MS;
    serve_log("level=info event=stopping");
    serve_service_stop(program->service);
    close_listeners(program);
    uv_timer_start(&program->stopping, check_stopped, 0, DRAIN_TICK_MS);
}

/* ---- life -----------------------------------------------------------------------------------*/
static int serve(struct program *program)
{
    fa_diag diag = {{0}};
    int rc = uv_loop_init(&program->loop) == 0 ? 0 : fa_fail(&diag, FA_EIO, "libuv does not start");
    if (rc == 0)
        rc = serve_service_open(&program->loop, &program->settings, &program->service, &diag);
    if (rc == 0)
        rc = open_doors(program, &diag);
    if (rc != 0) {
        serve_log("level=error event=\"cannot start\" reason=\"%s\"", diag.text);
        close_listeners(program);
        /* A folder or a file that is named and missing is wrong usage. */
        return rc == FA_EINVAL || rc == FA_EMANIFEST || rc == FA_ENOTFOUND ? EXIT_USAGE : 1;
    }
    uv_signal_init(&program->loop, &program->on_term);
    uv_signal_init(&program->loop, &program->on_int);
    uv_timer_init(&program->loop, &program->stopping);
    program->on_term.data = program->on_int.data = program->stopping.data = program;
    uv_signal_start(&program->on_term, told_to_stop, SIGTERM);
    uv_signal_start(&program->on_int, told_to_stop, SIGINT);
    serve_log("level=info event=ready");
    if (program->settings.options.serve
            .page) { /* a browser sends the fragment, which has the token, to no server */
        const char *where = program->listener[program->listeners - 1].where;
        printf("http://%s/#%s\n", where + strlen("tcp:"), program->settings.token);
        fflush(stdout);
    }
    uv_run(&program->loop, UV_RUN_DEFAULT);
    serve_service_end(program->service);
    serve_log("level=info event=stopped");
    return 0;
}

int main(int count, char **arguments)
{
    static struct program program;
    const cli_options *options = &program.settings.options;
    const fa_operation *operation;
    struct rlimit limit;
    fa_diag diag = {{0}};
    int rc = serve_settings_read(count, arguments, &program.settings, &diag);
    if (rc == 0 && options->help)
        puts("`fa-tune serve --help` lists the options");
    else if (rc == 0 && options->serve.openapi)
        puts(serve_openapi_document);
    if (rc == 0 && (options->help || options->serve.openapi))
        return fflush(stdout) != 0;
    for (int i = 0; i < options->serve.files && rc == 0; i++)
        rc = fa_spec_load(options->serve.file[i], &operation, &diag);
    if (rc != 0) {
        fprintf(stderr, "fa-tune serve: %s\n", diag.text);
        return EXIT_USAGE;
    }
    signal(SIGPIPE, SIG_IGN);
    mallopt(M_ARENA_MAX,
            2); /* the loop's, and one for all other threads, each of which would keep its own */
    /* A connection each; the store and compile workers take some more. */
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    return serve(&program);
}
