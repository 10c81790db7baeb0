/* SPDX-License-Identifier: Apache-2.0
 *
 * The proofs of attention forward: its cases, how long their sequences are and how their tensors lie, which rows are
 * compared, and what they may differ by.
 */
#include "attn_proof.h"

#include "attn_launch.h"
#include "buf.h"
#include "error.h"
#include "snippet.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PAGES_OF_NONE = 3 };
enum { LSE = FA_ATTN_LSE, LISTS, BUFFERS, TENSORS = BUFFERS + FA_ATTN_BUFFERS };

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

static int fill_pages(const fa_attn_case *what, const fa_attn_lists *lists, int32_t *words,
                      fa_diag *diag)
{
    static const int32_t of_none[] = {-1, INT32_MAX, INT32_MIN};
    int32_t page = what->problem.page, next = 0;
    int32_t *used = words + lists->used;
    FA_ENDS(fa_free_at) int32_t *order = malloc(((size_t)what->num_pages + 1) * sizeof *order);
    FA_OR_RETURN(fa_have(order != NULL, "pages", diag));
    for (int32_t i = 0; i < what->num_pages; i++) { /* all of them in any order */
        const uint64_t random = fa_random(what->seed, ((uint64_t)1 << 50) + (uint64_t)i);
        const int32_t j = (int32_t)(random % ((uint64_t)i + 1));
        order[i] = order[j];
        order[j] = i;
    }
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
    const bool packed = p->lengths_k == FA_LENGTHS_CU_SEQLENS;
    int32_t *q = words + lists->cu_seqlens_q, *k = words + lists->cu_seqlens_k;
    q[0] = k[0] = 0;
    for (int32_t b = 0; b < p->batch; b++) {
        const int32_t keys = fa_attn_length_k(what, b);
        q[b + 1] = q[b] + fa_attn_length_q(what, b);
        k[b + 1] = k[b] + keys;
        words[lists->seqused_k + (size_t)b] = keys;
        if (p->page == 0)
            words[lists->used + (packed ? 0 : (size_t)b)] = packed ? k[b + 1] : keys;
    }
    for (int32_t h = 0; h < p->heads_q; h++) /* -2 to 4 */
        put_float(&words[lists->sinks + (size_t)h],
                  (float)(fa_random(what->seed, ((uint64_t)1 << 60) + (uint64_t)h) % 49) / 8 - 2);
    for (int32_t h = 0; h < p->heads_kv; h++) {
        put_float(&words[lists->k_scale + (size_t)h], 0.75f + 0.125f * (float)(h % 5));
        put_float(&words[lists->v_scale + (size_t)h], 1.25f - 0.125f * (float)(h % 7));
    }
    return p->page > 0 ? fill_pages(what, lists, words, diag) : 0;
}

/* ---- cases ----------------------------------------------------------------------------------*/
static bool is_of_keys(int tensor)
{
    return tensor == FA_ATTN_K || tensor == FA_ATTN_V;
}

static bool is_fp8(const fa_problem *p, int tensor)
{
    return tensor == FA_ATTN_Q ? p->q_dtype == FA_KV_FP8
                               : is_of_keys(tensor) && p->kv_dtype != FA_KV_SAME;
}

/* row_gap: elements behind each row of a head; block_gap: elements behind the inner block (the rows
 * of a head, or the heads of a position). Products stay below 2^56. */
static fa_attn_tensor lay_out(const fa_attn_case *what, int tensor, uint64_t row_gap,
                              uint64_t block_gap)
{
    const fa_problem *p = &what->problem;
    const bool keys = is_of_keys(tensor), paged = keys && p->page > 0;
    const bool packed = keys ? p->lengths_k == FA_LENGTHS_CU_SEQLENS && !paged : p->varlen;
    const int64_t rows = paged    ? p->page
                         : packed ? keys ? what->total_k : what->total_q
                         : keys   ? p->seq_k
                                  : p->seq_q;
    fa_attn_tensor t = {.extent = {(uint64_t)(paged    ? what->num_pages
                                              : packed ? 1
                                                       : p->batch),
                                   (uint64_t)(keys ? p->heads_kv : p->heads_q), (uint64_t)rows,
                                   (uint64_t)fa_attn_columns(p, tensor)},
                        .stride[3] = 1};
    const int inner = p->layout == FA_BHSD && !packed ? 2 : 1, outer = 3 - inner;
    t.stride[inner] = t.extent[3] + row_gap;
    t.stride[outer] = t.extent[inner] * t.stride[inner] + block_gap;
    t.stride[0] = t.extent[outer] * t.stride[outer];
    return t;
}

