/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include "buf.h"
#include "catalogue.h"
#include "driver.h"
#include "error.h"
#include "hash.h"
#include "http_call.h"
#include "pool.h"
#include "problem.h"
#include "session.h"
#include "wire.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
    RETRY_MS = 300,
    PAUSE_MS = 5000,  /* a server that is gone is not asked again for so long, */
    PAUSE_SHARE = 10, /* and one that was waited for in vain for this many times the wait */
    QUIET_MS = 45000, /* a server that tunes says something every few seconds */
    LIST_MAX = 64 << 20,
    CUBIN_MAX = 64 << 20,
    REPLY_MAX = 2 * FA_ANSWER_TEXT_MAX
};

struct fa_remote {
    fa_source source;
    fa_http_address address;
    _Atomic int64_t paused_until_ms; /* it is not asked before */
    _Atomic int64_t waited_ms;       /* in vain, for its last answer */
    atomic_bool gone;                /* it was given up, and has not answered since */
    atomic_bool noted;
};

static const char source_id;

static fa_remote *remote_of(const fa_tuner *tuner)
{
    return (fa_remote *)fa_source_of(tuner, &source_id);
}

static int64_t now_ms(void)
{
    return (int64_t)(fa_clock_ns() / 1000000);
}

/* ---- opening --------------------------------------------------------------------------------*/
/* One word of printable characters, from a file that nobody else can have written. */
static int read_token(const char *path, char *ret_token, size_t room, fa_diag *diag)
{
    struct stat info;
    fa_buf text = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const bool known = fd >= 0 && fstat(fd, &info) == 0;
    const bool foreign =
        known && ((info.st_uid != geteuid() && info.st_uid != 0) || (info.st_mode & 022) != 0);
    int rc = foreign
                 ? fa_fail(diag, FA_EUNTRUSTED,
                           "the token file %s is another user's, or others can write to it", path)
             : !known || fa_buf_read_fd(&text, fd, 4096) != 0
                 ? fa_fail(diag, FA_EIO, "the token file %s cannot be read", path)
                 : 0;
    if (fd >= 0)
        close(fd);
    size_t size = text.size, plain = 0;
    while (size > 0 && strchr("\r\n \t", text.data[size - 1]) != NULL)
        size--;
    while (plain < size && text.data[plain] > ' ' && text.data[plain] < 0x7f)
        plain++;
    if (rc == 0 && (plain < size || size == 0 || size >= room))
        rc = fa_fail(diag, FA_EINVAL, "the token file %s must hold one word of 1 to %zu characters",
                     path, room - 1);
    if (rc == 0)
        snprintf(ret_token, room, "%.*s", (int)size, text.data);
    fa_buf_free(&text);
    return rc;
}

