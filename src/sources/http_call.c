/* SPDX-License-Identifier: Apache-2.0 */
#include "http_call.h"

#include "error.h"
#include "pool.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum { CONNECT_MS = 1500, TURN_MS = 100, HEAD_MAX = 65536, BLOCK = 16384 };

/* ---- an address -----------------------------------------------------------------------------*/
/* "host:port" with nothing else in it, so that it means one thing to everybody. */
static bool split(const char *text, fa_http_address *address)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    const char *colon = strrchr(text, ':');
    const size_t length = colon != NULL ? (size_t)(colon - text) : 0;
    const bool bracketed = length > 2 && text[0] == '[' && text[length - 1] == ']';
    const size_t size = bracketed ? length - 2 : length;
    const char *host = text + bracketed;
    if (size == 0 || size >= sizeof address->host || strlen(colon + 1) > 5 ||
        colon[1 + strspn(colon + 1, "0123456789")] != 0 || atoi(colon + 1) < 1 ||
        atoi(colon + 1) > 65535 ||
        strspn(host, bracketed ? "0123456789abcdefABCDEF:." : letters) < size)
        return false;
    snprintf(address->host, sizeof address->host, "%.*s", (int)size, host);
    snprintf(address->port, sizeof address->port, "%s", colon + 1);
    return true;
}

int fa_http_parse(const char *text, fa_http_address *ret_address, fa_diag *diag)
{
    fa_http_address address = {.shown = ""};
    const char *path = strncmp(text, "unix:", 5) == 0 ? text + 5 : text;
    if (path[0] == '/' && strlen(path) >= sizeof address.path)
        return fa_fail(diag, FA_EINVAL, "server \"%s\": a socket's path has at most %zu bytes",
                       text, sizeof address.path - 1);
    if (path[0] == '/') {
        snprintf(address.path, sizeof address.path, "%s", path);
        snprintf(address.shown, sizeof address.shown, "unix:%s", path);
    } else {
        const size_t size = strlen(text);
        snprintf(address.shown, sizeof address.shown, "%.*s",
                 (int)(size - (size > 0 && text[size - 1] == '/')), text);
        if (size >= sizeof address.shown || strncmp(address.shown, "http://", 7) != 0 ||
            !split(address.shown + 7, &address))
            return fa_fail(diag, FA_EINVAL,
                           "server \"%s\" is not understood: use unix:/PATH or http://HOST:PORT",
                           text);
    }
    *ret_address = address;
    return 0;
}

/* ---- a connection ---------------------------------------------------------------------------*/
/* Connecting and sending end after CONNECT_MS, and receiving after TURN_MS. */
static int connect_one(int family, const struct sockaddr *to, socklen_t size)
{
    static const struct timeval patience = {CONNECT_MS / 1000, CONNECT_MS % 1000 * 1000},
                                turn = {0, TURN_MS * 1000};
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &turn, sizeof turn) == 0 &&
        connect(fd, to, size) == 0)
        return fd;
    close(fd);
    return -1;
}

static int open_connection(const fa_http_address *address, int *ret_fd, fa_diag *diag)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    int fd = -1;
    if (address->path[0] != 0) {
        struct sockaddr_un to = {.sun_family = AF_UNIX};
        memcpy(to.sun_path, address->path, sizeof to.sun_path);
        fd = connect_one(AF_UNIX, (const struct sockaddr *)&to, sizeof to);
        if (fd >= 0 && (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 ||
                        (peer.uid != geteuid() && peer.uid != 0))) {
            close(fd);
            return fa_fail(diag, FA_EUNTRUSTED, "its socket is another user's");
        }
    } else {
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
        const int error = getaddrinfo(address->host, address->port, &hints, &found);
        if (error != 0)
            return fa_fail(diag, FA_ENOTFOUND, "%s", gai_strerror(error));
        for (const struct addrinfo *at = found; at != NULL && fd < 0; at = at->ai_next)
            fd = connect_one(at->ai_family, at->ai_addr, at->ai_addrlen);
        freeaddrinfo(found);
    }
    if (fd < 0)
        return fa_fail(diag, FA_ENOTFOUND, "nobody listens there");
    *ret_fd = fd;
    return 0;
}

/* Of a stream only the last event matters. */
static void drop_older_events(fa_buf *in)
{
    const char *head = memmem(in->data, in->size, "\r\n\r\n", 4);
    const size_t from = head != NULL ? (size_t)(head + 4 - in->data) : in->size;
    size_t last = in->size;
    while (last > from && (in->size - last < 8 || memcmp(in->data + last, "\nevent: ", 8) != 0))
        last--;
    if (last > from) {
        memmove(in->data + from, in->data + last, in->size - last);
        in->size -= last - from;
    }
}

