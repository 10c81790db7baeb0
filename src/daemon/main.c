/* SPDX-License-Identifier: Apache-2.0
 *
 * fa-tune-serve: listens, serves until a signal stops it.
 *
 * Exit status: 0 stopped as asked, 1 failed, 2 wrong usage.
 */
#include "service.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    LISTENERS = 9,
    OWN_LISTENERS = 3, /* the Unix socket, --tcp, the page */
    ACCEPT_TURN = 64,
    FILES_MAX = 65536,
    OTHER_FILES = 256, /* not for connections */
    FULL_MS = 100,
    DRAIN_TICK_MS = 20,
    EXIT_USAGE = 2
};

struct program {
    uv_loop_t loop;
    serve_settings settings;
    serve_service *service;
    serve_listener listener[LISTENERS];
    uv_poll_t poll[LISTENERS];
    int listeners;
    const serve_listener *page; /* of these; NULL: not open */
    uv_signal_t on_term, on_int;
    uv_timer_t stopping, full;
    bool was_full; /* once: no descriptor was left */
    int64_t stop_by_ms;
    int status;
};

/* ---- accepting ------------------------------------------------------------------------------*/
static void acceptable(uv_poll_t *poll, int status, int events);

static void go_on_accepting(uv_timer_t *timer)
{
    struct program *program = timer->data;
    for (int i = 0; i < program->listeners; i++)
        uv_poll_start(&program->poll[i], UV_READABLE, acceptable);
}

/* No descriptor is left: accepting again at once would only take time from the open connections. */
static void pause_accepting(struct program *program)
{
    if (!program->was_full)
        serve_log(SERVE_WARN, "no descriptor is left for a connection", "remedy",
                  "raise its limit (ulimit -n, LimitNOFILE=)", NULL);
    program->was_full = true;
    for (int i = 0; i < program->listeners; i++)
        uv_poll_stop(&program->poll[i]);
    uv_timer_start(&program->full, go_on_accepting, FULL_MS, 0);
}

static void acceptable(uv_poll_t *poll, int status, int events)
{
    struct program *program = poll->data;
    const serve_listener *listener = &program->listener[poll - program->poll];
    (void)status;
    (void)events;
    for (int i = 0; i < ACCEPT_TURN; i++) {
        bool refused;
        int fd = serve_listener_accept(listener, &refused);
        if (fd < 0 && !refused) {
            if (errno == EMFILE || errno == ENFILE)
                pause_accepting(program);
            return;
        }
        if (refused)
            program->service->counts.foreign++;
        else
            serve_http_adopt(program->service->http, fd, listener->local);
    }
}

/* The first address that the daemon serves at, as an absolute path. */
static void identify(struct program *program)
{
    const char *where = program->listener[0].where;
    char *real = program->listener[0].local ? realpath(where + strlen("unix:"), NULL) : NULL;
    snprintf(program->settings.identity, sizeof program->settings.identity, "%s",
             real != NULL ? real : where);
    free(real);
}

static int open_listeners(struct program *program, fa_diag *diag)
{
    serve_settings *settings = &program->settings;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    int rc = serve_listen_inherited(program->listener, LISTENERS - OWN_LISTENERS,
                                    &program->listeners, diag);
    if (rc != 0)
        return rc;
    for (int i = 0; i < program->listeners; i++)
        if (!program->listener[i].local && !settings->has_token)
            return fa_fail(diag, FA_EINVAL, "systemd passes %s and there is no --token-file",
                           program->listener[i].where);
    if (settings->socket != NULL || program->listeners == 0) {
        if (settings->socket == NULL && (runtime == NULL || runtime[0] != '/'))
            return fa_fail(diag, FA_EINVAL,
                           "XDG_RUNTIME_DIR is not set: say where to serve, as in --socket "
                           "/run/fa-tune/fa-tune.sock");
        if (settings->socket == NULL) {
            snprintf(settings->default_socket, sizeof settings->default_socket, "%s/fa-tune.sock",
                     runtime);
            settings->socket = settings->default_socket;
        }
        if (settings->socket[0] != 0) {
            rc = serve_listen_unix(settings->socket, &program->listener[program->listeners], diag);
            program->listeners += rc == 0;
        }
    }
    if (rc == 0 && settings->tcp[0] != 0) {
        rc = serve_listen_tcp(settings->tcp, &program->listener[program->listeners], diag);
        program->listeners += rc == 0;
    }
    if (rc == 0 && program->listeners == 0)
        rc = fa_fail(diag, FA_EINVAL, "there is nothing to serve on: give --socket or --tcp");
    if (rc == 0)
        identify(program);
    return rc;
}

static int watch(struct program *program, int i, fa_diag *diag)
{
    program->poll[i].data = program;
    if (uv_poll_init(&program->loop, &program->poll[i], program->listener[i].fd) != 0)
        return fa_fail(diag, FA_EIO, "cannot watch %s", program->listener[i].where);
    uv_poll_start(&program->poll[i], UV_READABLE, acceptable);
    serve_log(SERVE_INFO, "listening", "on", program->listener[i].where, NULL);
    return 0;
}