int fa_remote_make(const fa_options *options, fa_remote **ret_remote, fa_diag *diag)
{
    /* Templates of the caller's own are the server's only where the caller says so. */
    const char *address = options->server != NULL      ? options->server
                          : options->templates != NULL ? NULL
                                                       : getenv("FA_TUNE_SERVER");
    const char *file = getenv("FA_TUNE_TOKEN_FILE");
    *ret_remote = NULL;
    if (address == NULL || address[0] == 0)
        return 0;
    fa_remote *remote = calloc(1, sizeof *remote);
    if (remote == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a server");
    int rc = fa_http_parse(address, &remote->address, diag);
    if (rc == 0 && file != NULL && file[0] != 0 && remote->address.path[0] == 0)
        rc = read_token(file, remote->address.token, sizeof remote->address.token, diag);
    if (rc != 0) {
        free(remote);
        return rc;
    }
    remote->source.id = &source_id;
    *ret_remote = remote;
    return 0;
}

void fa_remote_free(fa_remote **remote)
{
    if (remote == NULL || *remote == NULL)
        return;
    free(*remote);
    *remote = NULL;
}

const char *fa_remote_address(const fa_remote *remote)
{
    return remote->address.shown;
}

const char *fa_server_location(const fa_tuner *tuner)
{
    const fa_remote *remote = tuner != NULL ? remote_of(tuner) : NULL;
    return remote != NULL && !atomic_load(&remote->gone) ? remote->address.shown : "";
}

/* ---- doing without ---------------------------------------------------------------------------*/
/* For this request alone: the next one asks the server again. */
static int do_without(fa_tuner *tuner, const char *why)
{
    fa_remote *remote = remote_of(tuner);
    atomic_store(&remote->gone, true);
    if (!atomic_exchange(&remote->noted, true)) {
        pthread_mutex_lock(&tuner->work); /* notes come one at a time */
        fa_note(tuner,
                "the server %s cannot be used: %s; using the store %s and this machine instead",
                remote->address.shown, why, tuner->store_path);
        pthread_mutex_unlock(&tuner->work);
    }
    return FA_SOURCE_NONE;
}

static int give_up(fa_tuner *tuner, const char *why)
{
    fa_remote *remote = remote_of(tuner);
    const int64_t pause_ms = PAUSE_SHARE * atomic_exchange(&remote->waited_ms, 0);
    atomic_store(&remote->paused_until_ms, now_ms() + (pause_ms > PAUSE_MS ? pause_ms : PAUSE_MS));
    return do_without(tuner, why);
}

/* ---- one question ---------------------------------------------------------------------------*/
/* Failures of the request itself, which this machine could not answer either. Requests were checked here: a server that calls one
 * invalid is of another version, and its error is no answer. */
static bool is_answer(int code)
{
    return code == FA_ENOTFOUND || code == FA_ENOTSUP || code == FA_ECOMPILE || code == FA_EALIGN ||
           code == FA_ENOKERNEL || code == FA_ECANCELED;
}

/* Once more if the failure may be temporary. */
static int call_twice(const fa_remote *remote, const fa_http_call *call, fa_http_reply *ret_reply,
                      fa_diag *diag)
{
    static const struct timespec pause = {0, RETRY_MS * 1000000};
    int rc = fa_http_do(&remote->address, call, ret_reply, diag);
    if (rc != FA_EIO && (rc != 0 || ret_reply->status < 500 || ret_reply->status == 504))
        return rc;
    if (rc == 0)
        fa_buf_free(&ret_reply->body);
    nanosleep(&pause, NULL);
    return fa_http_do(&remote->address, call, ret_reply, diag);
}

/* 0 with a reply of status 200, whose body the caller frees; the request's own failure; or FA_SOURCE_NONE. */
static int ask(fa_tuner *tuner, const fa_http_call *call, fa_http_reply *ret_reply, fa_diag *diag)
{
    fa_remote *remote = remote_of(tuner);
    const int64_t began_ms = now_ms();
    fa_diag why = {{0}};
    int rc = call_twice(remote, call, ret_reply, &why), code = FA_EIO;
    if (rc == FA_ECANCELED)
        return fa_fail(diag, rc, "%s", why.text);
    if (rc != 0) {
        atomic_store(&remote->waited_ms, now_ms() - began_ms);
        return give_up(tuner, why.text);
    }
    if (ret_reply->status == 200) {
        atomic_store(&remote->gone, false);
        return 0;
    }
    if (fa_failure_read(ret_reply->body.data, ret_reply->body.size, &code, &why, NULL) != 0)
        fa_fail(&why, FA_EIO, "it answers with status %d", ret_reply->status);
    fa_buf_free(&ret_reply->body);
    if (!is_answer(code)) /* a service that lacks the GPU may have other kernels */
        return code == FA_ENODEVICE ? do_without(tuner, why.text) : give_up(tuner, why.text);
    atomic_store(&remote->gone, false);
    return fa_fail(diag, code, "%s", why.text);
}

/* ---- a kernel -------------------------------------------------------------------------------*/
/* The cubin of a server's answer: its key, and the hash and size of its bytes. */
struct cubin_of {
    char key[FA_HASH_HEX], sha256[FA_HASH_HEX];
    size_t size; /* 0: it has none */
};

#define ROW(member, kind, ...) FA_MEMBER(#member, kind, struct cubin_of, member, __VA_ARGS__)
static const fa_member cubin_members[] = {
    ROW(key, TEXT),
    ROW(sha256, TEXT),
    ROW(size, COUNT64, .least = 1, .most = CUBIN_MAX),
    {.key = NULL},
};
#undef ROW

struct kernel_reply {
    fa_answer answer;
    struct cubin_of cubin;
};

static int read_cubin(const cJSON *json, void *ret_cubin, fa_diag *diag)
{
    if (json == NULL || cJSON_IsNull(json))
        return 0;
    const int rc = fa_wire_object(json, "cubin", diag);
    return rc != 0 ? rc : fa_struct_from_json(json, cubin_members, ret_cubin, "cubin", diag);
}

static const fa_member kernel_members[] = {
    FA_MEMBER("answer", OTHER, struct kernel_reply, answer, .read = fa_wire_read_answer),
    FA_MEMBER("cubin", OTHER, struct kernel_reply, cubin, .read = read_cubin),
    {.key = NULL},
};

static int read_kernel(const cJSON *json, void *ret_reply, fa_diag *diag)
{
    return fa_struct_from_json(json, kernel_members, ret_reply, "reply", diag);
}

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

/* What is wrong with a reply, or 0; gpu: that was asked for, or NULL. */
static int check_reply(const struct kernel_reply *reply, const fa_problem *problem,
                       const fa_gpu *gpu, fa_diag *diag)
{
    const fa_problem asked = fa_problem_exact(problem);
    if (!fa_problem_equal(&reply->answer.problem, &asked))
        return fa_fail(diag, FA_EINVAL, "answer: it is for another problem than the one asked");
    if (gpu != NULL && !is_for(gpu, &reply->answer.gpu))
        return fa_fail(diag, FA_EINVAL, "its answer is for another GPU than the one asked for");
    if (reply->cubin.size > 0 && (!fa_wire_is_hash(reply->cubin.sha256) ||
                                  strcmp(reply->cubin.key, reply->answer.cubin_key) != 0))
        return fa_fail(diag, FA_EINVAL, "cubin: it is not the answer's, or has no SHA-256");
    return 0;
}

struct waiting {
    const fa_request *request;
    int64_t began_ms;
};

static int on_idle(void *context)
{
    const struct waiting *w = context;
    const fa_progress progress = {.kind = FA_EVENT_PROGRESS,
                                  .stage = FA_STAGE_WAIT,
                                  .elapsed_s = (double)(now_ms() - w->began_ms) * 1e-3,
                                  .left_s = -1};
    return w->request->progress != NULL &&
           w->request->progress(w->request->context, &progress) != 0;
}

/* gpu: the type that the request names, or the device here that it is for; NULL: the server's choice. */
static int ask_kernel(fa_tuner *tuner, const fa_request *request, const fa_gpu *gpu,
                      struct kernel_reply *ret_reply, fa_diag *diag)
{
    struct waiting waiting = {request, now_ms()};
    fa_ask asked = {.size = sizeof asked,
                    .problem = request->problem,
                    .ordinal = request->ordinal,
                    .effort = request->effort,
                    .again = request->again,
                    .exact = request->exact,
                    .first_contact = request->first_contact,
                    .evaluations = request->evaluations,
                    .seconds = request->seconds};
    char *body = NULL;
    fa_http_reply reply = {0};
    fa_gpu type;
    fa_diag why = {{0}};
    if (gpu != NULL && fa_catalogue_match(gpu, &type) == 0)
        snprintf(asked.gpu, sizeof asked.gpu, "%s", type.name);
    if (gpu != NULL && request->gpu == NULL)
        snprintf(asked.uuid, sizeof asked.uuid, "%s", gpu->uuid);
    if (request->strategy != NULL)
        snprintf(asked.strategy, sizeof asked.strategy, "%s", request->strategy);
    int rc = fa_ask_write(&asked, &body, diag);
    const fa_http_call call = {.method = "POST",
                               .target = "/v1/kernel",
                               .body = body,
                               .events = true,
                               .limit = REPLY_MAX,
                               .quiet_ms = QUIET_MS,
                               .idle = on_idle,
                               .context = &waiting};
    if (rc == 0)
        rc = ask(tuner, &call, &reply, diag);
    free(body);
    if (rc != 0)
        return rc;
    *ret_reply = (struct kernel_reply){.cubin = {.size = 0}};
    rc = fa_wire_read(reply.body.data, reply.body.size, REPLY_MAX, "reply", read_kernel, ret_reply,
                      &why);
    if (rc == 0)
        rc = check_reply(ret_reply, &request->problem, gpu, &why);
    fa_buf_free(&reply.body);
    return rc != 0 ? give_up(tuner, why.text) : 0;
}

/* sha256 NULL: the bytes are checked against the hash that the server says. */
static int get_cubin(fa_tuner *tuner, const char *key, const char *sha256, size_t limit,
                     void **ret_bytes, size_t *ret_size, fa_diag *diag)
{
    char target[100], hash[FA_HASH_HEX];
    fa_http_reply reply;
    const fa_http_call call = {
        .method = "GET", .target = target, .limit = limit, .quiet_ms = QUIET_MS};
    if (!fa_wire_is_hash(key))
        return fa_fail(diag, FA_EINVAL, "\"%.64s\" is no cubin's key", key);
    snprintf(target, sizeof target, "/v1/cubins/%.64s", key);
    const int rc = ask(tuner, &call, &reply, diag);
    if (rc != 0)
        return rc;
    fa_sha256(reply.body.data != NULL ? reply.body.data : "", reply.body.size, hash);
    if (reply.body.size == 0 || strcmp(hash, sha256 != NULL ? sha256 : reply.etag) != 0) {
        fa_buf_free(&reply.body);
        return give_up(tuner, "a cubin's bytes do not match its SHA-256");
    }
    *ret_bytes = reply.body.data;
    *ret_size = reply.body.size;
    return 0;
}

/* ---- the source -----------------------------------------------------------------------------*/
static bool is_usable(const fa_tuner *tuner)
{
    return now_ms() >= atomic_load(&remote_of(tuner)->paused_until_ms);
}

static void close_service(fa_source *source)
{
    fa_remote *remote = (fa_remote *)source;
    fa_remote_free(&remote);
}

/* A token says who asks, and nothing of who listens on a port. */
static bool is_believed(const fa_tuner *tuner)
{
    return remote_of(tuner)->address.path[0] != 0;
}

static int tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    struct kernel_reply reply;
    fa_gpu gpu;
    if (!is_usable(tuner))
        return FA_SOURCE_NONE;
    if (request->memory > 0 || tuner->memory > 0)
        return fa_fail(diag, FA_EINVAL,
                       "\"memory\" bounds tunes on this machine, and a service tunes in its place: "
                       "leave it out, or name no service");
    int rc = fa_problem_check(&request->problem, diag);
    if (rc == 0 && request->gpu != NULL)
        rc = fa_catalogue_find(request->gpu, &gpu, diag);
    if (rc != 0)
        return rc;
    bool known = request->gpu != NULL;
    if (!known) { /* a device of this machine, where it has any */
        pthread_mutex_lock(&tuner->work);
        known = fa_tuner_driver(tuner, NULL) == 0 &&
                fa_driver_device(tuner->driver, request->ordinal, &gpu, NULL) == 0;
        pthread_mutex_unlock(&tuner->work);
    }
    rc = ask_kernel(tuner, request, known ? &gpu : NULL, &reply, diag);
    if (rc != 0)
        return rc;
    *ret_answer = reply.answer;
    if (!known || request->gpu != NULL)
        return 0;
    fa_answer here = reply.answer;
    here.gpu = gpu;
    here.driver_version = 1; /* as if it were proved here */
    return fa_answer_satisfies(&here, request)
               ? 0
               : do_without(tuner, "it has nothing measured for this GPU");
}

