/* SPDX-License-Identifier: Apache-2.0 */
#include "remote.h"

#include "buf.h"
#include "catalogue.h"
#include "driver.h"
#include "error.h"
#include "hash.h"
#include "http_call.h"
#include "own_place.h"
#include "pool.h"
#include "problem.h"
#include "session.h"
#include "wire.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAUSE_MS = 5000,  /* a server that is gone is not asked again for so long, */
    PAUSE_SHARE = 10, /* and one that was waited for in vain for this many times the wait */
    QUIET_MS = 45000, /* a server that tunes says something every few seconds */
    CUBIN_MAX = 64 << 20
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

static int64_t now_ms(void)
{
    return (int64_t)(fa_clock_ns() / 1000000);
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
    atomic_store(&server->paused_until_ms, now_ms() + pause_ms);
    if (!atomic_exchange(&server->noted, true)) {
        pthread_mutex_lock(&tuner->work); /* notes come one at a time */
        fa_note(tuner,
                "the server %s cannot be used: %s; using the store %s and this machine instead",
                server->address.shown, why, tuner->store_path);
        pthread_mutex_unlock(&tuner->work);
    }
    return FA_SOURCE_NONE;
}

static int give_up(fa_tuner *tuner, const char *why)
{
    return do_without(tuner, PAUSE_MS, why);
}

/* ---- one question ---------------------------------------------------------------------------*/
/* Failures of the request itself, which this machine could not answer either. Requests were checked here: a server that calls one
 * invalid is of another version, and its error is no answer. */
static bool is_answer(int code)
{
    return code == FA_ENOTFOUND || code == FA_ENOTSUP || code == FA_ECOMPILE || code == FA_EALIGN ||
           code == FA_ENOKERNEL || code == FA_ECANCELED;
}

