/* SPDX-License-Identifier: Apache-2.0
 *
 * The prover of attention forward: tensors with any strides, a reference in fp32, a plain computation in
 * the data type that sets the tolerance, and the kernels that compare, scan and fill (attn_ref.cu).
 *
 * Workload: for each launch of a proof three small checking kernels.
 */

#include "attn_cases.h"
#include "attn_launch.h"
#include "prover_base.h"

#include "hash.h"

#include "error.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    INPUT_FENCE = 2048,      /* before and behind each input */
    REFERENCE_THREADS = 128, /* attn_ref.cu asks for it */
    BANDS = 4,               /* of the sampled rows of a causal case */
};
_Static_assert(FA_PROVER_POISON == FA_POISON_ELEMENT, "one poison");

/* In the order of `entries`. */
enum { FILL, POISON_GAPS, REF_FP32, REF_LOWP, COMPARE, CHECK_WRITTEN, CHECK_GAPS, FILL_KEYS };
static const char *const entries[] = {"attn_fill",       "attn_poison_gaps", "attn_ref_fp32",
                                      "attn_ref_lowp",   "attn_compare",     "attn_check_written",
                                      "attn_check_gaps", "attn_fill_keys",   NULL};

struct attn_case {
    fa_attn_case what;
    struct fa_attn_serving_params params; /* a kernel may take their beginning alone */
    struct fa_attn_region tensor[FA_ATTN_TENSORS], lse;
    int64_t rows;        /* of O */
    int row_count;       /* compared */
    int bands;           /* of the compared rows, equally many in each: every one has a result and a
                       tolerance of its own */
    bool serving;        /* its problem is not dense */
    fa_attn_lists lists; /* then what its sequences are, in device memory */
    fa_device_ptr words;
    fa_device_ptr row_ids, ref_o, ref_lse, lowp_o, lowp_lse; /* row_ids 0: all rows in order */
};

struct attn_prover {
    struct fa_prover base;
    struct attn_case at[FA_BENCH_CASES];
};

static struct attn_case *case_of(struct fa_prover *prover, int index)
{
    return &((struct attn_prover *)prover)->at[index];
}

/* ---- memory ---------------------------------------------------------------------------------*/
/* A tensor with fences; returns the address of its first element. */
static fa_device_ptr take_tensor(struct fa_cursor *cursor, struct attn_case *c, int tensor)
{
    uint64_t fence = tensor == FA_ATTN_O ? FA_PROVER_FENCE : INPUT_FENCE, span = 0, count;
    uint64_t first = fence + (uint64_t)c->what.tensor[tensor].offset;
    if (!fa_attn_tensor_span(&c->what, tensor, &span) ||
        __builtin_add_overflow(span, first + fence, &count)) {
        cursor->overflow = true;
        return 0;
    }
    count = (count + 127) & ~(uint64_t)127;
    fa_device_ptr base = fa_cursor_take(cursor, count, 2);
    c->tensor[tensor] = fa_attn_tensor_region(&c->what, tensor, base, count, first);
    return base + 2 * first;
}

static void take_inputs(struct fa_cursor *cursor, struct attn_case *c)
{
    uint64_t first[FA_ATTN_TENSORS] = {0};
    for (int i = 0; i < FA_ATTN_O; i++)
        first[i] = take_tensor(cursor, c, i);
    c->params.dense = fa_attn_params_of(&c->what, first, 0);
    if (c->serving) {
        c->lists = fa_attn_lists_plan(&c->what);
        c->words = fa_cursor_take(cursor, c->lists.words, sizeof(int32_t));
        fa_attn_lists_params(&c->what, &c->lists, c->words, &c->params);
    }
    c->row_ids =
        c->what.all_rows ? 0 : fa_cursor_take(cursor, (uint64_t)c->row_count, sizeof(int64_t));
    uint64_t elements = (uint64_t)c->row_count * (uint64_t)fa_attn_columns_of_o(&c->what);
    c->ref_o = fa_cursor_take(cursor, elements, sizeof(float));
    c->lowp_o = fa_cursor_take(cursor, elements, sizeof(float));
    c->ref_lse = fa_cursor_take(cursor, (uint64_t)c->row_count, sizeof(float));
    c->lowp_lse = fa_cursor_take(cursor, (uint64_t)c->row_count, sizeof(float));
}

