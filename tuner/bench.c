/* SPDX-License-Identifier: Apache-2.0
 *
 * A bench: opening it, loading candidates, and timing them on the first case; and what their samples say: medians, their
 * intervals, and what the rounds of a race have in common.
 *
 * Workload: a probe of a few launches per proved candidate, a race of tens of rounds between a few.
 * Invariants: only proved kernels are launched; L2 is flushed before every timed launch and outside its events, so that the
 * queue is full when the device reaches it; what was timed is checked again, and who was wrong there loses its proof.
 */
#include "bench.h"

#include "buf.h"
#include "call.h"
#include "op.h"
#include "prover.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- open and close -------------------------------------------------------------------------*/
static int load_reference(fa_bench *b, const void *cubin, size_t size, fa_diag *diag)
{
    static const char *const entries[FA_CHECK_KERNELS] = {"fa_check_input", "fa_check_largest",
                                                          "fa_check_output", "fa_check_around",
                                                          "fa_check_bits"};
    int rc = fa_module_load(b->driver, cubin, size, &b->module, diag);
    for (int i = 0; rc == 0 && i < FA_CHECK_KERNELS; i++)
        rc = fa_module_function(b->module, entries[i], 0, &b->check[i], diag);
    return rc == 0 ? 0 : fa_fail_in(diag, rc, "loading the reference kernels");
}

int fa_bench_open(fa_driver *driver, const fa_bench_setup *setup, fa_bench **ret_bench,
                  fa_diag *diag)
{
    const fa_gpu *gpu = setup->gpu;
    const size_t least = (size_t)32 << 20;
    fa_bench *b = calloc(1, sizeof *b);
    FA_OR_RETURN(fa_have(b != NULL, "a bench", diag));
    b->type = setup->type != NULL ? setup->type : fa_op_of(setup->problem)->proof;
    b->driver = driver;
    b->diag = diag;
    b->seed = setup->seed;
    b->data = setup->data;
    b->memory = setup->memory;
    /* Twice the L2, so that no line of the tensors stays whatever the replacement policy. */
    b->flush_bytes = gpu->l2_bytes > 0 ? 2 * (size_t)gpu->l2_bytes : 8 * least;
    if (b->flush_bytes < least)
        b->flush_bytes = least;
    b->blocks_max = gpu->sm_count > 0 ? (uint32_t)gpu->sm_count * 16 : 1024;
    b->type->take_cases(b, setup->problem);
    b->at[0].once = b->at[0].once && !setup->twice;
    for (int i = 0; setup->answer != NULL && i < b->count; i++)
        b->at[i].answer = setup->answer[i];
    FA_TRY(b, fa_stream_create(b->driver, &b->stream, b->diag));
    for (int i = 0; i < FA_BENCH_SAMPLES_MAX; i++) {
        FA_TRY(b, fa_event_create(b->driver, &b->start[i], b->diag));
        FA_TRY(b, fa_event_create(b->driver, &b->stop[i], b->diag));
    }
    FA_TRY(b, load_reference(b, setup->reference, setup->reference_size, b->diag));
    if (b->rc == 0)
        fa_bench_allocate(b);
    fa_bench_prepare(b);
    fa_bench_reserve(b, &b->flush, b->flush_bytes);
    int rc = b->rc;
    if (rc != 0)
        fa_bench_close(&b);
    else
        *ret_bench = b;
    return rc;
}

void fa_bench_close(fa_bench **bench)
{
    fa_bench *b = *bench;
    if (b == NULL)
        return;
    *bench = NULL;
    for (int i = 0; i < FA_BENCH_CASES; i++) {
        for (int t = 0; t < FA_TENSORS_MAX; t++)
            free(b->at[i].of[t].host);
        fa_tensors_free(&b->at[i].tensors);
    }
    free(b->own);
    free(b->host);
    fa_device_ptr *const memory[] = {&b->inputs, &b->outputs, &b->workspace.all, &b->counters.all,
                                     &b->flush};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        fa_device_free(b->driver, memory[i]);
    fa_module_unload(&b->module);
    for (int i = 0; i < FA_BENCH_SAMPLES_MAX; i++) {
        fa_event_destroy(b->driver, &b->start[i]);
        fa_event_destroy(b->driver, &b->stop[i]);
    }
    fa_stream_destroy(b->driver, &b->stream);
    free(b);
}

