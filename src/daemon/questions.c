/* SPDX-License-Identifier: Apache-2.0
 *
 * What the lookup thread is asked besides flights: to open the store, for lists, for a cubin, and
 * whether the store has changed.
 */
#include "service.h"

#include "buf.h"
#include "error.h"
#include "hash.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>

enum {
    WINNERS_DEFAULT = 100,
    WINNERS_MAX = 10000, /* as fa-tune show asks for; a second or two of the lookup thread */
    WATCH_MS = 1000,
    UNWATCHED_MS = 5000,
    SETTLED_MS = 100
};

struct question {
    serve_task task;
    serve_service *service;
    serve_gathering asker;
    char gpu[64]; /* winners of this type; "": of all */
    int limit;
    char key[65]; /* of a cubin */
    serve_cache_time when;
    int rc;
    fa_diag diag;
    fa_buf text;
    void *bytes;
    size_t size;
};

/* ---- the watch ------------------------------------------------------------------------------*/
static void take_doubt(serve_task *task)
{
    struct question *question = (struct question *)task;
    serve_cache_doubt(question->service->cache);
    free(question);
}

/* A file's times move in steps of some milliseconds: one that was written just now is looked at
 * again. */
void serve_watch(serve_worker *worker, void *context)
{
    serve_service *service = context;
    struct timespec now;
    struct stat st;
    if (service->tuner == NULL)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    int64_t waited = now_ms - service->seen.looked_ms;
    bool watched = stat(fa_store_location(service->tuner), &st) == 0;
    if (waited >= 0 && waited < (watched ? WATCH_MS : UNWATCHED_MS))
        return;
    service->seen.looked_ms = now_ms;
    if (watched) {
        int64_t age = now_ms - ((int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000);
        if (service->seen.seconds == st.st_mtim.tv_sec &&
            service->seen.nanoseconds == st.st_mtim.tv_nsec &&
            service->seen.size == (int64_t)st.st_size && service->seen.inode == (int64_t)st.st_ino)
            return;
        service->seen.seconds = age >= 0 && age < SETTLED_MS ? -1 : st.st_mtim.tv_sec;
        service->seen.nanoseconds = st.st_mtim.tv_nsec;
        service->seen.size = (int64_t)st.st_size;
        service->seen.inode = (int64_t)st.st_ino;
    }
    struct question *doubt = calloc(1, sizeof *doubt);
    if (doubt == NULL)
        return;
    doubt->service = service;
    doubt->task.done = take_doubt;
    serve_mail_post(serve_worker_mail(worker), &doubt->task);
}

void serve_lookup_end(serve_worker *worker, void *context)
{
    serve_service *service = context;
    (void)worker;
    fa_close(&service->tuner);
    serve_guest_close(&service->guest);
}

void serve_devices_know(serve_service *service)
{
    if (service->devices_known)
        return;
    service->devices_known = true;
    while (service->device_count < SERVE_DEVICES_MAX) {
        int i = service->device_count;
        int rc = fa_gpu_device(i, &service->device[i], &service->device_reason);
        if (rc != 0) {
            service->device_code = i == 0 ? rc : 0;
            return;
        }
        service->device_count++;
    }
}

/* ---- asking and answering ---------------------------------------------------------------------*/
static struct question *ask(serve_service *service, serve_exchange *exchange,
                            void (*work)(serve_task *task, serve_worker *worker),
                            void (*done)(serve_task *task))
{
    struct question *question = calloc(1, sizeof *question);
    if (question == NULL) {
        if (exchange != NULL)
            serve_reply_error(exchange, FA_ENOMEM, "out of memory", NULL);
        return NULL;
    }
    question->service = service;
    question->task.work = work;
    question->task.done = done;
    question->when = serve_cache_now(service->cache);
    if (exchange != NULL)
        serve_gather(&question->asker, exchange, 0);
    return question;
}

static void give(struct question *question)
{
    serve_worker_give(question->service->lookup, &question->task);
}

/* The exchange that asked, which waits no longer; NULL: it is gone. */
static serve_exchange *asker(struct question *question)
{
    serve_exchange *exchange = question->asker.first;
    if (exchange != NULL)
        serve_leave(exchange);
    return exchange;
}

static void free_question(struct question *question)
{
    fa_buf_free(&question->text);
    free(question->bytes);
    free(question);
}

static bool reply_failure(struct question *question, serve_exchange *exchange)
{
    if (exchange == NULL)
        return true;
    if (question->task.skipped)
        serve_reply_refused(exchange, MHD_HTTP_SERVICE_UNAVAILABLE, FA_EBUSY,
                            "this server is stopping", 2);
    else if (question->rc != 0)
        serve_reply_error(exchange, question->rc, question->diag.text, NULL);
    else
        return false;
    return true;
}

static void answer_text(serve_task *task)
{
    struct question *question = (struct question *)task;
    serve_exchange *exchange = asker(question);
    if (!reply_failure(question, exchange)) {
        serve_reply_json(exchange, MHD_HTTP_OK, question->text.failed ? NULL : question->text.data);
        if (!question->text.failed)
            question->text = (fa_buf){0}; /* the reply's now */
    }
    free_question(question);
}

/* ---- opening --------------------------------------------------------------------------------*/
static void open_store(serve_task *task, serve_worker *worker)
{
    struct question *question = (struct question *)task;
    fa_options options;
    (void)worker;
    serve_tuner_options(question->service->settings, &options);
    question->rc = fa_open(&options, &question->service->tuner, &question->diag);
}

static void know_devices(serve_task *task, serve_worker *worker)
{
    struct question *question = (struct question *)task;
    (void)worker;
    serve_devices_know(question->service);
}

static void known(serve_task *task)
{
    struct question *question = (struct question *)task;
    serve_service *service = question->service;
    if (!task->skipped)
        service->devices = service->device_count;
    for (int i = 0; !task->skipped && i < service->device_count; i++)
        serve_log(SERVE_INFO, "device", "gpu", service->device[i].name, "uuid",
                  service->device[i].uuid, NULL);
    if (!task->skipped && service->device_count == 0)
        serve_log(SERVE_INFO, "no device here, so answers are predicted", "reason",
                  service->device_reason.text, NULL);
    free_question(question);
}

static void opened(serve_task *task)
{
    struct question *question = (struct question *)task;
    serve_service *service = question->service;
    if (task->skipped || service->stopping) {
        free_question(question);
        return;
    }
    if (question->rc != 0) {
        service->failed = true;
        fa_fail(&service->unready, 0, "%s", question->diag.text);
        service->ready(service->ready_context);
        free_question(question);
        return;
    }
    char hash[FA_HASH_HEX];
    const char *store = fa_store_file(service->tuner);
    const char *slash = strrchr(store, '/');
    const char *identity = service->settings->identity;
    fa_hash_bytes(identity, strlen(identity), hash);
    snprintf(service->store, sizeof service->store, "%s", store);
    snprintf(service->folder, sizeof service->folder, "%.*s/serve-%.12s",
             slash != NULL ? (int)(slash - store) : 1, slash != NULL ? store : ".", hash);
    service->store_open = true;
    fa_fail(&service->unready, 0, "earlier jobs are being read");
    serve_families_sweep(service);
    serve_journal_load(service);
    free_question(question);
    question = ask(service, NULL, know_devices, known);
    if (question != NULL)
        give(question);
}

void serve_ask_open(serve_service *service)
{
    struct question *question = ask(service, NULL, open_store, opened);
    if (question != NULL)
        give(question);
}

/* ---- winners --------------------------------------------------------------------------------*/
static bool same_type(const char *asked, const char *name)
{
    fa_gpu one, other;
    return strcasecmp(fa_gpu_find(asked, &one, NULL) == 0 ? one.name : asked,
                      fa_gpu_find(name, &other, NULL) == 0 ? other.name : name) == 0;
}

static int take_winner(void *context, const fa_answer *answer)
{
    struct question *question = context;
    char *text = NULL;
    if (question->gpu[0] != 0 && !same_type(question->gpu, answer->gpu.name))
        return 0;
    if (question->limit-- <= 0)
        return 1;
    int rc = fa_answer_write(answer, &text, &question->diag);
    if (rc != 0)
        return rc;
    if (question->size++ > 0)
        fa_buf_text(&question->text, ",");
    fa_buf_text(&question->text, text);
    free(text);
    return 0;
}

static void list_winners(serve_task *task, serve_worker *worker)
{
    struct question *question = (struct question *)task;
    (void)worker;
    fa_buf_text(&question->text, "{\"winners\":[");
    int rc = fa_list_winners(question->service->tuner, take_winner, question, &question->diag);
    question->rc = rc < 0 ? rc : 0;
    fa_buf_text(&question->text, "]}");
}

void serve_ask_winners(serve_service *service, serve_exchange *exchange)
{
    const char *gpu = serve_argument(exchange, "gpu"), *limit = serve_argument(exchange, "limit");
    char *end = NULL;
    long most = limit != NULL ? strtol(limit, &end, 10) : WINNERS_DEFAULT;
    if (limit != NULL &&
        (*limit < '0' || *limit > '9' || *end != 0 || most < 1 || most > WINNERS_MAX)) {
        serve_reply_error(exchange, FA_EINVAL, "limit must be 1 to 10000", NULL);
        return;
    }
    if (gpu != NULL && (strlen(gpu) >= sizeof((struct question *)0)->gpu || *gpu == 0)) {
        serve_reply_error(exchange, FA_EINVAL, "gpu must be a name of 1 to 63 bytes", NULL);
        return;
    }
    struct question *question = ask(service, exchange, list_winners, answer_text);
    if (question == NULL)
        return;
    question->limit = (int)most;
    snprintf(question->gpu, sizeof question->gpu, "%s", gpu != NULL ? gpu : "");
    give(question);
}

/* ---- cubins ---------------------------------------------------------------------------------*/
static void read_cubin(serve_task *task, serve_worker *worker)
{
    struct question *question = (struct question *)task;
    fa_answer answer = {0};
    (void)worker;
    memcpy(answer.cubin_key, question->key, sizeof question->key);
    question->rc = fa_answer_cubin(question->service->tuner, &answer, &question->bytes,
                                   &question->size, &question->diag);
}

static void give_cubin(serve_task *task)
{
    struct question *question = (struct question *)task;
    serve_exchange *exchange = asker(question);
    char hash[FA_HASH_HEX], tag[FA_HASH_HEX + 2];
    if (question->rc == 0 && !task->skipped) {
        fa_hash_bytes(question->bytes, question->size, hash);
        snprintf(tag, sizeof tag, "\"%s\"", hash);
        serve_page *page =
            serve_page_make("application/octet-stream", question->bytes, question->size);
        question->bytes = NULL;
        if (page != NULL) {
            serve_page_header(page, MHD_HTTP_HEADER_ETAG, tag);
            serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL,
                              "private, max-age=31536000, immutable");
            serve_cache_put(question->service->cache, 'C', question->key, strlen(question->key),
                            page, question->when, serve_now_ms(question->service));
        }
        if (exchange != NULL)
            serve_reply_cubin(exchange, page);
        serve_page_drop(&page);
    } else {
        reply_failure(question, exchange);
    }
    free_question(question);
}

