/* SPDX-License-Identifier: Apache-2.0
 *
 * Tunes and sweeps at a server: asked for, followed, and their results read.
 */
#include "buf.h"
#include "driver.h"
#include "request.h"
#include "problem.h"
#include "session.h"
#include "remote.h"
#include "wire.h"

#include "catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GPUS_MAX = 1 << 20 };

/* ---- reading replies ------------------------------------------------------------------------*/
#define ROW(member, kind, ...) FA_MEMBER(#member, kind, fa_remote_cubin, member, __VA_ARGS__)
static const fa_member cubin_members[] = {
    ROW(key, TEXT),
    ROW(sha256, TEXT),
    ROW(size, COUNT64, .least = 1, .most = FA_REMOTE_CUBIN_MAX),
    {.key = NULL},
};
#undef ROW

struct kernel_reply {
    fa_answer answer;
    fa_remote_cubin cubin; /* zeros: none came */
};

static int read_cubin(const cJSON *json, void *ret_cubin, fa_diag *diag)
{
    if (json == NULL || cJSON_IsNull(json))
        return 0;
    int rc = fa_wire_object(json, "cubin", diag);
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

/* Of this very problem. */
static int read_kernel_reply(const fa_buf *text, const fa_problem *problem, fa_answer *ret_answer,
                             fa_remote_cubin *ret_cubin, fa_diag *diag)
{
    struct kernel_reply reply = {.cubin = {.size = 0}};
    fa_problem asked = fa_problem_exact(problem);
    int rc = fa_wire_read(text->data, text->size, FA_REMOTE_REPLY_MAX, "reply", read_kernel, &reply,
                          diag);
    if (rc != 0)
        return rc;
    if (!fa_problem_equal(&reply.answer.problem, &asked))
        return fa_fail(diag, FA_EINVAL, "answer: it is for another problem than the one asked");
    if (reply.cubin.size > 0 && (!fa_wire_is_hash(reply.cubin.sha256) ||
                                 strcmp(reply.cubin.key, reply.answer.cubin_key) != 0))
        return fa_fail(diag, FA_EINVAL, "cubin: it is not the answer's, or has no SHA-256");
    *ret_answer = reply.answer;
    *ret_cubin = reply.cubin;
    return 0;
}

/* The id in {"job": "…"}; an id goes into a path. */
static int read_job(const cJSON *json, void *ret_job, fa_diag *diag)
{
    char job[72] = "";
    int rc = fa_json_copy_needed(json, "job", job, 65, "reply", diag);
    if (rc == 0 &&
        (job[0] == 0 || strspn(job, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789-_") != strlen(job)))
        rc = fa_fail(diag, FA_EINVAL, "reply: \"job\" is no job's name");
    if (rc == 0)
        memcpy(ret_job, job, sizeof job);
    return rc;
}

/* ---- jobs -----------------------------------------------------------------------------------*/
/* Posts until there is a result: at once, or the job's. ret_text is the result's. A job that the
 * server has forgotten is asked for once more. */
static int post_and_follow(fa_tuner *tuner, fa_http_call *post, int accepted,
                           const fa_follower *follower, fa_buf *ret_text, fa_diag *diag)
{
    post->idle = follower->idle;
    post->context = follower->context;
    for (int tries = 0;; tries++) {
        fa_http_reply reply;
        fa_diag why = {{0}};
        char job[72];
        bool answered = false;
        int rc = fa_remote_ask(tuner, post, accepted, &reply, diag);
        if (rc != 0)
            return rc;
        if (reply.status == 200 && accepted != 200) {
            *ret_text = reply.body;
            return 0;
        }
        rc = fa_wire_read(reply.body.data, reply.body.size, FA_ANSWER_TEXT_MAX, "reply", read_job,
                          job, &why);
        fa_buf_free(&reply.body);
        if (rc == 0)
            rc = fa_remote_follow(fa_remote_of(tuner)->http, job, follower, ret_text,
                                  &answered, &why);
        if (rc == 0)
            return 0;
        if (answered && (rc == FA_ECANCELED || fa_remote_is_answer(rc)))
            return fa_fail(diag, rc, "%s", why.text);
        if (answered || rc != FA_ENOTFOUND || tries > 0)
            return fa_remote_give_up(tuner, why.text);
    }
}

/* ---- a tune ---------------------------------------------------------------------------------*/
struct followed_tune {
    const fa_request *request;
    int64_t began_ms, reported_ms;
    fa_progress last;
    fa_trial trial, best;
};

static int report_progress(struct followed_tune *t)
{
    t->reported_ms = fa_remote_now_ms();
    return t->request->progress != NULL && t->request->progress(t->request->context, &t->last) != 0
               ? 1
               : 0;
}

static int on_tune_event(void *context, const char *data, size_t size)
{
    struct followed_tune *t = context;
    fa_progress progress;
    if (fa_progress_read(data, size, &progress, &t->trial, &t->best, NULL) != 0)
        return FA_ECORRUPT;
    t->last = progress;
    return report_progress(t);
}

/* Repeats the last progress between the server's events, so that a caller can cancel. */
static int on_tune_idle(void *context)
{
    struct followed_tune *t = context;
    int64_t now = fa_remote_now_ms();
    if (now - t->reported_ms < 100)
        return 0;
    t->last.kind = FA_EVENT_PROGRESS;
    t->last.trial = NULL;
    if (t->last.stage == FA_STAGE_WAIT)
        t->last.elapsed_s = (double)(now - t->began_ms) * 1e-3;
    return report_progress(t);
}

/* Asks so that a tune becomes a job at once, which is then followed. */
static int ask_kernel(fa_tuner *tuner, fa_ask *ask, const fa_request *request,
                      fa_answer *ret_answer, fa_remote_cubin *ret_cubin, fa_diag *diag)
{
    struct followed_tune tune = {
        .request = request,
        .began_ms = fa_remote_now_ms(),
        .last = {.kind = FA_EVENT_PROGRESS, .stage = FA_STAGE_WAIT, .left_s = -1}};
    fa_follower follower = {on_tune_event, on_tune_idle, &tune};
    char *body = NULL;
    fa_buf text = {0};
    fa_diag why = {{0}};
    ask->size = sizeof *ask;
    ask->timeout_ms = 1;
    int rc = fa_ask_write(ask, &body, diag);
    fa_http_call post = {.method = "POST",
                         .path = "/v1/kernel",
                         .body = body,
                         .limit = FA_REMOTE_REPLY_MAX,
                         .whole_ms = FA_REMOTE_ASK_MS};
    if (rc == 0)
        rc = post_and_follow(tuner, &post, 504, &follower, &text, diag);
    if (rc == 0 && read_kernel_reply(&text, &ask->problem, ret_answer, ret_cubin, &why) != 0)
        rc = fa_remote_give_up(tuner, why.text);
    fa_buf_free(&text);
    free(body);
    return rc;
}

/* The device as the server may know it: by its uuid, else as one of its type. */
static void name_device(const fa_gpu *gpu, fa_ask *ask)
{
    fa_gpu type;
    snprintf(ask->uuid, sizeof ask->uuid, "%s", gpu->uuid);
    if (fa_catalogue_match(gpu, &type) == 0)
        snprintf(ask->gpu, sizeof ask->gpu, "%s", type.name);
}

/* Whether the server has a device of this silicon; a server that cannot list its devices is assumed to have one. */
static int server_has_silicon(fa_tuner *tuner, const fa_gpu *gpu, bool *ret_has, fa_diag *diag)
{
    char silicon[FA_SILICON_MAX];
    cJSON *json = NULL;
    fa_diag why = {{0}};
    fa_http_reply reply;
    fa_http_call call = {
        .method = "GET", .path = "/v1/gpus", .limit = GPUS_MAX, .whole_ms = FA_REMOTE_ASK_MS};
    *ret_has = true;
    int rc = fa_remote_ask(tuner, &call, 200, &reply, diag);
    if (rc != 0)
        return rc == FA_ENOTFOUND ? 0 : rc;
    rc = fa_wire_parse(reply.body.data, reply.body.size, GPUS_MAX, "gpus", &json, &why);
    fa_buf_free(&reply.body);
    if (rc != 0)
        return fa_remote_give_up(tuner, why.text);
    fa_gpu_silicon(gpu, silicon);
    *ret_has = false;
    const cJSON *device;
    cJSON_ArrayForEach (device, cJSON_GetObjectItemCaseSensitive(json, "devices")) {
        const char *text =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(device, "silicon"));
        *ret_has = *ret_has || (text != NULL && strcmp(text, silicon) == 0);
    }
    cJSON_Delete(json);
    return 0;
}

/* For a device that is here. A server without a device of that silicon would compile the whole space and then
 * predict: a request for a measurement uses the server's stored measurement if there is one, and else measures
 * here. */
static int ask_for_device(fa_tuner *tuner, fa_ask *ask, const fa_gpu *gpu,
                          const fa_request *request, fa_answer *ret_answer,
                          fa_remote_cubin *ret_cubin, fa_diag *diag)
{
    bool can = true, anew = ask->again || ask->effort == FA_EFFORT_PATIENT;
    fa_effort effort = ask->effort;
    int rc = effort >= FA_EFFORT_MEASURE ? server_has_silicon(tuner, gpu, &can, diag) : 0;
    name_device(gpu, ask);
    if (rc != 0 || can)
        return rc != 0 ? rc : ask_kernel(tuner, ask, request, ret_answer, ret_cubin, diag);
    ask->effort = FA_EFFORT_CACHED;
    rc = anew ? FA_ENOTFOUND : ask_kernel(tuner, ask, request, ret_answer, ret_cubin, diag);
    if (rc != 0 && rc != FA_ENOTFOUND)
        return rc;
    fa_answer here = rc == 0 ? *ret_answer : (fa_answer){.size = sizeof(fa_answer)};
    here.gpu = *gpu;
    here.driver_version = 1; /* as if it were proved here */
    return rc == 0 && fa_answer_satisfies(&here, fa_wanted_by(request))
               ? 0
               : fa_remote_do_without(tuner,
                                      "it has nothing measured for this GPU, and none like it "
                                      "to measure on");
}

/* Whether an answer is for the GPU that was asked for: that silicon, or that type. */
static bool is_answer_for(const fa_gpu *asked, const fa_gpu *told)
{
    char one[FA_SILICON_MAX], other[FA_SILICON_MAX];
    fa_gpu type, told_type;
    fa_gpu_silicon(asked, one);
    fa_gpu_silicon(told, other);
    return strcmp(one, other) == 0 ||
           (fa_catalogue_match(asked, &type) == 0 && fa_catalogue_match(told, &told_type) == 0 &&
            strcmp(type.name, told_type.name) == 0);
}

static int refuse_memory(fa_diag *diag)
{
    return fa_fail(
        diag, FA_EINVAL,
        "\"memory\" bounds tunes on this machine, and a service tunes in its place: leave "
        "it out, or name no service");
}

int fa_remote_tune(fa_tuner *tuner, const fa_request *request, fa_answer *ret_answer, fa_diag *diag)
{
    fa_ask ask = {.problem = request->problem,
                  .ordinal = request->ordinal,
                  .effort = request->effort,
                  .again = request->again,
                  .exact = request->exact,
                  .first_contact = request->first_contact,
                  .evaluations = request->evaluations,
                  .seconds = request->seconds};
    fa_remote_cubin cubin;
    fa_gpu gpu;
    if (!fa_remote_usable(tuner))
        return FA_SOURCE_NONE;
    if (request->memory > 0 || tuner->memory > 0)
        return refuse_memory(diag);
    if (request->strategy != NULL)
        snprintf(ask.strategy, sizeof ask.strategy, "%s", request->strategy);
    int rc = fa_problem_check(&request->problem, diag);
    if (rc == 0 && request->gpu != NULL)
        rc = fa_catalogue_find(request->gpu, &gpu, diag);
    if (rc != 0)
        return rc;
    if (request->gpu != NULL) {
        snprintf(ask.gpu, sizeof ask.gpu, "%s", gpu.name);
    } else {
        /* A device of this machine, where it has any; else one of the server's. */
        pthread_mutex_lock(&tuner->work);
        rc = fa_tuner_driver(tuner, NULL);
        if (rc == 0)
            rc = fa_driver_device(tuner->driver, request->ordinal, &gpu, NULL);
        pthread_mutex_unlock(&tuner->work);
    }
    bool named = rc == 0;
    rc = named && request->gpu == NULL
             ? ask_for_device(tuner, &ask, &gpu, request, ret_answer, &cubin, diag)
             : ask_kernel(tuner, &ask, request, ret_answer, &cubin, diag);
    return rc == 0 && named && !is_answer_for(&gpu, &ret_answer->gpu)
               ? fa_remote_give_up(tuner, "its answer is for another GPU than the one asked for")
               : rc;
}

int fa_remote_kernel(fa_tuner *tuner, const fa_problem *problem, const fa_gpu *gpu,
                     fa_effort effort, fa_answer *ret_answer, fa_remote_cubin *ret_cubin,
                     fa_diag *diag)
{
    fa_request silent = {.size = sizeof silent};
    fa_ask ask = {
        .problem = *problem, .effort = effort, .first_contact = effort == FA_EFFORT_MEASURE};
    return fa_remote_usable(tuner)
               ? ask_for_device(tuner, &ask, gpu, &silent, ret_answer, ret_cubin, diag)
               : FA_SOURCE_NONE;
}

/* ---- sweeps ---------------------------------------------------------------------------------*/
struct followed_sweep {
    fa_tuner *tuner;
    const fa_sweep_request *request;
    fa_sweep_progress last;
    fa_sweep_parts parts;
    bool heard;
    bool *ended; /* of each item: whether its end was reported */
};

static int on_sweep_event(void *context, const char *data, size_t size)
{
    struct followed_sweep *s = context;
    if (fa_sweep_event_read(data, size, &s->last, &s->parts, NULL) != 0 ||
        s->last.index >= s->request->count)
        return FA_ECORRUPT;
    s->heard = true;
    if (s->last.event == FA_SWEEP_ITEM_ENDS || s->last.event == FA_SWEEP_ITEM_KNOWN)
        s->ended[s->last.index] = true;
    return s->request->progress != NULL && s->request->progress(s->request->context, &s->last) != 0;
}

/* Repeats the last event while an item is being tuned, so that a caller can stop it. */
static int on_sweep_idle(void *context)
{
    struct followed_sweep *s = context;
    if (!s->heard || s->last.event != FA_SWEEP_ITEM_TUNES || s->request->progress == NULL)
        return 0;
    return s->request->progress(s->request->context, &s->last) != 0;
}

/* Items that ended before the first event, or while this client was slow, are asked for one by one and
 * reported as known. */
static int report_unheard_items(struct followed_sweep *s, const fa_sweep *sweep, fa_diag *diag)
{
    const fa_sweep_request *request = s->request;
    int rc = 0;
    for (int32_t i = 0; i < request->count && rc == 0 && request->progress != NULL; i++) {
        fa_sweep_item item = request->items[i];
        fa_request silent = {.size = sizeof silent};
        fa_ask ask = {.problem = item.problem,
                      .ordinal = request->ordinal,
                      .exact = request->exact,
                      .effort = FA_EFFORT_CACHED};
        fa_remote_cubin cubin;
        fa_answer answer;
        if (s->ended[i])
            continue;
        memcpy(ask.gpu, item.gpu, sizeof ask.gpu);
        rc = ask_kernel(s->tuner, &ask, &silent, &answer, &cubin, diag);
        bool known = rc == 0;
        if (rc != 0 && rc != FA_ENOTFOUND)
            return rc;
        item.state = known                           ? FA_ITEM_DONE
                     : sweep->state == FA_SWEEP_DONE ? FA_ITEM_FAILED
                                                     : FA_ITEM_PENDING;
        if (item.state == FA_ITEM_FAILED)
            snprintf(item.reason, sizeof item.reason, "the server has no winner for it");
        fa_sweep_progress told = {.event = known ? FA_SWEEP_ITEM_KNOWN : FA_SWEEP_ITEM_ENDS,
                                  .sweep = sweep,
                                  .index = i,
                                  .item = &item,
                                  .answer = known ? &answer : NULL,
                                  .left_s = -1};
        rc = request->progress(request->context, &told) != 0
                 ? fa_fail(diag, FA_ECANCELED, "canceled after the sweep's end")
                 : 0;
    }
    return rc;
}

static int read_sweep(const cJSON *json, void *ret_sweep, fa_diag *diag)
{
    return fa_wire_read_sweep(cJSON_GetObjectItemCaseSensitive(json, "sweep"), ret_sweep, diag);
}

int fa_remote_sweep(fa_tuner *tuner, const fa_sweep_request *request, fa_sweep *ret_sweep,
                    fa_diag *diag)
{
    struct followed_sweep s = {.tuner = tuner, .request = request};
    fa_follower follower = {on_sweep_event, on_sweep_idle, &s};
    char *body = NULL;
    fa_buf text = {0};
    fa_diag why = {{0}};
    if (!fa_remote_usable(tuner))
        return FA_SOURCE_NONE;
    int rc = tuner->memory > 0 ? refuse_memory(diag) : fa_sweep_ask_write(request, &body, diag);
    if (rc != 0)
        return rc;
    fa_http_call post = {.method = "POST",
                         .path = "/v1/sweeps",
                         .body = body,
                         .limit = FA_REMOTE_REPLY_MAX,
                         .whole_ms = FA_REMOTE_LONG_MS};
    s.ended = calloc((size_t)request->count, sizeof *s.ended);
    rc = s.ended != NULL ? post_and_follow(tuner, &post, 202, &follower, &text, diag)
                         : fa_fail(diag, FA_ENOMEM, "out of memory for a sweep");
    if (rc == 0 && fa_wire_read(text.data, text.size, FA_REMOTE_REPLY_MAX, "reply", read_sweep,
                                ret_sweep, &why) != 0)
        rc = fa_remote_give_up(tuner, why.text);
    else if (rc == 0)
        rc = report_unheard_items(&s, ret_sweep, diag);
    else if (s.heard)
        *ret_sweep = s.parts.sweep; /* how far it came */
    fa_buf_free(&text);
    free(body);
    free(s.ended);
    return rc;
}
