/* SPDX-License-Identifier: Apache-2.0
 *
 * Sequences of a case, by its seed.
 */
#include "attn_cases.h"

#include "attn_launch.h"

#include "hash.h"

#include "error.h"

#include <stdlib.h>
#include <string.h>

enum { PAGES_OF_NONE = 3 };

/* ---- lengths --------------------------------------------------------------------------------*/
/* The first sequence is the longest. Ragged: the second may have no row at all, the others have any number;
 * else they are spread evenly around the mean. */
static int32_t draw(const fa_attn_case *what, int32_t b, uint64_t stream, int32_t most,
                    int32_t mean)
{
    uint64_t random = fa_random(what->seed, stream + (uint64_t)b);
    int32_t low = 0, high = most;
    if (b == 0 || (!what->ragged && mean == 0))
        return most;
    if (what->ragged && b == 1 && (what->seed & 1) != 0)
        return 0;
    if (!what->ragged) {
        low = mean > most - mean ? 2 * mean - most : 0;
        high = mean < most - mean ? 2 * mean : most;
        low = low < high ? low : high;
    }
    return low + (int32_t)(random % ((uint64_t)(high - low) + 1));
}

int32_t fa_attn_length_q(const fa_attn_case *what, int32_t b)
{
    const fa_problem *p = &what->problem;
    return p->varlen ? draw(what, b, 1u << 20, p->seq_q, p->mean_q) : p->seq_q;
}

int32_t fa_attn_length_k(const fa_attn_case *what, int32_t b)
{
    const fa_problem *p = &what->problem;
    return p->lengths_k != FA_LENGTHS_FIXED ? draw(what, b, (uint64_t)1 << 40, p->seq_k, p->mean_k)
                                            : p->seq_k;
}

static int64_t pages_of(const fa_attn_case *what, int32_t b)
{
    int64_t page = what->problem.page;
    return page > 0 ? (fa_attn_length_k(what, b) + page - 1) / page : 0;
}

void fa_attn_lengths_total(fa_attn_case *what)
{
    const fa_problem *p = &what->problem;
    int64_t q = 0, k = 0, pages = p->page > 0 ? PAGES_OF_NONE : 0;
    for (int32_t b = 0; b < p->batch; b++) {
        q += fa_attn_length_q(what, b);
        k += fa_attn_length_k(what, b);
        pages += pages_of(what, b);
    }
    what->total_q = q;
    what->total_k = k;
    what->num_pages = pages < INT32_MAX ? (int32_t)pages : INT32_MAX;
}

/* ---- lists ----------------------------------------------------------------------------------*/
fa_attn_lists fa_attn_lists_plan(const fa_attn_case *what)
{
    const fa_problem *p = &what->problem;
    fa_attn_lists lists = {0};
    size_t batch = (size_t)p->batch, at = 0;
    bool packed = p->lengths_k == FA_LENGTHS_CU_SEQLENS;
    if (p->page > 0) /* and a column that no sequence needs */
        lists.table_stride = (int32_t)(((int64_t)p->seq_k + p->page - 1) / p->page) + 1;
    lists.blocks = p->page > 0 ? what->num_pages : packed ? 1 : p->batch;
    const struct {
        size_t *at, count;
    } rows[] = {{&lists.cu_seqlens_q, batch + 1},
                {&lists.cu_seqlens_k, batch + 1},
                {&lists.seqused_k, batch},
                {&lists.block_table, batch * (size_t)lists.table_stride},
                {&lists.used, (size_t)lists.blocks},
                {&lists.sinks, (size_t)p->heads_q},
                {&lists.k_scale, (size_t)p->heads_kv},
                {&lists.v_scale, (size_t)p->heads_kv}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i].at = at;
        at += rows[i].count;
    }
    lists.words = at;
    return lists;
}

static void fill_lengths(const fa_attn_case *what, const fa_attn_lists *lists, int32_t *words)
{
    const fa_problem *p = &what->problem;
    bool packed = p->lengths_k == FA_LENGTHS_CU_SEQLENS;
    int32_t q = 0, k = 0;
    for (int32_t b = 0; b < p->batch; b++) {
        int32_t keys = fa_attn_length_k(what, b);
        words[lists->cu_seqlens_q + (size_t)b] = q;
        words[lists->cu_seqlens_k + (size_t)b] = k;
        words[lists->seqused_k + (size_t)b] = keys;
        q += fa_attn_length_q(what, b);
        k += keys;
        if (p->page == 0 && !packed)
            words[lists->used + (size_t)b] = keys;
    }
    words[lists->cu_seqlens_q + (size_t)p->batch] = q;
    words[lists->cu_seqlens_k + (size_t)p->batch] = k;
    if (p->page == 0 && packed)
        words[lists->used] = k;
}

