/* SPDX-License-Identifier: Apache-2.0 */
#include "sources.h"

#include "buf.h"
#include "catalogue.h"
#include "driver.h"
#include "error.h"
#include "pool.h"
#include "problem.h"
#include "session.h"
#include "snippet.h"

#include <errno.h>
#include <netdb.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    CONNECT_MS = 1500,
    TURN_MS = 100,
    BLOCK = 16384,
    HEAD_MAX = 65536,
    ANSWER_MAX = 1 << 20, /* of an answer, or of its stream of events */
    CUBIN_MAX = 64 << 20
};

/* ---- an address -----------------------------------------------------------------------------*/
/* "host:port" with nothing else in it, so that it means one thing to everybody. */
static bool split(const char *text, fa_http_address *address)
{
    char *host = address->host, *port = address->port, more;
    return (sscanf(text, "%255[a-zA-Z0-9._-]:%5[0-9]%c", host, port, &more) == 2 ||
            sscanf(text, "[%255[a-fA-F0-9:.]]:%5[0-9]%c", host, port, &more) == 2) &&
           atoi(port) >= 1 && atoi(port) <= 65535;
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

/* Takes what comes until the server closes the connection, and reports that the request waits. */
static int receive(int fd, const fa_http_call *call, fa_buf *in, fa_diag *diag)
{
    char block[BLOCK];
    const fa_request *request = call->request;
    fa_progress waits = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_WAIT};
    const uint64_t began_ns = fa_clock_ns();
    uint64_t heard_ns = began_ns, told_ns = began_ns;
    for (;;) {
        const ssize_t n = recv(fd, block, sizeof block, 0);
        const uint64_t now_ns = fa_clock_ns();
        if (n == 0)
            return 0;
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return fa_fail(diag, FA_EIO, "%s", strerror(errno));
        if (now_ns - told_ns >= TURN_MS * UINT64_C(1000000)) {
            told_ns = now_ns;
            waits.elapsed_s = (double)(now_ns - began_ns) * 1e-9;
            if (request != NULL && request->progress != NULL &&
                request->progress(request->context, &waits) != 0)
                return fa_fail(diag, FA_ECANCELED, "canceled while the server was asked");
        }
        if (n < 0 && (now_ns - heard_ns) / 1000000 > (uint64_t)call->quiet_ms)
            return fa_fail(diag, FA_ETIMEOUT, "it says nothing");
        if (n < 0)
            continue;
        heard_ns = now_ns;
        fa_buf_append(in, block, (size_t)n);
        if (in->failed || in->size > (call->body != NULL ? ANSWER_MAX : CUBIN_MAX))
            return fa_fail(diag, in->failed ? FA_ENOMEM : FA_ECORRUPT,
                           "it sends more than such an answer may have");
    }
}

/* ---- a reply --------------------------------------------------------------------------------*/
/* Keeps of a stream the data of its last event, which is "done" or "failed". */
static int read_events(fa_http_reply *reply, fa_diag *diag)
{
    static const char done[] = "event: done\ndata: ", failed[] = "event: failed\ndata: ";
    char *at = strstr(reply->body.data, done), *other = strstr(reply->body.data, failed);
    reply->status = at != NULL ? 200 : 422;
    at = at != NULL ? at + sizeof done - 1 : other != NULL ? other + sizeof failed - 1 : NULL;
    const char *end = at != NULL ? strstr(at, "\n\n") : NULL;
    if (end == NULL)
        return fa_fail(diag, FA_EIO, "it closed the connection before the tune's end");
    reply->body.size = (size_t)(end - at);
    memmove(reply->body.data, at, reply->body.size);
    return 0;
}

/* Makes the reply of what was received, whose bytes it takes. What the server cut short is no JSON, no stream that has ended,
 * or has another hash. */
