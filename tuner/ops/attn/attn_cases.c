/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention forward as an operation: lengths of sequences, cases, tensors, parameters, sampled rows, the tolerance rule.
 *
 * Workload: a few calls per tuned problem, one verdict per launch of a proof.
 */
#include "attn_cases.h"

#include "attn_launch.h"
#include "error.h"
#include "hash.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
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

/* Sets total_q, total_k and num_pages from the case's problem, seed and `ragged`. */
static void add_totals(fa_attn_case *what)
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

/* ---- layouts --------------------------------------------------------------------------------*/
static bool is_of_keys(int tensor)
{
    return tensor == FA_ATTN_K || tensor == FA_ATTN_V;
}

static int64_t heads_of(const fa_problem *p, int tensor)
{
    return is_of_keys(tensor) ? p->heads_kv : p->heads_q;
}

/* Whether the sequences lie behind one another, without a dimension of their own. */
static bool is_packed(const fa_problem *p, int tensor)
{
    return is_of_keys(tensor) ? p->lengths_k == FA_LENGTHS_CU_SEQLENS && p->page == 0 : p->varlen;
}

static int64_t rows_of(const fa_attn_case *what, int tensor)
{
    const fa_problem *p = &what->problem;
    if (!is_of_keys(tensor))
        return is_packed(p, tensor) ? what->total_q : p->seq_q;
    return p->page > 0 ? p->page : is_packed(p, tensor) ? what->total_k : p->seq_k;
}

/* Sequences, or pages. */
static int64_t blocks_of(const fa_attn_case *what, int tensor)
{
    const fa_problem *p = &what->problem;
    return is_of_keys(tensor) && p->page > 0 ? what->num_pages
           : is_packed(p, tensor)            ? 1
                                             : p->batch;
}

static int64_t columns_of(const fa_problem *p, int tensor)
{
    bool of_values = tensor == FA_ATTN_V || tensor == FA_ATTN_O;
    return of_values && p->head_dim_v > 0 ? p->head_dim_v : p->head_dim;
}

/* ---- cases ----------------------------------------------------------------------------------*/
/* row_gap: elements behind each row of a head; block_gap: elements behind the inner block (the rows
 * of a head, or the heads of a position). Products stay below 2^56. */
static fa_attn_tensor lay_out(const fa_attn_case *what, int tensor, int64_t row_gap,
                              int64_t block_gap)
{
    const fa_problem *p = &what->problem;
    int64_t heads = heads_of(p, tensor), rows = rows_of(what, tensor);
    int64_t inner = columns_of(p, tensor) + row_gap;
    fa_attn_tensor t = {0};
    if (p->layout == FA_BHSD && !is_packed(p, tensor)) {
        t.row_stride = inner;
        t.head_stride = rows * inner + block_gap;
        t.batch_stride = heads * t.head_stride;
    } else {
        t.head_stride = inner;
        t.row_stride = heads * inner + block_gap;
        t.batch_stride = rows * t.row_stride;
    }
    return t;
}

/* What a problem beyond dense tensors has besides; the case's tensors are laid out by it. */
static void add_lengths(fa_attn_case *c, uint64_t seed, bool ragged)
{
    c->seed = seed;
    c->ragged = ragged;
    c->softcap = ragged ? 5.0f : 30.0f;
    if (!fa_attn_is_dense(&c->problem))
        add_totals(c);
}

static fa_attn_case make_case(const fa_problem *problem, int pad, uint64_t seed, bool ragged)
{
    /* Each tensor has gaps of its own, so that no stride can stand in for another; in units of 16
     * bytes, and odd when the problem is unaligned. Rows of O are further apart than any tile's
     * excess over head_dim (56). */
    static const int row_gaps[FA_ATTN_TENSORS] = {1, 3, 2, 8}, block_gaps[] = {5, 2, 7, 9};
    static const int offsets[] = {1, 3, 5, 7};
    int odd = problem->unaligned ? 1 : 0;
    fa_attn_case c = {.problem = *problem,
                      .input_scale = {1, 1, 1},
                      .softmax_scale = 1 / sqrtf((float)problem->head_dim)};
    add_lengths(&c, seed, ragged);
    for (int i = 0; i < FA_ATTN_TENSORS; i++) {
        int wide = is_of_keys(i) && problem->kv_dtype == FA_KV_FP8 ? 2 : 1;
        c.tensor[i] = lay_out(&c, i, (int64_t)pad * wide * (8 * row_gaps[i] + odd),
                              (int64_t)pad * wide * (8 * block_gaps[i] + 2 * odd));
        c.tensor[i].offset = odd * offsets[i];
    }
    return c;
}

