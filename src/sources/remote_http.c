/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/1.1 through libcurl, which is opened when the first request is made: a process without a
 * server never loads it.
 *
 * Invariants: plain HTTP to the one address and nowhere else: no redirects, no proxy, no cookies, no
 * other protocol, no configuration file, no signal. Who serves a Unix socket is looked at before a
 * byte is said. A connection (libcurl's handles, which keep it open) belongs to the thread
 * that has taken it; the lock is held to take it and to put it back, never while it works.
 */
#include "remote.h"

#include "error.h"
#include "pool.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECT_MS = 1500,
    IDLE_MS = 100,
    KEPT_CONNECTIONS = 8,
    HEADERS_MAX = 65536,
    OLD_PROTOCOLS = 181 /* CURLOPT_PROTOCOLS, which today's headers warn of */
};

/* ---- libcurl --------------------------------------------------------------------------------*/
#define SYMBOLS(X)                                                                  \
    X(CURLcode, global_init, (long))                                                \
    X(CURL *, easy_init, (void))                                                    \
    X(CURLcode, easy_setopt, (CURL *, CURLoption, ...))                             \
    X(void, easy_reset, (CURL *))                                                   \
    X(void, easy_cleanup, (CURL *))                                                 \
    X(CURLcode, easy_getinfo, (CURL *, CURLINFO, ...))                              \
    X(const char *, easy_strerror, (CURLcode))                                      \
    X(struct curl_slist *, slist_append, (struct curl_slist *, const char *))       \
    X(void, slist_free_all, (struct curl_slist *))                                  \
    X(CURLM *, multi_init, (void))                                                  \
    X(CURLMcode, multi_cleanup, (CURLM *))                                          \
    X(CURLMcode, multi_add_handle, (CURLM *, CURL *))                               \
    X(CURLMcode, multi_remove_handle, (CURLM *, CURL *))                            \
    X(CURLMcode, multi_perform, (CURLM *, int *))                                   \
    X(CURLMcode, multi_poll, (CURLM *, struct curl_waitfd *, unsigned, int, int *)) \
    X(CURLMsg *, multi_info_read, (CURLM *, int *))

/* Of the process, once; it stays. */
static struct {
    fa_diag why; /* it cannot be used, or empty */
#define MEMBER(type, name, arguments) type(*name) arguments;
    SYMBOLS(MEMBER)
#undef MEMBER
} curl;

static void load_curl(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++)
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        fa_fail(&curl.why, 0, "cannot load libcurl (%s): install Debian's libcurl4 or its like",
                dlerror());
        return;
    }
#define LOAD(type, name, arguments)                                                     \
    *(void **)&curl.name = dlsym(library, "curl_" #name);                               \
    if (curl.name == NULL) {                                                            \
        fa_fail(&curl.why, 0, "libcurl has no function curl_" #name ": it is too old"); \
        return;                                                                         \
    }
    SYMBOLS(LOAD)
#undef LOAD
    CURLcode code = curl.global_init(CURL_GLOBAL_NOTHING);
    if (code != CURLE_OK)
        fa_fail(&curl.why, 0, "libcurl does not start: %s", curl.easy_strerror(code));
}

static int need_curl(fa_diag *diag)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_curl);
    return curl.why.text[0] == 0 ? 0 : fa_fail(diag, FA_ENOTSUP, "%s", curl.why.text);
}

/* ---- an address -----------------------------------------------------------------------------*/
struct connection {
    CURL *easy;
    CURLM *multi;
    int fd; /* of its socket, which libcurl owns */
    struct connection *next;
};

struct fa_http {
    char address[320];                                       /* as it is told of */
    char path[sizeof((struct sockaddr_un *)NULL)->sun_path]; /* of a Unix socket, or empty */
    char base[300];                                          /* "http://host:port" */
    char authorization[300];                                 /* a header, or empty */
    pthread_mutex_t lock; /* of the connections that nobody uses */
    struct connection *kept;
    int kept_count;
};

/* "host:port" with nothing else in it, so that it means one thing to everybody. */
static bool is_authority(const char *text)
{
    size_t length = strlen(text);
    const char *colon = strrchr(text, ':');
    bool bracketed = text[0] == '[';
    if (length > 255 || colon == NULL || colon == text || colon[1] == 0 ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || atol(colon + 1) < 1 ||
        strlen(colon + 1) > 5 || atol(colon + 1) > 65535)
        return false;
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    size_t host = (size_t)(colon - text);
    if (bracketed)
        return host > 2 && text[host - 1] == ']' &&
               strspn(text + 1, "0123456789abcdefABCDEF:.") == host - 2;
    return strspn(text, letters) == host;
}