void serve_reply_cubin(serve_exchange *exchange, serve_page *page)
{
    const char *known = serve_header(exchange, MHD_HTTP_HEADER_IF_NONE_MATCH);
    const char *tag =
        page != NULL ? MHD_get_response_header(page->response, MHD_HTTP_HEADER_ETAG) : NULL;
    if (known == NULL || tag == NULL || strstr(known, tag) == NULL) {
        serve_reply(exchange, MHD_HTTP_OK, page);
        return;
    }
    serve_page *same = serve_page_text("application/octet-stream", "");
    if (same != NULL)
        serve_page_header(same, MHD_HTTP_HEADER_ETAG, tag);
    serve_reply(exchange, MHD_HTTP_NOT_MODIFIED, same);
    serve_page_drop(&same);
}

void serve_ask_cubin(serve_service *service, serve_exchange *exchange, const char *key)
{
    bool refresh;
    if (strlen(key) != 64 || strspn(key, "0123456789abcdef") != 64) {
        serve_reply_error(exchange, FA_ENOTFOUND, "a cubin's key is 64 lower-case hex digits",
                          NULL);
        return;
    }
    serve_page *page =
        serve_cache_get(service->cache, 'C', key, strlen(key), serve_now_ms(service), &refresh);
    if (page != NULL) {
        serve_reply_cubin(exchange, page);
        if (!refresh)
            return;
    }
    struct question *question =
        ask(service, page == NULL ? exchange : NULL, read_cubin, give_cubin);
    if (question == NULL)
        return;
    memcpy(question->key, key, sizeof question->key);
    give(question);
}