fa_attn_case fa_attn_case_packed(const fa_problem *problem)
{
    return make_case(problem, 0, 0, false);
}

fa_attn_case fa_attn_case_padded(const fa_problem *problem, int pad)
{
    return make_case(problem, pad, 0, false);
}

fa_attn_case fa_attn_case_ragged(const fa_problem *problem, int pad, uint64_t seed)
{
    return make_case(problem, pad, seed, true);
}

int fa_attn_cases(const fa_problem *problem, uint64_t seed, fa_attn_case ret_case[FA_BENCH_CASES])
{
    static const struct {
        int batch, heads_q, heads_kv, seq_q, seq_k;
        int jitter_q, jitter_k; /* lengths are shortened by 0 to that many, by the seed */
        fa_layout layout;
        bool lse;
        int pad;
        float size, scale; /* standard deviation of Q and K; softmax_scale, 0: the usual */
    } rows[FA_BENCH_CASES] = {
        /* more queries than keys: bottom-right causal has rows without a key */
        [1] = {2, 4, 2, 239, 203, 8, 8, FA_BHSD, true, 1, 1, 0},
        [2] = {1, 3, 1, 127, 1, 16, 0, FA_BSHD, true, 0, 1, 0.5f},  /* a single key */
        [3] = {2, 4, 4, 1, 799, 0, 16, FA_BSHD, true, 1, 1, 0},     /* a single query */
        [4] = {1, 4, 1, 190, 333, 16, 16, FA_BHSD, true, 0, 50, 0}, /* scores to +-1e4 */
        [5] = {1, 2, 1, 203, 1023, 8, 16, FA_BSHD, false, 1, 1, 0}, /* more keys, no LSE */
        [6] = {1, 4, 2, 256, 256, 0, 0, FA_BHSD, true, 0, 1, 0},    /* whole tiles */
        [7] = {3, 2, 1, 33, 0, 0, 0, FA_BHSD, true, 1, 1, 0},       /* no key at all */
    };
    /* Keys to the left and to the right of where a query stands; -1: all. */
    static const int windows[FA_BENCH_CASES][2] = {[1] = {16, 3}, {-1, 0}, {255, 0}, {0, 0},
                                                   {-1, -1},      {7, -1}, {5, 5}};
    ret_case[0] = make_case(problem, 0, seed, false);
    ret_case[0].once = true;
    fa_problem numbered = fa_attn_row_problem(&ret_case[0]);
    ret_case[0].all_rows = fa_attn_rows_are_few(&numbered);
    for (int i = 1; i < FA_BENCH_CASES; i++) {
        fa_problem p = *problem; /* dtype, head_dim, causal and alignment: one cubin for all */
        uint64_t random = fa_random(seed, (uint64_t)i);
        p.batch = rows[i].batch;
        p.heads_q = rows[i].heads_q;
        p.heads_kv = rows[i].heads_kv;
        p.seq_q = rows[i].seq_q - (int32_t)((random & 0xffff) % (uint64_t)(rows[i].jitter_q + 1));
        p.seq_k = rows[i].seq_k - (int32_t)((random >> 32) % (uint64_t)(rows[i].jitter_k + 1));
        p.layout = rows[i].layout;
        p.want_lse = rows[i].lse;
        p.mean_q = p.mean_k = 0;
        if (p.window) {
            p.window_left = windows[i][0];
            p.window_right = windows[i][1];
        }
        fa_attn_case c = fa_attn_case_ragged(&p, rows[i].pad, random);
        c.input_scale[FA_ATTN_Q] = c.input_scale[FA_ATTN_K] = rows[i].size;
        if (rows[i].scale > 0)
            c.softmax_scale = rows[i].scale;
        c.all_rows = true;
        ret_case[i] = c;
    }
    return FA_BENCH_CASES;
}

int fa_attn_case_problems(const fa_problem *problem, uint64_t seed,
                          fa_problem ret_case[FA_BENCH_CASES])
{
    fa_attn_case cases[FA_BENCH_CASES];
    int count = fa_attn_cases(problem, seed, cases);
    for (int i = 0; i < count; i++)
        ret_case[i] = cases[i].problem;
    return count;
}