int fa_http_make(const char *address, const char *token, fa_http **ret_http, fa_diag *diag)
{
    const char *path = strncmp(address, "unix:", 5) == 0 ? address + 5 : address;
    fa_http *http = calloc(1, sizeof *http);
    if (http == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a server");
    int rc = 0;
    if (path[0] == '/' && strlen(path) >= sizeof http->path) {
        rc = fa_fail(diag, FA_EINVAL, "server \"%s\": a socket's path has at most %zu bytes",
                     address, sizeof http->path - 1);
    } else if (path[0] == '/') {
        snprintf(http->path, sizeof http->path, "%s", path);
        snprintf(http->base, sizeof http->base, "http://localhost");
        snprintf(http->address, sizeof http->address, "unix:%s", path);
    } else {
        char authority[300];
        snprintf(authority, sizeof authority, "%s",
                 strncmp(address, "http://", 7) == 0 ? address + 7 : "");
        size_t length = strlen(authority);
        if (length > 0 && authority[length - 1] == '/')
            authority[length - 1] = 0;
        if (!is_authority(authority))
            rc = fa_fail(diag, FA_EINVAL,
                         "server \"%s\" is not understood: use unix:/PATH or "
                         "http://HOST:PORT",
                         address);
        snprintf(http->base, sizeof http->base, "http://%.256s", authority);
        snprintf(http->address, sizeof http->address, "%s", http->base);
    }
    if (rc == 0 && token != NULL && token[0] != 0 && http->path[0] == 0)
        snprintf(http->authorization, sizeof http->authorization, "Authorization: Bearer %.260s",
                 token);
    if (rc != 0) {
        free(http);
        return rc;
    }
    pthread_mutex_init(&http->lock, NULL);
    *ret_http = http;
    return 0;
}

const char *fa_http_address(const fa_http *http)
{
    return http->address;
}

bool fa_http_is_local(const fa_http *http)
{
    return http->path[0] != 0;
}

/* ---- connections ----------------------------------------------------------------------------*/
static void free_connection(struct connection **connection)
{
    if (*connection != NULL && (*connection)->easy != NULL)
        curl.easy_cleanup((*connection)->easy);
    if (*connection != NULL && (*connection)->multi != NULL)
        curl.multi_cleanup((*connection)->multi);
    free(*connection);
    *connection = NULL;
}

static struct connection *take_connection(fa_http *http)
{
    pthread_mutex_lock(&http->lock);
    struct connection *connection = http->kept;
    if (connection != NULL) {
        http->kept = connection->next;
        http->kept_count--;
    }
    pthread_mutex_unlock(&http->lock);
    if (connection != NULL || (connection = calloc(1, sizeof *connection)) == NULL)
        return connection;
    connection->easy = curl.easy_init();
    connection->multi = curl.multi_init();
    if (connection->easy == NULL || connection->multi == NULL)
        free_connection(&connection);
    return connection;
}

static void put_connection(fa_http *http, struct connection *connection)
{
    curl.easy_reset(connection->easy); /* its connection stays with the multi handle */
    pthread_mutex_lock(&http->lock);
    bool keep = http->kept_count < KEPT_CONNECTIONS;
    if (keep) {
        connection->next = http->kept;
        http->kept = connection;
        http->kept_count++;
    }
    pthread_mutex_unlock(&http->lock);
    if (!keep)
        free_connection(&connection);
}

void fa_http_free(fa_http **http)
{
    if (http == NULL || *http == NULL)
        return;
    for (struct connection *connection = (*http)->kept, *next; connection != NULL;
         connection = next) {
        next = connection->next;
        free_connection(&connection);
    }
    pthread_mutex_destroy(&(*http)->lock);
    free(*http);
    *http = NULL;
}

/* ---- one transfer ---------------------------------------------------------------------------*/
struct transfer {
    fa_http *http;
    const fa_http_call *call;
    fa_http_reply reply;
    CURL *easy;
    struct connection *connection;
    int64_t heard_ms; /* when something came last */
    size_t headers;
    int rc; /* why we end it, or 0 */
    fa_diag why;
};

int64_t fa_remote_now_ms(void)
{
    return (int64_t)(fa_clock_ns() / 1000000);
}

static int end_transfer(struct transfer *t, int rc, const char *why)
{
    if (t->rc == 0) {
        t->rc = rc;
        fa_fail(&t->why, rc, "%s", why);
    }
    return rc;
}

static size_t on_body(char *bytes, size_t one, size_t size, void *context)
{
    struct transfer *t = context;
    long status = 0;
    size *= one;
    t->heard_ms = fa_remote_now_ms();
    curl.easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    if (t->call->data != NULL && status == 200) {
        int rc = t->call->data(t->call->context, bytes, size);
        if (rc != 0)
            end_transfer(t, rc == FA_ECORRUPT ? rc : FA_ECANCELED, "its events are not understood");
    } else if (size > t->call->limit - t->reply.body.size) {
        end_transfer(t, FA_ECORRUPT, "it sends more than such an answer may have");
    } else {
        fa_buf_append(&t->reply.body, bytes, size);
        if (t->reply.body.failed)
            end_transfer(t, FA_ENOMEM, "there is no memory for its answer");
    }
    return t->rc == 0 ? size : size + 1; /* anything but size ends the transfer */
}

/* The value of a header line when it has that name; not terminated. */
static bool read_header(const char *line, size_t size, const char *name, char *ret, size_t room)
{
    size_t length = strlen(name);
    if (size <= length || strncasecmp(line, name, length) != 0 || line[length] != ':')
        return false;
    const char *first = line + length + 1, *last = line + size;
    while (first < last && (*first == ' ' || *first == '"'))
        first++;
    while (last > first && strchr(" \"\r\n", last[-1]) != NULL)
        last--;
    snprintf(ret, room, "%.*s", (int)(last - first), first);
    return true;
}

static size_t on_header(char *line, size_t one, size_t size, void *context)
{
    struct transfer *t = context;
    char value[80];
    size *= one;
    t->heard_ms = fa_remote_now_ms();
    t->headers += size;
    if (t->headers > HEADERS_MAX) {
        end_transfer(t, FA_ECORRUPT, "its headers have no end");
        return size + 1;
    }
    if (read_header(line, size, "ETag", value, sizeof value))
        memcpy(t->reply.etag, value, sizeof value);
    if (read_header(line, size, "Retry-After", value, sizeof value) &&
        strspn(value, "0123456789") > 0 && strlen(value) < 6)
        t->reply.retry_after_s = atoi(value);
    return size;
}

static curl_socket_t on_open(void *context, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct transfer *t = context;
    (void)purpose;
    t->connection->fd =
        socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    return t->connection->fd;
}

/* Connected, and nothing is said yet: who is at the other end of a Unix socket? */
static int on_ready(void *context, char *peer_ip, char *own_ip, int peer_port, int own_port)
{
    struct transfer *t = context;
    struct ucred peer;
    socklen_t size = sizeof peer;
    (void)peer_ip;
    (void)own_ip;
    (void)peer_port;
    (void)own_port;
    if (t->http->path[0] == 0 ||
        (getsockopt(t->connection->fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == geteuid() || peer.uid == 0)))
        return CURL_PREREQFUNC_OK;
    end_transfer(t, FA_EUNTRUSTED, "its socket is another user's");
    return CURL_PREREQFUNC_ABORT;
}

static struct curl_slist *headers_of(const struct transfer *t)
{
    const char *const lines[] = {
        "Expect:", "Accept:", t->call->body != NULL ? "Content-Type: application/json" : NULL,
        t->http->authorization};
    struct curl_slist *list = NULL;
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (lines[i] == NULL || lines[i][0] == 0)
            continue;
        struct curl_slist *longer = curl.slist_append(list, lines[i]);
        if (longer == NULL) {
            curl.slist_free_all(list);
            return NULL;
        }
        list = longer;
    }
    return list;
}

