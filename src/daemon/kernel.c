/* SPDX-License-Identifier: Apache-2.0
 *
 * POST /v1/kernel: from memory, else a lookup, else a tune, which reports its progress on the same reply.
 *
 * The engine alone knows which requests share a winner: of two tunes of one key the second finds what the first has
 * stored, or goes on where that was canceled. A tune is canceled when its client leaves; when the client's time is over it
 * goes on.
 */
#include "service.h"

#include "error.h"
#include "json.h"
#include "problem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TICK_MS = 100, NEWS_MS = 100, ALIVE_TICKS = 100 };

typedef struct serve_kernel {
    serve_work work; /* first */
    struct serve_kernel *next;
    int64_t epoch, looked_ms; /* of the lookup, for the cache */
    /* run()'s: */
    fa_ask ask;
    fa_gpu gpu;    /* that the answer is for */
    bool answered; /* by what is stored */
    int64_t told_ms;
    /* A tune's: */
    int64_t due_ms;   /* 0: its client waits as long as it takes */
    int64_t accepted; /* Unix time */
    atomic_int_least64_t started;
    atomic_bool cancel;
    bool quiet; /* its client hears that the tune is under way, and its end */
    /* Under news_lock: the last progress as JSON, and whether its client has not heard it yet. */
    char *progress;
    bool is_news;
} serve_kernel;

/* ---- answers from memory ---------------------------------------------------------------------*/
/* Workload: some to some thousands of different requests, each sent again and again. A hit allocates nothing.
 * Invariants: an answer that is older than a second is looked up again, by one request at a time, and is given for another
 * few seconds at most while that takes; after a tune of this service no older answer is given at all. */
enum {
    FRESH_MS = 1000,
    STALE_MS = 5000,
    REQUEST_MAX = 4096 /* larger ones are looked up each time */
};

static uint64_t hash_of(const fa_buf *request)
{
    unsigned char digest[FA_HASH_BYTES];
    uint64_t hash;
    fa_hash_raw(request->data, request->size, digest);
    memcpy(&hash, digest, sizeof hash);
    return hash;
}

static void drop(struct serve_cached *slot)
{
    if (slot->response != NULL)
        MHD_destroy_response(slot->response);
    free(slot->request);
    *slot = (struct serve_cached){0};
}

/* The response, which the cache owns, or NULL. *ret_stale: the caller looks it up again. */
static struct MHD_Response *cache_get(serve_cache *cache, const fa_buf *request, int64_t now_ms,
                                      bool *ret_stale)
{
    const uint64_t hash = hash_of(request);
    struct serve_cached *slot = &cache->slot[hash % SERVE_CACHE_SLOTS];
    const int64_t age_ms = now_ms - slot->looked_ms;
    if (slot->response == NULL || slot->hash != hash || slot->size != request->size ||
        memcmp(slot->request, request->data, request->size) != 0 || age_ms > STALE_MS)
        return NULL;
    *ret_stale = age_ms > FRESH_MS && !slot->asked;
    slot->asked = slot->asked || *ret_stale;
    return slot->response;
}