/* The numbers 0 .. count-1 in any order; NULL: out of memory. */
static int32_t *shuffled(uint64_t seed, int32_t count)
{
    int32_t *order = malloc(((size_t)count + 1) * sizeof *order);
    for (int32_t i = 0; order != NULL && i < count; i++) {
        int32_t j =
            (int32_t)(fa_random(seed, ((uint64_t)1 << 50) + (uint64_t)i) % ((uint64_t)i + 1));
        order[i] = order[j];
        order[j] = i;
    }
    return order;
}

static int fill_pages(const fa_attn_case *what, const fa_attn_lists *lists, int32_t *words,
                      fa_diag *diag)
{
    static const int32_t of_none[] = {-1, INT32_MAX, INT32_MIN};
    int32_t page = what->problem.page, next = 0;
    int32_t *order = shuffled(what->seed, what->num_pages), *used = words + lists->used;
    if (order == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    memset(used, 0, (size_t)lists->blocks * sizeof *used);
    for (int32_t b = 0; b < what->problem.batch; b++) {
        int32_t *row = words + lists->block_table + (size_t)b * (size_t)lists->table_stride;
        int32_t keys = fa_attn_length_k(what, b);
        for (int32_t i = 0; i < lists->table_stride; i++) {
            int32_t left = keys - i * page, here = left < page ? left : page;
            bool shared = i == 0 && b % 2 == 1 && here == page && fa_attn_length_k(what, 0) >= page;
            row[i] = of_none[(b + i) % 3];
            if (left <= 0)
                continue;
            row[i] = shared ? words[lists->block_table] : order[next++];
            used[row[i]] = here;
        }
    }
    free(order);
    return 0;
}

static void put_float(int32_t *word, float value)
{
    memcpy(word, &value, sizeof value);
}

int fa_attn_lists_fill(const fa_attn_case *what, const fa_attn_lists *lists, int32_t *words,
                       fa_diag *diag)
{
    const fa_problem *p = &what->problem;
    fill_lengths(what, lists, words);
    for (int32_t h = 0; h < p->heads_q; h++) /* -2 to 4 */
        put_float(&words[lists->sinks + (size_t)h],
                  (float)(fa_random(what->seed, ((uint64_t)1 << 60) + (uint64_t)h) % 49) / 8 - 2);
    for (int32_t h = 0; h < p->heads_kv; h++) {
        put_float(&words[lists->k_scale + (size_t)h], 0.75f + 0.125f * (float)(h % 5));
        put_float(&words[lists->v_scale + (size_t)h], 1.25f - 0.125f * (float)(h % 7));
    }
    return p->page > 0 ? fill_pages(what, lists, words, diag) : 0;
}

void fa_attn_lists_params(const fa_attn_case *what, const fa_attn_lists *lists, uint64_t lists_at,
                          struct fa_attn_serving_params *to)
{
    const fa_problem *p = &what->problem;
    const int *words = (const int *)(uintptr_t)lists_at;
    const float *floats = (const float *)(uintptr_t)lists_at;
    to->cu_seqlens_q = p->varlen ? words + lists->cu_seqlens_q : NULL;
    to->cu_seqlens_k = p->lengths_k == FA_LENGTHS_CU_SEQLENS ? words + lists->cu_seqlens_k : NULL;
    to->seqused_k = p->lengths_k == FA_LENGTHS_SEQUSED ? words + lists->seqused_k : NULL;
    to->block_table = p->page > 0 ? words + lists->block_table : NULL;
    to->block_table_stride = lists->table_stride;
    to->sinks = p->sinks ? floats + lists->sinks : NULL;
    to->k_scale = p->kv_dtype == FA_KV_FP8 ? floats + lists->k_scale : NULL;
    to->v_scale = p->kv_dtype == FA_KV_FP8 ? floats + lists->v_scale : NULL;
    to->k_scale_head_stride = to->v_scale_head_stride = 1;
    to->page_size = p->page;
    to->num_pages = what->num_pages;
    to->total_q = (int)what->total_q;
    to->total_k = (int)what->total_k;
    fa_attn_window_take(p, to);
    if (p->softcap)
        fa_attn_softcap_take(what->softcap, to);
}