static void take_outputs(struct fa_cursor *cursor, struct attn_case *c)
{
    c->params.dense.o = (void *)(uintptr_t)take_tensor(cursor, c, FA_ATTN_O);
    if (!c->what.problem.want_lse)
        return;
    uint64_t count;
    if (__builtin_mul_overflow((uint64_t)c->rows, 2u, &count) ||
        __builtin_add_overflow(count, 2 * FA_PROVER_FENCE, &count)) {
        cursor->overflow = true;
        return;
    }
    fa_device_ptr base = fa_cursor_take(cursor, count, 2);
    c->params.dense.lse = (float *)(uintptr_t)(base + 2 * FA_PROVER_FENCE);
    c->lse = fa_attn_lse_region(&c->what, base, count, FA_PROVER_FENCE);
}

static void plan(struct fa_prover *prover, int index, struct fa_cursor *inputs,
                 struct fa_cursor *outputs)
{
    take_inputs(inputs, case_of(prover, index));
    take_outputs(outputs, case_of(prover, index));
}

/* ---- inputs and references ------------------------------------------------------------------*/
static int fill_input(struct fa_prover *g, struct attn_case *c, int index, int tensor,
                      fa_diag *diag)
{
    struct fa_attn_region *region = &c->tensor[tensor];
    unsigned short *first = region->base + region->first;
    unsigned long long span = 0;
    uint64_t elements = 0;
    unsigned long long seed = fa_random(g->seed, (uint64_t)(1000 + 4 * index + tensor));
    fa_attn_tensor_span(&c->what, tensor, &elements);
    span = elements;
    void *fill[] = {&first, &span, &seed, &c->what.input_scale[tensor]}, *poison[] = {region};
    int rc = fa_prover_run(g, g->kernel[FILL], FA_PROVER_THREADS, span, fill, diag);
    return rc != 0 ? rc
                   : fa_prover_run(g, g->kernel[POISON_GAPS], FA_PROVER_THREADS, region->count,
                                   poison, diag);
}

/* Keys or values of sequences: what none of them uses stays NaN, whose bits are those of fp8 too. */
static int fill_keys(struct fa_prover *g, struct attn_case *c, int index, int tensor, fa_diag *diag)
{
    const fa_attn_tensor *t = &c->what.tensor[tensor];
    struct fa_attn_region *region = &c->tensor[tensor];
    const fa_problem *p = &c->what.problem;
    bool fp8 = p->kv_dtype == FA_KV_FP8;
    bool packed = p->lengths_k == FA_LENGTHS_CU_SEQLENS && p->page == 0;
    struct fa_attn_keys keys = {
        .first = (void *)(uintptr_t)(tensor == FA_ATTN_K ? c->params.dense.k : c->params.dense.v),
        .block_stride = t->batch_stride,
        .head_stride = t->head_stride,
        .row_stride = t->row_stride,
        .blocks = c->lists.blocks,
        .heads = p->heads_kv,
        .rows = p->page > 0 ? p->page
                : packed    ? (int)c->what.total_k
                            : p->seq_k,
        .columns = tensor == FA_ATTN_V ? fa_attn_columns_of_o(&c->what) : p->head_dim};
    unsigned long long seed = fa_random(g->seed, (uint64_t)(1000 + 4 * index + tensor));
    const int *used = (const int *)(uintptr_t)c->words + c->lists.used;
    void *fill[] = {&keys, &used, &seed, &c->what.input_scale[tensor]};
    fa_device_ptr base = (fa_device_ptr)(uintptr_t)region->base;
    int rc = fp8 ? fa_fill8(g->driver, base, 0x7f, region->count * 2, g->stream, diag)
                 : fa_fill16(g->driver, base, FA_PROVER_POISON, region->count, g->stream, diag);
    uint64_t rows = (uint64_t)keys.blocks * (uint64_t)keys.heads * (uint64_t)keys.rows;
    return rc != 0
               ? rc
               : fa_prover_run(g, g->kernel[FILL_KEYS], FA_PROVER_THREADS, rows * 32, fill, diag);
}

