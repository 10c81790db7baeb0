/* SPDX-License-Identifier: Apache-2.0 */
#include "listen.h"

#include "error.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 1024 };

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

int serve_listen_unix(const char *path, serve_listener *ret_listener, fa_diag *diag)
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
        serve_listener_close(&listener);
        return rc;
    }
    snprintf(listener.where, sizeof listener.where, "unix:%s", path);
    *ret_listener = listener;
    return 0;
}

/* ---- TCP ------------------------------------------------------------------------------------*/
enum { HOST_SIZE = 128 };

static int split(const char *where, char ret_host[HOST_SIZE], const char **ret_port, fa_diag *diag)
{
    const char *colon = strrchr(where, ':'), *host = colon != NULL ? where : "127.0.0.1";
    const char *port = *ret_port = colon != NULL ? colon + 1 : where;
    size_t length = colon != NULL ? (size_t)(colon - where) : strlen(host);
    if (length >= 2 && host[0] == '[' && host[length - 1] == ']') {
        host++;
        length -= 2;
    }
    if (length == 0 || length >= HOST_SIZE || *port == 0 || strlen(port) > 5 ||
        port[strspn(port, "0123456789")] != 0 || atoi(port) > 65535)
        return fa_fail(diag, FA_EINVAL,
                       "--tcp %s: use HOST:PORT, [ADDRESS]:PORT or PORT, of at most 65535", where);
    snprintf(ret_host, HOST_SIZE, "%.*s", (int)length, host);
    return 0;
}

static void name_tcp(serve_listener *listener)
{
    struct sockaddr_storage address;
    socklen_t size = sizeof address;
    char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";
    if (getsockname(listener->fd, (struct sockaddr *)&address, &size) == 0)
        getnameinfo((struct sockaddr *)&address, size, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(listener->where, sizeof listener->where,
             strchr(host, ':') != NULL ? "tcp:[%.120s]:%.8s" : "tcp:%.120s:%.8s", host, port);
}

int serve_listen_tcp(const char *where, serve_listener *ret_listener, fa_diag *diag)
{
    serve_listener listener = {.lock_fd = -1};
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *found = NULL;
    char host[HOST_SIZE];
    const char *port;
    const int one = 1, seconds = 30;
    int rc = split(where, host, &port, diag);
    if (rc != 0)
        return rc;
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
        serve_listener_close(&listener);
    } else {
        name_tcp(&listener);
        *ret_listener = listener;
    }
    freeaddrinfo(found);
    return rc;
}

void serve_listener_close(serve_listener *listener)
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