fa_attn_case fa_attn_case_make(const fa_problem *problem, int pad, uint64_t seed, bool ragged)
{
    /* Each tensor has gaps of its own, so that no stride can stand in for another; in units of 16 bytes, and odd when the
     * problem is unaligned. Rows of O are further apart than any tile's excess over head_dim (56). */
    static const unsigned row_gaps[FA_ATTN_TENSORS] = {1, 3, 2, 8}, block_gaps[] = {5, 2, 7, 9};
    static const unsigned offsets[] = {1, 3, 5, 7};
    const unsigned odd = problem->unaligned ? 1 : 0;
    fa_attn_case c = {.problem = *problem,
                      .input_scale = {1, 1, 1},
                      .softmax_scale = 1 / sqrtf((float)problem->head_dim),
                      .seed = seed,
                      .ragged = ragged,
                      .softcap = ragged ? 5.0f : 30.0f};
    int64_t pages = problem->page > 0 ? PAGES_OF_NONE : 0;
    for (int32_t b = 0; b < problem->batch && !fa_attn_is_dense(problem); b++) {
        const int64_t keys = fa_attn_length_k(&c, b);
        c.total_q += fa_attn_length_q(&c, b);
        c.total_k += keys;
        pages += problem->page > 0 ? (keys + problem->page - 1) / problem->page : 0;
    }
    c.num_pages = pages < INT32_MAX ? (int32_t)pages : INT32_MAX;
    for (int i = 0; i < FA_ATTN_TENSORS; i++) {
        const unsigned wide = is_fp8(problem, i) ? 2 : 1;
        const unsigned unit = wide * (unsigned)pad;
        c.tensor[i] =
            lay_out(&c, i, unit * (8 * row_gaps[i] + odd), unit * (8 * block_gaps[i] + 2 * odd));
        c.tensor[i].offset = odd * offsets[i] * wide;
    }
    return c;
}