/* ---- tensors --------------------------------------------------------------------------------*/
struct dimension {
    uint64_t extent, stride;
};

/* Batch, head and row of a tensor. */
static void dimensions_of(const fa_attn_case *what, int tensor, struct dimension ret[3])
{
    const fa_problem *p = &what->problem;
    const fa_attn_tensor *t = &what->tensor[tensor];
    ret[0] = (struct dimension){(uint64_t)blocks_of(what, tensor), (uint64_t)t->batch_stride};
    ret[1] = (struct dimension){(uint64_t)heads_of(p, tensor), (uint64_t)t->head_stride};
    ret[2] = (struct dimension){(uint64_t)rows_of(what, tensor), (uint64_t)t->row_stride};
}

int32_t fa_attn_columns_of_o(const fa_attn_case *what)
{
    return (int32_t)columns_of(&what->problem, FA_ATTN_O);
}

bool fa_attn_tensor_span(const fa_attn_case *what, int tensor, uint64_t *ret_elements)
{
    struct dimension d[3];
    dimensions_of(what, tensor, d);
    uint64_t span = (uint64_t)columns_of(&what->problem, tensor);
    for (int i = 0; i < 3; i++) {
        uint64_t reach;
        if (d[i].extent == 0) {
            *ret_elements = 0;
            return true;
        }
        if (__builtin_mul_overflow(d[i].extent - 1, d[i].stride, &reach) ||
            __builtin_add_overflow(span, reach, &span))
            return false;
    }
    *ret_elements = span;
    return span <= (uint64_t)1 << 60;
}

/* Sorts by stride, largest first, and joins dimensions without a gap between them. */
static void nest(struct dimension *d, int count, struct fa_attn_region *region)
{
    for (int i = 1; i < count; i++) {
        for (int j = i; j > 0 && d[j - 1].stride < d[j].stride; j--) {
            struct dimension swap = d[j];
            d[j] = d[j - 1];
            d[j - 1] = swap;
        }
    }
    int levels = 0;
    for (int i = 0; i < count; i++) {
        if (levels > 0 && region->stride[levels - 1] == d[i].extent * d[i].stride) {
            region->extent[levels - 1] *= d[i].extent;
            region->stride[levels - 1] = d[i].stride;
            continue;
        }
        region->extent[levels] = d[i].extent;
        region->stride[levels] = d[i].stride;
        levels++;
    }
    region->levels = levels;
}

struct fa_attn_region fa_attn_tensor_region(const fa_attn_case *what, int tensor, uint64_t base,
                                            uint64_t count, uint64_t first)
{
    struct fa_attn_region region = {
        .base = (unsigned short *)(uintptr_t)base, .count = count, .first = first};
    struct dimension d[3], used[4];
    int n = 0;
    bool empty = false;
    dimensions_of(what, tensor, d);
    for (int i = 0; i < 3; i++) {
        empty = empty || d[i].extent == 0;
        if (d[i].extent > 1 && d[i].stride > 0)
            used[n++] = d[i];
    }
    used[n++] = (struct dimension){empty ? 0 : (uint64_t)columns_of(&what->problem, tensor), 1};
    if (empty) {
        used[0] = used[n - 1];
        n = 1;
    }
    nest(used, n, &region);
    return region;
}

struct fa_attn_region fa_attn_lse_region(const fa_attn_case *what, uint64_t base, uint64_t count,
                                         uint64_t first)
{
    int64_t rows = 0;
    fa_problem numbered = fa_attn_row_problem(what);
    fa_attn_rows(&numbered, &rows);
    return (struct fa_attn_region){.base = (unsigned short *)(uintptr_t)base,
                                   .count = count,
                                   .first = first,
                                   .stride = {1},
                                   .extent = {2 * (uint64_t)rows},
                                   .levels = 1};
}