/* Keeps a copy of the answer that was looked up from `looked_ms` on, unless the cache was emptied since. NULL: it is gone. */
static void cache_put(serve_cache *cache, const fa_buf *request, const char *answer, int64_t epoch,
                      int64_t looked_ms)
{
    const uint64_t hash = hash_of(request);
    struct serve_cached *slot = &cache->slot[hash % SERVE_CACHE_SLOTS];
    if (request->size > REQUEST_MAX || epoch != cache->epoch)
        return;
    drop(slot);
    if (answer == NULL)
        return;
    *slot =
        (struct serve_cached){.hash = hash,
                              .request = malloc(request->size),
                              .size = request->size,
                              .response = MHD_create_response_from_buffer(
                                  strlen(answer), (void *)(uintptr_t)answer, MHD_RESPMEM_MUST_COPY),
                              .looked_ms = looked_ms};
    if (slot->request == NULL || slot->response == NULL) {
        drop(slot);
        return;
    }
    memcpy(slot->request, request->data, request->size);
    MHD_add_response_header(slot->response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
}

/* ---- on other threads ------------------------------------------------------------------------*/
/* The request of an ask, into which it points. */
static int request_of(const serve_service *service, const fa_ask *ask, fa_request *ret_request,
                      fa_diag *diag)
{
    const fa_gpu *device = NULL;
    for (int i = 0; ask->uuid[0] != 0 && device == NULL && i < service->device.count; i++)
        if (strcmp(service->device.gpu[i].uuid, ask->uuid) == 0)
            device = &service->device.gpu[i];
    if (ask->gpu[0] == 0 && device == NULL && ask->uuid[0] != 0)
        return fa_fail(diag, FA_ENODEVICE,
                       "no device here has the uuid %s: GET /v1/jobs lists them", ask->uuid);
    if (ask->gpu[0] == 0 && service->device.code != 0)
        return fa_fail(diag, service->device.code, "%s", service->device.reason.text);
    *ret_request = ask->request;
    if (device != NULL)
        ret_request->ordinal = device->ordinal;
    else if (ask->gpu[0] != 0)
        ret_request->gpu = ask->gpu;
    return 0;
}

static int write_kernel(serve_work *work, const fa_answer *answer, fa_diag *diag)
{
    char *text = NULL;
    FA_OR_RETURN(fa_answer_write(answer, &text, diag));
    fa_buf_printf(&work->text, "{\"answer\":%s}", text);
    free(text);
    return fa_have(!work->text.failed, "an answer", diag);
}

static int look_up(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    serve_kernel *kernel = (serve_kernel *)work;
    fa_request request;
    fa_found found = {.size = sizeof found};
    FA_OR_RETURN(fa_ask_read(work->body.data != NULL ? work->body.data : "", work->body.size,
                             &kernel->ask, diag));
    FA_OR_RETURN(request_of(work->service, &kernel->ask, &request, diag));
    FA_OR_RETURN(fa_find(tuner, &request, &found, diag));
    kernel->gpu = found.gpu;
    kernel->answered = found.answered;
    if (found.answered)
        return write_kernel(work, &found.answer, diag);
    /* A client's own GPU is measured where it is. */
    if (kernel->ask.uuid[0] != 0 && !found.gpu.present && request.effort >= FA_EFFORT_MEASURE)
        return fa_fail(diag, FA_ENODEVICE, "this service has no %s: measure where that GPU is",
                       found.gpu.name);
    return 0;
}

static int report_progress(void *context, const fa_progress *progress)
{
    serve_kernel *kernel = context;
    serve_service *service = kernel->work.service;
    const int64_t now_ms = (int64_t)(uv_hrtime() / 1000000);
    char *text;
    if ((progress->kind != FA_EVENT_STAGE && now_ms - kernel->told_ms < NEWS_MS) ||
        fa_progress_write(progress, &text, NULL) != 0)
        return atomic_load(&kernel->cancel);
    kernel->told_ms = now_ms;
    pthread_mutex_lock(&service->news_lock);
    FA_ENDS(fa_free_at) char *older = kernel->progress;
    kernel->progress = text;
    kernel->is_news = true;
    pthread_mutex_unlock(&service->news_lock);
    return atomic_load(&kernel->cancel);
}

static int tune(serve_work *work, fa_tuner *tuner, fa_diag *diag)
{
    serve_kernel *kernel = (serve_kernel *)work;
    fa_answer answer = {.size = sizeof answer};
    fa_request request;
    if (atomic_load(&kernel->cancel))
        return fa_fail(diag, FA_ECANCELED, "the tune was canceled");
    atomic_store(&kernel->started, (int64_t)time(NULL));
    int rc = request_of(work->service, &kernel->ask, &request, diag);
    request.progress = report_progress;
    request.context = kernel;
    if (rc == 0)
        rc = fa_tune(tuner, &request, &answer, diag);
    return rc != 0 ? rc : write_kernel(work, &answer, diag);
}

/* ---- replies --------------------------------------------------------------------------------*/
static void free_kernel(serve_kernel *kernel)
{
    free(kernel->progress);
    serve_work_free(&kernel->work);
}

/* The client that waits, who is answered now; NULL: nobody does. */
static serve_request *take_client(serve_kernel *kernel)
{
    serve_request *request = kernel->work.request;
    kernel->work.request = NULL;
    return request;
}

static void fail(serve_kernel *kernel, int code, const char *message)
{
    serve_request *request = take_client(kernel);
    if (request != NULL)
        serve_reply_failure(request, 0, code, message);
}

static void answer(serve_kernel *kernel)
{
    serve_request *request = take_client(kernel);
    if (request != NULL && request->streams)
        serve_stream_event(request, "done", kernel->work.text.data, true);
    else if (request != NULL)
        serve_reply_json(request, MHD_HTTP_OK, serve_text_of(&kernel->work.text));
}

/* ---- tunes ----------------------------------------------------------------------------------*/
static void left(serve_request *request)
{
    serve_kernel *kernel = request->waits_in;
    take_client(kernel);
    atomic_store(&kernel->cancel, true);
}

static void tuned(serve_work *work)
{
    serve_kernel *kernel = (serve_kernel *)work, **at = &work->service->kernels;
    serve_cache *cache = &work->service->cache;
    while (*at != kernel)
        at = &(*at)->next;
    *at = kernel->next;
    serve_log("level=info event=\"tune ended\" gpu=\"%s\" reason=\"%s\"", kernel->gpu.name,
              work->rc != 0 ? work->diag.text : "");
    if (work->rc != 0) {
        fail(kernel, work->rc, work->diag.text);
    } else {
        cache->epoch++;
        for (int i = 0; i < SERVE_CACHE_SLOTS; i++)
            if (cache->slot[i].response != NULL) /* a page that was never written takes no memory */
                drop(&cache->slot[i]);
        answer(kernel);
    }
    free_kernel(kernel);
}

static bool wants_events(const serve_request *request)
{
    const char *accepted = serve_header(request, MHD_HTTP_HEADER_ACCEPT);
    return accepted != NULL && strstr(accepted, "text/event-stream") != NULL;
}

static void begin_tune(serve_kernel *kernel)
{
    serve_work *work = &kernel->work;
    serve_service *service = work->service;
    const fa_gpu *gpu = &kernel->gpu;
    const char *accepted = serve_header(work->request, MHD_HTTP_HEADER_ACCEPT);
    const bool streams = wants_events(work->request);
    const int64_t wait_ms = kernel->ask.timeout_ms > 0
                                ? kernel->ask.timeout_ms
                                : (int64_t)(service->settings->options.serve.wait_s * 1000);
    kernel->quiet = streams && strstr(accepted, "progress=no") != NULL;
    if (streams)
        serve_stream(work->request);
    work->request->left = left;
    service->tuned++;
    kernel->accepted = (int64_t)time(NULL);
    kernel->due_ms =
        streams && kernel->ask.timeout_ms == 0 ? 0 : (int64_t)uv_now(service->loop) + wait_ms;
    kernel->next = service->kernels;
    service->kernels = kernel;
    work->run = tune;
    work->done = tuned;
    work->lane =
        1 + (gpu->present && gpu->ordinal < SERVE_DEVICES_MAX ? gpu->ordinal : SERVE_DEVICES_MAX);
    serve_log("level=info event=\"tune accepted\" gpu=\"%s\"", gpu->name);
    serve_work_submit(&service->tunes, work);
}

/* What the clients that wait hear: news, that the server is there, that their time is over. */
static void tell_clients(uv_timer_t *timer)
{
    serve_service *service = timer->data;
    const bool alive = ++service->ticks % ALIVE_TICKS == 0;
    pthread_mutex_lock(&service->news_lock);
    for (serve_kernel *kernel = service->kernels; kernel != NULL; kernel = kernel->next) {
        serve_request *request = kernel->work.request;
        const bool streams = request != NULL && request->streams;
        if (streams && kernel->is_news && !kernel->quiet)
            serve_stream_event(request, "progress", kernel->progress, false);
        else if (streams && alive)
            serve_stream_comment(request);
        kernel->is_news = false;
        if (kernel->due_ms != 0 && (int64_t)uv_now(service->loop) >= kernel->due_ms)
            fail(kernel, FA_ETIMEOUT,
                 "the tune has not ended within the request's time; it goes on");
    }
    pthread_mutex_unlock(&service->news_lock);
}

/* ---- lookups --------------------------------------------------------------------------------*/
static void looked_up(serve_work *work)
{
    serve_kernel *kernel = (serve_kernel *)work;
    serve_service *service = work->service;
    const bool answered = work->rc == 0 && kernel->answered;
    if (answered || work->request == NULL)
        cache_put(&service->cache, &work->body, answered ? work->text.data : NULL, kernel->epoch,
                  kernel->looked_ms);
    if (work->rc != 0) {
        fail(kernel, work->rc, work->diag.text);
    } else if (answered) {
        answer(kernel);
    } else if (service->tunes.running + service->tunes.waiting >=
               service->settings->options.serve.tunes) {
        fail(kernel, FA_EBUSY, "too many tunes are waiting: come back later");
    } else if (work->request != NULL) {
        begin_tune(kernel);
        return;
    }
    free_kernel(kernel);
}

void serve_post_kernel(serve_service *service, serve_request *request)
{
    const int64_t now_ms = (int64_t)uv_now(service->loop);
    bool stale = false;
    struct MHD_Response *known =
        wants_events(request) ? NULL : cache_get(&service->cache, &request->body, now_ms, &stale);
    serve_kernel *kernel = NULL;
    if (known == NULL || stale) {
        kernel = serve_work_new(service, request, sizeof *kernel);
        if (kernel == NULL)
            return;
        kernel->epoch = service->cache.epoch;
        kernel->looked_ms = now_ms;
        kernel->work.run = look_up;
        kernel->work.done = looked_up;
        service->looked_up++;
    }
    if (known != NULL) {
        service->hits++;
        serve_reply_shared(request, known);
        if (kernel != NULL) /* for the cache alone */
            kernel->work.request = NULL;
    }
    if (kernel != NULL)
        serve_work_submit(&service->lookups, &kernel->work);
}

/* ---- jobs -----------------------------------------------------------------------------------*/
void serve_get_jobs(serve_service *service, serve_request *request)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *devices = fa_json_add_array(json, "devices"), *jobs = fa_json_add_array(json, "jobs");
    for (int i = 0; i < service->device.count; i++)
        fa_json_push(devices, fa_gpu_to_json(&service->device.gpu[i]));
    pthread_mutex_lock(&service->news_lock);
    for (const serve_kernel *kernel = service->kernels; kernel != NULL; kernel = kernel->next) {
        cJSON *job = cJSON_CreateObject();
        FA_ENDS(fa_buf_free) fa_buf words = {0};
        const int64_t started = atomic_load(&kernel->started);
        fa_problem_words(&words, &kernel->ask.request.problem, " · ", false);
        fa_json_add_text(job, "what", words.data != NULL ? words.data : "");
        fa_json_add_text(job, "gpu", kernel->gpu.name);
        fa_json_add_known(job, "ordinal", kernel->gpu.ordinal, kernel->gpu.present);
        fa_json_add_number(job, "accepted", (double)kernel->accepted);
        fa_json_add_known(job, "started", (double)started, started != 0);
        fa_json_add(job, "progress",
                    kernel->progress != NULL ? cJSON_CreateRaw(kernel->progress)
                                             : cJSON_CreateNull());
        fa_json_push(jobs, job);
    }
    pthread_mutex_unlock(&service->news_lock);
    serve_reply_json(request, MHD_HTTP_OK, fa_json_finish(json));
}

/* ---- life -----------------------------------------------------------------------------------*/
void serve_kernels_open(serve_service *service)
{
    service->tick.data = service;
    uv_timer_init(service->loop, &service->tick);
    uv_timer_start(&service->tick, tell_clients, TICK_MS, TICK_MS);
}
