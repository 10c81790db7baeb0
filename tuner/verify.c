/* SPDX-License-Identifier: Apache-2.0
 *
 * The proof: a candidate's launches, what the checking kernels see of each, and the verdict.
 *
 * Workload: up to a few hundred candidates; for each 15 launches, three small checking kernels
 * after every one, one synchronisation and one small copy.
 */
#include "ground.h"

#include "../src/base/error.h"

#include <math.h>
#include <stdio.h>

static int poison(fa_ground *g, fa_device_ptr from, fa_device_ptr to, fa_diag *diag)
{
    return from == to ? 0
                      : fa_fill16(g->driver, from, FA_POISON_ELEMENT, (size_t)(to - from) / 2,
                                  g->stream, diag);
}

static int run_candidate(fa_ground *g, const fa_ground_kernel *kernel, int index, fa_diag *diag)
{
    struct ground_case *c = &g->at[index];
    void *arguments[] = {&c->params, kernel->maps != NULL ? &kernel->maps[index] : NULL};
    if (c->rows == 0)
        return 0;
    return fa_launch_kernel(g->driver, kernel->function, kernel->grid[index], kernel->threads,
                            kernel->smem_bytes, g->stream, arguments, diag);
}

static fa_device_ptr result_at(const fa_ground *g, int round, int index)
{
    return g->results + (uint64_t)((round * g->count + index) * FA_GROUND_BANDS) *
                            sizeof(struct fa_attn_compare);
}

/* Compares the rows of each band into a result of its own, from `result` on. */
static int compare_rows(fa_ground *g, struct ground_case *c, fa_device_ptr result, fa_diag *diag)
{
    uint64_t head_dim = (uint64_t)c->what.problem.head_dim;
    int rc = 0;
    for (int band = 0; rc == 0 && band < c->bands; band++) {
        int first = c->row_count / c->bands * band;
        int count = band + 1 < c->bands ? c->row_count / c->bands : c->row_count - first;
        uint64_t skip = (uint64_t)first;
        fa_device_ptr ids = c->row_ids != 0 ? c->row_ids + skip * sizeof(int64_t) : 0;
        fa_device_ptr ref_o = c->ref_o + skip * head_dim * sizeof(float);
        fa_device_ptr lowp_o = c->lowp_o + skip * head_dim * sizeof(float);
        fa_device_ptr ref_lse = c->ref_lse + skip * sizeof(float);
        fa_device_ptr to = result + (uint64_t)band * sizeof(struct fa_attn_compare);
        void *compare[] = {&c->params, &ids, &count, &ref_o, &ref_lse, &lowp_o, &to};
        rc = fa_ground_run(g, g->compare, FA_GROUND_THREADS, (uint64_t)count * 32, compare, diag);
    }
    return rc;
}

/* Adds to the results of a case what is seen in its outputs; the first band's gets what is seen
 * beside the compared rows. */
static int check_outputs(fa_ground *g, int index, fa_device_ptr result, fa_diag *diag)
{
    struct ground_case *c = &g->at[index];
    unsigned short element = FA_POISON_ELEMENT;
    struct fa_attn_region *o = &c->tensor[FA_ATTN_O];
    void *gaps[] = {o, &c->lse, &result};
    int rc = fa_ground_run(g, g->check_gaps, FA_GROUND_THREADS, o->count, gaps, diag);
    if (rc != 0 || c->rows == 0)
        return rc;
    void *written[] = {&c->params, &element, &result};
    rc = fa_ground_run(g, g->check_written, FA_GROUND_THREADS, (uint64_t)c->rows * 32, written,
                       diag);
    return rc != 0 ? rc : compare_rows(g, c, result, diag);
}

/* ---- proof ----------------------------------------------------------------------------------*/
static size_t results_size(const fa_ground *g)
{
    return (size_t)(FA_GROUND_ROUNDS * FA_GROUND_BANDS * g->count) *
           sizeof(struct fa_attn_compare);
}

static int clear_results(fa_ground *g, fa_diag *diag)
{
    return fa_fill8(g->driver, g->results, 0, results_size(g), g->stream, diag);
}

static int read_results(fa_ground *g, struct fa_attn_compare *ret_seen, fa_diag *diag)
{
    int rc = fa_stream_synchronize(g->driver, g->stream, diag);
    if (rc == 0)
        rc = fa_copy_from_device(g->driver, ret_seen, g->results, results_size(g), diag);
    return rc;
}

/* Adds one verdict to a proof; the worst error relative to its tolerance is kept, and the first
 * reason. `other`: of the same case's other launch. */