static int read_reply(fa_buf *in, fa_http_reply *ret_reply, fa_diag *diag)
{
    static const char etag[] = "\r\nETag: \"", events[] = "\r\nContent-Type: text/event-stream";
    char *end = in->size > 0 ? memmem(in->data, in->size, "\r\n\r\n", 4) : NULL;
    if (in->size == 0)
        return fa_fail(diag, FA_EIO, "it closed the connection");
    if (end == NULL || strncmp(in->data, "HTTP/1.", 7) != 0 || end - in->data > HEAD_MAX)
        return fa_fail(diag, FA_ECORRUPT, "its reply is no HTTP");
    *end = 0;
    fa_http_reply reply = {.status = atoi(in->data + 9)};
    const char *tag = strcasestr(in->data, etag);
    const bool streams = strcasestr(in->data, events) != NULL;
    if (tag != NULL)
        sscanf(tag + sizeof etag - 1, "%79[^\"]", reply.etag);
    in->size -= (size_t)(end + 4 - in->data);
    memmove(in->data, end + 4, in->size);
    in->data[in->size] = 0;
    reply.body = *in;
    const int rc = streams ? read_events(&reply, diag) : 0;
    if (rc == 0) {
        *ret_reply = reply;
        *in = (fa_buf){0};
    }
    return rc;
}

int fa_http_do(const fa_http_address *address, const fa_http_call *call, fa_http_reply *ret_reply,
               fa_diag *diag)
{
    FA_ENDS(fa_buf_free) fa_buf out = {0}, in = {0};
    FA_ENDS(fa_close_at) int fd = -1;
    int rc;
    FA_OR_RETURN(open_connection(address, &fd, diag));
    fa_buf_printf(&out, "%s %s HTTP/1.0\r\nHost: %s\r\n", call->body != NULL ? "POST" : "GET",
                  call->target, address->path[0] != 0 ? "localhost" : address->host);
    if (address->token[0] != 0)
        fa_buf_printf(&out, "Authorization: Bearer %s\r\n", address->token);
    if (call->body != NULL)
        fa_buf_printf(&out,
                      "Accept: text/event-stream;progress=no\r\n"
                      "Content-Type: application/json\r\n"
                      "Content-Length: %zu\r\n",
                      strlen(call->body));
    fa_buf_printf(&out, "\r\n%s", call->body != NULL ? call->body : "");
    if (out.failed)
        rc = fa_fail(diag, FA_ENOMEM, "out of memory for a request");
    else if (send(fd, out.data, out.size, MSG_NOSIGNAL) != (ssize_t)out.size)
        rc = fa_fail(diag, FA_EIO, "it does not take a request");
    else
        rc = receive(fd, call, &in, diag);
    return rc != 0 ? rc : read_reply(&in, ret_reply, diag);
}

enum {
    PAUSE_MS = 5000,  /* a server that is gone is not asked again for so long, */
    PAUSE_SHARE = 10, /* and one that was waited for in vain for this many times the wait */
    QUIET_MS = 45000  /* a server that tunes says something every few seconds */
};

typedef struct remote {
    fa_service service;
    fa_http_address address;
    _Atomic int64_t paused_until_ms; /* it is not asked before */
    atomic_bool gone;                /* it was given up, and has not answered since */
    atomic_bool noted;
} remote;

static remote *remote_of(const fa_tuner *tuner)
{
    return (remote *)tuner->service;
}

const char *fa_server_location(const fa_tuner *tuner)
{
    const remote *server = tuner != NULL ? remote_of(tuner) : NULL;
    return server != NULL && !atomic_load(&server->gone) ? server->address.shown : "";
}

/* ---- doing without ---------------------------------------------------------------------------*/
/* For so long; 0: the next request asks the server again. */
static int do_without(fa_tuner *tuner, int64_t pause_ms, const char *why)
{
    remote *server = remote_of(tuner);
    atomic_store(&server->gone, true);
    atomic_store(&server->paused_until_ms, fa_clock_ms() + pause_ms);
    if (!atomic_exchange(&server->noted, true)) {
        FA_HOLDS(&tuner->work); /* notes come one at a time */
        fa_note(tuner,
                "the server %s cannot be used: %s; using the store %s and this machine instead",
                server->address.shown, why, tuner->store_path);
    }
    return FA_SOURCE_NONE;
}