static int cubin_of_answer(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                           fa_diag *diag)
{
    if (!is_usable(tuner))
        return FA_SOURCE_NONE;
    const int rc = get_cubin(tuner, key, NULL, CUBIN_MAX, ret_bytes, ret_size, diag);
    return rc == FA_ENOTFOUND ? FA_SOURCE_NONE : rc; /* what it has not may be here */
}

/* Why a service's answer may not be launched here at all, or NULL. On return it is about this device, as its origin tells. */
static const char *refuse_answer(const fa_gpu *gpu, int driver_version, fa_effort effort,
                                 fa_answer *answer)
{
    const fa_trial *trial = &answer->trial;
    if (trial->threads < 1 || trial->threads > 1024 || trial->grid[0] < 1 || trial->grid[1] < 1 ||
        trial->grid[2] < 1 || trial->grid[1] > 65535 || trial->grid[2] > 65535 ||
        trial->smem_bytes < 0 || trial->smem_bytes > gpu->smem_per_block)
        return "its kernel cannot be launched here";
    if (answer->origin == FA_ORIGIN_MEASURED && strcmp(answer->gpu.uuid, gpu->uuid) != 0)
        answer->origin = FA_ORIGIN_MEASURED_SAME_SILICON;
    answer->gpu = *gpu;
    fa_answer proved = *answer;
    proved.driver_version = driver_version; /* as it will be */
    return fa_answer_satisfies(&proved, &(fa_request){.effort = effort, .first_contact = true})
               ? NULL
               : "it has nothing measured for this GPU";
}