static void add_verdict(fa_proof *proof, const struct ground_case *c, int index, int round,
                        const fa_attn_verdict *other, const fa_attn_verdict *v)
{
    if (index + round == 0 || !(v->error / v->tolerance <= proof->max_error / proof->tolerance)) {
        proof->max_error = v->error;
        proof->tolerance = v->tolerance;
    }
    if (v->passed || proof->reason[0] != 0)
        return;
    char text[160];
    fa_attn_case_text(&c->what, text, sizeof text);
    proof->passed = false;
    snprintf(proof->reason, sizeof proof->reason, "case %d (%s): %s%s", index, text,
             !other->passed ? ""
             : round == 0   ? "launches differ: right in the second, but in the first "
                            : "launches differ: right in the first, but in the second ",
             v->reason);
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
static fa_attn_verdict judge_case(const struct ground_case *c, const struct fa_attn_compare *seen)
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

static void judge(fa_ground *g, const struct fa_attn_compare *seen, fa_proof *ret_proof)
{
    fa_proof proof = {.passed = true};
    for (int i = 0; i < g->count; i++) {
        const struct ground_case *c = &g->at[i];
        const struct fa_attn_compare *again = &seen[(g->count + i) * FA_GROUND_BANDS];
        const struct fa_attn_compare *once = &seen[i * FA_GROUND_BANDS];
        fa_attn_verdict first = judge_case(c, once), second = first;
        if (!c->what.once)
            second = judge_case(c, again);
        g->damaged = g->damaged || once->guard_damaged != 0 || again->guard_damaged != 0;
        add_verdict(&proof, c, i, 0, &second, &first);
        add_verdict(&proof, c, i, 1, &first, &second);
    }
    *ret_proof = proof;
}

int fa_ground_prove(fa_ground *g, const fa_ground_kernel *kernel, fa_proof *ret_proof,
                    fa_diag *diag)
{
    struct fa_attn_compare seen[FA_GROUND_ROUNDS * FA_BENCH_CASES * FA_GROUND_BANDS];
    int rc = g->damaged ? fa_ground_prepare(g, diag) : 0;
    if (rc == 0)
        rc = clear_results(g, diag);
    for (int round = 0; rc == 0 && round < FA_GROUND_ROUNDS; round++) {
        bool first_again = round > 0 && !g->at[0].what.once;
        rc = poison(g, round == 0 || first_again ? g->outputs : g->small_outputs, g->outputs_end,
                    diag);
        for (int i = 0; rc == 0 && i < g->count; i++) {
            if (round > 0 && g->at[i].what.once)
                continue;
            rc = run_candidate(g, kernel, i, diag);
            if (rc == 0)
                rc = check_outputs(g, i, result_at(g, round, i), diag);
        }
    }
    if (rc == 0)
        rc = read_results(g, seen, diag);
    if (rc != 0) {
        g->damaged = true;
        return fa_fail_in(diag, rc, "proving a kernel");
    }
    judge(g, seen, ret_proof);
    return 0;
}

/* ---- for timing -----------------------------------------------------------------------------*/
fa_stream fa_ground_stream(const fa_ground *g)
{
    return g->stream;
}

const fa_attn_case *fa_ground_case(const fa_ground *g, int index)
{
    return &g->at[index].what;
}

int fa_ground_launch(fa_ground *g, const fa_ground_kernel *kernel, fa_diag *diag)
{
    return run_candidate(g, kernel, 0, diag);
}

int fa_ground_poison(fa_ground *g, fa_diag *diag)
{
    int rc = g->damaged ? fa_ground_prepare(g, diag) : 0;
    return rc != 0 ? rc : poison(g, g->outputs, g->small_outputs, diag);
}

int fa_ground_check(fa_ground *g, fa_proof *ret_proof, fa_diag *diag)
{
    struct fa_attn_compare seen[FA_GROUND_ROUNDS * FA_BENCH_CASES * FA_GROUND_BANDS];
    int rc = clear_results(g, diag);
    if (rc == 0)
        rc = check_outputs(g, 0, g->results, diag);
    if (rc == 0)
        rc = read_results(g, seen, diag);
    if (rc != 0)
        return fa_fail_in(diag, rc, "checking a timed kernel");
    fa_proof proof = {.passed = true};
    fa_attn_verdict verdict = judge_case(&g->at[0], seen);
    add_verdict(&proof, &g->at[0], 0, 0, &verdict, &verdict);
    g->damaged = g->damaged || seen[0].guard_damaged != 0;
    *ret_proof = proof;
    return 0;
}