static double rows_of(const fa_attn_case *what)
{
    const uint64_t *extent = what->tensor[FA_ATTN_O].extent;
    return (double)extent[0] * (double)extent[1] * (double)extent[2];
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
    ret_case[0] = fa_attn_case_make(problem, 0, seed, false);
    ret_case[0].once = true;
    /* About 2 ms of the reference kernels on a large GPU; 32 MiB of reference. */
    const double work = rows_of(&ret_case[0]) * problem->head_dim;
    ret_case[0].all_rows = work <= 0x1p22 && work * problem->seq_k <= 0x1p30;
    for (int i = 1; i < FA_BENCH_CASES; i++) {
        fa_problem p = *problem; /* dtype, head_dim, causal and alignment: one cubin for all */
        uint64_t random = fa_random(seed, (uint64_t)i);
        p.batch = rows[i].batch;
        p.heads_q = rows[i].heads_q;
        p.heads_kv = rows[i].heads_kv;
        p.seq_q = rows[i].seq_q - (int32_t)((random & 0xffff) % (uint64_t)(rows[i].jitter_q + 1));
        p.seq_k = rows[i].seq_k - (int32_t)((random >> 32) % (uint64_t)(rows[i].jitter_k + 1));
        fa_case_keep_domain(problem, &p);
        p.layout = rows[i].layout;
        p.want_lse = rows[i].lse;
        p.mean_q = p.mean_k = 0;
        if (p.window) {
            p.window_left = windows[i][0];
            p.window_right = windows[i][1];
        }
        fa_attn_case c = fa_attn_case_make(&p, rows[i].pad, random, true);
        const bool grows = p.score != 0 && strstr(fa_value_words(p.score, NULL), "exp") != NULL;
        c.input_scale[FA_ATTN_Q] = c.input_scale[FA_ATTN_K] = /* e^60 is a float, e^1000 is none */
            fminf(rows[i].size, grows                                                      ? 2
                                : p.q_dtype == FA_KV_FP8 || p.kv_dtype == FA_KV_FP8_DS_MLA ? 4
                                                                                           : 50);
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

/* ---- rows -----------------------------------------------------------------------------------*/
/* By position in the sequence. */
static int by_position(const void *left, const void *right, void *seq)
{
    int64_t rows = *(int64_t *)seq;
    int64_t a = *(const int64_t *)left % rows, b = *(const int64_t *)right % rows;
    return (a > b) - (a < b);
}

void fa_attn_sample_rows(int64_t heads, int64_t seq, uint64_t seed,
                         int64_t ret_rows[FA_PROVER_ROWS])
{
    /* Rows at the edges of tiles, from the start and (negative) from the end of a sequence. */
    static const int edges[] = {0,   1,   15,  16,   17,   31,   63,   64,   65,  127, 128,
                                129, 191, 192, 255,  256,  257,  -1,   -2,   -15, -16, -17,
                                -63, -64, -65, -127, -128, -129, -255, -256, -257};
    enum { EDGES = sizeof edges / sizeof *edges };
    for (int i = 0; i < FA_PROVER_ROWS; i++) {
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
    qsort_r(ret_rows, FA_PROVER_ROWS, sizeof *ret_rows, by_position, &seq);
}

/* ---- tensors of a prover --------------------------------------------------------------------*/
static const fa_attn_case *case_of(const fa_bench *b, int index)
{
    return (const fa_attn_case *)b->own + index;
}

static struct fa_attn_serving_params *params_of(struct fa_proof_case *c)
{
    _Static_assert(sizeof(struct fa_attn_serving_params) <= FA_PARAMS_MAX, "");
    return (void *)c->params; /* a kernel may take their beginning alone */
}

/* What a user's score or mask reads, and dropout. Whole numbers of what is timed stand in runs: its case has no gaps. */
static bool set_buffers(const fa_attn_case *what, struct fa_proof_case *c)
{
    fa_buffer_plan plan[FA_ATTN_BUFFERS];
    const int count = fa_buffers_plan(&what->problem, what->ragged, what->seed, plan);
    bool fits = true;
    c->tensors.count = BUFFERS + count;
    for (int i = 0; i < count; i++) {
        fa_tensor *tensor = &c->tensors.at[BUFFERS + i];
        *tensor = (fa_tensor){.name = "buffer",
                              .elements = plan[i].elements,
                              .span = plan[i].span,
                              .runs = plan[i].span > 0};
        fa_case_keep_positive(&what->problem, plan[i].type->real, tensor);
        fa_element_find(plan[i].type->name, &tensor->element);
        fits = fits && fa_proof_lay(tensor, plan[i].extent, plan[i].stride, 0, &c->of[BUFFERS + i]);
        c->of[BUFFERS + i].scale = 1;
    }
    return fits;
}

/* Sets the tensors of a case. False: one of them passes 2^60 elements. */
static bool set_tensors(const fa_attn_case *what, struct fa_proof_case *c)
{
    static const char *const names[BUFFERS] = {"q", "k", "v", "o", "lse", "lists"};
    const fa_problem *p = &what->problem;
    const uint64_t rows = (uint64_t)rows_of(what), compared = c->sampled ? FA_PROVER_ROWS : rows;
    const uint64_t columns = what->tensor[FA_ATTN_O].extent[3];
    bool fits = set_buffers(what, c);
    for (int t = 0; t < BUFFERS; t++) {
        fa_tensor *tensor = &c->tensors.at[t];
        *tensor = (fa_tensor){.name = names[t],
                              .element = p->dtype == FA_BF16 ? FA_ELEMENT_BF16 : FA_ELEMENT_FP16,
                              .output = t == FA_ATTN_O || t == LSE,
                              .elements = rows * columns};
        if (is_fp8(p, t))
            tensor->element = FA_ELEMENT_FP8_E4M3;
        tensor->span = t == FA_ATTN_K && p->kv_dtype == FA_KV_FP8_DS_MLA;
        if (t < FA_ATTN_TENSORS)
            fits = fits && fa_proof_lay(tensor, what->tensor[t].extent, what->tensor[t].stride,
                                        what->tensor[t].offset, &c->of[t]);
        c->of[t].scale = t < FA_ATTN_O ? what->input_scale[t] : 0;
    }
    c->tensors.at[LSE].element = FA_ELEMENT_FP32;
    c->tensors.at[LSE].elements = p->want_lse ? rows : 0;
    c->tensors.at[LISTS].element = FA_ELEMENT_INT32;
    c->tensors.at[LISTS].elements = fa_attn_is_dense(p) ? 0 : fa_attn_lists_plan(what).words;
    for (int t = LSE; t < BUFFERS; t++)
        fits = fits && fa_proof_pack(&c->tensors.at[t], &c->of[t]);
    c->of[FA_ATTN_O].columns = columns;
    c->of[FA_ATTN_O].count = compared * columns;
    c->of[LSE].columns = 1;
    c->of[LSE].count = compared; /* the reference has it, though it be not wanted */
    c->of[LISTS].on_host = true;
    c->room_bytes = compared * (columns + 1) * sizeof(float); /* a plain computation's O, LSE */
    return fits;
}

void fa_attn_proof_take(fa_bench *b, const fa_attn_case *cases, int count)
{
    fa_attn_case *own = b->own = malloc((size_t)count * sizeof *own);
    if (FA_TRY(b, fa_have(own != NULL, "cases", b->diag)) != 0)
        return;
    memcpy(own, cases, (size_t)count * sizeof *own);
    b->count = count;
    for (int i = 0; i < count; i++) {
        const fa_attn_case *what = &own[i];
        const uint64_t *extent = what->tensor[FA_ATTN_O].extent;
        const double rows = rows_of(what);
        struct fa_proof_case *c = &b->at[i];
        if (what->total_q > INT32_MAX || what->total_k > INT32_MAX)
            FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "case %d has more than 2^31 rows in all", i));
        if (rows > (what->all_rows ? INT32_MAX : 0x1p50))
            FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "case %d has too many query rows", i));
        if (b->rc != 0)
            return;
        *c = (struct fa_proof_case){.problem = what->problem,
                                    .once = what->once,
                                    .empty = rows < 1,
                                    .sampled = !what->all_rows && rows >= 1,
                                    .bands = 1};
        if (c->sampled)
            fa_attn_sample_rows((int64_t)(extent[0] * extent[1]), (int64_t)extent[2],
                                fa_random(b->seed, 2000 + (uint64_t)i), c->row);
        /* Causal rows with few keys have large outputs and large roundings; what these allow
         * would hide everything in rows that average many thousand keys. */
        if (c->sampled && what->problem.causal != FA_CAUSAL_NONE && !what->problem.varlen)
            c->bands = FA_PROVER_BANDS;
        if (!set_tensors(what, c))
            FA_TRY(b, fa_fail(b->diag, FA_ENOMEM, "the tensors of case %d pass 2^60 elements", i));
        const fa_attn_lists lists = fa_attn_lists_plan(what);
        if (b->rc == 0 && fa_proof_host(b, i, LISTS) > 0)
            FA_TRY(b, fa_attn_lists_fill(what, &lists, (void *)c->of[LISTS].host, b->diag));
    }
}

