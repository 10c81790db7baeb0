/* SPDX-License-Identifier: Apache-2.0 */
#include "queries.h"

#include "json.h"
#include "problem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    WINNERS_DEFAULT = 100,
    /* the limit that fa-tune show requests; takes the lookup thread a second or two */
    WINNERS_MAX = 10000
};

/* ---- any query ------------------------------------------------------------------------------*/
/* A query that finds the lookup thread's store broken runs again after the store was reopened. */
static void work_on(serve_task *task, serve_thread *thread)
{
    serve_query *query = (serve_query *)task;
    (void)thread;
    query->rc = query->work(query, &query->diag);
    if (query->apart == NULL && serve_tuner_reopen(query->service, query->rc)) {
        fa_buf_clear(&query->text);
        query->rc = query->work(query, &query->diag);
    }
}

/* Removes the client from the query; false: the client is gone, or has got the error as its reply. */
static bool take_client(serve_query *query, serve_exchange **ret_exchange)
{
    serve_exchange *exchange = serve_waiters_take(&query->client);
    *ret_exchange = exchange;
    if (exchange == NULL)
        return false;
    if (query->task.skipped)
        serve_refuse(query->service, exchange, "this server is stopping");
    else if (query->rc != 0)
        serve_reply_error(exchange, query->rc, query->diag.text, NULL);
    return !query->task.skipped && query->rc == 0;
}

void serve_query_free(serve_query *query)
{
    serve_body_drop(&query->body);
    fa_buf_free(&query->text);
    free(query->bytes);
    free(query);
}

static void reply_text(serve_task *task)
{
    serve_query *query = (serve_query *)task;
    serve_exchange *exchange;
    if (take_client(query, &exchange))
        serve_reply_json(exchange, query->status, serve_text_of(&query->text));
    serve_query_free(query);
}

serve_query *serve_query_submit(serve_service *service, serve_exchange *exchange,
                                const serve_query *query, void (*done)(serve_task *task))
{
    serve_query *copy = query->text.failed ? NULL : malloc(sizeof *copy);
    if (copy == NULL) {
        serve_body *body = query->body;
        fa_buf text = query->text;
        serve_body_drop(&body);
        fa_buf_free(&text);
        if (exchange != NULL)
            serve_reply_error(exchange, FA_ENOMEM, "out of memory", NULL);
        return NULL;
    }
    *copy = *query;
    copy->task.work = work_on;
    copy->task.done = done != NULL ? done : reply_text;
    copy->service = service;
    copy->when = serve_cache_now(service->cache);
    if (copy->status == 0)
        copy->status = MHD_HTTP_OK;
    if (exchange != NULL)
        serve_waiters_add(&copy->client, exchange, 0);
    serve_thread_submit(query->apart != NULL ? query->apart : service->lookup, &copy->task);
    return copy;
}

/* ---- winners --------------------------------------------------------------------------------*/
static bool same_type(const char *asked, const char *name)
{
    fa_gpu one, other;
    return strcasecmp(fa_gpu_find(asked, &one, NULL) == 0 ? one.name : asked,
                      fa_gpu_find(name, &other, NULL) == 0 ? other.name : name) == 0;
}

struct listing {
    serve_query *query;
    int count;
};

static int take_winner(void *context, const fa_answer *answer)
{
    struct listing *listing = context;
    serve_query *query = listing->query;
    char *text = NULL;
    if (query->gpu[0] != 0 && !same_type(query->gpu, answer->gpu.name))
        return 0;
    if (listing->count == query->limit)
        return 1;
    int rc = fa_answer_write(answer, &text, &query->diag);
    if (rc != 0)
        return rc;
    fa_buf_printf(&query->text, "%s%s", listing->count++ > 0 ? "," : "", text);
    free(text);
    return 0;
}

static int list_winners(serve_query *query, fa_diag *diag)
{
    struct listing listing = {query, 0};
    fa_buf_text(&query->text, "{\"winners\":[");
    int rc = fa_list_winners(query->service->tuner, take_winner, &listing, diag);
    fa_buf_text(&query->text, "]}");
    if (rc < 0 || listing.count > 0 || query->gpu[0] == 0)
        return rc < 0 ? rc : 0;
    fa_gpu gpu; /* a name that nobody knows is a mistake, not an empty list */
    return fa_gpu_find(query->gpu, &gpu, diag) == 0 ? 0 : FA_EINVAL;
}