/* ---- candidates -----------------------------------------------------------------------------*/
/* The largest workspace and the most counters of all cases. */
static void take_memory(const fa_bench_candidate *candidate, fa_bench_kernel *kernel)
{
    for (int c = 0; c < FA_BENCH_CASES; c++) {
        const fa_launches *one = &candidate->launches[c];
        if (kernel->workspace_bytes < (size_t)one->workspace_bytes)
            kernel->workspace_bytes = (size_t)one->workspace_bytes;
        if (kernel->counters < (size_t)one->counters)
            kernel->counters = (size_t)one->counters;
    }
}

int fa_bench_admit(const fa_bench *bench, const fa_bench_candidate *candidate, fa_diag *diag)
{
    fa_bench_kernel kernel = {.workspace_bytes = 0};
    take_memory(candidate, &kernel);
    const size_t most = kernel.workspace_bytes + 4 * kernel.counters;
    return most <= bench->room
               ? 0
               : fa_fail(diag, FA_ENOMEM,
                         "a workspace of %zu MiB, and %zu MiB are left of the tune's "
                         "budget of GPU memory: raise \"memory\"",
                         most >> 20, bench->room >> 20);
}

int fa_bench_load(fa_bench *b, const fa_bench_candidate *candidate, fa_bench_kernel **ret_kernel,
                  fa_diag *diag)
{
    fa_bench_kernel *kernel = calloc(1, sizeof *kernel);
    FA_OR_RETURN(fa_have(kernel != NULL, "a kernel", diag));
    b->rc = 0;
    b->diag = diag;
    memcpy(kernel->launches, candidate->launches, sizeof kernel->launches);
    take_memory(candidate, kernel);
    FA_TRY(b, fa_module_load(b->driver, candidate->cubin, candidate->size, &kernel->module, diag));
    for (int i = 0; b->rc == 0 && i < candidate->launches[0].count; i++) {
        int32_t smem_bytes = 0; /* the most of all cases */
        for (int c = 0; c < FA_BENCH_CASES; c++)
            if (smem_bytes < candidate->launches[c].at[i].smem_bytes)
                smem_bytes = candidate->launches[c].at[i].smem_bytes;
        const fa_cubin_entry entry = {candidate->cubin, candidate->size,
                                      .name = candidate->entry[i], .launch = i};
        FA_TRY(b, fa_module_function(kernel->module, entry.name, smem_bytes, &kernel->function[i],
                                     diag));
        fa_prover_load(b, entry, kernel);
    }
    if (b->rc != 0)
        fa_bench_unload(b, &kernel);
    else
        *ret_kernel = kernel;
    return b->rc;
}

void fa_bench_unload(fa_bench *bench, fa_bench_kernel **kernel)
{
    if (*kernel == NULL)
        return;
    bench->type->launcher->unload(&(*kernel)->shared);
    fa_module_unload(&(*kernel)->module);
    free(*kernel);
    *kernel = NULL;
}

/* ---- timing ---------------------------------------------------------------------------------*/
/* Begins to time; fails for a kernel that may not be timed. */
static void begin(fa_bench *b, fa_bench_kernel *const *kernels, int count, fa_diag *diag)
{
    b->rc = 0;
    b->diag = diag;
    b->pauses = false;
    for (int i = 0; i < count; i++) {
        b->pauses = b->pauses || kernels[i]->launch_us > FA_PROVER_SLOW_US;
        if (!kernels[i]->proved)
            FA_TRY(b, fa_fail(diag, FA_EINVAL, "only a proved kernel is timed"));
    }
    if (b->at[0].empty)
        FA_TRY(b, fa_fail(diag, FA_EINVAL, "the problem is empty: there is nothing to time"));
}

/* One timed launch, its events in pair `at`. A card at its power limit lowers its clock in one slow launch and raises it in the
 * next, by more than kernels differ; after a pause as long as the launch, times scatter by less than a hundredth. All rivals
 * pause, or none: what is launched behind a pause is mostly another one. */
