/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of compile workers: starting, handing out, and what comes back.
 */
#include "compile_pool.h"

#include "error.h"
#include "json.h"
#include "spec.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { START_TIMEOUT_MS = 30000, STARTS_IN_VAIN = 3 };

/* ---- a worker's first words -----------------------------------------------------------------*/
static int start_child(const fa_compile_setup *setup, const fa_child_events *events, void *context,
                       fa_child **ret_child, fa_diag *diag)
{
    char major[16], minor[16];
    const fa_nvrtc_location *nvrtc = setup->nvrtc;
    char *const arguments[] = {"fa-tune-worker",
                               "compile",
                               (char *)(uintptr_t)nvrtc->library,
                               (char *)(uintptr_t)nvrtc->builtins,
                               major,
                               minor,
                               NULL};
    char *const nothing[] = {NULL}; /* a source could read the environment */
    snprintf(major, sizeof major, "%d", nvrtc->major);
    snprintf(minor, sizeof minor, "%d", nvrtc->minor);
    return fa_child_start(setup->loop, setup->worker_path, arguments, nothing, events, context,
                          ret_child, diag);
}

/* What a worker says once it has loaded NVRTC, or could not. */
static int read_greeting(const fa_message *message, bool *ret_confined, const char **ret_text)
{
    int64_t rc = FA_EWORKER;
    *ret_text = "no reason given";
    *ret_confined = false;
    fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
    fa_json_text(message->json, "text", ret_text, "message", NULL);
    fa_json_bool(message->json, "confined", ret_confined, "message", NULL);
    return (int)rc;
}

static void put_header(fa_buf *blob, const char *name, const char *text)
{
    fa_buf_append(blob, name, strlen(name) + 1);
    fa_buf_append(blob, text, strlen(text) + 1);
}

/* What sources are compiled with: files behind the message, each its name and its text, with their NULs. */
static int send_headers(fa_child *child, const fa_templates *templates, fa_diag *diag)
{
    const fa_compiled_with *with = templates != NULL ? templates->with : NULL;
    FA_ENDS(fa_buf_free) fa_buf blob = {0};
    FA_ENDS(fa_json_end) cJSON *json = cJSON_CreateObject();
    fa_json_add_text(json, "do", "headers");
    for (int i = 0; templates != NULL && i < templates->count; i++) {
        const fa_template_file *file = &templates->file[i];
        const char *dot = strrchr(file->name, '.');
        if (dot != NULL && (strcmp(dot, ".cuh") == 0 || strcmp(dot, ".h") == 0))
            put_header(&blob, file->name, file->text);
    }
    for (int i = 0; with != NULL && i < with->header_count; i++)
        put_header(&blob, with->header[i].name, with->header[i].text);
    fa_json_add_number(json, "cuda", with != NULL ? with->cuda_headers : 0);
    cJSON *options = with != NULL ? fa_json_add_array(json, "options") : NULL;
    for (int i = 0; with != NULL && i < with->option_count; i++)
        fa_json_push(options, cJSON_CreateString(with->option[i]));
    return blob.failed ? fa_fail(diag, FA_ENOMEM, "out of memory for headers")
                       : fa_child_send(child, json, blob.data, blob.size, START_TIMEOUT_MS, diag);
}

/* ---- answers --------------------------------------------------------------------------------*/
/* What a source may not have, in the words behind a mark in an #error, or in a static_assert's quotes: FILE:LINE: …. */
static bool read_refusal(const char *text, char *ret, size_t size)
{
    const char *at = strstr(text, FA_SPEC_REFUSED), *line = strchr(text, '(');
    if (at == NULL || line == NULL || line > at)
        return false;
    const int mark = sizeof FA_SPEC_REFUSED - 1, length = (int)strlen(at) - (at[-1] == '"');
    snprintf(ret, size, "%.*s:%ld: %.*s", (int)(line - text), text, strtol(line + 1, NULL, 10),
             length - mark, at + mark);
    return true;
}

/* Adds to the compiler's sentence what the source's reading left out, which may be its cause. `room` must outlive the
 * result's use. */
static void advise(const fa_compile_pool *pool, fa_compile_result *result, char room[1024])
{
    const fa_compiled_with *with = pool->setup.templates->with;
    if (result->rc != FA_ECOMPILE || with == NULL || with->left[0] == 0)
        return;
    snprintf(room, 1024, "%.600s: left out of the source is %.300s", result->text, with->left);
    for (char *line = room; (line = strchr(line, '\n')) != NULL;)
        *line = line[1] != 0 ? ',' : 0;
    result->text = room;
}