/* ---- the page -------------------------------------------------------------------------------*/
static int need_port(void *context, const char **ret_address, fa_diag *diag)
{
    struct program *program = context;
    serve_listener *listener = &program->listener[program->listeners];
    if (program->stop_by_ms != 0)
        return fa_fail(diag, FA_EBUSY, "this server is stopping");
    if (program->page == NULL) {
        int rc = serve_listen_tcp("127.0.0.1:0", listener, diag);
        if (rc == 0 && (rc = watch(program, program->listeners, diag)) != 0)
            serve_listener_close(listener);
        if (rc != 0)
            return rc;
        program->listeners++;
        program->page = listener;
    }
    *ret_address = program->page->where + strlen("tcp:");
    return 0;
}

static void open_page(struct program *program)
{
    char url[SERVE_URL_SIZE];
    fa_diag diag;
    if (serve_link_make(program->service, url, &diag) != 0)
        serve_log(SERVE_ERROR, "the page cannot be opened", "reason", diag.text, NULL);
    else if (!serve_open_page(url, true))
        serve_log(SERVE_WARN, "a link is not written where the log goes", "remedy",
                  "fa-tune serve --open, on a terminal, asks for another", NULL);
}

/* Of what it cannot start for: a folder or a file that is named and missing is wrong usage. */
static int status_of(int rc)
{
    return rc == FA_EINVAL || rc == FA_EMANIFEST || rc == FA_ENOTFOUND ? EXIT_USAGE : 1;
}

static void ready(void *context)
{
    struct program *program = context;
    serve_service *service = program->service;
    if (service->failed) {
        serve_log(SERVE_ERROR, "cannot start", "reason", service->unready.text, NULL);
        program->status = status_of(service->failed);
        uv_stop(&program->loop);
        return;
    }
    serve_notify("READY=1");
    serve_log(SERVE_INFO, "ready", "store", service->store, "ms",
              serve_integer(serve_unix_ms() - service->started_ms).text, NULL);
    if (program->settings.open)
        open_page(program);
}

/* ---- stopping -------------------------------------------------------------------------------*/
static void close_listeners(struct program *program)
{
    for (int i = 0; i < program->listeners; i++) {
        uv_poll_stop(&program->poll[i]);
        uv_close((uv_handle_t *)&program->poll[i], NULL);
        serve_listener_close(&program->listener[i]);
    }
    program->listeners = 0;
}

/* Threads end, and answers that are under way reach their clients; or time is up. */
static void check_stopped(uv_timer_t *timer)
{
    struct program *program = timer->data;
    serve_service *service = program->service;
    bool late = (int64_t)uv_now(&program->loop) > program->stop_by_ms;
    if (serve_service_stopped(service) && (serve_http_busy(service->http) == 0 || late)) {
        uv_stop(&program->loop);
    } else if (late) {
        /* A driver call that does not return holds a thread. Winners are in the store and jobs
         * in the journal: nothing is lost by ending here. */
        serve_log(SERVE_WARN, "stopped without waiting for a job any longer", NULL);
        _exit(0);
    }
}

static void stop_program(struct program *program)
{
    if (program->stop_by_ms != 0)
        return;
    program->stop_by_ms = (int64_t)uv_now(&program->loop) + program->settings.stop_s * 1000;
    serve_notify("STOPPING=1");
    serve_log(SERVE_INFO, "stopping", NULL);
    close_listeners(program);
    serve_service_stop(program->service);
    uv_timer_start(&program->stopping, check_stopped, 0, DRAIN_TICK_MS);
}

static void told_to_stop(uv_signal_t *signal, int number)
{
    (void)number;
    stop_program(signal->data);
}

/* ---- life -----------------------------------------------------------------------------------*/
/* A connection each; the store and compile workers take some more. */
static void need_open_files(serve_settings *settings)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max < FILES_MAX ? limit.rlim_max : FILES_MAX;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    int32_t most = limit.rlim_cur > FILES_MAX ? FILES_MAX : (int32_t)limit.rlim_cur;
    most = most > 4 * OTHER_FILES ? most - OTHER_FILES : most / 2;
    if (settings->max_connections > most) {
        settings->max_connections = most > 0 ? most : 1;
        serve_log(SERVE_WARN, "fewer connections than asked for", "max-connections",
                  serve_integer(settings->max_connections).text, "reason",
                  "the limit of open files (ulimit -n, LimitNOFILE=)", NULL);
    }
}

