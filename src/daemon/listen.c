/* SPDX-License-Identifier: Apache-2.0
 *
 * The two protocols of systemd that are used here (LISTEN_FDS, NOTIFY_SOCKET) are a few lines each
 * and stable; libsystemd would bring four compression libraries along.
 */
#include "http.h"

#include "error.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 1024, FIRST_INHERITED = 3 };

/* ---- Unix -----------------------------------------------------------------------------------*/
static int unix_address(const char *path, struct sockaddr_un *ret, fa_diag *diag)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof ret->sun_path)
        return fa_fail(diag, FA_EINVAL, "the socket's path %s is longer than %zu bytes", path,
                       sizeof ret->sun_path - 1);
    memcpy(ret->sun_path, path, strlen(path) + 1);
    return 0;
}

/* The process that holds the lock on PATH.lock serves PATH; the kernel releases the lock when the process
 * ends. A child that a killed service was just starting holds it, too, for a moment: until its program
 * is there. */
static int take_lock(const char *path, int *ret_fd, fa_diag *diag)
{
    char name[sizeof((struct sockaddr_un *)0)->sun_path + 8];
    snprintf(name, sizeof name, "%s.lock", path);
    int fd = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 && errno == ENOENT)
        return fa_fail(diag, FA_EINVAL,
                       "the folder of the socket %s does not exist: make it, or give --socket "
                       "another path",
                       path);
    if (fd < 0)
        return fa_fail(diag, FA_EIO, "cannot open %s: %s; is its directory this user's?", name,
                       strerror(errno));
    int busy = flock(fd, LOCK_EX | LOCK_NB);
    for (int tries = 0; busy != 0 && errno == EWOULDBLOCK && tries < 50; tries++) {
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        busy = flock(fd, LOCK_EX | LOCK_NB);
    }
    if (busy != 0) {
        int error = errno;
        close(fd);
        return error == EWOULDBLOCK
                   ? fa_fail(diag, FA_EBUSY,
                             "another fa-tune-serve serves %s: stop it first, or give --socket "
                             "another path",
                             path)
                   : fa_fail(diag, FA_EIO, "cannot lock %s: %s", name, strerror(error));
    }
    *ret_fd = fd;
    return 0;
}

/* Removes a socket at this path that no process listens on; anything else there is an error. */
static int clear_place(const char *path, const struct sockaddr_un *address, fa_diag *diag)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT
                   ? 0
                   : fa_fail(diag, FA_EIO, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return fa_fail(diag, FA_EINVAL, "%s is there and is no socket: give --socket another path",
                       path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = fd < 0 ? -1 : connect(fd, (const struct sockaddr *)address, sizeof *address);
    int error = errno;
    if (fd >= 0)
        close(fd);
    if (rc == 0 || error == EAGAIN)
        return fa_fail(diag, FA_EBUSY,
                       "a process listens on %s: stop it first, or give --socket another path",
                       path);
    if (unlink(path) != 0 && errno != ENOENT)
        return fa_fail(diag, FA_EIO, "cannot remove the stale socket %s: %s", path,
                       strerror(errno));
    return 0;
}

int serve_listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag)
{
    serve_listener listener = {.fd = -1, .local = true, .lock_fd = -1};
    struct sockaddr_un address;
    struct stat st;
    int rc;
    if ((rc = unix_address(path, &address, diag)) != 0 ||
        (rc = take_lock(path, &listener.lock_fd, diag)) != 0 ||
        (rc = clear_place(path, &address, diag)) != 0)
        goto failed;
    listener.fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before = umask(0177);
    if (listener.fd < 0 || bind(listener.fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener.fd, BACKLOG) != 0 || lstat(path, &st) != 0)
        rc = fa_fail(diag, FA_EIO, "cannot listen on %s: %s", path, strerror(errno));
    umask(before);
    if (rc != 0)
        goto failed;
    listener.device = st.st_dev;
    listener.inode = st.st_ino;
    snprintf(listener.where, sizeof listener.where, "unix:%s", path);
    *ret_listener = listener;
    return 0;
failed:
    serve_listener_close(&listener);
    return rc;
}

/* ---- TCP ------------------------------------------------------------------------------------*/
static void tell_address(int fd, char *ret, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";
    if (getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        snprintf(ret, size, "?");
    } else if (address.ss_family == AF_INET) {
        struct sockaddr_in *in = (struct sockaddr_in *)&address;
        inet_ntop(AF_INET, &in->sin_addr, host, sizeof host);
        snprintf(ret, size, "tcp:%s:%d", host, ntohs(in->sin_port));
    } else if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 *in = (struct sockaddr_in6 *)&address;
        inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof host);
        snprintf(ret, size, "tcp:[%s]:%d", host, ntohs(in->sin6_port));
    } else {
        struct sockaddr_un *un = (struct sockaddr_un *)&address;
        int path = (int)(length - offsetof(struct sockaddr_un, sun_path));
        snprintf(ret, size, "unix:%.*s", path > 0 && un->sun_path[0] == '/' ? path : 0,
                 un->sun_path);
    }
}

enum { TCP_HOST_SIZE = 128 };