static void take_answer(fa_compile_pool *pool, int id, fa_message *message)
{
    fa_compile_result result = {.text = "no reason given", .log = ""};
    int64_t rc = FA_ECOMPILE;
    char refusal[512], advised[1024];
    fa_json_int(message->json, "rc", INT32_MIN, 0, &rc, "message", NULL);
    fa_json_text(message->json, "text", &result.text, "message", NULL);
    fa_json_text(message->json, "log", &result.log, "message", NULL);
    fa_json_number(message->json, "ms", &result.ms, "message", NULL);
    if (read_refusal(result.text, refusal, sizeof refusal)) {
        rc = FA_EMANIFEST;
        result.text = refusal;
    }
    if (!(result.ms >= 0))
        result.ms = 0;
    result.rc = rc == 0 && message->blob == NULL ? FA_ECOMPILE : (int)rc;
    result.cubin = message->blob;
    result.size = message->blob_size;
    message->blob = NULL;
    advise(pool, &result, advised);
    pool->events->ended(pool->context, id, &result);
    free(result.cubin);
}

static void lose_task(fa_compile_pool *pool, int id, const char *reason, fa_child_end end)
{
    char text[256];
    fa_compile_result result = {
        .rc = FA_EWORKER, .lost = true, .end = end, .text = text, .log = ""};
    snprintf(text, sizeof text, "the compiler %s", reason);
    pool->events->ended(pool->context, id, &result);
}

static void answered(fa_child *child, fa_message *message)
{
    struct fa_compile_worker *worker = fa_child_context(child);
    fa_compile_pool *pool = worker->pool;
    if (!worker->ready) {
        const char *text;
        bool confined;
        int rc = read_greeting(message, &confined, &text);
        char sentence[512];
        snprintf(sentence, sizeof sentence, "compile worker: %s", text);
        if (rc != 0) {
            pool->events->failed(pool->context, rc, sentence);
            return;
        }
        worker->ready = true;
        pool->starts_in_vain = 0;
        pool->reads_files = pool->reads_files || !confined;
    } else if (worker->busy) {
        int64_t serial = -1;
        worker->busy = false;
        pool->busy--;
        fa_json_int(message->json, "id", 0, INT32_MAX, &serial, "message", NULL);
        if (serial == worker->serial) {
            take_answer(pool, worker->id, message);
        } else { /* nothing more that it says is believed */
            fa_child_stop(&worker->child);
            lose_task(pool, worker->id, "answered out of turn", FA_CHILD_DIED);
        }
    }
    pool->events->changed(pool->context);
}

static void gone(fa_child *child, const char *reason, fa_child_end end)
{
    struct fa_compile_worker *worker = fa_child_context(child);
    fa_compile_pool *pool = worker->pool;
    bool busy = worker->busy;
    worker->child = NULL;
    worker->busy = false;
    pool->busy -= busy;
    if (busy) {
        lose_task(pool, worker->id, reason, end);
    } else if (!worker->ready && ++pool->starts_in_vain >= STARTS_IN_VAIN) {
        char sentence[512];
        snprintf(sentence, sizeof sentence, "compile worker %.180s with %.180s: %.120s",
                 pool->setup.worker_path, pool->setup.nvrtc->library, reason);
        pool->events->failed(pool->context, FA_EWORKER, sentence);
    }
    pool->events->changed(pool->context);
}

/* ---- handing out ----------------------------------------------------------------------------*/
static bool start_worker(fa_compile_pool *pool, struct fa_compile_worker *worker)
{
    static const fa_child_events events = {answered, gone};
    fa_diag diag = {{0}};
    *worker = (struct fa_compile_worker){.pool = pool};
    int rc = start_child(&pool->setup, &events, worker, &worker->child, &diag);
    if (rc == 0) {
        fa_child_yield(worker->child, pool->setup.nice);
        rc = send_headers(worker->child, pool->setup.templates, &diag);
    }
    if (rc != 0)
        pool->events->failed(pool->context, rc, diag.text);
    return rc == 0;
}

static void give_task(fa_compile_pool *pool, struct fa_compile_worker *worker,
                      fa_compile_task *task)
{
    fa_diag diag = {{0}};
    FA_ENDS(fa_json_end) cJSON *json = cJSON_CreateObject();
    worker->serial = pool->serials++ % INT32_MAX;
    worker->id = task->id;
    worker->busy = true;
    pool->busy++;
    fa_json_add_text(json, "do", "compile");
    fa_json_add_number(json, "id", (double)worker->serial);
    fa_json_add_text(json, "name", task->name);
    fa_json_add_text(json, "architecture", task->architecture);
    fa_json_add_text(json, "source", task->source);
    int rc = fa_child_send(worker->child, json, NULL, 0, pool->setup.timeout_ms, &diag);
    free(task->source);
    if (rc != 0)
        pool->events->failed(pool->context, rc, diag.text);
}