static void take_cases(fa_bench *b, const fa_problem *problem)
{
    fa_attn_case cases[FA_BENCH_CASES];
    fa_attn_proof_take(b, cases, fa_attn_cases(problem, b->seed, cases));
}

/* ---- what kernels are passed ----------------------------------------------------------------*/
/* As a caller passes it. */
static void place(fa_bench *b, int index)
{
    struct fa_proof_case *c = &b->at[index];
    const fa_attn_case *what = case_of(b, index);
    const fa_problem *p = &what->problem;
    const fa_attn_lists lists = fa_attn_lists_plan(what);
    const int32_t *words = (const int32_t *)(uintptr_t)c->of[LISTS].first;
    const float *floats = (const float *)words;
    void *at[TENSORS];
    fa_attn_buffer buffers[FA_ATTN_BUFFERS];
    fa_buffer_plan plan[FA_ATTN_BUFFERS];
    fa_attn_args args = {.size = sizeof args};
    int64_t *const strides[] = {args.q_stride, args.k_stride, args.v_stride, args.o_stride};
    for (int t = 0; t < TENSORS; t++)
        at[t] = (void *)(uintptr_t)c->of[t].first;
    for (int t = 0; t < FA_ATTN_TENSORS; t++) {
        memcpy(strides[t], what->tensor[t].stride, sizeof args.q_stride);
        if (is_of_keys(t) && !fa_attn_is_dense(p))
            c->of[t].place.used = words + lists.used;
    }
    args.q = at[FA_ATTN_Q];
    args.k = at[FA_ATTN_K];
    args.v = at[FA_ATTN_V];
    args.o = at[FA_ATTN_O];
    args.lse = p->want_lse ? at[LSE] : NULL;
    args.softmax_scale = what->softmax_scale;
    args.cu_seqlens_q = p->varlen ? words + lists.cu_seqlens_q : NULL;
    args.cu_seqlens_k = p->lengths_k == FA_LENGTHS_CU_SEQLENS ? words + lists.cu_seqlens_k : NULL;
    args.seqused_k = p->lengths_k == FA_LENGTHS_SEQUSED ? words + lists.seqused_k : NULL;
    args.block_table = p->page > 0 ? words + lists.block_table : NULL;
    args.block_table_stride = lists.table_stride;
    args.sinks = p->sinks ? floats + lists.sinks : NULL;
    args.k_scale = p->kv_dtype == FA_KV_FP8 ? floats + lists.k_scale : NULL;
    args.v_scale = p->kv_dtype == FA_KV_FP8 ? floats + lists.v_scale : NULL;
    args.k_scale_stride[1] = args.v_scale_stride[1] = 1;
    args.num_pages = what->num_pages;
    args.total_q = (int32_t)what->total_q;
    args.total_k = (int32_t)what->total_k;
    args.softcap = what->softcap;
    args.buffers = buffers;
    args.buffer_count = fa_buffers_plan(p, what->ragged, what->seed, plan);
    for (int i = 0; i < args.buffer_count; i++)
        buffers[i] = plan[i].is, buffers[i].at = at[BUFFERS + i];
    FA_TRY(b, fa_attn_dense_take(p, &args, &params_of(c)->dense, b->diag));
    FA_TRY(b, fa_attn_serving_take(p, NULL, &args, params_of(c), b->diag));
}

