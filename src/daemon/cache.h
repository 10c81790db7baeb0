/* SPDX-License-Identifier: Apache-2.0
 *
 * Stored answers by the exact bytes of their requests. On the loop's thread.
 *
 * Workload: some to some thousands of different requests, each sent again and again. A hit allocates nothing.
 * Invariants: an answer that is older than a second is looked up again, by one request at a time, and is given for another
 * few seconds at most while that takes; after a tune of this service no older answer is given at all.
 */
#ifndef FA_DAEMON_CACHE_H
#define FA_DAEMON_CACHE_H

#include "buf.h"

#include <microhttpd.h>

enum { SERVE_CACHE_SLOTS = 8192 };

struct serve_cached {
    uint64_t hash;
    char *request;
    size_t size;
    struct MHD_Response *response;
    int64_t looked_ms;
    bool asked; /* it is being looked up again */
};

typedef struct serve_cache {
    int64_t epoch; /* grows with each serve_cache_empty(); a lookup takes it before it begins */
    struct serve_cached slot[SERVE_CACHE_SLOTS];
} serve_cache;

/* The response, which the cache owns, or NULL. *ret_stale: the caller looks it up again. */
struct MHD_Response *serve_cache_get(serve_cache *cache, const fa_buf *request, int64_t now_ms,
                                     bool *ret_stale);
/* Keeps a copy of the answer that was looked up from `looked_ms` on, unless the cache was emptied since. NULL: it is gone. */
void serve_cache_put(serve_cache *cache, const fa_buf *request, const char *answer, int64_t epoch,
                     int64_t looked_ms);
void serve_cache_empty(serve_cache *cache);

#endif