void fa_compile_pool_advance(fa_compile_pool *pool)
{
    for (int i = 0; i < pool->count && !pool->setup.loop->stopped; i++) {
        struct fa_compile_worker *worker = &pool->worker[i];
        fa_compile_task task = {0}; /* the one that waits, else the owner's next */
        if (worker->child != NULL && (!worker->ready || worker->busy))
            continue;
        if (pool->has_held)
            task = pool->held;
        else if (!pool->events->next(pool->context, &task))
            break;
        pool->has_held = false;
        if (worker->child != NULL) {
            give_task(pool, worker, &task);
            continue;
        }
        pool->held = task; /* for whoever is ready first */
        pool->has_held = true;
        if (!start_worker(pool, worker))
            break;
    }
}

void fa_compile_pool_widen(fa_compile_pool *pool, int count)
{
    if (count > pool->count)
        pool->count = count < FA_WORKERS_MAX ? count : FA_WORKERS_MAX;
}

void fa_compile_pool_start_all(fa_compile_pool *pool)
{
    for (int i = 0; i < pool->count; i++)
        if (pool->worker[i].child == NULL && !start_worker(pool, &pool->worker[i]))
            return;
}

void fa_compile_pool_stop(fa_compile_pool *pool)
{
    for (int i = 0; i < pool->count; i++)
        fa_child_kill(pool->worker[i].child); /* they die side by side */
    for (int i = 0; i < pool->count; i++)
        fa_child_stop(&pool->worker[i].child);
    if (pool->has_held)
        free(pool->held.source);
    pool->has_held = false;
    pool->busy = 0;
}

/* ---- a trial --------------------------------------------------------------------------------*/
struct trying {
    fa_child *child;
    int rc;
    fa_diag *diag;
};

static void tried(fa_child *child, fa_message *message)
{
    struct trying *trying = fa_child_context(child);
    const char *text;
    bool confined;
    trying->rc = read_greeting(message, &confined, &text);
    if (trying->rc != 0)
        fa_fail(trying->diag, trying->rc, "%s", text);
    fa_child_stop(&trying->child);
}

static void tried_in_vain(fa_child *child, const char *reason, fa_child_end end)
{
    struct trying *trying = fa_child_context(child);
    trying->rc = fa_fail(trying->diag,
                         end == FA_CHILD_SHORT       ? FA_ENOMEM
                         : end == FA_CHILD_TIMED_OUT ? FA_ETIMEOUT
                                                     : FA_EWORKER,
                         "the worker %s", reason);
}

int fa_compile_worker_try(const char *worker_path, const fa_nvrtc_location *nvrtc, fa_diag *diag)
{
    enum { PATIENCE_MS = 20000 };
    static const fa_child_events events = {tried, tried_in_vain};
    fa_loop loop = {0};
    struct trying trying = {.rc = FA_EWORKER, .diag = diag};
    fa_compile_setup setup = {.loop = &loop, .worker_path = worker_path, .nvrtc = nvrtc};
    FA_OR_RETURN(start_child(&setup, &events, &trying, &trying.child, diag));
    fa_child_deadline(trying.child, PATIENCE_MS);
    fa_loop_run(&loop);
    fa_loop_close(&loop);
    return trying.rc;
}

/* ---- which NVRTC -----------------------------------------------------------------------------*/
/* What this process tried: a trial takes a tenth of a second. */
static struct {
    pthread_mutex_t lock;
    struct {
        fa_nvrtc_location nvrtc;
        int rc;
        fa_diag diag;
    } at[8];
    int count;
} trials = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int try_once(void *context, const fa_nvrtc_location *nvrtc, fa_diag *diag)
{
    const char *worker_path = context;
    FA_HOLDS(&trials.lock);
    for (int i = 0; i < trials.count; i++)
        if (strcmp(trials.at[i].nvrtc.library, nvrtc->library) == 0 &&
            strcmp(trials.at[i].nvrtc.identity, nvrtc->identity) == 0) {
            *diag = trials.at[i].diag;
            return trials.at[i].rc;
        }
    const int rc = fa_compile_worker_try(worker_path, nvrtc, diag);
    const bool passes = rc == FA_ENOMEM || rc == FA_ETIMEOUT || rc == FA_EWORKER;
    if (trials.count < 8 && !passes) {
        trials.at[trials.count].nvrtc = *nvrtc;
        trials.at[trials.count].rc = rc;
        trials.at[trials.count++].diag = *diag;
    }
    return rc;
}

int fa_compiler_choose(const char *worker_path, int sm, fa_nvrtc_location *ret_nvrtc,
                       fa_buf *passed, fa_diag *diag)
{
    return fa_nvrtc_choose(&(fa_nvrtc_judge){.since = fa_nvrtc_since(sm),
                                             .try = try_once,
                                             .context = (void *)(uintptr_t)worker_path,
                                             .passed = passed},
                           ret_nvrtc, diag);
}
