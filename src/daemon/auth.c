/* SPDX-License-Identifier: Apache-2.0 */
#include "service.h"

#include "buf.h"
#include "error.h"

#include <cJSON.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECRET_BYTES = 32, SESSION_S = 12 * 3600 };

typedef char secret[2 * SECRET_BYTES + 1];

/* ---- secrets --------------------------------------------------------------------------------*/
/* The hash of what the client sends as its bearer token. */
static bool hash_of_bearer(const serve_exchange *exchange, unsigned char ret_hash[FA_HASH_BYTES])
{
    static const char scheme[] = "Bearer ";
    const char *header = serve_header(exchange, MHD_HTTP_HEADER_AUTHORIZATION);
    if (header == NULL || strncasecmp(header, scheme, sizeof scheme - 1) != 0)
        return false;
    const char *token = header + sizeof scheme - 1;
    token += strspn(token, " ");
    size_t size = strlen(token);
    if (size < SERVE_TOKEN_MIN || size > SERVE_TOKEN_MAX)
        return false;
    fa_hash_raw(token, size, ret_hash);
    return true;
}

/* Compares all bytes, so that the time says nothing about the secret. */
static bool same(const unsigned char a[FA_HASH_BYTES], const unsigned char b[FA_HASH_BYTES])
{
    unsigned char different = 0;
    for (size_t i = 0; i < FA_HASH_BYTES; i++)
        different |= a[i] ^ b[i];
    return different == 0;
}

static bool is_good(const serve_secret *kept, const unsigned char hash[FA_HASH_BYTES],
                    int64_t now_ms)
{
    return same(kept->hash, hash) && now_ms < kept->until_ms;
}

static bool make_secret(serve_secret *kept, int64_t until_ms, secret ret_text)
{
    unsigned char bytes[SECRET_BYTES];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
    fa_hash_raw(ret_text, 2 * sizeof bytes, kept->hash);
    kept->until_ms = until_ms;
    return true;
}

/* ---- who asks -------------------------------------------------------------------------------*/
bool serve_has_token(const serve_service *service, const serve_exchange *exchange)
{
    unsigned char hash[FA_HASH_BYTES];
    return service->settings->has_token && hash_of_bearer(exchange, hash) &&
           same(hash, service->settings->token_hash);
}

static bool is_loopback(const char *host)
{
    static const char *const names[] = {"127.0.0.1", "localhost", "[::1]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size = strlen(names[i]);
        const char *port = host + size + 1;
        if (strncasecmp(host, names[i], size) == 0 &&
            (host[size] == 0 ||
             (host[size] == ':' && *port != 0 && port[strspn(port, "0123456789")] == 0)))
            return true;
    }
    return false;
}

bool serve_is_at_home(const serve_exchange *exchange)
{
    static const char scheme[] = "http://";
    const char *host = serve_header(exchange, MHD_HTTP_HEADER_HOST);
    const char *origin = serve_header(exchange, MHD_HTTP_HEADER_ORIGIN);
    if (exchange->local)
        return true;
    if (host == NULL || !is_loopback(host))
        return false;
    return origin == NULL || (strncmp(origin, scheme, sizeof scheme - 1) == 0 &&
                              strcasecmp(origin + sizeof scheme - 1, host) == 0);
}

bool serve_has_session(const serve_service *service, const serve_exchange *exchange)
{
    unsigned char hash[FA_HASH_BYTES];
    bool found = false;
    if (!serve_is_at_home(exchange) || !hash_of_bearer(exchange, hash))
        return false;
    for (int i = 0; i < SERVE_SESSIONS; i++)
        found |= is_good(&service->session[i], hash, serve_now_ms(service));
    return found;
}

/* ---- links ----------------------------------------------------------------------------------*/
int serve_link_make(serve_service *service, char ret_url[SERVE_URL_SIZE], fa_diag *diag)
{
    const char *address = NULL;
    secret text;
    if (service->need_port == NULL)
        return fa_fail(diag, FA_ENOTSUP, "this server opens no port");
    int rc = service->need_port(service->ready_context, &address, diag);
    if (rc != 0)
        return rc;
    const int64_t until_ms = serve_now_ms(service) + service->settings->link_timeout_s * 1000;
    if (!make_secret(&service->link, until_ms, text))
        return fa_fail(diag, FA_EIO, "the system has no random bytes");
    snprintf(ret_url, SERVE_URL_SIZE, "http://%s/#%s", address, text);
    return 0;
}

void serve_post_link(serve_service *service, serve_exchange *exchange)
{
    char url[SERVE_URL_SIZE], text[SERVE_URL_SIZE + 48];
    fa_diag diag;
    if (!exchange->local) {
        serve_reply_refused(exchange, MHD_HTTP_FORBIDDEN, FA_EUNTRUSTED,
                            "links are made on the Unix socket alone: fa-tune serve --open", 0);
        return;
    }
    int rc = serve_link_make(service, url, &diag);
    if (rc != 0) {
        serve_reply_error(exchange, rc, diag.text, NULL);
        return;
    }
    snprintf(text, sizeof text, "{\"url\":\"%s\",\"seconds\":%d}", url,
             service->settings->link_timeout_s);
    serve_page *page = serve_page_json(strdup(text));
    serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    serve_reply_page(exchange, MHD_HTTP_CREATED, page);
}