static int set_up(struct program *program, fa_diag *diag)
{
    int rc = serve_service_open(&program->loop, &program->settings, ready, program,
                                &program->service, diag);
    if (rc != 0)
        return rc;
    program->service->need_port = need_port;
    for (int i = 0; i < program->listeners; i++)
        if ((rc = watch(program, i, diag)) != 0)
            return rc;
    uv_signal_init(&program->loop, &program->on_term);
    uv_signal_init(&program->loop, &program->on_int);
    uv_timer_init(&program->loop, &program->stopping);
    uv_timer_init(&program->loop, &program->full);
    program->on_term.data = program->on_int.data = program->stopping.data = program->full.data =
        program;
    uv_signal_start(&program->on_term, told_to_stop, SIGTERM);
    uv_signal_start(&program->on_int, told_to_stop, SIGINT);
    return 0;
}

static void clean_up(struct program *program)
{
    close_listeners(program);
    serve_service_close(&program->service);
    uv_close((uv_handle_t *)&program->on_term, NULL);
    uv_close((uv_handle_t *)&program->on_int, NULL);
    uv_close((uv_handle_t *)&program->stopping, NULL);
    uv_close((uv_handle_t *)&program->full, NULL);
    while (uv_loop_close(&program->loop) == UV_EBUSY)
        uv_run(&program->loop, UV_RUN_DEFAULT);
}

/* libuv ends its process when it has no descriptors for its own pipes. */
static int check_descriptors(fa_diag *diag)
{
    enum { NEEDED = 16 };
    int fd[NEEDED], count = 0, rc = 0;
    while (count < NEEDED && (fd[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    if (count < NEEDED)
        rc = fa_fail(diag, FA_EIO, "%s: raise this process's limit (ulimit -n)", strerror(errno));
    while (count > 0)
        close(fd[--count]);
    return rc;
}

/* libuv ends its process when the loop's list of descriptors cannot grow. It holds the listeners' and a few of
 * libuv's own, for which there is room here; who else asks, or for more, gets memory as usual. */
static _Alignas(max_align_t) char list_room[4096];

static void *reallocate(void *block, size_t size)
{
    static bool taken;
    if (size <= sizeof list_room && (block == list_room || (block == NULL && !taken))) {
        taken = true;
        return list_room;
    }
    if (block != list_room)
        return realloc(block, size);
    void *moved = malloc(size);
    return moved != NULL ? memcpy(moved, list_room, sizeof list_room) : NULL;
}

static void free_block(void *block)
{
    if (block != list_room)
        free(block);
}

/* The service that serves this socket already is asked for a link; the exit status. */
static int open_elsewhere(const char *socket)
{
    char url[SERVE_URL_SIZE];
    fa_diag diag;
    if (serve_ask_for_link(socket, url, &diag) != 0) {
        fprintf(stderr, "fa-tune serve: %s\n", diag.text);
        return 1;
    }
    serve_open_page(url, false);
    return 0;
}

static int init_loop(struct program *program, fa_diag *diag)
{
    uv_replace_allocator(malloc, reallocate, calloc, free_block);
    int rc = uv_loop_init(&program->loop);
    return rc == 0 ? 0 : fa_fail(diag, FA_EIO, "%s", uv_strerror(rc));
}

int main(int count, char **arguments)
{
    static struct program program;
    fa_diag diag = {{0}};
    if (serve_settings_read(count, arguments, &program.settings, &diag) != 0) {
        fprintf(stderr, "fa-tune serve: %s\n", diag.text);
        return EXIT_USAGE;
    }
    if (program.settings.help) {
        serve_settings_help();
        return 0;
    }
    if (program.settings.version) {
        printf("fa-tune %s\n", fa_version());
        return 0;
    }
    if (program.settings.openapi) {
        char *text = serve_openapi_text();
        int rc = text != NULL ? puts(text) : EOF;
        free(text);
        return rc == EOF || fflush(stdout) != 0;
    }
    for (int i = 0; i < program.settings.files; i++) {
        const fa_operation *operation;
        if (fa_spec_load(program.settings.file[i], &operation, &diag) != 0) {
            fprintf(stderr, "fa-tune serve: %s\n", diag.text);
            return EXIT_USAGE;
        }
    }
    serve_log_setup((serve_level)program.settings.log_level, program.settings.log_format == 1);
    signal(SIGPIPE, SIG_IGN);
    need_open_files(&program.settings);
    int rc = check_descriptors(&diag);
    if (rc == 0)
        rc = init_loop(&program, &diag);
    if (rc == 0 && (rc = open_listeners(&program, &diag)) == FA_EBUSY && program.settings.open)
        return open_elsewhere(program.settings.socket);
    if (rc != 0 || (rc = set_up(&program, &diag)) != 0) {
        serve_log(SERVE_ERROR, "cannot start", "reason", diag.text, NULL);
        for (int i = 0; i < program.listeners; i++)
            serve_listener_close(&program.listener[i]);
        return status_of(rc);
    }
    uv_run(&program.loop, UV_RUN_DEFAULT);
    if (!serve_service_stopped(program.service)) { /* it could not start */
        close_listeners(&program);
        return program.status;
    }
    clean_up(&program);
    serve_log(SERVE_INFO, "stopped", NULL);
    return program.status;
}