/* 0 with a reply of status 200, whose body the caller frees; the request's own failure; or FA_SOURCE_NONE. */
static int ask(fa_tuner *tuner, const fa_http_call *call, fa_http_reply *ret_reply, fa_diag *diag)
{
    remote *server = remote_of(tuner);
    const int64_t began_ms = now_ms();
    fa_diag why = {{0}};
    if (began_ms < atomic_load(&server->paused_until_ms))
        return FA_SOURCE_NONE;
    int code = FA_EIO, rc = fa_http_do(&server->address, call, ret_reply, &why);
    if (rc == FA_ECANCELED)
        return fa_fail(diag, rc, "%s", why.text);
    if (rc != 0) {
        const int64_t in_vain_ms = PAUSE_SHARE * (now_ms() - began_ms);
        return do_without(tuner, in_vain_ms > PAUSE_MS ? in_vain_ms : PAUSE_MS, why.text);
    }
    if (ret_reply->status == 200) {
        atomic_store(&server->gone, false);
        return 0;
    }
    if (fa_failure_read(ret_reply->body.data, ret_reply->body.size, &code, &why, NULL) != 0)
        fa_fail(&why, FA_EIO, "it answers with status %d", ret_reply->status);
    fa_buf_free(&ret_reply->body);
    if (!is_answer(code)) /* a service that lacks the GPU may have other kernels */
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
static int write_ask(const fa_request *request, const fa_gpu *gpu, char **ret_body, fa_diag *diag)
{
    fa_ask asked = {.request = *request};
    fa_gpu type;
    if (gpu != NULL && fa_catalogue_match(gpu, &type) == 0)
        snprintf(asked.gpu, sizeof asked.gpu, "%s", type.name);
    if (gpu != NULL && request->gpu == NULL)
        snprintf(asked.uuid, sizeof asked.uuid, "%s", gpu->uuid);
    if (request->strategy != NULL)
        snprintf(asked.strategy, sizeof asked.strategy, "%s", request->strategy);
    return fa_ask_write(&asked, ret_body, diag);
}

static int ask_kernel(fa_tuner *tuner, const fa_request *request, const fa_gpu *gpu,
                      fa_answer *ret_answer, fa_diag *diag)
{
    struct waiting waiting = {request, now_ms()};
    char *body = NULL;
    fa_http_reply reply = {0};
    fa_answer answer;
    fa_diag why = {{0}};
    int rc = write_ask(request, gpu, &body, diag);
    const fa_http_call call = {.target = "/v1/kernel",
                               .body = body,
                               .events = true,
                               .limit = FA_KERNEL_TEXT_MAX,
                               .quiet_ms = QUIET_MS,
                               .idle = on_idle,
                               .context = &waiting};
    if (rc == 0)
        rc = ask(tuner, &call, &reply, diag);
    free(body);
    if (rc != 0)
        return rc;
    rc = fa_kernel_read(reply.body.data, reply.body.size, &answer, &why);
    fa_buf_free(&reply.body);
    const fa_problem asked = fa_problem_exact(&request->problem);
    if (rc == 0 && !fa_problem_equal(&answer.problem, &asked))
        rc = fa_fail(&why, FA_EINVAL, "its answer is for another problem than the one asked for");
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
    return ask_kernel(tuner, request, known ? &gpu : NULL, ret_answer, diag);
}

/* The bytes have the hash that the server says with them. */
static int get_cubin(fa_tuner *tuner, const char *key, void **ret_bytes, size_t *ret_size,
                     fa_diag *diag)
{
    char target[100], hash[FA_HASH_HEX];
    fa_http_reply reply;
    const fa_http_call call = {.target = target, .limit = CUBIN_MAX, .quiet_ms = QUIET_MS};
    if (!fa_is_sha256(key))
        return fa_fail(diag, FA_EINVAL, "\"%.64s\" is no cubin's key", key);
    snprintf(target, sizeof target, "/v1/cubins/%.64s", key);
    const int rc = ask(tuner, &call, &reply, diag);
    if (rc != 0)
        return rc;
    fa_sha256(reply.body.data != NULL ? reply.body.data : "", reply.body.size, hash);
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
    int rc = ask_kernel(tuner, &request, &target->gpu, &answer, diag);
    if (rc != 0)
        return rc;
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
    rc = get_cubin(tuner, answer.cubin_key, &cubin.bytes, &cubin.size, &why);
    if (rc != 0)
        return rc < 0 ? give_up(tuner, why.text) : rc;
    memcpy(cubin.key, answer.cubin_key, sizeof cubin.key);
    memcpy(cubin.entry, answer.entry, sizeof cubin.entry);
    *ret_answer = answer;
    *ret_cubin = cubin;
    return 0;
}

/* ---- opening --------------------------------------------------------------------------------*/
static void close_service(fa_service *service)
{
    free(service);
}

int fa_service_make(const fa_options *options, fa_service **ret_service, fa_diag *diag)
{
    /* Templates of the caller's own are the server's only where the caller says so. */
    const char *address = options->server != NULL      ? options->server
                          : options->templates != NULL ? NULL
                                                       : getenv("FA_TUNE_SERVER");
    const char *file = getenv("FA_TUNE_TOKEN_FILE");
    if (address == NULL || address[0] == 0)
        return 0;
    remote *server = calloc(1, sizeof *server);
    if (server == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a server");
    int rc = fa_http_parse(address, &server->address, diag);
    const bool local = server->address.path[0] != 0;
    if (rc == 0 && file != NULL && file[0] != 0 && !local)
        rc = fa_own_token(file, 022, 1, sizeof server->address.token, server->address.token, diag);
    if (rc != 0) {
        free(server);
        return rc;
    }
    /* A token says who asks, and nothing of who listens on a port. */
    server->service = (fa_service){.close = close_service,
                                   .tune = tune,
                                   .cubin = get_cubin,
                                   .kernel = kernel,
                                   .give_up = give_up,
                                   .believed = local};
    *ret_service = &server->service;
    return 0;
}

int fa_service_check(const fa_service *service, char *ret_text, size_t size, fa_diag *diag)
{
    const fa_http_address *address = &((const remote *)service)->address;
    /* It reads the store, and over TCP it needs the token. */
    const fa_http_call call = {
        .target = "/v1/winners?limit=1", .limit = FA_KERNEL_TEXT_MAX, .quiet_ms = QUIET_MS};
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