/* Replaces the session that ends first, or one that has ended. */
void serve_post_session(serve_service *service, serve_exchange *exchange)
{
    unsigned char hash[FA_HASH_BYTES];
    const int64_t now_ms = serve_now_ms(service);
    serve_secret *oldest = &service->session[0];
    secret text;
    char reply[sizeof text + 16];
    if (!serve_is_at_home(exchange) || !hash_of_bearer(exchange, hash) ||
        !is_good(&service->link, hash, now_ms)) {
        service->counts.unauthorized++;
        serve_reply_refused(exchange, MHD_HTTP_UNAUTHORIZED, FA_EUNTRUSTED,
                            "this link was used already or is too old: fa-tune serve --open makes "
                            "another",
                            0);
        return;
    }
    service->link = (serve_secret){{0}, 0};
    for (int i = 1; i < SERVE_SESSIONS; i++)
        if (service->session[i].until_ms < oldest->until_ms)
            oldest = &service->session[i];
    if (!make_secret(oldest, now_ms + SESSION_S * (int64_t)1000, text)) {
        serve_reply_error(exchange, FA_EIO, "the system has no random bytes", NULL);
        return;
    }
    snprintf(reply, sizeof reply, "{\"session\":\"%s\"}", text);
    serve_page *page = serve_page_json(strdup(reply));
    serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    serve_reply_page(exchange, MHD_HTTP_OK, page);
}

/* ---- a link opened ---------------------------------------------------------------------------*/
/* A link to the page, for the person who asked for it. It is a secret until it is used: it appears in no log and in
 * no program's arguments. */
extern char **environ;

enum { ANSWER_S = 60, ANSWER_MAX = 8192 };

static bool is_given(const char *variable)
{
    const char *value = getenv(variable);
    return value != NULL && *value != 0;
}

static bool goes_into_the_log(void)
{
    struct stat out, log;
    return isatty(STDOUT_FILENO) == 0 && fstat(STDOUT_FILENO, &out) == 0 &&
           fstat(STDERR_FILENO, &log) == 0 && out.st_dev == log.st_dev && out.st_ino == log.st_ino;
}

/* One file, which the next link replaces. The shell ends at once and does not wait for the browser. */
static void open_on_desktop(const char *url)
{
    static char shell[] = "sh", flag[] = "-c", script[] = "xdg-open \"$0\" >/dev/null 2>&1 &";
    char path[1024], text[SERVE_URL_SIZE + 128];
    char *arguments[] = {shell, flag, script, path, NULL};
    const char *folder = getenv("XDG_RUNTIME_DIR");
    pid_t child;
    if (folder == NULL || folder[0] != '/' ||
        (!is_given("DISPLAY") && !is_given("WAYLAND_DISPLAY")))
        return;
    int size = snprintf(path, sizeof path, "%s/fa-tune-open.html", folder);
    snprintf(text, sizeof text,
             "<!DOCTYPE html><meta charset=\"utf-8\"><title>fa-tune</title>"
             "<meta http-equiv=\"refresh\" content=\"0;url=%s\">\n",
             url);
    if (size < 0 || (size_t)size >= sizeof path ||
        fa_replace_file(path, text, strlen(text), 0600) != 0 ||
        posix_spawnp(&child, "sh", NULL, NULL, arguments, environ) != 0)
        return; /* the link has been printed */
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
}

bool serve_open_page(const char *url, bool logs)
{
    const bool hidden = logs && goes_into_the_log();
    if (!hidden) {
        /* Among lines of a log a person looks for it; a program reads it alone. */
        printf(isatty(STDOUT_FILENO) == 1 ? "\n  The page, for one visit: %s\n\n" : "%s\n", url);
        fflush(stdout);
    }
    open_on_desktop(url);
    return !hidden;
}

/* ---- asking ---------------------------------------------------------------------------------*/
static int connect_to(const char *path, fa_diag *diag)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = ANSWER_S};
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
        connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
        (peer.uid == geteuid() || peer.uid == 0))
        return fd;
    if (fd >= 0)
        close(fd);
    fa_fail(diag, FA_EIO, "the service at %s cannot be asked for a link", path);
    return -1;
}

/* Whether the URL has the form that serve_link_make() produces; it is written into an HTML file. */
static bool is_link(const char *text)
{
    static const char before[] = "http://127.0.0.1:";
    return text != NULL && strncmp(text, before, sizeof before - 1) == 0 &&
           strlen(text) < SERVE_URL_SIZE && text[strspn(text, "0123456789abcdefhtp:/.#")] == 0;
}

