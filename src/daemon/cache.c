/* SPDX-License-Identifier: Apache-2.0 */
#include "cache.h"

#include <stdlib.h>
#include <string.h>

enum {
    FRESH_MS = 1000,
    STALE_MS = 5000,
    REQUEST_MAX = 4096 /* larger ones are looked up each time */
};

/* FNV-1a */
static uint64_t hash_of(const fa_buf *request)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < request->size; i++)
        hash = (hash ^ (unsigned char)request->data[i]) * 0x100000001b3u;
    return hash;
}

static void drop(struct serve_cached *slot)
{
    if (slot->response != NULL)
        MHD_destroy_response(slot->response);
    free(slot->request);
    *slot = (struct serve_cached){0};
}

struct MHD_Response *serve_cache_get(serve_cache *cache, const fa_buf *request, int64_t now_ms,
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

void serve_cache_put(serve_cache *cache, const fa_buf *request, const char *answer, int64_t epoch,
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

void serve_cache_empty(serve_cache *cache)
{
    cache->epoch++;
    for (int i = 0; i < SERVE_CACHE_SLOTS; i++)
        if (cache->slot[i].response != NULL) /* a page that was never written takes no memory */
            drop(&cache->slot[i]);
}