/* False: this libcurl cannot do something that matters. */
static bool set_options(struct transfer *t, const char *url, struct curl_slist *headers)
{
    CURL *easy = t->easy;
    const fa_http_call *call = t->call;
    bool good = true;
#define SET(option, value) good = good && curl.easy_setopt(easy, option, value) == CURLE_OK
    SET(CURLOPT_URL, url);
    if (curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http") != CURLE_OK)
        SET((CURLoption)OLD_PROTOCOLS, (long)CURLPROTO_HTTP);
    SET(CURLOPT_FOLLOWLOCATION, 0L);
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_NOPROXY, "*");
    SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
    SET(CURLOPT_OPENSOCKETDATA, t);
    SET(CURLOPT_PREREQFUNCTION, on_ready);
    SET(CURLOPT_PREREQDATA, t);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, t);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, t);
    SET(CURLOPT_HTTPHEADER, headers);
    SET(CURLOPT_USERAGENT, "fa-tune/" FA_TUNE_VERSION);
    if (t->http->path[0] != 0)
        SET(CURLOPT_UNIX_SOCKET_PATH, t->http->path);
    if (call->body != NULL) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)strlen(call->body));
        SET(CURLOPT_POSTFIELDS, call->body);
    }
    if (call->body == NULL && strcmp(call->method, "GET") != 0)
        SET(CURLOPT_CUSTOMREQUEST, call->method);