static int read_link(const char *answer, char ret_url[SERVE_URL_SIZE], fa_diag *diag)
{
    const char *body = strstr(answer, "\r\n\r\n");
    cJSON *json = body != NULL ? cJSON_Parse(body + 4) : NULL;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(json, "error");
    const char *url = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, "url"));
    const char *why = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(error, "message"));
    int rc = 0;
    if (is_link(url))
        snprintf(ret_url, SERVE_URL_SIZE, "%s", url);
    else
        rc = fa_fail(diag, FA_EIO, "the service that runs gave no link: %s",
                     why != NULL ? why : "it does not understand the request");
    cJSON_Delete(json);
    return rc;
}

int serve_ask_for_link(const char *path, char ret_url[SERVE_URL_SIZE], fa_diag *diag)
{
    static const char ask[] = "POST /v1/links HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n"
                              "Connection: close\r\n\r\n";
    char answer[ANSWER_MAX];
    size_t size = 0;
    ssize_t got = 0;
    int fd = connect_to(path, diag);
    if (fd < 0)
        return FA_EIO;
    if (send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL) == (ssize_t)sizeof ask - 1)
        while (size < sizeof answer - 1 &&
               (got = recv(fd, answer + size, sizeof answer - 1 - size, 0)) > 0)
            size += (size_t)got;
    close(fd);
    answer[size] = 0;
    return read_link(answer, ret_url, diag);
}

/* ---- a peer ----------------------------------------------------------------------------------*/
/* Whose a TCP connection is before it has sent a token: for fair shares of connections, not for trust. The kernel
 * tells whose a socket of this host is (sock_diag(7)): one request and one answer, which is there
 * when the request was taken, however many sockets there are. */

enum { NETWORK_BYTES = 8 }; /* of an IPv6 address */

struct place {
    unsigned char address[16];
    size_t size;
    in_port_t port;
};

static bool read_place(const struct sockaddr_storage *from, struct place *ret)
{
    *ret = (struct place){0};
    if (from->ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)from;
        ret->port = in->sin_port;
        ret->size = sizeof in->sin_addr;
        memcpy(ret->address, &in->sin_addr, ret->size);
    } else if (from->ss_family == AF_INET6) {
        const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)from;
        ret->port = in->sin6_port;
        ret->size = sizeof in->sin6_addr;
        memcpy(ret->address, &in->sin6_addr, ret->size);
    }
    return ret->size > 0;
}

/* The user of the socket whose own address is `peer`. A socket without an inode was closed by its process, and the
 * kernel names root for it. */
static bool find_user(sa_family_t family, const struct place *peer, const struct place *own,
                      uint32_t *ret_user)
{
    struct {
        struct nlmsghdr head;
        struct inet_diag_req_v2 asked;
    } ask = {.head = {.nlmsg_len = sizeof ask,
                      .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                      .nlmsg_flags = NLM_F_REQUEST},
             .asked = {.sdiag_family = (uint8_t)family,
                       .sdiag_protocol = IPPROTO_TCP,
                       .idiag_states = UINT32_MAX,
                       .id = {.idiag_sport = peer->port,
                              .idiag_dport = own->port,
                              .idiag_cookie = {INET_DIAG_NOCOOKIE, INET_DIAG_NOCOOKIE}}}};
    struct {
        struct nlmsghdr head;
        struct inet_diag_msg socket;
        char attributes[1024];
    } told;
    memcpy(ask.asked.id.idiag_src, peer->address, peer->size);
    memcpy(ask.asked.id.idiag_dst, own->address, own->size);
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    bool good = fd >= 0 && send(fd, &ask, sizeof ask, MSG_DONTWAIT) == (ssize_t)sizeof ask &&
                recv(fd, &told, sizeof told, MSG_DONTWAIT) >=
                    (ssize_t)(sizeof told.head + sizeof told.socket) &&
                told.head.nlmsg_type == SOCK_DIAG_BY_FAMILY && told.socket.idiag_inode != 0;
    if (fd >= 0)
        close(fd);
    if (good)
        *ret_user = told.socket.idiag_uid;
    return good;
}

unsigned serve_peer_of(int fd)
{
    struct sockaddr_storage peer, own;
    socklen_t peer_size = sizeof peer, own_size = sizeof own;
    struct place from, to;
    uint32_t user;
    unsigned char hash[FA_HASH_BYTES];
    unsigned number;
    if (getpeername(fd, (struct sockaddr *)&peer, &peer_size) != 0 ||
        getsockname(fd, (struct sockaddr *)&own, &own_size) != 0 || !read_place(&peer, &from) ||
        !read_place(&own, &to))
        return 0;
    bool network = peer.ss_family == AF_INET6 &&
                   !IN6_IS_ADDR_V4MAPPED(&((struct sockaddr_in6 *)&peer)->sin6_addr);
    if (find_user(peer.ss_family, &from, &to, &user))
        fa_hash_raw(&user, sizeof user, hash);
    else
        fa_hash_raw(from.address, network ? NETWORK_BYTES : from.size, hash);
    memcpy(&number, hash, sizeof number);
    return number;
}