static int split(const char *where, char *ret_host, size_t size, const char **ret_port,
                 fa_diag *diag)
{
    const char *colon = strrchr(where, ':');
    const char *host = colon != NULL ? where : "127.0.0.1";
    size_t length = colon != NULL ? (size_t)(colon - where) : strlen(host);
    *ret_port = colon != NULL ? colon + 1 : where;
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    char *end;
    long port = strtol(*ret_port, &end, 10);
    if (length == 0 || length >= size || **ret_port < '0' || **ret_port > '9' || *end != 0 ||
        port > 65535)
        return fa_fail(diag, FA_EINVAL,
                       "--tcp %s: use HOST:PORT, [ADDRESS]:PORT or PORT, of at most 65535", where);
    memcpy(ret_host, host, length);
    ret_host[length] = 0;
    return 0;
}

int serve_tcp_check(const char *where, fa_diag *diag)
{
    char host[TCP_HOST_SIZE];
    const char *port;
    return split(where, host, sizeof host, &port, diag);
}

/* The address is invalid, or it cannot be resolved just now. */
static int fail_to_find(const char *where, int error, fa_diag *diag)
{
    if (error == EAI_MEMORY)
        return fa_fail(diag, FA_ENOMEM, "--tcp %s: out of memory", where);
    if (error == EAI_SYSTEM)
        return fa_fail(diag, FA_EIO, "--tcp %s: %s", where, strerror(errno));
    return fa_fail(diag, error == EAI_AGAIN || error == EAI_FAIL ? FA_EIO : FA_EINVAL,
                   "--tcp %s: %s", where, gai_strerror(error));
}

int serve_listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag)
{
    serve_listener listener = {.fd = -1, .lock_fd = -1};
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_PASSIVE},
                    *found = NULL;
    char host[TCP_HOST_SIZE];
    const char *port;
    int one = 1, rc = split(where, host, sizeof host, &port, diag);
    if (rc != 0)
        return rc;
    int error = getaddrinfo(host, port, &hints, &found);
    if (error != 0)
        return fail_to_find(where, error, diag);
    listener.fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (listener.fd >= 0)
        setsockopt(listener.fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (listener.fd < 0 || bind(listener.fd, found->ai_addr, found->ai_addrlen) != 0 ||
        listen(listener.fd, BACKLOG) != 0) {
        rc = fa_fail(diag, FA_EIO, "cannot listen on %s: %s", where, strerror(errno));
        if (listener.fd >= 0)
            close(listener.fd);
    }
    freeaddrinfo(found);
    if (rc != 0)
        return rc;
    tell_address(listener.fd, listener.where, sizeof listener.where);
    *ret_listener = listener;
    return 0;
}

/* ---- systemd --------------------------------------------------------------------------------*/
int serve_listen_inherited(serve_listener *ret_listeners, int room, int *ret_count, fa_diag *diag)
{
    const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
    int count = 0;
    if (pid != NULL && fds != NULL && strtol(pid, NULL, 10) == (long)getpid())
        count = (int)strtol(fds, NULL, 10);
    unsetenv("LISTEN_PID"); /* not for the workers */
    unsetenv("LISTEN_FDS");
    unsetenv("LISTEN_FDNAMES");
    if (count < 0 || count > room)
        return fa_fail(diag, FA_EINVAL, "systemd passes %d sockets: at most %d are served", count,
                       room);
    for (int i = 0; i < count; i++) {
        int fd = FIRST_INHERITED + i, listening = 0, domain = 0;
        socklen_t size = sizeof listening;
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0 ||
            getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
            (domain != AF_UNIX && domain != AF_INET && domain != AF_INET6))
            return fa_fail(diag, FA_EINVAL,
                           "descriptor %d that systemd passes is no socket that listens: is it "
                           "Accept=no and ListenStream= in the .socket unit?",
                           fd);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
        serve_listener listener = {.fd = fd, .local = domain == AF_UNIX, .lock_fd = -1};
        tell_address(fd, listener.where, sizeof listener.where);
        ret_listeners[i] = listener;
    }
    *ret_count = count;
    return 0;
}

void serve_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') ||
        strlen(path) >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, strlen(path));
    if (path[0] == '@')
        address.sun_path[0] = 0; /* an abstract one */
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)!sendto(fd, state, strlen(state), MSG_NOSIGNAL | MSG_DONTWAIT,
                  (struct sockaddr *)&address,
                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

/* ---- either ---------------------------------------------------------------------------------*/
void serve_listener_close(serve_listener *listener)
{
    struct stat st;
    const char *path = listener->where + strlen("unix:");
    if (listener->fd >= 0)
        close(listener->fd);
    if (listener->lock_fd >= 0) {
        if (lstat(path, &st) == 0 && st.st_dev == listener->device && st.st_ino == listener->inode)
            unlink(path);
        close(listener->lock_fd);
    }
    listener->fd = listener->lock_fd = -1;
}

int serve_listener_accept(const serve_listener *listener, bool *ret_refused)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int one = 1, seconds = 30;
    *ret_refused = false;
    int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return -1;
    if (!listener->local) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        /* A client that waits for a tune may leave unheard: its kernel is asked. */
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds);
        setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof seconds);
        return fd;
    }
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0))
        return fd;
    close(fd);
    *ret_refused = true;
    return -1;
}