void serve_get_winners(serve_service *service, serve_exchange *exchange)
{
    const char *gpu = serve_argument(exchange, "gpu"), *limit = serve_argument(exchange, "limit");
    serve_query query = {.work = list_winners, .limit = WINNERS_DEFAULT};
    if (limit != NULL) {
        char *end = NULL;
        long most = strtol(limit, &end, 10);
        if (*limit < '0' || *limit > '9' || *end != 0 || most < 1 || most > WINNERS_MAX) {
            serve_reply_error(exchange, FA_EINVAL, "limit must be 1 to 10000", NULL);
            return;
        }
        query.limit = (int)most;
    }
    if (gpu != NULL && (strlen(gpu) >= sizeof query.gpu || *gpu == 0)) {
        serve_reply_error(exchange, FA_EINVAL, "gpu must be a name of 1 to 63 bytes", NULL);
        return;
    }
    snprintf(query.gpu, sizeof query.gpu, "%s", gpu != NULL ? gpu : "");
    serve_query_submit(service, exchange, &query, NULL);
}

/* ---- cubins ---------------------------------------------------------------------------------*/
static int read_cubin(serve_query *query, fa_diag *diag)
{
    fa_answer answer = {0};
    memcpy(answer.cubin_key, query->key, sizeof query->key);
    return fa_answer_cubin(query->service->tuner, &answer, &query->bytes, &query->size, diag);
}

static serve_cache_key cache_key(const char *cubin)
{
    return (serve_cache_key){'C', cubin, strlen(cubin)};
}

static void give_cubin(serve_task *task)
{
    serve_query *query = (serve_query *)task;
    serve_exchange *exchange;
    bool waits = take_client(query, &exchange);
    if (query->rc == 0 && !task->skipped) {
        char hash[FA_HASH_HEX], tag[FA_HASH_HEX + 2];
        fa_sha256(query->bytes, query->size, hash);
        snprintf(tag, sizeof tag, "\"%s\"", hash);
        serve_page *page = serve_page_make("application/octet-stream", query->bytes, query->size);
        query->bytes = NULL;
        serve_page_header(page, MHD_HTTP_HEADER_ETAG, tag);
        serve_page_header(page, MHD_HTTP_HEADER_CACHE_CONTROL,
                          "private, max-age=31536000, immutable");
        if (page != NULL)
            serve_cache_put(query->service->cache, cache_key(query->key), page, query->when,
                            serve_now_ms(query->service));
        if (waits)
            serve_reply_unless_known(exchange, page);
        serve_page_drop(&page);
    }
    serve_query_free(query);
}

void serve_get_cubin(serve_service *service, serve_exchange *exchange)
{
    serve_query query = {.work = read_cubin};
    const char *key = exchange->part;
    bool refresh;
    if (strlen(key) != 64 || strspn(key, "0123456789abcdef") != 64) {
        serve_reply_error(exchange, FA_ENOTFOUND, "a cubin's key is 64 lower-case hex digits",
                          NULL);
        return;
    }
    serve_page *page =
        serve_cache_get(service->cache, cache_key(key), serve_now_ms(service), &refresh);
    if (page != NULL)
        serve_reply_unless_known(exchange, page);
    if (page != NULL && !refresh)
        return;
    memcpy(query.key, key, sizeof query.key);
    serve_query_submit(service, page == NULL ? exchange : NULL, &query, give_cubin);
}

/* ---- GPUs -----------------------------------------------------------------------------------*/
static void add_gpu(cJSON *list, const fa_gpu *gpu, const char *refused)
{
    char silicon[FA_SILICON_MAX];
    cJSON *object = fa_gpu_to_json(gpu);
    fa_gpu_silicon(gpu, silicon);
    fa_json_add_text(object, "silicon", silicon);
    if (refused != NULL)
        fa_json_add_text(object, "refused", refused);
    fa_json_push(list, object);
}

static int list_gpus(serve_query *query, fa_diag *diag)
{
    serve_service *service = query->service;
    cJSON *json = cJSON_CreateObject();
    cJSON *devices = fa_json_add_array(json, "devices");
    cJSON *types = fa_json_add_array(json, "types");
    fa_gpu gpu;
    const char *refused;
    (void)diag;
    serve_find_devices(service);
    for (int i = 0; i < service->device_count; i++)
        add_gpu(devices, &service->device[i], NULL);
    for (int32_t i = 0; fa_gpu_type(i, &gpu, &refused) == 0; i++)
        add_gpu(types, &gpu, refused);
    fa_json_add(json, "reason",
                service->device_count == 0 ? cJSON_CreateString(service->device_reason.text)
                                           : cJSON_CreateNull());
    char *text = fa_json_finish(json);
    if (text != NULL)
        fa_buf_text(&query->text, text);
    query->text.failed |= text == NULL;
    free(text);
    return 0;
}

void serve_get_gpus(serve_service *service, serve_exchange *exchange)
{
    const serve_query query = {.work = list_gpus};
    serve_query_submit(service, exchange, &query, NULL);
}