static int give_up(fa_tuner *tuner, const char *why)
{
    return do_without(tuner, PAUSE_MS, why);
}

/* ---- one question ---------------------------------------------------------------------------*/
/* 0 with a reply of status 200, whose body the caller frees; the request's own failure; or FA_SOURCE_NONE. */
static int ask(fa_tuner *tuner, const fa_http_call *call, fa_http_reply *ret_reply, fa_diag *diag)
{
    remote *server = remote_of(tuner);
    const int64_t began_ms = fa_clock_ms();
    fa_diag why = {{0}};
    if (began_ms < atomic_load(&server->paused_until_ms))
        return FA_SOURCE_NONE;
    int code = FA_EIO, rc = fa_http_do(&server->address, call, ret_reply, &why);
    if (rc == FA_ECANCELED)
        return fa_fail(diag, rc, "%s", why.text);
    if (rc != 0) {
        const int64_t in_vain_ms = PAUSE_SHARE * (fa_clock_ms() - began_ms);
        return do_without(tuner, in_vain_ms > PAUSE_MS ? in_vain_ms : PAUSE_MS, why.text);
    }
    if (ret_reply->status == 200) {
        atomic_store(&server->gone, false);
        return 0;
    }
    if (fa_failure_read(ret_reply->body.data, ret_reply->body.size, &code, &why, NULL) != 0)
        fa_fail(&why, FA_EIO, "it answers with status %d", ret_reply->status);
    fa_buf_free(&ret_reply->body);
    /* Failures of the request itself, which this machine could not answer either. Requests were checked here: a server that
     * calls one invalid is of another version, and its error is no answer. */
    const bool answers = code == FA_ENOTFOUND || code == FA_ENOTSUP || code == FA_ECOMPILE ||
                         code == FA_EALIGN || code == FA_ENOKERNEL || code == FA_ECANCELED;
    if (!answers) /* a service that lacks the GPU may have other kernels */
        return do_without(tuner, code == FA_ENODEVICE ? 0 : PAUSE_MS, why.text);
    atomic_store(&server->gone, false);
    return fa_fail(diag, code, "%s", why.text);
}

/* ---- a kernel -------------------------------------------------------------------------------*/
/* Whether an answer is for the GPU that was asked for: that silicon, or that type. */
static bool is_for(const fa_gpu *asked, const fa_gpu *told)
{
    char one[FA_SILICON_MAX], other[FA_SILICON_MAX];
    fa_gpu type, told_type;
    fa_gpu_silicon(asked, one);
    fa_gpu_silicon(told, other);
    return strcmp(one, other) == 0 ||
           (fa_catalogue_match(asked, &type) == 0 && fa_catalogue_match(told, &told_type) == 0 &&
            strcmp(type.name, told_type.name) == 0);
}

