/* SPDX-License-Identifier: Apache-2.0
 *
 * A few sets of tensor maps and a flag.
 *
 * Workload: every launch of a kernel that takes maps, from any thread; nearly always with one of a
 * few sets of buffers. A hit costs a comparison of 152 bytes and a copy of 512.
 * Invariant: entries are touched only by the thread that has the flag. A thread that does not get
 * it goes without the cache, so nobody ever waits for anybody, not even for one that was stopped.
 */
#include "attn_map_cache.h"

#include "error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { ENTRIES = 8 };

/* What distinguishes launches of one cubin: pointers without lse, strides, the five sizes, and of packed tensors
 * and pages how many rows and pages there are. */
struct key {
    const void *q, *k, *v, *o;
    long long stride[12];
    int size[5], total_q, total_k, num_pages;
};

_Static_assert(offsetof(struct fa_attn_params, o) == offsetof(struct key, o),
               "q, k, v and o come first, in this order");
_Static_assert(offsetof(struct fa_attn_params, batch) -
                       offsetof(struct fa_attn_params, q_batch_stride) ==
                   sizeof((struct key){0}.stride),
               "the twelve strides lie together");
_Static_assert(offsetof(struct fa_attn_params, causal_offset) -
                       offsetof(struct fa_attn_params, batch) ==
                   sizeof((struct key){0}.size),
               "the five sizes lie together");

struct entry {
    struct fa_attn_tensor_maps maps;
    struct key key; /* q is NULL: nothing here */
};

struct fa_attn_map_cache {
    struct entry entry[ENTRIES];
    struct fa_attn_boxes boxes;
    struct fa_attn_form form;
    atomic_flag taken;
    unsigned last, next; /* last hit; next to be replaced */
};

int fa_attn_map_cache_create(const struct fa_attn_boxes *boxes, const struct fa_attn_form *form,
                             fa_attn_map_cache **ret_cache, fa_diag *diag)
{
    fa_attn_map_cache *cache = aligned_alloc(_Alignof(fa_attn_map_cache), sizeof *cache);
    if (cache == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for tensor maps");
    memset(cache, 0, sizeof *cache);
    cache->boxes = *boxes;
    cache->form = *form;
    atomic_flag_clear(&cache->taken);
    *ret_cache = cache;
    return 0;
}

void fa_attn_map_cache_free(fa_attn_map_cache **cache)
{
    free(*cache);
    *cache = NULL;
}

static struct key key_of(const struct fa_attn_form *form, const struct fa_attn_serving_params *params)
{
    const struct fa_attn_params *p = &params->dense;
    struct key key = {.total_q = form->packed_q ? params->total_q : 0,
                      .total_k = form->packed_k ? params->total_k : 0,
                      .num_pages = form->page > 0 ? params->num_pages : 0};
    memcpy(&key, p, offsetof(struct key, stride));
    memcpy(key.stride, (const char *)p + offsetof(struct fa_attn_params, q_batch_stride),
           sizeof key.stride);
    memcpy(key.size, (const char *)p + offsetof(struct fa_attn_params, batch), sizeof key.size);
    return key;
}

/* With the flag held: the entry of this key, or NULL. */
static const struct entry *find_entry(fa_attn_map_cache *cache, const struct key *key)
{
    for (unsigned i = 0; i < ENTRIES; i++) {
        unsigned at = (cache->last + i) % ENTRIES;
        if (memcmp(&cache->entry[at].key, key, sizeof *key) == 0) {
            cache->last = at;
            return &cache->entry[at];
        }
    }
    return NULL;
}

static void keep_entry(fa_attn_map_cache *cache, const struct key *key,
                       const struct fa_attn_tensor_maps *maps)
{
    struct entry *entry = &cache->entry[cache->next];
    entry->key = *key;
    entry->maps = *maps;
    cache->last = cache->next;
    cache->next = (cache->next + 1) % ENTRIES;
}

int fa_attn_map_cache_get(fa_attn_map_cache *cache, fa_driver *driver,
                          const struct fa_attn_serving_params *params,
                          struct fa_attn_tensor_maps *ret_maps,
                          fa_diag *diag)
{
    struct key key = key_of(&cache->form, params);
    bool mine = !atomic_flag_test_and_set_explicit(&cache->taken, memory_order_acquire);
    const struct entry *known = mine ? find_entry(cache, &key) : NULL;
    int rc = 0;
    if (known != NULL)
        *ret_maps = known->maps;
    else
        rc = fa_attn_maps_encode(driver, &cache->boxes, &cache->form, params, ret_maps, diag);
    if (mine && known == NULL && rc == 0)
        keep_entry(cache, &key, ret_maps);
    if (mine)
        atomic_flag_clear_explicit(&cache->taken, memory_order_release);
    return rc;
}
