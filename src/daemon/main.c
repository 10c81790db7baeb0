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
#include <malloc.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024, FILES_MAX = 65536, EXIT_USAGE = 2 };

/* ---- sockets that listen --------------------------------------------------------------------*/
typedef struct serve_listener {
    int fd;
    bool local;      /* a Unix socket */
    int lock_fd;     /* of the lock file of the process that serves there; -1 */
    char where[160]; /* "unix:/run/…", "tcp:127.0.0.1:7411" */
} serve_listener;

/* Removes its Unix socket, too. */
static void close_listener(serve_listener *listener)
{
    if (listener->fd >= 0)
        close(listener->fd);
    if (listener->lock_fd >= 0) { /* it is still this process's socket */
        if (listener->where[0] != 0)
            unlink(listener->where + strlen("unix:"));
        close(listener->lock_fd);
    }
    listener->fd = listener->lock_fd = -1;
}

/* The process that holds the lock on PATH.lock serves PATH; the kernel releases the lock, which no child inherits, when the
 * process ends. */
static int take_lock(const char *path, int *ret_fd, fa_diag *diag)
{
    char name[128];
    snprintf(name, sizeof name, "%s.lock", path);
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return fa_fail(diag, errno == ENOENT ? FA_EINVAL : FA_EIO,
                       "cannot open %s: %s; is its folder there, and this user's?", name,
                       strerror(errno));
    if (fcntl(fd, F_SETLK, &whole) != 0) {
        close(fd);
        return fa_fail(diag, FA_EBUSY,
                       "another fa-tune-serve serves %s: stop it first, or give --socket another "
                       "path",
                       path);
    }
    *ret_fd = fd;
    return 0;
}

/* A socket that only its owner may use. A socket file that no process serves any more is replaced. FA_EBUSY: another process
 * serves there. */
static int listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag)
{
    serve_listener listener = {.fd = -1, .local = true, .lock_fd = -1};
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct stat st;
    if (strlen(path) >= sizeof address.sun_path)
        return fa_fail(diag, FA_EINVAL, "the socket's path %s is longer than %zu bytes", path,
                       sizeof address.sun_path - 1);
    memcpy(address.sun_path, path, strlen(path) + 1);
    int rc = take_lock(path, &listener.lock_fd, diag);
    if (rc == 0 && lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        rc = fa_fail(diag, FA_EINVAL, "%s is there and is no socket: give --socket another path",
                     path);
    if (rc == 0) {
        const mode_t before = umask(0177);
        unlink(path); /* of a process that ended */
        listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (bind(listener.fd, (struct sockaddr *)&address, sizeof address) != 0 ||
            listen(listener.fd, BACKLOG) != 0)
            rc = fa_fail(diag, FA_EIO, "cannot listen on %s: %s", path, strerror(errno));
        umask(before);
    }
    if (rc != 0) {
        close_listener(&listener);
        return rc;
    }
    snprintf(listener.where, sizeof listener.where, "unix:%s", path);
    *ret_listener = listener;
    return 0;
}

/* "HOST:PORT", "[::1]:PORT", or a port alone, which is on 127.0.0.1. Port 0: any, see `where`. */
static int listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag)
{
    serve_listener listener = {.lock_fd = -1};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[128] = "127.0.0.1", port[6], more;
    const int one = 1, seconds = 30;
    int rc = 0;
    if ((sscanf(where, "%5[0-9]%c", port, &more) != 1 &&
         sscanf(where, "[%127[^]]]:%5[0-9]%c", host, port, &more) != 2 &&
         sscanf(where, "%127[^][:]:%5[0-9]%c", host, port, &more) != 2) ||
        atoi(port) > 65535)
        return fa_fail(diag, FA_EINVAL,
                       "--tcp %s: use HOST:PORT, [ADDRESS]:PORT or PORT, of at most 65535", where);
    const int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return fa_fail(diag, error == EAI_NONAME ? FA_EINVAL : FA_EIO, "--tcp %s: %s", where,
                       gai_strerror(error));
    listener.fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    /* Connections inherit the probes: a client that waits for a tune may leave unheard. */
    setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(listener.fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(listener.fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
    setsockopt(listener.fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
    if (bind(listener.fd, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(listener.fd, BACKLOG) != 0) {
        rc = fa_fail(diag, FA_EIO, "cannot listen on %s: %s", where, strerror(errno));
        close_listener(&listener);
    } else {
        struct sockaddr_storage address; /* with the port that the kernel chose */
        socklen_t size = sizeof address;
        char name[NI_MAXHOST] = "?", number[NI_MAXSERV] = "?";
        if (getsockname(listener.fd, (struct sockaddr *)&address, &size) == 0)
            getnameinfo((struct sockaddr *)&address, size, name, sizeof name, number, sizeof number,
                        NI_NUMERICHOST | NI_NUMERICSERV);
        snprintf(listener.where, sizeof listener.where,
                 strchr(name, ':') != NULL ? "tcp:[%.120s]:%.8s" : "tcp:%.120s:%.8s", name, number);
        *ret_listener = listener;
    }
    freeaddrinfo(found);
    return rc;
}

/* ---- the program ----------------------------------------------------------------------------*/
struct program {
    uv_loop_t loop;
    serve_settings settings;
    serve_service *service;
    serve_listener listener[SERVE_DOORS_MAX];
    int listeners;
    uv_signal_t on_term, on_int;
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
        rc = listen_unix(path, &program->listener[0], diag);
        program->listeners += rc == 0;
    }
    if (rc == 0 && options->serve.tcp != NULL) {
        rc = listen_tcp(options->serve.tcp, &program->listener[program->listeners], diag);
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
        close_listener(&program->listener[i]);
    program->listeners = 0;
}

/* ---- life -----------------------------------------------------------------------------------*/
/* At once, whatever runs: the store has what was measured, and clients ask again. */
static void stop(uv_signal_t *signal, int number)
{
    (void)number;
    close_listeners(signal->data);
    serve_log("level=info event=stopped");
    _exit(0);
}

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
    program->on_term.data = program->on_int.data = program;
    uv_signal_start(&program->on_term, stop, SIGTERM);
    uv_signal_start(&program->on_int, stop, SIGINT);
    serve_log("level=info event=ready");
    if (program->settings.options.serve.page) { /* a browser sends the token behind # nowhere */
        const char *where = program->listener[program->listeners - 1].where;
        printf("http://%s/#%s\n", where + strlen("tcp:"), program->settings.token);
        fflush(stdout);
    }
    uv_run(&program->loop, UV_RUN_DEFAULT);
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