/* gpu: the type that the request names, or the device here that it is for; NULL: the server's choice. */
static int ask_kernel(fa_tuner *tuner, const fa_request *request, const fa_gpu *gpu,
                      fa_answer *ret_answer, fa_diag *diag)
{
    FA_ENDS(fa_free_at) char *body = NULL;
    fa_http_reply reply = {0};
    fa_answer answer;
    fa_diag why = {{0}};
    fa_ask asking = {.request = *request};
    fa_gpu type;
    if (gpu != NULL && fa_catalogue_match(gpu, &type) == 0)
        snprintf(asking.gpu, sizeof asking.gpu, "%s", type.name);
    if (gpu != NULL && request->gpu == NULL)
        snprintf(asking.uuid, sizeof asking.uuid, "%s", gpu->uuid);
    if (request->strategy != NULL)
        snprintf(asking.strategy, sizeof asking.strategy, "%s", request->strategy);
    if (request->same_bits[0] == 0)
        memcpy(asking.request.same_bits, tuner->options.same_bits, sizeof request->same_bits);
    FA_OR_RETURN(fa_ask_write(&asking, &body, diag));
    const fa_http_call call = {
        .target = "/v1/kernel", .body = body, .quiet_ms = QUIET_MS, .request = request};
    FA_OR_RETURN(ask(tuner, &call, &reply, diag));
    int rc = fa_kernel_read(reply.body.data, reply.body.size, &answer, &why);
    fa_buf_free(&reply.body);
    const fa_problem settled = fa_fields_settle(&request->problem);
    const fa_problem asked = fa_problem_exact(&settled);
    if (rc == 0 && !fa_problem_equal(&answer.problem, &asked))
        rc = fa_fail(&why, FA_EINVAL, "its answer is for another problem than the one asked for");
    if (rc == 0 && strcmp(answer.same_bits, asking.request.same_bits) != 0)
        rc = fa_fail(&why, FA_EINVAL, "its answer does not have the bits that are asked for");
    if (rc == 0 && gpu != NULL && !is_for(gpu, &answer.gpu))
        rc = fa_fail(&why, FA_EINVAL, "its answer is for another GPU than the one asked for");
    if (rc != 0)
        return give_up(tuner, why.text);
    *ret_answer = answer;
    if (gpu == NULL || request->gpu != NULL)
        return 0;
    answer.gpu = *gpu;
    answer.driver_version = 1; /* as if it were proved here */
    return fa_answer_satisfies(&answer, request)
               ? 0
               : do_without(tuner, 0, "it has nothing measured for this GPU");
}

/* ---- what is asked -----------------------------------------------------------------------------*/
static int tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    fa_gpu gpu;
    if (request->memory > 0 || tuner->options.memory > 0)
        return fa_fail(diag, FA_EINVAL,
                       "\"memory\" bounds tunes on this machine, and a service tunes in its place: "
                       "leave it out, or name no service");
    FA_OR_RETURN(fa_problem_check(&request->problem, diag));
    bool known = request->gpu != NULL;
    if (known) {
        FA_OR_RETURN(fa_catalogue_find(request->gpu, &gpu, diag));
    } else { /* a device of this machine, where it has any */
        pthread_mutex_lock(&tuner->work);
        known = fa_tuner_driver(tuner, NULL) == 0 &&
                fa_driver_device(tuner->driver, request->ordinal, &gpu, NULL) == 0;
        pthread_mutex_unlock(&tuner->work);
    }
    return ask_kernel(tuner, request, known ? &gpu : NULL, ret_answer, diag);
}

/* The bytes have the hash that the server says with them. */
static int get_cubin(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                     fa_diag *diag)
{
    char target[100], hash[FA_HASH_HEX];
    fa_http_reply reply;
    const fa_http_call call = {.target = target, .quiet_ms = QUIET_MS};
    if (!fa_is_sha256(key))
        return fa_fail(diag, FA_EINVAL, "\"%.64s\" is no cubin's key", key);
    snprintf(target, sizeof target, "/v1/cubins/%.64s", key);
    FA_OR_RETURN(ask(tuner, &call, &reply, diag));
    fa_sha256(reply.body.data, reply.body.size, hash);
    if (reply.body.size == 0 || strcmp(hash, reply.etag) != 0) {
        fa_buf_free(&reply.body);
        return give_up(tuner, "a cubin's bytes do not match its SHA-256");
    }
    *ret_bytes = reply.body.data;
    *ret_size = reply.body.size;
    return 0;
}