static int kernel(fa_tuner *tuner, const fa_target *target, const fa_problem *problem,
                  fa_effort effort, fa_answer *ret_answer, fa_cubin_record *ret_cubin,
                  fa_diag *diag)
{
    const fa_request request = {.size = sizeof request,
                                .problem = *problem,
                                .effort = effort,
                                .first_contact = effort == FA_EFFORT_MEASURE};
    struct kernel_reply reply;
    char silicon[FA_SILICON_MAX];
    fa_cubin_record cubin = {.sm = target->gpu.sm};
    fa_diag why = {{0}};
    if (!is_usable(tuner))
        return FA_SOURCE_NONE;
    int rc = ask_kernel(tuner, &request, &target->gpu, &reply, diag);
    if (rc != 0)
        return rc;
    if (effort == FA_EFFORT_CACHED && reply.answer.driver_version == 0)
        return fa_fail(diag, FA_ENOTFOUND,
                       "all that the server has (origin: %s) is a winner that no GPU has proved "
                       "yet: ask with effort predict or measure",
                       fa_origin_name(reply.answer.origin));
    fa_gpu_silicon(&reply.answer.gpu, silicon);
    const char *refused =
        strcmp(silicon, target->scope.silicon) != 0
            ? "its answer is for other silicon"
            : refuse_answer(&target->gpu, fa_driver_version(tuner->driver), effort, &reply.answer);
    if (refused == NULL && reply.cubin.size == 0)
        refused = "it has no cubin for its answer";
    if (refused != NULL)
        return give_up(tuner, refused);
    rc = get_cubin(tuner, reply.cubin.key, reply.cubin.sha256, reply.cubin.size, &cubin.bytes,
                   &cubin.size, &why);
    if (rc != 0)
        return rc == FA_SOURCE_NONE ? rc : give_up(tuner, why.text);
    memcpy(cubin.key, reply.cubin.key, sizeof cubin.key);
    memcpy(cubin.entry, reply.answer.entry, sizeof cubin.entry);
    *ret_answer = reply.answer;
    *ret_cubin = cubin;
    return 0;
}