static int arguments(fa_bench *b, int index, int launch, void *kernels,
                     void *ret_argument[FA_PROVER_ARGUMENTS])
{
    struct fa_attn_shared *shared = kernels;
    struct fa_attn_serving_params *params = params_of(&b->at[index]);
    const bool maps = shared != NULL && shared->boxes.columns != 0;
    (void)launch;
    params->workspace = (void *)(uintptr_t)b->workspace.at;
    params->counters = (unsigned int *)(uintptr_t)b->counters.at;
    params->splits = b->launches->splits;
    if (maps)
        FA_TRY(b, fa_attn_maps_get(shared, b->driver, &b->at[index].problem, params, shared->proved,
                                   b->diag));
    ret_argument[0] = params;
    ret_argument[1] = maps ? shared->proved : NULL;
    return maps ? 2 : 1;
}

/* ---- the reference, and what a kernel may differ by -----------------------------------------*/
/* Scores of magnitude s carry roundings in every kernel: matrix units add a few products at a time and truncate (up to
 * 2^-18.3 * s at head_dim 144); folding the scale into one multiply-add, exp2(x*c - m*c), adds half a unit of m*c. Both
 * shift a weight by that relative amount, which attn_ref_lowp does not show (it subtracts first). So
 *     |o - reference|   <= 2 * lowp_error + max|v| * (2^-16 + 2^-22 * s)
 *     |lse - reference| <= 2^-16 + 2^-24 * head_dim * s
 * With scores of ordinary size (below 30) the terms beside 2 * lowp_error stay below 2^-15 * max|v|.
 * Hopper's products of e4m3 keep 14 bits of a sum after each 32 columns: LSE may be off by 2^-13 of a score for each.
 * A kernel may leave the product of a number of fp8_ds_mla and its scale unrounded: LSE may be off by 2^-9 of a score.
 * LSE shows how large scores were, but not behind a softcap or text: nearly normal, they hardly pass four standard deviations. */
void fa_attn_tolerances(const fa_attn_case *what, double lowp_error, double of_lse, double *ret_o,
                        double *ret_lse)
{
    const double uncapped = 4 * (double)what->softmax_scale * sqrt(what->problem.head_dim) *
                            (double)what->input_scale[FA_ATTN_Q] *
                            (double)what->input_scale[FA_ATTN_K];
    const bool bent = what->problem.softcap || what->problem.score;
    const double scores = bent ? fmax(uncapped, of_lse) : of_lse;
    const double largest_v = 3.4642 * (double)what->input_scale[FA_ATTN_V]; /* the last drawn */
    *ret_o = 2 * lowp_error + largest_v * (0x1p-16 + 0x1p-22 * scores);
    *ret_lse = 0x1p-16 + 0x1p-24 * what->problem.head_dim * scores;
    if (what->problem.q_dtype == FA_KV_FP8)
        *ret_lse += 0x1p-18 * what->problem.head_dim * uncapped;
    if (what->problem.kv_dtype == FA_KV_FP8_DS_MLA)
        *ret_lse += 0x1p-9 * uncapped;
}

