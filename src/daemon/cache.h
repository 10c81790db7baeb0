/* SPDX-License-Identifier: Apache-2.0
 *
 * Pages, and answers in memory: from the exact bytes of a request to a prepared response. On the loop's thread; a hit
 * allocates nothing.
 *
 * Workload: a few to some thousands of different requests, each sent again and again.
 * Invariants: bounded in entries and bytes. An answer is at most two seconds older than what the
 * store's watcher has seen, or as long as looking it up again takes (a database may have gone);
 * after a tune of this daemon no older answer is served at all.
 */
#ifndef FA_DAEMON_CACHE_H
#define FA_DAEMON_CACHE_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Pages: prepared responses, shared by any number of replies. On the loop's thread. */
typedef struct serve_page {
    struct MHD_Response *response;
    size_t size;
    int references;
} serve_page;

/* Takes a response of libmicrohttpd's, or NULL; one reference. NULL: out of memory. */
serve_page *serve_page_of(const char *type, size_t size, struct MHD_Response *response);
/* From malloced bytes, which the page owns from here on; NULL: out of memory, or no bytes. */
serve_page *serve_page_make(const char *type, void *bytes, size_t size);
serve_page *serve_page_json(char *text);                         /* the same for a JSON text */
serve_page *serve_page_text(const char *type, const char *text); /* of a constant */
/* NULL page is allowed. */
void serve_page_header(serve_page *page, const char *name, const char *value);
serve_page *serve_page_keep(serve_page *page);
void serve_page_drop(serve_page **page); /* NULL and pointer to NULL are allowed */

/* ---- the cache ------------------------------------------------------------------------------*/
typedef struct serve_cache serve_cache;

/* When a lookup began, for what it found. */
typedef struct serve_cache_time {
    int64_t epoch, generation;
} serve_cache_time;

typedef struct serve_cache_counts {
    int64_t hits, misses, entries, bytes;
} serve_cache_counts;

serve_cache *serve_cache_make(size_t bytes); /* NULL: out of memory */
void serve_cache_free(serve_cache **cache);

/* The page, or NULL. *ret_refresh: the page is older than a change of the store, and the caller looks it up again;
 * that is true for one caller only. The cache owns the page until the loop continues. */
serve_page *serve_cache_get(serve_cache *cache, char kind, const char *key, size_t size,
                            int64_t now_ms, bool *ret_refresh);
serve_cache_time serve_cache_now(const serve_cache *cache);
/* Keeps a page that was looked up at `when`, unless the cache was emptied since. */
void serve_cache_put(serve_cache *cache, char kind, const char *key, size_t size, serve_page *page,
                     serve_cache_time when, int64_t now_ms);
void serve_cache_empty(serve_cache *cache);      /* a tune has stored a winner */
void serve_cache_mark_stale(serve_cache *cache); /* somebody has written to the store */
const serve_cache_counts *serve_cache_counted(const serve_cache *cache);

#endif