static int fill_lists(struct fa_prover *g, struct attn_case *c, fa_diag *diag)
{
    int32_t *words = calloc(c->lists.words + 1, sizeof *words);
    int rc = words != NULL ? fa_attn_lists_fill(&c->what, &c->lists, words, diag)
                           : fa_fail(diag, FA_ENOMEM, "out of memory");
    if (rc == 0)
        rc = fa_copy_to_device(g->driver, c->words, words, c->lists.words * sizeof *words, diag);
    free(words);
    return rc;
}

static int compute_reference(struct fa_prover *g, struct attn_case *c, int index, fa_diag *diag)
{
    uint64_t work = (uint64_t)c->row_count * REFERENCE_THREADS;
    if (c->row_count == 0)
        return 0;
    if (c->row_ids != 0) {
        int64_t ids[FA_ATTN_SAMPLED_ROWS];
        fa_problem numbered = fa_attn_row_problem(&c->what);
        fa_attn_sample_rows(&numbered, fa_random(g->seed, 2000 + (uint64_t)index), ids);
        int rc = fa_copy_to_device(g->driver, c->row_ids, ids, sizeof ids, diag);
        if (rc != 0)
            return rc;
    }
    void *fp32[] = {&c->params, &c->row_ids, &c->row_count, &c->ref_o, &c->ref_lse};
    void *lowp[] = {&c->params, &c->row_ids, &c->row_count, &c->lowp_o, &c->lowp_lse};
    int rc = fa_prover_run(g, g->kernel[REF_FP32], REFERENCE_THREADS, work, fp32, diag);
    return rc != 0 ? rc
                   : fa_prover_run(g, g->kernel[REF_LOWP], REFERENCE_THREADS, work, lowp, diag);
}

static int prepare(struct fa_prover *prover, int index, fa_diag *diag)
{
    struct attn_case *c = case_of(prover, index);
    int rc = c->serving ? fill_lists(prover, c, diag) : 0;
    for (int t = 0; rc == 0 && t < FA_ATTN_O; t++)
        rc = c->serving && t != FA_ATTN_Q ? fill_keys(prover, c, index, t, diag)
                                          : fill_input(prover, c, index, t, diag);
    return rc != 0 ? rc : compute_reference(prover, c, index, diag);
}

/* ---- cases ----------------------------------------------------------------------------------*/
static int set_cases(struct fa_prover *prover, const fa_attn_case *cases, int count, fa_diag *diag)
{
    if (count < 1 || count > FA_BENCH_CASES)
        return fa_fail(diag, FA_EINVAL, "%d cases: use 1 to %d", count, FA_BENCH_CASES);
    prover->count = count;
    for (int i = 0; i < count; i++) {
        struct attn_case *c = case_of(prover, i);
        c->what = cases[i];
        c->serving = !fa_attn_is_dense(&c->what.problem);
        fa_problem numbered = fa_attn_row_problem(&c->what);
        if (c->what.total_q > INT32_MAX || c->what.total_k > INT32_MAX)
            return fa_fail(diag, FA_ENOMEM, "case %d has more than 2^31 rows in all", i);
        if (!fa_attn_rows(&numbered, &c->rows) || (c->what.all_rows && c->rows > INT32_MAX))
            return fa_fail(diag, FA_ENOMEM, "case %d has too many query rows", i);
        bool all = c->what.all_rows || c->rows == 0;
        c->what.all_rows = all;
        c->row_count = all ? (int)c->rows : FA_ATTN_SAMPLED_ROWS;
        /* Causal rows with few keys have large outputs and large roundings; what these allow
         * would hide everything in rows that average many thousand keys. */
        c->bands =
            all || c->what.problem.causal == FA_CAUSAL_NONE || c->what.problem.varlen ? 1 : BANDS;
        prover->at[i] = (struct fa_prover_case){
            .problem = c->what.problem, .once = c->what.once, .empty = c->rows == 0};
    }
    return 0;
}

static int take_cases(struct fa_prover *prover, const fa_problem *problem, fa_diag *diag)
{
    fa_attn_case cases[FA_BENCH_CASES];
    return set_cases(prover, cases, fa_attn_cases(problem, prover->seed, cases), diag);
}