/* Of some rows the largest error of the plain computation, or rounding of O, and finite LSE. False: something is no number. */
static bool look_at_rows(const struct fa_proof_case *c, const float *lowp, uint64_t first,
                         uint64_t count, double *error, double *of_lse)
{
    const uint64_t columns = c->of[FA_ATTN_O].columns;
    const float *o = (const void *)c->of[FA_ATTN_O].host, *lse = (const void *)c->of[LSE].host;
    const double unit = c->problem.dtype == FA_BF16 ? 0x1p-8 : 0x1p-11; /* of a last bit, half */
    bool right = true;
    for (uint64_t i = first * columns; i < (first + count) * columns; i++) {
        double difference = fabs((double)lowp[i] - (double)o[i]),
               rounding = unit * fabs((double)o[i]);
        right = right && isfinite(difference);
        *error = fmax(*error, fmax(difference, rounding));
    }
    for (uint64_t i = first; i < first + count; i++) {
        double magnitude = fabs((double)lse[i]);
        right = right && !isnan(magnitude) && !(isinf(magnitude) && lse[i] > 0);
        if (isfinite(magnitude) && magnitude > *of_lse)
            *of_lse = magnitude;
    }
    return right;
}

/* The compared rows together are held to what all proofs are. Each band is held to its own rows as well, with half as much
 * slack again: of 64 rows one with a heavy key can be most of the plain error. */
static int set_tolerances(struct fa_proof_case *c, const fa_attn_case *what, const float *lowp,
                          fa_diag *diag)
{
    static const double BAND_SLACK = 1.5;
    const uint64_t rows = c->of[LSE].count / (uint64_t)c->bands;
    double error[FA_PROVER_BANDS] = {0}, of_lse[FA_PROVER_BANDS] = {0}, o, lse, worst = 0, most = 0;
    for (int band = 0; band < c->bands; band++) {
        if (!look_at_rows(c, lowp, (uint64_t)band * rows, rows, &error[band], &of_lse[band]))
            return fa_fail(diag, FA_ECORRUPT, "the reference has results that are no numbers");
        worst = fmax(worst, error[band]);
        most = fmax(most, of_lse[band]);
    }
    fa_attn_tolerances(what, worst, most, &o, &lse);
    for (int band = 0; band < c->bands; band++) {
        double own_o = o, own_lse = lse;
        if (c->bands > 1)
            fa_attn_tolerances(what, BAND_SLACK * error[band], of_lse[band], &own_o, &own_lse);
        c->of[FA_ATTN_O].tolerance[band].absolute = fmin(o, own_o);
        c->of[LSE].tolerance[band].absolute = fmin(lse, own_lse);
    }
    return 0;
}

static void refer(fa_bench *b, int index)
{
    struct fa_proof_case *c = &b->at[index];
    struct fa_proof_tensor *o = &c->of[FA_ATTN_O];
    const size_t bytes = (size_t)o->count * sizeof(float);
    int count = (int)c->of[LSE].count;
    fa_device_ptr lowp_lse = c->room + bytes;
    void *fp32[] = {c->params, &c->rows, &count, &o->wanted, &c->of[LSE].wanted};
    void *plain[] = {c->params, &c->rows, &count, &c->room, &lowp_lse};
    const uint64_t work = (uint64_t)count * FA_PROVER_THREADS;
    FA_ENDS(fa_free_at) float *lowp = malloc(bytes + 1);
    FA_TRY(b, fa_have(lowp != NULL, "the reference", b->diag));
    fa_bench_run_entry(b, "attn_ref_fp32", work, fp32);
    fa_bench_run_entry(b, "attn_ref_lowp", work, plain);
    fa_proof_fetch(b, index, FA_ATTN_O);
    fa_proof_fetch(b, index, LSE);
    fa_bench_download(b, lowp, c->room, bytes);
    FA_TRY(b, set_tolerances(c, case_of(b, index), lowp, b->diag));
}

const struct fa_proof_type fa_attn_proof = {.take_cases = take_cases,
                                            .place = place,
                                            .refer = refer,
                                            .launcher = &fa_attn_launcher,
                                            .arguments = arguments};
