/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets of a few entries each, the one unused for longest giving way: keys that collide, by
 * chance or on purpose, cost one another their places and nobody any time.
 */
#include "http.h"

#include <stdlib.h>
#include <string.h>

enum { SETS = 1024, WAYS = 4, KEY_MAX = 2048, PAGE_PART = 8, FRESH_MS = 2000, LOOKUP_MS = 30000 };

struct entry {
    uint64_t hash;
    serve_cache_key key; /* of kind 0: free */
    char *bytes;         /* the key's, this entry's own */
    bool refreshing;
    serve_page *page;
    int64_t generation;
    int64_t right_ms; /* when it was last known to be what the store holds */
    int64_t asked_ms; /* when it began to be looked up again; while `refreshing` */
    int64_t used;
};

struct serve_cache {
    size_t limit;
    int64_t clock; /* of uses */
    serve_cache_time now;
    serve_cache_counts counts;
    struct entry entry[SETS][WAYS];
};

static uint64_t hash_of(serve_cache_key key)
{
    uint64_t hash = 14695981039346656037ull ^ (unsigned char)key.kind, word; /* FNV-1a, by words */
    for (; key.size >= sizeof word; key.bytes += sizeof word, key.size -= sizeof word) {
        memcpy(&word, key.bytes, sizeof word);
        hash = (hash ^ word) * 1099511628211ull;
        hash ^= hash >> 32;
    }
    for (; key.size > 0; key.bytes++, key.size--)
        hash = (hash ^ (unsigned char)*key.bytes) * 1099511628211ull;
    return hash ^ (hash >> 29);
}

serve_cache *serve_cache_make(size_t bytes)
{
    serve_cache *cache = calloc(1, sizeof *cache);
    if (cache != NULL)
        cache->limit = bytes;
    return cache;
}

static void forget(serve_cache *cache, struct entry *entry)
{
    if (entry->key.kind == 0)
        return;
    cache->counts.entries--;
    cache->counts.bytes -= (int64_t)(entry->key.size + entry->page->size);
    free(entry->bytes);
    serve_page_drop(&entry->page);
    *entry = (struct entry){0};
}

static void forget_all(serve_cache *cache)
{
    for (int s = 0; s < SETS; s++)
        for (int w = 0; w < WAYS; w++)
            forget(cache, &cache->entry[s][w]);
}

void serve_cache_empty(serve_cache *cache)
{
    forget_all(cache);
    cache->now.epoch++;
}

void serve_cache_free(serve_cache **cache)
{
    if (cache == NULL || *cache == NULL)
        return;
    serve_cache_empty(*cache);
    free(*cache);
    *cache = NULL;
}

static struct entry *find_entry(serve_cache *cache, uint64_t hash, serve_cache_key key)
{
    struct entry *set = cache->entry[hash % SETS];
    for (int w = 0; w < WAYS; w++)
        if (set[w].hash == hash && set[w].key.kind == key.kind && set[w].key.size == key.size &&
            memcmp(set[w].key.bytes, key.bytes, key.size) == 0)
            return &set[w];
    return NULL;
}

serve_page *serve_cache_get(serve_cache *cache, serve_cache_key key, int64_t now_ms,
                            bool *ret_refresh)
{
    struct entry *entry = key.size <= KEY_MAX ? find_entry(cache, hash_of(key), key) : NULL;
    *ret_refresh = false;
    if (entry != NULL && entry->generation != cache->now.generation) {
        bool is_asked = entry->refreshing && now_ms - entry->asked_ms <= LOOKUP_MS;
        if (!is_asked && now_ms - entry->right_ms > FRESH_MS) {
            entry = NULL;
        } else if (!is_asked) {
            *ret_refresh = entry->refreshing = true;
            entry->asked_ms = now_ms;
        }
    } else if (entry != NULL) {
        entry->right_ms = now_ms;
    }
    if (entry == NULL) {
        cache->counts.misses++;
        return NULL;
    }
    cache->counts.hits++;
    entry->used = ++cache->clock;
    return entry->page;
}

serve_cache_time serve_cache_now(const serve_cache *cache)
{
    return cache->now;
}

static struct entry *place_for(serve_cache *cache, uint64_t hash)
{
    struct entry *set = cache->entry[hash % SETS], *oldest = &set[0];
    for (int w = 0; w < WAYS; w++) {
        if (set[w].key.kind == 0)
            return &set[w];
        if (set[w].used < oldest->used)
            oldest = &set[w];
    }
    return oldest;
}

void serve_cache_put(serve_cache *cache, serve_cache_key key, serve_page *page,
                     serve_cache_time when, int64_t now_ms)
{
    uint64_t hash = hash_of(key);
    size_t bytes = key.size + page->size;
    if (key.size > KEY_MAX || bytes > cache->limit / PAGE_PART || when.epoch != cache->now.epoch)
        return;
    struct entry *entry = find_entry(cache, hash, key);
    if (entry == NULL)
        entry = place_for(cache, hash);
    forget(cache, entry);
    if ((size_t)cache->counts.bytes + bytes > cache->limit)
        forget_all(cache);
    char *copy = malloc(key.size + 1);
    if (copy == NULL)
        return;
    memcpy(copy, key.bytes, key.size);
    *entry = (struct entry){.hash = hash,
                            .key = {key.kind, copy, key.size},
                            .bytes = copy,
                            .page = serve_page_keep(page),
                            .generation = when.generation,
                            .right_ms = now_ms,
                            .used = ++cache->clock};
    cache->counts.entries++;
    cache->counts.bytes += (int64_t)bytes;
}

void serve_cache_mark_stale(serve_cache *cache)
{
    cache->now.generation++;
}

const serve_cache_counts *serve_cache_counted(const serve_cache *cache)
{
    return &cache->counts;
}

serve_page *serve_page_of(const char *type, size_t size, struct MHD_Response *response)
{
    serve_page *page = response != NULL ? calloc(1, sizeof *page) : NULL;
    if (page != NULL &&
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type) == MHD_YES &&
        MHD_add_response_header(response, "X-Content-Type-Options", "nosniff") == MHD_YES) {
        *page = (serve_page){response, size, 1};
        return page;
    }
    free(page);
    if (response != NULL)
        MHD_destroy_response(response);
    return NULL;
}

serve_page *serve_page_make(const char *type, void *bytes, size_t size)
{
    struct MHD_Response *response =
        bytes != NULL ? MHD_create_response_from_buffer(size, bytes, MHD_RESPMEM_MUST_FREE) : NULL;
    if (response == NULL)
        free(bytes);
    return serve_page_of(type, size, response);
}

serve_page *serve_page_json(char *text)
{
    return serve_page_make("application/json", text, text != NULL ? strlen(text) : 0);
}

serve_page *serve_page_text(const char *type, const char *text)
{
    size_t size = strlen(text);
    return serve_page_of(
        type, size,
        MHD_create_response_from_buffer(size, (void *)(uintptr_t)text, MHD_RESPMEM_PERSISTENT));
}

void serve_page_header(serve_page *page, const char *name, const char *value)
{
    if (page != NULL)
        MHD_add_response_header(page->response, name, value);
}

serve_page *serve_page_keep(serve_page *page)
{
    if (page != NULL)
        page->references++;
    return page;
}

void serve_page_drop(serve_page **page)
{
    if (page == NULL || *page == NULL)
        return;
    if (--(*page)->references == 0) {
        MHD_destroy_response((*page)->response);
        free(*page);
    }
    *page = NULL;
}