/* Takes what comes until the server closes the connection. */
static int receive(int fd, const fa_http_call *call, fa_buf *in, fa_diag *diag)
{
    char block[BLOCK];
    const size_t most = call->limit + HEAD_MAX;
    uint64_t heard_ns = fa_clock_ns(), asked_ns = heard_ns;
    for (;;) {
        const ssize_t n = recv(fd, block, sizeof block, 0);
        const uint64_t now_ns = fa_clock_ns();
        if (n == 0)
            return 0;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fa_fail(diag, FA_EIO, "%s", strerror(errno));
        if (now_ns - asked_ns >= TURN_MS * UINT64_C(1000000)) {
            asked_ns = now_ns;
            if (call->idle != NULL && call->idle(call->context) != 0)
                return fa_fail(diag, FA_ECANCELED, "canceled while the server was asked");
        }
        if (n < 0 && (now_ns - heard_ns) / 1000000 > (uint64_t)call->quiet_ms)
            return fa_fail(diag, FA_ETIMEOUT, "it says nothing");
        if (n < 0)
            continue;
        heard_ns = now_ns;
        fa_buf_append(in, block, (size_t)n);
        if (call->events && in->size > most)
            drop_older_events(in);
        if (in->failed || in->size > most)
            return fa_fail(diag, in->failed ? FA_ENOMEM : FA_ECORRUPT,
                           "it sends more than such an answer may have");
    }
}

/* ---- a reply --------------------------------------------------------------------------------*/
/* The value of a header in `head`, without quotes. */
static bool find_header(const char *head, const char *name, char *ret, size_t room)
{
    const size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':') {
            const char *value = line + 3 + length;
            value += strspn(value, " \"");
            snprintf(ret, room, "%.*s", (int)strcspn(value, "\"\r\n"), value);
            return true;
        }
    return false;
}

/* Keeps of a stream the data of its last event, which is "done" or "failed". */
static int read_events(fa_http_reply *reply, fa_diag *diag)
{
    static const char done[] = "event: done\ndata: ", failed[] = "event: failed\ndata: ";
    fa_buf *body = &reply->body;
    fa_buf_append(body, "", 1);
    if (body->failed)
        return fa_fail(diag, FA_ENOMEM, "out of memory for an answer");
    char *at = strstr(body->data, done), *other = strstr(body->data, failed);
    reply->status = at != NULL ? 200 : 422;
    at = at != NULL ? at + sizeof done - 1 : other != NULL ? other + sizeof failed - 1 : NULL;
    const char *end = at != NULL ? strstr(at, "\n\n") : NULL;
    if (end == NULL)
        return fa_fail(diag, FA_EIO, "it closed the connection before the tune's end");
    body->size = (size_t)(end - at);
    memmove(body->data, at, body->size);
    return 0;
}

static int read_reply(fa_buf *in, const fa_http_call *call, fa_http_reply *ret_reply, fa_diag *diag)
{
    if (in->size == 0)
        return fa_fail(diag, FA_EIO, "it closed the connection");
    if (call->events)
        drop_older_events(in);
    fa_http_reply reply = {0};
    char length[32] = "", type[64] = "";
    char *end = memmem(in->data, in->size, "\r\n\r\n", 4);
    if (end == NULL || strncmp(in->data, "HTTP/1.", 7) != 0 || end - in->data > HEAD_MAX)
        return fa_fail(diag, FA_ECORRUPT, "its reply is no HTTP");
    end[2] = 0; /* the head's last line keeps its end */
    reply.status = atoi(in->data + 9);
    find_header(in->data, "ETag", reply.etag, sizeof reply.etag);
    find_header(in->data, "Content-Type", type, sizeof type);
    const bool sized = find_header(in->data, "Content-Length", length, sizeof length);
    const size_t size = in->size - (size_t)(end + 4 - in->data);
    if (size > call->limit)
        return fa_fail(diag, FA_ECORRUPT, "it sends more than such an answer may have");
    if (sized && strtoull(length, NULL, 10) != size)
        return fa_fail(diag, FA_EIO, "it closed the connection in the middle of its answer");
    fa_buf_append(&reply.body, end + 4, size);
    int rc = reply.body.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for an answer") : 0;
    if (rc == 0 && call->events && strcmp(type, "text/event-stream") == 0)
        rc = read_events(&reply, diag);
    if (rc != 0)
        fa_buf_free(&reply.body);
    else
        *ret_reply = reply;
    return rc;
}

int fa_http_do(const fa_http_address *address, const fa_http_call *call, fa_http_reply *ret_reply,
               fa_diag *diag)
{
    fa_buf out = {0}, in = {0};
    int fd = -1, rc = open_connection(address, &fd, diag);
    if (rc != 0)
        return rc;
    fa_buf_printf(&out, "%s %s HTTP/1.0\r\nHost: %s\r\n", call->body != NULL ? "POST" : "GET",
                  call->target, address->path[0] != 0 ? "localhost" : address->host);
    if (address->token[0] != 0)
        fa_buf_printf(&out, "Authorization: Bearer %s\r\n", address->token);
    if (call->events)
        fa_buf_text(&out, "Accept: text/event-stream\r\n");
    if (call->body != NULL)
        fa_buf_printf(&out, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                      strlen(call->body));
    fa_buf_printf(&out, "\r\n%s", call->body != NULL ? call->body : "");
    if (out.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a request");
    else if (send(fd, out.data, out.size, MSG_NOSIGNAL) != (ssize_t)out.size)
        rc = fa_fail(diag, FA_EIO, "it does not take a request");
    else
        rc = receive(fd, call, &in, diag);
    close(fd);
    if (rc == 0)
        rc = read_reply(&in, call, ret_reply, diag);
    fa_buf_free(&out);
    fa_buf_free(&in);
    return rc;
}
