/* SPDX-License-Identifier: Apache-2.0
 *
 * From fa_attn_args to what attention's kernels take: fa_attn_params and, for those that use TMA,
 * tensor maps.
 */
#include "attn_launch.h"

#include "attn_cases.h"
#include "error.h"
#include "fa_attn.h"

#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* What launches of a cubin share; of one that takes fa_attn_params alone without maps, nothing. */
struct shared {
    fa_attn_map_cache *maps; /* NULL: it takes no tensor maps */
    bool serving;            /* it takes fa_attn_serving_params */
};

static void unload(void **shared)
{
    struct shared *s = *shared;
    if (s != NULL)
        fa_attn_map_cache_free(&s->maps);
    free(s);
    *shared = NULL;
}

static int attn_load(fa_driver *driver, fa_module *module, const fa_problem *problem,
                     const fa_cubin_entry *entry, void **ret_shared, fa_diag *diag)
{
    (void)module;
    struct fa_attn_boxes boxes;
    bool serving = false;
    int rc = fa_attn_boxes_read(entry, &boxes, diag);
    if (rc == 0)
        rc = fa_attn_serving_read(entry, &serving, diag);
    if (rc != 0 || (boxes.columns == 0 && !serving))
        return rc;
    struct shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory for a kernel");
    shared->serving = serving;
    if (boxes.columns != 0) {
        rc = fa_tensor_map_available(driver, diag);
        struct fa_attn_form form = fa_attn_form_of(problem);
        if (rc == 0)
            rc = fa_attn_map_cache_create(&boxes, &form, &shared->maps, diag);
    }
    void *made = shared;
    if (rc != 0)
        unload(&made);
    *ret_shared = made;
    return rc;
}

struct strides {
    int64_t batch, head, row;
};

/* Of a tensor that lies contiguous in the problem's layout; `seq` is a page's where there are pages. Sequences that are
 * `packed` behind one another lie as [total, heads, dim]. */
static inline struct strides contiguous(const fa_problem *problem, bool packed, int32_t heads,
                                        int32_t seq, int32_t dim)
{
    bool heads_first = problem->layout == FA_BHSD && !packed;
    int64_t of_heads = (int64_t)heads * dim, of_rows = (int64_t)seq * dim;
    return (struct strides){.batch = packed ? 0 : of_heads * seq,
                            .head = heads_first ? of_rows : dim,
                            .row = heads_first ? dim : of_heads};
}

/* Sets a tensor's strides: those given, or the contiguous ones where all are 0. Gathers their bits for the checks, each with
 * the limit added: that leaves their low bits as they are, and sets a bit beyond the limit's for each one outside of +-limit. */
static inline uint64_t take_strides(const int64_t given[3], struct strides all, long long *batch,
                                    long long *head, long long *row)
{
    if ((given[0] | given[1] | given[2]) != 0)
        all = (struct strides){given[0], given[1], given[2]};
    *batch = all.batch;
    *head = all.head;
    *row = all.row;
    const uint64_t limit = FA_ATTN_STRIDE_LIMIT;
    return ((uint64_t)all.batch + limit) | ((uint64_t)all.head + limit) |
           ((uint64_t)all.row + limit);
}

/* Sets the strides of all four tensors; returns their gathered bits. */
static inline uint64_t set_strides(const fa_problem *problem, const fa_attn_args *args,
                                   struct fa_attn_params *params)
{
    int32_t heads = problem->heads_q, heads_kv = problem->heads_kv, dim = problem->head_dim;
    int32_t dim_v = problem->head_dim_v > 0 ? problem->head_dim_v : dim; /* of V and O */
    bool paged = problem->page > 0, packed = problem->lengths_k == FA_LENGTHS_CU_SEQLENS && !paged;
    bool rows = problem->varlen != 0;
    int32_t seq_q = problem->seq_q, seq_k = paged ? problem->page : problem->seq_k;
    struct strides q = contiguous(problem, rows, heads, seq_q, dim), o = q;
    struct strides k = contiguous(problem, packed, heads_kv, seq_k, dim), v = k;
    if (dim_v != dim) {
        o = contiguous(problem, rows, heads, seq_q, dim_v);
        v = contiguous(problem, packed, heads_kv, seq_k, dim_v);
    }
    return take_strides(args->q_stride, q, &params->q_batch_stride, &params->q_head_stride,
                        &params->q_row_stride) |
           take_strides(args->k_stride, k, &params->k_batch_stride, &params->k_head_stride,
                        &params->k_row_stride) |
           take_strides(args->v_stride, v, &params->v_batch_stride, &params->v_head_stride,
                        &params->v_row_stride) |
           take_strides(args->o_stride, o, &params->o_batch_stride, &params->o_head_stride,
                        &params->o_row_stride);
}