#undef SET
    return good;
}

/* Until the transfer has ended by itself (CURLE_… in *ret_code) or t->rc says why it was ended. */
static void run_until_done(struct transfer *t, CURLM *multi, CURLcode *ret_code)
{
    const fa_http_call *call = t->call;
    int64_t began = fa_remote_now_ms(), asked = began;
    t->heard_ms = began;
    while (t->rc == 0) {
        int running = 0, left = 0;
        if (curl.multi_perform(multi, &running) != CURLM_OK) {
            end_transfer(t, FA_EIO, "libcurl failed");
            return;
        }
        for (CURLMsg *message; (message = curl.multi_info_read(multi, &left)) != NULL;) {
            if (message->msg == CURLMSG_DONE) {
                *ret_code = message->data.result;
                return;
            }
        }
        int64_t now = fa_remote_now_ms();
        if (call->idle != NULL && now - asked >= IDLE_MS) {
            asked = now;
            if (call->idle(call->context) != 0)
                end_transfer(t, FA_ECANCELED, "canceled");
        }
        if ((call->whole_ms > 0 && now - began >= call->whole_ms) ||
            (call->quiet_ms > 0 && now - t->heard_ms >= call->quiet_ms))
            end_transfer(t, FA_ETIMEOUT, "it does not answer");
        if (t->rc == 0 && curl.multi_poll(multi, NULL, 0, IDLE_MS, NULL) != CURLM_OK)
            end_transfer(t, FA_EIO, "libcurl failed");
    }
}

static int run_transfer(struct transfer *t, struct connection *connection, fa_diag *diag)
{
    char url[700];
    CURLcode code = CURLE_OK;
    long status = 0;
    snprintf(url, sizeof url, "%s%s", t->http->base, t->call->path);
    struct curl_slist *headers = headers_of(t);
    t->easy = connection->easy;
    t->connection = connection;
    if (headers == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a request");
    if (!set_options(t, url, headers)) {
        end_transfer(t, FA_ENOTSUP, "libcurl is too old: 7.80 is needed");
    } else if (curl.multi_add_handle(connection->multi, connection->easy) != CURLM_OK) {
        end_transfer(t, FA_EIO, "libcurl failed");
    } else {
        run_until_done(t, connection->multi, &code);
        curl.easy_getinfo(connection->easy, CURLINFO_RESPONSE_CODE, &status);
        curl.multi_remove_handle(connection->multi, connection->easy);
    }
    curl.slist_free_all(headers);
    if (t->rc == 0 && code == CURLE_COULDNT_CONNECT) {
        long number = 0;
        curl.easy_getinfo(connection->easy, CURLINFO_OS_ERRNO, &number);
        end_transfer(t, FA_ENOTFOUND,
                     number != 0 ? strerror((int)number) : curl.easy_strerror(code));
    }
    if (t->rc == 0 && code != CURLE_OK)
        end_transfer(t, code == CURLE_OPERATION_TIMEDOUT ? FA_ETIMEOUT : FA_EIO,
                     curl.easy_strerror(code));
    if (t->rc != 0)
        return fa_fail(diag, t->rc, "%s", t->why.text);
    t->reply.status = (int)status;
    return 0;
}

int fa_http_do(fa_http *http, const fa_http_call *call, fa_http_reply *ret_reply, fa_diag *diag)
{
    struct transfer t = {.http = http, .call = call};
    int rc = need_curl(diag);
    struct connection *connection = rc == 0 ? take_connection(http) : NULL;
    if (rc == 0 && connection == NULL)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a connection");
    if (rc == 0)
        rc = run_transfer(&t, connection, diag);
    if (connection != NULL)
        put_connection(http, connection);
    if (rc == 0)
        *ret_reply = t.reply;
    else
        fa_buf_free(&t.reply.body);
    return rc;
}