struct fa_attn_params fa_attn_params_of(const fa_attn_case *what,
                                        const uint64_t first[FA_ATTN_TENSORS], uint64_t lse)
{
    const fa_problem *p = &what->problem;
    const fa_attn_tensor *t = what->tensor;
    return (struct fa_attn_params){
        .q = (const void *)(uintptr_t)first[FA_ATTN_Q],
        .k = (const void *)(uintptr_t)first[FA_ATTN_K],
        .v = (const void *)(uintptr_t)first[FA_ATTN_V],
        .o = (void *)(uintptr_t)first[FA_ATTN_O],
        .lse = (float *)(uintptr_t)lse,
        .q_batch_stride = t[FA_ATTN_Q].batch_stride,
        .q_head_stride = t[FA_ATTN_Q].head_stride,
        .q_row_stride = t[FA_ATTN_Q].row_stride,
        .k_batch_stride = t[FA_ATTN_K].batch_stride,
        .k_head_stride = t[FA_ATTN_K].head_stride,
        .k_row_stride = t[FA_ATTN_K].row_stride,
        .v_batch_stride = t[FA_ATTN_V].batch_stride,
        .v_head_stride = t[FA_ATTN_V].head_stride,
        .v_row_stride = t[FA_ATTN_V].row_stride,
        .o_batch_stride = t[FA_ATTN_O].batch_stride,
        .o_head_stride = t[FA_ATTN_O].head_stride,
        .o_row_stride = t[FA_ATTN_O].row_stride,
        .batch = p->batch,
        .heads_q = p->heads_q,
        .heads_kv = p->heads_kv,
        .seq_q = p->seq_q,
        .seq_k = p->seq_k,
        .causal_offset = fa_attn_causal_offset(p),
        .softmax_scale = what->softmax_scale,
        .softmax_scale_log2 = (float)(what->softmax_scale * 1.4426950408889634),
    };
}

fa_problem fa_attn_mean_problem(const fa_problem *problem)
{
    fa_problem mean = *problem;
    if (problem->varlen && problem->mean_q > 0 && problem->mean_q < problem->seq_q)
        mean.seq_q = problem->mean_q;
    if (problem->lengths_k != FA_LENGTHS_FIXED && problem->mean_k > 0 &&
        problem->mean_k < problem->seq_k)
        mean.seq_k = problem->mean_k;
    return mean;
}

double fa_attn_bytes(const fa_problem *p)
{
    double rows = 2.0 * p->batch * p->heads_q * p->seq_q + 2.0 * p->batch * p->heads_kv * p->seq_k;
    return rows * p->head_dim * 2;
}

/* ---- rows -----------------------------------------------------------------------------------*/
fa_problem fa_attn_row_problem(const fa_attn_case *what)
{
    fa_problem p = what->problem;
    if (p.varlen) {
        p.batch = 1;
        p.seq_q = (int32_t)what->total_q;
    }
    return p;
}

bool fa_attn_rows(const fa_problem *p, int64_t *ret_rows)
{
    int64_t heads, rows;
    if (__builtin_mul_overflow((int64_t)p->batch, (int64_t)p->heads_q, &heads) ||
        __builtin_mul_overflow(heads, (int64_t)p->seq_q, &rows) || rows > (int64_t)1 << 62)
        return false;
    *ret_rows = rows;
    return true;
}

bool fa_attn_rows_are_few(const fa_problem *p)
{
    /* About 2 ms of the reference kernels on a large GPU; 32 MiB of reference. */
    int64_t rows;
    return fa_attn_rows(p, &rows) && rows <= ((int64_t)1 << 22) / p->head_dim &&
           (double)rows * p->seq_k * p->head_dim <= 0x1p30;
}

/* By position in the sequence. */
static int by_position(const void *left, const void *right, void *problem)
{
    int64_t seq = ((const fa_problem *)problem)->seq_q;
    int64_t a = *(const int64_t *)left % seq, b = *(const int64_t *)right % seq;
    return (a > b) - (a < b);
}

void fa_attn_sample_rows(const fa_problem *p, uint64_t seed, int64_t ret_rows[FA_ATTN_SAMPLED_ROWS])
{
    /* Rows at the edges of tiles, from the start and (negative) from the end of a sequence. */
    static const int edges[] = {0,   1,   15,  16,   17,   31,   63,   64,   65,  127, 128,
                                129, 191, 192, 255,  256,  257,  -1,   -2,   -15, -16, -17,
                                -63, -64, -65, -127, -128, -129, -255, -256, -257};
    enum { EDGES = sizeof edges / sizeof *edges };
    int64_t heads = (int64_t)p->batch * p->heads_q, seq = p->seq_q;
    for (int i = 0; i < FA_ATTN_SAMPLED_ROWS; i++) {
        uint64_t random = fa_random(seed, (uint64_t)i);
        int64_t head = (int64_t)(random % (uint64_t)heads);
        int64_t row = (int64_t)((random >> 32) % (uint64_t)seq);
        if (i < 4 * EDGES) {
            int edge = edges[i % EDGES];
            row = edge < 0 ? seq + edge : edge;
            if (row < 0 || row >= seq)
                row = (int64_t)((random >> 32) % (uint64_t)seq);
        }
        if (i < EDGES)
            head = 0;
        else if (i < 2 * EDGES)
            head = heads - 1;
        ret_rows[i] = head * seq + row;
    }
    qsort_r(ret_rows, FA_ATTN_SAMPLED_ROWS, sizeof *ret_rows, by_position, (void *)(uintptr_t)p);
}