static int set_params(const fa_problem *problem, const fa_attn_args *args,
                      struct fa_attn_params *ret_params, fa_diag *diag)
{
    bool no_keys = problem->seq_k == 0;
    if (args->q == NULL || args->o == NULL || (!no_keys && (args->k == NULL || args->v == NULL)))
        return fa_fail(diag, FA_EINVAL, "q, k, v or o is NULL");
    float scale =
        args->softmax_scale != 0.0f ? args->softmax_scale : 1.0f / sqrtf((float)problem->head_dim);
    float scale_log2 = scale * 1.44269504088896340736f;
    if (!(scale > 0) || !isfinite(scale_log2)) /* kernels take the maximum before they scale */
        return fa_fail(diag, FA_EINVAL, "softmax_scale must be positive, at most 2e38");
    *ret_params = (struct fa_attn_params){.q = args->q,
                                          .k = args->k,
                                          .v = args->v,
                                          .o = args->o,
                                          .lse = args->lse,
                                          .batch = problem->batch,
                                          .heads_q = problem->heads_q,
                                          .heads_kv = problem->heads_kv,
                                          .seq_q = problem->seq_q,
                                          .seq_k = problem->seq_k,
                                          .causal_offset = fa_attn_causal_offset(problem),
                                          .softmax_scale = scale,
                                          .softmax_scale_log2 = scale_log2};
    uint64_t strides = set_strides(problem, args, ret_params);
    uintptr_t pointers =
        (uintptr_t)args->q | (uintptr_t)args->k | (uintptr_t)args->v | (uintptr_t)args->o;
    bool fp8 = problem->kv_dtype == FA_KV_FP8;
    uint64_t of_keys = (uint64_t)(ret_params->k_batch_stride | ret_params->k_head_stride |
                                  ret_params->k_row_stride | ret_params->v_batch_stride |
                                  ret_params->v_head_stride | ret_params->v_row_stride);
    if (strides >= 2 * (uint64_t)FA_ATTN_STRIDE_LIMIT)
        return fa_fail(diag, FA_EINVAL, "a stride of q, k, v or o is beyond 2^48 elements");
    if (!problem->unaligned &&
        (strides % 8 != 0 || (fp8 && of_keys % 16 != 0) || pointers % 16 != 0))
        return fa_fail(diag, FA_EALIGN,
                       "q, k, v and o must be 16-byte aligned with strides in multiples of 8 "
                       "elements (16 of fp8 keys and values): ask for the kernel with "
                       "problem.unaligned = true");
    if (pointers % 2 != 0 || (uintptr_t)args->lse % 4 != 0)
        return fa_fail(diag, FA_EALIGN, "a pointer is not aligned to its element");
    return 0;
}

/* Whether the caller's structure goes to its end; what he knows nothing of is not read. */
static bool is_whole(const fa_attn_args *args)
{
    return args->size >= offsetof(fa_attn_args, workspace_bytes) + sizeof args->workspace_bytes;
}

static int launch(const fa_call *call, const fa_problem *problem, const void *data,
                  fa_stream stream, fa_diag *diag)
{
    const fa_attn_args *args = data;
    const struct shared *shared = call->shared;
    struct fa_attn_serving_params params; /* a kernel may take their beginning alone */
    struct fa_attn_tensor_maps maps;
    void *arguments[FA_CALL_ARGUMENTS]; /* those behind the set ones are not read */
    arguments[0] = &params, arguments[1] = &maps;
    bool whole = is_whole(args), has_maps = shared != NULL && shared->maps != NULL;
    fa_call_memory memory = {0};
    if (args->size < offsetof(fa_attn_args, cu_seqlens_q))
        return fa_fail(diag, FA_EINVAL, "args->size is not sizeof(fa_attn_args)");
    if (call->empty)
        return 0;
    int rc = set_params(problem, args, &params.dense, diag);
    if (rc == 0 && call->composed != NULL)
        rc = fa_call_take_memory(call, whole ? args->workspace : NULL,
                                 whole ? args->workspace_bytes : 0, stream, &memory, diag);
    if (rc == 0 && shared != NULL && shared->serving)
        rc = fa_attn_serving_take(call, problem, whole ? args : NULL, memory, &params, diag);
    if (rc == 0 && has_maps)
        rc = fa_attn_map_cache_get(shared->maps, call->driver, &params, &maps, diag);
    return rc != 0 ? rc
                   : fa_call_run(call, arguments, has_maps ? 2 : 1, memory.workspace, stream, diag);
}

const fa_launcher fa_attn_launcher = {.load = attn_load, .unload = unload, .launch = launch};

/* ---- kept tensor maps -------------------------------------------------------------------------*/
/* A few sets of tensor maps and a flag.
 * Workload: every launch of a kernel that takes maps, from any thread; nearly always with one of a
 * few sets of buffers. A hit costs a comparison of 152 bytes and a copy of 512.
 * Invariant: entries are touched only by the thread that has the flag. A thread that does not get
 * it goes without the cache, so nobody ever waits for anybody, not even for one that was stopped. */

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