/* ---- launching ------------------------------------------------------------------------------*/
static int attn_load(struct fa_prover *prover, fa_module *module, const fa_cubin_entry *entry,
                     void **ret_extra, fa_diag *diag)
{
    (void)module;
    struct fa_attn_boxes boxes;
    int rc = fa_attn_boxes_read(entry, &boxes, diag);
    if (rc != 0 || boxes.columns == 0) {
        if (rc == 0)
            *ret_extra = NULL;
        return rc;
    }
    struct fa_attn_tensor_maps *maps =
        aligned_alloc(_Alignof(struct fa_attn_tensor_maps), (size_t)prover->count * sizeof *maps);
    if (maps == NULL)
        return fa_fail(diag, FA_ENOMEM, "out of memory");
    for (int i = 0; rc == 0 && i < prover->count; i++) {
        const struct attn_case *c = case_of(prover, i);
        struct fa_attn_form form = fa_attn_form_of(&c->what.problem);
        rc = fa_attn_maps_encode(prover->driver, &boxes, &form, &c->params, &maps[i], diag);
    }
    if (rc != 0)
        free(maps);
    else
        *ret_extra = maps;
    return rc;
}

static void arguments(struct fa_prover *prover, int index, void *extra,
                      void *ret_argument[FA_PROVER_ARGUMENTS])
{
    struct attn_case *c = case_of(prover, index);
    c->params.workspace = (void *)(uintptr_t)prover->workspace.at;
    c->params.counters = (unsigned int *)(uintptr_t)prover->counters.at;
    c->params.splits = prover->splits;
    ret_argument[0] = &c->params;
    ret_argument[1] = extra != NULL ? (struct fa_attn_tensor_maps *)extra + index : NULL;
}

/* ---- checking -------------------------------------------------------------------------------*/
/* Compares the rows of each band into a result of its own, from `result` on. */
static int compare_rows(struct fa_prover *g, struct attn_case *c, fa_device_ptr result,
                        fa_diag *diag)
{
    uint64_t columns = (uint64_t)fa_attn_columns_of_o(&c->what);
    int rc = 0;
    for (int band = 0; rc == 0 && band < c->bands; band++) {
        int first = c->row_count / c->bands * band;
        int count = band + 1 < c->bands ? c->row_count / c->bands : c->row_count - first;
        uint64_t skip = (uint64_t)first;
        fa_device_ptr ids = c->row_ids != 0 ? c->row_ids + skip * sizeof(int64_t) : 0;
        fa_device_ptr ref_o = c->ref_o + skip * columns * sizeof(float);
        fa_device_ptr lowp_o = c->lowp_o + skip * columns * sizeof(float);
        fa_device_ptr ref_lse = c->ref_lse + skip * sizeof(float);
        fa_device_ptr to = result + (uint64_t)band * sizeof(struct fa_attn_compare);
        void *compare[] = {&c->params, &ids, &count, &ref_o, &ref_lse, &lowp_o, &to};
        rc = fa_prover_run(g, g->kernel[COMPARE], FA_PROVER_THREADS, (uint64_t)count * 32, compare,
                           diag);
    }
    return rc;
}

/* Adds to the results of a case what is seen in its outputs; the first band's gets what is seen
 * beside the compared rows. */
static int attn_check(struct fa_prover *g, int round, int index, fa_device_ptr result,
                      fa_diag *diag)
{
    struct attn_case *c = case_of(g, index);
    (void)round;
    unsigned short element = FA_POISON_ELEMENT;
    struct fa_attn_region *o = &c->tensor[FA_ATTN_O];
    void *gaps[] = {o, &c->lse, &result};
    int rc = fa_prover_run(g, g->kernel[CHECK_GAPS], FA_PROVER_THREADS, o->count, gaps, diag);
    if (rc != 0 || c->rows == 0)
        return rc;
    void *written[] = {&c->params, &element, &result};
    rc = fa_prover_run(g, g->kernel[CHECK_WRITTEN], FA_PROVER_THREADS, (uint64_t)c->rows * 32,
                       written, diag);
    return rc != 0 ? rc : compare_rows(g, c, result, diag);
}