/* ---- GPUs -----------------------------------------------------------------------------------*/
static void add_gpu(fa_buf *out, const fa_gpu *gpu, const char *refused, bool first)
{
    char silicon[FA_SILICON_MAX];
    cJSON *object = fa_gpu_to_json(gpu);
    fa_gpu_silicon(gpu, silicon);
    cJSON_AddStringToObject(object, "silicon", silicon);
    if (refused != NULL)
        cJSON_AddStringToObject(object, "refused", refused);
    char *text = object != NULL ? cJSON_PrintUnformatted(object) : NULL;
    cJSON_Delete(object);
    if (!first)
        fa_buf_text(out, ",");
    fa_buf_text(out, text != NULL ? text : "null");
    free(text);
}

static void list_gpus(serve_task *task, serve_worker *worker)
{
    struct question *question = (struct question *)task;
    serve_service *service = question->service;
    fa_buf *out = &question->text;
    fa_gpu gpu;
    const char *refused;
    (void)worker;
    serve_devices_know(service);
    fa_buf_text(out, "{\"devices\":[");
    for (int i = 0; i < service->device_count; i++)
        add_gpu(out, &service->device[i], NULL, i == 0);
    fa_buf_text(out, "],\"types\":[");
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++)
        add_gpu(out, &gpu, refused, i == 0);
    fa_buf_text(out, "],\"reason\":");
    cJSON *reason = service->device_count == 0 ? cJSON_CreateString(service->device_reason.text)
                                               : cJSON_CreateNull();
    char *text = cJSON_PrintUnformatted(reason);
    cJSON_Delete(reason);
    fa_buf_text(out, text != NULL ? text : "null");
    free(text);
    fa_buf_text(out, "}");
}

void serve_ask_gpus(serve_service *service, serve_exchange *exchange)
{
    struct question *question = ask(service, exchange, list_gpus, answer_text);
    if (question != NULL)
        give(question);
}