static int kernel(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                  fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                  fa_diag *diag)
{
    const fa_request request = {.size = sizeof request,
                                .problem = *problem,
                                .effort = effort,
                                .first_contact = effort == FA_EFFORT_MEASURE};
    fa_answer answer;
    char silicon[FA_SILICON_MAX];
    fa_cubin_record cubin = {.sm = target->gpu.sm};
    fa_diag why = {{0}};
    FA_OR_RETURN(ask_kernel(tuner, &request, &target->gpu, &answer, diag));
    if (effort == FA_EFFORT_CACHED && answer.driver_version == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "all that the server has (origin: %s) is a winner that no GPU has proved "
                       "yet: ask with effort predict or measure",
                       fa_origin_name(answer.origin));
    fa_gpu_silicon(&answer.gpu, silicon);
    if (strcmp(silicon, target->scope.silicon) != 0)
        return give_up(tuner, "its answer is for other silicon");
    if (answer.origin == FA_ORIGIN_MEASURED && strcmp(answer.gpu.uuid, target->gpu.uuid) != 0)
        answer.origin = FA_ORIGIN_MEASURED_SAME_SILICON;
    answer.gpu = target->gpu;
    int rc = get_cubin(tuner, answer.cubin_key, &cubin.bytes, &cubin.size, &why);
    if (rc != 0)
        return rc < 0 ? give_up(tuner, why.text) : rc;
    memcpy(cubin.key, answer.cubin_key, sizeof cubin.key);
    memcpy(cubin.entry, answer.entry, sizeof cubin.entry);
    *ret_answer = answer;
    *ret_cubin = cubin;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------*/
int fa_service_make(const fa_options *options, fa_service **ret_service, fa_diag *diag)
{
    /* Templates of the caller's own are the server's only where the caller says so. */
    const char *address = options->server != NULL      ? options->server
                          : options->templates != NULL ? NULL
                                                       : getenv("FA_TUNE_SERVER");
    const char *file = getenv("FA_TUNE_TOKEN_FILE");
    if (address == NULL || address[0] == 0)
        return 0;
    FA_ENDS(fa_free_at) remote *server = calloc(1, sizeof *server);
    FA_OR_RETURN(fa_have(server != NULL, "a server", diag));
    int rc = fa_http_parse(address, &server->address, diag);
    const bool local = server->address.path[0] != 0;
    if (rc == 0 && file != NULL && file[0] != 0 && !local)
        rc = fa_own_token(file, 022, 1, sizeof server->address.token, server->address.token, diag);
    FA_OR_RETURN(rc);
    /* A token says who asks, and nothing of who listens on a port. */
    server->service = (fa_service){
        .tune = tune, .cubin = get_cubin, .kernel = kernel, .give_up = give_up, .believed = local};
    *ret_service = &server->service, server = NULL;
    return 0;
}

int fa_service_check(const fa_service *service, char *ret_text, size_t size, fa_diag *diag)
{
    const fa_http_address *address = &((const remote *)service)->address;
    /* It reads the store, and over TCP it needs the token. */
    const fa_http_call call = {.target = "/v1/sweeps", .quiet_ms = QUIET_MS};
    fa_http_reply reply = {0};
    int rc = fa_http_do(address, &call, &reply, diag);
    fa_buf_free(&reply.body);
    if (rc == 0 && reply.status == 401)
        rc = fa_fail(diag, FA_EUNTRUSTED, "it wants another token than FA_TUNE_TOKEN_FILE has");
    else if (rc == 0 && reply.status != 200)
        rc = fa_fail(diag, FA_EIO, "it answers with status %d", reply.status);
    if (rc != 0)
        return fa_fail_in(diag, rc, "%s cannot be used", address->shown);
    snprintf(ret_text, size, "%s is ready%s", address->shown,
             address->path[0] != 0 ? "" : "; what it measured is proved here once more");
    return 0;
}

static int make(fa_tuner *tuner, const fa_options *options, fa_diag *diag)
{
    int rc = fa_service_make(options, &tuner->service, diag);
    return rc != 0 ? rc : fa_system_make(fa_note_text, tuner, &tuner->system, diag);
}

int fa_open(const fa_options *options, fa_tuner **ret_tuner, fa_diag *diag)
{
    return fa_session_open(options, make, ret_tuner, diag);
}