int fa_service_make(fa_tuner *tuner, const fa_options *options, fa_source **ret_source,
                    fa_diag *diag)
{
    static const fa_source_class class = {
        .close = close_service,
        .tune = tune,
        .answer_cubin = cubin_of_answer,
        .kernel = kernel,
        .believed = is_believed,
        .give_up = give_up,
    };
    fa_remote *remote = NULL;
    (void)tuner;
    const int rc = fa_remote_make(options, &remote, diag);
    if (remote != NULL) {
        remote->source.is = &class;
        *ret_source = &remote->source;
    }
    return rc;
}

int fa_remote_check(fa_remote *remote, char *ret_text, size_t size, fa_diag *diag)
{
    static const char *const targets[] = {"/readyz", "/v1/jobs"}; /* the second needs the token */
    for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
        fa_http_reply reply;
        const fa_http_call call = {
            .method = "GET", .target = targets[i], .limit = LIST_MAX, .quiet_ms = QUIET_MS};
        const int rc = fa_http_do(&remote->address, &call, &reply, diag);
        if (rc != 0)
            return rc;
        fa_buf_free(&reply.body);
        if (reply.status == 401)
            return fa_fail(diag, FA_EUNTRUSTED,
                           "it wants another token than FA_TUNE_TOKEN_FILE has");
        if (reply.status != 200)
            return fa_fail(diag, FA_EIO, "it answers with status %d", reply.status);
    }
    snprintf(ret_text, size, "%s is ready%s", remote->address.shown,
             remote->address.path[0] != 0 ? "" : "; what it measured is proved here once more");
    return 0;
}