static void timed_launch(fa_bench *b, const fa_bench_kernel *kernel, int at)
{
    FA_TRY(b, fa_fill32(b->driver, b->flush, (uint32_t)++b->draws, b->flush_bytes / 4, b->stream,
                        b->diag));
    fa_prover_restore(b, kernel, 0);
    FA_TRY(b, fa_event_record(b->driver, b->start[at], b->stream, b->diag));
    fa_prover_launch(b, kernel, 0);
    FA_TRY(b, fa_event_record(b->driver, b->stop[at], b->stream, b->diag));
    if (b->pauses) {
        fa_bench_synchronize(b);
        nanosleep(&(struct timespec){.tv_nsec = (long)fmin(1e3 * kernel->launch_us, 999e6)}, NULL);
    }
}

static void read_sample(fa_bench *b, int at, float *ret_us)
{
    double us = 0;
    FA_TRY(b, fa_event_elapsed_us(b->driver, b->start[at], b->stop[at], &us, b->diag));
    if (!(us > 0 && us < FA_US_MAX))
        FA_TRY(b, fa_fail(b->diag, FA_ECUDA,
                          "an event pair says %g us: the device's clock is not usable", us));
    if (b->rc == 0)
        *ret_us = (float)us;
}

/* After timing: the output of case 0 as it is now, poisoned before the launches. */
static int check_timed(fa_bench *b, fa_bench_kernel *kernel, fa_diag *diag)
{
    const struct fa_verdict *verdict = &b->at[0].verdict[0];
    fa_prover_collect(b, kernel, 0);
    fa_proof_check(b, 0, 0);
    if (b->rc != 0)
        return fa_fail_in(diag, b->rc, "checking a timed kernel");
    b->damaged = b->damaged || verdict->damaged;
    if (verdict->passed)
        return 0;
    kernel->proved = false;
    return fa_fail(diag, FA_ECORRUPT, "launches differ: right when proved, but when timed %s",
                   verdict->reason);
}

/* How many launches are worth timing where the proof's took so long, of which 50 us may be the host's; 0: that says enough. */
static int launches_for(double proof_us, const fa_probe *probe)
{
    enum { FEW = 2, ENOUGH = 4, LAUNCHING_US = 50 };
    const double fit = probe->budget_us / proof_us,
                 over_us = probe->best_us > 0 ? proof_us - LAUNCHING_US : 0;
    int launches = fit < probe->count ? (int)fit : probe->count;
    if (over_us > 2 * probe->best_us || (fit < ENOUGH && probe->best_us > 0))
        return 0;
    if (over_us > 1.5 * probe->best_us || fit < ENOUGH)
        launches = FEW;
    return launches < probe->count ? launches : probe->count;
}

int fa_bench_probe(fa_bench *b, fa_bench_kernel *kernel, const fa_probe *probe,
                   float *ret_samples_us, int *ret_count, fa_diag *diag)
{
    if (probe->count < 1 || probe->count > FA_BENCH_SAMPLES_MAX)
        return fa_fail(diag, FA_EINVAL, "a probe of %d launches: use 1 to %d", probe->count,
                       FA_BENCH_SAMPLES_MAX);
    begin(b, &kernel, 1, diag);
    FA_OR_RETURN(b->rc);
    int launches = launches_for(kernel->launch_us, probe);
    if (launches == 0) { /* the proof has looked at what it wrote */
        ret_samples_us[0] = (float)kernel->launch_us;
        *ret_count = 1;
        return 0;
    }
    fa_prover_poison(b);
    for (int i = 0; i < launches; i++)
        timed_launch(b, kernel, i);
    for (int i = 0; i < launches; i++)
        read_sample(b, i, &ret_samples_us[i]);
    FA_OR_RETURN(check_timed(b, kernel, diag));
    *ret_count = launches;
    return 0;
}

/* One more launch of each, checked; every kernel is, also when an earlier one was wrong. */
static int check_raced(fa_bench *b, fa_bench_kernel *const *kernels, int count, fa_diag *diag)
{
    int wrong = 0;
    for (int i = 0; i < count; i++) {
        fa_prover_poison(b);
        fa_prover_restore(b, kernels[i], 0);
        fa_prover_launch(b, kernels[i], 0);
        int rc = check_timed(b, kernels[i], wrong == 0 ? diag : NULL);
        if (rc != 0 && rc != FA_ECORRUPT)
            return rc;
        wrong = rc != 0 ? rc : wrong;
    }
    return wrong;
}