/* ---- the rule -------------------------------------------------------------------------------*/
static bool wrong(fa_attn_verdict *v, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static bool wrong(fa_attn_verdict *v, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(v->reason, sizeof v->reason, format, args);
    va_end(args);
    return false;
}

/* How large scores were where they carried their roundings: LSE shows it, but not behind a softcap. attn_fill's elements are
 * normal, so that a product of head_dim of them hardly goes beyond four standard deviations. */
static double score_magnitude(const fa_attn_case *what, const struct fa_attn_compare *seen)
{
    double uncapped = 4 * what->softmax_scale * sqrt(what->problem.head_dim) *
                      what->input_scale[FA_ATTN_Q] * what->input_scale[FA_ATTN_K];
    double seen_by_lse = seen->max_magnitude_lse; /* NaN stays NaN, which passes nothing */
    return what->problem.softcap && uncapped > seen_by_lse ? uncapped : seen_by_lse;
}

static bool accept_result(fa_attn_verdict *v, const fa_attn_case *what,
                          const struct fa_attn_compare *seen)
{
    /* The tolerances that attn_check.h derives. attn_fill ends at 3.4642 standard deviations. */
    double largest_v = 3.4642 * what->input_scale[FA_ATTN_V], scores = score_magnitude(what, seen);
    double absolute = largest_v * (0x1p-16 + 0x1p-22 * scores);
    v->error = seen->max_error;
    v->tolerance = 2.0 * seen->max_error_lowp + absolute;
    if (what->problem.want_lse) {
        v->lse_error = seen->max_error_lse;
        v->lse_tolerance = 0x1p-16 + 0x1p-24 * what->problem.head_dim * scores;
    }
    if (seen->guard_damaged != 0)
        return wrong(v, "it wrote outside its outputs (%u places of the fences and gaps changed)",
                     seen->guard_damaged);
    if (seen->unwritten != 0)
        return wrong(v, "it left %u elements of its outputs unwritten", seen->unwritten);
    if (seen->nonfinite != 0)
        return wrong(v, "%u results are NaN or infinite", seen->nonfinite);
    if (!(v->error <= v->tolerance))
        return wrong(v, "error of O is %.3g, allowed is %.3g = 2 x %.3g of plain %s + %.2g",
                     v->error, v->tolerance, (double)seen->max_error_lowp,
                     fa_dtype_name(what->problem.dtype), absolute);
    if (!(v->lse_error <= v->lse_tolerance))
        return wrong(v, "error of LSE is %.3g, allowed is %.3g", v->lse_error, v->lse_tolerance);
    return true;
}

fa_attn_verdict fa_attn_judge(const fa_attn_case *what, const struct fa_attn_compare *seen)
{
    fa_attn_verdict verdict = {0};
    verdict.passed = accept_result(&verdict, what, seen);
    return verdict;
}

void fa_attn_case_text(const fa_attn_case *what, char *ret_text, size_t size)
{
    const fa_problem *p = &what->problem;
    int64_t columns = columns_of(p, FA_ATTN_O);
    bool rows_touch = what->tensor[FA_ATTN_O].row_stride == columns ||
                      what->tensor[FA_ATTN_O].head_stride == columns;
    bool own = p->varlen || p->lengths_k != FA_LENGTHS_FIXED;
    snprintf(ret_text, size, "batch %d, heads %d/%d, seq %s%dx%d, %s%s%s", p->batch, p->heads_q,
             p->heads_kv, own ? "up to " : "", p->seq_q, p->seq_k, fa_layout_name(p->layout),
             rows_touch ? "" : ", padded", what->input_scale[0] > 2 ? ", large scores" : "");
}