/* The bands of a case as one result: what is wrong in any of them is wrong in it. */
static struct fa_attn_compare all_bands(const struct fa_attn_compare *seen, int bands)
{
    struct fa_attn_compare all = seen[0];
    for (int band = 1; band < bands; band++) {
        all.max_error = fmaxf(all.max_error, seen[band].max_error);
        all.max_error_lowp = fmaxf(all.max_error_lowp, seen[band].max_error_lowp);
        all.max_error_lse = fmaxf(all.max_error_lse, seen[band].max_error_lse);
        all.max_magnitude_lse = fmaxf(all.max_magnitude_lse, seen[band].max_magnitude_lse);
        all.nonfinite += seen[band].nonfinite;
    }
    return all;
}

/* The sampled rows together are held to what all proofs are. Each band is held to its own rows as
 * well, with half as much slack again: the plain error of 64 rows is less steady, because one row
 * with a heavy key can be most of it (in simulations right kernels reach 0.92 of the common
 * tolerance there, while a missing tile of keys exceeds it several times). */
static fa_attn_verdict judge_case(const struct attn_case *c, const struct fa_attn_compare *seen)
{
    static const float BAND_SLACK = 1.5f;
    struct fa_attn_compare all = all_bands(seen, c->bands);
    fa_attn_verdict worst = fa_attn_judge(&c->what, &all);
    for (int band = 0; c->bands > 1 && band < c->bands && worst.passed; band++) {
        struct fa_attn_compare one = seen[band];
        one.max_error_lowp *= BAND_SLACK;
        fa_attn_verdict v = fa_attn_judge(&c->what, &one);
        if (!v.passed || !(v.error / v.tolerance <= worst.error / worst.tolerance))
            worst = v;
    }
    return worst;
}

static void judge(const struct fa_prover *prover, int round, int index, const void *result,
                  struct fa_verdict *ret_verdict)
{
    const struct fa_attn_compare *seen = result;
    fa_attn_verdict v = judge_case(&((const struct attn_prover *)prover)->at[index], seen);
    (void)round;
    *ret_verdict = (struct fa_verdict){.passed = v.passed,
                                       .damaged = seen->guard_damaged != 0,
                                       .error = v.error,
                                       .tolerance = v.tolerance};
    memcpy(ret_verdict->reason, v.reason, sizeof v.reason);
}

static void attn_case_text(const struct fa_prover *prover, int index, char *ret_text, size_t size)
{
    fa_attn_case_text(&((const struct attn_prover *)prover)->at[index].what, ret_text, size);
}

const struct fa_prover_type fa_attn_prover = {.size = sizeof(struct attn_prover),
                                              .result_bytes =
                                                  BANDS * sizeof(struct fa_attn_compare),
                                              .entry = entries,
                                              .take_cases = take_cases,
                                              .plan = plan,
                                              .prepare = prepare,
                                              .arguments = arguments,
                                              .load = attn_load,
                                              .check = attn_check,
                                              .judge = judge,
                                              .text = attn_case_text};

/* ---- for tests ------------------------------------------------------------------------------*/
int fa_attn_prover_open(fa_driver *driver, const fa_bench_setup *setup, const fa_attn_case *cases,
                        int count, fa_prover **ret_prover, fa_diag *diag)
{
    fa_prover *p = NULL;
    int rc = fa_prover_new(&fa_attn_prover, driver, setup, &p, diag);
    if (rc != 0)
        return rc;
    rc = set_cases(p, cases, count, diag);
    if (rc == 0)
        rc = fa_prover_begin(p, setup, diag);
    if (rc != 0)
        fa_prover_close(&p);
    else
        *ret_prover = p;
    return rc;
}

fa_device_ptr fa_attn_prover_reference(fa_prover *prover, int index, fa_device_ptr *ret_lse,
                                       int *ret_rows)
{
    const struct attn_case *c = case_of(prover, index);
    *ret_lse = c->ref_lse;
    *ret_rows = c->row_count;
    return c->ref_o;
}

const struct fa_attn_params *fa_attn_prover_params(fa_prover *prover, int index)
{
    return &case_of(prover, index)->params.dense;
}

const struct fa_attn_serving_params *fa_attn_prover_serving(fa_prover *prover, int index)
{
    return &case_of(prover, index)->params;
}