int fa_bench_race(fa_bench *b, fa_bench_kernel *const *kernels, int count, int rounds,
                  float *ret_samples_us, fa_diag *diag)
{
    int order[FA_BENCH_SAMPLES_MAX];
    if (count < 1 || count > FA_BENCH_SAMPLES_MAX || rounds < 1 || rounds > FA_BENCH_SAMPLES_MAX)
        return fa_fail(diag, FA_EINVAL, "a race of %d kernels over %d rounds: use 1 to %d", count,
                       rounds, FA_BENCH_SAMPLES_MAX);
    begin(b, kernels, count, diag);
    for (int i = 0; b->rc == 0 && i < count && kernels[0]->launch_us <= FA_PROVER_SLOW_US; i++)
        timed_launch(b, kernels[i], i); /* warm-up */
    const int at_once = FA_BENCH_SAMPLES_MAX / count; /* rounds with one synchronisation */
    for (int first = 0; b->rc == 0 && first < rounds; first += at_once) {
        const int some = rounds - first < at_once ? rounds - first : at_once;
        for (int r = 0; r < some; r++) {
            for (int i = 0; i < count; i++) { /* a random order (Fisher and Yates) */
                const int j = (int)(fa_random(b->seed, ++b->draws) % (uint64_t)(i + 1));
                order[i] = order[j];
                order[j] = i;
            }
            for (int i = 0; i < count; i++)
                timed_launch(b, kernels[order[i]], r * count + order[i]);
        }
        for (int r = 0; r < some; r++)
            for (int i = 0; i < count; i++)
                read_sample(b, r * count + i, &ret_samples_us[i * rounds + first + r]);
    }
    return b->rc != 0 ? b->rc : check_raced(b, kernels, count, diag);
}

int fa_bench_profile(fa_bench *b, fa_bench_kernel *kernel, int count, fa_diag *diag)
{
    begin(b, &kernel, 1, diag);
    FA_TRY(b, fa_profiler_turn(b->driver, true, diag));
    for (int i = 0; i < count && b->rc == 0; i++) {
        fa_prover_restore(b, kernel, 0);
        fa_prover_launch(b, kernel, 0);
    }
    fa_bench_synchronize(b);
    return FA_TRY(b, fa_profiler_turn(b->driver, false, diag));
}

/* ---- samples --------------------------------------------------------------------------------*/
static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The largest k with P(fewer than k of n samples lie below the median) <= 2.5%; then the k-th
 * smallest and the k-th largest sample enclose the median with at least 95%. 0 when n < 6. */
static int interval_rank(int n)
{
    double log_term = -n * 0.69314718055994531, below = 0; /* log of C(n, i) / 2^n */
    int k = 0;
    for (int i = 0; i < n / 2; i++) {
        below += exp(log_term);
        if (!(below <= 0.025))
            break;
        k = i + 1;
        log_term += log((double)(n - i) / (i + 1));
    }
    return k;
}

int fa_race_level(float *samples_us, int count, int rounds)
{
    float mean[FA_BENCH_SAMPLES_MAX];
    double middle, low, high;
    for (int r = 0; r < rounds; r++) {
        double sum = 0;
        for (int i = 0; i < count; i++)
            sum += log((double)samples_us[i * rounds + r]);
        mean[r] = (float)exp(sum / count);
    }
    int rc = fa_samples_summary(mean, rounds, &middle, &low, &high);
    for (int i = 0; rc == 0 && i < count * rounds; i++)
        samples_us[i] *= (float)(middle / (double)mean[i % rounds]);
    return rc;
}

int fa_samples_summary(const float *samples_us, int count, double *ret_median_us,
                       double *ret_low_us, double *ret_high_us)
{
    if (count < 1)
        return FA_EINVAL;
    for (int i = 0; i < count; i++)
        if (!(samples_us[i] > 0 && samples_us[i] < INFINITY))
            return FA_EINVAL;
    FA_ENDS(fa_free_at) float *sorted = malloc((size_t)count * sizeof *sorted);
    if (sorted == NULL)
        return FA_ENOMEM;
    memcpy(sorted, samples_us, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, by_value);
    int k = interval_rank(count);
    *ret_median_us = ((double)sorted[(count - 1) / 2] + (double)sorted[count / 2]) / 2;
    *ret_low_us = (double)sorted[k > 0 ? k - 1 : 0];
    *ret_high_us = (double)sorted[k > 0 ? count - k : count - 1];
    return 0;
}
